# SPDX-License-Identifier: Apache-2.0
"""Kill the daemon between the two phases of distributed transactions, and while they are written.

An application moves messages from ``here`` to ``there`` in branches; a transaction manager ends,
prepares and resolves them over a connection of its own. The daemon is killed (SIGKILL) at some
moment and started again. What was promised by a prepare is there, held and invisible, until it is
resolved; what was not promised has not happened; what was answered with XA_OK has.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import amqproute
from amqproute.tools.daemon_pair import child_environment
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.types import Int
from tests.integration.support import Daemon, Wire, body_of, message, until
from tests.support.patience import PATIENCE
from tests.support.program import run

ROUNDS = 30 if os.environ.get("AMQPROUTE_CRASH") == "long" else 3
TOGETHER = 5
"""Messages that move in one branch."""


class Manager:
    """A transaction manager with a connection of its own.

    Args:
        port: where to connect.
        login: as `Wire` takes it.
    """

    def __init__(self, port: int, **login: Any) -> None:
        self.wire = Wire(port, container="manager.example", **login)
        source = spec.Source(dynamic=True)
        self.replies = self.wire.attach("receiver", None, source=source)
        self.control = self.wire.attach("sender", "amqp$dtxCoordinator")
        assert self.replies.source is not None
        self.reply_to = self.replies.source.address
        self.replies.flow(1000)
        self.numbers = itertools.count()

    def send(self, operation: str, xid: Any = None, **body: Any) -> None:
        """Give a command."""
        number = next(self.numbers)
        fields = spec.Properties(message_id=f"m{number}", reply_to=self.reply_to)
        terms = {"operation": operation}
        if xid is not None:
            body["xid"] = xid
        encoded = b"".join(
            (
                codec.encode(fields),
                sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, terms),
                sections.encode_section(spec.SECTION_AMQP_VALUE, body),
            )
        )
        self.control.send((encoded,), b"%d" % number, settled=True)
        self.wire.flush()

    def answer(self, seconds: float = PATIENCE) -> tuple[int, Any] | None:
        """Wait for an answer, not for ever; return XA's code and the body."""
        end = time.monotonic() + seconds
        while True:
            try:
                events = self.wire.read(max(0.001, end - time.monotonic()))
            except TimeoutError:
                return None
            for event in events:
                if type(event) is ev.DeliveriesReceived:
                    (delivery,) = event.deliveries
                    return _reply(delivery.payload)
            if time.monotonic() > end:
                return None

    def ask(self, operation: str, xid: Any = None, **body: Any) -> tuple[int, Any]:
        """Give a command, and wait for its answer."""
        self.send(operation, xid, **body)
        answer = self.answer()
        assert answer is not None, operation
        return answer

    def recover(self) -> list[bytes]:
        """Return the global ids of what waits."""
        code, found = self.ask("recover")
        assert code == 0
        return [bytes(global_id) for _, global_id, _ in found["xids"]]


def _reply(payload: bytes) -> tuple[int, Any]:
    located = sections.locate(payload)
    body = sections.decode_section(payload, located.body_start, located.body_end)
    start = payload.index(b"xaCode") + len(b"xaCode")
    return int(codec.decode(payload, start)[0]), body


