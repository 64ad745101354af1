# SPDX-License-Identifier: Apache-2.0
"""What the configuration of this machine says of how to get to its daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from amqproute.cli.refusal import USAGE, Refusal
from amqproute.config import load
from amqproute.config.load import find
from amqproute.errors import ConfigError
from amqproute.url import Url

__all__ = ["local_url", "trusted"]

SYSTEM: Final = "system"


def local_url(config: Path | None) -> Url:
    """Return the local daemon's socket: the first unix endpoint under `listen`.

    Raises:
        Refusal: there is none, or no configuration.
        ConfigError: the configuration is wrong.
    """
    try:
        path = find(config)
    except ConfigError as error:
        if config is not None:
            raise
        raise Refusal(
            USAGE,
            "config",
            error.problems[0],
            "say where the daemon is with --url, or where its configuration is with --config",
        ) from None
    loaded = load(path)
    for listen in loaded.listen:
        place = listen.parsed
        if place.kind == "unix":
            return Url("unix", path=place.interface)
    raise Refusal(
        USAGE,
        "usage.url",
        f"{path} has no unix socket under `listen`",
        "say where the daemon is with --url, or add - endpoint: unix:/run/amqproute/amqproute.sock",
    )


def trusted(config: Path | None) -> str:
    """Return whom to trust: the configuration's ``tls.trust``, else the system's.

    Raises:
        ConfigError: the configuration is wrong, or the one that was asked for is not there.
    """
    try:
        path = find(config)
    except ConfigError:
        if config is not None:
            raise
        return SYSTEM
    return str(load(path).tls.trust)
