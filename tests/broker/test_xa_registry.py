# SPDX-License-Identifier: Apache-2.0
"""Branches of distributed transactions: messages, restarts, failures, heuristics, bounds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Duplicates, QueueOptions
from amqproute.broker.subscription import Definition
from amqproute.broker.xa_record import NOTES, ROWS, BranchRecord
from amqproute.broker.xa_states import BranchState, Xa, XaError, Xid
from amqproute.errors import AmqpError, DecodeError, NotFound, StoreError, Unresolved
from amqproute.filters.registry import NO_FILTERS
from amqproute.message import Message
from amqproute.outcomes import Acceptance, Modification, Rejection, Release
from amqproute.values import QUARANTINE, NextHop, Origin, Principal
from tests.broker.branch_rig import ANN, OWNER, XID, BranchCase, Link
from tests.support.fakes import body_of, message, node, put, settle_down, topic


class OutcomeTests(BranchCase):
    """Outcomes of messages."""

    def test_two_phases(self) -> None:
        """Prepared, messages are neither visible nor lost; the commit makes all of it so."""
        link = self.work()
        self.do("end")
        self.assertEqual(self.do("prepare"), "OK")
        self.assertEqual((self.counts(), link.ended), ((0, 1, 0), []))
        self.assertEqual(self.branches.recover(OWNER), [XID])
        self.assertEqual(self.do("commit"), "OK")
        self.assertEqual(self.counts(), (0, 0, 1))
        self.assertEqual(sorted(link.ended), ["posted", "retired"])
        self.assertEqual((self.notes(), self.do("commit")), (0, "NOTA"))
        self.assertEqual(self.branches.recover(OWNER), [])
        self.assertEqual(self.terms.staged_bytes, 0)

    def test_roll_back(self) -> None:
        """A prepared branch is rolled back: the message taken is there again."""
        link = self.prepared()
        self.assertEqual(self.do("rollback"), "OK")
        self.assertEqual((self.counts(), self.notes()), ((1, 0, 0), 0))
        self.assertEqual(sorted(link.ended), ["restored", "withdrawn"])

    def test_whose_nodes(self) -> None:
        """An operator sees what a branch keeps, before a restart and after it."""
        self.prepared()
        q, r = self.broker.nodes["q"], self.broker.nodes["r"]
        name = self.branches.rows()[0]["name"]
        self.assertEqual(self.branches.rows()[0]["nodes"], ["q", "r"])
        self.assertEqual((self.branches.keeping(q), self.branches.keeping(r)), ([name], [name]))
        self.restart(node("q"), node("r"), node("s"))
        nodes = self.broker.nodes
        kept = [self.branches.keeping(nodes[each]) for each in ("q", "r", "s")]
        self.assertEqual(kept, [[name], [name], []])
        self.assertEqual(self.do("rollback"), "OK")
        self.assertEqual(self.branches.keeping(nodes["q"]), [])

    def test_read_only(self) -> None:
        """A branch without work is over when it is prepared."""
        self.open()
        self.do("end")
        self.assertEqual((self.do("prepare"), self.state(), self.notes()), ("RDONLY", "absent", 0))

    def test_not_working(self) -> None:
        """C-06: work is done in an active branch, by its principal only."""
        transaction = self.open()
        self.assertIsNone(self.branches.working(transaction.id, Principal("user", "bob")))
        for verb, works in (("suspend", False), ("resume", True), ("end", False)):
            self.do(verb)
            found = self.branches.working(transaction.id, ANN)
            self.assertEqual(found is not None, works, verb)
        self.assertEqual(self.do("commit", owner="user:bob"), "NOTA")
        self.assertEqual(self.branches.recover("user:bob"), [])

    def test_rejected(self) -> None:
        """Outcomes other than accepted are acted on by the commit, also after a restart."""
        for restarts in (False, True):
            for outcome, counts in (
                (Rejection(), (0, 0)),
                (Release(), (1, 0)),
                (Modification(delivery_failed=True), (1, 1)),
            ):
                self.setUp()
                self.fill("q", b"1")
                link = Link(self.broker.nodes["q"])
                transaction = self.open()
                self.retire(transaction, link, outcome)
                self.do("end")
                self.do("prepare")
                link.room = 0
                if restarts:
                    self.restart()
                self.assertEqual(self.do("commit"), "OK")
                queue = self.broker.nodes["q"]
                self.assertEqual((queue.depth, queue.acquired), (counts[0], 0), outcome)
                found = Link(queue).entries
                self.assertEqual([each.delivery_count for each in found], [counts[1]] * counts[0])
                self.tearDown()

    def test_transient(self) -> None:
        """Messages that were never on the disk end with the daemon, in a branch or not."""
        self.fill("q", b"1", durable=False)
        link = Link(self.broker.nodes["q"])
        transaction = self.open()
        self.retire(transaction, link)
        self.post(transaction, link, self.broker.create_dynamic().name, b"2")
        self.post(transaction, link, "r", b"3")
        self.do("end")
        self.assertEqual(self.do("prepare"), "OK")
        self.restart()
        self.assertEqual(self.counts(), (0, 0, 0))
        self.assertEqual((self.do("commit"), self.counts()), ("OK", (0, 0, 1)))


class RestartTests(BranchCase):
    """C-08: prepared branches survive a restart; nobody gets what they hold."""

    def test_commit(self) -> None:
        """The commit makes all visible."""
        self.prepared()
        self.restart()
        self.assertEqual(self.seen("q"), [])
        self.assertEqual(self.counts(), (0, 1, 0))
        self.assertEqual(self.branches.recover(OWNER), [XID])
        self.assertEqual(self.do("commit"), "OK")
        self.assertEqual((self.counts(), self.notes()), ((0, 0, 1), 0))
        self.assertEqual((self.store.rows("q"), self.terms.staged_bytes), ([], 0))
        self.restart()
        self.assertEqual((self.seen("q"), self.seen("r")), ([], [b"posted"]))

    def test_roll_back(self) -> None:
        """The roll-back restores."""
        self.prepared()
        self.restart()
        self.restart()
        self.assertEqual(self.do("rollback"), "OK")
        self.assertEqual((self.counts(), self.notes()), ((1, 0, 0), 0))
        self.assertEqual((self.seen("q"), self.seen("r")), ([b"taken"], []))

    def test_not_prepared(self) -> None:
        """Branches that were not prepared are rolled back."""
        self.work()
        self.do("end")
        self.restart()
        self.assertEqual((self.state(), self.counts()), ("absent", (1, 0, 0)))
        self.assertEqual(self.do("rollback"), "NOTA")

    def test_out_of_the_middle(self) -> None:
        """Held entries are passed over wherever they stand, on lines that page too."""
        bodies = [b"%04d" % number for number in range(1200)]
        self.fill("q", *bodies)
        mine = Link(self.broker.nodes["q"], lambda entry: int(body_of(entry)) % 7 == 3)
        mine.room += 900
        self.broker.nodes["q"].dispatch()
        transaction = self.open()
        self.retire(transaction, mine)
        held = mine.bodies
        self.assertEqual(held, [each for each in bodies if int(each) % 7 == 3])
        self.do("end")
        self.do("prepare")
        self.restart()
        taker = Link(self.broker.nodes["q"])
        taker.room += 2000
        self.broker.nodes["q"].dispatch()
        settle_down(self.clock)
        self.assertEqual(taker.bodies, [each for each in bodies if each not in held])
        self.assertEqual(self.do("rollback"), "OK")
        settle_down(self.clock)
        self.assertEqual(sorted(taker.bodies), bodies)
        self.assertEqual(self.broker.nodes["q"].acquired, 1200)

    def test_scanned(self) -> None:
        """A consumer with a filter does not find held entries in the store either."""
        self.prepared()
        self.fill("q", b"other")
        self.restart()
        link = Link(self.broker.nodes["q"], lambda entry: True)
        settle_down(self.clock)
        self.assertEqual(link.bodies, [b"other"])

    def test_purged_and_expired(self) -> None:
        """Neither a purge nor the time takes what a branch holds."""
        self.fill("q", b"1", b"2", ttl=5000)
        link = Link(self.broker.nodes["q"])
        link.entries.pop()
        transaction = self.open()
        self.retire(transaction, link)
        self.do("end")
        self.do("prepare")
        self.restart()
        self.clock.advance(100)
        settle_down(self.clock)
        self.broker.nodes["q"].purge()
        settle_down(self.clock)
        self.assertEqual(self.counts(), (0, 1, 0))
        self.assertEqual(len(self.store.rows("q")), 1)
        self.assertEqual((self.do("commit"), self.store.rows("q")), ("OK", []))

    def test_priorities(self) -> None:
        """Each priority has a line of its own."""
        nodes = (node("q", priorities=10), node("r"))
        self.start(*nodes)
        for priority in (0, 4, 9):
            self.fill("q", b"%d" % priority, priority=priority)
        link = Link(self.broker.nodes["q"])
        transaction = self.open()
        self.retire(transaction, link)
        self.do("end")
        self.do("prepare")
        self.restart(*nodes)
        self.assertEqual((self.seen("q"), self.counts()), ([], (0, 3, 0)))
        self.do("rollback")
        self.assertEqual(self.seen("q"), [])  # the first one has them
        self.assertEqual(self.counts(), (0, 3, 0))

    def test_subscription(self) -> None:
        """A durable subscription has a queue of its own, and holds as others do."""
        nodes = (*self.nodes, topic("t"))
        self.start(*nodes)
        definition = Definition("t", "c", "s", OWNER, "c")
        asked = self.broker.topics["t"].subscribe(definition, NO_FILTERS)
        settle_down(self.clock)
        made = self.successResultOf(asked)
        put(self.broker, self.broker.topics["t"], message(b"1"), message(b"2"))
        settle_down(self.clock)
        link = Link(made.queue)
        link.entries.pop()
        transaction = self.open()
        self.retire(transaction, link)
        self.do("end")
        self.do("prepare")
        self.restart(*nodes)
        found = self.broker.topics["t"].durable["c", "s"]
        taker = Link(found.queue)
        settle_down(self.clock)
        self.assertEqual((taker.bodies, found.queue.acquired), ([b"2"], 2))
        self.assertEqual((self.do("commit"), found.queue.acquired), ("OK", 1))

    def test_topic(self) -> None:
        """A posting to a topic is on its subscriptions after the commit."""
        nodes = (*self.nodes, topic("t", last_value=True))
        for restarts in (False, True):
            self.setUp()
            self.start(*nodes)
            definition = Definition("t", "c", f"s{restarts}", OWNER, "c")
            self.broker.topics["t"].subscribe(definition, NO_FILTERS)
            settle_down(self.clock)
            transaction = self.open()
            self.post(transaction, Link(self.broker.nodes["q"]), "t", b"1")
            self.do("end")
            self.assertEqual(self.do("prepare"), "OK")
            if restarts:
                self.restart(*nodes)
            queue = self.broker.topics["t"].durable["c", f"s{restarts}"].queue
            self.assertEqual((queue.depth, queue.promised), (0, 1))
            self.assertEqual((self.do("commit"), queue.depth), ("OK", 1))
            self.assertEqual(queue.promised, 0)

    def test_very_large(self) -> None:
        """The rest of a very large message stays where it is, and is named by rows throughout."""
        draft = self.broker.draft(lambda _: None)
        draft.append([b"\x00\x53\x75\xa0\x03abc"])
        done = draft.finish()
        settle_down(self.clock)
        body = self.successResultOf(done)
        head = message(b"").encoded[: message(b"").bare_from]
        for verb, depth in (("rollback", 0), ("commit", 1)):
            transaction = self.open()
            link = Link(self.broker.nodes["q"])
            delivery = SimpleNamespace(tag=b"t")
            target = self.broker.nodes["r"]
            transaction.post(link, delivery, target, Message(head, body), Origin(ANN))
            self.do("end")
            self.assertEqual(self.do("prepare"), "OK")
            self.restart()
            self.assertEqual((self.do(verb), self.broker.nodes["r"].depth), ("OK", depth))
        (entry,) = Link(self.broker.nodes["r"]).entries
        self.assertEqual((entry.message.encoded, entry.message.rest.size), (head, body.size))

    def test_held_once(self) -> None:
        """A queue that takes a message-id once knows those that branches hold."""
        first, second = self.nodes
        only_once = QueueOptions(duplicates=Duplicates.ALL)
        nodes = (NodeDeclaration("q", first.limits, None, only_once), second)
        self.start(*nodes)
        self.prepared()
        self.restart(*nodes)
        self.assertEqual((self.do("commit"), self.counts()), ("OK", (0, 0, 1)))

    def test_node_gone(self) -> None:
        """A node that is not configured any more: nothing is lost; a roll-back needs it not."""
        self.prepared()
        self.restart(node("r"))
        self.assertEqual(self.do("commit"), "RETRY")
        self.assertIn("declare it", self.words)
        self.assertEqual((self.state(), self.notes()), ("prepared", 1))
        self.assertEqual(self.do("rollback"), "OK")
        self.broker.declare(self.nodes, {})
        settle_down(self.clock)
        self.assertEqual((self.seen("q"), self.counts()), ([b"taken"], (0, 1, 0)))

    def test_node_gone_and_store_fails(self) -> None:
        """A roll-back without the node that fails does not make a later commit forget it."""
        self.prepared()
        self.restart(node("r"))
        self.store.is_failing = True
        self.assertEqual(self.do("rollback"), "RMERR")
        self.store.is_failing = False
        self.assertEqual((self.do("commit"), self.terms.staged_bytes), ("RETRY", 0))
        self.broker.declare(self.nodes, {})
        settle_down(self.clock)
        self.assertEqual((self.seen("q"), self.counts()), ([], (0, 1, 0)))
        self.assertEqual((self.do("commit"), self.counts()), ("OK", (0, 0, 1)))

    def test_row_gone(self) -> None:
        """An entry that is not in the store any more is no reason not to commit the rest."""
        self.prepared()
        self.restart()
        (row,) = self.store.rows("q")
        batch = self.broker.begin()
        batch.transaction.dequeue([row.id])
        batch.commit()
        self.assertEqual((self.do("commit"), self.counts()), ("OK", (0, 0, 1)))

    def quarantined(self) -> list[int]:
        """Return what the store keeps for nobody."""
        settle_down(self.clock)
        return [row.id for row in self.store.rows(QUARANTINE)]

    def spoil(self, queue: str) -> int:
        """Write an entry that is no message over the one on a queue; return its id."""
        (row,) = self.store.rows(queue)
        entries = self.store._queues[self.store._numbers[queue]].entries
        entries[row.id] = replace(row, encoded=b"\x00\x53\x70\xff no message")
        return int(row.id)

    def test_row_unreadable(self) -> None:
        """An entry that is no message is set aside as on any queue, and the rest is committed."""
        for command in ("commit", "rollback"):
            with self.subTest(command):
                self.setUp()
                self.prepared()
                entry = self.spoil("q")
                self.restart()
                self.assertEqual(self.do(command), "OK")
                self.assertEqual(self.quarantined(), [entry])
                self.assertEqual(self.store.rows("q"), [])
                self.assertEqual(self.counts(), (0, 0, command == "commit"))
                self.restart()
                self.assertEqual((self.counts()[:2], self.quarantined()), ((0, 0), [entry]))

    def test_posting_unreadable(self) -> None:
        """A posted one is set aside; the branch cannot be committed any more, and rolled back."""
        self.prepared()
        entry = self.spoil(ROWS)
        self.restart()
        self.assertEqual((self.do("commit"), self.do("commit")), ("RETRY", "RETRY"))
        self.assertEqual(self.quarantined(), [entry])
        self.restart()
        self.assertEqual((self.do("commit"), self.do("rollback")), ("RETRY", "OK"))
        self.assertEqual((self.quarantined(), self.store.rows(ROWS)), ([entry], []))
        self.assertEqual((self.counts(), self.notes()), ((1, 0, 0), 0))

    def test_row_unreadable_without_store(self) -> None:
        """Each attempt finds it again, while the store takes nothing; it is reported once."""
        self.prepared()
        entry = self.spoil("q")
        self.spoil(ROWS)  # so that no attempt comes to an end
        self.restart()
        self.store.is_failing = True
        with capturedLogs() as logged:
            self.assertEqual((self.do("commit"), self.do("commit")), ("RETRY", "RETRY"))
        said = [each for each in map(formatEvent, logged) if f"entry {entry} of q" in each]
        self.assertEqual(len(said), 1, said)
        self.flushLoggedErrors(StoreError)
        self.assertEqual([row.id for row in self.store.rows("q")], [entry])

    def test_record_unreadable(self) -> None:
        """Postings of a branch with an unreadable record are set aside; those of others not."""
        self.prepared()
        ((key, _),) = self.store.notes[NOTES].items()
        (lost,) = [row.id for row in self.store.rows(ROWS)]
        other = Xid(1, b"other", b"branch")
        self.restart()
        transaction = self.open(other)
        self.post(transaction, Link(self.broker.nodes["r"]), "r", b"kept")
        self.assertEqual((self.do("end", other), self.do("prepare", other)), ("OK", "OK"))
        self.store.notes[NOTES][key] = b"\x41"
        self.restart()
        self.assertEqual(self.quarantined(), [lost])
        self.assertEqual(len(self.store.rows(ROWS)), 1)
        self.assertEqual((self.do("commit", other), self.counts()[2]), ("OK", 1))

    def test_node_back(self) -> None:
        """Declared again, the node does not hand out what the branch holds."""
        self.prepared()
        self.restart(node("r"))
        self.assertEqual(self.do("commit"), "RETRY")
        self.broker.declare(self.nodes, {})
        settle_down(self.clock)
        self.assertEqual((self.seen("q"), self.counts()), ([], (0, 1, 0)))
        self.assertEqual((self.do("commit"), self.counts()), ("OK", (0, 0, 1)))

    def test_renamed(self) -> None:
        """A queue that gets another name while a branch is prepared is found after a restart."""
        self.prepared()
        self.broker.rename("r", "s")
        self.restart(node("q"), NodeDeclaration("s", QueueLimits(), rows="r"))
        self.assertEqual(self.do("commit"), "OK")
        self.assertEqual(self.broker.nodes["s"].depth, 1)

    def test_damaged(self) -> None:
        """A record that cannot be read is told, and does not keep the daemon from starting."""
        self.prepared()
        ((key, good),) = self.store.notes[NOTES].items()
        for bad in (b"", b"\x41", good[:-1], b"\x45", good.replace(b"prepared", b"prefared")):
            self.store.notes[NOTES] = {key: bad}
            self.restart()
            self.assertEqual(len(self.branches), 0)

    def test_record(self) -> None:
        """A record reads back as what it was."""
        self.prepared()
        ((_, encoded),) = self.store.notes[NOTES].items()
        record = BranchRecord.decode(encoded)
        self.assertEqual(
            (record.owner, record.xid, record.state), (OWNER, XID, BranchState.PREPARED)
        )
        (posting,), (retirement,) = record.postings, record.retirements
        self.assertEqual((posting.target, posting.tag), ("r", b"posted"))
        self.assertEqual((posting.principal, posting.container_id), (ANN, "c"))
        self.assertEqual((retirement.line, retirement.outcome), ("q", Acceptance()))
        self.assertEqual(record.encode(), encoded)
        self.assertRaises(
            DecodeError, BranchRecord.decode, record.encode().replace(OWNER.encode(), b"")
        )


class FailureTests(BranchCase):
    """Failures."""

    def test_prepare_not_written(self) -> None:
        """The store fails: nothing is promised, and all is rolled back."""
        link = self.work()
        self.do("end")
        self.store.is_failing = True
        self.assertEqual((self.do("prepare"), self.state()), ("RBROLLBACK", "absent"))
        self.assertEqual(sorted(link.ended), ["restored", "withdrawn"])
        self.assertEqual(self.counts(), (1, 0, 0))

    def test_taken_before_it_was_written(self) -> None:
        """Entries delivered and then not written are not in the record: others are counted."""
        self.patch(Link, "takes_ahead", True)
        link = Link(self.broker.nodes["q"])
        link.room = 1
        for fails in (False, True):
            self.store.is_full = fails
            xid = Xid(1, b"%d" % fails, b"")
            transaction = self.open(xid)
            put(self.broker, link.queue, message(b"taken"), ahead=True).addErrback(lambda _: None)
            self.retire(transaction, link)
            self.assertEqual(len(transaction.retirements), 1)
            self.branches.end(OWNER, xid)
            self.assertEqual(self.do("prepare", xid), "OK")
            self.store.is_full = False
            link.entries, link.room = [], 1
        link.room = 0
        self.fill("q", b"1", b"2")
        self.restart()
        self.assertEqual((self.seen("q"), self.counts()), ([b"1", b"2"], (0, 3, 0)))

    def test_one_phase_not_written(self) -> None:
        """The same for one phase."""
        self.work()
        self.do("end")
        self.store.is_failing = True
        self.assertEqual((self.do("one-phase"), self.state()), ("RBROLLBACK", "absent"))
        self.assertEqual(self.counts(), (1, 0, 0))

    def test_commit_not_written(self) -> None:
        """XA_RETRY: it stays prepared, and can be committed later, or rolled back."""
        for restarts in (False, True):
            for verb, counts in (("commit", (0, 0, 1)), ("rollback", (1, 0, 0))):
                self.setUp()
                link = self.prepared()
                if restarts:
                    self.restart()
                self.store.is_failing = True
                for _ in range(2):
                    self.assertEqual(self.do("commit"), "RETRY")
                    self.assertEqual(self.state(), "prepared")
                    self.assertEqual(self.counts(), (0, 1, 0))
                self.assertEqual(self.do("rollback"), "RMERR")
                self.store.is_failing = False
                link.room = 0
                self.assertEqual((self.do(verb), self.counts()), ("OK", counts))
                self.assertEqual((self.notes(), self.terms.staged_bytes), (0, 0))
                self.tearDown()

    def test_forget_not_written(self) -> None:
        """A decision is not forgotten before that is on the disk."""
        self.prepared()
        self.decide(True)
        self.store.is_failing = True
        self.assertEqual((self.do("forget"), self.notes()), ("RMERR", 1))
        self.store.is_failing = False
        self.assertEqual((self.do("forget"), self.notes()), ("OK", 0))

    def test_doomed(self) -> None:
        """A posting that was refused leaves a branch that can only be rolled back."""
        transaction = self.open()
        transaction.fail(NotFound("no such node"))
        self.assertEqual(self.state(), "rollback only")
        self.assertEqual(self.do("join"), "RBROLLBACK")
        self.assertEqual(self.do("end"), "RBROLLBACK")
        self.assertEqual(self.do("prepare"), "RBROLLBACK")
        self.assertIn("no such node", self.words)

    def test_under_way(self) -> None:
        """A second command while the first waits for the disk."""
        self.prepared()
        first = Deferred.fromCoroutine(self.branches.commit(OWNER, XID))
        self.assertNoResult(first)
        errors = []
        for each in (self.branches.commit(OWNER, XID), self.branches.rollback(OWNER, XID)):
            failure = self.failureResultOf(Deferred.fromCoroutine(each), XaError)
            errors.append(failure.value.code)
        self.assertEqual(errors, [Xa.RETRY, Xa.PROTO])
        settle_down(self.clock)
        self.assertEqual(self.successResultOf(first), Xa.OK)
        self.assertEqual(self.counts(), (0, 0, 1))

    def test_no_time_out_in_between(self) -> None:
        """The time of a branch does not run out while the DNS is asked for it."""
        waiting: list[Deferred[Any]] = []
        hop = NextHop("b.test", "b.test")
        queue = self.broker.nodes["r"]
        is_known: list[bool] = [True]

        class Abroad:
            """A target in another domain."""

            name = "x@b.test"

            def put(self, *args: Any) -> None:
                """Let it pass if the way is known."""
                if not is_known:
                    raise Unresolved(hop)
                queue.put(*args)

        def admit(hop: Any, origin: Any = None) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        self.patch(self.branches, "_admit", admit)
        self.abroad["x@b.test"] = Abroad()
        for verb, code in (("prepare", Xa.OK), ("commit", Xa.OK)):
            transaction = self.open()
            self.post(transaction, Link(self.broker.nodes["q"]), "x@b.test", b"1")
            self.do("end")
            is_known.clear()
            if verb == "prepare":
                done = Deferred.fromCoroutine(self.branches.prepare(OWNER, XID))
            else:
                done = Deferred.fromCoroutine(self.branches.commit(OWNER, XID, one_phase=True))
            self.clock.advance(1000)
            self.assertNoResult(done)
            is_known.append(True)
            waiting.pop().callback(None)
            settle_down(self.clock)
            self.assertIs(self.successResultOf(done), code)
            if verb == "prepare":
                self.do("rollback")
        self.assertEqual(self.broker.nodes["r"].depth, 1)

    def test_waiting_for_the_dns(self) -> None:
        """Postings from before the end that wait for the DNS belong to the branch."""
        transaction = self.open()
        transaction.pending = 1
        self.do("end")
        done = Deferred.fromCoroutine(self.branches.prepare(OWNER, XID))
        settle_down(self.clock)
        self.assertNoResult(done)
        self.post(transaction, Link(self.broker.nodes["q"]), "r", b"late")
        transaction.pending = 0
        assert transaction.when_complete is not None
        transaction.when_complete()
        settle_down(self.clock)
        self.assertIs(self.successResultOf(done), Xa.OK)
        self.do("commit")
        self.assertEqual(self.seen("r"), [b"late"])

    def test_way_has_to_be_asked_for(self) -> None:
        """After a restart nobody knows the way to another domain: it is asked for again."""
        hop = NextHop("b.test", "b.test")
        queue = self.broker.nodes["r"]
        known = [True]

        class Abroad:
            """A target in another domain."""

            name = "x@b.test"

            def put(self, *args: Any) -> None:
                """Let it pass if the way is known."""
                if not known[0]:
                    raise Unresolved(hop)
                queue.put(*args)

        self.abroad["x@b.test"] = Abroad()
        transaction = self.open()
        self.post(transaction, Link(self.broker.nodes["q"]), "x@b.test", b"1")
        self.do("end")
        self.do("prepare")
        known[0] = False
        self.restart()
        self.assertEqual(self.do("commit"), "RETRY")
        self.assertIn("no route to b.test at present", self.words)
        self.assertEqual(self.asked, [hop])
        queue = self.broker.nodes["r"]
        known[0] = True
        self.assertEqual((self.do("commit"), self.seen("r")), ("OK", [b"1"]))


class Publisher:
    """A link that sends to a queue, and has all the credit that it may have."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.granted = 0
        queue.publishers.join(self)
        self.grant()

    def grant(self) -> None:
        """See `IPublisher`."""
        self.granted = self.queue.publishers.allowance(self)
        if not self.granted:
            self.queue.when_space(self.grant)


