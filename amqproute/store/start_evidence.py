# SPDX-License-Identifier: Apache-2.0
"""Verification at the start: whether the store holds everything that it held last.

Theory of operation
===================

`examine` looks before anything is opened for writing, and changes nothing: the database is opened
read-only, so that SQLite reads the log as it will later, and neither copies nor removes it. What it
finds is compared with the seal (`amqproute.store.seal`), which is a lower bound of what was on the
disk, and with the mark (`amqproute.store.mark`). A `StoreFinding` is a contradiction that no crash
explains: something that was on the disk is gone. The store is then not opened, and nothing is
changed or deleted, until an operator has decided.

=================  =================================================================================
finding            meaning
=================  =================================================================================
database-missing   there is no database, or an empty file, or a new one, and seal, mark, log,
                   bodies or the journal say there was one
log-missing        the log is gone, or its header is damaged, and the database does not have what
                   stood in it
log-short          the log ends, or cannot be read, before its last frame that was on the disk
log-other          the log is an older one, or belongs to another store
database-older     the database, or its file beneath the log, is older than the seal
database-other     seal and database have the same age and different names
rows-missing       the seal is gone or damaged, or the mark is of another database, and the journal
                   says of messages that the database does not have that they are there
=================  =================================================================================

**Innocent causes.** A power failure may take back what was not synced: the seal is stale then,
and the log goes further. Another program that opens the database after a crash takes the log into
it and removes the file: then the count of entries agrees. A log that begins anew while the power
fails may have a torn header: then all its frames are in the database. A restore takes the mark
away, as documented, or brings a copy of it: then an older database without a log is what it should
be, and the store is numbered anew. A seal that is older than the database and its mark is stale,
and says nothing; so do a missing and a damaged one. Files of bodies that no row names are then put
into quarantine instead of being removed, since nothing proves that no row is missing.

**The journal as a witness.** Where the seal cannot say anything, a `Witness` is asked which
messages there should be. The journal is never ahead of the store, and the store's outbox has the
endings that it lacks, so a durable message that it names and the store has not is gone. It is asked
too where database and seal agree and the mark is of another database: both may be older copies. It
is not asked where an honest start may have no seal: the store of an earlier release, a restore, a
seal that a power failure has left behind a log. A journal that is switched off says nothing; one
that is damaged proves only that a store was here.

**Acceptance.** `accept` writes a file that names one finding by its digest. The next start that
comes to this very finding moves what contradicts into quarantine and goes on with what there is, as
after a restore; the file is removed when that start is through.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from amqproute.durable_path import sync_path
from amqproute.errors import StoreContradiction, StoreError
from amqproute.store.body_files import BodyDirectory
from amqproute.store.database_schema import read_text
from amqproute.store.mark import Mark
from amqproute.store.seal import NO_LOG, Seal, SealState
from amqproute.store.wal_file import FRAME_HEADER, HEADER, is_in_database

__all__ = [
    "JournalTestimony",
    "LossAcceptance",
    "StartEvidence",
    "StoreFinding",
    "Witness",
    "accept",
    "entry_totals_of",
    "examine",
    "holdings_of",
    "read_only",
    "refusal",
]

RESTORABLE: Final = frozenset({"log-missing", "database-older", "database-other"})
"""Findings that a restore explains."""
MOST_ROUNDS: Final = 1 << 16
"""Number of rounds by which a log may be later than a seal that a power failure has made stale. The
salts count rounds; those of two unrelated logs are random."""
CENSUS: Final = "SELECT count(*), ifnull(sum(id & 4294967295), 0) FROM entry INDEXED BY entry_queue"


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """A contradiction between the files of a store.

    Attributes:
        code: see above.
        words: the contradiction and its evidence.
        facts: that identify it.
        drops_log: the log may not be applied to the database.
    """

    code: str
    words: str
    facts: tuple[int | str, ...] = ()
    drops_log: bool = False

    @property
    def name(self) -> str:
        """Its code with a digest of its facts, by which an operator accepts it."""
        text = json.dumps([self.code, *self.facts], separators=(",", ":"))
        return f"{self.code}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(slots=True)
class StartEvidence:
    """Result of examining the files.

    Attributes:
        finding: the contradiction; None for none.
        is_sealed: the seal is valid and agrees: files that no row names are unused.
        has_log: the log has frames.
        is_restore: a restore explains `finding`.
        sealed: contents of the seal; None if it is invalid or stale.
        notes: lines for the log of the start.
    """

    finding: StoreFinding | None = None
    is_sealed: bool = False
    has_log: bool = False
    is_restore: bool = False
    sealed: SealState | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """Contents of the database, read through its log.

    Attributes:
        turn: see `SealState`.
        round: see `SealState`.
        state: the state of the mark.
        log: see `SealState.log`.
        below: the round of the database file without its log; None if it cannot be read.
        entry_totals: see `SealState.entry_totals`; None if it was not asked for.
    """

    turn: int
    round: int
    state: tuple[int, int]
    log: SealState
    below: int | None
    entry_totals: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class JournalTestimony:
    """Messages that the journal says are in the store, and that are missing.

    Attributes:
        source: the source of the testimony, as text.
        missing: the ids of their entries, ascending.
        is_whole: the journal itself is complete; otherwise some messages may have ended.
    """

    source: str
    missing: tuple[int, ...] = ()
    is_whole: bool = True

    @property
    def facts(self) -> tuple[int | str, ...]:
        """Of a finding."""
        ids = ",".join(map(str, self.missing)).encode()
        return len(self.missing), hashlib.sha256(ids).hexdigest()


Outbox = Sequence[tuple[int, bytes]]
Witness = Callable[[set[int], Outbox], JournalTestimony]
"""Called with the ids of all entries in the store, and the rows of its outbox."""


@contextmanager
def read_only(path: str) -> Iterator[sqlite3.Connection]:
    """Open a database so that neither it nor its log is changed, also when it is closed."""
    had_log = os.path.exists(f"{path}-wal")
    address = f"file:{quote(path)}?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    connection.text_factory = read_text
    try:
        yield connection
    finally:
        connection.close()
        if not had_log and _size(f"{path}-wal") == 0:
            os.unlink(f"{path}-wal")  # SQLite has created it


def holdings_of(path: str) -> tuple[set[int], Outbox]:
    """Return the ids of all entries that a start would find, and the outbox.

    Both are empty if the database cannot be read.
    """
    if not _size(path):
        return set(), ()
    ids: set[int] = set()
    rows: Outbox = ()
    try:
        with read_only(path) as connection:
            ids = {row[0] for row in connection.execute("SELECT id FROM entry")}
            rows = list(connection.execute("SELECT number, octets FROM outbox ORDER BY number"))
    except sqlite3.Error:
        pass  # an earlier release, or damaged: opening it reports that
    return ids, rows


def entry_totals_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of entries, and the sum of their ids modulo 2**32."""
    count, total = connection.execute(CENSUS).fetchone()
    return count, total & 0xFFFFFFFF


