# SPDX-License-Identifier: Apache-2.0
"""Bronze: contents of segments in the tables, once, and rejected ones."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from amqproute.journal import record
from amqproute.journal.record import FIELDS, LONGEST_RUN, RUN_FIELDS, InvalidLine, RecordKind
from tests.pipeline.journals import HEAD, Journal
from tests.pipeline.support import MISSING, SparkCase, run_python
from tests.support.patience import PATIENCE

if not MISSING:
    from pyspark.sql import Row
    from pyspark.sql import functions as F
    from pyspark.testing import assertDataFrameEqual

    from amqproute.pipeline import ingest as bronze
    from amqproute.pipeline import lines as parsing
    from amqproute.pipeline.duplicates import settled
    from amqproute.pipeline.ingest import IngestSummary, compact, ingest
    from amqproute.pipeline.lines import parse, records
    from amqproute.pipeline.table_schema import RECORDS, RUNS, TABLES
    from amqproute.pipeline.warehouse import PublicationConflict, TablePart, Warehouse, few


KILLED = """
import os, signal, sys
from amqproute.pipeline import ingest
from amqproute.pipeline.warehouse import Warehouse
from tests.pipeline.support import spark

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

Warehouse.publish = die
ingest.ingest(Warehouse(spark(), sys.argv[2]), [sys.argv[1]])
"""


class IngestCase(SparkCase):
    """Two segments of a journal, and a warehouse."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = Path(self.mktemp())
        self.directory.mkdir(parents=True)
        self.warehouse = Warehouse(self.spark, self.directory.absolute() / "tables")
        self.journals = self.directory.absolute() / "journals"
        self.journal = Journal("alpha.example")
        for entry in (1, 2):
            self.journal.receive(entry, "orders", message_id=f"m{entry}")
        self.journal.write(
            RecordKind.RECEIVED, {"node": "orders"}, 3,
            entry=[3, 4, 5], message_id=["m3", None, "m5"], size=[1, 2, 3],
        )  # fmt: skip
        self.first = self.journal.lines[:]
        self.journal.segment(self.journals)
        self.journal.at = 60
        self.journal.end(RecordKind.DELIVERED, 1, "orders", peer="user:bob")
        self.journal.write(RecordKind.DELIVERED, {"node": "orders"}, 2, entry=[2, 3])

    def ingest(self) -> IngestSummary:
        return ingest(self.warehouse, [self.journals])

    def events(self) -> list[tuple[int, str, int | None]]:
        rows = records(self.warehouse.read("runs")).orderBy("seq").collect()
        return [(row.seq, row.kind, row.entry) for row in rows]


