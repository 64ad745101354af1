# SPDX-License-Identifier: Apache-2.0
"""The text of a snapshot, in the format that the client asks for.

prometheus-client negotiates the format and writes the metrics of the process. The lines of a
snapshot are written here, a block at a time: the library takes 5 µs for a sample, which is a
second for ten thousand queues in all detail, and this a tenth of it. Tests hold that the octets are
the library's.

Call `expose` in a thread. The interpreter runs one thread at a time, and changes threads between
operations, never within one. So no operation here is about the whole text, which may have dozens of
megabytes: the reactor would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from amqproute.metrics.families import FAMILIES, MetricFamily, MetricKind
from amqproute.metrics.rabbitmq_aliases import alias_metrics
from amqproute.metrics.snapshot import HistogramValue, MetricsSnapshot, Sampled

__all__ = ["LONGEST_ACCEPT", "expose"]

LONGEST_ACCEPT: Final = 1024
"""Octets of an ``Accept`` header that are read."""
MOST_KNOWN: Final = 10_000
"""Numbers whose text is remembered during one exposition."""
LINES_AT_ONCE: Final = 500
"""Lines that are written in one operation: some dozen kibibytes."""
OPEN_METRICS: Final = "application/openmetrics-text"
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_go_text: Callable[[float], str] = floatToGoString


class _Collected(Collector):
    """Interface of the library's writers to the metrics."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def expose(snapshot: MetricsSnapshot, accept: str, broker: str = "") -> tuple[str, bytes]:
    """Return content type and text of a snapshot.

    Args:
        snapshot: the values.
        accept: the request's ``Accept`` header; empty without one.
        broker: its name, to add totals under RabbitMQ's names; empty to leave these out.
    """
    encode, content_type = choose_encoder(accept[:LONGEST_ACCEPT])
    writer = _Writer(is_open=content_type.startswith(OPEN_METRICS))
    # It grows in place, where joining the parts would copy them all at once.
    whole = BytesIO()
    for text in writer.families(snapshot):
        whole.write(text.encode("utf-8", "replace"))
    more: list[Metric] = []
    if not snapshot.scope.is_detailed:
        more += ProcessCollector(registry=None).collect()
        if broker:
            more += alias_metrics(snapshot.values, broker)
            more += ProcessCollector(namespace="rabbitmq", registry=None).collect()
    # With the end mark of OpenMetrics.
    whole.write(encode(_Collected(more)))
    return content_type, whole.getvalue()


class _Writer:
    """Writes one exposition.

    Args:
        is_open: in the format of OpenMetrics.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._is_open = is_open
        self._texts: dict[float, str] = {}
        self._labels: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}

    def families(self, snapshot: MetricsSnapshot) -> Iterator[str]:
        """Yield the text of each family, in the order of the declarations and in blocks."""
        for name, family in FAMILIES.items():
            if name in snapshot.values:
                yield self._head(family)
                yield from self._plain(family, snapshot.values[name])
            elif name in snapshot.histograms:
                yield self._head(family) + self._histograms(family, snapshot.histograms[name])

    def _head(self, family: MetricFamily) -> str:
        is_open = self._is_open
        name = family.sample if family.kind is MetricKind.COUNTER and not is_open else family.name
        words = family.help.replace("\\", r"\\").replace("\n", r"\n")
        if is_open:
            words = words.replace('"', r"\"")
        head = f"# HELP {name} {words}\n# TYPE {name} {family.kind.value}\n"
        return f"{head}# UNIT {name} {family.unit}\n" if is_open and family.unit else head

    def _plain(self, family: MetricFamily, values: Iterable[Sampled]) -> Iterator[str]:
        name, labels, text = family.sample, self._labels_of(family), self._text
        known = self._texts
        samples = iter(values)
        while block := "".join(
            [
                f"{name}{labels.get(key) or self._label(family, key)} "
                f"{known.get(value) or text(value)}\n"
                for key, value in islice(samples, LINES_AT_ONCE)
            ]
        ):
            yield block

    def _histograms(self, family: MetricFamily, values: Sequence[HistogramValue]) -> str:
        lines = []
        for value in values:
            bounds = [*map(_go_text, value.bounds), "+Inf"]
            for bound, count in zip(bounds, value.cumulative, strict=True):
                pairs = [*zip(family.labels, value.labels, strict=True), ("le", bound)]
                lines.append(f"{family.name}_bucket{_label_text(pairs)} {self._text(count)}\n")
            label = self._label(family, value.labels)
            lines.append(f"{family.name}_count{label} {self._text(value.cumulative[-1])}\n")
            lines.append(f"{family.name}_sum{label} {self._text(value.total)}\n")
        return "".join(lines)

    def _labels_of(self, family: MetricFamily) -> dict[tuple[str, ...], str]:
        """Return the texts of labels by their values: families of nodes share them."""
        return self._labels.setdefault(family.labels, {})

    def _label(self, family: MetricFamily, values: tuple[str, ...]) -> str:
        made = _label_text(list(zip(family.labels, values, strict=True)))
        self._labels_of(family)[values] = made
        return made

    def _text(self, value: float) -> str:
        made = _go_text(value)
        if len(self._texts) < MOST_KNOWN:
            self._texts[value] = made
        return made


def _label_text(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    inner = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in sorted(pairs))
    return f"{{{inner}}}"
