# SPDX-License-Identifier: Apache-2.0
"""``amqproute demo``: messages from one organization to another, on one machine, from nothing."""

from __future__ import annotations

import contextlib
import select
import shlex
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import dns.exception
import dns.message
import dns.query
import dns.rdatatype

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.tools.daemon_pair import QUEUE, USER, DaemonPair, DaemonProcess, ended_by_signals
from amqproute.tools.load_worker import (
    Connected,
    Consumer,
    LoadManagement,
    MessageNumbers,
    Publisher,
    percentiles,
)

__all__ = ["DemoMessage", "demo", "pass_messages"]

BODY_OCTETS: Final = 256
PATIENCE_SECONDS: Final = 20.0
"""Seconds without progress after which missing messages count as lost."""
AFTERMATH_SECONDS: Final = 0.5
"""Seconds to wait for duplicates after the last message."""
MOST: Final = 1_000_000


@click.command(cls=ProgramCommand)
@click.option(
    "--messages",
    default=1000,
    show_default=True,
    type=click.IntRange(1, MOST),
    help="How many messages to send.",
)
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Make everything here, and leave it. Without it: a temporary directory that is removed.",
)
@click.option(
    "--journals",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Leave the journals of both brokers here, in a directory for each domain.",
)
@click.option(
    "--keep-running", is_flag=True, help="Leave both brokers running until Ctrl-C, to try them."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result only, as a JSON object.")
def demo(
    messages: int,
    directory: Path | None,
    journals: Path | None,
    keep_running: bool,
    as_json: bool,
) -> int:
    """Demonstrate two organizations that exchange messages, on this machine.

    Makes a certificate authority and certificates, serves a DNS zone for alpha.example and
    beta.example on loopback, starts a broker for each as a process of its own, publishes durable
    messages to orders@beta.example at alpha's broker, and consumes them at beta's. The two know of
    each other only through the DNS.

    Exits with 0 only if nothing was lost or duplicated.
    """
    say = _say_nothing if as_json else click.echo
    with ended_by_signals(), DaemonPair(directory) as pair:
        _print_setting(pair, say)
        pair.start()
        for daemon in pair.daemons:
            say(f"  broker of {daemon.domain:14} process {daemon.pid}, clients at {daemon.url}")
        address = f"{QUEUE}@{pair.beta.domain}"
        say(f"\nPublishing {messages} durable messages to {address} at alpha's broker ...")
        with render.progress() as progress:
            passage = pass_messages(pair, address, messages, progress)
        _print_way(pair, passage, say)
        if as_json:
            render.json_text(passage.as_json())
        else:
            _print_result(passage)
        if keep_running:
            with contextlib.suppress(KeyboardInterrupt):
                _keep_running(pair, say)
        elif directory is not None:
            say(f"\nConfigurations, certificates, zone, stores and logs are in {pair.directory}.")
        if journals is not None:
            _keep_journals(pair, journals.absolute(), say)
    return DONE if passage.is_perfect else NEGATIVE


def _keep_journals(pair: DaemonPair, directory: Path, say: Callable[[str], object]) -> None:
    """Stop both brokers, copy their journals, and name the commands that report on them."""
    pair.stop()  # this closes the last segments
    for daemon in pair.daemons:
        journal = daemon.config_path.parent / "state" / "journal"
        shutil.copytree(journal, directory / daemon.domain, dirs_exist_ok=True)
    alpha, beta = (str(directory / daemon.domain) for daemon in pair.daemons)
    tables = str(directory / "tables")
    say(f"\nThe journals of both brokers are in {directory}. What became of every message:")
    for command in (
        ["run", "--journal", alpha, "--journal", beta, "--warehouse", tables],
        ["reconcile", "--ours", alpha, "--theirs", beta, "--output", str(directory / "agreement")],
    ):
        say(f"  amqproute pipeline {shlex.join(command)}")


def _say_nothing(text: str) -> None:
    """Replaces `click.echo` if only the result is wanted."""


# -- the messages ------------------------------------------------------------------------------


@dataclass(slots=True)
class DemoMessage:
    """The result for the messages.

    Attributes:
        sent: published at alpha.
        accepted: accepted by alpha.
        refused: not accepted, by outcome.
        relayed: handed over by alpha and accepted by beta.
        received: consumed at beta.
        lost: never received.
        duplicated: received again.
        seconds: the seconds from the first message published to the last one received.
        latency_ms: p50, p99 and max from publishing to consuming.
        hop: alpha's management row about beta.
        caller: beta's management row about alpha's connection.
    """

    sent: int
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    relayed: int = 0
    received: int = 0
    lost: int = 0
    duplicated: int = 0
    seconds: float = 0.0
    latency_ms: dict[str, float] = field(default_factory=dict)
    hop: Facts = field(default_factory=dict)
    caller: Facts = field(default_factory=dict)

    @property
    def is_perfect(self) -> bool:
        """Whether every message came exactly once."""
        return self.sent == self.accepted == self.received and not self.lost and not self.duplicated

    @property
    def rate(self) -> float:
        """Messages a second, from end to end."""
        return self.received / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        return {
            "sent": self.sent,
            "accepted": self.accepted,
            "refused": self.refused,
            "relayed": self.relayed,
            "received": self.received,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "rate": round(self.rate, 1),
            "latency-ms": {name: round(value, 3) for name, value in self.latency_ms.items()},
        }


def pass_messages(
    pair: DaemonPair, address: str, messages: int, progress: render.ProgressLine
) -> DemoMessage:
    """Publish at alpha and consume at beta concurrently, until all is received or nothing moves.

    Raises:
        ClientError: a broker closed a connection or refuses.
    """
    numbering = MessageNumbers(messages, BODY_OCTETS, address)
    with (
        Connected(pair.alpha.unix, "demo-publisher") as at_alpha,
        Connected(pair.beta.unix, "demo-consumer") as at_beta,
    ):
        publisher = Publisher(at_alpha, address, numbering)
        consumer = Consumer(at_beta, QUEUE, numbering)
        published = progress.add_task("accepted by alpha", total=messages)
        arrived = progress.add_task("received at beta", total=messages)
        began = moved = time.monotonic()
        ended = began
        before = (0, 0)
        while True:
            publisher.offer()
            at_alpha.turn()
            at_beta.turn()
            now = (publisher.accepted + len(publisher.unlucky), consumer.received)
            if now != before:
                if now[1] != before[1]:
                    ended = time.monotonic()
                moved, before = time.monotonic(), now
                progress.update(published, completed=publisher.accepted)
                progress.update(arrived, completed=consumer.received)
            is_complete = publisher.is_done and not consumer.missing
            if time.monotonic() - moved > (AFTERMATH_SECONDS if is_complete else PATIENCE_SECONDS):
                break
            select.select([at_alpha, at_beta], [], [], 0.05)
        passage = DemoMessage(
            sent=messages - len(publisher.pending),
            accepted=publisher.accepted,
            refused=publisher.refused,
            received=consumer.received,
            lost=consumer.missing,
            duplicated=consumer.duplicated,
            seconds=ended - began,
            latency_ms=percentiles(consumer.latencies),
        )
        hops = LoadManagement(at_alpha).rows("relay-queue")
        passage.hop = next((row for row in hops if row.get("hop") == pair.beta.domain), {})
        passage.relayed = passage.hop.get("relayed", 0)
        principal = f"peer:{pair.alpha.domain}"
        callers = LoadManagement(at_beta).rows("connection")
        passage.caller = next((row for row in callers if row["principal"] == principal), {})
        return passage


# -- in words ----------------------------------------------------------------------------------


def _print_setting(pair: DaemonPair, say: Callable[[str], object]) -> None:
    domains = " and ".join(daemon.domain for daemon in pair.daemons)
    say("Two organizations on this machine, which know of each other only through the DNS:")
    say(f"  everything is made in      {pair.directory}")
    say(f"  certificates for           {domains}, of one authority")
    say(f"  name server                127.0.0.1:{pair.nameserver_port}")


def _print_way(pair: DaemonPair, passage: DemoMessage, say: Callable[[str], object]) -> None:
    beta = pair.beta
    say("\nThe way the messages took:")
    try:
        say(f"  alpha looked up {beta.domain}. The name server answers:")
        for line in _answers(pair, f"_amqps._tcp.{beta.domain}", dns.rdatatype.SRV):
            say(f"      {line}")
        for line in _answers(pair, beta.host, dns.rdatatype.A):
            say(f"      {line}")
        version, names = _names_proved(pair, beta)
        say(f"  alpha connected to 127.0.0.1:{beta.tls_port} with {version}. The certificate there")
        say(f"      names {', '.join(names)}: it proves the domain that was asked for.")
    except (OSError, dns.exception.DNSException) as error:
        say(f"      (it cannot be asked again: {error})")  # what the messages did counts below
    if passage.caller:
        say(
            f"  beta knows alpha by its certificate as {passage.caller['principal']}, over "
            f"{passage.caller['tls']},"
        )
        say(f"      and its access rules let that peer put messages into {QUEUE!r}.")
    trouble = passage.hop.get("last-error")
    if trouble:
        say(f"  alpha's last trouble with {beta.domain}: {trouble}")
    say("")


def _answers(pair: DaemonPair, name: str, kind: dns.rdatatype.RdataType) -> list[str]:
    """Ask the pair's name server, and return the answer as in a zone file."""
    question = dns.message.make_query(name, kind)
    response = dns.query.udp(question, "127.0.0.1", timeout=5.0, port=pair.nameserver_port)
    return [line for rrset in response.answer for line in rrset.to_text().splitlines()]


def _names_proved(pair: DaemonPair, daemon: DaemonProcess) -> tuple[str, list[str]]:
    """Make a TLS connection of our own, verified, and return its version and the names."""
    context = ssl.create_default_context(cafile=str(pair.directory / "tls" / "ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", daemon.tls_port), timeout=5.0) as plain,
        context.wrap_socket(plain, server_hostname=daemon.domain) as secured,
    ):
        certificate: Any = secured.getpeercert() or {}
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        return secured.version() or "TLS", names


