# SPDX-License-Identifier: Apache-2.0
"""The trace context of messages: hostile values, places, ids and rates."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.entry import Entry
from amqproute.message import Message
from amqproute.relay.hop_sections import prefix_maker
from amqproute.trace_context import (
    CONTEXT_OCTETS,
    LONGEST,
    RANDOM,
    SAMPLED,
    HopTracing,
    TraceContext,
    TraceIds,
    context_of,
    is_within_rate,
    parse_traceparent,
)
from tests.support.fakes import message
from tests.support.plain_decoder import decode_all

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{TRACE[::-1]}-{SPAN[::-1]}-00"
KEY = b"k" * 32


def ids(rate: float = 0.0, key: bytes = KEY) -> TraceIds:
    return TraceIds(key, lambda: rate)


class ParseTests(SynchronousTestCase):
    """W3C Trace Context, sections 3.2 and 4.3."""

    def test_valid(self) -> None:
        """Version 00, and later ones as far as they are known."""
        expected = TraceContext(TRACE, SPAN, SAMPLED)
        self.assertEqual(parse_traceparent(VALID), expected)
        self.assertEqual(str(expected), VALID)
        for text in (
            f"01-{TRACE}-{SPAN}-01",
            f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like",
            f"fe-{TRACE}-{SPAN}-01-",
        ):
            self.assertEqual(parse_traceparent(text), expected, text)
        self.assertEqual(parse_traceparent(f"00-{TRACE}-{SPAN}-ff"), expected._replace(flags=3))

    def test_invalid(self) -> None:
        """Everything else is as if it were not there."""
        for value in (
            "", "00", VALID[:-1], f"{VALID}0", f"{VALID}-", f"{VALID}-more", f" {VALID}",
            f"{VALID}\n",
            VALID.upper(), VALID.replace("a", "A"), VALID.replace("-", "_"),
            f"ff-{TRACE}-{SPAN}-01", f"0x-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
            f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-0g", f"01-{TRACE}-{SPAN}-01more",
            f"00-{TRACE[:-1]}é-{SPAN}-01", f"01-{TRACE}-{SPAN}-01-" + LONGEST * "x",
            f"{VALID},{VALID}", VALID.encode(), None, 5, [VALID], {"traceparent": VALID},
        ):  # fmt: skip
            self.assertIsNone(parse_traceparent(value), value)

    @given(st.text(max_size=80) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-.*"))
    def test_any_text(self, text: str) -> None:
        """What is valid is written so that everybody else reads the same."""
        found = parse_traceparent(text)
        if found is not None:
            self.assertEqual(len(str(found)), CONTEXT_OCTETS)
            self.assertEqual(parse_traceparent(str(found)), found)
            self.assertEqual(text[3:52], str(found)[3:52])


class MessageTests(SynchronousTestCase):
    """The context of a message."""

    def test_places(self) -> None:
        """The annotation is newer than the property; an invalid one is no annotation."""
        both = {"annotations": {"x-opt-traceparent": OTHER}, "application": {"traceparent": VALID}}
        for fields, expected in (
            ({}, None),
            ({"application": {"traceparent": VALID, "other": 1}}, VALID),
            ({"annotations": {"x-opt-traceparent": OTHER}}, OTHER),
            (both, OTHER),
            ({**both, "annotations": {"x-opt-traceparent": "?"}}, VALID),
            ({**both, "annotations": {"x-opt-traceparent": 7}}, VALID),
            ({"application": {"name": "traceparent"}}, None),
            ({"application": {"traceparent": VALID.encode()}}, None),
            ({"application": {"tracestate": "a=b"}}, None),
            ({"annotations": {"traceparent": VALID}}, None),
        ):
            found = context_of(message(b"traceparent", to="q", **fields))  # type: ignore[arg-type]
            self.assertEqual(None if found is None else str(found), expected, fields)

    def test_twice(self) -> None:
        """A property that is there twice is not used: nobody knows which one is meant."""
        one = message(application={"traceparent": VALID}).encoded
        start = one.index(b"\xa1\x0btraceparent")
        item = one[start : start + 13 + 2 + CONTEXT_OCTETS]
        size = one[start - 2]
        twice = one[: start - 2] + bytes((size + len(item), 4)) + item + one[start:]
        self.assertEqual(twice.count(VALID.encode()), 2)
        self.assertIsNone(context_of(Message(twice)))

    def test_unreadable(self) -> None:
        """A message that cannot be decoded has none."""
        octets = message(application={"traceparent": VALID}).encoded
        for broken in (octets[:40], b"traceparent", b"", octets.replace(b"\xa1\x0b", b"\xff\x0b")):
            self.assertIsNone(context_of(Message(broken)))

    def test_no_caches(self) -> None:
        """The message's caches, which belong to another thread, stay as they are."""
        one = message(to="q", application={"traceparent": VALID})
        context_of(one)
        self.assertIsNone(one.located)
        self.assertIsNone(one._annotations)


