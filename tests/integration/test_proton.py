# SPDX-License-Identifier: Apache-2.0
"""Qpid Proton, the reference implementation of AMQP 1.0, as publisher and consumer."""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.trial.unittest import SkipTest

from amqproute.wire.amqp10 import sections
from tests.integration.support import (
    PATIENCE,
    Daemon,
    DaemonTestCase,
    Wire,
    certificates,
    until,
)

try:
    import proton
    from proton import (
        Array,
        Data,
        Described,
        Disposition,
        Endpoint,
        Link,
        Message,
        SSLDomain,
        Terminus,
        char,
        symbol,
        timestamp,
        ulong,
    )
    from proton.handlers import MessagingHandler
    from proton.reactor import (
        AtMostOnce,
        Container,
        ReceiverOption,
        SenderOption,
    )
    from proton.utils import BlockingConnection, LinkDetached, SendException
except ImportError:
    proton = None

MEBIBYTE = 2**20

if proton is not None:

    class Stays(ReceiverOption):  # type: ignore[misc]
        """The source outlives its connection for half a minute."""

        def apply(self, receiver: Any) -> None:
            """Ask for it."""
            receiver.source.expiry_policy = Terminus.EXPIRE_WITH_CONNECTION
            receiver.source.timeout = 30

    class ExactlyOnce(SenderOption):  # type: ignore[misc]
        """Exactly-once, requested in the places that Proton lets its users set."""

        def apply(self, sender: Any) -> None:
            """Ask for it."""
            sender.properties = {symbol("delivery-mode"): symbol("exactly-once")}
            sender.target.capabilities.put_symbol(symbol("AMQPROUTE:EXACTLY-ONCE"))

    class SecondAlone(SenderOption):  # type: ignore[misc]
        """The rcv-settle-mode second, and nothing that says that the sender will settle."""

        def apply(self, sender: Any) -> None:
            """Ask for it."""
            sender.rcv_settle_mode = Link.RCV_SECOND

    class OncePublisher(MessagingHandler):  # type: ignore[misc]
        """Sends three messages exactly once; Proton settles what is accepted."""

        def __init__(self, url: str, node: str) -> None:
            super().__init__()
            self.url, self.node = url, node
            self.sent = self.accepted = 0
            self.mode: Any = None

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(self.url, reconnect=False, heartbeat=None)
            event.container.create_sender(
                self.connection, self.node, name="once", options=ExactlyOnce()
            )

        def on_sendable(self, event: Any) -> None:
            self.mode = event.sender.remote_rcv_settle_mode
            while event.sender.credit and self.sent < 3:
                event.sender.send(Message(body=self.sent, durable=True))
                self.sent += 1

        def on_accepted(self, event: Any) -> None:
            self.accepted += 1
            if self.accepted == 3:
                event.sender.close()

        def on_link_closed(self, event: Any) -> None:
            self.connection.close()


class ProtonTestCase(DaemonTestCase):
    """A test that talks with Proton."""

    def setUp(self) -> None:
        if proton is None:
            raise SkipTest("python-qpid-proton is not installed (pip install '.[interop]')")
        super().setUp()
        self.connection = self.connect()

    def connect(self, port: int = 0, scheme: str = "amqp", **options: Any) -> Any:
        """Connect a blocking client; it is closed at the end of the test."""
        options = {"timeout": PATIENCE, "heartbeat": None, **options}
        url = f"{scheme}://127.0.0.1:{port or self.daemon.plain}"
        connection = BlockingConnection(url, **options)
        self.addCleanup(connection.close)
        return connection

    def send(self, *messages: Any, connection: Any = None, **options: Any) -> None:
        sender = (connection or self.connection).create_sender(self.node, **options)
        for each in messages:
            sender.send(each)
        sender.close()

    def receive(self, count: int = 1, connection: Any = None) -> list[Any]:
        receiver = (connection or self.connection).create_receiver(self.node, credit=count)
        got = []
        for _ in range(count):
            got.append(receiver.receive(timeout=PATIENCE))
            receiver.accept()
        receiver.close()
        return got


