# SPDX-License-Identifier: Apache-2.0
"""Operations on whole relay queues through ``$management`` (T-37).

==========  ==================================================================================
operation   does
==========  ==================================================================================
HOLD        nothing is sent any more, also after a restart, until RELEASE; new messages are
            accepted. The body's ``reason`` is shown in ``amqproute holds`` and ``WHY``
RELEASE     ends the holds of that relay queue
RETRY-NOW   ends the back-off: the peer is tried at once
EXPIRE      expires the messages of the queue at once: they are returned, reported and
            dead-lettered like that. The body's ``reason`` is added to the reports
PURGE       deletes the messages of the queue, except those in flight
==========  ==================================================================================

Each names its queue by the application property ``name``: the relay queue's name or the next
hop's key. PURGE answers the number of messages to delete; it continues in the background if most of
them are in the store only. Operations on single messages, by id, domain or selector, are in
`relay_messages`.

All of them require the right `manage` on the relay queue, and are logged with their principal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeGuard

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.auth.policy import Verb
from amqproute.errors import AmqpError
from amqproute.outcomes import ErrorDetails
from amqproute.plurals import counted
from amqproute.services.command_schema import FORBIDDEN
from amqproute.services.management_node import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    OK,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.services.management_protocol import Allows
from amqproute.services.relay_view import DestinationOf, RelayDestination, RelayView
from amqproute.values import RELAY_PREFIX

__all__ = ["register"]

LONGEST_REASON: Final = 256

log = Logger()


def register(service: ManagementService, relay: RelayView[DestinationOf], allows: Allows) -> None:
    """Add the operations to the management node.

    Args:
        service: the node.
        relay: its `destinations` by key, the `row` of each, and `holds`.
        allows: the access rules.
    """

    def acting(
        act: Callable[[DestinationOf, ManagementRequest], ManagementReply],
    ) -> Callable[[ManagementRequest], ManagementReply]:
        def operation(request: ManagementRequest) -> ManagementReply:
            name = request.properties.get("name")
            if not isinstance(name, str) or not name:
                return ManagementReply.of(BAD_REQUEST, "the application property `name` is missing")
            destination = relay.destinations.get(name.removeprefix(RELAY_PREFIX))
            if destination is None:
                return ManagementReply.of(
                    NOT_FOUND, f"there is no relay queue named {name[:256]!r}"
                )
            if not allows(request.principal, Verb.MANAGE, destination.queue.name):
                log.warn(
                    "{principal} may not {operation}: no right to manage {node}",
                    principal=str(request.principal),
                    operation=request.operation,
                    node=destination.queue.name,
                )
                return ManagementReply.of(
                    FORBIDDEN, f"{request.principal} may not manage {destination.queue.name!r}"
                )
            reply = act(destination, request)
            if reply.status == OK:
                log.info(
                    "{principal}: {operation} {destination}",
                    principal=str(request.principal),
                    operation=request.operation,
                    destination=name,
                )
            return reply

        return operation

    def hold(destination: DestinationOf, request: ManagementRequest) -> ManagementReply:
        reason = request.body.get("reason", "")
        if not _is_reason(reason):
            return _no_reason()
        try:
            made = relay.holds.add(reason, str(request.principal), to=destination.hop.key)
        except AmqpError as error:
            return ManagementReply.of(CONFLICT, error.description)
        return ManagementReply.of(OK, "held", {**relay.row(destination), "hold": made.id})

    def release(destination: DestinationOf, request: ManagementRequest) -> ManagementReply:
        key = destination.hop.key
        for each in relay.holds.on(destination):
            if each.to == key and not each.where and not each.ids:
                relay.holds.release(each.id)
        return ManagementReply.of(OK, "released", relay.row(destination))

    def retry(destination: DestinationOf, request: ManagementRequest) -> ManagementReply:
        destination.wake()
        return ManagementReply.of(OK, "trying", relay.row(destination))

    service.offer("HOLD", acting(hold))
    service.offer("RELEASE", acting(release))
    service.offer("RETRY-NOW", acting(retry))
    service.offer("EXPIRE", acting(_expire))
    service.offer("PURGE", acting(_purge))


def _is_reason(reason: object) -> TypeGuard[str]:
    return isinstance(reason, str) and len(reason) <= LONGEST_REASON


def _no_reason() -> ManagementReply:
    return ManagementReply.of(
        BAD_REQUEST, f"`reason` is not a text of at most {LONGEST_REASON} letters"
    )


def _expire(destination: RelayDestination, request: ManagementRequest) -> ManagementReply:
    reason = request.body.get("reason", "") or "ended by an operator"
    if not _is_reason(reason):
        return _no_reason()
    queue = destination.queue
    count = queue.available + queue.deferred
    error = ErrorDetails(conditions.RESOURCE_DELETED, reason)
    queue.expire(error).addErrback(_expiry_failed)
    return ManagementReply.of(
        OK, f"the life of {counted(count, 'message')} is being ended", {"messages": count}
    )


def _expiry_failed(failure: Failure) -> None:
    log.failure("cannot expire the messages", failure)


def _purge(destination: RelayDestination, request: ManagementRequest) -> ManagementReply:
    queue = destination.queue
    count = queue.available + queue.deferred
    destination.purge().addErrback(_purge_failed)
    return ManagementReply.of(
        OK, f"{counted(count, 'message is', 'messages are')} being deleted", {"messages": count}
    )


def _purge_failed(failure: Failure) -> None:
    log.failure("a purge stopped half way", failure)
