# SPDX-License-Identifier: Apache-2.0
"""What all connections of AMQP 0-9 and 0-9-1 of a daemon share, beside what all connections do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count

from amqproute.broker.queue_declarations import QueueDeclarations
from amqproute.frontends.common.client_connection import FrontendContext

__all__ = ["Amqp09Context"]


@dataclass(slots=True)
class Amqp09Context:
    """What all connections of AMQP 0-9 and 0-9-1 share.

    Attributes:
        common: what all connections share, whatever their protocol.
        queues: the queues that clients declare.
        own_domains: the domains of this broker. Each names the one virtual host, as ``/`` does.
        new_name: makes the name of a queue that is declared without one; nobody can guess it.
        serial_numbers: of connections, since the start of the daemon.
        exclusive_consumers: those who have their queue to themselves, by its name (09-BASIC-25).
    """

    common: FrontendContext
    queues: QueueDeclarations
    own_domains: Callable[[], Collection[str]]
    new_name: Callable[[], str]
    serial_numbers: Iterator[int] = field(default_factory=lambda: count(1))
    exclusive_consumers: dict[str, object] = field(default_factory=dict)

    def has_virtual_host(self, name: str) -> bool:
        """Tell whether a virtual host exists (09-CONN-23).

        Some clients leave out the leading slash, so a name counts with and without it (I-08).
        """
        domain = name.removeprefix("/").lower().rstrip(".")
        return not domain or domain in self.own_domains()
