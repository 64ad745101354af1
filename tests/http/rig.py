# SPDX-License-Identifier: Apache-2.0
"""An HTTP site in memory: users, tokens, sessions, connections by octets, one clock."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message as Headers
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, execute, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from amqproute.auth.access_tokens import AccessTokens
from amqproute.auth.password_log_in import BearerResult
from amqproute.auth.realm import LogInTransport
from amqproute.http.client_memory import ClientMemory
from amqproute.http.http_channel import HttpChannel, HttpLimits
from amqproute.http.http_messages import ClientFacts
from amqproute.http.login import HttpLogIn
from amqproute.http.session_resources import add_session_resources
from amqproute.http.sessions import BrowserSessions
from amqproute.http.site import HttpSite, SiteTerms
from amqproute.turn_scheduler import TurnScheduler
from amqproute.values import Principal

LOOPBACK = ClientFacts("127.0.0.1", False, True)
TLS = ClientFacts("192.0.2.7", True, False, has_tls=True)
PLAIN = ClientFacts("192.0.2.7")
NOW = 1_700_000_000.0
GOOD = "token.of.carl"
GOOD_UNTIL = NOW + 100


class Passwords:
    """Users with their passwords; a password may be left waiting."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self.users = dict(users)
        self.is_busy = False

    def principal(
        self, name: str, password: str, facts: LogInTransport
    ) -> Deferred[Principal | bool | None]:
        """See `PasswordCheck`."""
        if self.is_busy:
            return succeed(False)
        is_right = self.users.get(name) == password
        return succeed(Principal("user", name) if is_right else None)

    def bearer(self, token: str, facts: LogInTransport) -> Deferred[BearerResult]:
        """See `PasswordCheck`."""
        if self.is_busy:
            return succeed(False)
        if token != GOOD:
            return succeed(None)
        return succeed((Principal("user", "carl", realm="oauth"), GOOD_UNTIL))

    def is_known(self, principal: Principal) -> bool:
        """See `PasswordCheck`."""
        return principal.kind != "user" or bool(principal.realm) or principal.name in self.users


@dataclass
class Answer:
    """An answer as its client reads it."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:  # Any: whatever the answer says
        """Return the value of the body."""
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        """Return the values of a header."""
        return self.headers.get_all(name, [])


class Wire(StringTransport):
    """A transport that knows whether it is to be closed."""

    is_aborted = False

    def abortConnection(self) -> None:
        """Take note."""
        self.is_aborted = True


def basic(name: str, password: str) -> str:
    """Return the header of a Basic log-in."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


ANN = {"Authorization": basic("ann", "secret")}
BOB = {"Authorization": basic("bob", "secret")}


class HttpConnection:
    """One connection, by octets."""

    def __init__(self, web: Web, client: ClientFacts) -> None:
        self.web = web
        self.transport = Wire()
        self.channel = HttpChannel(
            web.site,
            web.clock,
            web.limits,
            lambda _: self._gone(),
            lambda _: client,
            client.address,
            web.held,
            web.turns,
        )
        self.is_lost = False
        self.channel.makeConnection(self.transport)  # type: ignore[no-untyped-call]

    def _gone(self) -> None:
        self.is_lost = True

    def send(self, octets: bytes) -> None:
        """Send octets."""
        self.channel.dataReceived(octets)

    def lose(self) -> None:
        """Lose the connection."""
        self.channel.connectionLost(Failure(ConnectionDone()))

    def read(self) -> bytes:
        """Return what has come, once."""
        octets = self.transport.value()
        self.transport.clear()
        return octets

    def answer(self) -> Answer:
        """Return the one answer that has come."""
        return read_answer(self.read())


@dataclass
class Web:
    """A site on a clock.

    Attributes:
        directory: of the tokens.
        turns: where reads wait; None to take each at once.
    """

    directory: Path
    terms: SiteTerms = field(default_factory=SiteTerms)
    limits: HttpLimits = field(default_factory=HttpLimits)
    clock: Clock = field(default_factory=Clock)
    connections: list[HttpConnection] = field(default_factory=list)
    held: ClientMemory = field(default_factory=ClientMemory)
    turns: TurnScheduler | None = None

    def __post_init__(self) -> None:
        self.passwords = Passwords({"ann": "secret", "bob": "secret", "eve": "secret"})
        self.tokens = AccessTokens(self.directory, lambda: int(self.now() * 1000), execute)
        self.sessions = BrowserSessions(self.clock.seconds, 50)
        self.login = HttpLogIn(self.passwords, self.tokens, self.sessions)
        self.site = HttpSite(self.clock, self.login, self.terms, self.now)
        add_session_resources(self.site, self.login)

    def now(self) -> float:
        """Return the wall clock."""
        return NOW + self.clock.seconds()

    def connect(self, client: ClientFacts = LOOPBACK) -> HttpConnection:
        """Connect."""
        made = HttpConnection(self, client)
        self.connections.append(made)
        return made

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | object = b"",
        client: ClientFacts = LOOPBACK,
    ) -> Answer:
        """Send one request on a connection of its own; return its answer."""
        connection = self.connect(client)
        connection.send(encode(method, target, headers, body))
        octets = -1
        while octets != len(connection.transport.value()):  # a large answer takes turns
            octets = len(connection.transport.value())
            self.clock.advance(0)
        answer = connection.answer()
        connection.lose()
        return answer

    def close(self) -> None:
        """Lose all connections."""
        for each in self.connections:
            if not each.is_lost:
                each.lose()


def is_whole(method: str, octets: bytes) -> bool:
    """Tell whether an answer has come to its end; one without a length ends with its headers."""
    if b"\r\n\r\n" not in octets:
        return False
    answer = read_answer(octets)
    length = 0 if method == "HEAD" else int(answer.headers.get("Content-Length", 0))
    return len(answer.body) >= length


def read_answer(octets: bytes) -> Answer:
    """Read one answer."""
    head, _, body = octets.partition(b"\r\n\r\n")
    first, _, headers = head.partition(b"\r\n")
    parsed = BytesHeaderParser().parsebytes(headers + b"\r\n\r\n")
    return Answer(int(first.split()[1]), parsed, body)


def encode(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | object = b"",
) -> bytes:
    """Return the octets of a request; a body that is no octets is JSON."""
    fields = {"Host": "localhost", **(headers or {})}
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    if not isinstance(body, bytes):
        fields.setdefault("Content-Type", "application/json")
    if octets:
        fields["Content-Length"] = str(len(octets))
    lines = [f"{method} {target} HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + octets
