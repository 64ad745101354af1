# SPDX-License-Identifier: Apache-2.0
"""``explain``, ``resolve`` and ``dns``: routes of messages, and our DNS records."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from cryptography import x509
from dns.exception import DNSException
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from amqproute.address import (
    ROOT_HOST,
    Address,
    from_compatibility,
    from_exchange_address,
    host_label,
    host_named,
    in_host,
    is_reserved,
    normalize_domain,
    parse,
    split_host,
)
from amqproute.cli import render, runner
from amqproute.cli.command_error import (
    DONE,
    NEGATIVE,
    USAGE,
    CommandError,
    Interrupted,
    next_step_for,
)
from amqproute.cli.commands.common_options import config_option, json_option
from amqproute.cli.commands.consult import (
    Consulted,
    consult,
    consult_about_exchange,
    consult_about_node,
)
from amqproute.cli.commands.local_daemon import optional
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand, ProgramGroup
from amqproute.config import Config, load
from amqproute.config.access_settings import ListenSettings
from amqproute.config.loader import find
from amqproute.daemon.peer_assembly import make_judge, make_resolver, make_targets, peer_policy
from amqproute.daemon.routes import make_router
from amqproute.errors import ConfigError, InvalidField, ResolveError, TlsError
from amqproute.net.dane import record_of
from amqproute.net.peer_trust import TrustDemand, TrustLevel, TrustMethod, demand, place_of
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.relay.connect_agent import static_candidate
from amqproute.relay.routing_decision import decision_of, demands_of
from amqproute.resolver.zone import ZoneServer
from amqproute.routing.table import Router
from amqproute.values import (
    Candidate,
    NextHop,
    Resolution,
    TransportSecurity,
)

__all__ = ["dns", "explain", "resolve"]

ACCEPTED = "ok"


# -- resolve -----------------------------------------------------------------------------------


@click.command(cls=ProgramCommand)
@click.argument("domain")
@config_option
@json_option
def resolve(domain: str, config: Path | None, as_json: bool) -> int:
    """Look a DOMAIN up in the DNS as the daemon would.

    Shows the candidates in the order in which they would be tried (RFC 2782: among equal
    priorities the order is random in each look-up), whether DNSSEC proves them, their TLSA records,
    the proof required of a broker there, and every query that was made. Without a configuration
    the name servers of this machine are asked. Exits with 1 if there is no candidate.
    """
    settings = _config_or_default(config)
    is_own = domain.rstrip(".").lower() in settings.domains
    outcome = runner.run(lambda reactor: _look_up(reactor, settings, domain, is_own=is_own))
    demands: list[TrustDemand] = []
    if isinstance(outcome, Resolution):
        policy = peer_policy(settings, outcome.domain)
        demands = [demand(policy, place_of(each, outcome.domain)) for each in outcome.candidates]
    if as_json:
        render.json_text(_resolution_facts(domain, outcome, demands))
    elif isinstance(outcome, Resolution):
        _print_candidates(outcome.candidates, demands)
        for line in _demand_lines(outcome.candidates, demands):
            click.echo(render.printable(line))
        _print_attempts(outcome)
        if is_own:
            click.echo(f"{outcome.domain} is one of `domains`: this is how others find this broker")
    if isinstance(outcome, ResolveError):
        if as_json:
            return NEGATIVE
        raise outcome
    return DONE


def _config_or_default(config: Path | None) -> Config:
    try:
        path = find(config)
    except ConfigError:
        if config is not None:
            raise
        return Config()
    loaded = optional(path, config, "the system's name servers are asked")
    return Config() if loaded is None else loaded


async def _look_up(
    reactor: IReactor,
    config: Config,
    domain: str,
    is_named: Callable[[str], bool] = lambda _: False,
    *,
    is_own: bool = False,
) -> Resolution | ResolveError:
    """Look the domain up.

    Args:
        reactor: the reactor for the queries.
        config: its rules apply.
        domain: the domain to look up.
        is_named: returns whether a route made at runtime names a domain.
        is_own: the domain is ours, and is looked up as peers do.
    """
    try:
        if is_own:
            resolver = make_resolver(config, reactor, own=frozenset())
            return await resolver.resolve(domain, to_dial=False)
        targets = make_targets(lambda: config, is_named)
        return await make_resolver(config, reactor, targets).resolve(domain)
    except ResolveError as error:
        return error


def _candidate_facts(candidate: Candidate, wanted: TrustDemand) -> Facts:
    tlsa = candidate.tlsa
    return {
        "host": candidate.host,
        "port": candidate.port,
        "security": candidate.security.value,
        "addresses": list(candidate.addresses),
        "priority": candidate.priority,
        "weight": candidate.weight,
        "source": candidate.source,
        "dnssec": "secure" if candidate.secure else "insecure",
        "tlsa": None
        if tlsa is None
        else {
            "owner": tlsa.owner,
            "state": tlsa.state.value,
            "code": tlsa.code or None,
            "description": tlsa.words,
            "records": [str(record) for record in tlsa.records],
        },
        "verdict": wanted.code,
        "proof": wanted.method.value,
        "reaches": wanted.level,
        "names": list(wanted.names),
        "server-name": wanted.server_name,
        "description": wanted.words,
    }


def _resolution_facts(
    domain: str, outcome: Resolution | ResolveError, demands: list[TrustDemand]
) -> Facts:
    if isinstance(outcome, ResolveError):
        return {
            "domain": domain,
            "code": outcome.code,
            "description": str(outcome),
            "permanent": outcome.permanent,
            "candidates": [],
            "attempts": list(outcome.attempts),
        }
    return {
        "domain": outcome.domain,
        "code": ACCEPTED,
        "candidates": [
            _candidate_facts(each, wanted)
            for each, wanted in zip(outcome.candidates, demands, strict=True)
        ],
        "ttl": outcome.ttl,
        "stale": outcome.stale,
        "authenticated": outcome.authenticated,
        "attempts": list(outcome.attempts),
    }


_TLS = {
    TransportSecurity.IMPLICIT: "TLS at once",
    TransportSecurity.UPGRADE: "TLS by upgrade",
}


def _print_candidates(candidates: tuple[Candidate, ...], demands: list[TrustDemand]) -> None:
    rows = [
        (
            number,
            each.host,
            each.port,
            _TLS[each.security],
            " ".join(each.addresses),
            each.priority,
            each.weight,
            each.source,
            "secure" if each.secure else "insecure",
            "-" if each.tlsa is None else _tlsa_words(each),
            wanted.method.value,
            wanted.code,
        )
        for number, (each, wanted) in enumerate(zip(candidates, demands, strict=True), 1)
    ]
    headings = (
        *("#", "HOST", "PORT", "SECURITY", "ADDRESSES", "PRIORITY", "WEIGHT", "SOURCE"),
        *("DNSSEC", "TLSA", "PROOF", "VERDICT"),
    )
    render.table(headings, rows, right="# PORT PRIORITY WEIGHT")


def _tlsa_words(candidate: Candidate) -> str:
    tlsa = candidate.tlsa
    assert tlsa is not None
    if tlsa.records:
        return f"{len(tlsa.records)} present"
    return tlsa.state.value


def _demand_lines(candidates: tuple[Candidate, ...], demands: list[TrustDemand]) -> list[str]:
    lines = []
    for candidate, wanted in zip(candidates, demands, strict=True):
        place = f"{candidate.host}:{candidate.port}"
        tlsa = candidate.tlsa
        if tlsa is not None:
            lines += [f"{tlsa.owner} TLSA {record}" for record in tlsa.records]
            if tlsa.words and not tlsa.records:
                lines.append(f"{place}: no TLSA records used: {tlsa.code}: {tlsa.words}")
        if wanted.method is TrustMethod.REFUSED:
            lines.append(f"{place}: nothing would be sent there: {wanted.code}: {wanted.words}")
        else:
            lines.append(f"{place}: accepted is {wanted.words}; reaches level {wanted.level}")
    return lines


def _print_attempts(outcome: Resolution) -> None:
    click.echo("asked:")
    for line in outcome.attempts:
        click.echo(f"  {render.printable(line)}")
    state = "authenticated (DNSSEC)" if outcome.authenticated else "not authenticated"
    stale = ", STALE: the name servers fail" if outcome.stale else ""
    click.echo(f"good for {outcome.ttl:.0f} s, {state}{stale}")


# -- explain -----------------------------------------------------------------------------------


@dataclass(slots=True)
class ExplainedAddress:
    """The daemon's decision about an address.

    Attributes:
        address: the address, as given.
        code: ``ok``, or the code of the obstacle.
        words: the code as text.
        steps: the steps of the decision, in order.
        facts: the facts for programs.
    """

    address: str
    code: str = ACCEPTED
    words: str = ""
    steps: list[str] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    demands: list[TrustDemand] = field(default_factory=list)

    def stop(self, code: str, words: str) -> ExplainedAddress:
        """Record the obstacle."""
        self.code, self.words = code, words
        return self


@click.command(cls=ProgramCommand)
@click.argument("address")
@click.option(
    "--vhost", metavar="HOST", default=ROOT_HOST, help="The virtual host of an ADDRESS without @."
)
@config_option
@json_option
def explain(address: str, vhost: str, config: Path | None, as_json: bool) -> int:
    """Show how the daemon would handle a message for ADDRESS, and why.

    An exchange is /exchanges/NAME or /exchanges/NAME/KEY; for a client of AMQP 0-9-1, ADDRESS is
    the routing key at the default exchange.

    The rule that decides, the places that would be tried in their order, the security level, and
    the names that would be accepted in the peer's certificate; or the one code that stops it.
    The decision is made by the daemon's own functions, with the DNS as it is now; nothing is
    sent and no peer is connected to. A running local daemon is first asked for its routes made at
    runtime, and to drop its cached answers about that domain, so that it decides by the same ones.
    Exits with 1 if the message could not go.
    """
    settings = load(find(config))
    if vhost != ROOT_HOST and vhost not in settings.virtual_hosts:
        known = ", ".join([ROOT_HOST, *settings.virtual_hosts])
        raise CommandError(
            USAGE, "usage.vhost", f"there is no virtual host {vhost!r}", f"there are {known}"
        )
    host = host_named(vhost)
    found = runner.run(lambda reactor: _explain(reactor, settings, address, config, host))
    if as_json:
        render.json_text(
            {
                "address": found.address,
                "code": found.code,
                "description": found.words,
                **found.facts,
                "steps": found.steps,
            }
        )
        return DONE if found.code == ACCEPTED else NEGATIVE
    for step in found.steps:
        click.echo(render.printable(step))
    if found.candidates:
        _print_candidates(found.candidates, found.demands)
    if found.code != ACCEPTED:
        raise CommandError(NEGATIVE, found.code, found.words, next_step_for(found.code))
    click.echo(f"ok: {render.printable(found.words)}")
    return DONE


async def _explain(
    reactor: IReactor, config: Config, text: str, file: Path | None = None, host: str = ""
) -> ExplainedAddress:
    """Explain by a configuration.

    Args:
        reactor: the reactor for the daemon and the DNS.
        config: the configuration.
        text: the address.
        file: the path of the configuration; None for the default one.
        host: the virtual host of an address without a domain; empty for ``/``.
    """
    found = ExplainedAddress(text)
    try:
        exchange = from_exchange_address(text)
        if exchange is not None:
            return await _explain_exchange(reactor, exchange, found, file, host)
        there, plain = split_host(text)
        address = parse(from_compatibility(plain) or plain)
    except InvalidField as error:
        return found.stop(error.condition, error.description)
    if address.domain is None:
        host = there or host
    found.steps.append(
        f"node {address.node!r} of {address.domain or 'this broker'}"
        if address.node
        else f"any node of {address.domain}"
    )
    router = make_router(config, config.container_id or "")
    if address.domain is None or address.domain in router.own_names:
        owner = [
            name for name, each in config.virtual_hosts.items() if address.domain in each.domains
        ]
        if address.domain is not None:
            host = owner[0] if owner else ""
        return await _explain_local(reactor, config, address, found, file, host)
    consulted = await consult(reactor, file, str(address))
    router = make_router(config, config.container_id or "", consulted.routes)
    return await _explain_remote(reactor, config, router, address, found, consulted)


async def _explain_exchange(
    reactor: IReactor,
    exchange: tuple[str, str | None],
    found: ExplainedAddress,
    file: Path | None,
    host: str,
) -> ExplainedAddress:
    name, key = exchange
    full = in_host(host, name)
    found.steps.append(f"exchange {name!r} of virtual host {host_label(host)}")
    consulted = await consult_about_exchange(reactor, file, full)
    found.facts["daemon"] = consulted.words
    found.facts["route"] = {"kind": "exchange", "node": full, "virtual-host": host_label(host)}
    found.steps.append(consulted.words)
    if not consulted.node:
        return found.stop("amqp:not-found", f"no exchange {full!r} is known here")
    by = "the subject of the message" if key is None else f"the routing key {key!r}"
    found.words = f"goes to the exchange {full}, by {by}"
    return found


async def _explain_local(
    reactor: IReactor,
    config: Config,
    address: Address,
    found: ExplainedAddress,
    file: Path | None,
    host: str = "",
) -> ExplainedAddress:
    domain = address.domain
    found.steps.append(f"local: {domain} is one of ours" if domain else "local: no domain given")
    nodes = config.nodes
    if host:
        found.steps.append(f"virtual host {host}")
        nodes = config.virtual_hosts[host].nodes
    found.facts["route"] = {
        "kind": "local",
        "node": in_host(host, address.node),
        "virtual-host": host_label(host),
    }
    if is_reserved(address.node):
        if address.node not in config.remote_services:
            return found.stop("amqp:not-allowed", f"{address.node!r} is a service of the broker")
        found.words = f"goes to the service {address.node}, from whoever may manage it"
        return found
    if not address.node:
        return found.stop("amqp:precondition-failed", "the address names no node")
    wanted = in_host(host, address.node)
    node = config.aliases.get(wanted, wanted)
    if node != wanted:
        found.steps.append(f"alias: {wanted} stands for {node}")
        found.facts["route"]["node"] = node
    if all(in_host(host, each.name) != node for each in nodes):
        consulted = await consult_about_node(reactor, file, wanted)
        found.facts["daemon"] = consulted.words
        if not consulted.node:
            found.steps.append(consulted.words)
            return found.stop("amqp:not-found", f"no node {node!r} is configured here")
        node = found.facts["route"]["node"] = consulted.node
        found.steps.append(f"not in the configuration: {node} was made at runtime")
    found.words = f"goes onto the local node {node}"
    return found


async def _explain_remote(
    reactor: IReactor,
    config: Config,
    router: Router,
    address: Address,
    found: ExplainedAddress,
    consulted: Consulted,
) -> ExplainedAddress:
    domain = address.domain
    assert domain is not None
    if is_reserved(address.node) and address.node not in config.remote_services:
        return found.stop(
            "amqp:not-allowed", f"messages for the service {address.node!r} are not transferred"
        )
    rule = router.rule(domain)
    hop = router.hop(domain, address.node)
    number: int | None = None
    if rule is None:
        found.steps.append("no route matches; the DNS decides")
    elif rule in consulted.routes:
        words = f"a route made at runtime matches: {rule.pattern} via {rule.via or 'DNS'}"
        found.steps.append(words)
    else:
        number = [each.domain for each in config.routes].index(rule.pattern)
        found.steps.append(f"routes[{number}] matches: {rule.pattern} via {rule.via or 'DNS'}")
    peer = config.peer_for(hop.domain)
    names = [hop.domain, *hop.names]
    found.facts["route"] = {
        "kind": "remote",
        "rule": number,
        "origin": None if rule is None else "runtime" if number is None else "configuration",
        "pattern": None if rule is None else rule.pattern,
        "next-hop": hop.key,
        "via": hop.via,
        "target": hop.target,
    }
    found.facts["security"] = {"level": peer.level, "names": names}
    found.steps.append(f"next hop {hop.key}, link to {hop.target}")
    found.steps.append(f"the level for {hop.domain} is {peer.level}")
    if config.tls.certificate is None:
        return found.stop(
            "tls.file", "tls.certificate is not configured: this broker cannot prove its domain"
        )
    return await _explain_places(reactor, config, hop, found, consulted)


async def _explain_places(
    reactor: IReactor, config: Config, hop: NextHop, found: ExplainedAddress, consulted: Consulted
) -> ExplainedAddress:
    """Decide as the daemon does, with its functions (`amqproute.relay.routing_decision`)."""
    candidates: Sequence[Candidate] = ()
    attempts: Sequence[str] = ()
    error: ResolveError | None = None
    if hop.via is not None:
        candidates = (static_candidate(hop.via),)
    else:
        found.facts["daemon"] = consulted.words
        outcome = await _look_up(reactor, config, hop.domain, consulted.names)
        attempts = outcome.attempts
        if isinstance(outcome, ResolveError):
            error = outcome
        else:
            candidates = outcome.candidates
    demands = await _demands(reactor, config, hop, candidates)
    found.candidates, found.demands = tuple(candidates), demands
    decision = found.facts["decision"] = decision_of(hop, candidates, demands, error)
    pairs = list(zip(candidates, demands, strict=True))
    found.facts["candidates"] = [_candidate_facts(each, wanted) for each, wanted in pairs]
    if hop.via is None:
        found.facts["attempts"] = list(attempts)
        found.steps.append(consulted.words)
        found.steps += [f"asked: {line}" for line in attempts]
    found.steps += _demand_lines(found.candidates, found.demands)
    if error is not None:
        lasting = "lasting" if error.permanent else "it would be tried again"
        return found.stop(decision["code"], f"{error} ({lasting})")
    if decision["code"] != ACCEPTED:
        words = next(each.words for each in demands if each.code == decision["code"])
        return found.stop(decision["code"], f"{words} (it would be tried again)")
    way = hop.via or "the first that answers"
    found.words = f"goes onto the relay queue of {hop.key}, and from there to {way}"
    return found


async def _demands(
    reactor: IReactor, config: Config, hop: NextHop, candidates: Sequence[Candidate]
) -> list[TrustDemand]:
    """Return the demands of the daemon's connector at each place."""
    # The TLSA records of a host that an operator named have to be looked up.
    asks = hop.via is not None and peer_policy(config, hop.domain).level is TrustLevel.DANE
    resolver = make_resolver(config, reactor) if asks else None
    return await demands_of(hop, candidates, make_judge(config, resolver).demand_for)


