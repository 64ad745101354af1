# SPDX-License-Identifier: Apache-2.0
"""From a configuration to a running house: the only module that names all concrete classes.

The order of starting: store, recovery, nodes, destinations, listeners. Only then does anybody
get in, and only then does anything go out. The order of stopping is the reverse, with a pause in
the middle in which what is under way may come to its end.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.address import PROBE_NODE, TRANSFER_NODE, is_reserved
from amqproute.auth.policy import Verb
from amqproute.auth.realm import Authenticator, Verifier, login_key
from amqproute.broker.broker import Broker
from amqproute.broker.local_transaction import TransactionLimits, TransactionTerms
from amqproute.broker.node_limits import MemoryBudget, QueueLimits
from amqproute.broker.publish_gate import DAMAGE, STORE
from amqproute.broker.queue import Queue
from amqproute.broker.receipts import Receipts
from amqproute.broker.sender_quotas import NOTES as ACCOUNT_NOTES
from amqproute.broker.subscription import NOTES, node_of
from amqproute.broker.topic import Topic
from amqproute.broker.xa_record import NOTES as BRANCH_NOTES
from amqproute.broker.xa_record import ROWS as BRANCH_ROWS
from amqproute.broker.xa_record import holds_of
from amqproute.broker.xa_registry import BranchRegistry
from amqproute.config.access_settings import ListenSettings
from amqproute.config.config_diff import named
from amqproute.config.loader import read_node
from amqproute.config.schema import Config
from amqproute.daemon.certificate_gate import CertificateGate
from amqproute.daemon.config_reload import Apply, ConfigReloader, ReloadReport
from amqproute.daemon.container_identity import identify
from amqproute.daemon.descriptors import make_room_for_descriptors
from amqproute.daemon.disk_watch import disk_terms, make_watermarks
from amqproute.daemon.drain_mode import DrainMode
from amqproute.daemon.health_survey import HealthSurvey, limits_of, recent_facts
from amqproute.daemon.journaling import DIRECTORY, Journaling
from amqproute.daemon.listeners import (
    accept_terms,
    accepting,
    balancers,
    pump_limits,
)
from amqproute.daemon.loss_reports import LossReports, look_for_losses, report_losses, testimony
from amqproute.daemon.management_assembly import offer_branches, offer_relay_operations
from amqproute.daemon.node_assembly import configured, described
from amqproute.daemon.peer_assembly import (
    make_contexts,
    make_inbound_trust,
    make_resolver,
    make_targets,
    own_places,
    peer_policy,
    product,
)
from amqproute.daemon.policy_assembly import (
    contract_of,
    declared_contracts,
    load_users,
    make_policy,
    relay_terms,
    suppresses,
    transfer_rules,
)
from amqproute.daemon.relay_identity import RelayIdentity
from amqproute.daemon.reporting import make_reporter, own_domain, report_terms
from amqproute.daemon.routes import describe_route
from amqproute.daemon.shutdown import drain_connections, flush, wait_until
from amqproute.errors import AmqprouteError, NotAllowed
from amqproute.filters import grammar
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.link_rows import suspended_row
from amqproute.frontends.amqp10.suspended_links import RESOLVED_NOTES
from amqproute.frontends.amqp10.terminus_resolution import TerminusResolver
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.frontends.common.node_access import NodeAccess
from amqproute.interfaces import ITarget
from amqproute.net.accept_policy import AcceptPolicy
from amqproute.net.certificate_reload import FileWatch, StaleConnections, retire, stale
from amqproute.net.connection_scheduler import ConnectionScheduler
from amqproute.net.connector import Connector, ConnectPace
from amqproute.net.listener import Listener
from amqproute.plurals import counted
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.destination_row import peer_row, row_of
from amqproute.relay.holds import HOLD_NOTES, LAST_HOLD_NOTES
from amqproute.relay.relay import NOTE, Relay
from amqproute.relay.routing_decision import RoutingDecisions
from amqproute.routing.table import Router
from amqproute.services import age_clock
from amqproute.services.age_clock import AgeClock, ClockWatch, awake_seconds
from amqproute.services.delay_reports import DELAY_NOTES, DelayReports
from amqproute.services.health_rules import BrokerFacts, ContractFacts
from amqproute.services.management_node import MANAGEMENT, SYNONYMS, EntityType, ManagementService
from amqproute.services.node_changes import NodeChanges
from amqproute.services.peer_probe import PeerProbes, ProbeService
from amqproute.services.reply_paths import REPLY_NOTES, ReplyPaths
from amqproute.services.sender_reports import Reporter
from amqproute.services.transfer import TransferRules, TransferService
from amqproute.services.watermarks import Watermarks
from amqproute.store.ballast import sizes_for
from amqproute.store.model import DamagedEntry, StoreRecovery
from amqproute.store.sqlite import SqliteStore
from amqproute.store.start_evidence import holdings_of, ranges
from amqproute.store.store_files import STORE_FILE
from amqproute.turn_scheduler import TurnScheduler
from amqproute.values import (
    NextHop,
    Principal,
)

log = Logger()

SWEEP_SECONDS = 6 * 3600.0
"""How often receipts that nobody will ask for are looked for."""
CLOSE_SECONDS = 2.0
MOST_NAMED = 4000
"""Characters of one line of the log that names messages."""
"""How long a stopping daemon waits for the other sides to answer its close."""


def now_ms() -> int:
    """Return the wall clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


