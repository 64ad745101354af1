# SPDX-License-Identifier: Apache-2.0
"""What the links of a client ask for, and whether the broker grants it."""

from __future__ import annotations

from typing import Final

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.types import Described, Symbol

__all__ = ["OUTCOMES", "OUTCOME_SYMBOLS", "make_source", "refused_term"]

OUTCOMES: Final = (spec.Accepted, spec.Rejected, spec.Released, spec.Modified)
"""Those that a message may have here."""

OUTCOME_SYMBOLS: Final = tuple(outcome.symbol for outcome in OUTCOMES)

_COPY: Final = Symbol("copy")
_SELECTOR: Final = Symbol("apache.org:selector-filter:string")
"""The name of a filter, and what describes it."""


def make_source(
    node: str | None, *, browses: bool = False, selector: str | None = None
) -> spec.Source:
    """Return the source of a link to receive on.

    Args:
        node: the node; None for a dynamic one.
        browses: messages are shown and stay where they are.
        selector: only messages that this condition is true for.
    """
    return spec.Source(
        address=node,
        dynamic=node is None,
        outcomes=OUTCOME_SYMBOLS,
        distribution_mode=_COPY if browses else None,
        filter=None if selector is None else {_SELECTOR: Described(_SELECTOR, selector)},
    )


def refused_term(link: Link, *, browses: bool, selects: bool) -> str:
    """Return what the broker has not granted in its answer to an attach, as a verb.

    It answers with the source as it is in force (part 2 §2.6.3). Rather no message than one that
    is taken away and was to stay, or that was not to come.

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
