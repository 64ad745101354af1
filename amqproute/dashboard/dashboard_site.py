# SPDX-License-Identifier: Apache-2.0
"""The dashboard as an HTTP handler: log-in, pages, their changes, actions, and static files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.dashboard.display_units import BASE, address, clock_time
from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame
from amqproute.dashboard.live_changes import LivePage
from amqproute.dashboard.live_feed import LiveFeed
from amqproute.dashboard.management_source import ManagementSource
from amqproute.dashboard.overview_pages import problems_of
from amqproute.dashboard.page_actions import (
    ACTIONS,
    InvalidAction,
    body_of,
    confirmation_page,
    form_page,
    outcome_page,
)
from amqproute.dashboard.page_blocks import Page, Problem
from amqproute.dashboard.page_loaders import (
    LOADERS,
    LONGEST_PARAMETER,
    BrokerView,
    MissingPage,
    missing_page,
)
from amqproute.dashboard.peer_pages import test_page
from amqproute.dashboard.report_files import REPORT_POLICY
from amqproute.dashboard.row_values import maps, text
from amqproute.dashboard.shown_pages import ShownPages
from amqproute.dashboard.status_memory import RememberingSource, StatusMemory
from amqproute.http.event_stream import EventStream
from amqproute.http.http_messages import (
    EVENTS,
    HTML,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    title_of,
)
from amqproute.http.requester import Requester
from amqproute.http.site import FORM, HttpAccess, HttpResource, HttpSite
from amqproute.turn_scheduler import Pause, TurnScheduler

__all__ = ["DashboardSite", "LogIns"]

log = Logger()

_TYPES: Final = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_TEST: Final = "peer-test"


class LogIns(Protocol):
    """Log-ins of browsers."""

    def log_in(self, request: HttpRequest, user: str, password: str) -> Awaitable[str]:
        """Begin a session; return the header Set-Cookie.

        Raises:
            HttpProblem: name or password are wrong, or cannot be verified.
        """

    def log_out(self, request: HttpRequest) -> str:
        """End the session of a request; return the header Set-Cookie."""

    def csrf(self, request: HttpRequest) -> str:
        """Return the token that a request with a change carries; empty without a session."""

    def is_open(self, requester: Requester) -> bool:
        """Return whether the session of a requester goes on; True without one."""


class DashboardSite:
    """Answers everything below `display_units.BASE`.

    Args:
        clock: the reactor's.
        view: what pages show beside rows of management.
        source_of: returns management with the rights of a requester.
        logins: log-ins of browsers.
        turns: where slices of pages wait; None for turns of their own.
    """

    def __init__(
        self,
        clock: IReactorTime,
        view: BrokerView,
        source_of: Callable[[Requester], ManagementSource],
        logins: LogIns,
        turns: TurnScheduler | None = None,
    ) -> None:
        self._turns = turns or TurnScheduler(clock)
        self._clock = clock
        self._view = view
        self._source_of = source_of
        self._logins = logins
        self._renderer = HtmlRenderer()
        self._status = StatusMemory(clock)
        self._pages = ShownPages()

    def __repr__(self) -> str:
        return "<DashboardSite>"

    def mount(self, site: HttpSite) -> None:
        """Serve the pages at a site."""
        methods = ("GET", "POST")
        access = HttpAccess.OPTIONAL
        site.mount(f"{BASE}/", self.answer, access=access, methods=methods, takes=(FORM,))
        # Somebody may log in who is somebody else already: such a form has no token.
        handlers = dict.fromkeys(methods, self._at_door)
        log_in = f"{BASE}/login"
        site.add(HttpResource(log_in, handlers, access, (FORM,), (), without_csrf=("POST",)))
        for path in ("/", BASE):  # and nothing below: what is not there is told to programs
            site.add(HttpResource(path, {"GET": _to_overview}, HttpAccess.OPEN, gives=()))
        site.problem_page = self._problem_page

    def _problem_page(self, problem: HttpProblem) -> str:
        words = problem.detail[:1].upper() + problem.detail[1:] + "."
        return self._renderer.problem(title_of(problem.status), words)

    def _at_door(self, request: HttpRequest) -> Deferred[HttpResponse]:
        return Deferred.fromCoroutine(self._log_in(request))

    def answer(self, request: HttpRequest) -> HttpResponse | Deferred[HttpResponse]:
        """Answer a request. See `HttpHandler`."""
        rest = request.parameters.get("rest", "")
        if rest.startswith("static/") and request.method == "GET":
            return _static(rest.removeprefix("static/"))
        return Deferred.fromCoroutine(self._answer(request, rest))

    async def _answer(self, request: HttpRequest, rest: str) -> HttpResponse:
        requester = request.requester
        if requester is None:
            if request.method == "GET" and rest != "live":
                here = _here(rest, _query(request)) if rest in LOADERS else address("")
                return _redirect(address("login", next=here))
            raise HttpProblem(401, "log in first")
        if rest == "logout":
            if request.method != "POST":
                return _redirect(address(""))
            cookie = self._logins.log_out(request)
            return _redirect(address("login")).with_headers(("Set-Cookie", cookie))
        if rest == "act":
            if request.method != "POST":
                return _redirect(address(""))
            return await self._act(request, requester)
        if request.method != "GET":
            raise HttpProblem(405, "pages are read with GET", headers=[("Allow", "GET, HEAD")])
        if rest == "live":
            return self._live(request, requester)
        if rest.startswith("report/"):
            return await self._report(requester, rest.removeprefix("report/"))
        query = _query(request)
        page = await self._page(self._source_of(requester), rest, query)
        return await self._shown(request, requester, page, rest, query)

    # -- pages ---------------------------------------------------------------------------------

    async def _page(self, source: ManagementSource, name: str, query: Mapping[str, str]) -> Page:
        """Return a page, with the verdicts for its header."""
        loader = LOADERS.get(name)
        if loader is None:
            page = missing_page("There is no such page.")
        else:
            try:
                remembering = RememberingSource(source, self._status)
                page = await loader(remembering, self._view, query)
            except MissingPage as missing:
                page = missing_page(str(missing))
        at_ms = self._view.now_ms()
        return replace(page, alarms=await self._problems(source), at_ms=at_ms)

    async def _problems(self, source: ManagementSource) -> Sequence[Problem] | None:
        answer = await self._status.answer(source)
        return problems_of(answer.facts) if answer.is_good else None

    def _pause(self, requester: Requester) -> Pause:
        return partial(self._turns.pause, "pages", str(requester))

    def _frame(
        self, request: HttpRequest, requester: Requester, name: str, query: Mapping[str, str]
    ) -> PageFrame:
        return PageFrame(
            str(requester.principal),
            self._logins.csrf(request),
            text(self._view.broker_row(), "name"),
            _here(name, query),
            "",
            clock_time(self._view.now_ms()),
        )

    async def _shown(
        self,
        request: HttpRequest,
        requester: Requester,
        page: Page,
        name: str,
        query: Mapping[str, str],
    ) -> HttpResponse:
        frame = self._frame(request, requester, name, query)
        if page.is_live:
            seen = self._pages.keep(_owner(requester, frame), page)
            live = {**query, "page": name or "overview", "seen": seen}
            frame = replace(frame, live=address("live", **live))
        document = await self._renderer.page_in_turns(page, frame, self._pause(requester))
        return _html(document, page.status)

    async def _report(self, requester: Requester, name: str) -> HttpResponse:
        """Answer with a page that the pipeline has published; it has no rights of its reader."""
        if not self._source_of(requester).may_manage:
            raise HttpProblem(403, f"{requester} may not manage $management")
        octets = await self._view.report_page(name)
        if octets is None:
            raise HttpProblem(404, "there is no such report")
        policy = ("Content-Security-Policy", REPORT_POLICY)
        return HttpResponse(200, octets, HTML, [policy, ("Cache-Control", "no-store")])

    # -- live ----------------------------------------------------------------------------------

    def _live(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        query = dict(_query(request))
        name = query.pop("page", "overview")
        seen = query.pop("seen", "")
        name = "" if name == "overview" else name
        if name not in LOADERS:
            raise HttpProblem(404, "there is no such page", "page")
        source = self._source_of(requester)
        frame = self._frame(request, requester, name, query)
        shown = self._pages.take(_owner(requester, frame), seen)

        def begin(stream: EventStream) -> Callable[[], object]:
            feed = LiveFeed(
                self._clock,
                lambda: self._page(source, name, query),
                LivePage(self._renderer, frame, shown, self._pause(requester)),
                stream,
                self._view.now_ms,
                lambda: self._logins.is_open(requester),
            )
            feed.start()
            return feed.stop

        return HttpResponse(content_type=EVENTS, stream=begin)

    # -- log-in --------------------------------------------------------------------------------

    async def _log_in(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return _html(self._renderer.log_in(next_page=_query(request).get("next", "")))
        form = _form(request)
        user, next_page = form.get("user", ""), form.get("next", "")
        try:
            cookie = await self._logins.log_in(request, user, form.get("password", ""))
        except HttpProblem as problem:
            words = problem.detail[:1].upper() + problem.detail[1:] + "."
            page = self._renderer.log_in(words, next_page, user)
            # Not 401: the browser would ask for name and password itself.
            return _html(page, 403 if problem.status == 401 else problem.status)
        return _redirect(_own(next_page)).with_headers(("Set-Cookie", cookie))

    # -- actions -------------------------------------------------------------------------------

    async def _act(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        form = _form(request)
        source = self._source_of(requester)
        back = _own(form.get("back", ""), "")
        key = form.get("action", "")
        if key == _TEST:
            page = await self._test(source, form.get("to", ""))
        else:
            page = await self._carry_out(source, key, form, back)
        page = replace(page, alarms=await self._problems(source))
        return await self._shown(request, requester, page, "act", {})

    async def _test(self, source: ManagementSource, to: str) -> Page:
        answer = await source.do("TEST-PEER", "", to)
        is_good = text(answer.facts, "code") == "ok"
        words = f"{answer.words[:1].upper()}{answer.words[1:]}."
        return test_page(to, is_good, words, maps(answer.facts, "steps"))

    async def _carry_out(
        self, source: ManagementSource, key: str, form: Mapping[str, str], back: str
    ) -> Page:
        action = ACTIONS.get(key)
        if action is None:
            return missing_page("There is no such action.")
        values = {name: form.get(name, "") for name in action.parameters}
        is_confirmed = form.get("confirmed") == "yes"
        is_filled_in = is_confirmed or form.get("filled-in") == "yes" or not action.fields
        if not is_filled_in:
            return form_page(key, action, values, back=back)
        try:
            body = body_of(action, values)
        except InvalidAction as invalid:
            return form_page(key, action, values, f"{invalid}.", back)
        name = values.get(action.name, "") if action.name else ""
        if is_confirmed:
            answer = await source.do(action.operation, action.kind, name, body)
            self._status.forget(source.user)
            return outcome_page(action, values, answer, back)
        rehearsal = None
        if action.has_dry_run:
            rehearsal = await source.do(
                action.operation, action.kind, name, {**body, "dry-run": True}
            )
        return confirmation_page(key, action, values, rehearsal, back)


def _owner(requester: Requester, frame: PageFrame) -> str:
    """Return whose page at which address it is; the scope of a token decides what is on it."""
    return f"{requester} {requester.kind} {requester.scope} {requester.session} {frame.here}"


def _html(page: str, status: int = 200) -> HttpResponse:
    return HttpResponse(
        status, page.encode("utf-8", "replace"), HTML, [("Cache-Control", "no-store")]
    )


def _redirect(where: str) -> HttpResponse:
    return HttpResponse(303, headers=[("Location", where)])


def _to_overview(request: HttpRequest) -> HttpResponse:
    return _redirect(address(""))


def _static(name: str) -> HttpResponse:
    kind = _TYPES.get(name)
    if kind is None:
        raise HttpProblem(404, "there is no such file")
    octets = (files("amqproute.dashboard") / "static" / name).read_bytes()
    return HttpResponse(200, octets, kind, [("Cache-Control", "max-age=300")])


def _query(request: HttpRequest) -> Mapping[str, str]:
    """Return the parameters of the query: of repeated ones the first."""
    return {name: values[0][:LONGEST_PARAMETER] for name, values in request.query.items() if values}


def _here(name: str, query: Mapping[str, str]) -> str:
    given = {key: value for key, value in query.items() if value}
    return f"{BASE}/{name}" + (f"?{urlencode(given)}" if given else "")


def _form(request: HttpRequest) -> Mapping[str, str]:
    """Return the fields of a form.

    Raises:
        HttpProblem: it cannot be read.
    """
    try:
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise HttpProblem(400, "the form cannot be read", "body") from None
    return dict(pairs)


def _own(where: str, otherwise: str = f"{BASE}/") -> str:
    """Return an address of ours, or another one if it is not: nobody is sent to other sites."""
    parts = urlsplit(where) if where.isprintable() else urlsplit("")
    is_own = not parts.scheme and not parts.netloc and "\\" not in where
    return where if is_own and parts.path.startswith(f"{BASE}/") else otherwise
