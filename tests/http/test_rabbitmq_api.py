# SPDX-License-Identifier: Apache-2.0
"""The read-only resources in the form of RabbitMQ's HTTP API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from amqproute.auth.token_scope import TokenScope
from amqproute.daemon.rabbitmq_assembly import TOTALS_SECONDS, RabbitmqFacts, TotalsTaker
from amqproute.http import rabbitmq_api
from amqproute.http.http_messages import ClientFacts
from amqproute.http.rabbitmq_api import BrokerTotals, ListenerPlace
from amqproute.services.health_checks import CheckResult, CheckState
from amqproute.values import Principal
from tests.http.doors import DoorsCase

MONITOR = ClientFacts("10.1.2.3")


class RabbitmqCase(DoorsCase):
    """A daemon whose setting is on, with a virtual host."""

    further = {
        "management": {
            "rabbitmq-api": True,
            "requests-per-second": 100000,
            "metrics-networks": ["10.1.0.0/16"],
        },
        "virtual-hosts": {
            "shop": {
                "nodes": [{"name": "till"}],
                "access": [{"allow": ["manage"], "who": "user:root", "node": "*"}],
            }
        },
    }

    async def publish(self, count: int, to: str = "orders") -> None:
        """Put messages on a queue."""
        for _ in range(count):
            answer = await self.by_http("POST", "/api/v1/messages/publish", {"to": to, "body": "x"})
            self.assertEqual(answer.status, 200, answer.body)

    async def get(self, path: str, status: int = 200, **more: Any) -> Any:
        """Return what a path says."""
        answer = await self.by_http("GET", f"/api/{path}", **more)
        self.assertEqual(answer.status, status, (path, answer.body))
        return answer.json()


class QueueTests(RabbitmqCase):
    """Queues."""

    async def test_all(self) -> None:
        """Those of every virtual host, without relay queues."""
        await self.publish(3)
        await self.publish(1, "x@beta.example")
        rows = await self.get("queues")
        self.assertEqual(
            {(row["vhost"], row["name"]) for row in rows},
            {("/", "answers"), ("/", "orders"), ("/", "other"), ("/", "news"), ("shop", "till")},
        )
        (orders,) = (row for row in rows if row["name"] == "orders")
        self.assertEqual(
            {key: orders[key] for key in ("messages", "messages_ready", "consumers", "type")},
            {"messages": 3, "messages_ready": 3, "consumers": 0, "type": "classic"},
        )
        self.assertEqual((orders["messages_unacknowledged"], orders["durable"]), (0, True))
        self.assertEqual(orders["message_stats"]["publish"], 3)
        self.assertEqual(orders["node"], self.app.container_id)
        self.assertEqual(orders["arguments"], {})

    async def test_by_host(self) -> None:
        """Those of one virtual host, / among them; one by its name there."""
        rows = await self.get("queues/shop")
        self.assertEqual([row["name"] for row in rows], ["till"])
        rows = await self.get("queues/%2F")
        self.assertEqual([row["name"] for row in rows], ["answers", "news", "orders", "other"])
        await self.get("queues/nowhere", 404)
        row = await self.get("queues/shop/till")
        self.assertEqual((row["vhost"], row["name"]), ("shop", "till"))
        row = await self.get("queues/%2F/orders?columns=name,messages")
        self.assertEqual(row, {"name": "orders", "messages": 0})
        await self.get("queues/%2F/nothing", 404)
        await self.get("queues/shop/orders", 404)

    async def test_pages(self) -> None:
        """With a page the answer has counts, as RabbitMQ's."""
        for number in range(7):
            await self.by_http("PUT", f"/api/v1/queues/q{number}", {})
        said = await self.get("queues/%2F?page=2&page_size=3&name=q&columns=name")
        self.assertEqual([row["name"] for row in said["items"]], ["q3", "q4", "q5"])
        counts = ("filtered_count", "item_count", "page", "page_count", "page_size", "total_count")
        self.assertEqual([said[key] for key in counts], [7, 3, 2, 3, 3, 11])
        said = await self.get("queues?page=3&page_size=3&name=q")
        self.assertEqual([row["name"] for row in said["items"]], ["q6"])
        said = await self.get("queues?page=1&name=nothing")
        self.assertEqual((said["items"], said["page_count"]), ([], 1))
        for query in ("page=0", "page=4&page_size=3&name=q", "page=1&page_size=501", "page=x"):
            answer = await self.by_http("GET", f"/api/queues?{query}")
            self.assertEqual(answer.status, 400, query)

    async def test_bound(self) -> None:
        """More than an array may have are refused, not cut; pages still work."""
        self.patch(rabbitmq_api, "MOST_ROWS", 3)
        self.patch(rabbitmq_api, "_ROWS_AT_ONCE", 2)
        said = await self.get("queues", 400)
        self.assertIn("5 are too many", said["detail"])
        said = await self.get("queues?page=1&page_size=5")
        self.assertEqual(len(said["items"]), 5)
        self.assertEqual(len(await self.get("queues/shop")), 1)


