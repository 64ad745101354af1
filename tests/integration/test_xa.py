# SPDX-License-Identifier: Apache-2.0
"""A transaction manager with the XA interface, against a daemon (C-04)."""

from __future__ import annotations

from collections.abc import Awaitable

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from amqproute.cli.xa import Xa, XaError, XaResource, Xid, open_resource
from amqproute.url import parse_url
from amqproute.wire.amqp10 import spec
from tests.integration.support import Daemon, Wire, body_of, message, until
from tests.support.patience import PATIENCE

XID = Xid(7, b"global", b"branch")


class XaResourceTests(TestCase):
    """`amqproute.cli.xa`."""

    timeout = 4 * PATIENCE

    async def opened(self) -> XaResource:
        """Connect a transaction manager."""
        resource = await open_resource(reactor, parse_url(f"amqp://127.0.0.1:{self.daemon.plain}"))
        self.addCleanup(resource.close)
        return resource

    def start_daemon(self, is_enabled: bool = True) -> None:
        """Start a daemon with a queue ``orders``."""
        self.daemon = Daemon(
            "xa.example",
            changes={
                "nodes": [{"name": "orders"}],
                "distributed-transactions": {"enabled": is_enabled},
            },
        ).start()
        self.addCleanup(self.daemon.kill)

    def send(self, txn_id: bytes, body: bytes) -> None:
        """Be the application: send a message in a branch, on a connection of its own."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("sender", "orders")
            until(lambda: link.sendable or wire.read(), "credit")
            state = spec.TransactionalState(txn_id=txn_id)
            sent = link.send((message(body, durable=True),), b"tag", state=state)
            wire.wait(lambda _: type(sent.state) is spec.TransactionalState)

    async def refused(self, code: Xa, done: Awaitable[object]) -> None:
        """Assert that a call raises a code of XA."""
        try:
            found = await done
        except XaError as error:
            self.assertEqual(error.code, code)
        else:
            self.fail(f"{code.symbol} not raised, but {found!r} returned")

    async def test_two_phases(self) -> None:
        """Start, end, prepare; killed; recover over another connection; commit; it is there."""
        self.start_daemon()
        resource = await self.opened()
        txn_id = await resource.start(XID)
        self.send(txn_id, b"two phases")
        await resource.end(XID)
        self.assertIs(await resource.prepare(XID), Xa.OK)
        self.daemon.kill()
        await self.refused(Xa.RMFAIL, resource.recover())
        self.daemon.start()
        resource = await self.opened()
        self.assertEqual(await resource.recover(), [XID])
        await resource.commit(XID)
        self.assertEqual(await resource.recover(), [])
        with Wire(self.daemon.plain) as wire:
            self.assertEqual([body_of(each) for each in wire.consume("orders", 1)], [b"two phases"])
        await self.refused(Xa.NOTA, resource.commit(XID))
        self.daemon.check()

    async def test_other_calls(self) -> None:
        """Suspend, resume, join, roll back, one phase, read only, time-outs, and what is wrong."""
        self.start_daemon()
        resource = await self.opened()
        await resource.set_timeout(77)
        self.assertEqual(await resource.get_timeout(), 77)
        txn_id = await resource.start(XID)
        await self.refused(Xa.DUPID, resource.start(XID))
        await resource.end(XID, suspend=True)
        await self.refused(Xa.PROTO, resource.prepare(XID))
        self.assertEqual(await resource.start(XID, resume=True), txn_id)
        self.assertEqual(await resource.start(XID, join=True), txn_id)
        self.send(txn_id, b"undone")
        await resource.end(XID)
        await resource.end(XID)
        await resource.rollback(XID)
        txn_id = await resource.start(XID)
        self.send(txn_id, b"one phase")
        await resource.end(XID)
        await resource.commit(XID, one_phase=True)
        await resource.start(XID)
        await resource.end(XID)
        self.assertIs(await resource.prepare(XID), Xa.RDONLY)
        await resource.start(XID)
        await self.refused(Xa.RBROLLBACK, resource.end(XID, fail=True))
        await resource.rollback(XID)
        await self.refused(Xa.NOTA, resource.forget(XID))
        with Wire(self.daemon.plain) as wire:
            self.assertEqual([body_of(each) for each in wire.consume("orders", 1)], [b"one phase"])
        self.daemon.check()

    async def test_not_offered(self) -> None:
        """A broker without the coordinator, and nobody at all, are no resource managers (C-01)."""
        self.start_daemon(is_enabled=False)
        resource = await self.opened()
        await self.refused(Xa.RMFAIL, resource.start(XID))
        url = parse_url(f"amqp://127.0.0.1:{self.daemon.plain}")
        self.daemon.kill()
        await self.refused(Xa.RMFAIL, open_resource(reactor, url))
