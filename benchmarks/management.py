# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.management``: a bystander's messages while others use the HTTP endpoint.

A daemon with many queues, in a process of its own. A bystander, in another process, publishes
durable messages over AMQP 0-9-1 one at a time at a steady rate, waits for each confirm, and gets
the message back. Meanwhile others, in this process and at the lowest priority, are

* *quiet*: there are none;
* *scraping*: ``/metrics`` and what checks for RabbitMQ read, each by one client;
* *browsing*: logged in, the pages of the dashboard one after the other, with a live journal, and
  lists of ``/api/v1`` to their last page;
* *attacking*: log-ins with wrong passwords, bodies that are too large, requests that never end,
  floods above the permitted rate, unread event streams;
* *all*: all of these at the same time.

With ``--phase`` also one kind of them by itself, as in ``--phase quiet --phase hold_streams``.

The phases alternate over ``--rounds``, so that what else happens on the machine hits all of them.
For each phase the table has the number of the bystander's messages, less than the rate asks for
where it had to wait; the times of its confirms and gets, and the longest of them; what the others
were answered (2xx and 3xx), refused (4xx, 503), and how often their connection was closed or they
gave up; and the CPU of the daemon. Exit code 1 if the bystander has lost a message, if somebody was
answered with another 5xx, or if a phase had none of what it is about.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pika

from amqproute.auth.users import add_user
from amqproute.tools.daemon_pair import free_ports
from benchmarks.http_daemon import start_daemon

USER, PASSWORD = "ann", "secret"
QUEUE = "bystander"
LOGIN = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
PAGES = (
    "", "peers", "queues", "holds", "connections", "exchanges", "hosts", "journal", "log", "users",
    "broker", "queue?name=queue-00001",
)  # fmt: skip
FORM = "application/x-www-form-urlencoded"
GAVE_UP = "closed or gave up"
OPENED = "opened"
READER, ATTACKER = "127.0.0.2", "127.0.0.3"
"""Addresses of loopback, so that attackers do not use up the rate of others."""


# -- the bystander ---------------------------------------------------------------------------------


def bystand(port: int, rate: float) -> None:
    """Publish and get messages until standard input ends; print the times of each as JSON."""
    credentials = pika.PlainCredentials(USER, PASSWORD)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, heartbeat=0)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    confirms: list[float] = []
    gets: list[float] = []
    lost = number = 0
    print("ready", flush=True)
    due = time.perf_counter()
    while not ended.is_set():
        time.sleep(max(0.0, due - time.perf_counter()))
        # Never to catch up: late messages would only measure each other.
        due = max(due, time.perf_counter()) + 1 / rate
        body = str(number).encode() + b"x" * 1024
        start = time.perf_counter()
        channel.basic_publish("", QUEUE, body, properties)
        confirmed = time.perf_counter()
        _, _, found = channel.basic_get(QUEUE, auto_ack=True)
        got = time.perf_counter()
        confirms.append(1000 * (confirmed - start))
        gets.append(1000 * (got - confirmed))
        lost += found != body
        number += 1
    connection.close()
    print(json.dumps({"confirms": confirms, "gets": gets, "lost": lost}))


