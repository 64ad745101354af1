# SPDX-License-Identifier: Apache-2.0
"""Connections of the HTTP service: bounds, deadlines, streams of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.token_scope import WHOLE_SCOPE
from amqproute.http.client_memory import ClientMemory
from amqproute.http.event_stream import COMMENT_SECONDS, MOST_UNREAD, STALL_SECONDS, EventStream
from amqproute.http.http_channel import (
    CHUNKS_AT_ONCE,
    LINGER_SECONDS,
    LONGEST_REFUSED,
    MOST_SEGMENTS,
    OCTETS_IN_TURN,
    REST_SECONDS,
    HttpLimits,
)
from amqproute.http.http_messages import (
    EVENTS,
    LONGEST_ACCEPT,
    TEXT,
    HttpRequest,
    HttpResponse,
    json_response,
)
from amqproute.http.login import MOST_COOKIES
from amqproute.http.sessions import COOKIE
from amqproute.http.site import MOST_TAGS, HttpAccess, HttpResource, SiteTerms
from amqproute.http.stream_log_in import CHECK_SECONDS
from amqproute.turn_scheduler import TURN_SECONDS, TurnScheduler
from amqproute.values import Principal
from tests.http.rig import ANN, BOB, GOOD, LOOPBACK, TLS, HttpConnection, Web, encode
from tests.support.turn_clock import TurnClock


class ChannelCase(SynchronousTestCase):
    """A site whose answers and streams are at hand."""

    terms = SiteTerms(event_streams=4)

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        limits = HttpLimits(header_bytes=2048, body_bytes=4096, request_seconds=10)
        self.clock = TurnClock()
        self.web = Web(directory, self.terms, limits, self.clock)
        self.addCleanup(self.web.close)
        self.seen: list[HttpRequest] = []
        self.waiting: list[Deferred[HttpResponse]] = []
        self.streams: list[EventStream] = []
        self.ended = 0
        site = self.web.site
        site.mount("/x", self.take, methods=("GET", "POST"), access=HttpAccess.OPEN)
        site.mount("/wait", self.wait, access=HttpAccess.OPEN)
        events = HttpResponse(200, content_type=EVENTS, stream=self.begin)
        site.add(HttpResource("/events", {"GET": lambda _: events}, gives=(EVENTS,)))

    def take(self, request: HttpRequest) -> HttpResponse:
        self.seen.append(request)
        return json_response(len(request.body))

    def wait(self, request: HttpRequest) -> Deferred[HttpResponse]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def begin(self, stream: EventStream) -> Callable[[], object]:
        self.streams.append(stream)

        def end() -> None:
            self.ended += 1

        return end


class BoundsTests(ChannelCase):
    """Oversized and malformed requests."""

    def test_header(self) -> None:
        """A header that is too long, or has too many fields, is refused in words."""
        many = "".join(f"X-{n}: 1\r\n" for n in range(101))
        for octets in (
            b"GET /x HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 2048 + b"\r\n\r\n",
            b"GET /" + b"a" * 3000,
            f"GET /x HTTP/1.1\r\n{many}\r\n".encode(),
        ):
            connection = self.web.connect()
            connection.send(octets)
            answer = connection.answer()
            self.assertEqual(answer.status, 431)
            self.assertEqual(answer.json()["status"], 431)
            self.assertEqual(answer.headers["Connection"], "close")
        self.assertEqual(self.seen, [])

    def test_body(self) -> None:
        """A body that is too large is refused before it is read; so is one in chunks."""
        connection = self.web.connect()
        connection.send(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4097\r\n")
        connection.send(b"Expect: 100-continue\r\n\r\n")
        self.assertEqual(connection.answer().status, 413)
        connection = self.web.connect()
        connection.send(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            connection.send(b"400\r\n" + b"a" * 1024 + b"\r\n")
        self.assertEqual(connection.read(), b"")
        connection.send(b"1\r\na\r\n0\r\n\r\n")
        self.assertEqual(connection.answer().status, 413)
        self.assertEqual(self.seen, [])

    def test_a_body_within_bounds(self) -> None:
        """It is taken whole, and the connection goes on."""
        connection = self.web.connect()
        connection.send(encode("POST", "/x", {"Content-Type": "application/json"}, b"a" * 4096))
        self.assertEqual(connection.answer().json(), 4096)
        connection.send(encode("GET", "/x"))
        self.assertEqual(connection.answer().status, 200)

    def test_the_rest_of_a_refused_request(self) -> None:
        """It is thrown away for a while, and is never a request of its own."""
        connection = self.web.connect()
        connection.send(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n")
        connection.read()
        connection.send(b"a" * 9999 + encode("GET", "/x"))
        self.assertEqual((connection.read(), self.seen), (b"", []))
        self.web.clock.advance(LINGER_SECONDS)
        self.assertTrue(connection.transport.is_aborted)
        connection = self.web.connect()
        connection.send(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n")
        connection.send(b"a" * (LONGEST_REFUSED + 1))
        self.assertTrue(connection.transport.is_aborted)

    def test_what_is_no_request(self) -> None:
        """It is refused with a problem; two lengths are no request."""
        for octets in (
            b"\x16\x03\x01\x00\xa5\r\n\r\n",
            b"GET /x\r\n\r\n",
            b"GET /x HTTP/1.1\r\nno header\r\n\r\n",
            b"GET /x HTTP/1.1\r\nHost: a\r\nBad Name: b\r\n\r\n",
            b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
            b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST /x HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        ):
            connection = self.web.connect()
            connection.send(octets)
            self.assertEqual(connection.answer().status, 400, octets)
        self.assertEqual(self.seen, [])

    def test_pipelined_requests(self) -> None:
        """They are answered in turn."""
        connection = self.web.connect()
        connection.send(encode("GET", "/wait") + encode("GET", "/x"))
        self.assertEqual((connection.read(), self.seen), (b"", []))
        self.waiting[0].callback(json_response("first"))
        self.web.clock.advance(0)
        said = connection.read()
        self.assertEqual(said.count(b"HTTP/1.1 200"), 2)
        self.assertLess(said.index(b"first"), said.rindex(b"HTTP/1.1"))


class ReadTurnTests(ChannelCase):
    """Reads wait for their turn, beside other work."""

    def setUp(self) -> None:
        super().setUp()
        self.used = 0.0
        self.turns = self.web.turns = TurnScheduler(self.clock, lambda: self.used)
        self.connection = self.web.connect()
        self.wire = self.connection.transport

    def use(self) -> None:
        self.used += 3 * TURN_SECONDS

    def busy(self, turns: int = 1) -> None:
        """Pass turns in which there is other work."""
        for _ in range(turns):
            self.used += TURN_SECONDS / 2
            self.clock.turn()

    def test_at_once(self) -> None:
        """An idle broker reads, and answers, at once."""
        self.connection.send(encode("GET", "/x"))
        self.assertEqual(self.connection.answer().status, 200)
        self.assertEqual((self.wire.producerState, self.web.held.total), ("producing", 0))

    def test_waits(self) -> None:
        """What has come is held, and counted, and no more is read."""
        self.turns.ask("tls", "", self.use)
        octets = encode("POST", "/x", {"Content-Type": "application/json"}, b"a" * 4000)
        self.connection.send(octets[:3000])
        self.connection.send(octets[3000:])  # had already been read
        self.assertEqual((self.connection.read(), self.wire.producerState), (b"", "paused"))
        self.assertEqual(self.web.held.total, len(octets))
        self.busy(2)
        self.assertEqual(self.connection.read(), b"")
        self.busy()
        self.assertEqual(self.connection.answer().json(), 4000)
        self.assertEqual((self.wire.producerState, self.web.held.total), ("producing", 0))

    def test_stays_paused(self) -> None:
        """A client that reads answers again does not undo that."""
        self.turns.ask("tls", "", self.use)
        self.connection.send(b"GET ")
        self.connection.channel.resumeProducing()
        self.connection.send(b"/x HT")
        self.assertEqual(self.wire.producerState, "paused")
        # Nor does the turn, if the client does not read.
        self.connection.channel.pauseProducing()  # type: ignore[no-untyped-call]
        self.busy(4)
        self.assertEqual(self.wire.producerState, "paused")
        self.connection.channel.resumeProducing()
        self.assertEqual(self.wire.producerState, "producing")
        self.connection.send(b"TP/1.1\r\nHost: a\r\n\r\n")
        self.busy(4)
        self.assertEqual(self.connection.answer().status, 200)

    def test_what_is_thrown_away(self) -> None:
        """The rest of a refused request is read in turns, and not held."""
        self.connection.send(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n")
        self.assertEqual(self.connection.answer().status, 413)
        self.busy()
        for _ in range(3):
            self.turns.ask("tls", "", self.use)
            self.connection.send(b"a" * 65536)
            self.assertEqual((self.wire.producerState, self.web.held.total), ("paused", 0))
            self.busy(4)
            self.assertEqual(self.wire.producerState, "producing")
        self.clock.advance(LINGER_SECONDS)
        self.assertTrue(self.wire.is_aborted)

    def test_one_after_the_other(self) -> None:
        """Addresses take turns; connections of one address wait behind each other."""
        others = [self.web.connect(), self.web.connect(), self.web.connect(TLS)]
        self.web.site.mount("/slow", self.slow, access=HttpAccess.OPEN)
        for each in (self.connection, *others):
            each.send(encode("GET", "/slow"))
        self.assertEqual(len(self.seen), 1)
        for taken in (2, 3, 4):
            self.busy(3)
            self.assertEqual(len(self.seen), taken)
        self.assertEqual(
            [each.client.address for each in self.seen],
            [LOOPBACK.address, LOOPBACK.address, TLS.address, LOOPBACK.address],
        )

    def slow(self, request: HttpRequest) -> HttpResponse:
        self.use()
        return self.take(request)

    def test_records(self) -> None:
        """A read that comes in many TLS records is one: it is paused once, and serves one."""
        pauses: list[object] = []
        pause = self.wire.pauseProducing
        self.patch(self.wire, "pauseProducing", lambda: (pauses.append(None), pause()))
        self.turns.ask("tls", "", self.use)
        for _ in range(50):
            self.connection.send(encode("GET", "/x"))
        self.assertEqual((len(pauses), len(self.seen)), (1, 0))
        self.busy(3)
        self.assertEqual(len(self.seen), 1)
        self.busy(20)
        self.assertLessEqual(len(self.seen), 21)  # and then the rate of one address

    def test_refused_floods(self) -> None:
        """A flood behind a refusal waits for its turns, whatever was refused."""
        self.connection.send(b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        self.assertEqual(self.connection.answer().status, 400)
        self.turns.ask("tls", "", self.use)
        self.connection.send(b"a" * 65536)
        self.assertEqual((self.wire.producerState, self.web.held.total), ("paused", 0))

    def test_idle_timeout(self) -> None:
        """A request that waits for its turn is not idle."""
        self.connection.send(encode("GET", "/x"))
        self.assertEqual(self.connection.answer().status, 200)
        self.clock.advance(self.web.limits.idle_seconds - 0.1)
        self.turns.ask("tls", "", self.use)
        self.connection.send(encode("GET", "/x"))
        self.clock.rightNow += 0.2
        self.busy(4)
        self.assertEqual(self.connection.answer().status, 200)

    def test_a_fault(self) -> None:
        """A connection whose read fails is dropped, as the rest of the read is lost."""
        self.turns.ask("tls", "", self.use)
        self.connection.send(encode("GET", "/x"))

        def fail(_: bytes) -> None:
            raise ValueError("a fault")

        self.patch(self.connection.channel, "lineReceived", fail)
        with self.assertRaises(ValueError):
            self.busy(4)
        self.assertTrue(self.wire.is_aborted)

    def test_gone(self) -> None:
        """Nothing is read of a connection that was lost while it waited."""
        self.turns.ask("tls", "", self.use)
        self.connection.send(encode("GET", "/x"))
        self.connection.lose()
        self.busy(4)
        self.assertEqual((self.seen, self.web.held.total), ([], 0))
        self.assertEqual(self.web.clock.getDelayedCalls(), [])


class CloseTests(ChannelCase):
    """Connections that are closed after their answer."""

    def test_a_client_that_stays(self) -> None:
        """It is dropped after a while: it may not read its answer, or never close its side."""
        for octets in (
            b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            b"GET /x HTTP/1.0\r\n\r\n",
        ):
            connection = self.web.connect()
            connection.send(octets)
            self.assertEqual(connection.answer().status, 200)
            self.clock.advance(self.web.limits.idle_seconds - 1)
            self.assertFalse(connection.transport.is_aborted)
            self.clock.advance(1)
            self.assertTrue(connection.transport.is_aborted)

    def test_a_client_that_closes(self) -> None:
        """Nothing stays behind."""
        connection = self.web.connect()
        connection.send(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        connection.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])


LARGE = bytes(range(256)) * 4 * 1024 + b"end"


class LargeAnswerTests(ChannelCase):
    """Answers of a megabyte, a part in each turn of the reactor."""

    def setUp(self) -> None:
        super().setUp()
        answer = HttpResponse(200, LARGE, TEXT, [("Cache-Control", "no-store")])
        self.web.site.mount("/large", lambda _: answer, access=HttpAccess.OPEN)
        self.connection = self.web.connect()
        self.wire = self.connection.transport

    def written(self) -> int:
        return len(self.wire.value())

    def turn(self) -> int:
        """Pass a turn; return how many octets were written in it."""
        before = self.written()
        self.clock.turn()
        return self.written() - before

    def test_turns(self) -> None:
        """No turn writes more than a part; the octets are those of the answer; the next follows."""
        self.connection.send(encode("GET", "/large") + encode("GET", "/x"))
        self.assertLess(self.written(), OCTETS_IN_TURN)
        parts = []
        while part := self.turn():
            parts.append(part)
        self.assertEqual(len(parts), len(LARGE) // OCTETS_IN_TURN + 2)  # and that of the next
        self.assertLess(max(parts), OCTETS_IN_TURN + 1024)
        answer = self.connection.answer()
        self.assertEqual(answer.body[: len(LARGE)], LARGE)
        self.assertEqual(int(answer.headers["Content-Length"]), len(LARGE))
        self.assertTrue(answer.body[len(LARGE) :].startswith(b"HTTP/1.1 200"))
        self.assertNotIn("ETag", answer.headers)

    def test_a_client_that_reads_slowly(self) -> None:
        """Nothing is written while it does not read, and all of it in the end."""
        self.connection.send(encode("GET", "/large"))
        for _ in range(3):
            self.turn()
            assert self.wire.producer is not None
            self.wire.producer.pauseProducing()
            written = self.written()
            self.clock.advance(self.web.limits.idle_seconds - 1)
            self.assertEqual(self.written(), written)
            self.wire.producer.resumeProducing()
        while self.turn():
            pass
        self.assertEqual(self.connection.answer().body, LARGE)
        self.assertFalse(self.wire.is_aborted)

    def test_a_client_that_does_not_read(self) -> None:
        """It is given up."""
        self.connection.send(encode("GET", "/large"))
        self.turn()
        assert self.wire.producer is not None
        self.wire.producer.pauseProducing()
        self.clock.advance(self.web.limits.idle_seconds - 1)
        self.assertFalse(self.wire.is_aborted)
        self.clock.advance(1)
        self.assertTrue(self.wire.is_aborted)

    def test_a_client_that_goes(self) -> None:
        """Nothing more is written, and nothing stays behind."""
        self.connection.send(encode("GET", "/large"))
        self.turn()
        self.connection.lose()
        self.assertEqual(self.turn(), 0)
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_head(self) -> None:
        """A HEAD has the length, and no octet of it."""
        answer = self.web.ask("HEAD", "/large")
        self.assertEqual((answer.body, int(answer.headers["Content-Length"])), (b"", len(LARGE)))


class ShareTests(ChannelCase):
    """What one client can make us do, or keep."""

    terms = SiteTerms(requests_per_second=20)

    def answers(self, connection: HttpConnection) -> list[int]:
        """Return the statuses that have come since."""
        said = connection.read()
        return [int(each[:3]) for each in said.split(b"HTTP/1.1 ")[1:]]

    def test_one_request_in_a_turn(self) -> None:
        """However many come in one read."""
        connection = self.web.connect()
        connection.send(encode("GET", "/x") * 6)
        self.assertEqual(self.answers(connection), [200])
        for _ in range(5):
            self.clock.turn()
            self.assertEqual(self.answers(connection), [200])
        connection.send(encode("GET", "/x"))
        self.assertEqual(self.answers(connection), [200])

    def test_rest_after_a_refusal(self) -> None:
        """Who asks too often is refused once a second, not as often as he asks."""
        connection = self.web.connect()
        connection.send(encode("GET", "/x") * 200)
        self.web.clock.advance(0)
        self.assertEqual(self.answers(connection), [200] * 20 + [429])
        self.web.clock.advance(REST_SECONDS / 2)
        self.assertEqual(self.answers(connection), [])
        self.web.clock.advance(REST_SECONDS / 2)
        self.assertEqual(self.answers(connection), [200] * 20 + [429])
        connection.lose()
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_unread_answers(self) -> None:
        """The next request waits until the answer before is read."""
        connection = self.web.connect()
        connection.channel.pauseProducing()  # type: ignore[no-untyped-call]
        connection.send(encode("GET", "/x"))
        self.web.clock.advance(30)
        self.assertEqual((self.answers(connection), self.seen), ([], []))
        connection.channel.resumeProducing()
        self.web.clock.advance(0)
        self.assertEqual(self.answers(connection), [200])
        self.web.clock.advance(30)
        self.assertFalse(connection.transport.disconnecting)

    def test_a_client_that_never_reads(self) -> None:
        """Its connection ends, with what waits on it."""
        connection = self.web.connect()
        connection.channel.pauseProducing()  # type: ignore[no-untyped-call]
        connection.send(encode("GET", "/x") * 2)
        self.web.clock.advance(self.web.limits.idle_seconds)
        self.assertTrue(connection.transport.is_aborted)
        connection.lose()
        self.assertEqual((self.seen, self.web.clock.getDelayedCalls()), ([], []))

    def test_tiny_chunks(self) -> None:
        """A body of more than a few in chunks of an octet each is refused."""
        head = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        connection = self.web.connect()
        connection.send(head + b"1\r\na\r\n" * CHUNKS_AT_ONCE + b"0\r\n\r\n")
        self.assertEqual(connection.answer().json(), CHUNKS_AT_ONCE)
        connection.send(head + b"1\r\na\r\n" * (CHUNKS_AT_ONCE + 1) + b"0\r\n\r\n")
        self.assertEqual(connection.answer().status, 400)
        self.assertEqual(len(self.seen), 1)

    def test_continued_headers(self) -> None:
        """Line folding is refused (RFC 9112 §5.2)."""
        connection = self.web.connect()
        connection.send(b"GET /x HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n")
        self.assertEqual(connection.answer().status, 400)

    def test_lists_in_headers(self) -> None:
        """Of paths, Accept, cookies and entity tags only a part is looked at."""
        ask = self.web.ask
        self.assertEqual(ask("GET", "/x" + "/" * MOST_SEGMENTS).status, 400)
        self.assertEqual(ask("GET", "/" + "%2F" * MOST_SEGMENTS).status, 404)
        many = "a/b," * (LONGEST_ACCEPT // 4)
        headers = {**ANN, "Accept": many + "application/json"}
        self.assertEqual(ask("GET", "/api/v1/session", headers).status, 406)
        name = "amqproute-session"
        session, _ = self.web.sessions.begin(Principal("user", "ann"))
        cookies = "a=b; " * (MOST_COOKIES - 1)
        for more, status in (("", 200), ("a=b; ", 401)):
            headers = {"Cookie": f"{cookies}{more}{name}={session}"}
            self.assertEqual(ask("GET", "/api/v1/session", headers).status, status)
        tag = ask("GET", "/x").headers["ETag"]
        for others, status in ((MOST_TAGS - 1, 304), (MOST_TAGS, 200)):
            headers = {"If-None-Match": '"a",' * others + tag}
            self.assertEqual(ask("GET", "/x", headers).status, status)

    def test_a_log_in_that_nobody_waits_for(self) -> None:
        """It is given up at once, with the body of its request."""
        waiting: list[Deferred[bool]] = []
        gone: list[object] = []

        def principal(*_: object) -> Deferred[bool]:
            waiting.append(Deferred(gone.append))
            return waiting[-1]

        self.patch(self.web.passwords, "principal", principal)
        connection = self.web.connect()
        connection.send(encode("POST", "/api/v1/session", ANN, {"user": "a", "password": "b"}))
        self.assertEqual((len(waiting), gone), (1, []))
        connection.lose()
        self.assertEqual(gone, waiting)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_memory_of_all_connections(self) -> None:
        """Beyond the bound the address with the most loses its oldest connection."""
        held = self.web.held = ClientMemory(10_000)
        body = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n" + b"a" * 3999
        other = self.web.connect(TLS)
        other.send(body)
        mine = [self.web.connect() for _ in range(3)]
        for each in mine[:2]:
            each.send(body[:-2000])
        self.assertFalse(any(each.transport.is_aborted for each in mine))
        mine[2].send(body)
        self.assertEqual([each.transport.is_aborted for each in mine], [True, False, False])
        self.assertFalse(other.transport.is_aborted)
        self.assertEqual((held.total, held.dropped), (3999 + 1999 + 3999, 1))
        for each in (*mine, other):
            each.lose()
        self.assertEqual(held.total, 0)

    def test_memory_of_unread_answers(self) -> None:
        """An answer counts until it is read."""
        held = self.web.held = ClientMemory()
        connection = self.web.connect()
        connection.send(encode("GET", "/wait"))
        connection.channel.pauseProducing()  # type: ignore[no-untyped-call]
        self.waiting[0].callback(json_response("a" * 97))
        self.assertEqual(held.total, 100)
        connection.channel.resumeProducing()
        self.assertEqual(held.total, 0)
        connection.send(encode("GET", "/x"))
        self.assertEqual(held.total, 0)


class DeadlineTests(ChannelCase):
    """Slow clients."""

    def test_a_slow_request(self) -> None:
        """A byte now and then does not keep a connection open."""
        connection = self.web.connect()
        for octet in b"GET /x HT":
            connection.send(bytes([octet]))
            self.web.clock.advance(1)
        self.assertEqual(connection.read(), b"")
        self.web.clock.advance(1)
        self.assertEqual(connection.answer().status, 408)
        self.web.clock.advance(LINGER_SECONDS)
        self.assertTrue(connection.transport.is_aborted)

    def test_a_slow_body(self) -> None:
        """The time is that of the whole request."""
        connection = self.web.connect()
        connection.send(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
        for _ in range(10):
            connection.send(b"a")
            self.web.clock.advance(1)
        self.assertEqual(connection.answer().status, 408)

    def test_a_silent_connection(self) -> None:
        """One that never asks, which may be within its TLS handshake, is closed as well."""
        connection = self.web.connect()
        self.web.clock.advance(10)
        self.assertEqual(connection.answer().status, 408)

    def test_an_idle_connection(self) -> None:
        """It may rest between two requests for a while, and then it is closed."""
        connection = self.web.connect()
        connection.send(encode("GET", "/x"))
        connection.read()
        self.web.clock.advance(59)
        connection.send(encode("GET", "/x"))
        self.assertEqual(connection.answer().status, 200)
        self.web.clock.advance(61)
        self.assertTrue(connection.transport.disconnecting)

    def test_a_slow_answer(self) -> None:
        """It is given up with 503; when it comes, nobody is told."""
        connection = self.web.connect()
        connection.send(encode("GET", "/wait"))
        self.web.clock.advance(119)
        self.assertEqual(connection.read(), b"")
        self.web.clock.advance(1)
        self.assertEqual(connection.answer().status, 503)
        self.waiting[0].callback(json_response("late"))
        self.assertEqual(connection.read(), b"")

    def test_a_client_that_does_not_wait(self) -> None:
        """Its request is carried out, and answered to nobody."""
        connection = self.web.connect()
        connection.send(encode("GET", "/wait"))
        connection.lose()
        self.waiting[0].callback(json_response("x"))
        self.assertEqual(connection.read(), b"")
        self.assertEqual(self.web.clock.getDelayedCalls(), [])


class StreamTests(ChannelCase):
    """Events."""

    def open(self, headers: Mapping[str, str] = ANN) -> tuple[HttpConnection, bytes]:
        """Open a stream; return its connection and the octets that have come."""
        connection = self.web.connect()
        connection.send(encode("GET", "/events", headers))
        return connection, connection.read()

    def test_events(self) -> None:
        """They come as they are sent, on their lines; a comment when there are none."""
        connection, head = self.open()
        self.assertIn(b"Content-Type: text/event-stream", head)
        self.assertIn(b"Cache-Control: no-store", head)
        self.assertTrue(self.streams[0].send("row", "a\nb", "7"))
        self.assertIn(b"id: 7\nevent: row\ndata: a\ndata: b\n\n", connection.read())
        self.web.clock.advance(COMMENT_SECONDS)
        self.assertIn(b":\n\n", connection.read())

    def test_token_expires(self) -> None:
        """A stream ends with the token of its log-in."""
        connection, _ = self.open({"Authorization": f"Bearer {GOOD}"})
        self.web.clock.advance(99)
        self.assertEqual(self.ended, 0)
        connection.read()
        self.web.clock.advance(1)
        self.assertTrue(connection.read().endswith(b"0\r\n\r\n"))
        self.assertEqual((self.ended, self.web.site.streams), (1, 0))
        connection, _ = self.open({"Authorization": f"Bearer {GOOD}"})
        connection.lose()

    def test_user_is_gone(self) -> None:
        """A stream does not outlive its user by more than a look at it."""
        connection, _ = self.open()
        self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 0)
        del self.web.passwords.users["ann"]
        self.web.clock.advance(CHECK_SECONDS)
        self.assertTrue(connection.read().endswith(b"0\r\n\r\n"))
        self.assertEqual((self.ended, [*self.web.site.log_ins()]), (1, []))
        connection.lose()
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_session_ends(self) -> None:
        """A stream does not outlive the session that it was opened in."""
        session_id, session = self.web.sessions.begin(Principal("user", "ann"))
        connection, _ = self.open({"Cookie": f"{COOKIE}={session_id}"})
        self.assertEqual([*self.web.site.log_ins()], [])  # it is the session's
        self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 0)
        (log_in,) = self.web.sessions.log_ins()
        self.assertEqual(str(log_in.principal), "user:ann")
        log_in.renew(Principal("user", "ann", groups=frozenset({"ops"})))
        self.assertEqual(session.principal.groups, {"ops"})
        log_in.end_log_in("gone")
        log_in.end_log_in("again")
        self.assertEqual(len(self.web.sessions), 0)
        self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 1)
        connection.lose()

    def test_token_is_revoked(self) -> None:
        """A stream does not outlive the access token that opened it."""
        ann = Principal("user", "ann")
        token, text = self.successResultOf(
            self.web.tokens.create("t", ann, WHOLE_SCOPE, 3600, "user:ann")
        )
        connection, _ = self.open({"Authorization": f"Bearer {text}"})
        self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 0)
        self.successResultOf(self.web.tokens.revoke(token.id))
        self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 1)
        connection.lose()

    def test_log_in_is_ended(self) -> None:
        """Log-ins of streams are ended by who finds out that their users are gone."""
        self.open()
        (log_in,) = self.web.site.log_ins()
        self.assertEqual(str(log_in.principal), "user:ann")
        log_in.end_log_in("gone")
        log_in.end_log_in("again")
        self.assertEqual((self.ended, self.web.site.streams), (1, 0))
        self.open()
        (log_in,) = self.web.site.log_ins()
        log_in.renew(Principal("user", "ann"))
        self.assertEqual((self.ended, self.web.site.streams), (2, 0))

    def test_longest(self) -> None:
        """A stream ends after a day in any case, and with an access token of the daemon."""
        connection, _ = self.open()
        ann = Principal("user", "ann")
        _, text = self.successResultOf(
            self.web.tokens.create("t", ann, WHOLE_SCOPE, 3600, "user:ann")
        )
        other, _ = self.open({"Authorization": f"Bearer {text}"})
        for _ in range(180):
            self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 1)
        for _ in range(24 * 180 - 180):
            self.web.clock.advance(CHECK_SECONDS)
        self.assertEqual(self.ended, 2)
        connection.lose()
        other.lose()

    def test_ends(self) -> None:
        """Either side may end it; what it holds is given back, once."""
        connection, _ = self.open()
        connection.lose()
        self.assertEqual((self.ended, self.web.site.streams), (1, 0))
        self.assertFalse(self.streams[0].send("row", "a"))
        connection, _ = self.open()
        self.streams[1].close()
        self.assertTrue(connection.read().endswith(b"0\r\n\r\n"))
        self.assertEqual((self.ended, self.web.site.streams), (2, 0))
        connection.send(encode("GET", "/x"))
        self.assertEqual(connection.answer().status, 200)
        connection.lose()
        self.assertEqual(self.ended, 2)
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_head(self) -> None:
        """There is nothing to stream."""
        answer = self.web.ask("HEAD", "/events", ANN)
        self.assertEqual((answer.status, self.streams, self.web.site.streams), (200, [], 0))

    def test_a_client_that_is_gone(self) -> None:
        """A stream that is ready too late ends at once, and holds no place."""
        late: list[Deferred[HttpResponse]] = []

        def ready(request: HttpRequest) -> Deferred[HttpResponse]:
            late.append(Deferred())
            return late[-1]

        self.web.site.add(HttpResource("/later", {"GET": ready}, gives=(EVENTS,)))
        connection = self.web.connect()
        connection.send(encode("GET", "/later", ANN))
        connection.lose()
        late[0].callback(HttpResponse(200, content_type=EVENTS, stream=self.begin))
        self.assertTrue(self.streams[0].is_over)
        self.assertEqual((self.ended, self.web.site.streams), (1, 0))
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_a_reader_that_does_not_read(self) -> None:
        """Its stream ends when too much is written, or after a time, and not before."""
        connection, _ = self.open()
        assert connection.transport.producer is not None
        connection.transport.producer.pauseProducing()
        for _ in range(MOST_UNREAD // 1024 - 20):
            self.assertTrue(self.streams[0].send("row", "a" * 1000))
        for _ in range(40):
            self.streams[0].send("row", "a" * 1000)
        self.assertTrue(self.streams[0].is_over)
        self.assertEqual(self.web.site.streams, 0)
        connection, _ = self.open()
        assert connection.transport.producer is not None
        connection.transport.producer.pauseProducing()
        self.web.clock.advance(1)
        self.assertTrue(self.streams[1].send("row", "a"))
        connection.transport.producer.resumeProducing()
        self.web.clock.pump([COMMENT_SECONDS] * 10)
        self.assertTrue(self.streams[1].send("row", "a"))
        connection.transport.producer.pauseProducing()
        self.web.clock.pump([COMMENT_SECONDS] * int(2 + STALL_SECONDS / COMMENT_SECONDS))
        self.assertTrue(self.streams[1].is_over)

    def test_places(self) -> None:
        """One user has half of the places; all are bounded; an ended stream makes room."""
        first, _ = self.open()
        self.open()
        _, said = self.open()
        self.assertIn(b"HTTP/1.1 503", said)
        self.open(BOB)
        self.open(BOB)
        _, said = self.open({"Authorization": "Basic ZXZlOnNlY3JldA=="})
        self.assertIn(b"HTTP/1.1 503", said)
        self.assertIn(b"Retry-After: 30", said)
        first.lose()
        _, said = self.open({"Authorization": "Basic ZXZlOnNlY3JldA=="})
        self.assertIn(b"HTTP/1.1 200", said)
        self.assertEqual(self.web.site.streams, 4)