# -- dns ---------------------------------------------------------------------------------------


@click.group(cls=ProgramGroup)
def dns() -> None:
    """DNS records of this broker's domains, and a name server for tests."""


@dns.command("serve")
@click.argument("zone", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--port",
    default=5353,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="On 127.0.0.1; 0 for one that is free.",
)
def serve(zone: Path, port: int) -> int:
    """Serve the zone file ZONE on 127.0.0.1, for trying out. Not for production.

    It has the form of RFC 1035, with $ORIGIN, as etc/example/zone.txt has. Runs in the foreground
    until it is interrupted; a changed file is read at the next start.
    """
    try:
        text = zone.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            USAGE, "dns.zone", f"{zone} cannot be read: {error}", "see --help"
        ) from None

    async def work(reactor: IReactor) -> None:
        try:
            server = ZoneServer([text], reactor)
        except (DNSException, ValueError) as error:
            raise CommandError(
                USAGE,
                "dns.zone",
                f"{zone}: {error}",
                "write it as etc/example/zone.txt: $ORIGIN, $TTL and an SOA record first",
            ) from None
        try:
            found = await server.start("127.0.0.1", port)
        except CannotListenError as error:
            raise CommandError(
                NEGATIVE,
                "dns.port",
                f"port {port} of 127.0.0.1 cannot be opened: {error.socketError.strerror}",
                "give another one with --port",
            ) from None
        click.echo(f"{zone} is served on 127.0.0.1:{found}, UDP and TCP; Ctrl-C ends it")
        sys.stdout.flush()
        forever: Deferred[None] = Deferred()
        try:
            await forever
        finally:
            await server.stop()

    try:
        runner.run(work)
    except Interrupted:
        pass  # the usual end
    return DONE


