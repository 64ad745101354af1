# SPDX-License-Identifier: Apache-2.0
"""Queues by name, of the whole broker and of each virtual host."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from amqproute.address import in_host, split_host
from amqproute.broker.name_table import NameTable
from amqproute.broker.queue import Queue

__all__ = ["HostQueues", "HostedQueues"]


class HostedQueues(NameTable[Queue]):
    """All queues that clients can address, by their names within the broker.

    `of` follows what comes and goes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hosts: dict[str, dict[str, Queue]] = {}

    def of(self, host: str) -> dict[str, Queue]:
        """Return the queues of a virtual host by their names there; it follows what changes."""
        return self._hosts.setdefault(host, {})

    def __setitem__(self, name: str, queue: Queue) -> None:
        super().__setitem__(name, queue)
        host, local = split_host(name)
        self.of(host)[local] = queue

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        host, local = split_host(name)
        del self._hosts[host][local]


@dataclass(frozen=True, slots=True)
class _Local:
    """Names within the broker, asked for by names in a virtual host."""

    host: str
    names: Container[str]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and in_host(self.host, name) in self.names


class HostQueues:
    """The queues of one virtual host, as its bindings know them; see `topology.QueueDirectory`.

    Args:
        queues: the queues of the broker.
        dynamic: names of those that are gone after a restart.
        host: the virtual host.

    Attributes:
        nodes: queues by their names in the virtual host.
        dynamic: such names of those that are gone after a restart.
    """

    __slots__ = ("dynamic", "nodes")

    def __init__(self, queues: HostedQueues, dynamic: Container[str], host: str) -> None:
        self.nodes: Mapping[str, Queue] = queues.of(host)
        self.dynamic: Container[str] = _Local(host, dynamic) if host else dynamic
