# SPDX-License-Identifier: Apache-2.0
"""The SASL layer before the open (part 5 §5.3): frames around the machines of `sasl_mechanisms`.

One exchange object serves one connection. `receive` processes one SASL body of the peer and returns
a `Reaction`: bodies to send, and the effect on the connection.

* The server offers its mechanisms, gets an init, then exchanges challenges and responses as the
  mechanism requires, and ends with an outcome: *ok*, *auth* when the credentials failed, *sys-temp*
  when they cannot be checked now, *sys-perm* when the client broke the protocol. The peer is never
  told why its credentials failed.
* The client chooses, answers, and checks at *ok* that the server has proved itself if the
  mechanism promises that. Every other outcome is a failure; *sys-temp* says that it may pass.

A SASL frame has at most 512 octets, in both directions (§5.3.1). Tokens are longer, and clients
send them in larger frames; where a mechanism for tokens is offered, these are taken. `MAX_ROUNDS`
bounds the exchange in length as the handshake deadline bounds it in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from amqproute.errors import AuthenticationFailed
from amqproute.wire.amqp10 import spec
from amqproute.wire.sasl_mechanisms import (
    TOKEN_MECHANISMS,
    MechanismChallenge,
    MechanismDone,
    SaslClient,
    SaslServer,
    Verification,
    VerifyCredentials,
)

MAX_ROUNDS: Final = 16
"""Largest number of bodies from the peer; no mechanism here needs more than three."""


class ServerAuthority(Protocol):
    """The supplier of a server's mechanisms."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """The names to offer, best first."""
        ...

    def start(self, name: str) -> SaslServer:
        """Return a fresh machine for an offered mechanism."""
        ...


class ClientAuthority(Protocol):
    """The supplier of a client's mechanism."""

    def choose(self, offered: Sequence[str]) -> SaslClient | None:
        """Return the machine to use, or None when nothing offered will do.

        Raises:
            AuthenticationFailed: as None, with the reason.
        """
        ...


@dataclass(slots=True)
class Reaction:
    """The result of one body.

    Attributes:
        bodies: the bodies to be sent.
        verify: a password to be checked outside; `ServerExchange.resolve` continues.
        done: the exchange succeeded.
        failed: reason of the failure, for our log only.
        is_temporary: another attempt may succeed.
        mechanism: its name, as far as known.
        identity: the proved identity, at the server; None at the client.
    """

    bodies: list[spec.SaslBody] = field(default_factory=list)
    verify: VerifyCredentials | None = None
    done: bool = False
    failed: str | None = None
    is_temporary: bool = False
    mechanism: str | None = None
    identity: Any = None  # Any: whatever the authority has made


_OUTCOMES: Final = {
    spec.SASL_AUTH: "the peer refused the credentials",
    spec.SASL_SYS: "the peer failed for a reason of its own",
    spec.SASL_SYS_PERM: "the peer failed, and will again",
    spec.SASL_SYS_TEMP: "the peer failed for now",
}


