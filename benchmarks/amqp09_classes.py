# SPDX-License-Identifier: Apache-2.0
"""Cost per message of each class of AMQP 0-9 beside basic's, through a whole broker.

Run ``python -m benchmarks.amqp09_classes``; ``--rounds 1`` to see whether it works. The broker is
in memory, with its frontends and engines and without disk and sockets; each figure is the best of
several rounds, in microseconds of CPU per message of 1 KiB. *in* is a publish with its answer,
*out* a delivery with its acknowledgement, where the class has these. Messages are durable but for
those of class stream, which cannot be. One of class file takes three methods and a content each
way.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from amqproute.store.staging_ledger import StagingTerms
from tests.conformance.frame_broker import FrameBroker, Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

BODY = b"x" * 1024
BATCH = 500
ROUNDS = 10
QUIET_TURNS = 20
"""Turns of the clock in which nothing happens, after which a step is over."""


class ClassCost:
    """One class, with a fresh broker for each round.

    Args:
        publish: the octets of a publish, of its number.
        consume: those that make a consumer.
        taken: those that the consumer answers, as they come in turn, of a number.
    """

    def __init__(
        self,
        publish: Callable[[int], bytes],
        consume: bytes,
        *taken: Callable[[int], bytes],
    ) -> None:
        self._publish = publish
        self._consume = consume
        self._taken = taken

    def round(self) -> tuple[float, float]:
        """Return the seconds of CPU in and out, per message."""
        house = _house()
        client = Client09(house, version=V09).channel()
        octets = b"".join(self._publish(number) for number in range(BATCH))
        seconds_in = self._run(house, client, octets)
        assert client.depth() == BATCH, client.depth()
        client.channel(2)
        steps = [self._consume]
        steps += [
            b"".join(answer(number) for number in range(1, BATCH + 1)) for answer in self._taken
        ]
        seconds_out = sum(self._run(house, client, step) for step in steps)
        assert client.depth() == 0, client.depth()
        return seconds_in / BATCH, seconds_out / BATCH

    @staticmethod
    def _run(house: FrameBroker, client: Client09, octets: bytes) -> float:
        """Write octets, and let everything happen that comes of them; return the seconds."""
        protocol, end = client.end.protocol, client.end
        queue = house.broker.nodes["q"]
        started = time.process_time()
        for at in range(0, len(octets), 65536):
            protocol.dataReceived(octets[at : at + 65536])
            house.world.advance(0.0)
        before: tuple[int, ...] = ()
        quiet = 0
        while quiet < QUIET_TURNS:
            house.world.advance(0.0)
            now = (len(end.value()), queue.depth, queue.available)
            quiet = quiet + 1 if now == before else 0
            before = now
        seconds = time.process_time() - started
        end.clear()  # type: ignore[no-untyped-call]
        return seconds


def _house() -> FrameBroker:
    house = Network().house()
    house.store.staging.terms = StagingTerms(user_contents=BATCH + 1)
    return house


FILE_STEPS: tuple[Callable[[int], bytes], ...] = (
    lambda number: call(1, "file.open", identifier=str(number), content_size=len(BODY)),
    lambda _: content(1, "file.stage", BODY, {"filename": "f"}, class_id=70),
    lambda number: call(1, "file.publish", routing_key="q", identifier=str(number)),
)
"""What a client sends of each file, when the step before is answered."""


def _basic(_: int) -> bytes:
    return content(1, "basic.publish", BODY, {"delivery-mode": 2}, routing_key="q")


def _transfer(_: int) -> bytes:
    return call(1, "message.transfer", routing_key="q", delivery_mode=2, body=(0, BODY))


def _stream(_: int) -> bytes:
    return content(1, "stream.publish", BODY, class_id=80, routing_key="q")


def _tunnel(_: int) -> bytes:
    properties = {"proxy-name": "q", "durable": 1}
    return content(1, "tunnel.request", BODY, properties, class_id=110)


COSTS = {
    "basic": ClassCost(
        _basic,
        call(2, "basic.consume", queue="q"),
        lambda number: call(2, "basic.ack", delivery_tag=number),
    ),
    "message": ClassCost(
        _transfer,
        call(2, "message.consume", queue="q", destination="m"),
        lambda _: call(2, "message.ok"),
    ),
    "stream": ClassCost(_stream, call(2, "stream.consume", queue="q")),
    "tunnel": ClassCost(_tunnel, call(2, "basic.consume", queue="q", no_ack=1)),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    number: int = parser.parse_args().rounds
    print("class    in     out  (us of CPU per message)")
    makers = {**{name: cost.round for name, cost in COSTS.items()}, "file": _file_round}
    for name, make in makers.items():
        rounds = [make() for _ in range(number)]
        best = [1e6 * min(each[way] for each in rounds) for way in (0, 1)]
        print(f"{name:8} {best[0]:5.1f}  {best[1]:5.1f}")


def _file_round() -> tuple[float, float]:
    """Deliver files in windows of 100, as many as are staged to a consumer at a time."""
    house = _house()
    client = Client09(house, version=V09).channel()
    run = ClassCost._run
    seconds_in = 0.0
    for step in FILE_STEPS:
        octets = b"".join(step(number) for number in range(BATCH))
        seconds_in += run(house, client, octets)
    assert client.depth() == BATCH, client.depth()
    client.channel(2)
    seconds_out = run(house, client, call(2, "file.consume", queue="q"))
    for first in range(1, BATCH + 1, 100):
        tags = range(first, first + 100)
        seconds_out += run(house, client, call(2, "file.open-ok") * 100)
        octets = b"".join(call(2, "file.ack", delivery_tag=tag) for tag in tags)
        seconds_out += run(house, client, octets)
    assert client.depth() == 0, client.depth()
    return seconds_in / BATCH, seconds_out / BATCH


if __name__ == "__main__":
    main()
