# SPDX-License-Identifier: Apache-2.0
"""The log-in by which an event stream is open, and that it does not outlive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.http.event_stream import EventStream
from amqproute.http.requester import Requester
from amqproute.values import Principal

__all__ = ["CHECK_SECONDS", "StreamLogIn"]

CHECK_SECONDS: Final = 20.0
"""Between two looks at whether the log-in holds."""


class StreamLogIn:
    """A log-in, as `amqproute.auth.log_in_recheck.LogIn`.

    The stream is closed at the end of the time, when the session it was opened in has ended, or
    when the user is not known any more.

    Args:
        clock: monotonic.
        stream: what is closed.
        requester: who has opened it.
        holds: returns whether the log-in holds.
        seconds: until it ends in any case.

    Attributes:
        requester: who has opened it.
    """

    def __init__(
        self,
        clock: IReactorTime,
        stream: EventStream,
        requester: Requester,
        holds: Callable[[], bool],
        seconds: float,
    ) -> None:
        self.requester = requester
        self._clock = clock
        self._stream = stream
        self._holds = holds
        self._end = clock.seconds() + seconds
        self._call: IDelayedCall | None = None
        self._watch()

    @property
    def principal(self) -> Principal:
        """See `LogIn.principal`."""
        return self.requester.principal

    def renew(self, principal: Principal) -> None:
        """See `LogIn.renew`: rights are checked again when the client reconnects."""
        self._stream.close()

    def end_log_in(self, words: str) -> None:
        """See `LogIn.end_log_in`."""
        self._stream.close()

    def stop(self) -> None:
        """Look no more; the stream is over."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _watch(self) -> None:
        left = max(0.0, self._end - self._clock.seconds())
        self._call = self._clock.callLater(min(left, CHECK_SECONDS), self._check)

    def _check(self) -> None:
        if self._clock.seconds() >= self._end or not self._holds():
            self._stream.close()
        else:
            self._watch()
