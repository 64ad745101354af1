# SPDX-License-Identifier: Apache-2.0
"""Transports: sockets, TLS, timing, and the pump between transports and engines.

Theory of operation
===================
An engine (`amqproute.wire.engine`) handles bytes, not sockets. This package handles sockets::

    listener   accepts, by accept_policy  ----+
                                              +--> pump.EngineProtocol --> engine + its user
    connector  addresses in order, TLS    ----+

    accept_policy         admission of connections, and which ones make room (pure)
    offered_protocols     choice of the engine by a connection's first octets
    listening_sockets     endpoints, and sockets that systemd has opened
    listening_service     the service that opens and closes them
    client_address        address or user id at the other end of a socket
    proxy_protocol        the client's address from a load balancer (pure)
    proxy_header_reader   connections from balancers, up to the end of that header
    tls                   contexts, verification, reload
    tls_records           the TLS layer under the pump
    direct_write          immediate writes to the socket
    connection_scheduler  fair shares of processor time for the input of connections
    inbound_trust         identification of connecting peers: DNS queries after the handshake
    peer_trust            what a peer must prove, and whether it has: the one decision (pure)
    dane                  TLSA records against certificates (pure)
    certificate_identity  names proved by a certificate (pure)
    revocation            certificate revocation lists
    certificate_reload    changed files, and connections that outlive a certificate
    authority             certificates for trials, tests and closed groups

`listener.Listener` and `connector.Connector` are independent of the protocol. Both are given a
`Make`: a function from `pump.TransportFacts` (address, TLS version, verified certificate and the
domains it proves, user id of a unix socket) to an engine and its user. It is called when the facts
are final, with implicit TLS after the handshake: a peer that fails to prove its identity costs no
engine.

Security
========
What a host must prove follows from the peer's level and from the host's DNS records (`peer_trust`,
which has the table); it is verified inside the handshake, and a wrong peer gets a TLS alert and
none of our octets. For a connecting peer, the DNS is queried between the handshake and the first
octet (`inbound_trust`). `pump.TransportFacts.level` holds the level reached. With an upgrade (part
5 §5.2) the only octets in the clear are the two protocol headers; octets that a peer sent after its
header are fed to TLS, where anything but a handshake ends the connection. `handshake_diagnosis`
explains a failed handshake from the alert and our own state. Failures have codes: ``tls.name``,
``tls.expired``, ``tls.not-yet-valid``, ``tls.untrusted``, ``tls.revoked``, ``tls.pin``,
``tls.no-certificate``, ``tls.plain-text``, ``tls.handshake``, ``dane.mismatch``, ``dane.chain``,
``dane.absent``, ``dane.unusable``, DNS codes, and for TCP ``connect.refused``, ``connect.timeout``,
``connect.unreachable``, ``connect.name``.

Back pressure
=============
Output: when the transport holds more than 64 KiB (1 MiB while reads are large) the pump's
``paused`` is True and its user has been notified; users start nothing new until ``writable``.
Output caused by input meanwhile is bounded by not reading from the peer beyond
`pump.PumpLimits.output_bytes`, and a peer that has read nothing for `pump.PumpLimits.stall_seconds`
is dropped. The latter also ends a deadlock of two sides that both wait for the other to read.
Input: one read is 1 MiB at most and is processed before the next, in slices and alternating with
other connections (`connection_scheduler`).

Limits
======
=========================  =========  =====================================================
limit                      default    at the limit
=========================  =========  =====================================================
connections of a listener  1,000      a mute one is closed, or the new one refused at once;
                                      both counted, the log gets a summary (`accept_policy`)
connections in all         10,000     likewise
mute, of an address        100        likewise
mute, of a network         300        likewise
PROXY header               10 s       dropped
TLS handshakes             one ms     of a turn, with answers of name servers and slices of input
TLS handshake              10 s       dropped; the AMQP handshake's deadline is the engine's
work on input              4 ms       the rest waits for its turn; no reading from the peer
output behind a full pipe  1 MiB      no reading from the peer
nothing read by the peer   60 s       dropped
close                      5 s        dropped
TCP connection             10 s       the next address
all addresses of a host    30 s       `ConnectError` with every attempt
=========================  =========  =====================================================

Why so
======
*Not Twisted's* ``startTLS`` *and* ``CertificateOptions``: the pump puts the TLS layer on any
transport itself, for implicit TLS and upgrades alike. The result is one code path, one engine call
for each read instead of one for each record, and verification that supports SRV-IDs and gives
reasons.

*One write per turn*: a commit settles deliveries of many links at once. Each of them requests a
flush; one is done.

*A race of addresses* (RFC 8305) is decided by TCP alone; after a TLS failure the remaining
addresses are tried in turn instead of racing handshakes, which would cost the peer more than they
save.
"""

__all__: list[str] = []
