# SPDX-License-Identifier: Apache-2.0
"""Contents of the classes file, stream and tunnel: round trips by way of messages of AMQP 1.0.

Rules: 09: part 5.6, 09-W-27, 09-TUN-02, -03.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.content_class import CONTENT_CLASS, ContentClass, content_class_of
from amqproute.message import Message
from amqproute.trace_context import context_of
from amqproute.translation.content_classes import META_DATA, as_basic, from_basic
from amqproute.translation.content_message import ContentRefused, read_content
from amqproute.translation.message_content import DeliveryState, content_of
from amqproute.wire.amqp09.arguments import decode_properties
from amqproute.wire.amqp09.field_tables import MOST_VALUES, FieldTable
from amqproute.wire.amqp10 import sections, spec
from amqproute.wire.amqp10.types import Symbol
from tests.support.plain_amqp09 import header, pair_octets, property_octets
from tests.translation.test_round_trips import SHORT
from tests.wire.amqp09.test_field_tables import PAIRS

IDS = {ContentClass.FILE: 70, ContentClass.STREAM: 80, ContentClass.TUNNEL: 110}
OCTET = st.integers(0, 255)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "content-type": SHORT,
    "content-encoding": SHORT,
    "headers": PAIRS,
    "priority": OCTET,
    "reply-to": SHORT,
    "message-id": SHORT,
    "filename": SHORT,
    "timestamp": st.integers(0, 1 << 50),
    "cluster-id": SHORT,
    "proxy-name": SHORT,
    "data-name": SHORT,
    "durable": OCTET,
    "broadcast": OCTET,
}
NAMES = {
    ContentClass.FILE: (
        "content-type content-encoding headers priority reply-to message-id filename timestamp "
        "cluster-id"
    ),
    ContentClass.STREAM: "content-type content-encoding headers priority timestamp",
    ContentClass.TUNNEL: "headers proxy-name data-name durable broadcast",
}


@st.composite
def contents(draw: st.DrawFn) -> tuple[ContentClass, bytes]:
    """Flags and values of a class, each property absent, empty or anything it can be."""
    kind = draw(st.sampled_from(list(NAMES)))
    given_values = {name: draw(VALUES[name]) for name in NAMES[kind].split() if draw(st.booleans())}
    return kind, property_octets(IDS[kind], given_values)


def message_of(kind: ContentClass, octets: bytes, meta_data: bytes = b"") -> Message:
    """Return the message that a content becomes."""
    more = {META_DATA: FieldTable.from_octets(meta_data)} if meta_data else None
    basic = as_basic(kind, decode_properties(IDS[kind], octets), octets, more)
    return Message(read_content(basic.properties, basic.octets).message(b"body", "e", "k"))


def octets_of(kind: ContentClass, message: Message) -> tuple[bytes, bytes]:
    """Return flags and values as a consumer of the class gets them, and the meta-data."""
    content = content_of(message, DeliveryState("q", 0))
    form = from_basic(kind, content.property_octets)
    return form.octets, form.meta_data.octets


class RoundTripTests(SynchronousTestCase):
    @given(contents())
    def test_same_octets(self, case: tuple[ContentClass, bytes]) -> None:
        """Properties come out as they went in, octet by octet, and so does the class."""
        kind, octets = case
        message = message_of(kind, octets)
        self.assertEqual(content_class_of(message), kind)
        self.assertEqual(octets_of(kind, message)[0], octets)

    @given(contents(), PAIRS)
    def test_meta_data(self, case: tuple[ContentClass, bytes], pairs: Any) -> None:
        """A table of a method beside them is the same, too."""
        kind, octets = case
        table = pair_octets(pairs)
        found = octets_of(kind, message_of(kind, octets, table))
        self.assertEqual(found, (octets, table))

    @given(contents())
    def test_changed_on_the_way(self, case: tuple[ContentClass, bytes]) -> None:
        """Additions of another broker to a message change nothing else."""
        kind, octets = case
        message = message_of(kind, octets)
        annotations = {**message.annotations, Symbol("x-other"): "here"}
        section = sections.encode_annotations(spec.SECTION_MESSAGE_ANNOTATIONS, annotations)
        found = octets_of(kind, Message(_with_annotations(message, section)))[0]
        _, _, was = header(IDS[kind].to_bytes(2, "big") + bytes(10) + octets)
        _, _, now = header(IDS[kind].to_bytes(2, "big") + bytes(10) + found)
        names = [name for name, *_ in now.pop("headers")]
        self.assertEqual(names.count("x-other"), 1)
        before = [name for name, *_ in was.pop("headers", [])]
        self.assertEqual(set(names) - {"x-other"}, set(before) - {"x-other"})
        self.assertEqual(now, was)


class ClassTests(SynchronousTestCase):
    def test_durable(self) -> None:
        """File content is durable, stream content is not, and tunnel content as it says."""
        cases = (
            (ContentClass.FILE, {}, True),
            (ContentClass.STREAM, {"priority": 9}, False),
            (ContentClass.TUNNEL, {}, False),
            (ContentClass.TUNNEL, {"durable": 0}, False),
            (ContentClass.TUNNEL, {"durable": 1}, True),
        )
        for kind, values, durable in cases:
            message = message_of(kind, property_octets(IDS[kind], values))
            self.assertIs(message.header.durable, durable, (kind, values))

    def test_names(self) -> None:
        """Fields without a counterpart in 1.0 travel as annotations with these names."""
        octets = property_octets(70, {"filename": "a.txt"})
        found = message_of(ContentClass.FILE, octets).annotations
        self.assertEqual(found[Symbol("x-opt-file-name")], "a.txt")
        self.assertEqual(found[CONTENT_CLASS], "file")
        octets = property_octets(110, {"proxy-name": "q", "data-name": "d", "broadcast": 1})
        found = message_of(ContentClass.TUNNEL, octets, pair_octets([("k", "I", 1)])).annotations
        self.assertEqual(
            {
                str(key): value
                for key, value in found.items()
                if str(key).startswith("x-opt-tunnel")
            },
            {
                "x-opt-tunnel-proxy-name": "q",
                "x-opt-tunnel-data-name": "d",
                "x-opt-tunnel-broadcast": 1,
                "x-opt-tunnel-meta-data": {"k": 1},
            },
        )

    def test_strangers_values(self) -> None:
        """Annotations of senders of 1.0 count as far as they fit; others are basic content."""
        for value in (b"stream", 1, "other", Symbol("other"), None):
            section = sections.encode_annotations(
                spec.SECTION_MESSAGE_ANNOTATIONS, {CONTENT_CLASS: value}
            )
            self.assertEqual(content_class_of(Message(section)), ContentClass.BASIC)
        annotations: dict[object, object] = {
            CONTENT_CLASS: Symbol("tunnel"),
            Symbol("x-opt-tunnel-proxy-name"): "x" * 256,
            Symbol("x-opt-tunnel-data-name"): 5,
            Symbol("x-opt-tunnel-broadcast"): 256,
            Symbol("x-opt-tunnel-meta-data"): "text",
        }
        section = sections.encode_annotations(spec.SECTION_MESSAGE_ANNOTATIONS, annotations)
        message = Message(section)
        self.assertEqual(content_class_of(message), ContentClass.TUNNEL)
        octets, meta_data = octets_of(ContentClass.TUNNEL, message)
        self.assertEqual(set(header(b"\0\x6e" + bytes(10) + octets)[2]), {"headers"})
        self.assertEqual(meta_data, b"")

    def test_too_many_headers(self) -> None:
        """A table that is as large as can be has no place for what is to be added: refused."""
        table = pair_octets([("k", "V", None)] * MOST_VALUES)
        headers = len(table).to_bytes(4, "big") + table
        octets = b"\x20\0" + headers
        with self.assertRaises(ContentRefused):
            message_of(ContentClass.STREAM, octets)


def _with_annotations(message: Message, section: bytes) -> bytes:
    offsets = message.offsets
    encoded = message.encoded
    start, end = offsets.message_annotations_start, offsets.message_annotations_end
    return encoded[:start] + section + encoded[end:]


class TraceContextTests(SynchronousTestCase):
    """The header ``traceparent``, whatever the class."""

    def test_header(self) -> None:
        """A client of each class gives its trace context; what is no text is ignored."""
        context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        for kind in NAMES:
            for value, expected in ((context.encode(), context), (b"nonsense", None)):
                headers = [("traceparent", "S", value)]
                octets = property_octets(IDS[kind], {"headers": headers})
                found = context_of(message_of(kind, octets))
                self.assertEqual(None if found is None else str(found), expected, kind)
            octets = property_octets(IDS[kind], {"headers": [("traceparent", "I", 7)]})
            self.assertIsNone(context_of(message_of(kind, octets)))
