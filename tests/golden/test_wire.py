# SPDX-License-Identifier: Apache-2.0
"""Whole connections, octet by octet: clients of a broker, and two brokers that relay.

Clock, randomness and transports are the test's (`tests.conformance.frame_broker`).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from amqproute.auth.policy import Rule
from amqproute.daemon.reporting import make_reporter
from amqproute.services.sender_reports import ReportTerms
from amqproute.values import ANONYMOUS_PRINCIPAL, EXACTLY_ONCE_CAPABILITY, Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Described, Symbol, ULong
from tests.conformance.frame_broker import (
    AMQP_HEADER,
    EVERYTHING,
    MODIFIED,
    SASL_HEADER,
    TLS_HEADER,
    Client,
    End,
    FrameBroker,
    Network,
    attach,
    data,
    frame,
    message,
    section,
)
from tests.golden.compare import GoldenCase
from tests.golden.transcript import Transcript
from tests.support.fakes import topic

ANN = Principal("user", "ann")
MANAGED = (
    "queue", "topic", "subscription", "alias", "route", "connection", "link", "hop", "peer",
    "listener", "limit", "receipts", "unclaimed", "journal", "store", "contract", "nothing",
)  # fmt: skip
"""Entity types that are asked for; some are not offered without a daemon."""


class SpokenClient(Client):
    """A client whose connection is written down."""

    def __init__(
        self, house: FrameBroker, principal: Principal, transcript: Transcript, **kinds: Any
    ):
        self.transcript = transcript
        super().__init__(house, house.protocol(principal, **kinds))

    def write(self, *octets: bytes, chunk: int | None = None) -> Client:
        self.transcript.said(">", b"".join(octets))
        return super().write(*octets, chunk=chunk)

    def _read(self) -> None:
        self.transcript.said("<", self.end.value())
        super()._read()


class SpokenWorld(Network):
    """A world whose wires between brokers are written down, each in a transcript of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.transcripts: list[Transcript] = []
        self._known: dict[int, tuple[tuple[End, End], Transcript]] = {}

    def _carry(self, here: End, there: End) -> bool:
        if written := here.value():
            wire = next(each for each in self.wires if here in each)
            if id(wire) not in self._known:
                self._known[id(wire)] = (wire, Transcript())  # the wire too: ids are used again
                self.transcripts.append(self._known[id(wire)][1])
            side = "caller >" if here is wire[0] else "called <"
            self._known[id(wire)][1].said(side, written)
        return super()._carry(here, there)


class WireCase(GoldenCase):
    """A world in which nothing is left to chance."""

    def setUp(self) -> None:
        numbers = itertools.count(1)
        self.patch(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
        self.world = SpokenWorld()
        self.spoken: list[tuple[str, Transcript]] = []

    def client(
        self,
        house: FrameBroker,
        name: str = "client",
        who: Principal = ANONYMOUS_PRINCIPAL,
        **kinds: Any,
    ) -> SpokenClient:
        """Connect a client; nothing has been said."""
        transcript = Transcript()
        self.spoken.append((name, transcript))
        return SpokenClient(house, who, transcript, **kinds)

    def ready(self, house: FrameBroker, name: str = "client", **kinds: Any) -> SpokenClient:
        """Connect a client, open, and begin a session."""
        client = self.client(house, name, **kinds)
        client.ready(name)
        return client

    def held(self, name: str) -> None:
        """Compare all that was said."""
        between = [
            (f"brokers, connection {number}", each)
            for number, each in enumerate(self.world.transcripts, 1)
        ]
        parts = [f"==== {name}\n{each.text()}" for name, each in (*self.spoken, *between)]
        self.assertGolden(f"wire/{name}.txt", "\n".join(parts))


def control(client: Client, number: int, body: Any, handle: int = 9) -> None:
    """Send a message to the coordinator."""
    encoded = codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), body))
    client.publish(number, encoded, handle)


def within(txn_id: bytes, outcome: Any = None) -> spec.TransactionalState:
    """Return a transactional state."""
    return spec.TransactionalState(txn_id=txn_id, outcome=outcome)


