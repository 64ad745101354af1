# SPDX-License-Identifier: Apache-2.0
"""``peer``: the other organizations' brokers: what is known of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from amqproute.address import parse
from amqproute.cli import render, runner
from amqproute.cli.client import Client
from amqproute.cli.commands.asking import ask, entities, in_touch, query
from amqproute.cli.commands.options import (
    Access,
    access_options,
    config_option,
    json_option,
)
from amqproute.cli.commands.selecting import age
from amqproute.cli.refusal import DONE, NEGATIVE, USAGE, ClientError, Refusal, next_step_for
from amqproute.config.load import find, load
from amqproute.daemon.peertest import FAILED, OK, PeerTest, Step
from amqproute.errors import InvalidField

__all__ = ["peer"]

COLUMNS: Final = (
    ("name", "PEER"),
    ("state", "STATE"),
    ("waiting", "WAITING"),
    ("in-flight", "IN-FLIGHT"),
    ("window", "WINDOW"),
    ("credit", "CREDIT"),
    ("failures", "FAILED"),
    ("next-attempt-ms", "NEXT"),
    ("last-success-ms", "LAST-OK"),
    ("level", "LEVEL"),
    ("host", "HOST"),
    ("last-code", "LAST-ERROR"),
    ("holds", "HOLDS"),
)
TIMES: Final = ("next-attempt-ms", "last-success-ms", "oldest-arrival-ms")


Rows = list[dict[str, Any]]


@click.group()
def peer() -> None:
    """Other organizations' brokers: what is known of them, and whether they can be reached."""


@peer.command("ls")
@access_options
@json_option
def ls(url: str | None, trust: Path | None, config: Path | None, as_json: bool) -> None:
    """List the peers that messages go to, or wait for.

    STATE is open, idle, connecting, waiting (for the next attempt, in NEXT), refused (there is no
    such domain) or held. FAILED counts attempts in a row, CREDIT what the peer still takes, WINDOW
    what we would have in flight at most. LAST-OK is how long ago the last connection was made.
    LEVEL is how the peer has proved itself. A peer is forgotten when nothing has gone there for a
    minute. With --json every attribute is shown.
    """
    rows = entities(Access(url, config, trust), "peer")
    rows.sort(key=lambda row: (-row["waiting"], row["name"]))
    if as_json:
        render.json_text({"peers": rows})
        return
    now_ms = int(time.time() * 1000)
    render.table(
        [heading for _, heading in COLUMNS],
        ([_cell(key, row.get(key), now_ms) for key, _ in COLUMNS] for row in rows),
        right="WAITING IN-FLIGHT WINDOW CREDIT FAILED NEXT LAST-OK",
    )


@peer.command("show")
@click.argument("domain")
@access_options
@json_option
def show(
    domain: str, url: str | None, trust: Path | None, config: Path | None, as_json: bool
) -> None:
    """Show all that is known of the peer DOMAIN: the way there, its errors, its connections here.

    DOMAIN is a domain, or a name that `amqproute peer ls` shows.
    """
    outbound, inbound, decisions = in_touch(
        Access(url, config, trust), lambda client: _known(client, domain)
    )
    if as_json:
        render.json_text(
            {
                "domain": domain,
                "peers": outbound,
                "connections": inbound,
                "decisions": decisions,
            }
        )
        return
    for decision in decisions:
        places = ", ".join(f"{each['host']}:{each['port']}" for each in decision["places"])
        click.echo(
            render.printable(f"last looked up: {decision['code']}{places and f', {places}'}")
        )
    for row in outbound:
        render.table(["ATTRIBUTE", "VALUE"], _shown(row))
    for row in inbound:
        since = age(row.get("age-ms") or 0)
        click.echo(
            render.printable(
                f"connected here from {row['name']} for {since}: container {row['container']}, "
                f"{row['deliveries-in']} messages in"
            )
        )


async def _known(client: Client, domain: str) -> tuple[Rows, Rows, Rows]:
    rows = await query(client, "peer")
    outbound = [row for row in rows if domain in (row["name"], row["domain"])]
    connections = await query(client, "connection")
    inbound = [row for row in connections if row["principal"] == f"peer:{domain}"]
    rows = await query(client, "decision")
    decisions = [
        {key: value for key, value in row.items() if key not in ("name", "type")}
        for row in rows
        if domain in (row["hop"], row["domain"])
    ]
    if not outbound and not inbound and not decisions:
        # In the words of the daemon, with its status.
        try:
            outbound = [await ask(client, "READ", "peer", domain)]
        except ClientError as error:
            raise ClientError(
                error.exit_code,
                error.code,
                f"nothing waits for {domain}, and it is not connected",
                f"see whether it can be reached with: amqproute peer test {domain}",
            ) from None
    return outbound, inbound, decisions


