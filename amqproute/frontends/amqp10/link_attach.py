# SPDX-License-Identifier: Apache-2.0
"""Attaching of links: resolution, possibly deferred, then joining to the node or refusal.

An answer may have to wait for the DNS (is there a domain beta.example?) or for the disk (a durable
subscription; deliveries of the link from before its loss). Meanwhile a `link_table.PendingAttach`
takes the link's place and gathers its deliveries.

A suspended link gets back the state of its terminus; see `suspended_links`. An attach without a
terminus is for one that was kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from amqproute.address import from_uri, local_name
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import DurableSubscription
from amqproute.errors import (
    AmqpError,
    InternalError,
    NotFound,
    PreconditionFailed,
    ResourceLimitExceeded,
    ResourceLocked,
    Unresolved,
)
from amqproute.frontends.amqp10.coordinator_link import CoordinatorLink, coordinator
from amqproute.frontends.amqp10.link_table import END, ERROR_MODE, LinkTable, PendingAttach
from amqproute.frontends.amqp10.receiver_link import ReceiverLink
from amqproute.frontends.amqp10.sender_link import SenderLink
from amqproute.frontends.amqp10.suspended_links import (
    ParkedDeliveries,
    ResolvedDeliveries,
    RetentionPolicy,
    SuspendedLink,
    retention_of,
)
from amqproute.frontends.amqp10.terminus_resolution import OUTCOMES, ResolvedSource, ResolvedTarget
from amqproute.frontends.common.peer_error_log import short
from amqproute.outcomes import RELEASED
from amqproute.values import (
    EXACTLY_ONCE_CAPABILITY,
    FLOOR,
    SERVICE_BYTES,
    STORE,
    STREAM,
    Origin,
)
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.delivery_states import outcome_of
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.types import Symbol
from amqproute.wire.amqp10.value_memory import footprint

LONGEST_STREAM: Final = 128


class LinkAttach:
    """Answers the attaches of one connection.

    Args:
        links: the links of the connection.
    """

    def __init__(self, links: LinkTable) -> None:
        self._links = links
        self._connection = links.connection
        self._context = links.context
        self._common = links.context.common

    def attached(self, event: ev.LinkAttached) -> None:
        """Answer an attach of the other side, now or later."""
        if event.is_answer:
            return
        link, attach = event.link, event.attach
        self._links.note_error_mode(link, attach)
        try:
            attach = self._without_uri(attach)
            self._connection.endpoint_quota.admit(link.octets)
            if len(self._links.attached) >= self._common.limits.links:
                raise ResourceLimitExceeded(
                    f"the limit of {len(self._links.attached)} links on a connection is reached",
                    info={"limiter": "max-links"},
                )
            if self._connection.contract is not None:
                self._connection.contract.check_links()
            if isinstance(attach.target, spec.Coordinator) and link.role == "receiver":
                self._join_coordinator(link, attach)
                return
            found = self._find(link, attach)
            if found.ready is not None:
                self._join_when_ready(link, attach, found, found.ready)
                return
        except Unresolved as unresolved:
            link.context = waiting = PendingAttach(self._connection, link)
            self._links.attached.add(link)
            octets = footprint(attach)
            self._connection.endpoint_quota.wait(octets)
            self._connection.admit(unresolved.hop).addBoth(
                self._known, octets, link, attach, waiting
            )
        except AmqpError as error:
            self._refuse(link, error)
        else:
            self._join(link, attach, found)

    def _without_uri(self, attach: spec.Attach) -> spec.Attach:
        """Return an attach with the plain address in place of a URI at this end.

        The plain address is in force, and in the answer.

        Raises:
            InvalidField: the URI is badly encoded.
        """
        is_source = attach.role
        terminus = attach.source if is_source else attach.target
        opened = self._links.engine.remote_open
        if not isinstance(terminus, spec.Source | spec.Target) or opened is None:
            return attach
        plain = from_uri(terminus.address or "", opened.hostname)
        if plain is None:
            return attach
        fields = {each.name: getattr(terminus, each.name) for each in type(terminus).fields}
        return _with(attach, is_source, type(terminus)(**{**fields, "address": plain}))

    def _join_coordinator(self, link: Link, attach: spec.Attach) -> None:
        frontend = self._connection
        target = coordinator(attach, frontend.principal, frontend.transactions.terms)
        self._links.steal(link)
        link.accept(
            target=target,
            rcv_settle_mode=spec.RECEIVER_FIRST,  # answers to declare and discharge are settled
            properties={ERROR_MODE: self._links.error_mode(link)},
        )
        link.context = endpoint = CoordinatorLink(self._links, link)
        self._links.attached.add(link)
        endpoint.top_up()

    def _find(self, link: Link, attach: spec.Attach) -> ResolvedSource | ResolvedTarget:
        termini = self._context.termini
        is_source = link.role == "sender"
        kept = self._context.suspended.find(self._links.key(link))
        if kept is not None and kept.terminus is not None:
            attach = _completed(attach, is_source, kept.terminus)
        terminus = attach.source if is_source else attach.target
        if (
            getattr(terminus, "dynamic", False)
            and len(self._links.dynamic) >= self._common.limits.dynamic_nodes
        ):
            raise ResourceLimitExceeded(
                f"the limit of {len(self._links.dynamic)} dynamic nodes on a connection is reached"
            )
        found: ResolvedSource | ResolvedTarget
        if not is_source:
            found = termini.target(attach, self._connection.principal)
        else:
            container = self._links.engine.remote_container_id or ""
            found = source = termini.source(
                attach, self._connection.principal, container, self._connection.owner
            )
            if kept is not None and isinstance(kept.held, ParkedDeliveries):
                _check_resumed(kept, source, link.name)
        self._say_how_long(found, terminus)
        if isinstance(found.node, Queue):
            try:
                self._check_queue(link, found.node, found)
            except AmqpError:
                if found.mode.dynamic:
                    self._common.broker.delete(found.node)
                raise
        return found

    def _say_how_long(self, found: ResolvedSource | ResolvedTarget, asked: Any) -> None:
        """Put the effective timeout of the terminus into the answer (E-01)."""
        answer = found.terminus
        if answer.expiry_policy == spec.EXPIRE_NEVER:
            return  # a durable subscription
        if not found.mode.keeps:
            answer.expiry_policy, answer.timeout = spec.EXPIRE_LINK_DETACH, 0
            return
        terms = retention_of(asked, self._common.limits.suspended_seconds, found.mode.exactly_once)
        answer.expiry_policy, answer.timeout = terms.policy, terms.seconds
        answer.durable = spec.DURABLE_UNSETTLED_STATE if terms.durable else spec.DURABLE_NONE

    def _check_queue(
        self, link: Link, queue: Queue, found: ResolvedSource | ResolvedTarget
    ) -> None:
        """Refuse a link against the queue's own terms (N-14, N-17, Q-20, Q-21)."""
        life = queue.life
        is_shared = life is None or not life.is_exclusive or life.owner is link.session
        if not is_shared and not found.mode.dynamic:
            raise ResourceLocked(f"{local_name(queue.name)!r} is exclusive to another session")
        if link.role == "sender":
            _, old = self._context.links.get(self._links.key(link), (None, None))
            stolen = old.context if old is not None and old is not link else None
            leaves = isinstance(stolen, SenderLink) and stolen.source is queue and not stolen.copies
            queue.check_source(found.mode.copies, int(leaves))

    def _known(
        self, _: object, octets: int, link: Link, attach: spec.Attach, waiting: PendingAttach
    ) -> None:
        """Continue an attach after the look-up of its domain, or without an answer in time."""
        self._found_out(link, attach, waiting)
        self._connection.endpoint_quota.wait(-octets)
        self._connection.endpoint_quota.update(self._links.engine.endpoint_octets)

    def _found_out(self, link: Link, attach: spec.Attach, waiting: PendingAttach) -> None:
        """Answer an attach that waited, after the event or its time-out."""
        if link.context is not waiting:
            self._put_left(link, attach, waiting)  # the link is gone
            return
        try:
            found = self._find(link, attach)
        except Unresolved:
            self._refuse_waiting(link, waiting, InternalError("the domain could not be looked up"))
        except AmqpError as error:
            self._refuse_waiting(link, waiting, error)
        else:
            self._join(link, attach, found)
            if waiting.deliveries and isinstance(link.context, ReceiverLink):
                for delivery in waiting.deliveries:
                    delivery.rcv_settle_mode = link.rcv_settle_mode
                link.context.received_late(waiting.deliveries)
        self._connection.flush()

    def _refuse_waiting(self, link: Link, waiting: PendingAttach, error: AmqpError) -> None:
        self._refuse(link, error)
        for delivery in waiting.deliveries:
            self._connection.transactions.doom(delivery, error)

    def _put_left(self, link: Link, attach: spec.Attach, waiting: PendingAttach) -> None:
        """Put deliveries sent settled before the end of the link: they are not repeated (P-03)."""
        settled = [delivery for delivery in waiting.deliveries if delivery.settled]
        if not settled:
            return
        try:
            found = self._find(link, attach)
        except (AmqpError, Unresolved) as error:
            self._connection.log.warn(
                "{connection} ({principal}) link {link}: {count} settled messages dropped: {error}",
                connection=self._connection.facts.remote,
                principal=str(self._connection.principal),
                count=len(settled),
                link=link.name,
                error=str(error),
            )
            for delivery in settled:
                self._connection.transactions.doom(delivery, NotFound("its link was refused"))
            return
        assert isinstance(found, ResolvedTarget)  # its other end has sent
        window = self._common.limits.link_credit
        self._connection.event_batch.put_now(
            ReceiverLink(self._links, link, found.node, self._origin(attach), window), settled
        )

    def _join_when_ready(
        self,
        link: Link,
        attach: spec.Attach,
        found: ResolvedSource | ResolvedTarget,
        made: Deferred[Queue],
    ) -> None:
        """Answer an attach when its node is on the disk."""
        link.context = waiting = PendingAttach(self._connection, link)
        self._links.attached.add(link)

        def ready(node: Any) -> None:
            if link.context is waiting:
                self._join(link, attach, replace(found, node=node))
                self._connection.flush()

        def failed(failure: Failure) -> None:
            error = failure.value
            if not isinstance(error, AmqpError):
                self._connection.log.failure("link {name} not attached", failure, name=link.name)
                error = InternalError("the request of the link could not be stored")
            if link.context is waiting:
                self._refuse(link, error)
                self._connection.flush()

        made.addCallbacks(ready, failed).addErrback(self._connection.broken, "attaching")

    def _refuse(self, link: Link, error: AmqpError) -> None:
        link.context = None
        self._links.attached.discard(link)
        if self._links.forget_error_mode(link) == END:
            words = spec.Error(condition=error.condition, description=error.description)
            self._links.end_session(link.session, words)
        else:
            info: dict[str, Any] = {Symbol(key): value for key, value in error.info.items()}
            link.refuse(error.condition, error.description, info or None)
        if self._connection.probe or self._connection.principal.kind == "peer":
            self._connection.seen("attach", error.info.get("code") or error.condition, str(error))
        self._connection.error_log.add(
            "{connection} ({principal}) link {link} refused: {error}",
            link=short(link.name),
            error=str(error),
        )

    def _join(
        self, link: Link, attach: spec.Attach, found: ResolvedSource | ResolvedTarget
    ) -> None:
        self._links.steal(link)
        if isinstance(found, ResolvedSource):
            self._join_outbound(link, attach, found)
        else:
            self._join_inbound(link, attach, found)

    def _join_outbound(self, link: Link, attach: spec.Attach, found: ResolvedSource) -> None:
        suspended = self._context.suspended
        key = self._links.key(link)
        kept = suspended.find(key)
        parked = None
        if (
            kept is not None
            and isinstance(kept.held, ParkedDeliveries)
            and _is_for(kept.held, found.node)
        ):
            suspended.take(key)
            parked = kept.held
        suspended.expire(key)  # the remains of another link of the same name
        if found.mode.dynamic:
            self._links.adopt(found.node, link)
        by_entry = STREAM in attach.desired_capabilities and isinstance(found.node, Queue)
        properties = {ERROR_MODE: self._links.error_mode(link), **found.properties}
        if by_entry:
            properties[STREAM] = self._common.stream
        link.accept(
            source=found.terminus,
            offered_capabilities=(STREAM,) if by_entry else (),
            properties=properties,
            unsettled=dict.fromkeys(parked.entries) if parked is not None else None,
        )
        outbound = SenderLink(
            self._links,
            link,
            found.node,
            outcome_of(found.terminus.default_outcome) or RELEASED,
            found.mode.settled,
            found.mode.dynamic,
            found.mode.copies,
            by_entry,
        )
        outbound.retention = _retention_in_force(found, self._common.limits.suspended_seconds)
        link.context = outbound
        self._links.attached.add(link)
        found.node.attach(outbound, found.selects, found.mode.copies)
        theirs = attach.unsettled or {}
        if parked is not None:
            outbound.resume(parked, theirs, not attach.incomplete_unsettled)
        outbound.avoid_tags(theirs)
        outbound.dispatch()

    def _join_inbound(self, link: Link, attach: spec.Attach, found: ResolvedTarget) -> None:
        suspended = self._context.suspended
        key = self._links.key(link)
        kept = suspended.find(key)
        resolved = (
            kept.held
            if kept is not None and isinstance(kept.held, ResolvedDeliveries)
            else ResolvedDeliveries(key)
        )
        if resolved.is_pending:
            self._join_on_recovered(link, attach, resolved)
            return
        suspended.take(key)
        if found.mode.dynamic:
            self._links.adopt(found.node, link)
        resolved.is_durable = bool(found.terminus.durable)
        origin = self._origin(attach)
        acts_at_once = getattr(found.node, "acts_at_once", False)
        inbound = ReceiverLink(
            self._links, link, found.node, origin, self._common.limits.link_credit, resolved
        )
        inbound.retention = _retention_in_force(found, self._common.limits.suspended_seconds)
        link.accept(
            source=_with_outcomes(attach.source),
            target=found.terminus,
            properties={ERROR_MODE: self._links.error_mode(link), **found.properties},
            rcv_settle_mode=(
                spec.RECEIVER_SECOND if found.mode.settles_second else spec.RECEIVER_FIRST
            ),
            offered_capabilities=(EXACTLY_ONCE_CAPABILITY,) if found.mode.settles_second else (),
            max_message_size=self._most_octets(link, acts_at_once),
            unsettled=inbound.compare(attach.unsettled or {}, not attach.incomplete_unsettled),
        )
        link.context = inbound
        link.takes_parts = not acts_at_once
        self._links.attached.add(link)
        inbound.join(self._connection.contract)

    def _most_octets(self, link: Link, acts_at_once: bool) -> int | None:
        """Return the max-message-size of a link; None for the usual one.

        Services have messages in memory; a sender may have a contract.
        """
        contract = self._connection.contract
        bounds = [SERVICE_BYTES] if acts_at_once else []
        if contract is not None and contract.terms.max_message_size is not None:
            bounds.append(contract.terms.max_message_size)
        usual = link.session.connection.settings.max_message_size
        return min(*bounds, usual or bounds[0]) if bounds else None

    def _join_on_recovered(
        self, link: Link, attach: spec.Attach, resolved: ResolvedDeliveries
    ) -> None:
        """Answer when the deliveries from before the loss of the link have their outcomes."""
        known = link.context
        waiting = (
            known if isinstance(known, PendingAttach) else PendingAttach(self._connection, link)
        )
        link.context = waiting
        self._links.attached.add(link)
        resolved.on_recovered(lambda: self._found_out(link, attach, waiting))

    def _origin(self, attach: spec.Attach) -> Origin:
        principal = self._connection.principal
        container_id = self._links.engine.remote_container_id or ""
        origin = self._connection.origin(attach.name[:LONGEST_STREAM], container_id)
        properties = attach.properties if origin.is_peer else None
        store = properties.get(STORE) if properties else None
        if isinstance(store, str) and len(store) <= LONGEST_STREAM:
            origin.store = store
        stream = properties.get(STREAM) if properties else None
        if isinstance(stream, str) and 0 < len(stream) <= LONGEST_STREAM:
            origin.stream = self._common.receipts.stream(
                principal, stream, self._connection.forget_stream
            )
            floor = (attach.properties or {}).get(FLOOR)
            if isinstance(floor, int):
                self._connection.forget_receipts(origin.stream, floor)
        elif origin.is_peer:
            origin.stream = self._common.receipts.by_message_id(principal)
        return origin


