# SPDX-License-Identifier: Apache-2.0
"""Kill the daemon at each step of a branch that a client of AMQP 0-9 works in (class dtx)."""

from __future__ import annotations

from typing import Any

from amqproute.wire.amqp10.types import Int
from tests.integration.test_distributed_crash import CrashCase
from tests.support.socket09 import Socket09
from tests.support.wire09 import call

RECORDED, PREPARED, DECIDED = "recorded", "prepared", "decided"


class DtxCrashTests(CrashCase):
    def worked(self, name: bytes, kept: bytes, sent: bytes) -> list[Any]:
        """Take one message and send another, in a branch; return its xid."""
        self.fill([kept])
        client = Socket09(self.daemon.plain)
        client.ask("dtx.select", "dtx.select-ok")
        client.ask("dtx.start", "dtx.start-ok", dtx_identifier=f"7:{name.hex()}:00")
        client.put("basic.publish", sent, {"delivery-mode": 2}, routing_key="there")
        arguments = client.ask("basic.get", "basic.get-ok", queue="here")
        # The answer to what is behind it comes when the ack was read.
        client.write(call(1, "basic.ack", delivery_tag=arguments["delivery-tag"]))
        client.ask("basic.qos", "basic.qos-ok")
        client.close()
        return [Int(7), name, b"\0"]

    def test_each_step(self) -> None:
        """Recorded: as if it had not been. Prepared: held, and resolved later. Decided: done."""
        for step in (RECORDED, PREPARED, DECIDED):
            name = step.encode()
            xid = self.worked(name, b"in " + name, b"out " + name)
            manager = self.manager()
            if step != RECORDED:
                self.assertEqual(manager.ask("prepare", xid)[0], 0)
            if step == DECIDED:
                self.assertEqual(manager.ask("commit", xid)[0], 0)
            self.crash()
            here, there = self.held("here"), self.held("there")
            manager = self.manager()
            waiting = manager.recover()
            if step == RECORDED:
                self.assertEqual((here, there, waiting), ([b"in recorded"], [], []))
                self.drain("here")
            elif step == PREPARED:
                self.assertEqual((here, there, waiting), ([], [], [b"prepared"]))
                self.assertEqual(manager.ask("commit", xid)[0], 0)
                self.assertEqual((self.held("here"), self.held("there")), ([], [b"out prepared"]))
                self.drain("there")
            else:
                self.assertEqual((here, there, waiting), ([], [b"out decided"], []))

    def test_rolled_back(self) -> None:
        """A prepared branch that is rolled back after the crash leaves all as it was."""
        xid = self.worked(b"back", b"in", b"out")
        self.assertEqual(self.manager().ask("prepare", xid)[0], 0)
        self.crash()
        self.assertEqual(self.manager().ask("rollback", xid)[0], 0)
        self.assertEqual((self.held("here"), self.held("there")), ([b"in"], []))

    def drain(self, node: str) -> None:
        """Take the one message of a queue."""
        client = Socket09(self.daemon.plain)
        client.ask("basic.get", "basic.get-ok", queue=node, no_ack=1)
        client.close()
