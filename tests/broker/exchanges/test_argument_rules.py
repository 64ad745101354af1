# SPDX-License-Identifier: Apache-2.0
"""Tests of arguments, names and routing keys in `amqproute.broker.exchanges`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.argument_rules import (
    MOST_LIFETIME_MS,
    PLUGIN_TYPES,
    QUEUE_RULES,
    EffectiveTerm,
    PolicyTerms,
    QueueDeclaration,
    TermSource,
    check_queue_kind,
    check_queue_redeclared,
    consumer_priority,
    effective_terms,
    exchange_definition,
    policy_terms,
    queue_terms,
)
from amqproute.broker.exchanges.binding_tables import ExchangeType
from amqproute.broker.exchanges.carbon_copies import MOST_KEYS, routing_keys
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_names import check_exchange_name, check_queue_name
from amqproute.wire.amqp09.field_tables import FieldTable, Int8, Int64, UInt32


class FaultAssertions(SynchronousTestCase):
    """The errors of each argument."""

    def fails(self, kind: TopologyFaultKind, call: Any, *arguments: Any, **more: Any) -> str:
        """Check that a call fails with a kind; return the words."""
        fault = self.assertRaises(TopologyFault, call, *arguments, **more)
        self.assertEqual(fault.kind, kind, fault.text)
        return str(fault.text)


class QueueArgumentTests(FaultAssertions):
    """`queue_terms`."""

    def test_each(self) -> None:
        """The values of each argument."""
        rows: dict[str, tuple[list[Any], list[Any]]] = {
            "message-ttl": (
                [0, 60000, UInt32(5), 0xFFFFFFFF, 2**27 * 1000, MOST_LIFETIME_MS],
                [-1, MOST_LIFETIME_MS + 1, "5", 5.0, True, None],
            ),
            "expires": ([1, Int64(5)], [0, -1, 1 << 32, "1"]),
            "max-length": ([0, Int8(5), (1 << 63) - 1], [-1, "5", b"5", (5,)]),
            "max-length-bytes": ([0, 1], [-1, {"a": 1}]),
            "overflow": (
                ["drop-head", "reject-publish", "reject-publish-dlx"],
                ["drop-tail", 1, b"drop-head"],
            ),
            "dead-letter-exchange": (["", "dlx"], [1, "é" * 128, None]),
            "max-priority": ([0, 1, 255], [-1, 256, "9", True]),
            "single-active-consumer": ([True, False], [1, "true", None]),
            "delivery-limit": ([-1, 0, 5], [-2, "5"]),
            "consumer-timeout": ([0, 60000], [-1, 1.5]),
            "queue-type": (["classic", "quorum"], ["lvq", 1]),
            "queue-mode": (["lazy", "default"], ["eager"]),
            "queue-version": ([1, 2], [0, 3, "2"]),
            "dead-letter-strategy": (["at-most-once", "at-least-once"], ["twice"]),
        }  # fmt: skip
        self.assertEqual({*rows, "dead-letter-routing-key"}, set(QUEUE_RULES))
        for name, (good, bad) in rows.items():
            for value in good:
                self.assertEqual(queue_terms("q", {f"x-{name}": value}), {name: value})
            for value in bad:
                words = self.fails(
                    TopologyFaultKind.INVALID_ARGUMENT, queue_terms, "q", {f"x-{name}": value}
                )
                self.assertIn(f"invalid arg 'x-{name}' for queue 'q'", words)

    def test_dead_letter_key(self) -> None:
        """A routing key of dead letters needs an exchange."""
        both = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"}
        self.assertEqual(len(queue_terms("q", both)), 2)
        del both["x-dead-letter-exchange"]
        self.fails(TopologyFaultKind.INVALID_ARGUMENT, queue_terms, "q", both)

    def test_streams(self) -> None:
        """They are refused in words."""
        words = self.fails(
            TopologyFaultKind.UNSUPPORTED_QUEUE_TYPE, queue_terms, "q", {"x-queue-type": "stream"}
        )
        self.assertIn("stream", words)
        words = self.fails(
            TopologyFaultKind.INVALID_ARGUMENT, consumer_priority, {"x-stream-offset": "first"}
        )
        self.assertIn("stream", words)

    def test_unknown(self) -> None:
        """They are accepted; what they say is the declaration's."""
        self.assertEqual(queue_terms("q", {"x-mine": [1], "message-ttl": "x", "x": None}), {})

    @given(st.dictionaries(st.sampled_from([f"x-{n}" for n in QUEUE_RULES]),
                           st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3),
                                     st.binary(max_size=3), st.floats(), st.just({}), st.just(())),
                           max_size=3))  # fmt: skip
    def test_any(self, arguments: dict[str, Any]) -> None:
        """Any argument gives values of the right types or a fault."""
        try:
            terms = queue_terms("q", arguments)
        except TopologyFault as fault:
            self.assertTrue(fault.text)
        else:
            self.assertEqual({f"x-{name}" for name in terms}, set(arguments))


