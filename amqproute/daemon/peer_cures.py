# SPDX-License-Identifier: Apache-2.0
"""Remedies for what a test of a connection to a peer finds, in the words of an operator."""

from __future__ import annotations

from typing import Final

from amqproute.daemon.peer_test import OK, PeerTest, PeerTestStep
from amqproute.next_steps import next_step_for
from amqproute.values import NO_CREDIT

__all__ = ["CURES", "cure_of", "remedy_of"]

CURES: Final = {
    "route.local": "name a partner's domain; for our own nodes: amqproute explain ADDRESS",
    "connect.refused": "nobody listens at that port: is the partner's broker running, and is the "
    "port in its SRV record right? (amqproute dns print, on its side)",
    "connect.timeout": "a firewall swallows it, ours or theirs: have TCP to that port let through; "
    "or the addresses in the DNS are old",
    "connect.unreachable": "there is no route to that host; check addresses and network",
    "tls.name": "two legal cures: a certificate with the wanted name as DNS or SRV name "
    "(amqproute certs issue), or DNSSEC for the zone with a TLSA record of the key (amqproute dns "
    "print); never less verification",
    "tls.expired": "whose certificate it is has to renew it; then: systemctl reload amqproute",
    "tls.not-yet-valid": "compare the clocks of both machines (chronyc tracking, timedatectl); if "
    "they agree, the certificate was made for later",
    "tls.untrusted": "the partner sends its whole chain (tls.certificate holds certificate and "
    "intermediates), and we trust its authority: add it to tls.trust",
    "tls.plain-text": "that port speaks no TLS: the SRV record should be _amqp._tcp (upgrade), or "
    "name the port with TLS",
    "tls.handshake": "look at what the partner saw: amqproute peer probes, on its side; a port "
    "that speaks no TLS at once belongs into an SRV record _amqp._tcp (upgrade)",
    "amqp:connection:framing-error": "that port does not speak AMQP as we begin it: an SRV record "
    "_amqps._tcp is for a port with TLS from the first octet, _amqp._tcp for one that upgrades",
    "dane.mismatch": "the TLSA record is not of the key in use: the partner publishes the new one "
    "(amqproute dns print --next, before it changes keys) or goes back to the old key",
    "sasl.refused": "the partner's endpoint has to offer EXTERNAL under mechanisms, with "
    "client-certificate: optional or required",
    "amqp:unauthorized-access": "the partner allows it with a rule under access: "
    '{allow: [transfer], who: "WHO", node: "NODE"}',
    "amqp:resource-limit-exceeded": "a limit of the partner is reached; it consumes from that "
    "queue, or raises the limit",
    NO_CREDIT: "the partner takes no messages at present; there: amqproute status. What waits here "
    "goes by itself when it gives credit",
    "amqp:not-found": "there is no such node at the partner, or it takes no transfers",
    "amqp:link:message-size-exceeded": "send smaller messages, or the partner raises "
    "limits.max-message-size",
    "peer.no-probe": "nothing has to be done: the way is good up to there",
    "peer.lost": "the partner knows why: amqproute peer probes, or its log, there; look for this "
    "time and our address. Usual reasons: our authority is not in its tls.trust, our certificate "
    "names another domain or has expired, or the DNS of our domain cannot be looked up from there",
    "tls.file": "tls.certificate and tls.private-key name the files, which the daemon's user can "
    "read; amqproute certs issue makes them for trying out",
    "peer.timeout": "the partner accepts connections and does not answer; see its log",
}
"""Remedies by the code of a step."""


def remedy_of(step: PeerTestStep, walk: PeerTest) -> str | None:
    """Return the remedy for a step, with the names of both sides; None if there is none."""
    cure = None if step.code == OK else CURES.get(step.code)
    if cure is None:
        return None
    who = walk.seen_as or f"peer:{next(iter(walk.config.domains), 'OUR.DOMAIN')}"
    return cure.replace("WHO", who).replace("NODE", walk.address.node or "*")


def cure_of(step: PeerTestStep, walk: PeerTest) -> str | None:
    """Return the remedy for a step, be it only the usual one for its code; None if it is good."""
    if step.code == OK:
        return None
    return remedy_of(step, walk) or next_step_for(step.code)
