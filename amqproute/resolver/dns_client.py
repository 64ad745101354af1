# SPDX-License-Identifier: Apache-2.0
"""A stub DNS client that never blocks the reactor.

dnspython builds and parses the messages, Twisted transports them. A query proceeds as follows::

    ask ── same query in progress? ── yes ──▶ wait for its answer too
     │ no
     ▼
    for each round, for each server:   UDP from a fresh port, random id
        answer ──▶ truncated? ──▶ the same over TCP ──▶ read ──▶ done, or follow the alias
        SERVFAIL, REFUSED, malformed ──▶ skip this server for this query; next server
        silence ──▶ next server; queried again, with a longer time-out, in the next round
            no server left, or deadline passed ──▶ ResolveError with a line for each try

A silent server is queried last for half a minute, so that a dead first entry in resolv.conf costs
one time-out instead of one for each query.

Dozens of answers may arrive together: only a few of them are parsed in one turn of the reactor, see
`amqproute.turn_scheduler`.

Against forged answers (RFC 5452): each query has its own UDP socket on a port chosen by the kernel,
connected to the server's address, and a random id; datagrams from other addresses, with another id
or another question are ignored. After several of those the query is repeated over TCP, where an
attacker who cannot see our packets cannot guess.

DNSSEC works in two ways. With a `DnssecValidator`, queries request signatures (DO, and CD so that a
validating server does not hide errors), which are checked here. Without one the AD bit counts, but
only from a server that the configuration trusts. Such a server answers SERVFAIL if its validation
fails; whether that was the cause is learned by the same query without validation (CD) or from the
answer itself (RFC 8914), because ``dns.bogus`` and ``dns.servfail`` have different remedies.

Why transports of its own: those of `twisted.names` decode messages themselves, without the records
of DNSSEC, and do not compare the question. `dns.asyncquery` does, but it waits by the wall clock,
which operators set and tests cannot turn; it parses in the call that has received; it never gives
up on forged datagrams; and it would need a backend for Twisted's sockets, as long as the two
protocols below.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
from twisted.internet.defer import Deferred, DeferredSemaphore, TimeoutError
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, connectProtocol
from twisted.internet.error import CannotListenError, ConnectError
from twisted.internet.error import TimeoutError as ConnectTimeoutError
from twisted.internet.interfaces import IConnector, IDelayedCall, IListeningPort
from twisted.internet.protocol import DatagramProtocol
from twisted.protocols.basic import Int16StringReceiver
from twisted.python.failure import Failure

from amqproute.errors import ResolveError
from amqproute.resolver.answer import (
    DnsAnswer,
    DnsOutcome,
    DnsQuestion,
    UnusableAnswer,
    read_response,
)
from amqproute.resolver.dnssec import DnssecValidator
from amqproute.resolver.nameservers import Nameserver
from amqproute.tracebacks import forget_frames, without_frames
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["ClientLimits", "DnsClient", "DnsReactor", "ListeningReactor"]

EDNS_PAYLOAD: Final = 1232
"""The UDP size offered: fits IPv6's minimum MTU, never fragments (DNS flag day 2020)."""

HOLD_DOWN_SECONDS: Final = 30.0
"""Time for which a silent server is queried after the others."""

MAX_STRAY_DATAGRAMS: Final = 16
"""Unrelated datagrams after which a query is repeated over TCP."""

# Priority of failures in the report when servers failed differently: answers from servers before
# the absence of answers.
_MOST_TELLING: Final = (
    "dns.bogus",
    "dns.not-dnssec-capable",
    "dns.loop",
    "dns.servfail",
    "dns.refused",
    "dns.malformed",
    "dns.timeout",
    "dns.unreachable",
)

_WORDS: Final = {
    "dns.bogus": "DNSSEC validation fails",
    "dns.not-dnssec-capable": "the name servers do not pass DNSSEC on",
    "dns.loop": "its aliases form a loop or too long a chain",
    "dns.servfail": "the name servers fail to resolve it",
    "dns.refused": "the name servers refuse to resolve it",
    "dns.malformed": "the name servers answer with nonsense",
    "dns.timeout": "no name server answered in time",
    "dns.unreachable": "no name server can be reached",
}


