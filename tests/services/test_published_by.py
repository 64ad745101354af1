# SPDX-License-Identifier: Apache-2.0
"""The protocol by which a message was published."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.content_class import CONTENT_CLASS
from amqproute.services.published_by import LONGEST, written_by
from amqproute.translation.message_parts import EXCHANGE, KEPT_CONTENT, ROUTING_KEY


class WrittenByTests(SynchronousTestCase):
    def test_other_protocols(self) -> None:
        """A message of another protocol says nothing, whatever class it claims."""
        self.assertEqual(written_by({CONTENT_CLASS: "file", EXCHANGE: "e"}), {})

    def test_classes(self) -> None:
        """The classes of 0-9 alone are named, with their protocol; unknown words are not."""
        for value, protocol in (
            (None, "AMQP 0-9-1"),
            ("basic", "AMQP 0-9-1"),
            ("parcel", "AMQP 0-9-1"),
            (7, "AMQP 0-9-1"),
            ("file", "AMQP 0-9"),
            ("stream", "AMQP 0-9"),
            ("tunnel", "AMQP 0-9"),
        ):
            annotations = {KEPT_CONTENT: b"", EXCHANGE: "e", ROUTING_KEY: "k", CONTENT_CLASS: value}
            found = written_by(annotations)
            shown = value if protocol == "AMQP 0-9" else None
            self.assertEqual(found.pop("content-class", None), shown)
            self.assertEqual(found, {"protocol": protocol, "exchange": "e", "routing-key": "k"})

    def test_bounded(self) -> None:
        """What a stranger wrote there is cut."""
        found = written_by({KEPT_CONTENT: b"", EXCHANGE: "e" * 1000})
        self.assertEqual(found["exchange"], "e" * LONGEST)
