# SPDX-License-Identifier: Apache-2.0
"""How a queue with a capacity shares its free space out among many who wait for it."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.publishers import Publishers
from amqproute.broker.waiters import Waiters


class Node:
    """So much free space, and who waits for some."""

    def __init__(self) -> None:
        self.free = 0
        self.publishers = Publishers(lambda: self.free, lambda: True)
        self.waiters = Waiters()
        self.looks = 0

    def link(self) -> Link:
        """Attach one more."""
        link = Link(self)
        self.publishers.join(link)
        link.grant()
        return link


class Link:
    """A link that takes whatever it is allowed, and waits where that is nothing."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.credit = 0

    @property
    def granted(self) -> int:
        """See `IPublisher`."""
        self.node.looks += 1
        return self.credit

    def grant(self) -> None:
        """See `IPublisher`."""
        self.credit = self.node.publishers.allowance(self)
        if not self.credit:
            self.node.waiters.add(self.grant)


class PublishersTests(SynchronousTestCase):
    @given(
        st.lists(st.integers(0, 3), min_size=1, max_size=8),
        st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=10),
    )
    def test_never_too_much(self, credits: list[int], frees: list[tuple[int, bool]]) -> None:
        """A round gives what looking at each alone would; all together have what there is."""
        nodes = (Node(), Node())
        links = [[node.link() for _ in credits] for node in nodes]
        for node in nodes:
            for link, credit in zip(node.publishers._links, credits, strict=True):
                link.credit = credit  # type: ignore[attr-defined]
        for free, changes in frees:
            for node in nodes:
                node.free = free
            one = nodes[0]
            if changes:
                one.publishers.changed()
                for link in (*links[1], *links[1]):
                    link.grant()
            else:
                with one.publishers.round(), one.publishers.round():
                    for link in links[0]:
                        link.grant()
                for link in links[1]:
                    link.grant()
            given = [[link.credit for link in each] for each in links]
            self.assertEqual(given[0], given[1])
            if changes:
                self.assertEqual(sum(given[0]), free)
        self.assertIsNone(nodes[0].publishers._total)

    def test_cost(self) -> None:
        """What is looked at for one place grows as those who wait for it do, and no faster."""
        looks = []
        for count in (100, 200):
            node = Node()
            for _ in range(count):
                node.publishers._links.append(Link(node))
            node.looks, node.free = 0, 1
            node.publishers.changed()
            looks.append(node.looks)
        self.assertLess(looks[1], 3 * looks[0])


class WaitersTests(SynchronousTestCase):
    def test_once_and_in_order(self) -> None:
        """Each is told once, in the order in which they came, however often they asked."""
        node, waiters = Node(), Waiters()
        links = [Link(node) for _ in range(5)]
        for link in (*links, links[2], links[0]):
            waiters.add(link.grant)
        self.assertEqual(len(waiters), 5)
        told = [tell.__self__ for tell in waiters.leave()]  # type: ignore[attr-defined]
        self.assertEqual(told, links)
        self.assertEqual((len(waiters), waiters.leave()), (0, []))

    def test_gone(self) -> None:
        """Who comes and goes is not told, and leaves nothing behind."""
        node, waiters = Node(), Waiters()
        stays = Link(node)
        waiters.add(stays.grant)
        for _ in range(100):
            waiters.add(Link(node).grant)
        gc.collect()
        self.assertEqual(len(waiters), 1)
        self.assertEqual(waiters.leave(), [stays.grant])
