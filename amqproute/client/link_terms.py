# SPDX-License-Identifier: Apache-2.0
"""Terms of a client's links, and the check whether the broker grants them."""

from __future__ import annotations

from typing import Final

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.types import Described, Symbol

__all__ = ["OUTCOMES", "OUTCOME_SYMBOLS", "make_source", "refused_term"]

OUTCOMES: Final = (spec.Accepted, spec.Rejected, spec.Released, spec.Modified)
"""Outcomes that a source of ours accepts."""

OUTCOME_SYMBOLS: Final = tuple(outcome.symbol for outcome in OUTCOMES)

_COPY: Final = Symbol("copy")
_SELECTOR: Final = Symbol("apache.org:selector-filter:string")
"""Name and descriptor of the filter."""


def make_source(
    node: str | None, *, browses: bool = False, selector: str | None = None
) -> spec.Source:
    """Return the source of a link to receive on.

    Args:
        node: the node; None for a dynamic one.
        browses: messages are copied, and stay in the queue.
        selector: condition on messages.
    """
    return spec.Source(
        address=node,
        dynamic=node is None,
        outcomes=OUTCOME_SYMBOLS,
        distribution_mode=_COPY if browses else None,
        filter=None if selector is None else {_SELECTOR: Described(_SELECTOR, selector)},
    )


def refused_term(link: Link, *, browses: bool, selects: bool) -> str:
    """Return the term that the broker has not granted in its answer to an attach, as a verb.

    It answers with the source in force (part 2 §2.6.3). Better no message than one that was to stay
    in the queue, or that was not selected.

    Args:
        link: attached.
        browses: messages have to stay where they are.
        selects: a selector has to be in force.

    Returns:
        Empty if it has granted everything.
    """
    answer = link.source
    if browses and (answer is None or answer.distribution_mode != _COPY):
        return "let itself be browsed"
    if selects and _SELECTOR not in ((answer and answer.filter) or {}):
        return "select"
    return ""
