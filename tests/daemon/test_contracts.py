# SPDX-License-Identifier: Apache-2.0
"""Contracts of a configuration, by holder."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import loads
from amqproute.daemon.policy_assembly import contract_of
from amqproute.errors import ConfigError
from amqproute.frontends.common.contract_enforcement import NO_TERMS, ContractTerms
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal

CONFIG = """
peers:
  b.example: {contract: {spool: 1MiB, messages-per-second: null}}
  "*.example": {contract: {links: 7, messages-per-second: 10}}
contracts:
  "user:ann": {credit: 5}
  "user:*": {connections: 2}
  anonymous: {bytes-per-second: 10KiB}
"""


class ContractTests(SynchronousTestCase):
    def test_holders(self) -> None:
        """The exact name before a wildcard, term by term; each holder for itself."""
        config = loads(CONFIG, "f")
        for principal, key, terms in (
            (
                Principal("peer", "b.example"),
                "peer:b.example",
                ContractTerms(links=7, spool=1 << 20),
            ),
            (
                Principal("peer", "c.example"),
                "peer:c.example",
                ContractTerms(links=7, messages_per_second=10.0),
            ),
            (Principal("peer", "d.test"), "peer:d.test", NO_TERMS),
            (Principal("user", "ann"), "user:ann", ContractTerms(credit=5)),
            (Principal("user", "bob"), "user:bob", ContractTerms(connections=2)),
            (Principal("uid", "0"), "uid:0", NO_TERMS),
            (ANONYMOUS_PRINCIPAL, "anonymous", ContractTerms(bytes_per_second=10240)),
        ):
            self.assertEqual(contract_of(principal, config), (key, terms))

    def test_several_names(self) -> None:
        """A certificate with several domains has one contract: that of the one that is named."""
        names = frozenset({"a.test", "b.example", "c.test"})
        key, terms = contract_of(Principal("peer", "a.test", names), loads(CONFIG, "f"))
        self.assertEqual((key, terms.spool), ("peer:b.example", 1 << 20))

    def test_nobody(self) -> None:
        """A peer's contract stands elsewhere, and what is no principal has none."""
        for holder, words in (("peer:b.example", "under peers"), ("bob", "user:NAME")):
            with self.assertRaisesRegex(ConfigError, words):
                loads(f"contracts: {{'{holder}': {{links: 1}}}}", "f")
