# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.broker.exchanges.exchange_graph` and its binding tables."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.binding_tables import (
    BindingTarget,
    ExchangeBinding,
    ExchangeType,
    TargetKind,
    TopicTable,
)
from amqproute.broker.exchanges.exchange_graph import (
    PREDECLARED,
    ExchangeDefinition,
    ExchangeGraph,
    GraphChange,
)
from amqproute.broker.exchanges.header_match import comparable, header_pattern
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from tests.broker.exchanges.test_topic_trie import naive as topic_matches

DIRECT, FANOUT, TOPIC, HEADERS = ExchangeType
NONE: Mapping[str, object] = {}


def queue(name: str) -> BindingTarget:
    """Return a queue as target."""
    return BindingTarget(TargetKind.QUEUE, name)


def exchange(name: str) -> BindingTarget:
    """Return an exchange as target."""
    return BindingTarget(TargetKind.EXCHANGE, name)


def graph_of(*definitions: ExchangeDefinition) -> ExchangeGraph:
    """Return a graph with exchanges, and the queues a, b, c and celery."""
    graph = ExchangeGraph({"a", "b", "c", "celery", "box@host"})
    for definition in definitions:
        graph.declare(definition)
    return graph


class DeclareTests(SynchronousTestCase):
    """Exchanges come, stay as they are, and go."""

    def fails(
        self, kind: TopologyFaultKind, call: object, *arguments: object, **more: object
    ) -> str:
        """Check that a call fails with a kind; return the words."""
        fault = self.assertRaises(TopologyFault, call, *arguments, **more)  # type: ignore[arg-type]
        self.assertEqual(fault.kind, kind)
        return str(fault.text)

    def test_predeclared(self) -> None:
        """Each type has its exchange, headers two, and nothing deletes them."""
        graph = graph_of()
        self.assertEqual({each.name: each.type for each in graph.exchanges()}, PREDECLARED)
        self.assertTrue(all(each.durable for each in graph.exchanges()))
        for name in PREDECLARED:
            kind = TopologyFaultKind.PREDECLARED_EXCHANGE
            self.fails(kind if name else TopologyFaultKind.DEFAULT_EXCHANGE, graph.delete, name)
            if name:
                self.assertTrue(
                    graph.bind(ExchangeBinding(name, queue("a"), "k", {"x-match": "all"}))
                )

    def test_redeclared(self) -> None:
        """The same again changes nothing; each difference is named."""
        there = ExchangeDefinition("e", DIRECT, arguments={"alternate-exchange": "u", "n": 1})
        graph = graph_of(there)
        self.assertFalse(graph.declare(there))
        self.assertFalse(
            graph.declare(ExchangeDefinition("e", DIRECT, arguments={**there.arguments, "n": 1.0}))
        )
        words = self.fails(
            TopologyFaultKind.OTHER_TYPE, graph.declare, ExchangeDefinition("e", TOPIC)
        )
        self.assertEqual(
            words,
            "inequivalent arg 'type' for exchange 'e': received 'topic' but current is 'direct'",
        )
        arguments = dict(there.arguments)
        for other, word in (
            (ExchangeDefinition("e", DIRECT, durable=False, arguments=arguments), "'durable'"),
            (ExchangeDefinition("e", DIRECT, auto_delete=True, arguments=arguments), "'auto_del"),
            (ExchangeDefinition("e", DIRECT, internal=True, arguments=arguments), "'internal'"),
            (ExchangeDefinition("e", DIRECT, arguments={"n": 1}), "'alternate-exchange'"),
        ):
            words = self.fails(TopologyFaultKind.OTHER_EXCHANGE, graph.declare, other)
            self.assertIn(f"inequivalent arg {word}", words)
        for other in ({**arguments, "n": True}, {**arguments, "m": 1}):
            self.assertFalse(graph.declare(ExchangeDefinition("e", DIRECT, arguments=other)))
            self.assertEqual(graph.exchange("e").arguments, arguments)

    def test_redeclared_in_0_9(self) -> None:
        """Durable and auto-delete are ignored there, nothing else is."""
        graph = graph_of(ExchangeDefinition("e", DIRECT))
        other = ExchangeDefinition("e", DIRECT, durable=False, auto_delete=True)
        self.assertFalse(graph.declare(other, lenient=True))
        self.assertTrue(graph.exchange("e").durable)
        for wrong, kind in (
            (ExchangeDefinition("e", FANOUT), TopologyFaultKind.OTHER_TYPE),
            (ExchangeDefinition("e", DIRECT, internal=True), TopologyFaultKind.OTHER_EXCHANGE),
            (ExchangeDefinition("e", DIRECT, arguments={"a": 1}), TopologyFaultKind.OTHER_EXCHANGE),
        ):
            self.fails(kind, graph.declare, wrong, lenient=True)

    def test_reserved_names(self) -> None:
        """``amq.`` is taken, for what is there nothing changes."""
        graph = graph_of()
        self.assertFalse(graph.declare(ExchangeDefinition("amq.topic", TOPIC)))
        self.fails(
            TopologyFaultKind.RESERVED_EXCHANGE_NAME,
            graph.declare,
            ExchangeDefinition("amq.mine", TOPIC),
        )

    def test_limits(self) -> None:
        """No more exchanges and bindings than there may be."""
        graph = ExchangeGraph({"a"}, most_exchanges=len(PREDECLARED) + 1, most_bindings=1)
        graph.declare(ExchangeDefinition("e", DIRECT))
        self.fails(TopologyFaultKind.LIMIT, graph.declare, ExchangeDefinition("f", DIRECT))
        graph.bind(ExchangeBinding("e", queue("a"), "1"))
        self.fails(TopologyFaultKind.LIMIT, graph.bind, ExchangeBinding("e", queue("a"), "2"))
        graph.unbind(ExchangeBinding("e", queue("a"), "1"))
        graph.bind(ExchangeBinding("e", queue("a"), "2"))
        self.assertEqual(graph.binding_count, 1)

    def test_delete(self) -> None:
        """Its bindings go with it, those to it and those from it; if-unused keeps one in use."""
        graph = graph_of(ExchangeDefinition("e", FANOUT), ExchangeDefinition("f", FANOUT))
        inward = ExchangeBinding("f", exchange("e"), "")
        outward = ExchangeBinding("e", queue("a"), "")
        graph.bind(inward)
        self.assertEqual(graph.delete("e", if_unused=True).exchanges, ("e",))
        graph.declare(ExchangeDefinition("e", FANOUT))
        graph.bind(inward)
        graph.bind(outward)
        self.assertIn("1 bindings", self.fails(TopologyFaultKind.IN_USE, graph.delete, "e", True))
        change = graph.delete("e")
        self.assertEqual((change.exchanges, set(change.bindings)), (("e",), {inward, outward}))
        self.assertEqual(graph.binding_count, 0)
        self.fails(TopologyFaultKind.NO_EXCHANGE, graph.delete, "e")
        self.fails(TopologyFaultKind.NO_EXCHANGE, graph.route, "e", ["k"], NONE)

    def test_auto_delete(self) -> None:
        """It goes with its last binding, what led to it too; one never bound stays."""
        graph = graph_of(
            ExchangeDefinition("one", FANOUT, auto_delete=True),
            ExchangeDefinition("two", FANOUT, auto_delete=True),
            ExchangeDefinition("never", FANOUT, auto_delete=True),
        )
        graph.bind(ExchangeBinding("one", exchange("two"), ""))
        graph.bind(ExchangeBinding("two", queue("a"), ""))
        graph.bind(ExchangeBinding("two", queue("b"), ""))
        self.assertEqual(graph.delete_queue("a").exchanges, ())
        change = graph.delete_queue("b")
        self.assertEqual(set(change.exchanges), {"one", "two"})
        self.assertEqual(len(change.bindings), 2)
        self.assertIn("never", {each.name for each in graph.exchanges()})
        self.assertEqual(graph.delete_queue("b"), GraphChange())


