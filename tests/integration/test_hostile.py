# SPDX-License-Identifier: Apache-2.0
"""Broken, greedy and hostile clients and peers, each answered by the right condition.

What is asserted each time: the condition at the right scope (delivery, link, session,
connection), a line in the log with the peer's address and the cause, and that another connection
is served all the while.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import struct
from typing import Any

from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.types import Symbol
from tests.integration.support import (
    AMQP,
    SASL,
    Certificates,
    DaemonTestCase,
    Raw,
    Wire,
    certificates,
    client_tls,
    frame,
    message,
    opening,
    sasl_frame,
    sending_link,
    transfer,
)

MEBIBYTE = 2**20
PEER = r"127\.0\.0\.1:\d+ \(anonymous\)"


class HostileTestCase(DaemonTestCase):
    changes = {
        "limits": {
            "handshake-timeout": 2,
            "max-links": 64,
            "max-sessions": 16,
            "max-message-size": 10 * MEBIBYTE,
            "link-prefetch": 20,
        },
    }

    def opened(self, *more: bytes) -> Raw:
        """Return a client with a session, and what it writes next."""
        raw = Raw(self.daemon.plain)
        self.addCleanup(raw.close)
        raw.write(opening(), *more)
        self.assertEqual(raw.header(), AMQP)
        raw.expect(spec.Begin)
        return raw

    def assert_error(self, body: Any, condition: str, log: str = "") -> None:
        """Assert a condition in an ending performative, and that the log says it too."""
        self.assertIsNotNone(body.error, body)
        self.assertEqual(str(body.error.condition), condition, body.error)
        self.assertTrue(body.error.description)
        self.logged(log or rf"{PEER} .*{condition}: ")
        self.still_serves()


class FrameTests(HostileTestCase):
    """Faults of the connection end it (E-06)."""

    def closes(self, octets: bytes, condition: str) -> None:
        raw = self.opened(octets)
        self.assert_error(raw.expect(spec.Close), condition)
        raw.socket.shutdown(socket.SHUT_WR)
        self.assertTrue(raw.closed())

    def test_stays_after_the_close(self) -> None:
        """A peer that does not answer our close is closed on all the same (E-06)."""
        raw = self.opened(frame(spec.Open(container_id="again")))
        raw.expect(spec.Close)
        self.assertTrue(raw.closed())

    def test_size_below_the_header(self) -> None:
        self.closes(struct.pack(">IBBH", 3, 2, 0, 0), "amqp:connection:framing-error")

    def test_data_offset(self) -> None:
        self.closes(struct.pack(">IBBH", 8, 1, 0, 0), "amqp:connection:framing-error")

    def test_oversized(self) -> None:
        """Refused by its size alone: the octets are not waited for."""
        self.closes(struct.pack(">IBBH", 2**31, 2, 0, 0), "amqp:connection:framing-error")

    def test_unknown_performative(self) -> None:
        body = b"\x00\x53\x6f\x45"
        self.closes(struct.pack(">IBBH", 12, 2, 0, 0) + body, "amqp:decode-error")

    def test_undecodable(self) -> None:
        body = b"\x00\x53\x12\xc0\xff\x02"
        self.closes(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body, "amqp:decode-error")

    def test_deep_nesting(self) -> None:
        """Lists in lists do not reach Python's recursion limit."""
        body = b"\x45"
        for _ in range(2000):
            body = b"\xd0" + struct.pack(">II", len(body) + 4, 1) + body
        body = b"\x00\x53\x12" + body
        self.closes(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body, "amqp:decode-error")

    def test_huge_count(self) -> None:
        """An array said to have four milliards of elements costs nothing."""
        body = b"\x00\x53\x12\xf0" + struct.pack(">II", 5, 0xFFFFFFFF) + b"\x40"
        self.closes(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body, "amqp:decode-error")

    def test_second_open(self) -> None:
        self.closes(frame(spec.Open(container_id="again")), "amqp:not-allowed")

    def test_session_before_open(self) -> None:
        with Raw(self.daemon.plain) as raw:
            begin = spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            raw.write(AMQP, frame(begin))
            self.assertEqual(raw.header(), AMQP)
            self.assert_error(raw.expect(spec.Close), "amqp:not-allowed")

    def test_frame_on_no_session(self) -> None:
        octets = frame(spec.Detach(handle=0), channel=9)
        raw = self.opened(octets)
        close = raw.expect(spec.Close)
        self.assert_error(close, str(close.error.condition))
        self.assertIn(close.error.condition, ("amqp:not-allowed", "amqp:connection:framing-error"))

    def test_ten_thousand_sessions(self) -> None:
        """Beyond channel-max the connection ends (part 2 §2.7.1)."""
        begin = spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
        before = self.daemon.resident()
        octets = b"".join(frame(begin, channel=n) for n in range(1, 10001))
        self.closes(octets, "amqp:connection:framing-error")
        self.assertLess(self.daemon.resident() - before, 20 * MEBIBYTE)

    def test_tiny_max_frame_size(self) -> None:
        with Raw(self.daemon.plain) as raw:
            raw.write(AMQP, frame(spec.Open(container_id="tiny", max_frame_size=100)))
            self.assertEqual(raw.header(), AMQP)
            self.assert_error(raw.expect(spec.Close), "amqp:invalid-field")

    def test_garbage_in_sasl(self) -> None:
        with Raw(self.daemon.plain) as raw:
            raw.write(SASL, b"\xff" * 64)
            raw.rest()
        self.logged(r"127\.0\.0\.1:\d+ .*(frame|SASL)")
        self.still_serves()

    def test_endless_sasl(self) -> None:
        """A SASL frame may have 512 octets (part 5 §5.3.1)."""
        with Raw(self.daemon.plain) as raw:
            raw.write(SASL, struct.pack(">IBBH", 2**30, 2, 1, 0), b"x" * 1000)
            raw.rest()
        self.still_serves()


