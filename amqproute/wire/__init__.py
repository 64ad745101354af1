# SPDX-License-Identifier: Apache-2.0
"""The protocols, without input or output: bytes in, events out; method calls in, bytes out.

The rule of this package: no socket, reactor, logger, clock, random number, zope interface or
file. Time is an argument, ``now``. `amqproute.wire.engine` defines the interface of engines; the
only package that connects an engine to a transport is `amqproute.net`.

Theory of operation: `amqproute.wire.header` recognizes the eight bytes that begin every connection;
`amqproute.wire.protocol_choice` uses them to choose the engine of a connection, among the protocols
that a listener offers. `amqproute.wire.amqp10` and ``amqproute.wire.amqp09`` contain the engines,
`amqproute.wire.sasl_mechanisms` the SASL mechanisms that both use. An error of the peer becomes a
final event and a queued close, never an exception; an error of our own code is a
`LocalProtocolError`.

Why so: an engine that only computes can be tested with every chunking of every byte stream, without
a network and without waiting, and runs unchanged in the daemon, in the command line client and in a
benchmark. The alternative, a Twisted ``Protocol`` that parses, mixes parser, policy and transport
in one object.
"""

__all__: list[str] = []