class RedeclareTests(FaultAssertions):
    """`check_queue_redeclared`."""

    def test_equal(self) -> None:
        """Numbers of another width, and the usual queue type said or not, make no difference."""
        there = QueueDeclaration(
            "q", True, arguments=FieldTable({"x-expires": UInt32(5), "a": "b"})
        )
        for arguments in (
            {"a": "b", "x-expires": 5}, {"a": "b", "x-expires": Int64(5)},
            {"a": b"b", "x-expires": 5.0, "x-queue-type": "classic"},
        ):  # fmt: skip
            check_queue_redeclared(there, QueueDeclaration("q", True, arguments=arguments))

    def test_different(self) -> None:
        """A difference is named, with both values."""
        there = QueueDeclaration("q", True, arguments={"x-expires": 5})
        rows: list[tuple[QueueDeclaration, str]] = [
            (QueueDeclaration("q", False, arguments={"x-expires": 5}),
             "'durable' | received 'false' but current is 'true'"),
            (QueueDeclaration("q", True, True, arguments={"x-expires": 5}),
             "'exclusive' | received 'true' but current is 'false'"),
            (QueueDeclaration("q", True, auto_delete=True, arguments={"x-expires": 5}),
             "'auto_delete' | received 'true' but current is 'false'"),
            (QueueDeclaration("q", True),
             "'x-expires' | received none but current is the value '5'"),
            (QueueDeclaration("q", True, arguments={"x-expires": 6}),
             "'x-expires' | received the value '6' but current is the "
             "value '5'"),
            (QueueDeclaration("q", True, arguments={"x-expires": 5, "x-queue-type": "quorum"}),
             "'x-queue-type' | received the value 'quorum' but current "
             "is the value 'classic'"),
        ]  # fmt: skip
        for asked, words in rows:
            name, _, what = words.partition(" | ")
            self.assertEqual(
                self.fails(TopologyFaultKind.OTHER_QUEUE, check_queue_redeclared, there, asked),
                f"inequivalent arg {name} for queue 'q': {what}",
            )

    def test_without_meaning(self) -> None:
        """Arguments that nobody knows may differ in 0-9-1."""
        there = QueueDeclaration("q", True, arguments={"x-expires": 5, "a": 1})
        for other in ({"x-expires": 5}, {"x-expires": 5, "a": 2, "x-mine": "b"}):
            check_queue_redeclared(there, QueueDeclaration("q", True, arguments=other))

    def test_quorum(self) -> None:
        """A quorum queue is durable, and neither exclusive nor auto-delete."""
        quorum = {"x-queue-type": "quorum"}
        check_queue_kind(QueueDeclaration("q", True, arguments=quorum))
        check_queue_kind(QueueDeclaration("q", False, arguments={"x-queue-type": "classic"}))
        for asked in (
            QueueDeclaration("q", False, arguments=quorum),
            QueueDeclaration("q", True, True, arguments=quorum),
            QueueDeclaration("q", True, False, True, arguments=quorum),
        ):
            words = self.fails(TopologyFaultKind.INVALID_ARGUMENT, check_queue_kind, asked)
            self.assertIn("invalid property", words)

    def test_lenient(self) -> None:
        """0-9 ignores durable and auto-delete, and nothing else."""
        there = QueueDeclaration("q", True)
        check_queue_redeclared(there, QueueDeclaration("q", False, False, True), lenient=True)
        for asked in (QueueDeclaration("q", True, True), QueueDeclaration("q", arguments={"a": 1})):
            self.fails(
                TopologyFaultKind.OTHER_QUEUE, check_queue_redeclared, there, asked, lenient=True
            )


