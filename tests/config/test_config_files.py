# SPDX-License-Identifier: Apache-2.0
"""Configurations of several files, and values out of the environment and of credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import Config, check_files, config_files, load, loads
from amqproute.config.config_files import digest_of
from amqproute.config.loader import advise, unresolved_credentials
from amqproute.config.value_references import resolved
from amqproute.daemon.preflight import examine_files
from amqproute.daemon.service import read
from amqproute.errors import ConfigError


class FilesCase(SynchronousTestCase):
    """A directory with a main file.

    Attributes:
        directory: it.
        main: the main file.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        (self.directory / "conf.d").mkdir(parents=True)
        self.main = self.directory / "amqproute.yaml"
        self.main.write_text("")

    def write(self, name: str, text: str) -> Path:
        """Write a file below the directory."""
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def load(self, environ: Mapping[str, str] | None = None) -> Config:
        """Load the main file."""
        return load(self.main, environ or {})

    def problems(self, environ: Mapping[str, str] | None = None) -> list[str]:
        """Return why the main file is refused, without the directory."""
        error = self.assertRaises(ConfigError, load, self.main, environ or {})
        return [each.replace(f"{self.directory}/", "") for each in error.problems]


class IncludeTests(FilesCase):
    """Included files."""

    def test_merged(self) -> None:
        """Maps are merged, lists appended, other values replaced; each keeps its place."""
        self.write(
            "amqproute.yaml",
            "domains: [alpha.example]\nrelay:\n  window: 5\n  lifetime: 1d\n"
            "nodes:\n  - {name: a}\npeers:\n  Beta.example: {level: pkix}\n",
        )
        self.write("conf.d/20-b.yaml", "relay: {window: 7}\nnodes: [{name: c}, {name: d}]\n")
        self.write(
            "conf.d/10-a.yaml",
            "nodes:\n  - name: b\nrelay:\n  lifetime:\n"
            "peers:\n  Beta.example:\n    container-id: mx\n  Gamma.example: {level: dane}\n",
        )
        self.write("conf.d/notes.txt", "not: read\n")
        self.write("conf.d/.hidden.yaml", "not: read\n")
        config = self.load()
        self.assertEqual([node.name for node in config.nodes], ["a", "b", "c", "d"])
        self.assertEqual((config.relay.window, config.relay.lifetime), (7, 86400.0))
        beta = config.peers["beta.example"]
        self.assertEqual((beta.level, beta.container_id), ("pkix", "mx"))
        first, second = self.directory / "conf.d/10-a.yaml", self.directory / "conf.d/20-b.yaml"
        self.assertEqual(config.source.files, (self.main, first, second))
        places = {
            ("nodes", 0): f"{self.main}:6",
            ("nodes", 1): f"{first}:2",
            ("nodes", 1, "name"): f"{first}:2",
            ("nodes", 3, "name"): f"{second}:2",
            ("relay", "window"): f"{second}:1",
            ("relay", "lifetime"): f"{self.main}:4",
            ("relay",): f"{self.main}:2",
            ("peers", "beta.example", "level"): f"{self.main}:8",
            ("peers", "beta.example", "container-id"): f"{first}:7",
            ("peers", "gamma.example"): f"{first}:8",
        }
        self.assertEqual({at: str(config.source.place_of(at)) for at in places}, places)

    def test_problems(self) -> None:
        """Problems name the file, line and setting that they are in, those of all files at once."""
        self.write("amqproute.yaml", "nodes: [{name: a}]\n")
        self.write("conf.d/1.yaml", "\nnodes:\n  - {name: b}\n  - {name: a}\nrelay: {window: x}\n")
        self.write("conf.d/2.yaml", "log: [\n")
        problems = self.problems()
        self.assertIn(
            "conf.d/1.yaml:5: relay.window: has to be a whole number, not the text 'x'", problems
        )
        self.assertRegex(problems[-1], r"\Aconf.d/2.yaml:2: is not YAML: ")
        self.write("conf.d/1.yaml", "\nnodes:\n  - {name: b}\n  - {name: a}\n")
        self.write("conf.d/2.yaml", "- a list\n")
        self.assertEqual(
            self.problems(),
            [
                "conf.d/1.yaml:4: nodes[2].name: 'a' is already nodes[0]",
                "conf.d/2.yaml:1: has to be a map of keys and values, as in domains: [a.example]",
            ],
        )
        self.write("conf.d/2.yaml", "")
        self.assertEqual(
            self.problems(), ["conf.d/1.yaml:4: nodes[2].name: 'a' is already nodes[0]"]
        )

    def test_patterns(self) -> None:
        """Files and patterns as the main file says, each file once; none with an empty list."""
        self.write("conf.d/x.yaml", "domains: [x.example]\n")
        self.write("more/y.conf", "domains: [y.example]\n")
        self.write("more/z.conf", "domains: [z.example]\n")
        for include, domains in (
            ("[]", []),
            ("", ["x.example"]),
            (
                "[more/z.conf, 'more/*.conf', conf.d/x.yaml]",
                ["z.example", "y.example", "x.example"],
            ),
            ("['none/*.yaml']", []),
            ("['${WHERE}/?.conf']", ["y.example", "z.example"]),
            ("['%d/x.yaml']", ["x.example"]),
        ):
            self.write("amqproute.yaml", f"include: {include}\n")
            environ = {"WHERE": "more", "CREDENTIALS_DIRECTORY": str(self.directory / "conf.d")}
            self.assertEqual(list(self.load(environ).domains), domains, include)

    def test_refused_patterns(self) -> None:
        """A file that is not there, a star among directories, an include within an include."""
        self.write("amqproute.yaml", "domains: []\ninclude: [more.yaml]\n")
        self.assertEqual(
            self.problems(),
            [
                "more.yaml:1: cannot be read: No such file or directory "
                "(included by amqproute.yaml:2)"
            ],
        )
        self.write("more.yaml", "\ninclude: [other.yaml]\n")
        self.assertEqual(
            self.problems(), ["more.yaml:2: include: only the main file includes others"]
        )
        self.write("amqproute.yaml", "include:\n  - 'con*/x.yaml'\n")
        self.assertEqual(
            self.problems(),
            [
                "amqproute.yaml:2: include[0]: 'con*/x.yaml': a star is for names of files, not "
                "of directories"
            ],
        )
        self.write("amqproute.yaml", "include: conf.d\n")
        self.assertEqual(
            self.problems(),
            ["amqproute.yaml:1: include: has to be a list, not the text 'conf.d'; write [conf.d]"],
        )
        (self.directory / "conf.d/a.yaml").mkdir()
        self.write("amqproute.yaml", "")
        self.assertEqual(
            self.problems(),
            ["conf.d/a.yaml:1: cannot be read: Is a directory (included by amqproute.yaml:1)"],
        )

    def test_unreadable_directory(self) -> None:
        """A directory that cannot be read is no directory without files."""
        self.write("more", "a file\n")
        self.write("amqproute.yaml", "include: [more/*.yaml]\n")
        self.assertEqual(
            self.problems(),
            [
                "amqproute.yaml:1: include: more cannot be read: Not a directory",
            ],
        )

    def test_bounds(self) -> None:
        """All files together are as large as one may be, and there are not too many."""
        self.patch(config_files, "LARGEST", 1000)
        self.patch(config_files, "MOST_FILES", 5)
        half = "#" * 501
        self.write("conf.d/a.yaml", half)
        self.load()
        self.write("conf.d/b.yaml", half)
        self.assertEqual(
            self.problems(), ["conf.d/b.yaml:1: is over 1000 octets; is it a configuration?"]
        )
        for name in ("a.yaml", "b.yaml"):
            (self.directory / "conf.d" / name).unlink()
        for number in range(6):
            self.write(f"conf.d/{number}.yaml", "")
        self.assertEqual(self.problems(), ["amqproute.yaml:1: include: names more than 5 files"])

    def test_relative_paths(self) -> None:
        """Paths in included files start from the directory of the main file, too."""
        self.write("conf.d/a.yaml", "users:\n  file: users.yaml\n")
        config = self.load()
        self.assertEqual(config.users.file, self.directory / "users.yaml")
        (problem,) = check_files(config)
        self.assertEqual((problem.file.name, problem.line), ("a.yaml", 2))

    def test_writers(self) -> None:
        """A file or a directory that everybody can change is warned of."""
        part = self.write("conf.d/a.yaml", "")
        self.assertEqual(examine_files(self.load()).warnings, [])
        part.chmod(0o666)
        part.parent.chmod(0o777)
        warnings = examine_files(self.load()).warnings
        self.assertEqual(len(warnings), 2)
        self.assertIn(f"chmod o-w {part}", warnings[0])
        self.assertIn(f"chmod o-w {part.parent}", warnings[1])

    def test_digest(self) -> None:
        """The digest of the configuration changes with each of its files."""
        part = self.write("conf.d/a.yaml", "")
        before = digest_of(self.load().source.files)
        part.write_text("# changed\n")
        after = digest_of(self.load().source.files)
        self.assertNotEqual(before, after)
        part.unlink()
        self.assertIsNone(digest_of((self.main, part)))


