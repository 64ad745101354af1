# SPDX-License-Identifier: Apache-2.0
"""Settings of AMQP 1.0 connections of one side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from amqproute.wire.amqp10 import spec


@dataclass(slots=True, kw_only=True)
class ConnectionSettings:
    """Settings of the connections of one side.

    Attributes:
        role: server or client; the client speaks first.
        container_id: ours.
        hostname: the hostname for open and sasl-init; the client's name for the server.
        max_frame_size: the largest frame to take, and to send; at least 512.
        channel_max: the highest channel that the peer may use.
        handle_max: the highest handle that the peer may use in a session.
        idle_timeout: seconds; announced to the peer, and we close after twice as much silence. None
            for no limit.
        handshake_timeout: seconds from `Connection.start` to the peer's open.
        close_timeout: seconds to wait for the peer's close.
        max_message_size: octets that a receiving link takes, unless `Link.accept` says else;
            0 for no limit.
        max_partial: octets of deliveries that have begun and not ended, over all links of a
            connection; a link that wants more is detached; 0 for no limit.
        part_from: octets of an unfinished delivery from which on it is handed up in parts, on links
            that take parts (`Link.takes_parts`).
        part_window: octets of such parts that a session may have handed up and that have not been
            taken (`Session.took`).
        max_endpoint_octets: memory of the peer's sessions and links, estimated; a peer that wants
            more is closed; 0 for no limit.
        reports_input: report the peer's input in memory by `InputHeld`, and the memory of sessions
            and links by `EndpointsHeld` where no other event goes with a change.
        credit_grace_new: deliveries taken on a new link before our first flow (P-04).
        incoming_window: transfer frames of a session's window.
        offered_capabilities: the capabilities of the open.
        desired_capabilities: the capabilities of the open.
        properties: the properties of the open.
        tls: server: whether the TLS header is answered or demanded; client: "required" asks for
            it first. For streams that are TLS from their first byte say "none".
        allow_no_sasl: the server accepts a client that skips SASL.
    """

    role: Literal["server", "client"]
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 262144
    channel_max: int = 255
    handle_max: int = 1023
    idle_timeout: float | None = None
    handshake_timeout: float = 30.0
    close_timeout: float = 5.0
    max_message_size: int = 0
    max_partial: int = 0
    part_from: int = 1024 * 1024
    part_window: int = 8 * 1024 * 1024
    max_endpoint_octets: int = 0
    reports_input: bool = False
    credit_grace_new: int = 10
    incoming_window: int = 2048
    offered_capabilities: Sequence[str] = ()
    desired_capabilities: Sequence[str] = ()
    properties: Mapping[str, object] | None = None
    tls: Literal["none", "optional", "required"] = "none"
    allow_no_sasl: bool = False

    def __post_init__(self) -> None:
        if self.max_frame_size < spec.MIN_MAX_FRAME_SIZE:
            raise ValueError("max_frame_size is at least 512")
        if self.incoming_window < 2:
            raise ValueError("incoming_window is at least 2")


__all__ = ["ConnectionSettings"]