class CapacityTests(BranchCase):
    """Q-15: places on queues."""

    nodes = (node("q", capacity=2), node("r", capacity=2))

    def test_freed_within(self) -> None:
        """Entries that a branch takes from a full queue make room for its postings there."""
        for verbs in (("one-phase",), ("prepare", "commit")):
            for restarts in (False, True):
                self.setUp()
                self.fill("q", b"1", b"2")
                link = Link(self.broker.nodes["q"])
                transaction = self.open()
                self.assertRaises(AmqpError, self.post, transaction, link, "q", b"3")
                self.retire(transaction, link)
                self.post(transaction, link, "q", b"3", b"4")
                self.do("end")
                for verb in verbs:
                    self.assertEqual(self.do(verb), "OK", self.__dict__.get("words"))
                    if verb == "prepare" and restarts:
                        link.room = 0
                        self.restart()
                    self.assertEqual(self.broker.nodes["q"].space(), 0)
                link.entries.clear()
                link.room = 0
                self.assertEqual(self.broker.nodes["q"].depth, 2)
                self.tearDown()

    def test_one_too_many(self) -> None:
        """Rejected by the prepare, not by the commit."""
        transaction = self.open()
        self.post(transaction, Link(self.broker.nodes["q"]), "r", b"1", b"2", b"3")
        self.do("end")
        self.assertEqual((self.do("prepare"), self.state()), ("RBROLLBACK", "absent"))
        self.assertIn("full", self.words)
        self.assertEqual(self.broker.nodes["r"].space(), 2)

    def test_kept_free(self) -> None:
        """Once prepared, nobody else gets the places, nor after a restart."""
        self.prepared()
        for _ in range(2):
            self.assertEqual(self.broker.nodes["r"].space(), 1)
            self.restart()
        self.fill("r", b"other")
        batch = self.broker.begin()
        self.assertRaises(
            AmqpError, self.broker.nodes["r"].put, message(b"more"), batch, Origin(ANN)
        )
        batch.abandon()
        self.assertEqual(self.do("commit"), "OK")
        self.assertEqual((self.broker.nodes["r"].depth, self.broker.nodes["r"].space()), (2, 0))

    def test_credit(self) -> None:
        """Senders have no credit for places that are promised, and have it back for those that are
        free again."""
        queue = self.broker.nodes["r"]
        link = Publisher(queue)
        self.assertEqual(link.granted, 2)
        transaction = self.open()
        self.post(transaction, Link(self.broker.nodes["q"]), "r", b"1", b"2")
        self.do("end")
        self.assertEqual(self.do("prepare"), "OK")
        settle_down(self.clock)
        self.assertEqual(link.granted, 0)
        self.assertEqual(self.do("rollback"), "OK")
        settle_down(self.clock)
        self.assertEqual(link.granted, 2)

    def test_kept_free_on_a_full_queue(self) -> None:
        """After a restart too, where the branch's own entries still fill the queue."""
        self.fill("q", b"1", b"2")
        link = Link(self.broker.nodes["q"])
        link.entries.pop()
        transaction = self.open()
        self.retire(transaction, link)
        self.post(transaction, link, "q", b"3")
        self.do("end")
        self.do("prepare")
        self.restart()
        queue = self.broker.nodes["q"]
        other = Link(queue)
        settle_down(self.clock)
        batch = self.broker.begin()
        queue.settle(other.entries, Acceptance(), batch, other)
        batch.commit()
        settle_down(self.clock)
        self.assertEqual((queue.depth, queue.space()), (1, 0))
        self.assertEqual((self.do("commit"), queue.depth, queue.space()), ("OK", 1, 1))

    def test_given_back(self) -> None:
        """A roll-back gives them back, and tells whoever waits."""
        self.prepared()
        self.fill("r", b"other")

        class Waiter:
            """A link without credit."""

            told = 0

            def tell(self) -> None:
                """Note it."""
                self.told += 1

        waiter = Waiter()
        self.broker.nodes["r"].when_space(waiter.tell)
        self.assertEqual((self.do("rollback"), waiter.told), ("OK", 1))
        self.assertEqual(self.broker.nodes["r"].space(), 1)

    def test_kept_while_it_fails(self) -> None:
        """A commit that fails loses no place."""
        self.prepared()
        self.store.is_failing = True
        self.assertEqual(self.do("commit"), "RETRY")
        self.assertEqual(self.broker.nodes["r"].space(), 1)


