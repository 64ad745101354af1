# SPDX-License-Identifier: Apache-2.0
"""Closing connections: the operation CLOSE-CONNECTION of ``$management``.

The application property ``name`` is that of a connection, as in its row; the body may have
``reason``, a text of at most `LONGEST_REASON` characters for the client. A client of AMQP 1.0 gets
a close with ``amqp:connection:forced``, one of 0-9-1 connection.close with 320. Messages held by
the connection become available again, and the client may connect again: to keep it out, change the
access rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from amqproute.plurals import counted
from amqproute.services.management_node import (
    BAD_REQUEST,
    NOT_FOUND,
    OK,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)

__all__ = ["CLOSE_CONNECTION", "LONGEST_REASON", "register"]

CLOSE_CONNECTION: Final = "CLOSE-CONNECTION"
LONGEST_REASON: Final = 200
"""Characters; with the code in front of it a reply text of 0-9-1 has 255 octets."""
_REASON: Final = "an operator closed this connection"

log = Logger()


def register(service: ManagementService, close: Callable[[str, str], int]) -> None:
    """Add the operation to the management node.

    Args:
        service: the node.
        close: closes the connections of a name, with words for the other side, and returns their
            number.
    """

    def close_connection(request: ManagementRequest) -> ManagementReply:
        name = str(request.properties.get("name", ""))
        reason = request.body.get("reason", _REASON)
        if not isinstance(reason, str) or not 0 < len(reason) <= LONGEST_REASON:
            return ManagementReply.of(
                BAD_REQUEST, f"reason is a text of 1 to {LONGEST_REASON} characters"
            )
        if not reason.isprintable():
            return ManagementReply.of(BAD_REQUEST, "reason has characters that cannot be printed")
        count = close(name, reason) if name else 0
        if not count:
            return ManagementReply.of(NOT_FOUND, f"there is no connection {name[:256]!r}")
        log.info(
            "{who} closed {connection}: {reason}",
            who=str(request.principal),
            connection=name,
            reason=reason,
        )
        words = f"{counted(count, 'connection is', 'connections are')} being closed"
        return ManagementReply.of(OK, words, {"name": name, "connections": count})

    service.offer(CLOSE_CONNECTION, close_connection)
