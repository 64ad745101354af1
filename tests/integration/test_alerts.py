# SPDX-License-Identifier: Apache-2.0
"""Alerts fire on faults that are really planted in running daemons.

`test_monitoring` has the faults that one daemon has at once. Those here need a daemon of their own:
with a disk that fails, with a wrong clock, with damaged messages, without room.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from unittest import skipIf

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from amqproute.values import STREAM
from amqproute.wire.sasl_mechanisms import SaslClient, client_mechanism
from tests.integration.support import (
    RUN,
    Daemon,
    Wire,
    certificates,
    client_tls,
    free_ports,
    message,
    new_directory,
    until,
)
from tests.integration.test_monitoring import (
    ABSENT,
    CLOSED,
    PLANTED,
    PROMETHEUS,
    PROMTOOL,
    MonitoredCase,
    Prometheus,
)
from tests.metrics.test_shipped import RULES, alerts
from tests.network.campaign import CannotRun
from tests.network.surroundings import WallClock
from tests.support.failing_disk import FailingDisk, is_possible

YEAR: Final = 365 * 86_400
Alerts = Mapping[str, Mapping[str, str]]
JOURNAL: Final[Alerts] = {"AmqprouteJournalFailing": {}}
LAG: Final[Alerts] = {"AmqprouteJournalLag": {}}
LOST: Final[Alerts] = {"AmqprouteJournalRecordsLost": {}}
SLOW: Final[Alerts] = {"AmqprouteCommitSlow": {}}
FAILING: Final[Alerts] = {"AmqprouteStoreFailing": {}}
SKEW: Final[Alerts] = {"AmqprouteClockSkew": {}}
JUMP: Final[Alerts] = {"AmqprouteClockJumped": {}}
INVALID: Final[Alerts] = {"AmqprouteCertificateInvalid": {}}
DAMAGED: Final[Alerts] = {"AmqprouteMessagesDamaged": {}}
LOOP: Final[Alerts] = {"AmqprouteLoops": {}}
REFUSED: Final[Alerts] = {"AmqprouteConnectionsRefused": {}}
RECEIPTS: Final[Alerts] = {"AmqprouteReceiptsDropped": {}}
DELAY: Final[Alerts] = {"AmqprouteReactorDelay": {}}
SPACE_ENDS: Final[Alerts] = {"AmqprouteSpaceEnds": {}}
ALL: Final = (
    PLANTED, CLOSED, ABSENT, JOURNAL, LAG, LOST, SLOW, FAILING, SKEW, JUMP, INVALID, DAMAGED, LOOP,
    REFUSED, RECEIPTS, DELAY, SPACE_ENDS,
)  # fmt: skip
STREAMS: Final = 256
"""Streams of receipts that a peer may have; see `amqproute.broker.receipts`."""


class CoverageTests(SynchronousTestCase):
    """Every alert has a fault."""

    def test_all(self) -> None:
        """No alert is known from Prometheus' own tests alone."""
        planted = [name for alerts_there in ALL for name in alerts_there]
        self.assertEqual(sorted(planted), sorted({rule["alert"] for rule in alerts()}))


class Certificate:
    """Logs in with a client certificate."""

    def choose(self, offered: Sequence[str]) -> SaslClient | None:
        """See `ClientAuthority`."""
        return client_mechanism("EXTERNAL")


@skipIf(PROMETHEUS is None or PROMTOOL is None, "Prometheus is not installed")
class AlertCase(MonitoredCase):
    """A daemon that is scraped each second."""

    def scrape(self) -> Prometheus:
        """Start Prometheus, and wait until it has scraped the daemon twice."""
        prometheus = Prometheus(self.http, RULES)
        self.addCleanup(prometheus.stop)
        query = "count_over_time(amqproute_build_info[1m]) >= 2"
        until(lambda: prometheus.series(query), "scrapes", 60, prometheus.log)
        return prometheus

    def silent(self, prometheus: Prometheus, *wanted: Alerts) -> None:
        """Check that alerts do not fire before their fault is there.

        Those about a slow machine may, whatever we do.
        """
        firing = {each["alertname"] for each in prometheus.firing()}
        self.assertEqual(firing & {name for each in wanted for name in each}, set())


