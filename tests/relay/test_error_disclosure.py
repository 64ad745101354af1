# SPDX-License-Identifier: Apache-2.0
"""Reports of failures to senders reveal nothing behind our firewall."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ConnectError
from amqproute.relay import failure_verdict
from amqproute.relay.error_disclosure import (
    DENIED,
    UNREACHED,
    error_for_senders,
    is_unreached,
    row_for_senders,
)
from amqproute.relay.failure_table import CODES

HOP = "beta.example"
HIDDEN = sorted(code for code in CODES if is_unreached(code))
SECRETS = st.text(alphabet="xyz0123456789.[]:", min_size=8, max_size=40)


def row(error: str, *attempts: str) -> dict[str, Any]:
    return {"hop": HOP, "last-code": "", "last-error": error, "attempts": list(attempts), "x": 1}


class DisclosureTests(SynchronousTestCase):
    def test_which(self) -> None:
        """All that happens before a peer has proved who it is, and nothing that it says itself."""
        for code in ("connect.refused", "connect.timeout", "tls.plain-text", "tls.name",
                     "sasl.refused", "peer.lost", "peer.timeout", "dane.mismatch"):  # fmt: skip
            self.assertIn(code, HIDDEN)
        for code in ("link.ended", "peer.stuck", "peer.full", "dns.nxdomain", "dns.servfail"):
            self.assertNotIn(code, HIDDEN)

    def test_tried_alike(self) -> None:
        """Errors told alike are retried alike: the schedule of look-ups gives nothing away."""
        found = {
            (each.scope, each.action)
            for each in (failure_verdict.for_failure(ConnectError(code, "x")) for code in HIDDEN)
        }
        self.assertEqual(len(found), 1)
        self.assertEqual(len({(CODES[code].scope, CODES[code].action) for code in HIDDEN}), 1)

    @given(st.sampled_from(HIDDEN), SECRETS)
    def test_one_wording(self, code: str, secret: str) -> None:
        """The same words for every code, whatever the operator is told."""
        line = f"{secret}: {code}: {secret}"
        told = row_for_senders(row(f"{code}: {secret}", line, line))
        plain = row_for_senders(row("connect.refused: x", "x:1: connect.refused: x"))
        self.assertEqual(told, plain)
        self.assertEqual(told["last-code"], UNREACHED)
        self.assertEqual(len(told["attempts"]), 1)

    @given(SECRETS)
    def test_denied(self, secret: str) -> None:
        told = row_for_senders(row(f"{DENIED}: {secret}", f"mx at {secret}: denied, {secret}"))
        self.assertEqual(told["last-code"], DENIED)
        self.assertEqual(told["attempts"], [])
        self.assertNotIn(secret, str(told))

    def test_dns(self) -> None:
        """DNS errors are repeated, except those of denied places."""
        told = row_for_senders(row("dns.servfail: no", "q: SERVFAIL", "m at 10.0.0.1: denied, it"))
        self.assertEqual(told["last-error"], "dns.servfail: no")
        self.assertEqual(told["attempts"], ["q: SERVFAIL"])

    def test_peer(self) -> None:
        """The words of a host that has proved who it is, and no others."""
        lines = ("10.0.0.1:1: connect.refused: x", "[::1]:1: tls.name: y", "mx:1: link.ended: z")
        told = row_for_senders(row("link.ended: z", *lines))
        self.assertEqual(told["last-error"], "link.ended: z")
        self.assertEqual([line.partition(": ")[0] for line in told["attempts"]], [HOP, "mx:1"])
        self.assertEqual(row_for_senders(row("link.ended: z", lines[2]))["attempts"], [lines[2]])
        self.assertEqual(error_for_senders("", HOP), "")
