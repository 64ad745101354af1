# SPDX-License-Identifier: Apache-2.0
"""Partners cut off by the rules of `amqproute.dial_policy`: for ``check``.

Partners are the domains named under `peers` and `routes`, and those with a relay queue in the
store, with whom messages were exchanged before. They are looked up in the DNS only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from amqproute.config import Config
from amqproute.daemon.peer_assembly import make_resolver
from amqproute.daemon.routes import make_router
from amqproute.errors import InvalidField, ResolveError, StoreError
from amqproute.net.reactor import IReactor
from amqproute.relay.error_disclosure import DENIED
from amqproute.resolver.srv import SrvResolver
from amqproute.store.store_files import STORE_FILE, queue_names
from amqproute.values import RELAY_PREFIX, Resolution

__all__ = ["KnownPartners", "known_partners", "look_partners_up"]

AT_ONE_TIME: Final = 16


@dataclass(frozen=True, slots=True)
class KnownPartners:
    """The partners of a broker that are found through the DNS.

    Attributes:
        named: by configuration.
        met: others, with relay queues in the store.
        trouble: error while reading the store; empty if none, or if there is no store.
    """

    named: tuple[str, ...]
    met: tuple[str, ...]
    trouble: str = ""


def known_partners(config: Config) -> KnownPartners:
    """Find the partners in a configuration and in its store."""
    router = make_router(config, config.container_id or "")

    def is_by_dns(domain: str) -> bool:
        return domain not in router.own_names and router.hop(domain).via is None

    listed = (*config.peers, *(route.domain for route in config.routes))
    named = sorted({each for each in listed if "*" not in each and is_by_dns(each)})
    path = config.state_directory / STORE_FILE
    try:
        keys = _relay_keys(path)
    except StoreError as error:
        return KnownPartners(tuple(named), (), str(error))
    domains = set()
    for key in keys:
        try:
            hop = router.hop_of_key(key)
        except InvalidField:
            continue  # of an older release, and nobody's
        if hop.via is None and not config.names(hop.domain) and is_by_dns(hop.domain):
            domains.add(hop.domain)
    return KnownPartners(tuple(named), tuple(sorted(domains)))


def _relay_keys(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [name[len(RELAY_PREFIX) :] for name in queue_names(path, RELAY_PREFIX)]


async def look_partners_up(
    config: Config,
    reactor: IReactor,
    domains: Sequence[str],
    make: Callable[[Config, IReactor], SrvResolver] = make_resolver,
) -> list[str]:
    """Look each partner up; return a line for each that is cut off, or not found.

    Args:
        config: its rules apply.
        reactor: the reactor for the queries.
        domains: the partners.
        make: makes the resolver.
    """
    resolver = make(config, reactor)
    places = DeferredSemaphore(AT_ONE_TIME)

    def look_up(domain: str) -> Deferred[list[str]]:
        return places.run(resolver.resolve, domain).addCallbacks(
            lambda found: _partly(domain, found),
            lambda failure: _wholly(domain, failure.trap(ResolveError) and failure.value),
        )

    found = await gatherResults([look_up(domain) for domain in domains], consumeErrors=True)
    return [line for lines in found for line in lines]


def _partly(domain: str, found: Resolution) -> list[str]:
    return [
        f"{domain}: a part of its places is not dialled: {line}"
        for line in found.attempts
        if ": denied, " in line
    ]


def _wholly(domain: str, error: ResolveError) -> list[str]:
    if error.code == DENIED:
        return [f"{domain} is cut off: {error.code}: {error}"]
    return [f"{domain} could not be looked up: {error.code}: {error}"]
