# SPDX-License-Identifier: Apache-2.0
"""``peer test``: a connection to a peer, step by step.

It uses the daemon's own decisions, and so imports much of the daemon, unlike the other commands of
`peer`.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import click

from amqproute.address import parse
from amqproute.cli import render, runner
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.consult import consult
from amqproute.config.loader import find, load
from amqproute.daemon.peer_cures import cure_of
from amqproute.daemon.peer_test import OK, PeerTest, PeerTestStep
from amqproute.daemon.peer_tester import result_of
from amqproute.errors import InvalidField
from amqproute.net.reactor import IReactor

__all__ = ["go"]


def go(domain: str, size: int, config: Path | None, as_json: bool) -> int:
    """Test the path to a domain or an address; report each step and return the exit code.

    Args:
        domain: a domain or an address.
        size: octets of the rehearsed message.
        config: the configuration file; None for the default one.
        as_json: print JSON.

    Raises:
        CommandError: it names no domain.
    """
    settings = load(find(config))
    try:
        address = parse(domain if "@" in domain else f"@{domain}")
    except InvalidField as error:
        raise CommandError(
            USAGE, "usage.domain", error.description, "as in: amqproute peer test beta.example"
        ) from None
    if address.domain is None:
        raise CommandError(
            USAGE, "usage.domain", f"{domain!r} names no domain", "as in: beta.example"
        )
    probe = uuid.uuid4().hex[:12]
    if not as_json:
        click.echo(f"probe {probe} to {domain}")

    async def work(reactor: IReactor) -> PeerTest:
        consulted = await consult(reactor, config, str(address))
        if not as_json:
            click.echo(render.printable(consulted.words))
        walk = PeerTest(settings, reactor, address, probe, size, consulted.routes)
        if not as_json:
            walk.on_step = lambda step: _print_step(step, cure_of(step, walk))
        await walk.run()
        return walk

    walk = runner.run(work)
    if as_json:
        render.json_text(result_of(walk, domain))
        return DONE if walk.is_good else NEGATIVE
    if walk.is_good:
        click.echo("ok: messages can go there")
        return DONE
    click.echo(f"not ok; {_at_the_partner(walk)}", err=True)
    return NEGATIVE


def _at_the_partner(walk: PeerTest) -> str:
    """Return advice on the partner's view of a test."""
    good = {step.step for step in walk.steps if step.state == OK and step.place}
    if "open" in good:
        return f"at the partner: amqproute peer probes --id {walk.probe}"
    if "tcp" in good:
        return (
            "at the partner: amqproute peer probes; it has not heard the id yet, look for the time"
        )
    return "the partner has seen nothing of it"


def _print_step(step: PeerTestStep, cure: str | None) -> None:
    marks = {"ok": "ok", "failed": "FAILED", "skipped": "-"}
    place = f" {step.place}" if step.place else ""
    code = "" if step.code == "ok" else f" {step.code}:"
    line = f"{marks[step.state]:6} {step.ms:7.0f} ms  {step.step}{place}:{code} {step.words}"
    click.echo(render.printable(line))
    for detail in step.details:
        click.echo(f"                     {render.printable(detail)}")
    if cure:
        click.echo(f"                     next: {cure}")
