# SPDX-License-Identifier: Apache-2.0
"""Resolution of the source or target of an attach: names, access, effective terms.

The answer has the terms in force (E-01). `suspended_links` decides how long a terminus outlives its
link, and `link_attach` puts it into the answer: those of queues and of publishers do; those of
browsers, of plain and shared subscribers and of dynamic nodes end with the link. Only the outcomes
of publishers that want exactly-once outlive a restart as well.

Durable subscriptions to topics (S-20) are asked for by ``durable`` 1 or 2 and expiry-
policy ``never``, named by container-id and link name, found again by the same attach or by one
with a null source, and ended by closing the link. With the capability ``shared`` only the part of
the link's name before ``|`` counts, and several links may share it; with ``global`` links of all
containers of one user. Names of anonymous clients are valid within the address that they connect
from (`amqproute.values.owner_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.defer import Deferred

from amqproute.address import PROBE_NODE, local_name
from amqproute.auth.policy import Verb
from amqproute.broker.dynamic_node_terms import read_terms, words_of
from amqproute.broker.link_selection import LinkSelection
from amqproute.broker.node_options import Lifetime
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import (
    GLOBAL,
    Definition,
    DurableSubscription,
    Subscription,
)
from amqproute.broker.topic import Topic
from amqproute.entry import Entry
from amqproute.errors import (
    InvalidField,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
)
from amqproute.filters.registry import FilterSet, read_filters
from amqproute.frontends.amqp10.node_properties import plain_properties, read_lifetime
from amqproute.frontends.common.node_access import DYNAMIC, NodeAccess
from amqproute.interfaces import ISource, ITarget
from amqproute.values import EXACTLY_ONCE_CAPABILITY, SEEN_AS, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol, Timestamp

QUEUE: Final = Symbol("queue")
TOPIC: Final = Symbol("topic")
SHARED: Final = Symbol("shared")
EVERY_CONTAINER: Final = Symbol("global")
TOPIC_WORDS: Final = frozenset(("topic", "temporary-topic"))
"""Capabilities by which a dynamic terminus asks for a topic."""
MOVE: Final = Symbol("move")
COPY: Final = Symbol("copy")
FIRST_DATE: Final = Symbol("first-message-date")
DELIVERY_MODE: Final = Symbol("delivery-mode")
WISHED_MODE: Final = Symbol("opt-delivery-mode")
AT_MOST_ONCE: Final = Symbol("at-most-once")
AT_LEAST_ONCE: Final = Symbol("at-least-once")
EXACTLY_ONCE: Final = Symbol("exactly-once")
OUTCOMES: Final = tuple(
    Symbol(name)
    for name in (
        "amqp:accepted:list",
        "amqp:rejected:list",
        "amqp:released:list",
        "amqp:modified:list",
    )
)
_OUTCOMES: Final = {
    "accepted": spec.Accepted,
    "rejected": spec.Rejected,
    "released": spec.Released,
    "modified": spec.Modified,
}


@dataclass(frozen=True, slots=True)
class LinkMode:
    """Behavior of a link at its terminus.

    Attributes:
        dynamic: whether the node was created for this link.
        settled: whether the other side wants settled deliveries (sources only).
        copies: whether the link browses (distribution-mode copy; sources only).
        keeps: whether the terminus may outlive the link.
        exactly_once: whether the state of the link's deliveries has to outlive connection and
            restart (targets only).
        settles_second: whether deliveries are settled after the sender has settled them (targets
            only).
    """

    dynamic: bool = False
    settled: bool = False
    copies: bool = False
    keeps: bool = False
    exactly_once: bool = False
    settles_second: bool = False


@dataclass(slots=True)
class ResolvedTarget:
    """The node of a sender's link.

    Attributes:
        node: the target of its messages.
        terminus: the target to answer with.
        mode: the mode of the link.
        properties: further properties of the answering attach.
        ready: a Deferred that fires when the node is on the disk, which the answer has to wait
            for; None if it is.
    """

    node: ITarget
    terminus: spec.Target
    mode: LinkMode
    properties: dict[str, object] = field(default_factory=dict)
    ready: Deferred[Queue] | None = None


@dataclass(slots=True)
class ResolvedSource:
    """The node of a receiver's link.

    Attributes:
        node: the source of its entries.
        terminus: the source to answer with.
        mode: the mode of the link.
        properties: further properties of the answering attach.
        ready: a Deferred of the node to use; see `ResolvedTarget`.
        selects: the filter; None for everything.
    """

    node: ISource
    terminus: spec.Source
    mode: LinkMode
    properties: dict[str, object] = field(default_factory=dict)
    ready: Deferred[Queue] | None = None
    selects: Callable[[Entry], bool] | None = None


class TerminusResolver:
    """Resolves termini for the links of all connections.

    Args:
        nodes: the nodes, with the access rules.
        qualified: returns the address of a dynamic node for its name (A-02).
        now_ms: the wall clock, for filters and first-message-date.
        drops_filters: returns whether unknown filters are ignored; else the link is refused
            (L-20).
    """

    def __init__(
        self,
        nodes: NodeAccess,
        qualified: Callable[[str], str] = str,
        now_ms: Callable[[], int] = lambda: 0,
        drops_filters: Callable[[], bool] = bool,
    ) -> None:
        self.nodes = nodes
        self._drops_filters = drops_filters
        self._now_ms = now_ms
        self._qualified = qualified

    # -- where a client sends to -----------------------------------------------------------------

    def target(self, attach: spec.Attach, principal: Principal) -> ResolvedTarget:
        """Resolve the target of a sender's link (A-19).

        Raises:
            Unresolved: the domain has to be looked up first.
            AmqpError: the reason to refuse the link.
        """
        target = attach.target
        if isinstance(target, spec.Coordinator):
            raise NotImplementedHere("transactions are not offered")
        if target is None:
            raise InvalidField(
                "the target is null: name a target to attach to, or resume a known link"
            )
        may_be_second = principal.kind == "peer" or _desires_exactly_once(attach)
        may_be_exact = may_be_second and _may_be_exact(attach)
        mode = _delivery_mode(attach, may_be_exact)
        is_second = may_be_second and attach.rcv_settle_mode == spec.RECEIVER_SECOND
        if target.dynamic:
            made_node, answer = self._dynamic(target, principal)
            return ResolvedTarget(
                made_node, answer, LinkMode(dynamic=True, settles_second=is_second), mode
            )
        exactly_once = mode.get(DELIVERY_MODE) == EXACTLY_ONCE or (
            may_be_exact and _asks_for_durable_state(attach)
        )
        made: Deferred[Queue] | None = None
        node: ITarget
        if target.address is None:
            node, kind = self.nodes.transfer(principal), QUEUE
        else:
            address = target.address
            node, made = self.nodes.find_or_create(
                lambda: self.nodes.target(address, principal),
                address,
                principal,
                _may_create(target),
            )
            _check_unchanged(target, node)
            if target.address == PROBE_NODE:
                mode = {**mode, SEEN_AS: str(principal)}
            kind = TOPIC if isinstance(node, Topic) else QUEUE
        answer = _target(target.address, kind)
        settles_second = is_second or exactly_once
        if settles_second and EXACTLY_ONCE_CAPABILITY in _desired_of_target(attach):
            answer.capabilities = (*answer.capabilities, EXACTLY_ONCE_CAPABILITY)
        kept = LinkMode(keeps=True, exactly_once=exactly_once, settles_second=settles_second)
        return ResolvedTarget(node, answer, kept, mode, made)

    # -- after the access rules have changed -----------------------------------------------------

    def check_target(
        self, target: spec.Target | spec.Coordinator | None, principal: Principal
    ) -> None:
        """Check that the sender of a link still has access; its messages are checked one by one.

        Raises:
            UnauthorizedAccess: it has not any more.
        """
        if not isinstance(target, spec.Target) or target.dynamic:
            return  # a dynamic node belongs to its creator
        self.nodes.check_target(target.address, principal)

    def check_source(self, source: spec.Source | None, principal: Principal, copies: bool) -> None:
        """Check that the receiver of a link still has access.

        Raises:
            UnauthorizedAccess: it has not any more.
        """
        if source is None or source.dynamic or source.address is None:
            return
        self.nodes.check_source(source.address, principal, copies)

    # -- where a client receives from ------------------------------------------------------------

    def source(
        self, attach: spec.Attach, principal: Principal, container: str = "", owner: str = ""
    ) -> ResolvedSource:
        """Resolve the source of a receiver's link.

        Args:
            attach: the attach of the other side.
            principal: the principal of the other side.
            container: its container-id, for the no-local filter.
            owner: owner of the subscriptions it may use, by `amqproute.values.owner_of`; the
                principal if it is empty.

        Raises:
            AmqpError: the reason to refuse the link.
        """
        source = attach.source
        owner = owner or str(principal)
        if source is None:
            return self._kept(attach, principal, container, owner)
        if source.distribution_mode not in (None, MOVE, COPY):
            raise NotImplementedHere(
                f"distribution-mode {source.distribution_mode!s:.40} is not known; there are move "
                "and copy"
            )
        copies = source.distribution_mode == COPY
        filters = read_filters(
            source.filter,
            own_container=container,
            now_ms=self._now_ms,
            drop_unsupported=self._drops_filters(),
        )
        properties, since_ms = self._first_message_date(attach)
        properties.update(_delivery_mode(attach))
        outcomes = tuple(source.outcomes)
        unknown = [outcome for outcome in outcomes if outcome not in OUTCOMES]
        if unknown:
            raise NotImplementedHere(
                f"outcomes that are not offered: {', '.join(unknown)[:256]}; "
                f"offered are {', '.join(OUTCOMES)}"
            )
        made: Deferred[Queue] | None = None
        node: Any
        if source.dynamic:
            node, target = self._dynamic(source, principal)
            address = target.address or ""
        else:
            if source.address is None:
                raise InvalidField("the source has no address")
            address = source.address
            node, made = self.nodes.find_or_create(
                lambda: self.nodes.source(address, principal, copies),
                address,
                principal,
                _may_create(source),
            )
            _check_unchanged(source, node)
        if isinstance(node, Topic):
            return self._subscriber(
                node, address, attach, principal, owner, container, filters, properties
            )
        options = node.options
        copies = copies or (source.distribution_mode is None and options.destructive_links == 0)
        try:
            default_outcome = _default_outcome(source, options.default_outcomes)
        except PreconditionFailed:
            if source.dynamic:
                self.nodes.broker.delete(node)
            raise
        answer = spec.Source(
            address=address,
            dynamic=source.dynamic,
            dynamic_node_properties=source.dynamic_node_properties,
            distribution_mode=COPY if copies else MOVE,
            filter=filters.in_force(),
            default_outcome=default_outcome,
            outcomes=outcomes or OUTCOMES,
            capabilities=(QUEUE,),
        )
        settled = (
            attach.snd_settle_mode == spec.SENDER_SETTLED
            or properties.get(DELIVERY_MODE) == AT_MOST_ONCE
        )
        keeps = not (copies or settled or source.dynamic)
        mode = LinkMode(source.dynamic, settled, copies, keeps)
        return ResolvedSource(node, answer, mode, properties, made, _selection(filters, since_ms))

    # -- subscribers to topics ---------------------------------------------------------------------

    def _subscriber(
        self,
        topic: Topic,
        address: str,
        attach: spec.Attach,
        principal: Principal,
        owner: str,
        container: str,
        filters: FilterSet,
        properties: dict[str, Any],
    ) -> ResolvedSource:
        """Find or begin a subscription (N-01, S-01 to S-10, S-20)."""
        source = attach.source
        assert source is not None
        if source.distribution_mode == MOVE:
            raise NotImplementedHere(
                f"distribution-mode move: {address!r} is a topic; ask for copy, or leave it out"
            )
        if not source.dynamic:
            self.nodes.require(principal, (Verb.CONSUME,), topic.name)
        is_durable = source.durable != spec.DURABLE_NONE and source.expiry_policy == "never"
        is_shared = SHARED in source.capabilities
        is_global = is_shared and EVERY_CONTAINER in source.capabilities
        key = (
            GLOBAL if is_global else container,
            attach.name.partition("|")[0] if is_shared else attach.name,
        )
        if is_durable and FIRST_DATE in properties:
            self._keep_date(attach, key, owner, properties)
        since_ms = None if FIRST_DATE not in properties else int(properties[FIRST_DATE])
        answer = spec.Source(
            address=address,
            durable=source.durable if is_durable else spec.DURABLE_NONE,
            expiry_policy=spec.EXPIRE_NEVER if is_durable else spec.EXPIRE_SESSION_END,
            dynamic=source.dynamic,
            dynamic_node_properties=source.dynamic_node_properties,
            distribution_mode=COPY,
            filter=filters.in_force(),
            default_outcome=source.default_outcome
            or (spec.Released() if is_durable else spec.Accepted()),
            outcomes=tuple(source.outcomes) or OUTCOMES,
            capabilities=(TOPIC, *(SHARED,) * is_shared, *(EVERY_CONTAINER,) * is_global),
        )
        node: Any = None
        ready: Deferred[Queue] | None = None
        if is_durable:
            ready = self._durable(topic, attach, owner, container, filters, since_ms, key)
        elif is_shared:
            node = topic.shared.get((owner, *key)) or Subscription(
                topic, filters, since_ms, (owner, *key)
            )
            if str(node.filters) != str(filters):
                raise PreconditionFailed(
                    f"the shared subscription {key[1]!r} has other filters: attach with the same, "
                    "or under another name"
                )
        else:
            self._check_begun(key, owner)
            node = Subscription(topic, filters, since_ms)
        mode = LinkMode(
            dynamic=source.dynamic,
            settled=attach.snd_settle_mode == spec.SENDER_SETTLED
            or properties.get(DELIVERY_MODE) == AT_MOST_ONCE,
            keeps=is_durable and not is_shared,
        )
        return ResolvedSource(node, answer, mode, properties, ready)

    def _check_begun(self, key: tuple[str, str], owner: str) -> None:
        """Refuse a link with the name of a durable subscription that it does not mean (L-12).

        Otherwise no link would consume the messages of that subscription.
        """
        known = self.nodes.broker.subscription(*key, owner)
        if known is not None and known.definition.is_of(owner):
            raise PreconditionFailed(
                f"the link {key[1][:256]!r} is a durable subscription to "
                f"{local_name(known.topic.name)!r}: attach with durable and "
                "expiry-policy never, or under another name; closing it ends the subscription"
            )

    def _keep_date(
        self, attach: spec.Attach, key: tuple[str, str], owner: str, properties: dict[str, Any]
    ) -> None:
        """Take "only new messages" for the date of an existing subscription (L-15, L-16)."""
        known = self.nodes.broker.subscription(*key, owner)
        asked = (attach.properties or {})[FIRST_DATE]
        assert isinstance(asked, int)  # `_first_message_date` has looked
        if known is not None and asked > self._now_ms():
            del properties[FIRST_DATE]
            if known.definition.since_ms is not None:
                properties[FIRST_DATE] = Timestamp(known.definition.since_ms)

    def _durable(
        self,
        topic: Topic,
        attach: spec.Attach,
        owner: str,
        container: str,
        filters: FilterSet,
        since_ms: int | None,
        key: tuple[str, str],
    ) -> Any:
        source = attach.source
        assert source is not None
        known = self.nodes.broker.subscription(*key, owner)
        if known is not None and known.topic is not topic:
            raise PreconditionFailed(
                f"the subscription {key[1]!r} is one to {local_name(known.topic.name)!r}; close it "
                "first"
            )
        definition = Definition(
            topic.name,
            *key,
            owner,
            container,
            SHARED in source.capabilities,
            source.durable,
            since_ms,
            filters.in_force(),
        )
        return topic.subscribe(definition, filters)

    def _kept(
        self, attach: spec.Attach, principal: Principal, container: str, owner: str
    ) -> ResolvedSource:
        """Find a durable subscription by the link's name alone (S-20)."""
        short = attach.name.partition("|")[0]
        for key in ((container, attach.name), (container, short), (GLOBAL, short)):
            known = self.nodes.broker.subscription(*key, owner)
            if known is not None and known.definition.is_of(owner):
                break
        else:
            raise NotFound("the source is null, and there is no suspended link of this name")
        return self._found_kept(attach, principal, known)

    def _found_kept(
        self, attach: spec.Attach, principal: Principal, known: DurableSubscription
    ) -> ResolvedSource:
        definition = known.definition
        self.nodes.require(principal, (Verb.CONSUME,), definition.topic)
        properties = _delivery_mode(attach)
        if definition.since_ms is not None:
            properties[FIRST_DATE] = Timestamp(definition.since_ms)
        is_global = definition.container == GLOBAL
        answer = spec.Source(
            address=local_name(definition.topic),
            durable=definition.durable,
            expiry_policy=spec.EXPIRE_NEVER,
            distribution_mode=COPY,
            filter=known.filters.in_force(),
            default_outcome=spec.Released(),
            outcomes=OUTCOMES,
            capabilities=(
                TOPIC,
                *(SHARED,) * definition.is_shared,
                *(EVERY_CONTAINER,) * is_global,
            ),
        )
        mode = LinkMode(
            settled=attach.snd_settle_mode == spec.SENDER_SETTLED, keeps=not definition.is_shared
        )
        return ResolvedSource(known, answer, mode, properties)

    def _first_message_date(self, attach: spec.Attach) -> tuple[dict[str, Any], int]:
        """Read the first-message-date (L-14, L-15)."""
        asked = attach.properties.get(FIRST_DATE) if attach.properties else None
        if asked is None:
            return {}, 0
        if not isinstance(asked, int) or isinstance(asked, bool):
            raise InvalidField(f"{FIRST_DATE} is not a timestamp")
        # A date in the future means "only new ones", from now on.
        since_ms = min(int(asked), self._now_ms())
        return {FIRST_DATE: Timestamp(since_ms)}, since_ms

    # -- both --------------------------------------------------------------------------------------

    def _dynamic(
        self, terminus: spec.Source | spec.Target, principal: Principal
    ) -> tuple[Queue | Topic, spec.Target]:
        if terminus.address is not None:
            raise InvalidField("a dynamic terminus must not have an address")
        properties = terminus.dynamic_node_properties or {}
        self.nodes.require(principal, (Verb.CREATE,), DYNAMIC)
        is_topic = properties.get("node-type") == "topic" or not TOPIC_WORDS.isdisjoint(
            terminus.capabilities
        )
        node: Any
        if is_topic:
            _check_topic(properties)
            node = self.nodes.create_dynamic_topic(principal)
        else:
            node = self.nodes.create_dynamic(read_terms(plain_properties(properties)), principal)
        answer = spec.Target(
            address=self._qualified(node.name),
            dynamic=True,
            dynamic_node_properties=terminus.dynamic_node_properties,
            capabilities=(TOPIC if is_topic else QUEUE,),
        )
        return node, answer


