# SPDX-License-Identifier: Apache-2.0
"""An operator's commands for stuck messages, against a running daemon."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.wire.amqp10.types import Symbol
from tests.integration.support import (
    Daemon,
    Wire,
    Zone,
    body_of,
    free_ports,
    message,
    new_directory,
    until,
)
from tests.integration.test_federation import annotated
from tests.support.patience import PATIENCE
from tests.support.program import installed, run

ROOT = Path(amqproute.__file__).parent.parent


def command(
    daemon: Daemon, *args: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with the daemon's configuration."""
    return run(*args, "--config", str(daemon.file), stdin=stdin)


class OperatorCase(SynchronousTestCase):
    """Alpha, whose partners beta and gamma are out of reach at first."""

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.dead = free_ports(1)[0]
        for domain in ("beta.example", "gamma.example"):
            self.zone.point(domain, self.dead)
        self.daemon = Daemon(
            "alpha.example",
            nameserver=self.zone.port,
            changes={
                "nodes": [{"name": "inbox"}],
                "relay": {"first-retry": 60, "last-retry": 120},
            },
        ).start()
        self.addCleanup(self.daemon.stop)
        self.addCleanup(self.daemon.check)

    def run_it(self, *args: str, code: int = 0) -> str:
        """Run a command; assert its exit code; return what it printed."""
        done = command(self.daemon, *args)
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return done.stdout if not code else done.stderr

    def shown(self, *args: str, code: int = 0) -> Any:
        """Run a command with --json; return what it printed."""
        done = command(self.daemon, *args, "--json")
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def publish(self, to: str, count: int = 3, **properties: Any) -> None:
        """Put numbered messages on the way to an address."""
        with Wire(self.daemon.plain) as wire:
            wire.publish(to, [message(b"%d" % n, to, **properties) for n in range(count)])

    def listed(self, *args: str) -> list[dict[str, Any]]:
        """Return the messages that are listed."""
        rows: list[dict[str, Any]] = self.shown("queue", "messages", *args)["messages"]
        return rows

    def peer(self, domain: str) -> dict[str, Any]:
        """Return what is known of a peer."""
        (row,) = self.shown("peer", "show", domain)["peers"]
        return row  # type: ignore[no-any-return]

    def waiting(self, domain: str = "beta.example") -> Any:
        """Wait until the first attempt has failed; return the peer."""
        return until(
            lambda: (row := self.peer(domain))["state"] == "waiting" and row, "an attempt failed"
        )

    def beta(self, name: str = "beta.example") -> Daemon:
        """Start the partner, and point the DNS to it."""
        beta = Daemon(name, changes={"nodes": [{"name": "orders"}]}).start()
        self.addCleanup(beta.stop)
        self.zone.point(name, beta.tls)
        return beta


