# SPDX-License-Identifier: Apache-2.0
"""`docs/amqp09.md` shows what passes, and `docs/interoperation.md` names all methods."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.frontends.amqp09.class_sessions import SESSIONS, rendered
from tests.support.plain_amqp09 import FLAGS

DOCS = Path(__file__).parents[3] / "docs"


class PageTests(SynchronousTestCase):
    def test_sessions(self) -> None:
        """Each session in the page is the one that a client and a broker have."""
        page = (DOCS / "amqp09.md").read_text(encoding="utf-8")
        shown = dict(re.findall(r"<!-- session: (\w+) -->\n```text\n(.*?)```", page, re.DOTALL))
        self.assertEqual(set(shown), set(SESSIONS))
        for name, session in SESSIONS.items():
            self.assertEqual(shown[name], rendered(session()), name)

    def test_methods(self) -> None:
        """The table has the 101 methods of the document, each once."""
        page = (DOCS / "interoperation.md").read_text(encoding="utf-8")
        section = page.partition("## Methods of AMQP 0-9\n")[2].partition("\n## ")[0]
        rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
        named = [
            f"{row[1].strip(' `')}.{each}"
            for row in rows
            for each in re.findall(r"`([a-z-]+)`", row[2])
        ]
        expected = [name for name, flags in FLAGS.items() if "extension" not in flags]
        self.assertEqual(len(expected), 101)
        self.assertEqual(sorted(named), sorted(expected))
