# SPDX-License-Identifier: Apache-2.0
"""Every setting: its name, type, unit, default and one paragraph that says what it does.

This module is the only place where a setting is described. The loader checks files against it,
`etc/amqproute.yaml` is generated from it, and the daemon receives its objects. Add a setting
here, run ``python -m amqproute.config > etc/amqproute.yaml``, and nothing else needs to know.

In Python the names have underscores (``config.relay.first_retry``), in the file dashes
(``first-retry``). Durations are seconds (float), sizes are bytes (int). All models are frozen.

A validator raises `ValueError` with words for the operator; the loader puts the place in front.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from amqproute import address
from amqproute.config import units
from amqproute.config.endpoint import Endpoint, parse_endpoint
from amqproute.errors import AmqpError

__all__ = [
    "SYSTEM_TRUST",
    "Access",
    "Config",
    "Journal",
    "Limits",
    "Listen",
    "Log",
    "Management",
    "Node",
    "Peer",
    "Relay",
    "Resolver",
    "Route",
    "Settings",
    "Source",
    "Tls",
    "Users",
    "Via",
    "matches_domain",
]

Right = Literal["publish", "consume", "create", "transfer", "browse", "manage"]
Mechanism = Literal["EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS"]
Level = Literal["none", "tls", "pkix", "dane-or-pkix"]

SYSTEM_TRUST: Final = "system"
"""The value of ``tls.trust`` that stands for the certificate authorities of the machine."""

DAY: Final = 86400.0
MEBIBYTE: Final = 2**20


def _in_words(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Let a check that raises `AmqpError` be a validator, which has to raise `ValueError`."""

    def checked(text: str) -> Any:
        try:
            return check(text)
        except AmqpError as error:
            raise ValueError(error.description) from None

    return checked


def _new_name(text: str) -> str:
    address.check_new_name(text)
    return text


def _domain_pattern(text: str) -> str:
    """Normalize ``*``, ``*.example`` or ``beta.example``."""
    if text == "*":
        return text
    if text.startswith("*."):
        return "*." + address.normalize_domain(text[2:])
    if "*" in text:
        raise ValueError(f"{text!r}: a star stands alone or as the first label, as in *.example")
    return address.normalize_domain(text)


def _distinct_domains(value: object) -> object:
    """Refuse two keys that are one domain once they are normalized: one of them would be lost."""
    seen: dict[str, str] = {}
    for key in value if isinstance(value, dict) else ():
        try:
            pattern = _domain_pattern(str(key))
        except (AmqpError, ValueError):
            continue  # the key's own validator says what is wrong with it
        if pattern in seen:
            raise ValueError(f"{key!r} and {seen[pattern]!r} are the same domain; keep one")
        seen[pattern] = str(key)
    return value


def matches_domain(pattern: str, domain: str) -> bool:
    """Tell whether a normalized domain falls under a normalized pattern.

    ``*.example`` covers ``beta.example`` and ``a.b.example``, but not ``example`` itself.
    """
    if pattern == "*" or pattern == domain:
        return True
    return pattern.startswith("*.") and domain.endswith(pattern[1:])


def _path(value: object, info: ValidationInfo) -> object:
    """Make a path of a text, relative ones from the directory of the file they stand in."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, bool | int | float) else ""
        raise ValueError(f"{value!r} is not the path of a file{hint}")
    if not value or "\0" in value:
        raise ValueError(f"{value!r} is not the path of a file")
    directory = info.context.get("directory") if isinstance(info.context, dict) else None
    return directory / value if isinstance(directory, Path) else Path(value)


def _trust(value: object, info: ValidationInfo) -> object:
    return SYSTEM_TRUST if value == SYSTEM_TRUST else _path(value, info)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _endpoint_text(text: str) -> str:
    parse_endpoint(text)
    return text


def _who(text: str) -> str:
    if text in ("*", "anonymous"):
        return text
    kind, colon, name = text.partition(":")
    if colon and name:
        if kind == "user":
            return text
        if kind == "peer":
            return f"peer:{_in_words(_domain_pattern)(name)}"
        if kind == "uid":
            if re.fullmatch(r"[0-9]{1,10}|\*", name):
                return text
            raise ValueError(f"{text!r}: a user id is a number, as in uid:1000, or uid:*")
    raise ValueError(
        f"{text!r} names nobody; write user:NAME, user:*, peer:DOMAIN, peer:*, uid:NUMBER, "
        "uid:*, anonymous, or * for everybody"
    )


def _nameserver(text: str) -> str:
    """Check ``192.0.2.1``, ``192.0.2.1:53``, ``2001:db8::1`` or ``[2001:db8::1]:53``."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::([0-9]{1,5}))?", text)
    if bracketed is not None:
        host, port = bracketed[1], bracketed[2]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, None
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a name server; write an IP address, with a port as in "
            "127.0.0.1:53 or [::1]:53"
        ) from None
    if port is not None and not (port.isdigit() and 0 < int(port) <= 65535):
        raise ValueError(f"{text!r}: {port!r} is not a port")
    return text


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network as in 10.0.0.0/8: {error}") from None


