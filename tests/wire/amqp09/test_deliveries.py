# SPDX-License-Identifier: Apache-2.0
"""A server's output: deliveries, gets, returns, confirms; and the client's acks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.contents import ContentHead
from amqproute.wire.amqp09.frame_output import ALONE, FrameTooLargeError
from amqproute.wire.amqp09.methods import (
    BasicConsume,
    BasicPublish,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    StreamDeliver,
)
from amqproute.wire.amqp09.protocol_events import (
    AckReceived,
    ChannelEnded,
    ChannelOpened,
    ContentsReceived,
    DeliveriesSettled,
    MethodReceived,
    PublishesReceived,
    PublishesSettled,
)
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.tags import ConfirmNumbers, DeliveryTags
from tests.support.plain_amqp09 import frames, header, method, property_octets
from tests.support.wire09 import V09, Peer09, call, of_type, publish, settings

PROPERTIES = property_octets(60, {"content-type": "text/plain", "delivery-mode": 2})


class Looked(dict[int, int]):
    """A dictionary that counts how often it is asked or looked through."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def __iter__(self) -> Iterator[int]:
        self.looks += len(self)
        return super().__iter__()

    def pop(self, *key: Any) -> Any:
        """Count and pop."""
        self.looks += 1
        return super().pop(*key)


class TagTests(SynchronousTestCase):
    """`DeliveryTags`."""

    def test_tags(self) -> None:
        """09-DOM-03, 09-X-02, 09-BASIC-51, -52: from 1 on; one, all up to one, all for 0."""
        tags: DeliveryTags[str] = DeliveryTags()
        self.assertEqual([tags.issue(each) for each in "abcde"], [1, 2, 3, 4, 5])
        self.assertEqual(tags.settle(2), "b")
        self.assertEqual(tags.settle_up_to(3), [(1, "a"), (3, "c")])
        self.assertEqual((len(tags), list(tags), 4 in tags, 3 in tags), (2, [4, 5], True, False))
        self.assertEqual(tags.issue_settled(), 6)
        self.assertEqual(tags.settle_up_to(0), [(4, "d"), (5, "e")])
        self.assertEqual(tags.settle_up_to(0), [])

    def test_unknown(self) -> None:
        """09-X-71: a tag that is not outstanding, alone or with all before it."""
        tags: DeliveryTags[str] = DeliveryTags()
        tags.issue("a")
        for tag in (0, 2):
            with self.assertRaises(KeyError):
                tags.settle(tag)
        with self.assertRaises(KeyError):
            tags.settle_up_to(2)
        tags.settle(1)
        for settle in (tags.settle, tags.settle_up_to):
            with self.assertRaises(KeyError):
                settle(1)

    def test_rolled_back(self) -> None:
        """09: part 4.4: what a rollback restores is outstanding as before."""
        tags: DeliveryTags[str] = DeliveryTags()
        for each in "abcd":
            tags.issue(each)
        for tag, context in tags.settle_up_to(3):
            tags.restore(tag, context)
        self.assertEqual(tags.settle(2), "b")
        self.assertEqual(tags.settle_up_to(4), [(1, "a"), (3, "c"), (4, "d")])

    def test_cost(self) -> None:
        """With 100,000 outstanding an ack looks at what it settles, however it is said."""
        tags: DeliveryTags[int] = DeliveryTags()
        looked = tags._outstanding = Looked()
        for number in range(100_000):
            tags.issue(number)
        for tag in range(1, 50_001):
            tags.settle(tag)
        for tag in range(50_010, 60_001, 10):
            self.assertEqual(len(tags.settle_up_to(tag)), 10)
        self.assertLess(looked.looks, 250_000)
        # One that stays while millions come and go: its tag is far behind the others.
        looked.looks = 0
        tags.settle_up_to(99_999)
        for _ in range(20_000):
            tags.settle(tags.issue(0))
        tags.settle_up_to(tags.issue(0))
        self.assertLess(looked.looks, 150_000)
        looked.looks = 0
        tags.issue(0)
        for _ in range(20_000):
            tags.settle(tags.issue(0))
        tags.settle_up_to(tags.issue(0))
        self.assertLess(looked.looks, 60_000)

    @given(st.lists(st.tuples(st.sampled_from(["issue", "no-ack", "one", "upto", "restore"]),
                              st.integers(0, 12)), max_size=40))  # fmt: skip
    def test_model(self, steps: list[tuple[str, int]]) -> None:
        """As a plain dictionary, whatever comes in whatever order."""
        tags: DeliveryTags[int] = DeliveryTags()
        model: dict[int, int] = {}
        last = 0
        settled: list[tuple[int, int]] = []
        for step, number in steps:
            if step == "issue":
                last += 1
                model[last] = number
                self.assertEqual(tags.issue(number), last)
            elif step == "no-ack":
                last += 1
                self.assertEqual(tags.issue_settled(), last)
            elif step == "one":
                if number in model:
                    settled.append((number, model.pop(number)))
                    self.assertEqual(tags.settle(number), settled[-1][1])
                else:
                    self.assertRaises(KeyError, tags.settle, number)
            elif step == "upto":
                due = sorted(tag for tag in model if tag <= number or not number)
                if number > last or (number and not due):
                    self.assertRaises(KeyError, tags.settle_up_to, number)
                else:
                    found = [(tag, model.pop(tag)) for tag in due]
                    self.assertEqual(tags.settle_up_to(number), found)
                    settled += found
            elif settled:
                tag, context = settled.pop()
                model[tag] = context
                tags.restore(tag, context)
            self.assertEqual(list(tags), sorted(model))


