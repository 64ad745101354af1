# SPDX-License-Identifier: Apache-2.0
"""The address of a broker, and the socket to it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

from amqproute.url import Url

__all__ = ["BrokerEndpoint", "DataSourceError", "connect", "tls_context"]


class DataSourceError(Exception):
    """A request to a broker failed, at the broker or on the way; the text has the cause."""


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """One broker, and how to connect to it.

    Attributes:
        url: its address and our user.
        trust: PEM file with trusted authorities, or None for the system's. With an ``amqp`` URL it
            also requires TLS.
        certificate: PEM file with our own certificate, and its key unless there is a `key`.
        key: PEM file with the key of that certificate.
        seconds: time to wait for each answer.
    """

    url: Url
    trust: str | None = None
    certificate: str | None = None
    key: str | None = None
    seconds: float = 30.0

    def __str__(self) -> str:
        url = self.url
        return f"unix:{url.path}" if url.scheme == "unix" else f"{url.host}:{url.port}"

    @property
    def upgrades(self) -> bool:
        """Whether TLS is started with AMQP's own header (part 5 §5.2.1)."""
        return self.url.scheme == "amqp" and self.trust is not None


def tls_context(place: BrokerEndpoint) -> ssl.SSLContext | None:
    """Return the TLS context for a broker, None without TLS.

    Raises:
        DataSourceError: a file is not usable.
    """
    if place.url.scheme != "amqps" and not place.upgrades:
        return None
    try:
        context = ssl.create_default_context(cafile=place.trust)
        if place.certificate is not None:
            context.load_cert_chain(place.certificate, place.key)
    except OSError as error:
        raise DataSourceError(
            f"the options trust, certificate and key must name usable PEM files: {error}"
        ) from error
    return context


def connect(place: BrokerEndpoint) -> socket.socket:
    """Connect, without TLS yet.

    Raises:
        DataSourceError: the connection failed.
    """
    url = place.url
    try:
        if url.scheme == "unix":
            found = socket.socket(socket.AF_UNIX)
            found.settimeout(place.seconds)
            found.connect(url.path)
            return found
        found = socket.create_connection((url.host, url.port), timeout=place.seconds)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    except OSError as error:
        raise DataSourceError(f"no broker at {place}: {error}") from error
