# SPDX-License-Identifier: Apache-2.0
"""The class file: contents staged in parts, published, staged to consumers and delivered.

Rules: 09-FILE-01 to -41, 09-X-73 to -86, 5.6.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.publish_gate import STORE
from amqproute.store.staging_ledger import StagingTerms
from amqproute.values import Principal
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.plain_amqp09 import frame_octets, header_octets
from tests.support.wire09 import V09, V091, call, content

FILE = 70
BODY = bytes(range(256)) * 3
PROPERTIES: dict[str, Any] = {
    "content-type": "text/plain",
    "content-encoding": "gzip",
    "headers": [("a", "S", b"b"), ("n", "I", 7)],
    "priority": 5,
    "reply-to": "answers",
    "message-id": "m1",
    "filename": "report.txt",
    "timestamp": 1_700_000_000,
    "cluster-id": "c",
}


class FileCase(SynchronousTestCase):
    """A broker with a queue `q`, and clients of 0-9."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.connected()

    def connected(self, version: bytes = V09, **more: Any) -> Client09:
        return Client09(self.house, version=version, **more).channel()

    @property
    def staging(self) -> Any:
        return self.house.store.staging

    def open(self, identifier: str, size: int, client: Client09 | None = None) -> int:
        """Open a content; return what the broker has of it."""
        client = client or self.client
        answer = client.answer("file.open", identifier=identifier, content_size=size)
        return int(answer["staged-size"])

    def stage(
        self,
        body: bytes = BODY,
        identifier: str = "one",
        client: Client09 | None = None,
        properties: dict[str, Any] | None = None,
        pieces: int | None = None,
    ) -> Client09:
        """Open and stage a content as a whole."""
        client = client or self.client
        offset = self.open(identifier, len(body), client)
        return client.write(
            content(1, "file.stage", body[offset:], properties, pieces, class_id=FILE)
        )

    def publish(
        self, body: bytes = BODY, key: str = "q", identifier: str = "one", **more: Any
    ) -> None:
        self.stage(body, identifier, properties=more.pop("properties", None))
        self.client.write(call(1, "file.publish", routing_key=key, identifier=identifier, **more))

    def deliveries(
        self, client: Client09, staged: int = 0
    ) -> list[tuple[dict[str, Any], dict[str, Any], bytes]]:
        """Answer what is opened; return the deliveries: deliver, properties and body."""
        found = []
        while opens := [each for each in client.methods if each[1] == "file.open"]:
            client.methods = [each for each in client.methods if each[1] != "file.open"]
            for channel, _, arguments in opens:
                client.contents.clear()
                client.write(call(channel, "file.open-ok", staged_size=staged))
                if not client.contents:
                    continue
                ((_, name, _, properties, body),) = client.contents
                self.assertEqual(name, "file.stage")
                (deliver,) = [each for _, name, each in client.methods if name == "file.deliver"]
                client.methods = [
                    each for each in client.methods if each[1] not in ("file.deliver", "file.stage")
                ]
                self.assertEqual(deliver["identifier"], arguments["identifier"])
                self.assertEqual(arguments["content-size"], staged + len(body))
                found.append((deliver, properties, body))
        return found

    def consume(self, client: Client09 | None = None, **more: Any) -> Client09:
        client = client or self.client
        client.methods.clear()
        client.write(call(1, "file.consume", **{"queue": "q", "consumer_tag": "c", **more}))
        (first, *client.methods) = client.methods
        self.assertEqual(first[1:], ("file.consume-ok", {"consumer-tag": "c"}))
        return client


