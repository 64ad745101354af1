# SPDX-License-Identifier: Apache-2.0
"""Steps of TLS handshakes, a few in each turn of the reactor and each address in its turn.

A signature costs about a millisecond, and whoever connects can have one for a few hundred octets.
When a thousand clients come at once, or one stranger as a thousand, those that are connected must
not wait for all of them. So steps that come when `MOST_IN_TURN` were taken wait for a later turn;
one address (`amqproute.log_rate_limit.source_of`) waits behind itself, and not before others.

What waits is bounded by the connections that may be mute (`amqproute.net.accept_policy`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["MOST_IN_TURN", "HandshakeScheduler"]

MOST_IN_TURN: Final = 8
"""Steps of handshakes in one turn of the reactor, at one listener."""

Step = Callable[[], None]


class HandshakeScheduler:
    """The handshakes of one listener.

    Args:
        clock: the reactor.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._taken = 0
        self._waiting: OrderedDict[str, deque[Step]] = OrderedDict()
        self._call: IDelayedCall | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def ask(self, source: str, step: Step) -> None:
        """Have a step taken: now, if few were in this turn, or later.

        Args:
            source: whose it is.
            step: has to find out itself whether its connection is still there.
        """
        if self._call is None:
            self._call = self._clock.callLater(0, self._turn)
        if self._taken < MOST_IN_TURN and not self._waiting:
            self._taken += 1
            step()
        else:
            self._waiting.setdefault(source, deque()).append(step)

    def _turn(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < MOST_IN_TURN:
            self._taken += 1
            source, steps = self._waiting.popitem(last=False)
            step = steps.popleft()
            if steps:
                self._waiting[source] = steps  # behind the others
            step()
        is_needed = bool(self._waiting or self._taken)
        self._call = self._clock.callLater(0, self._turn) if is_needed else None
