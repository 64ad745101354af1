# SPDX-License-Identifier: Apache-2.0
"""Publishers that wait for space on a full node (`ITarget.when_space`)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from weakref import WeakMethod

Notify = Callable[[], None]


class SpaceWaiters:
    """Methods to be called once each; the objects they belong to are held weakly.

    Links that come and go while a node is full leave nothing behind.

    Attributes:
        waiting: references to the methods, in the order in which they came.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[WeakMethod[Notify], None] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, notify: Notify) -> None:
        """Have a method called; once, however often it is added."""
        waiting = self.waiting
        waiting[WeakMethod(notify, lambda gone: waiting.pop(gone, None))] = None

    def leave(self, most: int) -> list[Notify]:
        """Return the first ones, to be called now; they do not wait any more.

        Args:
            most: of them. Those whose objects have gone are not returned.
        """
        waiting = self.waiting
        first = list(islice(waiting, most))
        for each in first:
            del waiting[each]
        return [notify for each in first if (notify := each()) is not None]
