# SPDX-License-Identifier: Apache-2.0
"""A daemon with a damaged store: it refuses, names the missing messages, and has remedies."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.message import encode_annotations
from amqproute.values import RETURN_TO
from amqproute.wire.amqp10 import codec, sections, spec
from tests.integration.support import Daemon, Wire, body_of, message, until
from tests.support.program import run

MESSAGES = 41
FINDING = re.compile(r"(?:log|rows|database)-[a-z]+-[0-9a-f]{8};")
HEAD = codec.encode(spec.Header(durable=True)) + encode_annotations(
    {RETURN_TO: "reports@alpha.example"}
)


class DamagedStoreTests(SynchronousTestCase):
    def setUp(self) -> None:
        nodes = [{"name": "q"}, {"name": "reports"}]
        self.daemon = Daemon("alpha.example", changes={"nodes": nodes}).start()
        self.addCleanup(self.daemon.kill)
        self.state = self.daemon.directory / "state"
        large = [b"%d:" % n * (20_000 if n % 10 == 0 else 10) for n in range(MESSAGES)]
        with Wire(self.daemon.plain) as wire:
            for body in large:
                wire.publish("q", [HEAD + sections.encode_section(0x75, body)])
        self.bodies = large
        # The journal's disk is up to a second behind.
        until(lambda: self.journal().count('"received"') > 0, "records in the journal")

        def are_told() -> bool:
            return sum(line.count('"entry":') for line in self.journal().splitlines()) >= MESSAGES

        until(are_told, "a record of each message")
        self.daemon.kill()

    def journal(self) -> str:
        return "".join(path.read_text() for path in (self.state / "journal").rglob("*.jsonl"))

    def cli(self, *words: str) -> tuple[int, str, str]:
        done = run("store", *words, "--config", str(self.daemon.file))
        return done.returncode, done.stdout, done.stderr

    def refused(self) -> str:
        """Start in vain; return the name of the finding."""
        before = sorted(map(str, self.state.glob("store.bodies/*")))
        mark = self.daemon.mark()
        self.daemon.spawn()
        self.assertEqual(self.daemon.wait(), 2)
        words = self.daemon.log()[mark:].split()
        (name,) = {word.rstrip(";") for word in words if FINDING.fullmatch(word)}
        after = sorted(map(str, self.state.glob("store.bodies/*")))
        self.assertEqual(after, before)
        return name

    def facts(self) -> dict[str, Any]:
        code, said, complained = self.cli("check", "--json")
        self.assertEqual((code, complained), (1, ""))
        found: dict[str, Any] = json.loads(said)
        return found

    def taken(self, count: int) -> list[bytes]:
        with Wire(self.daemon.plain) as wire:
            return [body_of(each) for each in wire.consume("q", count)]

    def test_log_is_missing(self) -> None:
        """Refused; named by the journal; accepted, it starts without them, once."""
        log = self.state / "store.db-wal"
        log.rename(self.daemon.directory / "kept-wal")
        name = self.refused()
        found = self.facts()
        self.assertEqual(found["finding"]["name"], name)
        self.assertEqual(len(found["missing"]), MESSAGES)
        self.assertEqual({one["node"] for one in found["missing"]}, {"q"})
        self.assertEqual(self.cli("accept-loss", "log-missing-00000000")[0], 1)
        code, said, complained = self.cli("accept-loss", name, "--report-senders")
        self.assertEqual((code, complained), (0, ""), said)
        self.daemon.start()
        self.daemon.wait_log("in quarantine")
        told = re.findall("[0-9]+ files .* are in quarantine in .*", self.daemon.log())
        self.assertEqual(len(set(told)), len(told), told)
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"new")])
        self.assertEqual(self.taken(1), [b"new"])
        with Wire(self.daemon.plain) as wire:
            reports = wire.consume("reports", MESSAGES)
        self.assertTrue(all(b"store.lost" in each for each in reports))
        (body,) = self.state.glob("store.quarantine/*/0*")
        self.assertGreater(body.stat().st_size, 4 * 40_000)
        self.assertFalse((self.state / "store.db.accepted").exists())
        self.assertIn("store.loss-accepted", self.after_stop())
        self.daemon.start()
        self.daemon.stop()

    def after_stop(self) -> str:
        self.daemon.stop()
        return self.journal()

    def test_journal_is_left(self) -> None:
        """The journal alone says that messages were here; accepted, their senders are told."""
        for path in self.state.glob("store.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        name = self.refused()
        self.assertEqual(name, self.refused())
        found = self.facts()
        self.assertEqual(found["finding"]["name"], name)
        self.assertEqual(len(found["missing"]), MESSAGES)
        self.assertEqual({one["node"] for one in found["missing"]}, {"q"})
        self.daemon.write(journal={"enabled": False})
        self.assertEqual(self.cli("accept-loss", name)[0], 1)
        self.daemon.write(journal={"enabled": True})
        code, said, complained = self.cli("accept-loss", name, "--report-senders")
        self.assertEqual((code, complained), (0, ""), said)
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            reports = wire.consume("reports", MESSAGES)
        self.assertTrue(all(b"store.lost" in each for each in reports))
        self.assertFalse((self.state / "store.db.accepted").exists())
        self.daemon.kill()
        self.daemon.start()
        self.daemon.stop()

    def test_journal_is_off(self) -> None:
        """It says nothing then: an empty folder is a new installation."""
        for path in self.state.glob("store.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.daemon.write(journal={"enabled": False})
        self.daemon.start()
        self.daemon.stop()

    def test_nothing_was_held(self) -> None:
        """A journal that says that all have ended is no reason to refuse."""
        self.daemon.start()
        self.assertEqual(len(self.taken(MESSAGES)), MESSAGES)
        self.daemon.stop()
        for path in self.state.glob("store.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.daemon.start()
        self.daemon.stop()

    def test_restore(self) -> None:
        """As the README says; what came since the backup is named in the log."""
        self.daemon.start()
        self.daemon.stop()
        backup = self.daemon.directory / "backup"
        shutil.copytree(self.state, backup)
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"since")])
        self.daemon.stop()
        (since,) = set(self.entries()) - set(self.entries(backup))
        for end in ("-wal", "-shm", ".mark", ".seal"):
            Path(self.state / f"store.db{end}").unlink(missing_ok=True)
        shutil.rmtree(self.state / "store.bodies")
        shutil.copy(backup / "store.db", self.state / "store.db")
        shutil.copytree(backup / "store.bodies", self.state / "store.bodies")
        self.daemon.start()
        self.daemon.wait_log(f"although the journal has them: {since};")
        self.assertEqual(len(self.taken(MESSAGES)), MESSAGES)
        self.daemon.stop()

    def entries(self, state: Path | None = None) -> list[int]:
        with closing(sqlite3.connect((state or self.state) / "store.db")) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM entry")]

    def test_one_message(self) -> None:
        """Found damaged before nodes are declared: its sender is told, and it can be released."""
        self.daemon.start()
        self.daemon.stop()
        bad = self.entries()[1]
        with closing(sqlite3.connect(self.state / "store.db", isolation_level=None)) as connection:
            connection.execute("UPDATE entry SET octets_crc = octets_crc + 1 WHERE id = ?", (bad,))
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            (report,) = wire.consume("reports", 1)
        self.assertIn(b"store.damaged", report)
        self.assertEqual(len(self.taken(MESSAGES - 1)), MESSAGES - 1)
        code, said, _ = self.cli("quarantine", "ls", "--json")
        (found,) = json.loads(said)["messages"]
        self.assertEqual((code, found["entry"]), (0, bad))
        code, _, complained = self.cli("quarantine", "release", str(bad), "--to", "q")
        self.assertEqual(code, 1)
        self.assertIn("in use", complained)
        self.daemon.stop()
        self.assertEqual(self.cli("quarantine", "release", str(bad), "--to", "q")[0], 0)
        self.daemon.start()
        self.assertEqual(self.taken(1), [body_of(message(self.bodies[1]))])
        self.daemon.stop()

    def test_header_is_gone(self) -> None:
        """Salvaged, with every message."""
        with open(self.state / "store.db-wal", "r+b") as file:
            file.write(bytes(32))
        self.refused()
        folder = self.daemon.directory / "salvaged"
        _, said, _ = self.cli("salvage", "--into", str(folder))
        commands = [line.strip() for line in said.splitlines() if line.startswith("        ")]
        self.assertEqual(len(commands), 3, said)
        for command in commands:
            subprocess.run(command, shell=True, check=True)
        self.daemon.start()
        self.assertEqual(self.taken(MESSAGES), [body_of(message(each)) for each in self.bodies])
        self.daemon.stop()

    def test_upgrade(self) -> None:
        """A store of a release that had no seal starts as ever."""
        (self.state / "store.db.seal").unlink()
        self.daemon.start()
        self.assertEqual(len(self.taken(MESSAGES)), MESSAGES)
        self.daemon.stop()
        shutil.rmtree(Path(self.state))
