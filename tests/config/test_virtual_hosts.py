# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts in the configuration: accepted and refused settings."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.config.loader import loads
from amqproute.errors import ConfigError

WHOLE = """
domains: [a.example]
virtual-hosts:
  shop:
    domains: [Shop.Example., shop.test]
    access:
      - {allow: [publish], who: "user:ann"}
    nodes:
      - {name: orders, dead-letter: dead}
      - {name: dead}
    max-connections: 5
  local: {}
"""


class VirtualHostTests(SynchronousTestCase):
    def refused(self, text: str) -> list[str]:
        error = self.assertRaises(ConfigError, loads, text, "f.yaml")
        return [problem.partition(" ")[2] for problem in error.problems]

    def test_read(self) -> None:
        """A virtual host without settings is one nobody may open yet."""
        config = loads(WHOLE, "f.yaml")
        shop = config.virtual_hosts["shop"]
        self.assertEqual(shop.domains, ("shop.example", "shop.test"))
        self.assertEqual((shop.max_connections, shop.max_nodes), (5, None))
        self.assertEqual(config.virtual_hosts["local"].access, ())
        self.assertEqual(config.local_domains, {"a.example", "shop.example", "shop.test"})
        self.assertEqual(config.domains_of_hosts, dict.fromkeys(shop.domains, "shop"))

    def test_names(self) -> None:
        """A name has no slash, and is no domain that leads elsewhere."""
        for name in ('"/"', '"a/b"', '""', ".a", '"a b"'):
            self.assertIn("the name of a virtual host", "".join(
                self.refused(f"virtual-hosts:\n  {name}: {{}}\n")
            ), name)  # fmt: skip
        text = "domains: [a.example]\nvirtual-hosts:\n  a.example: {}\n"
        self.assertIn("is one of our domains", "".join(self.refused(text)))
        own = "virtual-hosts:\n  shop.example: {domains: [shop.example]}\n"
        self.assertEqual(list(loads(own, "f.yaml").virtual_hosts), ["shop.example"])

    def test_domains(self) -> None:
        """A domain stands once."""
        for text in (
            "domains: [a.example]\nvirtual-hosts:\n  shop: {domains: [a.example]}\n",
            "virtual-hosts:\n  one: {domains: [a.example]}\n  two: {domains: [a.example]}\n",
        ):
            (words,) = self.refused(text)
            self.assertIn("a domain leads to one place", words)

    def test_nodes(self) -> None:
        """Nodes are checked as those outside are, and know those of their virtual host only."""
        for nodes, words in (
            ("[{name: a}, {name: a}]", "is already"),
            ("[{name: a, dead-letter: out}]", "there is no node 'out'"),
            ("[{name: a, dead-letter: a}]", "is the node itself"),
            ("[{name: a, last-value: 1}]", "means something for a topic only"),
            ('[{name: "//b/a"}]', "starts with '/'"),
        ):
            text = f"nodes: [{{name: out}}]\nvirtual-hosts:\n  shop: {{nodes: {nodes}}}\n"
            self.assertIn(words, "".join(self.refused(text)))
        text = "virtual-hosts:\n  shop: {nodes: [{name: a}, {name: b}], max-nodes: 1}\n"
        self.assertIn("is less than the 2 nodes", "".join(self.refused(text)))
