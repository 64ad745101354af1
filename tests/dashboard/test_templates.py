# SPDX-License-Identifier: Apache-2.0
"""The templates of the dashboard: compiled before anybody asks, and rendered in turns."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame
from amqproute.dashboard.page_blocks import LogLines, Page
from tests.dashboard.samples import BROKERS, PAGES, further, made


class CompiledTests(SynchronousTestCase):
    """No request waits for the compiler."""

    def test_none_later(self) -> None:
        """Pages of all templates are rendered without compiling one."""
        renderer = HtmlRenderer()
        compiled: list[object] = []
        compile_one = Environment.compile

        def watched(self: Environment, *given: Any, **more: Any) -> Any:
            compiled.append(given)
            return compile_one(self, *given, **more)

        self.patch(Environment, "compile", watched)
        self.assertIn("Log in", renderer.log_in())
        self.assertIn("Not Found", renderer.problem("Not Found", "there is no such page"))
        page = Page("Queues", (), "queues")
        self.assertIn("Queues", renderer.page(page, PageFrame(user="ann")))
        self.assertEqual(compiled, [])
        # The double sees the compiler at work.
        Environment(autoescape=True).from_string("text")
        self.assertEqual(len(compiled), 1)


class TurnTests(SynchronousTestCase):
    """Pages that are rendered in turns of the reactor."""

    def test_same(self) -> None:
        """Each is the page that is rendered in one go, and has a pause behind each block."""
        renderer = HtmlRenderer()
        frame = PageFrame("user:ann", "token", "broker1.alpha.example")
        pages = [made(*asked, *make()) for make in BROKERS.values() for asked in PAGES]
        logs = 0
        for page in [*pages, *further().values()]:
            pauses: list[object] = []
            logs += any(isinstance(each, LogLines) and each.rows for each in page.blocks)

            def pause(pauses: list[object] = pauses) -> Deferred[None]:
                pauses.append(None)
                return succeed(None)

            document = Deferred.fromCoroutine(renderer.page_in_turns(page, frame, pause))
            said = self.successResultOf(document)
            whole = renderer.page(page, frame)
            self.assertEqual("".join(said.split()), "".join(whole.split()))
            self.assertGreaterEqual(len(pauses), len(page.blocks))
        self.assertGreater(logs, 1)