class BindTests(SynchronousTestCase):
    """Bindings."""

    fails = DeclareTests.fails

    def test_identity(self) -> None:
        """Source, target, key and arguments together are one binding."""
        graph = graph_of(ExchangeDefinition("e", TOPIC))
        first = ExchangeBinding("e", queue("a"), "k.#")
        self.assertTrue(graph.bind(first))
        self.assertFalse(graph.bind(ExchangeBinding("e", queue("a"), "k.#")))
        others = [
            ExchangeBinding("e", queue("b"), "k.#"),
            ExchangeBinding("e", queue("a"), "k.*"),
            ExchangeBinding("e", queue("a"), "k.#", {"n": 1}),
            ExchangeBinding("e", queue("a"), "k.#", {"n": True}),
        ]
        for other in others:
            self.assertTrue(graph.bind(other), other)
        self.assertEqual(graph.route("e", ["k.x"], NONE).queues, ("a", "b"))
        self.assertEqual(len(graph.bindings_to(queue("a"))), 4)
        for gone in [first, *others[1:]]:
            graph.unbind(gone)
        self.assertEqual(graph.route("e", ["k.x"], NONE).queues, ("b",))
        self.assertEqual(graph.bindings_from("e"), (others[0],))
        self.fails(TopologyFaultKind.NO_BINDING, graph.unbind, first)

    def test_missing(self) -> None:
        """Source and target have to be there, for binding and unbinding."""
        graph = graph_of()
        for call in (graph.bind, graph.unbind):
            self.fails(TopologyFaultKind.NO_EXCHANGE, call, ExchangeBinding("none", queue("a"), ""))
            self.fails(
                TopologyFaultKind.NO_QUEUE, call, ExchangeBinding("amq.topic", queue("none"), "")
            )
            self.fails(
                TopologyFaultKind.NO_EXCHANGE, call, ExchangeBinding("amq.topic", exchange("n"), "")
            )

    def test_default_exchange(self) -> None:
        """A queue may be bound to it by a plain key; exchanges and addresses never."""
        graph = graph_of(ExchangeDefinition("e", FANOUT))
        self.assertTrue(graph.bind(ExchangeBinding("", queue("a"), "other")))
        self.assertEqual(graph.route("", ["other"], NONE).queues, ("a",))
        for binding in (
            ExchangeBinding("", queue("a"), "name@domain"),
            ExchangeBinding("", exchange("e"), "k"),
            ExchangeBinding("e", exchange(""), "k"),
        ):
            self.fails(TopologyFaultKind.DEFAULT_EXCHANGE, graph.bind, binding)

    def test_what_0_9_forbids(self) -> None:
        """A queue on an internal exchange, and a durable one on a transient exchange."""
        graph = graph_of(
            ExchangeDefinition("in", DIRECT, internal=True),
            ExchangeDefinition("short", DIRECT, durable=False),
        )
        graph.check_standard_binding("amq.direct", True)
        graph.check_standard_binding("short", False)
        self.fails(TopologyFaultKind.INTERNAL_BINDING, graph.check_standard_binding, "in", False)
        self.fails(TopologyFaultKind.TRANSIENT_BINDING, graph.check_standard_binding, "short", True)
        self.fails(TopologyFaultKind.NO_EXCHANGE, graph.check_standard_binding, "none", True)

    def test_wrong_arguments(self) -> None:
        """A binding with a wrong x-match is not made."""
        graph = graph_of()
        wrong = ExchangeBinding("amq.headers", queue("a"), "", {"x-match": "most"})
        self.fails(TopologyFaultKind.INVALID_ARGUMENT, graph.bind, wrong)
        self.assertEqual((graph.binding_count, graph.bindings_from("amq.headers")), (0, ()))


