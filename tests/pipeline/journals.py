# SPDX-License-Identifier: Apache-2.0
"""Journals for tests, written record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amqproute.journal import record
from amqproute.journal.record import GENESIS, RecordKind
from amqproute.journal.segments import day_of

SECOND = 1_000_000
MIDNIGHT = 1_795_305_600 * SECOND
"""2026-11-22T00:00:00Z."""


HEAD = len('{"h":"","') - 1 + 64
"""Octets of a line before what its hash is of."""


def linked(lines: Sequence[bytes]) -> list[bytes]:
    """Give lines the hashes that they have in a file of these lines; what is none stays."""
    found = []
    last = GENESIS
    for line in lines:
        tail = line[HEAD:]
        if not line.startswith(b'{"h":"') or not tail:
            found.append(line)
            continue
        try:
            body = record.read_line(line).body
            last = body["all"]["previous"] if body["kind"] == RecordKind.SEGMENT else last
        except record.InvalidLine:
            pass
        last, whole = record.chained(last, tail.rstrip(b"\n"))
        found.append(whole if tail.endswith(b"\n") else whole[:-1])
    return found


class Journal:
    """The journal of one broker; `at` is the second of the day of the next record."""

    def __init__(self, domain: str, stream: str = "") -> None:
        self.domain = domain
        self.broker = f"mx1.{domain}"
        self.name = (domain.encode().hex() + "0" * 16)[:16]
        self.stream = stream or f"store-{domain}"
        self.seq = 1
        self.at = 0.0
        self.lines: list[bytes] = []
        self._hash = GENESIS

    def write(
        self, kind: str, shared: Mapping[str, Any], count: int = 1, /, **columns: Sequence[Any]
    ) -> None:
        """Append a run."""
        tail = record.tail(
            kind, self.name, self.broker, self.domain, self.stream, self.seq, count,
            MIDNIGHT + round(self.at * SECOND), shared, columns,
        )  # fmt: skip
        self._hash, line = record.chained(self._hash, tail)
        self.lines.append(line)
        self.seq += count

    def segment(
        self, directory: Path, lines: Sequence[bytes] | None = None, *, as_is: bool = False
    ) -> Path:
        """Close a segment with some lines, or with all since the one before.

        Args:
            directory: of the journals.
            lines: those.
            as_is: they keep their hashes.
        """
        chosen = self.lines if lines is None else list(lines)
        chosen = chosen if as_is else linked(chosen)
        first = record.read_line(chosen[0])
        seq = first.seq
        folder = directory / self.domain / day_of(first.time)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.broker}-{self.name}-{seq:020}.jsonl"
        path.write_bytes(b"".join(chosen))
        if lines is None:
            self.lines = []
        return path

    def receive(self, entry: int, node: str, **fields: Any) -> None:
        """Write that a message came."""
        said = {"node": node, "entry": entry, "size": 100, "digest": "d" * 64, "durable": True}
        self.write(RecordKind.RECEIVED, {**said, **fields})

    def end(self, kind: str, entry: int, node: str, **fields: Any) -> None:
        """Write that it left."""
        self.write(kind, {"entry": entry, "node": node, **fields})


def handed_on(
    sender: Journal,
    receiver: Journal,
    entry: int,
    there: int,
    trail: str | None = None,
    **fields: Any,
) -> None:
    """Write a hop from both ends, half a second each."""
    sender.end(
        RecordKind.RELAYED, entry, f"amqp$out/{receiver.domain}", peer=f"peer:{receiver.domain}",
        attempt=1, queue_us=400_000, wire_us=100_000,
    )  # fmt: skip
    receiver.at = max(receiver.at, sender.at)
    receiver.receive(
        there, "orders", sender=f"peer:{sender.domain}", from_stream=sender.stream,
        from_entry=entry, trail=trail or sender.broker, **fields,
    )  # fmt: skip
