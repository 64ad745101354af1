# SPDX-License-Identifier: Apache-2.0
"""Endpoints of a connection at nodes: links or consumers, depending on the protocol."""

from __future__ import annotations

from amqproute.conditions import Condition
from amqproute.frontends.common.contract_enforcement import ActiveContract
from amqproute.interfaces import INode
from amqproute.values import Principal

__all__ = ["NodeEndpoint"]


class NodeEndpoint:
    """One end of a connection at a node, as daemon and operators see it.

    What an endpoint does not override has no meaning for it.

    Attributes:
        direction: direction of its messages as the broker sees it, ``in`` or ``out``.
    """

    __slots__ = ()

    direction = ""

    @property
    def name(self) -> str:
        """Its name for operators, distinct enough within one connection."""
        return ""

    @property
    def node(self) -> INode | None:
        """The node; None for none, or none yet."""
        return None

    @property
    def address(self) -> str | None:
        """The address by which the other side asked for the node."""
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
        """Bring the sender's credit in line with what it may have now."""

    def dispatch(self) -> None:
        """Send what there is, as far as there is room."""

    def apply_terms(self, contract: ActiveContract) -> None:
        """Go by changed terms of the sender's contract."""

    def stop_taking(self) -> None:
        """Revoke the sender's credit: the daemon is being stopped."""

    def check_access(self, principal: Principal) -> None:
        """Check that the other side may still have it at the node.

        Raises:
            UnauthorizedAccess: not any more.
        """

    def detach(self, condition: Condition, words: str) -> None:
        """End it from our side; what it held goes back."""

    def leave(self) -> None:
        """Leave the node: shares of it are free, and what was held goes back."""
