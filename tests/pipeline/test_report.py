# SPDX-License-Identifier: Apache-2.0
"""The headline of the report, without Spark's tables."""

from __future__ import annotations

import contextlib
import io
import json
import re
from datetime import date
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.support import MISSING, SparkCase

if not MISSING:
    from pyspark.sql import Row
    from pyspark.sql import functions as F

    from amqproute.cli.pipeline_analysis import _as_json, _print_report
    from amqproute.pipeline import coverage, facts
    from amqproute.pipeline.facts import WarehouseFacts
    from amqproute.pipeline.refusals import CHANGED_LINE
    from amqproute.pipeline.report import headline, report_page
    from amqproute.pipeline.table_schema import HOPS, RUNS
    from amqproute.pipeline.warehouse import few

DAY = date(2026, 11, 22)


class HeadlineTests(SynchronousTestCase):
    """Sentences above everything else."""

    skip = MISSING

    def facts(self, least: int, p50: int, p99: int) -> WarehouseFacts:
        at = "2026-11-22 00:00"
        overall = Row(messages=2, octets=10, p50=p50, p99=p99, least=least, most=p99)
        return WarehouseFacts(
            DAY, DAY, moments=[at], fates={(at, "delivered"): 2}, overall=overall,
            latency={at: Row(p50=p50, p99=p99)},
        )  # fmt: skip

    def test_clocks_that_differ(self) -> None:
        """A clock difference beyond a message's time still makes a page, which names it."""
        said = self.facts(-2_470_000, -2_400_000, 30_000)
        states = {state: words for state, words, _ in headline(said)}
        self.assertIn("up to 2.47 s before they began", states["doubtful"])
        self.assertIn("\u22122.4 s", report_page(said))

    def test_clocks_that_agree(self) -> None:
        """Nothing is said of clocks where nothing shows that they differ."""
        said = self.facts(0, 20_000, 30_000)
        self.assertEqual([state for state, _, _ in headline(said)], ["good"])

    def test_gaps(self) -> None:
        """An orderly stop leaves nothing unknown; a gap does."""
        said = self.facts(0, 1, 2)
        gap = {"broker": "b", "from_us": 0, "until_us": 5_000_000, "count": None}
        said.gaps = [Row(reason=coverage.DOWN, **gap)]
        self.assertEqual([state for state, _, _ in headline(said)], ["good"])
        self.assertIn(coverage.DOWN, report_page(said))
        said.gaps = [*said.gaps, Row(reason=coverage.MISSING, **gap)]
        self.assertIn("Journals have gaps", headline(said)[1][1])
        # Of a damaged export nothing is known to its end.
        endless = {**gap, "until_us": coverage.FOREVER}
        said.gaps = [Row(reason=coverage.DAMAGED, **endless)]
        self.assertEqual(headline(said)[1][2], ["damaged: b, the beginning to the end"])
        self.assertIn("<td>the end</td>", report_page(said))

    def test_silent(self) -> None:
        """A journal that did not come tonight is told: the day looks well without it."""
        said = self.facts(0, 1, 2)
        said.silent = [Row(broker="mx1.beta.example", domain="beta.example", last=DAY)]
        words = "1 broker has no records, unlike in the week before: hand-overs there are unknown"
        details = ["mx1.beta.example: none since 2026-11-22"]
        self.assertEqual(headline(said)[1], ("doubtful", words, details))
        told = json.loads(json.dumps(_as_json(said, Path("page"))))["headline"]
        self.assertEqual(told[1], {"state": "doubtful", "words": words, "details": details})

    def test_names_of_brokers(self) -> None:
        """A broker without a name of its own is called by its domain."""
        said = self.facts(0, 1, 2)
        gap = {"from_us": 0, "until_us": 5_000_000, "count": None, "reason": coverage.MISSING}
        name = "34b20cd2-8e51-4b9b-a120-c23d1f15a71e"
        said.gaps = [
            Row(broker=name, domain="alpha.example", **gap),
            Row(broker="mx1.beta.example", domain="beta.example", **gap),
        ]
        wrong = {"what": "lost", "message_id": "m", "node": "q", "hidden": False, "at_us": 0}
        said.violations = [Row(broker=name, domain="gamma.example", stream="s", entry=1, **wrong)]
        said.unaccounted = 1
        text = report_page(said)
        self.assertNotIn(name, text)
        for shown in ("alpha.example (34b20cd2)", "mx1.beta.example"):
            self.assertIn(f"<td>{shown}</td>", text)
        self.assertEqual(headline(said)[0][2], ["lost: m at gamma.example (34b20cd2), q"])

    def test_nothing(self) -> None:
        """Without records the page does not say that all is well."""
        said = WarehouseFacts(DAY, DAY, missing=[DAY])
        self.assertEqual(
            headline(said),
            [("doubtful", "There are no records of 2026-11-22: nothing is known", [])],
        )
        said = WarehouseFacts(DAY, DAY, records=7)
        self.assertEqual(
            headline(said),
            [("doubtful", "There are no records of messages of 2026-11-22: nothing is known", [])],
        )

    def test_contradictions(self) -> None:
        """Discrepancies between two brokers stand beside those within one."""
        said = self.facts(0, 1, 2)
        row = {"message_id": "m", "broker": "b", "node": "q", "hidden": False}
        said.violations = [Row(what="lost on the wire", **row), Row(what="lost", **row)]
        said.disagreed = 1
        self.assertTrue(said.is_wrong)
        words = "Brokers contradict each other about 1 hand-over"
        [head] = headline(said)
        self.assertEqual(head, ("bad", words, ["lost on the wire: m at b, q"]))
        said.unaccounted = 1
        self.assertEqual([state for state, _, _ in headline(said)], ["bad", "bad"])
        self.assertEqual(headline(said)[0][2], ["lost: m at b, q"])

    def test_altered_lines(self) -> None:
        """Lines that somebody changed are wrong by themselves, and the first of them are named."""
        said = self.facts(0, 1, 2)
        row = {"message_id": None, "entry": None, "broker": "b", "hidden": False}
        said.altered_lines = 7
        said.violations = [
            *[Row(what=CHANGED_LINE, node=f"file {number}", **row) for number in range(6)],
            Row(what="lost", node="q", **row),
        ]
        named = [f"{CHANGED_LINE}: file {number}" for number in range(5)]
        words = "7 lines of journals were altered"
        self.assertEqual(headline(said), [("bad", words, named)])
        said.violations = [
            Row(what=CHANGED_LINE, stream=None, domain="d", at_us=0, node="f", **row)
        ]
        said.violations_number = 7
        page = report_page(said)
        self.assertNotIn("None", page)
        self.assertIn("1 of 7 are listed", page)

    def test_what_does_not_wait(self) -> None:
        """A vanished message is not counted as waiting; memory that was lost, and days without
        records, are told."""
        said = self.facts(0, 1, 2)
        at = said.moments[0]
        said.fates |= {(at, "waiting"): 5, (at, "lost"): 3, (at, "forgotten"): 2}
        said.fates[at, "not known"] = 4
        said.missing = [date(2026, 11, 20), date(2026, 11, 21)]
        told = [words for _, words, _ in headline(said)]
        self.assertIn("2 non-durable messages were lost when their broker", told[2])
        self.assertEqual(told[1], "There are no records of 2026-11-20 to 2026-11-21")
        tiles = re.findall(
            r'class="name">([^<]*)</div><div class="value">([^<]*)</div>'
            r'(?:<div class="remark">([^<]*)<)?',
            report_page(said),
        )
        self.assertIn(("Waiting", "5", "still in a queue"), tiles)
        self.assertIn(("Lost", "3", "2 lost in a restart; 4 in gaps of journals"), tiles)


