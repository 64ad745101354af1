# SPDX-License-Identifier: Apache-2.0
"""The states of a warehouse's files, and the retention of its days."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.main import amqproute
from amqproute.journal.record import RecordKind
from tests.pipeline.journals import Journal
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.cli import housekeeping
    from amqproute.pipeline import ingest as bronze
    from amqproute.pipeline import retention
    from amqproute.pipeline.defaults import LEAST_KEPT_DAYS
    from amqproute.pipeline.ingest import IngestSummary, ingest
    from amqproute.pipeline.soundness import State, examine, remove
    from amqproute.pipeline.table_schema import HOPS, VIOLATIONS
    from amqproute.pipeline.warehouse import TablePart, Warehouse, WarehouseSnapshot, few

FIRST = date(2026, 11, 22)
ONE = timedelta(days=1)
LONG = 2 * 86_400


class WarehouseCase(SparkCase):
    """A warehouse with days of a table that were made one by one."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.warehouse = Warehouse(self.spark, self.folder / "tables")
        self.base = Path(self.warehouse.base)

    def put(self, day: date, **fields: Any) -> TablePart:
        """Publish a row of a day; return its directory."""
        row = {"day": day, "domain": "alpha.example", "entry": 1, "kind": "received", **fields}
        rows = few(self.spark, HOPS, [row])
        [part] = self.warehouse.stage("hops", rows)
        self.warehouse.publish(self.warehouse.snapshot(), [part])
        return part

    def parquet(self, part: TablePart) -> Path:
        [found] = (self.base / "data" / part.path).glob("part-*.parquet")
        return found

    def states(self) -> dict[str, State]:
        """Return what is wrong, or in the way, by path."""
        usual = (State.LIVE, State.LIST)
        return {
            each.path: each.state for each in examine(self.warehouse) if each.state not in usual
        }

    def age(self) -> None:
        """Let all that has happened be two days ago."""
        long_ago = time.time() - LONG
        for each in (self.base, *self.base.rglob("*")):
            os.utime(each, (long_ago, long_ago))


