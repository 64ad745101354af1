# SPDX-License-Identifier: Apache-2.0
"""The main file and the files that it includes, as one document.

``include`` in the main file names further files, ``conf.d/*.yaml`` by default. They are read in the
order of the patterns, and within a pattern in the order of their names (by code point). Each is
merged into what was read before:

* a map is merged key by key;
* a list is appended: rules, nodes, routes and peers can be spread over files;
* any other value replaces the one before it;
* a key without a value changes nothing.

Included files include nothing, and are read with the same checks as the main file. Every value
keeps the file and line that it comes from.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqproute.config import yaml_document
from amqproute.config.config_source import ConfigPlace, Location
from amqproute.config.field_types import DEFAULT_INCLUDE, file_path, include_pattern
from amqproute.config.value_references import credentials_directory
from amqproute.config.yaml_document import ParsedDocument
from amqproute.errors import ConfigError

__all__ = ["MergedDocument", "digest_of", "merged_text", "read_files"]

LARGEST: Final = 16 * 2**20
"""Octets of all files together; what is larger is not a configuration but, for example, a log."""
MOST_FILES: Final = 1000
_WILDCARDS: Final = frozenset("*?[")
_INCLUDE: Final = "include"


@dataclass(slots=True)
class MergedDocument:
    """The settings of all files, as plain data.

    Attributes:
        path: the main file.
        files: all files read, the main file first.
        data: the settings.
        places: where each key and list item comes from.
        problems: place, path and text of each problem.
        secrets: values out of the environment, with what to show instead.
        unresolved: places of values whose references have problems.
    """

    path: Path
    files: list[Path] = field(default_factory=list)
    data: dict[str, object] = field(default_factory=dict)
    places: dict[Location, ConfigPlace] = field(default_factory=dict)
    problems: list[tuple[ConfigPlace, Location, str]] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    unresolved: set[Location] = field(default_factory=set)

    def add(self, file: Path, parsed: ParsedDocument) -> None:
        """Merge a file into what was read before."""
        self.files.append(file)
        offsets: dict[Location, int] = {}
        _merge(self.data, parsed.data, (), offsets)
        for line, at, words in parsed.problems:
            self.problems.append((ConfigPlace(file, line), _moved(at, offsets), words))
        for at, line in parsed.lines.items():
            where = _moved(at, offsets)
            if where in self.places and not _is_scalar(parsed.data, at):
                continue  # a map or list that is merged, or a key without a value
            self.places[where] = ConfigPlace(file, line, parsed.references.get(at, ""))
        self.secrets |= parsed.secrets
        self.unresolved |= {_moved(at, offsets) for at in parsed.unresolved}


def read_files(path: Path, environ: Mapping[str, str]) -> MergedDocument:
    """Read a main file and the files that it includes.

    Raises:
        ConfigError: one of them cannot be read at all.
    """
    reader = _Reader(environ)
    credentials = credentials_directory(environ)
    merged = MergedDocument(path)
    merged.add(path, reader.read(path, ConfigPlace(path, 1)))
    for pattern, place in _patterns(merged):
        for each in _matches(file_path(pattern, path.parent, credentials), place):
            if each in merged.files:
                continue
            if len(merged.files) > MOST_FILES:
                words = f"names more than {MOST_FILES} files"
                raise ConfigError([f"{place}: {_INCLUDE}: {words}"])
            parsed = reader.read(each, place)
            if _INCLUDE in parsed.data:
                line = parsed.lines[_INCLUDE,]
                parsed.problems.append((line, (_INCLUDE,), "only the main file includes others"))
                del parsed.data[_INCLUDE]
            merged.add(each, parsed)
    return merged


def merged_text(text: str, path: Path, environ: Mapping[str, str]) -> MergedDocument:
    """Return the document of one text, without the files that it includes."""
    merged = MergedDocument(path)
    merged.add(path, yaml_document.read(text, environ))
    return merged


def digest_of(files: Sequence[Path]) -> str | None:
    """Return the SHA-256 of files, in hexadecimal digits; None if one cannot be read.

    For several it is that of their digests, a line each.
    """
    try:
        digests = [hashlib.sha256(each.read_bytes()).hexdigest() for each in files]
    except OSError:
        return None
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{each}\n" for each in digests).encode()).hexdigest()


# -- reading ---------------------------------------------------------------------------------------


class _Reader:
    """Reads files, all of them together within the bound."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._left = LARGEST

    def read(self, path: Path, place: ConfigPlace) -> ParsedDocument:
        """Read a file.

        Args:
            path: the path of the file.
            place: the place of the ``include`` that names it; for the main file its first line.
        """
        try:
            with path.open("rb") as stream:
                raw = stream.read(self._left + 1)
        except OSError as error:
            words = f"cannot be read: {error.strerror or error}"
            by = "" if path == place.file else f" (included by {place})"
            raise ConfigError([f"{path}:1: {words}{by}"]) from None
        self._left -= len(raw)
        if self._left < 0:
            raise ConfigError([f"{path}:1: is over {LARGEST} octets; is it a configuration?"])
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigError([f"{path}:{line}: is not UTF-8: {error.reason}"]) from None
        return yaml_document.read(text, self._environ)


def _patterns(merged: MergedDocument) -> Iterator[tuple[str, ConfigPlace]]:
    """Return the patterns of the main file; wrong ones are left to the schema."""
    given = merged.data.get(_INCLUDE)
    if given is None:
        yield from ((each, ConfigPlace(merged.path, 1)) for each in DEFAULT_INCLUDE)
        return
    for index, each in enumerate(given if isinstance(given, list) else ()):
        if isinstance(each, str):
            try:
                pattern = include_pattern(each)
            except ValueError:
                continue
            yield pattern, merged.places[_INCLUDE, index]


def _matches(wanted: Path, place: ConfigPlace) -> list[Path]:
    """Return the files that a pattern names, in order.

    Raises:
        ConfigError: there is no such file, or a directory cannot be read.
    """
    if not _WILDCARDS & set(wanted.name):
        return [wanted]
    folder = wanted.parent
    try:
        names = sorted(
            name
            for name in os.listdir(folder)
            if fnmatch.fnmatchcase(name, wanted.name) and not name.startswith(".")
        )
    except FileNotFoundError:
        return []
    except OSError as error:
        words = f"{folder} cannot be read: {error.strerror or error}"
        raise ConfigError([f"{place}: {_INCLUDE}: {words}"]) from None
    return [folder / name for name in names]


# -- merging ---------------------------------------------------------------------------------------


def _merge(
    base: dict[str, object], more: Mapping[str, object], at: Location, offsets: dict[Location, int]
) -> None:
    """Merge maps; `offsets` gets the number of items before those of each appended list."""
    for key, value in more.items():
        before = base.get(key)
        here = (*at, key)
        if isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value, here, offsets)
        elif isinstance(before, list) and isinstance(value, list):
            offsets[here] = len(before)
            before.extend(value)
        else:
            base[key] = value


def _is_scalar(data: object, at: Location) -> bool:
    """Return whether there is a value at a place, and no map or list."""
    try:
        for part in at:
            data = data[part]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return False
    return not isinstance(data, dict | list)


def _moved(at: Location, offsets: Mapping[Location, int]) -> Location:
    """Return where a place of a file is in the merged document."""
    for index, part in enumerate(at):
        if isinstance(part, int) and at[:index] in offsets:
            return (*at[:index], part + offsets[at[:index]], *at[index + 1 :])
    return at
