# SPDX-License-Identifier: Apache-2.0
"""Certificates that change while the daemon runs: watching files, draining old connections.

`FileWatch` checks the files every few seconds. A change takes effect when the files have been
stable for one more check, so that a program can write certificate and key one after the other; the
new files are checked as at start. A pair that does not match, or half a file, is refused: the old
one stays in force, the reason is logged once, and the next change is another chance. No signal is
needed; a reload (SIGHUP) does the same at once.

New connections use the certificate in force, existing ones keep theirs (see
`pump.TransportFacts.own_serial`). `stale` finds connections that should end, and `retire` closes
one cleanly: messages without an outcome are sent again on the next connection, where receipts
prevent duplicates.

Why so: polling. Five `stat` calls in ten seconds cost nothing and detect every way of replacing a
file, including symbolic links of a secret store, for which inotify would need a watch on each
directory.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from amqproute import conditions
from amqproute.errors import TlsError
from amqproute.net.pump import EngineProtocol
from amqproute.net.tls import TlsContexts

__all__ = ["FileWatch", "StaleConnections", "retire", "stale"]

log = Logger()

WARN_BEFORE: Final = 14 * 86400.0
"""Remaining validity below which our certificate causes a warning, once a day."""

_DAY: Final = 86400.0

_Look = tuple[tuple[Path, int, int, int], ...]


class FileWatch:
    """Makes the contexts read their files again when these change.

    Args:
        contexts: the contexts whose files are watched.
        clock: source of time and calls.
        seconds: interval between two checks.
        changed: called after a successful reload.
    """

    def __init__(
        self,
        contexts: TlsContexts,
        clock: IReactorTime,
        seconds: float,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._contexts = contexts
        self._clock = clock
        self._seconds = seconds
        self._changed = changed
        self._taken: _Look = ()
        self._seen: _Look = ()
        self._warned_at: float | None = None
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Start; the present files are taken to be in force."""
        self._taken = self._seen = _look(self._contexts.files)
        self._warn_of_end()
        self._call = self._clock.callLater(self._seconds, self._tick)

    def stop(self) -> None:
        """Stop checking."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    def reloaded(self) -> None:
        """Record that the files have been read by another part of the daemon."""
        self._taken = self._seen = _look(self._contexts.files)

    def _tick(self) -> None:
        self._call = self._clock.callLater(self._seconds, self._tick)
        try:
            self._act(_look(self._contexts.files))
        except Exception:
            log.failure("looking at the certificate files failed")
        self._warn_of_end()

    def _act(self, now: _Look) -> None:
        if now == self._taken:
            self._seen = now
            return
        if now != self._seen:
            self._seen = now  # perhaps still being written: the next check shows
            return
        try:
            self._contexts.reload()
        except TlsError as error:
            serial = self._contexts.loaded.serial
            log.warn(
                "changed certificate files are refused: {code}: {words}; the old pair "
                "(serial {serial}) stays in force until they change again",
                code=error.code,
                words=str(error),
                serial="none" if serial is None else f"{serial:x}",
            )
        else:
            if _look(self._contexts.files) != now:
                return  # changed meanwhile: once more
            log.info("certificate files read again")
            self._changed()
        self._taken = now

    def _warn_of_end(self) -> None:
        certificate = self._contexts.certificate
        if certificate is None:
            return
        now = self._contexts.now()
        left = certificate.not_valid_after_utc.timestamp() - now
        if left > WARN_BEFORE or (self._warned_at is not None and now - self._warned_at < _DAY):
            return
        self._warned_at = now
        log.warn(
            "the certificate of this broker {ends} at {until}; renew it, the files are read again "
            "by themselves",
            ends="ends" if left > 0 else "HAS ENDED",
            until=certificate.not_valid_after_utc.isoformat(),
        )


def _look(paths: Iterable[Path]) -> _Look:
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append((path, 0, 0, 0))
        else:
            found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


class StaleConnections(enum.Enum):
    """Why a connection should end."""

    OURS_OLD = "made with an older certificate of ours"
    THEIRS_EXPIRED = "the peer's certificate has expired"
    THEIRS_REVOKED = "the peer's certificate is revoked"


def stale(
    connections: Iterable[EngineProtocol],
    contexts: TlsContexts,
    wanted: Iterable[StaleConnections] = tuple(StaleConnections),
) -> Iterator[tuple[EngineProtocol, StaleConnections]]:
    """Find the connections that should end, each with the first reason.

    Args:
        connections: the connections of listeners and connectors.
        contexts: the contexts in force.
        wanted: the reasons that count.
    """
    reasons = frozenset(wanted)
    present = datetime.datetime.fromtimestamp(contexts.now(), datetime.UTC)
    for connection in tuple(connections):
        if connection.is_over or connection.facts.tls_version is None:
            continue
        for reason in _reasons(connection, contexts, present):
            if reason in reasons:
                yield connection, reason
                break


def _reasons(
    connection: EngineProtocol, contexts: TlsContexts, present: datetime.datetime
) -> Iterator[StaleConnections]:
    certificate = connection.facts.certificate
    if certificate is not None:
        if contexts.loaded.revocations.failure((certificate,)) is not None:
            yield StaleConnections.THEIRS_REVOKED
        if certificate.not_valid_after_utc < present:
            yield StaleConnections.THEIRS_EXPIRED
    if connection.facts.own_serial != contexts.loaded.serial:
        yield StaleConnections.OURS_OLD


def retire(connection: EngineProtocol, reason: StaleConnections) -> None:
    """Close a connection cleanly; the other side may reconnect at once."""
    if connection.is_over:
        return
    if not connection.has_engine:
        connection.abort()
        return
    log.info("{peer}: closed, {reason}", peer=connection.facts.remote, reason=reason.value)
    words = f"{reason.value}; connect again"
    connection.engine.close_with(conditions.CONNECTION_FORCED, words)
    connection.schedule_flush()