class ServerExchange:
    """The server's side."""

    def __init__(self, authority: ServerAuthority) -> None:
        self._authority = authority
        self._offered = tuple(authority.mechanisms)
        self._machine: SaslServer | None = None
        self._rounds = 0

    @property
    def _mechanism(self) -> str | None:
        return None if self._machine is None else self._machine.name

    @property
    def takes_tokens(self) -> bool:
        """Whether a mechanism is offered whose messages do not fit into 512 octets."""
        return not TOKEN_MECHANISMS.isdisjoint(self._offered)

    def begin(self) -> spec.SaslBody:
        """Return the first body: the offer."""
        return spec.SaslMechanisms(sasl_server_mechanisms=self._offered)

    def receive(self, body: spec.SaslBody) -> Reaction:
        """Process one body of the client."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            return self._fail("the exchange does not end", spec.SASL_SYS_PERM)
        if isinstance(body, spec.SaslInit) and self._machine is None:
            if body.mechanism not in self._offered:
                return self._fail(
                    f"mechanism {body.mechanism[:64]!r} was not offered", spec.SASL_AUTH
                )
            self._machine = self._authority.start(body.mechanism)
            return self._took(self._machine.step(body.initial_response))
        if isinstance(body, spec.SaslResponse) and self._machine is not None:
            return self._took(self._machine.step(body.response))
        return self._fail(f"{body.symbol} out of turn", spec.SASL_SYS_PERM)

    def resolve(self, granted: Verification) -> Reaction:
        """Go on after `Reaction.verify`."""
        assert self._machine is not None
        return self._took(self._machine.resolve(granted))

    def _took(self, step: Any) -> Reaction:
        if isinstance(step, MechanismChallenge):
            return Reaction([spec.SaslChallenge(challenge=step.data)], mechanism=self._mechanism)
        if isinstance(step, VerifyCredentials):
            return Reaction(verify=step, mechanism=self._mechanism)
        if isinstance(step, MechanismDone):
            outcome = spec.SaslOutcome(code=spec.SASL_OK, additional_data=step.additional_data)
            return Reaction(
                [outcome], done=True, mechanism=self._mechanism, identity=step.credentials
            )
        return self._fail(step.reason, spec.SASL_SYS_TEMP if step.is_temporary else spec.SASL_AUTH)

    def _fail(self, reason: str, code: int) -> Reaction:
        return Reaction(
            [spec.SaslOutcome(code=code)],
            failed=reason,
            is_temporary=code == spec.SASL_SYS_TEMP,
            mechanism=self._mechanism,
        )


class ClientExchange:
    """The client's side."""

    def __init__(self, authority: ClientAuthority, hostname: str | None) -> None:
        self._authority = authority
        self._hostname = hostname
        self._machine: SaslClient | None = None
        self._rounds = 0

    def receive(self, body: spec.SaslBody) -> Reaction:
        """Process one body of the server."""
        self._rounds += 1
        try:
            if self._rounds > MAX_ROUNDS:
                return self._fail("the exchange does not end")
            return self._receive(body)
        except AuthenticationFailed as failure:
            return self._fail(str(failure))

    def _receive(self, body: spec.SaslBody) -> Reaction:
        machine = self._machine
        if isinstance(body, spec.SaslMechanisms) and machine is None:
            return self._choose(body.sasl_server_mechanisms)
        if isinstance(body, spec.SaslOutcome):
            return self._end(body)
        if isinstance(body, spec.SaslChallenge) and machine is not None:
            answer = spec.SaslResponse(response=machine.step(body.challenge))
            return Reaction([answer], mechanism=machine.name)
        return self._fail(f"{body.symbol} out of turn")

    def _choose(self, offered: Sequence[str]) -> Reaction:
        machine = self._machine = self._authority.choose(offered)
        if machine is None:
            return self._fail(f"none of the mechanisms will do: {', '.join(offered)[:200]}")
        chosen = spec.SaslInit(
            mechanism=machine.name,
            initial_response=machine.initial(),
            hostname=self._hostname,
        )
        return Reaction([chosen], mechanism=machine.name)

    def _end(self, outcome: spec.SaslOutcome) -> Reaction:
        machine = self._machine
        if outcome.code != spec.SASL_OK:
            return self._fail(_OUTCOMES[outcome.code], outcome.code == spec.SASL_SYS_TEMP)
        if machine is None:
            return self._fail("the peer says ok before a mechanism was chosen")
        machine.finish(outcome.additional_data)
        return Reaction(done=True, mechanism=machine.name)

    def _fail(self, reason: str, is_temporary: bool = False) -> Reaction:
        name = None if self._machine is None else self._machine.name
        return Reaction(failed=reason, is_temporary=is_temporary, mechanism=name)


__all__ = [
    "MAX_ROUNDS",
    "ClientAuthority",
    "ClientExchange",
    "Reaction",
    "ServerAuthority",
    "ServerExchange",
]
