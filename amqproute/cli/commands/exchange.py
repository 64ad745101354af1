# SPDX-License-Identifier: Apache-2.0
"""``exchange``: the exchanges of a daemon, and bindings from them to queues and exchanges."""

from __future__ import annotations

from typing import Final

import click

from amqproute.cli.commands.attribute_table import RowTable, as_given, print_attributes
from amqproute.cli.commands.list_command import ListCommand, add_commands
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandOption,
    OperationCommand,
    Outcome,
)
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted

__all__ = ["exchange"]


@click.group(cls=ProgramGroup)
def exchange() -> None:
    """Exchanges of the running daemon, and bindings from them.

    Exchanges and bindings made here survive a restart. Exchanges and queues are two name spaces: a
    queue and an exchange may have the same name.
    """


def _deleted(outcome: Outcome) -> str:
    words = f"{outcome.name}: deleted with {counted(outcome.facts.get('bindings', 0), 'binding')}"
    for other in outcome.facts.get("exchanges") or ():
        words += f"; {other} went with its last binding"
    return words


def _bound(words: str, outcome: Outcome) -> str:
    body = outcome.request.body
    return f"{outcome.name}: {body['target-type']} {body['target']} {words}"


_BINDING: Final = {
    "target-type": CommandOption(
        "--to-exchange", help="TARGET is an exchange.", values=("queue", "exchange")
    ),
    "key": CommandOption(help="The routing key or pattern. [default: empty]", default=""),
}
_ASSERTED: Final = {"or-assert": True}

add_commands(
    exchange,
    {
        "ls": ListCommand(
            "exchange",
            "exchanges",
            """List the exchanges, all but the default one, which has no name.

        The exchange NAME of a virtual host is shown as //HOST/NAME.
        """,
            RowTable(
                "EXCHANGE=name TYPE=exchange-type DURABLE AUTO-DELETE INTERNAL BINDINGS> MADE-BY",
                {"MADE-BY": as_given("made-by")},
            ),
            has_vhost=True,
        ),
        "bindings": ListCommand(
            "exchange-binding",
            "bindings",
            "List the bindings from exchanges; every queue is bound to the default one by its "
            "name.",
            RowTable(
                "EXCHANGE=source TO=target-type NAME=target KEY ARGUMENTS DURABLE",
                {"KEY": as_given("key"), "ARGUMENTS": as_given("arguments")},
            ),
            has_vhost=True,
        ),
        "show": OperationCommand(
            "READ",
            "exchange",
            "Show the exchange NAME; under terms, where its alternate exchange is said.",
            lambda outcome: print_attributes(outcome.facts),
            CommandInputs(vhost="names"),
        ),
        "declare": OperationCommand(
            "CREATE",
            "exchange",
            "Make the exchange NAME, or check that there is one like this.",
            lambda outcome: f"{outcome.name}: there is a {outcome.facts['exchange-type']} exchange",
            CommandInputs(
                vhost="names",
                options={
                    "type": CommandOption("--type"),
                    "durable": CommandOption(
                        "--transient", help="It is gone after a restart.", values=(True, False)
                    ),
                    "auto-delete": CommandOption(values=(False, True)),
                    "internal": CommandOption(values=(False, True)),
                    "alternate-exchange": CommandOption("--alternate", metavar="EXCHANGE"),
                },
                fixed=_ASSERTED,
                without=("arguments",),
            ),
        ),
        "delete": OperationCommand(
            "DELETE",
            "exchange",
            "Delete the exchange NAME with its bindings.",
            _deleted,
            CommandInputs(vhost="names"),
        ),
        "bind": OperationCommand(
            "CREATE",
            "exchange-binding",
            "Have messages of the exchange NAME go to the queue TARGET.",
            lambda outcome: _bound("is bound", outcome),
            CommandInputs(vhost="names", options=_BINDING, fixed=_ASSERTED),
        ),
        "unbind": OperationCommand(
            "DELETE",
            "exchange-binding",
            "Remove the binding from the exchange NAME to the queue TARGET with this key.",
            lambda outcome: _bound("is not bound any more", outcome),
            CommandInputs(vhost="names", options=_BINDING),
        ),
    },
)
