# SPDX-License-Identifier: Apache-2.0
"""Tokens, users, rights and configuration over HTTP, in a daemon in this process."""

from __future__ import annotations

import json
from typing import Any

from amqproute.http.management_api import forms, path_of
from amqproute.services.management_table import OPERATIONS
from tests.http.doors import DoorsCase


class TokenTests(DoorsCase):
    """A token from its making to its end."""

    async def make(self, who: str = "root", **body: Any) -> tuple[str, dict[str, str]]:
        """Make a token; return its id, and the header with it."""
        answer = await self.by_http("POST", "/api/v1/tokens", body, who=who)
        self.assertEqual(answer.status, 201, answer.body)
        facts = answer.json()["attributes"]
        return facts["name"], {"Authorization": f"Bearer {facts['token']}"}

    async def status(self, method: str, path: str, login: dict[str, str], body: Any = b"") -> int:
        """Return the status of an answer."""
        answer = await self.by_http(method, path, body, who="", headers=login)
        return answer.status

    async def test_scope(self) -> None:
        """A token does what its scope has, and no more, and never more than its user."""
        _, reads = await self.make()
        self.assertEqual(await self.status("GET", "/api/v1/queues", reads), 200)
        self.assertEqual(await self.status("PUT", "/api/v1/queues/a", reads, {}), 403)
        _, purges = await self.make(scope=["PURGE:orders"])
        self.assertEqual(await self.status("POST", "/api/v1/queues/orders/purge", purges), 200)
        self.assertEqual(await self.status("POST", "/api/v1/queues/other/purge", purges), 403)
        self.assertEqual(await self.status("GET", "/api/v1/queues", purges), 403)
        _, clerks = await self.make("root", **{"for": "user:clerk", "scope": ["all"]})
        self.assertEqual(await self.status("POST", "/api/v1/queues/orders/purge", clerks), 200)
        self.assertEqual(await self.status("POST", "/api/v1/queues/other/purge", clerks), 403)

    async def test_shown_once(self) -> None:
        """Nothing but the answer that makes it has the token."""
        noted: list[Any] = []
        self.patch(self.app.broker.journal, "note", noted.append)
        name, login = await self.make(purpose="deploy")
        secret = login["Authorization"].split()[1]
        listed = await self.by_http("GET", "/api/v1/tokens")
        self.assertNotIn(secret.encode(), listed.body)
        (row,) = listed.json()["items"]
        self.assertEqual((row["name"], row["purpose"]), (name, "deploy"))
        self.assertNotIn(secret, json.dumps([str(vars_of(each)) for each in noted]))

    async def test_revoked(self) -> None:
        """A revoked token is of no use from then on."""
        name, login = await self.make()
        self.assertEqual(await self.status("GET", "/api/v1/status", login), 200)
        gone = await self.by_http("POST", f"/api/v1/tokens/{name}/revoke")
        self.assertEqual(gone.status, 200, gone.body)
        self.assertEqual(await self.status("GET", "/api/v1/status", login), 401)

    async def test_rights(self) -> None:
        """Nobody makes or revokes what gives him the rights of others; a token makes none."""
        for who in ("viewer", "clerk"):
            answer = await self.by_http("POST", "/api/v1/tokens", {"for": "user:root"}, who=who)
            self.assertEqual(answer.status, 403, answer.body)
        name, _ = await self.make("root")
        answer = await self.by_http("POST", f"/api/v1/tokens/{name}/revoke", who="viewer")
        self.assertEqual(answer.status, 403)
        _, login = await self.make("root", scope=["all"])
        self.assertEqual(await self.status("POST", "/api/v1/tokens", login, {}), 403)
        own, _ = await self.make("viewer")
        answer = await self.by_http("POST", f"/api/v1/tokens/{own}/revoke", who="viewer")
        self.assertEqual(answer.status, 200)

    async def test_wrong(self) -> None:
        """Each mistake is refused with its parameter named."""
        for body, field in (
            ({"for": "user:nobody"}, "for"),
            ({"for": "anonymous"}, "for"),
            ({"scope": []}, "scope"),
            ({"scope": ["POUR"]}, "scope"),
            ({"scope": "all"}, "scope"),
            ({"expires-seconds": 59}, "expires-seconds"),
            ({"expires-seconds": True}, "expires-seconds"),
            ({"purpose": "x" * 65}, "purpose"),
        ):
            answer = await self.by_http("POST", "/api/v1/tokens", body)
            self.assertEqual((answer.status, answer.json().get("field")), (400, field), body)