class ClientTests(WireCase):
    """Clients of one broker."""

    def test_publish(self) -> None:
        """Links to a node, to the anonymous terminus; all kinds of messages; an orderly end."""
        house = self.world.house(nodes=["q", "r"], aliases={"nick": "q"})
        client = self.ready(house)
        client.sender("q")
        client.publish(0)
        client.publish(1, message(b"pre-settled"), settled=True)
        client.write(*(client.transfer(number) for number in range(2, 6)))
        client.transcript.note("every section; not durable; soon over")
        full = message(
            b"all",
            header=spec.Header(durable=True, priority=7, ttl=60_000, first_acquirer=False),
            annotations={"x-opt-own": 7},
            application={"colour": "red", "number": 1.5},
            message_id="m-1",
            to="q",
            subject="subject",
            reply_to="r",
            correlation_id=ULong(5),
            content_type=Symbol("text/plain"),
            group_id="g",
        )
        footer = section(spec.SECTION_FOOTER, {Symbol("x-check"): 1})
        client.publish(6, full + footer)
        client.publish(7, message(header=spec.Header(durable=False)))
        client.publish(8, message(header=spec.Header(ttl=1)))
        client.transcript.note("a delivery in three transfers, and one that is aborted")
        client.send(
            spec.Transfer(handle=0, delivery_id=9, delivery_tag=b"long", more=True),
            payload=data(b"x" * 300)[:100],
        )
        client.send(spec.Transfer(handle=0, more=True), payload=data(b"x" * 300)[100:200])
        client.send(spec.Transfer(handle=0, more=False), payload=data(b"x" * 300)[200:])
        client.send(
            spec.Transfer(handle=0, delivery_id=10, delivery_tag=b"never", more=True),
            payload=data(b"y" * 300)[:100],
        )
        client.send(spec.Transfer(handle=0, aborted=True))
        client.transcript.note("the anonymous terminus, an alias, and a batchable flow that asks")
        client.sender(None, handle=1)
        client.publish(11, message(to="nick"), handle=1)
        client.publish(12, message(to="nobody"), handle=1)
        client.sender("nick", handle=2)
        client.send(
            spec.Flow(
                next_incoming_id=0, incoming_window=100, next_outgoing_id=13, outgoing_window=100,
                handle=2, delivery_count=0, link_credit=0, available=3, echo=True,
            )
        )  # fmt: skip
        client.send(spec.Detach(handle=2, closed=True))
        client.send(spec.End())
        client.send(spec.Close())
        self.held("publish")

    def test_sasl(self) -> None:
        """Mechanisms, headers that are refused, and frames that keep a connection alive."""
        house = self.world.house()
        client = self.client(house, "anonymous", mechanisms=("ANONYMOUS", "EXTERNAL"))
        client.write(SASL_HEADER)
        client.write(frame(spec.SaslInit(mechanism="ANONYMOUS", hostname="a.test"), kind=1))
        client.write(AMQP_HEADER, frame(spec.Open(container_id="c", idle_time_out=10_000)))
        client.run(6)
        client.send(spec.Close())
        client = self.client(house, "refused", mechanisms=("ANONYMOUS",))
        client.write(SASL_HEADER, frame(spec.SaslInit(mechanism="PLAIN"), kind=1))
        self.client(house, "without", mechanisms=("ANONYMOUS",)).write(AMQP_HEADER)
        self.client(house, "tls").write(TLS_HEADER)
        self.client(house, "version").write(b"AMQP\x00\x02\x00\x00")
        self.client(house, "http").write(b"GET / HTTP/1.1\r\n\r\n")
        self.held("sasl")

    def test_consume(self) -> None:
        """Credit, drain, every outcome, and what comes again."""
        house = self.world.house(nodes=["q", "empty"])
        client = self.ready(house)
        client.fill([b"%d" % number for number in range(8)])
        client.receiver("q", credit=5)
        client.dispose(0)
        client.dispose(1, state=spec.Released())
        client.dispose(2, state=spec.Modified(delivery_failed=True))
        notes = {Symbol("x-opt-why"): "tired"}
        client.dispose(3, state=spec.Modified(undeliverable_here=True, message_annotations=notes))
        error = spec.Error(condition="amqp:not-allowed", description="not like this")
        client.dispose(4, state=spec.Rejected(error=error))
        client.credit(10, delivery_count=5, drain=True)
        client.dispose(5, 8)
        client.transcript.note("in one go: unsettled first, then settled")
        client.receiver("empty", handle=1, credit=1)
        client.fill([b"one"], "empty")
        client.run()
        client.dispose(9, settled=False)
        client.dispose(9)
        client.transcript.note("a link that browses, one with a selector, one that is refused")
        source = spec.Source(address="q", distribution_mode="copy")
        client.receiver("q", handle=2, source=source, credit=10)
        chosen = {Symbol("sel"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
        client.receiver("q", handle=3, source=spec.Source(address="q", filter=chosen), credit=10)
        wrong = {Symbol("sel"): Described(Symbol("apache.org:selector-filter:string"), "a = ")}
        client.send(
            attach("receiver", "wrong", 4, "q", source=spec.Source(address="q", filter=wrong))
        )
        client.send(attach("receiver", "nobody", 5, "nobody"))
        client.hang_up()
        self.held("consume")

    def test_settle_modes(self) -> None:
        """Both sides' modes, and deliveries whose states are asked for again."""
        house = self.world.house(nodes=["q"])
        client = self.ready(house)
        client.fill([b"%d" % number for number in range(6)])
        client.receiver("q", 0, snd_settle_mode=spec.SENDER_SETTLED, credit=2)
        client.receiver("q", 1, rcv_settle_mode=spec.RECEIVER_SECOND, credit=2)
        client.dispose(2, 3, settled=False)
        client.dispose(2, 3)
        outcome = spec.Source(address="q", default_outcome=spec.Released(), outcomes=(MODIFIED,))
        client.receiver("q", 2, source=outcome, credit=2)
        client.dispose(4, state=None)
        client.send(spec.Disposition(role=True, first=5, settled=True))
        client.sender("q", 3, snd_settle_mode=spec.SENDER_SETTLED)
        client.publish(0, handle=3, settled=True)
        client.sender(
            "q",
            4,
            snd_settle_mode=spec.SENDER_UNSETTLED,
            rcv_settle_mode=spec.RECEIVER_SECOND,
            desired_capabilities=(EXACTLY_ONCE_CAPABILITY,),
        )
        client.publish(1, handle=4)
        client.send(spec.Disposition(role=False, first=1, settled=True, state=spec.Accepted()))
        self.held("settle-modes")

    def test_transactions(self) -> None:
        """Declared, committed, rolled back; postings, retirements, acquisitions; mistakes."""
        house = self.world.house(nodes=["q", "r"])
        client = self.ready(house)
        client.fill([b"1", b"2", b"3"])
        numbers = itertools.count()
        given = {"source": None, "target": spec.Coordinator()}
        client.send(attach("sender", "control", 9, None, **given))
        client.one(spec.Attach)
        client.sender("r", 0)
        client.receiver("q", 1)
        client.all(spec.Disposition)

        def declared() -> bytes:
            client.all(spec.Disposition)
            control(client, next(numbers), spec.Declare())
            (answer,) = client.all(spec.Disposition)
            assert isinstance(answer.state, spec.Declared), answer
            return answer.state.txn_id

        def discharge(txn_id: bytes, fail: bool = False) -> None:
            control(client, next(numbers), spec.Discharge(txn_id=txn_id, fail=fail))
            client.all(spec.Disposition)

        for fail in (False, True):
            client.transcript.note("rolled back" if fail else "committed")
            txn_id = declared()
            client.publish(next(numbers), handle=0, state=within(txn_id))
            client.credit(1, 1, delivery_count=int(fail))
            client.dispose(int(fail), state=within(txn_id, spec.Accepted()), settled=False)
            discharge(txn_id, fail)
        client.transcript.note("acquired within a transaction")
        txn_id = declared()
        client.credit(1, 1, delivery_count=2, drain=True, properties={Symbol("txn-id"): txn_id})
        discharge(txn_id)
        client.transcript.note("an id that nobody knows, a posting that is refused")
        discharge(b"nobody")
        client.sender("amqp$transfer", 2)
        txn_id = declared()
        client.publish(next(numbers), message(to="nobody"), 2, state=within(txn_id))
        discharge(txn_id)
        client.hang_up()
        self.held("transactions")

    def test_resume(self) -> None:
        """Both directions: links that come back on a new connection with what was unsettled."""
        house = self.world.house(nodes=["q"])
        stays = {"expiry_policy": "connection-close", "timeout": 60}
        source = spec.Source(address="q", **stays)
        client = self.ready(house)
        client.fill([b"%d" % number for number in range(4)])
        client.receiver(None, name="x", source=source, credit=3)
        client.dispose(1, settled=False)
        client.send(spec.Detach(handle=0))
        client.transcript.note("again on the same session")
        unsettled = {b"\x00" * 7 + b"%c" % n: None for n in range(1, 3)}
        client.receiver(None, name="x", source=source, unsettled=unsettled, credit=3)
        client.hang_up()
        client = self.ready(house, "client")
        client.receiver(None, name="x", source=source, unsettled={}, credit=3)
        client.dispose(0, 3)
        confirms: dict[str, Any] = {
            "rcv_settle_mode": spec.RECEIVER_SECOND,
            "desired_capabilities": (EXACTLY_ONCE_CAPABILITY,),
            "target": spec.Target(address="q", **stays),
        }
        client.sender(None, 1, "y", **confirms)
        client.publish(0, handle=1)
        client.publish(1, handle=1)
        client.hang_up()
        client = self.ready(house, "client")
        known = {b"tag-0": spec.Accepted(), b"tag-1": None, b"tag-2": None}
        client.sender(None, 1, "y", unsettled=known, **confirms)
        client.publish(0, handle=1, delivery_tag=b"tag-1", resume=True)
        client.publish(1, handle=1, delivery_tag=b"tag-2", resume=True)
        client.hang_up()
        self.world.advance(100)
        self.held("resume")

    def test_errors(self) -> None:
        """One at each scope: delivery, link, session, connection, framing."""
        house = self.world.house(nodes=["q"], limits={}, settings={"max_message_size": 100_000})

        def delivery(client: SpokenClient) -> None:
            client.sender("amqp$transfer")
            client.publish(0, message(to="nobody"))
            client.publish(1, b"\x00\x53")

        def link(client: SpokenClient) -> None:
            client.sender("amqp$transfer", source=spec.Source(outcomes=(MODIFIED,)))
            client.publish(0, message(to="nobody"))
            client.sender("q", 1)
            client.publish(1, message(b"x" * 100_001), 1)
            client.send(attach("sender", "none", 2, "nobody"))
            client.send(attach("sender", "bad", 3, "not an address@@"))

        def session(client: SpokenClient) -> None:
            client.begun(1)
            client.send(spec.Disposition(role=True, first=0, settled=True), channel=1)
            client.sender("q")
            client.publish(7, handle=5)

        def connection(client: SpokenClient) -> None:
            client.send(spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))

        def framing(client: SpokenClient) -> None:
            client.write(b"\x00\x00\x00\x04\x02\x00\x00\x00")

        def decoding(client: SpokenClient) -> None:
            client.write(b"\x00\x00\x00\x0a\x02\x00\x00\x00\xff\xff")

        def too_large(client: SpokenClient) -> None:
            client.write(b"\x7f\xff\xff\xff\x02\x00\x00\x00")

        def taken(client: SpokenClient) -> None:
            client.sender("q", 0, "same")
            client.send(attach("sender", "other", 0, "q"))

        scopes: Mapping[str, Callable[[SpokenClient], None]] = {
            "delivery": delivery, "link": link, "session": session, "connection": connection,
            "framing": framing, "decoding": decoding, "too-large": too_large, "taken": taken,
        }  # fmt: skip
        for name, scope in scopes.items():
            client = self.ready(house, name)
            scope(client)
            client.run(1)
        refused = self.world.house(
            "b.test", access=[Rule.of(who="user:ann", node="q", allow=EVERYTHING)]
        )
        client = self.ready(refused, "denied")
        client.send(attach("sender", "s", 0, "q"), attach("receiver", "r", 1, "q"))
        silent = self.client(house, "silent")
        silent.write(AMQP_HEADER, frame(spec.Open(container_id="c")))
        silent.run(300)
        self.held("errors")

    def test_topics(self) -> None:
        """Subscriptions of each kind, a newest value, a subscription that is taken up again."""
        house = self.world.house(nodes=["q", topic("t", last_value=1)])
        client = self.ready(house, "subscriber")
        client.receiver("t", 0, credit=10)
        durable = spec.Source(address="t", durable=2, expiry_policy="never")
        client.receiver("t", 1, "kept", source=durable, credit=1)
        by_subject = {Symbol("s"): Described(Symbol("apache.org:legacy-amqp-topic-binding:string"),
                                             "a.*")}  # fmt: skip
        client.receiver("t", 2, source=spec.Source(address="t", filter=by_subject), credit=10)
        shared = spec.Source(address="t", capabilities=(Symbol("shared"),))
        client.receiver("t", 3, "group", source=shared, credit=1)
        publisher = self.ready(house, "publisher")
        publisher.sender("t")
        publisher.publish(0, message(b"1", subject="a.b"))
        publisher.publish(1, message(b"2", subject="c"))
        client.run()
        client.hang_up()
        publisher.publish(2, message(b"3", subject="a.c"))
        client = self.ready(house, "subscriber")
        client.receiver("t", 1, "kept", source=durable, credit=10)
        client.dispose(0, 2)
        client.send(spec.Detach(handle=1, closed=True))
        client.receiver("t", 2, "late", credit=10)
        self.held("topics")

    def test_dynamic(self) -> None:
        """Nodes made for a link, and their lifetimes."""
        house = self.world.house(qualify=True)
        client = self.ready(house)
        for handle, lifetime in enumerate((0x2B, 0x2C, 0x2D, 0x2E)):
            policy = {Symbol("lifetime-policy"): Described(ULong(lifetime), [])}
            source = spec.Source(dynamic=True, dynamic_node_properties=policy)
            answer = client.receiver(None, handle, source=source, credit=1)
            assert answer.source is not None
            client.sender(answer.source.address, 10 + handle)
            client.publish(handle, handle=10 + handle)
            client.send(spec.Detach(handle=handle, closed=True))
        client.sender(None, 20, target=spec.Target(dynamic=True))
        self.held("dynamic")

    def test_management(self) -> None:
        """Questions about each thing, changes, mistakes, and commands as text."""
        house = self.world.house(nodes=["q", "r", topic("t")], aliases={"nick": "q"})
        client = self.ready(house, "operator")
        answer = client.receiver(None, 0, source=spec.Source(dynamic=True), credit=1000)
        assert answer.source is not None
        reply_to = answer.source.address
        client.sender("$management", 1)
        numbers = itertools.count()

        def send(body: bytes, **application: Any) -> None:
            number = next(numbers)
            asked = codec.encode(spec.Properties(message_id=f"m{number}", reply_to=reply_to))
            if application:
                asked += section(spec.SECTION_APPLICATION_PROPERTIES, application)
            client.publish(number, asked + body, 1)
            client.run()

        def ask(operation: str, body: Any = None, **application: Any) -> None:
            client.transcript.note(f"{operation} {application}")
            value = section(spec.SECTION_AMQP_VALUE, body or {})
            send(value, operation=operation, **application)

        for operation in ("GET-TYPES", "GET-OPERATIONS", "GET-ATTRIBUTES"):
            ask(operation)
        for kind in MANAGED:
            ask("QUERY", entityType=kind)
        ask("QUERY", {"attributeNames": ["name", "depth"]}, entityType="queue", offset=1, count=1)
        for kind, name in (("queue", "q"), ("topic", "t"), ("alias", "nick"), ("queue", "none")):
            ask("READ", type=kind, name=name)
        ask("CREATE", {"ttl": 60}, type="queue", name="made")
        ask("CREATE", {"colour": "red"}, type="queue", name="odd")
        ask("UPDATE", {"ttl": 90}, type="queue", name="made")
        ask("ASSERT", {"ttl": 90}, type="queue", name="made")
        ask("RENAME", {"name": "named"}, type="queue", name="made")
        client.fill([b"1", b"2"], "named")
        ask("COPY", {"target": "r"}, type="queue", name="named")
        ask("MOVE", {"target": "r", "limit": 1}, type="queue", name="named")
        ask("PURGE", type="queue", name="named")
        ask("DELETE", type="queue", name="named")
        ask("CREATE", {"source": "q", "target": "r"}, type="link", name="bound")
        ask("QUERY", entityType="link")
        ask("EXPLODE")
        client.transcript.note("commands as text: all or nothing")
        send(section(spec.SECTION_AMQP_VALUE, "create queue a\nrename queue a b\ndelete queue b"))
        send(section(spec.SECTION_AMQP_VALUE, "create queue a\nquery queue\ndelete queue nobody"))
        send(section(spec.SECTION_AMQP_VALUE, "make coffee"))
        self.held("management")


class PeerTests(WireCase):
    """Two brokers, and clients of each."""

    def setUp(self) -> None:
        super().setUp()
        self.one = self.world.house("a.test", nodes=["q", "returns"])
        self.other = self.world.house("b.test", nodes=["q"])
        self.sender = self.ready(self.one, "publisher at a.test", who=ANN)
        self.sender.sender("amqp$transfer")
        self.reader = self.ready(self.other, "consumer at b.test")
        self.reader.receiver("q", credit=1000)
        self.count = itertools.count()

    def send(self, body: bytes = b"m", to: str = "q@b.test", **more: Any) -> None:
        """Publish a message for the other broker, and let it go."""
        header = more.pop("header", spec.Header(durable=True))
        self.sender.publish(next(self.count), message(body, header=header, to=to, **more))
        self.world.advance(1)

    def test_relayed(self) -> None:
        """One alone, several at once, a large one, one whose life shortens on its way."""
        self.send()
        for number in range(3):
            self.sender.end.protocol.dataReceived(
                self.sender.transfer(next(self.count), message(b"%d" % number, to="q@b.test"))
            )
        self.world.advance(1)
        self.send(b"x" * 200_000)
        self.send(header=spec.Header(durable=True, ttl=10_000), message_id="m-1")
        self.reader.run()
        self.reader.dispose(0, 5)
        self.world.advance(200)
        self.held("relayed")

    def test_refused(self) -> None:
        """Rejected by the next broker, for its node and for its terms; one that it releases."""
        self.send(to="nobody@b.test")
        self.send(to="q@b.test", annotations={"x-opt-own": "kept"})
        self.send(to="q@c.test")
        self.world.advance(10)
        self.held("relay-refused")

    def test_interrupted(self) -> None:
        """The wire breaks before the outcome; what comes again is known, and stored once."""
        self.other.store.is_held = True
        self.send(b"twice")
        self.world.cut_all()
        self.other.store.let_go()
        self.world.advance(10)
        self.send(b"next")
        self.world.advance(400)
        self.reader.run()
        self.held("relay-interrupted")

    def test_called_back(self) -> None:
        """Both call each other: each has a connection of its own for what it sends."""
        self.send()
        back = self.ready(self.other, "publisher at b.test", who=ANN)
        back.sender("q@a.test")
        back.publish(0)
        self.world.advance(5)
        self.held("relay-both-ways")

    def test_reports(self) -> None:
        """Reports of a relay, of a delivery at the other broker, of a failure."""
        for house in (self.one, self.other):
            make_reporter(
                house.broker,
                house.relay,
                lambda house=house: house.transfer.rules.router,
                ReportTerms(house.name, house.name),
            )
        taker = self.ready(self.one, "reader of reports at a.test")
        taker.receiver("returns", credit=100)
        kinds = [Symbol("failure"), Symbol("relayed"), Symbol("delivered")]
        wants = {"x-opt-return-to": "returns@a.test", "x-opt-report": kinds}
        self.send(annotations=wants, message_id="m-1")
        self.reader.run()
        self.reader.dispose(0)
        self.world.advance(5)
        self.send(to="nobody@b.test", annotations=wants, message_id="m-2")
        self.world.advance(5)
        taker.run()
        self.held("reports")
