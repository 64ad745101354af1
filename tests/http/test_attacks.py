# SPDX-License-Identifier: Apache-2.0
"""The HTTP service under attack, and a bystander's messages meanwhile."""

from __future__ import annotations

from typing import Any

from amqproute.daemon import journaling
from amqproute.http.http_channel import HttpChannel
from amqproute.services.management_protocol import ManagementRequest
from tests.http.doors import ROOT, DoorsCase
from tests.http.rig import Wire, encode

STREAMS = 1000


class AttackTests(DoorsCase):
    """A daemon in this process, and connections in memory."""

    further = {"management": {"requests-per-second": 100000, "max-event-streams": 2 * STREAMS}}

    def setUp(self) -> Any:
        self.open: list[tuple[HttpChannel, Wire]] = []
        self.addCleanup(lambda: [channel.connectionLost() for channel, _ in self.open])
        return super().setUp()

    def stay(self) -> tuple[HttpChannel, Wire]:
        """Connect, until the end of the test at the latest."""
        connection = self.connect()
        self.open.append(connection)
        return connection

    async def bystander(self, count: int) -> None:
        """Send and look at messages, which has to work whatever others do."""
        for number in range(count):
            said = await self.by_amqp("READ", name="orders", type="queue")
            self.assertEqual(said.status, 200, number)
            answer = await self.by_http("GET", "/api/v1/queues/orders")
            self.assertEqual(answer.status, 200, number)

    async def test_idle_event_streams(self) -> None:
        """A thousand streams that nobody reads: the others go on, and nothing is left behind."""
        made = await self.by_http("POST", "/api/v1/tokens", {"scope": ["read"]})
        login = {"Authorization": f"Bearer {made.json()['attributes']['token']}"}
        for number in range(STREAMS):
            channel, _ = self.stay()
            channel.dataReceived(encode("GET", "/api/v1/journal/tail", login))
            # Not more than one address may have waiting.
            while number % 100 == 99 and self.app.web.site.streams <= number:
                await self.turn()
        await self.bystander(10)
        channel, wire = self.stay()
        channel.dataReceived(encode("GET", "/api/v1/journal/tail", login))
        while not wire.value():
            await self.turn()
        self.assertIn(b"HTTP/1.1 503", wire.value())
        for channel, _ in self.open:
            channel.connectionLost()
        self.open.clear()
        self.assertEqual(self.app.web.site.streams, 0)

    async def test_tails_of_the_journal(self) -> None:
        """One is read at a time, a few wait, and the others are told so."""
        asked = ManagementRequest("TAIL-JOURNAL", {"operation": "TAIL-JOURNAL"}, {}, ROOT)
        self.patch(journaling, "MOST_TAILS", 8)
        asking = [self.management.perform(asked) for _ in range(13)]
        refused = [each for each in asking if each.called]
        self.assertEqual(len(refused), 4)
        statuses = [(await each).status for each in asking]
        self.assertEqual(sorted(statuses), [200] * 9 + [507] * 4)

    async def test_slow_and_large(self) -> None:
        """Half requests and bodies without end, on many connections."""
        for number in range(300):
            channel, _ = self.stay()
            if number % 2:
                channel.dataReceived(b"GET / HTTP/1.1\r\nHost: a\r\nX-")
            else:
                channel.dataReceived(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(20):
                    channel.dataReceived(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        await self.bystander(10)

    async def test_injection(self) -> None:
        """Paths, queries and headers with what means something elsewhere are only names."""
        for name in (
            "..%2f..%2fetc%2fpasswd", "%00", "a%0d%0aSet-Cookie:%20x=y", "%3Cscript%3E",
            "%27%20OR%201=1", "%25%30%30", "a%2Fb", "amqp$transfer", "%E2%80%AE", "%F0%9F%92%A9",
        ):  # fmt: skip
            for method, body in (("GET", b""), ("DELETE", b""), ("PATCH", {})):
                answer = await self.by_http(method, f"/api/v1/queues/{name}", body)
                self.assertIn(answer.status, (400, 404, 409), (method, name, answer.body))
                self.assertNotIn("Set-Cookie", answer.headers)
                self.assertEqual(answer.headers["Content-Type"], "application/problem+json")
        made = await self.by_http("PUT", "/api/v1/queues/a%0d%0aX-Evil:%20y", {})
        self.assertNotIn("X-Evil", made.headers)
        self.assertEqual(made.headers["Location"], "/api/v1/queues/a%0D%0AX-Evil%3A%20y")
        for method in ("TRACE", "CONNECT", "PROPFIND", "get", "PUT\x00"):
            answer = await self.by_http(method, "/api/v1/queues")
            self.assertIn(answer.status, (400, 404, 405), method)
            self.assertNotIn(b"Authorization", answer.body)
        headers = {"X-HTTP-Method-Override": "DELETE", "X-Forwarded-For": "127.0.0.1"}
        answer = await self.by_http("GET", "/api/v1/queues/orders", headers=headers)
        self.assertEqual(answer.status, 200)
        self.assertIn("orders", self.app.broker.nodes)
