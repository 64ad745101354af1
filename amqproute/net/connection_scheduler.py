# SPDX-License-Identifier: Apache-2.0
"""Shares processor time among connections, so that none of them delays the others.

All connections of a reactor work under one `ConnectionScheduler`. A read is processed at once, if
that costs no more than a *slice*. A connection with more work waits, is not read meanwhile, and
continues in a later turn of the reactor, so that in between others are read, timers run and commits
are answered. In one turn all connections together spend about one slice: many busy connections do
not make a turn longer than one.

The order follows start-time fair queueing (Goyal, Vin and Cheng, 1996), on two levels: among
parties, and among the connections of a party. A party is a user, a peer, or an address whose
connections have not logged in, or only as anonymous. Each has a virtual time, which grows by the
work done for it, and the earliest is next. A connection that has only just read is one slice ahead
of those waiting since an earlier read. A party that needs less than its share is therefore served
before all that need more, and those share the rest evenly, whatever the number of their frames and
connections.

Engines count work in units, from the input alone. With a clock of processor time, the scheduler
corrects the count: slow work is charged accordingly, and the next slices of that connection get
fewer units. Without one, everything here is a function of the input.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol
from weakref import WeakValueDictionary

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.turn_scheduler import TurnScheduler
from amqproute.wire.input_cost import SLICE

__all__ = ["CROWD", "ConnectionScheduler", "PartyShare", "ScheduledWork", "SchedulerShare"]

CROWD: Final = 16
"""Number of waiting connections that may each have a large read (`net.direct_write.FULL_BYTES`)."""
_UNITS_PER_SECOND: Final = 1_000_000
_SMALLEST_SLICE: Final = 250
"""Minimum units of a slice, for connections whose units take long."""
_DEAREST: Final = 32.0
_LONGEST: Final = 5.0
"""Microseconds per unit of a slice above which the next slices get fewer units."""


class PartyShare:
    """Processor time used by the connections of one party together."""

    __slots__ = ("__weakref__", "_is_queued", "_now", "_start", "_waiting")

    def __init__(self) -> None:
        self._start = 0.0  # virtual time among parties
        self._now = 0.0  # virtual time within the party
        self._is_queued = False
        self._waiting: list[tuple[float, int, ScheduledWork]] = []

    def __repr__(self) -> str:
        return f"<PartyShare from {self._start:.0f}, {len(self._waiting)} wait>"


class SchedulerShare:
    """Processor time used by one connection.

    Attributes:
        party: the party of the connection; one of its own until assigned.
        is_waiting: whether it has input left and waits for its turn.
        slices: number of slices so far.
    """

    __slots__ = ("_dearness", "_is_queued", "_start", "is_waiting", "party", "slices")

    def __init__(self) -> None:
        self.party = PartyShare()
        self.is_waiting = False
        self.slices = 0
        self._start = 0.0  # virtual time within the party
        self._is_queued = False  # it is in a heap, even if it no longer waits
        self._dearness = 1.0  # cost of one of its units

    def __repr__(self) -> str:
        return f"<SchedulerShare from {self._start:.0f}{' waits' * self.is_waiting}>"


class ScheduledWork(Protocol):
    """A connection, as the scheduler sees it.

    Attributes:
        share: the processor time it has used.
    """

    share: SchedulerShare

    def work(self, budget: int) -> int:
        """Process input worth about `budget` units; return the actual number."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether there is input left that may be processed."""
        ...


