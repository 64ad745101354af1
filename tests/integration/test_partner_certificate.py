# SPDX-License-Identifier: Apache-2.0
"""A partner's certificate breaks: an operator in a browser, and a program over HTTP, cure it.

Both see two organizations exchange messages, are alerted, find the cause and the cure, apply it,
and see the queue drain. Neither looks anywhere else: the operator at the pages of the dashboard,
the program at the OpenAPI document.
"""

from __future__ import annotations

from typing import Any
from unittest import skipIf

from tests.dashboard.browser import MISSING, chromium, log_in
from tests.integration.support import (
    Certificates,
    Daemon,
    Wire,
    certificates,
    free_ports,
    message,
    until,
)
from tests.integration.test_monitoring import PROMETHEUS, MonitoredCase, Prometheus
from tests.integration.test_operator import command
from tests.metrics.test_shipped import RULES
from tests.support.openapi_client import ApiProblem, OpenApiClient

BETA = "beta.example"
ORDERS = f"orders@{BETA}"
ALERT = {"AmqproutePeerOldestMessage": {"peer": BETA}}
WAITING = 5


def certificate(authority: Certificates) -> dict[str, Any]:
    """Return settings with a new certificate for beta."""
    issued = authority.issue(
        BETA, dns_names=[BETA], srv_names=[f"{each}.{BETA}" for each in ("_amqps", "_amqp")]
    )
    return {
        "certificate": str(issued.chain),
        "private-key": str(issued.private_key),
        "trust": str(certificates().trust),
    }


