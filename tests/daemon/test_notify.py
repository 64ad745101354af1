# SPDX-License-Identifier: Apache-2.0
"""Notifications to the service manager, and missing watchdog pings."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.daemon.notify import ServiceNotifier, Watchdog, watchdog_interval


class ServiceManager:
    """The other end of ``$NOTIFY_SOCKET``: an abstract socket, read without waiting."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def heard(self) -> list[str]:
        """Return what has come in since the last call."""
        datagrams = []
        while True:
            try:
                datagrams.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return datagrams

    def close(self) -> None:
        self._socket.close()


class NotifyCase(SynchronousTestCase):
    def manager(self, address: str | None = None) -> ServiceManager:
        manager = ServiceManager(address or f"@amqproute-test-{os.getpid()}-{id(self)}")
        self.addCleanup(manager.close)
        return manager


class NotifierTests(NotifyCase):
    def test_states(self) -> None:
        """Each state is the datagram of sd_notify(3)."""
        manager = self.manager()
        notifier = ServiceNotifier(manager.address, monotonic_ns=lambda: 5_000_123_999)
        self.assertTrue(notifier.is_active)
        self.assertTrue(notifier.ready("2 listeners"))
        notifier.reloading()
        notifier.stopping()
        notifier.status("draining")
        notifier.watchdog()
        notifier.extend_timeout(2.5)
        self.assertEqual(
            manager.heard(),
            [
                "READY=1\nSTATUS=2 listeners",
                "RELOADING=1\nMONOTONIC_USEC=5000123",
                "STOPPING=1",
                "STATUS=draining",
                "WATCHDOG=1",
                "EXTEND_TIMEOUT_USEC=2500000",
            ],
        )

    def test_path(self) -> None:
        """A socket in the file system is reached through the environment."""
        # Relative to the shortest directory: a socket's path has 108 bytes at most.
        path = f"/tmp/amqproute-test-{os.getpid()}-{id(self)}"
        manager = self.manager(path)
        self.addCleanup(os.unlink, path)
        ServiceNotifier.from_environment({"NOTIFY_SOCKET": path}).ready()
        self.assertEqual(manager.heard(), ["READY=1"])

    def test_silent_without_a_manager(self) -> None:
        """Without a listener every call does nothing."""
        notifier = ServiceNotifier.from_environment({})
        self.assertFalse(notifier.is_active)
        self.assertFalse(notifier.ready())
        self.assertFalse(ServiceNotifier.from_environment({"NOTIFY_SOCKET": ""}).is_active)
        self.assertFalse(ServiceNotifier.from_environment({"NOTIFY_SOCKET": "vsock:2:1"}).is_active)

    def test_manager_gone(self) -> None:
        """A manager that went away costs the notice, not the daemon."""
        manager = self.manager()
        manager.close()
        self.assertFalse(ServiceNotifier(manager.address).ready())

    def test_manager_does_not_read(self) -> None:
        """A full socket loses a datagram and does not block."""
        manager = self.manager()
        notifier = ServiceNotifier(manager.address)
        told = [notifier.watchdog() for _ in range(2000)]
        self.assertIn(False, told)
        manager.heard()
        self.assertTrue(notifier.watchdog())

    def test_status_is_one_line(self) -> None:
        """A line break in a status does not become another assignment."""
        manager = self.manager()
        ServiceNotifier(manager.address).status("peer said\nMAINPID=1" + "x" * 2000)
        (datagram,) = manager.heard()
        self.assertNotIn("\n", datagram)
        self.assertTrue(datagram.startswith("STATUS=peer said MAINPID=1xxx"))
        self.assertLess(len(datagram), 600)

    def test_status_of_any_characters(self) -> None:
        """Control characters and invalid UTF-8 are neither sent nor an error."""
        manager = self.manager()
        self.assertTrue(
            ServiceNotifier(manager.address).status("no room in /\x1b[2Jdat\udcff/\x00\xe4")
        )
        self.assertEqual(manager.heard(), ["STATUS=no room in /?[2Jdat?/?\xe4"])


class IntervalTests(SynchronousTestCase):
    def test_half_of_the_limit(self) -> None:
        """Two pings fit into ``WatchdogSec=``."""
        self.assertEqual(watchdog_interval({"WATCHDOG_USEC": "30000000"}, 7), 15.0)
        self.assertEqual(
            watchdog_interval({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 7), 15.0
        )

    def test_none(self) -> None:
        """Another process's watchdog, no watchdog and nonsense are all none."""
        for environ in (
            {},
            {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"},
            {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": ""},
            {"WATCHDOG_USEC": "0"},
            {"WATCHDOG_USEC": "-5"},
            {"WATCHDOG_USEC": "soon"},
        ):
            self.assertIsNone(watchdog_interval(environ, 7), environ)


class WatchdogTests(NotifyCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.service_manager = self.manager()

    def watchdog(
        self, interval: float | None, ailment: Callable[[], str | None] = lambda: None
    ) -> Watchdog:
        notifier = ServiceNotifier(self.service_manager.address)
        watchdog = Watchdog(notifier, interval, self.clock, ailment)
        watchdog.startService()
        return watchdog

    def stop(self, watchdog: Watchdog) -> None:
        watchdog.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_pings(self) -> None:
        """The first ping goes out at once, then one an interval, and none after the stop."""
        watchdog = self.watchdog(15.0)
        self.assertEqual(self.service_manager.heard(), ["WATCHDOG=1"])
        self.clock.pump([14.9])
        self.assertEqual(self.service_manager.heard(), [])
        self.clock.pump([0.1, 15.0])
        self.assertEqual(self.service_manager.heard(), ["WATCHDOG=1"] * 2)
        self.stop(watchdog)
        self.clock.advance(60)
        self.assertEqual(self.service_manager.heard(), [])

    def test_idle(self) -> None:
        """Without a watchdog in the manager, or without a manager, nothing is scheduled."""
        self.stop(self.watchdog(None))
        silent = Watchdog(ServiceNotifier(None), 15.0, self.clock)
        silent.startService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        silent.stopService()
        self.assertEqual(self.service_manager.heard(), [])

    def test_withheld(self) -> None:
        """An ailment withholds the ping, is said once, and passes."""
        ailments: list[str | None] = [None, "store writer died", "store writer died", None, None]
        watchdog = self.watchdog(1.0, lambda: ailments.pop(0))
        self.clock.pump([1.0] * 4)
        self.stop(watchdog)
        self.assertEqual(
            self.service_manager.heard(),
            [
                "WATCHDOG=1",
                "STATUS=unwell: store writer died",
                "STATUS=healthy again",
                "WATCHDOG=1",
                "WATCHDOG=1",
            ],
        )

    def test_broken_check(self) -> None:
        """A check that raises is no sign of life, and the next one is still made."""
        outcomes: list[str | None] = []

        def ailment() -> str | None:
            return outcomes.pop()

        watchdog = self.watchdog(1.0, ailment)
        self.assertEqual(len(self.flushLoggedErrors(IndexError)), 1)
        (status,) = self.service_manager.heard()
        self.assertIn("the health check failed: IndexError", status)
        outcomes.append(None)
        self.clock.advance(1.0)
        self.assertIn("WATCHDOG=1", self.service_manager.heard())
        self.stop(watchdog)
