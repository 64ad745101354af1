# SPDX-License-Identifier: Apache-2.0
"""Questions and commands to the management node of a daemon, from the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from amqproute import conditions
from amqproute.cli import message_text, runner
from amqproute.cli.client import Client
from amqproute.cli.command_error import NEGATIVE, USAGE, ClientError
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.cli.commands.daemon_access import open_client
from amqproute.cli.message_text import Facts
from amqproute.net.reactor import IReactor
from amqproute.wire.amqp10 import spec

__all__ = [
    "KnownRefusal",
    "ask",
    "attributes_of_reply",
    "carry_out",
    "carry_out_commands",
    "in_touch",
    "query",
]

MANAGEMENT: Final = "$management"
PAGE_ROWS: Final = 100
"""Rows of one answer: less than ten milliseconds of the daemon's reactor."""
_STEPS: Final = {
    400: "correct it and try again; --help of the command tells what it takes",
    403: "add an access rule with `manage` for this principal and node to the configuration and "
    "reload, or log in as another user with --url",
    404: "see what there is with: amqproute queue ls",
    409: "look at it with: amqproute {look}",
    501: "this daemon does not offer it; is it of an older version?",
    507: "delete what is not needed any more, or raise the limit in the configuration",
}
_LOOKS: Final = {
    "branch": "transaction ls",
    "clock": "clock show",
    "exchange": "exchange show NAME",
    "exchange-binding": "exchange bindings",
    "operator-policy": "policy show NAME --operator",
    "policy": "policy show NAME",
}
"""Commands that show an entity, by its type; others are shown by ``queue show``."""
_ABSENT: Final = {
    "there is no branch ": "see what there is with: amqproute transaction ls",
    "no exchange ": "see what there is with: amqproute exchange ls",
    "there is no exchange ": "see what there is with: amqproute exchange ls",
    "no binding ": "see what there is with: amqproute exchange bindings",
    "there is no hold ": "see what is held with: amqproute holds",
    "there is no policy ": "see what there is with: amqproute policy list",
    "there is no operator-policy ": "see what there is with: amqproute policy list",
    "there is no virtual host ": "see which there are under `virtual-hosts` in the configuration, "
    "or in: amqproute exchange ls",
    "there is no health check ": "see them all with: amqproute health",
    "there is no connection ": "see who is connected with: amqproute connection ls",
    "there is no link ": "see what there is with: amqproute link ls",
    "no message on its way ": "see what waits with: amqproute queue messages",
    "no queue holds a message ": "what became of it is told by: amqproute journal find --entry ID",
    "there is no token ": "list the tokens with: amqproute token list",
    "nothing waits for ": "see for whom something waits with: amqproute peer ls",
}
"""Advice about missing entities other than queues, by the beginning of the broker's text."""
_RIGHTS: Final = (
    "these commands take the rights `manage`, and `create` for the answers (on $management and on "
    "dynamic, besides what is managed): give them to this principal under `access` and reload, or "
    "use the daemon's socket as root or as its own user"
)
_DECLARED: Final = "what the configuration declares is changed there: edit it, then reload"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KnownRefusal:
    """What a command says instead of a refusal of the daemon.

    Attributes:
        code: the stable code.
        words: the cause; ``{refusal}`` in it stands for the words of the daemon.
        next_step: advice to the user.
    """

    code: str
    words: str
    next_step: str


def in_touch(
    access: AccessOptions,
    work: Callable[[Client], Awaitable[_T]],
    refusals: Mapping[str, KnownRefusal] | None = None,
) -> _T:
    """Connect, do some work with the client, and close.

    Args:
        access: options for the connection.
        work: the work.
        refusals: refusals by their codes, with better words.

    Raises:
        CommandError: it failed.
    """

    async def within(reactor: IReactor) -> _T:
        async with await open_client(reactor, access) as client:
            try:
                return await work(client)
            except ClientError as error:
                known = (refusals or {}).get(error.code)
                if known is not None:
                    words = known.words.replace("{refusal}", error.words)
                    raise ClientError(NEGATIVE, known.code, words, known.next_step) from None
                if error.code == conditions.UNAUTHORIZED_ACCESS:
                    error.next_step = _RIGHTS
                raise

    return runner.run(within)


def carry_out(
    access: AccessOptions,
    operation: str,
    entity_type: str,
    name: str,
    attributes: Mapping[str, object] | None = None,
) -> Facts:
    """Request an operation from the daemon, and return the attributes of its answer.

    Raises:
        ClientError: it refuses, or does not answer.
    """
    return in_touch(access, lambda client: ask(client, operation, entity_type, name, attributes))


