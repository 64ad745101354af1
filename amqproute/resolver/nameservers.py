# SPDX-License-Identifier: Apache-2.0
"""The name servers to use: from the configuration, or from ``/etc/resolv.conf``.

Only ``nameserver`` lines count. A search list would make one address mean different domains on
different machines, so domains are always taken as complete; this package has its own settings
instead of ``options timeout`` and ``attempts``. A reload reads the file again and passes the result
to `DnsClient.set_nameservers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

__all__ = ["DNS_PORT", "Nameserver", "parse_nameserver", "parse_resolv_conf", "read_resolv_conf"]

DNS_PORT: Final = 53

_BRACKETED: Final = re.compile(r"\[(?P<host>[^]]*)\](?::(?P<port>\d+))?\Z")
_PLAIN: Final = re.compile(r"(?P<host>[^:]*):(?P<port>\d+)\Z")


@dataclass(frozen=True, slots=True)
class Nameserver:
    """The address of a name server.

    Attributes:
        host: an IPv4 or IPv6 address.
        port: the port, for UDP and TCP.
    """

    host: str
    port: int = DNS_PORT

    @property
    def is_ipv6(self) -> bool:
        """Whether the address is IPv6."""
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


def parse_nameserver(text: str) -> Nameserver:
    """Read ``192.0.2.1``, ``192.0.2.1:53``, ``2001:db8::1`` or ``[2001:db8::1]:53``.

    Raises:
        ValueError: the text is not such an address; the message says why.
    """
    text = text.strip()
    match = _BRACKETED.match(text) or _PLAIN.match(text)
    host, port = (match["host"], int(match["port"] or DNS_PORT)) if match else (text, DNS_PORT)
    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a name server: write an IP address, with a port as in "
            "192.0.2.1:53 or [2001:db8::1]:53"
        ) from None
    if not 0 < port < 65536:
        raise ValueError(f"{text!r} is not a name server: port {port} is not within 1..65535")
    return Nameserver(str(address), port)


def parse_resolv_conf(text: str) -> list[Nameserver]:
    """Return the name servers in a resolv.conf; by default the local one (resolv.conf(5))."""
    servers: list[Nameserver] = []
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        try:
            server = parse_nameserver(words[1])
        except ValueError:
            continue  # as the C library does: the other servers may do
        if server not in servers:
            servers.append(server)
    return servers or [Nameserver("127.0.0.1")]


def read_resolv_conf(path: Path = Path("/etc/resolv.conf")) -> list[Nameserver]:
    """Return the name servers of this machine.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    return parse_resolv_conf(text)
