# SPDX-License-Identifier: Apache-2.0
"""``transaction``: branches of distributed transactions, through the management node."""

from __future__ import annotations

from typing import Final

import click

from amqproute.cli import message_text, render
from amqproute.cli.client import Client
from amqproute.cli.command_error import NEGATIVE, ClientError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import MANAGEMENT, entities, in_touch, status_of
from amqproute.cli.commands.message_options import age
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["transaction"]

COLUMNS: Final = (
    ("name", "BRANCH"),
    ("state", "STATE"),
    ("operations", "OPERATIONS"),
    ("nodes", "NODES"),
    ("age-ms", "SINCE"),
)
BRANCH_TYPE: Final = "branch"
NO_SUCH_OPERATION: Final = 501
STEPS: Final = {
    404: "see what there is with: amqproute transaction ls",
    409: "see where it is with: amqproute transaction ls",
}


@click.group(cls=ProgramGroup)
def transaction() -> None:
    """Branches of distributed transactions at the running daemon.

    A prepared branch waits for its transaction manager, and keeps its messages, over restarts too.
    If the manager does not come back, find out at its other resources whether the transaction was
    committed or rolled back, and do the same here: this is a heuristic decision. The manager is
    informed if it asks; the branch is shown until it, or you, forget it.
    """


@transaction.command("ls")
@access_options
@json_option
def ls(access: AccessOptions, as_json: bool) -> None:
    """List the branches, the longest waiting first.

    The name is that of the principal whose it is, and the XID: format, global id and branch
    qualifier, the latter two in hexadecimal. NODES are those that it takes from and puts on. SINCE
    is for how long the branch has been there, or prepared, or resolved by an operator.
    """
    try:
        rows = entities(access, BRANCH_TYPE)
    except ClientError as error:
        if error.code != "management.400":
            raise
        raise _disabled() from None
    if as_json:
        render.json_text({"branches": rows})
        return
    render.table(
        [heading for _, heading in COLUMNS],
        ([_cell(key, row) for key, _ in COLUMNS] for row in rows),
        right="OPERATIONS SINCE",
    )


def _cell(key: str, row: Facts) -> object:
    value = row.get(key)
    if key == "age-ms":
        return age(row[key])
    return ", ".join(map(str, value or ())) if key == "nodes" else value


@transaction.command("commit")
@click.argument("branch")
@access_options
def commit(branch: str, access: AccessOptions) -> None:
    """Commit a prepared BRANCH whose transaction manager does not come back."""
    _operate("COMMIT-BRANCH", branch, access)


@transaction.command("roll-back")
@click.argument("branch")
@access_options
def roll_back(branch: str, access: AccessOptions) -> None:
    """Roll a prepared BRANCH back whose transaction manager does not come back."""
    _operate("ROLL-BACK-BRANCH", branch, access)


@transaction.command("forget")
@click.argument("branch")
@access_options
def forget(branch: str, access: AccessOptions) -> None:
    """Forget that a BRANCH was resolved by commit or roll-back, if its manager is no more."""
    _operate("FORGET-BRANCH", branch, access)


def _disabled() -> ClientError:
    return ClientError(
        NEGATIVE,
        "transaction.disabled",
        "distributed transactions are not enabled at this daemon",
        "set distributed-transactions.enabled in the configuration, then restart the daemon",
    )


def _operate(operation: str, name: str, access: AccessOptions) -> None:
    async def work(client: Client) -> str:
        def encode(message_id: str, reply_to: str) -> bytes:
            asked = {"operation": operation, "name": name}
            return message_text.encode_request(message_id, reply_to, asked, {})

        properties, _ = message_text.decode_reply(await client.request(MANAGEMENT, encode))
        status = status_of(properties)
        words = str(properties.get("statusDescription", "no words"))
        if status == NO_SUCH_OPERATION:
            raise _disabled()
        if status != 200:
            step = STEPS.get(status, "see the daemon's log")
            raise ClientError(NEGATIVE, f"management.{status}", words, step)
        return words

    click.echo(f"{name}: {in_touch(access, work)}")
