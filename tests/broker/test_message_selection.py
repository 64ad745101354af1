# SPDX-License-Identifier: Apache-2.0
"""Selection of messages by ids, by domain, by selector."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.message_selection import EVERYTHING, NOTHING, MessageSelection, domain_of
from amqproute.entry import Entry
from amqproute.errors import InvalidField
from tests.support.fakes import message


def entry(number: int, to: str = "orders@beta.example", **kind: object) -> Entry:
    """Return an entry that is nowhere."""
    return Entry(number, message(b"x", to=to, **kind), True, True, 0, 0)


class AimTests(SynchronousTestCase):
    """One relay queue at a time."""

    def of(self, aim: MessageSelection, key: str = "beta.example", domain: str = "") -> object:
        """Ask about a queue; shared.example leads to a gateway."""
        ways = {"shared.example": "gate.example:5671", "other.example": "gate.example:5671"}
        return aim.of(key, domain or key, lambda name: ways.get(name, name))

    def test_domain(self) -> None:
        """Its own queue as a whole, that of its addresses too; others not at all."""
        aim = MessageSelection(to="Beta.Example")
        self.assertIs(self.of(aim), EVERYTHING)
        self.assertIs(self.of(aim, "beta.example/in@beta.example", "beta.example"), EVERYTHING)
        self.assertIs(self.of(aim, "gamma.example"), NOTHING)
        self.assertFalse(NOTHING(entry(1)))
        self.assertTrue(EVERYTHING(entry(1)))

    def test_gateway(self) -> None:
        """Of a queue that domains share, the messages for the one; the queue itself by its key."""
        picks = self.of(MessageSelection(to="shared.example"), "gate.example:5671", "gate.example")
        assert callable(picks)
        self.assertTrue(picks(entry(1, "x@shared.example")))
        self.assertFalse(picks(entry(2, "x@other.example")))
        self.assertIs(
            self.of(MessageSelection(to="gate.example:5671"), "gate.example:5671", "gate.example"),
            EVERYTHING,
        )

    def test_all_have_to_fit(self) -> None:
        """Ids and a selector and a domain."""
        picks = self.of(
            MessageSelection((1, 2), "beta.example", "durable = TRUE AND amqp.to LIKE 'orders@%'")
        )
        assert callable(picks)
        self.assertTrue(picks(entry(1)))
        self.assertFalse(picks(entry(3)))
        self.assertFalse(picks(entry(2, "bills@beta.example")))
        self.assertIs(self.of(MessageSelection()), EVERYTHING)

    def test_refused(self) -> None:
        """A domain that is none, a selector that does not compile."""
        self.assertRaises(InvalidField, MessageSelection, (), "no domain")
        self.assertRaises(InvalidField, MessageSelection, (), "", "a = = b")

    def test_domain_of(self) -> None:
        """An unreadable address has no domain."""
        for to, domain in (("a@B.example", "b.example"), ("a", ""), (None, ""), ("@@", "")):
            self.assertEqual(domain_of(to), domain)