def _level(value: object) -> object:
    if value in ("dane", "pin"):
        raise ValueError(
            f"level {value!r} cannot be done by this release; write dane-or-pkix or pkix, which "
            "check the peer's certificate against the trusted authorities"
        )
    return value


def _node_type(value: object) -> object:
    if value == "topic":
        raise ValueError("type 'topic' comes with a later release; write queue")
    return value


def _container_id(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", text):
        raise ValueError(
            f"{text!r} is not a container id; it is 1 to 255 visible ASCII characters, best the "
            "host's full name"
        )
    return text


def _target(text: str) -> str:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", text) if name not in ("node", "domain")]
    stripped = re.sub(r"\{(node|domain)\}", "", text)
    if not text or unknown or "{" in stripped or "}" in stripped:
        raise ValueError(
            f"{text!r} is not a target; write amqp$transfer, anonymous, or a template with "
            "{node} and {domain} in it, as in /queues/{node}"
        )
    if text not in (address.TRANSFER_NODE, "anonymous") and "{node}" not in text:
        raise ValueError(
            f"{text!r} would put the messages for every node into one; write {{node}} where the "
            "name of the node belongs, as in /queues/{node}"
        )
    return text


@dataclass(frozen=True, slots=True)
class Via:
    """Where a route leads: one host and port, and whether TLS starts at once.

    Attributes:
        host: a normalized host name or an IP address.
        port: the TCP port.
        tls: True for ``amqps``; False for ``amqp``, where TLS may follow the AMQP TLS header.
    """

    host: str
    port: int
    tls: bool


def _via(text: str) -> Via:
    try:
        url: SplitResult = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise ValueError(f"this is not a URL: {error}") from None
    host = url.hostname
    if "@" in url.netloc:  # and the text is not repeated: check's output goes into tickets
        raise ValueError(
            "a user or a password has no place here; peers prove who they are by certificate"
        )
    if url.scheme not in ("amqp", "amqps") or not host:
        raise ValueError(f"{text!r} is no next hop; write amqps://HOST:PORT or amqp://HOST:PORT")
    if url.path not in ("", "/") or url.query or url.fragment or port == 0:
        raise ValueError(f"{text!r}: only a host and a port can stand in the URL of a next hop")
    try:
        host = str(ipaddress.ip_address(host))
    except ValueError:
        host = _in_words(address.normalize_domain)(host)
    tls = url.scheme == "amqps"
    return Via(host, port if port is not None else (5671 if tls else 5672), tls)


def _via_text(text: str) -> str:
    _via(text)
    return text


Seconds = Annotated[
    float,
    BeforeValidator(units.parse_seconds),
    PlainSerializer(units.format_seconds, return_type=str, when_used="json"),
]
Bytes = Annotated[
    int,
    BeforeValidator(units.parse_bytes),
    PlainSerializer(units.format_bytes, return_type=str, when_used="json"),
]
FilePath = Annotated[Path, BeforeValidator(_path)]
Trust = Annotated[Path | Literal["system"], BeforeValidator(_trust)]
Domain = Annotated[str, AfterValidator(_in_words(address.normalize_domain))]
DomainPattern = Annotated[str, AfterValidator(_in_words(_domain_pattern))]
NodeName = Annotated[str, AfterValidator(_in_words(_new_name))]
EndpointText = Annotated[str, AfterValidator(_endpoint_text)]


class Settings(BaseModel):
    """What all groups of settings have in common: strict, frozen, dashes in the file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=lambda name: name.replace("_", "-"),
        validate_by_name=True,
        validate_by_alias=True,
    )


class Tls(Settings):
    """The certificate that proves this host's domains, and whom to believe."""

    certificate: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate chain, this host's own certificate first. Its "
        "names have to cover the domains above, for peers check them. Read again on reload.",
    )
    private_key: FilePath | None = Field(
        default=None,
        description="PEM file with the private key of the certificate, without a passphrase and "
        "readable by the daemon only.",
    )
    trust: Trust = Field(
        default="system",
        description="PEM file with the certificate authorities that peers' and clients' "
        "certificates are checked against, or the word system for those of the machine.",
    )


