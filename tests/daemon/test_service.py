# SPDX-License-Identifier: Apache-2.0
"""The process and its service manager: notifications at start, reload and stop."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from amqproute.broker.publish_gate import DISK, PublishGate
from amqproute.config import Config, loads
from amqproute.daemon import service
from amqproute.daemon.config_reload import Apply, ConfigReloader, ReloadReport
from amqproute.daemon.log_bounds import GROUPS, SUM_SECONDS
from amqproute.daemon.log_output import LogOutput
from amqproute.errors import ConfigError, StoreError
from tests.daemon.test_notify import ServiceManager

FILE = "domains: [alpha.example]\n"
IDENTITY = "STATUS=container broker1.alpha.example, domains alpha.example"
REFUSED = "STATUS=the last reload was refused, the configuration before it is in force"


class FakeHouse:
    """A application that has started when the test says so.

    Attributes:
        configurations: what it was told to go by, one for each reload.
    """

    def __init__(self, config: Any, reactor: Any, on_death: Any) -> None:
        self.container_id = "broker1.alpha.example"
        self.broker = SimpleNamespace(gate=PublishGate())
        self.journaling = SimpleNamespace(configured=lambda *_: None)
        self.failure: str | None = None
        self.started: Deferred[None] = Deferred()
        self.configurations: list[Any] = []
        self.reloader = ConfigReloader(config)
        self.reloader.register("fake", self._prepare)

    async def start(self) -> None:
        await self.started

    async def stop(self, extend: Any) -> None:
        extend(17.0)

    @property
    def problems(self) -> str:
        return "; ".join(self.broker.gate.reasons.values())

    @property
    def config(self) -> Config:
        return self.reloader.config

    def reload(self, config: Config) -> ReloadReport:
        return self.reloader.reload(config)

    def _prepare(self, config: Config) -> Apply:
        if config.domains == ("wrong.example",):
            raise ConfigError(["a thing that only a running daemon knows"])
        return lambda: self.configurations.append(config)


class ServiceTests(TestCase):
    def setUp(self) -> None:
        # What a daemon sets for its whole process is not for the tests that come after.
        interval, threshold = sys.getswitchinterval(), gc.get_threshold()
        self.addCleanup(sys.setswitchinterval, interval)
        self.addCleanup(gc.set_threshold, *threshold)
        gc.unfreeze()  # what is frozen from here on has been frozen by the daemon
        self.addCleanup(gc.unfreeze)
        self.addCleanup(signal.signal, signal.SIGHUP, signal.getsignal(signal.SIGHUP))
        self.manager = ServiceManager(f"@amqproute-test-{os.getpid()}-{id(self)}")
        self.addCleanup(self.manager.close)
        self.patch(os, "environ", {**os.environ, "NOTIFY_SOCKET": self.manager.address})
        os.environ.pop("WATCHDOG_USEC", None)
        self.patch(service, "Application", FakeHouse)
        self.clock = Clock()
        self.file = Path(self.mktemp())
        self.file.write_text(FILE)
        self.service = service.DaemonService(loads(FILE, self.file), self.file)

    def start(self) -> FakeHouse:
        """Begin to start; the application is not ready yet."""
        self.service.startService()
        application: Any = self.service.application
        self.addCleanup(self.service.stopService)
        return application

    def run_up(self) -> FakeHouse:
        """Start wholly; forget what was said."""
        application = self.start()
        application.started.callback(None)
        self.manager.heard()
        return application

    def reload(self, text: str) -> list[str]:
        """Reload with a file that says this; return what the manager heard, without time stamps."""
        self.file.write_text(text)
        self.service.reload()
        begun, *rest = self.manager.heard()
        self.assertRegex(begun, r"\ARELOADING=1\nMONOTONIC_USEC=\d+\nSTATUS=reloading\Z")
        return rest

    def test_log(self) -> None:
        """The log learns which partners are named, also at a reload, and sums up in time."""
        self.patch(service, "_clock", lambda: self.clock)
        written: list[LogEvent] = []
        output = LogOutput(cast(ILogObserver, written.append), {}, self.clock.seconds)
        globalLogPublisher.addObserver(output.observer)
        self.addCleanup(globalLogPublisher.removeObserver, output.observer)
        log = Logger(namespace="amqproute.relay.backoff")

        def fail(count: int) -> int:
            before = len(written)
            for number in range(count):
                log.info("{destination}: {number}", destination="beta.example", number=number)
            return len(written) - before

        def sums() -> list[str]:
            texts = [formatEvent(event) for event in written]
            return [text for text in texts if "lines were left out" in text]

        self.service = service.DaemonService(loads(FILE, self.file), self.file, output)
        application = self.start()
        application.started.callback(None)
        unnamed = GROUPS["destination"].party.burst
        self.assertEqual(fail(100), unnamed)
        self.assertEqual(sums(), [])
        self.clock.advance(SUM_SECONDS)
        self.assertEqual(len(sums()), 1)
        self.assertIn(f"{100 - unnamed} lines were left out", sums()[0])
        self.assertIn("about beta.example", sums()[0])
        self.manager.heard()
        self.reload(FILE + "peers: {beta.example: {}}\n")
        self.assertEqual(fail(100), GROUPS["partner"].party.burst)
        self.service.stopService()
        self.assertEqual(len(sums()), 2, "what is due at the stop")

    def test_start(self) -> None:
        """More time is asked for while it starts; then it is ready, and says who it is."""
        self.patch(service, "_clock", lambda: self.clock)
        application = self.start()
        more = "EXTEND_TIMEOUT_USEC=30000000"
        self.assertEqual(self.manager.heard(), ["STATUS=recovering what the store holds", more])
        self.clock.pump([10.0] * 3)
        self.assertEqual(self.manager.heard(), [more] * 3)
        application.started.callback(None)
        self.assertEqual(self.manager.heard(), [f"READY=1\n{IDENTITY}"])
        self.clock.advance(60)
        self.assertEqual(self.manager.heard(), [])

    def test_start_without_end(self) -> None:
        """More time is not asked for without end."""
        self.patch(service, "_clock", lambda: self.clock)
        application = self.start()
        self.clock.pump([10.0] * 3000)
        self.manager.heard()
        self.clock.pump([10.0] * 10)
        self.assertEqual(self.manager.heard(), [])
        application.started.callback(None)

    async def test_hangup_while_starting(self) -> None:
        """A hang-up before the daemon is ready neither ends it nor is lost."""
        application = self.start()
        os.kill(os.getpid(), signal.SIGHUP)
        await deferLater(reactor, 0)
        self.assertEqual(application.configurations, [])
        self.file.write_text("domains: [beta.example]\n")
        application.started.callback(None)
        self.assertEqual([each.domains for each in application.configurations], [("beta.example",)])

    async def test_hangup(self) -> None:
        """SIGHUP reloads."""
        application = self.run_up()
        os.kill(os.getpid(), signal.SIGHUP)
        await deferLater(reactor, 0)
        self.assertEqual(len(application.configurations), 1)

    def test_reload(self) -> None:
        """The status says who the daemon is by now."""
        self.run_up()
        heard = self.reload("domains: [beta.example]\n")
        self.assertEqual(
            heard, ["READY=1\nSTATUS=container broker1.alpha.example, domains beta.example"]
        )

    def test_reload_refused(self) -> None:
        """A file that is not in force is shown until one is."""
        application = self.run_up()
        for text in ("domain: [typo.example]\n", "domains: [wrong.example]\n"):
            self.assertEqual(self.reload(text), [f"READY=1\n{REFUSED}"])
        application.broker.gate.close(DISK, "the disk is full")
        application.broker.gate.open(DISK)
        closed, opened = self.manager.heard()
        self.assertEqual(closed, REFUSED.replace("=", "=the disk is full; "))
        self.assertEqual(opened, REFUSED)
        self.assertEqual(self.reload(FILE), [f"READY=1\n{IDENTITY}"])

    def test_no_credit(self) -> None:
        """The lack of credit for publishers is shown for as long as it lasts."""
        application = self.run_up()
        application.broker.gate.close(DISK, "the disk is full")
        application.broker.gate.open(DISK)
        self.assertEqual(self.manager.heard(), ["STATUS=the disk is full", IDENTITY])

    def test_stop_while_starting(self) -> None:
        """A service that has begun to start is stopped in order once it has; that is no failure."""
        self.patch(service, "_clock", lambda: self.clock)
        application = self.start()
        self.manager.heard()
        stopped = self.service.stopService()
        self.clock.pump([10.0] * 3)
        self.assertNoResult(stopped)
        self.assertEqual(self.manager.heard(), ["STOPPING=1\nSTATUS=stopping"])
        application.started.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.manager.heard(), ["EXTEND_TIMEOUT_USEC=17000000"])
        self.assertEqual(self.service.exit_code, 0)
        self.assertFalse(gc.get_freeze_count())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_starting_in_vain(self) -> None:
        """A start that fails after it was told to stop has failed, and is over."""
        application = self.start()
        stopped = self.service.stopService()
        application.started.errback(StoreError("the disk is broken"))
        self.successResultOf(stopped)
        self.assertEqual(self.service.exit_code, 1)

    async def test_stop(self) -> None:
        """Time to drain is asked for, and what happens then is no news any more."""
        application = self.run_up()
        await self.service.stopService()
        self.assertEqual(
            self.manager.heard(), ["STOPPING=1\nSTATUS=stopping", "EXTEND_TIMEOUT_USEC=17000000"]
        )
        application.broker.gate.close(DISK, "the disk is full")
        self.service.reload()
        self.assertEqual(self.manager.heard(), [])
