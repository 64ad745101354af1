# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.tracing``: what tracing costs a message.

Two brokers relay messages, as in ``amqproute bench relay --phase live``: without tracing, and with
it at a sample rate of 1 % and of 100 %, to a collector that takes everything at once. The three
take turns, each time on a fresh pair, and the medians are shown: CPU microseconds of a message at
each broker, from the start of its process until it has nothing more to export, and what that is
more than without tracing. The start is in all three, so the differences are those of tracing.

Switched off, nothing of tracing is loaded: "off" is the broker as it is without the extra. The
journal, which tracing reads, is on in all three.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from amqproute.tools.bench import Benchmark
from amqproute.tools.daemon_pair import DaemonPair, DaemonProcess

SHARES: Final[Mapping[str, float | None]] = {"off": None, "1 %": 0.01, "100 %": 1.0}
CALM_SECONDS: Final = 3.0
"""Tracing decides two seconds after a message's end."""
CALM_SHARE: Final = 0.05
"""Part of a processor that a broker with nothing to do takes at most."""


class Collector(BaseHTTPRequestHandler):
    """Takes all spans."""

    def do_POST(self) -> None:
        """Read them, and say so: an empty message of protobuf."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def spent(daemon: DaemonProcess) -> float:
    """Wait until a broker has nothing more to do; return the CPU seconds of its process."""
    before = daemon.cpu_seconds
    while True:
        time.sleep(CALM_SECONDS)
        after = daemon.cpu_seconds
        if after - before < CALM_SHARE * CALM_SECONDS:
            return after
        before = after


def run(share: float | None, port: int, messages: int) -> tuple[float, float]:
    """Relay messages; return the CPU microseconds of each at alpha and at beta."""
    settings: dict[str, Mapping[str, object]] = {"journal": {"enabled": True}}
    if share is not None:
        endpoint = f"http://127.0.0.1:{port}/v1/traces"
        settings["tracing"] = {"enabled": True, "endpoint": endpoint, "sample-rate": share}
    with DaemonPair(settings=settings) as pair:
        (live,) = Benchmark(pair, messages, 1024).live()
        if not live.is_exact:
            raise SystemExit(f"messages were lost or came twice: {live.as_json()}")
        alpha, beta = (1e6 * spent(each) / messages for each in pair.daemons)
        return alpha, beta


def table(runs: int, messages: int) -> list[str]:
    """Measure; return the lines of a table."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SHARES}
    try:
        for number in range(runs):
            order: Sequence[str] = [*SHARES]
            for name in order if number % 2 else order[::-1]:
                found[name].append(run(SHARES[name], server.server_port, messages))
    finally:
        server.shutdown()
        server.server_close()
    lines = ["| sampled | alpha, µs | more | beta, µs | more |", "|---|---|---|---|---|"]
    medians = {
        name: [statistics.median(column) for column in zip(*pairs, strict=True)]
        for name, pairs in found.items()
    }
    for name, (alpha, beta) in medians.items():
        more = [now - then for now, then in zip((alpha, beta), medians["off"], strict=True)]
        lines.append(f"| {name} | {alpha:.1f} | {more[0]:+.1f} | {beta:.1f} | {more[1]:+.1f} |")
    return lines


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of each of the three")
    parser.add_argument("--messages", type=int, default=100_000, help="of one run")
    asked = parser.parse_args()
    print("\n".join(table(asked.runs, asked.messages)))


if __name__ == "__main__":
    main()
