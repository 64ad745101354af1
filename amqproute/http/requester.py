# SPDX-License-Identifier: Apache-2.0
"""The party behind a request, with the restrictions of its log-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amqproute.auth.token_scope import WHOLE_SCOPE, TokenScope
from amqproute.values import Principal

__all__ = ["LogInKind", "Requester"]

LogInKind = Literal["basic", "certificate", "token", "session", "socket"]


@dataclass(frozen=True, slots=True)
class Requester:
    """The party behind a request.

    Attributes:
        principal: the principal whose rights count.
        kind: how he has logged in.
        scope: what the log-in is good for, within these rights.
        session: the id of the session; empty without one.
        remote: where the request comes from.
        expires: seconds since the epoch at which the log-in ends; None for no end.
        token: the id of the access token of this daemon; empty without one.
    """

    principal: Principal
    kind: LogInKind
    scope: TokenScope = WHOLE_SCOPE
    session: str = ""
    remote: str = ""
    expires: float | None = None
    token: str = ""

    def __str__(self) -> str:
        return str(self.principal)
