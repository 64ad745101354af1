# SPDX-License-Identifier: Apache-2.0
"""Rules from the configuration: access, routing, relay terms, contracts.

The command line builds the same rules from the same configuration, so that `explain` agrees with
the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from amqproute.auth.host_policies import HostPolicies
from amqproute.auth.policy import AccessPolicy, Rule, Verb, default_rules
from amqproute.auth.users import UserFile
from amqproute.broker.token_bucket import Rate
from amqproute.config.access_settings import AccessSettings, ContractSettings
from amqproute.config.schema import Config
from amqproute.daemon.routes import make_router
from amqproute.frontends.common.contract_enforcement import NO_TERMS, ContractTerms
from amqproute.relay.relay_terms import RelayBounds, RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.services.transfer import PartnerRules, TransferRules
from amqproute.values import NextHop, Principal, RouteRule

Allows: TypeAlias = Callable[[Principal, Verb, str], bool]
"""Whether a principal may do an action at a node."""


def make_policy(config: Config) -> HostPolicies:
    """Make the access rules of a configuration, each list followed by the default ones."""
    return HostPolicies(
        _policy(config.access),
        {name: _policy(host.access) for name, host in config.virtual_hosts.items()},
    )


def _policy(access: Sequence[AccessSettings]) -> AccessPolicy:
    rules = [
        Rule.of(who=rule.who, node=rule.node, allow=rule.allow, deny=rule.deny) for rule in access
    ]
    return AccessPolicy([*rules, *default_rules(os.getuid(), verbs=frozenset(Verb))])


def load_users(config: Config, *, must_exist: bool = False) -> UserFile:
    """Read the users file; the default one may be missing: then there are no users yet.

    Args:
        config: the configuration.
        must_exist: refuse a missing file: a deleted file is more often a mistake than the wish to
            lock everybody out.
    """
    path = config.users.file
    return UserFile.load(path) if must_exist or path.exists() else UserFile(path, {})


def transfer_rules(
    config: Config,
    container_id: str,
    allows: Allows,
    domain_of: Callable[[str], str | None] = lambda _: None,
    routes: Iterable[RouteRule] = (),
) -> TransferRules:
    """Return the rules of the transfer service.

    Args:
        config: the configuration.
        container_id: our own.
        allows: the access rules in force.
        domain_of: the domain for which a container was reached; None if it was not.
        routes: the routes made at runtime.
    """
    router = make_router(config, container_id, routes)

    def name_of(container: str) -> str:
        """Return the domain of a container, for messages about loops."""
        if container == container_id:
            return config.domains[0] if config.domains else container
        return router.containers.get(container) or domain_of(container) or container

    peer_for = lru_cache(maxsize=1024)(config.peer_for)  # it is asked for each message

    def relay_for(principal: Principal) -> Sequence[str]:
        names = principal.names or (principal.name,)
        return tuple(pattern for name in names for pattern in peer_for(name).relay_for)

    def origins(principal: Principal) -> Sequence[str]:
        names = principal.names or (principal.name,)
        return tuple(pattern for name in names for pattern in peer_for(name).origins)

    return TransferRules(
        own_id=container_id,
        router=router,
        allows=allows,
        partners=PartnerRules(relay_for, origins),
        max_hops=config.relay.max_hops,
        insert_to=config.alias_to == "insert",
        name_of=name_of,
        remote_services=frozenset(config.remote_services),
    )


def suppresses(config: Config, principal: Principal) -> bool:
    """Return whether duplicates of messages from this peer are suppressed."""
    names = principal.names or (principal.name,)
    return any(config.peer_for(name).suppress_duplicates for name in names)


def relay_terms(config: Config) -> RelayTerms:
    """Return the terms of the relay."""
    relay = config.relay

    def rate(hop: NextHop) -> Rate:
        peer = config.peer_for(hop.domain)
        return Rate(peer.messages_per_second, peer.bytes_per_second)

    return RelayTerms(
        RetrySchedule(relay.first_retry, relay.last_retry),
        relay.window,
        relay.idle_timeout,
        window_bytes=relay.window_bytes,
        dead_after=relay.dead_after,
        settle_seconds=relay.settle_timeout,
        bounds=RelayBounds(relay.connects_per_second, relay.max_destinations),
        rate=rate,
    )


def contract_of(principal: Principal, config: Config) -> tuple[str, ContractTerms]:
    """Return the holder of a principal's contract, and its terms.

    A peer whose certificate proves several domains has the contract of the first one, in
    alphabetical order, that the configuration names; otherwise that of its own name.
    """
    found: ContractSettings | None = None
    key = str(principal)
    if principal.kind == "peer":
        named = sorted(name for name in principal.names if name in config.peers)
        name = named[0] if named else principal.name
        key, found = f"peer:{name}", config.peer_for(name).contract
    elif principal.kind in ("user", "anonymous"):
        found = config.contracts.get(key)
        if found is None and principal.kind == "user":
            found = config.contracts.get("user:*")
    return key, NO_TERMS if found is None else ContractTerms(**found.model_dump())


def declared_contracts(config: Config) -> dict[str, ContractTerms]:
    """Return the contract terms of the configuration, by holder or pattern of holders."""
    found = {key: ContractTerms(**each.model_dump()) for key, each in config.contracts.items()}
    for name in config.peers:
        contract = config.peer_for(name).contract
        if contract is not None:
            found[f"peer:{name}"] = ContractTerms(**contract.model_dump())
    return {key: terms for key, terms in found.items() if terms}


__all__ = [
    "Allows",
    "contract_of",
    "declared_contracts",
    "load_users",
    "make_policy",
    "relay_terms",
    "suppresses",
    "transfer_rules",
]
