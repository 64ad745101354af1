# SPDX-License-Identifier: Apache-2.0
"""Publishing, browsing, explaining and following the journal over HTTP."""

from __future__ import annotations

import json
import re
from typing import Any

from twisted.internet import reactor

from amqproute.services.message_bodies import LONGEST_BODY
from tests.http.doors import DoorsCase

PUBLISH = "/api/v1/messages/publish"


class PublishTests(DoorsCase):
    """Messages that come and are looked at by HTTP."""

    async def publish(self, who: str = "root", **body: Any) -> Any:
        """Publish a message."""
        return await self.by_http("POST", PUBLISH, body, who=who)

    async def listed(self, query: str = "") -> list[Any]:
        """Return the messages on ``orders``, with bodies."""
        answer = await self.by_http("GET", f"/api/v1/messages?name=orders&with-body=true{query}")
        self.assertEqual(answer.status, 200, answer.body)
        found: list[Any] = answer.json()["messages"]
        return found

    async def test_publish_and_browse(self) -> None:
        """A published message is listed as it was written, and stays where it is."""
        for body in (
            {"body": "grüße", "content-type": "text/plain", "subject": "hello"},
            {"body": "//8=", "encoding": "base64"},
            {"body": "plain", "encoding": "value", "message-id": "m7"},
            {"application-properties": {"n": 7, "is": True, "t": "x"}},
        ):
            answer = await self.publish(to="orders", **body)
            self.assertEqual(answer.status, 200, answer.body)
        rows = await self.listed()
        self.assertEqual(
            [(row["body"], row["body-encoding"]) for row in rows],
            [("grüße", "text"), ("//8=", "base64"), ('"plain"', "value"), ("", "text")],
        )
        self.assertEqual((rows[0]["subject"], rows[0]["content-type"]), ("hello", "text/plain"))
        self.assertEqual(rows[2]["message-id"], "m7")
        self.assertEqual(rows[3]["application-properties"], {"n": 7, "is": True, "t": "x"})
        self.assertEqual(self.app.broker.nodes["orders"].depth, 4)

    async def test_to_another_organization(self) -> None:
        """A message for a domain waits on its relay queue."""
        answer = await self.publish(to="orders@beta.example", body="x")
        self.assertEqual(answer.status, 200, answer.body)
        found = await self.by_http("GET", "/api/v1/messages?to=beta.example")
        self.assertEqual([row["to"] for row in found.json()["messages"]], ["orders@beta.example"])
        explained = (await self.by_http("GET", "/api/v1/explain/orders@beta.example")).json()
        self.assertEqual((explained["way"], explained["peer"]["waiting"]), ("relay", 1))

    async def test_large_bodies_are_cut(self) -> None:
        """A list never has more than its bound, however large the bodies are."""
        for _ in range(20):
            await self.publish(to="orders", body="a" * (LONGEST_BODY + 1))
        rows = await self.listed()
        self.assertEqual({len(row["body"]) for row in rows if row["body"]}, {LONGEST_BODY})
        self.assertEqual([row["body"] for row in rows[16:]], [None] * 4)
        self.assertTrue(all(row["body-is-cut"] for row in rows))

    async def test_refused(self) -> None:
        """Without the right, without a node, without space, or with a body that is none."""
        self.app.broker.nodes["other"].limits  # noqa: B018 - it is there
        for who, body, status, field in (
            ("viewer", {"to": "orders"}, 403, None),
            ("root", {"to": "nowhere"}, 404, None),
            ("root", {"to": ""}, 400, "to"),
            ("root", {}, 400, "to"),
            ("root", {"to": "orders", "body": "!", "encoding": "base64"}, 400, "body"),
            ("root", {"to": "orders", "priority": 256}, 400, "priority"),
            ("root", {"to": "orders", "application-properties": {"a": [1]}}, 400, "body"),
            ("root", {"to": "$management"}, 409, None),
        ):
            answer = await self.publish(who, **body)
            self.assertEqual(answer.status, status, (body, answer.body))
            if field:
                self.assertEqual(answer.json()["field"], field, body)
        self.assertEqual(self.app.broker.nodes["orders"].depth, 0)

    async def test_the_gate(self) -> None:
        """While the broker takes nothing, nothing is taken."""
        self.app.broker.gate.close("test", "full")
        answer = await self.publish(to="orders", body="x")
        self.assertEqual(answer.status, 507)
        self.assertIn("full", answer.json()["detail"])

    async def test_explain_here(self) -> None:
        """A node here, and one that is not."""
        found = (await self.by_http("GET", "/api/v1/explain/orders")).json()
        self.assertEqual((found["way"], found["kind"]), ("local", "queue"))
        found = (await self.by_http("GET", "/api/v1/explain/nowhere@alpha.example")).json()
        self.assertEqual((found["way"], found["kind"]), ("local", None))


