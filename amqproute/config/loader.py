# SPDX-License-Identifier: Apache-2.0
"""Finds and reads the configuration file, and reports every problem at once.

Three steps, in this order:

* `loads`: is it a configuration? YAML, known keys, types, units, names, references between
  settings. Every problem is collected; any of them raises `ConfigError`.
* `check_files`: do the named files exist, and are they readable? Separate from `loads`, because
  ``explain`` and ``dns print`` must work on a machine without the private key.
* `advise`: is it likely to be what the operator wants? Nothing here stops the daemon.

Each problem is one line: ``FILE:LINE: key: problem; correction``.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from amqproute.config import units, yaml_document
from amqproute.config.access_settings import ListenSettings
from amqproute.config.config_files import MergedDocument, merged_text, read_files
from amqproute.config.config_source import ConfigPlace, ConfigSource, Location, dotted
from amqproute.config.endpoint import parse_endpoint
from amqproute.config.field_types import SYSTEM_TRUST, is_own_url
from amqproute.config.node_settings import BindingSettings, NodeSettings
from amqproute.config.routing_settings import RouteSettings
from amqproute.config.schema import Config
from amqproute.config.schema_base import Settings
from amqproute.config.value_references import (
    CREDENTIALS,
    CREDENTIALS_VARIABLE,
    credentials_directory,
    is_unresolved,
)
from amqproute.errors import ConfigError

__all__ = [
    "DEFAULT_PATH",
    "ConfigProblem",
    "advise",
    "check_files",
    "find",
    "load",
    "loads",
    "read_node",
    "unresolved_credentials",
]

DEFAULT_PATH: Final = Path("/etc/amqproute/amqproute.yaml")

ENVIRONMENT_VARIABLE: Final = "AMQPROUTE_CONFIG"

MOST_OPTIONS: Final = 200
"""Options of an entity that is made or changed at runtime."""
MOST_SHOWN: Final = 10
"""Problems of such options that are put into words: a guess at a name takes half a millisecond."""
LONGEST_GUESSED: Final = 64
"""Characters of a word for which one like it is looked for."""
LONGEST_SHOWN: Final = 200
"""Characters that are shown of a wrong value."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One problem, certain or possible.

    Attributes:
        file: the file of the key; the main file if no file has it.
        line: the line of the key, from 1; also 1 if no file has it.
        key: the dotted key, as in ``listen[0].tls``; empty for the file as a whole.
        message: the problem and, after a semicolon, the correction.
    """

    file: Path
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}: {key}{self.message}"


def find(explicit: Path | str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the configuration file: `explicit`, ``$AMQPROUTE_CONFIG`` or the default.

    Raises:
        ConfigError: the first of these that is given does not exist, or this user has no access to
            it.
    """
    if explicit is not None:
        path, reason = Path(explicit), "given with --config"
    elif environ.get(ENVIRONMENT_VARIABLE):
        path, reason = Path(environ[ENVIRONMENT_VARIABLE]), f"named by ${ENVIRONMENT_VARIABLE}"
    else:
        path = DEFAULT_PATH
        reason = f"the usual place; give another with --config FILE or ${ENVIRONMENT_VARIABLE}"
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError([f"{path}:1: there is no such file ({reason})"]) from None
    except OSError as error:
        words = f"cannot be read by this user: {error.strerror or error} ({reason})"
        raise ConfigError([f"{path}:1: {words}"]) from None
    return path


