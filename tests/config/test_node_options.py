# SPDX-License-Identifier: Apache-2.0
"""What management says of the options of nodes is what the configuration takes."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config.node_settings import NodeSettings
from amqproute.http.openapi import openapi
from amqproute.services.node_option_declarations import NODE_OPTIONS
from amqproute.services.value_declaration import ValueType

_TYPES = {
    ValueType.TEXT: "string",
    ValueType.NUMBER: "integer",
    ValueType.SIZE: "integer",
    ValueType.DURATION: "number",
    ValueType.BOOLEAN: "boolean",
    ValueType.TEXTS: "array",
}


def settings() -> dict[str, dict[str, Any]]:
    """Return the schema of each setting of a node, without null."""
    schema = NodeSettings.model_json_schema()["properties"]
    return {
        name: next((one for one in each.get("anyOf", ()) if one["type"] != "null"), each)
        for name, each in schema.items()
        if name != "name"
    }


class NodeOptionTests(SynchronousTestCase):
    """The declarations."""

    def test_same(self) -> None:
        """Names in order, types, bounds and choices are those of the settings."""
        found = settings()
        self.assertEqual([each.name for each in NODE_OPTIONS], list(found))
        for each in NODE_OPTIONS:
            schema = found[each.name]
            self.assertEqual(_TYPES[each.type], schema["type"], each.name)
            self.assertEqual(each.least, schema.get("minimum"), each.name)
            self.assertEqual(each.most, schema.get("maximum"), each.name)
            self.assertEqual(each.shortest, schema.get("minLength", 0), each.name)
            self.assertEqual(list(each.choices), schema.get("enum", []), each.name)

    def test_units(self) -> None:
        """Durations and sizes may be numbers or texts with a unit, in both."""
        for name, good, wrong in (
            ("ttl", (30, 1.5, "2h"), (True, [30])),
            ("subscriber-buffer-bytes", (8192, "8MiB"), (True, 1)),
        ):
            (declared,) = (each for each in NODE_OPTIONS if each.name == name)
            for value in good:
                self.assertTrue(declared.fits(value), (name, value))
                NodeSettings.model_validate({"name": "q", name: value})
            for value in wrong:
                self.assertFalse(declared.fits(value), (name, value))
                with self.assertRaises(ValidationError, msg=f"{name} {value}"):
                    NodeSettings.model_validate({"name": "q", name: value})

    def test_document(self) -> None:
        """The OpenAPI document has all of them for queues, and takes no others."""
        document: Any = openapi()
        for method in ("put", "patch"):
            at = document["paths"]["/api/v1/queues/{name}"][method]["requestBody"]
            body = at["content"]["application/json"]["schema"]
            self.assertFalse(body["additionalProperties"])
            self.assertLessEqual({each.name for each in NODE_OPTIONS}, set(body["properties"]))
            self.assertEqual(body["properties"]["capacity"]["type"], ["integer", "null"])
            self.assertEqual(body["properties"]["capacity"]["minimum"], 1)
            self.assertEqual(body["properties"]["ttl"]["type"], ["number", "string", "null"])