def examine(path: str, witness: Witness | None = None) -> StartEvidence:
    """Compare a store with the evidence of its last run. No other process may have it open.

    Args:
        path: the database file.
        witness: asks the journal, where there is no other evidence; None without a journal.

    Raises:
        OSError: the journal cannot be read.
    """
    seal, mark = Seal(f"{path}.seal"), Mark(f"{path}.mark")
    sealed = seal.read()
    if not _size(path):
        return _without_database(path, sealed, mark, witness)
    evidence = StartEvidence(sealed=sealed)
    if sealed is None:
        if seal.exists():
            evidence.notes.append(f"{seal.path} is damaged: it is written again")
        _ask(path, witness, mark, evidence)
        return evidence
    try:
        found = _look(path, sealed)
    except sqlite3.Error as error:
        # Opening the store for writing reports it better; meanwhile nothing is proven.
        evidence.notes.append(f"{path} cannot be compared with its seal: {error}")
        return evidence
    evidence.has_log = found.log.frames > 0
    states = mark.read()
    if found.turn > sealed.turn or (
        found.turn == sealed.turn and not sealed.same_state(*found.state) and found.state in states
    ):
        evidence.notes.append(f"{seal.path} is older than {path}: it is written again")
        evidence.sealed = None
        if not evidence.has_log:  # a crash that leaves an older seal leaves a log
            _ask(path, witness, mark, evidence)
        return evidence
    evidence.finding = _compare(path, sealed, found, evidence)
    if evidence.finding is None and found.state not in states and not mark.is_withdrawn():
        # Seal and database agree, but both may be copies that are older than the mark.
        _ask(path, witness, mark, evidence, f"{mark.path} is of another one")
    if evidence.finding is None:
        evidence.is_sealed = True
    elif evidence.finding.code in RESTORABLE:
        evidence.is_restore = mark.is_withdrawn() and not evidence.has_log
    return evidence


