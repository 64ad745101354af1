# SPDX-License-Identifier: Apache-2.0
"""Settings for virtual hosts: separate name spaces within the broker."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from amqproute.config.access_settings import AccessSettings
from amqproute.config.field_types import Domain, FromList
from amqproute.config.node_settings import NodeSettings
from amqproute.config.schema_base import Settings

__all__ = ["VirtualHostSettings"]


class VirtualHostSettings(Settings):
    """One virtual host: nodes, exchanges and rights of its own, out of reach of the others."""

    domains: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="The domains whose nodes live in it: orders@shop.example is its node orders, "
        "for other organizations too. Without domains it is local. No domain may be in two lists.",
    )
    access: Annotated[tuple[AccessSettings, ...], FromList] = Field(
        default=(),
        description="Access rules of this virtual host, in the form of access above, whose rules "
        "do not apply here. A principal to whom no rule here grants anything cannot open it. "
        "Peers need a rule with transfer before they can deliver to its domains.",
    )
    nodes: Annotated[tuple[NodeSettings, ...], FromList] = Field(
        default=(),
        description="Its nodes that are created at start if they do not exist.",
    )
    max_connections: int | None = Field(
        default=None,
        ge=1,
        description="The maximum number of connections that have it open at one time; another one "
        "is refused. null: limited only by the listeners.",
    )
    max_nodes: int | None = Field(
        default=None,
        ge=1,
        description="The maximum number of queues and topics in it, including those of its "
        "clients; another one is refused. null: limited only by limits.max-nodes.",
    )
