# SPDX-License-Identifier: Apache-2.0
"""Messages that a damaged store has lost: an operator has accepted it, and wants senders told.

The journal has said of each message where a failure is to be reported to, if its sender wanted
that. What it had not on its disk yet, and what came before a release that noted the address, nobody
can be told of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from amqproute.broker.broker import Broker
from amqproute.entry import Entry
from amqproute.journal.living import living, named_by
from amqproute.journal.record import Record
from amqproute.message import Message, encode_annotations
from amqproute.services.report import Reporter
from amqproute.values import RETURN_TO
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import ULong

__all__ = ["Losses", "look_for_losses", "report_losses"]

AT_ONCE: Final = 200
"""Reports in one commit."""


@dataclass(slots=True)
class Losses:
    """What the journal says of the messages that are missing.

    Attributes:
        count: how many there are.
        records: by which they have begun, of those that are known and were durable.
    """

    count: int
    records: Sequence[Record]


def look_for_losses(journal: Path, there: Callable[[], set[int]]) -> Losses:
    """Read which messages are missing. Takes seconds for a large journal: not for the reactor.

    Args:
        journal: its directory.
        there: returns the ids of the entries in the store.

    Raises:
        OSError: as it comes.
    """
    if not journal.is_dir():
        return Losses(0, ())
    known = living(journal)
    gone = known.ids - there()
    records = [
        record
        for _, record in sorted(named_by(journal, known.stream, gone).items())
        if record.durable is not False
    ]
    return Losses(len(gone), records)


async def report_losses(losses: Losses, reporter: Reporter, broker: Broker) -> int:
    """Put a report on its way for each message whose sender wanted one.

    Returns:
        How many that were.

    Raises:
        StoreError: they cannot be stored.
    """
    count = 0
    told = [record for record in losses.records if record.return_to is not None]
    for start in range(0, len(told), AT_ONCE):
        batch = broker.begin()
        for record in told[start : start + AT_ONCE]:
            count += reporter.lost(record.node or "", _entry_of(record), batch)
        await batch.commit()
    return count


def _entry_of(record: Record) -> Entry:
    """Return an entry with what a record says of it."""
    properties = spec.Properties(message_id=_message_id(record), to=record.to)
    encoded = encode_annotations({RETURN_TO: record.return_to}) + codec.encode(properties)
    expires_ms = 0 if record.expires is None else record.expires // 1000
    assert record.entry is not None
    return Entry(record.entry, Message(encoded), True, False, record.time // 1000, expires_ms)


def _message_id(record: Record) -> str | ULong | UUID | bytes | None:
    name = record.message_id
    if name is None or "...sha256:" in name:
        return name
    match record.message_id_type:
        case "ulong":
            return ULong(int(name))
        case "uuid":
            return UUID(name)
        case "binary":
            return bytes.fromhex(name)
        case _:
            return name
