# SPDX-License-Identifier: Apache-2.0
"""The no-local filter: what a container published it does not get back.

``apache.org:no-local-filter:list`` (0x0000468C:0x00000003), a list without fields, speaks of the
same connection; a container that connects again is the same publisher, so the container-id of the
`open` decides. A message whose origin is not known (it came from another organization, or was read
back from the store) is nobody's own and passes.
"""

from __future__ import annotations

from typing import Final

from amqproute.errors import InvalidField
from amqproute.message import Message

ORIGIN: Final = "origin"
"""What the filter needs: the container-id of the connection a message came in on."""


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
        """Tell whether the message came from elsewhere.

        Args:
            message: not looked at.
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
