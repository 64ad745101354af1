# SPDX-License-Identifier: Apache-2.0
"""The base of `methods`: types of fields, and traits of methods."""

from __future__ import annotations

import enum
from typing import ClassVar, NamedTuple


class FieldKind(enum.Enum):
    """A type on the wire (09: part 3.3)."""

    BIT = "bit"
    OCTET = "octet"
    SHORT = "short"
    LONG = "long"
    LONGLONG = "longlong"
    SHORTSTR = "shortstr"
    LONGSTR = "longstr"
    TIMESTAMP = "timestamp"
    TABLE = "table"
    CONTENT = "content"


class InlineBody(NamedTuple):
    """The body of message.transfer (09: part 3.9).

    Attributes:
        octets: the data, or the name of a reference.
        is_reference: whether it is a reference.
    """

    octets: bytes = b""
    is_reference: bool = False


NO_BODY = InlineBody()


class MethodTraits(NamedTuple):
    """The common traits of all uses of a method.

    Attributes:
        name: class and method, such as ``queue.declare-ok``.
        class_id: the id of its class.
        method_id: within its class.
        layout: its fields in wire order, by their names in Python.
        replies: the codes of its replies.
        to_server: whether a client may send it.
        to_client: whether a server may send it.
        has_content: whether a content header and a body follow.
        only_0_9: whether 0-9-1 lacks it.
        reserved: fields that 0-9-1 sends empty and ignores.
    """

    name: str
    class_id: int
    method_id: int
    layout: tuple[tuple[str, FieldKind], ...] = ()
    replies: frozenset[int] = frozenset()
    to_server: bool = False
    to_client: bool = False
    has_content: bool = False
    only_0_9: bool = False
    reserved: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """Class id and method id as one number: the first four octets of the method's frame."""
        return self.class_id << 16 | self.method_id


class AmqpMethod:
    """A method with its arguments.

    Attributes:
        traits: the traits of the method.
    """

    __slots__ = ()

    traits: ClassVar[MethodTraits]


class ContentProperties:
    """The properties of a content, None for absent ones (09-W-27).

    Properties from the wire may be shared by several contents: they must not be changed.

    Attributes:
        class_id: the id of the class of content.
        layout: the properties in the order of their flags.
    """

    __slots__ = ()

    class_id: ClassVar[int]
    layout: ClassVar[tuple[tuple[str, FieldKind], ...]]


__all__ = [
    "NO_BODY",
    "AmqpMethod",
    "ContentProperties",
    "FieldKind",
    "InlineBody",
    "MethodTraits",
]
