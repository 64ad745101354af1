# SPDX-License-Identifier: Apache-2.0
"""The counters of tracing, in the answer to a scrape."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families as plain_text
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from amqproute.metrics.broker_metrics import TracingFacts, TracingMetrics
from amqproute.metrics.families import FAMILIES
from amqproute.metrics.metrics_service import MetricsService

FACTS = TracingFacts(
    {"failure": 1, "discarded": 9}, {"exported": 7, "dropped": 2, "failed": 3}, 4, 5, 6, 7, 8, 9, 10
)


class TracingMetricsTests(SynchronousTestCase):
    def scrape(self, tracing: Any) -> dict[tuple[str, ...], float]:
        """Return the samples of tracing."""
        clock = Clock()
        service = MetricsService(
            lambda: deferLater(clock, 0),
            clock.seconds,
            [TracingMetrics(tracing).tracing],
            [],
            maybeDeferred,
        )
        answer = service.scrape()
        while not answer.called:
            clock.advance(0)
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in plain_text(self.successResultOf(answer).text.decode())
            for sample in family.samples
            if sample.name.startswith("amqproute_tracing")
        }

    def test_on(self) -> None:
        """Every declared family has its samples."""
        found = self.scrape(lambda: FACTS)
        self.assertEqual(found["amqproute_tracing_spans_total", "dropped"], 2)
        self.assertEqual(found["amqproute_tracing_messages_total", "discarded"], 9)
        declared = {
            family.sample
            for name, family in FAMILIES.items()
            if name.startswith("amqproute_tracing")
        }
        self.assertEqual({name for name, *_ in found}, declared)
        self.assertEqual(len(set(found.values())), len(found) - 2)  # 7 and 9 are there twice

    def test_off(self) -> None:
        """Without tracing there are none."""
        self.assertEqual(self.scrape(None), {})
