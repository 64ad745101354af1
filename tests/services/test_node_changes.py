# SPDX-License-Identifier: Apache-2.0
"""Nodes, bindings and aliases made at runtime: commands, atomic batches, restarts, reloads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Verb
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.broker import Broker
from amqproute.broker.exchanges.topology_record import BINDING_NOTES, EXCHANGE_NOTES
from amqproute.broker.node_deletion import TOLD_ROUNDS, NodeDeletion
from amqproute.broker.subscription import Definition
from amqproute.broker.topic import EMPTYING_SECONDS
from amqproute.config import Config
from amqproute.config.loader import read_node
from amqproute.daemon.node_assembly import described
from amqproute.daemon.routes import describe_route
from amqproute.errors import ConfigError, ResourceDeleted, ResourceLimitExceeded
from amqproute.filters.registry import NO_FILTERS
from amqproute.message import Message
from amqproute.outcomes import Acceptance
from amqproute.services import route_entity
from amqproute.services.management_node import ManagementService
from amqproute.services.node_changes import NOTES, ConfiguredNodes, NodeChanges
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin, Principal, RouteRule
from amqproute.wire.amqp10 import codec, sections, spec
from tests.support.fakes import KeptStore

ANN = Principal("user", "ann")
ORIGIN = Origin(ANONYMOUS_PRINCIPAL)


def durable(body: bytes = b"x") -> Message:
    """Return a durable message."""
    return Message(
        codec.encode(spec.Header(durable=True)) + sections.encode_section(spec.SECTION_DATA, body)
    )


OURS = Config(domains=("a.test",))


def describe(options: Mapping[str, Any]) -> Any:
    """Describe a node as the daemon does."""
    return described(read_node(options), Config())


def configured(*nodes: Mapping[str, Any], **more: Any) -> ConfiguredNodes:
    """Return what a configuration with these nodes declares."""
    places = {str(node["name"]): f"etc.yaml:{line}" for line, node in enumerate(nodes, 3)}
    places |= dict.fromkeys(more.get("aliases", {}), "etc.yaml:99")
    return ConfiguredNodes([describe(node) for node in nodes], places=places, **more)


class PatientStore(KeptStore):
    """A store whose disk can be made to wait."""

    is_held = False

    def _turn(self) -> None:
        if not self.is_held:
            super()._turn()

    def let_go(self) -> None:
        """Do what was waiting."""
        self.is_held = False
        self._turn()


class Taker:
    """A consumer that keeps what it is handed."""

    takes_ahead = False

    def __init__(self, capacity: int = 100) -> None:
        self.entries: list[Any] = []
        self._capacity = capacity

    def capacity(self) -> int:
        return self._capacity - len(self.entries)

    def deliver(self, entries: Any) -> None:
        self.entries += entries

    def holds(self) -> Sequence[Any]:
        return self.entries

    def exhausted(self) -> None:
        pass


class InventoryCase(SynchronousTestCase):
    """A broker with a management node, over a store that outlives it."""

    CONFIGURED = configured({"name": "orders"}, {"name": "prices", "type": "topic"})

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = PatientStore(self.clock)
        self.may: set[str] | None = None
        self.now_ms = 5000
        self.gone: list[set[str]] = []
        self.routed: list[list[RouteRule]] = []
        self.start(self.CONFIGURED)

    def start(self, wanted: ConfiguredNodes) -> None:
        """Start a broker over the store."""
        recovery = self.store.recovery()
        numbers = itertools.count(1)
        self.broker = Broker(
            self.store, self.clock, lambda: self.now_ms, lambda: f"dyn-{next(numbers)}"
        )
        self.broker.recovered_nodes.recovered(
            recovery.queues, recovery.notes.get("subscription", {})
        )
        self.broker.topology.recovered(
            *(recovery.notes.get(kind, {}) for kind in (EXCHANGE_NOTES, BINDING_NOTES))
        )
        self.inventory = NodeChanges(
            self.broker,
            describe,
            self.store.next_id,
            describe_route=lambda options: describe_route(options, OURS),
            most_nodes=20,
        )
        self.inventory.when_routed = lambda: self.routed.append(self.inventory.route_rules())
        self.inventory.when_gone = self.gone.append
        self.inventory.recovered(recovery.notes)
        self.inventory.declare(wanted)
        self.service = ManagementService(
            self.broker, self.allows, lambda: 7500, inventory=self.inventory
        )
        self.replies = self.broker.create_dynamic()
        self.taker = Taker()
        self.replies.attach(self.taker)
        self.clock.advance(0)

    def allows(self, principal: Principal, verb: Verb, node: str) -> bool:
        return verb is Verb.MANAGE and (self.may is None or node in self.may)

    def restart(self, wanted: ConfiguredNodes | None = None) -> None:
        """End the broker and start another one over what is in the store."""
        self.clock.advance(1)
        self.broker.stop()
        self.start(wanted or self.CONFIGURED)

    def send(self, body: Any, **application: Any) -> None:
        """Send a request."""
        parts = [codec.encode(spec.Properties(message_id="m", reply_to=self.replies.name))]
        if application:
            parts.append(sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, application))
        parts.append(sections.encode_section(spec.SECTION_AMQP_VALUE, body))
        batch = self.broker.begin()
        self.service.put(Message(b"".join(parts)), batch, Origin(ANN))
        batch.commit().addErrback(lambda _: None)
        self.clock.advance(0)

    def answer(self) -> tuple[int, Any]:
        """Take the reply: its status and its body."""
        self.replies.dispatch()
        (entry,) = self.taker.entries
        batch = self.broker.begin()
        self.replies.settle([entry], Acceptance(), batch, self.taker)
        self.taker.entries.clear()
        message = entry.message
        offsets = message.offsets
        body = sections.decode_section(message.encoded, offsets.body_start, offsets.body_end)
        return int(message.application_properties["statusCode"]), body

    def run_text(self, text: str) -> tuple[int, Any]:
        """Send commands as text; return the status and the body."""
        self.send(text)
        return self.answer()

    def statuses(self, text: str) -> list[int]:
        """Send commands as text; return the status of each."""
        _, body = self.run_text(text)
        return [int(each["status"]) for each in body["results"]]

    def do(self, text: str) -> None:
        """Send commands as text that have to succeed."""
        status, body = self.run_text(text)
        self.assertEqual(status, 200, body)

    def fill(self, name: str, count: int = 3) -> None:
        """Put durable messages on a node."""
        batch = self.broker.begin()
        for _ in range(count):
            self.broker.target(name).put(durable(), batch, ORIGIN)
        batch.commit()
        self.clock.advance(0)

    def stored(self) -> int:
        """The number of messages in the store."""
        self.clock.advance(1)
        return sum(each.count for each in self.store.recovery().queues.values())

    def notes(self) -> dict[str, list[str]]:
        """Notes of the store about runtime nodes, by kind."""
        self.clock.advance(1)
        notes = self.store.notes
        return {
            kind.removeprefix("made-"): sorted(notes[kind]) for kind in NOTES if notes.get(kind)
        }


class CommandTests(InventoryCase):
    """Each command by itself (G-06 to G-17)."""

    def test_create_queue(self) -> None:
        """A queue with options works at once; the reply shows all its options."""
        status, body = self.run_text("create queue a with capacity=2, dead-letter=orders")
        self.assertEqual(status, 200)
        self.assertTrue(body["committed"])
        (row,) = body["results"]
        self.assertEqual((row["index"], row["status"]), (0, 201))
        self.assertEqual(row["attributes"]["capacity"], 2)
        self.assertEqual(row["attributes"]["priorities"], 10)
        queue = self.broker.nodes["a"]
        self.assertEqual((queue.limits.capacity, queue.dead_letter_name), (2, "orders"))

    def test_create_structured(self) -> None:
        """The working draft's form answers with the status and the attributes themselves."""
        self.send({"last-value": 1}, operation="CREATE", type="topic", name="t")
        status, body = self.answer()
        self.assertEqual((status, body["last-value"]), (201, 1))
        self.assertEqual(self.broker.topics["t"].limits.last_value, 1)

    def test_create_maps(self) -> None:
        """A batch of maps."""
        made = {"operation": "CREATE", "type": "queue", "name": "a", "attributes": {"capacity": 5}}
        self.send([made, {"operation": "CREATE", "type": "alias", "name": "x",
                          "attributes": {"target": "a"}}])  # fmt: skip
        status, _ = self.answer()
        self.assertEqual(status, 200)
        self.assertIs(self.broker.target("x"), self.broker.nodes["a"])

    def test_create_refused(self) -> None:
        """Existing, reserved and invalid names and impossible options are refused."""
        self.do("create alias sales orders")
        for text, status, words in (
            ("create queue orders", 409, "declared at etc.yaml:3"),
            ("create topic orders", 409, "orders"),
            ("create queue sales", 409, "alias"),
            ("create queue amqp$x", 400, "name"),
            ("create queue a@b.test", 400, "name"),
            ("create queue a with capacity=0", 400, "capacity: 0 is out of range"),
            ("create queue a with capasity=1", 400, "did you mean capacity"),
            ("create queue a with last-value=1", 400, "for a topic only"),
            ("create queue a with dead-letter=nowhere", 400, "there is no node 'nowhere'"),
            ("create queue a with dead-letter=a", 400, "itself"),
            ("create topic a with type=queue", 400, "topic"),
            ("create topic a with priorities=3", 400, "for a queue only"),
        ):
            found, body = self.run_text(text)
            self.assertEqual(found, status, text)
            self.assertIn(words, body["results"][0]["description"], text)
        self.assertNotIn("a", self.broker.nodes)

    def test_or_assert(self) -> None:
        """201 for what is new, 200 for what is as asked, 409 for what is otherwise."""
        text = "create or assert queue a with capacity=2"
        self.assertEqual(self.statuses(text), [201])
        self.assertEqual(self.statuses(text), [200])
        status, body = self.run_text("create or assert queue a with capacity=3, ttl=5s")
        self.assertEqual(status, 409)
        differences = body["results"][0]["attributes"]["differences"]
        self.assertEqual(differences["capacity"], {"is": 2, "asked": 3})
        self.assertEqual(differences["ttl"], {"is": None, "asked": "5s"})

    def test_assert(self) -> None:
        """It changes nothing, and fails unless all is as said, of configured nodes too."""
        self.assertEqual(self.statuses("assert queue orders with priorities=10"), [200])
        self.assertEqual(self.statuses("assert queue orders with capacity=1"), [409])
        self.assertEqual(self.statuses("assert topic orders"), [409])
        self.assertEqual(self.statuses("assert queue nowhere"), [404])
        self.assertEqual(self.statuses("assert topic prices with last-value=0"), [200])

    def test_assert_changes_nothing(self) -> None:
        """Differences are listed, key by key, and stay; missing nodes are not created."""
        self.do("create queue a with capacity=2")
        before = self.notes(), dict(self.inventory.options("a")), sorted(self.broker.nodes)
        asked = "assert queue a with capacity=3, max-deliveries=7, priorities=10"
        status, body = self.run_text(asked + "\n")
        self.assertEqual((status, body["committed"]), (409, False))
        self.assertEqual(
            body["results"][0]["attributes"]["differences"],
            {"capacity": {"is": 2, "asked": 3}, "max-deliveries": {"is": None, "asked": 7}},
        )
        self.assertEqual(self.statuses("assert queue nowhere with capacity=3"), [404])
        self.assertEqual(self.statuses("assert queue a with capacity=2"), [200])
        after = self.notes(), dict(self.inventory.options("a")), sorted(self.broker.nodes)
        self.assertEqual(after, before)
        self.assertEqual(self.broker.nodes["a"].limits.capacity, 2)

    def test_assert_of_a_link(self) -> None:
        """G-14: the same of links: their ends, filter, mode, and what is fixed for their life."""
        self.do("create queue a\ncreate link l orders a with filter=\"color = 'red'\"")
        before = self.notes(), list(self.broker.bindings)
        for options in (
            "source=orders, target=a, filter-type=SQL-92, temporary=false",
            "filter=\"color = 'red'\", first-message-date=null",
        ):
            self.assertEqual(self.statuses(f"assert link l with {options}"), [200], options)
        status, body = self.run_text('assert link l with target=prices, filter="x = 1"')
        self.assertEqual(status, 409)
        self.assertEqual(
            body["results"][0]["attributes"]["differences"],
            {
                "target": {"is": "a", "asked": "prices"},
                "filter": {"is": "color = 'red'", "asked": "x = 1"},
            },
        )
        self.assertEqual(self.statuses("assert link m"), [404])
        self.assertEqual((self.notes(), list(self.broker.bindings)), before)

    def test_update(self) -> None:
        """Options change, null takes one back; the type stays; configured nodes are the file's."""
        self.do("create queue a with capacity=2, ttl=5s")
        self.do("update queue a with ttl=null, max-deliveries=3")
        limits = self.broker.nodes["a"].limits
        self.assertEqual((limits.capacity, limits.ttl_ms, limits.max_deliveries), (2, 0, 3))
        self.assertEqual(self.statuses("update queue a with type=topic"), [409])
        self.assertEqual(self.statuses("update queue a with capacity=-1"), [400])
        self.assertEqual(self.statuses("update queue nowhere with ttl=1"), [404])
        status, body = self.run_text("update queue orders with ttl=1s")
        self.assertEqual(status, 409)
        self.assertIn("etc.yaml:3", body["results"][0]["description"])

    def test_rename(self) -> None:
        """The messages stay, so does a consumer; the old name is free; what names it follows."""
        self.do(
            "create queue a\ncreate queue b with dead-letter=a\ncreate alias x a\n"
            "create link l prices a"
        )
        self.fill("a")
        queue = self.broker.nodes["a"]
        self.do("rename queue a c")
        self.assertIs(self.broker.target("c"), queue)
        self.assertIs(self.broker.target("x"), queue)
        self.assertEqual(self.broker.nodes["b"].dead_letter_name, "c")
        self.fill("prices", 1)
        self.clock.advance(0)
        self.assertEqual(queue.depth, 4)
        self.assertEqual(self.statuses("assert queue a"), [404])
        self.do("create queue a")
        self.fill("a", 1)
        self.restart()
        self.assertEqual(self.broker.nodes["c"].depth, 4)
        self.assertEqual(self.broker.nodes["a"].depth, 1)
        self.assertEqual(self.broker.nodes["b"].dead_letter_name, "c")
        self.assertEqual(self.broker.aliases["x"], "c")
        self.assertEqual([each.target for each in self.broker.bindings], ["c"])

    def test_rename_refused(self) -> None:
        """Onto a name in use, of what is not there, or is configured."""
        self.do("create queue a")
        for text, status in (
            ("rename queue a orders", 409),
            ("rename queue nowhere b", 404),
            ("rename queue orders b", 409),
            ("rename queue a b@c.test", 400),
        ):
            self.assertEqual(self.statuses(text), [status], text)

    def test_delete(self) -> None:
        """The node is gone with its messages and bindings, and its links are told."""
        self.do("create queue a\ncreate link l prices a")
        self.fill("a")
        queue = self.broker.nodes["a"]
        status, body = self.run_text("delete queue a")
        row = body["results"][0]
        self.assertEqual((status, row["status"]), (200, 204))
        self.assertEqual((row["attributes"]["messages"], row["attributes"]["links"]), (3, ["l"]))
        self.assertEqual((self.broker.bindings, self.gone), ({}, [set()]))
        self.assertRaises(ResourceDeleted, queue.put, durable(), self.broker.begin(), ORIGIN)
        self.assertEqual(self.stored(), 0)
        self.assertEqual(self.notes(), {})
        self.do("create queue a")
        self.assertEqual(self.broker.nodes["a"].depth, 0)

    def test_delete_waits_for_consumers(self) -> None:
        """Entries held by a consumer go too, when its link has gone."""
        self.do("create queue a")
        self.fill("a")
        taker, queue = Taker(2), self.broker.nodes["a"]
        queue.attach(taker)
        queue.dispatch()
        self.assertEqual(len(taker.entries), 2)
        self.do("delete queue a")
        self.assertEqual(self.notes()["ended"], [queue.rows])
        queue.release(taker.entries)
        queue.detach(taker)
        self.assertEqual(self.stored(), 0)
        self.assertEqual(self.notes(), {})

    def test_delete_of_what_a_branch_keeps(self) -> None:
        """The answer names the branch and what to do; the log says so if it lasts."""
        self.do("create queue a")
        queue = self.broker.nodes["a"]
        queue.promise(1)
        self.inventory.keeping = lambda node: ["user:ann/0:6a:6b"] if node is queue else []
        row = self.run_text("delete queue a")[1]["results"][0]
        self.assertEqual(row["attributes"]["kept-by"], ["user:ann/0:6a:6b"])
        self.assertIn("the prepared branch user:ann/0:6a:6b", row["description"])
        self.assertIn("`amqproute transaction roll-back`", row["description"])
        told: list[str] = []
        self.patch(NodeDeletion, "log", SimpleNamespace(warn=lambda text, **of: told.append(text)))
        self.clock.pump([EMPTYING_SECONDS] * 3 * TOLD_ROUNDS)
        self.assertEqual(len(told), 1)
        queue.promise(-1)
        self.clock.pump([EMPTYING_SECONDS] * 3)
        self.assertEqual(self.notes(), {})

    def test_delete_and_crash(self) -> None:
        """The remains of a deleted queue after a crash go at the next start, unseen."""
        self.do("create queue a")
        self.fill("a")
        queue = self.broker.nodes["a"]
        taker = Taker()
        queue.attach(taker)
        queue.dispatch()
        self.do("delete queue a\ncreate queue a")
        self.restart()
        self.assertEqual(self.broker.nodes["a"].depth, 0)
        self.assertEqual(self.stored(), 0)
        self.assertNotIn("ended", self.notes())

    def test_delete_refused(self) -> None:
        """Nodes that are configured, not empty, in use, named by others, or a client's own stay."""
        self.do("create queue a\ncreate queue b with dead-letter=a\ncreate queue c\n"
                "create alias x c")  # fmt: skip
        self.fill("b")
        self.broker.nodes["b"].attach(Taker(0))
        for text, status, words in (
            ("delete queue orders", 409, "declared at etc.yaml:3: change it there and reload"),
            ("delete queue b with if-empty=true", 409, "holds 3 messages"),
            ("delete queue b with if-unused=true", 409, "1 link"),
            ("delete queue a", 409, "dead letters of 'b'"),
            ("delete queue c", 409, "alias 'x'"),
            ("delete queue x", 404, "is an alias"),
            ("delete queue nowhere", 404, "nowhere"),
            (f"delete queue {self.replies.name}", 409, "dynamic"),
            ("delete queue c with if-empty=perhaps", 400, "true or false"),
        ):
            found, body = self.run_text(text)
            self.assertEqual(found, status, text)
            self.assertIn(words, body["results"][0]["description"], text)

    def test_delete_topic(self) -> None:
        """A topic goes with its durable subscriptions, also over a crash."""
        self.do("create topic t")
        topic = self.broker.topics["t"]
        topic.subscribe(Definition("t", "c", "s", "user:ann", "c"), NO_FILTERS)
        self.clock.advance(0)
        self.fill("t")
        self.assertEqual(self.statuses("delete topic t with if-empty=true"), [409])
        self.assertEqual(self.statuses("rename topic t u"), [409])
        self.do("delete topic t")
        self.assertEqual(self.stored(), 0)
        self.do("create topic t")
        self.restart()
        self.assertEqual(self.broker.topics["t"].durable, {})

    def test_differences_in_words(self) -> None:
        """An option that is not set is null, as one would write it."""
        _, body = self.run_text("assert queue orders with capacity=3, archive-expired=false")
        (row,) = body["results"]
        words = "'orders': capacity is null, not 3; archive-expired is true, not false"
        self.assertEqual(row["description"], words)

    def test_temporary(self) -> None:
        """Q-14: no node becomes temporary, and no dynamic one becomes permanent."""
        self.do("create queue a")
        dynamic = self.broker.create_dynamic()
        for option in ("temporary=true", "lifetime-policy=delete-on-close"):
            self.assertEqual(self.statuses(f"update queue a with {option}"), [400], option)
        for command in (
            f"update queue {dynamic.name} with capacity=5",
            f"rename queue {dynamic.name} kept",
            f"create queue {dynamic.name}",
        ):
            self.assertEqual(self.statuses(command), [409], command)
        self.restart()
        self.assertIn("a", self.broker.nodes)
        self.assertNotIn(dynamic.name, self.broker.nodes)

    def test_purge(self) -> None:
        """Waiting messages go, held ones stay; a dry run returns their number."""
        self.fill("orders", 5)
        queue = self.broker.nodes["orders"]
        queue.attach(Taker(2))
        queue.dispatch()
        self.send({"dry-run": True}, operation="PURGE", type="queue", name="orders")
        status, body = self.answer()
        self.assertEqual((status, body["messages"], body["acquired"]), (200, 3, 2))
        self.assertEqual(queue.depth, 5)
        self.do("purge queue orders")
        self.clock.advance(0)
        self.assertEqual(queue.depth, 2)
        self.assertEqual(self.statuses("purge topic prices"), [400])

    def test_links(self) -> None:
        """Bindings are made, compared, changed, renamed and ended (G-12 to G-16)."""
        self.do("create queue a\ncreate link l orders a with filter=\"color = 'red'\"")
        self.assertEqual(self.statuses("assert link l with filter=\"color = 'red'\""), [200])
        self.assertEqual(self.statuses("assert link l with source=prices"), [409])
        self.assertEqual(self.statuses("create link l orders a"), [409])
        self.assertEqual(self.statuses("create or assert link l orders a"), [200])
        self.assertEqual(self.statuses("update link l with source=prices"), [409])
        self.assertEqual(self.statuses('update link l with filter="color = "'), [400])
        self.fill("orders")
        self.assertEqual(self.broker.nodes["a"].depth, 0)
        self.do("update link l with filter=null")
        self.clock.advance(0)
        self.assertEqual(self.broker.nodes["a"].depth, 3)
        self.do("rename link l m")
        self.restart()
        (link,) = self.broker.bindings
        self.assertEqual((link.name, link.selector), ("m", None))
        self.assertEqual(self.statuses("delete link l"), [404])
        self.do("delete link m")
        self.assertEqual(self.broker.bindings, {})
        self.assertEqual(self.notes(), {"node": ["a"]})

    def test_links_fixed(self) -> None:
        """G-15: a filter changes, also by its subject; what is fixed for the link's life is 409."""
        self.do("create queue a\ncreate queue b\ncreate link l orders a with mode=move")
        before = list(self.broker.bindings)
        for option in (
            "source=prices",
            "target=b",
            "destination=b",
            "mode=copy",
            "temporary=true",
            "temporary=false",
            "first-message-date=0",
            'filter="a = 1", first-message-date=7',
        ):
            status, body = self.run_text(f"update link l with {option}")
            self.assertEqual(status, 409, option)
            self.assertIn("cannot change", body["results"][0]["description"], option)
        self.assertEqual(list(self.broker.bindings), before)
        self.do('update link l with filter="a = 1", subject=x.#')
        (link,) = self.broker.bindings
        self.assertEqual((link.selector, link.subject), ("a = 1", "x.#"))

    def test_links_first_message_date(self) -> None:
        """L-14 to L-16: from when on a link takes; a future date is now; it is kept."""
        self.now_ms = 4999
        self.fill("orders", 3)
        self.now_ms = 5000
        text = "create queue a\ncreate link l orders a with first-message-date=9999999999999"
        _, body = self.run_text(text)
        self.assertEqual(body["results"][1]["attributes"]["first-message-date"], 5000)
        self.fill("orders", 2)
        depths = self.broker.nodes["orders"].depth, self.broker.nodes["a"].depth
        self.assertEqual(depths, (3, 2))
        self.restart()
        (link,) = self.broker.bindings
        self.assertEqual(link.first_message_ms, 5000)
        for text in (
            "create link m prices a with first-message-date=0",
            "create link m orders a with first-message-date=soon",
            "create link m orders a with temporary=true",
            "create link m orders a with filter-type=xpath",
        ):
            self.assertEqual(self.statuses(text), [400], text)

    def test_exchanges(self) -> None:
        """N-07: a topic with bindings by subject does what an exchange of AMQP 0-9-1 did."""
        self.do(
            "create topic exchange\ncreate queue eu\ncreate queue all\ncreate queue exact\n"
            "create link a exchange eu with subject=orders.*.eu\n"
            "create link b exchange all with subject=orders.#\n"
            "create link c exchange exact with subject=orders.1.us\n"
        )
        batch = self.broker.begin()
        for subject in ("orders.1.eu", "orders.1.us", "orders", "invoices.1.eu"):
            properties = codec.encode(spec.Properties(subject=subject))
            body = sections.encode_section(spec.SECTION_DATA, b"x")
            self.broker.target("exchange").put(Message(properties + body), batch, ORIGIN)
        batch.commit()
        self.clock.advance(0)
        depths = [self.broker.nodes[name].depth for name in ("eu", "all", "exact")]
        self.assertEqual(depths, [1, 3, 1])
        self.restart()
        self.assertEqual(self.statuses("assert link a with subject=orders.*.eu"), [200])
        self.do("update link a with subject=null")

    def test_links_refused(self) -> None:
        """No such node, a circle, the wrong mode, an unknown option."""
        self.do("create queue a\ncreate link l orders a")
        for text, status in (
            ("create link m orders nowhere", 404),
            ("create link m nowhere a", 404),
            ("create link m a orders", 409),
            ("create link m orders a with mode=copy", 400),
            ("create link m orders a with color=red", 400),
            ("create link m orders $management@b.test", 400),
            ("create link m orders @b.test", 400),
        ):
            self.assertEqual(self.statuses(text), [status], text)

    def test_configured_link(self) -> None:
        """A binding of the configuration is the file's."""
        link = BindingDeclaration("prices", "orders")
        wanted = ConfiguredNodes(
            self.CONFIGURED.nodes, {}, [link], {**self.CONFIGURED.places, link.name: "etc.yaml:9"}
        )
        self.inventory.declare(wanted)
        status, body = self.run_text(f'delete link "{link.name}"')
        self.assertEqual(status, 409)
        self.assertIn("etc.yaml:9", body["results"][0]["description"])

    def test_aliases(self) -> None:
        """They are made, renamed and taken away (G-26)."""
        self.do("create alias x orders\nrename alias x y")
        self.assertEqual(self.broker.aliases, {"y": "orders"})
        self.restart()
        self.assertEqual(self.broker.aliases, {"y": "orders"})
        self.gone.clear()
        self.do("delete alias y")
        self.assertEqual((self.broker.aliases, self.gone), ({}, [{"y"}]))
        for text, status in (
            ("create alias orders prices", 409),
            ("create alias x nowhere", 404),
            ("delete alias x", 404),
            ("assert alias x", 404),
        ):
            self.assertEqual(self.statuses(text), [status], text)

    def test_routes(self) -> None:
        """G-26: routes are made, compared, listed, kept over a restart, and deleted."""
        text = "create route *.B.Test with via=amqps://gw.test:5671, names=[gw.test]"
        self.assertEqual(self.statuses(text), [201])
        rule = RouteRule("*.b.test", "amqps://gw.test:5671", names=("gw.test",))
        self.assertEqual(self.routed, [[rule]])
        self.assertEqual(self.statuses(text), [409])
        self.assertEqual(self.statuses(text.replace("create", "create or assert")), [200])
        self.assertEqual(self.statuses("assert route *.b.test with names=[gw.test]"), [200])
        status, body = self.run_text("assert route *.b.test with target=anonymous")
        self.assertEqual(status, 409)
        differences = body["results"][0]["attributes"]["differences"]
        self.assertEqual(list(differences), ["target"])
        self.assertEqual(differences["target"]["is"], "amqp$transfer")
        self.do("create route c.test with via=amqp://c.gw.test:5672, target=/queues/{node}")
        _, body = self.run_text("query route")
        rows = body["results"][0]["attributes"]["entities"]
        self.assertEqual([row["name"] for row in rows], ["*.b.test", "c.test"])
        self.assertEqual((rows[1]["target"], rows[1]["made-by"]), ("/queues/{node}", "user:ann"))
        self.send({}, operation="READ", type="route", name="c.test")
        self.assertEqual(self.answer()[1]["via"], "amqp://c.gw.test:5672")
        self.restart()
        self.assertEqual(self.inventory.route_rules()[0], rule)
        self.routed.clear()
        self.do("delete route C.Test")
        self.assertEqual(self.routed, [[rule]])
        self.assertEqual(self.notes(), {"route": ["*.b.test"]})

    def test_routes_refused(self) -> None:
        """Invalid, own, missing and configured domains and ways are refused."""
        kept = RouteRule("d.test", "amqps://d.gw.test:5671")
        self.inventory.declare(
            ConfiguredNodes(
                self.CONFIGURED.nodes, routes=[kept], route_places={"d.test": "etc.yaml:40"}
            )
        )
        for text, status, words in (
            ("create route d.test with via=amqps://x.test", 409, "declared at etc.yaml:40"),
            ("delete route d.test", 409, "declared at etc.yaml:40"),
            ("create route a.test with via=amqps://x.test", 400, "one of ours"),
            ("create route b..test with via=amqps://x.test", 400, "domain"),
            ("create route b.test with via=http://x.test", 400, "via"),
            ("create route b.test with color=red", 400, "color"),
            ("create route b.test with via=amqps://127.0.0.1:5671, names=[x..y]", 400, "names"),
            ("delete route b.test", 404, "b.test"),
            ("assert route b.test", 404, "b.test"),
            ("rename route b.test c.test", 400, "found route"),
            ("update route b.test with via=null", 400, "found route"),
        ):
            found, body = self.run_text(text)
            self.assertEqual(found, status, (text, body))
            self.assertIn(words, body["results"][0]["description"], text)
        same = "assert route d.test with via=amqps://d.gw.test:5671"
        self.assertEqual(self.statuses(same), [200])
        self.may = {"@b.test"}
        for name, wanted in (("b.test", 201), ("c.test", 403)):
            text = f"create route {name} with via=amqps://x.test"
            self.assertEqual(self.statuses(text), [wanted])
        self.may = None
        self.routed.clear()
        text = "delete route b.test\ncreate route e.test with via=amqps://x.test\ndelete queue no"
        self.assertEqual(self.statuses(text), [424, 424, 404])
        self.assertEqual([each.pattern for each in self.inventory.route_rules()], ["b.test"])
        self.store.is_failing = True
        self.send("delete route b.test")
        self.store.is_failing = False
        self.assertEqual([each.pattern for each in self.inventory.route_rules()], ["b.test"])
        self.assertEqual(self.routed, [])
        self.patch(route_entity, "MOST_ROUTES", 1)
        self.assertEqual(self.statuses("create route f.test with via=amqps://x.test"), [507])

    def test_query(self) -> None:
        """Name and options restrict what is given (G-11, G-17)."""
        self.do("create queue a\ncreate link l prices a")
        _, body = self.run_text("query queue a\nquery queue with kind=topic\nquery link")
        rows = [each["attributes"]["entities"] for each in body["results"]]
        self.assertEqual(
            [[row["name"] for row in each] for each in rows], [["a"], ["prices"], ["l"]]
        )
        self.assertEqual((rows[0][0]["origin"], rows[0][0]["made-by"]), ("runtime", "user:ann"))
        self.assertEqual(rows[1][0]["declared-at"], "etc.yaml:4")

    def test_query_by_options(self) -> None:
        """G-11: rows carry a node's options and its counts, and either restricts the result."""
        self.do("create queue a with capacity=5\ncreate queue b with capacity=5, ttl=1s")
        self.fill("a", 2)
        self.broker.nodes["a"].attach(Taker(1))
        self.broker.nodes["a"].dispatch()
        for options, names in (
            ("capacity=5", ["a", "b"]),
            ("capacity=5, ttl=1s", ["b"]),
            ("capacity=5, depth=2", ["a"]),
            ("capacity=6", []),
            ("depth=2, capacity=6", []),
            ("teapot=1", []),
        ):
            status, body = self.run_text(f"query queue with {options}")
            (result,) = body["results"]
            found = [row["name"] for row in result["attributes"]["entities"]]
            self.assertEqual((status, result["status"], found), (200, 200, names), options)
        _, body = self.run_text("query queue a\nquery queue nowhere")
        ((row,), none) = [each["attributes"]["entities"] for each in body["results"]]
        self.assertEqual(none, [])
        self.assertEqual((row["depth"], row["acquired"], row["consumers"]), (2, 1, 1))
        self.assertLessEqual(
            {
                "name", "capacity", "message-durability-mode", "non-transactional-support",
                "maximum-destructive-links", "excess-destructive-link-policy", "archive-expired",
                "archive-currently-unreachable",
            },
            set(row),
        )  # fmt: skip
        self.do("rename queue a c\nupdate queue c with capacity=7")
        self.restart()
        _, body = self.run_text("query queue with capacity=7")
        self.assertEqual(body["results"][0]["attributes"]["total"], 1)

    def test_read(self) -> None:
        """READ of a node shows its options."""
        self.send({}, operation="READ", type="queue", name="orders")
        status, body = self.answer()
        self.assertEqual(status, 200)
        self.assertEqual(body["options"]["priorities"], 10)
        self.assertEqual((body["origin"], body["declared-at"]), ("configuration", "etc.yaml:3"))

    def test_self_description(self) -> None:
        """GET-TYPES, GET-OPERATIONS, GET-ATTRIBUTES (G-23)."""
        self.send({}, operation="GET-TYPES")
        self.assertIn("queue", self.answer()[1])
        self.send({}, operation="GET-OPERATIONS")
        found = self.answer()[1]
        self.assertIn("PURGE", found["queue"])
        self.assertNotIn("PURGE", found["link"])
        self.assertEqual(found["connection"], ["QUERY", "READ", "CLOSE-CONNECTION"])
        self.send({}, operation="GET-ATTRIBUTES", entityType="queue")
        self.assertIn("depth", self.answer()[1]["queue"])

    def test_rights(self) -> None:
        """Each node that a change is about needs the right to manage it (G-25)."""
        self.do("create queue a")
        self.may = {"a", "b"}
        self.assertEqual(self.statuses("rename queue a b"), [200])
        for text in (
            "create queue c",
            "rename queue b c",
            "create link l orders b",
            "create alias a orders",
            "purge queue orders",
        ):
            self.assertEqual(self.statuses(text), [403], text)
        self.assertEqual(self.statuses("query queue"), [200])

    def test_rights_of_each_command(self) -> None:
        """G-25: 403, nothing done, and a line of the log with who, what and where."""
        self.do("create queue a\ncreate topic t\ncreate link l orders a\ncreate alias x a")
        before = self.notes()
        self.may = {"$management"}
        told: list[tuple[str, str]] = []
        log = SimpleNamespace(warn=lambda _, **of: told.append((of["who"], of["node"])))
        self.patch(ManagementService, "log", log)
        for text, node in (
            ("create queue c", "c"),
            ("create or assert queue c", "c"),
            ("create topic c", "c"),
            ("update queue a with capacity=1", "a"),
            ("update topic t with last-value=1", "t"),
            ("rename queue a c", "a"),
            ("delete queue a", "a"),
            ("delete topic t", "t"),
            ("purge queue a", "a"),
            ("create link m orders a", "orders"),
            ('update link l with filter="a = 1"', "orders"),
            ("rename link l m", "orders"),
            ("delete link l", "orders"),
            ("create alias y a", "y"),
            ("rename alias x y", "x"),
            ("delete alias x", "x"),
            ("move messages a orders", "a"),
            ("copy messages a orders", "a"),
        ):
            told.clear()
            status, body = self.run_text(text)
            self.assertEqual((status, body["results"][0]["status"]), (403, 403), text)
            self.assertEqual(told, [("user:ann", node)], text)
        self.assertEqual(self.notes(), before)
        for text in ("query queue a", "assert queue a", "assert link l", "assert alias x"):
            self.assertEqual(self.statuses(text), [200], text)

    def test_most_nodes(self) -> None:
        """There is a bound (507)."""
        status, body = self.run_text("\n".join(f"create queue n{n}" for n in range(20)))
        self.assertEqual(status, 507)
        self.assertFalse(body["committed"])
        self.assertNotIn("n0", self.broker.nodes)


