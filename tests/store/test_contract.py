# SPDX-License-Identifier: Apache-2.0
"""The stores of the package, and one written from the interfaces, meet one contract."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.store.db_writer import WriterCall
from amqproute.store.memory import MemoryStore
from amqproute.store.model import StoreRecovery
from tests.store.contract import Outbox, StoreContract
from tests.store.plain_store import PlainDisk, PlainStore
from tests.store.rig import StoreFixture
from tests.store.test_shared import SharedFacts


def result_of(case: SynchronousTestCase, clock: Clock, deferred: Deferred[Any]) -> Any:
    """Let the clock's turns pass; return the result or raise the failure."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    for _ in range(100):
        if found:
            break
        clock.advance(0)
    else:
        case.fail("it does not fire")
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


class MemoryContractTests(StoreContract, SynchronousTestCase):
    """`MemoryStore`: nothing outlives it, and nothing is too much for it."""

    is_durable = False

    def setUp(self) -> None:
        self.clock = Clock()
        self.outbox = Outbox()
        self.store = MemoryStore(self.clock, self.outbox)
        self.wait(self.store.open())

    def wait(self, deferred: Deferred[Any]) -> Any:
        return result_of(self, self.clock, deferred)

    def limit(self) -> bool:
        return False

    def kill(self) -> bool:
        return False


class SqliteContractTests(StoreContract, SynchronousTestCase):
    """`SqliteStore`, with bodies in the database."""

    OPTIONS: dict[str, Any] = {}

    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp(), "queues.db")
        self.start()

    def start(self, **options: Any) -> StoreRecovery:
        self.outbox = Outbox()
        self.fixture = StoreFixture(self.path, outbox=self.outbox, **{**self.OPTIONS, **options})
        self.store = self.fixture.store
        return self.fixture.open()

    def tearDown(self) -> None:
        self.fixture.close()

    def wait(self, deferred: Deferred[Any]) -> Any:
        return self.fixture.reactor.wait(deferred)

    def reopen(self) -> StoreRecovery:
        self.fixture.close()
        return self.start()

    def limit(self) -> bool:
        self.fixture.close()
        self.path = os.path.join(self.mktemp(), "limited.db")
        self.start(max_bytes=1 << 20)
        return True

    def kill(self) -> bool:
        broken: Deferred[None] = Deferred()
        broken.addErrback(lambda _: None)
        self.store._writer.submit(WriterCall(self._break, broken, vital=True))
        self.addCleanup(self.flushLoggedErrors, ZeroDivisionError)
        return True

    @staticmethod
    def _break() -> None:
        raise ZeroDivisionError("a fault that nobody foresaw")


class FileContractTests(SqliteContractTests):
    """`SqliteStore`, with bodies in files."""

    OPTIONS = {"file_bytes": 1000, "segment_bytes": 100_000}


class PlainCase(SynchronousTestCase):
    """The store of the tests."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.start(PlainDisk())

    def start(self, disk: PlainDisk) -> StoreRecovery:
        self.outbox = Outbox()
        self.store = PlainStore(self.clock, disk, outbox=self.outbox)
        found: StoreRecovery = self.wait(self.store.open())
        return found

    def wait(self, deferred: Deferred[Any]) -> Any:
        return result_of(self, self.clock, deferred)


class PlainContractTests(PlainCase, StoreContract):
    """The contract, by a store of whose author nothing more was known than the interfaces."""

    def reopen(self) -> StoreRecovery:
        return self.start(self.store.disk)

    def limit(self) -> bool:
        self.start(PlainDisk(limit=1 << 20))
        return True

    def kill(self) -> bool:
        self.store.die()
        return True


class PlainSharedTests(PlainCase, SharedFacts):
    """The contract of shared bodies holds for the package's stores, too."""

    def payloads(self) -> set[int]:
        return set(self.store.disk.state.payloads)
