# SPDX-License-Identifier: Apache-2.0
"""Durations of the stages of messages between arrival and outcome, as histograms.

Observed once for each run of entries that a consumer has accepted, from times that the entries
carry for the journal; without a journal there are none. A consumer is a client here (`local`) or
another organization's broker (`relay`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from amqproute.bucket_counts import SECONDS, BucketCounts
from amqproute.entry import Entry

__all__ = ["DeliveryStages", "StageTimes"]

_MICROSECOND: Final = 1e-6


class StageTimes:
    """The stages of one way out of the broker.

    Attributes:
        waiting: from arrival to the last hand-over to a consumer, seconds.
        answering: from there to the outcome.
    """

    __slots__ = ("answering", "waiting")

    def __init__(self) -> None:
        self.waiting = BucketCounts(SECONDS, _MICROSECOND)
        self.answering = BucketCounts(SECONDS, _MICROSECOND)

    def observe(self, entries: Sequence[Entry], now_us: int) -> None:
        """Count entries, possibly none, accepted at this time, microseconds since the epoch.

        Entries are accepted in the order in which they came, so a run is judged by its ends
        (`BucketCounts.add_run`), and one by one only where these are far apart.
        """
        if not entries or not entries[0].sent_us:
            return
        first = entries[0]
        # Clocks are set back; a negative duration would make the sum shrink.
        waited = max(0, first.sent_us - 1000 * first.arrived_ms)
        answered = max(0, now_us - first.sent_us)
        count = len(entries)
        if count == 1:
            self.waiting.add(waited)
            self.answering.add(answered)
            return
        last = entries[-1]
        last_waited = max(0, last.sent_us - 1000 * last.arrived_ms)
        last_answered = max(0, now_us - last.sent_us)
        if not self.waiting.add_run(waited, last_waited, count):
            for each in entries:
                self.waiting.add(max(0, each.sent_us - 1000 * each.arrived_ms))
        if not self.answering.add_run(answered, last_answered, count):
            for each in entries:
                self.answering.add(max(0, now_us - each.sent_us))


class DeliveryStages:
    """The stages of all nodes of a broker.

    Attributes:
        local: stages of messages for clients of this broker.
        relay: stages of messages for other brokers.
    """

    __slots__ = ("local", "relay")

    def __init__(self) -> None:
        self.local = StageTimes()
        self.relay = StageTimes()
