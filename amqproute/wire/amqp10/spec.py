# SPDX-License-Identifier: Apache-2.0
"""The composite types of AMQP 1.0 as data: performatives, termini, outcomes, SASL bodies.

Each class below *is* its row in the standard: the fields in their order, with type, default,
mandatory and multiple. `Composite.fields` holds the same as a table, and the generic reading
and writing (`compose`, `decode_composite`, ``codec.encode``) knows nothing else.

Conventions:

* Field names are those of the standard with ``-`` turned into ``_``.
* The defaults of the standard stand both in a new object and in a decoded one. A field without
  a default is None when absent.
* A field with the multiple property is a tuple; absent and empty are the same (part 1 §1.4).
* Fields whose type the table fixes hold plain ``int``, ``str``, ``bytes``; a symbol is a
  `Symbol`. Fields open to any type keep the types of `amqproute.wire.amqp10.types`.
* Maps of type fields and annotations may be given with ``str`` keys; they go out as symbols.

Decoding is strict: a missing mandatory field, a field of another type, or more fields than the
type has are a `DecodeError` that names type and field. Only the keys of a filter set may be strings
as well as symbols; they are made symbols. Encoding leaves out defaults, but for those of explicit
fields, and trailing nulls; a mandatory field that is None is a `LocalProtocolError`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, dataclass_transform
from uuid import UUID

from amqproute.errors import DecodeError, LocalProtocolError
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.types import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Fields: TypeAlias = Mapping[str, object]
"""A map from symbols to any values (part 2 §2.8.13)."""

# A mapping is invariant in its keys, so one of symbols would be none of symbols or ulongs.
Annotations: TypeAlias = Mapping[Any, object]
"""A map from symbols, or ulongs, to any values (part 3 §3.2.10)."""

MessageId: TypeAlias = int | UUID | bytes | str
"""A message-id: ulong, uuid, binary or string (part 3 §3.2.11-14)."""

# ------------------------------------------------------------------------- constant values

# Part 2 §2.8.1: role.
ROLE_SENDER: Final = False
ROLE_RECEIVER: Final = True

# Part 2 §2.8.2: sender-settle-mode.
SENDER_UNSETTLED: Final = 0
SENDER_SETTLED: Final = 1
SENDER_MIXED: Final = 2

# Part 2 §2.8.3: receiver-settle-mode.
RECEIVER_FIRST: Final = 0
RECEIVER_SECOND: Final = 1

# Part 3 §3.5.5: terminus-durability.
DURABLE_NONE: Final = 0
DURABLE_CONFIGURATION: Final = 1
DURABLE_UNSETTLED_STATE: Final = 2

# Part 3 §3.5.6: terminus-expiry-policy.
EXPIRE_LINK_DETACH: Final = Symbol("link-detach")
EXPIRE_SESSION_END: Final = Symbol("session-end")
EXPIRE_CONNECTION_CLOSE: Final = Symbol("connection-close")
EXPIRE_NEVER: Final = Symbol("never")

# Part 3 §3.5.7: std-dist-mode.
DISTRIBUTION_MOVE: Final = Symbol("move")
DISTRIBUTION_COPY: Final = Symbol("copy")

# Part 4 §4.5.7: txn-capability.
TXN_LOCAL: Final = Symbol("amqp:local-transactions")
TXN_DISTRIBUTED: Final = Symbol("amqp:distributed-transactions")
TXN_PROMOTABLE: Final = Symbol("amqp:promotable-transactions")
TXN_MULTI_PER_SESSION: Final = Symbol("amqp:multi-txns-per-ssn")
TXN_MULTI_SESSIONS: Final = Symbol("amqp:multi-ssns-per-txn")

# Part 5 §5.3.3.6: sasl-code.
SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_SYS: Final = 2
SASL_SYS_PERM: Final = 3
SASL_SYS_TEMP: Final = 4

# Part 2 §2.8.19.
MIN_MAX_FRAME_SIZE: Final = 512

# Part 3 §3.2: descriptors of the message sections.
SECTION_HEADER: Final = 0x70
SECTION_DELIVERY_ANNOTATIONS: Final = 0x71
SECTION_MESSAGE_ANNOTATIONS: Final = 0x72
SECTION_PROPERTIES: Final = 0x73
SECTION_APPLICATION_PROPERTIES: Final = 0x74
SECTION_DATA: Final = 0x75
SECTION_AMQP_SEQUENCE: Final = 0x76
SECTION_AMQP_VALUE: Final = 0x77
SECTION_FOOTER: Final = 0x78

# ---------------------------------------------------------------------------- field types


class _MismatchError(Exception):
    """A decoded value is not of its field's type."""


