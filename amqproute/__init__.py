# SPDX-License-Identifier: Apache-2.0
"""Store-and-forward messaging between organizations, over AMQP 1.0.

A client publishes to ``orders@beta.example`` at its own organization's broker. The broker stores
the message on disk and answers `accepted`; it locates beta's broker through DNS SRV, relays over a
mutually authenticated TLS link to the node ``amqp$transfer`` there, and forgets the message when
beta's broker has stored it in its queue ``orders``.

The layers
==========

Imports only go down, and packages of one layer do not know each other; a test holds it
(``tests/test_architecture.py``). Each package's docstring is its theory of operation::

    10 tools                                   demonstration, benchmark, synthetic journals
    9  daemon  cli                             assembly, process, commands
    8  dashboard                               pages for operators
    7  pipeline  http  metrics  tracing        journals as tables; what browsers and programs see;
                                               what is measured of everything below; traces
    6  frontends  relay  services              clients in, peers out, reserved nodes
    5  broker                                  nodes, entries, batches, receipts
    4  store journal resolver auth routing     capabilities, each replaceable
       net config filters translation client
    3  interfaces                              the seams, in one file
    2  message  content_class  entry  values   values exchanged between packages, and how records
       stored  body  stored_values             of the store encode them
       trace_context
    1  wire                                    engines: bytes in, events out; no sockets, no clock
    0  errors  conditions  outcomes  address   usable everywhere
       url  dial_policy  log_rate_limit  restore_detection  tracebacks  plurals  printable  jsontext
       turn_scheduler  bucket_counts  next_steps  durable_path  joined_calls

`broker` imports nothing of `wire`: outcomes, errors and the terms of nodes are its own values
(`outcomes`, `broker.node_options`), which each protocol translates at its edge. Messages stay the
octets of AMQP 1.0, behind `message`.

Only `amqproute.daemon.service` (and the command line) imports the reactor; clock, randomness,
resolver and connector are arguments everywhere else.

The path of a message
=====================

There are two movements, *publish* (message to node, one commit, one settlement back) and *deliver*
(entry to consumer with credit, one outcome back). A client's publish and a peer's transfer are the
same movement; a client's consumer and a remote organization are both consumers::

    client --bytes--> net.pump            EngineProtocol.dataReceived
                        |                 wire.amqp10: Connection.receive_data -> DeliveriesReceived
     alpha              v                 frontends.common.event_batch: a Batch for each read
                      frontends.amqp10.receiver_link   Message(payload), not decoded
                        v                 services.transfer: AliasTarget for "orders@beta.example"
                        |                 routing.table: Router.route -> NextHop("beta.example")
                        v                 relay: Relay.target(hop) -> queue "amqp$out/beta.example"
                      broker.queue        Queue.put: Entry, id; store transaction
                        v                 store.sqlite: group commit, one fsync for many batches
    client <--accepted--+                 one disposition for a run of deliveries (T-20)
                        v                 broker.queue: arrived; broker.dispatch
                      relay.destination   consumer of its queue; window = credit
                        v                 relay.connect_agent: resolver.srv, net.connector, TLS
                      relay.peer_session  PeerSession.send: trace added, bare message untouched
                        |
                       TLS                tag = entry id; the link names the store that gave it
                        v
     beta             net.pump, wire, frontends.amqp10.receiver_link
                      services.transfer   right to transfer, trail, receipt; -> Local("orders")
                      broker.queue, store: message and receipt in one commit
     alpha <--accepted--+
       relay.failure_verdict: settle; Queue.settle -> store dequeue; the floor lets beta forget
       receipts

Three rules keep this simple. *Route before store*: one durable write, and an address without a
route is refused to its sender at once. *Credit is the only brake*: link credit, session window, the
transport's buffer and a destination's window all reduce a consumer's capacity; nothing polls. *A
commit never fires inside the call that asked for it*, so deliver, settle and dispatch cannot
recurse; early delivery ahead of a commit counts as a dispatch of its own.

Why so: speed comes from work per batch: per read, per commit, per disposition range, per write.
Durability comes from one rule: everything answered is on disk. Both meet in
`broker.commit_batch.Batch`. Low latency comes from not waiting for two disks in turn: if nothing
waits before it, a message of a plain publisher is sent on while its commit is under way, and only
the answer waits (`broker.early_delivery`).
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
