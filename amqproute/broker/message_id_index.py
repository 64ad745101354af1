# SPDX-License-Identifier: Apache-2.0
"""Index of the message-ids on a queue, for duplicate detection (Q-09, M-07).

An id is remembered as a hash of 64 bits in about ten bytes of memory, wherever its entry stands:
a million messages in the store cost ten megabytes here. The hash is Python's own, which is keyed
anew in each process, so nobody can make two ids meet on purpose; by chance a message is taken
for another one's repetition with a probability of one in 2^64 for each id held.

The hashes stand in buckets by their upper bits, sorted within each. A full table has each of its
buckets cut in two, so it grows without ever sorting anything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from typing import Final

from amqproute.message import Message

BUCKET: Final = 256
"""Hashes per bucket, on average, above which the table grows."""
BITS: Final = 64
_MASK: Final = (1 << BITS) - 1
_LIST8: Final = b"\x00\x53\x73\xc0"
_LIST32: Final = b"\x00\x53\x73\xd0"
_ULONGS: Final = {0x44: 0, 0x53: 1, 0x80: 8}
"""Octets behind each constructor of a ulong."""


class MessageIdIndex:
    """A multiset of hashes.

    Attributes:
        count: number of hashes.
    """

    __slots__ = ("_buckets", "_shift", "count")

    def __init__(self) -> None:
        self._buckets = [array("Q")]
        self._shift = BITS
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, identity: int) -> bool:
        bucket = self._buckets[identity >> self._shift]
        at = bisect_left(bucket, identity)
        return at < len(bucket) and bucket[at] == identity

    def add(self, identity: int) -> None:
        """Put a hash in, once more if it is there."""
        insort(self._buckets[identity >> self._shift], identity)
        self.count += 1
        if self.count > BUCKET * len(self._buckets):
            self._grow()

    def discard(self, identity: int) -> None:
        """Take a hash out, once, if it is there."""
        bucket = self._buckets[identity >> self._shift]
        at = bisect_left(bucket, identity)
        if at < len(bucket) and bucket[at] == identity:
            del bucket[at]
            self.count -= 1
            if not self.count:
                self._buckets = [array("Q")]
                self._shift = BITS

    def _grow(self) -> None:
        self._shift -= 1
        halves: list[array[int]] = []
        for place, bucket in enumerate(self._buckets):
            at = bisect_left(bucket, (2 * place + 1) << self._shift)
            halves += (bucket[:at], bucket[at:])
        self._buckets = halves


def identity_of(message: Message, with_numbers: bool) -> int:
    """Return the hash of a message's id, by type and value; 0 if it has none to be compared.

    Args:
        message: the message.
        with_numbers: ids of the type ulong count as well.

    Raises:
        DecodeError: the properties cannot be decoded.
    """
    offsets = message.located or message.offsets
    start = offsets.properties_start
    if offsets.properties_end <= start:
        return 0
    encoded = message.encoded
    head = encoded[start : start + 4]
    # The usual encodings are read as they stand: the id is the first field of the list.
    if head == _LIST8:
        at = start + 6 if encoded[start + 5] else start
    elif head == _LIST32:
        at = start + 12 if any(encoded[start + 8 : start + 12]) else start
    else:
        at = start
    code = encoded[at]
    if code == 0x40:
        return 0
    if code in (0xA0, 0xA1):
        value = encoded[at + 2 : at + 2 + encoded[at + 1]]
        return _hash(b"b" if code == 0xA0 else b"s", value)
    if code == 0x98:
        return _hash(b"u", encoded[at + 1 : at + 17])
    if code in _ULONGS:
        if not with_numbers:
            return 0
        value = encoded[at + 1 : at + 1 + _ULONGS[code]]
        return _hash(b"n", b"%d" % int.from_bytes(value, "big"))
    return _identity_of_any(message.properties.message_id, with_numbers)


def _identity_of_any(value: object, with_numbers: bool) -> int:
    if isinstance(value, str):
        return _hash(b"s", value.encode())
    if isinstance(value, bytes | memoryview):
        return _hash(b"b", bytes(value))
    if isinstance(value, int):
        return _hash(b"n", b"%d" % int(value)) if with_numbers else 0
    octets = getattr(value, "bytes", None)
    return _hash(b"u", octets) if octets is not None else 0


def _hash(kind: bytes, value: bytes) -> int:
    return (hash(kind + value) & _MASK) or 1
