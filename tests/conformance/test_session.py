# SPDX-License-Identifier: Apache-2.0
"""Sessions: part 2 §2.5."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import Network, attach, body_of, condition, frame, message

BEGIN = spec.Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)


class SessionTests(SynchronousTestCase):
    """Begin and end."""

    def setUp(self) -> None:
        self.house = Network().house(nodes=["q", "r"])
        self.client = self.house.client().opened()

    def test_answer(self) -> None:
        """§2.5.1, §2.7.2: the broker's begin names the channel that it answers."""
        self.client.send(BEGIN, channel=5)
        answer = self.client.one(spec.Begin)
        self.assertEqual(answer.remote_channel, 5)
        self.assertGreater(answer.incoming_window, 0)

    def test_several(self) -> None:
        """L-04: a connection has several sessions, each with links."""
        for channel in range(4):
            self.client.begun(channel)
            self.client.sender("q", channel=channel)
            self.client.publish(0, channel=channel)
        self.assertEqual(self.house.depth(), 4)

    def test_end(self) -> None:
        """§2.5.4: an end is answered by an end; the connection continues."""
        self.client.begun().send(spec.End())
        self.assertIsNone(self.client.one(spec.End).error)
        self.client.begun()
        self.assertFalse(self.client.is_cut)

    def test_end_releases(self) -> None:
        """O-06, §2.5.4: the end of a session gives back what its links held."""
        self.client.begun().fill([b"1", b"2"])
        self.client.receiver(credit=10)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        self.client.send(spec.End())
        self.client.begun(1)
        self.client.receiver(credit=10, channel=1)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_sessions_are_independent(self) -> None:
        """§2.5.4, E-03: an error in one session leaves the others alone."""
        self.client.begun(0)
        self.client.begun(1)
        self.client.sender(channel=1)
        self.client.send(spec.Detach(handle=77, closed=True), channel=0)
        self.assertIsNotNone(condition(self.client.one(spec.End, 0)))
        self.client.publish(0, channel=1)
        self.assertEqual(self.house.depth(), 1)

    def test_bad_begin(self) -> None:
        """E-07, §2.5.1: a begin on a channel that has a session ends that session, no other."""
        self.client.begun(0)
        self.client.begun(1)
        self.client.sender(channel=1)
        self.client.send(BEGIN, channel=0)
        self.assertEqual(condition(self.client.one(spec.End, 0)), "amqp:not-allowed")
        self.client.publish(0, channel=1)
        self.assertEqual(self.house.depth(), 1)

    def test_begin_without_windows(self) -> None:
        """E-07, §2.7.2: the windows of a begin are mandatory; without them it is ended."""
        self.client.write(b"\x00\x00\x00\x10\x02\x00\x00\x00\x00\x53\x11\xc0\x03\x02\x40\x43")
        self.client.one(spec.Begin)
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:invalid-field")
        self.client.send(spec.End())
        self.client.begun()
        self.client.sender()
        self.client.publish(0)
        self.assertEqual(self.house.depth(), 1)

    def test_handle_in_use(self) -> None:
        """L-36, §2.8.17: a handle that is in use ends the session."""
        self.client.begun().sender("q", handle=3)
        self.client.send(attach("sender", "other", 3, "r"))
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:session:handle-in-use")

    def test_unattached_handle(self) -> None:
        """§2.8.17: a transfer on a handle that was never attached ends the session."""
        self.client.begun().publish(0, handle=9)
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:session:unattached-handle")

    def test_handle_max(self) -> None:
        """L-04, §2.7.2: a handle above our handle-max is an error."""
        house = Network().house(settings={"handle_max": 3})
        client = house.client().opened()
        client.send(BEGIN)
        self.assertEqual(client.one(spec.Begin).handle_max, 3)
        client.send(attach("sender", "x", 4, "q"))
        self.assertEqual(condition(client.one(spec.Close)), "amqp:connection:framing-error")

    def test_discarding(self) -> None:
        """L-08, E-11, §2.5.6: after our end nothing on the channel is executed."""
        self.client.begun().sender()
        self.client.write(
            frame(spec.Detach(handle=77)), self.client.transfer(0), self.client.transfer(1)
        )
        self.client.one(spec.End)
        self.client.publish(2)
        self.assertEqual(self.house.depth(), 0)
        self.client.send(spec.End())
        self.client.begun()
        self.assertFalse(self.client.is_cut)

    def test_order(self) -> None:
        """L-06: the frames of a session are executed in their order, links mixed."""
        self.client.begun()
        self.client.sender("q", handle=0)
        self.client.sender("q", handle=1)
        self.client.write(
            *(self.client.transfer(n, message(b"%d" % n), handle=n % 2) for n in range(10))
        )
        self.client.receiver("q", handle=2, credit=10)
        self.assertEqual(self.client.bodies(), [b"%d" % n for n in range(10)])

    def test_fault_gives_back(self) -> None:
        """O-06, §2.8.17: a session that ends for a fault gives back what its links held."""
        self.client.begun().fill([b"1", b"2"])
        self.client.receiver(credit=5)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        self.client.send(spec.Detach(handle=55))
        self.client.one(spec.End)
        other = self.house.client().ready("other")
        other.receiver(credit=5)
        self.assertEqual(other.bodies(), [b"1", b"2"])

    def test_delivery_ids_are_of_the_session(self) -> None:
        """§2.7.5: delivery-ids, and dispositions, belong to their session."""
        self.client.begun(0)
        self.client.begun(1)
        self.client.fill([b"1", b"2"])
        self.client.receiver(credit=1, channel=0)
        self.client.receiver(credit=1, channel=1, name="other")
        self.client.dispose(0, channel=1)
        self.assertEqual(self.house.depth(), 1)
        self.client.dispose(0, channel=0)
        self.assertEqual(self.house.depth(), 0)

    def test_range_over_links(self) -> None:
        """§2.7.6: a disposition's range covers deliveries of all links of the session."""
        self.client.begun()
        self.client.fill([b"q"], "q")
        self.client.fill([b"r"], "r")
        self.client.receiver("q", handle=0, credit=1)
        self.client.receiver("r", handle=1, credit=1)
        self.client.dispose(0, 1)
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (0, 0))

    def test_pipelined(self) -> None:
        """L-07: begin, attach, flow and transfer work before the peer's reply arrives."""
        self.client.write(
            frame(BEGIN),
            frame(attach("sender", "s", 0, "q")),
            self.client.transfer(0, message(b"m")),
            frame(attach("receiver", "r", 1, "q")),
            frame(
                spec.Flow(
                    incoming_window=100,
                    next_outgoing_id=1,
                    outgoing_window=100,
                    handle=1,
                    link_credit=1,
                )
            ),
        )
        self.assertEqual(self.client.bodies(), [b"m"])
        self.assertEqual(len(self.client.all(spec.Attach)), 2)


