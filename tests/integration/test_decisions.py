# SPDX-License-Identifier: Apache-2.0
"""A running daemon's decision about a domain equals the output of `explain`."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.resolver.zone import ZoneFault, ZoneFaultKind
from tests.integration.support import (
    Daemon,
    Refused,
    Wire,
    Zone,
    free_ports,
    message,
    new_directory,
    until,
)
from tests.integration.test_operator import command
from tests.support.signing import SignedTree

TO = "_amqps._tcp SRV 0 0 {port} broker1\nbroker1 A 127.0.0.1\n"
TLSA = "_{port}._tcp.broker1 TLSA {usage} 1 1 " + "ab" * 32 + "\n"
ZONES = {
    "plain.example": TO,
    "no-srv.example": "@ A 127.0.0.1\n",
    "dot.example": "_amqps._tcp SRV 0 0 0 .\n_amqp._tcp SRV 0 0 0 .\n",
    "weights.example": "".join(
        f"_amqps._tcp SRV {priority} {weight} {{port}} host{weight}\nhost{weight} A 127.0.0.1\n"
        for priority, weight in ((0, 0), (0, 10), (0, 30), (5, 1))
    ),
    "cname.example": "_amqps._tcp SRV 0 0 {port} broker1\nbroker1 CNAME broker2\n"
    "broker2 A 127.0.0.1\n",
    "bogus.example": TO,
    "expired.example": TO,
    "insecure.example": TO,
    "demanding.example": TO,
    "usable.example": TO + TLSA.replace("{usage}", "3"),
    "anchored.example": TO + TLSA.replace("{usage}", "2"),
    "unusable.example": TO + TLSA.replace("{usage}", "1"),
    "private.example": "_amqps._tcp SRV 0 0 {port} broker1\nbroker1 A 10.1.2.3\n",
    "backup.example": TO + "_amqps._tcp SRV 10 0 {own} broker2\nbroker2 A 127.0.0.1\n",
    "ourselves.example": "_amqps._tcp SRV 0 0 {own} broker1\nbroker1 A 127.0.0.1\n",
    "xn--bcher-kva.example": TO,
    "servfail.example": TO,
}
CODES = {
    "dot.example": "dns.no-service",
    "bogus.example": "dns.bogus",
    "expired.example": "dns.bogus",
    "demanding.example": "dns.insecure",
    "private.example": "dns.denied-target",
    "ourselves.example": "dns.loop-to-self",
    "servfail.example": "dns.servfail",
    "nowhere.example": "dns.nxdomain",
}
ELSEWHERE = ("nowhere.example", "routed.example")


class DecisionTests(SynchronousTestCase):
    """One daemon, and a signed tree with everything that happens in one."""

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        anchors = new_directory() / "anchors"
        port = free_ports(1)[0]
        self.alpha = Daemon(
            "alpha.example",
            nameserver=self.zone.port,
            changes={
                "relay": {"first-retry": 60, "last-retry": 120},
                "peers": {"demanding.example": {"level": "dane"}},
                "routes": [{"domain": "routed.example", "via": f"amqps://127.0.0.1:{port}",
                            "names": ["gateway.example"]}],
            },
        )  # fmt: skip
        tree = SignedTree(
            {
                name: text.replace("{port}", str(port)).replace("{own}", str(self.alpha.tls))
                for name, text in ZONES.items()
            },
            unsigned=("insecure.example", "demanding.example"),
            wrong_ds=("bogus.example",),
            expired=("expired.example",),
            now=time.time(),
        )
        self.zone.authority = tree.authority
        for service in ("_amqps._tcp", "_amqp._tcp"):
            tree.authority.set_fault(
                f"{service}.servfail.example", ZoneFault(ZoneFaultKind.SERVFAIL)
            )
        anchors.write_text(tree.anchor_text)
        self.alpha.settings["resolver"].update(
            {
                "validate": "self",
                "anchors": str(anchors),
                "timeout": 3,
                "deny-targets": ["10.0.0.0/8"],
            }
        )
        self.alpha.write()
        self.alpha.start()
        self.addCleanup(self.alpha.stop)
        self.addCleanup(self.alpha.check)

    def decisions(self) -> dict[str, Any]:
        """Return what the daemon has decided."""
        done = command(self.alpha, "batch", "--json", stdin="query decision")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (result,) = json.loads(done.stdout)["results"]
        return {
            row["name"]: {key: row[key] for key in row if key not in ("name", "type")}
            for row in result["attributes"]["entities"]
        }

    def explained(self, domain: str) -> Any:
        """Return what `explain` prints."""
        return json.loads(command(self.alpha, "explain", f"x@{domain}", "--json").stdout)

    def test_equal(self) -> None:
        """For each domain: the decision, octet for octet, and the code that was meant."""
        domains = [*ZONES, *ELSEWHERE]
        for domain in domains:
            with contextlib.suppress(Refused), Wire(self.alpha.plain) as wire:
                # A route needs no look-up: it is decided on when there is something to send.
                wire.publish(f"x@{domain}", [message(b"x")])
        until(
            lambda: len(self.decisions()) == len(domains),
            "all decided",
            detail=lambda: f"{set(domains) ^ set(self.decisions())} {self.alpha.log()[-3000:]}",
        )
        acted = self.decisions()
        with ThreadPoolExecutor(2) as pool:
            explained = dict(zip(domains, pool.map(self.explained, domains), strict=True))
        for domain, facts in explained.items():
            said = facts["decision"]
            self.assertEqual(
                json.dumps(said, sort_keys=True),
                json.dumps(acted[said["hop"]], sort_keys=True),
                domain,
            )
            self.assertEqual(facts["code"], said["code"])
            self.assertEqual(said["code"], CODES.get(domain, "ok"), domain)
        self.assertEqual(len(acted["weights.example"]["places"]), 4)
        self.assertEqual([each["priority"] for each in acted["backup.example"]["places"]], [0])
        self.assertEqual(
            {acted[name]["places"][0]["proof"] for name in ("usable.example", "anchored.example")},
            {"dane"},
        )


class RepairTests(SynchronousTestCase):
    """A domain that did not exist, and does again: what is shown is what happens."""

    timeout = 120

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.zone.set("example", ttl=3600)
        self.alpha = Daemon("alpha.example", nameserver=self.zone.port)
        self.alpha.settings["resolver"]["cache-longest"] = 3600
        self.alpha.write()
        self.alpha.start()
        self.addCleanup(self.alpha.stop)
        self.addCleanup(self.alpha.check)

    def refusal(self, domain: str) -> str:
        """Return why a message is refused; empty if it is taken."""
        try:
            with Wire(self.alpha.plain) as wire:
                wire.publish(f"x@{domain}", [message(b"x")])
        except Refused as refused:
            return str(refused.error)
        return ""

    def test_explain_and_peer_test(self) -> None:
        """Whatever time the proof has left, both ask again, and the daemon goes by the same."""
        beta = Daemon("beta.example", nameserver=self.zone.port).start()
        self.addCleanup(beta.stop)
        for domain, ask in (
            ("beta.example", ("explain", "x@beta.example")),
            ("gamma.example", ("peer", "test", "gamma.example")),
        ):
            self.assertIn("dns.nxdomain", self.refusal(domain))
            self.zone.point(domain, beta.tls)
            self.assertIn("dns.nxdomain", self.refusal(domain))
            done = command(self.alpha, *ask)
            self.assertIn("the daemon has forgotten earlier answers", done.stdout, done.stderr)
            self.assertEqual(self.refusal(domain), "")
        self.alpha.stop()
        done = command(self.alpha, "explain", "x@beta.example", "--json")
        self.assertIn("no daemon was told", json.loads(done.stdout)["daemon"])

    def test_rights(self) -> None:
        """A user without `manage` on the way cannot make the daemon ask again."""
        self.alpha.reload(access=[{"deny": ["manage"], "who": "uid:*", "node": "amqp$out/*"}])
        done = command(self.alpha, "explain", "x@beta.example", "--json")
        facts = json.loads(done.stdout)
        self.assertEqual(facts["code"], "dns.nxdomain")
        self.assertRegex(facts["daemon"], r"no daemon was told.*may not manage")
