# SPDX-License-Identifier: Apache-2.0
"""Which message makes a peer end the connection: it must not hold up the others for ever.

The end of a connection says nothing about whose fault it was. After `QUIET_ENDS` connections in a
row that ended with messages in doubt and brought no outcome, messages go one at a time. One that
was alone in flight when the connection ended is set aside for a while, so that the others show
whether they pass.

A message is convicted, and given up, only where others pass: the peer itself ended the connection
with an error `LONE_FAULTS` times while the message was alone in flight; each time the last that
was seen of any other message is that the peer took it; and the peer took another one after the
first of these ends. Where nothing passes the peer has failed, not the message. Where the
connection was lost, or was closed by us because the peer broke the protocol or hung, nothing is
proved: such a message is set aside each time, and is kept for its whole lifetime.

Pure: neither clock nor queue; the `outcome_processor` acts on it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

QUIET_ENDS: Final = 2
"""Ends in a row, without an outcome in between, from which on messages go one at a time."""
LONE_FAULTS: Final = 3
"""How often a message must have ended the connection alone before it is convicted."""
MOST_RECORDS: Final = 256
"""Messages about which something is remembered, per destination; the oldest are forgotten."""


class ConnectionEnd(enum.Enum):
    """What the end of a connection proves about a message that was alone in flight."""

    NONE = "none"
    """Nothing, and nothing is looked for: it was closed on purpose."""
    LOSS = "loss"
    """The message may have to do with it, or not: lost, hung, or a fault of the peer's own."""
    FAULT = "fault"
    """The peer ended it with an error about what it was sent."""


@dataclass(slots=True)
class SuspectRecord:
    """What is remembered of one message.

    Attributes:
        ends: how often the connection ended while it was alone in flight.
        faults: those among them that count against it.
        passed: how many others had been taken when it was alone for the first time.
    """

    ends: int = 0
    faults: int = 0
    passed: int = 0


@dataclass(frozen=True, slots=True)
class PoisonFinding:
    """What is to be done after the end of a connection.

    Attributes:
        entry_id: of the message that was alone in flight; None if there is no such message.
        ends: how often it was alone when a connection ended.
        others_pass: the last other message was taken, and one was since it was alone first.
        guilty: it is convicted: to be given up.
    """

    entry_id: int | None = None
    ends: int = 0
    others_pass: bool = False
    guilty: bool = False


class PoisonMessageDetector:
    """The suspects of one destination, by entry id."""

    __slots__ = ("_before", "_last", "_quiet_ends", "_records", "_searched", "_taken")

    def __init__(self) -> None:
        self._quiet_ends = 0
        self._searched = 0
        self._taken = 0
        self._records: dict[int, SuspectRecord] = {}
        # Whose end of the connection was seen last: an id, or None if a message was taken since.
        self._last: int | None = None
        # Whether the last that was seen of messages other than `_last` is that one was taken.
        self._before = False

    def __bool__(self) -> bool:
        """Messages go one at a time."""
        return self._searched > 0

    @property
    def is_searching(self) -> bool:
        """There was an end for which no cause is known: outcomes have to be reported."""
        return self._quiet_ends > 0 or bool(self._records)

    def ended(self, ids: Sequence[int], evidence: ConnectionEnd) -> PoisonFinding:
        """Judge the end of a connection while these messages were in doubt."""
        if evidence is ConnectionEnd.NONE or not ids:
            return PoisonFinding()
        self._quiet_ends += 1
        is_known = len(ids) == 1 and ids[0] in self._records
        if self._quiet_ends < QUIET_ENDS and not self._searched and not is_known:
            return PoisonFinding()
        if len(ids) > 1:
            self._searched = len(ids)
            return PoisonFinding()
        (entry_id,) = ids
        self._searched = max(self._searched - 1, 0)
        record = self._record(entry_id)
        if self._last != entry_id:
            self._before = self._last is None and self._taken > 0
            self._last = entry_id
        record.ends += 1
        record.faults += evidence is ConnectionEnd.FAULT and self._before
        if record.faults >= LONE_FAULTS and self._taken > record.passed:
            self.forget(ids)
            return PoisonFinding(entry_id, record.ends, others_pass=True, guilty=True)
        return PoisonFinding(entry_id, record.ends, self._before and self._taken > record.passed)

    def _record(self, entry_id: int) -> SuspectRecord:
        record = self._records.get(entry_id)
        if record is None:
            while len(self._records) >= MOST_RECORDS:
                del self._records[next(iter(self._records))]
            record = self._records[entry_id] = SuspectRecord(passed=self._taken)
        return record

    def answered(self, ids: Sequence[int], *, taken: bool) -> None:
        """Note that these have an outcome: they are no suspects any more.

        Args:
            ids: of the messages.
            taken: the peer has accepted them, which shows that others pass.
        """
        self._searched = max(self._searched - len(ids), 0)
        if not self._searched:
            self._quiet_ends = 0
        self.forget(ids)
        if not self.is_searching:
            self._taken = 0
            self._last = None
        elif taken:
            self._taken += len(ids)
            self._last = None

    def forget(self, ids: Iterable[int]) -> None:
        """Forget these: they are gone."""
        for entry_id in ids:
            self._records.pop(entry_id, None)

    def ends_of(self, entry_id: int) -> int:
        """Return how often a message was alone in flight when a connection ended."""
        record = self._records.get(entry_id)
        return 0 if record is None else record.ends
