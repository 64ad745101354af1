# SPDX-License-Identifier: Apache-2.0
"""Contracts: pressure by credit first, refusal only of what no credit can prevent; and fairness.

Peer b floods, peer c and the user ann are the others. The clock stands unless a test moves it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import AccessPolicy, Rule
from amqproute.frontends.contract import QUIET_SECONDS, RETRY_SECONDS, Terms
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec
from tests.conformance.house import (
    AMQP_HEADER,
    Client,
    House,
    World,
    attach,
    condition,
    frame,
    message,
)

B = Principal("peer", "b.test", frozenset({"b.test"}))
C = Principal("peer", "c.test", frozenset({"c.test"}))
ANN = Principal("user", "ann")
EVERYTHING = [Rule.of(who="*", node="*", allow=["publish", "consume", "transfer", "browse"])]
LIMITED = "amqp:resource-limit-exceeded"


class ContractCase(SynchronousTestCase):
    """A house with a contract for peer b."""

    def house(self, **terms: Any) -> House:
        """Make the house."""
        self.world = World()
        self.here = self.world.house(access=EVERYTHING, contracts={"peer:b.test": Terms(**terms)})
        return self.here

    def client(self, principal: Principal = B, name: str = "") -> Client:
        """Return a client with a session."""
        return self.here.client(principal).ready(name or str(principal))

    def sender(self, client: Client, handle: int = 0) -> int:
        """Attach a link to q; return the credit that comes with it."""
        client.sender(handle=handle)
        return ([0] + [each.link_credit or 0 for each in client.all(spec.Flow)])[-1]

    def credit(self, client: Client, handle: int = 0) -> int:
        """Return the credit in the last flow that came, 0 without one."""
        flows = [each for each in client.all(spec.Flow) if each.handle is not None]
        found = [each.link_credit or 0 for each in flows if each.handle == handle]
        return found[-1] if found else 0

    def send(self, client: Client, first: int, count: int, size: int = 1, handle: int = 0) -> None:
        """Send deliveries in one segment."""
        body = message(b"x" * size)
        numbers = range(first, first + count)
        client.write(*[client.transfer(number, body, handle) for number in numbers])

    def states(self, client: Client) -> list[Any]:
        """Return the outcomes that came, one for each delivery."""
        found = []
        for each in client.all(spec.Disposition):
            last = each.first if each.last is None else each.last
            found += [each.state] * (last - each.first + 1)
        return found


class RefusalTests(ContractCase):
    """Hard limits, each at its scope, with limiter, limit and retry-after."""

    def assertLimited(self, error: spec.Error | None, limiter: str, limit: float) -> None:
        """An error says what was exceeded."""
        assert error is not None
        self.assertEqual(error.condition, LIMITED)
        info = {str(key): value for key, value in (error.info or {}).items()}
        expected = {"limiter": limiter, "limit": limit, "retry-after": RETRY_SECONDS}
        self.assertEqual(info, expected)

    def test_connections(self) -> None:
        """One more is closed with the reason; others come in, and a place becomes free again."""
        self.house(connections=1)
        first = self.client()
        second = self.here.client(B).opened("second")
        self.assertLimited(second.one(spec.Close).error, "connections", 1)
        self.client(C)
        first.hang_up()
        self.client()
        self.assertEqual(self.here.shared.contracts.rows()[0]["refused"], {"connections": 1})

    def test_links(self) -> None:
        """They are counted over all connections; the link alone is refused."""
        self.house(links=2)
        first, second = self.client(name="one"), self.client(name="two")
        self.sender(first)
        first.receiver(handle=1)
        second.sender()
        self.assertLimited(second.one(spec.Detach).error, "links", 2)
        first.send(spec.Detach(handle=1, closed=True))
        second.send(spec.Detach(handle=0, closed=True))
        self.assertGreater(self.sender(second, 3), 0)

    def test_size(self) -> None:
        """The largest message is told in the attach, and a larger one ends its link."""
        self.house(max_message_size=4096)
        client = self.client()
        self.assertEqual(client.sender().max_message_size, 4096)
        self.send(client, 0, 1, 5000)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:link:message-size-exceeded")
        self.assertEqual(self.client(C).sender().max_message_size or 0, 0)

    def test_credit_ignored(self) -> None:
        """Who comes again and again to send without credit is refused in the end."""
        self.house(messages_per_second=10)
        client = self.client()
        taken = refused = 0
        for handle in range(20):
            # Ten without credit are let through on each new link, as they may have crossed.
            client.write(frame(attach("sender", f"s{handle}", handle, "q")),
                         *[client.transfer(handle * 10 + each, None, handle)
                           for each in range(10)])  # fmt: skip
            for state in self.states(client):
                taken += isinstance(state, spec.Accepted)
                if isinstance(state, spec.Rejected):
                    refused += 1
                    self.assertLimited(state.error, "messages-per-second", 10)
            client.frames.clear()
        self.assertEqual(taken + refused, 200)
        self.assertLess(taken, 130)
        self.assertEqual(self.here.depth(), taken)


class PressureTests(ContractCase):
    """Less credit, and no refusal, for who keeps to it."""

    def test_without_a_contract(self) -> None:
        """Nobody else notices that there are contracts."""
        self.house(messages_per_second=1, spool=4096, credit=1)
        self.assertEqual(self.sender(self.client(C)), 1000)
        self.assertEqual(self.sender(self.client(ANN)), 1000)

    def test_rate(self) -> None:
        """A second's worth at once, then so much a second; nothing is refused."""
        self.house(messages_per_second=20)
        client = self.client()
        credit = self.sender(client)
        self.assertEqual(credit, 20)
        sent = 0
        for _ in range(100):
            self.send(client, sent, credit)
            sent += credit
            client.run(0.1)
            credit = self.credit(client)
        states = self.states(client)
        self.assertEqual(len(states), sent)
        self.assertTrue(all(isinstance(state, spec.Accepted) for state in states))
        self.assertLessEqual(sent, 20 + 10 * 20)
        self.assertGreater(sent, 10 * 20)

    def test_more_links_are_not_more(self) -> None:
        """Links and connections share one rate, and idle ones do not keep it from the busy."""
        self.house(messages_per_second=20)
        client, other = self.client(name="one"), self.client(name="two")
        credit = self.sender(client)
        for handle in range(1, 5):
            self.sender(other, handle)
        sent = 0
        for _ in range(100):
            self.send(client, sent, credit)
            sent += credit
            client.run(0.1)
            credit = self.credit(client)
        self.assertLess(sent, 20 + 10 * 20)
        self.assertGreater(sent, 10 * 20 * 0.8)

    def test_bytes(self) -> None:
        """The rate of octets holds on average, for messages larger than a second's worth too."""
        self.house(bytes_per_second=10_000)
        client = self.client()
        credit = self.sender(client)
        sent = 0
        for _ in range(600):
            if credit:
                self.send(client, sent, 1, 5000)
                sent += 1
            client.run(0.1)
            credit = self.credit(client) if not credit else max(credit - 1, self.credit(client))
        self.assertLessEqual(sent, 2 + 60 * 2)
        self.assertGreater(sent, 60 * 2 * 0.8)
        self.assertTrue(all(isinstance(state, spec.Accepted) for state in self.states(client)))

    def test_credit_over_all_links(self) -> None:
        """What is granted or not committed is bounded, over all links."""
        self.house(credit=10)
        client = self.client()
        first = self.sender(client, 0)
        self.assertEqual(first, 10)
        client.sender(handle=1)
        client.run()
        flows = {each.handle: each.link_credit for each in client.all(spec.Flow)}
        self.assertEqual(flows, {0: 5, 1: 5})
        self.here.store.is_held = True
        self.send(client, 0, 5, handle=0)
        self.assertEqual(self.credit(client), 0)
        self.here.store.let_go()
        client.run()
        self.assertEqual(self.credit(client), 5)

    def test_spool(self) -> None:
        """Near its share there is less and less credit, at the end none; and it comes back."""
        self.house(spool=100_000)
        client = self.client()
        credit = self.sender(client)
        sent = 0
        credits = []
        while credit and sent < 1000:
            self.send(client, sent, 1, 1000)
            sent += 1
            client.run()
            credit = self.credit(client) or credit - 1
            credits.append(credit)
        self.assertEqual(credits[-1], 0)
        self.assertTrue(all(isinstance(state, spec.Accepted) for state in self.states(client)))
        account = self.here.shared.contracts.rows()[0]
        self.assertLess(account["spool"], 102_000)
        self.assertEqual(self.sender(self.client(C)), 1000)
        reader = self.client(ANN)
        reader.receiver(credit=50)
        self.assertEqual(len(reader.bodies()), 50)
        reader.dispose(0, 49)
        client.run(0.1)
        self.assertGreater(self.credit(client), 0)

    def test_spool_ignored(self) -> None:
        """Messages that come although the share is used up are refused, and may come again."""
        self.house(spool=10_000)
        client = self.client()
        self.sender(client)
        self.send(client, 0, 3, 9000)
        states = self.states(client)
        refused = [each for each in states if isinstance(each, spec.Rejected)]
        self.assertEqual([condition(each) for each in refused], [LIMITED])
        self.assertLess(self.here.shared.contracts.rows()[0]["spool"], 20_000)


