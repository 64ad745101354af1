# SPDX-License-Identifier: Apache-2.0
"""Measure a night of the pipeline with a young warehouse, and with an old one.

Run as ``python -m benchmarks.old_warehouse [--days 1 30 365] [--partners 2 20 200] [--events 50000]
[--rounds 3] [--directory DIR] [--json]``. For each number of partners, journals of one organization
and its partners are written: each day has this many events, of messages between any two of them. Of
the days before the night up to `READ` are really taken in, as many as a night reads and one more.
What the warehouse has before that are copies, in files as nights would have left them
(`amqproute.tools.synthetic.history`), and so are folders of the journals, up to `KEPT`. Standard
error has the seconds of each step of the preparation, and of each night.

A night is the command ``amqproute pipeline run`` in a process of its own, with 2 threads, on a copy
of the warehouse; the rounds take turns. It takes in the same segments whatever is in the warehouse,
and writes the same pages: those of a warehouse with fewer days are the last ones of the same
journals. What is printed are medians, and how much of what the night costs with the fewest days it
costs with more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import Any, Final

from amqproute.pipeline.nightly import REACH
from amqproute.tools.synthetic import TrafficPlan, generate

EVENTS_PER_TRANSFER: Final = 4.4
READ: Final = 2 * REACH + 1
"""Days before the night that are really taken in, at most: copies within reach would be recomputed,
and would contradict each other."""
KEPT: Final = 90
"""Days that a journal keeps its segments."""
AGO: Final = 5
"""The night is of so many days ago, and the folders of the days before it are older than those that
are looked into in any case."""
DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class History:
    """Days before the night.

    Attributes:
        real: the number of those that are really taken in.
        place: directory for the ``journals`` of these days.
        journals: directories of the journals there.
        ages: directories of warehouses with more days than that, by the number of all days. Each
            gets ``tables`` and ``journals``.
    """

    real: int
    place: Path
    journals: Sequence[Path]
    ages: Mapping[int, Path]


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Print the seconds of a step when it is done."""
    begin = time.monotonic()
    yield
    print(f"{time.monotonic() - begin:8.1f} s  {what}", file=sys.stderr, flush=True)


def written(events: int, partners: int, first: date, night: date, directory: Path) -> list[Path]:
    """Write journals of some days and of the night behind them; return their directories.

    Args:
        events: of a day, about.
        partners: organizations besides the own one.
        first: day.
        night: the day of the night.
        directory: for the journals.
    """
    start = int(datetime.combine(first, clock(), UTC).timestamp())
    days = (night - first).days
    plan = TrafficPlan(
        round(events * (days + 1) / EVENTS_PER_TRANSFER),
        organizations=tuple(f"org-{number:03}.example" for number in range(partners + 1)),
        start=start,
        seconds=(days + 1) * DAY,
        stock_seconds=DAY // 2,
    )
    return list(generate(plan, directory).journals.values())


def build(histories: Sequence[History], work: str) -> None:
    """Make the warehouses and journals of some histories, but for the night.

    Args:
        histories: each is ingested and processed once, whatever the number of its ages.
        work: for what Spark keeps.
    """
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.nightly import refresh, settle
    from amqproute.pipeline.spark_session import session
    from amqproute.pipeline.warehouse import Warehouse
    from amqproute.tools.synthetic.history import grow_old, journal_days

    with _step("start"):
        spark = session("benchmark", master="local[2]", local_dir=work, progress=False)
    for history in histories:
        young = Warehouse(spark, history.place / "tables")
        with _step(f"ingest of {history.real} days"):
            ingest(young, history.journals)
        with _step(f"entries and figures of {history.real} days"):
            settle(young, refresh(young))
        for days, place in history.ages.items():
            with _step(f"copies for {days} days"):
                _copy(Path(young.base), place / "tables")
                _copy(history.place / "journals", place / "journals")
                for journal in history.journals:
                    copies = min(days, KEPT) - history.real
                    journal_days(place / "journals" / journal.name, copies)
                grow_old(Warehouse(spark, place / "tables"), days - history.real)


def _copy(tree: Path, target: Path) -> None:
    shutil.copytree(tree, target, copy_function=os.link)


