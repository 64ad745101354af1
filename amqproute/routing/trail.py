# SPDX-License-Identifier: Apache-2.0
"""The trace of containers a message has passed, and what it forbids (T-27).

The trace is the message annotation ``x-opt-amqproute-trace``: a list of container-ids, oldest
first. It is read before a message is taken from a peer and lengthened when it is sent on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from amqproute.errors import NotAllowed
from amqproute.values import TRACE

__all__ = ["TRACE", "check", "extended", "shortened", "trace_of"]

MOST_QUOTED: Final = 8
"""Names of a trace that are repeated in words and reports: few enough for a refusal's words."""
LONGEST_NAME: Final = 100
"""Letters of each that are."""


def trace_of(annotations: Mapping[object, object]) -> tuple[str, ...]:
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


def shortened(trace: Sequence[str]) -> list[str]:
    """Return a trace as it is quoted: the ends of a long one, and no name beyond its length.

    Whoever hands a message over wrote it, and may have written anything.
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
    """Refuse a message that has been here before or has come too far.

    Args:
        trace: containers that it has passed.
        own_id: ours.
        max_hops: the longest trace that is taken.
        name_of: the domain of a container where it is known, else the container-id.

    Raises:
        NotAllowed: with the loop, or the path, in words.
    """
    if own_id in trace:
        passed = (*trace[trace.index(own_id) :], own_id)
        loop = " > ".join(_named(passed, name_of))
        raise NotAllowed(f"mail loop: {loop}", info={"code": "route.loop"})
    if len(trace) >= max_hops:
        path = " > ".join(_named(trace, name_of))
        raise NotAllowed(f"more than {max_hops} hops: {path}", info={"code": "route.hops"})


def extended(trace: tuple[str, ...], own_id: str) -> list[str]:
    """Return the trace as it leaves this container."""
    return [*trace, own_id]
