# SPDX-License-Identifier: Apache-2.0
"""Names that exchanges and queues may have (09-X-114, 09-X-115, 09-X-24, 09-X-35)."""

from __future__ import annotations

import re
from typing import Final

from amqproute.broker.exchanges.exchange_graph import RESERVED_PREFIX
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

LONGEST_NAME: Final = 127
"""Octets of a name (09-X-114)."""
_EXCHANGE: Final = re.compile(r"[A-Za-z0-9\-_.:]+")
_QUEUE: Final = re.compile(r"[A-Za-z0-9\-_.:@]*")


def check_exchange_name(name: str) -> None:
    """Check the name of an exchange that is declared.

    Raises:
        TopologyFault: it is the default exchange's, or has characters or a length that no name has.
    """
    if not name:
        raise TopologyFault(
            TopologyFaultKind.DEFAULT_EXCHANGE, "the default exchange cannot be declared"
        )
    _check(name, _EXCHANGE, "exchange")


def check_queue_name(name: str, is_new: bool) -> None:
    """Check the name of a queue that is declared; the empty one asks for a generated one.

    Args:
        name: of the queue.
        is_new: there is none of this name, and the declaration is not passive.

    Raises:
        TopologyFault: it is reserved, or has characters or a length that no name has.
    """
    _check(name, _QUEUE, "queue")
    if is_new and name.startswith(RESERVED_PREFIX):
        raise TopologyFault(
            TopologyFaultKind.RESERVED_QUEUE_NAME,
            f"queue name '{name}' begins with the reserved prefix 'amq.'",
        )


def _check(name: str, pattern: re.Pattern[str], kind: str) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > LONGEST_NAME:
        raise TopologyFault(
            TopologyFaultKind.ILLEGAL_NAME,
            f"{kind} name of {size} octets; it can have {LONGEST_NAME}",
        )
    if pattern.fullmatch(name) is None:
        raise TopologyFault(
            TopologyFaultKind.ILLEGAL_NAME,
            f"{kind} name {name!r:.60}: it can have letters, digits and - _ . :"
            + (" @" if kind == "queue" else ""),
        )


__all__ = ["LONGEST_NAME", "check_exchange_name", "check_queue_name"]
