# SPDX-License-Identifier: Apache-2.0
"""Why a message has not been delivered: the operation WHY of ``$management`` (T-37).

The application property ``name`` is the id of a message. It is searched on the relay queues and
then on the local nodes, as far as the requester has the right `manage` on them; the answer has the
cause of the wait, and the commands to change that.

Only requesters with rights on every queue get a definite "not found". Others get the missing right,
in the same words whether the message is on another's queue or gone: ids are consecutive, so any
other answer would reveal which messages still wait, and for how long.

`AT_ONCE` queues are looked at in one turn of the reactor, and empty ones are passed over;
`MOST_ASKED` requests at one time are answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias

from amqproute.address import split_host
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.errors import AmqpError
from amqproute.plurals import counted
from amqproute.routing.table import Router
from amqproute.services.command_schema import FORBIDDEN, FULL
from amqproute.services.management_node import (
    BAD_REQUEST,
    NOT_FOUND,
    OK,
    ManagementReply,
    ManagementRequest,
)
from amqproute.services.management_protocol import Allows
from amqproute.services.relay_view import DestinationOf, RelayDestination, RelayView
from amqproute.values import Local

__all__ = ["ExplainCommand", "MessageFacts"]

MessageFacts: TypeAlias = dict[str, Any]
"""Attributes of a message and of the cause of its wait, by name; each has its own type."""
AT_ONCE: Final = 100
"""Queues whose rights are checked, or that are passed over, in one turn of the reactor."""
MOST_ASKED: Final = 16
"""Requests at one time; each may have to read in thousands of queues."""
LONGEST_ID: Final = 19
"""Digits of the highest id of a message in the store."""


class ExplainCommand(Generic[DestinationOf]):
    """Carries out WHY.

    Args:
        broker: the nodes.
        relay: its `destinations` by key.
        router: returns the router in force.
        allows: the access rules.
        explain: (destination, entry) to the reason for the delay: facts with ``description``.
        row: (queue, destination or None, entry) to the row of a message.
    """

    def __init__(
        self,
        broker: Broker,
        relay: RelayView[DestinationOf],
        router: Callable[[], Router],
        allows: Allows,
        explain: Callable[[DestinationOf, Entry], MessageFacts],
        row: Callable[[Queue, RelayDestination | None, Entry], MessageFacts],
    ) -> None:
        self._broker = broker
        self._relay = relay
        self._router = router
        self._allows = allows
        self._explain = explain
        self._row = row
        self._asked = 0
        self._work = 0

    async def why(self, request: ManagementRequest) -> ManagementReply:
        """Carry out WHY."""
        if self._asked >= MOST_ASKED:
            words = f"{MOST_ASKED} messages are being looked for: ask again later"
            return ManagementReply.of(FULL, words)
        self._asked += 1
        try:
            return await self._why(request)
        finally:
            self._asked -= 1

    async def _why(self, request: ManagementRequest) -> ManagementReply:
        text = str(request.properties.get("name", ""))
        if not text.isascii() or not text.isdigit() or len(text) > LONGEST_ID:
            words = f"{text[:64]!r} is no id of a message; ids are numbers: LIST-MESSAGES"
            return ManagementReply.of(BAD_REQUEST, words)
        wanted = int(text)
        destinations = [each for _, each in sorted(self._relay.destinations.items())]
        ways, nodes = [], []
        for destination in destinations:
            await self._pause()
            if self._may(request, destination.queue.name):
                ways.append(destination)
        for name, queue in sorted(self._broker.nodes.items()):
            await self._pause()
            if self._may(request, name):
                nodes.append(queue)
        facts = await self._on_the_way(ways, wanted) or await self._here(nodes, wanted)
        if facts is not None:
            return ManagementReply.of(OK, str(facts["description"]), facts)
        hidden = ["every relay queue (amqp$out/*)"] * (len(ways) < len(destinations))
        hidden += ["every node here"] * (len(nodes) < len(self._broker.nodes))
        if hidden:
            words = f"{request.principal} may not manage {' and '.join(hidden)}"
            more = f"no message on what it may manage has the id {wanted}"
            return ManagementReply.of(FORBIDDEN, f"{words}; {more}")
        return ManagementReply.of(
            NOT_FOUND,
            f"no queue holds a message with the id {wanted}: it has gone, or has never been; "
            "the log tells of messages that were given up",
        )

    async def _pause(self) -> None:
        """Let others go on after `AT_ONCE` queues, of all requests together."""
        self._work += 1
        if self._work >= AT_ONCE:
            self._work = 0
            await self._broker.context.pause()

    def _may(self, request: ManagementRequest, node: str) -> bool:
        return self._allows(request.principal, Verb.MANAGE, node)

    async def _on_the_way(self, ways: list[DestinationOf], wanted: int) -> MessageFacts | None:
        """Answer for a message that waits for another organization."""
        for destination in ways:
            queue = destination.queue
            await self._pause()
            if not queue.depth:
                continue
            found = [entry for entry in destination.holds() if entry.id == wanted]
            if not found:
                await queue.walk().find((wanted,), found.extend)
            if found:
                entry = found[0]
                facts = self._explain(destination, entry)
                row = self._row(queue, destination, entry)
                is_there = facts.get("cause") != "in-flight"
                if is_there and self._leads_elsewhere(destination, row["to"]):
                    facts["next"] = [*facts["next"], f"amqproute reroute {entry.id}"]
                return {**row, **facts}
        return None

    def _leads_elsewhere(self, destination: RelayDestination, to: str | None) -> bool:
        """Return whether the routes in force lead a message elsewhere."""
        if not to or "@" in destination.hop.key:
            return False
        try:
            route = self._router().route(to)
        except AmqpError:
            return False
        return isinstance(route, Local) or route.key != destination.hop.key

    async def _here(self, nodes: list[Queue], wanted: int) -> MessageFacts | None:
        """Answer for a message that waits on a node of this broker."""
        for queue in nodes:
            await self._pause()
            if not queue.depth:
                continue
            found = [entry for entry in queue.held_by_consumers() if entry.id == wanted]
            is_held = bool(found)
            if not found:
                await queue.walk().find((wanted,), found.extend)
            if found:
                return {**self._row(queue, None, found[0]), **_on_node(queue, is_held)}
        return None


def _on_node(queue: Queue, is_held: bool) -> MessageFacts:
    name = queue.name
    if is_held:
        cause, words = "in-flight", "a consumer holds it and has not settled it yet"
        commands = [f"amqproute link ls --node {name}"]
    elif not queue.consumers:
        cause, words = "no-consumer", f"nobody receives from {name}"
        host, local = split_host(name)
        commands = [f"amqproute receive {local}" + (f" --vhost {host}" if host else "")]
    else:
        cause = "in-line"
        links = counted(queue.consumers, "link receives", "links receive")
        words = f"{links} from {name}: without credit, or by other filters"
        commands = [f"amqproute link ls --node {name}"]
    return {"cause": cause, "description": words, "next": commands, "holds": []}
