# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.config.load`, `parameters` and `yaml_document`."""

from __future__ import annotations

import os
import string
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import Config, advise, check_files, find, load, loads, yaml_document
from amqproute.config.access_settings import AccessSettings, ContractSettings, ListenSettings
from amqproute.config.field_types import Via
from amqproute.config.node_settings import NodeSettings
from amqproute.config.routing_settings import PeerSettings, RelaySettings, RouteSettings
from amqproute.config.yaml_document import all_keys, describe, describe_reload, uncomment
from amqproute.errors import ConfigError
from tests.config.refused import REFUSED

ETC = Path(__file__).parents[2] / "etc"

FULL = """\
container-id: Broker1.alpha.example
domains: [Alpha.Example., "b\\u00fccher.example"]
state-directory: state
tls:
  certificate: tls/chain.pem
  private-key: /abs/key.pem
  trust: system
listen:
  - endpoint: unix:/run/amqproute/amqproute.sock
    mechanisms: [EXTERNAL]
  - endpoint: tcp:5672:interface=127.0.0.1
    tls: upgrade
    mechanisms: [SCRAM-SHA-256, PLAIN, ANONYMOUS]
  - endpoint: tcp:5671
    tls: implicit
    client-certificate: optional
    mechanisms: [EXTERNAL, SCRAM-SHA-256]
    max-connections: 7
users: {file: users.yaml}
access:
  - {allow: [publish, consume, create], who: "user:*", node: "*"}
  - {allow: [transfer], who: "peer:*.Beta.Example", node: "orders"}
  - {deny: [consume], who: "*"}
nodes:
  - {name: orders, type: queue, capacity: 5, max-deliveries: 3, dead-letter: dead, ttl: 1h}
  - {name: dead}
aliases: {sales: orders, 2024: orders}
resolver:
  nameservers: ["127.0.0.1:53", "::1", "[::1]:53"]
  dnssec: off
  deny-targets: [10.0.0.0/8]
routes:
  - {domain: "*.Partner.example", via: "amqps://gateway.partner.example"}
  - {domain: x.example, via: "amqp://192.0.2.1:7", target: "/queues/{node}", names: [Y.example]}
peers:
  "*": {level: dane-or-pkix, relay-for: []}
  "Beta.example": {level: pkix, relay-for: ["*.gamma.example"]}
relay: {lifetime: 5d, first-retry: 1s, last-retry: 5m, max-hops: 16, window: 1000}
limits: {max-message-size: 1MiB}
journal: {segment-bytes: 64MiB, segment-seconds: 60}
management: {http: "tcp:9672:interface=127.0.0.1"}
log: {format: json}
"""


