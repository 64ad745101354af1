# SPDX-License-Identifier: Apache-2.0
"""Resources that only HTTP readers ask for: virtual hosts, transactions, tests of peers, health."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from amqproute.auth.token_scope import TokenScope
from amqproute.http.http_messages import ClientFacts
from amqproute.services.health_checks import CHECKS, CheckResult, CheckState
from amqproute.values import Origin, Principal
from tests.http.doors import ROOT, DoorsCase, deeds
from tests.http.rig import LOOPBACK
from tests.support.fakes import message

MONITOR = ClientFacts("10.1.2.3")
STRANGER = ClientFacts("192.0.2.7")
SIX = ClientFacts("2001:db8::7")
SOCKET = ClientFacts("", True, True, uid=1000)


class VirtualHostTests(DoorsCase):
    """Virtual hosts and what is in them."""

    further = {
        "virtual-hosts": {
            "shop": {
                "domains": ["shop.example"],
                "max-nodes": 5,
                "max-connections": 3,
                "nodes": [{"name": "till"}, {"name": "offers", "type": "topic"}],
                "access": [{"allow": ["manage"], "who": "user:root", "node": "*"}],
            },
            "empty": {},
        }
    }

    async def test_list(self) -> None:
        """All of them, with their limits and contents; / is the one without a name."""
        batch = self.app.broker.begin()
        self.app.broker.nodes["//shop/till"].put(message(b"hello"), batch, Origin(ROOT))
        await batch.commit()
        answer = await self.by_http("GET", "/api/v1/virtual-hosts")
        rows = {row["name"]: row for row in answer.json()["items"]}
        self.assertEqual(set(rows), {"/", "empty", "shop"})
        shop = rows["shop"]
        self.assertEqual(
            [shop[key] for key in ("domains", "nodes", "max-nodes", "messages", "configured")],
            [["shop.example"], 2, 5, 1, True],
        )
        self.assertEqual((shop["connections"], shop["max-connections"]), (0, 3))
        self.assertGreater(shop["bytes"], 0)
        self.assertGreater(shop["exchanges"], 4)
        self.assertIn("alpha.example", rows["/"]["domains"])
        self.assertEqual((rows["/"]["nodes"], rows["/"]["max-nodes"]), (4, None))
        self.assertEqual((rows["empty"]["nodes"], rows["empty"]["messages"]), (0, 0))

    async def test_one(self) -> None:
        """Each by its name, percent-encoded."""
        for name in ("/", "shop"):
            answer = await self.by_http("GET", f"/api/v1/virtual-hosts/{quote(name, safe='')}")
            self.assertEqual((answer.status, answer.json()["name"]), (200, name))
        answer = await self.by_http("GET", "/api/v1/virtual-hosts/nowhere")
        self.assertEqual(answer.status, 404)


class TransactionTests(DoorsCase):
    """Open local transactions."""

    async def test_list(self) -> None:
        """Those of all connections; one by its name; none when there are none."""
        answer = await self.by_http("GET", "/api/v1/transactions")
        self.assertEqual(answer.json(), {"items": [], "next": None, "total": 0})
        row = {"name": "ab01", "type": "transaction", "state": "open", "connection": "c"}

        class Connection:
            def transaction_rows(self) -> list[dict[str, object]]:
                return [dict(row)]

        links: Any = type(self.app.links)
        self.patch(links, "connections", [Connection()])
        answer = await self.by_http("GET", "/api/v1/transactions?connection=c")
        self.assertEqual(answer.json()["items"], [row])
        answer = await self.by_http("GET", "/api/v1/transactions/ab01")
        self.assertEqual(answer.json(), row)
        answer = await self.by_http("GET", "/api/v1/transactions/ab02")
        self.assertEqual(answer.status, 404)


class PeerTestTests(DoorsCase):
    """Tests of connections to peers; without a certificate they end before anything is dialled."""

    async def test_both_doors(self) -> None:
        """One answer, with the steps and cures that the command prints, and a record in the
        journal."""
        noted: list[Any] = []
        self.patch(self.app.broker.journal, "note", noted.append)
        amqp = await self.by_amqp("TEST-PEER", name="beta.example")
        answer = await self.by_http("POST", "/api/v1/peers/beta.example/test", {"size": 10})
        self.assertEqual(answer.status, 200, answer.body)
        http = answer.json()
        self.assertEqual((amqp.status, amqp.words), (200, http["description"]))
        (step,) = http["attributes"]["steps"]
        self.assertEqual((step["step"], step["code"]), ("configuration", "tls.file"))
        self.assertIn("amqproute certs issue", step["next"])
        self.assertEqual(http["attributes"]["code"], "tls.file")
        (other,) = amqp.attributes["steps"]
        self.assertEqual({**step, "ms": 0}, {**other, "ms": 0})
        found = deeds(noted)
        self.assertEqual([each["action"] for each in found], ["TEST-PEER", "TEST-PEER"])
        self.assertEqual(found[0]["node"], "beta.example")

    async def test_refused(self) -> None:
        """Without the right on the relay queue, and for what is no other broker's domain."""
        answer = await self.by_http("POST", "/api/v1/peers/beta.example/test", who="viewer")
        self.assertEqual(answer.status, 403)
        answer = await self.by_http("POST", "/api/v1/peers/alpha.example/test")
        self.assertEqual(answer.status, 400)
        answer = await self.by_http("POST", "/api/v1/peers/beta.example/test", {"size": -1})
        self.assertEqual((answer.status, answer.json()["field"]), (400, "size"))


