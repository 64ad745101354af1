# SPDX-License-Identifier: Apache-2.0
"""What a client of file, message and tunnel can do wrong, or at the wrong time, and what it costs.

Nothing stays acquired, held or counted for a client that has gone, and nothing grows without bound.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.amqp09 import file_methods, ordered_answers
from amqproute.frontends.amqp09.access_realms import AccessRealms
from amqproute.frontends.amqp09.channel_base import MOST_BEHIND
from amqproute.store.staging_ledger import StagingTerms
from amqproute.wire.amqp09.field_tables import MOST_VALUES
from tests.conformance.frame_broker import Network
from tests.support.branches import with_branches
from tests.support.client09 import Client09, context09
from tests.support.wire09 import V09, call, content

FILE: Final = 70
BODY: Final = b"x" * 100
OK: Final = "message.ok"
CLOSE: Final = call(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)


def by_reference(**fields: Any) -> bytes:
    """Return a whole transfer by reference."""
    return b"".join(
        (
            call(1, "message.open", reference=b"r"),
            call(1, "message.append", reference=b"r", bytes=BODY),
            call(1, "message.transfer", body=(1, b"r"), **fields),
            call(1, "message.close", reference=b"r"),
        )
    )


class HostileCase(SynchronousTestCase):
    """A broker with a queue `q`, and clients of 0-9."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.connected()

    def connected(self, **more: Any) -> Client09:
        return Client09(self.house, version=V09, **more).channel(1, 2)

    @property
    def staging(self) -> Any:
        return self.house.store.staging

    @property
    def queue(self) -> Any:
        return self.house.broker.nodes["q"]

    def publish_file(self, *identifiers: str) -> None:
        for each in identifiers:
            self.client.ask("file.open", identifier=each, content_size=len(BODY))
            self.client.write(
                content(1, "file.stage", BODY, class_id=FILE),
                call(1, "file.publish", routing_key="q", identifier=each),
            )

    def opened(self, client: Client09) -> list[str]:
        """Start a consumer of files; return the names of what comes."""
        return client.ask("file.consume", queue="q", consumer_tag="c")


class CancelTests(HostileCase):
    """file.cancel while something is being staged."""

    def test_tag_in_use(self) -> None:
        """Until cancel-ok the tag belongs to the consumer, which ends with its channel."""
        self.publish_file("a", "b")
        client = self.connected()
        self.assertEqual(self.opened(client), ["file.consume-ok", "file.open", "file.open"])
        self.assertEqual(client.ask("file.cancel", consumer_tag="c"), [])
        client.write(call(1, "file.consume", queue="q", consumer_tag="c"))
        self.assertEqual(client.closes(), [("connection", 530)])
        self.assertEqual(self.queue.consumers, 0)
        other = self.connected()
        self.assertEqual(self.opened(other), ["file.consume-ok", "file.open", "file.open"])

    def test_channel_gone(self) -> None:
        """What was being staged goes to others when the channel ends."""
        self.publish_file("a")
        client = self.connected()
        self.opened(client)
        client.write(call(1, "file.cancel", consumer_tag="c"), CLOSE)
        self.assertEqual(self.queue.consumers, 0)
        self.assertEqual(self.opened(self.connected()), ["file.consume-ok", "file.open"])

    def test_twice(self) -> None:
        """Each cancel has its answer."""
        self.publish_file("a")
        client = self.connected()
        self.opened(client)
        client.write(*[call(1, "file.cancel", consumer_tag="c")] * 2)
        client.methods.clear()
        client.write(call(1, "file.open-ok"))
        names = ["file.stage", "file.deliver", "file.cancel-ok", "file.cancel-ok"]
        self.assertEqual(client.names(), names)

    def test_queue_gone(self) -> None:
        """A cancel has its answer although its queue is deleted meanwhile (09-BASIC-31)."""
        self.client.ask("queue.declare", queue="w")
        self.client.ask("file.open", identifier="f", content_size=1)
        self.client.put("file.stage", b"x")
        self.client.write(call(1, "file.publish", routing_key="w", identifier="f"))
        client = self.connected()
        client.ask("file.consume", queue="w", consumer_tag="c")
        client.ask("file.cancel", consumer_tag="c")
        client.methods.clear()
        self.client.ask("queue.delete", queue="w")
        client.run()
        self.assertIn("file.cancel-ok", client.names())

    def test_other_class(self) -> None:
        """A cancel of one class ends a consumer of another, too."""
        for kind in ("basic", "stream", "file"):
            self.client.ask(f"{kind}.consume", queue="q", consumer_tag="c")
            for other in ("basic", "stream", "file"):
                answer = self.client.ask(f"{other}.cancel", consumer_tag="c")
                self.assertEqual(answer, [f"{other}.cancel-ok"])
            self.assertEqual(self.queue.consumers, 0)


