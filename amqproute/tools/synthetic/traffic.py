# SPDX-License-Identifier: Apache-2.0
"""Simulated traffic: batch by batch, hop by hop, with planted faults."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqproute.journal import record
from amqproute.journal.record import RecordKind
from amqproute.tools.synthetic.journals import SyntheticBroker
from amqproute.tools.synthetic.plan import (
    LONGEST_DELAY,
    SECOND,
    PlannedFault,
    PlantedFaults,
    TrafficPlan,
    numbers_of,
)

__all__ = ["Traffic"]

QUIET_SECONDS: Final = 900
"""Seconds before the end without ordinary batches, so that everything completes."""

_JITTER: Final = 4096
QUEUE: Final = "orders"
DEAD_LETTERS: Final = "amqp$dead-letter"


@dataclass(slots=True)
class _Batch:
    """Messages that travel together: their common and individual properties."""

    to: str
    origin: str
    id_type: str
    ids: list[str]
    digests: list[str]
    sizes: list[int]

    def columns(self, places: Sequence[int], annotations: int) -> dict[str, Sequence[object]]:
        """Return the columns for the messages at some places of the batch.

        Args:
            places: the places in the batch.
            annotations: octets stored with each, beside the bare message.
        """
        ids, sizes, digests = self.ids, self.sizes, self.digests
        if len(places) < len(ids):
            ids = [ids[i] for i in places]
            sizes = [sizes[i] for i in places]
            digests = [digests[i] for i in places]
        return {
            "message_id": ids,
            "size": [size + annotations for size in sizes],
            "bare_size": sizes,
            "digest": digests,
        }


@dataclass(frozen=True, slots=True)
class _Leg:
    """One hop of a route.

    Attributes:
        route: the brokers that messages pass.
        hop: index of the sender.
    """

    route: Sequence[SyntheticBroker]
    hop: int

    @property
    def sender(self) -> SyntheticBroker:
        return self.route[self.hop]

    @property
    def receiver(self) -> SyntheticBroker:
        return self.route[self.hop + 1]

    @property
    def is_last(self) -> bool:
        return self.hop == len(self.route) - 2

    @property
    def queue(self) -> str:
        """The sender's."""
        return f"amqp$out/{self.receiver.domain}"

    @property
    def node(self) -> str:
        """The receiver's queue."""
        return QUEUE if self.is_last else f"amqp$out/{self.route[self.hop + 2].domain}"

    @property
    def shared(self) -> dict[str, object]:
        """The shared fields of the receiver's record of a hand-over."""
        return {
            "sender": f"peer:{self.sender.domain}",
            "from_stream": self.sender.stream,
            "trail": " ".join(broker.container for broker in self.route[: self.hop + 1]),
            "level": "authenticated",
        }


_ANNOTATIONS: Final = 60
"""Octets that a broker stores with each bare message, beside its trail."""


_ON_A_HOP: Final = ("lost", "duplicated", "changed", "unknown", "gap")
_WITHIN: Final = ("vanished", "unexplained", "ended_twice", "came_back")


