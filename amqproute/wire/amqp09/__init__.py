# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-9 and 0-9-1 with RabbitMQ's extensions, as an engine without input or output.

From the bytes upwards: `field_tables` are field tables and the types of their values. `methods`
holds all methods and properties as tables; it is made by a program from the facts of the standards
and never by hand. `arguments` turns both into octets and back. `frame_output` writes frames. On
these stand `tags` (delivery tags, confirms), `channel`, and the engine proper: `handshake` up to
open, and `connection09`, which reads frames and tells what happened in terms of `protocol_events`.
`violations` is the one table of what a peer can do wrong and what it is told, `replies` has the
codes and their scopes.

Theory of operation
-------------------

**Two versions, one table.** No id changed between 0-9 and 0-9-1. The header that the client sends
chooses the version; it decides which methods there are (0-9-1 has removed some; the extensions are
there in both), which fields are reserved, whether consumer tags count per connection (0-9) or per
channel, and the codes of a few violations.

**Whose turn it is.** The engine does by itself what has one right answer: start, tune-ok, flow-ok,
the answers to ping, heartbeats, close for a violation. Everything else is the user's, by verbs:
the outcome of authentication, open-ok, channel.open-ok, the replies to methods, and close-ok, which
can so wait until all has ended that the peer may not meet again. While it is the user's turn before
connection.open-ok nothing is read.

**Contents.** A method with content, its header and its body frames become one `Content` when all
is there. One whose body has more than ``part_from`` octets is handed up as it comes and never held.
Publishes that follow each other become one event, and so do acks: the frontend makes one batch for
the broker of each. The way of one publish whose method and properties were seen before, all of it
in one read, is a dozen comparisons and two look-ups (`Connection09._whole_publish`); whatever is
unusual about it takes the ordinary way, frame by frame, and a property test holds that both give
the same. Methods and properties of contents are shared between contents: they must not be changed.

**Faults** never raise out of the engine. `violations.RULES` gives the code, the code's scope
decides whether channel or connection is closed, and the user is told by the event of that end.
After a close of ours everything is skipped up to the answer (09-CONN-33, 09-CHAN-17); the number of
a channel is free when its close is answered. What the user does wrong raises `LocalProtocolError`.

**Time.** Verbs take no time; the engine uses the last ``now`` it was given. What a verb starts is
armed, or told, by the next `tick`, which `next_deadline` then asks for at once. A caller that stops
reading to slow a publisher down says so (`Handshake.reading_stops`), or it would miss the
heartbeats that wait unread.

**Work** is counted as in 1.0 (`amqproute.wire.input_cost`): `Connection09.receive_data` takes
frames up to a budget and keeps the rest.

Bounds: one frame of input, of `connection_settings.OPENING_FRAME` octets before tuning;
`handshake.MOST_WAITING` octets written ahead while it is the user's turn; ``max_partial`` octets of
contents that have begun and not ended, over all channels, beyond which they are handed up; a
thirty-second part of it for their properties, beyond which the connection is closed; tables
of `field_tables.DEEPEST` levels and `field_tables.MOST_VALUES` values; channels by channel-max.
Frames without effect are counted, and a peer that sends thousands is closed. What is outstanding on
a channel (deliveries without ack, publishes without confirm, consumers) is bounded by whoever makes
it: the user, who gives out deliveries, confirms and consumers.

Why so: nearly all of a broker's 0-9-1 traffic is one method with three properties, again and again.
To find out that it is the same costs half of decoding it anew, and a publish then costs less than
a transfer of 1.0 does (`benchmarks.amqp09`). The alternative, a library made for clients, decodes
everything every time, waits for whole bodies and has one version.
"""

__all__: list[str] = []
