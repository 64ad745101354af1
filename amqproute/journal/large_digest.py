# SPDX-License-Identifier: Apache-2.0
"""The digest of a very large message that was not seen coming: if need be it is read, in parts.

Of what comes in, the digest is made on the way (`amqproute.interfaces.IStore.draft`), and the store
keeps it with the body. This is for what a start finds in the store and not in the journal: of a
body that a release has stored which kept none, it is made now.
"""

from __future__ import annotations

import hashlib
from typing import Final

from amqproute.message import Message
from amqproute.wire.amqp10.body_scanner import BodyScanner

__all__ = ["find_digest"]

PART_BYTES: Final = 256 * 1024
"""Octets that are read at a time: to hash them keeps the reactor for a quarter of a millisecond."""


async def find_digest(message: Message) -> None:
    """Have the rest of a message know its digest.

    Args:
        message: one with a rest.

    Raises:
        StoreError: it cannot be read.
        DecodeError: what was read is no body.
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
