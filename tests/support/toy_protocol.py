# SPDX-License-Identifier: Apache-2.0
"""A line protocol beside AMQP, which proves that a protocol is an engine and a frontend.

A client writes `HEADER` and then lines; the broker answers in lines::

    OPEN user              ->  CREDIT node n     the number of further PUBs, now and on each change
    PUB node text          ->  OK number         it is on disk; PUBs are numbered from 1
    SUB node credit        ->  MSG id text       as many as the credit allows
    ACK id                 ->  DONE id           that is on disk
                               ERR condition: words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from amqproute.broker.commit_batch import Batch
from amqproute.conditions import Condition
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    InternalError,
    InvalidField,
    ResourceLimitExceeded,
    Unresolved,
)
from amqproute.frontends.common.client_connection import ClientConnection, FrontendContext
from amqproute.frontends.common.consuming_endpoint import ConsumingEndpoint
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.frontends.common.publishing_endpoint import PublishingEndpoint
from amqproute.message import Message
from amqproute.net.pump import Make, TransportFacts
from amqproute.outcomes import ACCEPTED, RELEASED
from amqproute.values import Origin, Principal

HEADER = b"LINES/1\n"
DATA = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0"
"""A durable message up to the size of its body: header and data section of AMQP 1.0."""


class LineEngine:
    """Octets to lines and back; a line is ten units of work."""

    def __init__(self) -> None:
        self.work = 0
        self.is_closed = False
        self.lines: list[str] = []
        self._input = b""

    @property
    def has_input(self) -> bool:
        return b"\n" in self._input and not self.is_closed

    def start(self, now: float) -> None:
        self._input = b""

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[list[str]]:
        self._input += data
        found = []
        most = len(self._input) if budget is None else max(1, budget // 10)
        while self.has_input and len(found) < most:
            line, _, self._input = self._input.partition(b"\n")
            found.append(line.decode().split(" ", 2))
        self.work += 10 * len(found)
        return found

    def receive_eof(self, now: float) -> list[list[str]]:
        self.is_closed = True
        return []

    def data_to_send(self) -> list[bytes]:
        lines, self.lines = self.lines, []
        return [f"{line}\n".encode() for line in lines]

    def next_deadline(self) -> float | None:
        return None

    def tick(self, now: float) -> list[list[str]]:
        return []

    def close_with(self, condition: Condition, words: str) -> None:
        self.lines.append(f"ERR {condition}: {words}")
        self.is_closed = True


class Posted(NamedTuple):
    """An incoming message."""

    number: int
    payload: bytes
    settled: bool = False


class Publisher(PublishingEndpoint):
    """A client's publisher to one node."""

    name = address = ""
    is_durable = False
    is_active = True
    granted = 0

    def __init__(self, lines: LineFrontend, address: str) -> None:
        self.name = self.address = address
        target = lines.context.nodes.target(address, lines.principal)
        origin = Origin(lines.principal, connection=lines.facts.remote, link=address)
        super().__init__(lines, target, origin, lines.limits.link_credit)

    def _send_credit(self, credit: int) -> None:
        self.granted = credit
        self._connection.engine.lines.append(f"CREDIT {self.address} {credit}")

    def detach(self, condition: Condition, words: str) -> None:
        self._connection.drop_end(self, condition, words)

    def received(self, deliveries: Sequence[Posted], batch: Batch) -> list[Posted]:
        published = []
        for delivery in deliveries:
            try:
                if not self.granted:
                    raise ResourceLimitExceeded(f"no credit for {self.address}")
                self.granted -= 1
                message = Message(delivery.payload).received()
                message = self._connection.context.nodes.admitted(message, self.origin)
                self._put(message, batch, b"%d" % delivery.number)
            except (AmqpError, Unresolved) as error:
                self._connection.refuse(error)
            else:
                published.append(delivery)
        self._uncommitted += len(published)
        return published

    def committed(self, deliveries: list[Posted]) -> None:
        self._uncommitted -= len(deliveries)
        self._connection.engine.lines += [f"OK {each.number}" for each in deliveries]
        self.grant()

    def failed(self, deliveries: list[Posted], failure: Any, in_doubt: bool = False) -> None:
        self._uncommitted -= len(deliveries)
        for each in deliveries:
            self._connection.refuse(InternalError(f"{each.number} was not taken"))
        self.grant()

    def wait_for(self, gate: Any, deliveries: list[Posted]) -> None:
        self.failed(deliveries, gate)


