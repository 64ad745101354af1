# SPDX-License-Identifier: Apache-2.0
"""Many destinations, three of them bad: the effect on the others.

The destinations are domains of one broker (beta), so that a hundred of them fit on a machine:
alpha has a queue, a connection and a back-off for each all the same. The bad ones are ends of
lines: one resets each connection, one takes it and says nothing, one passes a little on at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from amqproute.net.authority import issue
from amqproute.tools.daemon_pair import QUEUE
from amqproute.tools.load_worker import CREDIT, Connected, MessageNumbers
from amqproute.wire.amqp10 import spec
from tests.network.campaign import Finding, Scenario
from tests.network.grounds import amend, quiet
from tests.network.line import Line
from tests.support.pairs import Pair
from tests.support.patience import PATIENCE

__all__ = ["BadNeighbors"]

BAD = 3
FIRST_RETRY = 0.5
SLOW = 2
"""The number of the slow destination."""
STANDSTILL = 100 * PATIENCE
"""Seconds: longer than anybody waits for a good destination's messages."""


class Spread:
    """Publishes to many domains in turn, at a rate, over one link to the transfer service."""

    def __init__(self, connected: Connected, domains: list[str], total: int, rate: float) -> None:
        self.accepted = 0
        self.sent = 0
        self.others: list[str] = []
        self._connected = connected
        self._rate = rate
        self._total = total
        self._numberings = [MessageNumbers(total, 64, f"{QUEUE}@{domain}") for domain in domains]
        self._link = connected.attach("sender", "amqp$transfer", self)
        self._started = time.monotonic()

    @property
    def is_done(self) -> bool:
        """All are sent and have an outcome."""
        return self.accepted + len(self.others) == self._total

    def offer(self, most: int) -> None:
        """Send what is due, of the first this many."""
        due = min(most, int((time.monotonic() - self._started) * self._rate))
        stamp = time.monotonic_ns()
        for number in range(self.sent, min(due, self.sent + self._link.sendable)):
            numbering = self._numberings[number % len(self._numberings)]
            payload = numbering.encode(number, stamp)
            self._link.send((payload,), number.to_bytes(8, "big"))
            self.sent = number + 1

    def event(self, event: Any) -> None:
        """Take outcomes."""
        if not event.settled:
            self._link.session.settle(event.deliveries)
        if type(event.state) is spec.Accepted:
            self.accepted += len(event.deliveries)
        else:
            self.others += [str(event.state)] * len(event.deliveries)


class Gather:
    """Takes what arrives and remembers how long each message took."""

    def __init__(self, connected: Connected, destinations: int) -> None:
        self.took: dict[int, tuple[int, int]] = {}
        self.copies = 0
        self.got = [0] * destinations
        self._destinations = destinations
        self._numbering = MessageNumbers(1, 64)
        self._link = connected.attach("receiver", QUEUE, self)
        self._link.flow(CREDIT)

    @property
    def good(self) -> int:
        """Messages for good destinations."""
        return sum(self.got[BAD:])

    def event(self, event: Any) -> None:
        """Take and accept."""
        now = time.monotonic_ns()
        for delivery in event.deliveries:
            number, stamp = self._numbering.decode(delivery.payload)
            if number in self.took:
                self.copies += 1
                continue
            self.got[number % self._destinations] += 1
            self.took[number] = (stamp, now - stamp)
        self._link.session.settle(event.deliveries, spec.Accepted())
        if self._link.credit < CREDIT // 2:
            self._link.flow(CREDIT)


@dataclass(slots=True)
class Lap:
    """The result of one lap; times in ms."""

    took: list[float]
    missing: int
    copies: int
    calls: list[float]
    bad: list[int]

    @property
    def p99(self) -> float:
        """Of the good destinations."""
        return _percentile(self.took, 99)


