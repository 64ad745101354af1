# SPDX-License-Identifier: Apache-2.0
"""CREATE-TOKEN and REVOKE-TOKEN: answered when the change is on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth import file_replacement
from amqproute.auth.access_tokens import AccessTokens
from amqproute.broker.broker import Broker
from amqproute.services import access_commands
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.store.memory import MemoryStore
from amqproute.values import Principal
from tests.auth.test_access_tokens import OneThread

ANN = Principal("user", "ann")


class Users:
    """The users file."""

    names = ("ann",)


class TokenCommandTests(SynchronousTestCase):
    """The operations, with a thread that works when the test says so."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.thread = OneThread()
        self.tokens = AccessTokens(self.directory, lambda: 1000, self.thread)
        clock = Clock()
        broker = Broker(MemoryStore(clock), clock, lambda: 0, str)
        self.service = ManagementService(broker, lambda *_: True, lambda: 0)
        access_commands.register(self.service, self.tokens, Users(), list, lambda *_: True)

    def ask(self, operation: str, name: str = "", **body: Any) -> Deferred[ManagementReply]:
        """Ask for an operation."""
        named = {"name": name} if name else {}
        return self.service.perform(ManagementRequest(operation, named, body, ANN))

    def made(self) -> dict[str, Any]:
        """Make a token, and return the attributes of the answer."""
        asking = self.ask("CREATE-TOKEN")
        self.thread.work()()
        return dict(self.successResultOf(asking).body)

    def test_life(self) -> None:
        """Nothing is answered before the thread is done."""
        making = self.ask("CREATE-TOKEN", purpose="deploy")
        self.assertNoResult(making)
        tell = self.thread.work()
        self.assertNoResult(making)
        tell()
        made = self.successResultOf(making)
        self.assertEqual((made.status, made.body["purpose"]), (201, "deploy"))
        token: Any = made.body["token"]
        self.assertIsNotNone(self.tokens.find(token))
        name = str(made.body["name"])
        revoking, again = self.ask("REVOKE-TOKEN", name), self.ask("REVOKE-TOKEN", name)
        self.assertNoResult(revoking)
        self.assertIsNone(self.tokens.find(token))
        self.thread.work()()
        self.assertEqual(self.successResultOf(revoking).status, 200)
        self.assertEqual(self.successResultOf(again).status, 404)

    def test_a_disk_that_fails(self) -> None:
        """Both say why they are refused; no token is shown, and none is lost."""
        made = self.made()

        def fail(_: int) -> None:
            raise OSError(5, "the disk is gone")

        self.patch(file_replacement.os, "fsync", fail)
        for operation, name in (("CREATE-TOKEN", ""), ("REVOKE-TOKEN", made["name"])):
            asking = self.ask(operation, name)
            self.thread.work()()
            reply = self.successResultOf(asking)
            self.assertEqual(reply.status, 507, operation)
            self.assertIn("the disk is gone", reply.description)
            self.assertNotIn("token", reply.body)
        self.assertIsNotNone(self.tokens.find(made["token"]))
        self.assertEqual(len(self.tokens), 1)

    def test_refused_at_once(self) -> None:
        """What is wrong is answered without the thread."""
        for operation, name, body, status in (
            ("CREATE-TOKEN", "", {"for": "user:nobody"}, 400),
            ("CREATE-TOKEN", "", {"scope": ["POUR"]}, 400),
            ("REVOKE-TOKEN", "nonsense", {}, 404),
        ):
            reply = self.successResultOf(self.ask(operation, name, **body))
            self.assertEqual(reply.status, status, operation)
        self.assertEqual(self.thread.works, [])
