# SPDX-License-Identifier: Apache-2.0
"""Every setting: its name, type, unit, default and description.

`Config` is the whole configuration; its fields are the keys of the file, in the file's order. The
keys below them are defined by subject in `access_settings`, `node_settings`, `routing_settings` and
`operations_settings`. Settings are described only there. The loader checks files against these
models, `etc/amqproute.yaml` is generated from them, and the daemon receives their objects. To add a
setting, add it there and run ``python -m amqproute.config > etc/amqproute.yaml``; no other
description needs a change.

In Python the names have underscores (``config.relay.first_retry``), in the file dashes
(``first-retry``). Durations are seconds (float), sizes are bytes (int). All models are frozen.

The types, with their checks, are those of `amqproute.config.field_types`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from amqproute import address
from amqproute.config.access_settings import (
    AccessSettings,
    ContractSettings,
    ListenSettings,
    TlsSettings,
    UserSettings,
)
from amqproute.config.config_source import ConfigSource
from amqproute.config.field_types import (
    DEFAULT_INCLUDE,
    ContainerId,
    ContractHolder,
    DistinctDomains,
    Domain,
    DomainPattern,
    FilePath,
    FromList,
    IncludePattern,
    NodeName,
    RemoteService,
    Seconds,
    ShortText,
    VirtualHostName,
)
from amqproute.config.node_settings import BindingSettings, NodeSettings, PolicySettings
from amqproute.config.operations_settings import (
    DistributedTransactionSettings,
    JournalSettings,
    LimitSettings,
    LogSettings,
    ManagementSettings,
    PluginSettings,
    StagingSettings,
    StatusSettings,
    StoreSettings,
    TracingSettings,
)
from amqproute.config.routing_settings import (
    PeerSettings,
    RelaySettings,
    ReportSettings,
    ResolverSettings,
    RouteSettings,
)
from amqproute.config.schema_base import AT_START, Settings
from amqproute.config.virtual_host_settings import VirtualHostSettings
from amqproute.errors import AmqpError

__all__ = ["Config"]


class Config(Settings):
    """The whole configuration."""

    include: Annotated[tuple[IncludePattern, ...], FromList] = Field(
        default=DEFAULT_INCLUDE,
        description="Further files with settings, as paths or patterns, in this order, and those "
        "of a pattern in the order of their names. Maps are merged key by key, lists are appended, "
        "and any other value replaces the one before it. Included files include nothing.",
    )
    container_id: Annotated[ContainerId | None, AT_START] = Field(
        default=None,
        description="The container-id of this broker, unique among all brokers. null: created "
        "once and kept in the state directory.",
    )
    domains: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="The domains whose nodes live here: orders@alpha.example is the node orders "
        "of this broker if alpha.example is in the list. The journal uses the first of them, as "
        "of the start of the daemon.",
    )
    state_directory: Annotated[FilePath, AT_START] = Field(
        default=Path("/var/lib/amqproute"),
        description="The directory of the store and of the container-id. Only one daemon can use "
        "it at a time.",
    )
    strict_hostname: bool = Field(
        default=False,
        description="Refuse connections whose open names a host that is not one of the domains. "
        "false: they are served like any other.",
    )
    qualify_dynamic: bool = Field(
        default=False,
        description="Name dynamic nodes NAME@DOMAIN with the first of the domains, so that "
        "replies from another organization's broker find them too.",
    )
    alias_to: Literal["insert", "require"] = Field(
        default="insert",
        description="How to treat a message without a `to` on a link to NODE@DOMAIN. insert: it "
        "is supplied. require: the message is refused.",
    )
    unsupported_filter: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="How to treat a consumer that asks for an unknown kind of filter. refuse: its "
        "link is refused. drop: the link is attached without that filter, and the answer shows "
        "so.",
    )
    tolerate_missing_body: bool = Field(
        default=False,
        description="Accept messages that have properties or a header and no body, which the "
        "standard does not allow, and deliver them unchanged. false: they are rejected with "
        "amqp:decode-error. An empty message is always rejected.",
    )
    remote_services: Annotated[tuple[RemoteService, ...], FromList] = Field(
        default=(),
        description="Services that messages may be addressed to, as $management@alpha.example. "
        "Messages that arrive here are executed if a rule under access grants their sender manage "
        "on the service; messages for other domains are sent there. Empty: a service can only be "
        "reached by attaching to it.",
    )
    auto_create: bool = Field(
        default=False,
        description="Create a queue when a client attaches to an unknown name and has the right "
        "create on it, as amqproute queue create does. false: the link is refused with "
        "amqp:not-found.",
    )
    tls: TlsSettings = Field(default=TlsSettings(), description=TlsSettings.__doc__)
    listen: Annotated[tuple[ListenSettings, ...], FromList] = Field(
        default=(
            ListenSettings(endpoint="unix:/run/amqproute/amqproute.sock", mechanisms=("EXTERNAL",)),
            ListenSettings(endpoint="tcp:5672:interface=127.0.0.1", mechanisms=("SCRAM-SHA-256",)),
        ),
        description="The endpoints where clients and peers connect. The command line looks for a "
        "unix socket here.",
    )
    users: UserSettings = Field(default=UserSettings(), description=UserSettings.__doc__)
    access: Annotated[tuple[AccessSettings, ...], FromList] = Field(
        default=(
            AccessSettings(
                allow=("publish", "consume", "create", "transfer", "browse", "manage"), who="uid:0"
            ),
            AccessSettings(allow=("publish", "consume", "create", "browse"), who="user:*"),
        ),
        description="Access rules. The first rule decides whose who and node match and that names "
        "the right; rights not granted are refused, but root and the daemon's own user may always "
        "manage unless a rule denies it. Peers need a rule with transfer before they can deliver "
        "here.",
    )
    realms: dict[ShortText, Annotated[tuple[ShortText, ...], FromList]] = Field(
        default={"/data": ("*",)},
        description="What AMQP 0-9 clients can request tickets for: the name of a realm, and "
        "patterns of the names of its queues and exchanges (/exchanges/NAME) as in access rules. "
        "A star in the name of the realm stands for any text. A ticket never permits more than "
        "the rules under access. AMQP 0-9-1 has no realms.",
    )
    nodes: Annotated[tuple[NodeSettings, ...], FromList] = Field(
        default=(),
        description="Nodes that are created at start if they do not exist.",
    )
    aliases: dict[NodeName, NodeName] = Field(
        default={},
        description="Additional names of nodes, as in sales: orders.",
    )
    bindings: Annotated[tuple[BindingSettings, ...], FromList] = Field(
        default=(),
        description="Bindings, along which messages pass from node to node.",
    )
    policies: Annotated[tuple[PolicySettings, ...], FromList] = Field(
        default=(),
        description="What holds for all exchanges and queues whose names a pattern fits, beside "
        "what clients say when they declare them. One policy applies to each, and one operator "
        "policy beside it.",
    )
    virtual_hosts: dict[VirtualHostName, VirtualHostSettings] = Field(
        default={},
        description="Virtual hosts besides /, which is all of the above, by name. An AMQP 0-9-1 "
        "client opens one by its name; an AMQP 1.0 client by the hostname of its open: the name, "
        "vhost:NAME, or one of its domains. Inside the broker, for operators, journal and log, "
        "the node orders of the virtual host shop is //shop/orders.",
    )
    resolver: ResolverSettings = Field(
        default=ResolverSettings(), description=ResolverSettings.__doc__
    )
    routes: Annotated[tuple[RouteSettings, ...], FromList] = Field(
        default=(),
        description="Routes to domains, consulted before DNS; the first match is used.",
    )
    peers: Annotated[dict[DomainPattern, PeerSettings], DistinctDomains] = Field(
        default={},
        description="Requirements for peers, by domain. Settings that a domain's entry does not "
        "give come from the longest matching *.DOMAIN that gives them, then from *, then from the "
        "defaults; this holds for each setting of contract too. A key without a value means the "
        "default, even if a wider entry gives a value.",
    )
    contracts: dict[ContractHolder, ContractSettings] = Field(
        default={},
        description="Limits for clients, by user:NAME, user:* for each other user separately, and "
        "anonymous; over all of their connections. For peers the same settings are under peers, "
        "in contract. null: no limit.",
    )
    relay: RelaySettings = Field(default=RelaySettings(), description=RelaySettings.__doc__)
    distributed_transactions: DistributedTransactionSettings = Field(
        default=DistributedTransactionSettings(), description=DistributedTransactionSettings.__doc__
    )
    reports: ReportSettings = Field(default=ReportSettings(), description=ReportSettings.__doc__)
    store: StoreSettings = Field(default=StoreSettings(), description=StoreSettings.__doc__)
    staging: StagingSettings = Field(default=StagingSettings(), description=StagingSettings.__doc__)
    limits: LimitSettings = Field(default=LimitSettings(), description=LimitSettings.__doc__)
    journal: JournalSettings = Field(default=JournalSettings(), description=JournalSettings.__doc__)
    tracing: TracingSettings = Field(default=TracingSettings(), description=TracingSettings.__doc__)
    status: StatusSettings = Field(default=StatusSettings(), description=StatusSettings.__doc__)
    management: ManagementSettings = Field(
        default=ManagementSettings(), description=ManagementSettings.__doc__
    )
    plugins: PluginSettings = Field(default=PluginSettings(), description=PluginSettings.__doc__)
    log: LogSettings = Field(default=LogSettings(), description=LogSettings.__doc__)
    shutdown_timeout: Seconds = Field(
        default=30.0,
        gt=0,
        description="How long a stop waits for deliveries in flight; messages unsettled by then "
        "stay in the store and are delivered again.",
    )
    # Private, because it is not a setting: it is in no file, and configurations that differ only in
    # it are equal.
    _source: ConfigSource = PrivateAttr(default=ConfigSource())

    @property
    def source(self) -> ConfigSource:
        """The files, and the places in them, that the settings come from."""
        return self._source

    @property
    def local_domains(self) -> frozenset[str]:
        """The normalized domains whose nodes live here, including the container-id as a name.

        Domains of virtual hosts are included.
        """
        names = {*self.domains, *self.domains_of_hosts}
        if self.container_id is not None:
            try:
                names.add(address.normalize_domain(self.container_id))
            except AmqpError:
                pass  # a container id need not be a domain name
        return frozenset(names)

    @property
    def domains_of_hosts(self) -> dict[str, str]:
        """The virtual host of each domain that belongs to one."""
        return {
            domain: name for name, host in self.virtual_hosts.items() for domain in host.domains
        }

    def peer_for(self, domain: str) -> PeerSettings:
        """Return the settings in force for a normalized domain.

        Each setting comes from the domain's own entry, else from the longest matching wildcard that
        gives it, else from the defaults.
        """
        labels = domain.split(".")
        below = [f"*.{'.'.join(labels[n:])}" for n in range(len(labels) - 1, 0, -1)]
        found = PeerSettings()
        for pattern in dict.fromkeys(("*", *below, domain)):
            entry = self.peers.get(pattern)
            if entry is not None:
                found = entry.over(found)
        return found

    def names(self, domain: str) -> bool:
        """Return whether `peers` or `routes` names a normalized domain without a wildcard."""
        return domain in self.peers or any(route.domain == domain for route in self.routes)

    def with_source(self, source: ConfigSource) -> Self:
        """Return the same settings with another source."""
        copy = self.model_copy()
        copy._source = source
        return copy
