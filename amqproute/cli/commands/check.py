# SPDX-License-Identifier: Apache-2.0
"""``check``: check whether the daemon would run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from amqproute.cli import render, runner
from amqproute.cli.command_error import USAGE
from amqproute.cli.commands.common_options import config_option, json_option
from amqproute.cli.program_commands import ProgramCommand
from amqproute.cli.reachability import KnownPartners, known_partners, look_partners_up
from amqproute.config import Config, advise, load
from amqproute.config.loader import find, unresolved_credentials
from amqproute.daemon.descriptors import connections_that_fit, hard_limit
from amqproute.daemon.disk_watch import disk_terms
from amqproute.daemon.preflight import examine_files, examine_machine, problem_at
from amqproute.errors import ConfigError
from amqproute.net.tls import TlsContexts, describe
from amqproute.services.watermarks import octets
from amqproute.store.store_files import STORE_FILE
from amqproute.store.store_sizes import sizes_for

__all__ = ["Examination", "check", "examine"]

STARTS_NOT: Final = ("nothing would start", "correct that")
STARTS_CLOSED: Final = (
    "it would start without TLS, and dial nobody",
    "set the clock, or renew the files",
)
STARTS_EXPOSED: Final = ("it would start with a key that others can read", "correct that")
"""Consequences of the problems for a daemon, and their remedies."""


@click.command(cls=ProgramCommand)
@config_option
@click.option(
    "--dns",
    "by_dns",
    is_flag=True,
    help="Look the partners up, those named under `peers` and `routes` and those with relay "
    "queues, and list those cut off by the rules on addresses from the DNS.",
)
@json_option
def check(config: Path | None, by_dns: bool, as_json: bool) -> int:
    """Check the configuration and the files it names, without starting anything.

    Every problem is printed as FILE:LINE: KEY: PROBLEM, and the exit code is 2. If there is none, a
    summary shows what would run. Warnings, including certificates with less than 21 days left, do
    not change the exit code. The network is used with --dns only.

    While no daemon of this state directory runs, it is also looked whether one could start: ports
    that are taken, directories of sockets and of the state, a store that is damaged or of a newer
    release, a private key that every user can read. Nothing is opened for writing.
    """
    path = find(config)
    found = examine(path)
    problems, warnings, loaded = found.problems, found.warnings, found.config
    summary: list[tuple[str, str]] = []
    if loaded is not None and not problems:
        summary = _summary(loaded)
        partners = known_partners(loaded)
        summary.append(("partners", _partners_words(partners, by_dns)))
        if partners.trouble:
            warnings.append(f"{path}: relay queues are not looked at: {partners.trouble}")
        if by_dns:
            domains = (*partners.named, *partners.met)
            warnings += runner.run(lambda reactor: look_partners_up(loaded, reactor, domains))
    return _report(found, problems, warnings, summary, as_json)


@dataclass(frozen=True, slots=True)
class Examination:
    """Findings of `check` without the network.

    Attributes:
        path: the path of the configuration file.
        config: it; None if it cannot be read.
        problems: a daemon would not start, or not work as configured.
        warnings: advice.
        verdict: the consequence of the problems.
        step: their remedy.
        files: the file, and those that it includes; empty if they cannot be read.
    """

    path: Path
    config: Config | None
    problems: list[str]
    warnings: list[str]
    verdict: str
    step: str
    files: tuple[Path, ...] = ()


def examine(path: Path) -> Examination:
    """Check a configuration file, the files that it names, and this machine."""
    try:
        loaded = load(path)
    except ConfigError as error:
        return Examination(path, None, list(error.problems), [], *STARTS_NOT)
    files = examine_files(loaded)
    machine = examine_machine(loaded)
    warnings = [*files.unresolved, *files.warnings, *machine.warnings]
    warnings += [str(problem) for problem in advise(loaded)]
    warnings += _examine_descriptors(loaded)
    warnings += _examine_disk(loaded)
    problems = [*files.problems, *files.dates, *machine.problems, *machine.exposures]
    verdict, step = STARTS_NOT
    if not files.problems and not machine.problems:
        verdict, step = STARTS_CLOSED if files.dates else STARTS_EXPOSED
    files_read = loaded.source.files
    return Examination(path, loaded, problems, warnings, verdict, step, files_read)


def _partners_words(partners: KnownPartners, by_dns: bool) -> str:
    words = f"{len(partners.named)} by name"
    if partners.met:
        words += (
            f", {len(partners.met)} more with relay queues, which are not dialled at private "
            "addresses"
        )
    if by_dns:
        return f"{words}; all were looked up, and a warning names each that is cut off"
    return f"{words}; amqproute check --dns names those that are cut off" if partners.met else words


def _examine_descriptors(config: Config) -> list[str]:
    """Compare the configured connections with the available file descriptors."""
    most = hard_limit()
    connections = config.limits.max_connections
    if most is None or connections_that_fit(most) >= connections:
        return []
    words = (
        f"{connections} connections need more file descriptors than the {most} that a process may "
        f"have here; {connections_that_fit(most)} would be taken (raise LimitNOFILE= or ulimit -n)"
    )
    return [problem_at(config, ("limits", "max-connections"), words)]


def _examine_disk(config: Config) -> list[str]:
    """Compare the file system of the state directory with the needs of the store."""
    place = config.state_directory
    while not place.exists():
        place = place.parent
    room = os.statvfs(place)
    total, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    there = [config.state_directory / f"{STORE_FILE}{each}" for each in ("-wal", ".ballast")]
    own = sum(each.stat().st_size for each in there if each.exists())
    needed = sizes_for(total).at_start + disk_terms(config).floor(total)
    if free + own >= needed:
        return []
    words = (
        f"{place} has {octets(free)} free of {octets(total)}; the store needs {octets(needed)} for "
        "its log, what it sets aside for a full disk, and store.min-free: publishers will have no "
        "credit from the start. Free some, take a larger file system, or lower store.min-free"
    )
    return [problem_at(config, ("state-directory",), words)]


def _summary(config: Config) -> list[tuple[str, str]]:
    listens = [
        f"{listen.endpoint} (tls {listen.tls}, {', '.join(listen.mechanisms)})"
        for listen in config.listen
    ]
    summary = [
        *(("includes", str(each)) for each in config.source.files[1:]),
        ("container-id", config.container_id or "(kept in the state directory)"),
        ("domains", ", ".join(config.domains) or "-"),
        ("state directory", str(config.state_directory)),
        *(("listens at", text) for text in listens),
        ("AMQP 0-9-1", _places_for_amqp09(config)),
        ("nodes", ", ".join(node.name for node in config.nodes) or "-"),
        ("routes", ", ".join(f"{r.domain} via {r.via or 'DNS'}" for r in config.routes) or "-"),
    ]
    if config.tls.certificate is not None and not unresolved_credentials(config):
        certificate = TlsContexts(config.tls.certificate, config.tls.private_key, config.tls.trust)
        facts = describe(certificate.loaded.chain[0])
        summary.append(("certificate", f"{facts.names}, until {facts.not_after:%Y-%m-%d}"))
    return summary


def _places_for_amqp09(config: Config) -> str:
    """Return where clients of 0-9-1 can log in, which have PLAIN and no TLS that is asked for."""
    found = [
        listen.endpoint
        for listen in config.listen
        if not listen.endpoint.startswith("unix:")
        and (
            "ANONYMOUS" in listen.mechanisms
            or (
                "PLAIN" in listen.mechanisms
                and (listen.tls == "implicit" or listen.plain_without_tls)
            )
        )
    ]
    if found:
        return f"clients log in at {', '.join(found)}"
    return (
        "clients can log in nowhere: they need PLAIN among the mechanisms of a TCP endpoint, with "
        "tls: implicit, or with plain-without-tls on a network that nobody else is on"
    )


def _report(
    found: Examination,
    problems: list[str],
    warnings: list[str],
    summary: list[tuple[str, str]],
    as_json: bool,
) -> int:
    path = found.path
    code = USAGE if problems else 0
    if as_json:
        render.json_text(
            {
                "file": str(path),
                "files": [str(each) for each in found.files],
                "ok": not problems,
                "problems": problems,
                "warnings": warnings,
                "summary": [{"what": what, "value": value} for what, value in summary],
            }
        )
        return code
    for problem in problems:
        click.echo(render.printable(problem), err=True)
    for warning in warnings:
        render.warn(warning)
    if problems:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        click.echo(f"config: {count}; {found.verdict}", err=True)
        click.echo(f"  next: {found.step}, then check again", err=True)
        return code
    for what, value in summary:
        click.echo(f"{what + ':':17}{render.printable(value)}")
    click.echo(f"{path}: ok")
    return code
