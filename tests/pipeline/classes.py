# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.pipeline.classes``: archive Spark's classes for all JVMs of the suite.

A JVM that starts Spark loads some ten thousand classes, and half of what it takes until the first
rows are there is to parse and verify them. Java can keep them in a file (class data sharing); the
suite starts eight JVMs. `make test` has this run once, after Spark was installed. Without the file,
or with one that does not fit, the tests do the same and take longer.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.pipeline.support import CLASSES, JAVA, MISSING, run_python
from tests.support.patience import PATIENCE

PROGRAM = """
import sys
from pathlib import Path
from amqproute.pipeline import java
from amqproute.pipeline.spark_session import session
from tests.support.patience import PATIENCE

java._END = 4 * PATIENCE  # the JVM writes the file when it ends
folder = Path(sys.argv[1])
settings = {"spark.driver.extraJavaOptions": sys.argv[2]}
spark = session(memory="1g", master="local[1]", settings=settings)
rows = spark.createDataFrame([(1, "a", 2.0)], "a int, b string, c double")
rows.selectExpr("a", "to_json(struct(*)) j").write.parquet(str(folder / "rows"))
again = spark.read.parquet(str(folder / "rows")).join(rows, "a")
again.groupBy("b").agg({"a": "sum", "j": "max"}).orderBy("b").collect()
"""


def main() -> None:
    """Write the file, in one piece."""
    if MISSING:
        print(MISSING, file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(dir=CLASSES.parent) as folder:
        written = Path(folder, "classes")
        options = f"{JAVA} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        done = run_python(PROGRAM, folder, options, seconds=5 * PATIENCE)
        if done.returncode or not written.exists():
            sys.exit(f"Spark's classes cannot be kept here:\n{done.stdout}{done.stderr}")
        os.replace(written, CLASSES)


if __name__ == "__main__":
    main()
