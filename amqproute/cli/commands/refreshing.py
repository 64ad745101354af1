# SPDX-License-Identifier: Apache-2.0
"""Have the daemon of this machine forget what the DNS has said, before a command asks the DNS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from amqproute.cli.client import Patience
from amqproute.cli.commands.access import open_client
from amqproute.cli.commands.asking import ask
from amqproute.cli.commands.options import Access
from amqproute.errors import AmqprouteError

__all__ = ["refresh"]

PATIENCE: Final = Patience(connect_seconds=3.0, answer_seconds=3.0, close_seconds=1.0)


async def refresh(reactor: Any, config: Path | None, address: str) -> str:
    """Have the daemon forget what it knows of the way to an address.

    Args:
        reactor: to connect with.
        config: the configuration's file; None for the usual one.
        address: a domain, or an address there.

    Returns:
        What came of it, in words: a daemon that does not run, or that does not let this user
        manage, keeps nobody from asking the DNS.
    """
    try:
        client = await open_client(reactor, Access(None, config, None), patience=PATIENCE)
        try:
            await ask(client, "FORGET", "peer", address)
        finally:
            await client.close()
    except AmqprouteError as error:
        return f"no daemon was told to forget earlier answers: {error}"
    return "the daemon has forgotten earlier answers and goes by these"