@dataclass(frozen=True)
class BadNeighbors(Scenario):
    """One dead, one silent and one slow destination among many.

    Attributes:
        destinations: how many, the three bad ones among them.
        laps: of each kind, without and with the bad ones in turn.
        seconds: of load in a lap.
        warm_seconds: at its beginning that are not measured: every connection is made then.
        rate: messages a second over all destinations.
        tolerance: by how much the p99 of the good ones may rise; None: it is not judged.
        connect_timeout: seconds that alpha waits for the black hole, TLS included.
        stands_still: the slow one takes messages for the first half of the time and then answers
            nothing more. With a long `connect_timeout` no bad one comes to an end in the lap: a
            good one that waits for any of them, on whatever, misses messages.
    """

    destinations: int = 100
    laps: int = 5
    seconds: float = 9.0
    warm_seconds: float = 4.0
    rate: float = 300.0
    tolerance: float | None = 0.10
    connect_timeout: float = 5.0
    stands_still: bool = False
    claim: ClassVar[str] = (
        "each message for a good destination arrives once while those for bad ones wait; the "
        "dead one is called once for each back-off; p99 of the good ones rises by at most the "
        "tolerance, if there is one"
    )

    def run(self, finding: Finding) -> None:
        """Run laps without and with the bad ones, in turn."""
        laps: dict[bool, list[Lap]] = {False: [], True: []}
        for lap in range(self.laps * 2):
            has_bad = bool(lap % 2)
            laps[has_bad].append(self.lap(finding, has_bad))
        missing = sum(each.missing for each in laps[False] + laps[True])
        finding.figures["lost"] = missing
        finding.hold(not missing, f"{missing} messages for good destinations did not arrive")
        if not all(each.took for each in laps[False] + laps[True]):
            return  # there is nothing to compare
        overall: dict[bool, float] = {}
        for has_bad, words in ((False, "all well"), (True, "three bad")):
            found = laps[has_bad]
            # Over all laps: the p99 of one lap is that of its worst moment.
            took = [each for lap_found in found for each in lap_found.took]
            overall[has_bad] = _percentile(took, 99)
            finding.figures[f"p50, {words} (ms)"] = f"{_percentile(took, 50):.1f}"
            finding.figures[f"p99, {words} (ms)"] = f"{overall[has_bad]:.1f}"
            finding.figures[f"p99 of each lap, {words}"] = ", ".join(f"{x.p99:.1f}" for x in found)
        ratio = overall[True] / overall[False]
        finding.figures["p99 with the bad ones / without"] = f"{ratio:.2f}"
        finding.figures["calls of the dead one by lap"] = ", ".join(
            str(len(each.calls)) for each in laps[True]
        )
        finding.figures["messages delivered to the dead, the silent, the slow one by lap"] = (
            "; ".join(", ".join(map(str, each.bad)) for each in laps[True])
        )
        if self.tolerance is not None:
            finding.hold(ratio <= 1 + self.tolerance, f"p99 rose to {ratio:.2f} of what it was")
        every = laps[False] + laps[True]
        copies = sum(each.copies for each in every)
        finding.figures["duplicated"] = copies
        finding.hold(not copies, f"{copies} messages came twice")
        for lap_found in laps[True]:
            self._hold_back_off(finding, lap_found.calls)
            dead, silent, slow = lap_found.bad
            finding.hold(dead + silent == 0, f"{dead + silent} came by a way that leads nowhere")
            if self.stands_still:
                most = self.total // self.destinations
                finding.hold(
                    0 < slow < most, f"{slow} of {most} came from the one that stands still"
                )

    def _hold_back_off(self, finding: Finding, calls: list[float]) -> None:
        finding.hold(calls, "the dead one was never called")
        for number, (before, after) in enumerate(itertools.pairwise(calls)):
            least = min(FIRST_RETRY * 2**number, 60) * 0.8
            # The call itself takes a moment, and the pause begins at its end.
            finding.hold(
                after - before >= least,
                f"call {number + 2} of the dead one came {after - before:.2f} s after the one "
                f"before, the back-off is {least:.2f} s at least",
            )

    def lap(self, finding: Finding, has_bad: bool) -> Lap:
        """Run both brokers once."""
        domains = [f"d{number}.example" for number in range(self.destinations)]
        settings = {
            "relay": {
                "first-retry": FIRST_RETRY,
                "last-retry": 60,
                "connect-timeout": self.connect_timeout,
            },
            "limits": {"handshake-timeout": self.connect_timeout},
        }
        with contextlib.ExitStack() as stack:
            pair = stack.enter_context(Pair(settings=settings))
            ports = [pair.beta.tls_port] * self.destinations
            dead = slow = None
            if has_bad:
                lines = [
                    stack.enter_context(contextlib.closing(line))
                    for line in (
                        Line(mood="refusing"),
                        Line(mood="silent"),
                        Line(pair.beta.tls_port, delay=0.0 if self.stands_still else 0.2),
                    )
                ]
                dead, slow = lines[0], lines[SLOW]
                ports[:BAD] = [line.port for line in lines]
            self._furnish(pair, domains, ports)
            pair.start()
            took, accepted_all = self._drive(pair, domains, slow)
            finding.hold(accepted_all, "alpha did not accept everything")
            calls = list(dead.called_at) if dead is not None else []
            quiet(finding, pair.daemons)
        first = min((stamp for stamp, _ in took.took.values()), default=0)
        begin = first + int(self.warm_seconds * 1e9)
        good = {n for n in range(self.total) if n % self.destinations >= BAD}
        return Lap(
            [took.took[n][1] / 1e6 for n in good if n in took.took and took.took[n][0] >= begin],
            len(good - took.took.keys()),
            took.copies,
            calls,
            took.got[:BAD],
        )

    @property
    def total(self) -> int:
        """Messages of a lap."""
        return int(self.rate * (self.seconds + self.warm_seconds))

    def _furnish(self, pair: Pair, domains: list[str], ports: list[int]) -> None:
        """Give beta the domains, a certificate that names them, and the zone their records."""
        tls = pair.directory / "tls"
        (issued,) = issue(
            tls,
            [pair.beta.domain],
            dns_names=[pair.beta.domain, *domains],
            srv_names=[],
            folder="many",
        )
        shutil.copy(issued.chain, tls / pair.beta.domain / "chain.pem")
        shutil.copy(issued.private_key, tls / pair.beta.domain / "key.pem")
        amend(pair.beta, {"domains": [pair.beta.domain, *domains]})
        records = [
            f"_amqps._tcp.{domain}. SRV 10 0 {port} {pair.beta.host}."
            for domain, port in zip(domains, ports, strict=True)
        ]
        with (pair.directory / "zone.txt").open("a") as zone:
            zone.write("\n".join(records) + "\n")

    def _drive(self, pair: Pair, domains: list[str], slow: Line | None) -> tuple[Gather, bool]:
        """Publish and consume until everything for the good ones has come."""
        # The slow one stands still once the first half is sent and it has passed something on.
        most = self.total // 2 if self.stands_still and slow is not None else self.total
        good = sum(1 for n in range(self.total) if n % self.destinations >= BAD)
        with (
            Connected(pair.beta.unix, "gather") as far,
            Connected(pair.alpha.unix, "spread") as near,
        ):
            gather = Gather(far, self.destinations)
            spread = Spread(near, domains, self.total, self.rate)
            end = time.monotonic() + self.total / self.rate + PATIENCE
            while time.monotonic() < end:
                if slow is not None and spread.sent == most < self.total and gather.got[SLOW]:
                    slow.delay = STANDSTILL
                    most = self.total
                spread.offer(most)
                near.turn(0.001)
                far.turn(0.001)
                if spread.is_done and gather.good >= good:
                    break
            return gather, spread.accepted == self.total


def _percentile(took: list[float], percent: int) -> float:
    return sorted(took)[len(took) * percent // 100]
