# SPDX-License-Identifier: Apache-2.0
"""The options of the data source, read and checked.

Names are not case-sensitive. Unknown options are refused: a misspelled one would otherwise be
ignored silently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from amqproute.pipeline.datasource.place import BrokerEndpoint
from amqproute.url import parse_url

__all__ = ["OptionError", "ReadOptions", "StreamOptions", "WriteOptions"]

_PLACE: Final = ("url", "user", "password", "trust", "certificate", "key", "timeout")
_READ: Final = (*_PLACE, "queue", "path", "selector", "limit")
_STREAM: Final = (*_PLACE, "queue", "path", "maxmessages", "wait", "failondataloss")
_WRITE: Final = (*_PLACE, "address", "path", "delivery", "run", "checkpointlocation")


class OptionError(ValueError):
    """An option is missing, unknown, or invalid."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A batch read: browsing queues, which leaves all messages in place.

    Attributes:
        places: the brokers.
        queues: browsed on each of them.
        selector: only messages that match.
        limit: most messages of each queue; None for all.
    """

    places: tuple[BrokerEndpoint, ...]
    queues: tuple[str, ...]
    selector: str | None
    limit: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of ``spark.read``."""
        given = _known(options, _READ, "spark.read")
        limit = _number(given, "limit", None, 1)
        return cls(
            _places(given),
            _queues(given),
            given.get("selector"),
            None if limit is None else int(limit),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """A stream: messages are consumed, in batches.

    Attributes:
        places: the brokers.
        queues: consumed from each of them.
        most: most messages of each queue in a batch.
        wait: seconds to wait for a message before a look ends without one.
        strict: whether missing planned messages end the stream.
    """

    places: tuple[BrokerEndpoint, ...]
    queues: tuple[str, ...]
    most: int
    wait: float
    strict: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Read the options of ``spark.readStream``."""
        given = _known(options, _STREAM, "spark.readStream")
        return cls(
            _places(given),
            _queues(given),
            int(_number(given, "maxmessages", 10_000, 1) or 0),
            _number(given, "wait", 1.0, 0) or 0.0,
            _flag(given, "failondataloss", True),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write.

    Attributes:
        place: the broker.
        address: the address for rows without one.
        exactly_once: whether a repeated task does not send twice.
        run: names this write; writes with the same name are the same write. None: a random name for
            a batch write, and a stream's own.
    """

    place: BrokerEndpoint
    address: str | None
    exactly_once: bool
    run: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of ``write`` or ``writeStream``."""
        given = _known(options, _WRITE, "write")
        places = _places(given)
        if len(places) != 1:
            raise OptionError("write sends to one broker: url has to name one")
        delivery = given.get("delivery", "exactly-once")
        if delivery not in ("exactly-once", "at-least-once"):
            raise OptionError(f"delivery is exactly-once or at-least-once, not {delivery!r}")
        run = given.get("run")
        if run is not None and (len(run) > 100 or not run.isprintable()):
            raise OptionError("run is a name of 100 characters at most")
        return cls(
            places[0],
            given.get("address") or given.get("path"),
            delivery == "exactly-once",
            run or None,
        )


def _known(options: Mapping[str, str], names: Collection[str], where: str) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(set(given) - set(names)):
        raise OptionError(
            f"{where} has no option {', '.join(unknown)}; its options are "
            f"{', '.join(sorted(names))}"
        )
    return given


def _places(given: Mapping[str, str]) -> tuple[BrokerEndpoint, ...]:
    urls = given.get("url", "").split()
    if not urls:
        raise OptionError("the option url is missing: amqp://host, amqps://host or unix:PATH")
    found = []
    for text in urls:
        try:
            url = parse_url(text)
        except ValueError as error:
            raise OptionError(str(error)) from None
        if "user" in given:
            url = replace(url, user=given["user"])
        if "password" in given:
            url = replace(url, password=given["password"])
        found.append(
            BrokerEndpoint(
                url,
                given.get("trust"),
                given.get("certificate"),
                given.get("key"),
                _number(given, "timeout", 30.0, 0.001) or 30.0,
            )
        )
    if len({str(place) for place in found}) < len(found):
        raise OptionError("url names a broker twice")
    return tuple(found)


def _queues(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("queue") or given.get("path") or ""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise OptionError("the option queue is missing: the queues to read, between commas")
    return names


def _number(
    given: Mapping[str, str], name: str, default: float | None, least: float
) -> float | None:
    if name not in given:
        return default
    try:
        number = float(given[name])
    except ValueError:
        number = -1.0
    if not least <= number < 1e9:
        raise OptionError(f"{name} is a number from {least:g}, not {given[name]!r}")
    return number


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    values: dict[str, Literal[True, False]] = {"true": True, "false": False}
    text = given.get(name, str(default)).lower()
    if text not in values:
        raise OptionError(f"{name} is true or false, not {given[name]!r}")
    return values[text]
