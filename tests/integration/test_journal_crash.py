# SPDX-License-Identifier: Apache-2.0
"""Journal and store agree, whenever the daemon is killed.

Two daemons relay while one of them, or both, are killed (SIGKILL) and started again. Then the
journal of each is compared with its store: what was accepted has begun, what is gone has ended,
what is there has not, and nothing ends twice.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import reader
from amqproute.journal.record import BEGINS, ENDS, JournalRecord, RecordKind
from amqproute.tools.daemon_pair import QUEUE
from amqproute.tools.load_worker import Connected, LoadManagement
from tests.integration.killing import KillingRuns
from tests.network.course import Course
from tests.support.pairs import Pair
from tests.support.patience import until

FIRST_ID = 1 << 40
"""Of `amqproute.tools.load_worker.MessageNumbers`."""


class Books:
    """The contents of a daemon's journal, and of its store."""

    def __init__(self, state: Path) -> None:
        (self.verdict,) = reader.verify(state / "journal")
        self.records = list(reader.records(state / "journal"))
        with sqlite3.connect(state / "store.db") as store:
            rows = store.execute("SELECT e.id FROM entry e JOIN queue q ON q.number = e.queue")
            self.live = {entry for (entry,) in rows}
            self.outbox = store.execute("SELECT count(*) FROM outbox").fetchone()[0]
        store.close()
        self.begun: dict[int, JournalRecord] = {}
        self.ended: Counter[int] = Counter()
        for record in self.records:
            if record.entry is None:
                continue
            if record.kind in BEGINS:
                self.begun.setdefault(record.entry, record)
            elif record.kind in ENDS:
                self.ended[record.entry] += 1
        stocks = [each for each in self.records if each.kind == RecordKind.STOCK]
        ends = [place for place, each in enumerate(stocks) if each.node is None]
        # The last list, which was taken at the stop.
        self.stock = {
            entry
            for each in stocks[ends[-2] + 1 : ends[-1]]
            for entry in entries_of(each.ranges or "")
        }

    def faults(self) -> dict[str, list[object]]:
        """Differences between the two; empty if there are none."""
        lasting = {entry for entry, each in self.begun.items() if each.durable is not False}
        found: dict[str, list[object]] = {
            "changed": [] if self.verdict.flaw is None else [self.verdict.flaw],
            "lost records": [note for note in self.verdict.notes if "could not" in note],
            "in the store, never begun": sorted(self.live - self.begun.keys()),
            "in the store, and ended": sorted(self.live & self.ended.keys()),
            "gone without an end": sorted(lasting - self.live - self.ended.keys()),
            "ended, never begun": sorted(self.ended.keys() - self.begun.keys()),
            "ended twice": [entry for entry, count in self.ended.items() if count > 1],
            "not in stock": sorted(self.live ^ self.stock),
        }
        return {what: which[:5] for what, which in found.items() if which}


def entries_of(ranges: str) -> list[int]:
    """Read the ranges of a stock."""
    ids: list[int] = []
    for part in ranges.split():
        low, _, high = part.partition("-")
        ids += range(int(low), int(high or low) + 1)
    return ids


def wait_delivered(pair: Pair) -> None:
    """Wait until something has come to beta: kills may have been too close together for that."""
    with Connected(pair.beta.unix, "count") as connected:
        beta = LoadManagement(connected)
        until(lambda: beta.row("queue", QUEUE)["depth"], "a message at beta")


class JournalCrashTests(KillingRuns, SynchronousTestCase):
    seed, messages = 11, 1200

    def crash(self, seed: int, messages: int, kills: int) -> None:
        with Pair() as pair:
            course = Course(pair, messages, random.Random(seed))
            course.run(kills)
            for daemon in pair.daemons:
                course.kill(daemon)
            for daemon in pair.daemons:
                daemon.start()
            for daemon in pair.daemons:
                daemon.wait_ready()
            wait_delivered(pair)
            for daemon in pair.daemons:
                self.assertEqual(daemon.stop(), 0)
            alpha, beta = (Books(pair.directory / each.name / "state") for each in pair.daemons)
        story = f"seed {seed}, kills {' '.join(course.kills)}"
        self.assertEqual(alpha.faults(), {}, f"alpha, {story}")
        self.assertEqual(beta.faults(), {}, f"beta, {story}")
        self.assertTrue(beta.live, "nobody takes the messages there")
        # What the publisher was told is accepted is in alpha's journal, by its message-id,
        ids = {each.message_id for each in alpha.begun.values()}
        self.assertEqual({str(FIRST_ID + number) for number in range(messages)} - ids, set(), story)
        # and what alpha says that beta has taken is in beta's, under alpha's number for it.
        relayed = {
            (each.stream, each.entry) for each in alpha.records if each.kind == RecordKind.RELAYED
        }
        taken = {
            (each.from_stream, each.from_entry)
            for each in beta.records
            if each.kind in (RecordKind.RECEIVED, RecordKind.RECOVERY, RecordKind.DUPLICATE)
        }
        recovered = sum(each.kind == RecordKind.RECOVERY for each in beta.begun.values())
        self.assertLessEqual(len(relayed - taken), recovered, story)
        print(
            f"\nseed {seed}: {len(course.kills)} kills; records: alpha {alpha.verdict.records}, "
            f"beta {beta.verdict.records}; {recovered} of beta's were made at a start"
        )
