# SPDX-License-Identifier: Apache-2.0
"""Memory left by strangers' names: no garbage, and little that stays."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import dns.message
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ResolveError
from amqproute.resolver.answer import DnsAnswer, DnsOutcome, DnsQuestion
from amqproute.resolver.dns_cache import CacheLimits, DnsCache
from amqproute.resolver.dns_client import DnsClient
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import ResolverLimits, SrvResolver
from tests.resolver.fakes import PretendNetwork
from tests.support.objects import PART, left_by

SERVER = ("192.0.2.53", 53)


class Reply:
    """Octets, and when they come."""

    delay = 0.0

    def __init__(self, wire: bytes) -> None:
        self.wire = wire


class Saying:
    """A name server that answers everything in one way."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer = answer

    def respond(self, wire: bytes, udp: bool) -> Reply | None:
        """As `ZoneAuthority.respond`."""
        answer = self._answer(wire)
        return None if answer is None else Reply(answer)


def saying(code: dns.rcode.Rcode) -> Saying:
    """Return a name server that answers with a code and nothing else."""

    def answer(wire: bytes) -> bytes:
        response = dns.message.make_response(dns.message.from_wire(wire))
        response.set_rcode(code)
        return response.to_wire()

    return Saying(answer)


class RefusingClient:
    """A client of name servers that refuse: each answer comes in a later turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked = 0

    def ask(self, question: DnsQuestion) -> Deferred[DnsAnswer]:
        """As `DnsClient.ask`."""
        self.asked += 1
        asked: Deferred[DnsAnswer] = Deferred()
        error = ResolveError("dns.refused", f"{question}: refused", permanent=False)
        self._clock.callLater(0.001, asked.errback, error)
        return asked


class CycleTests(SynchronousTestCase):
    """No look-up leaves an object to the garbage collector, whatever name servers do."""

    def setUp(self) -> None:
        self.network = PretendNetwork()
        self.numbers = count()

    def check(self, steps: int = 12, step: float = 0.001, **limits: Any) -> None:
        """Look 60 names up that fail, and the last of them again."""
        network = self.network
        client = DnsClient(network, [Nameserver(*SERVER)], random.Random(1))
        cache: DnsCache[DnsQuestion, DnsAnswer] = DnsCache(network, CacheLimits(max_entries=8))
        resolver = SrvResolver(
            client, cache, random.Random(2).random, network, limits=ResolverLimits(**limits)
        )
        codes: set[str] = set()

        def look_up() -> None:
            domain = f"n{next(self.numbers)}.example"
            for _ in range(2):
                codes.add(self.look_up(resolver, domain, steps, step))
            network.sent.clear()
            network.tcp_dials.clear()

        left = left_by(look_up, 60)
        self.assertEqual(left.cyclic, 0, left.kinds)
        self.assertLess(left.kept, 60)
        self.assertEqual(len(codes), 1)

    def look_up(self, resolver: SrvResolver, domain: str, steps: int, step: float) -> str:
        """Look a name up; return the code of the failure."""
        codes: list[str] = []
        resolver.resolve(domain).addErrback(lambda failure: codes.append(failure.value.code))
        for _ in range(steps):
            self.network.advance(step)
        (code,) = codes
        return code

    def test_refused(self) -> None:
        """REFUSED, as in the attack."""
        self.network.servers[SERVER] = saying(dns.rcode.REFUSED)
        self.check()

    def test_servfail(self) -> None:
        """SERVFAIL, which is asked about once more."""
        self.network.servers[SERVER] = saying(dns.rcode.SERVFAIL)
        self.check()

    def test_absent(self) -> None:
        """NXDOMAIN, which is an answer."""
        self.network.servers[SERVER] = saying(dns.rcode.NXDOMAIN)
        self.check()

    def test_malformed(self) -> None:
        """Octets that are no message."""
        self.network.servers[SERVER] = Saying(lambda wire: wire[:2] + b"\xff" * 12)
        self.check()

    def test_nobody(self) -> None:
        """Nobody listens there, as reactors on epoll tell it."""
        self.network.epoll = True
        self.check()

    def test_no_sockets(self) -> None:
        """No socket to ask with."""
        self.network.no_sockets = True
        self.check()

    def test_silence(self) -> None:
        """No answer in time."""
        self.network.servers[SERVER] = Saying(lambda _: None)
        self.check(steps=12, step=2.0)

    def test_deadline(self) -> None:
        """A look-up that takes too long is given up as a whole."""
        self.network.servers[SERVER] = Saying(lambda _: None)
        self.check(steps=5, step=1.0, deadline=1.5)


class BoundTests(SynchronousTestCase):
    """The cache is bounded in entries and octets."""

    def test_many_failing_look_ups(self) -> None:
        """Objects stay flat, and the memory of failures within its bounds."""
        clock = Clock()
        client = RefusingClient(clock)
        limits = CacheLimits(max_entries=1000)
        cache: DnsCache[DnsQuestion, DnsAnswer] = DnsCache(clock, limits)
        resolver = SrvResolver(client, cache, random.Random(2).random, clock)
        numbers = count()
        failed = []

        def look_up() -> None:
            for _ in range(20):
                resolving = resolver.resolve(f"n{next(numbers)}.example")
                resolving.addErrback(lambda failure: failed.append(failure.value.code))
            clock.advance(0.002)

        left = left_by(look_up, 1000 // PART, warm_up=50)
        self.assertEqual(len(failed), 20 * (50 + 1000 // PART))
        self.assertLess(left.octets, 16 * 1024 * 1024)
        self.assertEqual(left.cyclic, 0, left.kinds)
        self.assertLess(left.kept, 1000 // PART)
        self.assertEqual(client.asked, 2 * len(failed))
        self.assertLessEqual(len(cache), limits.max_entries)
        self.assertLessEqual(cache.octets, limits.max_octets)

    def test_large_answers(self) -> None:
        """Answers count by their records: a few thousand octets each fill the cache early."""
        clock = Clock()
        limits = CacheLimits(max_octets=1024 * 1024)
        cache: DnsCache[DnsQuestion, DnsAnswer] = DnsCache(
            clock, limits, lambda answer: answer.octets
        )
        record = dns.rdata.from_text(
            dns.rdataclass.IN, dns.rdatatype.SRV, f"0 0 5671 {'a' * 60}.example."
        )
        for number in range(500):
            question = DnsQuestion(f"_amqps._tcp.n{number}.example", dns.rdatatype.SRV)
            answer = DnsAnswer(
                question, DnsOutcome.FOUND, (record,) * 100, question.name, 60, False
            )
            cache.put(question, answer, 60)
        self.assertLess(len(cache), 50)
        self.assertLessEqual(cache.octets, limits.max_octets)
