# SPDX-License-Identifier: Apache-2.0
"""Prometheus scrapes running daemons in trouble: expressions have series, and alerts fire.

`PLANTED` has alerts for which there is a fault here; the faults of the others are in `test_alerts`,
which holds that each has one. Prometheus is that of the machine. Alerts are
those that are shipped, with shorter times: `SHORTER` says which limits are lowered, and how.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import skipIf

import yaml
from twisted.trial.unittest import SynchronousTestCase

from amqproute.resolver.zone import ZoneFault, ZoneFaultKind
from amqproute.services.health_checks import CHECKS
from tests.integration.support import (
    Daemon,
    Wire,
    Zone,
    certificates,
    die_with_parent,
    free_ports,
    message,
    new_directory,
    until,
)
from tests.integration.test_operator import command
from tests.metrics.test_shipped import RULES, alerts, expressions, panels
from tests.support.patience import PATIENCE

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
SHORTER: Final = (
    (r"age_seconds > \d+", "age_seconds > 1"),
    (r"(without_(?:credit|dns)_seconds) > \d+", r"\1 > 1"),
    (r"(journal_lag_seconds) > \d+", r"\1 > 2"),
)
"""Limits of alerts that are lowered, as expressions: they go by time."""
PLANTED: Final = {
    "AmqprouteCertificateExpires": {"position": "0"},
    "AmqprouteDeadLetters": {},
    "AmqprouteDestinationDead": {"peer": "gamma.example"},
    "AmqprouteNoConsumer": {"node": "lonely"},
    "AmqprouteNodeOldestMessage": {"node": "lonely"},
    "AmqproutePeerOldestMessage": {"peer": "gamma.example"},
    "AmqproutePeerRejects": {"peer": "beta.example", "kind": "no node"},
    "AmqproutePeerWithoutCredit": {"peer": "delta.example"},
    "AmqproutePeerWithoutDns": {"peer": "servfail.example"},
    "AmqprouteSpansLost": {"result": "failed"},
}
"""Alerts, and labels of theirs."""
CLOSED: Final = {"AmqproutePublishersStopped": {"reason": "disk"}, "AmqprouteSpace": {}}
"""The same after the mark of the disk has been closed."""
ABSENT: Final[Mapping[str, Mapping[str, str]]] = {"AmqprouteAbsent": {}}
"""The same after the daemon has ended."""
REJECTED: Final = 15
LEFT: Final = re.compile(r"^(.*?) (?:>|<|==) .*$")


def metrics_of(daemon: Daemon, port: int, path: str = "/metrics") -> str:
    """Return what a daemon answers to a scrape."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def sides(expression: str) -> list[str]:
    """Return the parts of an alert's expression that have series whether it fires or not."""
    found = []
    for part in expression.split(" and "):
        inner = part.removeprefix("absent(")
        if inner != part:
            found.append(inner.removesuffix(")"))
            continue
        match = LEFT.match(part)
        found.append(part if match is None else match[1])
    return found