class FileTests(HostileCase):
    """Files that are opened, and then nothing."""

    def test_opened(self) -> None:
        """How many a client may open without staging them is bounded: 406."""
        self.patch(file_methods, "MOST_OPENED", 5)
        for _ in range(5):
            self.client.ask("file.open", identifier="f", content_size=1)
        refused = self.client.refused("file.open", identifier="f", content_size=1)
        self.assertEqual(refused, ("channel", 406))

    def test_forgotten(self) -> None:
        """What others have taken over and published is not remembered for ever."""
        self.patch(file_methods, "MOST_LOST", 10)
        client, other = self.connected(), self.connected()
        for number in range(50):
            name = f"f{number}"
            client.ask("file.open", identifier=name, content_size=1)
            client.put("file.stage", b"x")
            other.ask("file.open", identifier=name, content_size=1)
            other.put("file.stage", b"")
            other.write(call(1, "file.publish", routing_key="q", identifier=name))
        self.assertEqual(client.depth(), 50)
        rows = [row for each in self.house.shared.connections for row in each.link_rows()]
        self.assertLess(len([row for row in rows if row["kind"] == "file"]), 50)

    def test_not_answered(self) -> None:
        """A client that does not answer file.open in time holds the message no longer."""
        table = [("x-consumer-timeout", "I", 80_000)]
        self.client.ask("queue.declare", queue="w", durable=1, arguments=table)
        self.client.ask("file.open", identifier="f", content_size=1)
        self.client.put("file.stage", b"x")
        self.client.write(call(1, "file.publish", routing_key="w", identifier="f"))
        client = self.connected()
        client.ask("file.consume", queue="w", consumer_tag="c")
        client.run(79)
        self.assertEqual(client.closes(), [])
        client.run(12)
        self.assertEqual(client.closes(), [("channel", 406)])
        client = self.connected()
        answer = client.ask("file.consume", queue="w", consumer_tag="c", no_ack=1)
        self.assertEqual(answer, ["file.consume-ok", "file.open"])
        client.write(call(1, "file.open-ok"))
        client.run(1000)
        self.assertEqual((client.closes(), client.depth("w")), ([], 0))

    def test_no_right(self) -> None:
        """Whoever may publish nowhere stages nothing."""
        context09(self.house).realms = AccessRealms(grants=lambda *_: False)
        for name, arguments in (
            ("file.open", {"identifier": "f", "content_size": 1}),
            ("message.open", {"reference": b"r"}),
            ("message.resume", {"reference": b"r", "identifier": "f"}),
        ):
            self.assertEqual(self.client.refused(name, **arguments), ("channel", 403))
        self.assertEqual(self.staging.use(), (0, 0))


class AnswerTests(HostileCase):
    """Answers of the class message."""

    def test_wrong(self) -> None:
        """What answers nothing that a broker asks is no acknowledgement: 503."""
        for name in ("empty", "offset"):
            self.client.publish(b"1")
            client = self.connected()
            client.ask("message.consume", queue="q", destination="c")
            self.assertEqual(client.refused(f"message.{name}"), ("connection", 503))
            self.assertEqual(self.client.depth(), 1)
            self.client.ask("queue.purge", queue="q")

    def test_held_back(self) -> None:
        """Appends behind a transfer go on for as long as they have to, to the last answer."""
        self.patch(ordered_answers, "MOST_UNANSWERED", 20)
        client = self.client
        client.ask("message.open", reference=b"r")
        client.methods.clear()
        client.write(call(1, "message.transfer", routing_key="q", body=(1, b"r")))
        append = call(1, "message.append", reference=b"r", bytes=b"x")
        for _ in range(10):
            client.write(*[append] * 50)
            self.assertEqual(client.end.producerState, "producing")
        client.write(call(1, "message.close", reference=b"r"))
        self.assertEqual(client.names(), [OK] * 502)
        client.ask("message.get", queue="q", destination="d")
        self.assertEqual(client.methods[-1][2]["body"], (0, b"x" * 500))

    def test_most_held_back(self) -> None:
        """But not without end: 406."""
        self.patch(ordered_answers, "MOST_HELD_BACK", 100)
        client = self.client
        client.ask("message.open", reference=b"r")
        client.write(call(1, "message.transfer", routing_key="q", body=(1, b"r")))
        for _ in range(10):
            client.write(*[call(1, "message.append", reference=b"r")] * 10)
        self.assertEqual(client.closes(), [("channel", 406)])
        self.assertEqual((self.staging.held, self.staging.use()), (0, (0, 0)))

    def test_get(self) -> None:
        """A get is for messages: tunnel.request is for consumers."""
        self.connected().put("tunnel.request", b"t", properties={"proxy-name": "q"})
        self.assertEqual(
            self.client.ask("message.get", queue="q", destination="d"), ["message.empty"]
        )
        self.client.publish(b"m")
        self.assertEqual(
            self.client.ask("message.get", queue="q", destination="d"), [OK, "message.transfer"]
        )
        self.assertEqual(self.client.depth(), 2)