def _completed(attach: spec.Attach, is_source: bool, terminus: Any) -> spec.Attach:
    """Return an attach with the kept terminus, if it has none itself."""
    if (attach.source if is_source else attach.target) is not None:
        return attach
    return _with(attach, is_source, terminus)


def _with(attach: spec.Attach, is_source: bool, terminus: Any) -> spec.Attach:
    """Return an attach with another terminus at this end."""
    fields = {each.name: getattr(attach, each.name) for each in spec.Attach.fields}
    fields["source" if is_source else "target"] = terminus
    return spec.Attach(**fields)


def _with_outcomes(source: spec.Source | None) -> spec.Source | None:
    """Return a sender's source with our outcomes, if it has none (L-40)."""
    if source is None or source.outcomes:
        return source
    fields = {each.name: getattr(source, each.name) for each in spec.Source.fields}
    return spec.Source(**{**fields, "outcomes": OUTCOMES})


def _check_resumed(kept: SuspendedLink, found: ResolvedSource, name: str) -> None:
    """Check that a resumed link has the same mode (L-12), which is fixed for its life.

    Raises:
        PreconditionFailed: it is attached with another distribution-mode.
    """
    held = kept.held
    if (
        isinstance(held, ParkedDeliveries)
        and held.source is found.node
        and len(held)
        and found.mode.copies
    ):
        raise PreconditionFailed(
            f"link {name[:256]!r} has {len(held)} unsettled deliveries with distribution-mode "
            "move: it cannot be resumed with copy"
        )


def _is_for(parked: ParkedDeliveries, node: Any) -> bool:
    """Return whether a link to the node may take parked deliveries over.

    Not if it is a subscription whose filter was changed: unacknowledged messages go back, to be
    checked again (L-48).
    """
    if isinstance(node, DurableSubscription) and node.definition.is_changed:
        return False
    return parked.source is node


def _retention_in_force(
    found: ResolvedSource | ResolvedTarget, most_seconds: int
) -> RetentionPolicy | None:
    """Return the retention of a link's state; None for none.

    A durable subscription never ends; unsettled deliveries of its link are kept for a while.
    """
    terminus = found.terminus
    if not found.mode.keeps:
        return None
    if terminus.expiry_policy == spec.EXPIRE_NEVER:
        return RetentionPolicy(spec.EXPIRE_CONNECTION_CLOSE, most_seconds)
    terms = RetentionPolicy(
        Symbol(terminus.expiry_policy), terminus.timeout, bool(terminus.durable)
    )
    return None if terms.is_momentary else terms


__all__ = ["LinkAttach"]
