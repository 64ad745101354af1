# SPDX-License-Identifier: Apache-2.0
"""Random courses of events: records of two or three brokers, and orders of their arrival.

A course is short and means what it says in whatever order its parts are drawn, so that parts can be
left out of one that shows an error. Several are looked at in the same tables: all names but those
of the domains have the number of the course in them (`number_in`).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from hypothesis import strategies as st

from amqproute.journal import record
from amqproute.journal.record import ENDS, GENESIS, PUT_BACK, RecordKind
from tests.pipeline.journals import SECOND, Journal, linked

__all__ = ["NIGHTS", "Arrival", "Course", "arrivals", "courses", "lines_of", "number_in"]

NIGHTS: Final = 4 if os.environ.get("AMQPROUTE_HYPOTHESIS") == "long" else 2
"""Times that journals are looked into."""

EARLIER: Final = 10 * 86_400
BEGIN: Final = 82_800.0
"""Second of the day of the first record: an hour is left of it."""
LONGEST: Final = 40_000.0
"""Seconds from there to the last record, about; less than entries may wait."""

_PAUSES: Final = (0.5, 20.0, 61.0, 90.0, 600.0, 3600.0, 20_000.0, 40_000.0)
_DIGITS: Final = st.integers(0, 7)

Move = tuple[str, int, int, int]
"""Events with their broker, and two digits for details."""

Extra = tuple[int, str, int, int]
"""Of which segment, what else came of it (`HOWS`), in which night, and a digit that says more."""

HOWS: Final = ("part", "copy", "renamed", "twice", "recut")
"""The beginning of a segment, in the first night; the same under the same name; the same under
another name; that with each line twice; that with the records of each run divided otherwise."""


@dataclass(frozen=True, slots=True)
class Course:
    """One course.

    Attributes:
        moves: what happened, in order.
        clocks: seconds that the clocks of the brokers are ahead; as many as there are brokers.
        lengths: lines of the segments, in turn.
        nights: when segments come whole, in turn.
        extras: what else comes of some of them.
        is_earlier: it is a week and more before the others, and what is of its first day comes in
            the first night.
    """

    moves: tuple[Move, ...]
    clocks: tuple[int, ...]
    lengths: tuple[int, ...] = (3,)
    nights: tuple[int, ...] = (0,)
    extras: tuple[Extra, ...] = ()
    is_earlier: bool = False

    def smaller(self) -> Iterator[Course]:
        """Yield the courses that have one thing less."""
        for name, least in (("moves", 0), ("extras", 0), ("lengths", 1), ("nights", 1)):
            whole = getattr(self, name)
            for i in range(len(whole) if len(whole) > least else 0):
                yield dataclasses.replace(self, **{name: whole[:i] + whole[i + 1 :]})


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file that comes: in which night, how (`HOWS`, or ``whole``), where, and what it holds."""

    night: int
    how: str
    path: str
    text: bytes


def courses() -> st.SearchStrategy[Course]:
    """Return the strategy."""

    def some(values: st.SearchStrategy[Any], least: int, most: int) -> st.SearchStrategy[Any]:
        return st.lists(values, min_size=least, max_size=most).map(tuple)

    night = st.integers(0, NIGHTS - 1)
    return st.builds(
        Course,
        moves=some(st.tuples(st.sampled_from(MOVES), st.integers(0, 2), _DIGITS, _DIGITS), 12, 30),
        clocks=some(st.sampled_from((0, 2, -2, 45, 3000)), 2, 3),
        lengths=some(st.integers(1, 6), 1, 4),
        nights=some(night, 1, 5),
        extras=some(st.tuples(st.integers(0, 15), st.sampled_from(HOWS), night, _DIGITS), 1, 6),
        is_earlier=st.booleans(),
    )


def number_in(row: str) -> int | None:
    """Return the number of the course that a row of a table is about, if it says."""
    found = re.search(r"\bc(\d+)\b", row)
    return int(found[1]) if found else None


# -- what happened -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    node: str
    message_id: str | None
    digest: str
    trail: str = ""


