# SPDX-License-Identifier: Apache-2.0
"""Outgoing messages, by id, domain and selector, through the management node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from amqproute.broker.publish_gate import STORE
from amqproute.broker.queue import Queue
from amqproute.broker.queue_iterator import page_of
from amqproute.errors import StoreUnavailable
from amqproute.filters.selector import Selector, compile_selector
from amqproute.message import Message
from amqproute.relay.diagnosis import why
from amqproute.relay.holds import HOLD_NOTES, LAST_HOLD_NOTES, RelayHold
from amqproute.routing.table import Router
from amqproute.services import relay_messages
from amqproute.services.explain import AT_ONCE, MOST_ASKED, ExplainCommand
from amqproute.services.management_node import ManagementReply, ManagementRequest
from amqproute.services.relay_messages import (
    LISTED_AT_ONCE,
    MOST_LISTED,
    MOST_SEEN,
    QUEUES_AT_ONCE,
    RelayMessages,
)
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin, RouteRule
from amqproute.wire.amqp10 import codec, sections, spec
from tests.services.test_relay_commands import MESSAGE
from tests.services.test_relay_commands import RelayOperationTests as _House
from tests.support.fakes import Taker, message, node
from tests.support.turn_clock import TurnClock


class RelayMessagesTests(_House):
    """The operations act on what is meant, in parts."""

    def setUp(self) -> None:
        super().setUp()
        self.router = Router(["alpha.example"])
        self.hidden: set[str] = set()
        RelayMessages(
            self.broker,
            self.relay,
            lambda: self.router,
            lambda who, verb, node: self.allowed and node not in self.hidden,
            lambda destination, entry: {"description": "because", "next": []},
            lambda: 1,
        ).register(self.service)

    def way(self, domain: str) -> str:
        """Return the key of the next hop for a domain, as routes are now."""
        return self.router.hop(domain).key

    def fill(self, count: int, domain: str = "beta.example", account: Any = None) -> None:
        """Put numbered messages for a domain."""
        hop = NextHop(domain, domain, via=f"amqps://{domain}:5671")
        queue = self.relay.take_on_trust(hop)
        batch = self.broker.begin()
        for number in range(count):
            properties = spec.Properties(to=f"orders@{domain}", subject=f"s{number % 4}")
            encoded = (
                codec.encode(spec.Header(durable=True))
                + codec.encode(properties)
                + sections.encode_section(spec.SECTION_DATA, b"%d" % number)
            )
            queue.put(Message(encoded), batch, Origin(ANONYMOUS_PRINCIPAL, account=account))
        self.result_of(batch.commit())

    def part(self, operation: str, name: str = "", **body: Any) -> ManagementReply:
        """Ask once, and wait."""
        request = ManagementRequest(operation, {"name": name}, body, ANONYMOUS_PRINCIPAL)
        answer = self.service.answer(request)
        if isinstance(answer, ManagementReply):
            return answer
        for _ in range(500):
            if answer.called:
                break
            self.clock.advance(0.02)
        reply = self.successResultOf(answer)
        assert isinstance(reply, ManagementReply)
        return reply

    def all_of(self, operation: str, **body: Any) -> tuple[int, int]:
        """Ask until nothing is left; return how many messages, and requests."""
        total = parts = 0
        cursor = ""
        while parts == 0 or cursor:
            reply = self.part(operation, **body, **({"cursor": cursor} if cursor else {}))
            self.assertEqual(reply.status, 200, reply.description)
            total += reply.body["messages"]
            cursor = reply.body["cursor"]
            parts += 1
        return total, parts

    def depth(self, key: str = "beta.example") -> int:
        """Return what waits."""
        return int(self.relay.destinations[key].queue.depth)

    def test_parts(self) -> None:
        """Many messages are dealt with in several requests; no turn sees more than a page."""
        self.fill(3 * MOST_SEEN // 2)
        self.fill(10, "gamma.example")
        self.assertEqual(self.all_of("DELETE-MESSAGES", all=True, **{"dry-run": True})[0],
                         3 * MOST_SEEN // 2 + 10)  # fmt: skip
        total, parts = self.all_of("DELETE-MESSAGES", to="beta.example", where="subject = 's1'")
        self.assertEqual((total, parts > 1), (3 * MOST_SEEN // 8, True))
        self.assertEqual(self.depth(), 9 * MOST_SEEN // 8)
        self.assertEqual(self.all_of("EXPIRE-MESSAGES", all=True)[0], 9 * MOST_SEEN // 8 + 10)
        self.assertEqual((self.depth(), self.depth("gamma.example")), (0, 0))

    def test_samples(self) -> None:
        """A dry run changes nothing and shows five."""
        self.fill(20)
        reply = self.part("EXPIRE-MESSAGES", to="beta.example", **{"dry-run": True})
        self.assertEqual((reply.body["messages"], len(reply.body["samples"])), (20, 5))
        self.assertEqual(reply.body["samples"][0]["to"], "orders@beta.example")
        self.assertEqual(self.depth(), 20)

    def test_reroute(self) -> None:
        """To another next hop and to a node here; what has no node stays, and it is said why."""
        self.fill(3)
        self.assertEqual(self.part("REROUTE-MESSAGES", all=True).body["messages"], 0)
        self.router = Router(
            ["alpha.example"], [RouteRule("beta.example", "amqps://gate.example:5671")]
        )
        reply = self.part("REROUTE-MESSAGES", all=True)
        self.assertEqual(reply.body["messages"], 3)
        self.clock.advance(0)
        self.assertEqual((self.depth(), self.depth("gate.example:5671")), (0, 3))
        self.router = Router(["alpha.example", "beta.example"])
        reply = self.part("REROUTE-MESSAGES", all=True)
        self.assertEqual((reply.body["messages"], reply.body["refused"]), (0, 3))
        self.assertEqual(self.depth("gate.example:5671"), 3)

    def fail_commits(self) -> None:
        """Let the store have no room for anything that begins."""
        apply = self.store._apply

        def full(transaction: Any) -> None:
            if self.is_full and transaction.begins():
                raise StoreUnavailable("no room")
            apply(transaction)

        self.is_full = True
        self.patch(self.store, "_apply", full)

    def test_reroute_on_a_full_disk(self) -> None:
        """A message whose move the store does not take stays in its place."""
        self.fill(3)
        self.router = Router(
            ["alpha.example"], [RouteRule("beta.example", "amqps://gate.example:5671")]
        )
        self.fail_commits()
        reply = self.part("REROUTE-MESSAGES", all=True)
        self.assertEqual((reply.status, self.depth(), self.depth("gate.example:5671")), (409, 3, 0))
        self.assertIn("no room", reply.description)
        self.is_full = False
        self.assertEqual(self.part("REROUTE-MESSAGES", all=True).body["messages"], 3)
        self.clock.advance(0)
        self.assertEqual((self.depth(), self.depth("gate.example:5671")), (0, 3))

    def test_delete_on_a_full_disk(self) -> None:
        """Messages with a report wait for room, and the operator gets their number."""
        self.fill(3)
        queue = self.relay.destinations["beta.example"].queue
        told: list[int] = []

        def dropped(of: Any, entries: Any, code: str, batch: Any) -> None:
            asking = [entry for entry in entries if entry.message.properties.subject == "s1"]
            ids = [entry.id for entry in asking]

            def report(batch: Any) -> None:
                told.extend(ids)
                self.broker.nodes["back"].put(Message(MESSAGE), batch, Origin(ANONYMOUS_PRINCIPAL))
                batch.transaction.dequeue(ids)

            if asking:
                report(batch)
                batch.redo.append((ids, report))

        self.broker.declare([node("back")], {})
        self.patch(self.broker.disposal, "dropped", dropped)
        self.fail_commits()
        reply = self.part("DELETE-MESSAGES", all=True)
        self.assertEqual((reply.status, reply.body["messages"], reply.body["waiting"]), (200, 3, 1))
        self.assertIn("the disk is full: 1 of them", reply.description)
        self.assertEqual((self.depth(), self.broker.nodes["back"].depth), (0, 0))
        self.is_full = False
        self.broker.gate.open(STORE)
        self.clock.advance(0)
        self.assertEqual(self.broker.nodes["back"].depth, 1)
        self.assertEqual(len(set(told)), 1)
        self.assertEqual(len(self.result_of(self.store.load(queue.name, 0, 9, 999))), 0)

    def test_many_deletes_on_a_full_disk(self) -> None:
        """Messages that wait for room are bounded: then the operator has to wait."""
        self.patch(relay_messages, "MOST_WAITING", 2)
        self.fill(3)

        def dropped(of: Any, entries: Any, code: str, batch: Any) -> None:
            batch.redo.append(([entry.id for entry in entries], lambda batch: None))

        self.patch(self.broker.disposal, "dropped", dropped)
        self.patch(self.store, "_apply", self.refuse)
        reply = self.part("DELETE-MESSAGES", all=True)
        self.assertEqual(reply.status, 409)
        self.assertIn("the disk is full: 3 messages end when", reply.description)

    @staticmethod
    def refuse(_: Any) -> None:
        raise StoreUnavailable("no room")

    def test_rerouted_messages_stay_their_senders(self) -> None:
        """A moved message is still charged to its sender's share of the store."""
        account = self.broker.accounts.of("user:ann")
        self.fill(3, account=account)
        octets = account.octets
        self.assertEqual((account.messages, octets > 0), (3, True))
        self.router = Router(
            ["alpha.example"], [RouteRule("beta.example", "amqps://gate.example:5671")]
        )
        self.assertEqual(self.part("REROUTE-MESSAGES", all=True).body["messages"], 3)
        self.clock.advance(0)
        self.assertEqual((account.messages, account.octets), (3, octets))
        self.part("DELETE-MESSAGES", all=True)
        self.clock.advance(0)
        self.assertEqual((account.messages, account.octets), (0, 0))

    def listed(self, count: int, name: str = "", **body: Any) -> list[int]:
        """List part by part, none with more than `count`, and return the ids."""
        ids: list[int] = []
        cursor = ""
        for _ in range(2000):
            more = {"cursor": cursor} if cursor else {}
            reply = self.part("LIST-MESSAGES", name, count=count, **body, **more)
            self.assertEqual(reply.status, 200, reply.description)
            rows = reply.body["messages"]
            self.assertLessEqual(len(rows), count)
            ids += [row["id"] for row in rows]
            cursor = reply.body["cursor"]
            if not cursor:
                return ids
        raise AssertionError("the list has no end")

    def test_no_more_than_asked_for(self) -> None:
        """A list has so many rows and no more; its parts together have each message once."""
        self.fill(700)
        for place in range(12):
            self.fill(5, f"d{place:02}.example")
        everything = self.listed(500, all=True)
        self.assertEqual((len(everything), len(set(everything))), (760, 760))
        of_beta = self.listed(500, to="beta.example")
        self.assertEqual((len(of_beta), sorted(of_beta)), (700, of_beta))
        for count in (1, 7, 50, 499):
            if count > 1:
                self.assertEqual(self.listed(count, all=True), everything, count)
                self.assertEqual(self.listed(count, to="beta.example"), of_beta, count)
            some = [of_beta[place] for place in (699, 3, 350, 5, 4)]
            self.assertEqual(self.listed(count, ids=some), sorted(some), count)
        wanted = self.listed(50, to="beta.example", where="subject = 's1'")
        self.assertEqual(wanted, of_beta[1::4])
        full = self.part("LIST-MESSAGES", to="beta.example", where="subject = 's1'", count=50)
        self.assertEqual(len(full.body["messages"]), 50)
        first = self.part("LIST-MESSAGES", all=True, count=7).body["messages"]
        self.assertEqual([row["id"] for row in first], everything[:7])

    def test_in_flight_and_deferred(self) -> None:
        """What consumers hold, what is deferred and what waits: no more than asked for."""
        self.broker.declare([node("work")], {})
        queue = self.broker.nodes["work"]
        batch = self.broker.begin()
        for number in range(60):
            queue.put(message(b"%d" % number), batch, Origin(ANONYMOUS_PRINCIPAL))
        self.result_of(batch.commit())
        taker = Taker(queue)
        taker.take(40)
        deferred, taker.held = taker.held[:15], taker.held[15:]
        queue.defer(deferred, 60)
        in_flight = sorted(each.id for each in queue.held_by_consumers())
        self.assertEqual((len(in_flight), queue.deferred, queue.available), (25, 15, 20))
        everything = self.listed(100, "work")
        self.assertEqual(everything[:25], in_flight)
        self.assertEqual(len(set(everything)), 60)
        for count in (1, 4, 25, 26, 39, 40, 59, 60):
            self.assertEqual(self.listed(count, "work"), everything, count)
        states = [
            row["state"] for row in self.part("LIST-MESSAGES", "work", count=45).body["messages"]
        ]
        self.assertEqual(states, ["in-flight"] * 25 + ["deferred"] * 15 + ["waiting"] * 5)

    def test_many_queues(self) -> None:
        """A request looks at so many messages in all, however many queues they are on."""
        self.patch(relay_messages, "MOST_SEEN", 30)
        for place in range(12):
            self.fill(5, f"d{place:02}.example")
        reply = self.part("DELETE-MESSAGES", all=True, **{"dry-run": True})
        self.assertEqual(reply.body["messages"], 30)
        total, parts = self.all_of("DELETE-MESSAGES", all=True)
        self.assertEqual((total, parts), (60, 3))  # the last one finds nothing

    def test_why_and_list(self) -> None:
        """A message is found by the id that the list shows."""
        self.fill(2)
        rows = self.part("LIST-MESSAGES", to="beta.example").body["messages"]
        self.assertEqual([row["subject"] for row in rows], ["s0", "s1"])
        reply = self.part("WHY", str(rows[1]["id"]))
        self.assertEqual((reply.status, reply.body["subject"]), (200, "s1"))
        self.assertEqual(self.part("WHY", "99999").status, 404)
        for name in ("me", "-1", "9" * 20, "9" * 5000):
            self.assertEqual(self.part("WHY", name).status, 400)

    def test_rights_and_refusals(self) -> None:
        """Requests without the right to manage, or without a selection, do nothing."""
        self.fill(2)
        for operation in ("DELETE-MESSAGES", "EXPIRE-MESSAGES", "RETRY-MESSAGES", "HOLD-MESSAGES"):
            self.assertEqual(self.part(operation).status, 400, operation)
            self.assertEqual(self.part(operation, where="= 1").status, 400, operation)
            self.assertEqual(self.part(operation, ids=["x"]).status, 400, operation)
        self.assertEqual(self.part("DELETE-MESSAGES", to="nobody.example").status, 404)
        self.assertEqual(self.part("DELETE-MESSAGES", all=True, cursor="[").status, 400)
        self.allowed = False
        for operation in ("DELETE-MESSAGES", "EXPIRE-MESSAGES", "RETRY-MESSAGES", "HOLD-MESSAGES",
                          "REROUTE-MESSAGES", "LIST-MESSAGES"):  # fmt: skip
            self.assertEqual(self.part(operation, to="beta.example").status, 403, operation)
        self.assertEqual(self.depth(), 2)

    def test_hold_until(self) -> None:
        """A hold ends by itself; a time that is over is refused."""
        self.fill(1)
        over = self.part("HOLD-MESSAGES", to="beta.example", **{"until-ms": -1})
        self.assertEqual(over.status, 400)
        reply = self.part("HOLD-MESSAGES", to="beta.example", reason="r", **{"until-ms": 5000})
        self.assertEqual((reply.status, reply.body["name"]), (200, "h1"))
        self.assertEqual(self.relay.destinations["beta.example"].held, "r")
        self.assertEqual(self.part("RELEASE-HOLD", "h7").status, 404)
        self.assertEqual(self.part("RELEASE-HOLD", "h1").status, 200)
        self.assertIsNone(self.relay.destinations["beta.example"].held)

    def test_hold_dry_run(self) -> None:
        """To hold can be tried, too: it is counted, and nothing is held by it."""
        self.fill(3)
        reply = self.part("HOLD-MESSAGES", where="subject = 's1'", **{"dry-run": True})
        self.assertEqual((reply.status, reply.body["messages"]), (200, 1))
        self.assertEqual(len(self.relay.holds), 0)

    def test_retry_what_is_held(self) -> None:
        """It stays held, and does not count as tried."""
        self.fill(4)
        self.part("HOLD-MESSAGES", where="subject = 's1'")
        reply = self.part("RETRY-MESSAGES", to="beta.example")
        self.assertEqual((reply.body["messages"], reply.body["held"]), (3, 1))
        self.part("HOLD-MESSAGES", to="beta.example")
        reply = self.part("RETRY-MESSAGES", all=True)
        self.assertEqual((reply.body["messages"], reply.body["held"]), (0, 4))

    def test_missing(self) -> None:
        """Ids of nothing that waits are named; what stays by its own right is not missing."""
        self.fill(2)
        ids = [row["id"] for row in self.part("LIST-MESSAGES", all=True).body["messages"]]
        for operation in ("RETRY-MESSAGES", "REROUTE-MESSAGES", "DELETE-MESSAGES"):
            reply = self.part(operation, ids=[ids[0], 99999])
            self.assertEqual(reply.body["missing"], [99999], operation)
        reply = self.part("EXPIRE-MESSAGES", ids=[ids[1]], where="subject = 's0'")
        self.assertEqual((reply.body["messages"], reply.body["missing"]), (0, [ids[1]]))
        self.assertEqual(self.part("EXPIRE-MESSAGES", all=True).body["missing"], [])

    def test_why_without_the_right(self) -> None:
        """A user without the right everywhere is refused, whether or not the message exists."""
        self.fill(1)
        self.broker.declare([node("orders"), node("sales")], {})
        (row,) = self.part("LIST-MESSAGES", all=True).body["messages"]
        there, gone = str(row["id"]), "99999"
        self.hidden = {row["queue"]}
        replies = [self.part("WHY", name) for name in (there, gone)]
        self.assertEqual([reply.status for reply in replies], [403, 403])
        words = "may not manage every relay queue (amqp$out/*); no message on what it may manage"
        for reply, name in zip(replies, (there, gone), strict=True):
            self.assertIn(f"{words} has the id {name}", reply.description)
        self.hidden = {"sales"}
        self.assertEqual(self.part("WHY", there).status, 200)
        self.assertIn("may not manage every node here;", self.part("WHY", gone).description)
        self.hidden = set()
        self.assertEqual(self.part("WHY", gone).status, 404)

    def notes_kept(self) -> dict[str, dict[str, bytes]]:
        """Return the notes, kind by kind, that the store would keep from now on."""
        kept: dict[str, dict[str, bytes]] = {}
        apply = self.store._apply

        def noting(transaction: Any) -> None:
            apply(transaction)
            for facts in transaction.facts:
                for (kind, key), value in facts.notes.items():
                    if value is None:
                        del kept[kind][key]
                    else:
                        kept.setdefault(kind, {})[key] = value

        self.patch(self.store, "_apply", noting)
        return kept

    def lead_beta(self, via: str = "") -> None:
        """Have what is for beta lead to a gateway, or else to the node ``orders`` here."""
        if via:
            self.router = Router(["alpha.example"], [RouteRule("beta.example", f"amqps://{via}")])
        else:
            self.router = Router(["alpha.example", "beta.example"])

    def ids(self) -> list[int]:
        """Return the ids of all messages on their way."""
        rows = self.part("LIST-MESSAGES", all=True).body["messages"]
        return [row["id"] for row in rows]

    def held(self) -> list[int]:
        """Return the ids of those that are held."""
        rows = self.part("LIST-MESSAGES", all=True).body["messages"]
        return [row["id"] for row in rows if row["state"] == "held"]

    def reroute(self, **body: Any) -> list[int]:
        """Reroute everything; return how many move, how many stay held, and are held no more."""
        reply = self.part("REROUTE-MESSAGES", all=True, **body)
        self.clock.advance(0)
        return [reply.body[key] for key in ("messages", "held", "freed")]

    def test_reroute_what_is_held(self) -> None:
        """A hold by ids follows its messages, now and after a restart."""
        notes = self.notes_kept()
        self.fill(3)
        ids = self.ids()
        self.part("HOLD-MESSAGES", ids=ids[:2])
        self.lead_beta("gate.example:5671")
        self.assertEqual(self.reroute(**{"dry-run": True}), [3, 2, 0])
        self.assertEqual(self.held(), ids[:2])
        self.assertEqual(self.reroute(), [3, 2, 0])
        after = self.ids()
        self.assertEqual((len(after), set(after) & set(ids)), (3, set()))
        self.assertEqual(self.held(), after[:2])
        (hold,) = self.relay.holds
        self.assertEqual(hold.ids, tuple(after[:2]))
        self.assertEqual(RelayHold.decode(notes[HOLD_NOTES]["h1"]), hold)

    def test_reroute_what_is_held_on_a_full_disk(self) -> None:
        """Messages that are not moved stay held."""
        self.fill(3)
        ids = self.ids()
        self.part("HOLD-MESSAGES", ids=ids[:2])
        self.lead_beta("gate.example:5671")
        self.fail_commits()
        self.assertEqual(self.part("REROUTE-MESSAGES", all=True).status, 409)
        self.assertEqual((self.ids(), self.held()), (ids, ids[:2]))
        (hold,) = self.relay.holds
        self.assertEqual(hold.ids, tuple(ids[:2]))

    def test_reroute_out_of_a_hold(self) -> None:
        """Messages that cannot be held elsewhere stay, with a remedy in the reply."""
        self.broker.declare([node("orders")], {})
        self.fill(4)
        ids = self.ids()
        self.part("HOLD-MESSAGES", where="subject = 's1'")
        self.part("HOLD-MESSAGES", ids=ids[2:3], to="beta.example")
        self.lead_beta()
        reply = self.part("REROUTE-MESSAGES", all=True)
        self.assertEqual((reply.body["messages"], reply.body["refused"]), (2, 2))
        self.assertIn(
            "held by h2, which would not hold on 'orders'; to move it, and not let it go out "
            "before: amqproute hold --to beta.example; amqproute release h2; then reroute again",
            reply.body["refused-because"],
        )
        self.assertEqual(self.held(), ids[1:3])
        self.part("HOLD-MESSAGES", to="beta.example")
        for name in ("h1", "h2"):
            self.part("RELEASE-HOLD", name)
        self.assertEqual(self.reroute(), [2, 0, 2])

    def test_reroute_from_a_way_that_is_held(self) -> None:
        """A hold of a next hop alone holds what goes there; one of a domain goes with it."""
        self.fill(2)
        self.lead_beta("gate.example:5671")
        self.part("HOLD-MESSAGES", to="beta.example")
        self.assertEqual(self.reroute(), [2, 2, 0])
        self.assertEqual(self.held(), self.ids())
        self.part("RELEASE-HOLD", "h1")
        self.part("HOLD-MESSAGES", to="gate.example:5671")
        self.lead_beta("door.example:5671")
        self.assertEqual(self.reroute(), [2, 0, 2])
        self.assertEqual(self.held(), [])

    def test_hold_what_is_not_there(self) -> None:
        """An id of nothing holds nothing, neither now nor when a message gets it."""
        self.fill(2)
        ids = self.ids()
        reply = self.part("HOLD-MESSAGES", ids=[99999])
        self.assertEqual((reply.status, len(self.relay.holds)), (404, 0))
        self.assertIn("no message on its way has the id 99999", reply.description)
        reply = self.part("HOLD-MESSAGES", ids=[*ids, 99999], where="subject = 's1'")
        self.assertEqual(reply.body["ids"], ids[1:])
        self.assertEqual((reply.body["missing"], reply.body["in-flight"]), ([ids[0], 99999], []))
        reply = self.part("HOLD-MESSAGES", to="nobody.example")
        self.assertEqual((reply.status, reply.body["queues"]), (200, []))
        reply = self.part("HOLD-MESSAGES", to="beta.example")
        self.assertEqual(reply.body["queues"], ["amqp$out/beta.example"])

    def test_hold_what_is_in_flight(self) -> None:
        """It is held if it comes back, and who holds it is told so."""
        self.fill(2)
        ids = self.ids()
        destination = self.relay.destinations["beta.example"]
        (entry, _) = destination.queue.in_memory()
        destination.queue.pick([entry])
        self.patch(type(destination), "holds", lambda _: [entry])
        reply = self.part("HOLD-MESSAGES", ids=ids)
        self.assertEqual((reply.body["ids"], reply.body["in-flight"]), (ids, ids[:1]))
        self.assertEqual(reply.body["missing"], [])

    def test_ids_of_holds(self) -> None:
        """They are not given out again, be there holds or not at a restart."""
        notes = self.notes_kept()
        self.fill(1)
        for name in ("h1", "h2"):
            self.assertEqual(self.part("HOLD-MESSAGES", to="beta.example").body["name"], name)
            self.part("RELEASE-HOLD", name)
        self.clock.advance(0)
        self.assertEqual(notes[HOLD_NOTES], {})
        again = self.house()
        again.recovered({}, {}, notes[LAST_HOLD_NOTES])
        self.assertEqual(again.holds.add("", "ann").id, "h3")

    def test_why_by_a_gateway(self) -> None:
        """A gateway has no domain to be tested: the way of the message itself is."""
        hop = NextHop("gate.example:5671", "gate.example", via="amqps://gate.example:5671")
        queue = self.relay.take_on_trust(hop)
        for to, said in (
            ("o@beta.example", "o@beta.example"),
            ("a;b@c.example", "'a;b@c.example'"),
        ):
            batch = self.broker.begin()
            properties = codec.encode(spec.Properties(to=to))
            body = sections.encode_section(spec.SECTION_DATA, b"1")
            queue.put(Message(properties + body), batch, Origin(ANONYMOUS_PRINCIPAL))
            self.result_of(batch.commit())
            (entry,) = queue.in_memory()
            destination = self.relay.destinations[hop.key]
            self.clock.advance(0)
            facts = why(destination, entry, self.relay.holds, 1)
            self.assertIn(f"amqproute peer test {said}", facts["next"])
            self.part("DELETE-MESSAGES", all=True)

    def test_why_it_is_not_where_it_belongs(self) -> None:
        """A route made since leads elsewhere: the command that moves the message is named."""
        self.fill(1)
        (row,) = self.part("LIST-MESSAGES", all=True).body["messages"]
        command = f"amqproute reroute {row['id']}"
        self.assertNotIn(command, self.part("WHY", str(row["id"])).body["next"])
        self.router = Router(
            ["alpha.example"], [RouteRule("beta.example", "amqps://gate.example:5671")]
        )
        self.assertIn(command, self.part("WHY", str(row["id"])).body["next"])

    # -- how much there is in one turn -----------------------------------------------------------

    def turns_of(self, name: str, count: Callable[[], int], *asked: Any) -> tuple[Any, list[int]]:
        """Ask, and let turns pass; return the answer, and what was counted in each turn."""
        operation, subject, body = asked
        request = ManagementRequest(operation, {"name": subject}, body, ANONYMOUS_PRINCIPAL)
        before, counts = count(), []
        answer = self.service.answer(request)
        assert isinstance(answer, Deferred), name
        while True:
            counts.append(count() - before)
            before += counts[-1]
            if answer.called:
                return self.successResultOf(answer), counts
            self.assertGreater(TurnClock.turn(self.clock), 0, name)  # type: ignore[arg-type]

    def counted(self, of: Any, name: str) -> Callable[[], int]:
        """Count the calls of a method; return what gives their number."""
        calls = [0]
        method = getattr(of, name)

        def counting(*args: Any, **more: Any) -> Any:
            calls[0] += 1
            return method(*args, **more)

        self.patch(of, name, counting)
        return lambda: calls[0]

    def test_list_over_many_queues(self) -> None:
        """An answer has a bounded number of messages, over however many queues they are."""
        for number in range(30):
            self.fill(100, f"d{number}.example")
        ids: list[int] = []
        cursor, parts = "", 0
        while parts == 0 or cursor:
            reply = self.part("LIST-MESSAGES", all=True, **({"cursor": cursor} if cursor else {}))
            found = reply.body["messages"]
            self.assertLessEqual(len(found), MOST_LISTED)
            ids += [each["id"] for each in found]
            cursor, parts = reply.body["cursor"], parts + 1
        self.assertEqual((len(ids), len(set(ids))), (3000, 3000))
        self.assertGreaterEqual(parts, 6)
        total, parts = self.all_of("DELETE-MESSAGES", all=True, **{"dry-run": True})
        self.assertEqual((total, parts), (3000, 1))

    def test_cursor_of_a_queue_that_is_gone(self) -> None:
        """The next request goes on with the queue behind it."""
        self.fill(3, "c.example")
        cursor = '["amqp$out/b.example", 4, 77]'
        reply = self.part("LIST-MESSAGES", all=True, cursor=cursor)
        self.assertEqual(len(reply.body["messages"]), 3)

    def test_list_in_turns(self) -> None:
        """So many rows are made in a turn and no more, of messages that wait or are held."""
        self.broker.declare([node("work")], {})
        queue = self.broker.nodes["work"]
        batch = self.broker.begin()
        for _ in range(1200):
            queue.put(Message(MESSAGE), batch, Origin(ANONYMOUS_PRINCIPAL))
        self.result_of(batch.commit())
        rows = self.counted(self.broker.nodes["work"].__class__, "wait_of")
        reply, counts = self.turns_of("wait", rows, "LIST-MESSAGES", "work", {})
        self.assertEqual((len(reply.body["messages"]), max(counts)), (MOST_LISTED, LISTED_AT_ONCE))
        taker = Taker(queue)
        taker.take(1200)
        reply, counts = self.turns_of("held", rows, "LIST-MESSAGES", "work", {})
        found = reply.body["messages"]
        self.assertEqual([len(found), {each["state"] for each in found}], [500, {"in-flight"}])
        self.assertLessEqual(max(counts), LISTED_AT_ONCE)

    def test_long_selector(self) -> None:
        """The longest selector is asked about few messages in a turn, of one that only counts."""
        self.fill(700)
        where = " OR ".join(f"subject = 'x{number}'" for number in range(200))
        tests = self.counted(Selector, "matches")
        body = {"all": True, "where": where, "dry-run": True}
        reply, counts = self.turns_of("where", tests, "DELETE-MESSAGES", "", body)
        self.assertEqual((reply.body["messages"], sum(counts)), (0, 700))
        self.assertLessEqual(max(counts), page_of(compile_selector(where).words))

    def test_way_is_looked_up_once(self) -> None:
        """A domain costs one look at all routes, and not one for each relay queue."""
        for number in range(20):
            self.fill(1, f"d{number}.example")
        looks = self.counted(Router, "hop")
        reply = self.part("DELETE-MESSAGES", to="d7.example", **{"dry-run": True})
        self.assertEqual((reply.body["messages"], looks()), (1, 1))

    def test_rights_in_turns(self) -> None:
        """The rights on very many relay queues are found out in slices, before anything is done."""
        for number in range(3 * QUEUES_AT_ONCE):
            self.relay.take_on_trust(NextHop(f"d{number}.example", f"d{number}.example"))
        self.hidden = {"amqp$out/d99.example"}
        asked = self.counted(RelayMessages, "_require")
        reply, counts = self.turns_of("all", asked, "DELETE-MESSAGES", "", {"all": True})
        self.assertEqual(reply.status, 403)
        self.assertEqual(max(counts), QUEUES_AT_ONCE)
        self.assertGreater(len(counts), 5)

    def test_why_in_turns(self) -> None:
        """WHY checks rights of so many queues in a turn, and reads in none that is empty."""
        self.broker.declare([node(f"n{number}") for number in range(1000)], {})
        self.fill(1)
        asked = self.counted(ExplainCommand, "_may")
        walks = self.counted(Queue, "walk")
        reply, counts = self.turns_of("why", asked, "WHY", "99999", {})
        self.assertEqual((reply.status, walks()), (404, 1))
        self.assertEqual((max(counts) <= AT_ONCE, sum(counts)), (True, 1001))
        self.assertGreater(len(counts), 2 * 1000 // AT_ONCE)

    def test_many_whys(self) -> None:
        """Only so many are answered at one time, and their sum has the share of one."""
        self.broker.declare([node(f"n{number}") for number in range(300)], {})
        asked = self.counted(ExplainCommand, "_may")
        request = ManagementRequest("WHY", {"name": "99999"}, {}, ANONYMOUS_PRINCIPAL)
        answers = [self.service.answer(request) for _ in range(MOST_ASKED + 2)]
        refused = [self.successResultOf(each).status for each in answers[MOST_ASKED:]]
        self.assertEqual(refused, [507, 507])
        before = asked()
        while not answers[0].called:
            TurnClock.turn(self.clock)  # type: ignore[arg-type]
            self.assertLessEqual(asked() - before, MOST_ASKED * AT_ONCE)
            before = asked()
        self.part("WHY", "99999")
        self.assertEqual([self.successResultOf(each).status for each in answers[:3]], [404] * 3)
        self.assertEqual(self.part("WHY", "99999").status, 404)


del _House