class CertificateCase(MonitoredCase):
    """Alpha sends orders to beta, and does not try again by itself soon."""

    def setUp(self) -> None:
        super().setUp()
        (self.http_of_beta,) = free_ports(1)
        self.beta = self.daemon(
            BETA,
            nodes=[{"name": "orders"}],
            management={"http": Daemon.endpoint(self.http_of_beta)},
        )
        self.alpha_daemon = self.daemon(
            "alpha.example",
            **self.monitored(),
            peers={BETA: {}},
            relay={"first-retry": 600, "last-retry": 1200},
            journal={"enabled": True},
        )
        self.publish(1)
        self.consume(1)

    def publish(self, count: int) -> None:
        """Publish orders at alpha."""
        with Wire(self.alpha_daemon.plain) as wire:
            wire.publish(ORDERS, [message(b"%d" % n, ORDERS) for n in range(count)])

    def try_again(self) -> None:
        """Have alpha try at once, after the end of the connection: the next attempt is far off."""
        done = command(self.alpha_daemon, "retry", "--to", BETA)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def consume(self, count: int) -> None:
        """Take orders at beta."""
        with Wire(self.beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", count)), count)


@skipIf(PROMETHEUS is None, "Prometheus is not installed")
class OperatorTests(CertificateCase):
    """An operator in Chromium."""

    skip = MISSING

    def firing(self, prometheus: Prometheus) -> set[str]:
        """Return the alerts that fire; those about a slow machine may, too."""
        return {each["alertname"] for each in prometheus.firing()}

    def test_cure(self) -> None:
        """From the dashboard when all is well to the dashboard when all is well again."""
        site = f"http://127.0.0.1:{self.http}"
        prometheus = Prometheus(self.http, RULES)
        self.addCleanup(prometheus.stop)
        until(lambda: prometheus.series("amqproute_build_info"), "a scrape", 60, prometheus.log)
        with chromium() as browser:
            context = browser.new_context()
            page = context.new_page()
            log_in(page, site, "anna")
            page.get_by_text("All is well.").wait_for()
            page.locator("#alarms", has_text="all is well").wait_for()
            self.assertNotIn("AmqproutePeerOldestMessage", self.firing(prometheus))
            # The partner renews its certificate, from an authority that nobody trusts.
            self.beta.stop()
            self.beta.write(tls=certificate(Certificates()))
            self.beta.start()
            self.publish(WAITING)
            self.try_again()
            prometheus.fires(ALERT)
            # The page is live.
            page.locator("#alarms", has_text="problem").wait_for()
            problem = page.locator(".problems li", has_text="tls.untrusted").first
            problem.wait_for()
            problem.get_by_role("link", name=BETA).click()
            page.get_by_role("heading", level=1, name=BETA).wait_for()
            self.assertIn("tls.untrusted", page.locator("#b-verdict").inner_text())
            page.get_by_role("button", name="Test the connection").click()
            verdict = page.locator("#b-verdict")
            verdict.get_by_text("Messages cannot go there").wait_for()
            self.assertIn("the partner sends its whole chain", verdict.inner_text())
            self.assertIn("add it to tls.trust", verdict.inner_text())
            # What the page says: a certificate of an authority that we trust. No restart.
            self.beta.reload(tls=certificate(certificates()))
            page.get_by_role("button", name="Test again").click()
            verdict.get_by_text("Messages can go there").wait_for()
            watched = context.new_page()
            watched.goto(f"{site}/ui/peer?name={BETA}")
            queue = watched.locator("#b-messages tbody tr")
            self.assertEqual(queue.count(), WAITING)
            page.get_by_role("button", name="Retry now").click()
            page.locator("#b-form").get_by_role("button", name="Retry now").click()
            page.locator("#b-outcome.block-note").wait_for()
            # The queue drains while the operator looks on.
            watched.locator("#b-messages", has_text="No message waits").wait_for()
            watched.get_by_role("link", name="Overview", exact=True).click()
            watched.get_by_text("All is well.").wait_for()
        until(
            lambda: "AmqproutePeerOldestMessage" not in self.firing(prometheus),
            "the end of the alert",
            60,
        )
        self.consume(WAITING)
        self.alpha_daemon.check()


class ProgramTests(CertificateCase):
    """A program that has read the OpenAPI document."""

    def client(self, port: int) -> OpenApiClient:
        """Return a client of one of the brokers."""
        return OpenApiClient(f"http://127.0.0.1:{port}", "anna", "secret")

    def test_cure(self) -> None:
        """The same: alerted by a health check, cause and cure by operations, then it drains."""
        alpha, beta = self.client(self.http), self.client(self.http_of_beta)

        def check(name: str) -> dict[str, Any]:
            (found,) = alpha.call("healthOne", name=name)["checks"]
            assert isinstance(found, dict)
            return found

        self.assertEqual(check("destinations")["state"], "ok")
        # At beta a program deploys a certificate of an authority that nobody trusts.
        self.beta.write(tls=certificate(Certificates()))
        self.assertIn("tls.certificate", str(beta.call("configReload")["attributes"]["changed"]))
        for each in beta.call("queryConnection")["items"]:
            if each["principal"] == "peer:alpha.example":
                beta.call("closeConnection", name=each["name"])
        alpha.call("publishMessage", to=ORDERS, body="order 1", durable=True)
        self.try_again()
        until(lambda: check("destinations")["state"] == "failed", "the check fails", 60)
        self.assertIn(BETA, check("destinations")["description"])
        self.assertIn("peer test", check("destinations")["cure"])
        (waiting,) = alpha.call("listMessages", to=BETA)["messages"]
        why = alpha.call("why", name=str(waiting["id"]))
        self.assertIn("tls.untrusted", str(why))
        self.assertEqual(why["peer"], BETA)
        self.assertIn("add it to tls.trust", self.cures(alpha))
        # The cure, at the partner.
        self.beta.write(tls=certificate(certificates()))
        beta.call("configReload")
        self.assertEqual(self.cures(alpha), "")
        rehearsed = alpha.call("retryMessages", to=BETA, dry_run=True)
        self.assertEqual(rehearsed["attributes"]["messages"], 1)
        alpha.call("retryMessages", to=BETA)
        until(lambda: not self.waiting(alpha), "the queue drains", 60)
        until(lambda: check("destinations")["state"] == "ok", "the check is well again", 60)
        self.consume(1)
        self.alpha_daemon.check()

    def cures(self, client: OpenApiClient) -> str:
        """Return what a test of the connection says is to be done; empty if nothing."""
        found = client.call("testPeer", name=BETA)["attributes"]
        return "; ".join(str(step["next"]) for step in found["steps"] if step.get("next"))

    def waiting(self, client: OpenApiClient) -> int:
        """Return how many messages wait for beta."""
        try:
            return int(client.call("readPeer", name=BETA)["waiting"])
        except ApiProblem as problem:
            if problem.status != 404:
                raise
            return 0  # nothing waits, and the next hop is forgotten
