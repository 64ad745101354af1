# SPDX-License-Identifier: Apache-2.0
"""Connections that are promised, against file descriptors to be had."""

from __future__ import annotations

import resource

from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands import checking
from amqproute.config.load import loads
from amqproute.daemon import descriptors
from amqproute.daemon.descriptors import OWN_DESCRIPTORS, make_room_for_descriptors


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
        """Where it cannot be raised far enough, fewer connections are taken."""
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
        (words,) = checking._examine_descriptors(config)
        self.assertIn("a.yaml:1: limits.max-connections: 5000 connections need more", words)
        self.assertIn(f"{4096 - OWN_DESCRIPTORS} would be taken", words)
        self.limits = (1024, 65536)
        self.assertEqual(checking._examine_descriptors(config), [])
