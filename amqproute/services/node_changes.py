# SPDX-License-Identifier: Apache-2.0
"""Nodes, bindings, aliases and routes made at runtime (topic G).

Entities of the configuration cannot be changed here: a command on them is refused with their place
in the file. Entities made here are noted in the store, in the transaction of the request, so that
they exist again after a restart; a reload of the configuration neither removes them nor touches
their messages. If the file later declares a node of the same name, the file's options apply, to its
messages too, until it leaves the file again.

Atomic batches (G-03)
====================================

`ChangeBatch` is one batch in execution. Each command acts at once and records how to undo it; the
first failure undoes everything, within the same call, before the changes are visible to anybody.
Irreversible actions wait for the commit: only then messages are deleted, links detached and
bindings started. If the store refuses the commit, everything is undone as well.

Rows in the store
=================

A queue made here has its rows under a separate name (``amqp$rows/NUMBER/NAME``), which is never
reused. So renaming it writes one note and moves no message, and a queue created under a name just
deleted never gets rows of its predecessor, which are removed page by page in the background. A note
of the kind ``ended`` remains until the last of them is removed, so that the next start continues
after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from amqproute.address import host_of, in_host, local_name
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.broker import Broker
from amqproute.broker.exchanges.argument_rules import (
    QueueDeclaration,
    check_queue_redeclared,
    queue_terms,
)
from amqproute.broker.exchanges.queue_settings import PRIORITIES, DeclaredTerms
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_names import check_queue_name
from amqproute.broker.exchanges.topology_policies import PolicySet, TopologyPolicy, policy_sets
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.errors import (
    AmqpError,
    ConfigError,
    InvalidField,
    NotFound,
    PreconditionFailed,
    ResourceLimitExceeded,
)
from amqproute.plurals import counted
from amqproute.services.change_batch import (
    ALIAS,
    ENDED,
    LINK,
    NODE,
    NOTES,
    OPERATOR_POLICY,
    POLICY,
    ROUTE,
    ChangeBatch,
    CommandResult,
    ConfiguredNodes,
    Declaration,
    Describe,
    NodeDescription,
    RuntimeNode,
)
from amqproute.services.command_options import (
    is_busy,
    leads_back,
    link_of,
    messages_on,
    new_name_of,
    node_options,
    policy_of,
    require_same,
    switch,
    with_rows,
)
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    FULL,
    GONE,
    NOT_FOUND,
    OK,
    CommandRefused,
    ManagementCommand,
)
from amqproute.services.exchange_entity import TERM_KEYS, read_terms
from amqproute.values import RouteRule

__all__ = [
    "NOTES",
    "ChangeBatch",
    "CommandResult",
    "ConfiguredNodes",
    "NodeChanges",
    "NodeDescription",
    "rule_of",
]

ROWS_PREFIX: Final = "amqp$rows/"
MOST_NODES: Final = 100_000
_ERRORS: Final = {BAD_REQUEST: InvalidField, FULL: ResourceLimitExceeded}


def _nothing() -> None:
    pass


def _no_routes(options: Mapping[str, object]) -> RouteRule:
    raise ConfigError(["no routes are made here"])


class NodeChanges:
    """Entities made at runtime, beside the configured ones.

    Args:
        broker: the broker.
        describe: options of a node to its declaration; raises `ConfigError`.
        new_rows: returns an unused number for the name of a queue's rows.
        describe_route: options of a route to its rule; raises `ConfigError`.
        most_nodes: limit of the number of nodes.

    Attributes:
        nodes: by name.
        links: bindings, by name.
        aliases: by name.
        routes: by their pattern of domains.
        policies: by kind, `POLICY` or `OPERATOR_POLICY`, and name.
        configured: the entities of the configuration.
        keeping: returns the names of the prepared branches that hold messages of a queue.
        when_routed: called when routes were made or deleted, to apply them.
        when_policies_changed: called when other policies are in force.
        when_declared: called with the name of a queue that an operator has made as clients declare
            theirs.
        when_gone: called when nodes, or the given aliases, were removed, to detach their links.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        describe: Describe,
        new_rows: Callable[[], int],
        *,
        describe_route: Callable[[Mapping[str, object]], RouteRule] = _no_routes,
        most_nodes: int = MOST_NODES,
    ) -> None:
        self.describe_route = describe_route
        self.when_routed: Callable[[], None] = _nothing
        self.when_policies_changed: Callable[[], None] = _nothing
        self.routes: dict[str, RuntimeNode] = {}
        self.policies: dict[str, dict[str, RuntimeNode]] = {POLICY: {}, OPERATOR_POLICY: {}}
        self.broker = broker
        self.nodes: dict[str, RuntimeNode] = {}
        self.links: dict[str, RuntimeNode] = {}
        self.aliases: dict[str, RuntimeNode] = {}
        self.configured = ConfiguredNodes()
        self._configured_options: Mapping[str, Mapping[str, object]] = {}
        self.keeping: Callable[[Queue], Sequence[str]] = lambda _: ()
        self.when_declared: Callable[[str], None] = lambda _: None
        self.when_gone: Callable[[set[str]], None] = lambda _: None
        self.most_nodes = most_nodes
        self._describe = describe
        self._new_rows = new_rows
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return (
            f"<NodeChanges nodes={len(self.nodes)} links={len(self.links)} "
            f"aliases={len(self.aliases)}>"
        )

    # -- start and reload --------------------------------------------------------------------------

    def recovered(self, notes: Mapping[str, Mapping[str, bytes]]) -> None:
        """Load the notes of the store; `declare` makes the entities."""
        for kind, where in (
            (NODE, self.nodes),
            (LINK, self.links),
            (ALIAS, self.aliases),
            (ROUTE, self.routes),
            *self.policies.items(),
        ):
            for name, encoded in notes.get(f"made-{kind}", {}).items():
                try:
                    where[name] = RuntimeNode.decode(encoded)
                except ValueError as error:
                    self.log.error(
                        "the {kind} {name} made at runtime cannot be read: {error}",
                        kind=kind,
                        name=name,
                        error=str(error),
                    )
        self._ended = set(notes.get(f"made-{ENDED}", {}))

    def declare(self, configured: ConfiguredNodes) -> None:
        """Declare to the broker all entities, configured and made at runtime.

        Raises:
            ConfigError: the configuration is not valid; nothing has changed.
        """
        self.prepare(configured)()

    def prepare(self, configured: ConfiguredNodes) -> Callable[[], None]:
        """Check a configuration, and return the function that applies it.

        Raises:
            ConfigError: the configuration is not valid.
        """
        refreshed: dict[str, RuntimeNode] = {}
        unusable: list[tuple[str, str, str]] = []
        described = {each.declaration.name: each.declaration for each in configured.nodes}
        for name, declaration in described.items():
            made = self.nodes.get(name)
            if made is not None and isinstance(declaration, NodeDeclaration):
                described[name] = replace(declaration, rows=made.rows or None)
        for name, made in tuple(self.nodes.items()):
            if name not in described and name not in configured.aliases:
                try:
                    again = self._description(name, made.options, made)
                except ConfigError as error:
                    unusable.append((NODE, name, "; ".join(error.problems)))
                else:
                    refreshed[name] = replace(made, all_options=again.options)
                    described[name] = again.declaration
        aliases = dict(configured.aliases)
        for name, made in self.aliases.items():
            target = str(made.options["target"])
            if name in described or name in aliases or target not in described:
                words = f"there is a node {name!r}, or no node {target!r}"
                unusable.append((ALIAS, name, words))
            else:
                aliases[name] = target
        bindings = list(configured.bindings)
        for name, made in self.links.items():
            link = link_of(name, made.options)
            why = self._why_not(link, bindings, described, aliases)
            if why:
                unusable.append((LINK, name, why))
            else:
                bindings.append(link)
        policies = self._policy_sets(configured.policies, unusable)
        apply_nodes = self.broker.prepare_declaration(described.values(), aliases, bindings)

        def apply() -> None:
            for each in unusable:
                self._cannot(*each)
            self.nodes.update(refreshed)
            self.broker.adopt_policies(policies)
            apply_nodes()
            self.configured = configured
            self.when_policies_changed()
            self._configured_options = {
                each.declaration.name: each.options for each in configured.nodes
            }
            self._go_on_deleting()

        return apply

    def _policy_sets(
        self, configured: Sequence[TopologyPolicy], unusable: list[tuple[str, str, str]]
    ) -> dict[str, PolicySet]:
        """Return the policies of a configuration and, where it has none of the name, the others.

        Args:
            configured: those of the configuration.
            unusable: kind, name and reason of unusable policies; more are added.
        """
        found = {(each.is_operator, in_host(each.host, each.name)): each for each in configured}
        for kind, where in self.policies.items():
            for name, made in where.items():
                if (kind == OPERATOR_POLICY, name) in found:
                    continue
                try:
                    policy = policy_of(kind, local_name(name), made.options)
                except TopologyFault as fault:
                    unusable.append((kind, name, fault.text))
                else:
                    found[policy.is_operator, name] = policy
        return policy_sets(found.values())

    def apply_policies(self) -> None:
        """Put the present policies in force."""
        self.broker.adopt_policies(self._policy_sets(self.configured.policies, []))
        self.when_policies_changed()

    def _cannot(self, kind: str, name: str, why: str) -> None:
        self.log.warn(
            "the {kind} {name} made at runtime cannot be at present: {why}",
            kind=kind,
            name=name,
            why=why,
        )

    def _why_not(
        self,
        link: BindingDeclaration,
        bindings: Sequence[BindingDeclaration],
        nodes: Mapping[str, Declaration],
        aliases: Mapping[str, str],
    ) -> str:
        source = nodes.get(aliases.get(link.source, link.source))
        if source is None:
            return f"there is no node {link.source!r}"
        if "@" not in link.target and aliases.get(link.target, link.target) not in nodes:
            return f"there is no node {link.target!r}"
        if link.mode == ("move" if isinstance(source, TopicDeclaration) else "copy"):
            return "topics copy, queues move"
        try:
            link.filters(lambda: 0)
        except AmqpError as error:
            return error.description
        return "messages would go in a circle" if leads_back(link, bindings, aliases) else ""

    def _go_on_deleting(self) -> None:
        unclaimed = self.broker.recovered_nodes.messages
        for rows in sorted(self._ended):
            if rows in unclaimed:
                self.broker.empty_rows(rows).finish(partial(self._forget_rows, rows))
            else:
                self._forget_rows(rows)
        self._ended.clear()

    def _forget_rows(self, rows: str) -> None:
        batch = self.broker.begin()
        batch.transaction.note(f"made-{ENDED}", rows, None)
        batch.commit(True).addErrback(
            lambda failure: self.log.failure("{rows} could not be forgotten", failure, rows=rows)
        )

    # -- look-ups -----------------------------------------------------------------------------

    def origin(self, name: str) -> dict[str, object]:
        """Return the origin of a node as attributes of its row."""
        place = self.configured.places.get(name)
        if place is not None:
            return {"origin": "configuration", "declared-at": place}
        made = self.nodes.get(name) or self.links.get(name) or self.aliases.get(name)
        if made is not None:
            return {"origin": "runtime", "made-by": made.by, "made-at-ms": made.since_ms}
        return {"origin": "dynamic" if name in self.broker.dynamic else "daemon"}

    def options(self, name: str) -> dict[str, object]:
        """Return the options of a node, defaults included; empty if it has none."""
        options = self._configured_options.get(name)
        if options is None and (made := self.nodes.get(name)) is not None:
            options = made.all_options
        return dict(options or {})

    def node(self, name: str) -> Queue | Topic:
        """Return a queue or topic.

        Raises:
            CommandRefused: it does not exist.
        """
        broker = self.broker
        node = broker.nodes.get(name) or broker.topics.get(name)
        if node is None:
            if name in broker.aliases:
                target = broker.aliases[name]
                raise CommandRefused(NOT_FOUND, f"{name!r} is an alias; its node is {target!r}")
            raise CommandRefused(NOT_FOUND, f"there is no queue or topic {name[:256]!r}")
        return node

    def require_free(self, name: str) -> None:
        """Refuse a name that is in use by a node or alias."""
        broker = self.broker
        if name in broker.aliases:
            raise CommandRefused(CONFLICT, f"{name!r} is an alias{self.where(name)}")
        if name in broker.nodes or name in broker.topics:
            raise CommandRefused(CONFLICT, f"there is a node {name!r} already{self.where(name)}")
        if name in self.nodes or name in self.aliases:
            raise CommandRefused(
                CONFLICT, f"{name!r} was made before and cannot be at present; delete it"
            )
        if name in broker.recovered_nodes.messages:
            count = broker.recovered_nodes.messages[name]
            raise CommandRefused(
                CONFLICT,
                f"the store holds {count} messages of an earlier node {name!r}: declare it in the "
                "configuration to get at them",
            )

    def where(self, name: str) -> str:
        """Return the place of an entity in the configuration; empty if it is not configured."""
        place = self.configured.places.get(name)
        return f", declared at {place}" if place else ""

    def require_own(self, name: str, where: Mapping[str, RuntimeNode]) -> RuntimeNode:
        """Return an entity made at runtime; refuse one of the configuration, or of a client."""
        place = self.configured.places.get(name)
        if place is not None:
            raise CommandRefused(
                CONFLICT,
                f"{name!r} is declared at {place}: change it there and reload the daemon",
                {"declared-at": place},
            )
        made = where.get(name)
        if made is None:
            kind = "a dynamic node: it goes with its client's link"
            raise CommandRefused(
                CONFLICT, f"{name!r} is {kind if name in self.broker.dynamic else 'own'}"
            )
        return made

    def route_rules(self) -> list[RouteRule]:
        """Return the routes made at runtime."""
        return [rule_of(name, made.options) for name, made in sorted(self.routes.items())]

    # -- nodes -------------------------------------------------------------------------------------

    def create_node(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Create a queue or a topic (G-06)."""
        name = command.name
        broker = self.broker
        if command.or_assert and (name in broker.nodes or name in broker.topics):
            return self.assert_node(command)
        self.require_free(name)
        options = node_options(command)
        declared = self._declared_terms(command, options)
        made = RuntimeNode(options, changes.by, changes.now_ms, declared=declared)
        described = self._described(name, options, made)
        self._check_dead_letter(name, described.declaration)
        self._require_room(name)
        rows = ""
        if isinstance(described.declaration, NodeDeclaration):
            rows = f"{ROWS_PREFIX}{self._new_rows()}/{name}"
            described = replace(described, declaration=with_rows(described.declaration, rows))
        made = replace(made, rows=rows, all_options=described.options)
        self._make(name, made, described, changes)
        done = _nothing if declared is None else partial(self.when_declared, name)
        changes.did(str(command), partial(self._unmake, name), done)
        return CommandResult(CREATED, "created", {"name": name, **described.options})

    def make_queue(self, name: str, by: str) -> Deferred[Queue]:
        """Create a queue on request of a link (Q-38).

        Returns:
            A Deferred that fires with the queue when it is durable, or fails with `StoreError`:
            then the queue does not exist.

        Raises:
            AmqpError: the name is not allowed, or there are too many nodes.
        """
        batch = self.broker.begin()
        changes = ChangeBatch(by, batch.now_ms)
        try:
            self.create_node(ManagementCommand("CREATE", "queue", name), changes)
        except CommandRefused as refused:
            changes.roll_back()
            raise _ERRORS.get(refused.status, PreconditionFailed)(refused.words) from None
        queue = self.broker.nodes[name]
        changes.put(batch)
        return batch.commit().addCallback(lambda _: queue)

    # -- queues that clients of 0-9 and 0-9-1 declare ----------------------------------------------

    def declared(self, name: str) -> DeclaredTerms | None:
        """Return a client's declaration of a durable queue. See `QueueRegistry.declared`."""
        made = self.nodes.get(name)
        return None if made is None else made.declared

    def require_new(self, name: str) -> None:
        """Check that there can be a queue of a new name. See `QueueRegistry.require_new`."""
        try:
            self._require_room(name)
        except CommandRefused as refused:
            raise _fault(refused) from None

    def transient_node(self, name: str, terms: DeclaredTerms) -> NodeDeclaration:
        """Return the declaration of a transient queue. See `QueueRegistry.transient_node`."""
        rows = f"{ROWS_PREFIX}{self._new_rows()}/{name}"
        options = {"type": "queue", "message-durability-mode": "force-transient"}
        made = RuntimeNode(options, "", 0, rows, declared=terms)
        declaration = self._described(name, options, made).declaration
        assert isinstance(declaration, NodeDeclaration)
        return declaration

    def declare_queue(self, name: str, terms: DeclaredTerms, owner: str) -> Deferred[Queue]:
        """Make a durable queue. See `QueueRegistry.declare_queue`."""
        batch = self.broker.begin()
        changes = ChangeBatch(owner, batch.now_ms)
        rows = f"{ROWS_PREFIX}{self._new_rows()}/{name}"
        made = RuntimeNode({"type": "queue"}, owner, changes.now_ms, rows, declared=terms)
        described = self._described(name, made.options, made)
        self._make(name, replace(made, all_options=described.options), described, changes)
        changes.did(f"DECLARE queue {name}", partial(self._unmake, name))
        queue = self.broker.nodes[name]
        changes.put(batch)
        return batch.commit().addCallback(lambda _: queue)

    def remove_queue(self, name: str, owner: str) -> Deferred[None]:
        """Delete a queue that is not the configuration's. See `QueueRegistry.remove_queue`."""
        batch = self.broker.begin()
        changes = ChangeBatch(owner, batch.now_ms)
        try:
            self.delete_node(ManagementCommand("DELETE", "queue", name), changes)
        except CommandRefused as refused:
            changes.roll_back()
            raise _fault(refused) from None
        changes.put(batch)
        return batch.commit()

    def links_gone(self) -> None:
        """Have links detached of queues that are not there. See `QueueRegistry.links_gone`."""
        self.when_gone(set())

    def _require_same_terms(self, name: str, terms: DeclaredTerms) -> None:
        there = self.declared(name) or DeclaredTerms()
        try:
            check_queue_redeclared(
                QueueDeclaration(name, True, False, there.auto_delete, there.arguments),
                QueueDeclaration(name, True, False, terms.auto_delete, terms.arguments),
            )
        except TopologyFault as fault:
            raise CommandRefused(CONFLICT, fault.text) from None

    @staticmethod
    def _declared_terms(
        command: ManagementCommand, options: dict[str, object]
    ) -> DeclaredTerms | None:
        """Take the declaration in the form of a 0-9-1 client from the options of a queue."""
        if command.kind != "queue":
            return None
        terms = read_terms(options)
        if terms is not None:
            for key in TERM_KEYS:
                options.pop(key, None)
            try:
                name = local_name(command.name)
                check_queue_name(name, is_new=True)
                queue_terms(name, terms.arguments)
            except TopologyFault as fault:
                raise CommandRefused(BAD_REQUEST, fault.text) from None
        return terms

    def _require_room(self, name: str) -> None:
        self.require_free(name)
        broker = self.broker
        try:
            broker.require_unbound(name)
        except TopologyFault as fault:
            raise CommandRefused(CONFLICT, fault.text) from None
        if len(broker.nodes) + len(broker.topics) >= self.most_nodes:
            raise CommandRefused(FULL, f"there are {self.most_nodes} nodes (limits.max-nodes)")
        try:
            broker.require_room_in(host_of(name))
        except (NotFound, ResourceLimitExceeded) as error:
            status = NOT_FOUND if isinstance(error, NotFound) else FULL
            raise CommandRefused(status, error.description) from None

    def _make(
        self, name: str, made: RuntimeNode, described: NodeDescription, changes: ChangeBatch
    ) -> None:
        self.broker.add(described.declaration)
        self.nodes[name] = made
        changes.note(NODE, name, made.encode())

    def _unmake(self, name: str) -> None:
        del self.nodes[name]
        self.broker.withdraw(name).discard()

    def assert_node(self, command: ManagementCommand) -> CommandResult:
        """Check that a node has the asserted options (G-08)."""
        node = self.node(command.name)
        kind = "topic" if isinstance(node, Topic) else "queue"
        terms = read_terms(command.arguments) if kind == "queue" else None
        if terms is not None:
            self._require_same_terms(command.name, terms)
            given = {key: value for key, value in command.arguments.items() if key not in TERM_KEYS}
            command = replace(command, arguments=given)
        wanted = node_options(command)
        there = {"type": kind, **self.options(command.name)}
        if wanted.get("type", kind) == kind:
            wanted = dict(self._described(command.name, wanted).options) if wanted else {}
        asked = node_options(command)
        require_same(command.name, there, {**asked, **wanted}, asked)
        return CommandResult(OK, "as it should be", {"name": command.name, **there})

    def update_node(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Change options of a node (G-09); null restores the default."""
        name = command.name
        node = self.node(name)
        made = self.require_own(name, self.nodes)
        kind = "topic" if isinstance(node, Topic) else "queue"
        asked = node_options(command)
        if asked.get("type", kind) != kind:
            raise CommandRefused(CONFLICT, f"{name!r} is a {kind} and stays one")
        merged = {**made.options, **asked, "type": kind}
        options = {key: value for key, value in merged.items() if value is not None}
        described = self._described(name, options, made)
        self._check_dead_letter(name, described.declaration)
        before = self._described(name, made.options, made).declaration
        changed = replace(made, options=options, all_options=described.options)
        self.broker.add(described.declaration)
        self.nodes[name] = changed
        changes.note(NODE, name, changed.encode())

        def undo() -> None:
            self.nodes[name] = made
            self.broker.add(before)

        changes.did(str(command), undo)
        return CommandResult(OK, "changed", {"name": name, **described.options})

    def rename_node(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Rename a node (G-10)."""
        name, new_name = command.name, new_name_of(command)
        node = self.node(name)
        made = self.require_own(name, self.nodes)
        if host_of(name) != host_of(new_name):
            raise CommandRefused(BAD_REQUEST, f"{name!r} stays in its virtual host")
        self.require_free(new_name)
        self._described(new_name, made.options, made)
        if isinstance(node, Topic) and node.durable:
            raise CommandRefused(
                CONFLICT, f"{name!r} has {len(node.durable)} durable subscriptions, which name it"
            )
        self._rename(name, new_name, changes)
        changes.did(f"{command} to {new_name}", lambda: self._rename(new_name, name, None))
        return CommandResult(OK, "renamed", {"name": new_name})

    def _rename(self, name: str, new_name: str, changes: ChangeBatch | None) -> None:
        """Rename a node and all references to it."""
        self.broker.rename(name, new_name)
        touched: list[tuple[str, str, RuntimeNode | None]] = [(NODE, name, None)]
        self.nodes[new_name] = self.nodes.pop(name)
        touched.append((NODE, new_name, self.nodes[new_name]))
        for kind, where, keys in (
            (NODE, self.nodes, ("dead-letter",)),
            (LINK, self.links, ("source", "target")),
            (ALIAS, self.aliases, ("target",)),
        ):
            for each, made in where.items():
                # Options of a node in a virtual host name others of it, as its clients do.
                host = host_of(each) if kind == NODE else ""
                if any(in_host(host, str(made.options.get(key))) == name for key in keys):
                    options, all_options = (
                        {
                            key: local_name(new_name)
                            if host and key in keys and in_host(host, str(value)) == name
                            else new_name
                            if key in keys and value == name
                            else value
                            for key, value in given.items()
                        }
                        for given in (made.options, made.all_options)
                    )
                    where[each] = replace(made, options=options, all_options=all_options)
                    touched.append((kind, each, where[each]))
        for alias, target in self.broker.aliases.items():
            if target == name:
                self.broker.aliases[alias] = new_name
        if changes is not None:
            for kind, each, record in touched:
                changes.note(kind, each, None if record is None else record.encode())
            topology = self.broker.topology_of(host_of(new_name))
            for note in topology.queue_notes(local_name(new_name)):
                changes.note_topology(*note)

    def delete_node(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete a node with its messages (G-07)."""
        name = command.name
        if name in self.nodes and name not in (*self.broker.nodes, *self.broker.topics):
            return self._delete_dormant(command, changes)
        node = self.node(name)
        made = self.require_own(name, self.nodes)
        held = messages_on(node)
        if switch(command, "if-empty") and (held or is_busy(node)):
            raise CommandRefused(
                CONFLICT, f"{name!r} holds {counted(held, 'message')}", {"messages": held}
            )
        links = node.consumers + len(node.publishers)
        if switch(command, "if-unused") and links:
            raise CommandRefused(
                CONFLICT, f"{name!r} has {counted(links, 'link')}", {"links": links}
            )
        self._require_unnamed(name)
        withdrawal = self.broker.withdraw(name)
        links_gone = {
            each: self.links.pop(each)
            for each, link in tuple(self.links.items())
            if name in (self.broker.resolve(str(link.options[end])) for end in ("source", "target"))
        }
        del self.nodes[name]
        changes.note(NODE, name, None)
        for each in links_gone:
            changes.note(LINK, each, None)
        if withdrawal.removed is not None:
            for note in withdrawal.removed.notes:
                changes.note_topology(*note)
        if made.rows:
            changes.note(ENDED, made.rows, b"1")
        if isinstance(node, Topic):
            for subscription in node.durable.values():
                changes.forget_subscription(subscription.name)

        def undo() -> None:
            self.nodes[name] = made
            self.links.update(links_gone)
            self.broker.restore(withdrawal)

        def done() -> None:
            self.when_gone(set())
            self.broker.take_apart(withdrawal)
            withdrawal.finish(lambda: self._forget_rows(made.rows) if made.rows else None)

        changes.did(f"{command} with {counted(held, 'message')}", undo, done)
        keeping = list(self.keeping(node)) if isinstance(node, Queue) else []
        facts = {"name": name, "messages": held, "links": list(links_gone), "kept-by": keeping}
        return CommandResult(GONE, f"deleted{_kept(keeping)}", facts)

    def _delete_dormant(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete a node whose declaration failed at the start."""
        name = command.name
        made = self.require_own(name, self.nodes)
        del self.nodes[name]
        changes.note(NODE, name, None)

        def undo() -> None:
            self.nodes[name] = made

        def done() -> None:
            if made.rows in self.broker.recovered_nodes.messages:
                self.broker.empty_rows(made.rows).finish(lambda: self._forget_rows(made.rows))

        if made.rows:
            changes.note(ENDED, made.rows, b"1")
        changes.did(str(command), undo, done)
        return CommandResult(GONE, "deleted", {"name": name})

    def _require_unnamed(self, name: str) -> None:
        aliases = [alias for alias, target in self.broker.aliases.items() if target == name]
        if aliases:
            raise CommandRefused(
                CONFLICT, f"the alias {aliases[0]!r} leads to {name!r}: delete it first"
            )
        for each in self.broker.nodes.values():
            if each.dead_letter_name == name and each.name != name:
                raise CommandRefused(CONFLICT, f"{name!r} takes the dead letters of {each.name!r}")

    def purge_node(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete the messages of a queue, except acquired ones (G-22)."""
        node = self.node(command.name)
        if isinstance(node, Topic):
            raise CommandRefused(
                BAD_REQUEST, f"{command.name!r} is a topic and holds nothing to purge"
            )
        count = node.available + node.deferred
        facts = {"name": command.name, "messages": count, "acquired": node.acquired}
        if switch(command, "dry-run"):
            return CommandResult(OK, f"{counted(count, 'message')} would be deleted", facts)

        def done() -> None:
            node.purge().addErrback(
                lambda failure: self.log.failure(
                    "the purge of {node} stopped half way", failure, node=node.name
                )
            )

        changes.did(f"{command}: {counted(count, 'message')}", _nothing, done)
        return CommandResult(
            OK, f"{counted(count, 'message is', 'messages are')} being deleted", facts
        )

    def _described(
        self, name: str, options: Mapping[str, object], made: RuntimeNode | None = None
    ) -> NodeDescription:
        try:
            return self._description(name, options, made)
        except ConfigError as error:
            raise CommandRefused(BAD_REQUEST, "; ".join(error.problems)) from None

    def _description(
        self, name: str, options: Mapping[str, object], made: RuntimeNode | None
    ) -> NodeDescription:
        """Return a node with these options, and with the state of one made at runtime.

        Raises:
            ConfigError: it cannot have them.
        """
        if made is None or made.declared is None:
            described = self._describe({**options, "name": local_name(name)}).in_host(host_of(name))
            rows = "" if made is None else made.rows
            return replace(described, declaration=with_rows(described.declaration, rows))
        # Clients may choose names that operators may not.
        described = self._describe({**options, "name": "queue"})
        declaration = described.declaration
        if isinstance(declaration, NodeDeclaration):
            try:
                terms = queue_terms(local_name(name), made.declared.arguments)
            except TopologyFault as fault:
                raise ConfigError([fault.text]) from None
            priorities = PRIORITIES if made.declared.has_priorities else 1
            limits = replace(declaration.limits, priorities=priorities)
            declaration = replace(
                declaration, name=name, limits=limits, rows=made.rows, terms=terms
            )
        return replace(described, declaration=declaration)

    def _check_dead_letter(self, name: str, declaration: Declaration) -> None:
        wanted = getattr(declaration, "dead_letter", None)
        if wanted is None:
            return
        target = self.broker.resolve(wanted)
        if host_of(target) != host_of(name):
            raise CommandRefused(BAD_REQUEST, "dead-letter: is in another virtual host")
        if target == name:
            raise CommandRefused(BAD_REQUEST, "dead-letter: is the node itself")
        if target not in self.broker.nodes and target not in self.broker.topics:
            raise CommandRefused(BAD_REQUEST, f"dead-letter: there is no node {wanted!r}")


def _fault(refused: CommandRefused) -> TopologyFault:
    kinds = {BAD_REQUEST: TopologyFaultKind.ILLEGAL_NAME, FULL: TopologyFaultKind.LIMIT}
    return TopologyFault(kinds.get(refused.status, TopologyFaultKind.OTHER_QUEUE), refused.words)


# Any: options by name, each of the type that the table of the command demands.
def rule_of(pattern: str, options: Mapping[str, Any]) -> RouteRule:
    """Return the rule of a route made at runtime."""
    names = tuple(str(name) for name in options["names"])
    return RouteRule(pattern, options["via"], str(options["target"]), names)


def _kept(branches: Sequence[str]) -> str:
    """Name the prepared branches that hold messages of a deleted node, and how to resolve them."""
    if not branches:
        return ""
    others = f" and {len(branches) - 1} more" if len(branches) > 1 else ""
    return (
        f"; what the prepared branch {branches[0]}{others} holds of it goes when that is resolved, "
        "by its transaction manager or with `amqproute transaction roll-back` or `commit`"
    )
