# SPDX-License-Identifier: Apache-2.0
"""A destination as an operator sees it."""

from __future__ import annotations

from amqproute.relay.destination import Destination
from amqproute.relay.holds import RelayHolds

__all__ = ["peer_row", "row_of"]


def row_of(destination: Destination) -> dict[str, object]:
    """Return the attributes of a destination, for the management node."""
    return destination.snapshot().row()


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
