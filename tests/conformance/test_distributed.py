# SPDX-License-Identifier: Apache-2.0
"""Distributed transactions, frame by frame: topic C."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.xa_states import Xa
from amqproute.services.management_node import MANAGEMENT
from amqproute.services.xa_node import DTX_COORDINATOR
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Described, Int, Symbol, ULong
from tests.conformance.frame_broker import (
    EVERYTHING,
    Client,
    FrameBroker,
    Network,
    attach,
    condition,
    message,
    section,
    section_of,
)
from tests.support.branches import with_branches

ANN = Principal("user", "ann")
BOB = Principal("user", "bob")
XID = [Int(7), b"global", b"branch"]
NAME = f"user:ann/7.{b'global'.hex()}.{b'branch'.hex()}"
RULES = [
    Rule.of(who="user:bob", node=DTX_COORDINATOR, deny=["manage"]),
    Rule.of(who="*", node="*", allow=EVERYTHING),
]


class Requester:
    """A client that asks a service node, over a connection of its own."""

    def __init__(
        self, house: FrameBroker, node: str = DTX_COORDINATOR, who: Principal = ANN
    ) -> None:
        self.client = house.client(who).ready(f"asks {node}")
        source = spec.Source(dynamic=True)
        self.client.send(attach("receiver", "replies", 0, None, source=source))
        answer = self.client.one(spec.Attach)
        assert isinstance(answer.source, spec.Source)
        self.reply_to = answer.source.address
        self.client.credit(1000)
        self.client.sender(node, 1)
        self.count = 0

    def request(self, operation: str, body: Any = None, **properties: Any) -> None:
        """Ask, and wait for nothing."""
        encoded = b"".join(
            (
                codec.encode(spec.Properties(message_id=f"m{self.count}", reply_to=self.reply_to)),
                section(
                    spec.SECTION_APPLICATION_PROPERTIES, {"operation": operation, **properties}
                ),
                section(spec.SECTION_AMQP_VALUE, body or {}),
            )
        )
        self.client.publish(self.count, encoded, 1)
        self.count += 1

    def commands(self, text: str) -> int:
        """Give ``$management`` commands as text; return the status of the answer."""
        properties = spec.Properties(
            message_id=f"m{self.count}", reply_to=self.reply_to, content_type="text/plain"
        )
        encoded = codec.encode(properties) + section(spec.SECTION_DATA, text.encode())
        self.client.publish(self.count, encoded, 1)
        self.count += 1
        ((answer, _),) = self.replies()
        return int(answer["statusCode"])

    def replies(self) -> list[tuple[dict[str, Any], Any]]:
        """Return application-properties and bodies of what was answered."""
        found = []
        for encoded in self.client.run().messages():
            properties = section_of(encoded, spec.SECTION_APPLICATION_PROPERTIES)
            found.append((properties, section_of(encoded, spec.SECTION_AMQP_VALUE)))
        return found

    def ask(
        self, operation: str, body: Any = None, **properties: Any
    ) -> tuple[dict[str, Any], Any]:
        """Ask, and return the answer."""
        self.request(operation, body, **properties)
        (reply,) = self.replies()
        return reply

    def code(self, operation: str, **body: Any) -> str:
        """Give a command about the one branch; return the name of XA's code."""
        properties, _ = self.ask(operation, {"xid": XID, **body})
        return Xa(properties["xaCode"]).name


