# SPDX-License-Identifier: Apache-2.0
"""``amqproute journal``: output and exit codes."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from amqproute.cli.main import amqproute
from amqproute.journal import reader
from amqproute.journal.event import DepartureEvent, RunEvent
from amqproute.journal.export import FIELDS
from amqproute.journal.record import GENESIS, JournalRecord, RecordKind, chained, read_line
from amqproute.journal.record_text import said
from amqproute.journal.segments import HEAD, closed, parts_of
from amqproute.values import Origin, Principal
from tests.journal.rig import ANN, NAMES, Wall, arrivals, entry
from tests.journal.test_journal_writer import JournalCase

ALPHA = Principal("peer", "gamma.example")


class CommandTests(JournalCase):
    """On the journal of a day."""

    def setUp(self) -> None:
        super().setUp()
        desk = self.opened()
        outbox = desk.journal.outbox
        here = Origin(ANN, connection="127.0.0.1:1", link="out", level="tls")
        mine = entry(1, message_id="m-1", to="orders@beta.example")
        come = arrivals(desk, [mine], here)
        come._came = [("amqp$out/beta.example", *each[1:]) for each in come._came]
        outbox.committed([come], False)
        facts = {
            "node": "amqp$out/beta.example",
            "peer": "peer:beta.example",
            "code": "connect.refused",
            "words": "connection refused",
            "count": 1,
            "until": desk.wall(),
        }
        desk.journal.note(RunEvent(RecordKind.DEFERRED, desk.wall(), facts))
        desk.written()
        end = DepartureEvent(
            RecordKind.RELAYED,
            desk.wall(),
            "amqp$out/beta.example",
            [mine],
            {"peer": "peer:beta.example", "host": "mx.beta.example:5671"},
        )
        outbox.committed([end], True)
        theirs = entry(2, message_id="m-2", to="orders@alpha.example")
        outbox.committed([arrivals(desk, [theirs], Origin(ALPHA, is_peer=True))], False)
        desk.close()

    def ask(self, *args: str, directory: Path | None = None) -> Result:
        where = ["--directory", str(directory or self.directory)]
        return CliRunner().invoke(amqproute, ["journal", *args, *where])

    def test_find(self) -> None:
        """The story: where it came from, what it waited for, where it is."""
        result = self.ask("find", "m-1")
        self.assertEqual(result.exit_code, 0, result.output)
        lines = result.output.splitlines()
        self.assertIn("from user:ann (127.0.0.1:1, tls), on the queue for beta.example", lines[1])
        self.assertIn("1 message waits for peer:beta.example: connect.refused", lines[2])
        self.assertIn("taken by peer:beta.example, at mx.beta.example:5671", lines[3])
        self.assertIn("not here any more: relayed", lines[-1])
        self.assertIn("still here, on q", self.ask("find", "m-2").output)
        (one,) = json.loads(self.ask("find", "--entry", "2", "--json").output)
        self.assertEqual((one["kind"], one["entry"], one["message_id"]), ("received", 2, "m-2"))
        self.assertEqual(self.ask("find", "m-3").exit_code, 1)
        self.assertEqual(self.ask("find").exit_code, 2)
        self.assertEqual(self.ask("find", "m-1", "--entry", "1").exit_code, 2)
        self.assertEqual(self.ask("find", "--digest", "12").exit_code, 2)
        self.assertIn("knows nothing of ''", self.ask("find", "").output)
        self.assertIn("knows nothing of entry 0", self.ask("find", "--entry", "0").output)
        digest = one["digest"].upper()
        self.assertEqual(self.ask("find", "--digest", digest).exit_code, 0)

    def test_find_what_waited_long(self) -> None:
        """Attempts that failed alike are counted; the command that says why takes the entry."""
        desk = self.opened()
        queue = "amqp$out/delta.example"
        come = arrivals(desk, [entry(7, message_id="m-7", to="orders@delta.example")])
        come._came = [(queue, *each[1:]) for each in come._came]
        desk.journal.outbox.committed([come], False)
        facts = {"node": queue, "peer": "peer:delta.example", "count": 1}
        for code in ["connect.refused"] * 9 + ["connect.timeout"] * 3:
            desk.journal.note(RunEvent(RecordKind.DEFERRED, desk.wall(), {**facts, "code": code}))
        desk.close()
        result = self.ask("find", "m-7")
        lines = result.output.splitlines()
        self.assertEqual(result.output.count("connect.refused"), 2)
        self.assertIn("7 more like this", lines[3])
        self.assertEqual(result.output.count("connect.timeout"), 3)
        self.assertTrue(lines[-1].endswith("; why: amqproute why 7"), lines[-1])
        self.assertEqual(len(json.loads(self.ask("find", "m-7", "--json").output)), 13)

    def test_find_after_a_restore(self) -> None:
        """An entry of the same number in a store that was put back is another one."""
        desk = self.desk()
        desk.open(names=replace(NAMES, stream="store-2"))
        desk.journal.outbox.committed([arrivals(desk, [entry(1, message_id="m-3")])], False)
        desk.close()
        self.assertIn("it is still here, on q (entry 1)", self.ask("find", "--entry", "1").output)
        self.assertIn("it is not here any more: relayed", self.ask("find", "m-1").output)
        self.assertIn("it is still here", self.ask("find", "m-3").output)
        lost = self.ask("find", "m-2").output
        self.assertIn("it was on q (entry 2) of a store that is not here any more", lost)
        self.assertNotIn("still here", lost)

    def test_tail(self) -> None:
        """The last records, those that are asked for."""
        self.assertEqual(len(self.ask("tail").output.splitlines()), 5)
        self.assertEqual(len(self.ask("tail", "-n", "2").output.splitlines()), 2)
        (line,) = self.ask("tail", "--kind", "relayed", "--json").output.splitlines()
        self.assertEqual(json.loads(line)["host"], "mx.beta.example:5671")
        self.assertEqual(len(self.ask("tail", "--node", "amqp$out/*").output.splitlines()), 3)
        self.assertEqual(len(self.ask("tail", "--to", "*@beta.example").output.splitlines()), 1)
        result = self.ask("tail", "--where", "sender=peer:*", "--where", "durable=true")
        self.assertEqual(len(result.output.splitlines()), 1)
        self.assertEqual(self.ask("tail", "--where", "color=red").exit_code, 2)

    def test_tail_counts_what_it_looks_at(self) -> None:
        """Records are counted over segments, whether they are wanted or not."""
        for number in range(3):
            desk = self.opened()
            desk.note(*range(10 * number, 10 * number + 3))
            desk.close()
        # Four records in each of these segments, the first of them its own.
        for count, expected in ((0, 0), (2, 2), (4, 3), (5, 4), (6, 5), (12, 9), (100, 9)):
            lines = self.ask("tail", "-n", str(count), "--kind", "recovery").output.splitlines()
            self.assertEqual(len(lines), expected, count)
        self.assertEqual(len(self.ask("tail", "-n", "6").output.splitlines()), 6)
        self.assertEqual(self.ask("tail", "-n", "-1").exit_code, 2)

    def test_tail_of_a_changed_journal(self) -> None:
        """Foreign lines are shown, and end nothing."""
        (path,) = closed(self.directory)
        text = path.read_bytes().replace(b'"time":1', b'"time":' + b"9" * 30, 1)
        path.write_bytes(text)
        result = self.ask("tail")
        self.assertEqual((result.exit_code, len(result.output.splitlines())), (0, 5), result)

    def test_verify(self) -> None:
        """0 with the last hash, 1 with the first flaw."""
        result = self.ask("verify")
        self.assertEqual(result.exit_code, 0)
        (verdict,) = reader.verify(self.directory)
        self.assertIn(verdict.hash, result.output)
        (path,) = closed(self.directory)
        path.write_bytes(path.read_bytes().replace(b"mx.beta", b"mx.evil"))
        result = self.ask("verify")
        self.assertEqual(result.exit_code, 1)
        self.assertIn(f"{path}:4: record 4: changed", result.output)
        (told,) = json.loads(self.ask("verify", "--json").output)
        self.assertEqual((told["sound"], told["flaw"]["first"]), (False, 4))

    def test_export(self) -> None:
        """Ids and digests of what passed between two, and nothing else."""
        target = Path(self.mktemp())
        result = self.ask("export", str(target), "--peer", "beta.example")
        self.assertEqual(result.exit_code, 0, result.output)
        (path,) = target.glob("*/*.jsonl")
        records = list(reader.records(target))
        self.assertEqual(
            [(each.kind, each.entry) for each in records],
            [("segment", None), ("received", 1), ("relayed", 1)],
        )
        mine = {each.event_id: each for each in reader.records(self.directory)}
        allowed = {"node", "sender", "peer", "previous", *FIELDS}
        for each in records:
            self.assertEqual(each.time, mine[each.event_id].time)
            told = set(reader.as_json(each)) - set(JournalRecord.__dataclass_fields__) | {
                name
                for name in JournalRecord.__dataclass_fields__
                if getattr(each, name) is not None
            }
            line = {"v", "kind", "journal", "broker", "domain", "stream", "seq", "time", "event_id"}
            self.assertLessEqual(told - line, allowed)
        self.assertEqual(records[1].digest, mine[records[1].event_id].digest)
        for secret in (b"ann", b"orders", b"127.0.0.1", b"gamma"):
            self.assertNotIn(secret, path.read_bytes())
        other = Path(self.mktemp())
        self.assertEqual(self.ask("export", str(other), "--peer", "gamma.example").exit_code, 0)
        self.assertEqual([each.entry for each in reader.records(other)], [None, 2])
        args = ("export", str(other), "--peer", "gamma.example", "--day")
        self.assertEqual(self.ask(*args, "2026-11-23").exit_code, 1)
        self.assertEqual(self.ask(*args, "tomorrow").exit_code, 2)

    def test_export_says_nothing_of_sizes(self) -> None:
        """Neither what is stored nor what the partner has itself."""
        self.export()
        for each in reader.records(self.target):
            self.assertEqual((each.size, each.bare_size), (None, None))

    def export(self, peer: str = "beta.example", *more: str) -> Result:
        self.target = Path(self.mktemp()).absolute()
        return self.ask("export", str(self.target), "--peer", peer, *more)

    def test_export_for_nobody(self) -> None:
        """A domain of which the journal has nothing: said, with those that it knows."""
        none = "the journal has nothing of "
        for wrong, words, meant in (
            ("betta.example", f"{none}betta.example", "did you mean beta.example? it knows"),
            ("delta.org", f"{none}delta.org", "next: it knows beta.example, gamma.example"),
            ("alpha.example", "the journal of alpha.example itself", "next: it knows beta"),
        ):
            result = self.export(wrong)
            self.assertEqual(result.exit_code, 1, result.output)
            self.assertIn(words, result.stderr)
            self.assertIn(meant, result.stderr)
            self.assertFalse(self.target.exists())
        self.assertEqual(self.export("peer:beta.example").exit_code, 2)
        self.assertEqual(self.export("Beta.Example.").exit_code, 0)

    def test_export_of_a_quiet_day(self) -> None:
        """Of a partner that is known, a day without messages is told; one without records is not
        there."""
        desk = self.opened(wall=Wall(1_795_345_200_000_000 + 86_400_000_000))
        desk.journal.note(RunEvent(RecordKind.STOP, desk.wall(), {}))
        desk.close()
        result = self.export("beta.example", "--day", "2026-11-23")
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("1 records, 0 of them about messages", result.stdout)
        result = self.export("beta.example", "--day", "2026-11-25")
        self.assertEqual(result.exit_code, 1, result.output)
        self.assertIn("the journal has nothing of 2026-11-25", result.stderr)
        self.assertFalse(self.target.exists())

    def test_export_where_it_must_not_go(self) -> None:
        """Not over the journal, and not to what another partner gets."""
        before = {path: path.read_bytes() for path in self.directory.rglob("*.jsonl")}
        result = self.ask("export", str(self.directory), "--peer", "beta.example")
        self.assertEqual(result.exit_code, 2)
        self.assertIn("is a journal", result.stderr)
        self.assertEqual(before, {path: path.read_bytes() for path in before})
        self.assertEqual(self.export().exit_code, 0)
        again = self.ask("export", str(self.target), "--peer", "beta.example")
        self.assertEqual(again.exit_code, 0)
        result = self.ask("export", str(self.target), "--peer", "gamma.example")
        self.assertEqual(result.exit_code, 2)
        self.assertIn("has an export for beta.example", result.stderr)
        other = Path(self.mktemp())
        shutil.copytree(self.directory, other)
        (other / HEAD).unlink()
        result = self.ask("export", str(other), "--peer", "beta.example")
        self.assertEqual(result.exit_code, 2)
        self.assertIn("has segments of a journal", result.stderr)
        more = Path(self.mktemp())
        result = self.ask("export", str(more), "--peer", "beta.example", directory=self.target)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("is an export", result.stderr)

    def test_export_of_what_is_being_written(self) -> None:
        """A segment that is not closed yet goes where it will be, and is replaced by the whole."""
        desk = self.opened()
        self.addCleanup(desk.close)
        mine = entry(5, message_id="m-5")
        desk.journal.outbox.committed([arrivals(desk, [mine], Origin(ALPHA, is_peer=True))], False)
        desk.written()
        self.assertEqual(self.export("gamma.example").exit_code, 0)
        desk.close()
        first = sorted(self.target.rglob("*.jsonl"))
        closed_now = [path.relative_to(self.directory) for path in closed(self.directory)]
        self.assertEqual([path.relative_to(self.target) for path in first], closed_now)
        self.ask("export", str(self.target), "--peer", "gamma.example")
        self.assertEqual(sorted(self.target.rglob("*.jsonl")), first)

    def test_verify_an_export(self) -> None:
        """It is told from a journal; what was changed or moved in it is found."""
        desk = self.opened()
        outbox = desk.journal.outbox
        outbox.committed([arrivals(desk, [entry(7)], Origin(ALPHA, is_peer=True))], False)
        desk.written()
        outbox.committed([arrivals(desk, [entry(8)], Origin(ALPHA, is_peer=True))], False)
        desk.close()
        self.export("gamma.example")
        result = self.ask("verify", directory=self.target)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("an export for gamma.example: 5 records in 2 segments", result.stdout)
        (told,) = json.loads(self.ask("verify", "--json", directory=self.target).output)
        self.assertEqual((told["sound"], told["exported-for"]), (True, "gamma.example"))
        self.assertEqual(self.ask("find", "m-2", directory=self.target).exit_code, 0)
        self.assertNotIn("None", self.ask("find", "m-2", directory=self.target).output)
        self.assertEqual(len(self.ask("tail", directory=self.target).output.splitlines()), 5)
        _, path = sorted(self.target.rglob("*.jsonl"))
        whole = path.read_bytes()
        one, two, three = whole.splitlines(keepends=True)
        for changed, line in (
            (whole.replace(b'"entry":[8]', b'"entry":[9]'), 3),
            (one + three, 2),
            (one + three + two, 2),
            (whole[:-1], 3),
            (two + three, 1),
        ):
            self.assertNotEqual(changed, whole)
            path.write_bytes(changed)
            result = self.ask("verify", directory=self.target)
            self.assertEqual(result.exit_code, 1, changed)
            self.assertIn(f"{path}:{line}:", result.stdout)
        # The chain starts over with each file: one that repeats the end of another is out of order.
        path.write_bytes(whole)
        last = read_line(three)
        parts = parts_of(path)
        assert parts is not None
        again = path.with_name(path.name.replace(f"{parts[1]:020}", f"{last.seq:020}"))
        self.assertNotEqual(again, path)
        again.write_bytes(chained(GENESIS, three[three.index(b",") + 1 : -1])[1])
        result = self.ask("verify", directory=self.target)
        self.assertEqual(result.exit_code, 1, result.output)
        self.assertIn(f"{again}:1: record {last.seq}: out of order", result.stdout)

    def test_unreadable(self) -> None:
        """A lack of permission is no flaw of the journal, and the error names the owner."""
        (path,) = closed(self.directory)

        def denied(self: Path, *_: object) -> object:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))

        self.patch(Path, "open", denied)
        for args in (("tail",), ("find", "m-1"), ("verify",),
                     ("export", self.mktemp(), "--peer", "beta.example")):  # fmt: skip
            result = self.ask(*args)
            self.assertEqual((result.exit_code, result.stdout), (2, ""), args)
            self.assertIn(f"journal.unreadable: {path}: Permission denied", result.stderr)

    def test_none(self) -> None:
        """No journal: which one was meant, and what to do."""
        somewhere = Path(self.mktemp()).absolute()
        other = somewhere / "other"
        journal = self.directory.absolute()
        for directory, words in (
            (somewhere, f"there is no folder {somewhere}"),
            (other, f"{other} is no journal"),
            (journal.parent, f"give --directory {journal}"),
            (next(journal.glob("2*")), f"give --directory {journal}"),
            (journal / "open", f"give --directory {journal}"),
            (journal / "head", f"there is no folder {journal / 'head'}"),
        ):
            if directory == other:
                (other / "open").mkdir(parents=True)
                (other / "sub").mkdir()
                (other / "sub" / "open").touch()
            for args in (("tail",), ("tail", "-f"), ("find", "m-1"), ("verify",),
                         ("export", str(somewhere / "x"), "--peer", "beta.example")):  # fmt: skip
                result = self.ask(*args, directory=directory)
                self.assertEqual((result.exit_code, result.stdout), (1, ""), args)
                self.assertIn(words, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 2, result.stderr)


class WordsTests(JournalCase):
    """Every kind of record can be said."""

    def test_all(self) -> None:
        """With nothing but what every record has, and with everything."""
        bare = {
            "v": 1, "journal": "0" * 16, "broker": "b", "domain": "d", "stream": "s", "seq": 1,
            "time": 1,
        }  # fmt: skip
        for kind in RecordKind:
            self.assertIsInstance(said(JournalRecord(kind=kind, **bare)), str)  # type: ignore[arg-type]
