# SPDX-License-Identifier: Apache-2.0
"""Services: nodes that act on the messages sent to them instead of keeping them.

`transfer.TransferService` is ``amqp$transfer`` and the anonymous terminus: it reads the message's
``to``, asks the router, and puts the message on a local node or on the relay queue of the next hop.
`transfer.AliasTarget` is what ``x@y`` and ``@y`` resolve to: the transfer service with the domain
fixed when the link is made. `management_node.ManagementService` is ``$management``: it shows
entities (`management_rows`) and changes them; its operations, and the right that each requires, are
in `management_table`, from which the HTTP API and commands are made, too. `command_schema` is the
grammar of commands; `node_changes`, with `binding_entity` and `alias_entity`, carries them out,
keeps the result over restarts, and makes each batch all or nothing; `message_moves` moves messages
between nodes. `relay_commands` and `relay_messages` are the operations on relay queues: on a whole
queue, or on messages by id, domain or selector, in
small steps; `explain` says why a message waits. `dns_flush` drops cached DNS answers, for `explain`
and `peer test`. `health_rules` has the table of problems and the functions that find them; the
daemon collects the facts. `peer_probe.ProbeService` is ``amqp$probe``: it rehearses the delivery of
a peer's message and queues nothing. `xa_node.XaNode` is
``amqp$dtxCoordinator``, where the configuration asks for it.

To a frontend they are targets like any queue. A service makes all its decisions within the sender's
batch, so a message is either stored at its destination or refused with a condition.

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
it requires the same rights; a peer may also name its own domains and those it is trusted to relay
from. Without these rights the message is refused (T-26). Returned messages carry our origin, so the
body of a peer's message is returned only to its origin; a third organization gets a report
(`sender_reports`).

`provenance` checks that senders claim only proved facts: origin, user-id, return address.
`sender_reports` reports the fate of messages to their senders, `delay_reports` their delays;
`reply_paths` rewrites reply addresses so that they work from other organizations. `watermarks`
closes credit for all publishers when disk or memory run out.

Why so: the broker's own actions for a sender (a return, a report, an admitted reply) are decided
here and committed in the batch of their cause: neither exists without the other.
"""

__all__: list[str] = []
