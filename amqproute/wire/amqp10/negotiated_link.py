# SPDX-License-Identifier: Apache-2.0
"""Negotiation between the two ends of a link: attaching, terms, credit (part 2 §2.6).

A `NegotiatedLink` is our end of a link, as sender or receiver: ``role`` is *ours*. Its deliveries
and its detaching are in the subclass `amqproute.wire.amqp10.link.Link`.

**Terms.** The sender decides on the source and its settle mode, the receiver on the target, its
settle mode and the maximal message size. The attributes of `NegotiatedLink` hold what is in force;
the peer's own words are in ``remote_attach``. Of an attach that we have answered only the numbers
stay there: properties, capabilities, unsettled map and the termini that were asked for may be as
large as a frame, and nobody needs them while the link lives. `NegotiatedLink.octets` estimates the
rest.

**Credit** (§2.6.7). The receiver owns it. Both ends count deliveries with ``delivery_count``; the
receiver says how many more there may be. As the sender we recompute our credit from each flow, so
that deliveries which crossed the flow on the wire are taken off. As the receiver we take one off
for each delivery that begins.

**Tolerance.** Two kinds of deliveries without credit are let through: the first few on a new link,
sent before our first flow was seen (P-04, publishers that do not wait), and those that were granted
once and then revoked by a smaller number (F-04). Neither can be distinguished from deliveries
already on their way, so both are allowances that the next larger grant uses up. Any other detaches
the link with ``amqp:link:transfer-limit-exceeded``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from amqproute.conditions import Condition
from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection_state import ConnectionState
from amqproute.wire.amqp10.serial_numbers import SERIAL_HALF, SERIAL_MASK
from amqproute.wire.amqp10.state_tables import (
    ENDPOINT,
    LOCALLY_OPEN,
    LinkStateName,
    StateTransition,
)
from amqproute.wire.amqp10.value_memory import LINK_OCTETS, REFUSED_OCTETS, footprint

Role = Literal["sender", "receiver"]

REFUSED_NAME: Final = 256
"""Characters kept of the name of a refused link."""


class EndpointSession(ABC):
    """The session of a link, as far as attaching and flow need it.

    Attributes:
        connection: the connection it is on.
        channel: ours; -1 before we have begun or answered.
    """

    connection: ConnectionState
    channel: int
    _state: LinkStateName

    @abstractmethod
    def _flow(self) -> spec.Flow:
        """Return the session's part of a flow frame."""

    @abstractmethod
    def _acquire_handle(self) -> int:
        """Return a free handle.

        Raises:
            LocalProtocolError: the peer's handle-max is reached.
        """


