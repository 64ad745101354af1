# SPDX-License-Identifier: Apache-2.0
"""Source of rows for pages and of answers for actions: management, with a user's rights."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from amqproute.dashboard.row_values import Row

__all__ = ["NOTHING", "ROWS_SHOWN", "Answer", "ManagementSource", "RowPage"]

ROWS_SHOWN: Final = 50
"""Rows of a table on one page."""
NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class RowPage:
    """A part of the entities of a type.

    Attributes:
        rows: the rows in the order of their names.
        total: the number of those that match; None if it is not known.
        cursor: the cursor with which the next part is asked for; empty at the end.
        refused: why there are none; empty if they could be read.
    """

    rows: Sequence[Row] = ()
    total: int | None = 0
    cursor: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an operation.

    Attributes:
        status: the status as in HTTP.
        words: the result, or why it was refused.
        facts: its attributes.
    """

    status: int
    words: str
    facts: Row

    @property
    def is_good(self) -> bool:
        """Whether the operation was carried out."""
        return 200 <= self.status < 300


class ManagementSource(Protocol):
    """The operations of management, for one user who has logged in."""

    @property
    def user(self) -> str:
        """The principal, as ``user:ann``."""

    @property
    def may_manage(self) -> bool:
        """Whether the user has the right to manage the service itself."""

    def rows(
        self,
        kind: str,
        *,
        cursor: str = "",
        contains: str = "",
        host: str = "",
        wanted: Mapping[str, str] = NOTHING,
        count: int = ROWS_SHOWN,
    ) -> Awaitable[RowPage]:
        """Return entities of a type.

        Args:
            kind: the entity type.
            cursor: the cursor of the part before; empty for the first.
            contains: restricts them to names with this in them.
            host: restricts them to a virtual host.
            wanted: restricts them to those with these attributes, as text.
            count: the maximum number of rows.
        """

    def one(self, kind: str, name: str) -> Awaitable[Row | None]:
        """Return the attributes of one entity; None if it does not exist, or is hidden."""

    def some(self, kind: str, names: Sequence[str]) -> Awaitable[Sequence[Row]]:
        """Return the attributes of the entities with these names, as far as they exist."""

    def do(
        self,
        operation: str,
        kind: str = "",
        name: str = "",
        body: Mapping[str, object] | None = None,
    ) -> Awaitable[Answer]:
        """Carry out an operation."""
