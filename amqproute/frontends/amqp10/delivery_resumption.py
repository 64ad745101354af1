# SPDX-License-Identifier: Apache-2.0
"""Resumption of deliveries that were unsettled when a consumer's link ended (part 2 §2.6.13).

These are decisions, carried out by `sender_link`. ``ours`` are the parked deliveries, ``theirs`` is
the receiver's unsettled map::

    in both, theirs has an outcome     act on it; resume without payload, to settle
    in both, without an outcome        resume with the payload
    only ours, their map is complete   send anew under the same tag
    only ours, their map is not        unknown: keep it until the next attach
    only theirs                        nothing: the receiver considers it settled
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from amqproute.entry import Entry
from amqproute.wire.amqp10 import spec

OUTCOMES: Final = (spec.Accepted, spec.Rejected, spec.Released, spec.Modified)
_T = TypeVar("_T")


@dataclass(slots=True)
class ResumedDelivery:
    """A delivery of an earlier attachment to be sent once more.

    Attributes:
        tag: its delivery-tag.
        entry: its entry; None when it is only to be settled.
        state: the receiver's outcome, or None.
        resumes: whether the receiver knows the delivery.
    """

    tag: bytes
    entry: Entry | None
    state: spec.Outcome | None = None
    resumes: bool = True


@dataclass(slots=True)
class UnsettledComparison:
    """Result of comparing unsettled maps.

    Attributes:
        again: deliveries to be sent once more, in order.
        left: deliveries in an unknown state.
        decided: entries with an outcome of the receiver.
        wrong: an outcome that was not agreed, or None.
    """

    again: list[ResumedDelivery] = field(default_factory=list)
    left: dict[bytes, Entry] = field(default_factory=dict)
    decided: list[tuple[spec.Outcome, Entry]] = field(default_factory=list)
    wrong: spec.Outcome | None = None


def compare(
    ours: Mapping[bytes, Entry],
    theirs: Mapping[bytes, object],
    is_complete: bool,
    agreed: tuple[type[spec.Outcome], ...],
) -> UnsettledComparison:
    """Compare the parked deliveries with the receiver's unsettled map.

    Args:
        ours: entries by delivery-tag, oldest first.
        theirs: the receiver's unsettled map.
        is_complete: whether that map is complete.
        agreed: the outcomes in force.
    """
    found = UnsettledComparison()
    for tag, entry in ours.items():
        state = theirs.get(tag)
        if tag not in theirs:
            if is_complete:
                found.again.append(ResumedDelivery(tag, entry, resumes=False))
            else:
                found.left[tag] = entry
        elif isinstance(state, agreed):
            found.again.append(ResumedDelivery(tag, None, state))
            found.decided.append((state, entry))
        else:
            if isinstance(state, OUTCOMES):
                found.wrong = state
            found.again.append(ResumedDelivery(tag, entry))
    return found


def by_outcome(
    pairs: Iterable[tuple[spec.Outcome, _T]],
) -> list[tuple[spec.Outcome, list[_T]]]:
    """Group deliveries by outcome; accepted, the most frequent one, is one group."""
    groups: list[tuple[spec.Outcome, list[_T]]] = []
    accepted: list[_T] = []
    for outcome, each in pairs:
        if type(outcome) is not spec.Accepted:
            groups.append((outcome, [each]))
        else:
            if not accepted:
                groups.append((outcome, accepted))
            accepted.append(each)
    return groups


__all__ = ["OUTCOMES", "ResumedDelivery", "UnsettledComparison", "by_outcome", "compare"]
