# SPDX-License-Identifier: Apache-2.0
"""A running daemon: dynamic nodes (N-15, N-22, N-24), and messages in memory only (D-03)."""

from __future__ import annotations

import re
from itertools import pairwise

from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.state_tables import LinkStateName
from tests.integration.support import Daemon, DaemonTestCase, Refused, Wire, body_of, message

UUID4 = re.compile(r"dynamic-([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})")
"""Names as the daemon gives them: 122 random bits (RFC 9562 §5.4)."""
NAMES = 60


def dynamic(wire: Wire) -> tuple[Link, str]:
    """Make a dynamic node; return the link it was made for, and its address."""
    link = wire.attach("receiver", None, source=spec.Source(dynamic=True))
    assert link.source is not None
    return link, str(link.source.address)


def condition_of(refused: Refused) -> str:
    """Return the condition with which a link was refused."""
    return "" if refused.error is None else str(refused.error.condition)


class DynamicTests(DaemonTestCase):
    """Nodes that clients make."""

    def test_names(self) -> None:
        """A-06, N-24: of 1000 names none comes twice, and no digit follows from others."""
        names: list[str] = []
        while len(names) < 1000:
            with Wire(self.daemon.plain) as wire:
                names += [dynamic(wire)[1] for _ in range(NAMES)]
        self.assertEqual(len(set(names)), len(names))
        digits = []
        for name in names:
            found = UUID4.fullmatch(name)
            assert found is not None, name
            digits.append(found[1].replace("-", ""))
        varied = [len({each[place] for each in digits}) for place in range(32)]
        self.assertEqual([place for place, count in enumerate(varied) if count < 8], [12, 16])
        # Neither a counter nor a clock: from one name to the next a digit makes each step by chance
        # (1 in 16; 125 of some 1000 are 8 standard deviations more).
        for place in set(range(32)) - {12, 16}:
            steps = [(int(b[place], 16) - int(a[place], 16)) % 16 for a, b in pairwise(digits)]
            self.assertLess(max(steps.count(step) for step in range(16)), 125, place)

    def test_gone_before_the_answer(self) -> None:
        """N-22: right behind the answer to the detach nobody finds it."""
        with Wire(self.daemon.plain) as wire, Wire(self.daemon.plain) as other:
            for _ in range(10):
                link, address = dynamic(wire)
                other.attach("sender", address).detach()
                link.detach()
                while link._state is not LinkStateName.DONE:
                    wire.read()
                with self.assertRaises(Refused) as raised, Wire(self.daemon.plain) as late:
                    late.attach("sender", address)
                self.assertEqual(condition_of(raised.exception), "amqp:not-found")

    def test_restart(self) -> None:
        """N-15: what lives in memory ends with the process."""
        daemon = Daemon("gamma.example").start()
        self.addCleanup(daemon.stop)
        with Wire(daemon.plain) as wire:
            _, address = dynamic(wire)
            wire.publish(address, [message(b"durable", durable=True)])
            daemon.kill()
        daemon.start()
        with Wire(daemon.plain) as wire, self.assertRaises(Refused) as raised:
            wire.attach("sender", address)
        self.assertEqual(condition_of(raised.exception), "amqp:not-found")
        daemon.check()


class MemoryOnlyTests(DaemonTestCase):
    """D-03: what is not durable survives everything but the end of the process."""

    changes = {"limits": {"queue-memory-messages": 5}}

    def test_reload(self) -> None:
        """A reload, lost connections, and more of them than memory holds."""
        bodies = [b"%d" % number for number in range(50)]
        with Wire(self.daemon.plain) as wire:
            wire.publish(self.node, [message(body, durable=False) for body in bodies])
            link = wire.attach("receiver", self.node)
            link.flow(20)
            wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
        self.daemon.reload(limits={"queue-memory-messages": 3})
        with Wire(self.daemon.plain) as wire:
            self.assertEqual([body_of(each) for each in wire.consume(self.node, 50)], bodies)
