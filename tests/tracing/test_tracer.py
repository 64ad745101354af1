# SPDX-License-Identifier: Apache-2.0
"""The thread that follows a journal, and traces of two organizations."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.entry import Entry
from amqproute.journal import event
from amqproute.journal.event import ArrivalEvent, TracedArrivalEvent
from amqproute.journal.journal_writer import JournalTerms
from amqproute.journal.record import RecordKind
from amqproute.trace_context import HopTracing, TraceIds
from amqproute.tracing import tracer
from amqproute.tracing.collector_connection import CollectorTerms
from amqproute.tracing.otlp_exporter import OtlpSink
from amqproute.tracing.sampling import SamplingTerms
from amqproute.tracing.span_queue import SpanQueue
from amqproute.tracing.story import Stories
from amqproute.tracing.tracer import DISCARDED, JournalView, Tracer
from amqproute.values import Origin
from amqproute.wire.amqp10 import spec
from tests.journal.rig import ANN, Desk, entry, gone
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network
from tests.support.patience import until
from tests.tracing.rig import (
    CLIENT_SPAN,
    TRACE,
    TRACEPARENT,
    Collector,
    make_ids,
    records_of,
    spans_of,
)

BETA = "beta.example"


def come(desk: Desk, entries: Sequence[Entry]) -> None:
    """Note arrivals, as a batch does."""
    came = [("q", each, Origin(ANN), b"", None) for each in entries]
    desk.journal.note(desk.journal.arrivals(came))


class TracerTests(SynchronousTestCase):
    """The thread, over a real journal."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.desk = Desk(self.directory, terms=JournalTerms(is_traced=True))
        self.desk.open()
        self.queue = SpanQueue(10_000)
        self.now_us = 1 << 62
        self.tracer = self.make_tracer()

    def make_tracer(self, rate: float = 1.0) -> Tracer:
        """Return a tracer of the journal."""
        ids = make_ids(rate)
        terms = SamplingTerms(True, None, True, rate, lambda _: True)
        journal = JournalView(self.directory, lambda: self.desk.journal.position)
        return Tracer(journal, Stories(ids, 1000), ids, self.queue, terms, lambda: self.now_us)

    def start(self, tracer: Tracer) -> threading.Thread:
        """Run a tracer, to its end with the test at the latest."""
        thread = threading.Thread(target=tracer.run)
        thread.start()

        def stop() -> None:
            tracer.stop()
            thread.join()

        self.addCleanup(stop)
        return thread

    def names(self) -> list[str]:
        """Return the names of the spans that wait."""
        return [span.name for span in self.queue.take(10_000, 0)] if len(self.queue) else []

    def test_follows(self) -> None:
        """Spans come while the journal is written, over several segments."""
        self.start(self.tracer)
        for number in range(1, 4):
            self.desk.journal.terms = JournalTerms(segment_bytes=1, gather_seconds=0.001)
            one = entry(number)
            come(self.desk, [one])
            self.desk.journal.note(gone(self.desk, [one]))
            self.desk.written()
            until(lambda: len(self.queue) > 0)
            self.assertEqual(self.names()[0], "publish q")
        self.assertEqual(self.tracer.figures.stories, {"rate": 3})
        self.desk.close()

    def test_context(self) -> None:
        """The journal's context is that of the message."""
        one = Entry(1, message(to="q", application={"traceparent": TRACEPARENT}), True, True, 0, 0)
        other = Entry(2, message(application={"traceparent": "hostile"}), True, True, 0, 0)
        come(self.desk, [one, other])
        self.desk.written()
        found = [each.traceparent for each in self.desk.records() if each.kind == "received"]
        self.assertEqual(found, [TRACEPARENT, None])
        self.desk.close()

    def test_restart(self) -> None:
        """What was here before is known, and what had ended before is not exported again."""
        first, second = entry(1), entry(2)
        come(self.desk, [first, second])
        self.desk.journal.note(gone(self.desk, [first]))
        self.desk.written()
        self.start(self.tracer)
        until(lambda: len(self.tracer.stories) == 1)
        self.desk.journal.note(gone(self.desk, [second]))
        self.desk.written()
        until(lambda: self.tracer.figures.stories.total() == 1)
        self.assertEqual([name for name in self.names() if "publish" in name], ["publish q"])
        self.desk.close()

    def test_stop(self) -> None:
        """At a stop the journal is read to its end, and the queue is closed."""
        self.now_us = 0
        thread = self.start(self.tracer)
        one, other = entry(1), entry(2)
        come(self.desk, [one, other])
        self.desk.journal.note(gone(self.desk, [one]))
        self.desk.close()
        self.tracer.stop()
        thread.join()
        self.assertEqual(len([name for name in self.names() if "publish" in name]), 1)
        self.assertEqual(self.queue.take(1, 60), [])

    def test_discarded(self) -> None:
        """What is not sampled makes no spans, and is counted."""
        quiet = self.make_tracer(0.0)
        self.start(quiet)
        entries = [entry(number) for number in range(1, 11)]
        come(self.desk, entries)
        self.desk.journal.note(gone(self.desk, entries[:9]))
        self.desk.journal.note(gone(self.desk, entries[9:], RecordKind.EXPIRED))
        self.desk.written()
        until(lambda: quiet.figures.stories.total() == 10)
        self.assertEqual(quiet.figures.stories, {DISCARDED: 9, "failure": 1})
        self.desk.close()

    def test_too_far_behind(self) -> None:
        """A thread that cannot follow skips to the end, forgets, and counts."""
        for name, value in (("LOOK_RECORDS", 8), ("MOST_BEHIND", 50), ("AT_ONCE", 1)):
            self.patch(tracer, name, value)
        entries = [entry(number) for number in range(1, 201)]
        come(self.desk, entries)
        self.desk.written()
        self.start(self.tracer)
        until(lambda: self.tracer.figures.skipped > 0)
        self.assertEqual(len(self.tracer.stories), 0)
        one = entry(500)
        come(self.desk, [one])
        self.desk.journal.note(gone(self.desk, [one]))
        self.desk.written()
        until(lambda: self.tracer.figures.stories.total() == 1)
        self.desk.close()

    def test_fault(self) -> None:
        """A fault of the thread is logged, and ends nothing else."""
        self.patch(self.tracer.stories, "add", lambda _: 1 / 0)
        thread = self.start(self.tracer)
        come(self.desk, [entry(1)])
        self.desk.written()
        thread.join()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        come(self.desk, [entry(2)])
        self.desk.close()
        self.assertEqual(self.desk.journal.figures.lost, 0)