def _shown(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    shown: list[tuple[str, Any]] = []
    for key, value in row.items():
        if isinstance(value, list):
            shown += [(key, each) for each in value] or [(key, None)]
        elif key in TIMES:
            shown.append((key, _moment(value)))
        else:
            shown.append((key, value if value != "" else None))
    return shown


def _cell(key: str, value: Any, now_ms: int) -> Any:
    if key in TIMES:
        if not value:
            return None
        return age(abs(now_ms - value))
    if key == "holds":
        return " ".join(value) or None
    return value if value != "" else None


def _moment(milliseconds: int | None) -> str | None:
    if not milliseconds:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


# -- test ----------------------------------------------------------------------------------------

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
    "dane.mismatch": "the TLSA record is not of the key in use: the partner publishes the new one "
    "(amqproute dns print --next, before it changes keys) or goes back to the old key",
    "sasl.refused": "the partner's endpoint has to offer EXTERNAL under mechanisms, with "
    "client-certificate: optional or required",
    "amqp:unauthorized-access": "the partner allows it with a rule under access: "
    '{allow: [transfer], who: "WHO", node: "NODE"}',
    "amqp:resource-limit-exceeded": "a limit of the partner is reached; it consumes from that "
    "queue, or raises the limit",
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


@peer.command("test")
@click.argument("domain", metavar="DOMAIN|ADDRESS")
@click.option(
    "--size", default=0, type=click.IntRange(0), help="Ask about a message of so many octets."
)
@config_option
@json_option
def test(domain: str, size: int, config: Path | None, as_json: bool) -> int:
    """Go the way to DOMAIN that messages would go, and report each step.

    DNS, and then at each place TCP, TLS with the name proved, SASL, open, attach, and a probe that
    is never queued; with an ADDRESS it asks whether a message for that node would be taken. The
    same id is shown by `amqproute peer probes` at the partner, with what it saw. Exits with 1 if no
    place works.
    """
    settings = load(find(config))
    try:
        address = parse(domain if "@" in domain else f"@{domain}")
    except InvalidField as error:
        raise Refusal(
            USAGE, "usage.domain", error.description, "as in: amqproute peer test beta.example"
        ) from None
    if address.domain is None:
        raise Refusal(USAGE, "usage.domain", f"{domain!r} names no domain", "as in: beta.example")
    probe = uuid.uuid4().hex[:12]
    if not as_json:
        click.echo(f"probe {probe} to {domain}")

    async def work(reactor: Any) -> PeerTest:
        walk = PeerTest(settings, reactor, address, probe, size)
        if not as_json:
            walk.told = lambda step: _tell(step, _cure(step, walk))
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
                "steps": [{**step.facts(), "next": _cure(step, walk)} for step in walk.steps],
            }
        )
        return DONE if walk.is_good else NEGATIVE
    if walk.is_good:
        click.echo("ok: messages can go there")
        return DONE
    click.echo(f"not ok; {_at_the_partner(walk)}", err=True)
    return NEGATIVE


def _at_the_partner(walk: PeerTest) -> str:
    """Return what the partner has seen of a test."""
    good = {step.step for step in walk.steps if step.state == OK and step.place}
    if "open" in good:
        return f"at the partner: amqproute peer probes --id {walk.probe}"
    if "tcp" in good:
        return (
            "at the partner: amqproute peer probes; it has not heard the id yet, look for the time"
        )
    return "the partner has seen nothing of it"


def _tell(step: Step, cure: str | None) -> None:
    marks = {"ok": "ok", "failed": "FAILED", "skipped": "-"}
    place = f" {step.place}" if step.place else ""
    code = "" if step.code == "ok" else f" {step.code}:"
    line = f"{marks[step.state]:6} {step.ms:7.0f} ms  {step.step}{place}:{code} {step.words}"
    click.echo(render.printable(line))
    for detail in step.details:
        click.echo(f"                     {render.printable(detail)}")
    if cure:
        click.echo(f"                     next: {cure}")


def _cure(step: Step, walk: PeerTest) -> str | None:
    if step.code == "ok":
        return None
    cure = CURES.get(step.code) or next_step_for(step.code)
    if cure is None:
        return None
    who = walk.seen_as or f"peer:{next(iter(walk.config.domains), 'OUR.DOMAIN')}"
    return cure.replace("WHO", who).replace("NODE", walk.address.node or "*")


# -- probes --------------------------------------------------------------------------------------

PROBE_COLUMNS: Final = ("AT", "PROBE", "STEP", "CODE", "FROM", "WHO", "WORDS")


@peer.command("probes")
@click.option("--id", "probe", metavar="PROBE", help="Only those of one probe.")
@access_options
@json_option
def probes(
    probe: str | None, url: str | None, trust: Path | None, config: Path | None, as_json: bool
) -> None:
    """List what was seen of partners who test the way here, and of those who were refused.

    Whoever fails at TLS or SASL has not told the id of its probe yet: look for its address and the
    time, which `amqproute peer test` shows at the other side. The newest come first; a restart
    forgets all.
    """
    rows = entities(Access(url, config, trust), "probe")
    if probe is not None:
        rows = [row for row in rows if row["probe"] == probe]
    if as_json:
        render.json_text({"probes": rows})
        return
    keys = ("probe", "step", "code", "remote", "who", "description")
    render.table(
        PROBE_COLUMNS,
        ((_moment(row["at-ms"]), *(row[key] or None for key in keys)) for row in rows),
    )
