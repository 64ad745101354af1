# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-9 and 0-9-1 with RabbitMQ's extensions, as an engine without input or output.

From the bytes upwards: `field_tables` has field tables and the types of their values. `methods`
holds all methods and properties as tables; a program generates it from the facts of the standards,
and it is never edited by hand. `arguments` turns both into octets and back. `frame_output` writes
frames. Above these are `tags` (delivery tags, confirms), `channel`, and the engine proper:
`handshake` up to open, and `connection09`, which reads frames and reports events, defined in
`protocol_events`. `violations` is the one table of a peer's possible errors and the replies to
them, `replies` has the codes and their scopes.

Theory of operation
-------------------

**Two versions, one table.** No id changed between 0-9 and 0-9-1. The client's header chooses the
version; it determines the set of methods (0-9-1 has removed some; the extensions exist in both),
the reserved fields, whether consumer tags are unique per connection (0-9) or per channel, and the
codes of a few violations. The five classes that 0-9-1 has removed exist in 0-9 only, contents
included; on a connection of 0-9-1 they are unknown, which is answered with 503.

**Division of work.** The engine itself sends everything that has one right answer: start, tune-ok,
flow-ok, the answers to ping, heartbeats, close for a violation. Everything else is the user's,
through method calls: the outcome of authentication, open-ok, channel.open-ok, the replies to
methods, and close-ok, which can thus wait until everything has ended that the peer must not meet
again. While the user's action is pending before connection.open-ok, nothing is read.

**Contents.** A method with content, its header and its body frames become one `Content` when
complete. A content whose body has more than ``part_from`` octets is passed on in parts and never
held. Consecutive publishes become one event, and so do acks: the frontend makes one batch for the
broker from each. The processing of a publish whose method and properties were seen before, all of
it in one read, takes a dozen comparisons and two look-ups (`Connection09._whole_publish`); anything
unusual takes the ordinary way, frame by frame, and a property test ensures that both give the same
result. Methods and properties of contents are shared between contents: they must not be changed.

**Faults** never raise out of the engine. `violations.RULES` gives the code, the code's scope
decides whether channel or connection is closed, and the event of that end notifies the user. After
a close from our side everything is skipped up to the answer (09-CONN-33, 09-CHAN-17); a channel's
number is free when its close is answered. An error of the user raises `LocalProtocolError`.

**Time.** Method calls take no time argument; the engine uses the last ``now`` it was given.
Deadlines and events that result from a call are handled by the next `tick`, which `next_deadline`
then requests at once. A caller that stops reading to slow a publisher down must report that
(`Handshake.reading_stops`), or the engine would miss the heartbeats that wait unread.

**Work** is counted as in 1.0 (`amqproute.wire.input_cost`): `Connection09.receive_data` takes
frames up to a budget and keeps the rest.

Bounds: one frame of input, of `connection_settings.OPENING_FRAME` octets before tuning;
`handshake.MOST_WAITING` octets sent ahead while the user's action is pending; ``max_partial``
octets of incomplete contents, over all channels, beyond which they are passed on in parts; a
thirty-second part of it for their properties, beyond which the connection is closed; tables of
`field_tables.DEEPEST` levels and `field_tables.MOST_VALUES` values; channels by channel-max. Frames
without effect are counted, and a peer that sends thousands is closed. Outstanding items on a
channel (deliveries without ack, publishes without confirm, consumers) are bounded by the user,
which creates them.

Why so: nearly all of a broker's 0-9-1 traffic is one method with three properties, repeated.
Recognizing the repetition costs half as much as decoding, and a publish then costs less than a
transfer of 1.0 (`benchmarks.amqp09`). The alternative, a library made for clients, decodes
everything every time, waits for whole bodies and supports one version.
"""

__all__: list[str] = []
