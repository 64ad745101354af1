# SPDX-License-Identifier: Apache-2.0
"""Shared code of the journal's tests."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from amqproute.entry import Entry
from amqproute.journal import reader
from amqproute.journal.event import ArrivalEvent, DepartureEvent, RunEvent
from amqproute.journal.journal_writer import Journal, JournalListener, JournalTerms, Opened
from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.journal.segments import HEAD, SegmentNames
from amqproute.message import Message
from amqproute.values import Origin, Principal
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.spec import Header, Properties
from tests.store.rig import QueueReactor
from tests.support.patience import PATIENCE

NAMES = SegmentNames("", "mx1.alpha.example", "alpha.example", "store-1")
ANN = Principal("user", "ann")


class Wall:
    """A wall clock that a test sets; it continues by a microsecond for each look."""

    def __init__(self, now_us: int = 1_795_345_200_000_000) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


class Desk(JournalListener):
    """A journal with a fake reactor; blocking words for the tests."""

    def __init__(
        self,
        directory: Path,
        wall: Wall | None = None,
        terms: JournalTerms | None = None,
        **more: Any,
    ) -> None:
        self.directory = directory
        self.reactor = QueueReactor()
        self.wall = wall or Wall()
        self.troubles: list[str] = []
        self.wells = 0
        pace = {"gather_seconds": 0.001, "retry_seconds": 0.01}
        pace |= {name: more.pop(name) for name in pace.keys() & more.keys()}
        self.journal = Journal(
            directory,
            self.reactor,
            replace(terms or JournalTerms(), **pace),
            domain="alpha.example",
            now_us=self.wall,
            listener=self,
            **more,
        )

    def journal_failed(self, reason: str) -> None:
        self.troubles.append(reason)

    def journal_recovered(self) -> None:
        self.wells += 1

    def open(
        self, rows: Sequence[tuple[int, bytes]] = (), names: SegmentNames = NAMES, former: str = ""
    ) -> Opened:
        return self.reactor.wait(self.journal.open(names, rows, former))

    def close(self) -> None:
        self.reactor.wait(self.journal.close())

    def note(self, *entries: int, kind: RecordKind = RecordKind.RECOVERY) -> None:
        """Note a run, in no transaction."""
        columns = {"entry": list(entries)}
        self.journal.note(RunEvent(kind, self.wall(), {"node": "q"}, columns))

    def until(self, true: Any) -> None:
        """Run what the threads tell until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError("it has not come true")
            while not self.reactor.calls.empty():
                self.reactor.calls.get()()
            time.sleep(0.001)

    def written(self) -> None:
        """Wait until everything is in the file."""
        self.until(
            lambda: not self.journal.waiting and not self.journal.statistics()["waiting_bytes"]
        )

    def records(self) -> list[JournalRecord]:
        return list(reader.records(self.directory))


def copy_living(directory: Path, copy: Path) -> None:
    """Copy a journal that is being written, as a kill would leave it."""
    # What is about to be the head may be the head before it is copied.
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns(f"{HEAD}.new"))


def entry(entry_id: int, size: int = 10, **properties: Any) -> Entry:
    """Make an entry with a row, on a node."""
    made = Entry(entry_id, message(size, **properties), True, True, 1_795_345_000_000, 0)
    return made


def message(size: int = 10, **properties: Any) -> Message:
    """Make a message."""
    body = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + b"x" * size
    return Message(
        codec.encode(Header(durable=True)) + codec.encode(Properties(**properties)) + body
    )


def arrivals(desk: Desk, entries: Iterable[Entry], origin: Origin | None = None) -> ArrivalEvent:
    """Make the event of their arrival on q."""
    origin = origin or Origin(ANN)
    came = [("q", each, origin, b"", None) for each in entries]
    return ArrivalEvent(desk.wall(), came, "alpha.example")


def gone(
    desk: Desk, entries: Sequence[Entry], kind: RecordKind = RecordKind.DELIVERED
) -> DepartureEvent:
    """Make the event of their end."""
    return DepartureEvent(kind, desk.wall(), "q", entries, {"peer": "user:bob"})