class LineTests(SparkCase):
    """Spark reads lines as the module of the records does."""

    def parsed(self, lines: list[bytes]) -> list[object]:
        path = Path(self.mktemp())
        path.mkdir(parents=True)
        (path / "2026-11-22").mkdir()
        file = path / "2026-11-22" / "b-0011223344556677-00000000000000000001.jsonl"
        file.write_bytes(b"\n".join(lines) + b"\n")
        return parse(bronze._lines(self.spark, [str(file.absolute())])).collect()

    def test_same_verdict_as_the_reader(self) -> None:
        """Both take or refuse a line with the same damage."""
        journal = Journal("alpha.example")
        journal.write(
            RecordKind.RECEIVED, {"node": "ö"}, 2, entry=[1, 2], words=['a"b}{"h":"', None]
        )
        [whole] = journal.lines
        whole = whole.rstrip(b"\n")
        body = json.loads(whole)

        def but(**changes: object) -> bytes:
            return json.dumps({**body, **changes}, separators=(",", ":")).encode()

        def without(name: str) -> bytes:
            changed = {key: value for key, value in body.items() if key != name}
            return json.dumps(changed, separators=(",", ":")).encode()

        lines = [
            whole,
            but(later_field={"x": 1}),
            but(each={**body["each"], "later": [1, 2]}),
            whole[:-1], whole[:90], whole[1:], b"", b"{}", b'{"h":"}',
            whole + whole,
            whole.replace(b"\\u00f6", b"\xff"),
            but(v=record.VERSION + 1), but(v=0), but(v="1"), but(v=None),
            but(n=0), but(n=3), but(n=None), but(n="2"),
            but(n=LONGEST_RUN, each={}), but(n=LONGEST_RUN + 1, each={}), but(n=2**31 - 1, each={}),
            but(seq=-1), but(seq=record.END_OF_SEQ), but(seq=2**63 - 1), but(seq=2**64),
            but(seq="7"), but(seq=1.5), but(time=None), but(all=None), but(each=[]),
            but(each={"entry": [1]}), but(each={"entry": 1}),
            *(without(name) for name in body if name != "h"),
        ]  # fmt: skip
        for line, row in zip(lines, self.parsed(lines), strict=True):
            try:
                record.read_line(line)
                taken = True
            except InvalidLine:
                taken = False
            self.assertEqual(row.reason is None, taken, (line, row.reason))
            self.assertEqual(row.text, None if taken else line.decode("utf-8", "replace"))

    def test_records_are_those_of_the_reader(self) -> None:
        """Each field of each record is what `Line.records` says."""
        journal = Journal("alpha.example")
        value = {"string": "x", "long": 7, "int": 3, "boolean": True}
        shared = {name: value[FIELDS[name]] for name in RUN_FIELDS[::2]}
        columns = {name: [value[FIELDS[name]], None] for name in RUN_FIELDS[1::2]}
        journal.write(RecordKind.RECEIVED, shared, 2, **columns)
        journal.write(RecordKind.START, {})
        path = journal.segment(Path(self.mktemp()), journal.lines)
        lines = [record.read_line(line) for line in path.read_bytes().splitlines()]
        expected = [
            tuple(getattr(each, name) for name in RECORDS.names)
            for line in lines
            for each in line.records()
        ]
        read = records(parse(bronze._lines(self.spark, [str(path.absolute())])))
        assertDataFrameEqual(read, self.spark.createDataFrame(expected, RECORDS))


class ManyCase(IngestCase):
    """Journals of many brokers that come together, with what is said of each."""

    def written(self, domain: str) -> Journal:
        """Return a journal with the three lines of the first segment, which is nowhere yet."""
        journal = Journal(domain)
        for entry in (1, 2):
            journal.receive(entry, "orders", message_id=f"m{entry}")
        journal.write(
            RecordKind.RECEIVED, {"node": "orders"}, 3,
            entry=[3, 4, 5], message_id=["m3", None, "m5"], size=[1, 2, 3],
        )  # fmt: skip
        return journal

    def counted(self) -> dict[str, tuple[int, ...]]:
        """Return lines, records, duplicates and rejected lines of all files of each broker."""
        rows = self.warehouse.read("segments").collect()
        found: dict[str, tuple[int, ...]] = {}
        for row in rows:
            name = row.segment.partition("-")[0].removeprefix("mx1.")
            said = row.lines, row.records, row.duplicates, row.rejected
            known = found.get(name, (0,) * len(said))
            found[name] = tuple(map(sum, zip(known, said, strict=True)))
        return found

    def rejects(self, domain: str) -> list[Row]:
        """Return the rejected lines of a broker, in order."""
        rows = self.warehouse.read("rejects").orderBy("path", "line").collect()
        return [row for row in rows if row.segment.startswith(f"mx1.{domain}-")]

    def numbers(self, domain: str) -> list[int]:
        """Return the sequences of the records of a broker."""
        rows = records(self.warehouse.read("runs")).where(F.col("broker") == f"mx1.{domain}")
        return sorted(row.seq for row in rows.collect())


