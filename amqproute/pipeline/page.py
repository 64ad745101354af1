# SPDX-License-Identifier: Apache-2.0
"""A self-contained HTML page: headings, sortable tables, and charts.

Much of its contents was chosen by others: message-ids, names of nodes and peers, error texts. So
markup is made by `tag` alone, which escapes all text that is not `PageMarkup`; unprintable
characters, and those that change the direction of writing, are shown as their codes; and the page
forbids itself every script but its own, and every request.

Why no template engine: with Jinja the same page took 65 lines of template and 55 of Python, where
`tag` and its callers take about a hundred. The columns to be shown still had to be chosen in
Python, the charts still needed `tag`, mypy sees no types in macros, and the output of filters such
as ``xmlattr`` does not pass through `visible`. Both take the same time.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from amqproute.printable import printable

__all__ = [
    "PageCell",
    "PageColumn",
    "PageMarkup",
    "note",
    "page",
    "section",
    "table",
    "tag",
    "tiles",
    "visible",
]

MOST_TEXT: Final = 300
"""Most characters of one cell."""


class PageMarkup(str):
    """Text that is HTML already."""

    __slots__ = ()


def visible(text: str) -> str:
    """Replace invisible characters by their codes; shorten very long text."""
    if len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + "…"
    return printable(text)


def tag(name: str, /, *children: object, **attributes: object) -> PageMarkup:
    """Make an element.

    Args:
        name: the name of the element.
        children: `PageMarkup`, and other things, whose text is escaped; None is left out.
        attributes: with a hyphen for ``_``, and ``class_`` for ``class``; None is left out. They
            are escaped; `PageMarkup` is not shortened.
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(
        child if isinstance(child, PageMarkup) else html.escape(_shown(child))
        for child in children
        if child is not None
    )
    return PageMarkup(f"<{name}{words}>" if name in _VOID else f"<{name}{words}>{inner}</{name}>")


def _shown(value: Any) -> str:
    return value if isinstance(value, PageMarkup) else visible(str(value))


def joined(parts: Iterable[PageMarkup]) -> PageMarkup:
    """Concatenate markup."""
    return PageMarkup("".join(parts))


@dataclass(frozen=True, slots=True)
class PageColumn:
    """A column of a table.

    Attributes:
        heading: over it.
        right: whether it is aligned right, as numbers are.
        code: whether it is in a fixed-width font, as identifiers are.
    """

    heading: str
    right: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell with a sort key other than its text."""

    text: str
    key: float


def table(
    caption: str,
    columns: Sequence[PageColumn],
    rows: Iterable[Sequence[object]],
    empty: str = "none",
) -> PageMarkup:
    """Make a table that is sorted by a click on a heading; columns without a value are left out.

    Args:
        caption: above it.
        columns: the columns.
        rows: their cells: text, numbers, `PageCell` or None.
        empty: text in place of a table without rows.
    """
    known = list(rows)
    if not known:
        return tag("p", f"{caption}: {empty}.", class_="empty")
    shown = [i for i in range(len(columns)) if any(row[i] is not None for row in known)]
    head = tag("tr", *(_heading(columns[i]) for i in shown))
    body = [tag("tr", *(_cell(columns[i], row[i]) for i in shown)) for row in known]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", head),
            tag("tbody", joined(body)),
            class_="sortable",
        ),
        class_="scroll",
    )


def _heading(column: PageColumn) -> PageMarkup:
    button = tag("button", column.heading, type="button")
    return tag("th", button, class_="right" if column.right else None, scope="col")


def _cell(column: PageColumn, value: Any) -> PageMarkup:
    kind = "right" if column.right else "code" if column.code else None
    if value is None:
        return tag("td", "-", class_=kind, data_key="")
    if isinstance(value, PageCell):
        return tag("td", value.text, class_=kind, data_key=value.key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return tag("td", f"{value:,}", class_=kind, data_key=value)
    return tag("td", value, class_=kind)


def tiles(values: Iterable[tuple[str, str, str]]) -> PageMarkup:
    """Show a few large numbers: their names, values, and remarks."""
    return tag(
        "div",
        *(
            tag(
                "div",
                tag("div", name, class_="name"),
                tag("div", value, class_="value"),
                tag("div", remark, class_="remark") if remark else None,
                class_="tile",
            )
            for name, value, remark in values
        ),
        class_="tiles",
    )


def note(text: str, state: str = "good", items: Iterable[str] = ()) -> PageMarkup:
    """Make a prominent sentence.

    Args:
        text: the sentence.
        state: ``good``, ``doubtful`` or ``bad``.
        items: details below it.
    """
    details = [tag("li", item) for item in items]
    mark = {"good": "✓", "doubtful": "?", "bad": "✗"}[state]
    inner = [tag("span", mark, class_="mark", aria_hidden="true"), tag("strong", text)]
    if details:
        inner.append(tag("ul", *details))
    return tag("div", *inner, class_=f"note {state}")


def section(title: str, question: str, *parts: PageMarkup) -> PageMarkup:
    """Make a section: its title, its question, and the answer."""
    return tag("section", tag("h2", title), tag("p", question, class_="question"), *parts)


def page(title: str, subtitle: str, *parts: PageMarkup) -> str:
    """Make the whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", PageMarkup(_STYLE)),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", subtitle)),
        tag("main", *parts),
        tag("script", PageMarkup(_SCRIPT)),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