class LoadsTests(SynchronousTestCase):
    """The values of texts."""

    def test_refused(self) -> None:
        """Each bad file is refused with the file, the line, the key, the cause and the hint."""
        self.assertGreater(len(REFUSED), 90)
        for text, expected in REFUSED:
            error = self.assertRaises(ConfigError, loads, text, "/c/f.yaml")
            found = [problem.removeprefix("/c/f.yaml:") for problem in error.problems]
            if expected[0].endswith("is not YAML"):
                self.assertEqual(len(found), 1)
                self.assertEqual(found[0][: len(expected[0])], expected[0])
            else:
                self.assertEqual(found, expected, text)

    def test_mapped_networks(self) -> None:
        """Networks of IPv4 addresses in their IPv6 form are the networks that they mean."""
        config = loads(
            "resolver: {deny-targets: ['::ffff:8.8.8.0/120', '::ffff:0:0/96', '::/64']}\n"
            "listen: [{endpoint: 'tcp:1', proxy-protocol: ['::ffff:10.0.0.5']}]\n",
            "/c/f.yaml",
        )
        self.assertEqual(config.resolver.deny_targets, ("8.8.8.0/24", "0.0.0.0/0", "::/64"))
        self.assertEqual(config.listen[0].proxy_protocol, ("10.0.0.5/32",))

    def test_too_deep(self) -> None:
        """Neither depth nor anchors that multiply can bring the loader down."""
        bomb = "a: &a [x, x]\n" + "".join(
            f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}]\n"
            for old, new in zip(string.ascii_lowercase, string.ascii_lowercase[1:15], strict=False)
        )
        for text in ("[" * 100_000, "a: " + "{a: " * 100_000, "- " * 5000, bomb):
            error = self.assertRaises(ConfigError, loads, text, "/c/f.yaml")
            self.assertIn("too", str(error))
        self.assertLess(len(yaml_document.read(bomb).lines), 11_000)

    def test_anchors(self) -> None:
        """A text may have all values that it needs, and repeat a few."""
        names = [f"node-with-a-name-{number}" for number in range(3000)]
        text = "nodes:\n- &first {name: first, default-outcomes: &some [accepted, released]}\n"
        text += "".join(f"- {{name: {name}, default-outcomes: *some}}\n" for name in names)
        parsed = yaml_document.read(text)
        self.assertEqual(parsed.problems, [])
        self.assertGreater(len(parsed.lines), 15_000)

    def test_full(self) -> None:
        """A file with every kind of setting is read into these values."""
        config = loads(FULL, "/c/f.yaml")
        self.assertEqual(config.container_id, "Broker1.alpha.example")
        self.assertEqual(config.domains, ("alpha.example", "xn--bcher-kva.example"))
        self.assertEqual(
            config.local_domains,
            {"alpha.example", "xn--bcher-kva.example", "broker1.alpha.example"},
        )
        self.assertEqual(config.state_directory, Path("/c/state"))
        self.assertEqual(config.tls.certificate, Path("/c/tls/chain.pem"))
        self.assertEqual(config.tls.private_key, Path("/abs/key.pem"))
        self.assertEqual(config.tls.trust, "system")
        self.assertEqual(
            config.listen[2],
            ListenSettings(
                endpoint="tcp:5671",
                tls="implicit",
                client_certificate="optional",
                mechanisms=("EXTERNAL", "SCRAM-SHA-256"),
                max_connections=7,
            ),
        )
        self.assertEqual(
            config.access,
            (
                AccessSettings(allow=("publish", "consume", "create"), who="user:*"),
                AccessSettings(allow=("transfer",), who="peer:*.beta.example", node="orders"),
                AccessSettings(deny=("consume",), who="*"),
            ),
        )
        self.assertEqual(
            config.nodes,
            (
                NodeSettings(
                    name="orders", capacity=5, max_deliveries=3, dead_letter="dead", ttl=3600.0
                ),
                NodeSettings(name="dead"),
            ),
        )
        self.assertEqual(config.aliases, {"sales": "orders", "2024": "orders"})
        self.assertEqual(config.resolver.dnssec, "off")
        self.assertEqual([r.domain for r in config.routes], ["*.partner.example", "x.example"])
        self.assertEqual(config.routes[0].next_hop, Via("gateway.partner.example", 5671, True))
        self.assertEqual(config.routes[1].next_hop, Via("192.0.2.1", 7, False))
        self.assertEqual(config.routes[1].names, ("y.example",))
        self.assertEqual(config.relay, RelaySettings())
        self.assertEqual(config.limits.max_message_size, 2**20)
        self.assertEqual(config.journal.segment_seconds, 60.0)
        self.assertEqual(config.log.format, "json")

    def test_peer_for(self) -> None:
        """A missing option comes from the longest wildcard, then the star, then the default."""
        config = loads(
            "peers:\n  '*': {relay-for: [y.example]}\n  '*.example': {relay-for: [z.example]}\n"
            "  '*.b.example': {level: pkix}\n  a.b.example: {relay-for: [x.example]}\n",
            "f",
        )
        self.assertEqual(
            config.peer_for("a.b.example"), PeerSettings(level="pkix", relay_for=("x.example",))
        )
        self.assertEqual(
            config.peer_for("c.b.example"), PeerSettings(level="pkix", relay_for=("z.example",))
        )
        self.assertEqual(config.peer_for("other.test"), PeerSettings(relay_for=("y.example",)))
        self.assertEqual(config.peer_for("b.example").relay_for, ("z.example",))
        self.assertEqual(config.peer_for("b.test").relay_for, ("y.example",))
        self.assertEqual(Config().peer_for("b.test"), PeerSettings())

    def test_peers_inherit(self) -> None:
        """Every setting, those of contract one by one; one without a value is the default again."""
        star = {
            "level": "pkix", "relay-for": ["c.example"], "origins": ["*.d.example"],
            "messages-per-second": 5.0, "bytes-per-second": 1000, "suppress-duplicates": True,
            "trace-context": "keep", "contract": {"connections": 3, "links": 4, "spool": 8192},
        }  # fmt: skip
        pins = ["sha256:" + "a" * 64]
        entries = {
            "*": star,
            "*.b.example": {"contract": {"links": 9, "spool": None}},
            "x.b.example": {"level": "pin", "pin": pins, "contract": {"spool": 4096}},
            "plain.example": {key.replace("_", "-"): None for key in PeerSettings.model_fields},
            "free.example": {"contract": None, "level": None, "relay-for": []},
        }
        config = loads(yaml.safe_dump({"peers": entries}), "f")
        self.assertEqual(set(PeerSettings.model_fields) - {"pin", "container_id"},
                         {key.replace("-", "_") for key in star})  # fmt: skip
        found = config.peer_for("x.b.example")
        self.assertEqual(
            (found.level, found.pin, found.origins), ("pin", (pins[0],), ("*.d.example",))
        )
        self.assertEqual(found.contract, ContractSettings(connections=3, links=9, spool=4096))
        self.assertEqual((found.messages_per_second, found.suppress_duplicates), (5.0, True))
        self.assertEqual(found.trace_context, "keep")
        found = config.peer_for("y.b.example")
        self.assertEqual(
            (found.level, found.contract), ("pkix", ContractSettings(connections=3, links=9))
        )
        self.assertEqual(config.peer_for("b.example"), config.peer_for("else.where"))
        self.assertEqual(config.peer_for("plain.example"), PeerSettings())
        found = config.peer_for("free.example")
        self.assertEqual((found.level, found.relay_for), ("dane-or-pkix", ()))
        self.assertEqual((found.contract, found.origins), (ContractSettings(), ("*.d.example",)))

    def test_empty(self) -> None:
        """Nothing, an empty map, only comments, and keys without values all give the defaults."""
        for text in ("", "{}", "# nothing\n", "---\n", "relay:\ntls: ~\nlisten: null\n"):
            self.assertEqual(loads(text, "f"), Config(), repr(text))

    def test_unknown_key_without_value(self) -> None:
        """An unknown key is refused even if it has no value."""
        error = self.assertRaises(ConfigError, loads, "relays:\n", "f")
        self.assertEqual(error.problems, ["f:1: relays: unknown key; did you mean relay?"])

    def test_words(self) -> None:
        """Numbers, dates and booleans of old YAML are names here."""
        config = loads("nodes: [{name: no}, {name: 12:30}, {name: 2024-01-01}]", "f")
        self.assertEqual([node.name for node in config.nodes], ["no", "12:30", "2024-01-01"])

    def test_all_problems_at_once(self) -> None:
        """The operator sees every problem in one go, in the order of the lines."""
        text = "relay:\n  window: x\n  window: 5\nlog:\n  levle: y\ndomains: [a_b]\n"
        error = self.assertRaises(ConfigError, loads, text, "f")
        self.assertEqual([p.split(": ")[0] for p in error.problems], ["f:2", "f:3", "f:5", "f:6"])

    def test_equal_settings_compare_equal(self) -> None:
        """Comments, order and the file's name make no difference; a value does."""
        first = loads("log: {level: warn}\nrelay: {window: 5}\n", "/a/f")
        second = loads("# c\nrelay:\n  window: 5\nlog: {level: warn}\n", "/b/g")
        self.assertEqual(first, second)
        self.assertEqual(second.source.path, Path("/b/g"))
        self.assertEqual(second.source.places["relay", "window"].line, 3)
        self.assertNotEqual(first, loads("log: {level: warn}", "f"))

    def test_frozen(self) -> None:
        """A configuration cannot be changed once it is made."""
        config = Config()
        self.assertRaises(ValidationError, setattr, config.relay, "window", 5)
        self.assertRaises(ValidationError, setattr, config, "domains", ())

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(sorted({key[-1] for key in all_keys()})) | st.text(max_size=4),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_any_yaml(self, data: Any) -> None:
        """Any YAML is a configuration or a ConfigError whose every line names file and line."""
        try:
            loads(yaml.safe_dump(data), "/c/f.yaml")
        except ConfigError as error:
            for problem in error.problems:
                self.assertRegex(problem, r"\A/c/f\.yaml:[0-9]+: \S")

    @given(st.text(max_size=60))
    def test_any_text(self, text: str) -> None:
        """Any text at all does no worse."""
        try:
            loads(text, "/c/f.yaml")
        except ConfigError as error:
            self.assertTrue(error.problems)