def _may_create(terminus: spec.Source | spec.Target) -> bool:
    """Return whether a queue may be created for an attach, if there is no node."""
    return TOPIC_WORDS.isdisjoint(terminus.capabilities)


def _check_unchanged(terminus: spec.Source | spec.Target, node: Any) -> None:
    """Refuse properties for an existing node: they were set when it was created (Q-14)."""
    properties = terminus.dynamic_node_properties
    if not properties:
        return
    life = getattr(node, "life", None)
    policy = None if life is None else life.policy
    asked = properties.get("lifetime-policy")
    if len(properties) == 1 and asked is not None and read_lifetime(asked) is policy:
        return
    raise PreconditionFailed(
        f"{terminus.address!r} is there already, and neither its options nor its lifetime change "
        "by attaching: leave dynamic-node-properties out, or ask for a new node with dynamic=true"
    )


def _check_topic(properties: Mapping[Any, Any]) -> None:
    """Refuse properties that a dynamic topic cannot have."""
    for key, value in plain_properties(properties).items():
        if isinstance(value, Lifetime):
            if value is not Lifetime.CLOSE:
                raise NotImplementedHere("a dynamic topic goes with its link: delete-on-close")
        elif not (
            (key == "node-type" and value == "topic")
            or (key == "supported-dist-modes" and words_of(value) == (COPY,))
        ):
            raise NotImplementedHere(
                f"dynamic-node-properties: {key!s:.100} of a dynamic topic is not offered; it can "
                "have node-type topic, supported-dist-modes copy, and lifetime-policy"
            )


