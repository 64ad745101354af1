# SPDX-License-Identifier: Apache-2.0
"""Checks of the daemon's health by name, for load balancers, monitoring and `amqproute doctor`.

`CHECKS` is the table: what each check asks, and the cure of what it finds. `judge` maps facts to
results; it has no clock and no side effects. `amqproute.daemon.health_probes` collects the facts.
Verdicts about single nodes and next hops are those of `health_rules`.

The operation HEALTH of ``$management`` runs one check, or all of them if no name is given.

``python -m amqproute.services.health_checks`` prints the table as `docs/health.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from amqproute.broker.publish_gate import DAMAGE, DISK, JOURNAL, MAX_BYTES, STORE
from amqproute.plurals import counted
from amqproute.services.health_rules import RULES, BrokerFacts, HealthSeverity, span

__all__ = [
    "CHECKS",
    "CheckFacts",
    "CheckResult",
    "CheckRule",
    "CheckState",
    "DnsFacts",
    "JournalCheckFacts",
    "StoreFacts",
    "judge",
    "render",
    "worst",
]

MOST_SUBJECTS: Final = 20
"""Subjects that one result names."""
LAG_SECONDS: Final = 30.0
"""Age of an event that the journal has not written yet, from which on it is behind."""


class CheckState(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    """An operator has to look."""

    FAILED = "failed"
    """Messages do not move, or will soon not move any more."""

    UNKNOWN = "unknown"
    """It could not be found out."""


_ORDER: Final = (CheckState.OK, CheckState.UNKNOWN, CheckState.WARNING, CheckState.FAILED)


def worst(states: Iterator[CheckState]) -> CheckState:
    """Return the worst of some states; ok if there are none."""
    return max(states, key=_ORDER.index, default=CheckState.OK)


@dataclass(frozen=True, slots=True)
class CheckRule:
    """A row of the table.

    Attributes:
        name: the name of the check.
        asks: the question, without a question mark.
        cure: what to do if it is not ok.
        code: the related row of `health_rules.RULES`; empty for none.
    """

    name: str
    asks: str
    cure: str
    code: str = ""


_TABLE: Final = (
    CheckRule(
        "store",
        "can the store write, and are all messages in it readable",
        "look at the disk and the log; amqproute store check shows damage, and with the daemon "
        "stopped amqproute store salvage recovers everything readable",
        "store.damaged",
    ),
    CheckRule(
        "journal",
        "is the journal written in time",
        "look at the disk below the journal folder of the state directory; amqproute journal "
        "verify shows gaps",
    ),
    CheckRule(
        "disk",
        "is there enough space below the state directory",
        "free some space, have messages consumed or purged, or enlarge the file system; amqproute "
        "queue ls shows what is held",
        "mark.closed",
    ),
    CheckRule(
        "listeners",
        "are all configured endpoints open",
        "see the log; with an invalid certificate endpoints with TLS stay closed until it is "
        "renewed: amqproute check",
    ),
    CheckRule(
        "certificates",
        "are our certificates valid for long enough",
        "renew the files under tls.certificate; the daemon reads them without a restart: "
        "amqproute check",
        "certificate.ends",
    ),
    CheckRule(
        "clock",
        "does the wall clock run without jumps",
        "correct the clock (timedatectl, chronyc tracking), or accept it: amqproute clock accept",
        "clock.jumped",
    ),
    CheckRule(
        "realms",
        "can the directory and the issuers of tokens be asked",
        "check users.ldap, users.issuers and users.realms, and whether their servers run; "
        "amqproute check shows a missing extra or password. Users of the users file can log in "
        "meanwhile",
    ),
    CheckRule(
        "dns",
        "do the name servers answer",
        "check resolver.nameservers and the network; amqproute resolve DOMAIN shows each question",
        "dns.waiting",
    ),
    CheckRule(
        "dnssec",
        "do answers come with DNSSEC",
        "use a validating resolver on this machine, or resolver.validate: self",
    ),
    CheckRule(
        "destinations",
        "can all peers with messages be reached",
        "amqproute peer test DOMAIN tests the way step by step and names the cure",
        "peer.unreachable",
    ),
    CheckRule(
        "oldest-message",
        "does no message wait longer than status.oldest",
        "amqproute status names the nodes and peers, and the command that shows why",
        "node.oldest",
    ),
    CheckRule(
        "consumers",
        "does somebody receive from each node with messages",
        "start the consumer of the node; amqproute link ls --node NODE shows who receives",
        "node.no-consumer",
    ),
    CheckRule(
        "alarms",
        "do publishers have credit, and is nothing critical",
        "amqproute status shows the marks and what to do about each",
        "mark.closed",
    ),
)
CHECKS: Final[Mapping[str, CheckRule]] = {rule.name: rule for rule in _TABLE}
"""The checks by name, in the order of reports."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The store.

    Attributes:
        failure: why it cannot write any more; empty while it can.
        quarantined: damaged messages.
        free: octets free on the file system; None if not known yet.
        floor: octets below which publishers wait.
    """

    failure: str = ""
    quarantined: int = 0
    free: int | None = None
    floor: int = 0


@dataclass(frozen=True, slots=True)
class JournalCheckFacts:
    """The journal.

    Attributes:
        fault: why it cannot be written; empty if it can.
        lag_seconds: age of the oldest event that is not written.
        lost: records lost since the start.
    """

    fault: str = ""
    lag_seconds: float = 0.0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class DnsFacts:
    """The name servers.

    Attributes:
        trouble: why there was no answer; empty if there was one.
        is_capable: whether answers come with DNSSEC; None if that could not be found out.
        words: the evidence.
        is_required: a setting requires DNSSEC.
    """

    trouble: str = ""
    is_capable: bool | None = None
    words: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """Everything that checks judge by.

    Attributes:
        broker: facts beside nodes and next hops.
        verdicts: rows of the survey (`health_rules.HealthVerdict.row`).
        counts: number of verdicts by code.
        store: see `StoreFacts`.
        journal: see `JournalCheckFacts`; None without a journal.
        listeners: the configured endpoints, and whether each is open.
        dns: see `DnsFacts`.
        realms: the outside realms, and why each cannot be asked; empty if it can.
        within: seconds for which certificates have to be valid.
    """

    broker: BrokerFacts = field(default_factory=BrokerFacts)
    verdicts: tuple[Mapping[str, object], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    store: StoreFacts = field(default_factory=StoreFacts)
    journal: JournalCheckFacts | None = None
    listeners: Mapping[str, bool] = field(default_factory=dict)
    dns: DnsFacts = field(default_factory=DnsFacts)
    realms: Mapping[str, str] = field(default_factory=dict)
    within: float = 21 * 86400.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        name: the name of the check.
        state: the outcome.
        words: the finding.
        subjects: what it was found at, at most `MOST_SUBJECTS`.
        next: the command that shows more about the first of them; empty if there is none.
    """

    name: str
    state: CheckState
    words: str
    subjects: tuple[str, ...] = ()
    next: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether a load balancer may go on: nothing has failed."""
        return self.state in (CheckState.OK, CheckState.WARNING)

    def row(self) -> dict[str, object]:
        """Return the result for programs."""
        is_good = self.state is CheckState.OK
        return {
            "name": self.name,
            "state": self.state.value,
            "description": self.words,
            "subjects": list(self.subjects),
            "cure": "" if is_good else CHECKS[self.name].cure,
            "next": "" if is_good else self.next,
        }


_Finding = tuple[CheckState, str] | tuple[CheckState, str, tuple[str, ...], str]
_OK, _WARNING, _FAILED = CheckState.OK, CheckState.WARNING, CheckState.FAILED


def judge(name: str, facts: CheckFacts) -> CheckResult:
    """Return the result of a check.

    Raises:
        KeyError: there is no such check.
    """
    return CheckResult(name, *_JUDGES[name](facts))


def _marks(facts: CheckFacts, *names: str) -> list[str]:
    return [reason or name for name, reason in facts.broker.marks if name in names]


def _store(facts: CheckFacts) -> _Finding:
    store = facts.store
    if store.failure:
        return _FAILED, store.failure
    if reasons := _marks(facts, STORE, DAMAGE):
        return _FAILED, "; ".join(reasons)
    if store.quarantined:
        return _WARNING, f"{counted(store.quarantined, 'damaged message')} in quarantine"
    return _OK, "it writes"


def _journal(facts: CheckFacts) -> _Finding:
    journal = facts.journal
    if journal is None:
        return _OK, "there is none: journal.enabled is off"
    if journal.fault:
        return _FAILED, journal.fault
    if reasons := _marks(facts, JOURNAL):
        return _FAILED, "; ".join(reasons)
    if journal.lag_seconds > LAG_SECONDS:
        return _WARNING, f"it is {span(journal.lag_seconds)} behind"
    if journal.lost:
        return _WARNING, f"{counted(journal.lost, 'record')} lost since the start"
    return _OK, "it is written"


def _disk(facts: CheckFacts) -> _Finding:
    if reasons := _marks(facts, DISK, MAX_BYTES):
        return _FAILED, "; ".join(reasons)
    free, floor = facts.store.free, facts.store.floor
    if free is None:
        return CheckState.UNKNOWN, "it has not been measured yet"
    words = f"{free >> 20} MiB free, publishers stop at {floor >> 20} MiB"
    return (_WARNING if free < 2 * floor else _OK), words


def _listeners(facts: CheckFacts) -> _Finding:
    closed = [name for name, is_open in facts.listeners.items() if not is_open]
    if closed:
        return _FAILED, f"closed: {', '.join(closed)}", tuple(closed[:MOST_SUBJECTS]), ""
    return _OK, f"{counted(len(facts.listeners), 'endpoint')} open"


def _certificates(facts: CheckFacts) -> _Finding:
    broker = facts.broker
    if broker.certificate:
        return _FAILED, broker.certificate
    if not broker.certificates:
        return _OK, "there is none"
    name, left = min(broker.certificates, key=lambda each: each[1])
    if left <= 0:
        return _FAILED, f"{name} has expired", (name,), ""
    words = f"{name} is valid for {span(left)}"
    return (_FAILED, words, (name,), "") if left < facts.within else (_OK, words)


def _clock(facts: CheckFacts) -> _Finding:
    return (_FAILED, facts.broker.clock) if facts.broker.clock else (_OK, "it runs evenly")


def _realms(facts: CheckFacts) -> _Finding:
    failing = {name: words for name, words in facts.realms.items() if words}
    if failing:
        words = "; ".join(f"{name}: {reason}" for name, reason in failing.items())
        return _FAILED, words, tuple(failing)[:MOST_SUBJECTS], ""
    if not facts.realms:
        return _OK, "there are none beside the users file"
    return _OK, f"{counted(len(facts.realms), 'realm')} can be asked"


def _dns(facts: CheckFacts) -> _Finding:
    if facts.dns.trouble:
        return _FAILED, facts.dns.trouble
    return _by_verdicts(facts, "name servers answer", "dns.waiting")


def _dnssec(facts: CheckFacts) -> _Finding:
    dns = facts.dns
    if dns.is_capable is None:
        return CheckState.UNKNOWN, dns.words
    if dns.is_capable:
        return _OK, dns.words or "answers come with DNSSEC"
    words = dns.words or "answers come without DNSSEC"
    return (_FAILED if dns.is_required else _WARNING), words


def _destinations(facts: CheckFacts) -> _Finding:
    return _by_verdicts(facts, "all that have messages can be reached", "peer.unreachable")


def _oldest(facts: CheckFacts) -> _Finding:
    return _by_verdicts(facts, "none waits too long", "peer.oldest", "node.oldest")


def _consumers(facts: CheckFacts) -> _Finding:
    return _by_verdicts(facts, "messages have receivers", "node.no-consumer")


def _by_verdicts(facts: CheckFacts, words: str, *codes: str) -> _Finding:
    found = [row for row in facts.verdicts if row["code"] in codes]
    if not found:
        return _OK, words
    count = sum(facts.counts.get(code, 0) for code in codes)
    first = found[0]
    more = f", and {count - 1} more" if count > 1 else ""
    subjects = tuple(str(row["subject"]) for row in found[:MOST_SUBJECTS])
    finding = f"{first['subject']}: {first['description']}{more}"
    return _FAILED, finding, subjects, str(first["next"])


def _alarms(facts: CheckFacts) -> _Finding:
    if facts.broker.marks:
        reasons = [f"{name}: {reason}" for name, reason in facts.broker.marks]
        return _FAILED, "; ".join(reasons), tuple(name for name, _ in facts.broker.marks), ""
    critical = [row for row in facts.verdicts if row["severity"] == HealthSeverity.CRITICAL.value]
    if critical:
        words = "; ".join(f"{row['subject']}: {row['description']}" for row in critical)
        return _FAILED, words, (), str(critical[0]["next"])
    if facts.broker.draining:
        return _WARNING, facts.broker.draining
    return _OK, "none"


_JUDGES: Final[Mapping[str, Callable[[CheckFacts], _Finding]]] = {
    "store": _store,
    "journal": _journal,
    "disk": _disk,
    "listeners": _listeners,
    "certificates": _certificates,
    "clock": _clock,
    "realms": _realms,
    "dns": _dns,
    "dnssec": _dnssec,
    "destinations": _destinations,
    "oldest-message": _oldest,
    "consumers": _consumers,
    "alarms": _alarms,
}


_HEAD: Final = """\
# Health

