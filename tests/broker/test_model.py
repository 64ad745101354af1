# SPDX-License-Identifier: Apache-2.0
"""A queue against a plain list, at random: no loss, no duplicates, order kept."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker import entry_list as line_module
from amqproute.broker.local_transaction import TransactionStage, TransactionTerms
from amqproute.broker.queue import Queue
from amqproute.broker.transaction_registry import TransactionRegistry
from amqproute.outcomes import Acceptance, Modification, Rejection, Release
from amqproute.wire.amqp10.types import Symbol
from tests.support.fakes import ORIGIN, KeptStore, Taker, body_of, make_broker, message, node, put
from tests.support.fakes import settle_down as turn

KEPT = 3
OUTCOMES: dict[str, Any] = {
    "accepted": Acceptance(),
    "rejected": Rejection(),
    "released": Release(),
    "failed": Modification(delivery_failed=True),
    "barred": Modification(undeliverable_here=True),
    "annotated": Modification(annotations={Symbol("x-opt-seen"): "x" * 99}),
}
ENDS = ("accepted", "rejected")
"""Outcomes after which an entry is not on the queue any more."""
GRAIN = 0.06
"""Expiry timers may be this late; the model therefore only ever looks later."""


def nothing_pending(queue: Queue) -> None:
    """Nothing is on its way to the store, and none of it is counted."""
    assert not queue.state.early
    for line in queue.state.levels.lines:
        assert (line.pending, line._pending_bytes, line._pending_paged) == (0, 0, 0), line


class Item:
    """A message as the model knows it: where it is stands in the machine's lists."""

    def __init__(self, number: int, durable: bool, dies: float | None) -> None:
        self.number = number
        self.durable = durable
        self.dies = dies
        self.count = 0


