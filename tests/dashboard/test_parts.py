# SPDX-License-Identifier: Apache-2.0
"""Units, charts, history, the recent log, live changes and feeds, actions, and the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from amqproute.dashboard import display_units as units
from amqproute.dashboard import journal_search, recent_log
from amqproute.dashboard.display_units import age, countdown
from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame, row_id
from amqproute.dashboard.journal_search import JournalBusy, JournalSearch
from amqproute.dashboard.line_chart import ceiling, line_chart
from amqproute.dashboard.live_changes import LivePage
from amqproute.dashboard.live_feed import LiveFeed
from amqproute.dashboard.management_source import Answer
from amqproute.dashboard.page_actions import (
    ACTIONS,
    InvalidAction,
    body_of,
    confirmation_page,
    form_page,
    outcome_page,
)
from amqproute.dashboard.page_blocks import (
    Cell,
    Column,
    Facts,
    Figure,
    Figures,
    FormPanel,
    LogLines,
    LogRow,
    Note,
    Page,
    Problem,
    Table,
    TableRow,
)
from amqproute.dashboard.recent_log import RecentLog
from amqproute.dashboard.traffic_history import MOST_SAMPLES, TrafficHistory, TrafficSample
from amqproute.journal.record import JournalRecord
from amqproute.services.management_table import ENTITIES, OPERATIONS
from tests.dashboard import samples
from tests.journal.rig import Desk

RENDERER = HtmlRenderer()
FRAME = PageFrame()


class UnitTests(SynchronousTestCase):
    """Numbers as they are shown."""

    def test_units(self) -> None:
        """Sizes, ages and rates."""
        self.assertEqual(
            [units.size(each) for each in (None, 0, 999, 1000, 999_949, 1_843_000, 5e9, 7e15)],
            [units.DASH, "0 B", "999 B", "1.0 kB", "999.9 kB", "1.8 MB", "5.0 GB", "7000.0 TB"],
        )
        self.assertEqual(
            [units.age(each * 1000) for each in (0, 59, 60, 3599, 3600, 172_799, 172_800)],
            ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "47 h 59 min", "2 d 0 h"],
        )
        self.assertEqual([units.rate(each) for each in (0.0, 99.94, 1234.5)],
                         ["0.0/s", "99.9/s", "1,234/s"])  # fmt: skip
        self.assertEqual(units.countdown(5000, 1000), "in 4 s")
        self.assertEqual(units.countdown(1000, 5000), "now")
        self.assertEqual(units.countdown(0, 5000), units.DASH)

    @given(st.integers(-(1 << 70), 1 << 70))
    def test_any_time(self, ms: int) -> None:
        """No number of a row breaks a page."""
        units.age(ms)
        units.date_time(ms)
        units.size(ms)

    def test_address(self) -> None:
        """Parameters are encoded; empty ones are left out."""
        self.assertEqual(
            units.address("queue", name="//shop/a&b=c#d", cursor=""),
            "/ui/queue?name=%2F%2Fshop%2Fa%26b%3Dc%23d",
        )


class ChartTests(SynchronousTestCase):
    """Line charts."""

    @given(st.floats(1e-3, 1e12) | st.just(0.0))
    def test_ceiling(self, value: float) -> None:
        """The upper edge is above the line, and not far."""
        top = ceiling(value)
        self.assertGreaterEqual(top * (1 + 1e-9), value)
        self.assertLessEqual(top, max(1.0, value * 2.5))

    def test_gap(self) -> None:
        """A missing value interrupts the line."""
        values = [None, 1.0, 2.0, None, 4.0, 2.0]
        made = line_chart("c", "Chart", [0, 1, 2, 3, 4, 5], [("a", values)], units.number)
        self.assertEqual(made.series[0].points, ["120.0,96.0 240.0,72.0", "480.0,24.0 600.0,72.0"])
        self.assertEqual((made.top, made.series[0].latest), ("5", "2"))

    def test_empty(self) -> None:
        """A chart without values says that it collects them."""
        made = line_chart("c", "Chart", [], [("a", [])], units.number)
        self.assertEqual((made.begin, list(made.series[0].points)), ("", []))
        self.assertIn("collecting", RENDERER.block(made, FRAME))


class HistoryTests(SynchronousTestCase):
    """Traffic of the last minutes."""

    def test_rates(self) -> None:
        """A rate is known between two samples, and not after a queue was deleted or a jump."""
        history = TrafficHistory()
        self.assertIsNone(history.rate("taken"))
        for at_ms, taken in ((0, 100), (5000, 150), (10_000, 20), (15_000, 45), (900_000, 50)):
            history.add(TrafficSample(at_ms, taken))
        self.assertEqual(history.rates("taken"), [None, 10.0, None, 5.0, None])

    def test_bound(self) -> None:
        """Old samples are dropped."""
        history = TrafficHistory()
        for number in range(MOST_SAMPLES + 5):
            history.add(TrafficSample(number, here=number))
        self.assertEqual(len(history.times_ms), MOST_SAMPLES)
        self.assertEqual(history.values("here")[0], 5)


class LogTests(SynchronousTestCase):
    """The last lines of the log."""

    def test_bounds(self) -> None:
        """Lines are bounded in number and length."""
        log = RecentLog(lambda event: "x" * 10_000)
        for number in range(recent_log.MOST_LINES + 10):
            log({"log_time": float(number), "log_level": LogLevel.info})
        found = log.lines(most=5000)
        self.assertEqual(len(found), recent_log.MOST_LINES)
        self.assertEqual(found[0].at_ms, 10_000)
        self.assertEqual(len(found[0].text), recent_log.LONGEST_LINE)

    def test_levels(self) -> None:
        """A level stands for itself and what is worse; an unknown one for all."""
        log = RecentLog(lambda event: event["text"])
        for level in (LogLevel.debug, LogLevel.info, LogLevel.warn, LogLevel.error):
            log({"log_time": 0.0, "log_level": level, "text": f"It is {level.name}"})
        self.assertEqual([each.level for each in log.lines("warn")], ["warn", "error"])
        self.assertEqual(len(log.lines("loud")), 3)  # those for debugging are not kept
        self.assertEqual([each.level for each in log.lines(contains="IS INFO")], ["info"])


def table(*rows: tuple[str, str]) -> Table:
    """Return a table with rows of a key and a value."""
    made = [TableRow(key, [Cell(key), Cell(value)]) for key, value in rows]
    return Table("t", "Table", [Column("key"), Column("value")], made)


class ChangeTests(SynchronousTestCase):
    """The octets for a browser."""

    def test_row(self) -> None:
        """Only the rows that have changed are sent while the table has the same rows."""
        note = Note("n", "same")
        live = LivePage(RENDERER, FRAME, Page("p", [note, table(("a", "1"), ("b", "1"))]))
        change = live.change(Page("p", [note, table(("a", "1"), ("b", "2"))]), "now")
        (html,) = change.elements.values()
        self.assertTrue(html.startswith("<tr"))
        self.assertIn(">2<", html)
        self.assertEqual(change.blocks, "")
        again = live.change(Page("p", [note, table(("a", "1"), ("b", "2"))]), "")
        self.assertEqual(again.elements, {})

    def test_come_and_gone(self) -> None:
        """Of rows that come and go, the new ones are sent, and the order of all."""
        before = table(("a", "1"), ("b", "1"), ("c", "1"))
        after = replace(table(("d", "1"), ("c", "1"), ("b", "2")), total=3, more="/ui/more")
        live = LivePage(RENDERER, FRAME, Page("p", [before]))
        change = live.change(Page("p", [after]), "now")
        ids = [row_id(after, row) for row in after.rows]
        self.assertEqual(set(change.elements), {ids[0], ids[2], "h-t", "p-t"})
        self.assertEqual(change.orders, {"b-t": ids})
        self.assertIn(">3<", change.elements["h-t"])
        self.assertIn("/ui/more", change.elements["p-t"])
        self.assertEqual(json.loads(change.encode())["orders"], {"b-t": ids})

    def test_block(self) -> None:
        """Another block is sent whole, as is a table that was empty, or has doubtful keys."""
        live = LivePage(RENDERER, FRAME, Page("p", [Note("n", "old"), table()]))
        change = live.change(Page("p", [Note("n", "new"), table(("b", "1"))]), "now")
        self.assertEqual(set(change.elements), {"b-n", "b-t"})
        change = live.change(Page("p", [Note("n", "new"), table(("b", "1"), ("b", "2"))]), "now")
        self.assertEqual(set(change.elements), {"b-t"})
        change = live.change(Page("p", [Note("n", "new"), table()]), "now")
        self.assertEqual((set(change.elements), change.orders), ({"b-t"}, {}))

    def test_lines(self) -> None:
        """A log is sent line by line, two equal lines apart."""

        def lines(*texts: str) -> Page:
            return Page("p", [LogLines("l", "", [LogRow("now", "info", each) for each in texts])])

        live = LivePage(RENDERER, FRAME, lines("b", "a"))
        change = live.change(lines("b", "c", "b", "a"), "now")
        (order,) = change.orders.values()
        self.assertEqual(len(order), 4)
        self.assertEqual(sorted(change.elements), sorted(set(order[:2])))
        self.assertEqual(live.change(lines("b", "c", "b"), "now").orders, {"b-l": order[:3]})
        self.assertEqual(set(live.change(lines(), "now").elements), {"b-l"})

    def test_other_blocks(self) -> None:
        """If blocks come or go, all are sent."""
        live = LivePage(RENDERER, FRAME, Page("p", [table()]))
        change = live.change(Page("p", [Note("n", "bad"), table()]), "now")
        self.assertIn('id="b-n"', change.blocks)
        self.assertIn('id="b-t"', change.blocks)

    def test_first(self) -> None:
        """A browser whose page is not known gets all."""
        change = LivePage(RENDERER, FRAME).change(Page("p", [table()]), "now")
        self.assertIn('id="b-t"', change.blocks)

    def test_forms(self) -> None:
        """A form is never replaced."""
        old, new = (FormPanel("f", title, "/ui/act", [], "Go") for title in ("a", "b"))
        live = LivePage(RENDERER, FRAME, Page("p", [old]))
        self.assertEqual(live.change(Page("p", [new]), "").elements, {})

    def test_ages(self) -> None:
        """An age that goes on is not sent; one that does not is, and is counted from there."""

        def page(second: int, *ages: int, told: str = "") -> Page:
            rows = [
                TableRow(str(n), [Cell(str(n)), Cell(age(each))]) for n, each in enumerate(ages)
            ]
            columns = [Column("name"), Column("age", "number")]
            facts = Facts("f", "", [("age", Cell(age(ages[0]))), ("told", Cell(told))])
            figures = Figures("g", [Figure("oldest", age(ages[0])), Figure("told", told)])
            return Page("p", [Table("t", "", columns, rows), facts, figures], at_ms=1000 * second)

        live = LivePage(RENDERER, FRAME, page(0, 5000, 100_000))
        for second in range(1, 300):  # a little earlier or later than the clock
            jitter = (second % 3 - 1) * 300
            now = page(second, 5000 + 1000 * second + jitter, 100_000 + 1000 * second - jitter)
            self.assertEqual(live.change(now, "now").elements, {})
        for second in range(300, 310):  # the oldest is always five minutes old now
            change = live.change(page(second, 304_000, 100_000 + 1000 * second), "now")
            # The row, the fact and the figure, as soon as they are two seconds off.
            self.assertEqual(len(change.elements), 3 if second % 2 else 0)
        change = live.change(page(310, 0, 410_000), "now")
        self.assertEqual({key[:2] for key in change.elements}, {"r-", "b-"})
        self.assertEqual(len(change.elements), 3)
        self.assertIn('datetime="PT0S"', "".join(change.elements.values()))
        self.assertEqual(live.change(page(315, 5000, 415_000), "now").elements, {})
        change = live.change(page(316, 6000, 416_000, told="x"), "now")
        self.assertEqual(set(change.elements), {"b-f", "b-g"})
        self.assertIn('datetime="PT6S"', change.elements["b-f"])
        self.assertEqual(len(live._sent_ms), 5)

    def test_countdown(self) -> None:
        """Neither is the time until a moment, until it has come."""

        def page(second: int) -> Page:
            cell = Cell(countdown(10_000, 1000 * second))
            return Page("p", [Facts("f", "", [("next", cell)])], at_ms=1000 * second)

        self.assertIn('<time class="counted down" datetime="PT9S">in 9 s</time>',
                      RENDERER.block(page(1).blocks[0], FRAME))  # fmt: skip
        live = LivePage(RENDERER, FRAME, page(0))
        for second in range(1, 10):
            self.assertEqual(live.change(page(second), "now").elements, {})
        self.assertEqual(set(live.change(page(10), "now").elements), {"b-f"})

    def test_alarms(self) -> None:
        """The mark in the header follows the verdicts."""
        live = LivePage(RENDERER, FRAME, Page("p", []))
        change = live.change(Page("p", [], alarms=[Problem("bad", "disk", "full")]), "now")
        self.assertIn("1 problem", change.elements["alarms"])
        self.assertEqual(json.loads(change.encode())["time"], "now")


class Sink:
    """Takes events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.is_open = True

    def send(self, event: str, data: str, event_id: str = "") -> bool:
        """See `EventSink`."""
        self.events.append((event, data))
        return self.is_open

    def close(self) -> None:
        """See `EventSink`."""
        self.is_open = False