class OnceTests(ManyCase):
    """The segments that one look into journals takes."""

    def test_lines(self) -> None:
        """Text that is no line, or has no name for a folder, is kept with its place, and
        the rest is taken, whatever the folder is called, and whoever's it is."""
        torn = self.written("torn.example")
        lines = torn.lines[:]
        whole = [lines[0], b"rubbish\n", lines[1], lines[2][:70]]
        path = torn.segment(self.journals, whole)
        self.nowhere()
        self.written("").segment(self.journals)
        odd = self.directory.absolute() / "a {b}, [c]+%20\u00f6*"
        written = self.written("odd.example")
        place = written.segment(odd, [written.lines[0], b"rubbish\n", *written.lines[1:]])
        ingest(self.warehouse, [self.journals, odd])
        self.assertEqual(self.counted(), {
            "alpha.example": (3, 5, 0, 0), "torn.example": (2, 2, 0, 2),
            "nowhere.example": (3, 5, 0, 6), "": (3, 5, 0, 0), "odd.example": (3, 5, 0, 1),
        })  # fmt: skip
        rows = self.rejects("torn.example")
        self.assertEqual(
            [(row.line, row.text) for row in rows], [(2, "rubbish"), (4, lines[2][:70].decode())]
        )
        self.assertTrue(all(row.path.endswith(str(path)) for row in rows))
        reasons = {row.reason for row in self.rejects("nowhere.example")}
        self.assertEqual(reasons, {"'domain' is not a domain name", "'time' is out of range"})
        [row] = self.rejects("odd.example")
        self.assertEqual((row.line, row.text), (2, "rubbish"))
        self.assertTrue(row.path.endswith(str(place)), row.path)
        self.assertEqual(ingest(self.warehouse, [self.journals, odd]), IngestSummary())
        self.check_no_domain()

    def nowhere(self) -> None:
        """Write lines with a time or a domain that no folder can be named after."""
        journal = self.written("nowhere.example")
        for change in (
            {"domain": "d" * 249}, {"domain": "a/b"}, {"domain": "\u00e4.example"},
            {"time": -1}, {"time": 2**63 - 1}, {"time": 253_402_300_800_000_000},
        ):  # fmt: skip
            body = {**json.loads(journal.lines[0]), **change}
            text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
            journal.lines.append(text.encode() + b"\n")
        journal.segment(self.journals)

    def check_no_domain(self) -> None:
        """A broker need not have a domain; its rows have one that says so, those too that an
        earlier release took in, whose tables had a directory for each domain."""
        runs = self.warehouse.read("runs").where("broker = 'mx1.'")
        self.assertEqual({row.domain for row in runs.collect()}, {"unknown"})
        earlier = runs.withColumn("domain", F.lit(None).cast("string"))
        change = self.warehouse.begin()
        place = f"{self.warehouse.path(change)}/table=runs"
        earlier.write.partitionBy("day", "domain").parquet(place)
        rows = self.warehouse.read_parts("runs", self.warehouse.staged(change)).collect()
        self.assertEqual({row.domain for row in rows}, {"unknown"})


class TwiceTests(ManyCase):
    """The segments that a second look into journals takes."""

    def test_lines(self) -> None:
        """A segment that came in part comes whole later, and copies do not count; runs may have
        records in common; and what a later release has written waits for a release that reads it.
        Each record is there once, with its own values."""
        part = self.written("part.example")
        lines = part.lines[:]
        path = part.segment(self.journals, [*lines[:2], lines[2][:50]])
        later = self.written("later.example")
        new = later.lines[2].replace(b'"v":1', b'"v":2')
        later.segment(self.journals, [*later.lines[:2], new])
        self.overlap(self.spans[::2])
        self.ingest()
        first = self.counted()
        self.assertEqual(first["part.example"], (2, 2, 0, 1))
        self.assertEqual(first["later.example"], (2, 2, 0, 1))
        self.assertEqual(self.ingest(), IngestSummary())

        path.write_bytes(b"".join(lines))
        part.segment(self.journals / "copy", lines + lines[:1])
        self.overlap(self.spans[1::2])
        for module in (bronze, parsing):
            self.patch(module, "VERSION", 2)
        self.ingest()
        second = self.counted()
        # Two files, and of the later line the whole segment.
        self.assertEqual(second["part.example"], (2 + 1, 2 + 3, 6, 1))
        self.assertEqual(second["later.example"], (2 + 1, 2 + 3, 2, 1))
        self.assertEqual(self.ingest(), IngestSummary())
        for domain in ("part.example", "later.example"):
            self.assertEqual(self.numbers(domain), list(range(1, 6)))
        rows = records(self.warehouse.read("runs")).where("domain = 'gamma.example'")
        found = sorted((row.seq, row.entry) for row in rows.collect())
        self.assertEqual(found, [(seq, self.entries[seq]) for seq in range(1, 15)])

    entries = list(range(10, 30))
    spans = ((1, 3), (2, 2), (7, 2), (1, 5), (11, 3), (6, 6), (14, 1))

    def overlap(self, spans: Sequence[tuple[int, int]]) -> None:
        """Write a segment of runs that begin with these sequences and have so many records."""
        lines = []
        for first, count in spans:
            journal = Journal("gamma.example")
            journal.seq = first
            journal.write(
                RecordKind.RECEIVED, {"node": "orders"}, count,
                entry=self.entries[first : first + count],
            )  # fmt: skip
            lines.append(journal.lines[0])
        Journal("gamma.example").segment(self.journals, lines)


