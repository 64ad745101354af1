# SPDX-License-Identifier: Apache-2.0
"""From events to records: complete, and within the reader's bounds."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.entry import FLEETING_MS, Entry
from amqproute.journal.event import (
    ArrivalEvent,
    DepartureEvent,
    JournalEvent,
    MessageRun,
    RunEvent,
)
from amqproute.journal.record import LONGEST_NAME, LONGEST_RUN, RecordKind, named
from amqproute.journal.recovery import begun_by
from amqproute.message import Message
from amqproute.values import Origin
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.types import Symbol
from tests.journal.rig import ANN, entry, message
from tests.support.patience import PATIENCE

LONG = 300_000
LARGEST = 2**63 - 1


def told(event: JournalEvent) -> dict[str, Any]:
    """Return what the only run of an event says, all of it."""
    (run,) = event.runs()
    return {**json.loads(run.shared), **json.loads(run.columns)}


def came(*entries: Entry, node: str = "q", link: str = "l") -> ArrivalEvent:
    origin = Origin(ANN, link=link)
    return ArrivalEvent(1, [(node, each, origin, b"", None) for each in entries], "")


class LengthTests(SynchronousTestCase):
    """Foreign texts are cut; those that are worthless in part are left out."""

    def test_stock_is_whole(self) -> None:
        """The ranges of a stock are never cut: what is cut off would count as lost."""
        ranges = " ".join(map(str, range(1, 10_000, 2)))
        self.assertEqual(told(RunEvent(RecordKind.STOCK, 1, {"ranges": ranges}))["ranges"], ranges)

    def test_words_are_cut(self) -> None:
        """Words are."""
        self.assertEqual(
            len(told(RunEvent(RecordKind.GAP, 1, {"words": "x" * LONG}))["words"]), 256
        )

    def test_names(self) -> None:
        """Ids, addresses, nodes and links of any length take no more than a few hundred octets."""
        for name in ("\x01" * LONG, b"\xff" * LONG):
            entries = [
                entry(each, message_id=name, to=f"{each}" + "x" * LONG)
                for each in range(LONGEST_RUN)
            ]
            arrival = came(
                *entries,
                node="n" * LONG,
                link="k" * LONG,
            )
            (run,) = arrival.runs()
            self.assertLess(len(run.shared) + len(run.columns), 64 * 2 * 1024)
        gone = DepartureEvent(RecordKind.DELIVERED, 1, "n" * LONG, [entry(1)])
        self.assertEqual(told(gone)["node"], named("n" * LONG))
        self.assertEqual(told(came(entry(1), node="n" * LONG))["node"], named("n" * LONG))

    def test_long_ids_stay_different(self) -> None:
        """Two long ids with the same beginning are two; equal ones are one."""
        one, other, again = (
            told(came(entry(1, message_id="i" * LONG + end)))["message_id"] for end in "aba"
        )
        self.assertNotEqual(one, other)
        self.assertEqual(one, again)
        self.assertEqual(one, named("i" * LONG + "a"))
        self.assertEqual(named("i" * LONGEST_NAME), "i" * LONGEST_NAME)

    def test_longest_address(self) -> None:
        """An address of the greatest length is written as all that are shorter: domain in small."""
        for more in (-1, 0):
            local = "l" * (LONGEST_NAME + more - len("@BETA.EXAMPLE"))
            to = told(came(entry(1, to=f"{local}@BETA.EXAMPLE")))["to"]
            self.assertEqual(to, f"{local}@beta.example")

    def test_first_and_last_alike(self) -> None:
        """Of a run whose ends are alike each entry has what is its own."""
        addresses = ["a@beta.example", "b@beta.example", "a@beta.example"]
        run = told(came(*[entry(number, to=to) for number, to in enumerate(addresses, 1)]))
        self.assertEqual((run["entry"], run["to"]), ([1, 2, 3], addresses))


class BareTests(SynchronousTestCase):
    """Equal facts of two brokers about the same message, whatever each has stored with it."""

    def test_size(self) -> None:
        """The bare message's octets are what the digest is of; those stored are more."""
        made = message(100, message_id="m")
        sent = Message(made.encoded[: made.bare_from] + made.bare)
        annotated = sent.with_annotations({Symbol("x-opt-amqproute-origin"): "a" * 50})
        self.assertGreater(annotated.size, sent.size)
        facts = [told(came(Entry(1, each, True, True, 1, 0))) for each in (sent, annotated, made)]
        for said, each in zip(facts, (sent, annotated, made), strict=True):
            self.assertEqual(said["size"], each.size)
            self.assertEqual(said["bare_size"], len(made.bare))
            self.assertEqual(said["digest"], hashlib.sha256(made.bare).hexdigest())

    def test_footer(self) -> None:
        """A footer is none of the bare message."""
        made = message(100)
        footed = Message(made.encoded + b"\x00\x53\x78" + codec.encode({Symbol("x"): 1}))
        one, other = (told(came(Entry(1, each, True, True, 1, 0))) for each in (made, footed))
        self.assertEqual(one["bare_size"], other["bare_size"])
        self.assertEqual(one["digest"], other["digest"])
        self.assertGreater(other["size"], one["size"])

    def test_no_message(self) -> None:
        """Of what cannot be read as a message neither is said."""
        said = told(came(Entry(1, Message(b"nothing"), True, True, 1, 0)))
        self.assertEqual(said["size"], 7)
        self.assertFalse({"bare_size", "digest"} & said.keys())


