# SPDX-License-Identifier: Apache-2.0
"""Which records belong to one message, and when its story is over."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import RecordKind
from amqproute.tracing.sampling import SamplingReason, SamplingTerms, sampling_reason
from amqproute.tracing.story import LINGER_US, MOST_ENTRIES, MOST_RECORDS, Stories, Story
from tests.tracing.rig import CLIENT_SPAN, START_US, TRACE, TRACEPARENT, Records, make_ids

RECEIVED, ROUTED, SPOOLED, RELAYED, DELIVERED = (
    RecordKind.RECEIVED, RecordKind.ROUTED, RecordKind.SPOOLED, RecordKind.RELAYED,
    RecordKind.DELIVERED,
)  # fmt: skip
LATE = START_US * 2


class StoryTests(SynchronousTestCase):
    """Gathering."""

    def setUp(self) -> None:
        self.stories = Stories(make_ids(), 100)
        self.record = Records()

    def add(self, kind: RecordKind, entry: int | None = None, **facts: object) -> int:
        """Add a record; return its time."""
        record = self.record(kind, entry, **facts)
        self.stories.add(record)
        return record.time

    def only(self, now_us: int = LATE) -> Story:
        """Return the one story that is due."""
        (story,) = self.stories.due(now_us)
        return story

    def test_one_message(self) -> None:
        """From its arrival to its end, and a moment more."""
        began = self.add(RECEIVED, 1, node="q", traceparent=TRACEPARENT)
        self.add(RecordKind.RELEASED, 1, node="q")
        self.assertEqual(self.stories.due(LATE), [])
        ended = self.add(DELIVERED, 1, node="q")
        self.assertEqual(self.stories.due(ended + LINGER_US - 1), [])
        story = self.only(ended + LINGER_US)
        self.assertEqual((story.began_us, story.last_us), (began, ended))
        self.assertEqual((story.context.trace_id, story.context.parent_id), (TRACE, CLIENT_SPAN))
        self.assertEqual((len(story.records), story.is_failed, story.has_parent), (3, False, True))
        self.assertEqual((len(self.stories), self.stories._by_entry), (0, {}))

    def test_clock_set_back(self) -> None:
        """A story from the future does not hold up the others."""
        self.add(RECEIVED, 1, node="q")
        self.add(DELIVERED, 1, node="q")
        self.assertEqual(len(self.stories.due(START_US)), 1)

    def test_copies(self) -> None:
        """Copies with the same trace are in the same story, even after the original's end."""
        self.add(RECEIVED, 1, node="q", traceparent=TRACEPARENT)
        ended = self.add(RecordKind.DEAD_LETTERED, 1, node="q", code="rejected")
        self.add(ROUTED, 2, parent=1, node="dead", time=ended + 1, traceparent=TRACEPARENT)
        self.assertEqual(self.stories.due(LATE), [])
        self.add(DELIVERED, 2, node="dead")
        story = self.only()
        self.assertEqual((story.seen, story.is_failed, len(story.records)), (2, True, 4))

    def test_copies_without_context(self) -> None:
        """Without a context each copy has its own trace, linked to the original's."""
        self.add(RECEIVED, 1, node="t")
        self.add(SPOOLED, 2, parent=1, node="amqp$out/b")
        self.add(DELIVERED, 1, node="t")
        self.add(RELAYED, 2, node="amqp$out/b")
        first, second = self.stories.due(LATE)
        self.assertNotEqual(first.context.trace_id, second.context.trace_id)
        self.assertEqual(first.links, ())
        (link,) = second.links
        span = make_ids().span_id("publish", *first.root)
        self.assertEqual((link.trace_id, link.parent_id), (first.context.trace_id, span))
        self.assertFalse(first.has_parent)

    def test_moved(self) -> None:
        """The same entry on another node continues."""
        self.add(RECEIVED, 1, node="a")
        self.add(ROUTED, 1, parent=1, node="b")
        self.add(DELIVERED, 1, node="b")
        self.assertEqual(self.only().seen, 1)

    def test_unknown(self) -> None:
        """Ends of unknown messages are counted; what is of no entry is not looked at."""
        self.add(DELIVERED, 9, node="q")
        self.add(ROUTED, 8, parent=8, node="q")
        self.add(RecordKind.RELEASED, 9, node="q")
        self.add(RECEIVED, None, node="t", copies=3)
        self.add(RecordKind.DEFERRED, None, node="amqp$out/b", count=3)
        self.assertEqual((self.stories.figures.unknown, len(self.stories)), (1, 0))

    def test_streams(self) -> None:
        """After a restore of the store, the same id is another message."""
        self.add(RECEIVED, 1, node="q")
        self.add(RECEIVED, 1, node="q", stream="restored")
        self.add(DELIVERED, 1, node="q")
        self.assertEqual((len(self.stories.due(LATE)), len(self.stories)), (1, 1))

    def test_most_stories(self) -> None:
        """The oldest makes room for the newest, and is decided by what has happened."""
        self.stories.most = 3
        for entry in range(1, 6):
            self.add(RECEIVED, entry, node="q")
        found = self.stories.due(0)
        self.assertEqual([story.root[1] for story in found], [1, 2])
        self.assertFalse(found[0].is_over)
        self.assertEqual((len(self.stories), self.stories.figures.evicted), (3, 2))
        self.add(DELIVERED, 1, node="q")
        self.assertEqual(self.stories.figures.unknown, 1)
        self.assertEqual(len(self.stories._by_entry), 3)

    def test_most_records(self) -> None:
        """Of a message that comes back for ever, the first records are kept, and its end counts."""
        self.add(RECEIVED, 1, node="q")
        for _ in range(1000):
            self.add(RecordKind.RELEASED, 1, node="q")
        self.add(RecordKind.EXPIRED, 1, node="q")
        story = self.only()
        self.assertEqual((len(story.records), story.omitted), (MOST_RECORDS, 1002 - MOST_RECORDS))
        self.assertTrue(story.is_failed)

    def test_most_entries(self) -> None:
        """Of a thousand copies, so many share a story; nothing stays behind."""
        self.add(RECEIVED, 1, node="t", traceparent=TRACEPARENT)
        for entry in range(2, 1002):
            self.add(ROUTED, entry, parent=1, node="s", traceparent=TRACEPARENT)
        for entry in range(1, 1002):
            self.add(DELIVERED, entry, node="s")
        stories = self.stories.due(LATE)
        self.assertEqual(max(story.seen for story in stories), MOST_ENTRIES)
        self.assertEqual({story.context.trace_id for story in stories}, {TRACE})
        self.assertEqual(sum(story.seen for story in stories), 1001)
        self.assertEqual((self.stories._by_entry, self.stories._ended), ({}, {}))

    def test_attempts(self) -> None:
        """Attempts are remembered by next hop, the latest of each."""
        for number in range(40):
            self.add(RecordKind.ATTEMPT, None, node="amqp$out/b", attempt=number)
        found = self.stories.attempts("amqp$out/b", 0, LATE)
        self.assertEqual([each.attempt for each in found], [*range(24, 40)])
        self.assertEqual(self.stories.attempts("amqp$out/b", 0, found[1].time), found[:2])
        for number in range(2000):
            self.add(RecordKind.ATTEMPT, None, node=f"amqp$out/{number}")
        self.assertEqual(len(self.stories._attempts), 1000)


