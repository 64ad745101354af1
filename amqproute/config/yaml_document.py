# SPDX-License-Identifier: Apache-2.0
"""YAML: parsing text into data with line numbers, and writing the schema as text.

`read` composes the YAML tree and walks it instead of letting PyYAML build objects, for three
reasons: each key keeps its line; duplicate keys are found (PyYAML silently keeps the last one); and
only the plain types of the YAML 1.2 core schema are recognized, so that ``dnssec: off`` is a word,
a node may be called ``no`` and ``12:30`` is not 750.

A key without a value means its default. So the section headings of the shipped file can be in force
while the settings below them are commented out.

`describe` writes that file from the schema. Comment marks distinguish prose from settings: ``# ``
before prose, ``#`` directly before a setting, at the setting's own column. Removing the mark puts
the setting in force.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final, get_args

import yaml
from pydantic.fields import FieldInfo

from amqproute.config.config_source import Location
from amqproute.config.schema import Config
from amqproute.config.schema_base import InheritingSettings, Settings, is_at_start
from amqproute.config.value_references import has_reference, resolved

__all__ = [
    "ParsedDocument",
    "all_keys",
    "at_start_keys",
    "describe",
    "describe_reload",
    "keys_at",
    "plain_value",
    "read",
    "uncomment",
]

_DEEPEST: Final = 20
# Of brackets within brackets. The scanner looks at each that is open for every token.
_DEEPEST_BRACKETS: Final = 5 * _DEEPEST

_COLLECTIONS: Final = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

# Anchors let a short text expand to a tree of any size. What a text may expand to grows with it.
_MOST_LINES: Final = 500_000
_MOST_LINES_OF_SHORT: Final = 10_000
_MOST_LINES_FOR_EACH_CHARACTER: Final = 10


@dataclass(slots=True)
class ParsedDocument:
    """The result of `read`.

    Attributes:
        data: the settings as plain dicts, lists and scalars.
        lines: the line of each key and list item, by path.
        problems: line, path and text of each problem.
        references: values that refer to environment variables, as written.
        secrets: the values of these variables, with what to show instead.
        unresolved: paths of values whose references have problems.
        environ: the environment that values may refer to.
        most_lines: the bound of `lines`.
    """

    data: dict[str, object] = field(default_factory=dict)
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[tuple[int, Location, str]] = field(default_factory=list)
    references: dict[Location, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    unresolved: set[Location] = field(default_factory=set)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    most_lines: int = _MOST_LINES


class _CoreLoader(yaml.SafeLoader):
    """Resolves plain scalars by the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
        if self.flow_level >= _DEEPEST_BRACKETS:
            raise RecursionError
        super().fetch_flow_collection_start(TokenClass)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("null", r"~|null|Null|NULL|", "~nN"),
):
    _CoreLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), [*_first]
    )
_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])


def read(text: str, environ: Mapping[str, str] = MappingProxyType({})) -> ParsedDocument:
    """Parse the text of a configuration; problems are returned, never raised.

    Args:
        text: YAML.
        environ: the environment that values may refer to.
    """
    bound = max(_MOST_LINES_OF_SHORT, _MOST_LINES_FOR_EACH_CHARACTER * len(text))
    parsed = ParsedDocument(environ=environ, most_lines=min(bound, _MOST_LINES))
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        words = " ".join(part for part in (error.context, error.problem) if part)
        hint = "; indent with blanks, never with tabs" if "'\\t'" in words else ""
        parsed.problems.append((line, (), f"is not YAML: {words}{hint}"))
        return parsed
    except RecursionError:
        parsed.problems.append((1, (), "is nested too deeply"))
        return parsed
    except yaml.YAMLError as error:  # a character that YAML forbids
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
        words = str(error).splitlines()[0]
        parsed.problems.append((line, (), f"is not YAML: {words}"))
        return parsed
    if root is None or _is_null(root):
        return parsed
    parsed.lines[()] = root.start_mark.line + 1
    if isinstance(root, yaml.MappingNode):
        parsed.data = _mapping(root, (), parsed)
    else:
        parsed.problems.append(
            (parsed.lines[()], (), "has to be a map of keys and values, as in domains: [a.example]")
        )
    return parsed


def _compose(text: str) -> yaml.Node | None:
    loader = _CoreLoader(text)
    try:
        root: yaml.Node | None = loader.get_single_node()
        return root
    finally:
        loader.dispose()


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _mapping(node: yaml.MappingNode, at: Location, parsed: ParsedDocument) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            parsed.problems.append((line, at, "a key has to be text, not a list or a map"))
            continue
        key = key_node.value
        here = (*at, key)
        if here in parsed.lines:
            first = parsed.lines[here]
            parsed.problems.append((line, here, f"is given twice; the first is on line {first}"))
            continue
        parsed.lines[here] = line
        if has_reference(key):
            words = "a key takes no environment variable; write it out"
            parsed.problems.append((line, here, words))
            continue
        # A key without a value means its default; an unknown key still needs a value for the schema
        # to report.
        if _is_null(value_node) and (key in keys_at(at)):
            if inherits_at(at):  # there a key without a value differs from a missing one
                data[key] = None
            continue
        data[key] = _value(value_node, here, parsed)
    return data


