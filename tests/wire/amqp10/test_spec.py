# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.spec`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import DecodeError, LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.codec import encode
from amqproute.wire.amqp10.spec import decode_composite
from amqproute.wire.amqp10.types import Array, Described, Symbol, UByte, UInt, ULong, UShort
from tests.support.amqp_values import ANY_COMPOSITE, same

# The tables of the standard, typed in a second time: descriptor, name, fields in their order.
# "!" mandatory, "*" multiple, "=" default.
TABLES = """
10 open container-id! hostname max-frame-size=4294967295 channel-max=65535 idle-time-out \
   outgoing-locales* incoming-locales* offered-capabilities* desired-capabilities* properties
11 begin remote-channel next-outgoing-id! incoming-window! outgoing-window! \
   handle-max=4294967295 offered-capabilities* desired-capabilities* properties
12 attach name! handle! role! snd-settle-mode=2 rcv-settle-mode=0 source target unsettled \
   incomplete-unsettled=False initial-delivery-count max-message-size offered-capabilities* \
   desired-capabilities* properties
13 flow next-incoming-id incoming-window! next-outgoing-id! outgoing-window! handle \
   delivery-count link-credit available drain=False echo=False properties
14 transfer handle! delivery-id delivery-tag message-format settled more=False \
   rcv-settle-mode state resume=False aborted=False batchable=False
15 disposition role! first! last settled=False state batchable=False
16 detach handle! closed=False error
17 end error
18 close error
1d error condition! description info
23 received section-number! section-offset!
24 accepted
25 rejected error
26 released
27 modified delivery-failed=False undeliverable-here=False message-annotations
28 source address durable=0 expiry-policy=session-end timeout=0 dynamic=False \
   dynamic-node-properties distribution-mode filter default-outcome outcomes* capabilities*
29 target address durable=0 expiry-policy=session-end timeout=0 dynamic=False \
   dynamic-node-properties capabilities*
2b delete-on-close
2c delete-on-no-links
2d delete-on-no-messages
2e delete-on-no-links-or-messages
30 coordinator capabilities*
31 declare global-id
32 discharge txn-id! fail=False
33 declared txn-id!
34 transactional-state txn-id! outcome
40 sasl-mechanisms sasl-server-mechanisms!*
41 sasl-init mechanism! initial-response hostname
42 sasl-challenge challenge!
43 sasl-response response!
44 sasl-outcome code! additional-data
70 header durable=False priority=4 ttl first-acquirer=False delivery-count=0
73 properties message-id user-id to subject reply-to correlation-id content-type \
   content-encoding absolute-expiry-time creation-time group-id group-sequence \
   reply-to-group-id
""".replace("\\\n", "")


def described(cls: type[spec.Composite], *values: Any) -> bytes:
    """Encode a composite value field by field, right or wrong."""
    return encode(Described(ULong(cls.descriptor), list(values)))


class TableTests(SynchronousTestCase):
    def test_the_tables_are_those_of_the_standard(self) -> None:
        """Every composite type has its descriptors and its fields, in order."""
        rows = TABLES.strip().splitlines()
        self.assertEqual(len(rows), len(spec.BY_CODE))
        for row in rows:
            code, name, *fields = row.split()
            cls = spec.BY_CODE[int(code, 16)]
            self.assertEqual(cls.symbol, f"amqp:{name}:list")
            self.assertIs(spec.BY_SYMBOL[cls.symbol], cls)
            told = []
            for each in cls.fields:
                text = each.name.replace("_", "-")
                if each.mandatory:
                    text += "!"
                if each.multiple:
                    text += "*"
                elif each.default is not None:
                    text += f"={each.default}"
                told.append(text)
            self.assertEqual(told, fields, name)

    def test_objects_are_slotted(self) -> None:
        """A misspelt field is an error, not a new attribute."""
        transfer: Any = spec.Transfer(handle=0)
        with self.assertRaises(AttributeError):
            transfer.setled = True

    def test_defaults_stand_in_a_new_object(self) -> None:
        """A missing field has the default of the standard."""
        opened = spec.Open(container_id="a")
        self.assertEqual((opened.max_frame_size, opened.channel_max), (4294967295, 65535))
        self.assertEqual(opened.offered_capabilities, ())
        self.assertIsNone(opened.idle_time_out)
        self.assertEqual(spec.Header().priority, 4)
        self.assertEqual(spec.Attach(name="l", handle=0, role=True).snd_settle_mode, 2)

    def test_mandatory_fields_are_asked_for(self) -> None:
        """The constructor does not go without them."""
        constructor: Any = spec.Begin
        self.assertRaises(TypeError, constructor)

    def test_repr_tells_what_differs(self) -> None:
        """Mandatory fields and what is not the default."""
        self.assertEqual(repr(spec.Detach(handle=0, closed=True)), "<Detach handle=0 closed=True>")
        self.assertEqual(repr(spec.Accepted()), "<Accepted>")


