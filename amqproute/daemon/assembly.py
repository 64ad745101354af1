# SPDX-License-Identifier: Apache-2.0
"""Assembly of the application from a configuration: the one module that names all concrete classes.

The order of starting: store, recovery, nodes, destinations, listeners. Nobody can connect, and
nothing leaves, before all of these are ready. Stopping takes the reverse order, with a pause in
which work in progress can finish.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import PROBE_NODE, TRANSFER_NODE, split_host
from amqproute.auth.log_in_recheck import LogInRecheck
from amqproute.broker.broker import Broker
from amqproute.broker.local_transaction import TransactionLimits, TransactionTerms
from amqproute.broker.node_limits import MemoryBudget, QueueLimits
from amqproute.broker.publish_gate import DAMAGE, STORE
from amqproute.broker.queue import Queue
from amqproute.broker.queue_declarations import HostedDeclarations
from amqproute.broker.receipts import Receipts
from amqproute.broker.sender_quotas import NOTES as ACCOUNT_NOTES
from amqproute.broker.subscription import NOTES
from amqproute.broker.xa_record import NOTES as BRANCH_NOTES
from amqproute.broker.xa_record import ROWS as BRANCH_ROWS
from amqproute.broker.xa_record import holds_of
from amqproute.broker.xa_registry import BranchRegistry
from amqproute.config.access_settings import ListenSettings
from amqproute.config.config_diff import named
from amqproute.config.loader import read_node
from amqproute.config.schema import Config
from amqproute.daemon.access_control import AccessControl
from amqproute.daemon.attached_links import AttachedLinks
from amqproute.daemon.config_commands import ConfigCommands, ConfigInForce
from amqproute.daemon.config_reload import Apply, ConfigReloader, ReloadReport
from amqproute.daemon.container_identity import identify
from amqproute.daemon.dashboard_assembly import BrokerDashboard, DashboardParts
from amqproute.daemon.descriptors import make_room_for_descriptors
from amqproute.daemon.disk_watch import disk_terms, make_watermarks
from amqproute.daemon.drain_mode import DrainMode
from amqproute.daemon.frontend_policy import ConfiguredPolicy
from amqproute.daemon.health_probes import HealthProbes, Readiness
from amqproute.daemon.health_survey import HealthSurvey, limits_of, recent_facts
from amqproute.daemon.host_assembly import ConfiguredHosts
from amqproute.daemon.http_assembly import HttpService
from amqproute.daemon.installed_plugins import adopt_plugins, installed_plugins
from amqproute.daemon.journaling import DIRECTORY, Journaling
from amqproute.daemon.listeners import (
    accept_terms,
    accepting,
    pump_limits,
)
from amqproute.daemon.loss_reports import (
    log_losses,
    look_for_losses,
    settle_losses,
    testimony,
)
from amqproute.daemon.management_assembly import offer_branches, offer_relay_operations
from amqproute.daemon.message_routing import MessageRouting
from amqproute.daemon.metrics_assembly import connection_facts, make_metrics
from amqproute.daemon.monitoring import Monitoring, MonitoringAccess
from amqproute.daemon.node_assembly import configured, described
from amqproute.daemon.own_certificates import OwnCertificates
from amqproute.daemon.peer_assembly import (
    make_inbound_trust,
    make_resolver,
    make_targets,
    own_places,
    peer_policy,
    product,
)
from amqproute.daemon.peer_tester import DaemonPeerTester
from amqproute.daemon.policy_assembly import (
    contract_of,
    relay_terms,
    suppresses,
)
from amqproute.daemon.rabbitmq_assembly import RabbitmqFacts, TotalsTaker
from amqproute.daemon.reactor_delay import ReactorDelay
from amqproute.daemon.receipt_expiry import ReceiptClock, ReceiptExpiry
from amqproute.daemon.relay_identity import RelayIdentity, RoutesInForce
from amqproute.daemon.reporting import make_reporter, own_domain, report_terms
from amqproute.daemon.routes import describe_route
from amqproute.daemon.running_tracing import RunningTracing, find_key
from amqproute.daemon.shutdown import end_traffic, flush
from amqproute.daemon.staging_expiry import StagingExpiry
from amqproute.errors import AmqprouteError, StoreError
from amqproute.filters import grammar
from amqproute.frontends.amqp09.access_realms import AccessRealms
from amqproute.frontends.amqp09.amqp09_context import Amqp09Context
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.suspended_links import RESOLVED_NOTES
from amqproute.frontends.amqp10.terminus_resolution import TerminusResolver
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.frontends.common.node_access import NodeAccess
from amqproute.http.rabbitmq_api import RabbitmqApi
from amqproute.interfaces import ITarget
from amqproute.metrics.broker_metrics import (
    DaemonFacts,
    MetricsParts,
    ReactorParts,
    StoreMetrics,
)
from amqproute.metrics.metrics_service import MetricsService
from amqproute.net.accept_policy import AcceptPolicy
from amqproute.net.connection_scheduler import ConnectionScheduler
from amqproute.net.connector import Connector, ConnectPace
from amqproute.net.listener import Listener, ListenerTls
from amqproute.net.pump import ConnectionResources, EngineProtocol
from amqproute.net.reactor import IReactor
from amqproute.plurals import counted
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.destination_row import destination_of, peer_row_of
from amqproute.relay.holds import HOLD_NOTES, LAST_HOLD_NOTES
from amqproute.relay.relay import NOTE, Relay
from amqproute.relay.relay_context import RelayEnvironment
from amqproute.relay.routing_decision import RoutingDecisions
from amqproute.services import access_commands, age_clock, connection_commands, message_access
from amqproute.services.age_clock import AgeClock, ClockWatch, awake_clock
from amqproute.services.delay_reports import DELAY_NOTES, DelayReports
from amqproute.services.health_checks import JournalCheckFacts, StoreFacts
from amqproute.services.health_rules import BrokerFacts, ContractFacts, HealthLimits
from amqproute.services.management_node import MANAGEMENT, SYNONYMS, ManagementService
from amqproute.services.node_changes import NodeChanges
from amqproute.services.peer_probe import PeerProbes, ProbeService
from amqproute.services.reply_paths import REPLY_NOTES, ReplyPaths
from amqproute.services.sender_reports import Reporter
from amqproute.services.transfer import TransferService
from amqproute.services.watermarks import Watermarks
from amqproute.store.model import DamagedEntry, StoreRecovery
from amqproute.store.sqlite import SqliteStore
from amqproute.store.start_evidence import holdings_of
from amqproute.store.store_files import STORE_FILE
from amqproute.store.store_listener import StoreListener
from amqproute.store.store_sizes import sizes_for
from amqproute.turn_scheduler import Pause, TurnScheduler
from amqproute.values import (
    Principal,
)

log = Logger()


def now_ms() -> int:
    """Return the wall clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


