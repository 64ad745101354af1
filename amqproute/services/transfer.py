# SPDX-License-Identifier: Apache-2.0
"""``amqp$transfer``, the anonymous terminus, and the aliases ``x@y`` and ``@y`` (topic T)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from zope.interface import implementer

from amqproute.address import (
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
from amqproute.broker.commit_batch import Batch
from amqproute.errors import (
    InvalidField,
    MessageSizeExceeded,
    NotAllowed,
    NotImplementedHere,
    PreconditionFailed,
    ResourceLocked,
    UnauthorizedAccess,
)
from amqproute.interfaces import IHops, ITarget
from amqproute.message import LONGEST_REMEMBERED, Message, annotations_of
from amqproute.routing import trail
from amqproute.routing.table import Router
from amqproute.services.provenance import Provenance
from amqproute.services.reply_paths import ReplyPaths
from amqproute.values import SERVICE_BYTES, Local, NextHop, Origin, Principal

BOUNDLESS: Final = 1 << 31
"""Space of a target that takes any number of messages."""


def _none(_: Principal) -> Sequence[str]:
    return ()


@dataclass(slots=True)
class PartnerRules:
    """Domains that peers may speak for or send to, as patterns.

    Attributes:
        relay_for: those that a principal may relay to (T-31).
        origins: the origins that a peer may hand over messages from, besides the names it proves.
    """

    relay_for: Callable[[Principal], Sequence[str]] = _none
    origins: Callable[[Principal], Sequence[str]] = _none


@dataclass(slots=True)
class TransferRules:
    """Transfer rules of the configuration; a reload replaces them.

    Attributes:
        own_id: this container's id, as in traces.
        router: address to route.
        allows: (principal, verb, node) to bool: the access rules.
        partners: rights of peers over other domains.
        max_hops: longest trace taken (T-27).
        insert_to: supply a missing ``to`` on ``x@y``; else refuse (T-14).
        name_of: the domain of a container where it is known, else the container-id.
        remote_services: the services that messages may name in ``to``, here or elsewhere (T-32).
    """

    own_id: str
    router: Router
    allows: Callable[[Principal, Verb, str], bool]
    partners: PartnerRules = field(default_factory=PartnerRules)
    max_hops: int = 16
    insert_to: bool = True
    name_of: Callable[[str], str] = str
    remote_services: frozenset[str] = frozenset()

    def check_service(self, node: str) -> None:
        """Refuse a message for a service, unless the configuration opens it (T-32).

        Raises:
            NotAllowed: the node is a service that is not among `remote_services`.
        """
        if is_reserved(node) and (node == TRANSFER_NODE or node not in self.remote_services):
            raise NotAllowed(f"messages for the service {node!r} are not transferred")


@dataclass(slots=True)
class TransferCounters:
    """Plain counters for operators.

    Attributes:
        loops: messages refused because they have been here before or passed too many brokers.
    """

    local: int = 0
    relayed: int = 0
    duplicates: int = 0
    loops: int = 0


@implementer(ITarget)
class TransferService:
    """Routes each message by its ``to``.

    Args:
        broker: the local nodes.
        hops: the relay queues, an `IHops`.
        rules: see `TransferRules`.

    Attributes:
        replies: rewrites reply addresses; None if they are left as they are.
    """

    name = TRANSFER_NODE

    def __init__(self, broker: Broker, hops: IHops, rules: TransferRules) -> None:
        self._broker = broker
        self.hops = hops
        self._check_trail = _trail_check(rules)
        self.rules = rules
        self.replies: ReplyPaths | None = None
        self.provenance = Provenance(self)
        self.tally = TransferCounters()

    def reload(self, rules: TransferRules) -> None:
        """Apply new rules from the next batch on."""
        self._check_trail = _trail_check(rules)
        self.rules = rules

    def allows(self, principal: Principal, verb: Verb, name: str) -> bool:
        """See `ClaimRules.allows`."""
        return self.rules.allows(principal, verb, name)

    def origins(self, principal: Principal) -> Sequence[str]:
        """See `ClaimRules.origins`."""
        return self.rules.partners.origins(principal)

    def check_trail(self, section: bytes) -> None:
        """See `ClaimRules.check_trail`; a loop is counted here, as the message comes no further."""
        try:
            self._check_trail(section)
        except NotAllowed:
            self.tally.loops += 1
            raise

    def name_of(self, text: str) -> str:
        """Return the name of the local node that an address means (A-01); others unchanged."""
        try:
            route = self.rules.router.route(text)
        except InvalidField:
            return text
        return route.node if isinstance(route, Local) and route.node else text

    def space(self) -> int:
        """Return the number of further messages that fit: relay queues page, so always many."""
        return BOUNDLESS

    def when_space(self, notify: Callable[[], None]) -> None:
        """Do nothing: there is always space here."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Route one message. See `ITarget.put`."""
        to = message.to
        if not to:
            raise PreconditionFailed("the message has no `to`: this node routes by it")
        known = batch.authorized
        if known is not None and known[0] is origin and known[1] == to:
            way = known[2]
        else:
            way = self._way(to, origin)
            if type(way) is Local and is_reserved(local_name(way.node)):
                self._put_to_service(way.node, message, batch, origin)
                return
            batch.authorized = (origin, to, way)
        if type(way) is Local:
            self.keep(self._broker.target(way.node), message, batch, origin)
            if not batch.is_rehearsal:
                self.tally.local += 1
        else:
            assert isinstance(way, NextHop)
            self.relay(way, message, batch, origin)

    def _way(self, to: str, origin: Origin) -> Local | NextHop:
        """Return where an address leads, if the sender may send there.

        The rights to a service are checked in `_put_to_service`, for each request.

        Raises:
            AmqpError: the address leads nowhere, or not for this sender.
        """
        try:
            route = self.rules.router.route(to, origin.principal.host)
        except InvalidField as error:
            if is_reserved(to):  # neither the name of a service nor one that can exist
                raise NotAllowed(f"messages for {to[:64]!r} are not transferred") from None
            raise PreconditionFailed(f"`to` is not an address: {error.description}") from None
        if type(route) is Local:
            return self._authorized_node(route, origin)
        assert isinstance(route, NextHop)
        self._authorize_relay(to, origin)
        return route

    def _authorized_node(self, route: Local, origin: Origin) -> Local:
        node = route.node
        if not node:
            raise PreconditionFailed("`to` names no node")
        host, local = split_host(node)
        if is_reserved(local):
            if host:
                raise NotAllowed(f"messages for the service {local!r} are not transferred")
            return route
        asked = self.replies.node_of(node) if self.replies is not None else None
        if asked is not None:
            if not origin.is_peer and host_of(asked) != origin.principal.host:
                raise ReplyPaths.gone(node)  # it is for partners of another virtual host
            return Local(asked)  # the holder of the alias has received a request, and may reply
        if self._broker.is_reply_address(node):  # for which the same is true
            return route
        verb = Verb.TRANSFER if origin.is_peer else Verb.PUBLISH
        rule_node, is_foreign = node, False
        if local[:1] == "/" and from_exchange_address(local) is not None:
            # Partners know nodes here by their names; exchanges are our clients' business.
            rule_node, is_foreign = in_host(host, node_of_rules(local)), origin.is_peer
        if is_foreign or not self.rules.allows(origin.principal, verb, rule_node):
            if self.replies is not None and self.replies.looks_like_one(node):
                raise self.replies.gone(node)
            raise UnauthorizedAccess(
                f"{origin.principal} may not {verb} to {local_name(rule_node)!r}"
            )
        return route

    def _put_to_service(self, node: str, message: Message, batch: Batch, origin: Origin) -> None:
        """Hand a request to a service, if the sender has the rights to attach to it."""
        self.rules.check_service(node)
        if not self.rules.allows(origin.principal, Verb.MANAGE, node):
            raise UnauthorizedAccess(f"{origin.principal} may not {Verb.MANAGE} {node!r}")
        service = self._broker.target(node)
        if batch.is_transactional:
            raise NotAllowed(
                f"operations of {node} cannot be rolled back: send the request outside of a "
                "transaction"
            )
        if message.rest is not None or message.size > SERVICE_BYTES:
            raise MessageSizeExceeded(f"a request to {node} has at most {SERVICE_BYTES} octets")
        if not batch.is_rehearsal:  # services act at once
            self.keep(service, message, batch, origin)
            self.tally.local += 1

    def _authorize_relay(self, to: str, origin: Origin) -> None:
        address = _address(to)
        self.rules.check_service(address.node)
        if not origin.is_peer:
            if not self.rules.allows(origin.principal, Verb.PUBLISH, str(address)):
                raise UnauthorizedAccess(f"{origin.principal} may not publish to {to!r}")
            return
        domain = address.domain or ""
        patterns = self.rules.partners.relay_for(origin.principal)
        if not any(fnmatchcase(domain, pattern) for pattern in patterns):
            raise UnauthorizedAccess(
                f"{origin.principal} may not have messages relayed to {domain}: "
                "this broker is no open relay",
                info={"code": "route.relay"},
            )

    def may_return_to(self, address: object, origin: Origin) -> bool:
        """Return whether a sender may have its message returned to an address (T-26).

        A return is a message that this broker sends for the sender, who must have the right to send
        it there. A peer has that right for its own domains as well, and for those it speaks for;
        never for a node here by that alone.
        """
        if not isinstance(address, str):
            return False
        rules = self.rules
        host = origin.principal.host
        try:
            route = rules.router.route(address, host)
        except (InvalidField, NotAllowed):
            return False
        if type(route) is Local:
            verb = Verb.TRANSFER if origin.is_peer else Verb.PUBLISH
            return (
                bool(route.node)
                and not is_reserved(local_name(route.node))
                # Who returns it later does not know in which virtual host a bare name is.
                and (not host or _address(address).domain is not None)
                and rules.allows(origin.principal, verb, route.node)
            )
        if not origin.is_peer:
            return rules.allows(origin.principal, Verb.PUBLISH, str(_address(address)))
        domain = _address(address).domain or ""
        return self.provenance.speaks_for(origin.principal, domain) or any(
            fnmatchcase(domain, pattern) for pattern in rules.partners.relay_for(origin.principal)
        )

    def alias(self, text: str, address: Address, hop: NextHop) -> AliasTarget:
        """Return the target of a link to ``x@y`` or ``@y`` (T-12, A-04).

        Raises:
            Unresolved: the hop has to be looked up first.
            NotFound: there is proof that the domain does not exist.
        """
        self.hops.check(hop)
        return AliasTarget(self, text, address, hop)

    def direct(self, node: ITarget) -> DirectTarget:
        """Return the target of a peer's link straight to a local node."""
        return DirectTarget(self, node)

    def relay(self, hop: NextHop, message: Message, batch: Batch, origin: Origin) -> None:
        """Put a message on the relay queue of its next hop, within the batch.

        Raises:
            Unresolved: the hop has to be looked up first.
            AmqpError: there is proof that the hop does not exist, or a mail loop.
        """
        target = self.hops.target(hop, origin)
        if self.replies is not None and not origin.is_peer:
            message = self.replies.leaving(message, batch, origin)
        self.keep(target, message, batch, origin)
        if not batch.is_rehearsal:
            self.tally.relayed += 1

    def keep(self, target: ITarget, message: Message, batch: Batch, origin: Origin) -> None:
        """Put a message on a node once: check its trail and its receipt (T-27, T-36)."""
        offsets = message.located or message.offsets
        if offsets.message_annotations_end:
            try:
                self._check_trail(message.annotation_bytes)
            except NotAllowed:
                self.tally.loops += not batch.is_rehearsal
                raise
        stream = origin.stream
        if stream is None:
            target.put(message, batch, origin)
            return
        entry_id = stream.id_of(origin.tag, message)
        if entry_id is None:
            target.put(message, batch, origin)
            return
        if stream.seen(entry_id):
            self.tally.duplicates += 1
            batch.repeated(target.name, message, origin)
            return
        if entry_id in stream.pending:
            # It came by another connection and is not durable yet: it must not be confirmed.
            raise ResourceLocked("the same message is being stored at this moment")
        target.put(message, batch, origin)
        batch.mark(stream, entry_id)


