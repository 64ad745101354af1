# SPDX-License-Identifier: Apache-2.0
"""Restoration of prepared branches and their transactions after a restart.

The links by which messages came and went are gone. `_Way` stands for the target of a posting,
which is looked up when it is needed; `_Sender` for whoever waited to be told; `_Keeper` for the
consumer that held the entries of a queue. From there on one and the same code acts for branches
of this run of the daemon and for those of an earlier one.

Until then all stays in the store: the posted messages are on no queue, and of the entries that were
taken the lines know the ids and do not hand them out (`xa_queue_holds`). They are read when the
branch is to be resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.entry_list import is_readable
from amqproute.broker.local_transaction import Posting, Retirement, Transaction
from amqproute.broker.queue import Queue
from amqproute.broker.xa_branch import RecoveryRemainder
from amqproute.broker.xa_queue_holds import load_rows
from amqproute.broker.xa_record import ROWS, BranchRecord
from amqproute.entry import Entry
from amqproute.errors import NotFound, StoreError
from amqproute.interfaces import IStore
from amqproute.message import Message
from amqproute.outcomes import Outcome
from amqproute.values import Origin, Principal

Find = Callable[[str, Principal], Any]
"""Finds the `ITarget` of a name that a client used."""


class _Way:
    """Stands for a target."""

    def __init__(self, name: str, principal: Principal, broker: Broker, find: Find) -> None:
        self.name = name
        self._principal = principal
        self._broker = broker
        self._find = find

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """See `ITarget.put`."""
        node: Any = self._broker.queue_of_rows(self.name)
        if node is None:
            node = self._find(self.name, self._principal)
        node.put(message, batch, origin)


class _Sender:
    """Stands for the link that a message came by."""

    def concluded(self, deliveries: Sequence[Any], is_committed: bool) -> None:
        """Nobody is left to be told."""


class _Keeper:
    """Stands for the consumers that held entries of a queue when the daemon ended."""

    copies = False

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def settle_within(self, entries: Sequence[Entry], outcome: Outcome, batch: Batch) -> None:
        """Act on outcomes, within the commit."""
        self.queue.settle(entries, outcome, batch)

    def retake(self, entries: Sequence[Entry]) -> None:
        """Take entries back: that commit failed."""
        self.queue.retake(entries)

    def retired(self, retirements: Sequence[Retirement]) -> None:
        """It was committed."""
        self.queue.dispatch()

    def restored(self, retirements: Sequence[Retirement]) -> None:
        """It was rolled back: the entries are available again."""
        self.queue.release([each.entry for each in retirements])


async def _postings(
    record: BranchRecord, broker: Broker, store: IStore, find: Find, *, is_lenient: bool
) -> list[Posting]:
    sender = _Sender()
    found = await load_rows(store, ROWS, [each.row for each in record.postings])
    bad = [row for row in found if not is_readable(row)]
    if bad:
        broker.set_aside(ROWS, bad, "is no message")
    rows = {row.id: row for row in found if row not in bad}
    gone = [each.row for each in record.postings if each.row not in rows]
    if gone:
        # What is in quarantine now, by us or by the store, does not end with the branch.
        record.postings = [each for each in record.postings if each.row in rows]
        record.lost += len(gone)
    if record.lost and not is_lenient:
        raise StoreError(f"{record.lost} of its messages are missing or damaged")
    return [
        Posting(
            sender,
            None,
            _Way(each.target, each.principal, broker, find),
            Message(rows[each.row].encoded, rows[each.row].rest),
            Origin(each.principal, container_id=each.container_id),
            each.tag,
        )
        for each in record.postings
    ]


async def revive(
    record: BranchRecord,
    transaction: Transaction,
    broker: Broker,
    store: IStore,
    find: Find,
    *,
    is_lenient: bool,
) -> RecoveryRemainder:
    """Put into a new transaction what a record says.

    Args:
        record: the record of a prepared branch.
        transaction: a new one.
        broker: the nodes.
        store: the `IStore`.
        find: see there.
        is_lenient: entries of nodes that are not there may stay where they are, and posted
            messages may be missing: for a roll-back that is all there is to do.

    Returns:
        What it could not put there.

    Raises:
        NotFound: entries belong to a node that the configuration does not name any more.
        StoreError: the records or the posted messages cannot be read.
    """
    held: dict[str, dict[int, Any]] = {}
    for each in record.retirements:
        held.setdefault(each.line, {})[each.entry_id] = each.outcome
    retirements: list[Retirement] = []
    leftover = RecoveryRemainder()
    for line, outcomes in held.items():
        try:
            queue = broker.recovered_nodes.holder(line)
        except NotFound:
            if not is_lenient:
                raise
            leftover.strayed[line] = set(outcomes)
            continue
        keeper = _Keeper(queue)
        entries = await queue.load_recovered(line, sorted(outcomes))
        if len(entries) < len(outcomes):
            gone = len(outcomes) - len(entries)
            leftover.missing[queue] = leftover.missing.get(queue, 0) + gone
        retirements += [
            Retirement(transaction, keeper, None, entry, outcomes[entry.id], True)
            for entry in entries
        ]
    postings = await _postings(record, broker, store, find, is_lenient=is_lenient)
    transaction.restore(postings, retirements)
    return leftover


def forget_leftover(leftover: RecoveryRemainder, broker: Broker) -> None:
    """Give back what a revived branch still held: it is resolved."""
    for line, ids in leftover.strayed.items():
        broker.recovered_nodes.forget_held(line, ids)
    for queue, count in leftover.missing.items():
        queue.forget_recovered(count)


__all__ = ["Find", "forget_leftover", "revive"]
