# SPDX-License-Identifier: Apache-2.0
"""Property filters: a map of reference values that a message has to match.

AMQP Filter Expressions 1.0 (OASIS, Committee Specification Draft 01), called filtex here:

* ``amqp:properties-filter`` (0x173, §4.2.4): field of the properties -> reference value;
* ``amqp:application-properties-filter`` (0x174, §4.2.5): key -> reference value.

A message passes when every reference value matches (§4.1.1): null matches whatever is there; a
string that begins with ``&p:`` matches texts that begin with what follows, ``&s:`` those that end
with it, ``&&`` stands for one ``&``, and any other string that begins with ``&`` is refused;
numbers match equal numbers of any type; all else matches what is equal and of its type. Symbols
and strings are both text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from amqproute.errors import DecodeError, InvalidField
from amqproute.filters import names
from amqproute.filters.fields import FieldReader
from amqproute.filters.names import (
    PROPERTY_INDEX,
    MessageView,
    SelectorField,
    SelectorSection,
    UnknownName,
)
from amqproute.filters.operators import NUMBER, TRUTH, kind_of
from amqproute.message import Message
from amqproute.wire.amqp10 import types

MAX_FIELDS: Final = 16
"""Reference values in one filter (filtex §7.1 asks for a limit)."""

PROPERTIES: Final = "amqp:properties-filter"
APPLICATION_PROPERTIES: Final = "amqp:application-properties-filter"

Match: TypeAlias = Callable[[object], bool]

_TEXTS: Final = (str,)
_IDS: Final = (str, types.ULong, UUID, bytes)
_FIELD_TYPES: Final[MappingProxyType[str, tuple[type, ...]]] = MappingProxyType(
    {
        "message_id": _IDS,
        "user_id": (bytes,),
        "to": _TEXTS,
        "subject": _TEXTS,
        "reply_to": _TEXTS,
        "correlation_id": _IDS,
        "content_type": _TEXTS,
        "content_encoding": _TEXTS,
        "absolute_expiry_time": (types.Timestamp,),
        "creation_time": (types.Timestamp,),
        "group_id": _TEXTS,
        "group_sequence": (types.UInt,),
        "reply_to_group_id": _TEXTS,
    }
)
"""Types of the reference value of each field (part 3 §3.2.4)."""


class PropertyFilter:
    """Matches a message's fields against reference values.

    Attributes:
        descriptor: the descriptor of one of the two filters.
        references: field or key -> reference value, as received.
        needs: the section that it reads.
    """

    __slots__ = ("_matches", "_reader", "descriptor", "needs", "references")

    def __init__(
        self,
        descriptor: str,
        references: Mapping[str, object],
        fields: Sequence[SelectorField],
        matches: Sequence[Match | None],
    ) -> None:
        self.descriptor = descriptor
        self.references = dict(references)
        self.needs: frozenset[str] = names.sections_of(fields)
        self._reader = FieldReader(fields)
        self._matches = tuple(matches)

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """Return whether every reference value matches.

        A message whose section cannot be decoded does not match.

        Args:
            message: the message.
            origin: not used; see `amqproute.filters.registry.Filter`.
        """
        try:
            row = self._reader.read(message)
        except DecodeError:
            return False
        return all(
            match is None or match(value) for match, value in zip(self._matches, row, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.descriptor} {self.references}"

    def __repr__(self) -> str:
        return f"<PropertyFilter {self!s:.80}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PropertyFilter):
            return NotImplemented
        return (self.descriptor, self.references) == (other.descriptor, other.references)

    __hash__ = None  # type: ignore[assignment]


def properties_filter(value: object) -> PropertyFilter:
    """Make an ``amqp:properties-filter`` of the described value.

    Raises:
        InvalidField: it is not a map of fields to values of their types.
    """
    references = _references(PROPERTIES, value)
    fields, matches = [], []
    for key, reference in references.items():
        attribute = str(key).replace("-", "_")
        if attribute not in PROPERTY_INDEX:
            raise _refusal(PROPERTIES, f"the properties have no field {str(key)!r:.40}")
        if reference is not None and not _can_be(attribute, reference):
            kind = type(reference).__name__.lower()
            raise _refusal(PROPERTIES, f"{key} cannot be of type {kind}")
        # For user-id and message-id the octets and types count, not their representation in
        # selectors.
        field = SelectorField(SelectorSection.PROPERTIES, attribute, MessageView.EXACT, str(key))
        fields.append(field)
        # A null reference matches a field that is absent just as well (§4.1.1).
        matches.append(None if reference is None else _match(PROPERTIES, reference))
    return PropertyFilter(PROPERTIES, references, fields, matches)


def application_properties_filter(value: object) -> PropertyFilter:
    """Make an ``amqp:application-properties-filter`` of the described value.

    A null reference requires the key, with any value.

    Raises:
        InvalidField: it is no map of strings to simple values.
    """
    references = _references(APPLICATION_PROPERTIES, value)
    fields, matches = [], []
    for key, reference in references.items():
        try:
            field = names.application(str(key))
        except UnknownName as error:
            raise _refusal(APPLICATION_PROPERTIES, str(error)) from None
        fields.append(SelectorField(field.section, field.key, MessageView.EXACT, field.text))
        matches.append(
            _is_there if reference is None else _match(APPLICATION_PROPERTIES, reference)
        )
    return PropertyFilter(APPLICATION_PROPERTIES, references, fields, matches)


def _references(descriptor: str, value: object) -> Mapping[str, object]:
    if type(value) is not dict or not value:
        raise _refusal(descriptor, "a map with at least one reference value is needed")
    if len(value) > MAX_FIELDS:
        raise _refusal(descriptor, f"{len(value)} reference values; at most {MAX_FIELDS} are taken")
    for key in value:
        if not isinstance(key, str):
            raise _refusal(descriptor, f"the key {key!r:.40} is neither symbol nor string")
    return value


def _can_be(attribute: str, reference: object) -> bool:
    allowed = _FIELD_TYPES[attribute]
    return type(reference) in allowed or (isinstance(reference, str) and str in allowed)


def _refusal(descriptor: str, words: str) -> InvalidField:
    return InvalidField(f"{descriptor}: {words}", info={"code": "filter.value"})


# ------------------------------------------------------------------------------ matching


def _is_there(value: object) -> bool:
    return value is not None


def _match(descriptor: str, reference: object) -> Match:
    """Make the test for one reference value that is not null (§4.1.1)."""
    if isinstance(reference, str):
        return _match_text(descriptor, str(reference))
    if isinstance(reference, bytes | UUID) and type(reference) not in _DECIMAL_TYPES:
        kind = type(reference)
        return lambda value: type(value) is kind and bool(value == reference)
    seen = names.see(reference)
    kind_of_reference = kind_of(type(seen))
    if kind_of_reference not in (NUMBER, TRUTH):
        raise _refusal(descriptor, f"{reference!r:.40} is no simple value")
    return lambda value: _equals(kind_of_reference, seen, value)


_DECIMAL_TYPES: Final = frozenset((types.Decimal32, types.Decimal64, types.Decimal128))


def _equals(kind: int | None, reference: object, value: object) -> bool:
    seen = names.see(value)
    return kind_of(type(seen)) == kind and bool(seen == reference)


def _match_text(descriptor: str, reference: str) -> Match:
    if not reference.startswith("&"):
        return lambda value: isinstance(value, str) and value == reference
    modifier, rest = reference[:3], reference[3:]
    if modifier == "&p:":
        return lambda value: isinstance(value, str) and value.startswith(rest)
    if modifier == "&s:":
        return lambda value: isinstance(value, str) and value.endswith(rest)
    if modifier.startswith("&&"):
        text = reference[1:]
        return lambda value: isinstance(value, str) and value == text
    raise _refusal(
        descriptor,
        f"{reference!r:.40} begins with & and is neither &p:, &s: nor && (filtex §4.1.1)",
    )
