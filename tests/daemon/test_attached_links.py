# SPDX-License-Identifier: Apache-2.0
"""Lists of connections and links: names first, and rows only of those that somebody shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.daemon.attached_links import AttachedLinks
from amqproute.frontends.amqp10.suspended_links import (
    ResolvedDeliveries,
    RetentionPolicy,
    SuspendedLink,
    SuspendedLinks,
)
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec


@dataclass
class Connection:
    """A connection with links, whose rows are counted.

    Attributes:
        principal: the user.
        name: of the connection.
        links: the names of its links.
        made: the names of the rows made.
    """

    principal: Principal
    name: str
    links: tuple[str, ...]
    made: list[str]

    @property
    def facts(self) -> Any:
        """Where it comes from."""
        return SimpleNamespace(remote=self.name)

    def row(self) -> Mapping[str, object]:
        """Make its row."""
        self.made.append(self.name)
        return {"name": self.name}

    def link_index(self) -> Iterator[tuple[str, Callable[[str], Mapping[str, object]]]]:
        """Return the names of its links."""
        return ((each, partial(self._row)) for each in self.links)

    def _row(self, name: str) -> Mapping[str, object]:
        self.made.append(name)
        return {"name": name, "connection": self.name}


class IndexTests(SynchronousTestCase):
    """Connections of two virtual hosts, and suspended links."""

    def setUp(self) -> None:
        self.made: list[str] = []
        there = [
            Connection(Principal("user", "ann"), "c1", ("a", "b"), self.made),
            Connection(Principal("user", "ann", host="shop"), "c2", ("a",), self.made),
            Connection(Principal("user", "bob"), "c3", ("z",), self.made),
        ]
        self.patch(AttachedLinks, "connections", property(lambda _: there))
        unused: Any = None
        self.links = AttachedLinks(unused, unused, unused, unused)
        suspended = SuspendedLinks(Clock(), FrontendLimits(), unused)
        for owner in ("user:ann", "//shop/user:ann"):
            terms = RetentionPolicy(spec.EXPIRE_CONNECTION_CLOSE, 30)
            key = (owner, "box", "s", "sender")
            held = ResolvedDeliveries(key)
            suspended.add(SuspendedLink(key, spec.Target(), terms, held, unused, object()))
        amqp10: Any = SimpleNamespace(suspended=suspended)
        self.links.amqp10 = amqp10

    def test_hosts(self) -> None:
        """Those of a virtual host are found without a row."""
        for host, connections, links in (
            (None, ["c1", "c2", "c3"], ["a", "b", "a", "z", "s", "s"]),
            ("/", ["c1", "c3"], ["a", "b", "z", "s"]),
            ("shop", ["c2"], ["a", "s"]),
            ("none", [], []),
        ):
            self.assertEqual([name for name, _ in self.links.connection_index(host)], connections)
            self.assertEqual([name for name, _ in self.links.link_index(host)], links)
        self.assertEqual(self.made, [])
        rows = [make(name) for name, make in self.links.link_index("shop")]
        self.assertEqual(rows[0]["connection"], "c2")
        self.assertEqual((rows[1]["kind"], rows[1]["virtual-host"]), ("suspended", "shop"))

    def test_narrowed(self) -> None:
        """So are those of a user or a connection, and suspended links."""
        self.assertIsNone(self.links.connections_with({"tls": "x"}))
        self.assertIsNone(self.links.links_with({"kind": "link"}))
        found = self.links.connections_with({"principal": "user:bob"})
        assert found is not None
        self.assertEqual([name for name, _ in found], ["c3"])
        for wanted, names in (
            ({"connection": "c1"}, ["a", "b"]),
            ({"connection": "c9"}, []),
            ({"kind": "suspended"}, ["s", "s"]),
            ({"kind": "channel"}, []),
        ):
            index = self.links.links_with(wanted)
            assert index is not None
            self.assertEqual([name for name, _ in index], names)
        self.assertEqual(self.made, [])
