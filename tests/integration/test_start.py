# SPDX-License-Identifier: Apache-2.0
"""Reports of a start and of `check` on a machine where a daemon cannot work, or not fully."""

from __future__ import annotations

import datetime
import json
import os
import select
import shutil
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import Issued
from tests.integration.support import Daemon, Wire, body_of, certificates, message, until
from tests.integration.test_clock import listens
from tests.support.program import run

DAY = datetime.timedelta(days=1)


def dated(begins: float, ends: float) -> Issued:
    """Return a certificate that is valid from this many days from now until this many."""
    now = datetime.datetime.now(datetime.UTC)
    return certificates().issue(
        "alpha.example",
        not_before=now + begins * DAY,
        not_after=now + ends * DAY,
        srv_names=["_amqps.alpha.example"],
    )


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return inode, size and time of change of each file below a folder."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            status = os.stat(os.path.join(place, name))
            found[os.path.join(place, name)] = (
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
            )
    return found


class StartCase(SynchronousTestCase):
    timeout = 120

    def setUp(self) -> None:
        self.daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]})
        self.state = self.daemon.directory / "state"
        self.addCleanup(self.daemon.kill)

    def check(self, code: int) -> list[str]:
        """Run `check`; return its problems."""
        done = run("check", "--config", str(self.daemon.file), "--json")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual(facts["ok"], code == 0)
        self.warnings: list[str] = facts["warnings"]
        problems: list[str] = facts["problems"]
        return problems

    def refused(self, code: int = 2) -> str:
        """Start; assert that it ends with a code; return what it logged since."""
        mark = self.daemon.mark()
        self.daemon.spawn()
        self.assertEqual(self.daemon.wait(), code)
        told = self.daemon.log()[mark:]
        self.assertNotIn("Traceback", told)
        return told


class RefusalTests(StartCase):
    """Another start would find the same: exit code 2, which the unit does not try again."""

    def test_key_of_another(self) -> None:
        """The line is that of `check`: file, line, key."""
        other = certificates().issue("beta.example")
        self.daemon.settings["tls"]["private-key"] = str(other.private_key)
        self.daemon.write()
        (line,) = self.check(2)
        self.assertRegex(line, r"amqproute\.yaml:\d+: tls\.private-key: tls\.key: ")
        self.assertIn(line, self.refused())

    def test_newer_store(self) -> None:
        """One that a newer release wrote, in the database or in its log."""
        self.daemon.start()
        self.daemon.stop()
        database, log = self.state / "store.db", self.state / "store.db-wal"
        with closing(sqlite3.connect(database)) as connection:
            older = database.read_bytes()
            connection.execute("PRAGMA user_version=98")
            newer = log.read_bytes()
        # Closed, it is in the database; a newer release that crashed leaves it in the log.
        for in_database, in_log in ((database.read_bytes(), b""), (older, newer)):
            database.write_bytes(in_database)
            log.write_bytes(in_log)
            (self.state / "store.db-shm").unlink(missing_ok=True)
            (line,) = self.check(2)
            self.assertIn("has schema version 98, this release knows", line)
            self.assertRegex(line, r"amqproute\.yaml:\d+: state-directory: ")
            self.assertIn(line, self.refused())

    def test_damaged_store(self) -> None:
        """Pages that cannot be read, and a store that is not there any more."""
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"x" * 500) for _ in range(50)])
        self.daemon.stop()
        database = self.state / "store.db"
        octets = database.read_bytes()
        database.write_bytes(octets[:100] + b"\xff" * 100 + octets[200:])
        before = state_of(self.state)
        (line,) = self.check(2)
        self.assertEqual(state_of(self.state), before)
        self.assertRegex(line, r"state-directory: the database /\S+/store\.db is damaged \(")
        told = self.refused()
        self.assertIn(line, told)
        database.unlink()
        before = state_of(self.state)
        (line,) = self.check(2)
        self.assertEqual(state_of(self.state), before)
        self.assertIn("store.db is missing, and a store was here", line)
        self.assertIn("amqproute store accept-loss database-missing-", line)
        self.assertIn(line, self.refused())


