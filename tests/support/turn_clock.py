# SPDX-License-Identifier: Apache-2.0
"""A clock whose turns are seen one by one.

`twisted.internet.task.Clock.advance` calls what is due, and what becomes due by that, all at once:
work that is divided into turns of the reactor looks like one piece.
"""

from __future__ import annotations

from twisted.internet.task import Clock

__all__ = ["TurnClock"]


class TurnClock(Clock):
    """A clock with turns."""

    def turn(self) -> int:
        """Call what is due now, but nothing that this asks for; return the number of calls."""
        due = [call for call in self.calls if call.getTime() <= self.seconds()]
        for call in due:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        return len(due)