class _Broker:
    """One broker, the journals that it has written, and what it holds."""

    def __init__(self, letter: str, course: int, ahead: float) -> None:
        self.letter, self.course, self.ahead = letter, course, ahead
        self.name = f"mx.{letter}.c{course}"
        # The last two are of one organization: each domain of each day is a directory.
        self.domain = f"{min(letter, 'b')}.example"
        self.peer = f"peer:{letter}.c{course}.example"
        self.orders, self.out = f"orders-c{course}", f"amqp$out/c{course}"
        self.journals: list[Journal] = []
        self.stores = 0
        self.begin_store()
        self.begin_journal()

    def begin_store(self) -> None:
        self.stores += 1
        self.held: dict[int, _Entry] = {}
        self.left: list[int] = []
        self.next = 1
        self.stream = f"store-{self.letter}-c{self.course}-{self.stores}"

    def begin_journal(self) -> None:
        journal = Journal(self.domain)
        journal.broker = self.name
        journal.name = f"{self.course:08x}{ord(self.letter):02x}{len(self.journals):06x}"
        self.journals.append(journal)

    @property
    def journal(self) -> Journal:
        return self.journals[-1]

    def keep(self, entries: Sequence[_Entry]) -> list[int]:
        numbers = list(range(self.next, self.next + len(entries)))
        self.next += len(entries)
        self.held.update(zip(numbers, entries, strict=True))
        return numbers

    def chosen(self, digit: int, node: str | None = None) -> int:
        """Return something that it holds, or else an entry that nobody has heard of."""
        here = [number for number, entry in self.held.items() if node in (None, entry.node)]
        return here[digit % len(here)] if here else 900 + digit


