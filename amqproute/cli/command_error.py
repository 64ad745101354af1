# SPDX-License-Identifier: Apache-2.0
"""The error of a failed command: exit code, stable code, cause, next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from amqproute import conditions
from amqproute.errors import AmqprouteError
from amqproute.next_steps import is_known, next_step_for

__all__ = [
    "DONE",
    "NEGATIVE",
    "UNREACHABLE",
    "USAGE",
    "ClientError",
    "CommandError",
    "Interrupted",
    "by_condition",
    "next_step_for",
]

DONE: Final = 0
NEGATIVE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3


class CommandError(AmqprouteError):
    """A command has failed.

    Attributes:
        exit_code: the code of the process.
        code: a condition symbol or a stable code of ours.
        words: the cause.
        next_step: advice to the user.
        details: more lines, for example each address that was tried.
    """

    def __init__(
        self,
        exit_code: int,
        code: str,
        words: str,
        next_step: str | None = None,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(f"{code}: {words}")
        self.exit_code = exit_code
        self.code = str(code)
        self.words = words
        self.next_step = next_step_for(code) if next_step is None else next_step
        self.details = tuple(details)


class ClientError(CommandError):
    """The broker refused, failed, cannot be reached or did not answer."""


class Interrupted(Exception):
    """The user pressed Ctrl-C, or the process was asked to end."""


class BrokerError(Protocol):
    """An error as a broker sends it: a `spec.Error`, which this module does not import."""

    @property
    def condition(self) -> str:
        """Its symbol."""

    @property
    def description(self) -> str | None:
        """For people."""

    @property
    def info(self) -> Mapping[str, object] | None:
        """For programs."""


def by_condition(error: BrokerError | None, doing: str) -> ClientError:
    """Return the error for a link, session or connection that a broker has ended.

    Args:
        error: the broker's error, if any.
        doing: the ended part, as in ``the link to 'orders'``.
    """
    if error is None:
        return ClientError(NEGATIVE, conditions.LINK_DETACH_FORCED, f"the broker closed {doing}")
    words = f"the broker refused {doing}"
    if error.description:
        words += f": {error.description}"
    # Our own code in the info map is more specific than the condition.
    code = (error.info or {}).get("code")
    next_step = None
    if isinstance(code, str) and (is_known(code) or code.startswith(("dns.", "filter."))):
        next_step = next_step_for(code)
    return ClientError(NEGATIVE, str(error.condition), words, next_step)
