# SPDX-License-Identifier: Apache-2.0
"""Damage to the files of the state directory, and the daemon's reaction.

A pair of real daemons leaves a state directory with accepted messages of all kinds. One file of a
copy is damaged, the daemon is started on it as a process, all its nodes are drained, it is stopped,
and what waits for a peer is read by the store's own reader. A case holds if it ends in one of these
ways:

* *nothing lost*: everything that was accepted has come, octet for octet;
* *named*: each message that did not come is named by the daemon's log, by the id of its entry;
* *refused*: the daemon ended with exit code 2 and words with a way out.

Anything else is listed: a message that is missing or changed without a word, one that comes twice,
a traceback, another exit code.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from amqproute.broker.xa_record import ROWS as BRANCH_ROWS
from amqproute.message import Message
from amqproute.tools.daemon_pair import free_ports
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Int
from tests.integration.support import (
    Daemon,
    Wire,
    Zone,
    body_of,
    message,
    new_directory,
    until,
)
from tests.integration.test_distributed_crash import Manager
from tests.network.campaign import Finding, Scenario
from tests.store.rig import StoreFixture
from tests.support.patience import PATIENCE

__all__ = ["GROUPS", "Case", "Damage", "Ground", "damaged"]

ORDERS: Final = "orders"
INBOX: Final = "inbox"
NEWS: Final = "news"
SUBSCRIBERS: Final = ("first", "second")
POSTED: Final = "posted"
XID: Final = [Int(1), b"damage", b"branch"]
DEAD: Final = "amqp$out/dead.example"
COPY_AGE_SECONDS: Final = 3600
"""The age of an older copy."""
BOUNDED: Final = ("missing", "empty", "half", "cut", "zero-tail", "zero-half", "older")

WAY_OUT: Final = re.compile(
    r"amqproute (?:store|journal|check|users|clock)|sqlite3 |put it back|\brm |chmod|remove |move "
)

GROUPS: Final[Mapping[str, str]] = {
    "database": r"store\.db$",
    "log": r"store\.db-(wal|shm)$",
    "bodies": r"store\.bodies/",
    "evidence": r"store\.db\.(mark|seal|lock|ballast)$",
    "journal": r"journal/",
    "rest": r"^(?!store\.|journal/)",
}
"""The files of the state directory that a scenario damages."""


COMBINED: Final = "combined"
"""The group of cases in which several files are damaged at once."""
BODIES: Final = "store.bodies"
ALL_OF_STORE: Final = ("store.db", "store.db-wal", "store.db-shm", "store.db.seal", "store.db.mark")
TOGETHER: Final = (
    (*ALL_OF_STORE, BODIES),
    ("store.db", "store.db.seal"),
    ("store.db", "store.db.mark"),
    ("store.db", BODIES),
    ("store.db", "store.db-wal"),
    ("store.db-wal", "store.db.mark"),
    ("store.db-wal", "store.db.seal"),
    ("store.db-wal", "store.db.seal", "store.db.mark"),
    ("store.db.seal", "store.db.mark"),
    ("store.db.seal", BODIES),
    ("store.db.seal", "journal/head"),
)
"""Files that are damaged together, a folder standing for all that is in it."""


@dataclass(frozen=True)
class Case:
    """One damage to one file, or to several.

    Attributes:
        file: its path within the state directory.
        kind: of the damage; ``flip`` is one bit.
        seed: where the bit is.
        also: further files and folders that are damaged in the same way.
    """

    file: str
    kind: str
    seed: int = 0
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = " ".join((self.file, *self.also))
        return f"{files} {self.kind}{f' {self.seed}' if self.kind == 'flip' else ''}"


def damaged(octets: bytes, case: Case, older: bytes | None) -> bytes | None:
    """Return what a file has after a damage; None if it is missing."""
    size = len(octets)
    match case.kind:
        case "missing":
            return None
        case "empty":
            return b""
        case "half":
            return octets[: size // 2]
        case "cut":
            return octets[:-1]
        case "zero-tail":
            return octets[: -min(size, 4096)] + bytes(min(size, 4096))
        case "zero-half":
            return octets[: size // 2] + bytes(size - size // 2)
        case "older":
            return older
        case _:
            chance = random.Random(f"{case.file} {case.seed}")
            # Every other bit among what is not zero at the end: files have their length beforehand.
            used = len(octets.rstrip(b"\0")) if case.seed % 2 else size
            at = chance.randrange(max(1, used))
            changed = bytearray(octets)
            changed[at] ^= 1 << chance.randrange(8)
            return bytes(changed)


@dataclass
class Outcome:
    """The result of a case: one word, and the broken claim."""

    verdict: str
    broken: str = ""


@dataclass
class Ground:
    """A state directory in three states, and the daemon that is started on copies of it.

    Attributes:
        accepted: queue to the ids of its entries, each with the digest of its body.
        published: digests of all bodies, those that have left as well.
        snapshots: ``stopped``, ``killed``, and ``older``, which was before both.
    """

    messages: int = 60
    zone: Zone = field(default_factory=Zone)
    directory: Path = field(default_factory=lambda: new_directory("damage"))
    accepted: dict[str, dict[int, str]] = field(default_factory=dict)
    snapshots: dict[str, Path] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    _is_held: bool = False

    def __enter__(self) -> Ground:
        nodes = [
            {"name": ORDERS},
            {"name": INBOX},
            {"name": POSTED},
            {"name": NEWS, "type": "topic"},
        ]
        changes = {"nodes": nodes, "distributed-transactions": {"enabled": True}}
        self.alpha = Daemon("alpha.example", nameserver=self.zone.port, changes=changes)
        self.beta = Daemon("beta.example", nameserver=self.zone.port)
        self.zone.point("alpha.example", self.alpha.tls)
        self.zone.point("beta.example", self.beta.tls)
        self.zone.point("dead.example", *free_ports(1))  # where nobody listens
        self.state = self.alpha.directory / "state"
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.alpha.kill()
        self.beta.kill()
        self.zone.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- what is damaged -----------------------------------------------------------------------

    def _make(self) -> None:
        self.beta.start()
        self.alpha.start()
        for name in SUBSCRIBERS:
            self._subscribe(name)
        self._publish(0)
        self._prepare()
        self.alpha.stop()
        self.snapshots["older"] = self._copy("older")
        self.alpha.start()
        self._publish(1)
        with Wire(self.alpha.plain) as wire:
            wire.consume(ORDERS, 5)
        self._settled()
        self.alpha.kill()
        self.snapshots["killed"] = self._copy("killed")
        self.alpha.start()
        self.alpha.stop()
        self.snapshots["stopped"] = self._copy("stopped")
        self.beta.stop()
        path = self._copy("read") / "store.db"
        self.accepted = self._rows(path)

    def _copy(self, name: str) -> Path:
        folder = self.directory / name
        _copy(self.state, folder)
        return folder

    def _subscribe(self, name: str) -> None:
        source = spec.Source(address=NEWS, durable=2, expiry_policy="never")
        with Wire(self.alpha.plain, container=name) as wire:
            wire.attach("receiver", NEWS, name=f"{name}-link", source=source)

    def _prepare(self) -> None:
        """Post messages in a branch of a distributed transaction, and prepare it."""
        manager = Manager(self.alpha.plain)
        code, found = manager.ask("start", XID)
        state = spec.TransactionalState(txn_id=found["txn-id"])
        bodies = [b"t:%d:" % one + b"y" * (40_000 if one == 4 else 300) for one in range(5)]
        with Wire(self.alpha.plain) as wire:
            link = wire.attach("sender", POSTED)
            sent = [
                link.send((message(one),), b"%d" % number, state=state)
                for number, one in enumerate(bodies)
            ]
            wire.wait(lambda _: all(type(one.state) is spec.TransactionalState for one in sent))
            wire.attach("sender", POSTED).detach()  # answered after the postings
            wire.flush()
            codes = {code, *(manager.ask(each, XID)[0] for each in ("end", "prepare"))}
        manager.wire.socket.close()
        if codes != {0}:
            raise AssertionError(f"the branch is not prepared: {codes}")

    def _commit(self) -> bool:
        """Commit the branch, if the daemon still has it; return whether it refused in words.

        A branch of which one message is damaged is not committed in part: it stays prepared, its
        manager is told why, and may roll it back.
        """
        manager = Manager(self.alpha.plain)
        try:
            return XID[1] in manager.recover() and manager.ask("commit", XID)[0] != 0
        finally:
            manager.wire.socket.close()

    def _publish(self, turn: int) -> None:
        count = self.messages // 2
        bodies = [b"%d:%d:" % (turn, one) + b"x" * (200 + one) for one in range(count)]
        large = [
            b"%d:large:%d:" % (turn, one) + bytes([65 + one]) * 40_000 for one in range(count // 6)
        ]
        huge = [b"%d:huge:" % turn + random.Random(turn).randbytes(1_500_000)]
        every = (*bodies, *large, *huge, b"last")
        made = (message(one + each) for one in (b"o:", b"n:", b"d:", b"i:") for each in every)
        self.published.update(_hash(body_of(each)) for each in made)
        with Wire(self.alpha.plain) as wire:
            wire.publish(ORDERS, [message(b"o:" + one) for one in (*bodies, *large, *huge)])
            wire.publish(NEWS, [message(b"n:" + one) for one in (*bodies[:20], *large[:2])])
            away = [message(b"d:" + one) for one in (*bodies, *large)]
            wire.publish("orders@dead.example", away)
        with Wire(self.beta.plain) as wire:
            wire.publish(f"{INBOX}@alpha.example", [message(b"i:" + one) for one in bodies])
        self._arrived(count * (turn + 1))

    def _arrived(self, count: int) -> None:
        """Wait until what beta relays is in alpha's store."""

        def there() -> bool:
            said = self._amqproute("queue", "show", INBOX, "--json")
            found = re.search(r'"depth": (\d+)', said)
            return found is not None and int(found[1]) >= count

        until(there, f"{count} messages in {INBOX}")

    def _settled(self) -> None:
        """Wait until the store has let go of what was consumed: a later commit says so.

        And until the journal, which is up to a second behind, has it: what it does not know yet at
        a kill it cannot name.
        """
        last = message(b"o:last")
        with Wire(self.alpha.plain) as wire:
            wire.publish(ORDERS, [last])
        digest = hashlib.sha256(Message(last).bare).hexdigest()

        def noted() -> bool:
            segments = (self.state / "journal").rglob("*.jsonl")
            return any(digest in each.read_text(errors="replace") for each in segments)

        until(noted, "the last message in the journal", 60.0)

    def _amqproute(self, *words: str) -> str:
        command = [*AMQPROUTE, *words, "--url", f"amqp://127.0.0.1:{self.alpha.plain}"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return done.stdout

    def _rows(self, path: Path) -> dict[str, dict[int, str]]:
        """Return what a store holds, as its own reader gives it."""
        house = StoreFixture(str(path))
        recovery = house.open()
        found: dict[str, dict[int, str]] = {}
        try:
            for queue in recovery.queues:
                found[queue] = {}
                after = 0
                while page := house.load(queue, after):
                    for entry in page:
                        found[queue][entry.id] = _digest(house, entry)
                    after = page[-1].id
        finally:
            house.close()
        return found

    # -- a case --------------------------------------------------------------------------------

    def files(self, snapshot: str) -> list[str]:
        """Return the files of a snapshot, as paths within the state directory."""
        folder = self.snapshots[snapshot]
        return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())

    def cases(self, snapshot: str, group: str, flips: int) -> Iterator[Case]:
        """Yield all damages to the files of a group."""
        if group == COMBINED:
            there = {*self.files(snapshot), BODIES}
            for together in TOGETHER:
                chosen = [each for each in together if each in there]
                if len(chosen) > 1:
                    for kind in ("missing", "empty", "half", "older"):
                        yield Case(chosen[0], kind, also=tuple(chosen[1:]))
            return
        pattern = re.compile(GROUPS[group])
        for file in filter(pattern.search, self.files(snapshot)):
            size = (self.snapshots[snapshot] / file).stat().st_size
            for kind in BOUNDED:
                if kind == "older" and not (self.snapshots["older"] / file).exists():
                    continue
                if size or kind == "missing":
                    yield Case(file, kind)
            if size:
                yield from (Case(file, "flip", seed) for seed in range(flips))

    def run(self, snapshot: str, case: Case) -> Outcome:
        """Damage a copy, start the daemon on it, and compare."""
        shutil.rmtree(self.state, ignore_errors=True)
        _copy(self.snapshots[snapshot], self.state)
        for file in (self.state / "store.db.mark", self.state / "journal" / "head"):
            _restamp(file)
        for name in (case.file, *case.also):
            path = self.state / name
            for file in filter(Path.is_file, path.rglob("*")) if path.is_dir() else (path,):
                self._damage(file, case)
        self.alpha.log_file.unlink(missing_ok=True)
        self.alpha.spawn()
        try:
            try:
                self.alpha.wait_ready()
            except AssertionError:
                return self._refused()
            got = self._drain()
            code = self.alpha.stop()
        finally:
            self.alpha.kill()
        if code:
            return Outcome("failed", f"exit code {code} at the end: {self._last_words()}")
        return self._compare(got)

    def _damage(self, file: Path, case: Case) -> None:
        older = self.snapshots["older"] / file.relative_to(self.state)
        octets = damaged(file.read_bytes(), case, older.read_bytes() if older.exists() else None)
        if octets is None:
            file.unlink()
            return
        with file.open("r+b") as opened:
            opened.write(octets)
            opened.truncate(len(octets))
        if case.kind == "older":
            _restamp(file, COPY_AGE_SECONDS)

    def _refused(self) -> Outcome:
        process = self.alpha.process
        code = None if process is None else process.poll()
        log = self.alpha.log()
        if "Traceback" in log:
            return Outcome("failed", f"a traceback: {self._last_words()}")
        if code != 2:
            return Outcome("failed", f"exit code {code}: {self._last_words()}")
        if not WAY_OUT.search(log):
            return Outcome("failed", f"refused without a way out: {self._last_words()}")
        return Outcome("refused")

    def _drain(self) -> dict[str, Counter[str]]:
        got: dict[str, Counter[str]] = {}
        self._is_held = self._commit()
        for node, rows in ((ORDERS, ORDERS), (INBOX, INBOX), (POSTED, BRANCH_ROWS)):
            with Wire(self.alpha.plain) as wire:
                got[rows] = _take(wire, node)
        for name in SUBSCRIBERS:
            source = spec.Source(address=NEWS, durable=2, expiry_policy="never")
            with Wire(self.alpha.plain, container=name) as wire:
                got[name] = _take(wire, NEWS, name=f"{name}-link", source=source)
        return got

    def _compare(self, got: dict[str, Counter[str]]) -> Outcome:
        log = self.alpha.log()
        if "Traceback" in log:
            return Outcome("failed", f"a traceback: {log[log.index('Traceback') :][:900]}")
        left = self._rows(self.state / "store.db")
        silent: list[str] = []
        absent = _listed(log)
        is_restored = "messages that had left since the backup arrive twice" in " ".join(
            log.split()
        )
        named = 0
        for queue, entries in self.accepted.items():
            digests = Counter(entries.values())
            if queue == DEAD:
                came = Counter(left.get(DEAD, {}).values())
            else:
                name = next((one for one in SUBSCRIBERS if one in queue), queue)
                came = got.get(name, Counter())
                if queue == BRANCH_ROWS and self._is_held:
                    came = came + Counter(left.get(queue, {}).values())
            changed = came - digests
            if is_restored and self.published.issuperset(changed):
                named += sum(changed.values())  # what had left since has come back, and it says so
            elif changed:
                return Outcome("failed", f"{queue}: {sum(changed.values())} changed or came twice")
            missing = digests - came
            for entry_id, digest in entries.items():
                if missing[digest]:
                    missing[digest] -= 1
                    if entry_id in absent or re.search(rf"(?:entry|message) {entry_id}\b", log):
                        named += 1
                    else:
                        there = (
                            "" if digest not in left.get(queue, {}).values() else ", in the store"
                        )
                        silent.append(f"{queue} {entry_id}{there}")
        if silent:
            return Outcome("failed", f"lost without a word: {len(silent)} ({silent[0]}, ...)")
        return Outcome("named" if named else "nothing lost")

    def _last_words(self) -> str:
        return self.alpha.log()[-400:]