def _default_outcome(source: spec.Source, allowed: Sequence[str]) -> Any:
    """Return the default outcome in force (O-17, O-22, O-23).

    Raises:
        PreconditionFailed: the node does not allow the requested one.
    """
    asked = source.default_outcome
    if asked is None:
        return _OUTCOMES["released" if "released" in allowed else allowed[0]]()
    for name, outcome in _OUTCOMES.items():
        if isinstance(asked, outcome) and name not in allowed:
            raise PreconditionFailed(
                f"the default outcome {name} is not allowed on this node, but {', '.join(allowed)}"
            )
    return asked


def _may_be_exact(attach: spec.Attach) -> bool:
    """Return whether exactly-once is possible for a publisher: if it sends unsettled."""
    return (
        attach.snd_settle_mode != spec.SENDER_SETTLED
        and isinstance(attach.target, spec.Target)
        and not attach.target.dynamic
    )


def _desires_exactly_once(attach: spec.Attach) -> bool:
    """Return whether a publisher declares that it confirms outcomes (P-14).

    Clients that ask for rcv-settle-mode second and never settle are common, Azure's among them: the
    mode alone proves nothing. The desired capabilities are in the attach, or in the target
    (§3.5.4), where Proton lets its users set them.
    """
    return (
        EXACTLY_ONCE_CAPABILITY in attach.desired_capabilities
        or EXACTLY_ONCE_CAPABILITY in _desired_of_target(attach)
    )


