# SPDX-License-Identifier: Apache-2.0
"""Listening sockets by their endpoint descriptions, for every protocol.

There are four kinds, in the notation of Twisted:

``tcp:PORT[:interface=ADDRESS][:backlog=N]``, ``tcp6:`` likewise
    A TCP port.
``unix:PATH[:mode=660][:backlog=N]``
    A socket in the file system. A file left by an ended process is removed; a socket on which a
    process listens, or a file that is no socket, is not.
``systemd:name=NAME`` or ``systemd:index=N`` (``domain=`` is understood and not needed)
    Sockets that systemd has opened. All sockets of that FileDescriptorName are used, since one
    ``.socket`` unit may list several. They belong to systemd: a socket file stays when we stop.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from twisted.internet import tcp, unix
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import ILogObserver, LogEvent, Logger, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.errors import ListenError
from amqproute.net.reactor import ISocketReactor

__all__ = ["MOST_ACCEPTS", "ListeningPlace", "activated_sockets", "parse_place"]

log = Logger()

_FIRST_DESCRIPTOR: Final = 3  # SD_LISTEN_FDS_START, sd_listen_fds(3)
_PAUSE_SECONDS: Final = 0.5
_PORT_NAMESPACE: Final = "twisted.internet.tcp.Port"
_UNIX_MODE: Final = 0o660
_BACKLOG: Final = 512
MOST_ACCEPTS: Final = 8
"""Bound on the connections that a listening socket accepts in one turn of the reactor."""
_PART: Final = re.compile(r"((?:[^:\\]|\\.)*)(?::|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListeningPlace:
    """An endpoint description taken apart.

    Attributes:
        description: the description as configured.
        kind: ``tcp``, ``tcp6``, ``unix`` or ``systemd``.
        port: the port of TCP.
        address: the interface, or the path.
        backlog: the backlog of the socket.
        mode: the mode of the file of a unix socket.
        name: the name of sockets of systemd.
        index: the index of one socket of systemd; None without one.
    """

    description: str
    kind: str
    port: int = 0
    address: str = ""
    backlog: int = _BACKLOG
    mode: int = _UNIX_MODE
    name: str = ""
    index: int | None = None

    def open(
        self, reactor: ISocketReactor, factory: ServerFactory, environ: Mapping[str, str]
    ) -> list[IListeningPort]:
        """Open the sockets.

        Args:
            reactor: where to listen.
            factory: makes the protocol of each connection.
            environ: names the sockets that systemd passes.

        Raises:
            ListenError: it cannot be done; the words say why.
        """
        try:
            ports = self._open(reactor, factory, environ)
        except (CannotListenError, OSError) as error:
            cause = getattr(error, "socketError", error)
            words = getattr(cause, "strerror", None) or str(cause)
            raise ListenError(f"cannot listen at {self.description}: {words}") from error
        for port in ports:
            _AcceptBounds(port, reactor)
        log.info("listening at {listener}", listener=self.description)
        return ports

    def _open(
        self, reactor: ISocketReactor, factory: ServerFactory, environ: Mapping[str, str]
    ) -> list[IListeningPort]:
        if self.kind == "systemd":
            return self._adopt(reactor, factory, environ)
        if self.kind == "unix":
            _clear_path(self.address)
            return [reactor.listenUNIX(self.address, factory, backlog=self.backlog, mode=self.mode)]
        # Port 0 for TCP6 with an empty interface is IPv6 and IPv4 on most systems.
        interface = self.address or ("::" if self.kind == "tcp6" else "")
        return [reactor.listenTCP(self.port, factory, backlog=self.backlog, interface=interface)]

    def _adopt(
        self, reactor: ISocketReactor, factory: ServerFactory, environ: Mapping[str, str]
    ) -> list[IListeningPort]:
        found = activated_sockets(environ)
        if self.index is not None:
            chosen = found[self.index : self.index + 1]
        else:
            chosen = [each for each in found if each[0] == self.name]
        if not chosen:
            raise ListenError(
                f"cannot listen at {self.description}: systemd has handed over "
                + (
                    f"{len(found)} by the names {', '.join(sorted({name for name, _ in found}))}; "
                    "see ListenStream= and FileDescriptorName= in the .socket unit"
                    if found
                    else "no sockets at all: systemctl start amqproute.socket"
                )
            )
        return [_adopt_one(reactor, descriptor, factory) for _, descriptor in chosen]


def _adopt_one(reactor: ISocketReactor, descriptor: int, factory: ServerFactory) -> IListeningPort:
    os.set_blocking(descriptor, False)
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=os.dup(descriptor)) as probe:
        family = probe.family
    port: Any
    if family == socket.AF_UNIX:
        port = _AdoptedUnixPort._fromListeningDescriptor(reactor, descriptor, factory)  # type: ignore[no-untyped-call]
        port.startListening()
    else:
        port = reactor.adoptStreamPort(descriptor, family, factory)
    listening: IListeningPort = port
    return listening


@implementer(ILogObserver)
class _AcceptBounds:
    """Bounds what a listening socket accepts: `MOST_ACCEPTS` connections in one turn.

    Twisted accepts up to a hundred before it looks at the connections that are there. When the
    system does not let it accept anybody, the socket pauses.

    Twisted keeps a descriptor in reserve, to close with its help whoever comes when none is left.
    Once another thread has taken that one, the socket stays readable and is tried again without
    end. Here it is tried `_PAUSE_SECONDS` later, with a new reserve if there is one.
    """

    def __init__(self, port: IListeningPort, clock: IReactorTime) -> None:
        self._port = cast("Any", port)  # Any: a port of Twisted's, whose methods are replaced
        self._clock = clock
        self._is_pausing = False
        self._port.doRead = self._accept
        # Twisted says it nowhere but to this logger.
        self._port._logger = Logger(namespace=_PORT_NAMESPACE, observer=self)

    def __call__(self, event: LogEvent) -> None:
        """Take note of what Twisted logs about accepting, and pass it on."""
        globalLogPublisher(event)
        if "acceptError" in event and not self._is_pausing:
            self._is_pausing = True
            self._port.stopReading()
            self._clock.callLater(_PAUSE_SECONDS, self._go_on)

    def _accept(self) -> None:
        port = self._port
        port.numberAccepts = MOST_ACCEPTS  # Twisted changes it after each time
        type(port).doRead(port)

    def _go_on(self) -> None:
        self._is_pausing = False
        if not self._port.connected:
            return  # closed meanwhile
        with contextlib.suppress(OSError):
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            tcp._reservedFD.reserve()  # type: ignore[no-untyped-call] # Twisted's
        self._port.startReading()


class _AdoptedUnixPort(unix.Port):
    """A listening unix socket that is systemd's: its file stays when we stop listening."""

    def connectionLost(self, reason: Failure) -> None:
        """Close our descriptor only; Twisted's own port would remove the file."""
        tcp.Port.connectionLost(self, reason)  # type: ignore[no-untyped-call]


