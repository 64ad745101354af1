# SPDX-License-Identifier: Apache-2.0
"""Memory of sessions and links: no waste, counted, bounded, shared."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.common.endpoint_memory import CONNECTION_OCTETS, MOST_REFUSED
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.session import LONGEST_NAME
from amqproute.wire.amqp10.types import Described, Symbol
from amqproute.wire.amqp10.value_memory import LINK_OCTETS, SESSION_OCTETS
from tests.conformance.frame_broker import (
    AMQP_HEADER,
    Client,
    FrameBroker,
    Network,
    attach,
    condition,
    frame,
)

KIB = 1024
MIB = 1024 * KIB
LIMITED = "amqp:resource-limit-exceeded"
MALLORY = Principal("user", "mallory")
ANN = Principal("user", "ann")
BIG = "x" * 100_000
BEGIN = spec.Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
SMALL = LINK_OCTETS + 4 * KIB
"""The most that a link with short names takes."""


class EndpointCase(SynchronousTestCase):
    """A house whose sessions and links may take 16 MiB in all."""

    def setUp(self) -> None:
        self.world = Network()
        self.here: FrameBroker = self.world.house(limits={"memory_bytes": 32 * MIB})
        self.memory = self.here.shared.endpoint_memory

    def ready(self, principal: Principal = MALLORY, name: str = "m") -> Client:
        """Return a client with a session."""
        client = self.here.client(principal).ready(name)
        client.frames.clear()
        return client

    def attach(
        self, client: Client, handle: int, channel: int = 0, role: str = "sender", **fields: Any
    ) -> str | None:
        """Attach a link; return the condition of the refusal, if it was refused."""
        name = fields.pop("name", f"{channel}/{handle}")
        client.frames.clear()
        client.send(attach(role, name, handle, "q", **fields), channel=channel)
        return next(map(condition, client.all(spec.Detach, channel)), None)

    def fill(self, client: Client, **fields: Any) -> int:
        """Attach links with large addresses of their own until one is refused."""
        for handle in range(1000):
            source = spec.Source(address=f"{handle}{BIG}")
            refused = self.attach(client, handle, source=source, **fields)
            if refused is not None:
                self.assertEqual(refused, LIMITED)
                return handle
        raise AssertionError("nothing was refused")


class KeptTests(EndpointCase):
    """Memory for the terms of the other side."""

    def test_attach(self) -> None:
        """Of an attach that was answered what is in force stays, and nothing else."""
        client = self.ready()
        large: list[dict[str, Any]] = [
            {"properties": {"p": BIG}},
            {"unsettled": {bytes([0, n]): None for n in range(200)}},
            {"offered_capabilities": tuple(Symbol(f"c{n}") for n in range(2000))},
            {"desired_capabilities": tuple(Symbol(f"c{n}") for n in range(2000))},
        ]
        for handle, fields in enumerate(large):
            self.assertIsNone(self.attach(client, handle, **fields))
        (frontend,) = self.here.shared.connections
        for link in frontend.links.attached:
            self.assertLess(link.octets, SMALL)
            asked = link.remote_attach
            assert asked is not None
            self.assertEqual((asked.properties, asked.unsettled, asked.source), (None, None, None))
            self.assertEqual((asked.offered_capabilities, asked.desired_capabilities), ((), ()))
        self.assertLess(self.memory.shares.used, len(large) * SMALL + SESSION_OCTETS)

    def test_refused(self) -> None:
        """Of a refused link little stays until the other side has detached it, then nothing."""
        client = self.ready()
        before = self.memory.shares.used
        unknown = {Symbol("f"): Described(Symbol("example:f"), BIG)}
        source = spec.Source(address="q", filter=unknown)
        for handle in range(20):
            refused = self.attach(client, handle, role="receiver", source=source)
            self.assertEqual(refused, "amqp:not-implemented")
        self.assertLess(self.memory.shares.used - before, 20 * 1500)
        for handle in range(20):
            client.send(spec.Detach(handle=handle, closed=True))
        self.assertEqual(self.memory.shares.used, before)

    def test_begin_and_open(self) -> None:
        """Properties and capabilities of begins and opens are not kept."""
        client = self.here.client(MALLORY)
        opening = spec.Open(container_id="m", hostname="h", properties={"p": "x" * 4000})
        client.write(AMQP_HEADER, frame(opening))
        begin = spec.Begin(
            next_outgoing_id=0, incoming_window=9, outgoing_window=9, properties={"p": BIG}
        )
        for channel in range(10):
            client.send(begin, channel=channel)
        (frontend,) = self.here.shared.connections
        kept = frontend.connection.remote_open
        assert kept is not None
        self.assertEqual((kept.container_id, kept.hostname, kept.properties), ("m", "h", None))
        for session in frontend.connection.sessions:
            assert session.remote_begin is not None
            self.assertIsNone(session.remote_begin.properties)
        self.assertEqual(self.memory.shares.used, 10 * SESSION_OCTETS)

    def test_given_back(self) -> None:
        """Links, sessions and connections that end take nothing any more."""
        client = self.ready()
        start = self.memory.shares.used
        for handle in range(3):
            self.attach(client, handle, source=spec.Source(address=BIG))
        self.assertGreater(self.memory.shares.used, 3 * len(BIG))
        client.send(spec.Detach(handle=0, closed=True))
        client.send(spec.Detach(handle=1))
        self.assertLess(self.memory.shares.used, start + len(BIG) + SMALL)
        client.send(spec.End())
        self.assertEqual(self.memory.shares.used, 0)
        client.send(BEGIN)
        self.attach(client, 0, source=spec.Source(address=BIG))
        client.hang_up()
        self.world.advance()
        self.assertEqual(self.memory.shares.used, 0)


class NameTests(EndpointCase):
    """Names that are kept have a longest length."""

    def test_link(self) -> None:
        client = self.ready()
        self.assertIsNone(self.attach(client, 0, name="n" * LONGEST_NAME))
        refused = self.attach(client, 1, name="n" * (LONGEST_NAME + 1))
        self.assertEqual(refused, "amqp:invalid-field")
        before = self.memory.shares.used
        for handle in range(2, 52):
            self.attach(client, handle, name=f"{handle}{BIG}")
        self.assertIsNone(self.attach(client, 52))
        self.assertLess(self.memory.shares.used - before, 50 * 1500 + SMALL)

    def test_open(self) -> None:
        long = "n" * (LONGEST_NAME + 1)
        for fields in ({"container_id": long}, {"container_id": "c", "hostname": long}):
            client = self.here.client(MALLORY)
            client.write(AMQP_HEADER, frame(spec.Open(**fields)))
            self.assertEqual(condition(client.one(spec.Close)), "amqp:invalid-field")


class BoundTests(EndpointCase):
    """The total has a bound, and each party and connection a share of it."""

    def test_share(self) -> None:
        """A greedy party takes nothing from others; its own links go on."""
        one = self.ready()
        taken = self.fill(one)
        self.assertLess(self.memory.shares.used, self.memory.limit // 2)
        self.assertGreater(taken * len(BIG), self.memory.limit // 5)
        two = self.ready(name="n")
        self.assertGreater(self.fill(two), 10)  # another connection has its own share
        self.assertLess(self.memory.shares.used, self.memory.limit // 2)
        other = self.ready(ANN, "a")
        for handle in range(20):
            self.assertIsNone(self.attach(other, handle, source=spec.Source(address=BIG)))
        one.send(*(spec.Detach(handle=handle, closed=True) for handle in range(taken + 1)))
        self.assertIsNone(self.attach(one, 0, source=spec.Source(address=BIG)))

    def test_anonymous(self) -> None:
        """All anonymous clients are one party; its members are their addresses."""
        one = self.ready(ANONYMOUS_PRINCIPAL)
        self.fill(one)
        two = self.ready(ANONYMOUS_PRINCIPAL, "n")
        self.assertEqual(self.attach(two, 0, source=spec.Source(address=BIG)), LIMITED)

    def test_sessions(self) -> None:
        """Sessions are refused by an end."""
        client = self.ready()
        self.fill(client)
        client.frames.clear()
        for channel in range(1, 200):
            client.send(BEGIN, channel=channel)
            if not client.none(spec.End):
                break
        self.assertEqual(condition(client.one(spec.End)), LIMITED)

    def test_never_detaches(self) -> None:
        """Refused links that their client never detaches have an end: the connection's."""
        client = self.ready()
        first = self.fill(client)
        for handle in range(first + 1, first + MOST_REFUSED + 2):
            if not client.none(spec.Close):
                break
            self.attach(client, handle, source=spec.Source(address=BIG))
        self.assertEqual(condition(client.one(spec.Close)), LIMITED)
        client.hang_up()
        self.world.advance()
        self.assertEqual(self.memory.shares.used, 0)

    def test_connection(self) -> None:
        """A connection has a bound of its own where there is room for many."""
        self.here = self.world.house("b.test", limits={"memory_bytes": 1024 * MIB})
        self.memory = self.here.shared.endpoint_memory
        client = self.ready()
        self.fill(client)
        self.assertLess(self.memory.shares.used, CONNECTION_OCTETS + SMALL)
        self.assertGreater(self.memory.shares.used, CONNECTION_OCTETS - 2 * len(BIG))

    def test_small_entries(self) -> None:
        """The memory of many small values counts, not their octets on the wire."""
        client = self.ready()
        before = self.memory.shares.used
        source = spec.Source(address="s", capabilities=tuple(Symbol(f"{n}") for n in range(2000)))
        octets = len(frame(attach("sender", "0/0", 0, "q", source=source)))
        self.assertIsNone(self.attach(client, 0, source=source))
        self.assertGreater(self.memory.shares.used - before, 8 * octets)
