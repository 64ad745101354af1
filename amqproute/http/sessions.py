# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers: a random id in a cookie, and a token against requests of other pages.

The id is known to the browser only; here its hash is kept, in memory, so that a restart ends all
sessions. A session ends `LIFETIME_SECONDS` after its log-in, and earlier when it is idle, or when
its user is gone (`amqproute.auth.log_in_recheck`). A user
has at most `MOST_OF_USER` sessions, and all together `most`: another one ends the one that is idle
for longest.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from amqproute.values import Principal

__all__ = ["COOKIE", "MOST_OF_USER", "BrowserSession", "BrowserSessions", "SessionLogIn"]

COOKIE: Final = "amqproute-session"
LIFETIME_SECONDS: Final = 12 * 3600.0
"""Age at which a session ends."""
IDLE_SECONDS: Final = 3600.0
"""Time without a request after which a session ends."""
MOST_OF_USER: Final = 20
_ID_BYTES: Final = 32


@dataclass(slots=True)
class BrowserSession:
    """A session.

    Attributes:
        key: the hash of its id.
        principal: who has logged in.
        csrf: the token that a request with a change has to carry.
        began: seconds.
        used: seconds, of the last request.
    """

    key: str
    principal: Principal
    csrf: str
    began: float
    used: float

    def is_token(self, text: str) -> bool:
        """Return whether a request carries the session's token."""
        return hmac.compare_digest(self.csrf.encode(), text.encode())


class SessionLogIn:
    """A session, as `amqproute.auth.log_in_recheck.LogIn`.

    Args:
        sessions: all of them.
        session: this one.
    """

    __slots__ = ("_session", "_sessions")

    def __init__(self, sessions: BrowserSessions, session: BrowserSession) -> None:
        self._sessions = sessions
        self._session = session

    @property
    def principal(self) -> Principal:
        """See `LogIn.principal`."""
        return self._session.principal

    def renew(self, principal: Principal) -> None:
        """See `LogIn.renew`."""
        self._session.principal = principal

    def end_log_in(self, words: str) -> None:
        """See `LogIn.end_log_in`: the browser is asked for a log-in with its next request."""
        self._sessions.end(self._session.key)


class BrowserSessions:
    """The sessions.

    Args:
        seconds: the monotonic clock.
        most: bound on all of them.
        random_text: makes ids and tokens.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        most: int = 1000,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._random_text = random_text
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, principal: Principal) -> tuple[str, BrowserSession]:
        """Begin a session; return its id, for the cookie, and the session."""
        self._end_old()
        own = [each.key for each in self._sessions.values() if each.principal == principal]
        for key in own[: max(0, len(own) - MOST_OF_USER + 1)]:
            del self._sessions[key]
        while len(self._sessions) >= self._most:
            self._sessions.popitem(last=False)
        session_id, now = self._random_text(_ID_BYTES), self._seconds()
        key = _key(session_id)
        session = BrowserSession(key, principal, self._random_text(_ID_BYTES), now, now)
        self._sessions[key] = session
        return session_id, session

    def find(self, session_id: str) -> BrowserSession | None:
        """Return the session with an id, in use from now; None without one."""
        key = _key(session_id)
        session = self._sessions.get(key)
        if session is None:
            return None
        if self._is_old(session):
            del self._sessions[key]
            return None
        session.used = self._seconds()
        self._sessions.move_to_end(key)
        return session

    def is_open(self, key: str) -> bool:
        """Return whether the session with a key goes on; this is no use of it."""
        session = self._sessions.get(key)
        return session is not None and not self._is_old(session)

    def end(self, key: str) -> None:
        """End the session with a key, if there is one."""
        self._sessions.pop(key, None)

    def log_ins(self) -> Iterator[SessionLogIn]:
        """Iterate over the open sessions."""
        return (SessionLogIn(self, each) for each in tuple(self._sessions.values()))

    def _end_old(self) -> None:
        for key in [each.key for each in self._sessions.values() if self._is_old(each)]:
            del self._sessions[key]

    def _is_old(self, session: BrowserSession) -> bool:
        now = self._seconds()
        return now - session.began > LIFETIME_SECONDS or now - session.used > IDLE_SECONDS


def _key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()
