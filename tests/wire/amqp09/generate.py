# SPDX-License-Identifier: Apache-2.0
"""Generates `amqproute.wire.amqp09.methods` from ``facts.yaml``.

::

    python -m tests.wire.amqp09.generate > amqproute/wire/amqp09/methods.py
    ruff format amqproute/wire/amqp09/methods.py
"""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Any

import yaml

FACTS = Path(__file__).with_name("facts.yaml")

_TYPES = {
    "bit": ("bool", "False"),
    "octet": ("int", "0"),
    "short": ("int", "0"),
    "long": ("int", "0"),
    "longlong": ("int", "0"),
    "timestamp": ("int", "0"),
    "shortstr": ("str", '""'),
    "longstr": ("bytes", 'b""'),
    "table": ("FieldTable", "EMPTY_TABLE"),
    "content": ("InlineBody", "NO_BODY"),
}

_HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""The methods and properties of AMQP 0-9, 0-9-1 and their extensions.

Made by ``python -m tests.wire.amqp09.generate`` from ``tests/wire/amqp09/facts.yaml``: change those
and make it again. A test holds this module to what they give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from amqproute.wire.amqp09.field_tables import EMPTY_TABLE, FieldTable
from amqproute.wire.amqp09.shapes import (
    NO_BODY,
    AmqpMethod,
    ContentProperties,
    FieldKind,
    InlineBody,
    MethodTraits,
)
'''


def python_name(name: str) -> str:
    """Return a field's name in Python."""
    name = name.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def class_name(*names: str) -> str:
    """Return the name of a class: QueueDeclareOk."""
    return "".join(part.capitalize() for name in names for part in name.split("-"))


def reserved_fields(
    facts: dict[str, Any], kind: str, method: str, receiver: str, fields: dict[str, str]
) -> list[str]:
    """Return the fields of a method that 0-9-1 does not use."""
    names = [*facts["reserved"].get(f"{kind}.{method}", ())]
    if receiver == "server":
        names += facts["reserved"]["*"]
    return [python_name(name) for name in fields if name in names]


def _layout(fields: dict[str, str]) -> str:
    items = [f'("{python_name(name)}", FieldKind.{t.upper()}),' for name, t in fields.items()]
    return f"({' '.join(items)})"


def module(facts: dict[str, Any]) -> str:
    """Return the module's text, before it is formatted."""
    parts = [_HEAD]
    names = []
    for each in facts["classes"]:
        codes = {method[0]: each["id"] << 16 | method[1] for method in each["methods"]}
        for method, number, receiver, replies, flags, fields in each["methods"]:
            name = class_name(each["name"], method)
            names.append(name)
            way = {"server": "to the server", "client": "to the client", "both": "both ways"}
            doc = f"{each['name']}.{method}, {way[receiver]}"
            doc += f"; answered by {' or '.join(replies)}" if replies else ""
            reserved = reserved_fields(facts, each["name"], method, receiver, fields)
            traits = [f'"{each["name"]}.{method}"', str(each["id"]), str(number)]
            traits += [f"layout={_layout(fields)}"] if fields else []
            if replies:
                traits.append(
                    f"replies=frozenset(({' '.join(hex(codes[r]) + ',' for r in replies)}))"
                )
            traits += ["to_server=True"] if receiver in ("server", "both") else []
            traits += ["to_client=True"] if receiver in ("client", "both") else []
            traits += ["has_content=True"] if "content" in flags else []
            traits += ["only_0_9=True"] if "only-09" in flags else []
            if reserved:
                traits.append(
                    f"reserved=({' '.join(chr(34) + r + chr(34) + ',' for r in reserved)})"
                )
            parts.append(
                "\n\n@dataclass(slots=True, kw_only=True)\n"
                f"class {name}(AmqpMethod):\n"
                f'    """{doc}."""\n\n'
                f"    traits: ClassVar[MethodTraits] = MethodTraits({', '.join(traits)})\n"
                + "".join(
                    f"    {python_name(field)}: {_TYPES[kind][0]} = {_TYPES[kind][1]}\n"
                    for field, kind in fields.items()
                )
            )
    holders = []
    for each in facts["classes"]:
        if "properties" not in each:
            continue
        name = class_name(each["name"], "properties")
        holders.append(name)
        parts.append(
            "\n\n@dataclass(slots=True, kw_only=True)\n"
            f"class {name}(ContentProperties):\n"
            f'    """The properties of a content of class {each["name"]}."""\n\n'
            f"    class_id: ClassVar[int] = {each['id']}\n"
            "    layout: ClassVar[tuple[tuple[str, FieldKind], ...]] = "
            f"{_layout(each['properties'])}\n"
            + "".join(
                f"    {python_name(field)}: {_TYPES[kind][0]} | None = None\n"
                for field, kind in each["properties"].items()
            )
        )
    parts.append(
        "\n\nMETHODS: Final[dict[int, type[AmqpMethod]]] = {\n    each.traits.code: each\n"
        "    for each in (\n"
        + "".join(f"        {name},\n" for name in names)
        + '    )\n}\n"""All methods, by class id and method id."""\n\n'
        "PROPERTIES: Final[dict[int, type[ContentProperties]]] = {\n    each.class_id: each\n"
        "    for each in (\n"
        + "".join(f"        {name},\n" for name in holders)
        + '    )\n}\n"""The properties of each class that has contents, by class id."""\n\n'
        "REPLIES: Final = frozenset(\n"
        "    code for method in METHODS.values() for code in method.traits.replies\n)\n"
        '"""The codes of the methods that answer others."""\n'
    )
    everything = sorted(
        [*names, *holders, "METHODS", "PROPERTIES", "REPLIES"],
        key=lambda name: (not name.isupper(), name),
    )
    parts.append("\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in everything) + "]\n")
    return "".join(parts)


def main() -> None:
    """Print the module."""
    print(module(yaml.safe_load(FACTS.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
