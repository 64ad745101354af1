# SPDX-License-Identifier: Apache-2.0
"""Records of branches in the store: notes of the kind `NOTES`, under the branch's key.

A prepared one says of each posted message where it goes, and of each retired entry the line it
stands in, its id and its outcome. The posted messages themselves are rows of a queue of their own,
`ROWS`, which is no node; the rows of the retired entries stay where they are. One that an operator
has decided holds the decision only. What was taken from, or posted to, memory alone is not in it:
a restart ends such messages, in a branch or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from amqproute.broker.xa_states import BranchState, XaError, Xid
from amqproute.errors import DecodeError
from amqproute.outcomes import Outcome
from amqproute.stored_values import decode_outcome, decode_value, encode_outcome, encode_value
from amqproute.values import Principal

NOTES: Final = "branch"
ROWS: Final = "amqp$branch"
"""The queue in the store on which the messages stand that prepared branches have posted."""
FORMAT: Final = 1
"""First element of every record; another one is another release's."""
_KINDS: Final = ("user", "peer", "uid", "anonymous")


@dataclass(frozen=True, slots=True)
class StoredPosting:
    """A message that a prepared branch has posted.

    Attributes:
        target: name of the target; of a queue, that of its rows.
        row: the id of the message's row.
        principal: who posted it.
        container_id: the container it came from.
        tag: its delivery-tag.
    """

    target: str
    row: int
    principal: Principal
    container_id: str
    tag: bytes


@dataclass(frozen=True, slots=True)
class StoredRetirement:
    """An entry that a prepared branch holds.

    Attributes:
        line: the key of its line.
        entry_id: its id.
        size: bytes of its message.
        outcome: the outcome to settle it with.
    """

    line: str
    entry_id: int
    size: int
    outcome: Outcome


@dataclass(slots=True)
class BranchRecord:
    """Record of a branch.

    Attributes:
        owner: who started it.
        xid: its name.
        state: prepared, or how it was decided.
        since_ms: the time of it, ms since the epoch.
        postings: the messages to put on commit.
        retirements: the entries it holds.
        places: the number of places reserved, by the name of a queue's rows.
        lost: the number of postings found missing or damaged; not stored.
    """

    owner: str
    xid: Xid
    state: BranchState
    since_ms: int
    postings: list[StoredPosting] = field(default_factory=list)
    retirements: list[StoredRetirement] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    def encode(self) -> bytes:
        """Return it as the octets of an AMQP list."""
        return encode_value(
            [
                FORMAT,
                self.owner,
                self.xid.parts,
                self.state.value,
                self.since_ms,
                [
                    [each.target, each.row, each.principal.kind, each.principal.name,
                     sorted(each.principal.names), each.container_id, each.tag]
                    for each in self.postings
                ],
                [
                    [each.line, each.entry_id, each.size, encode_outcome(each.outcome)]
                    for each in self.retirements
                ],
                self.places,
            ]
        )  # fmt: skip

    @classmethod
    def decode(cls, encoded: bytes) -> BranchRecord:
        """Read it back.

        Raises:
            DecodeError: the octets are not a record.
        """
        value: Any = decode_value(encoded)
        try:
            number, owner, xid, state, since_ms, postings, retirements, places = value
            if number != FORMAT:
                raise DecodeError(f"the record of a branch has format {number}, not {FORMAT}")
            return cls(
                owner,
                Xid.of(xid),
                BranchState(state),
                int(since_ms),
                [_posting(*each) for each in postings],
                [_retirement(*each) for each in retirements],
                {rows: int(count) for rows, count in places.items()},
            )
        except (AttributeError, TypeError, ValueError, XaError) as error:
            raise DecodeError(f"the record of a branch is damaged: {error}") from None


def _posting(
    target: str,
    row: int,
    kind: Any,
    name: str,
    names: Iterable[str],
    container_id: str,
    tag: bytes,
) -> StoredPosting:
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of principal {kind!r}")
    principal = Principal(kind, name, frozenset(names))
    return StoredPosting(target, int(row), principal, container_id, tag)


def _retirement(line: str, entry_id: int, size: int, outcome: bytes) -> StoredRetirement:
    return StoredRetirement(line, int(entry_id), int(size), decode_outcome(outcome))


def holds_of(notes: Mapping[str, bytes]) -> dict[str, list[tuple[int, int]]]:
    """Return, by line, the ids and sizes of entries that prepared branches hold."""
    held: dict[str, list[tuple[int, int]]] = {}
    for encoded in notes.values():
        try:
            record = BranchRecord.decode(encoded)
        except DecodeError:
            continue  # told by `BranchRegistry.recovered`
        for each in record.retirements:
            held.setdefault(each.line, []).append((each.entry_id, each.size))
    return held


__all__ = ["NOTES", "ROWS", "BranchRecord", "StoredPosting", "StoredRetirement", "holds_of"]
