# SPDX-License-Identifier: Apache-2.0
"""Detects the message that makes a peer end the connection, so that it cannot block the others.

The end of a connection does not show its cause. After `QUIET_ENDS` consecutive connections that
ended with messages in doubt and brought no outcome, messages go one at a time. A message that was
alone in flight when the connection ended is set aside for a while, to see whether the others pass.

A message is convicted, and given up, only if other messages pass: the peer itself ended the
connection with an error `LONE_FAULTS` times while the message was alone in flight; each time the
last known outcome of any other message was acceptance; and the peer accepted another one after the
first of these ends. If nothing passes, the peer has failed, not the message. If the connection was
lost, or was closed by us because the peer broke the protocol or hung, nothing is proved: such a
message is set aside each time, and is kept for its whole lifetime.

Pure: neither clock nor queue; `outcome_processor` acts on the findings.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

QUIET_ENDS: Final = 2
"""Consecutive ends without an outcome in between, after which messages go one at a time."""
LONE_FAULTS: Final = 3
"""Connections that a message must end alone before it is convicted."""
MOST_RECORDS: Final = 256
"""Messages with a record, per destination; the oldest records are dropped."""


class ConnectionEnd(enum.Enum):
    """Conclusion from the end of a connection about a message that was alone in flight."""

    NONE = "none"
    """Nothing, and there is no search: it was closed on purpose."""
    LOSS = "loss"
    """The message may or may not be the cause: lost, hung, or a fault of the peer."""
    FAULT = "fault"
    """The peer ended it with an error about something it received."""


@dataclass(slots=True)
class SuspectRecord:
    """The record of one message.

    Attributes:
        ends: how often the connection ended while it was alone in flight.
        faults: how many of those ends count against it.
        passed: number of other messages accepted when it was alone for the first time.
    """

    ends: int = 0
    faults: int = 0
    passed: int = 0


@dataclass(frozen=True, slots=True)
class PoisonFinding:
    """The conclusion from the end of a connection.

    Attributes:
        entry_id: id of the message that was alone in flight, or None.
        ends: how often it was alone when a connection ended.
        others_pass: whether the last other message was accepted, and one was accepted since it was
            first alone.
        guilty: whether it is convicted and must be given up.
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
        # The message whose end of the connection was seen last: an id, or None if one was accepted
        # since.
        self._last: int | None = None
        # Whether the last known outcome of messages other than `_last` is acceptance.
        self._before = False

    def __bool__(self) -> bool:
        """Whether messages go one at a time."""
        return self._searched > 0

    @property
    def is_searching(self) -> bool:
        """Whether the cause of an end is unknown, so that outcomes must be reported."""
        return self._quiet_ends > 0 or bool(self._records)

    def ended(self, ids: Sequence[int], evidence: ConnectionEnd) -> PoisonFinding:
        """Judge the end of a connection with these messages in doubt."""
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
        """Clear messages that have an outcome of suspicion.

        Args:
            ids: ids of the messages.
            taken: whether the peer has accepted them, which shows that others pass.
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
        """Forget messages that no longer exist."""
        for entry_id in ids:
            self._records.pop(entry_id, None)

    def ends_of(self, entry_id: int) -> int:
        """Return how often a message was alone in flight when a connection ended."""
        record = self._records.get(entry_id)
        return 0 if record is None else record.ends
