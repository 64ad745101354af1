# SPDX-License-Identifier: Apache-2.0
"""Staged contents of a store without a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from zope.interface import implementer

from amqproute.errors import StagedContentLost, StoreError
from amqproute.interfaces import IBodyReader, IStagedContent, IStaging
from amqproute.store.staging_ledger import StagingLedger, StagingTerms

__all__ = ["MemoryStaging"]


class Submit(Protocol):
    """Schedules a call in the store's next turn."""

    # Any: the result of whatever function it is.
    def __call__(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Return a Deferred of the result."""


class _Content:
    """One content: who holds it, and what is in it."""

    def __init__(self, owner: str, identifier: str | None, expected: int, now_ms: int) -> None:
        self.owner = owner
        self.identifier = identifier
        self.is_by_saves = identifier is None
        self.expected = expected
        self.octets = bytearray()
        self.saved = 0
        self.charged = expected
        self.touched_ms = now_ms
        self.holder: MemoryContent | None = None


@implementer(IBodyReader)
class MemoryContentReader:
    """Reads one content in parts."""

    def __init__(self, holder: MemoryContent) -> None:
        self._holder = holder
        self._at = 0
        self.left = holder.size

    def read(self, size: int) -> Deferred[bytes]:
        """See `IBodyReader.read`."""
        start = self._at
        self.skip(size)
        end = self._at
        self._holder.check()
        octets = self._holder.content.octets
        return self._holder.staging.submit(lambda: bytes(octets[start:end]))

    def skip(self, octets: int) -> None:
        """See `IBodyReader.skip`."""
        octets = min(octets, self.left)
        self._at += octets
        self.left -= octets

    def close(self) -> None:
        """See `IBodyReader.close`."""
        self.left = 0


@implementer(IStagedContent)
class MemoryContent:
    """One party's hold on a content; see `IStagedContent`."""

    def __init__(
        self, staging: MemoryStaging, content: _Content, written: Callable[[int], None]
    ) -> None:
        self.staging = staging
        self.content = content
        self._written = written

    @property
    def size(self) -> int:
        """See `IStagedContent.size`."""
        return len(self.content.octets)

    @property
    def is_lost(self) -> bool:
        """See `IStagedContent.is_lost`."""
        return self.content.holder is not self

    def check(self) -> None:
        """See `IStagedContent.check`."""
        if self.is_lost:
            raise StagedContentLost("the staged content was taken over, removed, or has expired")

    def append(self, parts: Sequence[bytes]) -> None:
        """See `IStagedContent.append`."""
        self.check()
        octets = b"".join(parts)
        self.staging.charge(self.content, len(octets))
        self.content.octets += octets
        self.staging.submit(lambda: len(octets)).addCallback(self._written)

    def save(self, identifier: str | None = None) -> Deferred[int]:
        """See `IStagedContent.save`."""
        self.check()
        self.staging.save(self.content, identifier)
        size = self.size
        return self.staging.submit(lambda: size)

    def reader(self) -> MemoryContentReader:
        """See `IStagedContent.reader`."""
        self.check()
        return MemoryContentReader(self)

    def release(self) -> None:
        """See `IStagedContent.release`."""
        if not self.is_lost:
            self.staging.release(self.content)

    def remove(self) -> None:
        """See `IStagedContent.remove`."""
        if not self.is_lost:
            self.staging.remove(self.content)


@implementer(IStaging)
class MemoryStaging:
    """Staged contents in memory, within the bounds that those on a disk have.

    Args:
        submit: runs something in the store's next turn.
        clock_ms: milliseconds since the epoch.
    """

    def __init__(self, submit: Submit, clock_ms: Callable[[], int]) -> None:
        self.submit = submit
        self._clock_ms = clock_ms
        self._ledger = StagingLedger(StagingTerms())
        self._contents: list[_Content] = []

    def __repr__(self) -> str:
        return f"<MemoryStaging {self._ledger!r}>"

    @property
    def terms(self) -> StagingTerms:
        """See `IStaging.terms`."""
        return self._ledger.terms

    @terms.setter
    def terms(self, terms: StagingTerms) -> None:
        self._ledger.terms = terms

    def begin(
        self, owner: str, identifier: str | None, size: int, written: Callable[[int], None]
    ) -> Deferred[IStagedContent]:
        """See `IStaging.begin`."""
        found = None if identifier is None else self._find(owner, identifier, False)
        if found is not None and found.expected != size:
            self.remove(found)
            found = None
        if found is None:
            try:
                self._ledger.check(owner, size)
            except StoreError as error:
                return self._failing(error)
            found = _Content(owner, identifier, size, self._clock_ms())
            self._contents.append(found)
            self._ledger.add(owner, size)
        return self._hold(found, written)

    def resume(
        self, owner: str, identifier: str, written: Callable[[int], None]
    ) -> Deferred[IStagedContent | None]:
        """See `IStaging.resume`."""
        found = self._find(owner, identifier, True)
        if found is None:
            return self.submit(lambda: None)
        self.release(found)
        return self._hold(found, written)

    def use(self, owner: str | None = None) -> tuple[int, int]:
        """See `IStaging.use`."""
        return self._ledger.use(owner)

    @property
    def held(self) -> int:
        """Contents that somebody holds."""
        return sum(each.holder is not None for each in self._contents)

    def rows(self) -> list[tuple[str, str, int, int]]:
        """See `IStaging.rows`."""
        return [
            (each.owner, each.identifier, len(each.octets), each.touched_ms)
            for each in self._contents
            if each.identifier is not None
        ]

    def expire(self) -> int:
        """See `IStaging.expire`."""
        before = self._clock_ms() - self.terms.lifetime_ms
        old = [each for each in self._contents if each.touched_ms <= before]
        for each in old:
            self.remove(each)
        return len(old)

    def _find(self, owner: str, identifier: str, is_by_saves: bool) -> _Content | None:
        for each in self._contents:
            if (each.owner, each.identifier, each.is_by_saves) == (owner, identifier, is_by_saves):
                return each
        return None

    # Any: of the content, or of the same where there may be none.
    def _hold(self, content: _Content, written: Callable[[int], None]) -> Deferred[Any]:
        content.holder = holder = MemoryContent(self, content, written)
        content.touched_ms = self._clock_ms()

        def held() -> MemoryContent:
            holder.check()
            return holder

        return self.submit(held)

    def _failing(self, error: StoreError) -> Deferred[Any]:  # Any: of nothing
        def fail() -> None:
            raise error

        return self.submit(fail)

    def charge(self, content: _Content, octets: int) -> None:
        """Count octets that are added.

        Raises:
            StagingFull: a bound is reached.
        """
        size = len(content.octets) + octets
        wanted = max(0, size - content.charged)
        self._ledger.check_growth(content.owner, size, wanted)
        self._ledger.grow(content.owner, wanted)
        content.charged += wanted
        content.touched_ms = self._clock_ms()

    def save(self, content: _Content, identifier: str | None) -> None:
        """See `IStagedContent.save`."""
        content.saved = len(content.octets)
        content.touched_ms = self._clock_ms()
        if identifier is None or not content.is_by_saves:
            return
        other = self._find(content.owner, identifier, True)
        if other is not None and other is not content:
            self.remove(other)
        content.identifier = identifier

    def release(self, content: _Content) -> None:
        """Nobody holds a content any more."""
        content.holder = None
        if content.identifier is None:
            self.remove(content)
        elif content.is_by_saves:
            del content.octets[content.saved :]
            wanted = max(content.expected, content.saved)
            self._ledger.grow(content.owner, wanted - content.charged)
            content.charged = wanted

    def remove(self, content: _Content) -> None:
        """Remove a content."""
        content.holder = None
        self._contents.remove(content)
        self._ledger.remove(content.owner, content.charged)
