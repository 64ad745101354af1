# SPDX-License-Identifier: Apache-2.0
"""SASL within connection.start-ok, secure and secure-ok (09: part 3.7).

AMQPLAIN is PLAIN in other clothes: its response is rewritten, and the machine for PLAIN looks at
it. It is offered wherever PLAIN is (09-W-51).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from amqproute.auth.realm import Authenticator, LogInTransport
from amqproute.wire.amqp09.amqplain import AMQPLAIN, parse_amqplain
from amqproute.wire.sasl_mechanisms import (
    PLAIN,
    Credentials,
    MechanismChallenge,
    MechanismDone,
    MechanismFailed,
    SaslServer,
    SaslStep,
    Verification,
    VerifyCredentials,
)

__all__ = ["LogInExchange", "LogInRefused", "offered_mechanisms"]


class LogInRefused:
    """The client is not let in.

    Attributes:
        mechanism: which it chose.
        reason: why, for the log only.
        is_logged: the authenticator has logged it, with the name of the user.
        is_temporary: the credentials have not been verified; the client may try again.
    """

    __slots__ = ("is_logged", "is_temporary", "mechanism", "reason")

    def __init__(
        self, mechanism: str, reason: str, is_logged: bool = False, is_temporary: bool = False
    ) -> None:
        self.mechanism = mechanism
        self.reason = reason
        self.is_logged = is_logged
        self.is_temporary = is_temporary


LogInStep: TypeAlias = MechanismChallenge | Credentials | LogInRefused
_MALFORMED: Final = "the response is not that of AMQPLAIN"


def offered_mechanisms(authenticator: Authenticator, facts: LogInTransport) -> tuple[str, ...]:
    """Return the names of the mechanisms for connection.start, the strongest first."""
    names: list[str] = []
    for name in authenticator.offers(facts):
        names.append(name)
        if name == PLAIN:
            names.append(AMQPLAIN)
    return tuple(names)


class LogInExchange:
    """One exchange with one client.

    Args:
        authenticator: the authenticator of the listener.
        facts: the facts of the transport.
        mechanism: the client's choice, one of those offered.
        decided: called with each outcome of `respond`; at once, or when a password has been
            verified.
        broken: called with what must not happen.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        facts: LogInTransport,
        mechanism: str,
        decided: Callable[[LogInStep], None],
        broken: Callable[[Failure], None],
    ) -> None:
        self._authenticator = authenticator
        self._facts = facts
        self._mechanism = mechanism
        self._decided = decided
        self._broken = broken
        self._machine: SaslServer = authenticator.begin(
            PLAIN if mechanism == AMQPLAIN else mechanism, facts, outcome_carries_data=False
        )
        self._verifying: Deferred[Verification] | None = None
        self._is_logged = False

    def respond(self, response: bytes) -> None:
        """Take a response of the client."""
        if self._mechanism == AMQPLAIN:
            found = parse_amqplain(response)
            if found is None:
                self._refuse(_MALFORMED)
                return
            response = b"\0".join((b"", *(each.encode() for each in found)))
        self._act(self._machine.step(response))

    def cancel(self) -> None:
        """The connection is gone: nobody waits for the outcome."""
        if self._verifying is not None:
            self._verifying.cancel()
            self._verifying = None

    def _act(self, step: SaslStep) -> None:
        match step:
            case MechanismChallenge():
                self._decided(step)
            case VerifyCredentials():
                verifying = self._verifying = self._authenticator.verify(step, self._facts)
                verifying.addCallbacks(self._verified, lambda failure: failure.trap(CancelledError))
                verifying.addErrback(self._broken)
            case MechanismDone(credentials=credentials):
                self._decided(credentials)
            case MechanismFailed(reason=reason, is_temporary=is_temporary):
                self._refuse(reason, is_temporary)

    def _verified(self, granted: Verification) -> None:
        self._verifying = None
        self._is_logged = granted is False
        self._act(self._machine.resolve(granted))

    def _refuse(self, reason: str, is_temporary: bool = False) -> None:
        self._decided(LogInRefused(self._mechanism, reason, self._is_logged, is_temporary))
