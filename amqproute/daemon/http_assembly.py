# SPDX-License-Identifier: Apache-2.0
"""The HTTP service of a daemon: its site, its log-ins, and its endpoint if one is configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import ip_network
from itertools import chain
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool

from amqproute.auth.access_tokens import AccessTokens
from amqproute.auth.log_in_recheck import LogIn
from amqproute.config.operations_settings import ManagementSettings
from amqproute.config.schema import Config
from amqproute.daemon.access_control import AccessControl
from amqproute.daemon.certificate_gate import CertificateGate
from amqproute.daemon.config_reload import Apply
from amqproute.http.http_channel import HttpLimits
from amqproute.http.http_listener import HttpListener, HttpTerms, HttpTls
from amqproute.http.journal_feed import JournalFeed, add_journal_tail
from amqproute.http.login import HttpLogIn
from amqproute.http.management_api import ManagementApi, RequireMonitor
from amqproute.http.openapi import add_openapi_resource
from amqproute.http.session_resources import add_session_resources
from amqproute.http.sessions import BrowserSessions
from amqproute.http.site import HttpSite, SiteTerms
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.services.management_node import ManagementService
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["HttpService"]

CONNECTIONS_PER_REQUEST: Final = 2.0
"""New connections of an address in a second, as a multiple of its requests."""


class HttpService:
    """The HTTP service.

    Args:
        config: the configuration of the start.
        reactor: where to listen.
        access: users and access rules.
        now: the wall clock, seconds since the epoch.
        turns: of the reactor, which requests share with other work.

    Attributes:
        tokens: the access tokens.
        login: finds out who asks.
        site: where components add what they serve, before and after the endpoint is open.
        listener: the endpoint; None without one.
        bounds: on its connections.
        turns: as given.
    """

    def __init__(
        self,
        config: Config,
        reactor: IReactor,
        access: AccessControl,
        now: Callable[[], float],
        turns: TurnScheduler,
    ) -> None:
        self.turns = turns
        self.tokens = AccessTokens(
            config.state_directory,
            lambda: int(now() * 1000),
            lambda work: deferToThreadPool(reactor, reactor.getThreadPool(), work),
        )
        self.sessions = BrowserSessions(reactor.seconds)
        self.login = HttpLogIn(access.password_log_in(), self.tokens, self.sessions)
        self.site = HttpSite(reactor, self.login, _site_terms(config.management), now, turns)
        self.listener: HttpListener | None = None
        self.bounds = _bounds(config.management)
        self._reactor = reactor
        self._feed: JournalFeed | None = None
        add_session_resources(self.site, self.login)

    def open(
        self, settings: ManagementSettings, contexts: TlsContexts | None, gate: CertificateGate
    ) -> None:
        """Open the endpoint, if there is one, once there is a valid certificate for it.

        Raises:
            ListenError: it cannot be opened.
        """
        if settings.http is None:
            return
        tls = None
        if settings.tls != "none":
            assert contexts is not None  # checked with the configuration
            tls = HttpTls(contexts, settings.client_certificate, self.turns)
        self.listener = HttpListener(
            self._reactor,
            settings.http,
            self.site,
            tls=tls,
            terms=self.bounds[0],
            limits=self.bounds[1],
            turns=self.turns,
        )
        gate.open(self.listener, has_tls=tls is not None)

    def offer(
        self, management: ManagementService, journal: Path | None, require_monitor: RequireMonitor
    ) -> None:
        """Serve the operations of a management node, and the document that describes them.

        Args:
            management: the node.
            journal: the directory of the audit journal; None without one.
            require_monitor: who may have the operations that are for monitoring.
        """
        ManagementApi(management, require_monitor).add_to(self.site)
        if journal is not None:
            self._feed = JournalFeed(self._reactor, journal)
            add_journal_tail(self.site, management, self._feed)
        add_openapi_resource(self.site)

    def log_ins(self) -> Iterator[LogIn]:
        """Iterate over the log-ins that are open: sessions of browsers, and streams."""
        return chain(self.sessions.log_ins(), self.site.log_ins())

    def rows(self) -> list[dict[str, str | int | None]]:
        """Return the attributes of the endpoint for the management node."""
        return [] if self.listener is None else [self.listener.row()]

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`."""
        settings = config.management

        def apply() -> None:
            self.site.adopt(_site_terms(settings))
            self.bounds = _bounds(settings)
            if self.listener is not None:
                self.listener.adopt(*self.bounds)

        return apply

    def stop(self) -> Deferred[None]:
        """Close the endpoint and its connections; fires when all are gone."""
        if self._feed is not None:
            self._feed.stop()  # its thread would outlive the reactor
        return succeed(None) if self.listener is None else self.listener.stopService()


def _site_terms(settings: ManagementSettings) -> SiteTerms:
    return SiteTerms(settings.requests_per_second, settings.max_event_streams)


def _bounds(settings: ManagementSettings) -> tuple[HttpTerms, HttpLimits]:
    return (
        HttpTerms(
            settings.max_connections,
            settings.connections_per_address,
            CONNECTIONS_PER_REQUEST * settings.requests_per_second,
            tuple(ip_network(each) for each in settings.proxy_protocol),
        ),
        HttpLimits(body_bytes=settings.max_body, request_seconds=settings.request_timeout),
    )
