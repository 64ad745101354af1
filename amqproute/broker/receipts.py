# SPDX-License-Identifier: Apache-2.0
"""Receipts for messages of a peer, by which repetitions are recognized (T-36, Q-28).

A relaying peer numbers its messages: the delivery-tag is the id of the entry in its relay queue,
and the link property ``amqproute:stream`` names the store of these ids. After a lost connection or
a crash it repeats the messages without an outcome; a receipt turns the second arrival into a mere
`accepted`. A receipt is written in the same commit as the message.

Lifetime of receipts
====================

A receipt is kept as long as the peer may send the id again. The peer announces that:
``amqproute:floor``, in its attach and in flows, is the lowest id that it may still send without
knowing the outcome. Receipts below are dropped. Receipts of a peer that never comes back go by age
(``relay.receipt-lifetime``, which is longer than any message is tried): from the disk at the start
and from time to time, from memory by `Receipts.sweep`.

Bounds
======

* `MAX_IDS` receipts of one stream: the lower half is dropped, and the log warns. A peer of this
  make has at most two windows of ids above its floor, unless it cannot write to its disk.
* `MAX_STREAMS` streams of one peer, and `MAX_IDS_OF_PEER` receipts in all of them: streams
  without receipts go first, which costs nothing, then the one attached longest ago, with a
  warning. A message whose receipt was dropped and that is sent again is stored twice: at least
  once.

Owners of streams
=================

A stream belongs to the peers that prove one of the names of its first sender. So a certificate that
gains a name, or loses one, or has them in another order, changes nothing; and a peer cannot use the
stream of another organization, even if it knows its name. The key in the store has up to
`MAX_NAMES` of the names.

Peers of other makes
====================

They have no streams. Where the configuration says so (``peers.*.suppress-duplicates``) their
messages are known by their message-ids instead (`MessageIds`): the ids of the last messages, in
`GENERATIONS` of `GENERATION_IDS` each, of which the oldest goes when a new one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from twisted.logger import Logger

from amqproute.errors import PreconditionFailed
from amqproute.interfaces import IStoreTransaction
from amqproute.message import Message
from amqproute.values import TAG_OCTETS, Principal

MAX_IDS: Final = 200_000
"""Most receipts of one stream."""
MAX_IDS_OF_PEER: Final = 1_000_000
MAX_STREAMS: Final = 256
"""Most streams of one peer: one for each of its hops to here, in each store it has ever had."""
MAX_NAMES: Final = 16
HIGHEST_ID: Final = (1 << 63) - 1
"""Largest id that a store can keep."""
PRUNE_EVERY: Final = 256
"""Least number of receipts to be dropped before a floor is written to the store."""
GENERATION_IDS: Final = 50_000
GENERATIONS: Final = 4
BY_ID: Final = "#"
"""Prefix of the keys of message-ids; no domain begins with it."""

log = Logger()


class Stream:
    """The receipts of one peer's stream.

    Args:
        key: its name in the store: the proved names of the peer, and the stream's name.
        ids: the ids in the store.
        home: the owner of all streams.

    Attributes:
        ids: ids taken and not below the floor.
        pending: ids whose commit is in progress.
        duplicates: number of arrivals answered from a receipt.
        activity: grows with each commit.
    """

    __slots__ = (
        "_above",
        "_below",
        "_home",
        "activity",
        "duplicates",
        "floor",
        "ids",
        "key",
        "owners",
        "pending",
    )

    def __init__(self, key: str, ids: Iterable[int] = (), home: Receipts | None = None) -> None:
        self.key = key
        self.owners = owners_of(key)
        self.ids = set(ids)
        self.pending: set[int] = set()
        self.floor = 0
        self.duplicates = 0
        self.activity = 0
        self._home = home
        # The same ids again: a heap of those above the floor, and those that may be dropped when
        # they are many. A peer may announce floors often; each must cost only what it forgets.
        self._above = sorted(self.ids)
        self._below: list[int] = []

    def id_of(self, tag: bytes, message: Message) -> int:
        """Return the sender's id of a message.

        Raises:
            PreconditionFailed: the tag is not that of a stream.
        """
        entry_id = int.from_bytes(tag, "big")
        if len(tag) != TAG_OCTETS or entry_id > HIGHEST_ID:
            raise PreconditionFailed(
                f"a delivery-tag of this stream is an id of {TAG_OCTETS} octets, 2^63-1 at most"
            )
        return entry_id

    def seen(self, entry_id: int) -> bool:
        """Tell whether the message with this id was taken before."""
        if entry_id in self.ids:
            self.duplicates += 1
            return True
        return False

    def confirm(self, ids: Sequence[int]) -> None:
        """These are durable."""
        self.activity += 1
        self.pending.difference_update(ids)
        self.ids.update(ids)
        for entry_id in ids:
            heappush(self._above, entry_id)
        if self._home is not None:
            self._home.keep(self)  # it had to make room, and is in use after all

    def unmark(self, ids: Sequence[int]) -> None:
        """Take back receipts whose commit failed."""
        self.pending.difference_update(ids)

    def trim(self, transaction: IStoreTransaction) -> None:
        """Bound the number of receipts, within the transaction that adds some."""
        if len(self.ids) <= MAX_IDS:
            return
        kept = sorted(self.ids)[len(self.ids) // 2 :]
        if self._home is not None:
            self._home.dropped += len(self.ids) - len(kept)
        log.warn(
            "{peer} has not announced a floor for {count} messages: dropped the older half of "
            "their receipts; messages of these that it sends again are duplicated",
            peer=self.key,
            count=len(self.ids),
        )
        self.ids = set(kept)
        self._above = kept
        self._below = []
        transaction.forget_received(self.key, kept[0])

    def forget_below(self, floor: int, transaction: IStoreTransaction) -> bool:
        """Drop receipts below the floor; return whether the transaction was changed."""
        floor = min(floor, HIGHEST_ID)
        if floor <= self.floor:
            return False
        self.floor = floor
        above, below = self._above, self._below
        while above and above[0] < floor:
            below.append(heappop(above))
        if not below or (len(below) < PRUNE_EVERY and len(below) < len(self.ids)):
            return False
        self.ids.difference_update(below)
        below.clear()
        transaction.forget_received(self.key, floor)
        return True


class MessageIds:
    """The latest message-ids of a peer of another make, as hashes of 63 bits.

    It takes the place of a `Stream`. The probability that two remembered ids have the same hash is
    2^-45.

    Args:
        owner: the peer's names, as in a key.
    """

    __slots__ = (
        "_generations",
        "_number",
        "_owner",
        "activity",
        "duplicates",
        "owners",
        "pending",
    )

    def __init__(self, owner: str) -> None:
        self.owners = frozenset(owner.split(","))
        self.pending: set[int] = set()
        self.duplicates = 0
        self.activity = 0
        self._owner = owner
        self._number = 0
        self._generations: dict[int, set[int]] = {0: set()}

    @property
    def key(self) -> str:
        """Key of the row to which the next receipts are written."""
        return self._key(self._number)

    def _key(self, number: int) -> str:
        return f"{BY_ID}{self._owner}/{number}"

    @property
    def ids(self) -> set[int]:
        """All remembered ids."""
        return set().union(*self._generations.values())

    def recovered(self, number: int, ids: Iterable[int]) -> None:
        """Take over a generation from the store."""
        self._generations[number] = set(ids)
        self._number = max(self._generations)

    def id_of(self, tag: bytes, message: Message) -> int | None:
        """Return the hash of a message's id.

        None if it has none; or if another message with it is being stored at this moment: that may
        fail, so both are kept.
        """
        value = message.properties.message_id
        if value is None:
            return None
        if isinstance(value, memoryview):
            value = bytes(value)
        text = f"{type(value).__name__}:{value!r}".encode()
        found = int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1
        return None if found in self.pending else found

    def seen(self, entry_id: int) -> bool:
        """Tell whether a message with this id was taken before."""
        for generation in self._generations.values():
            if entry_id in generation:
                self.duplicates += 1
                return True
        return False

    def confirm(self, ids: Sequence[int]) -> None:
        """These are durable."""
        self.activity += 1
        self.pending.difference_update(ids)
        self._generations[self._number].update(ids)

    def unmark(self, ids: Sequence[int]) -> None:
        """Forget ids that could not be stored."""
        self.pending.difference_update(ids)

    def trim(self, transaction: IStoreTransaction) -> None:
        """Begin a new generation if this one is full, and drop the oldest if there are many."""
        if len(self._generations[self._number]) < GENERATION_IDS:
            return
        self._number += 1
        self._generations[self._number] = set()
        if len(self._generations) > GENERATIONS:
            oldest = min(self._generations)
            del self._generations[oldest]
            transaction.forget_stream(self._key(oldest))

    def forget_below(self, floor: int, transaction: IStoreTransaction) -> bool:
        """Do nothing: hashes have no order."""
        return False


class Receipts:
    """All streams, by key.

    Args:
        suppresses: whether duplicates of a peer without streams are recognized by message-id.

    Attributes:
        dropped: receipts that went for want of room; what they stood for may be duplicated.
    """

    def __init__(self, suppresses: Callable[[Principal], bool] = lambda _: False) -> None:
        self.suppresses = suppresses
        self._streams: dict[str, Stream] = {}
        self._named: dict[str, list[Stream]] = {}
        self._by_id: list[MessageIds] = []
        self._looked: dict[str, tuple[int, float]] = {}
        self.dropped = 0

    def recovered(self, received: Mapping[str, Sequence[int]]) -> None:
        """Take over the receipts in the store."""
        for key, ids in received.items():
            if not key.startswith(BY_ID):
                self.keep(Stream(key, ids, self))
                continue
            owner, _, number = key[len(BY_ID) :].rpartition("/")
            if not number.isdecimal():
                log.error("cannot read the receipts of {key}: ignored", key=key)
                continue
            known = next((each for each in self._by_id if each._owner == owner), None)
            if known is None:
                known = MessageIds(owner)
                self._by_id.append(known)
            known.recovered(int(number), ids)

    def stream(self, peer: Principal, name: str, forget: Callable[[str], None]) -> Stream:
        """Return a peer's stream; create it if necessary.

        Args:
            peer: its proved identity.
            name: its name of the stream.
            forget: called with the key of a stream that is dropped to make room.
        """
        names = names_of(peer)
        for stream in self._named.get(name, ()):
            if not names.isdisjoint(stream.owners):
                # The order of the streams is that of their last use.
                self._streams[stream.key] = self._streams.pop(stream.key)
                return stream
        self._make_room(names, forget)
        stream = Stream(f"{owner_of(names)}/{name}", (), self)
        self.keep(stream)
        return stream

    def by_message_id(self, peer: Principal) -> MessageIds | None:
        """Return the message-ids of a peer of another make; None if they are not compared."""
        if not self.suppresses(peer):
            return None
        names = names_of(peer)
        for known in self._by_id:
            if not names.isdisjoint(known.owners):
                return known
        made = MessageIds(owner_of(names))
        self._by_id.append(made)
        return made

    def keep(self, stream: Stream) -> None:
        """Add a stream to the known ones, unless it is among them."""
        if stream.key not in self._streams:
            self._streams[stream.key] = stream
            self._named.setdefault(stream.key.partition("/")[2], []).append(stream)

    def _drop(self, stream: Stream) -> None:
        del self._streams[stream.key]
        name = stream.key.partition("/")[2]
        self._named[name].remove(stream)
        if not self._named[name]:
            del self._named[name]

    def _make_room(self, names: frozenset[str], forget: Callable[[str], None]) -> None:
        known = [each for each in self._streams.values() if not names.isdisjoint(each.owners)]
        total = sum(len(each.ids) for each in known)
        known.sort(key=lambda each: bool(each.ids or each.pending))
        for stream in known:
            if len(known) < MAX_STREAMS and total <= MAX_IDS_OF_PEER:
                return
            known = known[1:]
            total -= len(stream.ids)
            self._drop(stream)
            if stream.ids:
                self.dropped += len(stream.ids)
                log.warn(
                    "{peer} has too many streams: dropped {count} receipts of one; messages of "
                    "these that it sends again are duplicated",
                    peer=stream.key,
                    count=len(stream.ids),
                )
                forget(stream.key)

    def sweep(self, now: float, horizon: float) -> int:
        """Drop the streams without arrivals for ``horizon`` seconds from memory.

        The store drops their receipts by age itself.

        Returns:
            Their number.
        """
        looked: dict[str, tuple[int, float]] = {}
        idle = []
        for key, stream in self._streams.items():
            activity, since = self._looked.get(key, (-1, now))
            if activity != stream.activity or stream.pending:
                since = now
            elif now - since > horizon:
                idle.append(stream)
                continue
            looked[key] = (stream.activity, since)
        for stream in idle:
            self._drop(stream)
        self._looked = looked
        return len(idle)

    def __len__(self) -> int:
        numbered = sum(len(stream.ids) for stream in self._streams.values())
        return numbered + sum(len(known.ids) for known in self._by_id)

    @property
    def duplicates(self) -> int:
        """Arrivals answered from a receipt since the start."""
        numbered = sum(stream.duplicates for stream in self._streams.values())
        return numbered + sum(known.duplicates for known in self._by_id)


def names_of(peer: Principal) -> frozenset[str]:
    """Return the proved names of a peer."""
    return peer.names or frozenset((peer.name,))


def owner_of(names: Iterable[str]) -> str:
    """Return names in the form of a key."""
    return ",".join(sorted(names)[:MAX_NAMES])


def owners_of(key: str) -> frozenset[str]:
    """Return the names in a key."""
    return frozenset(key.partition("/")[0].split(","))
