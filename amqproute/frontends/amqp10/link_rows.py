# SPDX-License-Identifier: Apache-2.0
"""The links of a connection, as rows for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from amqproute.frontends.amqp10.coordinator_link import CoordinatorLink
from amqproute.frontends.amqp10.link_table import LinkTable
from amqproute.frontends.amqp10.receiver_link import ReceiverLink
from amqproute.frontends.amqp10.sender_link import SenderLink
from amqproute.frontends.amqp10.suspended_links import SuspendedLinks
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link

__all__ = ["link_index", "suspended_index"]


def link_index(links: LinkTable) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
    """Return the names of the links of a connection; see `ClientConnection.link_index`."""
    for link in sorted(links.attached, key=lambda each: (each.name, each.role)):
        yield link.name, partial(_link_row, links, link)


def _link_row(links: LinkTable, link: Link, name: str) -> dict[str, object]:
    """Describe a link (G-17).

    ``direction`` is that of the messages from the broker's view: ``in`` for a link on which the
    client sends. ``credit`` is the sender's credit, ``unsettled`` the deliveries without an
    outcome.

    Raises:
        KeyError: it is not attached any more.
    """
    if link not in links.attached:
        raise KeyError(name)
    endpoint = link.context
    direction = "in" if link.role == "receiver" else "out"
    row: dict[str, object] = {
        **links.connection.link_row(name, "link", direction, _address(link)),
        "container": links.engine.remote_container_id or "",
        "credit": link.credit,
        "unsettled": len(link.unsettled),
        "deliveries": link.deliveries,
        "delivery-count": link.delivery_count,
        "is-waiting": not isinstance(endpoint, ReceiverLink | SenderLink | CoordinatorLink),
    }
    node = None if endpoint is None else endpoint.node
    row["node"] = getattr(node, "name", None)
    if isinstance(endpoint, SenderLink):
        row["copies"] = endpoint.copies
        row["unsettled-octets"] = endpoint.held_bytes
    return row


def suspended_index(
    links: SuspendedLinks, host: str | None = None
) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
    """Return the names of links that may come back, as `link_index` does.

    Args:
        links: the links.
        host: the label of a virtual host; None for all.
    """
    return ((name, partial(_suspended_row, make)) for name, make in links.index(host))


def _suspended_row(make: Callable[[str], Mapping[str, object]], name: str) -> dict[str, object]:
    row = make(name)
    return {
        "name": row["name"],
        "type": "link",
        "kind": "suspended",
        "direction": "out" if row["kind"] == "consumer" else "in",
        "address": row["address"] or None,
        "virtual-host": row["virtual-host"],
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