class ExchangeArgumentTests(FaultAssertions):
    """`exchange_definition` and `consumer_priority`."""

    def test_exchange(self) -> None:
        """Type, flags, alternate exchange."""
        arguments = {"alternate-exchange": "u", "x-mine": 1}
        made = exchange_definition("e", "topic", {"durable": True, "internal": True}, arguments)
        self.assertEqual(
            (made.name, made.type, made.durable, made.auto_delete, made.internal, made.alternate),
            ("e", ExchangeType.TOPIC, True, False, True, "u"),
        )
        self.assertEqual(made.arguments, arguments)
        self.assertIsNone(exchange_definition("e", "fanout", {}, {}).alternate)
        for wrong in (1, None, ["u"], b"u"):
            words = self.fails(
                TopologyFaultKind.INVALID_ARGUMENT,
                exchange_definition,
                "e",
                "fanout",
                {},
                {"alternate-exchange": wrong},
            )
            self.assertIn("alternate-exchange", words)

    def test_types(self) -> None:
        """Plug-ins' types are refused in words that name them, others as unknown."""
        for name in (*PLUGIN_TYPES, "x-whatever"):
            words = self.fails(
                TopologyFaultKind.PLUGIN_TYPE, exchange_definition, "e", name, {}, {}
            )
            self.assertIn(f"'{name}' is a plug-in", words)
        for name in ("", "Direct", "system", "fanout "):
            words = self.fails(
                TopologyFaultKind.UNKNOWN_TYPE, exchange_definition, "e", name, {}, {}
            )
            self.assertIn(f"unknown exchange type '{name}'", words)

    def test_consumer(self) -> None:
        """x-priority is an integer with a sign."""
        self.assertEqual(consumer_priority({}), 0)
        self.assertEqual(consumer_priority({"x-priority": Int8(-5), "x-else": 1}), -5)
        self.assertEqual(consumer_priority({"x-cancel-on-ha-failover": True}), 0)
        for wrong in (
            {"x-priority": "5"}, {"x-priority": True}, {"x-priority": 1 << 40},
            {"x-cancel-on-ha-failover": 1},
        ):  # fmt: skip
            self.fails(TopologyFaultKind.INVALID_ARGUMENT, consumer_priority, wrong)