_BOGUS_ERRORS: Final = frozenset({5, 6, 7, 8, 9, 10, 11, 12, 25, 27})
"""Extended DNS errors about DNSSEC (RFC 8914 §4)."""


class DnsReactor(Protocol):
    """The parts of a reactor that DNS needs."""

    def seconds(self) -> float:
        """`IReactorTime.seconds`."""

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kwargs: object
    ) -> IDelayedCall:
        """`IReactorTime.callLater`."""

    @property
    def listenUDP(self) -> Callable[..., IListeningPort]:
        """`IReactorUDP.listenUDP`."""

    @property
    def connectTCP(self) -> Callable[..., IConnector]:
        """`IReactorTCP.connectTCP`."""


class ListeningReactor(DnsReactor, Protocol):
    """The parts of a reactor that a DNS server needs."""

    @property
    def listenTCP(self) -> Callable[..., IListeningPort]:
        """`IReactorTCP.listenTCP`."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The bounds of a client; times are in seconds.

    Attributes:
        try_timeout: how long one server has for its answer in the first round; twice that in the
            second, and so on.
        rounds: how often a silent server is queried.
        deadline: total time of a query, including aliases.
        max_concurrent: the number of queries in progress at a time; one socket each.
        max_waiting: the number of queries waiting beyond those; further ones fail with
            ``dns.busy``.
        max_aliases: the number of aliases followed from answer to answer, besides those inside one.
    """

    try_timeout: float = 2.0
    rounds: int = 2
    deadline: float = 10.0
    max_concurrent: int = 64
    max_waiting: int = 4096
    max_aliases: int = 8


@dataclass(slots=True, eq=False)
class _Flight:
    """A query in progress and everybody waiting for it."""

    question: DnsQuestion
    attempts: list[str] = field(default_factory=list)
    waiters: list[Deferred[DnsAnswer]] = field(default_factory=list)
    task: Deferred[DnsAnswer] | None = None
    deadline: float = 0.0