class Bystander:
    """The process of the bystander."""

    def __init__(self, port: int, rate: float) -> None:
        words = [sys.executable, "-m", "benchmarks.management", "--bystander", str(port)]
        self._process = subprocess.Popen(
            [*words, "--rate", str(rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise SystemExit("the bystander could not begin")

    def end(self) -> dict[str, Any]:
        """End it, and return its figures."""
        said, _ = self._process.communicate(timeout=60)
        found: dict[str, Any] = json.loads(said)
        return found


# -- the others ------------------------------------------------------------------------------------


@dataclass
class Others:
    """Clients of the HTTP endpoint, each in a thread.

    Attributes:
        port: of the endpoint.
        statuses: answers by status; `GAVE_UP` counts connections that ended without one, and
            `OPENED` those that wait for none.
    """

    port: int
    statuses: Counter[object] = field(default_factory=Counter)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *works: Callable[[], None]) -> None:
        """Do these again and again until the end."""
        for work in works:
            thread = threading.Thread(target=self._repeat, args=(work,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self) -> None:
        """End."""
        self._is_over.set()
        for each in self._threads:
            each.join(30)

    def _repeat(self, work: Callable[[], None]) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self._is_over.is_set():
            try:
                work()
            except (OSError, http.client.HTTPException):
                if not self._is_over.is_set():
                    self.note(GAVE_UP)
                self._is_over.wait(0.05)

    def note(self, status: object) -> None:
        """Count an answer."""
        with self._lock:
            self.statuses[status] += 1

    def ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> tuple[int, bytes, str]:
        """Return status, body and cookie of an answer, which is counted."""
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        self.note(answer.status)
        if answer.status in (429, 503):
            self._is_over.wait(0.2)
        return answer.status, text, answer.headers.get("Set-Cookie", "").partition(";")[0]

    def connect(self, source: str = "127.0.0.1") -> http.client.HTTPConnection:
        """Return a connection from an address, of which each has a rate of its own."""
        return http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=10, source_address=(source, 0)
        )

    def plug(self) -> socket.socket:
        """Return an attacker's socket."""
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=10, source_address=(ATTACKER, 0)
        )

    # -- scraping ------------------------------------------------------------------------------

    def scrape(self) -> None:
        """Scrape once, as Prometheus does, on a connection that lasts."""
        connection = self.connect()
        while not self._is_over.is_set():
            self.ask(connection, "GET", "/metrics", {})
            self._is_over.wait(0.5)
        connection.close()

    def check(self) -> None:
        """Read what checks for RabbitMQ read."""
        connection = self.connect()
        while not self._is_over.is_set():
            for path in ("/api/overview", "/api/queues?page=1&page_size=500", "/api/connections"):
                self.ask(connection, "GET", path, LOGIN)
            self._is_over.wait(0.5)
        connection.close()

    # -- browsing ------------------------------------------------------------------------------

    def browse(self) -> None:
        """Log in, and look at one page after the other."""
        connection = self.connect(READER)
        form = urlencode({"user": USER, "password": PASSWORD}).encode()
        _, _, cookie = self.ask(connection, "POST", "/ui/login", {"Content-Type": FORM}, form)
        while not self._is_over.is_set():
            for page in PAGES:
                status, _, _ = self.ask(connection, "GET", f"/ui/{page}", {"Cookie": cookie})
                if status not in (200, 429, 503):
                    raise SystemExit(f"/ui/{page}: {status}")
                self._is_over.wait(0.05)

    def follow(self) -> None:
        """Follow the live changes of a page, as its script does."""
        connection = self.connect(READER)
        connection.request("GET", "/api/v1/journal/tail", headers=LOGIN)
        answer = connection.getresponse()
        self.note(answer.status)
        while not self._is_over.is_set():
            answer.readline()
        connection.close()

    def page_through(self) -> None:
        """Read lists to their last page."""
        connection = self.connect(READER)
        cursor = ""
        while not self._is_over.is_set():
            more = f"&cursor={quote(cursor)}" if cursor else ""
            path = f"/api/v1/queues?limit=200{more}"
            status, text, _ = self.ask(connection, "GET", path, LOGIN)
            cursor = json.loads(text)["next"] or "" if status == 200 else ""
            self._is_over.wait(0.05)

    # -- attacking -----------------------------------------------------------------------------

    def guess(self) -> None:
        """Guess passwords."""
        wrong = "Basic " + base64.b64encode(f"{USER}:{time.time()}".encode()).decode()
        connection = self.connect(ATTACKER)
        self.ask(connection, "GET", "/api/v1/queues", {"Authorization": wrong})
        connection.close()

    def flood(self) -> None:
        """Ask for more than may be asked for."""
        connection = self.connect(ATTACKER)
        for _ in range(200):
            connection.request("GET", "/api/v1/nothing")
            answer = connection.getresponse()
            answer.read()
            self.note(answer.status)
            if self._is_over.is_set():
                break
        connection.close()

    def swamp(self) -> None:
        """Send a body that is too large."""
        connection = self.connect(ATTACKER)
        body = b"a" * (2 << 20)
        headers = {**LOGIN, "Content-Type": "application/json"}
        self.ask(connection, "POST", "/api/v1/messages/publish", headers, body)
        connection.close()

    def dawdle(self) -> None:
        """Begin requests that never end, on as many connections as one address may have."""
        held: list[socket.socket] = []
        while not self._is_over.is_set() and len(held) < 150:
            each = self.plug()
            each.sendall(b"POST /api/v1/messages/publish HTTP/1.1\r\nHost: a\r\nX-")
            held.append(each)
            self.note(OPENED)
        while not self._is_over.is_set() and held:
            for each in tuple(held):
                try:
                    each.sendall(b"a")
                except OSError:
                    self.note(GAVE_UP)
                    held.remove(each)
            self._is_over.wait(1)
        for each in held:
            each.close()

    def hold_streams(self) -> None:
        """Open event streams, and read nothing."""
        held: list[socket.socket] = []
        login = f"Authorization: {LOGIN['Authorization']}"
        head = f"GET /api/v1/journal/tail HTTP/1.1\r\nHost: a\r\n{login}"
        while not self._is_over.is_set() and len(held) < 20:
            each = self.plug()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(f"{head}\r\n\r\n".encode())
            held.append(each)
            self.note(OPENED)
        self._is_over.wait()
        for each in held:
            each.close()


PHASES: dict[str, Callable[[Others], Sequence[Callable[[], None]]]] = {
    "quiet": lambda _: (),
    "scraping": lambda others: (others.scrape, others.check),
    "browsing": lambda others: (others.browse, others.browse, others.follow, others.page_through),
    "attacking": lambda others: (
        others.guess, others.guess, others.flood, others.flood, others.swamp, others.dawdle,
        others.hold_streams,
    ),
}  # fmt: skip
PHASES["all"] = lambda others: [
    work for name in ("scraping", "browsing", "attacking") for work in PHASES[name](others)
]
ONE_KIND: dict[str, Callable[[Others], Callable[[], None]]] = {
    "scrape": lambda others: others.scrape,
    "check": lambda others: others.check,
    "browse": lambda others: others.browse,
    "follow": lambda others: others.follow,
    "page_through": lambda others: others.page_through,
    "guess": lambda others: others.guess,
    "flood": lambda others: others.flood,
    "swamp": lambda others: others.swamp,
    "dawdle": lambda others: others.dawdle,
    "hold_streams": lambda others: others.hold_streams,
}


def works_of(phase: str, others: Others) -> Sequence[Callable[[], None]]:
    """Return what is done in a phase, each in a thread."""
    return [ONE_KIND[phase](others)] if phase in ONE_KIND else PHASES[phase](others)


# -- the daemon ------------------------------------------------------------------------------------


def start(directory: Path, amqp: int, web: int, queues: int) -> subprocess.Popen[bytes]:
    """Start a daemon with so many queues, and wait until it is ready."""
    users = directory / "users.yaml"
    add_user(users, USER, PASSWORD, iterations=4096)
    rights = ["manage", "publish", "consume", "browse"]
    settings: dict[str, object] = {
        "users": {"file": str(users)},
        "access": [{"allow": rights, "who": f"user:{USER}", "node": "*"}],
        "listen": [
            {
                "endpoint": f"tcp:{amqp}:interface=127.0.0.1",
                "mechanisms": ["PLAIN"],
                "plain-without-tls": True,
            }
        ],
        "nodes": [{"name": QUEUE}]
        + [{"name": f"queue-{number:05}"} for number in range(1, queues + 1)],
        "management": {
            "http": f"tcp:{web}:interface=127.0.0.1",
            "metrics-networks": ["127.0.0.1/32"],
            "rabbitmq-api": True,
            "rabbitmq-metrics": True,
        },
    }
    return start_daemon(directory, web, settings)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the table -------------------------------------------------------------------------------------


@dataclass
class Figures:
    """What was found in one phase, over all rounds."""

    confirms: list[float] = field(default_factory=list)
    gets: list[float] = field(default_factory=list)
    statuses: Counter[object] = field(default_factory=Counter)
    lost: int = 0
    cpu: float = 0.0
    seconds: float = 0.0

    def row(self, name: str) -> str:
        """Return the line of the table."""
        answered = refused = 0
        for status, count in self.statuses.items():
            if isinstance(status, int):
                answered += count if status < 400 else 0
                refused += count if status >= 400 else 0
        return (
            f"| {name} | {len(self.confirms)} | {_times(self.confirms)} | {_times(self.gets)} "
            f"| {answered} | {refused} | {self.statuses[GAVE_UP]} "
            f"| {100 * self.cpu / self.seconds:.0f} % |"
        )

    def faults(self, name: str) -> list[str]:
        """Return what is wrong; empty if all is well."""
        found = [f"{name}: {self.lost} messages lost"] if self.lost else []
        bad = {
            status: count
            for status, count in self.statuses.items()
            if isinstance(status, int) and status >= 500 and status != 503
        }
        if bad:
            found.append(f"{name}: {bad}")
        if len(self.confirms) < 10 or (name != "quiet" and not self.statuses):
            found.append(f"{name}: nothing was measured")
        return found


def _times(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "- | - | -"
    p99 = statistics.quantiles(values, n=100)[98]
    return f"{statistics.median(values):.1f} | {p99:.1f} | {max(values):.0f}"


HEAD = """\
| others | messages | confirm p50, ms | p99 | longest | get p50, ms | p99 | longest | answered \
| refused | closed or gave up | CPU of the daemon |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""


def measure(asked: argparse.Namespace, directory: Path) -> dict[str, Figures]:
    """Go through the phases, round by round."""
    amqp, web = free_ports(2)
    process = start(directory, amqp, web, asked.queues)
    found = {name: Figures() for name in asked.phase or PHASES}
    try:
        for _ in range(asked.rounds):
            for name, figures in found.items():
                others = Others(web)
                bystander = Bystander(amqp, asked.rate)
                others.start(*works_of(name, others))
                began, before = time.perf_counter(), cpu_seconds(process.pid)
                time.sleep(asked.seconds)
                figures.cpu += cpu_seconds(process.pid) - before
                figures.seconds += time.perf_counter() - began
                said = bystander.end()
                others.end()
                figures.confirms += said["confirms"]
                figures.gets += said["gets"]
                figures.lost += said["lost"]
                figures.statuses += others.statuses
    finally:
        process.terminate()
        process.wait()
    return found


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of a phase in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=100.0, help="messages per second")
    parser.add_argument("--phase", action="append", choices=[*PHASES, *ONE_KIND], help="only these")
    parser.add_argument("--bystander", type=int, metavar="PORT", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bystander is not None:
        bystand(asked.bystander, asked.rate)
        return 0
    with tempfile.TemporaryDirectory() as name:
        found = measure(asked, Path(name))
    print(
        f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, {asked.queues} queues, "
        f"{asked.rate:g} messages per second\n"
    )
    print(HEAD)
    for name, figures in found.items():
        print(figures.row(name))
    faults = [fault for name, figures in found.items() for fault in figures.faults(name)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
