# SPDX-License-Identifier: Apache-2.0
"""A reload takes effect wholly or not at all, with each setting as the schema says."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

from twisted.internet import reactor
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase

from amqproute.config import Config, load, loads
from amqproute.config.config_diff import after_reload, differences, named
from amqproute.config.yaml_document import all_keys, at_start_keys
from amqproute.daemon.assembly import Application
from amqproute.daemon.config_reload import ConfigReloader, ReloadReport
from amqproute.daemon.log_output import LogOutput
from amqproute.daemon.service import DaemonService
from amqproute.daemon.tracing_assembly import Tracing
from amqproute.errors import AmqprouteError, ConfigError
from amqproute.plugins import REALMS
from amqproute.services.management_node import MANAGEMENT
from amqproute.tracing.otlp_exporter import OtlpSink
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Principal
from tests.integration.support import certificates, new_directory
from tests.net.test_certificate_reload import revocation_list
from tests.support.tiny_distribution import REALM_KINDS, install

BETA: Final = Principal("peer", "beta.example")
ANNA: Final = Principal("user", "anna")
Probe = Callable[[Application], object]
Value = TypeVar("Value")


def leaves() -> list[str]:
    """Return every setting, without the groups that they are in."""
    keys = all_keys()
    return [
        ".".join(key)
        for key in keys
        if not any(each != key and each[: len(key)] == key for each in keys)
    ]


def at_start() -> set[str]:
    """Return the settings that the schema marks as taking effect at the next start."""
    return {".".join(key) for key in at_start_keys()}


def without(terms: Any, *names: str) -> dict[str, Any]:
    """Return the values of a data class, those left out that change by themselves."""
    kept = [each.name for each in fields(terms) if each.name not in names]
    return {name: getattr(terms, name) for name in kept}


def node_terms(app: Application) -> object:
    """Return what the broker goes by for each declared node."""
    queues = {
        name: (each.limits, each.options, each.dead_letter_name)
        for name, each in app.broker.nodes.items()
    }
    return queues, {name: each.limits for name, each in app.broker.topics.items()}


def relay_terms(app: Application) -> object:
    """Return what the relay goes by; rates are asked elsewhere."""
    assert app.relay is not None
    assert app.transfer is not None
    relay = app.relay
    return (
        without(relay._terms, "rate", "part_bytes"),
        relay._starts.per_second,
        relay._limits,
        relay.dead_letter_name,
        app.transfer.rules.max_hops,
        app.replies.grace_seconds,
        app.replies.is_making,
    )


def status_limits(app: Application) -> object:
    """Return the limits that STATUS judges by."""
    return app.broker.services[MANAGEMENT].operations["STATUS"].__self__._limits()


def target_policy(app: Application) -> object:
    """Return the rules of where the DNS may lead."""
    return without(app._targets(), "is_named", "own")


def auto_creates(app: Application) -> object:
    """Return whether a link may make a queue."""
    name = f"made-{len(app.inventory.nodes)}"
    return app._auto_create(name, ANONYMOUS_PRINCIPAL) is not None


def tracing_terms(app: Application) -> object:
    """Return what tracing goes by."""
    tracing = app.tracing
    assert isinstance(tracing, Tracing)
    sink = tracing._export._sink
    assert isinstance(sink, OtlpSink)
    return (
        without(tracing._tracer.terms, "is_trusted"),
        sink._connection._terms,
        dict(sink._resource.attributes),
        tracing._stories.most,
        tracing._queue.most,
    )


OBSERVED: Final[dict[str, Probe]] = {
    "include": lambda app: app.config.source.files,
    "domains": lambda app: (
        app.transfer.rules.router.own_names,  # type: ignore[union-attr]
        app.delays.reporter.terms.domain,  # type: ignore[union-attr]
        app.resolver._own,
        app.replies._domain(),
        app._inbound._policies.is_own("new.example"),
    ),
    "strict-hostname": lambda app: app.shared.serves("other.example"),  # type: ignore[union-attr]
    "qualify-dynamic": lambda app: app._qualified("x"),
    "alias-to": lambda app: app.transfer.rules.insert_to,  # type: ignore[union-attr]
    "unsupported-filter": lambda app: app.amqp10.termini._drops_filters(),  # type: ignore[union-attr]
    "tolerate-missing-body": lambda app: app.amqp10.tolerates_missing_body(),  # type: ignore[union-attr]
    "remote-services": lambda app: app.transfer.rules.remote_services,  # type: ignore[union-attr]
    "auto-create": auto_creates,
    "tls": lambda app: app.certificates.contexts.files,  # type: ignore[union-attr]
    "listen": lambda app: [each.places.terms for each in app.listeners],
    "users.ldap": lambda app: app.access.realms.password_realm("ldap"),
    "users.realms": lambda app: app.access.realms._passwords,
    "users.issuers": lambda app: dict(app.access.realms._issuers),
    "users.recheck": lambda app: app.log_in_recheck.seconds,
    "users.token-passwords": lambda app: app.access.realms.takes_tokens_as_passwords,
    "users": lambda app: app.access.users.path,
    "access": lambda app: app.access.rules,
    "nodes": node_terms,
    "aliases": lambda app: dict(app.broker.aliases),
    "bindings": lambda app: [*app.broker.bindings],
    "realms": lambda app: (
        app.realms.contains("/mine", "a"),
        app.realms.contains("/data", "a"),
    ),
    "policies": lambda app: {
        host: (each._plain, each._operator) for host, each in app.broker._policies.items()
    },
    "resolver": target_policy,
    "routes": lambda app: app.transfer.rules.router.rules,  # type: ignore[union-attr]
    "peers.level": lambda app: app._connector._policy_for("beta.example"),  # type: ignore[union-attr]
    "peers.pin": lambda app: app._connector._policy_for("beta.example"),  # type: ignore[union-attr]
    "peers.container-id": lambda app: dict(app.transfer.rules.router.containers),  # type: ignore[union-attr]
    "peers.relay-for": lambda app: app.transfer.rules.partners.relay_for(BETA),  # type: ignore[union-attr]
    "peers.origins": lambda app: app.transfer.rules.partners.origins(BETA),  # type: ignore[union-attr]
    "peers.suppress-duplicates": lambda app: app.receipts.suppresses(BETA),
    "peers.contract": lambda app: app.contracts._terms_for(BETA),
    "peers": lambda app: app.relay._terms.rate(NextHop("beta.example", "beta.example")),  # type: ignore[union-attr]
    "contracts": lambda app: app.contracts._terms_for(ANNA),
    "relay.receipt-lifetime": lambda app: app._receipt_expiry.lifetime,
    "relay": relay_terms,
    "reports": lambda app: (app.delays.reporter.terms, app.delays.after_seconds),  # type: ignore[union-attr]
    "store": lambda app: app.watermarks.terms,  # type: ignore[union-attr]
    "staging": lambda app: app.store.staging.terms,
    "limits.lock-timeout": lambda app: app.shared.lock_seconds,  # type: ignore[union-attr]
    "limits.consumer-timeout": lambda app: app.shared.consumer_seconds,  # type: ignore[union-attr]
    "journal": lambda app: (app.journaling.kept.terms, app.journaling._seconds),  # type: ignore[union-attr]
    "peers.trace-context": lambda app: app._agent._identity.tracing(  # type: ignore[union-attr]
        NextHop("beta.example", "beta.example")
    ),
    "tracing": tracing_terms,
    "status": status_limits,
    "management": lambda app: (app.web.site._terms, app.web.bounds),
    "management.metrics": lambda app: (  # asked at each scrape
        app.config.management.metrics_networks,
        app.config.management.metrics_named,
    ),
    "management.pipeline": lambda app: app.config.management.pipeline,  # asked at each request
    "management.rabbitmq": lambda app: (  # asked at each request
        app.config.management.rabbitmq_api,
        app.config.management.rabbitmq_metrics,
    ),
    "virtual-hosts.access": lambda app: app.access.rules,
    "virtual-hosts.nodes": node_terms,
    "virtual-hosts": lambda app: (
        dict(app.hosts.hosts._terms),
        dict(app.broker.hosts),
    ),
    "shutdown-timeout": lambda app: app.config.shutdown_timeout,  # asked at the stop
}  # fmt: skip
"""Evidence that a setting is in force, by its key or the longest prefix of it."""

QUEUE: Final = {"name": "n"}
TOPIC: Final = {"name": "t", "type": "topic", "subscriber-buffer": 100}
SOURCE: Final = {"source": "n", "target": "a"}
POLICY: Final = {"name": "p", "pattern": "^n", "definition": {"message-ttl": 5}}
ROUTE: Final = {"domain": "gamma.example", "via": "amqps://broker.example:5671"}
RULE: Final = {"allow": ["publish"], "who": "user:anna", "node": "n"}

ENTRIES: Final[dict[str, dict[str, Any]]] = {
    "nodes.durable-on-transient": {**QUEUE, "message-durability-mode": "force-transient"},
    "nodes.excess-destructive-link-policy": {**QUEUE, "maximum-destructive-links": 1},
    "nodes.last-value-key": {**TOPIC, "last-value": 1},
    "nodes.subscriber": TOPIC,
    "nodes.last-value": TOPIC,
    "nodes.unroutable": TOPIC,
    "nodes": QUEUE,
    "bindings.subject": {**SOURCE, "source": "t"},
    "bindings": SOURCE,
    "policies": POLICY,
    "routes": ROUTE,
    "access": RULE,
}

CHANGED: Final[dict[str, Any]] = {
    "include": ["more/*.yaml"], "plugins.required": ["color"],
    "container-id": "other.alpha.example", "domains": ["alpha.example", "new.example"],
    "state-directory": "/nonexistent", "strict-hostname": True, "qualify-dynamic": True,
    "alias-to": "require", "unsupported-filter": "drop", "tolerate-missing-body": True,
    "remote-services": ["$management"], "auto-create": True,
    "tls.watch": 60, "listen.endpoint": "tcp:5672:interface=127.0.0.1", "listen.tls": "upgrade",
    "listen.client-certificate": "optional", "listen.mechanisms": ["SCRAM-SHA-256"],
    "listen.plain-without-tls": True,
    "listen.max-connections": 7, "listen.mute-per-address": 7, "listen.mute-per-network": 7,
    "listen.mute-shares": {"203.0.113.7/32": 7}, "listen.proxy-protocol": ["203.0.113.0/24"],
    "access.allow": ["consume"], "access.deny": ["consume"], "access.who": "user:bob",
    "access.node": "a", "realms": {"/mine": ["a*"]}, "nodes.name": "other",
    "nodes.type": "topic", "nodes.capacity": 7,
    "nodes.max-deliveries": 7, "nodes.dead-letter": "a", "nodes.ttl": 7, "nodes.priorities": 7,
    "nodes.message-durability-mode": "force-durable", "nodes.durable-on-transient": "reject",
    "nodes.duplicate-policy": "all", "nodes.non-transactional-support": "only",
    "nodes.maximum-destructive-links": 7, "nodes.excess-destructive-link-policy": "wait",
    "nodes.archive-expired": False, "nodes.archive-currently-unreachable": True,
    "nodes.visibility": "inbound", "nodes.default-outcomes": ["accepted"],
    "nodes.subscriber-buffer": 7, "nodes.subscriber-buffer-bytes": 70000,
    "nodes.subscriber-full": "wait", "nodes.last-value": 7, "nodes.last-value-key": "key",
    "nodes.unroutable": "reject", "aliases": {"nick": "a"}, "bindings.source": "b",
    "bindings.target": "b", "bindings.filter": "colour = 'red'", "bindings.subject": "a.*",
    "bindings.mode": "move", "policies.name": "other", "policies.pattern": "^a",
    "policies.apply-to": "queues", "policies.priority": 7, "policies.operator": True,
    "policies.virtual-host": "shop", "policies.definition.message-ttl": 7,
    "policies.definition.expires": 7, "policies.definition.max-length": 7,
    "policies.definition.max-length-bytes": 7, "policies.definition.overflow": "drop-head",
    "policies.definition.dead-letter-exchange": "a",
    "policies.definition.dead-letter-routing-key": "a",
    "policies.definition.dead-letter-strategy": "at-most-once",
    "policies.definition.delivery-limit": 7, "policies.definition.consumer-timeout": 7,
    "policies.definition.queue-mode": "lazy", "policies.definition.alternate-exchange": "a",
    "resolver.nameservers": ["127.0.0.1"], "resolver.dnssec": "use",
    "resolver.validate": "self", "resolver.trusted": ["192.0.2.0/24"],
    "resolver.anchors": "/nonexistent", "resolver.dnssec-probe": "example.",
    "resolver.deny-targets": ["11.0.0.0/8"], "resolver.allow-targets": ["10.0.0.0/8"],
    "resolver.allow-ports": [993], "resolver.timeout": 7, "resolver.cache-entries": 777,
    "resolver.cache-longest": 777, "resolver.cache-longest-negative": 77,
    "routes.domain": "delta.example", "routes.via": "amqps://other.example:5671",
    "routes.target": "/queues/{node}", "routes.names": ["other.example"], "peers.level": "pkix",
    "peers.pin": ["key-sha256:" + 64 * "0"], "peers.container-id": "mx.beta.example",
    "peers.relay-for": ["gamma.example"], "peers.origins": ["gamma.example"],
    "peers.messages-per-second": 7, "peers.bytes-per-second": 7000,
    "peers.suppress-duplicates": True, "peers.trace-context": "keep",
    "relay.lifetime": 86400 * 3, "relay.first-retry": 7,
    "relay.last-retry": 777, "relay.max-hops": 7, "relay.window": 7, "relay.window-bytes": 777777,
    "relay.dead-after": 7, "relay.settle-timeout": 77, "relay.connects-per-second": 7,
    "relay.max-destinations": 777, "relay.idle-timeout": 7, "relay.connect-timeout": 7,
    "relay.dead-letter": "a", "relay.reply-aliases": False, "relay.reply-grace": 777,
    "relay.receipt-lifetime": 86400 * 30, "distributed-transactions.enabled": True,
    "distributed-transactions.max-branches": 7, "distributed-transactions.timeout": 7,
    "distributed-transactions.memory": 777777, "distributed-transactions.warn-after": 7,
    "reports.default": ["failure"], "reports.delay-after": 777, "reports.lifetime": 86400 * 3,
    "staging.max-content": 7777, "staging.max-user-bytes": 7777, "staging.max-bytes": 7777,
    "staging.max-user-contents": 7, "staging.max-contents": 7, "staging.keep": 7,
    "store.min-free": "7%", "store.max-bytes": 7777777, "limits.max-frame-size": 7777,
    "limits.max-message-size": 77777, "limits.max-connections": 777, "limits.max-sessions": 7,
    "limits.max-links": 7, "limits.handshake-timeout": 7, "limits.idle-timeout": 7,
    "limits.link-prefetch": 7, "limits.session-window": 7, "limits.unsettled-per-link": 7,
    "limits.resume-timeout": 7, "limits.delivery-timeout": 7, "limits.transaction-timeout": 7,
    "limits.lock-timeout": 7, "limits.consumer-timeout": 7, "limits.output-buffer": 7777,
    "limits.memory": 77777777,
    "limits.queue-memory-messages": 7, "limits.queue-memory-bytes": 77777,
    "limits.max-nodes": 777, "journal.enabled": False, "journal.segment-bytes": 77777,
    "journal.segment-seconds": 7, "journal.keep": 86400 * 7, "journal.max-bytes": 7777777,
    "journal.stock-seconds": 777, "journal.on-full": "count", "tracing.enabled": False,
    "tracing.endpoint": "https://127.0.0.1:9/v1/traces", "tracing.timeout": 7,
    "tracing.service-name": "other", "tracing.sample-failures": False,
    "tracing.sample-slow": 7, "tracing.sample-parent": False, "tracing.sample-rate": 0.7,
    "tracing.max-messages": 777, "tracing.max-spans": 7777, "status.oldest": 7,
    "status.oldest-by": {"n": 7}, "status.no-consumer": 7, "status.no-credit": 7,
    "status.certificate": 7, "status.dns": 7, "management.http": "tcp:9672:interface=127.0.0.1",
    "management.tls": "implicit", "management.client-certificate": "optional",
    "management.proxy-protocol": ["10.1.0.5/32"],
    "management.max-connections": 7, "management.connections-per-address": 7,
    "management.max-event-streams": 7, "management.requests-per-second": 7,
    "management.max-body": 7777, "management.request-timeout": 7,
    "management.metrics-networks": ["10.1.0.0/16"], "management.metrics-named": 7,
    "management.pipeline": "/var/lib/amqproute-pipeline",
    "users.ldap.servers": ["ldaps://b.example"], "users.ldap.start-tls": True,
    "users.ldap.user-dn": "cn={name},dc=b", "users.ldap.bind-dn": "cn=other,dc=a",
    "users.ldap.search-base": "dc=b", "users.ldap.search-filter": "(mail={name})",
    "users.ldap.name-attribute": "cn", "users.ldap.member-of": "memberOf",
    "users.ldap.group-base": "dc=b", "users.ldap.group-filter": "(memberUid={name})",
    "users.ldap.group-attribute": "gid", "users.ldap.group-prefix": "b:",
    "users.ldap.timeout": 7, "users.ldap.retry": 7, "users.ldap.connections": 7,
    "users.ldap.remember": 7, "users.ldap.remember-refused": 7,
    "users.issuers.issuer": "https://b.example", "users.issuers.audience": ["b"],
    "users.issuers.algorithms": ["ES256"], "users.issuers.leeway": 7,
    "users.issuers.user-claim": "email", "users.issuers.group-claims": ["b"],
    "users.issuers.group-prefix": "b:", "users.issuers.scope": "b",
    "users.recheck": 7, "users.token-passwords": True, "users.realms.kind": "guests",
    "users.realms.users": "svc-*", "users.realms.deadline": 7, "users.realms.settings": {"a": 1},
    "management.rabbitmq-api": True, "management.rabbitmq-metrics": True,
    "log.format": "json", "log.level": "warn", "shutdown-timeout": 7,
    **{
        f"{holder}.{key}": value
        for holder in ("contracts", "peers.contract")
        for key, value in (
            ("connections", 7), ("links", 7), ("credit", 7), ("messages-per-second", 7),
            ("bytes-per-second", 7000), ("spool", 70000), ("max-message-size", 70000),
        )
    },
}  # fmt: skip
"""Another value than the default for each setting but those that name files."""

REALM_FILES: Final = ("trust", "bind-password-file", "keys-file")
TRACING_FILES: Final = {
    "tracing.headers-file": "headers",
    "tracing.trust": "trust-2",
    "tracing.certificate": "chain-2",
    "tracing.private-key": "key-2",
}
"""The settings of tracing that name files, and the files."""

HOST: Final = "virtual-hosts."
CHANGED.update(
    {f"{HOST}{key}": value for key, value in CHANGED.items()
     if key.startswith(("nodes.", "access."))}
)  # fmt: skip
CHANGED.update(
    {f"{HOST}domains": ["new.example"], f"{HOST}max-connections": 7, f"{HOST}max-nodes": 7}
)


def longest(table: Mapping[str, Value], key: str) -> Value:
    """Return what stands for the longest beginning of a key."""
    return table[max((each for each in table if key.startswith(each)), key=len)]


class ReloadCase(TestCase):
    """An application that runs, with its log.

    Attributes:
        settings: of its file.
        further: settings of its file, beside those that all have.
    """

    further: Mapping[str, object] = MappingProxyType({})

    async def setUp(self) -> None:
        self.directory = new_directory()
        points = {REALMS: {"staff": "tiny_acme_realms:STAFF", "guests": "tiny_acme_realms:GUESTS"}}
        modules = {"tiny_acme_realms": REALM_KINDS}
        self.addCleanup(install(self.directory / "site", "tiny_acme", modules, points))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        issued = certificates().issue("alpha.example")
        for name, source in (
            ("chain", issued.chain), ("key", issued.private_key),
            ("trust", certificates().trust),
        ):  # fmt: skip
            for copy in (name, f"{name}-2"):
                shutil.copy(source, self.directory / copy)
                (self.directory / copy).chmod(0o600)
        for name in ("users", "users-2"):
            (self.directory / name).write_text("{}\n")
        (self.directory / "headers").write_text("Authorization: Bearer secret\n")
        self.settings: dict[str, Any] = {
            "container-id": "mx.alpha.example",
            "domains": ["alpha.example"],
            "state-directory": str(self.directory / "state"),
            "resolver": {"dnssec": "off", "nameservers": ["127.0.0.2"]},
            "tls": {
                "certificate": str(self.directory / "chain"),
                "private-key": str(self.directory / "key"),
                "trust": str(self.directory / "trust"),
            },
            "listen": [self.listen()],
            "users": {"file": str(self.directory / "users")},
            "management": {"http": "tcp:0:interface=127.0.0.1"},
            "tracing": {
                "enabled": True,
                "endpoint": "https://127.0.0.1:1/v1/traces",
                # Those of the machine take longer to load than everything else at a reload.
                "trust": str(self.directory / "trust"),
                "certificate": str(self.directory / "chain"),
                "private-key": str(self.directory / "key"),
            },
            "nodes": [{"name": "a"}, {"name": "b"}, QUEUE, TOPIC],
            **self.further,
        }
        self.file = self.directory / "amqproute.yaml"
        (self.directory / "more").mkdir()
        (self.directory / "more" / "empty.yaml").write_text("")
        self.events: list[dict[str, Any]] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)
        self.output = LogOutput(lambda _: None, {"": "info"})
        config = self.config()
        self.app = Application(config, reactor)
        service = DaemonService(config, self.file, self.output)
        self.app.reloader.register("log", service._prepare_log)
        await self.app.start()
        self.addCleanup(self.app.stop)

    def listen(self, **changes: Any) -> dict[str, Any]:
        """Return the listener, with changes."""
        endpoint = f"tcp:{self.port}:interface=127.0.0.1"
        return {"endpoint": endpoint, "mechanisms": ["ANONYMOUS"], **changes}

    def config(self, **changes: Any) -> Config:
        """Read the settings with changes from the file."""
        self.file.write_text(json.dumps({**self.settings, **changes}))
        return load(self.file)

    def changed(self, key: str) -> dict[str, Any]:
        """Return the groups of settings in which one setting has another value."""
        group, *inner = key.split(".")
        if key in ("tls.certificate", "tls.private-key", "tls.trust", "users.file"):
            names = {"certificate": "chain", "private-key": "key"}
            name = names.get(inner[0], inner[0] if group == "tls" else "users")
            return {group: {**self.settings[group], inner[0]: str(self.directory / f"{name}-2")}}
        if key.startswith(("users.ldap.", "users.realms.", "users.issuers.", "users.token")):
            return {group: {**self.settings[group], **self.changed_realm(key)}}
        if key == "tls.crl":
            return {group: {**self.settings[group], "crl": [str(self.directory / "crl")]}}
        value = str(self.directory / TRACING_FILES[key]) if key in TRACING_FILES else CHANGED[key]
        if not inner:
            return {group: value}
        if group == "listen":
            return {group: [self.listen(**{inner[0]: value})]}
        if group == "contracts":
            return {group: {"user:anna": {inner[0]: value}}}
        if len(inner) > 1 and key.startswith(HOST):
            return {group: {"shop": self.changed(key.removeprefix(HOST))}}
        if key.startswith(HOST):
            return {group: {"shop": {inner[0]: value}}}
        if group == "peers":
            entry: dict[str, Any] = {inner[-1]: value}
            if inner[0] == "contract":
                entry = {"contract": entry}
            if key == "peers.pin":
                entry["level"] = "pin"
            return {group: {"beta.example": entry}}
        if any(key.startswith(each) for each in ENTRIES):
            base = longest(ENTRIES, key)
            if len(inner) > 1:
                value = {inner[1]: value}
            found: dict[str, Any] = {group: [*self.others(key), {**base, inner[0]: value}]}
            if key == "policies.virtual-host":
                found["virtual-hosts"] = {value: {}}
            return found
        return {group: {**self.settings.get(group, {}), inner[0]: value}}

    def changed_realm(self, key: str) -> dict[str, Any]:
        """Return the settings of outside realms in which one has another value."""
        _, kind, *inner = key.split(".")
        if kind == "realms":
            return {kind: {"corp": {"kind": "staff", inner[0]: CHANGED[key]}}}
        realm: dict[str, Any] = {"servers": ["ldaps://a.example"]}
        issuer: dict[str, Any] = {"issuer": "https://a.example", "audience": ["a"]}
        if not inner:
            return {kind: CHANGED[key], "issuers": {"a": issuer}}
        (name,) = inner
        path = self.directory / "trust-2"
        value = str(path) if name in REALM_FILES else CHANGED[key]
        if kind == "issuers":
            return {kind: {"a": {**issuer, name: value}}}
        if name in ("bind-dn", "bind-password-file"):
            realm |= {"bind-dn": "cn=a,dc=a", "bind-password-file": str(self.directory / "key")}
        base = {} if name in ("user-dn", "search-base") else {"user-dn": "uid={name},dc=a"}
        return {kind: {**realm, **base, name: value}}

    def unchanged(self, key: str) -> dict[str, Any]:
        """Return the groups as they are before the change."""
        if key.startswith(HOST):
            return {HOST[:-1]: {"shop": self.unchanged(key.removeprefix(HOST))}}
        if not any(key.startswith(each) for each in ENTRIES):
            return {}
        return {key.partition(".")[0]: [*self.others(key), longest(ENTRIES, key)]}

    def others(self, key: str) -> list[dict[str, Any]]:
        """Return the entries beside the one in which a setting changes."""
        name = longest(ENTRIES, key).get("name")
        entries = self.settings.get(key.partition(".")[0], ())
        return [each for each in entries if each["name"] != name]

    def warnings(self) -> list[str]:
        """Return what the log says waits for the next start, and forget it."""
        found = [
            str(event["settings"])
            for event in self.events
            if str(event.get("log_format")).endswith("take effect at the next start")
        ]
        self.events.clear()
        return found


class SettingTests(ReloadCase):
    """Schema and behavior agree about what a reload puts in force."""

    def test_complete(self) -> None:
        """Every setting is tried."""
        files = {"tls.certificate", "tls.private-key", "tls.trust", "tls.crl", "users.file"}
        files |= {f"users.ldap.{name}" for name in ("trust", "bind-password-file")}
        files |= {f"users.issuers.{name}" for name in ("trust", "keys-file")}
        files |= {*TRACING_FILES}
        self.assertEqual({*CHANGED} | files, {*leaves()})

    def test_at_start(self) -> None:
        """Settings that are marked wait for the next start, each by name."""
        marked = [key for key in leaves() if key in at_start()]
        running = self.app.config
        settings = dict(self.settings)
        for key in marked:
            group, *inner = key.split(".")
            if group == "listen":
                continue
            value = CHANGED[key]
            settings[group] = {**settings.get(group, {}), inner[0]: value} if inner else value
        listen = {key: CHANGED[key] for key in marked if key.startswith("listen.")}
        settings["listen"] = [{key.partition(".")[2]: value for key, value in listen.items()}]
        report = self.app.reload(self.config(**settings))
        self.assertEqual(self.app.config, running)
        waiting = sorted({"listen", *marked} - {*listen})
        self.assertEqual((report.changed, report.waiting, report.failed), ([], waiting, []))
        self.assertEqual(self.warnings(), [named(waiting)])

    def test_at_once(self) -> None:
        """Every other setting is in force after a reload, seen where it is used."""
        probes = {
            **OBSERVED,
            "log.level": lambda _: self.output._predicate.logLevelForNamespace("amqproute"),
        }
        (self.directory / "crl").write_bytes(revocation_list(certificates().directory))
        wrong = []
        for key in leaves():
            if key in at_start():
                continue
            initial = self.config(**self.unchanged(key))
            if differences(self.app.config, initial):
                self.app.reload(initial)
            wanted = self.config(**{**self.unchanged(key), **self.changed(key)})
            probe = longest(probes, key)
            found = probe(self.app)
            report = self.app.reload(wanted)
            expected = ReloadReport(differences(initial, wanted), [], [])
            if not report.changed or report != expected or self.app.config != wanted:
                wrong.append(f"{key}: {report}")
            if probe(self.app) == found:
                wrong.append(f"{key} is not in force")
        self.assertEqual(wrong, [])
        self.assertEqual((self.warnings(), self.flushLoggedErrors()), ([], []))

    def test_no_certificate(self) -> None:
        """To have none any more waits for the next start, with all that belongs to it."""
        found = self.app.certificates.contexts.files  # type: ignore[union-attr]
        report = self.app.reload(self.config(tls={}))
        waiting = ["tls.certificate", "tls.private-key", "tls.trust"]
        self.assertEqual((report.changed, report.waiting), ([], waiting))
        self.assertEqual(self.app.certificates.contexts.files, found)  # type: ignore[union-attr]


class AtomicityTests(ReloadCase):
    """Every component prepares before any applies."""

    def state(self) -> list[object]:
        """Return all that a reload may change."""
        probes = [probe for key, probe in OBSERVED.items() if key != "auto-create"]
        return [probe(self.app) for probe in probes]

    def wanted(self) -> dict[str, Any]:
        """Return settings that each component has something to do for."""
        keys = (
            "domains", "alias-to", "strict-hostname", "tls.trust", "listen.max-connections",
            "users.file", "access.who", "nodes.capacity", "aliases", "bindings.target",
            "routes.target", "peers.messages-per-second", "contracts.links", "relay.window",
            "reports.delay-after", "store.min-free", "journal.segment-bytes", "status.dns",
            "log.level", "resolver.allow-ports",
        )  # fmt: skip
        return {name: value for key in keys for name, value in self.changed(key).items()}

    def test_each_component_fails(self) -> None:
        """Whichever cannot use a configuration, nothing of it is in force."""
        config, before, settings = self.app.config, self.state(), self.config(**self.wanted())
        components = dict(self.app.reloader.components)
        self.assertIn("log", components)
        self.assertIn("nodes", components)
        for name, prepare in components.items():

            def refuse(_: Config, name: str = name) -> Any:
                raise ConfigError([f"{name} cannot use it"])

            self.app.reloader.register(name, refuse)
            self.assertRaises(ConfigError, self.app.reload, settings)
            self.assertIs(self.app.config, config, name)
            self.assertEqual(self.state(), before, name)
            self.assertEqual(self.warnings(), [], name)
            self.app.reloader.register(name, prepare)
        self.app.reload(settings)
        self.assertEqual(self.app.config, settings)
        changed = [now != then for now, then in zip(self.state(), before, strict=True)]
        self.assertGreater(sum(changed), 12)

    def test_preparing_changes_nothing(self) -> None:
        """A component that has prepared has done nothing yet."""
        before, settings = self.state(), self.config(**self.wanted())
        for name, prepare in self.app.reloader.components.items():
            prepare(settings)
            self.assertEqual(self.state(), before, name)

    def test_log_is_true(self) -> None:
        """The service's report of a reload is true."""
        service = DaemonService(self.config(), self.file, self.output)
        service.application, service._is_ready = self.app, True
        prepare = self.app.reloader.components["journal"]

        def lines(settings: dict[str, Any]) -> list[str]:
            self.config(**settings)
            self.events.clear()
            service.reload()
            return [
                str(event["log_format"]).format(**event)
                for event in self.events
                if event["log_namespace"].startswith("amqproute.daemon.")
            ]

        def refuse(_: Config) -> Any:
            raise AmqprouteError("the disk is gone")

        self.app.reloader.register("journal", refuse)
        (line,) = lines(self.wanted())
        self.assertEqual(line, "reload refused, the old configuration stays: the disk is gone")
        self.app.reloader.register("journal", prepare)
        said = lines({"relay": {"window": 7, "connect-timeout": 7}, "limits": {"max-links": 7}})
        waiting = "limits.max-links, relay.connect-timeout"
        self.assertEqual(said[0], f"changes of {waiting} take effect at the next start")
        self.assertTrue(said[-1].endswith("; changed: relay.window"), said)
        self.assertEqual(service._status(), f"waiting for a restart: {waiting}")
        self.assertTrue(lines({})[-1].endswith("; changed: relay.window"))
        self.assertNotIn("waiting", service._status())