@dns.command("print")
@config_option
@click.option(
    "--host",
    metavar="NAME",
    help="The host name that the records point to. [default: this machine's full name]",
)
@click.option(
    "--ttl", default=3600, show_default=True, type=click.IntRange(0, 604800), help="In seconds."
)
@click.option(
    "--next",
    "next_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A certificate that will be used next; its TLSA record is printed as well. May be "
    "repeated.",
)
def print_records(
    config: Path | None, host: str | None, ttl: int, next_files: tuple[Path, ...]
) -> int:
    """Print the SRV and TLSA records to publish, by which others find and verify this broker.

    The TLSA record (3 1 1) is of the key in use; it counts only in a zone signed with DNSSEC. To
    change the key: publish the record of the new one beside it (--next), wait until the TTL has
    passed, change the key, then take the old record away.

    One record for each domain under `domains` and each endpoint under `listen` where peers can
    prove their domain (TCP with TLS, client-certificate and EXTERNAL): _amqps for tls: implicit,
    _amqp for tls: upgrade. The host's addresses (A, AAAA) are published as for any host.
    """
    settings = load(find(config))
    name = _host_name(host)
    if not settings.domains:
        raise CommandError(
            USAGE, "config", "`domains` is empty", "name the domains whose nodes live here"
        )
    places = [place for place in map(_published, settings.listen) if place is not None]
    if not places:
        raise CommandError(
            NEGATIVE,
            "dns.no-endpoint",
            "no endpoint under `listen` is for peers: TLS with client-certificate and EXTERNAL",
            "add - {endpoint: tcp:5671, tls: implicit, client-certificate: optional, "
            "mechanisms: [EXTERNAL]}",
        )
    for domain in settings.domains:
        for priority, (service, port) in enumerate(sorted(set(places), key=_rank)):
            target = f"{name}."
            click.echo(
                f"{service}._tcp.{domain}. {ttl} IN SRV {priority * 10 + 10} 0 {port} {target}"
            )
    certificates = _certificates(settings, next_files)
    for port in sorted({port for _, port in places}):
        for certificate in certificates:
            click.echo(f"_{port}._tcp.{name}. {ttl} IN TLSA {record_of(certificate)}")
    _advise_publication(settings)
    if certificates:
        click.echo(
            f"note: the TLSA records count in zones signed with DNSSEC: that of {name}, and "
            f"those of {', '.join(settings.domains)}",
            err=True,
        )
    _note_revocation(settings, certificates)
    return DONE


