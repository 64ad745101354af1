# SPDX-License-Identifier: Apache-2.0
"""Health of a broker: one table of verdicts, and the functions that reach them.

`RULES` is the table: a stable code for each situation, its severity, its meaning, and the command
for details. The functions map facts and limits to verdicts; they have no clock and no side effects,
so all times in the facts are ages in seconds. `amqproute.daemon.health_survey` collects the facts;
`amqproute status` prints the verdicts.

``python -m amqproute.services.health_rules`` prints the table as `docs/status.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from heapq import heappush, heapreplace
from shlex import quote
from typing import Final

from amqproute.broker.publish_gate import DAMAGE
from amqproute.plurals import counted

__all__ = [
    "MOST_SHOWN",
    "RULES",
    "BrokerFacts",
    "ContractFacts",
    "DestinationFacts",
    "HealthLimits",
    "HealthSeverity",
    "HealthVerdict",
    "HealthVerdicts",
    "NodeFacts",
    "RecentFacts",
    "VerdictRule",
    "judge_broker",
    "judge_destination",
    "judge_node",
    "span",
]

MOST_SHOWN: Final = 20
"""Verdicts of one code that are reported one by one, the worst first; the others are counted."""


class HealthSeverity(Enum):
    """The severity of a situation."""

    CRITICAL = "critical"
    """Messages do not move."""

    WARNING = "warning"
    """An operator has to check."""


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """A row of the table.

    Attributes:
        code: stable, for programs.
        severity: the severity of the situation.
        meaning: for the documentation.
        command: shows details; ``{subject}`` stands for the verdict's subject.
        setting: the setting with its limit; empty without one.
    """

    code: str
    severity: HealthSeverity
    meaning: str
    command: str
    setting: str = ""


_TABLE: Final = (
    VerdictRule(
        "mark.closed",
        HealthSeverity.CRITICAL,
        "a mark is closed: publishers get no credit (disk, max-bytes, memory, store, journal), "
        "receivers get less (outgoing), or a sender has its share of destinations",
        "amqproute queue ls",
    ),
    VerdictRule(
        "store.damaged",
        HealthSeverity.CRITICAL,
        "the database is damaged: new messages are refused, readable ones are delivered; the "
        "command shows the damage, and with the daemon stopped `amqproute store salvage` recovers "
        "everything readable",
        "amqproute store check",
    ),
    VerdictRule(
        "daemon.draining",
        HealthSeverity.WARNING,
        "an operator drains the daemon: it takes no new messages until `amqproute drain --end`",
        "amqproute drain --status",
    ),
    VerdictRule(
        "clock.jumped",
        HealthSeverity.CRITICAL,
        "the wall clock has jumped, and its time is not used",
        "amqproute clock show",
    ),
    VerdictRule(
        "certificate.invalid",
        HealthSeverity.CRITICAL,
        "our certificate is expired or not yet valid: listeners with TLS are closed",
        "amqproute check",
    ),
    VerdictRule(
        "certificate.ends",
        HealthSeverity.WARNING,
        "a certificate of our chain expires soon",
        "amqproute check",
        "status.certificate",
    ),
    VerdictRule(
        "peer.unreachable",
        HealthSeverity.WARNING,
        "messages wait for a next hop where the last attempts failed",
        "amqproute peer test {subject}",
    ),
    VerdictRule(
        "peer.held",
        HealthSeverity.WARNING,
        "an operator holds the messages to a next hop",
        "amqproute holds",
    ),
    VerdictRule(
        "dns.waiting",
        HealthSeverity.WARNING,
        "messages wait because the DNS does not answer for their domain",
        "amqproute resolve {subject}",
        "status.dns",
    ),
    VerdictRule(
        "peer.no-credit",
        HealthSeverity.WARNING,
        "messages wait for a connected peer that gives no credit",
        "amqproute peer show {subject}",
        "status.no-credit",
    ),
    VerdictRule(
        "peer.rejects",
        HealthSeverity.WARNING,
        "a peer has rejected messages, or returned them for lack of room, in the last hour",
        "amqproute peer show {subject}",
    ),
    VerdictRule(
        "peer.oldest",
        HealthSeverity.WARNING,
        "the oldest message for a next hop waits too long",
        "amqproute queue messages --to {subject}",
        "status.oldest",
    ),
    VerdictRule(
        "node.oldest",
        HealthSeverity.WARNING,
        "the oldest message on a node or durable subscription waits too long",
        "amqproute queue messages {subject}",
        "status.oldest",
    ),
    VerdictRule(
        "node.no-consumer",
        HealthSeverity.WARNING,
        "messages wait on a node or durable subscription without a consumer",
        "amqproute link ls --node {subject}",
        "status.no-consumer",
    ),
    VerdictRule(
        "node.rejects",
        HealthSeverity.WARNING,
        "consumers of a node have rejected messages in the last hour",
        "amqproute queue show {subject}",
    ),
    VerdictRule(
        "peer.dead-letters",
        HealthSeverity.WARNING,
        "messages for a next hop became dead letters, expired or were given up in the last hour",
        "amqproute peer show {subject}",
    ),
    VerdictRule(
        "node.dead-letters",
        HealthSeverity.WARNING,
        "messages of a node became dead letters in the last hour, or were delivered too often",
        "amqproute queue show {subject}",
    ),
    VerdictRule(
        "contract.bound",
        HealthSeverity.WARNING,
        "a user or peer is limited by its contract, or was refused by it in the last hour",
        "amqproute contract ls",
    ),
)
RULES: Final[Mapping[str, VerdictRule]] = {rule.code: rule for rule in _TABLE}
"""The rows by code, in the order of reports."""


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """One problem.

    Attributes:
        code: the code of its rule.
        subject: a node, next hop, mark or holder.
        words: the problem as text, to be read after the subject.
        weight: the larger, the worse, among verdicts of one code.
    """

    code: str
    subject: str
    words: str
    weight: float = 0.0

    @property
    def rule(self) -> VerdictRule:
        """The verdict's row of the table."""
        return RULES[self.code]

    @property
    def command(self) -> str:
        """The command that shows details."""
        return self.rule.command.replace("{subject}", quote(self.subject))

    def row(self) -> dict[str, object]:
        """Return the verdict for programs."""
        return {
            "code": self.code,
            "severity": self.rule.severity.value,
            "subject": self.subject,
            "description": self.words,
            "next": self.command,
        }


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Limits beyond which there is a problem; all in seconds.

    Attributes:
        oldest: the age of the oldest message.
        oldest_by: the same by name or pattern of nodes and domains; None for any age.
        no_consumer: the age of the oldest message on a node without consumers.
        no_credit: how long messages have waited for credit.
        certificate: remaining validity of a certificate.
        dns: how long messages have waited for the DNS.
    """

    oldest: float = 900.0
    oldest_by: Mapping[str, float | None] = field(default_factory=dict)
    no_consumer: float = 300.0
    no_credit: float = 300.0
    certificate: float = 21 * 86400.0
    dns: float = 120.0

    def oldest_of(self, name: str) -> float | None:
        """Return the limit for one node or next hop; the longest matching pattern decides."""
        if name in self.oldest_by:
            return self.oldest_by[name]
        fitting = [each for each in self.oldest_by if fnmatchcase(name, each)]
        if not fitting:
            return self.oldest
        return self.oldest_by[max(fitting, key=len)]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node or durable subscription.

    Attributes:
        name: its name.
        depth: messages held.
        oldest: the age of the oldest of them; None without one.
        consumers: attached now.
    """

    name: str
    depth: int = 0
    oldest: float | None = None
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class DestinationFacts:
    """A next hop.

    Attributes:
        name: its key.
        domain: that the DNS is asked about.
        depth: messages held for it.
        oldest: the age of the oldest of them; None without one.
        state: the state of `relay.destination.DestinationState`, or ``held``.
        held: why it is held; empty if it is not.
        failures: attempts that failed in a row.
        error: code and words of the last one.
        no_credit: for how long the connected peer has given none; None while it gives some.
        dns: for how long the DNS has not answered; None while it does.
    """

    name: str
    domain: str = ""
    depth: int = 0
    oldest: float | None = None
    state: str = "idle"
    held: str = ""
    failures: int = 0
    error: str = ""
    no_credit: float | None = None
    dns: float | None = None