async def carry_out_commands(client: Client, text: str) -> tuple[int, str, Facts]:
    """Have the daemon carry out a batch, a command on each line: all of them or none.

    Returns:
        The status, its description, and the facts of the answer, with ``committed``.

    Raises:
        ClientError: it does not answer.
    """
    reply = await client.request(
        MANAGEMENT,
        lambda message_id, reply_to: message_text.encode_commands(message_id, reply_to, text),
    )
    properties, body = message_text.decode_reply(reply)
    facts: Facts = message_text.plain(body) if isinstance(body, dict) else {}
    words = str(properties.get("statusDescription", "no words"))
    return _status_of(properties), words, facts


async def ask(
    client: Client,
    operation: str,
    entity_type: str,
    name: str,
    attributes: Mapping[str, object] | None = None,
    *,
    seconds: float | None = None,
    properties: Mapping[str, object] | None = None,
) -> Facts:
    """As `carry_out`, on an existing connection.

    Args:
        client: connected.
        operation: its name.
        entity_type: of the subject; empty for an operation on no entity.
        name: the subject; empty for an operation without one.
        attributes: the parameters.
        seconds: that the daemon may take; None for the usual time.
        properties: further application properties.
    """
    named = {"type": entity_type, "name": name}
    asked = {
        "operation": operation,
        **{key: value for key, value in named.items() if value},
        **(properties or {}),
    }

    def encode(message_id: str, reply_to: str) -> bytes:
        return message_text.encode_request(message_id, reply_to, asked, attributes or {})

    reply = message_text.decode_reply(await client.request(MANAGEMENT, encode, seconds=seconds))
    return attributes_of_reply(*reply, entity_type)


def _status_of(properties: spec.Fields) -> int:
    """Return the status of a reply; 0 for one without."""
    status = properties.get("statusCode")
    return int(status) if isinstance(status, int) else 0


def attributes_of_reply(properties: spec.Fields, body: object, entity_type: str = "") -> Facts:
    """Return the attributes of a reply.

    Raises:
        ClientError: it is a refusal.
    """
    status = _status_of(properties)
    facts = message_text.plain(body) if isinstance(body, dict) else {}
    if not 200 <= status < 300:
        words = str(properties.get("statusDescription", "no words"))
        step = _DECLARED if "declared-at" in facts else _STEPS.get(status, "see the daemon's log")
        step = step.replace("{look}", _LOOKS.get(entity_type, "queue show NAME"))
        if status == 404:
            step = next((each for what, each in _ABSENT.items() if words.startswith(what)), step)
        raise ClientError(USAGE if status == 400 else NEGATIVE, f"management.{status}", words, step)
    return facts


async def query(client: Client, entity_type: str, vhost: str | None = None) -> list[Facts]:
    """Ask the management node for all entities of a type, page by page.

    Args:
        client: connected.
        entity_type: the type of the entities.
        vhost: the only virtual host whose entities are wanted; None for all.

    Raises:
        ClientError: it refuses, or does not answer.
    """
    rows: list[Facts] = []
    own: set[str] = set()  # the nodes of our replies, which nobody wants to see
    offset = 0
    while True:
        asked = {
            "operation": "QUERY",
            "entityType": entity_type,
            "offset": offset,
            "count": PAGE_ROWS,
            **({} if vhost is None else {"virtual-host": vhost}),
        }

        def encode(message_id: str, reply_to: str, asked: Facts = asked) -> bytes:
            own.add(reply_to)
            return message_text.encode_request(message_id, reply_to, asked, {})

        properties, body = message_text.decode_reply(await client.request(MANAGEMENT, encode))
        status = properties.get("statusCode")
        if status != 200 or not isinstance(body, dict):
            words = str(properties.get("statusDescription", "no words"))
            step = next((each for what, each in _ABSENT.items() if words.startswith(what)), None)
            raise ClientError(
                NEGATIVE,
                f"management.{status}",
                f"the broker answers: {words}",
                step or "see its log",
            )
        names = body.get("attributeNames", [])
        page = body.get("results", [])
        offset += len(page)
        rows += [message_text.plain(dict(zip(names, values, strict=True))) for values in page]
        total = properties.get("total")
        if not page or not isinstance(total, int) or offset >= total:
            return [row for row in rows if not own & {row.get("name"), row.get("address")}]