class DnsClient:
    """Queries name servers.

    Args:
        reactor: sockets and time.
        nameservers: the nameservers, in order of preference; at least one.
        random: chooses message ids; `random.SystemRandom` in a daemon.
        limits: time-outs and bounds.
        authentication: whether to request the AD bit (RFC 6840 §5.7).
        trusts: whether to trust a server's AD bit; None trusts all of them.
        validator: validates answers here instead of trusting servers.
        turns: spreads the parsing of answers over turns of the reactor; by default, a scheduler of
            its own.
    """

    def __init__(
        self,
        reactor: DnsReactor,
        nameservers: list[Nameserver],
        random: _random.Random,
        *,
        limits: ClientLimits | None = None,
        authentication: bool = True,
        trusts: Callable[[Nameserver], bool] | None = None,
        validator: DnssecValidator | None = None,
        turns: TurnScheduler | None = None,
    ) -> None:
        self._reactor = reactor
        self._random = random
        self.limits = limits or ClientLimits()
        self._authentication = authentication
        self._trusts = trusts
        self._validator = validator
        self._nameservers: tuple[Nameserver, ...] = ()
        self._silent_until: dict[Nameserver, float] = {}
        self._flights: dict[DnsQuestion, _Flight] = {}
        self._slots = DeferredSemaphore(self.limits.max_concurrent)
        # Handling an answer takes a few milliseconds with its consequences: a message sent on, a
        # failed attempt, the next query. Dozens may be in progress, and all answers may arrive
        # together.
        self._turns_of_answers = turns or TurnScheduler(reactor)  # type: ignore[arg-type]
        self.set_nameservers(nameservers)

    def __repr__(self) -> str:
        servers = " ".join(map(str, self._nameservers))
        return f"<DnsClient {servers} questions={len(self._flights)}>"

    @property
    def validates(self) -> bool:
        """Whether answers are validated in this process."""
        return self._validator is not None

    @property
    def is_trusting(self) -> bool:
        """Whether the AD bit of any server would be trusted."""
        return self._authentication and any(map(self._believes, self._nameservers))

    def _believes(self, server: Nameserver) -> bool:
        return self._trusts is None or self._trusts(server)

    @property
    def nameservers(self) -> tuple[Nameserver, ...]:
        """The servers in the order of the configuration."""
        return self._nameservers

    def set_nameservers(self, nameservers: list[Nameserver]) -> None:
        """Use these servers from the next try on.

        Raises:
            ValueError: the list is empty.
        """
        if not nameservers:
            raise ValueError("a DNS client needs at least one name server")
        self._nameservers = tuple(nameservers)
        self._silent_until.clear()

    def ask(self, question: DnsQuestion) -> Deferred[DnsAnswer]:
        """Return the answer to a question; identical concurrent questions share one query.

        Cancelling ends the wait, and the query if nobody else waits for it. The Deferred fails with
        `ResolveError` (``dns.servfail``, ``dns.refused``, ``dns.malformed``, ``dns.timeout``,
        ``dns.unreachable``, ``dns.loop``, ``dns.busy``): none is permanent, because none proves
        anything about the name. NXDOMAIN and NODATA are answers.
        """
        flight = self._flights.get(question)
        if flight is not None:
            return self._board(flight)
        if len(self._flights) >= self.limits.max_concurrent + self.limits.max_waiting:
            text = f"{len(self._flights)} questions are under way already"
            return _failed(ResolveError("dns.busy", text, permanent=False))
        flight = _Flight(question, deadline=self._reactor.seconds() + self.limits.deadline)
        self._flights[question] = flight
        waiter = self._board(flight)
        task = Deferred.fromCoroutine(self._fly(flight))
        flight.task = task
        # The tries have their own time-outs; this one also covers the wait for a slot.
        task.addErrback(without_frames)
        task.addTimeout(self.limits.deadline, self._reactor)  # type: ignore[arg-type]  # IReactorTime
        task.addBoth(self._land, flight)
        return waiter

    def _board(self, flight: _Flight) -> Deferred[DnsAnswer]:
        def leave(waiter: Deferred[DnsAnswer]) -> None:
            flight.waiters.remove(waiter)
            if not flight.waiters and flight.task is not None:
                # From now on, the same question starts a new query.
                if self._flights.get(flight.question) is flight:
                    del self._flights[flight.question]
                flight.task.cancel()

        waiter: Deferred[DnsAnswer] = Deferred(leave)
        flight.waiters.append(waiter)
        return waiter

    def _land(self, result: DnsAnswer | Failure, flight: _Flight) -> None:
        if self._flights.get(flight.question) is flight:
            del self._flights[flight.question]
        waiters, flight.waiters = flight.waiters, []
        if isinstance(result, Failure):
            reason = result.value
            forget_frames(reason)
            if isinstance(reason, TimeoutError):
                reason = _timed_out("dns.timeout", flight)
            for waiter in waiters:
                waiter.errback(_again(reason))
        else:
            for waiter in waiters:
                waiter.callback(result)

    async def _fly(self, flight: _Flight) -> DnsAnswer:
        await self._slots.acquire()
        try:
            return await self._follow(flight)
        finally:
            self._slots.release()

    async def _follow(self, flight: _Flight) -> DnsAnswer:
        """Send the query, and a further one for an alias that the server did not resolve."""
        question, ttl, authenticated = flight.question, float("inf"), True
        seen = {question.name}
        while True:
            answer = await self._ask_servers(question, flight)
            ttl = min(ttl, answer.ttl)
            authenticated = authenticated and answer.authenticated
            if answer.outcome is not DnsOutcome.ALIAS:
                return replace(
                    answer,
                    question=flight.question,
                    ttl=ttl,
                    authenticated=authenticated,
                    attempts=tuple(flight.attempts),
                )
            if answer.canonical in seen or len(seen) > self.limits.max_aliases:
                raise _timed_out("dns.loop", flight)
            seen.add(answer.canonical)
            question = DnsQuestion(answer.canonical, question.rdtype)

    async def _ask_servers(
        self, question: DnsQuestion, flight: _Flight, *, first: Nameserver | None = None
    ) -> DnsAnswer:
        """Try server after server, round after round.

        Args:
            question: the question.
            flight: the query that it belongs to.
            first: for the validator's own queries, whose answers are not validated again: the
                server whose answer is being validated, which must supply its proofs.
        """
        failures: set[str] = set()
        now = self._reactor.seconds()
        servers = sorted(
            self._nameservers,
            key=lambda each: (each != first, self._silent_until.get(each, 0.0) > now),
        )
        for round_number in range(self.limits.rounds):
            patience = self.limits.try_timeout * 2**round_number
            for server in tuple(servers):
                left = flight.deadline - self._reactor.seconds()
                if left <= 0:
                    raise _timed_out("dns.timeout", flight)
                try:
                    answer = await self._try(question, server, min(patience, left))
                    if self._validator is not None and first is None:
                        answer = await self._judge(self._validator, answer, flight, server)
                except UnusableAnswer as failure:
                    forget_frames(failure)
                    flight.attempts.append(f"{question} @{server}: {failure}")
                    failures.add(failure.code)
                    if failure.code == "dns.timeout":
                        until = self._reactor.seconds() + HOLD_DOWN_SECONDS
                        self._silent_until[server] = until
                    else:
                        servers.remove(server)
                else:
                    self._silent_until.pop(server, None)
                    flight.attempts.append(f"{question} @{server}: {answer.summary()}")
                    return answer
        raise _timed_out(min(failures, key=_MOST_TELLING.index), flight)

    async def _judge(
        self, validator: DnssecValidator, answer: DnsAnswer, flight: _Flight, server: Nameserver
    ) -> DnsAnswer:
        """Validate an answer; raise `UnusableAnswer` if it is bogus."""

        async def fetch(question: DnsQuestion) -> dns.message.Message:
            # Within this flight's deadline and slot.
            further = await self._ask_servers(question, flight, first=server)
            assert further.message is not None
            return further.message

        judgment = await validator.judge(answer, fetch)
        ttl = min(answer.ttl, judgment.ttl)
        return replace(answer, authenticated=judgment.is_secure, ttl=ttl, message=None)

    async def _try(self, question: DnsQuestion, server: Nameserver, patience: float) -> DnsAnswer:
        """Send one question to one server, over UDP and, if necessary, TCP.

        Raises:
            UnusableAnswer: the server gave no usable answer.
        """
        turns: Deferred[DnsAnswer] = Deferred.fromCoroutine(self._turns(question, server))
        turns.addErrback(without_frames)
        turns.addTimeout(patience, self._reactor)  # type: ignore[arg-type]  # as above
        try:
            return await turns
        except TimeoutError:
            raise UnusableAnswer("dns.timeout", f"no answer in {patience:.3g} s") from None

    async def _turns(self, question: DnsQuestion, server: Nameserver) -> DnsAnswer:
        try:
            query = self._query(question, edns=True)
        except dns.exception.DNSException as error:
            raise UnusableAnswer("dns.malformed", f"cannot be asked: {error}") from None
        response = await self._exchange(query, server)
        if response.rcode() in (dns.rcode.FORMERR, dns.rcode.NOTIMP, dns.rcode.BADVERS):
            # A server from before EDNS (RFC 6891 §7).
            response = await self._exchange(self._query(question, edns=False), server)
        believes = self._authentication and self._believes(server)
        if self._validator is None and believes and response.rcode() == dns.rcode.SERVFAIL:
            await self._blame(question, response, server)
        answer = read_response(question, response)
        if self._validator is not None:
            return replace(answer, authenticated=False, message=response)
        return answer if believes else replace(answer, authenticated=False)

    async def _blame(
        self, question: DnsQuestion, response: dns.message.Message, server: Nameserver
    ) -> None:
        """Find out whether a SERVFAIL was caused by validation.

        Raises:
            UnusableAnswer: ``dns.bogus``, if it was.
        """
        for each in response.extended_errors():
            if int(each.code) in _BOGUS_ERRORS:
                raise UnusableAnswer("dns.bogus", f"SERVFAIL: {each.to_text()}")
        unchecked = self._query(question, edns=True)
        unchecked.flags |= dns.flags.CD
        again = await self._exchange(unchecked, server)
        if again.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise UnusableAnswer(
                "dns.bogus", "SERVFAIL, and an answer where validation is switched off"
            )

    def _query(self, question: DnsQuestion, *, edns: bool) -> dns.message.QueryMessage:
        query = dns.message.make_query(
            dns.name.from_text(question.name),
            question.rdtype,
            use_edns=0 if edns else False,
            payload=EDNS_PAYLOAD if edns else None,
            id=self._random.getrandbits(16),
            want_dnssec=edns and self._validator is not None,
        )
        if self._validator is not None:
            query.flags |= dns.flags.CD
        elif self._authentication:
            query.flags |= dns.flags.AD
        return query

    async def _exchange(
        self, query: dns.message.QueryMessage, server: Nameserver
    ) -> dns.message.Message:
        response = await self._by_udp(query, server)
        if response is None or response.flags & dns.flags.TC:
            response = await self._by_tcp(query, server)
            if response.flags & dns.flags.TC:
                raise UnusableAnswer("dns.malformed", "truncated over TCP")
        return response

    async def _by_udp(
        self, query: dns.message.QueryMessage, server: Nameserver
    ) -> dns.message.Message | None:
        conversation = _UdpQuery(query, server, self._turns_of_answers)
        try:
            # Port 0: the kernel picks a port at random, another one for each query.
            port = self._reactor.listenUDP(
                0, conversation, interface="::" if server.is_ipv6 else "", maxPacketSize=65535
            )
        except (OSError, CannotListenError) as error:
            raise UnusableAnswer("dns.unreachable", f"no UDP socket: {error}") from None
        try:
            conversation.start()
            return await conversation.result
        finally:
            if not conversation.closed:
                conversation.closed = True
                port.stopListening()

    async def _by_tcp(
        self, query: dns.message.QueryMessage, server: Nameserver
    ) -> dns.message.Message:
        endpoint_type = TCP6ClientEndpoint if server.is_ipv6 else TCP4ClientEndpoint
        endpoint = endpoint_type(self._reactor, server.host, server.port)
        try:
            conversation: _TcpQuery = await connectProtocol(  # type: ignore[no-untyped-call]
                endpoint, _TcpQuery(query, self._turns_of_answers)
            )
        except ConnectTimeoutError:
            raise UnusableAnswer("dns.timeout", "no TCP connection in time") from None
        except ConnectError as error:
            raise UnusableAnswer("dns.unreachable", f"no TCP connection: {error}") from None
        try:
            return await conversation.result
        finally:
            conversation.close()