class _World:
    """All brokers of a course; each move is a method."""

    def __init__(self, course: Course, number: int) -> None:
        self.number = number
        self.first = self.at = BEGIN - EARLIER * course.is_earlier
        letters = "abc"[: len(course.clocks)]
        self.brokers = [
            _Broker(letter, number, ahead)
            for letter, ahead in zip(letters, course.clocks, strict=True)
        ]
        self.messages = 0
        for broker in self.brokers:
            self.write(broker, RecordKind.START, {})
        for name, where, x, y in course.moves:
            self.at += 0.001
            getattr(self, name)(self.brokers[where % len(self.brokers)], x, y)

    def write(
        self, broker: _Broker, kind: str, shared: dict[str, Any], count: int = 1, **columns: Any
    ) -> None:
        journal = broker.journal
        journal.stream, journal.at = broker.stream, self.at + broker.ahead
        journal.write(kind, shared, count, **columns)

    def wait(self, _: _Broker, x: int, y: int) -> None:
        self.at += _PAUSES[x] if self.at < self.first + LONGEST else y

    def publish(self, broker: _Broker, x: int, y: int) -> None:
        """With a 2, the first is an entry that is there, and may begin twice."""
        node = broker.out if y % 2 else broker.orders
        fresh = []
        for _ in range(1 + x % 3):
            self.messages += 1
            name = None if y == 4 else f"m{self.messages}-c{self.number}"
            fresh.append(_Entry(node, name, f"{self.messages:064x}"))
        numbers = broker.keep(fresh)
        if y == 2:
            numbers[0] = broker.chosen(x)
        self.write(
            broker, RecordKind.RECEIVED,
            {"node": node, "sender": "user:ann", "durable": y != 3, "to": f"{node}@c.example",
             "origin": broker.domain, "settle_us": 300 + x},
            len(numbers), entry=numbers, size=[100 * x + each for each in numbers],
            message_id=[each.message_id for each in fresh], digest=[each.digest for each in fresh],
            bare_size=[90 * x + each if y < 6 else None for each in numbers],
        )  # fmt: skip

    def hand_on(self, broker: _Broker, x: int, y: int) -> None:
        """Usually both sides know it. It is lost (4), unknown (5), changed (6), sent twice (7)."""
        place = self.brokers.index(broker)
        after = self.brokers[(place + 1) % len(self.brokers)]
        first = broker.chosen(x, broker.out)
        taken = sorted({first, broker.chosen(x + 1, broker.out)} if x % 2 else {first})
        gone = [broker.held.pop(each, _Entry("", None, "0" * 64)) for each in taken]
        broker.left += taken
        if y != 5:
            self.write(
                broker, RecordKind.RELAYED,
                {"node": broker.out, "peer": after.peer, "attempt": 1 + x % 2, "wire_us": 900 * y},
                len(taken), entry=taken, queue_us=[(each + x) * 70_000 for each in taken],
            )  # fmt: skip
        if y == 4:
            return
        node = after.out if x >= 5 else after.orders
        fresh = [
            dataclasses.replace(each, node=node, trail=f"{each.trail} {broker.name}".strip(),
                                digest="f" * 64 if y == 6 else each.digest)
            for each in gone
        ]  # fmt: skip
        shared = {"node": node, "sender": broker.peer, "from_stream": broker.stream}
        self.write(
            after, RecordKind.RECEIVED,
            {**shared, "origin": self.brokers[0].domain, "durable": True, "size": 10 * x},
            len(taken), entry=after.keep(fresh), from_entry=taken,
            message_id=[each.message_id for each in fresh], digest=[each.digest for each in fresh],
            trail=[each.trail for each in fresh],
        )  # fmt: skip
        if y == 7:
            self.write(after, RecordKind.DUPLICATE, shared, len(taken), from_entry=taken)

    def end(self, broker: _Broker, x: int, y: int) -> None:
        """With 6 or 7, what has ended stays, and may end again, or be found in a stock."""
        number = broker.chosen(x)
        entry = broker.held.get(number)
        if x < 6:
            broker.held.pop(number, None)
            broker.left.append(number)
        self.write(
            broker, sorted(ENDS)[y % len(ENDS)],
            {"entry": number, "node": entry.node if entry else broker.orders, "peer": "user:bob",
             "queue_us": 1000 * y, "settle_us": x},
        )  # fmt: skip

    def hesitate(self, broker: _Broker, x: int, y: int) -> None:
        about = {"node": broker.out, "peer": broker.peer, "condition": f"amqp:c{x}"}
        one = {**about, "entry": broker.chosen(x)}
        kind, shared = (
            (RecordKind.DEFERRED, one),
            (RecordKind.DEFERRED, {**about, "count": 1 + x}),
            (RecordKind.ATTEMPT, {**about, "attempt": x, "code": "net.refused"}),
            (RecordKind.RELEASED, one),
        )[y % 4]
        self.write(broker, kind, shared)

    def derive(self, broker: _Broker, x: int, y: int) -> None:
        """A copy, a copy for another broker, a report, or the same on another node."""
        parent = broker.chosen(x)
        known = broker.held.get(parent, _Entry(broker.orders, None, "0" * 64))
        node = broker.out if y % 4 == 1 else f"dead-c{self.number}"
        if y % 4 == 3:
            self.write(broker, RecordKind.ROUTED, {"entry": parent, "parent": parent, "node": node})
            return
        [number] = broker.keep([dataclasses.replace(known, node=node)])
        kind = (RecordKind.ROUTED, RecordKind.SPOOLED, RecordKind.REPORTED)[y % 4]
        self.write(
            broker, kind,
            {"entry": number, "parent": parent, "node": node, "message_id": known.message_id,
             "digest": known.digest, "trail": known.trail, "durable": True},
        )  # fmt: skip

    def stock(self, broker: _Broker, x: int, y: int) -> None:
        """It is true, or something is missing (1), or too much (2); or it has no end (3)."""
        held = sorted(broker.held)
        if y % 4 == 1 and held:
            del held[x % len(held)]
        if y % 4 == 2:
            held = sorted({*held, *broker.left[:2]})
        self.write(
            broker, RecordKind.STOCK,
            {"node": broker.orders, "ranges": _ranges(held), "count": len(held)},
        )  # fmt: skip
        self.at += x
        if y % 4 != 3:
            self.write(broker, RecordKind.STOCK, {"count": 0})

    def restart(self, broker: _Broker, x: int, y: int) -> None:
        """With or without a stop, on the same journal or another one, or on another store."""
        if x % 2 == 0:
            self.write(broker, RecordKind.STOP, {})
        self.at += 5 * y
        if x >= 4:
            broker.begin_journal()
        if y == 7:
            broker.begin_store()
        if y == 6:
            broker.ahead -= 30
        self.write(broker, RecordKind.START, {})
        if y % 3 == 1:
            numbers = sorted({broker.chosen(x), broker.next})
            broker.keep([_Entry(broker.orders, None, "0" * 64)])
            self.write(
                broker, RecordKind.RECOVERY, {"node": broker.orders}, len(numbers), entry=numbers
            )

    def miss(self, broker: _Broker, x: int, y: int) -> None:
        """Records are missing: it says so, or only their numbers do; or it was put back."""
        if y % 3 == 0:
            self.write(broker, RecordKind.GAP, {"count": 1 + x, "words": "the disk is full"})
        elif y % 3 == 1:
            broker.journal.seq += 1 + x
        else:
            broker.journal.seq += 10**6
            self.write(
                broker, RecordKind.SEGMENT, {"previous": GENESIS, "count": 10**6, "code": PUT_BACK}
            )


