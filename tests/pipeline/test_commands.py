# SPDX-License-Identifier: Apache-2.0
"""``amqproute pipeline``, run as a command."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands.pipeline import SUMMARIES, pipeline
from amqproute.cli.main import amqproute
from amqproute.journal.record import RecordKind
from tests.pipeline import chromium
from tests.pipeline.journals import Journal
from tests.pipeline.support import MISSING, PLANNED_FULLY, SparkCase, run_python
from tests.support.patience import PATIENCE

if TYPE_CHECKING or not MISSING:
    from amqproute.cli import pipeline_analysis
    from amqproute.pipeline import ingest as bronze
    from amqproute.pipeline import nightly
    from amqproute.pipeline.ingest import IngestSummary
    from amqproute.pipeline.warehouse import Warehouse, WarehouseSnapshot
    from amqproute.tools.synthetic import (
        FaultPlan,
        FaultRates,
        PlantedFaults,
        TrafficPlan,
        generate,
    )

PAIR = ("alpha.example", "beta.example")


def invoked(*arguments: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(amqproute, ["pipeline", *map(str, arguments)])


class GroupTests(SynchronousTestCase):
    """The list of the commands, without Spark."""

    def test_list_needs_nothing(self) -> None:
        """``--help`` loads neither Spark nor what the commands are made of."""
        script = (
            "import sys\n"
            "from amqproute.cli.main import amqproute\n"
            "amqproute.main(['pipeline', '--help'], standalone_mode=False)\n"
            "print(*sys.modules, file=sys.stderr)\n"
        )
        done = run_python(script, seconds=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in SUMMARIES:
            self.assertIn(f"\n  {name} ", done.stdout)
        heavy = ("pyspark", "amqproute.cli.pipeline_analysis", "amqproute.pipeline", "twisted")
        loaded = [name for name in done.stderr.split() if name.startswith(heavy)]
        self.assertEqual(loaded, [])

    def test_help_needs_no_spark(self) -> None:
        """The help of each command comes where nothing of the extra is installed."""
        script = (
            "import sys\n"
            "for name in ('pyspark', 'py4j', 'pyarrow', 'pandas', 'numpy'):\n"
            "    sys.modules[name] = None\n"
            "from click.testing import CliRunner\n"
            "from amqproute.cli.commands.pipeline import SUMMARIES\n"
            "from amqproute.cli.main import amqproute\n"
            "for name in SUMMARIES:\n"
            "    shown = CliRunner().invoke(amqproute, ['pipeline', name, '--help'])\n"
            "    assert shown.exit_code == 0, (name, shown.stderr)\n"
            "    assert '--memory SIZE' in shown.stdout, shown.stdout\n"
        )
        done = run_python(script, seconds=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_not_installed(self) -> None:
        """Without the extra, the words say what to install."""
        script = (
            "import sys\n"
            "sys.modules['pyspark'] = None\n"
            "from amqproute.cli.main import main\n"
            "sys.argv = ['amqproute', 'pipeline', 'report']\n"
            "main()\n"
        )
        done = run_python(script, seconds=PATIENCE)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("pipeline.not-installed: the package pyspark", done.stderr)
        self.assertIn("pip install 'amqproute[pipeline]'", done.stderr)

    def test_unknown(self) -> None:
        """A command that is none is wrong usage."""
        result = invoked("reprot")
        self.assertEqual(result.exit_code, 2)
        self.assertIn("No such command 'reprot'", result.stderr)


class InterruptTests(SynchronousTestCase):
    """Ctrl-C, in a process of its own."""

    skip = MISSING

    def test_interrupted(self) -> None:
        """An interruption leaves one line: in a call of Java, and between, while the JVM answers
        whoever asks next, also when it closes the connection of the call."""
        script = (
            "import os, random, signal, sys, threading\n"
            "import click\n"
            "from amqproute.cli.pipeline_analysis import started\n"
            "from amqproute.cli.main import Program\n"
            "from amqproute.cli.pipeline_session import reconnect\n"
            "from amqproute.pipeline.spark_session import session\n"
            "from tests.pipeline.support import SETTINGS\n"
            "def interrupt(seconds):\n"
            "    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
            "@click.group(cls=Program)\n"
            "def program(): pass\n"
            "@program.command()\n"
            "def within():\n"
            "    with started('here', 'local[1]', '512m') as running:\n"
            "        interrupt(0.5)\n"
            "        running.sparkContext._jvm.java.lang.Thread.sleep(200_000)\n"
            "@program.command()\n"
            "def between():\n"
            "    with started('here', 'local[1]', '512m') as running:\n"
            "        java = running.sparkContext._jvm.java.lang\n"
            "        chance = random.Random(1)\n"
            "        for _ in range(100):\n"
            "            try:\n"
            "                interrupt(chance.uniform(0, 0.01))\n"
            "                while True:\n"
            "                    java.System.nanoTime()\n"
            "            except KeyboardInterrupt:\n"
            "                reconnect(running)\n"
            "            running.sparkContext._jsc.sc().isStopped()\n"
            "        interrupt(0)\n"
            "        while True:\n"
            "            java.System.nanoTime()\n"
            "running = session(master='local[1]', memory='512m', settings=SETTINGS)\n"
            "running.sparkContext.setLogLevel('FATAL')\n"
            "try:\n"
            "    program(['within'])\n"
            "except SystemExit as end:\n"
            "    print(end.code, file=sys.stderr)\n"
            "program(['between'])\n"
        )
        done = run_python(script, seconds=3 * PATIENCE)
        told = "interrupted: stopped before it was done"
        self.assertEqual(done.stderr.split("\n"), ["", told, "1", "", told, ""])
        self.assertEqual(done.returncode, 1)


class CommandTests(SparkCase):
    """With tables and journals, and plans that adapt to what they find."""

    def setUp(self) -> None:
        super().setUp()
        adaptive = "spark.sql.adaptive.enabled"
        self.set(**{adaptive: PLANNED_FULLY[adaptive]})
        # A cluster's defaults may name any; the commands are by days of UTC all the same.
        self.set(**{"spark.sql.session.timeZone": "America/New_York"})
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.warehouse = self.folder / "tables"

    def set(self, **settings: str) -> None:
        """Have the session do things otherwise in this test."""
        for name, value in settings.items():
            self.addCleanup(self.spark.conf.set, name, self.spark.conf.get(name))
            self.spark.conf.set(name, value)

    def test_summaries(self) -> None:
        """Each begins its help with what the list says."""
        for name, words in SUMMARIES.items():
            command = pipeline.get_command(None, name)  # type: ignore[arg-type]
            self.assertEqual(" ".join((command.help or "").split("\n\n")[0].split()), words)

    def test_from_journals_to_the_report(self) -> None:
        """One run, and all questions have an answer; the page opens in a browser. One that is
        killed behind the ingest, or before all pages are written, is made good by the next. All of
        it is planned as it is out in the world."""
        self.set(**PLANNED_FULLY)
        planted = generate(
            TrafficPlan(
                300,
                organizations=PAIR,
                rates=FaultRates(two_hops=0, expired=0.02, deferred=0.02),
                segment_seconds=43_200,
                faults=FaultPlan(lost=1, vanished=1),
            ),
            self.folder,
        )
        page = self.warehouse / "report" / "2026-11-22.html"
        journals = [f"--journal={journal}" for journal in planted.journals.values()]
        taken = invoked("ingest", "--warehouse", self.warehouse, *journals)
        self.assertEqual(taken.exit_code, 0, taken.output)
        early = invoked("report", "--warehouse", self.warehouse, "--day", "2026-11-22")
        self.assertEqual((early.exit_code, early.stdout), (2, ""))
        self.assertIn("records of 2026-11-22 have not been processed yet", early.stderr)
        self.assertIn(f"pipeline run --journal DIR --warehouse {self.warehouse}", early.stderr)
        settled = []

        def settle(warehouse: Warehouse, made: WarehouseSnapshot) -> None:
            settled.append(page.exists() and warehouse.snapshot().pending)
            nightly.settle(warehouse, made)

        self.patch(pipeline_analysis, "settle", settle)
        result = invoked("run", "--warehouse", self.warehouse, *journals)
        self.assertEqual(result.exit_code, 1, result.output)
        self.assertIn("0 new segments", result.stdout)
        self.assertEqual(settled, [{date(2026, 11, 22), date(2026, 11, 23)}])
        arrived = planted.fates["delivered"]
        self.assertIn(f"\n300\t{arrived}\t", result.stdout)
        [vanished] = planted.of("vanished")
        self.assertIn("1 message is not accounted for; lost: ", result.stderr)
        self.assertIn(str(vanished.message_id), result.stderr)
        self.assertIn("contradict each other about 1 hand-over; lost on the", result.stderr)
        self.assertIn(str(page), result.stdout)
        self.assertIn(str(vanished.message_id), page.read_text())
        again = invoked("run", "--warehouse", self.warehouse, *journals)
        self.assertEqual(again.stdout, "0 new segments with 0 records.\n")
        # Nothing has been put right since.
        self.assertEqual(again.exit_code, 1)
        self.assertIn("nothing is new, and 2 violations remain of the last week", again.stderr)

        said = json.loads(
            invoked("report", "--warehouse", self.warehouse, "--json", "--day", "2026-11-22").stdout
        )
        self.assertEqual(said["not-accounted-for"], 1)
        self.assertEqual(said["messages"], 300)
        self.assertEqual(said["fates"]["delivered"], arrived)
        self.assertEqual(said["fates"]["expired"], planted.fates["expired"])
        # One that is in no queue any more, and one that the next broker has not got.
        self.assertEqual((said["fates"]["lost"], said["fates"]["waiting"]), (2, 0))
        self.assertEqual(said["contradicted"], 1)
        self.check_bills(said["partners"], page.read_text(), planted)
        traced = invoked("trace", vanished.message_id, "--warehouse", self.warehouse, "--json")
        told = json.loads(traced.stdout)
        self.assertEqual((told["fate"], told["hops"][-1]["fate"]), ("lost", None))

        [lost] = planted.of("lost")
        traced = invoked("trace", lost.message_id, "--warehouse", self.warehouse)
        self.assertEqual(traced.exit_code, 0, traced.output)
        self.assertIn(": lost after ", traced.stdout)
        self.assertIn("handed over", traced.stdout)
        self.assertIn(f"{lost.stream}/{lost.entry}", traced.stdout)

        compared = invoked(
            "reconcile", "--ours", planted.journals[PAIR[0]], "--theirs", planted.journals[PAIR[1]],
            "--day", "2026-11-22", "--output", self.folder / "agreement",
        )  # fmt: skip
        self.assertEqual(compared.exit_code, 1, compared.output)
        self.assertIn(f"lost on the wire\t{lost.sender}\t{lost.message_id}\t", compared.stdout)
        wrong = invoked(
            "reconcile", "--ours", planted.journals[PAIR[0]], "--theirs", planted.journals[PAIR[1]],
            "--day", "2026-11-25", "--output", self.folder / "wrong",
        )  # fmt: skip
        self.assertEqual(wrong.exit_code, 2, wrong.output)
        words = "no records of 2026-11-25, only of 2026-11-22 to 2026-11-23"
        self.assertEqual(wrong.stderr.count(words), 2)
        self.assertFalse((self.folder / "wrong").exists())
        pages = (page, self.folder / "agreement" / "index.html")
        for each in pages:
            self.assertIn(PAIR[1], each.read_text())
        if chromium.MISSING is None:
            with chromium.Chromium() as browser:
                for each in pages:
                    browser.open(each)
                    self.assertEqual(browser.complaints, [])
                    own = (each.as_uri(), "data:,")
                    self.assertEqual([url for url in browser.requests if url not in own], [])

    def check_bills(self, partners: Sequence[Any], text: str, planted: PlantedFaults) -> None:
        """Both sides of each hop count the same, but for what was lost on it."""
        bills = {(row["organization"], row["direction"], row["partner"]): row for row in partners}
        self.assertEqual({row["unmeasured"] for row in partners}, {0})
        [lost] = planted.of("lost")
        same = 0
        for (sender, direction, receiver), bill in bills.items():
            if direction == "to":
                other = bills[receiver, "from", sender]
                missing = int((sender, receiver) == (lost.sender, lost.receiver))
                self.assertEqual(bill["messages"] - other["messages"], missing)
                self.assertEqual(bill["octets"] > other["octets"], bool(missing))
                same += not missing
            self.assertIn(f"{bill['octets']:,}", text)
        self.assertEqual(same, 1)

    def test_contradiction(self) -> None:
        """A contradiction of the tables is reported at ingest."""
        journal = Journal("alpha.example")
        journal.receive(1, "orders")
        own = journal.lines[:]
        journal.segment(self.folder)
        other = own[0].replace(b'"size":100', b'"size":1000')
        journal.segment(self.folder / "copy", [other])
        taken = [
            invoked("ingest", "--warehouse", self.warehouse, "--journal", folder / journal.domain)
            for folder in (self.folder, self.folder / "copy")
        ]
        self.assertEqual([result.exit_code for result in taken], [0, 0], taken)
        self.assertNotIn("contradict", taken[0].stderr)
        self.assertIn("1 line contradicts records with the same numbers", taken[1].stderr)
        self.assertNotIn("cannot be read", taken[1].stderr)
        self.check_compact(journal)

    def check_compact(self, journal: Journal) -> None:
        """Days in several pieces are put together; who reads meanwhile has what there was."""
        journal.receive(2, "orders")
        journal.segment(self.folder)
        source = ["--journal", self.folder / journal.domain]
        more = invoked("ingest", "--warehouse", self.warehouse, *source)
        self.assertEqual(more.exit_code, 0, more.output)
        tables = Warehouse(self.spark, self.warehouse)
        self.assertEqual(len(tables.snapshot().of("runs")), 2)
        rows = tables.read("runs").select("seq", "segment")
        for written in (2, 0):  # the day's runs and its segments
            done = invoked("compact", "--warehouse", self.warehouse, "--most", 1, "--json")
            self.assertEqual(done.exit_code, 0, done.output)
            self.assertEqual(json.loads(done.stdout), {"written": written})
        self.assertEqual(len(tables.snapshot().of("runs")), 1)
        fresh = tables.read("runs").select("seq", "segment")
        self.assertEqual(sorted(rows.collect()), sorted(fresh.collect()))
        self.assertEqual(fresh.count(), 2)

    def test_contradicted(self) -> None:
        """Messages lost, changed, doubled or made up between two brokers are in the headline, among
        the violations and in the exit code; what is in flight, or in a gap, is not. And `--json`
        gives one document of all days."""
        planted = generate(
            TrafficPlan(200, organizations=PAIR, segment_seconds=43_200, offsets={PAIR[1]: 90.0},
                 rates=FaultRates(suppressed=0.02, deferred=0.02), faults=FaultPlan(
                     lost=1, duplicated=1, changed=1, unknown=1, in_flight=4, gap=1)),
            self.folder,
        )  # fmt: skip
        (planted.journals[PAIR[0]] / "open").mkdir()
        given: list[Path] = []

        def ingest_journals(
            tables: Warehouse, journals: Sequence[Path], *, look_everywhere: bool
        ) -> IngestSummary:
            given.extend(journals)
            return bronze.ingest(tables, journals, look_everywhere=look_everywhere)

        self.patch(pipeline_analysis, "ingest_journals", ingest_journals)
        journals = [f"--journal={journal}" for journal in planted.journals.values()]
        result = invoked("run", "--warehouse", self.warehouse, *journals, "--json")
        self.assertEqual(result.exit_code, 1, result.output)
        # What is open the daemon may move at any moment.
        self.assertEqual({path.name for path in given}, {"2026-11-22"})
        said = json.loads(result.stdout)
        self.assertEqual(said["taken"]["segments"], len(list(self.folder.glob("*/*/*.jsonl"))))
        [day] = [day for day in said["days"] if day["first"] == "2026-11-22"]
        self.assertEqual((day["not-accounted-for"], day["contradicted"]), (0, 4))
        self.assertEqual((day["fates"]["lost"], day["fates"]["not known"]), (1, 1))
        page = Path(day["page"]).read_text()
        self.assertIn("Brokers contradict each other about 4 hand-overs", page)
        wrong = Warehouse(self.spark, self.warehouse).read("violations").collect()
        words = {"lost": "lost on the wire", "duplicated": "delivered twice",
                 "changed": "digest differs", "unknown": "accepted but unknown"}  # fmt: skip
        self.assertEqual(
            {(row.what, row.message_id, row.hidden) for row in wrong},
            {
                (words.get(fault.kind, words["lost"]), fault.message_id, fault.kind == "gap")
                for fault in planted.faults
                if fault.kind != "in_flight"
            },
        )

    def test_refusals(self) -> None:
        """An impossible request is refused in words, with the alternative."""
        empty = self.folder / "journal"
        (empty / "open").mkdir(parents=True)
        file = self.folder / "file"
        file.touch()
        for arguments, code, words in (
            (["run", "--journal", self.folder / "nowhere"], 2, "no journal"),
            (["ingest", "--journal", empty], 2, "no closed segments yet"),
            (["report"], 2, "tables: there is no such directory"),
            (["report", "--warehouse", empty], 2, "no tables there"),
            (["compact", "--warehouse", file], 2, "file is no directory"),
            (["report", "--day", "tomorrow"], 2, "'tomorrow' is no day"),
            (["report", "--from", "2026-11-02", "--to", "2026-11-01"], 2, "is after --to"),
            (["trace", "nobody"], 2, "tables: there is no such directory"),
            (["report", "--master", "here"], 2, "'here': expected local[N], spark://HOST:PORT"),
        ):
            result = invoked(arguments[0], "--warehouse", self.warehouse, *arguments[1:])
            self.assertEqual(result.exit_code, code, result.output)
            self.assertIn(words, result.stderr)

    def test_nowhere_to_write(self) -> None:
        """The error of Java or the system about an unwritable place is one line."""
        journal = Journal("alpha.example")
        journal.write(RecordKind.START, {})
        journal.segment(self.folder)
        source = ["--journal", self.folder / journal.domain]
        file = self.folder / "file"
        file.touch()
        for arguments in (
            ["ingest", "--warehouse", file / "x"],
            ["stream", "--output", file / "x"],
        ):
            result = invoked(*arguments, *source)
            self.assertEqual(result.exit_code, 1, result.output)
            first, second = result.stderr.splitlines()[-2:]
            self.assertIn(f"pipeline.access: {file / 'x'}: ", first)
            self.assertIn(f"to write to {file / 'x'}", second)
