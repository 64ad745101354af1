# SPDX-License-Identifier: Apache-2.0
"""Replies across organizations: aliases for the way back, and their end."""

from __future__ import annotations

import uuid
from typing import Any

from amqproute.address import parse
from amqproute.auth.policy import Rule, Verb
from amqproute.message import Message
from amqproute.services import reply_paths
from amqproute.services.reply_paths import REPLY_NOTES, SWEEP_SECONDS, ReplyPaths
from amqproute.values import Principal, RouteRule
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import node
from tests.support.memory_broker import ANN, Client, MemoryBroker, Network
from tests.support.reporting import CAPABILITIES, asking, let_report, reports_on

A, B, G = "alpha.example", "beta.example", "gateway.example"
NO_PEERS = [Rule.of(who="user:*", node="*", allow=list(Verb))]
"""Peers may transfer to nothing: an alias has to be enough."""


def let_reply(house: MemoryBroker, **changes: Any) -> ReplyPaths:
    """Have a broker make reply aliases as a daemon does."""
    replies = house.transfer.replies = ReplyPaths(
        house.broker,
        house.clock,
        lambda: house.domain,
        lambda *asked: house.transfer.rules.allows(*asked),
        lambda: str(uuid.uuid4()),
        **changes,
    )
    replies.recovered(house.store.notes.get(REPLY_NOTES, {}))
    return replies


