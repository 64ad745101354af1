# SPDX-License-Identifier: Apache-2.0
"""Values that pass between packages: no behavior, no input or output."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from amqproute.address import in_host, local_name
from amqproute.wire.amqp10.types import Symbol

# Agreements between amqproute brokers; both ends of a relay link use them.
STREAM: Final = Symbol("amqproute:stream")
"""Link property: names the store that numbers the sender's entries (T-36). Desired capability of
a consumer or browser of a queue: it wants the entries' ids for delivery-tags, and this property."""
STORE: Final = Symbol("amqproute:store")
"""Link property: the name of that store in the sender's journal, to match the journals of both
ends of a hop. Informational."""
FLOOR: Final = Symbol("amqproute:floor")
"""Link property: the lowest entry id that the sender may still send."""
TAG_OCTETS: Final = 8
"""A delivery-tag that is the entry's id, big-endian."""
TRANSFER_CAPABILITY: Final = "AMQPROUTE:TRANSFER"
"""Offered capability in the open of a broker that keeps receipts."""
REPORT_CAPABILITY: Final = "AMQPROUTE:REPORT"
"""Offered capability in the open of a broker that sends the delivery reports senders ask for."""
PROBE_CAPABILITY: Final = "AMQPROUTE:PROBE"
"""In an open's offered-capabilities: there is a node ``amqp$probe``."""
COMMAND_CONTAINER: Final = "amqproute-cli-"
"""Prefix of the container-ids of the command line's connections."""
PROBE: Final = Symbol("amqproute:probe")
"""In an open's properties: the id of a probe."""
NO_CREDIT: Final = "peer.no-credit"
"""The code of a peer that grants no credit at present; messages wait at their sender."""
SEEN_AS: Final = Symbol("amqproute:seen-as")
"""In the answer to a prober's attach: the principal that the other side sees."""
PATH_CAPABILITY: Final = "AMQPROUTE:SECURE-PATH"
"""Offered capability in the open of a broker that honors `SECURE_PATH` on the next hop too."""

EXACTLY_ONCE_CAPABILITY: Final = Symbol("AMQPROUTE:EXACTLY-ONCE")
"""Desired capability of a sender's link: it settles what was accepted, so that the receiver may
settle second; offered in the answer where the receiver does (P-14)."""
CONTRACT: Final = Symbol("amqproute:contract")
"""Property of our open: the limits for the other side, as in
`frontends.contract_enforcement.ContractTerms`."""

# Message annotations for brokers; see `amqproute.services.sender_reports`,
# `.provenance`.
RETURN_TO: Final = Symbol("x-opt-return-to")
"""Return address of a message and of reports about it (T-26)."""
REPORT: Final = Symbol("x-opt-report")
"""The reports that the sender wants: one of the words of `reports.default`, or a list of them."""
REPORT_KIND: Final = Symbol("x-opt-amqproute-report")
"""On a report: its kind; on a returned message `RETURNED`. Informational."""
RETURNED: Final = Symbol("return")
"""The `REPORT_KIND` of a message that a broker sends back: the body is not that broker's."""
ORIGIN: Final = Symbol("x-opt-amqproute-origin")
"""The domain that a message comes from, as proved to the brokers on its way."""
TRACE: Final = Symbol("x-opt-amqproute-trace")
"""The containers that a message has passed, oldest first; see `amqproute.routing.trail`."""
DEAD_LETTER_REASON: Final = Symbol("x-opt-dead-letter-reason")
"""On a dead letter: why it is one, a `DeadLetterReason`."""
DEAD_LETTER_SOURCE: Final = Symbol("x-opt-dead-letter-source")
"""On a dead letter: the queue that it left; for other organizations its address."""
DEAD_LETTER_WORDS: Final = Symbol("x-opt-dead-letter-description")
"""On a dead letter: the text of its rejection."""
SECURE_PATH: Final = Symbol("x-opt-require-secure-path")
"""The one of `SECURITY_LEVELS` below which the message must not travel."""

RELAY_PREFIX: Final = "amqp$out/"
SERVICE_BYTES: Final = 1024 * 1024
"""The most octets of a message to a service, which has it in memory as a whole."""
"""Prefix of the name of a relay queue, before the key of its next hop."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated party at the other end of a connection.

    `str()` gives the form in which access rules and the log name it: ``user:ann``,
    ``peer:beta.example``, ``uid:1000``, ``anonymous``.

    Attributes:
        kind: ``user`` by a password, ``peer`` by a certificate, ``uid`` by a unix socket,
            ``anonymous`` by nothing at all.
        name: the user name, domain name or decimal user id; empty for ``anonymous``.
        names: every domain name that a peer's certificate proves, `name` among them, in lower
            case; empty for the other kinds. A rule about a peer applies if it fits any of them.
        host: the virtual host that it has opened, beyond which it reaches no node; empty for ``/``.
        groups: the groups of a user that a directory or the issuer of a token knows; access rules
            name them ``group:NAME``. The same user with other groups is the same principal.
        realm: what has verified the user, if not the users file; likewise.
        account: by which that realm is asked whether the user is still there; likewise.
    """

    kind: Literal["user", "peer", "uid", "anonymous"]
    name: str = ""
    names: frozenset[str] = frozenset()
    host: str = ""
    groups: frozenset[str] = field(default=frozenset(), compare=False)
    realm: str = field(default="", compare=False)
    account: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind != "anonymous" else "anonymous"


