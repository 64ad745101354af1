# SPDX-License-Identifier: Apache-2.0
"""The state after a crash: kill -9 at any moment, and a log cut off at any record."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from amqproute.store.fsck import check
from tests.store.crash_child import body
from tests.store.rig import Model, StoreFixture

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KILLS = int(os.environ.get("AMQPROUTE_STORE_KILLS", "3"))
"""The number of kills of the child; some hundreds for a long campaign."""


def files_of(path: str) -> set[str]:
    """The names of the files of bodies that rows refer to."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT DISTINCT -payload FROM entry WHERE payload < 0")
        return {f"{number:012d}" for (number,) in found}
    finally:
        connection.close()


class KillTests(SynchronousTestCase):
    """SIGKILL of a process that writes."""

    def test_kill(self) -> None:
        """Nothing reported as committed is lost, nothing reported as dequeued comes back."""
        path = os.path.abspath(os.path.join(self.mktemp(), "queues.db"))
        chance = random.Random(20)
        stored: set[int] = set()
        ended: set[int] = set()
        shared: set[int] = set()
        large: set[int] = set()
        rounds = highest = 0
        for _ in range(KILLS):
            lines = self.run_child(path, chance.randrange(20, 600))
            round_base = 0
            for line in lines:
                word, number, *ids = line.split()
                if word == b"put":
                    # The child asks at once for the end of every second one; only the others
                    # have to be there for certain.
                    stored.update(map(int, ids[1::2]))
                    if int(number) % 4:
                        round_base = int(number)
                else:
                    ended.update(map(int, ids))
            rounds = round_base
            house = StoreFixture(path)
            recovery = house.open()
            # Nothing is left of what was not committed.
            self.assertEqual(set(os.listdir(path[:-3] + ".bodies")), files_of(path))
            held = {
                entry.id: entry
                for queue in recovery.queues
                for entry in house.load(queue, limit=1_000_000)
            }
            shared |= {entry.payload_id for entry in held.values()}
            next_id = house.store.next_id()
            for entry in held.values():
                if entry.rest is not None:
                    self.assertEqual(entry.encoded, b"head")
                    entry.encoded = house.reactor.wait(entry.rest.reader().read(1 << 20))
                    entry.rest = None
                    large.add(entry.id)
            house.close()
            self.assertEqual(check(path), [])
            self.assertNotIn("paged", recovery.queues)
            self.assertEqual(stored - ended - held.keys(), set(), "lost")
            self.assertEqual(ended & held.keys(), set(), "came back")
            for one in held.values():
                self.assertEqual(one.encoded, body(one.payload_id or one.id))
            self.assertGreaterEqual(int(recovery.notes["round"]["last"]), rounds)
            self.assertGreater(next_id, max(highest, *stored, *held))
            # What was written and not reported may be there or not; from now on it stays so.
            ended |= set(range(highest, max(stored | held.keys()) + 1)) - held.keys()
            stored |= held.keys()
            highest = next_id
        self.assertGreater(len(stored), 100)
        self.assertGreater(len(shared), 10)
        self.assertGreater(len(large), 0)

    def run_child(self, path: str, transactions: int) -> list[bytes]:
        """Start the child, kill it after so many reports; return all reports that came."""
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.store.crash_child", path],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line)
            if len(lines) == transactions:
                child.kill()
        child.stdout.close()
        child.wait()
        self.assertGreaterEqual(len(lines), transactions, "the child ended by itself")
        return lines


class CutTests(SynchronousTestCase):
    """A log of which only the beginning reached the disk."""

    def test_cut(self) -> None:
        """Cut at or within any frame, the log gives the state after some whole transactions."""
        base = self.mktemp()
        path = os.path.join(base, "queues.db")
        house = StoreFixture(path, page_size=4096, checkpoint_bytes=1 << 30)
        house.open()
        model = Model()
        states = [model.copy()]
        ids: list[int] = []
        chance = random.Random(7)
        for number in range(14):
            transaction = house.store.begin()
            for _ in range(chance.randrange(1, 6)):
                entry_id = house.store.next_id()
                row = ("q", entry_id, bytes([number]) * chance.randrange(6000), 1, 0, 0)
                transaction.enqueue(*row)
                model.enqueue(*row)
                ids.append(entry_id)
            share = (house.store.next_id(), bytes([number]) * chance.randrange(6000))
            topic = ["q", "r", "q"][: number % 4]
            shared = [house.store.next_id() for _ in topic]
            call = (topic, shared, share[0], len(share[1]), 1, 0, 0)
            both = ((transaction.share, model.share), share)
            many = ((transaction.enqueue_shared_many, model.enqueue_shared_many), call)
            change = (chance.choice(ids), 3, b"own" if number % 2 else None)
            for twins, arguments in (both, many, ((transaction.update, model.update), change)):
                for twin in twins:
                    twin(*arguments)
            ids += shared
            ended = [ids.pop(chance.randrange(len(ids))) for _ in range(min(4, len(ids)))]
            transaction.dequeue(ended)
            model.dequeue(ended)
            transaction.note("round", "last", b"%d" % number)
            model.note("round", "last", b"%d" % number)
            house.reactor.wait(transaction.commit())
            states.append(model.copy())
        # The files as a crash would find them: copied while the store is open.
        crashed = os.path.join(base, "crashed")
        os.mkdir(crashed)
        shutil.copy(path, crashed)
        with open(path + "-wal", "rb") as file:
            log = file.read()
        house.close()
        (page,) = struct.unpack(">I", log[8:12])
        frame = 24 + page
        reached = []
        # Behind the frames stand the zeros that the file was given beforehand.
        frames = -(-(len(log.rstrip(b"\0")) - 32) // frame)
        length = 32 + frame * frames
        self.assertGreater(len(log), length)
        cuts = [32 + frame * n for n in range(1 + frames)]
        cuts += [chance.randrange(length) for _ in range(10)]
        for number, cut in enumerate(sorted(cuts)):
            rest = bytes(frame * (number % 3))  # the end of the file, or zeros
            reached.append(self.state_at(crashed, log[:cut] + rest, states))
        self.assertEqual(reached, sorted(reached), "more log, never less state")
        self.assertEqual(reached[-1], len(states) - 1)
        self.assertEqual(set(reached), set(range(len(states))))

    def state_at(self, crashed: str, log: bytes, states: list[Model]) -> int:
        """The number of transactions that a store with this log holds."""
        path = os.path.join(crashed, "cut.db")
        for end in ("-shm", "-wal", "", ".seal"):
            if os.path.exists(path + end):
                os.remove(path + end)
        shutil.copy(os.path.join(crashed, "queues.db"), path)
        with open(path + "-wal", "wb") as file:
            file.write(log)
        house = StoreFixture(path)
        recovery = house.open()
        recovery.is_restored = False  # a log cut this far back is an older state, and is taken so
        note = recovery.notes.get("round", {}).get("last")
        number = 0 if note is None else int(note) + 1
        self.assertEqual(recovery, states[number].recovery())
        for queue in "qr":
            self.assertEqual(house.load(queue), states[number].queue(queue))
        house.close()
        self.assertEqual(check(path), [])
        return number
