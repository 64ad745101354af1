# SPDX-License-Identifier: Apache-2.0
"""``policy``: what holds for all exchanges and queues whose names a pattern fits."""

from __future__ import annotations

from typing import Final

import click

from amqproute.cli.commands.attribute_table import RowTable, print_attributes
from amqproute.cli.commands.list_command import ListCommand, add_commands
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandOption,
    OperationCommand,
    Outcome,
)
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["policy"]

_OPERATOR: Final = click.option(
    "--operator",
    "kind",
    flag_value="operator-policy",
    default="policy",
    help="An operator policy, which limits arguments and other policies.",
)


@click.group(cls=ProgramGroup)
def policy() -> None:
    """Policies of the running daemon over exchanges and queues.

    To each exchange and queue the policy with the highest PRIORITY applies whose PATTERN fits its
    name, and one operator policy beside it. Policies made here survive restarts. Policies of the
    configuration are changed there.
    """


def _in_force(outcome: Outcome) -> str:
    body = outcome.request.body
    scope = f"for {body['apply-to']} that {body['pattern']} fits"
    return f"{outcome.facts['name']}: in force {scope}"


add_commands(
    policy,
    {
        "list": ListCommand(
            "policy operator-policy",
            "policies",
            """List the policies, those that go before others first.

            The policy NAME of a virtual host is shown as //HOST/NAME.
            """,
            RowTable(
                "POLICY=name KIND PATTERN APPLIES-TO=apply-to PRIORITY> DEFINITION ORIGIN",
            ),
            has_vhost=True,
        ),
        "show": OperationCommand(
            "READ",
            "policy",
            "Show the policy NAME: pattern, definition, origin.",
            lambda outcome: print_attributes(outcome.facts),
            CommandInputs(vhost="names", own=(_OPERATOR,)),
        ),
        "set": OperationCommand(
            "UPDATE",
            "policy",
            """Make the policy NAME, or replace it.

        PATTERN is a regular expression; it fits a name in which it is found. DEFINITION is a JSON
        object with the arguments of AMQP 0-9-1 without x-, as in '{"message-ttl": 60000}'.
        """,
            _in_force,
            CommandInputs(
                options={
                    "pattern": CommandOption("PATTERN"),
                    "definition": CommandOption("DEFINITION"),
                    "apply-to": CommandOption(default="all"),
                    "priority": CommandOption(default=0),
                },
                fixed={"or-create": True},
                own=(
                    click.option(
                        "--vhost",
                        default="/",
                        show_default=True,
                        help="The virtual host that it is for.",
                    ),
                    _OPERATOR,
                ),
            ),
        ),
        "delete": OperationCommand(
            "DELETE",
            "policy",
            "Delete the policy NAME; its values are no longer in force.",
            lambda outcome: f"{outcome.name}: deleted",
            CommandInputs(vhost="names", own=(_OPERATOR,)),
        ),
    },
)
