# SPDX-License-Identifier: Apache-2.0
"""Parts of long lists of exchanges, bindings and relay queues, counted in rows and looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.address import in_host
from amqproute.broker.binding import Binding, BindingDeclaration
from amqproute.broker.broker import Broker
from amqproute.broker.exchanges.binding_tables import (
    BindingTarget,
    ExchangeBinding,
    ExchangeType,
    TargetKind,
)
from amqproute.broker.exchanges.exchange_graph import (
    PREDECLARED,
    ExchangeDefinition,
    ExchangeGraph,
)
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.errors import NotFound
from amqproute.interfaces import ITarget
from amqproute.services.entity_pages import SLICE_ROWS, EntityQuery
from amqproute.services.exchange_entity import TEXTS_IN_TURN, ExchangeCommands
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.services.management_rows import ManagementRows, Row
from amqproute.store.memory import MemoryStore
from amqproute.turn_scheduler import STEPS_IN_TURN
from amqproute.values import Principal
from tests.services.test_entity_pages import CountedNames
from tests.support.turn_clock import TurnClock

MANY = 10_000
PEERS = 1000
PAGE = 50
ANN = Principal("user", "ann")


def fail(_: str) -> ITarget:
    """Find no target."""
    raise NotFound("no target")


class TopologyCase(SynchronousTestCase):
    """Management of a broker with two virtual hosts."""

    def setUp(self) -> None:
        self.clock = TurnClock()
        store = MemoryStore(self.clock)
        store.open()
        self.clock.advance(0)
        self.broker = Broker(store, self.clock, lambda: 0, str)
        queues = ["q", "r", "//shop/q", "//shop/r"]
        self.broker.declare([NodeDeclaration(name, QueueLimits()) for name in queues], {})
        self.asked: list[str] = []
        self.service = ManagementService(
            self.broker, lambda *_: True, lambda: 0, destination_of=self.destination_of
        )
        self.rows = self.turns = 0

    def destination_of(self, queue: str) -> Mapping[str, object]:
        """Return the state of a next hop."""
        self.asked.append(queue)
        return {"state": "idle"}

    def count(self, owner: type, name: str) -> None:
        """Count the rows that a function makes."""
        original, make = owner.__dict__[name], getattr(owner, name)

        def counting(*terms: Any) -> object:
            self.rows += 1
            return make(*terms)

        is_static = isinstance(original, staticmethod)
        setattr(owner, name, staticmethod(counting) if is_static else counting)
        self.addCleanup(setattr, owner, name, original)  # `patch` would bring a function back

    def graph(self, host: str = "") -> ExchangeGraph:
        """Return the exchanges of a virtual host."""
        return self.broker.topology_of(host).graph

    def add(self, name: str, host: str = "", kind: ExchangeType = ExchangeType.TOPIC) -> None:
        """Add an exchange."""
        self.graph(host).declare(ExchangeDefinition(name, kind))

    def bind(self, source: str, key: str, host: str = "", **arguments: object) -> ExchangeBinding:
        """Add a binding to the queue ``q``."""
        binding = ExchangeBinding(source, BindingTarget(TargetKind.QUEUE, "q"), key, arguments)
        self.assertTrue(self.graph(host).bind(binding))
        return binding

    def page(self, kind: str, **asked: Any) -> dict[str, Any]:
        """Return a part of a list; each turn of the reactor makes few rows."""
        asking = Deferred.fromCoroutine(self.service.list_entities(kind, EntityQuery(**asked), ANN))
        before = self.rows
        while not asking.called:
            self.assertLessEqual(self.rows - before, STEPS_IN_TURN * SLICE_ROWS)
            before = self.rows
            self.assertTrue(self.clock.turn())
            self.turns += 1
        reply = self.successResultOf(asking)
        self.assertEqual(reply.status, 200, reply)
        return dict(reply.body)

    def parts(self, kind: str, **asked: Any) -> Iterator[dict[str, Any]]:
        """Go through all parts of a list."""
        cursor = ""
        while True:
            page = self.page(kind, cursor=cursor, **asked)
            yield page
            cursor = page["next"]
            if not cursor:
                return


class ExchangeListTests(TopologyCase):
    """Exchanges by name, within and over virtual hosts."""

    def test_all(self) -> None:
        """All are listed once, in order, but the default one; each as one of its own."""
        for name in ("a", "a b", "z", "0"):
            self.add(name)
            self.add(name, "shop")
        own = [name for name in PREDECLARED if name]
        wanted = sorted(
            in_host(host, name) for host in ("", "shop") for name in (*own, "a", "a b", "z", "0")
        )
        found = list(self.parts("exchange", limit=3))
        self.assertEqual([row["name"] for each in found for row in each["items"]], wanted)
        self.assertEqual({each["total"] for each in found}, {len(wanted)})
        for host, there in (("/", ""), ("shop", "shop")):
            page = self.page("exchange", host=host)
            names = sorted(in_host(there, name) for name in (*own, "a", "a b", "z", "0"))
            self.assertEqual([row["name"] for row in page["items"]], names)
            self.assertEqual(page["total"], len(names))
        named = self.service.named_entities("exchange", ["//shop/a b", "", "no"], ANN)
        items: Any = named.body["items"]
        self.assertEqual([row["name"] for row in items], ["//shop/a b"])

    def test_cost(self) -> None:
        """A part makes the rows that it shows, wherever in the list it is."""
        for number in range(MANY):
            self.add(f"e-{number:05}", "shop")
        self.count(ExchangeCommands, "_row")
        looked = CountedNames(self.graph("shop").exchange_names)
        names = ExchangeGraph.exchange_names
        shop = self.graph("shop")

        def order(graph: ExchangeGraph) -> object:
            return looked if graph is shop else names.__get__(graph)

        self.patch(ExchangeGraph, "exchange_names", property(order))
        for cursor in ("", '["//shop/e-05000", 1]', '["//shop/e-09000", 1]'):
            self.rows = looked.looks = 0
            page = self.page("exchange", limit=PAGE, cursor=cursor)
            self.assertEqual((len(page["items"]), self.rows), (PAGE, PAGE))
            self.assertEqual(page["total"], MANY + 2 * (len(PREDECLARED) - 1))
            self.assertLess(looked.looks, 3 * PAGE)

    def test_come_and_go(self) -> None:
        """Exchanges that come and go between two parts neither hide others nor repeat them."""
        for number in range(10):
            self.add(f"e{number}")
        first = self.page("exchange", limit=4, name="e*")
        self.graph().delete("e3")  # the last one of the part
        self.graph().delete("e5")
        self.add("e00")
        self.add("e35")
        rest = self.page("exchange", cursor=first["next"], name="e*")
        self.assertEqual(
            [row["name"] for row in rest["items"]], ["e35", "e4", "e6", "e7", "e8", "e9"]
        )


class BindingListTests(TopologyCase):
    """Bindings from exchanges."""

    def test_all(self) -> None:
        """All are listed once, also those whose names are alike, by virtual host and pattern."""
        self.add("a")
        self.add("a b")
        self.add("h", kind=ExchangeType.HEADERS)
        self.add("a", "shop")
        for source in ("a", "a b", ""):
            self.bind(source, "k1" if source else "other")
            self.bind(source, "k0" if source else "one")
        self.bind("h", "", x=1)
        self.bind("h", "", x=2)
        self.bind("a", "k0", "shop")
        whole = [dict(row) for row in self.service.rows_of("exchange-binding")]
        for limit in (1, 2, 100):
            found = list(self.parts("exchange-binding", limit=limit))
            rows = [row for each in found for row in each["items"]]
            self.assertCountEqual(map(repr, rows), map(repr, whole))
            self.assertEqual([row["source"] for row in rows], sorted(r["source"] for r in whole))
            self.assertEqual({each["total"] for each in found}, {9})
        page = self.page("exchange-binding", host="shop")
        self.assertEqual(
            [row["name"] for row in page["items"]], ["//shop/a to queue //shop/q by 'k0'"]
        )
        page = self.page("exchange-binding", name="*'k0'")
        self.assertEqual([row["source"] for row in page["items"]], ["//shop/a", "a", "a b"])
        self.assertEqual(page["total"], 3)
        page = self.page("exchange-binding", wanted={"source": "a"})
        self.assertEqual(len(page["items"]), 2)

    def test_of_one(self) -> None:
        """Those of one source, to one target, and both, within virtual hosts and part by part."""
        for host in ("", "shop"):
            for source in ("a", "b"):
                self.add(source, host)
                for number in range(3):
                    self.bind(source, f"k{number}", host)
            self.graph(host).bind(
                ExchangeBinding("a", BindingTarget(TargetKind.EXCHANGE, "b"), "x", {})
            )
        whole = [dict(row) for row in self.service.rows_of("exchange-binding")]
        for wanted in (
            {"source": "a"}, {"source": "//shop/a"}, {"target": "q"}, {"target": "b"},
            {"target": "//shop/q"}, {"source": "a", "target": "q"}, {"source": "a", "key": "k1"},
            {"source": "b", "target": "//shop/q"}, {"source": "no"}, {"source": "//no/a"},
            {"target": "//no/q"}, {"target": "no"}, {"source": ""}, {"target": "q", "key": "k2"},
        ):  # fmt: skip
            for host in (None, "/", "shop"):
                known = [
                    row
                    for row in whole
                    if all(row[key] == value for key, value in wanted.items())
                    and host in (None, row["virtual-host"])
                ]
                parts = self.parts("exchange-binding", wanted=wanted, host=host, limit=2)
                rows = [row for each in parts for row in each["items"]]
                self.assertCountEqual(map(repr, rows), map(repr, known), (wanted, host))

    def test_cost_of_one(self) -> None:
        """Of one source, or to one target, a part makes the rows that it shows."""
        self.add("events")
        for number in range(MANY):
            self.bind("events", f"k.{number:05}")
        self.count(ExchangeCommands, "_binding_row")
        for wanted in (
            {"source": "events"}, {"target": "q"}, {"source": "events", "target": "q"},
        ):  # fmt: skip
            for host in (None, "/"):
                cursor = ""
                for part in range(3):
                    self.rows = 0
                    page = self.page(
                        "exchange-binding", limit=PAGE, cursor=cursor, wanted=wanted, host=host
                    )
                    self.assertEqual(page["items"][0]["key"], f"k.{part * PAGE:05}")
                    self.assertEqual((len(page["items"]), self.rows), (PAGE, PAGE))
                    cursor = page["next"]

    def watch_texts(self) -> list[int]:
        """Return a list that gets the number of texts made by each turn."""
        made = ExchangeBinding.__dict__["text"]
        texts = [0]

        def text(binding: ExchangeBinding) -> str:
            texts[-1] += 1
            found: str = made.__get__(binding)
            return found

        self.patch(ExchangeBinding, "text", property(text))
        turn = self.clock.turn

        def next_turn() -> bool:
            texts.append(0)
            return turn()

        self.patch(self.clock, "turn", next_turn)
        return texts

    def test_first_list(self) -> None:
        """The first list of an exchange's bindings takes many turns, and the next one none."""
        self.add("events")
        self.add("few")
        for number in range(MANY):
            self.bind("events", f"k.{number:05}")
        self.bind("few", "k")
        texts = self.watch_texts()
        for wanted in ({}, {"target": "q"}):
            texts[:] = [0]
            self.page("exchange-binding", limit=PAGE, wanted=wanted)
            self.assertLessEqual(max(texts), STEPS_IN_TURN * TEXTS_IN_TURN)
            self.assertGreaterEqual(sum(texts), MANY)
        texts[:] = [0]
        page = self.page("exchange-binding", limit=PAGE)
        self.assertEqual((len(page["items"]), sum(texts)), (PAGE, 0))
        self.page("exchange-binding", wanted={"source": "few"})
        self.assertEqual(sum(texts), 1)

    def test_only_what_is_reached(self) -> None:
        """A list that ends in one exchange makes no texts of the next ones."""
        for name in ("a", "b", "c"):
            self.add(name)
            for number in range(PAGE):
                self.bind(name, f"{number:03}")
        texts = self.watch_texts()
        page = self.page("exchange-binding", limit=10)
        self.assertEqual(sum(texts), PAGE)
        page = self.page("exchange-binding", limit=PAGE, cursor=page["next"])
        self.assertEqual(sum(texts), 2 * PAGE)
        self.assertEqual(page["items"][-1]["source"], "b")
        self.page("exchange-binding", limit=0, host="/")
        self.assertEqual(sum(texts), 2 * PAGE)

    def test_changes_in_the_first_list(self) -> None:
        """Bindings come and go while the first list of their exchange is made."""
        self.add("e")
        made = [self.bind("e", f"k{number:04}") for number in range(3 * TEXTS_IN_TURN)]
        graph = self.graph()
        listing = Deferred.fromCoroutine(
            self.service.list_entities("exchange-binding", EntityQuery(limit=1000), ANN)
        )
        self.assertFalse(graph.list_bindings("e", 1))
        for place in (0, 5, TEXTS_IN_TURN, len(made) - 1):
            graph.unbind(made[place])
        graph.unbind(made[-2])
        again = self.bind("e", made[-2].key)
        self.bind("e", "new")
        graph.rename_queue("q", "r")
        while self.clock.turn():
            continue
        body: Any = self.successResultOf(listing).body
        texts = sorted(each.text for each in graph.bindings_from("e"))
        self.assertEqual(list(graph.binding_texts("e")), texts)
        self.assertEqual(len(texts), len(made) - 3)
        self.assertIn(again.key, [row["key"] for row in body["items"]])
        self.assertEqual(len(body["items"]), len(texts))

    def test_asked_by_message(self) -> None:
        """A QUERY makes the rows that it shows, after turns for the first list."""
        self.add("events", "shop")
        for number in range(MANY):
            self.bind("events", f"k.{number:05}", "shop")
        self.count(ExchangeGraph, "binding_by_text")
        texts = self.watch_texts()
        for place in (0, 3):
            terms = {"offset": place, "count": 10, "virtual-host": "shop"}
            asked = ManagementRequest("QUERY", {"entityType": "exchange-binding", **terms}, {}, ANN)
            answer = self.service.answer(asked)
            if place == 0:
                assert isinstance(answer, Deferred)
                while self.clock.turn():
                    continue
                answer = self.successResultOf(answer)
            assert isinstance(answer, ManagementReply)
            results: Any = answer.body["results"]
            column = cast(list[str], answer.body["attributeNames"]).index("key")
            keys = [f"k.{number:05}" for number in range(place, place + 10)]
            self.assertEqual([row[column] for row in results], keys)
            self.assertEqual(answer.properties, {"count": 10, "total": MANY})
        self.assertEqual(self.rows, 20)
        self.assertLessEqual(max(texts), STEPS_IN_TURN * TEXTS_IN_TURN)

    def test_cost(self) -> None:
        """A part makes the rows that it shows, and looks at no other binding."""
        self.add("events")
        for number in range(MANY):
            self.bind("events", f"k.{number:05}")
        self.page("exchange-binding", limit=1)
        self.count(ExchangeGraph, "binding_by_text")
        looked = CountedNames(self.graph().binding_texts("events"))
        self.patch(ExchangeGraph, "binding_texts", lambda *_: looked)
        cursor = ""
        for part in range(5):
            self.rows = looked.looks = 0
            page = self.page("exchange-binding", limit=PAGE, cursor=cursor)
            self.assertEqual((len(page["items"]), page["total"]), (PAGE, MANY))
            self.assertEqual(page["items"][0]["key"], f"k.{part * PAGE:05}")
            self.assertEqual(self.rows, PAGE)
            self.assertLess(looked.looks, 4 * PAGE)
            cursor = page["next"]

    def test_come_and_go(self) -> None:
        """Bindings that come and go between two parts neither hide others nor repeat them."""
        self.add("e")
        made = [self.bind("e", f"k{number}") for number in range(8)]
        first = self.page("exchange-binding", limit=3)
        self.assertEqual([row["key"] for row in first["items"]], ["k0", "k1", "k2"])
        for place in (2, 4):  # the last one of the part, and one behind it
            self.graph().unbind(made[place])
        self.bind("e", "k00")
        self.bind("e", "k21")
        rest = self.page("exchange-binding", limit=100, cursor=first["next"])
        self.assertEqual([row["key"] for row in rest["items"]], ["k21", "k3", "k5", "k6", "k7"])
        self.graph().delete("e")
        rest = self.page("exchange-binding", cursor=first["next"])
        self.assertEqual((rest["items"], rest["total"]), ([], 0))

    def test_as_the_graph(self) -> None:
        """The kept texts are those of the bindings there are, whatever has changed."""
        self.add("e")
        made = [self.bind("e", f"k{number}") for number in range(6)]
        graph = self.graph()
        graph.binding_texts("e")
        graph.unbind(made[0])
        self.bind("e", "new", n=[1, {"x": 2}])
        graph.rename_queue("q", "r")
        texts = sorted(each.text for each in graph.bindings_from("e"))
        self.assertEqual(list(graph.binding_texts("e")), texts)
        self.assertEqual(len(texts), 6)
        graph.most_at_once = 2
        change = graph.delete_queue("r")
        self.assertEqual(len(change.ending), 1)
        self.assertIsNone(graph.binding_by_text("e", texts[0]))
        self.assertEqual(self.page("exchange-binding")["items"], [])
        while graph.is_ending(change.ending[0]):
            graph.take_apart(change.ending[0])
        self.assertEqual(list(graph.binding_texts("e")), [])

    def test_between_nodes(self) -> None:
        """Of bindings between nodes, a part makes the rows that it shows."""
        for number in range(MANY):
            # Not by `bind`, which looks for circles among all bindings.
            for source, label in (("r", "b"), ("//shop/r", "s")):
                named = f"{label}-n{number:05}"
                made = BindingDeclaration(source, source[:-1] + "q", label=named)
                node = self.broker.nodes[source]
                binding = Binding(made, node, fail, self.broker.context)
                self.broker.bindings[made] = binding
        self.count(ManagementRows, "_binding_row")
        page = self.page("binding", limit=PAGE)
        self.assertEqual((len(page["items"]), page["total"]), (PAGE, 2 * MANY))
        self.assertEqual(self.rows, PAGE)
        for kind in ("binding", "link"):
            self.rows = 0
            found = self.page(kind, limit=PAGE, host="shop")
            self.assertEqual((found["total"], self.rows), (MANY, PAGE))
            names = [f"s-n{number:05}" for number in range(PAGE)]
            self.assertEqual([row["name"] for row in found["items"]], names)
            asked = ManagementRequest(
                "QUERY", {"entityType": kind, "count": 7, "virtual-host": "shop"}, {}, ANN
            )
            self.rows = 0
            reply = self.service.answer(asked)
            assert isinstance(reply, ManagementReply)
            self.assertEqual(reply.properties, {"count": 7, "total": MANY})
            self.assertEqual(self.rows, 7)
        gone = next(each for each in self.broker.bindings if each.name == "b-n00049")
        self.broker.unbind(gone)
        page = self.page("binding", limit=1, cursor=page["next"])
        self.assertEqual([row["name"] for row in page["items"]], ["b-n00050"])
        self.assertEqual(self.page("binding", limit=0, host="/")["total"], MANY - 1)
        self.assertEqual(self.page("binding", limit=0, host="shop")["total"], MANY)


