# SPDX-License-Identifier: Apache-2.0
"""``journal``: the history of messages, from the files of the audit journal."""

from __future__ import annotations

import datetime
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from amqproute.address import normalize_domain
from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import config_option, json_option
from amqproute.cli.program_commands import ProgramGroup
from amqproute.config.loader import find as find_config
from amqproute.config.loader import load
from amqproute.errors import AmqpError
from amqproute.journal import reader
from amqproute.journal.export import ExportSummary, WrongExportTarget
from amqproute.journal.export import export as write_export
from amqproute.journal.record import FIELDS, JournalRecord, RecordKind
from amqproute.journal.record_text import line_of, said, when
from amqproute.journal.tail import follow as follow_records
from amqproute.journal.tail import last

__all__ = ["journal"]

KINDS: Final = [str(kind) for kind in RecordKind]
NONE: Final = "journal.none"
NOTHING: Final = "journal.nothing"
_NAME_IT: Final = (
    "name its folder with --directory, or the configuration with --config; journal.enabled has to "
    "be true"
)
FEW_NAMES: Final = 10
"""Journals, or partners, that are named if the one given was not found."""
FEW: Final = 2
"""Attempts with the same failure that are printed, besides the first and last."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
Selects = Callable[[JournalRecord], bool]

directory_option = click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The journal's folder. [default: `journal` in the state directory of the configuration]",
)


@click.group(cls=ProgramGroup)
def journal() -> None:
    """The audit journal: the history of every message."""


def _folder(directory: Path | None, config: Path | None) -> Path:
    if directory is None:
        directory = load(find_config(config)).state_directory / "journal"
    with _reading(directory):
        is_there = directory.is_dir()
        is_journal = is_there and reader.is_journal(directory)
    if is_journal:
        return directory
    words = (
        f"{directory} is no journal: it has neither head nor segments"
        if is_there
        else f"there is no folder {directory}"
    )
    raise CommandError(NEGATIVE, NONE, words, _where_else(directory))


@contextmanager
def _reading(directory: Path) -> Iterator[None]:
    """Name the users who may read a journal that this user may not read."""
    try:
        yield
    except PermissionError as error:
        path = str(error.filename)
        if not path.startswith(str(directory)):
            raise
        step = "run this as root or as the daemon's user"
        words = f"{path}: {error.strerror}"
        raise CommandError(USAGE, "journal.unreadable", words, step) from None


def _where_else(directory: Path) -> str:
    """Name the journals near a folder that is none."""
    found: list[str] = []
    with suppress(OSError):  # the folder is missing or not readable: nothing to name
        around = [*sorted(directory.iterdir())] if directory.is_dir() else []
        for each in (*around, directory.absolute().parent):
            if each.is_dir() and reader.is_journal(each):
                found.append(render.printable(str(each)))
    if not found:
        return _NAME_IT
    return f"give --directory {found[0]}" + "".join(f", or {each}" for each in found[1:FEW_NAMES])


@journal.command("tail")
@directory_option
@config_option
@click.option(
    "--count",
    "-n",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Number of last records.",
)
@click.option("--follow", "-f", is_flag=True, help="Follow new records as they are written.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    type=click.Choice(KINDS),
    help="Records of this kind; may be given more than once.",
)
@click.option("--node", metavar="NODE", help="Records about this node; * matches anything.")
@click.option("--to", metavar="ADDRESS", help="Records of messages for this address; with *.")
@click.option(
    "--where",
    "wheres",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Records with this in a field; with *. May be given more than once.",
)
@json_option
def tail(
    directory: Path | None,
    config: Path | None,
    count: int,
    follow: bool,
    kinds: Sequence[str],
    node: str | None,
    to: str | None,
    wheres: Sequence[str],
    as_json: bool,
) -> int:
    """Print the last records, and optionally follow.

    With --kind, --node, --to or --where only matching ones of the last records are printed. A
    message's own address is in the record of its arrival only.
    """
    folder = _folder(directory, config)
    selects = _selects(kinds, node, to, wheres)
    show = _show_json if as_json else _show_line
    with _reading(folder):
        records, end = last(folder, count, selects)
    for record in records:
        show(record)
    if follow:
        try:
            for each in follow_records(folder, end):
                if each is not None and selects(each):
                    show(each)
                elif each is None:
                    sys.stdout.flush()
        except KeyboardInterrupt:
            pass
    return DONE


def _selects(
    kinds: Sequence[str], node: str | None, to: str | None, wheres: Iterable[str]
) -> Selects:
    wanted = [("node", node), ("to", to)]
    for where in wheres:
        name, equals, value = where.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in FIELDS:
            raise CommandError(
                USAGE,
                "usage.where",
                f"{where!r} is not FIELD=VALUE with a field of records",
                f"fields are {', '.join(FIELDS)}",
            )
        wanted.append((name, value.strip()))
    patterns = [(name, value) for name, value in wanted if value is not None]

    def selects(record: JournalRecord) -> bool:
        if kinds and record.kind not in kinds:
            return False
        for name, pattern in patterns:
            value = getattr(record, name)
            if value is None or not fnmatchcase(_text(value), pattern):
                return False
        return True

    return selects


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _show_json(record: JournalRecord) -> None:
    render.json_line(reader.as_json(record))


def _show_line(record: JournalRecord) -> None:
    click.echo(render.printable(line_of(record)))


@journal.command("find")
@click.argument("message_id", metavar="MESSAGE-ID", required=False)
@click.option("--entry", type=int, help="The broker's own number instead, as `queue messages` has.")
@click.option("--digest", metavar="HEX", help="The SHA-256 of the bare message instead.")
@directory_option
@config_option
@json_option
def find(
    message_id: str | None,
    entry: int | None,
    digest: str | None,
    directory: Path | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Show the history of a message: its origin, its path, and the reasons for waiting.

    Its copies are included, and so are records about a destination while it waited for that. Exits
    with 1 if the journal has no record of it.
    """
    if [message_id, entry, digest].count(None) != 2:
        raise CommandError(
            USAGE,
            "usage.message",
            "give one of MESSAGE-ID, --entry and --digest",
            "as in: amqproute journal find 4711",
        )
    if digest is not None and not _DIGEST.fullmatch(digest := digest.lower()):
        words = f"{digest!r} is no SHA-256: 64 hexadecimal digits"
        raise CommandError(USAGE, "usage.digest", words, "as `journal find MESSAGE-ID` prints it")
    folder = _folder(directory, config)
    with _reading(folder):
        story = reader.find(folder, message_id=message_id, entry=entry, digest=digest)
    if as_json:
        render.json_text([reader.as_json(record) for record in story])
    elif story:
        _print(story, reader.newest_streams(folder))
    else:
        what = digest or (repr(message_id) if entry is None else f"entry {entry}")
        click.echo(render.printable(f"the journal knows nothing of {what}"))
    return DONE if story else NEGATIVE


