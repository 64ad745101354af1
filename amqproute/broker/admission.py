# SPDX-License-Identifier: Apache-2.0
"""Checks of links and messages against a queue's options (N-14, Q-19 to Q-21, K-15)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from amqproute.broker.node_options import (
    Durability,
    Excess,
    NonTransactional,
    QueueOptions,
    Visibility,
)
from amqproute.errors import (
    NotAllowed,
    PreconditionFailed,
    ResourceLimitExceeded,
    ResourceLocked,
)
from amqproute.message import Message

NON_TRANSACTED: Final = "x-opt-non-transacted"
_OUTBOUND: Final = Visibility.OUTBOUND  # looked up for each message; slow before Python 3.12


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Effects of the options on each message, derived once.

    Attributes:
        keeps_all: every message is stored.
        keeps_nothing: none is.
        expires: messages whose time is over go.
        is_selective: messages are examined before they are taken; else all are.
    """

    keeps_all: bool
    keeps_nothing: bool
    expires: bool
    is_selective: bool


@lru_cache(maxsize=256)
def rules_of(options: QueueOptions, force_transient: bool, is_ending: bool) -> AdmissionRules:
    """Return what options mean.

    Args:
        options: the options of the queue.
        force_transient: nothing is stored whatever they say (Q-18).
        is_ending: the queue takes nothing any more.
    """
    keeps_nothing = options.durability is Durability.TRANSIENT or force_transient
    return AdmissionRules(
        keeps_all=options.durability is Durability.FORCED and not keeps_nothing,
        keeps_nothing=keeps_nothing,
        expires=options.archive_expired,
        is_selective=(
            is_ending
            or options.non_transactional is not NonTransactional.ALL
            or (keeps_nothing and not options.takes_durable)
        ),
    )


def check_source(name: str, options: QueueOptions, copies: bool, movers: int) -> None:
    """Refuse a link that would receive (N-14, Q-20, Q-21).

    Args:
        name: the queue's.
        options: its options.
        copies: the link browses.
        movers: other consumers that take entries away.

    Raises:
        AmqpError: it may not.
    """
    if options.visibility is Visibility.INBOUND:
        raise NotAllowed(f"{name!r} can be sent to only: it has visibility inbound")
    most = options.destructive_links
    if copies or most is None:
        return
    if most == 0:
        raise NotAllowed(f"{name!r} can be browsed only: distribution-mode copy")
    if options.excess is Excess.FAIL and movers >= most:
        words = (
            f"{name!r} has as many consumers as it may have, {most}: attach when one has gone, or "
            "browse with distribution-mode copy"
        )
        if most == 1:
            raise ResourceLocked(words)
        raise ResourceLimitExceeded(words, info={"limiter": "maximum-destructive-links"})


def check_target(name: str, options: QueueOptions) -> None:
    """Refuse a link, or a message, to a queue that can be received from only (N-14).

    Raises:
        NotAllowed: it can.
    """
    if options.visibility is _OUTBOUND:
        raise NotAllowed(f"{name!r} can be received from only: visibility outbound")


def check_message(
    name: str, options: QueueOptions, message: Message, is_transactional: bool, keeps_nothing: bool
) -> None:
    """Refuse what a choosy queue does not take (Q-19, K-15).

    Args:
        name: the queue's.
        options: its options.
        message: what comes.
        is_transactional: whether it is part of a transaction.
        keeps_nothing: the queue writes nothing to the store.

    Raises:
        AmqpError: it is not taken.
    """
    if keeps_nothing and not options.takes_durable and message.header.durable:
        raise PreconditionFailed(
            f"queue {name} keeps messages in memory only: durable ones are not taken"
        )
    if options.non_transactional is NonTransactional.ALL:
        return
    is_flagged = is_non_transacted(message)
    if options.non_transactional is NonTransactional.UNSUPPORTED:
        if is_flagged:
            raise NotAllowed(f"queue {name} takes no non-transacted messages")
    elif is_transactional and not is_flagged:
        raise NotAllowed(f"queue {name} takes non-transacted messages only")


def is_non_transacted(message: Message) -> bool:
    """Tell whether a message takes no part in transactions, whatever it is sent in (M-21)."""
    if not (message.located or message.offsets).message_annotations_end:
        return False
    return message.annotations.get(NON_TRANSACTED) is True