def _value(node: yaml.Node, at: Location, parsed: ParsedDocument) -> Any:
    line = parsed.lines[at]
    if len(parsed.lines) > parsed.most_lines:
        if len(parsed.problems) < 1000:
            parsed.problems.append((line, at, "the file expands to too many values"))
        return None
    if len(at) > _DEEPEST:  # also an anchor that contains itself
        parsed.problems.append((line, at[:1], "is nested too deeply"))
        return None
    if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
        parsed.problems.append((line, at, f"the YAML tag {node.tag} has no meaning here"))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, at, parsed)
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            parsed.lines[(*at, index)] = item.start_mark.line + 1
            items.append(_value(item, (*at, index), parsed))
        return items
    return _scalar(node, at, parsed)


def _scalar(node: yaml.Node, at: Location, parsed: ParsedDocument) -> Any:
    text: str = node.value
    if has_reference(text):
        return _resolved(text, at, parsed)
    try:
        return _of_tag(node.tag, text)
    except KeyError:
        words = f"the YAML tag {node.tag} has no meaning here"
        parsed.problems.append((parsed.lines[at], at, words))
        return text


def _of_tag(tag: str, text: str) -> bool | int | float | str | None:
    match tag.removeprefix("tag:yaml.org,2002:"):
        case "str":
            return text
        case "bool":
            return text.lower() == "true"
        case "int":
            # int() raises for thousands of digits; as text they get a readable error.
            return text if len(text) > 100 else int(text, 0 if text[:2] in ("0o", "0x") else 10)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case "null":
            return None
    raise KeyError(tag)


def _resolved(text: str, at: Location, parsed: ParsedDocument) -> str:
    """Return a value with the variables that it refers to; it is text whatever they contain."""

    def complain(words: str) -> None:
        parsed.problems.append((parsed.lines[at], at, words))
        parsed.unresolved.add(at)

    value, used = resolved(text, parsed.environ, complain)
    if used:
        parsed.references[at] = text
    parsed.secrets.update({each: f"${{{name}}}" for name, each in used.items()})
    return value


def plain_value(text: str) -> bool | int | float | str | None:
    """Return the value of a text that stands in a file without quotes."""
    loader = _CoreLoader("")
    try:
        tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        return _of_tag(tag, text)
    finally:
        loader.dispose()


# --- the schema ----------------------------------------------------------------------------------


def keys_at(at: Location) -> list[str]:
    """Return the keys known at a place of the configuration, as written in the file."""
    model = _model_at(at)
    return [] if model is None else [info.alias or "" for info in model.model_fields.values()]


def inherits_at(at: Location) -> bool:
    """Return whether missing settings at this place come from a wider entry."""
    model = _model_at(at)
    return model is not None and issubclass(model, InheritingSettings)


def _model_at(at: Location) -> type[Settings] | None:
    """Return the model of a map; None where keys are free, or if the place holds no map."""
    model: type[Settings] | None = Config
    free = False
    for part in at:
        if model is None:
            return None
        if free:  # an index of a list, or a free key of a map
            free = False
            continue
        info = next((i for i in model.model_fields.values() if i.alias == part), None)
        if info is None:
            return None
        model = _model_of(info)
        free = model is not None and not isinstance(info.default, Settings)
    return None if free else model


@cache
def all_keys() -> tuple[tuple[str, ...], ...]:
    """Return every key of the schema with the keys above it, without indexes."""
    return tuple(key for key, _ in _all_settings(Config, ()))


@cache
def at_start_keys() -> frozenset[tuple[str, ...]]:
    """Return the keys of the settings that take effect at the next start, not on reload."""
    return frozenset(key for key, info in _all_settings(Config, ()) if is_at_start(info))


