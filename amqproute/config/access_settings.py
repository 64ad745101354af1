# SPDX-License-Identifier: Apache-2.0
"""Settings: where others come in, how they prove who they are, and what they may."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from amqproute.config.endpoint import Endpoint, parse_endpoint
from amqproute.config.field_types import (
    Bytes,
    DistinctNetworks,
    EndpointText,
    FilePath,
    FromList,
    Mechanism,
    Network,
    Right,
    Seconds,
    Trust,
    Who,
)
from amqproute.config.schema_base import AT_START, InheritingSettings, Settings

__all__ = ["AccessSettings", "ContractSettings", "ListenSettings", "TlsSettings", "UserSettings"]


class TlsSettings(Settings):
    """The certificate that proves this host's domains, and whom to believe."""

    certificate: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate chain, this host's own certificate first. Its "
        "names have to cover the domains above, for peers check them. Read again on reload; "
        "a first certificate, and none any more, take effect at the next start.",
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
    watch: Annotated[Seconds, AT_START] = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="How often the files above are looked at. Changed ones are read when they have "
        "stood still for one more look; a pair that does not fit is refused and the old one stays.",
    )


class ListenSettings(Settings):
    """One place where clients and peers connect."""

    endpoint: Annotated[EndpointText, AT_START] = Field(
        description="A Twisted endpoint description: tcp:PORT, tcp:PORT:interface=ADDRESS, "
        "tcp6:PORT, unix:PATH, or systemd:domain=INET:index=0 for a socket that systemd opened.",
    )
    tls: Annotated[Literal["none", "upgrade", "implicit"], AT_START] = Field(
        default="none",
        description="none: no TLS. upgrade: the client may ask for TLS with the AMQP TLS header "
        "(the custom of port 5672). implicit: TLS from the first octet (port 5671).",
    )
    client_certificate: Annotated[Literal["none", "optional", "required"], AT_START] = Field(
        default="none",
        description="Whether a certificate is asked of the client. Peers prove their domain by "
        "one, so a place where peers connect needs optional or required.",
    )
    mechanisms: Annotated[tuple[Mechanism, ...], FromList, AT_START] = Field(
        default=("SCRAM-SHA-256",),
        min_length=1,
        description="The SASL mechanisms offered here: EXTERNAL (the client certificate, or on a "
        "unix socket the user id), SCRAM-SHA-256, PLAIN, ANONYMOUS.",
    )
    plain_without_tls: Annotated[bool, AT_START] = Field(
        default=False,
        description="Offer PLAIN here although passwords cross the network in the clear, as many "
        "clients of AMQP 0-9-1 want it that know no other mechanism and no TLS. For networks that "
        "nobody else is on.",
    )
    max_connections: int = Field(
        default=1000,
        ge=1,
        description="The most connections open here at one time; further ones are closed at once. "
        "A tenth is kept for addresses whose clients have authenticated before, and a tenth for "
        "the brokers of other domains. A user may have as many as would still be free of other "
        "users, half of them while it is alone, unless contracts gives it a number of connections.",
    )
    mute_per_address: int = Field(
        default=100,
        ge=1,
        description="The most connections of one IPv4 address, or of one IPv6 /64, that have not "
        "authenticated. For one more the oldest of them is closed, unless all are too young: then "
        "the new one is refused. Unix sockets are exempt from this and from the next two.",
    )
    mute_per_network: int = Field(
        default=300,
        ge=1,
        description="The same for an IPv4 /24 or an IPv6 /48. Addresses whose clients have "
        "authenticated before do not count.",
    )
    mute_shares: Annotated[dict[Network, Annotated[int, Field(ge=1)]], DistinctNetworks] = Field(
        default={},
        description="The same for networks behind which there are many clients, as in "
        "{203.0.113.7/32: 500}: the share of each address in it, and of all together.",
    )
    proxy_protocol: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="The networks of load balancers that send a PROXY protocol header, version 2, "
        "on each connection. From there it is required, and the address in it counts in all that "
        "goes by address; from elsewhere it is refused as what it is, no AMQP.",
    )

    @property
    def parsed(self) -> Endpoint:
        """The endpoint description, taken apart."""
        return parse_endpoint(self.endpoint)


class ContractSettings(InheritingSettings):
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
        description="What its messages may occupy here until they are consumed or relayed. It is "
        "given credit for as many messages of the size of its largest recent one as still fit: "
        "from three quarters on less and less, at the end none. Nothing within its credit is "
        "refused.",
    )
    max_message_size: Bytes | None = Field(
        default=None,
        ge=1024,
        description="The largest message taken from it, if that is less than limits has; it is "
        "announced on each link.",
    )


class UserSettings(Settings):
    """Who may log in with a password."""

    file: FilePath = Field(
        default=Path("/etc/amqproute/users.yaml"),
        description="The file with the users' salted hashes. Read again on reload. It may be "
        "missing as long as this setting is not given: then nobody can log in with a password.",
    )


class AccessSettings(Settings):
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