class DistributedCase(SynchronousTestCase):
    """A broker that offers distributed transactions, a manager, and an application's links."""

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(nodes=["q", "r"], access=RULES)
        house = self.house
        self.branches = with_branches(house)
        self.manager = Requester(house)
        self.app = house.client(ANN).ready("application")
        self.app.sender("r", 0)
        self.app.fill([b"1", b"2"])
        self.app.receiver("q", 1, credit=10)
        self.assertEqual(self.app.bodies(), [b"1", b"2"])
        self.app.all(spec.Flow)
        self.count = 0

    def start(self, **body: Any) -> bytes:
        """Start the branch; return the id for transactional states."""
        properties, found = self.manager.ask("start", {"xid": XID, **body})
        self.assertEqual((properties["statusCode"], properties["xaCode"]), (200, 0))
        txn_id: bytes = found["txn-id"]
        return txn_id

    def post(self, txn_id: bytes, body: bytes = b"x", handle: int = 0) -> None:
        """Send a message within the branch."""
        state = spec.TransactionalState(txn_id=txn_id)
        self.app.publish(self.count, message(body), handle, state=state)
        self.count += 1

    def accept(self, txn_id: bytes, first: int, last: int | None = None) -> None:
        """Accept deliveries within the branch."""
        state = spec.TransactionalState(txn_id=txn_id, outcome=spec.Accepted())
        self.app.dispose(first, last, state, settled=False)

    def work(self) -> bytes:
        """Take a message, send one on."""
        txn_id = self.start()
        self.post(txn_id)
        self.accept(txn_id, 0)
        (promise,) = self.app.all(spec.Disposition)
        assert isinstance(promise.state, spec.TransactionalState)
        return txn_id

    def counts(self) -> tuple[int, int, int]:
        """Depth of ``q``, what is acquired there, depth of ``r``."""
        queue = self.house.broker.nodes["q"]
        return queue.depth, queue.acquired, self.house.depth("r")


