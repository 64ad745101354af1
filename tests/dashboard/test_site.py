# SPDX-License-Identifier: Apache-2.0
"""The site: log-in, pages, live changes, actions, static files."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard.management_source import Answer
from amqproute.dashboard.shown_pages import MOST_SHOWN
from amqproute.dashboard.status_memory import STATUS_SECONDS
from amqproute.http.site import SiteTerms
from tests.dashboard.samples import SampleSource, on_fire, ordinary
from tests.dashboard.site_rig import Pages
from tests.http.rig import HttpConnection, encode


class SiteCase(SynchronousTestCase):
    """A site with the ordinary sample."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.pages = Pages(directory, *ordinary())
        self.addCleanup(self.pages.web.close)


class LogInTests(SiteCase):
    """Log-in and log-out."""

    def test_first(self) -> None:
        """Without a log-in every page leads to it, and from there to the page."""
        answer = self.pages.get("/ui/queue?name=orders")
        self.assertEqual(answer.status, 303)
        where = answer.headers["Location"]
        self.assertEqual(where, "/ui/login?next=%2Fui%2Fqueue%3Fname%3Dorders")
        page = self.pages.get(where)
        self.assertIn(b'name="password"', page.body)
        answer = self.pages.log_in(next="/ui/queue?name=orders")
        self.assertEqual(
            (answer.status, answer.headers["Location"]), (303, "/ui/queue?name=orders")
        )
        self.assertIn(b"<h1>orders</h1>", self.pages.get("/ui/queue?name=orders").body)
        self.assertEqual(str(self.pages.asked_for[0].principal), "user:ann")

    def test_wrong(self) -> None:
        """A wrong password is told on the page, and no window of the browser opens."""
        answer = self.pages.log_in("wrong")
        self.assertEqual(answer.status, 403)
        self.assertEqual(answer.all("WWW-Authenticate"), [])
        self.assertIn(b"Name or password are wrong", answer.body)
        self.assertIn(b'value="ann"', answer.body)

    def test_elsewhere(self) -> None:
        """Nobody is sent to another site after the log-in."""
        for where in ("https://evil.example/ui/", "//evil.example/ui/", "/\\evil.example/ui/",
                      "/api/v1/session", "javascript:alert(1)", "/ui/\r\nX: y"):  # fmt: skip
            answer = self.pages.log_in(next=where)
            self.assertEqual(answer.headers["Location"], "/ui/", where)

    def test_somebody_else(self) -> None:
        """A logged-in user may log in as another one, on a page that knows no token."""
        self.pages.log_in()
        self.pages.csrf = ""
        fields = [("user", "bob"), ("password", "secret")]
        self.assertEqual(self.pages.post("/ui/login", fields).status, 303)
        self.assertEqual(len(self.pages.web.sessions), 1)

    def test_log_out(self) -> None:
        """Log-out ends the session."""
        self.pages.log_in()
        answer = self.pages.post("/ui/logout")
        self.assertEqual(answer.headers["Location"], "/ui/login")
        self.assertIn("Max-Age=0", answer.all("Set-Cookie")[0])
        self.assertEqual(self.pages.get("/ui/").status, 303)

    def test_no_log_in(self) -> None:
        """Live changes and actions are not for strangers."""
        self.assertEqual(self.pages.get("/ui/live?page=overview").status, 401)
        self.assertEqual(self.pages.post("/ui/act", [("action", "purge")]).status, 401)
        self.assertEqual(self.pages.source.asked, [])


class PageTests(SiteCase):
    """Pages."""

    def test_page(self) -> None:
        """A page names the user, its changes and the token of its forms."""
        self.pages.log_in()
        answer = self.pages.get("/ui/queue?name=orders")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        self.assertIn("default-src 'self'", answer.headers["Content-Security-Policy"])
        text = answer.body.decode()
        self.assertIn('data-live="/ui/live?name=orders&amp;page=queue&amp;seen=1"', text)
        self.assertIn(f'name="csrf-token" value="{self.pages.csrf}"', text)
        self.assertIn("user:ann", text)

    def test_missing(self) -> None:
        """A missing page is a 404 that does not wait for changes."""
        self.pages.log_in()
        for target in ("/ui/nothing", "/ui/queue?name=nothing", "/ui/queue"):
            answer = self.pages.get(target)
            self.assertEqual(answer.status, 404, target)
            self.assertNotIn(b"data-live", answer.body)

    def test_static(self) -> None:
        """Style, script and icon are there without a log-in; other files are not."""
        for name, kind in (("dashboard.css", "text/css"), ("dashboard.js", "text/javascript"),
                           ("icon.svg", "image/svg+xml")):  # fmt: skip
            answer = self.pages.get(f"/ui/static/{name}")
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.headers["Content-Type"].startswith(kind))
        for name in ("../__init__.py", "..%2f__init__.py", "page.html", ""):
            self.assertEqual(self.pages.get(f"/ui/static/{name}").status, 404, name)

    def test_alarms(self) -> None:
        """The verdicts in the header are asked for once in a while, not for every page."""
        self.pages.log_in()
        for _ in range(3):
            self.assertIn(b"all is well", self.pages.get("/ui/holds").body)
        asked = [each for each in self.pages.source.asked if each[0] == "STATUS"]
        self.assertEqual(len(asked), 1)
        self.pages.web.clock.advance(STATUS_SECONDS)
        self.pages.get("/ui/holds")
        self.assertEqual(len([x for x in self.pages.source.asked if x[0] == "STATUS"]), 2)

    def test_without_rights(self) -> None:
        """For a user who may not ask, nothing says that all is well."""
        self.pages.log_in()
        self.pages.source = SampleSource({}, {"STATUS": Answer(403, "user:ann may not", {})})
        text = self.pages.get("/ui/").body
        self.assertNotIn(b"all is well", text.lower())
        self.assertIn(b"user:ann may not", text)


