# SPDX-License-Identifier: Apache-2.0
"""The service around the listening sockets of one endpoint, for every protocol."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import ServerFactory

from amqproute.net.listening_sockets import parse_place
from amqproute.net.reactor import ISocketReactor

__all__ = ["ListeningService"]


class ListeningService(Service):
    """Opens the sockets of an endpoint when it starts, and closes them; a Twisted service.

    A subclass makes the factory of the connections, and ends these in its `stopService`.

    Args:
        reactor: where to listen.
        description: see `amqproute.net.listening_sockets`.
        environ: names the sockets that systemd passes.

    Attributes:
        description: the description of the endpoint.

    Raises:
        ListenError: the description cannot be understood.
    """

    def __init__(
        self, reactor: ISocketReactor, description: str, environ: Mapping[str, str]
    ) -> None:
        self.description = description
        self._reactor = reactor
        self._environ = environ
        self._place = parse_place(description)
        self._ports: list[IListeningPort] = []

    @property
    def is_listening(self) -> bool:
        """Whether the sockets are open."""
        return bool(self._ports)

    @property
    def addresses(self) -> list[IAddress]:
        """The addresses it listens on, with the actual port for port 0."""
        return [port.getHost() for port in self._ports]

    def _factory(self) -> ServerFactory:
        """Return what makes the protocol of each connection."""
        raise NotImplementedError

    def privilegedStartService(self) -> None:
        """Open the sockets while the process still has its privileges.

        Raises:
            ListenError: it cannot be done; the words say why.
        """
        self._open()

    def startService(self) -> None:
        """Open the sockets unless they are open.

        Raises:
            ListenError: it cannot be done; the words say why.
        """
        self._open()
        super().startService()  # type: ignore[no-untyped-call]

    def stop_accepting(self) -> Deferred[None]:
        """Close the sockets; the connections stay. Fires when the sockets are closed."""
        ports, self._ports = self._ports, []
        stops = [port.stopListening() for port in ports]
        waits = [stop for stop in stops if isinstance(stop, Deferred)]
        return gatherResults(waits).addCallback(lambda _: None) if waits else succeed(None)

    def _open(self) -> None:
        if not self._ports:
            self._ports = self._place.open(self._reactor, self._factory(), self._environ)
