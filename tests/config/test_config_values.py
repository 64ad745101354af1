# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.config.config_values`: values with their origins, and no secrets."""

from __future__ import annotations

import json
from typing import Any

from amqproute.config import Config
from amqproute.config.config_diff import after_reload
from amqproute.config.config_values import setting_values, shown_settings, version_of
from amqproute.config.loader import unresolved_credentials
from tests.config.test_config_files import FilesCase

ENVIRON = {"WINDOW": "7", "PORT": "5999", "HUSH": "very-hush", "CREDENTIALS_DIRECTORY": "/c"}


class ValueTests(FilesCase):
    """What `config show` shows."""

    def changed(self, config: Config) -> dict[str, tuple[Any, str, str]]:
        """Return value, origin and place of each setting that differs from its default."""
        return {
            each.key: (each.value, each.origin, each.place.replace(f"{self.directory}/", ""))
            for each in setting_values(config)
            if each.is_changed
        }

    def test_long_lists(self) -> None:
        """A list with more entries than wanted is one value, and none of them is looked at."""
        nodes = "".join(f"  - name: n{number}\n" for number in range(9)) + "  - name: ${HUSH}\n"
        self.write(
            "amqproute.yaml", f"domains: [a.example, b.example]\n\nnodes:\n{nodes}access: []\n"
        )
        config = self.load(ENVIRON)
        everything = {each.key: each for each in setting_values(config)}
        for most in (10, None):
            self.assertEqual({each.key: each for each in setting_values(config, most)}, everything)
        short = {each.key: each for each in setting_values(config, 9)}
        nodes_value = short.pop("nodes")
        self.assertEqual((nodes_value.value, nodes_value.default), ("10 items", None))
        self.assertEqual((nodes_value.origin, nodes_value.place), ("file", f"{self.main}:4"))
        others = {key: each for key, each in everything.items() if not key.startswith("nodes[")}
        self.assertEqual(short, others)

    def test_origins(self) -> None:
        """Lines of files, environment, credentials; defaults are left out, given or not."""
        self.write(
            "amqproute.yaml",
            "domains: [alpha.example]\nrelay:\n  window: ${WINDOW}\n  max-hops: 16\n"
            "listen:\n  - {endpoint: 'tcp:${PORT}', mechanisms: [PLAIN]}\n"
            "tls: {trust: '%d/ca.pem'}\nresolver: {deny-targets: [10.0.0.0/8]}\n",
        )
        self.write(
            "conf.d/b.yaml",
            "domains: [beta.example]\npeers:\n  Gamma.Example:\n    level: pkix\n"
            "    contract: {links: 5}\n  d.example: {}\nrealms: {/x: [a]}\n",
        )
        self.assertEqual(
            self.changed(self.load(ENVIRON)),
            {
                "domains[0]": ("alpha.example", "file", "amqproute.yaml:1"),
                "domains[1]": ("beta.example", "file", "conf.d/b.yaml:1"),
                "tls.trust": ("%d/ca.pem", "credential", "amqproute.yaml:7"),
                "listen[0]": (
                    {"endpoint": "tcp:${PORT}", "mechanisms": ["PLAIN"]},
                    "environment",
                    "amqproute.yaml:6",
                ),
                'realms."/x"': (["a"], "file", "conf.d/b.yaml:7"),
                "resolver.deny-targets": (["10.0.0.0/8"], "file", "amqproute.yaml:8"),
                'peers."gamma.example".level': ("pkix", "file", "conf.d/b.yaml:4"),
                'peers."gamma.example".contract.links': (5, "file", "conf.d/b.yaml:5"),
                'peers."d.example"': ({}, "file", "conf.d/b.yaml:6"),
                "relay.window": ("${WINDOW}", "environment", "amqproute.yaml:3"),
            },
        )
        self.assertEqual(self.changed(Config()), {})

    def test_optional_groups(self) -> None:
        """A group that is not there by default has the settings that are given."""
        self.write(
            "amqproute.yaml",
            "users:\n  ldap:\n    servers: ['ldaps://${HUSH}']\n    bind-dn: cn=x\n"
            "    search-base: dc=x\n    bind-password-file: '%d/password'\n"
            "  issuers:\n    main: {issuer: 'https://login.example', audience: [amqproute]}\n",
        )
        found = self.changed(self.load(ENVIRON))
        self.assertEqual(
            found["users.ldap.servers"],
            (["ldaps://${HUSH}"], "environment", "amqproute.yaml:3"),
        )
        self.assertEqual(
            found["users.ldap.bind-password-file"],
            ("%d/password", "credential", "amqproute.yaml:6"),
        )
        self.assertEqual(
            found["users.issuers.main.issuer"],
            ("https://login.example", "file", "amqproute.yaml:8"),
        )
        (problem,) = unresolved_credentials(self.load({"HUSH": "hush"}))
        self.assertEqual(problem.key, "users.ldap.bind-password-file")

    def test_free_settings(self) -> None:
        """The settings of a plug-in are one value, without what is secret in them."""
        self.write(
            "amqproute.yaml",
            "users:\n  realms:\n    corp:\n      kind: staff\n      settings:\n"
            "        files: [a, '%d/key']\n        password: ${HUSH}\n",
        )
        config = self.load(ENVIRON)
        self.assertEqual(
            config.users.realms["corp"].settings,
            {"files": ["a", "/c/key"], "password": "very-hush"},
        )
        found = self.changed(config)
        self.assertEqual(
            found["users.realms.corp.settings"],
            ({"files": ["a", "%d/key"], "password": "${HUSH}"}, "environment", "amqproute.yaml:5"),
        )
        self.assertEqual(found["users.realms.corp.kind"], ("staff", "file", "amqproute.yaml:4"))
        (problem,) = unresolved_credentials(self.load({"HUSH": "hush"}))
        self.assertEqual(problem.key, "users.realms.corp.settings.files[1]")

    def test_all(self) -> None:
        """Without a file every value is a default; one that is given has its line all the same."""
        values = [*setting_values(Config())]
        self.assertGreater(len(values), 100)
        self.assertEqual({(each.origin, each.place) for each in values}, {("default", "")})
        self.write("amqproute.yaml", "relay: {max-hops: 16}\n")
        found = {each.key: each for each in setting_values(self.load())}["relay.max-hops"]
        self.assertEqual((found.origin, found.place), ("file", f"{self.main}:1"))
        self.assertFalse(found.is_changed)

    def test_hidden(self) -> None:
        """No form of the settings has a value out of the environment."""
        self.write(
            "amqproute.yaml",
            "nodes: [{name: '${HUSH}'}]\naliases: {a: '${HUSH}'}\n"
            "peers: {B.example: {container-id: '${HUSH}'}}\nusers: {file: '/x/${HUSH}'}\n",
        )
        config = self.load(ENVIRON)
        self.assertEqual(config.nodes[0].name, "very-hush")
        shown = json.dumps(shown_settings(config))
        self.assertEqual(shown.count("${HUSH}"), 4)
        self.assertNotIn("very-hush", shown)
        rows = json.dumps([each.as_row() for each in setting_values(config)])
        self.assertNotIn("very-hush", rows)

    def test_version(self) -> None:
        """It is another one for each value, also of the environment, and with another key."""
        self.write("amqproute.yaml", "relay: {window: '${WINDOW}'}\n")
        first, same = self.load({"WINDOW": "7"}), self.load({"WINDOW": "7"})
        other = self.load({"WINDOW": "8"})
        self.assertEqual(version_of(b"k", first), version_of(b"k", same))
        versions = {
            version_of(b"k", first),
            version_of(b"k", other),
            version_of(b"l", first),
            version_of(b"k", first, other),
            version_of(b"k", other, first),
        }
        self.assertEqual(len(versions), 5)


