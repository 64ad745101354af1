# SPDX-License-Identifier: Apache-2.0
"""Settings: name spaces of their own within the broker."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from amqproute.config.access_settings import AccessSettings
from amqproute.config.field_types import Domain, FromList
from amqproute.config.node_settings import NodeSettings
from amqproute.config.schema_base import Settings

__all__ = ["VirtualHostSettings"]


class VirtualHostSettings(Settings):
    """One virtual host: nodes, exchanges and rights of its own, which no other one reaches."""

    domains: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="The domains whose nodes live in it: orders@shop.example is its node orders, "
        "for other organizations too. Without domains it is local. No other list of domains "
        "has the same ones.",
    )
    access: Annotated[tuple[AccessSettings, ...], FromList] = Field(
        default=(),
        description="Who may do what in it, as under access above, whose rules do not apply here. "
        "Whom no rule of this list allows anything may not open it. Peers need a rule with "
        "transfer before they can deliver to its domains.",
    )
    nodes: Annotated[tuple[NodeSettings, ...], FromList] = Field(
        default=(),
        description="Its nodes that are made at the start if they are not there.",
    )
    max_connections: int | None = Field(
        default=None,
        ge=1,
        description="The most connections that have it open at one time; one more is refused. "
        "null: no bound but those of the listeners.",
    )
    max_nodes: int | None = Field(
        default=None,
        ge=1,
        description="The most queues and topics in it, those of its clients included; one more is "
        "refused. null: no bound but limits.max-nodes.",
    )