class StageTests(FileCase):
    """Contents on their way in."""

    def test_published(self) -> None:
        """A staged content becomes a message, with its properties, and is not staged any more."""
        self.publish(properties=PROPERTIES)
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(self.staging.use(), (0, 0))
        (entry,) = self.house.broker.nodes["q"].state.levels.entries()
        message = entry.message
        self.assertTrue(message.header.durable)
        self.assertEqual(int(message.header.priority), 5)
        self.assertEqual(message.annotations["x-opt-content-class"], "file")
        self.assertEqual(message.annotations["x-opt-file-name"], "report.txt")
        self.assertEqual(message.properties.message_id, "m1")

    def test_round_trip(self) -> None:
        """A consumer of the class gets properties and body as they were staged."""
        self.publish(properties=PROPERTIES)
        self.consume()
        ((deliver, properties, body),) = self.deliveries(self.client)
        self.assertEqual(body, BODY)
        self.assertEqual(properties, PROPERTIES)
        self.assertEqual(deliver["delivery-tag"], 1)
        self.assertEqual((deliver["exchange"], deliver["routing-key"]), ("", "q"))
        self.assertEqual(deliver["redelivered"], 0)

    def test_empty(self) -> None:
        """A content may be empty."""
        self.publish(b"")
        self.consume()
        ((_, _, body),) = self.deliveries(self.client)
        self.assertEqual(body, b"")

    def test_publish_ahead(self) -> None:
        """A publish may be sent before the content is there; it waits for it."""
        self.assertEqual(self.open("one", len(BODY)), 0)
        self.client.write(call(1, "file.publish", routing_key="q", identifier="one"))
        self.assertEqual(self.client.depth(), 0)
        self.client.write(content(1, "file.stage", BODY, class_id=FILE))
        self.assertEqual(self.client.depth(), 1)

    def test_several(self) -> None:
        """Contents are opened in any number, and staged in that order."""
        for name in ("one", "two"):
            self.open(name, 3)
        self.client.put("file.stage", b"111")
        self.client.put("file.stage", b"222")
        for name in ("two", "one"):
            self.client.write(call(1, "file.publish", routing_key="q", identifier=name))
        self.consume()
        self.assertEqual([body for *_, body in self.deliveries(self.client)], [b"222", b"111"])

    def test_resumed(self) -> None:
        """A content that was cut goes on where it stood, over another connection of its user."""
        whole = content(1, "file.stage", BODY, PROPERTIES, 100, class_id=FILE)
        head = len(call(1, "file.stage")) + len(
            frame_octets(2, 1, header_octets(FILE, len(BODY), PROPERTIES))
        )
        for cut in (*range(head - 1, head + 120), *range(head + 120, len(whole), 97), len(whole)):
            client = self.connected()
            self.assertEqual(self.open("one", len(BODY), client), 0)
            client.write(whole[:cut])
            client.hang_up()
            client = self.connected()
            staged = self.open("one", len(BODY), client)
            frames = max(0, cut - head) // 108
            self.assertEqual(staged, min(100 * frames + 68 * (cut == len(whole)), len(BODY)))
            client.put("file.stage", BODY[staged:])
            client.write(call(1, "file.publish", routing_key="q", identifier="one"))
            self.consume(client, no_ack=1)
            ((_, _, body),) = self.deliveries(client)
            self.assertEqual(body, BODY)
            client.hang_up()
            self.assertEqual(self.staging.use(), (0, 0))

    def test_taken_over(self) -> None:
        """The user continues elsewhere before the end of the old connection is noticed."""
        self.open("one", 10)
        other = self.connected()
        self.assertEqual(self.open("one", 10, other), 0)
        self.client.put("file.stage", b"0123456789")
        self.assertEqual(self.client.closes(), [("channel", 405)])
        other.put("file.stage", b"0123456789")
        other.write(call(1, "file.publish", routing_key="q", identifier="one"))
        self.assertEqual(other.depth(), 1)

    def test_other_users(self) -> None:
        """Nobody finds what another user has staged under the same identifier."""
        self.stage()
        bob = self.connected(principal=Principal("user", "bob"))
        self.assertEqual(self.open("one", len(BODY), bob), 0)
        self.assertEqual(self.open("one", len(BODY), self.connected()), len(BODY))

    def test_again(self) -> None:
        """A content that is complete needs a stage without octets, for its properties."""
        self.stage()
        other = self.connected()
        self.assertEqual(self.open("one", len(BODY), other), len(BODY))
        other.put("file.stage", b"", properties={"filename": "f"})
        other.write(call(1, "file.publish", routing_key="q", identifier="one"))
        self.consume()
        ((_, properties, body),) = self.deliveries(self.client)
        self.assertEqual((properties, body), ({"filename": "f"}, BODY))

    def test_another_size(self) -> None:
        """A content of another size by the same identifier is another one."""
        self.stage()
        self.assertEqual(self.open("one", 5, self.connected()), 0)

    def test_wrong(self) -> None:
        """Contents that are not as announced, and stages that nobody has opened."""
        for size, staged, code in ((5, b"1234", 501), (5, b"123456", 501)):
            client = self.connected()
            self.open("wrong", size, client)
            client.put("file.stage", staged)
            self.assertEqual(client.closes(), [("connection", code)])
        client = self.connected()
        client.put("file.stage", b"x")
        self.assertEqual(client.closes(), [("connection", 503)])
        self.assertEqual(
            self.client.refused("file.publish", routing_key="q", identifier="none"),
            ("channel", 404),
        )
        self.assertEqual(self.client.refused("file.open", content_size=5), ("channel", 406))
        self.assertEqual(self.client.refused("file.open-ok", staged_size=5), ("connection", 503))

    def test_bounds(self) -> None:
        """Each bound of the staging, with the code that says so."""
        self.staging.terms = StagingTerms(1000, 1500, 2000, 2, 3)
        client = self.client
        asked = ("file.open",)
        refuse = client.refused
        self.assertEqual(refuse(*asked, identifier="x", content_size=1001), ("channel", 311))
        self.open("one", 1000)
        self.assertEqual(refuse(*asked, identifier="x", content_size=501), ("channel", 311))
        # Channels that were closed have let go of nothing that has a name.
        self.assertEqual(self.staging.use()[0], 1)
        self.open("two", 1)
        self.assertEqual(refuse(*asked, identifier="x", content_size=1), ("connection", 506))
        bob = self.connected(principal=Principal("user", "bob"))
        self.assertEqual(
            bob.refused("file.open", identifier="x", content_size=1000), ("channel", 311)
        )
        self.open("x", 1, bob)
        carl = self.connected(principal=Principal("user", "carl"))
        self.assertEqual(
            carl.refused("file.open", identifier="x", content_size=1), ("connection", 506)
        )

    def test_full_disk(self) -> None:
        """While the disk is full a client that stages is not read, as if it published."""
        self.house.broker.gate.close(STORE, "the disk is full")
        self.client.write(call(1, "file.open", identifier="one", content_size=10))
        self.assertEqual(self.client.end.producerState, "paused")
        self.house.broker.gate.open(STORE)
        self.client.run()
        self.assertEqual(self.client.end.producerState, "producing")

    def test_gone(self) -> None:
        """A channel that ends while its publish is read leaves the content staged, held by none."""
        for size in (700, 3_000_000):
            client = self.connected()
            self.stage(bytes(size), f"gone{size}", client, pieces=100_000)
            client.end.protocol.dataReceived(
                call(1, "file.publish", routing_key="q", identifier=f"gone{size}")
            )
            client.hang_up()
            self.house.world.advance(1.0)
            self.assertEqual(self.staging.held, 0)
            client = self.connected()
            self.assertEqual(self.open(f"gone{size}", size, client), size)
            client.hang_up()

    def test_expired(self) -> None:
        """Content that expired during the client's work is lost to it, and begins again."""
        self.open("one", 10)
        self.staging.terms = StagingTerms(lifetime_ms=0)
        self.staging.expire()
        self.client.put("file.stage", b"0123456789")
        self.assertEqual(self.client.closes(), [("channel", 405)])

    def test_not_at_all_elsewhere(self) -> None:
        """0-9-1 has no class file, and what is staged is staged for nobody there."""
        client = self.connected(V091)
        client.write(call(1, "file.open", identifier="x", content_size=1))
        self.assertEqual(client.closes(), [("connection", 503)])


