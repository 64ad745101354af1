# SPDX-License-Identifier: Apache-2.0
"""The answer to STATUS, remembered for a few seconds: it looks at every queue and next hop."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from twisted.internet.interfaces import IReactorTime

from amqproute.dashboard.management_source import (
    NOTHING,
    ROWS_SHOWN,
    Answer,
    ManagementSource,
    RowPage,
)
from amqproute.dashboard.row_values import Row

__all__ = ["MOST_REMEMBERED", "STATUS_SECONDS", "RememberingSource", "StatusMemory"]

STATUS_SECONDS: Final = 5.0
"""How long an answer is good."""
MOST_REMEMBERED: Final = 100
"""Users whose answers are remembered."""


class StatusMemory:
    """The last answer for each user.

    Args:
        clock: the reactor's.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._answers: OrderedDict[str, tuple[float, Answer]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<StatusMemory {len(self._answers)}>"

    async def answer(self, source: ManagementSource) -> Answer:
        """Return the answer that a user would get, or got a moment ago."""
        now = self._clock.seconds()
        known = self._answers.get(source.user)
        if known is not None and now - known[0] < STATUS_SECONDS:
            return known[1]
        answer = await source.do("STATUS")
        self._answers[source.user] = self._clock.seconds(), answer
        self._answers.move_to_end(source.user)
        while len(self._answers) > MOST_REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    def forget(self, user: str) -> None:
        """Ask again the next time: the user has changed something."""
        self._answers.pop(user, None)


class RememberingSource:
    """Management with the rights of a user, where STATUS is remembered; see `ManagementSource`.

    Args:
        source: management.
        memory: the memory of answers to STATUS.
    """

    def __init__(self, source: ManagementSource, memory: StatusMemory) -> None:
        self._source = source
        self._memory = memory

    @property
    def user(self) -> str:
        """See `ManagementSource`."""
        return self._source.user

    @property
    def may_manage(self) -> bool:
        """See `ManagementSource`."""
        return self._source.may_manage

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
        """See `ManagementSource`."""
        return self._source.rows(
            kind, cursor=cursor, contains=contains, host=host, wanted=wanted, count=count
        )

    def one(self, kind: str, name: str) -> Awaitable[Row | None]:
        """See `ManagementSource`."""
        return self._source.one(kind, name)

    def some(self, kind: str, names: Sequence[str]) -> Awaitable[Sequence[Row]]:
        """See `ManagementSource`."""
        return self._source.some(kind, names)

    def do(
        self,
        operation: str,
        kind: str = "",
        name: str = "",
        body: Mapping[str, object] | None = None,
    ) -> Awaitable[Answer]:
        """See `ManagementSource`."""
        if operation == "STATUS":
            return self._memory.answer(self._source)
        return self._source.do(operation, kind, name, body)
