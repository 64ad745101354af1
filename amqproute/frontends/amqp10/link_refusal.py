# SPDX-License-Identifier: Apache-2.0
"""Refusals of messages and links, in terms of the wire."""

from __future__ import annotations

from amqproute.errors import AmqpError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.types import Symbol

REJECTED_SYMBOL = "amqp:rejected:list"


def error_of(error: AmqpError) -> spec.Error:
    """Return an error of the wire (part 2 §2.8.14)."""
    return spec.Error(
        condition=error.condition,
        description=error.description,
        info={Symbol(str(key)): value for key, value in error.info.items()} or None,
    )


def may_reject(link: Link) -> bool:
    """Return whether the sender's source allows the outcome rejected; it does by default."""
    source = link.source
    outcomes = source.outcomes if source is not None else None
    return not outcomes or REJECTED_SYMBOL in outcomes


__all__ = ["error_of", "may_reject"]
