# SPDX-License-Identifier: Apache-2.0
"""Graceful shutdown: work in progress has time to finish.

First messages (`drain_connections`), then the writes that closing the connections causes (`flush`):
requests to a store that is closing fail, and nothing would handle that failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from amqproute import conditions
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.interfaces import IStore
from amqproute.plurals import counted
from amqproute.relay.relay import Relay

log = Logger()

QUIET_SECONDS: Final = 0.02
"""Seconds between two checks whether a stopping daemon is idle."""
MOST_ROUNDS: Final = 50
"""Commits after which `flush` gives up: the writes seem to have no end."""
MOST_NAMED: Final = 5
CLOSE_SECONDS: Final = 2.0
"""Seconds that a stopping daemon waits for peers to answer its close."""
CONSUMER_SECONDS: Final = 3.0
"""Seconds that it waits for consumers to settle their deliveries."""


async def end_traffic(
    reactor: IReactorTime,
    shared: FrontendContext,
    relay: Relay,
    patience: float,
    extend: Callable[[float], object] | None = None,
) -> None:
    """Accept nothing new, let work in progress finish, and close every connection.

    Args:
        reactor: the reactor for waiting.
        shared: the connections of clients and peers; their listeners are closed.
        relay: the connections to other domains.
        patience: seconds for work in progress.
        extend: called with seconds while waiting, to keep a service manager patient.
    """
    shared.is_stopping = True
    log.info(
        "{connections} of clients and peers, {hops} to other domains: up to {patience} s "
        "for work in progress",
        connections=counted(len(shared.connections), "connection"),
        hops=sum(each.session is not None for each in relay.destinations.values()),
        patience=patience,
    )
    for connection in tuple(shared.connections):
        connection.stop_taking()
    relay.stop_sending()
    if extend is not None:
        extend(patience + CLOSE_SECONDS + 5)
    await drain_connections(reactor, shared, relay, patience)
    relay.close()
    for connection in tuple(shared.connections):
        connection.close(conditions.CONNECTION_FORCED, "the broker is shutting down")
    all_gone = await wait_until(
        reactor, lambda: not shared.connections and relay.is_closed, CLOSE_SECONDS
    )
    if not all_gone:
        log.info(
            "{count} connections have not answered the close within {seconds} s: dropped",
            count=len(shared.connections)
            + sum(each.session is not None for each in relay.destinations.values()),
            seconds=CLOSE_SECONDS,
        )


async def drain_connections(
    reactor: IReactorTime, shared: FrontendContext, relay: Relay, patience: float
) -> None:
    """Wait until no work is in progress, for at most ``patience`` seconds."""
    consumers_until = reactor.seconds() + min(CONSUMER_SECONDS, patience)

    def at_rest() -> bool:
        connections = tuple(shared.connections)
        if not relay.is_quiet or shared.broker.replies_due:
            return False
        if not all(each.is_idle for each in connections):
            return False
        settled = all(each.holds_nothing for each in connections)
        return settled or reactor.seconds() > consumers_until

    if not await wait_until(reactor, at_rest, patience):
        log.warn(
            "stopping with work in progress after {seconds} s ({what}): deliveries without an "
            "outcome will be sent again",
            seconds=patience,
            what=", ".join(in_progress(shared, relay)),
        )


def in_progress(shared: FrontendContext, relay: Relay) -> list[str]:
    """Describe the work in progress."""
    found = []
    for destination in relay.destinations.values():
        if not destination.is_quiet:
            found.append(
                f"{counted(destination.in_flight, 'message')} on their way to {destination.hop.key}"
            )
    writing = sum(not each.is_idle for each in shared.connections)
    if writing:
        found.append(f"{counted(writing, 'connection')} whose messages wait for the disk")
    holding = sum(not each.holds_nothing for each in shared.connections)
    if holding:
        found.append(f"{counted(holding, 'connection')} whose consumers have not settled")
    if shared.broker.replies_due:
        found.append(f"{shared.broker.replies_due} commands without an answer")
    if len(found) > MOST_NAMED:
        found[MOST_NAMED:] = [f"and {len(found) - MOST_NAMED} more"]
    return found


async def flush(store: IStore) -> None:
    """Wait until the store has written everything, including writes that follow from writes.

    A commit may cause further writes when it is reported. The end is reached when the only
    transaction committed is the empty one made here.

    Raises:
        StoreError: the store cannot write any more.
    """
    for _ in range(MOST_ROUNDS):
        asking = store.begin().commit()
        before = store.statistics()["submitted"]
        await asking
        if store.statistics()["submitted"] == before:
            return
    log.warn("the store is closed while something still writes, after {n} rounds", n=MOST_ROUNDS)


async def wait_until(reactor: IReactorTime, is_true: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; return False if it does not within this many seconds."""
    until = reactor.seconds() + seconds
    while not is_true():
        if reactor.seconds() > until:
            return False
        await deferLater(reactor, QUIET_SECONDS)
    return True


__all__ = ["drain_connections", "end_traffic", "flush", "wait_until"]