class InvalidCertificateTests(StartCase):
    """A certificate of ours that is not valid now: the daemon runs without TLS until it is."""

    def use(self, issued: Issued) -> None:
        """Put a certificate and its key where the configuration says."""
        for name, source in (("chain", issued.chain), ("key", issued.private_key)):
            fresh = self.daemon.directory / f"{name}.new"
            shutil.copyfile(source, fresh)
            fresh.chmod(0o600)
            fresh.rename(self.daemon.directory / f"{name}.pem")

    def go(self, issued: Issued, code: str) -> None:
        directory = self.daemon.directory
        self.daemon.settings["tls"].update(
            {
                "certificate": str(directory / "chain.pem"),
                "private-key": str(directory / "key.pem"),
                "watch": 1,
            }
        )
        calls = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        calls.settimeout(30)
        via = f"amqps://127.0.0.1:{calls.getsockname()[1]}"
        self.daemon.write(routes=[{"domain": "beta.example", "via": via}])
        self.use(issued)
        (line,) = self.check(2)
        self.assertIn(f"tls.certificate: {code}: ", line)
        done = run("check", "--config", str(self.daemon.file))
        self.assertIn("it would start without TLS, and dial nobody", done.stderr)
        self.daemon.start()
        for port in (self.daemon.tls, self.daemon.upgrade):
            self.assertFalse(listens(port))
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"x")])
            self.assertEqual(body_of(wire.consume("q", 1)[0]), b"x")
            wire.publish("orders@beta.example", [message(b"y")])
        # It does not even try: its words are those of the certificate, and nobody was called.
        self.daemon.wait_log(rf"127.0.0.1:[0-9]+ cannot be reached .*{code}: ", seconds=30)
        self.assertEqual(select.select([calls], [], [], 0)[0], [])
        self.assertIn(code.replace(".", r"\."), self.status(1))
        mark = self.daemon.mark()
        self.use(dated(-1, 100))
        self.daemon.wait_log("our certificate is valid now", mark, 30)
        until(lambda: listens(self.daemon.tls) and listens(self.daemon.upgrade), "TLS", 30)
        calls.accept()[0].close()
        self.assertEqual(self.status(1), "")  # what remains is that beta does not answer
        self.assertEqual(self.check(0), [])
        self.daemon.stop()
        self.daemon.check()

    def status(self, code: int) -> str:
        """Return the code of the alarm about the certificate, as a pattern; empty for none."""
        done = run("status", "--config", str(self.daemon.file), "--json")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        alarms = [row for row in json.loads(done.stdout)["alarms"] if row["type"] == "certificate"]
        return "".join(str(row["code"]).replace(".", r"\.") for row in alarms)

    def test_expired(self) -> None:
        self.go(dated(-9, -1), "tls.expired")

    def test_not_yet_valid(self) -> None:
        self.go(dated(1, 9), "tls.not-yet-valid")


