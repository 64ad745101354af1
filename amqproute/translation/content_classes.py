# SPDX-License-Identifier: Apache-2.0
"""Contents of the classes file, stream and tunnel as contents of class basic, and back.

The rest of the translation knows class basic alone. What basic has no property for becomes a
header, and so an annotation of the message (09: part 5.6); consumers of other protocols see these,
and a message that comes back is of its class again:

=========================  ============================================================
header and annotation      stands for
=========================  ============================================================
x-opt-content-class        the class: ``file``, ``stream`` or ``tunnel``
x-opt-file-name            file: filename
x-opt-tunnel-proxy-name    tunnel: proxy-name
x-opt-tunnel-data-name     tunnel: data-name
x-opt-tunnel-durable       tunnel: durable
x-opt-tunnel-broadcast     tunnel: broadcast
x-opt-tunnel-meta-data     tunnel.request: meta-data
x-opt-empty-headers        the content has a table of headers, which is empty
=========================  ============================================================

File content is durable, stream content is not, tunnel content is what its property says. A property
of basic that a class lacks is not shown to the consumers of that class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from amqproute.content_class import CONTENT_CLASS, ContentClass
from amqproute.translation.content_message import ContentRefused
from amqproute.translation.message_parts import is_shortstr
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue, FieldValueError
from amqproute.wire.amqp09.methods import (
    BasicProperties,
    FileProperties,
    StreamProperties,
    TunnelProperties,
)
from amqproute.wire.amqp09.shapes import ContentProperties, FieldKind

__all__ = ["META_DATA", "BasicForm", "ClassForm", "as_basic", "from_basic"]

META_DATA: Final = "x-opt-tunnel-meta-data"
EMPTY_HEADERS: Final = "x-opt-empty-headers"
MOST_REMEMBERED: Final = 1024
"""Contents whose other form is remembered, in each direction."""
LONGEST_REMEMBERED: Final = 512
"""Octets of properties beyond which it is not."""

_KINDS: Final[Mapping[ContentClass, type[ContentProperties]]] = {
    ContentClass.FILE: FileProperties,
    ContentClass.STREAM: StreamProperties,
    ContentClass.TUNNEL: TunnelProperties,
}
_OWN: Final[Mapping[ContentClass, Mapping[str, str]]] = {
    ContentClass.FILE: {"filename": "x-opt-file-name"},
    ContentClass.STREAM: {},
    ContentClass.TUNNEL: {
        "proxy_name": "x-opt-tunnel-proxy-name",
        "data_name": "x-opt-tunnel-data-name",
        "durable": "x-opt-tunnel-durable",
        "broadcast": "x-opt-tunnel-broadcast",
    },
}
"""The properties that basic lacks, and their headers."""
_NAMES: Final = frozenset((str(CONTENT_CLASS), META_DATA, EMPTY_HEADERS)).union(
    *(own.values() for own in _OWN.values())
)
_PERSISTENT: Final = 2


class BasicForm(NamedTuple):
    """Properties as those of class basic. They may be shared: they must not be changed.

    Attributes:
        properties: decoded.
        octets: flags and values.
    """

    properties: BasicProperties
    octets: bytes


class ClassForm(NamedTuple):
    """Properties as those of their class.

    Attributes:
        octets: flags and values.
        meta_data: meta-data of tunnel.request; empty for other classes.
    """

    octets: bytes
    meta_data: FieldTable


_basic_forms: dict[tuple[ContentClass, bytes], BasicForm] = {}
_class_forms: dict[tuple[ContentClass, bytes], ClassForm] = {}


def as_basic(
    kind: ContentClass,
    properties: ContentProperties,
    octets: bytes,
    more: Mapping[str, FieldValue] | None = None,
) -> BasicForm:
    """Return the properties of a content as those of class basic.

    Args:
        kind: its class, not basic.
        properties: decoded.
        octets: flags and values as received.
        more: headers for what its method says.

    Raises:
        ContentRefused: with these headers its table would be too large.
    """
    key = (kind, octets)
    known = _basic_forms.get(key) if more is None else None
    if known is None:
        known = _made_basic(kind, properties, more or {})
        if more is None and len(octets) <= LONGEST_REMEMBERED:
            if len(_basic_forms) >= MOST_REMEMBERED:
                _basic_forms.clear()
            _basic_forms[key] = known
    return known


def _made_basic(
    kind: ContentClass, properties: ContentProperties, more: Mapping[str, FieldValue]
) -> BasicForm:
    own = _OWN[kind]
    extra: dict[str, FieldValue] = {CONTENT_CLASS: kind.value}
    basic = BasicProperties()
    headers: FieldTable | None = None
    for name, _ in properties.layout:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            headers = value
        elif name in own:
            extra[own[name]] = value
        else:
            setattr(basic, name, value)
    extra.update(more)
    if headers is not None and not headers:
        extra[EMPTY_HEADERS] = True
    is_durable = isinstance(properties, TunnelProperties) and bool(properties.durable)
    if kind is ContentClass.FILE or is_durable:
        basic.delivery_mode = _PERSISTENT
    try:
        # A name that occurs twice has its last value, so the table's own octets stay as they are.
        own_octets = b"" if headers is None else headers.octets
        basic.headers = FieldTable.from_octets(own_octets + FieldTable(extra).octets)
    except FieldValueError as error:
        raise ContentRefused(f"headers: {error}") from None
    return BasicForm(basic, encode_properties(basic))


def from_basic(kind: ContentClass, octets: bytes) -> ClassForm:
    """Return the properties of a content, given as those of class basic, as those of its class.

    Args:
        kind: its class, not basic.
        octets: flags and values of class basic.
    """
    key = (kind, octets)
    known = _class_forms.get(key)
    if known is None:
        known = _made_own(kind, octets)
        if len(octets) <= LONGEST_REMEMBERED:
            if len(_class_forms) >= MOST_REMEMBERED:
                _class_forms.clear()
            _class_forms[key] = known
    return known


def _made_own(kind: ContentClass, octets: bytes) -> ClassForm:
    basic = decode_properties(BasicProperties.class_id, octets)
    assert isinstance(basic, BasicProperties)
    table: Mapping[str, FieldValue] = basic.headers or FieldTable()
    properties = _KINDS[kind]()
    own = _OWN[kind]
    for name, shape in properties.layout:
        if name == "headers":
            setattr(properties, name, _own_headers(table))
        elif name in own:
            value = table.get(own[name])
            if _fits(value, shape):
                setattr(properties, name, value)
        else:
            setattr(properties, name, getattr(basic, name))
    meta_data = table.get(META_DATA)
    return ClassForm(
        encode_properties(properties),
        meta_data if isinstance(meta_data, FieldTable) else FieldTable(),
    )


def _own_headers(table: Mapping[str, FieldValue]) -> FieldTable | None:
    """Return the headers without those that stand for something else."""
    extra = {name: value for name, value in table.items() if name in _NAMES}
    if isinstance(table, FieldTable):
        # As `as_basic` has put them together: its part of the octets is cut off again.
        suffix = FieldTable(extra).octets
        if suffix and table.octets.endswith(suffix):
            octets = table.octets[: -len(suffix)]
            if octets:
                return FieldTable.from_octets(octets)
    left = {name: value for name, value in table.items() if name not in _NAMES}
    if left or EMPTY_HEADERS in extra:
        return FieldTable(left)
    return None


def _fits(value: FieldValue, shape: FieldKind) -> bool:
    """Whether a header, which anybody may have set, is a value for a property."""
    if shape is FieldKind.OCTET:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255
    return is_shortstr(value)
