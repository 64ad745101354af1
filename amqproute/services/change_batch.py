# SPDX-License-Identifier: Apache-2.0
"""What is made at runtime, as it is noted in the store, and one batch of commands at work.

`ChangeBatch` collects what the commands of one request did, how to undo it, and what has to wait
until it is durable. It takes part in the batch of the request: the notes become durable with the
reply, and before anybody reads that, what waited is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twisted.logger import Logger

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.commit_batch import Batch
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.subscription import NOTES as SUBSCRIPTIONS
from amqproute.jsontext import parse_json
from amqproute.values import RouteRule

__all__ = [
    "ALIAS",
    "ENDED",
    "LINK",
    "NODE",
    "NOTES",
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
NOTES: Final = tuple(f"made-{kind}" for kind in (NODE, LINK, ALIAS, ROUTE, ENDED))
"""The kinds of notes in the store."""

Declaration = NodeDeclaration | TopicDeclaration


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node as options describe it.

    Attributes:
        declaration: for the broker.
        options: all options, the defaults among them, in the words of the configuration.
    """

    declaration: Declaration
    options: Mapping[str, object]


Describe = Callable[[Mapping[str, object]], NodeDescription]


@dataclass(frozen=True, slots=True)
class ConfiguredNodes:
    """What the configuration declares.

    Attributes:
        nodes: as declared, with their options.
        aliases: alias to node.
        bindings: as declared.
        places: where each stands, as in ``/etc/amqproute/amqproute.yaml:12``, by name.
        routes: static routes, in their order.
        route_places: where each of them stands, by pattern.
    """

    nodes: Sequence[NodeDescription] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    bindings: Sequence[BindingDeclaration] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    routes: Sequence[RouteRule] = ()
    route_places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeNode:
    """Something that was made at runtime.

    Attributes:
        options: what was asked for.
        by: who asked.
        since_ms: when, ms since the epoch.
        rows: of a queue: the name of its rows in the store.
        all_options: of a node: all its options, the defaults among them; no part of the note.
    """

    options: Mapping[str, object]
    by: str
    since_ms: int
    rows: str = ""
    all_options: Mapping[str, object] = field(default_factory=dict, compare=False)

    def encode(self) -> bytes:
        """Return it as a note."""
        facts = {"options": self.options, "by": self.by, "since": self.since_ms, "rows": self.rows}
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, encoded: bytes) -> RuntimeNode:
        """Read a note.

        Raises:
            ValueError: it is none.
        """
        facts = parse_json(encoded)
        try:
            return cls(dict(facts["options"]), str(facts["by"]), int(facts["since"]), facts["rows"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the note lacks {error}") from None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command.

    Attributes:
        status: as in a reply.
        words: the same for people.
        attributes: facts.
    """

    status: int
    words: str
    attributes: Mapping[str, object] = field(default_factory=dict)


def _nothing() -> None:
    pass


class ChangeBatch:
    """One batch of commands at work.

    Args:
        by: who asks.
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

    def did(
        self, words: str, undo: Callable[[], None] = _nothing, done: Callable[[], None] = _nothing
    ) -> None:
        """Note what was done.

        Args:
            words: for the log.
            undo: how to take it back.
            done: what is to be done when it is durable.
        """
        self._words.append(words)
        self._undo.append(undo)
        self._done.append(done)

    def note(self, kind: str, name: str, value: bytes | None) -> None:
        """Have a fact kept, or forgotten with None."""
        self._notes[f"made-{kind}", name] = value

    def note_topology(self, kind: str, key: str, value: bytes | None) -> None:
        """Have a note of an exchange or of a binding kept, or forgotten with None."""
        self._notes[kind, key] = value

    def forget_subscription(self, name: str) -> None:
        """Have the store forget a durable subscription; what waits for it goes by and by."""
        self._notes[SUBSCRIPTIONS, name] = None

    def roll_back(self) -> None:
        """Take everything back, the last first."""
        for undo in reversed(self._undo):
            try:
                undo()
            except Exception:  # the others have to be undone all the same
                self.log.failure("what {who} asked for could not be undone", who=self.by)
        self._undo.clear()
        self._words.clear()
        self._notes.clear()

    def put(self, batch: Batch) -> None:
        """Become durable with a batch, if there is anything."""
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
            except Exception:  # it is durable and answered; the batch's messages have to go on
                self.log.failure("what {who} asked for is not done to its end", who=self.by)

    def _failed(self) -> None:
        self.log.error(
            "the store did not take what {who} asked for; it is undone: {what}",
            who=self.by,
            what="; ".join(self._words),
        )
        self.roll_back()
