# SPDX-License-Identifier: Apache-2.0
"""The pages of the pipeline: which are found, what is said of them, and what they may do."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard import report_files
from amqproute.dashboard.page_blocks import Note, Table
from amqproute.dashboard.report_files import (
    ReportHeadline,
    ReportList,
    headlines_of,
    list_reports,
    read_report,
)
from amqproute.dashboard.report_pages import reports_page
from amqproute.pipeline.page import note, page, section, tag
from tests.dashboard.samples import SampleSource, ordinary
from tests.dashboard.site_rig import Pages

WORDS = "3 messages are not accounted for: <b>\u202e"


def published(*parts: str) -> str:
    """Return a page as the pipeline writes it."""
    inner = section("Volume", "How much?", note("not of the headline", "bad"))
    return page("2026-11-22", "of alpha.example", *map(_markup, parts), inner)


def _markup(words: str) -> object:
    return note(words, "bad", ["order-4711 & more", "order-4712"])


class FileTests(SynchronousTestCase):
    """What is read from the warehouse."""

    def setUp(self) -> None:
        self.warehouse = Path(self.mktemp())
        self.folder = self.warehouse / "report"
        self.folder.mkdir(parents=True)

    def write(self, name: str, text: str = "x") -> Path:
        """Write a page."""
        path = self.folder / name
        path.write_text(text)
        return path

    def test_list(self) -> None:
        """Pages of days and of ranges, the newest first; nothing else that lies there."""
        for name in ("2026-11-21.html", "2026-11-22.html", "2026-11-01-2026-11-22.html"):
            self.write(name)
        for name in ("index.html", "2026-11-23.html.part", ".2026-11-23.html", "a-2026-11-23.html"):
            self.write(name)
        (self.folder / "2026-11-24.html").mkdir()
        os.symlink("/etc/passwd", self.folder / "2026-11-25.html")
        os.mkfifo(self.folder / "2026-11-26.html")
        found = list_reports(self.warehouse)
        self.assertEqual([each.days for each in found.files],
                         ["2026-11-22", "2026-11-21", "2026-11-01-2026-11-22"])  # fmt: skip
        self.assertEqual(found.files[0].octets, 1)
        self.assertEqual(found.trouble, "")

    def test_names(self) -> None:
        """Only pages are read, whatever is asked for."""
        self.write("2026-11-22.html", "right")
        os.symlink("/etc/passwd", self.folder / "2026-11-25.html")
        os.mkfifo(self.folder / "2026-11-26.html")
        (self.warehouse / "2026-11-20.html").write_text("elsewhere")
        self.assertEqual(read_report(self.warehouse, "2026-11-22.html"), b"right")
        for name in (
            "2026-11-25.html",
            "2026-11-26.html",
            "2026-11-27.html",
            "../2026-11-20.html",
            "2026-11-22.html/",
            "",
            "..",
            "2026-11-22.html\0",
            "2026-11-22.html\n",
        ):
            self.assertIsNone(read_report(self.warehouse, name), name)

    def test_bounds(self) -> None:
        """A page that is too long is not read; the oldest of very many are not listed."""
        self.patch(report_files, "LONGEST_PAGE", 10)
        self.patch(report_files, "MOST_LISTED", 2)
        self.write("2026-11-22.html", "x" * 11)
        self.assertIsNone(read_report(self.warehouse, "2026-11-22.html"))
        self.write("2026-11-21.html")
        self.write("2026-11-20.html")
        self.assertEqual([each.days for each in list_reports(self.warehouse).files],
                         ["2026-11-22", "2026-11-21"])  # fmt: skip

    def test_none(self) -> None:
        """A warehouse without pages has none; one that cannot be read says why."""
        self.assertEqual(list_reports(self.warehouse / "nothing").files, ())
        other = self.warehouse / "other"
        other.mkdir()
        (other / "report").write_text("a file")
        self.assertIn("Not a directory", list_reports(other).trouble)

    def test_headlines(self) -> None:
        """The sentences before the first section, as the pipeline writes them."""
        self.write("2026-11-22.html", published(WORDS, "another"))
        first, second = list_reports(self.warehouse).headlines
        details = ["order-4711 & more", "order-4712"]
        shown = "3 messages are not accounted for: <b>"
        self.assertTrue(first.words.startswith(shown), first.words)
        self.assertEqual((first.state, first.details), ("bad", details))
        self.assertEqual(second, ReportHeadline("bad", "another", details))

    def test_other_documents(self) -> None:
        """Whatever the document is, it has few sentences, or none."""
        for text in (
            "",
            "<",
            "<div class=note>",
            "<div class='note odd'><strong>a</strong></div>",
            str(tag("p", "hello")),
            "\0" * 100,
            "<div class='note bad'>" * 1000,
        ):
            for each in headlines_of(text):
                self.assertIn(each.state, ("good", "doubtful", "bad"))
        many = headlines_of("<div class='note bad'><strong>x</strong></div>" * 100)
        self.assertEqual(len(many), report_files.MOST_HEADLINES)


class PageTests(SynchronousTestCase):
    """What the page says."""

    def first(self, facts: ReportList | None) -> Note:
        """Return the first note of the page."""
        found = reports_page(facts).blocks[0]
        assert isinstance(found, Note)
        return found

    def test_without(self) -> None:
        """Without a warehouse, or without pages in it, it says so, and what to do."""
        self.assertIn("No report", self.first(None).text)
        self.assertIn("management.pipeline", " ".join(self.first(None).items))
        empty = self.first(ReportList("/srv/tables"))
        self.assertIn("No report has been published in /srv/tables", empty.text)
        self.assertIn("--warehouse /srv/tables", empty.commands[0].text)
        self.assertIn("denied", self.first(ReportList("/srv", trouble="/srv: denied")).text)

    def test_bad_news(self) -> None:
        """The headline of the newest page comes first, with its day and its state."""
        _, view = ordinary()
        published_there = view.published
        assert published_there is not None
        heads = (ReportHeadline("bad", "3 messages", ["order-4711"]),)
        facts = ReportList("/srv", published_there.files, heads)
        first = self.first(facts)
        self.assertEqual((first.state, list(first.items)), ("bad", ["order-4711"]))
        self.assertIn(f"{facts.files[0].days}: 3 messages", first.text)
        (table,) = [each for each in reports_page(facts).blocks if isinstance(each, Table)]
        self.assertEqual(table.rows[0].cells[0].href, f"/ui/report/{facts.files[0].name}")

    def test_parts(self) -> None:
        """Fifty days at a time, by the last day of the part before; the headline comes once."""
        _, view = ordinary()
        assert view.published is not None
        (table,) = [x for x in reports_page(view.published).blocks if isinstance(x, Table)]
        self.assertEqual((len(table.rows), table.total), (50, 60))
        last = view.published.files[49].days
        self.assertIn(f"cursor={last}", table.more)
        (rest,) = reports_page(view.published, "", last).blocks
        assert isinstance(rest, Table)
        self.assertEqual(len(rest.rows), 10)
        self.assertEqual((rest.first, rest.more), ("/ui/report", ""))


class SiteTests(SynchronousTestCase):
    """A page that is served."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.pages = Pages(directory, *ordinary())
        self.addCleanup(self.pages.web.close)

    def test_sandbox(self) -> None:
        """It has no rights of its reader: an origin of its own, and no requests."""
        self.pages.log_in()
        answer = self.pages.get("/ui/report/2026-11-22.html")
        self.assertEqual(answer.status, 200)
        policies = answer.all("Content-Security-Policy")
        self.assertEqual(len(policies), 1)
        parts = [each.strip() for each in policies[0].split(";")]
        self.assertIn("sandbox allow-scripts", parts)
        self.assertIn("default-src 'none'", parts)
        self.assertNotIn("allow-same-origin", policies[0])

    def test_missing(self) -> None:
        """What is not a page is not there."""
        self.pages.log_in()
        for name in ("2026-11-23.html", "..%2f..%2fetc%2fpasswd", "", "x"):
            self.assertEqual(self.pages.get(f"/ui/report/{name}").status, 404, name)

    def test_rights(self) -> None:
        """Not for everybody."""
        self.assertEqual(self.pages.get("/ui/report/2026-11-22.html").status, 303)
        self.pages.log_in()
        self.pages.source = SampleSource({}, {}, may_manage=False)
        self.assertEqual(self.pages.get("/ui/report/2026-11-22.html").status, 403)
        self.assertIn(b"which you do not have", self.pages.get("/ui/report").body)
