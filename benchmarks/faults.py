# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: harm of every kind while messages pass, and an exact count afterwards.

::

    python -m benchmarks.faults                     # all, long: half an hour; writes faults.md
    python -m benchmarks.faults --short             # every scenario, small; prints only
    python -m benchmarks.faults --only kills disk   # those whose name has one of these words

The scenarios are classes of `tests.network`; what each of them claims is in its ``claim``. Results
are kept in ``faults.json`` beside the table, so that a part can be run again by itself; each row
says when it was run, and what the machine was like. Exit code 1 if something did not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.network.campaign import Finding, Scenario, machine
from tests.network.crashes import BadLine, KillsAndCuts, StopsAndReloads
from tests.network.destinations import BadNeighbors
from tests.network.peers import Flood, NeverSettles
from tests.network.surroundings import (
    ClockJumps,
    ExpiringCertificates,
    FullDisk,
    TroubledNameServer,
)

HERE: Final = Path(__file__).parent
TABLE: Final = HERE / "faults.md"
KEPT: Final = HERE / "faults.json"

SCENARIOS: Final[Mapping[str, tuple[Scenario, Scenario]]] = {
    "kills-and-cuts": (KillsAndCuts(), KillsAndCuts(messages=800, kills=3, cuts=5)),
    "stops-and-reloads": (StopsAndReloads(), StopsAndReloads(messages=600, stops=2, reloads=3)),
    "bad-line": (BadLine(), BadLine(messages=300, delay_ms=10.0, loss=10.0, cuts=2)),
    "bad-neighbors": (
        BadNeighbors(),
        BadNeighbors(
            destinations=20, laps=1, seconds=2.0, warm_seconds=1.5, rate=300, tolerance=4.0
        ),
    ),
    "never-settles": (
        NeverSettles(),
        NeverSettles(messages=400, seconds=3.0, settle_timeout=1.0, window=50),
    ),
    "flood": (Flood(), Flood(messages=5000, laps=1, tolerance=0.7)),
    "name-server": (TroubledNameServer(), TroubledNameServer(messages=20, rounds=1, pause=0.2)),
    "certificates": (
        ExpiringCertificates(),
        ExpiringCertificates(messages=200, renewals=1, lapses=1, valid_seconds=3.0),
    ),
    "full-disk": (FullDisk(), FullDisk(messages=300, times=1, seconds=1.0)),
    "clock": (ClockJumps(), ClockJumps(messages=400, jumps=4)),
}
"""By name: the long and the short form."""


HEAD: Final = """\
# The fault campaign

Made by `make faults` (`python -m benchmarks.faults`, `--only WORD` for a part). Two brokers, the
name server and the load run on one machine; everything that is random has a seed. *Duplicated* are
messages that came more often than the publisher had sent them: when its own broker dies, a
publisher sends again what it has no outcome for, and the figures count such copies by themselves.

| scenario | | lost | duplicated | seconds | run |
|---|---|---|---|---|---|"""

NOISE: Final = """
## Noise

Latencies are those of a machine with few cores on which brokers, load and name server run together,
and perhaps the work of others as well: the load average at the end of each run says how busy it
was. So the p99 of *bad-neighbors* is compared between laps that take turns, never with a figure of
another day. Counts of lost and duplicated messages do not depend on it.

On a shared machine single laps differ by a factor of eight, so *bad-neighbors* cannot tell a tenth
there, and its `held` means no more than that nothing gross was seen. Four runs of one day, p99 with
the bad ones to p99 without: 1.26 (600 messages/s, load average 8), 1.02 and 1.21 (300 messages/s;
these three by the median of three laps), 0.64 (over all of five laps, as it is done now). The p50,
without and with: 38.6 and 36.0, 6.3 and 5.0, 1.7 and 2.0, 8.0 and 7.7 ms. It wants a machine of its
own, with four cores or more.
"""


def main() -> int:
    """Run scenarios, print what was found, and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="small forms; writes nothing")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="some of them")
    given = parser.parse_args()
    names = [n for n in SCENARIOS if not given.only or any(word in n for word in given.only)]
    if not names:
        parser.error(
            f"no scenario has {' or '.join(given.only)} in its name: {', '.join(SCENARIOS)}"
        )
    failed = False
    for name in names:
        scenario = SCENARIOS[name][given.short]
        print(f"{name}: {scenario.title} ...", file=sys.stderr, flush=True)
        finding = scenario.play()
        failed |= bool(finding.broken)
        print(told(finding), flush=True)
        if given.short:
            continue
        kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        kept[name] = {
            **dataclasses.asdict(finding),
            "machine": machine(),
            "when": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
            "revision": revision(),
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        TABLE.write_text(table(kept))
    return int(failed)


def told(finding: Finding) -> str:
    """Return lines for a terminal."""
    lines = [f"  {finding.verdict}, {finding.seconds:.0f} s {finding.skipped}".rstrip()]
    lines += [f"  {name}: {value}" for name, value in finding.figures.items()]
    lines += [f"  BROKEN: {words}" for words in finding.broken]
    return "\n".join(lines)


def revision() -> str:
    """Return what was measured, if this is a clone."""
    done = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def table(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the document."""
    lines = [HEAD]
    ordered = [(name, kept[name]) for name in SCENARIOS if name in kept]
    for name, each in ordered:
        verdict = _finding(each).verdict
        lost, twice = (each["figures"].get(key, "-") for key in ("lost", "duplicated"))
        lines.append(
            f"| [{each['title']}](#{name}) | {verdict} | {lost} | {twice} | {each['seconds']:.0f} "
            f"| {each['when']}, {each['revision']} |"
        )
    for name, each in ordered:
        parameters = ", ".join(
            f"{key.replace('_', ' ')} {v}" for key, v in each["parameters"].items()
        )
        lines += ["", f"## {name}", "", f"{each['title']}. Claim: {each['claim']}.", ""]
        lines += [f"Parameters: {parameters}.", "", "| figure | |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in each["figures"].items()]
        if each["skipped"]:
            lines += ["", f"Not run: {each['skipped']}."]
        if each["broken"]:
            lines += ["", "Did not hold:", "", *(f"* {_one_line(b)}" for b in each["broken"])]
        lines += ["", f"Machine: {each['machine']}."]
    lines.append(NOISE)
    return "\n".join(lines)


def _finding(each: Mapping[str, Any]) -> Finding:
    return Finding(**{field.name: each[field.name] for field in dataclasses.fields(Finding)})


def _one_line(words: str) -> str:
    return " ".join(words.split())[:500]


if __name__ == "__main__":
    sys.exit(main())
