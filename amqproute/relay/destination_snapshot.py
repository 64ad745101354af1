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
        held: why nothing is sent; empty if it is.
        dead: nobody is expected there.
        window: the most messages that may be without an outcome.
        limiter: the setting that holds messages back now; empty for none.
        failures: failed attempts since one was of use.
        attempts: a line for each place that was tried last.
        next_attempt_ms: the wall clock; 0 if there need be none.
        container: the container-id of the peer.
        level: security of the connection; empty without one, like `host` and `address`.
        stuck: connections that were ended because a delivery got no outcome.
        moves: connections that were ended because the DNS led elsewhere.
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
        """Return the attributes by the names that management uses."""
        return {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}
