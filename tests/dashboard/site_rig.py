# SPDX-License-Identifier: Apache-2.0
"""The dashboard's site with a broker made of rows.

``python -m tests.dashboard.site_rig ordinary`` serves it on loopback, with the user ann and the
password secret, and prints the port: for browsers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from twisted.internet.interfaces import IReactorTime

from amqproute.dashboard.browser_log_ins import BrowserLogIns
from amqproute.dashboard.dashboard_site import DashboardSite
from amqproute.http.http_listener import HttpListener
from amqproute.http.requester import Requester
from amqproute.http.site import FORM, SiteTerms
from tests.dashboard.samples import BROKERS, SampleSource, SampleView, ordinary
from tests.http.rig import Answer, Web


class Pages:
    """The site of a sample.

    Args:
        directory: for tokens.
        source: management.
        view: what pages show beside it.
        clock: of the site; None for one of the rig's.
    """

    def __init__(
        self,
        directory: Path,
        source: SampleSource,
        view: SampleView,
        clock: IReactorTime | None = None,
    ) -> None:
        # Its clock may stand still, and with it the rate of requests.
        self.web = Web(directory, SiteTerms(requests_per_second=100_000.0))
        self.source = source
        self.view = view
        self.asked_for: list[Requester] = []
        self.cookie = self.csrf = ""
        site = DashboardSite(
            clock or self.web.clock,
            view,
            self._source_of,
            BrowserLogIns(self.web.login),
        )
        site.mount(self.web.site)

    def _source_of(self, requester: Requester) -> SampleSource:
        self.asked_for.append(requester)
        return self.source

    def get(self, target: str, **headers: str) -> Answer:
        """Get a page, in the session if there is one."""
        return self.web.ask("GET", target, self._headers(headers))

    def post(self, target: str, fields: Sequence[tuple[str, str]] = (), **headers: str) -> Answer:
        """Post a form, with the session's token."""
        pairs = [*fields, *([("csrf-token", self.csrf)] if self.csrf else [])]
        sent = {**self._headers(headers), "Content-Type": FORM}
        return self.web.ask("POST", target, sent, urlencode(pairs).encode())

    def log_in(self, password: str = "secret", **more: str) -> Answer:
        """Log in as ann."""
        fields = [("user", "ann"), ("password", password), *more.items()]
        answer = self.post("/ui/login", fields)
        cookies = answer.all("Set-Cookie")
        if cookies:
            self.cookie = cookies[0].partition(";")[0]
            _, session = next(iter(self.web.sessions._sessions.items()))
            self.csrf = session.csrf
        return answer

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        found = {name.replace("_", "-"): value for name, value in more.items()}
        return {**found, **({"Cookie": self.cookie} if self.cookie else {})}


def serve(broker: str) -> None:
    """Serve a sample until the process is ended."""
    # Any: trial's and our own interfaces of the reactor, which is a module.
    from twisted.internet import reactor as installed

    reactor: Any = installed
    source, view = BROKERS[broker]()
    pages = Pages(Path(tempfile.mkdtemp()), source, view, reactor)
    pages.web.site.clock = reactor
    listener = HttpListener(reactor, "tcp:0:interface=127.0.0.1", pages.web.site)

    def say() -> None:
        listener.startService()
        address: Any = listener.addresses[0]
        print(address.port, flush=True)

    reactor.callWhenRunning(say)
    reactor.run()


if __name__ == "__main__":
    serve(sys.argv[1] if sys.argv[1:] else "ordinary")

__all__ = ["Pages", "ordinary", "serve"]
