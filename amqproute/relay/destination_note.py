# SPDX-License-Identifier: Apache-2.0
"""What a restart has to know of a destination: its back-off (T-28)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from amqproute.jsontext import parse_json

NOTE = "destination"
"""The kind of the notes in the store."""


@dataclass(frozen=True, slots=True)
class DestinationNote:
    """One destination's note.

    Attributes:
        failures: failed attempts in a row.
        next: the wall clock in ms of the next attempt; 0 if there need be none.
        error: what went wrong last.
        attempts: a line for each place that was tried last.
        holder: who holds the destination, as its parts; empty if that is not known.
    """

    failures: int = 0
    next: int = 0
    error: str = ""
    attempts: tuple[str, ...] = ()
    holder: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return it as it stands in the store."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> DestinationNote:
        """Read what an earlier run has written.

        Raises:
            ValueError: it is no note.
        """
        noted = parse_json(value)
        try:
            return cls(
                int(noted["failures"]),
                int(noted["next"]),
                str(noted["error"]),
                tuple(map(str, noted["attempts"])),
                tuple(map(str, noted.get("holder", ()))),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the note lacks {error}") from None
