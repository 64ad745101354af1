# SPDX-License-Identifier: Apache-2.0
"""Actions: what an operator can do on a page, and the two steps in which it is done.

The first step shows what would happen: by a dry run, where the operation has one, or in words. The
second carries it out. Both are forms that are posted; the second repeats the parameters of the
first and says ``confirmed``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.dashboard.display_units import BASE, address, number, size
from amqproute.dashboard.management_source import Answer
from amqproute.dashboard.page_blocks import (
    Block,
    Cell,
    Column,
    Facts,
    FormField,
    FormPanel,
    Note,
    Page,
    Table,
    TableRow,
)
from amqproute.dashboard.row_values import maps, text, texts, whole

__all__ = [
    "ACTIONS",
    "PATH",
    "InvalidAction",
    "PageAction",
    "body_of",
    "confirmation_page",
    "form_page",
    "outcome_page",
]

PATH: Final = f"{BASE}/act"
"""Path to which actions are posted."""
LONGEST_VALUE: Final = 1024
MOST_IDS: Final = 1000


class InvalidAction(Exception):
    """A form with a missing or invalid parameter; the text names it."""


@dataclass(frozen=True, slots=True)
class PageAction:
    """An action.

    Attributes:
        label: the label of the button that carries it out.
        does: what it does, for the confirmation.
        operation: the operation of management.
        kind: the entity type; empty if the operation has none.
        name: the parameter that is the name of the entity; empty if there is none.
        fields: what the operator fills in.
        body: names of the parameters that go into the body.
        has_dry_run: whether the operation can say what it would do.
        is_grave: whether messages or connections are lost.
        section: the section of the navigation.
        fixed: attributes of the body that the operator does not choose.
    """

    label: str
    does: str
    operation: str
    kind: str = ""
    name: str = ""
    fields: Sequence[FormField] = ()
    body: Sequence[str] = ()
    has_dry_run: bool = False
    is_grave: bool = False
    section: str = "queues"
    fixed: Sequence[tuple[str, object]] = ()

    @property
    def parameters(self) -> Sequence[str]:
        """The names of all its parameters."""
        own = [self.name] if self.name else []
        return list(dict.fromkeys([*own, *self.body, *(each.name for each in self.fields)]))


_REASON: Final = FormField(
    "reason", "Reason", hint="for whoever looks at it later", is_required=True
)
_OPTIONAL: Final = FormField("reason", "Reason", hint="goes into the report to the senders")
_WHICH: Final = (
    FormField("to", "To the domain or next hop", hint="such as beta.example"),
    FormField("where", "Selector", hint="such as: color = 'red'"),
)
_SELECTED: Final = ("ids", "to", "where")
_TARGET: Final = FormField("target", "Target queue", is_required=True)
_FILTER: Final = FormField("filter", "Selector", hint="empty for all messages")

ACTIONS: Final[Mapping[str, PageAction]] = {
    "retry": PageAction(
        "Retry now",
        "Ends the back-off of the messages and of their destination: they are tried at once.",
        "RETRY-MESSAGES", "relay-queue", body=_SELECTED, has_dry_run=True, section="peers",
    ),
    "hold": PageAction(
        "Hold",
        "Holds the messages, present and future ones, until somebody releases the hold.",
        "HOLD-MESSAGES", "relay-queue", fields=(*_WHICH, _REASON), body=(*_SELECTED, "reason"),
        has_dry_run=True, section="holds",
    ),
    "release": PageAction(
        "Release", "Ends the hold: what it held is sent at once.",
        "RELEASE-HOLD", "hold", "name", section="holds",
    ),
    "expire": PageAction(
        "Expire now",
        "Ends the messages as if their time were over: senders are told, dead letters are kept.",
        "EXPIRE-MESSAGES", "relay-queue", fields=(_OPTIONAL,), body=(*_SELECTED, "reason"),
        has_dry_run=True, is_grave=True,
    ),
    "delete-messages": PageAction(
        "Delete", "Deletes the messages for good. Senders that asked for reports are told.",
        "DELETE-MESSAGES", "relay-queue", body=_SELECTED, has_dry_run=True, is_grave=True,
    ),
    "reroute": PageAction(
        "Reroute", "Moves messages whose route has changed to where the present routes lead.",
        "REROUTE-MESSAGES", "relay-queue", body=_SELECTED, has_dry_run=True, section="peers",
    ),
    "purge": PageAction(
        "Purge", "Deletes the messages on the queue for good; those with consumers stay.",
        "PURGE", "queue", "name", has_dry_run=True, is_grave=True,
    ),
    "move": PageAction(
        "Move", "Moves messages to another queue of this broker.",
        "MOVE", "queue", "name", fields=(_TARGET, _FILTER), body=("target", "filter"),
        has_dry_run=True,
    ),
    "copy": PageAction(
        "Copy", "Copies messages to another queue of this broker.",
        "COPY", "queue", "name", fields=(_TARGET, _FILTER), body=("target", "filter"),
        has_dry_run=True,
    ),
    "requeue": PageAction(
        "Requeue", "Returns the dead letters on the queue to where they came from.",
        "REQUEUE", "queue", "name",
        fields=(FormField("where", "Selector", hint="empty for all dead letters"),),
        body=("where",), has_dry_run=True,
    ),
    "delete-queue": PageAction(
        "Delete the queue", "Deletes the queue and the messages on it for good.",
        "DELETE", "queue", "name", has_dry_run=True, is_grave=True,
    ),
    "delete-exchange": PageAction(
        "Delete the exchange", "Deletes the exchange and the bindings from it.",
        "DELETE", "exchange", "name", has_dry_run=True, is_grave=True, section="exchanges",
    ),
    "close-connection": PageAction(
        "Close the connection",
        "Closes the connection. Messages it held become available again; the client may come back.",
        "CLOSE-CONNECTION", "connection", "name",
        fields=(FormField("reason", "Reason", hint="shown to the client"),), body=("reason",),
        is_grave=True, section="connections",
    ),
    "detach": PageAction(
        "Detach", "Detaches the client's link. Messages it held become available again.",
        "DELETE", "link", "name", body=("connection",), is_grave=True, section="connections",
    ),
    "forget-dns": PageAction(
        "Forget DNS answers", "Drops what the DNS has said about the domain; it is asked again.",
        "FORGET", "", "name", section="peers",
    ),
    "drain": PageAction(
        "Drain", "Takes no new messages until the drain is ended; delivers what is here.",
        "DRAIN", "broker", is_grave=True, section="overview",
    ),
    "drain-end": PageAction(
        "End the drain", "Takes messages again.", "DRAIN-END", "broker", section="overview",
    ),
    "accept-time": PageAction(
        "Accept the time", "Lets messages age by the present wall clock, which has jumped.",
        "ACCEPT-TIME", "clock", is_grave=True, section="broker",
    ),
    "commit-branch": PageAction(
        "Commit", "Commits the prepared branch, whatever its transaction manager decides.",
        "COMMIT-BRANCH", "branch", "name", is_grave=True, section="broker",
    ),
    "roll-back-branch": PageAction(
        "Roll back", "Rolls the prepared branch back, whatever its transaction manager decides.",
        "ROLL-BACK-BRANCH", "branch", "name", is_grave=True, section="broker",
    ),
}  # fmt: skip
"""The actions by name. ``peer-test`` is no change and has a page of its own."""


def body_of(action: PageAction, values: Mapping[str, str]) -> dict[str, object]:
    """Return the body of the request for an action.

    Raises:
        InvalidAction: a parameter is missing or invalid.
    """
    body: dict[str, object] = dict(action.fixed)
    for name in action.body:
        value = values.get(name, "").strip()
        if len(value) > LONGEST_VALUE and name != "ids":
            raise InvalidAction(f"{name} is longer than {LONGEST_VALUE} characters")
        if not value:
            continue
        if name == "ids":
            ids = value.replace(",", " ").split()
            if len(ids) > MOST_IDS or not all(
                each.isascii() and each.isdigit() and len(each) < 20 for each in ids
            ):
                raise InvalidAction("ids are numbers, as the page of a queue shows them")
            body[name] = [int(each) for each in ids]
        else:
            body[name] = value
    for each in action.fields:
        if each.is_required and not values.get(each.name, "").strip():
            raise InvalidAction(f"{each.label} is empty")
    if action.name and not values.get(action.name):
        raise InvalidAction(f"{action.name} is missing")
    selects = set(_SELECTED) <= set(action.body)
    if selects and not any(key in body for key in _SELECTED):
        raise InvalidAction("say which messages: a next hop, a selector, or numbers")
    return body


def form_page(
    key: str, action: PageAction, values: Mapping[str, str], problem: str = "", back: str = ""
) -> Page:
    """Make the page on which the operator fills in the parameters."""
    blocks: list[Block] = []
    if problem:
        blocks.append(Note("problem", problem, "bad"))
    blocks.append(Note("does", action.does))
    fields = [
        FormField(
            each.name,
            each.label,
            values.get(each.name, each.value),
            each.kind,
            each.hint,
            each.is_required,
            each.choices,
        )
        for each in action.fields
    ]
    blocks.append(
        FormPanel(
            "form",
            "",
            PATH,
            fields,
            "Show what would happen" if action.has_dry_run else "Continue",
            [
                *_hidden(key, action, values, back, leave=[each.name for each in fields]),
                ("filled-in", "yes"),
            ],
            back or address(""),
        )
    )
    return _page(action, values, blocks, 422 if problem else 200)


def confirmation_page(
    key: str, action: PageAction, values: Mapping[str, str], answer: Answer | None, back: str
) -> Page:
    """Make the page that shows what would happen, and asks.

    Args:
        key: the key of the action.
        action: the action to be confirmed.
        values: its parameters.
        answer: the answer of the dry run; None for an action without one.
        back: address of the page where it began.
    """
    blocks: list[Block] = [Note("does", action.does)]
    if answer is not None and not answer.is_good:
        blocks.append(Note("problem", answer.words, "bad"))
        blocks.append(_values(action, values))
        return _page(action, values, blocks, 200, back)
    blocks.append(_values(action, values))
    if answer is not None:
        if answer.words not in ("", "OK"):
            blocks.append(Note("dry-run", answer.words))
        blocks += _result(answer, "Dry run")
    blocks.append(
        FormPanel(
            "form",
            "",
            PATH,
            [],
            action.label,
            [*_hidden(key, action, values, back), ("confirmed", "yes")],
            back or address(""),
            action.is_grave,
        )
    )
    return _page(action, values, blocks, 200, back)


def outcome_page(action: PageAction, values: Mapping[str, str], answer: Answer, back: str) -> Page:
    """Make the page with the result of an action."""
    words = answer.words if answer.words not in ("", "OK") else "done"
    blocks: list[Block] = [
        Note("outcome", f"{action.label}: {words}", "good" if answer.is_good else "bad")
    ]
    blocks.append(_values(action, values))
    blocks += _result(answer, "Result")
    return _page(action, values, blocks, 200, back)


def _page(
    action: PageAction,
    values: Mapping[str, str],
    blocks: Sequence[Block],
    status: int,
    back: str = "",
) -> Page:
    about = values.get(action.name) if action.name else values.get("to") or values.get("ids")
    parent = ("Back", back) if back else None
    return Page(
        f"{action.label}{f': {about}' if about else ''}",
        blocks,
        action.section,
        parent=parent,
        status=status,
        is_live=False,
    )


def _hidden(
    key: str,
    action: PageAction,
    values: Mapping[str, str],
    back: str,
    leave: Sequence[str] = (),
) -> Sequence[tuple[str, str]]:
    """Return the parameters that a form repeats."""
    kept = [
        (name, values[name]) for name in action.parameters if name not in leave and values.get(name)
    ]
    return [("action", key), *kept, ("back", back)]


def _values(action: PageAction, values: Mapping[str, str]) -> Facts:
    labels = {each.name: each.label for each in action.fields}
    pairs = [
        (labels.get(name, name), Cell(values[name]))
        for name in action.parameters
        if values.get(name)
    ]
    return Facts("values", "", pairs)


def _result(answer: Answer, title: str) -> list[Block]:
    """Return the facts of an answer, and a few of the messages concerned."""
    facts = answer.facts
    pairs: list[tuple[str, Cell]] = []
    for key, label in (
        ("messages", "messages"),
        ("acquired", "with consumers"),
        ("held", "held, and stay so"),
        ("freed", "held no more"),
        ("refused", "refused"),
        ("waiting", "wait for room on the disk"),
        ("links", "links"),
        ("connections", "connections"),
        ("bindings", "bindings"),
    ):
        count = whole(facts, key)
        if count is not None and (count or key == "messages"):
            pairs.append((label, Cell(number(count))))
    if whole(facts, "bytes"):
        pairs.append(("size", Cell(size(whole(facts, "bytes")))))
    for key, label in (
        ("refused-because", "refused because"),
        ("target", "target"),
        ("reason", "reason"),
    ):
        if text(facts, key):
            pairs.append((label, Cell(text(facts, key))))
    for key, label in (("queues", "queues"), ("missing", "not found"), ("links", "links")):
        if texts(facts, key):
            pairs.append((label, Cell(", ".join(texts(facts, key)[:20]))))
    if text(facts, "cursor"):
        pairs.append(("more", Cell("there are more messages: do it again for the rest")))
    blocks: list[Block] = [Facts("result", title, pairs)] if pairs else []
    samples = maps(facts, "samples")
    if samples:
        made = [
            TableRow(
                text(row, "id"),
                [
                    Cell(text(row, "id")),
                    Cell(text(row, "to")),
                    Cell(text(row, "message-id")),
                    Cell(size(whole(row, "bytes"))),
                ],
            )
            for row in samples
        ]
        columns = [
            Column("message", "number"),
            Column("to", "code"),
            Column("message-id", "code", is_minor=True),
            Column("size", "number", is_minor=True),
        ]
        blocks.append(Table("samples", "Some of the messages", columns, made))
    return blocks