class ConfirmNumberTests(SynchronousTestCase):
    """`ConfirmNumbers`."""

    def test_runs(self) -> None:
        """In order one ack says it all; out of order each number has its own."""
        numbers = ConfirmNumbers()
        numbers.last = 10
        self.assertEqual(numbers.confirm(1, 1), [(1, False)])
        self.assertEqual(numbers.confirm(2, 4), [(4, True)])
        self.assertEqual(numbers.confirm(6, 7), [(6, False), (7, False)])
        self.assertEqual(numbers.outstanding, 4)
        self.assertEqual(numbers.confirm(5, 5), [(5, False)])
        self.assertEqual(numbers.confirm(8, 10), [(10, True)])
        self.assertEqual(numbers.outstanding, 0)

    def test_mistakes(self) -> None:
        """A number is confirmed once, and only after it was published."""
        numbers = ConfirmNumbers()
        numbers.last = 5
        numbers.confirm(3, 3)
        for first, last in ((3, 3), (2, 4), (1, 3), (5, 6), (6, 6), (2, 1)):
            with self.assertRaises(ValueError):
                numbers.confirm(first, last)
        self.assertEqual(numbers.confirm(1, 2), [(2, True)])
        with self.assertRaises(ValueError):
            numbers.confirm(2, 2)

    @given(st.permutations(range(1, 9)), st.lists(st.integers(1, 3), min_size=8, max_size=8))
    def test_model(self, order: list[int], sizes: list[int]) -> None:
        """A client that believes the acks has exactly what was confirmed."""
        numbers = ConfirmNumbers()
        numbers.last = 8
        confirmed: set[int] = set()
        believed: set[int] = set()
        for first, size in zip(order, sizes, strict=True):
            last = first
            while last - first + 1 < size and last < 8:
                last += 1
            if confirmed & set(range(first, last + 1)):
                last = first
                if first in confirmed:
                    continue
            for tag, multiple in numbers.confirm(first, last):
                believed |= set(range(1, tag + 1)) if multiple else {tag}
            confirmed |= set(range(first, last + 1))
            self.assertEqual(believed, confirmed)
            self.assertEqual(numbers.outstanding, 8 - len(confirmed))


