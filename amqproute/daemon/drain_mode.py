# SPDX-License-Identifier: Apache-2.0
"""Drain mode: no new messages are accepted, and deliveries that can finish do.

``DRAIN`` through ``$management`` closes the broker's publish gate for the reason `DRAINING`:
publishers and other organizations' brokers get no credit and keep their messages. Consumers, the
relay and management continue. ``DRAIN-STATUS`` reports the progress, ``DRAIN-END`` opens the gate
again. All three take the right `manage` on the management node. A restart ends it, too.

It is *done* when nothing is in progress (to the disk, to a peer, with a consumer) and no message
that is still here can leave now:

- a message on a node has no consumer attached;
- the next hop of a relay queue is held, refused, or could not be reached by the last attempt, or
  the DNS does not answer for it.

A connected consumer or peer that takes no messages delays the end: it may start at any moment. The
state is checked again every `LOOK_SECONDS`, also after it was done; a check yields to the reactor
after `TURN_QUEUES` queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
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
from amqproute.turn_scheduler import Pause

__all__ = ["DRAINING", "LOOK_SECONDS", "TURN_QUEUES", "DrainMode", "DrainProgress"]

DRAINING: Final = "drain"
"""The reason for which the publish gate is closed."""
LOOK_SECONDS: Final = 1.0
TURN_QUEUES: Final = 500
"""Queues checked in one reactor turn."""
NOT_DRAINING: Final = "not draining"
MOST_NAMED: Final = 20
"""Queues named in an answer as stuck."""

log = Logger()


@dataclass(slots=True)
class DrainProgress:
    """The progress of a drain.

    Attributes:
        moving: messages in progress, or able to leave.
        staying: messages that cannot leave now.
        stuck: their queues, each with the reason; at most `MOST_NAMED`.
        writing: connections whose messages wait for the disk.
    """

    moving: int = 0
    staying: int = 0
    writing: int = 0
    stuck: dict[str, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left that can finish."""
        return not self.moving and not self.writing

    def stay(self, name: str, count: int, why: str) -> None:
        """Count messages that cannot leave now."""
        self.staying += count
        if len(self.stuck) < MOST_NAMED:
            self.stuck[name] = f"{counted(count, 'message')}: {why}"

    def __str__(self) -> str:
        if self.is_done:
            rest = f"; {counted(self.staying, 'message')} cannot go now" if self.staying else ""
            return f"drained: nothing is in progress{rest}"
        words = f"draining: {counted(self.moving, 'message')} to go"
        if self.writing:
            words += f", {counted(self.writing, 'connection')} with messages on their way to disk"
        return f"{words}, {self.staying} cannot go now" if self.staying else words


class DrainMode:
    """The drain of one daemon.

    Args:
        clock: the clock for repeated checks.
        broker: its gate is closed, its nodes are checked.
        relay: its next hops.
        connections: returns the connections.
        pause: called between slices of a check.
    """

    def __init__(
        self,
        clock: IReactorTime,
        broker: Broker,
        relay: Relay,
        connections: Callable[[], Iterable[ClientConnection]],
        pause: Pause,
    ) -> None:
        self._clock = clock
        self._pause = pause
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
        """Whether no new messages are accepted."""
        return DRAINING in self._broker.gate.reasons

    def begin(self, who: str) -> str:
        """Stop accepting new messages. Nothing happens if the drain is on already.

        Returns:
            Nothing beyond the status.
        """
        if self.is_on:
            return ""
        self._since = self._clock.seconds()
        self._was_done = False
        self.progress = None
        self._broker.gate.close(DRAINING, f"{who} drains the daemon")
        log.info("{who}: DRAIN: no new messages are accepted", who=who)
        self._start_look()
        return ""

    def end(self, who: str) -> str:
        """Accept messages again; describe the result."""
        if not self.is_on:
            return NOT_DRAINING
        self.stop()
        self.progress = None
        self._broker.gate.open(DRAINING)
        log.info("{who}: DRAIN-END: messages are accepted again", who=who)
        return "the drain has ended: messages are accepted again"

    def stop(self) -> None:
        """Cancel the timer."""
        self._round += 1
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def status(self) -> str:
        """Return the attributes of the answer; empty if the drain is not on."""
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
                await self._pause()
            _look_at_node(queue, progress)
        for destination in list(self._relay.destinations.values()):
            seen += 1
            if seen % TURN_QUEUES == 0:
                await self._pause()
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
        log.failure("cannot determine the progress of the drain", failure)
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
    """Return the reason why nothing can be sent there now; empty if something can."""
    if destination.held is not None:
        return f"held: {destination.held}"
    if destination.failures or destination.state.value == "refused":
        return destination.last_error or destination.state.value
    if destination.dns_since_ms is not None:
        return f"the DNS does not answer: {destination.last_error}"
    return ""
