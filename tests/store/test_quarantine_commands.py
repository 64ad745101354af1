# SPDX-License-Identifier: Apache-2.0
"""Damaged messages in quarantine: commands for operators."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreError
from amqproute.store import quarantine_commands, start_evidence
from amqproute.store.fsck import check
from amqproute.store.large_bodies import CHUNK_BYTES
from amqproute.store.quarantine_commands import drop, listed, octets_of, release
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.spec import Properties
from tests.store.rig import StoreFixture


def encoded(name: str, size: int = 10) -> bytes:
    head = codec.encode(Properties(message_id=name, to="q@beta.example"))
    return head + b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + b"x" * size


class QuarantinedTests(SynchronousTestCase):
    """One message of each place where octets can stand, all damaged, and a sound one."""

    def setUp(self) -> None:
        self.path = os.path.abspath(os.path.join(self.mktemp(), "store.db"))
        house = self.house = self.begin()
        (self.sound,) = house.put("q", encoded("sound"))
        self.own, self.large = house.put("q", encoded("own"), encoded("large", 3000))
        payload, self.shared, other = (house.store.next_id() for _ in range(3))
        transaction = house.store.begin()
        transaction.share(payload, encoded("shared"))
        size = len(encoded("shared"))
        transaction.enqueue_shared_many(["q", "r"], [self.shared, other], payload, size, 1, 0, 0)
        house.reactor.wait(transaction.commit())
        house.close()
        self.change(
            f"UPDATE entry SET octets_crc = octets_crc + 1 WHERE id IN ({self.own}, {self.large})",
            f"UPDATE entry SET row_sum = row_sum + 1 WHERE id = {self.shared}",
        )
        self.bad = [self.own, self.large, self.shared]
        self.load()

    def begin(self) -> StoreFixture:
        house = StoreFixture(self.path, file_bytes=1000)
        house.open()
        self.addCleanup(house.close)
        return house

    def change(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def load(self, queue: str = "q") -> dict[int, bytes]:
        """Start the store, read a queue, stop; return its entries."""
        house = self.begin()
        found = {entry.id: entry.encoded for entry in house.load(queue)}
        house.close()
        return found

    def test_listed(self) -> None:
        """All of them, with what can be read, also while the daemon runs."""
        house = self.begin()
        found = listed(self.path)
        house.put("q", b"goes on")
        house.close()
        self.assertEqual([one.entry for one in found], self.bad)
        self.assertEqual([one.message_id for one in found], ["own", "large", "shared"])
        self.assertEqual({one.to for one in found}, {"q@beta.example"})
        self.assertIn("columns", found[2].why)
        self.assertEqual(octets_of(self.path, self.large), encoded("large", 3000))
        self.assertEqual(octets_of(self.path, self.shared), encoded("shared"))
        self.assertRaises(StoreError, octets_of, self.path, self.sound)

    def test_release(self) -> None:
        """Each is on the queue that was named, under a new id, and matches its checksums."""
        given = release(self.path, self.bad, "new")
        self.assertEqual(list(given), self.bad)
        self.assertTrue(min(given.values()) > max(self.bad))
        self.assertIsNone(start_evidence.examine(self.path).finding)
        self.assertEqual(listed(self.path), [])
        wanted = [encoded("own"), encoded("large", 3000), encoded("shared")]
        self.assertEqual(self.load("new"), dict(zip(given.values(), wanted, strict=True)))
        self.assertEqual(list(self.load()), [self.sound])
        self.assertEqual(self.load("r").popitem()[1], encoded("shared"))
        self.assertEqual(check(self.path), [])

    def test_no_message(self) -> None:
        """An entry that is no message any more is not released, nor others beside it."""
        self.change(f"UPDATE entry SET encoded = x'00ff00' WHERE id = {self.own}")
        error = self.assertRaises(StoreError, release, self.path, [self.large, self.own], "q")
        self.assertIn("no longer a message", str(error))
        self.assertEqual([one.entry for one in listed(self.path)], self.bad)
        self.assertEqual(octets_of(self.path, self.own), b"\x00\xff\x00")

    def test_drop(self) -> None:
        """Given up for good, with what belonged to them only."""
        self.assertRaises(StoreError, drop, self.path, [self.own, self.sound])
        self.assertEqual(len(listed(self.path)), 3)
        drop(self.path, self.bad)
        self.assertEqual(listed(self.path), [])
        self.assertEqual(list(self.load()), [self.sound])
        self.assertEqual(check(self.path), [])

    def test_after_a_kill(self) -> None:
        """The log that a crash has left is no obstacle, nor is a crash in between."""
        house = self.begin()
        house.put("q", encoded("since"))
        killed = os.path.join(self.mktemp(), "store.db")
        shutil.copytree(os.path.dirname(self.path), os.path.dirname(killed))
        house.close()
        self.path = os.path.abspath(killed)

        def crash(path: str, connection: sqlite3.Connection) -> None:
            crashes.append(path)
            shutil.copytree(os.path.dirname(path), f"{self.path}-{len(crashes)}")
            seal(path, connection)

        crashes: list[str] = []
        seal = quarantine_commands._seal
        self.patch(quarantine_commands, "_seal", crash)
        drop(self.path, [self.own])
        self.assertEqual(len(crashes), 2)
        for path in (self.path, f"{self.path}-1/store.db", f"{self.path}-2/store.db"):
            self.path = path
            self.assertEqual(len(self.load()), 2)

    def test_very_large(self) -> None:
        """Of a file with the rest of a message the octets are read as they are."""
        house = self.begin()
        sizes: list[int] = []
        draft = house.store.draft(sizes.append)
        octets = os.urandom(CHUNK_BYTES + 5)
        draft.append([octets])
        body = house.reactor.wait(draft.finish())
        entry = house.store.next_id()
        transaction = house.store.begin()
        head = encoded("huge")
        transaction.enqueue("q", entry, head, 1, 0, 0, body)
        house.reactor.wait(transaction.commit())
        house.close()
        self.change(f"UPDATE entry SET queue = -1, row_sum = row_sum + 1 WHERE id = {entry}")
        self.assertEqual(octets_of(self.path, entry), head + octets)
        (fresh,) = release(self.path, [entry], "big").values()
        house = self.begin()
        (found,) = house.load("big")
        self.assertEqual((found.id, found.encoded), (fresh, head))
        reader = found.rest.reader()
        read = b""
        while reader.left:
            read += house.reactor.wait(reader.read(1 << 20))
        reader.close()
        self.assertEqual(read, octets)
        house.close()

    def test_flipped_bits(self) -> None:
        """Octets that really changed on the disk, in a file of bodies and in the database."""
        house = self.begin()
        in_row, in_file = house.put("w", encoded("row", 99), encoded("file", 3000))
        house.close()
        (body,) = (
            path
            for path in Path(self.path).parent.glob("store.bodies/0*")
            if encoded("file", 3000) in path.read_bytes()
        )
        for path, whole in ((body, encoded("file", 3000)), (Path(self.path), encoded("row", 99))):
            octets = path.read_bytes()
            at = octets.index(whole) + len(whole) - 7
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes((octets[at] ^ 1,)))
        self.assertEqual(self.load("w"), {})
        found = {one.entry: one for one in listed(self.path) if one.entry in (in_row, in_file)}
        self.assertEqual(
            {entry: one.message_id for entry, one in found.items()},
            {in_row: "row", in_file: "file"},
        )
        self.assertTrue(all("do not match their checksum" in one.why for one in found.values()))
        shown = octets_of(self.path, in_file)
        self.assertNotEqual(shown, encoded("file", 3000))
        self.assertEqual(shown.count(b"y"), 1)  # an x with its lowest bit flipped
        fresh = release(self.path, [in_file], "w")
        self.assertEqual(self.load("w"), {fresh[in_file]: shown})
        drop(self.path, [in_row])
        left = [one.entry for one in listed(self.path)]
        self.assertNotIn(in_row, left)
        self.assertRaises(StoreError, octets_of, self.path, in_row)
        self.assertEqual([line for line in check(self.path) if "quarantine" not in line], [])

    def test_finding(self) -> None:
        """Nothing is changed in a store that contradicts itself."""
        os.unlink(self.path)
        Path(self.path).touch()
        self.assertRaises(StoreError, drop, self.path, [self.own])
