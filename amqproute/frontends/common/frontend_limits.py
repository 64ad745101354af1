# SPDX-License-Identifier: Apache-2.0
"""Limits of one connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrontendLimits:
    """Bounds of a connection's links.

    Attributes:
        link_credit: deliveries a sender may have granted or uncommitted at once.
        links: links that one connection may have attached at once.
        uncommitted_bytes: bytes of messages waiting for the disk beyond which nothing more is
            read from the connection.
        memory_bytes: the same over all connections, beyond which no sender has credit; 0 for no
            bound.
        delivery_seconds: a delivery that has begun, and makes no progress for so long, is ended.
        unsettled: deliveries a receiver may leave unsettled at once.
        unsettled_bytes: bytes of messages it may leave unsettled; one delivery is always let
            through, however large.
        admission_seconds: how long an attach, or a message, waits for the DNS before it is taken
            into the relay queue on trust.
        dynamic_nodes: dynamic nodes that one connection may have at once.
        header_bytes: octets of a message's header and annotations together, which every hop
            reads and some write anew.
        suspended_links: detached links of the whole daemon that may come back.
        suspended_deliveries: deliveries whose state is kept for them.
        suspended_bytes: bytes of messages that are parked for them.
        suspended_seconds: the longest timeout of a terminus.
    """

    link_credit: int = 1000
    links: int = 1024
    uncommitted_bytes: int = 32 * 1024 * 1024
    memory_bytes: int = 0
    delivery_seconds: float = 300.0
    unsettled: int = 10_000
    unsettled_bytes: int = 32 * 1024 * 1024
    admission_seconds: float = 5.0
    dynamic_nodes: int = 64
    header_bytes: int = 256 * 1024
    suspended_links: int = 10_000
    suspended_deliveries: int = 100_000
    suspended_bytes: int = 256 * 1024 * 1024
    suspended_seconds: int = 3600
