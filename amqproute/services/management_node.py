# SPDX-License-Identifier: Apache-2.0
"""``$management``: the node that answers operators and carries out their requests (topic G).

A request is a message in one of two forms (G-18):

* application-properties as in the working draft of AMQP Management, ``operation``, ``type`` or
  ``entityType``, ``name``, with a map as amqp-value; or a list of such maps, each with
  ``operation``, ``type``, ``name`` and ``attributes``: a batch;
* text, as amqp-value or as data of the type ``text/plain``, a command on each line
  (`command_schema`).

The reply goes to the node in ``reply-to``, with the request's message-id as correlation-id (G-19),
``statusCode`` and ``statusDescription`` (G-20), and a map as amqp-value. The reply to a batch has
``committed`` and ``results``: for each command its ``index`` from 0, ``status``, ``description``
and ``attributes``. A batch is all or nothing (G-03, `node_changes`); commands undone because
another failed have the status 424. A query that fails is answered, not rejected: link and session
stay (G-21). Only a request that cannot be answered is rejected: one without ``reply-to``, with a
``reply-to`` that is not a node here, or an undecodable one.

==============  ==============================================================================
operation       does
==============  ==============================================================================
``QUERY``       ``attributeNames`` and ``results``, a list of values for each entity; restricted
                by the body's ``attributeNames`` and the properties ``offset`` and ``count``; the
                reply's property ``count`` is the number of rows, ``total`` that of all matches
``READ``        the attributes of the one entity with that ``name``
``CREATE`` ``UPDATE`` ``DELETE`` ``ASSERT`` ``RENAME``
                for the types ``queue``, ``topic``, ``link`` (a binding) and ``alias``; options
                are the body's entries, in the words of the configuration; ``CREATE``,
                ``ASSERT`` and ``DELETE`` for ``route`` as well, whose name is its domains;
                all but ``RENAME`` for ``policy`` and ``operator-policy``. For these the right
                `manage` is required on ``/policies/NAME``
``PURGE``       deletes the messages on a queue
``MOVE`` ``COPY``
                takes messages from a queue to another node (`message_moves`)
``GET-TYPES`` ``GET-OPERATIONS`` ``GET-ATTRIBUTES``
                entity types, their operations and attributes
==============  ==============================================================================

Nodes and exchanges of a virtual host have names like ``//shop/orders``; the property
``virtual-host`` gives the virtual host of the names in a request, and of the rows of a ``QUERY``
(`host_scope`). Without it a request is about the whole broker.

Entity types, operations, their parameters and rights are defined once, in `management_table`. HTTP
requests are carried out by the same functions (`ManagementService.perform`). Components of the
daemon supply the functions that carry them out (`ManagementService.offer`, `show`).

The right to attach suffices for a request. A change needs the right `manage` on each node concerned
(G-25); a refusal is answered with 403 and logged.

Replies are put within the request's own batch, so the request is accepted only when its reply has
been sent and its changes are durable; the reply of a longer operation follows at its end. A reply
goes to local nodes only: to dynamic ones, whose names nobody can guess, and to nodes that the
requester may publish to. The service never lends its own rights.

Limits: `MAX_ROWS` rows per reply; a client requests the rest with a larger ``offset``. A batch has
`command_schema.MOST_COMMANDS` commands; `questions` bounds the work of its queries and the octets
of its reply. A query without room has the status 507.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.address import exchange_node, in_host, split_host
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.errors import AmqpError
from amqproute.interfaces import ITarget
from amqproute.journal.event import RunEvent
from amqproute.journal.record import RecordKind
from amqproute.log_rate_limit import RateLimitedLog, and_more
from amqproute.message import Message
from amqproute.plurals import counted
from amqproute.services.alias_entity import AliasCommands
from amqproute.services.binding_entity import BindingCommands
from amqproute.services.change_batch import OPERATOR_POLICY, POLICY
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    FULL,
    INTERNAL,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    CommandRefused,
    ManagementCommand,
    read_map,
)
from amqproute.services.command_schema import OPERATIONS as COMMANDS
from amqproute.services.entity_names import EntityOrder
from amqproute.services.entity_pages import (
    EntityQuery,
    make_named_page,
    make_page,
    prepare_names,
)
from amqproute.services.exchange_entity import ExchangeCommands
from amqproute.services.host_scope import VIRTUAL_HOST, asked_host, within_host
from amqproute.services.management_protocol import (
    Allows,
    Commands,
    ManagementReply,
    ManagementRequest,
    ReplyAddress,
    accept,
    answering,
    attribute_names,
    whole,
)
from amqproute.services.management_rows import (
    Index,
    ManagementRows,
    Row,
    RowIndex,
    Rows,
    no_destination,
    no_links,
    rows_there,
)
from amqproute.services.management_table import (
    ENTITIES,
    NODE_KINDS,
    OPERATIONS,
    RequiredRight,
    operations_of,
    parameters_of,
)
from amqproute.services.message_moves import MessageMoves
from amqproute.services.node_changes import ChangeBatch, CommandResult, NodeChanges
from amqproute.services.policy_entity import PolicyCommands, policy_key
from amqproute.services.questions import (
    MOST_UNITS_AMONG_CHANGES,
    Asking,
    QuestionTurns,
    Results,
    batch_reply,
    failed_reply,
)
from amqproute.services.route_entity import RouteCommands
from amqproute.services.value_declaration import first_fault, named_in
from amqproute.turn_scheduler import Pause, TurnScheduler
from amqproute.values import RELAY_PREFIX, Origin, Principal

__all__ = [
    "BAD_REQUEST",
    "CONFLICT",
    "MANAGEMENT",
    "MAX_ROWS",
    "NOT_FOUND",
    "OK",
    "SYNONYMS",
    "Allows",
    "EntityType",
    "ManagementReply",
    "ManagementRequest",
    "ManagementService",
]

MANAGEMENT: Final = "$management"
SYNONYMS: Final = ("amqp$admin",)
"""Further names under which the assembly enters the same service (G-01)."""

MOST_LISTS: Final = 128
"""Lists that are being made at one time."""
MOST_LISTS_OF_ONE: Final = 32
"""The same of one principal."""
MOST_REFUSED: Final = 5
"""Records of the journal about a principal who may not manage, every `EVERY_SECONDS`."""
MOST_PARAMETERS: Final = 200
"""Parameters, or options, of one request."""
MAX_ROWS: Final = 1000
"""Rows of one reply, whatever ``count`` asks for."""
ROWS_IN_INDEX: Final = 30
"""So many places in an index cost as much as one row does."""

_KINDS: Final = OPERATIONS["CREATE"].kinds
_EXCHANGES: Final = ("exchange", "exchange-binding")
_POLICIES: Final = (POLICY, OPERATOR_POLICY)
_UNRESOLVED: Final = ("route", *_EXCHANGES, *_POLICIES)
"""Kinds of things whose names are no addresses of nodes."""

READS: Final = frozenset(
    {"GET-MGMT-NODES", *(each.name for each in OPERATIONS.values() if not each.changes)}
)
"""Operations that change nothing but what is remembered for seconds."""
LONGEST_DETAIL: Final = 1024


def _deed(request: ManagementRequest, reply: ManagementReply, now_us: int) -> RunEvent:
    """Return the journal's record of a request."""
    asked: dict[str, object] = {
        key: value for key, value in request.properties.items() if key != "operation"
    }
    if request.body:
        asked["attributes"] = request.body
    if request.batch is not None:
        asked["commands"] = request.batch
    asked["answer"] = reply.description
    detail = json.dumps(asked, default=str)
    if len(detail) > LONGEST_DETAIL:
        detail = json.dumps({"answer": reply.description[:256], "beginning": detail[:512]})
    facts = {
        "operator": str(request.principal),
        "action": request.operation or "BATCH",
        "node": _audited_name(request) or None,
        "code": str(reply.status),
        "detail": detail,
    }
    return RunEvent(RecordKind.OPERATOR, now_us, facts)


