# SPDX-License-Identifier: Apache-2.0
"""The scope of each error: topic E, part 2 §2.8.14 to §2.8.18."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Described, Symbol, UInt, ULong
from tests.conformance.frame_broker import (
    ACCEPTED,
    Client,
    Network,
    attach,
    condition,
    frame,
    message,
)

FLOW = {"incoming_window": 100, "next_outgoing_id": 0, "outgoing_window": 100}


def described(code: int, fields: list[Any]) -> bytes:
    """Encode a frame on channel 0 by hand, with fields of any type."""
    body = codec.encode(Described(ULong(code), fields))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


class ScopeTests(SynchronousTestCase):
    """E-03: an error ends the smallest thing that is at fault."""

    def setUp(self) -> None:
        self.house = Network().house(nodes=["q", "r"])
        self.client = self.house.client().ready()

    def test_delivery(self) -> None:
        """E-03: where one delivery is at fault it is rejected, and the link lives on."""
        self.client.sender("amqp$transfer")
        self.client.write(
            self.client.transfer(0, message(to="q")),
            self.client.transfer(1, message(to="nobody")),
            self.client.transfer(2, message(to="q")),
        )
        states = {}
        for each in self.client.all(spec.Disposition):
            for number in range(each.first, (each.first if each.last is None else each.last) + 1):
                states[number] = type(each.state).__name__
        self.assertEqual(states, {0: "Accepted", 1: "Rejected", 2: "Accepted"})
        self.assertEqual(self.house.depth(), 2)

    def test_link(self) -> None:
        """E-04, L-46: without another agreement an error of a link detaches it."""
        self.client.sender("amqp$transfer", source=spec.Source(outcomes=(ACCEPTED,)))
        self.client.sender("r", handle=1)
        self.client.publish(0, message(to="nobody"))
        detach = self.client.one(spec.Detach)
        self.assertTrue(detach.closed)
        self.assertEqual(condition(detach), "amqp:not-found")
        self.client.publish(1, handle=1)
        self.assertEqual(self.house.depth("r"), 1)

    def test_error_mode_detach(self) -> None:
        """E-01, L-46: detach is the default, and is in the answer; so it may be asked for."""
        asked = {Symbol("error-mode"): Symbol("detach")}
        for handle, properties in enumerate((None, asked)):
            for role in ("sender", "receiver"):
                self.client.send(
                    attach(role, f"{role}-{handle}", handle * 2, "q", properties=properties)
                )
                answer = self.client.one(spec.Attach)
                self.assertEqual(answer.properties["error-mode"], "detach")
                self.client.send(spec.Detach(handle=handle * 2, closed=True))

    def ends(self, address: str | None = "q", role: str = "sender", **fields: Any) -> None:
        """Attach with error-mode end."""
        properties = {Symbol("error-mode"): Symbol("end")}
        self.client.send(attach(role, "ender", 5, address, properties=properties, **fields))
        answer = self.client.one(spec.Attach)
        self.assertEqual(answer.properties["error-mode"], "end")

    def test_error_mode_end_transfer(self) -> None:
        """E-04, L-46: with error-mode end an error in a transfer ends the session."""
        self.ends("amqp$transfer", source=spec.Source(outcomes=(ACCEPTED,)))
        self.client.publish(0, message(to="nobody"), handle=5)
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:not-found")
        self.client.send(spec.End())
        self.client.begun()

    def test_error_mode_end_disposition(self) -> None:
        """E-04: so does one in a disposition; what was held goes back."""
        self.client.fill([b"1", b"2"])
        source = spec.Source(address="q", outcomes=(ACCEPTED,))
        self.ends(None, "receiver", source=source)
        self.client.credit(2, handle=5)
        self.client.dispose(0, state=spec.Rejected())
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:not-allowed")
        other = self.house.client().ready("other")
        other.receiver("q", credit=5)
        self.assertEqual(other.bodies(), [b"1", b"2"])

    def test_error_mode_end_flow(self) -> None:
        """E-04: so does a sender that exceeds its credit."""
        house = Network().house(limits={"link_credit": 2}, settings={"credit_grace_new": 0})
        self.client = house.client().ready()
        self.ends()
        self.client.write(*(self.client.transfer(n, handle=5) for n in range(9)))
        end = self.client.one(spec.End)
        self.assertEqual(condition(end), "amqp:link:transfer-limit-exceeded")

    def test_error_mode_end_attach(self) -> None:
        """E-04: so does an attach that cannot be."""
        properties = {Symbol("error-mode"): Symbol("end")}
        self.client.send(attach("sender", "x", 5, "nowhere", properties=properties))
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:not-found")

    def test_detached_links_are_forgotten(self) -> None:
        """E-03: links that we detached do not count among those that a connection may have."""
        house = Network().house(limits={"links": 2})
        client = house.client().ready()
        for number in range(6):
            client.sender("amqp$transfer", name=f"s{number}")
            client.publish(number, message(to="nobody"), settled=True)
            self.assertEqual(condition(client.one(spec.Detach)), "amqp:not-found")
            client.send(spec.Detach(handle=0, closed=True))

    def test_session(self) -> None:
        """E-03: an error of the session ends it; the connection continues."""
        self.client.send(spec.Detach(handle=3))
        self.assertIsNotNone(condition(self.client.one(spec.End)))
        self.client.send(spec.End())
        self.client.begun()
        self.assertTrue(self.client.none(spec.Close))

    def test_other_links_of_an_ended_session(self) -> None:
        """E-03, O-06: a session that we end gives back what its other links held."""
        self.client.fill([b"1", b"2"])
        self.client.receiver("q", handle=0, credit=5)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        self.client.sender("r", handle=1)
        self.client.send(spec.Detach(handle=3))
        self.assertIsNotNone(condition(self.client.one(spec.End)))
        other = self.house.client().ready("other")
        other.receiver("q", credit=5)
        self.assertEqual(other.bodies(), [b"1", b"2"])
        self.client.send(spec.End())
        self.client.begun()
        self.client.fill([b"3"])
        other.run()
        self.assertEqual(other.bodies(), [b"3"])

    def test_words(self) -> None:
        """E-05, O-03: every error has a description for people."""
        self.client.sender("amqp$transfer")
        self.client.publish(0, message(to="nobody"))
        self.assertIn("nobody", self.client.one(spec.Disposition).state.error.description)
        self.client.send(attach("sender", "x", 9, "nowhere"))
        self.assertIn("nowhere", self.client.one(spec.Detach).error.description)

    def test_others_do_not_notice(self) -> None:
        """E-03: a fault of one connection is none of another's."""
        other = self.house.client().ready("other")
        other.sender()
        self.client.write(b"\x00\x00\x00\x01garbage")
        self.client.one(spec.Close)
        other.publish(0)
        self.assertIsInstance(other.one(spec.Disposition).state, spec.Accepted)


