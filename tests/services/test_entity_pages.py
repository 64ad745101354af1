# SPDX-License-Identifier: Apache-2.0
"""Parts of long lists of entities: what they have, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from amqproute.address import host_label, host_of
from amqproute.services.entity_names import EntityNames, EntityTable
from amqproute.services.entity_pages import (
    NAMES_IN_TURN,
    EntityPage,
    EntityQuery,
    make_named_page,
    make_page,
)
from amqproute.services.management_rows import Row
from tests.support.turn_clock import TurnClock

MANY = 10_000


class CountedNames(Sequence[str]):
    """Names that count how often one is looked at."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.looks = 0

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        self.looks += 1
        return self.names[place]


class PageCase(SynchronousTestCase):
    """Pages of names in two tables, one of them without virtual hosts."""

    def setUp(self) -> None:
        self.clock = TurnClock()
        self.made: list[str] = []
        self.turns = 0

    def fill(self, names: Sequence[str], others: Sequence[str] = ()) -> None:
        """Have these names."""
        self.names, self.others = CountedNames(sorted(names)), CountedNames(sorted(others))
        self.entities = EntityNames(
            EntityTable(lambda: self.names, lambda name: self.row(name, self.names)),
            EntityTable(lambda: self.others, lambda name: self.row(name, self.others), "", False),
        )

    def row(self, name: str, table: CountedNames) -> Row:
        """Make a row."""
        if name not in table.names:
            raise KeyError(name)
        self.made.append(name)
        return {"name": name, "length": len(name)}

    def pause(self) -> Deferred[None]:
        """Wait for the next turn."""
        return deferLater(self.clock, 0)

    def page(self, **asked: object) -> EntityPage:
        """Return a page."""
        found: list[EntityPage] = []
        query = EntityQuery(**asked)  # type: ignore[arg-type] # as the tests give it
        making = Deferred.fromCoroutine(make_named_page(self.pause, self.entities, dict, query))
        making.addCallback(found.append)
        while not found and self.clock.turn():
            self.turns += 1
        self.successResultOf(making)
        return found[0]

    def all_pages(self, **asked: object) -> Iterator[EntityPage]:
        """Go through all pages."""
        cursor = ""
        while True:
            page = self.page(cursor=cursor, **asked)
            yield page
            cursor = page.cursor
            if not cursor:
                return


class ContentTests(PageCase):
    """What pages have."""

    @given(
        st.sets(st.sampled_from(["a", "b", "c", "//x/a", "//x/b", "//xy/a", "/0", "0", "~"])),
        st.sets(st.sampled_from(["amqp$out/a", "amqp$out/b"])),
        st.sampled_from([None, "/", "x", "xy", "y"]),
        st.sampled_from(["", "*a", "*x*", "a"]),
        st.integers(1, 4),
    )
    def test_as_before(
        self, names: set[str], others: set[str], host: str | None, pattern: str, limit: int
    ) -> None:
        """They have the same rows and totals as a list of everything that is sorted and cut."""
        self.fill([*names], [*others])
        index = [(name, lambda name: {"name": name, "length": len(name)}) for name in
                 (*names, *others)]  # fmt: skip

        def host_there(name: str) -> str | None:
            return None if name in others else host_label(host_of(name))

        cursor = ""
        while True:
            query = EntityQuery(pattern, {}, host, limit, cursor)
            page = self.page(name=pattern, host=host, limit=limit, cursor=cursor)
            older = Deferred.fromCoroutine(
                make_page(
                    self.pause,
                    [each for each in index if host in (None, host_there(each[0]))],
                    list,
                    dict,
                    query,
                )
            )
            self.assertEqual(page, self.successResultOf(older))
            cursor = page.cursor
            if not cursor:
                return

    def test_wanted(self) -> None:
        """Attributes restrict rows; then there is no total."""
        self.fill(["a", "bb", "c", "dd", "ee"])
        found = list(self.all_pages(wanted={"length": "2"}, limit=2))
        self.assertEqual([[row["name"] for row in each.rows] for each in found],
                         [["bb", "dd"], ["ee"]])  # fmt: skip
        self.assertEqual({each.total for each in found}, {None})

    def test_gone_and_come(self) -> None:
        """An entity that goes while a page is made is left out; the next page goes on behind it."""
        self.fill([f"{number:03}" for number in range(120)])
        making = Deferred.fromCoroutine(
            make_named_page(self.pause, self.entities, dict, EntityQuery(limit=80))
        )
        self.names.names.remove("050")
        self.names.names.insert(0, "000a")
        self.clock.pump([0] * 10)
        page = self.successResultOf(making)
        self.assertNotIn("050", [row["name"] for row in page.rows])
        following = self.page(cursor=page.cursor)
        self.assertEqual(following.rows[0]["name"], "081")

    def test_row(self) -> None:
        """One entity is found in whichever table it is."""
        self.fill(["a"], ["amqp$out/b"])
        self.assertEqual(self.entities.row("amqp$out/b")["name"], "amqp$out/b")
        self.assertEqual(self.entities.row("a")["name"], "a")
        with self.assertRaises(KeyError):
            self.entities.row("b")
        self.assertEqual(self.names.looks + self.others.looks, 0)


class CostTests(PageCase):
    """What a page costs, in names looked at, rows made and turns taken."""

    def setUp(self) -> None:
        super().setUp()
        self.fill(
            [f"//shop/queue-{number:05}" for number in range(MANY)],
            [f"amqp$out/org-{number:04}.example" for number in range(1000)],
        )

    def test_each_part(self) -> None:
        """Each of two hundred parts looks at what it shows, and some names for the search."""
        count = 0
        for page in self.all_pages(limit=50):
            count += len(page.rows)
            self.assertEqual(page.total, MANY + 1000)
            self.assertLessEqual(len(self.made), 51)
            self.assertLessEqual(self.names.looks + self.others.looks, 170)
            self.made.clear()
            self.names.looks = self.others.looks = 0
        self.assertEqual(count, MANY + 1000)

    def test_host(self) -> None:
        """A virtual host is a run of names: no name of another one is looked at."""
        page = self.page(host="shop", limit=50)
        self.assertEqual((len(page.rows), page.total), (50, MANY))
        self.assertLess(self.names.looks, 250)
        self.assertEqual(self.page(host="other").total, 0)
        self.assertLess(self.names.looks, 400)

    def test_pattern(self) -> None:
        """A pattern is compared with all names, in slices, and makes the rows that it shows."""
        page = self.page(name="*-09*", limit=50)
        self.assertEqual((len(page.rows), page.total), (50, 1100))
        self.assertEqual(len(self.made), 50)
        self.assertGreaterEqual(self.turns, (MANY + 1000) // NAMES_IN_TURN)
        self.assertLess(self.names.looks + self.others.looks, MANY + 1000 + 500)
