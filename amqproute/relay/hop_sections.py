# SPDX-License-Identifier: Apache-2.0
"""The sections before the bare message on the next hop: a new header, and annotations."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from amqproute.address import from_compatibility
from amqproute.entry import Entry
from amqproute.message import (
    LONGEST_REMEMBERED,
    Message,
    annotations_of,
    encode_annotations,
    fresh_header,
    header_of,
)
from amqproute.routing import trail
from amqproute.trace_context import CONTEXT_OCTETS, DROPPED, TRACEPARENT, HopTracing, TraceIds
from amqproute.values import ORIGIN, RETURN_TO, SECURE_PATH
from amqproute.wire.amqp10 import spec

_UNKNOWN_CONTEXT: Final = "?" * CONTEXT_OCTETS
"""In place of the context of one message, among the annotations of many."""


Prefix = Callable[[Entry, int], tuple[bytes, int]]


def prefix_maker(
    own_id: str,
    origin: str,
    check_path: Callable[[object], None],
    tracing: HopTracing = DROPPED,
    store: str = "",
) -> Prefix:
    """Return a function that gives the sections before an entry's bare message on the next hop.

    The header is encoded again (M-04), our container is added to the trace (T-27), and our name as
    the origin of messages that begin here. The result is the same for most messages of a producer,
    so it is cached by its inputs. For a message that may not take this path, ``check_path`` raises.

    Args:
        own_id: our container-id.
        origin: our name as proved to the peer; empty for none.
        check_path: takes the annotation that demands a secure path.
        tracing: what becomes of the trace context.
        store: the name of our store in the journal, for the ids of spans.
    """
    is_kept, ids = tracing

    def annotations(section: bytes) -> bytes:
        old = annotations_of(section)
        if SECURE_PATH in old:
            check_path(old[SECURE_PATH])
        trace = trail.extended(trail.trace_of(old), own_id)
        new = {**old, trail.TRACE: trace}
        if ORIGIN not in old and origin:
            new[ORIGIN] = origin  # it began here
        back = old.get(RETURN_TO, "@")
        if not isinstance(back, str) or ("@" not in back and not origin):
            del new[RETURN_TO]
        elif "@" not in back:  # a node of ours, unknown elsewhere without our domain
            new[RETURN_TO] = f"{from_compatibility(back) or back}@{origin}"
        if not is_kept or ids is not None:
            new.pop(TRACEPARENT, None)
            if is_kept:
                new[TRACEPARENT] = _UNKNOWN_CONTEXT  # the last one: see `_with_context`
        return encode_annotations(new)

    @lru_cache(maxsize=1024)
    def remembered(header: bytes, section: bytes, delivery_count: int) -> bytes:
        old = header_of(header) if header else spec.Header()
        return fresh_header(old, delivery_count, False, None) + annotations(section)

    def prefix(entry: Entry, now_ms: int) -> tuple[bytes, int]:
        message: Message = entry.message
        offsets = message.located or message.offsets
        encoded = message.encoded
        start = offsets.message_annotations_start
        end = offsets.message_annotations_end
        section = encoded[start:end]
        header = encoded[: offsets.header_end]
        old = message.header
        if old.ttl is None and len(section) <= LONGEST_REMEMBERED:
            return remembered(header, section, entry.delivery_count), message.bare_from
        ttl = None
        if old.ttl is not None:
            # The rest of the producer's ttl, not of the relay queue's own limit (T-30), and never
            # more than the original: a clock may be set back.
            ttl = min(int(old.ttl), max(1, entry.arrived_ms + int(old.ttl) - now_ms))
        head = fresh_header(old, entry.delivery_count, False, ttl)
        return head + annotations(section), message.bare_from

    return prefix if ids is None or not is_kept else _with_context(prefix, ids, store)


def _with_context(prefix: Prefix, ids: TraceIds, store: str) -> Prefix:
    """Return a function that gives the same sections with the context of each entry.

    The context is the value of the last annotation: the octets at the end. What precedes it is
    cached as without it.
    """

    def traced(entry: Entry, now_ms: int) -> tuple[bytes, int]:
        head, start = prefix(entry, now_ms)
        return head[:-CONTEXT_OCTETS] + ids.outgoing(store, entry).encode(), start

    return traced
