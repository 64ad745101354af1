# SPDX-License-Identifier: Apache-2.0
"""What a stream gets of the journal, and where it begins; no threads and no files here.

The id of an event is ``JOURNAL:SEQUENCE``, the name of the record. A client that connects again
sends the last one as ``Last-Event-ID`` (HTML standard §9.2), and the stream continues with the
record after it. Where records are missing, an event ``omitted`` has their number: those beyond
`MOST_BEHIND`, those removed for their age, those that cannot be read. The number is null if the
place is not in this journal: then the stream begins at the end. So it does with an id that is none
of ours. A refusal would be worse: to an EventSource every status but 200 is final, and the
page cannot make it forget the id.

A stream that gets few records is sent an id without an event from time to time; otherwise its
client would come back with an old one. A new stream is sent the id of the last record before it; in
a journal without records it is sent that of the first records, wanted or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from amqproute.http.event_stream import encode_event, encode_event_id
from amqproute.journal.reader import as_json
from amqproute.journal.record import PUT_BACK, JournalRecord, RecordKind

__all__ = ["MOST_BEHIND", "MOST_QUIET", "JournalStretch", "RecordFilter", "StreamPlace"]

MOST_BEHIND: Final = 10_000
"""Sequences before the end of the journal where a stream may begin."""
MOST_QUIET: Final = 1000
"""Sequences without an event after which a stream is sent an id."""
_EVENT_ID: Final = re.compile(r"([0-9a-f]{16}):(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selection of the records of a stream.

    Attributes:
        kind: the kind of the record; empty for all.
        node: the name of the node; empty for all.
        entry: the id of the message; None for all.
    """

    kind: str = ""
    node: str = ""
    entry: int | None = None

    def fits(self, record: JournalRecord) -> bool:
        """Return whether a record is wanted."""
        return (
            self.kind in ("", record.kind)
            and self.node in ("", record.node)
            and self.entry in (None, record.entry)
        )


@dataclass(frozen=True, slots=True)
class JournalStretch:
    """Consecutive records.

    Attributes:
        journal: the name of the journal.
        begin: the first sequence.
        end: the sequence after the last one.
        records: those in between that can be read, in order.
    """

    journal: str
    begin: int
    end: int
    records: Sequence[JournalRecord]
    _encoded: dict[int, bytes] = field(default_factory=dict)

    def encode(self, wanted: RecordFilter, begin: int) -> bytes:
        """Return the events of a stream; each record is encoded once.

        Args:
            wanted: selects the records.
            begin: the first sequence that the stream does not have.
        """
        events = []
        expected = begin
        for record in self.records:
            if record.seq < begin:
                continue
            omitted = record.seq - expected - _skipped_before(record)
            if omitted > 0:
                events.append(_encode_omitted(self.journal, record.seq, omitted))
            expected = record.seq + 1
            if wanted.fits(record):
                events.append(self._event(record))
        if expected < self.end:
            events.append(_encode_omitted(self.journal, self.end, self.end - expected))
        return b"".join(events)

    def _event(self, record: JournalRecord) -> bytes:
        octets = self._encoded.get(record.seq)
        if octets is None:
            text = json.dumps(as_json(record), ensure_ascii=False)
            octets = encode_event("record", text, f"{record.journal}:{record.seq}")
            self._encoded[record.seq] = octets
        return octets


@dataclass(slots=True)
class StreamPlace:
    """The place of a stream in the journal.

    Attributes:
        wanted: the records that it gets.
        last_event_id: what the client says it has seen; empty for nothing.
        next: the first sequence that it has not passed; 0 before `begin`.
        quiet: number of sequences passed since its last event.
    """

    wanted: RecordFilter
    last_event_id: str = ""
    next: int = 0
    quiet: int = 0

    def begin(self, journal: str, end: int) -> bytes:
        """Decide where the stream begins, and return what it begins with.

        Args:
            journal: the name of the journal; empty if it has no records yet.
            end: the sequence after its last record.
        """
        self.next = end
        if not journal:
            self.quiet = MOST_QUIET  # there is no id yet: the first one is due
        if not self.last_event_id:
            return encode_event_id(f"{journal}:{end - 1}") if journal else b""
        found = _EVENT_ID.fullmatch(self.last_event_id)
        seen = int(found[2]) if found is not None and found[1] == journal else end
        if seen >= end:
            return _encode_omitted(journal, end, None)
        self.next = max(seen + 1, end - MOST_BEHIND)
        omitted = self.next - seen - 1
        return _encode_omitted(journal, self.next, omitted) if omitted else b""

    def passed(self, stretch: JournalStretch, events: bytes) -> bytes:
        """Move on to the end of a stretch, and return what is sent for it.

        Args:
            stretch: where the stream is.
            events: what it gets of it.
        """
        self.quiet = 0 if events else self.quiet + stretch.end - self.next
        self.next = stretch.end
        if self.quiet < MOST_QUIET:
            return events
        self.quiet = 0
        return encode_event_id(f"{stretch.journal}:{stretch.end - 1}")


def _skipped_before(record: JournalRecord) -> int:
    """Return how many sequences before a record were never used."""
    is_put_back = record.kind == RecordKind.SEGMENT and record.code == PUT_BACK
    return (record.count or 0) if is_put_back else 0


def _encode_omitted(journal: str, next_seq: int, count: int | None) -> bytes:
    """Return the event in place of records.

    Args:
        journal: the name of the journal; empty if it has no records yet.
        next_seq: the sequence with which the stream continues.
        count: number of records; None if unknown.
    """
    event_id = f"{journal}:{next_seq - 1}" if journal else ""
    return encode_event("omitted", json.dumps({"count": count}), event_id)
