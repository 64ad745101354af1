# SPDX-License-Identifier: Apache-2.0
"""From options to a connection with the daemon, and to its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from amqproute.cli.client import Client, Patience, connect
from amqproute.cli.commands.options import Access
from amqproute.cli.refusal import USAGE, Refusal
from amqproute.config import Config, load
from amqproute.config.load import find
from amqproute.errors import ConfigError
from amqproute.net.tls import TlsContexts
from amqproute.url import Url, parse_url

__all__ = ["local_url", "open_client"]

SYSTEM: Final = "system"


def local_url(config: Config) -> Url:
    """Return the local daemon's socket: the first unix endpoint under `listen`.

    Raises:
        Refusal: there is none.
    """
    for listen in config.listen:
        place = listen.parsed
        if place.kind == "unix":
            return Url("unix", path=place.interface)
    raise Refusal(
        USAGE,
        "usage.url",
        f"{config.source.path} has no unix socket under `listen`",
        "say where the daemon is with --url, or add - endpoint: unix:/run/amqproute/amqproute.sock",
    )


async def open_client(reactor: Any, access: Access, *, patience: Patience | None = None) -> Client:
    """Connect as the options say.

    Raises:
        Refusal: the options, the configuration or the connection do not do.
    """
    if access.url is None:
        url = _default_url(access.config)
    else:
        try:
            url = parse_url(access.url)
        except ValueError as error:
            raise Refusal(
                USAGE, "usage.url", str(error), "as in --url amqps://broker.example"
            ) from None
    upgrade = url.scheme == "amqp" and access.trust is not None
    contexts = None
    if url.scheme == "amqps" or upgrade:
        contexts = TlsContexts(None, None, _trust(access))
    return await connect(reactor, url, contexts=contexts, upgrade=upgrade, patience=patience)


def _default_url(config: Path | None) -> Url:
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
    return local_url(load(path))


def _trust(access: Access) -> str:
    """Whom to trust: --trust, else the configuration's, else the system's."""
    if access.trust is not None:
        return str(access.trust)
    try:
        path = find(access.config)
    except ConfigError:
        if access.config is not None:
            raise
        return SYSTEM
    return str(load(path).tls.trust)
