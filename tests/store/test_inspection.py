# SPDX-License-Identifier: Apache-2.0
"""`amqproute check` and a start report the same findings on a store."""

from __future__ import annotations

import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreContradiction
from amqproute.store.inspection import inspect_store
from amqproute.store.start_evidence import JournalTestimony, entry_totals_of, examine, read_only
from tests.store.rig import StoreFixture


class InspectionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.state = self.folder / "state"
        self.state.mkdir(parents=True)
        self.path = self.state / "store.db"
        self.fill(b"one", b"two")

    def fill(self, *bodies: bytes) -> None:
        """Put messages into the store, and close it."""
        house = StoreFixture(str(self.path))
        house.open()
        house.put("q", *bodies)
        house.close()

    def contents(self) -> dict[str, bytes]:
        """Return the files of the state directory."""
        return {each.name: each.read_bytes() for each in self.state.iterdir() if each.is_file()}

    def assert_found(self, code: str) -> None:
        """A look finds what the start finds, under the same name, and changes nothing."""
        finding = examine(str(self.path)).finding
        assert finding is not None
        self.assertEqual(finding.code, code)
        before = self.contents()
        error = self.assertRaises(StoreContradiction, inspect_store, self.path)
        self.assertEqual(error.finding, finding.name)
        self.assertIn(f"accept-loss {finding.name};", str(error))
        self.assertEqual(self.contents(), before)

    def test_log(self) -> None:
        """A look leaves a log where there is one, be it empty, and none where there was none."""
        log = self.state / "store.db-wal"
        for is_there in (False, True):
            with self.subTest(is_there=is_there):
                if is_there:
                    log.touch()
                self.assertEqual(log.exists(), is_there)
                with read_only(str(self.path)) as connection:
                    self.assertEqual(entry_totals_of(connection)[0], 2)
                self.assertEqual(log.exists(), is_there)

    def test_whole(self) -> None:
        """Nothing is wrong with a store that was closed."""
        self.assertEqual(inspect_store(self.path), "")

    def test_database_missing(self) -> None:
        """The database is gone; seal and mark are there."""
        self.path.unlink()
        self.assert_found("database-missing")

    def test_database_older(self) -> None:
        """An older copy of the database is in its place, beside the newer seal and mark."""
        shutil.copyfile(self.path, self.folder / "older")
        self.fill(b"three")
        shutil.copyfile(self.folder / "older", self.path)
        self.assert_found("database-older")

    def test_restored(self) -> None:
        """Without its mark an older database is a restore, for a look as for a start."""
        shutil.copyfile(self.path, self.folder / "older")
        self.fill(b"three")
        shutil.copyfile(self.folder / "older", self.path)
        Path(f"{self.path}.mark").unlink()
        self.assertTrue(examine(str(self.path)).is_restore)
        self.assertEqual(inspect_store(self.path), "")

    def test_journal_alone(self) -> None:
        """The whole store is gone, and only the journal knows that there was one."""
        for each in self.state.glob("store.*"):
            each.unlink() if each.is_file() else shutil.rmtree(each)
        self.assertEqual(inspect_store(self.path), "")
        error = self.assertRaises(
            StoreContradiction,
            inspect_store,
            self.path,
            lambda *_: JournalTestimony("journal", (1, 2)),
        )
        self.assertTrue(error.finding.startswith("database-missing-"))