ANONYMOUS_PRINCIPAL = Principal("anonymous")


def owner_of(principal: Principal, host: str) -> str:
    """Return whose the links and subscriptions are that a principal names.

    A name has its meaning within one owner. Everybody who did not authenticate is the same
    principal, and says any container-id; so each address is an owner of its own:
    ``anonymous@192.0.2.1``. Everybody else is one owner, from wherever. In a virtual host they are
    other owners: ``//HOST/user:ann``.

    Args:
        principal: who is at the other end.
        host: the address that the connection is from; empty where it has none.
    """
    who = str(principal)
    owner = f"{who}@{host}" if host and principal.kind == "anonymous" else who
    return in_host(principal.host, owner)


def principal_of(owner: str) -> str:
    """Return the principal in an owner that `owner_of` has made."""
    return "anonymous" if is_of_address(owner) else local_name(owner)


def is_of_address(owner: str) -> bool:
    """Tell whether an owner is an address, because nobody has proved who is there."""
    return local_name(owner).startswith("anonymous@")


class TransportSecurity(Enum):
    """Start of TLS on a connection to a peer. Connections without TLS do not exist."""

    IMPLICIT = "amqps"
    """TLS from the first octet (SRV service ``amqps``, port 5671)."""

    UPGRADE = "amqp"
    """The AMQP TLS protocol header, then TLS (part 5 §5.2; SRV service ``amqp``, port 5672)."""


SECURITY_LEVELS: Final = ("none", "tls", "authenticated", "dane")
"""Security levels, the lowest first: nothing; encryption; the peer's name proved by an
authority or a pin; proved by signed DNS."""


class TlsaState(Enum):
    """State of the TLSA records of one place, and how far it can be believed."""

    INSECURE = "insecure"
    """The path to them is not secured by DNSSEC, so nothing was asked or believed."""

    PRESENT = "present"
    """Validated records; whether one of them can be used is for `amqproute.net.dane` to say."""

    ABSENT = "absent"
    """Validated proof that there are none."""

    FAILED = "failed"
    """No answer, or one that fails validation: nothing may be concluded, nothing sent."""


@dataclass(frozen=True, slots=True)
class Tlsa:
    """One TLSA record (RFC 6698 §2.1).

    Attributes:
        usage: 0 PKIX-TA, 1 PKIX-EE, 2 DANE-TA, 3 DANE-EE.
        selector: 0 the whole certificate, 1 its public key.
        matching: 0 exact, 1 SHA-256, 2 SHA-512.
        data: the data to match.
    """

    usage: int
    selector: int
    matching: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.usage} {self.selector} {self.matching} {self.data.hex()}"


@dataclass(frozen=True, slots=True)
class TlsaAnswer:
    """TLSA records of one place, with the state of the look-up.

    Attributes:
        base: the TLSA base domain (RFC 7671 §2): the target, or the end of its signed aliases.
        port: the TCP port.
        state: how far the rest can be believed.
        records: only with `TlsaState.PRESENT`.
        code: reason of a bad state, for example ``dns.bogus``; or empty.
        words: the reason as text.
    """

    base: str
    port: int
    state: TlsaState
    records: tuple[Tlsa, ...] = ()
    code: str = ""
    words: str = ""

    @property
    def owner(self) -> str:
        """Owner name of the records: ``_5671._tcp.mx.beta.example``."""
        return f"_{self.port}._tcp.{self.base}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place at which a domain's broker may be reached.

    Attributes:
        host: lower-case A-labels without the final dot: the SRV target, or the domain itself where
            its own addresses are used.
        port: the TCP port.
        security: how TLS starts there.
        addresses: IPv4 and IPv6 addresses as text, in the order to try; IPv6 first, then by turns
            (RFC 8305 §4). Never empty when it comes from the resolver.
        priority: the SRV priority; lower is tried first.
        weight: the SRV weight among candidates of one priority.
        source: its origin: ``srv:_amqps._tcp.beta.example``, ``address`` or ``static``.
        secure: the records that lead from the domain to this host are validated by DNSSEC.
        tlsa: its TLSA records; None if not looked up, as for a static route.
    """

    host: str
    port: int
    security: TransportSecurity
    addresses: tuple[str, ...]
    priority: int
    weight: int
    source: str
    secure: bool = False
    tlsa: TlsaAnswer | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """Result of the DNS look-up of one domain.

    Attributes:
        domain: lower-case A-labels without the final dot.
        candidates: the candidates in the order to try; never empty.
        attempts: questions and answers, a line each, for the operator.
        ttl: validity in seconds.
        stale: an expired answer is used because the name servers fail (RFC 8767).
        authenticated: every answer that led here is validated by DNSSEC: in this process, or by a
            trusted name server that says so with the AD bit (RFC 4035 §3.2.3).
    """

    domain: str
    candidates: tuple[Candidate, ...]
    attempts: tuple[str, ...]
    ttl: float
    stale: bool
    authenticated: bool


QUARANTINE: Final = "amqp$quarantine"
"""Queue name of damaged entries in the store. It is no node, and they are not delivered."""


class DeadLetterReason(enum.StrEnum):
    """Why an entry left its queue undelivered (O-24); the symbol is the annotation's value."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_DELIVERIES = "max-deliveries"
    MAX_LENGTH = "max-length"
    UNDELIVERABLE = "undeliverable"

    @property
    def symbol(self) -> Symbol:
        """Its value in the annotation."""
        return Symbol(self.value)


