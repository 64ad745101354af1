# SPDX-License-Identifier: Apache-2.0
"""The persistent state of a destination: its back-off (T-28)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from amqproute.jsontext import parse_json

NOTE = "destination"
"""The kind of these notes in the store."""


@dataclass(frozen=True, slots=True)
class DestinationNote:
    """One destination's note.

    Attributes:
        failures: failed attempts in a row.
        next: the wall clock of the next attempt, in ms; 0 if none is needed.
        error: the last failure.
        attempts: one line for each place tried in the last attempt.
        holder: the parts of the holder of the destination; empty if unknown.
    """

    failures: int = 0
    next: int = 0
    error: str = ""
    attempts: tuple[str, ...] = ()
    holder: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> DestinationNote:
        """Parse a note of an earlier run.

        Raises:
            ValueError: it is not a note.
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
