# SPDX-License-Identifier: Apache-2.0
"""The process: reactor, signals, service manager. The one module that imports the reactor.

`run` is the entry of ``amqproute serve`` and systemd, `makeService` that of twistd. Both run a
`DaemonService`, which starts an `Application`, notifies the service manager, reloads on SIGHUP and
stops the application before the reactor ends.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from twisted.application.service import Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from amqproute import __version__
from amqproute.config.config_diff import in_words, named
from amqproute.config.loader import find, load
from amqproute.config.schema import Config
from amqproute.daemon.assembly import Application
from amqproute.daemon.config_reload import Apply, ReloadReport
from amqproute.daemon.garbage import FullCollections, set_thresholds
from amqproute.daemon.log_bounds import SUM_SECONDS
from amqproute.daemon.log_output import LogOutput, begin_logging, complain
from amqproute.daemon.notify import ServiceNotifier, StartTimeout, Watchdog, watchdog_interval
from amqproute.daemon.preflight import examine_files, problem_at
from amqproute.errors import (
    AmqprouteError,
    ConfigError,
    StoreDamaged,
    StoreError,
    StoreForeign,
    TlsError,
)
from amqproute.net.reactor import IReactor

log = Logger()

SWITCH_SECONDS = 0.0005
"""Time for which the reactor's thread may keep the interpreter while the store's writer waits.

Python's default of 5 ms is longer than a whole commit. Measured with `benchmarks/store.py` beside a
reactor that never pauses: commit p50 fell from 11 ms to between 1.5 and 3.3 ms.
"""


class Options(usage.Options):
    """Options of ``twistd amqproute``."""

    optParameters = [
        ["config", "c", None, "Configuration file (default: $AMQPROUTE_CONFIG, then /etc)."],
    ]


class DaemonService(Service):
    """The daemon as a Twisted service.

    Args:
        config: a checked configuration.
        path: its file, for reloads.
        output: the log, to change levels on reload; None leaves logging alone.
    """

    def __init__(self, config: Config, path: Path, output: LogOutput | None = None) -> None:
        self.config = config
        self.path = path
        self.exit_code = 0
        self.application: Application | None = None
        self._output = output
        self._sums: LoopingCall | None = None
        self._notifier = ServiceNotifier.from_environment(os.environ)
        self._patience: StartTimeout | None = None
        self._watchdog: Watchdog | None = None
        self._collections: FullCollections | None = None
        self._starting: Deferred[None] | None = None
        self._is_stopping = False
        self._is_ready = False
        self._is_told_to_stop = False
        self._is_reload_due = False
        self._refused = ""  # description of what the last reload has not applied

    def startService(self) -> None:
        """Start the application; the reactor stops if that fails."""
        super().startService()  # type: ignore[no-untyped-call]
        sys.setswitchinterval(SWITCH_SECONDS)
        set_thresholds()
        # At once: a SIGHUP without a handler ends the process.
        signal.signal(signal.SIGHUP, self._hangup)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._stop_requested)
        if self._output is not None:
            self._output.set_partners(self.config.names)
            self._sums = LoopingCall(self._output.sum_up)
            self._sums.clock = _clock()
            self._sums.start(SUM_SECONDS, now=False)
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._failed)

    async def _start(self) -> None:
        log.info("amqproute {version} starting, {path}", version=__version__, path=str(self.path))
        self.application = application = Application(
            self.config, cast("IReactor", reactor), self._store_died
        )
        application.reloader.register("log", self._prepare_log)
        self._notifier.status("recovering what the store holds")
        self._patience = patience = StartTimeout(self._notifier, _clock())
        patience.begin()
        try:
            await application.start()
        finally:
            patience.end()
        if self._is_stopping:
            return
        # Objects that exist now live as long as the process: exclude them from collections.
        gc.collect()
        gc.freeze()
        self._collections = FullCollections(_clock())
        self._collections.start()
        self._watchdog = Watchdog(
            self._notifier,
            watchdog_interval(os.environ, os.getpid()),
            _clock(),
            lambda: application.failure,
        )
        self._watchdog.startService()
        application.broker.gate.watch(self._notify_status)
        application.on_problems_changed = self._notify_status
        self._notifier.ready(self._status())
        log.info("ready: {identity}", identity=self._identity())
        self._is_ready = True
        if self._is_reload_due:
            self.reload()

    def _identity(self) -> str:
        assert self.application is not None
        domains = ", ".join(self.application.config.domains) or "-"
        return f"container {self.application.container_id}, domains {domains}"

    def _status(self) -> str:
        """Return the line for `systemctl status`: the problems, or our identity."""
        assert self.application is not None
        return (
            "; ".join(filter(None, (self.application.problems, self._refused))) or self._identity()
        )

    def _notify_status(self) -> None:
        """Update the status: the publish gate has opened or closed."""
        if self.application is not None and not self._is_stopping:
            self._notifier.status(self._status())

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        # 2: starting again does not help, and the service manager does not try.
        is_for_good = isinstance(error, (ConfigError, StoreDamaged, StoreForeign, TlsError))
        self.exit_code = 2 if is_for_good else 1
        if isinstance(error, StoreError):
            words = problem_at(self.config, ("state-directory",), str(error))
            log.critical("cannot start: {error}", error=words)
        elif isinstance(error, OSError) and error.filename and error.strerror:
            log.critical("cannot start: {error}", error=f"{error.filename}: {error.strerror}")
        elif isinstance(error, (AmqprouteError, OSError)):
            log.critical("cannot start: {error}", error=str(error))
        else:
            log.failure("cannot start", failure)
        self.application = None
        _stop_reactor()

    def _store_died(self, reason: str) -> None:
        log.critical("the store has failed, the daemon stops: {reason}", reason=reason)
        self.exit_code = 1
        _stop_reactor()

    # -- reload ------------------------------------------------------------------------------------

    def _hangup(self, *_: object) -> None:
        _clock().callFromThread(self.reload)

    def reload(self) -> None:
        """Read the configuration again; an invalid one changes nothing.

        While the daemon starts, it is read again when it has started.
        """
        if self._is_stopping or self.application is None or not self._is_ready:
            self._is_reload_due = True
            return
        self._notifier.reloading("reloading")
        try:
            config = read(self.path)
            report = self.application.reload(config)
        except AmqprouteError as error:
            log.error("reload refused, the old configuration stays: {error}", error=str(error))
            self.application.journaling.configured(self.application.config, error)
            self._refused = "the last reload was refused, the configuration before it is in force"
            self._notifier.ready(self._status())
            return
        except Exception:
            log.failure("reload failed, the old configuration stays")
            self._refused = "the last reload failed, see the log"
            self._notifier.ready(self._status())
            return
        self.config = self.application.config
        self._refused = _left_undone(report)
        if report.failed:
            log.error(
                "reloaded {path} in part: {components} may go by the old settings; restart the "
                "daemon",
                path=str(self.path),
                components=named(report.failed),
            )
        else:
            changes = in_words(report.changed)
            log.info("reloaded {path}; {changes}", path=str(self.path), changes=changes)
        self._notifier.ready(self._status())

    def _prepare_log(self, config: Config) -> Apply:
        """Prepare the new log levels and partners."""
        chosen = levels(config)

        def apply() -> None:
            if self._output is not None:
                self._output.set_levels(chosen)
                self._output.set_partners(config.names)

        return apply

    # -- stop --------------------------------------------------------------------------------------

    def _stop_requested(self, number: int, _: object) -> None:
        _clock().callFromThread(self._stop_once, signal.Signals(number).name)

    def _stop_once(self, name: str) -> None:
        if self._is_told_to_stop:
            log.info(
                "{signal} again: stopping already, which may take up to {seconds:.0f} s",
                signal=name,
                seconds=self.config.shutdown_timeout,
            )
            return
        self._is_told_to_stop = True
        log.info("{signal}: stopping", signal=name)
        _end_reactor()

    def stopService(self) -> Deferred[None]:
        """Stop the application gracefully; the reactor waits for it.

        One that is still starting is stopped when it has started: as long as the store is being
        opened it cannot be closed either. The manager is not asked for more time for that.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        self._is_stopping = True
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._notifier.stopping("stopping")
        if self._patience is not None:
            self._patience.end()
        if self._watchdog is not None:
            self._watchdog.stopService()
        if self._collections is not None:
            self._collections.stop()
        if self._starting is not None:
            await self._starting
        application, self.application = self.application, None
        if application is not None:
            log.info("stopping")
            await application.stop(self._notifier.extend_timeout)
            log.info("stopped")
        sums, self._sums = self._sums, None
        if self._output is not None and sums is not None:
            sums.stop()
            self._output.sum_up()


