# SPDX-License-Identifier: Apache-2.0
"""The digest of a very large message found at start: computed from the store, part by part.

For incoming messages the digest is made on the way (`amqproute.interfaces.IStore.draft`) and stored
with the body. This module is for messages that a start finds in the store and not in the journal,
if an earlier release stored the body without a digest.
"""

from __future__ import annotations

import hashlib
from typing import Final

from amqproute.message import Message
from amqproute.wire.amqp10.body_scanner import BodyScanner

__all__ = ["find_digest"]

PART_BYTES: Final = 256 * 1024
"""Octets read at a time: hashing them occupies the reactor for a quarter of a millisecond."""


async def find_digest(message: Message) -> None:
    """Make sure that the rest of a message has a digest.

    Args:
        message: a message with a rest.

    Raises:
        StoreError: the rest cannot be read.
        DecodeError: the octets read are not a body.
    """
    rest = message.rest
    assert rest is not None
    before = message.encoded[message.bare_from :]
    if await rest.recall(before) is not None:
        return
    digest = hashlib.sha256(before)
    walk = BodyScanner()
    reader = rest.reader()
    try:
        while part := await reader.read(PART_BYTES):
            for each in walk.follow([part]):
                digest.update(each)
    finally:
        reader.close()
    walk.finish()
    rest.digested(before, digest.hexdigest(), len(before) + walk.bare_size)
