# SPDX-License-Identifier: Apache-2.0
"""The schema of a new store, and that of the settings."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from amqproute.config import Config
from tests.golden.compare import GoldenCase
from tests.store.rig import House

PRAGMAS = (
    "application_id", "user_version", "page_size", "encoding", "auto_vacuum", "journal_mode",
)  # fmt: skip


class StoreTests(GoldenCase):
    """A store that has just been made."""

    def test_schema(self) -> None:
        """Tables and indexes in the order of their making, pragmas, files beside the database."""
        path = Path(self.mktemp()).absolute() / "store"
        path.mkdir(parents=True)
        house = House(str(path / "db"))
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
    """What can stand in a configuration file."""

    def test_settings(self) -> None:
        """Every key with its type, its bounds and its default; words are left out."""
        schema = Config.model_json_schema(by_alias=True)
        definitions = schema.pop("$defs")

        def plain(part: Any, within: frozenset[str] = frozenset()) -> Any:
            """Put definitions where they are used, so that no name of a class stands in it."""
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
