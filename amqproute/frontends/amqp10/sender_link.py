# SPDX-License-Identifier: Apache-2.0
"""Outgoing links: entries from a source to the peer.

When a link is detached and may come back, its deliveries go to `suspended_links.ParkedDeliveries`;
when it is back, `SenderLink.resume` compares them with the receiver's unsettled map, and deliveries
to be sent again go out, as credit allows, before new ones.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.broker.commit_batch import Batch
from amqproute.broker.entry_removal import DAMAGED_WORDS
from amqproute.broker.large_message_sender import LargeMessageSender
from amqproute.broker.local_transaction import Retirement, Transaction
from amqproute.broker.subscription import DurableSubscription, is_seen
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    InvalidField,
    MessageDamaged,
    MessageSizeExceeded,
    NotImplementedHere,
)
from amqproute.frontends.amqp10.delivery_resumption import (
    OUTCOMES,
    ResumedDelivery,
    by_outcome,
    compare,
)
from amqproute.frontends.amqp10.link_refusal import error_of
from amqproute.frontends.amqp10.link_table import AttachedLink, LinkTable
from amqproute.frontends.amqp10.lock_timeout import LockMonitor
from amqproute.frontends.amqp10.suspended_links import (
    ParkedDeliveries,
    RetentionPolicy,
    without_words,
)
from amqproute.frontends.common.consuming_endpoint import ConsumingEndpoint
from amqproute.frontends.common.peer_error_log import short
from amqproute.interfaces import INode, ISource
from amqproute.outcomes import ACCEPTED, FAILED, RELEASED, UNREADABLE, Modification, Outcome
from amqproute.values import TAG_OCTETS, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.delivery_states import (
    ACCEPTED_STATE,
    RELEASED_STATE,
    outcome_of,
    state_of,
)
from amqproute.wire.amqp10.link import Delivery, Link, OutgoingParts
from amqproute.wire.amqp10.types import Symbol

__all__ = ["SenderLink"]

FAILED_STATE = spec.Modified(delivery_failed=True)
TXN_ID = Symbol("txn-id")
"""Link state property: the transaction in which messages are acquired (part 4 §4.4.3)."""
_TAG_OCTETS = 4
_TAG = struct.Struct(">I").pack


class SenderLink(ConsumingEndpoint, AttachedLink):
    """An `IConsumer` that sends entries on a link and applies their outcomes.

    Args:
        links: the links of its connection.
        link: our sending end.
        source: the `ISource`.
        default_outcome: the outcome for deliveries settled without one, or orphaned (O-17).
        settled: the receiver asked for settled deliveries (snd-settle-mode settled).
        dynamic: whether the source was created for this link and is deleted with it.
        copies: whether the link browses.
        by_entry: whether the receiver wants entry ids as delivery-tags, which are the same for all
            deliveries of an entry.

    Attributes:
        retention: how long its deliveries outlive the link; None if they do not.
    """

    __slots__ = (
        "__weakref__",
        "_acquiring",
        "_again",
        "_agreed",
        "_behind",
        "_by_entry",
        "_ending",
        "_is_gone",
        "_large",
        "_left",
        "_links",
        "_locks",
        "_parked",
        "_presumed",
        "_tags",
        "default_outcome",
        "link",
        "retention",
        "settled",
    )

    def __init__(
        self,
        links: LinkTable,
        link: Link,
        source: ISource,
        default_outcome: Outcome,
        settled: bool,
        dynamic: bool,
        copies: bool = False,
        by_entry: bool = False,
    ) -> None:
        super().__init__(links.connection, source, link.name, copies, dynamic)
        self._links = links
        self._by_entry = by_entry
        self.link = link
        self.default_outcome = default_outcome
        self.settled = settled
        self.retention: RetentionPolicy | None = None
        self._tags = 0
        self._is_gone = False
        # Parked deliveries to be sent again; and those in an unknown state.
        self._again: deque[ResumedDelivery] = deque()
        self._left: dict[bytes, Entry] = {}
        self._parked: ParkedDeliveries | None = None
        # A very large message that is being sent; entries that wait for the end of it, or for a
        # delivery-tag.
        self._large: LargeMessageSender[OutgoingParts] | None = None
        self._behind: list[Entry] = []
        self._acquiring: Transaction | None = None
        # Browsers lock no entries, nor do subscribers that share messages in memory.
        self._locks: LockMonitor | None = None
        if not (copies or settled or self.is_volatile):
            context = self._context
            self._locks = LockMonitor(
                context.transactions.clock,
                context,
                link,
                self._is_sent,
                self._take_back,
            )
        # Deliveries whose outcome waits for the discharge of a transaction.
        self._ending: dict[Delivery, Retirement] = {}
        outcomes = link.source.outcomes if link.source is not None else ()
        self._agreed = tuple(each for each in OUTCOMES if each.symbol in outcomes) or OUTCOMES
        # A receiver with a single outcome can be presumed to choose it: subscribers (S-06) and
        # consumers (S-23). This settles nothing.
        self._presumed = self._agreed[0]() if len(self._agreed) == 1 else None

    def __repr__(self) -> str:
        return f"<SenderLink {self.link.name!r} from {self.source.name} credit={self.link.credit}>"

    # -- LinkEndpoint ----------------------------------------------------------------------------

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`."""
        termini = self._links.context.termini
        termini.check_source(self.link.source, principal, self.copies)

    # -- IConsumer -----------------------------------------------------------------------------

    @property
    def takes_ahead(self) -> bool:
        """See `IConsumer.takes_ahead`; what a transaction acquires is there for certain."""
        return self._acquiring is None

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        if self._again or self._behind:
            return 0
        link = self.link
        return self._room(link.sendable, len(link.unsettled))

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        link = self.link
        now_ms = self._connection.now_ms()
        send = link.send
        settled = self.settled
        sent = []
        transaction = self._acquiring_now()
        state: Any = self._presumed
        if transaction is not None:
            state = spec.TransactionalState(txn_id=transaction.id)
        for entry in entries:
            tag = self._tag_for(entry)
            if tag in link.unsettled:  # it was released, and is not settled yet
                self._behind = list(entries[entries.index(entry) :])
                break
            message = entry.message
            parts, message_format = _as_transferred(entry, now_ms)
            try:
                if message.rest is not None:
                    delivery = self._start_large(entry, parts, tag, message_format, state)
                else:
                    delivery = send(
                        parts,
                        tag,
                        settled=settled,
                        message_format=message_format,
                        state=state,
                        context=entry,
                    )
            except MessageSizeExceeded:
                self._too_large(entry)
                continue
            if not self.copies:
                entry.attempted = True
            if not self.is_volatile:
                # Subscribers share decoded sections; their topic drops them when all have it.
                message.forget()
            self._bytes += len(message.encoded)
            if self._large is None:
                sent.append(entry)
            if transaction is not None:
                transaction.acquire(self, delivery)
            if self._large is not None:
                self._behind = list(entries[entries.index(entry) + 1 :])
                break
        if settled and sent:
            self._bytes = 0
            self._settle(sent, ACCEPTED)
        if self._locks is not None:
            self._locks.watch()
        self._connection.flush()

    def _tag_for(self, entry: Entry) -> bytes:
        """Return the delivery-tag for a new delivery of an entry."""
        if self._by_entry:
            return entry.id.to_bytes(TAG_OCTETS, "big")
        self._tags = (self._tags + 1) & 0xFFFFFFFF
        while _TAG(self._tags) in self.link.unsettled:  # in use after a wrap-around
            self._tags = (self._tags + 1) & 0xFFFFFFFF
        return _TAG(self._tags)

    # -- very large messages -------------------------------------------------------------------

    def _start_large(
        self,
        entry: Entry,
        head: Sequence[bytes],
        tag: bytes,
        message_format: int,
        state: Any = None,
        resume: bool = False,
    ) -> Delivery:
        """Begin to send a message that is not in memory; meanwhile the link sends no other."""
        rest = entry.message.rest
        assert rest is not None
        size = sum(map(len, head)) + rest.size
        outgoing = self.link.send_parts(
            size,
            tag,
            settled=self.settled,
            message_format=message_format,
            state=state,
            context=entry,
            resume=resume,
        )
        connection = self._connection
        self._large = LargeMessageSender(
            entry, outgoing, head, lambda: connection.is_paused, connection.flush, self._large_sent
        )
        return outgoing.delivery

    def _large_sent(
        self, large: LargeMessageSender[OutgoingParts], failure: Failure | None
    ) -> None:
        self._large = None
        connection = self._connection
        entry = large.entry
        if failure is not None:
            self.forget([entry])
            outcome: Outcome = UNREADABLE
            if isinstance(failure.value, MessageDamaged):
                connection.log.error(
                    DAMAGED_WORDS,
                    entry=entry.id,
                    node=self.source.name,
                    why=str(failure.value),
                )
            else:
                outcome = Modification(delivery_failed=True, undeliverable_here=True)
                connection.log.failure(
                    "message {entry} of {node} cannot be read",
                    failure,
                    entry=entry.id,
                    node=self.source.name,
                )
            self._settle([entry], outcome)
        elif self.settled:
            self.forget([entry])
            self._settle([entry], ACCEPTED)
        # Not from here: the caller may be the reader, a disposition or a flow.
        connection.event_batch.afterwards(self.dispatch)

    def _stop_large(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            large.stop()

    def _deliver_behind(self) -> None:
        link = self.link
        count = min(self._room(link.sendable, len(link.unsettled)), len(self._behind))
        if count > 0:
            entries, self._behind = self._behind[:count], self._behind[count:]
            later = self._behind
            self.deliver(entries)
            if later is not self._behind:
                self._behind += later

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        if self.copies:
            return []
        held = [delivery.context for delivery in self.link.unsettled.values() if delivery.context]
        held.extend(retirement.entry for retirement in self._ending.values())
        held.extend(each.entry for each in self._again if each.entry is not None)
        held.extend(self._left.values())
        held.extend(self._behind)
        if self._large is not None and self.settled:
            held.append(self._large.entry)
        return held

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: answer a drain (F-10), once all that is here has been sent."""
        link = self.link
        # Without credit waiting entries could not be sent before the answer.
        waits = self._large is not None or (link.credit > 0 and (self._behind or self._again))
        if link.drain and link.is_active and not waits:
            link.drained()
            self._connection.flush()

    def _too_large(self, entry: Entry) -> None:
        """Release an entry beyond the receiver's max-message-size; other consumers may take it."""
        self._settle([entry], Modification(undeliverable_here=True))

    # -- resumption (part 2 §2.6.13) -------------------------------------------------------------

    def resume(
        self, parked: ParkedDeliveries, theirs: Mapping[bytes, object], is_complete: bool
    ) -> None:
        """Take over the deliveries of an earlier attachment, and settle those in doubt.

        Args:
            parked: the deliveries.
            theirs: the receiver's unsettled map.
            is_complete: whether that map is complete.
        """
        self._tags = parked.last_tag
        entries, parked.entries = parked.entries, {}
        self._hold(entries.values())
        found = compare(entries, theirs, is_complete, self._agreed)
        self._again.extend(found.again)
        self._left = found.left
        for state, decided in by_outcome(found.decided):
            self.forget(decided)
            self._settle(decided, outcome_of(state) or RELEASED)
        if found.wrong is not None:
            words = self._not_agreed(found.wrong)
            self._break(conditions.NOT_ALLOWED, words, ())  # O-31

    def avoid_tags(self, theirs: Mapping[bytes, object]) -> None:
        """Avoid tags that the receiver may still have in its map."""
        ours = [int.from_bytes(tag, "big") for tag in theirs if len(tag) == _TAG_OCTETS]
        self._tags = max([self._tags, *ours])

    def dispatch(self) -> None:
        """See `NodeEndpoint.dispatch`: deliveries to be sent again come first."""
        if self._large is not None:
            self._large.go()
        if self._large is None and self._again:
            self._send_again()
        if self._large is None and self._behind:
            self._deliver_behind()
        self.source.dispatch()

    def _send_again(self) -> None:
        link = self.link
        connection = self._connection
        now_ms = connection.now_ms()
        answers: list[tuple[Any, Delivery]] = []
        while self._again and not (connection.is_paused or self._context.is_stopping):
            if not link.is_active or min(link.credit, link.session.remote_incoming_window) <= 0:
                break
            if self._large is not None:
                break
            each = self._again.popleft()
            entry = each.entry
            if entry is None:
                state = without_words(each.state)
                delivery = link.send((b"",), each.tag, state=state, resume=True)
                delivery.local_state = each.state
                answers.append((each.state, delivery))
                continue
            parts, message_format = _as_transferred(entry, now_ms)
            try:
                if entry.message.rest is not None:
                    self._start_large(entry, parts, each.tag, message_format, resume=each.resumes)
                else:
                    link.send(
                        parts,
                        each.tag,
                        message_format=message_format,
                        context=entry,
                        resume=each.resumes,
                    )
            except MessageSizeExceeded:
                self.forget([entry])
                self._too_large(entry)
        for state, deliveries in by_outcome(answers):
            # We settle as well when the receiver's outcome is on the disk.
            self._settle((), outcome_of(state) or RELEASED, deliveries)
        if self._locks is not None:
            self._locks.watch()
        connection.flush()

    def _held(self, deliveries: Sequence[Delivery]) -> dict[bytes, Entry]:
        """Return all entries held, by tag: sent, to be sent again, and in doubt."""
        held = {each.tag: each.context for each in deliveries if each.context is not None}
        for again in self._again:
            if again.entry is not None:
                held[again.tag] = again.entry
        held.update(self._left)
        for entry in self._behind:
            held[self._tag_for(entry)] = entry
        self._behind = []
        if self._large is not None and self.settled:
            held[self._large.outgoing.delivery.tag] = self._large.entry
        self._stop_large()
        return held

    def _suspend(self, deliveries: Sequence[Delivery]) -> ParkedDeliveries:
        """Park the deliveries of the link, which may come back (O-04, O-06)."""
        self._end()
        entries = self._held(deliveries)
        parked = self._parked = ParkedDeliveries(self.source, self._orphaned, self, self._tags)
        parked.entries = entries
        parked.is_pending = bool(self._ending)
        self._again.clear()
        self._left = {}
        return parked

    def _end(self) -> None:
        self._is_gone = True
        self._acquiring = None
        if self._locks is not None:
            self._locks.stop()
            self._locks = None  # it calls this object: together they would be a cycle
        self.source.detach(self)

    # -- deliveries without an outcome -----------------------------------------------------------

    def _is_sent(self, delivery: Delivery) -> bool:
        """Whether all of a delivery is with the receiver, or on its way there."""
        return delivery.id >= 0 and (
            self._large is None or self._large.outgoing.delivery is not delivery
        )

    def _take_back(self, deliveries: Sequence[Delivery], seconds: float) -> None:
        """Release entries whose lock has timed out, as a failed attempt."""
        entries = [delivery.context for delivery in deliveries]
        for delivery in deliveries:
            delivery.context = None
        self._connection.error_log.add(
            "{connection} ({principal}) link {link}: {count} messages of {node} released: no "
            "outcome for {seconds:g} s (limits.lock-timeout)",
            link=short(self.link.name),
            count=len(entries),
            node=self.source.name,
            seconds=seconds,
        )
        self.link.session.settle(deliveries, FAILED_STATE, True)
        self.forget(entries)
        self._settle(entries, FAILED)
        self._connection.flush()

    # -- the receiver's answers ------------------------------------------------------------------

    def updated(self, deliveries: Sequence[Delivery], state: object, settled: bool) -> None:
        """See `LinkEndpoint.updated`: apply the receiver's outcome."""
        if type(state) is spec.TransactionalState:
            self._updated_within(deliveries, state, settled)
            return
        is_outcome = isinstance(state, self._agreed)
        outcome = ACCEPTED if type(state) is spec.Accepted else outcome_of(state)
        if not is_outcome or outcome is None:
            if outcome is not None:
                words = self._not_agreed(state)
                self._break(conditions.NOT_ALLOWED, words, deliveries)  # O-31
                return
            if not settled:
                return
            outcome = self.default_outcome
            state = state_of(outcome)
        entries = []
        contradicted = None
        for delivery in deliveries:
            # The first outcome counts: a repetition, or its settlement, changes nothing.
            if delivery.context is not None:
                entries.append(delivery.context)
                delivery.context = None
                delivery.local_state = state
            elif self._ending and delivery in self._ending:
                # The discharge decides. Before that it can only be settled.
                retirement = self._ending[delivery]
                retirement.settled = retirement.settled or settled
                if is_outcome and type(retirement.outcome) is not type(outcome):
                    contradicted = delivery
                    break
            elif is_outcome and type(delivery.local_state) is not type(state):
                contradicted = delivery
                break
        if entries:
            self.forget(entries)
            self._settle(entries, outcome, None if settled else deliveries)
        if self._large is not None:
            self._large.go()
        if contradicted is not None:
            words = f"delivery {contradicted.id} has another outcome already"
            self._break(conditions.ILLEGAL_STATE, words, deliveries)  # it is final (O-15)

    def _not_agreed(self, outcome: Any) -> str:
        agreed = ", ".join(str(each.symbol) for each in self._agreed)
        return f"the outcome {outcome.symbol} was not agreed at attach, but {agreed}"

    def _break(
        self, condition: conditions.Condition, words: str, deliveries: Sequence[Delivery]
    ) -> None:
        """End the link for a fault of the receiver; entries it held go back."""
        error = spec.Error(condition=condition, description=words)
        self._links.fail(self.link, error, deliveries)

    # -- transactions (part 4 §4.4.2, §4.4.3) ----------------------------------------------------

    def _updated_within(
        self, deliveries: Sequence[Delivery], state: spec.TransactionalState, settled: bool
    ) -> None:
        """Add an outcome to a transaction: it has no effect before the commit.

        A receiver must not settle before the discharge (X-14), yet some do: after a rollback it
        has no delivery any more, and the entry becomes available (K-16).
        """
        stated = state.outcome
        transaction: Transaction | None = None
        try:
            transaction = self._connection.transactions.working(state.txn_id)
            if stated is None:
                if not settled:
                    return
                stated = state_of(self.default_outcome)
            outcome = outcome_of(stated)
            if outcome is None or not isinstance(stated, self._agreed):
                raise AmqpError(self._not_agreed(stated), condition=conditions.NOT_ALLOWED)
            for delivery in deliveries:
                self._retire(delivery, transaction, state, outcome, settled)
        except AmqpError as error:
            if transaction is not None:
                transaction.fail(error)
            self._links.fail(self.link, error_of(error), deliveries)

    def _retire(
        self,
        delivery: Delivery,
        transaction: Transaction,
        state: spec.TransactionalState,
        outcome: Outcome,
        settled: bool,
    ) -> None:
        entry = delivery.context
        if entry is not None:
            self._ending[delivery] = transaction.retire(self, delivery, entry, outcome, settled)
            delivery.context = None
            delivery.local_state = state
            return
        retirement = self._ending.get(delivery)
        if retirement is None or retirement.transaction is not transaction:
            raise AmqpError(
                f"delivery {delivery.id} has an outcome already",
                condition=conditions.ILLEGAL_STATE,
            )
        transaction.touch()
        if state.outcome is not None:
            retirement.change(outcome)  # a provisional outcome can change (O-16)
        retirement.settled = retirement.settled or settled

    @property
    def queue(self) -> INode:
        """The queue of its entries; a durable subscription has one of its own."""
        return getattr(self.source, "queue", self.source)

    def settle_within(self, entries: Sequence[Entry], outcome: Outcome, batch: Batch) -> None:
        """Apply outcomes within the commit of a transaction."""
        if not (self.copies and self._is_gone):
            self.source.settle(entries, outcome, batch, consumer=self)

    def retake(self, entries: Sequence[Entry]) -> None:
        """Undo `settle_within`: that commit failed."""
        if not self.copies:
            self.source.retake(entries)

    def retired(self, retirements: Sequence[Retirement]) -> None:
        """Settle the deliveries of a committed transaction that are unsettled (X-17, X-30)."""
        self._concluded(retirements)
        if not self.link.is_active:
            return
        outcome: Outcome = ACCEPTED
        run: list[Delivery] = []
        for each in retirements:
            if run and each.outcome is not outcome:
                self.link.session.settle(run, state_of(outcome), True)
                run = []
            outcome = each.outcome
            run.append(each.delivery)
        self.settle_deliveries(run, outcome)
        self._connection.flush()  # it may have been ended from another connection
        self.source.dispatch()

    def settle_deliveries(self, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        """See `AnsweredConsumer.settle_deliveries`; their delivery-tags are free then."""
        if not self.link.is_active:
            return
        state = ACCEPTED_STATE if outcome is ACCEPTED else state_of(outcome)
        self.link.session.settle(deliveries, state, True)
        if self._behind and self._large is None:
            self._deliver_behind()
            if self.link.drain:
                self._connection.event_batch.afterwards(self.dispatch)

    def restored(self, retirements: Sequence[Retirement]) -> None:
        """Hold the entries of a rolled back transaction again, as far as possible (X-19)."""
        self._concluded([each for each in retirements if self._is_gone or each.settled])
        settled = []
        orphans = []
        parked = self._parked
        for each in retirements:
            if self._is_gone and parked is not None and parked.is_waiting and not each.settled:
                parked.entries[each.delivery.tag] = each.entry
            elif self._is_gone:
                orphans.append(each.entry)
            elif each.settled:
                settled.append(each.entry)
            else:
                del self._ending[each.delivery]
                each.delivery.context = each.entry
                each.delivery.local_state = None
        if self.copies and self._is_gone:
            return
        if settled:
            self._settle(settled, RELEASED)
        if orphans:
            self._settle(orphans, self._orphaned)

    def _concluded(self, retirements: Sequence[Retirement]) -> None:
        for each in retirements:
            del self._ending[each.delivery]
        self.forget([each.entry for each in retirements])

    def flowed(self, flow: spec.Flow) -> None:
        """See `LinkEndpoint.flowed`: there may be more credit, or a transaction (X-20, X-29).

        The transaction in which messages are to be acquired is in force until the next flow of the
        link, or until it is discharged.
        """
        self._acquiring = None
        txn_id = flow.properties.get(TXN_ID) if flow.properties else None
        if txn_id is not None:
            self._acquire_in(txn_id)
        self.dispatch()

    def _acquire_in(self, txn_id: object) -> None:
        """Acquire messages in a transaction of the receiver from now on."""
        try:
            if not isinstance(txn_id, bytes):
                raise InvalidField("the link state property txn-id is not binary")
            if self.settled or self.copies:
                raise NotImplementedHere(
                    "a browsing or presettled link cannot acquire messages in a transaction"
                )
            self._acquiring = self._connection.transactions.working(txn_id)
            self._acquiring.touch()
        except AmqpError as error:
            self._links.fail(self.link, error_of(error))

    def _acquiring_now(self) -> Transaction | None:
        transaction = self._acquiring
        if transaction is not None and not transaction.is_open:
            transaction = self._acquiring = None
        return transaction

    def returned(self, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries acquired in a transaction that was rolled back."""
        if self._is_gone:
            self._unpark(deliveries)
            return
        back = [delivery for delivery in deliveries if delivery.context is not None]
        if not back:
            return
        entries = [delivery.context for delivery in back]
        for delivery in back:
            delivery.context = None
        if self.link.is_active:
            self.link.session.settle(back, RELEASED_STATE, True)
            self._connection.flush()
        self.forget(entries)
        self._settle(entries, RELEASED)

    def _unpark(self, deliveries: Sequence[Delivery]) -> None:
        """Release those of these deliveries that are still parked."""
        if self._parked is None:
            return
        entries = self._parked.entries
        back = [entries.pop(each.tag) for each in deliveries if each.tag in entries]
        if back:
            self._settle(back, RELEASED)

    # -- the end ---------------------------------------------------------------------------------

    @property
    def _orphaned(self) -> Outcome:
        """The outcome of entries it held at its end."""
        outcome = self.default_outcome
        if isinstance(self.source, DurableSubscription) and is_seen(outcome):
            return RELEASED
        return outcome

    def ended(
        self, deliveries: Sequence[Delivery], closed: bool, keeps: bool
    ) -> ParkedDeliveries | None:
        """See `LinkEndpoint.ended`: what it held goes the way of the default outcome (O-06, Q-34).

        Only for a durable subscription it does not: what was not acknowledged comes again
        (S-10). If the link was closed, and was the last one, the subscription ends (S-20).
        """
        if keeps and self.retention is not None:
            return self._suspend(deliveries)
        self._end()
        entries = list(self._held(deliveries).values())
        self._again.clear()
        self._left = {}
        if entries and not self.copies:
            self._settle(entries, self._orphaned)
        if closed and isinstance(self.source, DurableSubscription) and not self.source.consumers:
            self.source.topic.unsubscribe(self.source)
        return None


def _as_transferred(entry: Entry, now_ms: int) -> tuple[Sequence[Any], int]:
    """Return the buffers of a message to be sent now, and its message-format (M-09)."""
    message = entry.message
    if (message.located or message.offsets).delivery_annotations_end:
        message_format = message.foreign_format
        if message_format:
            return (message.enclosed(),), message_format
    parts = message.for_delivery(entry.delivery_count, entry.attempted, entry.expires_ms, now_ms)
    return parts, 0
