# SPDX-License-Identifier: Apache-2.0
"""Operation without TLS while our own certificate is not valid by this machine's clock.

A clock before the certificate's first day, as on machines without a battery after boot, must not
keep local clients and operators out. Listeners with TLS stay closed and no other broker is dialled,
since no peer would accept us; both begin without a restart when the clock or the files are right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from amqproute.errors import ListenError
from amqproute.net.tls import TlsContexts

LOOK_SECONDS: Final = 5.0


class GatedListener(Protocol):
    """A listener that is opened when there is a certificate for it."""

    description: str

    def privilegedStartService(self) -> None:
        """Open the sockets while the process still has its privileges."""

    def startService(self) -> None:
        """Open the sockets unless they are open."""


class CertificateGate:
    """Keeps listeners with TLS closed while there is no valid certificate to show.

    Args:
        reactor: the reactor for the timer.
        contexts: ours; None without a certificate.
        changed: called when the certificate becomes valid or invalid.
        healed: called when it becomes valid, to dial waiting destinations.
    """

    log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        contexts: TlsContexts | None,
        changed: Callable[[], object],
        healed: Callable[[], object],
    ) -> None:
        self._reactor = reactor
        self._contexts = contexts
        self._changed = changed
        self._healed = healed
        self._waiting: list[tuple[GatedListener, int]] = []
        self._code = ""
        self._call: IDelayedCall | None = None

    def open(self, listener: GatedListener, *, has_tls: bool) -> None:
        """Open a listener now, or once there is a valid certificate for it.

        Raises:
            ListenError: it cannot be opened.
        """
        if has_tls and self._contexts is not None and self._contexts.ailment is not None:
            self._waiting.append((listener, 0))
            return
        listener.privilegedStartService()
        listener.startService()

    def start(self) -> None:
        """Start to check the dates."""
        if self._contexts is not None:
            self._look()

    def stop(self) -> None:
        """Stop the checks."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _look(self) -> None:
        self._call = self._reactor.callLater(LOOK_SECONDS, self._look)
        ailment = None if self._contexts is None else self._contexts.ailment
        code = "" if ailment is None else ailment.code
        was, self._code = self._code, code
        if code and code != was:
            self.log.warn("{words}", words=self.status())
            self._changed()
        if not code:
            self._open_waiting()
            if was:
                self.log.info("our certificate is valid now: other brokers are dialled again")
                self._healed()
                self._changed()

    def _open_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for listener, failures in waiting:
            try:
                listener.privilegedStartService()
                listener.startService()
            except ListenError as error:
                if not failures:
                    self.log.error("{error}; will keep trying", error=str(error))
                self._waiting.append((listener, failures + 1))
            else:
                self.log.info("{listener} is open", listener=listener.description)

    def status(self) -> str:
        """Describe the problem and its remedy; empty if there is none."""
        ailment = None if self._contexts is None else self._contexts.ailment
        if ailment is None:
            return ""
        closed = ", ".join(listener.description for listener, _ in self._waiting)
        return (
            f"{ailment}: {f'closed are {closed}; ' if closed else ''}no other broker is dialled; "
            "set the clock (timedatectl) or renew the files, nothing has to be restarted"
        )

    def row(self) -> Mapping[str, object]:
        """Return our certificate as an operator sees it."""
        contexts = self._contexts
        certificate = None if contexts is None else contexts.certificate
        ailment = None if contexts is None else contexts.ailment
        return {
            "name": "certificate",
            "type": "certificate",
            "state": "none" if certificate is None else "valid" if ailment is None else "invalid",
            "code": "" if ailment is None else ailment.code,
            "begins": "" if certificate is None else certificate.not_valid_before_utc.isoformat(),
            "ends": "" if certificate is None else certificate.not_valid_after_utc.isoformat(),
            "closed": [listener.description for listener, _ in self._waiting],
            "reason": self.status(),
        }


__all__ = ["CertificateGate", "GatedListener"]
