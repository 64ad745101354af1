# SPDX-License-Identifier: Apache-2.0
"""Drains the daemon: takes no new messages, and finishes what can be finished.

``DRAIN`` through ``$management`` closes the broker's publish gate for the reason `DRAINING`:
publishers and other organizations' brokers get no credit and keep their messages. Consumers, the
relay and management go on. ``DRAIN-STATUS`` tells how far it has come, ``DRAIN-END`` opens the gate
again. All three take the right `manage` on the management node. A restart ends it, too.

It is *done* when nothing is under way (to the disk, to a peer, with a consumer) and every message
that is still here cannot go now:

- on a node it waits for a consumer, and none is attached;
- on a relay queue its next hop is held, refused, or could not be reached by the last attempt, or
  the DNS does not answer about it.

A consumer or a peer that is there and takes nothing delays the end: it may begin to take at any
moment. What changes after it was done is looked at again, every `LOOK_SECONDS`; a look gives the
reactor back after `TURN_QUEUES` queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.plurals import counted
from amqproute.relay.destination import Destination
from amqproute.relay.relay import Relay
from amqproute.services.management_node import OK, ManagementService
from amqproute.services.management_protocol import ManagementReply, ManagementRequest

__all__ = ["DRAINING", "LOOK_SECONDS", "TURN_QUEUES", "DrainMode", "DrainProgress"]

DRAINING: Final = "drain"
"""The reason for which the publish gate is closed."""
LOOK_SECONDS: Final = 1.0
TURN_QUEUES: Final = 500
"""Queues looked at in one turn of the reactor."""
NOT_DRAINING: Final = "not draining"
MOST_NAMED: Final = 20
"""Places in an answer at which messages stay."""

log = Logger()


@dataclass(slots=True)
class DrainProgress:
    """How far a drain has come.

    Attributes:
        moving: messages that are under way, or can go.
        staying: messages that cannot go now.
        stuck: where these are, with why; at most `MOST_NAMED`.
        writing: connections whose messages wait for the disk.
    """

    moving: int = 0
    staying: int = 0
    writing: int = 0
    stuck: dict[str, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Nothing that can be finished is left."""
        return not self.moving and not self.writing

    def stay(self, name: str, count: int, why: str) -> None:
        """Count messages that cannot go now."""
        self.staying += count
        if len(self.stuck) < MOST_NAMED:
            self.stuck[name] = f"{counted(count, 'message')}: {why}"

    def __str__(self) -> str:
        if self.is_done:
            rest = f"; {counted(self.staying, 'message')} cannot go now" if self.staying else ""
            return f"drained: nothing is under way{rest}"
        words = f"draining: {counted(self.moving, 'message')} to go"
        if self.writing:
            words += f", {counted(self.writing, 'connection')} with messages on their way to disk"
        return f"{words}, {self.staying} cannot go now" if self.staying else words