class OffTests(HouseTestCase):
    """Without tracing nothing is added."""

    def test_journal(self) -> None:
        """No message is looked at for its context, and no record has one."""
        looked: list[object] = []
        self.patch(event, "context_of", looked.append)
        desk = Desk(Path(self.mktemp()))
        desk.open()
        self.assertIs(type(desk.journal.arrivals([])), ArrivalEvent)
        one = Entry(1, message(to="q", application={"traceparent": TRACEPARENT}), True, True, 0, 0)
        come(desk, [one])
        desk.written()
        desk.close()
        self.assertEqual([each.traceparent for each in desk.records() if each.entry], [None])
        self.assertEqual(looked, [])

    def test_relay(self) -> None:
        """The relay writes what it wrote before, and asks nobody for an id."""
        network = Network(self.clock)
        self.patch(TraceIds, "outgoing", lambda *_: 1 / 0)
        alpha = MemoryBroker(network, "alpha.example")
        beta = MemoryBroker(network, BETA, node("orders"))
        client = alpha.client()
        link = client.sender(f"orders@{BETA}")
        self.run_now()
        client.send(link, message(to=f"orders@{BETA}", application={"traceparent": TRACEPARENT}))
        self.run_now()
        (row,) = beta.store.rows("orders")
        self.assertNotIn(b"x-opt-traceparent", row.encoded)


