# SPDX-License-Identifier: Apache-2.0
"""Guards around realms: what plug-ins do wrong, and how long they take, harms their users only.

Each question has a deadline, after which it is cancelled. An exception that is not part of the
interface, an answer of another type, and no answer are `RealmUnavailable`: nobody knows whether the
password is right, it does not count against the client, and nobody logs in. Such a fault is in the
log with its traceback, at a limited rate.

How many questions a realm has at a time is bounded by its queue of log-ins
(`amqproute.auth.realm.MOST_OUTSIDE`). A realm that blocks the reactor's thread blocks the daemon:
nothing can guard against that but threads, which are the plug-in's own matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.outside_realm import (
    CredentialsRefused,
    PasswordRealm,
    RealmUnavailable,
    TokenRealm,
    checked_groups,
    checked_name,
)
from amqproute.log_rate_limit import RateLimitedLog
from amqproute.wire.sasl_mechanisms import OutsideIdentity

__all__ = ["GuardedPasswordRealm", "GuardedTokenRealm", "RealmGuard"]

log = Logger()

MOST_FAULTS: Final = 3
"""Lines about faults of one realm, within the interval of `RateLimitedLog`."""
LONGEST_ACCOUNT: Final = 2000
"""Characters."""
Answer = TypeVar("Answer")


class RealmGuard:
    """What the guards of all realms do.

    Args:
        name: the name of the realm for the log.
        realm: the realm that answers are given the name of; see `OutsideIdentity`.
        deadline: seconds for an answer.
        clock: monotonic.
    """

    def __init__(self, name: str, realm: str, deadline: float, clock: IReactorTime) -> None:
        self._name = name
        self._realm = realm
        self._deadline = deadline
        self._clock = clock
        self._log = RateLimitedLog(clock.seconds, MOST_FAULTS)

    def identity(self, question: Callable[[], object]) -> Deferred[OutsideIdentity]:
        """Ask for a user; fails with `CredentialsRefused` or `RealmUnavailable`, in time."""
        asked = self._in_time(question).addCallback(self._checked)
        return asked.addErrback(self._failed)

    def trouble(self, question: Callable[[], object]) -> Deferred[str]:
        """Ask why the realm cannot be reached; never fails."""
        asked = self._in_time(question).addCallback(_text).addErrback(self._failed)
        return asked.addErrback(lambda failure: str(failure.value) or type(failure.value).__name__)

    def stop(self, stop: Callable[[], None]) -> None:
        """Stop the realm, whatever it raises."""
        try:
            stop()
        except Exception as error:
            self._report(Failure(error))  # type: ignore[no-untyped-call]

    def _in_time(self, question: Callable[[], object]) -> Deferred[object]:
        asked: Deferred[object] = maybeDeferred(question)
        return asked.addTimeout(self._deadline, self._clock, self._too_late)

    def _too_late(self, result: object, seconds: float) -> object:
        error = result.value if isinstance(result, Failure) else None
        if isinstance(error, RealmUnavailable):
            return result  # it knows better why
        raise RealmUnavailable(f"no answer within {seconds:g} s")

    def _checked(self, answer: object) -> OutsideIdentity:
        if not isinstance(answer, OutsideIdentity):
            raise TypeError(f"the answer is of {type(answer).__name__}, not of OutsideIdentity")
        texts: tuple[object, ...] = (answer.name, answer.account, *answer.groups)
        if not all(isinstance(each, str) for each in texts):
            raise TypeError("name, account or a group in the answer is no text")
        if len(answer.account) > LONGEST_ACCOUNT:
            raise TypeError(f"`account` of the answer is longer than {LONGEST_ACCOUNT} characters")
        if answer.expires is not None and not math.isfinite(answer.expires):
            raise TypeError("`expires` of the answer is no time")
        return replace(
            answer,
            name=checked_name(answer.name),
            realm=self._realm,
            groups=checked_groups(answer.groups),
            account=answer.account or answer.name,
        )

    def _failed(self, failure: Failure) -> Failure:
        if isinstance(failure.value, CredentialsRefused | RealmUnavailable | CancelledError):
            return failure
        self._report(failure)
        error = RealmUnavailable(f"the realm has failed: {type(failure.value).__name__}")
        return Failure(error)  # type: ignore[no-untyped-call]

    def _report(self, failure: Failure) -> None:
        count = self._log.due("fault")
        if count:
            log.failure(
                "realm {realm} has failed, {count} times since the last such line; report it to "
                "the authors of its plug-in",
                failure,
                realm=self._name,
                count=count,
            )


class GuardedPasswordRealm:
    """See `amqproute.auth.outside_realm.PasswordRealm`.

    Args:
        inner: the realm.
        guard: what guards it.

    Attributes:
        inner: the realm.
    """

    def __init__(self, inner: PasswordRealm, guard: RealmGuard) -> None:
        self.inner = inner
        self._guard = guard

    def __repr__(self) -> str:
        return f"<GuardedPasswordRealm {self.inner!r}>"

    def verify(self, name: str, password: str) -> Deferred[OutsideIdentity]:
        """See `PasswordRealm.verify`."""
        return self._guard.identity(lambda: self.inner.verify(name, password))

    def recheck(self, account: str) -> Deferred[OutsideIdentity] | None:
        """See `PasswordRealm.recheck`."""
        try:
            asked = self.inner.recheck(account)
        except Exception as error:
            raised = error
            return self._guard.identity(lambda: fail(raised))
        return None if asked is None else self._guard.identity(lambda: asked)

    def probe(self) -> Deferred[str]:
        """See `PasswordRealm.probe`."""
        return self._guard.trouble(self.inner.probe)

    def stop(self) -> None:
        """See `PasswordRealm.stop`."""
        self._guard.stop(self.inner.stop)


class GuardedTokenRealm:
    """See `amqproute.auth.outside_realm.TokenRealm`.

    Args:
        inner: the realm.
        guard: what guards it.

    Attributes:
        inner: the realm.
        issuer: as it was at first.
        hint: likewise.
    """

    def __init__(self, inner: TokenRealm, guard: RealmGuard) -> None:
        self.inner = inner
        self._guard = guard
        self.issuer = inner.issuer
        self.hint: Mapping[str, str] = dict(inner.hint)

    def __repr__(self) -> str:
        return f"<GuardedTokenRealm {self.inner!r}>"

    def verify(self, token: str) -> Deferred[OutsideIdentity]:
        """See `TokenRealm.verify`."""
        return self._guard.identity(lambda: self.inner.verify(token))

    def probe(self) -> Deferred[str]:
        """See `TokenRealm.probe`."""
        return self._guard.trouble(self.inner.probe)

    def stop(self) -> None:
        """See `TokenRealm.stop`."""
        self._guard.stop(self.inner.stop)


def _text(answer: object) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"`probe` answers with {type(answer).__name__}, not with text")
    return answer
