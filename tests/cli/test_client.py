# SPDX-License-Identifier: Apache-2.0
"""The client against a server engine at the other end of an in-memory transport."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.cli import message_text, render
from amqproute.cli.client import Client, ClientTimeouts, is_private
from amqproute.cli.command_error import ClientError
from amqproute.cli.commands.management_request import query
from amqproute.cli.commands.send_receive import SendReport, consume, publish
from amqproute.cli.message_text import MessageDraft
from amqproute.message import Message
from amqproute.net.pump import EngineProtocol, TransportFacts
from amqproute.url import Url, parse_url
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    CredentialsPresented,
    DeliveriesReceived,
    LinkAttached,
    LinkFlowed,
    OpenReceived,
    SessionBegun,
)
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.types import Int, Symbol, Timestamp
from amqproute.wire.sasl_mechanisms import ScramSecret, ServerContext, server_mechanism

SECRET = ScramSecret.derive("sesame", salt=b"0123456789ab", iterations=4096)


class Authority:
    """The server's mechanisms."""

    def __init__(self, names: Sequence[str]) -> None:
        self.mechanisms = tuple(names)
        self.used: list[str] = []

    def start(self, name: str) -> Any:
        self.used.append(name)
        context = ServerContext(
            {"ann": SECRET}.get, "n" * 24, b"k" * 32, confidential=True, decoy_iterations=4096
        )
        return server_mechanism(name, context)


class Broker:
    """A server that keeps what it gets; a test says how it answers.

    Attributes:
        got: encoded messages that arrived.
        outcome: what becomes of them; None keeps them waiting.
        credit: granted on each link from the client.
        backlog: encoded messages for whoever receives.
        refuse: refuses links with this condition.
        terms: what it changes in the sources of links.
    """

    def __init__(self, mechanisms: Sequence[str] = ("ANONYMOUS",)) -> None:
        self.authority = Authority(mechanisms)
        self.engine = Connection(
            ConnectionSettings(role="server", container_id="broker", credit_grace_new=0),
            sasl_server=self.authority,
        )
        self.got: list[bytes] = []
        self.outcome: Any = spec.Accepted()
        self.credit = 100
        self.backlog: list[bytes] = []
        self.refuse: Any = None
        self.terms: dict[str, Any] = {}
        self.dynamic: Link | None = None
        self.reply: Callable[[Message], bytes] | None = None
        self.senders: list[Link] = []
        self.tags = iter(range(10**6))

    def act(self, event: Any) -> None:
        match event:
            case CredentialsPresented():
                ok = SECRET.matches(event.step.password or "")
                for each in self.engine.credentials_verified(ok, 0.0):
                    self.act(each)
            case OpenReceived():
                self.engine.open()
            case SessionBegun():
                event.session.accept()
            case LinkAttached():
                self.attached(event.link, event.attach)
            case DeliveriesReceived():
                self.received(event.link, event.deliveries)
            case LinkFlowed():
                self.serve(event.link)

    def attached(self, link: Link, attach: spec.Attach) -> None:
        if self.refuse is not None:
            link.refuse(self.refuse, "for a test")
        elif link.is_sender:
            source = attach.source
            assert source is not None
            if source.dynamic:
                link.accept(source=spec.Source(address="dyn-1", dynamic=True))
                self.dynamic = link
            else:
                for name, value in self.terms.items():
                    setattr(source, name, value)
                link.accept(source=source)
                self.senders.append(link)
        else:
            link.accept()
            link.flow(self.credit)

    def received(self, link: Link, deliveries: list[Delivery]) -> None:
        self.got += [delivery.payload for delivery in deliveries]
        if self.outcome is not None:
            link.session.settle(deliveries, self.outcome)
        if self.reply is not None and self.dynamic is not None:
            for delivery in deliveries:
                self.dynamic.send((self.reply(Message(delivery.payload)),), b"r")

    def serve(self, link: Link) -> None:
        while link in self.senders and self.backlog and link.credit:
            link.send((self.backlog.pop(0),), next(self.tags).to_bytes(4, "big"))


class Transport(StringTransport):
    """Hands over what was written, and can be aborted."""

    def abortConnection(self) -> None:
        self.loseConnection()


