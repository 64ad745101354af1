# SPDX-License-Identifier: Apache-2.0
"""Broken streams of AMQP 0-9 and 0-9-1 against a whole broker in memory, from a seed.

Run as ``python -m tests.frontends.amqp09.fuzz [SEED [STREAMS]]``; ``make fuzz`` runs 20,000. Each
stream is a script that a client could send, with octets changed, cut, doubled and moved, and comes
in pieces of any size. Whatever it is, nothing may be logged as a fault of ours, a connection holds
no more input than its bound, and when it is gone nothing of it is left: no memory, no place of a
large message, no transaction, no consumer.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, globalLogPublisher

from amqproute.broker.xa_states import Xid
from amqproute.store.staging_ledger import StagingTerms
from tests.conformance.frame_broker import FrameBroker, Network
from tests.frontends.amqp09.fuzz_classes import CLASS_PIECES
from tests.support.branches import with_branches
from tests.support.client09 import Client09
from tests.support.plain_amqp09 import frame_octets
from tests.support.wire09 import V09, V091, call, content

__all__ = ["StreamFuzz"]

PART_FROM: Final = 3000
MOST_PARTIAL: Final = 20_000
STREAMS: Final = 20_000
HUGE: Final = (b"\xff" * 8, b"\x80" + bytes(7), b"\x7f\xff\xff\xff", b"\xff\xff", b"\0" * 4)
_Piece = Callable[[random.Random, int], bytes]


def _declare(chance: random.Random, channel: int) -> bytes:
    name = chance.choice(("q", "one", "two", "", "amq.x"))
    table = [("x-max-length", "I", chance.randint(-1, 5)), ("x-e", "F", [("a", "A", [])])]
    return call(
        channel,
        "queue.declare",
        queue=name,
        durable=chance.randint(0, 1),
        exclusive=chance.randint(0, 1),
        arguments=table[: chance.randint(0, 2)],
    )


def _exchange(chance: random.Random, channel: int) -> bytes:
    name = chance.choice(("e", "amq.fanout", "f"))
    if chance.random() < 0.5:
        kind = chance.choice(("fanout", "topic", "headers", "direct", "odd"))
        return call(channel, "exchange.declare", exchange=name, type=kind)
    return call(channel, "queue.bind", queue="q", exchange=name, routing_key="a.#")


def _publish(chance: random.Random, channel: int) -> bytes:
    properties = {
        "headers": [("k", "I", 1), ("CC", "A", [("S", b"one")])][: chance.randint(0, 2)],
        "expiration": chance.choice(("", "10", "soon")),
        "delivery-mode": chance.randint(0, 3),
    }
    return content(
        channel,
        "basic.publish",
        b"x" * chance.choice((0, 10, 1000, 5000)),
        properties if chance.random() < 0.7 else None,
        pieces=chance.choice((100, 700, 4000)),
        exchange=chance.choice(("", "", "e", "amq.fanout")),
        routing_key=chance.choice(("q", "one", "nowhere", "q@nowhere.test")),
        mandatory=chance.randint(0, 1),
    )


def _other_class(chance: random.Random, channel: int) -> bytes:
    """Return a content of another class than basic."""
    body = b"x" * chance.choice((0, 10, 1000, 5000))
    pieces = chance.choice((100, 700, 4000))
    if chance.random() < 0.5:
        return content(
            channel,
            "stream.publish",
            body,
            {"priority": chance.randint(0, 255), "headers": [("k", "A", [])]},
            pieces=pieces,
            class_id=80,
            exchange=chance.choice(("", "", "e", "amq.fanout")),
            routing_key=chance.choice(("q", "one", "nowhere")),
            mandatory=chance.randint(0, 1),
            immediate=chance.randint(0, 1),
        )
    names = ("q", "one", "nowhere", "q@nowhere.test", "")
    return content(
        channel,
        "tunnel.request",
        body,
        {"proxy-name": chance.choice(names), "broadcast": chance.randint(0, 1)},
        pieces=pieces,
        class_id=110,
        meta_data=[("k", "F", [("a", "V", None)])][: chance.randint(0, 1)],
    )


def _stream_qos(chance: random.Random, channel: int) -> bytes:
    values = [chance.choice((0, 1, 7, 5000)) for _ in range(3)]
    return call(
        channel,
        "stream.qos",
        prefetch_size=values[0],
        prefetch_count=values[1],
        consume_rate=values[2],
        **{"global": chance.randint(0, 1)},
    )


def _start(chance: random.Random, channel: int) -> bytes:
    return call(channel, "dtx.start", dtx_identifier=chance.choice(("1:aa:", "1:bb:00", "x", "")))


def _plain(name: str, **arguments: Any) -> _Piece:
    return lambda _, channel: call(channel, name, **arguments)


PIECES: Final[Sequence[_Piece]] = (
    _declare,
    _exchange,
    _publish,
    _publish,
    _publish,
    _plain("confirm.select"),
    _plain("tx.select"),
    _plain("tx.commit"),
    _plain("tx.rollback"),
    _plain("basic.consume", queue="q", no_ack=1),
    _plain("basic.consume", queue="q", consumer_tag="t"),
    _plain("basic.cancel", consumer_tag="t"),
    _plain("basic.get", queue="q"),
    _plain("basic.ack", delivery_tag=1, multiple=1),
    _plain("basic.nack", delivery_tag=0, multiple=1, requeue=1),
    _plain("basic.recover", requeue=1),
    _plain("basic.qos", prefetch_count=2),
    _plain("channel.flow", active=0),
    _plain("channel.flow", active=1),
    _plain("queue.purge", queue="q"),
    _plain("queue.delete", queue="one"),
    _plain("exchange.delete", exchange="e"),
    _plain("channel.close"),
    _plain("channel.open"),
    lambda *_: frame_octets(8, 0, b""),
)

STREAM_PIECES: Final[Sequence[_Piece]] = (
    _other_class,
    _other_class,
    _stream_qos,
    _start,
    _plain("dtx.select"),
    _plain("stream.consume", queue="q"),
    _plain("stream.consume", queue="q", consumer_tag="s", nowait=1),
    _plain("stream.cancel", consumer_tag="s"),
)
"""Of the classes stream, dtx and tunnel."""


class StreamFuzz:
    """Streams against one broker.

    Args:
        seed: of everything.

    Attributes:
        faults: what was logged as a fault of ours.
        streams: how many have been sent.
        most_held: octets of input that one connection has held.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.seed = seed
        self.faults: list[str] = []
        self.streams = 0
        self.most_held = 0
        self._house = self._fresh()

    def _fresh(self) -> FrameBroker:
        self.world = Network()
        house = self.world.house()
        house.store.staging.terms = StagingTerms(20_000, 40_000, 60_000, 3, 5)
        self._branches = with_branches(house)
        return house

    def script(self, version: bytes) -> list[bytes]:
        """Return the frames of a client that does one thing after the other."""
        chance = self._chance
        pieces = (*PIECES, *CLASS_PIECES, *STREAM_PIECES) if version == V09 else PIECES
        out = [call(number, "channel.open") for number in (1, 2)]
        for _ in range(chance.randint(1, 12)):
            out.append(chance.choice(pieces)(chance, chance.choice((1, 1, 1, 2, 3))))
        return out

    def broken(self, frames: list[bytes]) -> bytes:
        """Return the frames with some things wrong."""
        chance = self._chance
        data = bytearray(b"".join(frames))
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(6):
                case 0 if at < len(data):
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    del data[at : at + chance.randint(1, 20)]
                case 2:
                    data[at:at] = data[at : at + chance.randint(1, 60)]
                case 3:
                    data[at:at] = chance.randbytes(chance.randint(1, 20))
                case 4:
                    huge = chance.choice(HUGE)
                    data[at : at + len(huge)] = huge
                case _:
                    del data[at:]
            if not data:
                break
        return bytes(data)

    def run(self, streams: int) -> None:
        """Send so many streams; stop at the first that leaves something behind.

        Raises:
            AssertionError: which, and what.
        """
        globalLogPublisher.addObserver(self._logged)
        try:
            for _ in range(streams):
                self._one()
        finally:
            globalLogPublisher.removeObserver(self._logged)

    def _logged(self, event: LogEvent) -> None:
        if event.get("log_failure") is not None:
            self.faults.append(str(event["log_failure"]))

    def _one(self) -> None:
        chance = self._chance
        if self.streams % 200 == 199:
            self._house = self._fresh()  # queues and exchanges fill up
        house = self._house
        version = chance.choice((V091, V09))
        client = Client09(
            house,
            version=version,
            part_from=PART_FROM,
            max_partial=MOST_PARTIAL,
            reports_input=True,
        )
        data = self.broken(self.script(version))
        engine: Any = client.end.protocol.engine
        at = 0
        while at < len(data) and not client.end.is_gone:
            size = chance.choice((1, 7, 100, 5000, 100_000))
            client.end.protocol.dataReceived(data[at : at + size])
            at += size
            held = engine.held_octets
            self.most_held = max(self.most_held, held)
            if chance.random() < 0.3:
                self.world.advance()
        self.world.advance(chance.choice((0, 0, 0.1)))
        if not client.end.is_gone:
            client.hang_up()
        for row in self._branches.rows():
            owner, _, name = str(row["name"]).rpartition("/")
            number, global_id, qualifier = name.split(".")
            xid = Xid(int(number), bytes.fromhex(global_id), bytes.fromhex(qualifier))
            Deferred.fromCoroutine(self._branches.rollback(owner, xid))
        self.world.advance(1.0)
        self.streams += 1
        self._check(house)

    def _check(self, house: FrameBroker) -> None:
        shared = house.shared
        left = {
            "connections": len(shared.connections),
            "places": shared.partial_deliveries.drafts.used,
            "octets on their way": shared.partial_deliveries.draft_octets.used,
            "memory": shared.memory.used_bytes,
            "staged contents that are held": house.store.staging.held,
            "branches": len(self._branches),
            "held": sum(each.acquired for each in house.broker.nodes.values()),
            "consumers": sum(
                len(getattr(getattr(each, "state", None), "consumers", ()) or ())
                for each in house.broker.nodes.values()
                if hasattr(getattr(each, "state", None), "consumers")
            ),
        }
        where = f"stream {self.streams} of seed {self.seed}"
        assert not any(left.values()), f"{where} leaves {left}"
        assert not self.faults, f"{where}: {self.faults[0]}"
        assert self.most_held <= MOST_PARTIAL + 140_000, f"{where} held {self.most_held}"


def main() -> None:
    """Run streams and say what came of it."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    streams = int(sys.argv[2]) if len(sys.argv) > 2 else STREAMS
    fuzz = StreamFuzz(seed)
    fuzz.run(streams)
    print(f"{fuzz.streams} streams of seed {seed}; at most {fuzz.most_held} octets held")


if __name__ == "__main__":
    main()
