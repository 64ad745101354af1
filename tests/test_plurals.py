# SPDX-License-Identifier: Apache-2.0
"""Numbers with nouns."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.plurals import counted


class PluralTests(SynchronousTestCase):
    """One is in the singular, everything else is not."""

    def test_counted(self) -> None:
        """By an s, or as it is given."""
        for number, words in ((0, "0 messages"), (1, "1 message"), (2, "2 messages")):
            self.assertEqual(counted(number, "message"), words)
        self.assertEqual(counted(1, "entry is", "entries are"), "1 entry is")
        self.assertEqual(counted(3, "entry is", "entries are"), "3 entries are")
