# SPDX-License-Identifier: Apache-2.0
"""Access to nodes by address: names, routes and access rules.

The terms of a protocol for a node - filters, outcomes, settle modes, lifetimes - are the business
of its frontend; the node of an address, and the right of a principal to send to it or receive from
it, are the same for all of them.

Addresses are those of the principal's virtual host, nodes are named as within the broker
(`amqproute.address.in_host`). In a virtual host other than ``/`` no services are offered but the
anonymous terminus.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred

from amqproute.address import (
    PROBE_NODE,
    TRANSFER_NODE,
    Address,
    from_compatibility,
    from_exchange_address,
    host_of,
    in_host,
    is_reserved,
    local_name,
    node_of_rules,
    parse,
    split_host,
)
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.dynamic_node_terms import DynamicTerms
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.errors import NotAllowed, NotFound, UnauthorizedAccess, Unresolved
from amqproute.interfaces import ISource, ITarget
from amqproute.message import Message
from amqproute.routing.table import Router
from amqproute.values import RELAY_PREFIX, Local, NextHop, Origin, Principal

__all__ = ["DYNAMIC", "NodeAccess"]

DYNAMIC: Final = "dynamic"
"""The node name that an access rule grants `create` on, to let clients make dynamic nodes."""

N = TypeVar("N")


class TransferPolicy(Protocol):
    """The rules of the transfer service."""

    @property
    def router(self) -> Router:
        """Address to route."""

    @property
    def allows(self) -> Callable[[Principal, Verb, str], bool]:
        """The access rules: principal, verb, node."""

    def check_service(self, node: str) -> None:
        """Raise `NotAllowed` for a service that messages may not name."""


class MessageAdmission(Protocol):
    """Check of the origin of messages; see `amqproute.services.provenance`."""

    def admitted(self, message: Message, origin: Origin) -> Message:
        """Return a message as it is taken from its sender; raise `AmqpError` if it is not."""


class TransferNode(Protocol):
    """The transfer service, itself an `ITarget`."""

    @property
    def rules(self) -> TransferPolicy:
        """Local names and access rules."""

    @property
    def provenance(self) -> MessageAdmission:
        """Check of the origin of messages."""

    def direct(self, node: ITarget) -> ITarget:
        """Return the target of a peer's link straight to a local node."""

    def alias(self, text: str, address: Address, hop: NextHop) -> ITarget:
        """Return the target of a link to an address at another organization."""


