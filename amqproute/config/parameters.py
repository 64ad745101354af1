# SPDX-License-Identifier: Apache-2.0
"""Every setting: its name, type, unit, default and one paragraph that says what it does.

This module is the only place where a setting is described. The loader checks files against it,
`etc/amqproute.yaml` is generated from it, and the daemon receives its objects. Add a setting
here, run ``python -m amqproute.config > etc/amqproute.yaml``, and nothing else needs to know.

In Python the names have underscores (``config.relay.first_retry``), in the file dashes
(``first-retry``). Durations are seconds (float), sizes are bytes (int). All models are frozen.

The types, with their checks, are those of `amqproute.config.fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from amqproute import address
from amqproute.config.endpoint import Endpoint, parse_endpoint
from amqproute.config.fields import (
    SYSTEM_TRUST,
    BoundTarget,
    Bytes,
    BytesOrPart,
    ContainerId,
    ContractHolder,
    DistinctDomains,
    Domain,
    DomainPattern,
    EndpointText,
    FilePath,
    FromList,
    Level,
    Mechanism,
    Nameserver,
    Network,
    NodeName,
    NodeType,
    PinText,
    ProbeZone,
    ReportWord,
    Right,
    Seconds,
    Target,
    Trust,
    Via,
    ViaText,
    Who,
    matches_domain,
    parse_via,
)
from amqproute.errors import AmqpError

__all__ = [
    "SYSTEM_TRUST",
    "Access",
    "Binding",
    "Config",
    "Contract",
    "Journal",
    "Limits",
    "Listen",
    "Log",
    "Management",
    "Node",
    "Peer",
    "Relay",
    "Reports",
    "Resolver",
    "Route",
    "Settings",
    "Source",
    "Store",
    "Tls",
    "Users",
    "Via",
    "matches_domain",
]

DAY: Final = 86400.0
HOUR: Final = 3600.0
MEBIBYTE: Final = 2**20


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


class Inheriting(Settings):
    """An entry whose settings, where it does not give them, are those of a wider entry.

    So a setting without a value is not the same as none: it is the built-in default.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_value(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {key: cls._default(key) if value is None else value for key, value in given.items()}

    @classmethod
    def _default(cls, key: object) -> object:
        for info in cls.model_fields.values():
            if info.alias == key:
                group = info.default
                if isinstance(group, Inheriting):  # with all of its settings, each as given
                    return {each.alias: None for each in type(group).model_fields.values()}
                return group
        return None

    def over(self, wider: Self) -> Self:
        """Return these settings, with those of a wider entry where they are not given."""
        update: dict[str, object] = {}
        for name in self.model_fields_set:
            value, under = getattr(self, name), getattr(wider, name)
            is_group = isinstance(value, Inheriting)
            update[name] = value.over(under) if is_group else value
        return wider.model_copy(update=update)


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
    crl: Annotated[tuple[FilePath, ...], FromList] = Field(
        default=(),
        description="PEM or DER files with certificate revocation lists. A certificate they name "
        "is refused in both directions, whatever else speaks for it. Authorities without a list "
        "are not held against their certificates.",
    )
    watch: Seconds = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="How often the files above are looked at. Changed ones are read when they have "
        "stood still for one more look; a pair that does not fit is refused and the old one stays.",
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
    mechanisms: Annotated[tuple[Mechanism, ...], FromList] = Field(
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


class Contract(Inheriting):
    """What one sender may ask of this broker, over all of its connections. null: no bound."""

    connections: int | None = Field(
        default=None,
        ge=1,
        description="The most connections at one time; one more is refused.",
    )
    links: int | None = Field(
        default=None,
        ge=1,
        description="The most links at one time; one more is refused.",
    )
    credit: int | None = Field(
        default=None,
        ge=1,
        description="The most messages granted, or on their way to the disk, over all links.",
    )
    messages_per_second: float | None = Field(
        default=None,
        gt=0,
        description="The most messages taken from it in a second, after a second's worth at "
        "once: it is given less credit, and nothing is refused to who keeps to it.",
    )
    bytes_per_second: Bytes | None = Field(
        default=None,
        ge=1,
        description="The same for the octets of messages.",
    )
    spool: Bytes | None = Field(
        default=None,
        ge=4096,
        description="What its messages may occupy here until they are consumed or relayed. From "
        "three quarters on it is given less and less credit, at the end none.",
    )
    max_message_size: Bytes | None = Field(
        default=None,
        ge=1024,
        description="The largest message taken from it, if that is less than limits has; it is "
        "announced on each link.",
    )


class Users(Settings):
    """Who may log in with a password."""

    file: FilePath = Field(
        default=Path("/etc/amqproute/users.yaml"),
        description="The file with the users' salted hashes. Read again on reload. It may be "
        "missing as long as this setting is not given: then nobody can log in with a password.",
    )


class Access(Settings):
    """One rule of who may do what."""

    allow: Annotated[tuple[Right, ...], FromList] = Field(
        default=(),
        description="The rights this rule gives: publish, consume, create, transfer (hand over "
        "messages from another broker), browse, manage, impersonate (send messages whose user-id "
        "is the name that `node` matches).",
    )
    deny: Annotated[tuple[Right, ...], FromList] = Field(
        default=(),
        description="The rights this rule refuses, whatever a later rule gives.",
    )
    who: Who = Field(
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
    type: NodeType = Field(
        default="queue",
        description="queue: each message goes to one consumer, and waits until there is one. "
        "topic: each message goes to every subscriber there is, and to none if there is none; a "
        "durable subscription is a subscriber that collects while it is away.",
    )
    capacity: int | None = Field(
        default=None,
        ge=1,
        description="The most messages the queue holds; a full queue gives producers no more "
        "credit. For a topic: the same for each durable subscription. null: as many as the disk "
        "takes.",
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
    priorities: int = Field(
        default=10,
        ge=1,
        le=10,
        description="Queues: how many priorities are told apart. 1: messages leave in the order of "
        "their arrival, whatever priority they have.",
    )
    message_durability_mode: Literal["message", "force-durable", "force-transient"] = Field(
        default="message",
        description="Queues: message: those messages are stored that ask for it. force-durable: "
        "all. force-transient: none has to be there after a restart; what was stored before this "
        "was set still is.",
    )
    durable_on_transient: Literal["accept", "reject"] = Field(
        default="accept",
        description="Queues: whether a force-transient queue takes durable messages, which it "
        "will lose if the daemon ends.",
    )
    duplicate_policy: Literal["global-ids", "all", "off"] = Field(
        default="global-ids",
        description="Queues: a message whose message-id the queue holds already is accepted and "
        "dropped. global-ids: ids that are uuids, binary or strings. all: numbers too, although "
        "many clients count from 1 in each run. off: every message is kept.",
    )
    non_transactional_support: Literal["all", "unsupported", "only"] = Field(
        default="all",
        description="Queues: unsupported: messages with the annotation x-opt-non-transacted are "
        "refused. only: messages that are part of a transaction are refused. all: neither.",
    )
    maximum_destructive_links: int | None = Field(
        default=None,
        ge=0,
        description="Queues: the most consumers at one time; browsers are not counted. 0: it can "
        "be browsed only. null: no limit.",
    )
    excess_destructive_link_policy: Literal["fail", "wait"] = Field(
        default="fail",
        description="Queues: what becomes of one consumer more. fail: it is refused. wait: it "
        "gets nothing until another has gone.",
    )
    archive_expired: bool = Field(
        default=True,
        description="Queues: whether messages whose time is over are taken away, to the "
        "dead-letter node if there is one. false: those that arrive from now on stay and are "
        "delivered late.",
    )
    archive_currently_unreachable: bool = Field(
        default=False,
        description="Queues: a message goes as soon as no link needs it: every browser has "
        "accepted or rejected it or does not select it, and no consumer wants it. While no link "
        "is attached everything goes at once.",
    )
    visibility: Literal["both", "inbound", "outbound"] = Field(
        default="both",
        description="Queues: inbound: clients can only send to it. outbound: they can only "
        "receive from it. Bindings and dead letters pass either way.",
    )
    default_outcomes: Annotated[
        tuple[Literal["accepted", "rejected", "released", "modified"], ...], FromList
    ] = Field(
        default=("released", "accepted", "rejected", "modified"),
        min_length=1,
        description="Queues: what consumers may choose to become of messages they hold when they "
        "vanish. A consumer that does not choose gets released if it is in the list, else the "
        "first.",
    )
    subscriber_buffer: int = Field(
        default=1000,
        ge=1,
        le=1000000,
        description="Topics: the most messages that wait in memory for one subscriber that is not "
        "durable.",
    )
    subscriber_buffer_bytes: Bytes = Field(
        default=8 * MEBIBYTE,
        ge=4096,
        description="Topics: the most octets of these messages.",
    )
    subscriber_full: Literal["drop", "wait"] = Field(
        default="drop",
        description="Topics: what a full buffer does. drop: the oldest message goes and is "
        "counted. wait: producers get no credit until the subscriber has caught up.",
    )
    last_value: int = Field(
        default=0,
        ge=0,
        le=100000,
        description="Topics: so many of the newest messages are kept in memory, and given to each "
        "new subscriber first. Durable ones survive a restart.",
    )
    last_value_key: str | None = Field(
        default=None,
        min_length=1,
        description="Topics: the application property for each value of which last-value messages "
        "are kept, as in symbol for prices. null: for the topic as a whole.",
    )
    unroutable: Literal["accept", "reject"] = Field(
        default="accept",
        description="Topics: what becomes of a message that no subscriber wants. accept: it is "
        "accepted and gone. reject: its sender is told.",
    )


class Binding(Settings):
    """One way from a node to another one, along which this broker passes messages on."""

    source: NodeName = Field(
        description="The node or alias the messages come from. From a topic the target gets a "
        "copy; from a queue messages are moved, in fair shares with the queue's consumers.",
    )
    target: BoundTarget = Field(
        description="The node or alias they go to, or NODE@DOMAIN at another organization. A full "
        "target stops the binding; on a topic it stops the producers.",
    )
    filter: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="A selector over the messages, as in color = 'red' AND size > 3. null: all.",
    )
    subject: str | None = Field(
        default=None,
        max_length=255,
        description="Only messages with this subject; * stands for one of its words, # for any "
        "number, as in orders.*.eu or orders.# (words have dots between them). null: all.",
    )
    mode: Literal["copy", "move"] | None = Field(
        default=None,
        description="copy from a topic, move from a queue; it may be left out.",
    )


class Resolver(Settings):
    """How the DNS is asked where a domain's broker is."""

    nameservers: Annotated[tuple[Nameserver, ...], FromList] = Field(
        default=(),
        description="The name servers to ask, as IP address with an optional port. Empty: those "
        "of /etc/resolv.conf.",
    )
    dnssec: Literal["use", "require", "off"] = Field(
        default="use",
        description="use: where a domain's records are signed and valid, believe them: names of "
        "SRV targets, TLSA records. require: send nothing to a domain whose records are not. off: "
        "never mind. Records that fail validation keep messages waiting in any case.",
    )
    validate_by: Literal["resolver", "self"] = Field(
        default="resolver",
        alias="validate",
        description="Who validates. resolver: the name server, which says so with the AD bit; it "
        "is believed on loopback, and where trusted names it. self: this daemon, from the trust "
        "anchors down; any name server will do that passes signatures on.",
    )
    trusted: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="Networks of name servers whose AD bit is believed although they are not on "
        "this machine. The whole way there has to be trusted: anybody on it can set the bit.",
    )
    anchors: FilePath | None = Field(
        default=None,
        description="File with the trust anchors for validate: self, as DS or DNSKEY records. "
        "null: the root keys of IANA that came with this release.",
    )
    dnssec_probe: ProbeZone = Field(
        default=".",
        description="A zone that is signed for certain. Where it does not come with DNSSEC the "
        "name servers do not pass DNSSEC on, which is told as dns.not-dnssec-capable.",
    )
    deny_targets: Annotated[tuple[Network, ...], FromList] = Field(
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
    via: ViaText | None = Field(
        default=None,
        description="The next hop as amqps://HOST:PORT (TLS at once) or amqp://HOST:PORT. null: "
        "found through DNS, as without the route.",
    )
    target: Target = Field(
        default=address.TRANSFER_NODE,
        description="Where the next hop takes the messages: amqp$transfer, anonymous (the "
        "anonymous terminus), or a template such as /queues/{node} for brokers of other makes.",
    )
    names: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="Names the next hop's certificate may show instead of the one that is "
        "asked for: the host of via, or the domain where DNS decides. Needed if via is an address.",
    )

    @property
    def next_hop(self) -> Via | None:
        """The URL taken apart; None if DNS decides."""
        return None if self.via is None else parse_via(self.via)


class Peer(Inheriting):
    """What is asked of, and allowed to, the brokers of a domain."""

    level: Level = Field(
        default="dane-or-pkix",
        description="What a next hop has to prove before it gets a message. dane: it fits TLSA "
        "records in signed DNS. dane-or-pkix: that, where there are usable ones; else a "
        "certificate of a trusted authority that names the domain, or its SRV target if DNSSEC "
        "proves it. pkix: such a certificate with the domain in it, whatever the DNS says. pin: a "
        "certificate or key listed under pin. tls: encryption to whoever answers. none: not even "
        "that. A peer that connects here has to prove its domain likewise, by pkix at least.",
    )
    pin: Annotated[tuple[PinText, ...], FromList] = Field(
        default=(),
        description="For level pin: sha256:HEX of the certificate, or key-sha256:HEX of its key, "
        "which outlives a renewal. Names and dates do not matter then. Any of the list will do.",
    )
    container_id: ContainerId | None = Field(
        default=None,
        description="The name of the peer's broker in the protocol; an address may then name the "
        "broker instead of the domain. null: only the domain counts.",
    )
    relay_for: Annotated[tuple[DomainPattern, ...], FromList] = Field(
        default=(),
        description="Other domains this peer may send to through this broker. Empty: it reaches "
        "the nodes of this broker only.",
    )
    origins: Annotated[tuple[DomainPattern, ...], FromList] = Field(
        default=(),
        description="Other domains this peer may hand over messages from, and return addresses "
        "of: what it relays for. Empty: a message from it comes from the names its certificate "
        "proves, or it is refused with the code policy.origin.",
    )
    messages_per_second: float | None = Field(
        default=None,
        gt=0,
        description="The most messages sent to this peer in a second, after a second's worth at "
        "once. null: as many as it takes.",
    )
    bytes_per_second: Bytes | None = Field(
        default=None,
        ge=1,
        description="The same for the octets of messages, for thin lines.",
    )
    suppress_duplicates: bool = Field(
        default=False,
        description="A message of this peer whose message-id it has sent before is accepted and "
        "not kept a second time. For brokers of other makes: between two of this make each "
        "message is known by the id it has in its sender's store. Remembered are the ids of the "
        "last 200000 messages, for receipt-lifetime at most.",
    )
    contract: Contract = Field(
        default=Contract(),
        description="What this peer may ask of this broker, with its messages for us and through "
        "us, over all of its connections; each peer that the entry fits for itself. It has the "
        "settings of an entry under contracts; null: no bound.",
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
    window_bytes: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=65536,
        description="The same for their octets, which stay in memory until the outcome is known.",
    )
    dead_after: int = Field(
        default=3,
        ge=1,
        description="Failed attempts in a row after which a destination counts as dead: the log "
        "warns, little of its backlog stays in memory, and it begins anew with a small window.",
    )
    settle_timeout: Seconds = Field(
        default=120.0,
        gt=0,
        description="A peer that leaves a message without an outcome for this long is stuck: the "
        "connection is made again, and what is in doubt is sent again.",
    )
    connects_per_second: float = Field(
        default=50.0,
        gt=0,
        description="The most connections begun in a second, over all destinations, so that a "
        "restart with many backlogs is no storm.",
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
    dead_letter: NodeName | None = Field(
        default=None,
        description="The node or alias that takes messages which a peer has refused for good, or "
        "which could not be delivered within the lifetime. A message that asks to be returned "
        "goes back to its sender instead. null: they are dropped, with a line in the log.",
    )
    reply_aliases: bool = Field(
        default=True,
        description="Write the reply-to of a client's message that leaves for another domain, if "
        "it names a node here without a domain, as an address that leads back: an alias that "
        "nobody can guess. The reply needs no access rule. false: reply-to is never touched.",
    )
    reply_grace: Seconds = Field(
        default=300.0,
        ge=0,
        description="How long such an alias still takes replies after the link has ended on which "
        "the request came.",
    )
    receipt_lifetime: Seconds = Field(
        default=7 * DAY,
        gt=0,
        description="How long a message from a peer is remembered, so that its repetition after "
        "a crash is not enqueued twice. Keep it above the lifetime your peers have set.",
    )


class Reports(Settings):
    """What senders are told, at the return address of a message, of what became of it."""

    default: Annotated[tuple[ReportWord, ...], FromList] = Field(
        default=("failure", "delay", "return"),
        description="What is sent where a message has a return address and does not say what it "
        "wants: failure, delay, relayed, delivered (reports), return (the message itself, when it "
        "is given up).",
    )
    delay_after: Seconds = Field(
        default=4 * HOUR,
        ge=1,
        description="A message that has waited this long for its next hop is reported as delayed, "
        "once.",
    )
    lifetime: Seconds = Field(
        default=2 * DAY,
        gt=0,
        le=49 * DAY,
        description="How long delivery of a report is tried before it goes to relay.dead-letter.",
    )


class Store(Settings):
    """When the disk is as good as full: publishers, clients and peers alike, get no credit then;
    nobody is refused and nothing is lost. It goes on by itself when there is room again."""

    min_free: BytesOrPart | None = Field(
        default=None,
        description="The room that stays free on the file system of the state directory, as a size "
        "or as a part of it, as in 5%. Below it publishers get no credit; consumers and the relay "
        "go on. null: 5 % of the file system, but 1GiB at most. 0: no floor.",
    )
    max_bytes: Bytes | None = Field(
        default=None,
        ge=1048576,
        description="What the messages in the store may come to. Above it publishers get no "
        "credit. null: as much as the disk holds.",
    )


class Limits(Settings):
    """Bounds that keep one client from using up the daemon."""

    max_frame_size: Bytes = Field(
        default=262144,
        ge=512,
        le=16 * MEBIBYTE,
        description="The largest frame taken; it is announced to the other end. A message that "
        "fits into one frame costs about half of one that has to be cut.",
    )
    max_message_size: Bytes | None = Field(
        default=None,
        ge=1024,
        description="The largest message taken; it is announced on each link. Large ones stand on "
        "the disk, not in memory. null: as large as the disk.",
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
    resume_timeout: Seconds = Field(
        default=3600.0,
        ge=1,
        le=604800,
        description="The longest that a link which is detached, and not closed, may come back. Its "
        "client may ask for less. Until then the messages that it had not settled are kept for it.",
    )
    transaction_timeout: Seconds = Field(
        default=120.0,
        ge=1,
        description="A client's transaction in which nothing happens for this long is rolled back.",
    )
    output_buffer: Bytes = Field(
        default=MEBIBYTE,
        ge=4096,
        description="The octets that may wait for one connection's other end to read; above "
        "this nothing more is sent to it.",
    )
    memory: Bytes = Field(
        default=512 * MEBIBYTE,
        ge=16 * MEBIBYTE,
        description="The octets of messages that may be on their way in memory, all connections "
        "together: received and not yet on the disk, or not yet complete. Above it publishers get "
        "no credit. As many may be with receivers, consumers and other domains, that have not "
        "settled them; from half of that on each gets its part. What queues keep in memory comes "
        "on top.",
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


class DistributedTransactions(Settings):
    """Branches of XA transactions, prepared and committed at amqp$dtxCoordinator."""

    enabled: bool = Field(
        default=False,
        description="Offer them. Who may use them is said under access, with the right manage "
        "and the node amqp$dtxCoordinator.",
    )
    max_branches: int = Field(
        default=1000,
        ge=1,
        le=10000,
        description="The most branches at one time, those that are prepared or were resolved by "
        "an operator among them.",
    )
    timeout: Seconds = Field(
        default=120.0,
        ge=1,
        description="A branch in which nothing happens for this long is rolled back, unless it "
        "is prepared or its transaction manager has asked for another time.",
    )
    memory: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=65536,
        description="The octets of all messages sent in branches that are not resolved.",
    )
    warn_after: Seconds = Field(
        default=600.0,
        ge=1,
        description="The log tells of branches that have been prepared for this long, and again "
        "after as long: what they hold, nobody gets.",
    )


class Journal(Settings):
    """The audit journal: what happened to every message, without its body, in the folder `journal`
    of the state directory."""

    enabled: bool = Field(
        default=True,
        description="Keep a journal. It is read at the start only.",
    )
    segment_bytes: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=4096,
        description="A segment is closed at this size, and moved to the folder of its day.",
    )
    segment_seconds: Seconds = Field(
        default=60.0,
        gt=0,
        description="The same for its age: so old is the journal that other programs see.",
    )
    keep: Seconds | None = Field(
        default=90 * DAY,
        ge=DAY,
        description="How long closed segments are kept after their day. null: for ever.",
    )
    max_bytes: Bytes | None = Field(
        default=None,
        ge=MEBIBYTE,
        description="What closed segments may come to; the oldest go first. null: a fifth of the "
        "file system.",
    )
    stock_seconds: Seconds = Field(
        default=HOUR,
        ge=1,
        description="How often the journal says which messages are there; what has begun, has not "
        "ended and is not there is lost.",
    )
    on_full: Literal["stop", "count"] = Field(
        default="stop",
        description="What happens while the journal cannot be written. stop: publishers, clients "
        "and peers alike, get no credit; what is here is still delivered. count: everything goes "
        "on, and records that find no room in memory are lost and counted.",
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

    container_id: ContainerId | None = Field(
        default=None,
        description="The name of this broker in the protocol, different from every other "
        "broker's. null: made once and kept in the state directory.",
    )
    domains: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="The domains whose nodes live here: orders@alpha.example is the node orders "
        "of this broker if alpha.example is in the list.",
    )
    state_directory: FilePath = Field(
        default=Path("/var/lib/amqproute"),
        description="The directory of the store and of the container id. Only one daemon uses it "
        "at a time.",
    )
    strict_hostname: bool = Field(
        default=False,
        description="Refuse connections whose open names a host that is none of the domains. "
        "false: they are served like any other.",
    )
    qualify_dynamic: bool = Field(
        default=False,
        description="Give dynamic nodes out as NAME@DOMAIN with the first of the domains, so "
        "that a reply finds its way from another organization's broker too.",
    )
    alias_to: Literal["insert", "require"] = Field(
        default="insert",
        description="What is done with a message without a `to` on a link to NODE@DOMAIN. "
        "insert: it is supplied. require: the message is refused.",
    )
    unsupported_filter: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="What is done with a consumer that asks for a filter of an unknown kind. "
        "refuse: its link is refused. drop: it gets the link without that filter, and the answer "
        "says so.",
    )
    tls: Tls = Field(default=Tls(), description=Tls.__doc__)
    listen: Annotated[tuple[Listen, ...], FromList] = Field(
        default=(
            Listen(endpoint="unix:/run/amqproute/amqproute.sock", mechanisms=("EXTERNAL",)),
            Listen(endpoint="tcp:5672:interface=127.0.0.1", mechanisms=("SCRAM-SHA-256",)),
        ),
        description="Where clients and peers connect. The command line looks for a unix socket "
        "here.",
    )
    users: Users = Field(default=Users(), description=Users.__doc__)
    access: Annotated[tuple[Access, ...], FromList] = Field(
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
    nodes: Annotated[tuple[Node, ...], FromList] = Field(
        default=(),
        description="Nodes that are made at the start if they are not there.",
    )
    aliases: dict[NodeName, NodeName] = Field(
        default={},
        description="Further names of nodes, as in sales: orders.",
    )
    bindings: Annotated[tuple[Binding, ...], FromList] = Field(
        default=(),
        description="Ways between nodes along which messages are passed on.",
    )
    resolver: Resolver = Field(default=Resolver(), description=Resolver.__doc__)
    routes: Annotated[tuple[Route, ...], FromList] = Field(
        default=(),
        description="Ways to domains, looked at before DNS; the first that matches is taken.",
    )
    peers: Annotated[dict[DomainPattern, Peer], DistinctDomains] = Field(
        default={},
        description="What is asked of peers, by domain. What the entry of a domain does not say "
        "is as under the longest *.DOMAIN that fits and says it, then as under *, then the "
        "default; so it is with each setting of contract too. A key without a value is the "
        "default again, whatever wider entries say.",
    )
    contracts: dict[ContractHolder, Contract] = Field(
        default={},
        description="What clients may ask of this broker, by user:NAME, user:* for all other "
        "users, each for himself, and anonymous; over all of their connections. For peers the "
        "same stands under peers, in contract. Of null there is no bound.",
    )
    relay: Relay = Field(default=Relay(), description=Relay.__doc__)
    distributed_transactions: DistributedTransactions = Field(
        default=DistributedTransactions(), description=DistributedTransactions.__doc__
    )
    reports: Reports = Field(default=Reports(), description=Reports.__doc__)
    store: Store = Field(default=Store(), description=Store.__doc__)
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
        """Find what holds for a normalized domain, setting by setting.

        Its own entry says it, else the longest wildcard that does, else the default.
        """
        labels = domain.split(".")
        below = [f"*.{'.'.join(labels[n:])}" for n in range(len(labels) - 1, 0, -1)]
        found = Peer()
        for pattern in dict.fromkeys(("*", *below, domain)):
            entry = self.peers.get(pattern)
            if entry is not None:
                found = entry.over(found)
        return found

    def with_source(self, source: Source) -> Self:
        """Return the same settings with a note of where they stand."""
        copy = self.model_copy()
        copy._source = source
        return copy
