# SPDX-License-Identifier: Apache-2.0
"""Tracing as the rest of the daemon sees it, and the secret that it derives ids from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.defer import Deferred

from amqproute.config.schema import Config
from amqproute.metrics.broker_metrics import TracingFacts
from amqproute.store.model import StoreRecovery
from amqproute.store.sqlite import SqliteStore
from amqproute.trace_context import KEY_OCTETS, TraceIds

__all__ = ["NOTES", "RunningTracing", "find_key"]

NOTES: Final = "tracing"
"""The kind of the store's notes about it."""
NAME: Final = "key"


class RunningTracing(Protocol):
    """What `amqproute.daemon.tracing_assembly.Tracing` offers.

    That module is imported only where tracing is switched on.

    Attributes:
        ids: names spans.
    """

    ids: TraceIds

    def facts(self) -> TracingFacts:
        """Return the figures for metrics."""

    def prepare(self, config: Config) -> Callable[[], None]:
        """Return the change for a new configuration."""

    def stop(self) -> Deferred[None]:
        """End its threads."""


async def find_key(
    store: SqliteStore, recovery: StoreRecovery, random: Callable[[int], bytes]
) -> bytes:
    """Return the secret; make and store one if there is none.

    Args:
        store: it is open.
        recovery: what it held.
        random: returns so many random octets.

    Raises:
        StoreError: a new one could not be stored.
    """
    key = recovery.notes.get(NOTES, {}).get(NAME, b"")
    if len(key) != KEY_OCTETS:
        key = random(KEY_OCTETS)
        transaction = store.begin()
        transaction.note(NOTES, NAME, key)
        await transaction.commit()
    return key
