# SPDX-License-Identifier: Apache-2.0
"""From the source or target of an attach to a node: names, access, and what is in force.

What is answered is what is so (E-01): the termini of this broker live as long as their link, so
an attach that asks for more is answered with durability none and expiry at session-end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from amqproute.address import TRANSFER_NODE, from_compatibility, is_reserved, parse
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.errors import (
    InvalidField,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    UnauthorizedAccess,
)
from amqproute.values import Local, Origin, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Described, Symbol

QUEUE: Final = Symbol("queue")
MOVE: Final = Symbol("move")
OUTCOMES: Final = tuple(
    Symbol(name)
    for name in (
        "amqp:accepted:list",
        "amqp:rejected:list",
        "amqp:released:list",
        "amqp:modified:list",
    )
)
DYNAMIC: Final = "dynamic"
"""The node name that an access rule grants `create` on, to let clients make dynamic nodes."""
KNOWN_POLICIES: Final = frozenset(("amqp:delete-on-close:list", "43"))


@dataclass(frozen=True, slots=True)
class Found:
    """What an attach leads to.

    Attributes:
        node: the ITarget or ISource.
        terminus: the source or target to answer with.
        dynamic: the node was made for this link.
        settled: the other side wants settled deliveries (sources only).
        default_outcome: sources only.
    """

    node: Any
    terminus: Any
    dynamic: bool = False
    settled: bool = False
    default_outcome: Any = None


class Termini:
    """Resolves termini for the links of all connections.

    Args:
        broker: the local nodes.
        qualified: gives the address of a dynamic node to its name (A-02).
        service: the transfer service: its rules say what is local and who may do what, and it
            makes the aliases ``x@y``.
    """

    def __init__(self, broker: Broker, service: Any, qualified: Callable[[str], str] = str) -> None:
        self._broker = broker
        self._service = service
        self._qualified = qualified

    # -- where a client sends to -----------------------------------------------------------------

    def target(self, attach: spec.Attach, principal: Principal) -> Found:
        """Resolve the target of a link that the other side sends on (A-19).

        Raises:
            Unresolved: the domain has to be asked about first.
            AmqpError: the link is to be refused with it.
        """
        target = attach.target
        if isinstance(target, spec.Coordinator):
            raise NotImplementedHere("transactions are not offered")
        if target is None:
            raise InvalidField("the target is null: there is nothing to attach to or to resume")
        if target.dynamic:
            return self._dynamic(target, principal)
        if target.address is None:
            return Found(self._transfer(principal), _target(None))
        return Found(self._target_node(target.address, principal), _target(target.address))

    def _target_node(self, text: str, principal: Principal) -> Any:
        if text == TRANSFER_NODE:
            return self._transfer(principal)
        if is_reserved(text) and "@" not in text:
            self._require(principal, (Verb.MANAGE,), text)
            return self._broker.target(text)
        route = self._route(text)
        if isinstance(route, Local):
            if not route.node:
                # "@our.domain": any node here, by `to`.
                return self._transfer(principal)
            if is_reserved(route.node):
                raise NotAllowed(f"the service {route.node!r} has no alias")
            self._require(principal, (Verb.PUBLISH, Verb.TRANSFER), route.node)
            node = self._broker.target(route.node)
            return self._service.direct(node) if principal.kind == "peer" else node
        if principal.kind == "peer":
            raise UnauthorizedAccess(
                f"{principal} may not relay by an alias; it has {TRANSFER_NODE}",
                info={"code": "route.relay"},
            )
        text = from_compatibility(text) or text
        address = parse(text)
        self._require(principal, (Verb.PUBLISH,), str(address))
        if is_reserved(address.node):
            raise NotAllowed(f"messages for the service {address.node!r} are not transferred")
        return self._service.alias(text, address, route)

    def _transfer(self, principal: Principal) -> Any:
        # What a peer may reach is decided for each message; whether it may come at all was
        # decided when it proved its name.
        if principal.kind != "peer":
            self._require(principal, (Verb.PUBLISH,), TRANSFER_NODE)
        return self._service

    # -- where a client receives from ------------------------------------------------------------

    def source(self, attach: spec.Attach, principal: Principal) -> Found:
        """Resolve the source of a link that the other side receives on.

        Raises:
            AmqpError: the link is to be refused with it.
        """
        source = attach.source
        if source is None:
            raise NotFound("the source is null, and no link of this name is kept here")
        if source.filter:
            raise NotImplementedHere(
                f"filters are not offered: {', '.join(map(str, source.filter))}"
            )
        if source.distribution_mode not in (None, MOVE):
            raise NotImplementedHere(f"distribution-mode {source.distribution_mode!r} on a queue")
        outcomes = tuple(source.outcomes)
        unknown = [outcome for outcome in outcomes if outcome not in OUTCOMES]
        if unknown:
            raise NotImplementedHere(f"outcomes are not offered: {', '.join(unknown)}")
        if source.dynamic:
            found = self._dynamic(source, principal)
            node, address = found.node, found.terminus.address
        else:
            if source.address is None:
                raise InvalidField("the source has no address")
            node, address = self._source_node(source.address, principal), source.address
        answer = spec.Source(
            address=address,
            dynamic=source.dynamic,
            dynamic_node_properties=source.dynamic_node_properties,
            distribution_mode=MOVE,
            default_outcome=source.default_outcome or spec.Released(),
            outcomes=outcomes or OUTCOMES,
            capabilities=(QUEUE,),
        )
        return Found(
            node,
            answer,
            source.dynamic,
            attach.snd_settle_mode == spec.SENDER_SETTLED,
            answer.default_outcome,
        )

    def _source_node(self, text: str, principal: Principal) -> Any:
        if is_reserved(text):
            raise NotAllowed(f"{text!r} is a service: it has nothing to receive")
        route = self._route(text)
        if not isinstance(route, Local):
            raise NotAllowed(
                f"{text!r} is at another organization: messages are sent there, not fetched"
            )
        if is_reserved(route.node):
            raise NotAllowed(f"{route.node!r} is a service: it has nothing to receive")
        self._require(principal, (Verb.CONSUME,), route.node)
        return self._broker.source(route.node)

    def may_return_to(self, address: object, origin: Origin) -> bool:
        """Tell whether a sender may have its message returned there (T-26)."""
        return bool(self._service.may_return_to(address, origin))

    # -- both --------------------------------------------------------------------------------------

    def _route(self, text: str) -> Any:
        return self._service.rules.router.route(text)

    def _require(self, principal: Principal, verbs: tuple[Verb, ...], node: str) -> None:
        allows: Callable[[Principal, Verb, str], bool] = self._service.rules.allows
        if not any(allows(principal, verb, node) for verb in verbs):
            raise UnauthorizedAccess(f"{principal} may not {verbs[0]} on {node!r}")

    def _dynamic(self, terminus: spec.Source | spec.Target, principal: Principal) -> Found:
        if terminus.address is not None:
            raise InvalidField("a dynamic terminus has an address already")
        for key, value in (terminus.dynamic_node_properties or {}).items():
            known = key in ("lifetime-policy", "supported-dist-modes")
            policy = value.descriptor if isinstance(value, Described) else value
            if not known or (
                key == "lifetime-policy"
                and not isinstance(policy, spec.DeleteOnClose)
                and str(policy) not in KNOWN_POLICIES
            ):
                raise NotImplementedHere(f"dynamic-node-properties: {key}={value!r}")
        self._require(principal, (Verb.CREATE,), DYNAMIC)
        node = self._broker.create_dynamic()
        answer = spec.Target(
            address=self._qualified(node.name),
            dynamic=True,
            dynamic_node_properties=terminus.dynamic_node_properties,
            capabilities=(QUEUE,),
        )
        return Found(node, answer, True)


def _target(address: str | None) -> spec.Target:
    return spec.Target(address=address, capabilities=(QUEUE,) if address else ())


__all__ = ["DYNAMIC", "Found", "Termini"]
