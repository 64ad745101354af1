# SPDX-License-Identifier: Apache-2.0
"""Bounds on staged contents by party, and the amounts in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from amqproute.errors import StagingFull

__all__ = ["StagingLedger", "StagingTerms"]

GIBIBYTE: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StagingTerms:
    """Bounds of what is staged.

    Attributes:
        content_bytes: octets of one content.
        user_bytes: octets of all contents of one user.
        total_bytes: octets of all contents.
        user_contents: contents of one user.
        total_contents: contents of all users.
        lifetime_ms: a content to which nothing is added for so long is removed.
    """

    content_bytes: int = 2 * GIBIBYTE
    user_bytes: int = 4 * GIBIBYTE
    total_bytes: int = 8 * GIBIBYTE
    user_contents: int = 100
    total_contents: int = 1000
    lifetime_ms: int = 24 * 3600 * 1000


class StagingLedger:
    """Counts contents and octets, by user and in sum.

    Args:
        terms: the bounds; may be replaced at any time, for what comes then.
    """

    def __init__(self, terms: StagingTerms) -> None:
        self.terms = terms
        self._contents: dict[str, int] = {}
        self._octets: dict[str, int] = {}
        self._total_contents = 0
        self._total_octets = 0

    def __repr__(self) -> str:
        return f"<StagingLedger {self._total_contents} contents, {self._total_octets} octets>"

    def use(self, owner: str | None = None) -> tuple[int, int]:
        """Return the number of contents and octets of a user; of all users for None."""
        if owner is None:
            return self._total_contents, self._total_octets
        return self._contents.get(owner, 0), self._octets.get(owner, 0)

    def check(self, owner: str, octets: int) -> None:
        """Check that there is room for one more content.

        Args:
            owner: whose it will be.
            octets: that it will have; 0 if that is unknown.

        Raises:
            StagingFull: there is none.
        """
        terms = self.terms
        if self._contents.get(owner, 0) >= terms.user_contents:
            raise StagingFull(f"{terms.user_contents} contents are staged by this user", True)
        if self._total_contents >= terms.total_contents:
            raise StagingFull(f"{terms.total_contents} contents are staged", True)
        self.check_growth(owner, octets, octets)

    def check_growth(self, owner: str, size: int, octets: int) -> None:
        """Check that there is room for octets more.

        Args:
            owner: the owner of the contents.
            size: octets of the content then.
            octets: that are added on the disk.

        Raises:
            StagingFull: there is none.
        """
        terms = self.terms
        if size > terms.content_bytes:
            raise StagingFull(f"a staged content may have {terms.content_bytes} octets")
        if self._octets.get(owner, 0) + octets > terms.user_bytes:
            raise StagingFull(f"a user may have {terms.user_bytes} octets staged")
        if self._total_octets + octets > terms.total_bytes:
            raise StagingFull("the space for staged contents is used up")

    def add(self, owner: str, octets: int) -> None:
        """Count one content more."""
        self._contents[owner] = self._contents.get(owner, 0) + 1
        self._total_contents += 1
        self.grow(owner, octets)

    def grow(self, owner: str, octets: int) -> None:
        """Count octets more, or fewer where they are negative."""
        self._octets[owner] = self._octets.get(owner, 0) + octets
        self._total_octets += octets

    def remove(self, owner: str, octets: int) -> None:
        """Count one content less, with its octets."""
        self.grow(owner, -octets)
        self._total_contents -= 1
        self._contents[owner] -= 1
        if not self._contents[owner]:
            del self._contents[owner], self._octets[owner]
