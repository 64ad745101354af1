# SPDX-License-Identifier: Apache-2.0
"""Proton's request and response, unchanged, between organizations; reports over real sockets."""

from __future__ import annotations

import threading
from typing import Any

from twisted.trial.unittest import SkipTest

from amqproute.wire.amqp10 import sections, spec
from tests.integration.support import PATIENCE, Daemon, message
from tests.integration.test_federation import RETURN_TO, FederationTestCase, annotated

try:
    from proton import Message
    from proton.utils import BlockingConnection, SyncRequestResponse
except ImportError:
    SyncRequestResponse = None

REPORT = "x-opt-report"


class Server(threading.Thread):
    """Answers questions from a node to wherever they want it, by the anonymous terminus."""

    def __init__(self, port: int, node: str, count: int) -> None:
        super().__init__(daemon=True)
        self.asked: list[Any] = []
        self._port, self._node, self._count = port, node, count

    def run(self) -> None:
        """Answer this many questions."""
        url = f"amqp://127.0.0.1:{self._port}"
        connection = BlockingConnection(url, timeout=PATIENCE, heartbeat=None)
        receiver = connection.create_receiver(self._node, credit=10)
        sender = connection.create_sender(None)
        for _ in range(self._count):
            question = receiver.receive(timeout=PATIENCE)
            receiver.accept()
            self.asked.append(question)
            answer = Message(
                address=question.reply_to,
                correlation_id=question.correlation_id,
                body=question.body.upper(),
            )
            sender.send(answer)
        connection.close()


def body_of_report(payload: bytes) -> dict[str, Any]:
    """Return what a report says."""
    at = sections.locate(payload)
    assert at.body_code == spec.SECTION_AMQP_VALUE
    body: dict[str, Any] = sections.decode_section(payload, at.body_start, at.body_end)
    return body


class ReplyTests(FederationTestCase):
    """Clients that know nothing of domains, aliases and brokers on the way."""

    def ask(self, asking: Daemon, answering: Daemon, address: str) -> Server:
        """Ask twice, and have both answered."""
        if SyncRequestResponse is None:
            raise SkipTest("python-qpid-proton is not installed (pip install '.[interop]')")
        server = Server(answering.plain, self.node, 2)
        server.start()
        url = f"amqp://127.0.0.1:{asking.plain}"
        connection = BlockingConnection(url, timeout=PATIENCE, heartbeat=None)
        self.addCleanup(connection.close)
        client = SyncRequestResponse(connection, address)
        for question in ("first", "second"):
            self.assertEqual(client.call(Message(body=question)).body, question.upper())
        server.join(PATIENCE)
        return server

    def test_request_response(self) -> None:
        """A dynamic node at alpha, a server at beta."""
        server = self.ask(self.alpha, self.beta, f"{self.node}@beta.example")
        for each in server.asked:
            self.assertRegex(each.reply_to, r"^reply-[0-9a-f-]{36}@alpha\.example$")

    def test_two_hops(self) -> None:
        """The same by a gateway, and no peer has a right to transfer to anything at alpha."""
        port = self.zone.port
        gateway = Daemon("g2.example", nameserver=port)
        via = [{"domain": "*", "via": f"amqps://127.0.0.1:{gateway.tls}", "names": ["g2.example"]}]
        everything = ["publish", "consume", "create", "browse", "manage"]
        near = Daemon("a2.example", nameserver=port, changes={
            "routes": via, "peers": {"g2.example": {"origins": ["b2.example"]}},
            "access": [{"allow": everything, "who": "anonymous"}],
        })  # fmt: skip
        far = Daemon("b2.example", nameserver=port, changes={
            "routes": via, "peers": {"g2.example": {"origins": ["a2.example"]}},
            "nodes": [{"name": self.node}],
        })  # fmt: skip
        gateway.write(
            peers={"a2.example": {"relay-for": ["b2.example"]},
                   "b2.example": {"relay-for": ["a2.example"]}},
        )  # fmt: skip
        for daemon in (near, gateway, far):
            daemon.spawn()
            self.addCleanup(daemon.stop)
        for daemon in (near, gateway, far):
            daemon.wait_ready()
            self.zone.point(daemon.name, daemon.tls)
        self.ask(near, far, f"{self.node}@b2.example")
        for daemon in (near, gateway, far):
            daemon.check()

    def test_reports(self) -> None:
        """A failure over there, told here with the peer's own words."""
        payload = annotated(
            message(b"x", message_id="m1"), {RETURN_TO: self.node, REPORT: "failure"}
        )
        self.publish("nobody@beta.example", [payload])
        report = body_of_report(self.consume(self.alpha, 1)[0])
        self.assertEqual((report["kind"], report["code"]), ("failure", "remote.no-node"))
        self.assertEqual((report["message-id"], report["reporter"]), ("m1", "alpha.example"))
        self.assertEqual(report["attempts"][-1]["container"], "broker1.beta.example")

    def test_delivered(self) -> None:
        """A consumer over there has accepted it, and the report crosses the border."""
        marks = {RETURN_TO: self.node, REPORT: "delivered"}
        self.publish(f"{self.node}@beta.example", [annotated(message(b"x"), marks)])
        self.consume(self.beta, 1)
        report = body_of_report(self.consume(self.alpha, 1)[0])
        self.assertEqual((report["kind"], report["reporter"]), ("delivered", "beta.example"))
