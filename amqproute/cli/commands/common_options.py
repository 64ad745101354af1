# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import click

from amqproute.address import placed_in

__all__ = [
    "NODE_NAME",
    "AccessOptions",
    "DayOption",
    "Decorator",
    "access_options",
    "chosen_vhost",
    "config_option",
    "entry_id",
    "json_option",
    "list_vhost_option",
    "opened_vhost_option",
    "vhost_option",
]

Decorator = Callable[[Callable[..., object]], Callable[..., object]]

config_option: Decorator = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The configuration file. [default: $AMQPROUTE_CONFIG, else /etc/amqproute/amqproute.yaml]",
)

json_option: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs; keys are only ever added."
)


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """The options for the connection to the daemon.

    Attributes:
        url: the url, as given, or None for the local daemon's socket.
        config: the configuration file as given, or None.
        trust: the trust file as given, or None.
        vhost: the virtual host to open; None for ``/``.
    """

    url: str | None
    config: Path | None
    trust: Path | None
    vhost: str | None = None


def access_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add --url, --trust and --config; the command takes them as ``access``."""

    @functools.wraps(command)
    def with_access(
        *args: object, url: str | None, trust: Path | None, config: Path | None, **given: object
    ) -> object:
        return command(*args, access=AccessOptions(url, config, trust), **given)

    decorated: Callable[..., object] = with_access
    for option in (
        config_option,
        click.option(
            "--trust",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="PEM file with the authorities to trust. With an amqp:// URL it also asks for "
            "TLS. [default: tls.trust of the configuration, else the system's]",
        ),
        click.option(
            "--url",
            metavar="URL",
            help="amqp://[user[:password]@]host[:port], amqps://... or unix:PATH. "
            "[default: the local daemon's socket, found through the configuration]",
        ),
    ):
        decorated = option(decorated)
    return decorated


_VHOST: Final = "amqproute.vhost"


def _keep_vhost(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    ctx.meta[_VHOST] = value
    return value


vhost_option: Decorator = click.option(
    "--vhost",
    metavar="HOST",
    is_eager=True,
    expose_value=False,
    callback=_keep_vhost,
    help="The virtual host that names are of, / for the one that is always there. Without it they "
    "are names within the broker, as in //HOST/NAME.",
)
"""For commands on single entities, whose arguments are of the type `NODE_NAME`."""

list_vhost_option: Decorator = click.option(
    "--vhost", metavar="HOST", help="Only those of this virtual host; / for the one without a name."
)
"""For lists; the command takes ``vhost``."""


def chosen_vhost() -> str | None:
    """Return what `vhost_option` of the running command says; None if it is not given."""
    chosen = click.get_current_context().meta.get(_VHOST)
    return None if chosen is None else str(chosen)


opened_vhost_option: Decorator = click.option(
    "--vhost",
    metavar="HOST",
    help="The virtual host to open. Its own access rules decide what is allowed there.",
)
"""For commands that publish and consume; the command takes ``vhost``."""


class NodeName(click.ParamType[str]):
    """The name of a node, exchange or policy; becomes the name within the broker."""

    name = "name"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Put a name into the virtual host of `vhost_option`; addresses stay as they are."""
        text = str(value)
        host = None if ctx is None else ctx.meta.get(_VHOST)
        if host is None or "@" in text:
            return text
        placed = placed_in(host, text)
        if placed is None:
            self.fail(f"{text!r} is not in the virtual host {host!r}", param, ctx)
        return placed


NODE_NAME: Final = NodeName()


def entry_id(text: str) -> int:
    """Read the number of a message in the store: the type of a `click` parameter.

    Raises:
        click.BadParameter: it is not a number.
    """
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise click.BadParameter(
            f"{text[:64]!r} is no id of a message: ids are the broker's own numbers, shown by "
            "`amqproute queue messages`; a message-id is given by "
            "--where \"amqp.message_id = '...'\" there"
        )
    return int(text)


class DayOption(click.ParamType[date]):
    """A day in the format of folder names."""

    name = "day"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> date:
        """Read ``2026-11-22``."""
        if isinstance(value, date):
            return value
        try:
            return datetime.strptime(str(value), "%Y-%m-%d").date()  # a day of UTC
        except ValueError:
            self.fail(f"{value!r} is no day, as 2026-11-22", param, ctx)