class DiskTests(AlertCase):
    """A disk that fails, is slow, and fills."""

    def setUp(self) -> None:
        super().setUp()
        if not is_possible():
            raise SkipTest("needs seccomp with user notification")

    def failing(self) -> tuple[Daemon, FailingDisk]:
        """Start a daemon whose disk is ours."""
        daemon = Daemon(
            "alpha.example",
            nameserver=self.zone.port,
            changes={
                **self.monitored(),
                "nodes": [{"name": "q"}],
                "journal": {"enabled": True, "on-full": "count"},
                "shutdown-timeout": 2,
            },
        )
        disk = FailingDisk(str(daemon.directory / "state"))
        self.addCleanup(disk.stop)
        self.addCleanup(daemon.kill)
        daemon._spawn(disk.command([*RUN, str(daemon.file)]), {}, (disk.descriptor,))
        disk.serve()
        daemon.wait_ready()
        return daemon, disk

    def test_journal_and_store(self) -> None:
        """Syncs of the journal fail, then hang; those of the store are slow; then writes fail."""
        daemon, disk = self.failing()
        prometheus = self.scrape()
        self.silent(prometheus, JOURNAL, LAG, LOST, FAILING)

        def publish() -> None:
            with contextlib.suppress(OSError), Wire(daemon.plain) as wire:
                wire.publish("q", [message(b"x")] * 20)

        publish()
        disk.failing, disk.failing_syncs = "journal", 1 << 30
        prometheus.fires(JOURNAL, publish)
        disk.failing_syncs, disk.sync_seconds = 0, 60.0
        prometheus.fires(LAG, publish)

        def publish_much() -> None:
            # More than the journal holds in memory: each has a message-id of a kilobyte.
            with Wire(daemon.plain) as wire:
                wire.publish("q", [message(b"x", message_id=f"{n:01000}") for n in range(4000)])

        prometheus.fires(LOST, publish_much)
        disk.failing, disk.sync_seconds = "store.", 1.2
        prometheus.fires(SLOW, publish)
        disk.sync_seconds = 0.0
        disk.fails_writes = True

        def try_to_publish() -> None:
            # Its outcome never comes: the store cannot write.
            wire = Wire(daemon.plain)
            self.addCleanup(wire.socket.close)
            link = wire.attach("sender", "q")
            if link.sendable:
                link.send((message(b"x"),), b"t")
            wire.flush()

        prometheus.fires(FAILING, try_to_publish)
        disk.fails_writes = False

    def test_damaged(self) -> None:
        """A message is damaged on the disk, and found at the start; another file fills the disk."""
        daemon = self.alpha(nodes=[{"name": "q"}])
        with Wire(daemon.plain) as wire:
            wire.publish("q", [message(b"x")] * 3)
        daemon.stop()
        store = daemon.directory / "state" / "store.db"
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            (bad,) = connection.execute("SELECT min(id) FROM entry").fetchone()
            connection.execute("UPDATE entry SET octets_crc = octets_crc + 1 WHERE id = ?", (bad,))
        daemon.start()
        prometheus = self.scrape()
        prometheus.fires(DAMAGED)
        self.fill(prometheus, daemon.directory)

    def fill(self, prometheus: Prometheus, directory: Path) -> None:
        """Fill the disk at a pace that leaves nothing within a day."""
        path = directory / "filler"
        with path.open("wb") as file:

            def grow() -> None:
                if file.tell() < 512 << 20:
                    file.write(os.urandom(1 << 20) * 16)
                    file.flush()
                    os.fsync(file.fileno())

            prometheus.fires(SPACE_ENDS, grow)
        path.unlink()


