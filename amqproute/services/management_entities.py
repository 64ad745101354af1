# SPDX-License-Identifier: Apache-2.0
"""The entity types of management: their attributes, and the options that make and change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from amqproute.services.node_option_declarations import NODE_OPTIONS
from amqproute.services.value_declaration import ValueDeclaration, ValueType, attributes_of

__all__ = ["ENTITIES", "EntityDeclaration"]

_T = ValueType
LONGEST_NAME: Final = 1024
"""Characters of a name in a request."""


@dataclass(frozen=True, slots=True)
class EntityDeclaration:
    """One entity type.

    Attributes:
        name: the value of ``entityType``.
        shows: description for the page, a noun phrase.
        plural: the part of its path in the HTTP API.
        attributes: the attributes of its rows; there may be others, where `is_open`.
        options: that a CREATE takes.
        changeable: names of the options that an UPDATE takes.
        delete_options: that a DELETE takes.
        is_repeated: whether its entities are also entities of another type: then a query without a
            type omits them.
        is_open: whether rows may have other attributes than the declared ones.
    """

    name: str
    shows: str
    plural: str
    attributes: Sequence[ValueDeclaration]
    options: Sequence[ValueDeclaration] = ()
    changeable: Sequence[str] = ()
    delete_options: Sequence[ValueDeclaration] = ()
    is_repeated: bool = False
    is_open: bool = False


_IF_EMPTY: Final = ValueDeclaration("if-empty", _T.BOOLEAN, "refuse while there are messages on it")
_IF_UNUSED: Final = ValueDeclaration(
    "if-unused", _T.BOOLEAN, "refuse while links are attached to it"
)
_IF_UNBOUND: Final = ValueDeclaration("if-unused", _T.BOOLEAN, "refuse while it has bindings")
_ARGUMENTS: Final = ValueDeclaration(
    "arguments", _T.TEXT, "arguments of AMQP 0-9-1, a JSON object in a text", longest=65536
)
_NODE_OPTIONS: Final = (
    *NODE_OPTIONS,
    _ARGUMENTS,
    ValueDeclaration("auto-delete", _T.BOOLEAN, "deleted after its last consumer, as in 0-9-1"),
    ValueDeclaration("prioritized", _T.BOOLEAN, "messages leave by priority, as in 0-9"),
)
_LINK_OPTIONS: Final = (
    ValueDeclaration("source", _T.TEXT, "the node it takes from", True, longest=LONGEST_NAME),
    ValueDeclaration("target", _T.TEXT, "the node or address it puts to", True, longest=2048),
    ValueDeclaration("filter", _T.TEXT, "a selector", is_nullable=True, longest=65536),
    ValueDeclaration(
        "filter-type", _T.TEXT, "of the selector", is_nullable=True, choices=("SQL-92",)
    ),
    ValueDeclaration("subject", _T.TEXT, "a pattern of subjects", is_nullable=True, longest=4096),
    ValueDeclaration(
        "mode", _T.TEXT, "copy from a topic, move from a queue", is_nullable=True,
        choices=("copy", "move"),
    ),
    ValueDeclaration("temporary", _T.BOOLEAN, "always false", is_nullable=True),
    ValueDeclaration(
        "first-message-date", _T.NUMBER, "older messages are not taken; ms since the epoch",
        is_nullable=True, least=0,
    ),
)  # fmt: skip
_BOUND: Final = (
    ValueDeclaration("target", _T.TEXT, "a queue or exchange", True, longest=LONGEST_NAME),
    ValueDeclaration("target-type", _T.TEXT, "what the target is", choices=("queue", "exchange")),
    ValueDeclaration("key", _T.TEXT, "the routing key or pattern", longest=255),
    replace(_ARGUMENTS, does=f'{_ARGUMENTS.does}, as in {{"x-match": "all"}}'),
)
_POLICY_OPTIONS: Final = (
    ValueDeclaration("pattern", _T.TEXT, "a regular expression of names", True, longest=4096),
    ValueDeclaration("definition", _T.TEXT, "a JSON object in a text", True, longest=65536),
    ValueDeclaration(
        "apply-to", _T.TEXT, "the objects it applies to",
        choices=("all", "queues", "classic_queues", "quorum_queues", "exchanges"),
    ),
    ValueDeclaration("priority", _T.NUMBER, "of several that fit a name the highest applies"),
)  # fmt: skip
_POLICY_ATTRIBUTES: Final = attributes_of(
    "name text, type text, virtual-host text, pattern text, apply-to text, priority number, "
    "definition text, origin text, declared-at text?, made-by text?, made-at-ms number?"
)
_QUEUE_ATTRIBUTES: Final = (
    "name text, type text, kind text, virtual-host text?, depth number, available number, "
    "acquired number, deferred number, consumers number, resident number, bytes number, "
    "oldest-age-ms number?, enqueued number, dequeued number, released number, rejected number, "
    "expired number, dead-lettered number, loaded number, stream-lost number?"
)
_TOPIC_ATTRIBUTES: Final = (
    "name text, type text, kind text, virtual-host text?, depth number, available number, "
    "acquired number, deferred number, consumers number, resident number, bytes number, "
    "oldest-age-ms number?, enqueued number, dequeued number, expired number, dropped number, "
    "unroutable number, subscriptions number, durable-subscriptions number, origin text?"
)

ENTITIES: Final = {
    each.name: each
    for each in (
        EntityDeclaration(
            "queue", "queues and topics, including relay queues", "queues",
            attributes_of(_QUEUE_ATTRIBUTES), _NODE_OPTIONS,
            delete_options=(_IF_EMPTY, _IF_UNUSED), is_open=True,
        ),
        EntityDeclaration(
            "topic", "topics", "topics", attributes_of(_TOPIC_ATTRIBUTES), _NODE_OPTIONS,
            delete_options=(_IF_EMPTY, _IF_UNUSED), is_repeated=True, is_open=True,
        ),
        EntityDeclaration(
            "relay-queue", "relay queues, with the state of their next hop", "relay-queues",
            attributes_of(_QUEUE_ATTRIBUTES), is_open=True,
        ),
        EntityDeclaration(
            "binding", "bindings between nodes", "bindings",
            attributes_of(
                "name text, type text, virtual-host text, source text, target text, filter text?, "
                "subject text?, mode text, moved number, refused number, reason text, origin text?"
            ),
            is_repeated=True, is_open=True,
        ),
        EntityDeclaration(
            "link", "links of clients and peers, and bindings", "links",
            attributes_of("name text, type text, kind text, virtual-host text?"),
            _LINK_OPTIONS, changeable=("filter", "filter-type", "subject"),
            delete_options=(
                ValueDeclaration(
                    "connection", _T.TEXT, "only those on this connection", longest=LONGEST_NAME,
                ),
            ),
            is_open=True,
        ),
        EntityDeclaration(
            "exchange", "exchanges, including predeclared ones", "exchanges",
            attributes_of(
                "name text, type text, virtual-host text, exchange-type text, durable boolean, "
                "auto-delete boolean, internal boolean, alternate-exchange text?, arguments text, "
                "bindings number, predeclared boolean, made-by text?"
            ),
            (
                ValueDeclaration(
                    "type", _T.TEXT, "how it routes", True,
                    choices=("direct", "fanout", "topic", "headers"),
                ),
                ValueDeclaration("durable", _T.BOOLEAN, "kept over a restart"),
                ValueDeclaration("auto-delete", _T.BOOLEAN, "deleted with its last binding"),
                ValueDeclaration(
                    "internal", _T.BOOLEAN, "only other exchanges may publish to it"
                ),
                ValueDeclaration(
                    "alternate-exchange", _T.TEXT, "gets messages that match no binding",
                    longest=LONGEST_NAME,
                ),
                _ARGUMENTS,
            ),
            delete_options=(_IF_UNBOUND,), is_open=True,
        ),
        EntityDeclaration(
            "exchange-binding", "bindings from exchanges", "exchange-bindings",
            attributes_of(
                "name text, type text, virtual-host text, source text, target text, "
                "target-type text, key text, arguments text, durable boolean"
            ),
            _BOUND, delete_options=_BOUND,
            is_repeated=True,
        ),
        EntityDeclaration(
            "alias", "alternative names of nodes", "aliases",
            attributes_of("name text, type text, virtual-host text, target text, origin text?"),
            (ValueDeclaration("target", _T.TEXT, "the node", True, longest=LONGEST_NAME),),
            is_open=True,
        ),
        EntityDeclaration(
            "route", "routes to domains, from the file and made at runtime", "routes",
            attributes_of(
                "name text, type text, via text?, target text?, names texts, origin text, "
                "declared-at text?, made-by text?, made-at-ms number?"
            ),
            (
                ValueDeclaration("via", _T.TEXT, "a URL, or dns", is_nullable=True, longest=2048),
                ValueDeclaration(
                    "target", _T.TEXT, "the node at the other end", is_nullable=True,
                    longest=LONGEST_NAME,
                ),
                ValueDeclaration("names", _T.TEXTS, "that its certificate may prove", longest=100),
            ),
        ),
        EntityDeclaration(
            "policy", "policies for exchanges and queues", "policies", _POLICY_ATTRIBUTES,
            _POLICY_OPTIONS,
            changeable=("pattern", "definition", "apply-to", "priority", "or-create"),
        ),
        EntityDeclaration(
            "operator-policy", "policies that limit arguments and other policies of queues",
            "operator-policies", _POLICY_ATTRIBUTES, _POLICY_OPTIONS,
            changeable=("pattern", "definition", "apply-to", "priority", "or-create"),
        ),
        EntityDeclaration(
            "shape", "ages of waiting messages, by queue", "shapes",
            attributes_of(
                "name text, type text, kind text, virtual-host text?, total number, ages numbers, "
                "ages-minutes numbers, on-disk number, in-flight number"
            ),
            is_repeated=True,
        ),
        EntityDeclaration(
            "connection", "connections of clients and peers", "connections",
            attributes_of(
                "name text, principal text, container text, tls text, protocol text, "
                "since-ms number, age-ms number"
            ),
            is_open=True,
        ),
        EntityDeclaration(
            "virtual-host", "virtual hosts, including `/`", "virtual-hosts",
            attributes_of(
                "name text, type text, virtual-host text, configured boolean, domains texts, "
                "nodes number, max-nodes number?, exchanges number, connections number, "
                "max-connections number?, messages number, bytes number"
            ),
        ),
        EntityDeclaration(
            "transaction", "open local transactions of clients", "transactions",
            attributes_of(
                "name text, type text, state text, reason text, connection text, principal text, "
                "virtual-host text, protocol text, postings number, outcomes number, "
                "waiting number, bytes number, nodes texts, idle-ms number, timeout-ms number"
            ),
        ),
        EntityDeclaration(
            "hold", "holds of outgoing messages", "holds",
            attributes_of(
                "name text, type text, reason text, by text, since-ms number, until-ms number?, "
                "to text, where text, ids numbers"
            ),
        ),
        EntityDeclaration(
            "peer", "next hops and their state", "peers",
            attributes_of(
                "name text, type text, waiting number, bytes number, oldest-arrival-ms number?, "
                "holds texts"
            ),
            is_open=True,
        ),
        EntityDeclaration(
            "clock", "the clock by which messages age", "clocks",
            attributes_of(
                "name text, type text, state text, jump-ms number, now text, wall text, reason text"
            ),
        ),
        EntityDeclaration(
            "certificate", "the certificate of this broker", "certificates",
            attributes_of(
                "name text, type text, state text, code text, begins text, ends text, "
                "closed texts, reason text"
            ),
        ),
        EntityDeclaration(
            "contract", "the contract of each user and peer, and its use", "contracts",
            attributes_of(
                "name text, type text, state text, limiter text, connections number, links number, "
                "credit number, under-way number, messages number, octets number, spool number, "
                "spool-messages number, refused map, at-bound-seconds map"
            ),
            is_open=True,
        ),
        EntityDeclaration(
            "probe", "recently refused connections, and probes of peers", "probes",
            attributes_of("name text"), is_open=True,
        ),
        EntityDeclaration(
            "journal", "the audit journal", "journals",
            attributes_of("name text, type text, state text, fault text, directory text"),
            is_open=True,
        ),
        EntityDeclaration(
            "listener", "listeners and their free places", "listeners",
            attributes_of("name text, connections number, max-connections number, refused number"),
            is_open=True,
        ),
        EntityDeclaration(
            "decision", "recent decisions about domains", "decisions",
            attributes_of("name text, type text"), is_open=True,
        ),
        EntityDeclaration(
            "watermark", "limits that stop publishers, and how near they are", "watermarks",
            attributes_of(
                "name text, type text, state text, level number?, limit number?, opens-at number?, "
                "reason text"
            ),
            is_open=True,
        ),
        EntityDeclaration(
            "branch", "branches of distributed transactions, if enabled", "branches",
            attributes_of(
                "name text, type text, owner text, xid text, state text, command text?, "
                "operations number, age-ms number, nodes texts"
            ),
            is_open=True,
        ),
        EntityDeclaration(
            "user", "users who can log in with a password", "users",
            attributes_of("name text, type text, principal text"),
        ),
        EntityDeclaration(
            "access-rule", "access rules, the first that fits decides", "access-rules",
            attributes_of(
                "name text, type text, who text, node text, allow texts, deny texts, note text"
            ),
        ),
        EntityDeclaration(
            "token", "access tokens of the HTTP API, without their secrets", "tokens",
            attributes_of(
                "name text, type text, purpose text, principal text, scope texts, state text, "
                "created-ms number, expires-ms number, by text, used-ms number?"
            ),
        ),
    )
}  # fmt: skip
"""The entity types by name, in the order of ``GET-TYPES``."""
