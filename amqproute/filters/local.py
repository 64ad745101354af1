# SPDX-License-Identifier: Apache-2.0
"""The no-local filter: a container does not get its own messages.

``apache.org:no-local-filter:list`` (0x0000468C:0x00000003), a list without fields, speaks of the
same connection; a container that connects again is the same publisher, so the container-id of the
`open` decides. A message of unknown origin (from another organization, or read back from the store)
belongs to no container and passes.
"""

from __future__ import annotations

from typing import Final

from amqproute.errors import InvalidField
from amqproute.message import Message

ORIGIN: Final = "origin"
"""Requirement of the filter: the container-id of the connection that a message came in on."""


class NoLocal:
    """Keeps a container's own messages from it.

    Attributes:
        container: the container-id of the consumer.
        needs: ``origin``.
    """

    __slots__ = ("container",)

    needs: Final = frozenset((ORIGIN,))

    def __init__(self, container: str) -> None:
        if not container:
            raise InvalidField("a no-local filter on a connection without a container-id")
        self.container = container

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """Return whether the message came from another container.

        Args:
            message: not used.
            origin: the container-id it came in from, None when that is not known.
        """
        return origin != self.container

    def __repr__(self) -> str:
        return f"<NoLocal {self.container}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NoLocal):
            return NotImplemented
        return self.container == other.container

    def __hash__(self) -> int:
        return hash(self.container)
