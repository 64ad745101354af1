# SPDX-License-Identifier: Apache-2.0
"""Rules for arguments of declarations and consumers, and their values (09-W-74).

A rule has the name of an argument without ``x-``, which is also the key of a policy, and a check
that returns the value. Unknown arguments are no error: they are stored with the declaration and
compared when it is repeated.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from amqproute.broker.exchanges.binding_tables import ExchangeType
from amqproute.broker.exchanges.exchange_graph import (
    ALTERNATE_ARGUMENT,
    ExchangeDefinition,
    differing_argument,
    differing_flag,
)
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

TermValue: TypeAlias = int | bool | str
"""The value of an argument or a policy."""

MOST_MS: Final = 0xFFFFFFFF
"""The longest time of an argument, ms: about 49 days."""
MOST_LIFETIME_MS: Final = 3650 * 24 * 3600 * 1000
"""The longest lifetime of messages, ms: ten years. Celery's delays ask for four at once."""
MOST_PRIORITIES: Final = 255
MOST_COUNT: Final = (1 << 63) - 1
LONGEST_NAME: Final = 255
"""Octets of a name in an argument: it is a short string where it is used."""

PLUGIN_TYPES: Final = frozenset(
    (
        "x-delayed-message", "x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random",
        "x-recent-history", "x-jms-topic", "x-rtopic", "x-lvc", "x-presence", "x-script",
        "x-deduplication", "x-message-deduplication", "x-federation-upstream",
    )
)  # fmt: skip
"""Exchange types that plug-ins of RabbitMQ bring."""


class QueueKind(enum.Enum):
    """Values of ``x-queue-type``. Both mean the same durable queue here."""

    CLASSIC = "classic"
    QUORUM = "quorum"