class CommandTests(DistributedCase):
    """Requests and replies, with links of another connection (C-05 to C-08)."""

    def test_two_phases(self) -> None:
        """C-06: work on one connection, coordination on another one."""
        self.work()
        self.assertEqual((self.manager.code("end"), self.counts()), ("OK", (2, 2, 0)))
        self.assertEqual((self.manager.code("prepare"), self.counts()), ("OK", (2, 2, 0)))
        self.assertEqual(self.app.run().all(spec.Disposition), [])
        _, found = self.manager.ask("recover")
        self.assertEqual(found, {"xids": [XID]})
        self.assertEqual((self.manager.code("commit"), self.counts()), ("OK", (1, 1, 1)))
        posted, taken = sorted(self.app.run().all(spec.Disposition), key=lambda each: not each.role)
        self.assertEqual((posted.role, posted.settled), (True, True))
        self.assertIsInstance(posted.state, spec.Accepted)
        self.assertEqual((taken.role, taken.first, taken.settled), (False, 0, True))
        self.assertEqual(self.manager.code("commit"), "NOTA")

    def test_roll_back(self) -> None:
        """The link holds what it held; the posting is released."""
        self.work()
        for verb in ("end", "prepare", "rollback"):
            self.assertEqual(self.manager.code(verb), "OK")
        (posted,) = self.app.run().all(spec.Disposition)
        self.assertIsInstance(posted.state, spec.Released)
        self.assertEqual(self.counts(), (2, 2, 0))
        self.app.dispose(0, 1)
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_application_gone(self) -> None:
        """Its connection is lost between prepare and commit: the promise holds."""
        self.work()
        self.manager.code("end")
        self.manager.code("prepare")
        self.app.hang_up()
        self.assertEqual(self.counts(), (2, 1, 0))
        self.assertEqual((self.manager.code("commit"), self.counts()), ("OK", (1, 0, 1)))

    def test_application_gone_and_rolled_back(self) -> None:
        """And what it had taken is there for others."""
        self.work()
        self.manager.code("end")
        self.manager.code("prepare")
        self.app.hang_up()
        self.assertEqual((self.manager.code("rollback"), self.counts()), ("OK", (2, 0, 0)))
        other = self.house.client(BOB).ready("other")
        other.receiver("q", credit=10)
        self.assertEqual(sorted(other.bodies()), [b"1", b"2"])

    def test_link_suspended(self) -> None:
        """A consumer's link that is detached, and may come back, while the branch is resolved."""
        queue = self.house.broker.nodes["r"]
        for verb, held in (("commit", (1, 1)), ("rollback", (2, 2))):
            self.app = self.house.client(ANN).ready(f"application-{verb}")
            self.app.sender("q", 0)
            self.app.fill([b"1", b"2"], "r")
            source = spec.Source(address="r", expiry_policy=spec.EXPIRE_LINK_DETACH, timeout=60)
            self.app.receiver("r", 1, credit=10, source=source)
            self.assertEqual(len(self.app.bodies()), 2)
            self.count = 0
            self.work()
            self.manager.code("end")
            self.manager.code("prepare")
            self.app.send(spec.Detach(handle=1, closed=False))
            self.assertEqual((queue.depth, queue.acquired), (2, 2))
            self.assertEqual(self.manager.code(verb), "OK")
            self.assertEqual((queue.depth, queue.acquired), held)
            self.app.run(61)
            self.assertEqual((queue.available, queue.acquired), (held[0], 0))
            other = self.house.client(BOB).ready(f"other-{verb}")
            other.receiver("r", credit=10)
            self.assertEqual(len(other.bodies()), held[0])
            other.dispose(0, 1)
            for client in (other, self.app):
                client.hang_up()

    def test_manager_gone(self) -> None:
        """The manager comes back on another connection, and asks what there is."""
        self.work()
        self.manager.code("end")
        self.manager.code("prepare")
        self.manager.client.hang_up()
        self.manager = Requester(self.house)
        self.assertEqual(self.manager.ask("recover")[1], {"xids": [XID]})
        self.assertEqual((self.manager.code("commit"), self.counts()), ("OK", (1, 1, 1)))

    def test_one_phase(self) -> None:
        """One phase is enough where there is nobody else."""
        self.work()
        self.manager.code("end")
        self.assertEqual(self.manager.code("commit", flags=Symbol("one-phase")), "OK")
        self.assertEqual(self.counts(), (1, 1, 1))

    def test_ended(self) -> None:
        """C-05: no work in a branch that has ended or is suspended."""
        txn_id = self.work()
        self.manager.code("end", flags=["suspend"])
        self.post(txn_id)
        (answer,) = self.app.all(spec.Disposition)
        self.assertEqual(condition(answer.state), "amqp:transaction:unknown-id")
        self.assertEqual(self.start(flags="resume"), txn_id)
        self.assertEqual(self.start(flags="join"), txn_id)
        self.post(txn_id)
        (promise,) = self.app.all(spec.Disposition)
        self.assertIsInstance(promise.state, spec.TransactionalState)
        for code in ("OK", "OK", "PROTO"):
            self.assertEqual(self.manager.code("end"), code)
        self.manager.code("prepare")
        self.manager.code("commit")
        self.assertEqual(self.house.depth("r"), 2)

    def test_refused_posting(self) -> None:
        """A posting that is refused leaves a branch that can only be rolled back."""
        txn_id = self.work()
        self.app.sender(None, 5)
        self.post(txn_id, handle=5)  # without a `to`
        self.assertEqual(self.manager.code("end"), "RBROLLBACK")
        self.assertEqual((self.manager.code("prepare"), self.counts()), ("RBROLLBACK", (2, 2, 0)))

    def test_acquired(self) -> None:
        """X-20 for branches: what was acquired in one is released by its roll-back."""
        txn_id = self.start()
        self.app.fill([b"3"], "r")
        self.app.receiver("r", 4)
        self.app.credit(1, 4, drain=True, properties={Symbol("txn-id"): txn_id})
        (transfer,) = self.app.all(spec.Transfer)
        self.assertEqual(transfer.state, spec.TransactionalState(txn_id=txn_id))
        self.manager.code("end")
        self.assertEqual(self.manager.code("rollback"), "OK")
        self.assertEqual(self.house.broker.nodes["r"].available, 1)
        (answer,) = self.app.run().all(spec.Disposition)
        self.assertIsInstance(answer.state, spec.Released)

    def test_time_out(self) -> None:
        """set-timeout, get-timeout; and what a time-out does."""
        self.assertEqual(self.manager.ask("get-timeout")[1], {"timeout": 120})
        self.assertEqual(self.manager.code("set-timeout", timeout=30), "OK")
        self.assertEqual(self.manager.ask("get-timeout")[1], {"timeout": 30})
        for wrong in (-1, 86_401, "1", True, None):
            self.assertEqual(self.manager.code("set-timeout", timeout=wrong), "INVAL")
        self.work()
        self.app.run(31)
        (answer,) = self.app.all(spec.Disposition)
        self.assertIsInstance(answer.state, spec.Released)
        self.assertEqual((self.manager.code("end"), self.counts()), ("RBTIMEOUT", (2, 2, 0)))

    def test_nonsense(self) -> None:
        """An unknown request is answered with XAER_INVAL; the link continues."""
        ask = self.manager.ask
        for operation, body in (
            ("frobnicate", {"xid": XID}),
            ("start", {"xid": [1, 2, 3]}),
            ("start", {}),
            ("start", {"xid": XID, "flags": "one-phase"}),
            ("commit", {"xid": XID, "flags": ["one-phase", "join"]}),
            ("prepare", {"xid": XID, "flags": "join"}),
            ("recover", {"flags": "start"}),
        ):
            properties, _ = ask(operation, body)
            self.assertEqual((properties["statusCode"], properties["xaCode"]), (400, -5), operation)
        self.assertEqual(self.manager.code("start", flags=[]), "OK")

    def test_replies(self) -> None:
        """C-07, G-19: without a reply-to a request is refused; nothing is done."""
        encoded = section(spec.SECTION_APPLICATION_PROPERTIES, {"operation": "start"})
        encoded += section(spec.SECTION_AMQP_VALUE, {"xid": XID})
        self.manager.client.publish(0, encoded, 1)
        (answer,) = self.manager.client.all(spec.Disposition)
        self.assertEqual(condition(answer.state), "amqp:precondition-failed")
        self.assertEqual(len(self.branches), 0)

    def test_not_within(self) -> None:
        """X-04: a command is no part of a transaction."""
        txn_id = self.start()
        self.app.sender(DTX_COORDINATOR, 6)
        self.post(txn_id, handle=6)
        (answer,) = self.app.all(spec.Disposition)
        self.assertEqual(condition(answer.state), "amqp:not-allowed")

    def test_order(self) -> None:
        """Commands that are sent in one go are done in order; replies name their requests."""
        self.work()
        for verb in ("end", "prepare"):
            self.manager.request(verb, {"xid": XID})
        codes = [properties["xaCode"] for properties, _ in self.manager.replies()]
        self.assertEqual(codes, [0, 0])


