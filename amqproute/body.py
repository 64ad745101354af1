# SPDX-License-Identifier: Apache-2.0
"""The rest of a very large message, which a store keeps and a reader reads in parts."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

__all__ = ["IBody", "IBodyReader"]


class IBody(Interface):
    """The rest of a very large message: what follows the sections before its body.

    It is in a file, or wherever the store puts it, and lives as long as it is referenced in
    memory or by any committed entry.
    """

    size = Attribute("octets")
    has_footer = Attribute("whether it includes a footer; known while it is being received only")

    def digest_of(before: bytes) -> tuple[str, int] | None:
        """Return the SHA-256, in hexadecimal, and the octets of the bare message it is the rest of.

        None if they are unknown, or belong to other octets. Not for the reactor's thread: for a
        body that was stored before the start it reads the file, once.

        Args:
            before: octets of the bare message that precede these: properties.
        """

    def recall(before: bytes) -> Deferred[tuple[str, int] | None]:
        """Return a Deferred of the result of `digest_of`, for the reactor's thread."""

    def digested(before: bytes, digest: str, size: int) -> None:
        """Set the result of `digest_of` for `before` and these octets without the footer."""

    def reader() -> IBodyReader:
        """Return a reader, positioned at the first octet."""


class IBodyReader(Interface):
    """Sequential reader of one body."""

    left = Attribute("octets not requested yet")

    def read(size: int) -> Deferred[bytes]:
        """Return a Deferred of the next octets, at least one while any is left.

        Fails with `StoreError`: `MessageDamaged` if they differ from the written ones.

        Args:
            size: the maximum.
        """

    def skip(octets: int) -> None:
        """Go on behind the next octets, at most those that are left."""

    def close() -> None:
        """Stop reading."""
