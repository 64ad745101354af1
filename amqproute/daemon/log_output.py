# SPDX-License-Identifier: Apache-2.0
"""Log output for people, journald and log collectors.

Four styles. ``text`` is a line with time (UTC), level, namespace and message, in color on a
terminal. ``journal`` is the message after a priority prefix (sd-daemon(3)); journald adds the time.
``json`` is one object per line with every named field of the event, for journald after the same
prefix. ``auto`` takes ``journal`` where the stream *is* the journal and ``text`` everywhere else.

Two things hold in every style. Text from a peer can neither forge a line nor reach the terminal as
an escape sequence: control characters are escaped, continuation lines indented. And secrets are
masked, by the name of the field and in the user part of a URL. The masking is the second line of
defense; the first is that nobody logs a credential.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogBeginner,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    globalLogBeginner,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.daemon.descriptors import UnacceptedConnections
from amqproute.daemon.log_bounds import BoundedLog
from amqproute.errors import ConfigError, MessageDamaged, StoreDamaged, StoreUnavailable
from amqproute.printable import printable

__all__ = [
    "STYLES",
    "LineObserver",
    "LogOutput",
    "Style",
    "begin_logging",
    "choose_style",
    "complain",
    "json_line",
    "page_line",
    "text_line",
]

Style = Literal["auto", "text", "json", "journal"]

STYLES: Final[tuple[Style, ...]] = ("auto", "text", "json", "journal")

LEVELS: Final = {level.name: level for level in LogLevel.iterconstants()}
"""Names of the levels: debug, info, warn, error, critical."""

_PRIORITY: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3, "critical": 2}
"""Log level to syslog(3) priority."""

_COLOR: Final = {
    "debug": "\x1b[2m",
    "warn": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[1;31m",
}
_PLAIN: Final = "\x1b[0m"

_SECRET_NAME: Final = re.compile(
    r"(?:\A|_)(?:password|passwd|passphrase|secret|token|credentials?|authorization|private_?key"
    r"|salted_password|initial_response)(?:\Z|_)",
    re.IGNORECASE,
)
_SECRET_IN_URL: Final = re.compile(r"(?<=://)([^\s/:@]*):[^\s/]*@")
_MASK: Final = "***"

OF_THE_DISK: Final = (MessageDamaged, StoreDamaged, StoreUnavailable)
"""Errors logged without a traceback: their text names the damage or the full disk, and the
remedy."""

_LEGACY: Final = frozenset({"time", "isError", "system", "message", "format", "failure", "why"})
"""Fields that `twisted.python.log` adds to each event."""

_OURS: Final = frozenset({"time", "level", "namespace", "message", "failure"})
_FIELD_LIMIT: Final = 2000
_DEPTH_LIMIT: Final = 6


def choose_style(wanted: Style, stream: TextIO, environ: Mapping[str, str]) -> Style:
    """Resolve ``auto``; return any other style as it is.

    ``$JOURNAL_STREAM`` holds device and inode of the journal's socket (systemd.exec(5)). They
    are compared with the stream's own, since the variable is inherited by processes whose
    output was redirected.
    """
    if wanted != "auto":
        return wanted
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or not a file at all
        return "text"
    if environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}":
        return "journal"
    return "text"


def wants_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to write color to this stream (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def text_line(event: LogEvent, *, color: bool = False) -> str:
    """Render an event as ``time level namespace message``, with its traceback below."""
    name = _level(event)
    begin, end = (_COLOR.get(name, ""), _PLAIN) if color and name in _COLOR else ("", "")
    head = f"{_time(event)} {begin}{name:<8}{end} {printable(_namespace(event))}: "
    return head + "\n    ".join(_lines(event)) + "\n"


def journal_line(event: LogEvent) -> str:
    """Render an event with its priority; every line of it is an entry of the journal."""
    prefix = _prefix(event)
    first, *rest = _lines(event)
    lines = [f"{printable(_namespace(event))}: {first}", *(f"    {line}" for line in rest)]
    return "".join(f"{prefix}{line}\n" for line in lines)


def page_line(event: LogEvent) -> str:
    """Render an event as its message, and the first line of its traceback, for a page."""
    return " ".join(_lines(event)[:2])


def _prefix(event: LogEvent) -> str:
    return f"<{_PRIORITY.get(_level(event), 5)}>"


def json_line(event: LogEvent) -> str:
    """Render an event as one JSON object.

    ``time`` (ISO 8601, UTC), ``level``, ``namespace``, ``message`` and, of an error,
    ``failure`` with its traceback; then every named field. Values that JSON cannot hold are written
    as ``str()``; a field with the name of one of ours gets a leading underscore.
    """
    masked = _masked(event)
    line: dict[str, Any] = {
        "time": _time(event),
        "level": _level(event),
        "namespace": _namespace(event),
        "message": _message(masked),
    }
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        line["failure"] = _without_credentials(_traceback(failure))
    for name, value in masked.items():
        if name.startswith("log_") or ("isError" in event and name in _LEGACY):
            continue
        line["_" + name if name in _OURS else name] = _jsonable(value, _DEPTH_LIMIT)
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n"


@implementer(ILogObserver)
class LineObserver:
    """Write each event to a stream, whole and at once.

    A stream that cannot be written (a full disk, a closed pipe) loses the line: the daemon goes on
    with its work, and has nowhere to report the loss.
    """

    def __init__(self, stream: TextIO, render: Callable[[LogEvent], str]) -> None:
        self._stream = stream
        self._render = render

    def __call__(self, event: LogEvent) -> None:
        """Write one event."""
        line = self._render(event)
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            return


class LogOutput:
    """A running log, whose levels can be changed by a reload.

    Args:
        observer: gets the events that pass.
        levels: see `set_levels`.
        seconds: the monotonic clock.
    """

    def __init__(
        self,
        observer: ILogObserver,
        levels: Mapping[str, str],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.info)
        self._bridge = _StdlibBridge()
        self._bounded = BoundedLog(observer, seconds, self._is_debug)
        self.observer = UnacceptedConnections(
            FilteringLogObserver(self._bounded, [self._predicate]), seconds
        )
        self.set_levels(levels)

    def set_levels(self, levels: Mapping[str, str]) -> None:
        """Set the lowest level that is written, by namespace.

        A namespace covers all below it; the empty one is the default (``info`` if not given).

        Raises:
            ConfigError: no such level; nothing has changed.
        """
        known = {}
        for namespace, name in levels.items():
            level = LEVELS.get(name.lower())
            if level is None:
                words = ", ".join(LEVELS)
                raise ConfigError([f"no log level is called {name!r}; there are {words}"])
            known[namespace] = level
        self._predicate.clearLogLevels()
        for namespace, level in known.items():
            self._predicate.setLogLevelForNamespace(namespace, level)
        # The standard library's loggers drop unwanted records before they format them.
        floors = {"": LogLevel.info, **known}.values()
        lowest = min(_STDLIB_LEVEL[level.name] for level in floors)
        self._bridge.setLevel(lowest)
        if self._bridge in logging.getLogger().handlers:
            logging.getLogger().setLevel(lowest)

    def set_partners(self, is_partner: Callable[[str], bool]) -> None:
        """Set the domains that the operator has named; their lines have shares of their own."""
        self._bounded.is_partner = is_partner

    def sum_up(self) -> None:
        """Write the summary of suppressed lines; see `BoundedLog`."""
        self._bounded.sum_up()

    def _is_debug(self, namespace: str) -> bool:
        return bool(self._predicate.logLevelForNamespace(namespace) <= LogLevel.debug)

    def attach_stdlib(self) -> None:
        """Forward the records of the `logging` module into this log."""
        root = logging.getLogger()
        if self._bridge not in root.handlers:
            root.addHandler(self._bridge)
        root.setLevel(self._bridge.level)

    def detach_stdlib(self) -> None:
        """Undo `attach_stdlib`."""
        root = logging.getLogger()
        root.removeHandler(self._bridge)
        root.setLevel(logging.WARNING)


def begin_logging(
    stream: TextIO | None = None,
    *,
    style: Style = "auto",
    levels: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    beginner: LogBeginner = globalLogBeginner,
) -> LogOutput:
    """Start logging, once per process; earlier events are written too.

    Standard output and standard error stay what they are: they belong to the command.

    Args:
        stream: standard error by default.
        style: one of `STYLES`.
        levels: namespace to lowest level, as `LogOutput.set_levels` takes them.
        environ: the environment, for ``auto`` and color.
        beginner: Twisted's; tests bring their own.

    Raises:
        ConfigError: an unknown level.
    """
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    output = LogOutput(
        LineObserver(stream, _renderer(choose_style(style, stream, environ), stream, environ)),
        levels or {},
    )
    beginner.beginLoggingTo([output.observer], redirectStandardIO=False)
    output.attach_stdlib()
    return output


def complain(
    words: str, stream: TextIO | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Write an error to standard error before the log has begun: with its priority for journald."""
    stream = sys.stderr if stream is None else stream
    style = choose_style("auto", stream, os.environ if environ is None else environ)
    prefix = f"<{_PRIORITY['error']}>" if style == "journal" else ""
    stream.write("".join(f"{prefix}{line}\n" for line in words.splitlines()))
    stream.flush()


