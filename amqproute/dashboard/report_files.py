# SPDX-License-Identifier: Apache-2.0
"""The pages that the pipeline has published, read from its warehouse without the pipeline.

``amqproute pipeline run`` writes a page for each day, ``report/DAY.html``. It is one file that
needs no network. The dashboard lists these files, shows the headline of the newest one, and serves
each as it is, in a sandbox: whatever is in it runs with no rights of the user who looks at it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

__all__ = [
    "LONGEST_PAGE",
    "MOST_LISTED",
    "REPORT_POLICY",
    "ReportFile",
    "ReportHeadline",
    "ReportList",
    "headlines_of",
    "list_reports",
    "read_report",
]

FOLDER: Final = "report"
MOST_LISTED: Final = 400
"""Pages that are listed, the newest days: more than a year."""
LONGEST_PAGE: Final = 16 * 1024 * 1024
"""Octets of a page that is served; one of a busy day has about one million."""
MOST_HEADLINES: Final = 20
MOST_DETAILS: Final = 10
_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_NAME: Final = re.compile(rf"{_DAY}(?:-{_DAY})?\.html")

REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The content security policy of a page: its own origin, no requests."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A page.

    Attributes:
        name: the name of the file.
        octets: its size.
        written_ms: when it was written, ms since the epoch.
    """

    name: str
    octets: int
    written_ms: int

    @property
    def days(self) -> str:
        """The day that it is about, or the days."""
        return self.name.removesuffix(".html")


@dataclass(frozen=True, slots=True)
class ReportHeadline:
    """A sentence at the top of a page.

    Attributes:
        state: ``good``, ``doubtful`` or ``bad``.
        words: the sentence.
        details: below it.
    """

    state: str
    words: str
    details: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ReportList:
    """The pages of a warehouse.

    Attributes:
        warehouse: its directory.
        files: the newest days first.
        headlines: the headlines of the newest one.
        trouble: why they cannot be read; empty if they can.
    """

    warehouse: str
    files: Sequence[ReportFile] = ()
    headlines: Sequence[ReportHeadline] = ()
    trouble: str = ""


def list_reports(warehouse: Path) -> ReportList:
    """Return the pages; call it in a thread."""
    found: list[ReportFile] = []
    try:
        with os.scandir(warehouse / FOLDER) as entries:
            for entry in entries:
                if not _NAME.fullmatch(entry.name):
                    continue
                with suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(facts.st_mode):
                        written_ms = facts.st_mtime_ns // 1_000_000
                        found.append(ReportFile(entry.name, facts.st_size, written_ms))
    except FileNotFoundError:
        return ReportList(str(warehouse))
    except OSError as error:
        return ReportList(str(warehouse), trouble=f"{error.filename}: {error.strerror}")
    found.sort(key=lambda each: each.name, reverse=True)
    headlines: Sequence[ReportHeadline] = ()
    if found:
        octets = read_report(warehouse, found[0].name)
        headlines = headlines_of("" if octets is None else octets.decode("utf-8", "replace"))
    return ReportList(str(warehouse), found[:MOST_LISTED], headlines)


def read_report(warehouse: Path, name: str) -> bytes | None:
    """Return a page; None if there is none of that name, or it is too long. Call it in a thread."""
    if not _NAME.fullmatch(name):
        return None
    try:
        descriptor = os.open(warehouse / FOLDER / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        octets = file.read(LONGEST_PAGE + 1)
    return octets if len(octets) <= LONGEST_PAGE else None


def headlines_of(document: str) -> Sequence[ReportHeadline]:
    """Return the sentences at the top of a page: those before its first section."""
    parser = _HeadlineParser()
    parser.feed(document)
    parser.close()
    return parser.found[:MOST_HEADLINES]


class _HeadlineParser(HTMLParser):
    """Collects what `amqproute.pipeline.page.note` makes, up to the first section."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[ReportHeadline] = []
        self._state = ""
        self._words = ""
        self._details: list[str] = []
        self._within = ""
        self._is_over = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        if tag == "section":
            self._is_over = True
        if self._is_over:
            return
        classes = (dict(attrs).get("class") or "").split()
        if tag == "div" and "note" in classes:
            self._state = next((x for x in classes if x in ("good", "doubtful", "bad")), "doubtful")
            self._words, self._details = "", []
        elif tag in ("strong", "li") and self._state:
            self._within = tag
            if tag == "li":
                self._details.append("")

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        if tag == self._within:
            self._within = ""
        elif tag == "div" and self._state:
            details = [each.strip() for each in self._details[:MOST_DETAILS]]
            self.found.append(ReportHeadline(self._state, self._words.strip(), details))
            self._state = ""

    def handle_data(self, data: str) -> None:
        """See `HTMLParser`."""
        if self._within == "strong":
            self._words += data
        elif self._within == "li":
            self._details[-1] += data
