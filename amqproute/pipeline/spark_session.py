# SPDX-License-Identifier: Apache-2.0
"""The Spark session: for one machine by default, and unchanged when submitted elsewhere.

The user's settings win, from the strongest: a session that is already active, the options of
``spark-submit``, the arguments of `session`, ``PYSPARK_SUBMIT_ARGS`` and ``spark-defaults.conf``,
and last the defaults here. The defaults for one machine (addresses, partitions, the interpreter of
the workers) apply only to a local master.

In small runs the start takes most of the time: Java's second compiler, adaptive plans, and files of
many partitions then cost more than they save. So callers that know the amount of data pass it, and
up to `SMALL_OCTETS` one machine is configured for that. The results, and our code behind them, are
the same.
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

from py4j.java_gateway import JavaClass, JavaGateway, JavaMember
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import amqproute
from amqproute.pipeline.class_archive import class_archive
from amqproute.pipeline.java import find_java, start_gateway

__all__ = ["SMALL_OCTETS", "session"]

MEMORY = "4g"
"""Memory of the driver's JVM, which on one machine does all the work."""

SMALL_OCTETS = 100_000_000
"""Octets of segments, one and a half million events, up to which a run is small."""

_LOGGING = Path(__file__).parent / "log4j2.properties"

_CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    # Java interprets methods of more octets than this and never compiles them. Spark splits
    # operators that would become such a method: hops take a quarter less.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.parquet.compression.codec": "zstd",
    # A task writes to few days and domains: keeping their files open is cheaper than sorting.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.ui.enabled": "false",
    # Otherwise each column and each step asks the JVM six times over, for the line of Python that
    # an error would name; `debug` has it.
    _CALL_SITES: "false",
}


# Plans run once each, so most of the code that Java generates for them is not worth its optimizing
# compiler, which with a million events takes more of the machine than the work does. Hot code still
# runs often enough within moments: the thresholds are ten times Java's own numbers of calls and
# loops.
_JAVA = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

# For small runs: fast compilation, by the first compiler only, with room for all code, and no
# garbage collection because of loaded classes.
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
"""Settings of the environment for Java's options, besides Spark's settings."""


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

    :param name: of the application, as a cluster shows it. :param master: where to run; by default
    where it was submitted to, else ``local[*]``. :param memory: of the driver's JVM, in Spark's
    notation (``4g``). It takes effect only when the JVM starts. :param local_dir: for data that
    does not fit into memory; by default the system's temporary folder. :param progress: whether to
    show a progress line; by default if standard error is a terminal. :param settings: more of
    Spark's configuration, before the defaults of this module. :param debug: whether to log also the
    exceptions of failed tasks, with all stacks; takes effect when the JVM starts. :param octets: of
    the segments to process; None if unknown. :raises JavaError: if no Java that Spark supports is
    found, or it does not start.
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
        os.environ["AMQPROUTE_DEBUG"] = "1"  # inherited by the workers of this machine
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
    """Connect to the JVM that ``spark-submit`` or an earlier session started, or start one."""
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
    # PySpark finds a running JVM through the environment. Child processes (a daemon, a second
    # Spark) must not.
    os.environ["PYSPARK_GATEWAY_PORT"] = str(started.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = started.secret
    try:
        return _connected()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


class _KnownClass(JavaClass):  # type: ignore[misc]
    """A class of Java whose methods are looked up once, as py4j does it for those of objects."""

    def __getattr__(self, name: str) -> object:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


_ASKED_OFTEN = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")
"""Names of classes by which PySpark builds columns and plans. For each column Java would search
all its archives for them, and then hundreds of methods."""


def _connected() -> JavaGateway:
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    for name in _ASKED_OFTEN:
        full_name = getattr(gateway.jvm, name)._fqn
        setattr(gateway.jvm, name, _KnownClass(full_name, gateway._gateway_client))
    return gateway


def _stop() -> None:
    """Stop the session, so that nothing waits for a JVM that has ended."""
    if (context := SparkContext._active_spark_context) is not None:
        context.stop()
    if (gateway := SparkContext._gateway) is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None


def _start_options(given: Mapping[str, str], debug: bool, is_small: bool) -> dict[str, str]:
    """Return the settings that must be known when the JVM starts."""
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
    """Return Java's options for small runs: with a collector, unless the user names one.

    A JVM with two collectors does not start.
    """
    return _JAVA_SMALL if _COLLECTOR.search(_said(options)) else (*_JAVA_SMALL, _SERIAL)


def _said(options: Mapping[str, str]) -> str:
    """Return all options of Java that are set anywhere."""
    return " ".join([*options.values(), *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])


def _prepare_workers(given: Mapping[str, str]) -> None:
    """Set environment variables for the JVM and the workers, except those set by the user."""
    os.environ.setdefault("SPARK_DRIVER_MEMORY", MEMORY)
    if not _is_local(given):
        return
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers run the same code as the driver, even from a source directory.
    here = str(Path(amqproute.__file__).parents[1])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])


def _is_local(given: Mapping[str, str]) -> bool:
    """Return whether this machine will do all the work, as far as is known before the start."""
    master = given.get("spark.master", os.environ.get("MASTER", "local"))
    if "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "") or not master.startswith("local"):
        return False
    return "spark.master" in given or not _configured("spark-defaults.conf")


def _configured(*names: str) -> bool:
    """Return whether the user's configuration of Spark has one of these files."""
    folder = os.environ.get("SPARK_CONF_DIR") or str(Path(_find_spark_home(), "conf"))
    return any(Path(folder, name).exists() for name in names)


def _complete(conf: SparkConf, is_small: bool) -> None:
    """Add defaults for everything unset."""
    defaults = dict(_EVERYWHERE)
    conf.setIfMissing("spark.master", "local[*]")
    master = conf.get("spark.master") or ""
    if master.startswith("local"):
        # Adaptive execution merges small partitions, and splits none.
        cores = os.cpu_count() or 1
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(8, 4 * cores)),
            # A job to list some days' directories takes longer than the listing.
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
