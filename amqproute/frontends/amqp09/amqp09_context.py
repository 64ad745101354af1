# SPDX-License-Identifier: Apache-2.0
"""Context shared by all connections of AMQP 0-9 and 0-9-1 of a daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from amqproute.broker.queue_declarations import HostedDeclarations
from amqproute.frontends.amqp09.access_realms import AccessRealms
from amqproute.frontends.amqp09.publish_plan import KnownRoutes
from amqproute.frontends.common.client_connection import FrontendContext

__all__ = ["Amqp09Context"]


@dataclass(slots=True)
class Amqp09Context:
    """Context shared by all connections of AMQP 0-9 and 0-9-1.

    Attributes:
        common: what all connections share, whatever their protocol.
        queues: the queues that clients declare.
        new_name: makes the name of a queue that is declared without one; nobody can guess it.
        realms: what clients of 0-9 can have tickets for.
        serial_numbers: the numbers of connections, since the start of the daemon.
        exclusive_consumers: those who have their queue to themselves, by its name within the broker
            (09-BASIC-25).
        routes: the routes of publishes, as they were decided before.
    """

    common: FrontendContext
    queues: HostedDeclarations
    new_name: Callable[[], str]
    realms: AccessRealms = field(default_factory=AccessRealms)
    serial_numbers: Iterator[int] = field(default_factory=lambda: count(1))
    exclusive_consumers: dict[str, object] = field(default_factory=dict)
    routes: KnownRoutes = field(default_factory=KnownRoutes)
