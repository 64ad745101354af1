# SPDX-License-Identifier: Apache-2.0
"""A query of Qpid's clients, exchange.bound: is there such a binding? (09: part 4.5).

The answer names what is missing by a code of its own, and closes nothing. An empty name or key in
the query stands for any.
"""

from __future__ import annotations

import enum
from collections.abc import Container

from amqproute.broker.exchanges.binding_tables import BindingTarget, TargetKind
from amqproute.broker.exchanges.exchange_graph import DEFAULT_EXCHANGE, ExchangeGraph
from amqproute.wire.amqp09.methods import ExchangeBound, ExchangeBoundOk

__all__ = ["BoundCode", "bound_answer"]


class BoundCode(enum.IntEnum):
    """Codes of exchange.bound-ok, as Qpid's brokers have them."""

    BOUND = 0
    NO_EXCHANGE = 1
    NO_QUEUE = 2
    NO_BINDING = 3
    QUEUE_NOT_BOUND = 4
    KEY_NOT_BOUND = 5
    QUEUE_NOT_BOUND_BY_KEY = 6


def bound_answer(
    query: ExchangeBound, graph: ExchangeGraph, queues: Container[str]
) -> ExchangeBoundOk:
    """Answer a query.

    Args:
        query: the query from the client.
        graph: the exchanges and bindings of its virtual host.
        queues: the names of the queues there.
    """
    code = _code(query, graph, queues)
    key, queue = query.routing_key, query.queue
    words = {
        BoundCode.BOUND: "",
        BoundCode.NO_EXCHANGE: f"no exchange '{query.exchange}'",
        BoundCode.NO_QUEUE: f"no queue '{queue}'",
        BoundCode.NO_BINDING: f"nothing is bound to exchange '{query.exchange}'",
        BoundCode.QUEUE_NOT_BOUND: f"queue '{queue}' is not bound",
        BoundCode.KEY_NOT_BOUND: f"no binding has the key '{key}'",
        BoundCode.QUEUE_NOT_BOUND_BY_KEY: f"queue '{queue}' is not bound by this key",
    }[code]
    encoded = words.encode("utf-8", "surrogatepass")[:255]
    return ExchangeBoundOk(reply_code=code, reply_text=encoded.decode("utf-8", "ignore"))


def _code(query: ExchangeBound, graph: ExchangeGraph, queues: Container[str]) -> BoundCode:
    exchange, key, queue = query.exchange, query.routing_key, query.queue
    if exchange not in graph:
        return BoundCode.NO_EXCHANGE
    is_default = exchange == DEFAULT_EXCHANGE
    if queue:
        if queue not in queues:
            return BoundCode.NO_QUEUE
        if is_default and key in ("", queue):
            return BoundCode.BOUND  # each queue is, by its name
        bindings = [
            each
            for each in graph.bindings_to(BindingTarget(TargetKind.QUEUE, queue))
            if each.source == exchange
        ]
        if not key:
            return BoundCode.BOUND if bindings else BoundCode.QUEUE_NOT_BOUND
        if any(each.key == key for each in bindings):
            return BoundCode.BOUND
        return BoundCode.QUEUE_NOT_BOUND_BY_KEY
    if key:
        is_bound = graph.has_key(exchange, key) or (is_default and key in queues)
        return BoundCode.BOUND if is_bound else BoundCode.KEY_NOT_BOUND
    is_bound = is_default or graph.binding_count_of(exchange) > 0
    return BoundCode.BOUND if is_bound else BoundCode.NO_BINDING
