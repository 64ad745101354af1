# SPDX-License-Identifier: Apache-2.0
"""Pages of entities by name, for clients that go through many of them.

A page begins where the last one ended, by the name of its last entity, or by its place in the order
where names are not unique, so that entities that come and go meanwhile neither hide others nor
appear twice. Rows are made `SLICE_ROWS` at a time, in turns of the reactor: ten thousand queues do
not stop it.

Of types whose owners keep their names in order (`entity_names`) a page costs what it shows. Only a
pattern of names is compared with all of them, `NAMES_IN_TURN` in a turn. What an owner has to do
before it can tell the order is done in parts as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from amqproute.auth.policy import pattern_matcher
from amqproute.jsontext import parse_json
from amqproute.services.entity_names import EntityOrder
from amqproute.services.host_scope import VIRTUAL_HOST
from amqproute.services.management_rows import Index, Row, Rows
from amqproute.turn_scheduler import Pause

__all__ = [
    "MOST_ON_PAGE",
    "NAMES_IN_TURN",
    "SLICE_ROWS",
    "EntityPage",
    "EntityQuery",
    "make_named_page",
    "make_page",
    "prepare_names",
]

SLICE_ROWS: Final = 10
"""Rows made in one step; each costs up to a tenth of a millisecond."""
_NAMES_AT_ONCE: Final = 40
"""Names that are fetched together: each time they are searched for."""
NAMES_IN_TURN: Final = 2000
"""Names compared with a pattern in one turn of the reactor: less than a millisecond."""
MOST_ON_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class EntityQuery:
    """A query for entities.

    Attributes:
        name: a pattern of names, in which ``*`` stands for any run of characters; empty for all.
        wanted: values of attributes, as text.
        host: the label of a virtual host; None for all.
        limit: entities of a page; 0 for the total alone.
        cursor: the cursor of the last page; empty for the first one.
        offset: entities that the first page leaves out, before any attribute restricts it.
    """

    name: str = ""
    wanted: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None
    limit: int = 100
    cursor: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class EntityPage:
    """A page.

    Attributes:
        rows: the rows of the entities.
        cursor: the cursor for the next page; empty on the last one.
        total: the number of entities, if no attribute restricts it; else None.
    """

    rows: Sequence[Row]
    cursor: str
    total: int | None


async def make_page(
    pause: Pause,
    index: Index | None,
    rows: Rows,
    shown: Callable[[Row], dict[str, object]],
    query: EntityQuery,
) -> EntityPage:
    """Make a page of a type whose names nobody keeps in order.

    Args:
        pause: called between slices.
        index: names of entities of the virtual host, each with a function for its row, which raises
            `KeyError` once it is gone; None if the rows themselves are listed.
        rows: lists the rows of a type without an index.
        shown: completes a row.
        query: what is asked for.

    Raises:
        ValueError: the cursor is not one that was given out.
    """
    after, done = _read_cursor(query.cursor)
    if index is None:
        index = [
            (str(row["name"]), partial(_itself, row))
            for row in rows()
            if query.host is None or row.get(VIRTUAL_HOST) == query.host
        ]
    fits = pattern_matcher(query.name) if query.name else None
    if fits is not None:
        index = [each for each in index if fits(each[0])]
    places = sorted(index, key=lambda each: each[0])
    total = None if query.wanted else len(places)
    if query.limit == 0:
        return EntityPage([], "", total)
    places = places[query.offset :] if not query.cursor else places
    found: list[Row] = []
    same = work = 0
    last = after
    for place, (name, make) in enumerate(places):
        if name < after:
            continue
        same = same + 1 if name == last and place else 1
        last = name
        if name == after and same <= done:
            continue
        if len(found) == query.limit:
            before = str(found[-1]["name"])
            taken = sum(1 for row in found if row["name"] == before)
            taken += done if before == after else 0
            return EntityPage(found, json.dumps([before, taken]), total)
        work += 1
        if work % SLICE_ROWS == 0:
            await pause()
        try:
            row = make(name)
        except KeyError:
            continue  # it is gone meanwhile
        full = shown(row)
        if all(_as_text(full.get(key)) == value for key, value in query.wanted.items()):
            found.append(full)
    return EntityPage(found, "", total)


async def make_named_page(
    pause: Pause,
    entities: EntityOrder,
    shown: Callable[[Row], dict[str, object]],
    query: EntityQuery,
) -> EntityPage:
    """Make a page of a type whose names are kept in order.

    Args:
        pause: called between slices.
        entities: the names.
        shown: completes a row.
        query: what is asked for.

    Raises:
        ValueError: the cursor is not one that was given out.
    """
    cursor, _ = _read_cursor(query.cursor)
    after = cursor if query.cursor else None
    to_skip = 0 if query.cursor else query.offset
    fits = pattern_matcher(query.name) if query.name else None
    # The total with a pattern takes all names; without one it is known.
    is_counting = fits is not None and not query.wanted
    if query.limit == 0 and not is_counting:
        return EntityPage([], "", None if query.wanted else entities.count(query.host))
    found: list[Row] = []
    following = last = ""
    matching = work = 0
    name = None if is_counting else after
    in_turn = _NAMES_AT_ONCE if fits is None else NAMES_IN_TURN
    while True:
        await prepare_names(pause, entities, name, in_turn, query.host)
        names = tuple(islice(entities.behind(name, query.host), in_turn))
        for name in names:
            if fits is not None and not fits(entities.shown(name)):
                continue
            matching += 1
            if after is not None and name <= after:
                continue
            if to_skip:
                to_skip -= 1
                continue
            if len(found) == query.limit:
                following = json.dumps([last, 1]) if found else ""
                if is_counting:
                    continue
                break
            work += 1
            if work % SLICE_ROWS == 0:
                await pause()
            try:
                row = shown(entities.row(name))
            except KeyError:
                continue  # it is gone meanwhile
            if all(_as_text(row.get(key)) == value for key, value in query.wanted.items()):
                found.append(row)
                last = name
        if len(names) < in_turn or (following and not is_counting):
            break
        if fits is not None:
            await pause()
    total = matching if is_counting else None if query.wanted else entities.count(query.host)
    return EntityPage(found, following, total)


async def prepare_names(
    pause: Pause, entities: EntityOrder, name: str | None, count: int, host: str | None
) -> None:
    """Have an order tell the next names, in turns of the reactor.

    Args:
        pause: called between slices.
        entities: the names.
        name: the name before them; None for the beginning.
        count: how many will be asked for.
        host: the label of a virtual host; None for all.
    """
    while not entities.prepare(name, count, host):
        await pause()


def _itself(row: Row, name: str) -> Row:
    return row


def _as_text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _read_cursor(text: str) -> tuple[str, int]:
    if not text:
        return "", 0
    try:
        name, done = parse_json(text)
        if not isinstance(name, str) or not isinstance(done, int) or done < 0:
            raise ValueError("not a place")
    except (TypeError, ValueError):
        raise ValueError("`cursor` is not one that was given out") from None
    return name, done
