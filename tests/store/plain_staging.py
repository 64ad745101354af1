# SPDX-License-Identifier: Apache-2.0
"""Staged contents for `tests.store.plain_store`, written from the interfaces alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from amqproute.errors import StagedContentLost, StagingFull
from amqproute.interfaces import IBodyReader, IStagedContent, IStaging
from amqproute.store.staging_ledger import StagingTerms


@dataclass
class PlainContent:
    """The part of one content on the disk; `saved` is None for one that keeps everything."""

    owner: str
    identifier: str | None
    expected: int
    octets: bytes
    saved: int | None
    touched_ms: int
    holder: Any = None

    @property
    def charged(self) -> int:
        return max(self.expected, len(self.octets))


@implementer(IBodyReader)
class PlainContentReader:
    def __init__(self, held: PlainHeld) -> None:
        self._held = held
        self._octets = held.content.octets
        self.left = len(self._octets)

    def read(self, size: int) -> Deferred[bytes]:
        part = self._octets[:size]
        self.skip(size)
        self._held.check()
        return self._held.staging.later(lambda: part)

    def skip(self, octets: int) -> None:
        self._octets = self._octets[octets:]
        self.left = len(self._octets)

    def close(self) -> None:
        self.skip(self.left)


@implementer(IStagedContent)
class PlainHeld:
    def __init__(
        self, staging: PlainStaging, content: PlainContent, written: Callable[[int], None]
    ) -> None:
        self.staging = staging
        self.content = content
        self._written = written
        content.holder = self

    @property
    def size(self) -> int:
        return len(self.content.octets)

    @property
    def is_lost(self) -> bool:
        return self.content.holder is not self

    def check(self) -> None:
        if self.is_lost:
            raise StagedContentLost("lost")

    def append(self, parts: Sequence[bytes]) -> None:
        self.check()
        octets = b"".join(parts)
        content = self.content
        self.staging.require(content, len(content.octets) + len(octets))
        content.octets += octets
        content.touched_ms = self.staging.now_ms()
        self.staging.later(lambda: len(octets)).addCallback(self._written)

    def save(self, identifier: str | None = None) -> Deferred[int]:
        self.check()
        size = self.size
        if self.content.saved is not None:
            self.content.saved = size
            if identifier is not None:
                self.staging.give_name(self.content, identifier)
        return self.staging.later(lambda: size)

    def reader(self) -> PlainContentReader:
        self.check()
        return PlainContentReader(self)

    def release(self) -> None:
        if not self.is_lost:
            self.staging.release(self.content)

    def remove(self) -> None:
        if not self.is_lost:
            self.staging.remove(self.content)


@implementer(IStaging)
class PlainStaging:
    """Contents in a list that outlives the store.

    Args:
        contents: what there is.
        later: runs something in the store's next turn.
        now_ms: the clock.
    """

    def __init__(
        self, contents: list[PlainContent], later: Callable[..., Any], now_ms: Callable[[], int]
    ) -> None:
        self.contents = contents
        self.later = later
        self.now_ms = now_ms
        self.terms = StagingTerms()
        for content in list(contents):
            self.release(content)

    def begin(
        self, owner: str, identifier: str | None, size: int, written: Callable[[int], None]
    ) -> Deferred[Any]:
        content = self._find(owner, identifier, False) if identifier is not None else None
        if content is not None and content.expected != size:
            self.remove(content)
            content = None
        if content is None:
            saved = None if identifier is not None else 0
            content = PlainContent(owner, identifier, size, b"", saved, self.now_ms())
            try:
                self._check(content)
            except StagingFull as full:
                return self._failing(full)
            self.contents.append(content)
        return self._held(PlainHeld(self, content, written))

    def resume(self, owner: str, identifier: str, written: Callable[[int], None]) -> Deferred[Any]:
        content = self._find(owner, identifier, True)
        if content is None:
            return self.later(lambda: None)  # type: ignore[no-any-return]
        self.release(content)
        return self._held(PlainHeld(self, content, written))

    def use(self, owner: str | None = None) -> tuple[int, int]:
        found = [each for each in self.contents if owner in (None, each.owner)]
        return len(found), sum(each.charged for each in found)

    def rows(self) -> list[tuple[str, str, int, int]]:
        return [
            (each.owner, each.identifier, len(each.octets), each.touched_ms)
            for each in self.contents
            if each.identifier is not None
        ]

    def expire(self) -> int:
        old = [
            each
            for each in self.contents
            if each.touched_ms + self.terms.lifetime_ms <= self.now_ms()
        ]
        for each in old:
            self.remove(each)
        return len(old)

    def require(self, content: PlainContent, size: int) -> None:
        terms = self.terms
        more = max(0, size - content.charged)
        if size > terms.content_bytes:
            raise StagingFull("too large")
        if self.use(content.owner)[1] + more > terms.user_bytes:
            raise StagingFull("too much of one user")
        if self.use()[1] + more > terms.total_bytes:
            raise StagingFull("too much")

    def give_name(self, content: PlainContent, identifier: str) -> None:
        other = self._find(content.owner, identifier, True)
        if other is not None and other is not content:
            self.remove(other)
        content.identifier = identifier

    def release(self, content: PlainContent) -> None:
        content.holder = None
        if content.identifier is None:
            self.remove(content)
        elif content.saved is not None:
            content.octets = content.octets[: content.saved]

    def remove(self, content: PlainContent) -> None:
        content.holder = None
        self.contents.remove(content)

    def _check(self, content: PlainContent) -> None:
        if self.use(content.owner)[0] >= self.terms.user_contents:
            raise StagingFull("too many of one user", True)
        if self.use()[0] >= self.terms.total_contents:
            raise StagingFull("too many", True)
        expected, content.expected = content.expected, 0
        try:
            self.require(content, expected)
        finally:
            content.expected = expected

    def _find(self, owner: str, identifier: str | None, is_saved: bool) -> PlainContent | None:
        for each in self.contents:
            is_it = each.owner == owner and each.identifier == identifier
            if is_it and (each.saved is not None) == is_saved:
                return each
        return None

    def _held(self, held: PlainHeld) -> Deferred[Any]:
        def look() -> PlainHeld:
            held.check()
            return held

        return self.later(look)  # type: ignore[no-any-return]

    def _failing(self, full: StagingFull) -> Deferred[Any]:
        def fail() -> None:
            raise full

        return self.later(fail)  # type: ignore[no-any-return]