def activated_sockets(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return name and descriptor of each listening socket systemd has passed, in its order.

    Only LISTEN_FDNAMES is read: Twisted takes LISTEN_FDS and LISTEN_PID out of the environment when
    its endpoints are imported. Descriptors that are not listening sockets are left out, so that the
    names in the environment of a child process, which has not got the sockets, do no harm.
    """
    names = environ.get("LISTEN_FDNAMES", "")
    found = []
    for descriptor, name in enumerate(names.split(":") if names else (), _FIRST_DESCRIPTOR):
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as probe:
                if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.append((name, descriptor))
        except OSError:
            continue
    return found


def parse_place(description: str) -> ListeningPlace:
    """Take an endpoint description apart.

    Raises:
        ListenError: it cannot be understood.
    """
    kind, _, rest = description.partition(":")
    kind = "tcp" if kind == "tcp4" else kind
    named: dict[str, str] = {}
    first = ""
    for position, part in enumerate(_parts(rest)):
        key, equals, value = part.partition("=")
        if equals and key.isalpha():
            named[key] = value
        elif position == 0:
            first = part
        else:
            raise ListenError(f"{description!r}: {part!r} is not of the form option=value")
    try:
        backlog = int(named.get("backlog", _BACKLOG))
        if kind in ("tcp", "tcp6"):
            port = int(first or named["port"])
            return ListeningPlace(
                description, kind, port=port, address=named.get("interface", ""), backlog=backlog
            )
        if kind == "unix" and (first or named.get("address")):
            mode = int(named["mode"], 8) if "mode" in named else _UNIX_MODE
            path = first or named["address"]
            return ListeningPlace(description, kind, address=path, backlog=backlog, mode=mode)
        if kind == "systemd" and ("name" in named) != ("index" in named):
            index = int(named["index"]) if "index" in named else None
            return ListeningPlace(description, kind, name=named.get("name", ""), index=index)
    except (ValueError, KeyError) as error:
        raise ListenError(f"{description!r} is not an endpoint to listen at: {error}") from error
    raise ListenError(
        f"{description!r} is not an endpoint to listen at; write tcp:PORT, tcp6:PORT, unix:PATH "
        "or systemd:name=NAME"
    )


def _parts(rest: str) -> list[str]:
    """Divide at colons; a backslash quotes the character after it."""
    raw = [match[1] for match in _PART.finditer(rest)]
    while raw and not raw[-1]:
        raw.pop()
    return [re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in raw]


def _clear_path(path: str) -> None:
    """Remove a socket file that nobody listens at any more.

    Raises:
        ListenError: somebody does, or it is no socket.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"cannot listen at unix:{path}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # connecting to a unix socket never takes time
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except (BlockingIOError, PermissionError):
            pass  # somebody listens: the backlog is full, or it is not for us
        except FileNotFoundError:
            return
    raise ListenError(f"cannot listen at unix:{path}: another process listens there")