class ServerCase(SynchronousTestCase):
    """A server with channel 1 open."""

    header = b"AMQP\x00\x00\x09\x01"

    def setUp(self) -> None:
        self.peer = Peer09(self.header).opened(1, frame_max=4096)
        self.channel = self.peer.engine.channels[0]

    def contents(self, octets: bytes) -> list[tuple[str, dict[str, Any], dict[str, Any], bytes]]:
        """Read contents: method name, arguments, properties, body; every frame within frame-max."""
        found = []
        rest = frames(octets)
        while rest:
            kind, channel, payload = rest.pop(0)
            self.assertEqual((kind, channel), (1, 1))
            name, arguments = method(payload)
            kind, channel, payload = rest.pop(0)
            self.assertEqual((kind, channel), (2, 1))
            class_id, size, properties = header(payload)
            self.assertEqual(class_id, 60)
            body = b""
            while len(body) < size:
                kind, channel, payload = rest.pop(0)
                self.assertEqual((kind, channel), (3, 1))
                self.assertLessEqual(len(payload) + 8, 4096)
                body += payload
            self.assertEqual(len(body), size)
            found.append((name, arguments, properties, body))
        return found


class DeliverTests(ServerCase):
    """`Channel.deliver` and what is like it."""

    def test_deliver(self) -> None:
        """09-BASIC-41: consumer, tag, redelivered, exchange, routing key; then the content."""
        sizes = (0, 1, 100, 4088, 4089, 10_000)
        for number, size in enumerate(sizes, 1):
            tag = self.channel.deliver(
                "tag", "ex", "key", PROPERTIES, [b"x" * size], redelivered=number == 3
            )
            self.assertEqual(tag, number)
        buffers = self.peer.engine.data_to_send()
        self.assertEqual(len(buffers), 1)  # a burst is one write
        found = self.contents(buffers[0])
        self.assertEqual([len(body) for *_, body in found], list(sizes))
        name, arguments, properties, _ = found[2]
        self.assertEqual(name, "basic.deliver")
        self.assertEqual(
            arguments,
            {"consumer-tag": "tag", "delivery-tag": 3, "redelivered": 1, "exchange": "ex",
             "routing-key": "key"},
        )  # fmt: skip
        self.assertEqual(properties, {"content-type": "text/plain", "delivery-mode": 2})
        self.assertEqual(found[3][1]["redelivered"], 0)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(
                    [
                        ContentHead("ex", "key", PROPERTIES),
                        ContentHead("", "queue", b"\0\0"),
                        ContentHead("\xe9", "", PROPERTIES),
                    ]
                ),
                st.binary(min_size=1, max_size=40),
                st.booleans(),
            ),
            max_size=8,
        ),
        st.booleans(),
    )
    def test_burst(self, made: list[tuple[ContentHead, bytes, bool]], needs_ack: bool) -> None:
        """A burst is the same octets as deliveries one by one, with the same tags."""
        one, other = Peer09().opened(1), Peer09().opened(1)
        for number, (head, body, redelivered) in enumerate(made):
            one.engine.channels[0].deliver(
                "t", *head, [body], redelivered=redelivered, needs_ack=needs_ack, context=number
            )
        burst = [(*each, number) for number, each in enumerate(made)]
        other.engine.channels[0].deliver_burst("t", burst, needs_ack=needs_ack)
        found = [each.engine.channels[0].unacknowledged for each in (one, other)]
        self.assertEqual(*[sorted(each.outstanding()) for each in found])
        self.assertEqual(found[0].last, found[1].last)
        self.assertEqual(one.engine.output.frames, other.engine.output.frames)
        octets = other.raw()
        self.assertEqual(octets, one.raw())
        self.assertEqual(
            [(arguments["redelivered"], body) for _, arguments, _, body in self.contents(octets)],
            [(int(redelivered), body) for _, body, redelivered in made],
        )

    def test_broken_burst(self) -> None:
        """09-W-11: what stands before a content that cannot be sent is sent, and no other."""
        fine = ContentHead("", "q", PROPERTIES)
        large = ContentHead("", "q", property_octets(60, {"headers": [("a", "S", bytes(5000))]}))
        contents = [(head, b"x", False, None) for head in (fine, large, fine)]
        with self.assertRaises(FrameTooLargeError):
            self.channel.deliver_burst("t", contents)
        self.assertEqual([body for *_, body in self.contents(self.peer.raw())], [b"x"])
        self.assertEqual(list(self.channel.unacknowledged), [1])
        self.channel.close(ReplyCode.NOT_FOUND, "over")
        with self.assertRaises(LocalProtocolError):
            self.channel.deliver_burst("t", contents[:1])

    @given(st.lists(st.binary(max_size=9000), max_size=4))
    def test_parts(self, parts: list[bytes]) -> None:
        """09-CONN-19, 09-W-11: a body in any parts is sent in frames as large as may be."""
        peer = Peer09().opened(1, frame_max=4096)
        peer.engine.channels[0].deliver("t", "", "q", PROPERTIES, parts)
        octets = peer.raw()
        [(*_, body)] = self.contents(octets)
        self.assertEqual(body, b"".join(parts))
        full = [len(p) for kind, _, p in frames(octets) if kind == 3]
        self.assertEqual(len(full), -(-len(body) // 4088))

    def test_large_parts_are_not_copied(self) -> None:
        """A part that fills frames by itself is in the output as it is."""
        peer = Peer09().opened(1)
        part = bytes(ALONE)
        peer.engine.channels[0].deliver("t", "", "q", PROPERTIES, [part])
        self.assertTrue(any(each is part for each in peer.engine.data_to_send()))

    def test_no_ack(self) -> None:
        """09-DOM-09: a tag is issued, and nothing is outstanding."""
        self.assertEqual(self.channel.deliver("t", "", "q", PROPERTIES, [], needs_ack=False), 1)
        self.assertEqual(len(self.channel.unacknowledged), 0)
        self.assertEqual(self.channel.deliver("t", "", "q", PROPERTIES, []), 2)
        self.assertEqual(list(self.channel.unacknowledged), [2])

    def test_get_and_return(self) -> None:
        """09-BASIC-40, -44, -46, -48: get-ok shares the tags; return gives the publish back."""
        self.channel.deliver("t", "", "q", PROPERTIES, [b"1"])
        tag = self.channel.get_ok("e", "k", 7, PROPERTIES, [b"2"], redelivered=True)
        self.assertEqual(tag, 2)
        self.assertEqual(self.channel.get_ok("e", "k", 0, PROPERTIES, [], needs_ack=False), 3)
        self.assertEqual(list(self.channel.unacknowledged), [1, 2])
        self.peer.raw()
        [event] = of_type(
            self.peer.send(publish(1, b"back", "nowhere", properties={"message-id": "m"},
                                   mandatory=1)), PublishesReceived)  # fmt: skip
        self.channel.return_content(event.publishes[0], ReplyCode.NO_ROUTE, "no route")
        [(name, arguments, properties, body)] = self.contents(self.peer.raw())
        self.assertEqual(name, "basic.return")
        self.assertEqual((arguments["reply-code"], arguments["routing-key"]), (312, "nowhere"))
        self.assertEqual((properties, body), ({"message-id": "m"}, b"back"))

    def test_too_large_for_a_frame(self) -> None:
        """09-W-11: properties that fill a frame cannot be sent; no tag and no octet is spent."""
        large = property_octets(60, {"headers": [("a", "S", bytes(5000))]})
        with self.assertRaises(FrameTooLargeError):
            self.channel.deliver("t", "", "q", large, [b"x"])
        with self.assertRaises(FrameTooLargeError):
            self.channel.get_ok("", "q", 0, large, [b"x"])
        self.assertEqual(self.peer.raw(), b"")
        self.assertEqual(self.channel.deliver("t", "", "q", PROPERTIES, [b"x"]), 1)

    def test_mistakes(self) -> None:
        """Methods no server sends, and values that do not fit, raise and write nothing."""
        for name in ("x" * 256, "a\0"):
            with self.assertRaises(LocalProtocolError):
                self.channel.deliver("t", "", name, PROPERTIES, [])
        with self.assertRaises(LocalProtocolError):
            self.channel.send_content(BasicPublish(), PROPERTIES, [])
        with self.assertRaises(LocalProtocolError):
            self.channel.send_content(BasicQosOk(), PROPERTIES, [])
        with self.assertRaises(LocalProtocolError):
            self.channel.send_content(StreamDeliver(), PROPERTIES, [])  # 0-9 only
        with self.assertRaises(LocalProtocolError):
            self.channel.confirm(1, 1)
        for send in (self.channel.deliver, self.channel.get_ok):
            with self.assertRaises(LocalProtocolError):  # more than the whole
                key = ("t", "", "q") if send == self.channel.deliver else ("", "q", 0)
                send(*key, PROPERTIES, [b"12"], size=1)  # type: ignore[arg-type]
        self.channel.close(ReplyCode.INTERNAL_ERROR, "x")
        self.peer.raw()
        with self.assertRaises(LocalProtocolError):
            self.channel.deliver("t", "", "q", PROPERTIES, [])
        self.assertEqual(self.peer.raw(), b"")


class LargeBodyTests(ServerCase):
    """Bodies that are sent as they are read from elsewhere."""

    header = V09

    def test_in_parts(self) -> None:
        """Other output of the channel waits for the end; other channels do not."""
        self.peer.send(call(2, "channel.open"))
        other = next(each for each in self.peer.engine.channels if each.number == 2)
        self.peer.raw()
        tag = self.channel.deliver("t", "", "q", PROPERTIES, [b"a" * 10], size=5000)
        self.channel.send(BasicQosOk())
        with self.assertRaises(LocalProtocolError):
            self.channel.deliver("t", "", "q", PROPERTIES, [])
        other.send(BasicQosOk())
        self.assertEqual(self.channel.body_left, 4990)
        self.channel.send_body([b"b" * 4000])
        with self.assertRaises(LocalProtocolError):
            self.channel.send_body([b"c" * 991])
        self.channel.send_body([b"c" * 990])
        found = frames(self.peer.raw())
        order = [(kind, number) for kind, number, _ in found]
        self.assertEqual(order, [(1, 1), (2, 1), (3, 1), (1, 2), (3, 1), (3, 1), (1, 1)])
        self.assertEqual(sum(len(p) for kind, _, p in found if kind == 3), 5000)
        self.assertEqual(tag, 1)
        self.channel.deliver("t", "", "q", PROPERTIES, [])

    def test_cut_short(self) -> None:
        """09-BASIC-53, -54, I-09: a reject comes through; an empty body frame ends the content."""
        self.channel.deliver("t", "", "q", PROPERTIES, [b"a"], size=9000, context="c")
        [event] = of_type(
            self.peer.send(call(1, "basic.reject", delivery_tag=1)), DeliveriesSettled
        )
        self.assertEqual((event.settlement, event.contexts), (AckReceived.REJECTED, ["c"]))
        self.channel.send(BasicQosOk())
        self.channel.cut_body()
        self.assertEqual(
            [(kind, len(payload)) for kind, _, payload in frames(self.peer.raw())][-2:],
            [(3, 0), (1, 4)],
        )
        with self.assertRaises(LocalProtocolError):
            self.channel.cut_body()
        peer = Peer09().opened(1)
        peer.engine.channels[0].deliver("t", "", "q", PROPERTIES, [b"a"], size=9000)
        with self.assertRaises(LocalProtocolError):
            peer.engine.channels[0].cut_body()

    def test_closed_within(self) -> None:
        """A channel that is closed within a content gives it up, and says so at once."""
        self.channel.deliver("t", "", "q", PROPERTIES, [b"a"], size=9000)
        self.channel.send(BasicQosOk())
        self.peer.send(call(1, "channel.close"))
        self.channel.close_ok()
        names = [method(p)[0] for kind, _, p in frames(self.peer.raw()) if kind == 1]
        self.assertEqual(names, ["basic.deliver", "channel.close-ok"])


class SettlementTests(ServerCase):
    """basic.ack, nack and reject from a client."""

    def deliver(self, count: int) -> None:
        """Deliver this many, whose contexts are their tags."""
        for number in range(count):
            self.channel.deliver("t", "", "q", PROPERTIES, [], context=number + 1)

    def test_kinds(self) -> None:
        """09-BASIC-50, -51, -52, -58: what each method says of which deliveries."""
        self.deliver(12)
        events = self.peer.send(
            call(1, "basic.ack", delivery_tag=2),
            call(1, "basic.ack", delivery_tag=3, multiple=1),
            call(1, "basic.reject", delivery_tag=4),
            call(1, "basic.reject", delivery_tag=5, requeue=1),
            call(1, "basic.nack", delivery_tag=7, multiple=1, requeue=1),
            call(1, "basic.nack", delivery_tag=8),
            call(1, "basic.ack", delivery_tag=0, multiple=1),
        )
        self.assertEqual(
            [(e.settlement, e.tags, e.contexts) for e in of_type(events, DeliveriesSettled)],
            [
                (AckReceived.ACKNOWLEDGED, [2, 1, 3], [2, 1, 3]),
                (AckReceived.REJECTED, [4], [4]),
                (AckReceived.REQUEUED, [5, 6, 7], [5, 6, 7]),
                (AckReceived.REJECTED, [8], [8]),
                (AckReceived.ACKNOWLEDGED, [9, 10, 11, 12], [9, 10, 11, 12]),
            ],
        )
        self.assertEqual(self.peer.send(call(1, "basic.ack", multiple=1)), [])

    def test_order_with_publishes(self) -> None:
        """Input of a channel stays in its order: a publish before the ack that follows it."""
        self.deliver(2)
        events = self.peer.send(publish(1), call(1, "basic.ack", delivery_tag=1), publish(1),
                                call(1, "basic.ack", delivery_tag=2))  # fmt: skip
        self.assertEqual(
            [type(e) for e in events],
            [PublishesReceived, DeliveriesSettled, PublishesReceived, DeliveriesSettled],
        )

    def test_twice(self) -> None:
        """09-X-71, 09: part 4.4: a second ack closes the channel, in a transaction as well."""
        for select in (b"", call(1, "tx.select")):
            self.setUp()
            self.deliver(1)
            ack = call(1, "basic.ack", delivery_tag=1)
            events = self.peer.send(select, ack, ack)
            self.assertEqual([e.code for e in of_type(events, ChannelEnded)], [406])

    def test_other_channel(self) -> None:
        """09-X-01: a tag means nothing on another channel."""
        self.deliver(1)
        events = self.peer.send(call(2, "channel.open"), call(2, "basic.ack", delivery_tag=1))
        self.assertEqual([e.channel.number for e in of_type(events, ChannelEnded)], [2])
        self.assertEqual(list(self.channel.unacknowledged), [1])

    def test_what_is_left(self) -> None:
        """09-BASIC-11: what a channel leaves unacknowledged is the user's to requeue."""
        self.deliver(3)
        [_, ended] = self.peer.send(
            call(1, "basic.ack", delivery_tag=2), call(1, "channel.close", reply_code=200)
        )
        assert isinstance(ended, ChannelEnded)
        self.assertEqual(ended.channel.unacknowledged.take_all(), [(1, 1), (3, 3)])
        self.assertEqual(len(ended.channel.unacknowledged), 0)


class ConfirmTests(ServerCase):
    """Publisher confirms, between a server and a client."""

    def test_server(self) -> None:
        """09-W-71, -73: ack and nack, multiple where they can; a return comes before its ack."""
        [_, event] = self.peer.send(call(1, "confirm.select"), *[publish(1) for _ in range(6)])
        assert isinstance(event, PublishesReceived)
        self.channel.send(ConfirmSelectOk())
        self.peer.raw()
        self.channel.confirm(2, 2)
        self.channel.confirm(1, 3 - 2)
        self.channel.return_content(event.publishes[2], ReplyCode.NO_ROUTE, "no route")
        self.channel.confirm(3, 4)
        self.channel.reject(5, 6)
        said = [(name, fields.get("delivery-tag"), fields.get("multiple"))
                for _, name, fields in self.peer.methods()]  # fmt: skip
        self.assertEqual(
            said,
            [("basic.ack", 2, 0), ("basic.ack", 1, 0), ("basic.return", None, None),
             ("basic.ack", 4, 1), ("basic.nack", 6, 1)],
        )  # fmt: skip
        with self.assertRaises(LocalProtocolError):
            self.channel.confirm(4, 4)


class PairTests(SynchronousTestCase):
    """A client's engine and a server's, joined."""

    def setUp(self) -> None:
        self.peer = Peer09().opened()
        server = self.peer.engine
        self.client = Connection09(settings("client"))
        self.client.start(0)
        # The client's octets go to a fresh server.
        self.server = Connection09(server.settings)
        self.server.start(0)
        self.seen: list[Any] = []
        self.told: list[Any] = []
        for step in range(8):
            self.carry()
            if self.client.stage.name == "RESPOND":
                self.client.start_ok("PLAIN", b"\0u\0p")
            del step
        self.channel = self.client.open_channel()
        self.carry()
        self.at_server: Channel = self.server.channels[0]

    def carry(self) -> tuple[list[Any], list[Any]]:
        """Move octets both ways once; return what server and client were told."""
        octets = b"".join(self.client.data_to_send())
        seen = list(self.server.receive_data(octets, 0)) if octets else []
        for event in seen:
            self.peer.engine, kept = self.server, self.peer.engine
            self.peer.grant(event)
            self.peer.engine = kept
        while self.server.has_input:
            more = list(self.server.receive_data(b"", 0))
            self.peer.engine, kept = self.server, self.peer.engine
            for event in more:
                self.peer.grant(event)
            self.peer.engine = kept
            seen += more
        octets = b"".join(self.server.data_to_send())
        told = list(self.client.receive_data(octets, 0)) if octets else []
        self.told += told
        return seen, told

    def test_opened(self) -> None:
        """Both are open, and the channel too."""
        self.assertTrue(self.client.is_open and self.server.is_open)
        self.assertEqual(len(of_type(self.told, ChannelOpened)), 1)
        self.assertEqual([each.number for each in self.client.channels], [1])
        self.assertEqual(self.client.open_channel().number, 2)

    def test_publish_and_confirm(self) -> None:
        """Numbers at both ends agree, and contexts come back."""
        self.channel.send(ConfirmSelect())
        numbers = [
            self.channel.publish(BasicPublish(routing_key="q"), PROPERTIES, [b"x"], context=each)
            for each in "abcd"
        ]
        self.assertEqual(numbers, [1, 2, 3, 4])
        self.channel.send(ConfirmSelect())  # again: the numbers continue
        seen, _ = self.carry()
        [event] = of_type(seen, PublishesReceived)
        self.assertEqual([p.number for p in event.publishes], numbers)
        self.at_server.send(ConfirmSelectOk())
        self.at_server.confirm(1, 3)
        self.at_server.reject(4, 4)
        _, told = self.carry()
        self.assertIsInstance(of_type(told, MethodReceived)[0].method, ConfirmSelectOk)
        self.assertEqual(
            [(e.confirmed, e.numbers, e.contexts) for e in of_type(told, PublishesSettled)],
            [(True, [1, 2, 3], ["a", "b", "c"]), (False, [4], ["d"])],
        )

    def test_consume(self) -> None:
        """Deliveries that follow each other are one event at the client as well."""
        self.channel.send(BasicConsume(queue="q"))
        seen, _ = self.carry()
        tag = seen[0].method.consumer_tag
        for number in range(3):
            self.at_server.deliver(tag, "", "q", PROPERTIES, [b"%d" % number])
        _, told = self.carry()
        [event] = of_type(told, ContentsReceived)
        self.assertEqual([c.body for c in event.contents], [b"0", b"1", b"2"])
        self.assertEqual([c.method.delivery_tag for c in event.contents], [1, 2, 3])  # type: ignore[attr-defined]
        self.channel.close(ReplyCode.REPLY_SUCCESS, "bye")
        seen, _ = self.carry()
        of_type(seen, ChannelEnded)[0].channel.close_ok()
        self.carry()
        self.assertEqual((self.client.channels, self.server.channels), ((), ()))