class BatchTests(InventoryCase):
    """A batch is all or nothing (G-02, G-03, G-27)."""

    def test_one_fails(self) -> None:
        """Nothing of the others is done; each is told so."""
        self.do("create queue old with capacity=9\ncreate alias x old\ncreate link l prices old")
        self.fill("old")
        before = self.notes()
        text = (
            "create queue a\n"
            "update queue old with capacity=1\n"
            "create link k old a\n"
            'update link l with filter="a = 1"\n'
            "rename queue old older\n"
            "rename link l m\n"
            "rename alias x y\n"
            "delete alias y\n"
            "delete queue older\n"
            "create link z a nowhere\n"
            "purge queue orders\n"
        )
        self.fill("orders")
        status, body = self.run_text(text)
        self.assertEqual(status, 404)
        self.assertFalse(body["committed"])
        self.assertEqual([each["status"] for each in body["results"]], [424] * 9 + [404, 424], body)
        self.clock.advance(1)
        self.assertNotIn("a", self.broker.nodes)
        self.assertEqual(self.broker.nodes["old"].limits.capacity, 9)
        self.assertEqual(self.broker.aliases, {"x": "old"})
        self.assertEqual([each.name for each in self.broker.bindings], ["l"])
        self.assertEqual(
            (self.broker.nodes["old"].depth, self.broker.nodes["orders"].depth), (3, 3)
        )
        self.assertEqual(self.notes(), before)
        self.fill("prices", 1)
        self.assertEqual(self.broker.nodes["old"].depth, 4)

    def test_bad_line(self) -> None:
        """A line that is no command fails the batch with its number."""
        status, body = self.run_text("create queue a\n\ncreate cake b\n")
        self.assertEqual(status, 400)
        self.assertEqual([each["status"] for each in body["results"]], [424, 400])
        self.assertIn("character 8", body["results"][1]["description"])

    def test_order(self) -> None:
        """Commands build on those before them, within a batch and over messages."""
        self.do("create queue a\nrename queue a b\ncreate link l prices b\ndelete queue b")
        self.assertEqual((self.broker.bindings, self.notes()), ({}, {}))

    def test_store_fails(self) -> None:
        """A change that cannot be written is undone, and not reported as done."""
        self.do("create queue a")
        self.fill("a")
        self.store.is_failing = True
        self.send("delete queue a\ncreate queue b\ncreate alias x b")
        self.store.is_failing = False
        self.assertEqual(self.taker.entries, [])
        self.assertEqual(self.broker.nodes["a"].depth, 3)
        self.fill("a", 1)
        self.assertNotIn("b", self.broker.nodes)
        self.assertEqual(self.broker.aliases, {})
        self.assertEqual(self.notes(), {"node": ["a"]})

    def test_no_room_for_the_reply(self) -> None:
        """A request without a usable reply address is refused, and not carried out."""
        self.do("create queue replies with capacity=1")
        self.fill("replies", 1)
        self.replies = self.broker.nodes["replies"]
        self.service._allows = lambda *_: True
        self.assertRaises(ResourceLimitExceeded, self.send, "create queue a")
        self.assertNotIn("a", self.broker.nodes)
        self.assertEqual(self.notes(), {"node": ["replies"]})

    def test_nothing_before_the_commit(self) -> None:
        """Messages go, and bindings begin, when it is durable."""
        self.do("create queue a\ncreate queue b")
        self.fill("a")
        self.fill("b")
        self.store.is_held = True
        self.send("create link l orders a\ndelete queue b\npurge queue a")
        self.assertEqual(self.gone, [])
        self.assertEqual(self.broker.nodes["a"].depth, 3)
        self.store.let_go()
        self.clock.advance(0)
        self.assertEqual(self.gone, [set()])
        self.assertEqual(self.broker.nodes["a"].depth, 0)
        self.assertEqual(self.answer()[0], 200)


