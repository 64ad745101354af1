# SPDX-License-Identifier: Apache-2.0
"""A queue that takes each message once, at random: accepted ones are held, safely and once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker import entry_list as line_module
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Duplicates, QueueOptions
from amqproute.outcomes import Acceptance, Release
from tests.broker.test_node_options import identified
from tests.support.fakes import KeptStore, Taker, body_of, make_broker, put
from tests.support.fakes import settle_down as turn

IDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
ACCEPTED = Acceptance()


class OnceMachine(RuleBasedStateMachine):
    """Publishers that repeat themselves, a disk that fails, a consumer ahead of it, restarts.

    Attributes:
        safe: ids of which somebody was told that they are here, and which nobody has taken since.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.safe: set[str] = set()
        self.boot()

    def boot(self) -> None:
        """Build a broker over what the store has."""
        options = QueueOptions(duplicates=Duplicates.ALL)
        queue = NodeDeclaration("q", QueueLimits(resident_messages=2), None, options)
        self.broker = make_broker(self.clock, self.store, queue)
        self.queue = self.broker.nodes["q"]
        turn(self.clock)  # its ids have been read
        self.taker = Taker(self.queue, 2)

    @rule(
        batches=st.lists(IDS, min_size=1, max_size=3),
        ahead=st.booleans(),
        takes=st.booleans(),
        fails=st.booleans(),
    )
    def publish(self, batches: list[list[str]], ahead: bool, takes: bool, fails: bool) -> None:
        """Put batches one behind the other; what comes to hands may be taken before the commit."""
        self.store.is_full = fails
        told: list[str] = []
        gone: list[str] = []
        for ids in batches:
            before = set(self.taker.held)
            made = [identified(each, each.encode()) for each in ids]
            done = put(self.broker, self.queue, *made, ahead=ahead)
            done.addCallbacks(lambda _, ids=ids: told.extend(ids), lambda _: None)
            came = [entry for entry in self.taker.held if entry not in before]
            assert ahead or not came
            if takes and came:
                self.taker.settle(self.broker, came, ACCEPTED).addErrback(lambda _: None)
                gone += [body_of(entry).decode() for entry in came]
        self.clock.advance(0)
        self.store.is_full = False
        turn(self.clock)
        self.expect(told, gone)

    def expect(self, told: list[str], gone: list[str]) -> None:
        """Work out what is held now."""
        taken = Counter(gone)
        for each, times in Counter(told).items():
            # Of what was taken early only a later repetition can be here.
            if each in self.safe or times > taken[each]:
                self.safe.add(each)

    @rule(room=st.integers(1, 4))
    def grant(self, room: int) -> None:
        """Give the consumer room."""
        self.taker.take(room)

    @rule(data=st.data(), outcome=st.sampled_from(["accepted", "released"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        """Settle some of what the consumer holds."""
        if not self.taker.held:
            return
        places = st.sets(st.integers(0, len(self.taker.held) - 1), min_size=1)
        entries = [self.taker.held[place] for place in sorted(data.draw(places))]
        if outcome == "accepted":
            self.safe -= {body_of(entry).decode() for entry in entries if entry.stored}
        state: Any = ACCEPTED if outcome == "accepted" else Release()
        self.taker.settle(self.broker, entries, state)
        turn(self.clock)

    @rule()
    def restart(self) -> None:
        """Lose the process."""
        self.broker.stop()
        self.boot()

    @invariant()
    def agrees(self) -> None:
        """Each id that is safe has one row; there is nothing else on the disk."""
        turn(self.clock)
        rows = [body_of_row(row) for row in self.store.rows("q")]
        assert sorted(rows) == sorted(self.safe), (rows, self.safe)
        stored = [body_of(entry).decode() for entry in self.taker.held if entry.stored]
        assert len(set(stored)) == len(stored), stored

    def teardown(self) -> None:
        """Everything comes out."""
        self.taker.take(1000)
        turn(self.clock)
        self.taker.settle(self.broker, list(self.taker.held), ACCEPTED)
        turn(self.clock)
        assert self.queue.depth == 0, self.queue
        assert self.store.rows("q") == []
        assert len(self.queue.state.duplicates or ()) == 0
        self.broker.stop()


def body_of_row(row: Any) -> str:
    """Return the body of what stands in the store."""
    encoded: bytes = row.encoded
    return encoded[-1:].decode()


class OnceModelTests(SynchronousTestCase):
    """The machine as a test."""

    def test_once(self) -> None:
        """Q-09, M-07: also where messages go ahead of their commit, and where that fails."""
        self.patch(line_module, "LOAD_MESSAGES", 2)
        run_state_machine_as_test(
            OnceMachine,
            settings=settings(
                max_examples=settings().max_examples, stateful_step_count=20, deadline=None
            ),
        )