AMQPROUTE: Final = (sys.executable, "-m", "amqproute")


def _listed(log: str) -> set[int]:
    """Return the entries that the log says the journal has and the store has not."""
    found: set[int] = set()
    for ids in re.findall(r"although the journal has them: ([0-9, -]+);", log):
        for part in ids.split(", "):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def _copy(source: Path, target: Path) -> None:
    subprocess.run(
        ["cp", "-a", "--sparse=always", str(source), str(target)], check=True, timeout=PATIENCE
    )


def _restamp(file: Path, age: float = 0) -> None:
    """Have a file that tells copies from originals say that it was written this many seconds ago.

    Without an age it is an original in this directory; with one it is a copy as old as that, though
    the whole scenario may have begun a few seconds ago.
    """
    if not file.exists():
        return
    ns = time.time_ns() - int(age * 1e9)
    if file.name == "store.db.mark":
        file.write_text(re.sub(r"(?<= at )\d+", str(ns), file.read_text()))
    elif file.name == "head":
        written = f"{ns // 1000}"
        file.write_text(re.sub(r'(?<="written_us": )\d+', written, file.read_text()))


def _take(wire: Wire, node: str, **options: Any) -> Counter[str]:
    """Consume what a node has, until it answers that there is no more (part 2 §2.6.7, drain)."""
    found: Counter[str] = Counter()
    link = wire.attach("receiver", node, **options)
    link.flow(10_000, drain=True)

    def drained() -> bool:
        is_detached = False
        for event in wire.read():
            if type(event) is ev.DeliveriesReceived:
                found.update(_hash(body_of(each.payload)) for each in event.deliveries)
                wire.session.settle(event.deliveries, spec.Accepted(), True)
            is_detached |= type(event) is ev.LinkDetached
        wire.flush()
        return link.credit == 0 or is_detached

    until(drained, f"all messages of {node}")
    return found


