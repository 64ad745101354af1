# SPDX-License-Identifier: Apache-2.0
"""The ways out: messages for other organizations.

How it works
============

Every next hop has a `destination.Destination`, and every destination is the one consumer of a
durable queue named ``amqp$out/<hop>``. So the backlog of a dead partner is a queue like any other:
same recovery, same paging, same figures. The destination's window is its capacity as a consumer;
while there is no connection its capacity is zero and the queue simply waits (credit is the only
brake).

    idle --entries--> connecting --attached--> open --nothing to do--> idle
                        |    ^                   |
                     failed  +----- time --------+ lost
                        v    |
                       waiting (back-off, persisted)          refused (no such domain)

`connect_agent.ConnectAgent` makes one connection: candidates in the order of the DNS, TLS with the
name proved, SASL EXTERNAL, open, attach to ``amqp$transfer``. `peer_session.PeerSession` is what
stands on the engine then: it sends entries and brings the peer's outcomes back, per read one batch
and one commit.

Who decides what about a destination:

===================  ===============================================================================
`lifecycle`          what it does next: data and decisions, without clock, queue or connection;
                     `destination` takes the steps
`send_window`        how many messages may be without an outcome; slow start, shrinking, death
`send_budget`        its turn among the others, octets in flight, the rate an operator allows
`connect_scheduler`  when it may begin to connect: so many a second, over all destinations
`connect_attempt`    one attempt at a time
`backoff`            failures and the next attempt, persisted; what the log is told of them
`outcome_processor`  the fate of its entries, the commits, the floor
`session_monitor`    an open connection: unused, stuck, or not the right place any more
`poison_detector`    which message makes the peer end connections, once others are seen to pass
`holds`              what operators let not go out; objects, which outlive messages and restarts
`diagnosis`          for operators: which of all these a message waits for
`routing_decision`   what the DNS and the level come to; the same for the daemon and for `explain`
`destination_quota`  how many destinations a sender may have messages waiting for
===================  ===============================================================================

Domains that nobody has written to yet are looked up at a pace, each sender in its turn
(`lookup_scheduler`).

What a failure means is decided in one table, `failure_table` (``docs/failures.md``), which
`failure_verdict` looks things up in: whether it is about the message, the link, the host, or the
destination, and what happens then. `retry_schedule` says when to try again, or a peer that has
proved who it is does, within the same bounds; `failure_errors` with which code a message is given
up; `error_disclosure` what of it all senders are told: not what lies behind our firewall.

Order
=====

One link for each hop, so messages go in the order of their priority and arrival. Only very large
ones have a link and a session of their own (`large_message_link`), a part at a time, and are passed
by others meanwhile: a gibibyte must not keep the small ones waiting. What was in doubt when a
connection was lost goes first on the next one, in its old place. Two kinds of message are passed by
others while they wait: what the peer gave back (*released*), and what `poison_detector` has set
aside because the connection ended while it was alone in flight.

Waking
======

A destination that waits is tried at once when its peer calls in: that is proof that it is up. The
DNS is asked anew, an attempt that hangs is given up for it, and if the peer cannot be reached
nevertheless the back-off stays what it was. A destination whose DNS answer has run out is looked
up again while its connection stands; if the connection leads to none of the places named, it is
drained and made anew.

Once and only once
==================

The delivery-tag is the entry's id, and the link says which store numbered it. A peer that is an
amqproute keeps a receipt for each id in the same commit as the message, so whatever is sent again
after a broken connection or a crash is answered `accepted` and not kept twice. It may forget a
receipt once we say that we shall never send that id again: the *floor*, the lowest id whose
removal from our store is not yet on the disk.

A peer of another make is asked to keep what is unsettled for a while when a connection is lost,
and is told which deliveries are in doubt when the link is made again (part 2 §2.6.13). What it
has an outcome for is not sent again; what it says nothing about is, so it may be there twice. A
peer that ends the link or session for being told (RabbitMQ 3) is not told again.

Why so
======

* A message leaves the relay queue only when the peer's `accepted` is here; a crash before our
  commit sends it again, which the receipt absorbs.
* Back-off belongs to the destination and is persisted: a restart does not hit every dead peer at
  once. A single rejected message never slows a destination down.
* A released message waits alone and lets others pass; only when as many wait as the window is
  wide does the destination as a whole back off, so memory stays bounded.
* Nobody's backlog delays anybody else: each destination gives the reactor back after a few
  milliseconds of sending, and little of a dead one's backlog stays in memory.
* A destination is made by its first message, never by a question or a link, and goes a second after
  its last one where there is no connection: names cost a stranger nothing. That its messages have
  left is made sure of by a commit behind theirs, for a commit that fails brings them back.
* Those that the DNS has never known share so many attempts a second (`relay.UNFOUND_PER_SECOND`):
  thousands of them must not keep a processor busy to learn that nothing has changed.
* A peer that calls us all the time and cannot be called, perhaps for a firewall, is neither hit
  by each of its calls nor punished for them.

Limits: window and rate hold for a hop, not for a host that many domains share. The window is
forgotten with the destination, a minute after its last message. A candidate is left only when it
is lost or the DNS drops it; that a better one has come back is noticed with the next connection.
"""

__all__: list[str] = []
