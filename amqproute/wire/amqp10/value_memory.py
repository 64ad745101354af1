# SPDX-License-Identifier: Apache-2.0
"""Memory of decoded values.

The octets on the wire say little: an entry of a map may be four of them, and some two hundred as
two Python objects in a dictionary. `footprint` counts the objects as they are. Shared objects, such
as the constants of this package, are counted for each user.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from amqproute.wire.amqp10.spec import Composite
from amqproute.wire.amqp10.types import Array, Described

LINK_OCTETS: Final = 4096
"""Octets of a link beside its names and termini, with a broker's data about it."""
SESSION_OCTETS: Final = 4096
"""Octets of a session beside its links."""
REFUSED_OCTETS: Final = 1024
"""Octets of a refused link, until the peer has detached it too."""

_WIDE_OCTETS: Final = 256
"""Octets of a `WideMap` for each entry beside key and value."""
_SIMPLE: Final = frozenset((type(None), bool))


def footprint(value: object) -> int:
    """Return the octets of memory of a decoded value and everything within it."""
    octets = 0
    rest = [value]
    while rest:
        each = rest.pop()
        kind = type(each)
        if kind in _SIMPLE:
            continue
        octets += sys.getsizeof(each)
        if isinstance(each, str | bytes | int | float):
            continue
        if isinstance(each, Composite):
            rest.extend([getattr(each, field.name) for field in each.fields])
        elif isinstance(each, Mapping):
            if kind is not dict:
                octets += len(each) * _WIDE_OCTETS
            rest.extend(each.keys())
            rest.extend(each.values())
        elif isinstance(each, list | tuple):
            rest.extend(each)
        elif isinstance(each, Described):
            rest.append(each.descriptor)
            rest.append(each.value)
        elif isinstance(each, Array):
            rest.append(each.items)
    return octets


__all__ = ["LINK_OCTETS", "REFUSED_OCTETS", "SESSION_OCTETS", "footprint"]