class ConnectionScheduler:
    """The processor's time of one reactor.

    Args:
        clock: the reactor, for its turns.
        processor_time: returns the processor time of this thread in seconds; None to count only
            units.
        slice_units: the budget of one connection at a time, and of all together in one turn.
        crowd: number of waiting connections from which the budget is halved, for shorter turns.
        turns: shares turns between waiting connections and other deferrable work; None to serve
            them in each turn.
    """

    def __init__(
        self,
        clock: IReactorTime,
        processor_time: Callable[[], float] | None = None,
        slice_units: int = SLICE,
        crowd: int = CROWD,
        turns: TurnScheduler | None = None,
    ) -> None:
        self._clock = clock
        self._processor_time = processor_time
        self._slice = self._full_slice = slice_units
        self._crowd = crowd
        self._turns = turns
        self._is_put_off = False  # whether a step for waiting connections is scheduled
        self._spent = 0.0  # in this turn
        self._now = 0.0  # virtual time: the start of the last slice
        self._parties: WeakValueDictionary[str, PartyShare] = WeakValueDictionary()
        self._waiting: list[tuple[float, int, PartyShare]] = []
        self._order = count()
        self._turn_call: IDelayedCall | None = None
        self._served: ScheduledWork | None = None
        self._queued = 0

    def __repr__(self) -> str:
        return f"<ConnectionScheduler {self.waiting} wait, {self._spent:.0f} spent>"

    def party(self, name: str) -> PartyShare:
        """Return the share of a party, the same object while it has connections."""
        found = self._parties.get(name)
        if found is None:
            found = self._parties[name] = PartyShare()
        return found

    def move(self, worker: ScheduledWork, party: PartyShare) -> None:
        """Count a connection towards another party from now on."""
        share = worker.share
        share.party = party
        share._start = party._now  # its earlier work was charged to the other party

    @property
    def waiting(self) -> int:
        """Number of connections that wait for their turn."""
        return self._queued

    @property
    def is_crowded(self) -> bool:
        """Whether many connections wait, so that each should read little at a time."""
        return self._queued >= self._crowd

    def may_work(self, worker: ScheduledWork) -> bool:
        """Return whether a connection may process its read at once; if not, call `wait`."""
        share = worker.share
        party = share.party
        half = self._slice // 2
        if party._start - half <= self._now and share._start - half <= party._now:
            # It has used less than others: each turn reserves a second slice for such connections.
            # One that uses most of a slice with each read is not among them, however soon it reads
            # again.
            return self._spent < 2 * self._slice
        if self._spent >= self._slice:
            return False
        if party._waiting and share._start - self._slice > party._waiting[0][0]:
            return False
        waiting = self._waiting
        return not waiting or party._start - self._slice <= waiting[0][0]

    def serve(self, worker: ScheduledWork) -> None:
        """Let a connection work for one slice, charge it, and queue it if it has more."""
        share = worker.share
        party = share.party
        budget = max(_SMALLEST_SLICE, int(self._slice / share._dearness))
        start_of_party = self._now = max(party._start, self._now)
        start = party._now = max(share._start, party._now)
        share.slices += 1
        if self._turns is not None:
            self._turns.note_traffic()
        self._served = worker
        processor_time = self._processor_time
        began = 0.0 if processor_time is None else processor_time()
        try:
            cost: float = worker.work(budget)
        finally:
            self._served = None
        if processor_time is not None:
            took = (processor_time() - began) * _UNITS_PER_SECOND
            # Half-way to the cost that would have given this slice its maximum duration.
            wanted = share._dearness * took / (_LONGEST * self._slice)
            share._dearness = min(_DEAREST, max(1.0, (share._dearness + wanted) / 2))
            cost = max(cost, took)
        party._start = start_of_party + cost
        self._spent += cost
        if share.party is party:
            share._start = start + cost
        else:  # it has meanwhile logged in
            party = share.party
            party._start = max(party._start, self._now)
        if self._spent * 4 >= self._slice:  # else the end of the turn does not matter
            self._schedule()
        if worker.has_work:
            self._queue(worker, share._start, party._start)

    def wait(self, worker: ScheduledWork) -> None:
        """Schedule a connection for a later turn, unless it is waiting or being served."""
        if worker is not self._served:
            share = worker.share
            party = share.party
            party._start = max(party._start, self._now)
            share._start = max(share._start, party._now)
            self._queue(worker, share._start - self._slice, party._start - self._slice)

    def _queue(self, worker: ScheduledWork, place: float, place_of_party: float) -> None:
        share = worker.share
        if share.is_waiting:
            return
        share.is_waiting = True
        self._queued += 1
        if self._queued == self._crowd:
            self._slice = self._full_slice // 2
        party = share.party
        if not share._is_queued:
            share._is_queued = True
            heapq.heappush(party._waiting, (place, next(self._order), worker))
        self._line_up(party, place_of_party)
        self._schedule()

    def _unqueue(self, share: SchedulerShare) -> None:
        share.is_waiting = False
        self._queued -= 1
        if self._queued < self._crowd:
            self._slice = self._full_slice

    def _line_up(self, party: PartyShare, place: float) -> None:
        if not party._is_queued:
            party._is_queued = True
            heapq.heappush(self._waiting, (place, next(self._order), party))

    def forget(self, worker: ScheduledWork) -> None:
        """Stop serving a connection until it waits again."""
        if worker.share.is_waiting:
            self._unqueue(worker.share)
        if not self._queued:
            while self._waiting:
                self._clear(heapq.heappop(self._waiting)[2])
            if self._turn_call is not None:
                self._turn_call.cancel()
                self._turn_call = None

    def _clear(self, party: PartyShare) -> None:
        """Remove the connections of a party from its heap when none of them waits any more."""
        party._is_queued = False
        for _, _, worker in party._waiting:
            worker.share._is_queued = False
        party._waiting.clear()

    def _schedule(self) -> None:
        if self._turn_call is None:
            self._turn_call = self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        """Begin a turn of the reactor."""
        self._turn_call = None
        self._spent = 0.0
        if not self._waiting:
            return
        if self._turns is None:
            self._serve_waiting()
            return
        # Connections below their share do not wait for other work.
        self._serve_up_to(self._now - self._slice // 2)
        if self._waiting and not self._is_put_off:
            self._is_put_off = True
            self._turns.put_off("input", "", self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._is_put_off = False
        self._spent = 0.0  # the turn begins with whichever call comes first
        self._serve_up_to(math.inf)

    def _serve_up_to(self, place: float) -> None:
        """Serve waiting connections up to this place until a slice is spent."""
        try:
            while self._waiting and self._spent < self._slice and self._waiting[0][0] <= place:
                party = heapq.heappop(self._waiting)[2]
                party._is_queued = False
                try:
                    self._serve_one(party)
                finally:
                    if party._waiting:
                        self._line_up(party, party._start)
        finally:
            if self._waiting:
                self._schedule()

    def _serve_one(self, party: PartyShare) -> None:
        """Serve the next waiting connection of a party, if any."""
        while party._waiting:
            worker = heapq.heappop(party._waiting)[2]
            share = worker.share
            share._is_queued = False
            if share.is_waiting:
                self._unqueue(share)
                if worker.has_work:  # it may by now wait for something else
                    self.serve(worker)
                    return