class FeedTests(SynchronousTestCase):
    """The changes of a page, once a second."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sink = Sink()
        self.made = 0
        self.is_open = True
        self.answers: list[Deferred[Page]] = []

    def feed(self, make: Callable[[], Deferred[Page]]) -> LiveFeed:
        return LiveFeed(
            self.clock, make, LivePage(RENDERER, FRAME), self.sink, lambda: 0, lambda: self.is_open
        )

    def page(self) -> Deferred[Page]:
        self.made += 1
        return succeed(Page("p", [Note("n", f"number {self.made}")]))

    def test_each_second(self) -> None:
        """The page is made once a second until the stream ends."""
        self.feed(self.page).start()
        self.clock.pump([0.5, 0.5, 0.5, 0.5])
        self.assertEqual([event for event, _ in self.sink.events], ["change"] * 3)
        self.assertIn("number 3", self.sink.events[-1][1])
        self.sink.is_open = False
        self.clock.pump([1, 1, 1])
        self.assertEqual(len(self.sink.events), 4)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def slow(self) -> Deferred[Page]:
        answer: Deferred[Page] = Deferred()
        self.answers.append(answer)
        return answer

    def test_slow(self) -> None:
        """A page that takes two seconds is made every twenty, and never twice at a time."""
        self.feed(self.slow).start()
        self.clock.advance(2)
        self.assertEqual(len(self.answers), 1)
        self.answers[0].callback(Page("p", []))
        self.clock.pump([10, 9])
        self.assertEqual(len(self.answers), 1)
        self.clock.advance(1)
        self.assertEqual(len(self.answers), 2)

    def test_gone(self) -> None:
        """An answer that comes after the end goes nowhere."""
        feed = self.feed(self.slow)
        feed.start()
        feed.stop()
        self.answers[0].callback(Page("p", []))
        self.assertEqual(self.sink.events, [])

    def test_logged_out(self) -> None:
        """The stream ends with the session."""
        self.feed(self.page).start()
        self.is_open = False
        self.clock.advance(1)
        self.assertEqual(self.sink.events[-1][0], "gone")
        self.assertFalse(self.sink.is_open)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_failure(self) -> None:
        """A page that cannot be made ends the stream and is logged."""

        def fail() -> Deferred[Page]:
            raise KeyError("a fault of ours")

        self.feed(fail).start()
        self.assertFalse(self.sink.is_open)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)


class ActionTests(SynchronousTestCase):
    """An operator's actions."""

    def test_operations(self) -> None:
        """Each action is an operation of management, on a type of entities that it has."""
        for key, action in ACTIONS.items():
            self.assertIn(action.operation, OPERATIONS, key)
            changes = OPERATIONS[action.operation].changes
            self.assertTrue(changes or key == "forget-dns", key)
            self.assertIn(action.kind, {*ENTITIES, "", "broker", "relay-queue"}, key)

    def test_body(self) -> None:
        """Parameters go into the body; ids as numbers."""
        found = body_of(ACTIONS["retry"], {"ids": "4711, 4712", "to": "", "where": ""})
        self.assertEqual(found, {"ids": [4711, 4712]})
        found = body_of(ACTIONS["hold"], {"to": " beta.example ", "reason": "moving"})
        self.assertEqual(found, {"to": "beta.example", "reason": "moving"})

    def test_invalid(self) -> None:
        """Missing and wrong fields are named."""
        for key, values, words in (
            ("retry", {}, "say which messages"),
            ("retry", {"ids": "seven"}, "ids are numbers"),
            ("retry", {"ids": " ".join(["1"] * 1001)}, "ids are numbers"),
            ("hold", {"to": "beta.example"}, "Reason is empty"),
            ("purge", {}, "name is missing"),
            ("move", {"name": "orders", "target": "x" * 2000}, "longer than"),
        ):
            with self.assertRaisesRegex(InvalidAction, words):
                body_of(ACTIONS[key], values)

    def test_steps(self) -> None:
        """The form asks, the confirmation shows the dry run and repeats the parameters."""
        action, values = ACTIONS["hold"], {"to": "beta.example", "where": "", "reason": "moving"}
        asked = form_page("hold", action, values, "", "/ui/holds")
        form = asked.blocks[-1]
        assert isinstance(form, FormPanel)
        self.assertEqual([each.name for each in form.fields], ["to", "where", "reason"])
        self.assertIn(("filled-in", "yes"), form.hidden)
        answer = Answer(200, "12 messages", {"messages": 12, "bytes": 5000, "dry-run": True})
        shown = confirmation_page("hold", action, values, answer, "/ui/holds")
        form = shown.blocks[-1]
        assert isinstance(form, FormPanel)
        self.assertEqual(
            form.hidden,
            [("action", "hold"), ("to", "beta.example"), ("reason", "moving"),
             ("back", "/ui/holds"), ("confirmed", "yes")],
        )  # fmt: skip
        (result,) = [x for x in shown.blocks if isinstance(x, Facts) and x.key == "result"]
        self.assertEqual(dict(result.pairs)["messages"].text, "12")

    def test_refused(self) -> None:
        """A dry run that is refused leaves nothing to confirm."""
        answer = Answer(403, "user:ann may not manage 'orders'", {})
        shown = confirmation_page("purge", ACTIONS["purge"], {"name": "orders"}, answer, "")
        self.assertFalse([each for each in shown.blocks if isinstance(each, FormPanel)])
        self.assertIn("user:ann may not", RENDERER.page(shown, FRAME))

    def test_outcome(self) -> None:
        """The result is told in words, good or bad."""
        for status, state in ((200, "good"), (409, "bad")):
            shown = outcome_page(ACTIONS["purge"], {"name": "orders"}, Answer(status, "x", {}), "")
            note = shown.blocks[0]
            assert isinstance(note, Note)
            self.assertEqual(note.state, state)


