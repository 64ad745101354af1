# SPDX-License-Identifier: Apache-2.0
"""Routing of messages: routes of the configuration and of operators, put in force."""

from __future__ import annotations

from collections.abc import Callable

from amqproute.address import is_reserved, local_name
from amqproute.config.schema import Config
from amqproute.daemon.access_control import AccessControl
from amqproute.daemon.config_reload import Apply
from amqproute.daemon.policy_assembly import relay_terms, transfer_rules
from amqproute.errors import NotAllowed
from amqproute.interfaces import ITarget
from amqproute.relay.relay import Relay
from amqproute.routing.table import Router
from amqproute.services.node_changes import NodeChanges
from amqproute.services.reply_paths import ReplyPaths
from amqproute.services.transfer import TransferRules, TransferService
from amqproute.values import NextHop

__all__ = ["MessageRouting"]


class MessageRouting:
    """The rules of the transfer service and the terms of the relay.

    Args:
        config: gives the configuration in force.
        access: the access rules in force.
        inventory: the routes made at runtime.
        replies: rewrites reply addresses so that they lead back.

    Attributes:
        container_id: our own, once it is known.
        domain_of: the domain for which a container was reached; None if it was not.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        access: AccessControl,
        inventory: NodeChanges,
        replies: ReplyPaths,
    ) -> None:
        self.container_id = ""
        self.domain_of: Callable[[str], str | None] = lambda _: None
        self._config = config
        self._access = access
        self._inventory = inventory
        self._replies = replies
        self._relay: Relay | None = None
        self._transfer: TransferService | None = None

    def begin(self, relay: Relay) -> TransferService:
        """Return the transfer service; it follows the rules of the configuration."""
        broker = self._inventory.broker
        self._relay = relay
        self._transfer = transfer = TransferService(broker, relay, self._rules(self._config()))
        self._use_replies(self._config())
        transfer.replies = self._replies
        self._inventory.when_routed = self._routes_changed
        broker.return_to = self._return_target
        broker.name_of = transfer.name_of
        broker.answers_to = self._answers_to
        return transfer

    def router(self) -> Router:
        """Return the router in force; before there is one, that of the configuration."""
        if self._transfer is None:
            return self._rules(self._config()).router
        return self._transfer.rules.router

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`."""
        rules = self._rules(config)

        def apply() -> None:
            self._put_in_force(rules, config)
            self._use_replies(config)

        return apply

    def _rules(self, config: Config) -> TransferRules:
        return transfer_rules(
            config,
            self.container_id,
            self._access.allows,
            self.domain_of,
            self._inventory.route_rules(),
        )

    def _routes_changed(self) -> None:
        """Apply the routes that operators have created and deleted."""
        self._put_in_force(self._rules(self._config()), self._config())

    def _put_in_force(self, rules: TransferRules, config: Config) -> None:
        assert self._transfer is not None
        assert self._relay is not None
        relay = config.relay
        self._transfer.reload(rules)
        self._relay.reload(relay_terms(config), int(relay.lifetime * 1000), relay.dead_letter)

    def _use_replies(self, config: Config) -> None:
        """Switch the creation of reply aliases on or off; existing ones lead back in any case."""
        self._replies.grace_seconds = config.relay.reply_grace
        self._replies.is_making = config.relay.reply_aliases

    def _return_target(self, address: str) -> ITarget:
        """Return the target of a returned message, a node or relay queue, without a DNS lookup."""
        assert self._relay is not None
        router = self.router()
        route = router.route(address)
        if isinstance(route, NextHop):
            # Not by its `to`, which leads elsewhere: by a link to that very node.
            return self._relay.take_on_trust(router.direct(address))
        if is_reserved(local_name(route.node)):
            raise NotAllowed(f"messages are not returned to the service {route.node!r}")
        node: ITarget = self._inventory.broker.target(route.node)
        return node

    def _answers_to(self, address: str) -> str | ITarget:
        """Return the target of a service's reply: the name of a local node, or a relay queue."""
        assert self._relay is not None
        route = self.router().route(address)
        return self._relay.take_on_trust(route) if isinstance(route, NextHop) else str(route.node)