class IngestTests(IngestCase):
    """Segments come once, whenever and however often they arrive."""

    def test_again_and_late(self) -> None:
        """A second run takes nothing twice; what comes later joins in."""
        self.assertEqual(self.ingest(), IngestSummary(1, 3, 5, 0, 0))
        self.assertEqual(self.ingest(), IngestSummary())
        self.journal.segment(self.journals)
        self.assertEqual(self.ingest(), IngestSummary(1, 2, 3, 0, 0))
        self.assertEqual([seq for seq, _, _ in self.events()], list(range(1, 9)))

    def test_copies_together(self) -> None:
        """A line that two segments have counts for the same one, whichever is read first."""
        paths = [self.journal.segment(self.journals / name, self.first) for name in ("a", "b")]
        one, other = (
            parse(bronze._lines(self.spark, [str(path.absolute())])).drop("reason", "text")
            for path in paths
        )
        found = []
        for rows in (one.unionByName(other), other.unionByName(one)):
            left, _ = settled(rows.coalesce(1), few(self.spark, RUNS))
            kept = left.orderBy("seq").collect()
            found.append([(row.seq, row.path.split("/")[-4]) for row in kept])
        self.assertEqual(len(found[0]), 3)
        self.assertEqual(*found)

    def test_nothing_there(self) -> None:
        """A table of which there is nothing has its columns, and no rows."""
        for name, schema in TABLES.items():
            rows = self.warehouse.read(name)
            self.assertEqual(rows.schema.simpleString(), schema.simpleString())
            self.assertTrue(rows.isEmpty())

    def test_open_segments_are_not_read(self) -> None:
        """A segment that is still being written is left."""
        for path in (self.journals / "alpha.example").rglob("*.jsonl"):
            folder = self.journals / "alpha.example" / "open"
            folder.mkdir()
            path.rename(folder / path.name)
        self.assertEqual(self.ingest(), IngestSummary())
        self.assertEqual(self.events(), [])

    def test_time_zone(self) -> None:
        """Days are UTC's; a session of another time zone writes nothing."""
        self.journal.segment(self.journals)
        self.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        self.addCleanup(self.spark.conf.set, "spark.sql.session.timeZone", "UTC")
        with self.assertRaisesRegex(ValueError, "Asia/Tokyo"):
            self.ingest()

    def test_in_steps(self) -> None:
        """Many segments are taken in several changes; the many pieces of a day that this makes
        become one, with the same rows."""
        for line in self.journal.lines:
            self.journal.segment(self.journals, [line])
        self.assertEqual(ingest(self.warehouse, [self.journals], 1).segments, 3)
        self.assertEqual(self.warehouse.snapshot().version, 3)
        before = self.events()
        self.assertEqual(compact(self.warehouse, ["runs"], 3), 0)
        self.assertEqual(compact(self.warehouse, ["runs"], 2), 1)
        self.assertEqual(len(self.warehouse.snapshot().of("runs")), 1)
        self.assertEqual(self.events(), before)


