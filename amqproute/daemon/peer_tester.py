# SPDX-License-Identifier: Apache-2.0
"""``peer test`` within the daemon, for the dashboard.

The test is that of the command (`peer_test`), with the configuration in force. As it makes
connections and looks names up, it takes the right to manage the relay queue of the next hop, one
runs for a destination at a time, and `MOST_TESTS` in all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Final

from twisted.logger import Logger

from amqproute.address import parse
from amqproute.config.schema import Config
from amqproute.daemon.peer_cures import remedy_of
from amqproute.daemon.peer_test import FAILED, PeerTest
from amqproute.dashboard.dashboard_site import PeerTestResult
from amqproute.dashboard.management_source import ManagementSource
from amqproute.errors import AmqprouteError, InvalidField
from amqproute.net.reactor import IReactor
from amqproute.values import RouteRule

__all__ = ["MOST_TESTS", "DaemonPeerTester"]

log = Logger()

MOST_TESTS: Final = 4
"""Tests at one time."""


class DaemonPeerTester:
    """Runs tests.

    Args:
        config: returns the configuration in force.
        reactor: for connections and timers.
        made: returns the routes made at runtime.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        reactor: IReactor,
        made: Callable[[], Iterable[RouteRule]],
    ) -> None:
        self._config = config
        self._reactor = reactor
        self._made = made
        self._running: set[str] = set()

    def __repr__(self) -> str:
        return f"<DaemonPeerTester {len(self._running)} running>"

    async def test(self, source: ManagementSource, to: str) -> PeerTestResult:
        """See `amqproute.dashboard.dashboard_site.PeerTester`."""
        try:
            address = parse(to if "@" in to else f"@{to}")
        except InvalidField as error:
            return PeerTestResult(False, f"{error.description}.", [])
        if address.domain is None:
            return PeerTestResult(False, f"{to[:256]!r} names no domain.", [])
        # The daemon forgets what the DNS said before, and refuses those without the right.
        forgotten = await source.do("FORGET", "", str(address))
        if not forgotten.is_good:
            return PeerTestResult(False, f"{forgotten.words}.", [])
        key = address.domain
        if key in self._running or len(self._running) >= MOST_TESTS:
            return PeerTestResult(False, "Other tests are running: try again in a moment.", [])
        self._running.add(key)
        try:
            walk = PeerTest(
                self._config(),
                self._reactor,
                address,
                uuid.uuid4().hex[:12],
                made=tuple(self._made()),
            )
            log.info("{user} tests the connection to {to}", user=source.user, to=to)
            await walk.run()
        except AmqprouteError as error:
            return PeerTestResult(False, f"The test has failed: {error}", [])
        finally:
            self._running.discard(key)
        steps = [{**step.facts(), "next": remedy_of(step, walk)} for step in walk.steps]
        bad = [step for step in walk.steps if step.state == FAILED]
        if walk.is_good:
            words = "Messages can go there" + (", but not to every place." if bad else ".")
        else:
            words = f"Messages cannot go there: {bad[-1].words}." if bad else "No place was found."
        return PeerTestResult(walk.is_good, words, steps)
