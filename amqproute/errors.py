# SPDX-License-Identifier: Apache-2.0
"""The exception tree.

Three families, by audience:

* `LocalProtocolError`: our own code misused an engine. A bug; never sent to a peer.
* `AmqpError`: sent to a peer, at the scope that the caller decides (delivery, link, session,
  connection). Each class has the condition of the standard.

What a failure means for a message on its way to another organization is decided in
`amqproute.relay.failure_verdict` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqproute import conditions
from amqproute.conditions import Condition

LONGEST_DESCRIPTION = 1000
"""Bound on the characters of an `AmqpError.description`; longer ones are cut."""


class AmqprouteError(Exception):
    """The root of all errors of this package."""


class LocalProtocolError(AmqprouteError):
    """Our side asked an engine for something that its state does not allow."""


class AmqpError(AmqprouteError):
    """A failure with a condition that may be sent to a peer (part 2 §2.8.14).

    Attributes:
        condition: the symbol; subclasses fix it, `AmqpError` itself takes it as an argument.
        description: the cause as text, for the person at the other end; never longer than
            `LONGEST_DESCRIPTION`, however much of the other side's text it quotes.
        info: the error's info map, symbol keys to encodable values.
    """

    condition: Condition = conditions.INTERNAL_ERROR

    def __init__(
        self,
        description: str,
        *,
        condition: Condition | None = None,
        info: Mapping[str, object] | None = None,
    ) -> None:
        if len(description) > LONGEST_DESCRIPTION:
            # It quotes a stranger's text and would fit neither into a frame nor into a log.
            description = f"{description[:LONGEST_DESCRIPTION]}..."
        super().__init__(description)
        self.description = description
        self.info = dict(info) if info else {}
        if condition is not None:
            self.condition = condition

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}"


class NotFound(AmqpError):
    """No node has this name."""

    condition = conditions.NOT_FOUND


class UnauthorizedAccess(AmqpError):
    """The access rules do not grant this to this principal."""

    condition = conditions.UNAUTHORIZED_ACCESS


class NotAllowed(AmqpError):
    """A rule of the standard or of this broker forbids it to everybody."""

    condition = conditions.NOT_ALLOWED


class InvalidField(AmqpError):
    """A field has a value that it cannot have."""

    condition = conditions.INVALID_FIELD


class NotImplementedHere(AmqpError):
    """Part of the standard that this broker does not implement."""

    condition = conditions.NOT_IMPLEMENTED


class PreconditionFailed(AmqpError):
    """The request disagrees with the state that it assumes."""

    condition = conditions.PRECONDITION_FAILED


class ResourceLimitExceeded(AmqpError):
    """A named limit is reached."""

    condition = conditions.RESOURCE_LIMIT_EXCEEDED


class ResourceLocked(AmqpError):
    """Another party holds the resource exclusively."""

    condition = conditions.RESOURCE_LOCKED


class ResourceDeleted(AmqpError):
    """The resource existed when the link was attached and does not any more."""

    condition = conditions.RESOURCE_DELETED


class DecodeError(AmqpError):
    """Octets that the standard does not allow."""

    condition = conditions.DECODE_ERROR


class MessageSizeExceeded(AmqpError):
    """The message is larger than the link's max-message-size (part 2 §2.8.18)."""

    condition = conditions.LINK_MESSAGE_SIZE_EXCEEDED


class InternalError(AmqpError):
    """This broker failed; the cause is in its log."""

    condition = conditions.INTERNAL_ERROR


class ConfigError(AmqprouteError):
    """The configuration cannot be used.

    Attributes:
        problems: one line each: ``file:line: key: what is wrong (hint)``.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StoreError(AmqprouteError):
    """The durable store cannot perform an operation; nothing was half done."""


class StoreUnavailable(StoreError):
    """The disk is full or failing for now; the operation may be tried again."""


class StoreIntakeClosed(StoreUnavailable):
    """The database proved damaged while it was open: nothing is accepted before a restart."""


class StagingFull(StoreError):
    """A bound of what may be staged is reached.

    Attributes:
        is_number: whether it is a number of contents, rather than of octets.
    """

    def __init__(self, words: str, is_number: bool = False) -> None:
        super().__init__(words)
        self.is_number = is_number


class StagedContentLost(StoreError):
    """A staged content has expired, was taken over by another connection, or was removed."""


class StoreDamaged(StoreError):
    """The store is damaged: an operator has to decide, a restart does not help."""


class StoreForeign(StoreError):
    """The database belongs to another program or to a newer release; it is never opened."""


class StoreContradiction(StoreDamaged):
    """The store lacks something that it held last.

    Attributes:
        finding: the name of the contradiction (`amqproute.store.start_evidence`).
    """

    def __init__(self, description: str, finding: str) -> None:
        super().__init__(description)
        self.finding = finding


class MessageDamaged(StoreError):
    """The stored octets of one message are damaged; others are not affected."""


class ResolveError(AmqprouteError):
    """The DNS gave no candidate for a domain.

    Attributes:
        code: the stable code, for example ``dns.nxdomain``.
        permanent: True when the answer proves that there is no such service.
        attempts: questions and answers, a line each.
        ttl: validity of a permanent answer in seconds, by its zone; None if unknown.
    """

    def __init__(
        self,
        code: str,
        description: str,
        *,
        permanent: bool,
        attempts: tuple[str, ...] = (),
        ttl: float | None = None,
    ) -> None:
        super().__init__(description)
        self.code = code
        self.permanent = permanent
        self.attempts = attempts
        self.ttl = ttl


class TlsError(AmqprouteError):
    """A TLS context cannot be built, or a peer did not prove its name.

    Attributes:
        code: the stable code, for example ``tls.name`` or ``tls.expired``.
    """

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


class AuthenticationFailed(AmqprouteError):
    """Our side of a SASL exchange cannot continue, or the server did not prove itself.

    Attributes:
        code: the stable code, for example ``auth.server`` or ``auth.mechanism``.
    """

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


class Unresolved(AmqprouteError):
    """It is unknown yet whether a domain has a route: ask `IHops.admit` and try again.

    Attributes:
        hop: the next hop to ask about.
    """

    # Any: a `NextHop`, which is of a layer above.
    def __init__(self, hop: Any) -> None:
        super().__init__(str(hop))
        self.hop = hop


class ConnectError(AmqprouteError):
    """There is no connection to a peer, or none that can be trusted.

    Attributes:
        code: the stable code: ``connect.refused``, ``connect.timeout``, ``connect.unreachable``,
            ``connect.name``, or that of a `TlsError`.
        attempts: addresses tried and their errors, a line each.
    """

    def __init__(self, code: str, description: str, attempts: tuple[str, ...] = ()) -> None:
        super().__init__(description)
        self.code = code
        self.attempts = attempts


class ListenError(AmqprouteError):
    """A listener cannot be opened; the words say which and why."""
