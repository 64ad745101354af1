# SPDX-License-Identifier: Apache-2.0
"""Pages of a broker with 10,000 queues and 1,000 next hops: counted in rows, looks and octets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.broker.name_table import NameTable
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.dashboard.html_renderer import ROWS_IN_TURN, HtmlRenderer, PageFrame
from amqproute.dashboard.live_changes import LivePage
from amqproute.dashboard.management_door import ManagementDoor
from amqproute.dashboard.management_source import ROWS_SHOWN
from amqproute.dashboard.page_blocks import LinkMap, Page, Table
from amqproute.dashboard.page_loaders import LOADERS
from amqproute.http.requester import Requester
from amqproute.services.entity_names import EntityNames, EntityTable
from amqproute.services.entity_pages import SLICE_ROWS
from amqproute.services.management_node import ManagementService
from amqproute.services.management_rows import ManagementRows, Row
from amqproute.store.memory import MemoryStore
from amqproute.turn_scheduler import STEPS_IN_TURN
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin, Principal
from tests.dashboard import samples
from tests.dashboard.samples import SampleView
from tests.support.fakes import message
from tests.support.turn_clock import TurnClock

QUEUES = 10_000
PEERS = 1000


class ScaleCase(SynchronousTestCase):
    """Management of such a broker, asked by the dashboard."""

    def setUp(self) -> None:
        self.clock = TurnClock()
        store = MemoryStore(self.clock)
        store.open()
        self.clock.advance(0)
        self.now_ms = samples.NOW_MS
        self.broker = Broker(store, self.clock, lambda: self.now_ms, str)
        names = [f"queue-{number:05}" for number in range(QUEUES)]
        self.broker.declare([NodeDeclaration(name, QueueLimits()) for name in names], {})
        self.service = ManagementService(
            self.broker, lambda *_: True, lambda: self.now_ms, connections=self.connections
        )
        self.peers: NameTable[Row] = NameTable()
        for number in range(PEERS):
            name = f"org-{number:04}.example"
            self.peers[name] = samples.peer(name)
        self.rows = self.turns = 0
        peers = EntityNames(EntityTable(lambda: self.peers.order, self.peer, has_hosts=False))
        self.service.show("peer", lambda: map(self.peer, self.peers), names=peers)
        make = ManagementRows._queue_row

        def counting(overview: ManagementRows, *terms: Any) -> dict[str, object]:
            self.rows += 1
            return make(overview, *terms)

        self.patch(ManagementRows, "_queue_row", counting)
        requester = Requester(Principal("user", "ann"), "session")
        self.source = ManagementDoor(self.service, requester, lambda _: True)
        self.view = SampleView(samples.traffic(0))
        self.renderer = HtmlRenderer()

    def connections(self) -> list[Row]:
        """Return no connections."""
        return []

    def peer(self, name: str) -> Row:
        """Return the row of a next hop."""
        row = self.peers[name]
        self.rows += 1
        return row

    def page(self, name: str, /, **query: str) -> Page:
        """Make a page; each turn of the reactor makes few rows."""
        made: list[Page] = []
        loading = Deferred.fromCoroutine(_load(self.source, self.view, name, query))
        loading.addCallback(made.append)
        while not made:
            before = self.rows
            self.assertTrue(self.clock.turn(), loading)
            self.turns += 1
            self.assertLessEqual(self.rows - before, STEPS_IN_TURN * SLICE_ROWS)
        return replace(made[0], at_ms=self.now_ms)

    def html(self, page: Page) -> str:
        """Return the document."""
        return self.renderer.page(page, PageFrame())

    def table(self, page: Page, key: str) -> Table:
        """Return a table of a page."""
        (found,) = [each for each in page.blocks if isinstance(each, Table) and each.key == key]
        return found


async def _load(
    source: ManagementDoor, view: SampleView, name: str, query: Mapping[str, str]
) -> Page:
    return await LOADERS[name](source, view, query)


class ListTests(ScaleCase):
    """Lists of queues and next hops."""

    def pause(self) -> Deferred[None]:
        """Wait for the next turn."""
        return deferLater(self.clock, 0)

    def test_rendering(self) -> None:
        """A document is made some rows at a time, as are many changes; both are as in one go."""
        page = self.page("queues")
        made = 0
        make = HtmlRenderer.row

        def counting(renderer: HtmlRenderer, *terms: Any) -> str:
            nonlocal made
            made += 1
            return make(renderer, *terms)

        self.patch(HtmlRenderer, "row", counting)
        rendering = Deferred.fromCoroutine(
            self.renderer.page_in_turns(page, PageFrame(), self.pause)
        )
        parts = [made]
        while self.clock.turn():
            parts.append(made - sum(parts))
        self.assertEqual(max(parts), ROWS_IN_TURN)
        self.assertEqual(sum(parts), ROWS_SHOWN)
        document = self.successResultOf(rendering)
        self.assertEqual("".join(document.split()), "".join(self.html(page).split()))
        made = 0
        begun = LivePage(self.renderer, PageFrame(), None, self.pause)
        beginning = Deferred.fromCoroutine(begun.change_in_turns(page, "now"))
        parts = [made]
        while self.clock.turn():
            parts.append(made - sum(parts))
        self.assertEqual((max(parts), sum(parts)), (ROWS_IN_TURN, ROWS_SHOWN))
        whole = LivePage(self.renderer, PageFrame()).change(page, "now")
        found = self.successResultOf(beginning)
        self.assertEqual("".join(found.blocks.split()), "".join(whole.blocks.split()))
        self.assertEqual(found.elements, whole.elements)
        live = LivePage(self.renderer, PageFrame(), page, self.pause)
        other = self.page("queues", cursor='["queue-05000", 1]')
        made = 0
        change = Deferred.fromCoroutine(live.change_in_turns(other, "now"))
        parts = [made]
        while self.clock.turn():
            parts.append(made - sum(parts))
        self.assertEqual((max(parts), sum(parts)), (ROWS_IN_TURN, ROWS_SHOWN))
        again = LivePage(self.renderer, PageFrame(), page)
        self.assertEqual(self.successResultOf(change), again.change(other, "now"))

    def test_queues(self) -> None:
        """A part makes the rows that it shows, wherever in the list it is."""
        for cursor in ("", '["queue-00049", 1]', '["queue-08000", 1]'):
            self.rows = self.turns = 0
            page = self.page("queues", cursor=cursor)
            table = self.table(page, "queues")
            self.assertEqual((len(table.rows), table.total), (ROWS_SHOWN, QUEUES))
            self.assertEqual(self.rows, ROWS_SHOWN)
            self.assertLess(self.turns, 5)
            self.assertLess(len(self.html(page)), 80_000)
        last = self.page("queues", cursor='["queue-09998", 1]')
        self.assertEqual(len(self.table(last, "queues").rows), 1)

    def test_search(self) -> None:
        """A search makes rows of what it finds, fifty of them."""
        page = self.page("queues", contains="-0999")
        table = self.table(page, "queues")
        self.assertEqual([row.key for row in table.rows], [f"queue-0999{n}" for n in range(10)])
        self.assertEqual((table.total, self.rows), (10, 10))
        self.assertLess(self.turns, 10)

    def test_queue(self) -> None:
        """One queue costs one row, not a look at all."""
        self.page("queue", name="queue-05000")
        self.assertLessEqual(self.rows, 2)

    def test_peers(self) -> None:
        """So do next hops; the map shows a few, and the search finds the rest."""
        page = self.page("peers")
        table = self.table(page, "peers")
        self.assertEqual((len(table.rows), table.total), (ROWS_SHOWN, PEERS))
        self.assertEqual(self.rows, ROWS_SHOWN)
        (drawn,) = [each for each in page.blocks if isinstance(each, LinkMap)]
        self.assertLess(len(drawn.peers), 20)
        self.assertLess(len(self.html(page)), 100_000)
        self.assertEqual(len(self.table(self.page("peers", contains="org-0999"), "peers").rows), 1)


class LiveTests(ScaleCase):
    """What a browser is sent of such a list."""

    def change(self, live: LivePage, name: str) -> dict[str, Any]:
        """Return the next event's data, and keep its size."""
        text = live.change(self.page(name), "11:00:00").encode()
        self.octets = len(text)
        return json.loads(text)  # type: ignore[no-any-return] # what is in it

    def test_queues(self) -> None:
        """Nothing while nothing changes, a row for a row, two for a queue that comes."""
        live = LivePage(self.renderer, PageFrame(), self.page("queues"))
        self.assertEqual(self.change(live, "queues"), {"time": "11:00:00", "elements": {}})
        self.broker.nodes["queue-00010"].tally.enqueued += 1  # shown on the queue's page only
        self.assertEqual(self.change(live, "queues")["elements"], {})
        self.broker.add(NodeDeclaration("queue-00020a", QueueLimits()))
        data = self.change(live, "queues")
        self.assertEqual(len(data["orders"]["b-queues"]), ROWS_SHOWN)
        # The new row, the number of queues, and the link to the next part.
        self.assertEqual(len(data["elements"]), 3)
        self.assertLess(self.octets, 4000)

    def test_ages(self) -> None:
        """While messages get older and nothing else happens, nothing is sent of their queues."""
        self.put(range(ROWS_SHOWN))
        self.now_ms += 5000
        page = self.page("queues")
        self.assertEqual(self.html(page).count('datetime="PT5S">5 s</time>'), ROWS_SHOWN)
        live = LivePage(self.renderer, PageFrame(), page)
        for _ in range(30):
            self.now_ms += 1000
            self.assertEqual(self.change(live, "queues")["elements"], {})
            self.assertLess(self.octets, 50)
        self.put([7])
        self.now_ms += 1000
        (row,) = self.change(live, "queues")["elements"].values()
        self.assertIn('datetime="PT36S">36 s</time>', row)
        self.assertLess(self.octets, 2500)

    def put(self, queues: Iterable[int]) -> None:
        """Put a message on each of these queues."""
        batch = self.broker.begin()
        for number in queues:
            queue = self.broker.nodes[f"queue-{number:05}"]
            queue.put(message(b"x"), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()
        self.clock.advance(0)

    def test_peers(self) -> None:
        """A next hop that fails is one row; the map with it."""
        live = LivePage(self.renderer, PageFrame(), self.page("peers"))
        self.assertEqual(self.change(live, "peers")["elements"], {})
        name = "org-0030.example"
        self.peers[name] = samples.peer(name, waiting=17)
        self.assertLessEqual(len(self.change(live, "peers")["elements"]), 2)
        self.assertLess(self.octets, 16_000)
