# SPDX-License-Identifier: Apache-2.0
"""``policy``: what holds for all exchanges and queues whose names a pattern fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.commands.common_options import (
    NODE_NAME,
    AccessOptions,
    access_options,
    json_option,
    list_vhost_option,
    vhost_option,
)
from amqproute.cli.commands.management_request import carry_out, entity, in_touch, query
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["policy", "with_sources"]

KINDS: Final = ("policy", "operator-policy")
COLUMNS: Final = (
    ("name", "POLICY"),
    ("kind", "KIND"),
    ("pattern", "PATTERN"),
    ("apply-to", "APPLIES-TO"),
    ("priority", "PRIORITY"),
    ("definition", "DEFINITION"),
    ("origin", "ORIGIN"),
)

_operator_option = click.option(
    "--operator",
    is_flag=True,
    help="An operator policy, which limits arguments and other policies.",
)


@click.group(cls=ProgramGroup)
def policy() -> None:
    """Policies of the running daemon over exchanges and queues.

    To each exchange and queue the policy with the highest PRIORITY applies whose PATTERN fits its
    name, and one operator policy beside it. Policies made here survive restarts. Policies of the
    configuration are changed there.
    """


@policy.command("list")
@list_vhost_option
@access_options
@json_option
def list_policies(vhost: str | None, access: AccessOptions, as_json: bool) -> None:
    """List the policies, those that go before others first.

    The policy NAME of a virtual host is shown as //HOST/NAME.
    """
    rows = in_touch(access, lambda client: _rows(client, vhost))
    if as_json:
        render.json_text({"policies": rows})
        return
    render.table(
        [heading for _, heading in COLUMNS],
        ([render.cell(row.get(key)) for key, _ in COLUMNS] for row in rows),
        right="PRIORITY",
    )


async def _rows(client: Client, vhost: str | None) -> list[Facts]:
    found = []
    for kind in KINDS:
        found += [{**row, "kind": kind} for row in await query(client, kind, vhost)]
    return found


@policy.command("show")
@click.argument("name", type=NODE_NAME)
@vhost_option
@_operator_option
@access_options
@json_option
def show(
    name: str,
    operator: bool,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Show the policy NAME: pattern, definition, origin."""
    facts = entity(access, KINDS[operator], name)
    if as_json:
        render.json_text(facts)
    else:
        render.table(["ATTRIBUTE", "VALUE"], facts.items())


@policy.command("set")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@click.option(
    "--apply-to",
    type=click.Choice(["queues", "classic_queues", "quorum_queues", "exchanges", "all"]),
    default="all",
    show_default=True,
    help="The objects it applies to.",
)
@click.option(
    "--priority",
    type=int,
    default=0,
    show_default=True,
    help="Of several that fit a name the highest applies.",
)
@click.option("--vhost", default="/", show_default=True, help="The virtual host that it is for.")
@_operator_option
@access_options
@json_option
def set_policy(
    name: str,
    pattern: str,
    definition: str,
    apply_to: str,
    priority: int,
    vhost: str,
    operator: bool,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Make the policy NAME, or replace it.

    PATTERN is a regular expression; it fits a name in which it is found. DEFINITION is a JSON
    object with the arguments of AMQP 0-9-1 without x-, as in '{"message-ttl": 60000}'.
    """
    given: dict[str, object] = {
        "pattern": pattern,
        "definition": definition,
        "apply-to": apply_to,
        "priority": priority,
        "virtual-host": vhost,
        "or-create": True,
    }
    facts = carry_out(access, "UPDATE", KINDS[operator], name, given)
    _print(facts, as_json, f"{facts['name']}: in force for {apply_to} that {pattern} fits")


@policy.command("delete")
@click.argument("name", type=NODE_NAME)
@vhost_option
@_operator_option
@access_options
@json_option
def delete(
    name: str,
    operator: bool,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Delete the policy NAME; its values are no longer in force."""
    facts = carry_out(access, "DELETE", KINDS[operator], name)
    _print(facts, as_json, f"{name}: deleted")


def _print(facts: Mapping[str, object], as_json: bool, words: str) -> None:
    if as_json:
        render.json_text(facts)
    else:
        click.echo(words)


def with_sources(facts: Facts) -> Facts:
    """Return facts of a queue or exchange with each of its terms in words: value and source."""
    terms = facts.get("terms")
    if not isinstance(terms, dict):
        return facts
    words = {
        key: f"{render.cell(term['value'])} ({' '.join(filter(None, _source(term)))})"
        for key, term in terms.items()
    }
    return {**facts, "terms": words}


def _source(term: Mapping[str, object]) -> tuple[str, str]:
    return str(term["source"]), str(term.get("policy", ""))
