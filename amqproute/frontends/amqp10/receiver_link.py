# SPDX-License-Identifier: Apache-2.0
"""Incoming links: deliveries from the peer to a target.

Where the receiver settles second, or when the link is gone before its deliveries were committed,
their outcomes are kept in `suspended_links.ResolvedDeliveries` until the sender has settled them. A
delivery with a tag that is known there is the same delivery: it is answered and not put again
(P-16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.broker.admission import is_non_transacted
from amqproute.broker.commit_batch import Batch
from amqproute.broker.publish_gate import STORE, PublishGate
from amqproute.errors import (
    AmqpError,
    DecodeError,
    NotImplementedHere,
    ResourceLimitExceeded,
    StoreUnavailable,
    Unresolved,
)
from amqproute.frontends.amqp10.large_message_receiver import LargeMessageReceiver
from amqproute.frontends.amqp10.link_refusal import error_of, may_reject
from amqproute.frontends.amqp10.link_table import AttachedLink, LinkTable
from amqproute.frontends.amqp10.suspended_links import (
    ResolvedDeliveries,
    RetentionPolicy,
    without_words,
)
from amqproute.frontends.common.contract_enforcement import ActiveContract, ContractShare
from amqproute.frontends.common.draft_share import NoCapacityError
from amqproute.frontends.common.peer_error_log import short
from amqproute.frontends.common.publishing_endpoint import PublishingEndpoint
from amqproute.interfaces import ITarget
from amqproute.message import Message, enclose
from amqproute.values import FLOOR, Origin, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.checked import check_sections
from amqproute.wire.amqp10.delivery_states import ACCEPTED_STATE, RELEASED_STATE
from amqproute.wire.amqp10.engine_events import PartsReceived
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.types import Symbol

__all__ = ["ReceiverLink"]

_NOT_TAKEN = "the messages were not taken"


class ReceiverLink(PublishingEndpoint[Delivery], AttachedLink):
    """Puts deliveries on a target, settles them once they are safe, and grants credit.

    Args:
        links: the links of its connection.
        link: our receiving end.
        target: the `ITarget`.
        origin: the sender.
        window: deliveries that may be granted or uncommitted at once.
        resolved: the outcomes of earlier attachments of the link.

    Attributes:
        retention: how long its outcomes outlive the link; None if they do not.
        is_durable: whether its outcomes are kept in the store as well.
    """

    log = Logger()

    __slots__ = (
        "__weakref__",
        "_context",
        "_earlier",
        "_is_ended",
        "_is_gone",
        "_large",
        "_links",
        "_posted",
        "_ungranted",
        "is_durable",
        "link",
        "resolved",
        "retention",
    )

    def __init__(
        self,
        links: LinkTable,
        link: Link,
        target: ITarget,
        origin: Origin,
        window: int,
        resolved: ResolvedDeliveries | None = None,
    ) -> None:
        super().__init__(links.connection, target, origin, window)
        self._links = links
        self._context = links.context
        self.link = link
        self.retention: RetentionPolicy | None = None
        # An empty one is false.
        self.resolved = ResolvedDeliveries() if resolved is None else resolved
        self.is_durable = self.resolved.is_durable
        # Tags of earlier attachments: to be resumed, they need credit and take none away.
        self._earlier = set(self.resolved.outcomes)
        self._is_gone = self._is_ended = False
        self._large: LargeMessageReceiver | None = None
        self._ungranted: set[Delivery] = set()
        self._posted: dict[Delivery, tuple[ActiveContract, int]] = {}

    def __repr__(self) -> str:
        return (
            f"<ReceiverLink {self.link.name!r} to {self.target.name} credit={self.link.credit} "
            f"uncommitted={self._uncommitted}>"
        )

    # -- credit --------------------------------------------------------------------------------

    def grant(self) -> None:
        """Top the credit up once half of it is used."""
        link = self.link
        if link.is_active and not self._context.common.is_stopping:
            self._renew(link.credit, len(self.resolved.outcomes) - len(self._earlier))

    def _send_credit(self, credit: int) -> None:
        """See `PublishingEndpoint`."""
        self.link.flow(credit)

    @property
    def waiting_octets(self) -> int:
        """See `PublishingEndpoint.waiting_octets`."""
        octets = 0 if self._large is None else self._large.octets
        for delivery in self.waiting.deliveries():
            octets += len(delivery.payload)
            if type(delivery.rest) is LargeMessageReceiver:
                octets += delivery.rest.octets
        return octets

    @property
    def granted(self) -> int:
        """See `PublishingEndpoint.granted`."""
        return self.link.credit

    # -- deliveries ----------------------------------------------------------------------------

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`."""
        self._context.termini.check_target(self.link.target, principal)

    def deliveries_received(self, deliveries: Sequence[Delivery]) -> None:
        """See `LinkEndpoint.deliveries_received`."""
        if self.link.is_active:
            if self.share is not None:
                self._count(self.share, deliveries)
            self._connection.event_batch.put(self, deliveries)

    def received_late(self, deliveries: list[Delivery]) -> None:
        """Put deliveries that came before the answer to the attach."""
        if self.share is not None:
            self._count(self.share, deliveries)
        self._connection.event_batch.put_now(self, deliveries)

    def _count(self, share: ContractShare, deliveries: Sequence[Delivery]) -> None:
        """Count arriving deliveries against the sender's contract, once."""
        octets = sum([len(delivery.payload) for delivery in deliveries])
        lacking = share.received(len(deliveries), octets)
        if lacking:
            self._ungranted.update(deliveries[-lacking:])

    def received(self, deliveries: Sequence[Delivery], batch: Batch) -> list[Delivery]:
        """Put deliveries on the target within the batch.

        Returns:
            Those that were put: to be settled when the batch is committed.
        """
        published = []
        posted = []
        was_active = self.link.is_active
        self._uncommitted += len(deliveries)
        for delivery in deliveries:
            try:
                if self._earlier and self._is_known(delivery):
                    continue
                if self.waiting.lines and self._queue_behind(delivery):
                    continue
                if type(delivery.rest) is LargeMessageReceiver and not self._is_here(delivery):
                    continue
                message = self.message_of(delivery)
                if type(delivery.state) is spec.TransactionalState:
                    if not is_non_transacted(message):
                        self._post(delivery, delivery.state, message)
                        delivery.rest = None
                        posted.append(delivery)
                        continue
                    self._remove_pending(delivery)
                self._put(message, batch, delivery.tag)
                if self.is_durable and not delivery.settled:
                    self.resolved.note(delivery.tag, batch)
            except Unresolved as unresolved:
                self._connection.transactions.postpone(delivery)
                self._wait_for_hop(delivery, unresolved.hop)
            except AmqpError as error:
                self._uncommitted -= 1
                self._doom(delivery, error)
                self._refuse(delivery, error)
                if was_active and not self.link.is_active:
                    self._doom_behind(delivery, deliveries, error)
                    break
            else:
                published.append(delivery)
        if posted:
            self._promise(posted)
        if self._is_gone and not published:
            self._check_recovered()
        return published

    def message_of(self, delivery: Delivery) -> Message:
        """Return the message of a delivery.

        Raises:
            AmqpError: it cannot be taken.
        """
        if delivery.message_format and not getattr(self.target, "takes_any_format", False):
            raise NotImplementedHere(
                f"message-format {delivery.message_format} is supported by queues only"
            )
        if self._ungranted and delivery in self._ungranted:
            self._ungranted.discard(delivery)
            if self.share is not None:
                self.share.contract.check_message()
        if delivery.message_format:
            return enclose(delivery.message_format, delivery.payload, delivery.rest)
        message = Message(delivery.payload, delivery.rest)
        most = self._connection.limits.header_bytes
        offsets = message.offsets
        if offsets.bare_start > most:
            # Every hop reads and rewrites these: they are no place for a body.
            raise ResourceLimitExceeded(
                f"header and annotations have {offsets.bare_start} octets, the limit is {most}",
                info={"limiter": "header-and-annotations"},
            )
        if not offsets.body_code and message.rest is None:
            self._check_bodiless(message)
        # Later readers of a section, here or at the next hop, could not reject it (M-23, M-24).
        check_sections(message.encoded, offsets)
        if offsets.delivery_annotations_end:
            message = message.received()
        return self._context.common.nodes.admitted(message, self.origin)

    def _check_bodiless(self, message: Message) -> None:
        """Check that a message without a body may be taken (M-22).

        Services do not pass it on, and have requests that need no body.

        Raises:
            DecodeError: it may not.
        """
        if not message.size:
            raise DecodeError("the message has no octets: it needs a body, which may be empty")
        acts_at_once = getattr(self.target, "acts_at_once", False)
        if not acts_at_once and not self._context.tolerates_missing_body():
            raise DecodeError(
                "the message has no body: send an empty one, or have the broker's operator set "
                "tolerate-missing-body"
            )

    def committed(self, deliveries: list[Delivery]) -> None:
        """See `PublishingLink.committed`: settle these (T-20), and grant credit."""
        self._uncommitted -= len(deliveries)
        unsettled = []
        for delivery in deliveries:
            delivery.rest = None  # the delivery may be kept longer; that must not keep a file
            if not delivery.settled:
                unsettled.append(delivery)
        if unsettled:
            self._accept(unsettled)
        if self._is_gone:
            self._check_recovered()
        else:
            self.grant()

    def _accept(self, deliveries: list[Delivery]) -> None:
        """Accept these; remember the outcome where the sender has to confirm it."""
        link = self.link
        if not link.is_active:
            self._remember(deliveries, ACCEPTED_STATE)
        elif link.rcv_settle_mode != spec.RECEIVER_SECOND:
            link.session.settle(deliveries, ACCEPTED_STATE, True)
        else:
            second = [each for each in deliveries if each.rcv_settle_mode == spec.RECEIVER_SECOND]
            first = [each for each in deliveries if each.rcv_settle_mode != spec.RECEIVER_SECOND]
            self._remember(second, ACCEPTED_STATE)
            link.session.settle(second, ACCEPTED_STATE, False)
            self._forget(first)
            link.session.settle(first, ACCEPTED_STATE, True)

    def updated(self, deliveries: Sequence[Delivery], state: object, settled: bool) -> None:
        """See `LinkEndpoint.updated`: the sender has settled what we left to it.

        That is how it is with the rcv-settle-mode second.
        """
        if settled:
            self._forget(deliveries)
            self.grant()

    def wait_for(self, gate: PublishGate, deliveries: list[Delivery]) -> None:
        """See `PublishingLink.wait_for`.

        A sender that is gone for good sends deliveries without an outcome again.
        """
        self.resolved.unnote([delivery.tag for delivery in deliveries])
        if self._is_ended:
            lost = [each for each in deliveries if not each.settled]
            self._uncommitted -= len(lost)
            self._drop(lost)
            deliveries = [each for each in deliveries if each.settled]
        super().wait_for(gate, deliveries)

    def _drop(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.rest = None
        if self._is_gone:
            self._check_recovered()

    def failed(self, deliveries: list[Delivery], failure: Failure, in_doubt: bool = False) -> None:
        """See `PublishingLink.failed`: end the link, so that these have no outcome.

        Args:
            deliveries: the deliveries, none of which was stored.
            failure: the failure of the store.
            in_doubt: some of them have been delivered before (`amqproute.broker.early_delivery`).
        """
        self._uncommitted -= len(deliveries)
        self._drop(deliveries)
        self.resolved.unnote([delivery.tag for delivery in deliveries])
        if not self.link.is_active:
            return
        self._links.fail(
            self.link,
            spec.Error(
                condition=conditions.INTERNAL_ERROR,
                description="the message store failed; "
                + ("messages without an outcome are in doubt" if in_doubt else _NOT_TAKEN),
            ),
        )
        self._connection.flush()

    # -- very large messages -------------------------------------------------------------------

    def parts_received(self, event: PartsReceived) -> None:
        """See `LinkEndpoint.parts_received`."""
        if not self.link.is_active:
            super().parts_received(event)
            return
        delivery = event.delivery
        large = self._large
        is_new = large is None or large.delivery is not delivery
        if self.share is not None and self.share.received(int(is_new), sum(map(len, event.parts))):
            self._ungranted.add(delivery)
        if large is None or is_new:
            large = self._large = LargeMessageReceiver(
                self._connection, self, delivery, self._rest_is_stored
            )
            if self._earlier and delivery.tag in self._earlier:
                self._uncommitted += 1
                large.is_dropped = self._is_known(delivery)
            if not large.is_dropped:  # a dropped one is no part of its transaction
                self._connection.transactions.postpone(delivery)
        try:
            large.add(event)
        except NoCapacityError as error:
            self._doom(delivery, error)
            self._put_off(delivery, error)
        except AmqpError as error:
            self._doom(delivery, error)
            self._refuse(delivery, error)
        if event.is_aborted:
            self._drop_large()
        elif event.is_last:
            self._large = None
            if not large.is_dropped:
                self._uncommitted += 1
                if not (self.waiting.lines and self._queue_behind(delivery)):
                    self._pause_for(delivery, large)

    def _is_here(self, delivery: Delivery) -> bool:
        """Whether a message that came in parts is complete by now; else it is held, or refused."""
        large: LargeMessageReceiver = delivery.rest
        if large.body is not None:
            delivery.rest = large.take()
            return True
        if large.failure is not None:
            self._not_stored(delivery, large.failure)
        else:
            self._pause_for(delivery, large)
        return False

    def _not_stored(self, delivery: Delivery, failure: Failure) -> None:
        """Release a very large message for which there is no room: its sender keeps it."""
        if not isinstance(failure.value, StoreUnavailable):
            self.failed([delivery], failure)
            return
        self._uncommitted -= 1
        self._doom(delivery, ResourceLimitExceeded("there is no room for the message now"))
        self._drop([delivery])
        if self.link.is_active and not delivery.settled:
            self.link.session.settle([delivery], RELEASED_STATE, True)
            self._connection.flush()
        self._gate.close(STORE, str(failure.value))

    def _put_off(self, delivery: Delivery, error: AmqpError) -> None:
        """Release a message, to be sent again later; refuse one that is settled."""
        if delivery.settled or not self.link.is_active:
            self._refuse(delivery, error)
            return
        self._connection.error_log.add(
            "{connection} ({principal}) link {link}: released a message: {error}",
            link=short(self.link.name),
            error=str(error),
        )
        self.link.session.settle([delivery], RELEASED_STATE, True)
        self.grant()

    def _rest_is_stored(self, large: LargeMessageReceiver) -> None:
        self.waiting.over(large, self._put_waiting)

    # -- transactions (part 4 §4.4.1) ------------------------------------------------------------

    def _post(self, delivery: Delivery, state: spec.TransactionalState, message: Message) -> None:
        """Post a message in its transaction."""
        transaction = self._connection.transactions.working(state.txn_id, delivery)
        origin = self.origin
        origin.tag = delivery.tag
        transaction.post(self, delivery, self.target, message, origin)
        if self.share is not None:
            self._posted[delivery] = self.share.contract, message.size
            self.share.contract.posted += message.size
            self.share.contract.charged(message.size)
        self._uncommitted -= 1  # it is bounded by the transaction, not by credit
        self._connection.transactions.resume(delivery)

    def _remove_pending(self, delivery: Delivery) -> None:
        """Take a flagged message out of its transaction (M-21).

        From here on the message and the transaction have separate outcomes.
        """
        self._connection.transactions.resume(delivery)
        delivery.state = None

    def _promise(self, posted: Sequence[Delivery]) -> None:
        """Send the provisional outcome of postings (X-15)."""
        if self.link.is_active:
            for txn_id in dict.fromkeys([delivery.state.txn_id for delivery in posted]):
                state = spec.TransactionalState(txn_id=txn_id, outcome=ACCEPTED_STATE)
                wanted = [
                    delivery
                    for delivery in posted
                    if delivery.state.txn_id == txn_id and not delivery.settled
                ]
                self.link.session.settle(wanted, state, False)
        self.grant()

    def concluded(self, deliveries: Sequence[Delivery], is_committed: bool) -> None:
        """Settle the postings of a transaction that has ended (X-22)."""
        link = self.link
        for delivery in deliveries:
            posted = self._posted.pop(delivery, None)
            if posted is not None:
                contract, octets = posted
                contract.released(octets)
        unsettled = [delivery for delivery in deliveries if not delivery.settled]
        if unsettled and is_committed:
            self._accept(unsettled)
        elif unsettled and link.is_active:
            link.session.settle(unsettled, RELEASED_STATE, True)
        self._connection.flush()  # it may have been ended from another connection

    def _doom(self, delivery: Delivery, error: AmqpError) -> None:
        """Doom the transaction of a refused posting."""
        if type(delivery.state) is spec.TransactionalState:
            self._connection.transactions.doom(delivery, error)

    def _doom_behind(
        self, refused: Delivery, deliveries: Sequence[Delivery], error: AmqpError
    ) -> None:
        """Doom the postings behind a delivery that has ended the link."""
        for delivery in deliveries[deliveries.index(refused) + 1 :]:
            self._doom(delivery, error)

    # -- refusal -------------------------------------------------------------------------------

    def _refuse(self, delivery: Delivery, error: AmqpError) -> None:
        error_log = self._connection.error_log
        error_log.message_refused(self.link.name, self.target.name, error)
        details = error_of(error)
        if not self.link.is_active:
            if not delivery.settled:
                self._remember([delivery], spec.Rejected(error=details))
            return
        if not delivery.settled and may_reject(self.link):
            self.link.session.settle([delivery], spec.Rejected(error=details), True)
            self.grant()
            return
        details.info = {**(details.info or {}), Symbol("delivery-tag"): delivery.tag}
        self._links.fail(self.link, details)

    # -- resumption (part 2 §2.6.13) -------------------------------------------------------------

    def compare(
        self, theirs: Mapping[bytes, object], is_complete: bool
    ) -> dict[bytes, spec.Outcome | None]:
        """Compare the known outcomes with the sender's unsettled map.

        Deliveries missing from a complete map are settled: they are forgotten.

        Returns:
            Our own map, for the answering attach.
        """
        outcomes = self.resolved.outcomes
        if is_complete:
            self._forget_tags([tag for tag in outcomes if tag not in theirs])
        return {tag: without_words(outcome) for tag, outcome in outcomes.items()}

    def _is_known(self, delivery: Delivery) -> bool:
        """Answer a delivery whose outcome is known from an earlier attachment."""
        tag = delivery.tag
        outcome = self.resolved.outcomes.get(tag)
        if outcome is None or tag not in self._earlier:
            return False
        self._uncommitted -= 1
        settles = spec.RECEIVER_FIRST in (self.link.rcv_settle_mode, delivery.rcv_settle_mode)
        if not delivery.settled:
            self.link.session.settle([delivery], outcome, settles)
        if delivery.settled:
            self._forget([delivery])
            self.grant()
        return True

    def _remember(self, deliveries: Sequence[Delivery], outcome: Any) -> None:
        if self._is_ended:
            self._forget(deliveries)
            return
        outcomes = self.resolved.outcomes
        for delivery in deliveries:
            outcomes[delivery.tag] = outcome

    def _forget(self, deliveries: Sequence[Delivery]) -> None:
        self._forget_tags([delivery.tag for delivery in deliveries])

    def _forget_tags(self, tags: Sequence[bytes]) -> None:
        if not tags:
            return
        self._earlier.difference_update(tags)
        event_batch = self._connection.event_batch
        with event_batch:
            self.resolved.forget(tags, event_batch.batch)

    def ended(
        self, deliveries: Sequence[Delivery], closed: bool, keeps: bool
    ) -> ResolvedDeliveries | None:
        """See `LinkEndpoint.ended`."""
        self.origin.gone_at = self._context.common.seconds()
        self.leave()
        self._drop_large()
        self._is_gone = True
        if keeps and self.retention is not None:
            self.resolved.is_pending = self._uncommitted > 0
            return self.resolved
        self._is_ended = True
        self._drop_waiting()
        self._forget_tags(list(self.resolved.outcomes))
        return None

    def _drop_waiting(self) -> None:
        """Drop deliveries that wait for the store and will be sent again."""
        lost = self.waiting.take_failed(lambda each: not each.settled)
        if lost:
            self._uncommitted -= len(lost)
            gone = AmqpError("the link is gone", condition=conditions.LINK_DETACH_FORCED)
            for each in lost:
                self._doom(each, gone)  # a discharge must not wait for it
            self._drop(lost)

    def _drop_large(self) -> None:
        if self._large is not None:
            self._large.abandon()
            self._connection.transactions.resume(self._large.delivery)
            self._large = None

    def _check_recovered(self) -> None:
        if not self._uncommitted:
            self.resolved.is_recovered()

    # -- messages that wait: also beyond the end of the link, for they came before it (P-03), and
    # nobody would send again what was sent settled (O-08) -----------------------------------------

    def _queue_behind(self, delivery: Delivery) -> bool:
        """Add a delivery behind waiting ones, to keep the order of the link."""
        self.waiting.wait_behind(delivery)
        self._connection.transactions.postpone(delivery)
        return True

    def _pause_for(self, delivery: Delivery, reason: LargeMessageReceiver) -> None:
        self.waiting.wait_for(reason, delivery)
        self._connection.transactions.postpone(delivery)

    # -- the peer's flow -----------------------------------------------------------------------

    def flowed(self, flow: spec.Flow) -> None:
        """See `LinkEndpoint.flowed`: note the floor of a relaying peer's stream."""
        self.grant()  # deliveries that were resumed in vain have used credit up
        stream = self.origin.stream
        floor = flow.properties.get(FLOOR) if flow.properties else None
        if stream is not None and isinstance(floor, int):
            self._connection.forget_receipts(stream, floor)
