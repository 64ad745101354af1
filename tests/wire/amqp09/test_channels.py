# SPDX-License-Identifier: Apache-2.0
"""Frames, channels and contents at a server, and the effect of each violation."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.methods import (
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
    ChannelPing,
    ConfirmSelectOk,
    DtxStart,
    ExchangeBind,
    FileOpenOk,
    MessageOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueUnbind,
    TunnelRequest,
    TxCommit,
)
from amqproute.wire.amqp09.protocol_events import (
    ChannelAsked,
    ChannelCloseAnswered,
    ChannelEnded,
    ConnectionEnded,
    ContentPartReceived,
    ContentsReceived,
    FlowChanged,
    MethodReceived,
    PublishesReceived,
)
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.versions import ProtocolVersion
from amqproute.wire.amqp09.violations import RULES, Violation
from tests.support.plain_amqp09 import (
    FACTS,
    FIELDS,
    FLAGS,
    IDS,
    RECEIVER,
    frame_octets,
    header_octets,
    method_octets,
)
from tests.support.wire09 import V09, V091, Peer09, call, content, of_type, publish

HEADER = frame_octets(2, 1, header_octets(60, 5))
BODY = frame_octets(3, 1, b"12345")
PUBLISH = call(1, "basic.publish", routing_key="q")


def channel_of(peer: Peer09, number: int = 1) -> Channel:
    """Return a channel of the engine's."""
    return next(each for each in peer.engine.channels if each.number == number)


def methods_of(events: list[Any]) -> list[Any]:
    """Return the methods that the user was told of."""
    return [event.method for event in of_type(events, MethodReceived)]


