# SPDX-License-Identifier: Apache-2.0
"""``amqproute bench relay``: throughput, CPU time and latency of the relay.

Two brokers on loopback, with mutual TLS between them and durable queues at both ends; the load
comes from separate processes (`amqproute.tools.load_worker`). Every phase has a fresh pair, and
every message is counted by its number: a measurement with lost or duplicated messages is invalid,
and the command exits with 1.

=========  ==================================================================================
phase      what is measured
=========  ==================================================================================
accept     publishing to alpha while beta is not running, until each message has its outcome,
           that is, is on alpha's disk
backlog    then beta starts: from the first messages in its queue to the last one. What a
           shovel between two durable queues does
drain      then a consumer takes them all from beta
live       publishing while the messages are relayed: from the first one published to the last
           one in beta's queue
latency    publishing at a rate, with a consumer at beta: from publishing to consuming
=========  ==================================================================================

CPU seconds are those of a broker's whole process, its store's thread included, while the phase
lasts, for each 100,000 messages. They measure the cost of a message on a machine whose cores are
shared with the load, where messages per second mean little.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, CommandError
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.tools.daemon_pair import (
    QUEUE,
    DaemonPair,
    DaemonProcess,
    child_environment,
    dies_with,
    ended_by_signals,
)
from amqproute.tools.load_worker import SMALLEST, Connected, LoadManagement, LoadTarget

__all__ = ["PHASES", "BenchPhase", "bench", "measure"]

PHASES: Final = ("backlog", "live", "latency")
"""Phases to choose from; ``accept`` and ``drain`` belong to ``backlog``."""

LATENCY_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 60.0
"""Seconds without progress after which a measurement is given up."""
LOOK_SECONDS: Final = 0.1
"""Seconds between two queries of a queue's depth: each costs the broker about a millisecond."""
LOOK_CLOSELY_SECONDS: Final = 0.01
HUNDRED_THOUSAND: Final = 100_000


