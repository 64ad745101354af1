# SPDX-License-Identifier: Apache-2.0
"""Data changed on disk is detected when read, not delivered, and kept."""

from __future__ import annotations

import os
import random
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import MessageDamaged, StoreError
from amqproute.store import body_files
from amqproute.store.checksums import all_match, row_sum
from amqproute.store.fsck import check
from amqproute.store.large_bodies import CHUNK_BYTES
from amqproute.store.model import DamagedEntry
from amqproute.values import QUARANTINE
from tests.store.rig import StoreFixture
from tests.store.test_body_files import FilesCase


class DamageCase(SynchronousTestCase):
    """A store whose files are changed while it is closed."""

    def setUp(self) -> None:
        super().setUp()
        self.path = os.path.abspath(os.path.join(self.mktemp(), "queues.db"))
        self.told: list[tuple[str, DamagedEntry]] = []
        self.begin()

    def begin(self, **options: Any) -> Any:
        def damaged(queue: str, damages: Sequence[DamagedEntry]) -> None:
            self.told += [(queue, each) for each in damages]

        self.house = StoreFixture(
            self.path, **{"file_bytes": 1000, "segment_bytes": 10_000, **options}, on_damage=damaged
        )
        self.addCleanup(self.house.close)
        return self.house.open()

    def edit(self, *statements: str) -> None:
        """Close the store, change its rows behind its back, and open it again."""
        self.house.close()
        self.change(*statements)
        self.begin()

    def change(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def flip(self, number: int, at: int) -> None:
        """Change one bit of a file of bodies."""
        self.house.close()
        with open(f"{self.path[:-3]}.bodies/{number:012d}", "r+b") as file:
            file.seek(at)
            (octet,) = file.read(1)
            file.seek(at)
            file.write(bytes([octet ^ 4]))
        self.begin()

    def loaded(self, queue: str = "q") -> list[bytes]:
        return [entry.encoded for entry in self.house.load(queue)]

    def do(self, *calls: Any) -> None:
        transaction = self.house.store.begin()
        for name, *arguments in calls:
            getattr(transaction, name)(*arguments)
        self.house.reactor.wait(transaction.commit())


class AllMatchTests(SynchronousTestCase):
    """Many rows in one go."""

    def row(self, entry_id: int, size: int, *common: int | None) -> tuple[Any, ...]:
        queue, arrived, expires, flags, count, payload = (each or 0 for each in common)
        noted = row_sum(entry_id, queue, arrived, expires, flags, count, size, payload)
        return (entry_id, size, noted, *common)

    def test_each(self) -> None:
        """Sound rows match, with the same columns as their neighbors or others; others do not."""
        rows = [
            self.row(5, 100, 1, 1000, 0, 0, 0, None),
            self.row(6, 90, 1, 1000, 0, 0, 0, None),
            self.row(9, 100, 1, 1001, 5000, 1, 2, -7),
            self.row(10, 100, 1, 1001, 5000, 1, 2, None),
        ]
        self.assertTrue(all_match(rows))
        self.assertTrue(all_match([]))
        for number, row in enumerate(rows):
            for at, value in enumerate(row):
                for other in (None, (value or 0) + 1):
                    if value is None and other is None:
                        continue
                    spoilt = [*rows]
                    spoilt[number] = (*row[:at], other, *row[at + 1 :])
                    self.assertFalse(all_match(spoilt), (number, at, other))


class RowTests(DamageCase):
    """Rows of entries."""

    def test_each_column(self) -> None:
        """A bit of any column keeps its entry from being handed out, and no other."""
        changes = {
            "arrived": "arrived | (1 << 40)",
            "expires": "expires | (1 << 45)",
            "flags": "flags | 4",
            "count": "count | 2",
            "encoded": "x'6f6e64'",
            "octets_crc": "octets_crc + 1",
            "row_sum": "NULL",
        }
        for number, (column, value) in enumerate(changes.items()):
            queue = f"q{number}"
            _, bad, _ = self.house.put(queue, b"before", b"one", b"after")
            self.edit(f"UPDATE entry SET {column} = {value} WHERE id = {bad}")
            self.told.clear()
            self.assertEqual(self.loaded(queue), [b"before", b"after"], column)
            ((told, damage),) = self.told
            self.assertEqual((told, damage.entry_id), (queue, bad))
            self.assertEqual(self.house.store.quarantined, number + 1)
            self.assertEqual(self.loaded(queue), [b"before", b"after"])
        self.house.close()
        found = check(self.path)
        self.assertIn(f"{len(changes)} damaged entries are in quarantine", found)
        recovery = self.begin()
        self.assertEqual(recovery.quarantined, len(changes))
        self.assertEqual({each.count for each in recovery.queues.values()}, {2})
        self.assertEqual(len(self.told), 1)  # of the last round: nothing is found twice

    def test_size(self) -> None:
        """A wrong size does not spoil the page that is cut by it."""
        _, bad, _ = self.house.put("q", b"before", b"one", b"after")
        self.edit(f"UPDATE entry SET size = 77 WHERE id = {bad}")
        self.assertEqual(self.loaded(), [b"before", b"after"])

    def test_length(self) -> None:
        """An operator's words on a body that is shorter than its row says, or just as long."""
        ids = self.house.put("q", b"one", b"two", b"three")
        self.edit(
            f"UPDATE entry SET encoded = x'6f6e' WHERE id = {ids[0]}",
            f"UPDATE entry SET encoded = x'747779' WHERE id = {ids[1]}",
        )
        self.assertEqual(self.loaded(), [b"three"])
        whys = [damage.why for _, damage in self.told]
        self.assertEqual(whys[0], "it has 2 octets instead of 3")
        self.assertIn("checksum", whys[1])

    def test_set_aside_by_the_broker(self) -> None:
        """Entries that the broker moves to quarantine are counted as those found here are."""
        self.assertEqual(self.house.store.quarantined, 0)
        ids = self.house.put("q", b"one", b"two", b"three")
        self.do(*[("move", each, QUARANTINE, each) for each in ids[:2]])
        self.assertEqual(self.house.store.quarantined, 2)
        self.do(("move", ids[2], QUARANTINE, ids[2]))
        self.assertEqual(self.house.store.quarantined, 3)
        self.house.close()
        house = StoreFixture(self.path)
        self.assertEqual(house.store.quarantined, 0)  # it has not looked yet
        self.addCleanup(house.close)
        self.assertEqual(house.open().quarantined, 3)
        self.assertEqual(house.store.quarantined, 3)

    def test_wrong_place(self) -> None:
        """An entry does not get to another queue by a changed number."""
        (bad,) = self.house.put("q", b"secret")
        self.house.put("r", b"open")
        self.edit(
            f"UPDATE entry SET queue = (SELECT number FROM queue WHERE name = 'r') WHERE id = {bad}"
        )
        self.assertEqual(self.loaded("r"), [b"open"])
        self.assertEqual(len(self.told), 1)

    def test_whole_pages(self) -> None:
        """A backlog continues behind any number of damaged entries."""
        ids = self.house.put("q", *[b"%d" % number for number in range(50)])
        self.edit(f"UPDATE entry SET encoded = x'00' WHERE id < {ids[40]}")
        page = self.house.reactor.wait(self.house.store.load("q", 0, 10, 1 << 20))
        self.assertEqual([entry.encoded for entry in page], [b"%d" % n for n in range(40, 50)])
        self.assertEqual(self.house.store.quarantined, 40)

    def test_expired(self) -> None:
        """Those that are looked for because they have expired are compared as well."""
        bad, good = (self.house.store.next_id() for _ in range(2))
        self.do(("enqueue", "q", bad, b"x", 1, 5, 0), ("enqueue", "q", good, b"y", 1, 5, 0))
        self.edit(f"UPDATE entry SET encoded = x'00' WHERE id = {bad}")
        found = self.house.reactor.wait(self.house.store.expired("q", 9, 0, 10))
        self.assertEqual([entry.id for entry in found], [good])

    def test_changes_keep_sums(self) -> None:
        """Rows that are counted, replaced, moved and shared have sums that match."""
        one, two, three = self.house.put("q", b"one", b"two", b"3" * 2000)
        moved, also, payload, shared = (self.house.store.next_id() for _ in range(4))
        self.do(
            ("share", payload, b"shared"),
            ("enqueue_shared", "q", shared, payload, 6, 1, 0, 0),
            ("update", one, 7),
            ("update", three, 2, b"no longer large"),
            ("move", two, "r", moved),
        )
        self.do(("update", shared, 1, b"its own"), ("move", one, "r", also, b"replaced"))
        self.house.close()
        self.assertEqual(check(self.path), [])
        self.begin()
        self.assertEqual(self.loaded(), [b"no longer large", b"its own"])
        self.assertEqual(self.loaded("r"), [b"two", b"replaced"])

    def test_changes_keep_damage(self) -> None:
        """Moving or counting a damaged entry does not make it look sound."""
        one, two = self.house.put("q", b"one", b"two")
        self.edit(
            f"UPDATE entry SET encoded = x'00' WHERE id = {one}",
            f"UPDATE entry SET arrived = 5 WHERE id = {two}",
        )
        self.do(("update", one, 3), ("move", two, "r", self.house.store.next_id()))
        self.assertEqual((self.loaded(), self.loaded("r")), ([], []))
        self.assertEqual(self.house.store.quarantined, 2)

    def test_earlier_release(self) -> None:
        """Rows of an earlier release are read unchecked, and stay so when they change."""
        one, two = self.house.put("q", b"one", b"two")
        self.edit("UPDATE entry SET octets_crc = NULL, row_sum = NULL")
        self.do(("update", one, 3, b"other"), ("update", two, 1))
        self.assertEqual(self.loaded(), [b"other", b"two"])
        self.house.close()
        self.assertEqual(check(self.path), [])
        self.begin()

    def test_index(self) -> None:
        """An index that contradicts its table hides nothing: it is made again."""
        self.house.put("q", *[b"%d" % number for number in range(3)])
        self.house.close()
        connection = sqlite3.connect(self.path)
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'entry_queue'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.close()
        with open(self.path, "r+b") as file:
            file.seek((root - 1) * size)
            page = bytearray(file.read(size))
            # A cell's header, its length and the types: 1, an octet, 1, an octet; then the octets.
            at = page.rindex(b"\x05\x09\x01\x09\x01")
            page[at + 5] ^= 0x20
            page[at + 6] ^= 0x20
            file.seek((root - 1) * size)
            file.write(page)
        self.begin(check_bytes=0)
        self.assertEqual(sorted(self.loaded()), [b"0", b"1", b"2"])
        self.assertTrue(self.house.store._reader._is_reindexed)
        self.house.close()
        self.assertEqual(check(self.path), [])
        self.begin()


class SharedTests(DamageCase):
    """Payloads that several entries share."""

    def test_payload(self) -> None:
        """All entries of a damaged payload are kept back, in pages and in segments."""
        for large, size in enumerate((20, 2000)):
            payload, *ids = (self.house.store.next_id() for _ in range(4))
            self.do(
                ("share", payload, b"s" * size),
                *[("enqueue_shared", "q", one, payload, size, 1, 0, 0) for one in ids],
            )
            self.house.put("q", b"good")
            if large:
                self.flip(max(map(int, os.listdir(self.path[:-3] + ".bodies"))), 700)
            else:
                self.edit(f"UPDATE payload SET encoded = x'00' WHERE id = {payload}")
            self.assertEqual(self.loaded(), [b"good"] * (large + 1))
            self.assertEqual([each.entry_id for _, each in self.told], ids)
            self.told.clear()


class SegmentTests(DamageCase):
    """Messages in files."""

    def test_bit(self) -> None:
        """A bit of a segment concerns the message in which it stands."""
        ids = self.house.put("q", b"a" * 2000, b"b" * 2000, b"c" * 2000)
        self.flip(1, 2500)
        self.assertEqual([body[:1] for body in self.loaded()], [b"a", b"c"])
        ((_, damage),) = self.told
        self.assertEqual(damage.entry_id, ids[1])

    def test_segment_lost_while_open(self) -> None:
        """A segment that goes away under the daemon costs its own messages only."""
        self.house.put("q", b"a" * 9000, b"b" * 9000)
        os.remove(f"{self.path[:-3]}.bodies/{1:012d}")
        self.assertEqual([body[:1] for body in self.loaded()], [b"b"])
        self.assertIn("cannot read", self.told[0][1].why)

    def test_tidying_keeps_damage(self) -> None:
        """A body that is copied to another segment is as damaged there as before."""
        self.patch(body_files, "WASTE", 0)
        self.patch(body_files, "SPARES", 0)
        ids = self.house.put("q", b"a" * 3000, b"b" * 3000, b"c" * 3000)
        self.house.put("r", b"d" * 9000)
        self.flip(1, 100)
        self.do(("dequeue", ids[1:]))
        for _ in range(5):
            others = self.house.put("r", *[bytes([one]) * 3000 for one in range(9)])
            self.do(("dequeue", others))
        self.house.close()
        self.assertNotIn("000000000001", os.listdir(self.path[:-3] + ".bodies"))
        self.begin()
        self.assertEqual(self.loaded(), [])
        self.assertEqual([each.entry_id for _, each in self.told], ids[:1])


class BodyTests(FilesCase):
    """Very large bodies, which are read in parts."""

    def test_any_bit(self) -> None:
        """A bit of a body, or of its checksums, is found before its chunk is handed out."""
        octets = random.Random(1).randbytes(2 * CHUNK_BYTES + 1000)
        self.enqueue("q", b"head", self.body(octets[:300_000], octets[300_000:]))
        (number,) = self.names()
        path = f"{self.path[:-3]}.bodies/{number:012d}"
        self.house.close()
        size = os.path.getsize(path)
        for at in (0, CHUNK_BYTES - 1, CHUNK_BYTES + 7, len(octets) - 1, len(octets) + 1, size - 1):
            with open(path, "r+b") as file:
                file.seek(at)
                (octet,) = file.read(1)
                file.seek(at)
                file.write(bytes([octet ^ 16]))
            self.assertEqual(len(check(self.path)), 1, at)
            house = self.open()
            reader = house.load("q")[0].rest.reader()
            good = b""
            with self.assertRaises(MessageDamaged):
                while reader.left:
                    good += house.reactor.wait(reader.read(CHUNK_BYTES))
            reader.close()
            self.assertEqual(good, octets[: at - at % CHUNK_BYTES if at < len(octets) else 0])
            house.close()
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(bytes([octet]))
        self.house = self.open()
        self.assertEqual(self.read(self.house.load("q")[0].rest), octets)

    def test_earlier_release(self) -> None:
        """A body without checksums is read as it is."""
        self.enqueue("q", b"head", self.body(b"x" * 1000))
        (number,) = self.names()
        self.house.close()
        os.truncate(f"{self.path[:-3]}.bodies/{number:012d}", 1000)
        connection = sqlite3.connect(self.path)
        connection.execute("UPDATE entry SET octets_crc = NULL, row_sum = NULL")
        connection.commit()
        connection.close()
        self.assertEqual(check(self.path), [])
        self.house = self.open()
        self.assertEqual(self.read(self.house.load("q")[0].rest), b"x" * 1000)


class SmallRowTests(DamageCase):
    """Rows without which nothing should start."""

    def refused(self, statement: str) -> str:
        self.house.close()
        self.change(statement)
        self.assertEqual(len(check(self.path)), 1)
        return str(self.assertRaises(StoreError, StoreFixture(self.path).open))

    def test_receipt(self) -> None:
        """A damaged receipt could cost a message or bring one twice: an operator decides."""
        self.do(("mark_received", "stream", [5, 6, 9]), ("enqueue", "q", 1, b"x", 1, 0, 0))
        words = self.refused("UPDATE receipt SET high = 13")
        self.assertIn("the receipt of 'stream'", words)
        self.change(words.split("'")[5])
        self.assertEqual(self.begin().received, {})

    def test_note(self) -> None:
        """So could a note."""
        self.do(("note", "kind", "key", b"value"))
        words = self.refused("UPDATE note SET value = x'00'")
        self.assertIn("the note 'kind' 'key'", words)
        self.change(words.split("'")[5])
        self.assertEqual(self.begin().notes, {"kind": {"key": b"\0"}})

    def test_queue(self) -> None:
        """Messages do not get to a queue of another name."""
        self.house.put("orders", b"x")
        words = self.refused("UPDATE queue SET name = 'orderr'")
        self.assertIn("the name of queue 1 ('orderr')", words)
        self.change(words.split('"')[1].replace("NAME", "orders"))
        self.begin()
        self.assertEqual(self.loaded("orders"), [b"x"])

    def test_crc(self) -> None:
        """The checksums are those that other programs compute."""
        self.house.put("q", b"123456789")
        connection = sqlite3.connect(self.path)
        ((found,),) = connection.execute("SELECT octets_crc FROM entry")
        connection.close()
        self.assertEqual((found, zlib.crc32(b"123456789")), (0xCBF43926, 0xCBF43926))
