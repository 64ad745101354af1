# SPDX-License-Identifier: Apache-2.0
"""Peers that misbehave: one takes everything and settles nothing."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass
from typing import ClassVar

from amqproute.net.authority import issue
from tests.integration.support import until
from tests.network.campaign import Finding, Scenario
from tests.network.course import Course, Tally
from tests.network.grounds import lined_pair, logged, quiet
from tests.network.strangers import Sponge

__all__ = ["NeverSettles"]

STREAM_SECONDS = 0.5


@dataclass(frozen=True)
class NeverSettles(Scenario):
    """A peer grants credit, takes messages, and settles none of them.

    For the first part of the run beta's place is taken by such a peer, with beta's certificate;
    then beta itself is there.

    Attributes:
        messages: published.
        seconds: of the peer that settles nothing.
        settle_timeout: alpha's `relay.settle-timeout`.
        window: alpha's `relay.window`.
        seed: of all that is random.
    """

    messages: int = 5000
    seconds: float = 20.0
    settle_timeout: float = 2.0
    window: int = 200
    seed: int = 3
    claim: ClassVar[str] = (
        "at most a window of messages is in its hands, the connection is made again after the "
        "settle-timeout, and when the true peer is back 0 are lost and 0 duplicated"
    )

    def run(self, finding: Finding) -> None:
        """Let the sponge take what it is given, then bring beta back."""
        relay = {
            "settle-timeout": self.settle_timeout,
            "window": self.window,
            "first-retry": 0.2,
            "last-retry": 1,
        }
        with contextlib.ExitStack() as stack:
            pair, line = stack.enter_context(lined_pair({"relay": relay}))
            tls = pair.directory / "tls"
            (issued,) = issue(tls, [pair.beta.domain], folder="sponge")
            sponge = stack.enter_context(contextlib.closing(Sponge(issued, str(tls / "ca.pem"))))
            line.lead_to(sponge.port)
            pair.start()
            course = Course(pair, self.messages, random.Random(self.seed))
            started = time.monotonic()
            course.publish(self.messages)
            finding.figures["accepted at alpha meanwhile"] = course.accepted
            until(lambda: time.monotonic() - started > self.seconds, "", self.seconds + 5)
            taken, most, calls = sponge.taken, sponge.most_unsettled, len(sponge.called_at)
            sponge.close()
            line.lead_to(pair.beta.tls_port)
            line.cut()
            course.disconnect()
            back = time.monotonic()
            tally = Tally(course, course.count())
            finding.figures.update(
                {
                    "connections to it": calls,
                    "the most in its hands": most,
                    "taken in all": taken,
                    "seconds until all was at the true peer": f"{time.monotonic() - back:.1f}",
                    "lost": len(tally.lost),
                    "duplicated": len(tally.twice) + len(tally.extra),
                }
            )
            finding.hold(not tally.wrong, f"{tally.wrong}")
            finding.hold(taken, "the peer was given nothing")
            finding.hold(most <= self.window, f"{most} in its hands, the window is {self.window}")
            most_calls = self.seconds / self.settle_timeout + 2
            finding.hold(2 <= calls <= most_calls, f"{calls} connections, {most_calls} at most")
            finding.hold(logged(pair.alpha, "peer.stuck"), "the log does not say why")
            quiet(finding, pair.daemons)
