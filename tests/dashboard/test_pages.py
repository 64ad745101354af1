# SPDX-License-Identifier: Apache-2.0
"""Pages from rows: what is said where, and what strangers' text cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame
from amqproute.dashboard.management_source import Answer
from amqproute.dashboard.message_pages import life
from amqproute.dashboard.overview_pages import problems_of
from amqproute.dashboard.page_blocks import (
    AgeBars,
    Figures,
    LinkMap,
    LogLines,
    Note,
    Page,
    Problems,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.page_loaders import LOADERS
from amqproute.dashboard.peer_pages import MOST_TROUBLED
from amqproute.dashboard.queue_pages import age_bars
from amqproute.dashboard.recent_log import RecentLog
from amqproute.dashboard.row_values import Row
from tests.dashboard import samples
from tests.dashboard.samples import SampleSource, SampleView, made

RENDERER = HtmlRenderer()
FRAME = PageFrame("user:ann", "csrf", "broker1.alpha.example", "/ui/", "", "11:00:00")


Kind = TypeVar("Kind", bound="Table | Note | Problems | LinkMap | LogLines | Toolbar | Figures")


def block(page: Page, kind: type[Kind], key: str) -> Kind:
    """Return a block of a page."""
    (found,) = [each for each in page.blocks if isinstance(each, kind) and each.key == key]
    return found


def row(table: Table, key: str) -> TableRow:
    """Return a row of a table."""
    (found,) = [each for each in table.rows if each.key == key]
    return found


class Elements(HTMLParser):
    """Collects elements, attributes and ids of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of an element."""
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "action"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        """Take note of text."""
        self.text.append(data)


def read(document: str) -> Elements:
    """Read a document."""
    found = Elements()
    found.feed(document)
    return found


HOSTILE = st.text(
    st.one_of(
        st.sampled_from("<>\"'&{}%=/\\`;:\0\n\r\t\x1b\u202e\u2066\ufeff\ud800\U0001f600"),
        st.characters(),
    ),
    min_size=1,
    max_size=40,
)
NASTY = (
    "</title></script><script>alert(1)</script>\"><img src=x onerror=alert(1)>' onclick='alert(1)"
    "javascript:alert(1) {{ 7*7 }}{% for x in y %} ]]> --> //evil.example/ \u202egnp.exe"
)


def spoiled(value: object, text: str) -> object:
    """Return a row in which every text is a stranger's."""
    if isinstance(value, str):
        return text
    if isinstance(value, Mapping):
        return {key: spoiled(each, text) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [spoiled(each, text) for each in value]
    return value


def spoiled_broker(text: str) -> tuple[SampleSource, SampleView]:
    """Return the broker on fire, with a stranger's text in every field."""
    source, view = samples.on_fire()
    rows = {
        kind: [{**dict(each), **_row(each, text)} for each in found[:4]]
        for kind, found in source._rows.items()
    }
    answers = {
        name: Answer(answer.status, text, _row(answer.facts, text))
        for name, answer in source._answers.items()
    }
    view.log = RecentLog(lambda event: text)
    view.log({"log_time": 1.0, "log_namespace": text})
    return SampleSource(rows, answers, text), view


def _row(row: Row, text: str) -> Row:
    found = spoiled(row, text)
    assert isinstance(found, Mapping)
    return found


class HostileTests(SynchronousTestCase):
    """Names, reasons and errors that others have chosen."""

    def documents(self, text: str) -> Mapping[str, str]:
        found = {}
        for name in LOADERS:
            source, view = spoiled_broker(text)
            query = {"name": text, "id": text, "contains": text, "where": text, "message": text}
            page = made(name, query, source, view)
            frame = PageFrame(text, text, text, f"/ui/{name}", "", "11:00:00")
            found[name] = RENDERER.page(page, frame)
        found["login"] = RENDERER.log_in(text, text, text)
        return found

    def test_elements(self) -> None:
        """A page has the elements and attributes that it has with harmless text."""
        harmless = {name: read(each) for name, each in self.documents("harmless").items()}

        @settings(max_examples=max(1, settings.default.max_examples // 12))
        @given(HOSTILE)
        @example(NASTY)
        def check(text: str) -> None:
            for name, document in self.documents(text).items():
                document.encode("utf-8")
                found = read(document)
                self.assertEqual(found.tags, harmless[name].tags, name)
                self.assertLessEqual(found.attributes, harmless[name].attributes, name)
                for link in found.links:
                    self.assertTrue(link.startswith(("/ui/", "#")), f"{name}: {link!r}")
                shown = "".join(found.text).replace("\n", "")
                self.assertTrue(shown.isprintable(), f"{name}: {shown!r}")

        check()

    def test_policy(self) -> None:
        """Nothing is inline and nothing is of another host, as the content policy demands."""
        for make in samples.BROKERS.values():
            for name, query in samples.PAGES:
                found = read(RENDERER.page(made(name, query, *make()), FRAME))
                self.assertNotIn("style", found.attributes)
                self.assertNotIn("style", found.tags)
                self.assertFalse([each for each in found.attributes if each.startswith("on")])
                self.assertEqual(found.tags.count("script"), 1)
                self.assertFalse([each for each in found.links if "//" in each.partition("?")[0]])

    def test_ids(self) -> None:
        """Ids of elements are unique: by them, live changes find what they replace."""
        for make in samples.BROKERS.values():
            for name, query in samples.PAGES:
                found = read(RENDERER.page(made(name, query, *make()), FRAME)).ids
                self.assertEqual(len(found), len(set(found)), name)

    def test_long(self) -> None:
        """A text of a megabyte does not make a page of one."""
        source, view = spoiled_broker("x" * 1_000_000)
        document = RENDERER.page(made("", {}, source, view), FRAME)
        self.assertLess(len(document), 200_000)


class OverviewTests(SynchronousTestCase):
    """The overview."""

    def test_worst_first(self) -> None:
        """Critical findings come before warnings; a kind tells the number of further ones."""
        source, _ = samples.on_fire()
        found = problems_of(source._answers["STATUS"].facts)
        self.assertEqual([each.state for each in found], ["bad"] * 4 + ["doubtful"] * 5)
        (peer,) = [each for each in found if each.code == "peer.unreachable"]
        self.assertEqual((peer.subject, peer.more), ("beta.example", 61))
        self.assertEqual(peer.href, "/ui/peer?name=beta.example")
        self.assertEqual(peer.command, "amqproute peer test beta.example")

    def test_well(self) -> None:
        """Without problems it says so."""
        page = made("", {}, *samples.ordinary())
        self.assertEqual(block(page, Problems, "problems").problems, [])
        self.assertIn("All is well.", RENDERER.page(page, FRAME))

    def test_rates(self) -> None:
        """Rates come from the totals of the last two samples."""
        page = made("", {}, *samples.ordinary())
        values = {each.label: each.value for each in block(page, Figures, "figures").figures}
        self.assertEqual(values["taken"], "26.4/s")
        self.assertEqual(values["oldest waiting"], "4 s")

    def test_closed_mark(self) -> None:
        """A closed mark is marked, with its reason."""
        page = made("", {}, *samples.on_fire())
        cells = row(block(page, Table, "space"), "disk").cells
        self.assertEqual((cells[1].text, cells[1].state), ("closed", "bad"))
        self.assertIn("fewer than 5 GB", cells[1].detail)

    def test_not_allowed(self) -> None:
        """A user without the right to ask for the status gets the rest."""
        source, view = samples.ordinary()
        answers = {"STATUS": Answer(403, "user:ann may not", {})}
        page = made("", {}, SampleSource(source._rows, answers), view)
        self.assertIn("user:ann may not", block(page, Note, "refused").text)
        self.assertNotIn("All is well", RENDERER.page(page, FRAME))
        self.assertTrue(block(page, Figures, "figures").figures)


class PeerTests(SynchronousTestCase):
    """Organizations."""

    def test_troubled(self) -> None:
        """Those in trouble stand above a list of many, wherever in it they are, within a bound."""
        page = made("peers", {}, *samples.on_fire())
        shown = block(page, Table, "troubled")
        self.assertEqual(len(shown.rows), MOST_TROUBLED)
        self.assertEqual({each.state for each in shown.rows}, {"bad"})
        for query in ({"contains": "partner"}, {"cursor": "50"}):
            keys = [each.key for each in made("peers", query, *samples.on_fire()).blocks]
            self.assertNotIn("troubled", keys)
        self.assertNotIn("troubled", [x.key for x in made("peers", {}, *samples.ordinary()).blocks])

    def test_map(self) -> None:
        """The map has those in trouble first, and a bound."""
        page = made("peers", {}, *samples.on_fire())
        shown = block(page, LinkMap, "map")
        self.assertEqual(len(shown.peers), 16)
        self.assertEqual({each.state for each in shown.peers}, {"bad"})
        self.assertIn("16 of 64", shown.note)
        self.assertEqual(len(block(page, Table, "peers").rows), 50)
        self.assertIn("cursor=50", block(page, Table, "peers").more)

    def test_filter(self) -> None:
        """The filter and the cursor are in the links."""
        source, view = samples.on_fire()
        page = made("peers", {"contains": "partner", "cursor": "50"}, source, view)
        table = block(page, Table, "peers")
        self.assertEqual((len(table.rows), table.total), (10, 60))
        self.assertEqual(table.first, "/ui/peers?contains=partner")
        self.assertEqual(table.more, "")

    def test_failing(self) -> None:
        """The page of a failing link begins with the reason and the next step."""
        page = made("peer", {"name": "beta.example"}, *samples.on_fire())
        verdict = page.blocks[0]
        assert isinstance(verdict, Note)
        self.assertEqual(verdict.state, "bad")
        self.assertIn("tls.expired", verdict.text)
        self.assertEqual(verdict.commands[0].text, "amqproute peer test beta.example")
        self.assertIn("next attempt at 2026-11-22 11:05:40 UTC", verdict.items)
        way = block(page, Table, "way").rows[0]
        self.assertEqual(way.cells[3].detail, "TLSA records, signed")
        self.assertEqual((way.cells[4].text, way.cells[4].state), ("tls.expired", "bad"))

    def test_well(self) -> None:
        """The page of a link that works begins with what can be done."""
        page = made("peer", {"name": "beta.example"}, *samples.ordinary())
        self.assertIsInstance(page.blocks[0], Toolbar)

    def test_no_credit(self) -> None:
        """A connected peer without credit is told of."""
        source, view = samples.on_fire()
        page = made("peer", {"name": "epsilon.example"}, source, view)
        self.assertIn("gives no credit", block(page, Note, "verdict").text)

    def test_missing(self) -> None:
        """A next hop that does not exist is a page with 404."""
        page = made("peer", {"name": "nobody.example"}, *samples.ordinary())
        self.assertEqual(page.status, 404)

    def test_result(self) -> None:
        """The result of a test names the failed step and the cure."""
        page = samples.further()["test"]
        self.assertEqual(row(block(page, Table, "steps"), "2").state, "bad")
        self.assertIn("has to renew it", block(page, Note, "verdict").items[0])


class QueueTests(SynchronousTestCase):
    """Queues and messages."""

    def test_ages(self) -> None:
        """Ages are bars, and text for those who do not see them."""
        bars = age_bars(samples.shape("orders", 3, 0, 2))
        assert bars is not None
        self.assertEqual(bars.text, "3 up to 5 min, 2 up to 20 min")
        self.assertEqual((bars.total, bars.labels[-2:]), (5, ["up to 21.3 h", "older"]))
        page = made("queues", {}, *samples.ordinary())
        cells = row(block(page, Table, "queues"), "orders").cells
        self.assertIsInstance(cells[3].bars, AgeBars)
        self.assertIn('aria-label="37 up to 5 min"', RENDERER.page(page, FRAME))

    def test_foreign_shape(self) -> None:
        """A shape of other classes than its labels is not drawn."""
        self.assertIsNone(age_bars({"ages": [1, 2], "ages-minutes": [5, 10, 20]}))
        self.assertIsNone(age_bars(None))

    def test_ten_thousand(self) -> None:
        """Of ten thousand queues a page shows fifty, and asks for no more."""
        source, view = samples.ordinary()
        rows = {"queue": [samples.queue(f"q{n:05}", 1) for n in range(10_000)]}
        page = made("queues", {}, SampleSource(rows, source._answers), view)
        table = block(page, Table, "queues")
        self.assertEqual((len(table.rows), table.total), (50, 10_000))
        self.assertLess(len(RENDERER.page(page, FRAME)), 100_000)

    def test_nobody_receives(self) -> None:
        """Messages without a consumer are marked, except on relay queues."""
        page = made("queues", {"contains": "dead"}, *samples.on_fire())
        self.assertEqual(row(block(page, Table, "queues"), "dead").cells[5].state, "doubtful")
        relay = made("queue", {"name": "amqp$out/beta.example"}, *samples.on_fire())
        self.assertFalse([each for each in relay.blocks if isinstance(each, Note)])

    def test_relay_buttons(self) -> None:
        """A relay queue has the actions on outgoing messages, another queue those of queues."""
        relay = made("queue", {"name": "amqp$out/beta.example"}, *samples.on_fire())
        names = [each.action for each in block(relay, Toolbar, "tools").buttons]
        self.assertEqual(names, ["retry", "hold", "reroute", "expire", "delete-messages"])
        self.assertEqual(block(relay, Toolbar, "tools").buttons[0].values, [("to", "beta.example")])
        here = made("queue", {"name": "orders"}, *samples.ordinary())
        self.assertIn("purge", [each.action for each in block(here, Toolbar, "tools").buttons])

    def test_next_messages(self) -> None:
        """The selector and the cursor go into the request and into the link."""
        source, view = samples.on_fire()
        query = {"name": "orders", "where": "color = 'red'", "cursor": "here"}
        page = made("queue", query, source, view)
        (asked,) = [each for each in source.asked if each[0] == "LIST-MESSAGES"]
        self.assertEqual(asked[3], {"count": 50, "where": "color = 'red'", "cursor": "here"})
        table = block(page, Table, "messages")
        self.assertEqual(table.first, "/ui/queue?name=orders&where=color+%3D+%27red%27")
        self.assertIn("cursor=next", table.more)

    def test_refused(self) -> None:
        """A queue whose messages are hidden from the user says why."""
        source, view = samples.ordinary()
        answers = {"LIST-MESSAGES": Answer(403, "user:ann may not manage 'orders'", {})}
        page = made("queue", {"name": "orders"}, SampleSource(source._rows, answers), view)
        self.assertEqual(block(page, Table, "messages").empty, "user:ann may not manage 'orders'")

    def test_message(self) -> None:
        """The page of a message begins with why it waits, and offers the cure."""
        page = made("message", {"id": "9000"}, *samples.on_fire())
        why = page.blocks[0]
        assert isinstance(why, Note)
        self.assertIn("tls.expired", why.text)
        self.assertEqual(why.commands[1].text, "amqproute retry --to beta.example")
        actions = [each.action for each in block(page, Toolbar, "tools").buttons]
        self.assertEqual(actions[:2], ["peer-test", "retry"])
        self.assertEqual(block(page, LogLines, "life").empty, "No journal is kept.")

    def test_gone(self) -> None:
        """A message that has gone has a page that says so."""
        source, view = samples.ordinary()
        answers = {"WHY": Answer(404, "no queue holds a message with the id 7", {})}
        page = made("message", {"id": "7"}, SampleSource(source._rows, answers), view)
        self.assertIn("no queue holds", block(page, Note, "why").text)


class OtherPageTests(SynchronousTestCase):
    """The other pages."""

    def test_all(self) -> None:
        """Every page of every broker has its heading, its entry in the navigation and a title."""
        for make in samples.BROKERS.values():
            for name, query in samples.PAGES:
                page = made(name, query, *make())
                document = RENDERER.page(page, FRAME)
                self.assertEqual(document.count("<h1>"), 1, name)
                if page.status == 200:
                    self.assertEqual(document.count("aria-current"), 1, name)

    def test_holds(self) -> None:
        """A hold says what it holds, who made it, and can be released."""
        page = made("holds", {}, *samples.on_fire())
        cells = row(block(page, Table, "holds"), "h1").cells
        self.assertEqual(cells[1].text, "to gamma.example")
        assert cells[6].button is not None
        self.assertEqual(cells[6].button.values, [("name", "h1")])

    def test_log(self) -> None:
        """The log is restricted by level and by text, the newest line first."""
        page = made("log", {"level": "error"}, *samples.on_fire())
        labels = {each.label for each in block(page, LogLines, "lines").rows}
        self.assertEqual(labels, {"error", "critical"})
        page = made("log", {"contains": "attempt 7 "}, *samples.on_fire())
        (line,) = block(page, LogLines, "lines").rows
        self.assertIn("attempt 7 comes", line.text)

    def test_rights(self) -> None:
        """Log, users, rules and search of the journal are for those who may manage."""
        source, view = samples.on_fire()
        other = SampleSource(source._rows, source._answers, "user:bob", may_manage=False)
        for name in ("log", "users"):
            document = RENDERER.page(made(name, {}, other, view), FRAME)
            self.assertIn("takes the right to manage", document)
            self.assertNotIn("attempt 7", document)
            self.assertNotIn("SCRAM", document)

    def test_broker(self) -> None:
        """A bad certificate and a wrong clock are at the top of the page of the broker."""
        page = made("broker", {}, *samples.on_fire())
        first, second = page.blocks[:2]
        assert isinstance(first, Note)
        assert isinstance(second, Note)
        self.assertIn("our certificate ended", first.text)
        self.assertEqual(block(page, Toolbar, "tools").buttons[0].action, "accept-time")

    def test_bindings(self) -> None:
        """An exchange has its bindings in both directions."""
        page = made("exchange", {"name": "events"}, *samples.ordinary())
        cells = block(page, Table, "from").rows[0].cells
        self.assertEqual((cells[0].text, cells[2].text), ("orders", "eu.#"))

    def test_story(self) -> None:
        """The life of a message is in words, and failures are marked."""
        found = life(samples.story())
        self.assertEqual([each.state for each in found.rows], ["", "doubtful", "good"])
        self.assertIn("the queue for beta.example", found.rows[0].text)
