# SPDX-License-Identifier: Apache-2.0
"""Bounds on a batch of questions to ``$management``: work in a turn, and octets of the reply.

A message may have a thousand questions, and each may go through all queues. Each is answered by a
generator (`Asking`) that yields the work done so far, so that the work can be divided.

*A batch of questions only* changes nothing, so that it need not be answered in one go. All batches
together get `TURN_UNITS` of work in a reactor turn, one after the other. From the question on whose
result would exceed `MOST_OCTETS` no more is looked up: each of these questions has the status 507,
and so has the reply. Batches that wait are bounded by `MOST_WAITING` and `MOST_WAITING_OCTETS`; one
more is refused with 507.

*Among changes* a question is answered within the one call in which the batch is done or undone
(G-03). `MOST_UNITS_AMONG_CHANGES` bounds its work, `MOST_OCTETS` the results; beyond, it fails with
507, and the batch with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.plurals import counted
from amqproute.services.change_batch import CommandResult
from amqproute.services.command_schema import FULL, NOT_RUN, OK, CommandRefused, ManagementCommand
from amqproute.services.management_protocol import Commands, ManagementReply, result_row
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.value_memory import footprint

__all__ = [
    "MOST_OCTETS",
    "MOST_UNITS_AMONG_CHANGES",
    "MOST_WAITING_OCTETS",
    "TURN_UNITS",
    "Asking",
    "QuestionTurns",
    "Results",
    "batch_reply",
    "failed_reply",
]

MOST_OCTETS: Final = 1024 * 1024
"""Octets of the results in one reply; the first result may be as large as its rows make it."""
TURN_UNITS: Final = 200
"""Work of all batches of questions in one turn of the reactor: a unit is a row."""
MOST_UNITS_AMONG_CHANGES: Final = 4000
"""Work of the questions of one batch that has changes as well."""
MOST_WAITING_OCTETS: Final = 16 * 1024 * 1024
"""Memory of the waiting batches; their results come on top, `MOST_OCTETS` each."""
MOST_WAITING: Final = 16
"""Number of waiting batches."""

Asking: TypeAlias = Generator[int, None, CommandResult]
"""Answers a question: yields units of work, and returns the result.

Raises `CommandRefused` if the question cannot be answered.
"""

_FALLEN: Final = CommandResult(NOT_RUN, "not done: another command of the batch failed")
_NO_ROOM: Final = (
    f"the results in one reply have {MOST_OCTETS} octets at most: ask this in a message of its own"
)


class Results:
    """The results of a batch, and their octets."""

    def __init__(self) -> None:
        self.all: list[CommandResult] = []
        self.left_out = 0
        self._octets = 0

    def __repr__(self) -> str:
        return f"<Results {len(self.all)}, {self._octets} octets>"

    def add(self, result: CommandResult) -> None:
        """Add a result.

        Raises:
            CommandRefused: it does not fit with the others.
        """
        octets = len(codec.encode(result_row(len(self.all), result)))
        if self.all and self._octets + octets > MOST_OCTETS:
            raise CommandRefused(FULL, _NO_ROOM)
        self._octets += octets
        self.all.append(result)

    def leave_out(self, refused: CommandRefused, count: int) -> None:
        """Return the refusal of results that do not fit."""
        self.left_out += count
        self.all += [CommandResult(refused.status, refused.words)] * count


class _Batch:
    """A batch of questions that is being answered."""

    def __init__(self, commands: Commands, ask: Callable[[ManagementCommand], Asking]) -> None:
        self._commands = commands
        self._ask = ask
        self._results = Results()
        self._asking: Asking | None = None
        self.octets = sum(
            [
                footprint(each.arguments)
                for _, each in commands
                if isinstance(each, ManagementCommand)
            ]
        )
        self.answer: Deferred[ManagementReply] = Deferred()

    def run(self, units: int) -> tuple[int, ManagementReply | None]:
        """Work for about ``units`` units; return the units used, and the reply if done."""
        used = 0
        while used < units:
            number = len(self._results.all)
            if number == len(self._commands):
                return used, self._reply()
            place, command = self._commands[number]
            try:
                if isinstance(command, CommandRefused):
                    raise command
                self._asking = self._asking or self._ask(command)
                used += next(self._asking)
            except StopIteration as end:
                self._asking = None
                used += 1
                try:
                    self._results.add(end.value)
                except CommandRefused as refused:
                    self._results.leave_out(refused, len(self._commands) - number)
            except CommandRefused as refused:
                return used, failed_reply(refused, place, number, len(self._commands))
        return used, None

    def _reply(self) -> ManagementReply:
        left_out = self._results.left_out
        if not left_out:
            return batch_reply(OK, "OK", True, self._results.all)
        words = f"{counted(left_out, 'question')} not answered: {_NO_ROOM}"
        return batch_reply(FULL, words, True, self._results.all)


class QuestionTurns:
    """Answers batches of questions, spread over reactor turns.

    Args:
        clock: the reactor's.
        ask: starts the answer to a question.
    """

    def __init__(self, clock: IReactorTime, ask: Callable[[ManagementCommand], Asking]) -> None:
        self._clock = clock
        self._ask = ask
        self._left = TURN_UNITS
        self._waiting: deque[_Batch] = deque()
        self._call: IDelayedCall | None = None

    def __repr__(self) -> str:
        return f"<QuestionTurns {len(self._waiting)} waiting>"

    def answer(self, commands: Commands) -> ManagementReply | Deferred[ManagementReply]:
        """Answer a batch: at once if that is little work, else over several turns."""
        batch = _Batch(commands, self._ask)
        if not self._waiting:
            reply = self._work_on(batch)
            if reply is not None:
                return reply
        waiting = batch.octets + sum([each.octets for each in self._waiting])
        if len(self._waiting) >= MOST_WAITING or waiting > MOST_WAITING_OCTETS:
            number = counted(len(self._waiting), "batch is", "batches are")
            return ManagementReply.of(FULL, f"{number} being answered: ask again later")
        self._waiting.append(batch)
        return batch.answer

    def _work_on(self, batch: _Batch) -> ManagementReply | None:
        """Use the rest of this turn; return the reply if it is ready."""
        if self._call is None:
            self._call = self._clock.callLater(0, self._turn)
        used, reply = batch.run(self._left)
        self._left = max(0, self._left - used)
        return reply

    def _turn(self) -> None:
        self._call, self._left = None, TURN_UNITS
        for _ in range(len(self._waiting)):
            if not self._left:
                return
            batch = self._waiting.popleft()
            try:
                reply = self._work_on(batch)
            except Exception as error:  # logged, and reported to the requester
                batch.answer.errback(error)
                continue
            if reply is None:
                self._waiting.append(batch)
            else:
                batch.answer.callback(reply)


def failed_reply(refused: CommandRefused, place: int, failed: int, count: int) -> ManagementReply:
    """Return the reply to a batch that failed with one of its commands.

    Args:
        refused: the reason.
        place: the place of that command, as text for its sender.
        failed: of that command, counted from 0.
        count: the number of commands.
    """
    results = [_FALLEN] * count
    results[failed] = CommandResult(refused.status, refused.words, refused.attributes)
    return batch_reply(refused.status, f"{place}: {refused.words}", False, results)


def batch_reply(
    status: int, words: str, is_committed: bool, results: Sequence[CommandResult]
) -> ManagementReply:
    """Return the reply to a batch."""
    rows = [result_row(index, result) for index, result in enumerate(results)]
    return ManagementReply.of(status, words, {"committed": is_committed, "results": rows})