class Listen(Settings):
    """One place where clients and peers connect."""

    endpoint: EndpointText = Field(
        description="A Twisted endpoint description: tcp:PORT, tcp:PORT:interface=ADDRESS, "
        "tcp6:PORT, unix:PATH, or systemd:domain=INET:index=0 for a socket that systemd opened.",
    )
    tls: Literal["none", "upgrade", "implicit"] = Field(
        default="none",
        description="none: no TLS. upgrade: the client may ask for TLS with the AMQP TLS header "
        "(the custom of port 5672). implicit: TLS from the first octet (port 5671).",
    )
    client_certificate: Literal["none", "optional", "required"] = Field(
        default="none",
        description="Whether a certificate is asked of the client. Peers prove their domain by "
        "one, so a place where peers connect needs optional or required.",
    )
    mechanisms: Annotated[tuple[Mechanism, ...], BeforeValidator(_as_tuple)] = Field(
        default=("SCRAM-SHA-256",),
        min_length=1,
        description="The SASL mechanisms offered here: EXTERNAL (the client certificate, or on a "
        "unix socket the user id), SCRAM-SHA-256, PLAIN, ANONYMOUS.",
    )
    max_connections: int = Field(
        default=1000,
        ge=1,
        description="The most connections open here at one time; further ones are closed at once.",
    )

    @property
    def parsed(self) -> Endpoint:
        """The endpoint description, taken apart."""
        return parse_endpoint(self.endpoint)


class Users(Settings):
    """Who may log in with a password."""

    file: FilePath = Field(
        default=Path("/etc/amqproute/users.yaml"),
        description="The file with the users' salted hashes. Read again on reload. It may be "
        "missing as long as this setting is not given: then nobody can log in with a password.",
    )


