# SPDX-License-Identifier: Apache-2.0
"""Options of commands: reading, checking, and comparison with nodes and bindings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from amqproute import address
from amqproute.address import ROOT_HOST, host_named
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_policies import (
    PolicyScope,
    TopologyPolicy,
    topology_policy,
)
from amqproute.broker.node_declaration import TopicDeclaration
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.errors import AmqpError
from amqproute.jsontext import parse_json
from amqproute.services.change_batch import OPERATOR_POLICY, Declaration
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    CommandRefused,
    ManagementCommand,
)

__all__ = [
    "FIXED_LINK_KEYS",
    "check_link_name",
    "check_name",
    "in_words",
    "is_busy",
    "leads_back",
    "link_of",
    "link_options",
    "messages_on",
    "new_name_of",
    "node_options",
    "policy_of",
    "shown",
    "switch",
    "with_rows",
]

LINK_KEYS: Final = frozenset(
    {
        "source",
        "target",
        "filter",
        "filter-type",
        "subject",
        "mode",
        "temporary",
        "first-message-date",
    }
)
FIXED_LINK_KEYS: Final = frozenset(
    {"source", "target", "destination", "mode", "temporary", "first-message-date"}
)
"""Options that a link cannot change (L-12, L-16)."""
SQL: Final = "SQL-92"
POLICY_KEYS: Final = frozenset(("pattern", "apply-to", "priority", "definition", "virtual-host"))
_POLICY_KEYS_IN_WORDS: Final = ", ".join(sorted(POLICY_KEYS))


def node_options(command: ManagementCommand) -> dict[str, object]:
    """Return the options of a node, with the type from the kind of the command."""
    options = {
        key: value
        for key, value in command.arguments.items()
        if key not in ("name", "if-empty", "if-unused")
    }
    if "node-type" in options:
        options["type"] = options.pop("node-type")
    if command.kind == "topic":
        if options.setdefault("type", "topic") != "topic":
            raise CommandRefused(BAD_REQUEST, "a topic is of the type topic")
    elif command.operation == "CREATE":
        options.setdefault("type", "queue")
    return options


def link_options(
    command: ManagementCommand, must_have: Iterable[str] = ("source", "target")
) -> dict[str, object]:
    """Return the options of a binding.

    Raises:
        CommandRefused: one is unknown, missing or of the wrong kind.
    """
    options = dict(command.arguments)
    if "destination" in options:
        options["target"] = options.pop("destination")
    unknown = sorted(set(options) - LINK_KEYS)
    if unknown:
        raise CommandRefused(
            BAD_REQUEST, f"unknown option {unknown[0]!r}; there are {', '.join(sorted(LINK_KEYS))}"
        )
    if options.get("temporary") not in (None, False):
        raise CommandRefused(BAD_REQUEST, "temporary is false: a binding belongs to no session")
    first_ms = options.get("first-message-date")
    if first_ms is not None and (isinstance(first_ms, bool) or not isinstance(first_ms, int)):
        raise CommandRefused(
            BAD_REQUEST, "first-message-date is a number of milliseconds since 1970-01-01 UTC"
        )
    for key, value in options.items():
        is_text = isinstance(value, str) and value
        if not (is_text or value is None or key in ("temporary", "first-message-date")):
            raise CommandRefused(BAD_REQUEST, f"{key} is not a text")
    if options.get("filter-type") not in (None, SQL):
        raise CommandRefused(BAD_REQUEST, f"filter-type is {SQL}")
    for key in must_have:
        if not options.get(key):
            raise CommandRefused(BAD_REQUEST, f"a link needs `{key}`")
    check_link_name(command.name)
    if options.get("mode") not in (None, "copy", "move"):
        raise CommandRefused(BAD_REQUEST, "mode is copy (from topics) or move (from queues)")
    target = options.get("target")
    if isinstance(target, str) and "@" in target:
        options["target"] = _plain_address(target)
    return {key: value for key, value in options.items() if must_have == () or value is not None}


def _plain_address(text: str) -> str:
    try:
        parsed = address.parse(text)
    except AmqpError as error:
        raise CommandRefused(BAD_REQUEST, f"target: {error.description}") from None
    if not parsed.node or address.is_reserved(parsed.node):
        raise CommandRefused(
            BAD_REQUEST, f"target: {text!r} names no node; write NODE or NODE@DOMAIN"
        )
    return str(parsed)


def policy_of(kind: str, name: str, options: Mapping[str, object]) -> TopologyPolicy:
    """Return the policy that options mean.

    Args:
        kind: `POLICY` or `OPERATOR_POLICY`.
        name: of it.
        options: ``pattern``, ``apply-to``, ``priority``, ``virtual-host``, and ``definition``, a
            JSON object in a text.

    Raises:
        TopologyFault: something of it is wrong; the words begin with the option.
    """
    unknown = sorted(set(options) - POLICY_KEYS)
    if unknown:
        raise _wrong_policy(f"unknown option {unknown[0]!r}; there are {_POLICY_KEYS_IN_WORDS}")
    pattern = options.get("pattern")
    if not isinstance(pattern, str):
        raise _wrong_policy("pattern: a policy needs one, a regular expression in a text")
    said = options.get("apply-to", PolicyScope.ALL.value)
    try:
        scope = PolicyScope(said)
    except ValueError:
        known = ", ".join(each.value for each in PolicyScope)
        raise _wrong_policy(f"apply-to: {said!r:.40} is not one of {known}") from None
    priority = options.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise _wrong_policy("priority: it has to be a whole number")
    host = options.get("virtual-host", ROOT_HOST)
    if not isinstance(host, str):
        raise _wrong_policy("virtual-host: it has to be a text")
    is_operator = kind == OPERATOR_POLICY
    definition = _definition(options)
    here = host_named(host)
    return topology_policy(name, pattern, definition, scope, priority, is_operator, here)


def _definition(options: Mapping[str, object]) -> dict[str, object]:
    wrong = 'definition: it is a JSON object in a text, as in {"message-ttl": 60000}'
    text = options.get("definition")
    try:
        definition = parse_json(text) if isinstance(text, str) else None
    except ValueError as error:
        raise _wrong_policy(f"{wrong}: {error}") from None
    if not isinstance(definition, dict):
        raise _wrong_policy(wrong)
    return definition


def _wrong_policy(words: str) -> TopologyFault:
    return TopologyFault(TopologyFaultKind.INVALID_ARGUMENT, words)


def check_link_name(name: str) -> None:
    """Refuse an invalid name of a link."""
    if not 0 < len(name) <= 256 or not name.isprintable():
        raise CommandRefused(
            BAD_REQUEST, "the name of a link has 1 to 256 characters that can be printed"
        )


def check_name(name: str) -> None:
    """Refuse an invalid name of a node."""
    try:
        address.check_new_name(name)
    except AmqpError as error:
        raise CommandRefused(BAD_REQUEST, error.description) from None


def new_name_of(command: ManagementCommand) -> str:
    """Return the new name in a RENAME."""
    new_name = command.arguments.get("new-name")
    if not isinstance(new_name, str) or not new_name:
        raise CommandRefused(BAD_REQUEST, "RENAME needs the attribute `new-name`")
    return new_name


def in_words(value: object) -> str:
    """Format the value of an option as in commands: null, true, a number, a text."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def switch(command: ManagementCommand, key: str) -> bool:
    """Read an option that is true or false."""
    value = command.arguments.get(key, False)
    if not isinstance(value, bool):
        raise CommandRefused(BAD_REQUEST, f"{key} is true or false")
    return value