class Prometheus:
    """A Prometheus that scrapes one daemon each second.

    Args:
        target: the daemon's port.
        rules: the alerts; their times are shortened.
    """

    def __init__(self, target: int, rules: Path) -> None:
        self.directory = new_directory("prometheus")
        (self.port,) = free_ports(1)
        text = rules.read_text()
        for pattern, lower in SHORTER:
            text = re.sub(pattern, lower, text)
        (self.directory / "rules.yml").write_text(re.sub(r"(?m)^ +for: .*\n", "", text))
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": "amqproute",
                    "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
                }
            ],
        }
        file = self.directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(settings))
        assert PROMETHEUS is not None
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    PROMETHEUS,
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self.directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """Return its log."""
        return (self.directory / "log").read_text()

    def ask(self, path: str, **parameters: str) -> Any:
        """Ask its API; None while it does not answer."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # it starts
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except OSError:
            return None

    def series(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        found = self.ask("query", query=expression)
        return [] if found is None else list(found["result"])

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of alerts that fire."""
        found = self.ask("alerts")
        return [] if found is None else [
            each["labels"] for each in found["alerts"] if each["state"] == "firing"
        ]  # fmt: skip

    def fires(
        self,
        wanted: Mapping[str, Mapping[str, str]],
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Wait until alerts fire.

        Args:
            wanted: their labels, by their names.
            meanwhile: called from time to time, to keep a fault going.
        """

        def missing() -> set[str]:
            meanwhile()
            firing = self.firing()
            return {
                name
                for name, labels in wanted.items()
                if not any({"alertname": name, **labels}.items() <= each.items() for each in firing)
            }

        until(lambda: not missing(), "all alerts", 120, lambda: f"{missing()}")


class MonitoredCase(SynchronousTestCase):
    """A zone, and daemons with an HTTP endpoint."""

    timeout = 300

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        (self.http,) = free_ports(1)

    def daemon(self, name: str, **changes: Any) -> Daemon:
        """Start a daemon."""
        issued = changes.pop("issued", None)
        daemon = Daemon(name, nameserver=self.zone.port, issued=issued, changes=changes).start()
        self.addCleanup(daemon.stop)
        self.zone.point(name, daemon.tls)
        return daemon

    def alpha(self, **changes: Any) -> Daemon:
        """Start the daemon that is monitored; its certificate ends in 20 days.

        See `monitored`.
        """
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=20)
        issued = certificates().issue(
            "alpha.example", srv_names=["_amqps.alpha.example"], not_after=end
        )
        return self.daemon("alpha.example", issued=issued, **self.monitored(), **changes)

    def monitored(self) -> dict[str, Any]:
        """Return the settings of a daemon that is scraped."""
        return {
            "management": {
                "http": f"tcp:{self.http}:interface=127.0.0.1",
                "metrics-networks": ["127.0.0.1/32"],
            }
        }


@skipIf(PROMETHEUS is None or PROMTOOL is None, "Prometheus is not installed")
class PrometheusTests(MonitoredCase):
    """Everything that is shipped, run by Prometheus against a daemon in trouble."""

    def plant(self, alpha: Daemon) -> None:
        """Bring about everything but the closed mark."""
        with Wire(alpha.plain) as wire:
            wire.publish("lonely", [message(b"x")])
            for domain in ("gamma", "servfail", "delta"):
                address = f"orders@{domain}.example"
                wire.publish(address, [message(b"x", address)])
            address = "nobody@beta.example"
            wire.publish(address, [message(b"x", address)] * REJECTED)
            wire.publish("here@beta.example", [message(b"x", "here@beta.example")])

    def test_all(self) -> None:
        """The answer is well-formed, expressions have series, and alerts fire on faults."""
        self.zone.point("gamma.example", free_ports(1)[0])
        for service in ("_amqps._tcp", "_amqp._tcp"):
            fault = ZoneFault(ZoneFaultKind.SERVFAIL)
            self.zone.authority.set_fault(f"{service}.servfail.example", fault)
        self.daemon("beta.example", nodes=[{"name": "here"}])
        self.daemon("delta.example", store={"min-free": "99%"}, nodes=[{"name": "orders"}])
        peers = {f"{name}.example": {} for name in ("beta", "gamma", "delta", "servfail")}
        alpha = self.alpha(
            nodes=[{"name": "lonely"}, {"name": "dead"}],
            peers=peers,
            relay={"first-retry": 1, "last-retry": 2, "dead-letter": "dead", "dead-after": 1},
            tracing={"enabled": True, "endpoint": f"http://127.0.0.1:{free_ports(1)[0]}/"},
        )
        prometheus = Prometheus(self.http, RULES)
        self.addCleanup(prometheus.stop)
        until(lambda: prometheus.series("amqproute_build_info"), "a scrape", 60, prometheus.log)
        until(
            lambda: (
                {each["alertname"] for each in prometheus.firing()}
                == {"AmqprouteCertificateExpires"}
            ),
            "the one alert of a fresh daemon",
            60,
            lambda: str(prometheus.firing()),
        )
        self.plant(alpha)
        # The first message is there before a scrape; the node has to grow from one to the next.
        until(lambda: prometheus.series('amqproute_node_messages{node="lonely"} > 0'), "a message")
        with Wire(alpha.plain) as wire:
            wire.publish("lonely", [message(b"x")])
        prometheus.fires(PLANTED)
        self.check_answer(alpha)
        self.have_values(prometheus)
        self.have_series(prometheus)
        alpha.reload(store={"min-free": "99%"})
        prometheus.fires(CLOSED)
        alpha.stop()
        prometheus.fires(ABSENT)

    def check_answer(self, alpha: Daemon) -> None:
        """Promtool has nothing to say against the answers."""
        for path in ("/metrics", "/metrics/detailed"):
            assert PROMTOOL is not None
            done = subprocess.run(
                [PROMTOOL, "check", "metrics"],
                input=metrics_of(alpha, self.http, path),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def have_values(self, prometheus: Prometheus) -> None:
        """Events are counted under their labels."""
        for query in (
            'amqproute_peer_attempts_total{peer="gamma.example", code="connect.refused"} > 0',
            'amqproute_peer_attempts_total{peer="beta.example", code="ok"} > 0',
            'amqproute_peer_relayed_messages_total{peer="beta.example"} > 0',
            f'amqproute_peer_rejected_messages_total{{kind="no node"}} == {REJECTED}',
            'amqproute_tls_handshakes_total{direction="out", result="ok"} > 0',
            'amqproute_dns_lookups_total{result="ok"} > 0',
            'amqproute_dns_lookups_total{result="dns.servfail"} > 0',
            'amqproute_transfer_stage_seconds_count{way="relay", stage="answering"} > 0',
            "amqproute_store_commit_seconds_count > 0",
            "amqproute_store_wait_seconds_count > 0",
            "amqproute_reactor_delay_seconds_count > 0",
            "amqproute_journal_records_total > 0",
            'amqproute_node_enqueued_messages_total{node="lonely"} == 2',
        ):
            until(lambda query=query: prometheus.series(query), query, 60)

    def have_series(self, prometheus: Prometheus) -> None:
        """Each expression of alerts and panels has series."""
        wanted = [(rule["alert"], side) for rule in alerts() for side in sides(rule["expr"])]
        wanted += [
            (panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]
        ]
        self.assertGreater(len(wanted), len(list(expressions())) - 1)
        for place, expression in wanted:
            query = expression.replace("$instance", ".*").replace("$__rate_interval", "1m")
            until(lambda query=query: prometheus.series(query), f"{place}: {query}", 60)


OVERVIEW: Final = (
    "rabbitmq_build_info",
    "rabbitmq_channel_consumers",
    "rabbitmq_channel_get_ack_total",
    "rabbitmq_channel_get_total",
    "rabbitmq_channel_messages_delivered_ack_total",
    "rabbitmq_channel_messages_delivered_total",
    "rabbitmq_channel_messages_published_total",
    "rabbitmq_channel_messages_redelivered_total",
    "rabbitmq_channels",
    "rabbitmq_connections",
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_global_consumers",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_routed_total",
    "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_process_max_fds",
    "rabbitmq_process_open_fds",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_queue_messages_ready",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_queues",
)
"""Metrics that RabbitMQ's own dashboard for Grafana, RabbitMQ-Overview, asks for, as far as they
are here; docs/rabbitmq.md has the others. It joins each with ``rabbitmq_identity_info``."""


@skipIf(PROMETHEUS is None, "Prometheus is not installed")
class RabbitmqDashboardTests(MonitoredCase):
    """Metrics under RabbitMQ's names, joined as its dashboard does it."""

    def test_overview(self) -> None:
        """Each has series, and rates where it is a counter; deliveries add up."""
        settings = self.monitored()
        settings["management"]["rabbitmq-metrics"] = True
        news = {"name": "news", "type": "topic"}
        daemon = self.daemon("alpha.example", nodes=[{"name": "q"}, news], **settings)
        prometheus = Prometheus(self.http, RULES)
        self.addCleanup(prometheus.stop)

        def publish() -> bool:
            with Wire(daemon.plain) as wire:
                wire.publish("q", [message(b"x")] * 5)
            return bool(prometheus.series('amqproute_node_messages{node="q"} > 0'))

        until(publish, "messages", 60, prometheus.log)
        broker = "broker1.alpha.example"
        identity = f'rabbitmq_identity_info{{rabbitmq_cluster="{broker}", namespace=""}}'
        join = f"* on(instance) group_left(rabbitmq_cluster) {identity}"
        queries = []
        for name in OVERVIEW:
            value = f"rate({name}[1m])" if name.endswith("_total") else name
            queries.append(f"sum({value} {join})")
        ways = [f"{way}_{ack}" for way in ("consume", "get") for ack in ("auto", "manual")]
        parts = [f"rabbitmq_global_messages_delivered_{way}_ack_total" for way in ways]
        queries.append(" + ".join(f"sum(rate({part}[1m]))" for part in parts))
        queries.append(f"rabbitmq_queue_messages_ready {join} > 4")
        for query in queries:
            until(lambda query=query: prometheus.series(query), query, 60)


class HealthTests(MonitoredCase):
    """Health checks of a daemon in trouble, by command and over HTTP."""

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and body of an answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http}{path}", timeout=PATIENCE
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def test_trouble(self) -> None:
        """A failed check fails everywhere, with its cure; the others pass."""
        self.zone.point("gamma.example", free_ports(1)[0])
        alpha = self.alpha(nodes=[{"name": "q"}], peers={"gamma.example": {}})
        self.assertEqual(self.get("/livez"), (200, {"status": "ok"}))
        self.assertEqual(self.get("/readyz"), (200, {"status": "ok"}))
        with Wire(alpha.plain) as wire:
            address = "orders@gamma.example"
            wire.publish(address, [message(b"x", address)])
        until(lambda: self.get("/api/v1/health/destinations")[0] == 503, "a failed attempt", 60)
        found = json.loads(command(alpha, "health", "--json").stdout)
        self.assertEqual([each["name"] for each in found["checks"]], list(CHECKS))
        failed = {each["name"] for each in found["checks"] if each["state"] == "failed"}
        self.assertEqual(failed, {"certificates", "destinations"})
        status, body = self.get("/api/v1/health")
        self.assertEqual((status, body["state"]), (503, "failed"))
        self.assertEqual(self.get("/api/v1/health/certificates?within-seconds=86400")[0], 200)
        self.assertEqual(command(alpha, "health").returncode, 1)
        self.assertEqual(command(alpha, "health", "certificates", "--within", "1d").returncode, 0)
        self.assertEqual(command(alpha, "health", "nonsense").returncode, 1)
        for words, code, start in (
            ((), 2, "AMQPROUTE CRITICAL - certificates: "),
            (("clock",), 0, "AMQPROUTE OK - 1 check passed"),
            (("dnssec",), 3, "AMQPROUTE UNKNOWN - dnssec: "),  # the zone knows no root
            (("nonsense",), 3, "AMQPROUTE UNKNOWN - "),
        ):
            done = command(alpha, "health", *words, "--nagios")
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertTrue(done.stdout.startswith(start), done.stdout)
            self.assertEqual(done.stdout.count("\n"), 1)
        self.doctor(alpha)
        alpha.reload(store={"min-free": "99%"})
        until(lambda: self.get("/readyz")[0] == 503, "the mark is closed")
        self.assertEqual(self.get("/readyz"), (503, {"status": "failed"}))
        self.assertRegex(self.get("/readyz?verbose")[1]["reasons"][0], r"^disk: .* free")
        self.assertEqual(self.get("/livez")[0], 200)

    def doctor(self, alpha: Daemon) -> None:
        """`doctor` has all findings, each with a cure."""
        done = command(alpha, "doctor", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["peers-tested"], ["gamma.example"])
        seen = {(each["source"], each["subject"], each["state"]) for each in found["findings"]}
        self.assertGreaterEqual(
            seen,
            {
                ("health", "certificates", "failed"),
                ("health", "destinations", "failed"),
                ("peer", "gamma.example", "failed"),
            },
        )
        for each in found["findings"]:
            self.assertTrue(each["cure"], each)
        text = command(alpha, "doctor").stdout
        self.assertIn("nobody listens at that port", text)
        self.assertIn("1 peer tested", text)
        alpha.stop()
        done = command(alpha, "doctor", "--no-peers")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: daemon local: ", done.stdout)
        alpha.start()
