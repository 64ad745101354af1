# SPDX-License-Identifier: Apache-2.0
"""Brokers killed, stopped and reloaded at random, and cut connections."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import kill as send_signal
from typing import ClassVar

from amqproute.tools.daemon_pair import DaemonPair
from tests.integration.support import until
from tests.network.campaign import Finding, Scenario
from tests.network.course import Course, Tally
from tests.network.grounds import lined_pair, quiet
from tests.network.line import Line

__all__ = ["BadLine", "KillsAndCuts", "StopsAndReloads"]

KILLS_IN_A_ROUND = 5 / 3
"""One side or both (4/3 on average), and now and then once more while it recovers."""


class RoughCourse(Course):
    """A course with any kind of harm between its shares."""

    def __init__(self, pair: DaemonPair, messages: int, chance: random.Random, line: Line) -> None:
        super().__init__(pair, messages, chance)
        self.line = line
        self.stops = 0
        self.reloads = 0
        self.exit_codes: set[int | None] = set()

    def suffer(self, harms: Sequence[Callable[[], None]]) -> None:
        """Publish everything, with harm at random moments."""
        self._pair.start()
        left = len(harms)
        for harm in harms:
            share = -(-len(self._later) // (left + 1))
            left -= 1
            self.publish(share, self._chance.randrange(share) if share else 0)
            harm()
        self.publish(self.numbering.count)
        self.disconnect()

    def cut(self) -> None:
        """Cut alpha's connection to beta; before, let a little of what they say get lost."""
        mute_seconds = self._chance.uniform(0, 0.1)
        # A connection may end by itself while the line is mute: then there was nothing to cut.
        until(lambda: self.line.is_used and self.line.cut(mute_seconds), "a connection to cut")

    def stop(self) -> None:
        """Stop one side in order (SIGTERM), and start it again."""
        victim = self._chance.choice(self._pair.daemons)
        self.exit_codes.add(victim.stop())
        self.stops += 1
        self.pause()
        victim.start()
        victim.wait_ready()

    def reload(self) -> None:
        """Tell one side to read its configuration (SIGHUP)."""
        victim = self._chance.choice(self._pair.daemons)
        assert victim.pid is not None
        send_signal(victim.pid, signal.SIGHUP)
        self.reloads += 1

    def judge(self, finding: Finding) -> None:
        """Count what came and hold that it is right."""
        tally = Tally(self, self.count())
        finding.figures.update(
            {
                "messages": self.numbering.count,
                "lost": len(tally.lost),
                "duplicated": len(tally.twice) + len(tally.extra),
                "sent again by the publisher": self.sent_again.total(),
                "copies of these that arrived": tally.copies,
            }
        )
        finding.hold(not tally.wrong, f"{tally.wrong}")
        refused = set(self.refused) - {"released"}
        finding.hold(not refused, f"publisher refused: {refused}")
        quiet(finding, self._pair.daemons)


@dataclass(frozen=True)
class KillsAndCuts(Scenario):
    """`kill -9` of either side, and cuts of the connection between them.

    Attributes:
        messages: published.
        kills: at least this many.
        cuts: of a standing connection; up to a tenth of a second of what is said before is lost.
        seed: of all that is random.
    """

    messages: int = 10_000
    kills: int = 200
    cuts: int = 50
    seed: int = 1
    claim: ClassVar[str] = "0 lost, 0 duplicated"

    def run(self, finding: Finding) -> None:
        """Kill, cut, count."""
        chance = random.Random(self.seed)
        with lined_pair() as (pair, line):
            course = RoughCourse(pair, self.messages, chance, line)

            def crash() -> None:
                if len(course.kills) < self.kills:
                    course.crash()

            harms = [crash] * round(self.kills / KILLS_IN_A_ROUND * 1.1) + [course.cut] * self.cuts
            chance.shuffle(harms)
            course.suffer(harms)
            course.judge(finding)
            finding.figures.update({"kills": len(course.kills), "cuts": line.cuts})
            finding.hold(line.cuts >= self.cuts, f"only {line.cuts} cuts met a connection")


@dataclass(frozen=True)
class StopsAndReloads(Scenario):
    """SIGTERM and SIGHUP at random.

    Attributes:
        messages: published.
        stops: SIGTERM, exit, start.
        reloads: SIGHUP.
        seed: of all that is random.
    """

    messages: int = 10_000
    stops: int = 40
    reloads: int = 80
    seed: int = 2
    claim: ClassVar[str] = "0 lost, 0 duplicated, every stop ends with exit code 0"

    def run(self, finding: Finding) -> None:
        """Stop, reload, count."""
        chance = random.Random(self.seed)
        with lined_pair() as (pair, line):
            course = RoughCourse(pair, self.messages, chance, line)
            harms = [course.stop] * self.stops + [course.reload] * self.reloads
            chance.shuffle(harms)
            course.suffer(harms)
            course.judge(finding)
            finding.figures.update({"stops": course.stops, "reloads": course.reloads})
            finding.hold(course.exit_codes <= {0}, f"exit codes {course.exit_codes}")


@dataclass(frozen=True)
class BadLine(Scenario):
    """A slow, lossy, narrow connection with occasional cuts.

    Attributes:
        messages: published.
        delay_ms: that each piece takes.
        loss: percent of the packets, which come 0.2 s later, and all behind them.
        rate_mbit: in a second, each way.
        cuts: of a standing connection.
        seed: of all that is random.
    """

    messages: int = 10_000
    delay_ms: float = 20.0
    loss: float = 2.0
    rate_mbit: float = 4.0
    cuts: int = 20
    seed: int = 3
    claim: ClassVar[str] = "0 lost, 0 duplicated"

    def run(self, finding: Finding) -> None:
        """Slow down, cut, count."""
        chance = random.Random(self.seed)
        with lined_pair() as (pair, line):
            line.delay = self.delay_ms / 1000
            line.loss = self.loss / 100
            line.rate = self.rate_mbit * 1e6 / 8
            course = RoughCourse(pair, self.messages, chance, line)
            course.suffer([course.cut] * self.cuts)
            course.judge(finding)
            finding.figures.update({"cuts": line.cuts, "losses on the connection": line.losses})
            finding.hold(line.losses > 0, "nothing was lost on the line")
            finding.hold(line.cuts >= self.cuts, f"only {line.cuts} cuts met a connection")