class PublishTests(FileCase):
    """The results of publishes."""

    def test_returned(self) -> None:
        """A message that cannot be routed or taken comes back: reason, address, no octets."""
        for flags, code in (({"mandatory": 1}, 312), ({"immediate": 1}, 313)):
            key = "nowhere" if "mandatory" in flags else "q"
            self.client.methods.clear()
            self.client.contents.clear()
            self.publish(key=key, properties={"filename": "f"}, **flags)
            ((_, name, arguments, properties, body),) = self.client.contents
            self.assertEqual((name, arguments["reply-code"]), ("file.return", code))
            self.assertEqual((arguments["exchange"], arguments["routing-key"]), ("", key))
            self.assertEqual((properties, body), ({"filename": "f"}, b""))
        self.assertEqual(self.client.depth(), 0)
        self.publish(key="nowhere")
        self.assertEqual(self.staging.use(), (0, 0))

    def test_exchanges(self) -> None:
        """An exchange that is not there closes the channel; one that is there routes."""
        self.stage()
        refused = self.client.refused("file.publish", exchange="none", identifier="one")
        self.assertEqual(refused, ("channel", 404))
        self.client.ask("queue.bind", queue="q", exchange="amq.topic", routing_key="a.*")
        self.stage()
        self.client.write(
            call(1, "file.publish", exchange="amq.topic", routing_key="a.b", identifier="one")
        )
        self.consume()
        ((deliver, _, _),) = self.deliveries(self.client)
        self.assertEqual((deliver["exchange"], deliver["routing-key"]), ("amq.topic", "a.b"))

    def test_transactions(self) -> None:
        """Publishes and acknowledgements take part in transactions; a rollback keeps the stage."""
        self.client.ask("tx.select")
        self.publish()
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.staging.use()[0], 1)
        self.client.ask("tx.rollback")
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.staging.use()[0], 1)
        self.client.write(call(1, "file.publish", routing_key="q", identifier="one"))
        self.assertEqual(self.client.ask("tx.commit"), ["tx.commit-ok"])
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(self.staging.use(), (0, 0))
        self.consume()
        ((deliver, _, _),) = self.deliveries(self.client)
        self.client.write(call(1, "file.ack", delivery_tag=deliver["delivery-tag"]))
        self.assertEqual(self.client.depth(), 1)
        self.client.ask("tx.commit")
        self.assertEqual(self.client.depth(), 0)

    def test_large(self) -> None:
        """A content too large for memory is published from the disk, and staged in parts."""
        body = bytes(range(251)) * 10_000
        self.stage(body, pieces=100_000)
        self.client.write(call(1, "file.publish", routing_key="q", identifier="one"))
        for _ in range(100):
            self.client.run()
        self.assertEqual(self.client.depth(), 1)
        (entry,) = self.house.broker.nodes["q"].state.levels.entries()
        self.assertIsNotNone(entry.message.rest)
        self.assertEqual(self.staging.use(), (0, 0))
        for staged in (0, 1_000_003, len(body)):
            client = (
                self.consume(self.connected(), no_ack=1)
                if staged == len(body)
                else (self.consume(self.connected()))
            )
            for _ in range(50):
                client.run()
            (opened,) = [each for each in client.methods if each[1] == "file.open"]
            self.assertEqual(opened[2]["content-size"], len(body))
            client.write(call(1, "file.open-ok", staged_size=staged))
            for _ in range(100):
                client.run()
            ((_, _, _, _, octets),) = client.contents
            self.assertEqual(octets, body[staged:])
            self.assertEqual(client.methods[-1][1], "file.deliver")
            client.hang_up()
        self.assertEqual(self.client.depth(), 0)

    def test_rights(self) -> None:
        """Without the right to publish there the channel is closed, and nothing is put."""
        self.house = Network().house(access=[])
        self.client = self.connected()
        self.publish()
        self.assertEqual(self.client.closes(), [("channel", 403)])
        self.assertEqual(self.client.depth(), 0)


