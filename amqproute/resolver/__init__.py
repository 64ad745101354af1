# SPDX-License-Identifier: Apache-2.0
"""The resolver: from the domain of an address to the places where its broker can be reached.

Theory of operation
===================

``_amqps._tcp.<domain>`` and ``_amqp._tcp.<domain>`` are queried at the same time. Targets of the
first (TLS from the first octet) come before targets of the second (TLS by the AMQP TLS header);
within each, RFC 2782 gives the order. Only if neither has records, the addresses of the domain
itself are used, port 5671 with TLS at once, which is the intranet form ``queue@host``. Addresses of
targets are taken from the additional section of the answer if they are under the answer's domain,
and are queried otherwise; IPv6 and IPv4 alternate.

Proofs and failures are kept apart all the way (`answer.DnsOutcome` against
`answer.UnusableAnswer`): a failing name server never makes a peer look as if it did not exist.

=============================================  ==========================  =====================
result of the lookup                           code                        meaning
=============================================  ==========================  =====================
SRV records with reachable targets             --                          candidates
no SRV at all, the domain has addresses        --                          one candidate, :5671
both SRV absent and NXDOMAIN for the domain    ``dns.nxdomain``            permanent
target ``.`` and no other SRV records          ``dns.no-service``          permanent
neither SRV nor target has an address          ``dns.no-address``          permanent
all its places may not be dialled              ``dns.denied-target``       permanent
not a domain name, or an IP address            ``dns.bad-name``            permanent
SERVFAIL                                       ``dns.servfail``            temporary
no answer in time                              ``dns.timeout``             temporary
REFUSED, or a referral                         ``dns.refused``             temporary
name server not listening, no route to it      ``dns.unreachable``         temporary
malformed answer                               ``dns.malformed``           temporary
alias loop, or too many aliases                ``dns.loop``                temporary
not signed, but DNSSEC is required             ``dns.insecure``            temporary
the same: name servers do not pass DNSSEC      ``dns.not-dnssec-capable``  temporary
an answer that fails validation                ``dns.bogus``               temporary
the preferred target is this broker            ``dns.loop-to-self``        temporary
too many queries in progress                   ``dns.busy``                temporary
=============================================  ==========================  =====================

`amqproute.dial_policy` decides which places may be dialled, here for every address in an answer,
and again in the connector when it connects: `explain` shows what will happen, and a change of the
name in between makes no difference. A denied address is left out, and so is a target with a denied
port; the trail gives the reason and the setting that would allow it. If a target is this broker
itself, the list ends there (``dns.loop-to-self``), whether it may be dialled or not. Callers that
only need what a domain publishes, for example to check the certificate of a connecting peer,
resolve with ``to_dial=False``.

DNSSEC
------
An answer is *secure* when it is validated: in this process from trust anchors (`dnssec`,
`nsec_denial`, `anchors`), or by a name server that the configuration trusts and that sets the AD
bit; servers on loopback are trusted by default. The state travels with the answer: through every
alias, from SRV to target (`Candidate.secure`), from the target's addresses to the TLSA records
(`Candidate.tlsa`), which are queried only if all of that is secure (RFC 7672 §2.2, RFC 7673 §3).
TLSA is in one of four states: *insecure*, *present*, *absent*, *failed*; with "present but not
usable", decided by `amqproute.net.peer_trust`, they are the five of RFC 7672 §2.2. An answer that
fails validation is ``dns.bogus``: messages wait, the cache's stale answers are not used, and
nothing bypasses it. `dnssec_probe` distinguishes domains without DNSSEC from name servers without
it.

If the two services or the two address families disagree:

* A target ``.`` for one service and records for the other: the records are used. With records for
  neither, ``.`` is the zone's final answer and the domain's own addresses are not tried.
* One service fails and the other has records: the records are used. Both require TLS and the peer's
  name, so an attacker gains nothing by forcing a failure. Exception: if it fails validation, the
  domain waits.
* One service fails and the other has no records, or ``.``: temporary. The same for addresses: a
  failing lookup makes "no address" temporary.
* A conclusion from a stale answer is temporary, whatever its code: an outdated answer may delay
  messages, but must not return them.

Aliases (CNAME) are followed at SRV owner names, at targets (which RFC 2782 forbids, but real zones
have) and at the domain; the name to connect to and to verify remains the one in the query.

The modules: `srv_order` (RFC 2782, pure), `answer` (parsing, pure), `dns_cache` (time to live,
staleness), `nameservers` (which servers to query), `dns_client` (querying), `dnssec` with
`nsec_denial` and `anchors` (validation), `dnssec_probe` (DNSSEC capability of name servers), `srv`
(the table above), and `zone`, a small authoritative server for the demonstration and the tests.

Why so
======

* *dnspython's messages on Twisted's sockets*, not `twisted.names`: dnspython supports the AD bit,
  EDNS and alias chains, and is robust against hostile input. Its own resolvers block or need
  asyncio. A thread for each query would work, but would be harder to bound.
* *The cache holds answers, not resolutions*: each resolution draws its own order by weight, and
  addresses of targets expire at their own pace.
* *Stale answers instead of none* (RFC 8767), as Synapse does: peers seldom move, name servers often
  fail. The window is a setting.
* *A failed lookup is a value* (`dns_cache.KnownFailure`) until it is raised to the caller:
  exceptions hold the frames they pass through, and strangers decide how many lookups fail.

Limits
======

``/etc/hosts`` is not read and search lists are not applied: an address means the same everywhere; a
static route overrides DNS. Trust anchors are not renewed automatically. One answer may hold some
hundred targets; `srv.ResolverLimits` bounds how many are looked up, and the attempts list the
others.
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
