# SPDX-License-Identifier: Apache-2.0
"""Log-in and log-out on the pages of the dashboard."""

from __future__ import annotations

from amqproute.http.http_messages import HttpRequest
from amqproute.http.login import HttpLogIn
from amqproute.http.requester import Requester
from amqproute.http.session_resources import session_cookie

__all__ = ["BrowserLogIns"]


class BrowserLogIns:
    """Sessions, for `dashboard_site.DashboardSite`.

    Args:
        login: verifies passwords, and has the sessions.
    """

    def __init__(self, login: HttpLogIn) -> None:
        self._login = login

    async def log_in(self, request: HttpRequest, user: str, password: str) -> str:
        """See `LogIns`."""
        principal = await self._login.log_in(user, password, request.client)
        former = self._login.session(request)
        if former is not None:
            self._login.sessions.end(former.key)
        session_id, _ = self._login.sessions.begin(principal)
        return session_cookie(request, session_id)

    def log_out(self, request: HttpRequest) -> str:
        """See `LogIns`."""
        if request.requester is not None and request.requester.session:
            self._login.sessions.end(request.requester.session)
        return session_cookie(request, "", "Max-Age=0")

    def csrf(self, request: HttpRequest) -> str:
        """See `LogIns`."""
        if request.requester is None or not request.requester.session:
            return ""
        session = self._login.session(request)
        return "" if session is None else session.csrf

    def is_open(self, requester: Requester) -> bool:
        """See `LogIns`."""
        return not requester.session or self._login.sessions.is_open(requester.session)
