# SPDX-License-Identifier: Apache-2.0
"""Durations of the stages of messages between arrival and outcome, as histograms.

Observed once for each run of entries that a consumer has accepted, from times that the entries
carry for the journal; without a journal there are none. A consumer is a client here (`local`) or
another organization's broker (`relay`).
"""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.bucket_counts import SECONDS, BucketCounts
from amqproute.entry import Entry

__all__ = ["DeliveryStages", "StageTimes"]


class StageTimes:
    """The stages of one way out of the broker.

    Attributes:
        waiting: from arrival to the last hand-over to a consumer, seconds.
        answering: from there to the outcome.
    """

    __slots__ = ("answering", "waiting")

    def __init__(self) -> None:
        self.waiting = BucketCounts(SECONDS)
        self.answering = BucketCounts(SECONDS)

    def observe(self, entries: Sequence[Entry], now_us: int) -> None:
        """Count entries that were accepted at this time, microseconds since the epoch."""
        if len(entries) == 1:
            entry = entries[0]
            sent_us = entry.sent_us
            if sent_us:
                # Clocks are set back; a negative duration would make the sum shrink.
                self.waiting.add(max(0, sent_us - 1000 * entry.arrived_ms) / 1e6)
                self.answering.add(max(0, now_us - sent_us) / 1e6)
            return
        sent = [entry for entry in entries if entry.sent_us]
        if sent:
            self.waiting.add_all(
                [max(0, each.sent_us - 1000 * each.arrived_ms) / 1e6 for each in sent]
            )
            self.answering.add_all([max(0, now_us - each.sent_us) / 1e6 for each in sent])


class DeliveryStages:
    """The stages of all nodes of a broker.

    Attributes:
        local: of messages for clients here.
        relay: of messages for other brokers.
    """

    __slots__ = ("local", "relay")

    def __init__(self) -> None:
        self.local = StageTimes()
        self.relay = StageTimes()
