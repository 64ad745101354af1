# SPDX-License-Identifier: Apache-2.0
"""Settings of one side's connections in 0-9 and 0-9-1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue
from amqproute.wire.amqp09.versions import ProtocolVersion, Role

FRAME_MIN_SIZE: Final = 4096
"""The smallest permitted frame-max (09-X-12)."""
OPENING_FRAME: Final = 8192
"""The largest frame before tuning is complete. Only `FRAME_MIN_SIZE` octets are legal (09-X-11),
but larger tokens in start-ok occur (09-W-13)."""
LARGEST_FRAME: Final = 0x7FFFFFFF


@dataclass(slots=True, kw_only=True)
class Connection09Settings:
    """Settings of one side's connections in 0-9 and 0-9-1.

    Attributes:
        role: server or client.
        version: the client's version; a server takes either.
        connection_id: the name of a server's connection in channel-ids, which are unique
            (09-DOM-16).
        mechanisms: a server's, the best first.
        locales: a server's, or the one that a client chooses.
        properties: server-properties or client-properties, without ``capabilities``.
        capabilities: the properties in ``capabilities`` that are true (09-W-70).
        classes: a server's: the classes, of those that 0-9-1 has removed, that clients of 0-9 can
            use; these are told by the property ``classes``.
        virtual_host: the client's.
        channel_max: the highest channel; 1 to 65535.
        frame_max: octets of the largest frame, `FRAME_MIN_SIZE` or more.
        heartbeat: seconds; a server's proposal, or a client's maximum; 0 for none.
        handshake_timeout: seconds from the start until connection.open or open-ok is received.
        close_timeout: seconds to wait for the answer to our connection.close.
        max_content: octets of a body; a content with more closes its channel; 0 for no limit.
        part_from: octets of a body from which on a content is passed on in parts, as it arrives.
        max_partial: octets of unfinished contents in memory, over all channels; beyond them a
            content is passed on in parts whatever its size.
        reports_input: whether to report the octets of input in memory
            (`protocol_events.ContentsHeld`).
    """

    role: Role
    version: ProtocolVersion = ProtocolVersion.V0_9_1
    connection_id: str = ""
    mechanisms: Sequence[str] = ()
    locales: Sequence[str] = ("en_US",)
    properties: Mapping[str, FieldValue] = field(default_factory=FieldTable)
    capabilities: Sequence[str] = ()
    classes: Sequence[str] = ()
    virtual_host: str = "/"
    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat: int = 60
    handshake_timeout: float = 30.0
    close_timeout: float = 10.0
    max_content: int = 0
    part_from: int = 1024 * 1024
    max_partial: int = 8 * 1024 * 1024
    reports_input: bool = False

    def __post_init__(self) -> None:
        if not FRAME_MIN_SIZE <= self.frame_max <= LARGEST_FRAME:
            raise ValueError(f"frame_max is {FRAME_MIN_SIZE} to {LARGEST_FRAME}")
        if not 1 <= self.channel_max <= 0xFFFF:
            raise ValueError("channel_max is 1 to 65535")
        if not 0 <= self.heartbeat <= 0xFFFF:
            raise ValueError("heartbeat is 0 to 65535")
        if not self.locales:
            raise ValueError("at least one locale is needed")
        size = len(self.table(ProtocolVersion.V0_9).octets) + len(
            " ".join((*self.mechanisms, *self.locales))
        )
        if self.role == "server" and size > FRAME_MIN_SIZE - 64:
            raise ValueError("the start method does not fit into a frame")

    def table(self, version: ProtocolVersion) -> FieldTable:
        """Return the properties for a peer, including the capabilities.

        Args:
            version: the one in use.
        """
        values = dict(self.properties)
        if self.classes and version is ProtocolVersion.V0_9:
            values["classes"] = " ".join(self.classes)
        if self.capabilities:
            values["capabilities"] = FieldTable(dict.fromkeys(self.capabilities, True))
        return FieldTable(values)


__all__ = ["FRAME_MIN_SIZE", "OPENING_FRAME", "Connection09Settings"]
