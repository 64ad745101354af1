# SPDX-License-Identifier: Apache-2.0
"""The address of the local daemon, from its configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from amqproute.cli import render
from amqproute.cli.command_error import USAGE, CommandError
from amqproute.config import Config, load
from amqproute.config.loader import find
from amqproute.errors import ConfigError
from amqproute.url import Url

__all__ = ["local_url", "optional", "trusted"]

SYSTEM: Final = "system"
_UNIX: Final = re.compile(r"\bunix:(/[^\s:\"',\]}]+)")


def local_url(config: Path | None) -> Url:
    """Return the local daemon's socket: the first unix endpoint under `listen`.

    A mistake in the file must not cut operators off from a running daemon: if the file is invalid,
    the first existing socket that it names is used, with a warning.

    Raises:
        CommandError: there is none, or no configuration.
        ConfigError: the configuration is wrong, and names no existing socket.
    """
    try:
        path = find(config)
    except ConfigError as error:
        if config is not None:
            raise
        raise CommandError(
            USAGE,
            "config",
            error.problems[0],
            "say where the daemon is with --url, or where its configuration is with --config",
        ) from None
    try:
        loaded = load(path)
    except ConfigError as error:
        named = _socket_named_in(path)
        if named is None:
            raise
        render.warn(f"{error.problems[0]}; the daemon at unix:{named} is asked all the same")
        return Url("unix", path=named)
    for listen in loaded.listen:
        place = listen.parsed
        if place.kind == "unix":
            return Url("unix", path=place.interface)
    raise CommandError(
        USAGE,
        "usage.url",
        f"{path} has no unix socket under `listen`",
        "say where the daemon is with --url, or add - endpoint: unix:/run/amqproute/amqproute.sock",
    )


def _socket_named_in(path: Path) -> str | None:
    """Return the first existing socket that the text of a configuration names."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        found = _UNIX.search(line.partition("#")[0])
        if found is not None and Path(found[1]).is_socket():
            return found[1]
    return None


def trusted(config: Path | None) -> str:
    """Return the trusted authorities: the configuration's ``tls.trust``, else the system's.

    Raises:
        ConfigError: the given configuration is wrong or missing.
    """
    try:
        path = find(config)
    except ConfigError:
        if config is not None:
            raise
        return SYSTEM
    loaded = optional(path, config, "the system's authorities are trusted; --trust names others")
    return SYSTEM if loaded is None else str(loaded.tls.trust)


def optional(path: Path, asked_for: Path | None, otherwise: str) -> Config | None:
    """Read a configuration that a command can do without; None, with a warning, if it is wrong.

    Args:
        path: the path of the file.
        asked_for: the value of ``--config``; None if it was not given.
        otherwise: the consequence of its absence, for the warning.

    Raises:
        ConfigError: it is wrong, and was given.
    """
    try:
        return load(path)
    except ConfigError as error:
        if asked_for is not None:
            raise
        render.warn(f"{error.problems[0]}; {otherwise}")
        return None
