# SPDX-License-Identifier: Apache-2.0
"""The class message: transfers both ways, inline and by reference.

Rules: 09-MSG-01 to -50, 09-X-05, -96 to -110, 3.9, 5.6.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.amqp09 import ordered_answers
from amqproute.store.staging_ledger import StagingTerms
from amqproute.values import Principal
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, call

FIELDS: dict[str, Any] = {
    "priority": 7,
    "delivery_mode": 2,
    "message_id": "m1",
    "correlation_id": "c1",
    "reply_to": "answers",
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "app_id": "app",
    "transaction_id": "t1",
    "security_token": b"\0secret\xff",
    "application_headers": [("a", "S", b"b"), ("n", "I", 7), ("x-b", "l", 1 << 40)],
}
OK = "message.ok"


def inline(body: bytes) -> tuple[int, bytes]:
    return 0, body


def by_reference(name: bytes) -> tuple[int, bytes]:
    return 1, name


class MessageCase(SynchronousTestCase):
    """A broker with a queue `q`, and clients of 0-9."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.connected()

    def connected(self, version: bytes = V09, **more: Any) -> Client09:
        return Client09(self.house, version=version, **more).channel()

    @property
    def staging(self) -> Any:
        return self.house.store.staging

    def transfer(
        self, *bodies: bytes, client: Client09 | None = None, key: str = "q", **more: Any
    ) -> list[str]:
        """Publish inline; return the names of the answers."""
        client = client or self.client
        client.methods.clear()
        client.write(
            *(
                call(1, "message.transfer", routing_key=key, body=inline(body), **more)
                for body in bodies
            )
        )
        return client.names()

    def consume(self, client: Client09 | None = None, **more: Any) -> Client09:
        client = client or self.client
        client.methods.clear()
        client.write(call(1, "message.consume", **{"queue": "q", "destination": "c", **more}))
        (first, *client.methods) = client.methods
        self.assertEqual(first[1:], (OK, {}))
        return client

    def transfers(self, client: Client09) -> list[dict[str, Any]]:
        """Return the transfers that have come, and forget them."""
        found = [each for _, name, each in client.methods if name == "message.transfer"]
        client.methods = [each for each in client.methods if each[1] != "message.transfer"]
        return found

    def bodies(self, client: Client09) -> list[bytes]:
        return [each["body"][1] for each in self.transfers(client)]

    def entries(self) -> list[Any]:
        return list(self.house.broker.nodes["q"].state.levels.entries())


