# SPDX-License-Identifier: Apache-2.0
"""Distribution of a queue's free space among many waiting senders."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.publisher_credit import PAUSE_SECONDS, STEP, Publishers
from amqproute.broker.queue import Queue
from amqproute.broker.space_waiters import SpaceWaiters
from tests.support.fakes import KeptStore, Turns, make_broker
from tests.support.fakes import node as declare_node


class Node:
    """So much free space, and who waits for some."""

    def __init__(self) -> None:
        self.free = 0
        self.clock = Turns()
        self.publishers = Publishers(self, self.clock)
        self.waiters = SpaceWaiters()
        self.looks = 0

    @property
    def is_bounded(self) -> bool:
        """See `IBoundedNode`."""
        return True

    def space(self) -> int:
        """See `IBoundedNode`."""
        return self.free

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
        self.credit = self.grants = 0

    @property
    def granted(self) -> int:
        """See `IPublisher`."""
        self.node.looks += 1
        return self.credit

    def grant(self) -> None:
        """See `IPublisher`."""
        self.grants += 1
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

    @given(st.integers(0, 40), st.integers(1, 12))
    def test_nobody_is_left_out(self, free: int, count: int) -> None:
        """The last publisher gets its part, although none before it has sent anything (F-03)."""
        node = Node()
        node.free = free
        links = [node.link() for _ in range(count)]
        part, left_over = divmod(free, count)
        self.assertGreaterEqual(min(link.credit for link in links), part)
        node.publishers.changed()
        self.assertEqual(
            sorted(link.credit for link in links),
            [part] * (count - left_over) + [part + 1] * left_over,
        )

    def test_cost(self) -> None:
        """The work for one place grows with the number of waiters, and no faster."""
        looks = []
        for count in (2000, 4000):
            node = Node()
            for _ in range(count):
                node.publishers._links[Link(node)] = None
            node.looks, node.free = 0, 1
            node.publishers.changed()
            while node.clock.getDelayedCalls():
                node.clock.turn(PAUSE_SECONDS)
            looks.append(node.looks)
        self.assertLess(looks[1], 3 * looks[0])

    def test_each_turn(self) -> None:
        """With many senders, each turn brings few in line, whatever happens in it."""
        node = Node()
        node.free = 3000
        links = [node.link() for _ in range(300)]
        while node.clock.getDelayedCalls():
            node.clock.turn(PAUSE_SECONDS)
        self.assertEqual([link.credit for link in links], [10] * 300)
        for each in links:
            each.grants = 0
        for link in links[:50]:
            node.publishers.leave(link)
            link.credit = 0
        newcomers = [node.link() for _ in range(50)]
        everybody = [*links[50:], *newcomers]
        turns = 0
        while node.clock.getDelayedCalls():
            before = sum(each.grants for each in everybody)
            node.clock.turn(PAUSE_SECONDS)
            self.assertLessEqual(sum(each.grants for each in everybody) - before, STEP)
            self.assertLessEqual(sum(each.credit for each in everybody), node.free)
            turns += 1
        self.assertLess(turns, 10)
        self.assertEqual([link.credit for link in everybody], [10] * 300)
        self.assertEqual([link.grants for link in links[:50]], [0] * 50)

    def test_filled(self) -> None:
        """The credit of many is taken back, and given again."""
        node = Node()
        node.free = 300
        links = [node.link() for _ in range(3 * STEP)]
        node.free = 0
        node.publishers.filled()
        while node.clock.getDelayedCalls():
            node.clock.turn(PAUSE_SECONDS)
        self.assertEqual(sum(link.credit for link in links), 0)
        node.free = 300
        node.publishers.changed()
        while node.clock.getDelayedCalls():
            node.clock.turn(PAUSE_SECONDS)
        self.assertEqual(sum(link.credit for link in links), 300)


class SpaceTests(SynchronousTestCase):
    def test_told(self) -> None:
        """Of many who wait for a full queue each turn tells few, all once, in their order."""
        clock = Turns()
        store = KeptStore(clock)
        queue = make_broker(clock, store, declare_node("full", capacity=1)).nodes["full"]
        assert isinstance(queue, Queue)
        told: list[int] = []

        class Waiting:
            def __init__(self, number: int) -> None:
                self.number = number

            def tell(self) -> None:
                told.append(self.number)
                queue.when_space(self.tell)

        waiting = [Waiting(number) for number in range(3 * STEP)]
        for each in waiting:
            queue.when_space(each.tell)
        for _ in range(10):
            queue._space.freed()
        for turn in range(1, 4):
            clock.turn()
            self.assertEqual(told, list(range(turn * STEP)))
        clock.turn()
        self.assertEqual(len(told), 3 * STEP)


class WaitersTests(SynchronousTestCase):
    def test_once_and_in_order(self) -> None:
        """Each is told once, in the order in which they came, however often they asked."""
        node, waiters = Node(), SpaceWaiters()
        links = [Link(node) for _ in range(5)]
        for link in (*links, links[2], links[0]):
            waiters.add(link.grant)
        self.assertEqual(len(waiters), 5)
        told = [tell.__self__ for tell in waiters.leave(9)]  # type: ignore[attr-defined]
        self.assertEqual(told, links)
        self.assertEqual((len(waiters), waiters.leave(9)), (0, []))

    def test_gone(self) -> None:
        """A publisher that comes and goes is not notified, and leaves nothing behind."""
        node, waiters = Node(), SpaceWaiters()
        stays = Link(node)
        waiters.add(stays.grant)
        for _ in range(100):
            waiters.add(Link(node).grant)
        gc.collect()
        self.assertEqual(len(waiters), 1)
        self.assertEqual(waiters.leave(9), [stays.grant])
