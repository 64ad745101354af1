# SPDX-License-Identifier: Apache-2.0
"""The cache: fresh, negative, stale and failed are four different things."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.resolver.dns_cache import (
    ENTRY_OCTETS,
    STALE_ANSWER_TTL,
    CacheLimits,
    DnsCache,
    KnownFailure,
)

SERVFAIL = KnownFailure("dns.servfail", "the name servers fail")


class CacheTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.cache: DnsCache[str, str] = DnsCache(
            self.clock,
            CacheLimits(
                max_entries=3,
                min_ttl=5,
                max_ttl=100,
                max_negative_ttl=50,
                failure_ttl=5,
                stale_window=1000,
            ),
        )

    def value(self, key: str) -> str | None:
        cached = self.cache.get(key)
        return cached.value if cached else None

    def test_fresh_until_ttl(self) -> None:
        """A value is there until its last second and tells how much is left."""
        self.cache.put("k", "v", 60)
        self.clock.advance(59)
        cached = self.cache.get("k")
        assert cached is not None
        self.assertEqual((cached.value, cached.ttl), ("v", 1.0))
        self.clock.advance(1)
        self.assertIsNone(self.cache.get("k"))

    def test_ttl_is_clamped(self) -> None:
        """TTLs below and above the limits count as the limits."""
        self.assertEqual(self.cache.put("k", "v", 0), 5)
        self.assertEqual(self.cache.put("k", "v", 10**9), 100)
        self.assertEqual(self.cache.put("k", "v", 10**9, negative=True), 50)

    def test_stale_window(self) -> None:
        """Past its TTL a positive value is stale, past the window it is gone."""
        self.cache.put("k", "v", 60)
        self.clock.advance(61)
        stale = self.cache.stale("k")
        assert stale is not None
        self.assertEqual((stale.value, stale.ttl), ("v", STALE_ANSWER_TTL))
        self.assertEqual(self.cache.counts.stale_hits, 1)
        self.clock.advance(1000)
        self.assertIsNone(self.cache.stale("k"))
        self.assertEqual(len(self.cache), 0)

    def test_negative_is_never_stale(self) -> None:
        """A proof of absence that has run out proves nothing."""
        self.cache.put("k", "absent", 30, negative=True)
        self.assertEqual(self.value("k"), "absent")
        self.clock.advance(30)
        self.assertIsNone(self.cache.get("k"))
        self.assertIsNone(self.cache.stale("k"))

    def test_failure_is_short_and_displaces_nothing(self) -> None:
        """A failure is remembered for seconds; the stale value beside it stays."""
        self.cache.put("k", "v", 10)
        self.clock.advance(11)
        self.cache.put_failure("k", SERVFAIL)
        self.assertEqual(self.cache.failure("k"), SERVFAIL)
        self.assertIsNotNone(self.cache.stale("k"))
        self.assertIsNone(self.cache.get("k"))
        self.clock.advance(5)
        self.assertIsNone(self.cache.failure("k"))
        self.assertIsNotNone(self.cache.stale("k"))

    def test_failure_alone(self) -> None:
        """A failure without a value is no value, and does not stay."""
        self.cache.put_failure("k", SERVFAIL)
        self.assertIsNone(self.cache.get("k"))
        self.assertIsNone(self.cache.stale("k"))
        self.clock.advance(5)
        self.assertIsNone(self.cache.failure("k"))
        self.assertEqual(len(self.cache), 0)

    def test_success_clears_failure(self) -> None:
        """A new value ends a failure."""
        self.cache.put_failure("k", SERVFAIL)
        self.cache.put("k", "v", 10)
        self.assertIsNone(self.cache.failure("k"))

    def test_least_recently_used_goes(self) -> None:
        """At the limit the entry that was not looked at for longest makes room."""
        for key in "abc":
            self.cache.put(key, key, 60)
        self.assertEqual(self.value("a"), "a")
        self.cache.put("d", "d", 60)
        self.assertEqual([self.value(key) for key in "abcd"], ["a", None, "c", "d"])
        self.assertEqual(self.cache.counts.evictions, 1)

    def test_forget_and_flush(self) -> None:
        """Forgetting takes what matches, flushing all; both say how many."""
        for key in "abc":
            self.cache.put(key, key, 60)
        self.assertEqual(self.cache.forget(lambda key: key in "ab"), 2)
        self.assertEqual(self.cache.flush(), 1)
        self.assertEqual(len(self.cache), 0)

    def test_peek_counts_nothing(self) -> None:
        """Onlookers change neither the counts nor the order."""
        self.cache.put("a", "a", 10)
        self.assertEqual(self.cache.peek("a"), "a")
        self.assertIsNone(self.cache.peek("b"))
        self.assertEqual((self.cache.counts.hits, self.cache.counts.misses), (0, 0))

    def test_failures_displace_no_answers(self) -> None:
        """However many names fail or do not exist, what is known of partners stays."""
        cache: DnsCache[str, str] = DnsCache(self.clock, CacheLimits(max_entries=100))
        for number in range(50):
            cache.put(f"partner-{number}", "v", 60)
        for number in range(1000):
            cache.put_failure(f"failing-{number}", SERVFAIL)
            cache.put(f"absent-{number}", "no", 60, negative=True)
        known = sum(cache.peek(f"partner-{number}") is not None for number in range(50))
        self.assertEqual((known, len(cache)), (50, 100))
        self.assertEqual(cache.counts.evictions, 1950)

    def test_octets(self) -> None:
        """Large answers make room for each other, not the small failures for them."""
        limits = CacheLimits(max_entries=1000, max_octets=20 * ENTRY_OCTETS)
        cache: DnsCache[str, bytes] = DnsCache(self.clock, limits, len)
        for number in range(4):
            cache.put_failure(f"failing-{number}", SERVFAIL)
        for number in range(100):
            cache.put(f"large-{number}", bytes(3 * ENTRY_OCTETS), 60)
            self.assertLessEqual(cache.octets, limits.max_octets)
        self.assertIsNotNone(cache.peek("large-99"))
        self.assertIsNotNone(cache.failure("failing-0"))
        cache.flush()
        self.assertEqual((cache.octets, len(cache)), (0, 0))

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["put", "deny", "fail", "get", "stale", "wait"]),
                st.integers(0, 7),
                st.integers(0, 200),
            ),
            max_size=60,
        )
    )
    def test_bounds_hold(self, steps: list[tuple[str, int, int]]) -> None:
        """The limit holds and no entry outlives its time, in any course."""
        clock = Clock()
        cache: DnsCache[int, float] = DnsCache(clock, CacheLimits(max_entries=4, max_ttl=100))
        for action, key, number in steps:
            if action == "put":
                cache.put(key, clock.seconds(), number)
            elif action == "deny":
                cache.put(key, clock.seconds(), number, negative=True)
            elif action == "fail":
                cache.put_failure(key, SERVFAIL)
            elif action == "wait":
                clock.advance(number)
            elif action == "stale":
                cache.stale(key)
            else:
                cached = cache.get(key)
                if cached is not None:
                    self.assertGreater(cached.ttl, 0)
                    self.assertLessEqual(clock.seconds() - cached.value, 900)
            self.assertLessEqual(len(cache), 4)
