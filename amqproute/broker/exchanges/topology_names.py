# SPDX-License-Identifier: Apache-2.0
"""Rules for names of exchanges and queues (09-X-114, 09-X-115, 09-X-24, 09-X-35).

The standards allow letters, digits and a few marks. RabbitMQ takes any text, and programs rely on
it: its federation links name their queues ``federation: orders -> rabbit@host``. So 0-9 has the
standard's names, and 0-9-1 those that an operator can read and an address can carry: printable
characters, none at the beginning that leads to services or to another name space.
"""

from __future__ import annotations

import re
from typing import Final

from amqproute.address import is_reserved
from amqproute.broker.exchanges.exchange_graph import RESERVED_PREFIX
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

LONGEST_STANDARD_NAME: Final = 127
"""Octets of a name in 0-9 (09-X-114)."""
LONGEST_NAME: Final = 255
"""Octets of a name in 0-9-1: a shortstr has no more."""
_EXCHANGE: Final = re.compile(r"[A-Za-z0-9\-_.:]+")
_QUEUE: Final = re.compile(r"[A-Za-z0-9\-_.:@]*")
_LEADS_ELSEWHERE: Final = ("/", "$")
"""First characters of addresses of services and of other name spaces."""


def check_exchange_name(name: str, standard: bool = False) -> None:
    """Check the name of an exchange that is declared.

    Args:
        name: the name of the exchange.
        standard: whether only the characters of the standard are allowed, as in 0-9.

    Raises:
        TopologyFault: the name is too long, has forbidden characters, or is the default exchange's.
    """
    if not name:
        raise TopologyFault(
            TopologyFaultKind.DEFAULT_EXCHANGE, "the default exchange cannot be declared"
        )
    _check(name, _EXCHANGE if standard else None, "exchange")


def check_queue_name(name: str, is_new: bool, standard: bool = False) -> None:
    """Check the name of a queue that is declared; the empty one asks for a generated one.

    Args:
        name: the name of the queue.
        is_new: there is none of this name, and the declaration is not passive.
        standard: whether only the characters of the standard are allowed, as in 0-9.

    Raises:
        TopologyFault: the name is reserved, too long, or has forbidden characters.
    """
    _check(name, _QUEUE if standard else None, "queue")
    if is_new and name.startswith(RESERVED_PREFIX):
        raise TopologyFault(
            TopologyFaultKind.RESERVED_QUEUE_NAME,
            f"queue name '{name}' begins with the reserved prefix 'amq.'",
        )


def _check(name: str, pattern: re.Pattern[str] | None, kind: str) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    most = LONGEST_NAME if pattern is None else LONGEST_STANDARD_NAME
    if size > most:
        raise TopologyFault(
            TopologyFaultKind.ILLEGAL_NAME, f"{kind} name of {size} octets; it can have {most}"
        )
    if pattern is None:
        words = _what_is_wrong(name)
    elif pattern.fullmatch(name) is None:
        words = "it can have letters, digits and - _ . :" + (" @" if kind == "queue" else "")
    else:
        return
    if words:
        raise TopologyFault(TopologyFaultKind.ILLEGAL_NAME, f"{kind} name {name!r:.60}: {words}")


def _what_is_wrong(name: str) -> str:
    if not name.isprintable():
        return "it can have printable characters only"
    if name.startswith(_LEADS_ELSEWHERE) or is_reserved(name):
        return "names that begin with / or $ or amqp$ belong to services"
    return ""


__all__ = [
    "LONGEST_NAME",
    "LONGEST_STANDARD_NAME",
    "check_exchange_name",
    "check_queue_name",
]
