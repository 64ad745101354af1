# SPDX-License-Identifier: Apache-2.0
"""Commands to the management node, from text or maps to `ManagementCommand` (G-02, G-05, G-18).

The text has one command on a line; empty lines, and lines that begin with ``#``, are skipped::

    create [or assert] queue NAME [with OPTIONS]        also: topic
    create [or assert] link NAME SOURCE DESTINATION [with OPTIONS]
    create [or assert] alias NAME NODE
    create [or assert] route DOMAIN [with OPTIONS]      via=..., target=..., names=[...]
    create [or assert] exchange NAME with type=TYPE [, OPTIONS]
    create [or assert] exchange-binding EXCHANGE with target=NAME [, key=KEY, OPTIONS]
    assert queue|topic|link|alias|route|exchange NAME [with OPTIONS]
    update queue|topic|link NAME with OPTIONS
    rename queue|topic|link|alias NAME NEW-NAME
    delete queue|topic|link|alias|route NAME [with OPTIONS]
                                                        if-empty=true, if-unused=true
    create [or assert] policy NAME with pattern=TEXT, definition=JSON [, OPTIONS]
    assert|update policy NAME with OPTIONS              also: operator-policy
    delete policy NAME
    delete exchange NAME [with if-unused=true]
    delete exchange-binding EXCHANGE with target=NAME [, key=KEY, OPTIONS]
    query TYPE [NAME] [with OPTIONS]                    TYPE as in a QUERY
    purge queue NAME
    move|copy messages QUEUE TARGET [with OPTIONS]      filter="...", limit=NUMBER

The options of an exchange are ``durable``, ``auto-delete``, ``internal``, ``alternate-exchange``
and ``arguments``; those of a binding ``target-type`` (queue or exchange) and ``arguments``. These
are a JSON object in a text. Those of a policy are ``apply-to``, ``priority`` and, of an update,
``or-create``. A queue with ``arguments`` or ``auto-delete`` is as clients of AMQP
0-9-1 declare it.

``OPTIONS`` are ``key=value``, separated by commas; the keys of a node are those of the
configuration. A value is a word, a number, ``true``, ``false``, ``null``, a text in double quotes,
or several of them in brackets. A name with blanks, commas or equals signs, or a name ``with`` where
that keyword is possible, must be in double quotes, in which ``\\"`` is a quote and ``\\\\`` a
backslash.

The other form is that of the working draft of AMQP Management, each command a map with
``operation``, ``type``, ``name`` and ``attributes``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

__all__ = [
    "LONGEST_TEXT",
    "MOST_COMMANDS",
    "OPERATIONS",
    "CommandRefused",
    "ManagementCommand",
    "parse_text",
    "read_map",
]

MOST_COMMANDS: Final = 1000
"""Commands of one message."""
LONGEST_TEXT: Final = 1024 * 1024
"""Characters of a text with commands."""

OK: Final = 200
CREATED: Final = 201
GONE: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
PRECONDITION_FAILED: Final = 412
NOT_RUN: Final = 424
INTERNAL: Final = 500
NOT_IMPLEMENTED: Final = 501
FULL: Final = 507

OPERATIONS: Final = (
    "CREATE", "ASSERT", "READ", "UPDATE", "RENAME", "DELETE", "QUERY", "PURGE", "MOVE", "COPY"
)  # fmt: skip
"""Operations of commands."""


class CommandRefused(Exception):
    """A command cannot be carried out.

    Attributes:
        status: the status as in a reply.
        words: the reason and the remedy.
        attributes: facts for the reply.
    """

    def __init__(self, status: int, words: str, attributes: Mapping[str, object] | None = None):
        super().__init__(f"{status}: {words}")
        self.status = status
        self.words = words
        self.attributes = dict(attributes or {})


@dataclass(frozen=True, slots=True)
class ManagementCommand:
    """One command.

    Attributes:
        operation: one of `OPERATIONS`.
        kind: ``queue``, ``topic``, ``link``, ``alias``, ``route``, ``policy``, or another type of
            a query.
        name: the name of the entity; empty for a query without one.
        arguments: options or attributes; for a link with ``source`` and ``target``, for an alias
            with ``target``, for a renaming with ``new-name``, for a move or copy with ``target``.
        or_assert: an existing entity with the same options counts as created.
    """

    operation: str
    kind: str
    name: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    or_assert: bool = False

    def __str__(self) -> str:
        return " ".join(filter(None, (self.operation, self.kind, self.name)))


# -- text ------------------------------------------------------------------------------------------

_GRAMMAR = r"""
start: _CREATE [or_assert] NODE name [with] -> create
    | _CREATE [or_assert] LINK name name name [with] -> create_link
    | _CREATE [or_assert] ALIAS name name -> create_alias
    | _CREATE [or_assert] (ROUTE | EXCHANGE | POLICY) name [with] -> create
    | ASSERT (_kind | ROUTE | EXCHANGE | POLICY) name [with] -> on_one
    | UPDATE (NODE | LINK | POLICY) name with -> on_one
    | DELETE (_kind | ROUTE | EXCHANGE | POLICY) name [with] -> on_one
    | PURGE NODE name -> purge
    | (MOVE | COPY) _MESSAGES name name [with] -> take
    | _RENAME _kind name name -> rename
    | _QUERY name [name] [with] -> query
