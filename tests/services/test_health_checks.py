# SPDX-License-Identifier: Apache-2.0
"""Health checks by name: a situation for each outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.services.health_checks import (
    CHECKS,
    LAG_SECONDS,
    CheckFacts,
    CheckState,
    DnsFacts,
    JournalCheckFacts,
    StoreFacts,
    judge,
    render,
    worst,
)
from amqproute.services.health_rules import BrokerFacts, HealthVerdict

ROOT = Path(amqproute.__file__).parent.parent
DAY = 86400.0
MIB = 1 << 20


def verdicts(code: str, *subjects: str) -> dict[str, Any]:
    """Return the fields of `CheckFacts` for verdicts."""
    rows = tuple(HealthVerdict(code, each, "waits").row() for each in subjects)
    return {"verdicts": rows, "counts": {code: len(rows)}}


def broker(**facts: Any) -> dict[str, Any]:
    """Return the field of `CheckFacts` for facts beside nodes."""
    return {"broker": BrokerFacts(**facts)}


GOOD: Final = {
    "store": StoreFacts(free=4096 * MIB, floor=1024 * MIB),
    "journal": JournalCheckFacts(),
    "listeners": {"tcp:5672": True},
    "dns": DnsFacts(is_capable=True),
}
SITUATIONS: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("store", "failed", {"store": StoreFacts(failure="the writer died")}),
    ("store", "failed", broker(marks=(("damage", "page 7"),))),
    ("store", "warning", {"store": StoreFacts(quarantined=1)}),
    ("journal", "ok", {"journal": None}),
    ("journal", "failed", {"journal": JournalCheckFacts(fault="no space")}),
    ("journal", "failed", broker(marks=(("journal", ""),))),
    ("journal", "warning", {"journal": JournalCheckFacts(lag_seconds=LAG_SECONDS + 1)}),
    ("journal", "warning", {"journal": JournalCheckFacts(lost=2)}),
    ("disk", "failed", broker(marks=(("disk", "full"),))),
    ("disk", "failed", broker(marks=(("max-bytes", "full"),))),
    ("disk", "unknown", {"store": StoreFacts()}),
    ("disk", "warning", {"store": StoreFacts(free=2047 * MIB, floor=1024 * MIB)}),
    ("listeners", "failed", {"listeners": {"tcp:5672": True, "tcp:5671": False}}),
    ("certificates", "failed", broker(certificate="expired")),
    ("certificates", "failed", broker(certificates=(("CN=a", 30 * DAY), ("CN=b", 20 * DAY)))),
    ("certificates", "failed", broker(certificates=(("CN=a", -1.0),))),
    ("certificates", "ok", broker(certificates=(("CN=a", 30 * DAY),))),
    ("clock", "failed", broker(clock="jumped")),
    ("realms", "failed", {"realms": {"ldap": "ldaps://a: it is down", "oauth b": ""}}),
    ("realms", "ok", {"realms": {"ldap": "", "oauth b": ""}}),
    ("dns", "failed", {"dns": DnsFacts("no answer within 5 s")}),
    ("dns", "failed", verdicts("dns.waiting", "beta.example")),
    ("dnssec", "unknown", {"dns": DnsFacts("no answer", None, "no answer")}),
    ("dnssec", "warning", {"dns": DnsFacts(is_capable=False, words="no AD bit")}),
    ("dnssec", "failed", {"dns": DnsFacts(is_capable=False, is_required=True)}),
    ("destinations", "failed", verdicts("peer.unreachable", "beta.example", "gamma.example")),
    ("oldest-message", "failed", verdicts("node.oldest", "orders")),
    ("oldest-message", "failed", verdicts("peer.oldest", "beta.example")),
    ("consumers", "failed", verdicts("node.no-consumer", "orders")),
    ("alarms", "failed", broker(marks=(("memory", "much"),))),
    ("alarms", "failed", verdicts("clock.jumped", "clock")),
    ("alarms", "warning", broker(draining="draining: 3 messages to go")),
    ("alarms", "ok", verdicts("node.oldest", "orders")),
]


class CheckTests(SynchronousTestCase):
    """Findings of each check."""

    def test_well(self) -> None:
        """In a healthy broker every check is ok and names no cure."""
        for name in CHECKS:
            result = judge(name, CheckFacts(**GOOD))
            self.assertEqual((result.state, result.row()["cure"]), (CheckState.OK, ""), name)

    def test_situations(self) -> None:
        """Each situation has its outcome in that check, with a cure."""
        for name, state, facts in SITUATIONS:
            result = judge(name, CheckFacts(**{**GOOD, **facts}))
            self.assertEqual(result.state.value, state, (name, facts))
            self.assertTrue(result.words)
            if state != "ok":
                self.assertEqual(result.row()["cure"], CHECKS[name].cure)
        seen = {name for name, state, _ in SITUATIONS if state == "failed"}
        self.assertEqual(seen, set(CHECKS), "a check that nothing fails")

    def test_within(self) -> None:
        """The time for which certificates have to be valid can be chosen."""
        facts = broker(certificates=(("CN=a", 30 * DAY),))
        for days, is_ok in ((29, True), (31, False)):
            result = judge("certificates", CheckFacts(**facts, within=days * DAY))
            self.assertIs(result.is_ok, is_ok)

    def test_subjects(self) -> None:
        """Subjects are named for programs, up to a bound, with the command for the first."""
        many = [f"d{number}.example" for number in range(30)]
        result = judge("destinations", CheckFacts(**verdicts("peer.unreachable", *many)))
        self.assertEqual(result.subjects, tuple(many[:20]))
        self.assertIn("and 29 more", result.words)
        self.assertEqual(result.row()["next"], "amqproute peer test d0.example")

    def test_worst(self) -> None:
        """Failed is worse than a warning, and that than not knowing."""
        states = [CheckState.OK, CheckState.UNKNOWN, CheckState.WARNING, CheckState.FAILED]
        for number in range(1, 5):
            self.assertIs(worst(iter(states[:number])), states[number - 1])
        self.assertIs(worst(iter(())), CheckState.OK)

    def test_page(self) -> None:
        """docs/health.md is what the program prints."""
        page = (ROOT / "docs" / "health.md").read_text()
        self.assertEqual(page, render(), "run python -m amqproute.services.health_checks")
