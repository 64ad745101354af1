# SPDX-License-Identifier: Apache-2.0
"""The class of content of AMQP 0-9 that a message was published as.

It travels with the message as an annotation, through stores, other protocols and organizations,
because consumers of 0-9 receive content of their own class only (09-QUEUE-02). A message without
the annotation, or with an unknown value, is of class basic; so is one of class message.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from amqproute.errors import DecodeError
from amqproute.message import Message
from amqproute.wire.amqp10.types import Symbol

__all__ = ["CONTENT_CLASS", "ContentClass", "annotated_class", "content_class_of", "is_stream"]

CONTENT_CLASS: Final = Symbol("x-opt-content-class")
"""Message annotation: the value of a `ContentClass`; absent for basic."""


class ContentClass(enum.Enum):
    """A class of content. Values are those of the annotation."""

    BASIC = "basic"
    FILE = "file"
    STREAM = "stream"
    TUNNEL = "tunnel"


_NAME: Final = CONTENT_CLASS.encode()
_BY_VALUE: Final = {each.value: each for each in ContentClass}


def annotated_class(annotations: Mapping[Symbol, object]) -> ContentClass:
    """Return the class that the annotations of a message name."""
    value = annotations.get(CONTENT_CLASS)
    if not isinstance(value, str):
        return ContentClass.BASIC
    return _BY_VALUE.get(value, ContentClass.BASIC)


def content_class_of(message: Message) -> ContentClass:
    """Return the class of a message; for most this is a search in its annotations' octets.

    Raises:
        DecodeError: the octets are not the sections of a message.
    """
    if _NAME not in message.annotation_bytes:
        return ContentClass.BASIC
    return annotated_class(message.annotations)


def is_stream(message: Message) -> bool:
    """Whether a message is of class stream; one that cannot be read is not."""
    try:
        return content_class_of(message) is ContentClass.STREAM
    except DecodeError:
        return False
