# SPDX-License-Identifier: Apache-2.0
"""Unreadable notes of the store are named and left out: the daemon starts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.queue_iterator import START
from amqproute.broker.receipts import BY_ID, Receipts
from amqproute.broker.recovered_nodes import RecoveredNodes
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.broker.xa_record import holds_of
from amqproute.daemon.container_identity import NOTES as IDENTITY_NOTES
from amqproute.daemon.container_identity import identify
from amqproute.daemon.journaling import JournalSources
from amqproute.errors import DecodeError
from amqproute.frontends.amqp10.suspended_links import read_note_key
from amqproute.journal.journal_outbox import read_rows
from amqproute.journal.segments import HEAD, read_head
from amqproute.message import Message
from amqproute.relay.destination_note import NOTE, DestinationNote
from amqproute.relay.holds import RelayHold
from amqproute.services import message_moves, message_requeue, relay_messages
from amqproute.services.change_batch import RuntimeNode
from amqproute.services.command_schema import CommandRefused, ManagementCommand, parse_text
from amqproute.services.delay_reports import DelayReports
from amqproute.services.management_protocol import ManagementRequest
from amqproute.store.model import StoreRecovery
from amqproute.store.statements import read_receipt
from amqproute.values import NextHop, Origin, Principal
from tests.support.fakes import KeptStore, message, node
from tests.support.memory_broker import MemoryBroker, Network

DEEP = b"[" * 100_000
GARBAGE = (
    *(b"", b"\xff\xfe", b"{}", b"[]", b"null", b"7.5", b'"x"', b"[[[]]]", b"\x00Sp", bytes(40)),
    *(DEEP, b'{"a":' * 100_000, b"\x00" * 5000),
)


def logged(case: SynchronousTestCase) -> list[str]:
    """Return a list that grows by the lines of the log."""
    told: list[str] = []

    def observe(event: LogEvent) -> None:
        told.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    case.addCleanup(globalLogPublisher.removeObserver, observe)
    return told


class UnreadableNotesTests(SynchronousTestCase):
    """Each of them alone, with whatever an earlier release or a fault may have written."""

    def test_delays(self) -> None:
        told = logged(self)
        delays = DelayReports.__new__(DelayReports)
        delays._marks = {}
        delays.recovered({"q": b"\xff", "r": b"7", "s": b""})
        self.assertEqual(delays._marks, {"r": 7})
        self.assertEqual(len([line for line in told if "unreadable note" in line]), 2)

    def test_accounts_of_the_journal(self) -> None:
        """Whose account an entry is in is not known where its note cannot be read."""
        sources = JournalSources({"user:ann": b"\xff", "user:bob": b"7", "user:eve": b""})
        self.assertEqual(sources._names, {7: "user:bob"})

    @given(octets=st.binary(max_size=40), start=st.sampled_from([b"", b"\x00Sp", b"\x00Sr"]))
    def test_mentions(self, octets: bytes, start: bytes) -> None:
        """Queries about a damaged entry, for its sender's sake, never fail in another way."""
        with contextlib.suppress(DecodeError):
            Message(start + octets).mentions(b"x-opt")

    def test_accounts(self) -> None:
        told = logged(self)
        accounts = SenderQuotas()
        self.assertEqual(accounts.recovered({"user:ann": b"x", "user:bob": b"7"}, {7: (1, 2)}), [])
        self.assertIsNone(accounts.find("user:ann"))
        self.assertIsNotNone(accounts.find("user:bob"))
        self.assertIn("user:ann", told[-1])

    def test_receipts(self) -> None:
        told = logged(self)
        receipts = Receipts.__new__(Receipts)
        receipts._by_id, receipts._streams, receipts._named = [], {}, {}
        receipts.recovered({f"{BY_ID}owner/x": [1], f"{BY_ID}owner/3": [2]})
        self.assertEqual([each._number for each in receipts._by_id], [3])
        self.assertIn("owner/x", told[-1])

    def test_definitions_and_branches(self) -> None:
        told = logged(self)
        recovered_nodes = RecoveredNodes()
        recovered_nodes.recovered({}, {f"s{index}": each for index, each in enumerate(GARBAGE)})
        self.assertEqual(len(told), len(GARBAGE))
        self.assertEqual(holds_of(dict.fromkeys(map(str, range(3)), b"\xff")), {})

    @settings(max_examples=200, deadline=None)
    @given(octets=st.one_of(st.sampled_from(GARBAGE), st.binary(max_size=60)))
    def test_decoders(self, octets: bytes) -> None:
        """They say that they cannot, and raise nothing else."""
        for decode in (DestinationNote.decode, RelayHold.decode, RuntimeNode.decode):
            self.assertRaises(ValueError, decode, octets)

    def test_identity(self) -> None:
        told = logged(self)
        clock = Clock()
        store = KeptStore(clock)
        recovery = StoreRecovery()
        recovery.notes = {IDENTITY_NOTES: {"id": b"alpha", "stream": b"\xff"}}
        found: Any = []
        Deferred.fromCoroutine(identify(store, recovery, None)).addCallback(found.append)
        while not found:
            clock.advance(1)
        self.assertEqual(found[0].container_id, "alpha")
        self.assertTrue(found[0].stream)
        self.assertIn("cannot be read", told[0])


