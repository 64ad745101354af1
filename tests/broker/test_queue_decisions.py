# SPDX-License-Identifier: Apache-2.0
"""The decisions of a queue against plain lists: no reactor, no store, no batch."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from amqproute.broker.dispatch import deal
from amqproute.broker.enqueue import admit
from amqproute.broker.expiry import earliest, next_expiry, take_expired
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue_state import QueueState
from amqproute.broker.settlement import (
    Bury,
    Quarantine,
    Remove,
    Return,
    Rewrite,
    decide,
    make_available,
)
from amqproute.entry import Entry
from amqproute.errors import ResourceLimitExceeded
from amqproute.interfaces import IConsumer
from amqproute.outcomes import UNREADABLE, Acceptance, Modification, Outcome, Rejection, Release
from amqproute.values import DeadLetterReason
from tests.support.fakes import EPOCH_MS, message

CAPACITY = 12
MOST_DELIVERIES = 2
LIFE_MS = 1000
OUTCOMES: tuple[Outcome, ...] = (
    Acceptance(),
    Rejection(),
    Release(),
    Modification(delivery_failed=True),
    Modification(undeliverable_here=True),
    UNREADABLE,
    None,
)


@implementer(IConsumer)
class Consumer:
    """A consumer that is given entries by the machine."""

    takes_ahead = True

    def __init__(self) -> None:
        self.room = 0
        self.held: list[Entry] = []

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return self.room

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        self.room -= len(entries)
        self.held.extend(entries)

    def holds(self) -> Sequence[Entry]:
        """See `IConsumer.holds`."""
        return self.held

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`."""


