# SPDX-License-Identifier: Apache-2.0
"""What becomes of events: records that are whole, and no longer than others' have room for."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.entry import Entry
from amqproute.journal.events import Arrivals, Event, Gone, Told
from amqproute.journal.record import LONGEST_NAME, LONGEST_RUN, Kind, named
from amqproute.journal.recovery import begun_by
from amqproute.values import Origin
from tests.journal.rig import ANN, entry

LONG = 300_000


def told(event: Event) -> dict[str, Any]:
    """Return what the only run of an event says, all of it."""
    (run,) = event.runs()
    return {**json.loads(run.shared), **json.loads(run.columns)}


def came(*entries: Entry, node: str = "q", link: str = "l") -> Arrivals:
    origin = Origin(ANN, link=link)
    return Arrivals(1, [(node, each, origin, b"", None) for each in entries], "")


class LengthTests(SynchronousTestCase):
    """What others have chosen has a bound; what is worth nothing in part has none."""

    def test_stock_is_whole(self) -> None:
        """The ranges of a stock are never cut: what is cut off would count as lost."""
        ranges = " ".join(map(str, range(1, 10_000, 2)))
        self.assertEqual(told(Told(Kind.STOCK, 1, {"ranges": ranges}))["ranges"], ranges)

    def test_words_are_cut(self) -> None:
        """Words are."""
        self.assertEqual(len(told(Told(Kind.GAP, 1, {"words": "x" * LONG}))["words"]), 256)

    def test_names(self) -> None:
        """Ids, addresses, nodes and links of any length take no more than a few hundred octets."""
        for name in ("\x01" * LONG, b"\xff" * LONG):
            entries = [
                entry(each, message_id=name, to=f"{each}" + "x" * LONG)
                for each in range(LONGEST_RUN)
            ]
            arrival = came(
                *entries,
                node="n" * LONG,
                link="k" * LONG,
            )
            (run,) = arrival.runs()
            self.assertLess(len(run.shared) + len(run.columns), 64 * 2 * 1024)
        gone = Gone(Kind.DELIVERED, 1, "n" * LONG, [entry(1)])
        self.assertEqual(told(gone)["node"], named("n" * LONG))
        self.assertEqual(told(came(entry(1), node="n" * LONG))["node"], named("n" * LONG))

    def test_long_ids_stay_different(self) -> None:
        """Two long ids with the same beginning are two; equal ones are one."""
        one, other, again = (
            told(came(entry(1, message_id="i" * LONG + end)))["message_id"] for end in "aba"
        )
        self.assertNotEqual(one, other)
        self.assertEqual(one, again)
        self.assertEqual(one, named("i" * LONG + "a"))
        self.assertEqual(named("i" * LONGEST_NAME), "i" * LONGEST_NAME)


class BegunTests(SynchronousTestCase):
    """Which entries a run begins."""

    def test_one_and_many(self) -> None:
        """A run of one record has its entry where others have what all of them share."""
        for count in (1, 2, 3):
            (run,) = came(*map(entry, range(1, count + 1))).runs()
            self.assertEqual(begun_by(run), list(range(1, count + 1)))
