# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser: WCAG by axe-core, the keyboard, and life without JavaScript.

The broker is one of the samples, served in a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from tests.dashboard.browser import MISSING, chromium, log_in, sample_site, violations
from tests.dashboard.samples import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Page


class BrowserCase(SynchronousTestCase):
    """Tests with a browser."""

    skip = MISSING


class AccessibilityTests(BrowserCase):
    """WCAG 2.2 AA, as far as a program can tell."""

    def look(self, broker: str) -> None:
        """Look at each page in both color schemes, on a desktop and on a phone."""
        found: list[str] = []
        complaints: list[str] = []
        with sample_site(broker) as site, chromium() as browser:
            for scheme, width in (("light", 1280), ("dark", 390)):
                context = browser.new_context(
                    color_scheme=scheme,  # type: ignore[arg-type] # one of the two
                    viewport={"width": width, "height": 900},
                )
                page = context.new_page()
                page.on("console", lambda message: complaints.append(message.text))
                page.on("pageerror", lambda error: complaints.append(str(error)))
                page.goto(f"{site}/ui/login")
                found += [f"{scheme} login: {each}" for each in violations(page)]
                log_in(page, site)
                for name, query in PAGES:
                    page.goto(f"{site}/ui/{name}?{urlencode(query)}")
                    found += [f"{scheme} {name}: {each}" for each in violations(page)]
                    is_wide = "document.documentElement.scrollWidth > innerWidth"
                    if page.evaluate(is_wide):
                        found.append(f"{scheme} {name}: wider than the window")
                context.close()
        missing = "Failed to load resource: the server responded with a status of 404 (Not Found)"
        self.assertEqual(found, [])
        self.assertEqual([each for each in complaints if each != missing], [])

    def test_ordinary(self) -> None:
        """A broker with ordinary work."""
        self.look("ordinary")

    def test_empty(self) -> None:
        """A broker that has just been started."""
        self.look("empty")

    def test_on_fire(self) -> None:
        """A broker where everything is wrong."""
        self.look("fire")


class KeyboardTests(BrowserCase):
    """Everything is reached, seen and done without a mouse."""

    def focused(self, page: Page) -> str:
        """Return what has the focus, as text."""
        found = page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || "
            "document.activeElement.textContent || document.activeElement.name || '').trim()"
        )
        return str(found)

    def tab_to(self, page: Page, text: str, most: int = 60) -> None:
        """Press Tab until something has the focus; what has it is always visible."""
        for _ in range(most):
            page.keyboard.press("Tab")
            outline = page.evaluate(
                "(() => {const e = document.activeElement, s = getComputedStyle(e);"
                "const r = e.querySelector && e.querySelector('rect.peer');"
                "return s.outlineStyle !== 'none' || (r && getComputedStyle(r).strokeWidth === "
                "'3px') || e === document.body})()"
            )
            self.assertTrue(outline, f"the focus is not visible on {self.focused(page)!r}")
            if self.focused(page) == text:
                return
        self.fail(f"{text!r} is not reached by Tab")

    def test_walk(self) -> None:
        """From the log-in to a confirmed action with Tab, Enter and letters."""
        with sample_site("fire") as site, chromium() as browser:
            page = browser.new_page()
            page.goto(f"{site}/ui/")
            page.keyboard.type("ann")
            page.keyboard.press("Tab")
            page.keyboard.type("secret")
            page.keyboard.press("Enter")
            page.get_by_role("heading", level=1, name="Overview").wait_for()
            self.tab_to(page, "Skip to the page", 3)
            page.keyboard.press("Enter")
            self.tab_to(page, "beta.example")
            page.keyboard.press("Enter")
            page.get_by_role("heading", level=1, name="beta.example").wait_for()
            self.tab_to(page, "Retry now")
            page.keyboard.press("Enter")
            page.get_by_role("heading", level=1, name="Retry now: beta.example").wait_for()
            self.tab_to(page, "Retry now")
            page.keyboard.press("Enter")
            page.get_by_text("Retry now: 2 messages").first.wait_for()


class CountingTests(BrowserCase):
    """Times that the page counts."""

    def test_ages(self) -> None:
        """An age goes on while the page is live, and stays as it is once it is not."""
        shown = "() => document.querySelector('time.counted.up').textContent"
        with sample_site("ordinary") as site, chromium() as browser:
            page = browser.new_page()
            log_in(page, site)
            page.goto(f"{site}/ui/connections")
            # It began with 1 min 01 s.
            page.locator("time.counted.up", has_text="1 min 03 s").first.wait_for()
            page.locator("#live-toggle").click()
            was = page.evaluate(shown)
            page.wait_for_timeout(2500)
            self.assertEqual(page.evaluate(shown), was)


class PlainTests(BrowserCase):
    """Without JavaScript."""

    def test_everything(self) -> None:
        """Pages, filters, parts of a table and actions are links and forms."""
        with sample_site("fire") as site, chromium() as browser:
            page = browser.new_context(java_script_enabled=False).new_page()
            log_in(page, site)
            self.assertFalse(page.locator("#live-toggle").is_visible())
            page.goto(f"{site}/ui/connections")
            page.locator("time.counted", has_text="1 min 01 s").first.wait_for()
            page.get_by_role("link", name="Queues", exact=True).click()
            page.get_by_role("link", name="More").click()
            page.get_by_role("link", name="First").wait_for()
            page.get_by_label("Name contains").fill("dead")
            page.get_by_role("button", name="Show").click()
            page.get_by_role("link", name="dead", exact=True).click()
            page.get_by_role("button", name="Purge").click()
            page.get_by_text("Deletes the messages on the queue for good").wait_for()
            page.get_by_role("link", name="Cancel").click()
            page.get_by_role("heading", level=1, name="dead").wait_for()
            page.get_by_role("button", name="Log out").click()
            page.get_by_label("Password").wait_for()
