# SPDX-License-Identifier: Apache-2.0
"""OASIS AMQP 1.0, as an engine without input or output.

From the bytes upwards: `types` are the AMQP types that Python lacks, `codec` turns values into
bytes and back, `spec` holds the composite types as tables. `fastpath` reads and writes by hand the
performatives that run once per message or per batch; `frames` cuts the byte stream into
frames and decodes their performatives through either. `sections` finds the parts of a message
without decoding them. On these stand the endpoints: `state_tables`, `link`, `session` with
`transfer_input`, `transfer_output` and what is `unsettled_map`, `sasl` and the engine proper in
`connection`, which tells what happened in terms of `engine_events`.

Why so: the tables decide what is right, the fast paths only how soon. A fast path recognizes
the encodings that every known client uses and leaves everything else, errors included, to the
generic path; a property test holds that both give the same result. The alternative, one
generic decoder, costs about four times as much for a transfer.
"""

__all__: list[str] = []
