# SPDX-License-Identifier: Apache-2.0
"""Branches against a model: random commands, with failures and restarts anywhere.

The model knows, of each durable message, where it has to be: on a queue, in a branch's hands, or
posted by a branch. Whatever happens, nothing is lost, nothing is there twice, nothing that a
branch has is seen by others, and what was answered is so after a restart.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from amqproute.broker.xa_record import NOTES, ROWS
from amqproute.broker.xa_states import Xid
from amqproute.entry import Entry
from amqproute.errors import AmqpError
from amqproute.outcomes import Acceptance
from tests.broker.branch_rig import BranchCase, Link
from tests.support.fakes import body_of, node, settle_down

XIDS = [Xid(1, b"%d" % number, b"") for number in range(3)]
CAPACITY = 12
OVER = ("OK", "RBROLLBACK", "RDONLY", "RBTIMEOUT")


@dataclass
class Work:
    """A branch of the model.

    Attributes:
        state: in the words of the table.
        taken: bodies, and where they came from.
        posted: bodies, and where they go.
        associations: those that have not ended.
    """

    state: str = "active"
    taken: list[tuple[bytes, str]] = field(default_factory=list)
    posted: list[tuple[bytes, str]] = field(default_factory=list)
    associations: int = 1


class Holder(Link):
    """A link that takes one entry and keeps it."""

    def __init__(self, queue: Any) -> None:
        super().__init__(queue)
        self.room = 0

    def take(self) -> Entry | None:
        """Ask for one entry."""
        before = len(self.entries)
        self.room = 1
        self.queue.dispatch()
        self.room = 0
        return self.entries[-1] if len(self.entries) > before else None

    def restored(self, retirements: Any) -> None:
        """As of a link that is gone."""
        for each in retirements:
            self.entries.remove(each.entry)
        self.queue.release([each.entry for each in retirements])


class ModelTests(BranchCase):
    nodes = (node("q", capacity=CAPACITY), node("r", capacity=CAPACITY))

    def begin(self, seed: int) -> None:
        """Begin anew."""
        self.chance = random.Random(seed)
        self.bodies = iter(b"%05d" % number for number in range(100_000))
        self.where: dict[str, set[bytes]] = {"q": set(), "r": set()}
        self.works: dict[Xid, Work] = {}
        self.open_links()

    def open_links(self) -> None:
        """Attach to both queues."""
        self.links = {name: Holder(self.broker.nodes[name]) for name in ("q", "r")}

    # -- steps ---------------------------------------------------------------------------------

    def put_some(self) -> None:
        """Another client sends, as far as there is room."""
        name = self.chance.choice("qr")
        for _ in range(self.chance.randrange(4)):
            if self.broker.nodes[name].space():
                body = next(self.bodies)
                self.fill(name, body)
                self.where[name].add(body)

    def take_or_post(self) -> None:
        """The application works in an active branch."""
        xid = self.chance.choice(XIDS)
        work = self.works.get(xid)
        if work is None or work.state != "active":
            return
        transaction = self.branches.branch("user:ann", xid).transaction
        assert transaction is not None
        name = self.chance.choice("qr")
        if self.chance.random() < 0.5:
            entry = self.links[name].take()
            if entry is not None:
                body = body_of(entry)
                self.assertIn(body, self.where[name])
                transaction.retire(self.links[name], object(), entry, Acceptance(), False)
                self.where[name].discard(body)
                work.taken.append((body, name))
            return
        body = next(self.bodies)
        try:
            self.post(transaction, self.links[name], name, body)
        except AmqpError:
            return  # full: the branch goes on without it
        work.posted.append((body, name))

    def command(self) -> None:
        """The manager says something, in order or not."""
        xid = self.chance.choice(XIDS)
        work = self.works.get(xid)
        state = "absent" if work is None else work.state
        likely = {
            "absent": "start", "active": "end", "idle": "prepare", "prepared": "commit",
        }.get(state, "forget")  # fmt: skip
        verbs = ["start", "join", "end", "prepare", "commit", "rollback", "one-phase", "forget"]
        verb = likely if self.chance.random() < 0.6 else self.chance.choice(verbs)
        code = self.do(verb, xid)
        if code in ("DUPID", "NOTA", "PROTO", "RETRY", "RMERR"):
            self.assertNotEqual((verb, state, code), ("start", "absent", "DUPID"))
            return
        if verb == "start":
            self.works[xid] = Work()
            return
        assert work is not None, (verb, code)
        if verb == "join":
            work.state = "active"
            work.associations += 1
        elif verb == "end":
            work.associations -= 1
            work.state = "active" if work.associations else "idle"
        elif verb == "prepare" and code == "OK":
            work.state = "prepared"
        elif verb == "prepare":
            self.over(xid, code == "RDONLY")
        elif verb in ("commit", "one-phase") and code == "OK":
            self.over(xid, True)
        elif code.startswith("HEUR"):
            self.assertEqual(code, {"committed": "HEURCOM", "undone": "HEURRB"}[work.state])
        elif verb == "forget":
            del self.works[xid]
        else:
            self.assertIn(code, OVER)
            self.over(xid, False)

    def over(self, xid: Xid, is_committed: bool, state: str = "") -> None:
        """A branch is resolved."""
        work = self.works.pop(xid)
        for body, name in work.posted if is_committed else work.taken:
            self.where[name].add(body)
        if state:
            self.works[xid] = Work(state)

    def operator(self) -> None:
        """An operator decides."""
        waiting = [xid for xid, work in self.works.items() if work.state == "prepared"]
        if waiting:
            xid, commits = self.chance.choice(waiting), self.chance.random() < 0.5
            self.decide(commits, xid)
            self.over(xid, commits, "committed" if commits else "undone")

    def fail_a_while(self) -> None:
        """The disk is full for the next few commands."""
        self.store.is_failing = True
        for _ in range(3):
            self.command()
        self.store.is_failing = False

    def crash(self) -> None:
        """The daemon ends, and starts again: what was not promised is undone."""
        self.restart()
        self.open_links()
        for xid, work in list(self.works.items()):
            if work.state in ("active", "idle"):
                self.over(xid, False)

    # -- what has to be so ---------------------------------------------------------------------

    def check(self) -> None:
        """Compare."""
        lasting = {xid for xid, work in self.works.items() if work.state not in ("active", "idle")}
        self.assertEqual(len(self.store.notes.get(NOTES, {})), len(lasting))
        prepared = [work for work in self.works.values() if work.state == "prepared"]
        rows = sum(len(work.posted) for work in prepared)
        self.assertEqual(len(self.store.rows(ROWS)), rows)
        for name in ("q", "r"):
            queue = self.broker.nodes[name]
            held = [each for work in self.works.values() for each in work.taken if each[1] == name]
            promised = [
                each
                for work in self.works.values()
                if work.state == "prepared"
                for each in work.posted
                if each[1] == name
            ]
            self.assertEqual((queue.available, queue.acquired), (len(self.where[name]), len(held)))
            self.assertEqual(queue.promised, len(promised))
            room = max(0, CAPACITY - queue.depth - len(promised))
            self.assertEqual(queue.space(), room)

    def finish(self) -> None:
        """Resolve everything; then take all there is, on the disk and off it."""
        self.store.is_failing = False
        for xid, work in list(self.works.items()):
            while work.state == "active" and work.associations:
                self.do("end", xid)
                work.associations -= 1
            if work.state in ("active", "idle", "prepared"):
                self.assertEqual(self.do("rollback", xid), "OK")
                self.over(xid, False)
            else:
                self.assertEqual(self.do("forget", xid), "OK")
        self.assertEqual((len(self.branches), self.terms.staged_bytes), (0, 0))
        self.restart()
        for name in ("q", "r"):
            self.assertEqual(sorted(self.seen(name)), sorted(self.where[name]))

    def run_course(self, seed: int) -> None:
        """Do anything."""
        self.begin(seed)
        steps = [self.put_some, self.take_or_post, self.take_or_post, self.command, self.command,
                 self.command]  # fmt: skip
        rare = [self.operator, self.fail_a_while, self.crash]
        for _ in range(150):
            self.chance.choice(rare if self.chance.random() < 0.08 else steps)()
            settle_down(self.clock, 10)
            self.check()
        self.finish()

    def test_courses(self) -> None:
        """Sixty courses of 150 steps."""
        for seed in range(60):
            try:
                self.run_course(seed)
            except BaseException:
                print(f"seed {seed}")
                raise
            self.tearDown()
            self.setUp()
