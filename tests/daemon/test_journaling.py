# SPDX-License-Identifier: Apache-2.0
"""Records made at start for entries unknown to the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.sender_quotas import NOTES
from amqproute.config import loads
from amqproute.daemon.journaling import Journaling
from amqproute.entry import ACCOUNT_SHIFT
from amqproute.journal import reader
from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.store.model import QueueSummary, StoredEntry, StoreRecovery
from tests.store.rig import QueueReactor
from tests.support.fakes import message

FROM_BETA = {"x-opt-amqproute-origin": "gamma.example", "x-opt-amqproute-trace": ["g1", "b1"]}


class Store:
    """The part of a store that `Journaling.begin` needs: one queue."""

    def __init__(self, rows: list[StoredEntry]) -> None:
        self.rows = rows
        self.loaded: list[int] = []

    async def ids(self, key: str, after: int, limit: int) -> list[int]:
        return [row.id for row in self.rows if row.id > after][:limit]

    async def load(self, key: str, after: int, limit: int, octets: int) -> list[StoredEntry]:
        rows = [row for row in self.rows if row.id > after][:limit]
        self.loaded += [row.id for row in rows]
        return rows


class FoundTests(SynchronousTestCase):
    """One record for each, with all that the store knows."""

    directory: Path | None = None

    def started(self, *rows: StoredEntry, **more: Any) -> list[JournalRecord]:
        directory = self.directory or Path(self.mktemp()).absolute()
        config = loads(f"state-directory: {directory}\ndomains: [alpha.example]", "f")
        reactor = QueueReactor()
        journaling = Journaling(config, reactor, lambda: None)
        recovery = StoreRecovery()
        recovery.notes = {NOTES: {"peer:b.example": b"7", "user:ann": b"8"}}
        if rows:
            first, last = rows[0].id, rows[-1].id
            recovery.queues = {"q": QueueSummary(len(rows), 1, first, last, 1)}
        self.store = Store(list(rows))
        begun = journaling.begin(recovery, self.store, "a1", "store-1", **more)
        reactor.wait(Deferred.fromCoroutine(begun))
        reactor.wait(Deferred.fromCoroutine(journaling.end(is_orderly=True)))
        return list(reader.records(directory / "journal"))

    def row(self, number: int, account: int, **sections: Any) -> StoredEntry:
        encoded = message(**sections).encoded
        return StoredEntry(number, encoded, 5, 9000, 0, account << ACCOUNT_SHIFT)

    def test_sources(self) -> None:
        """Whose account it is in, and where it comes from; what nobody knows is left out."""
        records = self.started(
            self.row(1, 0, to="q"),
            self.row(2, 8, to="q"),
            self.row(3, 7, annotations=FROM_BETA),
            self.row(4, 0, annotations=FROM_BETA),
            self.row(5, 99),
        )
        found = [each for each in records if each.kind == RecordKind.RECOVERY and each.entry]
        told = [(each.entry, each.sender, each.origin, each.trail, each.to) for each in found]
        self.assertEqual(
            told,
            [
                (1, None, "alpha.example", None, "q"),
                (2, "user:ann", "alpha.example", None, "q"),
                (3, "peer:b.example", "gamma.example", "g1 b1", None),
                (4, None, "gamma.example", "g1 b1", None),
                (5, None, "alpha.example", None, None),
            ],
        )
        self.assertEqual(
            {(each.node, each.durable, each.expires) for each in found}, {("q", True, 9_000_000)}
        )

    def test_what_is_known_is_not_read(self) -> None:
        """Of messages that the journal knows a start asks for the ids, and not for the octets."""
        rows = [self.row(number, 0, to="q") for number in range(1, 2001)]
        self.directory = Path(self.mktemp()).absolute()
        self.started(*rows[:700], *rows[720:1900])
        records = self.started(*rows)
        found = [each.entry for each in records if each.kind == RecordKind.RECOVERY and each.entry]
        self.assertEqual(sorted(found), list(range(1, 2001)))
        self.assertEqual(found[1880:], [*range(701, 721), *range(1901, 2001)])
        self.assertEqual(self.store.loaded[-100:], list(range(1901, 2001)))
        self.assertLessEqual(len(self.store.loaded), 600)
        self.started(*rows)
        self.assertEqual(self.store.loaded, [])

    def test_store_put_back(self) -> None:
        """A store that was put back from a backup is told of, with the name it had."""
        records = self.started(former="store-0")
        (told,) = [each for each in records if each.code]
        self.assertEqual(
            (told.kind, told.code, told.detail), ("recovery", "store.restored", "store-0")
        )
        self.assertEqual({each.stream for each in records}, {"store-1"})


class StockTests(SynchronousTestCase):
    """Stocks are taken one after the other: who reads them knows where each ends."""

    def test_two_at_once(self) -> None:
        """The daemon is stopped while the stock of its start is being taken."""
        directory = Path(self.mktemp()).absolute()
        config = loads(f"state-directory: {directory}\ndomains: [alpha.example]", "f")
        reactor = QueueReactor()
        journaling = Journaling(config, reactor, lambda: None)
        begun = journaling.begin(StoreRecovery(), Store([]), "a1", "store-1")
        reactor.wait(Deferred.fromCoroutine(begun))
        asked: list[Deferred[list[int]]] = []

        class Slow:
            def names(self) -> list[str]:
                return ["p", "q"]

            def ids(self, key: str, after: int, limit: int) -> Deferred[list[int]]:
                asked.append(Deferred())
                return asked[-1]

        taken = [Deferred.fromCoroutine(journaling.take_stock(Slow(), None)) for _ in range(2)]
        for answer in ([1, 2], [], [3], []) * 2:
            asked.pop(0).callback(answer)
        for each in taken:
            self.successResultOf(each)
        reactor.wait(Deferred.fromCoroutine(journaling.end(is_orderly=True)))
        records = reader.records(directory / "journal")
        found = [(each.node, each.ranges) for each in records if each.kind == RecordKind.STOCK]
        self.assertEqual(found, [("p", "1-2"), ("q", "3"), (None, None)] * 2)
