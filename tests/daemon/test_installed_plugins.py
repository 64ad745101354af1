# SPDX-License-Identifier: Apache-2.0
"""Plug-ins in a daemon: in force, or named and left out, or a reason not to start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase

from amqproute.auth.realm import LogInTransport
from amqproute.cli.commands.check import examine
from amqproute.cli.commands.doctor import _of_configuration
from amqproute.config import load, loads
from amqproute.daemon.assembly import Application
from amqproute.daemon.installed_plugins import adopt_plugins, installed_plugins
from amqproute.daemon.preflight import examine_files
from amqproute.errors import ConfigError
from amqproute.filters.registry import adopt_kinds, capabilities, read_filters
from amqproute.plugins import FILTERS, REALMS
from amqproute.values import Principal
from amqproute.wire.amqp10.types import Described, Symbol
from tests.support.tiny_distribution import COLOR_FILTER, REALM_KINDS, install

MODULES = {"tiny_acme_color": COLOR_FILTER, "tiny_acme_bad": "raise ValueError('no license')\n"}
POINTS = {FILTERS: {"color": "tiny_acme_color:COLOR", "bad": "tiny_acme_bad:BAD"}}
FAULT = "plug-in bad (amqproute.filters: tiny_acme_bad:BAD, tiny_acme 1.0)"


class PluginCase(SynchronousTestCase):
    """An installation with a plug-in that works and one that does not."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.addCleanup(install(self.directory, "tiny_acme", MODULES, POINTS))
        self.addCleanup(adopt_kinds, [], lambda *_: None)
        self.lines: list[str] = []
        observe = self.observe
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def observe(self, event: Any) -> None:
        """Keep the lines of the log."""
        text = event.get("log_format") or ""
        self.lines.append(f"{event['log_level'].name} {text.format(**event)}")