class MessageTests(ProtonTestCase):
    def test_durable(self) -> None:
        self.send(Message(body="hello", durable=True))
        (got,) = self.receive()
        self.assertEqual((got.body, got.durable, got.delivery_count), ("hello", True, 0))
        self.assertTrue(got.first_acquirer)

    def test_not_durable(self) -> None:
        self.send(Message(body="hello"))
        (got,) = self.receive()
        self.assertEqual((got.body, got.durable), ("hello", False))

    def test_at_most_once(self) -> None:
        """Pre-settled deliveries, in and out."""
        self.send(*(Message(body=n) for n in range(5)), options=AtMostOnce())
        receiver = self.connection.create_receiver(self.node, credit=5, options=AtMostOnce())
        self.assertEqual(
            [receiver.receive(timeout=PATIENCE).body for _ in range(5)], list(range(5))
        )
        receiver.close()
        self.assert_empty()

    def test_order(self) -> None:
        self.send(*(Message(body=n, durable=n % 2 == 0) for n in range(50)))
        self.assertEqual([m.body for m in self.receive(50)], list(range(50)))

    def test_every_type(self) -> None:
        """The bare message arrives octet for octet as it was sent (M-01)."""
        array = Array(Data.INT and proton.UNDESCRIBED, Data.INT, 1, -2, 3)
        values: dict[str, Any] = {
            "null": None,
            "true": True,
            "ubyte": proton.ubyte(255),
            "ushort": proton.ushort(65535),
            "uint": proton.uint(4294967295),
            "ulong": ulong(2**64 - 1),
            "byte": proton.byte(-128),
            "short": proton.short(-32768),
            "int": proton.int32(-(2**31)),
            "long": -(2**63),
            "float": proton.float32(1.5),
            "double": 1.1,
            "decimal32": proton.decimal32(7),
            "decimal64": proton.decimal64(7),
            "decimal128": proton.decimal128(b"x" * 16),
            "char": char("\U0001f600"),
            "timestamp": timestamp(1_700_000_000_123),
            "uuid": uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF),
            "binary": b"\0\xff" * 300,
            "string": "na\u00efve \U0001f600" * 50,
            "symbol": symbol("a-symbol"),
        }
        body = {**values, "list": [1, "two", [3.0]], "map": {"k": {"n": None}}, "array": array,
                "described": Described(symbol("my:type"), ["x"])}  # fmt: skip
        sent = Message(
            body=body, durable=True, priority=7, ttl=3600.0, id=uuid.UUID(int=99),
            user_id=b"anna", address="somewhere/else", subject="every type",
            reply_to="answers", correlation_id=ulong(2**63), content_type=symbol("text/plain"),
            content_encoding=symbol("identity"), expiry_time=4_000_000_000.0,
            creation_time=1_700_000_000.0, group_id="g", group_sequence=4_000_000_000,
            reply_to_group_id="r", properties=values,
            annotations={symbol("x-opt-text"): "t", symbol("x-opt-list"): [1, None]},
            instructions={symbol("x-opt-hop"): "by hop"},
        )  # fmt: skip
        encoded = sent.encode()
        self.send(sent)
        with Wire(self.daemon.plain) as wire:
            (got,) = wire.consume(self.node, 1)
        ours, theirs = sections.locate(got), sections.locate(encoded)
        self.assertEqual(
            got[ours.bare_start : ours.bare_end], encoded[theirs.bare_start : theirs.bare_end]
        )
        back = Message()
        back.decode(got)
        self.assertEqual(back.body, body)
        self.assertEqual(back.properties, values)
        self.assertEqual(back.annotations, sent.annotations)
        self.assertEqual((back.durable, back.priority), (True, 7))
        self.assertLessEqual(back.ttl, 3600.0)
        self.assertGreater(back.ttl, 3500.0)

    def test_kinds_of_body(self) -> None:
        """amqp-value, data, and amqp-sequence."""
        sequence = Message(body=[1, "two"])
        sequence.inferred = True
        data = Message(body=b"octets")
        data.inferred = True
        self.send(Message(body={"a": 1}), data, sequence)
        value, octets, listed = self.receive(3)
        self.assertEqual((value.body, value.inferred), ({"a": 1}, False))
        self.assertEqual((octets.body, octets.inferred), (b"octets", True))
        self.assertEqual((list(listed.body), listed.inferred), ([1, "two"], True))

    def test_ten_mebibytes(self) -> None:
        """A message of many frames, in both directions, with the smallest and the usual frame."""
        body = os.urandom(10 * MEBIBYTE)
        for size in (4096, 65536):
            connection = self.connect(max_frame_size=size)
            self.send(Message(body=body, durable=True), connection=connection)
            (got,) = self.receive(1, connection)
            self.assertTrue(got.body == body, size)

    def test_time_to_live(self) -> None:
        """A message is not delivered after its time (D-07)."""
        self.send(Message(body="short", ttl=0.05), Message(body="long"))
        time.sleep(0.06)  # the very thing under test: that time passes
        self.assertEqual(self.receive()[0].body, "long")


