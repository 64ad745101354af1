# SPDX-License-Identifier: Apache-2.0
"""A hanging Spark test fails with an explanation, and the next one has a new JVM."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.support import MISSING, run_python
from tests.support.patience import PATIENCE

PROGRAM = """
import os, subprocess
from pathlib import Path
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext
from twisted.trial.reporter import TestResult
from amqproute.pipeline.java import find_java
from tests.pipeline import support

# A JVM that is smaller than Spark's, and starts at once.
jars = str(Path(pyspark.__file__).parent / "jars" / "*")
command = [find_java(os.environ).program, "-Xmx64m", "-cp", jars]
command += ["py4j.GatewayServer", "--die-on-broken-pipe", "0"]
process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
port = int(process.stdout.readline())
gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
SparkContext._gateway = SparkContext._active_spark_context = gateway
support.spark = lambda: gateway

class Hanging(support.SparkCase):
    seconds = 2.0

    def test_endless(self):
        try:
            self.spark.jvm.java.util.concurrent.CountDownLatch(1).__getattr__("await")()
        except Exception:
            pass  # as py4j and Spark do

result = TestResult()
Hanging("test_endless").run(result)
[(test, failure)] = result.errors
print(failure.value)
print(process.wait(120), SparkContext._gateway, SparkContext._active_spark_context)
"""


class DeadlineTests(SynchronousTestCase):
    """In a process of its own, which may lose its JVM."""

    skip = MISSING

    def test_hang(self) -> None:
        """The failure shows where Python and where Java stood; the JVM is ended and forgotten."""
        done = run_python(PROGRAM, seconds=PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("not done within 2 s", done.stdout)
        self.assertIn("in test_endless", done.stdout)
        self.assertIn("CountDownLatch.await", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "-9 None None")
