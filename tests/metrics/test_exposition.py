# SPDX-License-Identifier: Apache-2.0
"""The octets of an answer are those of prometheus-client's writers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString
from twisted.trial.unittest import SynchronousTestCase

from amqproute.bucket_counts import SECONDS, BucketCounts
from amqproute.metrics.exposition import LINES_AT_ONCE, _Writer, expose
from amqproute.metrics.families import FAMILIES, MetricFamily, MetricKind
from amqproute.metrics.snapshot import HistogramValue, MetricsScope, MetricsSnapshot

ACCEPTS = (
    "",
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    "application/openmetrics-text",
    "application/openmetrics-text;version=1.0.0;escaping=underscores",
    "application/openmetrics-text;version=0.0.1,text/plain;q=0.5",
)
QUEUES = 10_000


def library_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Return a snapshot in the types of the library."""
    for name, family in FAMILIES.items():
        metric = Metric(family.name, family.help, family.kind.value, family.unit)
        if name in snapshot.values:
            metric.samples = [
                Sample(family.sample, dict(zip(family.labels, labels, strict=True)), value)
                for labels, value in snapshot.values[name]
            ]
            yield metric
        elif name in snapshot.histograms:
            for each in snapshot.histograms[name]:
                metric.samples += histogram_samples(family, each)
            yield metric


def histogram_samples(family: MetricFamily, value: HistogramValue) -> list[Sample]:
    """Return the samples of a histogram."""
    labels = dict(zip(family.labels, value.labels, strict=True))
    bounds = [*map(floatToGoString, value.bounds), "+Inf"]
    return [
        *(
            Sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
            for bound, count in zip(bounds, value.cumulative, strict=True)
        ),
        Sample(f"{family.name}_count", labels, value.cumulative[-1]),
        Sample(f"{family.name}_sum", labels, value.total),
    ]


class Library(Collector):
    """Metrics for the library's writers."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        """Return them."""
        return self._metrics


def by_library(snapshot: MetricsSnapshot, accept: str) -> tuple[str, bytes]:
    """Return content type and text as the library writes them, without the process."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(Library(list(library_metrics(snapshot))))


VALUES = st.one_of(
    st.integers(0, 1 << 60), st.booleans(), st.floats(), st.sampled_from([1e6, 1234567.5, 1e21])
)
LABELS = st.text(st.sampled_from('ab"\\\n{},= é\u202e\U0001f600'), max_size=6)
PLAIN = [each for each in FAMILIES.values() if each.kind is not MetricKind.HISTOGRAM]
HISTOGRAMS = [each for each in FAMILIES.values() if each.kind is MetricKind.HISTOGRAM]


@st.composite
def snapshots(draw: st.DrawFn) -> MetricsSnapshot:
    """Make a snapshot with any labels and values."""
    snapshot = MetricsSnapshot(MetricsScope(is_detailed=True))
    for family in draw(st.lists(st.sampled_from(PLAIN), max_size=4, unique_by=lambda x: x.name)):
        for _ in range(draw(st.integers(0, 3))):
            snapshot.add(family.name, draw(VALUES), *(draw(LABELS) for _ in family.labels))
    for family in draw(st.lists(st.sampled_from(HISTOGRAMS), max_size=2, unique=True)):
        counts = BucketCounts(SECONDS)
        for value in draw(st.lists(st.floats(0, 100), max_size=5)):
            counts.add(value)
        snapshot.add_histogram(family.name, counts, *(draw(LABELS) for _ in family.labels))
    return snapshot


class OctetTests(SynchronousTestCase):
    """The same octets as the library's."""

    @given(snapshots(), st.sampled_from(ACCEPTS))
    def test_same(self, snapshot: MetricsSnapshot, accept: str) -> None:
        """Whatever the labels, the values and the format."""
        self.assertEqual(expose(snapshot, accept), by_library(snapshot, accept))

    def test_process(self) -> None:
        """The metrics of the process follow, and the end mark is last."""
        snapshot = MetricsSnapshot()
        snapshot.add("amqproute_draining", 0)
        for accept in ACCEPTS:
            content_type, text = expose(snapshot, accept)
            self.assertLess(text.index(b"amqproute_draining 0.0"), text.index(b"process_cpu"))
            self.assertEqual(text.endswith(b"# EOF\n"), content_type.startswith("application"))
            self.assertLessEqual(text.count(b"# EOF"), 1)
        self.assertTrue(list(ProcessCollector(registry=None).collect()))

    def test_surrogate(self) -> None:
        """A name that no client can have, and that UTF-8 cannot write, spoils its line only."""
        snapshot = MetricsSnapshot(MetricsScope(is_detailed=True))
        snapshot.add("amqproute_node_messages", 1, "/", "a\ud800")
        self.assertIn(b'node="a?"', expose(snapshot, "")[1])


class CostTests(SynchronousTestCase):
    """What ten thousand queues in all detail cost, in calls of Python functions."""

    def test_calls(self) -> None:
        """Some calls for a queue, not for each of its numbers."""
        snapshot = MetricsSnapshot(MetricsScope(is_detailed=True))
        families = [each for each in PLAIN if each.labels == ("virtual_host", "node")]
        self.assertGreater(len(families), 15)
        table = snapshot.table([each.name for each in families])
        for number in range(QUEUES):
            table.add(("/", f"queue-{number}"), [number % 100] * len(families))
        calls = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            _, text = expose(snapshot, "")
        finally:
            sys.setprofile(None)
        self.assertEqual(text.count(b"\n"), len(families) * (QUEUES + 2))
        self.assertLess(calls, 10 * QUEUES)

    def test_blocks(self) -> None:
        """No operation is about more than some hundred lines: none keeps the reactor waiting."""
        snapshot = MetricsSnapshot(MetricsScope(is_detailed=True))
        table = snapshot.table(["amqproute_node_messages", "amqproute_node_full"])
        for number in range(QUEUES):
            table.add(("/", f"queue-{number}"), (number, 0))
        for number in range(QUEUES):
            snapshot.add("amqproute_peer_state", number, f"org-{number}", "up")
        blocks = list(_Writer(is_open=False).families(snapshot))
        self.assertEqual(sum(each.count("\n") for each in blocks), 3 * (QUEUES + 2))
        self.assertLessEqual(max(each.count("\n") for each in blocks), LINES_AT_ONCE)
