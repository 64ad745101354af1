# SPDX-License-Identifier: Apache-2.0
"""The usual next step after a failure, by its code: a condition, or a code of ours."""

from __future__ import annotations

from typing import Final

from amqproute import conditions

__all__ = ["is_known", "next_step_for"]

_NEXT_STEPS: Final = {
    conditions.NOT_FOUND: "see what there is with: amqproute queue ls; make it with: amqproute "
    "queue create NAME, or under `nodes` in the configuration",
    conditions.UNAUTHORIZED_ACCESS: "add an access rule for this principal and node to the "
    "configuration and reload, or log in as another user with --url",
    conditions.NOT_ALLOWED: "this is not possible with this address; see what would become of it "
    "with: amqproute explain ADDRESS",
    conditions.RESOURCE_LIMIT_EXCEEDED: "a limit of the broker is reached; consume messages, or "
    "raise the limit in the configuration",
    conditions.RESOURCE_LOCKED: "others have it: wait until they have gone, or look only, with "
    "--browse; amqproute link ls shows who they are",
    conditions.RESOURCE_DELETED: "see what there is with: amqproute queue ls",
    conditions.NOT_IMPLEMENTED: "this broker does not offer it; leave the option out",
    conditions.PRECONDITION_FAILED: "correct the message and send it again",
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: "send a smaller message, or raise "
    "limits.max-message-size in the configuration",
    conditions.INTERNAL_ERROR: "see the log of the broker; try again later",
    conditions.CONNECTION_FORCED: "the broker is stopping or was told to close; try again later",
    conditions.LINK_DETACH_FORCED: "somebody closed the link at the broker; try again",
    conditions.INVALID_FIELD: "write an address as node or node@domain",
    "auth.mechanism": "give a URL with user and password, or add a mechanism to this endpoint's "
    "`mechanisms` in the configuration",
    "auth.busy": "too many log-ins wait at the broker; try again",
    "auth.refused": "check name and password in the URL; amqproute user ls shows who there is",
    "connect.refused": "is the daemon running, and is the URL one of its `listen` entries?",
    "connect.timeout": "is a firewall in between? try the URL from the daemon's own machine",
    "connect.unreachable": "is the daemon running, and may this user open its socket?",
    "connect.name": "check the host name in the URL",
    "dns.nxdomain": "check the spelling of the domain",
    "dns.no-service": "the domain says that it takes no AMQP; ask its operator",
    "dns.no-address": "ask the domain's operator to publish addresses for its hosts",
    "dns.denied-target": "allow the place by resolver.allow-targets or resolver.allow-ports, or "
    "name the domain under peers; see Security in the README",
    "dns.bad-name": "write a domain name, as in beta.example",
    "tls.untrusted": "name the right authorities with --trust or tls.trust",
    "tls.name": "use the host name that stands in the certificate",
    "tls.file": "check the path and who may read the file",
    "tls.handshake": "is this a port with TLS? amqps:// and amqp:// have ports of their own; the "
    "log of the broker may say more",
    "tls.exists": "nothing was changed",
    "tls.pin": "compare with the peer's operator, then list the key under peers.DOMAIN.pin",
    "tls.revoked": "the peer needs a new certificate",
    "tls.crl": "check the files under tls.crl",
    "dns.bogus": "the domain's DNSSEC is broken, or somebody tampers: ask its operator; look with "
    "delv DOMAIN SRV, and at this machine's clock",
    "dns.insecure": "sign the zone with DNSSEC, or lower resolver.dnssec or peers.DOMAIN.level",
    "dns.not-dnssec-capable": "use a validating resolver on this machine, or resolver.validate: "
    "self",
    "dns.loop-to-self": "add the domain to `domains`, or have its SRV records corrected",
    "dane.absent": "the peer publishes TLSA records (amqproute dns print), or lower the level",
    "dane.unusable": "the peer publishes records of usage 3 or 2, as 3 1 1",
}


def is_known(code: str) -> bool:
    """Return whether there is advice for just this code."""
    return code in _NEXT_STEPS


def next_step_for(code: str) -> str:
    """Return the usual remedy for a code."""
    known = _NEXT_STEPS.get(code)
    if known is None and code.startswith("dns."):
        return "the name servers fail; try again later, or check resolver.nameservers"
    if known is None and code.startswith("filter."):
        return "correct the filter where the words point to"
    return known or "see the log of the broker"
