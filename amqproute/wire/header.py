# SPDX-License-Identifier: Apache-2.0
"""The protocol headers: the eight bytes that open a connection (part 2 §2.2, part 5).

A listener asks `recognize` with what has arrived so far. A stranger (an HTTP client, a TLS
hello on the plain port, a scanner) is told apart at the first byte that no protocol header can
have, not after eight. All of them are answered: whoever begins TLS with `TLS_ALERT`, the others
with a header that the listener takes (part 2 §2.2; 09-W-03).
"""

from __future__ import annotations

import enum
from typing import Final

from amqproute import conditions
from amqproute.errors import AmqpError

HEADER_SIZE: Final = 8
TLS_HANDSHAKE: Final = 0x16
"""The first octet of a TLS connection: the record type of its ClientHello (RFC 8446 §5.1)."""
TLS_ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2, 40))
"""A record with the fatal alert handshake_failure (RFC 8446 §6.2)."""
UNANSWERED_HEADER: Final = (
    "the peer has closed the connection instead of answering AMQP's header: as a rule that port "
    "speaks TLS from the first octet (amqps://, an SRV record _amqps._tcp)"
)
"""The symptom at a client that begins without TLS, of a port that begins with TLS."""


_BEFORE_1_0: Final = (b"\x01\x01", b"\x00\x00")
"""Octets 5 and 6 of the headers of 0-8 to 0-10: class and instance, and of 0-9-1 and its kind."""


class ProtocolHeader(bytes, enum.Enum):
    """The protocol headers that this daemon knows, as their eight bytes."""

    AMQP_1_0 = b"AMQP\x00\x01\x00\x00"
    AMQP_1_0_TLS = b"AMQP\x02\x01\x00\x00"
    AMQP_1_0_SASL = b"AMQP\x03\x01\x00\x00"
    AMQP_0_9 = b"AMQP\x01\x01\x00\x09"
    AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"


class UnknownHeaderError(AmqpError):
    """These bytes start no protocol that this daemon speaks.

    Attributes:
        is_tls: whether they begin a TLS handshake, which no header of AMQP would tell anything.
        is_before_1_0: whether they are the header of another AMQP before 1.0 (0-8, 0-10).
    """

    condition = conditions.CONNECTION_FRAMING_ERROR

    def __init__(
        self, description: str, *, is_tls: bool = False, is_before_1_0: bool = False
    ) -> None:
        super().__init__(description)
        self.is_tls = is_tls
        self.is_before_1_0 = is_before_1_0

    @property
    def answer(self) -> bytes:
        """Header that a server of all versions of AMQP sends before it closes (09-W-03).

        Whoever speaks an AMQP before 1.0 learns of 0-9-1, a TLS client of its mistake, and
        everybody else, AMQP or not, of AMQP 1.0 with SASL.
        """
        if self.is_tls:
            return TLS_ALERT
        if self.is_before_1_0:
            return ProtocolHeader.AMQP_0_9_1.value
        return ProtocolHeader.AMQP_1_0_SASL.value


def recognize(data: bytes | bytearray | memoryview) -> ProtocolHeader | None:
    """Tell which protocol header ``data`` start with.

    Args:
        data: what has arrived; bytes after the eighth are not looked at.

    Returns:
        The header, or None when more bytes are needed to tell.

    Raises:
        UnknownHeaderError: whatever follows, this is no header known here. A header of another
            version of AMQP is told only when all its eight bytes are there.
    """
    start = bytes(data[:HEADER_SIZE])
    if start[:1] == bytes((TLS_HANDSHAKE,)):
        raise UnknownHeaderError("a TLS hello, and no header of AMQP", is_tls=True)
    if start[:1] == TLS_ALERT[:1]:
        raise UnknownHeaderError(
            "a TLS alert, and no header of AMQP: the peer speaks TLS from the first octet at this "
            "port (amqps://, an SRV record _amqps._tcp)"
        )
    if not start.startswith(b"AMQP"[: len(start)]):
        raise UnknownHeaderError(f"not AMQP: the connection starts with {start!r}")
    if len(start) < HEADER_SIZE:
        return None
    try:
        return ProtocolHeader(start)
    except ValueError:
        pass
    raise UnknownHeaderError(
        f"AMQP protocol id {start[4]}, version {start[5]}.{start[6]}.{start[7]} is not spoken here",
        is_before_1_0=start[4:6] in _BEFORE_1_0,
    )
