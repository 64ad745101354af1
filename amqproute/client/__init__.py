# SPDX-License-Identifier: Apache-2.0
"""What every AMQP 1.0 client of this package does alike, without input and output.

Theory of operation
-------------------
A client is one connection with one session and links, on the engine in the client's role.
`client_core.ClientCore` makes the engine, opens the connection, hands the events of each link to
its end, and returns what has ended. `login.ClientLogin` chooses the SASL mechanism for a URL.
`link_terms` says what links ask for, and tells whether the broker has granted it.

A shell moves the octets, waits, and puts an `client_core.Ending` into words for its users:

* `amqproute.cli.client` with Twisted, for the commands: coroutines, deadlines, TLS by `net`;
* `amqproute.pipeline.datasource.blocking_client` on a blocking socket, for Spark's workers, which
  have no place for an event loop;
* `amqproute.tools.load_worker` on a socket that never blocks: it only logs in as these do. A load
  generator spends as little as it can on each message, so its links have no ends in between.

The relay is no client of this kind: it has many sessions, settings of each peer, and its own
judgment of failures (`amqproute.relay`). `peer test` goes the relay's way step by step, with the
relay's settings, or it would test something else.
"""

__all__: list[str] = []
