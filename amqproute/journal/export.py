# SPDX-License-Identifier: Apache-2.0
"""The part of a journal for a partner: ids and digests of messages exchanged between the two.

An export is a folder of segments like a journal's own, with the same names of records
(`JournalRecord.event_id`), so any reader of journals can read it. It reveals nothing of the path
before and behind the hop between the two: no addresses, nodes, clients, connections. It has no
sizes either: where digests are equal the octets are, so each side knows the sizes of common
messages from its own journal; sizes of messages that the partner never got would help to guess
their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Final

from amqproute.journal.reader import open_segment, partner_of, segments
from amqproute.journal.record import (
    GENESIS,
    LONGEST_RUN,
    InvalidLine,
    JournalLine,
    JournalRecord,
    RecordKind,
    assemble,
    chained,
    encode,
    read_line,
)
from amqproute.journal.segments import OPEN, closed_name, day_of, read_head

__all__ = ["FIELDS", "ExportSummary", "WrongExportTarget", "export"]

FIELDS: Final = (
    "entry",
    "message_id",
    "message_id_type",
    "digest",
    "from_stream",
    "from_entry",
    "origin",
    "durable",
    "count",
)
"""The fields of an exported record, besides its kind, time and owner."""
PEER: Final = "peer:"
RELAY_PREFIX: Final = "amqp$out/"
_OF_MESSAGES: Final = {
    RecordKind.RECEIVED,
    RecordKind.ROUTED,
    RecordKind.SPOOLED,
    RecordKind.RECOVERY,
    RecordKind.DUPLICATE,
    RecordKind.RELAYED,
    RecordKind.REJECTED,
    RecordKind.EXPIRED,
    RecordKind.DEAD_LETTERED,
    RecordKind.RETURNED,
    RecordKind.DELETED,
}
_OF_ALL: Final = {RecordKind.START, RecordKind.STOP, RecordKind.GAP}


@dataclass(slots=True)
class ExportSummary:
    """The result of an export.

    Attributes:
        segments: number of files written.
        records: number of records in them.
        messages: how many of these records are about a message.
        is_known: whether the journal has any record of the partner.
        partners: partners in the journal, as far as it was searched.
        owner: the owner of the journal.
    """

    segments: int = 0
    records: int = 0
    messages: int = 0
    is_known: bool = False
    partners: set[str] = field(default_factory=set)
    owner: str = ""


class WrongExportTarget(ValueError):
    """A folder that must not receive an export; the text gives the reason."""


def export(directory: Path, target: Path, peer: str, since_us: int, until_us: int) -> ExportSummary:
    """Write the part of a journal that concerns a partner; nothing if the partner is unknown.

    Args:
        directory: the journal.
        target: a folder, created if necessary; segments of the same name are replaced.
        peer: the partner's domain.
        since_us: start of the period, microseconds since the epoch.
        until_us: end of the period.

    Raises:
        WrongExportTarget: the folder has a journal, or an export for another partner.
        OSError: reading or writing failed.
    """
    _check_target(target, peer)
    done = ExportSummary()
    held: list[tuple[Path, bytes]] = []
    for path in segments(directory):
        file = open_segment(path, directory)
        if file is None:
            continue
        with file:
            name, octets = _part(file, path, peer, (since_us, until_us), done)
        if octets:
            held.append((target / name, octets))
        if done.is_known:
            _write(held, done)
    return done


def _check_target(target: Path, peer: str) -> None:
    """Refuse a folder in which files would be lost, or would reach the wrong partner."""
    if read_head(target) is not None:
        raise WrongExportTarget(f"{target} is a journal")
    for path in segments(target):
        whose = partner_of(path)
        if whose is None:
            raise WrongExportTarget(f"{target} has segments of a journal")
        if whose != peer:
            raise WrongExportTarget(f"{target} has an export for {whose}")


def _write(held: list[tuple[Path, bytes]], done: ExportSummary) -> None:
    for path, octets in held:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)
        done.segments += 1
    held.clear()


def _part(
    file: BinaryIO, path: Path, peer: str, span: tuple[int, int], done: ExportSummary
) -> tuple[Path, bytes]:
    """Return the target and the octets of a segment's exported part, if any."""
    name = Path(path.parent.name, path.name)
    written: list[bytes] = []
    last = GENESIS
    for each in file:
        try:
            line = read_line(each) if each.endswith(b"\n") else None
        except InvalidLine:
            line = None
        if line is None:
            continue
        if not done.is_known:
            _look_for(peer, line, done)
        if line.kind == RecordKind.SEGMENT:
            if path.parent.name == OPEN:  # readers of journals skip that folder
                name = Path(day_of(line.time), closed_name(path, line.body["broker"]))
            last, octets = _written(line, [_only(line)], last, PEER + peer)
            written.append(octets)
        elif span[0] <= line.time < span[1]:
            for run in _runs(line, peer):
                last, octets = _written(line, run, last)
                written.append(octets)
                done.records += len(run)
                done.messages += len(run) if line.kind in _OF_MESSAGES else 0
    return name, b"".join(written) if len(written) > 1 else b""


