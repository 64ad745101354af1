# SPDX-License-Identifier: Apache-2.0
"""Reports to senders about lost messages, after an operator has accepted the loss.

The journal has the report address of each message whose sender asked for failure reports. Messages
that had not reached the journal's disk, or were recorded by a release that did not store the
address, cannot be reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from twisted.logger import Logger

from amqproute.broker.broker import Broker
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.journal.expected_entries import ExpectedEntries, living, named_by
from amqproute.journal.journal_outbox import read_rows
from amqproute.journal.record import ENDS, JournalRecord
from amqproute.message import Message, encode_annotations
from amqproute.services.sender_reports import Reporter
from amqproute.store.start_evidence import JournalTestimony, Outbox, ranges
from amqproute.values import RETURN_TO
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import ULong

__all__ = [
    "LossReports",
    "log_losses",
    "look_for_losses",
    "report_losses",
    "settle_losses",
    "testimony",
]

AT_ONCE: Final = 200
"""Reports in one commit."""
MOST_NAMED: Final = 4000
"""Characters of a log line that names messages."""

log = Logger()


@dataclass(slots=True)
class LossReports:
    """The missing messages, according to the journal.

    Attributes:
        ids: of their entries, ascending; durable messages, and those whose durability is unknown.
        records: the first record of each known one.
        is_whole: the journal is complete; otherwise some of them may have ended.
    """

    ids: Sequence[int] = ()
    records: Sequence[JournalRecord] = ()
    is_whole: bool = True


def look_for_losses(journal: Path, holdings: Callable[[], tuple[set[int], Outbox]]) -> LossReports:
    """Find the missing messages. Takes seconds for a large journal: not for the reactor's thread.

    Args:
        journal: its directory.
        holdings: returns the ids of the entries in the store, and the rows of its outbox.

    Raises:
        OSError: the journal cannot be read.
    """
    if not journal.is_dir():
        return LossReports()
    known = living(journal)
    there, outbox = holdings()
    ended, damaged = _ended_in(outbox)
    known.is_whole &= not damaged
    return _missing(journal, known, known.ids - there - ended)


def testimony(journal: Path, there: set[int], outbox: Outbox) -> JournalTestimony:
    """Return the messages that a store lacks according to the journal.

    Args:
        journal: its directory.
        there: the ids of the entries in the store.
        outbox: the rows of its outbox.

    Raises:
        StoreError: the journal cannot be read.
    """
    try:
        found = look_for_losses(journal, lambda: (there, outbox))
    except OSError as error:
        raise StoreError(
            f"the journal cannot be asked what the store should have: {error.filename or journal}: "
            f"{error.strerror or error}"
        ) from error
    return JournalTestimony(str(journal), tuple(found.ids), found.is_whole)


def _missing(journal: Path, known: ExpectedEntries, gone: set[int]) -> LossReports:
    """Leave out messages that were not durable: they end with the process, without a record."""
    named = named_by(journal, known.stream, gone)
    records = {entry: each for entry, each in sorted(named.items()) if each.durable is not False}
    ids = sorted(entry for entry in gone if entry in records or entry not in named)
    return LossReports(ids, list(records.values()), known.is_whole)


def _ended_in(outbox: Outbox) -> tuple[set[int], int]:
    """Return the entries that have ended by an outbox, and the number of its damaged lines."""
    ended: set[int] = set()
    carried, damaged = read_rows(outbox)
    for _, run in carried:
        if run.kind in ENDS:
            alone = json.loads(run.shared).get("entry")
            several = json.loads(run.columns).get("entry", [])
            ended.update(each for each in (alone, *several) if isinstance(each, int))
    return ended, damaged


async def report_losses(losses: LossReports, reporter: Reporter, broker: Broker) -> int:
    """Send a report for each message whose sender asked for one.

    Returns:
        The number of reports.

    Raises:
        StoreError: the reports cannot be stored.
    """
    count = 0
    reportable = [record for record in losses.records if record.return_to is not None]
    for start in range(0, len(reportable), AT_ONCE):
        batch = broker.begin()
        for record in reportable[start : start + AT_ONCE]:
            count += reporter.lost(record.node or "", _entry_of(record), batch)
        await batch.commit()
    return count


def log_losses(losses: LossReports) -> None:
    """Log the missing messages, if there are any."""
    if losses.ids:
        log.warn(
            "entries missing from the store, although the journal has them: {ids}; "
            "amqproute journal find --entry NUMBER says what each of them was",
            ids=ranges(losses.ids, MOST_NAMED),
        )


async def settle_losses(
    losses: LossReports, finding: str, reporter: Reporter | None, broker: Broker
) -> int:
    """Report the missing messages, whose loss an operator has accepted.

    Args:
        losses: the missing messages.
        finding: the loss that was accepted.
        reporter: None if senders are not to be notified.
        broker: the broker for the commits.

    Returns:
        The number of missing messages.

    Raises:
        StoreError: the reports cannot be stored.
    """
    count = len(losses.ids)
    reports = 0 if reporter is None else await report_losses(losses, reporter, broker)
    log.warn(
        "{count} messages are missing according to the journal ({finding}), "
        "{reports} reports to senders",
        count=count,
        finding=finding,
        reports=reports,
    )
    return count


def _entry_of(record: JournalRecord) -> Entry:
    """Return an entry made from its record."""
    properties = spec.Properties(message_id=_message_id(record), to=record.to)
    encoded = encode_annotations({RETURN_TO: record.return_to}) + codec.encode(properties)
    expires_ms = 0 if record.expires is None else record.expires // 1000
    assert record.entry is not None
    return Entry(record.entry, Message(encoded), True, False, record.time // 1000, expires_ms)


def _message_id(record: JournalRecord) -> str | ULong | UUID | bytes | None:
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
