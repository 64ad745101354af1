# SPDX-License-Identifier: Apache-2.0
"""Settings for locating other domains, for peers, and for relaying."""

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
    """DNS lookups for the brokers of domains."""

    nameservers: Annotated[tuple[Nameserver, ...], FromList, AT_START] = Field(
        default=(),
        description="The name servers to query, as IP addresses with an optional port. Empty: "
        "those of /etc/resolv.conf.",
    )
    dnssec: Annotated[Literal["use", "require", "off"], AT_START] = Field(
        default="use",
        description="use: trust the records of signed and valid domains: names of SRV targets, "
        "TLSA records. require: send nothing to a domain whose records are not signed. off: "
        "ignore DNSSEC. Messages wait in any case while records fail validation.",
    )
    validate_by: Annotated[Literal["resolver", "self"], AT_START] = Field(
        default="resolver",
        alias="validate",
        description="Who validates. resolver: the name server, indicated by the AD bit, which is "
        "trusted on loopback and from the networks under trusted. self: this daemon, from the "
        "trust anchors down; any name server that passes signatures on will do.",
    )
    trusted: Annotated[tuple[Network, ...], FromList, AT_START] = Field(
        default=(),
        description="Networks of name servers whose AD bit is trusted although they are not on "
        "this machine. The whole path to them must be trusted: anybody on it can set the bit.",
    )
    anchors: Annotated[FilePath | None, AT_START] = Field(
        default=None,
        description="File with the trust anchors for validate: self, as DS or DNSKEY records. "
        "null: the root keys of IANA shipped with this release.",
    )
    dnssec_probe: Annotated[ProbeZone, AT_START] = Field(
        default=".",
        description="A zone that is certainly signed. If its answers come without DNSSEC, the "
        "name servers do not pass DNSSEC on, which is reported as dns.not-dnssec-capable.",
    )
    deny_targets: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="Networks that no domain's records may point to, as in 198.51.100.0/24, even "
        "if other settings allow them. Loopback, link-local, multicast and reserved addresses and "
        "those of this host need not be listed: a stranger's DNS zone cannot make this host "
        "connect to them, nor to private ones; see allow-targets.",
    )
    allow_targets: Annotated[tuple[TargetNetwork, ...], FromList] = Field(
        default=(),
        description="Networks that any domain's records may point to although they are not "
        "public: private (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16), shared (100.64.0.0/10) and "
        "unique-local (fc00::/7) ones, which otherwise only domains named under peers or routes "
        "may use. Loopback, link-local and reserved networks must be listed themselves, as in "
        "127.0.0.0/8; 0.0.0.0/0 does not include them. An address of this host counts only as a "
        "network of its own, as in 192.0.2.1/32.",
    )
    allow_ports: Annotated[tuple[Port, ...], FromList] = Field(
        default=(),
        description="Ports that any domain's records may use although they are below 1024 (443 is "
        "always allowed) or customary for other services, such as 5432, 6379 or 8080.",
    )
    timeout: Annotated[Seconds, AT_START] = Field(
        default=5.0,
        gt=0,
        le=120,
        description="The time limit of one query, over all name servers.",
    )
    cache_entries: Annotated[int, AT_START] = Field(
        default=10000,
        ge=1,
        description="The maximum number of domains whose answers are cached.",
    )
    cache_longest: Annotated[Seconds, AT_START] = Field(
        default=DAY,
        gt=0,
        description="The maximum time for which an answer is cached, whatever its TTL.",
    )
    cache_longest_negative: Annotated[Seconds, AT_START] = Field(
        default=300.0,
        gt=0,
        description="The same for the answer that a domain or record does not exist.",
    )


class RouteSettings(Settings):
    """A route to domains that does not depend on DNS."""

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
        description="The target of messages at the next hop: amqp$transfer, anonymous (the "
        "anonymous terminus), or a template such as /queues/{node} for brokers of other makes.",
    )
    names: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="Names accepted in the next hop's certificate instead of the host of via or, "
        "if DNS decides, the domain. Required if via is an address.",
    )

    @property
    def next_hop(self) -> Via | None:
        """The parsed URL; None if DNS decides."""
        return None if self.via is None else parse_via(self.via)


