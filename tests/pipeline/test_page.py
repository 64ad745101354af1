# SPDX-License-Identifier: Apache-2.0
"""The page and its charts: escaped, sortable, self-contained."""

from __future__ import annotations

import tempfile
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.pipeline.charts import bars, columns, count, duration, lines, octets
from amqproute.pipeline.page import (
    PageCell,
    PageColumn,
    note,
    page,
    section,
    table,
    tag,
    tiles,
    visible,
)
from tests.pipeline import chromium

HOSTILE = (
    "<script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "</style></script><b>",
    "moc.elpmaxe\u202eexample.com",
    "a\x00b\x1b[31m\n",
    "x" * 5000,
)


class Texts(HTMLParser):
    """Collects elements and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def example(words: tuple[str, ...] = HOSTILE) -> str:
    """Make a page with words wherever there can be any."""
    hours = [f"{hour:02}:00" for hour in range(24)]
    values = [float(hour * hour) for hour in range(24)]
    first = words[0]
    return page(
        first,
        first,
        note(first, "bad", words),
        tiles([(first, first, first)]),
        section(
            first,
            first,
            columns(first, first, hours, dict.fromkeys(words, values)),
            lines(first, first, [first] * 24, {first: [*values[:-1], None]}),
            bars(first, first, words, {first: values[: len(words)]}),
            table(
                first,
                [
                    PageColumn(first),
                    PageColumn("Number", right=True),
                    PageColumn("Size", right=True),
                ],
                [(word, i * 10, PageCell(f"{i} of them", -i)) for i, word in enumerate(words)],
            ),
        ),
    )


class PageTests(SynchronousTestCase):
    """The written page, without a browser."""

    @given(st.text(min_size=1))
    def test_text_stays_text(self, text: str) -> None:
        """The elements are the same for any text, and the text can be read."""
        self.assertEqual(Texts(example((text,))).elements, Texts(example(("plain",))).elements)
        written = tag("p", text, title=text)
        self.assertEqual("".join(Texts(written).text), visible(text))
        ElementTree.fromstring(written)

    def test_nothing_is_fetched(self) -> None:
        """The page names no other resource, and forbids what it does not bring along."""
        text = example()
        self.assertIn("default-src &#x27;none&#x27;", text)
        for word in ("http://", "https://", "@import", "url(", "src="):
            self.assertNotIn(word, text.replace("&lt;img src=x", ""), word)

    def test_empty(self) -> None:
        """A list without rows says so; charts without values can be drawn."""
        self.assertEqual(table("Dead letters", [PageColumn("Id")], []).count("<td"), 0)
        self.assertIn("Dead letters: none.", table("Dead letters", [PageColumn("Id")], []))
        for chart in (columns, lines, bars):
            ElementTree.fromstring(f"<x>{chart('a', 'b', [], {})}</x>")
            ElementTree.fromstring(f"<x>{chart('a', 'b', ['c'], {'d': [None], 'e': [0.0]})}</x>")

    def test_legend(self) -> None:
        """Several rows of values are named in a legend; one needs none."""
        for chart in (columns, lines, bars):
            one = chart("a", "b", ["c", "d"], {"x": [1.0, 2.0]})
            two = chart("a", "b", ["c", "d"], {"x": [1.0, 2.0], "y": [1.0, 2.0]})
            self.assertEqual([each.count('class="legend"') for each in (one, two)], [0, 1])

    def test_clocks_that_differ(self) -> None:
        """A delay below nothing has its sign, and no place on a logarithmic scale."""
        self.assertEqual([duration(-2.5e6), duration(0)], ["\u22122.5 s", "0 µs"])
        chart = lines("a", "b", ["c", "d"], {"p50": [-2.5e6, 1e6], "p99": [-1.0, 0.0]})
        self.assertEqual(chart.count("<circle"), 1)
        self.assertIn("d p50: 1 s", chart)

    def test_all_can_be_seen(self) -> None:
        """Everything that is drawn is within the chart, one bar below the other."""
        days = [f"day {number}" for number in range(9)]
        values = {"a": [3.0 * number for number in range(9)], "b": [1.0, None] * 4 + [2.0]}
        for chart in (columns, lines, bars):
            figure = ElementTree.fromstring(f"<x>{chart('a', 'b', days, values)}</x>")
            (svg,) = figure.iter("svg")
            _, _, width, height = map(float, svg.attrib["viewBox"].split())
            tops = []
            for shape in svg.iter():
                given = {name: float(shape.get(name, 0)) for name in ("x", "y", "width", "height")}
                given |= {name: float(shape.get(name, 0)) for name in ("cx", "cy", "y1", "y2")}
                down = max(given["y"] + given["height"], given["cy"], given["y1"], given["y2"])
                self.assertLessEqual(down, height, (chart, shape.attrib))
                self.assertLessEqual(given["x"] + given["width"], width, (chart, shape.attrib))
                self.assertGreaterEqual(min(given.values()), 0, (chart, shape.attrib))
                if shape.tag == "rect":
                    tops.append(given["y"])
            if chart is bars:
                self.assertEqual(tops, sorted(tops))
                self.assertEqual(len(set(tops)), 9)

    def test_from_zero(self) -> None:
        """Columns stand on the axis, and the highest reaches the tick that it is worth."""
        figure = ElementTree.fromstring(
            f"<x>{columns('a', 'b', ['c', 'd'], {'e': [4.0, 2.0]})}</x>"
        )
        high, low = (
            {name: float(each.attrib[name]) for name in ("y", "height")}
            for each in figure.iter("rect")
        )
        axis = max(float(line.attrib["y1"]) for line in figure.iter("line"))
        self.assertEqual(high["y"] + high["height"], axis)
        self.assertEqual(low["y"] + low["height"], axis)
        self.assertEqual(high["height"], 2 * low["height"])
        self.assertEqual(high["y"], min(float(line.attrib["y1"]) for line in figure.iter("line")))

    def test_what_stands_behind_a_bar(self) -> None:
        """The sum of its parts, unless something else is to be said."""
        parts = {"queue": [1e6, 2e6], "wire": [2e6, None]}
        self.assertIn(">3 s<", bars("a", "b", ["c", "d"], parts))
        self.assertIn(">2.5 s<", bars("a", "b", ["c", "d"], parts, ends=[2.5e6, None]))

    def test_long_names(self) -> None:
        """A bar's name has at most 46 characters; the titles of its parts have all of it."""
        whole, long = "x" * 46, "y" * 47
        chart = bars("a", "b", [whole, long], {"c": [1.0, 2.0]})
        self.assertIn(f">{whole}<", chart)
        self.assertIn(f">{'y' * 45}…<", chart)
        self.assertIn(f">{long}, c: 2 µs<", chart)

    def test_numbers(self) -> None:
        """Numbers are written as people read them."""
        said = [duration(each) for each in (870, 1500, 2.5e6, 1800e6, 5 * 3600e6, 3 * 86400e6)]
        self.assertEqual(said, ["870 µs", "1.5 ms", "2.5 s", "30 min", "5 h", "3 d"])
        self.assertEqual([octets(each) for each in (12, 1.5e6, 4e13)], ["12 B", "1.5 MB", "40 TB"])
        # Nor is anything a thousand of a unit that has a larger one.
        said = [duration(each) for each in (999.8, 999_999, 119.96e6, 1e9 * 86400e6)]
        self.assertEqual(said, ["1 ms", "1 s", "2 min", "1,000,000,000 d"])
        self.assertEqual([octets(999.7), octets(999_900), count(999_999)], ["1 kB", "1 MB", "1 M"])
        self.assertEqual(
            [count(e) for e in (0, 1234, 45_600, 2e6)], ["0", "1,234", "45.6 k", "2 M"]
        )