class PartnerTests(SparkCase):
    def test_many(self) -> None:
        """However many partners there are, each has its bill; of those that are not printed it is
        said how many they are."""
        names = [f"peer:{number:03}.example" for number in range(facts.MOST_ROWS + 1)]
        entries = self.spark.createDataFrame(
            [("beta.example", name, 7) for name in names],
            "domain string, sender string, bare_size long",
        )
        others = [
            F.lit(None).cast(each.dataType).alias(each.name)
            for each in HOPS
            if each.name not in entries.columns
        ]
        rows = facts._partners(entries.select("*", *others), few(self.spark, RUNS))
        said = WarehouseFacts(DAY, DAY, partners=rows)
        self.assertEqual([f"peer:{row.partner}" for row in said.partners], names)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            _print_report(said, Path("page.html"))
        self.assertIn("009.example\t1\t7 B\n91 more are on the page.\n", out.getvalue())


class StageTests(SynchronousTestCase):
    """At which stage messages are late, in the summary of the command and for programs."""

    skip = MISSING

    def facts(self) -> WarehouseFacts:
        hop = Row(
            domain="alpha.example", to_whom="beta.example", messages=5, p50=2_000, p99=90_000,
            queue_us=1_000, resolve_us=None, connect_us=80_000, wire_us=9_000, settle_us=99_000,
        )  # fmt: skip
        overall = Row(messages=5, octets=0, p50=1, p99=2, least=0, most=2)
        return WarehouseFacts(DAY, DAY, routes=[hop], overall=overall)

    def test_words(self) -> None:
        """Events after the end of a hop delay it no longer, and are not named."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            _print_report(self.facts(), Path("page"))
        self.assertIn("beta.example\t5\t2 ms\t90 ms\tconnect, 80 ms\n", out.getvalue())

    def test_json(self) -> None:
        """All stages, and those that no hop had are None."""
        [hop] = json.loads(json.dumps(_as_json(self.facts(), Path("page"))))["hops"]
        self.assertEqual(hop["latency-us"], {"p50": 2_000, "p99": 90_000})
        stages = {"queue": 1_000, "resolve": None, "connect": 80_000, "wire": 9_000}
        self.assertEqual(hop["stages-p99-us"], {**stages, "settle": 99_000})
