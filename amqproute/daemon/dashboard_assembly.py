# SPDX-License-Identifier: Apache-2.0
"""Assembly of the dashboard: its pages at the endpoint for HTTP, and what they show beside rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads
from twisted.internet.threads import deferToThreadPool
from twisted.logger import globalLogPublisher

from amqproute import __version__
from amqproute.address import host_label, in_host
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.name_table import count_names
from amqproute.config.schema import Config
from amqproute.daemon.access_control import AccessControl
from amqproute.daemon.attached_links import AttachedLinks
from amqproute.daemon.changed_settings import changed_settings
from amqproute.daemon.http_assembly import HttpService
from amqproute.daemon.log_output import page_line
from amqproute.dashboard.browser_log_ins import BrowserLogIns
from amqproute.dashboard.dashboard_site import DashboardSite
from amqproute.dashboard.journal_search import JournalSearch
from amqproute.dashboard.management_door import ManagementDoor
from amqproute.dashboard.recent_log import RecentLog
from amqproute.dashboard.report_files import ReportList, list_reports, read_report
from amqproute.dashboard.row_values import Row
from amqproute.dashboard.traffic_history import TrafficHistory
from amqproute.dashboard.traffic_sampler import TrafficSampler
from amqproute.http.requester import Requester
from amqproute.net.reactor import IReactor
from amqproute.services.management_node import MANAGEMENT, ManagementService
from amqproute.turn_scheduler import Pause

__all__ = ["BrokerDashboard", "DashboardParts"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DashboardParts:
    """Parts of the daemon that the dashboard shows.

    Attributes:
        broker: its queues and virtual hosts.
        access: users and access rules.
        management: carries out operations.
        links: the connections.
        journal: the directory of the audit journal; None if none is kept.
        container_id: the id of this broker.
    """

    broker: Broker
    access: AccessControl
    management: ManagementService
    links: AttachedLinks
    journal: Path | None
    container_id: str


class BrokerDashboard:
    """The dashboard of a daemon: implements `amqproute.dashboard.page_loaders.BrokerView`.

    Args:
        reactor: the reactor for timers, and threads that read the journal.
        config: returns the configuration in force.
        now_ms: the wall clock.
        parts: what is shown.
        pause: called between slices of work that takes many turns of the reactor.
    """

    def __init__(
        self,
        reactor: IReactor,
        config: Callable[[], Config],
        now_ms: Callable[[], int],
        parts: DashboardParts,
        pause: Pause,
    ) -> None:
        self.log = RecentLog(page_line)
        self._reactor = reactor
        self._config = config
        self._now_ms = now_ms
        self._parts = parts
        self._began = reactor.seconds()
        self._settings: tuple[Config, Sequence[Row]] | None = None
        self._pause = pause
        self._sampler = TrafficSampler(reactor, parts.broker, now_ms, pause)
        self.journal: JournalSearch | None = None
        if parts.journal is not None and IReactorThreads.providedBy(reactor):
            self.journal = JournalSearch(
                parts.journal,
                reactor,
                lambda work: Deferred.fromCoroutine(self._in_thread(work)),
            )

    def open(self, web: HttpService) -> None:
        """Serve the pages at the endpoint for HTTP."""
        site = DashboardSite(
            self._reactor,
            self,
            self._source_of,
            BrowserLogIns(web.login),
            web.turns,
        )
        site.mount(web.site)
        globalLogPublisher.addObserver(self.log)
        self._sampler.start()

    def stop(self) -> None:
        """Take no more samples of the traffic and of the log."""
        globalLogPublisher.removeObserver(self.log)
        self._sampler.stop()

    def _source_of(self, requester: Requester) -> ManagementDoor:
        allows = self._parts.access.allows
        return ManagementDoor(
            self._parts.management,
            requester,
            lambda principal: allows(principal, Verb.MANAGE, MANAGEMENT),
        )

    # -- the view ------------------------------------------------------------------------------

    @property
    def history(self) -> TrafficHistory:
        """See `BrokerView`."""
        return self._sampler.history

    def now_ms(self) -> int:
        """See `BrokerView`."""
        return self._now_ms()

    def broker_row(self) -> Row:
        """See `BrokerView`."""
        return {
            "name": self._parts.container_id,
            "version": __version__,
            "domains": ", ".join(self._config().domains),
            "up-ms": int((self._reactor.seconds() - self._began) * 1000),
        }

    @property
    def has_reports(self) -> bool:
        """See `BrokerView`."""
        return self._config().management.pipeline is not None

    async def reports(self) -> ReportList | None:
        """See `BrokerView`."""
        warehouse = self._config().management.pipeline
        return None if warehouse is None else await self._in_thread(list_reports, warehouse)

    async def report_page(self, name: str) -> bytes | None:
        """See `BrokerView`."""
        warehouse = self._config().management.pipeline
        return None if warehouse is None else await self._in_thread(read_report, warehouse, name)

    async def _in_thread(self, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Call a function in a thread; what follows is a step of the reactor."""
        pool = self._reactor.getThreadPool()
        result = await deferToThreadPool(self._reactor, pool, function, *given, **named)
        await self._pause()
        return result

    async def settings(self) -> Sequence[Row]:
        """See `BrokerView`."""
        config = self._config()
        if self._settings is None or self._settings[0] is not config:
            self._settings = config, await self._in_thread(changed_settings, config)
        return self._settings[1]

    def incoming(self) -> Mapping[str, int]:
        """See `BrokerView`."""
        return self._parts.links.count_from()

    def hosts(self) -> Sequence[Row]:
        """See `BrokerView`."""
        broker = self._parts.broker
        connected = Counter(each.principal.host for each in self._parts.links.connections)
        return [
            {
                "name": host_label(host),
                "queues": len(broker.nodes.of(host)) + _topics_in(broker, host),
                "exchanges": broker.topology_of(host).graph.exchange_count,
                "connections": connected[host],
            }
            for host in broker.host_names()
        ]

    def users(self) -> Sequence[Row]:
        """See `BrokerView`."""
        found = self._parts.access.users
        return [{"name": name, "source": "SCRAM, PLAIN"} for name in found.names]

    def rules(self) -> Sequence[Row]:
        """See `BrokerView`."""
        rows: list[Row] = []
        for rule in self._parts.access.rules:
            for effect, verbs in (("allow", rule.allow), ("deny", rule.deny)):
                if verbs:
                    rows.append(
                        {
                            "name": str(len(rows) + 1),
                            "effect": effect,
                            "verbs": sorted(verbs),
                            "who": rule.who,
                            "node": rule.node,
                        }
                    )
        return rows


def _topics_in(broker: Broker, host: str) -> int:
    """Return the number of topics of a virtual host; those of the first have no host's prefix."""
    order = broker.topics.order
    return count_names(order, in_host(host, "") if host else "//", is_inside=bool(host))
