# SPDX-License-Identifier: Apache-2.0
"""The trace of containers that a message has passed, and the limits on it (T-27).

The trace is the message annotation ``x-opt-amqproute-trace``: a list of container-ids, oldest
first. It is read before a message is accepted from a peer and extended when it is sent on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from amqproute.errors import NotAllowed
from amqproute.values import TRACE

__all__ = ["TRACE", "check", "extended", "shortened", "trace_of"]

MOST_QUOTED: Final = 8
"""Names of a trace that errors and reports quote."""
LONGEST_NAME: Final = 100
"""Characters of each quoted name."""


def trace_of(annotations: Mapping[object, object]) -> tuple[str, ...]:
    """Return the container-ids in the annotations, oldest first.

    Raises:
        NotAllowed: the annotation exists and is not a list of strings; without a readable path a
            message could loop for ever.
    """
    value = annotations.get(TRACE)
    if value is None:
        return ()
    items = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise NotAllowed(f"{TRACE} is not a list of container-ids")
    return tuple(items)


def shortened(trace: Sequence[str]) -> list[str]:
    """Return a trace for quotation: the ends of a long one, and shortened names.

    The peer that hands the message over wrote the trace, and may have written anything.
    """
    names = [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in trace]
    if len(names) <= MOST_QUOTED:
        return names
    half = MOST_QUOTED // 2
    return [*names[:half], f"... {len(names) - 2 * half} more ...", *names[-half:]]


def _named(trace: Sequence[str], name_of: Callable[[str], str]) -> list[str]:
    return [name_of(each)[: LONGEST_NAME + 3] for each in shortened(trace)]


def check(
    trace: tuple[str, ...],
    own_id: str,
    max_hops: int,
    name_of: Callable[[str], str] = str,
) -> None:
    """Refuse a message that has been here before or has passed too many containers.

    Args:
        trace: the containers that the message has passed.
        own_id: our container-id.
        max_hops: the longest accepted trace.
        name_of: returns the domain of a container where it is known, else the container-id.

    Raises:
        NotAllowed: the text shows the loop or the path.
    """
    if own_id in trace:
        passed = (*trace[trace.index(own_id) :], own_id)
        loop = " > ".join(_named(passed, name_of))
        raise NotAllowed(f"mail loop: {loop}", info={"code": "route.loop"})
    if len(trace) >= max_hops:
        path = " > ".join(_named(trace, name_of))
        raise NotAllowed(f"more than {max_hops} hops: {path}", info={"code": "route.hops"})


def extended(trace: tuple[str, ...], own_id: str) -> list[str]:
    """Return the trace with this container added, as sent on."""
    return [*trace, own_id]