class AccessTests(DistributedCase):
    """Rights (C-02, C-06)."""

    def test_right(self) -> None:
        """C-02: the node has a right of its own."""
        client = self.house.client(BOB).ready("other")
        self.assertIsNone(client.sender(DTX_COORDINATOR).target)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:unauthorized-access")

    def test_disabled(self) -> None:
        """C-01: where it is not offered there is no such node."""
        house = self.world.house("plain.test")
        client = house.client(ANN).ready("manager")
        self.assertIsNone(client.sender(DTX_COORDINATOR).target)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:not-found")

    def test_others(self) -> None:
        """C-06: a branch is worked in, and coordinated, by its principal."""
        txn_id = self.work()
        carl = Principal("user", "carl")
        other = Requester(self.house, who=carl)
        self.assertEqual((other.code("end"), other.ask("recover")[1]), ("NOTA", {"xids": []}))
        self.assertEqual(other.code("start"), "OK")  # xids are each principal's own
        self.app = self.house.client(carl).ready("application")
        self.app.sender("r", 0)
        self.post(txn_id)
        (answer,) = self.app.all(spec.Disposition)
        self.assertEqual(condition(answer.state), "amqp:transaction:unknown-id")


class BridgeTests(DistributedCase):
    """declare.global-id (C-08, C-09)."""

    def controller(self, who: Principal = ANN) -> Client:
        """Return a client with a coordinator link."""
        client = self.house.client(who).ready("controller")
        target = spec.Coordinator()
        client.send(attach("sender", "txn", 9, None, source=None, target=target))
        self.target = client.one(spec.Attach).target
        return client

    def control(self, client: Client, number: int, body: Any) -> Any:
        """Send a message to the coordinator; return the state of the answer."""
        encoded = codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), body))
        client.publish(number, encoded, 9)
        answer = next(each for each in client.all(spec.Disposition) if each.role)
        return answer.state

    def test_capability(self) -> None:
        """C-01, C-10: it is offered to those who may, and asked for by name."""
        self.controller()
        self.assertIn("amqp:distributed-transactions", self.target.capabilities)
        self.assertNotIn("amqp:promotable-transactions", self.target.capabilities)
        self.controller(BOB)
        self.assertNotIn("amqp:distributed-transactions", self.target.capabilities)
        for who, is_taken in ((ANN, True), (BOB, False)):
            client = self.house.client(who).ready("controller")
            target = spec.Coordinator(capabilities=(spec.TXN_DISTRIBUTED,))
            client.send(attach("sender", "txn", 9, None, source=None, target=target))
            self.assertEqual(client.one(spec.Attach).target is not None, is_taken)

    def test_declare(self) -> None:
        """A declare with a global-id starts the branch; its discharge ends the association."""
        client = self.controller()
        declared = self.control(client, 0, spec.Declare(global_id=codec.encode(XID)))
        self.post(declared.txn_id)
        self.accept(declared.txn_id, 0)
        self.assertEqual(self.manager.code("prepare"), "PROTO")
        state = self.control(client, 1, spec.Discharge(txn_id=declared.txn_id))
        self.assertIsInstance(state, spec.Accepted)
        self.assertEqual(self.counts(), (2, 2, 0))
        self.assertEqual((self.manager.code("prepare"), self.manager.code("commit")), ("OK", "OK"))
        self.assertEqual(self.counts(), (1, 1, 1))

    def test_join(self) -> None:
        """One that is there is joined; a list will do as well as its octets."""
        txn_id = self.start()
        client = self.controller()
        declared = self.control(client, 0, spec.Declare(global_id=XID))
        self.assertEqual(declared.txn_id, txn_id)
        self.manager.code("end")
        self.post(txn_id)
        self.control(client, 1, spec.Discharge(txn_id=txn_id))
        self.assertEqual(self.manager.code("commit", flags="one-phase"), "OK")
        self.assertEqual(self.house.depth("r"), 1)

    def test_fail(self) -> None:
        """A discharge that fails leaves a branch that can only be rolled back."""
        client = self.controller()
        declared = self.control(client, 0, spec.Declare(global_id=XID))
        state = self.control(client, 1, spec.Discharge(txn_id=declared.txn_id, fail=True))
        self.assertIsInstance(state, spec.Accepted)
        self.assertEqual(self.manager.code("prepare"), "RBROLLBACK")

    def test_link_gone(self) -> None:
        """X-31: with its link the association ends with fail."""
        client = self.controller()
        self.control(client, 0, spec.Declare(global_id=XID))
        client.hang_up()
        self.assertEqual(self.manager.code("prepare"), "RBROLLBACK")

    def test_local(self) -> None:
        """X-24: without a global-id all is as before."""
        client = self.controller()
        declared = self.control(client, 0, spec.Declare())
        state = self.control(client, 1, spec.Discharge(txn_id=declared.txn_id))
        self.assertIsInstance(state, spec.Accepted)

    def test_refused(self) -> None:
        """No xid; no right; a branch that is too far on; one that is discharged twice."""
        client = self.controller()
        for number, wrong in enumerate((b"", b"xid", codec.encode("xid"), "xid", [1, 2, 3])):
            state = self.control(client, number, spec.Declare(global_id=wrong))
            self.assertEqual(condition(state), "amqp:invalid-field")
        bob = self.controller(BOB)
        state = self.control(bob, 0, spec.Declare(global_id=XID))
        self.assertEqual(condition(state), "amqp:unauthorized-access")
        declared = self.control(client, 6, spec.Declare(global_id=XID))
        self.post(declared.txn_id)
        self.control(client, 7, spec.Discharge(txn_id=declared.txn_id))
        state = self.control(client, 8, spec.Discharge(txn_id=declared.txn_id))
        self.assertEqual(condition(state), "amqp:transaction:unknown-id")
        self.manager.code("prepare")
        state = self.control(client, 9, spec.Declare(global_id=XID))
        self.assertEqual(condition(state), "amqp:illegal-state")


