# SPDX-License-Identifier: Apache-2.0
"""The common core of the package's AMQP 1.0 clients, without input and output.

Theory of operation
-------------------
A client is one connection with one session and links, on the engine in the client's role.
`client_core.ClientCore` makes the engine, opens the connection, hands the events of each link to
its end, and returns what has ended. `login.ClientLogin` chooses the SASL mechanism for a URL.
`link_terms` has the terms of links, and checks whether the broker has granted them.

A shell moves the octets, waits, and translates a `client_core.Ending` for its users:

* `amqproute.cli.client` with Twisted, for the commands: coroutines, deadlines, TLS by `net`;
* `amqproute.pipeline.datasource.blocking_client` on a blocking socket, for Spark's workers,
  which have no event loop;
* `amqproute.tools.load_worker` on a socket that never blocks: it only logs in as these do. A load
  generator spends as little as it can on each message, so its links have no ends in between.

The relay does not use it: it has many sessions, settings for each peer, and its own handling of
failures (`amqproute.relay`). Neither does `peer test`, which follows the relay's steps with the
relay's settings.
"""

__all__: list[str] = []
