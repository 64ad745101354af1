# SPDX-License-Identifier: Apache-2.0
"""File descriptors: enough of them for the configured number of connections.

A daemon that runs out of them can neither accept connections nor open its own files. So the soft
limit is raised as far as allowed, and if that is not enough, fewer connections are accepted.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Final

from twisted.logger import ILogObserver, LogEvent, Logger
from zope.interface import implementer

from amqproute.log_rate_limit import RateLimitedLog

__all__ = [
    "OWN_DESCRIPTORS",
    "UnacceptedConnections",
    "connections_that_fit",
    "hard_limit",
    "make_room_for_descriptors",
]

log = Logger()

OWN_DESCRIPTORS: Final = 512
"""Those of the store, the journal, name servers and connections to other domains' brokers."""


def connections_that_fit(descriptors: int) -> int:
    """Return the number of connections that a limit of descriptors allows."""
    return max(1, descriptors - min(OWN_DESCRIPTORS, descriptors // 2))


def hard_limit() -> int | None:
    """Return the hard limit of this process; None for no limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def make_room_for_descriptors(connections: int) -> int:
    """Raise the limit of descriptors of this process; return how many connections it allows.

    Args:
        connections: the configured number.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OWN_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    fitting = min(connections, connections_that_fit(most))
    if fitting < connections:
        log.warn(
            "limits.max-connections is {wanted}, but this process may have {most} file "
            "descriptors: {fitting} connections are taken; raise LimitNOFILE= or ulimit -n",
            wanted=connections,
            most=most,
            fitting=fitting,
        )
    return fitting


@implementer(ILogObserver)
class UnacceptedConnections:
    """Filters Twisted's log events about connections that it could not accept.

    Twisted writes one for each such connection, so that anybody who connects could fill the log.
    They are replaced by an occasional warning.

    Args:
        observer: the observer of all other events.
        seconds: the monotonic clock.
    """

    def __init__(self, observer: ILogObserver, seconds: Callable[[], float]) -> None:
        self._observer = observer
        self._rate_limited_log = RateLimitedLog(seconds)

    def __call__(self, event: LogEvent) -> None:
        """Count the event, or pass it on."""
        namespace = event.get("log_namespace")
        if namespace == _RESERVE:
            return  # the listener tries again (`amqproute.net.listener`)
        if namespace != _PORT:
            self._observer(event)
            return
        if "acceptError" not in event and "address" not in event:
            return  # what surrounds the line about a connection
        error, advice = str(event.get("acceptError", "EMFILE")), ""
        if error == "EMFILE":
            error = "EMFILE: no file descriptor is left"
            advice = "; raise LimitNOFILE= or ulimit -n, or lower limits.max-connections"
        count = self._rate_limited_log.due(error)
        if count:
            log.warn(
                "{count} connections could not be accepted ({error}){advice}",
                count=count,
                error=error,
                advice=advice,
            )


_RESERVE: Final = "twisted.internet.tcp._FileDescriptorReservation"
"""Lock of the descriptor in reserve, which another thread may take."""
_PORT: Final = "twisted.internet.tcp.Port"
"""The namespace of the logger that Twisted's listening sockets use for this and nothing else."""