class NegotiatedLink(ABC):
    """One end of a link without its deliveries: terms and credit.

    Attributes:
        session: the session it is attached to.
        name: unique between the two containers for each direction.
        role: ours.
        source: the source in force.
        target: the target in force.
        snd_settle_mode: the mode in force.
        rcv_settle_mode: the mode in force.
        max_message_size: the size in force, in octets; 0 for no limit.
        remote_attach: the peer's attach, or None before it came; without termini, unsettled map,
            capabilities and properties once we have answered it.
        octets: memory of the link, estimated.
        context: the user's.
        credit: sender: deliveries that the receiver still takes. Receiver: deliveries that the
            peer may still send.
        drain: sender: the receiver wants the credit used up, see `Link.drained`. Receiver: we do.
        delivery_count: the link's counter (§2.6.7).
        available: receiver: number of deliveries waiting at the sender, as it reported.
        is_active: whether actions on the link and its deliveries still have an effect. True from
            when both sides have attached until we have detached. When the peer detaches, ends or
            closes, it stays true until `Connection.data_to_send` has written the answer, so that
            the handler of the events can still act on an earlier delivery (P-03).
    """

    __slots__ = (
        "_allow_new",
        "_drain_answered",
        "_echo_due",
        "_end_reported",
        "_failed",
        "_grace",
        "_is_gone",
        "_overdraft",
        "_predecessor",
        "_queued",
        "_resumable",
        "_settle_rule",
        "_state",
        "available",
        "context",
        "credit",
        "delivery_count",
        "drain",
        "handle",
        "is_active",
        "max_message_size",
        "name",
        "octets",
        "rcv_settle_mode",
        "remote_attach",
        "remote_closed",
        "remote_handle",
        "role",
        "session",
        "snd_settle_mode",
        "source",
        "target",
    )

    def __init__(self, session: EndpointSession, name: str, role: Role) -> None:
        self.session = session
        self.name = name
        self.role: Role = role
        self.source: spec.Source | None = None
        self.target: spec.Target | spec.Coordinator | None = None
        self.snd_settle_mode = spec.SENDER_MIXED
        self.rcv_settle_mode = spec.RECEIVER_FIRST
        self.max_message_size = 0
        self.remote_attach: spec.Attach | None = None
        self.octets = 0
        self.remote_closed = False
        self.context: Any = None
        self.credit = 0
        self.drain = False
        self.delivery_count = 0
        self.available: int | None = None
        self.handle = -1
        self.remote_handle = -1
        self._state = LinkStateName.UNBOUND
        self.is_active = False
        # The user knows of the detach, or has asked for it: no more events.
        self._end_reported = False
        # The engine or the peer's end has removed the link: verbs are no-ops.
        self._is_gone = False
        # Set when the peer broke a rule before our attach: the detach is due, see `connection`.
        self._failed: spec.Error | None = None
        self._predecessor: NegotiatedLink | None = None
        self._echo_due = False
        # Sender. Deliveries that wait in the session, see `transfer_output`.
        self._queued = 0
        self._settle_rule: bool | None = None
        self._allow_new = True
        self._drain_answered = False
        # Receiver.
        self._grace = 0
        self._overdraft = 0
        self._resumable: Mapping[bytes, spec.DeliveryState | None] = {}

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {self.role} {self._state.name}>"

    @property
    def state(self) -> LinkStateName:
        """State of the link (`amqproute.wire.amqp10.state_tables`)."""
        return self._state

    @property
    def is_sender(self) -> bool:
        """Whether we are the sending end."""
        return self.role == "sender"

    # --------------------------------------------------------------------------- attaching

    def accept(
        self,
        *,
        source: spec.Source | None = None,
        target: spec.Target | spec.Coordinator | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: spec.Fields | None = None,
        unsettled: Mapping[bytes, spec.DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        initial_delivery_count: int = 0,
    ) -> None:
        """Answer the peer's attach. Arguments of None are echoed or taken from the settings.

        Nothing happens when the link is gone already, because the peer's session or connection
        went down further along the same events.

        Args:
            source: the source in force; by default the one that the peer asked for.
            target: the target in force.
            snd_settle_mode: by default what the peer asked for.
            rcv_settle_mode: by default what the peer asked for.
            max_message_size: octets, 0 for no limit; by default that of the settings.
            offered_capabilities: symbols.
            desired_capabilities: symbols.
            properties: the properties of the link.
            unsettled: what we kept of an earlier attachment: delivery-tag to state.
            incomplete_unsettled: the map above is incomplete.
            initial_delivery_count: sender only: where the counter starts.

        Raises:
            LocalProtocolError: the link is not waiting for an answer.
        """
        if not self._may_answer():
            return
        asked = self.remote_attach
        assert asked is not None
        self.source = asked.source if source is None else source
        self.target = asked.target if target is None else target
        self.snd_settle_mode = asked.snd_settle_mode if snd_settle_mode is None else snd_settle_mode
        self.rcv_settle_mode = asked.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode
        if self.is_sender:
            # A flow that came before this attach counted from our initial count (§2.7.4).
            self.delivery_count = initial_delivery_count & SERIAL_MASK
        self._send_attach(
            max_message_size,
            offered_capabilities,
            desired_capabilities,
            properties,
            unsettled,
            incomplete_unsettled,
        )
        self._apply_terms()
        self._drop_request()
        if self._failed is not None:
            self._answer_now()
        elif self._echo_due and self._state is LinkStateName.OPEN:
            self._answer_echo()

    def refuse(
        self,
        condition: Condition | str,
        description: str | None = None,
        info: spec.Fields | None = None,
    ) -> None:
        """Answer the peer's attach with a null terminus and close the link (§2.6.3).

        Raises:
            LocalProtocolError: the link is not waiting for an answer.
        """
        if not self._may_answer():
            return
        self._end_reported = True
        self._refuse(spec.Error(condition=condition, description=description, info=info))

    def _may_answer(self) -> bool:
        if self._is_gone:
            return False
        if self._state not in (LinkStateName.OFFERED, LinkStateName.LAPSED):
            raise LocalProtocolError(f"link {self.name!r} awaits no answer: {self._state.name}")
        if self._predecessor is not None:
            # The same name was detached earlier in this read: its detach has to go out first.
            previous, self._predecessor = self._predecessor, None
            previous._answer_now()
        if self.session._state not in LOCALLY_OPEN:
            raise LocalProtocolError("the session of the link has not been accepted")
        return True

    def _refuse(self, error: spec.Error | None) -> None:
        """Send attach with a null terminus, then detach."""
        asked = self.remote_attach
        assert asked is not None
        if self.is_sender:
            self.source, self.target = None, asked.target
        else:
            self.source, self.target = asked.source, None
        self.snd_settle_mode = asked.snd_settle_mode
        self.rcv_settle_mode = asked.rcv_settle_mode
        self._send_attach(0, (), (), None, None, False)
        self.source = self.target = None
        self.remote_attach = _without_bulk(asked)
        self._count(REFUSED_OCTETS)
        self._send_detach(True, error)
        self.name = self.name[:REFUSED_NAME]  # the name is free again; this is for logs

    def _drop_request(self) -> None:
        """Keep the terms in force, and drop those that the peer asked for: they are answered."""
        asked = self.remote_attach
        assert asked is not None
        self.remote_attach = _without_bulk(asked)
        kept = footprint(self.source) + footprint(self.target) + footprint(self.name)
        self._count(LINK_OCTETS + kept)

    def _count(self, octets: int) -> None:
        """Record the memory that the link occupies now."""
        self.session.connection.endpoint_octets += octets - self.octets
        self.octets = octets

    def _send_attach(
        self,
        max_message_size: int | None,
        offered_capabilities: Sequence[str],
        desired_capabilities: Sequence[str],
        properties: spec.Fields | None,
        unsettled: Mapping[bytes, spec.DeliveryState | None] | None,
        incomplete_unsettled: bool,
    ) -> None:
        session = self.session
        settings = session.connection.settings
        self.handle = session._acquire_handle()
        self._advance(StateTransition.SEND_OPENING)
        if max_message_size is None:
            max_message_size = settings.max_message_size or 0
        if not self.is_sender:
            self.max_message_size = max_message_size
            if self.remote_attach is None:
                self._grace = settings.credit_grace_new
            self._resumable = dict(unsettled) if unsettled else {}
        attach = spec.Attach(
            name=self.name,
            handle=self.handle,
            role=not self.is_sender,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=self.source,
            target=self.target,
            unsettled=dict(unsettled) if unsettled else None,
            incomplete_unsettled=incomplete_unsettled,
            initial_delivery_count=self.delivery_count if self.is_sender else None,
            max_message_size=max_message_size or None,
            offered_capabilities=tuple(offered_capabilities),
            desired_capabilities=tuple(desired_capabilities),
            properties=properties,
        )
        session.connection._send_attach(session.channel, attach)
        if not self.is_sender:
            self._allow_new = not attach.incomplete_unsettled
            self._resumable = attach.unsettled or {}

    def _apply_terms(self) -> None:
        """Set the terms of the link from both attaches."""
        asked = self.remote_attach
        assert asked is not None
        if self.is_sender:
            self.target = asked.target
            self.rcv_settle_mode = asked.rcv_settle_mode
            self.max_message_size = asked.max_message_size or 0
            self._allow_new = not asked.incomplete_unsettled
            self._settle_rule = _SETTLE_RULES[self.snd_settle_mode]
        else:
            self.source = asked.source
            self.snd_settle_mode = asked.snd_settle_mode

    def _attached_by_peer(self, attach: spec.Attach) -> None:
        """Process the peer's attach: of a new link, or the answer to ours."""
        self.remote_attach = attach
        self._count(LINK_OCTETS + footprint(attach))
        self.remote_handle = attach.handle
        self._advance(StateTransition.RECEIVE_OPENING)
        if not self.is_sender:
            self.delivery_count = attach.initial_delivery_count or 0
        if self._state is LinkStateName.OPEN:
            self._apply_terms()
        elif self._state is LinkStateName.OFFERED:
            self.source, self.target = attach.source, attach.target
            self.snd_settle_mode = attach.snd_settle_mode
            self.rcv_settle_mode = attach.rcv_settle_mode
            if self.is_sender:
                self.max_message_size = attach.max_message_size or 0
            else:
                settings = self.session.connection.settings
                self.max_message_size = settings.max_message_size or 0
                self._grace = settings.credit_grace_new

    @abstractmethod
    def _send_detach(self, closed: bool, error: spec.Error | None) -> None:
        """Send a detach, and drop the deliveries that end with it."""

    @abstractmethod
    def _answer_now(self) -> bool:
        """Answer the peer's detach; False while the user has not answered the attach."""

    def _advance(self, step: StateTransition) -> None:
        state = ENDPOINT.get((self._state, step))
        if state is None:
            raise LocalProtocolError(f"link {self.name!r}: no {step.name} in {self._state.name}")
        self._state = state
        self.is_active = (
            state is LinkStateName.OPEN or state is LinkStateName.LEAVING
        ) and self._failed is None

    # -------------------------------------------------------------------------------- flow

    def inform(self, properties: spec.Fields) -> None:
        """Send the receiver link state properties in a flow (§2.7.4); the credit is untouched.

        Raises:
            LocalProtocolError: the link is a receiver.
        """
        if self.role != "sender":
            raise LocalProtocolError(f"link {self.name!r} is a receiver")
        if self._state is LinkStateName.OPEN:
            self._send_flow(drain=self.drain, properties=properties)

    def flow(
        self,
        credit: int,
        drain: bool = False,
        echo: bool = False,
        properties: spec.Fields | None = None,
    ) -> None:
        """Set the link's credit: this many deliveries from now on (§2.6.7).

        A number below the present credit revokes; deliveries within the former grant are taken
        nevertheless, as they may be on their way.

        Args:
            credit: deliveries.
            drain: ask the sender to use the credit up or give it back.
            echo: ask for the sender's flow state.
            properties: link state properties (``txn-id``).

        Raises:
            LocalProtocolError: the link is a sender, or has not been attached.
        """
        if self.role != "receiver":
            raise LocalProtocolError(f"link {self.name!r} is a sender")
        if self._state is LinkStateName.LEAVING or self._is_gone or self._end_reported:
            return
        if self._state not in LOCALLY_OPEN:
            raise LocalProtocolError(f"link {self.name!r} is not attached: {self._state.name}")
        if not 0 <= credit <= SERIAL_MASK:
            raise LocalProtocolError(f"link-credit cannot be {credit}")
        # The rest of the grace stays valid for deliveries sent before this flow.
        self._overdraft = max(0, self._overdraft + self.credit - credit) + self._grace
        self._grace = 0
        self.credit = credit
        self.drain = drain
        self._send_flow(drain=drain, echo=echo, properties=properties)

    def _send_flow(
        self,
        *,
        drain: bool = False,
        echo: bool = False,
        properties: spec.Fields | None = None,
    ) -> None:
        session = self.session
        count: int | None = self.delivery_count
        if self.remote_attach is None and not self.is_sender:
            count = None
        flow = session._flow()
        flow.handle = self.handle
        flow.delivery_count = count
        flow.link_credit = self.credit + self._queued
        flow.available = 0 if self.is_sender and drain else None
        flow.drain = drain
        flow.echo = echo
        flow.properties = properties
        session.connection._send(session.channel, flow)

    def _answer_echo(self) -> None:
        self._echo_due = False
        self._send_flow(drain=self.drain)

    def _on_flow(self, flow: spec.Flow) -> None:
        """Apply the link's part of the peer's flow."""
        if self.role == "sender":
            if flow.link_credit is not None:
                counted = self.delivery_count
                if flow.delivery_count is not None and self._state is not LinkStateName.OFFERED:
                    ahead = (flow.delivery_count - counted) & SERIAL_MASK
                    counted = ahead - 0x100000000 if ahead >= SERIAL_HALF else ahead
                else:
                    # The peer has not seen our attach: it counts from where we start.
                    counted = 0
                self.credit = max(0, counted + flow.link_credit - self._queued)
            self.drain = flow.drain
            self._drain_answered = False
        else:
            self.available = flow.available
            if flow.delivery_count is not None:
                # Only draining moves the count without a delivery (§2.6.7).
                moved = (flow.delivery_count - self.delivery_count) & SERIAL_MASK
                if 0 < moved < SERIAL_HALF:
                    self.delivery_count = flow.delivery_count
                    self.credit = max(0, self.credit - moved)
                    self._overdraft = 0


def _without_bulk(attach: spec.Attach) -> spec.Attach:
    """Return an attach without the fields whose size is up to the peer."""
    return spec.Attach(
        name=attach.name,
        handle=attach.handle,
        role=attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        incomplete_unsettled=attach.incomplete_unsettled,
        initial_delivery_count=attach.initial_delivery_count,
        max_message_size=attach.max_message_size,
    )


_SETTLE_RULES: Final[dict[int, bool | None]] = {
    spec.SENDER_UNSETTLED: False,
    spec.SENDER_SETTLED: True,
    spec.SENDER_MIXED: None,
}


__all__ = ["REFUSED_NAME", "EndpointSession", "NegotiatedLink", "Role"]