class Overflow(enum.Enum):
    """Values of ``x-overflow``: what happens when a queue has no room."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"


class TermSource(enum.Enum):
    """Origin of a value in force."""

    OPTION = "option"
    ARGUMENT = "argument"
    POLICY = "policy"
    OPERATOR_POLICY = "operator policy"


@dataclass(frozen=True)
class EffectiveTerm:
    """A value in force.

    Attributes:
        value: the value.
        source: where the value comes from.
        policy: the name of the policy; empty for an option or an argument.
    """

    value: TermValue
    source: TermSource
    policy: str = ""


@dataclass(frozen=True)
class PolicyTerms:
    """A policy that applies to a queue or an exchange.

    Attributes:
        name: of it.
        values: checked values by name; the names are those of `QUEUE_RULES`.
    """

    name: str
    values: Mapping[str, TermValue]


@dataclass(frozen=True)
class QueueDeclaration:
    """A queue as it was declared.

    Attributes:
        name: of it.
        durable: whether the queue survives a restart.
        exclusive: whether it belongs to the declaring connection.
        auto_delete: whether it is deleted with its last consumer.
        arguments: the arguments as received.
        has_priorities: whether it has priorities without the argument (09-BASIC-07). Equal
            declarations may differ in it, since it depends on the client's version of AMQP.
    """

    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)
    has_priorities: bool = False


Check: TypeAlias = Callable[[object], TermValue]


def _integer(lowest: int, highest: int) -> Check:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"it has to be an integer, not {_kind(value)}")
        if not lowest <= value <= highest:
            raise ValueError(f"it has to be {lowest} to {highest}, not {int(value)}")
        return int(value)

    return check


def _word(*words: str) -> Check:
    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"it has to be a text, not {_kind(value)}")
        if value not in words:
            raise ValueError(f"it can be {' or '.join(words)}, not {value!r:.60}")
        return str(value)

    return check


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"it has to be a text, not {_kind(value)}")
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > LONGEST_NAME:
        raise ValueError(f"it has {size} octets, more than {LONGEST_NAME}")
    return str(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"it has to be true or false, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, tuple | list):
        return "an array"
    names = {bool: "a truth value", str: "a text", bytes: "octets", type(None): "nothing"}
    for kind, name in names.items():
        if isinstance(value, kind):
            return name
    return "an integer" if isinstance(value, int) else "a number with a fraction"


QUEUE_RULES: Final[Mapping[str, Check]] = {
    "message-ttl": _integer(0, MOST_LIFETIME_MS),
    "expires": _integer(1, MOST_MS),
    "max-length": _integer(0, MOST_COUNT),
    "max-length-bytes": _integer(0, MOST_COUNT),
    "overflow": _word(*(each.value for each in Overflow)),
    "dead-letter-exchange": _name,
    "dead-letter-routing-key": _name,
    "max-priority": _integer(0, MOST_PRIORITIES),
    "single-active-consumer": _truth,
    "delivery-limit": _integer(-1, MOST_COUNT),
    "consumer-timeout": _integer(0, MOST_COUNT),
    "queue-type": _word(*(each.value for each in QueueKind)),
    "queue-mode": _word("default", "lazy"),
    "queue-version": _integer(1, 2),
    "dead-letter-strategy": _word("at-most-once", "at-least-once"),
}
"""Checks of queue arguments by name, without ``x-``."""

KNOWN_ARGUMENTS: Final = frozenset(f"x-{name}" for name in QUEUE_RULES)
"""Arguments of queue.declare that have an effect."""

LOWER_COUNTS: Final = frozenset(
    (
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "delivery-limit",
        "consumer-timeout",
    )
)
"""Settings of which the lower value is in force; of the others it is the argument."""
ARGUMENTS_ONLY: Final = frozenset(
    ("max-priority", "single-active-consumer", "queue-type", "queue-version")
)
"""Settings a policy cannot have, since they cannot change during the life of a queue."""
QUEUE_POLICY_KEYS: Final = frozenset(QUEUE_RULES) - ARGUMENTS_ONLY
"""Keys of a policy for queues."""
EXCHANGE_POLICY_KEYS: Final = frozenset((ALTERNATE_ARGUMENT,))
"""Keys of a policy for exchanges."""
OPERATOR_KEYS: Final = frozenset(
    ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit")
)
"""Keys of an operator policy: bounds, of which the lower one is in force."""
UNBOUNDED: Final[Mapping[str, int]] = {"delivery-limit": -1, "consumer-timeout": 0}
"""Values that mean no bound."""


def queue_terms(name: str, arguments: Mapping[str, object]) -> dict[str, TermValue]:
    """Check the arguments of queue.declare.

    Args:
        name: the name of the queue, for error texts.
        arguments: the arguments as received.

    Returns:
        The values of known arguments, by name without ``x-``.

    Raises:
        TopologyFault: an argument is invalid, or the queue type is not offered.
    """
    kind = arguments.get("x-queue-type")
    if kind == "stream":
        raise TopologyFault(
            TopologyFaultKind.UNSUPPORTED_QUEUE_TYPE,
            f"queue '{name}': streams (x-queue-type 'stream') are not offered; classic and quorum "
            "are accepted and mean a durable queue",
        )
    terms = {}
    for argument, value in arguments.items():
        check = QUEUE_RULES.get(argument[2:]) if argument.startswith("x-") else None
        if check is not None:
            terms[argument[2:]] = _checked(check, argument, f"queue '{name}'", value)
    if "dead-letter-routing-key" in terms and "dead-letter-exchange" not in terms:
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT,
            f"invalid arg 'x-dead-letter-routing-key' for queue '{name}': there is no "
            "x-dead-letter-exchange",
        )
    return terms


def policy_terms(
    name: str,
    definition: Mapping[str, object],
    keys: Container[str] = QUEUE_POLICY_KEYS | EXCHANGE_POLICY_KEYS,
) -> tuple[PolicyTerms, list[str]]:
    """Check the definition of a policy.

    Args:
        name: the name of the policy, for error texts.
        definition: keys and values as received.
        keys: the keys this kind of policy may have.

    Returns:
        The values of the policy, and the keys that have no meaning in it.

    Raises:
        TopologyFault: a value is invalid.
    """
    values: dict[str, TermValue] = {}
    unknown = []
    for key, value in definition.items():
        check = _name if key == ALTERNATE_ARGUMENT else QUEUE_RULES.get(key)
        if check is None or key not in keys:
            unknown.append(key)
        else:
            values[key] = _checked(check, key, f"policy '{name}'", value)
    if values.get("dead-letter-exchange") == "" and "dead-letter-routing-key" not in values:
        # The publisher's key would name the queue, whatever rights the publisher has on it.
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT,
            f"invalid arg 'dead-letter-exchange' for policy '{name}': the default exchange needs "
            "dead-letter-routing-key, the name of a queue, beside it",
        )
    return PolicyTerms(name, values), unknown


def effective_terms(
    arguments: Mapping[str, TermValue],
    policy: PolicyTerms | None = None,
    operator_policy: PolicyTerms | None = None,
    options: Mapping[str, TermValue] = MappingProxyType({}),
) -> dict[str, EffectiveTerm]:
    """Return the values in force for a queue, each with its origin.

    Args:
        arguments: the arguments of the declaration, from `queue_terms`.
        policy: the policy that applies, if any.
        operator_policy: the operator policy that applies, if any; it bounds the others.
        options: options of the node, under the names of arguments; an argument overrides them.
    """
    terms = {name: EffectiveTerm(value, TermSource.OPTION) for name, value in options.items()}
    for name, value in arguments.items():
        terms[name] = EffectiveTerm(value, TermSource.ARGUMENT)
    for given, source, wins in (
        (policy, TermSource.POLICY, False),
        (operator_policy, TermSource.OPERATOR_POLICY, True),
    ):
        if given is None:
            continue
        for name, value in given.values.items():
            there = terms.get(name)
            is_lower = (
                name in LOWER_COUNTS and there is not None and _is_lower(name, value, there.value)
            )
            if there is None or is_lower or (wins and name not in LOWER_COUNTS):
                terms[name] = EffectiveTerm(value, source, given.name)
    return terms


def _is_lower(name: str, value: TermValue, there: TermValue) -> bool:
    none = UNBOUNDED.get(name)
    one, other = (1 << 64 if each == none else int(each) for each in (value, there))
    return one < other


def check_queue_kind(asked: QueueDeclaration) -> None:
    """Check that a new queue can be of the requested kind.

    Raises:
        TopologyFault: a quorum queue would not survive a restart.
    """
    if asked.arguments.get("x-queue-type") != QueueKind.QUORUM.value:
        return
    for flag, is_wrong in (
        ("durable", not asked.durable),
        ("exclusive", asked.exclusive),
        ("auto_delete", asked.auto_delete),
    ):
        if is_wrong:
            raise TopologyFault(
                TopologyFaultKind.INVALID_ARGUMENT,
                f"invalid property '{flag}' for queue '{asked.name}': a quorum queue is durable, "
                "and neither exclusive nor auto-delete",
            )


def check_queue_redeclared(
    there: QueueDeclaration, asked: QueueDeclaration, lenient: bool = False
) -> None:
    """Check that a declaration fits the queue of that name (09: part 4.4).

    Args:
        there: the existing queue.
        asked: the declaration.
        lenient: durable and auto-delete are ignored, but no argument, as in 0-9 (09-X-39,
            09-X-42). In 0-9-1 only arguments that mean something count.

    Raises:
        TopologyFault: the declaration differs; the text names the argument.
    """
    flags = [("exclusive", asked.exclusive, there.exclusive)]
    if not lenient:
        flags = [
            ("durable", asked.durable, there.durable),
            *flags,
            ("auto_delete", asked.auto_delete, there.auto_delete),
        ]
    usual: Mapping[str, object] = {"x-queue-type": QueueKind.CLASSIC.value}
    names = {*there.arguments, *asked.arguments} if lenient else KNOWN_ARGUMENTS
    difference = differing_flag(flags) or differing_argument(
        {**usual, **there.arguments}, {**usual, **asked.arguments}, names
    )
    if difference is not None:
        raise TopologyFault(
            TopologyFaultKind.OTHER_QUEUE,
            f"inequivalent arg {difference[0]} for queue '{there.name}': {difference[1]}",
        )


def exchange_definition(
    name: str, type_name: str, flags: Mapping[str, bool], arguments: Mapping[str, object]
) -> ExchangeDefinition:
    """Check the fields of exchange.declare.

    Args:
        name: the name of the exchange.
        type_name: the exchange type as received.
        flags: durable, auto_delete and internal; a missing one is false.
        arguments: the arguments as received.

    Raises:
        TopologyFault: the type is unknown or that of a RabbitMQ plug-in, or an argument is invalid.
    """
    try:
        kind = ExchangeType(type_name)
    except ValueError:
        if type_name in PLUGIN_TYPES or type_name.startswith("x-"):
            raise TopologyFault(
                TopologyFaultKind.PLUGIN_TYPE,
                f"exchange '{name}': the type '{type_name:.60}' is a plug-in of RabbitMQ and not "
                "offered; there are direct, fanout, topic and headers",
            ) from None
        raise TopologyFault(
            TopologyFaultKind.UNKNOWN_TYPE,
            f"exchange '{name}': unknown exchange type '{type_name:.60}'",
        ) from None
    alternate = arguments.get(ALTERNATE_ARGUMENT)
    if ALTERNATE_ARGUMENT in arguments:
        _checked(_name, ALTERNATE_ARGUMENT, f"exchange '{name}'", alternate)
    return ExchangeDefinition(
        name,
        kind,
        flags.get("durable", False),
        flags.get("auto_delete", False),
        flags.get("internal", False),
        None if alternate is None else str(alternate),
        arguments,
    )


def consumer_priority(arguments: Mapping[str, object]) -> int:
    """Check the arguments of basic.consume, or its filter in 0-9 (09-BASIC-27).

    Returns:
        ``x-priority``, or 0 without it.

    Raises:
        TopologyFault: an argument is invalid or concerns streams.
    """
    for name in arguments:
        if name.startswith("x-stream-"):
            raise TopologyFault(
                TopologyFaultKind.INVALID_ARGUMENT,
                f"invalid arg '{name:.60}' for a consumer: streams are not offered",
            )
    if "x-cancel-on-ha-failover" in arguments:
        _checked(
            _truth,
            "x-cancel-on-ha-failover",
            "a consumer",
            arguments["x-cancel-on-ha-failover"],
        )
    if "x-priority" not in arguments:
        return 0
    check = _integer(-(1 << 31), (1 << 31) - 1)
    return int(_checked(check, "x-priority", "a consumer", arguments["x-priority"]))


def _checked(check: Check, argument: str, whose: str, value: object) -> TermValue:
    try:
        return check(value)
    except ValueError as error:
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT, f"invalid arg '{argument}' for {whose}: {error}"
        ) from None


__all__ = [
    "ARGUMENTS_ONLY",
    "EXCHANGE_POLICY_KEYS",
    "KNOWN_ARGUMENTS",
    "LOWER_COUNTS",
    "OPERATOR_KEYS",
    "PLUGIN_TYPES",
    "QUEUE_POLICY_KEYS",
    "QUEUE_RULES",
    "EffectiveTerm",
    "Overflow",
    "PolicyTerms",
    "QueueDeclaration",
    "QueueKind",
    "TermSource",
    "TermValue",
    "check_queue_kind",
    "check_queue_redeclared",
    "consumer_priority",
    "effective_terms",
    "exchange_definition",
    "policy_terms",
    "queue_terms",
]