class FloodTests(ContractCase):
    """Ten times the contract delays nobody else."""

    def test_order_of_grants(self) -> None:
        """The flooder waits for its tokens; each message of the producer is granted anew at once.

        The flooder takes every credit it gets; the producer's outcomes and credit come in the same
        turn as ever, with the flood and without it.
        """
        self.house(messages_per_second=100)
        flooder, producer = self.client(), self.client(ANN)
        credit = self.sender(flooder)
        self.assertEqual(self.sender(producer), 1000)
        flooded = number = 0
        for _ in range(200):
            while credit:
                self.send(flooder, flooded, credit)
                flooded += credit
                credit = self.credit(flooder)
            self.send(producer, number, 10)
            self.assertEqual(len(self.states(producer)), 10)
            number += 10
            flooder.run(0.01)
            credit = self.credit(flooder)
        self.assertLessEqual(flooded, 100 + 2 * 100 + 5)
        self.assertEqual(len(self.states(flooder)), flooded)

    def test_commits(self) -> None:
        """While the disk is busy the flooder has no more on its way to it than its credit."""
        self.house(credit=50)
        flooder, producer = self.client(), self.client(ANN)
        credit = self.sender(flooder)
        self.sender(producer)
        self.here.store.is_held = True
        sent = 0
        while credit:
            self.send(flooder, sent, credit)
            sent += credit
            credit = self.credit(flooder)
        self.assertEqual(sent, 50)
        self.send(producer, 0, 500)
        self.here.store.let_go()
        producer.run()
        self.assertEqual(len(self.states(producer)), 500)


