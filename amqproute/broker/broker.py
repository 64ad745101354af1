# SPDX-License-Identifier: Apache-2.0
"""The directory of local nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from amqproute.address import (
    from_exchange_address,
    host_of,
    in_host,
    is_reserved,
    local_name,
    split_host,
)
from amqproute.broker.admission import check_target
from amqproute.broker.binding import Binding, BindingDeclaration
from amqproute.broker.commit_batch import Batch
from amqproute.broker.declaration_checks import circles, impossible
from amqproute.broker.disposal import Disposal
from amqproute.broker.dynamic_node_terms import DynamicTerms
from amqproute.broker.entry_removal import DAMAGED, DISCARD, IDisposal
from amqproute.broker.exchanges.argument_rules import EffectiveTerm
from amqproute.broker.exchanges.binding_tables import BindingTarget, TargetKind
from amqproute.broker.exchanges.exchange_target import ExchangeTarget
from amqproute.broker.exchanges.queue_settings import kind_of, terms_in_force, with_terms
from amqproute.broker.exchanges.topology import Topology
from amqproute.broker.exchanges.topology_policies import NO_POLICIES, PolicySet
from amqproute.broker.exchanges.topology_record import TOPOLOGY_NOTES, topology_notes
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.hosted_queues import HostedQueues, HostQueues
from amqproute.broker.lifetime_policy import LifetimePolicy
from amqproute.broker.name_table import NameTable
from amqproute.broker.node_context import NodeContext
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.node_deletion import NodeDeletion
from amqproute.broker.node_limits import MemoryBudget, QueueLimits, TopicLimits
from amqproute.broker.node_options import QueueOptions
from amqproute.broker.priority_queues import level_of_key, queue_of_key
from amqproute.broker.publish_gate import PublishGate
from amqproute.broker.queue import Queue
from amqproute.broker.queue_state import USUAL_OPTIONS
from amqproute.broker.recent_counts import RecentCounts
from amqproute.broker.recovered_nodes import RecoveredNodes
from amqproute.broker.reply_addresses import is_reply_name
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.broker.subscription import DurableSubscription
from amqproute.broker.topic import Topic
from amqproute.errors import (
    ConfigError,
    NotAllowed,
    NotFound,
    ResourceLimitExceeded,
)
from amqproute.interfaces import (
    IBodyDraft,
    IBroker,
    IJournal,
    INode,
    IStaging,
    IStore,
    ITarget,
)
from amqproute.journal.event import SILENCE
from amqproute.log_rate_limit import RateLimitedLog
from amqproute.store.model import DamagedEntry, StoredEntry
from amqproute.turn_scheduler import Pause
from amqproute.values import QUARANTINE, RELAY_PREFIX

MOST_DYNAMIC = 10_000
"""Dynamic nodes at one time; those that outlive their connection are bounded by nothing else."""


@implementer(IBroker)
class Broker:
    """Names to nodes; batches.

    Args:
        store: the `IStore`.
        clock: the clock for timers of the nodes.
        now_ms: the wall clock, ms since the epoch.
        new_name: makes an unguessable name for a dynamic node (A-06).
        budget: memory that all queues share.
        journal: the journal of messages, an `IJournal`.
        pause: called between slices of long work; None to go on in the next turn of the reactor.

    Attributes:
        nodes: the queues that clients can address.
        topics: the topics.
        bindings: the bindings between nodes, by declaration.
        return_to: finds the target of an address ``node@domain``: for returned messages and for
            bindings.
        name_of: returns the name of the local node behind an address; for others, the address.
        answers_to: returns for the reply-to ``node@domain`` of a request the name of the local node
            behind it, or the way to the other domain.
        gate: whether publishers have credit at all.
        accounts: use of the store by senders with a quota.
        disposal: final disposal of entries that leave their queues.
        recovered_nodes: contents of the store at the start that no node has claimed yet.
        topology: the exchanges, with bindings to the queues; of the virtual host ``/``.
        hosts: virtual hosts beside ``/``, and how many nodes each may have; None for any number.
        replies_due: requests to services whose replies follow.
        rate_limited_log: keeps a flood of messages from filling the log.
        recent: events of the last hour.
    """

    log = Logger()

    def __init__(
        self,
        store: IStore,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        new_name: Callable[[], str],
        *,
        budget: MemoryBudget | None = None,
        journal: IJournal = SILENCE,
        pause: Pause | None = None,
    ) -> None:
        self.journal = journal
        self._store = store
        self._clock = clock
        self._now_ms = now_ms
        self._new_name = new_name
        self.budget = budget or MemoryBudget()
        self.replies_due = 0
        self.gate = PublishGate()
        self.rate_limited_log = RateLimitedLog(clock.seconds)
        self.recent = RecentCounts(clock.seconds)
        self.accounts = SenderQuotas(self.begin)
        self.nodes = HostedQueues()
        self.internal: NameTable[Queue] = NameTable()
        self.topics: NameTable[Topic] = NameTable()
        self.bindings: dict[BindingDeclaration, Binding] = {}
        self.aliases: dict[str, str] = {}
        self.services: dict[str, Any] = {}
        self.dynamic: set[str] = set()
        self.recovered_nodes = RecoveredNodes()
        self.return_to: Callable[[str], ITarget] | None = None
        self.name_of: Callable[[str], str] = str
        self.answers_to: Callable[[str], str | ITarget] | None = None
        self._context = NodeContext(
            store,
            clock,
            now_ms,
            self.begin,
            journal,
            pause or partial(deferLater, clock, 0),
            self.budget,
            self.accounts,
        )
        self.hosts: Mapping[str, int | None] = {}
        self._topology_shares = FairShares()
        self._policies: Mapping[str, PolicySet] = {}
        self.topologies: dict[str, Topology] = {}
        self.topology = self.topology_of("")
        self.disposal = Disposal(
            self._node, lambda: self.return_to, self.rate_limited_log, self.recent, self.topology_of
        )

    @property
    def clock(self) -> IReactorTime:
        """Of timers and turns."""
        return self._clock

    @property
    def context(self) -> NodeContext:
        """Context shared by all nodes, with the counters of former nodes."""
        return self._context

    # -- virtual hosts -------------------------------------------------------------------------

    def has_host(self, name: str) -> bool:
        """Return whether a virtual host is configured, or has contents from earlier."""
        return name in self.hosts or name in self.topologies

    def host_names(self) -> list[str]:
        """Return the virtual hosts of `has_host` in order, first that of ``/``, which is empty."""
        return sorted({*self.hosts, *self.topologies})

    def topology_of(self, host: str) -> Topology:
        """Return the exchanges of a virtual host, whose bindings know queues by their names there.

        Args:
            host: the virtual host; empty for ``/``.
        """
        topology = self.topologies.get(host)
        if topology is None:
            queues = HostQueues(self.nodes, self.dynamic, host)
            topology = Topology(queues, self._context, host, self._topology_shares)
            topology.adopt_policies(self._policies.get(host, NO_POLICIES))
            self.topologies[host] = topology
        return topology

    def _topology_at(self, name: str) -> tuple[Topology, str]:
        """Return the exchanges that may lead to a queue, and its name for them."""
        host, local = split_host(name)
        return self.topology_of(host), local

    def recover_topologies(self, notes: Mapping[str, Mapping[str, bytes]]) -> None:
        """Restore exchanges and bindings from the store; see `Topology.recovered`.

        Args:
            notes: of the store, by their kinds. Those of a virtual host that is not configured any
                more are restored, too: it may come back.
        """
        hosts = {host_of(kind) for kind in notes if local_name(kind) in TOPOLOGY_NOTES}
        for host in sorted({"", *hosts}):
            kinds = topology_notes(host)
            self.topology_of(host).recovered(*(notes.get(kind, {}) for kind in kinds))

    def node_count(self, host: str) -> int:
        """Return the number of queues and topics of a virtual host."""
        return len(self.nodes.of(host)) + sum(host_of(name) == host for name in self.topics)

    def require_room_in(self, host: str) -> None:
        """Check that a virtual host may have one node more.

        Raises:
            NotFound: there is no such virtual host.
            ResourceLimitExceeded: it has as many as its configuration allows.
        """
        if not host:
            return
        if host not in self.hosts:
            raise NotFound(f"there is no virtual host {host!r}")
        most = self.hosts[host]
        if most is not None and self.node_count(host) >= most:
            raise ResourceLimitExceeded(
                f"the virtual host {host!r} has {most} nodes (virtual-hosts: {host}: max-nodes)",
                info={"limiter": "virtual-host-nodes"},
            )

    def begin(self) -> Batch:
        """Return a new batch."""
        return Batch(self._store.begin(), self._now_ms(), self.gate, self.journal)

    def postpone(self, ms: int, now_ms: int) -> None:
        """Shift all times: the wall clock was set ahead.

        Args:
            ms: by so much.
            now_ms: the wall clock now.
        """
        for queue in (*self.nodes.values(), *self.internal.values()):
            queue.postpone(ms, now_ms)
        for topic in self.topics.values():
            topic.postpone(ms, now_ms)

    def draft(self, written: Callable[[int], None], before: bytes | None = None) -> IBodyDraft:
        """Return a draft for the rest of a very large message. See `IStore.draft`."""
        return self._store.draft(written, before)

    @property
    def staging(self) -> IStaging:
        """Contents that clients send in parts before publishing. See `IStore.staging`."""
        staging: IStaging = self._store.staging
        return staging

    # -- set-up --------------------------------------------------------------------------------

    def declare(
        self,
        nodes: Iterable[NodeDeclaration | TopicDeclaration],
        aliases: Mapping[str, str],
        bindings: Iterable[BindingDeclaration] = (),
    ) -> None:
        """Bring the nodes in line with the configuration, at once; see `prepare_declaration`."""
        self.prepare_declaration(nodes, aliases, bindings)()

    def prepare_declaration(
        self,
        nodes: Iterable[NodeDeclaration | TopicDeclaration],
        aliases: Mapping[str, str],
        bindings: Iterable[BindingDeclaration] = (),
    ) -> Callable[[], None]:
        """Check the nodes of a configuration, and return the function that puts it in force.

        New nodes are made, limits of existing ones change. A node that the new configuration does
        not name any more is removed if it is empty and unused, and stays, with a warning, while it
        holds messages: a typing error in a file must not delete messages.
        A topic stays as long as it has durable subscriptions. Bindings are those of the list.

        Raises:
            ConfigError: an alias has the name of a node, or leads nowhere (A-08); a node that
                holds something would become one of another type; a binding cannot be.
        """
        declared = {node.name: node for node in nodes}
        wanted = list(bindings)
        problems = impossible(declared, aliases, wanted)
        problems += self._changed_types(declared.values())
        if problems:
            raise ConfigError(problems)
        return partial(self._declare, declared, dict(aliases), wanted)

    def _declare(
        self,
        declared: Mapping[str, NodeDeclaration | TopicDeclaration],
        aliases: dict[str, str],
        wanted: Sequence[BindingDeclaration],
    ) -> None:
        for each in [each for each in self.bindings if each not in wanted]:
            self.unbind(each)
        for node in declared.values():
            if isinstance(node, TopicDeclaration):
                self._declare_topic(node)
            else:
                self._declare_queue(node)
        for name in [name for name in self.nodes if name not in declared]:
            if name not in self.dynamic:
                self._retire(name)
        for name in [name for name in self.topics if name not in declared]:
            if name not in self.dynamic:
                self._retire_topic(name)
        self.aliases = aliases
        for each in wanted:
            if each not in self.bindings:
                self.bind(each)
        self._remove_ended()

    def _changed_types(self, declared: Iterable[NodeDeclaration | TopicDeclaration]) -> list[str]:
        problems = []
        for node in declared:
            if isinstance(node, TopicDeclaration):
                queue = self.nodes.get(node.name)
                if queue is not None and (queue.depth or not queue.is_settled):
                    problems.append(
                        f"nodes: {node.name}: is a queue with {queue.depth} messages; it can "
                        "become a topic when it is empty"
                    )
            else:
                topic = self.topics.get(node.name)
                if topic is not None and topic.durable:
                    problems.append(
                        f"nodes: {node.name}: is a topic with {len(topic.durable)} durable "
                        "subscriptions; it can become a queue when they are closed"
                    )
        return problems

    def _declare_queue(self, node: NodeDeclaration) -> None:
        if node.name in self.topics:
            self._retire_topic(node.name)
        queue = self.nodes.get(node.name)
        wanted = self._under_policies(node)
        if queue is None:
            queue = self._make(node.name, wanted.limits, options=wanted.options, rows=node.rows)
            self.nodes[node.name] = queue
            topology, local = self._topology_at(node.name)
            topology.queue_made(local)
        queue.declaration = node
        queue.options = wanted.options
        queue.dead_letter_name = wanted.dead_letter
        queue.dead_letter_target = wanted.dead_letter_target
        queue.limits = wanted.limits

    def _under_policies(self, node: NodeDeclaration) -> NodeDeclaration:
        """Return a declaration with the effects of arguments and policies."""
        terms = terms_in_force(node, self._policies_at(node.name))
        return with_terms(node, {key: term.value for key, term in terms.items()})

    def terms_of(self, name: str) -> dict[str, EffectiveTerm]:
        """Return the effective settings of a queue with the origin of each value.

        Empty if there is no queue of this name, and for dynamic nodes, to which no policy applies.
        """
        queue = self.nodes.get(name)
        if queue is None or queue.declaration is None:
            return {}
        return terms_in_force(replace(queue.declaration, name=name), self._policies_at(name))

    def _policies_at(self, name: str) -> PolicySet:
        """Return the policies of the virtual host of a node."""
        return self._policies.get(host_of(name), NO_POLICIES)

    def adopt_policies(self, policies: Mapping[str, PolicySet]) -> None:
        """Put other policies in force, for exchanges and queues.

        Queues to which no policy applies, neither before nor now, are not touched.

        Args:
            policies: by virtual host; that of ``/`` is empty.
        """
        before, self._policies = self._policies, policies
        for host, topology in self.topologies.items():
            topology.adopt_policies(policies.get(host, NO_POLICIES))
        for name, queue in tuple(self.nodes.items()):
            node = queue.declaration
            if node is None:
                continue
            kind, (host, local) = kind_of(node), split_host(name)
            both = (each.get(host, NO_POLICIES) for each in (before, policies))
            if any(any(each.of_queue(local, kind)) for each in both):
                self._declare_queue(replace(node, name=name))

    def _declare_topic(self, node: TopicDeclaration) -> None:
        if node.name in self.nodes:
            self._retire(node.name)
        topic = self.topics.get(node.name)
        if topic is not None:
            topic.limits = node.limits
            return
        topic = self.topics[node.name] = self._make_topic(node.name, node.limits)
        self.recovered_nodes.claim_topic(topic)

    def _make_topic(self, name: str, limits: TopicLimits) -> Topic:
        return Topic(
            name,
            self._context,
            # Messages that a subscriber has not taken are not dead letters.
            lambda name, limits: self._make(name, limits, disposal=DISCARD),
            limits=limits,
        )

    def damaged(self, key: str, damages: Sequence[DamagedEntry]) -> None:
        """Remove entries from their queues that the store has found damaged.

        Args:
            key: the key of their line.
            damages: the findings.
        """
        rows = queue_of_key(key)
        queues = [*self.nodes.values(), *self.internal.values()]
        queues += [each.queue for topic in self.topics.values() for each in topic.durable.values()]
        queue = next((each for each in queues if each.rows == rows), None)
        if queue is not None:
            queue.quarantined(level_of_key(key), damages)
            return
        batch = self.begin()
        batch.damaged(rows, [damage.entry_id for damage in damages], DAMAGED)
        batch.commit().addErrback(
            lambda failure: self.log.failure("cannot record the damage in the journal", failure)
        )

    def set_aside(self, key: str, rows: Sequence[StoredEntry], why: str) -> None:
        """Move rows that belong to no queue here into the store's quarantine.

        Args:
            key: the key of their line.
            rows: the rows as the store returned them.
            why: the reason for the log.
        """
        place = queue_of_key(key)
        batch = self.begin()
        for row in rows:
            self.log.error(
                "entry {entry} of {node} {why}: quarantined, not delivered: amqproute store "
                "quarantine show {entry}",
                entry=row.id,
                node=place,
                why=why,
            )
            batch.transaction.move(row.id, QUARANTINE, row.id)
        batch.damaged(place, [row.id for row in rows], DAMAGED)
        batch.commit().addErrback(
            lambda failure: self.log.failure("cannot quarantine damaged entries", failure)
        )

    def _remove_ended(self) -> None:
        """Remove the remains of subscriptions that had ended before a crash emptied them."""
        topic = next(iter(self.topics.values()), None)
        for name in self.recovered_nodes.ended_subscriptions():
            if topic is not None:
                queue = self._make(name, QueueLimits(), disposal=DISCARD)
                topic.empty(queue, lambda: None)

    def _retire(self, name: str) -> None:
        queue = self.nodes[name]
        if queue.depth or not queue.is_settled:
            self.log.warn(
                "node {node} is not in the configuration any more but holds {depth} messages: "
                "kept; consume or purge them, then reload",
                node=name,
                depth=queue.depth,
            )
            return
        self._unbind_all(name)
        queue.delete()
        del self.nodes[name]
        self._queue_gone(name)
        self.log.info("node {node} removed: not in the configuration any more", node=name)

    def _queue_gone(self, name: str) -> None:
        topology, local = self._topology_at(name)
        topology.queue_gone(local)

    def _retire_topic(self, name: str) -> None:
        topic = self.topics[name]
        if topic.durable:
            self.log.warn(
                "topic {node} is not in the configuration any more but has {count} durable "
                "subscriptions: kept; close them, then reload",
                node=name,
                count=len(topic.durable),
            )
            return
        self._unbind_all(name)
        topic.delete()
        del self.topics[name]
        self.log.info("topic {node} removed: not in the configuration any more", node=name)

    # -- nodes at runtime ----------------------------------------------------------------------

    def add(self, node: NodeDeclaration | TopicDeclaration) -> None:
        """Create or change one node, whose name is no alias (see `declare` for all of them)."""
        if isinstance(node, TopicDeclaration):
            self._declare_topic(node)
        else:
            self._declare_queue(node)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a node; its links, messages and bindings stay (G-10).

        The new name is one in the same virtual host.
        """
        node = self.nodes.get(name) or self.topics[name]
        where: dict[str, Any] = self.nodes if isinstance(node, Queue) else self.topics
        del where[name]
        node.name = new_name
        where[new_name] = node
        if isinstance(node, Queue):
            topology, local = self._topology_at(name)
            topology.rename_queue(local, local_name(new_name))
            if node.declaration is not None:
                self._declare_queue(replace(node.declaration, name=new_name))
        for queue in self.nodes.values():
            if queue.dead_letter_name == name:
                queue.dead_letter_name = new_name
            there = queue.declaration
            if there is not None and there.dead_letter == name:
                queue.declaration = replace(there, dead_letter=new_name)
        for declaration, binding in list(self.bindings.items()):
            if name in (declaration.source, declaration.target):
                del self.bindings[declaration]
                binding.declaration = declaration.renamed(name, new_name)
                self.bindings[binding.declaration] = binding

    def withdraw(self, name: str) -> NodeDeletion:
        """Take a node out of the directory: it cannot be found, and takes no messages."""
        node: Queue | Topic
        if name in self.nodes:
            node = self.nodes[name]
            del self.nodes[name]
        else:
            node = self.topics.pop(name)
        ends = {
            each: (self.resolve(each.source), self.resolve(each.target)) for each in self.bindings
        }
        bound = {each: self.unbind(each) for each, both in ends.items() if name in both}
        removed = None
        if isinstance(node, Queue):
            node.is_ending = True
            topology, local = self._topology_at(name)
            removed = topology.remove_queue(local)
        return NodeDeletion(node, bound, self._clock, removed)

    def restore(self, withdrawal: NodeDeletion) -> None:
        """Undo `withdraw`."""
        node = withdrawal.node
        if isinstance(node, Queue):
            node.is_ending = False
            self.nodes[node.name] = node
            if withdrawal.removed is not None:
                self.topology_of(host_of(node.name)).restore(withdrawal.removed)
            if node.declaration is not None:
                self._declare_queue(replace(node.declaration, name=node.name))
        else:
            self.topics[node.name] = node
        for each, is_active in withdrawal.bindings.items():
            self.bind(each, is_active)

    def take_apart(self, withdrawal: NodeDeletion) -> None:
        """Remove many bindings of a node that is withdrawn, in slices, now that this is durable."""
        if withdrawal.removed is not None:
            topology = self.topology_of(host_of(withdrawal.node.name))
            topology.take_apart(withdrawal.removed)

    def require_unbound(self, name: str) -> None:
        """Check that no bindings are left of an earlier queue of a name.

        Raises:
            TopologyFault: they are being removed.
        """
        host, local = split_host(name)
        topology = self.topologies.get(host)
        if topology is not None:
            topology.require_ended(BindingTarget(TargetKind.QUEUE, local))

    def empty_rows(self, rows: str) -> NodeDeletion:
        """Return the unfinished withdrawal of a queue whose deletion a crash interrupted."""
        queue = self._make(rows, QueueLimits(), disposal=DISCARD)
        queue.is_ending = True
        return NodeDeletion(queue, {}, self._clock)

    # -- bindings ------------------------------------------------------------------------------

    def bind(self, declaration: BindingDeclaration, starts: bool = True) -> Binding:
        """Forward messages of one node to another one (N-09).

        Args:
            declaration: source and target.
            starts: whether it starts at once; else by `Binding.start`.

        Raises:
            AmqpError: one of the nodes is not there, or cannot have such a binding.
            ConfigError: messages would go in a circle.
        """
        problems = circles([*self.bindings, declaration], self.aliases)
        if problems:
            raise ConfigError(problems)
        known = self.bindings.get(declaration)
        if known is not None:
            return known
        source = self._node(declaration.source)
        if "@" not in declaration.target:
            target = self._node(declaration.target)
            if host_of(source.name) != host_of(target.name):
                raise NotAllowed(
                    f"{declaration.source!r} and {declaration.target!r} are in different virtual "
                    "hosts: no message goes from one to the other"
                )
        binding = Binding(
            declaration,
            source,
            partial(self._bound_target, host_of(source.name)),
            self._context,
        )
        self.bindings[declaration] = binding
        if starts:
            binding.start()
        return binding

    def _bound_target(self, host: str, name: str) -> ITarget:
        if "@" not in name:
            return self._node(name)
        if self.return_to is None:
            raise NotFound(f"no route to {name!r} yet")
        target = self.return_to(name)
        if host_of(target.name) != host and not target.name.startswith(RELAY_PREFIX):
            raise NotAllowed(f"{name!r} is in another virtual host")
        return target

    def unbind(self, declaration: BindingDeclaration) -> bool:
        """End a binding; return whether it was at work."""
        binding = self.bindings.pop(declaration)
        was_active = binding.is_active
        binding.stop()
        return was_active

    def _unbind_all(self, name: str) -> None:
        """End the bindings from and to a node that goes (N-09)."""
        for each in list(self.bindings):
            if name in (self.resolve(each.source), self.resolve(each.target)):
                self.unbind(each)

    # -- queues --------------------------------------------------------------------------------

    def _make(
        self,
        name: str,
        limits: QueueLimits,
        *,
        options: QueueOptions | None = None,
        force_transient: bool = False,
        disposal: IDisposal | None = None,
        rows: str | None = None,
    ) -> Queue:
        queue = Queue(
            name,
            self._context,
            limits=limits,
            options=options or USUAL_OPTIONS,
            disposal=disposal or self.disposal,
            force_transient=force_transient,
            rows=rows,
        )
        self.recovered_nodes.claim_queue(queue)
        return queue

    def make_internal(self, name: str, limits: QueueLimits) -> Queue:
        """Return a queue that clients cannot address, a relay queue; create it if necessary."""
        queue = self.internal.get(name)
        if queue is None:
            queue = self.internal[name] = self._make(name, limits)
        return queue

    def queue_of_rows(self, rows: str) -> Queue | None:
        """Return the queue whose entries the store keeps under that name."""
        kept = (each.queue for topic in self.topics.values() for each in topic.durable.values())
        return next((queue for queue in (*self.nodes.values(), *kept) if queue.rows == rows), None)

    def forget_internal(self, name: str) -> None:
        """Drop an internal queue that is empty."""
        queue = self.internal.pop(name, None)
        if queue is not None:
            queue.delete()

    # -- directory -----------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """Return the node name behind an alias (A-04)."""
        return self.aliases.get(name, name)

    def target(self, name: str) -> ITarget:
        """Return the ITarget of a local name. See `IDirectory.target`."""
        service: ITarget | None = self.services.get(name)
        if service is not None:
            return service
        if name[:1] == "/":
            host, local = split_host(name)
            exchange = from_exchange_address(local)
        else:
            exchange = None
        if exchange is not None:
            target = ExchangeTarget(self.topology_of(host), *exchange)
            target.check()
            return target
        node = self._node(name)
        if isinstance(node, Queue):
            check_target(node.state.name, node.state.options)
        return node

    def source(self, name: str) -> INode:
        """Return the ISource of a local name. See `IDirectory.source`."""
        return self._node(name)

    def _node(self, name: str) -> Queue | Topic:
        name = self.aliases.get(name, name)
        node = self.nodes.get(name) or self.topics.get(name)
        if node is not None and not name.startswith(RELAY_PREFIX):
            return node
        local = local_name(name)
        if node is None and from_exchange_address(local) is not None:
            raise NotAllowed(
                f"{local!r} is an exchange, which keeps nothing: bind a queue to it, and receive "
                "from that"
            )
        if name.startswith(RELAY_PREFIX):
            raise NotAllowed(
                f"{name!r} is a relay queue: messages get there by their address, NODE@DOMAIN"
            )
        if node is None and is_reserved(local):
            raise NotFound(f"{local!r} is not offered here: its operator would have to enable it")
        if node is None:
            raise NotFound(
                f"no node is named {local!r} here: correct the address, or have its operator "
                "make it"
            )
        return node

    def subscription(self, container: str, name: str, owner: str) -> DurableSubscription | None:
        """Find a durable subscription by its key, in the owner's virtual host (S-20).

        It may belong to another owner: see `Definition.is_of`.
        """
        host = host_of(owner)
        for topic in self.topics.values():
            if host_of(topic.name) != host:
                continue
            found = topic.begun(container, name, owner)
            if found is not None:
                return found
        return None

    def create_dynamic(
        self, terms: DynamicTerms | None = None, host: str = "", name: str | None = None
    ) -> Queue:
        """Create a queue with an unguessable name that lives in memory (N-19, A-06).

        Args:
            terms: its terms.
            host: its virtual host.
            name: its name there; None: one is made.

        Raises:
            ResourceLimitExceeded: there are too many dynamic nodes.
        """
        self.require_room_in(host)
        terms = terms or DynamicTerms()
        if len(self.dynamic) >= MOST_DYNAMIC:
            raise ResourceLimitExceeded(
                f"the limit of {MOST_DYNAMIC} dynamic nodes is reached",
                info={"limiter": "dynamic-nodes"},
            )
        name = in_host(host, name or self._new_name())
        queue = self._make(name, terms.limits, options=terms.options, force_transient=True)
        queue.life = LifetimePolicy(terms.lifetime, terms.is_exclusive, queue)
        queue.dead_letter_name = terms.dead_letter
        self.nodes[name] = queue
        self.dynamic.add(name)
        return queue

    def is_reply_address(self, name: str) -> bool:
        """Return whether a name within the broker is a direct reply-to address in use."""
        return name in self.dynamic and is_reply_name(name)

    def add_transient(self, node: NodeDeclaration) -> Queue:
        """Create a queue with a name of a client's choice that does not survive a restart."""
        self.dynamic.add(node.name)
        self._declare_queue(node)
        return self.nodes[node.name]

    def remove_transient(self, name: str) -> None:
        """Delete such a queue with its messages."""
        self.dynamic.discard(name)
        withdrawal = self.withdraw(name)
        if withdrawal.removed is not None and withdrawal.removed.notes:
            batch = self.begin()
            self.topology_of(host_of(name)).write_off(withdrawal.removed, batch)
            done = batch.commit().addErrback(
                lambda failure: self.log.failure(
                    "the store still holds exchanges that were deleted with {queue}",
                    failure,
                    queue=name,
                )
            )
            done.addCallback(lambda _: self.take_apart(withdrawal))
        withdrawal.finish(lambda: None)

    def create_dynamic_topic(self, host: str = "") -> Topic:
        """Create a topic with an unguessable name in a virtual host (N-19).

        Raises:
            ResourceLimitExceeded: the virtual host may have no more nodes.
        """
        self.require_room_in(host)
        name = in_host(host, self._new_name())
        topic = self.topics[name] = self._make_topic(name, TopicLimits())
        self.dynamic.add(name)
        return topic

    def delete(self, node: Queue | Topic) -> None:
        """Remove a dynamic node at once, and its bindings (N-22)."""
        if node.name in self.dynamic:
            self.dynamic.discard(node.name)
            self._unbind_all(node.name)
            if isinstance(node, Topic):
                del self.topics[node.name]
            else:
                del self.nodes[node.name]
                self._queue_gone(node.name)
            node.delete()

    def stop(self) -> None:
        """Cancel the nodes' timers."""
        for binding in self.bindings.values():
            binding.stop()
        for queue in (*self.nodes.values(), *self.internal.values()):
            queue.stop()
        for topic in self.topics.values():
            topic.stop()
