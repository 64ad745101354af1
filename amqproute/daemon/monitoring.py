# SPDX-License-Identifier: Apache-2.0
"""What monitoring reads over HTTP: metrics, liveness and readiness.

====================  ==============================================  ==========================
path                  answer                                          for
====================  ==============================================  ==========================
``/livez``            200, or 503: restart it                         everybody
``/readyz``           200, or 503: send traffic elsewhere             everybody
``/metrics``          totals, and what is configured by name          networks; `manage`
``/metrics/detailed`` everything, or chosen families, nodes, peers    networks; `manage`
====================  ==============================================  ==========================

*Networks* are those of `management.metrics-networks`; from elsewhere it takes a log-in with the
right `manage` on ``$management``. With ``?verbose`` the first two show reasons, to the same.
`MonitoringAccess` decides about health checks, too, an operation of management
(`amqproute.http.management_api`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

from twisted.internet.defer import Deferred

from amqproute.auth.policy import Verb
from amqproute.daemon.health_probes import HEALTH, Readiness
from amqproute.daemon.policy_assembly import Allows
from amqproute.http.http_messages import (
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    json_response,
)
from amqproute.http.login import unauthorized
from amqproute.http.site import HttpAccess, HttpSite
from amqproute.metrics.metrics_service import (
    GENERAL,
    MetricsService,
    ScrapeError,
    TooManyScrapes,
    scope_of,
)
from amqproute.metrics.snapshot import MetricsScope
from amqproute.services.management_node import MANAGEMENT

__all__ = ["METRICS", "Monitoring", "MonitoringAccess"]

METRICS: Final = "METRICS"
"""Name in a token's scope that allows reading metrics only."""


@dataclass(frozen=True, slots=True)
class MonitoringAccess:
    """Access to metrics.

    Attributes:
        networks: returns the networks from which nobody has to log in.
        allows: the access rules.
    """

    networks: Callable[[], Sequence[str]]
    allows: Allows

    def may_read(self, request: HttpRequest, operation: str, name: str = "") -> bool:
        """Return whether the requester may see details."""
        if request.client.address:
            address = ip_address(request.client.address)
            if any(address in ip_network(each) for each in self.networks()):
                return True
        who = request.requester
        return (
            who is not None
            and who.scope.covers(operation, name, changes=False)
            and self.allows(who.principal, Verb.MANAGE, MANAGEMENT)
        )

    def require(self, request: HttpRequest, operation: str, name: str = "") -> None:
        """Refuse a request for details without the right to them.

        Raises:
            HttpProblem: 401 without a log-in, 403 with one.
        """
        if self.may_read(request, operation, name):
            return
        if request.requester is None:
            raise unauthorized(
                "this takes a log-in, or an address within management.metrics-networks"
            )
        raise HttpProblem(
            403,
            f"{request.requester} may not read this: it takes the right manage on {MANAGEMENT}, "
            f"and a token whose scope has read or {operation}",
        )


class Monitoring:
    """The resources for monitoring.

    Args:
        metrics: answers scrapes.
        readiness: whether the daemon lives and is ready.
        access: who may read.
    """

    def __init__(
        self,
        metrics: MetricsService,
        readiness: Readiness,
        access: MonitoringAccess,
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._access = access

    def mount(self, site: HttpSite) -> None:
        """Add the resources to a site."""
        handlers: tuple[tuple[str, HttpHandler], ...] = (
            ("/livez", self._live),
            ("/readyz", self._ready),
            ("/metrics", self._general),
            ("/metrics/detailed", self._detailed),
        )
        for path, handler in handlers:
            site.mount(path, handler, access=HttpAccess.OPTIONAL)

    # -- liveness and readiness --------------------------------------------------------------------

    def _live(self, request: HttpRequest) -> HttpResponse:
        return self._report(request, self._readiness.why_dead())

    def _ready(self, request: HttpRequest) -> HttpResponse:
        return self._report(request, self._readiness.why_not_ready())

    def _report(self, request: HttpRequest, reasons: list[str]) -> HttpResponse:
        is_verbose = "verbose" in request.query
        if is_verbose:
            self._access.require(request, HEALTH)
        status, body = self._readiness.report(reasons, is_verbose)
        return json_response(body, status).with_headers(("Cache-Control", "no-store"))

    # -- metrics -----------------------------------------------------------------------------------

    def _general(self, request: HttpRequest) -> Deferred[HttpResponse]:
        return self._scrape(request, GENERAL)

    def _detailed(self, request: HttpRequest) -> Deferred[HttpResponse]:
        self._access.require(request, METRICS)
        try:
            scope = scope_of(request.query)
        except ScrapeError as error:
            raise HttpProblem(400, str(error), error.field) from None
        return self._scrape(request, scope)

    def _scrape(self, request: HttpRequest, scope: MetricsScope) -> Deferred[HttpResponse]:
        self._access.require(request, METRICS)
        try:
            answer = self._metrics.scrape(scope, request.headers.get("accept", ""))
        except TooManyScrapes as error:
            raise HttpProblem(503, str(error), headers=[("Retry-After", "1")]) from None
        return answer.addCallback(
            lambda found: HttpResponse(
                200, found.text, found.content_type, (("Cache-Control", "no-store"),)
            )
        )
