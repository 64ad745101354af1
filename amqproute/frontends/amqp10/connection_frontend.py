# SPDX-License-Identifier: Apache-2.0
"""The AMQP 1.0 frontend: translates events of one accepted connection into calls of the broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from zope.interface import implementer

from amqproute import conditions
from amqproute.auth.realm import Authenticator
from amqproute.broker.partial_delivery_eviction import PartialDelivery
from amqproute.errors import AmqpError, NotFound, ResourceLimitExceeded, UnauthorizedAccess
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.link_attach import LinkAttach
from amqproute.frontends.amqp10.link_refusal import error_of
from amqproute.frontends.amqp10.link_rows import link_index
from amqproute.frontends.amqp10.link_table import LinkEndpoint, LinkTable
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.contract_enforcement import RETRY_SECONDS
from amqproute.frontends.common.partial_deliveries import HEAD_BYTES
from amqproute.frontends.common.peer_error_log import short
from amqproute.net.pump import IUpgradableUser, TransportFacts
from amqproute.values import COMMAND_CONTAINER, CONTRACT, PROBE
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.types import Symbol
from amqproute.wire.sasl_mechanisms import Verification

__all__ = ["Frontend"]

LEAST_FRAME: Final = 65536
"""Least max-frame-size that we announce, if the settings allow it: `uamqp` writes frames up to this
size, and smaller ones only cost time."""


@implementer(IUpgradableUser)
class Frontend(ClientConnection):
    """One accepted connection.

    Args:
        connection: the engine, in the server role.
        context: shared by all AMQP 1.0 connections.
        authenticator: the authenticator of the listener it came in by.
        facts: facts about the transport.
    """

    log = Logger()

    def __init__(
        self,
        connection: Connection,
        context: Amqp10Context,
        authenticator: Authenticator,
        facts: TransportFacts,
    ) -> None:
        super().__init__(context.common, facts, authenticator)
        self.connection = connection
        self._amqp10 = context
        self._authenticator = authenticator
        self._is_open = False
        self._is_command = False
        self._is_refused = False
        self._is_refusal_logged = False
        self._verifying: Deferred[Verification] | None = None

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else f"links={len(self.links)}"
        return f"<Frontend {self.facts.remote} {self.principal} {state}>"

    # -- its parts; see `ClientConnection` ---------------------------------------------------------

    @cached_property
    def links(self) -> LinkTable:
        """Its links."""
        return LinkTable(self, self.connection, self._amqp10)

    @cached_property
    def _link_attach(self) -> LinkAttach:
        return LinkAttach(self.links)

    @cached_property
    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            ev.CredentialsPresented: self._credentials_presented,
            ev.Authenticated: self._authenticated,
            ev.AuthenticationRejected: self._authentication_failed,
            ev.OpenReceived: self._open_received,
            ev.SessionBegun: self._session_begun,
            ev.LinkAttached: self._link_attach.attached,
            ev.DeliveriesReceived: self._deliveries_received,
            ev.PartsReceived: self._parts_received,
            ev.InputHeld: self._input_held,
            ev.EndpointsHeld: _nothing,  # their memory is counted after each read
            ev.DeliveriesUpdated: self._deliveries_updated,
            ev.LinkFlowed: self._link_flowed,
            ev.SessionFlowed: self._session_flowed,
            ev.LinkDetached: self.links.detached,
            ev.SessionEnded: self._session_ended,
            ev.ConnectionClosed: self._connection_closed,
            ev.TlsAgreed: _nothing,
        }

    # -- for the daemon and its operators ----------------------------------------------------------

    @property
    def holds_nothing(self) -> bool:
        """See `ClientConnection.holds_nothing`."""
        return not any(link.role == "sender" and link.unsettled for link in self.links.attached)

    def row(self) -> dict[str, object]:
        """See `ClientConnection.row`."""
        attached = self.links.attached
        return {
            **super().row(),
            "container": self.connection.remote_container_id or "",
            "credit-in": sum(link.credit for link in attached if link.role == "receiver"),
            "credit-out": sum(link.credit for link in attached if link.role == "sender"),
            "unsettled": sum(len(link.unsettled) for link in attached),
            "deliveries-in": self.connection.deliveries_in,
            "deliveries-out": self.connection.deliveries_out,
        }

    @property
    def link_count(self) -> int:
        """See `ClientConnection.link_count`."""
        return len(self.links)

    def link_index(self) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
        """See `ClientConnection.link_index`."""
        return link_index(self.links)

    def endpoints(self) -> Iterator[LinkEndpoint]:
        """See `ClientConnection.endpoints`."""
        return self.links.endpoints()

    # -- IConnectionUser -------------------------------------------------------------------------

    def events(self, events: Sequence[object]) -> None:
        """See `IConnectionUser.events`: one batch for all of them."""
        handlers = self._handlers
        with self.event_batch:
            for event in events:
                handlers[type(event)](event)
        quota, octets = self.endpoint_quota, self.connection.endpoint_octets
        if octets != quota.counted:
            quota.update(octets)

    def end_endpoints(self) -> None:
        """See `ClientConnection.end_endpoints`."""
        if self._verifying is not None:
            self._verifying.cancel()
            self._verifying = None
        self.links.lost()
        self._amqp10.suspended.connection_lost(self)

    # -- connection ------------------------------------------------------------------------------

    def _credentials_presented(self, event: ev.CredentialsPresented) -> None:
        self._verifying = verified = self._authenticator.verify(event.step, self.log_in_facts())
        verified.addCallbacks(self._verified, lambda failure: failure.trap(CancelledError))
        verified.addErrback(self.broken, "verifying a password")

    def _verified(self, granted: Verification) -> None:
        self._verifying = None
        self._is_refusal_logged = granted is False
        if self._pump is not None:
            self.events(self.connection.credentials_verified(granted, self.context.seconds()))
            self.flush()

    def _authenticated(self, event: ev.Authenticated) -> None:
        if event.identity is not None:
            self.principal = self._authenticator.principal(event.identity)
            outside = event.identity.outside
            self.expire_at(None if outside is None else outside.expires)

    def _authentication_failed(self, event: ev.AuthenticationRejected) -> None:
        self._is_refused = True
        self.seen("sasl", "sasl.refused", f"{event.mechanism or 'SASL'}: {event.reason}")
        if self._is_refusal_logged:
            return  # by the authenticator, with the name of the user
        self._log_unauthenticated(
            "sasl",
            "{connection} refused: {mechanism} authentication failed: {reason}{more}",
            mechanism=event.mechanism or "SASL",
            reason=event.reason,
        )

    def _open_received(self, event: ev.OpenReceived) -> None:
        hostname = event.open.hostname
        try:
            virtual_host = self.context.hosts.meant(hostname, self.principal)
        except NotFound as error:
            self.seen("open", conditions.NOT_FOUND, error.description)
            self.close(conditions.NOT_FOUND, error.description)
            return
        if not virtual_host and not self.context.serves(hostname):
            words = f"no broker named {hostname!r} is served here"
            self.seen("open", conditions.NOT_FOUND, words)
            self.close(conditions.NOT_FOUND, words)
            return
        try:
            self.enter(virtual_host)
            self.admit_principal()
        except (ResourceLimitExceeded, UnauthorizedAccess) as error:
            self._refuse_open(error)
            return
        terms = {} if self.contract is None else self.contract.terms.bounds()
        settings = self.connection.settings
        # Some clients cut frames by our limit, and then cannot write those beyond their own.
        size = min(settings.max_frame_size, max(event.open.max_frame_size, LEAST_FRAME))
        if terms:  # a client that knows its limits can respect them
            given = settings.properties or {}
            bounds = {Symbol(name): bound for name, bound in terms.items()}
            self.connection.open(max_frame_size=size, properties={**given, CONTRACT: bounds})
        else:
            self.connection.open(max_frame_size=size)
        self._is_open = True
        self.probe = short(str((event.open.properties or {}).get(PROBE) or ""))
        if self.probe:
            self.seen("open", "ok", "")
        self._is_command = self.facts.unix_uid is not None and event.open.container_id.startswith(
            COMMAND_CONTAINER
        )
        level = self.log.debug if self._is_command else self.log.info
        level(
            "{connection} opened by {principal}{host}, container {container}{tls}",
            connection=self.facts.remote,
            principal=str(self.principal),
            host=self.host_in_words,
            container=short(event.open.container_id),
            tls=f", {self.facts.tls_version}" if self.facts.tls_version else "",
        )
        if self.principal.kind == "peer":
            self.context.peer_opened(self.principal)

    def _refuse_open(self, error: AmqpError) -> None:
        self._is_refused = True
        self._log_unauthenticated(
            "open",
            "{connection} ({principal}) refused: {error}{more}",
            principal=str(self.principal),
            error=str(error),
        )
        self.connection.close(error_of(error))
        self.flush()

    def _connection_closed(self, event: ev.ConnectionClosed) -> None:
        if event.error is None:
            if self._is_open:
                # At a stop there may be thousands, and the daemon says how many.
                is_quiet = self.is_stopping or self._is_command
                level = self.log.debug if is_quiet else self.log.info
                level("{connection} closed", **self._log_fields())
            return
        if self._is_refused:
            return  # the reason has been logged
        if not self._is_open:
            self.seen("open", event.error.condition, event.error.description or "")
        why = " by us for its fault" if event.by_fault else " by the other side"
        text = "{connection} ({principal}) closed{why}: {condition}: {description}{more}"
        fields = {
            "principal": str(self.principal),
            "condition": short(event.error.condition),
            "description": short(event.error.description),
        }
        if not self._is_open:
            kind = f"closed {event.error.condition}" if event.by_fault else "left"
            self._log_unauthenticated(kind, text, why=why, **fields)
            return
        level = self.log.warn if event.by_fault else self.log.info
        level(text, connection=self.facts.remote, why=why, more="", **fields)

    def _session_begun(self, event: ev.SessionBegun) -> None:
        if event.is_answer:
            return
        try:
            self.endpoint_quota.admit(event.session.octets)
        except ResourceLimitExceeded as error:
            event.session.end(error_of(error))
        else:
            event.session.accept()

    def _session_ended(self, event: ev.SessionEnded) -> None:
        if event.error is not None and event.by_fault:
            self.error_log.add(
                "{connection} ({principal}) session ended for its fault: "
                "{condition}: {description}",
                condition=event.error.condition,
                description=short(event.error.description),
            )
        self.links.session_ended(event.session)

    # -- links -----------------------------------------------------------------------------------

    def _deliveries_received(self, event: ev.DeliveriesReceived) -> None:
        endpoint = event.link.context
        if endpoint is not None:
            endpoint.deliveries_received(event.deliveries)

    def _parts_received(self, event: ev.PartsReceived) -> None:
        endpoint = event.link.context
        if endpoint is not None:
            endpoint.parts_received(event)
        else:
            event.link.session.took(sum(map(len, event.parts)))

    def _deliveries_updated(self, event: ev.DeliveriesUpdated) -> None:
        endpoint = event.link.context
        if endpoint is not None:
            endpoint.updated(event.deliveries, event.state, event.settled)

    def _link_flowed(self, event: ev.LinkFlowed) -> None:
        endpoint = event.link.context
        if endpoint is not None:
            endpoint.flowed(event.flow)

    def _session_flowed(self, event: ev.SessionFlowed) -> None:
        for link in event.session.links:
            if link.role == "sender" and link.context is not None:
                link.context.dispatch()

    # -- unfinished input ------------------------------------------------------------------------

    def _input_held(self, event: ev.InputHeld) -> None:
        partial = self.context.partial_deliveries
        partial.holds(self, event.octets)
        if partial.is_too_much:
            self.event_batch.afterwards(partial.relieve)

    def held_input(self) -> int:
        """See `ClientConnection.held_input`."""
        return self.connection.held_bytes

    def partial_deliveries(self, are_all: bool) -> list[PartialDelivery[Hashable]]:
        """See `ClientConnection.partial_deliveries`: by link, and None for an incomplete frame."""
        found = []
        for link in (*self.connection.unfinished, None):
            if are_all or link is None or not link.is_in_parts:
                partial = self.partial_delivery(link)
                if partial is not None:
                    found.append(partial)
        return found

    def partial_delivery(self, key: Hashable) -> PartialDelivery[Hashable] | None:
        """See `ClientConnection.partial_delivery`."""
        connection, now = self.connection, self.context.seconds()
        if not isinstance(key, Link):
            octets = connection.unread_bytes
            idle = 0.0 if self.is_held else now - connection.last_received
            return PartialDelivery(None, octets, idle, False) if octets else None
        link = key
        if link not in connection.unfinished:
            return None
        if self.is_held or not link.session.incoming_window:
            link.restart_progress(now)
        octets = link.unfinished_bytes
        return PartialDelivery(link, octets, now - link.progress_at, _can_spill(link, octets))

    def spill(self, key: Hashable) -> None:
        """See `ClientConnection.spill`."""
        assert isinstance(key, Link)
        self.events(self.connection.hand_up(key, self.context.seconds()))

    def end_partial(self, key: Hashable, words: str) -> None:
        """See `ClientConnection.end_partial`."""
        if not isinstance(key, Link):  # within a frame there is nothing that a close could follow
            self.drop(words)
            return
        if not key.is_active:  # its attach has not been answered: it cannot be detached
            self.close(conditions.RESOURCE_LIMIT_EXCEEDED, words)
            return
        self.error_log.add(
            "{connection} ({principal}) link {link} ended: {words}",
            link=short(key.name),
            words=words,
        )
        error = ResourceLimitExceeded(
            words, info={"limiter": "unfinished-deliveries", "retry-after": RETRY_SECONDS}
        )
        if key.unfinished is not None:
            self.transactions.doom(key.unfinished, error)
        self.links.fail(key, error_of(error))


def _can_spill(link: Link, octets: int) -> bool:
    delivery = link.unfinished
    return (
        octets > HEAD_BYTES
        and link.takes_parts
        and not link.is_in_parts
        and link.is_active
        and delivery is not None
        # A branch of a distributed transaction takes no message in parts.
        and type(delivery.state) is not spec.TransactionalState
    )


def _nothing(_: object) -> None:
    """Events that need no action of their own."""