class TailTests(DoorsCase):
    """The audit journal."""

    async def test_snapshot(self) -> None:
        """The last records, of those that are wanted."""
        await self.by_http("POST", PUBLISH, {"to": "orders", "body": "x"})
        for _ in range(200):
            answer = await self.by_http("GET", "/api/v1/journal?count=1000&node=orders")
            self.assertEqual(answer.status, 200, answer.body)
            records = answer.json()["records"]
            if records:
                break
        self.assertEqual({each["node"] for each in records}, {"orders"})

    async def test_stream(self) -> None:
        """New records come as events, of those that are wanted; the end stops the reader."""
        web = self.app.web
        channel, wire = self.send_by_http("GET", "/api/v1/journal/tail?node=orders")
        while b"text/event-stream" not in wire.value():
            await self.turn()
        while b"event: record" not in wire.value():
            await self.by_http("POST", PUBLISH, {"to": "orders", "body": "x"})
            await self.by_http("POST", PUBLISH, {"to": "other", "body": "x"})
        line = next(each for each in wire.value().split(b"\n") if each.startswith(b"data: "))
        self.assertEqual(json.loads(line[6:])["node"], "orders")
        self.assertNotIn(b'"node": "other"', wire.value())
        self.assertEqual(web.site.streams, 1)
        channel.connectionLost()
        self.assertEqual(web.site.streams, 0)

    async def test_stop(self) -> None:
        """A stream that is open ends with the service, and so does the thread that feeds it."""
        made: Any = reactor
        web = self.app.web
        channel, _ = self.send_by_http("GET", "/api/v1/journal/tail")
        self.addCleanup(channel.connectionLost)
        while not web.site.streams:
            await self.turn()
        await web.stop()
        self.assertEqual(web.site.streams, 0)
        channel.connectionLost()
        while made.getThreadPool().working:
            await self.turn()

    async def test_resume(self) -> None:
        """A client that connects again gets what has happened meanwhile."""

        async def follow(end: bytes, **headers: str) -> bytes:
            channel, wire = self.send_by_http(
                "GET", "/api/v1/journal/tail?node=orders", headers=headers
            )
            while end not in wire.value():
                await self.turn()
            channel.connectionLost()
            return wire.value()

        ids = re.findall(rb"id: (\S+)", await follow(b"id: "))
        for node in ("orders", "other", "orders"):
            await self.by_http("POST", PUBLISH, {"to": node, "body": "x"})
        written: list[Any] = []
        while len(written) < 2:
            answer = await self.by_http("GET", "/api/v1/journal?node=orders&kind=received")
            written = answer.json()["records"]
        said = await follow(b"event: record", **{"Last-Event-ID": ids[-1].decode()})
        self.assertIn(b'"node": "orders"', said)
        self.assertNotIn(b"event: omitted", said)
        said = await follow(b"event: ", **{"last-event-id": "x"})
        self.assertIn(b'event: omitted\ndata: {"count": null}\n', said)

    async def test_rights(self) -> None:
        """A user without the right to see the service does not follow its journal."""
        for who, status in (("maker", 403), ("", 401)):
            answer = await self.by_http("GET", "/api/v1/journal/tail", who=who)
            self.assertEqual(answer.status, status)
