# SPDX-License-Identifier: Apache-2.0
"""Decides when a password is verified and when the answer is sent; reads no clock.

Guessing must be slow, and a guesser must not lock anybody out: a correct password is answered
within two seconds, whatever was tried before from its address or for its user. Three rules ensure
it:

* *Slots.* Each address (IPv6: a /64) has `SLOTS`. A log-in takes one while it is verified. A
  correct one frees its slot at once; a wrong one holds it for a time that doubles with each
  failure, up to `LONGEST_HOLD_SECONDS`, whether or not its connection stays open. So an address
  fails at most ``SLOTS / LONGEST_HOLD_SECONDS`` times a second, over however many connections, and
  a slot is free soon after the last failure.
* *Order.* Users who have logged in from an address before (`MOST_PAIRS` pairs of user and address,
  for `PAIR_SECONDS`) have slots of their own and go first. The queue of all others alternates
  between the most recently arrived user, taking the newest log-in, and the user who has waited
  longest, taking the oldest. So neither earlier guesses nor guesses that are abandoned and repeated
  delay a waiting user. At most `MOST_WAITING` log-ins of an address wait. Beyond that, the oldest
  log-in of the user with the most is refused, with an outcome that invites a retry and does not
  call the password wrong.
* *Delay.* The answer to a wrong password is delayed, twice as long after each failure of its
  address or for its user, whichever has more, up to `longest_delay`. One failure is forgiven every
  `FORGIVE_SECONDS`.

At most `MOST_RUNNING` log-ins are verified at a time: PLAIN takes a thread and milliseconds, by
design. What outside realms verify has queues of its own, so that a slow directory delays nobody
else; failures count together. The number of waiting log-ins is bounded by the number of connections
that may be unauthenticated (`amqproute.net.accept_policy`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Final

__all__ = ["LONGEST_HOLD_SECONDS", "MOST_RUNNING", "MOST_WAITING", "SLOTS", "LogInQueue"]

SLOTS: Final = 4
"""Log-ins per address that are being verified or have just failed."""

MOST_RUNNING: Final = 4
"""Log-ins being verified at a time, over all addresses."""

MOST_WAITING: Final = 32
"""Log-ins per address that wait for a slot."""

FIRST_HOLD_SECONDS: Final = 0.1
LONGEST_HOLD_SECONDS: Final = 1.0
FIRST_DELAY_SECONDS: Final = 1.0

FORGIVE_SECONDS: Final = 60.0
"""Time for which one failure counts; several expire one after the other."""

MOST_COUNTED: Final = 10_000
"""Bound on remembered addresses with failures, and on such users; the oldest are dropped first."""

MOST_PAIRS: Final = 10_000
PAIR_SECONDS: Final = 7 * 86400.0

_MOST_DOUBLINGS: Final = 16


class _Failures:
    """Failures by key, forgiven over time."""

    def __init__(self) -> None:
        self._counted: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counted)

    def add(self, key: str, now: float) -> int:
        """Count a failure and return the number now in force."""
        before, since = self._counted.get(key, (0, now))
        number = max(0, before - int((now - since) / FORGIVE_SECONDS)) + 1
        self._counted[key] = number, now
        self._counted.move_to_end(key)
        if len(self._counted) > MOST_COUNTED:
            self._counted.popitem(last=False)
        return number


@dataclass(slots=True)
class _Line:
    """Log-ins that share slots.

    Attributes:
        is_known: whether the line is for one user who has logged in from this address before.
        taken: slots in use.
        waiting: log-ins by user, oldest first; the most recently arrived user is last.
        is_newest_next: whether the most recently arrived user is served next.
    """

    name: tuple[str, str]
    is_known: bool
    taken: int = 0
    is_newest_next: bool = True
    waiting: OrderedDict[str, list[Hashable]] = field(default_factory=OrderedDict)

    @property
    def length(self) -> int:
        return sum(map(len, self.waiting.values()))


class LogInQueue:
    """The password log-ins of a daemon that one realm verifies.

    Args:
        longest_delay: limit of the delay before a wrong password is answered, seconds.
        most_running: log-ins being verified at a time.
        beside: the queue of another realm, with which it counts failures together.
    """

    def __init__(
        self,
        longest_delay: float = 8.0,
        most_running: int = MOST_RUNNING,
        beside: LogInQueue | None = None,
    ) -> None:
        self._longest_delay = longest_delay
        self._most_running = most_running
        self._by_address: _Failures = _Failures() if beside is None else beside._by_address
        self._by_user: _Failures = _Failures() if beside is None else beside._by_user
        self._pairs: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lines: dict[tuple[str, str], _Line] = {}
        self._waiting: dict[Hashable, tuple[_Line, str]] = {}
        self._running: dict[Hashable, tuple[_Line, str, str]] = {}
        self._holds: list[tuple[float, int, _Line]] = []
        self._number = count()
        # Lines with a free slot and a waiting log-in: known users, then others.
        self._ready: tuple[OrderedDict[tuple[str, str], _Line], ...] = (
            OrderedDict(),
            OrderedDict(),
        )

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def arrive(self, key: Hashable, address: str, user: str, now: float) -> Hashable | None:
        """Add a log-in to the queue.

        Args:
            key: identifies the log-in.
            address: key of the slots that it shares.
            user: the user name sent by the client, in its prepared form.
            now: monotonic time, seconds.

        Returns:
            The key of a log-in that was dropped in its favor, or None.
        """
        self._give_back(now)
        line = self._line(address, user, now)
        of_user = line.waiting.get(user)
        if of_user is None:
            line.waiting[user] = of_user = []
        of_user.append(key)
        self._waiting[key] = line, user
        gone = None
        if line.length > MOST_WAITING:
            gone = max(line.waiting.values(), key=len)[0]  # the first to arrive, of several
            self.withdraw(gone)
        self._note(line)
        return gone

    def due(self, now: float) -> list[Hashable]:
        """Return the log-ins to verify now; call `settled` for each of them."""
        self._give_back(now)
        found: list[Hashable] = []
        while len(self._running) < self._most_running:
            ready = self._ready[0] or self._ready[1]
            if not ready:
                break
            _, line = ready.popitem(last=False)
            is_newest, line.is_newest_next = line.is_newest_next, not line.is_newest_next
            user, keys = line.waiting.popitem(last=is_newest)
            key = keys.pop(-1 if is_newest else 0)
            if keys:
                line.waiting[user] = keys
            del self._waiting[key]
            line.taken += 1
            address = line.name[0]
            self._running[key] = line, address, user
            self._note(line)  # at the end of the queue
            found.append(key)
        return found

    def next_due(self) -> float | None:
        """Return the monotonic time at which to call `due` again, or None if no time matters."""
        return self._holds[0][0] if self._holds and self._waiting else None

    def settled(self, key: Hashable, is_right: bool | None, now: float) -> float:
        """Record the result of a log-in that was due; return the delay of its answer, in seconds.

        Args:
            key: the log-in.
            is_right: whether the password was correct; None if that could not be determined.
            now: monotonic time, seconds.
        """
        line, address, user = self._running.pop(key)
        if is_right is not False:
            if is_right:
                self.remember(address, user, now)
            self._free(line)
            return 0.0
        failures = max(self._by_address.add(address, now), self._by_user.add(user, now))
        factor = 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        hold = min(LONGEST_HOLD_SECONDS, FIRST_HOLD_SECONDS * factor)
        heappush(self._holds, (now + hold, next(self._number), line))
        return float(min(self._longest_delay, FIRST_DELAY_SECONDS * factor))

    def withdraw(self, key: Hashable) -> bool:
        """Remove a waiting log-in; return False if it was not waiting."""
        found = self._waiting.pop(key, None)
        if found is None:
            return False
        line, user = found
        line.waiting[user].remove(key)
        if not line.waiting[user]:
            del line.waiting[user]
        self._note(line)
        return True

    def has_slot(self, address: str, user: str, now: float) -> bool:
        """Return whether a log-in would be verified at once."""
        self._give_back(now)
        line = self._line(address, user, now)
        is_free = not line.waiting and line.taken < SLOTS
        self._note(line)
        return is_free

    def remember(self, address: str, user: str, now: float) -> None:
        """Record that a user has logged in from an address."""
        self._pairs[address, user] = now
        self._pairs.move_to_end((address, user))
        if len(self._pairs) > MOST_PAIRS:
            self._pairs.popitem(last=False)

    def _line(self, address: str, user: str, now: float) -> _Line:
        seen = self._pairs.get((address, user))
        is_known = seen is not None and now - seen < PAIR_SECONDS
        name = (address, user if is_known else "")
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line(name, is_known)
        return line

    def _note(self, line: _Line) -> None:
        """Update whether a line is ready, and drop it when it is empty."""
        ready = self._ready[0 if line.is_known else 1]
        if line.waiting and line.taken < SLOTS:
            ready.setdefault(line.name, line)
        else:
            ready.pop(line.name, None)
            if not line.waiting and not line.taken:
                self._lines.pop(line.name, None)

    def _free(self, line: _Line) -> None:
        line.taken -= 1
        self._note(line)

    def _give_back(self, now: float) -> None:
        """Free the slots whose holds have expired."""
        while self._holds and self._holds[0][0] <= now:
            self._free(heappop(self._holds)[2])
