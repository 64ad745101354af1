# SPDX-License-Identifier: Apache-2.0
"""The two supported versions, and the roles of peers."""

from __future__ import annotations

import enum
from typing import Literal, TypeAlias

from amqproute.wire.header import ProtocolHeader

Role: TypeAlias = Literal["server", "client"]
"""The role of an engine's side: the client speaks first."""


class ProtocolVersion(enum.Enum):
    """A version of AMQP before 1.0, as its protocol header names it.

    A header of 0-9 is no proof of the dialect (09-W-05): such a connection may use the methods of
    0-9, those of 0-9-1 and the extensions, whose ids do not clash. One of 0-9-1 may not use what
    0-9-1 has removed, except access.request, which RabbitMQ answers too.
    """

    V0_9 = "0-9"
    V0_9_1 = "0-9-1"

    @property
    def header(self) -> ProtocolHeader:
        """The eight octets that request this version."""
        if self is ProtocolVersion.V0_9:
            return ProtocolHeader.AMQP_0_9
        return ProtocolHeader.AMQP_0_9_1


__all__ = ["ProtocolVersion", "Role"]
