# SPDX-License-Identifier: Apache-2.0
"""Cost per message of a filter, including reading its fields from the bytes.

Run ``python -m benchmarks.filters``. Each figure is the best of several rounds, in microseconds
per message; locating the sections, which a queue has done before, is not counted. The design
allows 5 us for a comparison on an application property.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from amqproute.filters.grammar import parse
from amqproute.filters.names import Dialect
from amqproute.filters.registry import read_filters
from amqproute.message import Message
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Described, Int, Symbol

ROUNDS = 7
BATCH = 5000

SELECTORS = (
    "complexity < 5",
    "color = 'red'",
    "absent IS NULL",
    "color LIKE 'r%'",
    "color LIKE '%e_%'",
    "amqp.subject = 'order.created'",
    "amqp.priority > 3",
    "color IN ('red', 'green', 'blue')",
    "price * quantity BETWEEN 10 AND 1000",
    "color = 'red' AND complexity < 5 AND (key0 = 'value' OR amqp.subject LIKE 'order.%')",
)
KINDS = {
    "properties-filter": Described(Symbol("amqp:properties-filter"), {"subject": "&p:order."}),
    "application-properties-filter": Described(
        Symbol("amqp:application-properties-filter"), {"color": "red"}
    ),
    "no-local-filter": Described(Symbol("apache.org:no-local-filter:list"), []),
}


def encoded_message() -> bytes:
    """Encode a message with eight application properties; those asked for are the last."""
    application: dict[str, Any] = {f"key{n}": "value" for n in range(4)}
    application |= {"price": 9.5, "quantity": Int(20), "complexity": Int(3), "color": "red"}
    properties = spec.Properties(message_id="m-1", to="orders@b.example", subject="order.created")
    return b"".join(
        (
            sections.encode_header(spec.Header(durable=True)),
            codec.encode(properties),
            sections.encode_section(0x74, application),
            sections.encode_section(spec.SECTION_DATA, b"x" * 1024),
        )
    )


def best(run: Callable[[list[Message]], object], encoded: bytes) -> float:
    """Return the least time per message, in microseconds."""
    times = []
    for _ in range(ROUNDS):
        messages = [Message(encoded) for _ in range(BATCH)]
        for message in messages:
            assert message.offsets
        begin = time.perf_counter()
        run(messages)
        times.append(time.perf_counter() - begin)
    return min(times) / BATCH * 1e6


def matching(value: Any) -> Callable[[list[Message]], object]:
    """Make a round over messages with one filter in force."""
    matches = read_filters({Symbol("f"): value}, own_container="me").matches

    def run(messages: list[Message]) -> None:
        for message in messages:
            matches(message, "other")

    return run


def main() -> None:
    """Print the figures."""
    encoded = encoded_message()
    filters = {text: Described(Symbol("apache.org:selector-filter:string"), text)
               for text in SELECTORS}  # fmt: skip
    for name, value in {**filters, **KINDS}.items():
        print(f"{best(matching(value), encoded):6.2f} us  {name}")
    text = SELECTORS[-1]
    begin = time.perf_counter()
    for _ in range(200):
        parse(text, Dialect.SELECTOR)
    print(f"{(time.perf_counter() - begin) / 200 * 1e6:6.0f} us  to parse the last selector")


if __name__ == "__main__":
    main()