class TransferTests(MessageCase):
    """Messages on their way in."""

    def test_published(self) -> None:
        """A transfer is answered when it is kept, and a message like any other."""
        self.assertEqual(self.transfer(b"one", b"two", **FIELDS), [OK, OK])
        one, _ = self.entries()
        message = one.message
        self.assertTrue(message.header.durable)
        self.assertEqual(int(message.header.priority), 7)
        self.assertEqual(message.properties.message_id, "m1")
        self.assertEqual(message.properties.correlation_id, "c1")
        self.assertEqual(message.properties.content_type, "text/plain")
        self.assertEqual(message.annotations["x-opt-message-transaction-id"], "t1")
        self.assertEqual(message.annotations["x-opt-message-security-token"], b"\0secret\xff")
        self.assertEqual(message.application_properties, {"a": "b", "n": 7})
        self.assertIsNotNone(message.properties.creation_time)
        self.assertNotIn("x-opt-content-class", message.annotations)

    def test_round_trip(self) -> None:
        """A consumer of the class gets all fields back; the broker's own are its own."""
        self.transfer(b"one", **FIELDS)
        self.consume()
        (found,) = self.transfers(self.client)
        for name, value in FIELDS.items():
            self.assertEqual(found[name.replace("_", "-")], value, name)
        self.assertEqual(found["body"], inline(b"one"))
        self.assertEqual(found["destination"], "c")
        self.assertEqual((found["exchange"], found["routing-key"]), ("", "q"))
        self.assertEqual(found["timestamp"], self.house.world.now_ms() // 1000)
        self.assertEqual((found["ttl"], found["expiration"], found["redelivered"]), (0, 0, 0))

    def test_ttl(self) -> None:
        """The broker sets the time of expiry; what has expired is not delivered."""
        now = self.house.world.now_ms()
        self.transfer(b"one", ttl=5000)
        (entry,) = self.entries()
        self.assertEqual(int(entry.message.header.ttl), 5000)
        self.consume()
        (found,) = self.transfers(self.client)
        self.assertEqual((found["ttl"], found["expiration"]), (5000, now + 5000))
        self.assertEqual(found["expiration"] - 1000 * found["timestamp"], 5000 + now % 1000)
        self.client.write(call(1, OK))
        other = self.connected()
        self.client.ask("message.cancel", destination="c")
        self.transfer(b"two", ttl=5000, client=other)
        self.house.world.advance(6)
        self.consume()
        self.assertEqual(self.transfers(self.client), [])

    def test_expiration(self) -> None:
        """A time of expiry without ttl is kept as one."""
        when = self.house.world.now_ms() + 50_000
        self.transfer(b"one", expiration=when)
        (entry,) = self.entries()
        self.assertEqual(int(entry.message.properties.absolute_expiry_time), when)
        self.consume()
        (found,) = self.transfers(self.client)
        self.assertEqual((found["ttl"], found["expiration"]), (0, when))

    def test_redelivered(self) -> None:
        """A client that passes a message on may say that it was delivered before."""
        self.transfer(b"one", redelivered=1)
        self.consume()
        (found,) = self.transfers(self.client)
        self.assertEqual((found["redelivered"], found["application-headers"]), (1, []))

    def test_basic(self) -> None:
        """basic and message count as one class: each reads what the other publishes."""
        self.transfer(b"one", **FIELDS)
        self.client.publish(
            b"two", properties={"message-id": "m2", "type": "t", "headers": [("a", "I", 1)]}
        )
        self.client.ask("basic.get", queue="q", no_ack=1)
        ((_, _, _, properties, body),) = self.client.contents
        self.assertEqual((body, properties["message-id"]), (b"one", "m1"))
        headers = {name: value for name, _, value in properties["headers"]}
        self.assertEqual(headers["x-opt-message-transaction-id"], b"t1")
        self.consume()
        (found,) = self.transfers(self.client)
        self.assertEqual((found["body"][1], found["message-id"]), (b"two", "m2"))
        self.assertEqual(
            found["application-headers"], [("a", "I", 1), ("x-opt-basic-type", "S", b"t")]
        )

    def test_refused(self) -> None:
        """An exchange that is not there, a right that is not, a message nobody takes at once."""
        refused = self.client.refused("message.transfer", destination="none", body=inline(b""))
        self.assertEqual(refused, ("channel", 404))
        self.client.methods.clear()
        self.client.write(
            call(1, "message.transfer", routing_key="q", immediate=1, body=inline(b"x"))
        )
        ((_, name, arguments),) = self.client.methods
        self.assertEqual((name, arguments["code"]), ("message.reject", 1))
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.transfer(b"x", key="nowhere"), [OK])
        house = Network().house(access=[])
        client = Client09(house, version=V09).channel()
        refused = client.refused("message.transfer", routing_key="q", body=inline(b"x"))
        self.assertEqual(refused, ("channel", 403))

    def test_transactions(self) -> None:
        """A transfer in a transaction is answered at once, and handed on when it is committed."""
        self.client.ask("tx.select")
        self.assertEqual(self.transfer(b"one"), [OK])
        self.assertEqual(self.client.depth(), 0)
        self.client.ask("tx.commit")
        self.assertEqual(self.client.depth(), 1)
        self.consume()
        self.transfers(self.client)
        self.client.write(call(1, OK))
        self.assertEqual(self.client.depth(), 1)
        self.client.ask("tx.rollback")
        self.client.write(call(1, OK))
        self.client.ask("tx.commit")
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.client.refused("message.recover", requeue=1), ("channel", 406))

    def test_unknown(self) -> None:
        """0-9-1 has no class message."""
        client = self.connected(V091)
        client.write(call(1, "message.qos"))
        self.assertEqual(client.closes(), [("connection", 503)])

    def test_unanswered(self) -> None:
        """A client that asks without end, and lets no answer out, is not read any more."""
        self.patch(ordered_answers, "MOST_UNANSWERED", 10)
        client = self.client
        client.write(call(1, "message.open", reference=b"r"))
        client.methods.clear()
        client.write(call(1, "message.transfer", body=by_reference(b"r"), routing_key="q"))
        self.house.store.is_held = True
        for _ in range(20):
            client.write(call(1, "message.append", reference=b"r", bytes=b"x"))
        self.assertEqual(client.end.producerState, "paused")
        self.house.store.let_go()
        client.run()
        self.assertEqual(client.end.producerState, "producing")
        client.write(call(1, "message.close", reference=b"r"))
        self.assertEqual(client.names(), [OK] * 22)


