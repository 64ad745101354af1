# SPDX-License-Identifier: Apache-2.0
"""The filters in force, from the filter set of a source (part 3 §3.5.8).

A filter set is a map of names, chosen by the peer, to described values; the descriptor is the kind
of the filter. `read_filters` makes each filter and keeps its received value for the answering
attach, which names the filters in force.

The caller decides about unknown kinds: by default the link is refused (paper §2.3.10); with
``drop_unsupported`` the filter is left out, and its absence from the answer informs the peer
(final, §3.5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from amqproute.errors import InvalidField, NotImplementedHere
from amqproute.filters.filter_kinds import Failed, Filter, FilterKind, fault_of_kind, guarded
from amqproute.filters.local import NoLocal
from amqproute.filters.names import Dialect
from amqproute.filters.properties import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    application_properties_filter,
    properties_filter,
)
from amqproute.filters.selector import Clock, Selector, SelectorCache
from amqproute.filters.subject import SubjectFilter
from amqproute.message import Message
from amqproute.wire.amqp10.types import Described, Symbol, ULong

MAX_FILTERS: Final = 8
"""Filters in one filter set."""

SELECTOR: Final = "apache.org:selector-filter:string"
NO_LOCAL: Final = "apache.org:no-local-filter:list"
SQL: Final = "amqp:sql-filter"
DIRECT: Final = "apache.org:legacy-amqp-direct-binding:string"
TOPIC: Final = "apache.org:legacy-amqp-topic-binding:string"

CODES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0x120: SQL,
        0x173: PROPERTIES,
        0x174: APPLICATION_PROPERTIES,
        0x0000468C00000000: DIRECT,
        0x0000468C00000001: TOPIC,
        0x0000468C00000003: NO_LOCAL,
        0x0000468C00000004: SELECTOR,
    }
)
"""Numeric descriptor -> symbolic descriptor (filtex §4.2, §6.1; Apache's registered filters)."""

BARE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "selector": SELECTOR, "jms-selector": SELECTOR, "sql-92": SELECTOR, "SQL-92": SELECTOR,
        SELECTOR: SELECTOR, "sql-filter": SQL, SQL: SQL,
    }
)  # fmt: skip
"""Name in the filter set -> descriptor, for a string without one (revision 200 §4.1: the type is
``SQL-92``). The final standard wants a described value; some clients leave it out."""

CAPABILITIES: Final = (
    "APACHE.ORG:SELECTOR",
    "APACHE.ORG:NO_LOCAL",
    "AMQP_FILTEX_PROP_V1_0",
    "AMQP_FILTEX_SQL_V1_0",
)
"""Capabilities in the `open` of a broker that offers these filters."""


_Name = TypeVar("_Name", bound=str)


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """One filter of a set.

    Attributes:
        name: its key in the filter set.
        descriptor: its kind, in symbols.
        value: the value as received, for the answering attach.
        filter: its predicate.
    """

    name: Symbol
    descriptor: str
    value: object
    filter: Filter

    def __str__(self) -> str:
        return f"{self.name}={self.filter}"


class FilterSet:
    """The filters in force on a link; a message has to pass them all (part 3 §3.5.8).

    Attributes:
        filters: one by one, in the order of the map.
        dropped: names of the filters that were left out as unsupported.
        needs: the needs of all of them together.
        words: words of their selectors, a measure of their cost.
    """

    __slots__ = ("_tests", "dropped", "filters", "needs", "words")

    def __init__(self, filters: tuple[NamedFilter, ...], dropped: tuple[Symbol, ...] = ()) -> None:
        self.filters = filters
        self.dropped = dropped
        self.needs: frozenset[str] = frozenset().union(*(each.filter.needs for each in filters))
        self.words = sum(each.filter.words for each in filters if isinstance(each.filter, Selector))
        self._tests: tuple[Callable[[Message, str | None], bool], ...] = tuple(
            each.filter.matches for each in filters
        )

    def __bool__(self) -> bool:
        """Return whether there is any filter."""
        return bool(self._tests)

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """Return whether a message passes every filter; see `Filter.matches`."""
        for test in self._tests:  # noqa: SIM110 - a generator costs more than the test
            if not test(message, origin):
                return False
        return True

    @property
    def subject_pattern(self) -> Sequence[str] | None:
        """Words that the subject of each message has to match that passes; None: any subject may.

        A message that matches has to pass the other filters as well.
        """
        for each in self.filters:
            if isinstance(each.filter, SubjectFilter):
                return each.filter.words
        return None

    def in_force(self) -> dict[str, object] | None:
        """Return the filter set for the answering attach: the received values."""
        return {each.name: each.value for each in self.filters} or None

    def __str__(self) -> str:
        return ", ".join(map(str, self.filters))

    def __repr__(self) -> str:
        return f"<FilterSet {self!s:.80}>"