class ViolationTests(SynchronousTestCase):
    """A client's mistakes, the answers, and the state after them."""

    ROWS: tuple[tuple[Violation, bytes, int, int], ...] = (
        # What is broken, with which octets, the code in 0-9 and in 0-9-1; 0: without a word.
        (Violation.FRAME_END, frame_octets(1, 1, method_octets("basic.qos"), end=0), 501, 0),
        (Violation.FRAME_TYPE, frame_octets(4, 1, b""), 501, 0),
        (Violation.FRAME_TYPE, frame_octets(5, 1, b""), 501, 0),
        (Violation.FRAME_TYPE, frame_octets(6, 1, b""), 501, 0),
        (Violation.FRAME_TYPE, frame_octets(7, 1, b""), 501, 0),
        (Violation.FRAME_TYPE, frame_octets(9, 1, bytes(24)), 501, 0),
        (Violation.FRAME_TYPE, frame_octets(10, 1, bytes(24)), 501, 0),
        (Violation.FRAME_TYPE, b"GET / HTTP/1.1\r\n\r\n", 501, 0),
        (Violation.FRAME_SIZE, frame_octets(3, 1, b"")[:3] + b"\0\2\0\1", 501, 501),
        (Violation.HEARTBEAT_FRAME, frame_octets(8, 0, b"x"), 501, 501),
        (Violation.MALFORMED_FRAME, frame_octets(1, 1, b"\0\x3c"), 501, 501),
        (Violation.MALFORMED_FRAME, frame_octets(1, 1, method_octets("tx.select") + b"x"), 501,
         501),
        (Violation.MALFORMED_FRAME, PUBLISH + frame_octets(2, 1, bytes.fromhex("003c")), 501, 501),
        (Violation.ILLEGAL_VALUE, call(1, "basic.cancel", consumer_tag="a\0"), 502, 502),
        (
            Violation.ILLEGAL_VALUE,
            frame_octets(1, 1, method_octets("queue.declare")[:-4] + b"\0\0\0\x03\x01a!"), 502, 502,
        ),
        (
            Violation.ILLEGAL_VALUE,
            PUBLISH + frame_octets(2, 1, header_octets(60, 5)[:-2] + b"\0\1"), 502, 502,
        ),
        (Violation.UNKNOWN_METHOD, frame_octets(1, 1, b"\0\x3c\x03\xe7"), 540, 540),
        (Violation.UNKNOWN_METHOD, frame_octets(1, 1, b"\x03\xe7\0\x0a"), 540, 540),
        (Violation.UNKNOWN_METHOD, call(1, "channel.resume", channel_id=b"c7/1"), 540, 540),
        (Violation.METHOD_OUT_OF_ORDER, call(1, "basic.deliver"), 503, 503),
        (Violation.METHOD_OUT_OF_ORDER, call(0, "connection.open"), 503, 503),
        (Violation.UNASKED_REPLY, call(1, "channel.flow-ok"), 503, 503),
        (Violation.UNASKED_REPLY, call(1, "channel.close-ok"), 503, 503),
        (Violation.CONNECTION_METHOD_ON_CHANNEL, call(1, "connection.close"), 503, 503),
        (Violation.CHANNEL_ZERO, call(0, "channel.open"), 504, 504),
        (Violation.CHANNEL_ZERO, call(0, "basic.qos"), 504, 504),
        (Violation.CHANNEL_ZERO, frame_octets(2, 0, header_octets(60, 5)), 504, 504),
        (Violation.CHANNEL_ZERO, frame_octets(3, 0, b"x"), 504, 504),
        (Violation.CHANNEL_NOT_OPEN, call(7, "basic.qos"), 504, 504),
        (Violation.CHANNEL_NOT_OPEN, call(7, "channel.close"), 504, 504),
        (Violation.CHANNEL_NOT_OPEN, frame_octets(3, 7, b"x"), 504, 504),
        (Violation.CHANNEL_IN_USE, call(1, "channel.open"), 504, 504),
        (Violation.CHANNEL_ABOVE_MAX, call(2048, "channel.open"), 530, 530),
        (Violation.CONTENT_INTERRUPTED, PUBLISH + call(1, "basic.qos"), 503, 505),
        (Violation.CONTENT_INTERRUPTED, PUBLISH + HEADER + PUBLISH, 503, 505),
        (Violation.CONTENT_INTERRUPTED, PUBLISH + HEADER + HEADER, 503, 505),
        (Violation.CONTENT_INTERRUPTED, PUBLISH + BODY, 503, 505),
        (Violation.CONTENT_INTERRUPTED, PUBLISH + HEADER + call(1, "channel.close"), 503, 505),
        (Violation.CONTENT_UNEXPECTED, HEADER, 503, 505),
        (Violation.CONTENT_UNEXPECTED, BODY, 503, 505),
        (Violation.CONTENT_CLASS, PUBLISH + frame_octets(2, 1, header_octets(80, 5)), 501, 501),
        (Violation.CONTENT_WEIGHT, PUBLISH + frame_octets(2, 1, header_octets(60, 5, weight=1)),
         540, 540),
        (Violation.BODY_TOO_LONG, PUBLISH + HEADER + frame_octets(3, 1, b"123456"), 501, 501),
        (Violation.BODY_TOO_LONG, PUBLISH + HEADER + frame_octets(3, 1, b"1234") * 2, 501, 501),
        (
            Violation.CONTENT_TOO_LARGE,
            PUBLISH + frame_octets(2, 1, header_octets(60, 1_000_001)), 311, 311,
        ),
        (
            Violation.CONTENTS_BEGUN,
            b"".join(
                call(number, "basic.publish") + frame_octets(2, number, header_octets(
                    60, 9, {"headers": [("a", "S", bytes(100_000))]})) for number in (1, 2)
            ) + call(3, "channel.open") + call(3, "basic.publish") + frame_octets(
                2, 3, header_octets(60, 9, {"headers": [("a", "S", bytes(100_000))]})), 506, 506,
        ),
        (Violation.UNKNOWN_DELIVERY_TAG, call(1, "basic.ack", delivery_tag=1), 406, 406),
        (Violation.UNKNOWN_DELIVERY_TAG, call(1, "basic.ack", delivery_tag=1, multiple=1), 406,
         406),
        (Violation.UNKNOWN_DELIVERY_TAG, call(1, "basic.reject", delivery_tag=0), 406, 406),
        (Violation.CONFIRM_WITH_TRANSACTION, call(1, "tx.select") + call(1, "confirm.select"),
         406, 406),
        (Violation.CONFIRM_WITH_TRANSACTION, call(1, "confirm.select") + call(1, "tx.select"),
         406, 406),
        (Violation.NO_TRANSACTION, call(1, "tx.commit"), 406, 406),
        (Violation.NO_TRANSACTION, call(1, "tx.rollback"), 406, 406),
        (Violation.CONSUMER_TAG_IN_USE, call(1, "basic.consume", consumer_tag="a") * 2, 530, 530),
        (Violation.FRUITLESS_FRAMES, call(1, "channel.flow", active=1) * 20_001, 506, 506),
    )  # fmt: skip
    ONLY_0_9: tuple[tuple[Violation, bytes, int], ...] = (
        (Violation.NO_TRANSACTION, call(1, "dtx.start"), 406),
        (
            Violation.BRANCH_AFTER_WORK,
            call(1, "dtx.select") + publish(1) + call(1, "dtx.start"), 406,
        ),
        (
            Violation.BRANCH_AFTER_WORK,
            call(1, "dtx.select") + call(1, "basic.consume") + call(1, "dtx.start"), 406,
        ),
        (Violation.RECOVER_TRANSACTED, call(1, "tx.select") + call(1, "basic.recover"), 406),
        (Violation.RECOVER_TRANSACTED, call(1, "tx.select") + call(1, "message.recover"), 406),
        (
            Violation.CONSUMER_TAG_IN_USE,
            call(1, "basic.consume", consumer_tag="a") + call(2, "file.consume", consumer_tag="a"),
            530,
        ),
        (
            Violation.CONSUMER_OF_ANOTHER_CHANNEL,
            call(1, "basic.consume", consumer_tag="a") + call(2, "basic.cancel", consumer_tag="a"),
            530,
        ),
        (Violation.UNASKED_REPLY, content(1, "file.stage", class_id=70), 503),
        (Violation.CONTENT_UNEXPECTED, frame_octets(2, 1, header_octets(70, 0)), 503),
    )  # fmt: skip

    def provoke(self, header: bytes, violation: Violation, octets: bytes, code: int) -> None:
        """Let a client do it, and look at what follows."""
        peer = Peer09(header, max_content=1_000_000).opened(1, 2)
        events = peer.send(octets)
        ended = of_type(events, ConnectionEnded)
        gone = [e for e in of_type(events, ChannelEnded) if e.violation is not None]
        said = [
            (channel, name, fields) for channel, name, fields in peer.methods()
            if name.endswith(".close")
        ]  # fmt: skip
        what = (violation, octets[:40])
        if code and ReplyCode(code).scope.value == "channel":
            self.assertEqual([(e.violation, e.code) for e in gone], [(violation, code)], what)
            [(number, name, fields)] = said
            self.assertEqual((name, fields["reply-code"]), ("channel.close", code), what)
            self.assertEqual(number, 1, what)
            self.assertTrue(fields["reply-text"], what)
            self.assertTrue(peer.engine.is_open)
            # 09-ERR-01: the other channels continue.
            self.assertEqual(methods_of(peer.send(call(2, "basic.qos"))), [BasicQos()])
            # 09-CHAN-17, 09-W-62: what comes on this one is skipped, until it is answered.
            self.assertEqual(peer.send(publish(1, b"x"), call(1, "channel.open")), [])
            [answered] = peer.send(call(1, "channel.close-ok"))
            self.assertIsInstance(answered, ChannelCloseAnswered)
            self.assertIsInstance(peer.send(call(1, "channel.open"))[0], ChannelAsked)
            return
        self.assertEqual([e.violation for e in ended], [violation], what)
        self.assertFalse(ended[0].clean)
        # 09-ERR-02: nothing continues, and the end is the last event.
        self.assertIs(events[-1], ended[0], what)
        opened = 2 + len(of_type(events, ChannelAsked))
        self.assertEqual(len(of_type(events, ChannelEnded)), opened, what)
        self.assertEqual(peer.send(publish(2, b"x")), [], what)
        if code == 0:
            self.assertEqual(said, [], what)
            self.assertTrue(peer.engine.is_closed)
            return
        [(number, name, fields)] = said
        self.assertEqual((number, name), (0, "connection.close"), what)
        self.assertEqual((fields["reply-code"], ended[0].code), (code, code), what)
        self.assertFalse(peer.engine.is_closed)
        peer.send(call(0, "connection.close-ok"))
        self.assertTrue(peer.engine.is_closed)

    def test_each(self) -> None:
        """09-ERR-01 ...: each violation has its code and scope, in both versions."""
        for violation, octets, code, code_0_9_1 in self.ROWS:
            self.provoke(V09, violation, octets, code)
            self.provoke(V091, violation, octets, code_0_9_1)
        for violation, octets, code in self.ONLY_0_9:
            self.provoke(V09, violation, octets, code)

    def test_table(self) -> None:
        """The table is what these rows say, and no row of it is left out."""
        elsewhere = {
            Violation.NO_QUEUE_DECLARED,  # QueueNameTests
            Violation.UNKNOWN_CLASS,  # test_removed
            Violation.MECHANISM_NOT_OFFERED, Violation.FRAME_MAX_TOO_LOW,
            Violation.TUNED_ABOVE_OFFER,  # test_handshake
        }  # fmt: skip
        shown = {row[0] for row in self.ROWS} | {row[0] for row in self.ONLY_0_9}
        self.assertEqual(shown | elsewhere, set(RULES))

    def test_removed(self) -> None:
        """09: part 4.3: 0-9-1 lacks what it has removed, a class (503) or a method of one (540)."""
        for name, flags in FLAGS.items():
            if "only-09" not in flags or RECEIVER[name] == "client":
                continue
            peer = Peer09(V091).opened(1)
            ended = of_type(peer.send(call(1, name)), ConnectionEnded)
            is_class = name.split(".")[0] in ("file", "stream", "dtx", "tunnel", "message")
            self.assertEqual([e.code for e in ended], [503 if is_class else 540], name)

    def test_cause(self) -> None:
        """09-CONN-32, 09-CHAN-16: a close names class and method that caused it."""
        broken = frame_octets(1, 1, method_octets("queue.declare")[:-4] + b"\0\0\0\x03\x01a!")
        for octets, ids in (
            (call(1, "tx.commit"), (90, 20)),
            (call(1, "basic.consume", consumer_tag="a") * 2, (60, 20)),
            (call(1, "basic.ack", delivery_tag=9), (60, 80)),
            (call(1, "basic.nack", delivery_tag=9), (60, 120)),
            (call(7, "basic.qos"), (60, 10)),
            (broken, (50, 10)),
            (PUBLISH + call(1, "queue.purge"), (50, 30)),
            (PUBLISH + frame_octets(2, 1, header_octets(60, 2_000_000)), (60, 40)),
            (call(1, "channel.open"), (20, 10)),
            (BODY, (0, 0)),
        ):
            peer = Peer09(max_content=1_000_000).opened(1)
            events = peer.send(octets)
            [(_, _, fields)] = peer.methods()
            self.assertEqual((fields["class-id"], fields["method-id"]), ids)
            told = [
                e for e in events if isinstance(e, ChannelEnded | ConnectionEnded) and e.violation
            ]
            self.assertEqual([(e.class_id, e.method_id) for e in told], [ids])


