# SPDX-License-Identifier: Apache-2.0
"""From a request to its handler, and what all answers have in common.

A resource is declared with a pattern: parts of a path, of which ``{name}`` stands for any one part,
percent-encoded if it contains a slash, and ``{name...}`` at the end for all that follow. A literal
part comes before a parameter.

A request begins in a turn of the reactor that has time for it. Addresses take turns, and so do HTTP
and other work. The request is checked in this order: rate of its address (429), resource (404),
method (405), log-in (401), rate of its user (429), pages that it may come from (403), form (406,
415). Then the handler is called. Problems are answered as in RFC 9457, and to browsers, which name
HTML in Accept, as a page.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from enum import Enum
from typing import Final
from urllib.parse import parse_qs, urlsplit

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.errors import AmqprouteError
from amqproute.http.event_stream import EventStream
from amqproute.http.http_messages import (
    HTML,
    JSON,
    PROBLEM,
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
)
from amqproute.http.login import HttpLogIn, unauthorized
from amqproute.http.request_rates import RequestRates
from amqproute.http.requester import Requester
from amqproute.http.stream_log_in import StreamLogIn
from amqproute.log_rate_limit import source_of
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["FORM", "HttpAccess", "HttpResource", "HttpSite", "SiteTerms"]

log = Logger()

FORM: Final = "application/x-www-form-urlencoded"
MOST_WAITING: Final = 200
"""Requests of one address that may wait for their turn."""
MOST_WAITING_IN_ALL: Final = 2000
"""Requests that may wait for their turn."""
LONGEST_STREAM_SECONDS: Final = 86400.0
"""For which a stream goes on; its client comes again."""
CSRF_HEADER: Final = "x-csrf-token"
CSRF_FIELD: Final = "csrf-token"
MOST_TAGS: Final = 100
"""Entity tags of If-None-Match that are compared."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing (RFC 9110 §9.2.1)."""

