# SPDX-License-Identifier: Apache-2.0
"""``check`` lists the domains cut off by the rules on addresses from the DNS."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.reachability import known_partners, look_partners_up
from amqproute.config import Config, loads
from amqproute.daemon.peer_assembly import make_targets
from amqproute.resolver.dns_cache import DnsCache
from amqproute.resolver.dns_client import DnsClient
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import SrvResolver
from amqproute.resolver.zone import ZoneAuthority
from amqproute.store.store_files import STORE_FILE
from tests.resolver.fakes import PretendNetwork

CONFIG = """
domains: [alpha.example]
state-directory: {state}
peers:
  named.example: {{level: pkix}}
  inside.example: {{level: pkix}}
  alpha.example: {{level: pkix}}
  "*.corp.example": {{level: pkix}}
routes:
  - {{domain: gateway.example, via: "amqps://127.0.0.1"}}
  - {{domain: routed.example}}
"""
ZONES = {
    "named.example": "@ A 10.0.0.1\n",
    "inside.example": "@ A 127.0.0.1\n",
    "routed.example": "_amqps._tcp SRV 0 0 5671 a\n_amqps._tcp SRV 1 0 6379 a\na A 8.8.8.8\n",
    "met.example": "@ A 192.168.0.1\n",
    "public.example": "@ A 8.8.8.8\n",
}


class ReachabilityTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.state = Path(self.mktemp())
        self.state.mkdir()
        self.config = loads(CONFIG.format(state=self.state.absolute()), "amqproute.yaml")

    def store(self, *queues: str) -> None:
        with sqlite3.connect(self.state / STORE_FILE) as database:
            database.execute("CREATE TABLE queue (number INTEGER PRIMARY KEY, name TEXT)")
            database.executemany(
                "INSERT INTO queue (name) VALUES (?)", [(each,) for each in queues]
            )
        database.close()

    def test_known(self) -> None:
        """By name in the configuration, and met before; not ourselves, nor behind a gateway."""
        self.assertEqual(
            known_partners(self.config).named, ("inside.example", "named.example", "routed.example")
        )
        self.store(
            "orders", "amqp$out/met.example", "amqp$out/named.example", "amqp$out/public.example",
            "amqp$out/127.0.0.1:5671", "amqp$out/gateway.example", "amqp$outside/x.example",
        )  # fmt: skip
        found = known_partners(self.config)
        self.assertEqual(found.met, ("met.example", "public.example"))
        self.assertEqual(found.trouble, "")

    def test_damaged_store(self) -> None:
        """It is said; the configuration's partners are there all the same."""
        (self.state / STORE_FILE).write_bytes(b"no database at all, and long enough to be one" * 30)
        found = known_partners(self.config)
        self.assertEqual(len(found.named), 3)
        self.assertIn("cannot be read", found.trouble)

    def test_looked_up(self) -> None:
        """Whom the rules cut off, wholly or in part, and what to write; nothing of the others."""
        network = PretendNetwork()
        network.servers["192.0.2.53", 53] = ZoneAuthority(
            [
                f"$ORIGIN {name}.\n$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n{text}"
                for name, text in ZONES.items()
            ]
        )

        def make(config: Config, _: Any) -> SrvResolver:
            client = DnsClient(network, [Nameserver("192.0.2.53")], random.Random(1))
            return SrvResolver(
                client,
                DnsCache(network),
                random.Random(1).random,
                network,
                targets=make_targets(lambda: config),
            )

        domains = (*ZONES, "gone.example")
        asked = Deferred.fromCoroutine(look_partners_up(self.config, None, domains, make))
        network.settle()
        lines = self.successResultOf(asked)
        self.assertEqual(
            [line.split()[0].rstrip(":") for line in lines],
            ["inside.example", "routed.example", "met.example", "gone.example"],
        )
        self.assertIn('allow-targets: ["127.0.0.1/32"]', lines[0])
        self.assertIn("Redis", lines[1])
        self.assertIn("name met.example under peers", lines[2])
        self.assertIn("could not be looked up", lines[3])