class NodeAccess:
    """The nodes of this container, as its clients and peers may use them.

    Args:
        broker: the local nodes.
        service: the transfer service, with the local names, the access rules and the aliases
            ``x@y``.
        auto_create: creates a queue of this name for a principal, and returns a Deferred that fires
            with it when it is on the disk; None where links create no queues (Q-38).

    Attributes:
        admitted: returns a message as it is taken from its sender; see `services.provenance`.
    """

    def __init__(
        self,
        broker: Broker,
        service: TransferNode,
        auto_create: Callable[[str, Principal], Deferred[Queue] | None] = lambda *_: None,
    ) -> None:
        self.broker = broker
        self._service = service
        self._auto_create = auto_create
        self.admitted = service.provenance.admitted

    # -- nodes that are sent to ------------------------------------------------------------------

    def target(self, text: str, principal: Principal) -> ITarget:
        """Return the node of an address, for a sender (A-19).

        Raises:
            Unresolved: the domain has to be looked up first.
            AmqpError: there is none, or the principal may not send to it.
        """
        if text == TRANSFER_NODE:
            return self.transfer(principal)
        if principal.host and is_reserved(text) and "@" not in text:
            raise NotAllowed(f"{text!r} is a service of the virtual host /: it is not offered here")
        if text == PROBE_NODE:
            self.transfer(principal)  # all that may send may probe
            return self.broker.target(text)
        if is_reserved(text) and "@" not in text:
            self.require(principal, (Verb.MANAGE,), text)
            return self.broker.target(text)
        route = self._route(text, principal)
        if isinstance(route, Local):
            if not route.node:
                # "@our.domain": any node here, by `to`.
                return self.transfer(principal)
            host, local = split_host(route.node)
            if is_reserved(local):
                raise NotAllowed(f"the service {local!r} has no alias")
            if from_exchange_address(local) is not None:
                rule_node = in_host(host, node_of_rules(local))
                # Partners know nodes here by their names; exchanges are our clients' business.
                self.require(principal, (Verb.PUBLISH,), rule_node)
                if principal.kind == "peer":
                    raise UnauthorizedAccess(f"{principal} may not send to {rule_node!r}")
                return self.broker.target(route.node)
            if not self.broker.is_reply_address(route.node):
                self.require(principal, (Verb.PUBLISH, Verb.TRANSFER), route.node)
            node = self.broker.target(route.node)
            return self._service.direct(node) if principal.kind == "peer" else node
        if principal.kind == "peer":
            raise UnauthorizedAccess(
                f"{principal} may not relay through an alias; use {TRANSFER_NODE}",
                info={"code": "route.relay"},
            )
        text = from_compatibility(text) or text
        address = parse(text)
        self.require(principal, (Verb.PUBLISH,), str(address))
        self._service.rules.check_service(address.node)
        return self._service.alias(text, address, route)

    def transfer(self, principal: Principal) -> ITarget:
        """Return the transfer service: each message names its node itself.

        The rights of a peer are checked for its messages; whether it may connect was decided when
        it proved its name.

        Raises:
            UnauthorizedAccess: the principal may not use it.
        """
        if principal.kind != "peer":
            self.require(principal, (Verb.PUBLISH,), TRANSFER_NODE)
        return cast(ITarget, self._service)

    def check_target(self, address: str | None, principal: Principal) -> None:
        """Check that a sender may still send to a node; its messages are checked one by one.

        Raises:
            UnauthorizedAccess: it may not any more.
        """
        with suppress(NotAllowed, NotFound, Unresolved):
            if address is None:
                self.transfer(principal)
            else:
                self.target(address, principal)

    # -- nodes that are received from ------------------------------------------------------------

    def source(self, text: str, principal: Principal, copies: bool) -> ISource:
        """Return the node of an address, for a receiver.

        Args:
            text: the address.
            principal: the receiver.
            copies: whether it browses.

        Raises:
            AmqpError: there is none, or the principal may not receive from it.
        """
        if text.startswith(RELAY_PREFIX):
            raise NotAllowed(
                f"{text!r} is a relay queue: only its peer consumes from it; use management to "
                "list, hold or move its messages"
            )
        if is_reserved(text):
            raise NotAllowed(f"{text!r} is a service: it cannot be received from")
        queue = from_compatibility(text)
        if queue is not None and "@" in queue and queue in self.broker.nodes.of(principal.host):
            # A queue that a client of 0-9-1 has named so: nobody can send to it by this name.
            queue = in_host(principal.host, queue)
            self.require(principal, (Verb.BROWSE, Verb.CONSUME)[not copies :], queue)
            return cast(ISource, self.broker.source(queue))
        route = self._route(text, principal)
        if not isinstance(route, Local):
            raise NotAllowed(
                f"{text!r} belongs to another organization: it can be sent to, not received from"
            )
        if is_reserved(local_name(route.node)):
            raise NotAllowed(f"{local_name(route.node)!r} is a service: it cannot be received from")
        if self.broker.is_reply_address(route.node):
            raise NotAllowed(
                f"{text!r} is a reply address: only its requester receives the replies"
            )
        verbs = (Verb.BROWSE, Verb.CONSUME) if copies else (Verb.CONSUME,)
        self.require(principal, verbs, route.node)
        return cast(ISource, self.broker.source(route.node))

    def check_source(self, address: str, principal: Principal, copies: bool) -> None:
        """Check that a receiver may still receive from a node.

        Raises:
            UnauthorizedAccess: it may not any more.
        """
        with suppress(NotAllowed, NotFound):
            node = self.source(address, principal, copies)
            if isinstance(node, Topic):
                self.require(principal, (Verb.CONSUME,), node.name)

    # -- both ------------------------------------------------------------------------------------

    def require(self, principal: Principal, verbs: tuple[Verb, ...], node: str) -> None:
        """Check that a principal has one of these rights on a node.

        Raises:
            UnauthorizedAccess: it has none of them.
        """
        allows = self._service.rules.allows
        for verb in verbs:
            if allows(principal, verb, node):
                return
        # The right that an operator would grant: a peer's is to transfer.
        lacking = verbs[-1] if principal.kind == "peer" else verbs[0]
        raise UnauthorizedAccess(f"{principal} may not {lacking} on {local_name(node)!r}")

    def find_or_create(
        self, find: Callable[[], N], address: str, principal: Principal, may_create: bool = True
    ) -> tuple[N, Deferred[Queue] | None]:
        """Find a node, or create a queue for a client that may `create` it (Q-38).

        Args:
            find: calls `target` or `source`.
            address: the address of the node.
            principal: the principal of the client.
            may_create: whether to create a queue if there is no node.

        Returns:
            The node; and a Deferred that fires with it when it is on the disk, or None if it was
            there.
        """
        try:
            return find(), None
        except NotFound:
            created = self._created_for(address, principal) if may_create else None
            if created is None:
                raise
        return find(), created

    def _created_for(self, address: str, principal: Principal) -> Deferred[Queue] | None:
        route = self._route(address, principal)
        if (
            not isinstance(route, Local)
            or is_reserved(local_name(route.node))
            or host_of(route.node) != principal.host
            or principal.kind == "peer"
            or not self._service.rules.allows(principal, Verb.CREATE, route.node)
        ):
            return None
        return self._auto_create(route.node, principal)

    def create_dynamic_topic(self, principal: Principal) -> Topic:
        """Create a topic with a name of its own.

        Raises:
            UnauthorizedAccess: the principal may not create dynamic nodes.
        """
        self.require(principal, (Verb.CREATE,), DYNAMIC)
        return self.broker.create_dynamic_topic(principal.host)

    def create_dynamic(self, terms: DynamicTerms, principal: Principal) -> Queue:
        """Create a queue with a name of its own.

        Raises:
            UnauthorizedAccess: the principal may not create dynamic nodes, or may not send to the
                dead-letter node.
            NotFound: there is no such dead-letter node.
        """
        self.require(principal, (Verb.CREATE,), DYNAMIC)
        if terms.dead_letter is not None:
            terms = replace(terms, dead_letter=in_host(principal.host, terms.dead_letter))
            assert terms.dead_letter is not None
            self.require(principal, (Verb.PUBLISH,), terms.dead_letter)
            self.broker.target(terms.dead_letter)
        return self.broker.create_dynamic(terms, principal.host)

    def _route(self, text: str, principal: Principal) -> Local | NextHop:
        return self._service.rules.router.route(text, principal.host)
