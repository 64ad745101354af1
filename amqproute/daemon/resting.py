# SPDX-License-Identifier: Apache-2.0
"""How a daemon that stops comes to rest: what is under way has time to reach its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.task import deferLater
from twisted.logger import Logger

from amqproute.frontends.amqp10 import Shared
from amqproute.relay.relay import Relay

log = Logger()

QUIET_SECONDS: Final = 0.02
"""How often a stopping daemon looks whether everything has come to rest."""
CONSUMER_SECONDS: Final = 3.0
"""How long it waits for consumers to settle what they hold."""


async def come_to_rest(reactor: Any, shared: Shared, relay: Relay, patience: float) -> None:
    """Wait until nothing is under way any more, or patience, in seconds, is at its end."""
    consumers_until = reactor.seconds() + min(CONSUMER_SECONDS, patience)

    def at_rest() -> bool:
        frontends = tuple(shared.frontends)
        if not relay.is_quiet or not all(frontend.is_idle for frontend in frontends):
            return False
        settled = all(frontend.holds_nothing for frontend in frontends)
        return settled or reactor.seconds() > consumers_until

    if not await wait_until(reactor, at_rest, patience):
        log.warn(
            "stopping with work under way after {seconds} s: what has no outcome will be "
            "sent again",
            seconds=patience,
        )


async def wait_until(reactor: Any, is_true: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so; False if it is not after so many seconds."""
    until = reactor.seconds() + seconds
    while not is_true():
        if reactor.seconds() > until:
            return False
        await deferLater(reactor, QUIET_SECONDS)
    return True


__all__ = ["come_to_rest", "wait_until"]
