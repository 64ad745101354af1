# SPDX-License-Identifier: Apache-2.0
"""The verdicts of `status`: pure functions of facts and limits, and their one table."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from shlex import split
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.config.operations_settings import StatusSettings
from amqproute.daemon.health_survey import limits_of
from amqproute.services import health_rules
from amqproute.services.health_rules import (
    MOST_SHOWN,
    RULES,
    BrokerFacts,
    ContractFacts,
    DestinationFacts,
    HealthLimits,
    HealthVerdict,
    HealthVerdicts,
    NodeFacts,
    RecentFacts,
    judge_broker,
    judge_destination,
    judge_node,
    span,
)

LIMITS = HealthLimits()
NODE = NodeFacts("orders", 3, 60.0, 0)
HOP = DestinationFacts("beta.example", "beta.example", 3, 60.0)
REJECTED = RecentFacts(
    "rejected", "beta.example", "too big", "amqp:link:message-size-exceeded", 7, True
)
AGES = st.floats(min_value=0, max_value=1e8)


def codes(facts: Any, limits: HealthLimits = LIMITS) -> list[str]:
    """Return the codes that facts come to."""
    judges: dict[type, Any] = {
        NodeFacts: judge_node,
        DestinationFacts: judge_destination,
        BrokerFacts: judge_broker,
    }
    return [each.code for each in judges[type(facts)](facts, limits)]


TABLE: tuple[tuple[str, Any], ...] = (
    ("", NODE),
    ("", replace(NODE, depth=0, oldest=None)),
    ("node.oldest", replace(NODE, oldest=901.0, consumers=1)),
    ("", replace(NODE, oldest=900.0, consumers=1)),
    ("node.no-consumer", replace(NODE, oldest=301.0)),
    ("node.oldest node.no-consumer", replace(NODE, oldest=901.0)),
    ("", HOP),
    ("peer.oldest", replace(HOP, oldest=901.0)),
    ("peer.held", replace(HOP, state="held", held="audit", failures=2)),
    ("peer.unreachable", replace(HOP, state="waiting", failures=1, error="connect.refused: no")),
    ("peer.unreachable", replace(HOP, state="refused", depth=0, oldest=None)),
    ("", replace(HOP, no_credit=9e9)),
    ("", replace(HOP, no_credit=299.0, oldest=800.0)),
    ("peer.no-credit", replace(HOP, no_credit=301.0, oldest=800.0)),
    ("", replace(HOP, dns=121.0, oldest=10.0)),
    ("dns.waiting", replace(HOP, dns=121.0, oldest=130.0)),
    ("", BrokerFacts()),
    ("mark.closed", BrokerFacts(marks=(("disk", "full"),))),
    ("store.damaged", BrokerFacts(marks=(("damage", "the database is damaged"),))),
    ("daemon.draining", BrokerFacts(draining="draining: 3 messages to go")),
    ("clock.jumped", BrokerFacts(clock="an hour ahead")),
    ("certificate.invalid", BrokerFacts(certificate="expired", certificates=(("CN=x", -5.0),))),
    ("", BrokerFacts(certificates=(("CN=x", 21 * 86400.0),))),
    ("certificate.ends", BrokerFacts(certificates=(("CN=x", 21 * 86400.0 - 1),))),
    ("contract.bound", BrokerFacts(contracts=(ContractFacts("user:ann", "spool"),))),
    ("contract.bound", BrokerFacts(recent=(RecentFacts("refused", "user:ann", "links", "", 1),))),
    ("peer.rejects", BrokerFacts(recent=(REJECTED,))),
    ("node.rejects", BrokerFacts(recent=(replace(REJECTED, is_leaving=False),))),
    ("peer.dead-letters", BrokerFacts(recent=(replace(REJECTED, event="dead-lettered"),))),
    (
        "node.dead-letters",
        BrokerFacts(recent=(replace(REJECTED, event="dead-lettered", is_leaving=False),)),
    ),
)
"""Facts, and the codes that they come to with the default limits."""


class JudgeTests(SynchronousTestCase):
    """Facts come to verdicts."""

    def test_table(self) -> None:
        """Each situation has its code, on the right side of its limit; every code is met."""
        for expected, facts in TABLE:
            self.assertEqual(" ".join(codes(facts)), expected, facts)
        met = {code for expected, _ in TABLE for code in expected.split()}
        self.assertEqual(met, set(RULES))

    def test_words(self) -> None:
        """One is no many; conditions and kinds are told with their counts."""
        (verdict,) = judge_destination(
            replace(HOP, depth=1, oldest=3600.0, state="waiting", failures=1, error="x.y: no"),
            replace(LIMITS, oldest=1e9),
        )
        self.assertEqual(
            verdict.words, "waiting, 1 message waits, the oldest for 60 min: x.y: no (1 attempt)"
        )
        full = replace(REJECTED, kind="full", condition="amqp:resource-limit-exceeded", count=12)
        (verdict,) = judge_broker(BrokerFacts(recent=(REJECTED, full)), LIMITS)
        self.assertEqual(
            verdict.words,
            "rejected 19 messages in the last hour, full (amqp:resource-limit-exceeded): 12, "
            "too big (amqp:link:message-size-exceeded): 7",
        )

    def test_limits_of_single_ones(self) -> None:
        """By name, else by the longest pattern; null for any age, with or without consumers."""
        limits = HealthLimits(oldest_by={"dead": None, "batch-*": 5000.0, "batch-slow*": 9000.0})
        self.assertEqual(codes(NodeFacts("dead", 1, 1e8, 0), limits), [])
        for name, age, expected in (
            ("batch-a", 4999.0, []),
            ("batch-a", 5001.0, ["node.oldest"]),
            ("batch-slow-1", 5001.0, []),
            ("other", 901.0, ["node.oldest"]),
        ):
            self.assertEqual(codes(NodeFacts(name, 1, age, 1), limits), expected, name)

    def test_commands(self) -> None:
        """A foreign name cannot be more than one word of a command."""
        for code in RULES:
            verdict = HealthVerdict(code, "x; rm -rf $(y) '", "words")
            command = verdict.command.partition("|")[0]
            is_named = "{subject}" in RULES[code].command
            self.assertEqual(verdict.subject in split(command), is_named)

    def test_span(self) -> None:
        """One unit that fits."""
        for seconds, words in ((0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h")):
            self.assertEqual(span(seconds), words)
        self.assertEqual(span(20 * 86400.0), "20 d")

    @given(
        facts=st.builds(
            DestinationFacts,
            st.just("a.example"),
            depth=st.integers(0, 5),
            oldest=st.none() | AGES,
            no_credit=st.none() | AGES,
            dns=st.none() | AGES,
            failures=st.integers(0, 3),
        ),
        older=AGES,
    )
    def test_worse_is_never_better(self, facts: DestinationFacts, older: float) -> None:
        """With time verdicts only come; without messages no age counts; no verdict is unlisted."""
        found = codes(facts)
        self.assertLessEqual(set(found), set(RULES))
        if not facts.depth or facts.oldest is None:
            self.assertLessEqual(set(found), {"peer.unreachable"})
            return
        later = replace(
            facts,
            oldest=facts.oldest + older,
            no_credit=None if facts.no_credit is None else facts.no_credit + older,
            dns=None if facts.dns is None else facts.dns + older,
        )
        self.assertLessEqual(set(found), set(codes(later)))
        for each in fields(HealthLimits):
            if each.name != "oldest_by":
                lenient = replace(LIMITS, **{each.name: getattr(LIMITS, each.name) * 2})
                self.assertLessEqual(set(codes(facts, lenient)), set(found))


class CollectTests(SynchronousTestCase):
    """The worst are shown, all are counted."""

    @given(st.lists(st.tuples(st.sampled_from(sorted(RULES)), AGES), max_size=150))
    def test_worst(self, given_: list[tuple[str, float]]) -> None:
        """Of each code this many, the heaviest first, in the order of the table."""
        verdicts = HealthVerdicts()
        for number, (code, weight) in enumerate(given_):
            verdicts.add(HealthVerdict(code, str(number), "", weight))
        shown = verdicts.shown()
        self.assertEqual(sum(verdicts.counts.values()), len(given_))
        order = list(RULES)
        self.assertEqual(
            [each.code for each in shown],
            sorted((each.code for each in shown), key=order.index),
        )
        for code in RULES:
            weights = sorted((weight for each, weight in given_ if each == code), reverse=True)
            self.assertEqual(
                [each.weight for each in shown if each.code == code], weights[:MOST_SHOWN]
            )

    def test_settings(self) -> None:
        """Each limit is a setting with the default that is documented; each row names its own."""
        self.assertEqual(limits_of(StatusSettings()), HealthLimits())
        self.assertEqual(
            [
                StatusSettings().oldest,
                StatusSettings().no_credit,
                StatusSettings().certificate,
                StatusSettings().dns,
            ],
            [15 * 60, 5 * 60, 21 * 86400, 2 * 60],
        )
        named = {rule.setting for rule in RULES.values() if rule.setting}
        keys = {f"status.{each.alias}" for each in StatusSettings.model_fields.values()}
        self.assertEqual(named | {"status.oldest-by"}, keys)

    def test_page(self) -> None:
        """The documentation is the table."""
        page = Path(amqproute.__file__).parent.parent / "docs" / "status.md"
        self.assertEqual(page.read_text(encoding="utf-8"), health_rules.render())
