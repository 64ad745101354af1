# SPDX-License-Identifier: Apache-2.0
"""Objects and settings shared by all destinations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.commit_batch import Batch
from amqproute.interfaces import IJournal
from amqproute.relay.connect_scheduler import ConnectScheduler
from amqproute.relay.rejection_counts import RejectionCounts
from amqproute.relay.relay_terms import RelayTerms
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["RelayContext", "RelayEnvironment"]


@dataclass(frozen=True, slots=True)
class RelayEnvironment:
    """Time and randomness.

    Attributes:
        clock: the clock for timers.
        now_ms: the wall clock.
        random: returns numbers from 0 to 1.
        turns: schedules costly steps over the turns of the reactor; None for one of its own.
    """

    clock: IReactorTime
    now_ms: Callable[[], int]
    random: Callable[[], float]
    turns: TurnScheduler | None = None


@dataclass(frozen=True, slots=True)
class RelayContext:
    """The parts that every destination uses.

    Attributes:
        environment: time and randomness.
        begin: begins a batch.
        terms: the configuration.
        starts: schedules connection attempts.
        rejections: counts rejections by peers, for the log.
        journal: records attempts and deferrals.
    """

    environment: RelayEnvironment
    begin: Callable[[], Batch]
    terms: RelayTerms
    starts: ConnectScheduler
    rejections: RejectionCounts
    journal: IJournal
