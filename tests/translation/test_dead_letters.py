# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.translation.dead_letters`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.message import Message
from amqproute.translation.content_message import read_content
from amqproute.translation.dead_letters import (
    MOST_DEATHS,
    DeadLetterTarget,
    DeathEvent,
    DeathReason,
    dead_letter_keys,
    death_annotations,
    is_dead_letter_circle,
)
from amqproute.translation.message_content import DeliveryState, content_of
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.methods import BasicProperties
from tests.support.plain_amqp09 import table_pairs

REJECTED, EXPIRED, MAX_LENGTH, DELIVERY_LIMIT = DeathReason


def died(
    message: Message,
    queue: str,
    reason: DeathReason,
    target: DeadLetterTarget | None = None,
    **more: Any,
) -> Message:
    """Return the dead letter that a message becomes."""
    facts: dict[str, Any] = {
        "time_ms": 1_700_000_000_999, "exchange": "e", "routing_keys": ("k",), **more
    }  # fmt: skip
    event = DeathEvent(queue, reason, **facts)
    changed, dropped = death_annotations(
        message.annotations, event, target or DeadLetterTarget("dlx")
    )
    return message.with_annotations(changed, drop=dropped).without_expiry()


def message_of(**properties: Any) -> Message:
    """Return the message of a publish."""
    made = BasicProperties(**properties)
    return Message(read_content(made, encode_properties(made)).message(b"body", "e", "k"))


def seen(message: Message) -> tuple[BasicProperties, str, str]:
    """Return what a 0-9-1 client gets."""
    delivered = content_of(message, DeliveryState("dead", 0))
    properties = decode_properties(60, delivered.property_octets)
    assert isinstance(properties, BasicProperties)
    return properties, delivered.exchange, delivered.routing_key


