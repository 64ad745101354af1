# SPDX-License-Identifier: Apache-2.0
"""The protocol by which a message was published, according to the message itself.

The journal has it too, beside the publisher. A message from another broker shows the protocol of
its first broker. A message of class basic or message is the same in 0-9 as in 0-9-1, and is shown
as one of 0-9-1; the journal has the version of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.content_class import ContentClass, annotated_class
from amqproute.translation.message_parts import EXCHANGE, KEPT_CONTENT, ROUTING_KEY
from amqproute.wire.amqp10.types import Symbol

__all__ = ["written_by"]

LONGEST: Final = 255
"""Characters of an exchange or a routing key; one from a client of 0-9-1 has no more."""


def written_by(annotations: Mapping[Symbol, object]) -> dict[str, object]:
    """Return how a client of 0-9 or 0-9-1 published a message; empty for any other message.

    Args:
        annotations: the annotations of the message.
    """
    if KEPT_CONTENT not in annotations:
        return {}
    kind = annotated_class(annotations)
    is_basic = kind is ContentClass.BASIC
    of_class: dict[str, object] = {} if is_basic else {"content-class": kind.value}
    return {
        **of_class,
        "protocol": "AMQP 0-9-1" if is_basic else "AMQP 0-9",
        "exchange": str(annotations.get(EXCHANGE, ""))[:LONGEST],
        "routing-key": str(annotations.get(ROUTING_KEY, ""))[:LONGEST],
    }
