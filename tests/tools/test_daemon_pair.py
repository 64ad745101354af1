# SPDX-License-Identifier: Apache-2.0
"""The pair of organizations and its load, as far as no process is needed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.command_error import CommandError
from amqproute.config import check_files, load
from amqproute.message import Message
from amqproute.tools import daemon_pair as pair_module
from amqproute.tools.daemon_pair import (
    LONGEST_SOCKET_PATH,
    ChildProcess,
    DaemonPair,
    child_environment,
    free_ports,
)
from amqproute.tools.demo import DemoMessage
from amqproute.tools.load_worker import MessageNumbers, percentiles
from amqproute.wire.amqp10 import spec


class PairTests(SynchronousTestCase):
    def directory(self) -> Path:
        return Path(self.mktemp()).absolute()

    def test_configurations_check(self) -> None:
        """Both configurations pass the daemon's own check, and none mentions the other side."""
        with DaemonPair(self.directory()) as pair:
            for daemon, other in zip(pair.daemons, reversed(pair.daemons), strict=True):
                config = load(daemon.config_path)
                self.assertEqual(check_files(config), [])
                self.assertEqual(config.domains, (daemon.domain,))
                text = daemon.config_path.read_text()
                self.assertNotIn(other.domain, text)
                self.assertNotIn(str(other.tls_port), text)

    def test_zone(self) -> None:
        """The zone leads to the ports where peers are awaited."""
        with DaemonPair(self.directory()) as pair:
            zone = (pair.directory / "zone.txt").read_text()
            for daemon in pair.daemons:
                self.assertIn(f"SRV 10 0 {daemon.tls_port} {daemon.host}.", zone)

    def test_directory_stays_as_it_was(self) -> None:
        """A directory with something in it is refused and left alone."""
        directory = self.directory()
        directory.mkdir()
        (directory / "mine").write_text("dear")
        refusal = self.assertRaises(CommandError, DaemonPair, directory)
        self.assertEqual((refusal.code, refusal.exit_code), ("pair.directory", 2))
        self.assertEqual([path.name for path in directory.iterdir()], ["mine"])

    def test_temporary_directory_goes(self) -> None:
        """Nothing stays of a pair without a directory of its own, nor of one that failed."""
        home = self.directory()
        home.mkdir()
        self.patch(tempfile, "tempdir", str(home))
        with DaemonPair() as pair:
            self.assertEqual(pair.directory.parent, home)
        self.assertEqual(list(home.iterdir()), [])

        def fail(*_: object, **__: object) -> None:
            raise OSError("disk full")

        self.patch(pair_module, "issue", fail)
        self.assertRaises(OSError, DaemonPair)
        self.assertEqual(list(home.iterdir()), [])

    def test_long_paths(self) -> None:
        """In a directory with a long name the sockets go where their paths are short."""
        with DaemonPair(self.directory() / ("long" * 30)) as pair:
            for daemon in pair.daemons:
                self.assertLess(len(os.fsencode(daemon.socket_path)), LONGEST_SOCKET_PATH)
            run = pair.alpha.socket_path.parent
            self.assertTrue(run.is_dir())
        self.assertFalse(run.exists())

    def test_free_ports(self) -> None:
        """The ports are different, and not among those of outgoing connections."""
        ports = free_ports(10)
        self.assertEqual(len(set(ports)), 10)
        self.assertLess(max(ports), 32768)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.assertFalse(pair_module._is_free(taken.getsockname()[1]))

    def test_free_ports_again(self) -> None:
        """A port that was found, and on which nobody listens yet, is not found by the next one."""
        self.patch(pair_module, "_own_ports", lambda: range(20000, 20004))
        self.patch(pair_module, "_found", deque([20000, 20001, 20003]))
        self.patch(pair_module, "_is_free", lambda port: True)
        self.assertEqual(free_ports(1), [20002])
        self.assertRaises(CommandError, free_ports, 1)

    def test_ports_of_one_process(self) -> None:
        """No other process is given a port of this one; when no ports are left, they share."""
        guards: list[socket.socket] = []
        self.addCleanup(lambda: [each.close() for each in guards])
        self.patch(pair_module, "_guards", guards)
        self.patch(pair_module, "_PORTS", free_ports(2))
        self.patch(pair_module, "_PORTS_OF_PROCESS", 1)
        draws = [pair_module._own_ports.__wrapped__() for _ in range(3)]
        self.assertEqual(len(guards), 2)
        self.assertEqual([len(each) for each in draws], [0, 0, 2])

        command = "from amqproute.tools.daemon_pair import free_ports; print(free_ports(100))"
        said = subprocess.run(
            [sys.executable, "-c", command],
            env=child_environment(),
            capture_output=True,
            check=True,
        )
        theirs = json.loads(said.stdout)
        self.assertEqual(len(theirs), 100)
        self.assertFalse(set(theirs) & set(free_ports(100)))

    def test_no_service_manager_for_children(self) -> None:
        """A service manager's variables for this process are not passed on."""
        self.patch(os, "environ", {**os.environ, "WATCHDOG_USEC": "1", "NOTIFY_SOCKET": "/x"})
        self.assertFalse({"WATCHDOG_USEC", "NOTIFY_SOCKET"} & set(child_environment()))