class OutcomeTests(ProtonTestCase):
    nodes = ({"name": "buried"}, {"name": "with-grave", "dead-letter": "buried"})

    def test_accept(self) -> None:
        self.send(Message(body=1))
        self.receive()
        self.assert_empty()

    def test_release(self) -> None:
        """A released message comes again, with its count as it was."""
        self.send(Message(body=1))
        receiver = self.connection.create_receiver(self.node, credit=2)
        receiver.receive(timeout=PATIENCE)
        receiver.release(delivered=False)
        again = receiver.receive(timeout=PATIENCE)
        self.assertEqual((again.body, again.delivery_count, again.first_acquirer), (1, 0, False))
        receiver.accept()

    def test_modified(self) -> None:
        """delivery-failed raises the count."""
        self.send(Message(body=1))
        receiver = self.connection.create_receiver(self.node, credit=2)
        receiver.receive(timeout=PATIENCE)
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.failed = True
        delivery.update(Disposition.MODIFIED)
        delivery.settle()
        again = receiver.receive(timeout=PATIENCE)
        self.assertEqual((again.body, again.delivery_count), (1, 1))
        receiver.accept()

    def test_undeliverable_here(self) -> None:
        """Not to this link again, but to another (O-13)."""
        self.send(Message(body=1), Message(body=2))
        receiver = self.connection.create_receiver(self.node, credit=1)
        receiver.receive(timeout=PATIENCE)
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.undeliverable = True
        delivery.update(Disposition.MODIFIED)
        delivery.settle()
        self.assertEqual(receiver.receive(timeout=PATIENCE).body, 2)
        receiver.accept()
        other = self.connect()
        self.assertEqual(self.receive(1, other)[0].body, 1)

    def test_reject(self) -> None:
        """A rejected message goes to the dead-letter node, with the reason (O-24)."""
        self.node = "with-grave"
        self.send(Message(body="foul", durable=True))
        receiver = self.connection.create_receiver(self.node, credit=1)
        receiver.receive(timeout=PATIENCE)
        receiver.reject()
        grave = self.connection.create_receiver("buried", credit=1)
        dead = grave.receive(timeout=PATIENCE)
        grave.accept()
        self.assertEqual(dead.body, "foul")
        self.assertEqual(dead.annotations["x-opt-dead-letter-reason"], "rejected")
        self.assertEqual(dead.annotations["x-opt-dead-letter-source"], "with-grave")

    def test_lost_connection(self) -> None:
        """Deliveries that a consumer had not settled go to the next one (O-06)."""
        self.send(*(Message(body=n, durable=True) for n in range(3)))
        other = BlockingConnection(f"127.0.0.1:{self.daemon.plain}", timeout=PATIENCE)
        receiver = other.create_receiver(self.node, credit=0)
        receiver.flow(3)
        receiver.receive(timeout=PATIENCE)
        receiver.accept()
        receiver.receive(timeout=PATIENCE)
        other.create_sender(None)  # its answer shows that the outcome has been written
        descriptor = other.conn.transport._selectable.fileno()
        with socket.socket(fileno=os.dup(descriptor)) as gone:
            gone.shutdown(socket.SHUT_RDWR)
        self.assertEqual([m.body for m in self.receive(2)], [1, 2])

    def test_reattach_by_name(self) -> None:
        """A link of the same name on a new connection takes over: nothing stays locked (L-09)."""
        self.send(*(Message(body=n, durable=True) for n in range(3)))
        with Wire(self.daemon.plain, container="same") as old:
            link = old.attach("receiver", self.node, "the-link")
            link.flow(3)
            until(lambda: old.read() and len(link.unsettled) == 3, "three deliveries")
            with Wire(self.daemon.plain, container="same") as new:
                again = new.attach("receiver", self.node, "the-link")
                again.flow(3)
                until(lambda: new.read() and len(again.unsettled) == 3, "they come again")
                until(lambda: old.read() and not link.is_active, "the old link is stolen")


