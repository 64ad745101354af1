# SPDX-License-Identifier: Apache-2.0
"""The doors of management agree: each operation, by AMQP and by HTTP, with one result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from openapi_spec_validator import OpenAPIV31SpecValidator
from twisted.internet.defer import Deferred

from amqproute.http.http_messages import ClientFacts
from amqproute.http.management_api import forms, path_of
from amqproute.http.openapi import openapi
from amqproute.services.entity_pages import SLICE_ROWS
from amqproute.services.management_table import (
    ENTITIES,
    OPERATIONS,
    EntityDeclaration,
    OperationDeclaration,
    parameters_of,
)
from amqproute.services.value_declaration import ValueType
from amqproute.turn_scheduler import StepKind
from amqproute.values import Principal
from tests.http.doors import DoorsCase, Said, deeds, said_by

VARYING = frozenset(
    {
        "since-ms",
        "made-at-ms",
        "age-ms",
        "oldest-age-ms",
        "now",
        "wall",
        "seconds",
        "hold",
        "made-by",
        "here",
        "records",
    }
)
"""Attributes that two requests cannot have in common."""


def steady(value: Any) -> Any:
    """Return a value without what varies."""
    if isinstance(value, dict):
        return {key: steady(each) for key, each in value.items() if key not in VARYING}
    return [steady(each) for each in value] if isinstance(value, list) else value


class AgreementTests(DoorsCase):
    """One request by both doors."""

    def target(
        self,
        operation: OperationDeclaration,
        entity: EntityDeclaration | None,
        name: str,
        body: Mapping[str, object],
    ) -> tuple[str, object]:
        """Return the target and body of an HTTP request."""
        path = path_of(operation, entity).replace("{name}", quote(name, safe=""))
        if operation.method not in ("GET", "DELETE"):
            return path, dict(body)
        query = {key: json.dumps(value).strip('"') for key, value in body.items()}
        if name and "{name}" not in path_of(operation, entity):
            query["name"] = name
        return (f"{path}?{urlencode(query)}" if query else path), b""

    async def both(
        self,
        operation: OperationDeclaration,
        entity: EntityDeclaration | None,
        name: str = "",
        body: Mapping[str, object] | None = None,
        who: str = "root",
    ) -> tuple[Said, Said]:
        """Ask by AMQP, then by HTTP."""
        properties: dict[str, object] = {"name": name} if name else {}
        if entity is not None:
            properties["type"] = entity.name
        principal = Principal("user", who)
        amqp = await self.by_amqp(operation.name, body, who=principal, **properties)
        target, sent = self.target(operation, entity, name, body or {})
        answer = await self.by_http(operation.method, target, sent, who=who)
        return amqp, said_by(answer)

    def assertAgree(self, amqp: Said, http: Said, what: object) -> None:
        """Require one result; a change that was made is found made."""
        self.assertEqual(
            amqp.status, 200 if http.status == 200 and amqp.status == 204 else http.status, what
        )
        if http.words:
            self.assertEqual(amqp.words, http.words, what)
        self.assertEqual(steady(amqp.attributes), steady(http.attributes), what)

    async def test_every_operation_answers_alike(self) -> None:
        """For something that is not there, and for a call without what it needs."""
        for operation, entity in forms():
            if operation.name in ("QUERY", "CREATE", "CREATE-TOKEN", "DRAIN", "DRAIN-END"):
                continue  # which succeed: see below
            if operation.name == "TEST-PEER":
                continue  # which asks the DNS: see test_further_resources
            if operation.is_monitoring and not operation.subject:
                continue  # which asks the DNS as well
            for name in ("nothing-of-this-name", "7"):
                amqp, http = await self.both(operation, entity, name if operation.subject else "")
                self.assertAgree(amqp, http, (operation.name, entity and entity.name, name))
                self.assertNotIn(http.status, (404, 405) if not operation.subject else (405, 500))

    async def test_every_operation_refuses_alike(self) -> None:
        """A reader without `manage` is refused alike; one without the right to read, at HTTP."""
        for operation, entity in forms():
            if operation.name == "QUERY":
                continue
            what = (operation.name, entity and entity.name)
            name = "orders" if operation.subject else ""
            amqp, http = await self.both(operation, entity, name, who="viewer")
            if operation.name not in ("CREATE-TOKEN", "DRAIN", "DRAIN-END"):  # he may, and does
                self.assertAgree(amqp, http, what)
            target, body = self.target(operation, entity, name, {})
            answer = await self.by_http(operation.method, target, body, who="maker")
            self.assertEqual(answer.status, 403, what)
            answer = await self.by_http(operation.method, target, body, who="")
            self.assertEqual(answer.status, 401, what)

    async def test_every_parameter_is_checked_alike(self) -> None:
        """A value of the wrong type is refused with the parameter named, by both."""
        for operation, entity in forms():
            if operation.parameters is None or operation.method == "GET":
                continue
            for value in operation.parameters:
                wrong = 7 if value.type is ValueType.TEXT else "wrong"
                body = {value.name: wrong, **self.needed(operation, value.name)}
                amqp, http = await self.both(operation, entity, "orders", body)
                self.assertAgree(amqp, http, (operation.name, value.name))
                self.assertEqual(http.status, 400, (operation.name, value.name))
                self.assertEqual(http.attributes["field"], value.name)
            amqp, http = await self.both(
                operation, entity, "orders", {"surplus": 1, **self.needed(operation)}
            )
            self.assertAgree(amqp, http, operation.name)
            self.assertEqual((http.status, http.attributes["field"]), (400, "surplus"))

    @staticmethod
    def needed(operation: OperationDeclaration, but: str = "") -> dict[str, object]:
        """Return values for the required parameters."""
        return {
            each.name: "other"
            for each in operation.parameters or ()
            if each.is_required and each.name != but
        }

    async def test_reading_alike(self) -> None:
        """Each entity of each type is the same by both."""
        seen = set()
        for kind, entity in ENTITIES.items():
            if kind not in self.management._types:
                continue
            listed = await self.by_http("GET", f"/api/v1/{entity.plural}?limit=1000")
            self.assertEqual(listed.status, 200, (kind, listed.body))
            declared = {each.name: each for each in entity.attributes}
            for row in listed.json()["items"]:
                seen.add(kind)
                if row["name"] == "answers" or kind in ("journal", "virtual-host"):
                    continue  # they change with each reply
                amqp, http = await self.both(OPERATIONS["READ"], entity, row["name"])
                self.assertAgree(amqp, http, (kind, row["name"]))
                for key, value in http.attributes.items():
                    if key in declared:
                        self.assertTrue(declared[key].fits(value), (kind, key, value))
                    elif key not in ("options", "terms"):
                        self.assertTrue(entity.is_open, (kind, key))
        self.assertLessEqual(
            {"queue", "topic", "exchange", "certificate", "clock", "journal", "listener", "route"},
            seen,
        )

    async def test_changes_alike(self) -> None:
        """Objects made at one door are found, changed and deleted at the other."""
        queue = ENTITIES["queue"]
        made = await self.by_http("PUT", "/api/v1/queues/made", {"capacity": 7})
        self.assertEqual(made.status, 201, made.body)
        self.assertEqual(made.headers["Location"], "/api/v1/queues/made")
        again = await self.by_amqp("CREATE", {"capacity": 7}, name="made", type="queue")
        self.assertEqual(again.status, 409)
        amqp, http = await self.both(OPERATIONS["CREATE"], queue, "made", {"capacity": 7})
        self.assertAgree(amqp, http, "CREATE")
        same = await self.by_http("PUT", "/api/v1/queues/made?or-assert=true", {"capacity": 7})
        self.assertEqual(same.status, 200, same.body)
        changed = await self.by_http("PATCH", "/api/v1/queues/made", {"capacity": 9})
        self.assertEqual(changed.status, 200, changed.body)
        read = await self.by_amqp("READ", name="made", type="queue")
        self.assertEqual(read.attributes["options"]["capacity"], 9)
        wrong = await self.by_http("PATCH", "/api/v1/queues/made", {"capacity": "many"})
        self.assertEqual((wrong.status, wrong.json()["operation"]), (400, "UPDATE"))
        renamed = await self.by_http("POST", "/api/v1/queues/made/rename", {"new-name": "a/b"})
        self.assertEqual(renamed.status, 200, renamed.body)
        self.assertIn("a/b", self.app.broker.nodes)
        gone = await self.by_http("DELETE", "/api/v1/queues/a%2Fb?if-empty=true")
        self.assertEqual(gone.status, 200, gone.body)
        self.assertNotIn("a/b", self.app.broker.nodes)
        bound = await self.by_http(
            "PUT", "/api/v1/exchange-bindings/amq.direct", {"target": "orders", "key": "k"}
        )
        self.assertEqual(bound.status, 201, bound.body)
        unbound = await self.by_http(
            "DELETE", "/api/v1/exchange-bindings/amq.direct?target=orders&key=k"
        )
        self.assertEqual(unbound.status, 200, unbound.body)

    async def test_records(self) -> None:
        """A change is in the journal with who has asked, from where; a look is not."""
        noted: list[Any] = []
        self.patch(self.app.broker.journal, "note", noted.append)
        client = ClientFacts("192.0.2.9", True, has_tls=True)
        await self.by_http("PUT", "/api/v1/queues/q", {}, client=client)
        await self.by_http("PUT", "/api/v1/queues/orders", {}, who="viewer", client=client)
        await self.by_http("GET", "/api/v1/queues/q", client=client)
        found = deeds(noted)
        self.assertEqual([each["action"] for each in found], ["CREATE", "CREATE"])
        self.assertEqual([each["operator"] for each in found], ["user:root", "user:viewer"])
        self.assertEqual([each["code"] for each in found], ["201", "403"])
        detail = json.loads(found[0]["detail"])
        self.assertEqual((detail["remote"], detail["log-in"]), ("192.0.2.9", "basic"))

    async def test_dry_runs_are_not_recorded(self) -> None:
        """A dry run changes nothing."""
        noted: list[Any] = []
        self.patch(self.app.broker.journal, "note", noted.append)
        answer = await self.by_http("POST", "/api/v1/queues/orders/purge", {"dry-run": True})
        self.assertEqual((answer.status, deeds(noted)), (200, []))


class ListTests(DoorsCase):
    """Lists, page by page."""

    async def names(self, query: str = "") -> list[str]:
        """Return the names of queues on all pages."""
        found: list[str] = []
        cursor = ""
        while True:
            more = f"&cursor={quote(cursor)}" if cursor else ""
            answer = await self.by_http("GET", f"/api/v1/queues?limit=3{query}{more}")
            self.assertEqual(answer.status, 200, answer.body)
            said = answer.json()
            found += [row["name"] for row in said["items"]]
            cursor = said["next"]
            if not cursor:
                return found

    async def test_pages(self) -> None:
        """All entities come once, in order, though some come and go meanwhile."""
        for number in range(10):
            await self.by_http("PUT", f"/api/v1/queues/q{number}", {})
        names = await self.names()
        self.assertEqual(names, sorted({*self.app.broker.nodes, *self.app.broker.topics}))
        first = (await self.by_http("GET", "/api/v1/queues?limit=5")).json()
        last = first["items"][-1]["name"]
        await self.by_http("DELETE", f"/api/v1/queues/{last}")
        await self.by_http("PUT", "/api/v1/queues/aaa", {})
        cursor = quote(first["next"])
        second = (await self.by_http("GET", f"/api/v1/queues?limit=100&cursor={cursor}")).json()
        self.assertEqual([row["name"] for row in second["items"]], [n for n in names if n > last])

    async def test_filters(self) -> None:
        """By pattern of names, by attributes, by virtual host; with the attributes asked for."""
        for number in range(4):
            await self.by_http("PUT", f"/api/v1/queues/q{number}", {"capacity": number + 1})
        self.assertEqual(await self.names("&name=q*"), ["q0", "q1", "q2", "q3"])
        self.assertEqual(await self.names("&capacity=3"), ["q2"])
        self.assertEqual(await self.names("&kind=topic"), ["news"])
        self.assertEqual(await self.names("&kind=topic&name=q*"), [])
        answer = await self.by_http("GET", "/api/v1/queues?fields=depth,kind&name=orders")
        self.assertEqual(answer.json()["items"], [{"name": "orders", "depth": 0, "kind": "node"}])
        for query, field in (
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=x", "limit"),
            ("limit=1&limit=2", "limit"),
            ("cursor=x", "cursor"),
            ("cursor=[1,2]", "cursor"),
            ("virtual-host=nowhere", "virtual-host"),
        ):
            answer = await self.by_http("GET", f"/api/v1/queues?{query}")
            self.assertEqual(answer.json().get("field"), field, query)
        answer = await self.by_http("GET", "/api/v1/holds?colour=red")
        self.assertEqual((answer.status, answer.json()["field"]), (400, "colour"))

    async def test_many_queues_in_slices(self) -> None:
        """A walk over many rows makes way for others after each slice."""
        limits = self.app.broker.nodes["orders"].limits
        for number in range(300):
            self.app.broker.make_internal(f"amqp$out/h{number}", limits)
        turns = self.management.turns
        pause = turns.pause
        kinds: list[StepKind] = []

        def counted(kind: StepKind, source: str) -> Deferred[None]:
            kinds.append(kind)
            return pause(kind, source)

        self.patch(turns, "pause", counted)
        answer = await self.by_http("GET", "/api/v1/queues?consumers=5")
        self.assertEqual(answer.json()["items"], [])
        self.assertGreaterEqual(kinds.count("rows"), 300 // SLICE_ROWS)


class DocumentTests(DoorsCase):
    """The OpenAPI document."""

    async def test_document(self) -> None:
        """It is valid OpenAPI 3.1, open to all, and has each operation."""
        answer = await self.by_http("GET", "/api/v1/openapi.json", who="")
        document = answer.json()
        self.assertEqual(document, json.loads(json.dumps(openapi())))
        OpenAPIV31SpecValidator(document).validate()
        ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
        self.assertEqual(len(ids), len(set(ids)))
        said = {(path, method.upper()) for path, at in document["paths"].items() for method in at}
        self.assertLessEqual({(path_of(*form), form[0].method) for form in forms()}, said)

    async def test_document_and_site_agree(self) -> None:
        """Each path of the document is served, with these methods and no others."""
        for path, methods in openapi()["paths"].items():  # type: ignore[attr-defined]
            found = self.app.web.site.find(tuple(path.removeprefix("/").split("/")))
            assert found is not None, path
            self.assertEqual(found[0].pattern, path)
            self.assertEqual({each.upper() for each in methods}, set(found[0].handlers))

    async def test_every_operation_is_in_reach(self) -> None:
        """There is no operation that only one door has."""
        offered = {*self.management.operations} - {"COMMIT-BRANCH"}
        reached = {operation.name for operation, _ in forms()}
        self.assertEqual(reached, set(OPERATIONS))
        self.assertLessEqual(offered, reached)

    async def test_parameters(self) -> None:
        """The parameters of the document are those that the node checks."""
        for operation, entity in forms():
            at = openapi()["paths"][path_of(operation, entity)][operation.method.lower()]  # type: ignore[index]
            body = at.get("requestBody", {}).get("content", {}).get("application/json", {})
            names = set(body.get("schema", {}).get("properties", {}))
            names |= {each["name"] for each in at["parameters"] if each["in"] == "query"}
            self.assertLessEqual({each.name for each in parameters_of(operation, entity)}, names)