class ReferenceTests(MessageCase):
    """Bodies that come by reference."""

    def ask(self, name: str, client: Client09 | None = None, **arguments: Any) -> list[str]:
        return (client or self.client).ask(f"message.{name}", **arguments)

    def test_published(self) -> None:
        """open, append, transfer, close: one message with all that was appended."""
        self.assertEqual(self.ask("open", reference=b"r"), [OK])
        for part in (b"one", b"", b"two"):
            self.assertEqual(self.ask("append", reference=b"r", bytes=part), [OK])
        transfer = {"routing_key": "q", "body": by_reference(b"r"), **FIELDS}
        self.assertEqual(self.ask("transfer", **transfer), [])
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.ask("close", reference=b"r"), [OK, OK])
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(self.staging.use(), (0, 0))
        self.consume()
        (found,) = self.transfers(self.client)
        self.assertEqual((found["body"], found["message-id"]), (inline(b"onetwo"), "m1"))

    def test_ahead(self) -> None:
        """A client that waits for no answer may transfer first; answers keep the order."""
        self.client.methods.clear()
        self.client.write(
            call(1, "message.open", reference=b"r"),
            call(1, "message.transfer", routing_key="q", body=by_reference(b"r")),
            call(1, "message.append", reference=b"r", bytes=b"body"),
            call(1, "message.transfer", routing_key="q", body=by_reference(b"r")),
            call(1, "message.transfer", routing_key="q", body=inline(b"inline")),
            call(1, "message.qos"),
        )
        self.assertEqual(self.client.names(), [OK])
        self.client.write(call(1, "message.close", reference=b"r"))
        self.assertEqual(self.client.names(), [OK] * 6)
        self.consume()
        self.assertEqual(self.bodies(self.client), [b"inline", b"body", b"body"])

    def test_scope(self) -> None:
        """One reference is in scope for each channel; what is not in scope is not found."""
        for name, more in (
            ("append", {"bytes": b"x"}),
            ("checkpoint", {"identifier": "i"}),
            ("close", {}),
        ):
            refused = self.client.refused(f"message.{name}", reference=b"r", **more)
            self.assertEqual(refused, ("channel", 404), name)
        refused = self.client.refused("message.transfer", body=by_reference(b"r"))
        self.assertEqual(refused, ("channel", 404))
        refused = self.client.refused("message.resume", reference=b"r", identifier="none")
        self.assertEqual(refused, ("channel", 404))
        for name, reference in (("open", b"r"), ("open", b"s"), ("resume", b"r")):
            client = self.connected().channel(2)
            client.ask("message.open", reference=b"r")
            self.assertEqual(client.ask("message.open", 2, reference=b"r"), [OK])
            refused = client.refused(f"message.{name}", reference=reference)
            self.assertEqual(refused, ("connection", 503), name)

    def test_resumed(self) -> None:
        """Cut anywhere, it goes on at its last checkpoint, over another connection."""
        steps = [call(1, "message.open", reference=b"r")]
        for number in range(4):
            steps.append(call(1, "message.append", reference=b"r", bytes=b"%d" % number * 10))
            if number % 2:
                steps.append(call(1, "message.checkpoint", reference=b"r", identifier="i"))
        whole = b"".join(steps)
        first = sum(map(len, steps[:4]))
        body = b"".join(b"%d" % number * 10 for number in range(4))
        for cut in range(len(whole) + 1):
            client = self.connected()
            client.write(whole[:cut])
            client.hang_up()
            client = self.connected()
            at = 0
            if cut < first:
                self.assertEqual(self.staging.use(), (0, 0))
                client.ask("message.open", reference=b"s")
            else:
                answer = client.answer("message.resume", reference=b"s", identifier="i")
                at = answer["value"]
                self.assertEqual(at, 40 if cut == len(whole) else 20)
            client.ask("message.append", reference=b"s", bytes=body[at:])
            client.ask("message.transfer", routing_key="q", body=by_reference(b"s"))
            self.assertEqual(client.ask("message.close", reference=b"s"), [OK, OK])
            client.methods.clear()
            self.consume(client, no_ack=1)
            self.assertEqual(self.bodies(client), [body])
            client.hang_up()
            self.assertEqual(self.staging.use(), (0, 0))

    def test_kept(self) -> None:
        """One with a checkpoint that is closed unused is kept; of another user, not found."""
        self.ask("open", reference=b"r")
        self.ask("append", reference=b"r", bytes=b"abc")
        self.assertEqual(self.ask("checkpoint", reference=b"r", identifier="i"), [OK])
        self.ask("append", reference=b"r", bytes=b"def")
        self.assertEqual(self.ask("close", reference=b"r"), [OK])
        bob = self.connected(principal=Principal("user", "bob"))
        refused = bob.refused("message.resume", reference=b"r", identifier="i")
        self.assertEqual(refused, ("channel", 404))
        answer = self.client.answer("message.resume", reference=b"x", identifier="i")
        self.assertEqual(answer, {"value": 3})
        self.ask("open", reference=b"other", client=self.connected())
        self.assertEqual(
            self.client.refused("message.checkpoint", reference=b"x"), ("channel", 406)
        )

    def test_bounds(self) -> None:
        """Appended octets are bounded for each content, user and in sum; so is their number."""
        self.staging.terms = StagingTerms(1000, 1500, 2000, 2, 3)
        client = self.connected().channel(2, 3)
        for number in (1, 2):
            client.ask("message.open", number, reference=b"r")
        self.assertEqual(client.refused("message.open", 3, reference=b"r"), ("connection", 506))
        for sizes in ((500, 501), (990, 500)):
            client = self.connected()
            client.ask("message.open", reference=b"r")
            client.ask("message.append", reference=b"r", bytes=bytes(sizes[0]))
            if sizes[1] == 500:
                other = self.connected()
                other.ask("message.open", reference=b"r")
                refused = other.refused("message.append", reference=b"r", bytes=bytes(600))
            else:
                refused = client.refused("message.append", reference=b"r", bytes=bytes(sizes[1]))
            self.assertEqual(refused, ("channel", 311))
            client.hang_up()

    def test_large(self) -> None:
        """A body that does not fit into memory goes through the disk, both ways."""
        body = bytes(range(251)) * 10_000
        self.ask("open", reference=b"r")
        for at in range(0, len(body), 100_000):
            self.assertEqual(
                self.ask("append", reference=b"r", bytes=body[at : at + 100_000]), [OK]
            )
        self.ask("transfer", routing_key="q", body=by_reference(b"r"), **FIELDS)
        self.client.methods.clear()
        self.client.write(call(1, "message.close", reference=b"r"))
        for _ in range(100):
            self.client.run()
        self.assertEqual(self.client.names(), [OK, OK])
        (entry,) = self.entries()
        self.assertIsNotNone(entry.message.rest)
        self.assertEqual(self.staging.use(), (0, 0))
        found, transfer = self.received(self.consume(self.connected()))
        self.assertEqual(found, body)
        self.assertEqual(transfer["message-id"], "m1")
        self.assertEqual(self.client.depth(), 0)

    def received(self, client: Client09, most: int = 2) -> tuple[bytes, dict[str, Any]]:
        """Take a message by reference, answer everything; return body and transfer."""
        body, reference, names = b"", b"", []
        transfer: dict[str, Any] = {}
        for _ in range(1000):
            client.run()
            methods, client.methods = client.methods, []
            self.assertLessEqual(len([1 for _, name, _ in methods if "append" in name]), most)
            for channel, name, arguments in methods:
                names.append(name)
                if name == "message.append":
                    self.assertEqual(arguments["reference"], reference)
                    body += arguments["bytes"]
                elif name == "message.open":
                    reference = arguments["reference"]
                elif name == "message.transfer":
                    self.assertEqual(arguments["body"], by_reference(reference))
                    transfer = arguments
                client.write(call(channel, OK))
            if names[-1:] == ["message.close"]:
                break
        self.assertEqual((names[0], names[-2]), ("message.open", "message.transfer"))
        return body, transfer

    def test_frame_max(self) -> None:
        """Contents too large for the client's frames are sent by reference, in frames that fit."""
        self.transfer(b"x" * 9000)
        client = self.connected(frame_max=4096)
        body, _ = self.received(self.consume(client))
        self.assertEqual(body, b"x" * 9000)
        self.assertEqual(client.depth(), 0)

    def test_not_wanted(self) -> None:
        """A client that rejects open or append gets no more of it."""
        for answers in ([], [OK]):
            self.transfer(b"x" * 9000)
            client = self.connected(frame_max=4096)
            self.consume(client)
            client.methods.clear()
            for each in answers:
                client.write(call(1, each))
            client.write(call(1, "message.reject", code=0, text="no"))
            client.run()
            self.assertEqual(client.depth(), 0)
            self.assertNotIn("message.transfer", client.names())
            client.hang_up()

    def test_cut_outgoing(self) -> None:
        """A consumer that goes in the middle has nothing of it; another one gets it."""
        self.transfer(b"x" * 9000)
        client = self.connected(frame_max=4096)
        self.consume(client)
        client.write(call(1, OK))
        client.hang_up()
        body, transfer = self.received(self.consume(self.connected(frame_max=4096)))
        self.assertEqual((body, transfer["redelivered"]), (b"x" * 9000, 1))


