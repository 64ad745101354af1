# SPDX-License-Identifier: Apache-2.0
"""The worked examples of transactions, W-02 to W-04, as scripts."""

from __future__ import annotations

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import Client
from tests.frontends.test_transactions import COORDINATOR, TransactionCase, within


class ExampleTests(TransactionCase):
    """One test for each."""

    def test_w02_publish(self) -> None:
        """W-02: nothing before the discharge; then the coordinator's word, then the message's."""
        consumer = self.consumer()
        self.client.sender("q", 0)
        txn_id = self.declare()
        number = self.post(txn_id, b"1")
        self.assertEqual(consumer.run().bodies(), [])
        self.client.all(spec.Disposition)
        (answer,) = self.commit(txn_id)
        self.assertEqual((answer.first, answer.settled), (number, True))
        self.assertIsInstance(answer.state, spec.Accepted)
        self.assertEqual(consumer.run().bodies(), [b"1"])
        consumer.dispose(0)

        txn_id = self.declare()
        self.post(txn_id, b"2")
        self.client.all(spec.Disposition)
        self.roll_back(txn_id)
        self.assertEqual((consumer.run(1).bodies(), self.house.depth()), ([], 0))

        txn_id = self.declare()
        self.post(txn_id, b"3")
        self.client.send(spec.Detach(handle=COORDINATOR, closed=True))
        self.assertEqual((consumer.run(1).bodies(), self.house.depth()), ([], 0))

    def test_w03_accept(self) -> None:
        """W-03: acquired until the commit, then archived; after a rollback still acquired."""
        self.receive(b"1", b"2")
        other = self.house.client().ready("other")
        other.receiver(credit=10)
        txn_id = self.declare()
        self.dispose(txn_id, 0)
        self.assertEqual(self.counts(), (0, 2))
        (answer,) = self.commit(txn_id)
        self.assertEqual((answer.role, answer.first, answer.settled), (False, 0, True))
        self.assertEqual((self.counts(), self.house.depth()), ((0, 1), 1))

        txn_id = self.declare()
        self.dispose(txn_id, 1)
        self.assertEqual(self.roll_back(txn_id), [])
        self.assertEqual((self.counts(), other.run().bodies()), ((0, 1), []))
        self.client.dispose(1)
        self.assertEqual((self.counts(), self.house.depth()), ((0, 0), 0))

    def acquire(self, client: Client, txn_id: bytes, **fields: int) -> list[spec.Transfer]:
        """Ask for one message within a transaction."""
        client.credit(1, 1, drain=True, properties={Symbol("txn-id"): txn_id}, **fields)
        return client.all(spec.Transfer)

    def test_w04_acquire(self) -> None:
        """W-04: credit with the transaction's id on the consuming link's own handle."""
        self.client.fill([b"1", b"2"])
        self.client.receiver("q", 1)
        txn_id = self.declare()
        (transfer,) = self.acquire(self.client, txn_id)
        self.assertEqual((transfer.state, transfer.settled), (within(txn_id), False))
        self.commit(txn_id)
        self.assertEqual(self.counts(), (1, 1))

        txn_id = self.declare()
        (transfer,) = self.acquire(self.client, txn_id, delivery_count=1)
        self.client.all(spec.Flow)
        self.assertEqual(self.acquire(self.client, txn_id, delivery_count=2), [])
        flow = self.client.all(spec.Flow)[-1]
        self.assertEqual((flow.link_credit, flow.delivery_count, flow.drain), (0, 3, True))
        self.roll_back(txn_id)
        self.assertEqual(self.counts(), (1, 1))
        self.assertEqual(self.consumer().bodies(), [b"2"])
