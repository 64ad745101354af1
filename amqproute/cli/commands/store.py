# SPDX-License-Identifier: Apache-2.0
"""``store``: backup, checks and repair of the store, while no daemon uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, CommandError
from amqproute.cli.commands.common_options import config_option, json_option
from amqproute.cli.program_commands import ProgramGroup
from amqproute.config import load
from amqproute.config.loader import find
from amqproute.daemon.loss_reports import look_for_losses, testimony
from amqproute.errors import StoreError
from amqproute.plurals import counted
from amqproute.store import backup, fsck, quarantine_commands, start_evidence
from amqproute.store.quarantine import quarantined
from amqproute.store.salvage import salvage as salvage_store

__all__ = ["store"]

STORE_FILE: Final = "store.db"
JOURNAL: Final = "journal"
MOST_SHOWN: Final = 20
_TOLD: Final = ("entry", "node", "message-id", "to", "sender", "origin", "size", "time")
_SHOWN: Final = ("entry", "node", "message-id", "to", "sender")

state_option = click.option(
    "--state",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False),
    help="The state directory. [default: that of the configuration]",
)


@click.group(cls=ProgramGroup)
def store() -> None:
    """The store: backup, checks and repair.

    A daemon that finds data missing from its store does not start. It deletes nothing, names the
    finding and exits with code 2. These commands list missing data, recover everything readable,
    and let the daemon start without the rest.
    """


@store.command("check")
@state_option
@config_option
@json_option
def check(state: Path | None, config: Path | None, as_json: bool) -> int:
    """Check the whole store, and compare it with its last known state.

    Takes seconds per gigabyte and changes nothing. If the store has lost something, the missing
    messages are listed, as far as the journal has them. Exit code 1 if anything is wrong.
    """
    path, witness = _database(state, config)
    with _held(path):
        found = start_evidence.examine(str(path), witness)
        problems = _problems(path)
        missing = _missing(path) if found.finding is not None else []
    count, size = quarantined(str(path))
    finding = found.finding
    if as_json:
        document: dict[str, Any] = {
            "store": str(path),
            "ok": finding is None and not problems,
            "finding": None,
            "notes": found.notes,
            "problems": problems,
            "missing": missing,
            "quarantine": {"files": count, "size": size},
        }
        if finding is not None:
            document["finding"] = {
                "name": finding.name,
                "code": finding.code,
                "words": finding.words,
                "is-restore": found.is_restore,
            }
        render.json_text(document)
        return DONE if document["ok"] else NEGATIVE
    if finding is not None:
        click.echo(f"{finding.name}: {render.printable(finding.words)}")
        if found.is_restore:
            click.echo("  the mark is gone: the next start takes this for a restore")
        else:
            click.echo(
                "  next: amqproute store salvage --into DIRECTORY, to recover what is readable; or"
            )
            click.echo(f"        amqproute store accept-loss {finding.name}, to start without it")
    if missing:
        are = "is" if len(missing) == 1 else "are"
        click.echo(
            f"the journal has {counted(len(missing), 'message')} that {are} missing in the store:"
        )
        rows = [[str(one.get(name, "-")) for name in _SHOWN] for one in missing[:MOST_SHOWN]]
        render.table([name.upper() for name in _SHOWN], rows, right="ENTRY")
        if len(missing) > MOST_SHOWN:
            click.echo(f"and {len(missing) - MOST_SHOWN} more: --json has all")
    for words in found.notes:
        render.warn(words)
    for words in problems:
        click.echo(render.printable(words))
    if count:
        render.warn(f"{count} files ({size} octets) are in quarantine: {path.stem}.quarantine")
    if finding is None and not problems:
        click.echo(
            f"{path}: ok" if path.exists() else f"{path}: there is no store here, nor was one"
        )
    return DONE if finding is None and not problems else NEGATIVE


@store.command("accept-loss")
@click.argument("finding")
@click.option(
    "--report-senders",
    is_flag=True,
    help="Have that start report each message missing according to the journal to its sender, "
    "if the message has a return address and requests reports of failures.",
)
@state_option
@config_option
@json_option
def accept_loss(
    finding: str, report_senders: bool, state: Path | None, config: Path | None, as_json: bool
) -> int:
    """Let the daemon start once in spite of FINDING, without the missing data.

    FINDING is the name given by the start and `store check`, as in log-short-1a2b3c4d. It applies
    to this damage only: if anything is different when the daemon starts, it refuses again. That
    start moves contradictory files into store.quarantine, assigns new ids to its messages as after
    a restore, and uses the acceptance up.
    """
    path, witness = _database(state, config)
    with _held(path):
        accepted = start_evidence.accept(str(path), finding, report_senders, witness)
    if as_json:
        render.json_text({"accepted": accepted.name, "words": accepted.words})
        return DONE
    click.echo(f"accepted: {render.printable(accepted.words)}")
    click.echo("  next: start the daemon")
    return DONE


@store.command("salvage")
@click.option(
    "--into",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    required=True,
    help="A folder that is not there yet; it needs as much room as the store.",
)
@state_option
@config_option
@json_option
def salvage(into: Path, state: Path | None, config: Path | None, as_json: bool) -> int:
    """Recover the readable part of a damaged store into another folder.

    The originals are not changed. The folder then has a store of all that could be read, and in
    messages/ those of bodies that no row of it names, each in a file. Exit code 1 if not all of it
    is there.
    """
    path, _ = _database(state, config)
    with _held(path):
        found = salvage_store(str(path), os.path.abspath(into))
    if as_json:
        render.json_text(found.facts())
        return DONE if found.is_complete else NEGATIVE
    click.echo(f"log: {found.log}")
    render.table(["QUEUE", "MESSAGES"], sorted(found.entries.items()), right="MESSAGES")
    for words in found.lost:
        render.warn(words)
    if found.orphans:
        render.warn(f"{len(found.orphans)} messages that no row names are in {into}/messages")
    if found.is_complete:
        click.echo("nothing that was committed is missing")
    click.echo("  next: keep the originals, then put this in their place:")
    stem = str(path)
    for line in (
        f"rm -f {stem}-wal {stem}-shm {stem}.mark",
        f"cp {into}/store.db {stem}",
        f"cp -r {into}/store.bodies/. {path.with_suffix('.bodies')}/",
    ):
        click.echo(f"        {render.printable(line)}")
    return DONE if found.is_complete else NEGATIVE


@store.command("backup")
@click.argument("into", metavar="DIRECTORY", type=click.Path(path_type=Path))
@state_option
@config_option
@json_option
def back_up(into: Path, state: Path | None, config: Path | None, as_json: bool) -> int:
    """Make a backup of the store in DIRECTORY, also while the daemon runs.

    DIRECTORY is made, and has to be new. Until the backup is whole and on the disk it is called
    DIRECTORY.partial. It has all messages of one moment, with their bodies, and is checked before
    it gets its name. The journal is not part of it. Exit code 1 if something in the store is
    damaged, and so in the backup, too.
    """
    path, _ = _database(state, config)
    target = os.path.abspath(into)
    try:
        with _held(path):
            made = backup.back_up(str(path), target, is_running=False)
    except CommandError as refusal:
        if refusal.code != "store.in-use":
            raise
        made = backup.back_up(str(path), target, is_running=True)
    return _print_backup(made, as_json, f"{target}: a backup with", str(into))


@store.command("restore")
@click.argument("source", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False))
@state_option
@config_option
@json_option
def restore(source: Path, state: Path | None, config: Path | None, as_json: bool) -> int:
    """Put the backup in DIRECTORY into a state directory without a store.

    Each file is compared with the backup's list. The daemon has to be stopped. At its next start
    it treats the store as restored: it assigns new ids to messages, and reports that. If this
    command was killed, run it again.
    """
    path, _ = _database(state, config)
    with _held(path):
        made = backup.restore(os.path.abspath(source), str(path))
    return _print_backup(made, as_json, f"{path}: restored with", str(path))


def _print_backup(made: backup.BackupSummary, as_json: bool, words: str, where: str) -> int:
    if as_json:
        render.json_text(
            {
                "directory": where,
                "messages": made.messages,
                "files": made.files,
                "size": made.size,
                "problems": list(made.problems),
            }
        )
    else:
        facts = f"{counted(made.messages, 'message')}, {counted(made.files, 'file')}"
        click.echo(render.printable(f"{words} {facts}, {made.size} octets"))
        for problem in made.problems:
            render.warn(problem)
    return NEGATIVE if made.problems else DONE


@store.group("quarantine")
def quarantine() -> None:
    """Damaged messages in quarantine: list, show, release, or drop.

    A message that does not match its checksum is not delivered, and its sender gets a report if it
    requests one. It is kept until somebody decides: release it as it reads, if the damage does no
    harm, or give it up.
    """


@quarantine.command("ls")
@state_option
@config_option
@json_option
def list_quarantined(state: Path | None, config: Path | None, as_json: bool) -> int:
    """List damaged messages and folders of files in quarantine, also while the daemon runs."""
    path, _ = _database(state, config)
    found = quarantine_commands.listed(str(path)) if path.exists() else []
    count, size = quarantined(str(path))
    rows = [
        {
            "entry": one.entry,
            "size": one.size,
            "arrived-ms": one.arrived_ms,
            "message-id": one.message_id,
            "to": one.to,
            "why": one.why,
        }
        for one in found
    ]
    if as_json:
        render.json_text({"messages": rows, "files": {"files": count, "size": size}})
        return DONE
    keys = ("entry", "size", "message-id", "to", "why")
    headings = [key.upper() for key in keys]
    render.table(headings, ([row[key] for key in keys] for row in rows), right="ENTRY SIZE")
    if count:
        click.echo(f"{count} files ({size} octets) in {path.with_suffix('.quarantine')}")
    return DONE


@quarantine.command("show")
@click.argument("entry", type=int)
@click.option(
    "--into",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="A file that is not there yet: it gets the octets of the message as they are.",
)
@state_option
@config_option
def show_quarantined(entry: int, into: Path, state: Path | None, config: Path | None) -> int:
    """Write a damaged message into a file, also while the daemon runs."""
    path, _ = _database(state, config)
    octets = quarantine_commands.octets_of(str(path), entry)
    try:
        with open(os.open(into, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(octets)
    except OSError as error:
        raise StoreError(f"{into}: {error.strerror}") from error
    click.echo(f"{len(octets)} octets of entry {entry} are in {into}")
    return DONE


@quarantine.command("release")
@click.argument("entries", type=int, nargs=-1, required=True)
@click.option("--to", "queue", metavar="QUEUE", required=True, help="The queue to put them on.")
@state_option
@config_option
@json_option
def release_quarantined(
    entries: tuple[int, ...], queue: str, state: Path | None, config: Path | None, as_json: bool
) -> int:
    """Put damaged messages on QUEUE as they read now. The daemon has to be stopped.

    Each counts as a new message, with an entry number of its own. Which queue it was on is in the
    journal: amqproute journal find --entry NUMBER. Nothing is released if one of them is no
    message any more.
    """
    path, _ = _database(state, config)
    with _held(path):
        given = quarantine_commands.release(str(path), entries, queue)
    if as_json:
        render.json_text({"released": [{"entry": a, "as": b} for a, b in given.items()]})
        return DONE
    for entry, fresh in given.items():
        click.echo(f"entry {entry} is entry {fresh} of {render.printable(queue)} now")
    click.echo("  next: start the daemon")
    return DONE


@quarantine.command("drop")
@click.argument("entries", type=int, nargs=-1)
@click.option("--all", "drops_all", is_flag=True, help="All of them.")
@state_option
@config_option
@json_option
def drop_quarantined(
    entries: tuple[int, ...],
    drops_all: bool,
    state: Path | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Drop damaged messages for good. The daemon has to be stopped."""
    if bool(entries) == drops_all:
        raise click.UsageError("give numbers of entries, or --all")
    path, _ = _database(state, config)
    with _held(path):
        if drops_all:
            entries = tuple(one.entry for one in quarantine_commands.listed(str(path)))
        quarantine_commands.drop(str(path), entries)
    if as_json:
        render.json_text({"dropped": list(entries)})
    else:
        click.echo(f"dropped {counted(len(entries), 'message')}")
    return DONE


