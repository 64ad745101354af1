# SPDX-License-Identifier: Apache-2.0
"""Spark sessions for commands, and short descriptions of Spark's errors.

A failure in Java prints a page, whose last cause matters. That becomes the text of a refusal, with
the place and the remedy; ``--debug`` shows the page and Spark's log.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import signal
import tempfile
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Final, TypedDict

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from amqproute.cli.command_error import NEGATIVE, USAGE, CommandError
from amqproute.pipeline.exchange import ExchangeSourceError
from amqproute.pipeline.java import JavaError
from amqproute.pipeline.spark_session import session
from amqproute.pipeline.warehouse import TIME_ZONE, PublicationConflict, UnreadableList

__all__ = ["SparkOptions", "reconnect", "started"]


class SparkOptions(TypedDict, total=False):
    """The options of commands for Spark: the keyword arguments of `started`."""

    master: str | None
    memory: str | None
    local_dir: str | None
    debug: bool


@contextlib.contextmanager
def started(
    place: object,
    master: str | None = None,
    memory: str | None = None,
    local_dir: str | None = None,
    debug: bool = False,
    octets: int | None = None,
) -> Iterator[SparkSession]:
    """Return a Spark session in a context; errors of Spark and its data become refusals.

    Args:
        place: the output, for the text of a refusal.
        master: the cluster.
        memory: the memory of the driver's JVM.
        local_dir: for what does not fit into it.
        debug: show all of an error.
        octets: the octets of the segments that the work is about, see `session`.
    """
    try:
        running = session(
            "amqproute pipeline", master=master, memory=memory, local_dir=local_dir, debug=debug,
            octets=octets,
        )  # fmt: skip
        # Regardless of spark-defaults.conf: the tables are by days of UTC.
        running.conf.set(TIME_ZONE, "UTC")
        # PySpark's own handler asks the JVM something in the middle of another question.
        before = signal.signal(signal.SIGINT, _interrupt)
        try:
            yield running
        except KeyboardInterrupt:
            reconnect(running)
            raise
        finally:
            signal.signal(signal.SIGINT, before)
    except JavaError as error:
        raise CommandError(USAGE, "pipeline.java", str(error), "see the words above") from None
    except ExchangeSourceError as error:
        step = "give the directory of a journal, of tables or of an export; see --help"
        raise CommandError(USAGE, "pipeline.source", str(error), step) from None
    except PublicationConflict as error:
        step = "let the other run end, and start this one again"
        raise CommandError(NEGATIVE, "pipeline.conflict", str(error), step) from None
    except UnreadableList as error:
        raise CommandError(NEGATIVE, "pipeline.damaged", str(error), _EXAMINE) from None
    except (PySparkException, Py4JError) as error:
        if debug:
            traceback.print_exception(error)
        raise _refusal(error, str(place), local_dir or tempfile.gettempdir()) from error
    except OSError as error:  # this process reads and writes files of this machine, too
        if error.strerror is None or not any(each in error.strerror for each in _DENIED + _FULL):
            raise
        raise _refused(error.strerror, str(place), local_dir or tempfile.gettempdir()) from error


_TRIES: Final = 10


def reconnect(running: SparkSession) -> None:
    """Restore the connection with Java after Ctrl-C in the middle of a call.

    Py4J closes the connection of that call. While Java's side does so, it may close the next one as
    well, and the next call would fail as if the JVM did not answer.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(Py4JNetworkError):
            running.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
            return


def _interrupt(number: int, frame: FrameType | None) -> None:
    logging.disable()  # of the interrupted call
    raise KeyboardInterrupt


_FULL: Final = ("No space left on device", "Disk quota exceeded")
_DENIED: Final = (
    "Permission denied", "AccessDeniedException", "AccessControlException", "Mkdirs failed",
    "ParentNotDirectoryException", "Read-only file system", "Not a directory",
)  # fmt: skip
_DAMAGED: Final = ("ChecksumException", "is not a Parquet file")
_EXAMINE: Final = (
    "name all that is damaged: amqproute pipeline fsck; then take it from a backup, or remove the "
    "tables and have them made anew of the journals: amqproute pipeline run"
)
_MEMORY: Final = ("OutOfMemoryError", "SparkOutOfMemoryError", "GC overhead limit")


def _refusal(error: PySparkException | Py4JError, place: str, local_dir: str) -> CommandError:
    """Return the refusal for an error: its cause, the place and the remedy."""
    words = _at_bottom(error)
    if words is None:
        step = "it has ended, or was ended for want of memory: see --memory, and start again"
        return CommandError(
            NEGATIVE, "pipeline.spark", "Spark's JVM does not answer any more", step
        )
    return _refused(words, place, local_dir)


def _refused(words: str, place: str, local_dir: str) -> CommandError:
    for code, marks, step in (
        (
            "pipeline.disk-full", _FULL,
            f"make room at {place}, and where Spark keeps what does not fit into memory "
            f"({local_dir}; --local-dir); then start again, nothing is lost",
        ),
        (
            "pipeline.access", _DENIED,
            f"the user {_user()} has to be allowed to read the journals and to write to {place}",
        ),
        ("pipeline.memory", _MEMORY, "give Spark more memory: --memory 8g"),
        ("pipeline.damaged", _DAMAGED, _EXAMINE),
    ):  # fmt: skip
        if any(mark in words for mark in marks):
            return CommandError(NEGATIVE, code, f"{place}: {words}", step)
    step = "--debug shows all that Spark says of it"
    return CommandError(NEGATIVE, "pipeline.spark", f"{place}: {words}", step)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # one without a name
        return "of this process"


def _at_bottom(error: PySparkException | Py4JError) -> str | None:
    """Return the first cause in one line; None if Java does not answer."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else None
    cause = cause or getattr(error, "_origin", None)
    try:
        while cause is not None and (before := cause.getCause()) is not None:
            cause = before
        if cause is not None:
            name, _, words = str(cause.toString()).partition(": ")
            return f"{name.rpartition('.')[2]}: {_first_line(words)}".removesuffix(": ")
    except Py4JError:
        return None
    return None if isinstance(error, Py4JError) else _first_line(str(error))


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