class Access(Settings):
    """One rule of who may do what."""

    allow: Annotated[tuple[Right, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="The rights this rule gives: publish, consume, create, transfer (hand over "
        "messages from another broker), browse, manage.",
    )
    deny: Annotated[tuple[Right, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="The rights this rule refuses, whatever a later rule gives.",
    )
    who: Annotated[str, AfterValidator(_who)] = Field(
        description="user:NAME or user:* (a password), peer:DOMAIN, peer:*.DOMAIN or peer:* (a "
        "verified certificate), uid:NUMBER or uid:* (a unix socket), anonymous, or * for "
        "everybody.",
    )
    node: str = Field(
        default="*",
        min_length=1,
        description="The node or address the rule is about; * stands for any run of characters.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.allow and not self.deny:
            raise ValueError("gives and refuses nothing; write allow or deny with a list of rights")
        both = sorted(set(self.allow) & set(self.deny))
        if both:
            raise ValueError(f"{both[0]} is both allowed and denied")
        return self


class Node(Settings):
    """One node that is there from the start."""

    name: NodeName = Field(
        description="The node's name. It starts with a letter a-z or A-Z, a digit or an "
        "underscore and has no at sign in it.",
    )
    type: Annotated[Literal["queue"], BeforeValidator(_node_type)] = Field(
        default="queue",
        description="queue: each message goes to one consumer, and waits until there is one.",
    )
    capacity: int | None = Field(
        default=None,
        ge=1,
        description="The most messages the queue holds; a full queue gives producers no more "
        "credit. null: as many as the disk takes.",
    )
    max_deliveries: int | None = Field(
        default=None,
        ge=1,
        description="After this many failed deliveries a message goes to the dead-letter node, "
        "or is dropped if there is none. null: it is tried for ever.",
    )
    dead_letter: str | None = Field(
        default=None,
        description="The node or alias that takes messages which are rejected, expired, or "
        "failed too often. null: they are dropped.",
    )
    ttl: Seconds | None = Field(
        default=None,
        gt=0,
        description="The longest time a message stays here, even if it brought a longer life "
        "with it. null: as long as the message itself says.",
    )


class Resolver(Settings):
    """How the DNS is asked where a domain's broker is."""

    nameservers: Annotated[
        tuple[Annotated[str, AfterValidator(_nameserver)], ...], BeforeValidator(_as_tuple)
    ] = Field(
        default=(),
        description="The name servers to ask, as IP address with an optional port. Empty: those "
        "of /etc/resolv.conf.",
    )
    dnssec: Literal["use", "require", "off"] = Field(
        default="use",
        description="use: believe the AD bit of the name server. require: send nothing to a "
        "domain whose answer is not marked authentic. off: ignore the bit. Whichever is set, the "
        "way to the name server has to be trusted, best a resolver on this machine.",
    )
    deny_targets: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...], BeforeValidator(_as_tuple)
    ] = Field(
        default=(),
        description="Networks that no domain's records may lead into, as in 10.0.0.0/8: a "
        "stranger's DNS zone then cannot make this host connect to its own neighbors.",
    )
    timeout: Seconds = Field(
        default=5.0,
        gt=0,
        le=120,
        description="How long one question may take, over all name servers.",
    )
    cache_entries: int = Field(
        default=10000,
        ge=1,
        description="The most domains whose answers are remembered.",
    )
    cache_longest: Seconds = Field(
        default=DAY,
        gt=0,
        description="No answer is remembered longer than this, whatever its TTL.",
    )
    cache_longest_negative: Seconds = Field(
        default=300.0,
        gt=0,
        description="The same for the answer that there is no such domain or record.",
    )


class Route(Settings):
    """A way to some domains that DNS does not tell."""

    domain: DomainPattern = Field(
        description="beta.example, *.example (every domain below it, not itself), or *.",
    )
    via: Annotated[str, AfterValidator(_via_text)] | None = Field(
        default=None,
        description="The next hop as amqps://HOST:PORT (TLS at once) or amqp://HOST:PORT. null: "
        "found through DNS, as without the route.",
    )
    target: Annotated[str, AfterValidator(_target)] = Field(
        default=address.TRANSFER_NODE,
        description="Where the next hop takes the messages: amqp$transfer, anonymous (the "
        "anonymous terminus), or a template such as /queues/{node} for brokers of other makes.",
    )
    names: Annotated[tuple[Domain, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="Names the next hop's certificate may show besides the domain itself; give "
        "the host of via here if the gateway proves its own name.",
    )

    @property
    def next_hop(self) -> Via | None:
        """The URL taken apart; None if DNS decides."""
        return None if self.via is None else _via(self.via)


class Peer(Settings):
    """What is asked of, and allowed to, the brokers of a domain."""

    level: Annotated[Level, BeforeValidator(_level)] = Field(
        default="dane-or-pkix",
        description="What a next hop has to prove before it gets a message. pkix: a certificate "
        "of a trusted authority with the domain in it. dane-or-pkix: in this release the same as "
        "pkix. tls: encryption only, the certificate is not checked. none: nothing. tls and none "
        "let an attacker on the way read and take the messages.",
    )
    relay_for: Annotated[tuple[DomainPattern, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="Other domains this peer may send to through this broker. Empty: it reaches "
        "the nodes of this broker only.",
    )


class Relay(Settings):
    """How messages for other domains are sent on."""

    lifetime: Seconds = Field(
        default=5 * DAY,
        gt=0,
        description="How long delivery is tried before the message is given up as expired.",
    )
    first_retry: Seconds = Field(
        default=1.0,
        gt=0,
        description="The pause after the first failure; it doubles with each further one.",
    )
    last_retry: Seconds = Field(
        default=300.0,
        gt=0,
        description="The longest pause between two attempts.",
    )
    max_hops: int = Field(
        default=16,
        ge=1,
        le=255,
        description="A message that passed this many brokers is refused: it goes in a circle.",
    )
    window: int = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The most messages on the way to one destination whose outcome is unknown.",
    )
    idle_timeout: Seconds = Field(
        default=60.0,
        gt=0,
        description="A connection to a peer with nothing to send is closed after this time.",
    )
    connect_timeout: Seconds = Field(
        default=30.0,
        gt=0,
        description="The time for one host to connect, do TLS and SASL, and attach the link.",
    )
    receipt_lifetime: Seconds = Field(
        default=7 * DAY,
        gt=0,
        description="How long a message from a peer is remembered, so that its repetition after "
        "a crash is not enqueued twice. Keep it above the lifetime your peers have set.",
    )


class Limits(Settings):
    """Bounds that keep one client from using up the daemon."""

    max_frame_size: Bytes = Field(
        default=65536,
        ge=512,
        le=16 * MEBIBYTE,
        description="The largest frame taken; it is announced to the other end.",
    )
    max_message_size: Bytes = Field(
        default=16 * MEBIBYTE,
        ge=1024,
        le=1024 * MEBIBYTE,
        description="The largest message taken; it is announced on each link.",
    )
    max_connections: int = Field(
        default=10000,
        ge=1,
        description="The most connections of clients and peers at one time, all places together.",
    )
    max_sessions: int = Field(
        default=256,
        ge=1,
        le=65536,
        description="The most sessions on one connection.",
    )
    max_links: int = Field(
        default=1024,
        ge=1,
        le=65536,
        description="The most links on one session.",
    )
    handshake_timeout: Seconds = Field(
        default=15.0,
        gt=0,
        description="A connection has to be through TLS and SASL and opened in this time.",
    )
    idle_timeout: Seconds = Field(
        default=60.0,
        ge=1,
        description="A connection that is silent this long is closed; it is announced, and the "
        "other end sends empty frames in time.",
    )
    link_credit: int = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The credit given to a link that sends to this broker.",
    )
    session_window: int = Field(
        default=4096,
        ge=1,
        le=1000000,
        description="The transfer frames a session may have under way in each direction.",
    )
    unsettled_per_link: int = Field(
        default=5000,
        ge=1,
        le=1000000,
        description="The most deliveries to one consumer that it has not settled; it gets no "
        "more until it does, whatever its credit.",
    )
    output_buffer: Bytes = Field(
        default=MEBIBYTE,
        ge=4096,
        description="The octets that may wait for one connection's other end to read; above "
        "this nothing more is sent to it.",
    )
    queue_memory_messages: int = Field(
        default=10000,
        ge=1,
        description="The messages of one queue kept in memory; the rest stays on disk.",
    )
    queue_memory_bytes: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=65536,
        description="The octets of one queue's messages kept in memory.",
    )
    max_nodes: int = Field(
        default=100000,
        ge=1,
        description="The most nodes, those of clients and those made by the relay together.",
    )