class FrameTests(SynchronousTestCase):
    """Sizes."""

    def test_frame_max(self) -> None:
        """09-CONN-18, 09-W-10, 09-W-11: the whole frame counts; eight octets more are taken."""
        for size, fits in ((4096 - 8, True), (4096, True), (4097, False)):
            peer = Peer09().opened(1, frame_max=4096)
            body = frame_octets(3, 1, bytes(size))
            header = frame_octets(2, 1, header_octets(60, size))
            events = peer.send(PUBLISH, header, body)
            self.assertEqual(len(of_type(events, PublishesReceived)), int(fits), size)
            self.assertEqual(peer.engine.is_open, fits)

    def test_size_is_checked_first(self) -> None:
        """A frame that is too large is refused at its header: nothing of it is waited for."""
        peer = Peer09().opened(1, frame_max=4096)
        [*_, ended] = peer.send(b"\3\0\1\x7f\xff\xff\xff")
        self.assertEqual(of_type([ended], ConnectionEnded)[0].violation, Violation.FRAME_SIZE)


class ChannelTests(SynchronousTestCase):
    """Opening, using, closing."""

    def test_open(self) -> None:
        """09-CHAN-01, -03, -05, 09-DOM-16: open-ok carries an id of its own, empty in 0-9-1."""
        for header, ids in ((V09, {b"c7/1", b"c7/2"}), (V091, {b""})):
            peer = Peer09(header).opened()
            [asked, other] = peer.send(
                call(1, "channel.open", out_of_band="x"), call(2, "channel.open")
            )
            assert isinstance(asked, ChannelAsked)
            self.assertTrue(asked.channel.is_open)
            self.assertIsInstance(other, ChannelAsked)
            said = peer.methods()
            self.assertEqual([name for _, name, _ in said], ["channel.open-ok"] * 2)
            self.assertEqual({fields["channel-id"] for _, _, fields in said}, ids)

    def test_ended_before_it_is_answered(self) -> None:
        """Methods ahead may end a channel before open-ok, which is then left out."""
        for ahead, names in (
            (call(1, "channel.close"), []), (call(1, "tx.commit"), ["channel.close"]),
            (call(1, "channel.open"), ["connection.close"]),
        ):  # fmt: skip
            peer = Peer09().opened()
            peer.send(call(1, "channel.open"), ahead)
            self.assertEqual(peer.names(), names)

    def test_channel_max(self) -> None:
        """09-CONN-17, 09-W-17: the highest number is the agreed one."""
        peer = Peer09().opened(channel_max=3)
        self.assertEqual(len(peer.send(*(call(n, "channel.open") for n in (1, 2, 3)))), 3)
        ended = of_type(peer.send(call(4, "channel.open")), ConnectionEnded)
        self.assertEqual([e.code for e in ended], [530])

    def test_peers_close(self) -> None:
        """09-CHAN-15, -16, -18: the close is told, answered by the user, and frees the number."""
        peer = Peer09().opened(1, 2)
        channel = channel_of(peer)
        [ended] = peer.send(
            call(1, "channel.close", reply_code=200, reply_text="bye", class_id=60, method_id=40)
        )
        self.assertEqual(ended, ChannelEnded(channel, 200, "bye", 60, 40, answer_due=True))
        self.assertFalse(channel.is_open)
        with self.assertRaises(LocalProtocolError):
            channel.send(BasicQosOk())
        self.assertEqual(peer.raw(), b"")
        channel.close_ok()
        self.assertEqual(peer.methods(), [(1, "channel.close-ok", {})])
        self.assertEqual([each.number for each in peer.engine.channels], [2])
        self.assertIsInstance(peer.send(call(1, "channel.open"))[0], ChannelAsked)

    def test_number_is_taken_until_answered(self) -> None:
        """09-W-62: a channel whose close is not answered cannot be opened again."""
        peer = Peer09().opened(1)
        peer.send(call(1, "channel.close"))
        ended = of_type(peer.send(call(1, "channel.open")), ConnectionEnded)
        self.assertEqual([e.code for e in ended], [504])

    def test_our_close(self) -> None:
        """09-CHAN-17, 09-W-60, -61: all but its answer is skipped; the other's close answered."""
        peer = Peer09().opened(1)
        channel = channel_of(peer)
        channel.close(ReplyCode.PRECONDITION_FAILED, "no")
        [(_, name, fields)] = peer.methods()
        self.assertEqual((name, fields["class-id"], fields["method-id"]), ("channel.close", 0, 0))
        self.assertEqual(peer.send(PUBLISH, HEADER, BODY, PUBLISH, call(1, "queue.declare")), [])
        self.assertEqual(peer.send(call(1, "channel.close")), [])
        self.assertEqual(peer.names(), ["channel.close-ok"])
        self.assertEqual(peer.send(call(1, "channel.close-ok")), [ChannelCloseAnswered(channel)])
        self.assertEqual(peer.engine.channels, ())

    def test_fail(self) -> None:
        """I-05, I-06: what the user refuses ends what the code's scope says."""
        peer = Peer09().opened(1)
        channel = channel_of(peer)
        channel.fail(ReplyCode.NOT_FOUND, "no queue", QueueDeclare())
        [(number, name, fields)] = peer.methods()
        self.assertEqual((number, name, fields["reply-code"]), (1, "channel.close", 404))
        self.assertEqual((fields["class-id"], fields["method-id"]), (50, 10))
        peer = Peer09().opened(1, 2)
        channel_of(peer).fail(ReplyCode.NOT_ALLOWED, "no", QueueDeclare())
        [(number, name, fields)] = peer.methods()
        self.assertEqual((number, name, fields["reply-code"]), (0, "connection.close", 530))
        self.assertEqual(len(of_type(peer.engine.tick(0), ChannelEnded)), 2)

    def test_flow(self) -> None:
        """09-CHAN-06, -12, -13, -14: a switch, answered with the setting in force."""
        peer = Peer09().opened(1)
        channel = channel_of(peer)
        for active in (False, True):
            [event] = peer.send(call(1, "channel.flow", active=active))
            self.assertEqual(event, FlowChanged(channel, active))
            self.assertEqual(peer.methods(), [(1, "channel.flow-ok", {"active": int(active)})])
            self.assertEqual(channel.may_deliver, active)
            channel.send(BasicQosOk())  # methods are not affected
            self.assertEqual(peer.names(), ["basic.qos-ok"])
            if active:
                channel.deliver("t", "", "q", b"\0\0", [b"x"])
            else:
                with self.assertRaises(LocalProtocolError):
                    channel.deliver("t", "", "q", b"\0\0", [b"x"])

    def test_our_flow(self) -> None:
        """09-CHAN-09, -14: ours is answered by flow-ok, which is told."""
        peer = Peer09().opened(1)
        channel_of(peer).flow(False)
        self.assertEqual(peer.methods(), [(1, "channel.flow", {"active": 0})])
        [event] = peer.send(call(1, "channel.flow-ok", active=0))
        self.assertIsInstance(event, MethodReceived)
        ended = of_type(peer.send(call(1, "channel.flow-ok", active=0)), ConnectionEnded)
        self.assertEqual([e.code for e in ended], [503])

    def test_ping(self) -> None:
        """09-CHAN-21, -22, -23: ping is answered by ok and a pong of ours, pong by ok."""
        peer = Peer09(V09).opened(1)
        self.assertEqual(peer.send(call(1, "channel.ping")), [])
        self.assertEqual(peer.names(), ["channel.ok", "channel.pong"])
        self.assertEqual(peer.send(call(1, "channel.ok")), [])
        self.assertEqual(peer.send(call(1, "channel.pong")), [])
        self.assertEqual(peer.names(), ["channel.ok"])
        ended = of_type(peer.send(call(1, "channel.ok")), ConnectionEnded)
        self.assertEqual([e.code for e in ended], [503])
        self.assertEqual(ChannelPing.traits.replies, {20 << 16 | 80})