class QueueMachine(RuleBasedStateMachine):
    """Publishers, two consumers, time and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.numbers = 0
        self.line: list[Item] = []
        self.hands: list[dict[int, Item]] = [{}, {}]
        self.boot()

    def boot(self) -> None:
        """Build a broker over what the store has."""
        self.broker = make_broker(self.clock, self.store, node("q", resident_messages=KEPT))
        self.queue = self.broker.nodes["q"]
        self.takers = [Taker(self.queue), Taker(self.queue)]
        self.told = [0, 0]

    @rule(
        kinds=st.lists(
            st.tuples(st.booleans(), st.sampled_from([None, None, 1, 30])), min_size=1, max_size=6
        ),
        fails=st.sampled_from([False, False, False, True]),
        ahead=st.booleans(),
        early=st.sampled_from([None, "accepted", "released", "failed", "annotated"]),
    )
    def publish(
        self, kinds: list[tuple[bool, int | None]], fails: bool, ahead: bool, early: str | None
    ) -> None:
        """Put a batch of messages; the store may refuse it, and they may be ahead of it."""
        made = []
        for durable, life in kinds:
            self.numbers += 1
            dies = None if life is None else self.clock.seconds() + life
            made.append(Item(self.numbers, durable, dies))
        # Not what settles them meanwhile: that fails alone, or not at all.
        self.store.is_full = fails
        self.store.is_failing = fails and not early
        done = put(
            self.broker,
            self.queue,
            *(
                message(
                    b"%d" % item.number,
                    durable=item.durable,
                    ttl=None if life is None else life * 1000,
                )
                for item, (_, life) in zip(made, kinds, strict=True)
            ),
            ahead=ahead,
        )
        failed: list[Any] = []
        done.addErrback(failed.append)
        dealt = self.came_ahead(made)
        assert ahead or not dealt
        if early and dealt:
            self.settle_early(dealt, early)
            if early == "accepted":
                made = [item for item in made if item.number not in dealt]
            elif early == "failed":
                for item in made:
                    item.count += item.number in dealt
        # Settlements of expired entries, which come later, must not fail with it.
        self.clock.advance(0)
        self.store.is_failing = self.store.is_full = False
        if failed:  # what nothing has to be written of does not always fail
            # What has been handed out lives on, but not through a restart.
            made = [item for item in made if item.number in dealt]
            for item in made:
                item.durable = False
        self.line.extend(made)

    def came_ahead(self, made: list[Item]) -> set[int]:
        """Return the numbers of those that are in hands before their commit."""
        numbers = {item.number for item in made}
        held = [int(body_of(entry)) for taker in self.takers for entry in taker.held]
        return numbers & set(held)

    def settle_early(self, numbers: set[int], outcome: str) -> None:
        """Have consumers settle what is not committed yet."""
        held = [
            (taker, [entry for entry in taker.held if int(body_of(entry)) in numbers])
            for taker in self.takers
        ]
        for taker, entries in held:
            if entries:
                taker.settle(self.broker, entries, OUTCOMES[outcome]).addErrback(lambda _: None)

    @rule(which=st.integers(0, 1), room=st.integers(1, 8))
    def grant(self, which: int, room: int) -> None:
        """Give a consumer room."""
        self.takers[which].take(room)

    @precondition(lambda self: any(self.hands))
    @rule(data=st.data(), outcome=st.sampled_from(["accepted", "released", "failed", "deferred"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        """Settle some of what a consumer holds."""
        which = data.draw(st.sampled_from([each for each in (0, 1) if self.hands[each]]))
        numbers = data.draw(
            st.lists(st.sampled_from(sorted(self.hands[which])), min_size=1, unique=True)
        )
        taker = self.takers[which]
        held = {int(body_of(entry)): entry for entry in taker.held}
        entries = [held[number] for number in numbers]
        items = [self.hands[which].pop(number) for number in numbers]
        if outcome != "accepted":
            self.line.extend(items)
            self.line.sort(key=lambda item: item.number)
        if outcome == "deferred":
            for entry in entries:
                taker.held.remove(entry)
            self.queue.defer(entries, 0)
            return
        if outcome == "failed":
            for item in items:
                item.count += 1
        states = {
            "accepted": Acceptance(),
            "released": Release(),
            "failed": Modification(delivery_failed=True),
        }
        taker.settle(self.broker, entries, states[outcome])

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.2, 40.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        """Lose the process: what was not durable, and all hands."""
        turn(self.clock)
        self.broker.stop()
        for hand in self.hands:
            self.line.extend(hand.values())
            hand.clear()
        self.line = sorted(
            (item for item in self.line if item.durable), key=lambda item: item.number
        )
        self.boot()

    @invariant()
    def agrees(self) -> None:
        """Delivered entries are the head of the model's line, with the right contents."""
        turn(self.clock)
        now = self.clock.seconds()
        came: list[tuple[int, Any, int]] = []
        for which, taker in enumerate(self.takers):
            new = [entry for entry in taker.held if int(body_of(entry)) not in self.hands[which]]
            came.extend((int(body_of(entry)), entry, which) for entry in new)
        came.sort(key=lambda each: each[0])
        alive = [item for item in self.line if item.dies is None or item.dies > now]
        doomed = {item.number for item in self.line} - {item.number for item in alive}
        # An entry may have been handed out before its time came in the same step.
        known = {item.number: item for item in self.line}
        fresh = [number for number, _, _ in came if number not in doomed]
        assert fresh == [item.number for item in alive[: len(fresh)]], (fresh, alive)
        for number, entry, which in came:
            item = known.pop(number)
            assert entry.delivery_count == item.count
            assert entry.durable == item.durable
            self.hands[which][number] = item
            self.line.remove(item)
        alive = [item for item in alive if item.number in known]
        if any(taker.room for taker in self.takers):
            assert not alive, f"{alive} wait although there is room"
        self.line = [item for item in self.line if item in alive or item.number in doomed]
        assert self.queue.acquired == sum(map(len, self.hands))
        assert self.queue.depth >= len(alive) + self.queue.acquired
        assert self.queue.resident_bytes >= 0
        assert self.queue.paged_bytes >= 0
        nothing_pending(self.queue)

    def teardown(self) -> None:
        """Everything that lives comes out, in order, and then nothing is left."""
        self.clock.advance(0)
        self.agrees()
        for which, taker in enumerate(self.takers):
            taker.settle(self.broker, list(taker.held), Acceptance())
            self.hands[which].clear()
        self.takers[0].take(10_000)
        self.agrees()
        self.takers[0].settle(self.broker, list(self.takers[0].held), Acceptance())
        self.hands[0].clear()
        for _ in range(40):
            self.clock.advance(5)
            turn(self.clock, 10)
        assert self.queue.depth == 0, self.queue
        assert (self.queue.resident_bytes, self.queue.paged_bytes) == (0, 0)
        assert self.broker.budget.used_bytes == 0
        assert self.store.rows("q") == []
        self.broker.stop()


