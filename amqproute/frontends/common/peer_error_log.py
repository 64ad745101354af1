# SPDX-License-Identifier: Apache-2.0
"""Log of faults of peers, limited in rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from amqproute.errors import AmqpError
from amqproute.tracebacks import forget_frames

MOST_LOGGED_FAULTS: Final = 10
"""Most refusals of one connection logged within `FAULT_SECONDS`; others are counted."""
FAULT_SECONDS: Final = 60.0
LONGEST_QUOTED: Final = 256
"""Most characters of the other side's names and words in a log line."""


class PeerErrorLog:
    """The faults of the peer of one connection.

    A client that attaches in a loop and is refused each time must not fill the disk: beyond a few
    in a while, only their number is logged. Of the messages refused on a link for one reason the
    first is logged, and at the link's end their number.

    Args:
        log: the log.
        seconds: the monotonic clock.
        who: the fields ``connection`` and ``principal`` of every line.
        refused: called with refused messages: the link's name, the node, the error, and their
            number: the first at once, others together, from time to time.
    """

    def __init__(
        self,
        log: Logger,
        seconds: Callable[[], float],
        who: Callable[[], dict[str, str]],
        refused: Callable[[str, str, AmqpError, int], None] = lambda *_: None,
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._who = who
        self._refused = refused
        self._unreported: dict[tuple[str, str], tuple[str, AmqpError, int, float]] = {}
        self._count = 0
        self._until = 0.0
        self._refusals: dict[tuple[str, str], int] = {}

    def add(self, text: str, **fields: object) -> None:
        """Log one, unless there were many of late.

        Args:
            text: a constant format; ``{connection}`` and ``{principal}`` are filled in here.
            fields: the others.
        """
        now = self._seconds()
        if now >= self._until:
            self.log_suppressed()
            self._until = now + FAULT_SECONDS
        self._count += 1
        if self._count <= MOST_LOGGED_FAULTS:
            self._log.warn(text, **self._who(), **fields)

    def log_suppressed(self) -> None:
        """Log the number of faults that were suppressed since the last time."""
        silenced = self._count - MOST_LOGGED_FAULTS
        self._count = 0
        if silenced > 0:
            self._log.warn(
                "{connection} ({principal}) {count} more refusals like these were not logged",
                **self._who(),
                count=silenced,
            )

    def message_refused(self, link: str, node: str, error: AmqpError) -> None:
        """Log the first refusal of a kind on a link; count the others.

        The error is kept, without the frames that it came through: these hold the message.
        """
        forget_frames(error)
        key = (link, str(error.condition))
        count = self._refusals[key] = self._refusals.get(key, 0) + 1
        now = self._seconds()
        _, _, unreported, since = self._unreported.get(key, ("", error, 0, 0.0))
        if count == 1 or now >= since + FAULT_SECONDS:
            self._refused(link, node, error, unreported + 1)
            self._unreported[key] = (node, error, 0, now)
        else:
            self._unreported[key] = (node, error, unreported + 1, since)
        if count == 1:
            self.add(
                "{connection} ({principal}) message on link {link} to {node} refused: {error}",
                link=short(link),
                node=node,
                error=str(error),
            )

    def link_ended(self, link: str) -> None:
        """Log the number of messages refused on a link."""
        for key in [key for key in self._refusals if key[0] == link]:
            count = self._refusals.pop(key)
            node, error, unreported, _ = self._unreported.pop(key)
            if unreported:
                self._refused(link, node, error, unreported)
            if count > 1:
                self.add(
                    "{connection} ({principal}) link {link}: {count} messages refused with "
                    "{condition}",
                    link=short(link),
                    count=count,
                    condition=key[1],
                )


def short(text: str | None) -> str:
    """Return a stranger's text in a form fit for the log."""
    text = text or ""
    return text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."


__all__ = ["FAULT_SECONDS", "LONGEST_QUOTED", "MOST_LOGGED_FAULTS", "PeerErrorLog", "short"]
