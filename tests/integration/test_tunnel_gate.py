# SPDX-License-Identifier: Apache-2.0
"""`docs/examples/tunnel_gate.py` carries another protocol through two organizations."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.tools.daemon_pair import QUEUE, child_environment, free_ports
from tests.support.pairs import Pair
from tests.support.patience import PATIENCE

GATE = Path(__file__).parents[2] / "docs" / "examples" / "tunnel_gate.py"


class TunnelGateTests(SynchronousTestCase):
    def gate(self, pair: Pair, verb: str, place: str, here: int, other: str) -> None:
        """Start one side of the example, and wait until it consumes."""
        process = subprocess.Popen(
            [sys.executable, str(GATE), verb, place, QUEUE, f"{QUEUE}@{other}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        process.stdin.write(f"amqp://127.0.0.1:{here}\n")
        process.stdin.close()
        self.assertEqual(process.stdout.readline(), "ready\n")

    def test_there_and_back(self) -> None:
        """Two conversations of another protocol pass, each in order, and end."""
        service = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(service.close)
        threading.Thread(target=_echo, args=(service,), daemon=True).start()
        (entrance,) = free_ports(1)
        with Pair() as pair:
            pair.start()
            near, far = f"127.0.0.1:{entrance}", "{}:{}".format(*service.getsockname())
            self.gate(pair, "listen", near, pair.alpha.tcp_port, pair.beta.domain)
            self.gate(pair, "connect", far, pair.beta.tcp_port, pair.alpha.domain)
            ends = [socket.create_connection(("127.0.0.1", entrance), PATIENCE) for _ in range(2)]
            for number, end in enumerate(ends):
                self.addCleanup(end.close)
                for line in (b"first", b"second"):
                    end.sendall(b"%d %b\n" % (number, line))
                    self.assertEqual(_line(end), b"%d %b there and back\n" % (number, line))
            ends[0].sendall(b"quit\n")
            self.assertEqual(ends[0].recv(100), b"")


def _echo(service: socket.socket) -> None:
    """Answer lines; ``quit`` ends a connection."""
    while True:
        end, _ = service.accept()
        threading.Thread(target=_converse, args=(end,), daemon=True).start()


def _converse(end: socket.socket) -> None:
    while (line := _line(end)) not in (b"", b"quit\n"):
        end.sendall(line[:-1] + b" there and back\n")
    end.close()


def _line(end: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        octet = end.recv(1)
        if not octet:
            return b""
        line += octet
    return line
