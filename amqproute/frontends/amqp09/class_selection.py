# SPDX-License-Identifier: Apache-2.0
"""Filters of consumers of 0-9 by class of content (09-QUEUE-02).

There is one for each set of classes, so that the consumers of a queue share what is found out by it
(`amqproute.broker.consumer_cursor.CursorMatch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.broker.consumer_cursor import Selects
from amqproute.content_class import ContentClass, content_class_of
from amqproute.entry import Entry
from amqproute.errors import DecodeError

__all__ = ["CLASS_SELECTORS", "class_of"]


def class_of(entry: Entry) -> ContentClass:
    """Return the class of an entry's message; that of an unreadable one is basic."""
    try:
        return content_class_of(entry.message)
    except DecodeError:
        return ContentClass.BASIC


def _selector(classes: frozenset[ContentClass]) -> Selects:
    return lambda entry: class_of(entry) in classes


_SETS: Final = (
    *(frozenset((each,)) for each in ContentClass),
    frozenset((ContentClass.BASIC, ContentClass.TUNNEL)),
)
CLASS_SELECTORS: Final[Mapping[frozenset[ContentClass], Selects]] = {
    classes: _selector(classes) for classes in _SETS
}
"""The filter for each set of classes that a consumer may take."""
