# SPDX-License-Identifier: Apache-2.0
"""Settings: how other domains are found, what is asked of them, and how messages get there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from amqproute import address
from amqproute.config.access_settings import ContractSettings
from amqproute.config.field_types import (
    Bytes,
    ContainerId,
    Domain,
    DomainPattern,
    FilePath,
    FromList,
    Level,
    Nameserver,
    Network,
    NodeName,
    PinText,
    Port,
    ProbeZone,
    ReportWord,
    Seconds,
    Target,
    TargetNetwork,
    Via,
    ViaText,
    parse_via,
)
from amqproute.config.schema_base import AT_START, DAY, HOUR, MEBIBYTE, InheritingSettings, Settings

__all__ = ["PeerSettings", "RelaySettings", "ReportSettings", "ResolverSettings", "RouteSettings"]


class ResolverSettings(Settings):
    """How the DNS is asked where a domain's broker is."""

    nameservers: Annotated[tuple[Nameserver, ...], FromList, AT_START] = Field(
        default=(),
        description="The name servers to ask, as IP address with an optional port. Empty: those "
        "of /etc/resolv.conf.",
    )
    dnssec: Annotated[Literal["use", "require", "off"], AT_START] = Field(
        default="use",
        description="use: where a domain's records are signed and valid, believe them: names of "
        "SRV targets, TLSA records. require: send nothing to a domain whose records are not. off: "
        "never mind. Records that fail validation keep messages waiting in any case.",
    )
    validate_by: Annotated[Literal["resolver", "self"], AT_START] = Field(
        default="resolver",
        alias="validate",
        description="Who validates. resolver: the name server, which says so with the AD bit; it "
        "is believed on loopback, and where trusted names it. self: this daemon, from the trust "
        "anchors down; any name server will do that passes signatures on.",
    )
    trusted: Annotated[tuple[Network, ...], FromList, AT_START] = Field(
        default=(),
        description="Networks of name servers whose AD bit is believed although they are not on "
        "this machine. The whole way there has to be trusted: anybody on it can set the bit.",
    )
    anchors: Annotated[FilePath | None, AT_START] = Field(
        default=None,
        description="File with the trust anchors for validate: self, as DS or DNSKEY records. "
        "null: the root keys of IANA that came with this release.",
    )
    dnssec_probe: Annotated[ProbeZone, AT_START] = Field(
        default=".",
        description="A zone that is signed for certain. Where it does not come with DNSSEC the "
        "name servers do not pass DNSSEC on, which is told as dns.not-dnssec-capable.",
    )
    deny_targets: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="Networks that no domain's records may lead into, as in 198.51.100.0/24, "
        "whatever else allows it. Loopback, link-local, multicast and reserved addresses and those "
        "of this host need not stand here: a stranger's DNS zone cannot make this host connect "
        "there, nor to private ones; see allow-targets.",
    )
    allow_targets: Annotated[tuple[TargetNetwork, ...], FromList] = Field(
        default=(),
        description="Networks that any domain's records may lead into although they are not "
        "public: private (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16), shared (100.64.0.0/10) and "
        "unique-local (fc00::/7) ones, which else only domains may use that stand by name under "
        "peers or routes. Loopback, link-local and reserved networks count where they are written "
        "themselves, as in 127.0.0.0/8, and not as a part of 0.0.0.0/0; an address of this host "
        "only alone, as in 192.0.2.1/32.",
    )
    allow_ports: Annotated[tuple[Port, ...], FromList] = Field(
        default=(),
        description="Ports that any domain's records may name although they are below 1024 (443 "
        "always may) or those of other services by custom, such as 5432, 6379 or 8080.",
    )
    timeout: Annotated[Seconds, AT_START] = Field(
        default=5.0,
        gt=0,
        le=120,
        description="How long one question may take, over all name servers.",
    )
    cache_entries: Annotated[int, AT_START] = Field(
        default=10000,
        ge=1,
        description="The most domains whose answers are remembered.",
    )
    cache_longest: Annotated[Seconds, AT_START] = Field(
        default=DAY,
        gt=0,
        description="No answer is remembered longer than this, whatever its TTL.",
    )
    cache_longest_negative: Annotated[Seconds, AT_START] = Field(
        default=300.0,
        gt=0,
        description="The same for the answer that there is no such domain or record.",
    )


class RouteSettings(Settings):
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


class PeerSettings(InheritingSettings):
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
    contract: ContractSettings = Field(
        default=ContractSettings(),
        description="What this peer may ask of this broker, with its messages for us and through "
        "us, over all of its connections; each peer that the entry fits for itself. It has the "
        "settings of an entry under contracts; null: no bound.",
    )


class RelaySettings(Settings):
    """How messages for other domains are sent on."""

    lifetime: Seconds = Field(
        default=5 * DAY,
        gt=0,
        description="How long delivery is tried before the message is given up as expired. What is "
        "overdue at a start of the daemon is tried once more.",
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
    max_destinations: int = Field(
        default=4000,
        ge=16,
        le=1000000,
        description="The most destinations with messages that wait, or with a connection, for all "
        "senders together; some 16 KiB of memory each. A sender has as many as would still be free "
        "afterwards, so half of them alone; those without a name share that by address. A message "
        "for one more is refused with amqp:resource-limit-exceeded.",
    )
    idle_timeout: Seconds = Field(
        default=60.0,
        gt=0,
        description="A connection to a peer with nothing to send is closed after this time.",
    )
    connect_timeout: Annotated[Seconds, AT_START] = Field(
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


class ReportSettings(Settings):
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