class Traffic:
    """The messages of one plan, batch by batch."""

    def __init__(self, plan: TrafficPlan, directory: Path) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)  # noqa: S311  # a simulation
        self._jitter = [self._random.randrange(900) for _ in range(_JITTER + record.LONGEST_RUN)]
        domains = plan.organizations
        self._brokers = {
            domain: SyntheticBroker(plan, directory, domain, self._random) for domain in domains
        }
        self._planted = PlantedFaults({domain: directory / domain for domain in domains})
        self._tag = hashlib.sha256(str(plan.seed).encode()).hexdigest()[:8]
        self._count = 0
        self._connections = 0

    def run(self) -> PlantedFaults:
        """Simulate the plan, and return the planted faults."""
        plan = self._plan
        begin = plan.start * SECOND
        end = begin + plan.seconds * SECOND
        for broker in self._brokers.values():
            broker.write_now(begin, RecordKind.START, {})
        lengths = self._lengths()
        faults = self._places_of_faults(len(lengths))
        step = max(1, (end - begin - QUIET_SECONDS * SECOND) // max(1, len(lengths)))
        stocks_at = begin + plan.stock_seconds * SECOND
        for index, length in enumerate(lengths):
            now = begin + SECOND + index * step
            while now >= stocks_at:
                self._stock(stocks_at)
                stocks_at += plan.stock_seconds * SECOND
            for broker in self._brokers.values():
                broker.write_until(now)
            self._batch(now, length, faults.get(index, ()))
        self._stock(end - 120 * SECOND)
        self._finish(end)
        return self._planted

    def _finish(self, end: int) -> None:
        if self._plan.faults.in_flight:
            self._cut(end - 10 * SECOND)
        for broker in self._brokers.values():
            broker.write_until(end)
            if not self._plan.faults.in_flight:
                broker.stock(end)
                broker.write_now(end, RecordKind.STOP, {})
            broker.segments.close()
            self._planted.events += broker.events

    def _stock(self, time_us: int) -> None:
        for broker in self._brokers.values():
            broker.stock(time_us)

    def _lengths(self) -> list[int]:
        """Return the sizes of the batches: many are full, as under load, the others are not."""
        lengths = []
        left = self._plan.transfers
        while left:
            full = self._random.random() < 0.7
            length = record.LONGEST_RUN if full else self._random.randint(1, record.LONGEST_RUN)
            lengths.append(min(left, length))
            left -= lengths[-1]
        return lengths

    def _places_of_faults(self, batches: int) -> dict[int, list[str]]:
        numbers = numbers_of(self._plan.faults)
        places: dict[int, list[str]] = {}
        for kind in (*_ON_A_HOP, *_WITHIN):
            for _ in range(numbers[kind]):
                places.setdefault(self._random.randrange(batches), []).append(kind)
        return places

    def _cut(self, now: int) -> None:
        """End the journals between the two records of hand-overs, on either side.

        A message that the sender has recorded as delivered is missing from the receiver's journal,
        whose last segments are not closed yet; one that the receiver has accepted is still in the
        sender's queue.
        """
        for turn in range(self._plan.faults.in_flight):
            sender, receiver = self._route(forced=True)
            batch = self._messages(1, [sender, receiver])
            entries = self._published(now, [sender, receiver], batch, [0])
            moment = now + SECOND + turn * 1000
            if turn % 2:
                node = f"amqp$out/{receiver.domain}"
                self._end(
                    moment, sender, RecordKind.RELAYED, node, entries,
                    {"peer": f"peer:{receiver.domain}", "attempt": 1},
                )  # fmt: skip
            else:
                shared = _Leg((sender, receiver), 0).shared
                columns = {"from_entry": entries}
                self._receive(moment, receiver, QUEUE, batch, [0], shared, columns)
            self._fault("in_flight", batch.ids[0], sender, receiver, sender.stream, entries[0])

    # -- one batch -----------------------------------------------------------------------------

    def _batch(self, now: int, length: int, faults: Sequence[str]) -> None:
        """Publish a batch, and simulate it to the end."""
        route = self._route(forced=bool(faults))
        batch = self._messages(length, route)
        places: Sequence[int] = range(length)
        entries = self._published(now, route, batch, places)
        places, entries = self._expire(now, route, batch, places, entries)
        self._forward(now, _Leg(route, 0), batch, places, entries, faults)

    def _route(self, *, forced: bool) -> list[SyntheticBroker]:
        domains = self._plan.organizations
        if forced:
            chosen = self._random.sample(domains[:2], 2)
        else:
            over = len(domains) > 2 and self._random.random() < self._plan.rates.two_hops
            chosen = self._random.sample(domains, 3 if over else 2)
        return [self._brokers[domain] for domain in chosen]

    def _messages(self, length: int, route: Sequence[SyntheticBroker]) -> _Batch:
        kind = self._random.random()
        first = self._count
        self._count += length
        ids: list[str]
        if kind < 0.8:
            id_type = "string"
            ids = [f"{self._tag}-{n}" for n in range(first, first + length)]
        elif kind < 0.9:
            id_type = "ulong"
            high = int(self._tag, 16) << 32
            ids = [str(high + n) for n in range(first, first + length)]
        else:
            id_type = "uuid"
            high = int(self._tag, 16) << 96
            ids = [str(uuid.UUID(int=high + n)) for n in range(first, first + length)]
        digits = self._random.randbytes(32 * length).hex()
        digests = [digits[i : i + 64] for i in range(0, 64 * length, 64)]
        base = int(self._random.lognormvariate(7.0, 1.0))
        sizes = [base + each for each in self._some_jitter(length)]
        to = f"{QUEUE}@{route[-1].domain}"
        return _Batch(to, route[0].domain, id_type, ids, digests, sizes)

    def _some_jitter(self, length: int) -> list[int]:
        at = self._random.randrange(_JITTER)
        return self._jitter[at : at + length]

    def _chosen(self, rate: float, places: Sequence[int]) -> set[int]:
        """Choose some messages of a batch."""
        expected = rate * len(places)
        number = int(expected) + (self._random.random() < expected % 1.0)
        return set(self._random.sample(places, number)) if number else set()

    def _published(
        self, now: int, route: Sequence[SyntheticBroker], batch: _Batch, places: Sequence[int]
    ) -> list[int]:
        self._connections += 1
        shared = {"sender": "user:ann", "connection": f"c{self._connections}", "link": "publish"}
        broker, node = route[0], f"amqp$out/{route[1].domain}"
        return self._receive(now, broker, node, batch, places, shared, {})

    def _receive(
        self, now: int, broker: SyntheticBroker, node: str, batch: _Batch, places: Sequence[int],
        shared: Mapping[str, object], columns: Mapping[str, Sequence[object]],
    ) -> list[int]:  # fmt: skip
        entries = broker.entries(len(places))
        every = {
            "node": node,
            "to": batch.to,
            "origin": batch.origin,
            "message_id_type": batch.id_type,
            "durable": True,
            "priority": 4,
            "settle_us": 800 + self._random.randrange(4000),
            **shared,
        }
        annotations = _ANNOTATIONS + len(str(shared.get("trail", "")))
        each = {"entry": entries, **batch.columns(places, annotations), **columns}
        broker.put(now, RecordKind.RECEIVED, node, len(places), every, each)
        return entries

    def _expire(
        self, now: int, route: Sequence[SyntheticBroker], batch: _Batch, places: Sequence[int],
        entries: list[int],
    ) -> tuple[Sequence[int], list[int]]:  # fmt: skip
        """Let some expire, with reports to their sender."""
        gone = self._chosen(self._plan.rates.expired, range(len(places)))
        if not gone:
            return places, entries
        broker, node = route[0], f"amqp$out/{route[1].domain}"
        over = [entries[i] for i in sorted(gone)]
        later = now + 120 * SECOND
        broker.put(later, RecordKind.EXPIRED, node, len(over), {"node": node}, {"entry": over})
        reports = broker.entries(len(over))
        broker.put(
            later + 500, RecordKind.REPORTED, "reports", len(over),
            {"node": "reports", "condition": "amqproute:expired"},
            {"entry": reports, "parent": over},
        )  # fmt: skip
        self._end(
            later + SECOND, broker, RecordKind.DELIVERED, "reports", reports, {"peer": "user:ann"}
        )
        self._planted.fates["expired"] += len(over)
        return _without(places, entries, gone)

    def _dead_letter(
        self,
        now: int,
        broker: SyntheticBroker,
        batch: _Batch,
        places: Sequence[int],
        entries: list[int],
    ) -> tuple[Sequence[int], list[int]]:
        """Let some be rejected by the last hop, and kept as dead letters where they are."""
        gone = self._chosen(self._plan.rates.dead_lettered, range(len(places)))
        if not gone:
            return places, entries
        domain = batch.to.partition("@")[2]
        node = f"amqp$out/{domain}"
        over = [entries[i] for i in sorted(gone)]
        copies = broker.entries(len(over))
        later = now + SECOND
        broker.put(
            later, RecordKind.ROUTED, DEAD_LETTERS, len(over), {"node": DEAD_LETTERS},
            {"entry": copies, "parent": over},
        )  # fmt: skip
        shared = {"peer": f"peer:{domain}", "condition": "amqp:not-found", "attempt": 1}
        self._end(later, broker, RecordKind.DEAD_LETTERED, node, over, shared)
        self._planted.fates["dead-lettered"] += len(over)
        return _without(places, entries, gone)

    def _end(
        self, now: int, broker: SyntheticBroker, kind: str, node: str, entries: Sequence[int],
        shared: Mapping[str, object],
    ) -> None:  # fmt: skip
        each: dict[str, Sequence[object]] = {"entry": entries}
        broker.put(now, kind, node, len(entries), {"node": node, **shared}, each)

    # -- one hop -------------------------------------------------------------------------------

    def _forward(
        self,
        now: int,
        leg: _Leg,
        batch: _Batch,
        places: Sequence[int],
        entries: list[int],
        faults: Sequence[str],
    ) -> None:
        """Hand over to the next broker, and continue there; some later than others."""
        sender, rates = leg.sender, self._plan.rates
        if leg.is_last:
            places, entries = self._dead_letter(now, sender, batch, places, entries)
        late = self._chosen(rates.delayed, range(len(places)))
        put_off = self._chosen(rates.deferred, range(len(places))) - late
        wait = 500 + int(min(self._random.lognormvariate(8.5, 1.2), 20e6))
        groups = [(now + wait, 1, _without(places, entries, late | put_off))]
        if late:
            delay = int(self._random.uniform(1.0, LONGEST_DELAY / 2) * SECOND)
            groups.append((now + delay, 1, _only(places, entries, late)))
        if put_off:
            back = now + wait + 3000
            self._end(
                back,
                sender,
                RecordKind.DEFERRED,
                leg.queue,
                _only(places, entries, put_off)[1],
                {
                    "peer": f"peer:{leg.receiver.domain}",
                    "attempt": 1,
                    "until": back + 60 * SECOND,
                    "condition": "amqp:resource-limit-exceeded",
                },
            )
            groups.append((back + 60 * SECOND, 2, _only(places, entries, put_off)))
        for moment, attempt, (some, theirs) in groups:
            if some:
                self._hand_over(now, moment, attempt, leg, batch, some, theirs, faults)
                faults = ()
        if faults:
            raise ValueError("a fault found no message: plan more transfers")

    def _hand_over(
        self,
        since: int,
        now: int,
        attempt: int,
        leg: _Leg,
        batch: _Batch,
        places: Sequence[int],
        entries: list[int],
        faults: Sequence[str],
    ) -> None:
        """Let the next hop accept messages, with or without faults, and continue with them."""
        sender, receiver, shared = leg.sender, leg.receiver, leg.shared
        wire = 1500 + self._random.randrange(30_000)
        on_hop = [kind for kind in faults if kind in _ON_A_HOP]
        taken_at = now + wire // 2
        spoilt = self._spoil(taken_at, leg, batch, places, entries, on_hop)
        taken = [i for i in range(len(places)) if i not in spoilt] if spoilt else None
        there = list(places) if taken is None else [places[i] for i in taken]
        froms = entries if taken is None else [entries[i] for i in taken]
        theirs = self._receive(
            taken_at, receiver, leg.node, batch, there, shared, {"from_entry": froms}
        )
        again = self._chosen(self._plan.rates.suppressed, froms) if froms else ()
        receiver.put(
            taken_at + 2 * SECOND, RecordKind.DUPLICATE, "", len(again),
            {"node": leg.node, "sender": shared["sender"], "from_stream": sender.stream},
            {"from_entry": sorted(again)},
        )  # fmt: skip
        queue_us = now - since
        sender.put(
            now + wire, RecordKind.RELAYED, leg.queue, len(entries),
            {"node": leg.queue, "peer": f"peer:{receiver.domain}",
             "attempt": attempt, "wire_us": wire, "settle_us": 900},
            {"entry": entries, "queue_us": [queue_us + j for j in self._some_jitter(len(entries))]},
        )  # fmt: skip
        if leg.is_last:
            self._deliver(now + wire, receiver, batch, there, theirs, faults)
        else:
            self._forward(now + wire, _Leg(leg.route, leg.hop + 1), batch, there, theirs, ())

    def _spoil(
        self,
        taken_at: int,
        leg: _Leg,
        batch: _Batch,
        places: Sequence[int],
        entries: list[int],
        faults: Sequence[str],
    ) -> set[int]:
        """Plant faults on a hop; return the messages with faults."""
        sender, receiver = leg.sender, leg.receiver
        spoilt: set[int] = set()
        for kind in faults:
            free = [i for i in range(len(places)) if i not in spoilt]
            if kind == "unknown":
                self._plant_unknown(taken_at, leg)
                continue
            if not free:
                raise ValueError("more faults than messages: plan more transfers")
            i = self._random.choice(free)
            spoilt.add(i)
            place, entry = places[i], entries[i]
            times = {"duplicated": 2, "changed": 1}.get(kind, 0)
            for turn in range(times):
                own = self._receive(
                    taken_at + turn * SECOND,
                    receiver,
                    leg.node,
                    batch,
                    [place],
                    leg.shared,
                    {"from_entry": [entry], **self._spoilt_digest(kind)},
                )
                at = taken_at + (turn + 5) * SECOND
                self._end(at, receiver, RecordKind.DELIVERED, leg.node, own, {"peer": "user:bob"})
            if kind == "gap":
                receiver.put(
                    taken_at + 1,
                    RecordKind.GAP,
                    "",
                    1,
                    {"count": 2, "words": "the disk is full"},
                    {},
                )
            self._fault(kind, batch.ids[place], sender, receiver, sender.stream, entry)
        return spoilt

    def _spoilt_digest(self, kind: str) -> dict[str, list[str]]:
        return {"digest": [self._random.randbytes(32).hex()]} if kind == "changed" else {}

    def _plant_unknown(self, taken_at: int, leg: _Leg) -> None:
        sender, receiver, node = leg.sender, leg.receiver, leg.node
        batch = self._messages(1, [sender, receiver])
        [entry] = sender.entries(1)
        own = self._receive(
            taken_at, receiver, node, batch, [0], leg.shared, {"from_entry": [entry]}
        )
        at = taken_at + 5 * SECOND
        self._end(at, receiver, RecordKind.DELIVERED, node, own, {"peer": "user:bob"})
        self._fault("unknown", batch.ids[0], sender, receiver, sender.stream, entry)

    def _fault(
        self,
        kind: str,
        message_id: str | None,
        sender: SyntheticBroker,
        receiver: SyntheticBroker,
        stream: str,
        entry: int,
    ) -> None:
        self._planted.faults.append(
            PlannedFault(kind, message_id, sender.domain, receiver.domain, stream, entry)
        )

    # -- the last broker -----------------------------------------------------------------------

    def _deliver(
        self, now: int, broker: SyntheticBroker, batch: _Batch, places: Sequence[int],
        entries: list[int], faults: Sequence[str],
    ) -> None:  # fmt: skip
        refused = self._chosen(self._plan.rates.rejected, range(len(places)))
        self._end(
            now + 700, broker, RecordKind.REJECTED, QUEUE, [entries[i] for i in sorted(refused)],
            {"peer": "user:bob", "condition": "amqp:not-allowed"},
        )  # fmt: skip
        self._planted.fates["rejected"] += len(refused)
        there, left = _without(places, entries, refused)
        kept = self._spoil_within(now, broker, batch, there, left, faults)
        left = [each for each in left if each not in kept] if kept else left
        wait = 1000 + int(min(self._random.lognormvariate(8.0, 1.0), 20e6))
        broker.put(
            now + wait, RecordKind.DELIVERED, QUEUE, len(left),
            {"node": QUEUE, "peer": "user:bob", "settle_us": 700, "wire_us": 900},
            {"entry": left, "queue_us": [wait + j for j in self._some_jitter(len(left))]},
        )  # fmt: skip
        self._planted.fates["delivered"] += len(left)

    def _spoil_within(
        self, now: int, broker: SyntheticBroker, batch: _Batch, places: Sequence[int],
        entries: list[int], faults: Sequence[str],
    ) -> set[int]:  # fmt: skip
        """Plant faults within one broker; return the entries that are not delivered."""
        kept: set[int] = set()
        used: set[int] = set()
        for kind in faults:
            if kind not in _WITHIN:
                continue
            if kind == "unexplained":
                [entry] = broker.entries(1)
                self._end(now, broker, RecordKind.DELIVERED, QUEUE, [entry], {"peer": "user:bob"})
                self._fault(kind, None, broker, broker, broker.stream, entry)
                continue
            free = [i for i in range(len(places)) if i not in used]
            if not free:
                raise ValueError("more faults than messages: plan more transfers")
            i = self._random.choice(free)
            used.add(i)
            if kind == "vanished":
                kept.add(entries[i])
                broker.vanished.add(entries[i])
            elif kind == "ended_twice":
                at = now + 30 * SECOND
                self._end(
                    at, broker, RecordKind.DELIVERED, QUEUE, [entries[i]], {"peer": "user:eve"}
                )
            else:
                broker.returned.setdefault(QUEUE, set()).add(entries[i])
            self._fault(kind, batch.ids[places[i]], broker, broker, broker.stream, entries[i])
        return kept


def _without(
    places: Sequence[int], entries: list[int], gone: set[int]
) -> tuple[Sequence[int], list[int]]:
    """Leave out some positions of both."""
    if not gone:
        return places, entries
    left = [i for i in range(len(places)) if i not in gone]
    return [places[i] for i in left], [entries[i] for i in left]


def _only(
    places: Sequence[int], entries: list[int], kept: set[int]
) -> tuple[Sequence[int], list[int]]:
    """Keep some positions of both."""
    chosen = sorted(kept)
    return [places[i] for i in chosen], [entries[i] for i in chosen]
