# SPDX-License-Identifier: Apache-2.0
"""Every setting: its name, type, unit, default and one paragraph that says what it does.

`Config` is the whole of it, and its fields are the file's keys, in the file's order. What stands
below a key is described in the module of its subject: `access_settings`, `node_settings`,
`routing_settings` and `operations_settings`. These are the only places where a setting is
described. The loader checks files against them, `etc/amqproute.yaml` is generated from them, and
the daemon receives their objects. Add a setting there, run ``python -m amqproute.config >
etc/amqproute.yaml``, and nothing else needs to know.

In Python the names have underscores (``config.relay.first_retry``), in the file dashes
(``first-retry``). Durations are seconds (float), sizes are bytes (int). All models are frozen.

The types, with their checks, are those of `amqproute.config.field_types`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from amqproute.config.field_types import (
    ContainerId,
    ContractHolder,
    DistinctDomains,
    Domain,
    DomainPattern,
    FilePath,
    FromList,
    NodeName,
    RemoteService,
    Seconds,
    VirtualHostName,
)
from amqproute.config.node_settings import BindingSettings, NodeSettings
from amqproute.config.operations_settings import (
    DistributedTransactionSettings,
    JournalSettings,
    LimitSettings,
    LogSettings,
    ManagementSettings,
    StatusSettings,
    StoreSettings,
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

__all__ = ["Config", "ConfigSource"]


@dataclass(frozen=True, slots=True)
class ConfigSource:
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

    container_id: Annotated[ContainerId | None, AT_START] = Field(
        default=None,
        description="The name of this broker in the protocol, different from every other "
        "broker's. null: made once and kept in the state directory.",
    )
    domains: Annotated[tuple[Domain, ...], FromList] = Field(
        default=(),
        description="The domains whose nodes live here: orders@alpha.example is the node orders "
        "of this broker if alpha.example is in the list. The journal goes under the first of them "
        "as it was at the start.",
    )
    state_directory: Annotated[FilePath, AT_START] = Field(
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
    tolerate_missing_body: bool = Field(
        default=False,
        description="Take messages that have properties or a header and no body, which the "
        "standard does not allow, and deliver them as they are. false: they are rejected with "
        "amqp:decode-error. A message of no octets is rejected in any case.",
    )
    remote_services: Annotated[tuple[RemoteService, ...], FromList] = Field(
        default=(),
        description="Services that messages may be addressed to, as $management@alpha.example: "
        "those that come here act if a rule of access grants their sender manage on the service; "
        "those for other domains are sent there. Empty: a service is reached by attaching to it "
        "only.",
    )
    auto_create: bool = Field(
        default=False,
        description="Make a queue when a client attaches to a name that no node has and the "
        "client has the right create on that name, as amqproute queue create does. false: its "
        "link is refused with amqp:not-found.",
    )
    tls: TlsSettings = Field(default=TlsSettings(), description=TlsSettings.__doc__)
    listen: Annotated[tuple[ListenSettings, ...], FromList] = Field(
        default=(
            ListenSettings(endpoint="unix:/run/amqproute/amqproute.sock", mechanisms=("EXTERNAL",)),
            ListenSettings(endpoint="tcp:5672:interface=127.0.0.1", mechanisms=("SCRAM-SHA-256",)),
        ),
        description="Where clients and peers connect. The command line looks for a unix socket "
        "here.",
    )
    users: UserSettings = Field(default=UserSettings(), description=UserSettings.__doc__)
    access: Annotated[tuple[AccessSettings, ...], FromList] = Field(
        default=(
            AccessSettings(
                allow=("publish", "consume", "create", "transfer", "browse", "manage"), who="uid:0"
            ),
            AccessSettings(allow=("publish", "consume", "create", "browse"), who="user:*"),
        ),
        description="Who may do what. The first rule decides whose who and node match and "
        "that names the right; what no rule gives is refused, but root and the daemon's own "
        "user may always manage unless a rule denies it. Peers need a rule with transfer before "
        "they can deliver here.",
    )
    nodes: Annotated[tuple[NodeSettings, ...], FromList] = Field(
        default=(),
        description="Nodes that are made at the start if they are not there.",
    )
    aliases: dict[NodeName, NodeName] = Field(
        default={},
        description="Further names of nodes, as in sales: orders.",
    )
    bindings: Annotated[tuple[BindingSettings, ...], FromList] = Field(
        default=(),
        description="Ways between nodes along which messages are passed on.",
    )
    virtual_hosts: dict[VirtualHostName, VirtualHostSettings] = Field(
        default={},
        description="Virtual hosts beside /, which is all of the above, by name. A client of AMQP "
        "0-9-1 opens one by its name, one of AMQP 1.0 by the hostname of its open: the name, "
        "vhost:NAME, or one of its domains. Within the broker, for its operators, its journal and "
        "its log, the node orders of the virtual host shop is //shop/orders.",
    )
    resolver: ResolverSettings = Field(
        default=ResolverSettings(), description=ResolverSettings.__doc__
    )
    routes: Annotated[tuple[RouteSettings, ...], FromList] = Field(
        default=(),
        description="Ways to domains, looked at before DNS; the first that matches is taken.",
    )
    peers: Annotated[dict[DomainPattern, PeerSettings], DistinctDomains] = Field(
        default={},
        description="What is asked of peers, by domain. What the entry of a domain does not say "
        "is as under the longest *.DOMAIN that fits and says it, then as under *, then the "
        "default; so it is with each setting of contract too. A key without a value is the "
        "default again, whatever wider entries say.",
    )
    contracts: dict[ContractHolder, ContractSettings] = Field(
        default={},
        description="What clients may ask of this broker, by user:NAME, user:* for all other "
        "users, each for himself, and anonymous; over all of their connections. For peers the "
        "same stands under peers, in contract. Of null there is no bound.",
    )
    relay: RelaySettings = Field(default=RelaySettings(), description=RelaySettings.__doc__)
    distributed_transactions: DistributedTransactionSettings = Field(
        default=DistributedTransactionSettings(), description=DistributedTransactionSettings.__doc__
    )
    reports: ReportSettings = Field(default=ReportSettings(), description=ReportSettings.__doc__)
    store: StoreSettings = Field(default=StoreSettings(), description=StoreSettings.__doc__)
    limits: LimitSettings = Field(default=LimitSettings(), description=LimitSettings.__doc__)
    journal: JournalSettings = Field(default=JournalSettings(), description=JournalSettings.__doc__)
    status: StatusSettings = Field(default=StatusSettings(), description=StatusSettings.__doc__)
    management: ManagementSettings = Field(
        default=ManagementSettings(), description=ManagementSettings.__doc__
    )
    log: LogSettings = Field(default=LogSettings(), description=LogSettings.__doc__)
    shutdown_timeout: Seconds = Field(
        default=30.0,
        gt=0,
        description="How long a stop waits for deliveries under way; what is not settled by then "
        "stays in the store and is delivered again.",
    )
    # Private, for it is no setting: it stands in no file, and configurations that differ in it
    # only are equal.
    _source: ConfigSource = PrivateAttr(default=ConfigSource())

    @property
    def source(self) -> ConfigSource:
        """The file and the lines the settings come from."""
        return self._source

    @property
    def local_domains(self) -> frozenset[str]:
        """The normalized domains whose nodes live here, the container id's name included.

        Those of virtual hosts are among them.
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
        """The domains of virtual hosts, with whose they are."""
        return {
            domain: name for name, host in self.virtual_hosts.items() for domain in host.domains
        }

    def peer_for(self, domain: str) -> PeerSettings:
        """Find what holds for a normalized domain, setting by setting.

        Its own entry says it, else the longest wildcard that does, else the default.
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
        """Tell whether a normalized domain stands under `peers` or `routes`, by no wildcard."""
        return domain in self.peers or any(route.domain == domain for route in self.routes)

    def with_source(self, source: ConfigSource) -> Self:
        """Return the same settings with a note of where they stand."""
        copy = self.model_copy()
        copy._source = source
        return copy
