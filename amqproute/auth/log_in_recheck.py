# SPDX-License-Identifier: Apache-2.0
"""The end of log-ins whose users are gone, while connections and sessions of theirs are open.

A log-in is verified once, and what it has opened can stay open for months. Three things end it
before:

* *A reload*. Users of the users file whose entry was removed or has another key, as with a new
  password, are logged out, and so are users of a realm that is not in use any more, or whose name
  belongs to another realm now. See `LogInRecheck.prepare`.
* *The realm*. Every `seconds` each realm for passwords that can tell is asked about its users who
  are logged in, one after the other, without their passwords: `PasswordRealm.recheck`. Who is
  refused is logged out; who has other groups has their rights from then on. A realm that cannot
  tell now ends nothing: a directory that is down for an hour must not take all clients with it. The
  rest of its users is then asked about in the next round.
* *A token* has its own end, for which connections and streams have timers.

So an account that was closed ends its connections within `seconds` and the time that one round
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.outside_realm import (
    TOKENS,
    CredentialsRefused,
    OutsideRealms,
    RealmUnavailable,
)
from amqproute.auth.realm import outside_principal
from amqproute.auth.users import UserFile
from amqproute.log_rate_limit import RateLimitedLog, and_more
from amqproute.plurals import counted
from amqproute.values import Principal

__all__ = ["LogIn", "LogInRecheck", "LogIns"]

log = Logger()

MOST_UNAVAILABLE: Final = 1
"""Lines about a realm that cannot tell, within the interval of `RateLimitedLog`."""


class LogIn(Protocol):
    """What goes on for as long as somebody is logged in: a connection, a session, a stream."""

    @property
    def principal(self) -> Principal:
        """Who has logged in."""

    def renew(self, principal: Principal) -> None:
        """Go on with other groups of the same user."""

    def end_log_in(self, words: str) -> None:
        """End it; nothing happens if it has ended already.

        Args:
            words: why, for the log and for the client.
        """


LogIns = Callable[[], Iterable[LogIn]]
"""Returns the log-ins that are open."""


class LogInRecheck:
    """Ends log-ins whose users are gone.

    Args:
        clock: for the rounds.
        realms: the outside realms.
        users: the users file.
        log_ins: the log-ins that are open.
        seconds: between two rounds; 0 for none.
    """

    def __init__(
        self,
        clock: IReactorTime,
        realms: OutsideRealms,
        users: UserFile,
        log_ins: LogIns,
        seconds: float,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._realms = realms
        self._users = users
        self._log_ins = log_ins
        self._call: IDelayedCall | None = None
        self._rounds: dict[str, Deferred[None]] = {}
        self._unavailable = RateLimitedLog(clock.seconds, MOST_UNAVAILABLE)

    def __repr__(self) -> str:
        return f"<LogInRecheck seconds={self.seconds:g} rounds={len(self._rounds)}>"

    def begin(self) -> None:
        """Begin with the rounds, or go on with another time between them."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = self._clock.callLater(self.seconds, self._tick) if self.seconds else None

    def stop(self) -> None:
        """Ask no more."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
        for each in tuple(self._rounds.values()):
            each.cancel()

    def prepare(self, seconds: float) -> Callable[[], None]:
        """Return what logs users out after a reload has put other users and realms in force.

        Args:
            seconds: between two rounds from then on.
        """
        before = self._users.entries

        def apply() -> None:
            self.end_gone(before)
            if seconds != self.seconds:
                self.seconds = seconds
                self.begin()

        return apply

    def end_gone(self, before: Mapping[str, object]) -> None:
        """Log out whose entry or realm is not what it was.

        Args:
            before: the entries of the users file that were in force.
        """
        count = 0
        for each in tuple(self._log_ins()):
            words = self._why_gone(each.principal, before)
            if words:
                count += 1
                each.end_log_in(words)
        if count:
            log.info(
                "the reload has ended {log_ins} of users who are gone or have other passwords",
                log_ins=counted(count, "log-in"),
            )

    def _why_gone(self, who: Principal, before: Mapping[str, object]) -> str:
        if who.kind != "user":
            return ""
        entry = self._users.entries.get(who.name)
        if not who.realm:
            if entry is None:
                return "the user is not in the users file any more" if who.name in before else ""
            return "" if before.get(who.name) == entry else "the user has another password"
        if entry is not None:
            return "the name is that of a user of the users file now"
        if not self._realms.has(who.realm):
            return f"the realm {who.realm} is not used any more"
        if who.realm != TOKENS and self._realms.of_user(who.name) != who.realm:
            return f"the name is not one of the realm {who.realm} any more"
        return ""

    # -- rounds ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._call = self._clock.callLater(self.seconds, self._tick)
        for realm, accounts in self._logged_in().items():
            if realm not in self._rounds:
                asked = Deferred.fromCoroutine(self._round(realm, accounts))
                self._rounds[realm] = asked
                asked.addErrback(_report).addCallback(self._finished, realm)

    def _finished(self, _: None, realm: str) -> None:
        del self._rounds[realm]

    def _logged_in(self) -> Mapping[str, Mapping[str, list[LogIn]]]:
        """Return the log-ins by the realms for passwords, and by their accounts there."""
        found: dict[str, dict[str, list[LogIn]]] = {each: {} for each in self._realms.names}
        for each in self._log_ins() if found else ():
            who = each.principal
            if who.kind == "user" and who.realm in found:
                found[who.realm].setdefault(who.account, []).append(each)
        return {realm: accounts for realm, accounts in found.items() if accounts}

    async def _round(self, realm: str, accounts: Mapping[str, list[LogIn]]) -> None:
        for account, log_ins in accounts.items():
            found = self._realms.password_realm(realm)
            asked = None if found is None else found.recheck(account)
            if asked is None:
                return  # it cannot tell, or a reload has taken it away
            try:
                identity = await asked
            except CredentialsRefused as error:
                self._end(log_ins, str(error))
            except RealmUnavailable as error:
                self._note(realm, str(error), len(accounts))
                return
            else:
                self._renew(log_ins, outside_principal(identity))

    def _renew(self, log_ins: Iterable[LogIn], now: Principal) -> None:
        for each in log_ins:
            who = each.principal
            if who != _in_host(now, who.host):
                each.end_log_in("its account is that of another user now")
            elif who.groups != now.groups:
                each.renew(_in_host(now, who.host))

    def _end(self, log_ins: Iterable[LogIn], reason: str) -> None:
        count, who = 0, ""
        for each in log_ins:
            count += 1
            who = str(each.principal)
            each.end_log_in("the account of the user is closed")
        if count:
            log.info(
                "ended {log_ins} of {who}, whose account is closed: {reason}",
                log_ins=counted(count, "log-in"),
                who=who,
                reason=reason,
            )

    def _note(self, realm: str, reason: str, accounts: int) -> None:
        count = self._unavailable.due(realm)
        if count:
            log.warn(
                "realm {realm} cannot tell whether {users} who have logged in are still there; "
                "they stay: {reason}{more}",
                realm=realm,
                users=counted(accounts, "user"),
                reason=reason,
                more=and_more(count),
            )


def _in_host(who: Principal, host: str) -> Principal:
    return Principal(
        who.kind, who.name, who.names, host, groups=who.groups, realm=who.realm, account=who.account
    )


def _report(failure: Failure) -> None:
    if not isinstance(failure.value, CancelledError):
        log.failure("asking about users who have logged in failed", failure)