class ShownTests(ContractCase):
    """What operators see and hear."""

    def test_log(self) -> None:
        """The log hears when it begins and when it is over, and nothing of single messages."""
        heard: list[Any] = []
        observer = heard.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.house(messages_per_second=10)
        client = self.client()
        credit = self.sender(client)
        sent = 0
        for _ in range(100):
            self.send(client, sent, credit)
            sent += credit
            client.run(0.1)
            credit = self.credit(client)
        mine = [each for each in heard if each.get("holder") == "peer:b.test"]
        self.assertEqual([each["log_level"] for each in mine], [LogLevel.warn])
        self.assertEqual((mine[0]["limiter"], mine[0]["limit"]), ("messages-per-second", 10))
        row = self.here.shared.contracts.rows()[0]
        self.assertEqual((row["state"], row["limiter"]), ("held back", "messages-per-second"))
        client.run(QUIET_SECONDS + 1)
        self.assertEqual(self.here.shared.contracts.rows()[0]["state"], "open")
        mine = [each for each in heard if each.get("holder") == "peer:b.test"]
        self.assertEqual([each["log_level"] for each in mine], [LogLevel.warn, LogLevel.info])

    def test_limits_in_turn(self) -> None:
        """Two limits that hold a sender back by turns do not fill the log."""
        heard: list[Any] = []
        globalLogPublisher.addObserver(heard.append)
        self.addCleanup(globalLogPublisher.removeObserver, heard.append)
        self.house(messages_per_second=10, spool=100_000)
        client = self.client()
        credit = self.sender(client)
        self.send(client, 0, 1, 80_000)
        sent, credit = 1, credit - 1
        for _ in range(100):
            self.send(client, sent, credit)
            sent += credit
            client.run(0.1)
            credit = self.credit(client)
        mine = [each for each in heard if each.get("holder") == "peer:b.test"]
        self.assertEqual(len(mine), 1)

    def test_idle_is_quiet(self) -> None:
        """A holder that does nothing costs no timers."""
        self.house(messages_per_second=10, bytes_per_second=1000, spool=10_000, credit=5)
        client = self.client()
        self.sender(client)
        client.run(5)
        calls = [
            each for each in self.world.clock.getDelayedCalls() if "Contract" in str(each.func)
        ]
        self.assertEqual(calls, [])

    def test_reload(self) -> None:
        """Changed terms hold for links that are there, also where there were none before."""
        self.house()
        client = self.client()
        self.assertEqual(self.sender(client), 1000)
        self.here.contracts["peer:b.test"] = Terms(messages_per_second=10)
        self.here.shared.contracts.adopt(tuple(self.here.shared.frontends))
        client.run()
        self.assertIn(self.credit(client), range(1, 11))
        self.here.contracts.clear()
        self.here.shared.contracts.adopt(tuple(self.here.shared.frontends))
        client.run()
        self.assertEqual(self.credit(client), 1000)
        self.assertEqual(self.here.shared.contracts.rows(), [])

    def test_told(self) -> None:
        """The holder finds its terms in our open; others find nothing."""
        self.house(messages_per_second=10.5, spool=4096)
        found = []
        for who in (B, C):
            client = self.here.client(who)
            client.write(AMQP_HEADER, frame(spec.Open(container_id="x")))
            properties = client.one(spec.Open).properties or {}
            found.append(properties.get("amqproute:contract"))
        self.assertEqual(found, [{"messages-per-second": 10.5, "spool": 4096}, None])


class AccessTests(ContractCase):
    """Links do not outlive the right to them."""

    def test_detached(self) -> None:
        """A reload that takes a right away ends the links that live on it, and no others."""
        self.house()
        client = self.client(ANN)
        self.sender(client)
        client.receiver(handle=1)
        client.receiver(handle=2, source=spec.Source(address="q", distribution_mode="copy"))
        self.assertEqual(self.here.shared.detach_unauthorized(), 0)
        policy = AccessPolicy([Rule.of(who="user:ann", node="q", allow=["browse"])])
        self.here.transfer.reload(replace(self.here.transfer.rules, allows=policy.allows))
        self.assertEqual(self.here.shared.detach_unauthorized(), 2)
        client.run()
        gone = {each.handle: condition(each) for each in client.all(spec.Detach)}
        self.assertEqual(gone, dict.fromkeys(gone, "amqp:unauthorized-access"))
        self.assertEqual(len(gone), 2)
