# SPDX-License-Identifier: Apache-2.0
"""The contract of every store: `amqproute.interfaces.IStore`, tested through it alone.

A store passes when a case that is a `StoreContract` passes; see `tests.store.test_contract` for
the stores of the package and for one that is written from the interfaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from amqproute.errors import LocalProtocolError, StoreError
from amqproute.interfaces import IBody, IBodyDraft, IStore, IStoreTransaction
from amqproute.store.model import TRANSIENT, QueueSummary, StoredEntry, StoreRecovery
from tests.store.staging_contract import StagingContract

BODY = bytes(range(256)) * 40


class Outbox:
    """Keeps what it is told; has one row carried for each commit."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.rows = 0

    def carry(self, events: Sequence[Any]) -> tuple[int, bytes, int]:
        self.rows += 1
        return self.rows, repr(list(events)).encode(), 0

    def committed(self, events: Sequence[Any], is_carried: bool) -> None:
        self.events += events


class StoreContract(StagingContract):
    """The tests; mixed into a case that makes the store.

    Attributes:
        store: the open store.
        outbox: what it notifies.
        is_durable: it is still there when it is opened again.
    """

    store: Any
    outbox: Outbox
    is_durable = True

    # -- what a case says about its store ----------------------------------------------------------

    def wait(self, deferred: Deferred[Any]) -> Any:
        """Let time pass until it has fired; return its result, or raise its failure."""
        raise NotImplementedError

    def reopen(self) -> StoreRecovery:
        """Close the store, open one over the same disk, return what it recovers."""
        raise NotImplementedError

    def limit(self) -> bool:
        """Have an empty store with room for a mebibyte or so; False if it has no bound."""
        raise NotImplementedError

    def kill(self) -> bool:
        """Have the store break as by a fault that nobody foresaw; False if nothing can break."""
        raise NotImplementedError

    # -- words -------------------------------------------------------------------------------------

    def begin(self: Any, *calls: tuple[Any, ...]) -> Any:
        transaction = self.store.begin()
        for name, *arguments in calls:
            getattr(transaction, name)(*arguments)
        return transaction

    def do(self: Any, *calls: tuple[Any, ...]) -> None:
        self.wait(self.begin(*calls).commit())

    def put(self: Any, queue: str, *bodies: bytes, expires: int = 0, flags: int = 0) -> list[int]:
        ids = [self.store.next_id() for _ in bodies]
        self.do(
            *[
                ("enqueue", queue, one, body, 5, expires, flags)
                for one, body in zip(ids, bodies, strict=True)
            ]
        )
        return ids

    def load(self: Any, queue: str) -> list[StoredEntry]:
        return list(self.wait(self.store.load(queue, 0, 5000, 1 << 30)))

    def ids(self: Any, queue: str) -> list[int]:
        return [each.id for each in self.load(queue)]

    def body(self: Any, *parts: bytes, before: bytes | None = None) -> Any:
        """Store a body."""
        draft = self.store.draft(lambda _: None, before)
        for part in parts:
            draft.append([part], [part])
        return self.wait(draft.finish())

    def read(self: Any, body: Any, size: int) -> bytes:
        """Read a body in parts."""
        reader = body.reader()
        octets = b""
        while reader.left:
            part = self.wait(reader.read(size))
            self.assertTrue(0 < len(part) <= size)
            octets += part
        reader.close()
        return octets

    # -- the interfaces ----------------------------------------------------------------------------

    def test_interfaces(self: Any) -> None:
        """Everything that is declared is there, with the arguments that are declared."""
        verifyObject(IStore, self.store)
        verifyObject(IStoreTransaction, self.store.begin())
        verifyObject(IBodyDraft, self.store.draft(lambda _: None))
        verifyObject(IBody, self.body(b"rest"))

    def test_questions(self: Any) -> None:
        """A transaction says what it does."""
        new, payload = self.store.next_id(), self.store.next_id()
        for calls, begins, ended, only_removes in (
            ([], False, [], True),
            ([("dequeue", [7, 9])], False, [7, 9], True),
            ([("enqueue", "q", new, b"x", 1, 0, 0)], True, [], False),
            ([("dequeue", [7]), ("enqueue", "q", new, b"x", 1, 0, 0)], True, [7], False),
            (
                [("share", payload, b"x"), ("enqueue_shared", "q", new, payload, 1, 1, 0, 0)],
                True,
                [],
                False,
            ),
            ([("dequeue", [7]), ("note", "a", "b", b"c")], False, [7], False),
            ([("dequeue", [7]), ("update", 8, 1)], False, [7], False),
            ([("move", 7, "r", new)], False, [], False),
            ([("dequeue", [7]), ("mark_received", "s", [1])], False, [7], False),
        ):
            transaction = self.begin(*calls)
            self.assertEqual(transaction.begins(), begins, calls)
            self.assertEqual(sorted(transaction.ended()), ended, calls)
            self.assertEqual(transaction.only_removes(), only_removes, calls)
            transaction.record("event")
            self.assertEqual(list(transaction.events), ["event"])
            self.assertEqual(transaction.only_removes(), only_removes, calls)

    def test_once(self: Any) -> None:
        """A transaction is committed once, and takes nothing more then."""
        transaction = self.begin()
        self.wait(transaction.commit())
        for late in (
            transaction.commit,
            lambda: transaction.enqueue("q", 1, b"", 1, 0, 0),
            lambda: transaction.dequeue([1]),
            lambda: transaction.note("a", "b", None),
            lambda: transaction.record("event"),
        ):
            self.assertRaises(LocalProtocolError, late)

    # -- order -------------------------------------------------------------------------------------

    def test_never_at_once(self: Any) -> None:
        """No Deferred fires within the call that returns it."""
        for ask in (
            self.begin(("note", "a", "b", b"c")).commit,
            lambda: self.begin().commit(True),
            lambda: self.store.load("q", 0, 1, 1),
            lambda: self.store.expired("q", 9, 0, 1),
            lambda: self.store.ids("q", 0, 1),
            self.store.room,
        ):
            deferred = ask()
            self.assertFalse(deferred.called)
            self.wait(deferred)

    def test_order(self: Any) -> None:
        """Commits fire in their order, and a load shows what has fired before it."""
        fired: list[int] = []
        seen: list[int] = []
        last: Any = None
        for number in range(6):
            call = ("enqueue", "q", self.store.next_id(), b"%d" % number, 1, 0, 0)
            self.begin(call).commit().addCallback(lambda _, number=number: fired.append(number))
            last = self.store.load("q", 0, 100, 1 << 20)
            last.addCallback(lambda page: seen.append(len(page)) or seen)
        self.wait(last)
        self.assertEqual((fired, seen), ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]))

    def test_all_or_nothing(self: Any) -> None:
        """A transaction that cannot be committed has done nothing; others are not concerned."""
        (old,) = self.put("q", b"old")
        new = self.store.next_id()
        bad = self.begin(
            ("enqueue", "q", new, b"new", 1, 0, 0),
            ("dequeue", [old]),
            ("enqueue_shared", "q", self.store.next_id(), 1 << 40, 3, 1, 0, 0),
        )
        bad.record("never")
        failed, good = bad.commit(), self.begin(("update", old, 2)).commit()
        self.assertRaises(StoreError, self.wait, failed)
        self.wait(good)
        (entry,) = self.load("q")
        self.assertEqual((entry.id, entry.delivery_count), (old, 2))
        self.assertNotIn("never", self.outbox.events)

    def test_events(self: Any) -> None:
        """Recorded events reach the outbox in the order of the commits."""
        commits = []
        for number in range(3):
            transaction = self.begin(("note", "a", str(number), b"x"))
            transaction.record(number)
            transaction.record(-number)
            commits.append(transaction.commit())
        for each in commits:
            self.wait(each)
        self.assertEqual(self.outbox.events, [0, 0, 1, -1, 2, -2])

    # -- entries -----------------------------------------------------------------------------------

    def test_pages(self: Any) -> None:
        """Pages are bounded by number and octets, and have an entry at least."""
        ids = self.put("q", *[b"%d" % number * 10 for number in range(9)])
        self.put("r", b"elsewhere")

        def page(after: int, limit: int, octets: int) -> list[int]:
            return [each.id for each in self.wait(self.store.load("q", after, limit, octets))]

        self.assertEqual(page(0, 100, 1 << 20), ids)
        self.assertEqual(page(ids[2], 3, 1 << 20), ids[3:6])
        self.assertEqual(page(0, 100, 20), ids[:2])
        self.assertEqual(page(0, 100, 1), ids[:1])
        self.assertEqual(page(ids[-1], 100, 1 << 20), [])
        self.assertEqual(self.load("nobody"), [])
        self.assertEqual(list(self.wait(self.store.ids("q", ids[3], 4))), ids[4:8])
        self.assertEqual(set(self.store.names()), {"q", "r"})

    def test_changes(self: Any) -> None:
        """Entries are changed, moved and removed by their ids; unknown ids are harmless."""
        one, two, three = self.put("q", b"1", b"2", b"3")
        moved = self.store.next_id()
        self.do(("update", one, 4), ("move", two, "r", moved, b"two"), ("dequeue", [three, 999]))
        self.do(("update", 999, 1), ("move", 999, "r", self.store.next_id()))
        self.assertEqual(self.load("q"), [StoredEntry(one, b"1", 5, 0, 4, 0)])
        self.assertEqual(self.load("r"), [StoredEntry(moved, b"two", 5, 0, 0, 0)])

    def test_expired(self: Any) -> None:
        """Those whose time has come, and none that lives for ever; a set clock ages nobody."""
        early = self.put("q", b"a", b"b", expires=50)
        late = self.put("q", b"c", expires=90)
        self.put("q", b"d")

        def expired(now_ms: int, after: int = 0, limit: int = 9) -> list[int]:
            page = self.wait(self.store.expired("q", now_ms, after, limit))
            return [each.id for each in page]

        self.assertEqual(expired(49), [])
        self.assertEqual(expired(50), early)
        self.assertEqual(expired(90), early + late)
        self.assertEqual(expired(90, early[0]), early[1:] + late)
        self.assertEqual(expired(90, 0, 1), early[:1])
        self.do(("postpone", 1000, 2000))
        self.assertEqual(expired(1049), [])
        self.assertEqual(expired(1050), early)

    def test_shared(self: Any) -> None:
        """A shared body is one object on a page, and goes with its last entry."""
        payload, one, two, three = (self.store.next_id() for _ in range(4))
        self.do(
            ("share", payload, BODY),
            (
                "enqueue_shared_many",
                ["q", "q", "r"],
                [one, two, three],
                payload,
                len(BODY),
                1,
                0,
                0,
            ),
        )
        first, second = self.load("q")
        self.assertIs(first.encoded, second.encoded)
        self.assertEqual((first.encoded, first.payload_id), (BODY, payload))
        self.do(("dequeue", [one, two]))
        self.assertEqual([each.encoded for each in self.load("r")], [BODY])
        self.do(("dequeue", [three]))
        late = ("enqueue_shared", "q", self.store.next_id(), payload, len(BODY), 1, 0, 0)
        self.assertRaises(StoreError, self.do, late)

    # -- large bodies ------------------------------------------------------------------------------

    def test_draft(self: Any) -> None:
        """A draft says which octets it has, and knows its digest when it is done."""
        written: list[int] = []
        draft = self.store.draft(written.append, b"head")
        for part in (b"one", b"three"):
            draft.append([part], [part])
        self.assertEqual(draft.size, 8)
        body = self.wait(draft.finish())
        draft.abandon()
        self.assertEqual((sum(written), body.size), (8, 8))
        digest = hashlib.sha256(b"headonethree").hexdigest()
        self.assertEqual(self.wait(body.recall(b"head")), (digest, 12))
        self.assertIsNone(self.wait(body.recall(b"other")))
        self.assertEqual(self.read(body, 3), b"onethree")

    def test_large(self: Any) -> None:
        """The rest of a message goes with its entry: to a page, and to another queue."""
        one, two = self.store.next_id(), self.store.next_id()
        rest = self.body(BODY, BODY)
        self.do(("enqueue", "q", one, b"head", 1, 0, 0, rest))
        (entry,) = self.load("q")
        self.assertEqual((entry.encoded, entry.rest.size), (b"head", 2 * len(BODY)))
        self.do(("move", one, "r", two))
        (entry,) = self.load("r")
        self.assertEqual(self.read(entry.rest, 1000), 2 * BODY)
        self.do(("dequeue", [two]))
        self.assertEqual(self.load("r"), [])

    # -- what a disk does --------------------------------------------------------------------------

    def test_room(self: Any) -> None:
        """Room is known, and less of it is left when something is there."""
        before = self.wait(self.store.room())
        self.assertTrue(0 <= before.free <= before.total)
        self.put("q", BODY * 10)
        after = self.wait(self.store.room())
        if before.used or after.used:
            self.assertGreater(after.used, before.used)
        self.assertGreater(after.writable, 0)

    def test_full(self: Any) -> None:
        """Without room what adds fails and has done nothing; what removes makes room again."""
        if not self.limit():
            return
        ids: list[int] = []
        while len(ids) < 10_000:
            try:
                ids += self.put("q", *[b"f" * 1000] * 100)
            except StoreError:
                break
        self.assertTrue(0 < len(ids) < 10_000)
        self.assertEqual(self.ids("q"), ids)
        self.do(("dequeue", ids[:-1]))
        self.assertEqual(self.ids("q"), ids[-1:])
        self.assertEqual(len(self.put("q", *[b"g" * 1000] * 100)), 100)

    def test_death(self: Any) -> None:
        """When it has broken everybody who waits hears of it, and everybody who comes."""
        (kept,) = self.put("q", b"kept")
        if not self.kill():
            return
        call = ("enqueue", "q", self.store.next_id(), b"lost", 1, 0, 0)
        waiting = [self.begin(call).commit(), self.store.load("q", 0, 1, 1), self.store.room()]
        for each in waiting:
            self.assertRaises(StoreError, self.wait, each)
        self.assertRaises(StoreError, self.wait, self.begin(("note", "a", "b", b"c")).commit())
        found = self.reopen()
        self.assertEqual(found.queues["q"].first_id, kept)
        self.assertEqual(found.queues["q"].count, 1)

    def test_close(self: Any) -> None:
        """Commits before the failure count, later ones fail, and not within the call."""
        fired: list[None] = []
        call = ("enqueue", "q", self.store.next_id(), b"in time", 1, 0, 0)
        self.begin(call).commit().addCallback(fired.append)
        self.wait(self.store.close())
        self.assertEqual(fired, [None])
        late = self.begin(("note", "a", "b", b"c")).commit()
        self.assertFalse(late.called)
        self.assertRaises(StoreError, self.wait, late)
        self.assertRaises(LocalProtocolError, self.store.open)

    def test_recovery(self: Any) -> None:
        """Durable contents are there again, with the sums of the queues; ids continue growing."""
        if not self.is_durable:
            return
        kept = self.put("q", b"four", b"five5")
        self.put("q", b"gone", flags=TRANSIENT)
        large, payload, shared = (self.store.next_id() for _ in range(3))
        self.do(
            ("enqueue", "large", large, b"head", 7, 0, 0, self.body(BODY)),
            ("share", payload, BODY),
            ("enqueue_shared", "r", shared, payload, len(BODY), 6, 0, 0),
            ("mark_received", "s", [3, 1, 2]),
            ("mark_received", "t", [9]),
            ("note", "kind", "key", b"value"),
            ("note", "kind", "other", b"value"),
        )
        self.do(
            ("forget_received", "s", 2),
            ("forget_stream", "t"),
            ("note", "kind", "other", None),
        )
        transaction = self.begin(("note", "kind", "key", b"changed"))
        transaction.record("carried")
        self.wait(transaction.commit())
        last = self.store.next_id()
        found = self.reopen()
        self.assertEqual(
            found.queues,
            {
                "q": QueueSummary(2, 9, kept[0], kept[1], 5),
                "r": QueueSummary(1, len(BODY), shared, shared, 6),
                "large": QueueSummary(1, 4, large, large, 7, len(BODY)),
            },
        )
        self.assertEqual({name: list(ids) for name, ids in found.received.items()}, {"s": [2, 3]})
        self.assertEqual(found.notes, {"kind": {"key": b"changed"}})
        self.assertEqual(found.outbox, [(1, b"['carried']")])
        self.assertGreater(self.store.next_id(), last)
        self.assertEqual(self.ids("q"), kept)
        (entry,) = self.load("large")
        self.assertEqual(self.read(entry.rest, 4096), BODY)
