# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.address`."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute import address, conditions
from amqproute.address import Address
from amqproute.errors import InvalidField, NotAllowed

NODES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True).filter(
    lambda label: not label.startswith("xn--")
)
DOMAINS = st.builds(
    lambda labels, last: ".".join([*labels, last]),
    st.lists(LABELS, max_size=4),
    st.sampled_from(["example", "xn--p1ai", "b1r", "m\u00fcnchen", "\u4e2d\u56fd"]),
)


class ParseTests(SynchronousTestCase):
    """Results of `parse`."""

    def test_accepted(self) -> None:
        """Each text gives these two parts."""
        table = [
            ("orders", "orders", None),
            ("orders@beta.example", "orders", "beta.example"),
            ("Orders@BETA.Example", "Orders", "beta.example"),
            ("orders@beta.example.", "orders", "beta.example"),
            ("a@b@beta.example", "a@b", "beta.example"),
            ("@beta.example", "", "beta.example"),
            ("orders@b\u00fccher.example", "orders", "xn--bcher-kva.example"),
            ("orders@B\u00dcCHER\u3002example\u3002", "orders", "xn--bcher-kva.example"),
            ("orders@xn--bcher-kva.example", "orders", "xn--bcher-kva.example"),
            ("orders@XN--BCHER-KVA.EXAMPLE", "orders", "xn--bcher-kva.example"),
            ("orders@fa\u00df.example", "orders", "xn--fa-hia.example"),
            ("orders@\uff42eta.example", "orders", "beta.example"),
            ("orders@r4---sn-x.example", "orders", "r4---sn-x.example"),
            ("orders@localhost", "orders", "localhost"),
            ("orders@3com.b2", "orders", "3com.b2"),
            ("amqp$transfer", "amqp$transfer", None),
            ("/queues/a%40b", "/queues/a%40b", None),
            ("\u00fc" * 512, "\u00fc" * 512, None),
            (
                "o@" + ".".join(["a" * 63] * 3 + ["b" * 61]),
                "o",
                ".".join(["a" * 63] * 3 + ["b" * 61]),
            ),
        ]
        for text, node, domain in table:
            self.assertEqual(address.parse(text), Address(node, domain), text)

    def test_refused(self) -> None:
        """Each text is refused as an invalid field, with its cause in words."""
        table = [
            ("", "empty"),
            ("orders@", "ends with the at sign"),
            ("@", "ends with the at sign"),
            ("orders@.", "it is empty"),
            ("orders@beta..example", "two dots"),
            ("orders@.example", "two dots"),
            ("orders@beta.example..", "two dots"),
            ("orders@-beta.example", "hyphen"),
            ("orders@beta-.example", "hyphen"),
            ("orders@beta_x.example", "'_'"),
            ("orders@beta example", "' '"),
            ("orders@beta.example:5671", "no port"),
            ("orders@[::1]", "not an IP address"),
            ("orders@192.0.2.1", "last label is a number"),
            ("orders@" + "a" * 64 + ".example", "63 octets"),
            ("orders@" + "a." * 127 + "example", "253 octets"),
            ("orders@" + "\u00fc" * 64 + ".example", "not a domain name"),
            ("orders@" + "\u00fc" * 5000, "253 octets"),
            ("orders@xn--\u00fc.example", "not a domain name"),
            ("orders@xn--99999999999.example", "does not decode"),
            ("orders@xn--abc-.example", "hyphen"),
            ("orders@beta\uff20gamma.example", "'@'"),
            ("orders@\u2615.example", "not a domain name"),
            ("x" * 1025, "1025 octets"),
            ("\u00fc" * 513, "1026 octets"),
            ("\u00fc" * 513 + "@beta.example", "1026 octets"),
            ("half\ud800@beta.example", "surrogate"),
            ("orders@half\ud800", "not a domain name"),
            ("orders@beta.example\n", "'\\n'"),
        ]
        for text, words in table:
            error = self.assertRaises(InvalidField, address.parse, text)
            self.assertIn(words, error.description, repr(text))
            self.assertEqual(error.condition, conditions.INVALID_FIELD)
            self.assertTrue(error.description.isascii(), "nothing strange reaches the log")

    @given(NODES, DOMAINS)
    def test_round_trip(self, node: str, domain: str) -> None:
        """Parsed, formatted and parsed again an address is the same, in its normal form."""
        parsed = address.parse(f"{node}@{domain}")
        self.assertEqual(parsed.node, node)
        self.assertEqual(address.parse(address.format(parsed)), parsed)
        self.assertEqual(address.parse(f"{node}@{domain.upper()}."), parsed)
        self.assertEqual(str(parsed), address.format(parsed))

    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text is either refused as an invalid field or has a normal form that is stable."""
        try:
            parsed = address.parse(text)
        except InvalidField:
            return
        self.assertEqual(address.parse(address.format(parsed)), parsed)

    @given(st.text(max_size=40))
    def test_domain_is_idempotent(self, text: str) -> None:
        """Normalizing a domain twice is normalizing it once."""
        try:
            domain = address.normalize_domain(text)
        except InvalidField:
            return
        self.assertEqual(address.normalize_domain(domain), domain)
        self.assertTrue(domain.isascii() and domain == domain.lower())


class NameTests(SynchronousTestCase):
    """Names of new nodes, and reserved ones."""

    def test_reserved(self) -> None:
        """Names of services are reserved, names that merely contain the words are not."""
        for name in ("amqp$transfer", "amqp$x", "$management", "/management/x"):
            self.assertTrue(address.is_reserved(name))
        for name in ("amqp", "orders", "my-amqp$x", "management"):
            self.assertFalse(address.is_reserved(name))

    def test_new_names(self) -> None:
        """Letters, digits and underscores may start a name; the rest is free."""
        for name in ("orders", "_x", "9", "A b/c \u00fc\u4e2d$", "x" * 1024):
            address.check_new_name(name)

    def test_refused_names(self) -> None:
        """Each of these names is refused, with the cause."""
        for name, words in [
            ("", "empty"),
            ("/orders", "starts with '/'"),
            ("$x", "starts with '$'"),
            ("\u00fcber", "first character"),
            ("a@b", "at sign"),
            ("x" * 1025, "octets"),
            ("x\ud800", "surrogate"),
        ]:
            error = self.assertRaises(InvalidField, address.check_new_name, name)
            self.assertIn(words, error.description)
        for name in ("amqp$mine", "$management", "/management"):
            self.assertRaises(NotAllowed, address.check_new_name, name)


class CompatibilityTests(SynchronousTestCase):
    """Addresses of clients made for RabbitMQ 4."""

    def test_accepted(self) -> None:
        """Both prefixes give the decoded name; other texts are not of this form."""
        self.assertEqual(address.from_compatibility("/queues/orders"), "orders")
        self.assertEqual(address.from_compatibility("/topics/a%2Fb%C3%BC"), "a/b\u00fc")
        self.assertEqual(address.from_compatibility("/queues/o%40b.example"), "o@b.example")
        for text in ("orders", "/exchanges/x", "/queues", "/management"):
            self.assertIsNone(address.from_compatibility(text))

    def test_refused(self) -> None:
        """Empty names and bad encodings are refused."""
        for text in (
            "/queues/",
            "/topics/",
            "/queues/a/b",
            "/queues/%zz",
            "/queues/%",
            "/queues/%ff",
        ):
            self.assertRaises(InvalidField, address.from_compatibility, text)

    def test_uri(self) -> None:
        """Of the broker that a client has connected to, a URI names a node."""
        for text, host, expected in (
            ("amqps://mq.test/orders", "mq.test", "orders"),
            ("amqp://MQ.test:5671/a%2Fb%C3%BC", "mq.TEST", "a/b\u00fc"),
            ("amqps://anna:secret@mq.test/topic/Subscriptions/s", "mq.test",
             "topic/Subscriptions/s"),
            ("amqps://[::1]:5671/q", "[::1]", "q"),
            ("amqps://[::1]/q", "::1", "q"),
            ("amqps://mq.test/o%40b.example", "mq.test", "o@b.example"),
            ("amqps://other.test/orders", "mq.test", None),
            ("amqps://mq.test/orders", None, None),
            ("amqps://mq.test/orders", "", None),
            ("amqps:///orders", "", None),
            ("amqps://mq.test/", "mq.test", None),
            ("amqps://mq.test", "mq.test", None),
            ("http://mq.test/orders", "mq.test", None),
            ("orders", "mq.test", None),
        ):  # fmt: skip
            self.assertEqual(address.from_uri(text, host), expected, text)
        for text in ("amqps://mq.test/%zz", "amqps://mq.test/%ff"):
            self.assertRaises(InvalidField, address.from_uri, text, "mq.test")

    @given(NODES)
    def test_round_trip(self, name: str) -> None:
        """Every name can be written in this form."""
        self.assertEqual(address.from_compatibility("/queues/" + quote(name, safe="")), name)
        self.assertEqual(address.from_uri("amqp://h/" + quote(name, safe=""), "h"), name)
