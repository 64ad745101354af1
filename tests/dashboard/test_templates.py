# SPDX-License-Identifier: Apache-2.0
"""The templates of the dashboard are compiled before anybody asks for a page."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment
from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame
from amqproute.dashboard.page_blocks import Page


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