class MachineTests(StartCase):
    """The findings of `check` beside the files; nothing is opened for writing."""

    def test_ports(self) -> None:
        """Ports and sockets that others have, and places where no socket can be."""
        with (
            socket.create_server(("127.0.0.1", self.daemon.plain)),
            socket.socket(socket.AF_UNIX) as other,
        ):
            other.bind(self.daemon.socket)
            other.listen()
            problems = self.check(2)
            self.assertEqual(len(problems), 2, problems)
            self.assertRegex(problems[0], r"listen\[0\]\.endpoint: another process listens at /")
            self.assertRegex(
                problems[1], rf"listen\[1\]\.endpoint: port {self.daemon.plain} at .* is taken"
            )
        # A socket that a daemon which is gone has left is none.
        self.assertEqual(self.check(0), [])
        for path, words in (
            (f"{self.daemon.directory}/none/s", "there is no directory"),
            (str(self.daemon.file), "is no socket"),
        ):
            self.daemon.settings["listen"][0]["endpoint"] = f"unix:{path}"
            self.daemon.write()
            (line,) = self.check(2)
            self.assertIn(words, line)

    def test_key(self) -> None:
        """A key that every user can read."""
        key = Path(self.daemon.settings["tls"]["private-key"])
        key.chmod(0o644)
        self.addCleanup(key.chmod, 0o600)
        (line,) = self.check(2)
        self.assertIn("tls.private-key: ", line)
        self.assertIn(f"chmod o= {key}", line)
        done = run("check", "--config", str(self.daemon.file))
        self.assertIn("it would start with a key that others can read", done.stderr)
        self.daemon.start()
        self.assertEqual(self.check(0), [])
        self.assertTrue(any(f"chmod o= {key}" in each for each in self.warnings))
        told = [line for line in self.daemon.log().splitlines() if "open to every user" in line]
        self.assertEqual(len(told), 1, told)

    def test_put_back(self) -> None:
        """A setting that a reload cannot change is reported, until it is as it is in force."""
        self.daemon.start()
        begun = list(self.daemon.settings["listen"])
        words = "changes of listen take effect at the next start"
        for listen, count in ((begun[:-1], 1), (begun[:-1], 2), (begun, 2)):
            self.daemon.reload(listen=listen)
            self.assertEqual(self.daemon.log().count(words), count)

    def test_at_next_start(self) -> None:
        """So are single settings of groups of which a reload takes the others."""
        self.daemon.start()
        tls = {**self.daemon.settings["tls"], "watch": "1h"}
        self.daemon.reload(tls=tls, relay={"connect-timeout": "9s"})
        words = "changes of relay.connect-timeout, tls.watch take effect at the next start"
        self.assertEqual(self.daemon.log().count(words), 1)

    def test_key_in_chain(self) -> None:
        """A private key in the file of the certificates, which every user can read."""
        tls = self.daemon.settings["tls"]
        chain = Path(self.mktemp()).absolute()
        chain.write_bytes(
            Path(tls["certificate"]).read_bytes() + Path(tls["private-key"]).read_bytes()
        )
        chain.chmod(0o644)
        self.daemon.settings["tls"] = {**tls, "certificate": str(chain)}
        self.daemon.write()
        (line,) = self.check(2)
        self.assertIn(f"tls.certificate: {chain} has a private key", line)

    def test_directory(self) -> None:
        """A state directory that is none, or that cannot be made."""
        (self.daemon.directory / "file").write_text("x")
        for path in ("file", "file/state"):
            self.daemon.write(**{"state-directory": str(self.daemon.directory / path)})
            (line,) = self.check(2)
            self.assertRegex(line, "state-directory: .*file is no directory")

    def test_running(self) -> None:
        """Of a daemon that runs nothing is a problem, and its files stay as they are."""
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"x")])
        before = state_of(self.state)
        self.assertEqual(self.check(0), [])
        after = state_of(self.state)
        beside = {name for name in {*before, *after} if "/journal/" not in name}
        self.assertEqual(
            {name: after.get(name) for name in beside}, {name: before.get(name) for name in beside}
        )
        # As ExecReload= of the unit does it.
        self.daemon.signal(signal.SIGHUP)
        self.daemon.wait_notice(b"READY=1")
        self.daemon.check()

    def test_crashed(self) -> None:
        """Leftovers of a crash are no problem, and stay as they are."""
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"x"), message(b"y" * 100_000)])
            wire.publish("orders@beta.example", [message(b"z")])
        self.daemon.kill()
        before = state_of(self.state)
        done = run("check", "--config", str(self.daemon.file))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 more with relay queues", done.stdout)
        self.assertEqual(state_of(self.state), before)
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(len(wire.consume("q", 2)), 2)
        self.daemon.stop()
        self.daemon.check()
