# SPDX-License-Identifier: Apache-2.0
"""A broker with branches, over a store that outlives it; an application's links."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.broker.local_transaction import Transaction, TransactionLimits, TransactionTerms
from amqproute.broker.subscription import NOTES as SUBSCRIPTIONS
from amqproute.broker.xa_record import NOTES, ROWS, holds_of
from amqproute.broker.xa_registry import BranchLimits, BranchRegistry
from amqproute.broker.xa_states import Xa, XaError, Xid
from amqproute.entry import Entry
from amqproute.outcomes import Acceptance
from amqproute.values import Origin, Principal
from tests.support.fakes import KeptStore, body_of, message, node, put, settle_down, wall

ANN = Principal("user", "ann")
OWNER = "user:ann"
XID = Xid(1, b"global", b"branch")


class Link:
    """Both ends of links of an application: posts, and takes; it notes how its parts ended."""

    copies = False

    takes_ahead = False

    def __init__(self, queue: Any, selects: Any = None) -> None:
        self.queue = queue
        self.entries: list[Entry] = []
        self.room = 100
        self.ended: list[str] = []
        queue.attach(self, selects)
        queue.dispatch()

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return self.room

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        self.room -= len(entries)
        self.entries += entries

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        return self.entries

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`."""

    @property
    def bodies(self) -> list[bytes]:
        """The bodies it was given."""
        return [body_of(entry) for entry in self.entries]

    def settle_within(self, entries: Sequence[Entry], outcome: Any, batch: Any) -> None:
        """As of a link."""
        self.queue.settle(entries, outcome, batch, self)

    def retake(self, entries: Sequence[Entry]) -> None:
        """As of a link."""
        self.queue.retake(entries)

    def retired(self, retirements: Sequence[Any]) -> None:
        """As of a link."""
        self.ended += ["retired"] * len(retirements)
        self.queue.dispatch()

    def restored(self, retirements: Sequence[Any]) -> None:
        """As of a link that is gone."""
        self.ended += ["restored"] * len(retirements)
        self.queue.detach(self)
        self.queue.release([each.entry for each in retirements])

    def concluded(self, deliveries: Sequence[Any], is_committed: bool) -> None:
        """As of a link."""
        self.ended += ["posted" if is_committed else "withdrawn"] * len(deliveries)


