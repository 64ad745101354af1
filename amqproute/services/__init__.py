# SPDX-License-Identifier: Apache-2.0
"""Nodes that do something: messages sent to them are acted on, not kept.

`transfer.TransferService` is ``amqp$transfer`` and the anonymous terminus: it reads the message's
``to``, asks the router, and puts the message on a local node or on the relay queue of the next hop.
`transfer.AliasTarget` is what ``x@y`` and ``@y`` resolve to: the transfer service with the domain
fixed when the link is made. `management_node.ManagementService` is ``$management``: it shows what
there is (`management_rows`) and has it changed; what it offers, and the right that each operation
takes, stand in `management_table` (`command_schema` is the grammar; `node_changes`,
with `binding_entity` and `alias_entity`, does it, keeps it over restarts, and makes each batch all
or nothing; `message_moves` takes messages from node to node). `relay_commands` and `relay_messages`
are what operators do to relay queues through it: as a whole, or to messages by id, domain or
selector, in parts that nobody else notices; `explain` says why one of them waits. `dns_flush` has
the daemon forget what the DNS has said, for `explain` and `peer test`. `health_rules` has the table
of what can be not well, and the functions that judge; the daemon collects the facts.
`peer_probe.ProbeService` is ``amqp$probe``: it rehearses a peer's message and queues nothing.
`xa_node.XaNode` is ``amqp$dtxCoordinator``, where the configuration asks for it.

To a frontend they are targets like any queue. Everything a service decides, it decides within
the sender's batch, so a message is either safe where it belongs or refused, with a condition.

What a *peer* (another organization's broker) may do differs from what a *client* may do:

=====================  ==============================  =======================================
message is for         from a client                   from a peer
=====================  ==============================  =======================================
a local node           `publish` on the node           `transfer` on the node
another domain         `publish` on the address        only domains in the peer's `relay-for`
a service              by attaching to it; `manage`    ``amqp$probe`` by attaching
a service, by ``to``   if `remote-services` names it, and with `manage` on it (T-32)
=====================  ==============================  =======================================

A return address (``x-opt-return-to``) asks this broker to send a message on somebody's behalf, so
it takes the same rights, and a peer may name its own domains besides, and those it is trusted to
relay from. Without them the message is refused (T-26). What goes back carries our origin, so a
peer's body goes back to where it comes from only; a third organization gets a report
(`sender_reports`).

`provenance` holds senders to what they have proved: origin, user-id, return address.
`sender_reports` tells senders what became of their messages, `delay_reports` when they wait;
`reply_paths` makes reply addresses lead back from other organizations. `watermarks` closes credit
for all publishers when disk or memory run out.

Why so: what a broker does on its own account for a sender - a return, a report, a reply let in -
is decided here and happens in the batch of its cause: there is never the one without the other.
"""

__all__: list[str] = []