class LifeTests(InventoryCase):
    """Restarts and reloads."""

    def test_restart(self) -> None:
        """Everything is there again, messages and all."""
        self.do(
            "create queue a with capacity=7\ncreate topic t\ncreate alias x a\n"
            "create link l t a with filter=\"color = 'red'\""
        )
        self.fill("a")
        self.restart()
        queue = self.broker.nodes["a"]
        self.assertEqual((queue.depth, queue.limits.capacity), (3, 7))
        self.assertIn("t", self.broker.topics)
        self.assertEqual(self.broker.aliases, {"x": "a"})
        self.assertEqual([each.name for each in self.broker.bindings], ["l"])

    def test_reload(self) -> None:
        """A new configuration takes away nothing that was made at runtime."""
        self.do("create queue a\ncreate link l prices a\ncreate alias x a")
        self.fill("a")
        queue = self.broker.nodes["a"]
        self.inventory.declare(configured({"name": "prices", "type": "topic"}, {"name": "new"}))
        self.assertIs(self.broker.nodes["a"], queue)
        self.assertEqual(queue.depth, 3)
        self.assertNotIn("orders", self.broker.nodes)
        self.assertEqual(self.broker.aliases, {"x": "a"})
        self.assertEqual([each.name for each in self.broker.bindings], ["l"])

    def test_reload_fails(self) -> None:
        """A configuration that cannot be leaves everything as it was."""
        self.do("create queue a")
        self.fill("a")
        wanted = configured({"name": "a", "type": "topic"})
        self.assertRaises(ConfigError, self.inventory.declare, wanted)
        self.assertEqual(self.broker.nodes["a"].depth, 3)
        self.assertEqual(self.statuses("delete queue orders"), [409])

    def test_declared_later(self) -> None:
        """The file takes a node over with its messages, and gives it back."""
        self.do("create queue a with capacity=7")
        self.fill("a")
        both = configured({"name": "orders"}, {"name": "a", "capacity": 9})
        self.restart(both)
        queue = self.broker.nodes["a"]
        self.assertEqual((queue.depth, queue.limits.capacity), (3, 9))
        self.assertEqual(self.statuses("delete queue a"), [409])
        self.restart()
        queue = self.broker.nodes["a"]
        self.assertEqual((queue.depth, queue.limits.capacity), (3, 7))

    def test_what_cannot_be_at_present(self) -> None:
        """A binding or alias of a node that has left the file sleeps; it can be deleted."""
        self.do("create queue a\ncreate link l prices a\ncreate alias x orders")
        self.restart(configured({"name": "other"}))
        self.assertEqual((self.broker.bindings, self.broker.aliases), ({}, {}))
        self.assertEqual(self.statuses("create link l a other"), [409])
        self.assertEqual(self.statuses("create queue x"), [409])
        self.restart()
        self.assertEqual([each.name for each in self.broker.bindings], ["l"])
        self.restart(configured({"name": "other"}))
        self.do("delete link l\ndelete alias x")
        self.assertEqual(self.notes(), {"node": ["a"]})

    def test_leftovers(self) -> None:
        """A name under which the store holds messages of the file's is not taken lightly."""
        self.fill("orders")
        self.restart(configured({"name": "other"}))
        status, body = self.run_text("create queue orders")
        self.assertEqual(status, 409)
        self.assertIn("3 messages", body["results"][0]["description"])

    def test_broken_note(self) -> None:
        """A note that cannot be read is said, and the others count."""
        self.do("create queue a")
        transaction = self.store.begin()
        transaction.note("made-node", "b", b"{")
        transaction.note("made-node", "c", b"{}")
        transaction.commit()
        self.restart()
        self.assertIn("a", self.broker.nodes)
        self.assertEqual(len(self.inventory.nodes), 1)