class ReplyCase(HouseTestCase):
    """Clients of alpha ask, a server at beta answers."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = self.house_a()
        self.beta = MemoryBroker(
            self.network, B, node("orders"), node("back"), capabilities=CAPABILITIES
        )
        let_report(self.beta)

    def house_a(self, **changes: Any) -> MemoryBroker:
        """Make alpha, or make it again."""
        rules = changes.pop("rules", NO_PEERS)
        house = MemoryBroker(
            self.network, A, node("answers"), node("secret"), rules=rules,
            capabilities=CAPABILITIES, **changes,
        )  # fmt: skip
        let_reply(house)
        return house

    def ask(self, client: Client, reply_to: str, body: bytes = b"?", **fields: Any) -> Any:
        """Send a question to beta."""
        link = client.sender(f"orders@{B}", name=f"ask-{uuid.uuid4()}")
        self.run_now()
        client.send(link, asking(body, return_to=None, reply_to=reply_to, **fields))
        self.run_for(2)
        return link

    def asked(self, house: MemoryBroker | None = None) -> list[Message]:
        """Return the questions, as they have come to beta."""
        return [Message(row.encoded) for row in (house or self.beta).store.rows("orders")]

    def answer(self, question: Message, body: bytes = b"!", *words: str) -> Client:
        """Answer it as a server does that knows nothing of all this."""
        server = self.beta.client()
        link = server.sender(None)
        self.run_now()
        answer = asking(
            body,
            *words,
            to=question.reply_to,
            return_to="back" if words else None,
            correlation_id=question.properties.message_id,
        )
        server.send(link, answer)
        self.run_for(2)
        self.assertOutcomes(server, "Accepted")
        return server


class AliasTests(ReplyCase):
    """From the question to the answer."""

    def test_named(self) -> None:
        """A queue of one's own: an alias on the way out, the queue on the way back."""
        self.ask(self.alpha.client(), "answers", message_id="m1", subject="s")
        (question,) = self.asked()
        address = parse(question.reply_to)
        self.assertEqual(address.domain, A)
        self.assertEqual(len(address.node), len("reply-") + 36)
        properties = question.properties
        self.assertEqual((properties.message_id, properties.subject), ("m1", "s"))
        self.answer(question)
        (row,) = self.alpha.store.rows("answers")
        got = Message(row.encoded)
        self.assertEqual(got.properties.correlation_id, "m1")
        self.assertEqual(got.annotations["x-opt-amqproute-origin"], B)

    def test_dynamic(self) -> None:
        """A dynamic node: the alias lives as long as the node, also if the asking link ends."""
        client = self.alpha.client()
        source = spec.Source(dynamic=True)
        link = client.receiver(None, 10, source=source)
        self.run_now()
        sender = self.ask(client, link.source.address)
        sender.detach(closed=True)
        client.flush()
        self.run_for(3600, 30)
        (question,) = self.asked()
        self.answer(question, b"late")
        self.assertEqual(client.bodies(), [b"late"])
        link.detach(closed=True)
        client.flush()
        self.run_for(2)
        self.answer(question, b"too late", "failure")
        (report,) = reports_on(self.beta, "back")
        self.assertEqual(report["code"], "reply.gone")
        self.assertEqual(client.bodies(), [b"late"])
        self.run_for(2 * SWEEP_SECONDS, 10)
        self.assertEqual(self.alpha.transfer.replies.aliases, {})

    def test_ends_with_link_and_grace(self) -> None:
        """The link ends: replies for a while yet, then a report for whoever answers."""
        client = self.alpha.client()
        link = self.ask(client, "answers")
        (question,) = self.asked()
        link.detach(closed=True)
        client.flush()
        self.run_for(200, 10)
        self.answer(question, b"1")
        self.assertEqual(self.alpha.bodies("answers"), [b"1"])
        self.run_for(200, 10)
        self.answer(question, b"2", "failure")
        self.assertEqual(self.alpha.bodies("answers"), [b"1"])
        self.assertEqual([each["code"] for each in reports_on(self.beta, "back")], ["reply.gone"])
        self.run_for(100, 10)
        self.assertEqual(self.alpha.store.notes[REPLY_NOTES], {})

    def test_connection_lost(self) -> None:
        """A lost connection ends the link as well."""
        client = self.alpha.client()
        self.ask(client, "answers")
        client.wire.cut()  # type: ignore[attr-defined]
        self.run_for(400, 10)
        self.assertEqual(self.alpha.transfer.replies.aliases, {})

    def test_restart(self) -> None:
        """After a restart there is the grace, from then on."""
        self.ask(self.alpha.client(), "answers")
        (question,) = self.asked()
        self.alpha.crash()
        self.alpha = self.house_a(store=self.alpha.store)
        self.run_for(200, 10)
        self.answer(question, b"1")
        self.assertEqual(self.alpha.bodies("answers"), [b"1"])
        self.run_for(200, 10)
        self.answer(question, b"2")
        self.assertEqual(self.alpha.bodies("answers"), [b"1"])

    def test_guessing(self) -> None:
        """An alias that never was delivers nowhere; a node that is named like one does."""
        self.ask(self.alpha.client(), "answers")
        peer = self.alpha.client(Principal("peer", B, frozenset({B})))
        link = peer.sender("amqp$transfer")
        self.run_now()
        for to in ("reply-1", f"reply-{uuid.uuid4()}@{A}", "answers", "secret"):
            peer.send(link, asking(b"x", to=to, return_to=None))
            self.run_now()
        self.assertOutcomes(peer, *["Rejected"] * 4)
        codes = [(state.error.info or {}).get("code") for _, state, _ in peer.updates]
        self.assertEqual(codes, ["reply.gone", "reply.gone", None, None])
        self.assertEqual(self.alpha.depth("answers"), 0)

    def test_what_there_is_cannot_be_guessed(self) -> None:
        """A node named like an alias is refused in the words of one that is not there."""
        rules = [Rule.of(who=f"peer:{B}", node="reply-desk", allow=["transfer"]), *NO_PEERS]
        self.alpha = MemoryBroker(
            self.network, A, node("reply-desk"), node("reply-store"), rules=rules,
            capabilities=CAPABILITIES,
        )  # fmt: skip
        let_reply(self.alpha)
        peer = self.alpha.client(Principal("peer", B, frozenset({B})))
        link = peer.sender("amqp$transfer")
        stranger = self.alpha.client(Principal("peer", G, frozenset({G})))
        other = stranger.sender("amqp$transfer")
        self.run_now()
        peer.send(link, asking(b"x", to="reply-desk", return_to=None))
        for client, its in ((peer, link), (stranger, other)):
            for to in ("reply-store", "reply-stare"):
                client.send(its, asking(b"x", to=to, return_to=None))
        self.run_now()
        self.assertOutcomes(peer, "Rejected", "Rejected", "Accepted")
        for updates in (peer.updates[:2], stranger.updates):
            told = [
                (error.condition, str(error.info), error.description.replace("store", "stare"))
                for error in [state.error for _, state, _ in updates]
            ]
            self.assertEqual(told[0], told[1])
        self.assertEqual(self.alpha.depth("reply-store"), 0)

    def test_left_alone(self) -> None:
        """A domain, no node of ours, a node without the right, a footer, a message that stays."""
        rules = [
            Rule.of(who="user:*", node="secret", deny=["publish", "consume"]),
            Rule.of(who="user:*", node="*", allow=list(Verb)),
        ]
        self.alpha = self.house_a(rules=rules)
        client = self.alpha.client()
        for reply_to in ("x@third.example", f"answers@{A}", "nothing-here", "secret", "@"):
            self.ask(client, reply_to)
            self.assertEqual(self.asked()[-1].reply_to, reply_to)
        link = client.sender("answers", name="local")
        self.run_now()
        client.send(link, asking(reply_to="answers", return_to=None))
        self.run_now()
        (row,) = self.alpha.store.rows("answers")
        self.assertEqual(Message(row.encoded).reply_to, "answers")
        self.assertEqual(self.alpha.transfer.replies.aliases, {})

    def test_one_for_each_link(self) -> None:
        """The questions of one link have one alias; another link has another."""
        client = self.alpha.client()
        link = self.ask(client, "answers")
        client.send(link, asking(return_to=None, reply_to="answers"))
        self.ask(client, "answers")
        first, second, third = [each.reply_to for each in self.asked()]
        self.assertEqual(first, second)
        self.assertNotEqual(second, third)

    def test_one_does_not_use_up_those_of_all(self) -> None:
        """A client in a loop gets no more aliases until its own end; others do."""
        self.patch(reply_paths, "MOST_OF_ONE", 3)
        greedy = self.alpha.client(Principal("user", "greedy"))
        links = [self.ask(greedy, "answers") for _ in range(5)]
        self.ask(self.alpha.client(), "answers")
        kept = [each.reply_to.startswith("reply-") for each in self.asked()]
        self.assertEqual(kept, [True, True, True, False, False, True])
        for link in links:
            link.detach(closed=True)
        greedy.flush()
        self.run_for(300 + 2 * SWEEP_SECONDS, 10)
        self.ask(greedy, "answers")
        self.assertTrue(self.asked()[-1].reply_to.startswith("reply-"))

    def test_noted(self) -> None:
        """The alias is as durable as the question: it is in the store with it."""
        self.assertEqual(self.alpha.store.notes.get(REPLY_NOTES), None)
        self.ask(self.alpha.client(ANN), "answers")
        ((name, target),) = self.alpha.store.notes[REPLY_NOTES].items()
        self.assertEqual(target, b"answers")
        self.assertIn(name, self.alpha.transfer.replies.aliases)

    def test_two_hops(self) -> None:
        """By a gateway there and back: neither client knows of it."""
        route = RouteRule("*", f"amqps://{G}:5671", names=(G,))
        self.alpha = self.house_a(routes=[route])
        gateway = MemoryBroker(
            self.network, G, capabilities=CAPABILITIES, relay_for=[A, B],
            rules=[Rule.of(who="*", node="*", allow=list(Verb))],
        )  # fmt: skip
        self.beta = MemoryBroker(
            self.network, B, node("orders"), node("back"), routes=[route],
            capabilities=CAPABILITIES,
        )  # fmt: skip
        for house, others in ((self.alpha, (B,)), (self.beta, (A,)), (gateway, ())):
            house.transfer.rules.partners.origins = lambda _, others=others: others
            house.transfer.reload(house.transfer.rules)
        client = self.alpha.client()
        link = client.receiver(None, 10, source=spec.Source(dynamic=True))
        self.run_now()
        self.ask(client, link.source.address)
        (question,) = self.asked()
        self.assertEqual(
            list(question.annotations["x-opt-amqproute-trace"]), [f"ct-{A}", f"ct-{G}"]
        )
        self.answer(question, b"by way of the gateway")
        self.assertEqual(client.bodies(), [b"by way of the gateway"])

    def test_qualified_dynamic(self) -> None:
        """A dynamic node given out with the domain leads back as it is."""
        client = self.alpha.client()
        link = client.receiver(None, 10, source=spec.Source(dynamic=True))
        self.run_now()
        address = f"{link.source.address}@{A}"
        self.ask(client, address)
        (question,) = self.asked()
        self.assertEqual(question.reply_to, address)
        self.answer(question, b"here")
        self.assertEqual(client.bodies(), [b"here"])