def _look_for(peer: str, line: JournalLine, done: ExportSummary) -> None:
    """Record whether a line is about the partner, or which other partner it is about."""
    done.owner = str(line.body["domain"])
    for record in line.records():
        for who in (record.sender, record.peer):
            if who is not None and who.startswith(PEER):
                done.partners.add(who.removeprefix(PEER))
        if (record.node or "").startswith(RELAY_PREFIX):
            done.partners.add(str(record.node).removeprefix(RELAY_PREFIX))
        is_theirs = line.kind not in _OF_ALL and _concerns(record, peer)
        done.is_known = done.is_known or is_theirs or peer in done.partners


def _only(line: JournalLine) -> JournalRecord:
    return next(iter(line.records()))


def _runs(line: JournalLine, peer: str) -> Iterator[list[JournalRecord]]:
    """Yield the exported records of a line, in runs of consecutive sequences."""
    kept = [(place, each) for place, each in enumerate(line.records()) if _concerns(each, peer)]
    for _, run in groupby(enumerate(kept), lambda pair: pair[1][0] - pair[0]):
        yield [record for _, (_, record) in run][:LONGEST_RUN]


def _concerns(record: JournalRecord, peer: str) -> bool:
    if record.kind in _OF_ALL:
        return True
    if record.kind not in _OF_MESSAGES:
        return False
    who = PEER + peer
    node = record.node or ""
    is_leaving = node.startswith(RELAY_PREFIX) and (
        node == RELAY_PREFIX + peer or (record.to or "").endswith(f"@{peer}")
    )
    return who in (record.sender, record.peer) or is_leaving


def _written(
    line: JournalLine, records: Iterable[JournalRecord], previous: str, partner: str = ""
) -> tuple[str, bytes]:
    run = list(records)
    first = run[0]
    columns: dict[str, list[Any]] = {}
    for name in FIELDS:
        values = [getattr(each, name) for each in run]
        if any(value is not None for value in values):
            columns[name] = values
    shared: dict[str, Any] = {}
    if line.kind == RecordKind.SEGMENT:
        # The partner: sequences have gaps in an export, and nothing is missing.
        shared |= {"previous": previous, "peer": partner}
    for name in ("sender", "peer"):
        who = getattr(first, name)
        if who is not None and who.startswith(PEER):
            shared[name] = who
    if (first.node or "").startswith(RELAY_PREFIX):
        shared["node"] = first.node
    tail = assemble(
        line.kind,
        first.journal,
        first.broker,
        first.domain,
        first.stream,
        first.seq,
        len(run),
        line.time,
        encode(shared),
        encode(columns),
    )
    return chained(previous, tail)