class Application:
    """A daemon, put together.

    Args:
        config: what to be.
        reactor: where to live.
        on_death: called, once, when the store cannot write any more: nothing can be accepted.

    Attributes:
        container_id: known once started.
        listeners: those that listen.
    """

    def __init__(
        self, config: Config, reactor: Any, on_death: Callable[[str], None] = lambda _: None
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
        self._sweep: Any = None
        state = config.state_directory
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.clock = AgeClock(now_ms, awake_seconds)
        self.clock.when_slept = self._slept
        self.clock_watch = ClockWatch(self.clock, reactor, self._uneasy, self._postpone)
        self.when_uneasy: Callable[[], object] = lambda: None
        self._receipts_ms = 0
        self.journaling = Journaling(config, reactor, lambda: self.broker.gate)
        room = os.statvfs(state)
        sizes = sizes_for(room.f_blocks * room.f_frsize)
        self.store = SqliteStore(
            str(state / STORE_FILE),
            reactor,
            clock_ms=self._receipts_now_ms,
            checkpoint_bytes=sizes.checkpoint,
            remainder_bytes=sizes.remainder,
            segment_bytes=sizes.segment,
            group_bytes=sizes.group,
            ballast_bytes=sizes.ballast,
            on_death=self._store_died,
            on_full=lambda error: self.broker.gate.close(STORE, str(error)),
            on_corrupt=lambda error: self.broker.gate.close(DAMAGE, str(error)),
            outbox=self.journaling.outbox,
            witness=partial(testimony, state / DIRECTORY) if config.journal.enabled else None,
            on_damage=self._damaged,
        )
        self.contexts = make_contexts(config, checks_dates=False)
        self._gate = CertificateGate(reactor, self.contexts, self._uneasy, self._dial_again)
        self._connector: Connector | None = None
        self._agent: ConnectAgent | None = None
        self._watch: FileWatch | None = None
        self._users = load_users(config)
        self._verifier = Verifier(
            reactor,
            lambda function, name, password: deferToThreadPool(
                reactor, reactor.getThreadPool(), function, name, password
            ),
            min(8.0, config.limits.handshake_timeout / 2),
        )
        self._login_key = login_key(state)
        self._policy = make_policy(config)
        limits = config.limits
        self.broker = Broker(
            self.store,
            reactor,
            self.clock.now_ms,
            lambda: f"dynamic-{uuid.uuid4()}",
            budget=MemoryBudget(4 * limits.queue_memory_bytes),
            journal=self.journaling.journal,
        )
        self.inventory = NodeChanges(
            self.broker,
            lambda options: described(read_node(options), config),
            self.store.next_id,
            describe_route=lambda options: describe_route(options, self.config),
            most_nodes=limits.max_nodes,
        )
        self.inventory.when_gone = self._detach_removed_nodes
        self.inventory.when_routed = self._routes_changed
        self.receipts = Receipts(lambda principal: suppresses(self.config, principal))
        self.probes = PeerProbes(self.clock.now_ms)
        self.decisions: RoutingDecisions | None = None
        self.contracts = ActiveContracts(
            reactor,
            self.broker.accounts,
            lambda principal: contract_of(principal, self.config),
            self.broker.recent,
        )
        self._targets = make_targets(
            lambda: self.config, lambda domain: domain in self.inventory.routes
        )
        self._turns = TurnScheduler(reactor, time.thread_time)
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
            self._allows,
            lambda: str(uuid.uuid4()),
        )
        self.branches: BranchRegistry | None = None
        self.shared: FrontendContext | None = None
        self.amqp10: Amqp10Context | None = None
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
            self.contexts,
            pace=pace,
            limits=pump_limits(self.config),
            scheduler=self._scheduler,
            policy_for=lambda domain: peer_policy(self.config, domain),
            tlsa=self.resolver.tlsa,
            targets=self._targets,
        )
        self.decisions = decisions = RoutingDecisions(connector.demand_for)
        agent = ConnectAgent(
            self.resolver,
            connector,
            RelayIdentity(self.container_id, self._stream, lambda: self.config, self.contexts),
            self._reactor,
            self.clock.now_ms,
            relay.connect_timeout + config.limits.handshake_timeout,
            decisions,
            self.journaling.journal,
        )
        self._agent = agent
        return Relay(
            self.broker,
            agent,
            lambda key: self._rules(self.config).router.hop_of_key(key),
            self._reactor,
            self.clock.now_ms,
            self._random.random,
            relay_terms(config),
            QueueLimits(
                resident_messages=config.limits.queue_memory_messages,
                resident_bytes=config.limits.queue_memory_bytes,
                ttl_ms=int(relay.lifetime * 1000),
            ),
            way=lambda domain: self._router_now().hop(domain).key,
            turns=self._turns,
        )

    def _router_now(self) -> Router:
        """Return the router in force; before there is one, that of the configuration."""
        if self.transfer is None:
            return self._rules(self.config).router
        return self.transfer.rules.router

    def _rules(self, config: Config) -> TransferRules:
        return transfer_rules(
            config,
            self.container_id,
            self._allows,
            lambda container: None if self._agent is None else self._agent.domain_of(container),
            self.inventory.route_rules(),
        )

    def _routes_changed(self) -> None:
        """Go by the routes that operators have made and deleted."""
        assert self.transfer is not None
        assert self.relay is not None
        relay = self.config.relay
        self.transfer.reload(self._rules(self.config))
        self.relay.reload(relay_terms(self.config), int(relay.lifetime * 1000), relay.dead_letter)

    def _allows(self, principal: Principal, verb: Verb, node: str) -> bool:
        """By the rules in force."""
        return self._policy.allows(principal, verb, node)

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything, in order.

        Raises:
            AmqprouteError: something cannot be had; what was started is stopped again.
        """
        try:
            await self._start()
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> None:
        self._places.limit = make_room_for_descriptors(self.config.limits.max_connections)
        grammar.prepare()  # not while the first client with a selector waits
        recovery = await self.store.open()
        self._is_open = True
        losses = None
        if recovery.accepted or (recovery.is_restored and self.journaling.kept is not None):
            losses = await self._look_for_losses()  # before new records
        identity = await identify(self.store, recovery, self.config.container_id)
        self.container_id, self._stream = identity.container_id, identity.stream
        await self.journaling.begin(
            recovery, self.store, self.container_id, self._stream, identity.former_stream
        )
        config = self.config
        self.journaling.configured(config)
        branches = recovery.notes.get(BRANCH_NOTES, {})
        recovery.queues.pop(BRANCH_ROWS, None)  # no node's: branches know what is there
        self.broker.recovered_nodes.recovered(
            recovery.queues, recovery.notes.get(NOTES, {}), holds_of(branches)
        )
        self.inventory.recovered(recovery.notes)
        self._recover_accounts(recovery.notes.get(ACCOUNT_NOTES, {}), recovery.accounts)
        self.receipts.recovered(recovery.received)
        # On from the newest of them: over a restart the wall clock proves nothing.
        newest_ms = recovery.received_ms or self.clock.now_ms()
        self._receipts_ms = newest_ms - round(self._reactor.seconds() * 1000)
        self.inventory.declare(configured(config))
        self.relay = self._make_relay()
        self.relay.dead_letter_name = config.relay.dead_letter
        self.transfer = TransferService(self.broker, self.relay, self._rules(config))
        self._wire_services()
        self.relay.recovered(
            *(recovery.notes.get(kind, {}) for kind in (NOTE, HOLD_NOTES, LAST_HOLD_NOTES))
        )
        self._take_up_damage()
        self._warn_of_recovered_nodes()
        limits = config.limits
        self.shared = FrontendContext(
            self.broker,
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
            self._reactor.seconds,
            TransactionTerms(
                self.broker.begin,
                self._reactor,
                lambda: uuid.uuid4().bytes,
                TransactionLimits(timeout_seconds=limits.transaction_timeout),
            ),
            serves=self._serves,
            lock_seconds=lambda: self.config.limits.lock_timeout,
            when_peer=self.relay.peer_called,
            contracts=self.contracts,
            stream=self._stream,
            when_seen=self.probes.note,
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
        suspended = self.amqp10.suspended
        self.watermarks = make_watermarks(
            self.broker, self.store, self._reactor, self.shared, suspended, self.relay, config
        )
        self.branches = offer_branches(
            config.distributed_transactions,
            self.shared,
            self.relay,
            self.store,
            self._allows,
            self.clock.now_ms,
            branches,
        )
        if self.branches is not None:
            self.inventory.keeping = self.branches.keeping
        suspended.recovered(recovery.notes.get(RESOLVED_NOTES, {}))
        self._forget_old_receipts()
        for listen in config.listen:
            await self._listen(listen, self.amqp10)
        self.resolver.is_capable().addCallback(self._warn_without_dnssec)
        if self.contexts is not None:
            self._watch = FileWatch(
                self.contexts, self._reactor, config.tls.watch, self._certificates_changed
            )
            self._watch.start()
        if self.delays is not None:
            self.delays.recovered(recovery.notes.get(DELAY_NOTES, {}))
            self.delays.start()
        self.replies.recovered(recovery.notes.get(REPLY_NOTES, {}))
        self.journaling.watch(self.store, self.broker)
        self._gate.start()
        self.clock_watch.start()
        self.relay.start()
        self._register_components()
        if losses is not None:
            await self._settle_losses(losses, recovery)

    async def _look_for_losses(self) -> LossReports:
        """Ask the journal what the store has lost."""
        journal = self.config.state_directory / DIRECTORY
        there = partial(holdings_of, self.store.path)
        pool = self._reactor.getThreadPool()
        return await deferToThreadPool(self._reactor, pool, look_for_losses, journal, there)

    async def _settle_losses(self, losses: LossReports, recovery: StoreRecovery) -> None:
        """Say what is missing, which an operator has accepted or a restore has brought with it."""
        assert self.reporter is not None
        count = len(losses.ids)
        if count:
            log.warn(
                "messages that the journal says are in the store are not there: entries {ids}; "
                "amqproute journal find --entry NUMBER says what each of them was",
                ids=ranges(losses.ids, MOST_NAMED),
            )
        if not recovery.accepted:
            return
        reports = 0
        if recovery.tells_senders:
            reports = await report_losses(losses, self.reporter, self.broker)
        log.warn(
            "{count} messages are missing by the journal ({finding}), {reports} reports to senders",
            count=count,
            finding=recovery.accepted,
            reports=reports,
        )
        self.journaling.loss_accepted(recovery.accepted, count)
        self.store.settle_loss()

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
        domains = self.config.domains
        return f"{name}@{domains[0]}" if self.config.qualify_dynamic and domains else name

    def _serves(self, hostname: str | None) -> bool:
        assert self.transfer is not None
        if not self.config.strict_hostname or not hostname:
            return True
        return hostname.lower().rstrip(".") in self.transfer.rules.router.own_names

    def _wire_services(self) -> None:
        assert self.transfer is not None
        assert self.relay is not None
        self.broker.services[TRANSFER_NODE] = self.transfer
        self.broker.services[PROBE_NODE] = ProbeService(self.broker, self.transfer, self.probes)
        management = ManagementService(
            self.broker,
            self._allows,
            self.clock.now_ms,
            inventory=self.inventory,
            destinations=self._destination_rows,
            connections=self._connection_rows,
            links=self._link_rows,
            close_link=self._close_link,
        )
        offer_relay_operations(
            management, self.broker, self.relay, self._router_now, self._allows, self.clock.now_ms
        )
        age_clock.register(management, self.clock_watch, self._allows)
        management.register(EntityType("certificate", lambda: [self._gate.row()]))
        management.register(EntityType("contract", self.contract_rows))
        management.register(EntityType("probe", self.probes.rows))
        management.register(EntityType("journal", self.journaling.rows))
        assert self.decisions is not None
        management.register(EntityType("listener", self._listener_rows))
        management.register(EntityType("decision", self.decisions.rows))
        relay = self.relay
        management.operations["STATUS"] = HealthSurvey(
            self._reactor,
            self.clock.now_ms,
            self.broker,
            relay,
            lambda: limits_of(self.config.status),
            self._broker_facts,
            lambda destination: peer_row(destination, relay.holds),
        ).status
        self.draining = DrainMode(
            self._reactor,
            self.broker,
            relay,
            lambda: () if self.shared is None else tuple(self.shared.connections),
        )
        self.draining.register(management, self._allows)
        for name in (MANAGEMENT, *SYNONYMS):
            self.broker.services[name] = management
        self.broker.return_to = self._return_target
        self.broker.name_of = self.transfer.name_of
        self.broker.answers_to = self._answers_to
        transfer = self.transfer
        reporter = make_reporter(
            self.broker,
            self.relay,
            lambda: transfer.rules.router,
            report_terms(self.config, self.container_id),
        )
        self.reporter = reporter
        self._use_replies(transfer)
        self.delays = DelayReports(
            self.broker, self.store, reporter, self._reactor, self.config.reports.delay_after
        )

    def _use_replies(self, transfer: TransferService) -> None:
        """Make reply aliases, or not; those that there are lead back in any case."""
        relay = self.config.relay
        self.replies.grace_seconds = relay.reply_grace
        self.replies.is_making = relay.reply_aliases
        transfer.replies = self.replies

    def _return_target(self, address: str) -> Any:
        """Where a message goes back to: a node here, or a relay queue, without asking the DNS."""
        assert self.transfer is not None
        assert self.relay is not None
        route = self.transfer.rules.router.route(address)
        if isinstance(route, NextHop):
            # By a link to that very node: the message keeps its `to`, which leads elsewhere.
            return self.relay.take_on_trust(self.transfer.rules.router.direct(address))
        if is_reserved(route.node):
            raise NotAllowed(f"messages are not returned to the service {route.node!r}")
        return self.broker.target(route.node)

    def _answers_to(self, address: str) -> str | ITarget:
        """Where a service's reply goes: the name of a node here, or a relay queue."""
        assert self.transfer is not None
        assert self.relay is not None
        route = self.transfer.rules.router.route(address)
        return self.relay.take_on_trust(route) if isinstance(route, NextHop) else str(route.node)

    async def _listen(self, listen: ListenSettings, context: Amqp10Context) -> None:
        authenticator = Authenticator(
            listen.mechanisms,
            users=self._users,
            verifier=self._verifier,
            login_key=self._login_key,
        )
        listener = Listener(
            self._reactor,
            listen.endpoint,
            accepting(self.config, self.container_id, listen, authenticator, context),
            contexts=self.contexts,
            tls=listen.tls,
            client_certificate=listen.client_certificate,
            judge=self._inbound,
            refused=lambda remote, error: self.probes.note(
                "tls", remote, "", error.code, str(error)
            ),
            terms=accept_terms(listen),
            policy=self._places,
            balancers=balancers(listen),
            limits=pump_limits(self.config),
            scheduler=self._scheduler,
            turns=self._turns,
        )
        self._gate.open(listener, has_tls=listen.tls != "none")
        self.listeners.append(listener)

    def _receipts_now_ms(self) -> int:
        """Return the time by which receipts are dated and age: it passes while the daemon runs.

        The wall clock sets it once, before there is any receipt. However often the daemon starts
        with a wrong clock, none is forgotten too early for that.
        """
        counted_ms: int = self._receipts_ms + round(self._reactor.seconds() * 1000)
        return counted_ms

    def _uneasy(self) -> None:
        self.when_uneasy()

    def _slept(self) -> None:
        """Note that the machine has slept: what is overdue by that is tried first."""
        if self.relay is not None:
            log.info("the machine has slept; what is overdue for other domains is tried once more")
            self.relay.spare()
            self._reactor.callLater(0, self._dial_again)

    def _dial_again(self) -> None:
        if self.relay is not None:
            for destination in tuple(self.relay.destinations.values()):
                destination.wake()

    def _postpone(self, ms: int) -> Deferred[None]:
        """Have everything age from so much later on: the wall clock was set ahead."""
        transaction = self.store.begin()
        now_ms = self.clock.now_ms() + ms
        transaction.postpone(ms, now_ms)
        return transaction.commit().addCallback(lambda _: self.broker.postpone(ms, now_ms))

    def _forget_old_receipts(self) -> None:
        """Forget receipts of peers that have not come back; now, and from time to time."""
        horizon = self.config.relay.receipt_lifetime
        transaction = self.store.begin()
        transaction.forget_received_before(self._receipts_now_ms() - int(horizon * 1000))
        transaction.commit().addErrback(_log_failure, "forgetting old receipts")
        self.receipts.sweep(self._reactor.seconds(), horizon)
        self._sweep = self._reactor.callLater(SWEEP_SECONDS, self._forget_old_receipts)

    def _warn_without_dnssec(self, is_capable: bool) -> None:
        config = self.config
        demanded = [domain for domain in config.peers if config.peer_for(domain).level == "dane"]
        if not is_capable and (demanded or config.resolver.dnssec == "require"):
            log.warn(
                "DNSSEC is demanded ({what}) and does not come through: messages will wait "
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

    def _damaged(self, key: str, damages: Sequence[DamagedEntry]) -> None:
        """The store has found entries damaged. Their nodes tell the senders, once there are any."""
        if self._early_damage is None:
            self.broker.damaged(key, damages)
        else:
            self._early_damage.append((key, damages))

    def _take_up_damage(self) -> None:
        """Do what could not be done before nodes were declared, as the journal was compared."""
        early, self._early_damage = self._early_damage or (), None
        for key, damages in early:
            self.broker.damaged(key, damages)

    def _store_died(self, error: Exception) -> None:
        self._store_failure = str(error)
        self._on_death(str(error))

    @property
    def ailment(self) -> str | None:
        """What is wrong with the daemon, in words; None while it is well."""
        return self._store_failure

    @property
    def unease(self) -> str:
        """What is not as it should be, in words, and what to do; empty while all is well."""
        marks = self.watermarks.status() if self.watermarks is not None else ""
        return "; ".join(filter(None, (marks, self._gate.status(), self.clock_watch.status())))

    # -- reload ------------------------------------------------------------------------------------

    def reload(self, config: Config) -> ReloadReport:
        """Put a new configuration in force: all of it that a reload can, or nothing.

        Raises:
            AmqprouteError: something in it cannot be used; everything is as it was.
        """
        report = self.reloader.reload(config)
        if report.waiting:
            log.warn(
                "changes of {settings} take effect at the next start",
                settings=named(report.waiting),
            )
        return report

    def _register_components(self) -> None:
        """Register what follows the configuration, in the order in which changes are applied."""
        for name, prepare in (
            ("nodes", self._prepare_nodes),
            ("access", self._prepare_access),
            ("listeners", self._prepare_listeners),
            ("certificates", self._prepare_certificates),
            ("routing", self._prepare_routing),
            ("resolver", self._prepare_resolver),
            ("reports", self._prepare_reports),
            ("watermarks", self._prepare_watermarks),
            ("journal", self.journaling.prepare),
            ("connections", self._prepare_connections),
        ):
            self.reloader.register(name, prepare)

    def _prepare_nodes(self, config: Config) -> Apply:
        return self.inventory.prepare(configured(config))

    def _prepare_access(self, config: Config) -> Apply:
        policy = make_policy(config)
        users = load_users(config, must_exist=len(self._users) > 0)

        def apply() -> None:
            self._policy = policy
            self._users.adopt(users)

        return apply

    def _prepare_listeners(self, config: Config) -> Apply:
        by_endpoint = {
            listen.endpoint: (accept_terms(listen), balancers(listen)) for listen in config.listen
        }

        def apply() -> None:
            for listener in self.listeners:
                listener.adopt(*by_endpoint[listener.description])

        return apply

    def _prepare_certificates(self, config: Config) -> Apply:
        is_valid = self.contexts is None or self.contexts.ailment is None
        contexts = make_contexts(config, checks_dates=is_valid)

        def apply() -> None:
            if self.contexts is not None and contexts is not None:
                self.contexts.adopt(contexts)
                if self._watch is not None:
                    self._watch.reloaded()
                self._certificates_changed()

        return apply

    def _prepare_routing(self, config: Config) -> Apply:
        rules, terms = self._rules(config), relay_terms(config)

        def apply() -> None:
            assert self.transfer is not None
            assert self.relay is not None
            relay = config.relay
            self.transfer.reload(rules)
            self._use_replies(self.transfer)
            self.relay.reload(terms, int(relay.lifetime * 1000), relay.dead_letter)

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

    def _prepare_connections(self, config: Config) -> Apply:
        """Hold connections to the new nodes, contracts and rights; they follow all others."""
        removed_aliases = set(self.config.aliases) - set(config.aliases)
        is_new_policy = make_policy(config).rules != self._policy.rules

        def apply() -> None:
            assert self.shared is not None
            self._detach_removed_nodes(removed_aliases)
            self.contracts.adopt(tuple(self.shared.connections))
            if is_new_policy and (count := self.shared.detach_unauthorized()):
                log.info(
                    "{links} ended: their holders have lost the right to them",
                    links=counted(count, "link"),
                )

        return apply

    def _certificates_changed(self) -> None:
        """Certificates, trust or revocation lists have been read again."""
        self.drain((StaleConnections.THEIRS_REVOKED,))

    def drain(self, reasons: Sequence[StaleConnections]) -> int:
        """Close the connections that live on certificates past their use; return how many.

        Args:
            reasons: which of them: with an older certificate of ours, with one of the peer's that
                has expired or is revoked.
        """
        if self.contexts is None:
            return 0
        connections = [each for listener in self.listeners for each in listener.connections]
        if self._connector is not None:
            connections += self._connector.connections
        found = list(stale(connections, self.contexts, reasons))
        for connection, reason in found:
            retire(connection, reason)
        return len(found)

    def _detach_removed_nodes(self, aliases: set[str]) -> None:
        """Detach the links of nodes, and of these aliases, that are not there any more."""
        assert self.shared is not None

        def is_gone(node: Any, address: str | None) -> bool:
            if address in aliases:
                return True
            node = node_of(node)
            if isinstance(node, Topic):
                return self.broker.topics.get(node.name) is not node
            return isinstance(node, Queue) and self.broker.nodes.get(node.name) is not node

        self.shared.detach_from(is_gone)

    # -- stop --------------------------------------------------------------------------------------

    async def stop(self, extend: Any = None) -> None:
        """Stop gracefully: nothing new, then what is under way, then goodbye.

        Args:
            extend: called with seconds while waiting, to keep a service manager patient.
        """
        shared, relay = self.shared, self.relay
        if shared is None or relay is None:
            await self._abandon()
            return
        await DeferredList([listener.stop_accepting() for listener in self.listeners])
        shared.is_stopping = True
        patience = self.config.shutdown_timeout
        log.info(
            "{connections} of clients and peers, {hops} to other domains: up to {patience} s "
            "for what is under way",
            connections=counted(len(shared.connections), "connection"),
            hops=sum(each.session is not None for each in relay.destinations.values()),
            patience=patience,
        )
        for connection in tuple(shared.connections):
            connection.stop_taking()
        relay.stop_sending()
        if extend is not None:
            extend(patience + CLOSE_SECONDS + 5)
        await drain_connections(self._reactor, shared, relay, patience)
        relay.close()
        for connection in tuple(shared.connections):
            connection.close(conditions.CONNECTION_FORCED, "the broker is shutting down")
        all_gone = await wait_until(
            self._reactor, lambda: not shared.connections and relay.is_closed, CLOSE_SECONDS
        )
        if not all_gone:
            log.info(
                "{count} connections have not answered the close within {seconds} s: dropped",
                count=len(shared.connections)
                + sum(each.session is not None for each in relay.destinations.values()),
                seconds=CLOSE_SECONDS,
            )
        await self._abandon()

    async def _abandon(self) -> None:
        """Close what is open, in whatever state it is.

        Connections first, since their end gives messages back and ends transactions; then all that
        has timers; and the store when nothing is left that could write to it.
        """
        if self.relay is not None:
            self.relay.stop_sending()
        await DeferredList([listener.stopService() for listener in self.listeners])
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

    async def _write_the_rest(self) -> None:
        try:
            if self._is_open:
                await flush(self.store)
                self.journaling.let_go(self.broker)
                await self.journaling.take_stock(self.store, None)
        finally:
            self._stop_timers()  # what has arrived last may have begun to wait for its time

    def _stop_timers(self) -> None:
        self.journaling.stop_watching()
        self.clock_watch.stop()
        self._gate.stop()
        if self._watch is not None:
            self._watch.stop()
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
        self._verifier.stop()
        if self.amqp10 is not None:
            self.amqp10.suspended.stop()
        self.broker.stop()
        if self._sweep is not None and self._sweep.active():
            self._sweep.cancel()
        if self.relay is not None:
            self.relay.stop()

    # -- what operators see ------------------------------------------------------------------------

    def _destination_rows(self) -> list[dict[str, Any]]:
        assert self.relay is not None
        return [row_of(destination) for destination in self.relay.destinations.values()]

    def _broker_facts(self) -> BrokerFacts:
        """Return what `amqproute status` judges besides nodes and next hops."""
        assert self.relay is not None
        marks = [] if self.watermarks is None else [*self.watermarks.rows()]
        chain = () if self.contexts is None else self.contexts.loaded.chain
        now = self.clock.now_ms() / 1000
        return BrokerFacts(
            marks=tuple(
                (row["name"], row["reason"])
                for row in (*marks, self.relay.destination_quota.row())
                if row["state"] != "open"
            ),
            clock=self.clock_watch.status(),
            certificate=self._gate.status(),
            certificates=tuple(
                (each.subject.rfc4514_string(), each.not_valid_after_utc.timestamp() - now)
                for each in chain
            ),
            contracts=tuple(ContractFacts(*each) for each in self.contracts.limiters()),
            recent=recent_facts(self.broker),
            draining="" if self.draining is None else self.draining.status(),
        )

    def _listener_rows(self) -> list[dict[str, Any]]:
        return [listener.row() for listener in self.listeners]

    def _connection_rows(self) -> list[dict[str, Any]]:
        assert self.shared is not None
        return [connection.row() for connection in self.shared.connections]

    def _link_rows(self) -> list[dict[str, Any]]:
        assert self.shared is not None
        assert self.amqp10 is not None
        attached = [row for each in self.shared.connections for row in each.link_rows()]
        return attached + [suspended_row(row) for row in self.amqp10.suspended.rows()]

    def contract_rows(self) -> list[dict[str, Any]]:
        """Return what each peer and user that has a contract may, and has used of it."""
        rows = self.contracts.rows()
        here = {row["name"] for row in rows}
        declared = declared_contracts(self.config)
        absent = [
            terms.row(key, self.broker.accounts.find(key))
            for key, terms in sorted(declared.items())
            if key not in here
        ]
        return [*rows, *absent]

    def _close_link(self, name: str) -> None:
        assert self.shared is not None
        for connection in tuple(self.shared.connections):
            connection.detach_named(name)


def _log_failure(failure: Failure, doing: str) -> None:
    log.failure("{doing} failed", failure, doing=doing)


__all__ = [
    "Application",
    "now_ms",
    "product",
]
