# SPDX-License-Identifier: Apache-2.0
"""State machines of file and message: any order of steps, and cuts anywhere.

A model knows what a client may count on: what was answered is on the queue, once; a content goes on
where the broker says; what was not answered may be there or not, and never in part.
"""

from __future__ import annotations

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

from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

OK = "message.ok"
IDENTIFIERS = st.sampled_from(("a", "b"))
SIZES = st.integers(0, 300)
CUTS = st.floats(0, 1)


def body_of(identifier: str, size: int) -> bytes:
    """The octets of a content: those of each identifier and size are its own."""
    return (f"{identifier}{size}." * 300).encode()[:size]


class StagingMachine(RuleBasedStateMachine):
    """A client that is cut, and comes again."""

    def __init__(self) -> None:
        super().__init__()
        self.house = Network().house()
        self.clients: list[Client09] = []
        self.client = self.connected()
        self.sure: list[bytes] = []

    def connected(self) -> Client09:
        self.clients.append(Client09(self.house, version=V09).channel())
        return self.clients[-1]

    def send(self, octets: bytes, cut: float) -> bool:
        """Send octets, all of them or up to a cut, where the connection ends; tell whether all."""
        at = len(octets) if cut > 0.7 else int(cut / 0.7 * len(octets))
        self.client.methods.clear()
        self.client.write(octets[:at])
        if at == len(octets):
            return True
        self.client.hang_up()
        self.client = self.connected()
        self.gone()
        return False

    def gone(self) -> None:
        """The channel of before is not used any more."""

    @invariant()
    def nothing_in_part(self) -> None:
        """On the queue is what is known, and whole."""
        found = []
        for entry in self.house.broker.nodes["q"].state.levels.entries():
            encoded = entry.message.encoded[entry.message.offsets.body_start :]
            found.append(encoded[5:] if encoded[3:4] == b"\xa0" else encoded[8:])
        assert sorted(found) == sorted(self.sure), (found, self.sure)

    @rule(is_seen=st.booleans())
    def come_again(self, is_seen: bool) -> None:
        """Go, and come back; or come back before the old connection is seen to be gone."""
        if is_seen:
            self.client.hang_up()
        self.client = self.connected()
        self.gone()

    def teardown(self) -> None:
        """When everybody is gone nothing is held."""
        for client in self.clients:
            if not client.end.is_gone:
                client.hang_up()
        self.house.world.advance(1.0)
        assert self.house.store.staging.held == 0


class FileMachine(StagingMachine):
    """The class file."""

    @rule(identifier=IDENTIFIERS, size=SIZES, cut=CUTS)
    def put(self, identifier: str, size: int, cut: float) -> None:
        """Open, stage what is missing, publish; cut anywhere."""
        body = body_of(identifier, size)
        answer = self.client.answer("file.open", identifier=identifier, content_size=size)
        staged = answer["staged-size"]
        assert 0 <= staged <= size
        octets = content(1, "file.stage", body[staged:], pieces=50, class_id=70)
        octets += call(1, "file.publish", routing_key="q", identifier=identifier)
        if self.send(octets, cut):
            self.sure.append(body)

    @precondition(lambda self: self.sure)
    @rule(staged=CUTS, is_acked=st.booleans())
    def get(self, staged: float, is_acked: bool) -> None:
        """Consume one, having some of it already; acknowledge it, or be cut before."""
        client = self.connected()
        client.ask("file.qos", prefetch_count=1)
        client.ask("file.consume", queue="q", consumer_tag="g")
        (opened,) = [each for _, name, each in client.methods if name == "file.open"]
        at = int(staged * opened["content-size"])
        client.write(call(1, "file.open-ok", staged_size=at))
        ((*_, rest),) = client.contents
        size = opened["content-size"]
        body = next(each for each in self.sure if len(each) == size and each[at:] == rest)
        if is_acked:
            client.write(call(1, "file.ack", delivery_tag=1))
            self.sure.remove(body)
        client.hang_up()


class ReferenceMachine(StagingMachine):
    """The class message, by reference."""

    def __init__(self) -> None:
        super().__init__()
        # By identifier: what the last checkpoint of it has.
        self.saved: dict[str, bytes] = {}
        # What is in scope, and under which identifier it was saved last.
        self.open: bytes | None = None
        self.name: str | None = None

    def gone(self) -> None:
        """See `StagingMachine.gone`."""
        self.open = self.name = None

    @precondition(lambda self: self.open is None)
    @rule()
    def begin(self) -> None:
        """Open a reference."""
        assert self.client.ask("message.open", reference=b"r") == [OK]
        self.open, self.name = b"", None

    @precondition(lambda self: self.open is None)
    @rule(identifier=IDENTIFIERS)
    def resume(self, identifier: str) -> None:
        """Go on at the last checkpoint, which is what it was."""
        known = self.saved.get(identifier)
        if known is None:
            refused = self.client.refused("message.resume", reference=b"r", identifier=identifier)
            assert refused == ("channel", 404)
            self.client = self.connected()
            return
        answer = self.client.answer("message.resume", reference=b"r", identifier=identifier)
        assert answer["value"] == len(known), (answer, known)
        self.open, self.name = known, identifier

    @precondition(lambda self: self.open is not None)
    @rule(octets=st.binary(max_size=40), cut=CUTS)
    def append(self, octets: bytes, cut: float) -> None:
        """Add octets."""
        assert self.open is not None
        if self.send(call(1, "message.append", reference=b"r", bytes=octets), cut):
            assert self.client.names() == [OK]
            self.open += octets

    @precondition(lambda self: self.open is not None)
    @rule(identifier=IDENTIFIERS)
    def checkpoint(self, identifier: str) -> None:
        """Save; the reference has this checkpoint only."""
        asked = self.client.ask("message.checkpoint", reference=b"r", identifier=identifier)
        assert asked == [OK]
        assert self.open is not None
        if self.name is not None and self.name != identifier:
            self.saved.pop(self.name, None)
        self.saved[identifier] = self.open
        self.name = identifier

    @precondition(lambda self: self.open is not None)
    @rule(times=st.integers(0, 2), cut=CUTS)
    def close(self, times: int, cut: float) -> None:
        """Transfer and close; what was transferred uses the checkpoint up."""
        assert self.open is not None
        transfer = call(1, "message.transfer", routing_key="q", body=(1, b"r"))
        body, name = self.open, self.name
        if self.send(transfer * times + call(1, "message.close", reference=b"r"), cut):
            assert self.client.names() == [OK] * (times + 1)
            self.sure += [body] * times
            if times and name is not None:
                del self.saved[name]
            self.gone()


EXAMPLES = max(10, settings.default.max_examples // 8)


class MachineTests(SynchronousTestCase):
    """The machines."""

    def test_file(self) -> None:
        """Files that are staged, published and consumed, with cuts anywhere."""
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            FileMachine,
            settings=settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None),
        )

    def test_references(self) -> None:
        """References that are saved, resumed and published, with cuts anywhere."""
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            ReferenceMachine,
            settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None),
        )
