# SPDX-License-Identifier: Apache-2.0
"""Resolution of names in selectors: domain, section and field.

A name may be written with its domain:

=====================================  ====================================================
``amqp.<field>``                       a field of the standard, of header or properties
``properties.<field>``, ``p.``         the same, of the properties (filtex §6)
``header.<field>``, ``h.``             the same, of the header
``application.<key>``                  an application property; also ``application_properties.``
                                       and ``a.``
``amqpx.<vendor>.<name>``              an extension: the annotation ``x-opt-<vendor>-<name>``
``message_annotations.<key>``, ``m.``  the message annotation of exactly this key
=====================================  ====================================================

Fields of the standard are spelled with hyphens, as the standard does, or with underscores.

Without a domain the two dialects differ. A *selector* infers it (revision 200 §5.3): a JMS header
name, the exact name of a standard field, a known extension, else an application property.
``user-id`` is the standard's field, ``user_id`` is not its name and so an application property.
The *SQL filter* of the OASIS draft takes every name without a domain as an application property,
and so does Apache's own definition of the selector filter: an application property that is named
as a standard field (``to``, ``subject``, ``priority``, ``durable``, ``ttl``) is reached with its
domain in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from uuid import UUID

from amqproute.wire.amqp10 import types
from amqproute.wire.amqp10.spec import Header, Properties

Value: TypeAlias = str | bytes | bool | int | float | Decimal | None
"""Values of terms of a selector; None is null, and as a truth value unknown."""

MAX_KEY: Final = 1024
"""Octets of the key of an application property or annotation."""


class Dialect(Enum):
    """The two languages, which share a grammar."""

    SELECTOR = "selector"
    """SQL-92 as JMS cut it (revision 200 §4.1 and ``apache.org:selector-filter:string``)."""

    FILTEX = "sql-filter"
    """The SQL filter of AMQP Filter Expressions 1.0 (``amqp:sql-filter``)."""


class SelectorSection(Enum):
    """The section of a field."""

    HEADER = "header"
    PROPERTIES = "properties"
    APPLICATION = "application"
    ANNOTATIONS = "annotations"


class MessageView(Enum):
    """The representation of a field's value in a filter."""

    PLAIN = "plain"
    EXACT = "exact"
    """As decoded, with its AMQP type: for filters that compare types."""
    TEXT = "text"
    JMS_MESSAGE_ID = "jms-message-id"
    JMS_CORRELATION_ID = "jms-correlation-id"
    JMS_DELIVERY_MODE = "jms-delivery-mode"
    JMS_REDELIVERED = "jms-redelivered"
    JMS_DELIVERY_COUNT = "jms-delivery-count"


@dataclass(frozen=True, slots=True)
class SelectorField:
    """A field of a message, as a selector names it.

    Attributes:
        section: the section of the message.
        key: the Python attribute of a header or properties field; else the map's key.
        view: representation of its value.
        text: its name in normalized text.
    """

    section: SelectorSection
    key: str
    view: MessageView
    text: str

    def raw(self) -> SelectorField:
        """Return the same field, represented by its octets on the wire."""
        return SelectorField(self.section, self.key, MessageView.PLAIN, self.text)


PROPERTY_INDEX: Final = MappingProxyType(
    {each.name: index for index, each in enumerate(Properties.fields)}
)
"""Attribute of the properties section -> its place in the list (part 3 §3.2.4)."""

HEADER_ATTRIBUTES: Final = frozenset(each.name for each in Header.fields)

KNOWN_EXTENSIONS: Final = frozenset(("amqproute.trace",))
"""Extensions that are found without the domain ``amqpx`` (revision 200 §5.3)."""

_JMS: Final = MappingProxyType(
    {
        "JMSDeliveryMode": (SelectorSection.HEADER, "durable", MessageView.JMS_DELIVERY_MODE),
        "JMSPriority": (SelectorSection.HEADER, "priority", MessageView.PLAIN),
        "JMSRedelivered": (SelectorSection.HEADER, "delivery_count", MessageView.JMS_REDELIVERED),
        "JMSXDeliveryCount": (
            SelectorSection.HEADER,
            "delivery_count",
            MessageView.JMS_DELIVERY_COUNT,
        ),
        "JMSMessageID": (SelectorSection.PROPERTIES, "message_id", MessageView.JMS_MESSAGE_ID),
        "JMSCorrelationID": (
            SelectorSection.PROPERTIES,
            "correlation_id",
            MessageView.JMS_CORRELATION_ID,
        ),
        "JMSTimestamp": (SelectorSection.PROPERTIES, "creation_time", MessageView.PLAIN),
        "JMSExpiration": (SelectorSection.PROPERTIES, "absolute_expiry_time", MessageView.PLAIN),
        "JMSType": (SelectorSection.PROPERTIES, "subject", MessageView.PLAIN),
        "JMSDestination": (SelectorSection.PROPERTIES, "to", MessageView.PLAIN),
        "JMSReplyTo": (SelectorSection.PROPERTIES, "reply_to", MessageView.PLAIN),
        "JMSXUserID": (SelectorSection.PROPERTIES, "user_id", MessageView.TEXT),
        "JMSXGroupID": (SelectorSection.PROPERTIES, "group_id", MessageView.PLAIN),
        "JMSXGroupSeq": (SelectorSection.PROPERTIES, "group_sequence", MessageView.PLAIN),
    }
)
"""The mapping of JMS to AMQP (amqp-bindmap-jms-v1.0 §3.2), as far as the sections carry it."""

