# SPDX-License-Identifier: Apache-2.0
"""A gate that holds the tasks of a cluster before they begin, until the driver lets them go.

Whoever kills a worker in the middle of a job has to find the middle. A job of a test is over within
milliseconds, so who looks for it from outside is too late as soon as the machine has more to do.
Here the job waits: a plug-in of the executors (``spark.plugins``) asks for each task, and the task
begins when the driver has answered.

They ask and answer by files in a folder, as all of them are on one machine. The file ``closed``
says that tasks have to ask. A task writes a file with its stage and its executor in the name; it
may go when that file, or ``closed``, is gone.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HeldTask", "TaskGate", "gate_settings", "write_gate"]

_NAME = "amqproute.tests.TaskGate"
_FOLDER = "spark.amqproute.tests.gate"
_SOURCE = f"""
package amqproute.tests;

import java.io.File;
import java.io.IOException;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

public class TaskGate implements SparkPlugin {{
    public DriverPlugin driverPlugin() {{
        return null;
    }}

    public ExecutorPlugin executorPlugin() {{
        return new Executor();
    }}

    public static class Executor implements ExecutorPlugin {{
        private File folder;
        private File closed;
        private String executor;

        public void init(PluginContext context, Map extra) {{
            folder = new File(context.conf().get("{_FOLDER}"));
            closed = new File(folder, "closed");
            executor = context.executorID();
        }}

        public void onTaskStart() {{
            if (!closed.exists()) {{
                return;
            }}
            TaskContext task = TaskContext.get();
            File asked = new File(
                folder, task.stageId() + "-" + task.taskAttemptId() + "-" + executor);
            try {{
                asked.createNewFile();
                while (closed.exists() && asked.exists() && !task.isInterrupted()) {{
                    Thread.sleep(5L);
                }}
            }} catch (IOException error) {{
                throw new RuntimeException(error);
            }} catch (InterruptedException error) {{
                Thread.currentThread().interrupt();
            }} finally {{
                asked.delete();
            }}
        }}
    }}
}}
"""


def write_gate(spark: SparkSession, path: Path) -> None:
    """Write the plug-in as a JAR.

    Args:
        spark: a session of this process, whose JVM compiles it.
        path: of the JAR. The driver has to be started with it (``--jars``).
    """
    context: Any = spark.sparkContext
    jvm = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()  # Spark's own
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in compiler.getBytecodes().items():
            jar.writestr(f"{name.replace('.', '/')}.class", bytes(code))


def gate_settings(folder: Path) -> dict[str, str]:
    """Return the settings of Spark for a gate with a folder."""
    return {"spark.plugins": _NAME, _FOLDER: str(folder)}


class HeldTask(NamedTuple):
    """A task that waits at the gate.

    Attributes:
        stage: its number in the application.
        executor: where it is to run.
        file: by which it has asked.
    """

    stage: int
    executor: str
    file: Path

    def release(self) -> None:
        """Let it begin."""
        self.file.unlink(missing_ok=True)


class TaskGate:
    """The driver's side of the gate, which is open at first."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which exists."""
        self._folder = folder
        self._closed = folder / "closed"

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Hold each task that is about to begin, until this is left or `open` is called."""
        for file in self._asked():  # those of executors that were killed
            file.unlink(missing_ok=True)
        self._closed.touch()
        try:
            yield
        finally:
            self.open()

    def open(self) -> None:
        """Let all tasks begin, those that wait and all others."""
        self._closed.unlink(missing_ok=True)

    def held(self) -> Sequence[HeldTask]:
        """Return the tasks that wait."""
        asked = [(file.name.split("-"), file) for file in self._asked()]
        return [HeldTask(int(stage), executor, file) for (stage, _, executor), file in asked]

    def _asked(self) -> Sequence[Path]:
        return sorted(self._folder.glob("*-*-*"))
