# SPDX-License-Identifier: Apache-2.0
"""Resources, log-ins, forms and headers of the HTTP site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.token_scope import TokenScope
from amqproute.http.http_messages import (
    ITEMS_IN_TURN,
    ClientFacts,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    json_in_turns,
    json_response,
)
from amqproute.http.sessions import LIFETIME_SECONDS, MOST_OF_USER, BrowserSessions
from amqproute.http.site import HttpAccess, HttpResource, SiteTerms
from amqproute.values import Principal
from tests.http.rig import ANN, GOOD, LOOPBACK, PLAIN, TLS, Answer, Web, basic


def echo(request: HttpRequest) -> HttpResponse:
    """Answer with what the handler is given."""
    return json_response(
        {
            "method": request.method,
            "parameters": dict(request.parameters),
            "query": {key: list(values) for key, values in request.query.items()},
            "who": None if request.requester is None else str(request.requester),
            "body": request.body.decode(),
        }
    )


class SiteCase(SynchronousTestCase):
    """A site with a few resources."""

    terms = SiteTerms()

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.web = Web(directory, self.terms)
        self.addCleanup(self.web.close)
        self.site = self.web.site
        self.site.add(
            HttpResource("/things", {"GET": echo, "POST": echo}),
            HttpResource("/things/{name}", {"GET": echo, "PATCH": echo, "DELETE": echo}),
            HttpResource("/things/all", {"GET": echo}),
        )
        self.site.mount(
            "/livez", lambda _: HttpResponse(200, b"up\n", "text/plain"), access=HttpAccess.OPEN
        )
        self.site.mount("/static/", echo, access=HttpAccess.OPEN)

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | object = b"",
        client: ClientFacts = LOOPBACK,
    ) -> Answer:
        """See `Web.ask`."""
        return self.web.ask(method, target, headers, body, client)

    def assertProblem(self, answer: Answer, status: int, field: str = "") -> None:
        """Require a problem as in RFC 9457."""
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/problem+json")
        said = answer.json()
        self.assertEqual(said["status"], status)
        self.assertEqual(said.get("field", ""), field)
        self.assertTrue(said["title"])
        self.assertTrue(said["detail"])


class JsonTests(SynchronousTestCase):
    """Long lists as JSON, in turns of the reactor."""

    values = st.recursive(
        st.none() | st.integers() | st.text() | st.binary() | st.frozensets(st.integers()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )

    def in_turns(self, value: Any) -> tuple[HttpResponse, int]:
        """Return the answer, and the number of pauses."""
        pauses = 0

        def pause() -> Deferred[None]:
            nonlocal pauses
            pauses += 1
            return succeed(None)

        return self.successResultOf(Deferred.fromCoroutine(json_in_turns(value, pause))), pauses

    @given(st.dictionaries(st.text(), values) | st.lists(values))
    def test_same(self, value: Any) -> None:
        """The octets are those of `json_response`, whatever is in them."""
        self.assertEqual(self.in_turns(value)[0], json_response(value))

    def test_pauses(self) -> None:
        """There is one for so many items, in lists of the first level."""
        rows = [{"name": f"q{number}", "list": [number] * 50} for number in range(200)]
        for value in (rows, {"items": rows, "next": None, "total": 200}):
            answer, pauses = self.in_turns(value)
            self.assertEqual(json.loads(answer.body), value)
            self.assertEqual(pauses, 200 // ITEMS_IN_TURN)


class DispatchTests(SiteCase):
    """From a path to its handler."""

    def test_parameters_and_query(self) -> None:
        """A part of the path may contain a slash, percent-encoded; repeated parameters are kept."""
        answer = self.ask("GET", "/things/%2F%2Fshop%2Forders?a=1&a=2&b=", ANN)
        self.assertEqual(answer.status, 200)
        said = answer.json()
        self.assertEqual(said["parameters"], {"name": "//shop/orders"})
        self.assertEqual(said["query"], {"a": ["1", "2"], "b": [""]})
        self.assertEqual(said["who"], "user:ann")

    def test_a_literal_part_comes_first(self) -> None:
        """A resource of its own name is not taken for a parameter."""
        self.assertEqual(self.ask("GET", "/things/all", ANN).json()["parameters"], {})

    def test_no_such_resource(self) -> None:
        """Other paths are not there: above, below, and with an empty part."""
        for path in ("/", "/thing", "/things/", "/things/a/b", "//things", "/static"):
            self.assertProblem(self.ask("GET", path, ANN), 404)

    def test_wrong_method(self) -> None:
        """The answer says which methods there are."""
        answer = self.ask("PUT", "/things/a", ANN)
        self.assertProblem(answer, 405)
        self.assertEqual(answer.headers["Allow"], "DELETE, GET, HEAD, OPTIONS, PATCH")

    def test_options_and_head(self) -> None:
        """OPTIONS takes no log-in; HEAD is GET without a body."""
        answer = self.ask("OPTIONS", "/things")
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertEqual(answer.headers["Allow"], "GET, HEAD, OPTIONS, POST")
        self.assertNotIn("Access-Control-Allow-Origin", answer.headers)
        self.assertEqual(self.ask("OPTIONS", "*").status, 204)
        got, head = self.ask("GET", "/livez"), self.ask("HEAD", "/livez")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(head.headers["Content-Length"], got.headers["Content-Length"])
        self.assertEqual(head.headers["ETag"], got.headers["ETag"])

    def test_a_mounted_path_never_leads_up(self) -> None:
        """A handler of files is not given a path with dots, however it is written."""
        self.assertEqual(
            self.ask("GET", "/static/css/a.css").json()["parameters"], {"rest": "css/a.css"}
        )
        for path in ("../x", "a/../../x", "%2e%2e/x", "a/%2e%2e%2fx", "a%2F..%2Fx", "./x"):
            self.assertProblem(self.ask("GET", f"/static/{path}"), 404)

    def test_two_resources_of_one_pattern(self) -> None:
        """A resource cannot hide another one."""
        with self.assertRaises(ValueError):
            self.site.add(HttpResource("/things/{other}", {"GET": echo}))
        with self.assertRaises(ValueError):
            self.site.mount("/static/", echo)

    def test_a_failure_is_answered(self) -> None:
        """Unexpected exceptions of a handler are logged, and reported without details."""

        def fails(request: HttpRequest) -> HttpResponse:
            raise RuntimeError("secret words")

        def fails_later(request: HttpRequest) -> Deferred[HttpResponse]:
            failed: Deferred[HttpResponse] = Deferred()
            failed.errback(HttpProblem(409, "not now", "when"))
            return failed

        self.site.mount("/fails", fails)
        self.site.mount("/later", fails_later)
        answer = self.ask("GET", "/fails", ANN)
        self.assertProblem(answer, 500)
        self.assertNotIn(b"secret words", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertProblem(self.ask("GET", "/later", ANN), 409, "when")


class FormTests(SiteCase):
    """Forms of bodies and answers."""

    def test_media_types(self) -> None:
        """Media types that are not spoken are refused by 415 and 406."""
        answer = self.ask("POST", "/things", {**ANN, "Content-Type": "text/xml"}, b"<a/>")
        self.assertProblem(answer, 415, "content-type")
        self.assertEqual(answer.headers["Accept"], "application/json")
        encoded = {**ANN, "Content-Type": "application/json", "Content-Encoding": "gzip"}
        self.assertProblem(self.ask("POST", "/things", encoded, b"{}"), 415)
        for accept, status in (
            ("application/json", 200),
            ("*/*", 200),
            ("text/html, application/*;q=0.1", 200),
            ("text/html", 406),
            ("application/json;q=0, text/html", 406),
        ):
            answer = self.ask("GET", "/things", {**ANN, "Accept": accept})
            self.assertEqual(answer.status, status, accept)

    def test_path_and_query_that_cannot_be_read(self) -> None:
        """Octets that are no UTF-8 are refused, and so are too many parameters."""
        self.assertProblem(self.ask("GET", "/things/%ff", ANN), 400, "path")
        self.assertProblem(self.ask("GET", "/things?a=%ff", ANN), 400, "query")
        many = "&".join(f"a{n}=1" for n in range(101))
        self.assertProblem(self.ask("GET", f"/things?{many}", ANN), 400, "query")

    def test_entity_tags(self) -> None:
        """A client that has the answer already is told so."""
        tag = self.ask("GET", "/things", ANN).headers["ETag"]
        for said in (tag, f'"other", W/{tag}', "*"):
            answer = self.ask("GET", "/things", {**ANN, "If-None-Match": said})
            self.assertEqual((answer.status, answer.body), (304, b""))
            self.assertEqual(answer.headers["ETag"], tag)
        answer = self.ask("GET", "/things?x=1", {**ANN, "If-None-Match": tag})
        self.assertEqual(answer.status, 200)

    def test_headers_of_every_answer(self) -> None:
        """Pages of the service run no script from elsewhere, and are in no frame."""
        for answer in (
            self.ask("GET", "/livez"),
            self.ask("GET", "/nowhere"),
            self.ask("GET", "/things"),
            self.ask("GET", "/things", ANN),
        ):
            policy = answer.headers["Content-Security-Policy"]
            self.assertIn("default-src 'self'", policy)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(answer.headers["Server"], "amqproute")
            self.assertNotIn("Strict-Transport-Security", answer.headers)
        self.assertIn("Strict-Transport-Security", self.ask("GET", "/livez", client=TLS).headers)

    def test_a_header_is_one_line(self) -> None:
        """A value with line breaks makes no further header."""
        self.site.mount(
            "/split",
            lambda _: HttpResponse(204, headers=[("X-Name", "a\r\nSet-Cookie: x=y")]),
            access=HttpAccess.OPEN,
        )
        answer = self.ask("GET", "/split")
        self.assertEqual(answer.headers["X-Name"], "aSet-Cookie: x=y")
        self.assertNotIn("Set-Cookie", answer.headers)


class LogInTests(SiteCase):
    """The party behind a request."""

    def test_none(self) -> None:
        """Without a log-in the ways to log in are told."""
        answer = self.ask("GET", "/things")
        self.assertProblem(answer, 401)
        schemes = [each.split()[0] for each in answer.all("WWW-Authenticate")]
        self.assertEqual(schemes, ["Basic", "Bearer"])

    def test_basic(self) -> None:
        """A name with its password is a user; a wrong one is refused, whatever else there is."""
        self.assertEqual(self.ask("GET", "/things", ANN).json()["who"], "user:ann")
        for wrong in (
            basic("ann", "guess"),
            basic("nobody", "secret"),
            "Basic !!!",
            "Basic " + "YW5u",
            "Digest x",
            "Bearer x",
            "",
        ):
            answer = self.ask(
                "GET",
                "/things",
                {"Authorization": wrong},
                client=ClientFacts(uid=0, is_encrypted=True),
            )
            self.assertProblem(answer, 401)

    def test_too_many_log_ins(self) -> None:
        """A password that could not be verified is not called wrong."""
        self.web.passwords.is_busy = True
        answer = self.ask("GET", "/things", ANN)
        self.assertProblem(answer, 503)
        self.assertEqual(answer.headers["Retry-After"], "5")

    def test_passwords_in_the_clear(self) -> None:
        """Where others can listen, neither passwords nor tokens are accepted."""
        self.assertProblem(self.ask("GET", "/things", ANN, client=PLAIN), 403)
        bearer = {"Authorization": "Bearer x"}
        self.assertProblem(self.ask("GET", "/things", bearer, client=PLAIN), 403)
        self.assertEqual(self.ask("GET", "/things", ANN, client=TLS).status, 200)

    def test_certificate_and_socket(self) -> None:
        """A verified certificate is a peer, a local process its user."""
        facts = ClientFacts("192.0.2.1", True, False, ("b.test",), None, True)
        self.assertEqual(self.ask("GET", "/things", client=facts).json()["who"], "peer:b.test")
        wild = ClientFacts("192.0.2.1", True, False, ("*.b.test",), None, True)
        self.assertProblem(self.ask("GET", "/things", client=wild), 401)
        local = ClientFacts("", True, uid=1000)
        self.assertEqual(self.ask("GET", "/things", client=local).json()["who"], "uid:1000")

    def test_tokens(self) -> None:
        """A token acts as its user until it expires, is revoked, or the user is gone."""
        ann, scope = Principal("user", "ann"), TokenScope.of(["read"])
        token, text = self.successResultOf(self.web.tokens.create("t", ann, scope, 60, "uid:0"))
        bearer = {"Authorization": f"Bearer {text}"}
        self.assertEqual(self.ask("GET", "/things", bearer).json()["who"], "user:ann")
        self.assertEqual(self.ask("GET", "/api/v1/session", bearer).json()["scope"], ["read"])
        wrong = {"Authorization": f"Bearer {text[:-1]}{'A' if text[-1] != 'A' else 'B'}"}
        self.assertProblem(self.ask("GET", "/things", wrong), 401)
        self.web.clock.advance(60)
        self.assertProblem(self.ask("GET", "/things", bearer), 401)
        token, text = self.successResultOf(self.web.tokens.create("t", ann, scope, 60, "uid:0"))
        bearer = {"Authorization": f"Bearer {text}"}
        del self.web.passwords.users["ann"]
        self.assertProblem(self.ask("GET", "/things", bearer), 401)
        self.web.passwords.users["ann"] = "secret"
        self.successResultOf(self.web.tokens.revoke(token.id))
        self.assertProblem(self.ask("GET", "/things", bearer), 401)

    def test_tokens_of_issuers(self) -> None:
        """What is no token of ours is one of an issuer, or refused; it may be too early to tell."""
        bearer = {"Authorization": f"Bearer {GOOD}"}
        self.assertEqual(self.ask("GET", "/things", bearer).json()["who"], "user:carl")
        self.assertProblem(self.ask("GET", "/things", bearer, client=PLAIN), 403)
        self.assertProblem(self.ask("GET", "/things", {"Authorization": "Bearer a.b.c"}), 401)
        self.web.passwords.is_busy = True
        answer = self.ask("GET", "/things", bearer)
        self.assertProblem(answer, 503)
        self.assertEqual(answer.headers["Retry-After"], "5")
        ours = {"Authorization": "Bearer amqproute_x"}
        self.assertProblem(self.ask("GET", "/things", ours), 401)


class SessionTests(SiteCase):
    """Log-ins of browsers."""

    def log_in(self, client: ClientFacts = LOOPBACK) -> tuple[dict[str, str], str]:
        """Log in; return the header with the cookie, and the CSRF token."""
        answer = self.ask(
            "POST", "/api/v1/session", None, {"user": "ann", "password": "secret"}, client
        )
        self.assertEqual(answer.status, 201, answer.body)
        cookie, *terms = answer.headers["Set-Cookie"].split("; ")
        self.assertEqual(terms[:3], ["Path=/", "HttpOnly", "SameSite=Strict"])
        self.assertEqual(terms[3:], ["Secure"] if client.has_tls else [])
        self.assertEqual(cookie.startswith("__Host-"), client.has_tls)
        return {"Cookie": f"other=1; {cookie}"}, answer.json()["csrf-token"]

    def test_log_in_and_out(self) -> None:
        """A session is its cookie, until the log-out."""
        for client in (LOOPBACK, TLS):
            cookie, token = self.log_in(client)
            self.assertEqual(
                self.ask("GET", "/things", cookie, client=client).json()["who"], "user:ann"
            )
            said = self.ask("GET", "/api/v1/session", cookie, client=client).json()
            self.assertEqual((said["kind"], said["csrf-token"]), ("session", token))
            gone = self.ask(
                "DELETE", "/api/v1/session", {**cookie, "X-CSRF-Token": token}, client=client
            )
            self.assertEqual(gone.status, 204)
            self.assertIn("Max-Age=0", gone.headers["Set-Cookie"])
            self.assertProblem(self.ask("GET", "/things", cookie, client=client), 401)

    def test_wrong_log_ins(self) -> None:
        """The field that is missing is named; a form will do; other pages are refused."""
        path = "/api/v1/session"
        self.assertProblem(self.ask("POST", path, None, {"user": "ann"}), 400, "password")
        self.assertProblem(self.ask("POST", path, None, []), 400, "body")
        self.assertProblem(self.ask("POST", path, None, {"user": "ann", "password": "x"}), 401)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body = b"user=ann&password=secret"
        self.assertEqual(self.ask("POST", path, form, body).status, 201)
        self.assertProblem(self.ask("POST", path, {**form, "Origin": "https://e.test"}, body), 403)
        self.assertProblem(self.ask("POST", path, form, body, PLAIN), 403)
        self.assertProblem(self.ask("GET", path), 401)
        self.assertProblem(self.ask("DELETE", path, ANN), 401)

    def test_changes_take_the_token(self) -> None:
        """A cookie alone changes nothing; the token of another session neither."""
        cookie, token = self.log_in()
        _, other = self.log_in()
        for headers, status in (
            ({}, 403),
            ({"X-CSRF-Token": ""}, 403),
            ({"X-CSRF-Token": other}, 403),
            ({"X-CSRF-Token": token}, 200),
        ):
            answer = self.ask("DELETE", "/things/a", {**cookie, **headers})
            self.assertEqual(answer.status, status, headers)

    def test_pages_of_other_sites(self) -> None:
        """A browser that says whose page asks is believed, with every log-in."""
        cookie, token = self.log_in()
        for login in ({**cookie, "X-CSRF-Token": token}, ANN):
            for headers, status in (
                ({"Origin": "http://localhost"}, 200),
                ({"Sec-Fetch-Site": "same-origin"}, 200),
                ({"Origin": "http://evil.example"}, 403),
                ({"Origin": "null"}, 403),
                ({"Sec-Fetch-Site": "cross-site"}, 403),
                ({"Sec-Fetch-Site": "same-site"}, 403),
            ):
                answer = self.ask("DELETE", "/things/a", {**login, **headers})
                self.assertEqual(answer.status, status, headers)

    def test_a_user_who_is_gone(self) -> None:
        """His sessions end with him."""
        cookie, _ = self.log_in()
        del self.web.passwords.users["ann"]
        self.assertProblem(self.ask("GET", "/things", cookie), 401)
        self.assertEqual(len(self.web.sessions), 0)

    def test_sessions_end(self) -> None:
        """By age, though they are used."""
        cookie, _ = self.log_in()
        for _ in range(int(LIFETIME_SECONDS / 1800)):
            self.assertEqual(self.ask("GET", "/things", cookie).status, 200)
            self.web.clock.advance(1800)
        self.web.clock.advance(1)
        self.assertProblem(self.ask("GET", "/things", cookie), 401)

    def test_sessions_are_bounded(self) -> None:
        """Of one user, and in all; the one idle for longest ends."""
        sessions = BrowserSessions(self.web.clock.seconds, 30)
        ann = [sessions.begin(Principal("user", "ann"))[0] for _ in range(MOST_OF_USER + 1)]
        self.assertIsNone(sessions.find(ann[0]))
        self.assertIsNotNone(sessions.find(ann[1]))
        for n in range(20):
            sessions.begin(Principal("user", str(n)))
        self.assertEqual(len(sessions), 30)
        self.assertIsNotNone(sessions.find(ann[1]))
        self.assertIsNone(sessions.find(ann[2]))


class RateTests(SiteCase):
    """Too many requests."""

    terms = SiteTerms(requests_per_second=5)

    def test_of_an_address(self) -> None:
        """The surplus is refused with the time to wait; other addresses are not concerned."""
        for _ in range(5):
            self.assertEqual(self.ask("GET", "/livez").status, 200)
        answer = self.ask("GET", "/livez")
        self.assertProblem(answer, 429)
        self.assertEqual(answer.headers["Retry-After"], "1")
        self.assertEqual(self.ask("GET", "/livez", client=TLS).status, 200)
        self.web.clock.advance(1)
        self.assertEqual(self.ask("GET", "/livez").status, 200)

    def test_of_a_user(self) -> None:
        """A user has one rate over all addresses."""
        for n in range(5):
            client = ClientFacts(f"192.0.2.{n}", True, has_tls=True)
            self.assertEqual(self.ask("GET", "/things", ANN, client=client).status, 200)
        client = ClientFacts("192.0.2.9", True, has_tls=True)
        self.assertProblem(self.ask("GET", "/things", ANN, client=client), 429)

    def test_reload(self) -> None:
        """Another rate takes effect at once."""
        self.site.adopt(SiteTerms(requests_per_second=50))
        for _ in range(50):
            self.assertEqual(self.ask("GET", "/livez").status, 200)
        self.assertProblem(self.ask("GET", "/livez"), 429)
