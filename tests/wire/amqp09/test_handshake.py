# SPDX-License-Identifier: Apache-2.0
"""A connection until it is open, its heartbeats, and its end."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire import input_cost
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.connection_settings import Connection09Settings
from amqproute.wire.amqp09.handshake import MOST_WAITING, HandshakeStage
from amqproute.wire.amqp09.protocol_events import (
    BlockedNotice,
    ChallengeAnswered,
    Challenged,
    ChannelAsked,
    ChannelEnded,
    ConnectionEnded,
    ConnectionOpened,
    ConnectionRedirected,
    MechanismChosen,
    MechanismsOffered,
    PublishesReceived,
    SecretReplaced,
    UnblockedNotice,
    VirtualHostAsked,
)
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.versions import ProtocolVersion
from amqproute.wire.amqp09.violations import Violation
from tests.support.plain_amqp09 import frame_octets, method, method_octets
from tests.support.wire09 import V09, V091, Peer09, call, of_type, publish, settings


def start_ok(**changes: Any) -> bytes:
    """Return a start-ok as clients send it."""
    fields = {"mechanism": "PLAIN", "response": b"\0u\0p", "locale": "en_US", **changes}
    return call(0, "connection.start-ok", **fields)


class Script(Peer09):
    """A client whose server's user does nothing by itself."""

    def grant(self, event: object) -> None:
        """Leave it to the test."""


class HeaderTests(SynchronousTestCase):
    """The first eight octets."""

    def test_start(self) -> None:
        """09-W-02, 09-W-04, 09-CONN-04, -06, -07: start and no header, version 0-9 for both."""
        for header, version in ((V09, ProtocolVersion.V0_9), (V091, ProtocolVersion.V0_9_1)):
            peer = Script(header, properties={"product": "amqproute"}, capabilities=("basic.nack",))
            for octet in header[:-1]:
                peer.send(bytes((octet,)))
            self.assertEqual(peer.raw(), b"")
            peer.send(header[-1:])
            self.assertIs(peer.engine.version, version)
            [(channel, name, fields)] = peer.methods()
            self.assertEqual((channel, name), (0, "connection.start"))
            self.assertEqual((fields["version-major"], fields["version-minor"]), (0, 9))
            self.assertEqual(fields["mechanisms"], b"PLAIN AMQPLAIN")
            self.assertEqual(fields["locales"], b"en_US")
            self.assertEqual(
                fields["server-properties"],
                [("product", "S", b"amqproute"), ("capabilities", "F", [("basic.nack", "t", 1)])],
            )

    def test_other_versions(self) -> None:
        """09-W-03: AMQP before 1.0 is answered with 0-9-1's header, then the end."""
        for header in (b"AMQP\1\1\x08\0", b"AMQP\1\1\x09\1", b"AMQP\1\1\0\x0a", b"AMQP\0\0\x09\2"):
            peer = Script(header)
            [ended] = peer.send(header, b"more")
            self.assertIsInstance(ended, ConnectionEnded)
            self.assertEqual(peer.raw(), V091)
            self.assertTrue(peer.engine.is_closed)

    def test_strangers(self) -> None:
        """09-W-01, 09-W-03: others are answered with 1.0's SASL header, TLS with an alert."""
        for octets in (
            b"GET / HTTP/1.1\r\n",
            b"\0",
            b"AMQP\0\1\0\0",
            b"AMQP\3\1\0\0",
            b"AMQP\4\1\1\1",
        ):
            peer = Script()
            [ended] = peer.send(octets)
            self.assertIsInstance(ended, ConnectionEnded)
            self.assertEqual(peer.raw(), b"AMQP\3\1\0\0", octets)
            self.assertTrue(peer.engine.is_closed)
            self.assertEqual(peer.send(b"more"), [])
        peer = Script()
        peer.send(b"\x16\x03\x01")
        self.assertEqual(peer.raw()[:1], b"\x15")

    def test_refused_client(self) -> None:
        """09-CONN-03: a client that is answered with a header, or another version, goes."""
        for octets in (V09, b"AMQP\3\1\0\0"):
            engine = Connection09(settings("client"))
            engine.start(0)
            self.assertEqual(engine.receive_data(octets[:5], 0), [])
            [ended] = engine.receive_data(octets[5:], 0)
            self.assertIsInstance(ended, ConnectionEnded)
            self.assertTrue(engine.is_closed)
        engine = Connection09(settings("client"))
        engine.start(0)
        start = call(0, "connection.start", version_minor=8, mechanisms=b"PLAIN")
        [ended] = engine.receive_data(start, 0)
        self.assertIn("0-8", of_type([ended], ConnectionEnded)[0].text)