class _UdpQuery(DatagramProtocol):
    """One query over one UDP socket.

    Attributes:
        result: the response; None after too many forged datagrams, when TCP must be used.
        closed: whether the socket is closed or about to be.
    """

    noisy = False

    def __init__(
        self, query: dns.message.QueryMessage, server: Nameserver, turns: TurnScheduler
    ) -> None:
        self._query = query
        self._server = server
        self._turns = turns
        self._stray = 0
        self._unread = 0
        self.closed = False
        self.result: Deferred[dns.message.Message | None] = Deferred()

    def start(self) -> None:
        """Send the query; raise `UnusableAnswer` if this machine has no route to the server."""
        assert self.transport is not None
        try:
            self.transport.connect(self._server.host, self._server.port)
            self.transport.write(self._query.to_wire(), (self._server.host, self._server.port))
        except OSError as error:
            raise UnusableAnswer("dns.unreachable", f"cannot send: {error.strerror}") from None

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        """Accept the first datagram that is the answer; ignore all others."""
        if self.result.called:
            return
        if addr[:2] != (self._server.host, self._server.port) or not _has_id(self._query, datagram):
            self._pass_over()
        elif self._unread < MAX_STRAY_DATAGRAMS:
            self._unread += 1
            self._turns.ask("dns", "", lambda: self._read(datagram))

    def _read(self, datagram: bytes) -> None:
        self._unread -= 1
        if self.result.called:
            return
        try:
            response = _parse(self._query, datagram)
        except UnusableAnswer as failure:
            self.result.errback(failure)
        else:
            if response is None:
                self._pass_over()
            else:
                self.result.callback(response)

    def connectionRefused(self) -> None:
        """Handle an ICMP message: nothing listens there."""
        if not self.result.called:
            self.result.errback(UnusableAnswer("dns.unreachable", "nobody listens there"))

    def stopProtocol(self) -> None:
        """Handle a closed socket: closed by us, or by a reactor on epoll after an ICMP error.

        Such a reactor treats an error without data as the end of a connection, even for UDP, and
        never calls `connectionRefused`.
        """
        if not self.closed:
            self.closed = True
            self.connectionRefused()

    def _pass_over(self) -> None:
        self._stray += 1
        if self._stray == MAX_STRAY_DATAGRAMS:
            self.result.callback(None)


