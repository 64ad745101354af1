# SPDX-License-Identifier: Apache-2.0
"""Three organizations with separate daemons: the tables agree with their clients."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
import tempfile
import threading
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from amqproute.cli.main import amqproute
from amqproute.journal.reader import verify
from amqproute.journal.record import END_OF_SEQ, JournalRecord, RecordKind, read_line
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from tests.integration.support import Daemon, Wire, Zone, free_ports, message, until
from tests.pipeline.support import MISSING, SparkCase
from tests.pipeline.tampering import forged, over_days, records_of, tampered
from tests.support.patience import PATIENCE

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from amqproute.pipeline.conservation import judged, violations
    from amqproute.pipeline.coverage import holes
    from amqproute.pipeline.exchange import ExchangeSource, between
    from amqproute.pipeline.figures import volumes
    from amqproute.pipeline.handovers import contradictions
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.reconcile import AGREED, reconcile
    from amqproute.pipeline.traces import hops, messages
    from amqproute.pipeline.warehouse import Warehouse


class Gate:
    """A wire to a port of this machine that can be made to swallow what comes back, and be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.is_silent = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                for ends in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not (is_answer and self.is_silent):
                    sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End the connections; new ones pass in both directions."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()
        self.is_silent = False

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()
        self.cut()


def bare(payload: bytes) -> bytes:
    """Return the bare message, as a client finds it in what it holds."""
    at = sections.locate(payload)
    return payload[at.bare_start : at.bare_end]


def digest_of(payload: bytes) -> str:
    """Return its digest."""
    return hashlib.sha256(bare(payload)).hexdigest()


def short_lived(payload: bytes, milliseconds: int) -> bytes:
    """Give a message of `message` a time to live."""
    cut = sections.locate(payload).header_end
    return codec.encode(spec.Header(durable=True, ttl=milliseconds)) + payload[cut:]


MOST = (1 << 63) - 1


def impossible(each: JournalRecord) -> list[JournalRecord]:
    """Return records beside one, none of which a journal can have."""
    received = replace(each, kind=RecordKind.RECEIVED, node="orders", entry=7001)
    return [
        replace(received, size=MOST),
        replace(received, bare_size=-1),
        replace(each, kind=RecordKind.DEFERRED, node="orders", count=MOST),
    ]


