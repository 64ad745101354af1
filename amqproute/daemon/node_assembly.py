# SPDX-License-Identifier: Apache-2.0
"""Nodes, aliases and bindings of a configuration as declarations for the broker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from amqproute.address import host_named, in_host
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.exchanges.topology_policies import (
    PolicyScope,
    TopologyPolicy,
    topology_policy,
)
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.node_limits import QueueLimits, TopicLimits
from amqproute.broker.node_options import (
    Duplicates,
    Durability,
    Excess,
    NonTransactional,
    QueueOptions,
    Visibility,
)
from amqproute.config.node_settings import BindingSettings, NodeSettings, PolicySettings
from amqproute.config.schema import Config
from amqproute.daemon.routes import rule_of_route
from amqproute.services.change_batch import OPERATOR_POLICY, POLICY
from amqproute.services.node_changes import ConfiguredNodes, NodeDescription


def configured(config: Config) -> ConfiguredNodes:
    """Return all nodes, aliases and bindings of a configuration."""
    bindings = [binding_declaration(binding) for binding in config.bindings]
    nodes = [described(node, config) for node in config.nodes]
    for name, host in config.virtual_hosts.items():
        nodes += [described(node, config).in_host(name) for node in host.nodes]
    return ConfiguredNodes(
        nodes,
        config.aliases,
        bindings,
        _places(config, bindings),
        [rule_of_route(route) for route in config.routes],
        {
            route.domain: _place(config, "routes", index)
            for index, route in enumerate(config.routes)
        },
        [policy_declaration(policy) for policy in config.policies],
        {
            (OPERATOR_POLICY if policy.operator else POLICY, _name_of(policy)): _place(
                config, "policies", index
            )
            for index, policy in enumerate(config.policies)
        },
    )


def _name_of(policy: PolicySettings) -> str:
    """Return the name of a policy within the broker."""
    host = host_named(policy.virtual_host)
    return in_host(host, policy.name)


def policy_declaration(policy: PolicySettings) -> TopologyPolicy:
    """Return a policy of the configuration, which the schema has checked."""
    definition = policy.definition.model_dump(by_alias=True, exclude_none=True)
    scope = PolicyScope(policy.apply_to)
    host = host_named(policy.virtual_host)
    return topology_policy(
        policy.name, policy.pattern, definition, scope, policy.priority, policy.operator, host
    )


def described(node: NodeSettings, config: Config) -> NodeDescription:
    """Return the declaration of a node, from the configuration or made at runtime."""
    options = node.model_dump(mode="json", by_alias=True, exclude={"name"})
    return NodeDescription(_declaration(node, config), options)


def binding_declaration(binding: BindingSettings) -> BindingDeclaration:
    """Return the declaration of a binding of the configuration."""
    return BindingDeclaration(
        binding.source, binding.target, binding.filter, binding.mode, subject=binding.subject
    )


def _places(config: Config, bindings: Sequence[BindingDeclaration]) -> dict[str, str]:
    """Return the place of each node, alias and binding in the file."""
    place = partial(_place, config)
    return {
        **{each.name: place("bindings", index) for index, each in enumerate(bindings)},
        **{alias: place("aliases", alias) for alias in config.aliases},
        **{node.name: place("nodes", index) for index, node in enumerate(config.nodes)},
        **{
            in_host(name, node.name): place("virtual-hosts", name, "nodes", index)
            for name, host in config.virtual_hosts.items()
            for index, node in enumerate(host.nodes)
        },
    }


def _place(config: Config, *at: str | int) -> str:
    source = config.source
    place = source.places.get(at)
    if place is not None:
        return str(place)
    return "the configuration" if source.path is None else str(source.path)


def _declaration(node: NodeSettings, config: Config) -> NodeDeclaration | TopicDeclaration:
    limits = config.limits
    queue_limits = QueueLimits(
        resident_messages=limits.queue_memory_messages,
        resident_bytes=limits.queue_memory_bytes,
        capacity=node.capacity or 0,
        ttl_ms=int((node.ttl or 0) * 1000),
        max_deliveries=node.max_deliveries or 0,
        priorities=node.priorities,
    )
    if node.type == "queue":
        return NodeDeclaration(node.name, queue_limits, node.dead_letter, _options(node))
    return TopicDeclaration(
        node.name,
        TopicLimits(
            buffer_messages=node.subscriber_buffer,
            buffer_bytes=node.subscriber_buffer_bytes,
            holds_publishers=node.subscriber_full == "wait",
            rejects_unroutable=node.unroutable == "reject",
            last_value=node.last_value,
            last_value_key=node.last_value_key,
            ttl_ms=queue_limits.ttl_ms,
            queue=queue_limits,
        ),
    )


def _options(node: NodeSettings) -> QueueOptions:
    return QueueOptions(
        durability=Durability(node.message_durability_mode),
        takes_durable=node.durable_on_transient == "accept",
        non_transactional=NonTransactional(node.non_transactional_support),
        destructive_links=node.maximum_destructive_links,
        excess=Excess(node.excess_destructive_link_policy),
        archive_expired=node.archive_expired,
        archive_unreachable=node.archive_currently_unreachable,
        duplicates=Duplicates(node.duplicate_policy),
        visibility=Visibility(node.visibility),
        default_outcomes=node.default_outcomes,
    )


__all__ = ["binding_declaration", "configured", "described", "policy_declaration"]
