# SPDX-License-Identifier: Apache-2.0
"""A hanging test fails with the stacks of Python and of each JVM that it started.

A hang shows itself once in many runs and on other machines, where nobody looks. What is known of it
is what the failure says.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from tests.support.patience import PATIENCE

__all__ = ["Overdue", "deadline", "virtual_machines"]

_ASKED = PATIENCE
"""Seconds that a JVM has for its answer."""


class Overdue(BaseException):
    """It took too long. No `Exception`: py4j would handle it as a lost connection, and continue."""


@contextlib.contextmanager
def deadline(seconds: float, give_up: Callable[[], None]) -> Iterator[None]:
    """Raise `Overdue`, with all stacks, where the main thread is after this many seconds.

    Args:
        seconds: long enough for a machine with much else to do.
        give_up: what to do when the stacks are known, so that the next test starts over. The JVMs
            of this process were ended before.
    """

    def expire(number: int, frame: FrameType | None) -> None:
        machines = virtual_machines()
        stacks = [_python_stacks(), *map(_java_stacks, machines)]
        for pid in machines:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        give_up()
        raise Overdue("\n\n".join([f"not done within {seconds:g} s", *stacks]))

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def virtual_machines() -> list[int]:
    """Return the ids of this process's children that run Java."""
    tasks = Path("/proc/self/task").glob("*/children")
    children = sorted({int(pid) for path in tasks for pid in path.read_text().split()})
    return [pid for pid in children if _program(pid).name == "java"]


def _program(pid: int) -> Path:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # it has ended
        return Path()


def _python_stacks() -> str:
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode()


def _java_stacks(pid: int) -> str:
    asked = [str(_program(pid).with_name("jcmd")), str(pid), "Thread.print", "-l"]
    try:
        done = subprocess.run(
            asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=_ASKED,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        # A Java without its tools, or one that does not even answer these: to its own output.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)
        return f"JVM {pid} was asked to write its stacks to its output: {error}"
    return f"JVM {pid}:\n{done.stdout}"