class LinkTests(TopologyCase):
    """Links of clients, and bindings between nodes."""

    def test_cost(self) -> None:
        """A part makes the rows that it shows; a link that goes meanwhile is left out."""
        gone = {"link-00003"}

        def row(name: str) -> dict[str, object]:
            if name in gone:
                raise KeyError(name)
            self.rows += 1
            return {"name": name, "type": "link", "kind": "link"}

        def links(host: str | None = None) -> list[tuple[str, Callable[[str], Row]]]:
            # Every second one is in the virtual host `shop`.
            begin, step = {None: (0, 1), "/": (0, 2), "shop": (1, 2)}[host]
            return [(f"link-{number:05}", row) for number in range(begin, MANY, step)]

        service = ManagementService(self.broker, lambda *_: True, lambda: 0, links=links)
        self.broker.bind(BindingDeclaration("r", "q", label="between"))
        self.service = service
        page = self.page("link", limit=PAGE)
        names = ["between", *(f"link-{number:05}" for number in range(PAGE) if number != 3)]
        self.assertEqual([each["name"] for each in page["items"]], names)
        self.assertEqual((page["total"], self.rows), (MANY + 1, PAGE - 1))
        page = self.page("link", limit=PAGE, cursor='["link-05000", 1]')
        self.assertEqual(page["items"][0]["name"], "link-05001")
        self.assertEqual(self.rows, 2 * PAGE - 1)
        self.rows = 0
        page = self.page("link", limit=PAGE, cursor='["link-05000", 1]', host="shop")
        names = [f"link-{number:05}" for number in range(5001, 5001 + 2 * PAGE, 2)]
        self.assertEqual([each["name"] for each in page["items"]], names)
        self.assertEqual((page["total"], self.rows), (MANY // 2, PAGE))
        service.narrow("link", lambda wanted: links("shop") if "kind" in wanted else None)
        self.rows = 0
        page = self.page("link", limit=PAGE, wanted={"kind": "link"})
        self.assertEqual((page["total"], self.rows), (None, PAGE))


class RelayQueueTests(TopologyCase):
    """Relay queues with the state of their next hops."""

    def test_cost(self) -> None:
        """A part asks for the state of the next hops that it shows, and of no other."""
        names = [f"amqp$out/org-{number:04}.example" for number in range(PEERS)]
        for name in names:
            self.broker.make_internal(name, QueueLimits())
        self.count(ManagementRows, "_queue_row")
        found = []
        for page in self.parts("relay-queue", limit=PAGE):
            self.assertEqual((len(page["items"]), page["total"]), (PAGE, PEERS))
            self.assertEqual((self.rows, len(self.asked)), (PAGE, PAGE))
            self.assertEqual({row["state"] for row in page["items"]}, {"idle"})
            found += [row["name"] for row in page["items"]]
            self.rows = 0
            self.asked.clear()
        self.assertEqual(found, names)
        page = self.page("relay-queue", limit=PAGE, cursor='["amqp$out/org-0500.example.", 1]')
        self.assertEqual(page["items"][0]["name"], names[501])
