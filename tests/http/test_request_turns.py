# SPDX-License-Identifier: Apache-2.0
"""Requests take turns with each other and with other work of the reactor."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.http.http_messages import ClientFacts, HttpRequest, HttpResponse
from amqproute.http.requester import Requester
from amqproute.http.site import MOST_WAITING, HttpAccess, HttpSite, SiteTerms
from amqproute.turn_scheduler import TURN_SECONDS, TurnScheduler
from amqproute.values import Principal
from tests.http.rig import Web
from tests.support.turn_clock import TurnClock


class RequestTurnTests(SynchronousTestCase):
    """A site whose requests use processor time."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.web = Web(directory)
        self.addCleanup(self.web.close)
        self.clock = TurnClock()
        self.used = 0.0
        self.turns = TurnScheduler(self.clock, lambda: self.used)
        terms = SiteTerms(requests_per_second=1e6)
        self.site = HttpSite(self.clock, self.web.login, terms, self.web.now, self.turns)
        self.begun: list[str] = []
        self.site.mount("/slow", self.slow, access=HttpAccess.OPEN)

    def turn(self) -> None:
        """Let a turn of the reactor pass, in which there is other work."""
        self.used += TURN_SECONDS / 4
        self.clock.turn()

    def slow(self, request: HttpRequest) -> HttpResponse:
        """Use the time of three turns."""
        self.used += 3 * TURN_SECONDS
        self.begun.append(request.client.address)
        return HttpResponse(200, b"done", "text/plain")

    def ask(self, address: str = "192.0.2.1") -> Deferred[HttpResponse]:
        """Send a request."""
        path = "/slow"
        return self.site.answer(
            HttpRequest("GET", path, (path[1:],), {}, {}, b"", ClientFacts(address))
        )

    def test_at_once(self) -> None:
        """A request on an idle broker does not wait."""
        self.assertEqual(self.successResultOf(self.ask()).status, 200)

    def test_pays_back(self) -> None:
        """After a request that took three turns' time, two turns are for other work."""
        asked = [self.ask() for _ in range(3)]
        seen = [len(self.begun)]
        for _ in range(6):
            self.turn()
            seen.append(len(self.begun))
        self.assertEqual(seen, [1, 1, 1, 2, 2, 2, 3])
        self.assertEqual([self.successResultOf(each).status for each in asked], [200] * 3)

    def test_addresses(self) -> None:
        """One with many requests waits behind itself; another has the next turn but one."""
        for _ in range(50):
            self.ask()
        other = self.ask("192.0.2.2")
        for _ in range(6):
            self.turn()
        self.assertEqual(self.begun, ["192.0.2.1", "192.0.2.1", "192.0.2.2"])
        self.assertEqual(self.successResultOf(other).status, 200)

    def test_other_work(self) -> None:
        """Steps of a handshake are not behind the requests."""
        for _ in range(50):
            self.ask()
        self.turns.put_off("tls", "192.0.2.3", lambda: self.begun.append("handshake"))
        for _ in range(6):
            self.turn()
        self.assertEqual(self.begun, ["192.0.2.1", "192.0.2.1", "handshake", "192.0.2.1"])

    def test_bound(self) -> None:
        """Requests beyond the bound of an address are refused, and others are not."""
        asked = [self.ask() for _ in range(MOST_WAITING + 3)]
        refused = [self.successResultOf(each) for each in asked[-2:]]
        self.assertEqual([each.status for each in refused], [503, 503])
        self.assertIn(("Retry-After", "5"), refused[0].headers)
        self.assertNoResult(asked[-3])
        other = self.ask("192.0.2.2")
        self.assertNoResult(other)
        while self.turns.waiting:
            self.turn()
        self.assertEqual(self.successResultOf(other).status, 200)
        self.assertEqual(self.successResultOf(asked[-3]).status, 200)
        # The places are free again.
        again = [self.ask() for _ in range(MOST_WAITING)]
        while self.turns.waiting:
            self.turn()
        self.assertEqual({self.successResultOf(each).status for each in again}, {200})

    def test_after_a_log_in(self) -> None:
        """What follows a log-in that a thread has verified is a step of its own."""
        self.site.mount("/mine", self.slow, access=HttpAccess.LOGGED_IN)
        waiting: Deferred[Requester | None] = Deferred()
        self.patch(self.web.login, "requester", lambda _: _awaited(waiting))
        path = "/mine"
        request = HttpRequest("GET", path, ("mine",), {}, {}, b"", ClientFacts("192.0.2.1"))
        answered = self.site.answer(request)
        self.used += 3 * TURN_SECONDS  # by a step of somebody else
        self.turns.ask("tls", "", lambda: None)
        waiting.callback(Requester(Principal("user", "ann"), "password"))
        self.assertEqual(self.begun, [])
        for _ in range(3):
            self.turn()
        self.assertEqual(self.begun, ["192.0.2.1"])
        self.assertEqual(self.successResultOf(answered).status, 200)


async def _awaited(waiting: Deferred[Requester | None]) -> Requester | None:
    return await waiting
