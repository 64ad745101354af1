# SPDX-License-Identifier: Apache-2.0
"""The operation STATUS of ``$management``.

A survey collects the facts for `amqproute.services.health_rules`. It inspects every node and next
hop, never every message, and yields to the reactor after `TURN_WORK` units of work (a node is one;
so are `ENTRIES_PER_UNIT` acquired or quarantined messages, which are searched for the oldest, up to
`MOST_ENTRIES` of a node). Ten thousand nodes take some hundred turns. Requests during a survey
share its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from twisted.internet.defer import Deferred

from amqproute.broker.broker import Broker
from amqproute.broker.disposal import CONSUMER
from amqproute.broker.queue import Queue
from amqproute.config.operations_settings import StatusSettings
from amqproute.joined_calls import JoinedCalls
from amqproute.relay.destination import Destination
from amqproute.relay.destination_row import peer_row
from amqproute.relay.relay import Relay
from amqproute.services.health_rules import (
    BrokerFacts,
    DestinationFacts,
    HealthLimits,
    HealthVerdicts,
    NodeFacts,
    RecentFacts,
    judge_broker,
    judge_destination,
    judge_node,
)
from amqproute.services.management_node import OK, ManagementReply
from amqproute.turn_scheduler import Pause
from amqproute.values import RELAY_PREFIX

__all__ = ["TURN_WORK", "HealthSurvey", "limits_of", "recent_facts"]

TURN_WORK: Final = 30
"""Units of work in one step: a millisecond where every node has a problem."""
ENTRIES_PER_UNIT: Final = 100
MOST_ENTRIES: Final = 5000
"""Acquired messages of one node that are inspected; consumers have them in order, so the first ones
are the oldest."""
MOST_PEERS: Final = 100
"""Next hops that are reported with all their attributes."""


def limits_of(status: StatusSettings) -> HealthLimits:
    """Return the limits that the configuration sets."""
    return HealthLimits(
        oldest=status.oldest,
        oldest_by=status.oldest_by,
        no_consumer=status.no_consumer,
        no_credit=status.no_credit,
        certificate=status.certificate,
        dns=status.dns,
    )


def recent_facts(broker: Broker) -> tuple[RecentFacts, ...]:
    """Return the events of the last hour."""
    found = []
    for happening, count in broker.recent.totals().items():
        event, place, kind, condition = happening
        is_leaving = place.startswith(RELAY_PREFIX) or (event == "rejected" and kind != CONSUMER)
        name = place.removeprefix(RELAY_PREFIX)
        found.append(RecentFacts(event, name, kind, condition, count, is_leaving))
    return tuple(found)


class HealthSurvey:
    """Surveys a broker when it is asked.

    Args:
        pause: called between slices.
        now_ms: the wall clock.
        broker: its nodes.
        relay: its next hops.
        limits: gives the limits in force.
        facts: returns everything beside nodes and next hops.

    Attributes:
        turns: reactor turns that surveys have taken so far.
    """

    def __init__(
        self,
        pause: Pause,
        now_ms: Callable[[], int],
        broker: Broker,
        relay: Relay,
        limits: Callable[[], HealthLimits],
        facts: Callable[[], BrokerFacts],
    ) -> None:
        self.turns = 0
        self._pause = pause
        self._now_ms = now_ms
        self._broker = broker
        self._relay = relay
        self._limits = limits
        self._facts = facts
        self._surveys: JoinedCalls[str, ManagementReply] = JoinedCalls()

    def status(self, request: object) -> Deferred[ManagementReply]:
        """Carry out STATUS: survey, and answer with the verdicts."""
        return self._surveys.call("", lambda: Deferred.fromCoroutine(self._survey()))

    async def _survey(self) -> ManagementReply:
        limits = self._limits()
        verdicts = HealthVerdicts()
        for verdict in judge_broker(self._facts(), limits):
            verdicts.add(verdict)
        here = to_others = work = 0
        for queue in list(self._queues()):
            work = await self._yield_after(work, queue)
            here += queue.depth
            oldest = _oldest(queue, self._now_ms())
            facts = NodeFacts(queue.name, queue.depth, oldest, queue.consumers)
            for verdict in judge_node(facts, limits):
                verdicts.add(verdict)
        peers: list[dict[str, object]] = []
        for destination in list(self._relay.destinations.values()):
            work = await self._yield_after(work, destination.queue)
            to_others += destination.queue.depth
            facts_there = _facts_of(destination, self._now_ms())
            is_troubled = False
            for verdict in judge_destination(facts_there, limits):
                verdicts.add(verdict)
                is_troubled = is_troubled or verdict.code in ("peer.held", "peer.unreachable")
            if is_troubled and len(peers) < MOST_PEERS:
                work += 2
                peers.append(peer_row(destination, self._relay.holds))
        body = {
            "verdicts": [each.row() for each in verdicts.shown()],
            "counts": verdicts.counts,
            "messages": {"here": here, "to-others": to_others},
            "peers": peers,
        }
        total = sum(verdicts.counts.values())
        return ManagementReply.of(OK, f"{total} found" if total else "all is well", body)

    async def _yield_after(self, work: int, queue: Queue) -> int:
        """Yield to the reactor after enough work; return the work done in this turn."""
        if work >= TURN_WORK:
            self.turns += 1
            await self._pause()
            work = 0
        held = min(MOST_ENTRIES, queue.acquired) + min(MOST_ENTRIES, queue.deferred)
        return work + 1 + held // ENTRIES_PER_UNIT

    def _queues(self) -> Iterator[Queue]:
        yield from self._broker.nodes.values()
        for topic in self._broker.topics.values():
            for subscription in topic.durable.values():
                yield subscription.queue


def _oldest(queue: Queue, now_ms: int) -> float | None:
    """Return the age in seconds of the oldest message of a queue, acquired ones included."""
    arrivals = []
    if (available := queue.oldest_arrival_ms) is not None:
        arrivals.append(available)
    if queue.deferred:
        arrivals += [each.arrived_ms for each in islice(queue.deferred_entries, MOST_ENTRIES)]
    if queue.acquired:
        arrivals += [each.arrived_ms for each in islice(queue.held_by_consumers(), MOST_ENTRIES)]
    return None if not arrivals else max(0.0, (now_ms - min(arrivals)) / 1000)


def _facts_of(destination: Destination, now_ms: int) -> DestinationFacts:
    queue = destination.queue
    no_credit, dns = destination.no_credit_since_ms, destination.dns_since_ms
    return DestinationFacts(
        name=destination.hop.key,
        domain=destination.hop.domain,
        depth=queue.depth,
        oldest=_oldest(queue, now_ms),
        state="held" if destination.held is not None else destination.state.value,
        held=destination.held or "",
        failures=destination.failures,
        error=destination.last_error,
        no_credit=None if no_credit is None else (now_ms - no_credit) / 1000,
        dns=None if dns is None else (now_ms - dns) / 1000,
    )
