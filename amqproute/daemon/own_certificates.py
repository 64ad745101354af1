# SPDX-License-Identifier: Apache-2.0
"""Certificate, key, trust and revocation lists of this broker, watched for changes."""

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
    """The TLS contexts of this broker.

    Args:
        config: the configuration of the start.
        clock: the clock for the checks of dates and files.
        changed: called when our certificate becomes valid or invalid.
        healed: called when it becomes valid, to dial waiting destinations.
        connections: returns the open connections, in and out.

    Attributes:
        contexts: the contexts for listeners and connectors; None without a certificate.
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
        """Start to watch the files."""
        if self._watch is not None:
            self._watch.start()

    def stop(self) -> None:
        """Stop the checks of dates and files."""
        self.gate.stop()
        if self._watch is not None:
            self._watch.stop()

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`. Reads the files.

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
        """Close connections that the newly read trust and revocation lists do not allow."""
        self.drain((StaleConnections.THEIRS_REVOKED,))

    def drain(self, reasons: Sequence[StaleConnections]) -> int:
        """Close the connections that use outdated certificates; return their number.

        Args:
            reasons: an older certificate of ours, or one of the peer's that has expired or is
                revoked.
        """
        if self.contexts is None:
            return 0
        found = list(stale(self._connections(), self.contexts, reasons))
        for connection, reason in found:
            retire(connection, reason)
        return len(found)