_HEADERS: Final = (
    ("Server", "amqproute"),
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    # Not no-referrer: with it, browsers send forms of our own pages with ``Origin: null``.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
_TRANSPORT_SECURITY: Final = ("Strict-Transport-Security", "max-age=31536000")


class HttpAccess(Enum):
    """Log-in that a resource requires."""

    OPEN = "open"
    """None, and none is looked at."""
    OPTIONAL = "optional"
    """None; but a wrong one is refused."""
    LOGGED_IN = "logged-in"
    """One."""


@dataclass(frozen=True, slots=True)
class HttpResource:
    """A resource.

    Attributes:
        pattern: the pattern of its paths; see the module.
        handlers: by method. HEAD is answered by that of GET, OPTIONS by the site.
        access: the required log-in.
        takes: media types of bodies.
        gives: media types of answers, any one of which suffices; empty if the handler chooses.
        without_csrf: methods for which a session's request need not carry its CSRF token: a log-in.
    """

    pattern: str
    handlers: Mapping[str, HttpHandler]
    access: HttpAccess = HttpAccess.LOGGED_IN
    takes: Sequence[str] = (JSON,)
    gives: Sequence[str] = (JSON,)
    without_csrf: Sequence[str] = ()

    @property
    def allow(self) -> str:
        """The methods, for the header Allow."""
        methods = {*self.handlers, "OPTIONS"}
        return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


@dataclass(frozen=True, slots=True)
class SiteTerms:
    """Bounds on what is asked for.

    Attributes:
        requests_per_second: the highest rate of one address, and of one user.
        event_streams: open at one time; one user has half of them at most.
    """

    requests_per_second: float = 100.0
    event_streams: int = 1000


@dataclass(slots=True)
class _Branch:
    """A part of the paths."""

    literal: dict[str, _Branch] = field(default_factory=dict)
    any: _Branch | None = None
    resource: HttpResource | None = None
    rest: HttpResource | None = None


class HttpSite:
    """The resources of one endpoint.

    Args:
        clock: the reactor's.
        login: finds out who asks; None if nobody can log in.
        terms: bounds.
        now: the wall clock, seconds since the epoch.
        turns: of the reactor, which requests share with other work; None to answer at once.

    Attributes:
        problem_page: makes a page of HTML of a problem, for browsers; None if there are no pages.
    """

    def __init__(
        self,
        clock: IReactorTime,
        login: HttpLogIn | None,
        terms: SiteTerms,
        now: Callable[[], float],
        turns: TurnScheduler | None = None,
    ) -> None:
        self.clock = clock
        self._turns = turns
        self._waiting: Counter[str] = Counter()
        self.login = login
        self._terms = terms
        self._now = now
        self._root = _Branch()
        self._rates = RequestRates(terms.requests_per_second, clock.seconds)
        self._streams: dict[str, int] = {}
        self._log_ins: set[StreamLogIn] = set()
        self._logging_in: dict[int, Deferred[Requester | None]] = {}
        self.problem_page: Callable[[HttpProblem], str] | None = None

    def adopt(self, terms: SiteTerms) -> None:
        """Put other bounds in force; open streams stay."""
        self._terms = terms
        self._rates.adopt(terms.requests_per_second)

    @property
    def streams(self) -> int:
        """The number of open streams of events."""
        return sum(self._streams.values())

    # -- resources -----------------------------------------------------------------------------

    def add(self, *resources: HttpResource) -> None:
        """Add resources.

        Raises:
            ValueError: there is one with this pattern.
        """
        for resource in resources:
            branch = self._root
            *parts, last = resource.pattern.removeprefix("/").split("/")
            for part in parts:
                branch = _grow(branch, part)
            if last.endswith("...}"):
                if branch.rest is not None:
                    raise ValueError(f"{resource.pattern} is there already")
                branch.rest = resource
                continue
            branch = _grow(branch, last)
            if branch.resource is not None:
                raise ValueError(f"{resource.pattern} is there already")
            branch.resource = resource

    def mount(
        self,
        path: str,
        handler: HttpHandler,
        *,
        access: HttpAccess = HttpAccess.LOGGED_IN,
        methods: Sequence[str] = ("GET",),
        takes: Sequence[str] = (JSON, FORM),
    ) -> None:
        """Serve a path, and if it ends with a slash everything below it, by one handler.

        Below a path the parts that follow it are the parameter ``rest``, joined by slashes; a path
        with a part ``.`` or ``..`` is never passed on. The handler chooses the form of the answer.

        Args:
            path: the path as in ``/metrics`` or ``/static/``.
            handler: answers the requests.
            access: the required log-in.
            methods: that the handler takes.
            takes: media types of bodies.
        """
        pattern = f"{path}{{rest...}}" if path.endswith("/") else path
        handlers = dict.fromkeys(methods, handler)
        self.add(HttpResource(pattern, handlers, access, takes, gives=()))

    def find(self, segments: Sequence[str]) -> tuple[HttpResource, dict[str, str]] | None:
        """Return the resource of a path, and its parameters; None without one."""
        return _find(self._root, tuple(segments), [])

    # -- requests ------------------------------------------------------------------------------

    def answer(self, request: HttpRequest) -> Deferred[HttpResponse]:
        """Answer a request, in a turn of the reactor that has time for it; never fails.

        A request whose read had its turn is answered in the same step.
        """
        source, waiting = source_of(request.client.address), self._waiting
        if self._turns is None or self._turns.is_in_step:
            return Deferred.fromCoroutine(self._answer(request))
        if waiting[source] >= MOST_WAITING or waiting.total() >= MOST_WAITING_IN_ALL:
            problem = HttpProblem(503, "too many requests wait", headers=[("Retry-After", "5")])
            return succeed(self.finish(request, self._refusal(request, problem)))
        answered: Deferred[HttpResponse] = Deferred()
        waiting[source] += 1

        def step() -> None:
            waiting[source] -= 1
            if not waiting[source]:
                del waiting[source]
            Deferred.fromCoroutine(self._answer(request)).chainDeferred(answered)

        self._turns.ask("http", source, step)
        return answered

    def leave(self, request: HttpRequest) -> None:
        """Give up the log-in of a request that nobody waits for; it would keep its body."""
        logging_in = self._logging_in.get(id(request))
        if logging_in is not None:
            logging_in.cancel()

    async def _log_in(self, login: HttpLogIn, request: HttpRequest) -> Requester | None:
        """Return who asks.

        Raises:
            HttpProblem: the log-in is wrong, or nobody waits for it any more.
        """
        logging_in = Deferred.fromCoroutine(login.requester(request))
        self._logging_in[id(request)] = logging_in
        try:
            return await logging_in
        except CancelledError:
            raise HttpProblem(408, "the client has gone") from None
        finally:
            del self._logging_in[id(request)]

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            response = await self._serve(request)
        except HttpProblem as problem:
            response = self._refusal(request, problem)
        except AmqprouteError as error:
            response = self._refusal(request, HttpProblem(500, str(error)))
        except Exception:  # answered, so that the connection goes on
            log.failure("{method} {path} failed", method=request.method, path=request.path)
            words = "an internal error, see the broker's log"
            response = self._refusal(request, HttpProblem(500, words))
        return self.finish(request, response)

    def _refusal(self, request: HttpRequest, problem: HttpProblem) -> HttpResponse:
        if self.problem_page is None or not request.prefers_page:
            return problem.response(request.path)
        page = HttpResponse(problem.status, self.problem_page(problem).encode("utf-8"), HTML)
        return page.with_headers(("Vary", "Accept"), *problem.headers)

    async def _serve(self, request: HttpRequest) -> HttpResponse:
        self._require_rate(f"from {source_of(request.client.address) or request.client}")
        found = self.find(request.segments)
        if request.method == "OPTIONS" and request.path == "*":
            return HttpResponse(204)
        if found is None:
            raise HttpProblem(404, "there is no such resource; /api/v1/openapi.json has them all")
        resource, parameters = found
        if request.method == "OPTIONS":
            return HttpResponse(204, headers=[("Allow", resource.allow)])
        method = "GET" if request.method == "HEAD" else request.method
        handler = resource.handlers.get(method)
        if handler is None:
            words = f"{request.method} is not for this resource; there are {resource.allow}"
            raise HttpProblem(405, words, headers=[("Allow", resource.allow)])
        if resource.access is not HttpAccess.OPEN:
            requester = None if self.login is None else await self._log_in(self.login, request)
            if self._turns is not None and not self._turns.is_in_step:  # it took a thread
                await self._turns.pause("http", source_of(request.client.address))
            if requester is None and resource.access is HttpAccess.LOGGED_IN:
                raise unauthorized("this takes a log-in")
            request = replace(request, requester=requester)
            if requester is not None:
                self._require_rate(f"of {requester}")
        if request.method not in SAFE:
            self._require_own_page(request, resource)
        _require_form(request, resource)
        response = handler(replace(request, parameters=parameters))
        if isinstance(response, Deferred):
            response = await response
        if response.stream is not None and request.method == "HEAD":
            return replace(response, stream=None)
        if response.stream is not None:
            return self._counted(request, response)
        return _conditional(request, response)

    def _require_rate(self, source: str) -> None:
        wait = self._rates.take(source)
        if wait:
            seconds = max(1, round(wait + 0.5))
            raise HttpProblem(
                429,
                f"more than {self._terms.requests_per_second:g} requests a second {source}",
                headers=[("Retry-After", str(seconds))],
            )

    def _require_own_page(self, request: HttpRequest, resource: HttpResource) -> None:
        """Refuse a change that a page of another site has asked a browser for."""
        headers = request.headers
        is_cross = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        origin = headers.get("origin")
        if origin is not None:
            is_cross = (
                is_cross or urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
            )
        if is_cross:
            raise HttpProblem(403, "a page of another site has asked for this change")
        requester = request.requester
        if requester is None or not requester.session:
            return
        if request.method in resource.without_csrf:
            return
        assert self.login is not None
        session = self.login.session(request)
        if session is None or not session.is_token(_csrf_of(request)):
            raise HttpProblem(
                403, "a change in a session takes its token in the header X-CSRF-Token"
            )

    def _counted(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Return a stream of events that has a place."""
        who = str(request.requester or request.client)
        most = self._terms.event_streams
        if self.streams >= most or self._streams.get(who, 0) >= max(1, most // 2):
            raise HttpProblem(
                503, "too many event streams are open", headers=[("Retry-After", "30")]
            )
        begin = response.stream
        assert begin is not None
        self._streams[who] = self._streams.get(who, 0) + 1

        requester = request.requester

        def counted(stream: EventStream) -> Callable[[], object]:
            end = begin(stream)
            log_in = None if requester is None else self._watched(stream, requester)

            def ended() -> None:
                if log_in is not None:
                    log_in.stop()
                    self._log_ins.discard(log_in)
                left = self._streams.pop(who, 0) - 1
                if left > 0:
                    self._streams[who] = left
                end()

            return ended

        return replace(response, stream=counted)

    def _watched(self, stream: EventStream, requester: Requester) -> StreamLogIn:
        """Close a stream with the log-in of who has opened it."""
        left = LONGEST_STREAM_SECONDS
        if requester.expires is not None:
            left = min(max(0.0, requester.expires - self._now()), left)
        login = self.login
        log_in = StreamLogIn(
            self.clock, stream, requester, lambda: login is None or login.holds(requester), left
        )
        self._log_ins.add(log_in)
        return log_in

    def log_ins(self) -> Iterator[StreamLogIn]:
        """Iterate over the log-ins by which streams are open; those in sessions end with these."""
        return (each for each in tuple(self._log_ins) if not each.requester.session)

    def finish(self, request: HttpRequest | None, response: HttpResponse) -> HttpResponse:
        """Return an answer with the headers that all have."""
        given = {name.lower() for name, _ in response.headers}
        common = [*_HEADERS, ("Date", formatdate(self._now(), usegmt=True))]
        if "cache-control" not in given:
            common.append(("Cache-Control", "no-store" if response.stream else "no-cache"))
        if request is not None and request.client.has_tls:
            common.append(_TRANSPORT_SECURITY)
        return response.with_headers(*(each for each in common if each[0].lower() not in given))


def _grow(branch: _Branch, part: str) -> _Branch:
    if not part.startswith("{"):
        return branch.literal.setdefault(part, _Branch())
    if branch.any is None:
        branch.any = _Branch()
    return branch.any


def _find(
    branch: _Branch, segments: tuple[str, ...], values: list[str]
) -> tuple[HttpResource, dict[str, str]] | None:
    if not segments:
        return None if branch.resource is None else _named(branch.resource, values)
    first, left = segments[0], segments[1:]
    if first in branch.literal:
        found = _find(branch.literal[first], left, values)
        if found is not None:
            return found
    if branch.any is not None and first:
        found = _find(branch.any, left, [*values, first])
        if found is not None:
            return found
    if branch.rest is not None and not {".", ".."} & set("/".join(segments).split("/")):
        return _named(branch.rest, [*values, "/".join(segments)])
    return None


def _named(resource: HttpResource, values: Sequence[str]) -> tuple[HttpResource, dict[str, str]]:
    names = [
        part[1:-1].removesuffix("...")
        for part in resource.pattern.split("/")
        if part.startswith("{")
    ]
    return resource, dict(zip(names, values, strict=True))


def _require_form(request: HttpRequest, resource: HttpResource) -> None:
    if resource.gives and not any(map(request.accepts, (*resource.gives, PROBLEM))):
        raise HttpProblem(406, f"the answer is {' or '.join(resource.gives)}", "accept")
    if request.body and request.media_type not in resource.takes:
        raise HttpProblem(
            415,
            f"the body has to be {' or '.join(resource.takes)}",
            "content-type",
            headers=[("Accept", ", ".join(resource.takes))],
        )


def _csrf_of(request: HttpRequest) -> str:
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.media_type == FORM:
        given = parse_qs(request.body.decode("utf-8", "replace")).get(CSRF_FIELD, [""])[0]
    return given or ""


def _conditional(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return an answer with its entity tag, or that the client has it already."""
    if request.method not in ("GET", "HEAD") or response.status != 200 or not response.body:
        return response
    if ("Cache-Control", "no-store") in response.headers and not response.version:
        # Nobody keeps it, so nobody asks for it by a tag; and to hash a large one takes long.
        return response
    tag = response.entity_tag
    said = request.headers.get("if-none-match", "")
    given = said.split(",", MOST_TAGS)[:MOST_TAGS]
    known = [each.strip().removeprefix("W/") for each in given]
    if "*" in known or any(hmac.compare_digest(tag, each) for each in known if each.isascii()):
        return HttpResponse(304, headers=[*response.headers, ("ETag", tag)])
    return response.with_headers(("ETag", tag))