class FileTests(SynchronousTestCase):
    """Files on the disk."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "amqproute.yaml"

    def test_find(self) -> None:
        """The file asked for comes before the environment's, and that before the usual place."""
        self.path.write_text("{}")
        other = self.directory / "other.yaml"
        other.write_text("{}")
        environ = {"AMQPROUTE_CONFIG": str(self.path)}
        self.assertEqual(find(other, environ), other)
        self.assertEqual(find(None, environ), self.path)
        error = self.assertRaises(ConfigError, find, self.directory / "none", environ)
        self.assertIn("--config", str(error))
        error = self.assertRaises(ConfigError, find, None, {"AMQPROUTE_CONFIG": "/no/such"})
        self.assertEqual(
            str(error), "/no/such:1: there is no such file (named by $AMQPROUTE_CONFIG)"
        )

    def test_hidden(self) -> None:
        """A file that this user may not even look for is no fault of the program."""
        # Root sees everything, but for a name that no file system has.
        hidden = (self.directory / ("x" * 300)).absolute()
        error = self.assertRaises(ConfigError, find, None, {"AMQPROUTE_CONFIG": str(hidden)})
        self.assertEqual(
            str(error),
            f"{hidden}:1: cannot be read by this user: File name too long "
            "(named by $AMQPROUTE_CONFIG)",
        )
        self.path.write_text(f"tls: {{trust: {hidden}}}\n")
        (problem,) = check_files(load(self.path))
        self.assertEqual((problem.line, problem.key), (1, "tls.trust"))
        self.assertIn("File name too long", problem.message)

    def test_unreadable(self) -> None:
        """A file that cannot be read is reported with the cause."""
        error = self.assertRaises(ConfigError, load, self.path)
        self.assertEqual(str(error), f"{self.path}:1: cannot be read: No such file or directory")
        error = self.assertRaises(ConfigError, load, self.directory)
        self.assertIn("Is a directory", str(error))
        self.path.write_bytes(b"domains:\n  - \xff\n")
        error = self.assertRaises(ConfigError, load, self.path)
        self.assertEqual(str(error), f"{self.path}:2: is not UTF-8: invalid start byte")
        self.path.write_bytes(b"\xef\xbb\xbflog: {level: warn}\n")
        self.assertEqual(load(self.path).log.level, "warn")

    def test_check_files(self) -> None:
        """Each file named is there, readable and not empty, or its line and key are told."""
        (self.directory / "chain.pem").write_text("x")
        (self.directory / "empty.pem").write_text("")
        self.path.write_text(
            "tls:\n  certificate: chain.pem\n  private-key: empty.pem\n  trust: .\n"
            "users:\n  file: users.yaml\n"
        )
        directory = self.directory
        self.assertEqual(
            [
                str(problem).removeprefix(f"{self.path}:")
                for problem in check_files(load(self.path))
            ],
            [
                f"3: tls.private-key: {directory / 'empty.pem'} is empty",
                f"4: tls.trust: {directory} is a directory; name a file",
                f"6: users.file: there is no file {directory / 'users.yaml'}",
            ],
        )
        self.path.write_text("{}")
        self.assertEqual(check_files(load(self.path)), [])

    def test_forbidden_file(self) -> None:
        """A file that this user may not read is told with the user's id."""
        if os.geteuid() == 0:
            self.path.write_text("tls: {certificate: /proc/1/mem/x, private-key: /no}\n")
            self.assertEqual(len(check_files(load(self.path))), 2)
            return
        secret = self.directory / "key.pem"
        secret.write_text("x")
        secret.chmod(0)
        self.path.write_text("tls: {certificate: key.pem, private-key: key.pem}\n")
        for problem in check_files(load(self.path)):
            self.assertIn(f"(id {os.geteuid()})", problem.message)


