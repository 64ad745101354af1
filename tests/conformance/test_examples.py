# SPDX-License-Identifier: Apache-2.0
"""The worked examples W of the requirements, as scripts."""

from __future__ import annotations

import itertools
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.errors import ResolveError
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import (
    ACCEPTED,
    Network,
    attach,
    bare,
    body_of,
    condition,
    frame,
    header_of,
    message,
    section,
    section_of,
)


class ExampleTests(SynchronousTestCase):
    """One test for each."""

    def setUp(self) -> None:
        self.world = Network()

    def test_w01_point_to_point(self) -> None:
        """W-01, P-19: five messages, three accepted, the connection lost, two left."""
        house = self.world.house()
        producer = house.client().ready("producer")
        producer.sender()
        for number in range(1, 6):
            producer.publish(number, message(b"%d" % number))
        first = house.client().ready("first")
        first.receiver(credit=10, source=spec.Source(address="q", distribution_mode="move"))
        self.assertEqual(first.bodies(), [b"1", b"2", b"3", b"4", b"5"])
        first.dispose(0, 2)
        first.hang_up()
        second = house.client().ready("second")
        second.receiver(credit=10)
        got = second.messages()
        self.assertEqual([body_of(each) for each in got], [b"4", b"5"])
        self.assertFalse(any(header_of(each).first_acquirer for each in got))
        second.dispose(0, 1)
        self.assertEqual(house.depth(), 0)

    def test_w07_settling_in_bulk(self) -> None:
        """W-07: ranges for batches, and a window that stays open after ten thousand sends."""
        house = self.world.house()
        client = house.client().ready()
        client.sender()
        client.write(*(client.transfer(n, batchable=True) for n in range(10)))
        answers = client.all(spec.Disposition)
        self.assertLessEqual(len(answers), 2)
        self.assertTrue(all(each.settled for each in answers))
        number, settled = 10, 10
        encoded = message(b"x")
        while number < 10_000:
            client.write(*(client.transfer(n, encoded) for n in range(number, number + 100)))
            number += 100
            for each in client.all(spec.Disposition):
                settled += (each.first if each.last is None else each.last) - each.first + 1
        self.assertEqual(settled, number)
        self.assertTrue(client.none(spec.Detach) and client.none(spec.End))
        flow = client.all(spec.Flow)[-1]
        self.assertGreater((flow.next_incoming_id or 0) + flow.incoming_window, number)

    def test_w08_rpc(self) -> None:
        """W-08: a dynamic reply address, a reply by the null target, gone after the detach."""
        house = self.world.house(nodes=["service"])
        caller = house.client().ready("caller")
        source = spec.Source(dynamic=True)
        address = caller.receiver(None, source=source, credit=5).source.address
        caller.sender("service", handle=1)
        caller.publish(0, message(b"?", reply_to=address, message_id=b"m"), handle=1)
        server = house.client().ready("server")
        server.receiver("service", credit=1)
        (request,) = server.messages()
        asked = section_of(request, spec.SECTION_PROPERTIES)
        server.sender(None, handle=1)
        reply = message(b"!", to=asked.reply_to, correlation_id=asked.message_id)
        server.publish(0, reply, handle=1)
        caller.run()
        (answer,) = caller.messages()
        self.assertEqual(bare(answer), reply)
        caller.send(spec.Detach(handle=0, closed=True))
        server.publish(1, reply, handle=1)
        states = [each.state for each in server.all(spec.Disposition)]
        self.assertEqual(condition(states[-1]), "amqp:not-found")

    def test_w08_rpc_across_brokers(self) -> None:
        """W-08, A-02: the same with the server behind another broker."""
        near = self.world.house("a.test", nodes=[], qualify=True)
        far = self.world.house("b.test", nodes=["service"])
        caller = near.client().ready("caller")
        source = spec.Source(dynamic=True)
        address = caller.receiver(None, source=source, credit=5).source.address
        self.assertTrue(address.endswith("@a.test"))
        caller.sender("service@b.test", handle=1)
        caller.publish(0, message(b"?", reply_to=address), handle=1)
        self.world.advance(1)
        server = far.client().ready("server")
        server.receiver("service", credit=1)
        (request,) = server.messages()
        server.sender(None, handle=1)
        back = section_of(request, spec.SECTION_PROPERTIES).reply_to
        server.publish(0, message(b"!", to=back), handle=1)
        self.world.advance(1)
        caller.run()
        self.assertEqual(caller.bodies(), [b"!"])

    def test_w10_shared_work_queue(self) -> None:
        """W-10, Q-29, Q-30, Q-32: ninety messages, three consumers, one of them idle."""
        house = self.world.house()
        consumers = [house.client().ready(f"c{number}") for number in range(3)]
        for consumer in consumers:
            consumer.receiver()
        for consumer in consumers[:2]:
            consumer.credit(100)
        consumers[0].fill([b"%d" % number for number in range(90)])
        got = []
        for consumer in consumers:
            consumer.run()
            got.append(consumer.bodies())
        self.assertEqual(len(set(got[0] + got[1])), 90)
        self.assertEqual(got[2], [])
        for each in got[:2]:
            self.assertTrue(36 <= len(each) <= 54, len(each))

    def test_w10_backlog(self) -> None:
        """W-10, Q-29: a backlog is shared, too, where both consumers come to it."""
        house = self.world.house()
        consumers = [house.client().ready(f"c{number}") for number in range(2)]
        consumers[0].fill([b"%d" % number for number in range(90)])
        got: list[list[bytes]] = [[], []]
        for consumer in consumers:
            consumer.receiver()
        for step in range(10):
            for mine, consumer in zip(got, consumers, strict=True):
                count = len(mine)
                consumer.credit(5, delivery_count=count, next_incoming_id=count)
                mine.extend(consumer.bodies())
            self.assertLessEqual(abs(len(got[0]) - len(got[1])), 5, step)
        self.assertEqual(sorted(map(int, got[0] + got[1])), list(range(90)))

    def test_w11_consuming(self) -> None:
        """W-11: the outcomes of the paper's table, and what is outside of it."""
        house = self.world.house(nodes=[NodeDeclaration("q", QueueLimits(), "dead"), "dead"])
        client = house.client().ready()
        client.fill([b"1", b"2", b"3", b"4"])
        source = spec.Source(
            address="q",
            distribution_mode="move",
            default_outcome=spec.Released(),
            outcomes=(ACCEPTED,),
        )
        answer = client.receiver(None, handle=9, source=source)
        self.assertEqual(answer.source.outcomes, (ACCEPTED,))
        self.assertIsInstance(answer.source.default_outcome, spec.Released)
        self.assertEqual(answer.source.distribution_mode, "move")
        client.credit(1, handle=9)
        (transfer,) = client.all(spec.Transfer)
        self.assertFalse(transfer.settled)
        client.dispose(0, state=spec.Rejected())
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:not-allowed")
        client.receiver("q", handle=1, credit=4)
        self.assertEqual(client.bodies(), [b"1", b"2", b"3", b"4"])
        client.dispose(1, state=spec.Accepted())
        client.dispose(2, state=spec.Released())
        client.dispose(3, state=spec.Rejected())
        client.dispose(4, state=spec.Modified(delivery_failed=True))
        self.assertEqual((house.depth(), house.depth("dead")), (2, 1))
        client.credit(2, handle=1, delivery_count=4, next_incoming_id=5)
        counts = [(body_of(each), header_of(each).delivery_count) for each in client.messages()]
        self.assertEqual(counts, [(b"2", 0), (b"4", 1)])
        client.write(
            frame(spec.Disposition(role=True, first=5, state=spec.Accepted())),
            frame(spec.Disposition(role=True, first=5, state=spec.Rejected())),
        )
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:illegal-state")

    def test_w13_federated_transfer(self) -> None:
        """W-13: a remote queue as if it were local, with the other broker down at first."""
        near = self.world.house("a.test", nodes=[])
        far = self.world.house("b.test", nodes=["q"])
        self.world.down.add("amqp.b.test")
        client = near.client().ready()
        answer = client.sender("q@b.test")
        self.assertEqual(answer.target.address, "q@b.test")
        sent = [
            message(b"%d" % n, header=spec.Header(durable=True), to="q@b.test") for n in range(10)
        ]
        for number, encoded in enumerate(sent):
            client.publish(number, encoded)
        client.run(1)
        states = [each.state for each in client.all(spec.Disposition)]
        self.assertTrue(states and all(isinstance(each, spec.Accepted) for each in states))
        self.assertEqual(far.depth(), 0)
        self.world.down.clear()
        self.world.advance(400)
        reader = far.client().ready()
        reader.receiver(credit=20)
        got = reader.messages()
        self.assertEqual([bare(each) for each in got], [bare(each) for each in sent])
        for each in got:
            annotations = section_of(each, spec.SECTION_MESSAGE_ANNOTATIONS)
            self.assertEqual(list(annotations["x-opt-amqproute-trace"]), ["a.test"])
            self.assertTrue(header_of(each).durable)

    def test_w13_wrong_certificate(self) -> None:
        """W-13: a broker that does not prove the domain's name gets nothing."""
        near = self.world.house("a.test", nodes=[])
        stranger = self.world.house("c.test", nodes=["q"])
        self.world.domains["b.test"] = ["amqp.c.test"]
        client = near.client().ready()
        client.sender("q@b.test")
        client.publish(0, message(header=spec.Header(durable=True)))
        self.world.advance(400)
        client.run()
        self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
        self.assertIn(("amqp.c.test", "b.test"), self.world.connects)
        self.assertEqual((stranger.depth(), stranger.frontends), (0, []))

    def test_w14_relay_failover(self) -> None:
        """W-14: the second SRV target after the first; a domain that takes nothing.

        The kills of W-14 are in `tests.integration.test_crash` and `test_federation`.
        """
        near = self.world.house("a.test", nodes=[])
        far = self.world.house("b.test", nodes=["q"])
        self.world.domains["b.test"] = ["dead.b.test", "amqp.b.test"]
        words = "the domain says that it takes no AMQP"
        self.world.domains["closed.test"] = ResolveError("dns.no-service", words, permanent=True)
        client = near.client().ready()
        client.sender("q@b.test")
        client.publish(0, message(b"x"))
        self.world.advance(2)
        self.assertEqual([host for host, _ in self.world.connects[:2]],
                         ["dead.b.test", "amqp.b.test"])  # fmt: skip
        self.assertEqual(far.depth(), 1)
        client.sender("amqp$transfer", handle=1)
        client.run()
        client.all(spec.Disposition)
        client.publish(1, message(to="q@closed.test"), handle=1)
        client.run(1)
        self.assertEqual(condition(client.one(spec.Disposition).state), "amqp:not-found")

    def test_w14_connection_lost(self) -> None:
        """W-14: the link breaks while the other broker writes: nothing lost, nothing twice."""
        near = self.world.house("a.test", nodes=[])
        far = self.world.house("b.test", nodes=["q"])
        client = near.client().ready()
        client.sender("q@b.test")
        client.publish(0, message(b"0", header=spec.Header(durable=True)))
        self.world.advance(1)
        far.store.is_held = True
        for number in range(1, 20):
            client.publish(number, message(b"%d" % number, header=spec.Header(durable=True)))
        self.world.cut_all()
        far.store.let_go()
        self.world.advance(400)
        reader = far.client().ready()
        reader.receiver(credit=50)
        self.assertEqual(reader.bodies(), [b"%d" % number for number in range(20)])

    def test_w15_aliases_and_access(self) -> None:
        """W-15: a user who may use one alias, and a peer that is no open relay."""
        alice = Principal("user", "alice")
        rules = [
            Rule.of(who="user:alice", node="@b.test", allow=["publish"]),
            Rule.of(who="user:alice", node="*@b.test", allow=["publish"]),
            Rule.of(who="user:alice", node="x", allow=["publish"]),
            Rule.of(who="peer:*", node="*", allow=["transfer"]),
        ]
        house = self.world.house("a.test", access=rules)
        other = self.world.house("b.test", nodes=["x"])
        self.world.house("c.test", nodes=["x"])
        client = house.client(alice).ready()
        client.send(attach("sender", "raw", 0, "amqp$transfer"))
        self.assertIsNone(client.one(spec.Attach).target)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:unauthorized-access")
        client.sender("@b.test", handle=1)
        for number, to in enumerate(("x@c.test", "x", "x@b.test")):
            client.publish(number, message(to=to), handle=1)
        client.run(1)
        states = [type(each.state) for each in client.all(spec.Disposition)]
        self.assertEqual(states, [spec.Rejected, spec.Accepted, spec.Accepted])
        self.world.advance(1)
        self.assertEqual(other.depth("x"), 2)
        client.sender("q@b.test", handle=2)
        client.publish(3, message(to="r@b.test"), handle=2)
        self.assertEqual(condition(client.one(spec.Disposition).state), "amqp:precondition-failed")
        peer = house.client(Principal("peer", "b.test", frozenset({"b.test"}))).ready("b.test")
        peer.sender("amqp$transfer")
        peer.publish(0, message(to="x@c.test"))
        self.assertEqual(condition(peer.one(spec.Disposition).state), "amqp:unauthorized-access")

    def test_w16_management_batch(self) -> None:
        """W-16: a batch that fails leaves nothing; one that is right does all; each command."""
        house = self.world.house()
        client = house.client().ready()
        address = client.receiver(None, source=spec.Source(dynamic=True), credit=100).source.address
        client.sender("amqp$admin", handle=1)
        sent = itertools.count()

        def ask(*lines: str) -> tuple[int, list[int], dict[str, Any], spec.Properties]:
            number = next(sent)
            asked = spec.Properties(message_id=f"m{number}", reply_to=address)
            text = section(spec.SECTION_AMQP_VALUE, "\n".join(lines))
            client.publish(number, codec.encode(asked) + text, handle=1)
            self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
            client.run()
            (reply,) = client.messages()
            properties = section_of(reply, spec.SECTION_PROPERTIES)
            self.assertEqual(properties.correlation_id, f"m{number}")
            self.assertEqual(properties.to, address)
            body = section_of(reply, spec.SECTION_AMQP_VALUE)
            status = section_of(reply, spec.SECTION_APPLICATION_PROPERTIES)["statusCode"]
            return int(status), [int(each["status"]) for each in body["results"]], body, properties

        status, each, body, _ = ask("create queue a", "create link l a b")
        self.assertEqual((status, each, body["committed"]), (404, [424, 404], False))
        client.send(attach("sender", "s", 2, "a"))
        self.assertIsNone(client.one(spec.Attach).target)
        client.all(spec.Detach)
        status, each, body, _ = ask("create queue a", "create queue b", "create link l a b")
        self.assertEqual((status, each, body["committed"]), (200, [201, 201, 201], True))
        client.sender("a", handle=3)
        client.publish(next(sent), message(b"along the link"), handle=3)
        client.run()
        client.all(spec.Disposition)
        self.assertEqual((house.depth("a"), house.depth("b")), (0, 1))
        self.assertEqual(ask("assert queue b with capacity=null")[1], [200])
        self.assertEqual(ask("update queue b with capacity=7")[1], [200])
        self.assertEqual(ask("assert queue b with capacity=8")[1], [409])
        client.receiver("b", handle=4)
        self.assertEqual(ask("rename queue b c")[1], [200])
        client.all(spec.Flow)
        client.credit(1, handle=4)
        self.assertEqual(client.bodies(), [b"along the link"])
        _, each, body, _ = ask("query queue c")
        ((row,),) = [result["attributes"]["entities"] for result in body["results"]]
        self.assertEqual((row["name"], row["depth"], row["acquired"]), ("c", 1, 1))
        self.assertEqual(ask("delete queue c with if-empty=true")[1], [409])
        self.assertEqual(ask("delete queue c", "delete queue a")[1], [204, 204])
        gone = {each.handle: condition(each) for each in client.all(spec.Detach)}
        self.assertEqual(len(gone), 2)
        self.assertEqual(set(gone.values()), {"amqp:resource-deleted"})
        self.assertTrue(client.none(spec.End) and client.none(spec.Close))

    def test_w16_in_a_transaction(self) -> None:
        """W-16, G-04: a command that is part of a transaction is rejected."""
        house = self.world.house()
        client = house.client().ready()
        target = spec.Coordinator(capabilities=(Symbol("amqp:local-transactions"),))
        client.send(attach("sender", "control", 0, None, target=target))
        client.one(spec.Attach)
        client.publish(0, section(spec.SECTION_AMQP_VALUE, spec.Declare()))
        txn_id = client.one(spec.Disposition).state.txn_id
        client.sender("amqp$admin", handle=1)
        text = section(spec.SECTION_AMQP_VALUE, "create queue a")
        asked = codec.encode(spec.Properties(reply_to="q"))
        state = spec.TransactionalState(txn_id=txn_id)
        client.publish(1, asked + text, handle=1, state=state)
        answer = client.one(spec.Disposition)
        self.assertEqual((answer.settled, condition(answer.state)), (True, "amqp:not-allowed"))
        flagged = section(spec.SECTION_MESSAGE_ANNOTATIONS, {Symbol("x-opt-non-transacted"): True})
        other = section(spec.SECTION_AMQP_VALUE, "create queue b")
        client.publish(2, flagged + asked + other, handle=1, state=state)
        self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
        self.assertIn("b", house.broker.nodes)
        self.assertEqual(house.depth(), 1)
        discharge = section(spec.SECTION_AMQP_VALUE, spec.Discharge(txn_id=txn_id, fail=True))
        client.publish(3, discharge)
        self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
        self.assertIn("b", house.broker.nodes)
        self.assertNotIn("a", house.broker.nodes)
        self.assertEqual(house.depth(), 1)

    def test_w19_relayed_lifetime(self) -> None:
        """W-19, T-30: what waited for the other broker arrives with less time to live."""
        near = self.world.house("a.test", nodes=[])
        far = self.world.house("b.test", nodes=["q"])
        self.world.down.add("amqp.b.test")
        client = near.client().ready()
        client.sender("q@b.test")
        for number, seconds in enumerate((10, 1000)):
            header = spec.Header(durable=True, ttl=seconds * 1000)
            client.publish(number, message(b"%d" % seconds, header=header))
        self.world.advance(60)
        self.world.down.clear()
        self.world.advance(300)
        reader = far.client().ready()
        reader.receiver(credit=10)
        (got,) = reader.messages()
        self.assertEqual(body_of(got), b"1000")
        self.assertLess(header_of(got).ttl, 940_000)

    def test_w21_routing_faults(self) -> None:
        """W-21: each fault, unsettled and pre-settled."""
        house = self.world.house("a.test")
        self.world.house("b.test")
        for encoded, wanted in (
            (message(), "amqp:precondition-failed"),
            (message(to="nobody"), "amqp:not-found"),
            (
                message(to="q", annotations={"x-opt-amqproute-trace": ["a.test", "b.test"]}),
                "amqp:not-allowed",
            ),
            (message(to="amqp$transfer@a.test"), "amqp:not-allowed"),
            (message(to="amqp$admin@b.test"), "amqp:not-allowed"),
        ):
            client = house.client().ready()
            client.sender("amqp$transfer")
            client.publish(0, encoded)
            self.assertEqual(condition(client.one(spec.Disposition).state), wanted)
            client.publish(1, encoded, settled=True)
            detach = client.one(spec.Detach)
            self.assertEqual(condition(detach), wanted)
            self.assertEqual(detach.error.info["delivery-tag"], b"tag-1")
        self.assertEqual(house.depth(), 0)

    def test_w22_one_off_publish(self) -> None:
        """W-22: from header to close in one write: stored, with clean ends."""
        house = self.world.house()
        client = house.client()
        client.write(
            b"AMQP\x00\x01\x00\x00",
            frame(spec.Open(container_id="once")),
            frame(spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
            frame(attach("sender", "s", 0, "q")),
            *(client.transfer(n) for n in range(3)),
            frame(spec.Detach(handle=0, closed=True)),
            frame(spec.End()),
            frame(spec.Close()),
        )
        for kind in (spec.Detach, spec.End, spec.Close):
            self.assertIsNone(condition(client.one(kind)))
        self.assertTrue(client.is_cut)
        self.assertEqual(house.depth(), 3)

    def test_w23_error_scope(self) -> None:
        """W-23: a bad transfer detaches or ends, a bad begin ends, a garbage frame closes."""
        house = self.world.house()
        client = house.client().ready()
        client.sender("amqp$transfer")
        client.publish(0, message(), settled=True)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:precondition-failed")
        properties = {Symbol("error-mode"): Symbol("end")}
        client.sender("amqp$transfer", handle=1, properties=properties)
        client.publish(1, message(), handle=1, settled=True)
        self.assertEqual(condition(client.one(spec.End)), "amqp:precondition-failed")
        client.write(b"\x00\x00\x00\x0c\x02\x00\x00\x05\x00\x53\x11\x45")
        self.assertEqual(client.one(spec.Begin).remote_channel, 5)
        self.assertEqual(condition(client.one(spec.End)), "amqp:invalid-field")
        client.write(b"\x00\x00\x00\x08\x01\x00\x00\x00")
        self.assertEqual(condition(client.one(spec.Close)), "amqp:connection:framing-error")
        client.run(10)
        self.assertTrue(client.is_cut)

    def test_w24_refusals(self) -> None:
        """W-24: null source or target, then a detach with the error."""
        client = self.world.house().client().ready()
        for handle, (role, address, target, wanted) in enumerate(
            (
                ("sender", "nowhere", None, "amqp:not-found"),
                ("receiver", "nowhere", None, "amqp:not-found"),
                (
                    "sender",
                    None,
                    spec.Coordinator(capabilities=(spec.TXN_DISTRIBUTED,)),
                    "amqp:not-implemented",
                ),
                ("sender", "amqp$dtxCoordinator", None, None),
            )
        ):
            fields = {} if target is None else {"target": target}
            client.send(attach(role, f"link-{handle}", handle, address, **fields))
            answer = client.one(spec.Attach)
            self.assertIsNone(answer.target if role == "sender" else answer.source)
            detach = client.one(spec.Detach)
            self.assertTrue(detach.closed)
            self.assertIsNotNone(condition(detach))
            if wanted is not None:
                self.assertEqual(condition(detach), wanted)
