# SPDX-License-Identifier: Apache-2.0
"""A night of the pipeline on a cluster while workers are killed.

``python -m tests.pipeline.night`` is the driver of such a night. It does in its process what
``amqproute pipeline`` does, and kills workers at the places that it was told:

* ``messages``: while a job of this phase runs. A worker is stopped as soon as its executor has
  written something that others have to fetch, and killed when the job waits for it.
* ``messages, kept``: when rows that are used several times have been computed in this phase
  (`amqproute.pipeline.reuse`), and stand on the executors.
* ``publication``: between the last row and the list that makes the tables visible.
* ``driver``: there too, and it is this process that is killed.

Whoever started it hears of each kill, a line of JSON each, and answers with a worker in place of
the one that is gone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pipeline.cluster import EXECUTOR_MEMORY, Worker, executors
from tests.pipeline.support import MISSING, PLANNED_FULLY, SETTINGS
from tests.support.patience import PATIENCE, until

if not MISSING:
    from click.testing import CliRunner
    from pyspark.sql import SparkSession

    from amqproute.cli import pipeline_analysis, pipeline_partners
    from amqproute.cli.main import amqproute
    from amqproute.pipeline import ingest, java, nightly
    from amqproute.pipeline.reuse import Reuse
    from amqproute.pipeline.spark_session import session
    from amqproute.pipeline.warehouse import Warehouse

KEPT = ", kept"
PUBLICATION = "publication"
DRIVER = "driver"
PHASES = (
    "ingest", "hops", "conservation", "messages", "balance", "latencies", "volumes", "reasons",
    "queues", "handovers", "violations", "report", "reconcile",
)  # fmt: skip
"""In which jobs run that a worker can be missed in."""
KEEPING = ("ingest", "conservation", "messages", "reconcile")
"""In which rows are computed that are used several times."""
PLACES = (*PHASES, *(f"{name}{KEPT}" for name in KEEPING), PUBLICATION)
"""Phases in which a worker can be killed."""

IS_LONG = os.environ.get("AMQPROUTE_CLUSTER") == "long"

_INPUT, _OUTPUT = sys.stdin, sys.stdout
"""Those of the process; a command has others."""

_LOOKS = 100
"""So often a job is looked at that may do without a worker before that counts as waiting."""


class Night:
    """The workers that there are, and where one of them is killed."""

    def __init__(
        self, spark: SparkSession, workers: Sequence[Worker], wanted: Sequence[str]
    ) -> None:
        """Know them.

        Args:
            spark: the session on the cluster.
            workers: all that there are.
            wanted: places, each once.
        """
        self._context: Any = spark.sparkContext
        self._workers = list(workers)
        self._wanted = list(wanted)
        self._phase = ""
        self._killing = threading.Lock()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Kill a worker in the middle of this, if it is wanted."""
        before, self._phase = self._phase, name
        try:
            if name not in self._wanted:
                yield
                return
            self._wanted.remove(name)
            self._wait_for_executors()
            is_over = threading.Event()
            killed: list[Worker] = []
            watched = (name, self._workers[0], is_over, killed)
            thread = threading.Thread(target=self._kill_within, args=watched)
            thread.start()
            try:
                yield
            finally:
                is_over.set()
                thread.join()
            if not killed:
                raise AssertionError(f"no job of {name} has waited for a worker")
        finally:
            self._phase = before

    def kept(self) -> None:
        """Rows have been computed in this phase."""
        self.kill_now(f"{self._phase}{KEPT}", "rdd_*")

    def kill_now(self, place: str, blocks: str) -> None:
        """Kill a worker here, if that is wanted, and continue when the driver knows of it."""
        if place not in self._wanted:
            return
        self._wanted.remove(place)
        with self._killing:
            self._wait_for_executors()
            worker = self._workers[-1]  # the first may be about to be killed
            lost = len(worker.blocks(blocks))
            worker.kill()
            number = len(self._workers)
            until(lambda: len(self._tasks()) < number, f"the loss of an executor in {place}")
            self._replace(place, worker, lost)

    def kill_driver(self) -> None:
        """Kill this process, if that is wanted."""
        if DRIVER in self._wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    def check(self) -> None:
        """All that was wanted has happened."""
        assert not self._wanted, f"not reached: {self._wanted}"

    def _kill_within(
        self, place: str, worker: Worker, is_over: threading.Event, killed: list[Worker]
    ) -> None:
        known = worker.blocks("shuffle_*.data")
        [(pid, number)] = executors(worker.pid).items()
        while not is_over.wait(0.005):
            if not (fresh := worker.blocks("shuffle_*.data") - known):
                continue
            os.kill(pid, signal.SIGSTOP)
            if self._waits(number, is_over):
                with self._killing:
                    worker.kill()
                    killed.append(worker)
                    self._replace(place, worker, len(fresh))
                return
            os.kill(pid, signal.SIGCONT)
            known |= fresh

    def _waits(self, number: str, is_over: threading.Event) -> bool:
        """Tell whether a job cannot continue without an executor that has been stopped."""
        tracker = self._context._jsc.sc().statusTracker()
        for _ in range(_LOOKS):
            if is_over.wait(0.01) or not len(tracker.getActiveJobIds()):
                return False
            if self._tasks().get(number):
                return True
        return True

    def _tasks(self) -> dict[str, int]:
        """Return the executors that the driver knows, and how many tasks each of them has."""
        running = self._context._jsc.sc().taskScheduler().runningTasksByExecutors().iterator()
        found = {}
        while running.hasNext():
            each = running.next()
            found[each._1()] = each._2()
        return found

    def _wait_for_executors(self) -> None:
        number = len(self._workers)
        until(lambda: len(self._tasks()) == number, f"{number} executors", 3 * PATIENCE)

    def _replace(self, place: str, worker: Worker, lost: int) -> None:
        self._workers.remove(worker)
        print(json.dumps({"killed": place, "lost": lost}), file=_OUTPUT, flush=True)
        said = json.loads(_INPUT.readline())
        self._workers.append(Worker(said["pid"], Path(said["place"])))