def _clock() -> Any:
    return reactor


def _use_steady_time() -> None:
    """Let the reactor count seconds that no operator and no NTP can set back.

    Twisted's reactors count wall clock time; a clock set back by an hour would hold every timer,
    heartbeat and retry for that hour. Delayed calls and `seconds` both go through this attribute.
    """
    _clock().seconds = time.monotonic


def _stop_reactor() -> None:
    clock = _clock()
    if clock.running:
        clock.callLater(0, _end_reactor)


def _end_reactor() -> None:
    with suppress(ReactorNotRunning):  # somebody else has stopped it
        _clock().stop()


def _left_undone(report: ReloadReport) -> str:
    """Describe what a reload has not applied; empty if nothing."""
    if report.failed:
        return (
            f"the last reload has failed in part ({named(report.failed)}), see the log: "
            "restart the daemon"
        )
    if report.waiting:
        return f"waiting for a restart: {named(report.waiting)}"
    return ""


def levels(config: Config) -> dict[str, str]:
    """Return the lowest level to log for each namespace.

    Twisted's own ports write two lines for each DNS question; the modules that use them log what
    matters.
    """
    return {"": config.log.level, "log_legacy": "warn"}


def read(path: Path) -> Config:
    """Read and check a configuration.

    Raises:
        ConfigError: with every problem, and where.
    """
    config = load(path)
    found = examine_files(config)
    problems = [*found.problems, *found.unresolved]
    if problems:
        raise ConfigError(problems)
    return config


def run(path: Path | str) -> int:
    """Run the daemon in the foreground.

    Returns:
        The exit code: 0 after a stop, 1 when it could not start, 2 for its configuration or a
        damaged store, which only an operator can change.
    """
    path = Path(path)
    try:
        config = read(path)
    except ConfigError as error:
        complain(str(error))
        return 2
    _use_steady_time()
    output = begin_logging(style=config.log.format, levels=levels(config))
    service = DaemonService(config, path, output)
    clock = _clock()
    clock.addSystemEventTrigger("before", "shutdown", service.stopService)
    clock.callWhenRunning(service.startService)
    clock.run()
    return service.exit_code


def makeService(options: Options) -> Service:
    """Return the daemon for twistd.

    Raises:
        UsageError: the configuration cannot be used.
    """
    _use_steady_time()
    try:
        path = find(options["config"])
        return DaemonService(read(path), path)
    except ConfigError as error:
        raise usage.UsageError(str(error)) from error


__all__ = ["DaemonService", "Options", "makeService", "read", "run"]
