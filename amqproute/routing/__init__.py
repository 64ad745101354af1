# SPDX-License-Identifier: Apache-2.0
"""Where does a message for this address go? Pure, synchronous, and the same for everyone.

`table.Router` answers with `values.Local` (a node of this container) or `values.NextHop` (another
organization). It knows the configuration and nothing else: no DNS, no connections. The domain is
looked up in this order (T-06 to T-08):

1. no domain, or one of our own (`domains`, the container-id): local;
2. the static routes, in the order of the configuration;
3. the domain itself is the next hop, to be found through DNS.

`trail` reads and writes the trace of containers that a message has passed (T-27).

Why so: the daemon, `amqproute explain` and the tests run the same function, and a message is
routed *before* it is stored: one durable write, and an address that leads nowhere is refused to
its sender at once.
"""

__all__: list[str] = []