def _print_result(passage: DemoMessage) -> None:
    latency = passage.latency_ms
    rows: list[tuple[str, object]] = [
        ("sent", passage.sent),
        ("accepted by alpha", passage.accepted),
        *((f"refused: {name}", count) for name, count in passage.refused.items()),
        ("relayed to beta", passage.relayed),
        ("received at beta", passage.received),
        ("lost", passage.lost),
        ("duplicated", passage.duplicated),
        ("rate", f"{passage.rate:.0f} messages/s"),
        ("latency p50", f"{latency['p50']:.1f} ms" if latency else None),
        ("latency p99", f"{latency['p99']:.1f} ms" if latency else None),
    ]
    render.table(("messages", "count"), rows, right="count")
    if passage.is_perfect:
        click.secho("\nNothing was lost, nothing came twice.", fg="green")
    else:
        click.secho("\nSomething was lost, refused or came twice.", fg="red", bold=True)


def _keep_running(pair: DaemonPair, say: Callable[[str], object]) -> NoReturn:
    """Print what can be tried, and wait for Ctrl-C.

    Raises:
        KeyboardInterrupt: it came.
        CommandError: ``pair.ended``: a broker has ended by itself.
    """
    alpha, beta = pair.daemons
    address = f"{QUEUE}@{beta.domain}"
    say("\nBoth brokers keep running until Ctrl-C. In another terminal:")
    for command in (
        ["send", "--url", alpha.url, address, "--body", "hello"],
        ["receive", "--url", beta.url, QUEUE, "--count", "1"],
        ["explain", address, "--config", str(alpha.config_path)],
        ["queue", "ls", "--url", alpha.url],
    ):
        say(f"  amqproute {shlex.join(command)}")
    say("Any AMQP 1.0 client can connect as well:")
    for daemon in pair.daemons:
        where = f"127.0.0.1:{daemon.tcp_port}"
        say(f"  {daemon.domain:14} amqp://{USER}:{pair.password}@{where}  log: {daemon.log_path}")
    while True:
        for daemon in pair.daemons:
            if daemon.has_ended:
                raise daemon.ended()
        time.sleep(1.0)