class AdviceTests(SynchronousTestCase):
    """Settings that are allowed but perhaps not intended."""

    def keys(self, text: str) -> list[str]:
        """The keys that advice is given about."""
        return [problem.key for problem in advise(loads(text, "f"))]

    def test_empty(self) -> None:
        """An empty file is told what is missing for federation."""
        self.assertEqual(
            self.keys(""), ["domains", "tls.certificate", "listen", "access", "users.file"]
        )

    def test_balancers_without_tls(self) -> None:
        """Nobody can log in with a password through a balancer without TLS."""
        text = "management: {http: 'tcp:9672:interface=127.0.0.1', proxy-protocol: [127.0.0.1]}\n"
        self.assertIn("management.proxy-protocol", self.keys(text))
        with_tls = text.replace("http:", "tls: implicit, http:")
        with_tls += "tls: {certificate: c.pem, private-key: k.pem}\n"
        self.assertNotIn("management.proxy-protocol", self.keys(with_tls))

    def test_dangers(self) -> None:
        """Passwords in the clear, and open doors are pointed at."""
        keys = self.keys(
            "listen:\n  - {endpoint: 'tcp:1', mechanisms: [PLAIN, ANONYMOUS]}\n"
            "access: []\ndomains: [a.example]\n"
            "routes: [{domain: a.example}]\nrelay: {lifetime: 30d}\n"
        )
        for key in (
            "listen[0].mechanisms",
            "access",
            "routes[0].domain",
            "relay.receipt-lifetime",
        ):
            self.assertIn(key, keys)
        self.assertEqual(keys.count("listen[0].mechanisms"), 2)

    def test_realms(self) -> None:
        """A directory or issuer that nobody can use, or by which everybody has rights."""
        ldap = "ldap: {servers: ['ldaps://a'], user-dn: 'uid={name}'}"
        issuers = "issuers: {a: {issuer: 'https://a.example', audience: [a]}}"
        keys = self.keys(f"users: {{{ldap}, {issuers}}}\n")
        self.assertLessEqual({"users.ldap", "users.issuers", "access"}, {*keys})
        keys = self.keys(
            f"users: {{{ldap}, {issuers}}}\n"
            "listen: [{endpoint: 'tcp:1', tls: implicit, mechanisms: [PLAIN, XOAUTH2]}]\n"
            "tls: {certificate: a, private-key: b}\n"
            "access: [{who: 'group:a', allow: [publish]}, {who: 'user:*', allow: [consume]}]\n"
        )
        self.assertNotIn("users.ldap", keys)
        self.assertNotIn("users.issuers", keys)
        self.assertIn("access[1]", keys)
        self.assertNotIn("access[0]", keys)

    def test_wildcards(self) -> None:
        """Whom a wildcard seems to name, and does not, if nothing else lets private places in."""
        text = (
            'peers: {"*.corp.example": {level: pkix}, b.example: {level: pkix}, "*": {}}\n'
            'routes: [{domain: "*.w.example"}, {domain: "*.v.example", via: "amqps://g.example"}]\n'
        )
        keys = self.keys(text)
        self.assertIn("routes[0].domain", keys)
        self.assertEqual(
            [key for key in keys if key.startswith("peers.")], ['peers."*.corp.example"']
        )
        self.assertNotIn("routes[1].domain", keys)
        allowed = self.keys(text + "resolver: {allow-targets: [10.0.0.0/8]}\n")
        self.assertEqual([key for key in allowed if key.startswith(("peers", "routes"))], [])