def _audited_name(request: ManagementRequest) -> str:
    """Return the entity's name in the journal: exchanges by their kind."""
    name = str(request.properties.get("name", ""))
    return _exchange_at(name) if name and request.entity_type in _EXCHANGES else name


@dataclass(frozen=True, slots=True)
class EntityType:
    """One entity type.

    Attributes:
        name: the value of ``entityType``.
        rows: returns the present entities: attribute to value, all encodable; each has ``name``.
        index: for types with many entities, their names in the order of `rows`; None if `rows` is
            as good.
        names: the same names in their own order, where their owners keep it: then a part of a list
            costs what it shows.
        order: the same for types whose names need not be unique.
    """

    name: str
    rows: Rows
    index: RowIndex | None = None
    names: EntityOrder | None = None
    order: EntityOrder | None = None

    def page(self, offset: int, count: int, host: str | None = None) -> tuple[list[Row], int]:
        """Return a page of rows, and the total number.

        Args:
            offset: the offset of the first row.
            count: the count of rows.
            host: the label of a virtual host, to leave out others; None for all.
        """
        if self.index is not None:
            index = self.index(host)
            return list(rows_there(index[offset : offset + count])), len(index)
        order = self.kept_order
        if order is not None:
            names = tuple(islice(order.behind(None, host), offset, offset + count))
            return list(rows_there([(name, order.row) for name in names])), order.count(host)
        rows = list(self.in_host(host))
        return rows[offset : offset + count], len(rows)

    @property
    def kept_order(self) -> EntityOrder | None:
        """The order that the owners of the entities keep; None if they do not."""
        return self.names or self.order

    def in_host(self, host: str | None) -> Iterator[Row]:
        """Iterate over the rows of a virtual host; of all with None."""
        return (row for row in self.rows() if host is None or row.get(VIRTUAL_HOST) == host)

    def find(self, name: str) -> Row | None:
        """Return the row of the first entity with a name; None without one."""
        if self.names is not None:
            try:
                return self.names.row(name)
            except KeyError:
                return None
        if self.index is None:
            return next((row for row in self.rows() if row["name"] == name), None)
        return next((make(each) for each, make in self.index() if each == name), None)


Narrow = Callable[[Mapping[str, str]], Index | EntityOrder | None]
"""Returns the entities that may have wanted attributes, as text; None if it does not know them."""


def _not_narrowed(wanted: Mapping[str, str]) -> None:
    return None


Operation = Callable[[ManagementRequest], "ManagementReply | Deferred[ManagementReply]"]