Three questions, and who asks them. This page is printed by
`python -m amqproute.services.health_checks`; do not edit it.

| question | asked by | answer |
|---|---|---|
| Does the process work? | a service manager, Kubernetes | `/livez`: 200, or 503: restart it |
| May traffic come here? | a load balancer | `/readyz`: 200, or 503: send it elsewhere |
| Is everything in order? | monitoring, operators | `amqproute health`, `/api/v1/health` |

`/livez` and `/readyz` at the endpoint `management.http` take no log-in and show no details. With
`?verbose` the answer names the reasons, to those who may read metrics (docs/metrics.md) and to
users with the right `manage` on `$management`.

The daemon is alive while its event loop answers and the writer of its store lives. It is ready when
the store is recovered, all configured endpoints are open, publishers have credit and nobody drains
or stops it.

## Checks

`amqproute health` runs all checks, `amqproute health CHECK` one of them; over HTTP these are
`/api/v1/health` and `/api/v1/health/CHECK`. Both answer with `state`, the worst of all, and
`checks`; the status is 200, or 503 if a check has failed or could not be made. `amqproute doctor`
runs them together with `amqproute check` and `amqproute peer test`, and names the cure of each
finding.

The exit code is that of all commands: 0 if nothing has failed, 1 if something has, 2 for wrong
usage, 3 if the daemon cannot be reached. With `--nagios` alone it is that of a plug-in for Nagios,
Icinga and their like: 0 ok, 1 warning, 2 critical, 3 unknown, and the output is one line.

| check | asks | cure |
|---|---|---|
"""

_TAIL: Final = """
`certificates` fails if a certificate of our chain expires within `--within` (over HTTP
`?within-seconds=`), by default `status.certificate`. `oldest-message`, `consumers` and
`destinations` use the settings under `status`, as `amqproute status` does (docs/status.md). `disk`
warns at twice the floor. `dnssec` fails if a setting requires DNSSEC, and warns otherwise.
"""


def render() -> str:
    """Return ``docs/health.md``."""
    assert all(not rule.code or rule.code in RULES for rule in _TABLE)
    rows = [f"| `{rule.name}` | {rule.asks}? | {rule.cure} |\n" for rule in _TABLE]
    return "".join((_HEAD, *rows, _TAIL))


if __name__ == "__main__":
    print(render(), end="")
