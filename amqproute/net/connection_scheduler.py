# SPDX-License-Identifier: Apache-2.0
"""Shares the processor out among connections: none of them makes the others wait.

All connections of a reactor work under one `ConnectionScheduler`. What a read brings is acted on at
once, as long as that costs no more than a *slice*. A connection that has more to do waits, is not
read meanwhile, and goes on in a later turn of the reactor, so that in between others are read,
timers run and commits are answered. In one turn all connections together spend about one slice:
with many greedy ones each turn stays as short as with one.

Who goes next is decided as in start-time fair queueing (Goyal, Vin and Cheng, 1996), on two levels:
among parties, and among the connections of a party. A party is a user, a peer, or an address whose
connections have not logged in, or only as anonymous. Each has a virtual time, which grows by the
work that it is given, and the one with the earliest is next. Whoever has only just read something
is one slice ahead of those that have waited since an earlier read. A party that asks for less than
its share is therefore served before all that ask for more, and those share what is left evenly,
whatever the number of their frames and of their connections.

Work is counted in units by the engines, from the input alone. Where the scheduler is given a clock
of processor time it corrects the count: what took longer is charged as longer, and the next slices
of that connection get fewer units. Without one, everything here is a function of the input.
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
"""Connections that may wait with a large read each (`net.direct_write.FULL_BYTES`)."""
_UNITS_PER_SECOND: Final = 1_000_000
_SMALLEST_SLICE: Final = 250
"""Units of a slice of whoever's units take long."""
_DEAREST: Final = 32.0
_LONGEST: Final = 5.0
"""Microseconds that a slice may take for each of its units before the next ones get fewer."""


class PartyShare:
    """What the connections of one party have had of the processor together."""

    __slots__ = ("__weakref__", "_is_queued", "_now", "_start", "_waiting")

    def __init__(self) -> None:
        self._start = 0.0  # virtual time among parties
        self._now = 0.0  # virtual time within the party
        self._is_queued = False
        self._waiting: list[tuple[float, int, ScheduledWork]] = []

    def __repr__(self) -> str:
        return f"<PartyShare from {self._start:.0f}, {len(self._waiting)} wait>"


class SchedulerShare:
    """What one connection has had of the processor.

    Attributes:
        party: whose connection it is; one of its own until it is given another.
        is_waiting: it has input left and waits for its turn.
        slices: how often it has been served.
    """

    __slots__ = ("_dearness", "_is_queued", "_start", "is_waiting", "party", "slices")

    def __init__(self) -> None:
        self.party = PartyShare()
        self.is_waiting = False
        self.slices = 0
        self._start = 0.0  # virtual time within the party
        self._is_queued = False  # it stands in a heap, whether it still waits or not
        self._dearness = 1.0  # what its units count

    def __repr__(self) -> str:
        return f"<SchedulerShare from {self._start:.0f}{' waits' * self.is_waiting}>"


class ScheduledWork(Protocol):
    """A connection, as the scheduler sees it.

    Attributes:
        share: what it has had of the processor.
    """

    share: SchedulerShare

    def work(self, budget: int) -> int:
        """Act on input for about `budget` units; return how many it was."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether there is input left that may be acted on."""
        ...


