# SPDX-License-Identifier: Apache-2.0
"""Records of durable exchanges and bindings in the store.

A note is a line of JSON; arguments are in it as a field table with all its tags, so that after a
restart they compare, and are shown, as they were declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from amqproute.address import in_host
from amqproute.broker.exchanges.argument_rules import exchange_definition
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.jsontext import parse_json
from amqproute.stored_values import decode_table, encode_table

EXCHANGE_NOTES: Final = "exchange"
"""The kind of the notes of exchanges; the key is the name."""
BINDING_NOTES: Final = "exchange-binding"
"""The kind of the notes of bindings; the key is a number that grows."""
ENDING_NOTES: Final = "exchange-ending"
"""The kind of the notes of exchanges and queues whose bindings are being deleted. The key is a
number: bindings with a higher one were made later, and stay."""
TOPOLOGY_NOTES: Final = (EXCHANGE_NOTES, BINDING_NOTES, ENDING_NOTES)
"""All kinds, as the virtual host ``/`` has them; see `topology_notes`."""
LONGEST_ARGUMENTS: Final = 16 * 1024
"""Octets of the arguments of one exchange or binding."""


def topology_notes(host: str) -> tuple[str, str, str]:
    """Return the kinds of the notes of exchanges, bindings and unfinished ends of a virtual host.

    Each virtual host has kinds of its own, which revisions without virtual hosts do not read.
    """
    return in_host(host, EXCHANGE_NOTES), in_host(host, BINDING_NOTES), in_host(host, ENDING_NOTES)


def argument_octets(arguments: Mapping[str, object]) -> bytes:
    """Return arguments as they are noted.

    Raises:
        TopologyFault: a value cannot stand in a field table, or there are too many octets.
    """
    try:
        octets = encode_table(arguments)
    except ValueError as error:
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT, f"the arguments have {error}"
        ) from None
    if len(octets) > LONGEST_ARGUMENTS:
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT,
            f"the arguments have {len(octets)} octets; they can have {LONGEST_ARGUMENTS}",
        )
    return octets


def encode_exchange(definition: ExchangeDefinition, owner: str) -> bytes:
    """Return the note of an exchange.

    Args:
        definition: the definition of the exchange.
        owner: who declared it.
    """
    return _encoded(
        {
            "type": definition.type.value,
            "auto-delete": definition.auto_delete,
            "internal": definition.internal,
            "arguments": argument_octets(definition.arguments).hex(),
            "by": owner,
        }
    )


def decode_exchange(name: str, note: bytes) -> tuple[ExchangeDefinition, str]:
    """Return an exchange, and who declared it.

    Raises:
        ValueError: the note is none of an exchange.
    """
    facts = _facts(note)
    flags = {
        "durable": True,
        "auto_delete": facts.get("auto-delete") is True,
        "internal": facts.get("internal") is True,
    }
    try:
        definition = exchange_definition(name, _text(facts, "type"), flags, _arguments(facts))
    except TopologyFault as fault:
        raise ValueError(fault.text) from None
    return definition, _text(facts, "by")


def encode_binding(binding: ExchangeBinding, owner: str) -> bytes:
    """Return the note of a binding.

    Args:
        binding: the binding.
        owner: who made it.
    """
    return _encoded(
        {
            "source": binding.source,
            "kind": binding.target.kind.value,
            "target": binding.target.name,
            "key": binding.key,
            "arguments": argument_octets(binding.arguments).hex(),
            "by": owner,
        }
    )


def decode_binding(note: bytes) -> tuple[ExchangeBinding, str]:
    """Return a binding, and who made it.

    Raises:
        ValueError: the note is none of a binding.
    """
    facts = _facts(note)
    target = BindingTarget(TargetKind(_text(facts, "kind")), _text(facts, "target"))
    source, key = _text(facts, "source"), _text(facts, "key")
    return ExchangeBinding(source, target, key, _arguments(facts)), _text(facts, "by")


def encode_ending(target: BindingTarget) -> bytes:
    """Write the note of an exchange or a queue that ends."""
    return _encoded({"kind": target.kind.value, "name": target.name})


def decode_ending(note: bytes) -> BindingTarget:
    """Read what `encode_ending` has written.

    Raises:
        ValueError: the value is not of that form.
    """
    facts = _facts(note)
    return BindingTarget(TargetKind(_text(facts, "kind")), _text(facts, "name"))


def _encoded(facts: Mapping[str, object]) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()


def _facts(note: bytes) -> Mapping[str, object]:
    facts: object = parse_json(note)
    if not isinstance(facts, dict):
        raise ValueError("not a JSON object")
    return facts


def _text(facts: Mapping[str, object], name: str) -> str:
    value = facts.get(name)
    if not isinstance(value, str):
        raise ValueError(f"missing {name}")
    return value


def _arguments(facts: Mapping[str, object]) -> Mapping[str, object]:
    return decode_table(bytes.fromhex(_text(facts, "arguments")))


__all__ = [
    "BINDING_NOTES",
    "ENDING_NOTES",
    "EXCHANGE_NOTES",
    "LONGEST_ARGUMENTS",
    "TOPOLOGY_NOTES",
    "argument_octets",
    "decode_binding",
    "decode_ending",
    "decode_exchange",
    "encode_binding",
    "encode_ending",
    "encode_exchange",
    "topology_notes",
]