class IdTests(SynchronousTestCase):
    """Ids that both ends derive."""

    def test_derived(self) -> None:
        """Each fact and the secret make another id; the same ones make the same."""
        found = {
            ids(key=key).span_id(stage, stream, entry, number)
            for key in (KEY, b"l" * 32)
            for stage in ("relay", "store")
            for stream in ("s", "t")
            for entry in (1, 2)
            for number in (0, 1)
        }
        self.assertEqual(len(found), 32)
        self.assertEqual(ids().span_id("relay", "s", 1), ids().span_id("relay", "s", 1))
        context = ids().started("s", 7)
        self.assertEqual(parse_traceparent(str(context)), context)
        self.assertEqual(context.flags, RANDOM)
        self.assertEqual(ids(1.0).started("s", 7).flags, RANDOM | SAMPLED)

    def test_rate(self) -> None:
        """The rate keeps its share; whoever has a higher one keeps all of these."""
        traces = [ids().trace_id("s", entry) for entry in range(4000)]
        kept = {rate: [is_within_rate(each, rate) for each in traces] for rate in (0, 0.1, 0.5, 1)}
        self.assertEqual((sum(kept[0]), sum(kept[1])), (0, 4000))
        self.assertTrue(300 < sum(kept[0.1]) < 500, sum(kept[0.1]))
        self.assertTrue(1850 < sum(kept[0.5]) < 2150, sum(kept[0.5]))
        self.assertTrue(all(b for a, b in zip(kept[0.1], kept[0.5], strict=True) if a))


class HopTests(SynchronousTestCase):
    """What is written for the next hop, read by the plain decoder."""

    def annotations(self, tracing: HopTracing, entry_id: int = 7, **fields: Any) -> dict[str, Any]:
        """Return the annotations of a message on the next hop, in order."""
        make = prefix_maker("mx.a", "a.example", lambda _: None, tracing, "store")
        octets, _ = make(Entry(entry_id, message(to="q@b", **fields), True, True, 0, 0), 1000)
        for section in decode_all(octets):
            if section.descriptor == 0x72:
                return {str(key): value for key, value in section.value.items()}
        return {}

    def test_dropped(self) -> None:
        """A contract that drops removes what there is, with tracing and without."""
        found = {"annotations": {"x-opt-traceparent": OTHER, "x-opt-else": 1}}
        for tracing in (HopTracing(), HopTracing(False, ids())):
            self.assertNotIn("x-opt-traceparent", self.annotations(tracing, **found))
            self.assertEqual(self.annotations(tracing, **found)["x-opt-else"], 1)

    def test_passed_on(self) -> None:
        """Without tracing, what there is goes on as it is, and nothing is added."""
        found = {"annotations": {"x-opt-traceparent": OTHER}}
        self.assertEqual(self.annotations(HopTracing(True), **found)["x-opt-traceparent"], OTHER)
        for fields in ({}, {"application": {"traceparent": VALID}}):
            self.assertNotIn("x-opt-traceparent", self.annotations(HopTracing(True), **fields))

    def test_written(self) -> None:
        """With tracing the next hop gets the trace, and our span as the parent."""
        span = ids().span_id("relay", "store", 7)
        for fields, trace, flags in (
            ({"application": {"traceparent": VALID}}, TRACE, "01"),
            ({"annotations": {"x-opt-traceparent": OTHER, "x-opt-z": 1}}, TRACE[::-1], "00"),
            ({}, ids().trace_id("store", 7), "02"),
        ):
            found = self.annotations(HopTracing(True, ids()), **fields)  # type: ignore[arg-type]
            self.assertEqual(found["x-opt-traceparent"], f"00-{trace}-{span}-{flags}")
        self.assertEqual(
            self.annotations(HopTracing(True, ids(1.0)))["x-opt-traceparent"][-2:], "03"
        )

    def test_each_its_own(self) -> None:
        """What precedes the context is cached; the context is each message's own."""
        make = prefix_maker("mx.a", "a.example", lambda _: None, HopTracing(True, ids()), "store")
        for ttl in (None, 5000):
            octets = [
                make(Entry(n, message(to="q@b", ttl=ttl), True, True, 0, 0), 1000)[0]
                for n in (1, 2)
            ]
            self.assertEqual(len(octets[0]), len(octets[1]))
            self.assertNotEqual(octets[0], octets[1])

    def test_forged_placeholder(self) -> None:
        """An annotation of a client cannot take the place of ours."""
        forged = {"x-opt-a": "?" * CONTEXT_OCTETS, "x-opt-traceparent": "?" * CONTEXT_OCTETS}
        found = self.annotations(HopTracing(True, ids()), annotations=forged)
        self.assertEqual(found["x-opt-a"], "?" * CONTEXT_OCTETS)
        self.assertEqual(found["x-opt-traceparent"][3:35], ids().trace_id("store", 7))
