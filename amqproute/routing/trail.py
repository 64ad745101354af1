# SPDX-License-Identifier: Apache-2.0
"""The trace of containers a message has passed, and what it forbids (T-27).

The trace is the message annotation ``x-opt-amqproute-trace``: a list of container-ids, oldest
first. It is read before a message is taken from a peer and lengthened when it is sent on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amqproute.errors import NotAllowed
from amqproute.wire.amqp10.types import Symbol

TRACE = Symbol("x-opt-amqproute-trace")


def trace_of(annotations: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the container-ids in the annotations, oldest first.

    Raises:
        NotAllowed: the annotation is there and is not a list of strings; a message whose path
            cannot be read could go round for ever.
    """
    value = annotations.get(TRACE)
    if value is None:
        return ()
    items = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise NotAllowed(f"{TRACE} is not a list of container-ids")
    return tuple(items)


def check(trace: tuple[str, ...], own_id: str, max_hops: int) -> None:
    """Refuse a message that has been here before or has come too far.

    Raises:
        NotAllowed: with the loop, or the path, in words.
    """
    if own_id in trace:
        loop = " > ".join((*trace[trace.index(own_id) :], own_id))
        raise NotAllowed(f"mail loop: {loop}", info={"code": "route.loop"})
    if len(trace) >= max_hops:
        raise NotAllowed(
            f"more than {max_hops} hops: {' > '.join(trace)}", info={"code": "route.hops"}
        )


def extended(trace: tuple[str, ...], own_id: str) -> list[str]:
    """Return the trace as it leaves this container."""
    return [*trace, own_id]