@dataclass(slots=True)
class BenchPhase:
    """One measurement.

    Attributes:
        name: the name as in the table above.
        messages: number measured; a backlog is measured from the first query that shows some of it
            in beta's queue.
        seconds: duration.
        cpu_seconds: CPU time during the phase, by process.
        latency_ms: p50, p99, max.
        lost: messages that never came.
        duplicated: messages that came more than once.
        refused: messages that were not accepted, by outcome.
        peak_bytes: the largest resident memory so far, by broker.
    """

    name: str
    messages: int
    seconds: float
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)
    lost: int = 0
    duplicated: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether every message came exactly once."""
        return not (self.lost or self.duplicated or self.refused)

    def cpu_per_100k(self, process: str) -> float | None:
        """Return CPU seconds for each 100,000 messages; None for a process not involved."""
        spent = self.cpu_seconds.get(process)
        return None if spent is None else spent * HUNDRED_THOUSAND / max(1, self.messages)

    def as_json(self) -> Facts:
        """Return the phase for ``--json``."""
        cpu = {name: self.cpu_per_100k(name) for name in self.cpu_seconds}
        return {
            "phase": self.name,
            "messages": self.messages,
            "seconds": round(self.seconds, 4),
            "rate": round(self.rate, 1),
            "cpu-seconds-per-100000": {
                name: round(value, 3) for name, value in cpu.items() if value is not None
            },
            "latency-ms": {name: round(value, 3) for name, value in self.latency_ms.items()},
            "lost": self.lost,
            "duplicated": self.duplicated,
            "refused": self.refused,
            "peak-bytes": self.peak_bytes,
        }


@click.group(cls=ProgramGroup)
def bench() -> None:
    """Measure the throughput of this program on this machine."""


@bench.command()
@click.option(
    "--messages",
    default=50_000,
    show_default=True,
    type=click.IntRange(100, 10_000_000),
    help="How many messages a phase has; the latency phase lasts five seconds at most.",
)
@click.option(
    "--size",
    default=1024,
    show_default=True,
    metavar="BYTES",
    type=click.IntRange(SMALLEST, 1_000_000),
    help="Octets of a message's body.",
)
@click.option(
    "--rate",
    default=1000.0,
    show_default=True,
    metavar="PER_SECOND",
    type=click.FloatRange(1.0, 100_000.0),
    help="Messages a second of the latency phase.",
)
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice(PHASES),
    help="Only this one; may be repeated.",
)
@click.option(
    "--journal/--no-journal",
    "has_journal",
    default=True,
    help="Let the brokers keep an audit journal, as they do by default; or not.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def relay(
    messages: int,
    size: int,
    rate: float,
    phases: tuple[str, ...],
    has_journal: bool,
    as_json: bool,
) -> int:
    """Measure the relay between two brokers on loopback.

    Mutual TLS, durable messages, durable queues. Shows messages a second, CPU seconds for each
    100,000 messages of each broker and of the load's own processes, and latencies.

    Exits with 1 if a message was lost, duplicated or refused.
    """
    with ended_by_signals():
        measured = measure(messages, size, rate, phases or PHASES, has_journal)
    is_exact = all(phase.is_exact for phase in measured)
    if as_json:
        render.json_text(
            {
                "machine": machine(),
                "size": size,
                "journal": has_journal,
                "phases": [phase.as_json() for phase in measured],
                "exact": is_exact,
            }
        )
    else:
        _print(measured, size)
    return DONE if is_exact else NEGATIVE


def measure(
    messages: int, size: int, rate: float, phases: tuple[str, ...], has_journal: bool = True
) -> list[BenchPhase]:
    """Measure these phases, one after the other.

    Args:
        messages: the messages in each phase.
        size: octets of a body.
        rate: messages a second of the latency phase.
        phases: names from `PHASES`.
        has_journal: the brokers keep an audit journal.

    Raises:
        CommandError: a broker or the load failed, or there was no progress.
    """
    found: list[BenchPhase] = []
    measures: Mapping[str, Callable[[Benchmark], list[BenchPhase]]] = {
        "backlog": Benchmark.backlog,
        "live": Benchmark.live,
        "latency": lambda self: self.latency(rate),
    }
    with render.progress() as progress:
        task = progress.add_task("starting", total=len(phases))
        for name in phases:
            progress.update(task, description=name)
            with DaemonPair(settings={"journal": {"enabled": has_journal}}) as pair:
                found += measures[name](Benchmark(pair, messages, size))
            progress.advance(task)
    return found


def machine() -> Facts:
    """Return the facts about the machine that the figures depend on."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