class BrowserTests(SynchronousTestCase):
    """The same page, opened."""

    skip = chromium.MISSING

    def test_opened(self) -> None:
        """No request but for itself, no complaint, no script of others; headings sort."""
        with tempfile.TemporaryDirectory() as folder, chromium.Chromium() as browser:
            path = Path(folder, "page.html")
            path.write_text(example())
            browser.open(path)
            self.assertEqual(browser.evaluate("document.title"), HOSTILE[0])
            numbers = "[...document.querySelectorAll('tbody tr')].map(r => r.cells[1].textContent)"
            headings = "document.querySelectorAll('th button')"
            first = ["0", "10", "20", "30", "40", "50"]
            self.assertEqual(browser.evaluate(numbers), first)
            browser.evaluate(f"{headings}[1].click()")
            browser.evaluate(f"{headings}[1].click()")
            self.assertEqual(browser.evaluate(numbers), first[::-1])
            browser.evaluate(f"{headings}[2].click()")
            self.assertEqual(browser.evaluate(numbers), first[::-1])
            browser.evaluate(f"{headings}[2].click()")
            self.assertEqual(browser.evaluate(numbers), first)
            shown = "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect())"
            sizes = browser.evaluate(f"{shown}.map(r => r.width > 300 && r.height > 50)")
            self.assertEqual(sizes, [True, True, True])
            self.assertEqual(browser.complaints, [])
            others = [url for url in browser.requests if url not in (path.as_uri(), "data:,")]
            self.assertEqual(others, [])
