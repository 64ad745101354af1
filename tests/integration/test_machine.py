# SPDX-License-Identifier: Apache-2.0
"""The units under a running systemd: the instructions of the README, carried out.

Each test has a machine of its own (`tests.integration.machine`), which takes a second to boot. The
campaigns' short form sees the daemon start, reload, restart and come back. ``make test-systemd``
(``AMQPROUTE_SYSTEMD=long``) has the rest: sockets, the watchdog, system calls, credentials, and
the pipeline.
"""

from __future__ import annotations

import os
import re
import subprocess
import textwrap

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration.machine import SOURCES, CannotBoot, Machine, why_no_machine
from tests.integration.support import until

IS_LONG = os.environ.get("AMQPROUTE_SYSTEMD") == "long"
DAEMON = "amqproute.service"
NO_MACHINE = "no machine with a systemd of its own can be had here"
WITHIN = "/opt/amqproute/sources"
CONFIGURATION = """\
container-id: broker1.alpha.example
domains: [alpha.example]
tls:
  certificate: /etc/amqproute/tls/chain.pem
  private-key: /etc/amqproute/tls/key.pem
  trust: /etc/amqproute/tls/ca.pem
listen:
  - {endpoint: "unix:/run/amqproute/amqproute.sock", mechanisms: [EXTERNAL]}
  - {endpoint: "tcp:5671", tls: implicit, mechanisms: [SCRAM-SHA-256, PLAIN]}
access:
  - {allow: [publish, consume, create, browse], who: "user:*"}
nodes:
  - {name: orders}
peers: {"*": {level: pkix}}
resolver: {nameservers: ["127.0.0.1:53"], timeout: 0.5}
journal: {segment-seconds: 1}
"""
"""The README's, with what a machine without a network needs."""
LISTEN = '"tcp:5671"'
ACTIVATED = '"systemd:domain=INET6:index=0"'

KNOCK = """
import select, socket, sys
answered = refused = 0
while not select.select([sys.stdin], [], [], 0.02)[0]:
    try:
        with socket.create_connection(("127.0.0.1", 5671), 60):
            answered += 1
    except ConnectionRefusedError:
        refused += 1
print(answered, refused)
"""
"""Connects again and again until standard input ends; prints how often, and how often not."""


def steps(heading: str) -> str:
    """Return the commands of a chapter of the README, without those that need a network."""
    text = (SOURCES / "README.md").read_text(encoding="utf-8")
    (chapter,) = re.findall(rf"^### \d\. {heading}\n(.*?)^##", text, re.MULTILINE | re.DOTALL)
    block = "".join(re.findall(r"^    .*\n|^\n", chapter, re.MULTILINE))
    lines = textwrap.dedent(block).splitlines()
    return "\n".join(line for line in lines if "-m venv" not in line and "/pip " not in line)


class MachineTests(SynchronousTestCase):
    """A machine on which the README was followed."""

    def setUp(self) -> None:
        if why := why_no_machine():
            raise SkipTest(f"{NO_MACHINE}: {why}")
        self.machine = Machine()
        self.addCleanup(self.machine.close)
        try:
            self.machine.boot()
        except CannotBoot as error:
            raise SkipTest(f"{NO_MACHINE}: {error}") from None
        self.shell(f"cd {WITHIN}\n{steps('Install')}\ncd /root\n{steps('Certificates')}")
        self.machine.write("/etc/amqproute/amqproute.yaml", CONFIGURATION)
        # Between two starts an operator waits longer than a test likes to.
        self.drop_in(DAEMON, "[Service]", "RestartSec=100ms")

    def shell(self, script: str) -> str:
        """Run commands, all of which have to go well."""
        return self.machine.run("/bin/bash", "-euo", "pipefail", "-c", script)

    def drop_in(self, unit: str, *lines: str) -> None:
        """Change a unit as `systemctl edit` does."""
        self.shell(f"mkdir -p /etc/systemd/system/{unit}.d")
        count = self.shell(f"ls /etc/systemd/system/{unit}.d").count("\n")
        path = f"/etc/systemd/system/{unit}.d/{count}.conf"
        self.machine.write(path, "\n".join(lines) + "\n")
        self.shell("systemctl daemon-reload")

    def configure(self, old: str, new: str) -> None:
        """Change the configuration file."""
        self.assertIn(old, CONFIGURATION)
        self.machine.write("/etc/amqproute/amqproute.yaml", CONFIGURATION.replace(old, new))

    def status(self) -> str:
        """Return the line that `systemctl status` shows."""
        return self.machine.property(DAEMON, "StatusText")

    def restarts(self) -> int:
        """Return how often systemd has started the daemon of its own accord."""
        return int(self.machine.property(DAEMON, "NRestarts"))

    def wait_restarted(self, count: int) -> None:
        """Wait until it was, and runs."""
        until(lambda: self.restarts() == count, f"{count} restarts", detail=self.told)
        until(lambda: self.machine.property(DAEMON, "SubState") == "running", "running")

    def told(self) -> str:
        """Return the log of the daemon."""
        return self.machine.journal(DAEMON)

    def send(self, *more: str) -> None:
        self.machine.run("amqproute", "send", "orders", *more)

    def receive(self) -> str:
        return self.machine.run("amqproute", "receive", "orders", "--count", "1", "--timeout", "20")


