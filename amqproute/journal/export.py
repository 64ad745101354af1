# SPDX-License-Identifier: Apache-2.0
"""A part of a journal that a partner may have: ids and digests of what passed between the two.

An export is a folder of segments like a journal's own, with the same names of records
(`Record.event_id`), so that it is read by whoever reads journals. It says nothing of what happened
before and behind the hop between the two: no addresses, nodes, clients, connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from amqproute.journal.reader import open_segment, segments
from amqproute.journal.record import (
    GENESIS,
    LONGEST_RUN,
    InvalidLine,
    Kind,
    Line,
    Record,
    assemble,
    chained,
    encode,
    read_line,
)

__all__ = ["FIELDS", "Exported", "export"]

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
"""What is said of each record, besides its kind, its time and whose it is."""
RELAY_PREFIX: Final = "amqp$out/"
_OF_MESSAGES: Final = {
    Kind.RECEIVED,
    Kind.ROUTED,
    Kind.SPOOLED,
    Kind.RECOVERY,
    Kind.DUPLICATE,
    Kind.RELAYED,
    Kind.REJECTED,
    Kind.EXPIRED,
    Kind.DEAD_LETTERED,
    Kind.RETURNED,
    Kind.DELETED,
}
_OF_ALL: Final = {Kind.START, Kind.STOP, Kind.GAP}


@dataclass(slots=True)
class Exported:
    """How much it was."""

    segments: int = 0
    records: int = 0


def export(directory: Path, target: Path, peer: str, since_us: int, until_us: int) -> Exported:
    """Write the part of a journal that concerns a partner.

    Args:
        directory: of the journal.
        target: a folder, made if need be; segments of the same name are written anew.
        peer: the partner's domain.
        since_us: from this time on, microseconds since the epoch,
        until_us: and up to this one.
    """
    done = Exported()
    for path in segments(directory):
        file = open_segment(path, directory)
        if file is None:
            continue
        out: Path | None = None
        octets: list[bytes] = []
        last = GENESIS
        with file:
            for each in file:
                try:
                    line = read_line(each) if each.endswith(b"\n") else None
                except InvalidLine:
                    line = None
                if line is None:
                    continue
                if line.kind == Kind.SEGMENT:
                    out = target / path.parent.name / path.name
                    last, first = _written(line, [_only(line)], last, f"peer:{peer}")
                    octets.append(first)
                elif since_us <= line.time < until_us:
                    for run in _runs(line, peer):
                        last, written = _written(line, run, last)
                        octets.append(written)
                        done.records += len(run)
        if out is not None and len(octets) > 1:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(b"".join(octets))
            done.segments += 1
    return done


def _only(line: Line) -> Record:
    return next(iter(line.records()))


def _runs(line: Line, peer: str) -> Iterator[list[Record]]:
    """Yield those records of a line that go out, in runs of consecutive sequences."""
    kept = [(place, each) for place, each in enumerate(line.records()) if _concerns(each, peer)]
    for _, run in groupby(enumerate(kept), lambda pair: pair[1][0] - pair[0]):
        yield [record for _, (_, record) in run][:LONGEST_RUN]


def _concerns(record: Record, peer: str) -> bool:
    if record.kind in _OF_ALL:
        return True
    if record.kind not in _OF_MESSAGES:
        return False
    who = f"peer:{peer}"
    node = record.node or ""
    is_leaving = node.startswith(RELAY_PREFIX) and (
        node == RELAY_PREFIX + peer or (record.to or "").endswith(f"@{peer}")
    )
    return who in (record.sender, record.peer) or is_leaving


def _written(
    line: Line, records: Iterable[Record], previous: str, partner: str = ""
) -> tuple[str, bytes]:
    run = list(records)
    first = run[0]
    columns: dict[str, list[Any]] = {}
    for name in FIELDS:
        values = [getattr(each, name) for each in run]
        if any(value is not None for value in values):
            columns[name] = values
    shared: dict[str, Any] = {}
    if line.kind == Kind.SEGMENT:
        # Whom it is for: sequences have gaps here, and nothing is missing.
        shared |= {"previous": previous, "peer": partner}
    for name in ("sender", "peer"):
        who = getattr(first, name)
        if who is not None and who.startswith("peer:"):
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
