# SPDX-License-Identifier: Apache-2.0
"""Each situation with a verdict of `status`, created in running daemons.

`PLANTED` has the codes with the subjects that they are about. The limits are low, by configuration;
that nothing is found on a fresh daemon with the same limits, and that a reload with the usual ones
ends what goes by time, is seen as well.
"""

from __future__ import annotations

import datetime
import json
import os
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from amqproute.resolver.zone import ZoneFault, ZoneFaultKind
from amqproute.services.health_rules import RULES
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from tests.integration.support import (
    Daemon,
    Wire,
    Zone,
    certificates,
    free_ports,
    message,
    new_directory,
    until,
)
from tests.integration.test_operator import command
from tests.network.campaign import CannotRun
from tests.network.surroundings import WallClock
from tests.support.patience import PATIENCE
from tests.support.program import run

LOW = {"oldest": 2, "no-consumer": 1, "no-credit": 1, "dns": 1, "oldest-by": {"dead": None}}
YEAR = 365 * 86_400
CERTIFICATE = "CN=alpha.example"
PLANTED = {
    ("node.no-consumer", "lonely"),
    ("node.oldest", "lonely"),
    ("node.oldest", "slow"),
    ("node.rejects", "work"),
    ("node.dead-letters", "work"),
    ("peer.unreachable", "gamma.example"),
    ("peer.oldest", "gamma.example"),
    ("peer.held", "held.example"),
    ("dns.waiting", "servfail.example"),
    ("peer.no-credit", "delta.example"),
    ("peer.rejects", "beta.example"),
    ("peer.dead-letters", "beta.example"),
    ("contract.bound", "user:anna"),
    ("certificate.ends", CERTIFICATE),
    ("mark.closed", "disk"),
}
"""Codes and subjects of what is planted in alpha."""
BY_TIME = {rule.code for rule in RULES.values() if rule.setting}
ELSEWHERE = {"certificate.invalid", "clock.jumped", "daemon.draining", "store.damaged"}
"""Codes that are planted in daemons of their own, here and in `test_drain`."""
PAGE = 4096
"""Octets of a page of the database."""


def names(found: dict[str, Any]) -> set[tuple[str, str]]:
    """Return codes and subjects of what `status --json` says."""
    return {(each["code"], each["subject"]) for each in found["verdicts"]}


