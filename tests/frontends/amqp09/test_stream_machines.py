# SPDX-License-Identifier: Apache-2.0
"""State machines of the classes stream, tunnel and dtx, with octets cut anywhere.

A step writes the frames of a client in two pieces, cut at any octet, or hangs up in between. What
the broker does is compared with a model that knows queues, classes, and the branch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.xa_registry import BranchRegistry
from amqproute.broker.xa_states import XaError, Xid
from tests.conformance.frame_broker import FrameBroker, Network
from tests.support.branches import with_branches
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

BODIES = st.binary(min_size=1, max_size=20)
CUTS = st.integers(0, 400)
OWNER = "user:ann"


class StreamMachine(RuleBasedStateMachine):
    """One queue, a consumer of class basic, one of stream, and a channel that works in a branch."""

    house: FrameBroker
    branches: BranchRegistry

    @initialize()
    def begin(self) -> None:
        """Connect, with both consumers."""
        self.house = Network().house(nodes=("q",))
        self.branches = with_branches(self.house)
        self.receiver = self.connected()
        self.receiver.write(
            call(1, "basic.consume", queue="q", no_ack=1),
            call(2, "stream.consume", queue="q"),
        )
        self.receiver.contents.clear()
        self.sender = self.connected()
        # What is to come, by class, and what a branch keeps.
        self.expected: dict[str, deque[bytes]] = {
            "basic.deliver": deque(),
            "stream.deliver": deque(),
            "tunnel.request": deque(),
        }
        self.worker: Client09 | None = None
        self.number = 0
        self.kept: list[bytes] = []

    def connected(self) -> Client09:
        """Return a client with two channels."""
        return Client09(self.house, version=V09).channel(1, 2)

    def cut(self, client: Client09, octets: bytes, place: int, goes_on: bool) -> bool:
        """Write octets in two pieces; hang up between them unless it goes on.

        Returns:
            Whether all of it was written.
        """
        at = place % (len(octets) + 1)
        client.write(octets[:at])
        if goes_on:
            client.write(octets[at:])
            return True
        client.hang_up()
        return at == len(octets)

    def send(self, octets: bytes, place: int, goes_on: bool) -> bool:
        """Have the sender write octets, which may be its end."""
        is_whole = self.cut(self.sender, octets, place, goes_on)
        if not goes_on:
            self.sender = self.connected()
        return is_whole

    @rule(body=BODIES, place=CUTS, goes_on=st.booleans())
    def basic(self, body: bytes, place: int, goes_on: bool) -> None:
        """Publish by class basic."""
        if self.send(content(1, "basic.publish", body, routing_key="q"), place, goes_on):
            self.expected["basic.deliver"].append(body)

    @rule(body=BODIES, place=CUTS, goes_on=st.booleans())
    def stream(self, body: bytes, place: int, goes_on: bool) -> None:
        """Publish by class stream."""
        octets = content(1, "stream.publish", body, class_id=80, routing_key="q")
        if self.send(octets, place, goes_on):
            self.expected["stream.deliver"].append(body)

    @rule(body=BODIES, place=CUTS, goes_on=st.booleans(), broadcast=st.integers(0, 1))
    def tunnel(self, body: bytes, place: int, goes_on: bool, broadcast: int) -> None:
        """Send a block."""
        properties = {"proxy-name": "q", "broadcast": broadcast}
        octets = content(1, "tunnel.request", body, properties, class_id=110)
        if self.send(octets, place, goes_on):
            self.expected["tunnel.request"].append(body)

    @rule(rate=st.sampled_from((0, 50)), count=st.integers(0, 2), size=st.integers(0, 30))
    def qos(self, rate: int, count: int, size: int) -> None:
        """Change the window of the stream's consumer."""
        self.receiver.write(
            call(2, "stream.qos", consume_rate=rate, prefetch_count=count, prefetch_size=size)
        )

    @rule(active=st.integers(0, 1), channel=st.integers(1, 2))
    def flow(self, active: int, channel: int) -> None:
        """Stop contents on a channel, or let them come."""
        self.receiver.write(call(channel, "channel.flow", active=active))

    @rule(body=BODIES, place=CUTS, goes_on=st.booleans())
    def work(self, body: bytes, place: int, goes_on: bool) -> None:
        """Publish in the branch, on a channel that may be new."""
        if self.worker is None:
            self.worker = self.connected()
            self.worker.write(
                call(1, "dtx.select"),
                call(1, "dtx.start", dtx_identifier=f"1:{self.number + 1:04x}:"),
            )
        octets = content(1, "basic.publish", body, routing_key="q")
        if self.cut(self.worker, octets, place, goes_on):
            self.kept.append(body)
        if not goes_on:
            self.worker = None

    @rule(commits=st.booleans(), one_phase=st.booleans())
    def resolve(self, commits: bool, one_phase: bool) -> None:
        """Be the transaction manager: whatever the channel does, the branch ends as a whole."""
        xid = Xid(1, (self.number + 1).to_bytes(2, "big"), b"")
        worker, self.worker = self.worker, None
        try:
            self.branches.branch(OWNER, xid)
        except XaError:
            return
        self.number += 1
        if commits and one_phase:
            steps = [self.branches.commit(OWNER, xid, one_phase=True)]
        elif commits:
            steps = [self.branches.prepare(OWNER, xid), self.branches.commit(OWNER, xid)]
        else:
            steps = [self.branches.rollback(OWNER, xid)]
        for index, step in enumerate(steps):
            if index and not self.kept:
                step.close()  # prepare has found nothing to do
                continue
            self.done(step)
        if commits:
            self.expected["basic.deliver"].extend(self.kept)
        self.kept = []
        if worker is not None:
            worker.write(content(1, "basic.publish", b"late", routing_key="q"))
            assert ("channel", 406) in worker.closes()
            worker.hang_up()

    def done(self, step: Coroutine[Deferred[object], object, object]) -> None:
        """Carry a command out."""
        done = Deferred.fromCoroutine(step)
        self.house.world.advance()
        assert done.called
        done.addErrback(self.failed)

    def failed(self, failure: object) -> None:
        """No command fails here."""
        raise AssertionError(str(failure))

    @invariant()
    def as_expected(self) -> None:
        """The received messages of each class are the expected ones, in order."""
        if not hasattr(self, "expected"):
            return
        self.receiver.run()
        for _, name, _, _, body in self.receiver.contents:
            assert self.expected[name].popleft() == body, (name, body)
        self.receiver.contents.clear()

    def teardown(self) -> None:
        """With contents allowed and no window, all that was to come does; nothing is left."""
        if not hasattr(self, "expected"):
            return
        self.receiver.write(
            call(1, "channel.flow", active=1),
            call(2, "channel.flow", active=1),
            call(2, "stream.qos"),
        )
        for _ in range(5):
            self.receiver.run(2.0)
        self.as_expected()
        left = {name: list(bodies) for name, bodies in self.expected.items() if bodies}
        assert not left, left
        self.receiver.hang_up()
        assert self.house.broker.nodes["q"].depth == 0


class StreamMachineTests(SynchronousTestCase):
    def test_any_order(self) -> None:
        """Any order of steps, cut at any octet."""
        run_state_machine_as_test(
            StreamMachine, settings=settings(max_examples=25, stateful_step_count=15, deadline=None)
        )

    def test_each_octet(self) -> None:
        """Cut at each octet in turn, contents of each class are whole or not there at all."""
        for name, class_id, properties in (
            ("stream.publish", 80, {"priority": 1}),
            ("tunnel.request", 110, {"proxy-name": "q"}),
        ):
            arguments = {"routing_key": "q"} if class_id == 80 else {}
            octets = content(1, name, b"body", properties, class_id=class_id, **arguments)
            for at in range(len(octets) + 1):
                house = Network().house(nodes=("q",))
                client = Client09(house, version=V09).channel()
                client.write(octets[:at])
                client.hang_up()
                depth = house.broker.nodes["q"].depth
                self.assertEqual(depth, int(at == len(octets)), (name, at))
                whole = Client09(house, version=V09).channel()
                whole.write(octets[:at])
                whole.write(octets[at:])
                self.assertEqual(house.broker.nodes["q"].depth, depth + 1, (name, at))
