# SPDX-License-Identifier: Apache-2.0
"""A peer that takes messages and never settles them."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any

from amqproute.net.authority import Issued
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.sasl_mechanisms import (
    EXTERNAL,
    ExternalIdentity,
    ServerContext,
    server_mechanism,
)
from tests.support.patience import PATIENCE

__all__ = ["Sponge"]

READ_SECONDS = 0.05


class _Believing:
    """Lets everybody in by the certificate that TLS has asked for."""

    mechanisms: Sequence[str] = (EXTERNAL,)

    def start(self, name: str) -> Any:
        """See `ServerAuthority.start`."""
        identity = ExternalIdentity("peer", ("alpha.example",))
        return server_mechanism(
            name, ServerContext({}.get, "n" * 24, b"k" * 32, external=identity, confidential=True)
        )


class Sponge:
    """A TLS server with the name of a domain: grants credit, takes everything, settles nothing.

    Args:
        issued: its certificate and key.
        trust: the file with the authority for clients' certificates.
        credit: granted on each link, again and again.
        answer: written, as it is, for each delivery.

    Attributes:
        port: where it listens.
        taken: deliveries that came, over all connections.
        most_unsettled: the most on one connection.
        called_at: when each connection was open, monotonic seconds.
    """

    def __init__(
        self, issued: Issued, trust: str, credit: int = 100_000, answer: bytes = b""
    ) -> None:
        self._answer = answer
        self.taken = 0
        self.most_unsettled = 0
        self.called_at: list[float] = []
        self._credit = credit
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(issued.chain, issued.private_key)
        self._context.load_verify_locations(trust)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_open = True
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no more, and end what there is."""
        self._is_open = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        plain.settimeout(PATIENCE)
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(plain, server_side=True) as secured,
        ):
            secured.settimeout(READ_SECONDS)
            self._talk(secured)

    def _talk(self, secured: ssl.SSLSocket) -> None:
        engine = Connection(
            ConnectionSettings(role="server", container_id="sponge"), sasl_server=_Believing()
        )
        engine.start(time.monotonic())
        unsettled = 0
        while self._is_open:
            try:
                data = secured.recv(65536)
            except TimeoutError:
                events = engine.tick(time.monotonic())
            else:
                if not data:
                    return
                events = engine.receive_data(data, time.monotonic())
            given = 0
            for event in events:
                match event:
                    case ev.OpenReceived():
                        self.called_at.append(time.monotonic())
                        engine.open()
                    case ev.SessionBegun():
                        event.session.accept()
                    case ev.LinkAttached():
                        event.link.accept()
                        event.link.flow(self._credit)
                    case ev.DeliveriesReceived():
                        given += len(event.deliveries)
                        self.taken += len(event.deliveries)
                        unsettled += len(event.deliveries)
                        self.most_unsettled = max(self.most_unsettled, unsettled)
                    case ev.ConnectionClosed():
                        return
            if answer := engine.data_to_send():
                secured.sendall(b"".join(answer))
            if given and self._answer:
                secured.sendall(given * self._answer)
