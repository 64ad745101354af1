# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import click

__all__ = ["AccessOptions", "DayOption", "access_options", "config_option", "json_option"]

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
        url: as given, or None for the local daemon's socket.
        config: the configuration file as given, or None.
        trust: the trust file as given, or None.
    """

    url: str | None
    config: Path | None
    trust: Path | None


def access_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add --url, --trust and --config; the command takes ``url``, ``trust`` and ``config``."""
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
        command = option(command)
    return command


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
