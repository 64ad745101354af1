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

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from amqproute.broker.commit_batch import Batch
from amqproute.conditions import Condition
from amqproute.entry import Entry
from amqproute.errors import AmqpError, InvalidField, ResourceLimitExceeded, Unresolved
from amqproute.frontends.common.client_connection import ClientConnection, FrontendContext
from amqproute.frontends.common.consuming_endpoint import ConsumingEndpoint
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.frontends.common.publishing_endpoint import PublishingEndpoint
from amqproute.message import Message
from amqproute.net.pump import Make, TransportFacts
from amqproute.outcomes import ACCEPTED
from amqproute.values import Principal
from amqproute.wire.engine import EngineBase

HEADER = b"LINES/1\n"
DATA = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0"
"""A durable message up to the size of its body: header and data section of AMQP 1.0."""


class LineEngine(EngineBase):
    """Octets to lines and back; a line is ten units of work."""

    _input = b""

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[str]:
        *lines, self._input = (self._input + data).split(b"\n")
        self.work += 10 * len(lines)
        return [line.decode() for line in lines]

    def send(self, line: str) -> None:
        self.output.append(f"{line}\n".encode())

    def close_with(self, condition: Condition, words: str) -> None:
        self.send(f"ERR {condition}: {words}")
        self.is_closed = True


class LineEnd(NodeEndpoint):
    """A publisher or consumer, named by the address of its node."""

    is_active = True
    name = address = ""

    def detach(self, condition: Condition, words: str) -> None:
        del self._connection.ends[type(self), self.address]
        self.leave()
        self._connection.send(f"ERR {condition}: {words}")


class Posted(NamedTuple):
    """An incoming message."""

    number: int
    payload: bytes
    settled: bool = False


class Publisher(LineEnd, PublishingEndpoint[Posted]):
    """A client's publisher to one node."""

    granted = 0

    def __init__(self, lines: LineFrontend, address: str) -> None:
        self.name = self.address = address
        target = lines.context.nodes.target(address, lines.principal)
        super().__init__(lines, target, lines.origin(address), lines.limits.link_credit)
        self.join(lines.contract)

    def _send_credit(self, credit: int) -> None:
        self.granted = credit
        self._connection.send(f"CREDIT {self.address} {credit}")

    def publish(self, posted: Posted) -> None:
        if not self.granted:
            raise ResourceLimitExceeded(f"no credit for {self.address}")
        self.granted -= 1
        self.take([posted])

    def received(self, deliveries: Sequence[Posted], batch: Batch) -> list[Posted]:
        published = []
        self._uncommitted += len(deliveries)
        for posted in deliveries:
            try:
                if self.waiting.lines:
                    self.waiting.wait_behind(posted)
                    continue
                message = Message(posted.payload).received()
                message = self._connection.context.nodes.admitted(message, self.origin)
                self._put(message, batch, b"%d" % posted.number)
                published.append(posted)
            except Unresolved as unresolved:
                self._wait_for_hop(posted, unresolved.hop)
            except AmqpError as error:
                self._uncommitted -= 1
                self._connection.send(f"ERR {error}")
        return published

    def committed(self, deliveries: Sequence[Posted], answer: str = "OK {}") -> None:
        self._uncommitted -= len(deliveries)
        for posted in deliveries:
            self._connection.send(answer.format(posted.number))
        self.grant()

    def failed(self, deliveries: list[Posted], failure: Any, in_doubt: bool = False) -> None:
        self.committed(deliveries, "ERR amqp:internal-error: {} was not taken")


class Consumer(LineEnd, ConsumingEndpoint):
    """A client's consumer of one node."""

    def __init__(self, lines: LineFrontend, address: str) -> None:
        self.name = self.address = address
        self.credit = 0
        self.unsettled: dict[str, Entry] = {}
        source = lines.context.nodes.source(address, lines.principal, copies=False)
        super().__init__(lines, source, address)
        source.attach(self)

    def capacity(self) -> int:
        return self._room(self.credit, len(self.unsettled))

    def deliver(self, entries: Sequence[Entry]) -> None:
        self._hold(entries)
        self.credit -= len(entries)
        for entry in entries:
            self.unsettled[str(entry.id)] = entry
            (body,) = entry.message.body_values()
            self._connection.send(f"MSG {entry.id} {body.decode()}")

    def holds(self) -> list[Entry]:
        return list(self.unsettled.values())

    def acknowledge(self, number: str) -> None:
        entry = self.unsettled.pop(number)
        self.forget([entry])
        self._settle([entry], ACCEPTED, answer=[number])

    def settle_deliveries(self, deliveries: Sequence[str], outcome: object) -> None:
        for number in deliveries:
            self._connection.send(f"DONE {number}")


class LineFrontend(ClientConnection):
    """One connection: translates lines into calls of the broker."""

    journal_protocol = "lines"

    def __init__(self, context: FrontendContext, facts: TransportFacts) -> None:
        super().__init__(context, facts, "lines")
        self.engine = LineEngine()
        self.ends: dict[tuple[type, str], Any] = {}
        self._numbers = 0

    def events(self, events: Sequence[Any]) -> None:
        with self.event_batch:
            for line in events:
                try:
                    self._act(line)
                except AmqpError as error:
                    self.send(f"ERR {error}")

    def _act(self, line: str) -> None:
        match line.split(" ", 2):
            case ["LINES/1"]:
                pass
            case ["OPEN", user]:
                self.principal = Principal("user", user)
                self.admit_principal()
            case ["PUB", address, text]:
                self._numbers += 1
                octets = text.encode()
                payload = DATA + len(octets).to_bytes(4, "big") + octets
                self._end(Publisher, address).publish(Posted(self._numbers, payload))
            case ["SUB", address, credit] if credit.isdecimal():
                consumer = self._end(Consumer, address)
                consumer.credit = int(credit)
                consumer.dispatch()
            case ["ACK", number] if holders := [
                each for each in self.endpoints() if number in getattr(each, "unsettled", ())
            ]:
                holders[0].acknowledge(number)
            case _:
                raise InvalidField(f"not understood: {line}")

    def _end(self, kind: type, address: str) -> Any:
        if (kind, address) not in self.ends:
            self.ends[kind, address] = kind(self, address)
        return self.ends[kind, address]

    def send(self, line: str) -> None:
        self.engine.send(line)
        self.flush()

    def endpoints(self) -> Iterator[NodeEndpoint]:
        return iter(tuple(self.ends.values()))


def lines_for(context: FrontendContext) -> Make:
    """Return the factory of engine and frontend for the protocol's connections."""

    def make(facts: TransportFacts) -> tuple[LineEngine, LineFrontend]:
        frontend = LineFrontend(context, facts)
        return frontend.engine, frontend

    return make