_DOMAINS: Final = MappingProxyType(
    {
        "amqp": "standard",
        "properties": "properties", "p": "properties",
        "header": "header", "h": "header",
        "application": "application", "application_properties": "application",
        "a": "application",
        "amqpx": "extension",
        "message_annotations": "annotations", "m": "annotations",
        "delivery_annotations": "delivery annotations", "d": "delivery annotations",
        "footer": "the footer", "f": "the footer",
    }
)  # fmt: skip

HYPHENATED: Final = tuple(
    sorted(
        (each.replace("_", "-") for each in (*HEADER_ATTRIBUTES, *PROPERTY_INDEX) if "_" in each),
        key=lambda name: (-len(name), name),
    )
)
"""Names of the standard with a hyphen, which the grammar must not read as a subtraction; the
longest first."""


class UnknownName(ValueError):
    """A name without a meaning here; the text is the reason."""


def resolve(name: str, dialect: Dialect) -> SelectorField:
    """Find the field of an undelimited name.

    Raises:
        UnknownName: its domain has no such field, or is not offered.
    """
    domain, dot, rest = name.partition(".")
    if dot and domain in _DOMAINS:
        return within(domain, rest)
    if dialect is Dialect.SELECTOR:
        if name in _JMS:
            section, key, view = _JMS[name]
            return SelectorField(section, key, view, name)
        attribute = name.replace("-", "_")
        if "_" not in name and _section_of(attribute) is not None:
            return standard(name, "amqp")
        if name in KNOWN_EXTENSIONS:
            return within("amqpx", name)
    return application(name)


def within(domain: str, rest: str) -> SelectorField:
    """Find the field of a name within its domain.

    Raises:
        UnknownName: there is no such domain, no such field in it, or it is not offered.
    """
    meaning = _DOMAINS.get(domain)
    if meaning is None:
        raise UnknownName(f"{domain!r:.40} is no domain of names")
    if meaning == "application":
        return application(rest)
    if meaning == "extension":
        return annotation("x-opt-" + rest.replace(".", "-").replace("_", "-"))
    if meaning == "annotations":
        return annotation(rest)
    if meaning in ("standard", "header", "properties"):
        return standard(rest, domain)
    raise UnknownName(f"{domain}.{rest:.40}: {meaning} cannot be selected on")


def standard(name: str, domain: str) -> SelectorField:
    """Find a field of the standard, spelled with hyphens or underscores.

    Raises:
        UnknownName: the standard has no such field (revision 200 §5.3 reserves the names).
    """
    attribute = name.replace("-", "_")
    section = _section_of(attribute)
    meaning = _DOMAINS[domain]
    if section is None or meaning not in ("standard", section.value):
        known = (*sorted(HEADER_ATTRIBUTES), *PROPERTY_INDEX)
        if meaning == "header":
            known = tuple(sorted(HEADER_ATTRIBUTES))
        elif meaning == "properties":
            known = tuple(PROPERTY_INDEX)
        listed = ", ".join(each.replace("_", "-") for each in known)
        raise UnknownName(f"{domain} has no field {name!r:.40}; it has {listed}")
    # The standard's user-id is octets, but holds a name in practice.
    view = MessageView.TEXT if attribute == "user_id" else MessageView.PLAIN
    return SelectorField(section, attribute, view, f"amqp.{attribute.replace('_', '-')}")


def application(key: str) -> SelectorField:
    """Return the application property of exactly this key."""
    return SelectorField(
        SelectorSection.APPLICATION, _bounded(key), MessageView.PLAIN, f"application.{_spell(key)}"
    )


def annotation(key: str) -> SelectorField:
    """Return the message annotation of exactly this key."""
    return SelectorField(
        SelectorSection.ANNOTATIONS, _bounded(key), MessageView.PLAIN, f"m.{_spell(key)}"
    )


def _section_of(attribute: str) -> SelectorSection | None:
    if attribute in PROPERTY_INDEX:
        return SelectorSection.PROPERTIES
    return SelectorSection.HEADER if attribute in HEADER_ATTRIBUTES else None


def _bounded(key: str) -> str:
    if len(key.encode()) > MAX_KEY:
        raise UnknownName(f"a key of more than {MAX_KEY} octets")
    return key


