# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection: requests within bounds and deadlines, and their answers.

`twisted.web` reads the syntax. What it refuses by closing the connection is answered here with a
problem, as is what is too large or too late. After a refusal within a request its rest is thrown
away for `LINGER_SECONDS`, because a connection that is closed with octets unread is reset, and the
client would not see the answer.

A large answer goes to the transport `OCTETS_IN_TURN` at a time, as fast as its client reads: to
copy and encrypt dozens of megabytes at once would stop the reactor.

A read waits for its turn, as steps of requests do (`amqproute.turn_scheduler`), and the connection
is not read meanwhile: neither floods nor what is thrown away keep other work waiting. What comes
while a request is answered is kept, up to some 80 KiB, until it is answered.

Requests that come together are answered one after the other: one in a turn of the reactor, not
before the client has read the answer before, and after a 429 not for `REST_SECONDS`. So neither the
processor nor the memory that a connection takes grows with what its client sends at once. Unread
answers and bodies of all connections have a bound in sum (`client_memory`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http import _MalformedChunkedDataError
from zope.interface import implementer

from amqproute.http.client_memory import ClientMemory
from amqproute.http.event_stream import EventStream
from amqproute.http.http_messages import (
    ClientFacts,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    title_of,
)
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["OCTETS_IN_TURN", "HttpChannel", "HttpLimits", "WebSite"]

log = Logger()

OCTETS_IN_TURN: Final = 64 * 1024
"""Octets of an answer that are written in one turn of the reactor."""
LINGER_SECONDS: Final = 2.0
"""Seconds in which the rest of a refused request is thrown away."""
MOST_PARAMETERS: Final = 100
"""Parameters of a query."""
MOST_SEGMENTS: Final = 64
"""Parts of a path: names have their slashes percent-encoded."""
CHUNKS_AT_ONCE: Final = 1000
"""Chunks of a body that may be of any size."""
CHUNK_BYTES: Final = 64
"""Octets in the chunks of a body with more chunks, on average: each costs some microseconds."""
REST_SECONDS: Final = 1.0
"""Time after a 429 for which no other request of the connection is looked at."""
LONGEST_NUMBER: Final = 20
"""Digits of a Content-Length that are looked at."""
_TOO_MANY: Final = 429
_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%\[\]:-]+")
"""Host and port (RFC 9110 §7.2), without user and password (§4.2.4)."""
_ABSOLUTE: Final = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
"""A target in absolute-form (RFC 9112 §3.2.2)."""
LONGEST_REFUSED: Final = 16 * 1024 * 1024
"""Octets of a refused request that are thrown away before the connection is reset."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on a connection.

    Attributes:
        header_bytes: octets of a request's first line and headers, at most.
        body_bytes: octets of a request's body, at most.
        request_seconds: time to send a request.
        answer_seconds: time to answer one.
        idle_seconds: time between requests, and for which a client reads nothing of an answer.
    """

    header_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    request_seconds: float = 20.0
    answer_seconds: float = 120.0
    idle_seconds: float = 60.0


class WebSite(Protocol):
    """Handler of requests: `site.HttpSite`."""

    def answer(self, request: HttpRequest) -> Deferred[HttpResponse]:
        """Answer a request; never fails."""

    def leave(self, request: HttpRequest) -> None:
        """Take note that nobody waits for the answer: a log-in that waits is given up."""

    def finish(self, request: HttpRequest | None, response: HttpResponse) -> HttpResponse:
        """Return an answer with the headers that all have."""


