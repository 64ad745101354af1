# SPDX-License-Identifier: Apache-2.0
"""Connections: part 2 §2.2 and §2.4, part 5."""

from __future__ import annotations

import struct

from twisted.trial.unittest import SynchronousTestCase

from amqproute.conditions import CONNECTION_FORCED
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, spec
from tests.conformance.frame_broker import (
    AMQP_HEADER,
    SASL_HEADER,
    TLS_HEADER,
    Network,
    attach,
    condition,
    frame,
    message,
)

BEGIN = spec.Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)


class HeaderTests(SynchronousTestCase):
    """Protocol headers, part 2 §2.2 and part 5 §5.1."""

    def setUp(self) -> None:
        self.client = Network().house().client()

    def test_same_header_back(self) -> None:
        """Part 2 §2.2: the header of a version that is spoken is answered with the same."""
        self.client.write(AMQP_HEADER)
        self.assertEqual(self.client.headers, [AMQP_HEADER])
        self.assertFalse(self.client.is_cut)

    def test_byte_by_byte(self) -> None:
        """Part 2 §2.2: TCP has no segments: header and open may come an octet at a time."""
        self.client.write(AMQP_HEADER, frame(spec.Open(container_id="c")), chunk=1)
        self.assertEqual(self.client.one(spec.Open).container_id, "a.test")

    def test_other_version(self) -> None:
        """Part 2 §2.2: another version is answered with ours, and the socket is closed."""
        self.client.write(b"AMQP\x00\x09\x01\x00")
        self.assertEqual(self.client.headers, [AMQP_HEADER])
        self.assertTrue(self.client.is_cut)

    def test_not_amqp(self) -> None:
        """Part 2 §2.2: what is no AMQP at all is answered in the same way."""
        for mechanisms, header in (((), AMQP_HEADER), (("ANONYMOUS",), SASL_HEADER)):
            client = Network().house().client(mechanisms=mechanisms)
            client.write(b"GET / HTTP/1.1\r\n\r\n")
            self.assertEqual(client.headers, [header])
            self.assertTrue(client.is_cut)

    def test_tls_not_offered(self) -> None:
        """Part 5 §5.2: where TLS is not offered its header is answered with one that is."""
        self.client.write(TLS_HEADER)
        self.assertEqual(self.client.headers, [AMQP_HEADER])
        self.assertTrue(self.client.is_cut)

    def test_silence_is_bounded(self) -> None:
        """Part 2 §2.4.5: who says nothing at all does not hold a connection for ever."""
        for _ in range(12):
            self.client.run(10)
        self.assertTrue(self.client.is_cut)


