# SPDX-License-Identifier: Apache-2.0
"""``doctor``: all checks together, each finding with its cure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
from twisted.internet.defer import Deferred, gatherResults

from amqproute.address import parse
from amqproute.cli import render, runner
from amqproute.cli.command_error import DONE, NEGATIVE, CommandError
from amqproute.cli.commands.check import Examination, examine
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.consult import consult
from amqproute.cli.commands.health import health_of
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.config import Config
from amqproute.config.loader import find
from amqproute.daemon.peer_cures import cure_of
from amqproute.daemon.peer_test import FAILED, PeerTest
from amqproute.errors import AmqprouteError, InvalidField
from amqproute.net.reactor import IReactor
from amqproute.plurals import counted

__all__ = ["Finding", "doctor"]

MOST_PEERS: Final = 50
"""Peers that are tested in one run."""
AT_ONCE: Final = 5
ATTEMPT_SECONDS: Final = 60.0
"""The time for the test of one peer."""
_ORDER: Final = ("failed", "unknown", "warning")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        source: ``configuration``, ``daemon``, ``health`` or ``peer``.
        subject: what it is about.
        state: ``failed``, ``warning`` or ``unknown``.
        description: the finding.
        cure: what to do about it.
        next: a command that shows more; empty for none.
    """

    source: str
    subject: str
    state: str
    description: str
    cure: str
    next: str = ""


@click.command("doctor", cls=ProgramCommand)
@click.option("--peer", "peers", metavar="DOMAIN", multiple=True, help="Test this peer as well.")
@click.option("--no-peers", is_flag=True, help="Test no peers: make no connections to others.")
@access_options
@json_option
def doctor(
    peers: tuple[str, ...],
    no_peers: bool,
    access: AccessOptions,
    as_json: bool,
) -> int:
    """Check everything, and say for each finding what to do.

    That is: the configuration and its files, as `check` does; the health checks of the running
    daemon; and the way to each peer under `peers` and to each that cannot be reached, as `peer
    test` does, up to 50 of them. Peers see short connections. The exit code is 1 if something has
    failed; warnings do not change it.
    """
    examination = examine(find(access.config))
    findings = list(_of_configuration(examination))
    tested: list[str] = []

    async def work(reactor: IReactor) -> None:
        unreached: list[str] = []
        try:
            found = await health_of(reactor, access)
        except AmqprouteError as error:
            findings.append(_of_daemon(error))
        else:
            findings.extend(_of_health(found))
            unreached = [
                domain
                for row in found["checks"]
                if row["name"] == "destinations"
                for domain in row["subjects"]
            ]
        settings = examination.config
        if settings is not None and not no_peers:
            named = [name for name in settings.peers if "*" not in name]
            tested.extend(list(dict.fromkeys((*peers, *unreached, *named)))[:MOST_PEERS])
            findings.extend(await _of_peers(reactor, settings, access.config, tested))

    runner.run(work)
    findings.sort(key=lambda each: _ORDER.index(each.state))
    is_bad = any(each.state == "failed" for each in findings)
    if as_json:
        render.json_text(
            {
                "well": not findings,
                "findings": [asdict(each) for each in findings],
                "peers-tested": tested,
            }
        )
        return NEGATIVE if is_bad else DONE
    _show(findings, len(tested))
    return NEGATIVE if is_bad else DONE


def _show(findings: Sequence[Finding], tested: int) -> None:
    for each in findings:
        line = f"{each.state}: {each.source} {each.subject}: {each.description}"
        click.echo(render.printable(line))
        click.echo(render.printable(f"  cure: {each.cure}"))
        if each.next:
            click.echo(render.printable(f"  next: {each.next}"))
    peers = f", {counted(tested, 'peer')} tested" if tested else ""
    words = counted(len(findings), "finding") if findings else "all is well"
    click.echo(f"{words}{peers}")


def _of_configuration(examination: Examination) -> Iterator[Finding]:
    path = str(examination.path)
    for words in examination.problems:
        yield Finding(
            "configuration",
            path,
            "failed",
            words,
            examination.step,
            "amqproute check",
        )
    for words in examination.warnings:
        cure = "correct it if that is not what you want; it does not prevent a start"
        yield Finding("configuration", path, "warning", words, cure, "amqproute check")


def _of_daemon(error: AmqprouteError) -> Finding:
    if isinstance(error, CommandError):
        return Finding("daemon", "local", "failed", str(error), error.next_step or "see its log")
    cure = "start it (systemctl start amqproute), or see why it ended: journalctl -u amqproute"
    return Finding("daemon", "local", "failed", str(error), cure)


def _of_health(found: Facts) -> Iterator[Finding]:
    for row in found["checks"]:
        if row["state"] != "ok":
            yield Finding(
                "health",
                str(row["name"]),
                str(row["state"]),
                str(row["description"]),
                str(row["cure"]),
                str(row["next"]),
            )


async def _of_peers(
    reactor: IReactor, settings: Config, config: Path | None, domains: Iterable[str]
) -> list[Finding]:
    """Test the ways to peers, some at a time."""
    left = list(domains)
    findings: list[Finding] = []

    async def test(domain: str) -> None:
        try:
            address = parse(f"@{domain}")
        except InvalidField as error:
            findings.append(Finding("peer", domain, "failed", error.description, "name a domain"))
            return
        consulted = await consult(reactor, config, str(address))
        walk = PeerTest(settings, reactor, address, uuid.uuid4().hex[:12], 0, consulted.routes)
        running = Deferred.fromCoroutine(walk.run())
        running.addTimeout(ATTEMPT_SECONDS, reactor, onTimeoutCancel=lambda *_: None)
        await running
        if not walk.is_good:
            findings.append(_of_walk(domain, walk))

    while left:
        some = [left.pop(0) for _ in range(min(AT_ONCE, len(left)))]
        await gatherResults([Deferred.fromCoroutine(test(domain)) for domain in some])
    return findings


def _of_walk(domain: str, walk: PeerTest) -> Finding:
    command = f"amqproute peer test {domain}"
    failed = [step for step in walk.steps if step.state == FAILED]
    if not failed:
        words = f"no answer within {ATTEMPT_SECONDS:g} s"
        return Finding("peer", domain, "failed", words, "run the test by itself", command)
    step = failed[-1]
    place = f" {step.place}" if step.place else ""
    cure = cure_of(step, walk) or "see the log of both brokers"
    words = f"{step.step}{place}: {step.code}: {step.words}"
    return Finding("peer", domain, "failed", words, cure, command)
