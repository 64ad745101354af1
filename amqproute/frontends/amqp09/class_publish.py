# SPDX-License-Identifier: Apache-2.0
"""Publishes of other classes than basic, in the form in which `ChannelPublisher` takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, Protocol

from amqproute import conditions
from amqproute.errors import AmqpError
from amqproute.wire.amqp09.contents import Content, Publish
from amqproute.wire.amqp09.methods import BasicProperties, BasicPublish
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["ClassPublish", "PublishListener", "answer_classes"]

LOST: Final = AmqpError("the message store failed", condition=conditions.INTERNAL_ERROR)
"""Answer for a publish that was neither refused nor kept."""


class PublishListener(Protocol):
    """The class of a publish, which learns what becomes of it."""

    def returned(self, publish: ClassPublish, code: ReplyCode, text: str) -> bool:
        """A publish has no way, or no consumer. True if the class has answered in its own way.

        False has it returned by the method of its class (`Channel.return_content`).
        """

    def answered(self, publishes: Sequence[ClassPublish], error: AmqpError | None) -> None:
        """Publishes are durable where they have to be, or in a transaction; or were refused.

        Args:
            publishes: in the order in which they came, as far as they are of one class.
            error: why they were refused or lost; None if they were taken.
        """

    def concluded(self, publish: ClassPublish, is_committed: bool) -> None:
        """The transaction has ended in which a publish was taken."""


class ClassPublish(Publish):
    """A content of another class, as a publish of basic.

    Args:
        original: the content as it came; its method names the class to whom it may concern.
        method: where it goes, as if by basic.publish.
        properties: as those of basic; see `amqproute.translation.content_classes`.
        property_octets: flags and values of these.
        listener: its class on its channel.

    Attributes:
        is_awaited: the client waits for an answer: without one it will publish again.
        is_posted: whether it was taken in a transaction, whose end its listener is told.
        error: why it was refused; None if it was not.
    """

    __slots__ = ("_original", "error", "is_awaited", "is_posted", "listener")

    def __init__(
        self,
        original: Content,
        method: BasicPublish,
        properties: BasicProperties,
        property_octets: bytes,
        listener: PublishListener,
    ) -> None:
        super().__init__(method, properties, property_octets, original.size, original.parts)
        self._original = original
        self.listener = listener
        self.is_awaited = False
        self.is_posted = False
        self.error: AmqpError | None = None

    @property
    def original(self) -> Content:
        """See `Publish.original`."""
        return self._original


def answer_classes(publishes: Iterable[Publish], is_taken: bool) -> None:
    """Tell the classes what has become of their publishes.

    Args:
        publishes: the publishes, in order; those of class basic have nobody to be told.
        is_taken: whether they were taken.
    """
    of_classes = [each for each in publishes if isinstance(each, ClassPublish)]
    if is_taken:
        for listener, some in groupby(of_classes, lambda each: each.listener):
            listener.answered(list(some), None)
        return
    for each in of_classes:
        each.listener.answered([each], each.error or LOST)
