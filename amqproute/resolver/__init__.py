# SPDX-License-Identifier: Apache-2.0
"""The resolver: from the domain of an address to the places where its broker may be reached.

Theory of operation
===================

``_amqps._tcp.<domain>`` and ``_amqp._tcp.<domain>`` are asked for at the same time. Targets of the
first (TLS from the first octet) come before targets of the second (TLS by the AMQP TLS header);
within each, RFC 2782 decides. Only if neither has records, the addresses of the domain itself are
used, port 5671 with TLS at once, which is the intranet form ``queue@host``. Targets' addresses come
from the answer's own additional section where they belong to the answer's domain, and are asked for
otherwise; IPv6 and IPv4 take turns.

What proves something and what does not is kept apart all the way (`answer.DnsOutcome` against
`answer.UnusableAnswer`): a name server in trouble never makes a peer look as if it had gone.

=============================================  ==========================  =====================
the DNS says                                   code                        what it means
=============================================  ==========================  =====================
SRV records with reachable targets             --                          candidates
no SRV at all, the domain has addresses        --                          one candidate, :5671
both SRV absent and NXDOMAIN for the domain    ``dns.nxdomain``            permanent
target ``.`` and no other SRV records          ``dns.no-service``          permanent
neither SRV nor target has an address          ``dns.no-address``          permanent
all its places are such as are not dialled     ``dns.denied-target``       permanent
the domain is no domain, or an IP address      ``dns.bad-name``            permanent
SERVFAIL                                       ``dns.servfail``            temporary
no answer in time                              ``dns.timeout``             temporary
REFUSED, or a referral                         ``dns.refused``             temporary
name server not listening, no route to it      ``dns.unreachable``         temporary
nonsense                                       ``dns.malformed``           temporary
aliases in a circle or too many of them        ``dns.loop``                temporary
no DNSSEC though DNSSEC is required            ``dns.insecure``            temporary
that, as the name servers do not pass it on    ``dns.not-dnssec-capable``  temporary
an answer that fails validation                ``dns.bogus``               temporary
the preferred target is this broker            ``dns.loop-to-self``        temporary
thousands of questions under way               ``dns.busy``                temporary
=============================================  ==========================  =====================

Which places are dialled is decided in `amqproute.dial_policy`, here for every address that an
answer brings, and once more by the connector when it connects: what `explain` shows is what is
done, and what a name comes to mean in between does not matter. A denied address is left out, and so
is a target with a denied port; the trail says why, and what the operator can write about it. A
broker of ours that stands in the list ends it (``dns.loop-to-self``), dialled or not. Who only
wants to know what a domain publishes, as to check the certificate of a peer that has called,
resolves it with ``to_dial=False``.

DNSSEC
------
An answer is *secure* when it is validated: in this process from trust anchors (`dnssec`,
`nsec_denial`, `anchors`), or by a name server that the configuration trusts and that sets the AD
bit; those on loopback are trusted without being named. The state travels with the answer: through
every alias, from SRV to target (`Candidate.secure`), from the target's addresses to the TLSA
records (`Candidate.tlsa`), which are asked for only where all of that is secure (RFC 7672 §2.2, RFC
7673 §3). TLSA is in one of four states: *insecure*, *present*, *absent*, *failed*; with "present
but not usable", which `amqproute.net.peer_trust` decides, they are the five of RFC 7672 §2.2. What
fails validation is ``dns.bogus``: it keeps messages waiting, it is never answered from stale
memory, and nothing goes around it. `dnssec_probe` tells domains without DNSSEC from name servers
without.

Where two services or two address families disagree:

* A target ``.`` for one service and records for the other: the records are used. With records for
  neither, ``.`` is the zone's last word and the domain's own addresses are not tried.
* One service fails and the other has records: the records are used. TLS and the peer's name are
  demanded of both alike, so that a forced failure gains an attacker nothing. Not so if it fails
  validation: then the domain waits.
* One service fails and the other has none, or is ``.``: temporary. The same for addresses: a
  failing look-up makes "no address" temporary.
* A conclusion that rests on a stale answer is temporary, whatever its code: what was true
  yesterday may keep mail waiting but may not return it.

Aliases (CNAME) are followed at SRV owner names, at targets (which RFC 2782 forbids, and real zones
do) and at the domain; the name to connect to and to verify stays the one that was asked for.

The modules: `srv_order` (RFC 2782, pure), `answer` (what a message says, pure), `dns_cache` (time
to live, staleness), `nameservers` (whom to ask), `dns_client` (asking), `dnssec` with `nsec_denial`
and `anchors` (validation), `dnssec_probe` (who can do DNSSEC), `srv` (the table above), and `zone`,
a small authoritative server for the demonstration and the tests.

Why so
======

* *dnspython's messages on Twisted's sockets*, and not `twisted.names`: dnspython carries the AD
  bit, EDNS and alias chains, and treats hostile input with care. Its own resolvers block or want
  asyncio. A thread for each question would work and be bounded worse.
* *Answers are cached, not resolutions*: each resolution draws its own order by weight, and a
  target's address may change at its own pace.
* *Stale answers instead of none* (RFC 8767), as Synapse does: peers move seldom, name servers fail
  often. The window is a setting.
* *A failed look-up is a value* (`dns_cache.KnownFailure`) until it is told to its asker: exceptions
  hold the frames they come through, and strangers choose how many look-ups fail.

Limits
======

``/etc/hosts`` is not read and search lists are not applied: an address means the same everywhere;
a static route is the way to override DNS. Trust anchors are not renewed by themselves. One answer
may hold some
hundred targets; `srv.ResolverLimits` bounds how many are looked up, and the others are named in
the attempts.
"""

from amqproute.resolver.anchors import read_anchors
from amqproute.resolver.answer import DnsAnswer, DnsOutcome, DnsQuestion
from amqproute.resolver.dns_cache import CacheLimits, DnsCache
from amqproute.resolver.dns_client import ClientLimits, DnsClient
from amqproute.resolver.dnssec import DnssecValidator
from amqproute.resolver.dnssec_probe import DnssecProbe
from amqproute.resolver.nameservers import Nameserver, parse_nameserver, read_resolv_conf
from amqproute.resolver.srv import DnssecUse, ResolverLimits, SrvResolver

__all__ = [
    "CacheLimits",
    "ClientLimits",
    "DnsAnswer",
    "DnsCache",
    "DnsClient",
    "DnsOutcome",
    "DnsQuestion",
    "DnssecProbe",
    "DnssecUse",
    "DnssecValidator",
    "Nameserver",
    "ResolverLimits",
    "SrvResolver",
    "parse_nameserver",
    "read_anchors",
    "read_resolv_conf",
]