MOVES: Final = (
    "publish", "publish", "wait", "wait", "hand_on", "end", "end", "stock", "stock", "hesitate",
    "derive", "restart", "miss",
)  # fmt: skip


def _ranges(numbers: Sequence[int]) -> str:
    found: list[str] = []
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        several = [number for _, number in group]
        found.append(f"{several[0]}-{several[-1]}" if len(several) > 1 else f"{several[0]}")
    return " ".join(found)


# -- how it came in ----------------------------------------------------------------------------


def lines_of(course: Course, number: int) -> list[bytes]:
    """Return all lines that the brokers wrote, each once."""
    return [line for journal in _journals(course, number) for line in journal]


def arrivals(course: Course, number: int) -> list[Arrival]:
    """Return all files that come."""
    lengths, nights = itertools.cycle(course.lengths), itertools.cycle(course.nights)
    segments = []
    for lines in _journals(course, number):
        while lines:
            length = next(lengths)
            segments.append(lines[:length])
            lines = lines[length:]
    first = min(map(_path, segments))[: len("2026-11-22")]

    def night_of(lines: Sequence[bytes], night: int) -> int:
        return 0 if course.is_earlier and _path(lines).startswith(first) else night

    found = [
        Arrival(night_of(lines, night), "whole", f"whole/{_path(lines)}", b"".join(linked(lines)))
        for lines, night in zip(segments, nights, strict=False)
    ]
    for i, (place, how, night, digit) in enumerate(course.extras):
        lines = segments[place % len(segments)]
        day, name = _path(lines).split("/")
        prefix = "" if how in ("part", "copy") else f"{how}{i}-"
        path = f"extra{i}/{day}/{prefix}{name}"
        comes = 0 if how == "part" else night_of(lines, night)
        found.append(Arrival(comes, how, path, _text(lines, how, digit)))
    return found


def _journals(course: Course, number: int) -> list[list[bytes]]:
    brokers = _World(course, number).brokers
    return [journal.lines for broker in brokers for journal in broker.journals if journal.lines]


def _path(lines: Sequence[bytes]) -> str:
    body = record.read_line(lines[0]).body
    day = datetime.fromtimestamp(body["time"] // SECOND, UTC).date().isoformat()
    return f"{day}/{body['broker']}-{body['journal']}-{body['seq']:020}.jsonl"


def _text(lines: Sequence[bytes], how: str, digit: int) -> bytes:
    if how == "part":
        place = digit % len(lines)
        # Also a line of which nothing but its end is missing.
        torn = linked(lines)[place][: -1 if digit >= 4 else 90]
        return b"".join([*linked(lines[:place]), torn])
    if how == "twice":
        return b"".join(linked([*lines, *lines]))
    if how == "recut":
        return b"".join(linked([piece for line in lines for piece in _recut(line, digit)]))
    return b"".join(linked(lines))


def _recut(line: bytes, digit: int) -> Iterator[bytes]:
    """Yield runs with the records of a run, or with some of them."""
    body = record.read_line(line).body
    count = body["n"]
    if count == 1:
        yield line
        return
    cut = 1 + digit % (count - 1)
    spans = [(0, cut), (cut, count)] if digit < 4 else [(0, cut), (cut - 1, count)]
    # Some have one of the two only: what comes whole later is cut at its beginning or at its end.
    for begin, end in {2: spans[:1], 3: spans[1:]}.get(digit % 4, spans):
        if (begin, end) == (0, count):
            yield line
            continue
        tail = record.tail(
            body["kind"], body["journal"], body["broker"], body["domain"], body["stream"],
            body["seq"] + begin, end - begin, body["time"], body["all"],
            {name: values[begin:end] for name, values in body["each"].items()},
        )  # fmt: skip
        yield record.chained(GENESIS, tail)[1]