@implementer(ITarget)
class ManagementService:
    """Answers requests. That the asker may `manage` was checked when the link was made.

    Args:
        broker: the nodes, and the targets of replies.
        allows: the access rules: for changes, and for replies to named nodes.
        now_ms: the wall clock, ms since the epoch.
        inventory: makes and deletes nodes; None: nothing can be changed.
        destination_of: see `management_rows.ManagementRows`.
        connections: the open connections: maps with ``name`` and further facts.
        links: see `management_rows.ManagementRows`.
        close_link: detaches the links of clients with this name on the connections of that name.

    Attributes:
        operations: name to function, from `offer`. They take precedence over `command_schema`.
        turns: where slices of lists wait.
    """

    name = MANAGEMENT
    acts_at_once = True
    """Requests are carried out by `put`: no transaction could roll them back (X-04, G-04)."""

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        allows: Allows,
        now_ms: Callable[[], int],
        *,
        inventory: NodeChanges | None = None,
        destination_of: Callable[[str], Row] = no_destination,
        connections: Rows = tuple,
        links: RowIndex = no_links,
        close_link: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._broker = broker
        self._allows = allows
        self._inventory = inventory
        self._close_link = close_link
        self._types: dict[str, EntityType] = {}
        self._narrowed: dict[str, Narrow] = {}
        self.operations: dict[str, Operation] = {
            "QUERY": self._query,
            "READ": self._read,
            "GET-TYPES": self._get_types,
            "GET-OPERATIONS": self._get_operations,
            "GET-ATTRIBUTES": self._get_attributes,
        }
        self._does = {} if inventory is None else _functions(inventory)
        self._moving = MessageMoves(broker, now_ms)
        self._questions = QuestionTurns(broker.clock, self._ask)
        self.turns = TurnScheduler(broker.clock)
        self._lists: Counter[str] = Counter()
        self._refused = RateLimitedLog(broker.clock.seconds, MOST_REFUSED)
        if inventory is not None:
            self.operations |= {"MOVE": self._take, "COPY": self._take}
            self._does |= {(name, "node"): self._moving.later for name in ("MOVE", "COPY")}
        overview = self._overview = ManagementRows(broker, inventory, now_ms, destination_of, links)
        self.register(
            EntityType(
                "queue",
                overview.queues,
                overview.queue_index,
                overview.queue_names(),
            )
        )
        self.show("topic", overview.topics, names=overview.topic_names())
        self.show("relay-queue", overview.relay_queues, names=overview.relay_queue_names())
        self.show("binding", overview.bindings, overview.binding_index)
        self.show("link", overview.links, overview.link_index)
        exchanges = ExchangeCommands(broker)
        self.show("exchange", exchanges.rows, names=exchanges.names())
        self.register(
            EntityType(
                ENTITIES["exchange-binding"].name,
                exchanges.binding_rows,
                order=exchanges.binding_order(),
            )
        )
        self.narrow("exchange-binding", exchanges.bindings_with)
        self.show("alias", overview.aliases)
        if inventory is not None:
            routes = RouteCommands(inventory)
            self.show("route", routes.rows, routes.index)
            for kind in inventory.policies:
                self.show(kind, PolicyCommands(inventory, kind).rows)
        self.show("shape", overview.shapes, overview.shape_index, overview.shape_names())
        self.show("connection", connections)

    def __repr__(self) -> str:
        return f"<ManagementService {' '.join(self._types)}>"

    def register(self, entity_type: EntityType) -> None:
        """Make a kind of thing known; one of the same name is replaced."""
        self._types[entity_type.name] = entity_type

    def show(
        self,
        name: str,
        rows: Rows,
        index: RowIndex | None = None,
        names: EntityOrder | None = None,
    ) -> None:
        """Give the rows of an entity type of the table.

        Raises:
            KeyError: `management_table` has no such type.
        """
        self.register(EntityType(ENTITIES[name].name, rows, index, names=names))

    def narrow(self, name: str, narrow: Narrow) -> None:
        """Have lists of an entity type that attributes restrict make fewer rows.

        Args:
            name: the name of the type.
            narrow: returns the entities that may fit wanted attributes, of all virtual hosts.
        """
        self._narrowed[name] = narrow

    def definition(self, kind: str, name: str) -> dict[str, object] | None:
        """Return what is declared of an entity: options and origin, without counters and states.

        None if there is no such entity.
        """
        found = self._types.get(kind)
        row = None if found is None else found.find(name)
        if row is None:
            return None
        declared = {each.name for each in ENTITIES[kind].options} | _ORIGIN
        known = {key: value for key, value in row.items() if key in declared}
        if self._inventory is None or row.get("kind") not in _NODES:
            return known
        return self._inventory.options(str(row["name"])) | known

    def rows_of(self, name: str) -> Iterable[Row]:
        """Return the rows of an entity type; none if this broker does not have it."""
        found = self._types.get(name)
        return () if found is None else found.rows()

    def offer(self, name: str, function: Operation) -> None:
        """Add the function for an operation of the table, with the right that it needs.

        Raises:
            KeyError: `management_table` has no such operation.
        """
        is_of_service = OPERATIONS[name].right is RequiredRight.SERVICE
        self.operations[name] = partial(self._as_manager, function) if is_of_service else function

    def _as_manager(
        self, function: Operation, request: ManagementRequest
    ) -> ManagementReply | Deferred[ManagementReply]:
        if not self._allows(request.principal, Verb.MANAGE, MANAGEMENT):
            return _may_not(request.principal)
        return function(request)

    # -- the node ------------------------------------------------------------------------------

    def space(self) -> int:
        """Return how many more requests can be taken: nothing is kept, so always many."""
        return 1 << 31

    def when_space(self, notify: Callable[[], None]) -> None:
        """Do nothing: there is always space."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Answer one request within the batch. See `ITarget.put`."""
        request, reply_to = accept(message, origin, self._broker, self._allows)
        changes = ChangeBatch(str(origin.principal), batch.now_ms)
        reply = self.answer(request, changes)
        if isinstance(reply, Deferred):
            reply.addCallback(self._noted, request)
            reply.addErrback(self._broken, request.operation)
            reply.addCallback(self._follow, reply_to)
            reply.addErrback(self._not_told, request.operation)
            answering(self._broker, reply)
            return
        try:
            reply_to.put(reply, batch)
        except AmqpError:
            changes.roll_back()  # no change without a reply
            raise
        changes.put(batch)
        self._noted(reply, request)

    def _noted(self, reply: ManagementReply, request: ManagementRequest) -> ManagementReply:
        """Record in the journal that somebody has changed something, or tried to."""
        journal = self._broker.journal
        is_dry = request.body.get("dry-run") is True
        if journal.is_kept and request.operation not in READS and not is_dry:
            journal.note(_deed(request, reply, journal.now_us()))
        return reply

    def _follow(self, reply: ManagementReply, reply_to: ReplyAddress) -> Deferred[None]:
        batch = self._broker.begin()
        reply_to.put(reply, batch)
        return batch.commit()

    def _broken(self, failure: Failure, operation: str) -> ManagementReply:
        self.log.failure("the operation {operation} failed", failure, operation=operation)
        return ManagementReply.of(INTERNAL, "an internal error, see the broker's log")

    def _not_told(self, failure: Failure, operation: str) -> None:
        self.log.warn(
            "the reply to {operation} could not be kept: {error}",
            operation=operation,
            error=failure.getErrorMessage(),
        )

    def perform(self, request: ManagementRequest) -> Deferred[ManagementReply]:
        """Carry out a request that has not come as a message, with the same rights and records.

        Returns:
            A Deferred of the reply, which fires when the changes are durable. It fails with an
            `AmqprouteError` if they cannot be stored; then nothing has changed.
        """
        return Deferred.fromCoroutine(self._perform(request))

    async def list_entities(
        self, kind: str, query: EntityQuery, principal: Principal
    ) -> ManagementReply:
        """List entities of a type, page by page, with the right of a QUERY.

        The reply has ``items``, ``next`` (a cursor, or null) and ``total`` (or null). Lists share a
        part of each turn, and `MOST_LISTS` are made at one time; one more has the status 507.
        """
        if not self._allows(principal, Verb.MANAGE, MANAGEMENT):
            return _may_not(principal)
        found = self._types.get(kind)
        if found is None:
            return ManagementReply.of(NOT_FOUND, f"there is no type {kind!r} at this broker")
        if query.host is not None:
            try:
                asked_host({VIRTUAL_HOST: query.host}, self._broker.has_host)
            except CommandRefused as refused:
                return ManagementReply.of(refused.status, refused.words, {"field": VIRTUAL_HOST})
        asker = str(principal)
        if self._lists[asker] >= MOST_LISTS_OF_ONE or self._lists.total() >= MOST_LISTS:
            words = f"{counted(self._lists.total(), 'list')} being made: ask again later"
            return ManagementReply.of(FULL, words)
        self._lists[asker] += 1
        try:
            return await self._list(found, query, self.pause_of(principal))
        finally:
            self._lists[asker] -= 1
            self._lists += Counter()  # forgets who has none

    def pause_of(self, principal: Principal) -> Pause:
        """Return what is called between slices of work for somebody, such as rows of a list."""
        return partial(self.turns.pause, "rows", str(principal))

    async def _list(self, found: EntityType, query: EntityQuery, pause: Pause) -> ManagementReply:
        kind, shown = found.name, self._with_options
        if self.turns.waiting:
            await pause()
        try:
            places = self._narrowed.get(kind, _not_narrowed)(query.wanted)
            if places is not None and query.host is not None:
                wanted = {**query.wanted, VIRTUAL_HOST: query.host}
                query = replace(query, wanted=wanted, host=None)
            if places is None:
                places = found.kept_order
            if places is None and found.index is not None:
                places = found.index(query.host)
            if places is None or isinstance(places, Sequence):
                page = await make_page(pause, places, found.rows, shown, query)
            else:
                page = await make_named_page(pause, places, shown, query)
        except ValueError as error:
            return ManagementReply.of(BAD_REQUEST, str(error), {"field": "cursor"})
        facts = {"items": page.rows, "next": page.cursor or None, "total": page.total}
        return ManagementReply.of(OK, "OK", facts)

    async def _perform(self, request: ManagementRequest) -> ManagementReply:
        if not self._allows(request.principal, Verb.MANAGE, MANAGEMENT):
            return self._turned_away(request)
        batch = self._broker.begin()
        changes = ChangeBatch(str(request.principal), batch.now_ms)
        answer = self.answer(request, changes)
        if isinstance(answer, Deferred):
            batch.abandon()
            answer.addErrback(self._broken, request.operation)
            answering(self._broker, answer)
            return self._noted(await answer, request)
        if changes.is_empty:
            batch.abandon()
        else:
            changes.put(batch)
            await batch.commit()
        return self._noted(answer, request)

    def _turned_away(self, request: ManagementRequest) -> ManagementReply:
        """Refuse a request; who has no rights here does not decide how long the journal becomes."""
        reply = _may_not(request.principal)
        count = self._refused.due(str(request.principal))
        if count:
            words = f"{reply.description}{and_more(count)}"
            self._noted(replace(reply, description=words), request)
        return reply

    def named_entities(
        self, kind: str, names: Sequence[str], principal: Principal
    ) -> ManagementReply:
        """List the entities of a type that have these names, with the right of a QUERY.

        The reply has ``items``, of those that exist.
        """
        if not self._allows(principal, Verb.MANAGE, MANAGEMENT):
            return _may_not(principal)
        found = self._types.get(kind)
        if found is None:
            return ManagementReply.of(NOT_IMPLEMENTED, f"there is no type {kind!r} at this broker")
        wanted = set(names)
        if found.names is not None:
            known = found.names.row
            rows = list(rows_there([(name, known) for name in dict.fromkeys(names)]))
        elif found.index is None:
            rows = [row for row in found.rows() if row["name"] in wanted]
        else:
            rows = list(rows_there([each for each in found.index() if each[0] in wanted]))
        return ManagementReply.of(OK, "OK", {"items": rows})

    def answer(
        self, request: ManagementRequest, changes: ChangeBatch | None = None
    ) -> ManagementReply | Deferred[ManagementReply]:
        """Carry out one request.

        Args:
            request: the request.
            changes: collects the changes; None if none are possible.
        """
        if request.batch is not None:
            return self._batch(request.batch, request.principal, changes)
        reply = self._fault(request) or self._answer_one(request, changes)
        if isinstance(reply, Deferred):
            return reply.addCallback(_with_field, request)
        return _with_field(reply, request)

    def _fault(self, request: ManagementRequest) -> ManagementReply | None:
        """Refuse a request with a wrong parameter; None if all are as declared.

        Options of entities are checked by the functions that know them.
        """
        if len(request.body) > MOST_PARAMETERS:
            words = f"{len(request.body)} parameters are given; there are at most {MOST_PARAMETERS}"
            return ManagementReply.of(BAD_REQUEST, words)
        declared = OPERATIONS.get(request.operation)
        if declared is None or declared.parameters is None:
            return None
        name = request.properties.get("name")
        if declared.subject and declared.needs_subject and (not isinstance(name, str) or not name):
            return ManagementReply.of(
                BAD_REQUEST,
                f"the application property `name` is missing: {declared.subject}",
                {"field": "name"},
            )
        if name is not None and not isinstance(name, str):
            words = "the application property `name` is not a text"
            return ManagementReply.of(BAD_REQUEST, words, {"field": "name"})
        fault = first_fault(request.body, declared.parameters)
        return (
            None
            if fault is None
            else ManagementReply.of(BAD_REQUEST, fault[1], {"field": fault[0]})
        )

    def _answer_one(
        self, request: ManagementRequest, changes: ChangeBatch | None
    ) -> ManagementReply | Deferred[ManagementReply]:
        try:
            host = asked_host(request.properties, self._broker.has_host)
            if host is not None:
                request = within_host(request, host)
        except CommandRefused as refused:
            return ManagementReply.of(refused.status, refused.words)
        if not request.operation:
            return ManagementReply.of(
                BAD_REQUEST, "the application property `operation` is missing"
            )
        operation = self.operations.get(request.operation)
        if request.operation == "PURGE":
            return self._purge(request, operation, changes)
        if operation is not None:
            return operation(request)
        if request.operation not in COMMANDS:
            known = ", ".join(dict.fromkeys((*self.operations, *COMMANDS)))
            return ManagementReply.of(
                NOT_IMPLEMENTED, f"no operation {request.operation[:64]!r} here; there are {known}"
            )
        return self.change(request, changes)

    def _purge(
        self, request: ManagementRequest, operation: Operation | None, changes: ChangeBatch | None
    ) -> ManagementReply | Deferred[ManagementReply]:
        """Purge a node here, or have the relay purge one of its queues."""
        name = str(request.properties.get("name", ""))
        is_relay = name.startswith(RELAY_PREFIX) or request.entity_type not in ("queue", "topic")
        if operation is None or not is_relay:
            return self.change(request, changes)
        relay_queue = self._broker.internal.get(name) or self._broker.internal.get(
            RELAY_PREFIX + name
        )
        if request.body.get("dry-run") is True and relay_queue is not None:
            count = relay_queue.available + relay_queue.deferred
            facts = {"messages": count, "acquired": relay_queue.acquired}
            return ManagementReply.of(OK, f"{counted(count, 'message')} would be deleted", facts)
        return operation(request)

    def _take(self, request: ManagementRequest) -> ManagementReply | Deferred[ManagementReply]:
        """Move or copy messages."""
        given = {"type": "queue", **request.properties, "attributes": request.body}
        try:
            command = self._by_names(read_map(given))
            self._require_right(command, request.principal)
            taken = self._moving.now(command, str(request.principal))
        except CommandRefused as refused:
            return ManagementReply.of(refused.status, refused.words, refused.attributes)
        return taken.addCallback(
            lambda result: ManagementReply.of(result.status, result.words, result.attributes)
        )

    def change(self, request: ManagementRequest, changes: ChangeBatch | None) -> ManagementReply:
        """Carry a single command out."""
        try:
            command = read_map({**request.properties, "attributes": request.body})
            result = self._carry_out(command, request.principal, changes)
        except CommandRefused as refused:
            if changes is not None:
                changes.roll_back()
            return ManagementReply.of(refused.status, refused.words, refused.attributes)
        return ManagementReply.of(result.status, result.words, result.attributes)

    # -- changes -------------------------------------------------------------------------------

    def _batch(
        self, batch: Commands | CommandRefused, principal: Principal, changes: ChangeBatch | None
    ) -> ManagementReply | Deferred[ManagementReply]:
        """Do all of a batch or nothing (G-02, G-03), in the order given (G-27)."""
        if isinstance(batch, CommandRefused):
            return ManagementReply.of(
                batch.status, batch.words, {"committed": False, "results": []}
            )
        if all(isinstance(each, CommandRefused) or _is_question(each) for _, each in batch):
            return self._questions.answer(batch)
        results = Results()
        units = MOST_UNITS_AMONG_CHANGES
        for place, command in batch:
            try:
                if isinstance(command, CommandRefused):
                    raise command
                if _is_question(command):
                    result, used = _answered(self._ask(command), units)
                    units -= used
                else:
                    result = self._carry_out(command, principal, changes)
                results.add(result)
            except CommandRefused as refused:
                if changes is not None:
                    changes.roll_back()
                return failed_reply(refused, place, len(results.all), len(batch))
        return batch_reply(OK, "OK", True, results.all)

    def _carry_out(
        self, command: ManagementCommand, principal: Principal, changes: ChangeBatch | None
    ) -> CommandResult:
        command = self._by_names(command)
        if self._inventory is None or changes is None:
            raise CommandRefused(NOT_IMPLEMENTED, "nothing can be changed here at runtime")
        if command.kind not in _KINDS:
            known = ", ".join(_KINDS)
            raise CommandRefused(
                BAD_REQUEST, f"{command.operation} is for {known}, not {command.kind[:64]!r}"
            )
        if OPERATIONS[command.operation].right is RequiredRight.NODES:
            self._require_right(command, principal)
        if command.operation == "DELETE" and command.kind == "link":
            closed = self._close_links(command, changes)
            if closed is not None:
                return closed
        if command.kind == "link" and command.operation in ("UPDATE", "RENAME"):
            self._require_binding(command.name)
        kind = "node" if command.kind in NODE_KINDS else command.kind
        function = self._does.get((command.operation, kind))
        if function is None:
            raise CommandRefused(
                NOT_IMPLEMENTED, f"there is no {command.operation} for the type {command.kind}"
            )
        return function(command, changes)

    def _by_names(self, command: ManagementCommand) -> ManagementCommand:
        """Return a command with the names of the nodes that its addresses mean (A-01, G-24)."""
        if command.kind in _UNRESOLVED or (
            command.operation == "CREATE" and command.kind != "link"
        ):
            return command  # a name that is new is taken as it stands
        name_of = self._broker.name_of
        ends = {
            key: name_of(value)
            for key, value in command.arguments.items()
            if key in ("source", "target", "destination") and isinstance(value, str)
        }
        name = name_of(command.name) if command.kind in NODE_KINDS else command.name
        return replace(command, name=name, arguments={**command.arguments, **ends})

    def _require_right(self, command: ManagementCommand, principal: Principal) -> None:
        """Require the right to manage every node that a command is about (G-25)."""
        for name in self._about(command):
            if not self._allows(principal, Verb.MANAGE, name):
                self.log.warn(
                    "{who} may not {what}: no right to manage {node}",
                    who=str(principal),
                    what=str(command),
                    node=name,
                )
                raise CommandRefused(FORBIDDEN, f"{principal} may not manage {name[:256]!r}")

    def _about(self, command: ManagementCommand) -> list[str]:
        if command.kind == "route":
            return [f"@{command.name}"]
        if command.kind in _POLICIES:
            host, local = split_host(policy_key(command))
            return [in_host(host, f"/policies/{local}")]
        if command.kind in _UNRESOLVED:
            return _about_exchange(command)
        given = command.arguments
        named = [str(given[key]) for key in ("source", "target", "destination") if given.get(key)]
        if command.kind != "link":
            new_name = given.get("new-name")
            return [command.name, *([str(new_name)] if new_name else []), *named]
        for each in self._broker.bindings:
            if each.name == command.name:
                named += [each.source, each.target]
        return named or [MANAGEMENT]

    def _close_links(
        self, command: ManagementCommand, changes: ChangeBatch
    ) -> CommandResult | None:
        """Detach the links of clients by name (G-13); None if there are none, or a binding."""
        assert self._inventory is not None
        name = command.name
        connection, host = (command.arguments.get(key) for key in ("connection", VIRTUAL_HOST))
        if not isinstance(connection, str | None) or not isinstance(host, str | None):
            raise CommandRefused(BAD_REQUEST, f"connection and {VIRTUAL_HOST} are names, texts")
        if name in self._inventory.links:
            return None
        links = [
            row
            for row in self._overview.client_links(name, host)
            if connection in (None, row["connection"])
        ]
        hosts = sorted({str(row.get(VIRTUAL_HOST)) for row in links})
        if len(hosts) > 1:
            raise CommandRefused(
                CONFLICT,
                f"the virtual hosts {', '.join(hosts)} have links {name[:256]!r}: say which, or on "
                "which connection",
            )
        if any(row["kind"] == "channel" for row in links):
            raise CommandRefused(
                CONFLICT,
                f"{name[:256]!r} is a channel, which ends with its connection: "
                f"amqproute connection close {links[0]['connection']}",
            )
        count = sum(row["kind"] != "suspended" for row in links)
        if not count or any(each.name == name for each in self._broker.bindings):
            return None

        def close() -> None:
            for each in dict.fromkeys(row["connection"] for row in links):
                if isinstance(each, str):
                    self._close_link(name, each)

        changes.did(f"DELETE link {name}", done=close)
        return CommandResult(
            OK,
            f"{counted(count, 'link of a client is', 'links of clients are')} being detached",
            {"links": count},
        )

    def _require_binding(self, name: str) -> None:
        """Refuse to change the link of a client, which its client alone can (G-15, G-16)."""
        assert self._inventory is not None
        if name in self._inventory.links or any(
            each.name == name for each in self._broker.bindings
        ):
            return
        if any(True for _ in self._overview.client_links(name)):
            raise CommandRefused(
                CONFLICT, f"{name[:256]!r} is a client's link: only bindings change"
            )

    def _ask(self, command: ManagementCommand) -> Asking:
        """Answer a question of a batch: name and options restrict it (G-11, G-17)."""
        command = self._by_names(command)
        found = self._types.get(command.kind)
        if found is None:
            known = ", ".join(self._types)
            raise CommandRefused(
                BAD_REQUEST, f"no type {command.kind[:64]!r} here; there are {known}"
            )
        wanted, is_read = command.arguments, command.operation == "READ"
        index = found.index() if found.index is not None else None
        total = fitting = 0
        entities: list[dict[str, object]] = []
        if index is not None and not command.name and not wanted and not is_read:
            total, index = len(index), index[:MAX_ROWS]
            yield 1 + total // ROWS_IN_INDEX
        elif index is not None:
            yield 1 + len(index) // ROWS_IN_INDEX
            if command.name:
                index = [each for each in index if each[0] == command.name][:1]
        for row in found.rows() if index is None else rows_there(index):
            yield 1
            if command.name not in ("", row["name"]) or not self._fits(row, wanted):
                continue
            if is_read:
                return CommandResult(OK, "OK", dict(row) | self._overview.details(command.name))
            fitting += 1
            if len(entities) < MAX_ROWS:
                entities.append(self._with_options(row))
        if is_read:
            raise CommandRefused(NOT_FOUND, f"there is no {command.kind} {command.name[:256]!r}")
        total = max(total, fitting)
        return CommandResult(OK, f"{total} found", {"entities": entities, "total": total})

    def _fits(self, row: Row, wanted: Mapping[str, object]) -> bool:
        """Tell whether an entity has these attributes, a node's options among them."""
        if all(row.get(key) == value for key, value in wanted.items()):
            return True
        if any(key in row and row[key] != value for key, value in wanted.items()):
            return False
        there = self._with_options(row)
        return all(there.get(key) == value for key, value in wanted.items())

    def _with_options(self, row: Row) -> dict[str, object]:
        """Return a row with the options of its node (Q-11 to Q-22), if it is a node's."""
        if self._inventory is None or row.get("kind") not in _NODES:
            return dict(row)
        return self._inventory.options(str(row["name"])) | dict(row)

    # -- questions -----------------------------------------------------------------------------

    def _query(self, request: ManagementRequest) -> ManagementReply | Deferred[ManagementReply]:
        types = self._asked_types(request)
        if isinstance(types, ManagementReply):
            return types
        try:
            offset = whole(request.properties, "offset", 0)
            count = min(whole(request.properties, "count", MAX_ROWS), MAX_ROWS)
            wanted = attribute_names(request.body)
        except ValueError as error:
            return ManagementReply.of(BAD_REQUEST, str(error))
        given = request.properties.get(VIRTUAL_HOST)
        host = None if given is None else str(given)
        answer = partial(self._rows_asked_for, types, offset, count, host, wanted)
        order = types[0].kept_order if len(types) == 1 else None
        if order is None or order.prepare(None, offset + count, host):
            return answer()
        pause = self.pause_of(request.principal)
        preparing = prepare_names(pause, order, None, offset + count, host)
        return Deferred.fromCoroutine(preparing).addCallback(lambda _: answer())

    def _rows_asked_for(
        self,
        types: Sequence[EntityType],
        offset: int,
        count: int,
        host: str | None,
        wanted: Sequence[str],
    ) -> ManagementReply:
        """Return the reply of a QUERY."""
        page: Sequence[Row]
        if len(types) == 1:
            page, total = types[0].page(offset, count, host)
        else:
            rows = [row for each in types for row in each.in_host(host)]
            page, total = rows[offset : offset + count], len(rows)
        page = [self._with_options(row) for row in page]
        names = list(wanted or dict.fromkeys(name for row in page for name in row))
        body = {
            "attributeNames": names,
            "results": [[row.get(name) for name in names] for row in page],
        }
        return ManagementReply.of(OK, "OK", body, count=len(page), total=total)

    def _read(self, request: ManagementRequest) -> ManagementReply:
        types = self._asked_types(request)
        if isinstance(types, ManagementReply):
            return types
        name = request.properties.get("name", request.properties.get("identity"))
        if not isinstance(name, str) or not name:
            return ManagementReply.of(BAD_REQUEST, "READ needs the application property `name`")
        if request.entity_type in NODE_KINDS:
            name = self._broker.name_of(name)
        for each in types:
            row = each.find(name)
            if row is not None:
                is_node = each.name in NODE_KINDS
                details = self._overview.details(name) if is_node else {}
                return ManagementReply.of(OK, "OK", {**row, **details})
        kind = request.entity_type or "entity"
        return ManagementReply.of(NOT_FOUND, f"there is no {kind} named {name[:256]!r}")

    def _asked_types(self, request: ManagementRequest) -> tuple[EntityType, ...] | ManagementReply:
        name = request.entity_type
        if name is None:
            # Topics are also queues, and bindings also links: once is enough.
            is_repeated = {each.name for each in ENTITIES.values() if each.is_repeated}
            return tuple(each for each in self._types.values() if each.name not in is_repeated)
        found = self._types.get(name)
        if found is None:
            known = ", ".join(self._types)
            return ManagementReply.of(
                BAD_REQUEST, f"no entity type {name[:64]!r} here; there are {known}"
            )
        return (found,)

    def _get_types(self, request: ManagementRequest) -> ManagementReply:
        return ManagementReply.of(OK, "OK", {name: [] for name in self._types})

    def _get_operations(self, request: ManagementRequest) -> ManagementReply:
        is_fixed = self._inventory is None
        found = {
            name: ["QUERY", "READ"] if is_fixed else operations_of(name) for name in self._types
        }
        return ManagementReply.of(OK, "OK", found)

    def _get_attributes(self, request: ManagementRequest) -> ManagementReply:
        types = self._asked_types(request)
        if isinstance(types, ManagementReply):
            return types
        found: dict[str, list[str]] = {}
        for each in types:
            found[each.name] = list(dict.fromkeys(key for row in each.rows() for key in row))
        return ManagementReply.of(OK, "OK", found)