NO_FILTERS: Final = FilterSet(())
"""Lets every message pass."""


def declared_filters(subject: str | None, selector: str | None, now_ms: Clock) -> FilterSet:
    """Make the filters of a binding, which the configuration declares.

    Args:
        subject: which messages, by their subject; None for all.
        selector: which messages; None or empty for all.
        now_ms: the milliseconds as for `read_filters`.

    Raises:
        InvalidField: one of them is not valid.
    """
    wanted = {}
    if subject is not None:  # first: it costs less than a selector
        wanted[Symbol("subject")] = Described(Symbol(TOPIC), subject)
    if selector:
        wanted[Symbol("selector")] = Described(Symbol(SELECTOR), selector)
    try:
        return read_filters(wanted, own_container="", now_ms=now_ms)
    except InvalidField as error:
        # Clients name their filters; here there is one of a kind, and its text says which.
        words = error.description.removeprefix("filter selector: ")
        raise InvalidField(words, info=error.info) from None


def read_filters(
    filter_set: Mapping[_Name, object] | None,
    *,
    own_container: str,
    now_ms: Clock | None = None,
    drop_unsupported: bool = False,
) -> FilterSet:
    """Make the filters of a source.

    Args:
        filter_set: ``source.filter`` as decoded; None or empty for none.
        own_container: the container-id of the peer that attaches, for no-local.
        now_ms: the wall clock in ms since the epoch, for UTC() in selectors.
        drop_unsupported: leave filters of unknown kinds out instead of refusing.

    Raises:
        NotImplementedHere: a filter is of a kind that is not offered.
        InvalidField: a filter has an invalid value, or there are too many.
    """
    if not filter_set:
        return NO_FILTERS
    if len(filter_set) > MAX_FILTERS:
        raise InvalidField(
            f"{len(filter_set)} filters; at most {MAX_FILTERS} are taken",
            info={"code": "filter.count"},
        )
    made, dropped = [], []
    for key, value in filter_set.items():
        if value is None:
            continue  # The standard allows null for no filter.
        name = Symbol(key)
        descriptor, inner = _kind(name, value)
        make = _MAKERS.get(descriptor) or _PLUGGED.get(descriptor)
        if make is not None:
            made.append(
                NamedFilter(name, descriptor, value, make(name, inner, own_container, now_ms))
            )
        elif drop_unsupported:
            dropped.append(name)
        else:
            raise NotImplementedHere(
                f"filter {name:.40}: {descriptor:.80} is not offered; "
                f"offered are {', '.join(sorted((*_MAKERS, *_PLUGGED)))}",
                info={"code": "filter.unsupported"},
            )
    return FilterSet(tuple(made), tuple(dropped))


def _kind(name: str, value: object) -> tuple[str, object]:
    """Return a filter's kind and value, by its descriptor or else by its name."""
    if type(value) is Described:
        descriptor = value.descriptor
        if type(descriptor) is ULong:
            code = int(descriptor)
            return _symbol_of(code), value.value
        if isinstance(descriptor, str):
            return str(descriptor), value.value
        raise _refusal(name, "its descriptor is neither ulong nor symbol")
    if isinstance(value, str):
        return BARE_NAMES.get(name, name), value
    raise _refusal(name, "not a described value (part 3 §3.5.8)")


def _refusal(name: str, words: str) -> InvalidField:
    return InvalidField(f"filter {name:.40}: {words}", info={"code": "filter.value"})


# ------------------------------------------------------------------------ the kinds offered

_CACHE: Final = SelectorCache()


