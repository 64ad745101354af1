# SPDX-License-Identifier: Apache-2.0
"""The text of a snapshot, in the format that the client asks for.

Types and writers are those of prometheus-client. They take about 5 µs for a sample: call `expose`
in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from amqproute.metrics.families import FAMILIES, MetricFamily
from amqproute.metrics.snapshot import HistogramValue, MetricsSnapshot

__all__ = ["LONGEST_ACCEPT", "expose", "metrics_of"]

LONGEST_ACCEPT: Final = 1024
"""Octets of an ``Accept`` header that are read."""


class _Collected(Collector):
    """What the library's writers ask for: an object with the metrics."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def expose(snapshot: MetricsSnapshot, accept: str) -> tuple[str, bytes]:
    """Return content type and text of a snapshot.

    Args:
        snapshot: the values.
        accept: the request's ``Accept`` header; empty without one.
    """
    encode, content_type = choose_encoder(accept[:LONGEST_ACCEPT])
    metrics = list(metrics_of(snapshot))
    if not snapshot.scope.is_detailed:
        metrics += ProcessCollector(registry=None).collect()
    return content_type, encode(_Collected(metrics))


def metrics_of(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Return the metrics of a snapshot in the order of their declarations."""
    for name, family in FAMILIES.items():
        if name in snapshot.values:
            yield _plain(family, snapshot.values[name])
        elif name in snapshot.histograms:
            yield _histogram(family, snapshot.histograms[name])


def _plain(family: MetricFamily, values: list[tuple[tuple[str, ...], float]]) -> Metric:
    metric = Metric(family.name, family.help, family.kind.value, family.unit)
    names, sample = family.labels, family.sample
    metric.samples = [
        Sample(sample, dict(zip(names, labels, strict=True)), value) for labels, value in values
    ]
    return metric


def _histogram(family: MetricFamily, values: list[HistogramValue]) -> Metric:
    metric = Metric(family.name, family.help, family.kind.value, family.unit)
    bucket, name = f"{family.name}_bucket", family.name
    for value in values:
        labels = dict(zip(family.labels, value.labels, strict=True))
        bounds = [*map(floatToGoString, value.bounds), "+Inf"]
        metric.samples += [
            Sample(bucket, {**labels, "le": bound}, count)
            for bound, count in zip(bounds, value.cumulative, strict=True)
        ]
        metric.samples.append(Sample(f"{name}_count", labels, value.cumulative[-1]))
        metric.samples.append(Sample(f"{name}_sum", labels, value.total))
    return metric
