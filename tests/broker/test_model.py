# SPDX-License-Identifier: Apache-2.0
"""A queue against a plain list, at random: nothing lost, nothing twice, order held."""

from __future__ import annotations

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

from amqproute.broker import line as line_module
from amqproute.wire.amqp10 import spec
from tests.support.fakes import KeptStore, Taker, body_of, make_broker, message, node, put
from tests.support.fakes import settle_down as turn

KEPT = 3
GRAIN = 0.06
"""Expiry timers may be this late; the model therefore only ever looks later."""


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
    )
    def publish(self, kinds: list[tuple[bool, int | None]], fails: bool) -> None:
        """Put a batch of messages; the store may refuse it."""
        made = []
        for durable, life in kinds:
            self.numbers += 1
            dies = None if life is None else self.clock.seconds() + life
            made.append(Item(self.numbers, durable, dies))
        self.store.is_failing = fails
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
        )
        done.addErrback(lambda _: None)
        # Settlements of expired entries, which come later, must not fail with it.
        self.clock.advance(0)
        self.store.is_failing = False
        if not fails:
            self.line.extend(made)

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
            "accepted": spec.Accepted(),
            "released": spec.Released(),
            "failed": spec.Modified(delivery_failed=True),
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
        """What came to hands is the head of the model's line; it has what it should have."""
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

    def teardown(self) -> None:
        """Everything that lives comes out, in order, and then nothing is left."""
        self.clock.advance(0)
        self.agrees()
        for which, taker in enumerate(self.takers):
            taker.settle(self.broker, list(taker.held), spec.Accepted())
            self.hands[which].clear()
        self.takers[0].take(10_000)
        self.agrees()
        self.takers[0].settle(self.broker, list(self.takers[0].held), spec.Accepted())
        self.hands[0].clear()
        for _ in range(40):
            self.clock.advance(5)
            turn(self.clock, 10)
        assert self.queue.depth == 0, self.queue
        assert (self.queue.resident_bytes, self.queue.paged_bytes) == (0, 0)
        assert self.broker.budget.used_bytes == 0
        assert self.store.rows("q") == []
        self.broker.stop()


class QueueModelTests(SynchronousTestCase):
    """The machine as a test."""

    def test_against_a_list(self) -> None:
        """Whatever happens, the queue and the list agree."""
        self.patch(line_module, "LOAD_MESSAGES", 2)
        run_state_machine_as_test(
            QueueMachine,
            settings=settings(
                max_examples=3 * settings().max_examples, stateful_step_count=50, deadline=None
            ),
        )