class SessionTests(HostileTestCase):
    """Faults of a session end it; the connection and other sessions live."""

    def ends(self, condition: str, *octets: bytes) -> None:
        raw = self.opened(*octets)
        self.assert_error(raw.expect(spec.End), condition)
        raw.write(frame(spec.End()))
        begin = spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
        raw.write(frame(begin, channel=1))
        raw.expect(spec.Begin)

    def test_transfer_on_no_link(self) -> None:
        self.ends("amqp:session:unattached-handle", transfer(message()))

    def test_handle_in_use(self) -> None:
        attach = sending_link(self.node)
        self.ends("amqp:session:handle-in-use", attach, sending_link(self.node, name="other"))

    def test_detach_of_no_link(self) -> None:
        self.ends("amqp:session:unattached-handle", frame(spec.Detach(handle=7)))

    def test_malformed_sections(self) -> None:
        """A message that misrepresents its sections is rejected, and the link continues (M-24)."""
        body = sections.encode_section(0x75, b"x")
        header = codec.encode(spec.Header(durable=True))
        for payload in (
            b"hello",
            body + header,
            header + header + body,
            body[:-1],
            body * 2 + b"x",
        ):
            raw = self.opened(sending_link(self.node), transfer(payload))
            self.assert_error(raw.expect(spec.Disposition).state, "amqp:decode-error")
            raw.write(transfer(message(b"good"), 1))
            self.assertIsInstance(raw.expect(spec.Disposition).state, spec.Accepted)
            with Wire(self.daemon.plain) as wire:
                wire.consume(self.node, 1)

    def test_missing_body(self) -> None:
        """Rejected by default; with the option taken and handed on without a body (M-22, M-23)."""
        header = codec.encode(spec.Header(durable=True))
        bodiless = header + codec.encode(spec.Properties(to="x"))
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("sender", self.node)
            for tolerates in (False, True):
                self.daemon.reload(**{"tolerate-missing-body": tolerates})
                outcomes = []
                for number, payload in enumerate((b"", header, bodiless)):
                    link.send((payload,), b"%d" % number)
                    update = wire.wait(lambda event: type(event) is ev.DeliveriesUpdated)
                    outcomes.append(type(update.state))
                self.assertEqual(
                    outcomes,
                    [spec.Rejected] + [spec.Accepted if tolerates else spec.Rejected] * 2,
                )
            for got in wire.consume(self.node, 2):
                self.assertEqual(sections.locate(got).body_code, 0)

    def test_ten_thousand_links(self) -> None:
        """Handles above handle-max are refused; memory is not what the peer decides."""
        before = self.daemon.resident()
        raw = self.opened()
        octets = b"".join(sending_link(self.node, n, f"link-{n}") for n in range(10000))
        raw.write(octets)
        ending = None
        for body in raw.bodies():
            if isinstance(body, spec.End | spec.Close):
                ending = body
                break
        self.assertIsNotNone(ending)
        self.assertIn(
            str(ending.error.condition),
            ("amqp:connection:framing-error", "amqp:resource-limit-exceeded", "amqp:not-allowed"),
        )
        raw.close()
        self.logged(rf"{PEER} .*handle")
        self.still_serves()
        self.assertLess(self.daemon.resident() - before, 30 * MEBIBYTE)

    def test_links_of_all_sessions(self) -> None:
        """max-links holds for each session's handles, and for the connection as a whole."""
        with Wire(self.daemon.plain) as wire:
            sessions = [wire.session, wire.engine.begin()]
            refused = accepted = 0
            for number in range(100):
                session = sessions[number % 2]
                link = session.attach(
                    f"l{number}", "sender",
                    source=spec.Source(), target=spec.Target(address=self.node),
                )  # fmt: skip
                while link.remote_attach is None:
                    wire.read()
                if link.remote_attach.target is None:
                    refused += 1
                else:
                    accepted += 1
        self.assertEqual((accepted, refused), (64, 36))
        self.logged(rf"{PEER} link l\d+ refused: amqp:resource-limit-exceeded")


