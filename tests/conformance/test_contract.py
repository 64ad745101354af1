# SPDX-License-Identifier: Apache-2.0
"""Contracts: backpressure by credit, refusal only beyond it; and fairness.

Peer b floods, peer c and the user ann are the others. The clock stands unless a test moves it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import AccessPolicy, Rule
from amqproute.frontends.common.contract_enforcement import (
    QUIET_SECONDS,
    RETRY_SECONDS,
    ContractTerms,
)
from amqproute.net.pump import EngineProtocol
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import (
    AMQP_HEADER,
    Client,
    FrameBroker,
    Network,
    attach,
    condition,
    frame,
    message,
)
from tests.support.fakes import topic

B = Principal("peer", "b.test", frozenset({"b.test"}))
C = Principal("peer", "c.test", frozenset({"c.test"}))
ANN = Principal("user", "ann")
EVERYTHING = [Rule.of(who="*", node="*", allow=["publish", "consume", "transfer", "browse"])]
LIMITED = "amqp:resource-limit-exceeded"


class ContractCase(SynchronousTestCase):
    """A broker with a contract for peer b."""

    def house(self, **terms: Any) -> FrameBroker:
        """Make the broker."""
        self.world = Network()
        self.here = self.world.house(
            access=EVERYTHING, contracts={"peer:b.test": ContractTerms(**terms)}
        )
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

    def test_at_bound(self) -> None:
        """The row says for how long a number has been used up; not before, and not afterwards."""
        self.house(connections=2, links=1)
        first = self.client()
        self.assertEqual(self.here.shared.contracts.rows()[0]["at-bound-seconds"], {})
        second = self.client()
        first.run(90)
        rows = self.here.shared.contracts.rows()
        self.assertEqual(rows[0]["at-bound-seconds"], {"connections": 90})
        self.sender(first)
        first.run(30)
        rows = self.here.shared.contracts.rows()
        self.assertEqual(rows[0]["at-bound-seconds"], {"connections": 120, "links": 30})
        second.hang_up()
        self.assertEqual(self.here.shared.contracts.rows()[0]["at-bound-seconds"], {"links": 30})
        self.client()
        self.assertEqual(
            self.here.shared.contracts.rows()[0]["at-bound-seconds"],
            {"connections": 0, "links": 30},
        )

    def test_share_of_connections(self) -> None:
        """Without a number of its own a user is held to its share; with one, to that alone."""
        words = "2 of 4 connections at this listener"
        self.patch(EngineProtocol, "identified", lambda *_: words)
        self.house(connections=3)
        refused = self.here.client(ANN).opened("ann").one(spec.Close).error
        assert refused is not None
        self.assertEqual(refused.condition, LIMITED)
        self.assertIn(words, refused.description or "")
        self.assertEqual(self.client().all(spec.Close), [])

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
        """A client that keeps sending without credit is refused in the end."""
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
        """Others do not notice that there are contracts."""
        self.house(messages_per_second=1, spool=4096, credit=1)
        self.assertEqual(self.sender(self.client(C)), 1000)
        self.assertEqual(self.sender(self.client(ANN)), 1000)

    def test_rate(self) -> None:
        """A second's worth at once, then this much a second; nothing is refused."""
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
        """Granted credit and uncommitted deliveries are bounded, over all links."""
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