class Benchmark:
    """The phases on one fresh pair.

    Args:
        pair: not started yet.
        messages: their number.
        size: octets of a body.
    """

    def __init__(self, pair: DaemonPair, messages: int, size: int) -> None:
        self._pair = pair
        self._messages = messages
        self._size = size
        self._address = f"{QUEUE}@{pair.beta.domain}"

    def backlog(self) -> list[BenchPhase]:
        """Measure accept, backlog and drain."""
        pair, total = self._pair, self._messages
        pair.start(pair.alpha)
        before = _cpu(pair.alpha)
        with self._load("publish", pair.alpha.tcp, self._address, total) as publisher:
            result = publisher.result()
        accept = self._published("accept", result)
        accept.cpu_seconds |= _since(before, pair.alpha)
        pair.start(pair.beta)
        with (
            Connected(pair.alpha.unix, "bench") as at_alpha,
            Connected(pair.beta.unix, "bench") as at_beta,
        ):
            alpha, beta = LoadManagement(at_alpha), LoadManagement(at_beta)
            first = _wait_for_depth(beta, 1)
            before, began = _cpu(*pair.daemons), time.monotonic()
            _wait_for_depth(beta, result["accepted"])
            seconds = time.monotonic() - began
            _wait_until_relayed(alpha, pair.beta.domain)
            backlog = BenchPhase("backlog", result["accepted"] - first, seconds)
            backlog.cpu_seconds = _since(before, *pair.daemons)
            backlog.peak_bytes = _peaks(*pair.daemons)
        drain = self._drain("drain", total)
        for phase in (accept, backlog):
            phase.lost, phase.duplicated = drain.lost, drain.duplicated
        return [accept, backlog, drain]

    def live(self) -> list[BenchPhase]:
        """Measure from the first message published to the last one in beta's queue."""
        pair, total = self._pair, self._messages
        pair.start()
        with (
            Connected(pair.alpha.unix, "bench") as at_alpha,
            Connected(pair.beta.unix, "bench") as at_beta,
        ):
            alpha, beta = LoadManagement(at_alpha), LoadManagement(at_beta)
            before = _cpu(*pair.daemons)
            with self._load("publish", pair.alpha.tcp, self._address, total) as publisher:
                _wait_for_depth(beta, total, lambda: publisher.has_failed)
                ended = time.monotonic_ns()
                result = publisher.result()
            _wait_until_relayed(alpha, pair.beta.domain)
            live = self._published("live", result)
            live.seconds = (ended - result["first_ns"]) / 1e9
            live.cpu_seconds |= _since(before, *pair.daemons)
            live.peak_bytes = _peaks(*pair.daemons)
        drained = self._drain("drain", total)
        live.lost, live.duplicated = drained.lost, drained.duplicated
        return [live]

    def latency(self, rate: float) -> list[BenchPhase]:
        """Measure from publishing at a rate to consuming."""
        pair = self._pair
        total = max(100, min(self._messages, int(rate * LATENCY_SECONDS)))
        pair.start()
        # One message before, so that the connection between the brokers exists.
        with self._load("publish", pair.alpha.tcp, self._address, 1) as publisher:
            publisher.result()
        with self._load("consume", pair.beta.tcp, QUEUE, 1) as consumer:
            consumer.result()
        before = _cpu(*pair.daemons)
        with (
            self._load("consume", pair.beta.tcp, QUEUE, total) as consumer,
            self._load("publish", pair.alpha.tcp, self._address, total, rate) as publisher,
        ):
            published, consumed = publisher.result(), consumer.result()
        phase = self._published("latency", published)
        phase.seconds = (consumed["last_ns"] - published["first_ns"]) / 1e9
        phase.cpu_seconds |= _since(before, *pair.daemons)
        phase.cpu_seconds["consumer"] = consumed["cpu_seconds"]
        phase.peak_bytes = _peaks(*pair.daemons)
        phase.latency_ms = consumed["latency_ms"]
        phase.lost = consumed["lost"]
        phase.duplicated = consumed["duplicated"] + consumed["strange"]
        return [phase]

    def _drain(self, name: str, total: int) -> BenchPhase:
        beta = self._pair.beta
        before = _cpu(beta)
        with self._load("consume", beta.tcp, QUEUE, total) as consumer:
            result = consumer.result()
        phase = BenchPhase(name, result["received"], (result["last_ns"] - result["first_ns"]) / 1e9)
        phase.cpu_seconds = {**_since(before, beta), "consumer": result["cpu_seconds"]}
        phase.lost = result["lost"]
        phase.duplicated = result["duplicated"] + result["strange"]
        return phase

    def _published(self, name: str, result: Facts) -> BenchPhase:
        seconds = (result["last_ns"] - result["first_ns"]) / 1e9
        phase = BenchPhase(name, result["accepted"], seconds, refused=result["refused"])
        phase.cpu_seconds["publisher"] = result["cpu_seconds"]
        return phase

    @contextlib.contextmanager
    def _load(
        self, what: str, place: LoadTarget, address: str, messages: int, rate: float = 0.0
    ) -> Iterator[Load]:
        load = Load(what, place, address, messages, self._size, rate)
        try:
            yield load
        finally:
            load.end()


