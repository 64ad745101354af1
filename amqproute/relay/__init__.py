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

`agent.Agent` makes one connection: candidates in the order of the DNS, TLS with the name proved,
SASL EXTERNAL, open, attach to ``amqp$transfer``. `peer.PeerSession` is what stands on the engine
then: it sends entries and brings the peer's outcomes back, per read one batch and one commit.

What a failure means is decided in one table, `verdict`: whether it is about the message, the
host, or the destination, and what happens then. `schedule` says when to try again. Both are pure.

Once and only once
==================

The delivery-tag is the entry's id, and the link says which store numbered it. A peer that is an
amqproute keeps a receipt for each id in the same commit as the message, so whatever is sent again
after a broken connection or a crash is answered `accepted` and not kept twice. It may forget a
receipt once we say that we shall never send that id again: the *floor*, the lowest id whose
removal from our store is not yet on the disk.

Why so
======

* A message leaves the relay queue only when the peer's `accepted` is here; a crash before our
  commit sends it again, which the receipt absorbs.
* Back-off belongs to the destination and is persisted: a restart does not hit every dead peer at
  once. A single rejected message never slows a destination down.
* A released message waits alone and lets others pass; only when as many wait as the window is
  wide does the destination as a whole back off, so memory stays bounded.
"""

__all__: list[str] = []