class HttpChannel(http.HTTPChannel):
    """One connection.

    Args:
        site: answers the requests.
        clock: the clock for deadlines.
        limits: bounds.
        lost: called when the connection is gone.
        facts_of: returns what a transport shows of its client.
        source: what counts as one client, for shares of memory.
        held: the octets that all connections hold; None for a bound of its own.
        turns: where reads wait; None to take each at once.

    Attributes:
        is_refused: whether further input is discarded.
        idle_since: the monotonic time of the connection, or of its last answer.
    """

    maxHeaders = 100

    def __init__(
        self,
        site: WebSite,
        clock: IReactorTime,
        limits: HttpLimits,
        lost: Callable[[HttpChannel], object],
        facts_of: Callable[[object], ClientFacts],
        source: str = "",
        held: ClientMemory | None = None,
        turns: TurnScheduler | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self.web_site = site
        self.clock = clock
        self.limits = limits
        self.requestFactory = _WebRequest  # type: ignore[assignment] # Twisted's has no type
        self.totalHeadersSize = self.MAX_LENGTH = limits.header_bytes
        self.timeOut = limits.idle_seconds  # type: ignore[assignment] # seconds of any kind
        self.callLater = clock.callLater  # type: ignore[method-assign, assignment]
        self._lost = lost
        self._facts_of = facts_of
        self._deadline: IDelayedCall | None = None
        self._linger: IDelayedCall | None = None
        self._thrown_away = 0
        self._source = source
        self._held = ClientMemory() if held is None else held
        self._turns = turns
        self._unread: list[bytes] = []  # parts of a read that waits for its turn
        self._unread_octets = 0
        self._awaits_turn = False
        self._is_over = False
        self._request_octets = 0  # that the request or its answer holds
        self._is_first = False  # the next request is the first of a read
        self._is_replaying = False
        self._next: Callable[[], None] | None = None  # serves the request that waits
        self._next_call: IDelayedCall | None = None
        self._rests_until = 0.0
        self.is_refused = False
        self.idle_since = clock.seconds()

    def connectionMade(self) -> None:
        """Start the deadline of the first request; a TLS handshake is within it."""
        super().connectionMade()  # type: ignore[no-untyped-call] # Twisted's
        self._begin()

    def dataReceived(self, data: bytes) -> None:
        """Take octets of a request, when it is their turn."""
        is_read_at_once = self._is_replaying or (self._handlingRequest and not self.is_refused)
        if self._turns is None or is_read_at_once:
            self._take(data)
            return
        if self.is_refused:
            self._take(data)
        else:
            self.resetTimeout()  # type: ignore[no-untyped-call] # Twisted's
            self._unread.append(data)
            self._unread_octets += len(data)
        if self._awaits_turn:  # TLS: a record of a read that waits already
            self._hold_all()
            return
        self._awaits_turn = True
        self._turns.ask("http", self._source, self._take_unread)
        if self._awaits_turn:
            self._networkProducer.pauseProducing()
            self._hold_all()

    def _take_unread(self) -> None:
        self._awaits_turn = False
        # As one: however many records it came in, one request is served in this step.
        data, self._unread, self._unread_octets = b"".join(self._unread), [], 0
        if self._is_over:
            return
        if not self._waitingForTransport:
            self._networkProducer.resumeProducing()
        try:
            if data:
                self._take(data)
        except Exception:
            self.abort()
            raise
        self._hold_all()

    def _take(self, data: bytes) -> None:
        if self.is_refused:
            self._thrown_away += len(data)
            if self._thrown_away > LONGEST_REFUSED:
                self.abort()
            return
        self._is_first = not self._is_replaying
        if self._deadline is None and not self._handlingRequest:
            self._begin()
        super().dataReceived(data)  # type: ignore[no-untyped-call] # Twisted's

    def lineReceived(self, line: bytes) -> None:
        """Take a line, unless the request is refused already."""
        if line[:1] in (b" ", b"\t"):  # RFC 9112 §5.2; and joining them takes long
            self.refuse(400, "a header is continued on a further line")
        if not self.is_refused:
            super().lineReceived(line)  # type: ignore[no-untyped-call] # Twisted's

    def headerReceived(self, line: bytes) -> bool:
        """Take a header, unless what it says of the body is no length that Twisted may read."""
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name == b"content-length" and len(value) > LONGEST_NUMBER and value.isdigit():
            self.refuse(413, f"the body is larger than {self.limits.body_bytes} octets")
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            self.refuse(400, "the only transfer coding of a body is chunked (RFC 9112 §6.1)")
        return not self.is_refused and bool(super().headerReceived(line))  # type: ignore[no-untyped-call]

    def allHeadersReceived(self) -> None:
        """Refuse a request whose host is not clear (RFC 9112 §3.2)."""
        request = self.requests[-1]
        hosts = request.requestHeaders.getRawHeaders(b"Host", [])
        is_clear = len(hosts) == 1 and _AUTHORITY.fullmatch(hosts[0]) is not None
        if not is_clear and (hosts or self._version != b"HTTP/1.0"):
            self.refuse(400, "the request does not have one header Host with a name or address")
        super().allHeadersReceived()  # type: ignore[no-untyped-call] # Twisted's

    def rawDataReceived(self, data: bytes) -> None:
        """Take octets of a body, unless the request is refused already."""
        if not self.is_refused:
            super().rawDataReceived(data)

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a first line or header that is too long."""
        self.refuse(431, f"the header is longer than {self.limits.header_bytes} octets")

    def allContentReceived(self) -> None:
        """End the deadline: the request is there."""
        self._end_deadline()
        super().allContentReceived()  # type: ignore[no-untyped-call] # Twisted's

    def requestDone(self, request: http.Request) -> None:
        """Go on with what has come meanwhile; it is no read of its own."""
        self.idle_since = self.clock.seconds()
        self._is_replaying = True
        try:
            super().requestDone(request)  # type: ignore[no-untyped-call] # Twisted's
        finally:
            self._is_replaying = False
        if not self._waitingForTransport:
            self.hold(0)
        if not self.persistent and not self._is_over and self._linger is None:
            # It is closed once the client has read the answer, and over TLS answered the close.
            self._linger = self.clock.callLater(self.limits.idle_seconds, self.abort)

    def resumeProducing(self) -> None:
        """Go on: the client has read everything."""
        super().resumeProducing()  # type: ignore[no-untyped-call] # Twisted's
        if not self._handlingRequest or self._next is not None:
            self.hold(0)
        if self._awaits_turn:
            self._networkProducer.pauseProducing()
        self._serve_in_turn()

    def serve(self, serve: Callable[[], None]) -> None:
        """Serve a request that is there: at once, or when its turn comes.

        Args:
            serve: serves it.
        """
        is_first, self._is_first = self._is_first, False
        is_resting = self.clock.seconds() < self._rests_until
        if is_first and not is_resting and not self._waitingForTransport:
            serve()
            return
        self._next = serve
        self._serve_in_turn()

    def rest(self) -> None:
        """Look at no other request for a while."""
        self._rests_until = self.clock.seconds() + REST_SECONDS

    def hold(self, octets: int) -> None:
        """Take note of the octets that a request or its answer holds; somebody may let go."""
        self._request_octets = octets
        self._hold_all()

    def _hold_all(self) -> None:
        octets = self._request_octets + self._unread_octets
        if not octets:
            self._held.free(self)
            return
        victim = self._held.hold(self, self._source, octets)
        if victim is not None:
            victim.let_go()

    def let_go(self) -> None:
        """Drop the connection: its client holds too much memory."""
        log.warn(
            "an HTTP connection of {peer} is dropped: bodies and unread answers of all connections "
            "are more than {most} octets, and this address has the largest part",
            peer=self._source or "this machine",
            most=self._held.most,
        )
        self.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return not self._handlingRequest

    def _serve_in_turn(self) -> None:
        """Serve the request that waits, in a turn to come."""
        call, self._next_call = self._next_call, None
        if call is not None and call.active():
            call.cancel()
        if self._next is None:
            return
        if self._waitingForTransport:
            self._next_call = self.clock.callLater(self.limits.idle_seconds, self.abort)
            return
        wait = max(0.0, self._rests_until - self.clock.seconds())
        self._next_call = self.clock.callLater(wait, self._serve_next)

    def _serve_next(self) -> None:
        self._next_call = None
        if self._waitingForTransport:
            self._serve_in_turn()
            return
        serve, self._next = self._next, None
        if serve is not None:
            serve()

    def facts(self) -> ClientFacts:
        """Return what the connection shows of its client."""
        return self._facts_of(self.transport)

    def refuse(self, status: int, detail: str) -> None:
        """Answer a request that is not read to its end, and close the connection."""
        if self.is_refused:
            return
        self.is_refused = True
        self._end_deadline()
        self.setRawMode()  # type: ignore[no-untyped-call] # the rest of a read is no lines
        response = self.web_site.finish(None, HttpProblem(status, detail).response())
        lines = [f"HTTP/1.1 {status} {title_of(status)}"]
        lines += [f"{name}: {value}" for name, value in _headers(response)]
        head = "\r\n".join([*lines, "Connection: close", "", ""])
        assert self.transport is not None
        self.transport.write(head.encode() + response.body)
        self.setTimeout(None)  # type: ignore[no-untyped-call] # Twisted's
        self._linger = self.clock.callLater(LINGER_SECONDS, self.abort)

    def abort(self) -> None:
        """Drop the connection."""
        transport: Any = self.transport  # Any: Twisted's, of several kinds
        if transport is not None:
            transport.abortConnection()

    def timeoutConnection(self) -> None:
        """Close an idle connection; Twisted would log each."""
        assert self.transport is not None
        self._linger = self.clock.callLater(LINGER_SECONDS, self.abort)
        self.loseConnection()  # type: ignore[no-untyped-call] # Twisted's

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End all timers, and tell the listener."""
        self._is_over = True
        self._end_deadline()
        self._unread.clear()
        self._unread_octets = 0
        self.hold(0)
        self._next = None
        self._serve_in_turn()
        linger, self._linger = self._linger, None
        if linger is not None and linger.active():
            linger.cancel()
        super().connectionLost(reason)  # type: ignore[no-untyped-call] # Twisted's
        self._lost(self)

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Refuse what Twisted refuses, with words."""
        most = self.limits.header_bytes
        if self._receivedHeaderSize > most:
            self.refuse(431, f"the header is longer than {most} octets")
        elif self._receivedHeaderCount > self.maxHeaders:
            self.refuse(431, f"more than {self.maxHeaders} headers")
        else:
            self.refuse(400, "the request is not HTTP/1.1 (RFC 9112)")

    def _send100Continue(self) -> None:
        if not self.is_refused:
            super()._send100Continue()  # type: ignore[no-untyped-call] # Twisted's

    def _begin(self) -> None:
        self._deadline = self.clock.callLater(self.limits.request_seconds, self._late)

    def _late(self) -> None:
        self._deadline = None
        seconds = self.limits.request_seconds
        self.refuse(408, f"the request was not complete within {seconds:g} seconds")

    def _end_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None and deadline.active():
            deadline.cancel()


@implementer(IPushProducer)
@dataclass(eq=False, slots=True)
class _StreamProducer:
    """Twisted's view of a stream of events, which is told when its client does not read."""

    stream: EventStream

    def pauseProducing(self) -> None:
        self.stream.pause()

    def resumeProducing(self) -> None:
        self.stream.resume()

    def stopProducing(self) -> None:
        self.stream.lost()


@implementer(IPushProducer)
class _BodyProducer:
    """A large body on its way to the transport.

    Args:
        clock: the clock for turns and for the client's patience.
        body: the octets.
        write: passes octets to the transport.
        done: called when all have been passed on.
        stalled: called when the client reads nothing for so long.
        stall_seconds: how long that is.
    """

    def __init__(
        self,
        clock: IReactorTime,
        body: bytes,
        write: Callable[[bytes], object],
        done: Callable[[], object],
        stalled: Callable[[], object],
        stall_seconds: float,
    ) -> None:
        self._clock = clock
        self._body = memoryview(body)
        self._write = write
        self._done = done
        self._stalled = stalled
        self._stall_seconds = stall_seconds
        self._is_paused = False
        self._call: IDelayedCall | None = None  # the next part, or the end of patience

    def pauseProducing(self) -> None:
        """Wait: the transport's buffer is full."""
        self._is_paused = True
        self._await(self._stall_seconds, self._stalled)

    def resumeProducing(self) -> None:
        """Go on in a turn of its own."""
        self._is_paused = False
        self._await(0, self._next)

    def stopProducing(self) -> None:
        """Write nothing more: the connection is gone."""
        self._body = memoryview(b"")
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    def _await(self, seconds: float, then: Callable[[], object]) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = self._clock.callLater(seconds, then)

    def _next(self) -> None:
        part, self._body = self._body[:OCTETS_IN_TURN], self._body[OCTETS_IN_TURN:]
        is_last = not self._body
        self._write(bytes(part))
        if is_last:
            self.stopProducing()
            self._done()
        elif not self._is_paused:
            self._await(0, self._next)


@dataclass(slots=True)
class _Streaming:
    """A stream of events as an answer, and what to call at its end."""

    stream: EventStream
    ended: list[Callable[[], object]] = field(default_factory=list)

    def end(self) -> None:
        self.stream.lost()
        ended, self.ended = self.ended, []
        for call in ended:
            call()


class _WebRequest(http.Request):
    """One request as Twisted reads it."""

    channel: HttpChannel

    def __init__(self, channel: HttpChannel, queued: object) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)
        self._clock = channel.clock
        self._octets = 0
        self._chunks = 0
        self._is_in_chunks = False
        self._asked: HttpRequest | None = None
        self._streaming: _Streaming | None = None
        self._parts: _BodyProducer | None = None
        self._late: IDelayedCall | None = None
        self._is_gone = False

    def gotLength(self, length: int | None) -> None:
        """Refuse a body that says that it is too large."""
        super().gotLength(0)  # type: ignore[no-untyped-call] # in memory, as it is bounded
        self._is_in_chunks = length is None
        if length is not None and length > self.channel.limits.body_bytes:
            self._too_large()

    def parseCookies(self) -> None:
        """Leave cookies to the log-in, which reads few of them."""

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Take note of the first line; Twisted would decode a query of any length."""
        assert self.content is not None
        self.content.seek(0)
        self.method, self.uri, self.clientproto = command, path, version
        self.process()

    def handleContentChunk(self, data: bytes) -> None:
        """Take a part of the body, up to the bound."""
        channel = self.channel
        if channel.is_refused:
            if self._is_in_chunks:
                raise _MalformedChunkedDataError  # so that the others are not even told apart
            return
        self._octets += len(data)
        self._chunks += self._is_in_chunks
        channel.hold(self._octets)
        if self._octets > channel.limits.body_bytes:
            self._too_large()
        elif self._chunks > max(CHUNKS_AT_ONCE, self._octets // CHUNK_BYTES):
            channel.refuse(400, f"the body's chunks have fewer than {CHUNK_BYTES} octets each")
        else:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call] # Twisted's

    def _too_large(self) -> None:
        most = self.channel.limits.body_bytes
        self.channel.refuse(413, f"the body is larger than {most} octets")

    def process(self) -> None:
        """Have the site answer, when it is the request's turn."""
        if not self.channel.is_refused:
            self.channel.serve(self._serve)

    def _serve(self) -> None:
        channel = self.channel
        site = channel.web_site
        try:
            request = self._read()
        except HttpProblem as problem:
            self._write(site.finish(None, problem.response()))
            return
        self._late = channel.clock.callLater(
            channel.limits.answer_seconds, self._answer_late, site, request
        )
        self._asked = request
        site.answer(request).addCallback(self._answered).addErrback(self._failed)

    def _read(self) -> HttpRequest:
        uri, host = self._target()
        path, _, query = uri.partition(b"?")
        is_for_all = uri == b"*" and self.method == b"OPTIONS"
        if b"#" in uri or not (path.startswith(b"/") or is_for_all):
            raise HttpProblem(400, "the request names no path")
        headers = {
            name.decode("ascii", "replace").lower(): b", ".join(values).decode("latin-1")
            for name, values in self.requestHeaders.getAllRawHeaders()
        }
        if host is not None:
            headers["host"] = host.decode("ascii")
        if headers.get("content-encoding", "identity").lower() != "identity":
            words = "bodies are taken without a content-encoding"
            raise HttpProblem(415, words, headers=[("Accept-Encoding", "identity")])
        assert self.content is not None
        return HttpRequest(
            self.method.decode("ascii", "replace"),
            path.decode("ascii", "replace"),
            _segments(path),
            _query(query),
            headers,
            self.content.read(),
            self.channel.facts(),
        )

    def _target(self) -> tuple[bytes, bytes | None]:
        """Return the target in origin-form, and the host in it, which goes before the header."""
        absolute = _ABSOLUTE.fullmatch(self.uri)
        if absolute is None:
            return self.uri, None
        host, uri = absolute.groups()
        if not _AUTHORITY.fullmatch(host):
            raise HttpProblem(400, "the request's target names no host")
        if not uri and self.method == b"OPTIONS":
            return b"*", host
        return (uri if uri.startswith(b"/") else b"/" + uri), host

    def _answer_late(self, site: WebSite, request: HttpRequest) -> None:
        self._late = None
        problem = HttpProblem(
            503, "the answer takes too long; what was asked for may still be carried out"
        )
        self._write(site.finish(request, problem.response(request.path)))

    def _answered(self, response: HttpResponse) -> None:
        self._asked = None
        if self._end_late():
            self._write(response)
        elif response.stream is not None:  # nobody is there to read it any more
            stream = EventStream(self._clock, lambda _: None, lambda: None)
            stream.lost()
            response.stream(stream)()

    def _failed(self, failure: Failure) -> None:
        log.failure("answering an HTTP request failed", failure)
        if not self._is_gone and not self.startedWriting:
            self.channel.abort()

    def _write(self, response: HttpResponse) -> None:
        self.setResponseCode(response.status, title_of(response.status).encode())
        headers: dict[str, list[str]] = {}
        for name, value in _headers(response):
            headers.setdefault(name, []).append(value)
        for name, values in headers.items():
            self.responseHeaders.setRawHeaders(name, values)
        if response.stream is not None:
            self.write(b"")  # type: ignore[no-untyped-call] # the headers, at once
            self._make_stream(response)
            return
        if response.status == _TOO_MANY:
            self.channel.rest()
        if len(response.body) > OCTETS_IN_TURN and self.method != b"HEAD":
            self.channel.hold(len(response.body))
            self._make_parts(response.body)
            return
        self.write(response.body)  # type: ignore[no-untyped-call] # Twisted's
        self.channel.hold(len(response.body))
        self.finish()  # type: ignore[no-untyped-call] # Twisted's

    def _make_parts(self, body: bytes) -> None:
        channel = self.channel
        producer = _BodyProducer(
            channel.clock,
            body,
            self.write,
            self._end_parts,
            channel.abort,
            channel.limits.idle_seconds,
        )
        self._parts = producer
        self.registerProducer(producer, True)  # type: ignore[no-untyped-call] # Twisted's
        producer.resumeProducing()

    def _end_parts(self) -> None:
        self._parts = None
        if not self._is_gone:
            self.unregisterProducer()  # type: ignore[no-untyped-call] # Twisted's
            self.finish()  # type: ignore[no-untyped-call] # Twisted's

    def _make_stream(self, response: HttpResponse) -> None:
        assert response.stream is not None
        stream = EventStream(self.channel.clock, self.write, self._end_stream)
        self._streaming = streaming = _Streaming(stream)
        self.registerProducer(_StreamProducer(stream), True)  # type: ignore[no-untyped-call]
        ended = response.stream(stream)
        streaming.ended.append(ended)
        if stream.is_over:
            streaming.end()

    def _end_stream(self) -> None:
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            streaming.end()
        if not self._is_gone:
            self.unregisterProducer()  # type: ignore[no-untyped-call] # Twisted's
            self.finish()  # type: ignore[no-untyped-call] # Twisted's

    def connectionLost(self, reason: Failure) -> None:
        """Give everything back that the answer holds."""
        self._is_gone = True
        self._end_late()
        asked, self._asked = self._asked, None
        if asked is not None:
            self.channel.web_site.leave(asked)
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            streaming.end()
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.stopProducing()
        super().connectionLost(reason)  # type: ignore[no-untyped-call] # Twisted's

    def _end_late(self) -> bool:
        late, self._late = self._late, None
        if late is not None and late.active():
            late.cancel()
            return True
        return False


def _headers(response: HttpResponse) -> list[tuple[str, str]]:
    """Return the headers of an answer, each value on one line."""
    found = [(name, "".join(value.splitlines())) for name, value in response.headers]
    if response.content_type:
        found.append(("Content-Type", response.content_type))
    if response.stream is None and response.status not in (204, 304):
        found.append(("Content-Length", str(len(response.body))))
    return found


def _segments(path: bytes) -> tuple[str, ...]:
    if path.count(b"/") > MOST_SEGMENTS:
        raise HttpProblem(400, f"the path has more than {MOST_SEGMENTS} parts", "path")
    try:
        return tuple(unquote_to_bytes(part).decode() for part in path.split(b"/")[1:])
    except UnicodeDecodeError:
        raise HttpProblem(400, "the path is not UTF-8, percent-encoded", "path") from None


def _query(query: bytes) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except (UnicodeDecodeError, ValueError):
        words = f"the query is not UTF-8, percent-encoded, of at most {MOST_PARAMETERS} parameters"
        raise HttpProblem(400, words, "query") from None
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found