class ReloaderTests(SynchronousTestCase):
    """The two passes by themselves."""

    def test_change_that_raises(self) -> None:
        """A mistake in one component keeps no other from its change, and is named."""
        config = loads("domains: [alpha.example]", "f")
        reloader = ConfigReloader(config)
        applied: list[str] = []

        def fail() -> None:
            raise ZeroDivisionError

        reloader.register("one", lambda _: fail)
        reloader.register("two", lambda _: lambda: applied.append("two"))
        report = reloader.reload(loads("domains: [beta.example]", "f"))
        self.assertEqual((report.changed, report.failed), (["domains"], ["one"]))
        self.assertEqual((applied, reloader.config.domains), (["two"], ("beta.example",)))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_listeners(self) -> None:
        """Those that are open stay, with what can change; a new one waits, and one that goes."""
        plain, other = "{endpoint: 'tcp:1', max-connections: 9}", "{endpoint: 'tcp:2'}"
        running = loads("listen: [{endpoint: 'tcp:1'}]", "f")
        wanted = loads(f"listen: [{other}, {plain}]", "f")
        found = after_reload(running, wanted)
        self.assertEqual([each.endpoint for each in found.listen], ["tcp:1"])
        self.assertEqual(found.listen[0].max_connections, 9)
        self.assertEqual(differences(found, wanted), ["listen"])
        self.assertEqual(after_reload(running, loads("listen: []", "f")).listen, running.listen)
