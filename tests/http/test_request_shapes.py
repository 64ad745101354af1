# SPDX-License-Identifier: Apache-2.0
"""Requests in shapes that others might read otherwise: each has one meaning, or is refused."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.http.http_messages import HttpRequest, HttpResponse
from amqproute.http.site import HttpAccess
from tests.http.rig import ANN, Answer, Web, encode, read_answer
from tests.support.turn_clock import TurnClock

HOST = b"Host: localhost\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class ShapeCase(SynchronousTestCase):
    """A site that remembers what it was asked for."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.clock = TurnClock()
        self.web = Web(directory, clock=self.clock)
        self.addCleanup(self.web.close)
        self.asked: list[HttpRequest] = []
        for path in ("/a", "/hidden", "/"):
            self.web.site.mount(
                path,
                self.answer,
                access=HttpAccess.OPEN,
                methods=("GET", "POST"),
                takes=("text/plain", ""),
            )

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Remember a request."""
        self.asked.append(request)
        return HttpResponse(200, b"answered", "text/plain")

    def answers(self, octets: bytes) -> list[Answer]:
        """Send octets on a connection of their own; return the answers."""
        self.asked.clear()
        connection = self.web.connect()
        connection.send(octets)
        for _ in range(5):
            self.web.clock.advance(0.01)
        said = connection.read()
        connection.lose()
        self.assertEqual(self.web.clock.getDelayedCalls(), [])
        return [read_answer(each) for each in re.split(rb"(?=HTTP/1\.[01] \d{3} )", said) if each]

    def statuses(self, octets: bytes) -> list[int]:
        """Return the statuses of the answers."""
        return [each.status for each in self.answers(octets)]

    def paths(self) -> list[str]:
        """Return the paths that have reached the site."""
        return [each.path for each in self.asked]


class LengthTests(ShapeCase):
    """Where a body ends; nothing of it may be taken for the next request."""

    def test_refused(self) -> None:
        """A request whose length is not clear is refused, with everything behind it."""
        for fields, body, status in (
            (b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc", 400),
            (b"Content-Length: 3\r\nContent-Length: 30\r\n", b"abc", 400),
            (b"Content-Length: 3, 3\r\n", b"abc", 400),
            (b"Content-Length: +3\r\n", b"abc", 400),
            (b"Content-Length: -3\r\n", b"abc", 400),
            (b"Content-Length: 0x3\r\n", b"abc", 400),
            (b"Content-Length: 1_0\r\n", b"abc", 400),
            (b"Content-Length: \r\n", b"abc", 400),
            (b"Content-Length : 3\r\n", b"abc", 400),
            (b"Content-Length: " + b"0" * 20 + b"3\r\n", b"abc", 413),
            (b"Content-Length: " + b"9" * 5000 + b"\r\n", b"abc", 413),
            (b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n", 400),
            (CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n", 400),
            (CHUNKED + CHUNKED, b"0\r\n\r\n", 400),
            (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n", 400),
            (b"Transfer-Encoding:\x0bchunked\r\n", b"0\r\n\r\n", 400),
            (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n", 400),
            (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n", 400),
            (b"Transfer-Encoding: identity\r\nContent-Length: 3\r\n", b"abc", 400),
            (CHUNKED, b"+3\r\nabc\r\n0\r\n\r\n", 400),
            (CHUNKED, b"0x3\r\nabc\r\n0\r\n\r\n", 400),
            (CHUNKED, b"3;a\nb\r\nabc\r\n0\r\n\r\n", 400),
        ):
            octets = b"POST /a HTTP/1.1\r\n" + HOST + fields + b"\r\n" + body + HIDDEN
            self.assertEqual(self.statuses(octets), [status], fields)
            self.assertEqual(self.paths(), [], fields)

    def test_taken(self) -> None:
        """What is clear is taken, and the next request begins where the body ends."""
        for fields, body in (
            (b"Content-Length: 3\r\n", b"abc"),
            (CHUNKED, b"3\r\nabc\r\n0\r\n\r\n"),
            (CHUNKED, b"00000003;name=value\r\nabc\r\n0\r\nHost: trailer\r\n\r\n"),
            (b"transfer-encoding: Chunked\r\n", b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"),
        ):
            octets = b"POST /a HTTP/1.1\r\n" + HOST + fields + b"\r\n" + body + HIDDEN
            self.assertEqual(self.statuses(octets), [200, 200], fields)
            self.assertEqual(self.paths(), ["/a", "/hidden"])
            self.assertEqual(self.asked[0].body, b"abc")
            self.assertEqual(self.asked[0].headers["host"], "localhost")

    def test_chunks_for_an_old_version(self) -> None:
        """Chunks in HTTP/1.0 end the connection: nothing behind them is looked at."""
        octets = b"POST /a HTTP/1.0\r\n" + CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n" + HIDDEN
        self.assertEqual(self.statuses(octets), [200])
        self.assertEqual(self.paths(), ["/a"])


class LineTests(ShapeCase):
    """Where lines end, and what stands in them."""

    def test_refused(self) -> None:
        """Octets that others drop or replace are refused."""
        for octets in (
            b"GET /a HTTP/1.1\r\n" + HOST + b"X-A: b\r\n c\r\n\r\n",
            b"GET /a HTTP/1.1\r\nHost: localhost\nX-A: b\r\n\r\n",
            b"GET /a HTTP/1.1\r\nHost: localhost\rX-A: b\r\n\r\n",
            b"GET /a HTTP/1.1\r\n" + HOST + b"X-A: b\0c\r\n\r\n",
            b"GET /a HTTP/1.1\r\n" + HOST + b"X-\0A: b\r\n\r\n",
            b"GET /a\0 HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /a HTTP/1.1\r\n" + HOST + b"XA\r\n\r\n",
            b"GET /a HTTP/1.1\r\n" + HOST + b": b\r\n\r\n",
            b"GET /a HTTP/1.1\r\n" + HOST + b"X A: b\r\n\r\n",
            b"GET /a HTTP/1.1\r\n" + HOST + b"X-\xe9: b\r\n\r\n",
            b"G\xe9T /a HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /a\r\n\r\n",
            b"GET /a http/1.1\r\n" + HOST + b"\r\n",
            b"GET /a HTTP/1.2\r\n" + HOST + b"\r\n",
            b"\r\n" * 200_000,
        ):
            self.assertEqual(self.statuses(octets + HIDDEN), [400], octets[:60])
            self.assertEqual(self.paths(), [], octets[:60])

    def test_line_feeds_alone(self) -> None:
        """A line feed alone ends no line, neither of a header nor of a chunk."""
        for octets in (
            b"GET /a HTTP/1.1\nHost: localhost\n\n",
            b"POST /a HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n3\nabc\n0\n\n",
        ):
            connection = self.web.connect()
            connection.send(octets)
            self.web.clock.advance(self.web.limits.request_seconds)
            self.assertEqual(connection.answer().status, 408)
            connection.lose()
        self.assertEqual(self.paths(), [])


class TargetTests(ShapeCase):
    """What a request is about."""

    def test_host(self) -> None:
        """There is one Host, with a name or address in it."""
        for fields in (
            b"",
            b"Host:\r\n",
            b"Host: a\r\nHost: a\r\n",
            b"Host: a\r\nHost: b\r\n",
            b"Host: a b\r\n",
            b"Host: ann@localhost\r\n",
            b"Host: localhost/\r\n",
            b"Host: \xc3\xa9\r\n",
        ):
            octets = b"GET /a HTTP/1.1\r\n" + fields + b"\r\n"
            self.assertEqual(self.statuses(octets + HIDDEN), [400], fields)
        self.assertEqual(self.paths(), [])
        for host in ("localhost:9672", "[2001:db8::1]:9672", "192.0.2.1", "a_b.example"):
            self.assertEqual(self.statuses(encode("GET", "/a", {"Host": host})), [200])
        self.assertEqual(self.statuses(b"GET /a HTTP/1.0\r\n\r\n"), [200])
        self.assertEqual(self.statuses(b"GET /a HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), [400])

    def test_absolute_form(self) -> None:
        """The host in a target goes before the header, where pages of other sites are told."""
        for target, path, host in (
            ("http://other/a?x=1", "/a", "other"),
            ("HTTPS://other:9672/a", "/a", "other:9672"),
            ("http://other", "/", "other"),
            ("http://other?x=/a", "/", "other"),
        ):
            self.assertEqual(self.statuses(encode("GET", target)), [200], target)
            self.assertEqual(self.paths(), [path])
            self.assertEqual(self.asked[0].headers["host"], host)
        for target in (
            "http:///a", "http://ann@localhost/a", "ftp://other/a", "a", "*", "/a#b",
            "http://other/a#b", "other:443",
        ):  # fmt: skip
            self.assertEqual(self.statuses(encode("GET", target)), [400], target)
            self.assertEqual(self.paths(), [])
        headers = {**ANN, "Origin": "http://localhost"}
        made = self.answers(encode("POST", "http://other/a", headers, b"x"))
        self.assertEqual([each.status for each in made], [403])

    def test_all_resources(self) -> None:
        """The target * is for OPTIONS alone."""
        for target in ("*", "http://localhost"):
            self.assertEqual(self.statuses(encode("OPTIONS", target)), [204], target)
        for method, target in (
            ("GET", "*"), ("POST", "*"), ("OPTIONS", "a"), ("OPTIONS", "*a"),
            ("CONNECT", "other:443"),
        ):  # fmt: skip
            self.assertEqual(self.statuses(encode(method, target)), [400], (method, target))
        self.assertEqual(self.paths(), [])


class OtherProtocolTests(ShapeCase):
    """HTTP/2, and other ways to go on."""

    def test_prior_knowledge(self) -> None:
        """The preface of HTTP/2 is refused, and no frame behind it is looked at."""
        frames = bytes.fromhex("000000040000000000") * 10_000
        octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames
        connection = self.web.connect()
        for at in range(0, len(octets), 4096):
            connection.send(octets[at : at + 4096])
        answer = connection.answer()
        self.assertEqual((answer.status, answer.headers["Connection"]), (400, "close"))
        self.assertTrue(connection.channel.is_refused)
        connection.lose()
        self.assertEqual(self.web.clock.getDelayedCalls(), [])

    def test_upgrade(self) -> None:
        """An upgrade is not taken: the request is answered in HTTP/1.1, and so is the next one."""
        for protocol in ("h2c", "websocket", "TLS/1.2", "HTTP/2.0"):
            headers = {
                "Connection": "Upgrade, HTTP2-Settings",
                "Upgrade": protocol,
                "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA",
            }
            answers = self.answers(encode("GET", "/a", headers) + HIDDEN)
            self.assertEqual([each.status for each in answers], [200, 200], protocol)
            self.assertEqual(answers[0].headers.get("Upgrade"), None)
            self.assertEqual(self.paths(), ["/a", "/hidden"])


class AskedForTests(ShapeCase):
    """Headers that ask for more than an answer."""

    def test_ranges(self) -> None:
        """Ranges are not served (RFC 9110 §14.2): the answer is whole, and there once."""
        ranges = "bytes=" + ",".join(["0-"] * 3000)
        headers = {"Range": ranges, "If-Range": '"x"'}
        answers = self.answers(encode("GET", "/a", headers) + encode("HEAD", "/a", headers))
        self.assertEqual([each.status for each in answers], [200, 200])
        self.assertEqual(answers[0].body, b"answered")
        self.assertNotIn("Content-Range", answers[0].headers)
        self.assertNotIn("Accept-Ranges", answers[0].headers)

    def test_continue(self) -> None:
        """A client that waits is told to go on, once."""
        headers = {"Expect": "100-continue", "Content-Length": "3", "Content-Type": "text/plain"}
        connection = self.web.connect()
        connection.send(encode("POST", "/a", headers))
        self.assertEqual(connection.read(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(self.paths(), [])
        connection.send(b"abc")
        self.assertEqual(connection.answer().status, 200)
        self.assertEqual(self.asked[0].body, b"abc")

    def test_no_continue(self) -> None:
        """Nobody is told to send what is refused."""
        most = self.web.limits.body_bytes
        for headers, status in (
            ({"Content-Length": str(most + 1)}, 413),
            ({"Content-Length": "9" * 5000}, 413),
            ({"Content-Length": "3", "Host": "a b"}, 400),
            ({"Transfer-Encoding": "gzip"}, 400),
        ):
            octets = encode("POST", "/a", {"Expect": "100-continue", **headers})
            self.assertEqual(self.statuses(octets), [status], headers)

    def test_many_that_wait(self) -> None:
        """A flood of such requests gets an answer for each in its turn, and none ahead of that."""
        one = encode("GET", "/a", {"Expect": "100-continue"})
        connection = self.web.connect()
        connection.send(one * 1000)
        for turn in range(1, 20):
            said = connection.transport.value()
            self.assertLessEqual(said.count(b"100 Continue"), turn + 1)
            self.assertLessEqual(said.count(b"200 OK"), turn)
            self.clock.turn()
        connection.channel.pauseProducing()  # it does not read
        before = connection.transport.value()
        self.assertGreater(before.count(b"200 OK"), 10)
        for _ in range(20):
            self.clock.turn()
        after = connection.transport.value()[len(before) :]
        self.assertLessEqual((after.count(b"100 Continue"), after.count(b"200 OK")), (1, 1))