def _ask(
    path: str, witness: Witness | None, mark: Mark, evidence: StartEvidence, doubt: str = ""
) -> None:
    """Ask the journal about a database whose seal is missing, invalid or in doubt."""
    if witness is None:
        return
    try:
        with read_only(path) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            meta = dict(connection.execute("SELECT key, value FROM meta")) if tables else {}
    except sqlite3.Error:
        return  # opening the store for writing reports it better
    is_new = "mark" not in meta
    if is_new and meta.get("next_id"):
        return  # written by a release without marks
    if not is_new and not meta.get("turn"):
        return  # written by a release without seals
    if not is_new and mark.is_withdrawn():
        return  # a restore, or one whose first start was killed
    heard = witness(*holdings_of(path))
    if is_new:
        if heard.missing:
            evidence.finding = _never_here(path, "is new, and has no messages", heard)
        return
    if not heard.missing:
        return
    words = (
        f"{path} does not have {len(heard.missing)} messages that {heard.source} says are there "
        f"({ranges(heard.missing)}), and "
        + (doubt or f"{path}.seal, which would know, is missing or damaged")
    )
    if heard.is_whole:
        evidence.finding = StoreFinding("rows-missing", words, heard.facts)
    else:
        evidence.notes.append(f"{words}. {heard.source} is damaged itself, so they may have ended")


def _never_here(path: str, how: str, heard: JournalTestimony) -> StoreFinding:
    """Return the finding for a store of which only the journal is left."""
    words = (
        f"{path} {how}, and a store was here: {heard.source} says that "
        f"{len(heard.missing)} messages are in it ({ranges(heard.missing)})"
    )
    return StoreFinding("database-missing", words, heard.facts, drops_log=True)


def ranges(ids: Sequence[int], most: int = 200) -> str:
    """Format ascending ids: ``1-5, 9, 12-20``.

    Args:
        ids: one at least.
        most: the approximate number of characters.
    """
    parts: list[str] = []
    start = last = ids[0]
    size = 0
    for each in (*ids[1:], -1):
        if each == last + 1:
            last = each
            continue
        parts.append(str(start) if start == last else f"{start}-{last}")
        size += len(parts[-1]) + 2
        if size > most and each >= 0:
            return ", ".join(parts) + ", ..."
        start = last = each
    return ", ".join(parts)


def _without_database(
    path: str, sealed: SealState | None, mark: Mark, witness: Witness | None
) -> StartEvidence:
    log = f"{path}-wal"
    bodies = BodyDirectory.of(path).look()
    tells = []
    if sealed is not None:
        held = "" if sealed.entry_totals is None else f" ({sealed.entry_totals[0]} entries)"
        tells.append(f"{path}.seal{held}")
    if mark.exists():
        tells.append(mark.path)
    if _has_octets(log):
        tells.append(log)
    if bodies:
        tells.append(f"{len(bodies)} files in {BodyDirectory.of(path).path}")
    how = "is missing" if _size(path) is None else "is empty"
    if not tells:
        heard = None if witness is None else witness(set(), ())
        found = _never_here(path, how, heard) if heard is not None and heard.missing else None
        return StartEvidence(found)
    words = f"{path} {how}, and a store was here: {', '.join(tells)}"
    facts: tuple[int | str, ...] = (
        how,
        _turn(sealed),
        *mark_facts(mark),
        len(bodies),
        _size(log) or 0,
    )
    return StartEvidence(
        StoreFinding("database-missing", words, facts, drops_log=True), sealed=sealed
    )


def mark_facts(mark: Mark) -> tuple[int, ...]:
    """Return the states in a mark as facts of a finding."""
    return tuple(number for state in mark.read() for number in state)


