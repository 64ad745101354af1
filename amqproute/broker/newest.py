# SPDX-License-Identifier: Apache-2.0
"""The newest messages of a topic, kept in memory for newcomers (N-25)."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final

from amqproute.broker.limits import TopicLimits
from amqproute.broker.subscription import Arrival
from amqproute.errors import DecodeError
from amqproute.message import Message

MOST_KEYS: Final = 10_000
"""Values of ``last-value-key`` that are remembered; the one that was silent longest goes."""


class Newest:
    """The newest messages of a topic, for newcomers (N-25)."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[Any, deque[Arrival]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def keep(self, arrival: Arrival, limits: TopicLimits) -> None:
        """Remember a message and forget older ones."""
        key = _value_of(arrival.message, limits.last_value_key)
        line = self._by_key.get(key)
        if line is None:
            line = self._by_key[key] = deque()
        else:
            self._by_key.move_to_end(key)
        line.append(arrival)
        self._bytes += len(arrival.message.encoded)
        while len(line) > limits.last_value:
            self._forget(line.popleft())
        while self._bytes > limits.last_value_bytes or len(self._by_key) > MOST_KEYS:
            oldest = next(iter(self._by_key))
            line = self._by_key[oldest]
            self._forget(line.popleft())
            if not line:
                del self._by_key[oldest]

    def _forget(self, arrival: Arrival) -> None:
        self._bytes -= len(arrival.message.encoded)

    def since(self, since_ms: int | None, now_ms: int) -> list[Arrival]:
        """Return, in order of arrival, what has not expired and arrived then or later."""
        kept = [
            each
            for line in self._by_key.values()
            for each in line
            if not 0 < each.expires_ms <= now_ms
            and (since_ms is None or each.arrived_ms >= since_ms)
        ]
        kept.sort(key=lambda each: each.id)
        return kept

    def clear(self) -> None:
        """Forget everything."""
        self._by_key.clear()
        self._bytes = 0


def _value_of(message: Message, key: str | None) -> Any:
    if key is None:
        return None
    try:
        value = message.application_properties.get(key)
        hash(value)
    except (DecodeError, TypeError):
        return None
    return value
