# SPDX-License-Identifier: Apache-2.0
"""What an operator does to a relay queue through ``$management`` (T-37).

==========  ==================================================================================
operation   does
==========  ==================================================================================
HOLD        nothing is sent any more, also after a restart, until RELEASE; new messages are
            taken. The body's ``reason`` is shown to whoever asks why.
RELEASE     ends a hold
RETRY-NOW   ends the back-off: the peer is tried at once
EXPIRE      ends the life of what waits, as if its time were over: it is returned, reported and
            dead-lettered like that. The body's ``reason`` stands in the reports
PURGE       deletes what waits; what is in flight is the peer's to decide
==========  ==================================================================================

Each names its queue by the application property ``name``: the relay queue's name or the next
hop's key. PURGE answers how many messages it deletes; it goes on in the background where most of
them stand in the store only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.services.management import (
    BAD_REQUEST,
    NOT_FOUND,
    OK,
    ManagementService,
    Reply,
    Request,
)
from amqproute.values import RELAY_PREFIX
from amqproute.wire.amqp10 import spec

LONGEST_REASON: Final = 256

log = Logger()


def register(service: ManagementService, find: Callable[[str], Any]) -> None:
    """Add the operations to the management node.

    Args:
        service: the node.
        find: the key of a next hop to its destination, or None.
    """

    def acting(act: Callable[[Any, Request], Reply]) -> Callable[[Request], Reply]:
        def operation(request: Request) -> Reply:
            name = request.properties.get("name")
            if not isinstance(name, str) or not name:
                return Reply.of(BAD_REQUEST, "the application property `name` is missing")
            destination = find(name.removeprefix(RELAY_PREFIX))
            if destination is None:
                return Reply.of(NOT_FOUND, f"there is no relay queue named {name[:256]!r}")
            log.info(
                "{principal}: {operation} {destination}",
                principal=str(request.principal),
                operation=request.operation,
                destination=name,
            )
            return act(destination, request)

        return operation

    service.operations.update(
        {
            "HOLD": acting(_hold),
            "RELEASE": acting(_release),
            "RETRY-NOW": acting(_retry),
            "EXPIRE": acting(_expire),
            "PURGE": acting(_purge),
        }
    )


def _hold(destination: Any, request: Request) -> Reply:
    reason = request.body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        return Reply.of(BAD_REQUEST, f"`reason` is not a text of at most {LONGEST_REASON} letters")
    destination.hold(reason)
    return Reply.of(OK, "held", destination.row())


def _release(destination: Any, request: Request) -> Reply:
    destination.unhold()
    return Reply.of(OK, "released", destination.row())


def _retry(destination: Any, request: Request) -> Reply:
    destination.wake()
    return Reply.of(OK, "trying", destination.row())


def _expire(destination: Any, request: Request) -> Reply:
    reason = request.body.get("reason", "") or "ended by an operator"
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        return Reply.of(BAD_REQUEST, f"`reason` is not a text of at most {LONGEST_REASON} letters")
    queue = destination.queue
    count = queue.available + queue.deferred
    error = spec.Error(condition=conditions.RESOURCE_DELETED, description=reason)
    queue.expire(error).addErrback(_expiry_failed)
    return Reply.of(OK, f"the life of {count} messages is being ended", {"messages": count})


def _expiry_failed(failure: Failure) -> None:
    log.failure("the lives of messages could not be ended", failure)


def _purge(destination: Any, request: Request) -> Reply:
    queue = destination.queue
    count = queue.available + queue.deferred
    destination.purge().addErrback(_purge_failed)
    return Reply.of(OK, f"{count} messages are being deleted", {"messages": count})


def _purge_failed(failure: Failure) -> None:
    log.failure("a purge stopped half way", failure)