class ConsumeTests(MessageCase):
    """Messages on their way out."""

    def test_answers(self) -> None:
        """ok accepts and reject refuses, in the order of the transfers, by its codes."""
        self.transfer(b"1", b"2", b"3")
        client = self.consume()
        self.assertEqual(self.bodies(client), [b"1", b"2", b"3"])
        client.write(call(1, OK))
        self.assertEqual([each.message.encoded[-1:] for each in self.entries()], [])
        self.assertEqual(client.depth(), 2)
        client.write(call(1, "message.reject", code=0, text="bad"))
        self.assertEqual(client.depth(), 1)
        client.write(call(1, "message.reject", code=1, text="not now"))
        (again,) = self.transfers(client)
        self.assertEqual((again["body"][1], again["redelivered"]), (b"3", 1))
        client.write(call(1, OK))
        self.assertEqual(client.depth(), 0)
        for name, more, code in ((OK, {}, 503), ("message.empty", {}, 503)):
            refused = self.consume(self.connected()).refused(name, **more)
            self.assertEqual(refused, ("connection", code))

    def test_reject_code(self) -> None:
        """A code of reject that is not defined: 502."""
        self.transfer(b"1")
        refused = self.consume().refused("message.reject", code=2, text="x")
        self.assertEqual(refused, ("connection", 502))

    def test_no_ack(self) -> None:
        """Without acknowledgement no answer is expected, and one that comes is ignored."""
        self.transfer(b"1", b"2")
        client = self.consume(no_ack=1)
        self.assertEqual(self.bodies(client), [b"1", b"2"])
        self.assertEqual(client.depth(), 0)
        client.write(call(1, OK), call(1, OK), call(1, OK))
        self.assertEqual(client.closes(), [])

    def test_windows(self) -> None:
        """qos bounds what is sent ahead, in messages and octets."""
        self.transfer(*[b"12345"] * 4)
        for arguments, expected in (
            ({"prefetch_count": 2}, 2),
            ({"prefetch_size": 12}, 2),
            ({"prefetch_size": 4}, 1),
            ({"prefetch_count": 3, "global": 1}, 3),
        ):
            client = self.connected()
            self.assertEqual(client.ask("message.qos", **arguments), [OK])
            self.consume(client)
            self.assertEqual(len(self.transfers(client)), expected)
            client.write(call(1, "message.reject", code=1, text=""))
            self.assertEqual(len(self.transfers(client)), 1)
            client.hang_up()

    def test_cut(self) -> None:
        """Unanswered deliveries are redelivered after the end of the connection."""
        self.transfer(b"1", b"2")
        client = self.consume()
        client.write(call(1, OK))
        client.hang_up()
        (again,) = self.transfers(self.consume(self.connected()))
        self.assertEqual((again["body"][1], again["redelivered"]), (b"2", 1))

    def test_get(self) -> None:
        """get is answered by ok and a transfer, or by empty."""
        self.assertEqual(self.client.ask("message.get", queue="q"), ["message.empty"])
        self.client.write(
            call(1, "message.transfer", routing_key="q", body=inline(b"1")),
            call(1, "message.transfer", routing_key="q", body=inline(b"2")),
        )
        names = self.client.ask("message.get", queue="q", destination="mine")
        self.assertEqual(names, [OK, "message.transfer"])
        (found,) = self.transfers(self.client)
        self.assertEqual((found["destination"], found["body"][1]), ("mine", b"1"))
        self.client.write(call(1, OK))
        self.assertEqual(self.client.depth(), 1)
        self.client.ask("message.get", queue="q", no_ack=1)
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.client.refused("message.get"), ("connection", 530))

    def test_recover(self) -> None:
        """recover has all that is unanswered sent again, to the same or to any consumer."""
        self.transfer(b"1", b"2")
        client = self.consume()
        self.transfers(client)
        client.methods.clear()
        client.write(call(1, "message.recover"))
        names = [name for _, name, _ in client.methods]
        self.assertEqual(names, [OK, "message.transfer", "message.transfer"])
        self.assertEqual([each["redelivered"] for each in self.transfers(client)], [1, 1])
        client.methods.clear()
        client.write(call(1, "message.recover", requeue=1))
        self.assertEqual(self.bodies(client), [b"1", b"2"])
        client.write(call(1, OK), call(1, OK))
        self.assertEqual(client.depth(), 0)
        self.assertEqual(client.ask("message.recover"), [OK])

    def test_cancel(self) -> None:
        """After the answer to cancel nothing comes; a consumer that is not there is no error."""
        self.consume()
        self.assertEqual(self.client.ask("message.cancel", destination="c"), [OK])
        self.assertEqual(self.transfer(b"1"), [OK])
        self.assertEqual(self.client.ask("message.cancel", destination="c"), [OK])

    def test_destinations(self) -> None:
        """Destinations count per connection, and are used on their channel only."""
        client = self.consume(self.connected()).channel(2)
        self.assertEqual(
            client.refused("message.consume", 2, queue="q", destination="c"), ("connection", 530)
        )
        client = self.consume(self.connected()).channel(2)
        self.assertEqual(client.refused("message.cancel", 2, destination="c"), ("connection", 530))
        self.consume()
        self.assertEqual(self.connected().refused("message.consume"), ("connection", 530))
        self.client.ask("queue.declare", queue="mine")
        self.assertEqual(self.client.ask("message.consume", destination="d"), [OK])

    def test_exclusive(self) -> None:
        """Exclusive access is refused with 403 where there is a consumer."""
        self.consume(exclusive=1)
        other = self.connected()
        self.assertEqual(other.refused("message.consume", queue="q"), ("channel", 403))

    def test_no_local(self) -> None:
        """With no-local a connection does not get what it has published."""
        self.consume(no_local=1)
        self.transfer(b"mine")
        self.transfer(b"other", client=self.connected())
        self.client.run()
        self.assertEqual(self.bodies(self.client), [b"other"])

    def test_priorities(self) -> None:
        """A transfer of priority 9 overtakes those of 0; equal ones keep their order."""
        for number, priority in enumerate((0, 9, 0, 9)):
            self.transfer(b"%d" % number, priority=priority)
        self.consume()
        self.assertEqual(self.bodies(self.client), [b"1", b"3", b"0", b"2"])

    def test_flow(self) -> None:
        """While contents are stopped no transfer is delivered."""
        self.consume()
        self.client.ask("channel.flow", active=0)
        self.transfer(b"1", client=self.connected())
        self.client.run()
        self.assertEqual(self.transfers(self.client), [])
        self.client.write(call(1, "channel.flow", active=1))
        self.assertEqual(self.bodies(self.client), [b"1"])

    def test_tunnel(self) -> None:
        """A consumer of message gets tunnel.request, too."""
        self.consume()
        self.client.put("tunnel.request", b"x", properties={"proxy-name": "q"})
        self.client.run()
        self.assertIn("tunnel.request", [name for _, name, *_ in self.client.contents])
