# SPDX-License-Identifier: Apache-2.0
"""Which stories are exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from amqproute.trace_context import is_within_rate
from amqproute.tracing.story import Story

__all__ = ["SamplingReason", "SamplingTerms", "sampling_reason"]


class SamplingReason(StrEnum):
    """Why a story is exported."""

    FAILURE = "failure"
    SLOW = "slow"
    PARENT = "parent"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class SamplingTerms:
    """Configured terms of sampling.

    Attributes:
        failures: export messages that have failed.
        slow_us: export messages that were here for longer, microseconds; None for no bound.
        parent: export messages whose sender records the trace.
        rate: export this share of all messages.
        is_trusted: returns whether the flag of this sender (`JournalRecord.sender`) counts.
    """

    failures: bool
    slow_us: int | None
    parent: bool
    rate: float
    is_trusted: Callable[[str], bool]


def sampling_reason(story: Story, terms: SamplingTerms) -> SamplingReason | None:
    """Return why a story is exported; None if it is not."""
    if terms.failures and story.is_failed:
        return SamplingReason.FAILURE
    if terms.slow_us is not None and story.last_us - story.began_us > terms.slow_us:
        return SamplingReason.SLOW
    context = story.context
    if terms.parent and story.has_parent and context.is_sampled:
        sender = story.first.sender
        if sender is None or terms.is_trusted(sender):
            return SamplingReason.PARENT
    if is_within_rate(context.trace_id, terms.rate):
        return SamplingReason.RATE
    return None
