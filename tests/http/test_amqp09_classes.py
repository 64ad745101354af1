# SPDX-License-Identifier: Apache-2.0
"""Management and journal of a daemon, for messages of the classes that only AMQP 0-9 has.

A client of 0-9 publishes by each class in turn, over frames made from the facts of the document.
What operators see of these messages, and do to them, is the same as for class basic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet import reactor

from amqproute.net.pump import EngineProtocol
from tests.conformance.frame_broker import End
from tests.frontends.amqp09.class_publishes import CLASSES, PUBLISHES, SHOWN
from tests.http.doors import DoorsCase
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, call

ABROAD = "orders@beta.example"
HOP = "127.0.0.1:9"
"""Where the route to that organization leads, and nobody listens."""
CHANGING = (
    "id",
    "arrived-ms",
    "age-ms",
    "expires-ms",
    "bytes",
    "durable",
    "priority",
    "content-class",
    "protocol",
)
"""Facts of a row in which messages differ; `durable` and `priority` as their class has them."""


class DaemonClient(Client09):
    """A client of a daemon in this process, whose reactor is the real one."""

    def __init__(self, case: DoorsCase, version: bytes) -> None:
        listener: Any = case.app.listeners[0]
        made: Any = reactor
        self.case = case
        self.end = End(EngineProtocol(listener._make, made))
        self.methods = []
        self.contents = []
        self._buffer = b""
        self._open = {}
        self.end.protocol.makeConnection(self.end)
        case.addCleanup(self.end.gone)  # the daemon's stop waits for its connections
        self.write(version)

    def run(self, seconds: float = 0.0) -> DaemonClient:
        """Read what has come; the reactor turns between the calls of a test."""
        self._read()
        return self

    async def until(self, name: str) -> dict[str, Any]:
        """Wait for a method; return its arguments."""
        while True:
            self.run()
            for place, (_, found, arguments) in enumerate(self.methods):
                if found in ("channel.close", "connection.close") and found != name:
                    raise AssertionError(arguments)
                if found == name:
                    del self.methods[: place + 1]
                    return arguments
            await self.case.turn()

    async def opened(self, user: str) -> DaemonClient:
        """Log in and open channel 1."""
        await self.until("connection.start")
        secret = f"\0{user}\0secret".encode()
        self.write(
            call(0, "connection.start-ok", mechanism="PLAIN", response=secret, locale="en_US")
        )
        await self.until("connection.tune")
        self.write(
            call(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0),
            call(0, "connection.open", virtual_host="/"),
            call(1, "channel.open"),
        )
        await self.until("channel.open-ok")
        return self


class ClassesCase(DoorsCase):
    """A daemon with dead letters, and a client of 0-9."""

    listening = {"mechanisms": ["PLAIN"], "plain-without-tls": True}
    further = {
        "nodes": [
            {"name": "orders", "dead-letter": "dead"},
            {"name": "other"},
            {"name": "answers"},
            {"name": "dead"},
        ],
    }

    async def setUp(self) -> None:
        await super().setUp()
        self.client = await DaemonClient(self, V09).opened("root")

    async def publish(self, kind: str, key: str, client: DaemonClient | None = None) -> None:
        """Publish a body that names its class, and wait until it has its place."""
        client = client or self.client
        for step in PUBLISHES[kind](key, kind.encode()):
            client.write(step)
            if step[7:11] == b"\0\x46\0\x28":
                await client.until("file.open-ok")
        client.write(call(1, "basic.qos"))  # is answered behind the publish
        await client.until("basic.qos-ok")

    async def publish_all(self, key: str) -> None:
        """Publish by each class, in their order."""
        for kind in CLASSES:
            await self.publish(kind, key)
        where = f"to={ABROAD.partition('@')[2]}" if "@" in key else f"name={key}"
        while len(await self.rows(where)) < len(CLASSES):
            await self.turn()

    async def get(self, target: str) -> Any:
        """Return what an answer of HTTP contains."""
        answer = await self.by_http("GET", f"/api/v1/{target}")
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    async def do(self, path: str, /, **body: Any) -> Any:
        """Carry out an operation."""
        answer = await self.by_http("POST", f"/api/v1/{path}", body)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    async def rows(self, query: str) -> list[dict[str, Any]]:
        """List messages."""
        found: list[dict[str, Any]] = (await self.get(f"messages?{query}"))["messages"]
        return found

    async def records(self, node: str, kinds: Iterable[str], count: int) -> list[dict[str, Any]]:
        """Return the records of some kinds about a node, when there are so many."""
        while True:
            answer = await self.get(f"journal?count=1000&node={node}")
            found = [each for each in answer["records"] if each["kind"] in kinds]
            if len(found) >= count:
                return found
            await self.turn()

    def depth(self, node: str) -> int:
        """Return the number of messages on a node."""
        return int(self.app.broker.nodes[node].depth)

    def assertAlike(self, rows: list[dict[str, Any]]) -> None:
        """One row for each class: the same but for what a message has of its own."""
        self.assertEqual(len(rows), len(CLASSES), rows)
        for kind, row in zip(CLASSES, rows, strict=True):
            self.assertEqual(row.get("content-class"), SHOWN.get(kind), row)
            protocol = "AMQP 0-9" if kind in SHOWN else "AMQP 0-9-1"
            self.assertEqual(row["protocol"], protocol)
        plain = [
            {name: value for name, value in row.items() if name not in CHANGING} for row in rows
        ]
        for each in plain[1:]:
            self.assertEqual(each, plain[0])


class LocalTests(ClassesCase):
    """Messages on a queue of this broker."""

    async def test_why(self) -> None:
        """Lists and WHY have the same facts for each, and name protocol and class."""
        await self.publish_all("orders")
        rows = await self.rows("name=orders")
        self.assertAlike(rows)
        told = [await self.get(f"messages/{row['id']}/why") for row in rows]
        self.assertAlike(told)
        self.assertEqual({each["cause"] for each in told}, {"no-consumer"})
        self.assertEqual({each["routing-key"] for each in told}, {"orders"})

    async def test_explain(self) -> None:
        """EXPLAIN counts all of them where they wait."""
        await self.publish_all("orders")
        self.assertEqual((await self.get("explain/orders"))["way"], "local")
        await self.publish_all(ABROAD)
        peer = (await self.get(f"explain/{ABROAD}"))["peer"]
        self.assertEqual(peer["waiting"], len(CLASSES))

    async def test_journal(self) -> None:
        """Each has records of its arrival and its end, with protocol, class, sender and link."""
        await self.publish_all("orders")
        came = await self.records("orders", ("received",), len(CLASSES))
        self.assertEqual([each.get("content_class") for each in came], [*map(SHOWN.get, CLASSES)])
        for name, value in (
            ("protocol", "AMQP 0-9"),
            ("sender", "user:root"),
            ("link", "channel 1"),
            ("origin", "alpha.example"),
        ):
            self.assertEqual({each[name] for each in came}, {value})
        fields = {frozenset(each) - {"content_class", "expires"} for each in came}
        self.assertEqual(len(fields), 1, fields)
        reader = await DaemonClient(self, V091).opened("root")
        reader.write(call(1, "basic.consume", queue="orders", no_ack=1))
        ended = await self.records("orders", ("delivered",), len(CLASSES))
        self.assertEqual([each["entry"] for each in ended], [each["entry"] for each in came])
        self.assertEqual({each["protocol"] for each in ended}, {"AMQP 0-9-1"})
        bodies = sorted(body for *_, body in reader.run().contents)
        self.assertEqual(bodies, sorted(kind.encode() for kind in CLASSES))

    async def test_moved(self) -> None:
        """MOVE and COPY take each, with its class; PURGE ends them."""
        await self.publish_all("orders")
        await self.do("queues/orders/copy", target="other")
        self.assertAlike(await self.rows("name=other"))
        await self.do("queues/other/purge")
        await self.do("queues/orders/move", target="other")
        self.assertEqual(self.depth("orders"), 0)
        self.assertAlike(await self.rows("name=other"))
        moved = await self.records("other", ("routed",), 2 * len(CLASSES))
        shown = [each.get("content_class") for each in moved]
        self.assertEqual(shown, 2 * [*map(SHOWN.get, CLASSES)])
        await self.do("queues/other/purge")
        self.assertEqual(self.depth("other"), 0)

    async def test_dead_letters(self) -> None:
        """A rejected one is a dead letter, recorded as such, and REQUEUE sends it back."""
        await self.publish_all("orders")
        reader = await DaemonClient(self, V091).opened("root")
        reader.write(call(1, "basic.consume", queue="orders", consumer_tag="c"))
        while len(reader.contents) < len(CLASSES):
            await self.turn()
            reader.run()
        for tag in reader.tags():
            reader.write(call(1, "basic.reject", delivery_tag=tag))
        ended = await self.records("orders", ("dead-lettered",), len(CLASSES))
        self.assertEqual(len(ended), len(CLASSES))
        self.assertAlike(await self.rows("name=dead"))
        reader.write(call(1, "basic.cancel", consumer_tag="c"))
        await reader.until("basic.cancel-ok")
        await self.do("queues/dead/requeue")
        while self.depth("orders") < len(CLASSES):
            await self.turn()
        self.assertAlike(await self.rows("name=orders"))
        self.assertEqual(self.depth("dead"), 0)

    async def test_rights(self) -> None:
        """Who may not publish there is refused by each class, and the journal has it."""
        for kind in CLASSES:
            client = await DaemonClient(self, V09).opened("viewer")
            for step in PUBLISHES[kind]("orders", b"x"):
                client.write(step)
                if step[7:11] == b"\0\x46\0\x28":
                    await client.until("file.open-ok")
            self.assertEqual((await client.until("channel.close"))["reply-code"], 403, kind)
        self.assertEqual(self.depth("orders"), 0)


class AbroadTests(ClassesCase):
    """Messages on their way to another organization, which cannot be reached."""

    async def test_why(self) -> None:
        """The cause is the same for each."""
        await self.publish_all(ABROAD)
        rows = await self.rows("to=beta.example")
        self.assertAlike(rows)
        told = [await self.get(f"messages/{row['id']}/why") for row in rows]
        self.assertEqual(len({each["cause"] for each in told}), 1)
        self.assertEqual({each["peer"] for each in told}, {HOP})
        self.assertEqual([each.get("content-class") for each in told], [*map(SHOWN.get, CLASSES)])
        spooled = await self.records(f"amqp$out/{HOP}", ("received", "spooled"), len(CLASSES))
        shown = [each.get("content_class") for each in spooled]
        self.assertEqual(shown, [*map(SHOWN.get, CLASSES)])

    async def test_verbs(self) -> None:
        """Each is held, released, expired and deleted by its number."""
        await self.publish_all(ABROAD)
        rows = await self.rows("to=beta.example")
        for kind, row in zip(CLASSES, rows, strict=True):
            number = row["id"]
            hold = await self.do("messages/hold", ids=[number], reason="audit")
            (held,) = [each for each in await self.rows("to=beta.example") if each["id"] == number]
            self.assertEqual(held["state"], "held", kind)
            self.assertEqual((await self.get(f"messages/{number}/why"))["cause"], "held", kind)
            await self.do(f"holds/{hold['attributes']['name']}/release")
            await self.do("messages/delete", ids=[number])
            left = [each["id"] for each in await self.rows("to=beta.example")]
            self.assertNotIn(number, left, kind)
        self.assertEqual(await self.rows("to=beta.example"), [])