@implementer(ITarget)
class AliasTarget:
    """``x@y`` or ``@y`` as a link target: the route to one domain (T-12 to T-15).

    Args:
        service: the transfer service.
        text: the address as attached.
        address: the same, parsed.
        hop: its next hop, as decided when the link was made (A-04).
    """

    def __init__(self, service: TransferService, text: str, address: Address, hop: NextHop) -> None:
        self.name = text
        self._service = service
        self._address = address
        self._hop = hop
        self._last: str | None = None
        self._rules = service.rules

    def space(self) -> int:
        """See `TransferService.space`."""
        return BOUNDLESS

    def when_space(self, notify: Callable[[], None]) -> None:
        """Do nothing: there is always space here."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Relay a message whose ``to`` agrees with this alias. See `ITarget.put`."""
        to = message.to
        hop = self._hop
        if to is None:
            message = self._supply(message)
        elif to != self._last or self._rules is not self._service.rules:
            self._check(to)
            self._last, self._rules = to, self._service.rules
        if to is not None and not self._address.node:
            # A peer that takes each node on a separate link is a separate hop for each node.
            assert self._address.domain is not None
            hop = self._service.rules.router.hop(self._address.domain, _address(to).node)
        self._service.relay(hop, message, batch, origin)

    def _supply(self, message: Message) -> Message:
        if not self._address.node:
            raise PreconditionFailed(f"a message for {self.name!r} needs the property `to`")
        if not self._service.rules.insert_to:
            raise PreconditionFailed("the message has no `to`, and alias-to is `require`")
        if message.foreign_format:
            raise NotImplementedHere("a message of an unknown message-format cannot have a `to`")
        if message.has_footer:
            raise PreconditionFailed(
                "the message has no `to` and has a footer, which may sign it: not supplied"
            )
        return message.with_to(self.name)

    def _check(self, to: str) -> None:
        try:
            address = _address(to)
        except InvalidField as error:
            raise PreconditionFailed(f"`to` is not an address: {error.description}") from None
        own = self._address
        if own.node:
            if address != own:
                raise PreconditionFailed(f"`to` is {to!r} on a link to {self.name!r}")
        elif address.domain is not None and address.domain != own.domain:
            raise NotAllowed(f"`to` is {to!r} on a link to {self.name!r}")
        else:
            self._service.rules.check_service(address.node)