class HealthTests(DoorsCase):
    """Health checks by both doors, and for load balancers."""

    further = {"management": {"metrics-networks": ["10.1.0.0/16", "2001:db8::/32"]}}

    async def setUp(self) -> None:
        await super().setUp()
        self.states = {"clock": CheckState.OK, "disk": CheckState.OK}
        self.within: float | None = None
        assert self.app.health is not None
        self.real = self.app.health.check

        async def check(name: str = "", within: float | None = None) -> list[CheckResult]:
            if name and name not in self.states:
                return await self.real(name, within)
            self.within = within
            names = [name] if name else list(self.states)
            return [CheckResult(each, self.states[each], "words") for each in names]

        self.patch(self.app.health, "check", check)

    async def test_states(self) -> None:
        """A check that has failed, or could not be made, answers 503; a warning does not."""
        for state, status in (
            (CheckState.OK, 200), (CheckState.WARNING, 200),
            (CheckState.FAILED, 503), (CheckState.UNKNOWN, 503),
        ):  # fmt: skip
            self.states["disk"] = state
            one = await self.by_http("GET", "/api/v1/health/disk")
            everything = await self.by_http("GET", "/api/v1/health")
            self.assertEqual((one.status, everything.status), (status, status))
            self.assertEqual(one.headers["Cache-Control"], "no-store")
            self.assertEqual(one.json()["state"], state.value)
            self.assertEqual([each["name"] for each in one.json()["checks"]], ["disk"])
            self.assertEqual(everything.json()["state"], state.value)
            self.assertEqual(len(everything.json()["checks"]), 2)
            answer = await self.by_http("GET", "/api/v1/health/clock")
            self.assertEqual(answer.status, 200)
            amqp = await self.by_amqp("HEALTH", name="disk")
            self.assertEqual((amqp.status, amqp.attributes), (200, one.json()))

    async def test_refusals(self) -> None:
        """An unknown check, and a wrong time, by the words of the operation."""
        answer = await self.by_http("GET", "/api/v1/health/nonsense")
        self.assertEqual(answer.status, 404)
        for name in CHECKS:
            self.assertIn(name, answer.json()["detail"])
        await self.by_http("GET", "/api/v1/health/clock?within-seconds=86400")
        self.assertEqual(self.within, 86400.0)
        for wrong in ("x", "-1", "nan", "1e12", "999999999999"):
            answer = await self.by_http("GET", f"/api/v1/health/clock?within-seconds={wrong}")
            self.assertEqual((answer.status, answer.json()["field"]), (400, "within-seconds"))
        answer = await self.by_http("GET", "/api/v1/health?name=disk")
        self.assertEqual((answer.status, answer.json()["field"]), (400, "name"))

    async def test_who_may(self) -> None:
        """Listed networks without a log-in, others with the right, nobody else."""
        for path in ("/api/v1/health", "/api/v1/health/clock"):
            for client, who, status in (
                (MONITOR, "", 200),
                (SIX, "", 200),
                (STRANGER, "", 401),
                (SOCKET, "", 403),
                (LOOPBACK, "viewer", 200),
                (LOOPBACK, "maker", 403),
            ):
                answer = await self.by_http("GET", path, who=who, client=client)
                self.assertEqual(answer.status, status, (path, client, who))

    async def test_tokens(self) -> None:
        """A token reads if its scope has read or names the operation and the check."""
        for scope, path, status in (
            (["read"], "/api/v1/health", 200),
            (["METRICS"], "/api/v1/health", 403),
            (["HEALTH:clock"], "/api/v1/health/clock", 200),
            (["HEALTH:clock"], "/api/v1/health/disk", 403),
        ):
            name = f"{scope[0]}-{path}"
            _, text = await self.app.web.tokens.create(
                name, Principal("user", "viewer"), TokenScope.of(scope), 60, "root"
            )
            answer = await self.by_http(
                "GET", path, who="", headers={"Authorization": f"Bearer {text}"}
            )
            self.assertEqual(answer.status, status, (scope, path))
