# SPDX-License-Identifier: Apache-2.0
"""Settings of users of a directory, of issuers of tokens, and of realms of plug-ins."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from amqproute.config.field_types import (
    DirectoryUrl,
    FilePath,
    FreeSettings,
    FromList,
    IssuerUrl,
    Seconds,
    ShortText,
    Trust,
    UserPattern,
)
from amqproute.config.schema_base import HOUR, Settings

__all__ = ["IssuerSettings", "LdapSettings", "PluginRealmSettings"]

Template = Annotated[str, Field(min_length=1, max_length=1000)]
Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
]


class LdapSettings(Settings):
    """A directory (LDAP) that verifies users who are not in the users file; see docs/realms.md."""

    servers: Annotated[tuple[DirectoryUrl, ...], FromList] = Field(
        min_length=1,
        max_length=10,
        description="The servers, in the order to try: ldaps://HOST, ldap://HOST with start-tls, "
        "or on this machine ldapi://%2Frun%2Fldapi. All have the same users.",
    )
    start_tls: bool = Field(
        default=False,
        description="Begin TLS on each ldap:// connection before anything else. Without it ldap:// "
        "is for loopback addresses only.",
    )
    trust: Trust = Field(
        default="system",
        description="PEM file with the authorities that certificates of the servers are checked "
        "against, or the word system.",
    )
    user_dn: Template | None = Field(
        default=None,
        description="The name of a user's entry, as in uid={name},ou=people,dc=example,dc=com. "
        "null: it is searched for.",
    )
    bind_dn: ShortText | None = Field(
        default=None,
        description="The entry as which users and groups are searched for. null: groups are "
        "searched for as the user, and users as nobody.",
    )
    bind_password_file: FilePath | None = Field(
        default=None,
        description="The file with the password of bind-dn, in its first line.",
    )
    search_base: Template | None = Field(
        default=None,
        description="Below which entry users are searched for, as in ou=people,dc=example,dc=com.",
    )
    search_filter: Template = Field(
        default="(uid={name})",
        description="Which entry it is. There must be exactly one.",
    )
    name_attribute: ShortText | None = Field(
        default="uid",
        description="The attribute that has the user's name for access rules, which is made "
        "lower-case. Directories ignore case, access rules do not. null: the name that the user "
        "has given, made lower-case.",
    )
    member_of: ShortText | None = Field(
        default=None,
        description="An attribute of the user with the names of group entries, as in memberOf. The "
        "first part of each, as in cn=operators, is the name of the group.",
    )
    group_base: Template | None = Field(
        default=None,
        description="Below which entry groups are searched for. null: they are not.",
    )
    group_filter: Template = Field(
        default="(member={dn})",
        description="Which groups a user is in; {dn} is the entry of the user, {name} the name.",
    )
    group_attribute: ShortText = Field(
        default="cn", description="The attribute that has the name of a group."
    )
    group_prefix: Annotated[str, Field(max_length=64)] = Field(
        default="",
        description="Put before the name of each group; access rules have group:PREFIXNAME.",
    )
    timeout: Seconds = Field(
        default=5.0,
        ge=0.1,
        le=60,
        description="How long one log-in may take, over all servers.",
    )
    retry: Seconds = Field(
        default=10.0,
        ge=0.1,
        le=3600,
        description="How long a server that has failed is left alone while another one answers.",
    )
    connections: int = Field(
        default=4,
        ge=1,
        le=64,
        description="The maximum number of connections to the directory, each with a thread.",
    )
    remember: Seconds = Field(
        default=60.0,
        ge=0,
        le=HOUR,
        description="How long a right password is not verified again.",
    )
    remember_refused: Seconds = Field(
        default=10.0,
        ge=0,
        le=HOUR,
        description="The same for a wrong password. It keeps a program with an old password from "
        "having its account locked by the directory.",
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.user_dn is None) == (self.search_base is None):
            raise ValueError("needs either user-dn or search-base")
        if self.user_dn is not None and "{name}" not in self.user_dn:
            raise ValueError(
                "user-dn has no {name}; write it as in uid={name},ou=people,dc=example"
            )
        if self.search_base is not None and "{name}" not in self.search_filter:
            raise ValueError("search-filter has no {name}; write it as in (uid={name})")
        if "{dn}" not in self.group_filter and "{name}" not in self.group_filter:
            raise ValueError("group-filter has neither {dn} nor {name}")
        if (self.bind_dn is None) != (self.bind_password_file is None):
            raise ValueError("bind-dn and bind-password-file need each other")
        for server in self.servers:
            if server.startswith("ldap://") and not (self.start_tls or is_on_this_machine(server)):
                raise ValueError(
                    f"{server}: passwords would cross the network unencrypted; write ldaps://, or "
                    "start-tls: true"
                )
        return self


class IssuerSettings(Settings):
    """An issuer of tokens (OAuth 2, OpenID Connect); see docs/realms.md."""

    issuer: IssuerUrl = Field(
        description="The issuer as its tokens name it (iss), as in https://login.example/realm. "
        "Its keys are found by /.well-known/openid-configuration below it.",
    )
    audience: Annotated[tuple[ShortText, ...], FromList] = Field(
        min_length=1,
        description="What its tokens for this broker name as their audience (aud), as in "
        "[amqproute]; one of the list is enough. Tokens for others are refused.",
    )
    keys_file: FilePath | None = Field(
        default=None,
        description="A file with the keys of the issuer (JWKS), instead of fetching them.",
    )
    trust: Trust = Field(
        default="system",
        description="PEM file with the authorities that the issuer's certificate is checked "
        "against, or the word system.",
    )
    algorithms: Annotated[tuple[Algorithm, ...], FromList] = Field(
        default=("RS256", "PS256", "ES256", "ES384", "Ed25519"),
        min_length=1,
        description="The algorithms of signatures that are accepted.",
    )
    leeway: Seconds = Field(
        default=30.0,
        ge=0,
        le=300,
        description="How much the clocks of the issuer and this machine may differ.",
    )
    user_claim: ShortText = Field(
        default="sub",
        description="The claim with the name of the user. It has to be unique, and nothing that "
        "users can choose.",
    )
    group_claims: Annotated[tuple[ShortText, ...], FromList] = Field(
        default=("scope", "groups", "roles"),
        description="The claims whose words are groups for access rules; dots lead into objects, "
        "as in realm_access.roles.",
    )
    group_prefix: Annotated[str, Field(max_length=64)] = Field(
        default="",
        description="Put before the name of each group; access rules have group:PREFIXNAME.",
    )
    scope: Annotated[str, Field(max_length=200)] = Field(
        default="",
        description="The scope that a client without a valid token is told to ask for.",
    )


class PluginRealmSettings(Settings):
    """A realm that a plug-in makes; see docs/realms.md."""

    kind: ShortText = Field(
        description="The kind: the name that a distribution installed beside amqproute has for it "
        "in the group amqproute.realms.",
    )
    users: UserPattern = Field(
        default="*",
        description="The names of the users whose passwords it verifies; * stands for any run of "
        "characters. Of several realms the first one whose pattern fits decides. Not for realms "
        "that verify tokens.",
    )
    deadline: Seconds = Field(
        default=10.0,
        ge=0.1,
        le=60,
        description="How long an answer may take; then the log-in ends as a temporary failure.",
    )
    settings: FreeSettings = Field(
        default={},
        description="Settings of the plug-in, which checks them. Secrets belong into the "
        "environment (${NAME}) or into files (%d/NAME).",
    )


def is_on_this_machine(server: str) -> bool:
    """Return whether connections to a directory server leave this machine."""
    host = server.partition("://")[2].partition("/")[0]
    return server.startswith("ldapi:") or host.rpartition(":")[0] in _HERE or host in _HERE


_HERE = ("localhost", "127.0.0.1", "[::1]")