_kind: NODE | LINK | ALIAS
or_assert: _OR ASSERT
with: _WITH option ("," option)*
option: WORD "=" value
?value: WORD -> word
    | TEXT -> text
    | "[" [value ("," value)*] "]" -> several
name: WORD -> bare
    | TEXT -> text

_CREATE.2: /create(?=\s|$)/i
ASSERT.2: /assert(?=\s|$)/i
UPDATE.2: /update(?=\s|$)/i
DELETE.2: /delete(?=\s|$)/i
PURGE.2: /purge(?=\s|$)/i
MOVE.2: /move(?=\s|$)/i
COPY.2: /copy(?=\s|$)/i
_MESSAGES.2: /messages(?=\s|$)/i
_RENAME.2: /rename(?=\s|$)/i
_QUERY.2: /query(?=\s|$)/i
_OR.2: /or(?=\s|$)/i
_WITH.2: /with(?=\s|$)/i
NODE.2: /(queue|topic)(?=\s|$)/i
LINK.2: /(link|binding)(?=\s|$)/i
ALIAS.2: /alias(?=\s|$)/i
ROUTE.2: /route(?=\s|$)/i
EXCHANGE.2: /exchange(-binding)?(?=\s|$)/i
POLICY.2: /(operator-)?policy(?=\s|$)/i
TEXT.3: /"(?:[^"\\]|\\.)*"/
WORD: /[^\s,="\[\]]+/
%ignore /[ \t\r]+/
"""

_EXPECTED: Final = {
    "_CREATE": "create", "ASSERT": "assert", "UPDATE": "update", "DELETE": "delete",
    "PURGE": "purge", "MOVE": "move", "COPY": "copy", "_MESSAGES": "messages",
    "_RENAME": "rename", "_QUERY": "query",
    "_OR": "or assert", "_WITH": "with", "NODE": "queue or topic",
    "LINK": "link", "ALIAS": "alias", "ROUTE": "route",
    "EXCHANGE": "exchange or exchange-binding", "POLICY": "policy or operator-policy",
    "WORD": "a name or value", "EQUAL": "=", "COMMA": "a comma",
    "RSQB": "]", "$END": "the end",
}  # fmt: skip


class _Builder(Transformer[Token, ManagementCommand]):
    """Builds commands from the rules of the grammar."""

    def text(self, found: list[Token]) -> str:
        return re.sub(r'\\(["\\])', r"\1", str(found[0])[1:-1])

    def bare(self, found: list[Token]) -> str:
        return str(found[0])

    def word(self, found: list[Token]) -> bool | int | str | None:
        return scalar(str(found[0]))

    def several(self, found: list[Any]) -> list[Any]:
        several = [each for each in found if each is not None]
        for each in several:
            if isinstance(each, list) and any(isinstance(one, list) for one in each):
                raise CommandRefused(BAD_REQUEST, _TOO_DEEP)  # options have no such values
        return several

    def option(self, found: list[Any]) -> tuple[str, Any]:
        return str(found[0]), found[1]

    def or_assert(self, found: list[Any]) -> bool:
        return True

    def query(self, found: list[Any]) -> ManagementCommand:
        kind, name, options = found
        return ManagementCommand("QUERY", _kind(kind), name or "", options or {})

    def create(self, found: list[Any]) -> ManagementCommand:
        or_assert, kind, name, options = found
        return ManagementCommand("CREATE", _kind(kind), name, options or {}, bool(or_assert))

    def create_link(self, found: list[Any]) -> ManagementCommand:
        or_assert, _, name, source, target, options = found
        ends = {"source": source, "target": target}
        return ManagementCommand(
            "CREATE", "link", name, {**(options or {}), **ends}, bool(or_assert)
        )

    def create_alias(self, found: list[Any]) -> ManagementCommand:
        or_assert, _, name, target = found
        return ManagementCommand("CREATE", "alias", name, {"target": target}, bool(or_assert))

    def on_one(self, found: list[Any]) -> ManagementCommand:
        operation, kind, name, *options = found
        given = options[0] if options else None
        return ManagementCommand(str(operation).upper(), _kind(kind), name, given or {})

    def purge(self, found: list[Any]) -> ManagementCommand:
        return ManagementCommand("PURGE", _kind(found[1]), found[2])

    def take(self, found: list[Any]) -> ManagementCommand:
        operation, source, target, options = found
        given = {**(options or {}), "target": target}
        return ManagementCommand(str(operation).upper(), "queue", source, given)

    def rename(self, found: list[Any]) -> ManagementCommand:
        kind, name, new_name = found
        return ManagementCommand("RENAME", _kind(kind), name, {"new-name": new_name})


def _options(self: _Builder, found: list[tuple[str, Any]]) -> dict[str, object]:
    options: dict[str, object] = {}
    for key, value in found:
        if key in options:
            raise CommandRefused(BAD_REQUEST, f"the option {key!r} is given twice")
        options[key] = value
    return options


setattr(_Builder, "with", _options)  # the grammar's name is a Python keyword


def _kind(word: str) -> str:
    kind = str(word).lower()
    return "link" if kind == "binding" else kind


def scalar(word: str) -> bool | int | str | None:
    """Read a word as a value: a number, ``true``, ``false``, ``null``, or else text."""
    known = {"true": True, "false": False, "null": None}
    if word.lower() in known:
        return known[word.lower()]
    return int(word) if re.fullmatch(r"-?[0-9]{1,18}", word) else word


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=True)


def parse_text(text: str) -> list[tuple[int, ManagementCommand | CommandRefused]]:
    """Read the commands of a text.

    Returns:
        For each command the number of its line, from 1, and the command or its refusal.

    Raises:
        CommandRefused: the text is too long, or holds no command, or too many.
    """
    if len(text) > LONGEST_TEXT:
        raise CommandRefused(BAD_REQUEST, f"the text has over {LONGEST_TEXT} characters")
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    _check_count(len(lines))
    return [(number, _parse_line(line)) for number, line in lines]


def _check_count(count: int) -> None:
    if not count:
        raise CommandRefused(BAD_REQUEST, "there is no command in the message")
    if count > MOST_COMMANDS:
        raise CommandRefused(
            BAD_REQUEST, f"{count} commands; at most {MOST_COMMANDS} go in one message"
        )


_TOO_DEEP: Final = "brackets nest too deep"


def _parse_line(line: str) -> ManagementCommand | CommandRefused:
    try:
        return _Builder().transform(_parser().parse(line))
    except UnexpectedInput as error:
        return CommandRefused(BAD_REQUEST, _words(error, line))
    except RecursionError:
        return CommandRefused(BAD_REQUEST, _TOO_DEEP)
    except VisitError as error:
        if isinstance(error.orig_exc, CommandRefused):
            return error.orig_exc
        raise


def _words(error: UnexpectedInput, line: str) -> str:
    if isinstance(error, UnexpectedToken):
        at_end = error.token.type == "$END"
        found = "the end" if at_end else f"{error.token!s:.40}"
        at = len(line) if at_end else error.token.start_pos or 0
        accepted = set(error.accepts or error.expected)
    else:
        assert isinstance(error, UnexpectedCharacters)
        at = error.column - 1
        found = line[at : at + 20]
        accepted = set(error.allowed)
    wanted = [words for name, words in _EXPECTED.items() if name in accepted]
    expected = " or ".join(wanted) if wanted else "something else"
    return f"character {at + 1}: found {found}, expected {expected}"


# -- maps ------------------------------------------------------------------------------------------

_KINDS: Final = {"binding": "link"}


def read_map(given: Mapping[str, object] | dict[object, object]) -> ManagementCommand:
    """Read a command of a map, or of application-properties.

    Raises:
        CommandRefused: it is not a valid command.
    """
    operation = given.get("operation")
    if not isinstance(operation, str) or not operation:
        raise CommandRefused(BAD_REQUEST, "`operation` is missing")
    operation = operation.upper()
    if operation not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise CommandRefused(
            NOT_IMPLEMENTED, f"no operation {operation[:64]!r} here; there are {known}"
        )
    kind: Any = given.get("type") or given.get("entityType") or ""
    name: Any = given.get("name", given.get("identity", ""))
    arguments: Any = given.get("attributes") or {}
    if not isinstance(kind, str) or not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise CommandRefused(BAD_REQUEST, "`type` and `name` are texts, `attributes` is a map")
    if not kind and operation != "QUERY":
        raise CommandRefused(BAD_REQUEST, "`type` is missing: queue, topic, link or alias")
    if not name and operation != "QUERY":
        raise CommandRefused(BAD_REQUEST, "`name` is missing")
    return ManagementCommand(
        operation,
        _kind(kind),
        str(name),
        {str(key): plain(value) for key, value in arguments.items()},
        given.get("or-assert") is True,
    )


def plain(value: object) -> object:
    """Convert a value of the protocol's types to plain Python types."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(each) for each in value]
    raise CommandRefused(
        BAD_REQUEST, f"a value of the type {type(value).__name__} means nothing here"
    )
