# SPDX-License-Identifier: Apache-2.0
"""Numbers of a channel: delivery tags, and the numbers of publishes that are confirmed.

The cost of an ack in `DeliveryTags` is proportional to the deliveries that it settles, whether it
names one tag or all up to one, with a hundred thousand outstanding. `ConfirmNumbers` turns
publishes stored in any order into the fewest confirms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")


class DeliveryTags(Generic[_T]):
    """The deliveries of a channel without an acknowledgement.

    Tags count from 1 (09-X-02). Those of deliveries without acknowledgement are issued and not
    kept.

    Attributes:
        last: the last issued tag; 0 before the first.
    """

    __slots__ = ("_floor", "_outstanding", "last")

    def __init__(self) -> None:
        self.last = 0
        self._outstanding: dict[int, _T] = {}
        # No tag up to this one is outstanding.
        self._floor = 0

    def __len__(self) -> int:
        return len(self._outstanding)

    def __contains__(self, tag: int) -> bool:
        return tag in self._outstanding

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._outstanding))

    @property
    def oldest(self) -> int:
        """The lowest outstanding tag; 0 without any."""
        return min(self._outstanding, default=0)

    def outstanding(self) -> Iterable[tuple[int, _T]]:
        """Return the outstanding tags and their contexts, in no order."""
        return self._outstanding.items()

    def issue(self, context: _T) -> int:
        """Return the next tag, for a delivery that must be acknowledged."""
        self.last = tag = self.last + 1
        self._outstanding[tag] = context
        return tag

    def issue_run(self, contexts: Sequence[_T]) -> None:
        """Issue the next tags, for deliveries that must be acknowledged."""
        first = self.last + 1
        self.last += len(contexts)
        self._outstanding.update(zip(range(first, self.last + 1), contexts, strict=True))

    def issue_settled(self) -> int:
        """Return the next tag, for a delivery without acknowledgement."""
        self.last += 1
        return self.last

    def settle(self, tag: int) -> _T:
        """Remove one delivery.

        Raises:
            KeyError: this tag is not outstanding.
        """
        return self._outstanding.pop(tag)

    def settle_up_to(self, tag: int) -> list[tuple[int, _T]]:
        """Remove all deliveries up to a tag, or all of them for 0 (09-BASIC-51, -52).

        Returns:
            Tags and contexts, by tag.

        Raises:
            KeyError: this tag was never issued, or was acknowledged before with all below it.
        """
        outstanding = self._outstanding
        if tag == 0:
            return self.take_all()
        if tag > self.last or tag <= self._floor:
            raise KeyError(tag)
        if tag - self._floor > 2 * len(outstanding):
            tags = sorted(each for each in outstanding if each <= tag)
            found = [(each, outstanding.pop(each)) for each in tags]
        else:
            found = [
                (each, outstanding.pop(each))
                for each in range(self._floor + 1, tag + 1)
                if each in outstanding
            ]
        if not found:
            raise KeyError(tag)
        self._floor = tag
        return found

    def take_all(self) -> list[tuple[int, _T]]:
        """Remove all deliveries: tags and contexts, by tag."""
        found = sorted(self._outstanding.items(), key=_tag_of)
        self._outstanding = {}
        self._floor = self.last
        return found

    def restore(self, tag: int, context: _T) -> None:
        """Make a delivery outstanding again after a rollback of its ack."""
        self._outstanding[tag] = context
        self._floor = min(self._floor, tag - 1)


def _tag_of(item: tuple[int, object]) -> int:
    return item[0]


class ConfirmNumbers:
    """The publishes of a channel in confirm mode (09: part 4.5), at the confirming side.

    Attributes:
        last: the number of the latest publish; they count from 1 after confirm.select.
    """

    __slots__ = ("_ahead", "_settled", "last")

    def __init__(self) -> None:
        self.last = 0
        # All numbers up to _settled are confirmed, and those in _ahead.
        self._settled = 0
        self._ahead: set[int] = set()

    @property
    def outstanding(self) -> int:
        """Number of publishes that wait for their confirm."""
        return self.last - self._settled - len(self._ahead)

    def confirm(self, first: int, last: int) -> list[tuple[int, bool]]:
        """Confirm a run of publishes.

        Args:
            first: its first number.
            last: its last.

        Returns:
            The tags to send, each with whether it covers all before it.

        Raises:
            ValueError: a number was not published, or was confirmed before.
        """
        if not self._settled < first <= last <= self.last:
            raise ValueError(f"no publishes {first} to {last} wait")
        ahead = self._ahead
        if first != self._settled + 1:
            if not ahead.isdisjoint(range(first, last + 1)):
                raise ValueError(f"among {first} to {last} are confirmed ones")
            ahead.update(range(first, last + 1))
            return [(number, False) for number in range(first, last + 1)]
        if ahead and not ahead.isdisjoint(range(first, last + 1)):
            raise ValueError(f"among {first} to {last} are confirmed ones")
        tags = [(last, last > first)]
        while last + 1 in ahead:
            last += 1
            ahead.remove(last)
        self._settled = last
        return tags


__all__ = ["ConfirmNumbers", "DeliveryTags"]