class Consumer(ConsumingEndpoint):
    """A client's consumer of one node."""

    name = address = ""
    is_active = True

    def __init__(self, lines: LineFrontend, address: str) -> None:
        self.name = self.address = address
        self.credit = 0
        self.unsettled: dict[str, Entry] = {}
        source = lines.context.nodes.source(address, lines.principal, copies=False)
        super().__init__(lines, source, address)

    def capacity(self) -> int:
        return self._room(self.credit, len(self.unsettled))

    def deliver(self, entries: Sequence[Entry]) -> None:
        self.credit -= len(entries)
        for entry in entries:
            self.unsettled[str(entry.id)] = entry
            self._bytes += len(entry.message.encoded)
            (body,) = entry.message.body_values()
            self._connection.engine.lines.append(f"MSG {entry.id} {body.decode()}")
        self._connection.flush()

    def holds(self) -> list[Entry]:
        return list(self.unsettled.values())

    def detach(self, condition: Condition, words: str) -> None:
        self._connection.drop_end(self, condition, words)

    def acknowledge(self, number: str) -> None:
        entry = self.unsettled.pop(number)
        self.forget([entry])
        self._settle([entry], ACCEPTED, answer=[number])

    def settle_deliveries(self, deliveries: Sequence[str], outcome: object) -> None:
        self._connection.engine.lines += [f"DONE {number}" for number in deliveries]


class LineFrontend(ClientConnection):
    """One connection: translates lines to calls of the broker."""

    def __init__(self, context: FrontendContext, engine: LineEngine, facts: TransportFacts) -> None:
        super().__init__(context, facts, "lines")
        self.engine = engine
        self.ends: dict[tuple[type, str], Publisher | Consumer] = {}
        self._numbers = 0

    # -- verbs -----------------------------------------------------------------------------------

    def events(self, events: Sequence[Any]) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "LINES/1": lambda: None, "OPEN": self._open, "PUB": self._publish,
            "SUB": self._subscribe, "ACK": self._acknowledge,
        }  # fmt: skip
        with self.event_batch:
            for verb, *words in events:
                try:
                    verbs[verb](*words)
                except (KeyError, TypeError, StopIteration):
                    self.refuse(InvalidField(f"not understood: {verb} {' '.join(words)}"))
                except AmqpError as error:
                    self.refuse(error)

    def _open(self, user: str) -> None:
        self.principal = Principal("user", user)
        self.admit_principal()

    def _publish(self, address: str, text: str) -> None:
        publisher = self.ends.get((Publisher, address))
        if publisher is None:
            publisher = self.ends[Publisher, address] = Publisher(self, address)
            publisher.join(self.contract)
        self._numbers += 1
        body = text.encode()
        payload = DATA + len(body).to_bytes(4, "big") + body
        self.event_batch.put(publisher, [Posted(self._numbers, payload)])

    def _subscribe(self, address: str, credit: str) -> None:
        consumer = self.ends.get((Consumer, address))
        if consumer is None:
            consumer = self.ends[Consumer, address] = Consumer(self, address)
            consumer.source.attach(consumer)
        consumer.credit = int(credit)
        consumer.dispatch()

    def _acknowledge(self, number: str) -> None:
        next(each for each in self.consumers() if number in each.unsettled).acknowledge(number)

    def refuse(self, error: Exception) -> None:
        self.engine.lines.append(f"ERR {error}")
        self.flush()

    def drop_end(self, end: Publisher | Consumer, condition: Condition, words: str) -> None:
        del self.ends[type(end), end.address]
        _end(end)
        self.refuse(AmqpError(words, condition=condition))

    # -- see `ClientConnection` ------------------------------------------------------------------

    def endpoints(self) -> Iterator[NodeEndpoint]:
        return iter(tuple(self.ends.values()))

    def consumers(self) -> Iterator[Consumer]:
        return (each for each in self.endpoints() if isinstance(each, Consumer))

    def close(self, condition: Condition, words: str) -> None:
        self.engine.close_with(condition, words)
        self.flush()

    def end_endpoints(self) -> None:
        while self.ends:
            _end(self.ends.popitem()[1])

    def row(self) -> dict[str, Any]:
        return {"name": self.facts.remote, "principal": str(self.principal)}

    def link_rows(self) -> Iterator[dict[str, Any]]:
        return ({"name": each.name, "address": each.address} for each in self.endpoints())


def _end(end: Publisher | Consumer) -> None:
    if isinstance(end, Publisher):
        end.leave()
    else:
        end.leave(end.holds(), RELEASED)


def lines_for(context: FrontendContext) -> Make:
    """Return the factory of engine and frontend for the protocol's connections."""

    def make(facts: TransportFacts) -> tuple[LineEngine, LineFrontend]:
        engine = LineEngine()
        return engine, LineFrontend(context, engine, facts)

    return make
