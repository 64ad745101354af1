# SPDX-License-Identifier: Apache-2.0
"""Runtime entities as notes in the store, and the execution of one batch of commands.

`ChangeBatch` collects the changes of one request's commands, how to undo them, and actions that
have to wait for the commit. It takes part in the batch of the request: the notes become durable
with the reply, and the deferred actions run before anybody reads that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from twisted.logger import Logger

from amqproute.address import in_host
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.commit_batch import Batch
from amqproute.broker.exchanges.queue_settings import DeclaredTerms
from amqproute.broker.exchanges.topology_policies import TopologyPolicy
from amqproute.broker.exchanges.topology_record import argument_octets
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.subscription import NOTES as SUBSCRIPTIONS
from amqproute.jsontext import parse_json
from amqproute.stored_values import decode_table
from amqproute.values import RouteRule

__all__ = [
    "ALIAS",
    "ENDED",
    "LINK",
    "NODE",
    "NOTES",
    "OPERATOR_POLICY",
    "POLICY",
    "ROUTE",
    "ChangeBatch",
    "CommandResult",
    "ConfiguredNodes",
    "Declaration",
    "Describe",
    "NodeDescription",
    "RuntimeNode",
]

NODE: Final = "node"
LINK: Final = "link"
ALIAS: Final = "alias"
ROUTE: Final = "route"
ENDED: Final = "ended"
POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator-policy"
NOTES: Final = tuple(
    f"made-{kind}" for kind in (NODE, LINK, ALIAS, ROUTE, ENDED, POLICY, OPERATOR_POLICY)
)
"""The kinds of notes in the store."""

Declaration = NodeDeclaration | TopicDeclaration


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node described by options.

    Attributes:
        declaration: the declaration for the broker.
        options: all options, defaults included, by the keys of the configuration.
    """

    declaration: Declaration
    options: Mapping[str, object]

    def in_host(self, host: str) -> NodeDescription:
        """Return it as a node of a virtual host; its options name other nodes of it as before."""
        declaration = self.declaration
        if not host:
            return self
        name = in_host(host, declaration.name)
        if isinstance(declaration, TopicDeclaration):
            return replace(self, declaration=replace(declaration, name=name))
        dead = declaration.dead_letter
        dead = None if dead is None else in_host(host, dead)
        return replace(self, declaration=replace(declaration, name=name, dead_letter=dead))


Describe = Callable[[Mapping[str, object]], NodeDescription]


@dataclass(frozen=True, slots=True)
class ConfiguredNodes:
    """Nodes, aliases, bindings, routes and policies of the configuration.

    Attributes:
        nodes: the nodes as declared, with their options.
        aliases: alias to node.
        bindings: the bindings as declared.
        places: file and line of each, such as ``/etc/amqproute/amqproute.yaml:12``, by name.
        routes: static routes, in order.
        route_places: file and line of each route, by pattern.
        policies: over exchanges and queues.
        policy_places: file and line of each, by `POLICY` or `OPERATOR_POLICY` and its name.
    """

    nodes: Sequence[NodeDescription] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    bindings: Sequence[BindingDeclaration] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    routes: Sequence[RouteRule] = ()
    route_places: Mapping[str, str] = field(default_factory=dict)
    policies: Sequence[TopologyPolicy] = ()
    policy_places: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeNode:
    """An entity made at runtime.

    Attributes:
        options: the options requested.
        by: the principal who created it.
        since_ms: time of creation, ms since the epoch.
        rows: the rows of a queue: the name of its rows in the store.
        all_options: of a node: all its options, defaults included; not part of the note.
        declared: of a queue: the terms declared by a client of 0-9 or 0-9-1; None without one.
    """

    options: Mapping[str, object]
    by: str
    since_ms: int
    rows: str = ""
    all_options: Mapping[str, object] = field(default_factory=dict, compare=False)
    declared: DeclaredTerms | None = None

    def encode(self) -> bytes:
        """Encode the entity as a note."""
        facts = {"options": self.options, "by": self.by, "since": self.since_ms, "rows": self.rows}
        if self.declared is not None:
            arguments = argument_octets(self.declared.arguments).hex()
            facts["declared"] = declared = {
                "auto-delete": self.declared.auto_delete, "arguments": arguments
            }  # fmt: skip
            if self.declared.has_priorities:
                declared["priorities"] = True
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, encoded: bytes) -> RuntimeNode:
        """Read a note.

        Raises:
            ValueError: it is not valid.
        """
        facts = parse_json(encoded)
        if not isinstance(facts, dict):
            raise ValueError("the note is not an object")
        try:
            declared = _declared(facts.get("declared"))
            options, since_ms = dict(facts["options"]), int(facts["since"])
            return cls(options, str(facts["by"]), since_ms, facts["rows"], declared=declared)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the note lacks {error}") from None