class Link:
    """A link as the second model knows it.

    Attributes:
        taker: the real consumer.
        residue: it selects numbers that leave this when divided by 3; None for all.
        copies: it browses.
        hands: what it holds, or has been shown and not settled.
        shown: browsers: what it has been shown and has not released.
        barred: consumers: what it has said is undeliverable here.
    """

    def __init__(self, queue: Any, residue: int | None, copies: bool) -> None:
        self.residue = residue
        self.copies = copies
        selects = None if residue is None else self._selects
        self.taker = Taker(queue, selects=selects, copies=copies)
        self.hands: dict[int, Any] = {}
        self.shown: set[int] = set()
        self.barred: set[int] = set()

    def _selects(self, entry: Any) -> bool:
        return self.wants(int(body_of(entry)))

    def wants(self, number: int) -> bool:
        """Tell whether it selects a message."""
        return self.residue is None or number % 3 == self.residue

    # -- as a transaction sees it ----------------------------------------------------------------

    @property
    def queue(self) -> Any:
        """The queue of its entries."""
        return self.taker.queue

    def settle_within(self, entries: Any, outcome: Any, batch: Any) -> None:
        """Outcomes act."""
        self.taker.queue.settle(entries, outcome, batch, self.taker)

    def retake(self, entries: Any) -> None:
        """They could not be made durable."""
        self.taker.queue.retake(entries)

    def retired(self, retirements: Any) -> None:
        """Committed: it does not hold these any more."""
        for each in retirements:
            self.taker.held.remove(each.entry)
            del self.hands[int(body_of(each.entry))]

    def restored(self, retirements: Any) -> None:
        """Rolled back: it holds what it held."""

    def concluded(self, deliveries: Any, is_committed: bool) -> None:
        """A publisher is told."""


