# SPDX-License-Identifier: Apache-2.0
"""The contract of staged contents: `amqproute.interfaces.IStaging`, tested through it alone."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from amqproute.errors import StagedContentLost, StagingFull
from amqproute.interfaces import IBodyReader, IStagedContent, IStaging
from amqproute.store.staging_ledger import StagingTerms


class StagingContract:
    """The tests; part of those of a store."""

    store: Any
    is_durable: bool

    def wait(self, deferred: Deferred[Any]) -> Any:
        """See `StoreContract.wait`."""
        raise NotImplementedError

    def begin_content(self: Any, identifier: str | None, size: int = 0, owner: str = "ann") -> Any:
        self.written: list[int] = []
        staging = self.store.staging
        return self.wait(staging.begin(owner, identifier, size, self.written.append))

    def resumed(self: Any, identifier: str, owner: str = "ann") -> Any:
        return self.wait(self.store.staging.resume(owner, identifier, lambda _: None))

    def octets_of(self: Any, content: Any, size: int = 1000) -> bytes:
        reader = content.reader()
        parts = []
        while reader.left:
            parts.append(self.wait(reader.read(size)))
        reader.close()
        return b"".join(parts)

    def refused(self: Any, function: Any, *args: Any) -> StagingFull:
        """Return what a call that is too much raises, or its Deferred fails with."""
        try:
            done = function(*args)
            if done is not None:
                self.wait(done)
        except StagingFull as full:
            return full
        raise AssertionError("nothing was refused")

    def test_staging_interfaces(self: Any) -> None:
        """The objects offer what is asked of them."""
        verifyObject(IStaging, self.store.staging)
        content = self.begin_content("a")
        verifyObject(IStagedContent, content)
        verifyObject(IBodyReader, content.reader())

    def test_staged_parts(self: Any) -> None:
        """Content added in parts is read in other parts, and counts."""
        content = self.begin_content("a", 7)
        content.append([b"one", b""])
        content.append([b"t", b"wo!"])
        self.assertEqual(content.size, 7)
        self.assertEqual(self.wait(content.save()), 7)
        self.assertEqual(sum(self.written), 7)
        for size in (1, 2, 3, 1000):
            self.assertEqual(self.octets_of(content, size), b"onetwo!")
        reader = content.reader()
        reader.skip(2)
        self.assertEqual(self.wait(reader.read(3)), b"etw")
        number, octets = self.store.staging.use("ann")
        self.assertEqual(number, 1)
        self.assertGreaterEqual(octets, 7)
        self.assertEqual(self.store.staging.use("bob"), (0, 0))
        content.remove()
        self.assertEqual(self.store.staging.use(), (0, 0))
        self.assertTrue(content.is_lost)
        self.assertRaises(StagedContentLost, content.append, [b"x"])
        content.remove()

    def test_staged_again(self: Any) -> None:
        """A content is found by owner, identifier and size, and the last to ask holds it."""
        first = self.begin_content("a", 10)
        first.append([b"01234"])
        second = self.begin_content("a", 10)
        self.assertEqual(second.size, 5)
        self.assertTrue(first.is_lost)
        self.assertRaises(StagedContentLost, first.append, [b"x"])
        self.assertRaises(StagedContentLost, first.save)
        first.release()
        first.remove()
        second.append([b"56789"])
        second.release()
        third = self.begin_content("a", 10)
        self.assertEqual(self.octets_of(third), b"0123456789")
        self.assertEqual(self.begin_content("a", 10, "bob").size, 0)
        self.assertEqual(self.begin_content("a", 11).size, 0)
        self.assertTrue(third.is_lost)
        self.assertIsNone(self.resumed("a"))

    def test_staged_saves(self: Any) -> None:
        """Unnamed content ends when it is let go; named content is as of its last save."""
        self.begin_content(None).release()
        self.assertEqual(self.store.staging.use(), (0, 0))
        content = self.begin_content(None)
        content.append([b"0123"])
        self.assertEqual(self.wait(content.save("x")), 4)
        content.append([b"4567"])
        self.assertEqual(self.octets_of(content), b"01234567")
        content.release()
        content = self.resumed("x")
        self.assertEqual(self.octets_of(content), b"0123")
        content.append([b"45"])
        self.wait(content.save("y"))
        content.append([b"67"])
        self.assertIsNone(self.resumed("x"))
        self.assertIsNone(self.resumed("y", "bob"))
        again = self.resumed("y")
        self.assertTrue(content.is_lost)
        self.assertEqual(self.octets_of(again), b"012345")
        other = self.begin_content(None)
        other.append([b"other"])
        self.wait(other.save("y"))
        self.assertTrue(again.is_lost)
        other.release()
        self.assertEqual(self.octets_of(self.resumed("y")), b"other")
        self.assertEqual(self.store.staging.use()[0], 1)

    def test_staged_bounds(self: Any) -> None:
        """Each bound holds, and for each owner what is its own."""
        staging = self.store.staging
        staging.terms = StagingTerms(3000, 5000, 8000, 3, 5)
        begin = staging.begin
        self.assertFalse(self.refused(begin, "ann", "a", 3001, int).is_number)
        content = self.begin_content("a", 3000)
        self.refused(begin, "ann", "b", 2500, int)
        growing = self.begin_content(None)
        growing.append([bytes(500)])
        self.refused(growing.append, [bytes(2600)])
        self.assertEqual(growing.size, 500)
        self.begin_content("c", 1)
        self.assertTrue(self.refused(begin, "ann", "d", 1, int).is_number)
        self.begin_content("a", 3000, "bob")
        self.refused(begin, "carl", "a", 2500, int)
        self.begin_content("b", 1, "bob")
        self.assertTrue(self.refused(begin, "carl", "a", 1, int).is_number)
        content.remove()
        self.assertEqual(self.begin_content("a", 1500, "carl").size, 0)

    def test_staged_small_parts(self: Any) -> None:
        """One octet at a time costs its owner no less than it costs the disk."""
        self.store.staging.terms = StagingTerms(user_bytes=4000)
        content = self.begin_content(None)
        added = 0
        try:
            while added < 5000:
                content.append([b"x"])
                added += 1
        except StagingFull:
            pass
        self.assertTrue(0 < added <= 4000, added)

    def test_staged_expiry(self: Any) -> None:
        """Content without additions for long enough ends, held or not."""
        staging = self.store.staging
        held = self.begin_content("a", 10)
        self.begin_content("b", 10).release()
        self.assertEqual([row[:2] for row in staging.rows()], [("ann", "a"), ("ann", "b")])
        self.assertEqual(staging.expire(), 0)
        staging.terms = StagingTerms(lifetime_ms=0)
        self.assertEqual(staging.expire(), 2)
        self.assertTrue(held.is_lost)
        self.assertEqual((staging.rows(), staging.use()), ([], (0, 0)))

    def test_staged_recovery(self: Any) -> None:
        """After a start everything that was staged is there, and what was not saved is not."""
        if not self.is_durable:
            return
        content = self.begin_content("a", 100_000)
        content.append([b"abc" * 10_000])
        saved = self.begin_content(None)
        saved.append([b"0123"])
        self.wait(saved.save("x"))
        saved.append([b"4567"])
        nameless = self.begin_content(None)
        nameless.append([b"nothing"])
        self.wait(nameless.save())
        self.reopen()
        self.assertEqual(self.store.staging.use("ann")[0], 2)
        self.assertGreaterEqual(self.store.staging.use("ann")[1], 100_004)
        again = self.begin_content("a", 100_000)
        self.assertEqual(again.size, 30_000)
        again.append([b"more"])
        self.assertEqual(self.octets_of(again), b"abc" * 10_000 + b"more")
        self.assertEqual(self.octets_of(self.resumed("x")), b"0123")
