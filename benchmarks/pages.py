# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.pages``: what pages of the dashboard cost with many queues and peers.

A daemon with `--queues` queues and `--peers` peers, with a message for each peer, which cannot be
reached. Each page is asked for `--runs` times by one browser; then its stream of changes is read
for `--seconds`. A bystander asks for ``/livez`` all the time: how long it waits is how long the
event loop stood still.

*page* is the time until the whole page is there. *first event* has what has changed since then,
*an event* a later one, a second apart.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import statistics
import sys
import tempfile
import time
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from amqproute.auth.users import add_user
from amqproute.tools.daemon_pair import free_ports
from benchmarks.http_daemon import start_daemon
from benchmarks.metrics import Bystander
from tests.integration.clients import Wire, message

QUEUES: Final = 10_000
PEERS: Final = 1000
PAGES: Final = (
    "",
    "queues",
    "queues?contains=-00",
    'queues?cursor=["QUEUE", 1]',
    "queue?name=QUEUE",
    "peers",
    "peers?contains=-00",
    "peer?name=PEER",
    "connections",
    "broker",
)
"""QUEUE and PEER stand for those in the middle of the list."""


class Daemon:
    """A daemon with many queues and peers.

    Args:
        directory: of its files.
        queues: the number of queues.
        peers: the number of peers.
    """

    def __init__(self, directory: Path, queues: int, peers: int) -> None:
        self.http, self.plain = free_ports(2)
        self.queue, self.peer = f"queue-{queues // 2:05}", f"org-{peers // 2:04}.example"
        users = directory / "users.yaml"
        add_user(users, "ann", "secret", iterations=4096)
        domains = [f"org-{number:04}.example" for number in range(peers)]
        settings: dict[str, object] = {
            "listen": [
                {
                    "endpoint": f"tcp:{self.plain}:interface=127.0.0.1",
                    "mechanisms": ["ANONYMOUS"],
                }
            ],
            "users": {"file": str(users)},
            "access": [
                {"allow": ["manage"], "who": "user:ann"},
                {"allow": ["publish"], "who": "anonymous"},
            ],
            "nodes": [{"name": f"queue-{number:05}"} for number in range(queues)],
            "relay": {"first-retry": 600, "last-retry": 3600},
            "management": {"http": f"tcp:{self.http}:interface=127.0.0.1"},
        }
        self.process = start_daemon(directory, self.http, settings)
        with Wire(self.plain) as wire:
            for each in domains:
                wire.publish(f"orders@{each}", [message(b"x", f"orders@{each}")])
        self.cookie = ""
        form = urlencode({"user": "ann", "password": "secret"})
        self.cookie = self.ask("POST", "/ui/login", form).partition(";")[0]

    def ask(self, method: str, target: str, body: str = "") -> str:
        """Return the page, or the cookie that is set."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=120)
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        if self.cookie:
            headers["Cookie"] = self.cookie
        connection.request(method, target, body or None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status not in (200, 303):
            raise SystemExit(f"{target}: {answer.status} {text[:300]}")
        return answer.getheader("Set-Cookie") or text

    def events(self, target: str, seconds: float) -> list[int]:
        """Read a stream of changes; return the octets of each event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=120)
        connection.request("GET", target, headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        sizes: list[int] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            line = answer.readline()
            if line.startswith(b"data:"):
                sizes.append(len(line))
        connection.close()
        return sizes

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


def measure(daemon: Daemon, runs: int, seconds: float) -> list[str]:
    """Measure each page; return the lines of a table."""
    lines = [
        "| page | median, ms | longest, ms | KiB | first event, KiB | an event, KiB "
        "| bystander p50, ms | bystander longest, ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    other = Bystander(daemon.http)
    other.start()
    time.sleep(5)
    median, longest = other.end()
    lines.append(f"| nobody looks | | | | | | {median:.1f} | {longest:.1f} |")
    for page in PAGES:
        name, _, query = page.partition("?")
        query = query.replace("QUEUE", daemon.queue).replace("PEER", daemon.peer)
        key, _, value = query.partition("=")
        target = f"/ui/{name}" + (f"?{urlencode({key: value})}" if query else "")
        other = Bystander(daemon.http)
        other.start()
        took, text = [], ""
        for _ in range(runs):
            began = time.perf_counter()
            text = daemon.ask("GET", target)
            took.append(1000 * (time.perf_counter() - began))
            time.sleep(0.1)
        live = re.search(r'data-live="([^"]+)"', text)
        sizes = daemon.events(unescape(live[1]), seconds) if live is not None else []
        median, longest = other.end()
        first = f"{sizes[0] / 1024:.1f}" if sizes else ""
        later = f"{statistics.median(sizes[1:]) / 1024:.1f}" if len(sizes) > 1 else ""
        lines.append(
            f"| `/ui/{page}` | {statistics.median(took):.0f} | {max(took):.0f} "
            f"| {len(text.encode()) / 1024:.0f} | {first} | {later} "
            f"| {median:.1f} | {longest:.1f} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--peers", type=int, default=PEERS)
    parser.add_argument("--runs", type=int, default=10, help="requests for each page")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each stream of changes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        daemon = Daemon(Path(name), asked.queues, asked.peers)
        try:
            lines = measure(daemon, asked.runs, asked.seconds)
        finally:
            daemon.stop()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, {asked.queues:,} queues, "
          f"{asked.peers:,} peers\n")  # fmt: skip
    print("\n".join(lines))


if __name__ == "__main__":
    main()