class FsckTests(WarehouseCase):
    """The kind of each file."""

    def test_sound(self) -> None:
        """Of live files it is known what they belong to, and of a page what it is."""
        parts = [self.put(FIRST), self.put(FIRST + ONE)]
        (self.base / "report").mkdir()
        page = self.base / "report" / "2026-11-22.html"
        page.write_text("page")
        found = {each.path: each for each in examine(self.warehouse)}
        on_disk = {str(p.relative_to(self.base)) for p in self.base.rglob("*") if p.is_file()}
        self.assertEqual(set(found), on_disk)
        self.assertEqual(found["report/2026-11-22.html"].state, State.PAGE)
        for number, part in enumerate(parts, 1):
            path = self.parquet(part)
            each = found[str(path.relative_to(self.base))]
            told = (each.state, each.change, each.table, each.day, each.octets)
            wanted = (State.LIVE, number, "hops", part.day, path.stat().st_size)
            self.assertEqual(told, wanted)
        self.assertEqual(self.states(), {"report/2026-11-22.html": State.PAGE})

    def test_damage(self) -> None:
        """One octet that is another, one file that is shorter, one that is gone, a directory that
        is gone, and one too many: each is named, and nothing else."""
        parts = [self.put(FIRST + n * ONE) for n in range(5)]
        flipped, cut, gone, strange = (self.parquet(part) for part in parts[:4])
        octets = bytearray(flipped.read_bytes())
        octets[600] ^= 1
        flipped.write_bytes(octets)
        cut.write_bytes(cut.read_bytes()[:-1])
        gone.unlink()
        extra = strange.with_name("part-x.parquet")
        extra.write_bytes(b"PAR1")
        (self.base / "notes.txt").write_text("mine")
        for each in sorted((self.base / "data" / parts[4].path).iterdir()):
            each.unlink()
        (self.base / "data" / parts[4].path).rmdir()
        names = {
            flipped: State.DAMAGED, cut: State.DAMAGED, gone: State.MISSING, extra: State.FOREIGN,
            self.base / "notes.txt": State.FOREIGN,
        }  # fmt: skip
        expected = {str(path.relative_to(self.base)): state for path, state in names.items()}
        found = self.states()
        lost = {path for path in found if parts[4].path in path}
        self.assertEqual({found.pop(path) for path in lost}, {State.MISSING})
        self.assertEqual(found, expected)
        [words] = [e.words for e in examine(self.warehouse) if e.path.endswith(flipped.name)]
        self.assertIn("octets from 512 on", words)
        self.assertEqual(
            {each.octets for each in examine(self.warehouse) if each.state is State.MISSING}, {0}
        )

    def test_lists(self) -> None:
        """A list that cannot be read is damaged, and so is that of a change's files."""
        part = self.put(FIRST)
        manifest = f"data/commit={part.commit}/_files.json"
        (self.base / manifest).write_text("{")
        name = "log/00000000000000000000.json"
        (self.base / name).write_text('{"format": 1}')
        self.assertEqual(self.states(), {manifest: State.DAMAGED, name: State.DAMAGED})
        (self.base / manifest).unlink()
        self.assertEqual(self.states()[manifest], State.MISSING)

    def test_leftovers(self) -> None:
        """Replaced directories stay for a day, and unfinished ones; then both are leftovers, and
        go by request. What is live stays."""
        first, second = self.put(FIRST), self.put(FIRST + ONE)
        self.warehouse.publish(self.warehouse.snapshot(), (), [first])
        row = {"day": FIRST, "domain": "a", "what": "lost"}
        [broken] = self.warehouse.stage("violations", few(self.spark, VIOLATIONS, [row]))
        replaced, unfinished = (
            str(self.parquet(p).relative_to(self.base)) for p in (first, broken)
        )
        found = self.states()
        self.assertEqual((found[replaced], found[unfinished]), (State.REPLACED, State.UNFINISHED))
        self.assertEqual(remove(self.warehouse, list(examine(self.warehouse))), 0)
        self.age()
        (self.base / "log" / "00000000000000000001.json").unlink()
        (self.base / "log" / "00000000000000000002.json").unlink()
        found = self.states()
        self.assertEqual((found[replaced], found[unfinished]), (State.LEFTOVER, State.LEFTOVER))
        self.assertEqual(remove(self.warehouse, list(examine(self.warehouse))), len(found))
        self.assertEqual(self.states(), {})
        self.assertTrue(self.parquet(second).exists())
        self.assertFalse((self.base / "data" / f"commit={first.commit}").exists())