class FieldType:
    """One type of field: how a decoded value is checked, and how it is written.

    Attributes:
        name: the type's name in the standard.
        read: converts a value of the generic decoder to the value of the field.
        write: appends the encoding of a field's value.
    """

    __slots__ = ("name", "read", "write")

    def __init__(
        self,
        name: str,
        read: Callable[[object], object],
        write: Callable[[bytearray, Any], None],  # Any: of values of the one type
    ) -> None:
        self.name = name
        self.read = read
        self.write = write

    def __repr__(self) -> str:
        return f"<FieldType {self.name}>"


def _exactly(wanted: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise _MismatchError
        return value

    return read


def _number(wanted: type, choices: range | None = None) -> Callable[[Any], Any]:
    def read(value: Any) -> int:
        kind: Any = type(value)
        if kind is not wanted or (choices is not None and value not in choices):
            raise _MismatchError
        return int(value)

    return read


def _put_choice(
    put: Callable[[bytearray, int], None], name: str, choices: range
) -> Callable[[bytearray, Any], None]:
    def write(out: bytearray, value: Any) -> None:
        if value not in choices:
            raise LocalProtocolError(f"{value!r} is no {name}")
        put(out, value)

    return write


def _choice(name: str, wanted: type, choices: range) -> FieldType:
    put = codec.put_ubyte if wanted is UByte else codec.put_uint
    return FieldType(name, _number(wanted, choices), _put_choice(put, name, choices))


def _read_expiry_policy(value: Any) -> Any:
    if type(value) is not Symbol or value not in _EXPIRY_POLICIES:
        raise _MismatchError
    return value


_EXPIRY_POLICIES = frozenset(
    (EXPIRE_LINK_DETACH, EXPIRE_SESSION_END, EXPIRE_CONNECTION_CLOSE, EXPIRE_NEVER)
)


def _read_delivery_tag(value: Any) -> Any:
    if type(value) is not bytes or len(value) > 32:
        raise _MismatchError
    return value


def _put_delivery_tag(out: bytearray, value: bytes) -> None:
    if len(value) > 32:
        raise LocalProtocolError("a delivery-tag has at most 32 octets")
    codec.put_binary(out, value)


def _read_fields(value: Any) -> Any:
    if type(value) is not dict:
        raise _MismatchError
    for key in value:
        if type(key) is not Symbol:
            raise _MismatchError
    return value


def _read_filter_set(value: Any) -> Any:
    # The standard has symbols here (part 3 §3.5.8). Clients in languages without symbols send
    # strings; the meaning is clear, since a key only names a filter.
    if type(value) is not dict or not all(
        type(key) is Symbol or (type(key) is str and key.isascii()) for key in value
    ):
        raise _MismatchError
    return {Symbol(key): item for key, item in value.items()}


def _read_annotations(value: Any) -> Any:
    if type(value) is not dict:
        raise _MismatchError
    for key in value:
        if type(key) is not Symbol and type(key) is not ULong:
            raise _MismatchError
    return value


def _read_node_properties(value: Any) -> Any:
    # The one value in such a map with a composite type: lifetime-policy (part 3 §3.5.9).
    return {key: compose(item) for key, item in _read_fields(value).items()}


def _read_unsettled(value: Any) -> Any:
    if type(value) is not dict:
        raise _MismatchError
    for key, state in value.items():
        _read_delivery_tag(key)
        if state is not None:
            value[key] = _read_delivery_state(state)
    return value


def _read_message_id(value: Any) -> Any:
    if type(value) not in _MESSAGE_ID_TYPES:
        raise _MismatchError
    return value


_MESSAGE_ID_TYPES = frozenset((ULong, UUID, bytes, str))


def _put_message_id(out: bytearray, value: Any) -> None:
    if isinstance(value, int):
        codec.put_ulong(out, value)
    else:
        codec.encode_into(out, value)


def _composite(*names: str) -> Callable[[Any], Any]:
    """Accept the composite types of these names; by name, since they are defined below."""
    wanted: list[type] = []

    def read(value: Any) -> Any:
        if not wanted:
            wanted.extend(cls for cls in BY_CODE.values() if cls.__name__ in names)
        composite = compose(value)
        if type(composite) not in wanted:
            raise _MismatchError
        return composite

    return read


_OUTCOMES = ("Accepted", "Rejected", "Released", "Modified", "Declared")
_read_delivery_state = _composite("Received", "TransactionalState", *_OUTCOMES)


def _any(value: Any) -> Any:
    return value


_TYPES: Final[dict[str, FieldType]] = {
    kind.name: kind
    for kind in (
        FieldType("boolean", _exactly(bool), codec.put_boolean),
        FieldType("role", _exactly(bool), codec.put_boolean),
        FieldType("ubyte", _number(UByte), codec.put_ubyte),
        FieldType("ushort", _number(UShort), codec.put_ushort),
        FieldType("uint", _number(UInt), codec.put_uint),
        FieldType("ulong", _number(ULong), codec.put_ulong),
        FieldType("timestamp", _number(Timestamp), codec.put_timestamp),
        FieldType("binary", _exactly(bytes), codec.put_binary),
        FieldType("string", _exactly(str), codec.put_string),
        FieldType("symbol", _exactly(Symbol), codec.put_symbol),
        FieldType("delivery-tag", _read_delivery_tag, _put_delivery_tag),
        FieldType("fields", _read_fields, codec.put_fields),
        FieldType("annotations", _read_annotations, codec.put_fields),
        FieldType("filter-set", _read_filter_set, codec.put_fields),
        FieldType("node-properties", _read_node_properties, codec.put_fields),
        FieldType("unsettled", _read_unsettled, codec.put_map),
        FieldType("message-id", _read_message_id, _put_message_id),
        _choice("sender-settle-mode", UByte, range(3)),
        _choice("receiver-settle-mode", UByte, range(2)),
        _choice("terminus-durability", UInt, range(3)),
        _choice("sasl-code", UByte, range(5)),
        FieldType("terminus-expiry-policy", _read_expiry_policy, codec.put_symbol),
        FieldType("error", _composite("Error"), codec.encode_into),
        FieldType("source", _composite("Source"), codec.encode_into),
        FieldType("target", _composite("Target", "Coordinator"), codec.encode_into),
        FieldType("outcome", _composite(*_OUTCOMES), codec.encode_into),
        FieldType("delivery-state", _read_delivery_state, codec.encode_into),
        FieldType("*", _any, codec.encode_into),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a composite type, as in the standard's table.

    Attributes:
        name: the attribute's name, with underscores.
        type: how it is read and written.
        default: the value when the field is absent.
        mandatory: whether it must not be absent.
        multiple: whether it is a tuple of any number of values.
        explicit: whether it is written even where it holds the default.
    """

    name: str
    type: FieldType
    default: object
    mandatory: bool
    multiple: bool
    explicit: bool = False


_T = TypeVar("_T")


class _Declaration:
    """The arguments of `field`, until `composite` makes a `Field` of them."""

    __slots__ = ("default", "explicit", "kind", "mandatory", "multiple")

    def __init__(
        self, kind: str, default: object, mandatory: bool, multiple: bool, explicit: bool = False
    ) -> None:
        self.kind = kind
        self.default = default
        self.mandatory = mandatory
        self.multiple = multiple
        self.explicit = explicit


def field(kind: str, *, default: _T) -> _T:
    """Declare a field that may be absent; ``default`` stands for it then.

    As with `dataclasses.field`, the declaration is typed as the value that replaces it.
    """
    return _Declaration(kind, default, False, False)  # type: ignore[return-value]  # see above


def explicit(kind: str, *, default: _T) -> _T:
    """Declare a field that may be absent, and that is written even where it holds the default."""
    return _Declaration(  # type: ignore[return-value]  # see above
        kind, default, False, False, explicit=True
    )


def mandatory(kind: str) -> Any:  # Any: of the declared type: there is no default to infer it from
    """Declare a mandatory field: the constructor asks for it too."""
    return _Declaration(kind, None, True, False)


def multiple(kind: str, *, default: _T) -> _T:
    """Declare a field with the multiple property."""
    return _Declaration(kind, default, False, True)  # type: ignore[return-value]  # see above


def mandatory_multiple(kind: str) -> Any:  # Any: as above
    """Declare a mandatory field with the multiple property."""
    return _Declaration(kind, None, True, True)


class Composite:
    """The root of all composite types.

    Attributes:
        descriptor: the numeric descriptor.
        symbol: the symbolic descriptor, ``amqp:transfer:list``.
        fields: the fields in the order of the wire.
    """

    __slots__ = ()

    descriptor: ClassVar[int]
    symbol: ClassVar[Symbol]
    fields: ClassVar[tuple[Field, ...]]

    def __repr__(self) -> str:
        told = []
        for each in self.fields:
            value = getattr(self, each.name)
            if each.mandatory or value != each.default:
                told.append(f" {each.name}={value!r}")
        return f"<{type(self).__name__}{''.join(told)}>"


BY_CODE: Final[dict[int, type[Composite]]] = {}
"""Numeric descriptor to class."""

BY_SYMBOL: Final[dict[str, type[Composite]]] = {}
"""Symbolic descriptor to class."""

_C = TypeVar("_C", bound=Composite)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(field, explicit, mandatory, multiple, mandatory_multiple),
)
def composite(descriptor: int, symbol: str) -> Callable[[type[_C]], type[_C]]:
    """Make a slotted class of a table of fields, and register it under its descriptors."""

    def decorate(cls: type[_C]) -> type[_C]:
        table = []
        for name in inspect.get_annotations(cls):
            declared = cls.__dict__[name]
            default = declared.default
            table.append(
                Field(
                    name,
                    _TYPES[declared.kind],
                    default,
                    declared.mandatory,
                    declared.multiple,
                    declared.explicit,
                )
            )
            if declared.mandatory:
                delattr(cls, name)
            else:
                setattr(cls, name, default)
        made = dataclasses.dataclass(kw_only=True, slots=True, repr=False)(cls)
        made.descriptor = descriptor
        made.symbol = Symbol(symbol)
        made.fields = tuple(table)
        BY_CODE[descriptor] = made
        BY_SYMBOL[symbol] = made
        codec.register(made, _writer(made))
        return made

    return decorate


# ------------------------------------------------------------------------ reading and writing


def compose(value: object) -> Any:  # Any: a composite type, or any value
    """Convert a described list with a descriptor of this module to its object.

    Args:
        value: any decoded value. One that is not described, or has an unknown descriptor, is
            returned unchanged.

    Raises:
        DecodeError: the descriptor is known and the value does not fit its type.
    """
    if type(value) is not Described:
        return value
    cls = class_of(value.descriptor)
    if cls is None:
        return value
    return _build(cls, value.value)


def class_of(descriptor: object) -> type[Composite] | None:
    """Find the class of a decoded descriptor, numeric or symbolic."""
    if type(descriptor) is ULong:
        return BY_CODE.get(descriptor)
    if type(descriptor) is Symbol:
        return BY_SYMBOL.get(descriptor)
    return None


def decode_composite(
    data: codec.Buffer, offset: int = 0, end: int | None = None
) -> tuple[Composite, int]:
    """Decode the composite value at ``offset``.

    Returns:
        The object, and the offset after it.

    Raises:
        DecodeError: not a composite of this module, or not a right one.
    """
    value, after = codec.decode(data, offset, end)
    return as_composite(value), after


def as_composite(value: object) -> Composite:
    """Convert a decoded value to a composite.

    Raises:
        DecodeError: not a composite of this module, or not a right one.
    """
    composed = compose(value)
    if not isinstance(composed, Composite):
        what = f"descriptor {value.descriptor!r:.64}" if type(value) is Described else "value"
        raise DecodeError(f"a {what} where a composite type of the standard has to stand")
    return composed


def _build(cls: type[Composite], values: Any) -> Composite:
    if type(values) is not list:
        raise DecodeError(f"{cls.symbol}: not a list")
    table = cls.fields
    given = len(values)
    if given > len(table):
        raise DecodeError(f"{cls.symbol}: {given} fields, the type has {len(table)}")
    made = object.__new__(cls)
    for index, each in enumerate(table):
        value = values[index] if index < given else None
        if value is None:
            if each.mandatory:
                raise DecodeError(f"{cls.symbol}: {_wire_name(each)} is missing")
            value = each.default
        else:
            try:
                value = _read_multiple(each, value) if each.multiple else each.type.read(value)
            except _MismatchError:
                raise DecodeError(
                    f"{cls.symbol}: {_wire_name(each)} is no {each.type.name}: {value!r:.64}"
                ) from None
        setattr(made, each.name, value)
    return made


def _read_multiple(each: Field, value: Any) -> tuple[Any, ...]:
    read = each.type.read
    if type(value) is Array:
        if value.descriptors:
            raise _MismatchError
        return tuple([read(item) for item in value.items])
    return (read(value),)


def _wire_name(each: Field) -> str:
    return each.name.replace("_", "-")


def _writer(cls: type[Composite]) -> Callable[[bytearray, Any], None]:
    prefix = bytes((0x00, 0x53, cls.descriptor))
    table = cls.fields

    def write(out: bytearray, value: Any) -> None:
        body = bytearray()
        count = mark = index = 0
        for each in table:
            index += 1
            item = getattr(value, each.name)
            if item is None or (item == each.default and not each.mandatory and not each.explicit):
                if each.mandatory:
                    raise LocalProtocolError(f"{cls.symbol}: {_wire_name(each)} is not set")
                body.append(0x40)
                continue
            if each.multiple:
                _write_multiple(body, each, item)
            else:
                each.type.write(body, item)
            count = index
            mark = len(body)
        del body[mark:]
        out += prefix
        codec.put_list_body(out, count, body)

    return write


def _write_multiple(body: bytearray, each: Field, items: Iterable[str]) -> None:
    # Every multiple field of the standard holds symbols.
    codec.put_array(body, Array.of_symbols(items))


# -------------------------------------------------------------------- errors and lifetimes


@composite(0x1D, "amqp:error:list")
class Error(Composite):
    """Details of an error (part 2 §2.8.14)."""

    condition: str = mandatory("symbol")
    description: str | None = field("string", default=None)
    info: Fields | None = field("fields", default=None)


@composite(0x2B, "amqp:delete-on-close:list")
class DeleteOnClose(Composite):
    """Lifetime of a dynamic node: as long as its link (part 3 §3.5.10)."""


@composite(0x2C, "amqp:delete-on-no-links:list")
class DeleteOnNoLinks(Composite):
    """Lifetime of a dynamic node: as long as any link (part 3 §3.5.11)."""


@composite(0x2D, "amqp:delete-on-no-messages:list")
class DeleteOnNoMessages(Composite):
    """Lifetime of a dynamic node: until its link is gone and it is empty (part 3 §3.5.12)."""


@composite(0x2E, "amqp:delete-on-no-links-or-messages:list")
class DeleteOnNoLinksOrMessages(Composite):
    """Lifetime of a dynamic node: until it has neither links nor messages (part 3 §3.5.13)."""


LifetimePolicy: TypeAlias = (
    DeleteOnClose | DeleteOnNoLinks | DeleteOnNoMessages | DeleteOnNoLinksOrMessages
)

# ----------------------------------------------------------- outcomes and delivery states


@composite(0x23, "amqp:received:list")
class Received(Composite):
    """Progress of a partial delivery (part 3 §3.4.1)."""

    section_number: int = mandatory("uint")
    section_offset: int = mandatory("ulong")


@composite(0x24, "amqp:accepted:list")
class Accepted(Composite):
    """Outcome: the receiver has taken the message over (part 3 §3.4.2)."""


@composite(0x25, "amqp:rejected:list")
class Rejected(Composite):
    """Outcome: the message is invalid and cannot be taken (part 3 §3.4.3)."""

    error: Error | None = field("error", default=None)


@composite(0x26, "amqp:released:list")
class Released(Composite):
    """Outcome: not, and never will be, acted upon (part 3 §3.4.4)."""


@composite(0x27, "amqp:modified:list")
class Modified(Composite):
    """Outcome: not taken, and something about it changed (part 3 §3.4.5).

    The standard gives the two booleans no default; absent means what false means.
    """

    delivery_failed: bool = field("boolean", default=False)
    undeliverable_here: bool = field("boolean", default=False)
    message_annotations: Annotations | None = field("annotations", default=None)


@composite(0x33, "amqp:declared:list")
class Declared(Composite):
    """Outcome of a declare: the transaction's id (part 4 §4.5.5)."""

    txn_id: bytes = mandatory("binary")


Outcome: TypeAlias = Accepted | Rejected | Released | Modified | Declared


@composite(0x34, "amqp:transactional-state:list")
class TransactionalState(Composite):
    """Delivery state within a transaction (part 4 §4.5.8)."""

    txn_id: bytes = mandatory("binary")
    outcome: Outcome | None = field("outcome", default=None)


DeliveryState: TypeAlias = Outcome | Received | TransactionalState

# ---------------------------------------------------------------------------------- termini


@composite(0x28, "amqp:source:list")
class Source(Composite):
    """The source of a link's messages (part 3 §3.5.3).

    The lifetime of the terminus is encoded even if it is the default, so that an answer leaves
    nothing to be supplied by its reader (L-44).
    """

    address: str | None = field("string", default=None)
    durable: int = explicit("terminus-durability", default=DURABLE_NONE)
    expiry_policy: str = explicit("terminus-expiry-policy", default=EXPIRE_SESSION_END)
    timeout: int = explicit("uint", default=0)
    dynamic: bool = field("boolean", default=False)
    dynamic_node_properties: Fields | None = field("node-properties", default=None)
    distribution_mode: str | None = field("symbol", default=None)
    filter: Fields | None = field("filter-set", default=None)
    default_outcome: Outcome | None = field("outcome", default=None)
    outcomes: tuple[str, ...] = multiple("symbol", default=())
    capabilities: tuple[str, ...] = multiple("symbol", default=())


@composite(0x29, "amqp:target:list")
class Target(Composite):
    """The target of a link's messages (part 3 §3.5.4); explicit as a `Source` is."""

    address: str | None = field("string", default=None)
    durable: int = explicit("terminus-durability", default=DURABLE_NONE)
    expiry_policy: str = explicit("terminus-expiry-policy", default=EXPIRE_SESSION_END)
    timeout: int = explicit("uint", default=0)
    dynamic: bool = field("boolean", default=False)
    dynamic_node_properties: Fields | None = field("node-properties", default=None)
    capabilities: tuple[str, ...] = multiple("symbol", default=())


@composite(0x30, "amqp:coordinator:list")
class Coordinator(Composite):
    """The target of a link to a transaction coordinator (part 4 §4.5.1)."""

    capabilities: tuple[str, ...] = multiple("symbol", default=())


# ----------------------------------------------------------------------------- performatives


@composite(0x10, "amqp:open:list")
class Open(Composite):
    """Negotiate a connection (part 2 §2.7.1)."""

    container_id: str = mandatory("string")
    hostname: str | None = field("string", default=None)
    max_frame_size: int = field("uint", default=4294967295)
    channel_max: int = field("ushort", default=65535)
    idle_time_out: int | None = field("uint", default=None)
    outgoing_locales: tuple[str, ...] = multiple("symbol", default=())
    incoming_locales: tuple[str, ...] = multiple("symbol", default=())
    offered_capabilities: tuple[str, ...] = multiple("symbol", default=())
    desired_capabilities: tuple[str, ...] = multiple("symbol", default=())
    properties: Fields | None = field("fields", default=None)


@composite(0x11, "amqp:begin:list")
class Begin(Composite):
    """Begin a session on a channel (part 2 §2.7.2)."""

    remote_channel: int | None = field("ushort", default=None)
    next_outgoing_id: int = mandatory("uint")
    incoming_window: int = mandatory("uint")
    outgoing_window: int = mandatory("uint")
    handle_max: int = field("uint", default=4294967295)
    offered_capabilities: tuple[str, ...] = multiple("symbol", default=())
    desired_capabilities: tuple[str, ...] = multiple("symbol", default=())
    properties: Fields | None = field("fields", default=None)


@composite(0x12, "amqp:attach:list")
class Attach(Composite):
    """Attach a link to a session (part 2 §2.7.3)."""

    name: str = mandatory("string")
    handle: int = mandatory("uint")
    role: bool = mandatory("role")
    snd_settle_mode: int = field("sender-settle-mode", default=SENDER_MIXED)
    rcv_settle_mode: int = field("receiver-settle-mode", default=RECEIVER_FIRST)
    source: Source | None = field("source", default=None)
    target: Target | Coordinator | None = field("target", default=None)
    unsettled: Mapping[bytes, DeliveryState | None] | None = field("unsettled", default=None)
    incomplete_unsettled: bool = field("boolean", default=False)
    initial_delivery_count: int | None = field("uint", default=None)
    max_message_size: int | None = field("ulong", default=None)
    offered_capabilities: tuple[str, ...] = multiple("symbol", default=())
    desired_capabilities: tuple[str, ...] = multiple("symbol", default=())
    properties: Fields | None = field("fields", default=None)


@composite(0x13, "amqp:flow:list")
class Flow(Composite):
    """Update the flow state of a session or a link (part 2 §2.7.4)."""

    next_incoming_id: int | None = field("uint", default=None)
    incoming_window: int = mandatory("uint")
    next_outgoing_id: int = mandatory("uint")
    outgoing_window: int = mandatory("uint")
    handle: int | None = field("uint", default=None)
    delivery_count: int | None = field("uint", default=None)
    link_credit: int | None = field("uint", default=None)
    available: int | None = field("uint", default=None)
    drain: bool = field("boolean", default=False)
    echo: bool = field("boolean", default=False)
    properties: Fields | None = field("fields", default=None)


@composite(0x14, "amqp:transfer:list")
class Transfer(Composite):
    """Transfer a message, or a part of one (part 2 §2.7.5)."""

    handle: int = mandatory("uint")
    delivery_id: int | None = field("uint", default=None)
    delivery_tag: bytes | None = field("delivery-tag", default=None)
    message_format: int | None = field("uint", default=None)
    settled: bool | None = field("boolean", default=None)
    more: bool = field("boolean", default=False)
    rcv_settle_mode: int | None = field("receiver-settle-mode", default=None)
    state: DeliveryState | None = field("delivery-state", default=None)
    resume: bool = field("boolean", default=False)
    aborted: bool = field("boolean", default=False)
    batchable: bool = field("boolean", default=False)


@composite(0x15, "amqp:disposition:list")
class Disposition(Composite):
    """Inform the peer of the state of deliveries (part 2 §2.7.6)."""

    role: bool = mandatory("role")
    first: int = mandatory("uint")
    last: int | None = field("uint", default=None)
    settled: bool = field("boolean", default=False)
    state: DeliveryState | None = field("delivery-state", default=None)
    batchable: bool = field("boolean", default=False)


@composite(0x16, "amqp:detach:list")
class Detach(Composite):
    """Detach a link from its session (part 2 §2.7.7)."""

    handle: int = mandatory("uint")
    closed: bool = field("boolean", default=False)
    error: Error | None = field("error", default=None)


@composite(0x17, "amqp:end:list")
class End(Composite):
    """End a session (part 2 §2.7.8)."""

    error: Error | None = field("error", default=None)


@composite(0x18, "amqp:close:list")
class Close(Composite):
    """Close a connection (part 2 §2.7.9)."""

    error: Error | None = field("error", default=None)


Performative: TypeAlias = (
    Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
)

# ------------------------------------------------------------------------------ transactions


@composite(0x31, "amqp:declare:list")
class Declare(Composite):
    """Message body to a coordinator: begin a transaction (part 4 §4.5.2)."""

    global_id: object = field("*", default=None)


@composite(0x32, "amqp:discharge:list")
class Discharge(Composite):
    """Message body to a coordinator: end a transaction (part 4 §4.5.3).

    The standard gives ``fail`` no default; absent means what false means.
    """

    txn_id: bytes = mandatory("binary")
    fail: bool = field("boolean", default=False)


# -------------------------------------------------------------------------- message sections


@composite(0x70, "amqp:header:list")
class Header(Composite):
    """Delivery details of a message (part 3 §3.2.1); ``ttl`` is in milliseconds."""

    durable: bool = field("boolean", default=False)
    priority: int = field("ubyte", default=4)
    ttl: int | None = field("uint", default=None)
    first_acquirer: bool = field("boolean", default=False)
    delivery_count: int = field("uint", default=0)


@composite(0x73, "amqp:properties:list")
class Properties(Composite):
    """Immutable properties of a message (part 3 §3.2.4); times are ms since the epoch."""

    message_id: MessageId | None = field("message-id", default=None)
    user_id: bytes | None = field("binary", default=None)
    to: str | None = field("string", default=None)
    subject: str | None = field("string", default=None)
    reply_to: str | None = field("string", default=None)
    correlation_id: MessageId | None = field("message-id", default=None)
    content_type: str | None = field("symbol", default=None)
    content_encoding: str | None = field("symbol", default=None)
    absolute_expiry_time: int | None = field("timestamp", default=None)
    creation_time: int | None = field("timestamp", default=None)
    group_id: str | None = field("string", default=None)
    group_sequence: int | None = field("uint", default=None)
    reply_to_group_id: str | None = field("string", default=None)


# -------------------------------------------------------------------------------------- SASL


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms(Composite):
    """The mechanisms that a server offers (part 5 §5.3.3.1)."""

    sasl_server_mechanisms: tuple[str, ...] = mandatory_multiple("symbol")


@composite(0x41, "amqp:sasl-init:list")
class SaslInit(Composite):
    """The mechanism that a client chose, and its first words (part 5 §5.3.3.2)."""

    mechanism: str = mandatory("symbol")
    initial_response: bytes | None = field("binary", default=None)
    hostname: str | None = field("string", default=None)


@composite(0x42, "amqp:sasl-challenge:list")
class SaslChallenge(Composite):
    """A server's challenge (part 5 §5.3.3.3)."""

    challenge: bytes = mandatory("binary")


@composite(0x43, "amqp:sasl-response:list")
class SaslResponse(Composite):
    """A client's response (part 5 §5.3.3.4)."""

    response: bytes = mandatory("binary")


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome(Composite):
    """The result of the exchange (part 5 §5.3.3.5)."""

    code: int = mandatory("sasl-code")
    additional_data: bytes | None = field("binary", default=None)


SaslBody: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
