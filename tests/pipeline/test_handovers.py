# SPDX-License-Identifier: Apache-2.0
"""Contradictions between two brokers, and innocent cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqproute.journal.record import GENESIS, RecordKind
from tests.pipeline.journals import Journal, handed_on
from tests.pipeline.support import MISSING, computed
from tests.pipeline.test_traces import TraceCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline.conservation import judged
    from amqproute.pipeline.handovers import contradictions
    from amqproute.pipeline.reconcile import CHANGED, LOST, TWICE, UNKNOWN
    from amqproute.pipeline.table_schema import VIOLATIONS
    from amqproute.pipeline.traces import hops

Found = set[tuple[str, str, int | None, bool]]
"""Violation, ``alpha`` or ``beta``, its entry, and whether it is hidden."""


class RuleTests(TraceCase):
    """One rule after the other, each in two journals of its own."""

    def test_rules(self) -> None:
        """Findings in the journals of each case are exactly those it names."""
        cases = (
            self.clean, self.lost, self.lost_behind_a_crash, self.changed, self.twice,
            self.never_had, self.handed_over_by_nobody, self.expired_there, self.in_doubt,
            self.behind_the_end, self.before_the_end, self.gap, self.missing, self.begins_late,
            self.second_attempt, self.copies_only, self.copies_only_twice, self.suppressed,
            self.recovered, self.ahead_of_its_commit, self.another_broker, self.stranger,
            self.clocks, self.shown_to_others, self.nameless,
        )  # fmt: skip
        journals, expected = [], set()
        for number, case in enumerate(cases):
            sides = {"alpha": f"a{number:03}.example", "beta": f"b{number:03}.example"}
            self.alpha, self.beta = (Journal(domain) for domain in sides.values())
            for journal in (self.alpha, self.beta):
                journal.write(RecordKind.SEGMENT, {"previous": GENESIS})
                journal.write(RecordKind.START, {})
                journal.at = 1000
            self.ends = [self.alpha, self.beta]
            expected |= {(what, sides[side], *rest) for what, side, *rest in case()}
            for journal in self.ends:
                journal.at = max(self.alpha.at, self.beta.at, journal.at) + 1000
                journal.write(RecordKind.STOP, {})
            journals += [self.alpha, self.beta]
        runs = self.runs(*journals)
        entries = computed(hops(runs))
        with contradictions(entries, runs, judged(runs, entries)) as rows:
            self.assertEqual(rows.schema.names, VIOLATIONS.names)
            found = [(row.what, row.domain, row.entry, row.hidden) for row in rows.collect()]
        self.assertEqual(set(found), expected)
        self.assertEqual(len(found), len(expected))

    def hand_on(self, entry: int, **fields: Any) -> None:
        self.publish(entry, f"orders@{self.beta.domain}")
        handed_on(self.alpha, self.beta, entry, 10 + entry, **fields)

    def relay(self, entry: int, **fields: Any) -> None:
        """Write the sender's side only."""
        self.publish(entry, f"orders@{self.beta.domain}")
        said = {"peer": f"peer:{self.beta.domain}", "attempt": 1, **fields}
        self.alpha.end(RecordKind.RELAYED, entry, f"amqp$out/{self.beta.domain}", **said)

    def receive(self, there: int, entry: int, **fields: Any) -> None:
        """Write the receiver's side only."""
        said = {
            "sender": f"peer:{self.alpha.domain}", "from_stream": self.alpha.stream,
            "from_entry": entry, "trail": self.alpha.broker, **fields,
        }  # fmt: skip
        self.beta.receive(there, "orders", **said)

    def clean(self) -> Found:
        self.hand_on(1)
        self.hand_on(2)
        return set()

    def lost(self) -> Found:
        """Also where the sender names the broker that took it."""
        self.hand_on(1)
        self.relay(2)
        self.relay(3, connection=self.beta.broker)
        return {(LOST, "alpha", 2, False), (LOST, "alpha", 3, False)}

    def lost_behind_a_crash(self) -> Found:
        """A crash loses nothing that was taken."""
        self.relay(1)
        self.alpha.at = self.beta.at = 1005
        self.alpha.write(RecordKind.START, {})
        self.beta.write(RecordKind.START, {})
        return {(LOST, "alpha", 1, False)}

    def changed(self) -> Found:
        self.hand_on(1, digest="e" * 64)
        self.hand_on(2, digest=None)
        return {(CHANGED, "beta", 11, False)}

    def twice(self) -> Found:
        """Each receipt beyond the first."""
        self.hand_on(1)
        self.beta.at = 5000
        self.receive(21, 1)
        self.receive(22, 1, digest="e" * 64)
        return {(TWICE, "beta", 21, False), (TWICE, "beta", 22, False)}

    def never_had(self) -> Found:
        self.receive(11, 1)
        return {(UNKNOWN, "beta", 11, False)}

    def handed_over_by_nobody(self) -> Found:
        """The entry was there, and is in no queue any more."""
        self.publish(1)
        self.receive(11, 1)
        self.alpha.at = 1002
        self.alpha.write(RecordKind.STOCK, {"count": 0})
        return {(UNKNOWN, "beta", 11, False)}

    def expired_there(self) -> Found:
        """It came to another end at the sender."""
        self.publish(1)
        self.receive(11, 1)
        self.alpha.end(RecordKind.EXPIRED, 1, "amqp$out")
        return {(UNKNOWN, "beta", 11, False)}

    def in_doubt(self) -> Found:
        """It still waits at the sender, which will offer it again."""
        self.publish(1)
        self.receive(11, 1)
        self.alpha.at = 1002
        self.alpha.write(RecordKind.STOCK, {"node": "amqp$out", "ranges": "1", "count": 1})
        self.alpha.write(RecordKind.STOCK, {"count": 0})
        return set()

    def behind_the_end(self) -> Found:
        """Of both sides the journals end where the other half would be."""
        self.relay(1)
        self.receive(12, 2)
        self.ends = []
        return set()

    def before_the_end(self) -> Found:
        """They end a good while later."""
        self.relay(1)
        self.receive(12, 2)
        self.ends = []
        for journal in (self.alpha, self.beta):
            journal.at = 2000
            journal.write(RecordKind.CONFIGURED, {})
        return {(LOST, "alpha", 1, False), (UNKNOWN, "beta", 12, False)}

    def gap(self) -> Found:
        """The journal that should know says that it could not be written."""
        self.relay(1)
        self.beta.write(RecordKind.GAP, {"count": 1})
        self.alpha.at = self.beta.at = 9000
        self.receive(12, 2)
        self.alpha.write(RecordKind.GAP, {"count": 1})
        return {(LOST, "alpha", 1, True), (UNKNOWN, "beta", 12, True)}

    def missing(self) -> Found:
        """A segment of it is not here."""
        self.relay(1)
        self.beta.seq += 7
        return {(LOST, "alpha", 1, True)}

    def begins_late(self) -> Found:
        """It begins behind it: nothing is known."""
        self.relay(1)
        self.beta = Journal(self.beta.domain)
        self.beta.at, self.beta.seq = 5000, 900
        self.ends = [self.alpha, self.beta]
        self.beta.write(RecordKind.CONFIGURED, {})
        return set()

    def second_attempt(self) -> Found:
        """Its first record ever hides what was taken before it, and not what was tried."""
        self.alpha.at = 50
        self.publish(1, f"orders@{self.beta.domain}")
        self.publish(2, f"orders@{self.beta.domain}")
        self.beta = Journal(self.beta.domain)
        self.beta.at = 500
        self.beta.write(RecordKind.START, {})
        self.ends = [self.alpha, self.beta]
        for at, entry in ((499, 1), (501, 2)):
            self.alpha.at = at
            self.alpha.end(
                RecordKind.RELAYED, entry, "amqp$out", peer=f"peer:{self.beta.domain}", attempt=2,
                wire_us=1000,
            )  # fmt: skip
        return {(LOST, "alpha", 2, False)}

    def copies_only(self) -> Found:
        """A topic has no entry for it, and as many as there are subscriptions."""
        self.relay(1)
        self.relay(2)
        self.copy(1, ())
        self.copy(2, (11, 12))
        return set()

    def copies_only_twice(self) -> Found:
        self.relay(1)
        self.copy(1, (11,))
        self.beta.at = 3000
        self.copy(1, (12,))
        return {(TWICE, "beta", None, False)}

    def copy(self, entry: int, copies: tuple[int, ...]) -> None:
        said = {
            "sender": f"peer:{self.alpha.domain}", "from_stream": self.alpha.stream,
            "from_entry": entry, "trail": self.alpha.broker, "digest": "d" * 64,
        }  # fmt: skip
        for each in copies:
            self.beta.write(RecordKind.ROUTED, {**said, "node": "one", "entry": each})
        self.beta.write(RecordKind.RECEIVED, {**said, "node": "topic", "copies": len(copies)})

    def suppressed(self) -> Found:
        """Another message of that id had been taken."""
        self.hand_on(1)
        self.relay(2)
        told = {"from_stream": self.alpha.stream, "from_entry": 2, "node": "orders"}
        self.beta.write(RecordKind.DUPLICATE, told)
        return set()

    def recovered(self) -> Found:
        """Its record was not written when the receiver crashed; the store has it."""
        self.relay(1)
        self.beta.at = 1100
        self.beta.write(RecordKind.START, {})
        self.beta.write(RecordKind.RECOVERY, {"entry": 11, "node": "orders", "digest": "d" * 64})
        return set()

    def ahead_of_its_commit(self) -> Found:
        """The sender crashed before it had written down that it had the message at all."""
        self.alpha.write(RecordKind.CONFIGURED, {})
        self.receive(11, 1)
        self.alpha.at = 1500
        self.alpha.write(RecordKind.START, {})
        return {(UNKNOWN, "beta", 11, True)}

    def another_broker(self) -> Found:
        """One of the same domain took it, or handed it over, whose journal is not here."""
        self.relay(1, connection=f"mx2.{self.beta.domain}")
        self.receive(12, 2, from_stream="elsewhere", trail=f"mx2.{self.alpha.domain}")
        return set()

    def stranger(self) -> Found:
        """An organization without a journal here."""
        self.relay(1, peer="peer:elsewhere.example")
        self.receive(
            12, 2, sender="peer:elsewhere.example", from_stream="far away", trail="mx.elsewhere"
        )
        return set()

    def clocks(self) -> Found:
        """The receiver's clock is an hour ahead: its journal ends before the hand-over."""
        self.beta.at += 3600
        for entry in (1, 2, 3):
            self.hand_on(entry)
        self.alpha.at += 1800
        self.beta.at += 600
        self.beta.write(RecordKind.CONFIGURED, {})
        self.relay(4)
        self.ends = [self.alpha]
        return set()

    def shown_to_others(self) -> Found:
        """An export says nothing of hand-overs with others."""
        self.relay(1)
        self.beta.write(RecordKind.SEGMENT, {"previous": GENESIS, "peer": "peer:elsewhere.example"})
        return set()

    def nameless(self) -> Found:
        """The receiver does not say from which entry it took a message; it has the same body."""
        self.relay(1)
        self.beta.receive(11, "orders", sender=f"peer:{self.alpha.domain}")
        return set()
