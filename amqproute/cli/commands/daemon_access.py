# SPDX-License-Identifier: Apache-2.0
"""The connection to the daemon, by the options of a command.

The configuration is loaded only where it is needed, and not with a complete ``--url``: its schema
is a third of a command's imports.
"""

from __future__ import annotations

from amqproute.cli.client import Client, ClientTimeouts, connect
from amqproute.cli.command_error import USAGE, CommandError
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.url import parse_url

__all__ = ["open_client"]


async def open_client(
    reactor: IReactor, access: AccessOptions, *, patience: ClientTimeouts | None = None
) -> Client:
    """Connect by the options.

    Raises:
        CommandError: the options or the configuration are wrong, or the connection failed.
    """
    if access.url is None:
        from amqproute.cli.commands import local_daemon  # a third of what a command loads

        url = local_daemon.local_url(access.config)
    else:
        try:
            url = parse_url(access.url)
        except ValueError as error:
            raise CommandError(
                USAGE, "usage.url", str(error), "as in --url amqps://broker.example"
            ) from None
    upgrade = url.scheme == "amqp" and access.trust is not None
    contexts = None
    if url.scheme == "amqps" or upgrade:
        contexts = TlsContexts(None, None, _trust(access))
    return await connect(
        reactor,
        url,
        contexts=contexts,
        upgrade=upgrade,
        patience=patience,
        vhost=access.vhost,
    )


def _trust(access: AccessOptions) -> str:
    """Return the trusted authorities: --trust, else the configuration's, else the system's."""
    if access.trust is not None:
        return str(access.trust)
    from amqproute.cli.commands import local_daemon  # a third of what a command loads

    return local_daemon.trusted(access.config)