class ConsumeTests(FileCase):
    """Contents on their way out."""

    def test_of_its_class(self) -> None:
        """Consumers of file get files, consumers of basic get none; 0-9-1 gets all."""
        self.publish(properties={"filename": "f"})
        self.client.publish(b"basic")
        self.client.ask("basic.get", queue="q")
        self.assertEqual(self.client.bodies(), [b"basic"])
        self.assertEqual(self.client.ask("basic.get", queue="q"), ["basic.get-empty"])
        other = self.connected(V091)
        other.ask("basic.get", queue="q")
        ((_, _, _, properties, body),) = other.contents
        self.assertEqual(body, BODY)
        headers = {name: value for name, _, value in properties["headers"]}
        self.assertEqual(headers["x-opt-file-name"], b"f")

    def test_settled(self) -> None:
        """ack, alone and for all before it; reject with requeue and without."""
        for number in range(5):
            self.publish(b"%d" % number, identifier=f"i{number}")
        client = self.consume()
        tags = [deliver["delivery-tag"] for deliver, *_ in self.deliveries(client)]
        self.assertEqual(tags, [1, 2, 3, 4, 5])
        client.write(call(1, "file.ack", delivery_tag=2, multiple=1))
        self.assertEqual(client.depth(), 3)
        client.write(call(1, "file.reject", delivery_tag=3, requeue=0))
        self.assertEqual(client.depth(), 2)
        client.write(call(1, "file.reject", delivery_tag=4, requeue=1))
        ((deliver, _, body),) = self.deliveries(client)
        self.assertEqual((body, deliver["redelivered"]), (b"3", 1))
        client.write(call(1, "file.ack", delivery_tag=0, multiple=1))
        self.assertEqual(client.depth(), 0)
        self.assertEqual(client.refused("file.ack", delivery_tag=99), ("channel", 406))
        self.assertEqual(client.refused("file.reject", delivery_tag=99), ("channel", 406))

    def test_windows(self) -> None:
        """qos bounds what is staged ahead in messages and octets, per channel and connection."""
        for number in range(4):
            self.publish(b"12345", identifier=f"i{number}")
        for arguments, expected in (
            ({"prefetch_count": 2}, 2),
            ({"prefetch_size": 12}, 2),
            ({"prefetch_size": 4}, 1),
            ({"prefetch_count": 3, "global": 1}, 3),
        ):
            client = self.connected()
            self.assertEqual(client.ask("file.qos", **arguments), ["file.qos-ok"])
            self.consume(client)
            deliveries = self.deliveries(client)
            self.assertEqual(len(deliveries), expected, arguments)
            client.write(call(1, "file.ack", delivery_tag=0, multiple=1))
            more = self.deliveries(client)
            self.assertEqual(len(more), min(4 - expected, expected))
            for number in range(expected):
                self.publish(b"12345", identifier=f"again{number}")
            client.hang_up()
            self.connected().ask("queue.purge", queue="q")
            for number in range(4):
                self.publish(b"12345", identifier=f"j{number}")

    def test_no_ack(self) -> None:
        """Without acknowledgement it is gone when it is delivered, and not before."""
        self.publish()
        client = self.consume(no_ack=1)
        self.assertEqual(client.depth(), 1)
        client.hang_up()
        self.assertEqual(client.depth(), 1)
        client = self.consume(self.connected(), no_ack=1)
        self.assertEqual(len(self.deliveries(client)), 1)
        self.assertEqual(client.depth(), 0)

    def test_cut(self) -> None:
        """A consumer that was cut in the middle gets the rest by the same identifier."""
        self.publish()
        client = self.consume()
        (opened,) = client.methods
        client.hang_up()
        client = self.consume(self.connected())
        (again,) = client.methods
        self.assertEqual(again[2]["identifier"], opened[2]["identifier"])
        client.write(call(1, "file.open-ok", staged_size=700))
        ((_, _, _, _, body),) = client.contents
        self.assertEqual(body, BODY[700:])
        client.methods.clear()
        self.assertEqual(client.refused("file.open-ok", staged_size=0), ("connection", 503))

    def test_too_much_staged(self) -> None:
        """A client that claims to have more than there is: 502."""
        self.publish()
        client = self.consume()
        client.write(call(1, "file.open-ok", staged_size=len(BODY) + 1))
        self.assertEqual(client.closes(), [("connection", 502)])

    def test_cancel(self) -> None:
        """After cancel-ok nothing comes; what is being staged then is delivered before it."""
        self.publish()
        client = self.consume()
        opened = client.methods
        self.assertEqual([name for _, name, _ in opened], ["file.open"])
        client.write(call(1, "file.cancel", consumer_tag="c"))
        self.publish(b"later", identifier="later")
        client.methods = [each for each in opened if each[1] == "file.open"]
        client.write(call(1, "file.open-ok", staged_size=0))
        names = [name for _, name, _ in client.methods if name != "file.open"]
        self.assertEqual(names, ["file.stage", "file.deliver", "file.cancel-ok"])
        client.write(call(1, "file.ack", delivery_tag=1))
        self.assertEqual(client.depth(), 1)
        self.assertEqual(client.ask("file.cancel", consumer_tag="c"), ["file.cancel-ok"])
        client.methods.clear()
        client.write(call(1, "file.cancel", consumer_tag="c", nowait=1))
        self.assertEqual(client.methods, [])

    def test_flow(self) -> None:
        """While the client has stopped contents none is staged to it."""
        client = self.connected()
        self.consume(client)
        client.ask("channel.flow", active=0)
        self.publish()
        client.run()
        self.assertEqual(client.names(), ["channel.flow-ok"])
        client.write(call(1, "channel.flow", active=1))
        self.assertEqual(len(self.deliveries(client)), 1)

    def test_exclusive(self) -> None:
        """An exclusive consumer is alone: 405, whoever is first."""
        self.consume(exclusive=1)
        other = self.connected()
        refused = other.refused("file.consume", queue="q")
        self.assertEqual(refused, ("channel", 405))
        self.client.ask("file.cancel", consumer_tag="c")
        self.consume(other, consumer_tag="c")
        refused = self.client.refused("file.consume", queue="q", exclusive=1)
        self.assertEqual(refused, ("channel", 405))

    def test_tags(self) -> None:
        """Tags count per connection; an empty one is made up; a queue must be known."""
        self.consume()
        client = self.client.channel(2)
        self.assertEqual(
            client.refused("file.consume", 2, queue="q", consumer_tag="c"), ("connection", 530)
        )
        client = self.connected()
        found = client.answer("file.consume", queue="q")["consumer-tag"]
        self.assertTrue(found)
        client.methods.clear()
        client.write(call(1, "file.consume", queue="q", nowait=1))
        self.assertEqual(client.methods, [])
        self.assertEqual(client.refused("file.consume"), ("connection", 530))

    def test_last_declared(self) -> None:
        """An empty queue name is the queue last declared on the channel."""
        self.client.ask("queue.declare", queue="mine")
        self.assertEqual(self.client.ask("file.consume", queue=""), ["file.consume-ok"])

    def test_priorities(self) -> None:
        """A file of priority 9 overtakes those of 0; equal ones keep their order."""
        for number, priority in enumerate((0, 9, 0, 9)):
            name = b"%d" % number
            self.publish(name, identifier=f"i{number}", properties={"priority": priority})
        client = self.consume()
        self.assertEqual([body for *_, body in self.deliveries(client)], [b"1", b"3", b"0", b"2"])

    def test_rows(self) -> None:
        """Operators see what is being staged, both ways."""
        self.publish()
        self.open("two", 9)
        self.consume()
        (frontend,) = self.house.shared.connections
        rows = list(frontend.link_rows())
        (staged,) = [row for row in rows if row.get("identifier") == "two"]
        self.assertEqual((staged["content-size"], staged["staged-size"]), (9, 0))
        (consumer,) = [row for row in rows if row.get("content-class") == "file"]
        self.assertEqual(consumer["being-staged"], 1)