class OrganizationTests(HouseTestCase):
    """One trace over two organizations, as their collectors see it."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.ids = {"a": make_ids(1.0), "b": make_ids(1.0, bytes(32))}
        self.alpha = MemoryBroker(self.network, "alpha.example")
        self.alpha.tracing_terms = HopTracing(True, self.ids["a"])
        self.beta = MemoryBroker(self.network, BETA, node("orders"))
        for house in (self.alpha, self.beta):
            house.store.audit.arrival_type = TracedArrivalEvent
        self.collector = Collector()
        self.addCleanup(self.collector.stop)

    def send(self, **fields: Any) -> None:
        """Have a message published at alpha and consumed at beta."""
        client = self.alpha.client()
        link = client.sender(f"orders@{BETA}")
        self.run_now()
        client.send(link, message(to=f"orders@{BETA}", **fields))
        self.run_for(5)
        consumer = self.beta.client()
        consumer.receiver("orders", 10)
        self.run_now()
        consumer.settle(consumer.deliveries, spec.Accepted())
        self.run_now()

    def exported(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Export what both journals say; return the spans by organization and name."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for name, house in (("a", self.alpha), ("b", self.beta)):
            sink = OtlpSink(CollectorTerms(self.collector.url), {"service.namespace": name})
            records = records_of(house.store.audit.runs, house.stream, house.domain)
            sink.export(spans_of(records, self.ids[name]))
            sink.close()
        for span in self.collector.spans():
            spans = found.setdefault(span["service"]["service.namespace"], {})
            self.assertNotIn(span["name"], spans)
            spans[span["name"]] = span
        return found

    def assert_joined(self, trace: str, parent: str) -> None:
        """Check the way from the client to the consumer."""
        found = self.exported()
        publish, relay = found["a"]["publish beta.example"], found["a"]["relay beta.example"]
        taken, delivered = found["b"]["publish orders"], found["b"]["deliver orders"]
        traces = {span["trace"] for spans in found.values() for span in spans.values()}
        self.assertEqual(traces, {trace})
        parents = [each["parent"] for each in (publish, relay, taken, delivered)]
        self.assertEqual(parents, [parent, publish["id"], relay["id"], taken["id"]])
        self.assertEqual(
            (relay["kind"], taken["kind"]), (3, 2)  # SPAN_KIND_CLIENT, SPAN_KIND_SERVER
        )  # fmt: skip

    def test_of_a_client(self) -> None:
        """The client's trace goes through both, to the consumer."""
        self.send(application={"traceparent": TRACEPARENT, "tracestate": "vendor=1"})
        self.assert_joined(TRACE, CLIENT_SPAN)

    def test_begun_here(self) -> None:
        """Without a context, alpha begins the trace and beta continues it."""
        self.send()
        self.assert_joined(self.ids["a"].trace_id(self.alpha.stream, 1), "")

    def test_hostile(self) -> None:
        """An invalid context is as none."""
        self.send(application={"traceparent": TRACEPARENT.upper()})
        self.assert_joined(self.ids["a"].trace_id(self.alpha.stream, 1), "")

    def test_dropped(self) -> None:
        """Without a contract, two traces: nothing of ours leaves."""
        self.alpha.tracing_terms = HopTracing(False, None)
        self.send()
        found = self.exported()
        traces = [{span["trace"] for span in found[name].values()} for name in ("a", "b")]
        self.assertNotEqual(*traces)
        self.assertEqual(found["b"]["publish orders"]["parent"], "")

    def test_outage(self) -> None:
        """After an outage and a repetition, still one trace and one span of the relay."""
        self.network.dead.add(BETA)
        client = self.alpha.client()
        link = client.sender(f"orders@{BETA}")
        self.run_now()
        client.send(link, message(to=f"orders@{BETA}", application={"traceparent": TRACEPARENT}))
        self.run_for(30)
        self.network.dead.clear()
        self.run_for(400, 5)
        found = self.exported()
        self.assertEqual(found["a"]["relay beta.example"]["trace"], TRACE)
        relay = found["a"]["relay beta.example"]
        self.assertGreater(relay["end"] - relay["start"], 29e9)
