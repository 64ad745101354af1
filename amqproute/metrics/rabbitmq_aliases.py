# SPDX-License-Identifier: Apache-2.0
"""Totals of the broker under the names of RabbitMQ's metrics, for dashboards made for these.

They are made of the families declared in `families`, by adding up all their samples. Only what
exists here has a name; the others of RabbitMQ are left out, and a panel for them stays empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from amqproute import __version__

__all__ = ["ALIASES", "RabbitmqAlias", "alias_metrics", "rows"]


FamilyValues = Mapping[str, Iterable[tuple[tuple[str, ...], float]]]


@dataclass(frozen=True, slots=True)
class RabbitmqAlias:
    """A metric of RabbitMQ.

    Attributes:
        name: the name of its samples.
        adds: families whose samples are added up, without ``amqproute_``; empty for a part of a
            sum that is counted elsewhere: it is 0, since without it the sum has no value.
        subtracts: families whose samples are taken off.
        label: the only value of the first label whose samples count; empty for all.
        without: the value where the families have no samples; None to leave it out.
    """

    name: str
    adds: tuple[str, ...]
    subtracts: tuple[str, ...] = ()
    label: str = ""
    without: float | None = None

    @property
    def is_counter(self) -> bool:
        """Whether it is a counter, by its name."""
        return self.name.endswith("_total")

    @property
    def help(self) -> str:
        """What it is made of."""
        if not self.adds:
            return "0: counted with the deliveries that are acknowledged"
        taken_off = "".join(f" - amqproute_{each}" for each in self.subtracts)
        only = f" ({self.label})" if self.label else ""
        return " + ".join(f"amqproute_{each}" for each in self.adds) + taken_off + only

    def value(self, values: FamilyValues) -> float | None:
        """Return the value; None to leave it out."""
        if not self.adds:
            return 0.0
        names = [f"amqproute_{each}" for each in self.adds]
        if not any(name in values for name in names):
            return self.without
        taken_off = [f"amqproute_{each}" for each in self.subtracts]
        return self._sum(values, names) - self._sum(values, taken_off)

    def _sum(self, values: FamilyValues, names: list[str]) -> float:
        return sum(
            value
            for name in names
            for labels, value in values.get(name, ())
            if not self.label or labels[0] == self.label
        )


_TAKEN: Final = ("node_enqueued_messages", "transfers_relayed")
_DELIVERED: Final = ("node_dequeued_messages", "node_released_messages", "node_rejected_messages")
_GLOBAL: Final = "rabbitmq_global_messages_"
_CHANNEL: Final = "rabbitmq_channel_"

ALIASES: Final = (
    RabbitmqAlias("rabbitmq_connections", ("connections",), without=0.0),
    RabbitmqAlias("rabbitmq_channels", ("channels",)),
    RabbitmqAlias("rabbitmq_queues", ("nodes",)),
    RabbitmqAlias("rabbitmq_consumers", ("node_consumers",)),
    RabbitmqAlias("rabbitmq_global_consumers", ("node_consumers",)),
    RabbitmqAlias("rabbitmq_queue_consumers", ("node_consumers",)),
    RabbitmqAlias("rabbitmq_queue_messages", ("node_messages",)),
    RabbitmqAlias("rabbitmq_queue_messages_ready", ("node_messages",), ("node_acquired_messages",)),
    RabbitmqAlias("rabbitmq_queue_messages_unacked", ("node_acquired_messages",)),
    RabbitmqAlias("rabbitmq_queue_messages_bytes", ("node_messages_bytes",)),
    RabbitmqAlias("rabbitmq_global_messages_received_total", _TAKEN),
    RabbitmqAlias("rabbitmq_global_messages_routed_total", _TAKEN),
    RabbitmqAlias("rabbitmq_global_messages_delivered_total", _DELIVERED),
    RabbitmqAlias(f"{_GLOBAL}delivered_consume_manual_ack_total", _DELIVERED),
    RabbitmqAlias(f"{_GLOBAL}delivered_consume_auto_ack_total", ()),
    RabbitmqAlias(f"{_GLOBAL}delivered_get_manual_ack_total", ()),
    RabbitmqAlias(f"{_GLOBAL}delivered_get_auto_ack_total", ()),
    RabbitmqAlias("rabbitmq_global_messages_acknowledged_total", ("node_dequeued_messages",)),
    RabbitmqAlias("rabbitmq_global_messages_redelivered_total", ("node_released_messages",)),
    RabbitmqAlias(
        "rabbitmq_global_messages_unroutable_dropped_total", ("topic_unroutable_messages",)
    ),
    # Of dashboards older than the names above.
    RabbitmqAlias(f"{_CHANNEL}consumers", ("node_consumers",)),
    RabbitmqAlias(f"{_CHANNEL}messages_published_total", _TAKEN),
    RabbitmqAlias(f"{_CHANNEL}messages_redelivered_total", ("node_released_messages",)),
    RabbitmqAlias(f"{_CHANNEL}messages_delivered_ack_total", _DELIVERED),
    RabbitmqAlias(f"{_CHANNEL}messages_delivered_total", ()),
    RabbitmqAlias(f"{_CHANNEL}get_ack_total", ()),
    RabbitmqAlias(f"{_CHANNEL}get_total", ()),
    RabbitmqAlias("rabbitmq_disk_space_available_bytes", ("store_free_bytes",)),
    RabbitmqAlias("rabbitmq_disk_space_available_limit_bytes", ("store_floor_bytes",)),
    RabbitmqAlias(
        "rabbitmq_alarms_free_disk_space_watermark", ("publishing_stopped",), label="disk"
    ),
    RabbitmqAlias("rabbitmq_alarms_memory_used_watermark", ("publishing_stopped",), label="memory"),
)
"""In the order of the answer."""


def alias_metrics(values: FamilyValues, broker: str) -> Iterator[Metric]:
    """Return the metrics.

    Args:
        values: labels and values of our own families, all of them.
        broker: its name, for the labels by which RabbitMQ's dashboards select.
    """
    identity = {
        "rabbitmq_node": broker,
        "rabbitmq_cluster": broker,
        "rabbitmq_cluster_permanent_id": broker,
    }
    version = {"rabbitmq_version": __version__, "product_name": "amqproute"}
    yield _one("rabbitmq_identity_info", "gauge", "the name of the broker", 1.0, identity)
    yield _one(
        "rabbitmq_build_info", "gauge", "the version of amqproute", 1.0, {**identity, **version}
    )
    for alias in ALIASES:
        value = alias.value(values)
        if value is not None:
            yield _one(alias.name, "counter" if alias.is_counter else "gauge", alias.help, value)


def _one(
    name: str, kind: str, words: str, value: float, labels: dict[str, str] | None = None
) -> Metric:
    metric = Metric(name.removesuffix("_total") if kind == "counter" else name, words, kind)
    metric.samples = [Sample(name, labels or {}, value)]
    return metric


def rows() -> Iterator[str]:
    """Return the rows of the table in ``docs/metrics.md``."""
    for alias in ALIASES:
        yield f"| `{alias.name}` | {alias.help} |"
