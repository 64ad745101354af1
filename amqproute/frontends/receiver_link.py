# SPDX-License-Identifier: Apache-2.0
"""A link that the other side sends on: deliveries to a target.

Where the receiver settles second, or when the link is gone before its deliveries were committed,
what became of them stands in `suspended_links.ResolvedDeliveries` until the sender has settled
them. A delivery whose
tag is known there is the same delivery: it is answered and not put again (P-16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.broker.admission import is_non_transacted
from amqproute.broker.publish_gate import STORE, PublishGate
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.errors import (
    AmqpError,
    DecodeError,
    NotImplementedHere,
    ResourceLimitExceeded,
    StoreUnavailable,
    Unresolved,
)
from amqproute.frontends.contract_enforcement import ActiveContract, ContractShare
from amqproute.frontends.large_message_receiver import LargeMessageReceiver, NoCapacityError
from amqproute.frontends.link_refusal import error_of, may_reject
from amqproute.frontends.peer_error_log import short
from amqproute.frontends.suspended_links import ResolvedDeliveries, RetentionPolicy, told
from amqproute.message import Message, enclose
from amqproute.values import FLOOR, NextHop, Origin
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.checked import check_sections
from amqproute.wire.amqp10.engine_events import PartsReceived
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.types import Symbol

if TYPE_CHECKING:
    from amqproute.frontends.connection_frontend import Frontend

ACCEPTED = spec.Accepted()
RELEASED = spec.Released()
_NOT_TAKEN = "the messages were not taken"


class ReceiverLink:
    """Puts deliveries on a target, settles them once they are safe, and hands out credit.

    Args:
        frontend: the connection it belongs to.
        link: our receiving end.
        target: the `ITarget`.
        origin: who sends.
        window: deliveries that may be granted or uncommitted at once.
        taken: what is known from earlier attachments of the link.

    Attributes:
        retention: how long what is known outlives the link; None: it goes with it.
        part: what it has of its sender's contract; None without one.
    """

    log = Logger()

    __slots__ = (
        "__weakref__",
        "_earlier",
        "_failed",
        "_frontend",
        "_gate",
        "_held",
        "_intake",
        "_is_braked",
        "_is_ended",
        "_is_gone",
        "_posted",
        "_uncommitted",
        "_ungranted",
        "link",
        "origin",
        "part",
        "retention",
        "taken",
        "target",
        "window",
    )

    def __init__(
        self,
        frontend: Frontend,
        link: Link,
        target: Any,
        origin: Origin,
        window: int,
        taken: ResolvedDeliveries | None = None,
    ) -> None:
        self._frontend = frontend
        self.link = link
        self.target = target
        self.origin = origin
        origin.has_credit = isinstance(target, Topic)
        self.window = window
        self.retention: RetentionPolicy | None = None
        self.taken = ResolvedDeliveries() if taken is None else taken  # an empty one is not true
        # Tags of earlier attachments: to be resumed, they need credit and take none away.
        self._earlier = set(self.taken.outcomes)
        self._is_gone = self._is_ended = False
        self._uncommitted = 0
        # Lines of what waits, in order; the gate's, which is the first, begins with so many that
        # the store has not taken.
        self._held: dict[NextHop | LargeMessageReceiver | PublishGate, deque[Delivery]] = {}
        self._failed = 0
        self._gate: PublishGate = frontend.shared.broker.gate
        # Whoever asks the services may make room by it.
        self._is_braked = not getattr(target, "acts_at_once", False)
        self._intake: LargeMessageReceiver | None = None
        self._ungranted: set[Delivery] = set()
        self._posted: dict[Delivery, tuple[ActiveContract, int]] = {}
        self.part: ContractShare | None = None

    def __repr__(self) -> str:
        return (
            f"<ReceiverLink {self.link.name!r} to {self.target.name} credit={self.link.credit} "
            f"uncommitted={self._uncommitted}>"
        )

    # -- credit --------------------------------------------------------------------------------

    def grant(self) -> None:
        """Top the credit up once half of it is used."""
        link = self.link
        if not link.is_active or self._frontend.is_stopping:
            return
        if self._is_braked and not self._gate.is_open:
            if link.credit:
                self._flow(0)
            return
        target = self.target
        shares = isinstance(target, Queue | Topic)
        space = target.publishers.allowance(self) if shares else target.space()
        unconfirmed = len(self.taken.outcomes) - len(self._earlier)
        bounded = shares
        ceiling = space
        if self.part is not None:
            part = self.part
            allowed = part.contract.allowance(part, self._uncommitted, self.window)
            ceiling = min(space, allowed)
            bounded = True
        room = min(self.window - self._uncommitted - unconfirmed, ceiling)
        if room > link.credit and (link.credit <= self.window // 2 or room < self.window // 2):
            self._flow(room)
        elif bounded and max(0, ceiling) < link.credit:
            self._flow(max(0, ceiling))  # there are more of us than before (F-03)
        if room <= 0 and (shares or space <= 0):
            target.when_space(self.grant)

    def receive_part(self, contract: ActiveContract) -> None:
        """Go by the sender's contract from now on; services are outside of it."""
        if self._is_braked and contract.terms:
            self.part = contract.join(self)
            self.part.granted(self.link.credit)
        self.origin.account = contract.account

    def _flow(self, credit: int) -> None:
        self.link.flow(credit)
        if self.part is not None:
            self.part.granted(credit)
        self._frontend.flush()

    def revoke(self) -> None:
        """Take the credit back that the link has."""
        if self.link.is_active and self.link.credit:
            self._flow(0)

    @property
    def waiting_octets(self) -> int:
        """Octets of messages that have come and are not put yet."""
        octets = 0 if self._intake is None else self._intake.octets
        for line in self._held.values():
            for delivery in line:
                octets += len(delivery.payload)
                if type(delivery.rest) is LargeMessageReceiver:
                    octets += delivery.rest.octets
        return octets

    @property
    def granted(self) -> int:
        """Deliveries that the other side may still send."""
        return self.link.credit

    # -- deliveries ----------------------------------------------------------------------------

    def arrived(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries against the sender's contract, once, when they come."""
        if self.part is not None:
            octets = sum([len(delivery.payload) for delivery in deliveries])
            lacking = self.part.received(len(deliveries), octets)
            if lacking:
                self._ungranted.update(deliveries[-lacking:])

    def received(self, deliveries: Sequence[Delivery], batch: Any) -> list[Delivery]:
        """Put deliveries on the target within the batch.

        Returns:
            Those that were put: to be settled when the batch is committed.
        """
        taken = []
        posted = []
        was_active = self.link.is_active
        self._uncommitted += len(deliveries)
        for delivery in deliveries:
            try:
                if self._earlier and self._is_known(delivery):
                    continue
                if self._held and self._queue_behind(delivery):
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
                self._put(delivery, message, batch)
            except Unresolved as unresolved:
                self._hold(delivery, unresolved.hop)
            except AmqpError as error:
                self._uncommitted -= 1
                self._doom(delivery, error)
                self._refuse(delivery, error)
                if was_active and not self.link.is_active:
                    self._doom_behind(delivery, deliveries, error)
                    break
            else:
                taken.append(delivery)
        if posted:
            self._promise(posted)
        if self._is_gone and not taken:
            self._check_recovered()
        return taken

    def _put(self, delivery: Delivery, message: Message, batch: Any) -> None:
        origin = self.origin
        origin.tag = delivery.tag
        account = origin.account
        if account is None or self.part is None:
            self.target.put(message, batch, origin)
        else:
            before = account.octets
            self.target.put(message, batch, origin)
            self.part.contract.charged(max(account.octets - before, message.size))
        if self.taken.is_durable and not delivery.settled:
            self.taken.note(delivery.tag, batch)

    def message_of(self, delivery: Delivery) -> Message:
        """Return the message that a delivery has brought.

        Raises:
            AmqpError: it cannot be taken.
        """
        if delivery.message_format and not getattr(self.target, "takes_any_format", False):
            raise NotImplementedHere(
                f"message-format {delivery.message_format} is not known here: only queues take it"
            )
        if self._ungranted and delivery in self._ungranted:
            self._ungranted.discard(delivery)
            if self.part is not None:
                self.part.contract.check_message()
        if delivery.message_format:
            return enclose(delivery.message_format, delivery.payload, delivery.rest)
        message = Message(delivery.payload, delivery.rest)
        most = self._frontend.limits.header_bytes
        if message.bare_from > most:
            # Every hop reads these, and writes them anew: they are no place for a body.
            raise ResourceLimitExceeded(
                f"header and annotations have {message.bare_from} octets, {most} are allowed",
                info={"limiter": "header-and-annotations"},
            )
        if not message.has_body:
            self._check_bodiless(message)
        # Whoever reads a section later, here or behind us, has nobody to reject it to (M-23, M-24).
        check_sections(message.encoded, message.offsets)
        admitted: Message = self._frontend.shared.termini.admitted(message.received(), self.origin)
        return admitted

    def _check_bodiless(self, message: Message) -> None:
        """Look whether a message without a body may be taken (M-22).

        Services do not pass it on, and have requests that need none.

        Raises:
            DecodeError: no.
        """
        if not message.size:
            raise DecodeError("the message has no octets: it needs a body, which may be empty")
        acts_at_once = getattr(self.target, "acts_at_once", False)
        if not acts_at_once and not self._frontend.shared.tolerates_missing_body():
            raise DecodeError(
                "the message has no body: send an empty one, or have the broker's operator set "
                "tolerate-missing-body"
            )

    def committed(self, deliveries: list[Delivery]) -> None:
        """Tell the sender that these are safe (T-20), and let it send on."""
        self._uncommitted -= len(deliveries)
        for delivery in deliveries:
            delivery.rest = None  # it is remembered here and there; that must not keep a file
        unsettled = [delivery for delivery in deliveries if not delivery.settled]
        if unsettled:
            self._accept(unsettled)
        if self._is_gone:
            self._check_recovered()
        else:
            self.grant()

    def _accept(self, deliveries: list[Delivery]) -> None:
        """Tell that these are safe; remember it where the sender has to confirm that it knows."""
        link = self.link
        if not link.is_active:
            self._remember(deliveries, ACCEPTED)
        elif link.rcv_settle_mode != spec.RECEIVER_SECOND:
            link.session.settle(deliveries, ACCEPTED, True)
        else:
            second = [each for each in deliveries if each.rcv_settle_mode == spec.RECEIVER_SECOND]
            first = [each for each in deliveries if each.rcv_settle_mode != spec.RECEIVER_SECOND]
            self._remember(second, ACCEPTED)
            link.session.settle(second, ACCEPTED, False)
            self._forget(first)
            link.session.settle(first, ACCEPTED, True)

    def updated(self, deliveries: Sequence[Delivery], settled: bool) -> None:
        """The sender has settled what we left unsettled (rcv-settle-mode second)."""
        if settled:
            self._forget(deliveries)
            self.grant()

    def wait_for(self, gate: PublishGate, deliveries: list[Delivery]) -> None:
        """Keep what the store could not take, to try again when the gate opens.

        Where the sender is gone for good it sends again what it was told nothing about.
        """
        self.taken.unnote([delivery.tag for delivery in deliveries])
        if self._is_ended:
            lost = [each for each in deliveries if not each.settled]
            self._uncommitted -= len(lost)
            self._drop(lost)
            deliveries = [each for each in deliveries if each.settled]
        line = self._held.get(gate)
        if line is not None:
            later = [line.pop() for _ in range(len(line) - self._failed)]
            line.extend(deliveries)
            line.extend(reversed(later))
        elif deliveries:
            # First in line: these came before whatever waits for something else.
            self._held = {gate: deque(deliveries), **self._held}
            self._failed = 0
            gate.when_open(self._try_again)
        self._failed += len(deliveries)
        self._frontend.hold(sum([len(each.payload) for each in deliveries]))

    def _try_again(self) -> None:
        self._admitted(None, self._gate)

    def _drop(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.rest = None
        if self._is_gone:
            self._check_recovered()

    def failed(self, deliveries: list[Delivery], failure: Failure, in_doubt: bool = False) -> None:
        """Nothing of these was stored: end the link, so that they have no outcome.

        Args:
            deliveries: which.
            failure: of the store.
            in_doubt: some of them have been handed on before (`amqproute.broker.early_delivery`).
        """
        self._uncommitted -= len(deliveries)
        self._drop(deliveries)
        self.taken.unnote([delivery.tag for delivery in deliveries])
        if not self.link.is_active:
            return
        self._frontend.fail(
            self.link,
            spec.Error(
                condition=conditions.INTERNAL_ERROR,
                description="the message store failed; "
                + ("messages without an outcome are in doubt" if in_doubt else _NOT_TAKEN),
            ),
        )
        self._frontend.flush()

    # -- very large messages -------------------------------------------------------------------

    def parts(self, event: PartsReceived) -> None:
        """Take a part of a very large message."""
        delivery = event.delivery
        intake = self._intake
        is_new = intake is None or intake.delivery is not delivery
        if self.part is not None and self.part.received(int(is_new), sum(map(len, event.parts))):
            self._ungranted.add(delivery)
        if intake is None or is_new:
            intake = self._intake = LargeMessageReceiver(
                self._frontend, self, delivery, self._rest_is_here
            )
            if self._earlier and delivery.tag in self._earlier:
                self._uncommitted += 1
                intake.is_dropped = self._is_known(delivery)
            if not intake.is_dropped:  # else it is no part of its transaction
                self._frontend.transactions.postpone(delivery)
        try:
            intake.add(event)
        except NoCapacityError as error:
            self._doom(delivery, error)
            self._put_off(delivery, error)
        except AmqpError as error:
            self._doom(delivery, error)
            self._refuse(delivery, error)
        if event.is_aborted:
            self._drop_intake()
        elif event.is_last:
            self._intake = None
            if not intake.is_dropped:
                self._uncommitted += 1
                if not (self._held and self._queue_behind(delivery)):
                    self._pause_for(delivery, intake)

    def _is_here(self, delivery: Delivery) -> bool:
        """Whether a message that came in parts is complete by now; else it is held, or refused."""
        intake: LargeMessageReceiver = delivery.rest
        if intake.body is not None:
            delivery.rest = intake.take()
            return True
        if intake.failure is not None:
            self._not_stored(delivery, intake.failure)
        else:
            self._pause_for(delivery, intake)
        return False

    def _not_stored(self, delivery: Delivery, failure: Failure) -> None:
        """There is no room for a very large message: its sender keeps it for later."""
        if not isinstance(failure.value, StoreUnavailable):
            self.failed([delivery], failure)
            return
        self._uncommitted -= 1
        self._doom(delivery, ResourceLimitExceeded("there is no room for the message now"))
        self._drop([delivery])
        if self.link.is_active and not delivery.settled:
            self.link.session.settle([delivery], RELEASED, True)
            self._frontend.flush()
        self._gate.close(STORE, str(failure.value))

    def _put_off(self, delivery: Delivery, error: AmqpError) -> None:
        """Have a message sent again later; one that is settled cannot be."""
        if delivery.settled or not self.link.is_active:
            self._refuse(delivery, error)
            return
        self._frontend.complaints.add(
            "{connection} ({principal}) link {link}: a message is released: {error}",
            link=short(self.link.name),
            error=str(error),
        )
        self.link.session.settle([delivery], RELEASED, True)
        self.grant()

    def _rest_is_here(self, intake: LargeMessageReceiver) -> None:
        self._admitted(None, intake)

    # -- transactions (part 4 §4.4.1) ------------------------------------------------------------

    def _post(self, delivery: Delivery, state: spec.TransactionalState, message: Message) -> None:
        """Take a message into its transaction."""
        transaction = self._frontend.transactions.working(state.txn_id, delivery)
        origin = self.origin
        origin.tag = delivery.tag
        transaction.post(self, delivery, self.target, message, origin)
        if self.part is not None:
            self._posted[delivery] = self.part.contract, message.size
            self.part.contract.posted += message.size
            self.part.contract.charged(message.size)
        self._uncommitted -= 1  # it is bounded by the transaction, not by credit
        self._frontend.transactions.resume(delivery)

    def _remove_pending(self, delivery: Delivery) -> None:
        """Treat a flagged message as one that was sent in no transaction (M-21).

        Whether it is taken, and what becomes of the transaction, have nothing to do with each
        other from here on.
        """
        self._frontend.transactions.resume(delivery)
        delivery.state = None

    def _promise(self, posted: Sequence[Delivery]) -> None:
        """Tell the provisional outcome of postings (X-15)."""
        if self.link.is_active:
            for txn_id in dict.fromkeys([delivery.state.txn_id for delivery in posted]):
                state = spec.TransactionalState(txn_id=txn_id, outcome=ACCEPTED)
                wanted = [
                    delivery
                    for delivery in posted
                    if delivery.state.txn_id == txn_id and not delivery.settled
                ]
                self.link.session.settle(wanted, state, False)
        self.grant()

    def concluded(self, deliveries: Sequence[Delivery], is_committed: bool) -> None:
        """A transaction has ended: settle what was posted in it (X-22)."""
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
            link.session.settle(unsettled, RELEASED, True)
        self._frontend.flush()  # it may have been ended from another connection

    def _doom(self, delivery: Delivery, error: AmqpError) -> None:
        """A posting is refused, and what it belongs to cannot be committed any more."""
        if type(delivery.state) is spec.TransactionalState:
            self._frontend.transactions.doom(delivery, error)

    def _doom_behind(
        self, refused: Delivery, deliveries: Sequence[Delivery], error: AmqpError
    ) -> None:
        """What comes behind a delivery that has ended the link is not taken either."""
        for delivery in deliveries[deliveries.index(refused) + 1 :]:
            self._doom(delivery, error)

    # -- refusal -------------------------------------------------------------------------------

    def _refuse(self, delivery: Delivery, error: AmqpError) -> None:
        self._frontend.note_refusal(self, error)
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
        self._frontend.fail(self.link, details)

    # -- resumption (part 2 §2.6.13) -------------------------------------------------------------

    def compare(self, theirs: Mapping[bytes, Any], is_complete: bool) -> dict[bytes, Any]:
        """Compare what is known with the sender's unsettled map.

        What a complete map does not name the sender has settled: it is forgotten.

        Returns:
            Our own map, for the answering attach.
        """
        outcomes = self.taken.outcomes
        if is_complete:
            self._forget_tags([tag for tag in outcomes if tag not in theirs])
        return {tag: told(outcome) for tag, outcome in outcomes.items()}

    def _is_known(self, delivery: Delivery) -> bool:
        """Answer a delivery whose outcome stands since an earlier attachment."""
        tag = delivery.tag
        outcome = self.taken.outcomes.get(tag)
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
        outcomes = self.taken.outcomes
        for delivery in deliveries:
            outcomes[delivery.tag] = outcome

    def _forget(self, deliveries: Sequence[Delivery]) -> None:
        self._forget_tags([delivery.tag for delivery in deliveries])

    def _forget_tags(self, tags: Sequence[bytes]) -> None:
        if not tags:
            return
        self._earlier.difference_update(tags)
        self._frontend.forget_taken(self.taken, tags)

    def suspend(self) -> ResolvedDeliveries:
        """The link is detached, and may come back: what is known of its deliveries is kept."""
        self._drop_intake()
        self._is_gone = True
        self.taken.is_pending = self._uncommitted > 0
        return self.taken

    def gone(self) -> None:
        """The link is gone for good."""
        self._drop_intake()
        self._is_gone = self._is_ended = True
        self._drop_waiting()
        self._forget_tags(list(self.taken.outcomes))

    def _drop_waiting(self) -> None:
        """Let go of what waits for the store and will be sent again."""
        line = self._held.get(self._gate)
        if line is not None:
            lost = [each for each in line if not each.settled]
            self._failed = sum([each.settled for each in islice(line, self._failed)])
            self._held[self._gate] = deque(each for each in line if each.settled)
            self._uncommitted -= len(lost)
            self._frontend.release(sum([len(each.payload) for each in lost]))
            gone = AmqpError("the link is gone", condition=conditions.LINK_DETACH_FORCED)
            for each in lost:
                self._doom(each, gone)  # a discharge must not wait for it
            self._drop(lost)

    def _drop_intake(self) -> None:
        if self._intake is not None:
            self._intake.abandon()
            self._frontend.transactions.resume(self._intake.delivery)
            self._intake = None

    def _check_recovered(self) -> None:
        if not self._uncommitted:
            self.taken.is_recovered()

    # -- messages for a domain nobody has asked about yet ---------------------------------------

    def _queue_behind(self, delivery: Delivery) -> bool:
        """Keep order: once a message is held, the later ones of the link wait behind it."""
        line = next(reversed(self._held.values()))
        line.append(delivery)
        self._frontend.hold(len(delivery.payload))
        self._frontend.transactions.postpone(delivery)
        return True

    def _pause_for(
        self, delivery: Delivery, reason: NextHop | LargeMessageReceiver | PublishGate
    ) -> None:
        self._held[reason] = deque([delivery])
        self._frontend.hold(len(delivery.payload))
        self._frontend.transactions.postpone(delivery)

    def _hold(self, delivery: Delivery, hop: NextHop) -> None:
        self._pause_for(delivery, hop)
        admitted = self._frontend.admit(hop)
        admitted.addBoth(self._admitted, hop)

    def _admitted(self, _: object, reason: NextHop | LargeMessageReceiver | PublishGate) -> None:
        if reason not in self._held:
            return
        lines = list(self._held)
        place = lines.index(reason)
        line = self._held.pop(reason)
        if place:
            self._held[lines[place - 1]].extend(line)  # what came before waits still
            return
        later, self._held = self._held, {}
        # Also if the link is gone by now: these came before its end (P-03), and what was sent
        # settled nobody would send again (O-08).
        self._uncommitted -= len(line)
        size = sum([len(delivery.payload) for delivery in line])
        self._frontend.put_now(self, list(line))
        self._frontend.release(size)  # what is taken counts as uncommitted by now
        if not self._held:
            self._held = later
        elif later:
            # Not all could be put: whatever comes behind waits for the same now.
            last = next(reversed(self._held.values()))
            for each in later.values():
                last.extend(each)

    # -- the peer's flow -----------------------------------------------------------------------

    def flowed(self, flow: spec.Flow) -> None:
        """Take note of the stream's floor, if this is a relaying peer's link."""
        self.grant()  # deliveries that were resumed in vain have used credit up
        stream = self.origin.stream
        floor = flow.properties.get(FLOOR) if flow.properties else None
        if stream is not None and isinstance(floor, int):
            self._frontend.forget_receipts(stream, floor)