class VerbTests(OperatorCase):
    """List, look, retry, hold, expire, delete, reroute."""

    def test_peers(self) -> None:
        """The known facts about a peer that cannot be reached."""
        self.publish("orders@beta.example", 5)
        row = self.waiting()
        self.assertEqual(
            (row["waiting"], row["failures"], row["last-code"], row["in-flight"]),
            (5, 1, "connect.refused", 0),
        )
        self.assertGreater(row["next-attempt-ms"], 0)
        lines = self.run_it("peer", "ls").splitlines()
        self.assertTrue(lines[0].startswith("PEER\tSTATE\tWAITING"))
        self.assertTrue(lines[1].startswith("beta.example\twaiting\t5\t"), lines)
        self.assertIn("connect.refused", self.run_it("peer", "show", "beta.example"))
        words = self.run_it("peer", "show", "delta.example", code=1)
        self.assertIn("next: see whether it can be reached with: amqproute peer test", words)

    def test_status(self) -> None:
        """One look tells whether all is well, and the exit code as well."""
        self.assertIn("all is well", self.run_it("status"))
        self.publish("orders@beta.example")
        self.waiting()
        done = command(self.daemon, "status")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^beta\.example: waiting, 3 messages wait, .*refused")
        self.assertIn("0 messages here, 3 on their way", done.stdout)
        self.assertNotIn("all is well", done.stdout)
        facts = self.shown("status", code=1)
        names = {row["name"]: row["state"] for row in facts["watermarks"]}
        self.assertEqual(names["disk"], "open")
        self.assertEqual((facts["well"], facts["messages"]["to-others"]), (False, 3))

    def test_why(self) -> None:
        """The cause, and the command that changes it; which then does."""
        self.publish("orders@beta.example", 2)
        self.waiting()
        (first, second) = self.listed("--to", "beta.example")
        facts = self.shown("why", str(first["id"]))
        self.assertEqual(
            (facts["cause"], facts["class"], facts["failed-attempts"]),
            ("back-off", "host, next-host", 1),
        )
        self.assertIn("amqproute retry --to beta.example", facts["next"])
        self.assertIn("next: amqproute peer test", self.run_it("why", str(first["id"])))
        self.run_it("hold", str(second["id"]), "--reason", "ask the customer first")
        facts = self.shown("why", str(second["id"]))
        self.assertEqual((facts["cause"], facts["next"]), ("held", ["amqproute release h1"]))
        self.run_it("hold", "--to", "beta.example", "--reason", "audit", "--for", "1h")
        facts = self.shown("why", str(second["id"]))
        self.assertEqual(facts["next"], ["amqproute release h1 h2"])
        self.assertRegex(facts["description"], r"ask the customer first; .*\(h2\): audit \(until ")
        done = command(self.daemon, "status")
        self.assertIn("next: amqproute holds", done.stdout)
        done = command(self.daemon, "retry", "--to", "beta.example")
        self.assertIn("0 messages tried now", done.stdout)
        self.assertIn("held, and still so: 2 messages", done.stderr)
        self.run_it("release", "h2")
        # What was released is tried at once, in vain; while it is, `retry` begins nothing.
        until(lambda: self.waiting()["failures"] == 2, "the second attempt failed")
        beta = self.beta()
        self.run_it("retry", "--to", "beta.example")
        with Wire(beta.plain) as wire:
            self.assertEqual(body_of(wire.consume("orders", 1)[0]), b"0")
        self.assertEqual([row["state"] for row in self.listed()], ["held"])
        self.run_it("release", "h1")
        with Wire(beta.plain) as wire:
            self.assertEqual(body_of(wire.consume("orders", 1)[0]), b"1")
        words = self.run_it("why", str(first["id"]), code=1)
        self.assertRegex(words, "no queue holds.*\n.*amqproute journal find --entry ID")
        self.assertIn("'x' is no id of a message", self.run_it("why", "x", code=2))
        self.publish("inbox", 1)
        (row,) = self.listed("inbox")
        self.assertEqual(self.shown("why", str(row["id"]))["cause"], "no-consumer")

    def test_holds(self) -> None:
        """For later messages too, over a restart, for a time; a selector lets the others pass."""
        beta = self.beta()
        self.run_it("hold", "--to", "beta.example", "--reason", "audit", "--for", "1h")
        self.publish("orders@beta.example", 2)
        self.assertEqual(self.peer("beta.example")["state"], "held")
        self.daemon.kill()
        self.daemon.start()
        (held,) = self.shown("holds")["holds"]
        self.assertEqual(
            (held["name"], held["to"], held["reason"]), ("h1", "beta.example", "audit")
        )
        self.assertTrue(held["by"].startswith("uid:"))
        self.assertGreater(held["until-ms"], held["since-ms"])
        self.assertEqual(len(self.listed("--to", "beta.example")), 2)
        self.run_it("hold", "--where", "amqp.subject = 'secret'", "--reason", "not these")
        self.run_it("release", "h1")
        self.publish("orders@beta.example", 1, subject="secret")
        self.publish("orders@beta.example", 1, subject="open")
        with Wire(beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", 3)), 3)
        self.assertEqual([row["subject"] for row in self.listed()], ["secret"])
        self.assertIn("not these", self.run_it("holds"))
        done = command(self.daemon, "release", "h9", "h2")
        self.assertEqual((done.returncode, done.stdout), (1, "h2: released (not these)\n"))
        self.assertIn("there is no hold 'h9'", done.stderr)
        with Wire(beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", 1)), 1)
        self.run_it("hold", "--to", "beta.example", "--for", "1h", "--until", "2040-01-01", code=2)
        self.run_it("hold", "--to", "beta.example", "--until", "2001-01-01", code=2)
        words = self.run_it("hold", "--to", "beta.example", "--until", "noon", code=2)
        self.assertIn("'noon' is no date and time", words)
        self.assertIn("none is held", self.run_it("hold", "987654", code=1))
        done = command(self.daemon, "hold", "--to", "nobody.example")
        self.assertIn("nothing waits for nobody.example; what comes", done.stderr)
        self.run_it("release", "h3", "h3")
        self.daemon.wait_log(r"uid:\d+: hold h1 \(to beta.example\): audit")
        self.daemon.wait_log(r"uid:\d+: released h1")
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(self.shown("hold", "--to", "beta.example")["name"], "h4")

    def test_rights(self) -> None:
        """A user without `manage` is told the missing rights, whichever is missed first."""
        for rights in (["publish"], ["publish", "create"]):
            self.daemon.reload(access=[{"allow": rights, "who": "anonymous"}])
            done = command(
                self.daemon, "peer", "ls", "--url", f"amqp://127.0.0.1:{self.daemon.plain}"
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn("amqp:unauthorized-access", done.stderr)
            self.assertIn("take the rights `manage`, and `create`", done.stderr)

    def test_hold_ends(self) -> None:
        """By itself, when its time is over."""
        beta = self.beta()
        self.run_it("hold", "--to", "beta.example", "--for", "2s")
        self.publish("orders@beta.example", 1)
        with Wire(beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", 1)), 1)
        self.assertEqual(self.shown("holds")["holds"], [])

    def test_delete_and_expire(self) -> None:
        """By id, by domain, by selector; first only counted; reports go back."""
        for number in range(20):
            self.publish("orders@beta.example", 1, subject=f"s{number % 4}")
        self.publish("orders@gamma.example", 2)
        facts = self.shown("delete", "--where", "amqp.subject = 's1'", "--dry-run")
        self.assertEqual((facts["messages"], len(facts["samples"])), (5, 5))
        self.assertEqual(len(self.listed()), 22)
        (first, *_) = self.listed("--where", "amqp.subject = 's1'", "--to", "beta.example")
        self.run_it("delete", str(first["id"]), "--reason", "a duplicate")
        self.assertEqual(self.shown("delete", "--where", "amqp.subject = 's1'")["messages"], 4)
        self.run_it("delete", "--where", "amqp.subject = 's1'", code=1)
        done = command(self.daemon, "delete", str(first["id"]), "--dry-run")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"not found: {first['id']}; gone, in flight", done.stderr)
        self.assertEqual(self.shown("expire", "--to", "gamma.example")["messages"], 2)
        self.assertEqual(len(self.listed()), 15)
        self.assertIn("usage.all", self.run_it("delete", "--all", code=2))
        self.assertIn("usage.which", self.run_it("delete", code=2))
        self.assertIn("expected", self.run_it("delete", "--where", "subject = = 1", code=2))
        self.run_it("delete", "--to", "delta.example", code=1)
        self.assertIn("15 messages deleted", self.run_it("delete", "--all", "--yes"))
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.listed(), [])
        self.daemon.wait_log(r"uid:\d+: DELETE-MESSAGES \(everything\): 15 messages of amqp\$out/")

    def test_expire_returns(self) -> None:
        """A message expired by an operator is returned with the operator's words."""
        text = message(b"back", "orders@beta.example")
        with Wire(self.daemon.plain) as wire:
            wire.publish(
                "orders@beta.example",
                [annotated(text, {Symbol("x-opt-return-to"): "inbox"})],
            )
            self.run_it("expire", "--to", "beta.example", "--reason", "beta has closed down")
            (got,) = wire.consume("inbox", 1)
        self.assertIn(b"beta has closed down", got)

    def test_reroute(self) -> None:
        """A route made later moves what waits: to a gateway, and to a node here."""
        self.publish("orders@beta.example", 3)
        self.publish("inbox@gamma.example", 2)
        done = command(self.daemon, "reroute", "--all", "--yes")
        self.assertIn("0 messages moved", done.stdout)
        self.assertIn("their addresses lead where they wait already", done.stderr)
        partner = self.beta("partner.example")
        self.zone.set("gateway.example", "@ A 127.0.0.1")
        self.daemon.reload(
            domains=["alpha.example", "gamma.example"],
            routes=[{"domain": "beta.example", "via": f"amqps://127.0.0.1:{partner.tls}",
                     "names": ["partner.example"]}],
        )  # fmt: skip
        held = self.listed("--to", "beta.example")[0]["id"]
        self.run_it("hold", str(held), "--reason", "not this one")
        facts = self.shown("reroute", "--to", "gamma.example", "--dry-run")
        self.assertEqual((facts["messages"], facts["samples"][0]["new-queue"]), (2, "inbox"), facts)
        facts = self.shown("reroute", "--all", "--yes")
        self.assertEqual((facts["messages"], facts["held"]), (5, 1))
        (moved,) = [row for row in facts["samples"] if row["id"] == held]
        with Wire(self.daemon.plain) as wire:
            got = wire.consume("inbox", 2)
            self.assertEqual([body_of(each) for each in got], [b"0", b"1"])
        rows = self.listed("--to", f"127.0.0.1:{partner.tls}")
        self.assertEqual([row["to"] for row in rows][:1] or ["orders@beta.example"],
                         ["orders@beta.example"])  # fmt: skip
        until(lambda: self.peer("partner.example")["relayed"] + self.peer("partner.example")
              ["rejected"] == 2, "tried at the gateway")  # fmt: skip
        (row,) = [row for row in self.listed() if row["state"] == "held"]
        self.assertEqual((row["id"], row["holds"]), (moved["new-id"], moved["holds"]))
        self.assertNotEqual(row["id"], held)
        self.assertEqual(self.shown("holds")["holds"][0]["ids"], [row["id"]])
        self.run_it("release", "h1")
        until(lambda: self.peer("partner.example")["relayed"] + self.peer("partner.example")
              ["rejected"] == 3, "let go")  # fmt: skip

    def test_peer_by_a_gateway(self) -> None:
        """A domain without a relay queue of its own is shown by the way that its messages wait."""
        self.daemon.reload(
            routes=[{"domain": "eta.example", "via": f"amqps://127.0.0.1:{self.dead}"}]
        )
        self.run_it("peer", "show", "eta.example", code=1)
        self.publish("orders@eta.example")
        self.assertEqual(self.peer("eta.example")["name"], f"127.0.0.1:{self.dead}")


class ReadmeTests(OperatorCase):
    """The chapter of the README about messages that do not move: its commands as they stand."""

    def test_commands(self) -> None:
        """Each of them works, in its order."""
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        chapter = readme.partition("\n## When a message does not move\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"```sh\n(.*?)```", chapter, re.DOTALL)
        self.assertGreater(len(blocks), 7)
        for subject in ("urgent", "offer", "test", "other", "other"):
            self.publish("orders@beta.example", 1, subject=subject)
        self.waiting()
        directory = new_directory("readme")
        self.enterContext(installed(directory))
        environment = {
            **os.environ,
            "PATH": f"{directory}:{os.environ['PATH']}",
            "AMQPROUTE_CONFIG": str(self.daemon.file),
        }
        for block in blocks:
            if "reroute" in block:
                gateway = f"amqps://127.0.0.1:{self.dead}"
                self.daemon.reload(routes=[{"domain": "beta.example", "via": gateway}])
            done = subprocess.run(
                ["sh", "-ec", block],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                timeout=PATIENCE,
            )
            # Beta cannot be reached, and these say so.
            wanted = 1 if "peer test" in block or "status" in block else 0
            self.assertEqual(done.returncode, wanted, f"{block}\n{done.stdout}\n{done.stderr}")
            self.assertNotIn("Traceback", done.stderr)
