# SPDX-License-Identifier: Apache-2.0
"""Scope of an access token: a part of its user's rights.

A scope is a list of words:

``all``
    Everything that the user may do.
``read``
    Operations that change nothing.
``OPERATION`` or ``OPERATION:PATTERN``
    The operation of that name, as in ``docs/management.md``; with a pattern, only on entities whose
    name fits it. As in access rules, ``*`` stands for any run of characters.

A scope never adds a right: the access rules decide as without it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.auth.policy import pattern_matcher

__all__ = ["MOST_WORDS", "WHOLE_SCOPE", "TokenScope"]

ALL: Final = "all"
READ: Final = "read"
MOST_WORDS: Final = 50
"""Words of a scope."""
LONGEST_WORD: Final = 320
_WORD: Final = re.compile(r"[A-Z][A-Z0-9-]{0,62}(?::[^\s,]+)?")


@dataclass(frozen=True, slots=True)
class TokenScope:
    """Scope of a token.

    Attributes:
        words: see the module.
    """

    words: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> TokenScope:
        """Make a scope.

        Raises:
            ValueError: a word means nothing; the text says which.
        """
        if not 0 < len(words) <= MOST_WORDS:
            raise ValueError(f"a scope has 1 to {MOST_WORDS} words")
        found = []
        for word in words:
            name, colon, pattern = word.partition(":")
            plain = name.lower() if name.lower() in (ALL, READ) and not colon else name.upper()
            made = f"{plain}{colon}{pattern}"
            known = made in (ALL, READ) or _WORD.fullmatch(made) is not None
            if not known or len(made) > LONGEST_WORD:
                raise ValueError(
                    f"{word[:64]!r} is no word of a scope; write all, read, or the name of an "
                    "operation, as in MOVE or MOVE:orders*"
                )
            found.append(made)
        return cls(tuple(dict.fromkeys(found)))

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def operations(self) -> list[str]:
        """The operations that it names."""
        named = (word.partition(":")[0] for word in self.words if word not in (ALL, READ))
        return list(dict.fromkeys(named))

    def covers(self, operation: str, name: str, *, changes: bool) -> bool:
        """Return whether an operation is within the scope.

        Args:
            operation: its name.
            name: the name of the entity; empty if it is about none.
            changes: whether it changes something.
        """
        for word in self.words:
            if word == ALL or (word == READ and not changes):
                return True
            named, colon, pattern = word.partition(":")
            if named == operation and (not colon or pattern_matcher(pattern)(name)):
                return True
        return False


WHOLE_SCOPE: Final = TokenScope((ALL,))
"""Everything that the user may do."""
