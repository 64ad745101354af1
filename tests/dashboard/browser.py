# SPDX-License-Identifier: Apache-2.0
"""A Chromium driven by Playwright, and axe-core in its pages.

The browser is the distribution's: nothing is downloaded. axe-core is installed by npm beside the
clients of other makes (``.ci/run``).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.chromium import PROGRAM
from tests.support.patience import PATIENCE

if TYPE_CHECKING:  # not installed everywhere: without it these tests are skipped
    from playwright.sync_api import Browser, Page

AXE: Final = Path(__file__).parent.parent / "integration/node_modules/axe-core/axe.min.js"

MISSING: Final = (
    "no Chromium on this machine"
    if PROGRAM is None
    else "playwright is not installed: pip install 'amqproute[test]'"
    if importlib.util.find_spec("playwright") is None
    else "axe-core is not installed: npm install --prefix tests/integration axe-core"
    if not AXE.exists()
    else None
)
"""Why tests with it are skipped, None where they run."""

RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser, and end it."""
    from playwright.sync_api import sync_playwright

    assert PROGRAM is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def sample_site(broker: str) -> Iterator[str]:
    """Serve a sample in a process of its own; yields its address."""
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dashboard.site_rig", broker],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdigit(), f"the sample site did not start: {port!r}"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def log_in(page: Page, site: str, user: str = "ann", password: str = "secret") -> None:
    """Log in on the page for it."""
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(f"{site}/ui/")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", level=1, name="Overview").wait_for()


def violations(page: Page) -> Sequence[str]:
    """Return what axe-core finds wrong on a page."""
    toggle = page.locator("#live-toggle")
    if toggle.is_visible():
        toggle.click()  # what is looked at does not change
    # Its text, not a script element: the policy of the pages forbids scripts that are not ours.
    page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    # Any: what axe answers.
    found: Any = page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES
    )
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: "
        + "; ".join(str(node["html"])[:160] for node in each["nodes"][:3])
        for each in found["violations"]
    ]
