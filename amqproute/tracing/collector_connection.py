# SPDX-License-Identifier: Apache-2.0
"""An HTTP client for one collector: blocking, with bounds on time and on what it reads.

Why not the exporter of OpenTelemetry: it takes a redirect for success, reads answers of any size,
has no bound on the time of a whole exchange, and obeys variables of the environment.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from amqproute.errors import ConfigError
from amqproute.tracing.span_export import ExportFailure

__all__ = ["CollectorConnection", "CollectorTerms", "read_headers"]

MOST_ANSWER: Final = 64 * 1024
"""Octets of an answer that are read."""
MOST_HEADERS: Final = 64 * 1024
"""Octets of a file with headers."""
RETRYABLE: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed (OTLP 1, "Failures")."""
OURS: Final = frozenset({"content-type", "content-encoding", "content-length", "host"})
"""Headers that a file cannot give."""


@dataclass(frozen=True, slots=True)
class CollectorTerms:
    """A collector.

    Attributes:
        endpoint: URL with the path.
        headers: the headers of each request; may be secret.
        trust: PEM file of the authorities for its certificate; None for those of the machine.
        certificate: PEM file with the chain to show; None for none.
        private_key: PEM file with its key.
        timeout_seconds: the seconds for one export.
    """

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    trust: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    timeout_seconds: float = 10.0


def read_headers(path: Path) -> dict[str, str]:
    """Read headers from a file: ``Name: value``, one per line; ``#`` begins a comment line.

    Raises:
        ConfigError: it cannot be read, or has something else; the text shows no value.
    """
    try:
        with path.open("rb") as file:
            octets = file.read(MOST_HEADERS + 1)
        text = octets.decode("ascii")
    except OSError as error:
        raise ConfigError([f"{path}:1: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path}:1: has characters other than those of ASCII"]) from None
    if len(octets) > MOST_HEADERS:
        raise ConfigError([f"{path}:1: has more than {MOST_HEADERS} octets"])
    headers: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        value = value.strip()
        is_token = bool(name) and all(each.isalnum() or each in "!#$%&'*+-.^_`|~" for each in name)
        if not colon or not is_token or not value.isprintable() or name.lower() in OURS:
            problems.append(f"{path}:{number}: is no header; write one as in Name: value")
        headers[name] = value
    if problems:
        raise ConfigError(problems)
    return headers


class CollectorConnection:
    """Posts requests to a collector, over one connection while it lasts.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, terms: CollectorTerms) -> None:
        self._terms = terms
        parts = urlsplit(terms.endpoint)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = parts.path or "/"
        if parts.query:
            self._path += f"?{parts.query}"
        self._tls = _context_of(terms) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_late = False

    def post(self, body: bytes, content_type: str) -> bytes:
        """Post a body; return the answer's.

        Args:
            body: compressed with gzip.
            content_type: of it.

        Raises:
            ExportFailure: no answer in time, or another status than 200 to 299.
        """
        # An idle connection may have been closed by the other end: then once more, on a new one.
        is_fresh = self._connection is None
        self._is_late = False
        while True:
            try:
                return self._exchange(body, content_type)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                is_stale = isinstance(error, ConnectionError) and not is_fresh
                if self._is_late or self._is_closed or not is_stale:
                    words = "no answer in time" if self._is_late else _words(error)
                    raise ExportFailure(words) from error
            is_fresh = True

    def close(self) -> None:
        """End an exchange under way, and make no more; on any thread."""
        self._is_closed = True
        self._interrupt()

    def _exchange(self, body: bytes, content_type: str) -> bytes:
        timer = threading.Timer(self._terms.timeout_seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            connection = self._connected()
            headers = {
                **self._terms.headers,
                "Content-Type": content_type,
                "Content-Encoding": "gzip",
            }
            connection.request("POST", self._path, body, headers)
            with contextlib.closing(connection.getresponse()) as response:
                answer = response.read(MOST_ANSWER)
                is_whole = response.isclosed() or not response.read(1)
                status, reason = response.status, response.reason
                retry_after = response.getheader("Retry-After", "")
                if not is_whole or response.will_close:
                    self._drop()
        finally:
            timer.cancel()
        if self._is_late or self._is_closed:
            raise TimeoutError  # what was read until then may look like a whole answer
        if 200 <= status < 300:
            return answer
        raise ExportFailure(
            f"it answers {status} {reason}"[:200],
            is_final=status not in RETRYABLE,
            retry_after=float(retry_after) if retry_after.isdecimal() else 0.0,
        )

    def _connected(self) -> http.client.HTTPConnection:
        if self._is_closed:
            raise ExportFailure("the connection is closed", is_final=True)
        connection = self._connection
        if connection is None:
            seconds = self._terms.timeout_seconds
            if self._tls is None:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
            else:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=seconds, context=self._tls
                )
            connection.connect()
            with self._lock:
                self._connection = connection
        return connection

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _expire(self) -> None:
        self._is_late = True
        self._interrupt()

    def _interrupt(self) -> None:
        """Wake whoever waits for the other end, with an error."""
        with self._lock:
            sock = None if self._connection is None else self._connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _context_of(terms: CollectorTerms) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=terms.trust)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([f"{terms.trust}:1: has no usable certificates: {error}"]) from None
    if terms.certificate is not None:
        try:
            context.load_cert_chain(terms.certificate, terms.private_key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            words = f"is not usable with {terms.private_key}: {error}"
            raise ConfigError([f"{terms.certificate}:1: {words}"]) from None
    return context


def _no_password() -> str:
    raise ValueError("the private key has a passphrase")
