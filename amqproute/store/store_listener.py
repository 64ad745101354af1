# SPDX-License-Identifier: Apache-2.0
"""Notification of what goes wrong in a store."""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.errors import StoreError
from amqproute.store.model import DamagedEntry

__all__ = ["StoreListener"]


class StoreListener:
    """Listener for failures of a store. This one ignores them all.

    All methods are called in the reactor's thread.
    """

    def store_died(self, error: StoreError) -> None:
        """The writer's thread has died: nothing can be stored until the daemon is restarted."""

    def disk_full(self, error: StoreError) -> None:
        """The database may not grow until `IStore.room` finds plenty of room again."""

    def database_damaged(self, error: StoreError) -> None:
        """The database has proved damaged: it takes no more entries until a restart."""

    def entries_damaged(self, queue: str, damages: Sequence[DamagedEntry]) -> None:
        """Entries of a queue proved damaged when they were read; the page comes without them."""