class DrainMode:
    """The drain of one daemon.

    Args:
        clock: for looking again.
        broker: whose gate is closed, and whose nodes are looked at.
        relay: its next hops.
        connections: gives the connections.
    """

    def __init__(
        self,
        clock: IReactorTime,
        broker: Broker,
        relay: Relay,
        connections: Callable[[], Iterable[ClientConnection]],
    ) -> None:
        self._clock = clock
        self._broker = broker
        self._relay = relay
        self._connections = connections
        self._call: IDelayedCall | None = None
        self._since = 0.0
        self._round = 0
        self._was_done = False
        self.progress: DrainProgress | None = None

    @property
    def is_on(self) -> bool:
        """No new messages are taken."""
        return DRAINING in self._broker.gate.reasons

    def begin(self, who: str) -> str:
        """Take no new messages from now on; nothing where that is so already.

        Returns:
            What is told of it beyond its status: nothing.
        """
        if self.is_on:
            return ""
        self._since = self._clock.seconds()
        self._was_done = False
        self.progress = None
        self._broker.gate.close(DRAINING, f"{who} drains the daemon")
        log.info("{who}: DRAIN: no new messages are taken", who=who)
        self._start_look()
        return ""

    def end(self, who: str) -> str:
        """Take messages again; return what was done in words."""
        if not self.is_on:
            return NOT_DRAINING
        self.stop()
        self.progress = None
        self._broker.gate.open(DRAINING)
        log.info("{who}: DRAIN-END: messages are taken again", who=who)
        return "the drain has ended: messages are taken again"

    def stop(self) -> None:
        """Cancel the timer."""
        self._round += 1
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def status(self) -> str:
        """Return what is told of it; empty if it is not on."""
        if not self.is_on:
            return ""
        return "draining" if self.progress is None else str(self.progress)

    def register(self, service: ManagementService) -> None:
        """Add the operations to the management node."""

        def acting(act: Callable[[str], str]) -> Callable[[ManagementRequest], ManagementReply]:
            def operation(request: ManagementRequest) -> ManagementReply:
                words = act(str(request.principal)) or self.status() or NOT_DRAINING
                return ManagementReply.of(OK, words, {**self._facts(), "description": words})

            return operation

        service.offer("DRAIN", acting(self.begin))
        service.offer("DRAIN-END", acting(self.end))
        service.offer("DRAIN-STATUS", acting(lambda _: ""))

    def _facts(self) -> dict[str, object]:
        progress = self.progress
        is_known = self.is_on and progress is not None
        return {
            "name": "broker",
            "draining": self.is_on,
            "done": progress.is_done if is_known and progress is not None else False,
            "seconds": int(self._clock.seconds() - self._since) if self.is_on else 0,
            "moving": progress.moving if progress is not None else 0,
            "staying": progress.staying if progress is not None else 0,
            "writing": progress.writing if progress is not None else 0,
            "stuck": dict(progress.stuck) if progress is not None else {},
        }

    # -- looking -----------------------------------------------------------------------------------

    def _start_look(self) -> None:
        self._call = None
        Deferred.fromCoroutine(self._look(self._round)).addErrback(self._failed)

    async def _look(self, number: int) -> None:
        progress = DrainProgress()
        seen = 0
        for queue in self._queues():
            seen += 1
            if seen % TURN_QUEUES == 0:
                await deferLater(self._clock, 0)
            _look_at_node(queue, progress)
        for destination in list(self._relay.destinations.values()):
            seen += 1
            if seen % TURN_QUEUES == 0:
                await deferLater(self._clock, 0)
            _look_at_hop(destination, progress)
        progress.writing = sum(not each.is_idle for each in self._connections())
        if number != self._round:
            return  # it was ended meanwhile
        self.progress = progress
        if progress.is_done != self._was_done:
            self._was_done = progress.is_done
            log.info("{words}", words=str(progress))
        self._call = self._clock.callLater(LOOK_SECONDS, self._start_look)

    def _queues(self) -> list[Queue]:
        found = list(self._broker.nodes.values())
        for topic in self._broker.topics.values():
            found += [subscription.queue for subscription in topic.durable.values()]
        return found

    def _failed(self, failure: Failure) -> None:
        log.failure("the progress of the drain could not be found out", failure)
        self._call = self._clock.callLater(LOOK_SECONDS, self._start_look)


def _look_at_node(queue: Queue, progress: DrainProgress) -> None:
    depth = queue.depth
    if not depth:
        return
    if queue.consumers:
        progress.moving += depth
        return
    acquired = min(depth, queue.acquired)
    progress.moving += acquired
    if depth > acquired:
        progress.stay(queue.name, depth - acquired, "nobody receives from it")


def _look_at_hop(destination: Destination, progress: DrainProgress) -> None:
    depth = destination.queue.depth
    why = _obstacle(destination)
    if not depth and destination.is_quiet:
        return
    if not why or not destination.is_quiet:
        progress.moving += max(depth, 1)
        return
    progress.stay(destination.hop.key, depth, why)


def _obstacle(destination: Destination) -> str:
    """Return why nothing goes there now; empty if something can."""
    if destination.held is not None:
        return f"held: {destination.held}"
    if destination.failures or destination.state.value == "refused":
        return destination.last_error or destination.state.value
    if destination.dns_since_ms is not None:
        return f"the DNS does not answer: {destination.last_error}"
    return ""
