# SPDX-License-Identifier: Apache-2.0
"""Metrics of whole brokers in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue_counters import QueueCounters
from amqproute.metrics.exposition import expose
from amqproute.metrics.families import FAMILIES, OTHER, MetricKind
from amqproute.metrics.metrics_service import (
    MOST_SCRAPES,
    MOST_SELECTED,
    MetricsService,
    ScrapeAnswer,
    ScrapeError,
    TooManyScrapes,
    scope_of,
)
from amqproute.metrics.node_metrics import NodeMetrics
from amqproute.metrics.peer_metrics import STATES, PeerMetrics
from amqproute.metrics.rabbitmq_aliases import ALIASES
from amqproute.metrics.snapshot import (
    SLICE_SECONDS,
    MetricsScope,
    MetricsSnapshot,
    take_snapshot,
)
from amqproute.relay.former_hops import MOST_FORMER, FormerHops
from amqproute.relay.rejection_counts import KINDS
from amqproute.relay.relay_terms import MOST_CODES, OTHER_CODES, DestinationCounters, RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.turn_scheduler import TURN_SECONDS, TurnScheduler
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network
from tests.support.turn_clock import TurnClock

BETA = "beta.example"
GAMMA = "gamma.example"
MANY = 10_000


class MetricsCase(HouseTestCase):
    """A broker with some nodes, and beta when a test wants it."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.terms = RelayTerms(RetrySchedule(1.0, 60.0), 10, 20.0)
        self.alpha = MemoryBroker(
            self.network, "alpha.example", node("q"), node("full", capacity=1), terms=self.terms
        )
        self.seconds = self.clock.seconds
        self.named = ["q", "full"]
        self.peers = [BETA]
        self.nodes = NodeMetrics(
            self.alpha.broker, self.alpha.broker._now_ms, lambda: self.named, tuple
        )
        self.hops = PeerMetrics(self.alpha.relay, self.alpha.broker._now_ms, lambda: self.peers)
        self.service = self.make_service()

    def pause(self) -> Deferred[None]:
        """Let a turn of the reactor pass."""
        return deferLater(self.clock, 0)

    def make_service(self, **options: Any) -> MetricsService:
        """Return a service for the broker."""
        return MetricsService(
            self.pause,
            lambda: self.seconds(),
            (self.nodes.hosts,),
            (self.nodes.nodes, self.nodes.topics, self.hops.peers),
            options.get("in_thread", lambda function: maybeDeferred(function)),
        )

    def scrape(self, **parameters: str) -> dict[str, dict[tuple[str, ...], float]]:
        """Return values by sample name and label values."""
        scope = scope_of({name: [each] for name, each in parameters.items()})
        if not parameters:
            scope = MetricsScope()
        answer = self.service.scrape(scope)
        while not answer.called:
            self.clock.advance(0)
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for metric in plain_text(self.successResultOf(answer).text.decode()):
            for sample in metric.samples:
                values = found.setdefault(sample.name, {})
                family = FAMILIES.get(metric.name)
                names = sample.labels if family is None else family.labels
                key = tuple(sample.labels[each] for each in names)
                self.assertNotIn(key, values)
                values[key] = sample.value
        return found

    def put(self, name: str = "q", count: int = 1) -> None:
        """Put messages on a node, or on their way to a domain."""
        queue = self.alpha.broker.nodes.get(name)
        if queue is None:
            queue = self.alpha.relay.take_on_trust(NextHop(name, name))
        batch = self.alpha.broker.begin()
        for _ in range(count):
            queue.put(message(b"x", to=f"orders@{name}"), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()
        self.run_now()


class NodeTests(MetricsCase):
    """Nodes by name, and others."""

    def test_named_and_other(self) -> None:
        """Nodes of the file are named; what is made at run time is added up, ages are not."""
        self.put()
        self.clock.advance(10)
        found = self.scrape()
        self.assertEqual(found["amqproute_node_messages"][("/", "q")], 1)
        self.assertEqual(found["amqproute_node_oldest_message_age_seconds"][("/", "q")], 10)
        self.assertEqual(found["amqproute_node_enqueued_messages_total"][("/", "q")], 1)
        self.named = ["full"]
        found = self.scrape()
        self.assertEqual(found["amqproute_node_messages"], {("/", "full"): 0, (OTHER, OTHER): 1})
        self.put("full")
        found = self.scrape()
        self.assertEqual(found["amqproute_node_full"][("/", "full")], 1)
        self.assertEqual(found["amqproute_node_oldest_message_age_seconds"][(OTHER, OTHER)], 10)

    def test_total_never_shrinks(self) -> None:
        """Counts of a deleted node stay in the total."""
        self.named = []
        self.put(count=3)
        before = self.scrape()["amqproute_node_enqueued_messages_total"]
        self.assertEqual(before, {(OTHER, OTHER): 3})
        queue = self.alpha.broker.nodes["q"]
        deletion = self.alpha.broker.withdraw("q")
        deletion.finish(lambda: None)
        self.run_for(2)
        self.assertTrue(queue.state.is_deleted)
        after = self.scrape()
        self.assertEqual(after["amqproute_node_enqueued_messages_total"], {(OTHER, OTHER): 3})
        self.assertEqual(after["amqproute_node_messages"], {(OTHER, OTHER): 0})
        self.assertEqual(after["amqproute_nodes"], {("/",): 1})

    def test_detailed(self) -> None:
        """Everything by name, or one family of one node, and nothing else."""
        self.named = []
        found = self.scrape(family="amqproute_node_messages")
        self.assertEqual(found, {"amqproute_node_messages": {("/", "full"): 0, ("/", "q"): 0}})
        found = self.scrape(node="q", family="amqproute_node_enqueued_messages_total")
        self.assertEqual(found, {"amqproute_node_enqueued_messages_total": {("/", "q"): 0}})
        found = self.scrape(node="q")
        self.assertNotIn("amqproute_peer_state", found)
        self.assertNotIn("amqproute_nodes", found)


class PeerTests(MetricsCase):
    """Next hops by name, and others."""

    def test_states(self) -> None:
        """A configured peer has one state; of the others the number in each is shown."""
        self.network.dead |= {BETA, GAMMA, "delta.example"}
        for domain in (BETA, GAMMA, "delta.example"):
            self.put(domain)
        self.run_for(30)
        found = self.scrape()
        states = found["amqproute_peer_state"]
        self.assertEqual(
            {key for key in states if key[0] == BETA}, {(BETA, state) for state in STATES}
        )
        for peer, count in ((BETA, 1), (OTHER, 2)):
            self.assertEqual(sum(n for key, n in states.items() if key[0] == peer), count)
        self.assertEqual(found["amqproute_peer_dead"], {(BETA,): 1, (OTHER,): 2})
        self.assertEqual(found["amqproute_peer_messages"], {(BETA,): 1, (OTHER,): 2})
        attempts = found["amqproute_peer_attempts_total"]
        self.assertGreater(attempts[BETA, "connect.refused"], 2)
        self.assertGreater(found["amqproute_peer_failures"][(BETA,)], 2)
        self.assertEqual(found["amqproute_peer_oldest_message_age_seconds"][(OTHER,)], 30)

    def test_from_the_beginning(self) -> None:
        """A configured peer has all its series before there is a message for it."""
        found = self.scrape()
        self.assertEqual(self.relayed(), {(BETA,): 0, (OTHER,): 0})
        self.assertEqual(
            found["amqproute_peer_rejected_messages_total"],
            {(peer, kind): 0 for peer in (BETA, OTHER) for kind in KINDS},
        )
        self.assertEqual(found["amqproute_peer_attempts_total"][BETA, "ok"], 0)
        self.assertEqual(len(found["amqproute_peer_state"]), 2 * len(STATES))

    def test_counters_continue(self) -> None:
        """Counters stay when an unused destination is forgotten, and continue with the next."""
        MemoryBroker(self.network, BETA, node("orders"), terms=self.terms)
        self.put(BETA)
        self.run_for(2)
        self.assertEqual(self.relayed(), {(BETA,): 1, (OTHER,): 0})
        self.run_for(100)
        self.assertNotIn(BETA, self.alpha.relay.destinations)
        self.assertEqual(len(self.alpha.relay.former), 1)
        self.assertEqual(self.relayed(), {(BETA,): 1, (OTHER,): 0})
        self.put(BETA)
        self.run_for(2)
        self.assertEqual(self.relayed(), {(BETA,): 2, (OTHER,): 0})
        self.assertEqual(len(self.alpha.relay.former), 0)
        found = self.scrape()
        self.assertEqual(found["amqproute_peer_attempts_total"][BETA, "ok"], 2)
        self.assertEqual(found["amqproute_peer_connections_total"][(BETA,)], 2)

    def relayed(self) -> dict[tuple[str, ...], float]:
        """Return the relayed messages by peer."""
        return self.scrape()["amqproute_peer_relayed_messages_total"]

    def test_former_hops_are_bounded(self) -> None:
        """Hops of long ago are only added up, and nothing of them is lost."""
        former = FormerHops()
        for number in range(MOST_FORMER + 5):
            tally = DestinationCounters(relayed=1, rejections={"full": 2})
            former.keep(f"d{number}.example", tally, QueueCounters(expired=3))
        self.assertEqual(len(former), MOST_FORMER)
        forgotten = former.forgotten
        self.assertEqual(forgotten.destination.relayed, 5)
        self.assertEqual(forgotten.destination.rejections, {"full": 10})
        self.assertEqual(forgotten.queue.expired, 15)
        self.assertIsNone(former.take("d0.example"))
        self.assertIsNotNone(former.take("d5.example"))

    def test_codes_are_bounded(self) -> None:
        """Codes beyond a bound are counted together."""
        tally = DestinationCounters()
        for number in range(MOST_CODES + 3):
            tally.attempted(f"code-{number}")
        self.assertEqual(len(tally.attempts), MOST_CODES + 1)
        self.assertEqual(tally.attempts[OTHER_CODES], 3)


class ScrapeTests(MetricsCase):
    """Scrapes: slices, sharing, bounds, formats."""

    def test_slices(self) -> None:
        """Ten thousand nodes are collected in slices, between which others have their turns."""
        for number in range(MANY):
            self.alpha.broker.make_internal(f"made-{number}", QueueLimits())
        for name, queue in self.alpha.broker.internal.items():
            self.alpha.broker.nodes[name] = queue
        passed = [0.0]

        def seconds() -> float:
            passed[0] += SLICE_SECONDS / 100
            return passed[0]

        self.seconds = seconds
        turns = []
        call_later = self.clock.callLater
        self.patch(
            self.clock,
            "callLater",
            lambda delay, *what: (turns.append(delay), call_later(delay, *what))[1],
        )
        found = self.scrape(family="amqproute_node_messages")
        self.assertEqual(len(found["amqproute_node_messages"]), MANY + 2)
        self.assertGreaterEqual(len(turns), MANY // 101)
        found = self.scrape()
        self.assertEqual(len(found["amqproute_node_messages"]), 3)
        longest = found["amqproute_scrape_longest_stop_seconds"][()]
        self.assertLessEqual(longest, SLICE_SECONDS * 1.05)

    def test_objects(self) -> None:
        """A node in all detail is few objects, which the garbage collector walks over."""
        for number in range(MANY):
            name = f"made-{number}"
            self.alpha.broker.make_internal(name, QueueLimits())
            self.alpha.broker.nodes[name] = self.alpha.broker.internal[name]
        snapshot = MetricsSnapshot(MetricsScope(True))
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        before = len(gc.get_objects())
        for _ in self.nodes.nodes(snapshot):
            pass
        objects = len(gc.get_objects()) - before
        self.assertEqual(len(list(snapshot.values["amqproute_node_full"])), MANY + 2)
        self.assertLess(objects, 3 * MANY)

    def test_freed_where_it_is_written(self) -> None:
        """The values are gone when the thread has written them, not later in the reactor's."""
        left: list[int] = []
        made: list[MetricsSnapshot] = []

        def source(snapshot: MetricsSnapshot) -> Iterator[None]:
            made.append(snapshot)
            snapshot.add("amqproute_channels", 1)
            yield

        def in_thread(function: Callable[[], ScrapeAnswer]) -> Deferred[ScrapeAnswer]:
            answer = function()
            left.append(len(made[0].values))
            return succeed(answer)

        service = MetricsService(self.pause, self.clock.seconds, (source,), (), in_thread)
        self.assertIn(b"amqproute_channels", self.successResultOf(service.scrape()).text)
        self.assertEqual(left, [0])

    def test_nodes_that_go_meanwhile(self) -> None:
        """A node that is deleted between two slices does not disturb."""
        self.seconds = iter(range(10**6)).__next__
        answer = self.service.scrape(MetricsScope(True))
        self.assertNoResult(answer)
        del self.alpha.broker.nodes["q"]
        while not answer.called:
            self.clock.advance(0)
        self.assertIn(b"amqproute_node_messages", self.successResultOf(answer).text)

    def test_shared(self) -> None:
        """Equal requests at the same time share one answer; the number of others is bounded."""
        waiting: list[Deferred[ScrapeAnswer]] = []

        def in_thread(function: object) -> Deferred[ScrapeAnswer]:
            waiting.append(Deferred())
            return waiting[-1]

        self.service = self.make_service(in_thread=in_thread)
        one, other = self.service.scrape(), self.service.scrape()
        self.assertEqual(len(waiting), 1)
        for number in range(MOST_SCRAPES - 1):
            self.service.scrape(MetricsScope(nodes=frozenset({str(number)})))
        self.assertRaises(TooManyScrapes, self.service.scrape, MetricsScope(True))
        waiting[0].callback(ScrapeAnswer("text/plain", b"x"))
        self.assertIs(self.successResultOf(one), self.successResultOf(other))
        self.assertNoResult(self.service.scrape(MetricsScope(True)))

    def test_failure(self) -> None:
        """A scrape that fails says so to all who wait, and the next one is made anew."""
        self.service = self.make_service(in_thread=lambda function: fail(ValueError("broken")))
        answers = [self.service.scrape(), self.service.scrape()]
        for each in answers:
            self.failureResultOf(each, ValueError)
        self.failureResultOf(self.service.scrape(), ValueError)

    def test_parameters(self) -> None:
        """Unknown parameters and families are refused by name."""
        for parameters, field in (
            ({"familie": ["x"]}, "familie"),
            ({"family": ["amqproute_no_such"]}, "family"),
            ({"node": ["x"] * (MOST_SELECTED + 1)}, "node"),
        ):
            error = self.assertRaises(ScrapeError, scope_of, parameters)
            self.assertEqual(error.field, field)

    def test_formats(self) -> None:
        """OpenMetrics or plain text, as the client asks; both hold the same values."""
        self.put()
        text = "text/plain;version=0.0.4"
        for accept, parse, wanted in (
            ("", plain_text, "text/plain"),
            (text, plain_text, "text/plain"),
            (
                f"application/openmetrics-text;version=1.0.0,{text};q=0.5",
                open_metrics,
                "application/",
            ),
            ("nonsense; ;;," * 1000, plain_text, "text/plain"),
        ):
            answer = self.successResultOf(self.service.scrape(accept=accept))
            self.assertTrue(answer.content_type.startswith(wanted), answer.content_type)
            families = {each.name: each for each in parse(answer.text.decode())}
            depth = families["amqproute_node_messages"].samples
            self.assertEqual(sum(each.value for each in depth), 1)

    def test_declared(self) -> None:
        """Each value belongs to a declared family and has its labels."""
        self.put(BETA)
        snapshot = self.successResultOf(
            Deferred.fromCoroutine(
                take_snapshot(
                    MetricsScope(),
                    (self.nodes.nodes, self.nodes.topics, self.nodes.hosts, self.hops.peers),
                    self.pause,
                    self.clock.seconds,
                )
            )
        )
        for name, values in snapshot.values.items():
            for labels, _ in values:
                self.assertEqual(len(labels), len(FAMILIES[name].labels), name)

    def test_label_values(self) -> None:
        """Names that others choose cannot break a line."""
        snapshot = MetricsSnapshot()
        evil = 'a"b\\c\nd{e="f"} 1'
        snapshot.add("amqproute_node_messages", 1, "/", evil)
        for accept, parse in (("", plain_text), ("application/openmetrics-text", open_metrics)):
            _, text = expose(snapshot, accept)
            (found,) = [
                each for each in parse(text.decode()) if each.name == "amqproute_node_messages"
            ]
            self.assertEqual(found.samples[0].labels["node"], evil)


class BudgetTests(SynchronousTestCase):
    """Scrapes at one time share the turns of the reactor."""

    def test_scrapes_at_one_time(self) -> None:
        """Four scrapes take no more of the processor than one, and others are not behind them."""
        used = other = 0.0

        def source(_: MetricsSnapshot) -> Iterator[None]:
            nonlocal used
            for _ in range(100):
                used += SLICE_SECONDS / 3
                yield

        clock = TurnClock()
        turns = TurnScheduler(clock, lambda: used)
        service = MetricsService(
            partial(turns.pause, "monitoring", ""), lambda: used, (source,), (), maybeDeferred
        )
        answers: list[Deferred[Any]] = []
        for number in range(4):
            scope = MetricsScope(families=frozenset({f"amqproute_{number}"}))
            turns.ask("http", "", lambda scope=scope: answers.append(service.scrape(scope)))
        begun: list[int] = []
        asked: list[int] = []
        worst, at = 0.0, 0
        while len(answers) < 4 or not all(each.called for each in answers):
            at, waiting = at + 1, len(begun)
            if at % 5 == 0:
                asked.append(at)
                turns.ask("tls", "", lambda: begun.append(0))
            used, other = used + TURN_SECONDS / 4, other + TURN_SECONDS / 4
            before = used
            clock.turn()
            worst = max(worst, used - before)
            begun[waiting:] = [at] * (len(begun) - waiting)
        self.assertLessEqual(worst, TURN_SECONDS + 1.5 * SLICE_SECONDS)
        self.assertLessEqual(used - other, at * TURN_SECONDS + 2 * worst)
        self.assertGreater(len(begun), 20)
        # A slice of each of the other kinds goes before, and what the last one took is paid back.
        waits = [there - since for since, there in zip(asked, begun, strict=False)]
        self.assertLessEqual(max(waits), 3 * round(worst / TURN_SECONDS))


class AliasTests(MetricsCase):
    """Totals under RabbitMQ's names."""

    def test_names(self) -> None:
        """Each is made of families that exist; names are unique, and not those of our own."""
        names = [alias.name for alias in ALIASES]
        self.assertEqual(len(names), len({*names}))
        for alias in ALIASES:
            self.assertTrue(alias.name.startswith("rabbitmq_"))
            for part in (*alias.adds, *alias.subtracts):
                family = FAMILIES[f"amqproute_{part}"]
                self.assertEqual(family.kind is MetricKind.COUNTER, alias.is_counter, alias.name)
                self.assertEqual(bool(alias.label), family.labels == ("reason",), alias.name)

    def test_values(self) -> None:
        """All samples of a family are added up; what is not in the snapshot is left out."""
        snapshot = MetricsSnapshot()
        for node_name, messages, acquired in (("q", 7, 3), (OTHER, 5, 1)):
            snapshot.add("amqproute_node_messages", messages, "/", node_name)
            snapshot.add("amqproute_node_acquired_messages", acquired, "/", node_name)
            snapshot.add("amqproute_node_enqueued_messages", 10 * messages, "/", node_name)
        snapshot.add("amqproute_transfers_relayed", 4)
        snapshot.add("amqproute_publishing_stopped", 1, "disk")
        snapshot.add("amqproute_publishing_stopped", 0, "memory")
        for accept, parse in (("", plain_text), ("application/openmetrics-text", open_metrics)):
            text = expose(snapshot, accept, "broker1")[1].decode()
            samples = {
                sample.name: sample.value for family in parse(text) for sample in family.samples
            }
            self.assertEqual(samples["rabbitmq_queue_messages"], 12)
            self.assertEqual(samples["rabbitmq_queue_messages_ready"], 8)
            self.assertEqual(samples["rabbitmq_queue_messages_unacked"], 4)
            self.assertEqual(samples["rabbitmq_global_messages_delivered_get_auto_ack_total"], 0)
            self.assertNotIn("rabbitmq_global_messages_delivered_consume_manual_ack_total", samples)
            self.assertEqual(samples["rabbitmq_global_messages_received_total"], 124)
            self.assertEqual(samples["rabbitmq_alarms_free_disk_space_watermark"], 1)
            self.assertEqual(samples["rabbitmq_alarms_memory_used_watermark"], 0)
            self.assertEqual(samples["rabbitmq_connections"], 0)
            self.assertNotIn("rabbitmq_channels", samples)
            self.assertIn("rabbitmq_process_open_fds", samples)
            self.assertIn('rabbitmq_cluster="broker1"', text)

    def test_off(self) -> None:
        """Without the setting, and in a detailed answer, there are none."""
        for scope, name in ((MetricsScope(), ""), (MetricsScope(True), "broker1")):
            snapshot = MetricsSnapshot(scope)
            snapshot.add("amqproute_channels", 1)
            self.assertNotIn("rabbitmq", expose(snapshot, "", name)[1].decode())