class SaslTests(SynchronousTestCase):
    """Part 5 §5.3; L-51, T-19."""

    def mechanisms(self, *names: str, **facts: object) -> tuple[str, ...]:
        client = Network().house().client(mechanisms=names, facts=facts)
        client.write(SASL_HEADER)
        self.assertEqual(client.headers, [SASL_HEADER])
        return tuple(str(each) for each in client.one(spec.SaslMechanisms).sasl_server_mechanisms)

    def test_sasl_is_demanded(self) -> None:
        """L-51: a client that leaves SASL out is told the SASL header, and is gone."""
        client = Network().house().client(mechanisms=["ANONYMOUS"])
        client.write(AMQP_HEADER, frame(spec.Open(container_id="c")))
        self.assertEqual(client.headers, [SASL_HEADER])
        self.assertTrue(client.is_cut)
        self.assertEqual(client.names(), [])

    def test_anonymous(self) -> None:
        """Part 5 §5.3.2: mechanisms, init, outcome 0; then the AMQP header and open."""
        client = Network().house().client(mechanisms=["ANONYMOUS"])
        client.write(SASL_HEADER, frame(spec.SaslInit(mechanism="ANONYMOUS"), kind=1))
        self.assertEqual([kind for kind, *_ in client.frames], [1, 1])
        self.assertEqual(client.one(spec.SaslOutcome).code, 0)
        client.write(AMQP_HEADER, frame(spec.Open(container_id="c")))
        self.assertEqual(client.headers, [SASL_HEADER, AMQP_HEADER])
        self.assertEqual(client.one(spec.Open).container_id, "a.test")

    def test_all_in_one_segment(self) -> None:
        """P-03, part 5 §5.3: a client may pipeline SASL and AMQP in one segment."""
        client = Network().house().client(mechanisms=["ANONYMOUS"])
        client.write(
            SASL_HEADER,
            frame(spec.SaslInit(mechanism="ANONYMOUS"), kind=1),
            AMQP_HEADER,
            frame(spec.Open(container_id="c")),
            frame(BEGIN),
        )
        names = client.names()
        self.assertEqual(names, ["SaslMechanisms", "SaslOutcome", "Open", "Begin"])

    def test_unknown_mechanism(self) -> None:
        """Part 5 §5.3.3.6: a mechanism that was not offered gets outcome 1, and the end."""
        client = Network().house().client(mechanisms=["ANONYMOUS"])
        client.write(SASL_HEADER, frame(spec.SaslInit(mechanism="GSSAPI"), kind=1))
        client.run(5)
        self.assertEqual(client.one(spec.SaslOutcome).code, 1)
        self.assertTrue(client.is_cut)

    def test_amqp_frame_in_sasl(self) -> None:
        """Part 5 §5.3.1: frames of type 0 have no place before the outcome."""
        client = Network().house().client(mechanisms=["ANONYMOUS"])
        client.write(SASL_HEADER, frame(spec.Open(container_id="c")))
        client.run(10)
        self.assertTrue(client.none(spec.Open))
        self.assertTrue(client.is_cut)

    def test_external_needs_a_certificate(self) -> None:
        """T-19: EXTERNAL is offered to who has proved a name by its certificate, only."""
        names = ("EXTERNAL", "ANONYMOUS")
        self.assertEqual(self.mechanisms(*names), ("ANONYMOUS",))
        certified = {"tls_version": "TLSv1.3", "certificate_domains": frozenset({"b.test"})}
        self.assertEqual(self.mechanisms(*names, **certified)[0], "EXTERNAL")

    def test_external_proves_the_peer(self) -> None:
        """T-19, T-39: with EXTERNAL the peer's certificate says who it is, not its open."""
        house = Network().house()
        facts = {"tls_version": "TLSv1.3", "certificate_domains": frozenset({"b.test"})}
        client = house.client(mechanisms=["EXTERNAL"], facts=facts)
        init = spec.SaslInit(mechanism="EXTERNAL", initial_response=b"")
        client.write(SASL_HEADER, frame(init, kind=1))
        self.assertEqual(client.one(spec.SaslOutcome).code, 0)
        client.write(AMQP_HEADER, frame(spec.Open(container_id="impostor.test")))
        principal = house.frontends[0].principal
        self.assertEqual(principal, Principal("peer", "b.test", frozenset({"b.test"})))