class JournalTests(SynchronousTestCase):
    """Searches of the journal."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.running: list[tuple[Deferred[Sequence[JournalRecord]], Callable[[], object]]] = []
        self.search = JournalSearch(Path(self.mktemp()), self.clock, self.in_thread)
        self.addCleanup(self.finish)

    def finish(self) -> None:
        """End the searches that run and wait: coroutines left waiting fail in a later test."""
        for answer, _ in self.running:  # grows meanwhile
            if not answer.called:
                answer.callback([])

    def in_thread(
        self, work: Callable[[], Sequence[JournalRecord]]
    ) -> Deferred[Sequence[JournalRecord]]:
        answer: Deferred[Sequence[JournalRecord]] = Deferred()
        self.running.append((answer, work))
        return answer

    def ask(self, entry: int) -> Deferred[Sequence[JournalRecord]]:
        return Deferred.fromCoroutine(self.search.life(entry=entry))

    def test_one_at_a_time(self) -> None:
        """Searches take turns, and what was found is remembered for a while."""
        first, second = self.ask(1), self.ask(2)
        again = self.ask(1)
        self.assertEqual(len(self.running), 1)
        self.running[0][0].callback(samples.story())
        self.assertEqual(len(self.successResultOf(first)), 3)
        self.running[1][0].callback([])
        self.assertEqual(self.successResultOf(second), [])
        self.assertEqual(len(self.successResultOf(again)), 3)
        self.assertEqual(len(self.running), 2)
        self.clock.advance(journal_search.REMEMBERED_SECONDS + 1)
        self.ask(1)
        self.assertEqual(len(self.running), 3)

    def test_too_many(self) -> None:
        """Of too many searches the last are refused."""
        waiting = [self.ask(number) for number in range(journal_search.MOST_WAITING + 2)]
        self.failureResultOf(waiting[-1], JournalBusy)
        self.assertNoResult(waiting[-2])

    def test_looks_at_the_end(self) -> None:
        """One reads the last records at a time, beside a walk, and others share what it found."""
        self.ask(1)
        looks = [Deferred.fromCoroutine(self.search.last("", "orders")) for _ in range(3)]
        other = Deferred.fromCoroutine(self.search.last("recovery"))
        self.assertEqual(len(self.running), 2)
        self.running[1][0].callback(samples.story())
        for each in looks:
            self.assertEqual(len(self.successResultOf(each)), 3)
        self.assertEqual(len(self.running), 3)
        self.running[2][0].callback([])
        self.assertEqual(self.successResultOf(other), [])
        self.clock.advance(journal_search.LAST_SECONDS + 0.1)
        Deferred.fromCoroutine(self.search.last("", "orders"))
        self.assertEqual(len(self.running), 4)

    def test_failure(self) -> None:
        """A search that fails does not stop the next one."""
        first, second = self.ask(1), self.ask(2)
        self.running[0][0].errback(OSError("gone"))
        self.failureResultOf(first, OSError)
        self.running[1][0].callback([])
        self.assertEqual(self.successResultOf(second), [])

    def test_last(self) -> None:
        """The last records come from the end of the newest file."""
        desk = Desk(Path(self.mktemp()))
        desk.open()
        for number in range(0, 3000, 50):
            desk.note(*range(number, number + 50))
        desk.close()
        self.patch(journal_search, "TAIL_BYTES", 8192)
        found = journal_search.last_records(desk.directory, 20)
        entries = [each.entry for each in found if each.entry is not None]
        self.assertEqual(entries, list(range(3000 - len(entries), 3000)))
        self.assertGreater(len(entries), 10)
        self.assertLess(len(journal_search.last_records(desk.directory, 5000)), 2000)
        kinds = {each.kind for each in journal_search.last_records(desk.directory, 9, "recovery")}
        self.assertEqual(kinds, {"recovery"})
        self.assertEqual(journal_search.last_records(desk.directory, 20, node="elsewhere"), [])
