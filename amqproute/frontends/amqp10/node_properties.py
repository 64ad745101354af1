# SPDX-License-Identifier: Apache-2.0
"""``dynamic-node-properties`` of an attach, as the broker's own values (part 3 §3.5.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.broker.node_options import Lifetime
from amqproute.errors import NotImplementedHere
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Array, Described

__all__ = ["LIFETIME_POLICY", "plain_properties", "read_lifetime"]

LIFETIME_POLICY: Final = "lifetime-policy"
_POLICIES: Final = {
    spec.DeleteOnClose: Lifetime.CLOSE,
    spec.DeleteOnNoLinks: Lifetime.NO_LINKS,
    spec.DeleteOnNoMessages: Lifetime.NO_MESSAGES,
    spec.DeleteOnNoLinksOrMessages: Lifetime.NO_LINKS_OR_MESSAGES,
}
_DESCRIPTORS: Final = {
    **{str(cls.symbol): lifetime for cls, lifetime in _POLICIES.items()},
    **{str(cls.descriptor): lifetime for cls, lifetime in _POLICIES.items()},
}


def read_lifetime(value: object) -> Lifetime:
    """Read a ``lifetime-policy``: one of the four described lists, or its descriptor.

    Raises:
        NotImplementedHere: it is none of them.
    """
    lifetime = _POLICIES.get(type(value)) if isinstance(value, spec.Composite) else None
    if lifetime is None:
        descriptor = value.descriptor if isinstance(value, Described) else value
        lifetime = _DESCRIPTORS.get(str(descriptor))
    if lifetime is None:
        known = ", ".join(str(cls.symbol) for cls in _POLICIES)
        raise NotImplementedHere(f"lifetime-policy {value!s:.100} is not known; there are {known}")
    return lifetime


def plain_properties(properties: Mapping[str, object] | None) -> dict[str, object]:
    """Return the properties without types of the wire: a `Lifetime`, and tuples for arrays.

    Raises:
        NotImplementedHere: the ``lifetime-policy`` is not known.
    """
    return {
        str(key): read_lifetime(value)
        if key == LIFETIME_POLICY
        else value.items
        if isinstance(value, Array)
        else value
        for key, value in (properties or {}).items()
    }