class MethodTests(SynchronousTestCase):
    """Methods that the user acts on."""

    def test_told(self) -> None:
        """Every method to a server comes as it was sent, in both versions (09-W-05)."""
        engine_own = {"channel", "connection"}
        for name, fields in FIELDS.items():
            kind = name.split(".")[0]
            if kind in engine_own or RECEIVER[name] == "client" or "content" in FLAGS[name]:
                continue
            if name in ("basic.ack", "basic.nack", "basic.reject", "basic.cancel-ok") or (
                name in ("tx.commit", "tx.rollback", "dtx.start")
            ):
                continue
            for header in (V09, V091):
                if header == V091 and "only-09" in FLAGS[name]:
                    continue
                replies = {f"{each['name']}.{r}" for each in FACTS["classes"]
                           for m in each["methods"] for r in m[3]}  # fmt: skip
                peer = Peer09(header).opened(1)
                events = peer.send(call(1, name))
                if name in replies and kind != "message":  # the user matches those (3.9)
                    self.assertEqual([e.code for e in of_type(events, ConnectionEnded)], [503])
                    continue
                [event] = events
                assert isinstance(event, MethodReceived)
                self.assertEqual(event.method.traits.name, name)
                self.assertEqual(
                    (event.method.traits.class_id, event.method.traits.method_id), IDS[name], fields
                )

    def test_answers(self) -> None:
        """The user's answers go out on their channel; what a server does not send is refused."""
        peer = Peer09().opened(5)
        channel = channel_of(peer, 5)
        channel.send(QueueDeclareOk(queue="q", message_count=3))
        [(number, name, fields)] = peer.methods()
        self.assertEqual((number, name, fields["message-count"]), (5, "queue.declare-ok", 3))
        for method in (QueueDeclare(), MessageOk(), TunnelRequest()):
            with self.assertRaises(LocalProtocolError):
                channel.send(method)
        self.assertEqual(peer.raw(), b"")

    def test_nowait(self) -> None:
        """The user sees nowait, and owes no answer (09-EXCH-17 and others)."""
        peer = Peer09().opened(1)
        declare, unbind = methods_of(
            peer.send(
                call(1, "queue.declare", queue="q", nowait=1, arguments=[("x-expires", "I", 1)]),
                call(1, "queue.unbind", queue="q"),
            )
        )
        self.assertEqual(
            declare,
            QueueDeclare(queue="q", nowait=True, arguments={"x-expires": 1}),  # type: ignore[arg-type]
        )
        self.assertEqual(unbind, QueueUnbind(queue="q"))

    def test_extensions(self) -> None:
        """09: part 4.5: bindings between exchanges, confirm mode, nack; in 0-9 as well."""
        for header in (V09, V091):
            peer = Peer09(header).opened(1)
            bind, select = methods_of(
                peer.send(
                    call(1, "exchange.bind", destination="d", source="s", routing_key="k"),
                    call(1, "confirm.select"),
                )
            )
            self.assertEqual(bind, ExchangeBind(destination="d", source="s", routing_key="k"))
            self.assertIsNotNone(channel_of(peer).confirms)
            channel_of(peer).send(ConfirmSelectOk())
            self.assertEqual(peer.names(), ["confirm.select-ok"])
            del select

    def test_transactions(self) -> None:
        """09-TX-04, -05: commit and rollback come through after select, as often as they like."""
        peer = Peer09().opened(1)
        events = peer.send(*(call(1, f"tx.{each}") for each in ("select", "commit", "rollback",
                                                                 "select", "commit")))  # fmt: skip
        self.assertEqual(len(methods_of(events)), 5)
        self.assertIsInstance(methods_of(events)[1], TxCommit)
        self.assertTrue(channel_of(peer).is_transacted)

    def test_branches(self) -> None:
        """09-DTX-02, -03, -04: start comes through after select, before any work."""
        peer = Peer09(V09).opened(1)
        events = peer.send(call(1, "dtx.select"), call(1, "dtx.start", dtx_identifier="x"))
        self.assertEqual(methods_of(events)[1], DtxStart(dtx_identifier="x"))

    def test_recover_in_0_9_1(self) -> None:
        """09: part 4.4: on a transacted channel it is permitted there."""
        peer = Peer09(V091).opened(1)
        events = peer.send(call(1, "tx.select"), call(1, "basic.recover", requeue=1),
                           call(1, "basic.recover-sync"))  # fmt: skip
        self.assertEqual(len(methods_of(events)), 3)


