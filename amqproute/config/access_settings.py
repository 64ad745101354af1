# SPDX-License-Identifier: Apache-2.0
"""Settings for listeners, authentication and access rights."""

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
    RealmName,
    Right,
    Seconds,
    ShortText,
    Trust,
    Who,
)
from amqproute.config.realm_settings import IssuerSettings, LdapSettings, PluginRealmSettings
from amqproute.config.schema_base import AT_START, DAY, InheritingSettings, Settings

__all__ = ["AccessSettings", "ContractSettings", "ListenSettings", "TlsSettings", "UserSettings"]


class TlsSettings(Settings):
    """The certificate that proves this host's domains, and the authorities to trust."""

    certificate: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate chain, this host's own certificate first. Its "
        "names must cover the domains above, because peers check them. Read again on reload; "
        "adding the first certificate or removing it takes effect at the next start.",
    )
    private_key: FilePath | None = Field(
        default=None,
        description="PEM file with the private key of the certificate, without a passphrase and "
        "readable only by the daemon.",
    )
    trust: Trust = Field(
        default="system",
        description="PEM file with the certificate authorities that certificates of peers and "
        "clients are checked against, or the word system for those of the machine.",
    )
    crl: Annotated[tuple[FilePath, ...], FromList] = Field(
        default=(),
        description="PEM or DER files with certificate revocation lists. A certificate listed "
        "there is refused in both directions, whatever else is in its favor. Certificates of "
        "authorities without a list are accepted.",
    )
    watch: Annotated[Seconds, AT_START] = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="How often to check these files for changes. A changed file is read when it "
        "has been stable for one more check; a certificate and key that do not match are refused, "
        "and the old pair stays in force.",
    )


class ListenSettings(Settings):
    """One endpoint where clients and peers connect."""

    endpoint: Annotated[EndpointText, AT_START] = Field(
        description="A Twisted endpoint description: tcp:PORT, tcp:PORT:interface=ADDRESS, "
        "tcp6:PORT, unix:PATH, or systemd:domain=INET:index=0 for a socket that systemd opened.",
    )
    tls: Annotated[Literal["none", "upgrade", "implicit"], AT_START] = Field(
        default="none",
        description="none: no TLS. upgrade: the client may ask for TLS with the AMQP TLS header "
        "(customary on port 5672). implicit: TLS from the first octet (port 5671).",
    )
    client_certificate: Annotated[Literal["none", "optional", "required"], AT_START] = Field(
        default="none",
        description="Whether to ask the client for a certificate. Peers prove their domain by a "
        "certificate, so an endpoint for peers needs optional or required.",
    )
    mechanisms: Annotated[tuple[Mechanism, ...], FromList, AT_START] = Field(
        default=("SCRAM-SHA-256",),
        min_length=1,
        description="The SASL mechanisms offered here: EXTERNAL (the client certificate, or the "
        "user id on a unix socket), SCRAM-SHA-256, OAUTHBEARER and XOAUTH2 (tokens of "
        "users.issuers), PLAIN (users of the directory have only this), ANONYMOUS.",
    )
    plain_without_tls: Annotated[bool, AT_START] = Field(
        default=False,
        description="Offer PLAIN here although passwords cross the network unencrypted. Many AMQP "
        "0-9-1 clients support no other mechanism and no TLS. For trusted networks only.",
    )
    max_connections: int = Field(
        default=1000,
        ge=1,
        description="The maximum number of connections open here at one time; further ones are "
        "closed at once. A tenth is reserved for addresses whose clients have authenticated "
        "before, and a tenth for the brokers of other domains. A user may have as many as would "
        "still be free for other users, half of them if alone, unless contracts gives the user a "
        "number of connections.",
    )
    mute_per_address: int = Field(
        default=100,
        ge=1,
        description="The maximum number of connections from one IPv4 address, or one IPv6 /64, "
        "that have not authenticated. Another one closes the oldest of them, unless all are too "
        "young: then the new one is refused. Unix sockets are exempt from this and from the next "
        "two settings.",
    )
    mute_per_network: int = Field(
        default=300,
        ge=1,
        description="The same for an IPv4 /24 or an IPv6 /48. Addresses whose clients have "
        "authenticated before do not count.",
    )
    mute_shares: Annotated[dict[Network, Annotated[int, Field(ge=1)]], DistinctNetworks] = Field(
        default={},
        description="The same for networks with many clients behind them, as in {203.0.113.7/32: "
        "500}: the limit for each address in the network, and for all of them together.",
    )
    proxy_protocol: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="The networks of load balancers that send a PROXY protocol header, version 1 "
        "or 2, on each connection. Connections from there must send it, and the address in it "
        "counts wherever addresses matter; from elsewhere the header is refused because it is not "
        "AMQP.",
    )

    @property
    def parsed(self) -> Endpoint:
        """The endpoint description, parsed."""
        return parse_endpoint(self.endpoint)