class ConnectionScheduler:
    """The processor's time of one reactor.

    Args:
        clock: the reactor, for its turns.
        processor_time: returns the seconds of processor time that this thread has used; None to
            count units only.
        slice_units: what one connection may spend at once, and all together in one turn.
        crowd: where so many wait it is half of that, so that turns are shorter for all.
        turns: shares turns out between those who wait and other work that may be put off; None to
            serve them in each turn.
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
        self._is_put_off = False  # a step that serves those who wait
        self._spent = 0.0  # in this turn
        self._now = 0.0  # virtual time: the start of the slice that was given last
        self._parties: WeakValueDictionary[str, PartyShare] = WeakValueDictionary()
        self._waiting: list[tuple[float, int, PartyShare]] = []
        self._order = count()
        self._turn_call: IDelayedCall | None = None
        self._served: ScheduledWork | None = None
        self._queued = 0

    def __repr__(self) -> str:
        return f"<ConnectionScheduler {self.waiting} wait, {self._spent:.0f} spent>"

    def party(self, name: str) -> PartyShare:
        """Return what a party has, the same as long as it has connections."""
        found = self._parties.get(name)
        if found is None:
            found = self._parties[name] = PartyShare()
        return found

    def move(self, worker: ScheduledWork, party: PartyShare) -> None:
        """Count a connection towards another party from now on."""
        share = worker.share
        share.party = party
        share._start = party._now  # what it has had before, it had of the other's share

    @property
    def waiting(self) -> int:
        """How many connections wait for their turn."""
        return self._queued

    @property
    def is_crowded(self) -> bool:
        """Whether so many wait that each should read little at a time."""
        return self._queued >= self._crowd

    def may_work(self, worker: ScheduledWork) -> bool:
        """Whether a connection may act at once on what it has read; else it has to `wait`."""
        share = worker.share
        party = share.party
        half = self._slice // 2
        if party._start - half <= self._now and share._start - half <= party._now:
            # It has had less than others: as much again is kept for its kind in each turn. One that
            # uses most of a slice with each read is not of that kind, however soon it reads again.
            return self._spent < 2 * self._slice
        if self._spent >= self._slice:
            return False
        if party._waiting and share._start - self._slice > party._waiting[0][0]:
            return False
        waiting = self._waiting
        return not waiting or party._start - self._slice <= waiting[0][0]

    def serve(self, worker: ScheduledWork) -> None:
        """Let a connection work for one slice, charge it, and have it wait if it has more."""
        share = worker.share
        party = share.party
        budget = max(_SMALLEST_SLICE, int(self._slice / share._dearness))
        start_of_party = self._now = max(party._start, self._now)
        start = party._now = max(share._start, party._now)
        share.slices += 1
        self._served = worker
        try:
            cost = self._work(worker, budget)
        finally:
            self._served = None
        party._start = start_of_party + cost
        self._spent += cost
        if share.party is party:
            share._start = start + cost
        else:  # it has logged in meanwhile
            party = share.party
            party._start = max(party._start, self._now)
        if self._spent * 4 >= self._slice:  # else there is no need to know where a turn ends
            self._schedule()
        if worker.has_work:
            self._queue(worker, share._start, party._start)

    def _work(self, worker: ScheduledWork, budget: int) -> float:
        """Let a connection work; return what it costs."""
        processor_time = self._processor_time
        if processor_time is None:
            return worker.work(budget)
        began = processor_time()
        units = worker.work(budget)
        took = (processor_time() - began) * _UNITS_PER_SECOND
        share = worker.share
        # Half-way to what would have made this slice last as long as it may.
        wanted = share._dearness * took / (_LONGEST * self._slice)
        share._dearness = min(_DEAREST, max(1.0, (share._dearness + wanted) / 2))
        return max(units, took)

    def wait(self, worker: ScheduledWork) -> None:
        """Have a connection served in a later turn, unless it waits or is being served."""
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
        """Serve a connection no more until it waits again."""
        if worker.share.is_waiting:
            self._unqueue(worker.share)
        if not self._queued:
            while self._waiting:
                self._clear(heapq.heappop(self._waiting)[2])
            if self._turn_call is not None:
                self._turn_call.cancel()
                self._turn_call = None

    def _clear(self, party: PartyShare) -> None:
        """Take out those of a party that do not wait any more; none does."""
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
        if self._turns is None:
            self._serve_waiting()
            return
        # Those who have had less than their share wait for no other work.
        self._serve_up_to(self._now - self._slice // 2)
        if self._waiting and not self._is_put_off:
            self._is_put_off = True
            self._turns.put_off("input", "", self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._is_put_off = False
        self._spent = 0.0  # the turn has begun, whichever of its calls comes first
        self._serve_up_to(math.inf)

    def _serve_up_to(self, place: float) -> None:
        """Serve those who wait at this place or before until a slice is spent."""
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
        """Serve the connection of a party that is next, if one waits."""
        while party._waiting:
            worker = heapq.heappop(party._waiting)[2]
            share = worker.share
            share._is_queued = False
            if share.is_waiting:
                self._unqueue(share)
                if worker.has_work:  # it may have to wait for something else by now
                    self.serve(worker)
                    return
