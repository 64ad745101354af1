# SPDX-License-Identifier: Apache-2.0
"""Frontends of accepted connections: protocol engines in the server role, joined to the nodes.

How it works
============

One frontend stands on each accepted connection. It walks the events of one read in order and turns
them into verbs of the broker; it never touches the transport. `amqproute.frontends.common` has
what the frontend of every protocol needs, and imports no engine; beside it stands one package for
each protocol: `amqproute.frontends.amqp10`, and `amqproute.frontends.amqp09` for 0-9 and 0-9-1.

* All messages of one read go into *one* batch, that of the `common.event_batch.EventBatch`; when
  it is committed, their publishers have their answer.
* `common.client_connection.ClientConnection` is the base of a frontend: who is there, what that
  principal may take, back pressure. `FrontendContext` beside it is what all connections share.
* `common.node_access.NodeAccess` is the way from an address to a node, with the access rules. The
  answer may have to wait for the DNS (is there a domain beta.example?), with a deadline.
* `common.publishing_endpoint.PublishingEndpoint` and `common.consuming_endpoint.ConsumingEndpoint`
  are the two kinds of ends that a connection has at nodes: credit, quotas, and what goes back.
* `common.contract_enforcement.ActiveContract` is what one sender may ask, over all of its
  connections: less credit near its rates and its share of the store, and refusal where no credit
  helps.
* `common.partial_deliveries.PartialDeliveries` bounds what all connections hold of deliveries that
  have begun and not ended: who holds most gives way.

With AMQP 1.0:

* `connection_frontend.Frontend` is the frontend. An attach is answered by `link_attach.LinkAttach`;
  `terminus_resolution.TerminusResolver` says what is in force. `link_table.LinkTable` knows which
  links there are, each with a `link_table.LinkEndpoint`, and ends them.
* A link that is detached and not closed is suspended: what it leaves unsettled stays in
  `suspended_links.SuspendedLinks` until it comes back, or its time is over.
* `receiver_link.ReceiverLink` is a link that a client sends on. When a batch is committed, one
  disposition per run of delivery-ids says so.
* `sender_link.SenderLink` is a link that a client receives on, and an `IConsumer` of its source.
* `large_message_receiver.LargeMessageReceiver` is a very large message on its way in: in parts, and
  refused early if at all; `amqproute.broker.large_message_sender.LargeMessageSender` is one on its
  way out. In memory there is a part of it, never all.
* `coordinator_link.CoordinatorLink` is a link on which a client declares and discharges
  transactions. The other two put into a transaction what names one, instead of acting on it; see
  `amqproute.broker.local_transaction`.

Credit is the only brake. An inbound link's credit counts what is granted *and* what is not yet
committed, so a slow disk slows the senders down and nothing piles up in between. An outbound link
takes entries only while the peer's credit, the session window, the transport's buffer and
`FrontendLimits.unsettled` allow it.

A message that is refused is settled `rejected` with the condition; where the sender has settled
it already, or does not allow that outcome, the link is detached with the same error and the
delivery-tag in its info map, as the anonymous-terminus specification asks (T-25).
"""

__all__: list[str] = []
