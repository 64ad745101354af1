# SPDX-License-Identifier: Apache-2.0
"""The state of each file of a warehouse, and whether all live files are present and intact.

A file belongs to a change, which is its directory below ``data``, and the last lists in ``log``
tell whether a directory is live (`amqproute.pipeline.warehouse`). Each change has a list of its
files and their lengths (`MANIFEST`), which reveals missing and truncated ones. On file systems of
one machine, Hadoop's checksums beside each file (``.NAME.crc``: a CRC-32 of each 512 octets) reveal
altered octets. HDFS and object stores check their own data when it is read.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from amqproute.jsontext import parse_json
from amqproute.pipeline.warehouse import (
    KEPT_SECONDS,
    MANIFEST,
    Stored,
    TablePart,
    UnreadableList,
    Warehouse,
    WarehouseSnapshot,
)

__all__ = ["WRONG", "Examined", "State", "examine", "remove"]


class State(StrEnum):
    """The state of a file."""

    LIVE = "live"
    """It is part of the tables."""
    REPLACED = "replaced"
    """It is no longer on a list, and is kept for a day for readers of an older one."""
    UNFINISHED = "unfinished"
    """It is on no list, and its change is in progress, or was aborted less than a day ago."""
    LEFTOVER = "leftover"
    """It is on no list, and older: from an aborted or replaced change."""
    LIST = "list"
    """A list of directories that are live, or were until a day ago; or a mark of a change."""
    PAGE = "page"
    """A report."""
    FOREIGN = "foreign"
    """Not written by the pipeline."""
    MISSING = "missing"
    """A live file that does not exist."""
    DAMAGED = "damaged"
    """Its contents are not what was written."""


WRONG: Final = (State.FOREIGN, State.MISSING, State.DAMAGED)
"""States of files that should not be."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A file and its state.

    Attributes:
        path: below the warehouse.
        state: its state.
        octets: its length; 0 if it does not exist.
        change: number of its publication, if known.
        table: its table, if it belongs to one.
        day: its day, likewise.
        words: details; mostly empty.
    """

    path: str
    state: State
    octets: int = 0
    change: int | None = None
    table: str = ""
    day: str = ""
    words: str = ""


def examine(
    warehouse: Warehouse, *, reads_all: bool = True, now: float | None = None
) -> Iterator[Examined]:
    """Classify each file of a warehouse, in the order of paths; the missing ones last.

    Args:
        warehouse: the warehouse.
        reads_all: compare the checksums of live files, which reads all of them.
        now: seconds since the epoch; by default by the clock of this machine.
    """
    book = _Book.of(warehouse, time.time() if now is None else now)
    files = sorted(warehouse.files.walk(""), key=lambda each: each.path)
    book.learn(warehouse, files)
    names = {each.path: each for each in files}
    local = warehouse.files.local if reads_all else None
    for each in files:
        examined = book.said(each)
        if examined.state is State.LIVE:
            wrong = book.length(each) or (_damage(local, each.path, names) if local else "")
            if wrong:
                examined = Examined(
                    each.path, State.DAMAGED, each.octets, examined.change, examined.table,
                    examined.day, wrong,
                )  # fmt: skip
        yield examined
    yield from book.missing(names)


def remove(warehouse: Warehouse, found: Sequence[Examined]) -> int:
    """Remove the leftovers among all files of a warehouse, and return their number."""
    leftovers = [each for each in found if each.state is State.LEFTOVER]
    used = {_commit(each.path) for each in found if each.state is not State.LEFTOVER}
    places = set()
    for each in leftovers:
        commit, directory = _commit(each.path), _directory(each.path)
        if not commit:
            places.add(each.path)
        else:
            places.add(f"data/{directory}" if commit in used else f"data/commit={commit}")
    for place in sorted(places):
        warehouse.files.remove(place)
    return len(leftovers)


@dataclass(slots=True)
class _Book:
    """The lists, marks and manifests of a warehouse."""

    old: float
    live: Mapping[str, TablePart]
    readable: frozenset[str]
    read: frozenset[str]
    broken: Mapping[str, str]
    marked: Mapping[str, float]
    changed: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, warehouse: Warehouse, now: float) -> _Book:
        """Read the lists."""
        lists: list[WarehouseSnapshot] = []
        broken = {}
        for name in warehouse.files.names("log"):
            if not name.endswith(".json"):
                continue
            try:
                lists.append(warehouse.read_list(int(name[:-5])))
            except UnreadableList as error:
                broken[f"log/{name}"] = f"cannot be read as a list: {error.__cause__}"
        parts = lists[-1].parts if lists else ()
        earlier = [part for each in lists[:-1] for part in each.parts]
        return cls(
            now - KEPT_SECONDS,
            {part.path: part for part in parts},
            frozenset(part.path for part in earlier),
            frozenset(part.commit for part in earlier),
            broken,
            warehouse.files.ages("changes"),
        )

    def learn(self, warehouse: Warehouse, files: Sequence[Stored]) -> None:
        """Read the lists of files of changes, and the times of their last writes."""
        for each in files:
            if each.path.startswith("data/commit="):
                commit = _commit(each.path)
                self.changed[commit] = max(self.changed.get(commit, 0.0), each.at)
        has_live = {part.commit for part in self.live.values()}
        self.unlisted = set(has_live)
        for each in files:
            commit = _commit(each.path)
            if commit in has_live and each.path == f"data/commit={commit}/{MANIFEST}":
                self._learn(warehouse, each.path, commit)

    def _learn(self, warehouse: Warehouse, path: str, commit: str) -> None:
        try:
            said = parse_json(warehouse.files.read(path))
            lengths = {f"data/commit={commit}/{name}": int(n) for name, n in said["files"].items()}
            self.numbers[commit] = int(said["change"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.broken = {**self.broken, path: f"cannot be read as a list of files: {error}"}
            return
        self.unlisted.discard(commit)
        self.lengths.update(lengths)

    def said(self, file: Stored) -> Examined:
        """Classify a file."""
        path = file.path
        top, _, name = path.partition("/")
        if path in self.broken:
            return Examined(path, State.DAMAGED, file.octets, words=self.broken[path])
        if top == "data" and name.startswith("commit="):
            return self._of_data(file)
        if top == "report" and name.endswith(".html"):
            return Examined(path, State.PAGE, file.octets)
        if top == "log" and name.endswith(".json") and name[:-5].isdecimal():
            return Examined(path, State.LIST, file.octets, int(name[:-5]))
        if top == "changes":
            return Examined(path, State.LIST, file.octets, words=f"marks commit={name}")
        if top == "log" and ".json." in name:
            state = State.LEFTOVER if file.at < self.old else State.UNFINISHED
            return Examined(path, state, file.octets, words="draft of a list")
        return Examined(path, State.FOREIGN, file.octets, words="not written by the pipeline")

    def _of_data(self, file: Stored) -> Examined:
        commit, directory = _commit(file.path), _directory(file.path)
        table, day = _value(directory, "table"), _value(directory, "day")
        number = self.numbers.get(commit)
        state, words = State.UNFINISHED, ""
        if directory in self.live:
            state = State.LIVE
        elif not day and any(part.commit == commit for part in self.live.values()):
            state = State.LIVE  # of Spark, or the manifest
        elif directory in self.readable or (not day and commit in self.read):
            state = State.REPLACED
        elif max(self.marked.get(commit, 0.0), self.changed.get(commit, 0.0)) < self.old:
            state, words = State.LEFTOVER, "on no list"
        is_whole = file.path in self.lengths or commit not in self.numbers
        if state is State.LIVE and day and not is_whole and not _is_of_spark(file.path):
            state, words = State.FOREIGN, "not among the files of its change"
        return Examined(file.path, state, file.octets, number, table, day, words)

    def length(self, file: Stored) -> str:
        """Return a text if the length of a file differs from its list; empty if not."""
        wanted = self.lengths.get(file.path, file.octets)
        return "" if wanted == file.octets else f"{file.octets} octets instead of {wanted}"

    def missing(self, names: Mapping[str, Stored]) -> Iterator[Examined]:
        """Return the live files that do not exist."""
        there = {_directory(path) for path in names}
        expected: dict[str, list[str]] = defaultdict(list)
        for path in self.lengths:
            expected[_directory(path)].append(path)
        for directory, part in sorted(self.live.items()):
            number = self.numbers.get(part.commit)
            for path in sorted(expected.get(directory, [])):
                if path not in names:
                    yield Examined(path, State.MISSING, 0, number, part.table, part.day)
            if directory not in expected and directory not in there:
                yield Examined(f"data/{directory}", State.MISSING, 0, number, part.table, part.day)
        for commit in sorted(self.unlisted):
            # An earlier release wrote none, and had directories for domains.
            if any(part.commit == commit and not part.domain for part in self.live.values()):
                path = f"data/commit={commit}/{MANIFEST}"
                if path not in self.broken:
                    yield Examined(path, State.MISSING, words="its files cannot be compared")


def _commit(path: str) -> str:
    return path.split("/", 2)[1].partition("=")[2] if path.startswith("data/commit=") else ""


def _directory(path: str) -> str:
    """Return the directory of a file below ``data``, as in lists."""
    parts = path.split("/")[1:-1]
    return "/".join(each for each in parts if "=" in each)


def _value(directory: str, key: str) -> str:
    found = (each.partition("=") for each in directory.split("/"))
    return next((value for name, _, value in found if name == key), "")


def _is_of_spark(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith((".", "_"))


_MAGIC: Final = b"crc\x00"


def _damage(base: Path, path: str, names: Mapping[str, Stored]) -> str:
    """Compare a file with the checksums beside it; return the problem as text."""
    folder, _, name = path.rpartition("/")
    sums = f"{folder}/.{name}.crc"
    if sums not in names:
        return ""
    told = (base / sums).read_bytes()
    step = int.from_bytes(told[4:8], "big")
    if told[:4] != _MAGIC or not 0 < step <= 1 << 20 or len(told) % 4:
        return f"its checksums cannot be read: {sums}"
    with (base / path).open("rb") as file:
        for at in range(8, len(told), 4):
            piece = file.read(step)
            if zlib.crc32(piece) != int.from_bytes(told[at : at + 4], "big"):
                return f"the octets from {(at - 8) // 4 * step} on do not match their checksum"
    return ""
