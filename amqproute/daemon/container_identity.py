# SPDX-License-Identifier: Apache-2.0
"""Identity of this broker: its container-id and the name of its store's number sequence."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twisted.logger import Logger

from amqproute.store.model import StoreRecovery
from amqproute.store.sqlite import SqliteStore

log = Logger()

NOTES: Final = "container"
"""The kind of the store's notes about it."""


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """The identity that a store keeps of its broker.

    Attributes:
        container_id: the broker's name in the protocol.
        stream: the name under which the store numbers its entries.
        former_stream: the one before a restore from a backup; else empty.
    """

    container_id: str
    stream: str
    former_stream: str = ""


async def identify(
    store: SqliteStore, recovery: StoreRecovery, container_id: str | None
) -> ContainerIdentity:
    """Read our identity from the store; create and store what is missing.

    A restored store gets a new stream name: its ids have been used since, and peers would take new
    messages for duplicates.

    Args:
        store: it is open.
        recovery: what it held.
        container_id: the id from the configuration; None for the one generated at the first start.

    Raises:
        StoreError: a new identity could not be stored.
    """
    notes = recovery.notes.get(NOTES, {})
    name = container_id or _text(notes, "id")
    stream = _text(notes, "stream")
    former = ""
    if recovery.is_restored and stream:
        former, stream = stream, ""
        log.warn(
            "{path} is not the store that was here last: it was restored from a backup, or its "
            ".mark was removed, copied, or given to another owner. It assigns new ids to messages, "
            "so that no peer takes one of them for another; messages that had left since the "
            "backup arrive twice",
            path=store.path,
        )
    if name and stream:
        return ContainerIdentity(name, stream)
    transaction = store.begin()
    if not name:
        name = f"amqproute-{uuid.uuid4()}"
        transaction.note(NOTES, "id", name.encode())
    if not stream:
        stream = str(uuid.uuid4())
        transaction.note(NOTES, "stream", stream.encode())
    await transaction.commit()
    return ContainerIdentity(name, stream, former)


def _text(notes: Mapping[str, bytes], key: str) -> str:
    """Return a note; empty if there is none, or none that can be read."""
    try:
        return notes.get(key, b"").decode()
    except UnicodeDecodeError as error:
        log.error(
            "the note of our own {what} cannot be read, a new one is made: {error}; messages that "
            "are under way may arrive twice",
            what="name" if key == "id" else "stream",
            error=str(error),
        )
        return ""
