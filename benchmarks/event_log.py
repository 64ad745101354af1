# SPDX-License-Identifier: Apache-2.0
"""Show where a run of Spark spent its time, query by query, from its event log.

Run as ``python -m benchmarks.event_log LOG``. `benchmarks.pipeline` keeps a log with ``--event-log
DIR``. A query is what one action runs; its jobs, stages and tasks are counted. *Idle* is the time
of it in which no job runs: the driver plans, compiles, or lists files. *Between* is the time since
the query before it ended: analysis, and whatever else the program does. CPU is that of the tasks
only; compilers and collectors of Java work beside them.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["QueryProfile", "read_log", "table"]

_SQL: Final = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
_NS_PER_MS: Final = 1_000_000


@dataclass(slots=True)
class QueryProfile:
    """What one query took; times are milliseconds.

    Attributes:
        name: what asked for it.
        begin: since the epoch.
        end: likewise.
        jobs: when each of them began and ended.
        stages: that were run.
        tasks: that were run.
        cpu: of the tasks, with that of unpacking them.
        collecting: of the tasks' time, collections of garbage.
    """

    name: str
    begin: int
    end: int = 0
    jobs: list[tuple[int, int]] = field(default_factory=list)
    stages: int = 0
    tasks: int = 0
    cpu: int = 0
    collecting: int = 0

    @property
    def idle(self) -> int:
        """Milliseconds in which none of its jobs ran."""
        busy, upto = 0, self.begin
        for begin, end in sorted(self.jobs):
            busy += max(0, end - max(begin, upto))
            upto = max(upto, end)
        return self.end - self.begin - busy


def read_log(lines: Iterable[str]) -> list[QueryProfile]:
    """Return the queries of an event log, in order; jobs outside of queries are one each."""
    queries: dict[str, QueryProfile] = {}
    query_of_job: dict[int, str] = {}
    query_of_stage: dict[int, str] = {}
    began: dict[int, int] = {}
    for line in lines:
        event = json.loads(line)
        kind = event["Event"]
        if kind == f"{_SQL}Start":
            key = str(event["executionId"])
            queries[key] = QueryProfile(_name(event), event["time"])
        elif kind == f"{_SQL}End":
            queries[str(event["executionId"])].end = event["time"]
        elif kind == "SparkListenerJobStart":
            job = event["Job ID"]
            properties = event.get("Properties") or {}
            key = properties.get("spark.sql.execution.id") or f"job {job}"
            queries.setdefault(key, QueryProfile(key, event["Submission Time"]))
            query_of_job[job], began[job] = key, event["Submission Time"]
            query_of_stage |= dict.fromkeys(event["Stage IDs"], key)
        elif kind == "SparkListenerJobEnd":
            query = queries[query_of_job[event["Job ID"]]]
            query.jobs.append((began[event["Job ID"]], event["Completion Time"]))
            if query.name.startswith("job "):
                query.end = event["Completion Time"]
        elif kind == "SparkListenerStageCompleted":
            queries[query_of_stage[event["Stage Info"]["Stage ID"]]].stages += 1
        elif kind == "SparkListenerTaskEnd":
            _add_task(queries[query_of_stage[event["Stage ID"]]], event)
    return sorted(queries.values(), key=lambda query: query.begin)


def _name(event: Mapping[str, str]) -> str:
    """Say what asked for a query: the action, and the table if it writes one."""
    action = event["description"].partition(" at ")[0]
    plan = event["physicalPlanDescription"]
    _, found, rest = plan.partition("/table=")
    return f"{action} {rest.split(',')[0].split('/')[0].split()[0]}" if found else action


def _add_task(query: QueryProfile, event: Mapping[str, Mapping[str, int]]) -> None:
    query.tasks += 1
    measured: Mapping[str, int] = defaultdict(int, event.get("Task Metrics") or {})
    used = measured["Executor CPU Time"] + measured["Executor Deserialize CPU Time"]
    query.cpu += used // _NS_PER_MS
    query.collecting += measured["JVM GC Time"]


def table(queries: Iterable[QueryProfile]) -> str:
    """Show them as a table of Markdown, times in seconds."""
    lines = [
        "| query | between | time | idle | jobs | stages | tasks | CPU of tasks | garbage |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    sums, before = defaultdict[int, int](int), 0
    for query in queries:
        between = query.begin - before if before else 0
        before = query.end
        cells = (
            between, query.end - query.begin, query.idle, len(query.jobs), query.stages,
            query.tasks, query.cpu, query.collecting,
        )  # fmt: skip
        for place, value in enumerate(cells):
            sums[place] += value
        lines.append(_row(query.name, cells))
    return "\n".join([*lines, _row("all", tuple(sums.values()))])


_COUNTS: Final = range(3, 6)
"""Places of the cells that are no times."""


def _row(name: str, cells: Iterable[int]) -> str:
    shown = (
        f"{cell}" if place in _COUNTS else f"{cell / 1000:.1f}" for place, cell in enumerate(cells)
    )
    return f"| {name} | {' | '.join(shown)} |"


def main() -> None:
    """Print the table of one log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    with parser.parse_args().log.open(encoding="utf-8") as log:
        print(table(read_log(log)))


if __name__ == "__main__":
    main()
