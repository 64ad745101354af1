# SPDX-License-Identifier: Apache-2.0
"""The resources of monitoring over HTTP, and access to them."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Verb
from amqproute.auth.token_scope import TokenScope
from amqproute.daemon.health_probes import Readiness
from amqproute.daemon.monitoring import Monitoring, MonitoringAccess
from amqproute.http.http_messages import ClientFacts
from amqproute.http.site import SiteTerms
from amqproute.metrics.metrics_service import ScrapeAnswer, TooManyScrapes
from amqproute.metrics.snapshot import MetricsScope
from amqproute.services.health_rules import BrokerFacts
from amqproute.values import Principal
from tests.daemon.test_health_probes import Sources
from tests.http.rig import ANN, BOB, LOOPBACK, Answer, Web

MONITOR = ClientFacts("10.1.2.3")
STRANGER = ClientFacts("192.0.2.7")
SIX = ClientFacts("2001:db8::7")
SOCKET = ClientFacts("", True, True, uid=1000)


class Metrics:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.scopes: list[MetricsScope] = []
        self.accepts: list[str] = []
        self.is_busy = False

    def scrape(self, scope: MetricsScope, accept: str = "") -> Deferred[ScrapeAnswer]:
        """See `MetricsService.scrape`."""
        if self.is_busy:
            raise TooManyScrapes("4 scrapes are under way")
        self.scopes.append(scope)
        self.accepts.append(accept)
        answer: Deferred[ScrapeAnswer] = Deferred()
        answer.callback(ScrapeAnswer("text/plain; version=0.0.4", b"x 1\n"))
        return answer


class MonitoringTests(SynchronousTestCase):
    """The resources."""

    def setUp(self) -> None:
        self.web = Web(Path(self.mktemp()), terms=SiteTerms(1000.0))
        self.web.directory.mkdir()
        self.addCleanup(self.web.close)
        self.metrics = Metrics()
        self.sources = Sources()
        self.networks = ["10.1.0.0/16", "2001:db8::/32"]

        def allows(principal: Principal, verb: Verb, name: str) -> bool:
            return (principal.name, verb, name) == ("ann", Verb.MANAGE, "$management")

        Monitoring(
            self.metrics,  # type: ignore[arg-type]
            Readiness(self.sources),
            MonitoringAccess(lambda: self.networks, allows),
        ).mount(self.web.site)

    def get(
        self,
        path: str,
        client: ClientFacts = MONITOR,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask for a path."""
        return self.web.ask("GET", path, headers, client=client)

    def test_who_may(self) -> None:
        """Metrics are for listed networks and for who has the right, and no others."""
        for path in ("/metrics", "/metrics/detailed"):
            for client, headers, status in (
                (MONITOR, {}, 200),
                (SIX, {}, 200),
                (STRANGER, {}, 401),
                (SOCKET, {}, 403),
                (LOOPBACK, ANN, 200),
                (LOOPBACK, BOB, 403),
                (LOOPBACK, {"Authorization": "Bearer nonsense"}, 401),
            ):
                self.assertEqual(self.get(path, client, headers).status, status, (path, client))
        self.networks = []
        self.assertEqual(self.get("/metrics").status, 401)

    def test_tokens(self) -> None:
        """A token reads if its scope has read or names the operation, and its user may."""
        for user, scope, path, status in (
            ("ann", ["read"], "/metrics", 200),
            ("ann", ["METRICS"], "/metrics", 200),
            ("ann", ["PURGE"], "/metrics", 403),
            ("bob", ["all"], "/metrics", 403),
        ):
            principal = Principal("user", user)
            name = f"{user}-{scope[0]}-{path}"
            _, text = self.successResultOf(
                self.web.tokens.create(name, principal, TokenScope.of(scope), 60, "ann")
            )
            answer = self.get(path, LOOPBACK, {"Authorization": f"Bearer {text}"})
            self.assertEqual(answer.status, status, (user, scope, path))

    def test_scopes(self) -> None:
        """/metrics takes no selection; /metrics/detailed does, and refuses what is unknown."""
        self.get("/metrics?family=x", headers={"Accept": "application/openmetrics-text"})
        self.assertEqual(self.metrics.scopes.pop(), MetricsScope())
        self.assertEqual(self.metrics.accepts, ["application/openmetrics-text"])
        path = "/metrics/detailed?family=amqproute_node_messages&node=a&node=b%2Fc"
        answer = self.get(path)
        self.assertEqual(
            self.metrics.scopes.pop(),
            MetricsScope(True, frozenset({"amqproute_node_messages"}), frozenset({"a", "b/c"})),
        )
        self.assertEqual(answer.body, b"x 1\n")
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4")
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        answer = self.get("/metrics/detailed?family=nonsense")
        self.assertEqual((answer.status, answer.json()["field"]), (400, "family"))

    def test_busy(self) -> None:
        """A request during many scrapes is told when to come again."""
        self.metrics.is_busy = True
        answer = self.get("/metrics")
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "1"))

    def test_probes(self) -> None:
        """Liveness and readiness are for everybody, their reasons are not."""
        self.sources.facts = BrokerFacts(marks=(("disk", "full"),))
        for client in (STRANGER, MONITOR, SOCKET):
            self.assertEqual(self.get("/livez", client).json(), {"status": "ok"})
            answer = self.get("/readyz", client)
            self.assertEqual((answer.status, answer.json()), (503, {"status": "failed"}))
        self.assertEqual(self.get("/readyz?verbose", STRANGER).status, 401)
        answer = self.get("/readyz?verbose")
        self.assertEqual((answer.status, answer.json()["reasons"]), (503, ["disk: full"]))