class InstalledTests(PluginCase):
    """What the daemon and `check` make of them."""

    def test_left_out(self) -> None:
        """The one that fails is named, in the log and by `check`; the other is in use."""
        config = loads("", "f")
        adopt_plugins(config, installed_plugins(), lambda: 0.0)
        words = f"{FAULT} is left out: it cannot be imported: ValueError: no license"
        self.assertIn(f"error {words}", self.lines)
        self.assertIn("ACME.EXAMPLE:COLOR", capabilities())
        found = examine_files(config)
        self.assertEqual((found.problems, found.warnings), ([], [words]))

    def test_commands(self) -> None:
        """`check` warns of it, and `doctor` has it as a finding with a cure."""
        file = self.directory / "amqproute.yaml"
        file.write_text(f"state-directory: {self.directory}/state\nlisten: []\n")
        examination = examine(file)
        self.assertEqual(examination.problems, [])
        found = [each for each in _of_configuration(examination) if FAULT in each.description]
        self.assertEqual([(each.state, bool(each.cure)) for each in found], [("warning", True)])
        file.write_text(f"{file.read_text()}plugins: {{required: [bad]}}\n")
        found = [each for each in _of_configuration(examine(file)) if FAULT in each.description]
        self.assertEqual([each.state for each in found], ["failed"])

    def test_required(self) -> None:
        """What the configuration requires prevents a start if it is missing or fails."""
        for name, words in (
            ("bad", f"{FAULT} cannot be used: it cannot be imported: ValueError: no license"),
            ("nothing", "no plug-in 'nothing' is installed; install the distribution that has it"),
        ):
            config = loads(f"plugins:\n  required: [color, {name}]\n", "f")
            error = self.assertRaises(
                ConfigError, adopt_plugins, config, installed_plugins(), lambda: 0.0
            )
            self.assertEqual(error.problems, [f"f:2: plugins.required[1]: {words}"])
            self.assertEqual(examine_files(config).problems, error.problems)
        config = loads("plugins: {required: [color]}\n", "f")
        self.assertEqual(examine_files(config).problems, [])

    def test_realms(self) -> None:
        """Kinds of realms are named if they fail, and in use if the configuration has them."""
        points = {
            REALMS: {
                "staff": "tiny_realms:STAFF",
                "guests": "tiny_realms:GUESTS",
                "later": "tiny_realms:LATER",
                "ldap": "tiny_realms:STAFF",
            }
        }
        modules = {"tiny_realms": REALM_KINDS}
        self.addCleanup(install(self.directory / "realms", "tiny_realms", modules, points))
        plugins = [each for each in installed_plugins() if each.group == REALMS]
        config = loads("users: {realms: {corp: {kind: staff}}}\n", "f")
        adopt_plugins(config, plugins, lambda: 0.0)
        place = "(amqproute.realms: tiny_realms:{}, tiny_realms 1.0)"
        self.assertEqual(
            self.lines,
            [
                f"error plug-in later {place.format('LATER')} is left out: it is written for "
                "version 2 of the interface of realms, and this broker has version 1",
                f"error plug-in ldap {place.format('STAFF')} is left out: the broker has realms "
                "of the kind ldap itself",
                f"info plug-in staff {place.format('STAFF')} is in use",
            ],
        )
        self.assertEqual(len(examine_files(config).warnings), 3)  # with that of the filters

    def test_failures_are_limited(self) -> None:
        """A client that makes a plug-in fail over and over fills no log."""
        adopt_plugins(loads("", "f"), installed_plugins(), lambda: 0.0)
        descriptor = Symbol("acme.example:color-filter:string")
        wanted = {Symbol("c"): Described(descriptor, "broken")}
        filters = read_filters(wanted, own_container="c")
        for _ in range(100):
            self.assertIs(filters.matches(None), False)  # type: ignore[arg-type]
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class StartTests(TestCase):
    """A daemon that starts."""

    async def test_start(self) -> None:
        """It offers the kinds of plug-ins, and one that fails does not take it down."""
        from twisted.internet import reactor

        directory = Path(self.mktemp()).absolute()
        self.addCleanup(install(directory, "tiny_acme", MODULES, POINTS))
        self.addCleanup(adopt_kinds, [], lambda *_: None)
        file = directory / "amqproute.yaml"
        text = f"state-directory: {directory}/state\nlisten: []\nresolver: {{dnssec: off}}\n"
        file.write_text(text)
        made: Any = reactor
        app = Application(load(file), made)
        await app.start()
        self.assertIn("ACME.EXAMPLE:COLOR", capabilities())
        await app.stop()
        file.write_text(f"{text}plugins: {{required: [bad]}}\n")
        app = Application(load(file), made)
        with self.assertRaises(ConfigError):
            await app.start()

    async def test_realm(self) -> None:
        """A user of a plug-in's realm logs in; a kind that fails refuses the start."""
        from twisted.internet import reactor

        directory = Path(self.mktemp()).absolute()
        points = {REALMS: {"staff": "tiny_realms:STAFF", "later": "tiny_realms:LATER"}}
        self.addCleanup(install(directory, "tiny_realms", {"tiny_realms": REALM_KINDS}, points))
        file = directory / "amqproute.yaml"
        text = f"state-directory: {directory}/state\nlisten: []\nresolver: {{dnssec: off}}\n"
        realm = "{kind: staff, settings: {passwords: {bob: secret}}}"
        file.write_text(f"{text}users: {{realms: {{corp: {realm}}}}}\n")
        made: Any = reactor
        app = Application(load(file), made)
        await app.start()
        self.addCleanup(app.stop)
        facts = LogInTransport("192.0.2.1", tls=True)
        who = await app.access.password_log_in().principal("bob", "secret", facts)
        assert isinstance(who, Principal)
        self.assertEqual((str(who), who.realm, who.groups), ("user:bob", "corp", {"staff"}))
        self.assertEqual(app.access.log_ins["corp", "accepted"], 1)
        self.assertEqual(await app.realm_probes()["corp"](), "")
        file.write_text(f"{text}users: {{realms: {{corp: {{kind: later}}}}}}\n")
        error = self.assertRaises(ConfigError, app.reload, load(file))
        self.assertIn("is written for version 2", str(error))
        self.assertEqual(app.access.realms.names, ("corp",))
        self.assertRaises(ConfigError, Application, load(file), made)