class PruneTests(WarehouseCase):
    """The time that days stay."""

    def days(self) -> list[date]:
        return self.warehouse.snapshot().days("hops")

    def test_readers(self) -> None:
        """Old days go, from the list first; who has begun to read them reads to the end."""
        old, new = self.put(FIRST, entry=7), self.put(FIRST + 40 * ONE)
        rows = self.warehouse.read("hops")
        today = FIRST + 40 * ONE
        trial = retention.prune(self.warehouse, 30, today, is_trial=True)
        self.assertEqual((trial.days, trial.waiting), ((FIRST,), 1))
        self.assertEqual(len(self.days()), 2)
        self.assertEqual(retention.prune(self.warehouse, 30, today), trial)
        self.assertEqual(self.days(), [FIRST + 40 * ONE])
        self.assertEqual(sorted(row.entry for row in rows.collect()), [1, 7])
        self.assertTrue(self.parquet(old).exists())
        self.age()
        self.warehouse.begin()
        self.assertFalse((self.base / "data" / f"commit={old.commit}").exists())
        self.assertTrue(self.parquet(new).exists())
        self.assertEqual(retention.prune(self.warehouse, 30, today).days, ())

    def test_needed(self) -> None:
        """Days that the next night needs stay, and a month in any case; a day that went does not
        come back when more are to be kept."""
        for number in range(0, 50, 7):
            self.put(FIRST + number * ONE)
        today = FIRST + 49 * ONE
        with self.assertRaisesRegex(ValueError, "at least 28"):
            retention.prune(self.warehouse, LEAST_KEPT_DAYS - 1, today)
        base = self.warehouse.snapshot()
        pending = FIRST + 21 * ONE
        self.warehouse.publish(base, (), pending=[pending])
        kept = retention.prune(self.warehouse, 28, today)
        self.assertEqual(kept.since, pending - 14 * ONE)
        self.assertEqual(self.days()[0], FIRST + 7 * ONE)
        self.warehouse.publish(self.warehouse.snapshot(), (), pending=())
        self.assertEqual(retention.prune(self.warehouse, 28, today).since, FIRST + 21 * ONE)
        self.assertEqual(retention.prune(self.warehouse, 400, today).since, FIRST + 21 * ONE)
        self.assertEqual(self.days()[0], FIRST + 21 * ONE)

    def test_not_again(self) -> None:
        """Segments of days that went are not taken in again, and of those that stay a copy is known
        as one."""
        journal = Journal("alpha.example")
        for number in (0, 40):
            journal.at = number * 86_400
            journal.receive(number + 1, "orders")
            journal.segment(self.folder)
        journals = [self.folder / journal.domain]
        self.assertEqual(ingest(self.warehouse, journals).segments, 2)
        self.warehouse.publish(self.warehouse.snapshot(), (), pending=())
        retention.prune(self.warehouse, 30, FIRST + 41 * ONE)
        snapshot = self.warehouse.snapshot()
        self.assertEqual(snapshot.days("runs"), [FIRST + 40 * ONE])
        self.assertEqual(snapshot.days("segments"), [FIRST, FIRST + 40 * ONE])
        again = ingest(self.warehouse, journals, look_everywhere=True)
        self.assertEqual(again, IngestSummary())
        retention.prune(self.warehouse, 30, FIRST + 110 * ONE)
        self.assertEqual(self.warehouse.snapshot().days("segments"), [FIRST + 40 * ONE])
        again = ingest(self.warehouse, journals, look_everywhere=True)
        self.assertEqual(again, IngestSummary())


class FolderTests(SynchronousTestCase):
    """The folders of journals that are searched."""

    skip = MISSING

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.journal = self.folder / "journal"

    def looked_into(
        self, snapshot: WarehouseSnapshot, *given: Path, look_everywhere: bool = False
    ) -> list[str]:
        given = given or (self.journal,)
        found = bronze._folders(snapshot, given, look_everywhere=look_everywhere)
        return sorted(os.path.basename(path) for path in found.paths)

    def test_changed(self) -> None:
        """Those that have changed since a day before the last time, and those of its day; all by
        request, of a journal that was not looked through as a whole, and of a day with refused
        lines. None of a day that was removed for its age."""
        now = time.time()
        today = datetime.fromtimestamp(now, UTC).date()
        days = [(today - n * ONE).isoformat() for n in (20, 10, 0)]
        for day in (*days, "2026-02-30", "open"):
            (self.journal / day).mkdir(parents=True)
        self.assertEqual(self.looked_into(WarehouseSnapshot(0, ())), days)
        listed = {str(self.journal): now + LONG}
        known = WarehouseSnapshot(1, (), listed=listed)
        self.assertEqual(self.looked_into(known), [])
        self.assertEqual(self.looked_into(known, *self.journal.iterdir()), [])
        self.assertEqual(self.looked_into(known, look_everywhere=True), days)
        parts = (TablePart("rejects", days[0], "", "c0"), TablePart("rejects", days[1], "", "c0"))
        known = WarehouseSnapshot(2, parts, since=today - 10 * ONE, listed=listed)
        self.assertEqual(self.looked_into(known, look_everywhere=True), days[1:])
        self.assertEqual(self.looked_into(known), days[1:2])
        recent = WarehouseSnapshot(3, (), listed={str(self.journal): now + 86_000})
        self.assertEqual(self.looked_into(recent), days)

    def test_some_folders(self) -> None:
        """Only a journal of which all folders were given counts as looked through."""
        for day in ("2026-11-20", "2026-11-21"):
            (self.journal / day).mkdir(parents=True)

        def through(*given: Path) -> Sequence[str]:
            return bronze._folders(WarehouseSnapshot(0, ()), given, look_everywhere=False).journals

        self.assertEqual(through(self.journal / "2026-11-20"), [])
        self.assertEqual(through(*self.journal.iterdir()), [str(self.journal)])
        self.assertEqual(through(self.folder), [str(self.journal)])
        self.assertEqual(through(self.folder / "nowhere"), [])