class ShippedTests(SynchronousTestCase):
    """The files under ``etc``."""

    def test_generated(self) -> None:
        """The shipped file is what the schema generates: python -m amqproute.config."""
        self.assertEqual((ETC / "amqproute.yaml").read_text(), describe())

    def test_reload_page(self) -> None:
        """So is the page about reloads: python -m amqproute.config reload > docs/reload.md."""
        page = (ETC.parent / "docs" / "reload.md").read_text()
        self.assertEqual(page, describe_reload())
        self.assertIn("| `limits.max-links` | restart |", page)
        self.assertIn("| `relay.window` | reload |", page)
        self.assertIn("Takes effect at the next start.", describe())

    def test_loads(self) -> None:
        """As shipped it gives the defaults, and so it does with every setting in force."""
        text = describe()
        self.assertEqual(load(ETC / "amqproute.yaml"), Config())
        self.assertEqual(loads(uncomment(text), ETC / "amqproute.yaml"), Config())
        self.assertEqual(check_files(load(ETC / "amqproute.yaml")), [])

    def test_complete(self) -> None:
        """With every setting in force, every key outside of lists and maps is in the file."""
        text = describe()
        parsed = yaml_document.read(uncomment(text))
        self.assertEqual(parsed.problems, [])
        inside = {"listen", "access", "nodes", "bindings", "virtual-hosts", "routes", "peers"}
        inside |= {"contracts", "policies"}
        maps = {("users", "ldap"), ("users", "issuers"), ("users", "realms")}
        for key in all_keys():
            is_inside = key[0] in inside and len(key) > 1
            is_inside = is_inside or (key[:2] in maps and len(key) > 2)
            if not is_inside:
                self.assertIn(key, parsed.lines)
            else:
                depth = "    " if key[:2] == ("policies", "definition") and key[2:] else "  "
                self.assertIn(f"# {depth}{key[-1]}: ", text)

    def test_one_setting(self) -> None:
        """Taking one mark away, anywhere, gives a file that still loads."""
        lines = describe().splitlines()
        settings = [i for i, line in enumerate(lines) if uncomment(line) != line]
        self.assertGreater(len(settings), 50)
        for index in settings:
            if lines[index].startswith("#  - ") or lines[index].endswith(":"):
                continue
            one = [*lines[:index], uncomment(lines[index]), *lines[index + 1 :]]
            self.assertEqual(loads("\n".join(one), "f"), Config(), lines[index])

    def test_example(self) -> None:
        """Both organizations of the example load, and need no advice but about users."""
        for name in ("alpha", "beta"):
            config = load(ETC / "example" / name / "amqproute.yaml")
            self.assertEqual(config.domains, (f"{name}.example",))
            self.assertEqual([p.key for p in advise(config)], ["users.file"])
            self.assertEqual(
                [p.key for p in check_files(config)],
                ["tls.certificate", "tls.private-key", "tls.trust"],
            )
            port = next(x.parsed.port for x in config.listen if x.tls == "implicit")
            self.assertRegex(
                (ETC / "example" / "zone.txt").read_text(),
                rf"_amqps\._tcp\.{name} +SRV +10 0 {port} broker\.{name}\n",
            )

    def test_route_without_url(self) -> None:
        """A route may leave the next hop to DNS."""
        self.assertIsNone(RouteSettings(domain="a.example").next_hop)
