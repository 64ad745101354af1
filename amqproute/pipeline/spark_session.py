# SPDX-License-Identifier: Apache-2.0
"""The Spark session: one machine's by default, and unchanged whatever it was submitted to.

What the user said wins, from the strongest: a session that is active already, what
``spark-submit`` gave, the arguments of `session`, ``PYSPARK_SUBMIT_ARGS`` and
``spark-defaults.conf``, and last the defaults here. The defaults for one machine (addresses,
partitions, the interpreter of the workers) apply only to a local master.

With little to do, to get ready is most of it: Java's second compiler, plans that are made anew
after each stage, and files of many partitions then cost more than they bring. So who knows how much
there is says so, and up to `SMALL_OCTETS` one machine is set up for that. What is computed, and by
which code of ours, is the same.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import amqproute
from amqproute.pipeline.class_archive import class_archive
from amqproute.pipeline.java import find_java, start_gateway

__all__ = ["SMALL_OCTETS", "session"]

MEMORY = "4g"
"""Of the driver's JVM, which on one machine does all the work."""

SMALL_OCTETS = 100_000_000
"""Segments of so many octets, one and a half million events, are little to do."""

_LOGGING = Path(__file__).parent / "log4j2.properties"

_CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    # Java interprets a method of more octets than this and never compiles it. Spark keeps operators
    # apart of which it would make one: hops take a quarter less.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.parquet.compression.codec": "zstd",
    # A task writes to few days and domains: to keep their files open is cheaper than to sort.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.ui.enabled": "false",
    # With it each column and each step asks the JVM six times over, for the line of Python that an
    # error would name; `debug` has it.
    _CALL_SITES: "false",
}


# Plans run once each, so most of what Java generates for them is not worth its optimizing compiler,
# which with a million events takes more of the machine than the work does. What is, still comes to
# run so often within moments: ten times the calls and turns of loops that it waits for by itself.
_JAVA = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

# For little to do: code that is compiled quickly, by the first compiler only, with room for all of
# it, and no collecting because classes are loaded.
_JAVA_SMALL = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:MetaspaceSize=256m",
)
_SERIAL = "-XX:+UseSerialGC"
_COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC\b")
_SHARING = re.compile(r"-XX:(SharedArchiveFile|ArchiveClassesAtExit|\+AutoCreate|AOT)|-Xshare")
_DEFAULTS = "spark.driver.defaultJavaOptions"
_JAVA_VARIABLES = (
    "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
)  # fmt: skip
"""Where options for Java may stand besides Spark's settings."""