class SuspendedTests(ProtonTestCase):
    """Links that Proton detaches, or loses, and attaches again."""

    def named(self, name: str) -> Any:
        """Return a connection of a container of this name."""
        container = Container()
        container.container_id = name
        return self.connect(container=container)

    def parked(self, connection: Any, count: int, **options: Any) -> Any:
        """Receive messages on the link ``park`` and leave them unsettled."""
        receiver = connection.create_receiver(self.node, credit=0, name="park", **options)
        receiver.flow(count)
        for _ in range(count):
            receiver.receive(timeout=PATIENCE)
        return receiver

    def test_detached(self) -> None:
        """Parked while the link is detached, and there again when it is back (O-04, O-06)."""
        self.send(*(Message(body=n, durable=True) for n in range(3)))
        holder = self.named("holder")
        receiver = self.parked(holder, 3, options=Stays())
        self.assertEqual(receiver.link.remote_source.expiry_policy, Terminus.EXPIRE_WITH_CONNECTION)
        self.assertEqual(receiver.link.remote_source.timeout, 30)
        receiver.link.detach()
        holder.create_sender(None).close()  # its answer shows that the detach has arrived
        self.assert_empty()
        receiver.link.free()
        again = holder.create_receiver(self.node, credit=0, name="park", options=Stays())
        again.flow(3)
        self.assertEqual([again.receive(timeout=PATIENCE).body for _ in range(3)], [0, 1, 2])
        for _ in range(3):
            again.accept()
        again.close()
        self.assert_empty()

    def test_lost(self) -> None:
        """Parked while the connection is gone; released when the link is closed at last."""
        self.send(*(Message(body=n, durable=True) for n in range(2)))
        container = Container()
        container.container_id = "loser"
        url = f"127.0.0.1:{self.daemon.plain}"
        holder = BlockingConnection(url, timeout=PATIENCE, container=container)
        self.parked(holder, 2, options=Stays())
        descriptor = holder.conn.transport._selectable.fileno()
        with socket.socket(fileno=os.dup(descriptor)) as gone:
            gone.shutdown(socket.SHUT_RDWR)
        self.assert_empty()
        again = self.parked(self.named("loser"), 2, options=Stays())
        self.assert_empty()
        again.close()
        self.assertEqual([m.body for m in self.receive(2)], [0, 1])

    def test_usual(self) -> None:
        """Without a word about it, what was held is free when the session is over (O-17)."""
        self.send(Message(body=1, durable=True))
        holder = self.named("usual")
        receiver = self.parked(holder, 1)
        receiver.link.detach()
        holder.create_sender(None).close()  # its answer shows that the detach has arrived
        self.assert_empty()
        holder.close()
        self.assertEqual([m.body for m in self.receive(1)], [1])

    def test_exactly_once(self) -> None:
        """Proton settles second: it hears the outcome, and its settlement is the end (P-16)."""
        publisher = OncePublisher(f"amqp://127.0.0.1:{self.daemon.plain}", self.node)
        Container(publisher).run()
        self.assertEqual((publisher.sent, publisher.accepted), (3, 3))
        self.assertEqual(publisher.mode, Link.RCV_SECOND)
        self.assertEqual([m.body for m in self.receive(3)], [0, 1, 2])

    def test_second_alone(self) -> None:
        """P-14: as Proton reads the answer, the receiver settles first, and so it does."""
        sender = self.connection.create_sender(self.node, options=SecondAlone())
        self.assertEqual(sender.link.remote_rcv_settle_mode, Link.RCV_FIRST)
        delivery = sender.link.send(Message(body="one"))
        self.connection.wait(lambda: delivery.settled, msg="settlement")
        self.assertEqual(delivery.remote_state, Disposition.ACCEPTED)

    def test_malformed(self) -> None:
        """M-22, M-24, E-08: rejected with decode-error as Proton reads it; the link continues."""
        link = self.connection.create_sender(self.node).link
        for octets in (b"junk", b"", Message(body=b"cut").encode()[:-1]):
            delivery = link.delivery(link.delivery_tag())
            if octets:
                link.stream(octets)
            link.advance()
            self.connection.wait(lambda delivery=delivery: delivery.settled, msg="settlement")
            self.assertEqual(delivery.remote_state, Disposition.REJECTED)
            self.assertEqual(delivery.remote.condition.name, "amqp:decode-error")
        delivery = link.send(Message(body="good"))
        self.connection.wait(lambda: delivery.settled, msg="settlement")
        self.assertEqual([m.body for m in self.receive(1)], ["good"])
        self.assert_empty()