class ConsumerTagTests(SynchronousTestCase):
    """09-BASIC-23, -24, 09-X-60, -61, I-13."""

    def test_generated(self) -> None:
        """An empty tag is replaced by one that nobody has, not even by the client's own choice."""
        for header in (V09, V091):
            peer = Peer09(header).opened(1, 2)
            taken = "amq.ctag-1.1"
            events = peer.send(
                call(1, "basic.consume", consumer_tag=taken),
                *(call(1, "basic.consume") for _ in range(3)), call(2, "basic.consume"),
            )  # fmt: skip
            tags = [method.consumer_tag for method in methods_of(events)]
            self.assertEqual(tags[0], taken)
            self.assertEqual(len(set(tags)), 5)
            self.assertNotIn("", tags)

    def test_scope(self) -> None:
        """Per connection in 0-9 (see the table of violations), per channel in 0-9-1."""
        peer = Peer09(V091).opened(1, 2)
        consume = [call(n, "basic.consume", consumer_tag="a") for n in (1, 2)]
        self.assertEqual(len(methods_of(peer.send(*consume))), 2)
        self.assertEqual(len(methods_of(peer.send(call(2, "basic.cancel", consumer_tag="a")))), 1)
        self.assertEqual(channel_of(peer, 1).consumers, {"a"})

    def test_free_again(self) -> None:
        """A tag is free after cancel, after the server's cancel, and when its channel ends."""
        for header in (V09, V091):
            peer = Peer09(header).opened(1, 2)
            consume = call(1, "basic.consume", consumer_tag="a")
            cancel = call(1, "basic.cancel", consumer_tag="a")
            self.assertEqual(len(methods_of(peer.send(consume, cancel, consume))), 3)
            channel_of(peer).cancel_consumer("a")
            self.assertEqual(
                peer.methods(), [(1, "basic.cancel", {"consumer-tag": "a", "nowait": 1})]
            )
            self.assertEqual(peer.send(call(1, "basic.cancel-ok", consumer_tag="a")), [])
            self.assertEqual(len(methods_of(peer.send(consume))), 1)
            peer.send(call(1, "channel.close"))
            again = call(2, "basic.consume", consumer_tag="a")
            self.assertEqual(len(methods_of(peer.send(again))), 1)

    def test_unknown(self) -> None:
        """09-BASIC-31: a cancel of an unknown consumer is the user's to answer, no error."""
        peer = Peer09().opened(1)
        [method] = methods_of(peer.send(call(1, "basic.cancel", consumer_tag="gone")))
        channel_of(peer).send(BasicCancelOk(consumer_tag=method.consumer_tag))
        channel_of(peer).send(BasicConsumeOk(consumer_tag="x"))
        self.assertEqual(peer.names(), ["basic.cancel-ok", "basic.consume-ok"])

    def test_other_classes(self) -> None:
        """File, stream and message have consumers too."""
        peer = Peer09(V09).opened(1)
        events = peer.send(call(1, "file.consume"), call(1, "stream.consume"),
                           call(1, "message.consume", destination="m"),
                           call(1, "message.cancel", destination="m"))  # fmt: skip
        self.assertEqual(len(methods_of(events)), 4)
        self.assertEqual(len(channel_of(peer).consumers), 2)
        self.assertIsInstance(BasicConsume(), BasicConsume)


