# SPDX-License-Identifier: Apache-2.0
"""Read Twisted endpoint descriptions without opening, or even naming, a reactor.

Twisted's own parser cannot be used for a check: ``systemd:`` fails outside systemd, ``ssl:`` reads
certificates, and the errors are those of Python calls. The syntax is Twisted's: parts separated by
colons, ``name=value`` parts after the plain ones, a backslash before a colon, an equals sign or a
backslash that is part of a value.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Endpoint", "parse_endpoint"]

_PARTS: Final = re.compile(r"((?:[^:\\]|\\.)*)(?::|\Z)", re.DOTALL)
_NAMED: Final = re.compile(r"([A-Za-z]+)=(.*)", re.DOTALL)
_OPTIONS: Final = {
    "tcp": ("port", "interface", "backlog"),
    "tcp6": ("port", "interface", "backlog"),
    "unix": ("address", "mode", "backlog", "lockfile"),
    "systemd": ("domain", "index", "name"),
}
_INSTEAD: Final = {
    "ssl": "write tcp:PORT and set tls: implicit",
    "tls": "write tcp:PORT and set tls: implicit",
    "fd": "write systemd:domain=INET:index=N",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A parsed endpoint description.

    Attributes:
        kind: the transport.
        port: the TCP port, 0 for any free one; None if the kind has none.
        interface: the IP address to bind, empty for all; the path for ``unix``.
        is_unix: whether clients are local processes whose user id is known.
        is_loopback: whether only this machine can connect.
    """

    kind: Literal["tcp", "tcp6", "unix", "systemd"]
    port: int | None
    interface: str
    is_unix: bool
    is_loopback: bool


def parse_endpoint(description: str) -> Endpoint:
    """Parse an endpoint description.

    Raises:
        ValueError: Twisted would refuse it, or this daemon does not support it.
    """
    prefix, colon, rest = description.partition(":")
    kind = "tcp" if prefix == "tcp4" else prefix
    if not colon or kind not in _OPTIONS:
        raise ValueError(
            f"{description!r} is not an endpoint to listen at; "
            + _INSTEAD.get(
                kind, "write tcp:PORT, tcp6:PORT, unix:PATH or systemd:domain=INET:index=N"
            )
        )
    options = _options(description, kind, rest)
    if "backlog" in options:
        _whole(description, "backlog", options["backlog"], 1, 65535)
    if kind == "unix":
        return _unix(description, options)
    if kind == "systemd":
        return _systemd(description, options)
    return _tcp(description, kind, options)


def _options(description: str, kind: str, rest: str) -> dict[str, str]:
    known = _OPTIONS[kind]
    options: dict[str, str] = {}
    for raw in _split(rest):
        named = _NAMED.fullmatch(raw)
        if named is not None:
            name, value = named[1], named[2]
            if name not in known:
                raise ValueError(
                    f"{description!r}: {kind} endpoints have no option {name!r}; they have "
                    + ", ".join(known)
                )
        elif not options and kind != "systemd":
            name, value = known[0], raw
        else:
            raise ValueError(f"{description!r}: {raw!r} is not of the form option=value")
        if name in options:
            raise ValueError(f"{description!r} gives {name!r} twice")
        options[name] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
    return options


def _split(rest: str) -> list[str]:
    parts: list[str] = []
    position = 0
    while position <= len(rest):
        match = _PARTS.match(rest, position)
        if match is None:  # a backslash at the very end
            raise ValueError(f"{rest!r} ends with a backslash that escapes nothing")
        parts.append(match[1])
        if match.end() == len(rest) and not match[0].endswith(":"):
            break
        position = match.end()
    return parts


def _tcp(description: str, kind: str, options: dict[str, str]) -> Endpoint:
    port = _whole(description, "port", options.get("port", ""), 0, 65535)
    interface = options.get("interface", "")
    loopback = interface == "localhost"
    if interface and not loopback:
        try:
            address = ipaddress.ip_address(interface)
        except ValueError:
            raise ValueError(
                f"{description!r}: interface {interface!r} is not an IP address"
            ) from None
        if (address.version == 6) != (kind == "tcp6"):
            raise ValueError(
                f"{description!r}: interface {interface!r} is IPv{address.version}; write "
                + ("tcp6: with the colons as \\:" if address.version == 6 else "tcp:")
            )
        loopback = address.is_loopback
    return Endpoint("tcp6" if kind == "tcp6" else "tcp", port, interface, False, loopback)


def _unix(description: str, options: dict[str, str]) -> Endpoint:
    path = options.get("address", "")
    if not path:
        raise ValueError(f"{description!r} names no path")
    # sun_path is 108 octets with its final zero; the kernel's error does not mention it.
    if len(path.encode("utf-8", "surrogateescape")) > 107:
        raise ValueError(f"{description!r}: the path of a unix socket has 107 octets at most")
    mode = options.get("mode", "666")
    if not re.fullmatch(r"[0-7]{1,4}", mode):
        raise ValueError(f"{description!r}: mode {mode!r} is not octal, as in 660")
    return Endpoint("unix", None, path, True, True)


def _systemd(description: str, options: dict[str, str]) -> Endpoint:
    domain = options.get("domain", "")
    if domain not in ("INET", "INET6", "UNIX"):
        raise ValueError(f"{description!r}: domain has to be INET, INET6 or UNIX")
    if ("index" in options) == ("name" in options):
        raise ValueError(f"{description!r} needs either index=N or name=NAME")
    if "index" in options:
        _whole(description, "index", options["index"], 0, 1023)
    return Endpoint("systemd", None, "", domain == "UNIX", domain == "UNIX")


def _whole(description: str, name: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
        raise ValueError(
            f"{description!r}: {name} {text!r} is not a number between {low} and {high}"
        )
    return int(text)
