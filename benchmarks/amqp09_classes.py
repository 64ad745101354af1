# SPDX-License-Identifier: Apache-2.0
"""Cost per message of the classes basic, message and file of AMQP 0-9, through a whole broker.

Run ``python -m benchmarks.amqp09_classes``. The broker is in memory, with its frontends and engines
and without disk and sockets; each figure is the best of several rounds, in microseconds of CPU per
durable message of 1 KiB. *in* is a publish with its answer, *out* a delivery with its
acknowledgement. A message of class file takes three methods and a content each way.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from amqproute.store.staging_ledger import StagingTerms
from tests.conformance.frame_broker import FrameBroker, Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

BODY = b"x" * 1024
BATCH = 500
ROUNDS = 10


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
    def _run(house: FrameBroker, client: Client09, octets: bytes, depth: int = -1) -> float:
        protocol, end = client.end.protocol, client.end
        started = time.process_time()
        for at in range(0, len(octets), 65536):
            protocol.dataReceived(octets[at : at + 65536])
            house.world.advance(0.0)
        for turn in range(10 * BATCH):
            if turn >= (20 if depth >= 0 else 2 * BATCH) and depth in (-1, client.depth()):
                break
            house.world.advance(0.0)
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
}


def main() -> None:
    """Measure and print."""
    print("class    in     out  (us of CPU per message)")
    for name, cost in COSTS.items():
        rounds = [cost.round() for _ in range(ROUNDS)]
        best = [1e6 * min(each[way] for each in rounds) for way in (0, 1)]
        print(f"{name:8} {best[0]:5.1f}  {best[1]:5.1f}")
    rounds = [_file_round() for _ in range(ROUNDS)]
    best = [1e6 * min(each[way] for each in rounds) for way in (0, 1)]
    print(f"file     {best[0]:5.1f}  {best[1]:5.1f}")


def _file_round() -> tuple[float, float]:
    """Deliver files in windows of 100, as many as are staged to a consumer at a time."""
    house = _house()
    client = Client09(house, version=V09).channel()
    run = ClassCost._run
    seconds_in = 0.0
    for step in FILE_STEPS:
        octets = b"".join(step(number) for number in range(BATCH))
        seconds_in += run(house, client, octets, BATCH if step is FILE_STEPS[-1] else -1)
    assert client.depth() == BATCH, client.depth()
    client.channel(2)
    seconds_out = run(house, client, call(2, "file.consume", queue="q"))
    for first in range(1, BATCH + 1, 100):
        tags = range(first, first + 100)
        seconds_out += run(house, client, call(2, "file.open-ok") * 100)
        octets = b"".join(call(2, "file.ack", delivery_tag=tag) for tag in tags)
        seconds_out += run(house, client, octets)
    return seconds_in / BATCH, seconds_out / BATCH


if __name__ == "__main__":
    main()
