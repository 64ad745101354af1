# SPDX-License-Identifier: Apache-2.0
"""The process killed by `tests.store.test_crash`: works without end, reports durable entries.

Run with the path of a store. Each round enqueues some entries to queues, some with a body of
their own and some with one that they share, notes the round, and dequeues what an earlier round
has stored; of the shared ones some get a body of their own instead. Every second large one stays.
Each line on standard output names a transaction whose Deferred has fired: ``put ROUND ID ID ...``
or ``end ROUND ID ID ...``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from amqproute.store.model import TRANSIENT
from tests.store.rig import StoreFixture


def body(entry_id: int) -> bytes:
    """The bytes of an entry or of a payload: long ones too, and none twice."""
    return b"%d:" % entry_id * (1 + entry_id % 700)


def draft(store: Any, transaction: Any, number: int, ids: list[int], report: Any) -> None:
    """Add a message whose rest comes in parts, and commit when that is on the disk."""
    one = store.next_id()
    gathered = store.draft(lambda _: None)
    rest = body(one)
    for at in range(0, len(rest), 1000):
        gathered.append([rest[at : at + 500], rest[at + 500 : at + 1000]])

    # Every second one stays: `report` ends those in even places, and updates the last.
    first, *others = ids
    order = [first, one, *others] if number % 8 and others else [one, *ids]

    def put(ready: Any) -> None:
        transaction.enqueue("large", one, b"head", 1, 0, 0, ready)
        transaction.commit().addCallback(report, "put", number, order)

    gathered.finish().addCallback(put)


def main(path: str) -> None:
    """Work until killed."""
    # A short log, so that kills meet checkpoints and fresh starts of the log as well.
    house = StoreFixture(
        path,
        checkpoint_bytes=1 << 19,
        remainder_bytes=1 << 17,
        file_bytes=1500,
        segment_bytes=200_000,
    )
    house.open()
    store = house.store
    flying = 0

    def report(_: Any, word: str, number: int, ids: list[int]) -> None:
        nonlocal flying
        flying -= 1
        # One write each, so that a kill cannot cut a line in two.
        os.write(1, f"{word} {number} {' '.join(map(str, ids))}\n".encode())
        if word == "put":
            ended = ids[::2]
            transaction = store.begin()
            transaction.dequeue(ended)
            transaction.update(ids[-1], 1, body(ids[-1]))
            transaction.forget_received("peer", ids[0])
            flying += 1
            transaction.commit().addCallback(report, "end", number, ended)

    number = 0
    while True:
        number += 1
        transaction = store.begin()
        ids = [store.next_id() for _ in range(1 + number % 20)]
        for one in ids:
            transaction.enqueue(f"q{one % 3}", one, body(one), 1, 0, 0)
        transaction.enqueue("paged", store.next_id(), b"t", 1, 0, TRANSIENT)
        payload = store.next_id()
        shared = [store.next_id() for _ in range(number % 7)]
        topic = [f"t{one % 5}" for one in shared]
        size = len(body(payload))
        transaction.share(payload, body(payload))
        transaction.enqueue_shared_many(topic, shared, payload, size, 1, 0, 0)
        ids += shared
        transaction.enqueue_shared("paged", store.next_id(), payload, size, 1, 0, TRANSIENT)
        transaction.mark_received("peer", ids)
        # A large one is committed when its rest is there: later ones may be there before it.
        transaction.note("round", "last" if number % 4 else "large", b"%d" % number)
        flying += 1
        if number % 4:
            transaction.commit().addCallback(report, "put", number, ids)
        else:
            draft(store, transaction, number, ids, report)
        while flying > 6:
            house.reactor.calls.get()()


if __name__ == "__main__":
    main(sys.argv[1])