def _print(story: Sequence[JournalRecord], streams: Mapping[str, str]) -> None:
    render.table(
        ["TIME", "WHAT", "ENTRY", "STORY"],
        _rows(story),
        right="ENTRY",
    )
    for name in dict.fromkeys(each.digest for each in story if each.digest):
        click.echo(f"digest of the bare message: {name}")
    click.echo(render.printable(_fate(story, streams)))


def _rows(story: Sequence[JournalRecord]) -> Iterator[list[Any]]:
    """Format the records; of attempts with one failure the first, their number and the last."""
    for _, run in groupby(story, key=_cause):
        alike = list(run)
        more = len(alike) - 2
        for place, each in enumerate(alike):
            if more < FEW or place in (0, len(alike) - 1):
                yield [when(each.time), each.kind, each.entry, said(each)]
            elif place == 1:
                yield [None, each.kind, None, f"{more} more like this"]


def _cause(record: JournalRecord) -> object:
    """Return the key by which similar failed attempts are summarized."""
    if record.kind != RecordKind.DEFERRED or record.entry is not None:
        return id(record)
    return (record.node, record.peer, record.code, record.condition, record.words)


def _fate(story: Sequence[JournalRecord], streams: Mapping[str, str]) -> str:
    """Describe in one line where the message is now.

    Args:
        story: the story of the message.
        streams: by journal, of the present store.
    """
    ends = {_key(each): each for each in story if each.kind in reader.GOES and each.entry}
    begun = {_key(each): each for each in story if each.kind in reader.COMES and each.entry}
    gone = [each for entry, each in begun.items() if entry not in ends]
    left = [each for each in gone if streams.get(each.journal, each.stream) == each.stream]
    if left:
        # An export does not name nodes.
        places = ", ".join(f"{each.node or 'some node'} (entry {each.entry})" for each in left)
        return f"it is still here, on {places}; why: amqproute why {left[0].entry}"
    if ends:
        last = list(ends.values())[-1]
        return f"it is not here any more: {last.kind}, {said(last)}"
    if gone:
        last = gone[-1]
        return (
            f"it was on {last.node or 'some node'} (entry {last.entry}) of a store that is not "
            "here any more: another one was restored, or its loss was accepted"
        )
    return "it was never kept here"


def _key(record: JournalRecord) -> tuple[str, int | None]:
    """Return the key of an entry: a restored store starts a new sequence of numbers."""
    return record.stream, record.entry


