# SPDX-License-Identifier: Apache-2.0
"""Altered lines: none of them counts, and each is reported."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.main import amqproute
from amqproute.journal.export import export
from amqproute.journal.record import RecordKind
from amqproute.journal.segments import read_head
from tests.integration.support import Daemon, Wire, message
from tests.pipeline.journals import Journal, handed_on
from tests.pipeline.support import END_OF_TESTS_US, MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline.chain import TAMPERED, UNPROVEN
    from amqproute.pipeline.conservation import judged, violations
    from amqproute.pipeline.ingest import IngestSummary, ingest
    from amqproute.pipeline.lines import records
    from amqproute.pipeline.links import unlinked
    from amqproute.pipeline.nightly import facts_of, refresh, retold, settle
    from amqproute.pipeline.refusals import standing
    from amqproute.pipeline.report import headline
    from amqproute.pipeline.traces import hops
    from amqproute.pipeline.warehouse import Warehouse
    from amqproute.tools.synthetic import TrafficPlan, generate

DAY = date(2026, 11, 22)
LONG = 40_000
"""Octets of a line of a segment that is read in pieces."""
UNREAD = "not a complete line of a journal"
Change = Callable[[list[bytes]], list[bytes]]
"""The fate of the lines of a segment."""


def changed(line: bytes) -> bytes:
    """Change a line, and nothing of its length."""
    found = line.replace(b'"size":100', b'"size":999')
    assert found != line
    return found


class ChainCase(SparkCase):
    """A warehouse, and journals with segments of six messages."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.journals = self.folder / "journals"
        self.warehouse = Warehouse(self.spark, self.folder / "tables")

    def written(self, domain: str, octets: int = 0) -> tuple[Journal, list[bytes]]:
        """Return a journal, and the lines of its first segment, which is nowhere yet; they are
        longer by this many octets than they need be."""
        journal = Journal(domain)
        for entry in range(1, 7):
            journal.receive(entry, "orders", message_id=f"m{entry}" + octets * "x")
        return journal, journal.lines

    def ingest(self) -> IngestSummary:
        return ingest(self.warehouse, [self.journals])

    def there(self) -> dict[str, list[int]]:
        """Return the sequences of each domain that count."""
        found: dict[str, list[int]] = {}
        for row in self.warehouse.read("runs").orderBy("seq").collect():
            found.setdefault(row.domain, []).append(row.seq)
        return found


