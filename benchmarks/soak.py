# SPDX-License-Identifier: Apache-2.0
"""A soak: does a daemon's memory stay flat while strangers' requests fail?

::

    python -m benchmarks.soak                  # five minutes
    python -m benchmarks.soak --seconds 3600   # an hour
    python -m benchmarks.soak --attacks attach-churn wrong-passwords

One daemon; peers whose certificates nobody vouches for and whose name servers refuse, messages to
thousands of domains that cannot be found, links that come and go, wrong passwords, and a client
that behaves. The resident memory, the objects that the garbage collector tracks (without those of
the start, which are frozen) and the processor time are printed every few seconds, and again when
the attackers have gone. Exit code 1 if the memory at the end is more than `GROWTH` times what it
was after the warm-up, under the same load, or if the client was not served.
Nothing leaves the loopback interface.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twisted.internet import reactor
from twisted.internet.task import LoopingCall

from amqproute.auth.users import add_user
from amqproute.daemon.service import run
from benchmarks.campaign import revision
from tests.integration.support import Daemon, Zone
from tests.network.attackers import ATTACKS
from tests.network.attacks import make_attacker, make_bystander, make_mark

__all__ = ["Sample", "soak"]

GROWTH: Final = 1.5
DEFAULT: Final = (
    "refused-certificates",
    "unresolvable-destinations",
    "attach-churn",
    "wrong-passwords",
)
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Sample:
    """The daemon at one moment.

    Attributes:
        seconds: since the attacks began.
        resident: octets of memory in RAM.
        objects: that the garbage collector tracks.
        processor: seconds of processor time used so far.
    """

    seconds: float
    resident: int
    objects: int
    processor: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.0f} s {self.resident / MIB:8.1f} MiB {self.objects:10,} objects "
            f"{self.processor:8.1f} s of processor time"
        )


class Watched(Daemon):
    """A daemon that writes down how many objects it has."""

    @property
    def counts(self) -> Path:
        """Where it writes that."""
        return self.directory / "objects"

    def spawn(self) -> None:
        """See `Daemon.spawn`."""
        command = [sys.executable, "-m", "benchmarks.soak", "--serve"]
        self._spawn([*command, str(self.file), str(self.counts)], {}, ())

    def sample(self, seconds: float) -> Sample:
        """Look at it."""
        text = self.counts.read_text() if self.counts.exists() else ""
        ticks = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
        used = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return Sample(seconds, self.resident(), int(text or 0), used)


def soak(
    seconds: float, warm_seconds: float, calm_seconds: float, names: Sequence[str]
) -> tuple[list[Sample], list[str]]:
    """Run a soak.

    Args:
        seconds: how long strangers attack, after the warm-up.
        warm_seconds: how long they do before the memory is first looked at.
        calm_seconds: how long to look on when they have gone.
        names: of the attacks.

    Returns:
        What was seen from the end of the warm-up on, and what did not hold.
    """
    zone = Zone()
    daemon = Watched("alpha.example", nameserver=zone.port)
    add_user(daemon.users, "carol", "honest", iterations=4096)
    daemon.write(
        nodes=[{"name": "shared", "capacity": 1000}, {"name": "carol"}],
        access=[
            *daemon.settings["access"],
            {"allow": ["publish", "consume"], "who": "user:carol", "node": "carol"},
        ],
    )
    samples: list[Sample] = []
    broken: list[str] = []
    try:
        daemon.start()
        began = time.monotonic()
        whole = warm_seconds + seconds
        mark = make_mark(daemon, whole)
        attackers = {name: make_attacker(name, mark, is_pinned=False) for name in names}
        client = make_bystander(daemon, whole + calm_seconds, is_pinned=False)
        time.sleep(warm_seconds)
        end = began + whole + calm_seconds
        step = min(10.0, max(0.5, (end - time.monotonic()) / 12))
        while True:
            samples.append(daemon.sample(time.monotonic() - began))
            print(samples[-1], flush=True)
            left = end - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(step, left))
        for name, attacker in attackers.items():
            did = attacker.result()
            print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in did.items()))
            if not sum(did.values()):
                broken.append(f"{name} did nothing")
        served = client.result()["publish"]["count"]
        print(f"the client that behaves: {served} durable messages")
        if not served:
            broken.append("the client that behaves was not served")
    finally:
        daemon.kill()
        zone.close()
    first, last = samples[0], samples[-1]
    if last.resident > GROWTH * first.resident:
        broken.append(
            f"the memory grew from {first.resident / MIB:.0f} to {last.resident / MIB:.0f} MiB"
        )
    return samples, broken


def _serve(path: Path, counts: Path) -> int:
    """Be the daemon, and write down every two seconds how many objects there are."""
    call = LoopingCall(lambda: counts.write_text(str(len(gc.get_objects()))))
    reactor.callWhenRunning(call.start, 2.0)  # type: ignore[attr-defined]
    return run(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="of attacks (300)")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds of warm-up (30)")
    parser.add_argument("--calm", type=float, default=20.0, help="seconds after the attacks (20)")
    parser.add_argument("--attacks", nargs="+", default=DEFAULT, choices=ATTACKS, metavar="NAME")
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        return _serve(*given.serve)
    print(f"revision {revision()}: {', '.join(given.attacks)}", flush=True)
    _, broken = soak(given.seconds, given.warm, given.calm, given.attacks)
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