class SamplingTests(SynchronousTestCase):
    """Which stories are exported, and why."""

    def reason(self, *ends: RecordKind, rate: float = 0.0, **facts: object) -> str | None:
        """Return the reason for a message with these ends."""
        seconds = facts.pop("seconds", 1)
        assert isinstance(seconds, int)
        stories, record = Stories(make_ids(), 10), Records()
        stories.add(record(RECEIVED, 1, node="q", **facts))
        for kind in ends:
            stories.add(record(kind, 1, node="q", time=START_US + (seconds + 1) * 1_000_000))
        (story,) = stories.due(LATE)
        terms = SamplingTerms(
            self.failures, 10_000_000, self.parent, rate, lambda sender: sender != "peer:b"
        )
        return sampling_reason(story, terms)

    failures = parent = True

    def test_failures(self) -> None:
        """Messages that have failed."""
        for kind in ("rejected", "expired", "returned", "dead-lettered"):
            self.assertEqual(self.reason(RecordKind(kind)), SamplingReason.FAILURE)
        for kind in ("deleted", "delivered", "relayed"):
            self.assertIsNone(self.reason(RecordKind(kind)))
        self.failures = False
        self.assertIsNone(self.reason(RecordKind.REJECTED))

    def test_slow(self) -> None:
        """Messages that were here for longer than the limit."""
        self.assertIsNone(self.reason(DELIVERED, seconds=10))
        self.assertEqual(self.reason(DELIVERED, seconds=11), SamplingReason.SLOW)

    def test_parent(self) -> None:
        """Messages whose sender records the trace, unless the sender has no say."""
        sampled = {"traceparent": TRACEPARENT}
        self.assertEqual(self.reason(DELIVERED, **sampled), SamplingReason.PARENT)
        self.assertEqual(self.reason(DELIVERED, **sampled, sender="peer:c"), SamplingReason.PARENT)
        self.assertIsNone(self.reason(DELIVERED, **sampled, sender="peer:b"))
        self.assertIsNone(self.reason(DELIVERED, traceparent=f"{TRACEPARENT[:-2]}00"))
        self.parent = False
        self.assertIsNone(self.reason(DELIVERED, **sampled))

    def test_rate(self) -> None:
        """A share of all."""
        self.assertEqual(self.reason(DELIVERED, rate=1.0), SamplingReason.RATE)
        self.assertIsNone(self.reason(DELIVERED, rate=0.0))
