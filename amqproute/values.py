# SPDX-License-Identifier: Apache-2.0
"""Frozen nouns that pass between rooms: no behavior, no input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever proved to be at the other end of a connection.

    `str()` gives the form in which access rules and the log name it: ``user:ann``,
    ``peer:beta.example``, ``uid:1000``, ``anonymous``.

    Attributes:
        kind: ``user`` by a password, ``peer`` by a certificate, ``uid`` by a unix socket,
            ``anonymous`` by nothing at all.
        name: the user name, domain name or decimal user id; empty for ``anonymous``.
        names: every domain name that a peer's certificate proves, `name` among them, in lower
            case; empty for the other kinds. A rule about a peer applies if it fits any of them.
    """

    kind: Literal["user", "peer", "uid", "anonymous"]
    name: str = ""
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind != "anonymous" else "anonymous"


ANONYMOUS_PRINCIPAL = Principal("anonymous")