def _hash(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()


def _digest(house: StoreFixture, entry: Any) -> str:
    octets: bytes = entry.encoded
    if entry.rest is not None:
        reader = entry.rest.reader()
        while reader.left:
            octets += house.reactor.wait(reader.read(1 << 20))
        reader.close()
    return _hash(body_of(octets))


@dataclass(frozen=True)
class Damage(Scenario):
    """Files of a state directory are damaged, one at a time

    Attributes:
        snapshot: how the daemon ended: ``stopped`` or ``killed``.
        group: which files; a name of `GROUPS`.
        flips: bits that are changed in each file, one in each case.
        messages: published to each node, about.
    """

    claim: ClassVar[str] = (
        "in each case nothing is lost, or each lost message is named, or the start is refused "
        "with exit code 2 and a remedy"
    )

    snapshot: str = "stopped"
    group: str = "database"
    flips: int = 200
    messages: int = 60

    @property
    def title(self) -> str:
        """Damaged files, with the state of the daemon."""
        return f"{self.group} of a {self.snapshot} daemon"

    def run(self, finding: Finding) -> None:
        """Run all cases."""
        with Ground(self.messages) as ground:
            verdicts: Counter[str] = Counter()
            cases = list(ground.cases(self.snapshot, self.group, self.flips))
            _run_all(ground, self.snapshot, cases, verdicts, finding)
            finding.figures["files"] = len({case.file for case in cases})
            finding.figures["accepted messages"] = sum(map(len, ground.accepted.values()))
        finding.figures["cases"] = sum(verdicts.values())
        for verdict in ("nothing lost", "named", "refused", "failed"):
            finding.figures[verdict] = verdicts[verdict]


def _run_all(
    ground: Ground,
    snapshot: str,
    cases: Sequence[Case],
    verdicts: Counter[str],
    finding: Finding,
) -> None:
    for case in cases:
        try:
            outcome = ground.run(snapshot, case)
        except Exception as error:
            outcome = Outcome("failed", f"{type(error).__name__}: {error}"[:600])
            ground.alpha.kill()
        verdicts[outcome.verdict] += 1
        finding.hold(not outcome.broken, f"{case}: {outcome.broken}")