class EnvironmentTests(FilesCase):
    """Values that refer to the environment."""

    def test_values(self) -> None:
        """Texts, parts of texts, numbers and booleans; the text ${ is written $${."""
        self.write(
            "amqproute.yaml",
            "domains: ['${ORG}.example']\nstrict-hostname: ${STRICT}\n"
            "relay: {window: '${WINDOW}', lifetime: '${LIFE}'}\nnodes: [{name: '${NUMBER}'}]\n",
        )
        environ = {"ORG": "alpha", "STRICT": "true", "WINDOW": "7", "LIFE": "2h", "NUMBER": "5"}
        config = self.load(environ)
        self.assertEqual(config.domains, ("alpha.example",))
        self.assertIs(config.strict_hostname, True)
        self.assertEqual((config.relay.window, config.relay.lifetime), (7, 7200.0))
        self.assertEqual(config.nodes[0].name, "5")
        self.assertEqual(config.source.places["domains", 0].reference, "${ORG}.example")
        problems: list[str] = []
        self.assertEqual(resolved("a$${B}c$$", {}, problems.append), ("a${B}c$$", {}))
        self.assertEqual(resolved("${A}${A}", {"A": "${B}"}, problems.append)[0], "${B}${B}")
        self.assertEqual(problems, [])

    def test_problems(self) -> None:
        """Variables that are not set, what names none, and keys are refused, once each."""
        for text, words in (
            ("domains: ['${NONE}']\n", "there is no environment variable NONE; set it where"),
            ("domains: ['${A-B}']\n", "'${A-B}' does not name an environment variable; write"),
            ("domains: ['${A']\n", "'${A' does not name an environment variable; write"),
            ("domains: ['${}']\n", "'${}' does not name an environment variable; write"),
            ("domains: ['${OCTETS}']\n", "the environment variable OCTETS is not UTF-8 text"),
        ):
            self.write("amqproute.yaml", text)
            (problem,) = self.problems({"OCTETS": os.fsdecode(b"\xff")})
            self.assertIn(f"amqproute.yaml:1: domains[0]: {words}", problem)
        self.write("amqproute.yaml", "peers:\n  ${A}: {level: pkix}\n")
        self.assertEqual(
            self.problems({"A": "a.example"}),
            ['amqproute.yaml:2: peers."${A}": a key takes no environment variable; write it out'],
        )

    def test_hidden(self) -> None:
        """No error shows a value out of the environment, whichever check has refused it."""
        secret = "Hush_Hush9"
        for text, words in (
            ("domains: ['${S}']", "${S} is not valid here; its value is not shown"),
            ("relay: {window: '${S}'}", "${S} has to be a whole number"),
            ("relay: {window: '${N}'}", "${N} is out of range; it has to be at least 1"),
            ("relay: {lifetime: '${S}'}", "${S} is not valid here"),
            ("alias-to: ${S}", "${S} is not one of insert, require"),
            ("nodes: [{name: a, dead-letter: '${S}'}]", "there is no node"),
            ("nodes: [{name: '${S}'}, {name: '${S}'}]", "is already nodes[0]"),
            ("nodes: [{name: '${S}'}]\naliases: {a: hush_hush}", "did you mean ${S}?"),
            ("routes: [{domain: a.example, via: 'amqp://u:${S}@b.example'}]", "is not valid here"),
            ("tls: {trust: '${S}', certificate: 'x'}", "tls.private-key"),
        ):
            self.write("amqproute.yaml", f"{text}\n")
            problems = self.problems({"S": secret, "N": "-5"})
            self.assertIn(words, "\n".join(problems))
            self.assertNotIn(secret.lower(), "\n".join(problems).lower())

    def test_hidden_paths(self) -> None:
        """Checks of files that are named by the environment do not show it either."""
        self.write("amqproute.yaml", "users: {file: '/none/${S}'}\ntls: {trust: '${S}.pem'}\n")
        config = self.load({"S": "Hush_Hush9"})
        self.assertNotIn("Hush", repr(config.source))
        found = [str(each) for each in check_files(config)] + examine_files(config).problems
        self.assertIn(f"{self.main}:1: users.file: there is no file /none/${{S}}", found)
        self.assertNotIn("hush", "\n".join(found).lower())