class DeepTests(SynchronousTestCase):
    """Values that nest too deep to be read are damage like any other, wherever they stand."""

    def test_names_of_notes(self) -> None:
        self.assertRaises(ValueError, read_note_key, DEEP.decode())

    def test_receipts(self) -> None:
        self.assertRaises(ValueError, read_receipt, 1, 2, 3, DEEP.decode())

    def test_outbox_of_the_journal(self) -> None:
        """A row of the store with records for the journal."""
        self.assertEqual(read_rows([(1, DEEP + b"}]")]), ([], 1))

    def test_head_of_the_journal(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        (directory / HEAD).write_bytes(DEEP)
        self.assertIsNone(read_head(directory))

    def test_cursors(self) -> None:
        """An operator's mistake is answered as one."""
        request = ManagementRequest("HOLD", {}, {"cursor": DEEP.decode()}, Principal("user", "ann"))
        for read, error in (
            (lambda: message_moves._read_cursor(request.body), message_moves.CommandRefused),
            (lambda: message_requeue._place_of(DEEP.decode(), 1), message_requeue._Refused),
            (
                lambda: relay_messages._read_cursor(request, START),
                relay_messages._Refused,
            ),
        ):
            self.assertRaises(error, read)

    def test_commands(self) -> None:
        """Brackets in a text of commands: a refusal of that line, and of what nests at all."""
        for depth in (3, 500, 100_000):
            text = f"create queue a with x={'[' * depth}{']' * depth}"
            ((_, refused),) = parse_text(text)
            self.assertIsInstance(refused, CommandRefused)
            self.assertIn("too deep", refused.words)  # type: ignore[union-attr]
        ((_, command),) = parse_text("create queue a with x=[[1], [2, 3]]")
        self.assertIsInstance(command, ManagementCommand)


class UnreadableBackoffTests(SynchronousTestCase):
    def test_relay(self) -> None:
        """A destination whose back-off cannot be read starts over, and gets its messages."""
        for octets in GARBAGE:
            told = logged(self)
            clock = Clock()
            network = Network(clock)
            house = MemoryBroker(network, "alpha.example", node("q"))
            queue = house.relay.take_on_trust(NextHop("beta.example", "beta.example"))
            batch = house.broker.begin()
            queue.put(message(b"1"), batch, Origin(Principal("user", "ann")))
            batch.commit()
            clock.advance(1)
            house.store.notes[NOTE] = {"beta.example": octets}
            again = MemoryBroker(network, "alpha.example", node("q"), store=house.store)
            self.assertEqual(again.depth("beta.example"), 1)
            self.assertTrue(any("back-off of beta.example" in line for line in told))
