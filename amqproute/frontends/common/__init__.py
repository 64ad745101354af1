# SPDX-License-Identifier: Apache-2.0
"""Protocol-independent parts of frontends: no module here imports an engine or its types.

`client_connection.ClientConnection` is the base class of a frontend: the principal of a connection,
its quotas, its transactions and its back pressure. `client_connection.FrontendContext` is shared by
all connections of a daemon. Beneath them, from the bottom up:

=======================  =========================================================================
`frontend_limits`        bounds of one connection
`peer_error_log`         the faults of a peer, as they go into the log
`contract_enforcement`   the limits of a peer or user, over all of its connections
`endpoint_memory`        the memory of sessions and links, with a share for each party
`partial_deliveries`     unfinished deliveries, and their eviction
`arriving_draft`         very large messages on their way to the disk; `draft_share` their bounds
`waiting_deliveries`     deliveries that cannot be put yet, in order of arrival
`event_batch`            all changes of one read, in one commit of the store
`node_access`            address to node, with the access rules; nodes created on demand
`node_endpoint`          an end of a connection at a node, for daemon and operators
`publishing_endpoint`    a sender's end: its credit, its contract, its messages into a batch
`consuming_endpoint`     a receiver's end: its capacity, and the return of entries
=======================  =========================================================================

A frontend for another protocol is an engine (`amqproute.wire.engine`), a subclass of
`client_connection.ClientConnection` that turns the engine's events into verbs, and a subclass each
of `publishing_endpoint.PublishingEndpoint` and `consuming_endpoint.ConsumingEndpoint`; and a line
among the protocols of a listener (`amqproute.daemon.listeners.accepting`). A toy of this kind
stands in the tests.

A part that calls back declares what it calls as a `typing.Protocol` of its own.
"""

__all__: list[str] = []