def hook(night: Night) -> None:
    """Have the night know which phase it is in."""

    def within(module: object, name: str, phase: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            with night.phase(phase):
                return function(*arguments, **named)

        setattr(module, name, called)

    within(pipeline_analysis, "ingest_journals", "ingest")
    within(nightly, "judged", "conservation")
    within(pipeline_analysis, "facts_of", "report")
    within(pipeline_partners, "reconcile_days", "reconcile")

    between = nightly.contradictions

    @contextlib.contextmanager
    def contradictions(*arguments: Any, **named: Any) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            with night.phase("handovers"):
                rows = stack.enter_context(between(*arguments, **named))
            yield rows

    nightly.contradictions = contradictions
    messages = nightly.messages

    def in_messages(*arguments: Any, **named: Any) -> Any:
        before, night._phase = night._phase, "messages"
        try:
            return messages(*arguments, **named)
        finally:
            night._phase = before

    nightly.messages = in_messages
    stage, publish, computed = Warehouse.stage, Warehouse.publish, Reuse.computed

    def staged(self: Warehouse, table: str, rows: Any) -> Any:
        with night.phase(table) if table in PHASES else contextlib.nullcontext():
            return stage(self, table, rows)

    def published(self: Warehouse, base: Any, added: Any, *more: Any, **named: Any) -> Any:
        parts = list(added)
        if any(part.table == "messages" for part in parts):
            night.kill_now(PUBLICATION, "shuffle_*.data")
            night.kill_driver()
        return publish(self, base, parts, *more, **named)

    def kept(self: Reuse, rows: Any) -> Any:
        found = computed(self, rows)
        night.kept()
        return found

    Warehouse.stage, Warehouse.publish, Reuse.computed = staged, published, kept  # type: ignore


def settings(local: str) -> Mapping[str, str]:
    """Return what Spark is told: as for other tests, and where executors find the driver."""
    return {
        **SETTINGS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": local,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SETTINGS["spark.driver.extraJavaOptions"],
        # As it is out in the world, where it takes longer.
        **(PLANNED_FULLY if IS_LONG else {}),
        # Also where a table is small, as on a cluster it is not.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.files.minPartitionNum": "4",
        # What an executor has kept is rather read from it than computed where nobody waits.
        "spark.locality.wait": "0s",
        # A connection with an executor that is gone is not looked for for long.
        "spark.shuffle.io.retryWait": "1s",
        # What lives may be slow: an executor that was killed is missed at once all the same.
        "spark.network.timeout": "600s",
        # Workers are killed one after the other, each with a stage that it takes part in.
        "spark.stage.maxConsecutiveAttempts": "10",
    }


def main() -> None:
    """Do the commands that were given, one after the other; say how each of them ended."""
    java._START = 3 * PATIENCE  # on a machine with much else to do
    told = json.loads(sys.argv[1])
    spark = session("night", master=told["master"], memory="1g", progress=False,
                    settings=settings(told["local"]))  # fmt: skip
    spark.sparkContext.setLogLevel(told.get("log", "FATAL"))
    workers = [Worker(pid, Path(place)) for pid, place in told["workers"]]
    night = Night(spark, workers, told["kill"])
    hook(night)
    ingest.clock_us = functools.partial(int, told["now_us"])
    for command in told["commands"]:
        done = CliRunner().invoke(amqproute, ["pipeline", *command])
        said = {"code": done.exit_code, "output": done.stdout, "errors": done.stderr}
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            traceback.print_exception(done.exception)
        print(json.dumps(said), flush=True)
    night.check()


if __name__ == "__main__":
    main()