class SharedMachine(RuleBasedStateMachine):
    """Priorities, lives, filters, browsers, transactions: who has room has what is for it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.numbers = 0
        self.there: dict[int, tuple[int, float | None]] = {}
        self.deferred: dict[int, float] = {}
        self.dead: set[int] = set()
        # What was handed out and then not written lives in memory only.
        self.fleeting: set[int] = set()
        self.boot()

    def boot(self) -> None:
        """Build a broker over what the store has."""
        self.broker = make_broker(
            self.clock, self.store, node("q", "dead", resident_messages=KEPT), node("dead")
        )
        self.queue = self.broker.nodes["q"]
        self.links: list[Link] = []
        self.deferred.clear()
        ids = count(1)
        terms = TransactionTerms(self.broker.begin, self.clock, lambda: b"%d" % next(ids))
        self.transactions = TransactionRegistry(terms, lambda transaction: None)

    @rule(
        kinds=st.lists(
            st.tuples(st.sampled_from([1, 4, 4, 9]), st.sampled_from([None, None, 1, 30])),
            min_size=1,
            max_size=6,
        ),
        ahead=st.booleans(),
        fails=st.sampled_from([False, False, False, True]),
        early=st.sampled_from([None, None, "detached", "comes", *sorted(OUTCOMES)]),
    )
    def publish(
        self, kinds: list[tuple[int, int | None]], ahead: bool, fails: bool, early: str | None
    ) -> None:
        """Put a batch of durable messages; a lot may happen before it is committed, or fails."""
        first = self.numbers + 1
        made = [self.made(*each) for each in kinds]
        self.store.is_full = fails
        done = put(self.broker, self.queue, *made, ahead=ahead)
        done.addErrback(lambda _: None)
        dealt = [
            (link, [each for each in link.taker.held if int(body_of(each)) >= first])
            for link in self.links
        ]
        numbers = {int(body_of(each)) for _, entries in dealt for each in entries}
        assert ahead or not numbers
        for link, entries in dealt:
            if entries and early is not None and not (fails and early == "rejected"):
                self.act_early(link, entries, early)
        self.clock.advance(0)
        self.store.is_full = False
        if fails:
            for number in range(first, self.numbers + 1):
                if number not in numbers:
                    del self.there[number]
            self.fleeting |= numbers & set(self.there)

    def act_early(self, link: Link, entries: list[Any], what: str) -> None:
        """Something happens to what a link has before it is committed."""
        if what == "detached":
            self.let_go(link)
        elif what == "comes":
            self.links.append(Link(self.queue, 0, len(self.links) % 2 == 0))
            self.links[-1].taker.take(1)
        else:
            numbers = [int(body_of(entry)) for entry in entries]
            self.ended(link, numbers, what)
            link.taker.settle(self.broker, entries, OUTCOMES[what])

    def made(self, priority: int, life: int | None) -> Any:
        """Make a message, and expect it to be there."""
        self.numbers += 1
        dies = None if life is None else self.clock.seconds() + life
        self.there[self.numbers] = (priority, dies)
        ttl = None if life is None else life * 1000
        return message(b"%d" % self.numbers, priority=priority, ttl=ttl)

    @rule(
        kinds=st.lists(st.sampled_from([1, 4, 9]), max_size=3),
        outcome=st.sampled_from(["accepted", "rejected", "released", "failed"]),
        end=st.sampled_from(["commits", "commits", "rolls back", "fails"]),
        data=st.data(),
    )
    def transact(self, kinds: list[int], outcome: str, end: str, data: st.DataObject) -> None:
        """Messages and outcomes in a transaction, which is committed or not."""
        transaction = self.transactions.declare(self)
        before = dict(self.there)
        for priority in kinds:
            made = self.made(priority, None)
            poster = Link.__new__(Link)
            transaction.post(poster, SimpleNamespace(tag=b""), self.queue, made, ORIGIN)
        for link in self.links:
            if link.hands and not link.copies:
                for number in data.draw(st.sets(st.sampled_from(sorted(link.hands)), max_size=3)):
                    transaction.retire(link, object(), link.hands[number], OUTCOMES[outcome], False)
        touched = [int(body_of(each.entry)) for each in transaction.retirements]
        if end == "rolls back":
            transaction.roll_back()
        else:
            self.store.is_failing = end == "fails"
            transaction.commit().addErrback(lambda _: None)
            self.clock.advance(0)
            self.store.is_failing = False
            turn(self.clock)
        transaction.conclude()
        if end != "commits" and transaction.stage is TransactionStage.ROLLED_BACK:
            self.there = before
        elif outcome in ENDS:
            for number in touched:
                del self.there[number]
            if outcome == "rejected":
                self.dead.update(touched)

    @precondition(lambda self: any(link.hands for link in self.links if not link.copies))
    @rule(data=st.data(), seconds=st.sampled_from([0.5, 5.0]))
    def defer(self, data: st.DataObject, seconds: float) -> None:
        """Some of what a consumer holds has to wait."""
        link = data.draw(
            st.sampled_from([each for each in self.links if each.hands and not each.copies])
        )
        number = data.draw(st.sampled_from(sorted(link.hands)))
        entry = link.hands.pop(number)
        link.taker.held.remove(entry)
        self.deferred[number] = self.clock.seconds() + seconds
        self.queue.defer([entry], seconds)

    @precondition(lambda self: len(self.links) < 5)
    @rule(residue=st.sampled_from([None, 0, 1]), copies=st.booleans(), room=st.integers(0, 5))
    def attach(self, residue: int | None, copies: bool, room: int) -> None:
        """A link comes."""
        self.links.append(Link(self.queue, residue, copies))
        self.links[-1].taker.take(room)

    @precondition(lambda self: self.links)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        """A link goes, and what it held goes back."""
        self.let_go(data.draw(st.sampled_from(self.links)))

    def let_go(self, link: Link) -> None:
        """Take a link off the queue."""
        self.links.remove(link)
        self.queue.detach(link.taker)
        if not link.copies:
            link.taker.settle(self.broker, list(link.taker.held), Release())

    @precondition(lambda self: self.links)
    @rule(data=st.data(), room=st.integers(1, 8))
    def grant(self, data: st.DataObject, room: int) -> None:
        """Give a link room."""
        data.draw(st.sampled_from(self.links)).taker.take(room)

    @precondition(lambda self: any(link.hands for link in self.links))
    @rule(data=st.data(), outcome=st.sampled_from(sorted(OUTCOMES)))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        """Settle some of what a link holds."""
        link = data.draw(st.sampled_from([link for link in self.links if link.hands]))
        numbers = data.draw(
            st.lists(st.sampled_from(sorted(link.hands)), min_size=1, max_size=4, unique=True)
        )
        entries = [link.hands.pop(number) for number in numbers]
        if link.copies:
            if outcome in ("released", "failed", "annotated"):
                link.shown.difference_update(numbers)
        else:
            self.ended(link, numbers, outcome)
        link.taker.settle(self.broker, entries, OUTCOMES[outcome])

    def ended(self, link: Link, numbers: list[int], outcome: str) -> None:
        """Take note of what a consumer does to messages."""
        if outcome in ENDS:
            for number in numbers:
                del self.there[number]
            if outcome == "rejected":
                self.dead.update(numbers)
        elif outcome == "barred":
            link.barred.update(numbers)

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.2, 40.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        """Lose the process, with all links."""
        turn(self.clock)
        self.broker.stop()
        for number in self.fleeting:
            self.there.pop(number, None)
        self.fleeting.clear()
        self.boot()

    @invariant()
    def agrees(self) -> None:
        """Each message is with one consumer; nothing that a link with room wants is left."""
        turn(self.clock)
        for link in self.links:
            self.look_at(link)
        held = [number for link in self.links if not link.copies for number in link.hands]
        assert len(held) == len(set(held)), held
        assert self.queue.acquired == len(held)
        now = self.clock.seconds()
        for number, (_, dies) in list(self.there.items()):
            if dies is not None and dies <= now and number not in held:
                del self.there[number]  # it is gone, or will be without having been seen
        self.deferred = {one: due for one, due in self.deferred.items() if due > now}
        waiting = {one for one in self.there if one not in held and one not in self.deferred}
        assert self.queue.depth >= len(self.there)
        for link in self.links:
            if link.taker.room:
                left = {number for number in waiting if link.wants(number)}
                left -= link.shown | link.barred
                assert not left, (left, link.copies, link.residue)
        nothing_pending(self.queue)

    def look_at(self, link: Link) -> None:
        """Take note of what has come to a link since the last step."""
        known = set(map(id, link.hands.values()))
        came = [(int(body_of(entry)), entry) for entry in link.taker.held if id(entry) not in known]
        last: dict[int, int] = {}
        for number, entry in came:
            assert number in self.there, f"{number} came after its end"
            assert link.wants(number), number
            assert number not in link.shown, f"{number} was shown twice"
            assert number not in link.barred, f"{number} came where it is undeliverable"
            if not entry.attempted:  # what was given back may come out of order
                priority = self.there[number][0]
                assert last.get(priority, 0) < number, f"{number} came after {last}"
                last[priority] = number
            link.hands[number] = entry
            if link.copies:
                link.shown.add(number)

    def teardown(self) -> None:
        """Everything that lives comes out, and then nothing is left."""
        self.agrees()
        for link in list(self.links):
            self.queue.detach(link.taker)
            if not link.copies:
                link.taker.settle(self.broker, list(link.taker.held), Release())
        self.queue.undefer(everything=True)
        self.links = [Link(self.queue, None, False)]
        self.links[0].taker.take(10_000)
        self.agrees()
        taker = self.links[0].taker
        assert {int(body_of(entry)) for entry in taker.held} >= set(self.there)
        taker.settle(self.broker, list(taker.held), Acceptance())
        for _ in range(40):
            self.clock.advance(5)
            turn(self.clock, 10)
        assert self.queue.depth == 0, self.queue
        self.bury()
        assert self.broker.budget.used_bytes == 0
        for line in self.queue.state.levels.lines:
            assert self.store.rows(line.key) == []
        self.broker.stop()

    def bury(self) -> None:
        """Rejected messages are on the node for dead letters, beside expired ones."""
        dead = Taker(self.broker.nodes["dead"], 10_000)
        dead.queue.dispatch()
        turn(self.clock)
        assert set(map(int, dead.seen)) >= self.dead, (dead.seen, self.dead)
        assert len(dead.seen) == len(set(dead.seen))
        dead.settle(self.broker, list(dead.held), Acceptance())
        turn(self.clock)


class QueueModelTests(SynchronousTestCase):
    """The machines as tests."""

    def test_shared(self) -> None:
        """Q-03 to Q-06, Q-26 to Q-35, L-23 to L-29, D-05: whatever links come and go."""
        self.patch(line_module, "LOAD_MESSAGES", 2)
        run_state_machine_as_test(
            SharedMachine,
            settings=settings(
                max_examples=settings().max_examples, stateful_step_count=30, deadline=None
            ),
        )

    def test_against_a_list(self) -> None:
        """The queue and the list always agree."""
        self.patch(line_module, "LOAD_MESSAGES", 2)
        run_state_machine_as_test(
            QueueMachine,
            settings=settings(
                max_examples=settings().max_examples, stateful_step_count=50, deadline=None
            ),
        )