class SegmentTests(ChainCase):
    """Each line follows from the line before it, or does not count."""

    def test_whatever_was_done_to_it(self) -> None:
        """Changed, with another hash, removed, doubled, moved, inserted, or damaged: what follows
        from a line that can be read counts, and nothing else. A file may be read in pieces."""
        option = "spark.sql.files.maxPartitionBytes"
        self.addCleanup(self.spark.conf.set, option, self.spark.conf.get(option))
        # Two lines and a bit; a file of a table is not read in pieces too, which takes very long.
        self.spark.conf.set(option, str(2 * LONG + 5_000))
        cases: dict[str, tuple[Change, list[int], list[tuple[int, str]]]] = {
            "whole": (lambda of: of, [1, 2, 3, 4, 5, 6], []),
            "torn": (lambda of: [*of[:2], of[2][:-20]], [1, 2], [(3, UNREAD)]),
            "changed": (lambda of: [of[0], changed(of[1]), *of[2:]], [1, 3, 4, 5, 6],
                        [(2, TAMPERED)]),
            "hash": (lambda of: [of[0], of[1].replace(of[1][6:70], b"0" * 64), *of[2:4]], [1, 4],
                     [(2, TAMPERED), (3, TAMPERED)]),
            "removed": (lambda of: [*of[:2], *of[3:5]], [1, 2, 5], [(3, TAMPERED)]),
            "beheaded": (lambda of: of[1:3], [3], [(1, TAMPERED)]),
            "doubled": (lambda of: [*of[:2], of[1]], [1, 2], [(3, TAMPERED)]),
            "joined": (lambda of: [*of[:2], *of[:2]], [1, 2], [(3, TAMPERED)]),
            "moved": (lambda of: [of[0], of[2], of[1]], [1], [(2, TAMPERED), (3, TAMPERED)]),
            "inserted": (lambda of: [of[0], b"rubbish\n", of[1]], [1, 2], [(2, UNREAD)]),
            "damaged": (lambda of: [of[0], b"\0" * LONG + b"\n", *of[2:4]], [1, 4],
                        [(2, UNREAD), (3, UNPROVEN)]),
        }  # fmt: skip
        written = {}
        for name, (change, _, _) in cases.items():
            written[name], lines = self.written(f"{name}.example", LONG)
            written[name].segment(self.journals, change(lines), as_is=True)
        taken = self.ingest()
        told: dict[str, list[tuple[int, str]]] = {name: [] for name in cases}
        for row in self.warehouse.read("rejects").orderBy("line").collect():
            name = row.segment.split(".")[1]
            [kind] = [each for each in (TAMPERED, UNPROVEN, UNREAD) if row.reason.startswith(each)]
            told[name].append((row.line, kind))
        self.assertEqual(told, {name: refused for name, (_, _, refused) in cases.items()})
        there = {f"{name}.example": numbers for name, (_, numbers, _) in cases.items()}
        # The second time is not a second record.
        self.assertEqual(self.there(), there)
        kinds = [kind for refused in told.values() for _, kind in refused]
        self.assertEqual((taken.tampered, taken.rejected), (kinds.count(TAMPERED), len(kinds)))
        self.check_next(written["whole"], written["changed"])

    def check_next(self, whole: Journal, other: Journal) -> None:
        """A segment repeats the hash of the one before it, which came in the same night or earlier;
        one that does not counts, and is told."""
        named = []
        for journal, last in ((whole, whole._hash), (whole, "f" * 64), (other, "f" * 64)):
            journal.lines.clear()
            journal._hash = last  # as a forger would have it: consistent in itself
            journal.write(RecordKind.SEGMENT, {"previous": last})
            named.append(journal.segment(self.journals, list(journal.lines), as_is=True).name)
        taken = self.ingest()
        self.assertEqual((taken.lines, taken.rejected, taken.tampered), (3, 2, 2))
        told = self.warehouse.read("rejects").where("reason LIKE '%the segment before it'")
        self.assertEqual({(row.segment, row.line) for row in told.collect()}, {
            (named[1], 1), (named[2], 1),
        })  # fmt: skip

    def test_copies(self) -> None:
        """The genuine line counts, under whatever path it comes, and when a file is replaced by
        one that is as long."""
        numbers = list(range(1, 7))
        files = {}
        # Copies stand before and behind those that were changed, in the order of their names.
        for domain, copy in (("x.example", "a"), ("y.example", "z"), ("w.example", "")):
            journal, lines = self.written(domain)
            forged = [lines[0], changed(lines[1]), *lines[2:]]
            files[domain] = journal.segment(self.journals, forged, as_is=True), lines
            if copy:
                journal.segment(self.journals / copy, lines, as_is=True)
        self.ingest()
        self.assertEqual(self.there(), {
            "w.example": [1, 3, 4, 5, 6], "x.example": numbers, "y.example": numbers,
        })  # fmt: skip
        self.assertEqual(self.ingest(), IngestSummary())
        path, lines = files["w.example"]
        path.write_bytes(b"".join(lines))
        later = path.stat().st_mtime + 60
        os.utime(path, (later, later))
        self.assertEqual(self.ingest(), IngestSummary(1, 1, 1, 5))
        self.assertEqual(self.there(), dict.fromkeys(files, numbers))
        sizes = {row.size for row in records(self.warehouse.read("runs")).collect()}
        self.assertEqual(sizes, {100})

    def test_exports(self) -> None:
        """A partner's export has a chain of its own, and is verified."""
        beta = Journal("beta.example")
        source = Journal("alpha.example")
        source.write(RecordKind.SEGMENT, {"previous": "0" * 64})
        source.receive(1, "amqp$out/beta.example", message_id="m1")
        source.receive(2, "orders", message_id="m2")
        handed_on(source, beta, 1, 1)
        whole = source.segment(self.folder / "source")
        target = self.folder / "export" / "alpha.example"
        done = export(whole.parents[1], target, "beta.example", 0, 1 << 60)
        self.assertEqual((done.segments, done.messages), (1, 2))
        [path] = target.glob("*/*.jsonl")
        self.journals = self.folder / "export"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], *lines[2:]]))
        self.assertEqual(self.ingest().tampered, 1)
        path.write_bytes(b"".join(lines))
        self.assertEqual(self.ingest().rejected, 0)
        self.assertEqual(self.there(), {"alpha.example": [1, 2, 4]})
        self.assertIsNone(read_head(target))


