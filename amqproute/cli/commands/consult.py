# SPDX-License-Identifier: Apache-2.0
"""Questions to the local daemon, before a command makes the daemon's decisions itself.

The daemon decides by more than the configuration: operators make routes, nodes and aliases at
runtime, and it caches DNS answers. If no daemon runs, or this user has no rights, the command goes
on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from amqproute.cli.client import Client, ClientTimeouts
from amqproute.cli.command_error import ClientError
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.cli.commands.daemon_access import open_client
from amqproute.cli.commands.management_request import ask, query
from amqproute.cli.message_text import Facts
from amqproute.errors import AmqprouteError
from amqproute.net.reactor import IReactor
from amqproute.plurals import counted
from amqproute.values import RouteRule

__all__ = ["Consulted", "consult", "consult_about_exchange", "consult_about_node"]

PATIENCE: Final = ClientTimeouts(connect_seconds=3.0, answer_seconds=3.0, close_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Consulted:
    """The answers of the daemon.

    Attributes:
        words: the result, for the operator.
        routes: the routes made at runtime.
        node: the local node of an address, made at runtime or configured; empty if there is none,
            or no daemon.
    """

    words: str
    routes: tuple[RouteRule, ...] = ()
    node: str = ""

    def names(self, domain: str) -> bool:
        """Return whether a route made at runtime names exactly this domain."""
        return any(rule.pattern == domain for rule in self.routes)


async def consult(reactor: IReactor, config: Path | None, address: str) -> Consulted:
    """Ask for the routes made at runtime, and flush the cached DNS answers about an address.

    Args:
        reactor: the reactor for the connection.
        config: the configuration file; None for the default one.
        address: a domain of another broker, or an address there.
    """
    routes: tuple[RouteRule, ...] = ()
    try:
        async with await _daemon(reactor, config) as client:
            routes = await _made_at_runtime(client)
            await ask(client, "FORGET", "peer", address)
    except AmqprouteError as error:
        return Consulted(f"no daemon was told to forget earlier answers: {error}", routes)
    return Consulted("the daemon has forgotten earlier answers and goes by these", routes)


async def consult_about_exchange(reactor: IReactor, config: Path | None, name: str) -> Consulted:
    """Ask for an exchange.

    Args:
        reactor: the reactor for the connection.
        config: the configuration file; None for the default one.
        name: of it within the broker.
    """
    refusals = _Refusals(
        f"the daemon has no exchange {name!r}",
        "the daemon does not say which exchanges it has",
        "no daemon says which exchanges there are",
    )
    return await _consult_about(reactor, config, "exchange", name, refusals, _exchange_in_words)


def _exchange_in_words(facts: Facts) -> str:
    count = counted(int(facts["bindings"]), "binding")
    words = f"the daemon has it: {facts['exchange-type']}, with {count}"
    if facts.get("alternate-exchange"):
        words += f"; what none fits goes to {facts['alternate-exchange']}"
    if facts["internal"]:
        words += "; it is internal, so only other exchanges may publish to it"
    return words


async def consult_about_node(reactor: IReactor, config: Path | None, name: str) -> Consulted:
    """Ask for a local node.

    Args:
        reactor: the reactor for the connection.
        config: the configuration file; None for the default one.
        name: of it within the broker.
    """
    refusals = _Refusals(
        f"the daemon has no node {name!r} either",
        "the daemon does not say which nodes it has",
        "no daemon says which nodes were made at runtime",
    )
    return await _consult_about(
        reactor, config, "queue", name, refusals, lambda _: "the daemon has it"
    )


class _Refusals(NamedTuple):
    """Words for what a daemon has not got, does not show, or cannot be asked."""

    absent: str
    hidden: str
    unreachable: str


async def _consult_about(
    reactor: IReactor,
    config: Path | None,
    entity_type: str,
    name: str,
    refusals: _Refusals,
    in_words: Callable[[Facts], str],
) -> Consulted:
    try:
        async with await _daemon(reactor, config) as client:
            facts = await ask(client, "READ", entity_type, name)
    except ClientError as error:
        if error.code == "management.404":
            return Consulted(refusals.absent)
        return Consulted(f"{refusals.hidden}: {error}")
    except AmqprouteError as error:
        return Consulted(f"{refusals.unreachable}: {error}")
    return Consulted(in_words(facts), node=str(facts["name"]))


async def _daemon(reactor: IReactor, config: Path | None) -> Client:
    return await open_client(reactor, AccessOptions(None, config, None), patience=PATIENCE)


async def _made_at_runtime(client: Client) -> tuple[RouteRule, ...]:
    return tuple(
        RouteRule(row["name"], row["via"], row["target"], tuple(row["names"]))
        for row in await query(client, "route")
        if row["origin"] == "runtime"
    )
