# SPDX-License-Identifier: Apache-2.0
"""The virtual host of a request to ``$management``.

Names of entities are those within the broker: ``//shop/orders`` is the queue ``orders`` of the
virtual host ``shop``. A request with the application property ``virtual-host`` uses the names of
its clients instead, for the entity and in its attributes; ``/`` is the default virtual host. A
``QUERY`` with the property lists only entities of that virtual host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from amqproute.address import ROOT_HOST, placed_in
from amqproute.services.command_schema import BAD_REQUEST, NOT_FOUND, CommandRefused
from amqproute.services.management_protocol import ManagementRequest

__all__ = ["VIRTUAL_HOST", "asked_host", "within_host"]

VIRTUAL_HOST: Final = "virtual-host"
"""The application property, and the attribute of rows."""

_NAMED: Final = frozenset(
    (
        "queue", "topic", "exchange", "exchange-binding", "alias", "shape", "policy",
        "operator-policy",
    )
)  # fmt: skip
"""Entity types whose names belong to a virtual host."""
_ENDS: Final = ("source", "target", "destination", "new-name")
"""Attributes that name nodes or exchanges."""


def asked_host(
    properties: Mapping[str, object], is_known: Callable[[str], bool] = lambda _: True
) -> str | None:
    """Return the virtual host that a request names, by its label; None if it names none.

    Raises:
        CommandRefused: there is no such virtual host, or it is not a text.
    """
    given = properties.get(VIRTUAL_HOST)
    if given is None:
        return None
    if not isinstance(given, str):
        raise CommandRefused(BAD_REQUEST, f"the application property `{VIRTUAL_HOST}` is a text")
    host = str(given)
    if host != ROOT_HOST and not is_known(host):
        raise CommandRefused(NOT_FOUND, f"there is no virtual host {host[:256]!r}")
    return host


def within_host(request: ManagementRequest, host: str) -> ManagementRequest:
    """Return a request with the names that it means within the broker.

    Args:
        request: the request with names as clients of the virtual host write them.
        host: its label.

    Raises:
        CommandRefused: a name in it is that of another virtual host.
    """
    name = request.properties.get("name")
    properties, body = dict(request.properties), dict(request.body)
    if isinstance(name, str) and request.entity_type in _NAMED:
        properties["name"] = _in_host(host, str(name))
    for key in _ENDS:
        value = body.get(key)
        if isinstance(value, str) and "@" not in value:
            body[key] = _in_host(host, str(value))
    return replace(request, properties=properties, body=body)


def _in_host(host: str, name: str) -> str:
    placed = placed_in(host, name)
    if placed is None:
        raise CommandRefused(
            BAD_REQUEST, f"{name[:256]!r} is not in the virtual host {host[:256]!r}"
        )
    return placed