def _all_settings(
    model: type[Settings], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for info in model.model_fields.values():
        here = (*above, info.alias or "")
        yield here, info
        inner = _model_of(info)
        if inner is not None:
            yield from _all_settings(inner, here)


def _model_of(info: FieldInfo) -> type[Settings] | None:
    """Return the model of a section, or of the items of a list or map; None for a plain setting."""

    def search(annotation: Any) -> type[Settings] | None:
        if isinstance(annotation, type) and issubclass(annotation, Settings):
            return annotation
        for argument in get_args(annotation):
            found = search(argument)
            if found is not None:
                return found
        return None

    return search(info.annotation)


_HEAD: Final = """\
Configuration of amqproute.

Every setting is listed with its default, commented out: remove the # in front of a setting and
change the value. A key without a value means its default. Durations are written as 30s, 5m, 1h30m
or 5d, sizes as 64KiB or 16MiB; a bare number is seconds or bytes. Relative paths start from the
directory of this file, in the files that it includes as well.

In values, ${NAME} is the environment variable NAME, which has to be set, and $${ is the text ${.
Such values are never shown. Where a setting names a file, %d/NAME is the credential NAME that
systemd hands to the daemon (LoadCredential= in its unit).

After a change run: amqproute check --config FILE, then: systemctl reload amqproute. A reload puts
every setting in force except those marked as taking effect at the next start; the log and systemctl
status name the changes that wait for it."""

_AT_START: Final = "Takes effect at the next start."


def describe() -> str:
    """Return the configuration file with every setting, its description and its default."""
    defaults = Config().model_dump(mode="json", by_alias=True)
    parts = [_prose(_HEAD, 0)]
    for info in Config.model_fields.values():
        key = info.alias or ""
        parts.append("\n".join(_setting(key, info, defaults[key])))
    return "\n\n".join(parts) + "\n"


def _setting(key: str, info: FieldInfo, default: Any) -> Iterator[str]:
    yield _prose(_description(info), 0)
    model = _model_of(info)
    if model is not None and isinstance(info.default, Settings):
        yield f"{key}:"
        for inner in model.model_fields.values():
            yield _prose(_description(inner), 2)
            within = _model_of(inner)
            if within is not None:
                yield _prose("It has, or each entry has:", 2)
                for each in within.model_fields.values():
                    yield textwrap.indent(_entry(each), "  ")
            yield f"  #{inner.alias}: {_flow(default[inner.alias])}"
        return
    if model is not None:
        yield _prose("Each entry has:", 0)
        for inner in model.model_fields.values():
            yield _entry(inner)
    if default and isinstance(default, list):
        yield f"#{key}:"
        for item in default:
            yield f"#  - {_flow(item)}"
        return
    yield f"#{key}: {_flow(default)}"


def _description(info: FieldInfo) -> str:
    return " ".join(filter(None, (info.description, _AT_START if is_at_start(info) else "")))


def _entry(info: FieldInfo) -> str:
    is_plain = not (info.is_required() or isinstance(info.default, Settings))
    default = f" Default: {_flow(_plain(info.default))}." if is_plain else ""
    lines = [_prose(f"{info.alias}: {_description(info)}{default}", 0, hanging=True)]
    model = _model_of(info) if info.is_required() else None
    for inner in () if model is None else model.model_fields.values():
        lines += [
            f"#  {line[1:]}"
            for line in _prose(
                f"{inner.alias}: {_description(inner)}", 0, hanging=True
            ).splitlines()
        ]
    return "\n".join(lines)


_RELOAD_HEAD: Final = """\
# What a reload puts in force

Generated from the schema of the settings by `python -m amqproute.config reload`.

On `systemctl reload amqproute` or SIGHUP, the daemon reads its configuration file again, and the
files named there. Either all changes take effect or none: every part of the daemon first checks its
change, and if one of them cannot apply it, the whole reload is refused. The log then has the line
`reload refused, the old configuration stays` with the reason, and `systemctl status` shows it until
a reload succeeds.

Where a restart is needed, the running values stay in force in every part of the daemon. The log
says `changes of SETTINGS take effect at the next start`, and `systemctl status` shows
`waiting for a restart` with these settings until the daemon is restarted or the file has its
former values.

Listeners are matched by their `endpoint`. Reloadable changes of open listeners take effect at once;
a new listener opens at the next start, and a removed one stays open until then. Adding the first
certificate under `tls`, or removing it, takes effect at the next start, with all of `tls`.

| setting | needs |
|---|---|
"""


def describe_reload() -> str:
    """Return the page that says for each setting whether it needs a reload or a restart."""
    rows = []
    keys = all_keys()
    for key in keys:
        if not any(other != key and other[: len(key)] == key for other in keys):
            need = "restart" if key in at_start_keys() else "reload"
            rows.append(f"| `{'.'.join(key)}` | {need} |\n")
    return _RELOAD_HEAD + "".join(rows)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _prose(text: str, indent: int, *, hanging: bool = False) -> str:
    start = " " * indent + "# "
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        if lines:
            lines.append(start.rstrip())
        lines += textwrap.wrap(
            " ".join(paragraph.split()),
            width=96,
            initial_indent=start + ("  " if hanging else ""),
            subsequent_indent=start + ("    " if hanging else ""),
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(lines)


def _flow(value: Any) -> str:
    """Format a value on one line, quoted only where YAML requires it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            # Defaults are omitted inside an entry, so that its distinctive settings stand out.
            return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(_flow(item) for item in value) + "]"
        case str():
            return (
                value
                if re.fullmatch(r"[A-Za-z/][\w./$@=-]*|[0-9]+[A-Za-z]+", value)
                else json.dumps(value)
            )
    return str(value)


def uncomment(text: str) -> str:
    """Put every setting of a generated file in force; prose remains a comment."""
    return re.sub(r"^( *)#(?=\S)", r"\1", re.sub(r"^#(?=  - )", "", text, flags=re.M), flags=re.M)