@dataclass(frozen=True, slots=True)
class ContractFacts:
    """A user or peer with a contract.

    Attributes:
        holder: the holder of the contract.
        limiter: the setting that holds it back now; empty if none does.
    """

    holder: str
    limiter: str


@dataclass(frozen=True, slots=True)
class RecentFacts:
    """Events of the last hour.

    Attributes:
        event: ``rejected``, ``dead-lettered`` or ``refused``.
        place: the node, next hop or holder.
        kind: the kind of the event.
        condition: the condition behind it.
        count: how often.
        is_leaving: whether it happened on the way to another broker, not on a node here.
    """

    event: str
    place: str
    kind: str
    condition: str
    count: int
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Facts beside nodes and next hops.

    Attributes:
        marks: names and reasons of closed marks.
        clock: problem of the clock; empty if none.
        certificate: problem of our certificate; empty if none.
        certificates: names and seconds left of the certificates we show.
        contracts: the contracts that limit somebody now.
        recent: events of the last hour.
        draining: progress of a drain; empty if there is none.
    """

    marks: tuple[tuple[str, str], ...] = ()
    clock: str = ""
    certificate: str = ""
    certificates: tuple[tuple[str, float], ...] = ()
    contracts: tuple[ContractFacts, ...] = ()
    recent: tuple[RecentFacts, ...] = ()
    draining: str = ""


# -- judging ---------------------------------------------------------------------------------------


def judge_node(facts: NodeFacts, limits: HealthLimits) -> Iterator[HealthVerdict]:
    """Judge a node or durable subscription."""
    limit = limits.oldest_of(facts.name)
    if not facts.depth or facts.oldest is None or limit is None:
        return
    waiting = f"{_waiting(facts.depth)}, the oldest for {span(facts.oldest)}"
    if facts.oldest > limit:
        yield HealthVerdict("node.oldest", facts.name, waiting, facts.oldest)
    if not facts.consumers and facts.oldest > limits.no_consumer:
        words = f"nobody receives from it: {waiting}"
        yield HealthVerdict("node.no-consumer", facts.name, words, facts.oldest)


def judge_destination(facts: DestinationFacts, limits: HealthLimits) -> Iterator[HealthVerdict]:
    """Judge a next hop."""
    name, oldest = facts.name, facts.oldest or 0.0
    since = f", the oldest for {span(oldest)}" if facts.oldest is not None else ""
    tried = f" ({counted(facts.failures, 'attempt')})" if facts.failures else ""
    state = f"{facts.state}, {_waiting(facts.depth)}{since}"
    if facts.held:
        yield HealthVerdict("peer.held", name, f"{state}: {facts.held}", oldest)
    elif facts.failures or facts.state == "refused":
        words = f"{state}: {facts.error or facts.state}{tried}"
        yield HealthVerdict("peer.unreachable", name, words, oldest)
    if not facts.depth or facts.oldest is None:
        return
    if facts.dns is not None and min(facts.dns, oldest) > limits.dns:
        words = f"{_waiting(facts.depth)} for the DNS, for {span(min(facts.dns, oldest))}"
        yield HealthVerdict("dns.waiting", facts.domain, f"{words}: {facts.error}", oldest)
    if facts.no_credit is not None and min(facts.no_credit, oldest) > limits.no_credit:
        words = f"{_waiting(facts.depth)} for credit, for {span(min(facts.no_credit, oldest))}"
        yield HealthVerdict("peer.no-credit", name, words, oldest)
    limit = limits.oldest_of(name)
    if limit is not None and oldest > limit:
        words = f"{_waiting(facts.depth)}{since}"
        yield HealthVerdict("peer.oldest", name, words, oldest)


def judge_broker(facts: BrokerFacts, limits: HealthLimits) -> Iterator[HealthVerdict]:
    """Judge the facts beside nodes and next hops."""
    for name, reason in facts.marks:
        yield HealthVerdict("store.damaged" if name == DAMAGE else "mark.closed", name, reason)
    if facts.draining:
        yield HealthVerdict("daemon.draining", "daemon", facts.draining)
    if facts.clock:
        yield HealthVerdict("clock.jumped", "clock", facts.clock)
    if facts.certificate:
        yield HealthVerdict("certificate.invalid", "certificate", facts.certificate)
    else:
        for name, left in facts.certificates:
            if left < limits.certificate:
                words = f"ends in {span(left)}" if left > 0 else "has ended"
                yield HealthVerdict("certificate.ends", name, words, -left)
    for each in facts.contracts:
        words = f"held back by {each.limiter} of its contract"
        yield HealthVerdict("contract.bound", each.holder, words)
    yield from _judge_recent(facts.recent)


def _judge_recent(recent: tuple[RecentFacts, ...]) -> Iterator[HealthVerdict]:
    """Sum up the last hour by place."""
    places: dict[tuple[str, str], list[RecentFacts]] = {}
    for each in recent:
        places.setdefault((_code_of(each), each.place), []).append(each)
    for (code, place), those in places.items():
        count = sum(each.count for each in those)
        what = _VERBS[code].format(messages=counted(count, _NOUNS.get(code, "message")))
        causes = ", ".join(
            f"{each.kind}{f' ({each.condition})' if each.condition else ''}: {each.count}"
            for each in sorted(those, key=lambda each: -each.count)
            if each.kind
        )
        words = f"{what} in the last hour{f', {causes}' if causes else ''}"
        yield HealthVerdict(code, place, words, float(count))


def _code_of(recent: RecentFacts) -> str:
    if recent.event == "refused":
        return "contract.bound"
    side = "peer" if recent.is_leaving else "node"
    return f"{side}.{'rejects' if recent.event == 'rejected' else 'dead-letters'}"


_VERBS: Final = {
    "node.rejects": "consumers rejected {messages}",
    "peer.rejects": "rejected {messages}",
    "node.dead-letters": "{messages} dead-lettered",
    "peer.dead-letters": "{messages} dead-lettered or given up",
    "contract.bound": "refused by its contract: {messages}",
}
_NOUNS: Final = {"contract.bound": "request"}


class HealthVerdicts:
    """Collects verdicts: the worst of each code, and their number.

    Attributes:
        counts: number by code.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._worst: dict[str, list[tuple[float, int, HealthVerdict]]] = {}
        self._number = 0

    def add(self, verdict: HealthVerdict) -> None:
        """Add a verdict."""
        code = verdict.code
        self.counts[code] = self.counts.get(code, 0) + 1
        worst = self._worst.setdefault(code, [])
        self._number -= 1  # of equals the first stay
        item = (verdict.weight, self._number, verdict)
        if len(worst) < MOST_SHOWN:
            heappush(worst, item)
        elif item > worst[0]:
            heapreplace(worst, item)

    def shown(self) -> list[HealthVerdict]:
        """Return the worst of each code, in the order of the table."""
        found = []
        for code in RULES:
            found += [each for _, _, each in sorted(self._worst.get(code, ()), reverse=True)]
        return found


# -- words -----------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """Format a time span in one suitable unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _waiting(count: int) -> str:
    return f"{counted(count, 'message')} {'waits' if count == 1 else 'wait'}"


def render() -> str:
    """Return the table as a page of documentation."""
    lines = [
        "# Verdicts of `amqproute status`",
        "",
        "Generated from `amqproute/services/health_rules.py` by "
        "`python -m amqproute.services.health_rules`.",
        "",
        "| code | severity | what it says | limit | tells more |",
        "|---|---|---|---|---|",
    ]
    for rule in RULES.values():
        setting = f"`{rule.setting}`" if rule.setting else ""
        command = rule.command.replace("{subject}", "SUBJECT").replace("|", "\\|")
        lines.append(
            f"| `{rule.code}` | {rule.severity.value} | {rule.meaning} | {setting} | `{command}` |"
        )
    lines += [
        "",
        "`amqproute status --json` has each with `code`, `severity`, `subject`, `description` and",
        f"`next`, the command; the {MOST_SHOWN} worst of each code, and the number of all under",
        "`counts`. The exit code is 1 if there is any. The limits are settings under `status`; a",
        "reload puts them in force. `status.oldest-by` gives nodes and domains their own limits,",
        "which a node for dead letters needs.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