class LinkTests(ProtonTestCase):
    def test_credit(self) -> None:
        """No more than the credit (F-05)."""
        self.send(*(Message(body=n) for n in range(10)))
        receiver = self.connection.create_receiver(self.node, credit=0)  # else Proton tops it up
        receiver.link.flow(3)
        until(lambda: self.pump() and len(receiver.fetcher.incoming) == 3, "three messages")
        self.pump(5)
        self.assertEqual(len(receiver.fetcher.incoming), 3)
        receiver.link.flow(2)
        until(lambda: self.pump() and len(receiver.fetcher.incoming) == 5, "two more")
        self.pump(5)
        self.assertEqual(len(receiver.fetcher.incoming), 5)

    def pump(self, times: int = 1) -> bool:
        """Let Proton read and write for a moment."""
        for _ in range(times):
            self.connection.container.timeout = 0.01
            self.connection.container.process()
        return True

    def test_drain(self) -> None:
        """The available messages come, and the rest of the credit is returned (F-10)."""
        self.send(Message(body=1), Message(body=2))
        receiver = self.connection.create_receiver(self.node, credit=0)
        receiver.link.drain(10)
        until(lambda: self.pump() and receiver.link.credit == 0, "a drained link")
        self.assertEqual(len(receiver.fetcher.incoming), 2)

    def test_drain_of_nothing(self) -> None:
        receiver = self.connection.create_receiver(self.node, credit=0)
        receiver.link.drain(10)
        until(lambda: self.pump() and receiver.link.credit == 0, "a drained link")

    def refused(self, condition: str, act: Callable[[], Any]) -> None:
        """Assert that an act ends in a rejection or detach with a condition."""
        try:
            act()
        except SendException:
            return
        except LinkDetached as error:
            self.assertIn(condition, str(error))
            return
        raise AssertionError("not refused")

    def test_unknown_node(self) -> None:
        self.refused("amqp:not-found", lambda: self.connection.create_sender("nobody"))
        self.refused("amqp:not-found", lambda: self.connection.create_receiver("nobody"))
        self.logged(r"127\.0\.0\.1:\d+ \(anonymous\) link .* refused: amqp:not-found.*'nobody'")

    def test_anonymous_terminus(self) -> None:
        """Each message to the node of its `to`."""
        self.assertIn("ANONYMOUS-RELAY", self.connection.conn.remote_offered_capabilities)
        sender = self.connection.create_sender(None)
        sender.send(Message(body=1, address=self.node))
        sender.send(Message(body=2, address=f"{self.node}@ALPHA.example"))
        self.assertEqual([m.body for m in self.receive(2)], [1, 2])

    def test_own_domain(self) -> None:
        """``x@y`` with a y of ours is the local node, as target and as source (A-20)."""
        sender = self.connection.create_sender(f"{self.node}@alpha.example")
        sender.send(Message(body=1))
        receiver = self.connection.create_receiver(f"{self.node}@alpha.example", credit=1)
        self.assertEqual(receiver.receive(timeout=PATIENCE).body, 1)
        receiver.accept()

    def test_many_links_and_sessions(self) -> None:
        """A hundred links and twenty sessions on one connection."""
        senders = [self.connection.create_sender(self.node, name=f"s{n}") for n in range(100)]
        for number, sender in enumerate(senders):
            sender.send(Message(body=number))
        for _ in range(20):
            session = self.connection.conn.session()
            session.open()
            link = session.receiver(f"{session.name if hasattr(session, 'name') else id(session)}")
            link.source.address = self.node
            link.open()
            until(lambda link=link: self.pump() and link.state & Endpoint.REMOTE_ACTIVE, "a link")
        self.assertEqual(sorted(m.body for m in self.receive(100)), list(range(100)))