class WindowTests(SynchronousTestCase):
    """Transfer ids and windows, §2.5.6."""

    def setUp(self) -> None:
        self.house = Network().house(settings={"incoming_window": 10})
        self.client = self.house.client().opened()

    def test_never_stalls(self) -> None:
        """F-08, P-08: a publisher is not stalled by using up the session's window."""
        self.client.begun().sender()
        window = 10
        for number in range(200):
            self.assertGreater(window, 0, f"stalled at {number}")
            self.client.publish(number)
            window -= 1
            for flow in self.client.all(spec.Flow):
                window = (flow.next_incoming_id or 0) + flow.incoming_window - (number + 1)
        self.assertEqual(self.house.depth(), 200)

    def test_violation(self) -> None:
        """§2.8.17: more transfers than the window allows end the session."""
        house = Network().house(settings={"incoming_window": 10, "max_frame_size": 512})
        client = house.client().opened()
        client.send(BEGIN)
        window = client.one(spec.Begin).incoming_window
        client.sender()
        partial = b"".join(
            frame(
                spec.Transfer(
                    handle=0,
                    delivery_id=0 if n == 0 else None,
                    delivery_tag=b"t" if n == 0 else None,
                    message_format=0 if n == 0 else None,
                    more=True,
                ),
                b"x",
            )
            for n in range(window * 3)
        )
        client.write(partial)
        ends = client.all(spec.End)
        if ends:
            self.assertEqual(condition(ends[0]), "amqp:session:window-violation")
        else:
            # The broker may widen the window as fast as the frames come in; then it says so.
            self.assertTrue(client.all(spec.Flow))

    def test_remote_window(self) -> None:
        """F-05, §2.5.6: credit or not, no more transfers than the client's incoming-window."""
        self.client.begun(incoming_window=3).fill([b"%d" % n for n in range(8)])
        self.client.receiver()
        self.client.credit(100, incoming_window=3)
        self.assertEqual(len(self.client.bodies()), 3)
        self.client.send(
            spec.Flow(
                next_incoming_id=3, incoming_window=2, next_outgoing_id=0, outgoing_window=100
            )
        )
        self.assertEqual(self.client.bodies(), [b"3", b"4"])

    def test_window_of_none(self) -> None:
        """F-05, §2.5.6: an incoming-window of 0 holds everything back, in its order."""
        self.client.begun(incoming_window=0).fill([b"1", b"2"])
        self.client.receiver()
        self.client.credit(5, incoming_window=0)
        self.assertEqual(self.client.messages(), [])
        self.client.credit(5, incoming_window=5)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_window_counts_frames(self) -> None:
        """§2.5.6: the window counts transfer frames: a large message comes bit by bit."""
        house = Network().house()
        client = house.client().opened(max_frame_size=512).begun(incoming_window=2)
        client.fill([b"x" * 3000])
        client.receiver()
        client.credit(1, incoming_window=2)
        seen, payload = 0, b""
        for _ in range(20):
            came = client.payloads(spec.Transfer)
            self.assertLessEqual(len(came), 2)
            seen += len(came)
            payload += b"".join(each for _, each in came)
            if came and not came[-1][0].more:
                break
            client.send(
                spec.Flow(
                    next_incoming_id=seen,
                    incoming_window=2,
                    next_outgoing_id=0,
                    outgoing_window=9,
                )
            )
        self.assertEqual(body_of(payload), b"x" * 3000)

    def test_echo(self) -> None:
        """§2.7.4: a session flow with echo is answered."""
        self.client.begun().names()
        self.client.send(
            spec.Flow(
                next_incoming_id=0,
                incoming_window=10,
                next_outgoing_id=0,
                outgoing_window=10,
                echo=True,
            )
        )
        self.assertFalse(self.client.one(spec.Flow).echo)

    def test_delivery_ids_wrap(self) -> None:
        """§2.8.10: ids are serial numbers: they go over 2**32 without a stumble."""
        last = (1 << 32) - 1
        self.client.send(
            spec.Begin(next_outgoing_id=last - 1, incoming_window=9, outgoing_window=9)
        )
        self.client.sender()
        for number in (last - 1, last, 0, 1):
            self.client.publish(number, delivery_tag=b"%d" % number)
        settled = []
        for each in self.client.all(spec.Disposition):
            number = each.first
            settled.append(number)
            while number != (each.first if each.last is None else each.last):
                number = (number + 1) & last
                settled.append(number)
        self.assertEqual(sorted(settled), [0, 1, last - 1, last])
        self.assertEqual(self.house.depth(), 4)