def _may_not(principal: Principal) -> ManagementReply:
    return ManagementReply.of(FORBIDDEN, f"{principal} may not manage {MANAGEMENT!r}")


def _with_field(reply: ManagementReply, request: ManagementRequest) -> ManagementReply:
    """Return the refusal of a request with the name of the parameter that is wrong, if known."""
    declared = OPERATIONS.get(request.operation)
    if reply.status != BAD_REQUEST or "field" in reply.body or declared is None:
        return reply
    parameters = parameters_of(declared, ENTITIES.get(request.entity_type or ""))
    field = named_in(reply.description, ["name", *(each.name for each in parameters)])
    return replace(reply, body={**reply.body, "field": field}) if field else reply


_NODES: Final = ("node", "topic")
_ORIGIN: Final = frozenset(("name", "type", "origin", "declared-at", "made-by", "made-at-ms"))
"""Attributes that tell an entity from another one of the same name."""

Function = Callable[[ManagementCommand, ChangeBatch], CommandResult]


def _functions(inventory: NodeChanges) -> dict[tuple[str, str], Function]:
    """Return the functions by operation and kind."""
    links, aliases, routes, exchanges = (
        BindingCommands(inventory),
        AliasCommands(inventory),
        RouteCommands(inventory),
        ExchangeCommands(inventory.broker),
    )
    return {
        ("CREATE", "node"): inventory.create_node,
        ("ASSERT", "node"): lambda command, _: inventory.assert_node(command),
        ("UPDATE", "node"): inventory.update_node,
        ("RENAME", "node"): inventory.rename_node,
        ("DELETE", "node"): inventory.delete_node,
        ("PURGE", "node"): inventory.purge_node,
        ("CREATE", "link"): links.create,
        ("ASSERT", "link"): lambda command, _: links.assert_as(command),
        ("UPDATE", "link"): links.update,
        ("RENAME", "link"): links.rename,
        ("DELETE", "link"): links.delete,
        ("CREATE", "alias"): aliases.create,
        ("ASSERT", "alias"): lambda command, _: aliases.assert_as(command),
        ("RENAME", "alias"): aliases.rename,
        ("DELETE", "alias"): aliases.delete,
        ("CREATE", "route"): routes.create,
        ("ASSERT", "route"): lambda command, _: routes.assert_as(command),
        ("DELETE", "route"): routes.delete,
        ("CREATE", "exchange"): exchanges.create,
        ("ASSERT", "exchange"): lambda command, _: exchanges.assert_as(command),
        ("DELETE", "exchange"): exchanges.delete,
        ("CREATE", "exchange-binding"): exchanges.bind,
        ("ASSERT", "exchange-binding"): lambda command, _: exchanges.assert_bound(command),
        ("DELETE", "exchange-binding"): exchanges.unbind,
        **_policy_functions(PolicyCommands(inventory, POLICY), POLICY),
        **_policy_functions(PolicyCommands(inventory, OPERATOR_POLICY), OPERATOR_POLICY),
    }


