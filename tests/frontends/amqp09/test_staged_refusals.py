# SPDX-License-Identifier: Apache-2.0
"""Publishes of staged contents that close their channel: nothing is left held, or counted."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.frontends.amqp09.staged_publish import LARGE_BYTES
from amqproute.translation.content_message import data_beginning
from tests.conformance.frame_broker import Network
from tests.support.branches import with_branches
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

BODY = b"x" * 100
LARGE = bytes(2 * LARGE_BYTES)


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

    def test_large(self) -> None:
        """So it is with what is refused when its first part, or its last one, has been read."""
        table = [("x-opt-basic-type", "S", b"amqp-1.0")]
        for body in (LARGE, data_beginning(len(LARGE) + 1) + LARGE):
            client = self.connected()
            client.ask("message.open", reference=b"r")
            for at in range(0, len(body), 100_000):
                client.ask("message.append", reference=b"r", bytes=body[at : at + 100_000])
            client.write(
                call(
                    1,
                    "message.transfer",
                    routing_key="q",
                    application_headers=table,
                    body=(1, b"r"),
                ),
                call(1, "message.close", reference=b"r"),
            )
            for _ in range(20):
                client.run()
            self.assertEqual(client.closes(), [("channel", 406)])
            self.assertEqual((self.staging.held, self.staging.use()), (0, (0, 0)))
            self.assertEqual(client.depth(), 0)
            drafts = client.house.shared.partial_deliveries.drafts
            self.assertEqual(drafts.held("user:ann"), 0)

    def test_selected_behind(self) -> None:
        """A transfer is in no transaction that is selected behind it, although it ends later."""
        for select, more in (("dtx.select", ()), ("tx.select", ("tx.rollback",))):
            client = self.connected(["publish", "manage"])
            names = (select, *more)
            client.write(by_reference(), *(call(1, each) for each in names)).run(1)
            answers = client.names()
            self.assertEqual(answers.count("message.ok"), 4)
            others = [each for each in answers if each != "message.ok"]
            self.assertEqual(others, [f"{each}-ok" for each in names])
            self.assertEqual((client.depth(), self.staging.held), (1, 0), select)
            self.assertEqual(self.staging.use(), (0, 0), select)
