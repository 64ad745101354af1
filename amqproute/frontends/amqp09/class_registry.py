# SPDX-License-Identifier: Apache-2.0
"""The classes that only 0-9 has, by id: what acts on their methods on a channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.dtx_methods import DtxMethods
from amqproute.frontends.amqp09.file_methods import FileMethods
from amqproute.frontends.amqp09.message_methods import MessageMethods
from amqproute.frontends.amqp09.stream_methods import StreamMethods
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.frontends.amqp09.tunnel_methods import TunnelMethods
from amqproute.wire.amqp09.methods import (
    METHODS,
    DtxSelect,
    FileProperties,
    MessageTransfer,
    StreamProperties,
    TunnelProperties,
)

__all__ = ["CLASSES", "offered_classes"]

CLASSES: Final[Mapping[int, Callable[[TransactionMethods], ClassMethods]]] = {
    FileProperties.class_id: FileMethods,
    MessageTransfer.traits.class_id: MessageMethods,
    StreamProperties.class_id: StreamMethods,
    DtxSelect.traits.class_id: DtxMethods,
    TunnelProperties.class_id: TunnelMethods,
}
"""Makes the object of a class for a channel, by the id of the class."""


def offered_classes(has_branches: bool) -> tuple[str, ...]:
    """Return the names of the classes that clients of 0-9 can use.

    Args:
        has_branches: distributed transactions are switched on.
    """
    ids = {kind.traits.class_id: kind.traits.name.partition(".")[0] for kind in METHODS.values()}
    return tuple(
        ids[class_id]
        for class_id in sorted(CLASSES)
        if has_branches or class_id != DtxSelect.traits.class_id
    )