class WireTests(SynchronousTestCase):
    def test_vectors(self) -> None:
        """Bytes by hand: defaults left out, trailing nulls dropped, smallest encodings."""
        for value, octets in (
            (spec.Accepted(), "00532445"),
            (spec.Close(), "00531845"),
            (spec.Open(container_id="a"), "005310c00401a10161"),
            (
                spec.Open(container_id="a", idle_time_out=1000, channel_max=9),
                "005310c0 0e 05 a10161 40 40 600009 70000003e8".replace(" ", ""),
            ),
            (spec.Detach(handle=0, closed=True), "005316c003024341"),
            (
                spec.Flow(
                    incoming_window=1,
                    next_outgoing_id=0,
                    outgoing_window=256,
                    handle=0,
                    delivery_count=0,
                    link_credit=10,
                ),
                "005313c0 0e 07 40 5201 43 7000000100 43 43 520a".replace(" ", ""),
            ),
            (
                spec.SaslMechanisms(sasl_server_mechanisms=("PLAIN",)),
                "005340c00b01e00801a305504c41494e",
            ),
            (spec.SaslOutcome(code=0), "005344c003015000"),
            (
                spec.Rejected(error=spec.Error(condition=conditions.NOT_FOUND)),
                "005325c0170100531dc01101a30e" + b"amqp:not-found".hex(),
            ),
        ):
            encoded = encode(value)
            self.assertEqual(encoded.hex(), octets, repr(value))
            self.assertEqual(decode_composite(encoded), (value, len(encoded)))

    def test_symbolic_descriptors(self) -> None:
        """``amqp:transfer:list`` is as good as 0x14."""
        encoded = encode(Described(Symbol("amqp:transfer:list"), [UInt(5)]))
        self.assertEqual(decode_composite(encoded)[0], spec.Transfer(handle=5))

    def test_multiple_fields(self) -> None:
        """One value, an array, an empty array and null."""
        name = [None] * 7
        for given_value, expected in (
            (Symbol("A"), ("A",)),
            (Array(0xA3, [Symbol("A"), Symbol("B")]), ("A", "B")),
            (Array(0xB3, [Symbol("A")]), ("A",)),
            (Array(0xA3, []), ()),
            (None, ()),
        ):
            encoded = described(spec.Open, "c", *name[1:], given_value)
            self.assertEqual(decode_composite(encoded)[0].offered_capabilities, expected)  # type: ignore[attr-defined]

    def test_broken_composites_name_type_and_field(self) -> None:
        """The peer is told what is wrong with which field."""
        for encoded, words in (
            (described(spec.Transfer), "amqp:transfer:list: handle is missing"),
            (described(spec.Transfer, None, UInt(1)), "amqp:transfer:list: handle is missing"),
            (described(spec.Transfer, ULong(1)), "amqp:transfer:list: handle is no uint"),
            (described(spec.Transfer, 1), "amqp:transfer:list: handle is no uint"),
            (
                described(spec.Transfer, UInt(1), UInt(1), b"x" * 33),
                "amqp:transfer:list: delivery-tag is no delivery-tag",
            ),
            (described(spec.Close, None, None), "amqp:close:list: 2 fields, the type has 1"),
            (described(spec.Close, Described(ULong(0x24), [])), "error is no error"),
            (described(spec.Open, Symbol("a")), "container-id is no string"),
            (
                described(spec.Open, "a", *[None] * 6, Array(0xA1, ["x"])),
                "offered-capabilities is no symbol",
            ),
            (described(spec.Open, "a", *[None] * 8, {"x": 1}), "properties is no fields"),
            (
                described(spec.Attach, "a", UInt(0), True, UByte(3)),
                "snd-settle-mode is no sender-settle-mode",
            ),
            (
                described(spec.Attach, "a", UInt(0), True, None, None, ULong(5)),
                "source is no source",
            ),
            (described(spec.Target, Symbol("a")), "address is no string"),
            (
                described(spec.Target, "a", None, Symbol("soon")),
                "expiry-policy is no terminus-expiry-policy",
            ),
            (described(spec.Header, None, UShort(4)), "priority is no ubyte"),
            (described(spec.Properties, UInt(4)), "message-id is no message-id"),
            (encode(Described(ULong(0x14), {})), "amqp:transfer:list: not a list"),
            (encode(Described(ULong(0x99), [])), "descriptor ULong(153)"),
            (encode(Described([], [])), "descriptor []"),
            (encode([]), "a value where a composite type"),
        ):
            with self.assertRaises(DecodeError) as caught:
                decode_composite(encoded)
            self.assertIn(words, caught.exception.description)

    def test_mandatory_fields_are_not_sent_empty(self) -> None:
        """A mandatory field reset to None is our mistake, and told as one."""
        begin: Any = spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
        begin.incoming_window = None
        self.assertRaises(LocalProtocolError, encode, begin)
        self.assertRaises(
            LocalProtocolError, encode, spec.Transfer(handle=0, delivery_tag=b"x" * 33)
        )
        self.assertRaises(LocalProtocolError, encode, spec.SaslOutcome(code=5))

    def test_compose_leaves_the_unknown_alone(self) -> None:
        """Extensions stay described values."""
        unknown = Described(Symbol("apache.org:selector-filter:string"), "a = 1")
        self.assertIs(spec.compose(unknown), unknown)
        self.assertEqual(spec.compose(5), 5)
        self.assertEqual(spec.compose(Described(ULong(0x24), [])), spec.Accepted())

    def test_string_keys_of_fields_go_out_as_symbols(self) -> None:
        """So that callers need not wrap every key."""
        encoded = encode(spec.Open(container_id="a", properties={"product": "x"}))
        opened: Any = decode_composite(encoded)[0]
        self.assertTrue(same(opened.properties, {Symbol("product"): "x"}))

    @given(ANY_COMPOSITE)
    def test_round_trip(self, value: spec.Composite) -> None:
        """Every object comes back, with its types."""
        encoded = encode(value)
        decoded, after = decode_composite(encoded)
        self.assertEqual(after, len(encoded))
        self.assertTrue(same(decoded, value), f"{value!r} became {decoded!r}")
        self.assertEqual(encode(decoded), encoded)
