# SPDX-License-Identifier: Apache-2.0
"""``peer test`` within the daemon: the operation TEST-PEER of ``$management``.

The test is that of the command (`peer_test`), with the configuration in force, and the answer has
what the command prints with ``--json``. As it makes connections and looks names up, it takes the
right to manage the relay queue of the next hop, one runs for a domain at a time, `MOST_TESTS` in
all, and each ends after `TEST_SECONDS`. Like the command it has the daemon forget earlier answers
of the DNS first. The reply comes at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.logger import Logger

from amqproute.address import Address
from amqproute.config.schema import Config
from amqproute.daemon.peer_cures import cure_of
from amqproute.daemon.peer_test import FAILED, OK, PeerTest
from amqproute.net.reactor import IReactor
from amqproute.services.dns_flush import DnsFlush, asked_hop
from amqproute.services.management_node import (
    CONFLICT,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.services.management_node import OK as DONE
from amqproute.values import RouteRule

__all__ = ["MOST_TESTS", "TEST_PEER", "TEST_SECONDS", "DaemonPeerTester", "result_of"]

log = Logger()

TEST_PEER: Final = "TEST-PEER"
MOST_TESTS: Final = 4
"""Tests at one time."""
TEST_SECONDS: Final = 90.0
"""Seconds after which a test is ended."""


class DaemonPeerTester:
    """Runs tests.

    Args:
        config: returns the configuration in force.
        reactor: the reactor for connections and timers.
        made: returns the routes made at runtime.
        flush: knows the next hop of an address, and forgets what the DNS has said about it.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        reactor: IReactor,
        made: Callable[[], Iterable[RouteRule]],
        flush: DnsFlush,
    ) -> None:
        self._config = config
        self._reactor = reactor
        self._made = made
        self._flush = flush
        self._running: set[str] = set()

    def __repr__(self) -> str:
        return f"<DaemonPeerTester {len(self._running)} running>"

    def register(self, service: ManagementService) -> None:
        """Add the operation to the management node."""
        service.offer(TEST_PEER, lambda request: Deferred.fromCoroutine(self._reply(request)))

    async def _reply(self, request: ManagementRequest) -> ManagementReply:
        text = str(request.properties.get("name", ""))
        asked = asked_hop(self._flush, text, request.principal)
        if isinstance(asked, ManagementReply):
            return asked
        address, hop = asked
        key = hop.domain
        if key in self._running or len(self._running) >= MOST_TESTS:
            return ManagementReply.of(CONFLICT, "other tests are running: try again in a moment")
        self._flush.memory.forget(hop)
        self._running.add(key)
        size = request.body.get("size", 0)
        assert isinstance(size, int)
        try:
            walk = await self._walk(address, size)
        finally:
            self._running.discard(key)
        bad = [step for step in walk.steps if step.state == FAILED]
        if walk.is_good:
            words = "messages can go there" + (", but not to every place" if bad else "")
        else:
            words = f"messages cannot go there: {bad[-1].words}" if bad else "no place was found"
        return ManagementReply.of(DONE, words, result_of(walk, text))

    async def _walk(self, address: Address, size: int) -> PeerTest:
        walk = PeerTest(
            self._config(),
            self._reactor,
            address,
            uuid.uuid4().hex[:12],
            size,
            tuple(self._made()),
        )
        log.info("a test of the connection to {address} begins", address=str(address))
        running = Deferred.fromCoroutine(walk.run())
        deadline = self._reactor.callLater(TEST_SECONDS, _end, walk, running)
        try:
            await running
        except (CancelledError, TimeoutError):
            if not walk.is_ended:
                raise
        finally:
            if deadline.active():
                deadline.cancel()
        if walk.is_ended:
            words = f"the test was ended after {TEST_SECONDS:.0f} s"
            walk.note("configuration", "", FAILED, "peer.timeout", words)
        return walk


def _end(walk: PeerTest, running: Deferred[None]) -> None:
    walk.is_ended = True
    running.cancel()


def result_of(walk: PeerTest, asked: str) -> dict[str, object]:
    """Return the result of a test for programs.

    Args:
        walk: the test, at its end.
        asked: the domain or address, as it was given.
    """
    bad = [step for step in walk.steps if step.state == FAILED]
    return {
        "domain": walk.address.domain,
        "address": asked,
        "probe": walk.probe,
        "code": OK if walk.is_good else (bad[-1].code if bad else "peer.no-place"),
        "steps": [{**step.facts(), "next": cure_of(step, walk)} for step in walk.steps],
    }
