# SPDX-License-Identifier: Apache-2.0
"""``amqproute journal``: what is printed, and the exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from amqproute.cli.main import amqproute
from amqproute.journal import reader
from amqproute.journal.events import Gone, Told
from amqproute.journal.export import FIELDS
from amqproute.journal.record import Kind, Record
from amqproute.journal.segments import closed
from amqproute.journal.words import said
from amqproute.values import Origin, Principal
from tests.journal.rig import ANN, NAMES, arrivals, entry
from tests.journal.test_writer import JournalCase

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
        desk.journal.note(Told(Kind.DEFERRED, desk.wall(), facts))
        desk.written()
        end = Gone(
            Kind.RELAYED,
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
        self.assertIn("1 messages wait for peer:beta.example: connect.refused", lines[2])
        self.assertIn("peer:beta.example has it, at mx.beta.example:5671", lines[3])
        self.assertIn("not here any more: relayed", lines[-1])
        self.assertIn("still here, on q", self.ask("find", "m-2").output)
        (one,) = json.loads(self.ask("find", "--entry", "2", "--json").output)
        self.assertEqual((one["kind"], one["entry"], one["message_id"]), ("received", 2, "m-2"))
        self.assertEqual(self.ask("find", "m-3").exit_code, 1)
        self.assertEqual(self.ask("find").exit_code, 2)
        self.assertEqual(self.ask("find", "m-1", "--entry", "1").exit_code, 2)

    def test_find_what_waited_long(self) -> None:
        """Attempts that failed alike are counted; the command that says why takes the entry."""
        desk = self.opened()
        queue = "amqp$out/delta.example"
        come = arrivals(desk, [entry(7, message_id="m-7", to="orders@delta.example")])
        come._came = [(queue, *each[1:]) for each in come._came]
        desk.journal.outbox.committed([come], False)
        facts = {"node": queue, "peer": "peer:delta.example", "count": 1}
        for code in ["connect.refused"] * 9 + ["connect.timeout"] * 3:
            desk.journal.note(Told(Kind.DEFERRED, desk.wall(), {**facts, "code": code}))
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
        """What somebody has written into it is shown, and ends nothing."""
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
            told = set(reader.as_json(each)) - set(Record.__dataclass_fields__) | {
                name for name in Record.__dataclass_fields__ if getattr(each, name) is not None
            }
            line = {"v", "kind", "journal", "broker", "domain", "stream", "seq", "time", "event_id"}
            self.assertLessEqual(told - line, allowed)
        self.assertEqual(records[1].digest, mine[records[1].event_id].digest)
        for secret in (b"ann", b"orders", b"127.0.0.1", b"gamma"):
            self.assertNotIn(secret, path.read_bytes())
        other = Path(self.mktemp())
        self.assertEqual(self.ask("export", str(other), "--peer", "gamma.example").exit_code, 0)
        self.assertEqual([each.entry for each in reader.records(other)], [None, 2])
        args = ("export", str(other), "--peer", "beta.example", "--day")
        self.assertEqual(self.ask(*args, "2026-11-23").exit_code, 1)
        self.assertEqual(self.ask(*args, "tomorrow").exit_code, 2)

    def test_none(self) -> None:
        """No journal: which one was meant, and what to do."""
        result = self.ask("verify", directory=Path(self.mktemp()))
        self.assertEqual(result.exit_code, 1)


class WordsTests(JournalCase):
    """Every kind of record can be said."""

    def test_all(self) -> None:
        """With nothing but what every record has, and with everything."""
        bare = {
            "v": 1, "journal": "0" * 16, "broker": "b", "domain": "d", "stream": "s", "seq": 1,
            "time": 1,
        }  # fmt: skip
        for kind in Kind:
            self.assertIsInstance(said(Record(kind=kind, **bare)), str)  # type: ignore[arg-type]