def session(
    name: str = "amqproute",
    *,
    master: str | None = None,
    memory: str | None = None,
    local_dir: str | None = None,
    progress: bool | None = None,
    settings: Mapping[str, str] | None = None,
    debug: bool = False,
    octets: int | None = None,
) -> SparkSession:
    """Return the Spark session of this process; start it, and its JVM, if there is none.

    :param name: of the application, as a cluster shows it.
    :param master: where to run; by default where it was submitted to, else ``local[*]``.
    :param memory: of the driver's JVM, as Spark writes sizes (``4g``). It is taken when the JVM
        starts, not later.
    :param local_dir: for what does not fit into memory; by default the system's temporary folder.
    :param progress: whether to show a line of progress; by default when standard error is a
        terminal.
    :param settings: more of Spark's configuration, before the defaults of this module.
    :param debug: whether to log also what the exceptions say of tasks that fail, with all stacks;
        taken when the JVM starts.
    :param octets: of the segments that the work is about; None if that is not known.
    :raises JavaError: when no Java is found that Spark runs on, or it does not start.
    """
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    given = dict(settings or {})
    if master is not None:
        given["spark.master"] = master
    if local_dir is not None:
        given["spark.local.dir"] = local_dir
    if memory is not None:
        given["spark.driver.memory"] = memory
    shown = sys.stderr.isatty() if progress is None else progress
    given.setdefault("spark.ui.showConsoleProgress", str(shown).lower())

    # PySpark's own record of each error, as JSON on standard error beside the exception.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    if debug:
        os.environ["AMQPROUTE_DEBUG"] = "1"  # the workers of this machine take it over
    is_small = octets is not None and octets <= SMALL_OCTETS
    gateway = _gateway(given, debug, is_small, may_write=octets is not None)
    conf = SparkConf(_jvm=gateway.jvm).setAppName(name)
    for key, value in given.items():
        conf.set(key, value)
    if debug:
        conf.setIfMissing(_CALL_SITES, "true")
    _complete(conf, is_small)
    SparkContext._ensure_initialized(gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _gateway(
    given: Mapping[str, str], debug: bool, is_small: bool, *, may_write: bool
) -> JavaGateway:
    """Connect with the JVM that ``spark-submit`` or an earlier session started, or start one."""
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _connected()
    _prepare_workers(given)
    options = _start_options(given, debug, is_small)
    java, spark_home = find_java(os.environ), _find_spark_home()
    archive = None
    if _is_local(given) and _DEFAULTS in options and not _SHARING.search(_said(options)):
        archive = class_archive(java.program, spark_home, os.environ, may_write=may_write)
    if archive is not None:
        options[_DEFAULTS] = " ".join([options[_DEFAULTS], *archive.options])
    started = start_gateway(java, spark_home, options, archive)
    atexit.register(_stop)  # last registered is first: before the JVM is ended
    # PySpark takes a JVM that runs from the environment. What this process starts (a daemon, a
    # second Spark) shall not.
    os.environ["PYSPARK_GATEWAY_PORT"] = str(started.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = started.secret
    try:
        return _connected()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _connected() -> JavaGateway:
    return launch_gateway()  # type: ignore[no-untyped-call]


def _stop() -> None:
    """Stop what runs, so that nothing waits for a JVM that is gone."""
    if (context := SparkContext._active_spark_context) is not None:
        context.stop()
    if (gateway := SparkContext._gateway) is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None


def _start_options(given: Mapping[str, str], debug: bool, is_small: bool) -> dict[str, str]:
    """Return what has to be known when the JVM starts."""
    options = {k: v for k, v in given.items() if k.startswith(("spark.driver.", "spark.master"))}
    if _is_local(given) and not _configured("spark-defaults.conf"):
        java = " ".join(_small_java(options) if is_small else _JAVA)
        options.setdefault(_DEFAULTS, java)
    if not _configured("log4j2.properties", "log4j2.xml"):
        java_options = options.get("spark.driver.extraJavaOptions", "")
        logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        if debug:
            logging += " -Damqproute.failures=warn -Damqproute.stacks=full"
        options["spark.driver.extraJavaOptions"] = f"{java_options} {logging}".strip()
    return options


def _small_java(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return options of Java for little to do: with a collector, unless the user names one.

    A JVM that is asked for two does not start.
    """
    return _JAVA_SMALL if _COLLECTOR.search(_said(options)) else (*_JAVA_SMALL, _SERIAL)


def _said(options: Mapping[str, str]) -> str:
    """Return all that is said about options of Java."""
    return " ".join([*options.values(), *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])


def _prepare_workers(given: Mapping[str, str]) -> None:
    """Set, where the user has not, what the JVM and the workers read from the environment."""
    os.environ.setdefault("SPARK_DRIVER_MEMORY", MEMORY)
    if not _is_local(given):
        return
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers run what the driver runs, also from a folder of sources.
    here = str(Path(amqproute.__file__).parents[1])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])


def _is_local(given: Mapping[str, str]) -> bool:
    """Tell whether this machine will do all the work, as far as is known before the start."""
    master = given.get("spark.master", os.environ.get("MASTER", "local"))
    if "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "") or not master.startswith("local"):
        return False
    return "spark.master" in given or not _configured("spark-defaults.conf")


def _configured(*names: str) -> bool:
    """Tell whether the user's configuration of Spark has one of these files."""
    folder = os.environ.get("SPARK_CONF_DIR") or str(Path(_find_spark_home(), "conf"))
    return any(Path(folder, name).exists() for name in names)


def _complete(conf: SparkConf, is_small: bool) -> None:
    """Add the defaults for what nobody has set."""
    defaults = dict(_EVERYWHERE)
    conf.setIfMissing("spark.master", "local[*]")
    master = conf.get("spark.master") or ""
    if master.startswith("local"):
        # Adaptive execution joins partitions that came out small, and splits none.
        cores = os.cpu_count() or 1
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(8, 4 * cores)),
            # A job to list some days' directories takes longer than to list them.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
            "spark.sql.warehouse.dir": str(
                Path(tempfile.gettempdir(), f"amqproute-warehouse-{os.getuid()}")
            ),
        }
        if is_small:
            defaults |= {
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.shuffle.partitions": str(max(2, 2 * cores)),
            }
    for key, value in defaults.items():
        conf.setIfMissing(key, value)