class CredentialTests(FilesCase):
    """Files out of the credentials of a systemd unit."""

    def test_resolved(self) -> None:
        """%d is the directory that the service manager names, in each setting that names a file."""
        there = self.directory / "credentials"
        there.mkdir()
        for name in ("key.pem", "chain.pem", "ca.pem", "crl.pem", "users"):
            (there / name).write_text("x")
        self.write(
            "amqproute.yaml",
            "tls: {certificate: '%d/chain.pem', private-key: '%d/key.pem', trust: '%d/ca.pem',\n"
            " crl: ['%d/crl.pem']}\nusers: {file: '%d/users'}\nresolver: {anchors: '%d/none'}\n",
        )
        config = self.load({"CREDENTIALS_DIRECTORY": str(there)})
        self.assertEqual(config.tls.private_key, there / "key.pem")
        self.assertEqual(config.source.places["tls", "private-key"].reference, "%d/key.pem")
        self.assertFalse(config.source.places["tls", "private-key"].is_hidden)
        self.assertEqual(
            [str(problem) for problem in check_files(config)],
            [f"{self.main}:4: resolver.anchors: there is no file {there}/none"],
        )
        self.assertEqual(unresolved_credentials(config), [])

    def test_not_to_be_entered(self) -> None:
        """A directory that is named and cannot be entered is as one that is not known."""
        self.write("amqproute.yaml", "users: {file: '%d/users'}\n")
        there = self.directory / "credentials"
        there.mkdir()
        stat = os.stat

        def refuse(path: Any, **more: Any) -> os.stat_result:
            if str(path).startswith(str(there)):
                raise PermissionError(13, "Permission denied", str(path))
            return stat(path, **more)

        self.patch(os, "stat", refuse)
        config = self.load({"CREDENTIALS_DIRECTORY": str(there)})
        self.assertEqual(config.users.file, Path("%d/users"))
        self.assertEqual(check_files(config), [])
        (problem,) = unresolved_credentials(config)
        self.assertIn("is not set or cannot be entered", str(problem))
        self.assertNotIn("does not exist", "".join(map(str, advise(config))))

    def test_elsewhere(self) -> None:
        """Outside of the unit the file loads, `check` cannot tell, and a daemon does not start."""
        self.write("amqproute.yaml", "users: {file: '%d/users'}\n")
        config = self.load()
        self.assertEqual(check_files(config), [])
        found = examine_files(config)
        self.assertEqual((found.problems, len(found.unresolved)), ([], 1))
        self.assertIn("users.file: %d/users is a credential, and $CREDENTIALS", found.unresolved[0])
        error = self.assertRaises(ConfigError, read, self.main)
        self.assertEqual(error.problems, found.unresolved)

    def test_names(self) -> None:
        """A credential is one file: nothing leads out of the directory."""
        for name in ("", "..", ".", "a/b", "../key.pem"):
            text = f"users: {{file: '%d/{name}'}}\n"
            error = self.assertRaises(ConfigError, loads, text, "f", {})
            self.assertIn("is not a credential; write %d/NAME", str(error))
