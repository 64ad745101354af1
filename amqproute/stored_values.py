# SPDX-License-Identifier: Apache-2.0
"""Encoding of values within the records that the broker keeps in the store.

Records of subscriptions and branches are values of AMQP 1.0, arguments of exchanges and queues are
field tables of AMQP 0-9-1. The octets are part of the store's format: revisions read each other's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from amqproute.outcomes import Outcome
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue, FieldValueError
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.delivery_states import outcome_of, state_of
from amqproute.wire.amqp10.types import Int, Symbol

__all__ = [
    "branch_name",
    "decode_outcome",
    "decode_table",
    "decode_value",
    "encode_outcome",
    "encode_table",
    "encode_value",
    "map_octets",
]


def encode_value(value: object) -> bytes:
    """Return a value in the encoding of AMQP 1.0; each kind of value has one."""
    return bytes(codec.encode(value))


def decode_value(octets: bytes) -> object:
    """Return the value that `encode_value` has encoded.

    Raises:
        DecodeError: the octets are damaged.
    """
    value: object = codec.decode(octets)[0]
    return value


def map_octets(values: Mapping[str, object] | None) -> bytes:
    """Return octets that two maps have in common if they hold the same, in whatever order."""
    return encode_value({Symbol(key): values[key] for key in sorted(values)} if values else {})


def branch_name(format_id: int, global_id: bytes, qualifier: bytes) -> list[object]:
    """Return the name of a branch as records and messages have it: int, binary, binary."""
    return [Int(format_id), global_id, qualifier]


def encode_outcome(outcome: Outcome) -> bytes:
    """Return an outcome as a delivery state of AMQP 1.0 (part 3 §3.4)."""
    return encode_value(state_of(outcome))


def decode_outcome(octets: bytes) -> Outcome:
    """Return the outcome that `encode_outcome` has encoded.

    Raises:
        DecodeError: the octets are damaged.
        ValueError: they are no outcome.
    """
    state = spec.decode_composite(octets, 0)[0]
    outcome = outcome_of(state)
    if outcome is None:
        raise ValueError(f"{type(state).__name__} is no outcome")
    return outcome


def encode_table(values: Mapping[str, object]) -> bytes:
    """Return arguments as a field table, with the tags that they were declared with.

    Raises:
        ValueError: a value has no place in a field table.
    """
    try:
        return FieldTable(cast(Mapping[str, FieldValue], values)).octets
    except FieldValueError as error:
        raise ValueError(str(error)) from None


def decode_table(octets: bytes) -> Mapping[str, object]:
    """Return the arguments that `encode_table` has encoded.

    Raises:
        ValueError: the octets are damaged.
    """
    try:
        return FieldTable.from_octets(octets)
    except FieldValueError as error:
        raise ValueError(str(error)) from None
