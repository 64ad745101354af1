# SPDX-License-Identifier: Apache-2.0
"""The test line: slow, lossy, narrow, and yet in order and complete."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from tests.network.line import AGAIN_SECONDS, Line
from tests.support.patience import PATIENCE


class LineTests(SynchronousTestCase):
    def passage(self, octets: int, **terms: float) -> tuple[float, Line]:
        """Send so many octets; return the seconds that it took, and the line."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        line = Line(server.getsockname()[1], **terms)  # type: ignore[arg-type]
        self.addCleanup(line.close)
        sent = bytes(range(256)) * (octets // 256)
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", line.port)) as near:
            far, _ = server.accept()
            with far:
                sender = threading.Thread(target=near.sendall, args=(sent,))
                sender.start()
                got = b""
                far.settimeout(PATIENCE)
                while len(got) < len(sent):
                    piece = far.recv(65536)
                    self.assertTrue(piece)
                    got += piece
                sender.join(PATIENCE)
        with contextlib.suppress(OSError):
            line.cut()
        self.assertEqual(got, sent)
        return time.monotonic() - begun, line

    def test_loss(self) -> None:
        """A lost packet comes later, and everything behind it."""
        seconds, line = self.passage(1 << 20, loss=0.2, seed=3)
        self.assertGreater(line.losses, 0)
        self.assertGreaterEqual(seconds, line.losses * AGAIN_SECONDS)

    def test_rate(self) -> None:
        """No more than this much in a second."""
        seconds, _ = self.passage(256 << 10, rate=1 << 20)
        self.assertGreaterEqual(seconds, 0.25)

    def test_delay(self) -> None:
        self.assertGreaterEqual(self.passage(256, delay=0.1)[0], 0.1)