class LiveTests(SiteCase):
    """Server-sent events."""

    def test_changes(self) -> None:
        """First comes the page, then what changes, until the log-out."""
        self.pages.log_in()
        web = self.pages.web
        connection = web.connect()
        connection.send(encode("GET", "/ui/live?page=queue&name=orders",
                               {"Cookie": self.pages.cookie}))  # fmt: skip
        web.clock.advance(0)
        head, _, first = connection.read().partition(b"\r\n\r\n")
        self.assertIn(b"text/event-stream", head)
        self.assertIn(b"event: change", first)
        self.assertIn(b"b-messages", first)
        web.clock.advance(1)
        quiet = connection.read()
        data = json.loads(quiet.partition(b"data: ")[2].partition(b"\n")[0])
        self.assertEqual(data["elements"], {})
        rows = self.pages.source._rows
        changed = [{**each, "consumers": 0} for each in rows["queue"]]
        self.pages.source._rows = {**rows, "queue": changed}
        web.clock.advance(1)
        self.assertIn(b"nobody receives", connection.read())
        self.pages.post("/ui/logout")
        web.clock.advance(1)
        self.assertIn(b"event: gone", connection.read())

    def follow(self, address: str) -> HttpConnection:
        """Follow a page."""
        connection = self.pages.web.connect()
        connection.send(encode("GET", address, {"Cookie": self.pages.cookie}))
        self.pages.web.clock.advance(0)
        return connection

    def test_seen(self) -> None:
        """After a page, only what has changed since is sent; a page is not given to others."""
        self.pages.log_in()
        found = re.search(rb'data-live="([^"]+)"', self.pages.get("/ui/queues").body)
        assert found is not None
        address = html.unescape(found[1].decode())
        others = self.follow(address.replace("page=queues", "page=holds")).read()
        self.assertIn(b'"blocks"', others)
        rows = self.pages.source._rows
        changed = [{**each, "depth": 77} if each["name"] == "orders" else each
                   for each in rows["queue"]]  # fmt: skip
        self.pages.source._rows = {**rows, "queue": changed}
        first = self.follow(address).read()
        self.assertNotIn(b'"blocks"', first)
        data = json.loads(first.partition(b"data: ")[2].partition(b"\n")[0])
        self.assertEqual(len(data["elements"]), 1)
        self.assertIn(">77<", "".join(data["elements"].values()))
        self.assertIn(b'"blocks"', self.follow(address).read())

    def test_many_seen(self) -> None:
        """Pages that nobody follows are forgotten."""
        self.pages.log_in()
        found = re.search(rb'data-live="([^"]+)"', self.pages.get("/ui/queues").body)
        assert found is not None
        for _ in range(MOST_SHOWN):
            self.pages.get("/ui/holds")
        self.assertIn(b'"blocks"', self.follow(html.unescape(found[1].decode())).read())

    def test_unknown(self) -> None:
        """There are no changes of a page that does not exist."""
        self.pages.log_in()
        self.assertEqual(self.pages.get("/ui/live?page=nothing").status, 404)

    def test_lost(self) -> None:
        """Nothing is made for a browser that has gone."""
        self.pages.log_in()
        web = self.pages.web
        connection = web.connect()
        connection.send(encode("GET", "/ui/live?page=overview", {"Cookie": self.pages.cookie}))
        web.clock.advance(0)
        connection.lose()
        asked = len(self.pages.source.asked)
        web.clock.pump([1, 1, 1])
        self.assertEqual(len(self.pages.source.asked), asked)


class ActionTests(SiteCase):
    """Actions: a form, a dry run, a confirmation, the result."""

    def setUp(self) -> None:
        super().setUp()
        self.pages.source, _ = on_fire()
        self.pages.log_in()

    def done(self) -> list[tuple[str, str, str, object]]:
        """Return what was asked, without the verdicts."""
        return [each for each in self.pages.source.asked if each[0] != "STATUS"]

    def test_two_steps(self) -> None:
        """The first step is a dry run, the second carries it out."""
        fields = [("action", "delete-messages"), ("to", "beta.example"), ("back", "/ui/peers")]
        shown = self.pages.post("/ui/act", fields)
        self.assertEqual(
            self.done(),
            [("DELETE-MESSAGES", "relay-queue", "", {"to": "beta.example", "dry-run": True})],
        )
        self.assertIn(b"48,212", shown.body)
        self.assertIn(b'name="confirmed" value="yes"', shown.body)
        self.pages.source.asked.clear()
        result = self.pages.post("/ui/act", [*fields, ("confirmed", "yes")])
        self.assertEqual(
            self.done(), [("DELETE-MESSAGES", "relay-queue", "", {"to": "beta.example"})]
        )
        self.assertIn(b"/ui/peers", result.body)

    def test_form(self) -> None:
        """A form to fill in comes first, and its faults are named."""
        fields = [("action", "hold"), ("to", "beta.example")]
        self.assertIn(b'name="reason"', self.pages.post("/ui/act", fields).body)
        self.assertEqual(self.done(), [])
        answer = self.pages.post("/ui/act", [*fields, ("filled-in", "yes")])
        self.assertEqual(answer.status, 422)
        self.assertIn(b"Reason is empty", answer.body)
        self.assertEqual(self.done(), [])

    def test_token(self) -> None:
        """Without the token of the session nothing is done."""
        self.pages.csrf = "wrong"
        answer = self.pages.post("/ui/act", [("action", "drain"), ("confirmed", "yes")])
        self.assertEqual(answer.status, 403)
        self.assertEqual(self.done(), [])

    def test_other_site(self) -> None:
        """A form of another site does nothing."""
        fields = [("action", "drain"), ("confirmed", "yes")]
        answer = self.pages.post("/ui/act", fields, Sec_Fetch_Site="cross-site")
        self.assertEqual(answer.status, 403)
        self.assertEqual(self.done(), [])

    def test_get(self) -> None:
        """An address alone never does anything."""
        answer = self.pages.get("/ui/act?action=drain&confirmed=yes")
        self.assertEqual(answer.status, 303)
        self.assertEqual(self.done(), [])

    def test_unknown(self) -> None:
        """An action that does not exist is a page with 404."""
        self.assertEqual(self.pages.post("/ui/act", [("action", "explode")]).status, 404)
        self.assertEqual(self.done(), [])

    def test_peer_test(self) -> None:
        """The test of a connection shows its steps at once."""
        answer = self.pages.post("/ui/act", [("action", "peer-test"), ("to", "beta.example")])
        self.assertEqual(self.done(), [("TEST-PEER", "", "beta.example", {})])
        self.assertIn(b"Messages cannot go there.", answer.body)
        self.assertIn(b"has to renew it", answer.body)


class ProblemTests(SiteCase):
    """Refusals of the site itself."""

    BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

    def test_browser(self) -> None:
        """A browser gets a page, with the status; programs get JSON."""
        for accept, content_type in (
            (self.BROWSER, "text/html; charset=utf-8"),
            ("text/html;q=0.5", "text/html; charset=utf-8"),
            ("*/*", "application/problem+json"),
            ("", "application/problem+json"),
            ("text/*", "application/problem+json"),
            ("application/json", "application/problem+json"),
            ("text/html, application/json", "application/problem+json"),
            ("text/html;q=0.2, application/problem+json;q=0.9", "application/problem+json"),
            ("text/html;q=0", "application/problem+json"),
        ):
            answer = self.pages.get("/nowhere", Accept=accept)
            self.assertEqual(answer.status, 404, accept)
            self.assertEqual(answer.headers["Content-Type"], content_type, accept)
        page = self.pages.get("/nowhere", Accept=self.BROWSER)
        self.assertIn(b"<h1>Not Found</h1>", page.body)
        self.assertIn(b"There is no such resource", page.body)
        self.assertIn("Accept", page.headers["Vary"])
        self.assertIn("default-src 'self'", page.headers["Content-Security-Policy"])

    def test_other_site(self) -> None:
        """A change asked for by another site is refused with a page, and is not made."""
        asked = {"Accept": self.BROWSER, "Sec-Fetch-Site": "cross-site"}
        answer = self.pages.post("/ui/act", [("action", "drain"), ("confirmed", "yes")], **asked)
        self.assertEqual(answer.status, 403)
        self.assertIn(b"A page of another site has asked for this change.", answer.body)

    def test_too_many(self) -> None:
        """Too many requests: the page keeps the header that says when to come back."""
        self.pages.web.site.adopt(SiteTerms(requests_per_second=1.0))
        answers = [self.pages.get("/nowhere", Accept=self.BROWSER) for _ in range(3)]
        last = answers[-1]
        self.assertEqual((last.status, last.headers["Retry-After"]), (429, "2"))
        self.assertIn(b"<h1>Too Many Requests</h1>", last.body)

    def test_hostile_words(self) -> None:
        """What a refusal quotes is text."""
        self.pages.log_in()
        answer = self.pages.get("/api/v1/session?<script>=1", Accept=self.BROWSER)
        self.assertNotIn(b"<script>", answer.body)