class HeuristicTests(BranchCase):
    """C-08: an operator resolves a branch, and its manager is told."""

    def test_committed(self) -> None:
        """Over restarts before and after; until it is forgotten."""
        self.prepared()
        self.restart()
        self.decide(True)
        self.assertEqual((self.counts(), self.state()), ((0, 0, 1), "heuristically committed"))
        self.restart()
        self.assertEqual(self.branches.recover(OWNER), [XID])
        self.assertEqual((self.do("rollback"), self.do("commit")), ("HEURCOM", "HEURCOM"))
        self.assertEqual((self.do("forget"), self.do("forget")), ("OK", "NOTA"))
        self.assertEqual((self.counts(), self.notes()), ((0, 0, 1), 0))

    def test_rolled_back(self) -> None:
        """The other way."""
        link = self.prepared()
        self.decide(False)
        self.assertEqual((self.counts(), self.notes()), ((1, 0, 0), 1))
        self.assertEqual(sorted(link.ended), ["restored", "withdrawn"])
        self.restart()
        self.assertEqual((self.do("commit"), self.do("forget")), ("HEURRB", "OK"))

    def test_forgotten_by_an_operator(self) -> None:
        """For a manager that is no more."""
        self.prepared()
        self.decide(True)
        key = f"{OWNER}/{XID}"
        done = Deferred.fromCoroutine(self.branches.forget_named(key))
        settle_down(self.clock)
        self.successResultOf(done)
        self.assertEqual((self.state(), self.notes()), ("absent", 0))
        again = Deferred.fromCoroutine(self.branches.forget_named(key))
        self.assertIs(self.failureResultOf(again, XaError).value.code, Xa.NOTA)

    def test_not_prepared(self) -> None:
        """Only its manager decides about an unprepared branch."""
        self.work()
        done = Deferred.fromCoroutine(self.branches.decide(f"{OWNER}/{XID}", commits=True))
        self.assertIs(self.failureResultOf(done, XaError).value.code, Xa.PROTO)


