# SPDX-License-Identifier: Apache-2.0
"""Relaying messages to other organizations.

How it works
============

Every next hop has a `destination.Destination`, and every destination is the only consumer of a
durable queue named ``amqp$out/<hop>``. So the backlog of a dead partner is a queue like any other:
same recovery, same paging, same counters. The destination's window is its capacity as a consumer;
without a connection its capacity is zero and the messages wait in the queue (credit is the only
brake).

    idle --entries--> connecting --attached--> open --nothing to do--> idle
                        |    ^                   |
                     failed  +----- time --------+ lost
                        v    |
                       waiting (back-off, persisted)          refused (no such domain)

`connect_agent.ConnectAgent` opens one connection: candidates in the order of the DNS, TLS with
proof of the name, SASL EXTERNAL, open, attach to ``amqp$transfer``. `peer_session.PeerSession` then
uses the engine: it sends entries and reports the peer's outcomes, one batch and one commit per
read.

Modules and their decisions about a destination:

===================  ===============================================================================
`lifecycle`          its next step: data and decisions, without clock, queue or connection;
                     `destination` takes the steps
`send_window`        number of messages without an outcome; slow start, shrinking, death
`send_budget`        its turn among the others, octets in flight, the rate an operator allows
`connect_scheduler`  when it may start to connect: a rate over all destinations
`connect_attempt`    one attempt at a time
`backoff`            failures and the next attempt, persisted; log lines about them
`outcome_processor`  outcomes of its entries, the commits, the floor
`session_monitor`    an open connection: idle, stuck, or not at the right place any more
`poison_detector`    the message that makes the peer end connections, once others have passed
`holds`              operators' holds; objects, which outlive messages and restarts
`diagnosis`          for operators: the reason why a message waits
`routing_decision`   the result of DNS and level; the same for the daemon and for `explain`
`destination_quota`  number of destinations with messages of one sender
===================  ===============================================================================

New domains are looked up at a bounded rate, each sender in its turn (`lookup_scheduler`).

One table, `failure_table` (``docs/failures.md``), decides what a failure means; `failure_verdict`
consults it: whether it concerns the message, the link, the host, or the destination, and what
happens then. `retry_schedule` decides when to try again, or an authenticated peer does, within the
same bounds; `failure_errors` chooses the code with which a message is given up; `error_disclosure`
decides what senders learn of it: nothing about hosts behind our firewall.

Order
=====

One link for each hop, so messages go in the order of their priority and arrival. Only very large
ones have a link and a session of their own (`large_message_link`), part by part, and others pass
them meanwhile: a gibibyte must not delay the small ones. Messages in doubt when a connection was
lost go first on the next one, in their old place. Two kinds of messages let others pass while they
wait: those that the peer has released, and those that `poison_detector` has set aside because the
connection ended while they were alone in flight.

Waking
======

A waiting destination is tried at once when its peer connects to us: that proves that it is up. The
DNS is asked again, and an attempt that hangs is aborted; if the peer cannot be reached even so, the
back-off stays what it was. A destination whose DNS answer has expired is looked up again while its
connection is open; if the connection leads to none of the places named, it is drained and replaced.
Exactly once
============

The delivery-tag is the entry's id, and a link property names the store that assigned it. An
amqproute peer keeps a receipt for each id in the same commit as the message, so whatever is sent
again after a broken connection or a crash is answered `accepted` and not stored twice. It may
forget a receipt once we promise never to send that id again: the *floor*, the lowest id whose
removal from our store is not yet on the disk.
Other peers are asked to keep unsettled state for a while when a connection is lost, and get the
list of deliveries in doubt when the link is re-established (part 2 §2.6.13). Messages for which the
peer has an outcome are not sent again; those it does not know are, so they may be duplicated. A
peer that ends the link or session because of the list (RabbitMQ 3) does not get it again.
Why so
======

* A message leaves the relay queue only after the peer's `accepted` has arrived; after a crash
  before our commit it is sent again, which the receipt absorbs.
* Back-off belongs to the destination and is persisted: a restart does not try every dead peer at
  once. A single rejected message never slows a destination down.
* A released message waits alone and lets others pass; only when as many wait as the window is
  wide does the destination as a whole back off, so memory stays bounded.
* No backlog delays other destinations: each destination yields the reactor after a few milliseconds
  of sending, and little of a dead one's backlog is in memory.
* A destination is created by its first message, never by a query or a link, and removed a second
  after its last message unless it is connected: names cost a stranger nothing. A commit behind
  theirs confirms that its messages have left, since a failed commit would bring them back.
* Destinations unknown to the DNS share a rate of attempts (`relay.UNFOUND_PER_SECOND`): thousands
  of them must not keep a processor busy to learn that nothing has changed.
* A peer that connects to us all the time and cannot be reached itself, perhaps because of a
  firewall, is neither tried at each of its calls nor punished for them.

Limits: window and rate apply to a hop, not to a host that many domains share. The window is
forgotten with the destination, a minute after its last message. A candidate is left only when it is
lost or the DNS drops it; the return of a better one is noticed with the next connection.
"""

__all__: list[str] = []