class LinkTests(SynchronousTestCase):
    """Verdicts on one segment after the other, without Spark."""

    skip = MISSING

    def row(self, number: int, opening: str | None, closing: str | None) -> dict[str, Any]:
        """Return the row of a segment of ten records."""
        return {
            "segment": str(number), "path": f"file:/{number}", "day": DAY, "domain": "d",
            "journals": ["j"], "first_seq": 10 * number, "end_seq": 10 * number + 10,
            "opening": opening, "closing": closing,
        }  # fmt: skip

    def told(self, new: list[dict[str, Any]], *old: dict[str, Any]) -> list[tuple[str, int | None]]:
        def beside(ends: Sequence[int], starts: Sequence[int]) -> list[dict[str, Any]]:
            return [row for row in old if row["end_seq"] in ends or row["first_seq"] in starts]

        return [(row["segment"], row["line"]) for row in unlinked(new, beside)]

    def test_order(self) -> None:
        """Whichever comes first, the one that comes later is told, and each once."""
        first, second, third = self.row(1, "a", "b"), self.row(2, "b", "c"), self.row(3, "c", None)
        forged = self.row(2, "b", "x")
        self.assertEqual(self.told([third, first, second]), [])
        self.assertEqual(self.told([second], first, third), [])
        self.assertEqual(self.told([third, first, forged]), [("3", 1)])
        self.assertEqual(self.told([third], first, forged), [("3", 1)])
        self.assertEqual(self.told([forged], first, third), [("2", None)])
        self.assertEqual(self.told([self.row(2, "x", "y")], first, third), [("2", 1), ("2", None)])

    def test_nothing_proved(self) -> None:
        """A missing segment, one of several journals or of another one, or one rejected at its
        end or beginning, nothing is told."""
        first, second = self.row(1, "a", "b"), self.row(2, "x", "c")
        for other in (
            self.row(3, "x", "d"),
            {**second, "journals": ["i"]},
            {**second, "journals": ["i", "j"]},
            {**second, "journals": None},
            {**second, "opening": None},
        ):
            self.assertEqual(self.told([first, other]), [])
            self.assertEqual(self.told([other], first), [])
        self.assertEqual(self.told([{**first, "closing": None}, second]), [])


