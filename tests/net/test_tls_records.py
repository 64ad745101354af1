# SPDX-License-Identifier: Apache-2.0
"""TLS records, thousands in one read: the number decrypted in one turn."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.tls_records import LAST_RECORDS, READ_RECORDS
from amqproute.wire.input_cost import RECORD, SLICE
from tests.net.test_tls import Handshake
from tests.net.wires import contexts_in
from tests.support.fakes import Turns


class RecordsTests(SynchronousTestCase):
    def setUp(self) -> None:
        directory = self.mktemp()
        self.clock = Turns()
        self.pair = Handshake(
            contexts_in(directory, "alpha.example"),
            contexts_in(directory, "beta.example"),
            clock=self.clock,
        )
        self.engine = self.pair.server.engine
        self.end = self.pair.wire.ends[1]
        self.layer: Any = self.pair.server_pump._tls

    def send(self, records: int, size: int = 1) -> bytes:
        """Have the client write this many records; return their octets."""
        octets = b""
        layer: Any = self.pair.client_pump._tls
        for number in range(records):
            record = bytes([number % 251]) * size
            layer.write(record)
            octets += record
        self.pair.wire.carry()
        return octets

    def test_short(self) -> None:
        """Records of an octet are decrypted in turns, and not read meanwhile; none is lost."""
        octets = self.send(2500)
        self.assertEqual(self.layer.records, READ_RECORDS)
        self.assertEqual(self.end.producerState, "paused")
        turns = 0
        while self.layer.is_behind:
            before = self.layer.records
            self.clock.turn()
            self.assertLessEqual(self.layer.records - before, SLICE // RECORD)
            turns += 1
        self.assertLess(turns, 40)
        self.assertEqual(b"".join(self.engine.reads), octets)
        self.assertEqual(self.end.producerState, "producing")

    def test_long(self) -> None:
        """Records of full size are one call of the engine."""
        octets = self.send(4, 16_000)
        self.assertEqual(self.engine.reads, [octets])
        self.assertEqual(self.end.producerState, "producing")

    def test_lost(self) -> None:
        """Data received before the loss of the connection precedes the notice of it."""
        self.send(LAST_RECORDS)
        self.end.lose(ConnectionLost())
        self.clock.turn()
        self.assertEqual(sum(map(len, self.engine.reads)), LAST_RECORDS)
        self.assertIsNotNone(self.pair.server.user.reason)

    def test_lost_in_a_flood(self) -> None:
        """A stranger that floods and goes makes nobody wait."""
        self.send(2500)
        before = self.layer.records
        self.end.lose(ConnectionLost())
        self.assertLessEqual(self.layer.records - before, LAST_RECORDS)
        self.clock.turn()
        self.assertIsNotNone(self.pair.server.user.reason)

    def test_after_our_close(self) -> None:
        """Data behind our close is decrypted in turns as well, as it may contain the peer's end."""
        self.send(1000)
        self.engine.is_closed = True
        self.pair.server_pump.flush()
        while self.layer.is_behind:
            before = self.layer.records
            self.clock.turn()
            self.assertLessEqual(self.layer.records - before, SLICE // RECORD)
        self.assertEqual(self.layer.records, 1000)
        self.assertEqual(self.end.producerState, "producing")