class ContractSettings(InheritingSettings):
    """Limits for one sender, over all of its connections. null: no limit."""

    connections: int | None = Field(
        default=None,
        ge=1,
        description="The maximum number of connections at one time; another one is refused.",
    )
    links: int | None = Field(
        default=None,
        ge=1,
        description="The maximum number of links at one time; another one is refused.",
    )
    credit: int | None = Field(
        default=None,
        ge=1,
        description="The maximum number of messages granted as credit or being written to disk, "
        "over all links.",
    )
    messages_per_second: float | None = Field(
        default=None,
        gt=0,
        description="The maximum number of messages per second, after a burst of one second's "
        "worth. The limit reduces the sender's credit; a sender that respects its credit is never "
        "refused.",
    )
    bytes_per_second: Bytes | None = Field(
        default=None,
        ge=1,
        description="The same for the bytes of messages.",
    )
    spool: Bytes | None = Field(
        default=None,
        ge=4096,
        description="The maximum space for the sender's messages until they are consumed or "
        "relayed. Credit covers as many messages as still fit, at the size of its largest recent "
        "one; it shrinks from three quarters on and ends at none. Nothing within its credit is "
        "refused.",
    )
    max_message_size: Bytes | None = Field(
        default=None,
        ge=1024,
        description="The largest message accepted from the sender, if smaller than the one in "
        "limits; announced on each link.",
    )


class UserSettings(Settings):
    """Users who may log in with a password or a token."""

    file: FilePath = Field(
        default=Path("/etc/amqproute/users.yaml"),
        description="The file with the salted hashes of the users' passwords. Read again on "
        "reload. It may be missing if this setting is not given: then nobody can log in with a "
        "password.",
    )
    ldap: LdapSettings | None = Field(
        default=None,
        description="A directory that verifies the passwords of all other users. null: none.",
    )
    realms: dict[RealmName, PluginRealmSettings] = Field(
        default={},
        description="Realms that plug-ins make, by a name of your own. Those for passwords are "
        "asked before the directory, in this order.",
    )
    issuers: dict[ShortText, IssuerSettings] = Field(
        default={},
        description="Issuers whose tokens are taken, by a name of your own: with the mechanisms "
        "OAUTHBEARER and XOAUTH2, and by the HTTP API.",
    )
    recheck: Seconds = Field(
        default=300.0,
        ge=0,
        le=DAY,
        description="How often to ask realms whether users with open connections and sessions are "
        "still there. Those of closed accounts are ended. 0: never. A directory can tell if it has "
        "a bind-dn.",
    )
    token_passwords: bool = Field(
        default=False,
        description="Take a token as the password of PLAIN, too, with any user name; clients of "
        "AMQP 0-9-1 have no other way.",
    )


class AccessSettings(Settings):
    """One access rule."""

    allow: Annotated[tuple[Right, ...], FromList] = Field(
        default=(),
        description="The rights this rule grants: publish, consume, create, transfer (hand over "
        "messages from another broker), browse, manage, impersonate (send messages whose user-id "
        "is the name that `node` matches).",
    )
    deny: Annotated[tuple[Right, ...], FromList] = Field(
        default=(),
        description="The rights this rule refuses, even if a later rule grants them.",
    )
    who: Who = Field(
        description="user:NAME or user:* (a password or token), group:NAME (members by a "
        "directory or a token), peer:DOMAIN, peer:*.DOMAIN or peer:* (a "
        "verified certificate), uid:NUMBER or uid:* (a unix socket), anonymous, or * for "
        "everybody.",
    )
    node: str = Field(
        default="*",
        min_length=1,
        description="The node or address the rule applies to; * stands for any run of characters.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.allow and not self.deny:
            raise ValueError("has no rights; write allow or deny with a list of rights")
        both = sorted(set(self.allow) & set(self.deny))
        if both:
            raise ValueError(f"{both[0]} is both allowed and denied")
        return self