class RouteTests(SynchronousTestCase):
    """`ExchangeGraph.route`."""

    def test_types(self) -> None:
        """Direct by equal key, fanout always, topic by pattern, headers by arguments."""
        graph = graph_of()
        for name, key, arguments in (
            ("amq.direct", "k", {}), ("amq.fanout", "no matter", {}), ("amq.topic", "*.k", {}),
            ("amq.headers", "", {"h": 1}),
        ):  # fmt: skip
            graph.bind(ExchangeBinding(name, queue("a"), key, arguments))
        rows: list[tuple[str, str, dict[str, object], bool]] = [
            ("amq.direct", "k", {}, True), ("amq.direct", "K", {}, False),
            ("amq.direct", "", {}, False), ("amq.fanout", "k", {}, True),
            ("amq.topic", "x.k", {}, True), ("amq.topic", "k", {}, False),
            ("amq.headers", "k", {"h": 1}, True), ("amq.headers", "k", {"h": "1"}, False),
        ]  # fmt: skip
        for name, key, headers, found in rows:
            for _ in range(2):
                outcome = graph.route(name, [key], headers)
                self.assertEqual(outcome.queues, ("a",) if found else (), (name, key))
                self.assertEqual(outcome.is_unrouted, not found)

    def test_empty_key(self) -> None:
        """It is a key like others where keys decide, and nothing where they do not."""
        graph = graph_of()
        for name in ("amq.direct", "amq.topic", "amq.fanout", "amq.headers"):
            graph.bind(ExchangeBinding(name, queue("a"), ""))
            self.assertEqual(graph.route(name, [""], NONE).queues, ("a",))
            found = ("a",) if name in ("amq.fanout", "amq.headers") else ()
            self.assertEqual(graph.route(name, ["k"], NONE).queues, found)

    def test_default_exchange(self) -> None:
        """A key is the name of a queue, and with an at sign always an address."""
        graph = graph_of(ExchangeDefinition("celery", DIRECT))
        self.assertEqual(graph.route("", ["celery"], NONE).queues, ("celery",))
        self.assertTrue(graph.route("", ["none"], NONE).is_unrouted)
        outcome = graph.route("", ["box@host"], NONE)
        self.assertEqual((outcome.queues, outcome.addresses), ((), ("box@host",)))
        self.assertFalse(outcome.is_unrouted)
        graph.bind(ExchangeBinding("celery", queue("box@host"), "box@host"))
        self.assertEqual(graph.route("celery", ["box@host"], NONE).queues, ("box@host",))

    def test_several_keys(self) -> None:
        """CC and BCC are further keys; a queue gets the message once."""
        graph = graph_of()
        for key in ("1", "2"):
            graph.bind(ExchangeBinding("amq.direct", queue("a"), key))
        graph.bind(ExchangeBinding("amq.direct", queue("b"), "3"))
        self.assertEqual(graph.route("amq.direct", ["1", "2", "3"], NONE).queues, ("a", "b"))
        outcome = graph.route("", ["a", "x@y", "a", "b"], NONE)
        self.assertEqual((outcome.queues, outcome.addresses), (("a", "b"), ("x@y",)))

    def test_circle(self) -> None:
        """Exchanges bound in a circle end, and each queue is named once."""
        graph = graph_of(*(ExchangeDefinition(name, FANOUT) for name in "xyz"))
        for source, target in ("xy", "yz", "zx", "xx"):
            graph.bind(ExchangeBinding(source, exchange(target), ""))
        for name in "xyz":
            graph.bind(ExchangeBinding(name, queue("a"), ""))
        graph.bind(ExchangeBinding("z", queue("b"), ""))
        self.assertEqual(set(graph.route("y", ["k"], NONE).queues), {"a", "b"})

    def test_alternate(self) -> None:
        """It gets what nothing matches there; one that is missing loses the message."""
        graph = graph_of(
            ExchangeDefinition("e", DIRECT, alternate="u"),
            ExchangeDefinition("u", FANOUT, internal=True, alternate="e"),
            ExchangeDefinition("f", DIRECT, alternate="missing"),
        )
        graph.bind(ExchangeBinding("e", queue("a"), "k"))
        self.assertEqual(graph.route("e", ["k"], NONE).queues, ("a",))
        self.assertTrue(graph.route("e", ["other"], NONE).is_unrouted)
        graph.bind(ExchangeBinding("u", queue("b"), ""))
        self.assertEqual(graph.route("e", ["other"], NONE).queues, ("b",))
        self.assertEqual(graph.route("e", ["k"], NONE).queues, ("a",))
        self.assertTrue(graph.route("f", ["k"], NONE).is_unrouted)
        graph.change_alternate("f", "e")
        self.assertEqual(graph.route("f", ["k"], NONE).queues, ("a",))
        # A binding to an exchange that has no use for the message is a match all the same.
        graph.bind(ExchangeBinding("e", exchange("f"), "deep"))
        graph.change_alternate("f", None)
        self.assertTrue(graph.route("e", ["deep"], NONE).is_unrouted)

    def test_internal(self) -> None:
        """Messages get to it along bindings and never directly."""
        graph = graph_of(
            ExchangeDefinition("in", FANOUT, internal=True), ExchangeDefinition("e", FANOUT)
        )
        graph.bind(ExchangeBinding("e", exchange("in"), ""))
        graph.bind(ExchangeBinding("in", queue("a"), ""))
        self.assertEqual(graph.route("e", [""], NONE).queues, ("a",))
        graph.check_publish("e")
        fault = self.assertRaises(TopologyFault, graph.check_publish, "in")
        self.assertEqual(fault.kind, TopologyFaultKind.INTERNAL_EXCHANGE)
        fault = self.assertRaises(TopologyFault, graph.check_publish, "none")
        self.assertEqual(fault.kind, TopologyFaultKind.NO_EXCHANGE)

    def test_work(self) -> None:
        """With 10,000 topic bindings a message costs a few steps, the same key again none."""
        graph = graph_of(ExchangeDefinition("t", TOPIC))
        for at in range(10_000):
            graph.bind(ExchangeBinding("t", queue("abc"[at % 3]), f"*.{at}.#"))
        table = graph._exchanges["t"].table
        assert isinstance(table, TopicTable)
        for _ in range(3):
            self.assertEqual(graph.route("t", ["x.5.y"], NONE).queues, ("c",))
        self.assertLess(table.trie.steps, 10)


