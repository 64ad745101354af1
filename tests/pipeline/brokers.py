# SPDX-License-Identifier: Apache-2.0
"""Brokers for the tests of the data source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.support import Daemon, certificates, shared
from tests.pipeline.support import MISSING

if not MISSING:
    from pyspark.sql import Row

    from amqproute.pipeline.datasource.batch_reader import QueueReader
    from amqproute.pipeline.datasource.options import ReadOptions, WriteOptions
    from amqproute.pipeline.datasource.write import send

NODES = [
    # Elsewhere the ids of messages would hide it if a message came a second time.
    {"name": "q0", "duplicate-policy": "off"},
    *({"name": f"q{number}"} for number in range(1, 14)),
]


class Brokers:
    """Two brokers; each test has queues of its own."""

    def __init__(self) -> None:
        issued = certificates().issue("alpha.example", dns_names=["alpha.example", "localhost"])
        changes = {"nodes": NODES, "limits": {"link-prefetch": 100}}
        self.alpha = Daemon("alpha.example", issued=issued, changes=changes).start()
        self.beta = Daemon("beta.example", changes={"nodes": NODES}).start()


def daemons() -> tuple[Daemon, Daemon]:
    """Return two brokers that tests share."""
    brokers = shared(Brokers)
    return brokers.alpha, brokers.beta


def url(daemon: Daemon) -> str:
    """Return where a broker is."""
    return f"amqp://127.0.0.1:{daemon.plain}"


def put(daemon: Daemon, queue: str, bodies: Iterable[str], run: str = "fill") -> None:
    """Send messages."""
    rows = [Row(body=body) for body in bodies]
    send(WriteOptions.of({"url": url(daemon), "address": queue}), run, f"{run}/0", iter(rows))


def rows_on(daemon: Daemon, queue: str) -> list[tuple[Any, ...]]:
    """Look at a queue, without Spark."""
    reader = QueueReader(ReadOptions.of({"url": url(daemon), "queue": queue}))
    return [row for part in reader.partitions() for row in reader.read(part)]


def bodies_on(daemon: Daemon, queue: str) -> list[str]:
    """Return the bodies of what is on a queue."""
    return [row[-2].decode() for row in rows_on(daemon, queue)]


def numbers(first: int, behind: int) -> list[str]:
    """Return some bodies."""
    return [str(number) for number in range(first, behind)]


class BrokerCase(SynchronousTestCase):
    """A test with a broker and without Spark."""

    skip = MISSING
    shares_process = True

    def setUp(self) -> None:
        self.alpha, self.beta = daemons()
        self.addCleanup(self.alpha.check)
