# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.frames` and `amqproute.wire.amqp10.fastpath`."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import AmqpError, DecodeError
from amqproute.wire.amqp10 import fastpath, spec
from amqproute.wire.amqp10.codec import encode
from amqproute.wire.amqp10.frames import (
    EMPTY_FRAME,
    MOST_VALUES,
    Frame,
    FrameBuffer,
    FramingError,
    encode_disposition,
    encode_flow,
    encode_frame,
    encode_sasl_frame,
    encode_transfer,
)
from amqproute.wire.amqp10.spec import decode_composite
from amqproute.wire.amqp10.types import LONG, Array, Described, Long, Symbol, ULong
from tests.support.amqp_values import PERFORMATIVES, U16, U32, composites, same

LIMIT = 100_000


def framed(body: bytes, kind: int = 0, channel: int = 0, doff: int = 2) -> bytes:
    """Make a frame of any body."""
    extended = bytes(4 * doff - 8)
    size = 8 + len(extended) + len(body)
    return (
        size.to_bytes(4, "big") + bytes((doff, kind)) + channel.to_bytes(2, "big") + extended + body
    )


def drain(buffer: FrameBuffer) -> tuple[list[Frame], AmqpError | None]:
    """Take all frames, and the fault that ends them."""
    found: list[Frame] = []
    try:
        while frames := buffer.frames():
            found += frames
    except (FramingError, DecodeError) as fault:
        return found, fault
    return found, None


def parse(data: bytes, limit: int = LIMIT) -> tuple[list[Frame], AmqpError | None]:
    """Take the frames of a whole stream."""
    buffer = FrameBuffer(limit)
    buffer.feed(data)
    return drain(buffer)


FRAMES = st.one_of(
    st.just(EMPTY_FRAME),
    st.builds(lambda channel, body: b"".join(encode_frame(channel, body)), U16, PERFORMATIVES),
    st.builds(
        lambda channel, body, payload: b"".join(encode_frame(channel, body, payload)),
        U16,
        composites(spec.Transfer),
        st.lists(st.binary(max_size=300), max_size=3),
    ),
    st.builds(encode_sasl_frame, composites(spec.SaslInit)),
)


