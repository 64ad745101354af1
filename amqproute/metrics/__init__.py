# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: what is measured, how it is collected, and how it is written.

Theory of operation
    Parts of the broker count in plain integers, mostly once for each batch; none of them knows this
    package, and a message costs next to nothing more because somebody may look. `families` declares
    every family once: name, unit, help, labels, the bound of the labels; ``docs/metrics.md`` is
    printed from it. A scrape has two steps. The *sources* (`node_metrics`, `peer_metrics`,
    `broker_metrics`) write values into a `snapshot`, on the reactor's thread, in slices of a
    millisecond, so that ten thousand queues stop nobody. Then `exposition` makes the text of the
    snapshot, in a thread of its own; prometheus-client negotiates the format.
    `metrics_service` does both for each scrape, and simultaneous scrapes share one answer.
    `rabbitmq_aliases` adds totals under RabbitMQ's names, if the configuration asks for them.

Cardinality
    Senders choose the domains that messages go to, and clients make queues. ``/metrics`` names the
    nodes of the configuration file and the peers under `peers`, up to a bound, and adds up all
    others under the label value ``other``. ``/metrics/detailed`` names everything, for one family,
    node or peer. Nothing is counted by connection.

Counters never shrink
    Counters of deleted queues are kept as a sum, and those of next hops continue when a destination
    that was unused is made again. A counter begins at zero with the daemon only.

Why so
    The library's own counters take a lock and a look-up for each observation, which is a
    noticeable part of what a message costs. Its writer takes 5 µs for a line, a second for all
    that there is to say of ten thousand queues; the writer here is held to the same octets.
"""

__all__: list[str] = []
