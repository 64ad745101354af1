# SPDX-License-Identifier: Apache-2.0
"""The schema of a new store and that of the settings; the journal's events in a commit."""

from __future__ import annotations

import json
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from amqproute.config import Config
from amqproute.journal.event import ArrivalEvent, DepartureEvent, RunEvent
from amqproute.journal.journal_outbox import JournalOutbox
from amqproute.journal.record import RecordKind
from amqproute.values import Origin
from amqproute.wire.amqp10.types import ULong
from tests.golden.compare import GoldenCase
from tests.journal import rig
from tests.store.rig import StoreFixture

PRAGMAS = (
    "application_id", "user_version", "page_size", "encoding", "auto_vacuum", "journal_mode",
)  # fmt: skip


class StoreTests(GoldenCase):
    """A store that has just been made."""

    def test_schema(self) -> None:
        """Tables and indexes in the order of their making, pragmas, files beside the database."""
        path = Path(self.mktemp()).absolute() / "store"
        path.mkdir(parents=True)
        house = StoreFixture(str(path / "db"))
        house.open()
        house.close()
        with closing(sqlite3.connect(path / "db")) as database:
            objects = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
            lines = [
                f"{kind} {name} on {table}\n    {sql or 'by itself'}"
                for kind, name, table, sql in objects
            ]
            lines += [
                f"pragma {name} {database.execute(f'PRAGMA {name}').fetchone()[0]}"
                for name in PRAGMAS
            ]
        lines += [f"file {each.relative_to(path)}" for each in sorted(path.rglob("*"))]
        self.assertGolden("schema.txt", "\n".join([*lines, ""]))


class SettingsTests(GoldenCase):
    """Contents of a can in a configuration file."""

    def test_settings(self) -> None:
        """Every key with its type, its bounds and its default; words are left out."""
        schema = Config.model_json_schema(by_alias=True)
        definitions = schema.pop("$defs")

        def plain(part: Any, within: frozenset[str] = frozenset()) -> Any:
            """Put definitions where they are used, so that no name of a class is in it."""
            if isinstance(part, list):
                return [plain(each, within) for each in part]
            if not isinstance(part, dict):
                return part
            if "$ref" in part:
                name = part["$ref"].rpartition("/")[2]
                if name in within:
                    return "as above"
                rest = {key: each for key, each in part.items() if key != "$ref"}
                return plain({**definitions[name], **rest}, within | {name})
            kept = {}
            for key, each in part.items():
                if key == "properties":  # here a title may be a setting's name
                    kept[key] = {name: plain(own, within) for name, own in each.items()}
                elif key == "default":
                    kept[key] = each
                elif key not in ("title", "description"):
                    kept[key] = plain(each, within)
            return kept

        self.assertGolden("settings.json", json.dumps(plain(schema), indent=1) + "\n")


class Still(rig.Wall):
    """A wall clock that stands."""

    def __call__(self) -> int:
        return self.now_us


class JournalTests(GoldenCase):
    """The journal's lines, and what a commit carries for them in the store's table ``outbox``."""

    def test_lines(self) -> None:
        """A line of each kind, octet by octet, in its chain."""
        self.patch(secrets, "token_hex", lambda count: "0123456789abcdef"[: 2 * count])
        directory = Path(self.mktemp()).absolute()
        desk = rig.Desk(directory, Still())
        desk.open()
        for number, kind in enumerate(RecordKind):
            columns = {"entry": [number, number + 1], "words": [None, 'quoted "words", \u00e9']}
            shared = {"node": "q", "durable": True, "attempt": number}
            desk.journal.note(RunEvent(kind, desk.wall(), shared, columns))
        entries = [rig.entry(1, message_id="m-1"), rig.entry(2, message_id=ULong(7), to="q")]
        desk.journal.note(rig.arrivals(desk, entries))
        desk.journal.note(rig.gone(desk, entries))
        desk.close()
        paths = sorted(directory.rglob("*.jsonl"))
        text = "".join(path.read_text() for path in paths)
        names = "".join(f"{path.relative_to(directory)}\n" for path in paths)
        self.assertGolden("journal.txt", names + text)

    def test_outbox(self) -> None:
        """Arrivals that the journal has not on its disk, and the endings that they come with."""
        now_us = 1_795_345_200_000_000
        handed_over: list[Any] = []
        outbox = JournalOutbox(lambda: now_us, handed_over.extend)
        outbox.begin(6)
        first, second = rig.entry(1, message_id="m-1"), rig.entry(2, message_id="m-2", to="q")
        came = [("q", each, Origin(rig.ANN), b"", None) for each in (first, second)]
        lines = []
        for event in (
            ArrivalEvent(now_us, came, "alpha.example"),
            DepartureEvent(RecordKind.DELIVERED, now_us + 5, "q", [first], {"peer": "user:bob"}),
            DepartureEvent(
                RecordKind.EXPIRED, now_us + 9, "q", [second], {"code": "local.expired"}
            ),
        ):
            carried = outbox.carry([event])
            if carried is not None:
                lines.append(f"number {carried[0]}, of {carried[2]}\n{carried[1].decode()}")
            outbox.committed([event], carried is not None)
        self.assertGolden("outbox.txt", "\n".join(lines))
