# SPDX-License-Identifier: Apache-2.0
"""Filters over the subject, as the bindings of AMQP 0-9-1 exchanges are (N-07).

``apache.org:legacy-amqp-direct-binding:string`` requires one subject. The other kind,
``apache.org:legacy-amqp-topic-binding:string``, has a pattern of words with dots between them, in
which ``*`` matches one word and ``#`` any number of words, also none. With these on bindings a
topic node replaces a direct, topic or fanout exchange; ``routing-key`` is the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from amqproute.errors import InvalidField
from amqproute.message import Message

LONGEST: Final = 255
"""Octets of the subject in a filter, as of a routing key."""

ONE: Final = "*"
ANY: Final = "#"


class SubjectFilter:
    """Selects messages by their subject; a message without one has the empty subject.

    Attributes:
        pattern: the pattern, as given.
        needs: ``properties``.
    """

    __slots__ = ("_words", "pattern")

    needs: Final = frozenset(("properties",))

    def __init__(self, pattern: str, has_wildcards: bool) -> None:
        if len(pattern.encode()) > LONGEST:
            raise InvalidField(f"a filter for subjects of over {LONGEST} octets")
        self.pattern = pattern
        words = pattern.split(".")
        wild = has_wildcards and (ONE in words or ANY in words)
        self._words: Sequence[str] | None = words if wild else None

    @property
    def words(self) -> Sequence[str] | None:
        """The pattern as words; None where a word that looks like a wildcard is none."""
        if self._words is not None:
            return self._words
        words = self.pattern.split(".")
        return None if ONE in words or ANY in words else words

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """Return whether the subject matches."""
        if self._words is None:
            return (message.properties.subject or "") == self.pattern
        return _fits(self._words, subject_words(message))

    def __repr__(self) -> str:
        return f"<SubjectFilter {self.pattern}>"


def subject_words(message: Message) -> list[str]:
    """Return the words of a message's subject: at least one, which may be empty."""
    return (message.properties.subject or "").split(".")


def _fits(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Match words with a pattern; only the last ``#`` seen is ever reconsidered."""
    at = behind = 0
    any_at, any_behind = -1, 0
    while behind < len(words):
        if at < len(pattern) and pattern[at] == ANY:
            any_at, any_behind = at, behind
            at += 1
        elif at < len(pattern) and pattern[at] in (ONE, words[behind]):
            at += 1
            behind += 1
        elif any_at >= 0:
            any_behind += 1
            at, behind = any_at + 1, any_behind
        else:
            return False
    return all(word == ANY for word in pattern[at:])
