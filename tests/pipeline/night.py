# SPDX-License-Identifier: Apache-2.0
"""A night of the pipeline on a cluster while workers are killed.

``python -m tests.pipeline.night`` is the driver of such a night. It does in its process what
``amqproute pipeline`` does, and kills workers at the places that it was told:

* ``messages``: while a job of this phase runs. Its tasks wait at a gate
  (`tests.pipeline.task_gate`); when one waits that has to fetch what the executor of a worker has
  written in this phase, this worker is killed, and the task goes on.
* ``messages, kept``: when rows that are used several times have been computed in this phase
  (`amqproute.pipeline.reuse`), and stand on the executors.
* ``publication``: between the last row and the list that makes the tables visible.
* ``driver``: there too, and it is this process that is killed.

Whoever started it hears of each kill, a line of JSON each, and answers with a worker in place of
the one that is gone. The line says how much was lost with the worker: there is no kill that nobody
misses.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.pipeline.cluster import EXECUTOR_MEMORY, Worker, executors
from tests.pipeline.support import MISSING, PLANNED_FULLY, SETTINGS
from tests.pipeline.task_gate import TaskGate, gate_settings
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

_WRITTEN = "shuffle_*.data"
"""Files of what tasks of one stage have written for those of another, ``shuffle_7_31_0.data``:
shuffle 7, task 31."""


class Night:
    """The workers that there are, and where one of them is killed."""

    def __init__(
        self, spark: SparkSession, workers: Sequence[Worker], wanted: Sequence[str], gate: TaskGate
    ) -> None:
        """Know them.

        Args:
            spark: the session on the cluster.
            workers: all that there are.
            wanted: places, each once.
            gate: where tasks of the session wait when it is closed.
        """
        self._context: Any = spark.sparkContext
        self._workers = list(workers)
        self._wanted = list(wanted)
        self._gate = gate
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
            self._wait_for_executors()
            known = {file for worker in self._workers for file in worker.blocks(_WRITTEN)}
            is_over = threading.Event()
            with ThreadPoolExecutor(1) as thread, self._gate.closed():
                killing = thread.submit(self._kill_within, name, known, is_over)
                try:
                    yield
                finally:
                    is_over.set()
                    killing.result()
            if name in self._wanted:
                raise AssertionError(f"no task of {name} had to fetch what a worker had written")
        finally:
            self._phase = before

    def kept(self) -> None:
        """Rows have been computed in this phase."""
        self.kill_now(f"{self._phase}{KEPT}", self._kept_rows)

    def kill_now(self, place: str, found: Callable[[Worker], int]) -> None:
        """Kill a worker here, if that is wanted, and continue when the driver knows of it.

        Args:
            place: the place.
            found: returns how much a worker has of what is to be lost. The one that has most of it
                is killed.
        """
        if place not in self._wanted:
            return
        with self._killing:
            self._wait_for_executors()
            what = f"a worker with something to lose in {place}"
            until(lambda: any(found(worker) for worker in self._workers), what)
            worker = max(self._workers, key=found)
            lost = found(worker)
            gone = set(executors(worker.pid).values())
            worker.kill()
            until(lambda: gone.isdisjoint(self._executors()), f"the loss of a worker in {place}")
            self._replace(place, worker, lost)

    def kill_driver(self) -> None:
        """Kill this process, if that is wanted."""
        if DRIVER in self._wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    def check(self) -> None:
        """All that was wanted has happened."""
        assert not self._wanted, f"not reached: {self._wanted}"

    def _kill_within(self, place: str, known: set[str], is_over: threading.Event) -> None:
        """Let tasks begin, up to one that needs what a worker has written, and kill this worker.

        Args:
            place: the phase.
            known: files of before.
            is_over: is set at the end of the phase.
        """
        try:
            while not is_over.wait(0.005):
                for task in self._gate.held():
                    if (fetched := self._fetched(task.stage)) is None:
                        continue
                    with self._killing:
                        if lost := self._writer(fetched, known, task.executor):
                            worker, files = lost
                            worker.kill()
                            self._gate.open()
                            self._replace(place, worker, files)
                            return
                    task.release()
        finally:
            self._gate.open()

    def _fetched(self, stage: int) -> set[str] | None:
        """Return the numbers of the shuffles that tasks of a stage fetch; None if the driver is
        changing its list of stages."""
        found = self._context._jsc.sc().dagScheduler().stageIdToStage().get(stage)
        if found.isEmpty():
            return None
        parents = found.get().parents().iterator()
        numbers = set()
        while parents.hasNext():
            numbers.add(str(parents.next().shuffleDep().shuffleId()))
        return numbers

    def _writer(
        self, shuffles: set[str], known: set[str], reader: str
    ) -> tuple[Worker, int] | None:
        """Return a worker with files of some shuffles, and how many.

        Args:
            shuffles: their numbers.
            known: files that do not count.
            reader: an executor. Another one is rather taken than this.
        """
        found = []
        for worker in self._workers:
            written = worker.blocks(_WRITTEN) - known
            if files := sum(name.split("_")[1] in shuffles for name in written):
                found.append((reader not in executors(worker.pid).values(), files, worker))
        if not found:
            return None
        _, files, worker = max(found, key=lambda each: each[:2])
        return worker, files

    def _kept_rows(self, worker: Worker) -> int:
        """Return how many partitions of rows that are used several times a worker keeps, as far as
        the driver has counted them."""
        numbers = executors(worker.pid).values()
        known = self._context._jsc.sc().statusStore().executorList(True).iterator()
        kept = 0
        while known.hasNext():
            executor = known.next()
            kept += executor.rddBlocks() * (executor.id() in numbers)
        return kept

    def _executors(self) -> set[str]:
        """Return the executors that the driver knows."""
        running = self._context._jsc.sc().taskScheduler().runningTasksByExecutors().iterator()
        found = set()
        while running.hasNext():
            found.add(running.next()._1())
        return found

    def _wait_for_executors(self) -> None:
        """Wait until the driver knows an executor of each worker, and none that is gone."""

        def are_there() -> bool:
            running = [executors(worker.pid) for worker in self._workers]
            numbers = {number for each in running for number in each.values()}
            return all(running) and self._executors() == numbers

        until(are_there, f"executors of {len(self._workers)} workers", 3 * PATIENCE)

    def _replace(self, place: str, worker: Worker, lost: int) -> None:
        self._wanted.remove(place)
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
            night.kill_now(PUBLICATION, lambda worker: len(worker.blocks(_WRITTEN)))
            night.kill_driver()
        return publish(self, base, parts, *more, **named)

    def kept(self: Reuse, rows: Any) -> Any:
        found = computed(self, rows)
        night.kept()
        return found

    Warehouse.stage, Warehouse.publish, Reuse.computed = staged, published, kept  # type: ignore


def settings(local: str, gate: Path) -> Mapping[str, str]:
    """Return what Spark is told: as for other tests, and where executors find the driver and its
    gate."""
    return {
        **SETTINGS,
        **gate_settings(gate),
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
    gate = Path(told["gate"])
    spark = session("night", master=told["master"], memory="1g", progress=False,
                    settings=settings(told["local"], gate))  # fmt: skip
    spark.sparkContext.setLogLevel(told.get("log", "FATAL"))
    workers = [Worker(pid, Path(place)) for pid, place in told["workers"]]
    night = Night(spark, workers, told["kill"], TaskGate(gate))
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
