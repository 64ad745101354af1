# SPDX-License-Identifier: Apache-2.0
"""Pairs of brokers that start fast: their daemons are forks of a loaded program.

A daemon takes 0.8 s of processor time to load, on each start. `tests.tools.test_daemon_pair` tests
the start as the command line does it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import IO, cast

from amqproute.tools import daemon_pair
from tests.support.program import Process

__all__ = ["Pair"]


class _Daemon(daemon_pair.DaemonProcess):
    def _spawn(self, environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        _, _, *arguments = self._arguments  # behind "-m amqproute"
        file = log.fileno()
        forked = Process(arguments, environ=environment, stdout=file, stderr=file)
        return cast("subprocess.Popen[bytes]", forked)


class Pair(daemon_pair.DaemonPair):
    """`amqproute.tools.daemon_pair.DaemonPair`, with forked daemons."""

    _daemon = _Daemon
