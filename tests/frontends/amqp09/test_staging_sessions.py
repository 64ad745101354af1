# SPDX-License-Identifier: Apache-2.0
"""`docs/amqp09-files.md` shows what passes between a client and a broker."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.frontends.amqp09.staging_sessions import SESSIONS, rendered

PAGE = Path(__file__).parents[3] / "docs" / "amqp09-files.md"


class PageTests(SynchronousTestCase):
    """The page."""

    def test_sessions(self) -> None:
        """Each session in the page is the one that a client and a broker have."""
        page = PAGE.read_text(encoding="utf-8")
        shown = dict(re.findall(r"<!-- session: (\w+) -->\n```text\n(.*?)```", page, re.DOTALL))
        self.assertEqual(set(shown), set(SESSIONS))
        for name, session in SESSIONS.items():
            self.assertEqual(shown[name], rendered(session()), name)
