# SPDX-License-Identifier: Apache-2.0
"""Early delivery of entries while their commit is under way.

A lone message would wait for the disk of each broker in turn: it is sent on, or given to a
consumer, at the same time as it is written instead. Its sender still hears nothing before it is on
the disk. What is different is only who is ahead of whom when the disk fails, or the process dies:

* *The process dies before the commit.* Nobody was told that the message was taken, so its sender is
  in doubt and may send it again, as after any lost connection. So this is done for plain publishers
  only. Where the sender will ask, and is owed an answer, nothing is relayed before it is safe: of
  what a peer with receipts sends only consumers here may have it, since a crash can always make
  them see a message twice; of what comes by a link with a durable terminus nobody.
* *The commit fails.* What was handed out is out of our hands: such entries live on, in memory only,
  until they are settled. The sender's link ends with an error, without an outcome for these: in
  doubt is what it is. Nothing goes ahead while the gate is closed, so this takes a disk that
  fails with room left.

Order is kept: entries go ahead only where nothing waits before them, neither on the lines nor in
another batch. What nobody has room for waits for the commit, and whatever comes behind it too.

In a queue that takes each message once (`duplicate_filter`) nothing goes ahead while two messages
of one id are on their way. What lives on after a failure is no reason to keep off the same message
when it is
sent again: it would not be safe, and its sender would be told that it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.broker.dispatch import Shares, deal_unlisted
from amqproute.broker.queue_state import QueueState
from amqproute.entry import FLEETING_MS, Entry

__all__ = ["confirm_early", "deal_early", "keep_early"]


def deal_early(state: QueueState, entries: Sequence[Entry], now_ms: int) -> Shares:
    """Acquire what may go ahead and has somebody to go to; return who gets what."""
    consumers = state.consumers
    levels = state.levels
    if (
        consumers.cursors
        or not levels.is_empty
        or levels.pending != len(entries) + len(state.early)
    ):
        return []
    for consumer in consumers.rotation:
        if not consumer.takes_ahead:
            return []
    line = entries[0].line
    for entry in entries:
        # Behind what is paged, in another order than it came, or over by now or once offered.
        if entry.taken or entry.line is not line:
            return []
        if 0 < entry.expires_ms <= now_ms or entry.expires_ms == FLEETING_MS:
            return []
    dealt = deal_unlisted(state, entries)
    for _, share in dealt:
        for entry in share:
            entry.taken = True
            state.early[entry] = len(entry.message.encoded)
    return dealt


def confirm_early(state: QueueState, entries: Sequence[Entry]) -> list[Entry]:
    """Note that entries are safe; return those that did not go ahead."""
    rest = []
    for entry in entries:
        size = state.early.pop(entry, None)
        if size is None:
            rest.append(entry)
        else:
            entry.line.passed(size)
    return rest


def keep_early(state: QueueState, entries: Sequence[Entry]) -> list[Entry]:
    """Let those that went ahead live on in memory, since their commit failed; return the others."""
    for entry in entries:
        if entry in state.early:
            entry.durable = entry.stored = False
    return confirm_early(state, entries)
