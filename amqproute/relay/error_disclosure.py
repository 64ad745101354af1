# SPDX-License-Identifier: Apache-2.0
"""What senders are told of a failure on the way to a peer, and what is for operators only.

Whoever can send can choose the domain, and whoever owns a zone chooses where its records lead. What
we tell him about our attempts to get there he would otherwise have to find out from our side of the
firewall: that a port is closed, is filtered, or is open and speaks something else, whose
certificate stands there, which networks are not dialled. So a place that has not proved to be the
domain's broker is *unreached*, in one wording, whatever the reason; and what the DNS said is
repeated without the places that were denied. Words of a peer that has proved who it is pass.

All reasons of one kind also lead to the same retries (`amqproute.relay.failure_table`: rows of one
scope and action), so that the times of our look-ups, which the zone's name server sees, follow one
schedule. What an attempt itself takes still differs: a closed port answers at once. Within the
networks that nobody dials by default there is no attempt.

Operators see everything: the log, `peer show`, `diagnosis`, `explain` and `peer test`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["DENIED", "UNREACHED", "error_for_senders", "is_unreached", "row_for_senders"]

UNREACHED: Final = "peer.unreached"
"""The code that senders are given for a place that has not proved to be the domain's broker."""
DENIED: Final = "dns.denied-target"

_BEFORE_PROOF: Final = ("connect", "tls", "dane", "auth", "sasl")
"""Kinds of codes of failures before a peer has proved who it is."""
_UNPROVED: Final = frozenset(
    ("peer.broken", "peer.failed", "peer.lost", "peer.timeout", "peer.unreached")
)
"""Further codes that such a failure can have."""


def is_unreached(code: str) -> bool:
    """Tell whether a code is of a failure before a peer has proved who it is."""
    return code.partition(".")[0] in _BEFORE_PROOF or code in _UNPROVED


def error_for_senders(error: str, hop: str) -> str:
    """Return code and words of a failure as senders may have them.

    Args:
        error: code and words, as operators see them; empty for none.
        hop: the key of the next hop.
    """
    code = error.partition(":")[0]
    if code == DENIED:
        return f"{DENIED}: the records of {hop} lead to no place that this broker connects to"
    return _unreached(hop) if is_unreached(code) else error


def _unreached(hop: str) -> str:
    return f"{UNREACHED}: no broker that proves to be the one of {hop} has been reached"


def _attempts_for_senders(code: str, lines: Sequence[str], hop: str) -> list[str]:
    """Return the places that were tried as senders may have them: those that answered for the hop.

    Args:
        code: of the failure.
        lines: a line for each attempt, or for each question to the DNS if `code` is of the DNS.
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
    """Return the attributes of a destination (`relay.destination_row`) that reports may use."""
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