class OverviewTests(RabbitmqCase):
    """Totals and connections."""

    async def test_overview(self) -> None:
        """Totals, rates once two were taken, and listeners."""
        seconds = 1000.0
        self.patch(self.app._reactor, "seconds", lambda: seconds)
        await self.publish(2)
        said = await self.get("overview")
        self.assertEqual(
            said["queue_totals"],
            {"messages": 2, "messages_ready": 2, "messages_unacknowledged": 0},
        )
        objects = said["object_totals"]
        self.assertEqual((objects["queues"], objects["consumers"]), (5, 1))
        self.assertEqual((objects["connections"], objects["channels"]), (0, 0))
        self.assertEqual(said["message_stats"]["publish_details"], {"rate": 0.0})
        self.assertEqual(said["product_name"], "amqproute")
        self.assertEqual(said["listeners"], [])  # a unix socket has no port
        await self.publish(5)
        again = await self.get("overview")
        self.assertEqual(again["queue_totals"]["messages"], 2)
        seconds += TOTALS_SECONDS
        again = await self.get("overview")
        self.assertEqual(again["queue_totals"]["messages"], 7)
        self.assertEqual(again["message_stats"]["publish_details"], {"rate": 1.0})

    async def test_connections(self) -> None:
        """In the words of RabbitMQ."""
        shown = {
            "name": "192.0.2.7:4711", "principal": "user:ann", "container": "worker",
            "tls": "TLSv1.3", "virtual-host": "shop", "protocol": "AMQP 0-9-1", "since-ms": 5,
            "channels": 2, "client-product": "py-amqp", "heartbeat": 60,
        }  # fmt: skip

        class Connection:
            facts = SimpleNamespace(remote=shown["name"])

            def row(self) -> dict[str, object]:
                return dict(shown)

        links: Any = type(self.app.links)
        self.patch(links, "connections", [Connection()])
        (found,) = await self.get("connections")
        expected = {
            "name": "192.0.2.7:4711", "user": "ann", "user_provided_name": "worker", "ssl": True,
            "vhost": "shop", "protocol": "AMQP 0-9-1", "connected_at": 5, "channels": 2,
            "peer_host": "192.0.2.7", "peer_port": 4711, "state": "running", "timeout": 60,
            "client_properties": {"product": "py-amqp"},
        }  # fmt: skip
        self.assertEqual({key: found[key] for key in expected}, expected)
        said = await self.get("connections?page=1&page_size=1")
        self.assertEqual((said["total_count"], len(said["items"])), (1, 1))

    async def test_one_walk_for_all(self) -> None:
        """Who asks while totals are taken waits for these."""
        walks = 0
        real = TotalsTaker._take

        async def take(taker: TotalsTaker) -> BrokerTotals:
            nonlocal walks
            walks += 1
            await self.turn()
            return await real(taker)

        self.patch(TotalsTaker, "_take", take)
        await gatherResults(
            [Deferred.fromCoroutine(self.get("overview")) for _ in range(3)], consumeErrors=True
        )
        await self.get("overview")
        self.assertEqual(walks, 1)


