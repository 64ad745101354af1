# SPDX-License-Identifier: Apache-2.0
"""The protocols, without input or output: takes bytes, gives events; takes verbs, gives bytes.

The rule of this package: no socket, reactor, logger, clock, random number, zope interface or
file. Time comes in as ``now``. `amqproute.wire.engine` says what every engine offers; the one
place that joins an engine to a transport is `amqproute.net`.

Theory of operation: `amqproute.wire.header` recognizes the eight bytes that every connection
starts with; `amqproute.wire.protocol_choice` chooses the engine of a connection by them, among the
protocols that a listener offers. `amqproute.wire.amqp10` and ``amqproute.wire.amqp09`` are the
engines' rooms, `amqproute.wire.sasl_mechanisms` the SASL
mechanisms that both use. What a peer does wrong becomes a final event and a queued close, never
an exception; what our own code does wrong is a `LocalProtocolError`.

Why so: an engine that does nothing but compute can be tested with every chunking of every
byte stream, without a network and without waiting, and runs unchanged in the daemon, in the
command line client and in a benchmark. The alternative, a Twisted ``Protocol`` that parses, was
tried by many and mixes parser, policy and transport in one object.
"""

__all__: list[str] = []
