# SPDX-License-Identifier: Apache-2.0
"""The frontend of AMQP 1.0: an engine in the server role, joined to the nodes.

From the bottom up:

* `suspended_links`: state of the termini of links that are detached and not closed.
* `terminus_resolution`: from a source or target to a node, and the terms in force.
* `amqp10_context`: these, for all connections.
* `link_table`: the links of one connection, each with its `link_table.LinkEndpoint`; it ends them.
* `receiver_link`, with `large_message_receiver`; `sender_link`, with `lock_timeout` and
  `delivery_resumption`; `coordinator_link`: the endpoints.
* `link_attach`: the answer to an attach, at once or later.
* `connection_frontend`: one connection; `link_rows`: rows of its links, for operators.
"""

__all__: list[str] = []