class DecisionMachine(RuleBasedStateMachine):
    """Messages come, are dealt out, settled and expire; each list knows where they have to be."""

    def __init__(self) -> None:
        super().__init__()
        self.state = QueueState("q")
        self.state.limits = QueueLimits(capacity=CAPACITY, max_deliveries=MOST_DELIVERIES)
        self.consumers = [Consumer(), Consumer()]
        for consumer in self.consumers:
            self.state.consumers.add(consumer, None)
        self.now_ms = EPOCH_MS
        self.last_id = 0
        self.waiting: list[Entry] = []
        self.ended: list[Entry] = []

    @rule(mortal=st.booleans(), priority=st.sampled_from([4, 4, 4, 9]))
    def arrive(self, mortal: bool, priority: int) -> None:
        """A message comes; it is refused where there is no place for it, and only there."""
        taken = len(self.waiting) + sum([len(each.held) for each in self.consumers])
        came = message(b"x", ttl=LIFE_MS if mortal else None, priority=priority)
        try:
            line, pages, is_durable, expires_ms = admit(self.state, came, self.now_ms)
        except ResourceLimitExceeded:
            assert taken == CAPACITY
            return
        assert taken < CAPACITY
        assert is_durable
        assert not pages
        assert expires_ms == (self.now_ms + LIFE_MS if mortal else 0)
        assert line.level == priority
        self.last_id += 1
        entry = Entry(self.last_id, came, is_durable, True, self.now_ms, expires_ms)
        entry.line = line
        line.put(entry, len(came.encoded), pages)
        line.arrived(entry, len(came.encoded))
        self.waiting.append(entry)
        self.waiting.sort(key=lambda each: (-each.line.level, each.id))

    @rule(which=st.integers(0, 1), room=st.integers(1, 4))
    def grant(self, which: int, room: int) -> None:
        """A consumer has capacity for more: everybody gets their share, in order."""
        self.consumers[which].room += room
        rooms = [each.room for each in self.consumers]
        dealt, expired, _ = deal(self.state, self.now_ms)
        for entry in expired:
            assert 0 < entry.expires_ms <= self.now_ms
            self.end(entry)
        given = []
        for consumer, entries in dealt:
            assert isinstance(consumer, Consumer)
            assert 0 < len(entries) <= consumer.room
            assert all(not entry.barred or consumer not in entry.barred for entry in entries)
            assert all(not 0 < entry.expires_ms <= self.now_ms for entry in entries)
            consumer.deliver(entries)
            given += entries
        assert len(given) == len(set(given))
        for entry in given:
            self.waiting.remove(entry)
        for before, consumer in zip(rooms, self.consumers, strict=True):
            assert consumer.room <= before
            if consumer.room:  # whoever still has capacity may have nothing of what is left
                assert all(entry.barred and consumer in entry.barred for entry in self.waiting)
        unbarred = [entry for entry in given if not entry.barred]
        left = [entry for entry in self.waiting if not entry.barred]
        if unbarred and left:
            served = max((-entry.line.level, entry.id) for entry in unbarred)
            assert served < min((-entry.line.level, entry.id) for entry in left)

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        """A consumer settles some of what it holds: each entry has one end, or goes back."""
        consumer = data.draw(st.sampled_from([each for each in self.consumers if each.held]))
        entries = data.draw(st.lists(st.sampled_from(consumer.held), min_size=1, unique=True))
        failed = isinstance(outcome, Modification) and outcome.delivery_failed
        counts = {entry: entry.delivery_count + failed for entry in entries}
        decided: list[Entry] = []
        rewritten: list[Entry] = []
        for decision in decide(self.state, entries, outcome, consumer):
            match decision:
                case Rewrite(entry, encoded):
                    assert failed
                    assert encoded is None
                    rewritten.append(entry)
                    continue
                case Remove(those):
                    assert isinstance(outcome, Acceptance)
                case Quarantine(those):
                    assert outcome is UNREADABLE
                case Bury(those, DeadLetterReason.MAX_DELIVERIES, None):
                    assert failed
                    assert all(counts[each] == MOST_DELIVERIES for each in those)
                case Bury(those, reason):
                    assert reason is DeadLetterReason.REJECTED
                    assert isinstance(outcome, Rejection)
                case Return(those):
                    assert all(counts[each] < MOST_DELIVERIES for each in those)
                    make_available(self.state, those)
                case _:
                    raise AssertionError(decision)
            decided += those
            for entry in those:
                if isinstance(decision, Return):
                    self.waiting.append(entry)
                else:
                    self.end(entry)
        self.state.acquired -= len(entries)
        assert sorted(decided) == sorted(entries)
        assert sorted(rewritten) == (sorted(entries) if failed else [])
        assert {entry: entry.delivery_count for entry in entries} == counts
        consumer.held = [entry for entry in consumer.held if entry not in entries]
        self.waiting.sort(key=lambda each: (-each.line.level, each.id))

    @rule(ms=st.sampled_from([1, LIFE_MS // 2, LIFE_MS]))
    def age(self, ms: int) -> None:
        """Time passes, and what has expired meanwhile is removed."""
        self.now_ms += ms
        for entry in take_expired(self.state, self.now_ms):
            assert 0 < entry.expires_ms <= self.now_ms
            self.end(entry)
        assert earliest(self.waiting) == next_expiry(self.state)
        assert not 0 < next_expiry(self.state) <= self.now_ms

    def end(self, entry: Entry) -> None:
        """An entry leaves for good."""
        assert entry not in self.ended
        self.ended.append(entry)
        if entry in self.waiting:
            self.waiting.remove(entry)

    @invariant()
    def agrees(self) -> None:
        """The state counts what the lists hold, in the order in which it will be delivered."""
        state = self.state
        held = sum([len(each.held) for each in self.consumers])
        assert list(state.levels.entries()) == self.waiting
        assert (state.levels.available, state.acquired) == (len(self.waiting), held)
        assert state.depth == state.taken == len(self.waiting) + held
        assert state.space() == CAPACITY - state.depth
        assert state.is_full == (state.depth == CAPACITY)
        assert state.levels.is_empty == (not self.waiting)
        assert state.levels.has_resident == bool(self.waiting)
        size = sum([len(each.message.encoded) for each in self.waiting])
        assert state.levels.resident_bytes == size


class DecisionModelTests(SynchronousTestCase):
    """At random."""

    def test_against_lists(self) -> None:
        """Every entry waits, is held or has ended, and the state agrees at every step."""
        run_state_machine_as_test(
            DecisionMachine, settings=settings(max_examples=60, stateful_step_count=40)
        )
