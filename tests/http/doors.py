# SPDX-License-Identifier: Apache-2.0
"""A daemon in this process, and its two doors: messages to ``$management``, and HTTP in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from amqproute.auth.users import add_user
from amqproute.config import load
from amqproute.daemon.assembly import Application
from amqproute.http.http_channel import HttpChannel
from amqproute.http.http_messages import ClientFacts
from amqproute.journal.event import RunEvent
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.services.management_node import MANAGEMENT
from amqproute.values import Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec
from tests.http.rig import LOOPBACK, Answer, Wire, basic, encode, is_whole, read_answer
from tests.integration.support import new_directory

ROOT = Principal("user", "root")
RULES = [
    {
        "allow": ["manage", "publish", "browse", "consume", "create"],
        "who": "user:root",
        "node": "*",
    },
    {"allow": ["manage"], "who": "user:clerk", "node": "orders"},
    {"allow": ["manage"], "who": "user:viewer", "node": "$management"},
    {"allow": ["manage"], "who": "user:clerk", "node": "$management"},
    {"allow": ["publish"], "who": "user:maker", "node": "*"},
    {"allow": ["publish"], "who": "*", "node": "answers"},
]
USERS = ("root", "clerk", "viewer", "maker")


@dataclass(frozen=True)
class Said:
    """The answer of a door: the status, the words and the attributes."""

    status: int
    words: str
    attributes: Mapping[str, Any]


class Taker:
    """A consumer that keeps what it is handed."""

    takes_ahead = False

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.waiting: Deferred[None] | None = None

    def capacity(self) -> int:
        """Return how much it takes."""
        return 1000

    def deliver(self, entries: Any) -> None:
        """Take entries."""
        self.entries += entries
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            waiting.callback(None)

    def holds(self) -> list[Any]:
        """Return what it has not settled, which nobody asks it for."""
        return []

    def exhausted(self) -> None:
        """See `IConsumer`."""


class DoorsCase(TestCase):
    """A daemon with the nodes ``orders``, ``other``, ``answers`` and the topic ``news``."""

    further: Mapping[str, Any] = {}
    listening: Mapping[str, Any] = {}

    async def setUp(self) -> None:
        self.directory = new_directory()
        users = self.directory / "users.yaml"
        for name in USERS:
            add_user(users, name, "secret", iterations=4096)
        settings = {
            "domains": ["alpha.example"],
            "state-directory": str(self.directory / "state"),
            "listen": [
                {
                    "endpoint": f"unix:{self.directory}/s",
                    "mechanisms": ["EXTERNAL"],
                    **self.listening,
                }
            ],
            "users": {"file": str(users)},
            "access": RULES,
            "nodes": [
                {"name": "orders"},
                {"name": "other"},
                {"name": "answers"},
                {"name": "news", "type": "topic"},
            ],
            "routes": [{"domain": "beta.example", "via": "amqps://127.0.0.1:9"}],
            "management": {"requests-per-second": 100000},
            **self.further,
        }
        self.file = self.directory / "amqproute.yaml"
        self.file.write_text(json.dumps(settings))
        made: Any = reactor
        self.app = Application(load(self.file), made)
        await self.app.start()
        self.addCleanup(self.app.stop)
        self.taker = Taker()
        self.app.broker.nodes["answers"].attach(self.taker)  # type: ignore[arg-type]

    @property
    def management(self) -> Any:
        """The management node."""
        return self.app.broker.services[MANAGEMENT]

    def turn(self) -> Deferred[None]:
        """Let the reactor turn."""
        made: Any = reactor
        return deferLater(made, 0)

    # -- the doors -------------------------------------------------------------------------------

    async def by_amqp(
        self,
        operation: str,
        body: Mapping[str, object] | None = None,
        *,
        who: Principal = ROOT,
        **properties: object,
    ) -> Said:
        """Send a request as a message; return the reply."""
        named = {key.replace("_", "-"): value for key, value in properties.items()}
        message = Message(
            codec.encode(spec.Properties(message_id="m", reply_to="answers"))
            + sections.encode_section(
                spec.SECTION_APPLICATION_PROPERTIES, {"operation": operation, **named}
            )
            + sections.encode_section(spec.SECTION_AMQP_VALUE, dict(body or {}))
        )
        self.taker.entries.clear()
        self.taker.waiting = Deferred()
        batch = self.app.broker.begin()
        self.management.put(message, batch, Origin(who))
        await batch.commit()
        if self.taker.waiting is not None:
            await self.taker.waiting
        (entry,) = self.taker.entries
        reply = entry.message
        offsets = reply.offsets
        value = sections.decode_section(reply.encoded, offsets.body_start, offsets.body_end)
        said = reply.application_properties
        return Said(int(said["statusCode"]), str(said["statusDescription"]), plain(value))

    def connect(self, client: ClientFacts = LOOPBACK) -> tuple[HttpChannel, Wire]:
        """Connect by HTTP; return the connection, and what is written to it."""
        wire = Wire()
        made: Any = reactor
        web = self.app.web
        channel = HttpChannel(web.site, made, web.bounds[1], lambda _: None, lambda _: client)
        channel.makeConnection(wire)  # type: ignore[no-untyped-call]
        return channel, wire

    def send_by_http(
        self,
        method: str,
        target: str,
        body: object = b"",
        *,
        who: str = "root",
        headers: Mapping[str, str] | None = None,
        client: ClientFacts = LOOPBACK,
    ) -> tuple[HttpChannel, Wire]:
        """Send a request by HTTP; return the connection, and what is written to it."""
        login = {"Authorization": basic(who, "secret")} if who else {}
        channel, wire = self.connect(client)
        channel.dataReceived(encode(method, target, {**login, **(headers or {})}, body))
        return channel, wire

    async def by_http(
        self,
        method: str,
        target: str,
        body: object = b"",
        *,
        who: str = "root",
        headers: Mapping[str, str] | None = None,
        client: ClientFacts = LOOPBACK,
    ) -> Answer:
        """Send a request by HTTP; return the answer."""
        channel, wire = self.send_by_http(
            method, target, body, who=who, headers=headers, client=client
        )
        while not is_whole(method, wire.value()):
            await self.turn()
        answer = read_answer(wire.value())
        channel.connectionLost()
        return answer


def deeds(noted: Sequence[object]) -> list[dict[str, Any]]:
    """Return what events record of requests that change something."""
    return [
        dict(event._shared)
        for event in noted
        if isinstance(event, RunEvent) and event._kind is RecordKind.OPERATOR
    ]


def plain(value: Any) -> Any:
    """Return a value without the types of AMQP."""
    return json.loads(json.dumps(value, default=str))


def said_by(answer: Answer) -> Said:
    """Return what an answer of HTTP says, in the words of the other door."""
    found = answer.json()
    if answer.status >= 400:
        attributes = dict(found.get("attributes", {}))
        if "field" in found:
            attributes["field"] = found["field"]
        return Said(answer.status, found["detail"], attributes)
    if isinstance(found, dict) and set(found) == {"description", "attributes"}:
        return Said(answer.status, found["description"], found["attributes"])
    return Said(answer.status, "", found)
