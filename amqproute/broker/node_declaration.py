# SPDX-License-Identifier: Apache-2.0
"""Nodes as the configuration, an operator or a client declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amqproute.broker.node_limits import QueueLimits, TopicLimits
from amqproute.broker.node_options import USUAL_OPTIONS, QueueOptions
from amqproute.translation.dead_letters import DeadLetterTarget

__all__ = ["NodeDeclaration", "TopicDeclaration"]


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """A node as the configuration declares it.

    Attributes:
        name: the node's name.
        limits: its bounds.
        dead_letter: the node that rejected, expired and spent entries move to, or None.
        options: its habits.
        rows: the name of its rows in the store, if that is not its own.
        dead_letter_target: the exchange that these entries are published to instead, or None.
        terms: the arguments with which a client declared it, checked, by their names without
            ``x-``; None if no client did.
    """

    name: str
    limits: QueueLimits
    dead_letter: str | None = None
    options: QueueOptions = USUAL_OPTIONS
    rows: str | None = None
    dead_letter_target: DeadLetterTarget | None = None
    terms: Mapping[str, int | bool | str] | None = None


@dataclass(frozen=True, slots=True)
class TopicDeclaration:
    """A topic as the configuration declares it.

    Attributes:
        name: the node's name.
        limits: its bounds and habits.
    """

    name: str
    limits: TopicLimits = field(default_factory=TopicLimits)
