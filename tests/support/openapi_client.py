# SPDX-License-Identifier: Apache-2.0
"""A client of an HTTP API that knows nothing but its OpenAPI document.

Paths, parameters, bodies, statuses and schemas of answers are those of the document; an answer that
it does not describe is an error. So a test with it proves that the document suffices.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.support.patience import PATIENCE

__all__ = ["ApiProblem", "OpenApiClient"]

DOCUMENT = "/api/v1/openapi.json"


class ApiProblem(Exception):
    """The answer is a problem (RFC 9457)."""

    def __init__(self, status: int, facts: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {facts.get('detail')}")
        self.status = status
        self.facts = facts


class OpenApiClient:
    """Calls operations by the ids in the document.

    Args:
        site: where the API is, as ``http://127.0.0.1:8080``.
        user: for Basic.
        password: likewise.
    """

    def __init__(self, site: str, user: str, password: str) -> None:
        self._site = site
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {login}"}
        with urllib.request.urlopen(f"{site}{DOCUMENT}", timeout=PATIENCE) as answer:
            self.document: Mapping[str, Any] = json.load(answer)
        resource = Resource.from_contents(self.document, default_specification=DRAFT202012)
        self._registry = Registry().with_resource("urn:api", resource)
        self._operations = {
            operation["operationId"]: (path, method.upper(), operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        }

    def operations_about(self, word: str) -> list[str]:
        """Return the ids of operations whose summary has a word in it."""
        return [
            name for name, (_, _, facts) in self._operations.items() if word in facts["summary"]
        ]

    def call(self, operation_id: str, /, **values: Any) -> Any:
        """Carry out an operation; return the body of its answer.

        Args:
            operation_id: in the document.
            values: of parameters and members of the body; an underscore stands for a hyphen.

        Raises:
            ApiProblem: it was refused.
            AssertionError: the document does not have the operation, a parameter, or the answer.
        """
        path, method, operation = self._operations[operation_id]
        given = {name.replace("_", "-"): value for name, value in values.items()}
        query: dict[str, str] = {}
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            if name not in given:
                assert not parameter.get("required"), f"{operation_id} needs {name}"
                continue
            value = given.pop(name)
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", urllib.parse.quote(str(value), safe=""))
            else:
                query[name] = value if isinstance(value, str) else json.dumps(value)
        body = None
        if given or "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            self._check(schema, given)
            body = json.dumps(given).encode()
        url = f"{self._site}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {**self._headers, **({"Content-Type": "application/json"} if body else {})}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                status, octets = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            facts = json.loads(error.read())
            kind = error.headers.get_content_type()
            self._expect(operation, error.code, kind, facts)
            if kind != "application/problem+json":
                return facts  # a finding, such as that of a check that has failed
            raise ApiProblem(error.code, facts) from None
        found = json.loads(octets) if octets else None
        self._expect(operation, status, "application/json", found)
        return found

    def _expect(self, operation: Mapping[str, Any], status: int, kind: str, body: Any) -> None:
        """Check that the document describes an answer."""
        described = operation["responses"].get(str(status))
        assert described is not None, f"{operation['operationId']}: {status} is not described"
        if "$ref" in described:
            described = self._at(described["$ref"])
        content = described.get("content", {}).get(kind)
        if content is not None:
            self._check(content["schema"], body)

    def _at(self, reference: str) -> Mapping[str, Any]:
        found: Any = self.document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert isinstance(found, Mapping)
        return found

    def _check(self, schema: Mapping[str, Any], value: Any) -> None:
        """Check a value by a schema of the document."""
        validator = Draft202012Validator(_absolute(schema), registry=self._registry)
        errors = [f"{each.json_path}: {each.message}" for each in validator.iter_errors(value)]
        assert not errors, errors


def _absolute(schema: Any) -> Any:
    """Return a schema whose references lead into the document."""
    if isinstance(schema, Mapping):
        return {
            key: f"urn:api{value}" if key == "$ref" else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(each) for each in schema] if isinstance(schema, list) else schema