class ReloadedTests(FilesCase):
    """Values carried over by a reload keep their places, and stay hidden."""

    def test_at_start(self) -> None:
        """A setting that waits for the next start is shown as it was read at the start."""
        self.write(
            "amqproute.yaml",
            "container-id: ${HUSH}\nlimits: {max-links: 5}\nlisten:\n"
            "  - {endpoint: 'tcp:${PORT}', max-connections: 7}\n  - {endpoint: 'tcp:1'}\n",
        )
        running = self.load(ENVIRON)
        self.write(
            "amqproute.yaml",
            "\n\ncontainer-id: plain\nlimits: {max-links: 6}\nrelay: {window: 5}\n"
            "listen:\n  - {endpoint: 'tcp:5999', max-connections: '${WINDOW}'}\n",
        )
        config = after_reload(running, self.load(ENVIRON))
        self.assertEqual(config.container_id, "very-hush")
        shown = shown_settings(config)
        self.assertNotIn("very-hush", json.dumps(shown))
        values = {each.key: each for each in setting_values(config)}
        self.assertEqual(values["container-id"].value, "${HUSH}")
        self.assertEqual(values["container-id"].place, f"{self.main}:1")
        self.assertEqual(values["limits.max-links"].place, f"{self.main}:2")
        self.assertEqual(values["relay.window"].place, f"{self.main}:5")
        self.assertEqual(config.listen[0].max_connections, 7)
        self.assertEqual(
            values["listen[0]"].value,
            {"endpoint": "tcp:${PORT}", "max-connections": "${WINDOW}"},
        )
        self.assertEqual(values["listen[1]"].value, {"endpoint": "tcp:1"})
