# SPDX-License-Identifier: Apache-2.0
"""A destination as an operator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqproute.relay.destination import Destination


def row_of(destination: Destination) -> dict[str, Any]:
    """Return the attributes of a destination, for the management node."""
    backoff, tally, session = destination.backoff, destination.tally, destination.session
    link = session.link if session is not None else None
    return {
        "queue": destination.queue.name,
        "hop": destination.hop.key,
        "state": "held" if backoff.held is not None else destination.state.value,
        "held": backoff.held or "",
        "dead": destination.is_dead,
        "in-flight": destination.in_flight,
        "window": destination.window.size,
        "credit": link.credit if link is not None else 0,
        "limiter": destination.limiter,
        "failures": backoff.failures,
        "last-error": backoff.last_error,
        "attempts": list(backoff.last_attempts),
        "next-attempt-ms": backoff.next_attempt_ms,
        "last-success-ms": destination.last_success_ms,
        "container": destination.remote_id,
        "relayed": tally.relayed,
        "rejected": tally.rejected,
        "retried": tally.retried,
        "connections": tally.connections,
        "stuck": tally.stuck,
        "moves": tally.moves,
    }
