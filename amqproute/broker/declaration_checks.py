# SPDX-License-Identifier: Apache-2.0
"""Consistency checks of declared nodes, aliases and bindings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.errors import AmqpError

__all__ = ["circles", "impossible"]


def impossible(
    declared: Mapping[str, NodeDeclaration | TopicDeclaration],
    aliases: Mapping[str, str],
    bindings: Sequence[BindingDeclaration],
) -> list[str]:
    """Name what is wrong with aliases and bindings, whatever nodes there are already (A-08)."""
    problems = [
        f"aliases: {alias}: is the name of a node" for alias in aliases if alias in declared
    ]
    problems += [
        f"aliases: {alias}: leads to {name}, which is not a node"
        for alias, name in aliases.items()
        if name not in declared
    ]
    problems += circles(bindings, aliases)
    for each in bindings:
        source = declared.get(aliases.get(each.source, each.source))
        target = aliases.get(each.target, each.target)
        if source is None:
            problems.append(f"bindings: {each.name}: there is no node {each.source!r}")
        elif each.mode == ("move" if isinstance(source, TopicDeclaration) else "copy"):
            problems.append(f"bindings: {each.name}: topics copy, queues move")
        if "@" not in target and target not in declared:
            problems.append(f"bindings: {each.name}: there is no node {each.target!r}")
        try:
            each.filters(lambda: 0)
        except AmqpError as error:
            problems.append(f"bindings: {each.name}: {error.description}")
    return problems


def circles(bindings: Iterable[BindingDeclaration], aliases: Mapping[str, str]) -> list[str]:
    """Name the bindings along which a message would come back to where it was."""
    graph: dict[str, list[BindingDeclaration]] = {}
    for each in bindings:
        graph.setdefault(aliases.get(each.source, each.source), []).append(each)

    def leads_to(start: str, wanted: str) -> bool:
        seen, open_ = set(), [start]
        while open_:
            name = open_.pop()
            if name == wanted:
                return True
            if name not in seen:
                seen.add(name)
                open_ += [aliases.get(each.target, each.target) for each in graph.get(name, ())]
        return False

    return [
        f"bindings: {each.name}: messages would go in a circle"
        for source, line in graph.items()
        for each in line
        if leads_to(aliases.get(each.target, each.target), source)
    ]
