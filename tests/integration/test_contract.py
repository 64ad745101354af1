# SPDX-License-Identifier: Apache-2.0
"""A peer that exceeds its contract, and an undisturbed client beside it.

No times are asserted: how little the client notices is for a campaign to measure. What is: the
client's messages are all taken, the peer gets no more than its contract, and both it and the
operator are told.
"""

from __future__ import annotations

import socket
import threading
import time

from amqproute.wire.amqp10 import spec
from tests.integration.support import (
    AMQP,
    SASL,
    Daemon,
    Raw,
    certificates,
    client_tls,
    frame,
    message,
    opening,
    sasl_frame,
    sending_link,
    transfer,
)
from tests.integration.test_proton import ProtonTestCase, proton
from tests.support.patience import PATIENCE

EVIL = "evil.example"
RATE = 50
TERMS = {
    "connections": 2,
    "links": 3,
    "messages-per-second": RATE,
    "max-message-size": 65536,
    "spool": 1048576,
}


class Flood(threading.Thread):
    """Sends without regard for credit, on one link after the other, until it is told to stop.

    Attributes:
        sent: messages.
        accepted: those that were taken.
        refused: the conditions of links and messages that were not.
    """

    def __init__(self, raw: Raw, node: str) -> None:
        super().__init__(daemon=True)
        self.is_over = False
        self.sent = self.accepted = 0
        self.refused: set[str] = set()
        self._raw = raw
        self._node = node

    def run(self) -> None:
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        payload = message(b"x" * 1000, to=f"{self._node}@alpha.example")
        handle = 0
        try:
            while not self.is_over:
                burst = [
                    transfer(payload, self.sent + each, handle) for each in range(10 * RATE // 5)
                ]
                link = sending_link(self._node, handle, f"flood-{handle}")
                closing = spec.Detach(handle=handle, closed=True)
                self._raw.write(link, *burst, frame(closing))
                self.sent += len(burst)
                handle = (handle + 1) % 200
                time.sleep(0.1)  # ten times what it may, and not all that the machine can do
            self._raw.write(frame(spec.Close()))
        except OSError:
            pass  # closed for it; the test looks at what was taken
        reader.join(PATIENCE)

    def _read(self) -> None:
        try:
            for body in self._raw.bodies():
                if isinstance(body, spec.Disposition):
                    count = 1 + (body.first if body.last is None else body.last) - body.first
                    if isinstance(body.state, spec.Accepted):
                        self.accepted += count
                        continue
                    error = getattr(body.state, "error", None)
                elif isinstance(body, spec.Detach | spec.End | spec.Close):
                    error = body.error
                else:
                    continue
                if error is not None:
                    self.refused.add(str(error.condition))
        except (OSError, ValueError):
            pass  # the socket is gone


class Greedy(threading.Thread):
    """Keeps to its credit, and uses all of it at once.

    Attributes:
        sent: messages.
    """

    def __init__(self, raw: Raw, node: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._raw = raw
        self._payload = message(b"x" * 1000, to=f"{node}@alpha.example")
        raw.write(sending_link(node, 0, "greedy"))

    def run(self) -> None:
        try:
            for body in self._raw.bodies():
                if isinstance(body, spec.Flow) and body.handle is not None:
                    until = (body.delivery_count or 0) + (body.link_credit or 0)
                    burst = [transfer(self._payload, each) for each in range(self.sent, until)]
                    self.sent = max(self.sent, until)
                    self._raw.write(*burst)
        except (OSError, ValueError):
            pass  # the test has shut the socket down


class FloodTests(ProtonTestCase):
    """Against one daemon."""

    changes = {"peers": {EVIL: {"level": "pkix", "contract": TERMS}}}

    def peer(self) -> Raw:
        """Connect as the peer, and begin a session."""
        raw = self.introduced()
        raw.expect(spec.Begin)
        return raw

    def introduced(self, daemon: Daemon | None = None) -> Raw:
        raw = Raw((daemon or self.daemon).tls, client_tls(certificates().issue(EVIL)))
        self.addCleanup(raw.close)
        init = spec.SaslInit(mechanism="EXTERNAL", initial_response=b"")
        raw.write(SASL, sasl_frame(init), opening(f"broker.{EVIL}"))
        self.assertEqual(raw.header(), SASL)
        self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
        self.assertEqual(raw.header(), AMQP)
        return raw

    def test_flood(self) -> None:
        """The client's messages are taken one by one while the peer floods."""
        greedy = Greedy(self.peer(), self.node)
        flood = Flood(self.peer(), self.node)
        begun = time.monotonic()
        greedy.start()
        flood.start()
        sender = self.connection.create_sender(self.node)
        for number in range(300):
            sender.send(proton.Message(body=number, durable=True))
        while flood.sent < 40 * RATE and flood.is_alive():
            sender.send(proton.Message(body="more", durable=True))
        flood.is_over = True
        flood.join(PATIENCE)
        seconds = time.monotonic() - begun
        self.assertGreater(flood.sent, flood.accepted)
        # A second's worth, this much a second, and what it is let owe before it is refused.
        taken = flood.accepted + greedy.sent
        self.assertLess(taken, RATE * (seconds + 2) + 200)
        self.assertGreater(greedy.sent, RATE)
        self.assertIn("amqp:link:transfer-limit-exceeded", flood.refused)
        self.logged(rf"peer:{EVIL} has reached messages-per-second of its contract, {RATE}")

    def test_share_of_the_store(self) -> None:
        """A peer's occupied share is counted on after a restart."""
        daemon = Daemon(
            "alpha.example",
            changes={
                "nodes": [{"name": "q"}],
                "peers": {EVIL: {"level": "pkix", "contract": {"spool": 20_000}}},
            },
        ).start()
        self.addCleanup(daemon.stop)
        for first, taken in ((0, True), (30, False)):
            raw = self.introduced(daemon)
            raw.expect(spec.Begin)
            raw.write(sending_link("q"))
            flow = None
            if taken:
                while flow is None or flow.handle is None:
                    flow = raw.expect(spec.Flow)
                self.assertGreater(flow.link_credit or 0, 0)
            payload = message(b"x" * 2500, to="q@alpha.example")
            raw.write(*[transfer(payload, number) for number in range(first, first + 8)])
            states = [raw.expect(spec.Disposition).state]
            self.assertIsInstance(states[0], spec.Accepted if taken else spec.Rejected)
            raw.close()
            if taken:
                daemon.stop()
                daemon.start()

    def test_rights_that_go(self) -> None:
        """A reload that takes a right away detaches the links that live on it."""
        daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(daemon.stop)
        raw = Raw(daemon.plain)
        self.addCleanup(raw.close)
        raw.write(opening(), sending_link("q"))
        self.assertEqual(raw.header(), AMQP)
        self.assertIsNotNone(raw.expect(spec.Attach).target)
        daemon.reload(access=[{"allow": ["consume"], "who": "anonymous"}])
        error = raw.expect(spec.Detach).error
        self.assertEqual(str(error.condition), "amqp:unauthorized-access")
        daemon.wait_log("detached 1 link: access revoked")

    def test_connections(self) -> None:
        """The third connection is closed with what was exceeded, and when to come again."""
        held = [self.peer(), self.peer()]
        error = self.introduced().expect(spec.Close).error
        self.assertEqual(str(error.condition), "amqp:resource-limit-exceeded")
        info = {str(key): value for key, value in error.info.items()}
        self.assertEqual((info["limiter"], info["limit"]), ("connections", 2))
        self.assertGreater(info["retry-after"], 0)
        for each in held:
            each.socket.shutdown(socket.SHUT_RDWR)
        self.logged(rf"peer:{EVIL}\) refused: amqp:resource-limit-exceeded")