def _policy_functions(policies: PolicyCommands, kind: str) -> dict[tuple[str, str], Function]:
    return {
        ("CREATE", kind): policies.create,
        ("ASSERT", kind): lambda command, _: policies.assert_as(command),
        ("UPDATE", kind): policies.update,
        ("DELETE", kind): policies.delete,
    }


def _about_exchange(command: ManagementCommand) -> list[str]:
    """Return the names of a binding's ends, or of an exchange, for access rules."""
    target = str(command.arguments.get("target", ""))
    if command.kind == "exchange" or not target:
        return [_exchange_at(command.name)]
    is_exchange = command.arguments.get("target-type") == "exchange"
    return [_exchange_at(command.name), _exchange_at(target) if is_exchange else target]


def _exchange_at(name: str) -> str:
    """Return an exchange's name for access rules, by its name within the broker."""
    host, local = split_host(name)
    return in_host(host, exchange_node(local))


def _is_question(command: ManagementCommand) -> bool:
    return command.operation in ("QUERY", "READ")


def _answered(asking: Asking, most: int) -> tuple[CommandResult, int]:
    """Answer a question in one go; return the result and how much work it was.

    Raises:
        CommandRefused: it cannot be answered, or is too much work.
    """
    units = 0
    while True:
        try:
            units += next(asking)
        except StopIteration as end:
            return end.value, units
        if units > most:
            raise CommandRefused(
                FULL,
                "the questions among changes look at too many entities: name what you ask about, "
                "or ask in a message of its own",
            )
