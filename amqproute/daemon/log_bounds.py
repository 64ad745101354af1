# SPDX-License-Identifier: Apache-2.0
"""Bounds the log lines that clients, other brokers and strangers can cause.

Every event on its way to the log passes here, whatever its origin: no line can be forgotten. The
fields of an event name the party that it is about: ``destination``, or a relay queue as ``node``;
``principal``, ``who``, ``holder`` or ``party``; ``connection`` or ``peer``. The party decides the
group (`GROUPS`), and each party of a group has a share of lines of each kind; a kind is a format
string of the program. So the first lines about a party are all written. Lines beyond a share, or
beyond the total of the group, are counted, and every `SUM_SECONDS` a summary says how many of each
kind were suppressed, and which party most of them were about.

Partners, the domains named under ``peers`` or ``routes``, have shares of their own that no other
party uses. Where a partner has authenticated, lines that name only its address count as its own
too: a connection that comes to nothing has no other name.

Events without a party have a share by kind. Three sorts of event are never suppressed: errors that
are not exceptions (damage, a store that fails), actions of operators (`amqproute.services` at level
info), and failed log-ins, which have their own bounds for fail2ban
(`amqproute.auth.refused_log_ins`). At level debug everything is written.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Final

from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel
from zope.interface import implementer

from amqproute.log_rate_limit import (
    GroupAllowance,
    LineAllowance,
    LineShares,
    SuppressedLines,
    source_of,
)
from amqproute.values import RELAY_PREFIX

__all__ = ["GROUPS", "SUM_SECONDS", "BoundedLog"]

log = Logger()

SUM_SECONDS: Final = 60.0
"""Seconds between two summaries of suppressed lines."""

GROUPS: Final[Mapping[str, GroupAllowance]] = {
    "partner": GroupAllowance(LineAllowance(30, 10), None),
    "user": GroupAllowance(LineAllowance(60, 5), LineAllowance(600, 1)),
    "stranger": GroupAllowance(LineAllowance(100, 60), LineAllowance(500, 2)),
    "destination": GroupAllowance(LineAllowance(20, 60), LineAllowance(200, 2)),
    "program": GroupAllowance(LineAllowance(100, 10), None),
}
"""Lines of one kind about a party, and lines in sum. A ``user`` has logged in; a ``stranger`` is an
address or a broker that nobody has named; a ``destination`` is a domain that nobody has named; the
``program`` is whatever names no party."""

LONGEST_FIELD: Final = 1000
"""Characters of a field of an event about a party, since remote parties choose much of it."""
MOST_ITEMS: Final = 20
"""Items of a list in such an event."""
MOST_ADDRESSES: Final = 1000
"""Addresses of partners that are remembered."""
MOST_NAMED: Final = 5
"""Kinds that a summary names."""

_OWN_BOUNDS: Final = "amqproute.auth.refused_log_ins"
_BY_OPERATORS: Final = "amqproute.services."
_PRINCIPALS: Final = ("principal", "who", "holder", "party")
_REMOTES: Final = ("connection", "peer")
_FIELD: Final = re.compile(r"\{[^{}]*\}")


@implementer(ILogObserver)
class BoundedLog:
    """Passes on events about each party up to its share.

    Args:
        observer: gets the events that are written.
        seconds: the monotonic clock.
        is_debug: whether every event of a namespace is written.

    Attributes:
        is_partner: whether the operator has named a normalized domain.
    """

    def __init__(
        self,
        observer: ILogObserver,
        seconds: Callable[[], float],
        is_debug: Callable[[str], bool],
    ) -> None:
        self.is_partner: Callable[[str], bool] = lambda _: False
        self._observer = observer
        self._seconds = seconds
        self._is_debug = is_debug
        self._shares = LineShares(GROUPS)
        self._addresses: OrderedDict[str, str] = OrderedDict()
        # The store's threads log as well; and objects may log when garbage collection ends them, at
        # any point, in a thread that holds the lock.
        self._lock = RLock()

    def __call__(self, event: LogEvent) -> None:
        """Pass an event on, or count it."""
        namespace = str(event.get("log_namespace") or "")
        if self._is_exempt(event, namespace):
            self._observer(event)
            return
        now = self._seconds()
        kind = _kind_of(event, namespace)
        with self._lock:
            group, party = self._party_of(event)
            is_warning = event.get("log_level", LogLevel.info) >= LogLevel.warn
            is_admitted = self._shares.admit(group, party, kind, is_warning, now)
            left_out = self._shares.left_out(now, SUM_SECONDS)
        if is_admitted:
            self._observer(event if group == "program" else _shortened(event))
        self._say(left_out)

    def sum_up(self) -> None:
        """Write the summary of suppressed lines, if there are any."""
        with self._lock:
            left_out = self._shares.left_out(self._seconds())
        self._say(left_out)

    def _is_exempt(self, event: LogEvent, namespace: str) -> bool:
        level = event.get("log_level", LogLevel.info)
        if namespace == _OWN_BOUNDS or self._is_debug(namespace):
            return True
        if level >= LogLevel.error:
            return "log_failure" not in event
        return level <= LogLevel.info and namespace.startswith(_BY_OPERATORS)

    def _party_of(self, event: LogEvent) -> tuple[str, str]:
        """Return group and name of the party that an event is about."""
        destination = event.get("destination")
        node = event.get("node")
        if isinstance(node, str) and node.startswith(RELAY_PREFIX):
            destination = node.removeprefix(RELAY_PREFIX)
        if isinstance(destination, str):
            # A key with a port is the gateway of a route, which only operators configure.
            is_named = ":" in destination or self.is_partner(destination)
            return ("partner" if is_named else "destination"), destination
        address = next((_address(event[key]) for key in _REMOTES if key in event), "")
        who = next((str(event[key]) for key in _PRINCIPALS if key in event), "")
        kind, _, name = who.partition(":")
        if kind in ("user", "uid"):
            return "user", who
        if kind == "peer" and self.is_partner(name):
            if address:
                self._addresses[address] = name
                self._addresses.move_to_end(address)
                if len(self._addresses) > MOST_ADDRESSES:
                    self._addresses.popitem(last=False)
            return "partner", name
        if address.startswith("unix:"):
            return "user", address
        if address in self._addresses:
            return "partner", self._addresses[address]
        party = address or who
        return ("stranger", party) if party else ("program", "")

    def _say(self, left_out: SuppressedLines | None) -> None:
        if left_out is None:
            return
        kinds = sorted(left_out.kinds.items(), key=lambda each: -each[1])
        words = [f'{count} of "{kind}"' for kind, count in kinds[:MOST_NAMED]]
        further = sum(count for _, count in kinds[MOST_NAMED:])
        if further:
            words.append(f"{further} of other kinds")
        most, count = max(left_out.parties.items(), key=lambda each: each[1])
        (log.warn if left_out.has_warnings else log.info)(
            "{count} lines were left out within {seconds:.0f} s: {kinds}{most}; with log.level "
            "debug all are written",
            count=left_out.count,
            seconds=left_out.seconds,
            kinds=", ".join(words),
            most=f"; {count} of them about {most}" if most else "",
        )


def _kind_of(event: LogEvent, namespace: str) -> str:
    """Return the kind of an event: its text without its fields."""
    text = event.get("log_format")
    words = _FIELD.sub("...", text) if isinstance(text, str) else ""
    return f"{namespace.removeprefix('amqproute.')}: {words}"[:160]


def _address(remote: object) -> str:
    """Return the network of a transport's address that counts as one party."""
    text = str(remote) if isinstance(remote, str) else ""
    if text.startswith("unix:"):
        return text
    host = text.rpartition(":")[0] if text.startswith("[") or text.count(":") == 1 else text
    return source_of(host.strip("[]")) or text[:LONGEST_FIELD]


def _shortened(event: LogEvent) -> LogEvent:
    """Return an event whose fields have a bounded size."""
    fields = {
        name: _cut(value)
        for name, value in event.items()
        if not name.startswith("log_") and name != "isError"
    }
    return (
        event
        if all(event[name] is value for name, value in fields.items())
        else {
            **{name: value for name, value in event.items() if name != "log_flattened"},
            **fields,
        }
    )


def _cut(value: object) -> object:
    if isinstance(value, BaseException):
        value = str(value)
    if isinstance(value, str) and len(value) > LONGEST_FIELD:
        return f"{value[:LONGEST_FIELD]}..."
    if isinstance(value, list | tuple):
        cut = [_cut(each) for each in value[:MOST_ITEMS]]
        if len(value) > MOST_ITEMS:
            cut.append(f"{len(value) - MOST_ITEMS} more")
        return cut
    if isinstance(value, Mapping):
        return {key: _cut(each) for key, each in value.items()}
    return value
