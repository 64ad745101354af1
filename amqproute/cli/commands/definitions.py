# SPDX-License-Identifier: Apache-2.0
"""``definitions``: exchanges, queues, bindings and policies as RabbitMQ has them in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

import click

from amqproute.address import ROOT_HOST
from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, ClientError, CommandError
from amqproute.cli.commands.common_options import (
    AccessOptions,
    access_options,
    json_option,
    list_vhost_option,
)
from amqproute.cli.commands.management_request import carry_out_commands, in_touch, query
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted
from amqproute.services.broker_definitions import (
    DefinitionPlan,
    DefinitionsError,
    PlannedHost,
    UnmatchedDefinition,
    export_document,
    plan_import,
)
from amqproute.services.definition_commands import definition_commands, hosts_of_rows

__all__ = ["definitions"]

PART: Final = 500
"""Commands in one batch, which the daemon carries out as a whole."""


@click.group(cls=ProgramGroup)
def definitions() -> None:
    """Exchanges, queues, bindings and policies from and to RabbitMQ's exported definitions."""


@definitions.command("import")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--vhost", default=ROOT_HOST, show_default=True, help="The virtual host of FILE to take."
)
@click.option(
    "--into", metavar="HOST", help="The virtual host here. [default: the one of the same name]"
)
@click.option("--dry-run", is_flag=True, help="Only show the definitions to be imported.")
@access_options
@json_option
def import_file(
    file: IO[bytes],
    vhost: str,
    into: str | None,
    dry_run: bool,
    access: AccessOptions,
    as_json: bool,
) -> int:
    """Import FILE, an export of RabbitMQ (`rabbitmqctl export_definitions FILE`).

    Imports one virtual host at a time, into one named under `virtual-hosts` in the configuration,
    or into /.

    Existing equal definitions stay; policies are replaced. Definitions without a counterpart here
    are named, and make the exit status 1. Passwords of users cannot be imported: make the users
    with `amqproute user`.
    """
    try:
        plan = plan_import(file.read())
    except DefinitionsError as error:
        step = "export it again with: rabbitmqctl export_definitions FILE"
        raise CommandError(USAGE, "definitions.file", f"{file.name}: {error}", step) from None
    host = next((each for each in plan.hosts if each.name == vhost), None)
    if host is None:
        known = ", ".join(each.name for each in plan.hosts) or "none"
        raise CommandError(
            USAGE, "definitions.vhost", f"{file.name} has no virtual host {vhost!r}",
            f"give one of these with --vhost: {known}",
        )  # fmt: skip
    unmatched = [*plan.unmatched, *_not_taken(plan, host)]
    into = host.name if into is None else into
    lines = list(definition_commands(host, unmatched, into))
    if not dry_run:
        in_touch(access, lambda client: _carry_out(client, lines))
    counts = {
        "exchanges": len(host.exchanges),
        "queues": sum(queue.durable for queue in host.queues),
        "bindings": sum(" exchange-binding " in line for line in lines),
        "policies": len(host.policies),
    }
    if as_json:
        rows = [vars(each) for each in unmatched]
        render.json_text({**counts, "virtual-host": into, "dry-run": dry_run, "unmatched": rows})
    else:
        words = ", ".join(
            counted(count, "policy", "policies")
            if name == "policies"
            else counted(count, name[:-1])
            for name, count in counts.items()
        )
        place = "" if into == ROOT_HOST else f" in virtual host {into}"
        click.echo(f"{words} {'would be made' if dry_run else 'are there'}{place}")
        for each in unmatched:
            render.warn(f"{each.kind} {each.name}: {each.reason}")
    return NEGATIVE if unmatched else DONE


@definitions.command("export")
@list_vhost_option
@access_options
@json_option
def export(vhost: str | None, access: AccessOptions, as_json: bool) -> int:
    """Write exchanges, the queues of clients, bindings and policies in RabbitMQ's format.

    All virtual hosts are written unless --vhost names one. Queues of the configuration are written
    as durable queues without arguments. Definitions that do not fit the format are named on
    standard error, and make the exit status 1. The output is JSON with and without --json.
    """
    hosts = in_touch(access, lambda client: _shown(client, vhost))
    document, unmatched = export_document(DefinitionPlan(hosts))
    render.json_text(document)
    for each in unmatched:
        render.warn(f"{each.kind} {each.name}: {each.reason}")
    return NEGATIVE if unmatched else DONE


def _not_taken(plan: DefinitionPlan, host: PlannedHost) -> Iterator[UnmatchedDefinition]:
    """Name what the plan has and the daemon does not make."""
    for each in plan.hosts:
        if each is not host:
            yield UnmatchedDefinition("vhost", each.name, each.name, "only one is taken at a time")
    for user in plan.users:
        yield UnmatchedDefinition("user", "", user, "make it with: amqproute user add")


async def _shown(client: Client, vhost: str | None) -> tuple[PlannedHost, ...]:
    kinds = ("exchange", "queue", "exchange-binding", "policy", "operator-policy")
    exchanges, queues, bindings, *policies = [await query(client, kind, vhost) for kind in kinds]
    return hosts_of_rows(exchanges, queues, bindings, [*policies[0], *policies[1]])


async def _carry_out(client: Client, lines: list[str]) -> None:
    """Have the daemon carry out commands, so many at a time.

    Raises:
        ClientError: it refuses one; those of the parts before it are done.
    """
    for start in range(0, len(lines), PART):
        status, words, facts = await carry_out_commands(
            client, "\n".join(lines[start : start + PART])
        )
        if not facts.get("committed"):
            step = "earlier parts are imported; correct the file or the daemon, and import it again"
            kind = USAGE if status == 400 else NEGATIVE
            raise ClientError(kind, f"management.{status}", words, step)