def require_same(
    name: str, there: Mapping[str, object], asked: Mapping[str, object], keys: Iterable[str]
) -> None:
    """Refuse an assertion that does not hold (G-08, G-14).

    Args:
        name: the name of the entity.
        there: its options.
        asked: those that were asserted.
        keys: the options to compare.

    Raises:
        CommandRefused: some differ; its attributes name them.
    """
    different = {
        key: {"is": there.get(key), "asked": asked[key]}
        for key in keys
        if there.get(key) != asked[key]
    }
    if different:
        words = "; ".join(
            f"{key} is {in_words(facts['is'])}, not {in_words(facts['asked'])}"
            for key, facts in different.items()
        )
        raise CommandRefused(CONFLICT, f"{name!r}: {words}", {"differences": different})


# Any: options by name, each of the type that the table of the command demands.
def link_of(name: str, options: Mapping[str, Any]) -> BindingDeclaration:
    """Return the declaration of a binding with these options."""
    return BindingDeclaration(
        str(options["source"]),
        str(options["target"]),
        options.get("filter"),
        options.get("mode"),
        name,
        options.get("subject"),
        options.get("first-message-date"),
    )


def shown(link: BindingDeclaration) -> dict[str, object]:
    """Return the attributes of a binding that an ASSERT compares and shows."""
    return {
        "name": link.name,
        "source": link.source,
        "target": link.target,
        "filter": link.selector,
        "filter-type": SQL if link.selector else None,
        "subject": link.subject,
        "mode": link.mode,
        "temporary": False,
        "first-message-date": link.first_message_ms,
    }


def with_rows(declaration: Declaration, rows: str) -> Declaration:
    """Return a declaration whose queue has its store rows under this name."""
    if isinstance(declaration, TopicDeclaration) or not rows:
        return declaration
    return replace(declaration, rows=rows)


def messages_on(node: Queue | Topic) -> int:
    """Return the number of messages on a node."""
    if isinstance(node, Queue):
        return node.depth
    return node.waiting + sum(each.queue.depth for each in node.durable.values())


def is_busy(node: Queue | Topic) -> bool:
    """Return whether messages are on their way to a node."""
    if isinstance(node, Queue):
        return not node.is_settled
    return bool(node.durable)


def leads_back(
    link: BindingDeclaration, bindings: Iterable[BindingDeclaration], aliases: Mapping[str, str]
) -> bool:
    """Return whether a binding would close a loop back to its source."""
    graph: dict[str, list[str]] = {}
    for each in bindings:
        source = aliases.get(each.source, each.source)
        graph.setdefault(source, []).append(aliases.get(each.target, each.target))
    start = aliases.get(link.source, link.source)
    seen: set[str] = set()
    ahead = [aliases.get(link.target, link.target)]
    while ahead:
        name = ahead.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            ahead += graph.get(name, ())
    return False