def _days(journal: Path) -> list[Path]:
    """Return the folders of a journal, in order."""
    return sorted(path for path in journal.iterdir() if path.is_dir())


def _copy_days(
    journals: Sequence[Path], place: Path, since: date, until: date = date.max
) -> list[Path]:
    """Copy the days of journals from one day to before another; return the copies' directories."""
    copied = []
    for journal in journals:
        copied.append(place / journal.name)
        copied[-1].mkdir(parents=True, exist_ok=True)
        for folder in _days(journal):
            if since.isoformat() <= folder.name < until.isoformat():
                _copy(folder, copied[-1] / folder.name)
    return copied


def night(journals: Sequence[Path], warehouse: Path, work: str) -> tuple[float, float]:
    """Run the night; return its seconds, by the wall and of CPU."""
    words = ["pipeline", "run", "--json", "--master", "local[2]", "--local-dir", work]
    words += [f"--warehouse={warehouse}", *(f"--journal={journal}" for journal in journals)]
    program = "import sys; from amqproute.cli.main import main; sys.exit(main())"
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or not json.loads(done.stdout)["taken"]["segments"]:
        raise SystemExit(f"the night has failed: {done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def measure(
    partners: int, days: Sequence[int], events: int, rounds: int, directory: Path
) -> list[dict[str, Any]]:
    """Measure a night for one number of partners, with each number of days."""
    work = str(directory / "work")
    Path(work).mkdir(parents=True)
    most, that_day = min(max(days), READ), (datetime.now(UTC) - timedelta(AGO)).date()
    with _step(f"journals of {most} days and a night, {partners} partners"):
        first = that_day - timedelta(most)
        journals = written(events, partners, first, that_day, directory / "journals")
    histories = []
    for real in sorted({min(number, READ) for number in days}):
        place = directory / str(real)
        ages = {each: place / f"{each}-days" for each in days if min(each, READ) == real}
        since = that_day - timedelta(real)
        copied = _copy_days(journals, place / "journals", since, that_day)
        histories.append(History(real, place, copied, ages))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(build, (histories, work))
    nights: dict[int, tuple[Path, Sequence[Path]]] = {}
    for history in histories:
        for number, age in history.ages.items():
            _copy_days(journals, age / "journals", that_day)
            nights[number] = age, history.journals
        # The warehouse knows journals by their directories.
        shutil.rmtree(history.place / "journals")
    found: dict[int, list[tuple[float, float]]] = {number: [] for number in days}
    for _ in range(rounds):
        for number, (age, last) in nights.items():
            _copy(age / "tables", age / "copy")
            here = (age / "journals").rename(last[0].parent)
            with _step(f"night after {number} days"):
                found[number].append(night(last, age / "copy", work))
            here.rename(age / "journals")
            shutil.rmtree(age / "copy")
    rows = []
    for number, times in found.items():
        seconds, cpu = (statistics.median(each[i] for each in times) for i in (0, 1))
        row = {"partners": partners, "days": number, "events": events, "rounds": times}
        rows.append(row | {"seconds": round(seconds, 1), "cpu": round(cpu, 1)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    shutil.rmtree(directory)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Show what was measured as a table of Markdown."""
    lines = ["| partners | days | night, s | of the least | CPU, s | of the least |",
             "|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for row in rows:
        alike = [each for each in rows if each["partners"] == row["partners"]]
        shares = [row[unit] / min(each[unit] for each in alike) for unit in ("seconds", "cpu")]
        lines.append(
            f"| {row['partners']} | {row['days']} | {row['seconds']:.1f} | {shares[0]:.2f} | "
            f"{row['cpu']:.1f} | {shares[1]:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, nargs="+", default=[1, 30, 365])
    parser.add_argument("--partners", type=int, nargs="+", default=[2, 20, 200])
    parser.add_argument("--events", type=int, default=50_000, help="of a day")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="for what is written; a gigabyte or two")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="amqproute-bench-", dir=options.directory) as own:
        for partners in options.partners:
            place = Path(own) / str(partners)
            rows += measure(partners, options.days, options.events, options.rounds, place)
    print(json.dumps(rows) if options.json else table(rows))


if __name__ == "__main__":
    main()
