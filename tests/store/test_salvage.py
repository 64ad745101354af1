# SPDX-License-Identifier: Apache-2.0
"""Recovery of data from a damaged store."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from amqproute.errors import StoreDamaged, StoreError
from amqproute.message import Message
from amqproute.store.salvage import PAGE_SIZE, SalvageSummary, salvage
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.spec import Properties
from tests.store.rig import StoreFixture
from tests.store.test_damage import FRAME, MESSAGES, Rig, body


class SalvageTests(Rig):
    def got(self, path: Path, aside: int = 0) -> tuple[SalvageSummary, list[int]]:
        """Salvage, put it in place as the command says, open; return it and the ids there."""
        before = self.files(path)
        folder = self.base / f"{path.parent.name}.salvaged"
        found = salvage(str(path), str(folder))
        self.assertEqual((folder / "store.bodies").stat().st_mode & 0o777, 0o700)
        self.assertEqual(self.files(path), before)
        self.assertEqual(json.loads((folder / "report.json").read_text()), found.facts())
        for end in ("-wal", "-shm", ".mark"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        shutil.copy(folder / "store.db", path)
        shutil.copytree(folder / "store.bodies", path.parent / "store.bodies", dirs_exist_ok=True)
        ids = self.held(path)
        self.assertEqual(sum(found.entries.values()), len(ids) + aside)
        return found, ids

    def test_sound(self) -> None:
        """Of a store that is not damaged all is there, log or no log."""
        found, ids = self.got(self.killed)
        self.assertEqual((found.is_complete, found.lost, ids), (True, [], self.ids))

    def test_damaged_frame(self) -> None:
        """A page that was written again later does not need its damaged version."""
        with open(f"{self.killed}-wal", "r+b") as file:
            file.seek(32 + 60 * FRAME + 500)
            file.write(b"\xff\x00\xff")
        found, ids = self.got(self.killed)
        self.assertIn("1 damaged", found.log)
        self.assertGreaterEqual(len(ids), MESSAGES - 5)

    def test_header(self) -> None:
        """A log without its header has all its frames."""
        with open(f"{self.killed}-wal", "r+b") as file:
            file.write(bytes(32))
        _, ids = self.got(self.killed)
        self.assertEqual(ids, self.ids)

    def test_header_and_page_size(self) -> None:
        """The database gives the length of its frames, whatever size its pages have."""
        for page_size in (512, PAGE_SIZE // 2, 65536):
            path = self.base / f"live-{page_size}" / "store.db"
            house = StoreFixture(str(path), page_size=page_size)
            house.open()
            ids = house.put("q", *map(body, range(30)))
            copy = self.copy(f"killed-{page_size}", path)
            house.close()
            with open(f"{copy}-wal", "r+b") as file:
                file.write(bytes(32))
            found = salvage(str(copy), str(self.base / f"salvaged-{page_size}"))
            self.assertEqual(sum(found.entries.values()), len(ids), page_size)

    def test_without_database(self) -> None:
        """All pages of a young store are in its log."""
        self.killed.unlink()
        _, ids = self.got(self.killed)
        self.assertEqual(ids, self.ids)

    def test_cut(self) -> None:
        """Missing bodies are reported; bodies without a row are counted."""
        os.truncate(f"{self.killed}-wal", 32 + 80 * FRAME)
        found, ids = self.got(self.killed)
        self.assertFalse(found.is_complete)
        self.assertTrue(any("is gone" in words for words in found.lost), found.lost)
        self.assertTrue(0 < len(ids) < MESSAGES)
        self.assertEqual(ids, self.ids[: len(ids)])

    def test_damaged_pages(self) -> None:
        """Rows on other pages than the damaged ones are read."""
        path = self.stopped()
        connection = sqlite3.connect(path)
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'entry'"
        ).fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.close()
        octets = bytearray(path.read_bytes())
        leaves = [
            page
            for page in range(2, pages + 1)
            if octets[(page - 1) * 8192] == 0x0D and page != root
        ]
        at = (leaves[len(leaves) // 2] - 1) * 8192
        octets[at : at + 8192] = bytes(8192)
        path.write_bytes(octets)
        found, ids = self.got(path)
        self.assertFalse(found.is_complete)
        self.assertTrue(found.lost)
        self.assertTrue(MESSAGES // 2 < len(ids) <= MESSAGES, len(ids))

    def changed(self, *statements: str) -> Path:
        """Stop the store, and change its rows behind its back."""
        path = self.stopped()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
        return path

    def test_damaged_checksums(self) -> None:
        """Messages that do not match are named and kept; the store starts, and sets them aside."""
        one, two, three = self.ids[1:4]
        path = self.changed(
            f"UPDATE entry SET row_sum = row_sum + 1 WHERE id = {one}",
            f"UPDATE entry SET octets_crc = NULL WHERE id = {two}",
            f"UPDATE entry SET encoded = x'00' WHERE id = {three}",
        )
        found, ids = self.got(path, 3)
        self.assertFalse(found.is_complete)
        self.assertEqual(ids, [each for each in self.ids if each not in (one, two, three)])
        for each in (one, two, three):
            self.assertTrue(any(words.startswith(f"entry {each}:") for words in found.lost))

    def test_quarantined(self) -> None:
        """Set-aside messages stay so, whether pages or rows are copied."""
        path = self.changed(f"UPDATE entry SET encoded = x'00' WHERE id = {self.ids[1]}")
        self.assertEqual(len(self.held(path)), MESSAGES - 1)
        other = self.copy("by-rows", path)
        found, ids = self.got(path, 1)
        self.assertEqual(found.lost, [])
        self.assertEqual(found.entries["(in quarantine)"], 1)
        with closing(sqlite3.connect(other)) as connection:
            (root,) = connection.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'entry_queue'"
            ).fetchone()
        with open(other, "r+b") as file:
            file.seek((root - 1) * 8192)
            file.write(bytes(8192))
        found, again = self.got(other, 1)
        self.assertEqual(again, ids)
        self.assertEqual(found.entries["(in quarantine)"], 1)
        self.assertEqual(found.lost, [])

    def test_small_rows(self) -> None:
        """Receipts, notes and names that are damaged are left out, and said; the store starts."""
        transaction = self.house.store.begin()
        transaction.note("kind", "key", b"value")
        transaction.note("kind", "other", b"value")
        transaction.mark_received("stream", [1, 2])
        self.house.reactor.wait(transaction.commit())
        sound = self.stopped()
        for number, bad in enumerate(("'kez'", "CAST(x'6be979' AS TEXT)")):
            path = self.copy(f"again-{number}", sound)
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(f"UPDATE note SET key = {bad} WHERE key <> 'other'")
                connection.execute(f"UPDATE receipt SET stream = {bad}")
                connection.execute(f"UPDATE queue SET name = {bad}")
            house = StoreFixture(str(path), file_bytes=2000)
            error = self.assertRaises(StoreDamaged, house.open)
            self.assertIn("store salvage", str(error))
            found = salvage(str(path), str(self.base / f"small-{number}"))
            self.assertFalse(found.is_complete)
            self.assertEqual(len(found.lost), 3, found.lost)
            house = StoreFixture(str(self.base / f"small-{number}" / "store.db"), file_bytes=2000)
            recovery = house.open()
            (name,) = recovery.queues
            self.assertTrue(name.startswith("salvaged-"))
            self.assertEqual(recovery.notes, {"kind": {"other": b"value"}})
            self.assertEqual(recovery.received, {})
            house.close()

    def test_missing_file(self) -> None:
        path = self.stopped()
        (one, *_) = sorted((path.parent / "store.bodies").iterdir())
        one.unlink()
        found, ids = self.got(path)
        kept = [each for n, each in enumerate(self.ids) if len(body(n)) < 2000]
        self.assertEqual(ids, kept)
        self.assertIn("is missing", found.lost[0])

    def test_nothing(self) -> None:
        folder = str(self.base / "nothing")
        self.assertRaises(StoreError, salvage, str(self.base / "no" / "store.db"), folder)
        os.mkdir(folder)
        self.assertRaises(StoreError, salvage, str(self.killed), folder)

    def test_full(self) -> None:
        """Unwritable files are reported, with the cure; the originals are as they were."""
        before = self.files(self.killed)

        def fails(source: str, target: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(shutil, "copyfile", fails)
        folder = str(self.base / "full")
        error = self.assertRaises(StoreError, salvage, str(self.killed), folder)
        self.assertIn("No space left on device", str(error))
        self.assertIn("remove it", str(error))
        self.assertEqual(self.files(self.killed), before)
        beneath = str(self.killed / "x")
        self.assertRaises(StoreError, salvage, str(self.killed), beneath)

    def test_orphans(self) -> None:
        """Messages in a file that no row names come out one by one."""
        path = self.base / "new" / "store.db"
        house = StoreFixture(str(path), file_bytes=2000)
        house.open()
        encoded = [
            codec.encode(Properties(message_id=f"m{n}", to="q@beta.example"))
            + b"\x00\x53\x75\xb0"
            + (3000).to_bytes(4, "big")
            + b"%d" % n * 3000
            for n in range(3)
        ]
        house.put("q", *encoded)
        house.close()
        path.unlink()
        folder = self.base / "orphans"
        found = salvage(str(path), str(folder))
        self.assertEqual([one["message-id"] for one in found.orphans], ["m0", "m1", "m2"])
        self.assertEqual({one["to"] for one in found.orphans}, {"q@beta.example"})
        octets = [(folder / "messages" / one["file"]).read_bytes() for one in found.orphans]
        self.assertEqual(octets, encoded)
        self.assertEqual(Message(octets[0]).properties.message_id, "m0")
        self.assertEqual(body(0), b"0:" * 900)
