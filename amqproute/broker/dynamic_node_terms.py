# SPDX-License-Identifier: Apache-2.0
"""Terms of dynamic queues: ``dynamic-node-properties`` (N-18, part 3 §3.5.9).

The keys and words are those of the configuration. What is not known, or not possible for a node
that lives in memory, is refused, never ignored (Q-10).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import (
    OUTCOMES,
    Duplicates,
    Durability,
    Excess,
    Lifetime,
    NonTransactional,
    QueueOptions,
    Visibility,
)
from amqproute.errors import InvalidField, NotImplementedHere

DYNAMIC_CAPACITY: Final = 100_000
"""A dynamic queue lives in memory only and does not page; so it has a capacity."""

_LIMITS: Final = QueueLimits(capacity=DYNAMIC_CAPACITY)
_OPTIONS: Final = QueueOptions(durability=Durability.TRANSIENT, duplicates=Duplicates.GLOBAL_IDS)

_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class DynamicTerms:
    """Terms of a dynamic queue.

    Attributes:
        limits: its bounds.
        options: its habits.
        lifetime: when it goes.
        is_exclusive: links of the same session only (N-17).
        dead_letter: the node that takes what is rejected, expired or spent; None for none.
    """

    limits: QueueLimits = _LIMITS
    options: QueueOptions = _OPTIONS
    lifetime: Lifetime = Lifetime.CLOSE
    is_exclusive: bool = False
    dead_letter: str | None = None


def words_of(value: object) -> tuple[str, ...]:
    """Return the words of a property that can have several."""
    return tuple(map(str, value if isinstance(value, list | tuple) else (value,)))


def read_terms(properties: Mapping[str, object] | None) -> DynamicTerms:
    """Read what the maker of a queue asks for.

    Args:
        properties: by name; ``lifetime-policy`` is a `Lifetime`, several words are a sequence.

    Raises:
        NotImplementedHere: a property is not known, or not possible here.
        InvalidField: a property has a value that it cannot have.
    """
    terms = DynamicTerms()
    has_lifetime = False
    for key, value in (properties or {}).items():
        name = str(key)
        if isinstance(value, Lifetime):
            terms = replace(terms, lifetime=value)
            has_lifetime = True
        elif name in _READERS:
            terms = _READERS[name](terms, name, value)
        else:
            known = ", ".join(("lifetime-policy", *_READERS))
            raise NotImplementedHere(
                f"dynamic-node-properties: {name[:100]} is not known; there are {known}"
            )
    if terms.is_exclusive and not has_lifetime:
        terms = replace(terms, lifetime=Lifetime.SESSION)
    return terms


# -- one property each -----------------------------------------------------------------------------

_Reader = Callable[[DynamicTerms, str, object], DynamicTerms]


def _bad(name: str, value: object, wanted: str) -> InvalidField:
    return InvalidField(f"dynamic-node-properties: {name} is {value!s:.100}, not {wanted}")


def _bound(field: str, low: int, high: int) -> _Reader:
    def read(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
        number = _whole(name, value, low, high)
        changes: dict[str, Any] = {field: number}
        return replace(terms, limits=replace(terms.limits, **changes))

    return read


def _whole(name: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _bad(name, value, f"a whole number from {low} to {high}")
    return int(value)


def _with(terms: DynamicTerms, **changes: Any) -> DynamicTerms:
    return replace(terms, options=replace(terms.options, **changes))


def _word(field: str, words: type[_E]) -> _Reader:
    def read(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
        if value not in list(words):
            raise _bad(name, value, "one of " + ", ".join(words))
        return _with(terms, **{field: words(str(value))})

    return read


def _switch(field: str) -> _Reader:
    def read(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
        return _with(terms, **{field: _boolean(name, value)})

    return read


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, value, "true or false")
    return value


def _modes(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    modes = set(words_of(value))
    if not modes or not modes <= {"move", "copy"}:
        raise _bad(name, value, "move, copy or both")
    if "move" in modes:
        return terms
    return _with(terms, destructive_links=0)


def _links(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    most = _whole(name, value, 0, 1 << 31)
    return _with(terms, destructive_links=most)


def _durability(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    if value not in list(Durability):
        raise _bad(name, value, "one of " + ", ".join(Durability))
    if value != Durability.TRANSIENT:
        raise NotImplementedHere(
            f"{name} {value}: a dynamic node lives in memory and does not outlast the daemon"
        )
    return terms


def _takes_durable(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    if value not in ("accept", "reject"):
        raise _bad(name, value, "accept or reject")
    return _with(terms, takes_durable=value == "accept")


def _exclusive(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    return replace(terms, is_exclusive=_boolean(name, value))


def _dead_letter(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    if not isinstance(value, str) or not value:
        raise _bad(name, value, "the name of a node")
    return replace(terms, dead_letter=str(value))


def _outcomes(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    words = words_of(value)
    if not words or not set(words) <= set(OUTCOMES):
        raise _bad(name, value, "a list of " + ", ".join(OUTCOMES))
    return _with(terms, default_outcomes=words)


def _type(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    if value != "queue":
        raise _bad(name, value, "queue: the other properties are those of a queue")
    return terms


def _serialized(terms: DynamicTerms, name: str, value: object) -> DynamicTerms:
    _boolean(name, value)  # all links see one order here, whether it is asked for or not (D-13)
    return terms


_READERS: Final[dict[str, _Reader]] = {
    "supported-dist-modes": _modes,
    "node-type": _type,
    "capacity": _bound("capacity", 1, DYNAMIC_CAPACITY),
    "max-deliveries": _bound("max_deliveries", 1, 1 << 31),
    "priorities": _bound("priorities", 1, 10),
    "ttl": _bound("ttl_ms", 1, (1 << 32) - 1),
    "message-durability-mode": _durability,
    "durable-on-transient": _takes_durable,
    "non-transactional-support": _word("non_transactional", NonTransactional),
    "maximum-destructive-links": _links,
    "excess-destructive-link-policy": _word("excess", Excess),
    "archive-expired": _switch("archive_expired"),
    "archive-currently-unreachable": _switch("archive_unreachable"),
    "duplicate-policy": _word("duplicates", Duplicates),
    "visibility": _word("visibility", Visibility),
    "default-outcomes": _outcomes,
    "serialized": _serialized,
    "exclusive": _exclusive,
    "dead-letter": _dead_letter,
}
