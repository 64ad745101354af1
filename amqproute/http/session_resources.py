# SPDX-License-Identifier: Apache-2.0
"""Log-in and log-out of browsers: ``/api/v1/session``.

``POST`` with ``user`` and ``password``, as JSON or as a form, begins a session and sets its cookie,
which scripts cannot read and which no other site can have sent. The answer has the session's CSRF
token; every change in the session takes it in the header ``X-CSRF-Token``, or in the field
``csrf-token`` of a form. ``GET`` shows who has logged in, ``DELETE`` logs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred

from amqproute.http.http_messages import (
    JSON,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    json_response,
)
from amqproute.http.login import HttpLogIn, cookie_name, unauthorized
from amqproute.http.site import FORM, HttpAccess, HttpResource, HttpSite

__all__ = ["SESSION_PATH", "add_session_resources", "session_cookie"]

SESSION_PATH: Final = "/api/v1/session"


def add_session_resources(site: HttpSite, login: HttpLogIn) -> None:
    """Add the resource of sessions to a site."""

    async def begin(request: HttpRequest) -> HttpResponse:
        given = fields_of(request)
        name, password = (_text(given, field) for field in ("user", "password"))
        principal = await login.log_in(name, password, request.client)
        former = login.session(request)
        if former is not None:
            login.sessions.end(former.key)
        session_id, session = login.sessions.begin(principal)
        facts = {"principal": str(principal), "kind": "session", "csrf-token": session.csrf}
        return json_response(facts, 201).with_headers(
            ("Set-Cookie", session_cookie(request, session_id))
        )

    def show(request: HttpRequest) -> HttpResponse:
        who = request.requester
        if who is None:
            raise unauthorized("nobody has logged in")
        session = login.session(request) if who.session else None
        facts: dict[str, object] = {
            "principal": str(who.principal),
            "kind": who.kind,
            "scope": list(who.scope.words),
        }
        if session is not None:
            facts["csrf-token"] = session.csrf
        return json_response(facts).with_headers(("Cache-Control", "no-store"))

    def end(request: HttpRequest) -> HttpResponse:
        if request.requester is None or not request.requester.session:
            raise unauthorized("there is no session to end")
        login.sessions.end(request.requester.session)
        gone = session_cookie(request, "", "Max-Age=0")
        return HttpResponse(204, headers=[("Set-Cookie", gone), ("Clear-Site-Data", '"cache"')])

    site.add(
        HttpResource(
            SESSION_PATH,
            {
                "GET": show,
                "POST": lambda request: Deferred.fromCoroutine(begin(request)),
                "DELETE": end,
            },
            HttpAccess.OPTIONAL,
            takes=(JSON, FORM),
            without_csrf=("POST",),
        )
    )


def fields_of(request: HttpRequest) -> Mapping[str, object]:
    """Return the fields of a body, a JSON object or a form.

    Raises:
        HttpProblem: it is neither.
    """
    if request.media_type == FORM:
        try:
            form = parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=100)
        except ValueError:
            raise HttpProblem(400, "the form cannot be read", "body") from None
        return {name: values[-1] for name, values in form.items()}
    given = request.json()
    if not isinstance(given, dict):
        raise HttpProblem(400, "the body has to be a JSON object", "body")
    return given


def _text(given: Mapping[str, object], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise HttpProblem(400, f"{name} is missing, or is no text", name)
    return value


def session_cookie(request: HttpRequest, value: str, *terms: str) -> str:
    """Return the header Set-Cookie with the id of a session, and further attributes."""
    parts = [f"{cookie_name(request.client)}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, *(["Secure"] if request.client.has_tls else []), *terms])
