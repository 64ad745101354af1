# SPDX-License-Identifier: Apache-2.0
"""Tables on terminals of different widths."""

from __future__ import annotations

import io
import os
import sys
from typing import Any
from unittest.mock import patch

import click
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli import render
from amqproute.cli.commands import peer
from amqproute.cli.terminal import fitting

ROW: dict[str, Any] = {
    "name": "logistics.partner-company.example",
    "state": "connecting",
    "waiting": 120_045,
    "in-flight": 1000,
    "window": 1000,
    "credit": 1000,
    "failures": 127,
    "next-attempt-ms": 1,
    "last-success-ms": 1,
    "level": "authenticated",
    "host": "broker1.partner-company.example:5671",
    "last-code": "dns.not-dnssec-capable",
    "holds": ["1f2e3d4c5b6a", "0a1b2c3d4e5f"],
}


class Terminal(io.StringIO):
    """A terminal that keeps what it shows."""

    def isatty(self) -> bool:
        return True


class WidthTests(SynchronousTestCase):
    def shown(self, width: int) -> tuple[list[str], str]:
        """Return the lines of ``peer ls`` at a width, and what is said besides."""
        out, err = Terminal(), Terminal()
        environ = patch.dict(os.environ, {"COLUMNS": str(width), "TERM": "xterm"})
        environ.start()
        self.addCleanup(environ.stop)
        self.patch(sys, "stdout", out)
        self.patch(sys, "stderr", err)
        peer.PEERS.print([{**ROW, "name": "b.example"}, dict(ROW)])
        plain, notes = (click.unstyle(each.getvalue()) for each in (out, err))
        return plain.splitlines(), notes

    def test_peers_at_100(self) -> None:
        """Each peer is on one line, with what matters when something is wrong."""
        lines, notes = self.shown(100)
        self.assertEqual(len(lines), 3, lines)
        self.assertTrue(all(len(line.rstrip()) <= 100 for line in lines), lines)
        headings = lines[0].split()
        for heading in ("PEER", "STATE", "WAITING", "FAILED", "NEXT", "LAST-ERROR"):
            self.assertIn(heading, headings)
        for value in (ROW["name"], ROW["state"], str(ROW["waiting"]), ROW["last-code"]):
            self.assertIn(value, lines[2])
        self.assertIn("not shown at this width: ", notes)
        self.assertIn("HOST", notes)

    def test_peers_at_250(self) -> None:
        """All is shown where there is room."""
        lines, notes = self.shown(250)
        self.assertEqual(lines[0].split(), peer.PEERS.headings)
        self.assertEqual((len(lines), notes), (3, ""))

    def test_peers_in_a_pipe(self) -> None:
        """A script gets all columns, whatever the width."""
        out = io.StringIO()
        self.patch(sys, "stdout", out)
        render.table(["A", "B"], [["x" * 200, "y" * 200]], spare="B")
        self.assertEqual(out.getvalue(), f"A\tB\n{'x' * 200}\t{'y' * 200}\n")

    def test_fitting(self) -> None:
        """Only as many as have to go are left out, the first named first."""
        headings, widths = ["A", "B", "C"], [10, 10, 10]
        for room, left in ((34, [0, 1, 2]), (33, [0, 1]), (22, [0, 1]), (21, [0]), (1, [0])):
            self.assertEqual(fitting(headings, widths, ["C", "B"], room), left, room)
