# SPDX-License-Identifier: Apache-2.0
"""``exchange``: the exchanges of a daemon, and bindings from them to queues and exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypedDict, Unpack

import click

from amqproute.cli import render
from amqproute.cli.commands.common_options import (
    NODE_NAME,
    AccessOptions,
    access_options,
    json_option,
    list_vhost_option,
    vhost_option,
)
from amqproute.cli.commands.management_request import carry_out, entities, entity
from amqproute.cli.commands.operation_command import (
    OperationCommand,
    Outcome,
    operation_command,
)
from amqproute.cli.commands.policy import with_sources
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted

__all__ = ["exchange"]

COLUMNS: Final = (
    ("name", "EXCHANGE"),
    ("exchange-type", "TYPE"),
    ("durable", "DURABLE"),
    ("auto-delete", "AUTO-DELETE"),
    ("internal", "INTERNAL"),
    ("bindings", "BINDINGS"),
    ("made-by", "MADE-BY"),
)
BINDING_COLUMNS: Final = (
    ("source", "EXCHANGE"),
    ("target-type", "TO"),
    ("target", "NAME"),
    ("key", "KEY"),
    ("arguments", "ARGUMENTS"),
    ("durable", "DURABLE"),
)


@click.group(cls=ProgramGroup)
def exchange() -> None:
    """Exchanges of the running daemon, and bindings from them.

    Exchanges and bindings made here survive a restart. Exchanges and queues are two name spaces: a
    queue and an exchange may have the same name.
    """


@exchange.command("ls")
@list_vhost_option
@access_options
@json_option
def ls(vhost: str | None, access: AccessOptions, as_json: bool) -> None:
    """List the exchanges, all but the default one, which has no name.

    The exchange NAME of a virtual host is shown as //HOST/NAME.
    """
    rows = entities(access, "exchange", vhost)
    _table("exchanges", rows, COLUMNS, as_json)


@exchange.command("show")
@click.argument("name", type=NODE_NAME)
@vhost_option
@access_options
@json_option
def show(name: str, access: AccessOptions, as_json: bool) -> None:
    """Show the exchange NAME; under terms, where its alternate exchange is said."""
    facts = entity(access, "exchange", name)
    if as_json:
        render.json_text(facts)
        return
    shown = with_sources(facts)
    terms = shown.pop("terms", {})
    rows = [*shown.items(), *((f"terms.{key}", value) for key, value in terms.items())]
    render.table(["ATTRIBUTE", "VALUE"], ((key, render.cell(value)) for key, value in rows))


@exchange.command("bindings")
@list_vhost_option
@access_options
@json_option
def bindings(vhost: str | None, access: AccessOptions, as_json: bool) -> None:
    """List the bindings from exchanges; every queue is bound to the default one by its name."""
    rows = entities(access, "exchange-binding", vhost)
    _table("bindings", rows, BINDING_COLUMNS, as_json)


@exchange.command("declare")
@click.argument("name", type=NODE_NAME)
@vhost_option
@click.option(
    "--type",
    "kind",
    type=click.Choice(["direct", "fanout", "topic", "headers"]),
    required=True,
    help="How it routes.",
)
@click.option("--transient", is_flag=True, help="It is gone after a restart.")
@click.option("--auto-delete", is_flag=True, help="Delete it with its last binding.")
@click.option("--internal", is_flag=True, help="Only other exchanges may publish to it.")
@click.option("--alternate", metavar="EXCHANGE", help="Gets messages that match no binding.")
@access_options
@json_option
def declare(
    name: str,
    kind: str,
    transient: bool,
    auto_delete: bool,
    internal: bool,
    alternate: str | None,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Make the exchange NAME, or check that there is one like this."""
    given: dict[str, object] = {
        "type": kind,
        "durable": not transient,
        "auto-delete": auto_delete,
        "internal": internal,
    }
    if alternate is not None:
        given["alternate-exchange"] = alternate
    facts = carry_out(access, "CREATE", "exchange", name, given, **{"or-assert": True})
    _print(facts, as_json, f"{name}: there is a {kind} exchange")


def _deleted(outcome: Outcome) -> str:
    words = f"{outcome.name}: deleted with {counted(outcome.facts.get('bindings', 0), 'binding')}"
    for other in outcome.facts.get("exchanges") or ():
        words += f"; {other} went with its last binding"
    return words


exchange.add_command(
    operation_command(
        "delete",
        OperationCommand(
            "DELETE",
            "exchange",
            "Delete the exchange NAME with its bindings.",
            _deleted,
            vhost="names",
        ),
    )
)


class _BindingOptions(TypedDict):
    key: str
    to_exchange: bool
    arguments: str | None
    access: AccessOptions
    as_json: bool


def _binding(command: Callable[..., object]) -> Callable[..., object]:
    """Add what `bind` and `unbind` have in common."""
    for add in (
        json_option,
        access_options,
        click.option(
            "--arguments", metavar="JSON", help='As in --arguments \'{"x-match": "all"}\'.'
        ),
        click.option("--to-exchange", is_flag=True, help="TARGET is an exchange."),
        click.option("--key", default="", help="The routing key or pattern. [default: empty]"),
        vhost_option,
        click.argument("target", type=NODE_NAME),
        click.argument("name", type=NODE_NAME),
    ):
        command = add(command)
    return command


@exchange.command("bind")
@_binding
def bind(name: str, target: str, **given: Unpack[_BindingOptions]) -> None:
    """Have messages of the exchange NAME go to the queue TARGET."""
    _change_binding("CREATE", "is bound", name, target, {"or-assert": True}, given)


@exchange.command("unbind")
@_binding
def unbind(name: str, target: str, **given: Unpack[_BindingOptions]) -> None:
    """Remove the binding from the exchange NAME to the queue TARGET with this key."""
    _change_binding("DELETE", "is not bound any more", name, target, {}, given)


def _change_binding(
    operation: str,
    outcome: str,
    name: str,
    target: str,
    more: Mapping[str, bool],
    given: _BindingOptions,
) -> None:
    kind = "exchange" if given["to_exchange"] else "queue"
    attributes: dict[str, object] = {"target": target, "target-type": kind, "key": given["key"]}
    if given["arguments"] is not None:
        attributes["arguments"] = given["arguments"]
    facts = carry_out(given["access"], operation, "exchange-binding", name, attributes, **more)
    _print(facts, given["as_json"], f"{name}: {kind} {target} {outcome}")


def _table(
    key: str, rows: list[Facts], columns: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    if as_json:
        render.json_text({key: rows})
        return
    render.table(
        [heading for _, heading in columns],
        ([render.cell(row.get(key)) for key, _ in columns] for row in rows),
        right="BINDINGS",
    )


def _print(facts: Mapping[str, object], as_json: bool, words: str) -> None:
    if as_json:
        render.json_text(facts)
    else:
        click.echo(words)