_T = TypeVar("_T")


class _StoreFailures(StoreListener):
    """Stops publishing, or the daemon, when the store fails."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def store_died(self, error: StoreError) -> None:
        self._application.store_died(error)

    def disk_full(self, error: StoreError) -> None:
        self._application.broker.gate.close(STORE, str(error))

    def database_damaged(self, error: StoreError) -> None:
        self._application.broker.gate.close(DAMAGE, str(error))

    def entries_damaged(self, queue: str, damages: Sequence[DamagedEntry]) -> None:
        self._application.entries_damaged(queue, damages)


class Application:
    """The daemon, assembled.

    Args:
        config: the configuration.
        reactor: the reactor.
        on_death: called, once, when the store cannot write any more: nothing can be accepted.

    Attributes:
        container_id: known once started.
        listeners: the listeners that listen.
        is_started: everything has been opened.
        is_stopping: the daemon is about to end.
    """

    def __init__(
        self, config: Config, reactor: IReactor, on_death: Callable[[str], None] = lambda _: None
    ) -> None:
        self.reloader = ConfigReloader(config)
        self._on_death = on_death
        self.container_id = ""
        self.listeners: list[Listener] = []
        self._reactor = reactor
        self._random = random.SystemRandom()
        self._stream = ""
        self._store_failure: str | None = None
        self._is_open = False
        self._early_damage: list[tuple[str, Sequence[DamagedEntry]]] | None = []
        state = config.state_directory
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.clock = AgeClock(time.time_ns, awake_clock())
        self.clock.when_slept = self._slept
        self.clock_watch = ClockWatch(self.clock, reactor, self._problems_changed, self._postpone)
        self.on_problems_changed: Callable[[], object] = lambda: None
        self._receipt_clock = ReceiptClock(reactor)
        self.journaling = Journaling(config, reactor, lambda: self.broker.gate)
        room = os.statvfs(state)
        self.store = SqliteStore(
            str(state / STORE_FILE),
            reactor,
            clock_ms=self._receipt_clock.now_ms,
            sizes=sizes_for(room.f_blocks * room.f_frsize),
            listener=_StoreFailures(self),
            outbox=self.journaling.outbox,
            witness=partial(testimony, state / DIRECTORY) if config.journal.enabled else None,
        )
        self._staging_expiry = StagingExpiry(self.store.staging, reactor, self.clock.now_ms, config)
        self.certificates = OwnCertificates(
            config, reactor, self._problems_changed, self._dial_again, self._tls_connections
        )
        self._connector: Connector | None = None
        self._agent: ConnectAgent | None = None
        self.access = AccessControl(
            config,
            reactor,
            lambda function, name, password: deferToThreadPool(
                reactor, reactor.getThreadPool(), function, name, password
            ),
            lambda: now_ms() / 1000,
        )
        limits = config.limits
        self._turns = TurnScheduler(reactor, time.thread_time)
        self._pause: Pause = partial(self._turns.pause, "monitoring", "")
        self.broker = Broker(
            self.store,
            reactor,
            self.clock.now_ms,
            lambda: f"dynamic-{uuid.uuid4()}",
            budget=MemoryBudget(4 * limits.queue_memory_bytes),
            journal=self.journaling.journal,
            pause=partial(self._turns.pause, "nodes", ""),
        )
        self.dashboard: BrokerDashboard | None = None
        self.web = HttpService(config, reactor, self.access, lambda: now_ms() / 1000, self._turns)
        self.inventory = NodeChanges(
            self.broker,
            lambda options: described(read_node(options), config),
            self.store.next_id,
            describe_route=lambda options: describe_route(options, self.config),
            most_nodes=limits.max_nodes,
        )
        self.declarations = HostedDeclarations(self.broker, self.inventory, reactor)
        self.realms = AccessRealms(config.realms, self.access.grants)
        self.inventory.when_declared = self.declarations.watch
        self.inventory.when_policies_changed = self.declarations.policies_changed
        self.receipts = Receipts(lambda principal: suppresses(self.config, principal))
        self.probes = PeerProbes(self.clock.now_ms)
        self.decisions: RoutingDecisions | None = None
        self.contracts = ActiveContracts(
            reactor,
            self.broker.accounts,
            lambda principal: contract_of(principal, self.config),
            self.broker.recent,
        )
        self.links = AttachedLinks(self.broker, lambda: self.config, self.access, self.contracts)
        self.log_in_recheck = LogInRecheck(
            reactor,
            self.access.realms,
            self.access.users,
            lambda: chain(self.links.connections, self.web.log_ins()),
            config.users.recheck,
        )
        self.inventory.when_gone = self.links.detach_removed_nodes
        self._targets = make_targets(
            lambda: self.config, lambda domain: domain in self.inventory.routes
        )
        self.resolver = make_resolver(config, reactor, self._targets, turns=self._turns)
        self._inbound = make_inbound_trust(lambda: self.config, self.resolver)
        self.relay: Relay | None = None
        self.transfer: TransferService | None = None
        self.reporter: Reporter | None = None
        self.delays: DelayReports | None = None
        self.watermarks: Watermarks | None = None
        self.draining: DrainMode | None = None
        self.replies = ReplyPaths(
            self.broker,
            reactor,
            lambda: own_domain(self.config),
            self.access.allows,
            lambda: str(uuid.uuid4()),
        )
        self.routing = MessageRouting(
            lambda: self.config, self.access, self.inventory, self.replies
        )
        self._receipt_expiry = ReceiptExpiry(
            self.store, self.receipts, reactor, self._receipt_clock, config.relay.receipt_lifetime
        )
        self.branches: BranchRegistry | None = None
        self.shared: FrontendContext | None = None
        self.amqp10: Amqp10Context | None = None
        self.hosts = ConfiguredHosts(
            self.broker,
            self.access,
            lambda: self.routing.router().own_names,
            lambda: self.links.connections,
        )
        self.delays_of_reactor = ReactorDelay(reactor)
        self.tracing: RunningTracing | None = None
        self.metrics: MetricsService | None = None
        self.health: HealthProbes | None = None
        self.readiness = Readiness(self)
        self.is_started = False
        self.is_stopping = False
        self._places = AcceptPolicy(limits.max_connections)
        self._scheduler = ConnectionScheduler(self._reactor, time.thread_time, turns=self._turns)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.reloader.config

    # -- parts -------------------------------------------------------------------------------------

    def _make_relay(self) -> Relay:
        config = self.config
        relay = config.relay
        pace = ConnectPace(
            connect_seconds=min(10.0, relay.connect_timeout), total_seconds=relay.connect_timeout
        )
        self._connector = connector = Connector(
            self._reactor,
            self.certificates.contexts,
            pace=pace,
            limits=pump_limits(self.config),
            scheduler=self._scheduler,
            policy_for=lambda domain: peer_policy(self.config, domain),
            tlsa=self.resolver.tlsa,
            targets=self._targets,
        )
        self.decisions = decisions = RoutingDecisions(connector.demand_for)
        self._agent = agent = ConnectAgent(
            self.resolver,
            connector,
            RelayIdentity(
                self.container_id,
                self._stream,
                lambda: self.config,
                self.certificates.contexts,
                None if self.tracing is None else self.tracing.ids,
            ),
            self._reactor,
            self.clock.now_ms,
            relay.connect_timeout + config.limits.handshake_timeout,
            decisions,
            self.journaling.journal,
        )
        self.routing.domain_of = agent.domain_of
        return Relay(
            self.broker,
            agent,
            RoutesInForce(self.routing.router),
            RelayEnvironment(self._reactor, self.clock.now_ms, self._random.random, self._turns),
            relay_terms(config),
            QueueLimits(
                resident_messages=config.limits.queue_memory_messages,
                resident_bytes=config.limits.queue_memory_bytes,
                ttl_ms=int(relay.lifetime * 1000),
            ),
        )

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything, in order.

        Raises:
            AmqprouteError: a part cannot start; what was started is stopped again.
        """
        try:
            await self._start()
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> None:
        self._places.limit = make_room_for_descriptors(self.config.limits.max_connections)
        grammar.prepare()  # before the first client with a selector needs it
        config = self.config
        adopt_plugins(config, installed_plugins(), self._reactor.seconds)
        recovery = await self.store.open()
        self._is_open = True
        losses = None
        if recovery.accepted or (recovery.is_restored and self.journaling.kept is not None):
            losses = await deferToThreadPool(  # before new records
                self._reactor,
                self._reactor.getThreadPool(),
                look_for_losses,
                config.state_directory / DIRECTORY,
                partial(holdings_of, self.store.path),
            )
        identity = await identify(self.store, recovery, config.container_id)
        self.container_id, self._stream = identity.container_id, identity.stream
        self.routing.container_id = self.container_id
        await self.journaling.begin(
            recovery, self.store, self.container_id, self._stream, identity.former_stream
        )
        if config.tracing.enabled:
            await self._start_tracing(recovery)
        self.journaling.configured(config)
        branches = recovery.notes.get(BRANCH_NOTES, {})
        recovery.queues.pop(BRANCH_ROWS, None)  # for no node: branches know their entries
        self.broker.recovered_nodes.recovered(
            recovery.queues, recovery.notes.get(NOTES, {}), holds_of(branches)
        )
        self.inventory.recovered(recovery.notes)
        self._recover_accounts(recovery.notes.get(ACCOUNT_NOTES, {}), recovery.accounts)
        self.receipts.recovered(recovery.received)
        self._receipt_clock.begin(recovery.received_ms or self.clock.now_ms())
        self.broker.recover_topologies(recovery.notes)
        self.hosts.prepare(config)()
        self.inventory.declare(configured(config))
        self.hosts.warn_of_unknown()
        self.declarations.recovered()
        self.relay = self._make_relay()
        self.relay.dead_letter_name = config.relay.dead_letter
        self.transfer = self.routing.begin(self.relay)
        self._wire_services()
        self.relay.recovered(
            *(recovery.notes.get(kind, {}) for kind in (NOTE, HOLD_NOTES, LAST_HOLD_NOTES))
        )
        self._take_up_damage()
        self._warn_of_recovered_nodes()
        for topology in self.broker.topologies.values():
            topology.warn_of_dormant()
            topology.go_on()
        limits = config.limits
        self.shared = FrontendContext(
            NodeAccess(self.broker, self.transfer, self._auto_create),
            self.relay,
            self.receipts,
            FrontendLimits(
                link_credit=limits.link_prefetch,
                links=limits.max_links,
                memory_bytes=limits.memory,
                delivery_seconds=limits.delivery_timeout,
                unsettled=limits.unsettled_per_link,
                unsettled_bytes=limits.queue_memory_bytes,
                suspended_seconds=int(limits.resume_timeout),
            ),
            self.clock.now_ms,
            TransactionTerms(
                self.broker.begin,
                self._reactor,
                lambda: uuid.uuid4().bytes,
                TransactionLimits(timeout_seconds=limits.transaction_timeout),
            ),
            ConfiguredPolicy(
                lambda: self.config,
                self.transfer,
                self.relay,
                self.probes,
                self.contracts,
                self.hosts.hosts,
            ),
            self._stream,
        )
        self.amqp10 = Amqp10Context(
            self.shared,
            TerminusResolver(
                self.shared.nodes,
                self._qualified,
                self.clock.now_ms,
                lambda: self.config.unsupported_filter == "drop",
            ),
            tolerates_missing_body=lambda: self.config.tolerate_missing_body,
        )
        self.links.amqp10 = self.amqp10
        self.links.set_timeouts(config)
        suspended = self.amqp10.suspended
        self.watermarks = make_watermarks(
            self.broker, self.store, self._reactor, self.shared, suspended, self.relay, config
        )
        self.branches = offer_branches(
            config.distributed_transactions,
            self.shared,
            self.relay,
            self.store,
            self.access.allows,
            self.clock.now_ms,
            branches,
        )
        if self.branches is not None:
            self.inventory.keeping = self.branches.keeping
        suspended.recovered(recovery.notes.get(RESOLVED_NOTES, {}))
        self._receipt_expiry.sweep()
        self._staging_expiry.sweep()
        amqp09 = Amqp09Context(
            self.shared,
            self.declarations,
            lambda: f"gen-{uuid.uuid4()}",
            self.realms,
        )
        for listen in config.listen:
            await self._listen(listen, self.amqp10, amqp09)
        self._offer_monitoring()
        self.web.open(config.management, self.certificates.contexts, self.certificates.gate)
        if config.management.http is not None:
            self._serve_pages(config)
        self.resolver.is_capable().addCallback(self._warn_without_dnssec)
        self.certificates.watch()
        if self.delays is not None:
            self.delays.recovered(recovery.notes.get(DELAY_NOTES, {}))
            self.delays.start()
        self.replies.recovered(recovery.notes.get(REPLY_NOTES, {}))
        self.delays_of_reactor.start()
        self.journaling.watch(self.store, self.broker)
        self.certificates.gate.start()
        self.clock_watch.start()
        self.relay.start()
        self._register_components()
        if losses is not None:
            log_losses(losses)
            if recovery.accepted:
                assert self.reporter is not None
                reporter = self.reporter if recovery.tells_senders else None
                count = await settle_losses(losses, recovery.accepted, reporter, self.broker)
                self.journaling.loss_accepted(recovery.accepted, count)
                self.store.settle_loss()
        self.log_in_recheck.begin()
        self.is_started = True

    async def _start_tracing(self, recovery: StoreRecovery) -> None:
        # Here, because its libraries belong to an extra.
        from amqproute.daemon.tracing_assembly import Tracing

        journal = self.journaling.kept
        assert journal is not None  # the configuration demands one
        key = await find_key(self.store, recovery, os.urandom)
        tracing = Tracing(self.config, self._reactor, self.container_id, key, journal)
        tracing.start()
        self.tracing = tracing

    def _recover_accounts(
        self, notes: Mapping[str, bytes], held: Mapping[int, tuple[int, int]]
    ) -> None:
        empty = self.broker.accounts.recovered(notes, held)
        if empty:
            transaction = self.store.begin()
            for key in empty:
                transaction.note(ACCOUNT_NOTES, key, None)
            transaction.commit().addErrback(_log_failure, "forgetting empty accounts")

    def _auto_create(self, name: str, principal: Principal) -> Deferred[Queue] | None:
        if not self.config.auto_create:
            return None
        return self.inventory.make_queue(name, str(principal))

    def _qualified(self, name: str) -> str:
        config = self.config
        host, local = split_host(name)
        domains = config.virtual_hosts[host].domains if host in config.virtual_hosts else ()
        if not host:
            domains = config.domains
        return f"{local}@{domains[0]}" if config.qualify_dynamic and domains else local

    def _wire_services(self) -> None:
        assert self.transfer is not None
        assert self.relay is not None
        relay = self.relay
        self.broker.services[TRANSFER_NODE] = self.transfer
        self.broker.services[PROBE_NODE] = ProbeService(self.broker, self.transfer, self.probes)
        management = ManagementService(
            self.broker,
            self.access.allows,
            self.clock.now_ms,
            inventory=self.inventory,
            destination_of=partial(destination_of, relay.destinations),
            connections=self.links.connection_rows,
            links=self.links.link_index,
            close_link=self.links.close_link,
        )
        management.turns = self._turns
        links = self.links
        management.show("connection", links.connection_rows, links.connection_index)
        management.narrow("connection", links.connections_with)
        management.narrow("link", links.links_with)
        offer_relay_operations(
            management,
            self.broker,
            relay,
            self.routing.router,
            self.access.allows,
            self.clock.now_ms,
            lambda flush: DaemonPeerTester(
                lambda: self.config, self._reactor, self.inventory.route_rules, flush
            ),
        )
        management.show("virtual-host", self.hosts.rows)
        management.show("transaction", self.links.transaction_rows)
        age_clock.register(management, self.clock_watch)
        connection_commands.register(management, self.links.close_connection)
        management.show("certificate", lambda: [self.certificates.gate.row()])
        management.show("contract", self.links.contract_rows)
        management.show("probe", self.probes.rows)
        management.show("journal", self.journaling.rows)
        assert self.decisions is not None
        management.show(
            "listener", lambda: [*(each.row() for each in self.listeners), *self.web.rows()]
        )
        management.show("decision", self.decisions.rows)
        survey = HealthSurvey(
            self._pause,
            self.clock.now_ms,
            self.broker,
            relay,
            lambda: limits_of(self.config.status),
            self.broker_facts,
        )
        management.offer("STATUS", survey.status)
        self.health = HealthProbes(
            self._reactor,
            survey,
            self.resolver,
            self,
        )
        self.health.register(management)
        self.draining = DrainMode(
            self._reactor, self.broker, relay, lambda: self.links.connections, self._pause
        )
        self.draining.register(management)
        for name in (MANAGEMENT, *SYNONYMS):
            self.broker.services[name] = management
        self._offer_access(management)
        self.web.offer(management, self.journaling.directory, self._monitors().require)
        reporter = make_reporter(
            self.broker,
            relay,
            self.routing.router,
            report_terms(self.config, self.container_id),
        )
        self.reporter = reporter
        self.delays = DelayReports(
            self.broker, self.store, reporter, self._reactor, self.config.reports.delay_after
        )

    def _offer_access(self, management: ManagementService) -> None:
        """Offer what concerns addresses, users, tokens and the configuration."""
        relay, decisions = self.relay, self.decisions
        assert relay is not None
        assert decisions is not None
        message_access.register(
            management,
            message_access.MessagePublisher(self.broker, self._target, relay.admit),
            lambda text: message_access.explain_address(
                text,
                self.broker,
                self.routing.router(),
                decisions.row,
                partial(peer_row_of, relay.destinations, relay.holds),
            ),
        )
        self.journaling.register(management)
        access_commands.register(
            management,
            self.web.tokens,
            self.access.users,
            lambda: self.access.rules,
            self.access.allows,
        )
        configuration = ConfigInForce(
            lambda: self.config,
            self.reload,
            self._in_thread,
            self.access.digest_key,
        )
        ConfigCommands(configuration, self.access.allows).register(management)

    def _in_thread(self, function: Callable[[], _T]) -> Deferred[_T]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function)

    def _target(self, text: str, principal: Principal) -> ITarget:
        assert self.shared is not None
        return self.shared.nodes.target(text, principal)

    async def _listen(
        self, listen: ListenSettings, context: Amqp10Context, amqp09: Amqp09Context
    ) -> None:
        authenticator = self.access.authenticator(listen.mechanisms, listen.plain_without_tls)
        listener = Listener(
            self._reactor,
            listen.endpoint,
            accepting(self.config, self.container_id, listen, authenticator, context, amqp09),
            tls=ListenerTls(
                self.certificates.contexts,
                listen.tls,
                listen.client_certificate,
                self._inbound,
                lambda remote, error: self.probes.note("tls", remote, "", error.code, str(error)),
            ),
            terms=accept_terms(listen),
            policy=self._places,
            resources=ConnectionResources(pump_limits(self.config), self._scheduler, self._turns),
        )
        self.certificates.gate.open(listener, has_tls=listen.tls != "none")
        self.listeners.append(listener)

    def _serve_pages(self, config: Config) -> None:
        management = self.broker.services[MANAGEMENT]
        assert isinstance(management, ManagementService)
        parts = DashboardParts(
            self.broker,
            self.access,
            management,
            self.links,
            config.state_directory / DIRECTORY if config.journal.enabled else None,
            self.container_id,
        )
        self.dashboard = BrokerDashboard(
            self._reactor, lambda: self.config, self.clock.now_ms, parts, self._pause
        )
        self.dashboard.open(self.web)

    def _problems_changed(self) -> None:
        self.on_problems_changed()

    def _slept(self) -> None:
        """Handle a suspend of the machine: destinations overdue by it are tried first."""
        if self.relay is not None:
            log.info("the machine was suspended; overdue destinations are tried once more")
            self.relay.spare()
            self._reactor.callLater(0, self._dial_again)

    def _dial_again(self) -> None:
        if self.relay is not None:
            for destination in tuple(self.relay.destinations.values()):
                destination.wake()

    def _postpone(self, ms: int) -> Deferred[None]:
        """Shift the start of all ages: the wall clock was set ahead."""
        transaction = self.store.begin()
        now_ms = self.clock.now_ms() + ms
        transaction.postpone(ms, now_ms)
        return transaction.commit().addCallback(lambda _: self.broker.postpone(ms, now_ms))

    def _warn_without_dnssec(self, is_capable: bool) -> None:
        config = self.config
        demanded = demanding_dnssec(config)
        if not is_capable and (demanded or config.resolver.dnssec == "require"):
            log.warn(
                "DNSSEC is required ({what}) and does not come through: messages will wait "
                "(dns.not-dnssec-capable); `amqproute resolve DOMAIN` says why",
                what=", ".join(f"peers.{domain}.level" for domain in demanded)
                or "resolver.dnssec: require",
            )

    def _warn_of_recovered_nodes(self) -> None:
        for name, count in self.broker.recovered_nodes.messages.items():
            log.warn(
                "the store holds {messages} for node {node}, which the configuration does "
                "not name: they are kept; declare the node to get at them",
                messages=counted(count, "message"),
                node=name,
            )

    def entries_damaged(self, key: str, damages: Sequence[DamagedEntry]) -> None:
        """Have nodes report damaged entries to their senders, once there are nodes."""
        if self._early_damage is None:
            self.broker.damaged(key, damages)
        else:
            self._early_damage.append((key, damages))

    def _take_up_damage(self) -> None:
        """Report damage found before the nodes were declared."""
        early, self._early_damage = self._early_damage or (), None
        for key, damages in early:
            self.broker.damaged(key, damages)

    def store_died(self, error: Exception) -> None:
        """Stop: nothing can be accepted any more."""
        self._store_failure = str(error)
        self._on_death(str(error))

    @property
    def failure(self) -> str | None:
        """Description of a fault of the daemon; None while it is healthy."""
        return self._store_failure

    @property
    def problems(self) -> str:
        """Problems and their remedies; empty if there are none."""
        marks = self.watermarks.status() if self.watermarks is not None else ""
        return "; ".join(
            filter(None, (marks, self.certificates.gate.status(), self.clock_watch.status()))
        )

    # -- reload ------------------------------------------------------------------------------------

    def reload(self, config: Config) -> ReloadReport:
        """Apply a new configuration: all settings that a reload can change, or none.

        Raises:
            AmqprouteError: part of it cannot be used; nothing has changed.
        """
        report = self.reloader.reload(config)
        if report.waiting:
            log.warn(
                "changes of {settings} take effect at the next start",
                settings=named(report.waiting),
            )
        return report

    def _register_components(self) -> None:
        """Register the components that follow the configuration, in the order of application."""
        for name, prepare in (
            ("virtual hosts", self.hosts.prepare),
            ("nodes", self._prepare_nodes),
            ("access", self.access.prepare),
            ("realms", lambda config: partial(self.realms.adopt, config.realms)),
            ("listeners", self._prepare_listeners),
            ("certificates", self.certificates.prepare),
            ("routing", self.routing.prepare),
            ("resolver", self._prepare_resolver),
            ("reports", self._prepare_reports),
            ("watermarks", self._prepare_watermarks),
            ("receipts", self._receipt_expiry.prepare),
            ("staging", self._staging_expiry.prepare),
            ("journal", self.journaling.prepare),
            ("connections", self.links.prepare),
            ("http", self.web.prepare),
            ("log-ins", lambda config: self.log_in_recheck.prepare(config.users.recheck)),
        ):
            self.reloader.register(name, prepare)
        if self.tracing is not None:
            self.reloader.register("tracing", self.tracing.prepare)

    def _prepare_nodes(self, config: Config) -> Apply:
        apply_nodes = self.inventory.prepare(configured(config))

        def apply() -> None:
            apply_nodes()
            self.declarations.recovered()

        return apply

    def _prepare_listeners(self, config: Config) -> Apply:
        by_endpoint = {listen.endpoint: accept_terms(listen) for listen in config.listen}

        def apply() -> None:
            for listener in self.listeners:
                listener.adopt(by_endpoint[listener.description])

        return apply

    def _prepare_resolver(self, config: Config) -> Apply:
        return partial(self.resolver.set_own, own_places(config))

    def _prepare_reports(self, config: Config) -> Apply:
        terms = report_terms(config, self.container_id)

        def apply() -> None:
            assert self.delays is not None
            self.delays.reporter.terms = terms
            self.delays.after_seconds = config.reports.delay_after

        return apply

    def _prepare_watermarks(self, config: Config) -> Apply:
        terms = disk_terms(config)

        def apply() -> None:
            assert self.watermarks is not None
            self.watermarks.terms = terms

        return apply

    def _tls_connections(self) -> list[EngineProtocol]:
        """Return the open connections, in and out."""
        found = [each for listener in self.listeners for each in listener.connections]
        return found + ([] if self._connector is None else [*self._connector.connections])

    # -- stop --------------------------------------------------------------------------------------

    async def stop(self, extend: Callable[[float], object] | None = None) -> None:
        """Stop gracefully: accept nothing new, finish work in progress, close connections.

        Args:
            extend: called with seconds while waiting, to keep a service manager patient.
        """
        self.is_stopping = True
        shared, relay = self.shared, self.relay
        if shared is None or relay is None:
            await self._abandon()
            return
        await DeferredList([listener.stop_accepting() for listener in self.listeners])
        await end_traffic(self._reactor, shared, relay, self.config.shutdown_timeout, extend)
        await self._abandon()

    async def _abandon(self) -> None:
        """Close everything that is open, in any state.

        Connections first, since closing them releases messages and ends transactions; then
        everything with timers; and the store when nothing is left that could write to it.
        """
        if self.relay is not None:
            self.relay.stop_sending()
        await DeferredList(
            [self.web.stop(), *(listener.stopService() for listener in self.listeners)]
        )
        self.listeners.clear()
        if self._connector is not None:
            await self._connector.drop_all()
        self._stop_timers()
        is_orderly = True
        for end in (self._write_the_rest, self.store.close):
            try:
                await end()
            except AmqprouteError as error:
                is_orderly = False
                log.error("the store did not close well: {error}", error=str(error))
        await self.journaling.end(is_orderly)
        if self.tracing is not None:
            await self.tracing.stop()

    async def _write_the_rest(self) -> None:
        try:
            if self._is_open:
                await flush(self.store)
                self.journaling.let_go(self.broker)
                await self.journaling.take_stock(self.store, None)
        finally:
            self._stop_timers()  # the last arrivals may have started timers

    def _stop_timers(self) -> None:
        self.journaling.stop_watching()
        self.delays_of_reactor.stop()
        if self.dashboard is not None:
            self.dashboard.stop()
        self.clock_watch.stop()
        self.certificates.stop()
        if self.branches is not None:
            self.branches.stop()
        if self.delays is not None:
            self.delays.stop()
        if self.watermarks is not None:
            self.watermarks.stop()
        if self.draining is not None:
            self.draining.stop()
        self.replies.stop()
        self.contracts.stop()
        self.log_in_recheck.stop()
        self.access.stop()
        if self.amqp10 is not None:
            self.amqp10.suspended.stop()
        self.declarations.stop()
        self.broker.stop()
        self._receipt_expiry.stop()
        self._staging_expiry.stop()
        if self.relay is not None:
            self.relay.stop()

    # -- what operators see ------------------------------------------------------------------------

    def _make_metrics(self) -> MetricsService:
        assert self._agent is not None
        assert self.transfer is not None
        assert self.reporter is not None
        assert self.watermarks is not None
        assert self.relay is not None
        parts = MetricsParts(
            self._daemon_facts,
            ReactorParts(self.delays_of_reactor.counts, self._pause),
            lambda: self.listeners,
            self._agent,
            self.broker,
            self.transfer.tally,
            self.reporter.tally,
            self.receipts,
        )
        store = StoreMetrics(
            self.broker,
            self.store,
            self.journaling.kept,
            self.watermarks,
            self.config.limits.memory,
        )
        return make_metrics(
            self._reactor,
            parts,
            store,
            self.relay,
            lambda: self.config,
            self.clock.now_ms,
            self.container_id,
            None if self.tracing is None else self.tracing.facts,
        )

    def _offer_monitoring(self) -> None:
        self.metrics = self._make_metrics()
        monitors = self._monitors()
        Monitoring(self.metrics, self.readiness, monitors).mount(self.web.site)
        management = self.broker.services[MANAGEMENT]
        assert isinstance(management, ManagementService)
        facts = RabbitmqFacts(
            lambda: self.config,
            self.container_id,
            lambda: (self.listeners, self.web.listener),
            TotalsTaker(self._reactor, self.broker, lambda: self.links.connections, self._pause),
            self.readiness.why_not_ready,
        )
        RabbitmqApi(management, facts, monitors.require).add_to(self.web.site)

    def _monitors(self) -> MonitoringAccess:
        return MonitoringAccess(lambda: self.config.management.metrics_networks, self.access.allows)

    def open_listeners(self) -> dict[str, bool]:
        """Return the configured endpoints, and whether each is open."""
        places = {each.description: bool(each.addresses) for each in self.listeners}
        if self.web.listener is not None:
            places[self.web.listener.description] = bool(self.web.listener.addresses)
        return places

    def realm_probes(self) -> Mapping[str, Callable[[], Deferred[str]]]:
        """See `HealthSources.realm_probes`."""
        return self.access.realms.probes()

    @property
    def own_domain(self) -> str:
        """A domain of ours; empty without one."""
        return next(iter(self.config.domains), "")

    @property
    def requires_dnssec(self) -> bool:
        """Whether a setting requires DNSSEC."""
        return self.config.resolver.dnssec == "require" or bool(demanding_dnssec(self.config))

    def health_limits(self) -> HealthLimits:
        """Return the limits of `status` and of health checks."""
        return limits_of(self.config.status)

    def store_facts(self) -> StoreFacts:
        """Return the facts about the store for health checks."""
        room = None if self.watermarks is None else self.watermarks.room
        return StoreFacts(
            self.failure or "",
            self.store.quarantined,
            None if room is None else room.free,
            0 if room is None else disk_terms(self.config).floor(room.total),
        )

    def journal_facts(self) -> JournalCheckFacts | None:
        """Return the facts about the journal for health checks; None without one."""
        kept = self.journaling.kept
        if kept is None:
            return None
        return JournalCheckFacts(kept.figures.fault, kept.lag_seconds, kept.figures.lost)

    def _daemon_facts(self) -> DaemonFacts:
        """Return the facts about the daemon for its metrics."""
        contexts = self.certificates.contexts
        return DaemonFacts(
            now=time.time(),
            is_clock_jumped=bool(self.clock_watch.status()),
            is_draining=bool(self.draining is not None and self.draining.status()),
            is_certificate_invalid=bool(self.certificates.gate.status()),
            chain=() if contexts is None else contexts.loaded.chain,
            places=() if self.watermarks is None else tuple(self.watermarks.places().items()),
            connections=connection_facts(self.links.connections),
            log_ins=self.access.log_ins,
        )

    def broker_facts(self) -> BrokerFacts:
        """Return the facts for `amqproute status` beside nodes and next hops."""
        assert self.relay is not None
        marks = [] if self.watermarks is None else [*self.watermarks.rows()]
        contexts = self.certificates.contexts
        chain = () if contexts is None else contexts.loaded.chain
        now = self.clock.now_ms() / 1000
        return BrokerFacts(
            marks=tuple(
                (str(row["name"]), str(row["reason"]))
                for row in (*marks, self.relay.destination_quota.row())
                if row["state"] != "open"
            ),
            clock=self.clock_watch.status(),
            certificate=self.certificates.gate.status(),
            certificates=tuple(
                (each.subject.rfc4514_string(), each.not_valid_after_utc.timestamp() - now)
                for each in chain
            ),
            contracts=tuple(ContractFacts(*each) for each in self.contracts.limiters()),
            recent=recent_facts(self.broker),
            draining="" if self.draining is None else self.draining.status(),
        )


def demanding_dnssec(config: Config) -> list[str]:
    """Return the peers whose level requires DNSSEC."""
    return [domain for domain in config.peers if config.peer_for(domain).level == "dane"]


def _log_failure(failure: Failure, doing: str) -> None:
    log.failure("{doing} failed", failure, doing=doing)


__all__ = [
    "Application",
    "now_ms",
    "product",
]