@implementer(ITarget)
class DirectTarget:
    """A local node that a peer has attached to by name, instead of by ``amqp$transfer``.

    This is the path of a returned message whose ``to`` names another organization (T-26): the link
    decides the target, and the message stays as it is. Trail and receipts apply as in the transfer
    service.

    Args:
        service: the transfer service.
        node: the local node.
    """

    def __init__(self, service: TransferService, node: ITarget) -> None:
        self.name = node.name
        self.takes_any_format = getattr(node, "takes_any_format", False)
        self._service = service
        self._node = node

    def space(self) -> int:
        """See `ITarget.space`."""
        room: int = self._node.space()
        return room

    def when_space(self, notify: Callable[[], None]) -> None:
        """See `ITarget.when_space`."""
        self._node.when_space(notify)

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Keep the message once. See `ITarget.put`."""
        self._service.keep(self._node, message, batch, origin)


def _address(text: str) -> Address:
    """Read an address in any spelling; access rules know it by its one normal form (A-01)."""
    return parse(from_compatibility(text) or text)


def _trail_check(rules: TransferRules) -> Callable[[bytes], None]:
    """Return a check of message-annotations sections, remembering those that passed.

    The messages of one producer over one path have equal annotations, octet for octet.
    """

    def inspect(section: bytes) -> None:
        trace = trail.trace_of(annotations_of(section))
        trail.check(trace, rules.own_id, rules.max_hops, rules.name_of)

    remembered = lru_cache(maxsize=1024)(inspect)

    def check(section: bytes) -> None:
        if len(section) <= LONGEST_REMEMBERED:
            remembered(section)
        else:
            inspect(section)

    return check
