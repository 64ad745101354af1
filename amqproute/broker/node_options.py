# SPDX-License-Identifier: Apache-2.0
"""Options of queues, set by an operator or by the creator of a dynamic node.

The words are those of the configuration and of ``dynamic-node-properties`` alike. The bounds are
in `amqproute.broker.node_limits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Durability(StrEnum):
    """Durability of entries (message-durability-mode, Q-17)."""

    MESSAGE = "message"
    """Those of messages that ask for it."""
    FORCED = "force-durable"
    """All of them."""
    TRANSIENT = "force-transient"
    """None: after a restart nothing that came before is found."""


class NonTransactional(StrEnum):
    """Support for non-transacted messages (non-transactional-support, Q-19)."""

    ALL = "all"
    UNSUPPORTED = "unsupported"
    """None that are flagged as not taking part in transactions."""
    ONLY = "only"
    """None that are part of a transaction."""


class Excess(StrEnum):
    """Treatment of a consumer above the limit (excess-destructive-link-policy, Q-21)."""

    FAIL = "fail"
    WAIT = "wait"


class Duplicates(StrEnum):
    """Scope of duplicate detection (duplicate-policy, M-07)."""

    GLOBAL_IDS = "global-ids"
    """Those with a message-id that is a uuid, binary or string."""
    ALL = "all"
    """Those with a number as well, although many clients number theirs from 1 on in every run."""
    OFF = "off"


class Visibility(StrEnum):
    """In which roles a node can be addressed (N-13)."""

    BOTH = "both"
    INBOUND = "inbound"
    """Messages can be sent to it."""
    OUTBOUND = "outbound"
    """Messages can be received from it."""


class Lifetime(StrEnum):
    """When a dynamic node goes (part 3 §3.5.10 to §3.5.13, K-21)."""

    CLOSE = "delete-on-close"
    """With the link it was made for."""
    NO_LINKS = "delete-on-no-links"
    """As soon as no link is attached to it."""
    NO_MESSAGES = "delete-on-no-messages"
    """When the link it was made for has gone, and it is empty."""
    NO_LINKS_OR_MESSAGES = "delete-on-no-links-or-messages"
    """As soon as no link is attached to it, and it is empty."""
    SESSION = "session"
    """With the session it was made on (exclusive nodes)."""


OUTCOMES = ("accepted", "rejected", "released", "modified")


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The habits of one queue.

    Attributes:
        durability: which entries are stored.
        takes_durable: whether durable messages are taken where none are stored (K-15).
        non_transactional: which messages are taken as to transactions.
        destructive_links: most consumers that take messages away; None for no limit, 0 to permit
            browsers only (Q-20).
        excess: the treatment of a message above the limit.
        archive_expired: entries whose time is over are archived; else they stay (K-12).
        archive_unreachable: an entry goes as soon as no attached link needs it (Q-23).
        duplicates: which messages are taken once only.
        visibility: the roles in which it can be addressed.
        default_outcomes: default outcomes that links may have (O-23), the preferred one first.
    """

    durability: Durability = Durability.MESSAGE
    takes_durable: bool = True
    non_transactional: NonTransactional = NonTransactional.ALL
    destructive_links: int | None = None
    excess: Excess = Excess.FAIL
    archive_expired: bool = True
    archive_unreachable: bool = False
    duplicates: Duplicates = Duplicates.OFF
    visibility: Visibility = Visibility.BOTH
    default_outcomes: tuple[str, ...] = ("released", "accepted", "rejected", "modified")


USUAL_OPTIONS = QueueOptions()
"""The habits of a queue of which nothing is said."""