class OpenTests(SynchronousTestCase):
    """Part 2 §2.7.1; A-15, A-16, L-52, E-01."""

    def setUp(self) -> None:
        self.house = Network().house(settings={"idle_timeout": 60.0, "channel_max": 7})
        self.client = self.house.client()

    def test_open(self) -> None:
        """§2.7.1, A-15: the broker's open has its container-id and its limits."""
        self.client.write(AMQP_HEADER, frame(spec.Open(container_id="c", hostname="x.test")))
        answer = self.client.one(spec.Open)
        self.assertEqual(answer.container_id, "a.test")
        self.assertEqual(answer.channel_max, 7)
        self.assertGreaterEqual(answer.max_frame_size, 512)
        self.assertEqual(answer.idle_time_out, 60_000)

    def test_container_id(self) -> None:
        """L-52: a client is a container, and its id is taken as it is."""
        for name in ("", "ä ö", "x" * 1000, "a.test"):
            self.client = self.house.client().opened(name)
            self.assertFalse(self.client.is_cut)
            self.assertEqual(self.house.frontends[-1].connection.remote_container_id, name)

    def test_hostname(self) -> None:
        """A-16: an unknown hostname is the default one, unless the broker is strict."""
        self.client.opened(hostname="unknown.test")
        self.house.shared.serves = lambda name: name == "a.test"
        self.house.client().opened(hostname="a.test")
        strict = self.house.client()
        strict.write(AMQP_HEADER, frame(spec.Open(container_id="c", hostname="unknown.test")))
        self.assertEqual(condition(strict.one(spec.Close)), "amqp:not-found")

    def test_capabilities(self) -> None:
        """E-01, T-01: the anonymous terminus is implemented, so it is offered."""
        self.client.write(AMQP_HEADER, frame(spec.Open(container_id="c")))
        offered = self.client.one(spec.Open).offered_capabilities
        self.assertIn("ANONYMOUS-RELAY", offered)

    def test_clean_close(self) -> None:
        """§2.4.6: a close is answered by a close without an error, then the socket closes."""
        self.client.opened().send(spec.Close())
        self.assertIsNone(self.client.one(spec.Close).error)
        self.assertTrue(self.client.is_cut)

    def test_close_with_error(self) -> None:
        """§2.4.6: a close with an error is answered like any other."""
        error = spec.Error(condition="amqp:internal-error", description="mine")
        self.client.opened().send(spec.Close(error=error))
        self.assertIsNone(self.client.one(spec.Close).error)
        self.assertTrue(self.client.is_cut)

    def test_heartbeat(self) -> None:
        """§2.4.5: the broker sends empty frames often enough for the client's idle-time-out."""
        self.client.opened(idle_time_out=10_000)
        for _ in range(30):
            self.client.run(1)
        self.assertGreaterEqual(self.client.empty, 3)
        self.assertFalse(self.client.is_cut)

    def test_idle_client(self) -> None:
        """§2.4.5: a client silent far beyond the broker's idle-time-out is closed."""
        self.client.opened()
        for _ in range(30):
            self.client.run(10)
        self.assertIsNotNone(condition(self.client.one(spec.Close)))
        self.assertTrue(self.client.is_cut)

    def test_heartbeats_keep_it(self) -> None:
        """§2.4.5: any frame is a sign of life, also an empty one, on any channel."""
        self.client.opened()
        for _ in range(30):
            self.client.write(frame(None, channel=3)).run(10)
        self.assertTrue(self.client.none(spec.Close))
        self.assertFalse(self.client.is_cut)

    def test_extended_header(self) -> None:
        """§2.3.1: octets between the frame's header and its data offset are skipped."""
        self.client.opened()
        body = codec.encode(BEGIN)
        octets = struct.pack(">IBBH", 16 + len(body), 4, 0, 0) + b"extended" + body
        self.client.write(octets)
        self.assertEqual(self.client.one(spec.Begin).remote_channel, 0)
        self.client.write(struct.pack(">IBBH", 16, 4, 0, 0) + b"extended")
        self.assertFalse(self.client.is_cut)

    def test_no_idle_time_out(self) -> None:
        """§2.4.5: an idle-time-out of 0 is none at all."""
        self.client.opened(idle_time_out=0)
        self.assertFalse(self.client.is_cut)
        self.assertLess(self.client.empty, 5)

    def test_forced(self) -> None:
        """E-05: an operator who ends a connection says connection:forced."""
        self.client.opened().begun()
        self.client.fill([b"1"])
        self.client.receiver(credit=1)
        self.house.frontends[0].close(CONNECTION_FORCED, "maintenance")
        self.client.run()
        self.assertEqual(condition(self.client.one(spec.Close)), "amqp:connection:forced")
        self.client.send(spec.Close())
        other = self.house.client().ready("other")
        other.receiver(credit=1)
        self.assertEqual(other.bodies(), [b"1"])

    def test_frames_of_their_size(self) -> None:
        """§2.7.1: who takes smaller frames than we do is not invited to send larger ones."""
        for theirs, ours in ((512, 65536), (65536, 65536), (70_000, 70_000), (2**32 - 1, 262_144)):
            client = Network().house().client()
            client.write(AMQP_HEADER, frame(spec.Open(container_id="c", max_frame_size=theirs)))
            self.assertEqual(client.one(spec.Open).max_frame_size, ours)

    def test_max_frame_size(self) -> None:
        """§2.7.1: no frame is larger than the client's max-frame-size."""
        self.client.opened(max_frame_size=512).begun()
        self.client.fill([b"x" * 5000])
        self.client.receiver(credit=1)
        transfers = self.client.payloads(spec.Transfer)
        self.assertGreater(len(transfers), 9)
        for transfer, payload in transfers:
            self.assertLessEqual(8 + len(codec.encode(transfer)) + len(payload), 512)
        self.assertTrue(all(transfer.more for transfer, _ in transfers[:-1]))
        self.assertFalse(transfers[-1][0].more)

    def test_unknown_fields_of_open(self) -> None:
        """L-19, §2.7.1: properties and capabilities that are not known are ignored."""
        self.client.opened(
            properties={"product": "other", "x": [1, 2]}, desired_capabilities=("NOT-KNOWN",)
        )
        self.assertFalse(self.client.is_cut)