def _compare(
    path: str, sealed: SealState, found: _Found, evidence: StartEvidence
) -> StoreFinding | None:
    """Compare the database with a seal that is not older."""
    age: tuple[int | str, ...] = (sealed.turn, found.turn, sealed.log.hex(), found.log.log.hex())
    if evidence.has_log:
        finding = _compare_log(path, sealed, found, age)
        if finding is not None:
            return finding
    elif sealed.frames and not sealed.is_copied:
        finding = _without_log(path, sealed, found, evidence, age)
        if finding is not None:
            return finding
    if found.turn < sealed.turn:
        words = (
            f"{path} is older than {path}.seal says that it was: somebody has put an older copy "
            "in its place"
        )
        return StoreFinding("database-older", words, age)
    if not sealed.same_state(*found.state):
        words = f"{path} is not the database that {path}.seal is of, nor that of its mark"
        return StoreFinding("database-other", words, (*age, *found.state))
    if found.below is not None and found.below < found.round - 1:
        words = (
            f"{path} is older than its write-ahead log, which cannot be applied to it: somebody "
            "has put an older copy in its place"
        )
        return StoreFinding("database-older", words, (*age, found.below), drops_log=True)
    if (
        not evidence.has_log
        and sealed.is_copied
        and sealed.entry_totals is not None
        and found.entry_totals is not None
        and sealed.entry_totals != found.entry_totals
    ):
        evidence.notes.append(
            f"another program has changed {path} since it was closed: there were "
            f"{sealed.entry_totals[0]} entries, there are {found.entry_totals[0]}"
        )
    return None


def _compare_log(
    path: str, sealed: SealState, found: _Found, age: tuple[int | str, ...]
) -> StoreFinding | None:
    log = f"{path}-wal"
    if not sealed.frames or (sealed.is_copied and found.log.salt != sealed.salt):
        return None  # it has restarted since
    if found.log.salt != sealed.salt:
        ahead = int.from_bytes(found.log.salt[:4], "big") - int.from_bytes(sealed.salt[:4], "big")
        if 1 <= ahead & 0xFFFFFFFF < MOST_ROUNDS:
            return None  # a later round: the contents of the sealed one are in the database
        words = f"{log} is not the write-ahead log that {path}.seal is of, nor a later one"
        return StoreFinding("log-other", words, age, drops_log=True)
    if found.log.frames < sealed.frames:
        words = (
            f"{log} can be read up to frame {found.log.frames}, and {sealed.frames} were on the "
            "disk: it was cut short, or is damaged"
        )
        # Applying part of a copied log would bring old pages back.
        return StoreFinding("log-short", words, age, drops_log=sealed.is_copied)
    if _checksum_in(log, sealed.frames) != sealed.checksum:
        words = f"frame {sealed.frames} of {log} is another one than {path}.seal says"
        return StoreFinding("log-other", words, age, drops_log=True)
    return None


def _without_log(
    path: str, sealed: SealState, found: _Found, evidence: StartEvidence, age: tuple[int | str, ...]
) -> StoreFinding | None:
    log = f"{path}-wal"
    if (
        found.turn == sealed.turn
        and sealed.entry_totals is not None
        and found.entry_totals == sealed.entry_totals
    ):
        evidence.notes.append(
            f"{log} is gone, and all messages are there: another program has opened {path} since. "
            "If none has, receipts of the last messages are lost, and some may arrive twice"
        )
        return None
    if is_in_database(path, log, sealed.salt, sealed.frames, sealed.pages):
        return None  # its header is torn, but the database has all its frames
    size = _size(log)
    if size is None:
        what = "is missing"
    elif not _has_octets(log, HEADER):
        what = "is empty, or its header is"
    else:
        what = "has a damaged header"
    held = ""
    if sealed.entry_totals is not None and found.entry_totals is not None:
        before, after = sealed.entry_totals[0], found.entry_totals[0]
        held = f": there were {before} entries, without it there are {after}"
    words = f"{log} {what}, and {path} does not have what stood in its {sealed.frames} frames{held}"
    return StoreFinding("log-missing", words, age, drops_log=True)