class ReferenceTests(HostileCase):
    """Messages that go out by reference."""

    def test_cancelled(self) -> None:
        """After a cancel there is no transfer; the message is for others (09-MSG-27)."""
        body = bytes(200_000)
        self.client.write(content(1, "basic.publish", body, {}, 100_000, routing_key="q"))
        for no_ack in (0, 1):
            client = self.connected()
            client.ask("message.consume", queue="q", destination="c", no_ack=no_ack)
            client.write(call(1, OK))
            self.assertEqual(
                client.names(), [OK, "message.open", "message.append", "message.append"]
            )
            names = client.ask("message.cancel", destination="c")
            self.assertEqual(names, ["message.close", OK])
            client.methods.clear()
            client.write(*[call(1, OK)] * 3)
            self.assertEqual((client.methods, self.client.depth()), ([], 1))
            self.assertEqual(client.ask("basic.get", queue="q"), ["basic.get-ok"])
            client.write(call(1, "basic.reject", delivery_tag=client.tags()[0], requeue=1))
            client.hang_up()


class EndTests(HostileCase):
    """Channels that end in the middle."""

    def test_settled_before(self) -> None:
        """What was acknowledged before a close stays so, whatever the channel waits for."""
        opening = call(1, "file.open", identifier="z", content_size=1)
        self.publish_file("a", "b")
        client = self.connected()
        self.opened(client)
        client.write(*[call(1, "file.open-ok")] * 2)
        reject = call(1, "file.reject", delivery_tag=2, requeue=0)
        client.write(opening, call(1, "file.ack", delivery_tag=1), reject, CLOSE).run(1)
        self.assertEqual(self.client.depth(), 0)
        self.client.publish(b"1", b"2")
        client = self.connected()
        client.ask("message.consume", queue="q", destination="c")
        reject = call(1, "message.reject", code=0, text="")
        client.write(opening, call(1, OK), reject, CLOSE).run(1)
        self.assertEqual(self.client.depth(), 0)

    def test_refused(self) -> None:
        """A transfer whose fields are too much lets go of its reference."""
        headers = [(f"a{number}", "V", None) for number in range(MOST_VALUES)]
        self.client.write(
            by_reference(routing_key="q", transaction_id="t", application_headers=headers)
        ).run(1)
        self.assertEqual(self.client.closes(), [("channel", 406)])
        self.assertEqual((self.staging.held, self.staging.use()), (0, (0, 0)))

    def test_no_way_and_no_branch(self) -> None:
        """So does one that has no way, where there is no branch that it could fail."""
        with_branches(self.house)
        client = self.connected()
        client.ask("dtx.select")
        client.write(by_reference(routing_key="none@alpha.example")).run(1)
        self.assertIn("message.reject", client.names())
        self.assertEqual((self.staging.held, self.staging.use()), (0, (0, 0)))

    def test_answers_behind_a_content(self) -> None:
        """Who asks on while a large content is sent to it is not read when much is to be told."""
        self.client.write(
            content(1, "basic.publish", bytes(5_000_000), {}, 100_000, routing_key="q")
        )
        self.client.run(1)
        self.assertEqual(self.client.depth(), 1)
        client = self.connected()
        protocol = client.end.protocol
        protocol.dataReceived(call(1, "basic.consume", queue="q"))
        protocol.pauseProducing()
        client.run(1)
        client.write(call(1, "basic.qos", prefetch_count=1) * (2 * MOST_BEHIND))
        self.assertEqual(client.end.producerState, "paused")
        protocol.resumeProducing()
        client.run(5)
        self.assertEqual(client.end.producerState, "producing")
        names = client.names()
        self.assertEqual(names.count("basic.qos-ok"), 2 * MOST_BEHIND)

    def test_bounds_lowered(self) -> None:
        """Bounds that are lowered hold for what is being staged: 311, and it is kept."""
        self.client.ask("file.open", identifier="f", content_size=1000)
        self.staging.terms = StagingTerms(10, 10, 10, 1, 1)
        self.client.put("file.stage", bytes(1000))
        self.assertEqual(self.client.closes(), [("channel", 311)])
        self.assertEqual(self.staging.held, 0)
