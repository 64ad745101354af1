# SPDX-License-Identifier: Apache-2.0
"""The watermarks of a house, put together from its configuration."""

from __future__ import annotations

from typing import Any

from amqproute.broker.broker import Broker
from amqproute.config.parameters import Config
from amqproute.frontends.shared import Shared
from amqproute.services.management import MANAGEMENT, EntityType
from amqproute.services.watermark import DiskTerms, Watermarks

__all__ = ["disk_terms", "watch_room"]


def disk_terms(config: Config) -> DiskTerms:
    """Return what a configuration says about the disk."""
    floor, most = config.store.min_free, config.store.max_bytes or 0
    if isinstance(floor, str):
        return DiskTerms(min_free_percent=float(floor.removesuffix("%")), max_bytes=most)
    return DiskTerms(min_free=floor, max_bytes=most)


def watch_room(
    broker: Broker, store: Any, clock: Any, shared: Shared, config: Config
) -> Watermarks:
    """Look after disk and memory from now on, and let operators see it."""
    watermarks = Watermarks(
        broker,
        store,
        clock,
        str(config.state_directory),
        disk_terms(config),
        shared.memory,
        shared.unfinished_bytes,
    )
    broker.services[MANAGEMENT].register(EntityType("watermark", watermarks.rows))
    watermarks.start()
    return watermarks