class CommandTests(WarehouseCase):
    """As they are typed."""

    def invoked(self, *arguments: object) -> Result:
        words = ["pipeline", *map(str, arguments), "--warehouse", str(self.base)]
        return CliRunner().invoke(amqproute, words)

    def test_fsck(self) -> None:
        """Faults are named, and in the exit code; leftovers are removed on request."""
        empty = self.invoked("fsck")
        self.assertEqual((empty.exit_code, empty.stdout), (2, ""))
        part = self.put(FIRST)
        left = self.base / "data" / "commit=c0" / "table=hops" / "day=2026-11-22" / "part-0.parquet"
        left.parent.mkdir(parents=True)
        left.write_text("half")
        self.age()
        sound = self.invoked("fsck")
        self.assertEqual(sound.exit_code, 0, sound.output)
        self.assertIn(
            f"leftover\thops\t2026-11-22\t-\t4\t{left.relative_to(self.base)}", sound.stdout
        )
        self.assertIn("1 leftover", sound.stdout)
        removed = self.invoked("fsck", "--remove", "--json")
        self.assertEqual(json.loads(removed.stdout)["removed"], 1)
        self.assertFalse(left.exists())
        self.parquet(part).unlink()
        wrong = self.invoked("fsck", "--json", "--fast")
        self.assertEqual(wrong.exit_code, 1, wrong.output)
        [found] = json.loads(wrong.stdout)["found"]
        self.assertEqual((found["state"], found["day"], found["change"]), ("missing", part.day, 1))
        shown = self.invoked("fsck", "--all")
        self.assertIn("\nlist\t", shown.stdout)

    def filled(self, tables: Warehouse) -> WarehouseSnapshot:
        return tables.snapshot()

    def test_damaged(self) -> None:
        """Commands that meet damage name the file, and what finds the rest."""
        part = self.put(date(2020, 1, 1))
        self.patch(housekeeping, "filled", self.filled)
        file = self.parquet(part)
        file.write_bytes(bytes(255 - octet for octet in file.read_bytes()))
        [name] = (self.base / "log").iterdir()
        for damaged in (file, name):
            refused = self.invoked("prune", "--keep-days", 400, "--dry-run")
            self.assertEqual((refused.exit_code, refused.stdout), (1, ""), refused.output)
            self.assertIn("pipeline.damaged: ", refused.stderr)
            self.assertIn(damaged.name, refused.stderr)
            self.assertIn("amqproute pipeline fsck", refused.stderr)
            name.write_text('{"form')

    def test_prune(self) -> None:
        """It says what went, and what of it had not ended; fewer days than a night needs are
        refused."""
        few_days = self.invoked("prune", "--keep-days", 7)
        self.assertEqual(few_days.exit_code, 2)
        self.assertIn("7 is not in the range x>=28", few_days.stderr)
        self.put(date(2020, 1, 1), fate=RecordKind.DELIVERED)
        self.put(date(2020, 1, 2))
        self.patch(housekeeping, "filled", self.filled)
        trial = self.invoked("prune", "--keep-days", 400, "--dry-run")
        self.assertEqual(trial.exit_code, 0, trial.output)
        self.assertIn("2 days would go: 2020-01-01 to 2020-01-02.", trial.stdout)
        gone = self.invoked("prune", "--keep-days", 400, "--json")
        said = json.loads(gone.stdout)
        self.assertEqual((said["days"], said["waiting"]), (["2020-01-01", "2020-01-02"], 1))
        again = self.invoked("prune", "--keep-days", 400)
        self.assertIn("Nothing is older than ", again.stdout)