class RealJournalTests(SparkCase):
    """One course of events, and its journals."""

    seconds = 6 * PATIENCE

    def setUp(self) -> None:
        super().setUp()
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        nodes = [{"name": name} for name in ("orders", "refused")]
        port = self.zone.port
        self.beta = Daemon(
            "beta.example", domains=["far.example"], nameserver=port, changes={
                "nodes": nodes, "peers": {"gamma.example": {"origins": ["alpha.example"]}},
            },
        )  # fmt: skip
        self.gamma = Daemon(
            "gamma.example", nameserver=port, changes={
                "routes": [{"domain": "far.example", "via": f"amqps://127.0.0.1:{self.beta.tls}",
                            "names": ["beta.example"]}],
                "peers": {"alpha.example": {"relay-for": ["far.example"]}},
            },
        )  # fmt: skip
        self.alpha = Daemon(
            "alpha.example", nameserver=port, changes={
                "routes": [{"domain": "far.example", "via": f"amqps://127.0.0.1:{self.gamma.tls}",
                            "names": ["gamma.example"]}],
            },
        )  # fmt: skip
        self.daemons = (self.alpha, self.beta, self.gamma)
        for daemon in self.daemons:
            self.addCleanup(daemon.kill)
        self.gate = Gate(self.beta.tls)
        self.addCleanup(self.gate.close)
        (nobody,) = free_ports(1)
        self.zone.point("alpha.example", self.alpha.tls)
        self.zone.point("beta.example", self.gate.port)
        self.zone.point("gamma.example", self.gamma.tls)
        self.zone.point("gone.example", nobody)
        self.sent: dict[str, str] = {}
        self.octets: dict[str, int] = {}
        self.published_at: dict[str, tuple[int, int]] = {}

    def publish(self, to: str, *names: str, ttl: int = 0) -> None:
        """Publish messages at alpha, and keep what the client knows of them."""
        payloads = [message(name.encode(), to, message_id=name) for name in names]
        if ttl:
            payloads = [short_lived(payload, ttl) for payload in payloads]
        begun = time.time_ns() // 1000
        with Wire(self.alpha.plain) as wire:
            wire.publish(to, payloads)
        for name, payload in zip(names, payloads, strict=True):
            self.sent[name] = digest_of(payload)
            self.octets[name] = len(bare(payload))
            self.published_at[name] = begun, time.time_ns() // 1000

    def consume(self, node: str, *names: str) -> None:
        """Take messages at beta: these, as they were sent."""
        with Wire(self.beta.plain) as wire:
            got = wire.consume(node, len(names))
        self.assertEqual({digest_of(each) for each in got}, {self.sent[name] for name in names})

    def refuse(self, node: str) -> None:
        """Take one message at beta, and say that it is no good."""
        with Wire(self.beta.plain) as wire:
            wire.attach("receiver", node).flow(1)
            came = wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
            error = spec.Error(condition="amqp:not-allowed", description="not like this")
            wire.session.settle(came.deliveries, spec.Rejected(error=error), True)
            wire.flush()
            wire.close()

    def told(self, daemon: Daemon, kind: str) -> int:
        """Count the records of a kind in the journal of a daemon."""
        found = 0
        for path in (daemon.directory / "state" / "journal").glob("*/*.jsonl"):
            for octets in path.read_bytes().splitlines(keepends=True):
                if octets.endswith(b"\n"):
                    line = read_line(octets)
                    found += line.count if line.kind == kind else 0
        return found

    def happen(self) -> None:
        """Let it all happen, and stop the daemons."""
        self.alpha.spawn()
        self.gamma.spawn()
        self.alpha.wait_ready()
        down = [f"down-{n}" for n in range(10)]
        self.publish("orders@beta.example", *down)
        self.alpha.wait_log("beta.example cannot be reached")
        self.beta.start()
        self.gamma.wait_ready()
        self.consume("orders", *down)

        self.poll(lambda: self.told(self.alpha, RecordKind.RELAYED) == 10, "all outcomes")
        self.gate.is_silent = True
        self.publish("orders@beta.example", "twice")
        self.consume("orders", "twice")
        self.gate.cut()
        self.poll(lambda: self.told(self.beta, RecordKind.DUPLICATE), "a duplicate")

        far = [f"far-{n}" for n in range(5)]
        self.publish("orders@far.example", *far)
        self.consume("orders", *far)
        self.publish("refused@beta.example", "bad")
        self.refuse("refused")
        self.publish("orders@gone.example", "late", ttl=300)
        self.publish("orders@gone.example", "waits")
        self.poll(lambda: self.told(self.alpha, RecordKind.EXPIRED), "an expiry")
        for daemon in self.daemons:
            daemon.stop()

    def poll(self, condition: Any, what: str) -> None:
        """Wait for what a file says: there is nothing that could call."""
        until(lambda: condition() or time.sleep(0.05), what)

    def test_what_the_clients_saw(self) -> None:
        """A peer that is down for a while, a duplicate, two hops, an expiry, a rejection."""
        self.happen()
        warehouse = Warehouse(self.spark, self.folder)
        ingested = ingest(
            warehouse, [daemon.directory / "state" / "journal" for daemon in self.daemons]
        )
        self.assertEqual((ingested.rejected, ingested.duplicates), (0, 0))
        entries = hops(warehouse.read("runs")).persist()
        rows = {
            row.message_id: row for row in messages(entries).collect() if row.message_id is not None
        }
        self.assertEqual(rows.keys(), self.sent.keys())
        direct = ["alpha.example", "beta.example"]
        expected: dict[str, tuple[str | None, list[str]]] = {
            **{f"down-{n}": (RecordKind.DELIVERED, direct) for n in range(10)},
            "twice": (RecordKind.DELIVERED, direct),
            **{
                f"far-{n}": (
                    RecordKind.DELIVERED,
                    ["alpha.example", "gamma.example", "beta.example"],
                )
                for n in range(5)
            },
            "bad": (RecordKind.REJECTED, direct),
            "late": (RecordKind.EXPIRED, ["alpha.example"]),
            "waits": (None, ["alpha.example"]),
        }
        found = {
            name: (row.fate, [hop.domain for hop in row.hops if hop.parent is None])
            for name, row in rows.items()
        }
        self.assertEqual(found, expected)
        for name, row in rows.items():
            self.assertEqual(row.digest, self.sent[name])
            begun, accepted = self.published_at[name]
            self.assertTrue(begun <= row.began_us <= accepted, name)
            self.assertEqual(row.duplicates, int(name == "twice"), name)
            self.assertEqual(row.same_digest, True)

        runs = warehouse.read("runs")
        gaps = holes(runs)
        self.assertEqual({row.reason for row in gaps.collect()}, {"begins"})
        for one, other, number in (
            ("alpha.example", "beta.example", 12),
            ("alpha.example", "gamma.example", 5),
            ("gamma.example", "beta.example", 5),
        ):
            first, second = (
                ExchangeSource(
                    Path(domain),
                    domain,
                    *(each.where(F.col("domain") == domain) for each in (entries, gaps)),
                )
                for domain in (one, other)
            )
            agreed = reconcile(*between(first, second))
            self.assertEqual(agreed.counts[one, AGREED], number, (one, other))
            self.assertEqual(agreed.listed.count(), 0, (one, other))
        doubtful = judged(runs, entries)
        self.assertEqual(violations(runs, doubtful).count(), 0)
        with contradictions(entries, runs, doubtful) as between_brokers:
            self.assertEqual(between_brokers.collect(), [])
        self.check_bills(entries)
        self.check_tampered(entries)

    def check_tampered(self, entries: DataFrame) -> None:
        """Messages removed, changed, doubled or made up between brokers, or within one, are named
        by `run`; so are lines of a year to come, of impossible numbers, changed with their hashes
        or without, and of a segment made up. Nobody is blamed for a day that is missing."""
        rows = entries.where("message_id LIKE 'down-%' OR message_id = 'far-0'").collect()
        there = {row.entry: row.message_id for row in rows if row.domain == "beta.example"}
        here = {row.entry: row.message_id for row in rows if row.domain == "alpha.example"}
        [[late, far]] = [(row.entry, row.began_us) for row in rows if row.domain == "gamma.example"]
        [again] = [entry for entry, name in there.items() if name == "down-8"]
        self.assertEqual((len(there), len(here)), (11, 11))

        def at_beta(each: JournalRecord) -> list[JournalRecord]:
            name = there.get(each.entry or 0)
            if name == "down-0":
                return []
            if name == "down-1" and each.kind == RecordKind.RECEIVED:
                return [replace(each, digest="e" * 64)]
            if name == "down-2":
                return [each, replace(each, entry=9000)]
            # Whatever is older than the last look at the queues by more than a minute is in them.
            if name in ("down-4", "down-8"):
                older = replace(each, time=each.time - 120_000_000)
                return [] if name == "down-4" and each.kind == RecordKind.DELIVERED else [older]
            if name == "down-5" and each.kind == RecordKind.RECEIVED:
                return []
            if (name, each.kind) in twice:
                return [each, each]
            if each.kind == RecordKind.STOCK and each.node is None:
                ranges = f"{again} x 7-5 9-{MOST} 99999999999999999999"
                return [replace(each, node="orders", ranges=ranges, count=1), each]
            return [each]

        twice = {("down-6", RecordKind.DELIVERED), ("down-7", RecordKind.RECEIVED)}

        def at_gamma(each: JournalRecord) -> list[JournalRecord]:
            years = 4 if each.entry == late and each.time == far else 0
            left = replace(each, time=each.time + years * 365 * 86_400_000_000)
            return [left] if each.kind != RecordKind.STOP else [*impossible(each), left]

        def at_alpha(each: JournalRecord) -> list[JournalRecord]:
            name = here.get(each.entry or 0)
            return [] if name == "down-3" and each.kind == RecordKind.RELAYED else [each]

        changes = {"alpha.example": at_alpha, "beta.example": at_beta, "gamma.example": at_gamma}
        arguments = ["run", "--warehouse", str(self.folder / "changed"), "--json"]
        for daemon in self.daemons:
            journal = daemon.directory / "state" / "journal"
            if change := changes.get(daemon.name):
                journal = tampered(journal, self.folder / daemon.name, change)
            self.assertIsNone(verify(journal)[0].flaw)
            arguments += ["--journal", str(journal)]
        # What `verify` would tell of its own journal.
        self.contradict(self.folder / "alpha.example")
        forged(self.folder / "gamma.example")
        today = date.fromisoformat(self.a_day_missing().parent.name)
        arguments += [f"--journal={self.folder / name}" for name in ("copy", "missing")]
        result = CliRunner().invoke(amqproute, ["pipeline", *arguments])
        self.assertEqual(result.exit_code, 1, result.output)
        said = json.loads(result.stdout)
        days = said["days"]
        self.assertEqual(sum(day["not-accounted-for"] for day in days), 5)
        self.assertEqual(sum(day["contradicted"] for day in days), 5)
        self.assertEqual(sum(day["fates"]["lost"] for day in days), 3)
        refused = {name: said["taken"][name] for name in ("rejected", "contradicting", "tampered")}
        self.assertEqual(refused, {"rejected": 8, "contradicting": 1, "tampered": 2})
        heads = {head["words"] for day in days for head in day["headline"]}
        self.assertIn("Journals have gaps: events in them are unknown", heads)
        # Of the last day, and of the first of the journal of three.
        self.assertLessEqual({"4 unreadable lines", "1 unreadable line"}, heads)
        self.assertIn("3 lines of journals were altered", heads)
        [page] = [day["page"] for day in days if day["first"] == today.isoformat()]
        self.check_missing(today, Path(page).read_text())
        wrong = Warehouse(self.spark, self.folder / "changed").read("violations").collect()
        self.assertEqual(
            {(row.what, row.message_id, row.domain, row.hidden) for row in wrong},
            {
                ("lost on the wire", "down-0", "alpha.example", False),
                ("digest differs", "down-1", "beta.example", False),
                ("delivered twice", "down-2", "beta.example", False),
                ("accepted but unknown", "down-3", "beta.example", False),
                ("lost", "down-4", "beta.example", False),
                ("lost on the wire", "down-5", "alpha.example", False),
                ("unexplained", None, "beta.example", False),
                ("ended twice", "down-6", "beta.example", False),
                ("began twice", "down-7", "beta.example", False),
                ("came back", "down-8", "beta.example", False),
                ("lost on the wire", "far-0", "alpha.example", True),
                ("unexplained", None, "gamma.example", True),
                ("contradicting", None, "alpha.example", False),
                ("tampered", None, "gamma.example", False),
                # Nothing that an altered line says is believed.
                ("tampered", None, "unknown", False),
            },
        )

    def contradict(self, journal: Path) -> None:
        """Write a copy of the last segment of a journal, in which the broker stops otherwise."""

        def change(each: JournalRecord) -> list[JournalRecord]:
            return [replace(each, words="otherwise")] if each.kind == RecordKind.STOP else [each]

        copy = tampered(journal, self.folder / "copy", change)
        for path in copy.glob("*/*.jsonl"):
            if not any(each.kind == RecordKind.STOP for each in records_of(path)):
                path.unlink()

    def a_day_missing(self) -> Path:
        """Write a journal of three days with what a daemon says of itself, without the second day,
        change a digest of the last, and return its segment."""
        journal = self.alpha.directory / "state" / "journal"
        own = (RecordKind.START, RecordKind.CONFIGURED, RecordKind.STOCK, RecordKind.STOP)
        named = {"journal": "d" * 16, "broker": "mx1.delta.example", "domain": "delta.example"}
        records = [
            replace(each, **named, stream="store-delta")
            for path in sorted(journal.glob("*/*.jsonl"), key=lambda path: path.name)
            for each in records_of(path)
            if each.kind in own and each.node is None
        ]
        told = next(each for each in records if each.digest is not None)
        others = [each for each in records if each is not told][:2]
        # What `verify` tells of its own journal: a number that leaves out all others.
        far = replace(others[0], seq=END_OF_SEQ - 9)
        _, missing, last = over_days([*others, told, far], 3, self.folder / "missing")
        shutil.rmtree(missing.parent)
        assert told.digest is not None
        digit = b"1" if told.digest[0] == "0" else b"0"
        octets, known = last.read_bytes(), f'"{told.digest}'.encode()
        self.assertEqual(octets.count(known), 1)
        last.write_bytes(octets.replace(known, b'"' + digit + known[2:]))
        return last

    def check_missing(self, today: date, page: str) -> None:
        """The records of the day are told to be missing."""
        runs = Warehouse(self.spark, self.folder / "changed").read("runs")
        gaps = holes(runs.where("domain = 'delta.example'")).where("reason = 'missing'").collect()
        self.assertEqual(len(gaps), 1)
        self.assertGreater(gaps[0].until_us - gaps[0].from_us, 86_400_000_000)
        self.assertIn("mx1.delta.example", page)
        self.assertNotIn(today - timedelta(1), {row.day for row in runs.select("day").collect()})

    def check_bills(self, entries: DataFrame) -> None:
        """Two partners count the same octets, those that the clients sent, whatever each stores."""
        stored = {
            domain: sizes
            for domain, *sizes in entries.where("message_id LIKE 'far-%'")
            .groupBy("domain").agg(F.min("size"), F.min("bare_size")).collect()
        }  # fmt: skip
        self.assertEqual({size for _, size in stored.values()}, {self.octets["far-0"]})
        self.assertEqual(len({size for size, _ in stored.values()}), 3)
        summed = volumes(entries).groupBy("domain", "partner", "direction").agg(
            F.sum("messages"), F.sum("octets"), F.sum("unmeasured")
        )  # fmt: skip
        bills = {(row[0], row[1], row[2]): tuple(row)[3:] for row in summed.collect()}
        near = [self.octets[name] for name in self.octets if name[:4] in ("down", "twic", "bad")]
        far = [self.octets[name] for name in self.octets if name.startswith("far")]
        expected = {}
        for sender, receiver, octets in (
            ("alpha.example", "beta.example", near),
            ("alpha.example", "gamma.example", far),
            ("gamma.example", "beta.example", far),
        ):
            bill = len(octets), sum(octets), 0
            expected[sender, receiver, "out"] = expected[receiver, sender, "in"] = bill
        self.assertEqual(bills, expected)
