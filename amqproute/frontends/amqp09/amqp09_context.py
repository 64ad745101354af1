# SPDX-License-Identifier: Apache-2.0
"""What all connections of AMQP 0-9 and 0-9-1 of a daemon share, beside what all connections do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from amqproute.frontends.common.client_connection import FrontendContext

__all__ = ["Amqp09Context"]


@dataclass(slots=True)
class Amqp09Context:
    """What all connections of AMQP 0-9 and 0-9-1 share.

    Attributes:
        common: what all connections share, whatever their protocol.
        own_domains: the domains of this broker. Each names the one virtual host, as ``/`` does.
    """

    common: FrontendContext
    own_domains: Callable[[], Collection[str]]

    def has_virtual_host(self, name: str) -> bool:
        """Tell whether a virtual host exists (09-CONN-23).

        Some clients leave out the leading slash, so a name counts with and without it (I-08).
        """
        domain = name.removeprefix("/").lower().rstrip(".")
        return not domain or domain in self.own_domains()