def vars_of(event: Any) -> Any:
    """Return what an event of the journal has."""
    return getattr(event, "_shared", None)


class PreconditionTests(DoorsCase):
    """If-Match and If-None-Match on entities."""

    async def change(self, method: str, path: str, body: Any = b"", **headers: str) -> int:
        """Return the status of a change."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.by_http(method, path, body, headers=named)
        return int(answer.status)

    async def tag(self, path: str) -> str:
        """Return the entity tag of a resource."""
        return str((await self.by_http("GET", path)).headers["etag"])

    async def test_changed(self) -> None:
        """A change is made on what was read, and refused after another change."""
        path = "/api/v1/queues/mine"
        self.assertEqual(await self.change("PUT", path, {}, If_None_Match="*"), 201)
        self.assertEqual(await self.change("PUT", path, {}, If_None_Match="*"), 412)
        first = await self.tag(path)
        self.assertEqual(await self.change("PATCH", path, {"capacity": 5}, If_Match=first), 200)
        self.assertEqual(self.app.broker.nodes["mine"].limits.capacity, 5)
        self.assertEqual(await self.change("PATCH", path, {"capacity": 6}, If_Match=first), 412)
        self.assertEqual(await self.change("DELETE", path, If_Match=first), 412)
        self.assertEqual(self.app.broker.nodes["mine"].limits.capacity, 5)
        second = await self.tag(path)
        self.assertEqual(
            await self.change("PATCH", path, {"capacity": 6}, If_Match=f"{first}, {second}"), 200
        )
        self.assertEqual(await self.change("DELETE", path, If_Match="*"), 200)
        for given in (second, "*"):
            self.assertEqual(await self.change("PATCH", path, {}, If_Match=given), 412)
            self.assertEqual(await self.change("PUT", path, {}, If_Match=given), 412)
        self.assertNotIn("mine", self.app.broker.nodes)

    async def test_counters(self) -> None:
        """Messages change the tag, but not what a change is made on."""
        path = "/api/v1/queues/orders"
        before = await self.tag(path)
        published = {"to": "orders", "body": "x"}
        self.assertEqual(await self.change("POST", "/api/v1/messages/publish", published), 200)
        after = await self.tag(path)
        self.assertNotEqual(before, after)
        self.assertEqual(before.partition(".")[0], after.partition(".")[0])
        self.assertEqual(await self.change("POST", f"{path}/purge", {}, If_Match=before), 200)
        known = await self.by_http("GET", path, headers={"If-None-Match": before})
        self.assertEqual(known.status, 200)

    async def test_others(self) -> None:
        """Routes and policies have tags, too; what has none refuses the header."""
        path = "/api/v1/routes/gamma.example"
        route = {"via": "amqps://127.0.0.1:9"}
        self.assertEqual(await self.change("PUT", path, route, If_None_Match="*"), 201)
        tag = await self.tag(path)
        self.assertEqual(await self.change("DELETE", path, If_Match='"0.0"'), 412)
        self.assertEqual(await self.change("DELETE", path, If_Match=tag), 200)
        answer = await self.by_http("POST", "/api/v1/drain/end", {}, headers={"If-Match": tag})
        self.assertEqual((answer.status, answer.json()["field"]), (412, "if-match"))

    async def test_rights_first(self) -> None:
        """Who may not change it does not learn whether a tag is right."""
        tag = await self.tag("/api/v1/queues/orders")
        for given in (tag, '"x.y"'):
            answer = await self.by_http(
                "DELETE", "/api/v1/queues/orders", who="maker", headers={"If-Match": given}
            )
            self.assertEqual(answer.status, 403)


FREE = {"ASSERT", "DRAIN", "DRAIN-END", "ACCEPT-TIME", "CREATE-TOKEN"}
"""Recorded operations that take no further right than the one to manage the service."""


class RightsTests(DoorsCase):
    """Each operation, and each role."""

    async def test_matrix(self) -> None:
        """Nobody without `manage` on the service gets anything but 403, in whatever form he asks;
        and only the one with rights on a node changes it."""
        before = {*self.app.broker.nodes}
        for operation, entity in forms():
            path = path_of(operation, entity).replace("{name}", "orders")
            body: Any = {} if operation.method not in ("GET", "DELETE") else b""
            for who, statuses in (("", {401}), ("maker", {403})):
                answer = await self.by_http(operation.method, path, body, who=who)
                self.assertIn(answer.status, statuses, (operation.name, who))
            if operation.changes and operation.name not in FREE:
                answer = await self.by_http(operation.method, path, body, who="viewer")
                self.assertGreaterEqual(answer.status, 400, (operation.name, path))
        self.assertEqual({*self.app.broker.nodes}, before)

    async def test_rights_by_node(self) -> None:
        """The right to manage one node allows changing that one."""
        purge = "/api/v1/queues/{}/purge"
        for who, node, status in (
            ("clerk", "orders", 200),
            ("clerk", "other", 403),
            ("viewer", "orders", 403),
            ("root", "other", 200),
        ):
            answer = await self.by_http("POST", purge.format(node), who=who)
            self.assertEqual(answer.status, status, (who, node))

    async def test_users_and_rules(self) -> None:
        """Users without their secrets, rules in their order."""
        users = (await self.by_http("GET", "/api/v1/users")).json()["items"]
        self.assertEqual([each["name"] for each in users], ["clerk", "maker", "root", "viewer"])
        self.assertEqual(set(users[0]), {"name", "type", "principal"})
        rules = (await self.by_http("GET", "/api/v1/access-rules")).json()["items"]
        self.assertEqual((rules[0]["who"], rules[0]["node"]), ("user:root", "*"))


class ConfigurationTests(DoorsCase):
    """The configuration file of the daemon."""

    def change(self, **changes: Any) -> None:
        """Write the file with changes."""
        self.file.write_text(json.dumps({**json.loads(self.file.read_text()), **changes}))

    async def ask(self, what: str, method: str = "GET", who: str = "root") -> Any:
        """Ask about the configuration."""
        answer = await self.by_http(method, f"/api/v1/config{what}", who=who)
        return answer.status, answer.json()

    async def test_plan_and_reload(self) -> None:
        """A plan says what a reload does then."""
        self.change(**{"auto-create": True, "container-id": "other.alpha.example"})
        status, plan = await self.ask("/plan")
        self.assertEqual((status, plan["changed"]), (200, ["auto-create"]))
        self.assertEqual(plan["waiting"], ["container-id"])
        self.assertEqual(plan["files"], [str(self.file)])
        _, read = await self.ask("")
        self.assertIs(read["settings"]["auto-create"], False)
        status, done = await self.ask("/reload", "POST", "viewer")
        self.assertEqual(status, 403)
        status, done = await self.ask("/reload", "POST")
        self.assertEqual((status, done["attributes"]["changed"]), (200, ["auto-create"]), done)
        _, read = await self.ask("")
        self.assertIs(read["settings"]["auto-create"], True)

    async def test_a_wrong_file(self) -> None:
        """It changes nothing, and its problems are told with their lines."""
        self.change(frobnicate=1)
        status, said = await self.ask("/check")
        self.assertEqual((status, said["valid"]), (200, False))
        self.assertIn("frobnicate: unknown key", said["problems"][0])
        for what, method in (("/plan", "GET"), ("/reload", "POST")):
            status, said = await self.ask(what, method)
            self.assertEqual(status, 409)
            self.assertIn("frobnicate", said["attributes"]["problems"][0])

    async def test_values(self) -> None:
        """Each value has its origin; entries made by commands are beside those of the files."""
        added = await self.by_http(
            "PUT", "/api/v1/routes/gamma.example", {"via": "amqps://127.0.0.1:9"}
        )
        self.assertEqual(added.status, 201, added.body)
        answer = await self.by_http("GET", "/api/v1/config?changed=true")
        values = {each["key"]: each for each in answer.json()["values"]}
        self.assertEqual(
            values["management.requests-per-second"],
            {
                "key": "management.requests-per-second",
                "value": 100000,
                "default": 100,
                "origin": "file",
                "place": f"{self.file}:1",
            },
        )
        self.assertEqual(values['routes."gamma.example"']["origin"], "command")
        self.assertEqual(values['routes."gamma.example"']["made-by"], "user:root")
        self.assertIn("routes[0]", values)
        self.assertNotIn("relay.window", values)
        _, everything = await self.ask("")
        self.assertIn("relay.window", {each["key"] for each in everything["values"]})

    async def test_included(self) -> None:
        """A file that is included later is planned, put in force, and checked with its name."""
        part = self.file.parent / "conf.d" / "x.yaml"
        part.parent.mkdir()
        part.write_text("auto-create: true\n")
        _, plan = await self.ask("/plan")
        self.assertEqual(plan["changed"], ["auto-create"])
        self.assertEqual(plan["files"], [str(self.file), str(part)])
        self.assertEqual((await self.ask("/reload", "POST"))[0], 200)
        _, read = await self.ask("")
        self.assertEqual(read["files"], plan["files"])
        part.write_text("auto-create: perhaps\n")
        _, said = await self.ask("/check")
        self.assertIn(f"{part}:1: auto-create: has to be true or false", said["problems"][0])
        self.assertEqual((await self.ask("/reload", "POST"))[0], 409)
        self.assertIs(self.app.config.auto_create, True)

    async def test_if_match(self) -> None:
        """A reload with a tag puts in force what was seen, or nothing."""

        async def tag(what: str) -> str:
            answer = await self.by_http("GET", f"/api/v1/config{what}")
            return str(answer.headers["etag"])

        async def reload(given: str) -> int:
            path = "/api/v1/config/reload"
            answer = await self.by_http("POST", path, headers={"If-Match": given})
            return int(answer.status)

        first, short = await tag(""), await tag("?changed=true")
        self.assertNotEqual(first, short)
        self.change(**{"auto-create": True})
        plan = await tag("/plan")
        planned = await self.by_http("GET", "/api/v1/config/plan", headers={"If-Match": first})
        self.assertEqual(planned.status, 200)
        self.change(**{"auto-create": True, "qualify-dynamic": True})
        self.assertEqual(await reload(plan), 412)  # the file is not the one of the plan
        self.assertIs(self.app.config.auto_create, False)
        self.assertEqual(await reload(await tag("/plan")), 200)
        self.assertIs(self.app.config.qualify_dynamic, True)
        for outdated in (first, short, plan, '"x.y"', f"W/{await tag('')}", "nonsense"):
            self.assertEqual(await reload(outdated), 412, outdated)
        self.assertEqual(await reload(await tag("")), 200)
        self.assertEqual(await reload("*"), 200)

    async def test_no_secrets(self) -> None:
        """Nothing of the users file is in the configuration."""
        _, read = await self.ask("")
        self.assertNotIn("salt", json.dumps(read))
        self.assertIn("CONFIG-READ", OPERATIONS)