def _renderer(
    style: Style, stream: TextIO, environ: Mapping[str, str]
) -> Callable[[LogEvent], str]:
    if style == "json":
        # journald takes the priority off, and has the object as its message.
        is_journal = choose_style("auto", stream, environ) == "journal"
        return (lambda event: _prefix(event) + json_line(event)) if is_journal else json_line
    if style == "journal":
        return journal_line
    color = wants_color(stream, environ)
    return lambda event: text_line(event, color=color)


_STDLIB_LEVEL: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class _StdlibBridge(logging.Handler):
    """Forwards records of `logging` to Twisted's log, under the name of their logger."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        name = next(
            (name for name, floor in reversed(_STDLIB_LEVEL.items()) if record.levelno >= floor),
            "debug",
        )
        fields: dict[str, Any] = {}
        if record.exc_info is not None and record.exc_info[1] is not None:
            # Its own traceback, not that of the place where it is logged.
            error = record.exc_info[1]
            fields["log_failure"] = Failure(error)  # type: ignore[no-untyped-call]
        try:
            text = record.getMessage()
        except Exception as error:
            # Keep the message of a library whose format does not fit its arguments.
            text = f"{record.msg!s} (its arguments do not fit: {error})"
        Logger(namespace=record.name).emit(LEVELS[name], "{text}", text=text, **fields)


def _level(event: LogEvent) -> str:
    level = event.get("log_level")
    return str(level.name) if level is not None else "info"


def _namespace(event: LogEvent) -> str:
    return str(event.get("log_namespace") or event.get("log_system") or "-")


def _time(event: LogEvent) -> str:
    # An event made by hand may have no time; the epoch shows that.
    moment = datetime.fromtimestamp(float(event.get("log_time") or 0.0), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(event: LogEvent) -> list[str]:
    """Return message and traceback as printable lines, at least one."""
    text = _message(_masked(event))
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        text += "\n" + _without_credentials(_traceback(failure))
    return [printable(line) for line in text.rstrip("\n").split("\n")]


def _message(masked: LogEvent) -> str:
    text = formatEvent(masked)
    if not text and isinstance(failure := masked.get("log_failure"), Failure):
        text = failure.getErrorMessage()
    return _without_credentials(text)


def _traceback(failure: Failure) -> str:
    """Return the traceback of an error; for a damaged or full disk only its text."""
    if isinstance(failure.value, OF_THE_DISK):
        return failure.getErrorMessage()
    try:
        return failure.getTraceback().rstrip()
    except Exception as error:  # an exception whose __str__ or __repr__ is itself broken
        return f"{failure.type!r} (its traceback cannot be shown: {error!r})"


def _masked(event: LogEvent) -> LogEvent:
    """Return the event with the values of secret fields masked, by their names."""
    secrets = [name for name in event if _SECRET_NAME.search(name)]
    if not secrets:
        return event
    # The flattened form holds the same values again, and would take precedence.
    masked = {name: value for name, value in event.items() if name != "log_flattened"}
    masked.update(dict.fromkeys(secrets, _MASK))
    return masked


def _without_credentials(text: str) -> str:
    return _SECRET_IN_URL.sub(rf"\1:{_MASK}@", text) if "://" in text else text


def _jsonable(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _without_credentials(value)[:_FIELD_LIMIT]
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value[:_FIELD_LIMIT]).decode("utf-8", "backslashreplace")
        return _without_credentials(text)
    if depth > 0 and isinstance(value, Mapping):
        return {
            str(name): _MASK if _SECRET_NAME.search(str(name)) else _jsonable(item, depth - 1)
            for name, item in value.items()
        }
    if depth > 0 and isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(item, depth - 1) for item in value]
    try:
        return _without_credentials(str(value))[:_FIELD_LIMIT]
    except Exception as error:  # a broken __str__ must not cost the line
        return f"<{type(value).__name__} that cannot be shown: {error!r}>"
