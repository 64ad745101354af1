# SPDX-License-Identifier: Apache-2.0
"""A destination at one moment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["DestinationSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationSnapshot:
    """The attributes of a destination, for operators.

    Attributes:
        queue: the name of its relay queue.
        hop: the key of the next hop.
        state: a `DestinationState`, or ``held``.
        held: why nothing is sent; empty unless held.
        dead: whether the peer counts as dead.
        window: the maximum number of messages without an outcome.
        limiter: the setting that limits sending now; empty for none.
        failures: failed attempts since the last useful one.
        attempts: one line for each place tried in the last attempt.
        next_attempt_ms: the wall clock; 0 if no attempt is needed.
        container: the container-id of the peer.
        level: security level of the connection; empty without one, like `host` and `address`.
        stuck: connections ended because a delivery got no outcome.
        moves: connections ended because the DNS led elsewhere.
    """

    queue: str
    hop: str
    domain: str
    state: str
    held: str
    dead: bool
    in_flight: int
    window: int
    credit: int
    limiter: str
    messages_per_second: float | None
    bytes_per_second: float | None
    failures: int
    last_code: str
    last_error: str
    attempts: list[str]
    next_attempt_ms: int
    last_success_ms: int
    container: str
    level: str
    host: str
    address: str
    relayed: int
    rejected: int
    rejections: dict[str, int]
    retried: int
    connections: int
    stuck: int
    moves: int

    def row(self) -> dict[str, object]:
        """Return the attributes by their names in management."""
        return {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}
