# SPDX-License-Identifier: Apache-2.0
"""The URL of a broker, as clients write it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["Url", "parse_url"]

_PORTS: Final = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class Url:
    """The address and the credentials of a client's connection.

    Attributes:
        scheme: ``amqp``, ``amqps`` or ``unix``.
        host: a name or an IP address; empty for ``unix``.
        port: the TCP port; 0 for ``unix``.
        path: the path of the socket; empty for TCP.
        user: the user name, or None.
        password: the password, or None.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def parse_url(url: str) -> Url:
    """Take ``amqp://[user[:password]@]host[:port]``, ``amqps://…`` or ``unix:PATH`` apart.

    Raises:
        ValueError: it is none of these; the words never show the password.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "unix" and rest:
        return Url("unix", path=rest)
    if scheme not in _PORTS or not colon:
        raise ValueError("a URL is amqp://host[:port], amqps://host[:port] or unix:PATH")
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port in the URL is not a number up to 65535") from None
    if not parts.hostname:
        raise ValueError("the URL names no host")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("a URL ends after the port; the node is an argument of its own")
    return Url(
        scheme,
        host=parts.hostname,
        port=_PORTS[scheme] if port is None else port,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )
