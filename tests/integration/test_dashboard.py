# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a running daemon: its pages, and a message found and cured in a browser."""

from __future__ import annotations

import http.client
import re
from urllib.parse import quote, urlencode

from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard.page_loaders import LOADERS
from tests.dashboard.browser import MISSING, chromium, log_in
from tests.integration.support import Daemon, Wire, Zone, free_ports, message, until
from tests.support.patience import PATIENCE


class PageTests(SynchronousTestCase):
    """The pages of a daemon, without a browser."""

    def setUp(self) -> None:
        self.port = free_ports(1)[0]
        self.daemon = Daemon(
            "alpha.example",
            changes={
                "management": {"http": Daemon.endpoint(self.port)},
                "nodes": [{"name": "orders"}],
                "journal": {"enabled": True},
            },
        ).start()
        self.addCleanup(self.daemon.stop)
        self.addCleanup(self.daemon.check)
        self.cookie = ""

    def ask(self, target: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        """Get a page, or post a form; return the status and the page, or where it leads."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Cookie": self.cookie} if self.cookie else {}
        if fields is None:
            connection.request("GET", target, headers=headers)
        else:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request("POST", target, urlencode(fields), headers)
        answer = connection.getresponse()
        if cookie := answer.getheader("Set-Cookie"):
            self.cookie = cookie.partition(";")[0]
        text = answer.getheader("Location") or answer.read().decode()
        connection.close()
        return answer.status, text

    def log_in(self, user: str, password: str) -> None:
        """Log in."""
        answer = self.ask("/ui/login", {"user": user, "password": password})
        self.assertEqual(answer, (303, "/ui/"))

    def test_pages(self) -> None:
        """Every page of a daemon with a message, an action in two steps, and what others see."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("orders", [message(b"1", "orders", message_id="<m-1>")])
        self.assertEqual(self.ask("/"), (303, "/ui/"))
        self.assertEqual(self.ask("/ui/")[0], 303)
        self.log_in("anna", "secret")
        for name in LOADERS:
            status, page = self.ask(f"/ui/{name}")
            needs_name = name in ("peer", "queue", "exchange", "connection")
            self.assertEqual(status, 404 if needs_name else 200, f"{name}: {page}")
        queue = self.ask("/ui/queue?name=orders")[1]
        self.assertIn("&lt;m-1&gt;", queue)
        found = re.search(r"/ui/message\?id=(\d+)", queue)
        assert found is not None
        self.assertIn("nobody receives from orders", self.ask(found[0])[1])
        self.assertIn('aria-label="1 up to 5 min"', self.ask("/ui/queues?contains=ord")[1])
        self.assertIn("amq.topic", self.ask("/ui/exchanges")[1])
        self.assertIn("user:anna", self.ask("/ui/users")[1])
        story = self.ask(f"/ui/trace?message={quote('<m-1>')}")[1]
        self.assertIn("from anonymous", story)
        token = re.search(r'name="csrf-token" value="([^"]+)"', queue)
        assert token is not None
        purge = {"csrf-token": token[1], "action": "purge", "name": "orders"}
        self.assertIn("1 message would be deleted", self.ask("/ui/act", purge)[1])
        self.assertIn("&lt;m-1&gt;", self.ask("/ui/queue?name=orders")[1])
        self.assertEqual(self.ask("/ui/act", {**purge, "confirmed": "yes"})[0], 200)
        until(
            lambda: "&lt;m-1&gt;" not in self.ask("/ui/queue?name=orders")[1],
            "the message is deleted",
        )
        until(
            lambda: "user:anna PURGE orders" in self.ask("/ui/journal?kind=operator")[1],
            "the journal has the deed",
        )
        self.log_in("bob", "hidden")
        for name in ("", "queues", "log", "journal", "users"):
            page = self.ask(f"/ui/{name}")[1]
            self.assertNotIn("orders", page, name)
        self.assertIn("may not manage", self.ask("/ui/queues")[1])


class StuckMessageTests(SynchronousTestCase):
    """A partner is out of reach, and comes back."""

    skip = MISSING

    def test_cure(self) -> None:
        """An operator sees the trouble, tests the connection, and retries when beta is back."""
        zone = Zone()
        self.addCleanup(zone.close)
        zone.point("beta.example", free_ports(1)[0])
        port = free_ports(1)[0]
        daemon = Daemon(
            "alpha.example",
            nameserver=zone.port,
            changes={
                "management": {"http": Daemon.endpoint(port)},
                "relay": {"first-retry": 60, "last-retry": 120},
                "journal": {"enabled": True},
            },
        ).start()
        self.addCleanup(daemon.stop)
        self.addCleanup(daemon.check)
        beta = Daemon("beta.example", changes={"nodes": [{"name": "orders"}]})
        self.addCleanup(beta.stop)
        with Wire(daemon.plain) as wire:
            to = "orders@beta.example"
            wire.publish(to, [message(b"%d" % n, to) for n in range(3)])
        site = f"http://127.0.0.1:{port}"
        with chromium() as browser:
            page = browser.new_page()
            log_in(page, site, "anna")
            # It becomes known by itself: the page is live.
            problem = page.locator(".problems li", has_text="connect.refused")
            problem.wait_for()
            problem.get_by_role("link", name="beta.example").click()
            page.get_by_role("heading", level=1, name="beta.example").wait_for()
            page.locator("#b-messages").get_by_role("link").first.click()
            why = page.locator("#b-why")
            self.assertIn("connect.refused", why.inner_text())
            self.assertIn("back-off", why.inner_text())
            page.locator("#b-life", has_text="from anonymous").wait_for()
            page.get_by_role("button", name="Test the connection").click()
            verdict = page.locator("#b-verdict")
            verdict.get_by_text("Messages cannot go there").wait_for()
            self.assertIn("is the partner's broker running", verdict.inner_text())
            beta.start()
            zone.point("beta.example", beta.tls)
            page.get_by_role("button", name="Test again").click()
            verdict.get_by_text("Messages can go there").wait_for()
            page.get_by_role("button", name="Retry now").click()
            page.locator("#b-result", has_text="messages").get_by_text("3", exact=True).wait_for()
            page.locator("#b-form").get_by_role("button", name="Retry now").click()
            page.locator("#b-outcome.block-note").wait_for()
            page.goto(f"{site}/ui/peer?name=beta.example")
            page.locator("#b-messages", has_text="No message waits").wait_for()
            page.goto(f"{site}/ui/")
            page.get_by_text("All is well.").wait_for()
        with Wire(beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", 3)), 3)
