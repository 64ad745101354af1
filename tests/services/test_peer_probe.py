# SPDX-License-Identifier: Apache-2.0
"""Probes: evaluated, answered, and never queued."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute.broker.publish_gate import DISK, JOURNAL, PublishGate
from amqproute.errors import NotFound, ResourceLimitExceeded, Unresolved
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.services.peer_probe import MOST_KEPT, MOST_OF_ONE, PeerProbes, ProbeService
from amqproute.values import NextHop, Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec

BETA = Origin(Principal("peer", "beta.example"), True, "broker1.beta.example", tag=b"1")


class _Batch:
    """A batch that tells what became of it."""

    def __init__(self) -> None:
        self.is_rehearsal = False
        self.is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True


class _Broker:
    """Makes batches."""

    def __init__(self) -> None:
        self.batches: list[_Batch] = []
        self.gate = PublishGate()

    def begin(self) -> Any:
        self.batches.append(_Batch())
        return self.batches[-1]


class _Transfer:
    """Refuses with an error, or takes."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.origins: list[Origin] = []

    def put(self, message: Message, batch: Any, origin: Origin) -> None:
        assert batch.is_rehearsal
        self.origins.append(origin)
        if self.error is not None:
            raise self.error


class ProbeTests(SynchronousTestCase):
    """The node and what it keeps."""

    def setUp(self) -> None:
        self.broker, self.transfer = _Broker(), _Transfer()
        self.probes = PeerProbes(lambda: 1000)
        self.service = ProbeService(self.broker, self.transfer, self.probes)  # type: ignore[arg-type]
        verifyObject(ITarget, self.service)

    def put(self, to: str | None) -> None:
        """Send a probe."""
        encoded = codec.encode(spec.Properties(to=to)) + sections.encode_section(
            spec.SECTION_APPLICATION_PROPERTIES, {"probe": "p1"}
        )
        batch: Any = None
        self.service.put(Message(encoded), batch, BETA)

    def test_taken(self) -> None:
        """Accepted, and given up; receipts have no part in it."""
        self.put("orders")
        self.assertEqual([each.is_abandoned for each in self.broker.batches], [True])
        (origin,) = self.transfer.origins
        self.assertEqual((origin.stream, origin.tag), (None, b""))
        (row,) = self.probes.rows()
        self.assertEqual((row["probe"], row["code"], row["step"]), ("p1", "ok", "probe"))

    def test_refused(self) -> None:
        """With what the message itself would be refused with; by the code, if there is one."""
        for error, code in (
            (NotFound("no node"), "amqp:not-found"),
            (ResourceLimitExceeded("full", info={"code": "limit.x"}), "limit.x"),
        ):
            self.transfer.error = error
            self.assertRaises(type(error), self.put, "orders")
            self.assertEqual(next(iter(self.probes.rows()))["code"], code)
        self.assertTrue(all(each.is_abandoned for each in self.broker.batches))

    def test_without_credit(self) -> None:
        """Publishers get no credit: so for every probe, in words that tell no figures of ours."""
        self.broker.gate.close(JOURNAL, "the journal in /var/lib/here is full")
        self.broker.gate.close(DISK, "/var/lib/here has 3 MiB free")
        for to in ("orders", None):
            error = self.assertRaises(ResourceLimitExceeded, self.put, to)
            self.assertEqual(
                (error.info["code"], error.info["limiter"]), ("peer.no-credit", "disk, journal")
            )
            self.assertNotIn("/var", f"{error.description}{error.info}")
        self.assertEqual(self.broker.batches, [])
        self.assertEqual({row["code"] for row in self.probes.rows()}, {"peer.no-credit"})
        self.broker.gate.open(DISK)
        self.broker.gate.open(JOURNAL)
        self.put(None)

    def test_without_address_and_unresolved(self) -> None:
        """Nothing to rehearse; a next hop that would be looked up first."""
        self.put(None)
        self.assertEqual(self.broker.batches, [])
        self.transfer.error = Unresolved(NextHop("c.example", "c.example"))
        self.put("x@c.example")

    def test_bounded(self) -> None:
        """The last ones are kept, the newest first; strangers' words are cut."""
        for number in range(MOST_KEPT + 50):
            self.probes.note("tls", f"10.0.{number}.1:9", "", "tls.name", "w" * 5000)
        rows = list(self.probes.rows())
        self.assertEqual((len(rows), rows[0]["remote"]), (MOST_KEPT, f"10.0.{MOST_KEPT + 49}.1:9"))
        self.assertEqual(rows[-1]["remote"], "10.0.50.1:9")
        self.assertLess(len(rows[0]["description"]), 1000)

    def test_strangers_push_out_themselves(self) -> None:
        """A frequent prober leaves the others their places; a partner in any case."""
        self.probes.note("tls", "192.0.2.7:1", "", "tls.expired", "the partner's certificate")
        self.probes.note("probe", "ct-beta", "peer:beta.example", "ok")
        for number in range(5 * MOST_KEPT):
            self.probes.note("sasl", f"192.0.2.8:{number}", "anonymous", "sasl.refused")
            self.probes.note("tls", f"[2001:db8::{number:x}]:5", "", "tls.plain-text")
            self.probes.note("probe", "ct-flood", "peer:flood.example", "amqp:not-found")
        rows = list(self.probes.rows())
        self.assertEqual(len(rows), 3 * MOST_OF_ONE + 2)
        self.assertEqual([row["name"] for row in rows], [str(n + 1) for n in range(len(rows))])
        self.assertEqual([row["code"] for row in rows[-2:]], ["ok", "tls.expired"])
        for number in range(5 * MOST_KEPT):  # from everywhere at once
            self.probes.note("tls", f"10.{number % 250}.{number // 250}.1:5", "", "tls.plain-text")
        rows = list(self.probes.rows())
        self.assertEqual(len(rows), MOST_KEPT + MOST_OF_ONE + 1)
        self.assertIn("peer:beta.example", {row["who"] for row in rows})

    def test_unix_sockets(self) -> None:
        """Their strangers are told apart by the user."""
        for number in range(MOST_KEPT):
            self.probes.note("sasl", f"unix:uid={number % 2}", "anonymous", "sasl.refused")
        self.assertEqual(len(list(self.probes.rows())), 2 * MOST_OF_ONE)