def _declared(said: Mapping[str, Any] | None) -> DeclaredTerms | None:
    """Read the terms that a client of 0-9-1 has declared a queue with.

    Raises:
        ValueError: the arguments are no field table.
    """
    if said is None:
        return None
    try:
        arguments = decode_table(bytes.fromhex(said["arguments"]))
    except ValueError as error:
        raise ValueError(f"the arguments of the note: {error}") from None
    return DeclaredTerms(said["auto-delete"] is True, arguments, said.get("priorities") is True)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command.

    Attributes:
        status: the status as in a reply.
        words: the status as text.
        attributes: the attributes of the entity.
    """

    status: int
    words: str
    attributes: Mapping[str, object] = field(default_factory=dict)


def _nothing() -> None:
    pass


class ChangeBatch:
    """One batch of commands in execution.

    Args:
        by: the requesting principal.
        now_ms: the wall clock of the batch.
    """

    log = Logger()

    def __init__(self, by: str, now_ms: int) -> None:
        self.by = by
        self.now_ms = now_ms
        self._undo: list[Callable[[], None]] = []
        self._done: list[Callable[[], None]] = []
        self._notes: dict[tuple[str, str], bytes | None] = {}
        self._words: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be committed."""
        return not self._words and not self._notes

    def did(
        self, words: str, undo: Callable[[], None] = _nothing, done: Callable[[], None] = _nothing
    ) -> None:
        """Record a change.

        Args:
            words: the words for the log.
            undo: reverts the change.
            done: action to run after the commit.
        """
        self._words.append(words)
        self._undo.append(undo)
        self._done.append(done)

    def note(self, kind: str, name: str, value: bytes | None) -> None:
        """Store a note, or delete it with None."""
        self._notes[f"made-{kind}", name] = value

    def note_topology(self, kind: str, key: str, value: bytes | None) -> None:
        """Have a note of an exchange or of a binding kept, or forgotten with None."""
        self._notes[kind, key] = value

    def forget_subscription(self, name: str) -> None:
        """Delete a durable subscription from the store; its messages are removed step by step."""
        self._notes[SUBSCRIPTIONS, name] = None

    def roll_back(self) -> None:
        """Undo everything, the last change first."""
        for undo in reversed(self._undo):
            try:
                undo()
            except Exception:  # the others have to be undone all the same
                self.log.failure("cannot undo the changes requested by {who}", who=self.by)
        self._undo.clear()
        self._words.clear()
        self._notes.clear()

    def put(self, batch: Batch) -> None:
        """Add the changes to a batch, if there are any."""
        for (kind, name), value in self._notes.items():
            batch.transaction.note(kind, name, value)
        if self._words:
            batch.when_committed(self._committed)
            batch.when_failed(self._failed)

    def _committed(self) -> None:
        for words in self._words:
            self.log.info("{who}: {what}", who=self.by, what=words)
        for done in self._done:
            try:
                done()
            except (
                Exception
            ):  # the change is durable and answered; the batch's messages must continue
                self.log.failure(
                    "an action after the commit failed; requested by {who}", who=self.by
                )

    def _failed(self) -> None:
        self.log.error(
            "the store did not take what {who} asked for; it is undone: {what}",
            who=self.by,
            what="; ".join(self._words),
        )
        self.roll_back()