class StatusCase(SynchronousTestCase):
    """A zone, and daemons."""

    timeout = 180

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)

    def daemon(self, name: str = "alpha.example", **changes: Any) -> Daemon:
        """Start a daemon."""
        issued = changes.pop("issued", None)
        daemon = Daemon(name, nameserver=self.zone.port, issued=issued, changes=changes).start()
        self.addCleanup(daemon.stop)
        self.zone.point(name, daemon.tls)
        return daemon

    def status(self, daemon: Daemon) -> dict[str, Any]:
        """Return what `status --json` says; it agrees with the exit code and the text."""
        done = command(daemon, "status", "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if found["well"] else 1, done.stdout)
        self.assertEqual(found["well"], not found["verdicts"])
        for each in found["verdicts"]:
            self.assertEqual(each["severity"], RULES[each["code"]].severity.value)
            self.assertTrue(each["next"] and each["description"], each)
        return found


class PlantedTests(StatusCase):
    """Everything at once, in one daemon."""

    def alpha(self) -> Daemon:
        """Start the daemon that has all the trouble, and its partners."""
        self.zone.point("gamma.example", free_ports(1)[0])
        self.zone.point("held.example", free_ports(1)[0])
        for service in ("_amqps._tcp", "_amqp._tcp"):
            fault = ZoneFault(ZoneFaultKind.SERVFAIL)
            self.zone.authority.set_fault(f"{service}.servfail.example", fault)
        self.beta = self.daemon(
            "beta.example",
            nodes=[{"name": "full", "capacity": 1}],
            limits={"max-message-size": 10_000},
        )
        self.daemon("delta.example", store={"min-free": "99%"}, nodes=[{"name": "orders"}])
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=20)
        issued = certificates().issue(
            "alpha.example", srv_names=["_amqps.alpha.example"], not_after=end
        )
        return self.daemon(
            issued=issued,
            status=LOW,
            nodes=[
                {"name": "lonely"},
                {"name": "slow"},
                {"name": "dead"},
                {"name": "work", "dead-letter": "dead"},
                {"name": "annas"},
            ],
            relay={"first-retry": 1, "last-retry": 2, "dead-letter": "dead"},
            contracts={"user:anna": {"messages-per-second": 1}},
        )

    def reject(self, alpha: Daemon) -> None:
        """Have a consumer reject what is on the node `input_cost`."""
        with Wire(alpha.plain) as wire:
            wire.publish("work", [message(b"x")])
            link = wire.attach("receiver", "work")
            link.flow(1)
            wire.flush()
            got = wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
            error = spec.Error(condition="x:not-mine")
            wire.session.settle(got.deliveries, spec.Rejected(error=error), True)
            wire.flush()
            until(lambda: "node.rejects" in self.codes(alpha), "the rejection")

    def codes(self, daemon: Daemon) -> set[str]:
        """Return the codes that are found."""
        return {code for code, _ in names(self.status(daemon))}

    def plant(self, alpha: Daemon) -> None:
        """Bring about everything but the closed mark and what needs an open connection."""
        self.reject(alpha)
        hold = command(alpha, "hold", "--to", "held.example", "--reason", "audit")
        self.assertEqual(hold.returncode, 0, hold.stderr)
        with Wire(alpha.plain) as wire:
            wire.publish("lonely", [message(b"x")])
            for domain in ("gamma", "held", "servfail", "delta"):
                address = f"orders@{domain}.example"
                wire.publish(address, [message(b"x", address)])
            for node, size in (("nobody", 1), ("full", 1), ("full", 1), ("full", 20_000)):
                address = f"{node}@beta.example"
                wire.publish(address, [message(b"x" * size, address)])
        url = f"amqp://anna:secret@127.0.0.1:{alpha.upgrade}"
        done = run("send", "annas", "--url", url, stdin="1\n2\n3\n4\n")
        self.assertEqual(done.returncode, 0, done.stderr)

    def settled(self, alpha: Daemon, expected: set[tuple[str, str]]) -> dict[str, Any]:
        """Wait until all of this is found; return what is."""
        return until(
            lambda: (found := self.status(alpha)) and names(found) >= expected and found,
            "all planted",
            60,
            lambda: f"{expected - names(self.status(alpha))}\n{alpha.log()[-3000:]}",
        )

    def test_all(self) -> None:
        """Each is found with its code and subject, in JSON and in the text; a reload ends some."""
        self.assertEqual({code for code, _ in PLANTED} | ELSEWHERE, set(RULES))
        alpha = self.alpha()
        begun = alpha.mark()
        self.assertEqual(names(self.status(alpha)), {("certificate.ends", CERTIFICATE)})
        with Wire(alpha.plain) as slow:
            slow.publish("slow", [message(b"x")])
            slow.attach("receiver", "slow")  # and gives no credit
            self.plant(alpha)
            found = self.settled(alpha, PLANTED - {("mark.closed", "disk")})
            text = command(alpha, "status").stdout
            alpha.reload(store={"min-free": "99%"})
            self.settled(alpha, {("mark.closed", "disk"), ("node.oldest", "slow")})
            text += command(alpha, "status").stdout
        (rejects,) = [each for each in found["verdicts"] if each["code"] == "peer.rejects"]
        for words in ("no node (amqp:not-found): 1", "full (amqp:resource-limit-exceeded): ",
                      "too big (amqp:link:message-size-exceeded): 1"):  # fmt: skip
            self.assertIn(words, rejects["description"])
        self.assertNotIn("dead", {subject for _, subject in names(found)})
        for code, subject in PLANTED:
            self.assertRegex(text, rf"(?m)^{subject}: .* \[{code}\]$")
        self.assertIn("next: amqproute peer test gamma.example\n", text)
        self.assertNotIn("all is well", text)
        # Each kind once in the log, though what is full is tried again and again.
        lines = [
            each for each in alpha.log()[begun:].splitlines() if "beta.example rejected" in each
        ]
        self.assertEqual(len(lines), 3, lines)
        alpha.reload(status={"certificate": "1d"}, store={"min-free": 0})
        alpha.wait_log(r"reloaded .*; changed: .*store.min-free.*status\.")
        left = until(
            lambda: (
                (now := names(self.status(alpha))) and ("mark.closed", "disk") not in now and now
            ),
            "the mark is open",
        )
        self.assertEqual({code for code, _ in left} & BY_TIME, set())
        self.assertIn(("peer.rejects", "beta.example"), left)

    def test_commands(self) -> None:
        """The command that each verdict names is one that runs."""
        for rule in RULES.values():
            words = rule.command.replace("{subject}", "x").partition("|")[0].split()
            if words[0] == "amqproute":
                names_ = [each for each in words[1:] if not each.startswith("-") and each != "x"]
                done = run(*names_, "--help")
                self.assertEqual(done.returncode, 0, (rule.command, done.stderr))
                for option in (each for each in words if each.startswith("--")):
                    self.assertIn(option, done.stdout)


