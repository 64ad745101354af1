# SPDX-License-Identifier: Apache-2.0
"""A destination as an operator sees it."""

from __future__ import annotations

from collections.abc import Mapping

from amqproute.relay.destination import Destination
from amqproute.relay.holds import RelayHolds
from amqproute.values import RELAY_PREFIX

__all__ = ["destination_of", "peer_row", "row_of"]


def destination_of(destinations: Mapping[str, Destination], queue: str) -> dict[str, object]:
    """Return the attributes of the destination of a relay queue; none if it has none now."""
    found = destinations.get(queue.removeprefix(RELAY_PREFIX))
    return {} if found is None or found.queue.name != queue else row_of(found)


def row_of(destination: Destination) -> dict[str, object]:
    """Return the attributes of a destination, for the management node."""
    return destination.snapshot().row()


def peer_row_of(
    destinations: Mapping[str, Destination], holds: RelayHolds, key: str
) -> dict[str, object] | None:
    """Return the attributes of the peer with a key; None without a destination for it."""
    destination = destinations.get(key)
    return None if destination is None else peer_row(destination, holds)


def peer_row(destination: Destination, holds: RelayHolds) -> dict[str, object]:
    """Return the attributes of a peer: those of its destination, waiting messages, and holds."""
    queue = destination.queue
    return {
        "name": destination.hop.key,
        "type": "peer",
        **row_of(destination),
        "waiting": queue.available + queue.deferred,
        "bytes": queue.resident_bytes + queue.paged_bytes + queue.filed_bytes,
        "oldest-arrival-ms": queue.oldest_arrival_ms,
        "holds": [hold.id for hold in holds.on(destination)],
    }
