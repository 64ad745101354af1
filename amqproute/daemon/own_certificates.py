# SPDX-License-Identifier: Apache-2.0
"""The certificate, key, trust and revocation lists of this broker, followed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twisted.internet.interfaces import IReactorTime

from amqproute.config.schema import Config
from amqproute.daemon.certificate_gate import CertificateGate
from amqproute.daemon.config_reload import Apply
from amqproute.daemon.peer_assembly import make_contexts
from amqproute.net.certificate_reload import FileWatch, StaleConnections, retire, stale
from amqproute.net.pump import EngineProtocol

__all__ = ["OwnCertificates"]


class OwnCertificates:
    """What TLS connections are made with.

    Args:
        config: the configuration of the start.
        clock: for looking at dates and files.
        changed: called when our certificate has become valid, or is no longer.
        healed: called when it has become valid: to dial those who wait.
        connections: gives the open connections, in and out.

    Attributes:
        contexts: for listeners and connectors; None without a certificate.
        gate: keeps listeners with TLS closed while there is no valid certificate.
    """

    def __init__(
        self,
        config: Config,
        clock: IReactorTime,
        changed: Callable[[], object],
        healed: Callable[[], object],
        connections: Callable[[], Iterable[EngineProtocol]],
    ) -> None:
        self.contexts = make_contexts(config, checks_dates=False)
        self.gate = CertificateGate(clock, self.contexts, changed, healed)
        self._connections = connections
        self._watch: FileWatch | None = None
        if self.contexts is not None:
            self._watch = FileWatch(self.contexts, clock, config.tls.watch, self._read_again)

    def watch(self) -> None:
        """Look at the files from now on."""
        if self._watch is not None:
            self._watch.start()

    def stop(self) -> None:
        """Look at dates and files no more."""
        self.gate.stop()
        if self._watch is not None:
            self._watch.stop()

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`. The files are read.

        Raises:
            TlsError: one of them cannot be used.
        """
        own = self.contexts
        contexts = make_contexts(config, checks_dates=own is None or own.ailment is None)

        def apply() -> None:
            if own is not None and contexts is not None:
                own.adopt(contexts)
                if self._watch is not None:
                    self._watch.reloaded()
                self._read_again()

        return apply

    def _read_again(self) -> None:
        """Close what the certificates, trust or revocation lists that were read do not bear."""
        self.drain((StaleConnections.THEIRS_REVOKED,))

    def drain(self, reasons: Sequence[StaleConnections]) -> int:
        """Close the connections that live on certificates past their use; return how many.

        Args:
            reasons: which of them: with an older certificate of ours, with one of the peer's that
                has expired or is revoked.
        """
        if self.contexts is None:
            return 0
        found = list(stale(self._connections(), self.contexts, reasons))
        for connection, reason in found:
            retire(connection, reason)
        return len(found)