class BranchCase(SynchronousTestCase):
    """A broker with the queues ``q`` and ``r`` over a store that outlives it."""

    # Of 9 branches one owner may have 5.
    limits = BranchLimits(branches=9, timeout_seconds=60.0, warn_seconds=600.0)
    nodes = (node("q"), node("r"))

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.abroad: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.ids = count()
        self.start()

    def tearDown(self) -> None:
        self.branches.stop()
        self.broker.stop()

    def start(self, *nodes: Any) -> None:
        """Start a daemon; what one before it had in memory is gone."""
        self.broker = Broker(self.store, self.clock, wall(self.clock), lambda: "dynamic-1")
        recovery = self.store.recovery()
        notes = recovery.notes.get(NOTES, {})
        subscriptions = recovery.notes.get(SUBSCRIPTIONS, {})
        recovery.queues.pop(ROWS, None)
        self.broker.recovered_nodes.recovered(recovery.queues, subscriptions, holds_of(notes))
        self.broker.declare(nodes or self.nodes, {})
        self.terms = TransactionTerms(
            self.broker.begin,
            self.clock,
            lambda: b"%d" % next(self.ids),
            TransactionLimits(total_bytes=210_000),  # half of it for one owner
        )
        self.branches = BranchRegistry(
            self.terms, self.broker, self.store, wall(self.clock), self.find, self.admit,
            lambda principal: principal == ANN, self.limits,
        )  # fmt: skip
        self.branches.recovered(notes)
        settle_down(self.clock)

    def restart(self, *nodes: Any) -> None:
        """End the daemon without a word, and start it again."""
        self.branches._watch.stop()
        self.broker.stop()
        self.start(*nodes)

    def find(self, name: str, principal: Principal) -> Any:
        """Find a target that is no queue."""
        return self.abroad.get(name) or self.broker.target(name)

    def admit(self, hop: Any, origin: Any = None) -> Deferred[Any]:
        """Note that somebody asked the DNS."""
        self.asked.append(hop)
        return succeed(None)

    # -- work ------------------------------------------------------------------------------------

    def fill(self, queue: str, *bodies: bytes, **fields: Any) -> None:
        """Put messages on a queue."""
        put(self.broker, self.broker.nodes[queue], *[message(each, **fields) for each in bodies])
        settle_down(self.clock)

    def open(self, xid: Xid = XID) -> Transaction:
        """Start a branch; return what it is made of."""
        txn_id = self.branches.start(OWNER, xid)
        transaction = self.branches.working(txn_id, ANN)
        assert transaction is not None
        return transaction

    def post(self, transaction: Transaction, link: Any, name: str, *bodies: bytes) -> None:
        """Post messages."""
        for body in bodies:
            target = self.abroad.get(name) or self.broker.target(name)
            delivery = SimpleNamespace(tag=body)
            transaction.post(link, delivery, target, message(body), Origin(ANN, False, "c"))

    def retire(self, transaction: Transaction, link: Link, outcome: Any = None) -> None:
        """Give everything that a link holds an outcome."""
        for entry in link.entries:
            transaction.retire(link, object(), entry, outcome or Acceptance(), False)

    def work(self, xid: Xid = XID) -> Link:
        """Take a message from ``q`` and post one to ``r``, in a branch that is active."""
        self.fill("q", b"taken")
        link = Link(self.broker.nodes["q"])
        transaction = self.open(xid)
        self.post(transaction, link, "r", b"posted")
        self.retire(transaction, link)
        return link

    def prepared(self, xid: Xid = XID) -> Link:
        """Do that, and prepare it."""
        link = self.work(xid)
        self.assertEqual(self.do("end", xid), "OK")
        self.assertEqual(self.do("prepare", xid), "OK")
        return link

    def do(self, verb: str, xid: Xid = XID, owner: str = OWNER) -> str:
        """Carry a command out; return its code's name."""
        branches = self.branches
        calls: dict[str, Any] = {
            "start": lambda: branches.start(owner, xid),
            "join": lambda: branches.start(owner, xid, "join"),
            "resume": lambda: branches.start(owner, xid, "resume"),
            "suspend": lambda: branches.end(owner, xid, "suspend"),
            "end": lambda: branches.end(owner, xid),
            "fail": lambda: branches.end(owner, xid, "fail"),
            "prepare": lambda: branches.prepare(owner, xid),
            "commit": lambda: branches.commit(owner, xid),
            "one-phase": lambda: branches.commit(owner, xid, one_phase=True),
            "rollback": lambda: branches.rollback(owner, xid),
            "forget": lambda: branches.forget(owner, xid),
        }

        async def call() -> str:
            try:
                result = calls[verb]()
                if hasattr(result, "__await__"):
                    result = await result
            except XaError as error:
                self.words = str(error)
                return error.code.name
            return result.name if isinstance(result, Xa) else "OK"

        done = Deferred.fromCoroutine(call())
        settle_down(self.clock)
        code: str = self.successResultOf(done)
        return code

    def decide(self, commits: bool, xid: Xid = XID) -> None:
        """Resolve a branch as an operator."""
        done = Deferred.fromCoroutine(self.branches.decide(f"{OWNER}/{xid}", commits=commits))
        settle_down(self.clock)
        self.successResultOf(done)

    def state(self, xid: Xid = XID) -> str:
        """The place of a branch."""
        for row in self.branches.rows():
            if row["xid"] == str(xid):
                return str(row["state"])
        return "absent"

    def counts(self) -> tuple[int, int, int]:
        """Available and held entries of ``q``, and the depth of ``r``."""
        q, r = self.broker.nodes["q"], self.broker.nodes["r"]
        return q.available, q.acquired, r.depth

    def notes(self) -> int:
        """The number of branches in the store."""
        return len(self.store.notes.get(NOTES, {}))

    def seen(self, queue: str) -> list[bytes]:
        """Take all that a queue hands out."""
        link = Link(self.broker.nodes[queue])
        settle_down(self.clock)
        return link.bodies