class TableTests(SynchronousTestCase):
    """Faults, the performative that answers them, and the condition."""

    def fault(
        self,
        write: Callable[[Client], object],
        kind: type[Any],
        *wanted: str,
    ) -> None:
        client = Network().house(nodes=["q", "r"]).client().ready()
        client.sender("q", handle=0)
        client.receiver("r", handle=1)
        client.names()
        write(client)
        answers = client.all(kind)
        self.assertEqual(len(answers), 1, (kind.__name__, client.names()))
        self.assertIn(condition(answers[0]), wanted)

    def octets(self, *data: bytes) -> Callable[[Client], object]:
        return lambda client: client.write(*data)

    def test_attach_without_name(self) -> None:
        """Part 1 §1.4: a mandatory field that is null."""
        fields = [None, UInt(5), False]
        self.fault(self.octets(described(0x12, fields)), spec.Close, "amqp:decode-error")

    def test_attach_of_the_wrong_type(self) -> None:
        """Part 1 §1.4: a field of another type."""
        fields = ["name", "five", False]
        self.fault(self.octets(described(0x12, fields)), spec.Close, "amqp:decode-error")

    def test_too_many_fields(self) -> None:
        """Part 1 §1.4: more fields than the type has."""
        fields = [UInt(0), True, None, 1, 2, 3]
        self.fault(self.octets(described(0x16, fields)), spec.Close, "amqp:decode-error")

    def test_settle_mode_out_of_range(self) -> None:
        """§2.8.2: a choice that does not exist costs the link that it is for."""
        body = codec.encode(
            Described(ULong(0x12), ["name", UInt(5), False, codec.decode(b"\x50\x07")[0]])
        )
        octets = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
        self.fault(self.octets(octets), spec.Detach, "amqp:invalid-field")

    def test_unknown_performative(self) -> None:
        """§2.3.2: a descriptor that is no performative."""
        self.fault(
            self.octets(described(0x99, [])),
            spec.Close,
            "amqp:decode-error",
            "amqp:not-implemented",
        )

    def test_sasl_frame(self) -> None:
        """Part 5 §5.3.1: a SASL frame after the SASL layer."""
        init = frame(spec.SaslInit(mechanism="PLAIN"), kind=1)
        self.fault(self.octets(init), spec.Close, "amqp:connection:framing-error")

    def test_no_delivery_count_in_attach(self) -> None:
        """L-38, §2.7.3: initial-delivery-count is mandatory for a sender."""

        def write(client: Client) -> None:
            request = attach("sender", "x", 5, "q", initial_delivery_count=None)
            client.send(request)

        client = Network().house().client().ready()
        write(client)
        names = client.names()
        self.assertEqual(names, ["Attach", "Detach"])

    def test_credit_exceeded(self) -> None:
        """F-01, §2.8.18."""

        def write(client: Client) -> None:
            house = Network().house(limits={"link_credit": 2}, settings={"credit_grace_new": 0})
            again = house.client().ready()
            again.sender()
            again.names()
            again.write(*(again.transfer(n, settled=True) for n in range(9)))
            client.frames = again.frames

        self.fault(write, spec.Detach, "amqp:link:transfer-limit-exceeded")

    def test_flow_without_window(self) -> None:
        """§2.7.4: the windows of a flow are mandatory."""
        self.fault(self.octets(described(0x13, [None, None])), spec.Close, "amqp:decode-error")

    def test_flow_for_an_unknown_link(self) -> None:
        """§2.8.17."""
        self.fault(
            self.octets(frame(spec.Flow(**FLOW, handle=9))),
            spec.End,
            "amqp:session:unattached-handle",
        )

    def test_handle_in_use(self) -> None:
        """§2.8.17, E-04."""
        self.fault(
            self.octets(frame(attach("sender", "new", 0, "q"))),
            spec.End,
            "amqp:session:handle-in-use",
        )

    def test_transactional_transfer(self) -> None:
        """E-02, X-31: a transfer within a transaction nobody declared is refused."""
        state = spec.TransactionalState(txn_id=b"nothing")
        client = Network().house().client().ready()
        client.sender()
        client.publish(0, state=state)
        answer = client.one(spec.Disposition)
        self.assertTrue(answer.settled)
        self.assertEqual(condition(answer.state), "amqp:transaction:unknown-id")
        self.assertEqual(client.house.depth(), 0)

    def test_transactional_outcome(self) -> None:
        """E-02, X-31: such an outcome ends the link, and changes nothing."""
        client = Network().house().client().ready()
        client.fill([b"1"])
        client.receiver(credit=1)
        client.dispose(
            0,
            state=spec.TransactionalState(txn_id=b"nothing", outcome=spec.Accepted()),
            settled=False,
        )
        self.assertEqual(client.house.depth(), 1)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:transaction:unknown-id")