KEYS = st.sampled_from(["", "k", "k.l", "*", "#", "k.*", "#.l"])
NAMES = st.sampled_from(["d", "f", "t", "h", "amq.topic", "amq.headers"])
QUEUES = st.sampled_from(["a", "b", "c"])
ARGUMENTS = st.sampled_from([{}, {"n": 1}, {"n": None}, {"x-match": "any", "n": 1, "m": 2}])
MESSAGES = st.sampled_from([{}, {"n": 1}, {"m": 2.0}, {"n": "1", "m": 3}])


class GraphMachine(RuleBasedStateMachine):
    """The graph against a list of bindings that is searched by the definitions."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = ExchangeGraph({"a", "b", "c"})
        self.exchanges = {
            each.name: each for each in self.graph.exchanges() if each.name.startswith("amq.")
        }
        self.bindings: set[ExchangeBinding] = set()

    @rule(name=st.sampled_from("dfth"), auto=st.booleans(), alternate=st.none() | NAMES)
    def declare(self, name: str, auto: bool, alternate: str | None) -> None:
        """Declare an exchange; the letter says which type."""
        kind = {"d": DIRECT, "f": FANOUT, "t": TOPIC, "h": HEADERS}[name]
        if name not in self.exchanges:
            made = ExchangeDefinition(name, kind, auto_delete=auto, alternate=alternate)
            assert self.graph.declare(made)
            self.exchanges[name] = made

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        """Delete one."""
        if name in self.exchanges and not name.startswith("amq."):
            self.graph.delete(name)
            self.gone([name], [])

    @rule(source=NAMES, name=QUEUES | NAMES, key=KEYS, arguments=ARGUMENTS)
    def bind(self, source: str, name: str, key: str, arguments: dict[str, object]) -> None:
        """Bind; or unbind what is bound."""
        target = queue(name) if name in "abc" else exchange(name)
        binding = ExchangeBinding(source, target, key, arguments)
        there = source in self.exchanges and (name in "abc" or name in self.exchanges)
        if not there:
            return
        if binding in self.bindings:
            assert not self.graph.bind(binding)
            self.graph.unbind(binding)
            self.gone([], [binding])
        else:
            assert self.graph.bind(binding)
            self.bindings.add(binding)

    @rule(name=QUEUES)
    def delete_queue(self, name: str) -> None:
        """A queue goes, and comes again without its bindings."""
        self.graph.delete_queue(name)
        self.gone([], [each for each in self.bindings if each.target == queue(name)])

    def gone(self, exchanges: list[str], bindings: list[ExchangeBinding]) -> None:
        """Take out, and all that follows from it, until nothing changes."""
        while exchanges or bindings:
            self.bindings -= set(bindings)
            touched = {each.source for each in bindings}
            for name in exchanges:
                self.exchanges.pop(name, None)
            bindings = [
                each
                for each in self.bindings
                if each.source in exchanges or each.target in [exchange(e) for e in exchanges]
            ]
            exchanges = [
                name
                for name in touched
                if name in self.exchanges
                and self.exchanges[name].auto_delete
                and not any(each.source == name for each in self.bindings)
            ]

    @rule(name=NAMES, key=KEYS, headers=MESSAGES)
    def route(self, name: str, key: str, headers: dict[str, object]) -> None:
        """Every route is that of the definition."""
        if name not in self.exchanges:
            return
        queues: set[str] = set()
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in seen or current not in self.exchanges:
                continue
            seen.add(current)
            matching = [each for each in self.bindings if self.matches(each, current, key, headers)]
            for each in matching:
                if each.target.kind is TargetKind.QUEUE:
                    queues.add(each.target.name)
                else:
                    waiting.append(each.target.name)
            alternate = self.exchanges[current].alternate
            if not matching and alternate is not None:
                waiting.append(alternate)
        found = self.graph.route(name, [key], headers).queues
        assert len(set(found)) == len(found)
        assert set(found) == queues
        assert self.graph.binding_count == len(self.bindings)
        assert {each.name for each in self.graph.exchanges()} >= self.exchanges.keys()

    def matches(
        self, binding: ExchangeBinding, name: str, key: str, headers: dict[str, object]
    ) -> bool:
        """Tell by definition whether a binding takes a message."""
        if binding.source != name:
            return False
        kind = self.exchanges[name].type
        if kind is DIRECT:
            return binding.key == key
        if kind is TOPIC:
            words = [text.split(".") if text else [] for text in (binding.key, key)]
            return topic_matches(words[0], words[1])
        there = {each: comparable(value) for each, value in headers.items()}
        return kind is FANOUT or header_pattern(binding.arguments).matches(there)


class ModelTests(SynchronousTestCase):
    """`GraphMachine`."""

    def test_graph(self) -> None:
        """Any sequence of changes, and routes in between."""
        run_state_machine_as_test(
            GraphMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
        )

    @given(st.dictionaries(NAMES, st.sampled_from([1, 1.5, "t", b"o", (1, "a"), {"n": None}])))
    def test_any_arguments(self, arguments: dict[str, object]) -> None:
        """Arguments that a type has no use for are a part of the binding and nothing else."""
        graph = graph_of()
        binding = ExchangeBinding("amq.fanout", queue("a"), "k", arguments)
        graph.bind(binding)
        self.assertEqual(graph.route("amq.fanout", [""], NONE).queues, ("a",))
        graph.unbind(ExchangeBinding("amq.fanout", queue("a"), "k", dict(arguments)))
        self.assertEqual(graph.binding_count, 0)
