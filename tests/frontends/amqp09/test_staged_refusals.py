# SPDX-License-Identifier: Apache-2.0
"""Publishes of staged contents that close their channel: nothing is left held, or counted."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from tests.conformance.frame_broker import Network
from tests.support.branches import with_branches
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

BODY = b"x" * 100


def by_reference(exchange: str = "") -> bytes:
    """Return a whole transfer by reference."""
    return b"".join(
        (
            call(1, "message.open", reference=b"r"),
            call(1, "message.append", reference=b"r", bytes=BODY),
            call(
                1,
                "message.transfer",
                destination=exchange,
                routing_key="q",
                delivery_mode=2,
                body=(1, b"r"),
            ),
            call(1, "message.close", reference=b"r"),
        )
    )


class RefusalTests(SynchronousTestCase):
    def connected(self, allow: Sequence[str] = ("publish", "consume")) -> Client09:
        house = Network().house(access=[Rule.of(who="*", node="*", allow=list(allow))])
        with_branches(house)
        self.staging = house.store.staging
        return Client09(house, version=V09).channel()

    def test_references(self) -> None:
        """Without the right, without the exchange, and with dtx without a branch."""
        for allow, exchange, select, code in (
            (["consume"], "", (), 403),
            (["publish"], "none", (), 404),
            (["publish", "manage"], "", ("dtx.select",), 406),
        ):
            client = self.connected(allow)
            for each in select:
                client.ask(each)
            client.methods.clear()
            client.write(by_reference(exchange)).run(1)
            self.assertEqual(client.closes(), [("channel", code)])
            self.assertEqual((self.staging.held, self.staging.use()), (0, (0, 0)), code)

    def test_files(self) -> None:
        """A file is still staged, and nobody holds it."""
        client = self.connected(["consume"])
        client.ask("file.open", identifier="f", content_size=len(BODY))
        client.write(content(1, "file.stage", BODY, class_id=70))
        client.write(call(1, "file.publish", routing_key="q", identifier="f")).run(1)
        self.assertEqual(client.closes(), [("channel", 403)])
        self.assertEqual((self.staging.held, self.staging.use()), (0, (1, len(BODY))))

    def test_selected_behind(self) -> None:
        """A publish without a transaction is not kept staged for one that is selected behind it."""
        client = self.connected(["publish", "manage"])
        client.write(by_reference(), call(1, "dtx.select")).run(1)
        self.assertEqual(client.names()[-2:], ["message.ok", "dtx.select-ok"])
        self.assertEqual((client.depth(), self.staging.held, self.staging.use()), (1, 0, (0, 0)))