class NightTests(ChainCase):
    """The night's verdict on it."""

    def test_told(self) -> None:
        """In the violations, and first of all on the page, also of a day of which nothing else
        has come; and it is no message that is not accounted for."""
        journal, lines = self.written("alpha.example")
        path = journal.segment(self.journals, [changed(lines[0])], as_is=True)
        self.assertEqual(self.ingest(), IngestSummary(1, 0, 0, 0, 1, 0, 1))
        made = refresh(self.warehouse)
        [row] = self.warehouse.read("violations").collect()
        self.assertEqual(
            (row.what, row.broker, row.hidden), ("tampered", "mx1.alpha.example", False)
        )
        self.assertEqual(row.node, f"{path.name}:1")
        self.assertEqual(retold(self.warehouse, made), [DAY])
        said = facts_of(self.warehouse, DAY, DAY)
        self.assertEqual((said.altered_lines, said.unaccounted, said.rejected_lines), (1, 0, 0))
        self.assertTrue(said.is_wrong)
        state, words, details = headline(said)[0]
        self.assertEqual((state, words), ("bad", "1 line of a journal was altered"))
        self.assertEqual(details, [f"tampered: {path.name}:1"])
        settle(self.warehouse, made)
        self.check_replaced(path, lines[0])

    def check_replaced(self, path: Path, line: bytes) -> None:
        """A good copy beside the altered file does not clear it; a good one in its place does,
        though it has nothing new."""
        copy = self.folder / "copy" / path.relative_to(self.folder)
        copy.parent.mkdir(parents=True)
        copy.write_bytes(line)
        taken = ingest(self.warehouse, [copy.parents[1], self.journals])
        self.assertEqual(taken, IngestSummary(1, 1, 1))
        self.assertEqual(self.standing(), 1)
        path.write_bytes(line)
        before = path.stat().st_mtime - 60  # as with rsync, of the genuine one
        os.utime(path, (before, before))
        settle(self.warehouse, self.warehouse.snapshot())
        self.set_clock(END_OF_TESTS_US + 1_000_000)
        self.assertEqual(self.ingest(), IngestSummary(1, 0, 0, 1))
        made = refresh(self.warehouse)
        self.assertEqual(made.pending, {DAY})
        self.assertEqual(self.warehouse.read("violations").collect(), [])
        # Neither the page of the day has it any more; that it came is known.
        self.assertEqual((self.standing(), self.warehouse.read("rejects").count()), (0, 1))

    def standing(self) -> int:
        """Count the lines that are held against their files."""
        rows = standing(self.warehouse, self.warehouse.snapshot(), [DAY])
        assert rows is not None
        return rows.count()

    def test_clean(self) -> None:
        """Whole journals of three brokers raise nothing."""
        planted = generate(TrafficPlan(60), self.folder / "made")
        ingested = ingest(self.warehouse, list(planted.journals.values()))
        self.assertEqual((ingested.rejected, ingested.tampered), (0, 0))
        runs = self.warehouse.read("runs")
        self.assertEqual(violations(runs, judged(runs, hops(runs))).count(), 0)


class DaemonTests(SparkCase):
    """In the journal of a daemon."""

    def test_exit_code(self) -> None:
        """Of its journal each line counts; of a copy with another digest ``run`` says so."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        daemon = Daemon("alpha.example", changes={"nodes": [{"name": "orders"}]})
        self.addCleanup(daemon.kill)
        daemon.start()
        with Wire(daemon.plain) as wire:
            names = [f"m{number}" for number in range(3)]
            payloads = [message(b"x", "orders@alpha.example", message_id=name) for name in names]
            wire.publish("orders@alpha.example", payloads)
        with Wire(daemon.plain) as wire:
            wire.consume("orders", 3)
        daemon.stop()
        journal = daemon.directory / "state" / "journal"
        clean = ingest(Warehouse(self.spark, folder / "clean"), [journal])
        self.assertGreater(clean.records, 6)
        self.assertEqual((clean.rejected, clean.tampered), (0, 0))
        forged = 0
        for path in journal.glob("*/*.jsonl"):
            copy = folder / "copy" / path.relative_to(journal)
            copy.parent.mkdir(parents=True, exist_ok=True)
            octets = path.read_bytes()
            at = octets.find(b'"digest":', octets.find(b'"kind":"received"'))
            if b'"kind":"received"' in octets and at > 0:
                place = octets.index(b'"', at + len(b'"digest":')) + 1
                digit = b"1" if octets[place : place + 1] == b"0" else b"0"
                octets = octets[:place] + digit + octets[place + 1 :]
                forged += 1
            copy.write_bytes(octets)
        self.assertEqual(forged, 1)
        command = ["run", "--journal", folder / "copy", "--warehouse", folder / "forged"]
        result = CliRunner().invoke(amqproute, ["pipeline", *map(str, command)])
        self.assertEqual(result.exit_code, 1, result.output)
        self.assertIn("1 line of a journal was altered", result.stderr)