class CrashCase(SynchronousTestCase):
    """A daemon with the queues ``here`` and ``there``."""

    def setUp(self) -> None:
        changes = {
            "nodes": [{"name": "here"}, {"name": "there"}],
            "distributed-transactions": {"enabled": True},
        }
        self.daemon = Daemon("crash.example", changes=changes).start()
        self.addCleanup(self.daemon.kill)
        self.wires: list[Wire] = []

    def fill(self, bodies: list[bytes]) -> None:
        """Put messages on ``here``."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("here", [message(each, durable=True) for each in bodies])

    def manager(self) -> Manager:
        """Connect a transaction manager."""
        made = Manager(self.daemon.plain)
        self.wires.append(made.wire)
        return made

    def crash(self) -> None:
        """Kill the daemon, and start it again."""
        self.daemon.kill()
        for wire in self.wires:
            wire.socket.close()
        self.wires.clear()
        self.daemon.start()

    def move(self, manager: Manager, xid: list[Any]) -> set[bytes]:
        """Take some messages and send them on, in a branch; end it. Return their bodies."""
        code, found = manager.ask("start", xid)
        self.assertEqual(code, 0)
        txn_id = found["txn-id"]
        wire = Wire(self.daemon.plain, container="application.example")
        self.wires.append(wire)
        source, target = wire.attach("receiver", "here"), wire.attach("sender", "there")
        source.flow(TOGETHER)
        taken: list[Any] = []
        while len(taken) < TOGETHER:
            for event in wire.read():
                if type(event) is ev.DeliveriesReceived:
                    taken.extend(event.deliveries)
        promised = [
            target.send(
                (delivery.payload,), b"%d" % number, state=spec.TransactionalState(txn_id=txn_id)
            )
            for number, delivery in enumerate(taken)
        ]
        state = spec.TransactionalState(txn_id=txn_id, outcome=spec.Accepted())
        wire.session.settle(taken, state, False)
        # The answer to the last of them comes after the outcomes were read: one connection.
        wire.wait(lambda _: all(type(each.state) is spec.TransactionalState for each in promised))
        last = wire.attach("sender", "there")
        last.detach()
        wire.flush()
        self.assertEqual(manager.ask("end", xid)[0], 0)
        return {body_of(delivery.payload) for delivery in taken}

    def held(self, node: str) -> list[bytes]:
        """Look at all that a queue shows, and leave it there."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", node, source=_browsed(node))
            link.flow(10_000, drain=True)
            wire.flush()
            found: list[bytes] = []

            def drained() -> bool:
                for event in wire.read():
                    if type(event) is ev.DeliveriesReceived:
                        found.extend(body_of(each.payload) for each in event.deliveries)
                return link.credit == 0

            until(drained, "a drained link")
            return sorted(found)


def _browsed(node: str) -> spec.Source:
    return spec.Source(address=node, distribution_mode="copy")


class TwoPhaseTests(CrashCase):
    """Killed between prepare and commit."""

    def prepared(self) -> tuple[list[Any], list[bytes], set[bytes]]:
        """Prepare a branch, and kill the daemon."""
        bodies = [b"%04d" % number for number in range(12)]
        self.fill(bodies)
        xid = [Int(1), b"one", b"branch"]
        manager = self.manager()
        moved = self.move(manager, xid)
        self.assertEqual(manager.ask("prepare", xid)[0], 0)
        self.crash()
        self.assertEqual(self.held("here"), [each for each in bodies if each not in moved])
        self.assertEqual(self.held("there"), [])
        return xid, bodies, moved

    def test_commit(self) -> None:
        """C-08: neither visible nor lost; recover lists it; the commit makes all visible."""
        xid, bodies, moved = self.prepared()
        manager = self.manager()
        self.assertEqual(manager.recover(), [b"one"])
        self.assertEqual(manager.ask("commit", xid)[0], 0)
        self.crash()
        self.assertEqual(self.held("there"), sorted(moved))
        self.assertEqual(self.held("here"), [each for each in bodies if each not in moved])
        self.assertEqual(self.manager().recover(), [])
        self.daemon.check()
        self.assertEqual(self.daemon.stop(), 0)

    def test_roll_back(self) -> None:
        """C-08: and the roll-back restores."""
        xid, bodies, _ = self.prepared()
        manager = self.manager()
        self.assertEqual(manager.ask("rollback", xid)[0], 0)
        self.crash()
        self.assertEqual((self.held("here"), self.held("there")), (bodies, []))
        self.assertEqual(self.manager().recover(), [])
        self.daemon.check()

    def test_large(self) -> None:
        """A message that is never in memory as a whole is kept like any other."""
        body = random.Random(1).randbytes(5_000_000)
        xid = [Int(1), b"large", b""]
        manager = self.manager()
        _, found = manager.ask("start", xid)
        wire = Wire(self.daemon.plain, container="application.example")
        self.wires.append(wire)
        target = wire.attach("sender", "there")
        state = spec.TransactionalState(txn_id=found["txn-id"])
        sent = target.send((message(body, durable=True),), b"1", state=state)
        wire.wait(lambda _: type(sent.state) is spec.TransactionalState)
        self.assertEqual(manager.ask("end", xid)[0], 0)
        self.assertEqual(manager.ask("prepare", xid)[0], 0)
        self.crash()
        self.assertEqual(self.held("there"), [])
        self.assertEqual(self.manager().ask("commit", xid)[0], 0)
        self.crash()
        with Wire(self.daemon.plain) as wire:
            (encoded,) = wire.consume("there", 1)
        self.assertEqual(body_of(encoded), body)

    def test_stopped_in_between(self) -> None:
        """A polite stop is no different; nor is a start without the extension."""
        xid, bodies, moved = self.prepared()
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.write(**{"distributed-transactions": {"enabled": False}})
        self.daemon.start()
        self.assertEqual(self.held("here"), [each for each in bodies if each not in moved])
        self.daemon.wait_log("1 branches of distributed transactions wait in the store")
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.write(**{"distributed-transactions": {"enabled": True}})
        self.daemon.start()
        self.assertEqual(self.manager().ask("commit", xid)[0], 0)
        self.assertEqual(self.held("there"), sorted(moved))

    def run_cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as an operator."""
        return run("transaction", *words, "--config", str(self.daemon.file))

    def test_operator(self) -> None:
        """C-08: an operator resolves it by the command line; its manager learns of that."""
        xid, _, moved = self.prepared()
        listed = self.run_cli("ls", "--json")
        (row,) = json.loads(listed.stdout)["branches"]
        name = f"anonymous/1.{b'one'.hex()}.{b'branch'.hex()}"
        self.assertEqual((row["name"], row["state"], row["operations"]), (name, "prepared", 10))
        self.assertIn(name, self.run_cli("ls").stdout)
        self.assertEqual(self.run_cli("forget", name).returncode, 1)
        done = self.run_cli("commit", name)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{name}: committed heuristically\n")
        self.crash()
        self.assertEqual(self.held("there"), sorted(moved))
        manager = self.manager()
        self.assertEqual(manager.recover(), [b"one"])
        self.assertEqual(manager.ask("rollback", xid)[0], 7)
        self.assertEqual(self.run_cli("forget", name).returncode, 0)
        refused = self.run_cli("roll-back", name)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("management.404", refused.stderr)
        self.assertEqual(manager.recover(), [])


class DocumentTests(CrashCase):
    """The script of the manual."""

    def run_script(self, *words: str) -> list[str]:
        """Run it; return what it prints."""
        manual = Path(amqproute.__file__).parent.parent / "docs" / "distributed-transactions.md"
        script = manual.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
        url = f"amqp://127.0.0.1:{self.daemon.plain}"
        done = subprocess.run(
            [sys.executable, "-c", script.replace('"orders"', '"there"'), url, *words],
            capture_output=True, text=True, timeout=PATIENCE, check=False, env=child_environment(),
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_script(self) -> None:
        """C-08, by another project's client: prepared, killed, recovered, committed."""
        if importlib.util.find_spec("proton") is None:
            raise SkipTest("python-qpid-proton is not installed")
        lines = self.run_script("prepare", "one", "two")
        self.assertEqual(lines, ["start XA_OK", "end XA_OK", "prepare XA_OK"])
        self.assertEqual(self.held("there"), [])
        self.crash()
        listed = ["recover XA_OK", "b'transfer-4711' b'there'"]
        self.assertEqual(self.run_script("recover"), listed)
        self.assertEqual(self.run_script("commit"), ["commit XA_OK"])
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(len(wire.consume("there", 2)), 2)