class BoundTests(BranchCase):
    """Numbers, octets and time."""

    def test_number(self) -> None:
        """There are no more branches than configured; what has timed out goes first."""
        xids = [Xid(1, b"%d" % number, b"") for number in range(7)]
        for xid in xids[:5]:
            self.open(xid)
        self.assertEqual(self.do("start", xids[5]), "RMERR")
        self.clock.advance(60)
        self.assertEqual({self.state(xid) for xid in xids[:5]}, {"timed out"})
        self.assertEqual(self.do("start", xids[5]), "OK")
        self.assertEqual((self.state(xids[0]), len(self.branches)), ("absent", 5))

    def test_number_of_others(self) -> None:
        """Places that one owner may not have are there for another, and its own timed-out go."""
        xids = [Xid(1, b"%d" % number, b"") for number in range(7)]
        for xid in xids[:5]:
            self.open(xid)
        with self.assertRaisesRegex(XaError, "5 of the 9 places"):
            self.branches.start(OWNER, xids[5])
        for xid in xids[:2]:
            self.branches.start("user:bob", xid)
        with self.assertRaisesRegex(XaError, "2 of the 9 places"):
            self.branches.start("user:bob", xids[2])

    def test_octets_of_others(self) -> None:
        """The branches of one owner leave room for those of another."""
        book = self.branches._book
        book._limits = replace(book.limits, connection_bytes=100_000, total_bytes=10_000_000)
        link = Link(self.broker.nodes["q"])
        self.post(self.open(), link, "r", b"x" * 49_000)
        other = self.open(Xid(1, b"other", b""))
        self.assertRaises(AmqpError, self.post, other, link, "r", b"x" * 1_000)
        bob = self.branches.working(
            self.branches.start("user:bob", Xid(1, b"bob", b"")), Principal("user", "bob")
        )
        assert bob is not None
        self.post(bob, link, "r", b"x" * 24_000)
        self.assertRaises(AmqpError, self.post, bob, link, "r", b"x" * 2_000)

    def test_octets(self) -> None:
        """Messages of all branches count; resolved, the room is there again."""
        transaction = self.open()
        link = Link(self.broker.nodes["q"])
        self.post(transaction, link, "r", b"x" * 90_000)
        self.assertRaises(AmqpError, self.post, transaction, link, "r", b"x" * 20_000)
        self.do("end")
        self.do("prepare")
        other = self.open(Xid(1, b"other", b""))
        self.assertRaises(AmqpError, self.post, other, link, "r", b"x" * 20_000)
        self.do("rollback")
        self.post(other, link, "r", b"x" * 20_000)

    def test_time(self) -> None:
        """Without work a branch is rolled back; its manager is told when it asks."""
        link = self.work()
        self.clock.advance(59)
        self.assertEqual((self.do("join"), self.state()), ("OK", "active"))
        self.clock.advance(59)
        self.assertEqual(self.state(), "active")
        self.clock.advance(1)
        self.assertEqual(self.state(), "timed out")
        self.assertEqual((self.counts(), self.terms.staged_bytes), ((1, 0, 0), 0))
        self.assertEqual(sorted(link.ended), ["restored", "withdrawn"])
        self.assertEqual((self.do("end"), self.do("rollback")), ("RBTIMEOUT", "RBTIMEOUT"))
        self.assertEqual(self.do("rollback"), "NOTA")

    def test_own_time(self) -> None:
        """A manager may ask for another time."""
        self.branches.set_timeout(OWNER, 5)
        self.open()
        self.clock.advance(5)
        self.assertEqual(self.state(), "timed out")
        self.branches.set_timeout(OWNER, 0)
        self.assertEqual(self.branches.timeout_of(OWNER), 60)

    def test_prepared_has_no_time(self) -> None:
        """XA knows none; the log tells of it again and again."""
        self.prepared()
        warnings: list[Any] = []
        self.patch(
            self.branches._watch, "_log", SimpleNamespace(warn=lambda *a, **b: warnings.append(b))
        )
        self.clock.advance(600)
        self.clock.advance(600)
        self.assertEqual(self.state(), "prepared")
        self.assertEqual([each["count"] for each in warnings], [1, 1])
        self.assertEqual(warnings[0]["key"], f"{OWNER}/{XID}")
        self.assertEqual(self.branches.rows()[0]["age-ms"], 1_200_000)
        self.do("commit")
        self.clock.advance(6000)
        self.assertEqual((len(warnings), self.clock.getDelayedCalls()), (2, []))

    def test_stop(self) -> None:
        """The daemon stops: what is not prepared ends, nothing is left running."""
        self.open(Xid(1, b"other", b""))
        self.prepared()
        self.branches.stop()
        self.broker.stop()
        self.assertEqual((len(self.branches), self.clock.getDelayedCalls()), (1, []))