def load(path: Path | str, environ: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration file, and the files that it includes.

    Args:
        path: the main file.
        environ: the environment, which values may refer to.

    Raises:
        ConfigError: a file cannot be read, or the settings are refused.
    """
    return _validated(read_files(Path(path), environ), environ)


def loads(text: str, path: Path | str, environ: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration from text, without the files that it includes.

    Args:
        text: YAML; empty text gives the defaults.
        path: the file of the text, for messages; relative paths start from its directory.
        environ: the environment, which values may refer to.

    Raises:
        ConfigError: with all problems found.
    """
    return _validated(merged_text(text, Path(path), environ), environ)


def _validated(merged: MergedDocument, environ: Mapping[str, str]) -> Config:
    """Return the settings of a document.

    Raises:
        ConfigError: with all problems found.
    """
    problems = [
        ConfigProblem(place.file, place.line, dotted(at), words)
        for place, at, words in merged.problems
    ]
    config = None
    try:
        config = _model_of(merged, environ)
    except ValidationError as error:
        details = error.errors()
        found = [_place_of(detail) for detail in details]
        given = ConfigSource(merged.path, (), merged.places)
        for at, detail in zip(found, details, strict=True):
            # A list whose every item is refused counts as empty; the items' errors are enough.
            echo = at in merged.unresolved or (
                detail["type"] == "too_short"
                and any(other[: len(at)] == at and len(other) > len(at) for other in found)
            )
            if not echo:
                place = given.place_of(at)
                is_hidden = at in merged.places and merged.places[at].is_hidden
                words = (
                    _hidden_words(detail, merged.places[at]) if is_hidden else _words(at, detail)
                )
                problems.append(ConfigProblem(place.file, place.line, dotted(at), words))
    if config is not None:
        places = _places_in(config, merged)
        source = ConfigSource(merged.path, tuple(merged.files), places, merged.secrets)
        config = config.with_source(source)
        problems += _cross_checks(config)
    if config is None or problems:
        order = {file: number for number, file in enumerate(merged.files)}
        problems.sort(key=lambda problem: (order.get(problem.file, 0), problem.line))
        hide = ConfigSource(secrets=merged.secrets).without_secrets
        texts = dict.fromkeys(hide(str(each)) for each in problems)
        raise ConfigError(list(texts))
    return config


def _model_of(merged: MergedDocument, environ: Mapping[str, str]) -> Config:
    """Validate a document.

    Values out of the environment are text. Where a setting takes none, they count as if they stood
    in the file without quotes.
    """
    context = {
        "directory": merged.path.parent,
        "credentials": credentials_directory(environ),
    }
    try:
        return Config.model_validate(merged.data, by_alias=True, by_name=False, context=context)
    except ValidationError as error:
        converted = [
            _convert(merged.data, at)
            for at in map(_place_of, error.errors())
            if at in merged.places and merged.places[at].is_hidden
        ]
        if not any(converted):
            raise
    return Config.model_validate(merged.data, by_alias=True, by_name=False, context=context)


def _convert(data: object, at: Location) -> bool:
    """Turn the text at a place into a number or true or false; return whether it is one."""
    *above, last = at
    for part in above:
        data = data[part]  # type: ignore[index]
    text = data[last]  # type: ignore[index]
    value = yaml_document.plain_value(text) if isinstance(text, str) else None
    if value is None or isinstance(value, str):
        return False
    data[last] = value  # type: ignore[index]
    return True


def _places_in(config: Config, merged: MergedDocument) -> dict[Location, ConfigPlace]:
    """Return the places of the settings, by the keys that the configuration has for them."""
    renamed: dict[Location, str] = {}
    credentials: dict[Location, str] = {}

    def walk(given: object, value: object, at: Location) -> None:
        if isinstance(value, Settings) and isinstance(given, dict):
            for name, info in type(value).model_fields.items():
                if info.alias in given:
                    walk(given[info.alias], getattr(value, name), (*at, info.alias or name))
        elif isinstance(value, dict) and isinstance(given, dict):
            for (key, inner), (new, each) in zip(given.items(), value.items(), strict=False):
                if key != new:
                    renamed[*at, key] = new
                walk(inner, each, (*at, key))
        elif isinstance(value, tuple | list) and isinstance(given, list):
            for index, (inner, each) in enumerate(zip(given, value, strict=False)):
                walk(inner, each, (*at, index))
        elif (
            isinstance(given, str)
            and given.startswith(CREDENTIALS)
            and (isinstance(value, Path) or value != given)
        ):
            credentials[at] = given

    walk(merged.data, config, ())
    places = {}
    for at, place in merged.places.items():
        if at in credentials and not place.reference:
            place = replace(place, reference=credentials[at])
        places[tuple(renamed.get(at[: n + 1], part) for n, part in enumerate(at))] = place
    return places


def _given(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that have values.

    Raises:
        ConfigError: there are more than `MOST_OPTIONS`.
    """
    if len(options) > MOST_OPTIONS:
        raise ConfigError([f"{len(options)} options are given; at most {MOST_OPTIONS} are taken"])
    return {key: value for key, value in options.items() if value is not None}


def _first_words(error: ValidationError) -> list[str]:
    """Return the words for the first problems of an entity: a guess at a name takes long."""
    found = [(_place_of(detail), detail) for detail in error.errors()[:MOST_SHOWN]]
    words = [f"{dotted(at[2:])}: {_words(at, detail)}" for at, detail in found]
    more = error.error_count() - len(words)
    return [*words, f"and {more} more"] if more > 0 else words


def read_node(options: Mapping[str, object]) -> NodeSettings:
    """Return the settings of a node created at runtime, as if it were under `nodes`.

    Args:
        options: its keys and values; `dead-letter` is not resolved.

    Raises:
        ConfigError: with the first problems found, each beginning with its key.
    """
    data = _given(options)
    try:
        config = Config.model_validate({"nodes": [data]}, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ConfigError(_first_words(error)) from None
    here = ConfigPlace(Path(), 1)
    places: dict[Location, ConfigPlace] = {("nodes", 0, key): here for key in data}
    place = _Place(config.with_source(ConfigSource(places=places)))
    problems = [
        f"{problem.key.removeprefix('nodes[0].')}: {problem.message}"
        for problem in _check_topics(config.nodes, ("nodes",), place)
    ]
    if problems:
        raise ConfigError(problems)
    return config.nodes[0]


def read_route(options: Mapping[str, object]) -> RouteSettings:
    """Return the settings of a route created at runtime, as if it were under `routes`.

    Raises:
        ConfigError: with the first problems found, each beginning with its key.
    """
    data = _given(options)
    try:
        config = Config.model_validate({"routes": [data]}, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ConfigError(_first_words(error)) from None
    return config.routes[0]


# --- errors of pydantic as text -----------------------------------------------------------------


def _place_of(detail: ErrorDetails) -> Location:
    return tuple(part for part in detail["loc"] if part != "[key]")


def _words(at: Location, detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return _unknown_key(at)
        case "missing":
            return "is missing; it has no default"
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return _not_one_of(value, re.findall(r"'([^']*)'", context["expected"]))
        case "too_short" | "string_too_short":
            return "is empty; give at least one"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            word = _COMPARISONS[kind]
            return f"{_shown(value)} is out of range; it has to be {word} {_bound(value, context)}"
    wanted = _WANTED.get(kind)
    if wanted is None:
        return f"{value!r}: {_lower(detail['msg'])}"
    hint = ""
    if wanted in ("text", "the path of a file") and isinstance(value, bool | int | float):
        hint = "; put it in quotes"
    elif wanted == "a list" and not isinstance(value, dict):
        hint = f"; write [{value}]"
    return f"has to be {wanted}, not {_kind_of(value)}{hint}"


def _hidden_words(detail: ErrorDetails, place: ConfigPlace) -> str:
    """Return the problem with a value out of the environment, without the value."""
    kind, context = detail["type"], detail.get("ctx", {})
    shown = place.reference
    match kind:
        case "literal_error":
            words = re.findall(r"'([^']*)'", context["expected"])
            return f"{shown} is not one of {', '.join(words)}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            bound = _bound(detail["input"], context)
            return f"{shown} is out of range; it has to be {_COMPARISONS[kind]} {bound}"
    if kind in _WANTED:
        return f"{shown} has to be {_WANTED[kind]}"
    return f"{shown} is not valid here; its value is not shown, since it may be a secret"


_WANTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a map of keys and values",
    "model_type": "a map of keys and values",
    "model_attributes_type": "a map of keys and values",
    "path_type": "the path of a file",
    "is_instance_of": "the path of a file",
}
_COMPARISONS: Final = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}


def _shown(value: object) -> str:
    """Return a value as the file has it, or as it could be written there."""
    if isinstance(value, float):  # only durations are fractional
        return units.format_seconds(value)
    return str(value)


def _bound(value: object, context: Mapping[str, object]) -> str:
    bound = next(context[name] for name in ("gt", "ge", "lt", "le") if name in context)
    if isinstance(value, float) and isinstance(bound, int | float):
        return units.format_seconds(bound)
    return str(bound)


def _not_one_of(value: object, words: list[str]) -> str:
    lowered = {word.lower(): word for word in words}
    guess = _close_to(str(value).lower(), lowered)
    hint = f"; did you mean {lowered[guess[0]]}?" if guess else ""
    shown = repr(value)
    if len(shown) > LONGEST_SHOWN:
        shown = f"{shown[:LONGEST_SHOWN]}..."
    return f"{shown} is not one of {', '.join(words)}{hint}"


def _close_to(word: str, words: Iterable[str], likeness: float = 0.6) -> list[str]:
    """Return the one of these words that was probably meant, if any; a long word has none."""
    if len(word) > LONGEST_GUESSED:
        return []
    return difflib.get_close_matches(word, list(words), 1, likeness)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, dict):
        return "a map"
    return "a list" if isinstance(value, list | tuple) else "nothing"


def _unknown_key(at: Location) -> str:
    key = str(at[-1])
    siblings = yaml_document.keys_at(at[:-1])
    elsewhere = [path for path in yaml_document.all_keys() if path[-1] == key and len(path) > 1]
    # A key that exists elsewhere is more likely misplaced than misspelled.
    likeness = 0.8 if elsewhere else 0.6
    guess = _close_to(key.replace("_", "-").lower(), siblings, likeness)
    if guess:
        return f"unknown key; did you mean {guess[0]}?"
    if elsewhere:
        return f"unknown key here; it belongs under {' or '.join(p[0] for p in elsewhere)}"
    guess = _close_to(key, {path[-1] for path in yaml_document.all_keys()}, 0.8)
    if guess:
        owner = next(path for path in yaml_document.all_keys() if path[-1] == guess[0])
        return f"unknown key; did you mean {'.'.join(owner)}?"
    return "unknown key" + (f"; known here are {', '.join(siblings)}" if siblings else "")


# --- checks across settings ----------------------------------------------------------------------


class _Place:
    """Makes problems of one configuration, with the lines of their keys."""

    def __init__(self, config: Config) -> None:
        self._source = config.source

    def problem(self, at: Location, message: str) -> ConfigProblem:
        place = self._source.place_of(at)
        words = self._source.without_secrets(message)
        return ConfigProblem(place.file, place.line, dotted(at), words)

    def is_given(self, at: Location) -> bool:
        return at in self._source.places


def _cross_checks(config: Config) -> list[ConfigProblem]:
    place = _Place(config)
    return [
        *_check_tls(config, place),
        *_check_listen(config, place),
        *_check_nodes(config, place),
        *_check_topics(config.nodes, ("nodes",), place),
        *_check_virtual_hosts(config, place),
        *_check_bindings(config, place),
        *_check_policies(config, place),
        *_check_relay(config, place),
        *_check_peers(config, place),
        *_check_management(config, place),
        *_check_realms(config, place),
        *_check_tracing(config, place),
    ]


def _check_tls(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    if (config.tls.certificate is None) != (config.tls.private_key is None):
        given, other = (
            ("certificate", "private-key")
            if config.tls.private_key is None
            else ("private-key", "certificate")
        )
        yield place.problem(("tls", given), f"needs tls.{other} beside it")


def _check_peers(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    for domain, peer in config.peers.items():
        at: Location = ("peers", domain)
        if peer.level == "pin" and not peer.pin:
            yield place.problem((*at, "level"), "pin needs a list of pins; give pin: [sha256:...]")
        if peer.pin and peer.level != "pin":
            level = config.peer_for(domain).level
            yield place.problem((*at, "pin"), f"has no meaning with level {level}; write pin")
        if peer.level == "pin" and "*" in domain:
            yield place.problem((*at, "level"), "pin is for one domain; write its name, no star")
        if peer.container_id is not None and "*" in domain:
            words = "is the name of one broker; write its domain, no star"
            yield place.problem((*at, "container-id"), words)
        if peer.level == "dane" and config.resolver.dnssec == "off":
            yield place.problem((*at, "level"), "dane needs resolver.dnssec: use or require")


def _check_management(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    management = config.management
    if management.http is None:
        return
    at: Location = ("management",)
    endpoint = parse_endpoint(management.http)
    if any(listen.endpoint == management.http for listen in config.listen):
        yield place.problem((*at, "http"), "is an endpoint under listen as well; name another one")
    if management.tls == "none":
        if not endpoint.is_loopback:
            yield place.problem(
                (*at, "http"),
                "passwords would cross the network unencrypted; write management.tls: implicit, "
                "or an address of this machine, as in tcp:9672:interface=127.0.0.1",
            )
        if management.client_certificate != "none":
            yield place.problem(
                (*at, "client-certificate"), "needs management.tls: implicit beside it"
            )
    elif endpoint.is_unix:
        yield place.problem((*at, "tls"), "has no meaning on a unix socket; write none")
    elif config.tls.certificate is None:
        yield place.problem((*at, "tls"), "needs tls.certificate and tls.private-key")
    if endpoint.is_unix and management.proxy_protocol:
        yield place.problem((*at, "proxy-protocol"), "has no meaning for a unix socket")


def _check_realms(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    users = config.users
    if users.token_passwords and not users.issuers and not users.realms:
        words = "needs an issuer of tokens under users.issuers"
        yield place.problem(("users", "token-passwords"), words)
    issuers: dict[str, str] = {}
    for name, each in users.issuers.items():
        at: Location = ("users", "issuers", name, "issuer")
        if each.issuer in issuers:
            yield place.problem(at, f"is that of {issuers[each.issuer]!r} already")
        issuers.setdefault(each.issuer, name)


def _check_tracing(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    tracing = config.tracing
    at: Location = ("tracing",)
    if tracing.enabled and not config.journal.enabled:
        yield place.problem((*at, "enabled"), "needs journal.enabled: spans are made from it")
    is_encrypted = tracing.endpoint.startswith("https:")
    if tracing.headers_file is not None and not is_encrypted and not is_own_url(tracing.endpoint):
        words = "would cross the network unencrypted; write an endpoint with https"
        yield place.problem((*at, "headers-file"), words)
    if (tracing.certificate is None) != (tracing.private_key is None):
        given, other = "certificate", "private-key"
        if tracing.certificate is None:
            given, other = other, given
        yield place.problem((*at, given), f"needs tracing.{other} beside it")
    for name in ("trust", "certificate"):
        if getattr(tracing, name) not in (None, SYSTEM_TRUST) and not is_encrypted:
            yield place.problem((*at, name), "has no meaning without https in tracing.endpoint")


def _check_listen(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    seen: dict[str, int] = {}
    for index, listen in enumerate(config.listen):
        at: Location = ("listen", index)
        if listen.endpoint in seen:
            yield place.problem(
                (*at, "endpoint"), f"is the same as listen[{seen[listen.endpoint]}].endpoint"
            )
        seen.setdefault(listen.endpoint, index)
        yield from _check_one_listen(config, listen, place, at)


def _check_one_listen(
    config: Config, listen: ListenSettings, place: _Place, at: Location
) -> Iterator[ConfigProblem]:
    is_unix = listen.parsed.is_unix
    if is_unix and listen.tls != "none":
        yield place.problem((*at, "tls"), "a unix socket carries no TLS; write none")
    elif listen.tls != "none" and config.tls.certificate is None:
        yield place.problem(
            (*at, "tls"),
            f"{listen.tls} needs a certificate; give tls.certificate and tls.private-key",
        )
    if listen.client_certificate != "none" and listen.tls == "none":
        yield place.problem(
            (*at, "client-certificate"), "needs TLS; write tls: implicit or tls: upgrade"
        )
    proven = listen.client_certificate != "none" or is_unix
    if "EXTERNAL" in listen.mechanisms and not proven:
        yield place.problem(
            (*at, "mechanisms"),
            "EXTERNAL needs a unix socket, or TLS with client-certificate: optional or required",
        )
    if not config.users.issuers and not config.users.realms:
        for index, name in enumerate(listen.mechanisms):
            if name in ("OAUTHBEARER", "XOAUTH2"):
                words = f"{name} needs an issuer of tokens under users.issuers"
                yield place.problem((*at, "mechanisms", index), words)
    if len(set(listen.mechanisms)) != len(listen.mechanisms):
        yield place.problem((*at, "mechanisms"), "names a mechanism twice")
    if is_unix and listen.proxy_protocol:
        yield place.problem((*at, "proxy-protocol"), "has no meaning for a unix socket")


def _check_nodes(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    names = {node.name for node in config.nodes}
    yield from _check_names(config.nodes, ("nodes",), place)
    for alias, target in config.aliases.items():
        at: Location = ("aliases", alias)
        if alias in names:
            yield place.problem(at, "is already the name of a node; a name means one node only")
        if target in config.aliases and alias != target:
            yield place.problem(at, f"{target!r} is an alias itself; name its node instead")
        elif target not in names:
            yield place.problem(at, f"there is no node {target!r}{_nearest(target, names)}")
    yield from _check_dead_letters(config.nodes, config.aliases, ("nodes",), place)


def _check_names(
    nodes: Sequence[NodeSettings], at: Location, place: _Place
) -> Iterator[ConfigProblem]:
    names: dict[str, int] = {}
    for index, node in enumerate(nodes):
        if node.name in names:
            words = f"{node.name!r} is already {dotted((*at, names[node.name]))}"
            yield place.problem((*at, index, "name"), words)
        names.setdefault(node.name, index)


def _check_dead_letters(
    nodes: Sequence[NodeSettings], aliases: Mapping[str, str], where: Location, place: _Place
) -> Iterator[ConfigProblem]:
    known = {*(node.name for node in nodes), *aliases}
    for index, node in enumerate(nodes):
        at = (*where, index, "dead-letter")
        if node.dead_letter is None:
            continue
        if node.dead_letter not in known:
            words = f"there is no node {node.dead_letter!r}{_nearest(node.dead_letter, known)}"
            yield place.problem(at, words)
        elif aliases.get(node.dead_letter, node.dead_letter) == node.name:
            yield place.problem(at, "is the node itself; its dead letters would never leave")


def _check_virtual_hosts(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    owners = dict.fromkeys(config.domains, "domains")
    for name, host in config.virtual_hosts.items():
        at: Location = ("virtual-hosts", name)
        if name.lower() in config.local_domains and name.lower() not in host.domains:
            words = "is one of our domains, which opens what it belongs to; choose another name"
            yield place.problem(at, words)
        for index, domain in enumerate(host.domains):
            if domain in owners:
                words = f"{domain} is in {owners[domain]} already; a domain leads to one place"
                yield place.problem((*at, "domains", index), words)
            owners.setdefault(domain, dotted((*at, "domains")))
        nodes_at = (*at, "nodes")
        yield from _check_names(host.nodes, nodes_at, place)
        yield from _check_dead_letters(host.nodes, {}, nodes_at, place)
        yield from _check_topics(host.nodes, nodes_at, place)
        if host.max_nodes is not None and len(host.nodes) > host.max_nodes:
            words = f"is less than the {len(host.nodes)} nodes under nodes"
            yield place.problem((*at, "max-nodes"), words)


_OF_TOPICS: Final = (
    "subscriber-buffer",
    "subscriber-buffer-bytes",
    "subscriber-full",
    "last-value",
    "last-value-key",
    "unroutable",
)
_OF_QUEUES: Final = (
    "max-deliveries",
    "dead-letter",
    "priorities",
    "message-durability-mode",
    "durable-on-transient",
    "duplicate-policy",
    "non-transactional-support",
    "maximum-destructive-links",
    "excess-destructive-link-policy",
    "archive-expired",
    "archive-currently-unreachable",
    "visibility",
    "default-outcomes",
)


def _check_topics(
    nodes: Sequence[NodeSettings], where: Location, place: _Place
) -> Iterator[ConfigProblem]:
    for index, node in enumerate(nodes):
        at = (*where, index)
        foreign, kind = (_OF_TOPICS, "topic") if node.type == "queue" else (_OF_QUEUES, "queue")
        for key in foreign:
            if place.is_given((*at, key)):
                yield place.problem((*at, key), f"means something for a {kind} only")
        transient = node.message_durability_mode == "force-transient"
        if node.durable_on_transient == "reject" and not transient:
            yield place.problem(
                (*at, "durable-on-transient"),
                "needs message-durability-mode: force-transient beside it",
            )
        if node.excess_destructive_link_policy == "wait" and not node.maximum_destructive_links:
            yield place.problem(
                (*at, "excess-destructive-link-policy"),
                "needs maximum-destructive-links beside it, 1 or more",
            )
        if len(set(node.default_outcomes)) != len(node.default_outcomes):
            yield place.problem((*at, "default-outcomes"), "names an outcome twice")
        if node.last_value_key is not None and not node.last_value:
            yield place.problem(
                (*at, "last-value-key"), "needs last-value beside it, as in last-value: 1"
            )


def _check_bindings(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    types = {node.name: node.type for node in config.nodes}
    known = {*types, *config.aliases}
    seen: dict[BindingSettings, int] = {}
    for index, binding in enumerate(config.bindings):
        at: Location = ("bindings", index)
        if binding in seen:
            yield place.problem(at, f"is the same as bindings[{seen[binding]}]")
        seen.setdefault(binding, index)
        if binding.source not in known:
            words = f"there is no node {binding.source!r}{_nearest(binding.source, known)}"
            yield place.problem((*at, "source"), words)
        if "@" not in binding.target and binding.target not in known:
            words = f"there is no node {binding.target!r}{_nearest(binding.target, known)}"
            yield place.problem((*at, "target"), words)
        kind = types.get(config.aliases.get(binding.source, binding.source), "")
        fits = {"topic": "copy", "queue": "move"}.get(kind)
        if binding.mode is not None and fits is not None and binding.mode != fits:
            yield place.problem((*at, "mode"), f"{binding.source} is a {kind}; write {fits}")
        if _leads_back(config, binding):
            yield place.problem((*at, "target"), "messages would come back to the source for ever")


_OF_EXCHANGES: Final = frozenset(("alternate-exchange",))
_OF_OPERATORS: Final = frozenset(
    ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit")
)


def _check_policies(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    seen: dict[tuple[bool, str, str], int] = {}
    for index, policy in enumerate(config.policies):
        at: Location = ("policies", index)
        key = (policy.operator, policy.virtual_host, policy.name)
        if key in seen:
            words = f"{policy.name!r} is already policies[{seen[key]}]"
            yield place.problem((*at, "name"), words)
        seen.setdefault(key, index)
        host = policy.virtual_host
        if host != "/" and host not in config.virtual_hosts:
            yield place.problem((*at, "virtual-host"), f"there is no virtual host {host!r}")
        said = policy.definition.model_dump(by_alias=True, exclude_none=True)
        if not said:
            yield place.problem((*at, "definition"), "says nothing")
        if policy.operator and policy.apply_to == "exchanges":
            yield place.problem((*at, "apply-to"), "an operator policy applies to queues")
            continue
        for name in said:
            words = ""
            if policy.operator and name not in _OF_OPERATORS:
                words = f"an operator policy says {', '.join(sorted(_OF_OPERATORS))}"
            elif policy.apply_to == "exchanges" and name not in _OF_EXCHANGES:
                words = "means something for queues only; apply-to is exchanges"
            elif policy.apply_to not in ("exchanges", "all") and name in _OF_EXCHANGES:
                words = f"means something for exchanges only; apply-to is {policy.apply_to}"
            if words:
                yield place.problem((*at, "definition", name), words)
        if said.get("dead-letter-exchange") == "" and "dead-letter-routing-key" not in said:
            words = "the default exchange needs dead-letter-routing-key, a queue's name, beside it"
            yield place.problem((*at, "definition", "dead-letter-exchange"), words)


def _leads_back(config: Config, binding: BindingSettings) -> bool:
    """Return whether messages on a binding would return to its source."""
    start = config.aliases.get(binding.source, binding.source)
    seen: set[str] = set()
    ahead = [config.aliases.get(binding.target, binding.target)]
    while ahead:
        name = ahead.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            ahead += [
                config.aliases.get(each.target, each.target)
                for each in config.bindings
                if config.aliases.get(each.source, each.source) == name
            ]
    return False


def _check_relay_dead_letter(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    name = config.relay.dead_letter
    names = {node.name for node in config.nodes} | set(config.aliases)
    if name is not None and name not in names:
        words = f"there is no node {name!r}{_nearest(name, names)}"
        yield place.problem(("relay", "dead-letter"), words)


def _nearest(name: str, names: Iterable[str]) -> str:
    guess = _close_to(name, names)
    return f"; did you mean {guess[0]}?" if guess else "; add it under nodes"


def _check_relay(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    yield from _check_relay_dead_letter(config, place)
    relay = config.relay
    if relay.first_retry > relay.last_retry:
        at: Location = ("relay", "first-retry")
        if not place.is_given(at):
            at = ("relay", "last-retry")
        yield place.problem(at, "relay.first-retry may not be longer than relay.last-retry")


# --- files named by the configuration -------------------------------------------------------------


def check_files(config: Config) -> list[ConfigProblem]:
    """Check that every named file exists and is readable by this user.

    The default users file may be missing if it is not set explicitly.
    """
    place = _Place(config)
    return [
        place.problem(at, words)
        for at, path in _named_files(config)
        if not is_unresolved(path) and (words := _what_is_wrong(path))
    ]


def unresolved_credentials(config: Config) -> list[ConfigProblem]:
    """Return a problem for each named file that is a credential, where there is no unit.

    The daemon cannot start with them. Elsewhere it is only not known whether they are right.
    """
    place = _Place(config)
    return [
        place.problem(
            at,
            f"{path} is a credential, and ${CREDENTIALS_VARIABLE} is not set or cannot be "
            "entered; systemd sets it for a unit with LoadCredential=",
        )
        for at, path in (*_named_files(config), *_credentials_of_plugins(config))
        if is_unresolved(path)
    ]


def _named_files(config: Config) -> list[tuple[Location, Path]]:
    files: list[tuple[Location, Path | None]] = [
        (("tls", "certificate"), config.tls.certificate),
        (("tls", "private-key"), config.tls.private_key),
        (("tls", "trust"), None if config.tls.trust == SYSTEM_TRUST else Path(config.tls.trust)),
        *((("tls", "crl", index), path) for index, path in enumerate(config.tls.crl)),
        (("resolver", "anchors"), config.resolver.anchors),
        *_files_of_realms(config),
    ]
    if config.tracing.enabled:
        tracing = config.tracing
        trust = None if tracing.trust == SYSTEM_TRUST else Path(tracing.trust)
        files += [
            (("tracing", "headers-file"), tracing.headers_file),
            (("tracing", "trust"), trust),
            (("tracing", "certificate"), tracing.certificate),
            (("tracing", "private-key"), tracing.private_key),
        ]
    if ("users", "file") in config.source.places or os.path.lexists(config.users.file):
        files.append((("users", "file"), config.users.file))
    return [(at, path) for at, path in files if path is not None]


def _files_of_realms(config: Config) -> Iterator[tuple[Location, Path | None]]:
    ldap = config.users.ldap
    if ldap is not None:
        at: Location = ("users", "ldap")
        yield (*at, "trust"), None if ldap.trust == SYSTEM_TRUST else Path(ldap.trust)
        yield (*at, "bind-password-file"), ldap.bind_password_file
    for name, each in config.users.issuers.items():
        at = ("users", "issuers", name)
        yield (*at, "trust"), None if each.trust == SYSTEM_TRUST else Path(each.trust)
        yield (*at, "keys-file"), each.keys_file


def _credentials_of_plugins(config: Config) -> Iterator[tuple[Location, Path]]:
    """Yield the credentials that settings of plug-ins name; other files only they know."""

    def walk(value: object, at: Location) -> Iterator[tuple[Location, Path]]:
        if isinstance(value, str) and value.startswith(CREDENTIALS):
            yield at, Path(value)
        elif isinstance(value, dict):
            for key, each in value.items():
                yield from walk(each, (*at, key))
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield from walk(each, (*at, index))

    for name, realm in config.users.realms.items():
        yield from walk(realm.settings, ("users", "realms", name, "settings"))


def _what_is_wrong(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return "" if stream.read(1) else f"{path} is empty"
    except IsADirectoryError:
        return f"{path} is a directory; name a file"
    except FileNotFoundError:
        return f"there is no file {path}"
    except PermissionError:
        return f"{path} cannot be read by this user (id {os.geteuid()}); check its owner and mode"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"


# --- advice -------------------------------------------------------------------------------------


def advise(config: Config) -> list[ConfigProblem]:
    """Return what is missing for federation, what cannot work, and what is dangerous.

    None of it stops the daemon; ``check`` prints it.
    """
    place = _Place(config)
    return [
        *_advise_federation(config, place),
        *_advise_listen(config, place),
        *_advise_targets(config, place),
        *_advise_realms(config, place),
        *_advise_management(config, place),
        *_advise_rest(config, place),
    ]


def _advise_federation(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    if not config.domains:
        yield place.problem(
            ("domains",), "is empty: no other domain can address nodes here; name your domain"
        )
    if config.tls.certificate is None:
        yield place.problem(
            ("tls", "certificate"),
            "is not given: this broker cannot prove its domain to others, nor offer TLS",
        )
    if not any(listen.client_certificate != "none" for listen in config.listen):
        yield place.problem(
            ("listen",),
            "peers cannot prove their domain anywhere; add an endpoint with tls: implicit, "
            "client-certificate: optional and mechanisms: [EXTERNAL]",
        )
    elif not any("EXTERNAL" in listen.mechanisms for listen in _for_peers(config)):
        yield place.problem(
            ("listen",), "no endpoint with client-certificate offers EXTERNAL, which peers use"
        )
    if not any("transfer" in rule.allow and rule.who.startswith("peer:") for rule in config.access):
        yield place.problem(
            ("access",),
            "no rule gives a peer the right transfer: messages from other domains are refused; "
            'add {allow: [transfer], who: "peer:*", node: NODE}',
        )


def _for_peers(config: Config) -> Iterator[ListenSettings]:
    return (listen for listen in config.listen if listen.client_certificate != "none")


def _advise_listen(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    if not config.listen:
        yield place.problem(("listen",), "is empty: nobody can connect")
    elif not any(listen.parsed.kind == "unix" for listen in config.listen):
        yield place.problem(
            ("listen",), "has no unix socket: the command line needs --url to find this daemon"
        )
    for index, listen in enumerate(config.listen):
        at: Location = ("listen", index, "mechanisms")
        if listen.parsed.is_loopback:
            continue
        if "PLAIN" in listen.mechanisms and listen.tls != "implicit":
            if listen.plain_without_tls:
                yield place.problem(at, "PLAIN without TLS shows the passwords to the network")
            elif listen.tls == "none":
                yield place.problem(
                    at,
                    "PLAIN is not offered without TLS; clients of AMQP 0-9-1 need it with "
                    "tls: implicit, or with plain-without-tls where nobody else is on the network",
                )
        if "ANONYMOUS" in listen.mechanisms:
            yield place.problem(at, "ANONYMOUS lets everybody in who reaches this endpoint")


def _advise_realms(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    """Warn about a directory or an issuer that nobody can log in by, or by which everybody can."""
    users = config.users
    offered = {name for listen in config.listen for name in listen.mechanisms}
    has_http = config.management.http is not None
    if users.ldap is not None and "PLAIN" not in offered and not has_http:
        words = "nobody can log in by it: no endpoint under listen has PLAIN among its mechanisms"
        yield place.problem(("users", "ldap"), words)
    for_tokens = {"OAUTHBEARER", "XOAUTH2", *(("PLAIN",) if users.token_passwords else ())}
    if users.issuers and not offered & for_tokens and not has_http:
        words = "nobody can log in by them: no endpoint under listen has OAUTHBEARER or XOAUTH2"
        yield place.problem(("users", "issuers"), words)
    if users.ldap is None and not users.issuers and not users.realms:
        return
    for index, rule in enumerate(config.access):
        if rule.who in ("user:*", "*") and rule.allow:
            at: Location = ("access", index) if place.is_given(("access",)) else ("access",)
            words = (
                f"a rule gives {rule.who} rights: that includes every user of the directory, of "
                "all issuers and of all realms; name their groups, as in group:operators"
            )
            yield place.problem(at, words)


def _advise_management(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    """Warn about balancers whose clients cannot log in."""
    management = config.management
    if management.http is not None and management.proxy_protocol and management.tls == "none":
        yield place.problem(
            ("management", "proxy-protocol"),
            "passwords and tokens that come through a balancer are refused, because this endpoint "
            "has no TLS; write management.tls: implicit, and have the balancer pass TLS on or "
            "connect with TLS itself",
        )


def _advise_targets(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    """Warn about entries that may be mistaken for a permission to dial private addresses."""
    if config.resolver.allow_targets:
        return
    words = (
        "names nobody for the DNS: brokers below it at private addresses are not dialled; give "
        "their domains entries of their own, or allow the network by resolver.allow-targets"
    )
    for pattern in config.peers:
        if pattern.startswith("*."):
            yield place.problem(("peers", pattern), f"{pattern} {words}")
    for index, route in enumerate(config.routes):
        if route.domain.startswith("*.") and route.via is None:
            yield place.problem(("routes", index, "domain"), f"{route.domain} {words}")


def _advise_rest(config: Config, place: _Place) -> Iterator[ConfigProblem]:
    with_password = {"PLAIN", "SCRAM-SHA-256"}
    file = config.users.file
    if (not is_unresolved(file) and not file.exists()) and any(
        with_password.intersection(listen.mechanisms) for listen in config.listen
    ):
        yield place.problem(
            ("users", "file"),
            f"{file} does not exist: nobody can log in with a password; add a user "
            "with amqproute user add",
        )
    if not config.access:
        yield place.problem(("access",), "is empty: nobody may do anything")
    for index, route in enumerate(config.routes):
        # A wildcard over one's own domains is normal: local domains come first.
        if route.domain in config.local_domains:
            yield place.problem(
                ("routes", index, "domain"),
                f"{route.domain} is one of domains: its nodes are here, the route is not used",
            )
    if config.relay.receipt_lifetime < config.relay.lifetime:
        yield place.problem(
            ("relay", "receipt-lifetime"),
            "is shorter than relay.lifetime: a repetition after a long break is enqueued twice",
        )