class KillTests(CrashCase):
    """Killed while a phase is written."""

    def test_kill(self) -> None:
        """At any moment all of a branch is done or nothing; answered commands have taken effect."""
        seed = int(os.environ.get("AMQPROUTE_CRASH_SEED", "0")) or random.randrange(1, 1 << 30)
        chance = random.Random(seed)
        everything = [b"%04d" % number for number in range(ROUNDS * 2 * TOGETHER + TOGETHER)]
        self.fill(everything)
        moved: set[bytes] = set()
        for number in range(ROUNDS):
            words = f"round {number}, seed {seed}"
            xid = [Int(1), b"%d" % number, b""]
            manager = self.manager()
            bodies = self.move(manager, xid)
            manager.send("prepare", xid)
            answer = manager.answer(chance.choice((0.0, 0.001, 0.003, 20.0)))
            self.crash()
            manager = self.manager()
            waiting = manager.recover()
            if answer is not None:
                self.assertEqual((answer[0], waiting), (0, [xid[1]]), words)
            if waiting:
                self.assertEqual(self.held("there"), sorted(moved), words)
                commits = chance.random() < 0.7
                manager.send("commit" if commits else "rollback", xid)
                answer = manager.answer(chance.choice((0.0, 0.001, 0.003, 20.0)))
                self.crash()
                manager = self.manager()
                waiting = manager.recover()
                self.assertFalse(answer is not None and waiting, words)
                if waiting:
                    # Decided once, it is decided: the manager says the same again.
                    code, _ = manager.ask("commit" if commits else "rollback", xid)
                    self.assertEqual(code, 0, words)
                if commits:
                    moved |= bodies
            self.assertEqual(self.held("there"), sorted(moved), words)
            self.assertEqual(self.held("here"), sorted(set(everything) - moved), words)
        self.daemon.check()
        self.assertEqual(self.daemon.stop(), 0)
