# SPDX-License-Identifier: Apache-2.0
"""What all destinations share."""

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
    """Time and chance.

    Attributes:
        clock: for timers.
        now_ms: the wall clock.
        random: numbers from 0 to 1.
        turns: shares the turns of the reactor out among costly steps; None for one of its own.
    """

    clock: IReactorTime
    now_ms: Callable[[], int]
    random: Callable[[], float]
    turns: TurnScheduler | None = None


@dataclass(frozen=True, slots=True)
class RelayContext:
    """The parts that every destination uses.

    Attributes:
        environment: time and chance.
        begin: makes batches.
        terms: what the configuration says.
        starts: the line of those who are about to connect.
        rejections: counts what peers reject, for the log.
        journal: where attempts and deferrals are noted.
    """

    environment: RelayEnvironment
    begin: Callable[[], Batch]
    terms: RelayTerms
    starts: ConnectScheduler
    rejections: RejectionCounts
    journal: IJournal