class ClockTests(AlertCase):
    """A wall clock that is wrong, and one that jumps."""

    def test_clock(self) -> None:
        """It is two minutes slow; then it jumps over the end of our certificate."""
        try:
            clock = WallClock(new_directory("clock"))
        except CannotRun as error:
            raise SkipTest(str(error)) from error
        daemon = Daemon(
            "alpha.example",
            nameserver=self.zone.port,
            changes={**self.monitored(), "nodes": [{"name": "q"}]},
            issued=certificates().issue("alpha.example", srv_names=["_amqps.alpha.example"]),
        )
        daemon.is_executed = True
        self.addCleanup(daemon.stop)
        clock.set(-120)
        with clock.for_children():
            daemon.spawn()
        daemon.wait_ready()
        prometheus = self.scrape()
        self.silent(prometheus, JUMP, INVALID)
        prometheus.fires(SKEW)
        clock.set(20 * YEAR)
        prometheus.fires({**JUMP, **INVALID})


class NetworkTests(AlertCase):
    """Neighbors that lead in circles, forget nothing, or are too many; an event loop that waits."""

    def test_neighbors(self) -> None:
        """Loops, receipts without room, connections without a place, and a machine that stalls."""
        beta_tls, alpha_tls = free_ports(2)
        listen = {"tls": "implicit", "client-certificate": "optional", "mechanisms": ["EXTERNAL"]}
        plain, few = free_ports(2)
        beta = self.daemon(
            "beta.example",
            listen=[{"endpoint": Daemon.endpoint(beta_tls), **listen}],
            routes=[{"domain": "loop.example", "via": f"amqps://127.0.0.1:{alpha_tls}",
                     "names": ["alpha.example"]}],
            peers={"alpha.example": {"relay-for": ["loop.example"]}},
        )  # fmt: skip
        alpha = self.alpha(
            nodes=[{"name": "q"}],
            listen=[
                {"endpoint": Daemon.endpoint(alpha_tls), **listen},
                {"endpoint": Daemon.endpoint(plain), "mechanisms": ["ANONYMOUS"]},
                {"endpoint": Daemon.endpoint(few), "mechanisms": ["ANONYMOUS"],
                 "max-connections": 1},
            ],
            routes=[{"domain": "loop.example", "via": f"amqps://127.0.0.1:{beta_tls}",
                     "names": ["beta.example"]}],
            peers={"beta.example": {"relay-for": ["loop.example"]}},
        )  # fmt: skip
        prometheus = self.scrape()
        self.silent(prometheus, LOOP, RECEIPTS, REFUSED)
        with Wire(plain) as wire:
            address = "q@loop.example"
            wire.publish(address, [message(b"round and round", address)])
        prometheus.fires(LOOP)
        self.forget_nothing(alpha_tls)
        prometheus.fires(RECEIPTS)

        def crowd() -> None:
            for _ in range(5):
                socket.create_connection(("127.0.0.1", few), 10).close()

        with Wire(few) as guest:
            guest.attach("sender", "q")  # it has the only place, and is known: nobody replaces it
            prometheus.fires(REFUSED, crowd)

        def stall() -> None:
            alpha.signal(signal.SIGSTOP)
            time.sleep(0.6)  # the fault itself: for so long the machine does nothing
            alpha.signal(signal.SIGCONT)

        prometheus.fires(DELAY, stall)
        alpha.check()
        beta.check()

    def forget_nothing(self, port: int) -> None:
        """As a peer, send one message on each of more streams than are remembered."""
        self.zone.point("delta.example", *free_ports(1))
        issued = certificates().issue(
            "delta.example", srv_names=["_amqps.delta.example"], dns_names=["delta.example"]
        )
        with Wire(
            port,
            tls=client_tls(issued),
            container="broker1.delta.example",
            sasl_client=Certificate(),
        ) as wire:
            for number in range(STREAMS + 4):
                link = wire.attach(
                    "sender",
                    "amqp$transfer",
                    properties={STREAM: f"stream-{number}"},
                )
                until(lambda link=link: link.sendable or wire.read(), "credit")
                link.send((message(b"x", "q@alpha.example"),), (1).to_bytes(8, "big"))
                until(lambda link=link: not link.unsettled or wire.read(), "an outcome")
