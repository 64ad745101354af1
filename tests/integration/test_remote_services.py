# SPDX-License-Identifier: Apache-2.0
"""Services of another organization's broker, requested by messages over both brokers (T-32)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from tests.integration.support import Daemon, Wire, Zone, until
from tests.support.plain_decoder import Described, decode_all

MANAGEMENT = "$management@beta.example"


def request(operation: str, reply_to: str, to: str = MANAGEMENT, kind: str = "queue") -> bytes:
    """Encode a request to a service."""
    properties = spec.Properties(message_id="m1", reply_to=reply_to, to=to)
    terms = {"operation": operation, "entityType": kind}
    return b"".join(
        (
            codec.encode(properties),
            sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, terms),
            sections.encode_section(spec.SECTION_AMQP_VALUE, {}),
        )
    )


def section(encoded: bytes, code: int) -> Any:
    """Return the value of a section, read by a decoder that is not ours."""
    (found,) = [
        each.value
        for each in decode_all(encoded)
        if isinstance(each, Described) and each.descriptor == code
    ]
    return found


class RemoteServiceTests(SynchronousTestCase):
    """Two daemons; a client of alpha asks beta's management."""

    def setUp(self) -> None:
        self.zone = Zone()
        everything = ["publish", "consume", "create", "browse", "manage"]
        self.access = [
            {"allow": everything, "who": "anonymous"},
            {"allow": ["transfer"], "who": "peer:*"},
        ]
        manager = {"allow": ["manage"], "who": "peer:alpha.example", "node": "$management"}
        listed = {"remote-services": ["$management"]}
        self.alpha, self.beta = (
            Daemon(
                f"{name}.example",
                nameserver=self.zone.port,
                changes={
                    "nodes": [{"name": "answers"}, {"name": name}],
                    "access": [*self.access, manager],
                    **listed,
                },
            )
            for name in ("alpha", "beta")
        )
        for daemon in (self.alpha, self.beta):
            daemon.spawn()
            self.addCleanup(daemon.stop)
        for daemon in (self.alpha, self.beta):
            daemon.wait_ready()
            self.zone.point(daemon.name, daemon.tls)

    def refusal(self, port: int, payload: bytes, address: str = "amqp$transfer") -> str:
        """Send one message that is refused; return the condition."""
        with Wire(port) as wire:
            link = wire.attach("sender", address)
            until(lambda: link.sendable or wire.read(), "credit")
            link.send((payload,), b"tag")
            state = wire.wait(lambda event: type(event) is ev.DeliveriesUpdated).state
        assert isinstance(state, spec.Rejected), state
        assert state.error is not None
        return str(state.error.condition)

    def test_answered(self) -> None:
        """The request crosses, beta acts on it, and its reply comes back to alpha's node."""
        with Wire(self.alpha.plain) as wire:
            wire.publish(MANAGEMENT, [request("QUERY", "answers@alpha.example")])
            (reply,) = wire.consume("answers", 1)
        self.assertEqual(section(reply, 0x74)["statusCode"], 200)
        body = section(reply, 0x77)
        at = body["attributeNames"].index("name")
        names = {row[at] for row in body["results"]}
        self.assertIn("beta", names)
        self.assertNotIn("alpha", names)
        for daemon in (self.alpha, self.beta):
            daemon.check()

    def test_closed_by_a_reload(self) -> None:
        """Without the list nothing goes out and nothing acts, from the reload on."""
        self.alpha.write(**{"remote-services": []})
        self.alpha.reload()
        payload = request("QUERY", "answers@alpha.example")
        self.assertEqual(self.refusal(self.alpha.plain, payload), "amqp:not-allowed")
        here = request("QUERY", "answers", "$management")
        self.assertEqual(self.refusal(self.alpha.plain, here), "amqp:not-allowed")
        for to in ("amqp$transfer", "amqp$transfer@beta.example"):
            mine = request("QUERY", "answers", to)
            self.assertEqual(self.refusal(self.beta.plain, mine), "amqp:not-allowed")
