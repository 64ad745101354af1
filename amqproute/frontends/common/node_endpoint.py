# SPDX-License-Identifier: Apache-2.0
"""Endpoints of a connection at nodes: links or consumers, depending on the protocol."""

from __future__ import annotations

from amqproute.conditions import Condition
from amqproute.frontends.common.contract_enforcement import ActiveContract
from amqproute.interfaces import INode
from amqproute.values import Principal

__all__ = ["NodeEndpoint"]


class NodeEndpoint:
    """One end of a connection at a node, for the daemon and operators.

    Methods that an endpoint does not override have no meaning for it.

    Attributes:
        direction: the direction of its messages, from the broker's view: ``in`` or ``out``.
    """

    __slots__ = ()

    direction = ""

    @property
    def name(self) -> str:
        """Its name for operators, within its connection."""
        return ""

    @property
    def node(self) -> INode | None:
        """The node; None for none, or none yet."""
        return None

    @property
    def address(self) -> str | None:
        """The address of the node, as the other side wrote it."""
        return None

    @property
    def is_active(self) -> bool:
        """Whether it has been answered, and not ended from our side."""
        return False

    @property
    def held_bytes(self) -> int:
        """Octets in memory of the messages that have been sent and have no outcome."""
        return 0

    def grant(self) -> None:
        """Adjust the sender's credit."""

    def dispatch(self) -> None:
        """Send available entries, as far as there is room."""

    def apply_terms(self, contract: ActiveContract) -> None:
        """Apply changed terms of the sender's contract."""

    def stop_taking(self) -> None:
        """Revoke the sender's credit: the daemon is being stopped."""

    def check_access(self, principal: Principal) -> None:
        """Check that the other side still has the right to it.

        Raises:
            UnauthorizedAccess: it has not any more.
        """

    def detach(self, condition: Condition, words: str) -> None:
        """End it from our side; entries it held go back."""

    def leave(self) -> None:
        """Leave the node: release its shares, and return the entries it held."""
