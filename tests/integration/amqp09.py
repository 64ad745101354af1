# SPDX-License-Identifier: Apache-2.0
"""Shared code of tests with third-party clients of AMQP 0-9-1."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from tests.integration.support import Daemon, certificates
from tests.support.patience import PATIENCE

try:
    import pika
except ImportError:  # pragma: no cover - depends on the machine
    pika = None

USER, PASSWORD = "anna", "secret"


def tls_context() -> ssl.SSLContext:
    """Return a context that trusts the tests' authority."""
    return ssl.create_default_context(cafile=str(certificates().trust))


def parameters(
    daemon: Daemon, password: str = PASSWORD, virtual_host: str = "/", **more: Any
) -> Any:
    """Return pika's parameters for the TLS port of a daemon."""
    return pika.ConnectionParameters(
        "127.0.0.1",
        daemon.tls,
        virtual_host,
        pika.PlainCredentials(USER, password),
        ssl_options=pika.SSLOptions(tls_context(), daemon.name),
        connection_attempts=1,
        socket_timeout=PATIENCE,
        stack_timeout=PATIENCE,
        blocked_connection_timeout=PATIENCE,
        **more,
    )


def answer_to(port: int, octets: bytes) -> bytes:
    """Write octets to a port; return all that comes back until it is closed."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(octets)
        found = b""
        while more := connection.recv(4096):
            found += more
        return found


def connect(daemon: Daemon, **more: Any) -> Any:
    """Return a pika connection to the TLS port of a daemon."""
    return pika.BlockingConnection(parameters(daemon, **more))


def ssl_options() -> dict[str, Any]:
    """Return what py-amqp and kombu want to be told of TLS."""
    return {
        "ca_certs": str(certificates().trust),
        "cert_reqs": ssl.CERT_REQUIRED,
        "server_hostname": "alpha.example",
    }


def url(daemon: Daemon) -> str:
    """Return the URL of the TLS port, as kombu and Celery write it."""
    return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{daemon.tls}//"