class WellTests(StatusCase):
    """Daemons with nothing to tell."""

    def test_fresh(self) -> None:
        """A fresh daemon that does nothing is well, with low limits as well."""
        for limits in ({}, LOW):
            daemon = self.daemon(status=limits, nodes=[{"name": "q"}])
            self.assertEqual(self.status(daemon)["verdicts"], [])
            self.assertIn("\nall is well\n", command(daemon, "status").stdout)

    def test_damaged_database(self) -> None:
        """The database is overwritten under a running daemon: it takes nothing more."""
        alpha = self.daemon(nodes=[{"name": "q"}])
        with Wire(alpha.plain) as wire:
            # More than the database keeps in memory, each less than what gets a file of its own.
            wire.publish("q", [message(bytes(30_000))] * 1400)
        alpha.stop()
        alpha.start()
        with open(alpha.directory / "state" / "store.db", "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            self.assertGreater(size, 40_000_000)
            file.seek(PAGE)
            file.write(b"\xff" * (size - PAGE))
        with Wire(alpha.plain) as wire:
            wire.attach("receiver", "q").flow(200)
            wire.flush()
            until(
                lambda: ("store.damaged", "damage") in names(self.status(alpha)),
                "the damage is noticed",
                PATIENCE,
                lambda: alpha.log()[-2000:],
            )
            publisher = wire.attach("sender", "q")
            wire.flush()
            self.assertIn("amqproute store check", command(alpha, "status").stdout)
            self.assertEqual(publisher.credit, 0)
        alpha.stop()
        alpha.spawn()
        self.assertEqual(alpha.wait(), 2)
        self.assertIn("salvage", alpha.log())

    def test_wrong_clock(self) -> None:
        """A certificate that is not valid yet; then a clock that jumps ahead."""
        try:
            clock = WallClock(new_directory("clock"))
        except CannotRun as error:
            raise SkipTest(str(error)) from error
        alpha = Daemon("alpha.example", nameserver=self.zone.port)
        alpha.is_executed = True
        self.addCleanup(alpha.stop)
        clock.set(-2 * YEAR)
        with clock.for_children():
            alpha.spawn()
        alpha.wait_ready()
        self.assertEqual(names(self.status(alpha)), {("certificate.invalid", "certificate")})
        clock.set(0)
        until(
            lambda: names(self.status(alpha)) == {("clock.jumped", "clock")},
            "the jump is seen",
            60,
            lambda: str(self.status(alpha)),
        )