def _look(path: str, sealed: SealState) -> _Found:
    """Read the database.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with read_only(path) as connection:
        # Everything of a young store is in its log: without it there are no tables.
        (tables,) = connection.execute(
            "SELECT count(*) FROM sqlite_schema WHERE name IN ('meta', 'entry_queue')"
        ).fetchone()
        meta = dict(connection.execute("SELECT key, value FROM meta")) if tables == 2 else {}
        read = SealState(0, 0, 0, 0, _position(path))
        entry_totals = None
        if not read.frames and (sealed.frames or sealed.is_copied):
            entry_totals = entry_totals_of(connection) if tables == 2 else (0, 0)
        below = _round_below(path) if read.frames else None
    state = (meta.get("mark", 0), meta.get("next_id", 1))
    return _Found(meta.get("turn", 0), meta.get("round", 0), state, read, below, entry_totals)


def _position(path: str) -> bytes:
    """Return the end of the log from the index that SQLite has just built."""
    try:
        with open(f"{path}-shm", "rb") as file:
            octets = file.read(40)[16:]
    except FileNotFoundError:
        return NO_LOG  # a database that has no write-ahead log yet
    return octets if len(octets) == len(NO_LOG) else NO_LOG


def _round_below(path: str) -> int | None:
    """Return the round of the database file without its log; None if it is unreadable.

    An interrupted checkpoint leaves pages of two ages. The two pages needed here, the first one and
    the only one of the table, are either whole or unreadable.
    """
    try:
        address = f"file:{quote(path)}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = connection.execute("SELECT value FROM meta WHERE key = 'round'").fetchall()
    except sqlite3.Error:
        return None
    return int(rows[0][0]) if rows else 0


def _checksum_in(log: str, number: int) -> tuple[int, int]:
    """Return the checksum stored in a frame of a log."""
    with open(log, "rb") as file:
        page_size = int.from_bytes(file.read(12)[8:12], "big")
        file.seek(HEADER + (number - 1) * (FRAME_HEADER + page_size))
        octets = file.read(FRAME_HEADER)
    return int.from_bytes(octets[16:20], "big"), int.from_bytes(octets[20:24], "big")


def _turn(sealed: SealState | None) -> int:
    return 0 if sealed is None else sealed.turn


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _has_octets(path: str, most: int = 1 << 16) -> bool:
    """Tell whether the beginning of a file has anything but zeros."""
    try:
        with open(path, "rb") as file:
            return any(file.read(most))
    except OSError:
        return False


# -- acceptance by the operator ------------------------------------------------------------------


class LossAcceptance:
    """The file by which an operator accepts one finding.

    Args:
        database: the file.
    """

    def __init__(self, database: str) -> None:
        self.path = f"{database}.accepted"

    def read(self) -> tuple[str, bool]:
        """Return the name of the finding, or empty; and whether to report losses to senders."""
        try:
            with open(self.path, encoding="utf-8") as file:
                finding = json.load(file)
            return str(finding["finding"]), bool(finding["report-senders"])
        except FileNotFoundError:
            return "", False
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self.path} cannot be read: {error}; remove it") from error

    def write(self, name: str, tells_senders: bool) -> None:
        """Write the file, durably.

        Raises:
            OSError: it could not be written.
        """
        fresh = f"{self.path}.new"
        with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"finding": name, "report-senders": tells_senders}, file)
            file.write("\n")
            file.flush()
            if os.geteuid() == 0:  # the daemon runs as another user, who has to read it
                folder = os.stat(os.path.dirname(self.path))
                os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
            os.fsync(file.fileno())
        os.rename(fresh, self.path)
        sync_path(os.path.dirname(self.path))

    def remove(self) -> None:
        """Remove the file, whose finding has been dealt with.

        Raises:
            OSError: it could not be removed.
        """
        if os.path.exists(self.path):
            os.unlink(self.path)
            sync_path(os.path.dirname(self.path))


def accept(
    path: str, name: str, tells_senders: bool = False, witness: Witness | None = None
) -> StoreFinding:
    """Make the next start continue in spite of a finding.

    Args:
        path: the database file.
        name: the name of the finding.
        tells_senders: report the messages that are missing to their senders.
        witness: see `examine`.

    Returns:
        The finding.

    Raises:
        StoreError: there is no such finding.
        OSError: the acceptance could not be written.
    """
    finding = examine(path, witness).finding
    if finding is None:
        raise StoreError(f"nothing contradicts {path}: there is nothing to accept")
    if finding.name != name:
        raise StoreError(f"the finding is not {name} but {finding.name}: {finding.words}")
    LossAcceptance(path).write(name, tells_senders)
    return finding


def refusal(finding: StoreFinding) -> StoreContradiction:
    """Return the error with which a start ends that has a finding."""
    return StoreContradiction(
        f"{finding.words}. Nothing was changed or deleted. See what is missing: amqproute store "
        "check; get back what can be read: amqproute store salvage --into DIRECTORY; or start "
        f"without it: amqproute store accept-loss {finding.name}; after a restore remove the mark "
        "as the README says",
        finding.name,
    )
