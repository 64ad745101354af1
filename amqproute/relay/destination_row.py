# SPDX-License-Identifier: Apache-2.0
"""A destination as an operator sees it."""

from __future__ import annotations

from typing import Any

from amqproute.relay.destination import Destination
from amqproute.relay.holds import RelayHolds


def row_of(destination: Destination) -> dict[str, Any]:
    """Return the attributes of a destination, for the management node."""
    backoff, tally, session = destination.backoff, destination.tally, destination.session
    link = session.link if session is not None else None
    candidate = session.candidate if session is not None else None
    return {
        "queue": destination.queue.name,
        "hop": destination.hop.key,
        "domain": destination.hop.domain,
        "state": "held" if destination.held is not None else destination.state.value,
        "held": destination.held or "",
        "dead": destination.is_dead,
        "in-flight": destination.in_flight,
        "window": destination.window.size,
        "credit": link.credit if link is not None else 0,
        "limiter": destination.limiter,
        "messages-per-second": destination.rate.messages,
        "bytes-per-second": destination.rate.octets,
        "failures": backoff.failures,
        "last-code": backoff.last_error.partition(":")[0],
        "last-error": backoff.last_error,
        "attempts": list(backoff.last_attempts),
        "next-attempt-ms": backoff.next_attempt_ms,
        "last-success-ms": destination.last_success_ms,
        "container": destination.remote_id,
        "level": session.level if session is not None else "",
        "host": "" if candidate is None else f"{candidate.host}:{candidate.port}",
        "address": (session.address or "") if session is not None else "",
        "relayed": tally.relayed,
        "rejected": tally.rejected,
        "rejections": dict(tally.rejections),
        "retried": tally.retried,
        "connections": tally.connections,
        "stuck": tally.stuck,
        "moves": tally.moves,
    }


def peer_row(destination: Destination, holds: RelayHolds) -> dict[str, Any]:
    """Return the attributes of a peer: its destination's, what waits for it, what holds it."""
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