class ClientTestCase(SynchronousTestCase):
    """A client and a broker, joined; `run` turns both until nothing moves."""

    url = parse_url("amqp://127.0.0.1")
    mechanisms: Sequence[str] = ("ANONYMOUS",)

    def setUp(self) -> None:
        self.clock = Clock()
        self.broker = Broker(self.mechanisms)
        self.client = Client(self.clock, self.url, ClientTimeouts(window=5))
        self.transport = Transport()
        self.protocol = EngineProtocol(self.client.made, self.clock, is_client=True)
        self.is_lost = False

    def join(self) -> None:
        self.broker.engine.start(0.0)
        self.protocol.makeConnection(self.transport)
        self.succeed(self.client.begun())

    def turn(self) -> None:
        """Carry bytes both ways until there are none."""
        for _ in range(200):
            self.clock.advance(0)
            there = self.transport.value()
            self.transport.clear()
            engine = self.broker.engine
            if there:
                for event in engine.receive_data(there, self.clock.seconds()):
                    self.broker.act(event)
            back = b"".join(engine.data_to_send())
            if back and not self.is_lost:
                self.protocol.dataReceived(back)
            if self.transport.disconnecting and not self.is_lost:
                self.lose()
            if not there and not back:
                return
        raise AssertionError("it does not come to rest")

    def lose(self) -> None:
        self.is_lost = True
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def begin(self, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        task: Deferred[Any] = Deferred.fromCoroutine(work)
        self.turn()
        return task

    def succeed(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.successResultOf(self.begin(work))

    def fail_with(self, work: Coroutine[Any, Any, Any], exit_code: int, code: str) -> ClientError:
        error = self.failureResultOf(self.begin(work), ClientError).value
        self.assertEqual((error.exit_code, error.code), (exit_code, code))
        self.assertTrue(error.words)
        self.assertTrue(error.next_step)
        return error

    def tearDown(self) -> None:
        if not self.is_lost:
            self.begin(self.client.close())
            self.turn()
        if not self.is_lost:
            self.lose()
        self.assertEqual([call for call in self.clock.getDelayedCalls() if call.active()], [])


def message(body: str) -> bytes:
    return MessageDraft("orders").encode(body, 1000)[1]


class VerbTests(ClientTestCase):
    """The client's operations on a connection that stands."""

    def setUp(self) -> None:
        super().setUp()
        self.join()

    def test_send_gives_the_outcome(self) -> None:
        """Accepted, rejected with its error, released."""
        sender = self.succeed(self.client.sender("orders"))
        self.assertIsInstance(self.succeed(sender.send(b"\x00\x53\x75\xa0\x01a")), spec.Accepted)
        error = spec.Error(condition=conditions.NOT_ALLOWED, description="no")
        self.broker.outcome = spec.Rejected(error=error)
        outcome = self.succeed(sender.send(message("b")))
        self.assertEqual(
            message_text.outcome_words(outcome), ("rejected", f"{conditions.NOT_ALLOWED}: no")
        )
        self.broker.outcome = spec.Released()
        self.assertIsInstance(self.succeed(sender.send(message("c"))), spec.Released)
        self.assertEqual(len(self.broker.got), 3)

    def test_a_link_is_refused(self) -> None:
        """The broker's condition is the code; exit code 1."""
        self.broker.refuse = conditions.NOT_FOUND
        error = self.fail_with(self.client.sender("nowhere"), 1, conditions.NOT_FOUND)
        self.assertIn("'nowhere'", error.words)
        self.fail_with(self.client.receiver("nowhere"), 1, conditions.NOT_FOUND)

    def test_no_credit(self) -> None:
        """A queue that is full: the wait has an end, and the words say what it is."""
        self.broker.credit = 0
        sender = self.succeed(self.client.sender("orders"))
        sender.submit(message("a")).addErrback(lambda _: None)
        task = self.begin(sender.settled())
        self.clock.advance(self.client.patience.answer_seconds)
        error = self.failureResultOf(task, ClientError).value
        self.assertEqual((error.exit_code, error.code), (1, "client.no-credit"))

    def test_no_outcome(self) -> None:
        """The message may have been taken: that is said."""
        self.broker.outcome = None
        sender = self.succeed(self.client.sender("orders"))
        sender.submit(message("a")).addErrback(lambda _: None)
        task = self.begin(sender.settled())
        self.clock.advance(self.client.patience.answer_seconds)
        error = self.failureResultOf(task, ClientError).value
        self.assertEqual((error.exit_code, error.code), (1, "client.no-outcome"))

    def test_the_window_bounds_what_is_pending(self) -> None:
        """`room` waits while as many as the window are without outcome."""
        self.broker.outcome = None
        sender = self.succeed(self.client.sender("orders"))
        for _ in range(5):
            self.succeed(sender.room())
            sender.submit(message("a")).addErrback(lambda _: None)
        task = self.begin(sender.room())
        self.assertNoResult(task)
        self.lose()
        self.failureResultOf(task, ClientError)

    def test_lost_while_waiting(self) -> None:
        """Everything that waits fails with exit code 3, and everything asked for later."""
        self.broker.outcome = None
        sender = self.succeed(self.client.sender("orders"))
        task = self.begin(sender.send(message("a")))
        self.lose()
        error = self.failureResultOf(task, ClientError).value
        self.assertEqual((error.exit_code, error.code), (3, "connect.lost"))
        self.fail_with(self.client.sender("orders"), 3, "connect.lost")

    def test_broker_closes_with_an_error(self) -> None:
        """Its condition is the code, for links as well."""
        self.broker.outcome = None
        sender = self.succeed(self.client.sender("orders"))
        task = self.begin(sender.send(message("a")))
        forced = spec.Error(condition=conditions.CONNECTION_FORCED, description="stopping")
        self.broker.engine.close(forced)
        self.turn()
        error = self.failureResultOf(task, ClientError).value
        self.assertEqual(error.code, conditions.CONNECTION_FORCED)
        self.assertIn("the connection: stopping", error.words)

    def test_receive_takes_no_more_than_asked_for(self) -> None:
        """Credit is the number wanted: the rest stays in the queue."""
        self.broker.backlog = [message(text) for text in "abcd"]
        receiver = self.succeed(self.client.receiver("orders", credit=2))
        self.assertEqual(len(self.broker.backlog), 2)
        for text in "ab":
            delivery = self.succeed(receiver.next(1.0))
            self.assertEqual(message_text.shown(delivery.payload)["body"], text)
            receiver.accept(delivery)
        self.turn()
        self.assertEqual(len(self.broker.backlog), 2)
        self.assertEqual(self.broker.senders[0].unsettled, {})

    def test_receive_without_end_renews_its_credit(self) -> None:
        """More than one grant."""
        self.broker.backlog = [message("x")] * 250
        receiver = self.succeed(self.client.receiver("orders"))
        for _ in range(250):
            receiver.accept(self.succeed(receiver.next(1.0)))
        self.turn()
        self.assertEqual(self.broker.backlog, [])

    def test_browse_and_filter(self) -> None:
        """The source says so: copy, and a selector; the messages are settled for this link only."""
        self.broker.backlog = [message("a")]
        receiver = self.succeed(
            self.client.receiver("orders", browses=True, selector="color = 'red'")
        )
        source = self.broker.senders[0].source
        assert source is not None
        assert source.filter is not None
        self.assertEqual(source.distribution_mode, "copy")
        (chosen,) = source.filter.values()
        self.assertEqual(chosen.descriptor, "apache.org:selector-filter:string")
        self.assertEqual(chosen.value, "color = 'red'")
        self.assertEqual(self.succeed(consume(receiver, 1, 1.0, True)), 1)

    def test_not_browsed(self) -> None:
        """A broker that would take the messages away, or all of them, is not given credit."""
        self.broker.terms = {"distribution_mode": "move", "filter": None}
        self.broker.backlog = [message("a")]
        for terms in ({"browses": True}, {"selector": "TRUE"}):
            self.fail_with(self.client.receiver("orders", **terms), 1, conditions.NOT_IMPLEMENTED)
        self.assertEqual(len(self.broker.backlog), 1)

    def test_receive_times_out(self) -> None:
        """None, not an error."""
        receiver = self.succeed(self.client.receiver("orders"))
        task = self.begin(receiver.next(2.0))
        self.clock.advance(2.0)
        self.assertIsNone(self.successResultOf(task))

    def test_request(self) -> None:
        """The reply comes to a dynamic node of our own; queries continue page by page."""
        rows = [["orders", 7], ["dyn-1", 0], ["audit", 0]]

        def reply(asked: Message) -> bytes:
            terms = asked.application_properties
            self.assertEqual(terms["operation"], "QUERY")
            self.assertEqual(asked.properties.reply_to, "dyn-1")
            page = rows[terms["offset"] :][:2]
            properties = {"statusCode": Int(200), "total": Int(3)}
            body = {"attributeNames": ["name", "depth"], "results": page}
            return sections.encode_section(
                spec.SECTION_APPLICATION_PROPERTIES, properties
            ) + sections.encode_section(spec.SECTION_AMQP_VALUE, body)

        self.broker.reply = reply
        found = self.succeed(query(self.client, "queue"))
        self.assertEqual([row["name"] for row in found], ["orders", "audit"])

    def test_request_refused(self) -> None:
        """A status other than 200 is a negative answer."""
        self.broker.reply = lambda _: sections.encode_section(
            spec.SECTION_APPLICATION_PROPERTIES,
            {"statusCode": Int(403), "statusDescription": "not you"},
        )
        error = self.fail_with(query(self.client, "queue"), 1, "management.403")
        self.assertIn("not you", error.words)

    def test_publish_and_consume(self) -> None:
        """The commands without their terminal."""
        printed: list[Any] = []
        self.patch(render, "json_line", printed.append)

        async def bodies() -> Any:
            for text in "abcdefgh":
                yield text

        report = SendReport(as_json=True)
        self.succeed(
            publish(self.client, MessageDraft("orders@b.example", ttl_ms=5), bodies(), report)
        )
        self.assertEqual((report.exit_code, report.counts["accepted"]), (0, 8))
        first = Message(self.broker.got[0])
        self.assertTrue(first.durable)
        self.assertEqual((first.to, first.header.ttl), ("orders@b.example", 5))
        uuid.UUID(str(first.properties.message_id))
        self.broker.backlog = list(self.broker.got)
        receiver = self.succeed(self.client.receiver("orders", credit=3))
        self.assertEqual(self.succeed(consume(receiver, 3, 1.0, True)), 3)
        self.assertEqual([each["outcome"] for each in printed[:8]], ["accepted"] * 8)
        self.assertEqual([each["body"] for each in printed[8:]], ["a", "b", "c"])

    def test_report_is_negative_unless_all_were_accepted(self) -> None:
        """Nothing sent is no success either."""
        self.patch(render, "json_line", lambda _: None)
        report = SendReport(as_json=True)
        self.assertEqual(report.exit_code, 1)
        report.outcome("m1", spec.Accepted())
        self.assertEqual(report.exit_code, 0)
        report.outcome("m2", spec.Released())
        self.assertEqual(report.exit_code, 1)


class LoginTests(ClientTestCase):
    """The choice of a mechanism."""

    def try_url(self, url: str, *offered: str) -> list[str]:
        self.url, self.mechanisms = parse_url(url), offered
        ClientTestCase.setUp(self)
        self.join()
        return self.broker.authority.used

    def test_scram_before_plain(self) -> None:
        """With a user in the URL."""
        used = self.try_url("amqp://ann:sesame@127.0.0.1", "PLAIN", "ANONYMOUS", "SCRAM-SHA-256")
        self.assertEqual(used, ["SCRAM-SHA-256"])

    def test_anonymous_without_a_user(self) -> None:
        """And only then."""
        self.assertEqual(self.try_url("amqp://127.0.0.1", "PLAIN", "ANONYMOUS"), ["ANONYMOUS"])

    def test_no_mechanism_in_common(self) -> None:
        """The error names both sides' mechanisms; PLAIN is not used in the clear."""
        self.url, self.mechanisms = parse_url("amqp://ann:sesame@192.0.2.1"), ("PLAIN",)
        ClientTestCase.setUp(self)
        self.broker.engine.start(0.0)
        self.protocol.makeConnection(self.transport)
        error = self.fail_with(self.client.begun(), 1, "auth.mechanism")
        self.assertIn("only over TLS", error.words)

    def test_wrong_password(self) -> None:
        """Reached, but refused: exit code 1."""
        self.url, self.mechanisms = parse_url("amqp://ann:wrong@127.0.0.1"), ("SCRAM-SHA-256",)
        ClientTestCase.setUp(self)
        self.broker.engine.start(0.0)
        self.protocol.makeConnection(self.transport)
        self.fail_with(self.client.begun(), 1, "auth.refused")

    def test_silent_server(self) -> None:
        """The wait for the open has a deadline."""
        self.protocol.makeConnection(self.transport)
        task = Deferred.fromCoroutine(self.client.begun())
        self.clock.advance(self.client.patience.connect_seconds)
        self.assertEqual(self.failureResultOf(task, ClientError).value.exit_code, 3)
        self.client.abort()
        self.lose()

    def test_private(self) -> None:
        """TLS, unix sockets and loopback are; a network is not."""
        self.assertTrue(is_private(TransportFacts("unix:uid=1", unix_uid=1)))
        self.assertTrue(is_private(TransportFacts("x", host="192.0.2.1", tls_version="TLSv1.3")))
        self.assertTrue(is_private(TransportFacts("x", host="::1")))
        self.assertFalse(is_private(TransportFacts("x", host="192.0.2.1")))
        self.is_lost = True

    def test_url_is_a_url(self) -> None:
        """The client takes `net.connector.Url`, whose repr hides the password."""
        self.assertNotIn("sesame", repr(Url("amqp", "h", 1, user="ann", password="sesame")))
        self.is_lost = True


class ContentTests(SynchronousTestCase):
    """Messages from and to what people read."""

    def test_draft(self) -> None:
        """Bytes go out as data with a content type, text as an amqp-value."""
        draft = MessageDraft(
            "a", durable=False, priority=7, return_to="b@c.example", properties={"k": "v"}
        )
        _, encoded = draft.encode(b"\xff", 1_700_000_000_123)
        facts = message_text.shown(encoded)
        self.assertEqual(facts["body"], {"base64": "/w=="})
        self.assertEqual((facts["header"]["priority"], facts["header"]["durable"]), (7, False))
        self.assertEqual(facts["annotations"], {"x-opt-return-to": "b@c.example"})
        self.assertEqual(facts["application-properties"], {"k": "v"})
        wary = MessageDraft(
            "a", return_to="b", reports=("failure", "delivered"), secure_path="dane"
        )
        marks = message_text.shown(wary.encode("x", 0)[1])["annotations"]
        self.assertEqual(marks["x-opt-report"], ["failure", "delivered"])
        self.assertEqual(marks["x-opt-require-secure-path"], "dane")
        self.assertEqual(facts["properties"]["content-type"], "application/octet-stream")
        self.assertEqual(facts["properties"]["creation-time"], "2023-11-14T22:13:20.123Z")
        self.assertEqual(message_text.shown(draft.encode("ü", 0)[1])["body"], "ü")

    def test_draft_of_standard_properties(self) -> None:
        """They are shown by the names of the standard; a content type given counts."""
        standard = {"subject": "crates", "correlation_id": "q1", "content_type": Symbol("a/b")}
        message_id, encoded = MessageDraft("a", message_id="m1", standard=standard).encode(b"x", 0)
        shown = message_text.shown(encoded)["properties"]
        self.assertEqual((message_id, shown["message-id"]), ("m1", "m1"))
        self.assertEqual((shown["subject"], shown["correlation-id"]), ("crates", "q1"))
        self.assertEqual(shown["content-type"], "a/b")

    def test_bodies(self) -> None:
        """Several data sections are one body, sequences one list, no body is null."""
        data = sections.encode_section(spec.SECTION_DATA, b"ab")
        self.assertEqual(message_text.body_of(Message(data + data)), b"abab")
        sequence = sections.encode_section(spec.SECTION_AMQP_SEQUENCE, [1, "x"])
        self.assertEqual(message_text.body_of(Message(sequence + sequence)), [1, "x", 1, "x"])
        self.assertIsNone(message_text.body_of(Message(codec.encode(spec.Properties()))))

    def test_plain(self) -> None:
        """Everything becomes JSON."""
        value = {"t": Timestamp(0), "u": uuid.UUID(int=1), "n": float("nan"), "l": [b"x", None]}
        self.assertEqual(
            message_text.plain(value),
            {
                "t": "1970-01-01T00:00:00.000Z",
                "u": "00000000-0000-0000-0000-000000000001",
                "n": "nan",
                "l": ["x", None],
            },
        )

    def test_undecodable(self) -> None:
        """Octets that are no message are shown, not lost."""
        self.assertEqual(message_text.shown(b"\x01")["undecodable"], "AQ==")

    def test_another_format(self) -> None:
        """M-09: octets of another format are never read as sections, though they could be."""
        _, encoded = MessageDraft("orders").encode("text", 0)
        facts = message_text.shown(encoded, 7)
        self.assertEqual(facts["undecodable"], base64.b64encode(encoded).decode())
        self.assertIn("message-format 7", facts["reason"])