@journal.command("verify")
@directory_option
@config_option
@json_option
def verify(directory: Path | None, config: Path | None, as_json: bool) -> int:
    """Verify the journal: no record was changed, removed or moved.

    The first flaw is named with its file, its line and the records concerned, and the exit code is
    1. The hash of the last line is printed: kept elsewhere, it proves later that everything up to
        here was not rewritten.

    The files of an export are verified one by one: changes, moves and removals within a file are
    found, but not a missing end or a missing file.
    """
    folder = _folder(directory, config)
    with _reading(folder):
        verdicts = reader.verify(folder)
    if as_json:
        render.json_text([_verdict(each) for each in verdicts])
    else:
        for each in verdicts:
            for note in each.notes:
                click.echo(render.printable(f"journal {each.journal}: note: {note}"))
            if each.flaw is not None:
                click.echo(render.printable(f"journal {each.journal}: {each.flaw}"))
            elif each.partner is not None:
                words = (
                    f"journal {each.journal}: an export for {each.partner}: {each.records} records "
                    f"in {each.segments} segments are as exported. Only the journal itself shows "
                    "omissions, and whether a file or the end of one is missing; to compare the "
                    "contents: amqproute pipeline reconcile"
                )
                click.echo(render.printable(words))
            else:
                click.echo(
                    f"journal {each.journal}: records {each.first} to {each.last} in "
                    f"{each.segments} segments are unchanged; the last hash is {each.hash}"
                )
    return NEGATIVE if any(each.flaw for each in verdicts) else DONE


def _verdict(found: reader.JournalVerdict) -> dict[str, Any]:
    flaw = found.flaw
    return {
        "journal": found.journal,
        "sound": flaw is None,
        "segments": found.segments,
        "records": found.records,
        "first": found.first,
        "last": found.last,
        "hash": found.hash,
        "exported-for": found.partner,
        "notes": found.notes,
        "flaw": None
        if flaw is None
        else {
            "segment": None if flaw.segment is None else str(flaw.segment),
            "line": flaw.line,
            "first": flaw.first,
            "last": flaw.last,
            "words": flaw.words,
        },
    }


@journal.command("export")
@click.argument("target", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--peer", required=True, metavar="DOMAIN", help="The partner it is for.")
@click.option("--day", metavar="YYYY-MM-DD", help="Of one day only, UTC. [default: everything]")
@directory_option
@config_option
@json_option
def export(
    target: Path,
    peer: str,
    day: str | None,
    directory: Path | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Export for a partner the messages exchanged with it, by ids and digests only.

    DIR gets segments like the journal's own, which `amqproute pipeline reconcile` reads as either
    side. They contain no sizes, addresses, nodes, clients or connections, and nothing about other
    partners. Exits with 1, and writes nothing, if the journal knows of no such partner, or has
    nothing of that day.
    """
    try:
        partner = normalize_domain(peer)
    except AmqpError as error:
        raise CommandError(
            USAGE, "usage.domain", error.description, "as in --peer beta.example"
        ) from None
    folder = _folder(directory, config)
    with _reading(folder):
        whose = reader.exported_for(folder)
    if whose is not None:
        raise CommandError(
            NEGATIVE, "journal.exported", f"{folder} is an export, for {whose}",
            "give the journal itself with --directory",
        )  # fmt: skip
    since, until = 0, 1 << 62
    if day is not None:
        try:
            start = datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00")
        except ValueError:
            raise CommandError(
                USAGE, "usage.day", f"{day!r} is no day", "as in --day 2026-03-01"
            ) from None
        since = int(start.timestamp() * 1e6)
        until = since + 86_400_000_000
    try:
        with _reading(folder):
            done = write_export(folder, target, partner, since, until)
    except WrongExportTarget as error:
        step = "name another folder: an export for each partner, and none in a journal"
        raise CommandError(USAGE, "journal.target", str(error), step) from None
    if not done.is_known:
        raise _unknown(partner, done)
    if not done.segments:
        words = f"the journal has nothing of {day}: nothing was written"
        raise CommandError(NEGATIVE, NOTHING, words, "see what it has: amqproute journal tail")
    if as_json:
        render.json_text(
            {"segments": done.segments, "records": done.records, "messages": done.messages}
        )
    else:
        click.echo(
            f"{done.records} records, {done.messages} of them about messages, in {done.segments} "
            f"segments written to {target}"
        )
    return DONE


def _unknown(partner: str, done: ExportSummary) -> CommandError:
    """Report that the journal does not know a partner, and name known ones."""
    words = f"the journal has nothing of {partner}: nothing was written"
    if partner == done.owner:
        words = f"this is the journal of {partner} itself: nothing was written"
    partners = sorted(done.partners)
    if not partners:
        return CommandError(
            NEGATIVE, NOTHING, words, "it has nothing of any other organization either"
        )
    guess = difflib.get_close_matches(partner, partners, 1) if partner != done.owner else []
    meant = f"did you mean {guess[0]}?" if guess else ""
    more = f" and {len(partners) - FEW_NAMES} more" if len(partners) > FEW_NAMES else ""
    known = f"it knows {', '.join(partners[:FEW_NAMES])}{more}"
    step = meant if guess == partners else f"{meant} {known}".lstrip()
    return CommandError(NEGATIVE, NOTHING, words, render.printable(step))