class Journal(Settings):
    """The audit journal. Its settings are taken and kept for the release that writes it."""

    segment_bytes: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=4096,
        description="A segment is closed at this size. Reserved for the audit journal.",
    )
    segment_seconds: Seconds = Field(
        default=60.0,
        gt=0,
        description="A segment is closed at this age. Reserved for the audit journal.",
    )


class Management(Settings):
    """Metrics and health over HTTP. The setting is taken and kept for the release that has it."""

    http: EndpointText | None = Field(
        default=None,
        description="Endpoint description of the HTTP service, as in "
        "tcp:9672:interface=127.0.0.1. null: there is none. Reserved.",
    )


class Log(Settings):
    """What the daemon says about itself."""

    format: Literal["auto", "text", "json"] = Field(
        default="auto",
        description="text: a line for people. json: an object on each line. auto: text on a "
        "terminal or under systemd, json otherwise.",
    )
    level: Literal["debug", "info", "warn", "error"] = Field(
        default="info",
        description="The least important level that is written.",
    )


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration comes from. All sources are equal: it is no setting.

    Attributes:
        path: the file; None for a configuration made in the program.
        lines: the line on which each given key stands, by path, as in ``("relay", "window")``.
    """

    path: Path | None = field(default=None, compare=False)
    lines: Mapping[tuple[str | int, ...], int] = field(
        default_factory=dict, compare=False, repr=False
    )


class Config(Settings):
    """The whole configuration."""

    container_id: Annotated[str, AfterValidator(_container_id)] | None = Field(
        default=None,
        description="The name of this broker in the protocol, different from every other "
        "broker's. null: made once and kept in the state directory.",
    )
    domains: Annotated[tuple[Domain, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="The domains whose nodes live here: orders@alpha.example is the node orders "
        "of this broker if alpha.example is in the list.",
    )
    state_directory: FilePath = Field(
        default=Path("/var/lib/amqproute"),
        description="The directory of the store and of the container id. Only one daemon uses it "
        "at a time.",
    )
    tls: Tls = Field(default=Tls(), description=Tls.__doc__)
    listen: Annotated[tuple[Listen, ...], BeforeValidator(_as_tuple)] = Field(
        default=(
            Listen(endpoint="unix:/run/amqproute/amqproute.sock", mechanisms=("EXTERNAL",)),
            Listen(endpoint="tcp:5672:interface=127.0.0.1", mechanisms=("SCRAM-SHA-256",)),
        ),
        description="Where clients and peers connect. The command line looks for a unix socket "
        "here.",
    )
    users: Users = Field(default=Users(), description=Users.__doc__)
    access: Annotated[tuple[Access, ...], BeforeValidator(_as_tuple)] = Field(
        default=(
            Access(
                allow=("publish", "consume", "create", "transfer", "browse", "manage"), who="uid:0"
            ),
            Access(allow=("publish", "consume", "create", "browse"), who="user:*"),
        ),
        description="Who may do what. The first rule decides whose who and node match and "
        "that names the right; what no rule gives is refused, but root and the daemon's own "
        "user may always manage unless a rule denies it. Peers need a rule with transfer before "
        "they can deliver here.",
    )
    nodes: Annotated[tuple[Node, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="Nodes that are made at the start if they are not there.",
    )
    aliases: dict[NodeName, NodeName] = Field(
        default={},
        description="Further names of nodes, as in sales: orders.",
    )
    resolver: Resolver = Field(default=Resolver(), description=Resolver.__doc__)
    routes: Annotated[tuple[Route, ...], BeforeValidator(_as_tuple)] = Field(
        default=(),
        description="Ways to domains, looked at before DNS; the first that matches is taken.",
    )
    peers: Annotated[dict[DomainPattern, Peer], BeforeValidator(_distinct_domains)] = Field(
        default={},
        description="What is asked of peers, by domain. The exact domain is looked at first, "
        "then the longest *.DOMAIN, then *.",
    )
    relay: Relay = Field(default=Relay(), description=Relay.__doc__)
    limits: Limits = Field(default=Limits(), description=Limits.__doc__)
    journal: Journal = Field(default=Journal(), description=Journal.__doc__)
    management: Management = Field(default=Management(), description=Management.__doc__)
    log: Log = Field(default=Log(), description=Log.__doc__)
    shutdown_timeout: Seconds = Field(
        default=30.0,
        gt=0,
        description="How long a stop waits for deliveries under way; what is not settled by then "
        "stays in the store and is delivered again.",
    )
    # Private, for it is no setting: it stands in no file, and configurations that differ in it
    # only are equal.
    _source: Source = PrivateAttr(default=Source())

    @property
    def source(self) -> Source:
        """The file and the lines the settings come from."""
        return self._source

    @property
    def local_domains(self) -> frozenset[str]:
        """The normalized domains whose nodes live here, the container id's name included."""
        names = set(self.domains)
        if self.container_id is not None:
            try:
                names.add(address.normalize_domain(self.container_id))
            except AmqpError:
                pass  # a container id need not be a domain name
        return frozenset(names)

    def peer_for(self, domain: str) -> Peer:
        """Find what holds for a normalized domain: itself, the longest wildcard, or the default."""
        exact = self.peers.get(domain)
        if exact is not None:
            return exact
        best = max((p for p in self.peers if matches_domain(p, domain)), key=len, default=None)
        return Peer() if best is None else self.peers[best]

    def with_source(self, source: Source) -> Self:
        """Return the same settings with a note of where they stand."""
        copy = self.model_copy()
        copy._source = source
        return copy