class QueueNameTests(SynchronousTestCase):
    """`Channel.queue_name`."""

    def test_empty(self) -> None:
        """09-X-43, -50, -52, -59, -70: none declared: 530 in 0-9, 404 on the channel in 0-9-1."""
        for header, code in ((V09, 530), (V091, 404)):
            peer = Peer09(header).opened(1)
            channel = channel_of(peer)
            self.assertEqual(channel.queue_name("named", BasicConsume()), "named")
            channel.current_queue = "amq.gen-1"
            self.assertEqual(channel.queue_name("", BasicConsume()), "amq.gen-1")
            channel.current_queue = None
            self.assertIsNone(channel.queue_name("", BasicConsume()))
            [(_, _, fields)] = peer.methods()
            self.assertEqual(fields["reply-code"], code)
            self.assertEqual(code, Violation.NO_QUEUE_DECLARED.code(peer.engine.version))


class ContentTests(SynchronousTestCase):
    """Contents that come in."""

    def test_publish(self) -> None:
        """09-CONN-19, 09-W-21, -24, -27: method, properties and body, in frames of any size."""
        properties = {"content-type": "", "delivery-mode": 2, "headers": [("a", "s", 1)]}
        for pieces in (None, 1, 3, 7):
            peer = Peer09().opened(1)
            [event] = peer.send(
                publish(1, b"1234567", "key", properties=properties, pieces=pieces,
                        exchange="e", mandatory=1)
            )  # fmt: skip
            assert isinstance(event, PublishesReceived)
            [found] = event.publishes
            self.assertEqual((found.method.exchange, found.method.routing_key), ("e", "key"))
            self.assertTrue(found.method.mandatory and not found.method.immediate)
            self.assertEqual(found.properties.content_type, "")
            self.assertIsNone(found.properties.content_encoding)
            self.assertEqual(found.properties.headers, {"a": 1})
            self.assertEqual(found.property_octets, header_octets(60, 7, properties)[12:])
            self.assertEqual((found.size, found.body), (7, b"1234567"))
            self.assertEqual(found.number, 0)

    def test_empty_bodies(self) -> None:
        """09-W-24: no body frame for size 0; empty body frames are tolerated within."""
        peer = Peer09().opened(1)
        [event] = peer.send(publish(1), publish(1))
        self.assertEqual(
            [p.body for p in of_type([event], PublishesReceived)[0].publishes], [b""] * 2
        )
        empty = frame_octets(3, 1, b"")
        [event] = peer.send(PUBLISH, HEADER, empty, empty, BODY)
        self.assertEqual(of_type([event], PublishesReceived)[0].publishes[0].body, b"12345")

    def test_ticket(self) -> None:
        """09: part 4.2: a ticket is read in 0-9 and ignored in 0-9-1."""
        for header, ticket in ((V09, 7), (V091, 0)):
            peer = Peer09(header).opened(1)
            [event] = of_type(peer.send(publish(1, ticket=7)), PublishesReceived)
            self.assertEqual(event.publishes[0].method.ticket, ticket)

    def test_runs(self) -> None:
        """Publishes that follow each other are one event, by channel; other things part them."""
        peer = Peer09().opened(1, 2)
        events = peer.send(
            publish(1, b"a"), publish(2, b"x"), publish(1, b"b", "r"), publish(2), publish(1, b"c"),
            call(2, "queue.purge"), publish(1, b"d"), frame_octets(8, 0, b""), publish(1, b"e"),
        )  # fmt: skip
        shown = [
            (e.channel.number, [p.body for p in e.publishes])
            if isinstance(e, PublishesReceived) else type(e).__name__ for e in events
        ]  # fmt: skip
        self.assertEqual(
            shown,
            [(1, [b"a", b"b", b"c"]), (2, [b"x", b""]), "MethodReceived", (1, [b"d", b"e"])],
        )

    def test_interleaved(self) -> None:
        """09: part 3.4: frames of other channels and heartbeats may come within a content."""
        peer = Peer09().opened(1, 2)
        other = publish(2, b"other")
        events = peer.send(PUBLISH, other, HEADER, frame_octets(8, 0, b""), other, BODY[:0],
                           frame_octets(3, 1, b"12"), call(2, "basic.qos"),
                           frame_octets(3, 1, b"345"))  # fmt: skip
        bodies = [p.body for e in of_type(events, PublishesReceived) for p in e.publishes]
        self.assertEqual(bodies, [b"other", b"other", b"12345"])

    def test_numbers(self) -> None:
        """09: part 4.5: publishes count from 1 after confirm.select, on each channel."""
        peer = Peer09().opened(1, 2)
        events = peer.send(publish(1), call(1, "confirm.select"), publish(1), publish(1, b"x"),
                           publish(2), call(1, "confirm.select"), publish(1))  # fmt: skip
        numbers = [p.number for e in of_type(events, PublishesReceived) for p in e.publishes
                   if e.channel.number == 1]  # fmt: skip
        self.assertEqual(numbers, [0, 1, 2, 3])

    def test_parts(self) -> None:
        """A large body is handed up as it comes, and never held."""
        peer = Peer09(part_from=1000).opened(1)
        first, *rest = [publish(1, bytes(1001), pieces=100)]
        del rest
        events: list[Any] = []
        for at in range(0, len(first), 150):
            events += peer.send(first[at : at + 150])
            self.assertLess(peer.engine.held_octets, 260)
        parts = of_type(events, ContentPartReceived)
        self.assertEqual(events, parts)
        self.assertEqual(sum(len(p) for e in parts for p in e.parts), 1001)
        self.assertEqual([e.is_last for e in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual({id(e.content) for e in parts}, {id(parts[0].content)})
        self.assertEqual((parts[0].content.size, parts[0].content.parts), (1001, []))
        [whole] = peer.send(publish(1, bytes(1000), pieces=100))
        self.assertIsInstance(whole, PublishesReceived)
        [part] = peer.send(publish(1, bytes(1001), pieces=100))
        self.assertTrue(of_type([part], ContentPartReceived)[0].is_last)

    def test_huge_size(self) -> None:
        """A body said to have 2^63 octets costs nothing before it comes."""
        peer = Peer09().opened(1)
        header = frame_octets(2, 1, header_octets(60, 1 << 63))
        [event] = peer.send(PUBLISH, header)
        self.assertEqual(of_type([event], ContentPartReceived)[0].content.size, 1 << 63)
        self.assertEqual(peer.engine.held_octets, 0)

    def test_many_unfinished(self) -> None:
        """The octets held over all channels have a bound, whatever each is allowed."""
        peer = Peer09(part_from=2000, max_partial=10_000).opened(*range(1, 21))
        events: list[Any] = []
        for number in range(1, 21):
            events += peer.send(publish(number, bytes(1800), pieces=200)[:-208])
            self.assertLessEqual(peer.engine.partial_octets, 10_000)
        begun = {e.channel.number for e in of_type(events, ContentPartReceived)}
        self.assertGreater(len(begun), 10)
        for number in range(1, 21):
            events += peer.send(frame_octets(3, number, bytes(200)))
        self.assertEqual(peer.engine.partial_octets, 0)
        whole = sum(len(p.body) for e in of_type(events, PublishesReceived) for p in e.publishes)
        parts = sum(len(p) for e in of_type(events, ContentPartReceived) for p in e.parts)
        self.assertEqual(whole + parts, 20 * 1800)

    def test_begun(self) -> None:
        """Properties wait in memory while a body does not come: what all channels have is bounded.

        It is free again when the content is complete, in one part or many, and when its channel
        ends.
        """
        peer = Peer09(part_from=1000).opened(1, 2)
        headers = {"headers": [("a", "S", bytes(120_000))]}
        for size in (0, 1, 900, 2000) * 5:
            peer.send(publish(1, bytes(size), properties=headers, pieces=700))
            peer.send(publish(2, bytes(9), properties=headers)[:-17])
            peer.send(frame_octets(3, 2, bytes(9)))
            self.assertEqual(peer.engine._begun, 0)
        self.assertTrue(peer.engine.is_open)
        peer.send(publish(2, bytes(9), properties=headers)[:-17])
        self.assertGreater(peer.engine._begun, 120_000)
        channel_of(peer, 2).close(ReplyCode.INTERNAL_ERROR, "x")
        self.assertEqual(peer.engine._begun, 0)

    def test_ended_while_unfinished(self) -> None:
        """A channel that ends lets go of what it held."""
        peer = Peer09(max_content=100).opened(1, 2)
        peer.send(publish(1, bytes(90), pieces=10)[:-18])
        self.assertEqual(peer.engine.partial_octets, 80)
        channel_of(peer).close(ReplyCode.INTERNAL_ERROR, "x")
        self.assertEqual(peer.engine.partial_octets, 0)
        peer.send(publish(2, bytes(90), pieces=10)[:-18])
        peer.engine.receive_eof(0)
        self.assertEqual(peer.engine.partial_octets, 0)

    def test_small_pieces(self) -> None:
        """A body in single octets takes about as many octets of memory."""
        peer = Peer09().opened(1)
        [event] = of_type(peer.send(publish(1, bytes(10_000), pieces=1)), PublishesReceived)
        self.assertEqual(event.publishes[0].body, bytes(10_000))
        self.assertLess(len(event.publishes[0].parts), 40)

    def test_other_classes(self) -> None:
        """09-TUN-02, I-03, I-04: file.stage, stream.publish and tunnel.request have contents."""
        peer = Peer09(V09).opened(1)
        channel_of(peer).send(FileOpenOk(staged_size=0))
        stage = content(1, "file.stage", b"data", {"filename": "f", "priority": 3}, class_id=70)
        stream = content(1, "stream.publish", b"tick", {"priority": 1}, class_id=80)
        tunnel = content(1, "tunnel.request", b"raw", {"proxy-name": "n"}, class_id=110,
                         meta_data=[("a", "I", 1)])  # fmt: skip
        [part, event] = peer.send(stage, stream, tunnel)
        # What is staged is passed on as far as it comes, to be kept wherever it is cut.
        assert isinstance(part, ContentPartReceived)
        self.assertEqual((part.parts, part.is_last), ([b"data"], True))
        assert isinstance(event, ContentsReceived)
        contents = [part.content, *event.contents]
        self.assertEqual([c.body for c in contents], [b"", b"tick", b"raw"])
        names = [c.method.traits.name for c in contents]
        self.assertEqual(names, ["file.stage", "stream.publish", "tunnel.request"])
        self.assertEqual([type(c.properties).__name__ for c in contents],
                         ["FileProperties", "StreamProperties", "TunnelProperties"])  # fmt: skip


class VersionTests(SynchronousTestCase):
    """Other things the two versions share."""

    def test_union(self) -> None:
        """09-W-05: a connection in 0-9 has the methods of both and the extensions."""
        names = {name for name, flags in FLAGS.items() if "only-09" not in flags}
        self.assertLess(len(names), len(IDS))
        self.assertIs(Peer09(V09).opened().engine.version, ProtocolVersion.V0_9)
        self.assertIsInstance(Peer09(V09).engine, Connection09)
