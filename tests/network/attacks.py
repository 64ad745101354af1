# SPDX-License-Identifier: Apache-2.0
"""Attacks by strangers on one broker, and their effect on a well-behaved client.

Where times are measured the broker has a processor of its own; attackers (`attackers`) and the
client (`bystander`) share the other ones, the attackers at the lowest priority: what is measured is
the fairness of the broker and not that of the system's scheduler.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from amqproute.auth.users import add_user
from amqproute.net.authority import issue, make_authority
from tests.integration.support import TROUBLE, Daemon, Zone, die_with_parent, new_directory
from tests.network.attackers import ATTACKS, Mark
from tests.network.bystander import Visit
from tests.network.campaign import Finding, Scenario
from tests.support.patience import PATIENCE

__all__ = ["Attacks", "make_attacker", "make_bystander", "make_mark", "short"]

ROOT = Path(__file__).parent.parent.parent
HOSTILE = "hostile.example"
NODE = "shared"
WARM_SECONDS = 10.0
CALM_SECONDS = 30.0
SAMPLE_SECONDS = 1.0
MIB = 1 << 20


@dataclass(frozen=True)
class Attacks(Scenario):
    """Strangers attack, alone or together.

    Attributes:
        names: of the attacks, separated by spaces; empty for all of them.
        seconds: they take.
        warm_seconds: of the client alone before them.
        calm_seconds: after them, until the memory is read for the last time.
        growth: how many times its resident memory at the start the broker may have at the end.
        milliseconds: that a message of the client's may take, in 99 of 100 cases; 0: any time.
        is_pinned: whether the broker gets a processor of its own.
    """

    names: str = ""
    seconds: float = 600.0
    warm_seconds: float = WARM_SECONDS
    calm_seconds: float = CALM_SECONDS
    growth: float = 1.5
    milliseconds: float = 50.0
    is_pinned: bool = True
    claim: ClassVar[str] = (
        "each request of a well-behaved client succeeds, its p99 for a durable message stays "
        "below the bound, a correct password is answered within 2 s, and the broker's "
        "resident memory ends within the allowed growth"
    )

    @property
    def title(self) -> str:
        """The attacks."""
        return self.names.replace("-", " ") if self.names else "all attacks together"

    def run(self, finding: Finding) -> None:
        """Measure without attackers, attack, and compare."""
        names = self.names.split() or list(ATTACKS)
        with _broker() as daemon:
            cpus = os.sched_getaffinity(0)
            if self.is_pinned and len(cpus) > 1:
                os.sched_setaffinity(daemon.pid, {min(cpus)})
            mark = make_mark(daemon, self.seconds)
            is_pinned = self.is_pinned
            calm = make_bystander(daemon, self.warm_seconds, is_pinned=is_pinned).result()
            start = peak = daemon.resident()
            beside = make_bystander(daemon, self.seconds, is_pinned=is_pinned)
            attackers = {name: make_attacker(name, mark, is_pinned=is_pinned) for name in names}
            while any(each.is_busy for each in attackers.values()):
                time.sleep(SAMPLE_SECONDS)
                peak = max(peak, daemon.resident())
            counts = {name: each.result() for name, each in attackers.items()}
            attacked = beside.result()
            time.sleep(self.calm_seconds)
            end = daemon.resident()
            self._judge(finding, calm, attacked)
            for name, did in counts.items():
                finding.figures[f"{name} did"] = ", ".join(f"{v} {k}" for k, v in did.items())
                finding.hold(sum(did.values()), f"{name} did nothing")
                finding.hold("ACCEPTED" not in did, f"{name}: a wrong password was accepted")
            finding.figures["resident before, peak, after (MiB)"] = (
                f"{start / MIB:.0f}, {peak / MIB:.0f}, {end / MIB:.0f}"
            )
            finding.hold(
                end <= self.growth * start,
                f"resident memory grew from {start / MIB:.0f} to {end / MIB:.0f} MiB",
            )
            trouble = [line for line in daemon.log().splitlines() if TROUBLE.search(line)]
            finding.hold(not trouble, f"the log shows trouble: {trouble[:3]}")
            finding.figures["log (KiB)"] = f"{daemon.log_file.stat().st_size / 1024:.0f}"

    def _judge(self, finding: Finding, calm: Any, attacked: Any) -> None:
        for kind, words in (
            ("publish", "a durable message"),
            ("enter", "connect, log in, send"),
            ("post", "a transaction"),
        ):
            before, beside = calm[kind], attacked[kind]
            finding.figures[f"{words}: p50, p99, longest (ms), before"] = (
                f"{before['p50']}, {before['p99']}, {before['max']} of {before['count']}"
            )
            finding.figures[f"{words}: p50, p99, longest (ms), attacked"] = (
                f"{beside['p50']}, {beside['p99']}, {beside['max']} of {beside['count']}"
            )
            finding.hold(beside["count"], f"{words}: never succeeded")
            finding.hold(not beside["failures"], f"{words}: {beside['failures']}")
        p99, longest = attacked["publish"]["p99"], attacked["enter"]["max"]
        finding.figures["message p99 (ms)"] = p99
        finding.figures["longest log-in (ms)"] = longest
        if self.milliseconds:
            finding.hold(p99 < self.milliseconds, f"the p99 of a message is {p99} ms")
            finding.hold(longest < 2000, f"a right password took {longest} ms")


def short(names: str = "") -> Attacks:
    """Return the short form: seconds, in which successes are counted and nothing is measured."""
    return Attacks(
        names,
        seconds=3.0,
        warm_seconds=1.0,
        calm_seconds=0.0,
        growth=10.0,
        milliseconds=0.0,
        is_pinned=False,
    )


@contextlib.contextmanager
def _broker() -> Iterator[Daemon]:
    zone = Zone()
    daemon = Daemon("alpha.example", nameserver=zone.port)
    add_user(daemon.users, "carol", "honest", iterations=4096)
    queues = [{"name": NODE, "capacity": 1000}, {"name": "carol"}]
    access = daemon.settings["access"] + [
        {"allow": ["publish", "consume"], "who": "user:carol", "node": "carol"}
    ]
    daemon.write(nodes=queues, access=access)
    try:
        yield daemon.start()
    finally:
        daemon.kill()
        zone.close()


def make_mark(daemon: Daemon, seconds: float) -> Mark:
    """Return the mark that a broker is for attackers."""
    directory = new_directory("hostile") / "ca"
    make_authority(directory)
    names = [f"{name}.{HOSTILE}" for name in "abcdefgh"]
    (issued,) = issue(
        directory, [HOSTILE], dns_names=names, srv_names=[f"_amqps.{name}" for name in names]
    )
    return Mark(
        plain=daemon.plain,
        login=daemon.upgrade,
        tls=daemon.tls,
        zone=HOSTILE,
        chain=str(issued.chain),
        private_key=str(issued.private_key),
        user="carol",
        node=NODE,
        source="127.0.0.66",
        seconds=seconds,
    )


class _Program:
    """A program of this package that prints one JSON object."""

    def __init__(self, arguments: Sequence[str], seconds: float, *, is_pinned: bool) -> None:
        self._deadline = time.monotonic() + seconds + PATIENCE
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            preexec_fn=die_with_parent,
            text=True,
        )
        cpus = os.sched_getaffinity(0)
        if is_pinned and len(cpus) > 1:
            os.sched_setaffinity(self._process.pid, cpus - {min(cpus)})

    @property
    def is_busy(self) -> bool:
        """It has not ended."""
        return self._process.poll() is None and time.monotonic() < self._deadline

    def result(self) -> Any:
        """Wait for what it prints.

        Raises:
            AssertionError: it did not end in time, or not well.
        """
        try:
            text, _ = self._process.communicate(timeout=self._deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self._process.args!r} does not end") from None
        assert self._process.returncode == 0, (self._process.args, text)
        return json.loads(text)


def make_attacker(name: str, mark: Mark, *, is_pinned: bool) -> _Program:
    """Start an attack."""
    arguments = ("tests.network.attackers", name, json.dumps(asdict(mark)))
    return _Program(arguments, mark.seconds, is_pinned=is_pinned)


def make_bystander(daemon: Daemon, seconds: float, *, is_pinned: bool) -> _Program:
    """Start the well-behaved client ``carol``, who has a queue of that name."""
    visit = Visit(daemon.upgrade, "carol", "honest", "carol", seconds)
    arguments = ("tests.network.bystander", json.dumps(asdict(visit)))
    return _Program(arguments, seconds, is_pinned=is_pinned)