class DaemonTests(MachineTests):
    def test_life(self) -> None:
        """Start, reload, a reload that is refused, an end by force, and the next boot."""
        machine = self.machine
        machine.run("systemctl", "enable", "--now", "amqproute")
        identity = "container broker1.alpha.example, domains alpha.example"
        self.assertEqual(self.status(), identity)
        self.send("--body", "first")

        self.configure("nodes:", "nodes:\n  - {name: more}")
        machine.run("systemctl", "reload", "amqproute")
        until(lambda: "reloaded /etc" in self.told(), "the reload", detail=self.told)
        machine.run("amqproute", "queue", "show", "more")
        self.configure("domains:", "domain:")
        refused = machine.ask("systemctl", "reload", "amqproute")
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(self.told(), r"amqproute\.yaml:2: domain: unknown key; did you mean")
        # A hang-up that did not come by way of the unit.
        machine.run("systemctl", "kill", "--signal=HUP", "amqproute")
        until(lambda: "reload was refused" in self.status(), "the refusal", detail=self.told)
        self.assertEqual(machine.property(DAEMON, "ActiveState"), "active")

        self.machine.write("/etc/amqproute/amqproute.yaml", CONFIGURATION)
        machine.run("systemctl", "kill", "--signal=KILL", "amqproute")
        self.wait_restarted(1)
        self.assertEqual(self.status(), identity)
        self.assertIn("first", self.receive())

        # What the next boot does before it starts services.
        machine.run("systemd-tmpfiles", "--create", "--boot", "--remove")
        machine.run("systemctl", "restart", "amqproute")
        modes = self.shell("cd /etc/amqproute; stat -c %A:%U:%G tls tls/key.pem")
        self.assertEqual(modes, "drwxr-x---:root:amqproute\n-rw-r-----:root:amqproute\n")
        self.assertEqual(machine.journal(DAEMON, "-p", "err").count("Traceback"), 0)

    def test_configuration(self) -> None:
        """A start that the configuration forbids is not tried again, and is an error in the log."""
        self.configure("domains:", "domain:")
        failed = self.machine.ask("systemctl", "start", "amqproute")
        self.assertNotEqual(failed.returncode, 0)
        self.assertEqual(self.machine.property(DAEMON, "ActiveState"), "failed")
        self.assertEqual(
            (self.restarts(), self.machine.property(DAEMON, "ExecMainStatus")), (0, "2")
        )
        self.assertRegex(self.machine.journal(DAEMON, "-p", "err"), r"yaml:2: domain: unknown key")