class ServerTests(SynchronousTestCase):
    """Start, secure, tune and open at a server."""

    def test_order(self) -> None:
        """09-CONN-05, -11, -12, -13, -21, -27, 09-X-18: the whole way, with two challenges."""
        peer = Script()
        peer.send(V091)
        self.assertEqual(peer.names(), ["connection.start"])
        [chosen] = peer.send(start_ok(response=b"\0\xff", client_properties=[("a", "I", 1)]))
        assert isinstance(chosen, MechanismChosen)
        self.assertEqual((chosen.mechanism, chosen.response), ("PLAIN", b"\0\xff"))
        self.assertEqual(dict(chosen.client_properties), {"a": 1})
        for number in range(2):
            peer.engine.challenge(b"\xfe%d" % number)
            self.assertEqual(
                peer.methods(), [(0, "connection.secure", {"challenge": b"\xfe%d" % number})]
            )
            self.assertEqual(
                peer.send(call(0, "connection.secure-ok", response=b"\0r")),
                [ChallengeAnswered(b"\0r")],
            )
        peer.engine.authenticated()
        [(_, name, tune)] = peer.methods()
        self.assertEqual(name, "connection.tune")
        self.assertEqual(tune, {"channel-max": 2047, "frame-max": 131072, "heartbeat": 0})
        self.assertEqual(
            peer.send(call(0, "connection.tune-ok", channel_max=9, frame_max=8192, heartbeat=7)), []
        )
        self.assertEqual(
            peer.send(call(0, "connection.open", virtual_host="/prod", insist=1)),
            [VirtualHostAsked("/prod", "", False)],
        )
        peer.engine.open_ok()
        self.assertEqual(peer.methods(), [(0, "connection.open-ok", {"known-hosts": ""})])
        engine = peer.engine
        self.assertEqual((engine.channel_max, engine.frame_max, engine.heartbeat), (9, 8192, 7))

    def test_open_in_0_9(self) -> None:
        """09-CONN-24, -26, 09-DOM-08: capabilities and insist are read, known-hosts is sent."""
        peer = Script(V09)
        peer.send(V09, start_ok())
        peer.engine.authenticated()
        peer.raw()
        [asked] = peer.send(
            call(0, "connection.tune-ok"),
            call(0, "connection.open", virtual_host="v", capabilities="x y", insist=1),
        )
        self.assertEqual(asked, VirtualHostAsked("v", "x y", True))
        peer.engine.open_ok("a.example:5672")
        [(_, _, fields)] = peer.methods()
        self.assertEqual(fields, {"known-hosts": "a.example:5672"})

    def test_out_of_order(self) -> None:
        """09-X-18, 09-W-65: anything else before open drops the transport without a method."""
        tune_ok = call(0, "connection.tune-ok")
        opened = call(0, "connection.open", virtual_host="/")
        for steps in (
            (tune_ok,), (opened,), (call(0, "connection.secure-ok"),),
            (call(0, "connection.close"),), (call(1, "channel.open"),),
            (call(0, "connection.tune"),),
            (start_ok(), start_ok()), (start_ok(), opened), (start_ok(), tune_ok, tune_ok),
            (start_ok(), tune_ok, call(1, "channel.open")),
        ):  # fmt: skip
            for header in (V09, V091):
                peer = Peer09(header)
                events = peer.send(header, *steps)
                ended = of_type(events, ConnectionEnded)
                self.assertEqual([e.violation for e in ended], [Violation.METHOD_OUT_OF_ORDER])
                self.assertEqual(set(peer.names()) & {"connection.close", "channel.open-ok"}, set())
                self.assertTrue(peer.engine.is_closed)

    def test_mechanism_not_offered(self) -> None:
        """09-CONN-08, 09-X-09: the connection is closed and nothing more is sent."""
        peer = Peer09()
        peer.send(V091)
        peer.raw()
        [ended] = peer.send(start_ok(mechanism="RABBIT-CR-DEMO"))
        assert isinstance(ended, ConnectionEnded)
        self.assertEqual(ended.violation, Violation.MECHANISM_NOT_OFFERED)
        self.assertIn("RABBIT-CR-DEMO", ended.text)
        self.assertIn("PLAIN AMQPLAIN", ended.text)
        self.assertEqual(peer.raw(), b"")
        self.assertTrue(peer.engine.is_closed)

    def test_locale(self) -> None:
        """09-CONN-10: the one chosen; one that was not offered is taken as the first."""
        for locale, taken in (("de_DE", "de_DE"), ("en_GB", "en_US")):
            peer = Script(locales=("en_US", "de_DE"))
            peer.send(V091)
            [chosen] = peer.send(start_ok(locale=locale))
            assert isinstance(chosen, MechanismChosen)
            self.assertEqual(chosen.locale, taken)

    def test_wrong_password(self) -> None:
        """09-W-50: the transport goes; a client that understands is told 403 by a close."""
        peer = Script()
        peer.send(V091, start_ok())
        peer.raw()
        peer.engine.refuse_authentication("wrong password")
        self.assertEqual(peer.raw(), b"")
        self.assertEqual(peer.engine.next_deadline(), peer.now)
        [ended] = of_type(peer.engine.tick(peer.now), ConnectionEnded)
        self.assertEqual((ended.code, ended.text), (403, "wrong password"))
        self.assertTrue(peer.engine.is_closed)
        peer = Script()
        peer.send(V091, start_ok(client_properties=peer.properties()))
        peer.raw()
        peer.engine.refuse_authentication("wrong password")
        [(_, name, fields)] = peer.methods()
        self.assertEqual((name, fields["reply-code"]), ("connection.close", 403))
        self.assertEqual((fields["class-id"], fields["method-id"]), (10, 11))
        [ended] = of_type(peer.send(call(0, "connection.close-ok")), ConnectionEnded)
        self.assertTrue(ended.clean)
        self.assertTrue(peer.engine.is_closed)

    def test_refused_host(self) -> None:
        """09-W-64, 09-CONN-23: codes of open go out in connection.close."""
        for code in (ReplyCode.INVALID_PATH, ReplyCode.ACCESS_REFUSED, ReplyCode.NOT_FOUND):
            peer = Script()
            peer.send(V091, start_ok())
            peer.engine.authenticated()
            peer.send(call(0, "connection.tune-ok"), call(0, "connection.open", virtual_host="x"))
            peer.raw()
            peer.engine.close(code, "no such host")
            [(_, name, fields)] = peer.methods()
            self.assertEqual((name, fields["reply-code"]), ("connection.close", code))

    def test_tune(self) -> None:
        """09-CONN-14, -15, -18, 09-X-12, -13, -14, 09-W-17: what may be agreed, and what not."""
        for asked, agreed in (
            ((0, 0), (2047, 131072)), ((2047, 131072), (2047, 131072)), ((1, 4096), (1, 4096)),
            ((2048, 0), None), ((0, 131073), None), ((0, 4095), None), ((0, 1), None),
        ):  # fmt: skip
            peer = Peer09()
            peer.send(V091, start_ok())
            peer.raw()
            events = peer.send(
                call(0, "connection.tune-ok", channel_max=asked[0], frame_max=asked[1])
            )
            if agreed is None:
                self.assertEqual(len(of_type(events, ConnectionEnded)), 1)
                self.assertEqual(peer.raw(), b"")
                self.assertTrue(peer.engine.is_closed)
            else:
                self.assertEqual((peer.engine.channel_max, peer.engine.frame_max), agreed)

    def test_frames_before_tuning(self) -> None:
        """09-X-11, 09-W-13: 4096 octets and some more are taken, then no more."""
        peer = Script()
        peer.send(V091)
        [chosen] = peer.send(start_ok(response=bytes(8192 - 100)))
        self.assertIsInstance(chosen, MechanismChosen)
        peer = Script()
        peer.send(V091)
        peer.raw()
        [ended] = peer.send(start_ok(response=bytes(8192))[:20])
        self.assertEqual(of_type([ended], ConnectionEnded)[0].violation, Violation.FRAME_SIZE)
        self.assertEqual(peer.raw(), b"")

    def test_written_ahead(self) -> None:
        """Input ahead of the user's answers waits, up to a bound."""
        peer = Script()
        ahead = call(0, "connection.tune-ok") + call(0, "connection.open", virtual_host="/")
        ahead += call(1, "channel.open") + publish(1, b"body")
        [chosen] = peer.send(V091, start_ok(), ahead)
        self.assertIsInstance(chosen, MechanismChosen)
        self.assertFalse(peer.engine.has_input)
        peer.engine.authenticated()
        self.assertTrue(peer.engine.has_input)
        [asked] = peer.engine.receive_data(b"", 1.0)
        self.assertIsInstance(asked, VirtualHostAsked)
        peer.engine.open_ok()
        events = peer.engine.receive_data(b"", 1.0)
        self.assertEqual([type(e) for e in events], [ChannelAsked, PublishesReceived])
        peer = Script()
        peer.send(V091, start_ok())
        for _ in range(MOST_WAITING // 1024):
            peer.send(bytes(1024))
        self.assertFalse(peer.engine.is_closed)
        [ended] = peer.send(b"x")
        self.assertIsInstance(ended, ConnectionEnded)

    def test_time(self) -> None:
        """A client that does not open within the handshake time is dropped."""
        peer = Peer09(handshake_timeout=30)
        peer.send(V091)
        self.assertEqual(peer.engine.next_deadline(), 30)
        self.assertEqual(peer.engine.tick(29.9), [])
        [ended] = peer.engine.tick(30)
        self.assertIsInstance(ended, ConnectionEnded)
        self.assertIsNone(peer.engine.next_deadline())

    def test_verbs_out_of_turn(self) -> None:
        """The user's mistakes raise, and write nothing."""
        peer = Script()
        for verb in (peer.engine.authenticated, peer.engine.open_ok, peer.engine.close_ok):
            with self.assertRaises(LocalProtocolError):
                verb()
        with self.assertRaises(LocalProtocolError):
            peer.engine.refuse_authentication("no")
        with self.assertRaises(LocalProtocolError):
            peer.engine.update_secret(b"", "")
        self.assertEqual(peer.raw(), b"")

    def test_settings(self) -> None:
        """A proposal that no peer could agree to is refused at once."""
        for changes in (
            {"frame_max": 4095}, {"channel_max": 0}, {"channel_max": 65536}, {"heartbeat": 65536},
            {"locales": ()}, {"properties": {"x": "y" * 4096}},
        ):  # fmt: skip
            with self.assertRaises(ValueError):
                settings(**changes)  # type: ignore[arg-type]
        self.assertEqual(Connection09Settings(role="client").channel_max, 2047)


class ExtensionTests(SynchronousTestCase):
    """09: part 4.5, connection."""

    def test_blocked(self) -> None:
        """connection.blocked and unblocked go to clients that want them."""
        peer = Peer09().opened()
        peer.engine.block("disk" * 100)
        peer.engine.unblock()
        (_, blocked, fields), (_, unblocked, _) = peer.methods()
        self.assertEqual((blocked, unblocked), ("connection.blocked", "connection.unblocked"))
        self.assertEqual(len(fields["reason"]), 255)

        class Old(Peer09):
            def properties(self) -> list[tuple[str, str, Any]]:
                return [("capabilities", "F", [("connection.blocked", "t", 0)])]

        old = Old().opened()
        old.engine.block("disk")
        self.assertEqual(old.raw(), b"")

    def test_update_secret(self) -> None:
        """connection.update-secret asks the user, and is answered."""
        peer = Peer09().opened()
        [event] = peer.send(call(0, "connection.update-secret", new_secret=b"s", reason="r"))
        self.assertEqual(event, SecretReplaced(b"s", "r"))
        peer.engine.update_secret_ok()
        self.assertEqual(peer.names(), ["connection.update-secret-ok"])


class HeartbeatTests(SynchronousTestCase):
    """09-W-40 to 09-W-43."""

    def test_sent(self) -> None:
        """09-W-41: after half an interval of silence of ours, and not while we talk."""
        peer = Peer09(heartbeat=60).opened(1, heartbeat=20)
        self.assertEqual(peer.engine.heartbeat, 20)
        self.assertEqual(peer.engine.next_deadline(), 10)
        self.assertEqual(peer.engine.tick(9.9), [])
        self.assertEqual(peer.raw(), b"")
        peer.engine.tick(10)
        self.assertEqual(peer.raw(), bytes.fromhex("08 0000 00000000 CE"))
        self.assertEqual(peer.engine.next_deadline(), 20)
        peer.now = 15
        peer.send(call(1, "basic.qos"), call(1, "channel.flow", active=1))
        peer.raw()
        self.assertEqual(peer.engine.next_deadline(), 25)

    def test_missed(self) -> None:
        """09-W-42: after two intervals of the peer's silence, without a close."""
        peer = Peer09(heartbeat=60).opened(heartbeat=20)
        peer.now = 5
        peer.send(frame_octets(8, 0, b""))
        peer.engine.tick(44.9)
        self.assertFalse(peer.engine.is_closed)
        peer.raw()
        [ended] = of_type(peer.engine.tick(45), ConnectionEnded)
        self.assertFalse(ended.clean)
        self.assertEqual(peer.raw(), b"")
        self.assertTrue(peer.engine.is_closed)

    def test_unread(self) -> None:
        """A publisher that is not read, to slow it down, is not silent; we continue beating."""
        peer = Peer09(heartbeat=60).opened(heartbeat=20)
        peer.engine.reading_stops()
        for now in range(10, 200, 10):
            peer.engine.tick(now)
        self.assertFalse(peer.engine.is_closed)
        self.assertEqual(len(peer.frames()), 19)
        self.assertEqual(peer.engine.next_deadline(), 200)
        peer.engine.reading_goes_on(190)
        peer.engine.tick(229)
        self.assertFalse(peer.engine.is_closed)
        peer.engine.tick(230)
        self.assertTrue(peer.engine.is_closed)

    def test_off(self) -> None:
        """09-CONN-16, -20, 09-W-40: 0 in tune-ok switches them off in both directions."""
        peer = Peer09(heartbeat=60).opened(heartbeat=0)
        self.assertIsNone(peer.engine.next_deadline())
        self.assertEqual(peer.engine.tick(100_000), [])
        self.assertEqual(peer.raw(), b"")

    def test_any_octet_counts(self) -> None:
        """09-W-41: half a frame is as good as a heartbeat."""
        peer = Peer09(heartbeat=60).opened(1, heartbeat=20)
        for now, octet in ((30, b"\1"), (60, b"\0"), (90, b"\1")):
            peer.now = now
            peer.send(octet)
            peer.engine.tick(now + 30)
        self.assertFalse(peer.engine.is_closed)

    def test_wrong(self) -> None:
        """09-W-43: with a payload or on a channel it is a frame error."""
        for frame in (frame_octets(8, 0, b"x"), frame_octets(8, 1, b"")):
            peer = Peer09().opened(1)
            ended = of_type(peer.send(frame), ConnectionEnded)
            self.assertEqual([e.code for e in ended], [501])

    def test_flood(self) -> None:
        """Frames without effect are counted; a client that sends thousands is closed."""
        peer = Peer09().opened(1)
        peer.send(frame_octets(8, 0, b"") * input_cost.FRUITLESS_FRAMES)
        self.assertTrue(peer.engine.is_open)
        ended = of_type(peer.send(frame_octets(8, 0, b"")), ConnectionEnded)
        self.assertEqual([e.code for e in ended], [506])


class CloseTests(SynchronousTestCase):
    """The end of a connection."""

    def test_peers(self) -> None:
        """09-CONN-31: the peer's close ends everything, and is answered when the user is done."""
        peer = Peer09().opened(1, 2)
        events = peer.send(
            call(
                0, "connection.close", reply_code=200, reply_text="bye", class_id=60, method_id=40
            ),
            publish(1),
        )
        self.assertEqual([type(e) for e in events], [ChannelEnded, ChannelEnded, ConnectionEnded])
        ended = of_type(events, ConnectionEnded)[0]
        self.assertEqual((ended.code, ended.text, ended.class_id), (200, "bye", 60))
        self.assertTrue(ended.clean and ended.answer_due)
        self.assertEqual(peer.raw(), b"")
        self.assertEqual(peer.send(publish(1)), [])
        peer.engine.close_ok()
        self.assertEqual(peer.names(), ["connection.close-ok"])
        self.assertTrue(peer.engine.is_closed)

    def test_forgetful_user(self) -> None:
        """The answer goes out by itself when the user does not give it in time."""
        peer = Peer09(close_timeout=10).opened()
        peer.send(call(0, "connection.close"))
        self.assertEqual(peer.engine.next_deadline(), 0)
        peer.engine.tick(0)
        self.assertEqual(peer.engine.next_deadline(), 10)
        peer.engine.tick(10)
        self.assertEqual(peer.names(), ["connection.close-ok"])

    def test_ours(self) -> None:
        """09-CONN-32, -33, -34, 09-W-60: ours names its cause; all but its answer is dropped."""
        peer = Peer09().opened(1)
        peer.engine.close(ReplyCode.CONNECTION_FORCED, "shutdown é" + "x" * 300)
        [(_, name, fields)] = peer.methods()
        self.assertEqual((name, fields["reply-code"]), ("connection.close", 320))
        self.assertEqual((fields["class-id"], fields["method-id"]), (0, 0))
        self.assertEqual(len(fields["reply-text"].encode()), 255)
        [ended] = peer.engine.tick(0)
        self.assertIsInstance(ended, ChannelEnded)
        self.assertEqual(peer.send(publish(1), call(1, "channel.close"), call(9, "basic.qos")), [])
        self.assertEqual(peer.raw(), b"")
        [done] = of_type(peer.send(call(0, "connection.close-ok")), ConnectionEnded)
        self.assertTrue(done.clean)
        self.assertTrue(peer.engine.is_closed)

    def test_both(self) -> None:
        """09-W-61: the other's close is answered, and our own answer waited for."""
        for header in (V09, V091):
            peer = Peer09(header).opened()
            peer.engine.close(ReplyCode.CONNECTION_FORCED, "shutdown")
            peer.raw()
            self.assertEqual(peer.send(call(0, "connection.close")), [])
            self.assertEqual(peer.names(), ["connection.close-ok"])
            self.assertFalse(peer.engine.is_closed)
            peer.send(call(0, "connection.close-ok"))
            self.assertTrue(peer.engine.is_closed)

    def test_unanswered(self) -> None:
        """09-CONN-35, I-35: the wait has an end, and the user is told that nobody answered."""
        peer = Peer09(close_timeout=10).opened()
        peer.engine.close(ReplyCode.CONNECTION_FORCED, "shutdown")
        peer.engine.tick(1)
        self.assertEqual(peer.engine.next_deadline(), 11)
        [ended] = of_type(peer.engine.tick(11), ConnectionEnded)
        self.assertFalse(ended.clean)
        peer = Peer09().opened(3)
        events = peer.engine.receive_eof(1)
        self.assertEqual([type(e) for e in events], [ChannelEnded, ConnectionEnded])
        self.assertFalse(of_type(events, ConnectionEnded)[0].clean)
        self.assertEqual(peer.engine.receive_eof(2), [])

    def test_deaf(self) -> None:
        """Input behind our close is dropped and bounded."""
        peer = Peer09().opened(1)
        peer.engine.close(ReplyCode.CONNECTION_FORCED, "shutdown")
        frame = publish(1, bytes(130_000))
        for _ in range(input_cost.MOST_UNHEARD // len(frame)):
            peer.send(frame)
        self.assertFalse(peer.engine.is_closed)
        self.assertLess(peer.engine.held_octets, 1000)
        peer.send(frame)
        self.assertTrue(peer.engine.is_closed)

    def test_close_before_open(self) -> None:
        """A server's user that closes before open drops the transport."""
        peer = Script()
        peer.send(V091)
        peer.raw()
        peer.engine.close(ReplyCode.CONNECTION_FORCED, "shutdown")
        self.assertEqual(peer.raw(), b"")
        [ended] = peer.engine.tick(0)
        self.assertEqual(of_type([ended], ConnectionEnded)[0].code, 320)
        self.assertTrue(peer.engine.is_closed)


class ClientTests(SynchronousTestCase):
    """The client's side, against octets of a server."""

    def setUp(self) -> None:
        self.engine = Connection09(settings("client", virtual_host="v", heartbeat=30))
        self.engine.start(0)
        self.assertEqual(self.engine.data_to_send(), [V091])

    def receive(self, *octets: bytes) -> list[Any]:
        """Hand in what the server writes."""
        return list(self.engine.receive_data(b"".join(octets), 0))

    def said(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the methods that the client has written since."""
        octets = b"".join(self.engine.data_to_send())
        found = []
        while octets:
            size = int.from_bytes(octets[3:7], "big")
            found.append(method(octets[7 : 7 + size]))
            octets = octets[8 + size :]
        return found

    def start(self) -> None:
        """Go up to tune-ok."""
        [offered] = self.receive(
            call(0, "connection.start", version_minor=9, mechanisms=b"AMQPLAIN PLAIN",
                 locales=b"en_US", server_properties=[("product", "S", b"x")])
        )  # fmt: skip
        self.assertEqual(
            offered,
            MechanismsOffered(["AMQPLAIN", "PLAIN"], ["en_US"], {"product": "x"}),  # type: ignore[arg-type]
        )
        self.engine.start_ok("PLAIN", b"\0u\0p")
        [(name, fields)] = self.said()
        self.assertEqual((name, fields["mechanism"]), ("connection.start-ok", "PLAIN"))
        self.assertEqual(
            self.receive(call(0, "connection.secure", challenge=b"?")), [Challenged(b"?")]
        )
        self.engine.secure_ok(b"!")
        self.assertEqual(self.said(), [("connection.secure-ok", {"response": b"!"})])
        tune = call(0, "connection.tune", channel_max=10, frame_max=0, heartbeat=60)
        self.assertEqual(self.receive(tune), [])
        (name, tuned), (_, opened) = self.said()
        self.assertEqual(tuned, {"channel-max": 10, "frame-max": 131072, "heartbeat": 30})
        self.assertEqual(opened["virtual-host"], "v")

    def test_open(self) -> None:
        """The whole way, then blocked, unblocked and a close."""
        self.start()
        self.assertEqual(self.receive(call(0, "connection.open-ok")), [ConnectionOpened("")])
        self.assertEqual(
            self.receive(
                call(0, "connection.blocked", reason="d"), call(0, "connection.unblocked")
            ),
            [BlockedNotice("d"), UnblockedNotice()],
        )
        self.engine.update_secret(b"n", "r")
        self.assertEqual(self.said()[0][0], "connection.update-secret")
        self.assertEqual(self.receive(call(0, "connection.update-secret-ok")), [])
        self.engine.close(ReplyCode.REPLY_SUCCESS, "bye")
        self.said()
        [ended] = self.receive(call(0, "connection.close-ok"))
        self.assertTrue(of_type([ended], ConnectionEnded)[0].clean)

    def test_refused(self) -> None:
        """A close instead of tune tells why the log-in failed."""
        self.receive(call(0, "connection.start", version_minor=9, mechanisms=b"PLAIN"))
        self.engine.start_ok("PLAIN", b"")
        [ended] = self.receive(call(0, "connection.close", reply_code=403, reply_text="no"))
        self.assertEqual(of_type([ended], ConnectionEnded)[0].code, 403)
        self.engine.close_ok()
        self.assertTrue(self.engine.is_closed)

    def test_redirected(self) -> None:
        """09-CONN-25, -28, -30: a redirect in 0-9 names host and known hosts, and is the end."""
        self.engine = Connection09(settings("client", version=ProtocolVersion.V0_9))
        self.engine.start(0)
        self.assertEqual(self.engine.data_to_send(), [V09])
        self.receive(call(0, "connection.start", version_minor=9, mechanisms=b"PLAIN"))
        self.engine.start_ok("PLAIN", b"")
        self.receive(call(0, "connection.tune"))
        events = self.receive(call(0, "connection.redirect", host="b:1", known_hosts="c"))
        self.assertEqual(events[0], ConnectionRedirected("b:1", "c"))
        self.assertIs(self.engine.stage, HandshakeStage.OVER)

    def test_method_octets(self) -> None:
        """A method that a client may not send to a server is out of order there as well."""
        peer = Peer09().opened()
        for name in ("connection.start", "connection.blocked", "connection.start-ok"):
            ended = of_type(Peer09().opened().send(call(0, name)), ConnectionEnded)
            self.assertEqual([e.code for e in ended], [503], name)
        self.assertEqual(method_octets("connection.close-ok"), b"\0\x0a\0\x33")
        self.assertTrue(peer.engine.is_open)
