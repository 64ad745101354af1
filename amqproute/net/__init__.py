# SPDX-License-Identifier: Apache-2.0
"""The only rooms with transports: sockets, TLS, time, and the pump between them and the engines.

Theory of operation
===================
An engine (`amqproute.wire.engine`) knows bytes and no socket. Here is what knows sockets::

    listener   accepts, by accept_policy  ----+
                                              +--> pump.EngineProtocol --> engine + its user
    connector  addresses in order, TLS    ----+

    accept_policy         who gets a place, whose is taken back for it (pure)
    offered_protocols     which engine a connection gets, by its first octets
    proxy_protocol        what a load balancer says of the client behind it (pure)
    tls                   contexts, verification, reload
    tls_records           the TLS layer under the pump
    direct_write          what is written goes to the socket at once
    connection_scheduler  whose input is acted on when: the processor's time, shared out
    inbound_trust         who a connecting peer is: DNS questions after its handshake
    peer_trust            what a peer has to prove, and whether it has: the one decision (pure)
    dane                  TLSA records against certificates (pure)
    certificate_identity  which names a certificate proves (pure)
    revocation            lists of certificates that are not valid any more
    certificate_reload    files that change, connections that outlive a certificate
    authority             certificates for trying out, tests and closed groups

`listener.Listener` and `connector.Connector` do not know what they carry. Both are given a `Make`:
a function from `pump.TransportFacts` (address, TLS version, verified certificate and the domains it
proves, user id of a unix socket) to an engine and the user that stands on it. It is called when
the facts are settled, which with implicit TLS is after the handshake: a peer that fails to prove
itself costs no engine.

Security
========
What a host has to prove follows from the peer's level and from what the DNS says of the host
(`peer_trust`, which has the table); it is verified inside the handshake, and a wrong peer gets a
TLS alert and none of our octets. For a peer that connects, what the DNS has to say is asked for
between handshake and first octet (`inbound_trust`). What was reached stands in
`pump.TransportFacts.level`. With an upgrade (part 5 §5.2) the only octets in the clear are the two
protocol headers; what a peer put behind its header is fed to TLS, where anything but a handshake
ends the connection. Why a handshake failed is said in words by `handshake_diagnosis`, from the
alert and from what our side knows. Failures have codes: ``tls.name``, ``tls.expired``,
``tls.not-yet-valid``, ``tls.untrusted``, ``tls.revoked``, ``tls.pin``, ``tls.no-certificate``,
``tls.plain-text``, ``tls.handshake``, ``dane.mismatch``, ``dane.chain``, ``dane.absent``,
``dane.unusable``, those of the DNS where it stands in the way, and of TCP ``connect.refused``,
``connect.timeout``, ``connect.unreachable``, ``connect.name``.

Back pressure
=============
Output: when the transport holds more than 64 KiB (1 MiB while reads are large) the pump's
``paused`` is True and its user has been told; users start nothing new until ``writable``. What is
caused by input meanwhile is bounded by not reading the peer any more past
`pump.PumpLimits.output_bytes`, and a peer that has read nothing for `pump.PumpLimits.stall_seconds`
is dropped. That last rule also ends the dead embrace of two sides which both wait for the other to
read. Input: one read is 1 MiB at most and is worked off before the next, in slices and in turn with
other connections (`connection_scheduler`).

Limits
======
=========================  =========  =====================================================
limit                      default    at the limit
=========================  =========  =====================================================
connections of a listener  1,000      a mute one makes room, or the new one is closed at once;
                                      both counted, the log gets a summary (`accept_policy`)
connections in all         10,000     likewise
mute, of an address        100        likewise
mute, of a network         300        likewise
PROXY header               10 s       dropped
TLS handshakes             one ms     of a turn, with answers of name servers and slices of input
TLS handshake              10 s       dropped; the AMQP handshake's deadline is the engine's
work on input              4 ms       the rest waits for its turn, the peer is not read
output behind a full pipe  1 MiB      the peer is not read
nothing read by the peer   60 s       dropped
close                      5 s        dropped
TCP connection             10 s       the next address
all addresses of a host    30 s       `ConnectError` with every attempt
=========================  =========  =====================================================

Why so
======
*Not Twisted's* ``startTLS`` *and* ``CertificateOptions``: the pump puts the TLS layer on any
transport itself, for implicit TLS and upgrades alike. That gives one code path, one engine call for
each read instead of one for each record, and verification that knows SRV-IDs and says why.

*One write for each turn*: a commit settles deliveries of many links at once. Each asks for a flush,
one is done.

*A race of addresses* (RFC 8305) decides on TCP alone; a failure of TLS gives the remaining
addresses their turn instead of racing handshakes, which cost the peer more than they save us.
"""

__all__: list[str] = []