class PolicyTests(FaultAssertions):
    """`policy_terms` and `effective_terms`."""

    def test_definition(self) -> None:
        """The keys are those of arguments; what has no meaning is named."""
        terms, unknown = policy_terms(
            "p", {"message-ttl": 5, "alternate-exchange": "u", "ha-mode": "all", "max-priority": 3}
        )
        self.assertEqual(terms, PolicyTerms("p", {"message-ttl": 5, "alternate-exchange": "u"}))
        self.assertEqual(unknown, ["ha-mode", "max-priority"])
        words = self.fails(TopologyFaultKind.INVALID_ARGUMENT, policy_terms, "p", {"expires": 0})
        self.assertIn("'expires' for policy 'p'", words)

    def test_effective(self) -> None:
        """The lower bound is in force, of the rest the argument; the operator's word stands."""
        _, argument, by_policy, by_operator = TermSource
        terms = effective_terms(
            {"message-ttl": 100, "max-length": 5, "overflow": "drop-head", "delivery-limit": -1},
            PolicyTerms("p", {"message-ttl": 50, "max-length": 9, "overflow": "reject-publish",
                              "dead-letter-exchange": "d", "delivery-limit": 20}),
            PolicyTerms("o", {"expires": 7, "max-length": 4, "dead-letter-exchange": "od",
                              "message-ttl": 60}),
        )  # fmt: skip
        self.assertEqual(
            terms,
            {
                "message-ttl": EffectiveTerm(50, by_policy, "p"),
                "max-length": EffectiveTerm(4, by_operator, "o"),
                "overflow": EffectiveTerm("drop-head", argument),
                "delivery-limit": EffectiveTerm(20, by_policy, "p"),
                "dead-letter-exchange": EffectiveTerm("od", by_operator, "o"),
                "expires": EffectiveTerm(7, by_operator, "o"),
            },
        )
        self.assertEqual(effective_terms({}), {})


class NameTests(FaultAssertions):
    """`check_exchange_name` and `check_queue_name`."""

    def test_standard_names(self) -> None:
        """The standard's: its alphabet, an at sign in queues, 127 octets."""
        for name in ("a", "A-b_c.d:0", "amq.mine", "a" * 127):
            check_exchange_name(name, standard=True)
            check_queue_name(name, is_new=False, standard=True)
        check_queue_name("celery@host.celery.pidbox", is_new=True, standard=True)
        for name in ("a@b", "a b", "\u00e9", "a/b", "a" * 128):
            self.fails(TopologyFaultKind.ILLEGAL_NAME, check_exchange_name, name, True)
        for name in ("a b", "a\n", "#", "\u00e9" * 64):
            self.fails(TopologyFaultKind.ILLEGAL_NAME, check_queue_name, name, True, True)

    def test_other_names(self) -> None:
        """In 0-9-1 all that can be read, up to 255 octets, and nothing that services have."""
        for name in ("a b", "federation: x -> rabbit@host A", "n\u00e4h", "a/b", "#", "a" * 255):
            check_exchange_name(name)
            check_queue_name(name, is_new=True)
        for name in ("a\nb", "a\0", "\u202e", "/queues/a", "/exchanges/a", "$management",
                     "amqp$out/a", "a" * 256, "\u00e9" * 128):  # fmt: skip
            self.fails(TopologyFaultKind.ILLEGAL_NAME, check_exchange_name, name)
            self.fails(TopologyFaultKind.ILLEGAL_NAME, check_queue_name, name, True)

    def test_reserved_names(self) -> None:
        """An empty name asks for a generated one; no new one begins with amq."""
        check_queue_name("", is_new=True)
        self.fails(TopologyFaultKind.DEFAULT_EXCHANGE, check_exchange_name, "")
        self.fails(TopologyFaultKind.RESERVED_QUEUE_NAME, check_queue_name, "amq.gen-1", True)


class RoutingKeyTests(FaultAssertions):
    """`routing_keys`."""

    def test_keys(self) -> None:
        """Its own key, then CC, then BCC, each once; values of other types are left out."""
        self.assertEqual(routing_keys("k", {"a": 1}), ("k",))
        headers = FieldTable({"CC": ["1", "k", 5], "BCC": ["2", "1", None]})
        self.assertEqual(routing_keys("k", headers), ("k", "1", "2"))

    def test_wrong(self) -> None:
        """Other types, long keys and too many are refused."""
        rows: list[dict[str, Any]] = [
            {"CC": "k"}, {"BCC": {"a": 1}}, {"CC": None}, {"CC": ["é" * 128]},
            {"BCC": [str(at) for at in range(MOST_KEYS)]},
        ]  # fmt: skip
        for headers in rows:
            self.fails(TopologyFaultKind.INVALID_HEADER, routing_keys, "k", FieldTable(headers))