def _spell(key: str) -> str:
    """Format a key after its domain: delimited, unless it is a plain name."""
    if key.isidentifier() and key.isascii():
        return key
    return "[" + key.replace("[", "[[").replace("]", "]]") + "]"


# ------------------------------------------------------------------- representation of values


def see(value: object) -> Value:
    """Return the representation of a decoded AMQP value in a selector.

    Numbers stay numbers and text stays text. A UUID is its text, since the language has no
    literal for it; a list of strings is its items with a space between. Decimals are exact. What
    has no order and no literal (maps, nested values) is null.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value  # type: ignore[return-value]  # as its type says
    if kind is UUID:
        return str(value)
    if kind in _DECIMALS:
        return decimal_of(value)  # type: ignore[arg-type]  # likewise
    if isinstance(value, list | types.Array):
        items = list(value)
        return " ".join(items) if all(isinstance(item, str) for item in items) else None
    return None


_AS_THEY_ARE: Final = frozenset(
    (
        type(None), bool, str, types.Symbol, types.Char, bytes, int, float,
        types.UByte, types.UShort, types.UInt, types.ULong, types.Byte, types.Short, types.Int,
        types.Long, types.Timestamp, types.Float,
    )
)  # fmt: skip

# Total bits, bits of the exponent, its bias (IEEE 754-2008, table 3.6).
_DECIMALS: Final[dict[type, tuple[int, int, int]]] = {
    types.Decimal32: (32, 8, 101),
    types.Decimal64: (64, 10, 398),
    types.Decimal128: (128, 14, 6176),
}
_LARGEST_COEFFICIENT: Final = {32: 10**7, 64: 10**16, 128: 10**34}


def decimal_of(octets: bytes) -> Decimal | float:
    """Read a decimal in binary integer decimal encoding (part 1 §1.6.13, IEEE 754 §3.5.2).

    Infinity and not-a-number become those of `float`, which compare without surprises.
    """
    width, exponent_bits, bias = _DECIMALS[type(octets)]
    bits = int.from_bytes(octets, "big")
    negative = bits >> (width - 1)
    combination = (bits >> (width - 6)) & 0b11111
    if combination == 0b11110:
        return float("-inf") if negative else float("inf")
    if combination == 0b11111:
        return float("nan")
    if combination >> 3 == 0b11:
        # The coefficient begins with an implicit 0b100.
        shift = width - 3 - exponent_bits
        coefficient = (bits & ((1 << shift) - 1)) | (0b100 << shift)
    else:
        shift = width - 1 - exponent_bits
        coefficient = bits & ((1 << shift) - 1)
    exponent = (bits >> shift) & ((1 << exponent_bits) - 1)
    if coefficient >= _LARGEST_COEFFICIENT[width]:
        coefficient = 0  # Not canonical: zero, says IEEE 754 §3.5.2.
    digits = tuple(map(int, str(coefficient)))
    return Decimal((negative, digits, exponent - bias))


def _text(value: object) -> Value:
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return see(value)


_JMS_ENCODINGS: Final = ("ID:AMQP_",)


def _jms_message_id(value: object) -> Value:
    """Return the JMSMessageID of a message-id (amqp-bindmap-jms-v1.0 §3.2.1.1)."""
    if isinstance(value, str):
        if value.startswith(_JMS_ENCODINGS):
            return f"ID:AMQP_STRING:{value}"
        return value if value.startswith("ID:") else f"ID:AMQP_NO_PREFIX:{value}"
    return _jms_typed_id(value)


def _jms_correlation_id(value: object) -> Value:
    """Return the JMSCorrelationID: text is the application's, the other types are spelled out."""
    return str(value) if isinstance(value, str) else _jms_typed_id(value)


def _jms_typed_id(value: object) -> Value:
    if type(value) is UUID:
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    return f"ID:AMQP_ULONG:{int(value)}" if isinstance(value, int) else None


VIEWS: Final[MappingProxyType[MessageView, Callable[[Any], Value]]] = MappingProxyType(
    {
        MessageView.PLAIN: see,
        MessageView.EXACT: lambda value: value,
        MessageView.TEXT: _text,
        MessageView.JMS_MESSAGE_ID: _jms_message_id,
        MessageView.JMS_CORRELATION_ID: _jms_correlation_id,
        MessageView.JMS_DELIVERY_MODE: lambda durable: (
            "PERSISTENT" if durable else "NON_PERSISTENT"
        ),
        MessageView.JMS_REDELIVERED: lambda count: count > 0,
        MessageView.JMS_DELIVERY_COUNT: lambda count: int(count) + 1,
    }
)
"""Conversion of a field's raw value to the visible one."""


def sections_of(fields: Iterable[SelectorField]) -> frozenset[str]:
    """Return the names of the sections that these fields lie in."""
    return frozenset(field.section.value for field in fields)