class ContradictionTests(IngestCase):
    """Two records of one number that say different things: somebody has changed a journal, or it
    continues in two places."""

    def changed(self, line: bytes, **changes: object) -> bytes:
        body = json.loads(line)
        each = {**body["each"], **changes.pop("each", {})}  # type: ignore[dict-item]
        text = json.dumps({**body, "each": each, **changes}, separators=(",", ":"))
        return text.encode() + b"\n"

    def rejected(self) -> list[tuple[int, str, str]]:
        rows = self.warehouse.read("rejects").orderBy("path", "line").collect()
        return [(row.line, row.text, row.reason) for row in rows]

    def sizes(self) -> dict[int, int | None]:
        rows = records(self.warehouse.read("runs")).collect()
        found = {row.seq: row.size for row in rows}
        self.assertEqual(len(found), len(rows))
        return found

    def test_within_a_segment(self) -> None:
        """The one line is taken and the other refused, whichever comes first."""
        line = self.first[2]
        other = self.changed(line, each={"size": [1, 99, 3]})
        kept = set()
        for number, lines in enumerate(([line, other], [other, line])):
            folder = self.directory.absolute() / str(number)
            self.warehouse = Warehouse(self.spark, folder / "tables")
            self.journals = folder / "journals"
            self.journal.segment(self.journals, [*self.first[:2], *lines])
            self.assertEqual(self.ingest(), IngestSummary(1, 3, 5, 0, 1, 1))
            [(place, text, reason)] = self.rejected()
            self.assertEqual(reason, "contradicts what is there: 1 of the records 4 to 4")
            self.assertEqual(text.encode()[HEAD:] + b"\n", lines[place - 3][HEAD:])
            kept.add((text[HEAD:], self.sizes()[4]))
        self.assertEqual(len(kept), 1)

    def test_what_is_there_stays(self) -> None:
        """In a second copy one record was changed, on another day by its own word. The same copy
        again is no news."""
        self.assertEqual(self.ingest(), IngestSummary(1, 3, 5, 0, 0))
        tomorrow = json.loads(self.first[1])["time"] + 86_400_000_000
        copy = [self.first[0], self.changed(self.first[1], time=tomorrow), self.first[2]]
        self.assertEqual(sum(map(len, copy)), sum(map(len, self.first)))
        folder = self.journals / "alpha.example" / "2026-11-23"
        self.journal.segment(self.directory / "copy", copy).parent.rename(folder)
        self.assertEqual(self.ingest(), IngestSummary(1, 0, 0, 2, 1, 1))
        [(place, text, reason)] = self.rejected()
        self.assertEqual((place, text.encode()[HEAD:] + b"\n"), (2, copy[1][HEAD:]))
        self.assertIn("1 of the records 2 to 2", reason)
        self.assertEqual(self.ingest(), IngestSummary())
        self.assertEqual([seq for seq, _, _ in self.events()], list(range(1, 6)))
        [bad] = self.warehouse.read("segments").where("contradicting > 0").collect()
        self.assertEqual((bad.rejected, bad.duplicates, bad.journals), (1, 2, []))

    def test_rest_of_a_line(self) -> None:
        """Of a line that contradicts in part what nobody else says is taken."""

        def run(first: int, sizes: list[int]) -> bytes:
            journal = Journal("gamma.example")
            journal.seq = first
            journal.write(RecordKind.RECEIVED, {"node": "orders"}, len(sizes), size=sizes)
            return journal.lines[0]

        spans = [run(1, [1, 2, 3]), run(2, [2, 99, 4, 5]), run(6, [6]), run(7, [7, 8])]
        journal = Journal("gamma.example")
        self.journals = self.directory.absolute() / "gamma"
        for number, lines in enumerate((spans[:1], spans[1:3], [spans[3], spans[1]])):
            journal.segment(self.journals / str(number), lines)
            taken = self.ingest()
            self.assertEqual(taken.contradicting, int(number > 0), number)
        self.assertEqual(self.sizes(), {seq: seq for seq in range(1, 9)})
        self.assertEqual(
            [(place, reason) for place, _, reason in self.rejected()],
            [(1, "contradicts what is there: 1 of the records 3 to 3"),
             (2, "contradicts what is there: 1 of the records 3 to 3")],
        )  # fmt: skip


