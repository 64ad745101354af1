# SPDX-License-Identifier: Apache-2.0
"""Early delivery of entries while their commit is in progress.

A single message would wait for the disk of each broker in turn. Instead it is relayed, or delivered
to a consumer, while it is being written. Its sender still gets no answer before it is on the disk.
Only failures of the disk or the process have other effects:

* *The process dies before the commit.* The message was not accepted, so its sender is in doubt and
  may send it again, as after any lost connection. So only messages of plain publishers are
  delivered early. Where the sender will ask, and is entitled to an answer, nothing is relayed
  before it is safe: messages of a peer with receipts go early to local consumers only, since a
  crash can always make them see a message twice; messages of a link with a durable terminus never
  do.
* *The commit fails.* Delivered entries cannot be taken back: they live on, in memory only, until
  they are settled. The sender's link ends with an error, without an outcome for these: they are in
  doubt. There is no early delivery while the gate is closed, so this takes a disk that fails with
  room left.

Order is kept: an entry is delivered early only if nothing waits before it, neither on the lines nor
in another batch. Entries beyond the consumers' capacity, and all behind them, wait for the commit.

In a queue that takes each message once (`duplicate_filter`) there is no early delivery while two
messages with one id are on their way. An entry that lives on after a failed commit does not make a
repetition of its message a duplicate: it is not safe, and its sender would learn that it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.broker.dispatch import Shares, deal_unlisted
from amqproute.broker.queue_state import QueueState
from amqproute.entry import FLEETING_MS, Entry

__all__ = ["confirm_early", "deal_early", "keep_early"]


def deal_early(state: QueueState, entries: Sequence[Entry], now_ms: int) -> Shares:
    """Acquire entries for early delivery; return the consumers with their entries."""
    consumers = state.consumers
    if consumers.cursors or not state.levels.awaits(len(entries) + len(state.early)):
        return []
    for consumer in consumers.rotation:
        if not consumer.takes_ahead:
            return []
    line = entries[0].line
    for entry in entries:
        # Behind paged entries, out of order, expired by now or at once.
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
    """Note that entries are safe; return those that were not delivered early."""
    rest = []
    for entry in entries:
        size = state.early.pop(entry, None)
        if size is None:
            rest.append(entry)
        else:
            entry.line.passed(size)
    return rest


def keep_early(state: QueueState, entries: Sequence[Entry]) -> list[Entry]:
    """Keep early delivered entries in memory after a failed commit; return the others."""
    for entry in entries:
        if entry in state.early:
            entry.durable = entry.stored = False
    return confirm_early(state, entries)
