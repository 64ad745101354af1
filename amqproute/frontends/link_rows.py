# SPDX-License-Identifier: Apache-2.0
"""The links of a connection, as rows for operators; and their end when an operator wants it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from amqproute import conditions
from amqproute.frontends.coordinator_link import CoordinatorLink
from amqproute.frontends.receiver_link import ReceiverLink
from amqproute.frontends.sender_link import SenderLink
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link

if TYPE_CHECKING:
    from amqproute.frontends.connection_frontend import Frontend

__all__ = ["consumers_of", "detach_named", "link_rows", "suspended_row"]


def consumers_of(frontends: Iterable[Frontend]) -> Iterator[SenderLink]:
    """Iterate over the links on which connections send."""
    for frontend in frontends:
        for link in frontend.links.attached:
            if isinstance(link.context, SenderLink):
                yield link.context


def link_rows(frontend: Frontend) -> Iterator[dict[str, Any]]:
    """Describe each link of a connection (G-17).

    ``direction`` is that of the messages as the broker sees it: ``in`` for a link that the client
    sends on. ``credit`` is what its sender may still send, ``unsettled`` what has no outcome yet.
    """
    for link in sorted(frontend.links.attached, key=lambda each: (each.name, each.role)):
        context = link.context
        row = {
            "name": link.name,
            "type": "link",
            "kind": "link",
            "direction": "in" if link.role == "receiver" else "out",
            "address": _address(link),
            "connection": frontend.facts.remote,
            "principal": str(frontend.principal),
            "container": frontend.connection.remote_container_id or "",
            "credit": link.credit,
            "unsettled": len(link.unsettled),
            "deliveries": link.deliveries,
            "delivery-count": link.delivery_count,
            "is-waiting": not isinstance(context, ReceiverLink | SenderLink | CoordinatorLink),
        }
        node = getattr(context, "target" if isinstance(context, ReceiverLink) else "source", None)
        row["node"] = getattr(node, "name", None)
        if isinstance(context, SenderLink):
            row["copies"] = context.copies
            row["unsettled-octets"] = context.held_bytes
        yield row


def suspended_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Put a row of `suspended_links` into the form of the others: a link that may come back."""
    return {
        "name": row["name"],
        "type": "link",
        "kind": "suspended",
        "direction": "out" if row["kind"] == "consumer" else "in",
        "address": row["address"] or None,
        "connection": None,
        "principal": row["principal"],
        "container": row["container"],
        "credit": 0,
        "unsettled": row["deliveries"],
        "unsettled-octets": row["octets"],
        "expires-in": row["expires-in"],
    }


def _address(link: Link) -> str | None:
    if isinstance(link.target, spec.Coordinator):
        return "(coordinator)"
    terminus: Any = link.target if link.role == "receiver" else link.source
    if terminus is None and link.remote_attach is not None:
        attach = link.remote_attach
        terminus = attach.target if link.role == "receiver" else attach.source
    address = getattr(terminus, "address", None)
    return None if address is None else str(address)


def detach_named(frontend: Frontend, name: str) -> int:
    """Detach the links with this name because an operator wants it (G-13); return how many."""
    found = [each for each in frontend.links.attached if each.name == name and each.is_active]
    for link in found:
        held = list(link.unsettled.values())
        words = "an operator closed this link"
        link.detach(error=spec.Error(condition=conditions.LINK_DETACH_FORCED, description=words))
        frontend.links.drop(link, held)
        frontend.flush()
    return len(found)