class FrameBufferTests(SynchronousTestCase):
    def test_vectors(self) -> None:
        """Frames by hand."""
        stream = bytes.fromhex(
            "0000000802000000"  # heartbeat
            "000000110200 0007 005310c00401a10161"  # open on channel 7
            "00000010 02 01 0000 005344c003015000"  # SASL outcome
        )
        found, fault = parse(stream)
        self.assertIsNone(fault)
        self.assertEqual(
            found,
            [
                (0, 0, None, b""),
                (7, 0, spec.Open(container_id="a"), b""),
                (0, 1, spec.SaslOutcome(code=0), b""),
            ],
        )

    def test_extended_header_is_skipped(self) -> None:
        """doff above 2 only moves the body (part 2 §2.3.1)."""
        body = encode(spec.Transfer(handle=1)) + b"payload"
        self.assertEqual(
            parse(framed(body, doff=5, channel=3)),
            ([(3, 0, spec.Transfer(handle=1), b"payload")], None),
        )
        self.assertEqual(parse(framed(b"", doff=255)), ([(0, 0, None, b"")], None))

    def test_framing_errors(self) -> None:
        """A stream that is not made of frames ends the connection with the right condition."""
        for octets in (
            "00000007 02000000",
            "00000000 02000000",
            "00000008 01000000",
            "00000008 00000000",
            "00000008 03000000",
            "00000008 02020000",
            "00000008 02010000",
            "7fffffff 02000000",
            "7fffffff",
            "00000007",
        ):
            found, fault = parse(bytes.fromhex(octets))
            self.assertEqual(found, [])
            self.assertIsInstance(fault, FramingError, octets)
            assert fault is not None
            self.assertEqual(fault.condition, "amqp:connection:framing-error")

    def test_bodies_out_of_place(self) -> None:
        """A body that is no performative of the frame's type, or is too long, is refused."""
        accepted = encode(spec.Accepted())
        for data in (
            framed(accepted),
            framed(encode(spec.Open(container_id="a")), kind=1),
            framed(encode(spec.Transfer(handle=0)), kind=1),
            framed(encode(spec.SaslOutcome(code=0))),
            framed(encode(spec.Close()) + b"x"),
            framed(encode(spec.Disposition(role=True, first=0)) + b"x"),
            framed(encode(spec.SaslOutcome(code=0)) + b"x", kind=1),
            framed(encode(Described(ULong(0x99), []))),
            framed(b"\x40"),
            framed(b"\x00\x53"),
            framed(b"\x00\x53\x14"),
            framed(b"\x00\x53\x14\xc0"),
        ):
            found, fault = parse(data)
            self.assertEqual(found, [])
            self.assertIsInstance(fault, DecodeError)

    def test_many_numeric_keys(self) -> None:
        """No map of a performative has them: decoding stops where they become too many."""
        for keys, words in ((64, "properties is no fields"), (65, "more than 64 numeric keys")):
            flow = spec.Flow(
                incoming_window=1,
                next_outgoing_id=0,
                outgoing_window=1,
                properties={Long(key): None for key in range(keys)},  # type: ignore[misc]
            )
            _, fault = parse(framed(encode(flow)))
            self.assertIsInstance(fault, DecodeError)
            self.assertIn(words, str(fault))

    def test_many_values(self) -> None:
        """A performative has a bound of values, and is not decoded past it."""
        most = MOST_VALUES
        large = {Symbol(f"k{n}"): None for n in range(most // 2)}
        shapes: list[object] = [
            large,
            [None] * most,
            {Symbol("a"): [[None] * (most // 4)] * 4},
            Array(LONG, [Long(0)] * most, ()),
        ]
        for value in shapes:
            fields = [b"\0" * 4, value]
            body = encode(Described(ULong(0x17), fields)) + b"never looked at"
            _, fault = parse(framed(body), 1 << 20)
            self.assertIsInstance(fault, DecodeError)
            self.assertIn("more values than there may be", str(fault))

    def test_unsettled_deliveries(self) -> None:
        """There is room for the largest map of the standard's: unsettled deliveries."""
        tags = {b"%08d" % n: spec.Received(section_number=1, section_offset=n) for n in range(5000)}
        attach = spec.Attach(
            name="a", handle=0, role=True, source=None, target=None, unsettled=tags
        )
        found, fault = parse(framed(encode(attach)), 1 << 20)
        self.assertIsNone(fault)
        self.assertEqual(found, [(0, 0, attach, b"")])

    def test_frames_before_a_fault_are_not_lost(self) -> None:
        """They come first; then the fault, again and again, and nothing after it."""
        buffer = FrameBuffer(LIMIT)
        buffer.feed(EMPTY_FRAME * 2 + b"\0\0\0\7" + EMPTY_FRAME)
        self.assertEqual(len(buffer.frames()), 2)
        self.assertRaises(FramingError, buffer.frames)
        buffer.feed(EMPTY_FRAME)
        self.assertRaises(FramingError, buffer.frames)

    def test_limit_counts_at_the_size_word(self) -> None:
        """Four bytes suffice to refuse; a frame of exactly the limit passes."""
        body = encode(spec.Transfer(handle=0))
        exact = framed(body + bytes(512 - 8 - len(body)))
        self.assertEqual(len(exact), 512)
        self.assertIsNone(parse(exact, 512)[1])
        buffer = FrameBuffer(511)
        for octet in exact[:3]:
            buffer.feed(bytes((octet,)))
            self.assertEqual(buffer.frames(), [])
        buffer.feed(exact[3:4])
        self.assertRaises(FramingError, buffer.frames)

    def test_limit_can_be_raised(self) -> None:
        """The limit that counts is the one in force when the frame is looked at."""
        data = framed(encode(spec.Transfer(handle=0)) + bytes(600))
        buffer = FrameBuffer(512)
        buffer.feed(EMPTY_FRAME + data)
        self.assertEqual(len(buffer.frames(1)), 1)
        buffer.set_max_frame_size(1024)
        self.assertEqual(len(buffer.frames()), 1)

    def test_one_at_a_time_and_the_rest(self) -> None:
        """After the SASL outcome comes a protocol header, which is no frame."""
        outcome = encode_sasl_frame(spec.SaslOutcome(code=0))
        stream = outcome + b"AMQP\x00\x01\x00\x00" + EMPTY_FRAME
        for cut in range(len(stream) + 1):
            buffer = FrameBuffer(512)
            found: list[Frame] = []
            rest = b""
            for piece in (stream[:cut], stream[cut:]):
                if found:
                    rest += piece
                    continue
                buffer.feed(piece)
                found = buffer.frames(1)
                if found:
                    rest = buffer.take_rest()
                    self.assertEqual(buffer.left, 0)
            self.assertEqual(found, [(0, 1, spec.SaslOutcome(code=0), b"")])
            self.assertEqual(rest, b"AMQP\x00\x01\x00\x00" + EMPTY_FRAME)

    def test_feeding_before_all_is_read(self) -> None:
        """Frames left for later are kept in their order."""
        buffer = FrameBuffer(LIMIT)
        closes = [b"".join(encode_frame(channel, spec.Close())) for channel in range(6)]
        buffer.feed(b"".join(closes[:3]))
        channels = [frame[0] for frame in buffer.frames(1)]
        buffer.feed(b"".join(closes[3:5]) + closes[5][:3])
        buffer.feed(closes[5][3:])
        while frames := buffer.frames(2):
            channels += [frame[0] for frame in frames]
        self.assertEqual(channels, [0, 1, 2, 3, 4, 5])

    def test_many_small_pieces_cost_no_more_memory(self) -> None:
        """A large frame in two-byte pieces is held once, not once per piece."""
        data = framed(encode(spec.Transfer(handle=0)) + bytes(LIMIT - 100))
        tracemalloc.start()
        try:
            buffer = FrameBuffer(LIMIT)
            found: list[Frame] = []
            for start in range(0, len(data), 2):
                buffer.feed(data[start : start + 2])
                found += buffer.frames()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertEqual(len(found), 1)
        self.assertLess(peak, 4 * LIMIT)

    def test_what_follows_is_read_in_place(self) -> None:
        """Of a chunk that ends a frame only what belongs to that is copied."""
        small = b"".join(encode_frame(0, spec.Transfer(handle=0), [bytes(100)]))
        large = b"".join(encode_frame(0, spec.Transfer(handle=0), [bytes(LIMIT - 100)]))
        chunk = small[50:] + large * 20
        buffer = FrameBuffer(LIMIT)
        buffer.feed(small[:50])
        self.assertEqual(buffer.frames(), [])
        tracemalloc.start()
        try:
            buffer.feed(chunk)
            found = len(buffer.frames(2))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertEqual(found, 2)
        self.assertLess(peak, 3 * LIMIT)

    @given(st.lists(FRAMES, max_size=5), st.data())
    def test_every_split_gives_the_same_frames(self, parts: list[bytes], data: Any) -> None:
        """Chunk borders mean nothing."""
        stream = b"".join(parts)
        whole, fault = parse(stream)
        self.assertIsNone(fault)
        self.assertEqual(len(whole), len(parts))
        size = len(stream)
        cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=6)))
        for borders in ([0, *cuts, size], list(range(size + 1))):
            buffer = FrameBuffer(LIMIT)
            found: list[Frame] = []
            for start, end in itertools.pairwise(borders):
                buffer.feed(stream[start:end])
                some, fault = drain(buffer)
                self.assertIsNone(fault)
                found += some
            self.assertTrue(same(found, whole))
            self.assertEqual(buffer.left, 0)

    @given(st.lists(FRAMES, max_size=8), st.data())
    def test_every_split_and_limit(self, parts: list[bytes], data: Any) -> None:
        """With any feeding the frames are the same, and the rest is the rest."""
        stream = b"".join(parts)
        whole, _ = parse(stream)
        cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
        buffer = FrameBuffer(LIMIT)
        found: list[Frame] = []
        for start, end in itertools.pairwise([0, *cuts, len(stream)]):
            buffer.feed(stream[start:end])
            found += buffer.frames(data.draw(st.integers(1, 3)))
        taken = sum(map(len, parts[: len(found)]))
        self.assertEqual(buffer.left, len(stream) - taken)
        if data.draw(st.booleans()):
            self.assertEqual(buffer.take_rest(), stream[taken:])
            return
        found += drain(buffer)[0]
        self.assertTrue(same(found, whole))

    @given(st.lists(FRAMES, min_size=1, max_size=3), st.data())
    def test_damaged_streams(self, parts: list[bytes], data: Any) -> None:
        """Changed bytes give frames and at most one fault, of the two kinds."""
        stream = bytearray(b"".join(parts))
        for _ in range(data.draw(st.integers(1, 3))):
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
        parse(bytes(stream))

    @given(st.binary(max_size=100))
    def test_arbitrary_bytes(self, octets: bytes) -> None:
        """Garbage raises nothing else, framed or not."""
        parse(octets)
        parse(framed(octets))
        parse(framed(octets, kind=1))


def uints(nullable: bool = True) -> st.SearchStrategy[bytes]:
    """A uint in any of its encodings, or null."""
    ways = [
        st.just(b"\x43"),
        st.integers(0, 255).map(lambda value: bytes((0x52, value))),
        U32.map(lambda value: b"\x70" + value.to_bytes(4, "big")),
    ]
    return st.one_of(*ways, st.just(b"\x40")) if nullable else st.one_of(*ways)


BOOLEANS = st.sampled_from([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01", b"\x40"])
ODD = st.sampled_from(
    [
        b"\x40",
        b"\x45",
        b"\x44",
        b"\x50\x01",
        b"\x56\x02",
        b"\xa1\x01a",
        b"\xa0\x05",
        b"\xc1\x01\x00",
    ]
)
TAGS = st.one_of(
    st.just(b"\x40"),
    st.binary(max_size=34).map(lambda tag: bytes((0xA0, len(tag))) + tag),
    st.binary(max_size=34).map(lambda tag: b"\xb0" + len(tag).to_bytes(4, "big") + tag),
)
STATES = st.sampled_from(
    [b"\x40"]
    + [
        prefix + code + tail
        for prefix in (b"\x00\x53", b"\x00\x80" + bytes(7))
        for code in (b"\x24", b"\x25", b"\x26", b"\x27", b"\x23", b"\x14")
        for tail in (b"\x45", b"\xc0\x01\x00", b"\xc0\x02\x01\x41", b"\xd0\0\0\0\4\0\0\0\0")
    ]
)
TRANSFER_FIELDS = [
    uints(False), uints(), TAGS, uints(), BOOLEANS, BOOLEANS,
    st.sampled_from([b"\x40", b"\x50\x00", b"\x50\x01"]), STATES, BOOLEANS, BOOLEANS, BOOLEANS,
]  # fmt: skip
DISPOSITION_FIELDS = [BOOLEANS, uints(False), uints(), BOOLEANS, STATES, BOOLEANS]
HEADER_FIELDS = [
    BOOLEANS, st.sampled_from([b"\x40", b"\x50\x00", b"\x50\x09"]), uints(), BOOLEANS, uints()
]  # fmt: skip
FLOW_FIELDS = [
    uints(), uints(False), uints(False), uints(False), uints(), uints(), uints(), uints(),
    BOOLEANS, BOOLEANS, st.sampled_from([b"\x40", b"\xc1\x01\x00"]),
]  # fmt: skip


@st.composite
def encoded_variants(draw: Any) -> bytes:
    """A transfer, disposition, flow or header in any encoding a peer may choose, or nearly."""
    code, fields = draw(
        st.sampled_from(
            [
                (0x14, TRANSFER_FIELDS),
                (0x15, DISPOSITION_FIELDS),
                (0x13, FLOW_FIELDS),
                (0x70, HEADER_FIELDS),
            ]
        )
    )
    count = draw(st.integers(0, len(fields)))
    odd = draw(st.one_of(st.none(), st.none(), st.integers(0, 10)))
    parts = [draw(ODD if index == odd else each) for index, each in enumerate(fields[:count])]
    body = b"".join(parts)
    count += draw(st.sampled_from([0] * 20 + [1, -1]))
    count = max(count, 0)
    if draw(st.booleans()) and len(body) < 255:
        return bytes((0, 0x53, code, 0xC0, len(body) + 1, count)) + body
    return (
        bytes((0, 0x53, code, 0xD0)) + (len(body) + 4).to_bytes(4, "big")
        + count.to_bytes(4, "big") + body
    )  # fmt: skip


READERS: dict[int, Any] = {
    0x14: fastpath.read_transfer,
    0x15: fastpath.read_disposition,
    0x13: fastpath.read_flow,
    0x70: fastpath.read_header,
}


class FastPathTests(SynchronousTestCase):
    def check(self, encoded: bytes, payload: bytes) -> None:
        """Hold that the fast path is silent, or says what the generic one says."""
        data = b"\xff\xff" + encoded + payload
        for end in (len(data), len(data) - len(payload), len(data) - len(payload) - 1):
            found = READERS[encoded[2]](data, 2, end)
            if found is None:
                continue
            expected, after = decode_composite(data, 2, end)
            self.assertTrue(same(found[0], expected), f"{found[0]} is not {expected}")
            self.assertEqual(found[1], after)

    @given(encoded_variants(), st.binary(max_size=8))
    def test_reads_as_the_generic_path(self, encoded: bytes, payload: bytes) -> None:
        """Any encoding variant, right or wrong, with payload behind it."""
        self.check(encoded, payload)

    @given(st.sampled_from(sorted(READERS)), st.binary(max_size=40))
    def test_reads_garbage_as_the_generic_path(self, code: int, tail: bytes) -> None:
        """Garbage after the descriptor."""
        self.check(bytes((0, 0x53, code)) + tail, b"")

    @given(encoded_variants(), st.data())
    def test_reads_damage_as_the_generic_path(self, encoded: bytes, data: Any) -> None:
        """One byte changed, and cut anywhere."""
        damaged = bytearray(encoded)
        damaged[data.draw(st.integers(3, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        self.check(bytes(damaged), b"")
        self.check(encoded[: data.draw(st.integers(3, len(encoded)))], b"")

    def test_the_usual_encodings_take_the_fast_path(self) -> None:
        """The forms we write, and those of list32 writers."""
        transfer = encode_transfer(1, 2, 3, b"tag", 0, False, True, 0)
        for data in (
            transfer[8:],
            encode(spec.Transfer(handle=0, delivery_id=0, delivery_tag=b"", batchable=True)),
            bytes.fromhex("005314d00000000800000004434340 43".replace(" ", "")),
        ):
            self.assertIsNotNone(fastpath.read_transfer(data, 0, len(data)))
        for data in (
            encode_disposition(0, True, 1, 2, True, spec.Accepted())[8:],
            bytes.fromhex("005315c00b05 41 43 43 41 005324c00100".replace(" ", "")),
            bytes.fromhex("005315c01105 41 43 43 41 005324d00000000400000000".replace(" ", "")),
            bytes.fromhex("005315c01105 41 43 43 41 005326d00000000400000000".replace(" ", "")),
        ):
            found = fastpath.read_disposition(data, 0, len(data))
            assert found is not None
            self.assertEqual(found[0], spec.decode_composite(data)[0])
        # A list32 that says it has an item is for the generic path.
        data = bytes.fromhex("005315c01205 41 43 43 41 005324d0000000050000000140".replace(" ", ""))
        self.assertIsNone(fastpath.read_disposition(data, 0, len(data)))
        data = encode_flow(
            0, spec.Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3, handle=0)
        )
        self.assertIsNotNone(fastpath.read_flow(data, 8, len(data)))
        data = encode(spec.Header(durable=True, ttl=60000, delivery_count=1))
        self.assertIsNotNone(fastpath.read_header(data, 0, len(data)))

    @given(U16, composites(spec.Transfer), st.binary(max_size=10))
    def test_writes_transfers_as_the_generic_path(
        self, channel: int, transfer: spec.Transfer, payload: bytes
    ) -> None:
        """The same bytes for any transfer."""
        head = encode_transfer(
            channel,
            transfer.handle,
            transfer.delivery_id,
            transfer.delivery_tag,
            transfer.message_format,
            transfer.settled,
            transfer.more,
            len(payload),
            transfer.state,
            transfer.aborted,
            transfer.resume,
            transfer.rcv_settle_mode,
            transfer.batchable,
        )
        self.assertEqual([head, payload], encode_frame(channel, transfer, [payload]))

    @given(U16, composites(spec.Disposition))
    def test_writes_dispositions_as_the_generic_path(
        self, channel: int, disposition: spec.Disposition
    ) -> None:
        """The same bytes for any disposition."""
        frame = encode_disposition(
            channel,
            disposition.role,
            disposition.first,
            disposition.last,
            disposition.settled,
            disposition.state,
            disposition.batchable,
        )
        self.assertEqual([frame], encode_frame(channel, disposition))

    def test_the_payload_is_not_joined(self) -> None:
        """The message's own buffers appear in the output as they are."""
        parts = [b"header", b"body"]
        out = encode_frame(0, spec.Transfer(handle=0), parts)
        self.assertIs(out[1], parts[0])
        self.assertIs(out[2], parts[1])
        self.assertEqual(int.from_bytes(out[0][:4], "big"), sum(map(len, out)))