def _certificates(config: Config, next_files: tuple[Path, ...]) -> list[x509.Certificate]:
    """Return the certificate in use and the next ones, one for each key."""
    found: list[x509.Certificate] = []
    files = [] if config.tls.certificate is None else [config.tls.certificate]
    if files and not files[0].exists():
        render.warn(f"there is no file {files[0]}: the TLSA record of the key in use is left out")
        files = []
    for path in (*files, *next_files):
        try:
            certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
        except OSError as error:
            raise TlsError("tls.file", f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise TlsError("tls.file", f"{path} holds no PEM certificate: {error}") from error
        if all(record_of(each) != record_of(certificate) for each in found):
            found.append(certificate)
    return found


def _note_revocation(config: Config, certificates: list[x509.Certificate]) -> None:
    """Print notes on revocation and the published records."""
    if not certificates:
        return
    click.echo(
        "note: to withdraw a key, remove its TLSA record and change the key; peers that use DANE "
        "notice within the TTL, those that use an authority when its revocation list has the "
        "certificate",
        err=True,
    )
    if not config.tls.crl:
        return
    contexts = TlsContexts(None, None, config.tls.trust, crl=config.tls.crl)
    for certificate in certificates:
        failure = contexts.loaded.revocations.failure((certificate,))
        if failure is not None:
            render.warn(f"by tls.crl, serial {certificate.serial_number:x} is revoked")


def _published(listen: ListenSettings) -> tuple[str, int] | None:
    """Return the service and port of an endpoint for peers; None if it is not for them."""
    place = listen.parsed
    if not place.port or listen.tls == "none":
        return None
    if listen.client_certificate == "none" or "EXTERNAL" not in listen.mechanisms:
        return None
    return ("_amqps" if listen.tls == "implicit" else "_amqp", place.port)


def _rank(place: tuple[str, int]) -> tuple[bool, int]:
    return place[0] != "_amqps", place[1]


def _advise_publication(config: Config) -> None:
    for index, listen in enumerate(config.listen):
        if _published(listen) is not None and listen.parsed.is_loopback:
            render.warn(f"listen[{index}] {listen.endpoint}: only this machine can reach it")


def _host_name(host: str | None) -> str:
    name = socket.getfqdn() if host is None else host
    try:
        name = normalize_domain(name)
    except InvalidField as error:
        raise CommandError(
            USAGE, "usage.host", error.description, "give the full host name with --host"
        ) from None
    if "." not in name or name == "localhost.localdomain":
        raise CommandError(
            USAGE,
            "usage.host",
            f"{name!r} is no full host name",
            "give the name that others know this machine by with --host",
        )
    return name