@dataclass(frozen=True, slots=True)
class NextHop:
    """The next hop of messages for a domain.

    Attributes:
        key: names the relay queue and the destination: the domain, or the gateway of a static
            route as ``host:port``.
        domain: the name the peer has to prove, asked for in SNI and open.hostname.
        via: ``amqps://host:port`` or ``amqp://host:port`` of a static route, or None for DNS.
        target: the address to attach to at the peer: ``amqp$transfer``, ``anonymous``, or a
            template with ``{node}`` (T-34).
        names: further names that the peer's certificate may prove instead.
    """

    key: str
    domain: str
    via: str | None = None
    target: str = "amqp$transfer"
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class Origin:
    """Sender of messages on a link, with what a target needs to know besides the message.

    Attributes:
        principal: the authenticated sender.
        is_peer: whether it is another organization's broker: relay rules apply, not client rules.
        container_id: the container-id of its open.
        stream: for a relaying peer, the receipts of its stream; None otherwise.
        tag: the delivery-tag of the message being put.
        is_dead_letter: whether it has left a queue undelivered; it does not expire a second time.
        replies: for `services.reply_paths`: node to the alias under which replies find it.
        gone_at: when the link ended, by the broker's clock; None while it exists.
        has_credit: messages arrive within credit that was granted for the target's space: they are
            accepted even if they are larger than expected.
        account: the `amqproute.broker.sender_quotas.SenderQuota` that its messages are charged to,
            or None.
        event: the journal's name for such an arrival: ``received``; ``routed`` for what the
            broker puts somewhere itself; ``reported``.
        parent: the entry that the message is a copy of, or replaces.
        connection: the broker's name for the connection.
        link: name of the link.
        level: what the connection has reached, one of `SECURITY_LEVELS`.
        store: the name of a relaying peer's store in its journal.
        protocol: what the connection speaks, for the journal; empty for AMQP 1.0.
    """

    principal: Principal
    is_peer: bool = False
    container_id: str = ""
    stream: Any = None  # Any: the broker's `Stream`, of a layer above
    tag: bytes = b""
    is_dead_letter: bool = False
    replies: dict[str, str] | None = None
    gone_at: float | None = None
    has_credit: bool = False
    account: Any = None  # Any: the broker's `SenderQuota`, of a layer above
    event: str = "received"
    parent: int | None = None
    connection: str = ""
    link: str = ""
    level: str = ""
    store: str = ""
    protocol: str = ""


ANSWERING: Final = Origin(ANONYMOUS_PRINCIPAL, event="routed")
"""Origin of this broker's answers to its own clients."""


@dataclass(frozen=True, slots=True)
class Local:
    """A route that ends here: the message belongs on this node."""

    node: str


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A static route: consulted before DNS, the first match wins (T-08, K-03).

    Attributes:
        pattern: a domain, or ``*.domain`` for everything below it, or ``*``.
        via: ``amqps://host:port`` or ``amqp://host:port``; None sends to the domain by DNS but
            with the other settings of this rule.
        target: the target as in `NextHop`.
        names: the names as in `NextHop`.
    """

    pattern: str
    via: str | None
    target: str = "amqp$transfer"
    names: tuple[str, ...] = ()

    def matches(self, domain: str) -> bool:
        """Tell whether the rule is about this domain (A-labels, lower case)."""
        if self.pattern.startswith("*."):
            return domain.endswith(self.pattern[1:])
        return self.pattern in ("*", domain)
