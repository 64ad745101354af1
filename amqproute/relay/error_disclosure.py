# SPDX-License-Identifier: Apache-2.0
"""Details of failures on the way to a peer: those for senders, and those for operators only.

Any sender can choose the domain, and the owner of a zone chooses where its records lead. Details of
our connection attempts would reveal what is otherwise visible only from inside our firewall:
whether a port is closed, filtered or open to another protocol, whose certificate a host has, which
networks are not dialled. So a place that has not proved to be the domain's broker is *unreached*,
in one wording, whatever the reason; DNS results are repeated without the denied places. Texts of a
peer that has proved its identity are passed on.

All reasons of one kind also lead to the same retries (`amqproute.relay.failure_table`: rows with
one scope and action), so that the times of our look-ups, which the zone's name server sees, follow
one schedule. The duration of an attempt still differs: a closed port answers at once. Networks that
are never dialled by default are not attempted at all.

Operators see everything: the log, `peer show`, `diagnosis`, `explain` and `peer test`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["DENIED", "UNREACHED", "error_for_senders", "is_unreached", "row_for_senders"]

UNREACHED: Final = "peer.unreached"
"""The code given to senders for a place that has not proved to be the domain's broker."""
DENIED: Final = "dns.denied-target"

_BEFORE_PROOF: Final = ("connect", "tls", "dane", "auth", "sasl")
"""Prefixes of codes of failures before the peer has proved its identity."""
_UNPROVED: Final = frozenset(
    ("peer.broken", "peer.failed", "peer.lost", "peer.timeout", "peer.unreached")
)
"""Further codes of such failures."""


def is_unreached(code: str) -> bool:
    """Return whether a code belongs to a failure before the peer has proved its identity."""
    return code.partition(".")[0] in _BEFORE_PROOF or code in _UNPROVED


def error_for_senders(error: str, hop: str) -> str:
    """Return code and text of a failure in the form for senders.

    Args:
        error: code and text for operators; empty for none.
        hop: the key of the next hop.
    """
    code = error.partition(":")[0]
    if code == DENIED:
        return f"{DENIED}: the records of {hop} lead to no place that this broker connects to"
    return _unreached(hop) if is_unreached(code) else error


def _unreached(hop: str) -> str:
    return f"{UNREACHED}: no broker that proves to be the one of {hop} has been reached"


def _attempts_for_senders(code: str, lines: Sequence[str], hop: str) -> list[str]:
    """Return the attempts in the form for senders: only those that answered for the hop.

    Args:
        code: the code of the failure.
        lines: one line for each attempt, or for each DNS query if `code` is a DNS code.
        hop: the key of the next hop.
    """
    if code == DENIED:
        return []
    if code.startswith("dns."):
        return [line for line in lines if ": denied, " not in line]
    if is_unreached(code):
        return [f"{hop}: {_unreached(hop)}"]
    codes = [_code_in(line) for line in lines]
    kept = [
        line
        for line, each in zip(lines, codes, strict=True)
        if each != DENIED and not is_unreached(each)
    ]
    return kept if len(kept) == len(lines) else [f"{hop}: {_unreached(hop)}", *kept]


def _code_in(line: str) -> str:
    """Return the code in ``HOST:PORT: CODE: WORDS``."""
    return line.partition(": ")[2].partition(":")[0]


def row_for_senders(row: Mapping[str, object]) -> dict[str, object]:
    """Return a destination's attributes (`relay.destination_row`) that reports may contain."""
    hop, error = str(row["hop"]), str(row["last-error"])
    said = error_for_senders(error, hop)
    lines = row["attempts"]
    assert isinstance(lines, list)
    attempts = _attempts_for_senders(error.partition(":")[0], lines, hop)
    return {
        **row,
        "last-code": said.partition(":")[0],
        "last-error": said,
        "attempts": attempts,
    }
