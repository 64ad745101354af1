# SPDX-License-Identifier: Apache-2.0
"""Short campaigns, moved from ``make test`` to ``make test-campaigns``.

The ordinary suite is what somebody runs who has changed something: it has to end while they wait.
Every requirement has its test there. A campaign asks whether what holds there also holds under
random kills, on failing disks, under attack, on bad lines, beside programs of other makes; it takes
minutes even in its short form, most of which it waits, and what breaks it has rarely to do with the
last change. ``.ci/run`` runs both.

Each area keeps a test with real daemons in the ordinary suite, which its row names (`Campaign.
ordinary`). `tests.test_runner` holds that: each test is in exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["CAMPAIGNS", "Campaign", "is_campaign"]


class Campaign(NamedTuple):
    """Tests that ask the same of different parts.

    Attributes:
        purpose: what they ask.
        tests: ids of tests, classes or modules; those of a module are all within it.
        ordinary: the test of the ordinary suite that asks it once, of real daemons.
    """

    purpose: str
    tests: tuple[str, ...]
    ordinary: str


CAMPAIGNS: Final[tuple[Campaign, ...]] = (
    Campaign(
        "generated requests to every operation of the HTTP API; a program that knows its document",
        (
            "tests.http.test_schemathesis",
            "tests.integration.test_partner_certificate.ProgramTests",
        ),
        "tests.integration.test_http_api.HttpApiTests.test_daemon",
    ),
    Campaign(
        "directories and issuers of tokens, with what goes wrong at them",
        (
            "tests.integration.test_realms.LdapClientTests",
            "tests.integration.test_realms.TokenTests",
        ),
        "tests.integration.test_realms.DirectoryTests.test_directory",
    ),
    Campaign(
        "daemons killed at random moments",
        (
            "tests.integration.test_amqp09_crash",
            "tests.integration.test_crash",
            "tests.integration.test_distributed_crash.KillTests",
            "tests.integration.test_journal_crash",
            "tests.integration.test_staging_crash",
            "tests.integration.test_transaction_crash",
        ),
        "tests.integration.test_exactly_once.ExactlyOnceTests.test_kill",
    ),
    Campaign(
        "disks that are full, small, failing or damaged",
        (
            "tests.integration.test_damage.DamageTests",
            "tests.integration.test_failing_disk",
            "tests.integration.test_full_disk.FullDiskTests",
            "tests.integration.test_full_disk.SmallDiskTests",
        ),
        "tests.integration.test_full_disk.FileSizeTests.test_limit",
    ),
    Campaign(
        "clocks that are wrong, jump or stand still",
        ("tests.integration.test_clock",),
        "tests.integration.test_status.WellTests.test_wrong_clock",
    ),
    Campaign(
        "faults of lines, neighbors and name servers; attacks; memory; hosts of their own",
        (
            "tests.network.test_attacks",
            "tests.network.test_faults",
            "tests.network.test_hosts",
            "tests.network.test_soak",
            "tests.network.test_targets",
        ),
        "tests.integration.test_federation.FederationTests.test_name_server_in_trouble",
    ),
    Campaign(
        "a Prometheus that scrapes daemons in trouble",
        (
            "tests.integration.test_alerts.ClockTests",
            "tests.integration.test_alerts.DiskTests",
            "tests.integration.test_alerts.NetworkTests",
            "tests.integration.test_monitoring.PrometheusTests",
        ),
        "tests.integration.test_monitoring.HealthTests.test_trouble",
    ),
    Campaign(
        "name servers of other makes",
        (
            "tests.integration.test_name_servers.BindTests",
            "tests.integration.test_name_servers.KnotTests",
            "tests.integration.test_name_servers.UnboundTests",
        ),
        "tests.integration.test_name_servers.ZoneServerTests.test_scenarios",
    ),
    Campaign(
        "clients of other makes, and their own suites",
        (
            "tests.integration.test_amqp09_clients.ClientTests.test_aio_pika",
            "tests.integration.test_amqp09_clients.ClientTests.test_celery",
            "tests.integration.test_amqp09_federation.FederationTests.test_celery",
            "tests.integration.test_amqplib",
            "tests.integration.test_azure",
            "tests.integration.test_client_suites",
            "tests.integration.test_rhea",
        ),
        "tests.integration.test_amqp09_clients.ClientTests.test_pika_and_amqp10",
    ),
    Campaign(
        "brokers of other makes, as neighbors and side by side",
        (
            "tests.integration.test_other_brokers.RabbitTests",
            "tests.integration.test_rabbitmq_links",
            "tests.integration.test_side_by_side.SideBySideTests.test_differences",
        ),
        "tests.integration.test_other_brokers.ProtonBrokerTests.test_accepted",
    ),
    Campaign(
        "the dashboard in a browser",
        (
            "tests.dashboard.test_browser",
            "tests.integration.test_dashboard.StuckMessageTests",
            "tests.integration.test_partner_certificate.OperatorTests",
        ),
        "tests.integration.test_dashboard.PageTests.test_pages",
    ),
    Campaign(
        "the units under a systemd that runs",
        ("tests.integration.test_machine",),
        "tests.integration.test_signals.ActivationTests.test_sockets_of_systemd",
    ),
    Campaign(
        "nightly runs that are killed, lose workers, or have a year behind them",
        (
            "tests.pipeline.test_age",
            "tests.pipeline.test_arrivals.OrderTests",
            "tests.pipeline.test_cluster",
            "tests.pipeline.test_datasource.SparkTests.test_killed",
            "tests.pipeline.test_parallel_queries.InterruptTests",
            "tests.pipeline.test_real_journals",
            "tests.pipeline.test_spark_session.ProcessTests.test_package_is_enough",
            "tests.pipeline.test_stream.StreamTests.test_killed",
        ),
        "tests.pipeline.test_chain.DaemonTests.test_exit_code",
    ),
    Campaign(
        "demonstration and measurement",
        (
            "tests.integration.test_bench",
            "tests.integration.test_demo.DemoTests.test_interrupted",
            "tests.integration.test_demo.DemoTests.test_json_and_directory",
            "tests.integration.test_demo.DemoTests.test_killed",
        ),
        "tests.integration.test_demo.DemoTests.test_nothing_lost_nothing_twice",
    ),
)

_PARTS: Final = frozenset(part for campaign in CAMPAIGNS for part in campaign.tests)


def is_campaign(test: str) -> bool:
    """Tell whether a test belongs to a campaign, by its id (``package.module.Case.test``)."""
    return not _PARTS.isdisjoint(_within(test))


def _within(test: str) -> Iterable[str]:
    """Yield what a test is in: itself, its class, its module and the packages."""
    while test:
        yield test
        test = test.rpartition(".")[0]
