# SPDX-License-Identifier: Apache-2.0
"""Queues and exchanges declared by clients of 0-9 and 0-9-1: answers, codes and scopes.

Rules: 09-QUEUE-06, -08, -11, -16, -17, -19, -27, -28, -32, -36, -37, -43, -45, -47, -51, -52, -53,
-55, 09-X-34, -36, -43, -44, -45, -53, -54, -55, 09-EXCH-09, -13, -17, -19, -20, -21, -23, 09-X-24,
-25, -26, -27, -32, I-06, I-15.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from tests.conformance.frame_broker import EVERYTHING, Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091

HEADERS = {"0-9": V09, "0-9-1": V091}
DEAD_TO_EXCHANGE = [("x-dead-letter-exchange", "S", b"amq.fanout")]
DEAD_TO_QUEUE = [
    ("x-dead-letter-exchange", "S", b""),
    ("x-dead-letter-routing-key", "S", b"q"),
]


class QueueMethodTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = Client09(self.house).channel()

    def of(self, version: str) -> Client09:
        return Client09(self.house, version=HEADERS[version]).channel()

    def test_declare(self) -> None:
        """A queue is made once, and told with its counts."""
        for _ in range(2):
            answer = self.client.answer("queue.declare", queue="new", durable=1)
            self.assertEqual(answer, {"queue": "new", "message-count": 0, "consumer-count": 0})
        self.client.publish(b"1", b"2", key="new")
        self.client.ask("basic.consume", queue="q", consumer_tag="c")
        answer = self.client.answer("queue.declare", queue="new", passive=1)
        self.assertEqual(answer["message-count"], 2)
        answer = self.client.answer("queue.declare", queue="q", passive=1)
        self.assertEqual(answer["consumer-count"], 1)

    def test_declared_otherwise(self) -> None:
        """A second declaration has to be like the first, but for what 0-9 ignores."""
        self.client.ask("queue.declare", queue="new", durable=1)
        self.assertEqual(self.client.refused("queue.declare", queue="new"), ("channel", 406))
        self.assertEqual(self.of("0-9").answer("queue.declare", queue="new")["queue"], "new")

    def test_generated_name(self) -> None:
        """Without a name the broker makes one, which an empty name then means."""
        name = self.client.answer("queue.declare", exclusive=1)["queue"]
        self.assertIn(name, self.house.broker.nodes)
        self.client.publish(b"1", key=name)
        self.assertEqual(self.client.answer("queue.purge")["message-count"], 1)
        self.assertEqual(self.client.answer("queue.delete")["message-count"], 0)

    def test_no_queue_declared(self) -> None:
        """An empty name with no queue declared is an error, whose code differs (09-X-43)."""
        for version, code in (("0-9", ("connection", 530)), ("0-9-1", ("channel", 404))):
            for name, fields in (
                ("queue.bind", {"exchange": "amq.direct"}),
                ("queue.purge", {}),
                ("queue.delete", {}),
                ("basic.get", {}),
                ("basic.consume", {}),
            ):
                self.assertEqual(self.of(version).refused(name, **fields), code, name)

    def test_missing_queue(self) -> None:
        """A missing queue cannot be used; 0-9-1 deletes it with success."""
        for name in ("queue.purge", "basic.get", "basic.consume"):
            self.assertEqual(self.client.refused(name, queue="none"), ("channel", 404), name)
        for fields in ({"queue": "none", "exchange": "amq.direct"},
                       {"queue": "q", "exchange": "none"}):  # fmt: skip
            self.assertEqual(self.client.refused("queue.bind", **fields), ("channel", 404))
        self.assertEqual(
            self.client.refused("queue.declare", queue="none", passive=1), ("channel", 404)
        )
        self.assertEqual(self.client.ask("queue.delete", queue="none"), ["queue.delete-ok"])
        self.assertEqual(self.of("0-9").refused("queue.delete", queue="none"), ("channel", 404))

    def test_exclusive(self) -> None:
        """An exclusive queue is locked to others, and goes with its connection."""
        self.client.ask("queue.declare", queue="mine", exclusive=1)
        other = self.of("0-9-1")
        for name, fields in (
            ("queue.declare", {"queue": "mine", "exclusive": 1}),
            ("queue.declare", {"queue": "mine", "passive": 1}),
            ("queue.purge", {"queue": "mine"}),
            ("queue.delete", {"queue": "mine"}),
            ("queue.bind", {"queue": "mine", "exchange": "amq.direct"}),
            ("basic.get", {"queue": "mine"}),
            ("basic.consume", {"queue": "mine"}),
        ):
            self.assertEqual(other.refused(name, **fields), ("channel", 405), name)
        self.client.hang_up()
        self.assertNotIn("mine", self.house.broker.nodes)

    def test_auto_delete(self) -> None:
        """A queue with auto-delete goes with its last consumer, and not by a get."""
        self.client.ask("queue.declare", queue="brief", auto_delete=1)
        self.assertEqual(self.client.ask("basic.get", queue="brief"), ["basic.get-empty"])
        self.assertIn("brief", self.house.broker.nodes)
        self.client.ask("basic.consume", queue="brief", consumer_tag="c")
        self.client.ask("basic.cancel", consumer_tag="c")
        self.world.advance()
        self.assertNotIn("brief", self.house.broker.nodes)

    def test_delete_with_conditions(self) -> None:
        """if-empty and if-unused keep a queue with messages, or consumers."""
        self.client.ask("queue.declare", queue="new")
        self.client.publish(b"1", key="new")
        self.assertEqual(
            self.client.refused("queue.delete", queue="new", if_empty=1), ("channel", 406)
        )
        other = self.of("0-9-1")
        other.ask("basic.consume", queue="new", consumer_tag="c", no_ack=1)
        self.assertEqual(
            self.client.refused("queue.delete", queue="new", if_unused=1), ("channel", 406)
        )
        self.assertEqual(self.client.ask("queue.delete", queue="new"), ["queue.delete-ok"])
        self.assertEqual(other.run().names()[-1], "basic.cancel")

    def test_without_answers(self) -> None:
        """With nowait nothing is answered but errors."""
        self.assertEqual(self.client.ask("queue.declare", queue="new", nowait=1), [])
        self.assertEqual(
            self.client.ask("queue.bind", queue="new", exchange="amq.fanout", nowait=1), []
        )
        self.assertEqual(self.client.ask("exchange.declare", exchange="e", type="fanout",
                                         nowait=1), [])  # fmt: skip
        self.client.publish(b"1", exchange="amq.fanout", key="any")
        self.assertEqual(self.client.depth("new"), 1)
        self.assertEqual(self.client.ask("queue.purge", queue="new", nowait=1), [])
        self.assertEqual(self.client.ask("queue.delete", queue="new", nowait=1), [])
        self.assertEqual(self.client.refused("queue.purge", queue="new", nowait=1)[1], 404)

    def test_rights(self) -> None:
        """Each method needs its right, and 403 closes the channel."""
        deny = {
            "create": [
                ("queue.declare", {"queue": "new"}),
                ("queue.delete", {"queue": "q"}),
                ("exchange.declare", {"exchange": "e", "type": "direct"}),
                ("exchange.delete", {"exchange": "e"}),
                ("queue.bind", {"queue": "q", "exchange": "amq.direct"}),
                ("exchange.bind", {"source": "amq.direct", "destination": "amq.topic"}),
            ],
            "consume": [
                ("queue.purge", {"queue": "q"}),
                ("basic.get", {"queue": "q"}),
                ("basic.consume", {"queue": "q"}),
                ("queue.bind", {"queue": "q", "exchange": "amq.direct"}),
                ("exchange.bind", {"source": "amq.direct", "destination": "amq.topic"}),
            ],
            "publish": [  # where others publish for the client
                ("queue.declare", {"queue": "new", "arguments": DEAD_TO_EXCHANGE}),
                ("queue.declare", {"queue": "new", "arguments": DEAD_TO_QUEUE}),
                ("exchange.declare", {"exchange": "e", "type": "direct",
                                      "arguments": [("alternate-exchange", "S", b"amq.fanout")]}),
            ],
        }  # fmt: skip
        for verb, methods in deny.items():
            allowed = [each for each in EVERYTHING if each != verb]
            house = self.world.house(
                f"{verb}.test", access=[Rule.of(who="*", node="*", allow=allowed)]
            )
            client = Client09(house).channel()
            for name, fields in methods:
                self.assertEqual(client.refused(name, **fields), ("channel", 403), (verb, name))

    def test_dead_letters_without_key(self) -> None:
        """The publisher's key names no queue that dead letters go to: nobody's rights allow it."""
        fields = {"queue": "new", "arguments": DEAD_TO_QUEUE[:1]}
        self.assertEqual(self.client.refused("queue.declare", **fields), ("channel", 406))
        for arguments in (DEAD_TO_EXCHANGE, DEAD_TO_QUEUE):
            self.client.answer("queue.declare", queue="new", arguments=arguments)
            self.client.answer("queue.delete", queue="new")


class ExchangeMethodTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = Client09(self.house).channel()

    def test_declare(self) -> None:
        """An exchange is made once; what it is cannot change."""
        for _ in range(2):
            found = self.client.ask("exchange.declare", exchange="e", type="topic", durable=1)
            self.assertEqual(found, ["exchange.declare-ok"])
        self.assertEqual(
            self.client.ask("exchange.declare", exchange="e", passive=1), ["exchange.declare-ok"]
        )
        for fields, code in (
            ({"exchange": "e", "type": "direct", "durable": 1}, 406),
            ({"exchange": "e", "type": "topic"}, 406),
            ({"exchange": "amq.mine", "type": "topic"}, 403),
            ({"exchange": "", "type": "direct"}, 403),
            ({"exchange": "none", "passive": 1}, 404),
        ):
            self.assertEqual(
                self.client.refused("exchange.declare", **fields), ("channel", code), fields
            )
        plugin = {"exchange": "x", "type": "x-delayed-message"}
        self.assertEqual(self.client.refused("exchange.declare", **plugin), ("connection", 503))

    def test_bound(self) -> None:
        """exchange.bound tells what is missing, and closes nothing."""
        self.client.ask("exchange.declare", exchange="e", type="topic")
        self.client.ask("exchange.declare", exchange="empty", type="topic")
        self.client.ask("queue.declare", queue="other")
        self.client.ask("queue.bind", queue="q", exchange="e", routing_key="a.#")
        for exchange, key, queue, code in (
            ("e", "", "", 0),
            ("e", "a.#", "", 0),
            ("e", "", "q", 0),
            ("e", "a.#", "q", 0),
            ("", "q", "q", 0),
            ("", "q", "", 0),
            ("", "", "", 0),
            ("none", "", "", 1),
            ("e", "", "none", 2),
            ("empty", "", "", 3),
            ("e", "", "other", 4),
            ("e", "a.b", "", 5),  # it is about bindings, not about messages
            ("", "none", "", 5),
            ("e", "a.#", "other", 6),
            ("", "q", "other", 6),
        ):
            asked = {"exchange": exchange, "routing_key": key, "queue": queue}
            answer = self.client.answer("exchange.bound", **asked)
            self.assertEqual(answer["reply-code"], code, asked)
            self.assertEqual(answer["reply-text"] == "", code == 0, asked)
        self.client.ask("queue.unbind", queue="q", exchange="e", routing_key="a.#")
        answer = self.client.answer("exchange.bound", exchange="e", routing_key="a.#")
        self.assertEqual(answer["reply-code"], 5)

    def test_bound_needs_a_right(self) -> None:
        """A client without the right to bind to an exchange does not learn its bindings."""
        house = self.world.house(access=(Rule(("anonymous",), ("create", "publish"), ("*",)),))
        client = Client09(house).channel()
        self.assertEqual(client.refused("exchange.bound", exchange="amq.direct"), ("channel", 403))

    def test_codes_of_0_9(self) -> None:
        """Codes that differ in 0-9 are kept."""
        self.client.ask("exchange.declare", exchange="e", type="topic")
        for fields, code in (
            ({"exchange": "e", "type": "direct"}, 530),
            ({"exchange": "new", "type": "nobody"}, 503),
        ):
            client = Client09(self.house, version=V09).channel()
            self.assertEqual(client.refused("exchange.declare", **fields), ("connection", code))

    def test_bindings(self) -> None:
        """Messages go along bindings between exchanges to queues, each queue once."""
        ask = self.client.ask
        ask("exchange.declare", exchange="e", type="topic")
        self.assertEqual(
            ask("exchange.bind", source="e", destination="amq.fanout", routing_key="a.#"),
            ["exchange.bind-ok"],
        )
        for _ in range(2):
            self.assertEqual(ask("queue.bind", queue="q", exchange="amq.fanout"),
                             ["queue.bind-ok"])  # fmt: skip
        ask("queue.bind", queue="q", exchange="e", routing_key="*.b")
        self.client.publish(b"1", exchange="e", key="a.b")
        self.client.publish(b"2", exchange="e", key="c")
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(
            self.client.refused("exchange.delete", exchange="e", if_unused=1), ("channel", 406)
        )
        self.assertEqual(
            ask("exchange.unbind", source="e", destination="amq.fanout", routing_key="a.#"),
            ["exchange.unbind-ok"],
        )
        self.assertEqual(ask("exchange.delete", exchange="e"), ["exchange.delete-ok"])
        self.assertEqual(ask("exchange.delete", exchange="e"), ["exchange.delete-ok"])

    def test_default_exchange(self) -> None:
        """Nobody binds to the default exchange in 0-9-1; in 0-9 that is permitted."""
        fields = {"queue": "q", "exchange": "", "routing_key": "other"}
        self.assertEqual(self.client.refused("queue.bind", **fields), ("channel", 403))
        client = Client09(self.house, version=V09).channel()
        self.assertEqual(client.ask("queue.bind", **fields), ["queue.bind-ok"])
        client.publish(b"1", key="other")
        self.assertEqual(client.depth(), 1)

    def test_access(self) -> None:
        """A ticket is given to whoever asks, and used for nothing (I-15)."""
        answer = self.client.answer("access.request", realm="/data", active=1)
        self.assertEqual(answer["ticket"], 1)
        found = self.client.ask("queue.declare", queue="t", ticket=1)
        self.assertEqual(found, ["queue.declare-ok"])