class FaultTests(SynchronousTestCase):
    """Malformed frames close the connection with an error, then the socket (E-06)."""

    def setUp(self) -> None:
        self.house = Network().house(settings={"channel_max": 7})
        self.client = self.house.client().opened()

    def closed(self, wanted: str, octets: bytes) -> None:
        self.client.write(octets)
        self.assertEqual(condition(self.client.one(spec.Close)), wanted)
        self.client.run(10)
        self.assertTrue(self.client.is_cut, "the socket stays open")

    def test_frame_too_small(self) -> None:
        """§2.3.1: a size below 8 is malformed."""
        self.closed("amqp:connection:framing-error", struct.pack(">IBBH", 7, 2, 0, 0))

    def test_frame_too_large(self) -> None:
        """§2.3.1, §2.7.1: a frame larger than our max-frame-size is an error."""
        self.closed("amqp:connection:framing-error", struct.pack(">IBBH", 1 << 30, 2, 0, 0))

    def test_data_offset(self) -> None:
        """§2.3.1: a data offset below 2 is malformed."""
        self.closed("amqp:connection:framing-error", struct.pack(">IBBH", 8, 1, 0, 0))

    def test_frame_type(self) -> None:
        """§2.3.1: a frame type that is not AMQP has no place here."""
        self.closed("amqp:connection:framing-error", frame(spec.Close(), kind=9))

    def test_not_a_performative(self) -> None:
        """§2.3.2: the body of a frame is a performative."""
        body = codec.encode("hello")
        octets = struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body
        self.closed("amqp:decode-error", octets)

    def test_bad_encoding(self) -> None:
        """Part 1 §1.2: a format code that does not exist is a decode error."""
        octets = struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x11\xff"
        self.closed("amqp:decode-error", octets)

    def test_mandatory_field(self) -> None:
        """Part 1 §1.4: a performative without a mandatory field is a decode error."""
        octets = struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x12\x45"
        self.closed("amqp:decode-error", octets)

    def test_second_open(self) -> None:
        """§2.4.1: a connection is opened once."""
        self.client.write(frame(spec.Open(container_id="again")))
        self.assertIsNotNone(condition(self.client.one(spec.Close)))

    def test_channel_max(self) -> None:
        """E-07, §2.7.1: a channel above channel-max closes with framing-error."""
        self.closed("amqp:connection:framing-error", frame(BEGIN, channel=8))

    def test_frame_without_session(self) -> None:
        """§2.5.1: a frame on a channel with no session is an error of the connection."""
        self.client.send(attach("sender", "x", 0, "q"), channel=5)
        self.assertIsNotNone(condition(self.client.one(spec.Close)))

    def test_utf8(self) -> None:
        """Part 1 §1.6.20: a string that is no UTF-8 is a decode error."""
        begin = codec.encode(attach("sender", "name", 0, "q")).replace(b"name", b"\xff\xfe\xfd\xfc")
        self.client.begun()
        self.closed("amqp:decode-error", struct.pack(">IBBH", 8 + len(begin), 2, 0, 0) + begin)

    def test_end_without_session(self) -> None:
        """§2.5.1: an end on a channel without a session is an error of the connection."""
        self.client.send(spec.End(), channel=3)
        self.assertIsNotNone(condition(self.client.one(spec.Close)))

    def test_answer_to_no_question(self) -> None:
        """E-07, §2.5.1: a begin that answers a begin which we never sent is begun and ended."""
        answer = spec.Begin(
            remote_channel=3, next_outgoing_id=0, incoming_window=9, outgoing_window=9
        )
        self.client.send(answer)
        self.assertEqual(self.client.one(spec.Begin).remote_channel, 0)
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:invalid-field")

    def test_after_close(self) -> None:
        """§2.4.6: after its close nothing of a client's is read."""
        self.client.begun().sender()
        self.client.write(frame(spec.Close()), self.client.transfer(0), b"garbage")
        self.assertIsNone(condition(self.client.one(spec.Close)))
        self.assertEqual(self.house.depth(), 0)

    def test_nothing_after_the_fault(self) -> None:
        """E-11: what follows a malformed frame in the same segment is not executed."""
        self.client.begun().sender()
        self.client.write(
            struct.pack(">IBBH", 7, 2, 0, 0), self.client.transfer(0, message(b"late"))
        )
        self.assertEqual(self.house.depth(), 0)

    def test_before_the_fault(self) -> None:
        """E-11: what stood before it in the same segment is executed."""
        self.client.begun().sender()
        self.client.write(
            self.client.transfer(0, message(b"early")), struct.pack(">IBBH", 7, 2, 0, 0)
        )
        self.assertEqual(self.house.depth(), 1)

    def test_silent_peer(self) -> None:
        """E-06: a peer that does not answer our close is dropped after a bounded wait."""
        self.client.write(frame(BEGIN, channel=8))
        for _ in range(4):
            self.client.run(5)
        self.assertTrue(self.client.is_cut)
