# SPDX-License-Identifier: Apache-2.0
"""Notifications to the service manager: sd_notify(3) and the watchdog, without a library.

One datagram of ``NAME=value`` lines to the socket that ``$NOTIFY_SOCKET`` names. A path is a
socket in the file system, a leading ``@`` an abstract one (unix(7)). Where the variable is not
set (a terminal, a container, another supervisor) every call does nothing.

Nothing here may stop the daemon: a manager that cannot be reached is logged once, and a full
socket loses the datagram rather than block the reactor.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

__all__ = ["ServiceNotifier", "StartTimeout", "Watchdog", "watchdog_interval"]

_STATUS_LIMIT = 512
"""Characters of a status that are sent; `systemctl status` shows one line."""

_ASK_SECONDS = 10.0
"""Seconds between two requests for more time to start; each asks for three times as much."""
_LONGEST_SECONDS = 6 * 3600.0
"""Seconds after which no more time is requested. A longer start is taken for one that hangs."""


class ServiceNotifier:
    """Tells the service manager about the daemon's state.

    Args:
        address: the value of ``$NOTIFY_SOCKET``, or None for silence.
        monotonic_ns: CLOCK_MONOTONIC in nanoseconds; the manager compares it with its own.
    """

    log = Logger()

    def __init__(
        self, address: str | None, *, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._address = self._encode(address) if address else None
        self._monotonic_ns = monotonic_ns
        self._complained = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ServiceNotifier:
        """Take the address from ``$NOTIFY_SOCKET``; without it the notifier is silent."""
        return cls(environ.get("NOTIFY_SOCKET"))

    @property
    def is_active(self) -> bool:
        """Whether there is a service manager."""
        return self._address is not None

    def ready(self, status: str | None = None) -> bool:
        """Start-up, or a reload, is complete."""
        return self._send(["READY=1"], status)

    def reloading(self, status: str | None = None) -> bool:
        """The configuration is being read again; `ready` or `status` ends it."""
        # MONOTONIC_USEC is what lets a manager of systemd 253 or later tell this reload from
        # an earlier one (Type=notify-reload); older ones ignore the line.
        stamp = self._monotonic_ns() // 1000
        return self._send(["RELOADING=1", f"MONOTONIC_USEC={stamp}"], status)

    def stopping(self, status: str | None = None) -> bool:
        """The daemon has begun to stop."""
        return self._send(["STOPPING=1"], status)

    def status(self, text: str) -> bool:
        """Set the line that ``systemctl status`` shows."""
        return self._send([], text)

    def extend_timeout(self, seconds: float) -> bool:
        """Request more time, counted from now, to start, reload or stop."""
        return self._send([f"EXTEND_TIMEOUT_USEC={max(1, round(seconds * 1_000_000))}"], None)

    def watchdog(self) -> bool:
        """The daemon is alive."""
        return self._send(["WATCHDOG=1"], None)

    @staticmethod
    def _encode(address: str) -> bytes | None:
        if address.startswith("@"):
            return b"\0" + address[1:].encode()
        if address.startswith("/"):
            return address.encode()
        ServiceNotifier.log.warn(
            "$NOTIFY_SOCKET={address} is not a Unix socket: not used", address=address
        )
        return None

    def _send(self, lines: list[str], status: str | None) -> bool:
        """Send one datagram; return whether the manager has received it."""
        if self._address is None:
            return False
        if status is not None:
            # One assignment per line: a line break in a status would begin another assignment. And
            # `systemctl status` shows it on a terminal as it is.
            words = " ".join(status.split())[:_STATUS_LIMIT]
            lines.append("STATUS=" + "".join(c if c.isprintable() else "?" for c in words))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._complained:
                self._complained = True
                self.log.warn(
                    "cannot send {lines} to the service manager: {error}", lines=lines, error=error
                )
            return False
        self._complained = False
        return True


class StartTimeout:
    """Requests more time from the service manager during a long start.

    A store with a large backlog, or a long log after a crash, may take minutes to recover, and a
    start that is killed meanwhile has to begin again. The requests come from the reactor: one that
    hangs sends none, and ``TimeoutStartSec=`` applies.

    Args:
        notifier: sends the requests.
        clock: the reactor's time.
    """

    def __init__(self, notifier: ServiceNotifier, clock: IReactorTime) -> None:
        self._notifier = notifier
        self._clock = clock
        self._until = 0.0
        self._next: IDelayedCall | None = None

    def begin(self) -> None:
        """Send a request now, and from time to time."""
        if self._notifier.is_active:
            self._until = self._clock.seconds() + _LONGEST_SECONDS
            self._ask()

    def end(self) -> None:
        """Stop the requests."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _ask(self) -> None:
        self._notifier.extend_timeout(3 * _ASK_SECONDS)
        if self._clock.seconds() < self._until:
            self._next = self._clock.callLater(_ASK_SECONDS, self._ask)


def watchdog_interval(environ: Mapping[str, str], pid: int) -> float | None:
    """Return the seconds between two pings, or None if this process has no watchdog.

    It is half of ``$WATCHDOG_USEC``, as sd_watchdog_enabled(3) advises. ``$WATCHDOG_PID`` names
    the process that is meant: a child that inherited the environment must not ping.

    Args:
        environ: the process environment.
        pid: our own process id.
    """
    microseconds = environ.get("WATCHDOG_USEC", "")
    if not microseconds.isascii() or not microseconds.isdigit() or int(microseconds) == 0:
        return None
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    return int(microseconds) / 2_000_000


class Watchdog(Service):
    """Pings the service manager from the reactor while the daemon is healthy.

    The ping is a delayed call: a reactor that hangs sends none. Faults beyond the reactor, such as
    a dead store writer, are reported by `failure`.

    Args:
        notifier: sends the pings.
        interval_seconds: between two pings (`watchdog_interval`), or None: the service is idle.
        clock: the reactor's time.
        failure: returns None while the daemon is healthy, otherwise a description of the fault; the
            ping is then withheld and the manager restarts the daemon after ``WatchdogSec=``. A
            fault that passes before that lets the pings continue.
    """

    log = Logger()

    def __init__(
        self,
        notifier: ServiceNotifier,
        interval_seconds: float | None,
        clock: IReactorTime,
        failure: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.setName("watchdog")  # type: ignore[no-untyped-call]
        self._notifier = notifier
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._failure = failure
        self._withheld_for: str | None = None
        self._next: IDelayedCall | None = None

    def startService(self) -> None:
        """Start the pings, the first one at once."""
        super().startService()  # type: ignore[no-untyped-call]
        if self._interval_seconds is not None and self._notifier.is_active:
            self._turn()

    def stopService(self) -> None:
        """Stop the pings; the manager's stop timeout takes over."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _turn(self) -> None:
        assert self._interval_seconds is not None
        self._next = self._clock.callLater(self._interval_seconds, self._turn)
        reason = self._diagnose()
        if reason is None:
            if self._withheld_for is not None:
                self.log.info("healthy again: pinging the watchdog")
                self._notifier.status("healthy again")
            self._notifier.watchdog()
        elif reason != self._withheld_for:
            self.log.error("watchdog ping withheld: {reason}", reason=reason)
            self._notifier.status(f"unwell: {reason}")
        self._withheld_for = reason

    def _diagnose(self) -> str | None:
        try:
            return self._failure()
        except Exception as error:
            # The check itself is broken: send no ping, but keep the timer.
            self.log.failure("the health check failed")
            return f"the health check failed: {error!r}"