class SpoolTests(ContractCase):
    """Credit follows the sizes of messages: what was granted is taken, and fits."""

    def occupied(self) -> int:
        """Octets of peer b's messages."""
        (row,) = self.here.shared.contracts.rows()
        return int(row["spool"])

    def drive(self, client: Client, size: int, most: int = 100) -> tuple[int, int]:
        """Send all that there is credit for, again and again; return taken and refused."""
        credit = self.sender(client)
        sent = 0
        while credit and sent < most:
            self.send(client, sent, credit, size)
            sent += credit
            client.run()
            credit = self.credit(client)
        states = self.states(client)
        taken = sum([isinstance(state, spec.Accepted) for state in states])
        return taken, len(states) - taken

    def test_nothing_refused(self) -> None:
        """20 KiB and messages of 2 KiB: ten fit, and there is no credit for more."""
        self.house(spool=20 * 1024)
        taken, refused = self.drive(self.client(), 2048)
        self.assertEqual(refused, 0)
        self.assertIn(taken, (9, 10))
        self.assertLess(self.occupied(), 20 * 1024 + 2100)

    def test_first(self) -> None:
        """Before a size is known there is credit for one; for more if the terms say how large."""
        self.house(spool=100_000)
        self.assertEqual(self.sender(self.client()), 1)
        self.house(spool=100_000, max_message_size=10_000)
        self.assertEqual(self.sender(self.client()), 10)

    def test_several_subscriptions(self) -> None:
        """A message that is kept three times is reckoned with three times."""
        self.house(spool=30_000)
        self.here.broker.add(topic("t"))
        reader = self.client(ANN)
        for handle in range(3):
            durable = spec.Source(address="t", durable=2, expiry_policy=Symbol("never"))
            reader.send(attach("receiver", f"r{handle}", handle, None, source=durable))
        client = self.client()
        client.sender("t")
        sent = 0
        while credit := self.credit(client):
            self.send(client, sent, credit, 1000)
            sent += credit
            client.run()
        self.assertTrue(all(isinstance(each, spec.Accepted) for each in self.states(client)))
        self.assertIn(sent, (9, 10))
        self.assertLess(self.occupied(), 33_500)

    def test_larger_than_before(self) -> None:
        """When messages become larger all credit is cut, that of other links as well."""
        self.house(spool=100_000)
        client = self.client()
        self.sender(client, 0)
        self.send(client, 0, 1, 100)
        client.run(1)
        self.sender(client, 1)
        client.run(1)
        client.frames.clear()
        self.send(client, 1, 1, 20_000, handle=1)
        client.run(1)
        flows = {each.handle: each.link_credit or 0 for each in client.all(spec.Flow)}
        self.assertLessEqual(sum(flows.values()), 4)
        self.assertEqual(set(flows), {0, 1})

    def test_crossed(self) -> None:
        """Messages on their way when the credit was revoked are taken."""
        self.house(spool=100_000)
        client = self.client()
        self.sender(client)
        self.send(client, 0, 1, 1000)
        credit = self.credit(client)
        self.assertGreater(credit, 50)
        self.send(client, 1, 1, 100_000)  # there is none from now on, and it does not know yet
        client.frames.clear()
        self.send(client, 2, 5, 1000)
        states = self.states(client)
        self.assertEqual(len(states), 5)
        self.assertTrue(all(isinstance(state, spec.Accepted) for state in states))

    def test_turns(self) -> None:
        """With credit for one and five links, a link that sends is not shut out by idle ones."""
        self.house(spool=1_000_000)
        client = self.client()
        for handle in range(5):
            client.sender(handle=handle)
        for _ in range(12):
            client.run(1.0)
            flows = [each for each in client.all(spec.Flow) if each.handle == 4]
            if flows and flows[-1].link_credit:
                break
        else:
            raise AssertionError("it never got its turn")
        self.send(client, 0, 1, 1000, handle=4)
        client.run(1.0)
        self.assertTrue(all(isinstance(state, spec.Accepted) for state in self.states(client)))
        flows = {each.handle: each.link_credit for each in client.all(spec.Flow)}
        self.assertGreater(min(flows.values()), 50)  # a size is known now

    def test_postings(self) -> None:
        """Postings of a transaction count before they are put."""
        self.house(spool=20_000)
        client = self.client()
        client.sender()
        self.here.frontends[-1].transactions.declare(None)
        (txn_id,) = self.here.frontends[-1].transactions._open
        state = spec.TransactionalState(txn_id=txn_id)
        client.frames.clear()
        for number in range(12):
            client.write(client.transfer(number, message(b"x" * 2000), state=state))
        contract = self.here.shared.contracts.find(str(B))
        assert contract is not None
        self.assertGreater(contract.posted, 16_000)
        self.assertEqual(self.here.shared.contracts.rows()[0]["credit"], 0)
        self.here.frontends[-1].transactions.find(txn_id).roll_back()
        self.here.frontends[-1].links.lost()

    @settings(max_examples=25, deadline=None)
    @given(
        st.integers(2_000, 20_000),
        st.integers(1, 4),
        st.sampled_from([None, 3_000, 30_000]),
        st.lists(
            st.tuples(st.integers(1, 2_900), st.floats(0, 1), st.integers(0, 30)), max_size=15
        ),
    )
    def test_within_credit(
        self, spool: int, links: int, most: int | None, steps: list[tuple[int, float, int]]
    ) -> None:
        """With any sizes nothing is refused within credit, and the share is exceeded by no
        more than the excess over the sizes before, and one message."""
        self.house(spool=spool, max_message_size=most)
        client = self.client()
        reader = self.client(ANN)
        reader.receiver(credit=10_000)
        contract = self.here.shared.contracts.find(str(B))
        assert contract is not None
        limits = dict.fromkeys(range(links), 0)  # delivery-count and credit
        sent = dict.fromkeys(range(links), 0)
        for handle in range(links):
            client.sender(handle=handle)
        number = arrived = taken = 0
        for size, part, settled in steps:
            client.run(1.0)
            for each in client.all(spec.Flow):
                if each.handle is not None:
                    limits[each.handle] = each.delivery_count + each.link_credit
            known, was = contract._size or 0.0, self.occupied()
            burst = []
            for handle in range(links):
                for _ in range(round((limits[handle] - sent[handle]) * part)):
                    burst.append(client.transfer(number, message(b"x" * size), handle))
                    number += 1
                    sent[handle] += 1
            client.write(*burst)
            states = self.states(client)
            self.assertEqual(len(states), len(burst))
            self.assertTrue(all(isinstance(state, spec.Accepted) for state in states))
            if burst:
                one = (self.occupied() - was) / len(burst)
                excess = len(burst) * max(0.0, one - known)
                self.assertLessEqual(self.occupied(), spool + excess + max(known, one))
            arrived += len(reader.run().all(spec.Transfer))
            left = min(arrived, taken + settled)
            if left > taken:
                reader.dispose(taken, left - 1)
                taken = left

    def test_disconnected(self) -> None:
        """A link that goes while others wait leaves them its credit."""
        self.house(spool=1_000_000)
        client = self.client()
        client.sender(handle=0)
        client.sender(handle=1)
        client.frames.clear()
        client.send(spec.Detach(handle=0, closed=True))
        client.run(0.01)
        flows = {each.handle: each.link_credit for each in client.all(spec.Flow)}
        self.assertEqual(flows, {1: 1})


class FloodTests(ContractCase):
    """Ten times the contract delays nobody else."""

    def test_order_of_grants(self) -> None:
        """The flooder waits for its tokens; each message of the producer is granted again at once.

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
    """Rows and log lines for operators."""

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
        self.assertEqual(set(row["at-bound-seconds"]), {"messages-per-second"})
        self.assertGreater(row["at-bound-seconds"]["messages-per-second"], 5)
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
        self.here.contracts["peer:b.test"] = ContractTerms(messages_per_second=10)
        self.here.shared.contracts.adopt(tuple(self.here.shared.connections))
        client.run()
        self.assertIn(self.credit(client), range(1, 11))
        self.here.contracts.clear()
        self.here.shared.contracts.adopt(tuple(self.here.shared.connections))
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