class NumberTests(SynchronousTestCase):
    """Numbers of a record have 63 bits, whatever others choose: tables have no larger."""

    def test_lives(self) -> None:
        """A life that does not end in earnest ends at the last instant there is; one that ends
        at once, when the message came."""
        lives = [0, 1, LARGEST // 1000, LARGEST // 1000 + 1, LARGEST, FLEETING_MS]
        entries = [Entry(each, message(), True, True, 1, ms) for each, ms in enumerate(lives)]
        said = told(came(*entries))["expires"]
        self.assertEqual(said[:3], [None, 1000, LARGEST // 1000 * 1000])
        self.assertEqual(said[3:], [LARGEST, LARGEST, 1000])

    def test_tags(self) -> None:
        """A tag that is no number of an entry does not tell where a message came from."""
        for tag, is_told in ((b"\x7f" + b"\xff" * 7, True), (b"\x80" + bytes(7), False)):
            origin = Origin(ANN, store="s")
            said = told(ArrivalEvent(1, [("q", entry(1), origin, tag, None)], ""))
            self.assertEqual(said.get("from_entry"), LARGEST if is_told else None)
            self.assertEqual("from_stream" in said, is_told)


class SpanTests(SynchronousTestCase):
    """Durations of entries."""

    def test_microseconds(self) -> None:
        """In its queue, from the millisecond in which it came; and from there to the outcome."""
        one = entry(1)
        came_us = one.arrived_ms * 1000
        one.sent_us = came_us + 2_000_123
        said = told(DepartureEvent(RecordKind.DELIVERED, one.sent_us + 456, "q", [one]))
        self.assertEqual((said["queue_us"], said["wire_us"]), (2_000_123, 456))


class LetGoTests(SynchronousTestCase):
    """References of an event to its messages."""

    def test_gone(self) -> None:
        """It is asked whether it ends something until it is committed, and holds nothing then."""
        event = DepartureEvent(RecordKind.DELIVERED, 1, "q", [entry(1)])
        event.runs()
        self.assertTrue(event.ends)
        other = DepartureEvent(RecordKind.DELIVERED, 1, "q", [entry(2)])
        other.committed_us = 2
        other.runs()
        self.assertFalse(other._entries)
        self.assertEqual(told(other)["entry"], 2)


class ThreadTests(SynchronousTestCase):
    """The journal's thread and the one that has the store carry an event ask at once."""

    def test_made_once(self) -> None:
        """A second reader gets the first one's result, and none of a removed message."""
        began = [threading.Event(), threading.Event()]
        goes_on = threading.Event()
        made: list[str] = []

        class SlowEvent(DepartureEvent):
            def _made(self) -> Sequence[MessageRun]:
                made.append(threading.current_thread().name)
                began[0].set()
                goes_on.wait(PATIENCE)
                return super()._made()

        event = SlowEvent(RecordKind.DELIVERED, 5, "q", [entry(1)], {})
        event.committed_us = 7
        found: list[Sequence[MessageRun]] = []

        def ask(number: int) -> None:
            began[number].set()
            found.append(event.runs())

        first = threading.Thread(target=lambda: found.append(event.runs()), name="first")
        first.start()
        self.assertTrue(began[0].wait(PATIENCE))
        second = threading.Thread(target=ask, args=(1,), name="second")
        second.start()
        self.assertTrue(began[1].wait(PATIENCE))
        goes_on.set()
        first.join(PATIENCE)
        second.join(PATIENCE)
        self.assertEqual(made, ["first"])
        self.assertEqual([[run.count for run in each] for each in found], [[1], [1]])


class GroupTests(SynchronousTestCase):
    """Arrivals of one batch at several nodes."""

    def test_another_queue_each_time(self) -> None:
        """Each node has one run, however often the nodes change; each keeps its order."""
        origin, other = Origin(ANN, link="l"), Origin(ANN, link="m")
        arrivals: list[Any] = []
        for number in range(1, 7):
            each = entry(number)
            arrivals.append((f"q{number % 2}", each, origin, b"", RecordKind.ROUTED))
            arrivals.append(("/exchanges/x", each.message, origin, b"%d" % number, 1))
        arrivals.append(("q1", entry(7), other, b"", RecordKind.ROUTED))
        runs = ArrivalEvent(1, arrivals, "").runs()
        self.assertEqual(
            [
                (run.kind, run.count, said["node"], said["link"], said.get("entry"))
                for run in runs
                for said in [{**json.loads(run.shared), **json.loads(run.columns)}]
            ],
            [
                ("routed", 3, "q1", "l", [1, 3, 5]),
                ("received", 6, "/exchanges/x", "l", None),
                ("routed", 3, "q0", "l", [2, 4, 6]),
                ("routed", 1, "q1", "m", 7),
            ],
        )


class BegunTests(SynchronousTestCase):
    """The entries that begin with a run."""

    def test_one_and_many(self) -> None:
        """A run of one record has its entry where others have what all of them share."""
        for count in (1, 2, 3):
            (run,) = came(*map(entry, range(1, count + 1))).runs()
            self.assertEqual(begun_by(run), list(range(1, count + 1)))