class CrashTests(IngestCase):
    """A change is whole or is not there."""

    def test_killed(self) -> None:
        """``kill -9`` when all is written and nothing said: it is as if it had not begun."""
        self.journal.segment(self.journals)
        process = run_python(KILLED, str(self.journals), self.warehouse.base, seconds=3 * PATIENCE)
        self.assertEqual(process.returncode, -signal.SIGKILL, process.stderr)
        self.assertTrue(list(Path(self.warehouse.base).rglob("*.parquet")))
        self.assertEqual(self.warehouse.snapshot().version, 0)
        self.assertEqual(self.events(), [])
        self.assertEqual(self.ingest(), IngestSummary(2, 5, 8, 0, 0))
        self.assertEqual([seq for seq, _, _ in self.events()], list(range(1, 9)))

    def test_two_writers(self) -> None:
        """The second of two changes from the same state is refused, and nothing of it is seen. What
        it left goes after a day; what is live stays."""
        base = self.warehouse.snapshot()
        self.ingest()
        part = TablePart("runs", "2026-11-22", "alpha.example", "f" * 16)
        with self.assertRaises(PublicationConflict):
            self.warehouse.publish(base, [part])
        self.assertNotIn(part, self.warehouse.snapshot().parts)

        base = Path(self.warehouse.base)
        live = set((base / "data").iterdir())
        left, young = (f"commit={self.warehouse.begin()}" for _ in range(2))
        for name in (left, young):
            (base / "data" / name / "table=runs" / "_temporary").mkdir(parents=True)
        long_ago = time.time() - 2 * 86_400
        for mark in (base / "changes").iterdir():
            if mark.name != young.partition("=")[2]:
                os.utime(mark, (long_ago, long_ago))
        last = self.warehouse.begin()
        self.assertEqual(set((base / "data").iterdir()), live | {base / "data" / young})
        marks = {f"commit={mark.name}" for mark in (base / "changes").iterdir()}
        self.assertEqual(marks, {young, f"commit={last}"})

    def test_replaced(self) -> None:
        """Of a change that is live in part the rest goes, a day after it was replaced, and who
        began to read before that reads to the end."""
        late = Journal("beta.example")
        late.receive(1, "orders")
        late.at = 86_400
        late.receive(2, "orders")
        late.segment(self.journals)
        self.ingest()
        base = self.warehouse.snapshot()
        first, second = base.of("runs")[-2:]
        rows = self.warehouse.read("runs")
        self.warehouse.publish(base, (), [second])
        self.assertEqual(rows.count(), 5)
        folder = Path(self.warehouse.base)
        self.warehouse.begin()
        self.assertTrue((folder / "data" / second.path).exists())
        long_ago = time.time() - 2 * 86_400
        os.utime(folder / "changes" / second.commit, (long_ago, long_ago))
        self.warehouse.begin()
        self.assertFalse((folder / "data" / second.path).exists())
        self.assertTrue((folder / "data" / first.path).exists())
        self.assertEqual(self.warehouse.read("runs").count(), 4)

    def test_earlier_release(self) -> None:
        """Leftovers of a release that marked no changes are found once, and removed likewise."""
        self.ingest()
        folder = Path(self.warehouse.base)
        [list_] = (folder / "log").iterdir()
        list_.write_text(list_.read_text().replace('"format": 2', '"format": 1'))
        for mark in (folder / "changes").iterdir():
            mark.unlink()
        live = set((folder / "data").iterdir())
        left = folder / "data" / "commit=c0"
        left.mkdir()
        long_ago = time.time() - 2 * 86_400
        os.utime(left, (long_ago, long_ago))
        self.warehouse.begin()
        self.assertEqual(set((folder / "data").iterdir()), live)

    def test_change_is_no_number(self) -> None:
        """A change has no name that Spark reads as a number: this one has 160 million digits."""
        number = uuid.UUID("38556e01-6081-4979-8000-000000000000")
        with mock.patch("uuid.uuid4", return_value=number):
            name = self.warehouse.begin()
        self.assertRaises(ValueError, float, name)
