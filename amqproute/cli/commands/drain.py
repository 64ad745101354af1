# SPDX-License-Identifier: Apache-2.0
"""``drain``: the daemon accepts no new messages and finishes those it has."""

from __future__ import annotations

from typing import Final

import click
from twisted.internet.task import deferLater

from amqproute.cli import render, runner
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.daemon_access import open_client
from amqproute.cli.commands.management_request import ask, carry_out
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.net.reactor import IReactor

__all__ = ["drain"]

LOOK_SECONDS: Final = 0.5


@click.command(cls=ProgramCommand)
@click.option("--end", is_flag=True, help="Accept messages again.")
@click.option("--status", "asks", is_flag=True, help="Only show the progress.")
@click.option("--no-wait", is_flag=True, help="Begin, and do not wait for the end.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time. The drain continues. [default: for ever]",
)
@access_options
@json_option
def drain(
    end: bool,
    asks: bool,
    no_wait: bool,
    timeout: float | None,
    access: AccessOptions,
    as_json: bool,
) -> int:
    """Accept no new messages, deliver those that can be delivered, and report when done.

    Publishers and other organizations' brokers get no credit and keep their messages; nobody is
    disconnected, and nothing is refused. Consumers and the relay continue. The drain is done when
    nothing is in progress and the remaining messages cannot leave now: their node has no consumer,
    or their next hop is held or unreachable. A connected consumer or peer that accepts nothing
    delays the end.

    Then stop the daemon as usual, or let it accept messages again with --end. A restart ends a
    drain, too. Meanwhile `amqproute status` reports the drain. Exit code 1 if it is not
    done.
    """
    if end + asks + no_wait > 1 or (timeout is not None and (end or asks or no_wait)):
        raise CommandError(
            USAGE, "usage.drain", "these options exclude each other", "give one: see --help"
        )
    if end or asks or no_wait:
        operation = "DRAIN-END" if end else "DRAIN-STATUS" if asks else "DRAIN"
        facts = carry_out(access, operation, "broker", "")
    else:
        facts = _wait(access, timeout)
    if as_json:
        render.json_text(facts)
    else:
        _print(facts)
    is_well = not facts["draining"] if end else True if no_wait else facts["done"]
    return DONE if is_well else NEGATIVE


def _wait(access: AccessOptions, timeout: float | None) -> Facts:
    """Start the drain, and poll until it is done or the time is over."""

    async def work(reactor: IReactor) -> Facts:
        async with await open_client(reactor, access) as client:
            until = None if timeout is None else reactor.seconds() + timeout
            facts = await ask(client, "DRAIN", "broker", "")
            with render.progress() as progress:
                task = progress.add_task("messages to go", total=None)
                while facts["draining"] and not facts["done"]:
                    if until is not None and reactor.seconds() >= until:
                        break
                    await deferLater(reactor, LOOK_SECONDS)
                    facts = await ask(client, "DRAIN-STATUS", "broker", "")
                    progress.update(task, completed=facts["moving"])
            return facts

    return runner.run(work)


def _print(facts: Facts) -> None:
    click.echo(render.printable(str(facts["description"])))
    for name, why in facts["stuck"].items():
        click.echo(render.printable(f"  {name}: {why}"))