class LinkTests(HostileTestCase):
    """Faults of a link, and what is refused at attach."""

    def refused(self, attach: bytes, condition: str, log: str = "") -> None:
        raw = self.opened(attach)
        answer = raw.expect(spec.Attach)
        self.assertIsNone(answer.source if answer.role is False else answer.target)
        self.assert_error(raw.expect(spec.Detach), condition, log)

    def receiving_link(self, address: str, **fields: Any) -> bytes:
        attach = spec.Attach(
            name="raw", handle=0, role=True,
            source=spec.Source(address=address, **fields), target=spec.Target(),
        )  # fmt: skip
        return frame(attach)

    def test_unknown_node(self) -> None:
        self.refused(sending_link("nobody"), "amqp:not-found", rf"{PEER} link .*'nobody'")
        self.refused(self.receiving_link("nobody"), "amqp:not-found", rf"{PEER} link .*'nobody'")

    def test_bad_addresses(self) -> None:
        for address in ("a@", "a@b..c", "a@-x.example", "a@" + "x" * 300, "@"):
            raw = self.opened(sending_link(address))
            self.assertIsNone(raw.expect(spec.Attach).target, address)
            error = raw.expect(spec.Detach).error
            self.assertEqual(str(error.condition), "amqp:invalid-field", (address, error))
        self.logged(rf"{PEER} link .* refused: amqp:invalid-field")
        self.still_serves()

    def test_services(self) -> None:
        """Services have nothing to receive; their names cannot be reached by an alias."""
        self.refused(self.receiving_link("amqp$transfer"), "amqp:not-allowed")
        self.refused(sending_link("amqp$nothing"), "amqp:not-found")
        self.refused(sending_link("amqp$transfer@alpha.example"), "amqp:not-allowed")

    def test_relay_queues_are_not_addressable(self) -> None:
        self.refused(self.receiving_link("amqp$out/x.example"), "amqp:not-allowed")
        raw = self.opened(sending_link("amqp$out/x.example"))
        self.assertIsNone(raw.expect(spec.Attach).target)

    def test_coordinator(self) -> None:
        """Transactions of a kind that is not offered."""
        target = spec.Coordinator(capabilities=(spec.TXN_DISTRIBUTED,))
        attach = spec.Attach(
            name="tx", handle=0, role=False, source=spec.Source(), target=target,
            initial_delivery_count=0,
        )  # fmt: skip
        self.refused(frame(attach), "amqp:not-implemented")

    def test_too_large(self) -> None:
        """One octet over max-message-size detaches the link (part 2 §2.7.3)."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("sender", self.node)
            self.assertEqual(link.remote_attach.max_message_size, 10 * MEBIBYTE)
        raw = self.opened(sending_link(self.node))
        raw.expect(spec.Attach)
        chunk = b"\0" * 60000
        whole = message(b"\0" * (10 * MEBIBYTE))
        self.assertGreater(len(whole), 10 * MEBIBYTE)
        first = True
        for at in range(0, len(whole), len(chunk)):
            more = at + len(chunk) < len(whole)
            head: dict[str, Any] = {"handle": 0, "more": more}
            if first:
                head.update(delivery_id=0, delivery_tag=b"t", message_format=0, settled=False)
            first = False
            raw.write(frame(spec.Transfer(**head), whole[at : at + len(chunk)]))
        self.assert_error(raw.expect(spec.Detach), "amqp:link:message-size-exceeded")

    def test_without_credit(self) -> None:
        """A transfer beyond the credit detaches the link (F-01)."""
        raw = self.opened(sending_link(self.node))
        raw.expect(spec.Flow)
        raw.write(b"".join(transfer(message(), n) for n in range(2000)))
        error = raw.expect(spec.Detach)
        self.assert_error(error, "amqp:link:transfer-limit-exceeded")

    def test_bad_to(self) -> None:
        """A message without a route is rejected, with its condition (T-25)."""
        cases = {
            None: "amqp:precondition-failed",
            "": "amqp:precondition-failed",
            "x@": "amqp:precondition-failed",
            "nobody": "amqp:not-found",
            "nobody@alpha.example": "amqp:not-found",
            "amqp$transfer": "amqp:not-allowed",
            "amqp$transfer@alpha.example": "amqp:not-allowed",
            "$management": "amqp:not-allowed",
        }
        raw = self.opened(sending_link("amqp$transfer"))
        raw.expect(spec.Attach)
        for number, (to, condition) in enumerate(cases.items()):
            payload = message(b"x", to) if to is not None else message(b"x", subject="no to")
            raw.write(transfer(payload, number))
            state = raw.expect(spec.Disposition).state
            self.assertIsInstance(state, spec.Rejected, to)
            self.assertEqual(str(state.error.condition), condition, to)
            self.assertTrue(state.error.description)
        for condition in set(cases.values()):
            self.logged(rf"{PEER} message on link .* refused: {condition}")
        self.still_serves()

    def test_bad_to_settled(self) -> None:
        """A settled delivery cannot be rejected: the link goes, with the tag (T-25)."""
        for to in ("nobody", "amqp$transfer"):
            raw = self.opened(sending_link("amqp$transfer"))
            raw.expect(spec.Attach)
            raw.write(transfer(message(b"x", to), 5, settled=True))
            error = raw.expect(spec.Detach).error
            self.assertEqual(error.info["delivery-tag"], (5).to_bytes(4, "big"))
        self.still_serves()

    def test_forged_trace(self) -> None:
        """A trace that has been here, is too long, or is no trace (T-27)."""
        here = "broker1.alpha.example"
        raw = self.opened(sending_link("amqp$transfer"))
        raw.expect(spec.Attach)
        for number, trace in enumerate(
            (["a", here, "b"], [f"host{n}" for n in range(16)], "text", [1, 2], {})
        ):
            annotations = sections.encode_section(0x72, {Symbol("x-opt-amqproute-trace"): trace})
            plain = message(b"x", self.node)
            cut = len(codec.encode(spec.Header(durable=True)))
            raw.write(transfer(plain[:cut] + annotations + plain[cut:], number))
            state = raw.expect(spec.Disposition).state
            self.assertIsInstance(state, spec.Rejected, trace)
            self.assertEqual(str(state.error.condition), "amqp:not-allowed", trace)
        self.logged(rf"{PEER} message on link .*mail loop: alpha.example > b > alpha.example")
        self.still_serves()

    def test_conflicting_alias(self) -> None:
        """`to` other than the alias it is sent by (T-14)."""
        raw = self.opened(sending_link("q@elsewhere.example"))
        # There is no name server: the attach is taken on trust, after the DNS's deadline.
        self.assertIsNotNone(raw.expect(spec.Attach).target)
        raw.write(transfer(message(b"x", "r@elsewhere.example")))
        state = raw.expect(spec.Disposition).state
        self.assertEqual(str(state.error.condition), "amqp:precondition-failed")

    def test_left_while_asked_about(self) -> None:
        """A link, and a connection, that go while the DNS is asked about their domain."""
        raw = self.opened(
            sending_link("q@slow1.example"), transfer(message()),
            frame(spec.Detach(handle=0, closed=True)),
        )  # fmt: skip
        raw.expect(spec.Detach)
        gone = self.opened(sending_link("q@slow1.example"), transfer(message()))
        gone.close()
        ended = self.opened(sending_link("q@slow1.example"), frame(spec.End()))
        ended.expect(spec.End)
        # A later question for the same domain is answered after the former ones.
        last = self.opened(sending_link("q@slow1.example"))
        self.assertIsNotNone(last.expect(spec.Attach).target)
        self.still_serves()


class PeerTests(HostileTestCase):
    """Answers to certificates and users without rights."""

    def peer(self, name: str = "evil.example", **options: Any) -> Raw:
        issued = certificates().issue(name, **options)
        raw = Raw(self.daemon.tls, client_tls(issued))
        self.addCleanup(raw.close)
        init = spec.SaslInit(mechanism="EXTERNAL", initial_response=b"")
        raw.write(SASL, sasl_frame(init), opening(f"broker.{name}"))
        self.assertEqual(raw.header(), SASL)
        self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
        self.assertEqual(raw.header(), AMQP)
        raw.expect(spec.Begin)
        return raw

    def test_open_relay(self) -> None:
        """A peer's messages for third domains are refused (T-31)."""
        raw = self.peer()
        raw.write(sending_link("amqp$transfer"))
        raw.expect(spec.Attach)
        raw.write(transfer(message(b"x", "orders@victim.example")))
        state = raw.expect(spec.Disposition).state
        self.assertEqual(str(state.error.condition), "amqp:unauthorized-access")
        self.assertIn("no open relay", state.error.description)
        self.logged(r"127\.0\.0\.1:\d+ \(peer:evil\.example\) .*no open relay")
        raw = self.peer()
        raw.write(sending_link("orders@victim.example"))
        self.assertIsNone(raw.expect(spec.Attach).target)
        error = raw.expect(spec.Detach).error
        self.assertEqual(str(error.condition), "amqp:unauthorized-access")
        self.still_serves()

    def test_peer_consumes(self) -> None:
        raw = self.peer()
        attach = spec.Attach(
            name="r", handle=0, role=True,
            source=spec.Source(address=self.node), target=spec.Target(),
        )  # fmt: skip
        raw.write(frame(attach))
        self.assertIsNone(raw.expect(spec.Attach).source)
        error = raw.expect(spec.Detach).error
        self.assertEqual(str(error.condition), "amqp:unauthorized-access")
        self.logged(r"\(peer:evil\.example\) link r refused: amqp:unauthorized-access")

    def test_remote_service(self) -> None:
        """Management is not reached from abroad (T-32)."""
        raw = self.peer()
        raw.write(sending_link("amqp$transfer"))
        raw.expect(spec.Attach)
        for number, node in enumerate(("$management", "amqp$transfer", "amqp$admin")):
            raw.write(transfer(message(b"x", f"{node}@alpha.example"), number))
            state = raw.expect(spec.Disposition).state
            self.assertEqual(str(state.error.condition), "amqp:not-allowed")
        raw = self.peer()
        raw.write(sending_link("$management"))
        self.assertIsNone(raw.expect(spec.Attach).target)

    def test_user_without_rights(self) -> None:
        raw = Raw(self.daemon.tls, client_tls())
        self.addCleanup(raw.close)
        init = spec.SaslInit(mechanism="PLAIN", initial_response=b"\0bob\0hidden")
        raw.write(SASL, sasl_frame(init), opening(), sending_link(self.node))
        self.assertEqual(raw.header(), SASL)
        self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
        self.assertEqual(raw.header(), AMQP)
        self.assertIsNone(raw.expect(spec.Attach).target)
        error = raw.expect(spec.Detach).error
        self.assertEqual(str(error.condition), "amqp:unauthorized-access")
        self.logged(r"\(user:bob\) link raw-0 refused: .*user:bob may not publish on")
        self.still_serves()

    def turned_away(self, context: ssl.SSLContext) -> None:
        """Connect; with TLS 1.3 the client learns of the refusal when it reads."""
        try:
            with Raw(self.daemon.tls, context) as raw:
                raw.write(SASL)
                self.assertEqual(raw.rest(), b"")
        except (ssl.SSLError, ConnectionError):
            pass

    def test_expired_certificate(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        issued = certificates().issue(
            "late.example",
            not_before=now - datetime.timedelta(days=9),
            not_after=now - datetime.timedelta(days=1),
        )
        self.turned_away(client_tls(issued))
        self.logged(r"127\.0\.0\.1:\d+ at tcp:.*expired")
        self.still_serves()

    def test_unknown_authority(self) -> None:
        foreign = Certificates().issue("stranger.example")
        self.turned_away(client_tls(foreign))
        self.logged(r"127\.0\.0\.1:\d+ at tcp:.*(authority|issuer)")
        self.still_serves()

    def test_client_does_not_know_our_authority(self) -> None:
        with self.assertRaises(ssl.SSLError):
            Raw(self.daemon.tls, client_tls(trust=Certificates().trust))
        self.logged(r"127\.0\.0\.1:\d+ at tcp:")
        self.still_serves()

    def test_plain_text_on_the_tls_port(self) -> None:
        with Raw(self.daemon.tls) as raw:
            raw.write(AMQP)
            self.assertNotIn(b"AMQP", raw.rest())
        self.logged(r"peer 127\.0\.0\.1:\d+ spoke plain text on the TLS port")
        self.still_serves()

    def test_no_certificate_for_external(self) -> None:
        raw = Raw(self.daemon.tls, client_tls())
        self.addCleanup(raw.close)
        init = spec.SaslInit(mechanism="EXTERNAL", initial_response=b"")
        raw.write(SASL, sasl_frame(init))
        self.assertEqual(raw.header(), SASL)
        offered = raw.expect(spec.SaslMechanisms).sasl_server_mechanisms
        self.assertNotIn("EXTERNAL", [str(name) for name in offered])
        self.assertNotEqual(raw.expect(spec.SaslOutcome).code, 0)


class CrowdTests(HostileTestCase):
    """Many at once."""

    def test_slow_loris(self) -> None:
        """A hundred connections that never open are gone after handshake-timeout."""
        crowd = [Raw(self.daemon.plain) for _ in range(50)]
        crowd += [Raw(self.daemon.plain).write(AMQP) for _ in range(25)]
        crowd += [Raw(self.daemon.tls) for _ in range(25)]
        self.still_serves()
        for raw in crowd:
            raw.rest()  # fails at the socket's time-out if it is never closed
            raw.close()
        self.logged(r"127\.0\.0\.1:\d+ .*(handshake|within|time)")
        self.still_serves()

    def test_never_reads(self) -> None:
        """A consumer that does not read holds no more than its bounds."""
        with Wire(self.daemon.plain) as wire:
            wire.publish(self.node, [message(bytes(MEBIBYTE))] * 20)
        before = self.daemon.resident()
        lazy = Wire(self.daemon.plain)
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link = lazy.attach("receiver", self.node)
        link.flow(1000)
        lazy.flush()
        self.still_serves("test_slow_loris")
        self.assertLess(self.daemon.resident() - before, 40 * MEBIBYTE)
        lazy.socket.close()
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(len(wire.consume(self.node, 20)), 20)

    def test_memory(self) -> None:
        """Rounds of abuse leave nothing behind."""

        def abuse() -> None:
            for number in range(40):
                with Raw(self.daemon.plain) as raw:
                    half = spec.Transfer(
                        handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True
                    )
                    raw.write(opening(f"abuser-{number}"), sending_link(self.node))
                    raw.header()
                    raw.write(frame(half, bytes(60000)))
                    raw.write(sending_link(f"nobody-{number}", 1))
                    raw.write(frame(spec.Attach(
                        name="d", handle=2, role=True, source=spec.Source(dynamic=True),
                        target=spec.Target(),
                    )))  # fmt: skip
                    raw.expect(spec.Detach)
                with Raw(self.daemon.plain) as raw:
                    raw.write(opening(), b"\xff" * 1000)
                    raw.header()
                    raw.expect(spec.Close)

        abuse()
        before = self.daemon.resident()
        for _ in range(5):
            abuse()
        self.assertLess(self.daemon.resident() - before, 10 * MEBIBYTE)
        self.still_serves()