class RightTests(RabbitmqCase):
    """Who may."""

    PATHS = ("overview", "queues", "queues/%2F", "queues/%2F/orders", "connections")

    async def test_rights(self) -> None:
        """The rights of management."""
        for path in self.PATHS:
            for who, status in (("root", 200), ("viewer", 200), ("maker", 403), ("", 401)):
                await self.get(path, status, who=who)
            await self.get(path, 401, who="", client=MONITOR)
        await self.get("health/checks/virtual-hosts", 200, who="", client=MONITOR)
        await self.get("health/checks/virtual-hosts", 403, who="maker")

    async def test_tokens(self) -> None:
        """A token needs read, or the operations by their names."""
        for scope, path, status in (
            (["read"], "queues", 200),
            (["PURGE"], "queues", 403),
            (["QUERY"], "overview", 200),
            (["READ:orders"], "queues/%2F/orders", 200),
            (["READ:orders"], "queues/%2F/other", 403),
            (["HEALTH"], "health/checks/virtual-hosts", 200),
        ):
            name = f"{scope[0]}-{path}"
            viewer = Principal("user", "viewer")
            made = await self.app.web.tokens.create(name, viewer, TokenScope.of(scope), 60, "root")
            headers = {"Authorization": f"Bearer {made[1]}"}
            await self.get(path, status, who="", headers=headers)

    async def test_read_only(self) -> None:
        """Nothing can be changed here."""
        for path in self.PATHS:
            for method in ("POST", "PUT", "DELETE"):
                answer = await self.by_http(method, f"/api/{path}", {})
                self.assertEqual(answer.status, 405, (method, path))


class CheckTests(RabbitmqCase):
    """Health checks."""

    async def test_checks(self) -> None:
        """Each runs ours, with RabbitMQ's answers."""
        asked: list[tuple[str, float | None]] = []
        states = {"store": CheckState.OK, "alarms": CheckState.WARNING}

        async def check(name: str = "", within: float | None = None) -> list[CheckResult]:
            asked.append((name, within))
            return [CheckResult(name, states.get(name, CheckState.FAILED), "too old")]

        assert self.app.health is not None
        self.patch(self.app.health, "check", check)
        for path in (
            "alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical",
            "node-is-mirror-sync-critical", "is-in-service", "ready-to-serve-clients",
        ):  # fmt: skip
            self.assertEqual(await self.get(f"health/checks/{path}"), {"status": "ok"}, path)
        said = await self.get("health/checks/certificate-expiration/2/weeks", 503)
        self.assertEqual(said, {"status": "failed", "reason": "too old"})
        self.assertEqual(asked[-1], ("certificates", 14 * 86400.0))
        await self.get("health/checks/certificate-expiration/x/weeks", 400)
        await self.get("health/checks/certificate-expiration/1/moons", 400)
        states["alarms"] = CheckState.UNKNOWN
        await self.get("health/checks/alarms", 503)
        for path in ("nothing", "alarms/more", "port-listener", "certificate-expiration/1"):
            await self.get(f"health/checks/{path}", 404)

    async def test_not_ready(self) -> None:
        """A broker that takes no traffic says so."""
        self.patch(RabbitmqFacts, "why_not_ready", lambda _: ["it is being drained"])
        said = await self.get("health/checks/is-in-service", 503)
        self.assertEqual(said["reason"], "it is being drained")

    async def test_listeners(self) -> None:
        """By port and by protocol."""
        places = [ListenerPlace("amqp", "127.0.0.1", 5672), ListenerPlace("https", "::1", 9672)]
        self.patch(RabbitmqFacts, "places", lambda _: places)
        for path, status in (
            ("port-listener/5672", 200), ("port-listener/5671", 503),
            ("protocol-listener/amqp", 200), ("protocol-listener/amqp091", 200),
            ("protocol-listener/amqp%2Fssl", 503), ("protocol-listener/https", 200),
        ):  # fmt: skip
            await self.get(f"health/checks/{path}", status)
        said = await self.get("overview")
        self.assertEqual([each["port"] for each in said["listeners"]], [5672, 9672])


class OffTests(DoorsCase):
    """Without the setting."""

    async def test_off(self) -> None:
        """There is nothing, for those who may ask and those who may not."""
        for path in (*RightTests.PATHS, "health/checks/alarms"):
            answer = await self.by_http("GET", f"/api/{path}")
            self.assertEqual(answer.status, 404, path)
            self.assertIn("management.rabbitmq-api", answer.json()["detail"])