class _TcpQuery(Int16StringReceiver):
    """One query over one TCP connection (RFC 7766)."""

    def __init__(self, query: dns.message.QueryMessage, turns: TurnScheduler) -> None:
        self._query = query
        self._turns = turns
        self._has_answer = False
        self.result: Deferred[dns.message.Message] = Deferred()

    def connectionMade(self) -> None:
        """Send the query."""
        self.sendString(self._query.to_wire())  # type: ignore[no-untyped-call]

    def stringReceived(self, string: bytes) -> None:
        """Accept the answer; over TCP anything else is an error of the server."""
        if self.result.called or self._has_answer:
            return
        self._has_answer = True
        self._turns.ask("dns", "", lambda: self._read(string))

    def _read(self, string: bytes) -> None:
        if self.result.called:
            return
        try:
            response = _parse(self._query, string)
        except UnusableAnswer as failure:
            self.result.errback(failure)
            return
        if response is None:
            self.result.errback(UnusableAnswer("dns.malformed", "the answer to another question"))
        else:
            self.result.callback(response)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Handle the end of the connection; without an answer that is a failure."""
        if not (self.result.called or self._has_answer):
            text = "the TCP connection was closed without an answer"
            self.result.errback(UnusableAnswer("dns.unreachable", text))

    def close(self) -> None:
        """Close the connection, whatever its state."""
        if self.transport is not None:
            self.transport.loseConnection()


def _has_id(query: dns.message.QueryMessage, wire: bytes) -> bool:
    """Return whether a message has the id of the query; much cheaper than parsing it."""
    return len(wire) >= 2 and int.from_bytes(wire[:2], "big") == query.id


def _parse(query: dns.message.QueryMessage, wire: bytes) -> dns.message.Message | None:
    """Parse a response.

    Returns:
        The response, or None if it does not belong to the query.

    Raises:
        UnusableAnswer: the id is right, but it is not a valid DNS message.
    """
    if not _has_id(query, wire):
        return None
    try:
        response = dns.message.from_wire(wire)
    except (dns.exception.DNSException, ValueError) as error:
        raise UnusableAnswer(
            "dns.malformed", f"a malformed message: {type(error).__name__}"
        ) from None
    return response if query.is_response(response) else None


def _timed_out(code: str, flight: _Flight) -> ResolveError:
    return ResolveError(
        code,
        f"{flight.question}: {_WORDS[code]}",
        permanent=False,
        attempts=tuple(flight.attempts),
    )


def _again(reason: BaseException | None) -> BaseException | None:
    """Return a copy of the error for one more waiter: each has a traceback of its own."""
    if isinstance(reason, ResolveError):
        code, words, attempts = reason.code, str(reason), reason.attempts
        return ResolveError(code, words, permanent=reason.permanent, attempts=attempts)
    return reason


def _failed(error: Exception) -> Deferred[DnsAnswer]:
    failed: Deferred[DnsAnswer] = Deferred()
    failed.errback(error)
    return failed
