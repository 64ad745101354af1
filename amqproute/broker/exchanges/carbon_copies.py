# SPDX-License-Identifier: Apache-2.0
"""Routing keys of a message: its own, and those in its headers CC and BCC.

Both headers are arrays of texts. Each text is a further routing key on the same exchange. CC stays
on the message, BCC is removed (`amqproute.translation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

MOST_KEYS: Final = 1024
"""Routing keys of one message: each may cost an entry on a queue or a relay."""
LONGEST_KEY: Final = 255
"""Octets of a routing key."""


def routing_keys(routing_key: str, headers: Mapping[str, object]) -> tuple[str, ...]:
    """Return the routing keys of a message, its own first, each once.

    Args:
        routing_key: the routing key of the publish.
        headers: the headers of the message.

    Raises:
        TopologyFault: CC or BCC is no array, holds a key that is too long, or there are too many.
    """
    if "CC" not in headers and "BCC" not in headers:
        return (routing_key,)
    keys = {routing_key: None}
    for name in ("CC", "BCC"):
        more = headers.get(name, ())
        if type(more) not in (tuple, list):
            raise TopologyFault(
                TopologyFaultKind.INVALID_HEADER, f"the header {name} has to be an array of texts"
            )
        assert isinstance(more, tuple | list)
        for key in more:
            if not isinstance(key, str):
                continue  # Values of other types are left out, as clients know it.
            if len(key.encode("utf-8", "surrogatepass")) > LONGEST_KEY:
                raise TopologyFault(
                    TopologyFaultKind.INVALID_HEADER,
                    f"the header {name} has a routing key of more than {LONGEST_KEY} octets",
                )
            keys[key] = None
    if len(keys) > MOST_KEYS:
        raise TopologyFault(
            TopologyFaultKind.INVALID_HEADER,
            f"CC and BCC have more than {MOST_KEYS} routing keys",
        )
    return tuple(keys)


__all__ = ["LONGEST_KEY", "MOST_KEYS", "routing_keys"]
