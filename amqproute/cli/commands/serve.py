# SPDX-License-Identifier: Apache-2.0
"""``serve``: run the daemon."""

from __future__ import annotations

from pathlib import Path

import click

from amqproute.cli.commands.common_options import config_option
from amqproute.cli.program_commands import ProgramCommand
from amqproute.config.loader import find
from amqproute.daemon import service

__all__ = ["serve"]


@click.command(cls=ProgramCommand)
@config_option
def serve(config: Path | None) -> int:
    """Run the daemon in the foreground.

    SIGTERM and SIGINT stop it in order, SIGHUP re-reads the configuration. Exits with 0 after a
    stop, 1 if it could not start, 2 if the configuration is wrong.
    """
    return service.run(find(config))
