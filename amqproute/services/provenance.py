# SPDX-License-Identifier: Apache-2.0
"""Proved origin of messages: claims that clients and peers may make about themselves.

The origin of a message is a domain, in the message annotation ``x-opt-amqproute-origin``. Every
broker that accepts a message checks or sets it:

==============  ====================================================================================
sender          what happens
==============  ====================================================================================
a client        the annotation is taken off, whatever it says: the message comes from here. So is
                the mark of reports, which only brokers make. A ``user-id`` that is not the name
                the client has proved is refused, unless a rule grants ``impersonate`` on it (M-17);
                and so are application properties whose names begin with ``amqp.``, which are the
                standard's (M-13)
a peer          an origin that its certificate does not prove, and that is not among its
                ``origins``, is refused; one that is missing is put there: the name it has proved.
                A return address has to be in such a domain too, or one that the peer may have
                messages relayed or transferred to. ``user-id`` is its own broker's matter
==============  ====================================================================================

When a message leaves for a peer, it has the origin that it came with, or the name of this broker.
So a consumer that finds no origin on a message knows that a client of its own broker sent it, and
one that finds one knows that each broker on the way has checked it.

A refusal is ``amqp:not-allowed`` with ``code`` policy.origin, ``proven`` and ``claimed``.

Equal annotations are checked once: those of one producer over one path are equal, octet for octet,
so that a message usually costs one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Protocol

from amqproute.auth.policy import Verb
from amqproute.errors import AmqpError, InvalidField, NotAllowed, UnauthorizedAccess
from amqproute.message import LONGEST_REMEMBERED, Message, annotations_of
from amqproute.services.sender_reports import check_wishes
from amqproute.values import (
    ORIGIN,
    REPORT,
    REPORT_KIND,
    RETURN_TO,
    SECURE_PATH,
    SECURITY_LEVELS,
    Origin,
    Principal,
)

__all__ = ["ClaimRules", "Provenance", "ProvenanceMarks", "marks_of"]

OF_BROKERS: Final = (ORIGIN, REPORT_KIND)
"""Annotations that brokers make and clients do not."""
RESERVED: Final = b"amqp."
"""Reserved prefix of names of application properties (revision 200 §5.3)."""
LONGEST_QUOTE: Final = 256
ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class ProvenanceMarks:
    """Annotations of a message that brokers act on; `ABSENT` for missing ones.

    Attributes:
        origin: the claimed domain of origin.
        return_to: the requested return address.
        fault: the refusal of a client that sends it; None if there is none.
        path_fault: the refusal of an unknown demand on the path; None if there is none.
        is_of_brokers: whether it has annotations that only brokers make.
    """

    origin: object = ABSENT
    return_to: object = ABSENT
    fault: str | None = None
    path_fault: str | None = None
    is_of_brokers: bool = False


NO_MARKS: Final = ProvenanceMarks()


def marks_of(section: bytes) -> ProvenanceMarks:
    """Return the marks in a message-annotations section.

    Raises:
        DecodeError: it is not a map of symbols (M-24).
    """
    if not section:
        return NO_MARKS
    return _remembered(section) if len(section) <= LONGEST_REMEMBERED else _read(section)


def _read(section: bytes) -> ProvenanceMarks:
    annotations = annotations_of(section)
    fault = path_fault = None
    if REPORT in annotations:
        fault = check_wishes(annotations[REPORT])
    if SECURE_PATH in annotations and annotations[SECURE_PATH] not in SECURITY_LEVELS[1:]:
        wanted = ", ".join(SECURITY_LEVELS[1:])
        path_fault = f"{SECURE_PATH} is {str(annotations[SECURE_PATH])[:64]!r}, none of {wanted}"
    return ProvenanceMarks(
        annotations.get(ORIGIN, ABSENT),
        annotations.get(RETURN_TO, ABSENT),
        path_fault or fault,
        path_fault,
        any(mark in annotations for mark in OF_BROKERS),
    )


_remembered = lru_cache(maxsize=1024)(_read)


class ClaimRules(Protocol):
    """Decisions about the claims of senders, by the rules in force."""

    def allows(self, principal: Principal, verb: Verb, name: str) -> bool:
        """Apply the access rules."""

    def origins(self, principal: Principal) -> Sequence[str]:
        """Return the domain patterns that a peer may speak for, beside the names it proves."""

    def may_return_to(self, address: object, origin: Origin) -> bool:
        """Return whether a sender may have messages returned to an address."""

    def check_trail(self, section: bytes) -> None:
        """Raise `NotAllowed` for the message annotations of a mail loop."""


class Provenance:
    """Checks the claims of senders, and records their proved origin.

    Args:
        rules: decide about claims.
    """

    def __init__(self, rules: ClaimRules) -> None:
        self._rules = rules

    def admitted(self, message: Message, origin: Origin) -> Message:
        """Return a message in the form in which it is accepted from its sender.

        Raises:
            NotAllowed: its sender cannot speak for the claimed origin.
            UnauthorizedAccess: a client claims a name, or a return address, that is not its own.
            InvalidField: a client uses an unknown value.
            DecodeError: annotations or properties cannot be read.
        """
        offsets = message.located or message.offsets
        marks = NO_MARKS
        if offsets.message_annotations_end:
            marks = marks_of(message.annotation_bytes)
        if origin.is_peer:
            return self._from_peer(message, marks, origin)
        return self._from_client(message, marks, origin)

    # -- peers -----------------------------------------------------------------------------------

    def speaks_for(self, principal: Principal, domain: object) -> bool:
        """Return whether a peer may hand over messages from a domain."""
        if not isinstance(domain, str):
            return False
        if domain in principal.names or domain == principal.name:
            return True
        return any(fnmatchcase(domain, pattern) for pattern in self._rules.origins(principal))

    def _from_peer(self, message: Message, marks: ProvenanceMarks, origin: Origin) -> Message:
        principal = origin.principal
        if marks.path_fault is not None:
            raise NotAllowed(marks.path_fault, info={"code": "policy.path"})
        if marks.return_to is not ABSENT and not self._rules.may_return_to(marks.return_to, origin):
            raise _forged(principal, RETURN_TO, marks.return_to)
        if marks.origin is ABSENT:
            return message.with_annotations({ORIGIN: principal.name})
        if not self.speaks_for(principal, marks.origin):
            # A message that returns to its origin is a loop, which is the better error than a
            # forgery.
            self._rules.check_trail(message.annotation_bytes)
            raise _forged(principal, ORIGIN, marks.origin)
        return message

    # -- clients ---------------------------------------------------------------------------------

    def _from_client(self, message: Message, marks: ProvenanceMarks, origin: Origin) -> Message:
        user = message.user_id
        if user:
            self._check_user(user, origin.principal)
        offsets = message.located or message.offsets
        start = offsets.application_properties_start
        if message.encoded.find(RESERVED, start, offsets.application_properties_end) >= 0:
            _check_names(message)
        if marks is NO_MARKS:
            return message
        if marks.fault is not None:
            raise InvalidField(marks.fault)
        if marks.return_to is not ABSENT and not self._rules.may_return_to(marks.return_to, origin):
            raise UnauthorizedAccess(
                f"{origin.principal} may not have messages returned to "
                f"{str(marks.return_to)[:LONGEST_QUOTE]!r}"
            )
        if marks.is_of_brokers:
            return message.with_annotations({}, drop=OF_BROKERS)
        return message

    def _check_user(self, user: object, principal: Principal) -> None:
        name = bytes(user).decode("utf-8", "replace") if isinstance(user, bytes) else str(user)
        if name == principal.name or self._rules.allows(principal, Verb.IMPERSONATE, name):
            return
        raise UnauthorizedAccess(
            f"user-id is {name[:LONGEST_QUOTE]!r}, and the sender has proved to be {principal}",
            info={
                "code": "policy.user-id",
                "proven": str(principal),
                "claimed": name[:LONGEST_QUOTE],
            },
        )


def _check_names(message: Message) -> None:
    for name in message.application_properties:
        if name.startswith(RESERVED.decode()):
            raise InvalidField(
                f"the application property {name[:LONGEST_QUOTE]!r} has a name of the standard's: "
                "what begins with 'amqp.' is not for applications",
                info={"code": "policy.property-name", "claimed": name[:LONGEST_QUOTE]},
            )


def _forged(principal: Principal, what: str, claimed: object) -> AmqpError:
    quoted = str(claimed)[:LONGEST_QUOTE]
    return NotAllowed(
        f"{what} is {quoted!r}, and {principal} does not speak for it",
        info={"code": "policy.origin", "proven": principal.name, "claimed": quoted},
    )