def _desired_of_target(attach: spec.Attach) -> Sequence[str]:
    """Return the capabilities of the target that a publisher desires."""
    return attach.target.capabilities if isinstance(attach.target, spec.Target) else ()


def _asks_for_durable_state(attach: spec.Attach) -> bool:
    """Return whether a publisher asks for exactly-once in terms of the standard."""
    target = attach.target
    return (
        isinstance(target, spec.Target)
        and target.durable == spec.DURABLE_UNSETTLED_STATE
        and attach.rcv_settle_mode == spec.RECEIVER_SECOND
    )


def _delivery_mode(attach: spec.Attach, may_be_exact: bool = False) -> dict[str, Any]:
    """Return the delivery mode in force, if one was asked for (P-12 to P-15, S-09, S-10).

    Exactly once needs unsettled state that outlives the link and a restart, which is kept for
    peers and for publishers that desire the capability (P-14). For others a demand for it is
    refused, a wish for it gets at least once (K-23).

    Args:
        attach: the attach of the other side.
        may_be_exact: whether exactly-once is possible.

    Raises:
        NotImplementedHere: the demanded mode is not offered.
    """
    properties = attach.properties or {}
    demanded, wished = properties.get(DELIVERY_MODE), properties.get(WISHED_MODE)
    if demanded is None and wished is None:
        return {}
    modes = (AT_MOST_ONCE, AT_LEAST_ONCE, *(EXACTLY_ONCE,) * may_be_exact)
    if demanded is not None:
        if demanded not in modes:
            raise NotImplementedHere(_why_not_offered(demanded, attach))
        return {DELIVERY_MODE: Symbol(demanded)}
    is_known = wished in modes
    return {DELIVERY_MODE: Symbol(wished) if is_known else AT_LEAST_ONCE}