class NumberingTests(SynchronousTestCase):
    def test_messages(self) -> None:
        """A message has its number as message-id and in its body, is durable, and has its size."""
        numbering = MessageNumbers(10, 100, "orders@beta.example")
        for number in (0, 9):
            encoded = numbering.encode(number, 1234)
            self.assertEqual(numbering.decode(encoded), (number, 1234))
            message = Message(encoded)
            self.assertTrue(message.header.durable)
            self.assertEqual(message.properties.to, "orders@beta.example")
            self.assertEqual(message.properties.message_id, (1 << 40) + number)
            self.assertEqual(message.offsets.body_code, spec.SECTION_DATA)
        self.assertEqual(len(numbering.encode(0, 0)), len(numbering.encode(9, 1 << 60)))

    def test_large_and_smallest(self) -> None:
        """Bodies may have any size from sixteen octets up."""
        for size in (16, 17, 255, 256, 70000):
            numbering = MessageNumbers(1, size)
            self.assertEqual(numbering.decode(numbering.encode(0, 7)), (0, 7))
        self.assertRaises(CommandError, MessageNumbers, 1, 15)

    def test_percentiles(self) -> None:
        """In milliseconds; of nothing there are none."""
        self.assertEqual(percentiles([]), {})
        found = percentiles([1_000_000 * n for n in range(100, 0, -1)])
        self.assertEqual(found, {"p50": 50.0, "p99": 99.0, "max": 100.0})


class PassageTests(SynchronousTestCase):
    def test_verdict(self) -> None:
        """Only what came whole and once is perfect."""
        whole = {"sent": 3, "accepted": 3, "received": 3, "seconds": 1.5}
        self.assertTrue(DemoMessage(**whole).is_perfect)
        self.assertEqual(DemoMessage(**whole).rate, 2.0)
        for flaw in ({"lost": 1}, {"duplicated": 1}, {"accepted": 2}, {"received": 2}, {"sent": 4}):
            self.assertFalse(DemoMessage(**{**whole, **flaw}).is_perfect, flaw)


READY = (
    "import os, socket;"
    " socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"
    ".sendto(b'STATUS=up\\nREADY=1', os.environ['NOTIFY_SOCKET']);"
)
"""A program that says that it is ready."""


class ChildTests(SynchronousTestCase):
    def child(self, program: str) -> ChildProcess:
        directory = Path(tempfile.mkdtemp())
        child = ChildProcess("child", ("-c", program), directory, directory)
        self.addCleanup(directory.rmdir)
        self.addCleanup(child.log_path.unlink)
        self.addCleanup(child.stop)
        child.start()
        return child

    def test_ends_instead_of_starting(self) -> None:
        """The refusal names the exit code and shows what the process wrote last."""
        child = self.child("raise SystemExit('no such luck')")
        refusal = self.assertRaises(CommandError, child.wait_ready)
        self.assertEqual(refusal.code, "pair.start")
        self.assertIn("ended with 1", refusal.words)
        self.assertEqual(refusal.details, ("no such luck",))

    def test_ended_by_itself(self) -> None:
        """A query about a crashed process is answered with the end of its log."""
        child = self.child(READY + "raise SystemExit('out of luck')")
        child.wait_ready()
        with self.assertRaises(CommandError) as caught:
            while True:
                self.assertGreaterEqual(child.cpu_seconds, 0.0)
        self.assertEqual(caught.exception.code, "pair.ended")
        self.assertEqual(caught.exception.details, ("out of luck",))
        self.assertTrue(child.has_ended)
        child.stop()
        self.assertFalse(child.has_ended)

    def test_killed_and_started_again(self) -> None:
        """After a kill the same child can be started and awaited again."""
        child = self.child(READY + "import time; time.sleep(60)")
        child.wait_ready()
        first = child.pid
        child.kill()
        self.assertIsNone(child.pid)
        child.start()
        child.wait_ready()
        self.assertNotIn(child.pid, (None, first))
        self.assertEqual(child.stop(), -15)

    def test_never_ready(self) -> None:
        """A deadline ends the waiting; `stop` ends what does not listen to SIGTERM."""
        child = self.child(
            "import signal, time; signal.signal(15, signal.SIG_IGN);"
            " print('deaf', flush=True); time.sleep(60)"
        )
        refusal = self.assertRaises(CommandError, child.wait_ready, 1.0)
        self.assertIn("not ready", refusal.words)
        self.assertGreater(child.peak_bytes, 0)
        self.assertGreaterEqual(child.cpu_seconds, 0.0)
        self.assertEqual(child.stop(0.2), -9)
        self.assertIsNone(child.pid)
