# SPDX-License-Identifier: Apache-2.0
"""Qpid Proton's own transactions, unmodified, against the daemon."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.integration.support import DaemonTestCase, Wire, until
from tests.support.patience import PATIENCE

try:
    from proton import Message
    from proton.handlers import MessagingHandler, TransactionHandler
    from proton.reactor import Container
except ImportError:
    Container = None
    MessagingHandler = TransactionHandler = object


class Script(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Runs one transaction: sends, takes, and discharges it.

    Args:
        port: where the daemon listens.
        node: sent to.
        bodies: sent in the transaction.
        source: taken from in the transaction; None for nothing.
        takes: how many messages to take before the discharge.
        ends: called with the transaction, to discharge it.
        settles: settle what is taken before the discharge.

    Attributes:
        outcome: how it ended, in a word.
    """

    def __init__(
        self,
        port: int,
        node: str,
        bodies: tuple[str, ...] = (),
        source: str | None = None,
        takes: int = 0,
        ends: Callable[[Any], None] = lambda transaction: transaction.commit(),
        settles: bool = False,
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = f"127.0.0.1:{port}"
        self.node = node
        self.bodies = list(bodies)
        self.source = source
        self.takes = takes
        self.ends = ends
        self.settles = settles
        self.outcome = "nothing"
        self.taken: list[Any] = []
        self.transaction: Any = None
        self.sender: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.deadline = event.container.schedule(PATIENCE, self)
        self.connection = event.container.connect(self.url, reconnect=False, heartbeat=None)
        self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.settles
        )

    def on_timer_task(self, event: Any) -> None:
        self.finish("time out")

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        if self.source is not None:
            receiver = self.container.create_receiver(self.connection, self.source)
            receiver.flow(self.takes)
        if self.bodies:
            self.sender = self.container.create_sender(self.connection, self.node)
        self.look()

    def on_sendable(self, event: Any) -> None:
        if event.sender is self.sender or event.sender == self.sender:
            while self.bodies and event.sender.credit:
                body = self.bodies.pop(0)
                self.transaction.send(event.sender, Message(body=body, durable=True))
            self.look()

    def on_message(self, event: Any) -> None:
        self.taken.append(event.message.body)
        self.transaction.accept(event.delivery)
        self.look()

    def look(self) -> None:
        if not self.bodies and len(self.taken) == self.takes:
            self.takes = -1
            self.ends(self.transaction)

    def on_transaction_committed(self, event: Any) -> None:
        self.finish("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self.finish("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.finish("commit failed")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.finish("declare failed")

    def on_transport_error(self, event: Any) -> None:
        self.finish(f"transport error: {event.transport.condition}")

    def on_link_error(self, event: Any) -> None:
        self.finish(f"link error: {event.link.remote_condition}")

    def finish(self, outcome: str) -> None:
        if self.outcome == "nothing":
            self.outcome = outcome
            self.deadline.cancel()
            self.connection.close()


class ProtonTransactionTests(DaemonTestCase):
    def setUp(self) -> None:
        if Container is None:
            raise SkipTest("python-qpid-proton is not installed (pip install '.[interop]')")
        super().setUp()

    def run_script(self, *args: Any, **options: Any) -> Script:
        script = Script(self.daemon.plain, self.node, *args, **options)
        Container(script, container_id=f"proton-{uuid.uuid4()}").run()
        return script

    def held(self) -> int:
        """Count what the node has to give, and leave it there."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", self.node)
            link.flow(100, drain=True)
            wire.flush()
            until(lambda: wire.read() and link.credit == 0, "a drained link")
            return len(link.unsettled)

    def test_commit(self) -> None:
        script = self.run_script(("a", "b", "c"))
        self.assertEqual((script.outcome, self.held()), ("committed", 3))

    def test_abort(self) -> None:
        script = self.run_script(("a", "b"), ends=lambda transaction: transaction.abort())
        self.assertEqual((script.outcome, self.held()), ("aborted", 0))

    def test_receive_and_commit(self) -> None:
        self.run_script(("a", "b", "c"))
        for settles in (False, True):
            script = self.run_script(source=self.node, takes=1, settles=settles)
            self.assertEqual(script.outcome, "committed")
        self.assertEqual(self.held(), 1)

    def test_receive_and_abort(self) -> None:
        """Proton releases what it took; with early settlement the broker does."""
        self.run_script(("a", "b"))
        for settles in (False, True):
            script = self.run_script(
                source=self.node,
                takes=2,
                settles=settles,
                ends=lambda transaction: transaction.abort(),
            )
            self.assertEqual((script.outcome, script.taken), ("aborted", ["a", "b"]))
            self.assertEqual(self.held(), 2)

    def test_move(self) -> None:
        """Taken and sent in one transaction."""
        self.run_script(("a",))
        script = self.run_script(("b",), source=self.node, takes=1)
        self.assertEqual((script.outcome, script.taken), ("committed", ["a"]))
        last = self.run_script(source=self.node, takes=1)
        self.assertEqual(last.taken, ["b"])

    def test_large(self) -> None:
        """More messages than the link has credit."""
        script = self.run_script(tuple(map(str, range(3000))))
        self.assertEqual(script.outcome, "committed")
        taker = self.run_script(source=self.node, takes=3000, settles=True)
        self.assertEqual((taker.outcome, taker.taken), ("committed", list(map(str, range(3000)))))
        self.assertEqual(self.held(), 0)

    def test_gone(self) -> None:
        """A client that goes without a discharge leaves nothing behind."""
        script = self.run_script(("a",), ends=lambda transaction: script_close(transaction))
        self.assertEqual((script.outcome, self.held()), ("nothing", 0))


def script_close(transaction: Any) -> None:
    """Close the connection instead of discharging."""
    transaction.handler.deadline.cancel()
    transaction.handler.connection.close()
