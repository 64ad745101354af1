# SPDX-License-Identifier: Apache-2.0
"""Numbers of permitted connections against available file descriptors."""

from __future__ import annotations

import resource

from twisted.internet import tcp
from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands import check
from amqproute.config.loader import loads
from amqproute.daemon import descriptors
from amqproute.daemon.descriptors import (
    OWN_DESCRIPTORS,
    UnacceptedConnections,
    make_room_for_descriptors,
)
from amqproute.log_rate_limit import EVERY_SECONDS


class DescriptorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.limits = (1024, 4096)
        self.patch(descriptors.resource, "getrlimit", lambda _: self.limits)
        self.patch(descriptors.resource, "setrlimit", self._set)

    def _set(self, _: int, limits: tuple[int, int]) -> None:
        self.limits = limits

    def test_enough(self) -> None:
        """Nothing is changed where it is enough already."""
        self.assertEqual(make_room_for_descriptors(100), 100)
        self.assertEqual(self.limits, (1024, 4096))

    def test_raised(self) -> None:
        """The soft limit is raised to what is needed, and the hard one is left alone."""
        self.assertEqual(make_room_for_descriptors(1000), 1000)
        self.assertEqual(self.limits, (1000 + OWN_DESCRIPTORS, 4096))

    def test_not_enough(self) -> None:
        """If the limit cannot be raised far enough, fewer connections are accepted."""
        self.assertEqual(make_room_for_descriptors(10_000), 4096 - OWN_DESCRIPTORS)
        self.assertEqual(self.limits, (4096, 4096))
        self.limits = (64, 64)
        self.assertEqual(make_room_for_descriptors(10_000), 32)

    def test_no_limit(self) -> None:
        self.limits = (1024, resource.RLIM_INFINITY)
        self.assertEqual(make_room_for_descriptors(10_000), 10_000)
        self.assertEqual(self.limits, (10_000 + OWN_DESCRIPTORS, resource.RLIM_INFINITY))

    def test_check(self) -> None:
        """`check` says it before the start does."""
        config = loads("limits: {max-connections: 5000}\n", "a.yaml")
        (words,) = check._examine_descriptors(config)
        self.assertIn("a.yaml:1: limits.max-connections: 5000 connections need more", words)
        self.assertIn(f"{4096 - OWN_DESCRIPTORS} would be taken", words)
        self.limits = (1024, 65536)
        self.assertEqual(check._examine_descriptors(config), [])


class UnacceptedTests(SynchronousTestCase):
    """The log lines when no connection can be accepted."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.lines: list[str] = []
        observer = UnacceptedConnections(self._write, self.clock.seconds)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.port = Logger(namespace=tcp.Port._logger.namespace)

    def _write(self, event: LogEvent) -> None:
        self.lines.append(formatEvent(event))

    def refuse(self) -> None:
        """Say what Twisted says of one connection."""
        self.port.info("EMFILE encountered; releasing reserved file descriptor.")
        self.port.info("EMFILE recovery: Closed socket from {address}", address=("192.0.2.1", 1))
        self.port.info("Re-reserving EMFILE recovery file descriptor.")

    def test_flood(self) -> None:
        """A thousand connections are two lines, with what to do."""
        for _ in range(999):
            self.refuse()
        self.clock.advance(EVERY_SECONDS)
        self.refuse()
        first, second = self.lines
        self.assertIn("1 connections could not be accepted (EMFILE", first)
        self.assertIn("raise LimitNOFILE=", first)
        self.assertIn("999 connections could not", second)

    def test_other_errors(self) -> None:
        """The system's words are repeated; other lines pass."""
        for _ in range(100):
            self.port.info("Could not accept new connection ({acceptError})", acceptError="ENFILE")
        Logger(namespace="twisted.internet.tcp").info("something else")
        self.assertEqual(
            self.lines, ["1 connections could not be accepted (ENFILE)", "something else"]
        )
