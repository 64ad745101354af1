# SPDX-License-Identifier: Apache-2.0
"""The bindings of a topic exchange as a tree of words.

A pattern and a routing key are words with dots between them; the empty text has no words. ``*``
stands for exactly one word, ``#`` for any number of them, none included. In a routing key both
are words like others.

A key is matched by following all patterns at once: for each word of the key there is the set of
nodes that the words so far lead to. A node is in the set once, however many ways lead there, so
the work for a key is at most its words times the nodes, also for patterns such as ``#.a.#.a.#``
on which backtracking would take time by the power of their length. With ordinary patterns the set
has a few nodes, however many bindings there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Value = TypeVar("Value")


class TopicTrie(Generic[Value]):
    """Patterns with values; the values of the patterns that a routing key matches.

    A value is counted for each pattern: it stays until it has been removed as often as added.

    Attributes:
        steps: nodes entered by all `match` calls so far: the measure of the work.
    """

    __slots__ = ("_root", "steps")

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node()
        self.steps = 0

    @property
    def is_empty(self) -> bool:
        """There is no pattern."""
        return self._root.is_empty

    def add(self, pattern: str, value: Value) -> None:
        """Add a value under a pattern."""
        self.add_words(split_words(pattern), value)

    def add_words(self, pattern: Sequence[str], value: Value) -> None:
        """Add a value under a pattern that is words already."""
        node = self._root
        for word in _pattern_words(pattern):
            node = node.descend(word)
        node.values[value] = node.values.get(value, 0) + 1

    def remove(self, pattern: str, value: Value) -> None:
        """Remove a value from a pattern.

        Raises:
            KeyError: the pattern has no such value.
        """
        self.remove_words(split_words(pattern), value)

    def remove_words(self, pattern: Sequence[str], value: Value) -> None:
        """Remove a value from a pattern that is words already.

        Raises:
            KeyError: the pattern has no such value.
        """
        path = [self._root]
        words = _pattern_words(pattern)
        for word in words:
            below = path[-1].child(word)
            if below is None:
                raise KeyError(pattern)
            path.append(below)
        values = path[-1].values
        if values[value] == 1:
            del values[value]
        else:
            values[value] -= 1
        for word in reversed(words):
            if not path.pop().is_empty:
                break
            path[-1].drop(word)

    def match(self, key: str) -> dict[Value, None]:
        """Return the values whose patterns match a key, each once."""
        return self.match_words(split_words(key))

    def match_words(self, words: Sequence[str]) -> dict[Value, None]:
        """Return the values whose patterns match the words of a key, each once."""
        reached: dict[_Node[Value], None] = {}
        _enter(reached, self._root)
        steps = len(reached)
        for word in words:
            further: dict[_Node[Value], None] = {}
            for node in reached:
                below = node.words.get(word)
                if below is not None:
                    _enter(further, below)
                if node.one is not None:
                    _enter(further, node.one)
                if node.is_any:
                    _enter(further, node)
            reached = further
            steps += len(reached)
            if not reached:
                break
        self.steps += steps
        found: dict[Value, None] = {}
        for node in reached:
            found.update(dict.fromkeys(node.values))
        return found


class _Node(Generic[Value]):
    """A node of the tree: the continuation of some words of patterns.

    Attributes:
        values: the values of patterns that end here, each with the number of times it was added.
        words: the nodes behind each next word.
        one: the node behind ``*``.
        any: the node behind ``#``.
        is_any: whether this node follows ``#``, so that each further word leads to it again.
    """

    __slots__ = ("any", "is_any", "one", "values", "words")

    def __init__(self, is_any: bool = False) -> None:
        self.values: dict[Value, int] = {}
        self.words: dict[str, _Node[Value]] = {}
        self.one: _Node[Value] | None = None
        self.any: _Node[Value] | None = None
        self.is_any = is_any

    @property
    def is_empty(self) -> bool:
        return not (self.values or self.words or self.one or self.any)

    def child(self, word: str) -> _Node[Value] | None:
        if word == "*":
            return self.one
        if word == "#":
            return self.any
        return self.words.get(word)

    def descend(self, word: str) -> _Node[Value]:
        node = self.child(word)
        if node is None:
            node = _Node(word == "#")
            if word == "*":
                self.one = node
            elif word == "#":
                self.any = node
            else:
                self.words[word] = node
        return node

    def drop(self, word: str) -> None:
        if word == "*":
            self.one = None
        elif word == "#":
            self.any = None
        else:
            del self.words[word]


def _enter(reached: dict[_Node[Value], None], node: _Node[Value]) -> None:
    """Add a node, and the one behind ``#``, which no word is needed for."""
    if node in reached:
        return
    reached[node] = None
    if node.any is not None:
        reached[node.any] = None


def split_words(key: str) -> list[str]:
    """Return the words of a routing key or a pattern."""
    return key.split(".") if key else []


def _pattern_words(pattern: Sequence[str]) -> list[str]:
    """Return a pattern with one ``#`` for several in a row: they mean the same."""
    words: list[str] = []
    for word in pattern:
        if word != "#" or not words or words[-1] != "#":
            words.append(word)
    return words


__all__ = ["TopicTrie", "split_words"]
