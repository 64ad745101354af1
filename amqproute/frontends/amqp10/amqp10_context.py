# SPDX-License-Identifier: Apache-2.0
"""Context shared by all AMQP 1.0 connections of a daemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from amqproute.frontends.amqp10.suspended_links import LinkKey, SuspendedLinks
from amqproute.frontends.amqp10.terminus_resolution import TerminusResolver
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.wire.amqp10.link import Link

__all__ = ["Amqp10Context", "LinkHolder"]


class LinkHolder(Protocol):
    """The connection of an attached link."""

    def surrender(self, link: Link) -> None:
        """Detach a link that has been attached on another connection."""


@dataclass(slots=True)
class Amqp10Context:
    """Context shared by all AMQP 1.0 connections.

    Attributes:
        common: shared by all connections of every protocol.
        termini: resolves sources and targets.
        tolerates_missing_body: whether a message without a body is taken (M-22).
        links: every attached link: for link stealing.
        suspended: links that are detached and may come back.
    """

    common: FrontendContext
    termini: TerminusResolver
    tolerates_missing_body: Callable[[], bool] = lambda: False
    links: dict[LinkKey, tuple[LinkHolder, Link]] = field(default_factory=dict)
    suspended: SuspendedLinks = field(init=False)

    def __post_init__(self) -> None:
        common = self.common
        self.suspended = SuspendedLinks(
            common.transactions.clock, common.limits, common.broker.begin
        )
        common.detaching.append(self.suspended.expire_from)