_VOID: Final = {"meta", "link"}

_STYLE: Final = """
:root{--ink:#1c2430;--dim:#5b6675;--line:#d8dee6;--paper:#fff;--soft:#f4f6f9;
--good:#17803d;--doubtful:#96650a;--bad:#b42318;
--c0:#2f6fb2;--c1:#e08a1e;--c2:#3c9a5f;--c3:#b5484f;--c4:#7b61b0;--c5:#5b6675;--c6:#1f9aa8}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--dim:#9aa6b5;--line:#374151;--paper:#12161c;
--soft:#1b212a;--good:#4ac777;--doubtful:#e0b04a;--bad:#f0776c;--c0:#6fa8e0;--c1:#f0b060;
--c2:#6fca90;--c3:#e08088;--c4:#ac96dc;--c5:#9aa6b5;--c6:#5cc7d3}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
header,main{max-width:1080px;margin:0 auto;padding:0 24px}
header{padding-top:28px}h1{font-size:26px;margin:0}header p{color:var(--dim);margin:2px 0 12px}
section{border-top:1px solid var(--line);margin-top:28px;padding-top:12px}
h2{font-size:19px;margin:0}h3{font-size:15px;margin:18px 0 4px}
.question{color:var(--dim);margin:0 0 10px}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}
.tile{flex:1 1 130px;background:var(--soft);border-radius:8px;padding:10px 14px}
.tile .name,.tile .remark{color:var(--dim);font-size:13px}
.tile .value{font-size:24px;font-weight:600;font-variant-numeric:tabular-nums}
.note{border-left:4px solid var(--good);background:var(--soft);padding:9px 14px;margin:10px 0}
.note .mark{font-weight:700;margin-right:8px;color:var(--good)}
.note ul{margin:6px 0 0;padding-left:22px}
.note.doubtful{border-color:var(--doubtful)}.note.doubtful .mark{color:var(--doubtful)}
.note.bad{border-color:var(--bad)}.note.bad .mark{color:var(--bad)}
.scroll{overflow-x:auto;margin:14px 0}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding-bottom:4px}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{padding:0;background:var(--soft)}td.code{font:12.5px/1.6 ui-monospace,monospace;
overflow-wrap:anywhere}
th.right,td.right{text-align:right;white-space:nowrap}
th button{all:unset;cursor:pointer;padding:5px 10px;font-weight:600;font-size:13px;
box-sizing:border-box;width:100%}
th button:focus-visible{outline:2px solid var(--c0)}
th button::after{content:"\\2195";color:var(--line);padding-left:4px}
th[aria-sort=ascending] button::after{content:"\\2191";color:var(--ink)}
th[aria-sort=descending] button::after{content:"\\2193";color:var(--ink)}
.empty{color:var(--dim)}
figure{margin:16px 0}figcaption{font-weight:600;font-size:14px}
figcaption small{font-weight:400;color:var(--dim)}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--dim)}
svg .axis{stroke:var(--line)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;margin-top:2px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
.f0{fill:var(--c0);background:var(--c0)}.f1{fill:var(--c1);background:var(--c1)}
.f2{fill:var(--c2);background:var(--c2)}.f3{fill:var(--c3);background:var(--c3)}
.f4{fill:var(--c4);background:var(--c4)}.f5{fill:var(--c5);background:var(--c5)}
.f6{fill:var(--c6);background:var(--c6)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}
.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}
@media print{.scroll{overflow:visible}section{break-inside:avoid}}
"""

_SCRIPT: Final = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => {
      const cell = row.cells[column];
      return "key" in cell.dataset ? cell.dataset.key : cell.textContent;
    };
    const compare = (a, b) => {
      if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
      const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
      return up ? order : -order;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
  }));
}
"""

_POLICY: Final = PageMarkup(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; script-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    + "'"
)
