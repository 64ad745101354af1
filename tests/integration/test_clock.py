# SPDX-License-Identifier: Apache-2.0
"""A daemon whose wall clock is wrong at start, or jumps."""

from __future__ import annotations

import socket
import sqlite3
import time

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from amqproute.wire.amqp10 import codec, spec
from tests.integration.support import Daemon, Wire, Zone, body_of, message, new_directory, until
from tests.network.campaign import CannotRun
from tests.network.surroundings import WallClock
from tests.support.program import run

YEAR = 365 * 86_400


def listens(port: int) -> bool:
    """Tell whether somebody listens at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class WrongClockTests(SynchronousTestCase):
    def setUp(self) -> None:
        try:
            self.clock = WallClock(new_directory("clock"))
        except CannotRun as error:
            raise SkipTest(str(error)) from error
        self.alpha = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]})
        self.alpha.is_executed = True
        self.addCleanup(self.alpha.stop)

    def start(self) -> None:
        with self.clock.for_children():
            self.alpha.spawn()
        self.alpha.wait_ready()

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command as an operator; return exit code and output."""
        done = run(*words, "--config", str(self.alpha.file))
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout + done.stderr

    def publish(self, node: str = "q", header: spec.Header | None = None) -> None:
        encoded = message(b"x")
        if header is not None:
            bare = encoded[len(codec.encode(spec.Header(durable=True))) :]
            encoded = codec.encode(header) + bare
        with Wire(self.alpha.plain) as wire:
            wire.publish(node, [encoded])

    def test_before_the_certificate(self) -> None:
        """It starts, serves those who need no certificate, says so, and heals by itself."""
        self.clock.set(-2 * YEAR)
        self.start()
        self.publish()
        self.publish("orders@beta.example")
        with Wire(self.alpha.plain) as wire:
            self.assertEqual(body_of(wire.consume("q", 1)[0]), b"x")
        self.assertFalse(listens(self.alpha.tls) or listens(self.alpha.upgrade))
        code, told = self.command("status")
        self.assertEqual(code, 1, told)
        self.assertIn("is valid from", told)
        self.assertIn("set the clock (timedatectl) or renew the files", told)
        self.clock.set(0)
        until(lambda: listens(self.alpha.tls) and listens(self.alpha.upgrade), "TLS")
        # Two years are a jump: the operator is asked, as always.
        until(lambda: "clock accept" in self.command("status")[1], "the question")
        code, told = self.command("clock", "accept")
        self.assertEqual(code, 0, told)
        self.assertNotIn("clock", self.command("status")[1])
        self.assertNotIn("Traceback", self.alpha.log())

    def test_jump(self) -> None:
        """Nothing expires for it, and the command that `status` names ends it."""
        self.start()
        for _ in range(20):
            self.publish("orders@beta.example")
            self.publish(header=spec.Header(durable=True, ttl=60_000))
        self.clock.set(YEAR)
        self.alpha.wait_log("the wall clock jumped ahead by")
        code, told = self.command("clock", "show")
        self.assertEqual((code, "jumped" in told), (1, True), told)
        self.assertIn("20 messages here, 20 on their way", self.command("status")[1])
        advice = told[told.index("amqproute clock accept") :].split()[1:3]
        code, told = self.command(*advice)
        self.assertEqual((code, "fits" in told), (0, True), told)
        self.assertIn("20 messages here, 20 on their way", self.command("status")[1])
        with Wire(self.alpha.plain) as wire:
            self.assertEqual(len(wire.consume("q", 20)), 20)
        self.alpha.check()

    def test_restart(self) -> None:
        """After a start a year later every message to others has one attempt before it expires."""
        self.start()
        for _ in range(5):
            self.publish("orders@beta.example")
        self.alpha.stop()
        self.clock.set(YEAR // 2)  # the certificate is valid for longer
        self.start()
        self.alpha.wait_log(r"5 entries|5 messages")
        until(
            lambda: ("0 on their way" in self.command("status")[1]) or None,
            "the end of their lives",
            30,
        )
        self.assertRegex(self.alpha.log(), r"beta\.example (cannot be reached|is dead)")
        self.alpha.check()

    def test_sleep(self) -> None:
        """After a sleep longer than their lives messages are tried, and nobody is asked."""
        zone = Zone()
        self.addCleanup(zone.close)
        beta = Daemon("beta.example", nameserver=zone.port, changes={"nodes": [{"name": "orders"}]})
        self.addCleanup(beta.kill)
        # From the start: a look-up that has failed is not made again for some seconds.
        zone.point("alpha.example", self.alpha.tls)
        zone.point("beta.example", beta.tls)
        self.alpha.write(resolver=beta.settings["resolver"], relay={"first-retry": 200})
        self.start()
        for _ in range(5):
            self.publish("orders@beta.example")
        self.alpha.wait_log("beta.example cannot be reached")
        beta.start()
        self.clock.sleep(10 * 86_400)
        self.alpha.wait_log("the machine was suspended")
        with Wire(beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", 5)), 5)
        code, told = self.command("clock", "show")
        self.assertEqual((code, "fits" in told), (0, True), told)
        self.alpha.check()

    def test_receipts(self) -> None:
        """However often it starts with a wrong clock, no receipt is forgotten early."""
        zone = Zone()
        self.addCleanup(zone.close)
        zone.point("alpha.example", self.alpha.tls)
        beta = Daemon("beta.example", nameserver=zone.port)
        self.addCleanup(beta.kill)
        day = 86_400
        self.alpha.write(nodes=[{"name": "q"}], relay={"lifetime": 3600, "receipt-lifetime": day})
        self.start()
        self.alpha.stop()
        store = self.alpha.directory / "state" / "store.db"

        def execute(statement: str, *values: object) -> list[tuple[object, ...]]:
            connection = sqlite3.connect(store)
            with connection:
                found = connection.execute(statement, values).fetchall()
            connection.close()
            return found

        now_ms = time.time_ns() // 1_000_000
        columns = "receipt (stream, low, high, at, steps)"
        execute(f"INSERT INTO {columns} VALUES ('s', 5, 5, ?, '')", now_ms)
        beta.start()
        for number in range(2):
            self.clock.set((number + 1) * 30 * day)
            self.start()
            with Wire(beta.plain) as wire:
                wire.publish("q@alpha.example", [message(b"%d" % number)])
            with Wire(self.alpha.plain) as wire:
                self.assertEqual(body_of(wire.consume("q", 1)[0]), b"%d" % number)
            self.alpha.stop()
            kept = execute("SELECT low FROM receipt WHERE stream = 's'")
            self.assertEqual(kept, [(5,)], number)
            ((newest_ms,),) = execute("SELECT max(at) FROM receipt")
            assert isinstance(newest_ms, int)
            self.assertLess(newest_ms, now_ms + day * 1000)
