# SPDX-License-Identifier: Apache-2.0
"""``peer test``: a connection to a peer, step by step.

It uses the daemon's own decisions, and so imports much of the daemon, unlike the other commands of
`peer`.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import click

from amqproute.address import parse
from amqproute.cli import render, runner
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError, next_step_for
from amqproute.cli.commands.consult import consult
from amqproute.config.loader import find, load
from amqproute.daemon.peer_test import FAILED, OK, PeerTest, PeerTestStep
from amqproute.errors import InvalidField
from amqproute.net.reactor import IReactor
from amqproute.values import NO_CREDIT

__all__ = ["CURES", "cure_of", "go"]

CURES: Final = {
    "route.local": "name a partner's domain; for our own nodes: amqproute explain ADDRESS",
    "connect.refused": "nobody listens at that port: is the partner's broker running, and is the "
    "port in its SRV record right? (amqproute dns print, on its side)",
    "connect.timeout": "a firewall swallows it, ours or theirs: have TCP to that port let through; "
    "or the addresses in the DNS are old",
    "connect.unreachable": "there is no route to that host; check addresses and network",
    "tls.name": "two legal cures: a certificate with the wanted name as DNS or SRV name "
    "(amqproute certs issue), or DNSSEC for the zone with a TLSA record of the key (amqproute dns "
    "print); never less verification",
    "tls.expired": "whose certificate it is has to renew it; then: systemctl reload amqproute",
    "tls.not-yet-valid": "compare the clocks of both machines (chronyc tracking, timedatectl); if "
    "they agree, the certificate was made for later",
    "tls.untrusted": "the partner sends its whole chain (tls.certificate holds certificate and "
    "intermediates), and we trust its authority: add it to tls.trust",
    "tls.plain-text": "that port speaks no TLS: the SRV record should be _amqp._tcp (upgrade), or "
    "name the port with TLS",
    "tls.handshake": "look at what the partner saw: amqproute peer probes, on its side; a port "
    "that speaks no TLS at once belongs into an SRV record _amqp._tcp (upgrade)",
    "amqp:connection:framing-error": "that port does not speak AMQP as we begin it: an SRV record "
    "_amqps._tcp is for a port with TLS from the first octet, _amqp._tcp for one that upgrades",
    "dane.mismatch": "the TLSA record is not of the key in use: the partner publishes the new one "
    "(amqproute dns print --next, before it changes keys) or goes back to the old key",
    "sasl.refused": "the partner's endpoint has to offer EXTERNAL under mechanisms, with "
    "client-certificate: optional or required",
    "amqp:unauthorized-access": "the partner allows it with a rule under access: "
    '{allow: [transfer], who: "WHO", node: "NODE"}',
    "amqp:resource-limit-exceeded": "a limit of the partner is reached; it consumes from that "
    "queue, or raises the limit",
    NO_CREDIT: "the partner takes no messages at present; there: amqproute status. What waits here "
    "goes by itself when it gives credit",
    "amqp:not-found": "there is no such node at the partner, or it takes no transfers",
    "amqp:link:message-size-exceeded": "send smaller messages, or the partner raises "
    "limits.max-message-size",
    "peer.no-probe": "nothing has to be done: the way is good up to there",
    "peer.lost": "the partner knows why: amqproute peer probes, or its log, there; look for this "
    "time and our address. Usual reasons: our authority is not in its tls.trust, our certificate "
    "names another domain or has expired, or the DNS of our domain cannot be looked up from there",
    "tls.file": "tls.certificate and tls.private-key name the files, which the daemon's user can "
    "read; amqproute certs issue makes them for trying out",
    "peer.timeout": "the partner accepts connections and does not answer; see its log",
}
"""Remedies by the code of a step."""


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
    bad = [step for step in walk.steps if step.state == FAILED]
    if as_json:
        render.json_text(
            {
                "domain": address.domain,
                "address": domain,
                "probe": probe,
                "code": "ok" if walk.is_good else (bad[-1].code if bad else "peer.no-place"),
                "steps": [{**step.facts(), "next": cure_of(step, walk)} for step in walk.steps],
            }
        )
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


def cure_of(step: PeerTestStep, walk: PeerTest) -> str | None:
    """Return the remedy for a step; None if it needs none or none is known."""
    if step.code == "ok":
        return None
    cure = CURES.get(step.code) or next_step_for(step.code)
    if cure is None:
        return None
    who = walk.seen_as or f"peer:{next(iter(walk.config.domains), 'OUR.DOMAIN')}"
    return cure.replace("WHO", who).replace("NODE", walk.address.node or "*")
