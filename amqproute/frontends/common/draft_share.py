# SPDX-License-Identifier: Apache-2.0
"""Shares of parties in the large messages being received.

Each of them takes a place, which is a file and a descriptor, and octets of the store's room. Both
are bounded over all connections (`amqproute.frontends.common.partial_deliveries`).
"""

from __future__ import annotations

from typing import Final

from amqproute import conditions
from amqproute.errors import AmqpError, ResourceLimitExceeded
from amqproute.frontends.common.client_connection import ClientConnection

__all__ = ["DraftShare", "NoCapacityError"]

MOST_DRAFTS: Final = 400
"""Most large messages on their way to the disk at one time, a file each."""


class NoCapacityError(ResourceLimitExceeded):
    """No place for one more large message; its sender may try later."""


class DraftShare:
    """Resources of one large message being received.

    Args:
        connection: its connection.
    """

    __slots__ = ("_connection", "_has_place", "_octets")

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._has_place = False
        self._octets = 0

    def __repr__(self) -> str:
        return f"<DraftShare {self._octets}>"

    def check(self) -> None:
        """Check that there is a place.

        Raises:
            NoCapacityError: there are too many large messages on their way.
        """
        drafts = self._connection.context.partial_deliveries.drafts
        if not drafts.room(MOST_DRAFTS, *self._connection.party):
            raise NoCapacityError(
                "too many large messages are being received",
                info={"limiter": "large-messages-on-their-way"},
            )

    def take(self) -> None:
        """Take a place."""
        self._connection.context.partial_deliveries.drafts.take(1, *self._connection.party)
        self._has_place = True

    def check_size(self, octets: int) -> None:
        """Check that the store has room for a message whose size is known beforehand.

        Raises:
            AmqpError: the store has no room for it.
        """
        spare = self._connection.context.partial_deliveries.spare_octets
        if spare is not None and octets > spare:
            raise AmqpError(
                f"the body has {octets} octets, the store has room for {spare}",
                condition=conditions.LINK_MESSAGE_SIZE_EXCEEDED,
            )

    def grow(self, octets: int) -> None:
        """Add octets to be written.

        Raises:
            NoCapacityError: the share of the party in the store's room is used up.
        """
        partial = self._connection.context.partial_deliveries
        if not partial.may_grow(octets, *self._connection.party):
            raise NoCapacityError(
                "the large messages being received from you have used up their share of the store",
                info={"limiter": "octets-of-large-messages-on-their-way"},
            )
        partial.draft_octets.take(octets, *self._connection.party)
        self._octets += octets

    def release(self) -> None:
        """Release place and octets: the message is complete, or abandoned."""
        if self._has_place:
            self._has_place = False
            partial, party = self._connection.context.partial_deliveries, self._connection.party
            partial.drafts.give_back(1, *party)
            partial.draft_octets.give_back(self._octets, *party)
            self._octets = 0