class OperatorTests(DistributedCase):
    """Heuristic decisions through ``$management`` (C-08)."""

    def setUp(self) -> None:
        super().setUp()
        self.operator = Requester(self.house, MANAGEMENT)
        self.work()
        self.manager.code("end")
        self.manager.code("prepare")

    def rows(self) -> list[dict[str, Any]]:
        """Ask for the branches."""
        _, found = self.operator.ask("QUERY", entityType="branch")
        names = found["attributeNames"]
        return [dict(zip(names, row, strict=True)) for row in found["results"]]

    def status(self, operation: str, name: str = NAME) -> int:
        """Give a command; return the status of the answer."""
        properties, _ = self.operator.ask(operation, name=name)
        status: int = properties["statusCode"]
        return status

    def test_list(self) -> None:
        """Branches with their owners and times."""
        self.app.run(5)
        (row,) = self.rows()
        self.assertEqual(
            {key: row[key] for key in ("name", "owner", "state", "operations", "age-ms")},
            {"name": NAME, "owner": "user:ann", "state": "prepared", "operations": 2,
             "age-ms": 5000},
        )  # fmt: skip

    def test_commit(self) -> None:
        """Committed; its manager is told until it forgets."""
        self.assertEqual((self.status("COMMIT-BRANCH"), self.counts()), (200, (1, 1, 1)))
        self.assertEqual(self.rows()[0]["state"], "heuristically committed")
        self.assertEqual(self.manager.code("rollback"), "HEURCOM")
        self.assertEqual((self.manager.code("forget"), self.rows()), ("OK", []))

    def test_roll_back(self) -> None:
        """Rolled back; forgotten by the operator."""
        self.assertEqual((self.status("ROLL-BACK-BRANCH"), self.counts()), (200, (2, 2, 0)))
        self.assertEqual(self.manager.code("commit"), "HEURRB")
        self.assertEqual((self.status("FORGET-BRANCH"), self.rows()), (200, []))

    def test_answered_when_done(self) -> None:
        """The answer comes when the disk has it, and says so if it has not."""
        self.house.store.is_held = True
        self.operator.request("COMMIT-BRANCH", name=NAME)
        self.assertEqual(self.operator.replies(), [])
        self.house.store.let_go()
        ((properties, _),) = self.operator.replies()
        self.assertEqual((properties["statusCode"], self.counts()), (200, (1, 1, 1)))

    def test_refused(self) -> None:
        """No name, no branch, nothing to be forgotten yet, nothing to be decided any more."""
        properties, _ = self.operator.ask("COMMIT-BRANCH")
        self.assertEqual(properties["statusCode"], 400)
        self.assertEqual(self.status("COMMIT-BRANCH", "user:ann/1.00.00"), 404)
        self.assertEqual(self.status("FORGET-BRANCH"), 409)
        self.assertEqual(self.status("COMMIT-BRANCH"), 200)
        self.assertEqual(self.status("COMMIT-BRANCH"), 409)
