# SPDX-License-Identifier: Apache-2.0
"""`amqproute contract` against a running daemon."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.support import Daemon
from tests.support.program import run


class ContractCommandTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.daemon = Daemon(
            "alpha.example",
            changes={
                "contracts": {"user:anna": {"connections": 1}, "user:*": {"links": 9}},
                "peers": {"beta.example": {"contract": {"spool": 4096}}},
            },
        ).start()
        self.addCleanup(self.daemon.stop)

    def run_it(self, *args: str, code: int = 0) -> str:
        """Run a command; return what it prints."""
        done = run("contract", *args, "--config", str(self.daemon.file))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the contracts by holder."""
        found = json.loads(self.run_it("ls", "--json"))["contracts"]
        return {row["name"]: row for row in found}

    def test_life(self) -> None:
        """Declared limits are shown before any use; then the use, and a full bound."""
        rows = self.rows()
        self.assertEqual({row["state"] for row in rows.values()}, {"unused"})
        self.assertEqual(set(rows), {"user:anna", "user:*", "peer:beta.example"})
        self.assertEqual(rows["peer:beta.example"]["limit-spool"], 4096)
        url = f"amqp://anna:secret@127.0.0.1:{self.daemon.upgrade}"
        # Her one connection is the one that asks.
        asked = run("contract", "show", "user:anna", "--url", url)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertIn("at-bound\tconnections for 0s", asked.stdout)
        line = next(each for each in self.run_it("ls").splitlines() if "anna" in each)
        self.assertEqual(line.split("\t")[:4], ["user:anna", "open", "-", "0/1"])
        shown = json.loads(self.run_it("show", "user:anna", "--json"))
        self.assertEqual((shown["limit-connections"], shown["connections"]), (1, 0))
        self.daemon.reload(contracts={"user:anna": {"connections": 7}})
        self.assertEqual(self.rows()["user:anna"]["limit-connections"], 7)
        self.assertIn("amqproute contract ls", self.run_it("show", "user:zoe", code=1))
