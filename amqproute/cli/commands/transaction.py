# SPDX-License-Identifier: Apache-2.0
"""``transaction``: branches of distributed transactions, through the management node."""

from __future__ import annotations

from typing import Final

import click

from amqproute.cli.commands.attribute_table import RowTable, aged
from amqproute.cli.commands.list_command import ListCommand, add_commands
from amqproute.cli.commands.management_request import KnownRefusal
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    OperationCommand,
)
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["transaction"]

_DISABLED: Final = KnownRefusal(
    "transaction.disabled",
    "distributed transactions are not enabled at this daemon",
    "set distributed-transactions.enabled in the configuration, then restart the daemon",
)


@click.group(cls=ProgramGroup)
def transaction() -> None:
    """Branches of distributed transactions at the running daemon.

    A prepared branch waits for its transaction manager, and keeps its messages, over restarts too.
    If the manager does not come back, find out at its other resources whether the transaction was
    committed or rolled back, and do the same here: this is a heuristic decision. The manager is
    informed if it asks; the branch is shown until it, or you, forget it.
    """


def _decision(operation: str, words: str, help: str) -> OperationCommand:
    return OperationCommand(
        operation,
        "branch",
        help,
        lambda outcome: f"{outcome.name}: {words}",
        CommandInputs("BRANCH"),
        has_json=False,
        refusals={"management.501": _DISABLED},
    )


add_commands(
    transaction,
    {
        "ls": ListCommand(
            "branch",
            "branches",
            """List the branches, the longest waiting first.

            The name is that of the principal whose it is, and the XID: format, global id and branch
            qualifier, the latter two in hexadecimal. NODES are those that it takes from and puts
            on. SINCE is for how long the branch has been there, or prepared, or resolved by an
            operator.
            """,
            RowTable(
                "BRANCH=name STATE OPERATIONS> NODES SINCE>",
                {
                    "NODES": lambda row: ", ".join(map(str, row["nodes"] or ())),
                    "SINCE": aged("age-ms"),
                },
            ),
            refusals={"management.400": _DISABLED},
        ),
        "commit": _decision(
            "COMMIT-BRANCH",
            "committed heuristically",
            "Commit a prepared BRANCH whose transaction manager does not come back.",
        ),
        "roll-back": _decision(
            "ROLL-BACK-BRANCH",
            "rolled back heuristically",
            "Roll a prepared BRANCH back whose transaction manager does not come back.",
        ),
        "forget": _decision(
            "FORGET-BRANCH",
            "forgotten",
            "Forget that a BRANCH was resolved by commit or roll-back, if its manager is no more.",
        ),
    },
)