def _why_not_offered(mode: Any, attach: spec.Attach) -> str:
    """Return why a delivery mode is not offered, and which one is."""
    if mode != EXACTLY_ONCE:
        known = ", ".join((AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE))
        return f"delivery-mode {mode!s:.40} is not known; there are {known}"
    if attach.role:  # the other side receives
        return (
            "delivery-mode exactly-once is offered to producers only; what a consumer has not "
            "settled comes again after a restart: ask for at-least-once, or state it as "
            f"{WISHED_MODE}"
        )
    if not _may_be_exact(attach):
        return (
            "delivery-mode exactly-once takes messages that are sent unsettled, to a node that is "
            "not dynamic: attach with the snd-settle-mode unsettled or mixed, and with an address"
        )
    return (
        "delivery-mode exactly-once is for senders that settle what the broker has accepted: "
        f"state {EXACTLY_ONCE_CAPABILITY} among the desired capabilities of the link, or among the "
        "capabilities of its target"
    )


def _selection(filters: FilterSet, since_ms: int) -> LinkSelection | None:
    """Return the selection of a link, or None for all messages."""
    return LinkSelection(filters, since_ms) if filters or since_ms else None


def _target(address: str | None, kind: Symbol = QUEUE) -> spec.Target:
    return spec.Target(address=address, capabilities=(kind,) if address else ())


__all__ = ["LinkMode", "ResolvedSource", "ResolvedTarget", "TerminusResolver"]
