# SPDX-License-Identifier: Apache-2.0
"""Peers that misbehave: one takes everything and settles nothing, one floods."""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from amqproute.net.authority import issue
from amqproute.tools.daemon_pair import child_environment
from amqproute.tools.load_worker import (
    Connected,
    Consumer,
    LoadManagement,
    LoadTarget,
    MessageNumbers,
    Publisher,
)
from tests.integration.support import Daemon, certificates, until
from tests.network.campaign import Finding, Scenario
from tests.network.course import Course, Tally
from tests.network.grounds import lined_pair, logged, peer_row, quiet
from tests.network.strangers import Sponge
from tests.support.patience import PATIENCE

__all__ = ["BreaksProtocol", "Flood", "NeverSettles"]

EVIL = "evil.example"
TOO_MANY = "amqp:link:transfer-limit-exceeded"
UNREADABLE = bytes.fromhex("0000000d 02000000 0053 15c0ff")
"""A disposition whose list is longer than its frame."""


@dataclass(frozen=True)
class NeverSettles(Scenario):
    """A peer grants credit, takes messages, and settles none.

    For the first part of the run beta's place is taken by such a peer, with beta's certificate;
    then beta itself is there.

    Attributes:
        messages: published.
        seconds: of the peer that settles nothing.
        settle_timeout: alpha's `relay.settle-timeout`.
        window: alpha's `relay.send_window`.
        seed: of all that is random.
    """

    messages: int = 5000
    seconds: float = 20.0
    settle_timeout: float = 2.0
    window: int = 200
    seed: int = 3
    claim: ClassVar[str] = (
        "at most a window of messages is unsettled, the connection is made again after the "
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
            until(lambda: time.monotonic() - started > self.seconds, "", self.seconds + PATIENCE)
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
                    "most messages unsettled": most,
                    "taken in total": taken,
                    "seconds until all were at the true peer": f"{time.monotonic() - back:.1f}",
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


@dataclass(frozen=True)
class BreaksProtocol(Scenario):
    """A peer answers each transfer with an undecodable disposition.

    For the first part of the run beta's place is taken by such a peer, with beta's certificate;
    then beta itself is there.

    Attributes:
        messages: published.
        seconds: of the peer that breaks the protocol.
        seed: of all that is random.
    """

    messages: int = 500
    seconds: float = 60.0
    seed: int = 12
    claim: ClassVar[str] = (
        "no message is given up, alpha backs off and reports `peer.broken`, and when the true "
        "peer is back 0 are lost and 0 duplicated"
    )

    def run(self, finding: Finding) -> None:
        """Let the broken peer take what it is given, then bring beta back."""
        with contextlib.ExitStack() as stack:
            relay = {"first-retry": 0.2, "last-retry": 1}
            pair, line = stack.enter_context(lined_pair({"relay": relay}))
            tls = pair.directory / "tls"
            (issued,) = issue(tls, [pair.beta.domain], folder="broken")
            broken = Sponge(issued, str(tls / "ca.pem"), answer=UNREADABLE)
            stack.enter_context(contextlib.closing(broken))
            line.lead_to(broken.port)
            pair.start()
            course = Course(pair, self.messages, random.Random(self.seed))
            started = time.monotonic()
            course.publish(self.messages)

            def said() -> bool:
                row = peer_row(pair.alpha, "peer", pair.beta.domain)
                return "peer.broken: amqp:decode-error" in str(row["last-error"])

            until(lambda: time.monotonic() - started > self.seconds, "", self.seconds + PATIENCE)
            until(lambda: len(broken.called_at) > 4, "more connections")
            until(said, "`peer show` to say why")
            calls = len(broken.called_at)
            broken.close()
            line.lead_to(pair.beta.tls_port)
            line.cut()
            course.disconnect()
            tally = Tally(course, course.count())
            finding.figures.update(
                {
                    "connections to it": calls,
                    "messages sent to it, repetitions included": broken.taken,
                    "lost": len(tally.lost),
                    "duplicated": len(tally.twice) + len(tally.extra),
                }
            )
            finding.hold(not tally.wrong, f"{tally.wrong}")
            finding.hold(logged(pair.alpha, "breaks the protocol"), "the log does not say why")
            finding.hold(not logged(pair.alpha, "given up"), "a message was given up")
            quiet(finding, pair.daemons)


@dataclass(frozen=True)
class Flood(Scenario):
    """A peer sends at a hundred times its contract.

    A program of this machine publishes and consumes as fast as it can meanwhile; laps with and
    without the flood take turns. How many turns of the reactor a light connection waits beside a
    heavy one is counted in `tests.net.test_connection_scheduler`.

    Attributes:
        messages: of the program, in each lap.
        flood: messages of the peer, in each lap with it.
        laps: of each kind.
        contract: messages a second that the peer may send.
        factor: how many times that it sends.
        tolerance: by how much the program's throughput may fall; None: it is not judged.
    """

    messages: int = 40_000
    flood: int = 60_000
    laps: int = 3
    contract: int = 100
    factor: int = 100
    tolerance: float | None = 0.25
    claim: ClassVar[str] = (
        "all messages of the program are accepted and arrive, the peer's queue gets no more "
        "than the contract allows and no less than its first second's worth, and the "
        "program's throughput falls by less than the tolerance, if there is one"
    )

    def run(self, finding: Finding) -> None:
        """Run laps without and with the flood, in turn."""
        contract = {"messages-per-second": self.contract}
        daemon = Daemon(
            "alpha.example",
            changes={
                "nodes": [{"name": "program"}, {"name": "evil"}],
                "peers": {EVIL: {"level": "pkix", "contract": contract}},
            },
        )
        rates: dict[bool, list[float]] = {False: [], True: []}
        sent = 0
        told: set[str] = set()
        flooded = 0.0
        with contextlib.closing(_Running(daemon)):
            self.lap(daemon)  # warm
            for lap in range(2 * self.laps):
                if lap % 2:
                    began = time.monotonic()
                    with self.flooding(daemon) as found:
                        rates[True].append(self.lap(daemon))
                    flooded += time.monotonic() - began
                    sent += found["sent"]
                    told |= set(found["told"])
                else:
                    rates[False].append(self.lap(daemon))
            with Connected(LoadTarget("127.0.0.1", daemon.plain), "ask") as ask:
                # The peer closes links before it hears of outcomes: the queue knows what got in.
                taken = LoadManagement(ask).row("queue", "evil")["enqueued"]
            try:
                daemon.check()
            except AssertionError as error:
                finding.hold(False, str(error)[:300])
        quiet_rate, flood_rate = (statistics.median(rates[each]) for each in (False, True))
        ratio = flood_rate / quiet_rate
        # In each lap a second's worth may come at once.
        most = int(self.contract * (flooded + self.laps))
        finding.figures.update(
            {
                "messages/s of the program, without": f"{quiet_rate:.0f}",
                "messages/s of the program, with the flood": f"{flood_rate:.0f}",
                "with / without": f"{ratio:.3f}",
                "with / without, by lap": ", ".join(
                    f"{beside / alone:.2f}"
                    for alone, beside in zip(rates[False], rates[True], strict=True)
                ),
                "the peer sent": sent,
                "of these accepted": taken,
                "the contract allows": most,
                "errors to the peer": ", ".join(sorted(told)) or "nothing",
            }
        )
        if self.tolerance is not None:
            finding.hold(ratio >= 1 - self.tolerance, f"throughput fell to {ratio:.3f}")
        finding.hold(taken <= most, f"{taken} of the peer's got in, {most} at most")
        finding.hold(taken >= self.contract, f"{taken} of the peer's got in: not even its right")
        finding.hold(sent > 2 * most, f"{sent} are no flood: the contract allows {most}")
        finding.hold(TOO_MANY in told, f"the peer was not told {TOO_MANY}")

    def lap(self, daemon: Daemon) -> float:
        """Publish and consume everything; return messages a second.

        Raises:
            AssertionError: it does not come to an end.
        """
        place = LoadTarget("127.0.0.1", daemon.plain)
        numbering = MessageNumbers(self.messages, 256)
        with Connected(place, "near") as near, Connected(place, "far") as far:
            consumer = Consumer(far, "program", numbering)
            publisher = Publisher(near, "program", numbering)
            started = time.monotonic()
            while not publisher.is_done or consumer.missing:
                publisher.offer()
                near.turn(0.0005)
                far.turn(0.0005)
                if time.monotonic() - started > PATIENCE:
                    raise AssertionError(f"{consumer.missing} messages did not come")
            assert publisher.accepted == self.messages, publisher.refused
            return self.messages / (time.monotonic() - started)

    @contextlib.contextmanager
    def flooding(self, daemon: Daemon) -> Iterator[dict[str, Any]]:
        """Let the peer flood; what it counted is in the map afterwards."""
        issued = certificates().issue(EVIL)
        found: dict[str, Any] = {}
        rate = self.contract * self.factor
        arguments = [daemon.tls, issued.chain, issued.private_key, certificates().trust, "evil",
                     rate, self.flood]  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.network.flooder", *map(str, arguments)],
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"flooding\n"
            yield found
            output, _ = process.communicate(timeout=self.flood / rate + PATIENCE)
            found.update(json.loads(output))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)
            process.stdout.close()


class _Running:
    """Starts a daemon, and stops it when closed."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon.start()

    def close(self) -> None:
        self._daemon.stop()