class ConnectionTests(ProtonTestCase):
    changes = {"limits": {"idle-timeout": 1}}

    def test_heartbeats(self) -> None:
        """An idle connection lives while both sides keep it alive (part 2 §2.4.5)."""
        connection = self.connect(heartbeat=0.4)
        self.send(Message(body=1), connection=connection)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            connection.container.timeout = 0.1
            connection.container.process()
        self.assertEqual(self.receive(1, connection)[0].body, 1)

    def test_silence(self) -> None:
        """A client that says nothing for twice the announced time is closed."""
        connection = self.connect()
        self.logged(r"closed by us for its fault: amqp:resource-limit-exceeded|idle")
        self.assertIsNotNone(connection)

    @contextmanager
    def tls(self, **credentials: Any) -> Iterator[Any]:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(certificates().trust))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        if "issued" in credentials:
            issued = credentials.pop("issued")
            domain.set_credentials(str(issued.chain), str(issued.private_key), None)
        yield domain

    def secure(self, domain: Any, **options: Any) -> Any:
        return self.connect(
            self.daemon.tls, "amqps", ssl_domain=domain, virtual_host="alpha.example", **options
        )

    def test_plain(self) -> None:
        with self.tls() as domain:
            connection = self.secure(domain, user="anna", password="secret", allowed_mechs="PLAIN")
            self.send(Message(body="by PLAIN"), connection=connection)
        self.logged(r"opened by user:anna, .*TLSv1")
        self.assertEqual(self.receive()[0].body, "by PLAIN")

    def test_plain_with_a_wrong_password(self) -> None:
        self.connection.close()  # or it may be closed for its silence, with a warning
        with self.tls() as domain, self.assertRaises(proton.ConnectionException):
            self.secure(
                domain, user="anna", password="guess", allowed_mechs="PLAIN", reconnect=False
            )
        self.logged(r"log-in failed from 127\.0\.0\.1, PLAIN, user ")
        warnings = re.findall(r"^\S+ warn .*", self.daemon.log()[self.begun_at :], re.MULTILINE)
        self.assertEqual(len(warnings), 1, warnings)

    def test_external(self) -> None:
        """A certificate of a trusted authority is a peer of the names in it."""
        issued = certificates().issue("client.example")
        with self.tls(issued=issued) as domain:
            connection = self.secure(domain, allowed_mechs="EXTERNAL")
            sender = connection.create_sender("amqp$transfer")
            sender.send(Message(body="by EXTERNAL", address=f"{self.node}@alpha.example"))
        self.logged(r"opened by peer:client\.example, .*TLSv1")
        self.assertEqual(self.receive()[0].body, "by EXTERNAL")

    def test_anonymous(self) -> None:
        connection = self.connect(allowed_mechs="ANONYMOUS")
        self.send(Message(body=1), connection=connection)
        self.assertEqual(self.receive()[0].body, 1)

    def test_restart(self) -> None:
        """Durable messages outlive the daemon, the others do not (D-01)."""
        daemon = Daemon("gamma.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(daemon.stop)
        self.node = "q"
        connection = self.connect(daemon.plain)
        self.send(Message(body="kept", durable=True), Message(body="not"), connection=connection)
        connection.close()
        daemon.kill()
        daemon.start()
        connection = self.connect(daemon.plain)
        self.assertEqual(self.receive(1, connection)[0].body, "kept")
        receiver = connection.create_receiver("q", credit=1)
        with self.assertRaises(proton.Timeout):
            receiver.receive(timeout=0.2)
        daemon.check()