class LongTests(MachineTests):
    """Parts that take too long for a short form."""

    def setUp(self) -> None:
        if not IS_LONG:
            raise SkipTest("long: AMQPROUTE_SYSTEMD=long, or make test-systemd")
        super().setUp()

    def test_sockets(self) -> None:
        """Nobody is refused while the daemon restarts behind its sockets."""
        machine = self.machine
        self.configure(LISTEN, ACTIVATED)
        lines = (SOURCES / "systemd/amqproute.socket").read_text().splitlines()
        commands = [line[4:] for line in lines if line.startswith("#   ")]
        install, *enable = [each for each in commands if each.startswith(("install", "systemctl"))][
            :3
        ]
        self.shell("\n".join([f"cd {WITHIN}", install, *enable]))
        with subprocess.Popen(
            machine.within("/usr/bin/python3", "-c", KNOCK),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as knocking:  # fmt: skip
            for _ in range(6):  # an operator who tries things out
                machine.run("systemctl", "restart", "amqproute")
            counted, _ = knocking.communicate("")
        answered, refused = (int(each) for each in counted.split())
        self.assertGreater(answered, 20)
        self.assertEqual(refused, 0)
        machine.run("systemctl", "stop", "amqproute.socket", "amqproute")
        gone = machine.ask("/bin/bash", "-c", ": < /dev/tcp/127.0.0.1/5671")
        self.assertIn("Connection refused", gone.stderr)
        # Without its sockets it says what it lacks.
        machine.ask("systemctl", "start", "amqproute")
        machine.run("systemctl", "stop", "amqproute")
        self.assertIn("no sockets at all: systemctl start amqproute.socket", self.told())

    def test_watchdog(self) -> None:
        """A daemon that stands still is ended, says where it stood, and comes back."""
        self.drop_in(DAEMON, "[Service]", "WatchdogSec=2s")
        self.machine.run("systemctl", "start", "amqproute")
        self.machine.run("systemctl", "kill", "--signal=STOP", "amqproute")
        self.wait_restarted(1)
        self.assertRegex(self.told(), r"Watchdog timeout \(limit 2s\)!")
        self.assertRegex(self.told(), r"Current thread .*\n(.*\n)*.*doPoll")

    def test_system_calls(self) -> None:
        """The daemon never asks for calls that the sandbox forbids: here they would end it."""
        machine = self.machine
        self.drop_in(DAEMON, "[Service]", "SystemCallErrorNumber=kill")
        self.shell(
            "printf 'secret\\nsecret\\n' | amqproute user add ann; systemctl start amqproute"
        )
        url = "amqps://ann:secret@localhost:5671"
        self.shell("head -c 3000000 /dev/urandom > /var/tmp/large")
        self.send("--file", "/var/tmp/large")
        self.shell("echo 127.0.0.1 broker.alpha.example >> /etc/hosts")
        self.send("--url", url.replace("localhost", "broker.alpha.example"), "--body", "by TLS")
        self.send("--body", "x", "--count", "500")
        machine.run("amqproute", "send", "orders@beta.example", "--body", "abroad")
        until(
            lambda: "beta.example cannot be reached" in self.told(), "an attempt", detail=self.told
        )
        self.receive()
        machine.run("systemctl", "reload", "amqproute")
        machine.run("systemctl", "restart", "amqproute")
        self.assertIn("by TLS", self.receive())
        self.assertEqual(self.restarts(), 0)
        self.assertNotIn("status=31/SYS", self.told())

    def test_credential(self) -> None:
        """Secrets that are root's own, as the unit's comment has them, by the names %d/NAME."""
        machine = self.machine
        unit = (SOURCES / "systemd" / DAEMON).read_text()
        lines = re.findall(r"^#(LoadCredential=.*)$", unit, re.MULTILINE)
        self.assertEqual(len(lines), 3)
        self.drop_in(DAEMON, "[Service]", *lines)
        key, secrets = "/etc/amqproute/tls/key.pem", "/etc/ssl/private"
        self.shell(
            f"install -Dm600 {key} {secrets}/amqproute.pem; rm {key}; umask 077\n"
            f"echo '{{}}' > {secrets}/amqproute-users.yaml\n"
            f"echo hush > {secrets}/amqproute-ldap-password\n"
        )
        users = (
            "users:\n  file: '%d/users.yaml'\n  ldap: {servers: ['ldaps://127.0.0.1:1'], "
            "bind-dn: 'cn=a',\n    bind-password-file: '%d/ldap-password', search-base: 'dc=a'}\n"
        )
        configuration = CONFIGURATION.replace(key, "'%d/key.pem'") + users
        machine.write("/etc/amqproute/amqproute.yaml", configuration)
        machine.run("systemctl", "start", "amqproute")
        self.assertIn("5671", self.shell("ss -ltn"))  # with its certificate, so it has the key
        shown = self.shell("amqproute config show --changed")
        for name in ("tls.private-key", "users.file", "users.ldap.bind-password-file"):
            self.assertRegex(shown, rf"{re.escape(name)}\s+%d/\S+\s+credential, /etc/amqproute")
        # The check of a reload may not see them, and is no obstacle.
        machine.run("systemctl", "reload", "amqproute")
        until(lambda: "reloaded /etc" in self.told(), "the reload", detail=self.told)

    def test_pipeline(self) -> None:
        """The nightly run: Java and Spark in its sandbox, from the journal to the page."""
        machine = self.machine
        if machine.ask("amqproute", "pipeline", "run", "--help").returncode:
            raise SkipTest("the extra `pipeline` is not installed")
        machine.run("systemctl", "start", "amqproute")
        self.send("--body", "x", "--count", "20")
        self.receive()
        self.shell(f"cd {WITHIN} && install -Dm644 systemd/amqproute-pipeline.service "
                   "systemd/amqproute-pipeline.timer -t /etc/systemd/system && "
                   "systemctl enable --now amqproute-pipeline.timer")  # fmt: skip
        timers = machine.run("systemctl", "list-timers", "--no-pager", "amqproute*")
        self.assertIn("amqproute-pipeline.service", timers)
        machine.run("systemctl", "stop", "amqproute")  # which closes the last segment
        machine.run("systemctl", "start", "amqproute-pipeline", seconds=900)
        told = machine.journal("amqproute-pipeline.service")
        self.assertIn("Every message that was accepted is accounted for", told)
        self.assertNotRegex(told, r"(?m)^warning|^\s+at |ERROR|SparkConf")
        self.assertRegex(
            self.shell("stat -c %A:%U:%G /var/lib/amqproute-pipeline/report/*.html"),
            r"\A-rw-r-----:amqproute:amqproute\n\Z",
        )
