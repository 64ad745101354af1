# SPDX-License-Identifier: Apache-2.0
"""Admission of messages to a queue, and their places.

A message is refused, or gets a place: its line, whether it goes to the store and stays in memory,
and its time of expiry. The queue then makes an entry of it, which belongs to its sender's batch
(`broker.queue.Queue.put`).
"""

from __future__ import annotations

from amqproute.broker import admission
from amqproute.broker.entry_list import EntryList
from amqproute.broker.length_limit import waiting_octets
from amqproute.broker.priority_queues import USUAL_PRIORITY, level_of
from amqproute.broker.queue_state import QueueState
from amqproute.errors import NotImplementedHere, ResourceDeleted, ResourceLimitExceeded
from amqproute.message import Message
from amqproute.plurals import counted

__all__ = ["Admission", "admit"]

Admission = tuple[EntryList, bool, bool, int]
"""The line of a message; whether it is paged: in the store only, until the line
has come to it; whether it survives the daemon; when it expires, ms since the epoch, or 0."""


def admit(
    state: QueueState,
    message: Message,
    now_ms: int,
    *,
    is_transactional: bool = False,
    is_dead_letter: bool = False,
    leaving: int = 0,
) -> Admission:
    """Decide whether and where a message is kept.

    Args:
        state: the state of the queue.
        message: the arriving message.
        now_ms: the wall clock of its batch.
        is_transactional: whether it belongs to a client's transaction (Q-19).
        is_dead_letter: whether it left a queue undelivered; its life does not end a second time.
        leaving: entries that end with the same batch, and need no place any more.

    Raises:
        AmqpError: the message is refused, with the condition for its sender.
    """
    rules = state.rules
    limits = state.limits
    if rules.is_selective:
        if state.is_ending:
            raise ResourceDeleted(f"node {state.name} does not exist any more")
        admission.check_message(
            state.name, state.options, message, is_transactional, rules.keeps_nothing
        )
    if limits.capacity and state.taken - leaving >= limits.capacity:
        raise ResourceLimitExceeded(
            f"queue {state.name} is full: {counted(limits.capacity, 'message')}",
            info={"limiter": "capacity"},
        )
    if limits.octets is not None and not limits.drops_head:
        _require_octets(state, len(message.encoded))
    line = state.levels.usual
    header = message.header
    if header.priority != USUAL_PRIORITY and limits.priorities > 1:
        line = state.levels.line(level_of(header.priority, limits.priorities))
    offsets = message.located  # it was looked at for the header
    if offsets is not None and offsets.delivery_annotations_end and state.is_relay:
        _require_standard_format(message)
    pages = line.must_page(len(message.encoded), limits)
    if pages and state.force_transient:
        raise ResourceLimitExceeded(
            f"queue {state.name} is full: it lives in memory only", info={"limiter": "memory"}
        )
    expires_ms = 0 if is_dead_letter or not rules.expires else message.expires_ms(now_ms)
    if limits.ttl_ms:
        latest = now_ms + limits.ttl_ms
        expires_ms = min(expires_ms, latest) if expires_ms else latest
    is_durable = (header.durable or rules.keeps_all) and not rules.keeps_nothing
    return line, pages, is_durable, expires_ms


def _require_octets(state: QueueState, size: int) -> None:
    """Check the limit of waiting octets.

    Raises:
        ResourceLimitExceeded: the message would exceed it.
    """
    most = state.limits.octets
    if most is not None and waiting_octets(state) + size > most:
        raise ResourceLimitExceeded(
            f"queue {state.name} is full: {counted(most, 'octet')}", info={"limiter": "capacity"}
        )


def _require_standard_format(message: Message) -> None:
    """Check that a message can go to another broker: it needs a place for a trace (M-09, T-27).

    Raises:
        NotImplementedHere: it is of another message-format than that of part 3.
    """
    if message.foreign_format:
        raise NotImplementedHere(
            f"a message of message-format {message.foreign_format} is not sent to other brokers"
        )