class Load:
    """A process that publishes or consumes; see `amqproute.tools.load_worker`."""

    def __init__(
        self, what: str, place: LoadTarget, address: str, messages: int, size: int, rate: float
    ) -> None:
        self._what = what
        self._seconds = 2 * STUCK_SECONDS + messages / (rate or 500.0)
        options = {
            "host": place.host,
            "port": place.port,
            "address": address,
            "messages": messages,
            "size": size,
            "rate": rate,
            "patience": STUCK_SECONDS,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "amqproute.tools.load_worker", what, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=child_environment(),
            start_new_session=True,
            preexec_fn=dies_with(os.getpid()),
        )

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error."""
        return self._process.poll() not in (None, 0)

    def result(self) -> Facts:
        """Wait for its end, and return its counts.

        Raises:
            CommandError: it failed, or does not end.
        """
        try:
            printed, complained = self._process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            raise _stuck(f"the process that should {self._what} does not end") from None
        if self._process.returncode:
            words = f"the process that should {self._what} ended with {self._process.returncode}"
            raise CommandError(NEGATIVE, "bench.load", words, "", complained.splitlines()[-5:])
        counted: Facts = json.loads(printed)
        return counted

    def end(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


# -- waiting -----------------------------------------------------------------------------------


def _wait_for_depth(
    management: LoadManagement, depth: int, is_hopeless: Callable[[], bool] = lambda: False
) -> int:
    """Wait until beta's queue has this depth, and return its depth.

    Raises:
        CommandError: it has not grown for `STUCK_SECONDS`, or cannot grow any more.
    """
    moved, before = time.monotonic(), -1
    while True:
        found: int = management.row("queue", QUEUE).get("depth", 0)
        if found >= depth:
            return found
        if found != before:
            moved, before = time.monotonic(), found
        elif is_hopeless() or time.monotonic() - moved > STUCK_SECONDS:
            raise _stuck(f"{found} messages have come to {QUEUE!r}, {depth} were expected")
        is_near = found * 10 >= depth * 9 or depth == 1
        time.sleep(LOOK_CLOSELY_SECONDS if is_near else LOOK_SECONDS)


def _wait_until_relayed(management: LoadManagement, hop: str) -> None:
    """Wait until the relay queue is empty: the last outcome is durable too.

    Raises:
        CommandError: it does not become empty.
    """
    until = time.monotonic() + STUCK_SECONDS
    while any(row["depth"] for row in management.rows("relay-queue") if row.get("hop") == hop):
        if time.monotonic() > until:
            raise _stuck(f"the relay queue of {hop} does not become empty")
        time.sleep(LOOK_CLOSELY_SECONDS)


def _stuck(words: str) -> CommandError:
    return CommandError(
        NEGATIVE, "bench.stuck", words, "try with fewer messages; is the disk full?"
    )


def _cpu(*daemons: DaemonProcess) -> dict[str, float]:
    return {daemon.name: daemon.cpu_seconds for daemon in daemons}


def _since(before: Mapping[str, float], *daemons: DaemonProcess) -> dict[str, float]:
    return {name: spent - before[name] for name, spent in _cpu(*daemons).items()}


def _peaks(*daemons: DaemonProcess) -> dict[str, int]:
    return {daemon.name: daemon.peak_bytes for daemon in daemons}


# -- output -----------------------------------------------------------------------------------


def _print(phases: list[BenchPhase], size: int) -> None:
    facts = machine()
    click.echo(f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}")
    click.echo(f"durable messages of {size} octets, mutual TLS on loopback, CPU in s per 100,000\n")
    processes = ("alpha", "beta", "publisher", "consumer")
    headings = ("phase", "messages", "messages/s", *processes, "p50", "p99", "max", "wrong")
    rows = [
        (
            phase.name,
            phase.messages,
            f"{phase.rate:.0f}",
            *(_shown(phase.cpu_per_100k(process), 2) for process in processes),
            *(_shown(phase.latency_ms.get(name), 1, " ms") for name in ("p50", "p99", "max")),
            phase.lost + phase.duplicated + sum(phase.refused.values()),
        )
        for phase in phases
    ]
    render.table(headings, rows, right=" ".join(headings[1:]))


def _shown(value: float | None, digits: int, unit: str = "") -> str | None:
    return None if value is None else f"{value:.{digits}f}{unit}"
