# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.protocol_choice`."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.wire.header import ProtocolHeader
from amqproute.wire.protocol_choice import (
    AMQP_1_0_HEADERS,
    ProtocolChooser,
    ProtocolChosen,
    check_headers,
    choose,
)


@dataclass(frozen=True)
class Known:
    """A protocol."""

    headers: tuple[bytes, ...]


AMQP10 = Known(AMQP_1_0_HEADERS)
AMQP09 = Known((ProtocolHeader.AMQP_0_9.value, ProtocolHeader.AMQP_0_9_1.value))
LINES = Known((b"LINES\n",))
ALL = (AMQP10, AMQP09, LINES)


class ChooseTests(SynchronousTestCase):
    def test_headers(self) -> None:
        """Each header is of its protocol, whatever follows."""
        for protocol in ALL:
            for header in protocol.headers:
                self.assertIs(choose(header, ALL), protocol)
                self.assertIs(choose(header + b"more", ALL), protocol)

    def test_as_early_as_possible(self) -> None:
        """The octet decides that no header of another protocol has."""
        for start, protocol in (
            (b"", None),
            (b"A", None),
            (b"AMQP", None),
            (b"AMQP\x00", None),
            (b"AMQP\x00\x01", AMQP10),
            (b"AMQP\x02", AMQP10),
            (b"AMQP\x00\x00\x09", None),
            (b"AMQP\x01\x01\x00\x09", AMQP09),
            (b"LINES", None),
        ):
            self.assertIs(choose(start, ALL), protocol, start)

    def test_others(self) -> None:
        """A client that speaks none of them goes to the first, which knows the answer."""
        for start in (b"GET / HT", b"\x16\x03\x01", b"AMQP\x00\x00\x0a", b"LINE:", b"a"):
            self.assertIs(choose(start, ALL), AMQP10, start)

    def test_nothing_to_choose(self) -> None:
        """One protocol is chosen before the first octet."""
        for protocol in ALL:
            self.assertIs(choose(b"", (protocol,)), protocol)

    @given(st.binary(max_size=12), st.permutations(ALL))
    def test_more_octets_change_nothing(self, octets: bytes, protocols: list[Known]) -> None:
        """A choice is final; eight octets always suffice."""
        chosen = [choose(octets[:size], protocols) for size in range(len(octets) + 1)]
        decided = [each for each in chosen if each is not None]
        self.assertEqual(len({id(each) for each in decided}), min(1, len(decided)))
        self.assertEqual(chosen[len(chosen) - len(decided) :], decided)
        if len(octets) >= 8:
            self.assertIsNotNone(chosen[8])

    def test_clear_headers_only(self) -> None:
        """Protocols that could not be told apart are refused."""
        check_headers(ALL)
        check_headers((Known((b"A", b"AB")),))
        for protocols in (
            (),
            (Known((b"",)),),
            (Known((b"123456789",)),),
            (AMQP10, Known((b"AMQP",))),
            (Known((b"AMQP",)), AMQP10),
            (LINES, Known(LINES.headers)),
        ):
            with self.assertRaises(ValueError):
                check_headers(protocols)


class ChooserTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = ProtocolChooser(ALL, 10.0)
        self.engine.start(5.0)

    def test_choice(self) -> None:
        """The event has all octets and the beginning; nothing is said meanwhile."""
        self.assertEqual(self.engine.receive_data(b"LIN", 6.0), [])
        self.assertEqual(self.engine.data_to_send(), [])
        self.assertEqual(
            self.engine.receive_data(b"ES\nhello", 7.0),
            [ProtocolChosen(2, b"LINES\nhello", 5.0)],
        )

    def test_too_little_in_time(self) -> None:
        """A client that sends too little goes to the first protocol, with its input."""
        self.engine.receive_data(b"LIN", 6.0)
        self.assertEqual(self.engine.next_deadline(), 15.0)
        self.assertEqual(self.engine.tick(14.9), [])
        self.assertEqual(self.engine.tick(15.0), [ProtocolChosen(0, b"LIN", 5.0)])

    def test_end(self) -> None:
        """A client that leaves, or is closed, has chosen nothing."""
        self.assertEqual(self.engine.receive_eof(6.0), [])
        self.assertTrue(self.engine.is_closed)
        self.assertIsNone(self.engine.next_deadline())
        other = ProtocolChooser(ALL, 10.0)
        other.close_with(conditions.INTERNAL_ERROR, "words")
        self.assertTrue(other.is_closed)
