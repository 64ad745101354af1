# SPDX-License-Identifier: Apache-2.0
"""Routing: the next step for a message to an address. Pure, synchronous, the same for everyone.

`table.Router` answers with `values.Local` (a node of this container) or `values.NextHop` (another
organization). It depends on the configuration and nothing else: no DNS, no connections. It looks up
the domain in this order (T-06 to T-08):

1. no domain, or one of our own (`domains`, the container-id): local;
2. the static routes, in the order of the configuration;
3. the domain itself is the next hop, located through DNS.

`trail` reads and writes the trace of containers that a message has passed (T-27).

Why so: the daemon, `amqproute explain` and the tests run the same function, and a message is routed
*before* it is stored: one durable write, and an address without a route is refused to its sender at
once.
"""

__all__: list[str] = []