def _problems(path: Path) -> list[str]:
    if not path.exists() or not path.stat().st_size:
        return []
    try:
        return fsck.check(str(path))
    except StoreError as error:
        return [str(error)]  # entries of a lost log


def _missing(path: Path) -> list[dict[str, Any]]:
    """Return the journal's records of messages missing from the store."""
    losses = look_for_losses(path.parent / JOURNAL, partial(start_evidence.holdings_of, str(path)))
    records = {record.entry: record for record in losses.records}
    document: list[dict[str, Any]] = []
    for entry in losses.ids:
        record = records.get(entry)
        facts = {name: getattr(record, name.replace("-", "_"), None) for name in _TOLD}
        document.append(
            {name: value for name, value in facts.items() if value is not None} | {"entry": entry}
        )
    return document


def _database(
    state: Path | None, config: Path | None
) -> tuple[Path, start_evidence.Witness | None]:
    """Return the database file and the journal for comparison; None if the journal is off."""
    is_kept = True
    if state is None:
        settings = load(find(config))
        state, is_kept = settings.state_directory, settings.journal.enabled
    if not state.is_dir():
        raise CommandError(
            NEGATIVE, "store.none", f"there is no folder {state}", "give --state DIRECTORY"
        )
    folder = Path(os.path.abspath(state))
    return folder / STORE_FILE, partial(testimony, folder / JOURNAL) if is_kept else None


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock the store against the daemon.

    Raises:
        CommandError: a daemon uses it.
        StoreError: the files cannot be read or written.
    """
    lock = f"{path}.lock"
    try:
        is_new = not os.path.exists(lock)
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if is_new and os.geteuid() == 0:  # the daemon runs as another user, and has to open it
                folder = os.stat(path.parent)
                os.fchown(descriptor, folder.st_uid, folder.st_gid)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CommandError(
                    NEGATIVE,
                    "store.in-use",
                    f"{path} is in use by a daemon",
                    "stop it first; while it runs, amqproute status says how it is",
                ) from None
            yield
        finally:
            os.close(descriptor)
    except PermissionError as error:
        words = f"{error.filename or path}: {error.strerror}"
        step = "give this command as root, or as the user that the daemon runs as"
        raise CommandError(NEGATIVE, "store.denied", words, step) from error
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror}") from error