def _selector(dialect: Dialect) -> Maker:
    def make(name: str, value: object, own_container: str, now_ms: Clock | None) -> Filter:
        if not isinstance(value, str):
            raise _refusal(name, "a selector is a string")
        try:
            return _CACHE.get(str(value), dialect, now_ms)
        except InvalidField as error:
            raise InvalidField(f"filter {name:.40}: {error.description}", info=error.info) from None

    return make


def _subject(has_wildcards: bool) -> Maker:
    def make(name: str, value: object, own_container: str, now_ms: Clock | None) -> Filter:
        if not isinstance(value, str):
            raise _refusal(name, "a subject is a string")
        return SubjectFilter(str(value), has_wildcards)

    return make


def _no_local(name: str, value: object, own_container: str, now_ms: Clock | None) -> Filter:
    # The registered form is a list without fields; JMS clients send a string that names the filter.
    if not (value is None or isinstance(value, str) or value == []):
        raise _refusal(name, "no-local has no terms: its value is a list without fields")
    return NoLocal(own_container)


def _properties(name: str, value: object, own_container: str, now_ms: Clock | None) -> Filter:
    return properties_filter(value)


def _application(name: str, value: object, own_container: str, now_ms: Clock | None) -> Filter:
    return application_properties_filter(value)


class Maker(Protocol):
    """Makes a filter of one kind: name, inner value, the peer's container-id, the clock."""

    def __call__(
        self, name: str, value: object, own_container: str, now_ms: Clock | None, /
    ) -> Filter:
        """Return the filter.

        Raises:
            InvalidField: the value is not valid for this kind.
        """


_MAKERS: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        SELECTOR: _selector(Dialect.SELECTOR),
        SQL: _selector(Dialect.FILTEX),
        NO_LOCAL: _no_local,
        DIRECT: _subject(False),
        TOPIC: _subject(True),
        PROPERTIES: _properties,
        APPLICATION_PROPERTIES: _application,
    }
)


# ------------------------------------------------------------------------ kinds of plug-ins

_PLUGGED: Final[dict[str, Maker]] = {}
_PLUGGED_CODES: Final[dict[int, str]] = {}
_PLUGGED_CAPABILITIES: Final[list[str]] = []
# Of the process, as the kinds above: an installation has one set of plug-ins.


def fault_of_plugin(value: object) -> str:
    """Return why an object is no kind of filter that can be offered; empty if it is one."""
    fault = fault_of_kind(value)
    if fault:
        return fault
    kind: FilterKind = value  # type: ignore[assignment]  # fault_of_kind has looked at it
    if kind.descriptor in _MAKERS or kind.descriptor in BARE_NAMES:
        return f"the broker has filters of the kind {kind.descriptor} itself"
    if kind.code is not None and kind.code in CODES:
        return f"the code {kind.code:#x} is that of {CODES[kind.code]}"
    return ""


def adopt_kinds(kinds: Iterable[FilterKind], failed: Failed) -> list[str]:
    """Offer the kinds of plug-ins, in place of those that were offered before.

    Args:
        kinds: without a fault; see `fault_of_plugin`.
        failed: called when the code of one raises.

    Returns:
        Descriptors of those that are left out, since another one has their descriptor or code.
    """
    for each in (_PLUGGED, _PLUGGED_CODES, _PLUGGED_CAPABILITIES):
        each.clear()
    left_out = []
    for kind in kinds:
        if kind.descriptor in _PLUGGED or kind.code in _PLUGGED_CODES:
            left_out.append(kind.descriptor)
            continue
        _PLUGGED[kind.descriptor] = guarded(kind, failed)
        if kind.code is not None:
            _PLUGGED_CODES[kind.code] = kind.descriptor
        if kind.capability:
            _PLUGGED_CAPABILITIES.append(kind.capability)
    return left_out


def capabilities() -> tuple[str, ...]:
    """Return the capabilities in the `open` of the broker, those of plug-ins included."""
    return (*CAPABILITIES, *_PLUGGED_CAPABILITIES)


def _symbol_of(code: int) -> str:
    return CODES.get(code) or _PLUGGED_CODES.get(code) or f"0x{code:016x}"
