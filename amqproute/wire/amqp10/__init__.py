# SPDX-License-Identifier: Apache-2.0
"""OASIS AMQP 1.0, as an engine without input or output.

From the bytes upwards: `types` has the AMQP types that Python lacks, `codec` encodes and decodes
values, `spec` holds the composite types as tables. `fastpath` reads and writes by hand the
performatives that run once per message or per batch; `frames` cuts the byte stream into frames and
decodes their performatives through either. `sections` finds the parts of a message without decoding
them.

On these stand the endpoints, each file above those that it uses. `state_tables` has the states,
`connection_state` what sessions and links share of their connection. `negotiated_link` has the
terms and the credit of a link; `link` adds its deliveries, and has `LinkSession`, the session as
links see it. `link_events` and `protocol_faults` are the events and faults of links. A `session` is
made of `transfer_input`, `transfer_output` and its `unsettled_map`. `engine_events` has all events.
`negotiation` and `sasl` handle everything before AMQP frames, and `connection` is the engine
proper. An owner is typed by a narrow class in its user's module (`LinkSession` in `link`,
`SessionConnection` in `session`), so nothing imports upwards.

Why so: the tables decide what is correct; the fast paths only save time. A fast path recognizes the
encodings that every known client uses and leaves everything else, errors included, to the generic
path; a property test holds that both give the same result. The alternative, one generic decoder,
costs about four times as much for a transfer.
"""

__all__: list[str] = []