class PeerSettings(InheritingSettings):
    """Requirements for, and rights of, the brokers of a domain."""

    level: Level = Field(
        default="dane-or-pkix",
        description="What a next hop must prove before it gets a message. dane: it matches TLSA "
        "records in signed DNS. dane-or-pkix: the same where usable ones exist; else a "
        "certificate of a trusted authority that names the domain, or its SRV target if DNSSEC "
        "proves it. pkix: such a certificate with the domain in it, whatever the DNS says. pin: a "
        "certificate or key listed under pin. tls: encryption, without authentication. none: not "
        "even encryption. A peer that connects here must prove its domain likewise, by pkix at "
        "least.",
    )
    pin: Annotated[tuple[PinText, ...], FromList] = Field(
        default=(),
        description="For level pin: sha256:HEX of the certificate, or key-sha256:HEX of its key, "
        "which outlives a renewal. Names and dates are then ignored. One match is enough.",
    )
    container_id: ContainerId | None = Field(
        default=None,
        description="The container-id of the peer's broker; an address may then name the broker "
        "instead of the domain. null: only the domain counts.",
    )
    relay_for: Annotated[tuple[DomainPattern, ...], FromList] = Field(
        default=(),
        description="Other domains this peer may send to through this broker. Empty: it reaches "
        "only the nodes of this broker.",
    )
    origins: Annotated[tuple[DomainPattern, ...], FromList] = Field(
        default=(),
        description="Other domains whose messages, and whose return addresses, this peer may hand "
        "over: the domains it relays for. Empty: a message must come from a name that the peer's "
        "certificate proves, or it is refused with the code policy.origin.",
    )
    messages_per_second: float | None = Field(
        default=None,
        gt=0,
        description="The maximum number of messages sent to this peer per second, after a burst "
        "of one second's worth. null: as many as it takes.",
    )
    bytes_per_second: Bytes | None = Field(
        default=None,
        ge=1,
        description="The same for the bytes of messages, for slow networks.",
    )
    suppress_duplicates: bool = Field(
        default=False,
        description="A message of this peer with a message-id that it has sent before is accepted "
        "and not kept a second time. For brokers of other makes: brokers of this make identify "
        "each message by its id in the sender's store. The ids of the last 200000 messages are "
        "remembered, for receipt-lifetime at most.",
    )
    trace_context: Literal["keep", "drop"] = Field(
        default="drop",
        description="What becomes of the trace context of messages (docs/tracing.md). keep: it is "
        "passed on to this peer in the annotation x-opt-traceparent, and traces that this peer "
        "records are recorded here too. drop: the annotation is removed, and what this peer "
        "records decides nothing here. A property traceparent that a client has set is part of "
        "its message and always goes with it. A reload applies to new connections.",
    )
    contract: ContractSettings = Field(
        default=ContractSettings(),
        description="Limits for this peer, for its messages to and through this broker, over all "
        "of its connections; they apply to each matching peer separately. The settings are those "
        "of an entry under contracts; null: no limit.",
    )


class RelaySettings(Settings):
    """Sending messages on to other domains."""

    lifetime: Seconds = Field(
        default=5 * DAY,
        gt=0,
        description="How long delivery is tried before the message expires. Messages overdue when "
        "the daemon starts are tried once more.",
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
        description="A message that has passed this many brokers is refused: it is in a loop.",
    )
    window: int = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The maximum number of messages in flight to one destination without a known "
        "outcome.",
    )
    window_bytes: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=65536,
        description="The same for their bytes, which stay in memory until the outcome is known.",
    )
    dead_after: int = Field(
        default=3,
        ge=1,
        description="Consecutive failures after which a destination counts as dead: the log "
        "warns, little of its backlog stays in memory, and it restarts with a small window.",
    )
    settle_timeout: Seconds = Field(
        default=120.0,
        gt=0,
        description="A peer that leaves a message without an outcome for this long is stuck: the "
        "broker connects again, and messages in doubt are sent again.",
    )
    connects_per_second: float = Field(
        default=50.0,
        gt=0,
        description="The maximum number of connection attempts per second, over all destinations, "
        "so that a restart with many backlogs does not cause a flood.",
    )
    max_destinations: int = Field(
        default=4000,
        ge=16,
        le=1000000,
        description="The maximum number of destinations with waiting messages or a connection, "
        "for all senders together; each takes about 16 KiB of memory. A sender may use as many as "
        "would still be free afterwards, so half of them if alone; unnamed senders share that by "
        "address. A message for another one is refused with amqp:resource-limit-exceeded.",
    )
    idle_timeout: Seconds = Field(
        default=60.0,
        gt=0,
        description="A connection to a peer with nothing to send is closed after this time.",
    )
    connect_timeout: Annotated[Seconds, AT_START] = Field(
        default=30.0,
        gt=0,
        description="The time for one host to connect, complete TLS and SASL, and attach the link.",
    )
    dead_letter: NodeName | None = Field(
        default=None,
        description="The node or alias for messages that a peer has refused permanently, or that "
        "could not be delivered within the lifetime. A message that asks to be returned goes back "
        "to its sender instead. null: they are dropped, with a line in the log.",
    )
    reply_aliases: bool = Field(
        default=True,
        description="When a client's message leaves for another domain and its reply-to names a "
        "node here without a domain, replace the reply-to by an address that leads back: an alias "
        "that nobody can guess. The reply needs no access rule. false: reply-to is never changed.",
    )
    reply_grace: Seconds = Field(
        default=300.0,
        ge=0,
        description="How long such an alias accepts replies after the link of the request has "
        "ended.",
    )
    receipt_lifetime: Seconds = Field(
        default=7 * DAY,
        gt=0,
        description="How long a message from a peer is remembered, so that it is not enqueued "
        "twice if repeated after a crash. Keep it above the lifetime set by your peers.",
    )


class ReportSettings(Settings):
    """Reports to the return address of a message about its delivery."""

    default: Annotated[tuple[ReportWord, ...], FromList] = Field(
        default=("failure", "delay", "return"),
        description="The reports sent for a message that has a return address and does not "
        "request any: failure, delay, relayed, delivered (reports), return (the message itself, "
        "if delivery is given up).",
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
