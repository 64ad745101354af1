# SPDX-License-Identifier: Apache-2.0
"""Requests, answers and problems of HTTP as values; no sockets here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred

from amqproute.http.event_stream import EventStream
from amqproute.http.requester import Requester
from amqproute.jsontext import has_more_values, parse_json
from amqproute.turn_scheduler import Pause

__all__ = [
    "EVENTS",
    "HTML",
    "ITEMS_IN_TURN",
    "JSON",
    "PROBLEM",
    "TEXT",
    "ClientFacts",
    "HttpHandler",
    "HttpProblem",
    "HttpRequest",
    "HttpResponse",
    "json_in_turns",
    "json_response",
    "title_of",
]

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
EVENTS: Final = "text/event-stream"
ITEMS_IN_TURN: Final = 20
"""Items of a list that become JSON in one step."""
MOST_VALUES: Final = 10_000
"""Values in a JSON body; each costs about a microsecond, to parse and to check."""


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Facts of a connection about its client.

    Attributes:
        address: the IP address; empty on a unix socket.
        is_encrypted: whether nobody can listen: TLS, or a unix socket.
        is_loopback: whether it comes from this machine.
        certificate_names: the domains proved by a client certificate.
        uid: the user id at the other end of a unix socket; None on others.
        has_tls: whether TLS protects the connection.
    """

    address: str = ""
    is_encrypted: bool = False
    is_loopback: bool = False
    certificate_names: tuple[str, ...] = ()
    uid: int | None = None
    has_tls: bool = False

    def __str__(self) -> str:
        return self.address or f"unix:uid={self.uid}"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request.

    Attributes:
        method: the method as sent; methods are told apart by case (RFC 9110 §9.1).
        path: the path as sent, without the query.
        segments: the path's parts, decoded; a part may contain a slash.
        query: the values of each parameter of the query.
        headers: by their names in lower case; repeated ones are joined by commas.
        body: the body of the request.
        client: what the connection shows.
        requester: who asks; None before the log-in, and where none is needed.
        parameters: parts of the path that the resource's pattern names.
    """

    method: str
    path: str
    segments: tuple[str, ...] = ()
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    client: ClientFacts = ClientFacts()
    requester: Requester | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def who(self) -> Requester:
        """The party behind the request, at a resource that requires a log-in."""
        assert self.requester is not None
        return self.requester

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters, in lower case; empty if not given."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def versions_in(self, header: str) -> list[str] | None:
        """Return the versions in the entity tags of If-Match or If-None-Match.

        Weak tags are left out: they match nothing (RFC 9110 §13.1.1).

        Returns:
            The versions, or ``*`` alone; None without the header.
        """
        said = self.headers.get(header)
        if said is None:
            return None
        if said.strip() == "*":
            return ["*"]
        found = re.findall(r'(W/)?"([^"]*)"', said)
        return [tag.partition(".")[0] for weak, tag in found if not weak and "." in tag]

    def one(self, name: str) -> str | None:
        """Return the value of a parameter of the query; None if it is not given.

        Raises:
            HttpProblem: it is given more than once.
        """
        values = self.query.get(name, ())
        if len(values) > 1:
            raise HttpProblem(400, f"{name} is given {len(values)} times", name)
        return values[0] if values else None

    # Any: whatever the body says.
    def json(self) -> Any:  # noqa: ANN401
        """Return the value of a JSON body; None for an empty one.

        Raises:
            HttpProblem: it is none, or has too many values.
        """
        if not self.body:
            return None
        if has_more_values(self.body, MOST_VALUES):
            raise HttpProblem(400, f"the body has more than {MOST_VALUES} values", "body")
        try:
            return parse_json(self.body)
        except ValueError as error:
            raise HttpProblem(400, f"the body is not JSON: {error}", "body") from None

    def accepts(self, media_type: str) -> bool:
        """Return whether the client takes a media type (RFC 9110 §12.5.1)."""
        return self._quality(media_type)[1] > 0

    @property
    def prefers_page(self) -> bool:
        """Whether the client, by naming HTML, prefers a page to JSON, as browsers do."""
        page, *others = map(self._named, (HTML, JSON, PROBLEM))
        return page > max(others)

    def _named(self, media_type: str) -> float:
        """Return the weight of a media type that the client names; 0 if it names it not."""
        rank, quality = self._quality(media_type)
        return quality if rank == _BY_NAME else 0.0

    def _quality(self, media_type: str) -> tuple[int, float]:
        """Return how exactly the client names a media type, and its weight."""
        accept = self.headers.get("accept", "")[:LONGEST_ACCEPT].strip()
        if not accept:
            return 0, 1.0
        wanted = media_type.partition(";")[0]
        kind = wanted.partition("/")[0]
        best, quality = -1, 0.0
        for part in accept.split(","):
            name, *terms = (each.strip().lower() for each in part.split(";"))
            rank = {wanted: _BY_NAME, f"{kind}/*": 1, "*/*": 0}.get(name, -1)
            if rank > best:
                best, quality = rank, min(map(_weight, terms), default=1.0)
        return best, quality


_BY_NAME: Final = 2
LONGEST_ACCEPT: Final = 1024
"""Characters of the header Accept that are read."""


def _weight(term: str) -> float:
    """Return the weight that a parameter of a media range gives; 1 if it gives none."""
    name, _, value = term.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0 if value.strip("0. ") == "" else 1.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer.

    Attributes:
        status: of it.
        body: of it; empty with `stream`.
        content_type: the type of the body; empty without one.
        headers: further headers.
        stream: called with the stream of events that is the body, once the headers are written.
            It returns what is called at the stream's end, whoever ends it.
        version: of what a change would change, for If-Match; empty if the resource has none. It
            is the first part of the entity tag: counters change the tag, but not the version.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = ""
    headers: Sequence[tuple[str, str]] = ()
    stream: Callable[[EventStream], Callable[[], object]] | None = None
    version: str = ""

    def with_headers(self, *headers: tuple[str, str]) -> HttpResponse:
        """Return the answer with further headers."""
        return replace(self, headers=(*self.headers, *headers))

    @property
    def entity_tag(self) -> str:
        """A tag of the body (RFC 9110 §8.8.3)."""
        digest = hashlib.sha256(self.body).hexdigest()[:32]
        return f'"{self.version}.{digest}"' if self.version else f'"{digest}"'


HttpHandler: TypeAlias = Callable[[HttpRequest], "HttpResponse | Deferred[HttpResponse]"]
"""Answers a request; it may raise `HttpProblem`."""


def json_response(value: object, status: int = 200, content_type: str = JSON) -> HttpResponse:
    """Return an answer with a value as JSON."""
    return _with_text(_json_text(value), status, content_type)


async def json_in_turns(
    value: Mapping[str, object] | Sequence[object], pause: Pause
) -> HttpResponse:
    """Return the same, the items of long lists made in turns of the reactor.

    Args:
        value: a list, or an object that has lists as values.
        pause: called between slices.
    """
    if not isinstance(value, Mapping):
        return _with_text(await _list_text(value, pause))
    fields = []
    for key, each in value.items():
        if isinstance(each, list | tuple):
            text = await _list_text(each, pause)
        else:
            text = _json_text(each)
        fields.append(f"{_json_text(key)}:{text}")
    return _with_text(f"{{{','.join(fields)}}}")


async def _list_text(items: Sequence[object], pause: Pause) -> str:
    texts = []
    for number, each in enumerate(items, 1):
        texts.append(_json_text(each))
        if number % ITEMS_IN_TURN == 0:
            await pause()
    return f"[{','.join(texts)}]"


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_json)


def _with_text(text: str, status: int = 200, content_type: str = JSON) -> HttpResponse:
    return HttpResponse(status, text.encode("utf-8", "replace") + b"\n", content_type)


def _as_json(value: object) -> object:
    """Return what JSON has for a value of AMQP that it does not have."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


class HttpProblem(Exception):
    """A request that is refused, or has failed (RFC 9457).

    Attributes:
        status: the status of the answer.
        detail: the reason, and the remedy.
        field: the part of the request that is wrong; empty if no single one is.
        facts: further members of the problem.
        headers: the headers of the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        field: str = "",
        facts: Mapping[str, object] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.field = field
        self.facts = dict(facts or {})
        self.headers = tuple(headers)

    def response(self, instance: str = "") -> HttpResponse:
        """Return the answer.

        Args:
            instance: the path of the request.
        """
        members: dict[str, object] = {
            "type": "about:blank",
            "title": title_of(self.status),
            "status": self.status,
            "detail": self.detail,
        }
        if instance:
            members["instance"] = instance
        if self.field:
            members["field"] = self.field
        facts = {key: value for key, value in self.facts.items() if key not in members}
        made = json_response({**members, **facts}, self.status, PROBLEM)
        return made.with_headers(*self.headers)


def title_of(status: int) -> str:
    """Return the phrase of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