class DeathTests(SynchronousTestCase):
    """Headers as clients read them."""

    def test_first(self) -> None:
        """Tags and names are those that clients know; the message's own headers stay."""
        message = message_of(
            headers=FieldTable({"mine": 1}), expiration="60000", app_id="a", delivery_mode=2
        )
        properties, exchange, key = seen(died(message, "q", EXPIRED, expiration="60000"))
        self.assertEqual((exchange, key), ("dlx", "k"))
        self.assertEqual((properties.expiration, properties.app_id), (None, "a"))
        assert properties.headers is not None
        pairs = {name: (tag, value) for name, tag, value in table_pairs(properties.headers.octets)}
        self.assertEqual(pairs.pop("mine"), ("I", 1))
        tag, tables = pairs.pop("x-death")
        self.assertEqual((tag, [each[0] for each in tables]), ("A", ["F"]))
        self.assertEqual(
            {name: (tag, value) for name, tag, value in tables[0][1]},
            {
                "count": ("l", 1), "reason": ("S", b"expired"), "queue": ("S", b"q"),
                "time": ("T", 1_700_000_000), "exchange": ("S", b"e"),
                "routing-keys": ("A", [("S", b"k")]), "original-expiration": ("S", b"60000"),
            },
        )  # fmt: skip
        self.assertEqual(
            pairs,
            {
                f"x-{which}-death-{word}": ("S", value)
                for which in ("first", "last")
                for word, value in (("reason", b"expired"), ("queue", b"q"), ("exchange", b"e"))
            },
        )

    def test_again(self) -> None:
        """The same queue and reason count up and come first; the first death stays the first."""
        message = message_of()
        for queue, reason in (
            ("q", EXPIRED), ("r", REJECTED), ("q", EXPIRED), ("q", MAX_LENGTH),
            ("r", REJECTED), ("d", DELIVERY_LIMIT),
        ):  # fmt: skip
            message = died(message, queue, reason)
        properties, _, _ = seen(message)
        assert properties.headers is not None
        deaths: Any = properties.headers["x-death"]
        self.assertEqual(
            [(each["queue"], each["reason"], each["count"]) for each in deaths],
            [
                ("d", "delivery_limit", 1), ("r", "rejected", 2), ("q", "maxlen", 1),
                ("q", "expired", 2),
            ],
        )  # fmt: skip
        self.assertEqual(properties.headers["x-first-death-queue"], "q")
        self.assertEqual(properties.headers["x-last-death-queue"], "d")

    def test_published_again(self) -> None:
        """A client that publishes a dead letter on keeps the count going."""
        properties, _, _ = seen(died(message_of(), "q", REJECTED))
        octets = encode_properties(properties)
        message = Message(read_content(properties, octets).message(b"", "e", "k"))
        properties, _, _ = seen(died(message, "q", REJECTED))
        assert properties.headers is not None
        deaths: Any = properties.headers["x-death"]
        self.assertEqual([each["count"] for each in deaths], [2])

    def test_routing_key(self) -> None:
        """The key of the queue's arguments replaces all others and CC; without it they stay."""
        message = message_of(headers=FieldTable({"CC": ["c"], "a": 1}))
        other = DeadLetterTarget("dlx", "dead")
        event = DeathEvent("q", REJECTED, 0, "e", ("k", "c"))
        self.assertEqual(dead_letter_keys(event, other), ("dead",))
        self.assertEqual(dead_letter_keys(event, DeadLetterTarget("dlx")), ("k", "c"))
        properties, _, key = seen(died(message, "q", REJECTED, other, routing_keys=("k", "c")))
        self.assertEqual(key, "dead")
        self.assertNotIn("CC", properties.headers or {})
        self.assertIn("a", properties.headers or {})
        properties, _, key = seen(died(message, "q", REJECTED, routing_keys=("k", "c")))
        self.assertEqual((key, (properties.headers or {})["CC"]), ("k", ("c",)))

    def test_circle(self) -> None:
        """A message that only expires ends where it was before; a consumer's reject breaks it."""
        message = died(message_of(), "q", EXPIRED)
        self.assertFalse(is_dead_letter_circle(message_of().annotations, "q", EXPIRED))
        self.assertTrue(is_dead_letter_circle(message.annotations, "q", EXPIRED))
        self.assertFalse(is_dead_letter_circle(message.annotations, "other", EXPIRED))
        self.assertFalse(is_dead_letter_circle(message.annotations, "q", REJECTED))
        rejected = died(message, "r", REJECTED)
        self.assertFalse(is_dead_letter_circle(rejected.annotations, "q", MAX_LENGTH))
        long = died(rejected, "s", EXPIRED)
        self.assertTrue(is_dead_letter_circle(long.annotations, "s", EXPIRED))
        self.assertFalse(is_dead_letter_circle(long.annotations, "q", EXPIRED))

    @given(
        st.one_of(
            st.text(max_size=2), st.integers(),
            st.lists(st.one_of(st.integers(), st.dictionaries(
                st.sampled_from(["count", "queue", "reason"]),
                st.one_of(st.none(), st.integers(), st.just("q"), st.booleans()))), max_size=3),
        )
    )  # fmt: skip
    def test_strangers(self, value: Any) -> None:
        """The death is recorded and the list bounded, whatever a client wrote there."""
        event = DeathEvent("q", EXPIRED, 0, "e", ())
        annotations = {"x-death": value}
        changed, _ = death_annotations(annotations, event, DeadLetterTarget(""))
        deaths: Any = changed["x-death"]
        self.assertEqual((deaths[0]["queue"], deaths[0]["reason"]), ("q", "expired"))
        is_dead_letter_circle(annotations, "q", EXPIRED)

    def test_bound(self) -> None:
        """No more tables are kept than there may be."""
        many = [{"count": 1, "queue": str(at), "reason": "expired"} for at in range(500)]
        event = DeathEvent("q", EXPIRED, 0, "e", ())
        changed, _ = death_annotations({"x-death": many}, event, DeadLetterTarget(""))
        deaths: Any = changed["x-death"]
        self.assertEqual(len(deaths), MOST_DEATHS)
