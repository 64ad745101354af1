# SPDX-License-Identifier: Apache-2.0
"""Two organizations compare their journals: exactly the planted faults are found."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.export import export
from tests.pipeline.support import MISSING, SparkCase

if not MISSING:
    from amqproute.pipeline import exchange, reconcile
    from amqproute.pipeline.agreement import agreement_page, in_words
    from amqproute.pipeline.exchange import ExchangeSourceError, open_source
    from amqproute.tools.synthetic import (
        FaultPlan,
        FaultRates,
        PlantedFaults,
        TrafficPlan,
        generate,
    )

OURS, THEIRS = PAIR = ("alpha.example", "beta.example")
DAY = date(2026, 11, 22)
TRANSFERS = 100_000 if os.environ.get("AMQPROUTE_HYPOTHESIS") == "long" else 10_000


class WordTests(SynchronousTestCase):
    """The words about the numbers."""

    skip = MISSING

    def test_words(self) -> None:
        """One contradiction is enough; what nobody can say, or nothing at all, is no agreement."""
        for counts, state, words in (
            ({reconcile.AGREED: 7}, "good", "beta.example agrees: all 7 hand-overs"),
            ({reconcile.AGREED: 7, reconcile.LOST: 1}, "bad", "not agree: 1 of 8 hand-overs"),
            ({reconcile.AGREED: 7, reconcile.NOT_COVERED: 2}, "doubtful", "but 2 hand-overs are"),
            ({reconcile.AGREED: 0}, "doubtful", "No hand-overs between alpha.example and beta"),
        ):
            numbers = {(OURS, verdict): number for verdict, number in counts.items()}
            none: Any = None  # no tables
            result = reconcile.Reconciliation(
                OURS, THEIRS, DAY, reconcile.ClockOffset(), none, none, numbers
            )
            told = in_words(result)
            self.assertEqual(told[0], state)
            self.assertIn(words, told[1])
            self.assertEqual(result.is_discrepant, state == "bad")


class DayTests(SynchronousTestCase):
    """A day that a side knows nothing of."""

    skip = MISSING

    def side(self, name: str, read: str, known: str) -> exchange.ExchangeSource:
        """Return a side with records of these days of November."""
        none: Any = None  # no tables
        days = ([date(2026, 11, int(day)) for day in text.split()] for text in (read, known))
        return exchange.ExchangeSource(Path(name), name, none, none, *days)

    def test_refused(self) -> None:
        """It is named, with the days that there are."""
        whole = self.side("ours", "21 22 23", "20 21 22 23 24 25")
        for other, hand_overs, words in (
            (self.side("theirs", "20 21", "20 21"), 7, "theirs: no records of 2026-11-22, only of "
             "2026-11-20 to 2026-11-21"),
            (self.side("theirs", "23", "23 25"), 7, "only of 2026-11-23, 2026-11-25"),
            (self.side("theirs", "21 23", "21 23"), 0, "theirs: no records of 2026-11-22"),
        ):  # fmt: skip
            for sides in ((whole, other), (other, whole)):
                with self.assertRaises(ExchangeSourceError) as caught:
                    exchange.check_days(sides, DAY, hand_overs)
                self.assertIn(words, str(caught.exception))
                self.assertNotIn("ours", str(caught.exception))
        silent = self.side("theirs", "21 23", "21 23")
        with self.assertRaises(ExchangeSourceError) as caught:
            exchange.check_days((silent, self.side("ours", "23", "23")), DAY, 7)
        self.assertRegex(str(caught.exception), "theirs: no records of .*; ours: no records of ")

    def test_silence_in_between(self) -> None:
        """Hand-overs that a journal does not know which continues behind them are no mistake."""
        whole, silent = self.side("ours", "22", "22"), self.side("theirs", "21 23", "21 23")
        exchange.check_days((whole, silent), DAY, 1)
        exchange.check_days((whole, whole), DAY, 0)


class ReconcileTests(SparkCase):
    """From journals in files to verdicts."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def planted(self, transfers: int, **faults: int) -> PlantedFaults:
        """Write the journals of two organizations; beta's clock is ahead by 3.7 s."""
        plan = TrafficPlan(
            transfers, organizations=PAIR, rates=FaultRates(two_hops=0), faults=FaultPlan(**faults),
            offsets={THEIRS: 3.7}, segment_seconds=7200,
        )  # fmt: skip
        return generate(plan, self.folder / "journals")

    def source(self, directory: Path) -> exchange.ExchangeSource:
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        return open_source(self.spark, directory, DAY, scratch)

    def compared(
        self, first: exchange.ExchangeSource, second: exchange.ExchangeSource
    ) -> reconcile.Reconciliation:
        return reconcile.reconcile(*exchange.between(first, second), day=DAY)

    def found(self, result: reconcile.Reconciliation) -> dict[tuple[str, int], str]:
        rows = result.listed.collect()
        found = {(row.stream, row.entry): row.verdict for row in rows}
        self.assertEqual(len(found), len(rows))
        return found

    def test_planted(self) -> None:
        """3 lost, 2 twice, 5 in flight and 1 changed among all others: those, from both sides."""
        planted = self.planted(TRANSFERS, lost=3, duplicated=2, in_flight=5, changed=1, unknown=1)
        words = {
            "lost": reconcile.LOST,
            "duplicated": reconcile.TWICE,
            "in_flight": reconcile.IN_FLIGHT,
            "changed": reconcile.CHANGED,
            "unknown": reconcile.UNKNOWN,
        }
        expected = {(f.stream, f.entry): words[f.kind] for f in planted.faults}
        self.assertEqual(len(expected), 12)
        ours, theirs = (self.source(planted.journals[domain]) for domain in PAIR)
        result = self.compared(ours, theirs)
        self.assertEqual(self.found(result), expected)
        self.assertTrue(result.is_discrepant)
        handed = TRANSFERS - planted.fates["expired"] - planted.fates["dead-lettered"]
        # In the numbers of the generator a planted message is one of the transfers, but for what
        # the sender never had and what flies at the cut.
        self.assertEqual(result.count(reconcile.AGREED), handed - 6)
        self.assertLess(result.offset.error or 1e9, 5000)
        self.assertLess(abs(result.offset.estimate - 3_700_000), result.offset.error or 0)
        ids = {row.message_id for row in result.listed.collect()}
        self.assertEqual(ids, {fault.message_id for fault in planted.faults})

        mirrored = self.compared(theirs, ours)
        self.assertEqual(self.found(mirrored), expected)
        self.assertEqual(mirrored.counts, result.counts)
        self.assertLess(abs(mirrored.offset.estimate + 3_700_000), mirrored.offset.error or 0)

        self.assertEqual(in_words(result)[0], "bad")
        page = agreement_page(result)
        for fault in planted.faults:
            self.assertIn(str(fault.message_id), page)

    def test_gaps(self) -> None:
        """With a stated gap or a missing segment no broker is accused."""
        planted = self.planted(2000, gap=2, lost=1)
        [lost] = planted.of("lost")
        theirs = planted.journals[lost.receiver]
        segments = sorted(theirs.glob("*/*.jsonl"), key=lambda path: path.name)
        named = {fault.entry: fault for fault in planted.faults}
        hidden = next(
            path
            for path in segments[2:-2]
            if not any(f'"{fault.message_id}"' in path.read_text() for fault in named.values())
        )
        hidden.unlink()
        ours, others = (self.source(planted.journals[domain]) for domain in PAIR)
        result = self.compared(ours, others)
        found = self.found(result)
        self.assertEqual(found.pop((lost.stream, lost.entry)), reconcile.LOST)
        for fault in planted.of("gap"):
            self.assertEqual(found[fault.stream, fault.entry], reconcile.NOT_COVERED)
        self.assertEqual(set(found.values()), {reconcile.NOT_COVERED})
        self.assertGreater(len(found), 50)
        self.assertEqual({row.reason for row in result.holes.collect()}, {"gap", "missing"})

    def test_export(self) -> None:
        """A partner that shows ids and digests only: the same; and all the rest is agreed. Nothing
        stays cached, also where it fails."""
        planted = self.planted(500, lost=1, changed=1)
        shown = self.folder / "export"
        export(planted.journals[THEIRS], shown, OURS, 0, 1 << 62)
        sources = self.source(planted.journals[OURS]), self.source(shown)
        cached = self.spark._jsparkSession.sharedState().cacheManager()
        with mock.patch.object(reconcile, "_named", side_effect=RuntimeError):
            self.assertRaises(RuntimeError, self.compared, *sources)
        self.assertTrue(cached.isEmpty())
        result = self.compared(*sources)
        self.assertTrue(cached.isEmpty())
        self.assertEqual(
            {entry: verdict for (_, entry), verdict in self.found(result).items()},
            {
                planted.of("lost")[0].entry: reconcile.LOST,
                planted.of("changed")[0].entry: reconcile.CHANGED,
            },
        )
        handed = 500 - planted.fates["expired"] - planted.fates["dead-lettered"]
        self.assertEqual(result.count(reconcile.AGREED), handed - 2)

    def test_export_for_somebody_else(self) -> None:
        """Its silence is no loss: who has to make another one is said. A name that we do not have
        ourselves may still be ours."""
        directory = self.folder / "three"
        planted = generate(TrafficPlan(300, seed=3), directory)
        shown, other = self.folder / "shown", self.folder / "other"
        export(planted.journals[THEIRS], shown, OURS, 0, 1 << 62)
        export(planted.journals[THEIRS], other, "gamma.example", 0, 1 << 62)
        ours, theirs = self.source(planted.journals[OURS]), self.source(shown)
        self.assertEqual((ours.shown_to, theirs.shown_to), ([], [f"peer:{OURS}"]))
        with self.assertRaises(ExchangeSourceError) as caught:
            exchange.between(ours, self.source(other))
        self.assertIn(f"{other}: an export for gamma.example; ", str(caught.exception))
        self.assertIn(f"--peer {OURS}", str(caught.exception))
        exchange.between(ours, replace(theirs, shown_to=["peer:another.example"]))

    def test_lines_that_cannot_be_read(self) -> None:
        """An export that was damaged on its way is told from a partner who knows less."""
        planted = self.planted(100)
        shown = self.folder / "export"
        export(planted.journals[THEIRS], shown, OURS, 0, 1 << 62)
        segments = sorted(shown.glob("*/*.jsonl"))
        whole = segments[0].read_bytes()
        segments[0].write_bytes(whole + b"torn\n")
        unread = "1 lines cannot be read: not a complete line of a journal"
        self.assertEqual(self.source(shown).unread, unread)
        for path in segments:
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        with self.assertRaisesRegex(ExchangeSourceError, "lines cannot be read: not a compl"):
            open_source(self.spark, shown, None, self.folder / "converted")

    def test_wrong_sources(self) -> None:
        """A journal that is none, empty or of another day is described in words."""
        planted = self.planted(100)
        empty = self.folder / "empty"
        (empty / "open").mkdir(parents=True)
        for directory, day, words in (
            (self.folder / "nowhere", DAY, "no such directory"),
            (self.folder, DAY, "no journal"),
            (empty, DAY, "no closed segments yet"),
            (planted.journals[OURS], date(2020, 1, 1), "no records of 2020-01-01, only of 2026-11"),
        ):
            with self.assertRaises(ExchangeSourceError) as caught:
                open_source(self.spark, directory, day, self.folder / "scratch")
            self.assertIn(words, str(caught.exception))
        both = self.folder / "both"
        for domain in PAIR:
            shutil.copytree(planted.journals[domain], both, dirs_exist_ok=True)
        with self.assertRaises(ExchangeSourceError) as caught:
            open_source(self.spark, both, DAY, self.folder / "scratch")
        self.assertIn("has records of alpha.example, beta.example", str(caught.exception))
