# SPDX-License-Identifier: Apache-2.0
"""The daemon: its assembly, and its interfaces to the operating system.

Theory of operation
    Every package below takes its clock, randomness, reactor and collaborators as arguments. This
    package alone chooses the concrete ones: from a checked configuration it builds one tree of
    Twisted services that start from the store upwards and stop in the opposite order, so that
    nothing is accepted before it can be kept and nothing promised is dropped at shutdown.

    `amqproute serve`, ``twistd -n amqproute`` and systemd run the same service; they differ only in
    who owns the process.

Modules `config_reload` applies a new configuration, wholly or not at all. The components that
follow it: `access_control` (users, rights), `own_certificates`, `message_routing` (transfer and
relay), `attached_links` (links kept to nodes, contracts and rights), `receipt_expiry` and
`journaling`. Parts built from the configuration: `node_assembly` (nodes and bindings),
`policy_assembly` (access rules, routing, relay terms), `peer_assembly` (finding and authenticating
peers), `listeners`, `management_assembly`, `reporting` (reports to senders), `disk_watch`.
`preflight` reports, before a start or to `amqproute check`, what would prevent one;
`container_identity` is our identity; `shutdown` waits for work in progress; `assembly` starts,
reloads and stops everything.

With the service manager (`amqproute.daemon.notify`)
    The daemon says ``READY=1`` when its listeners are open and the store has been recovered, and
    asks for more time for as long as that takes; ``RELOADING=1`` and again ``READY=1`` around a
    re-read of the configuration, ``STOPPING=1`` when it begins to drain. Its status is its
    identity, or a problem: no credit for publishers, a reload that was refused. While it runs the
    reactor pings the watchdog twice an interval. A reactor that no longer turns, or a store whose
    writer has died, sends no ping, and the manager restarts the daemon: every accepted message is
    on disk by then, so a restart is cheaper than a daemon that only seems to be alive. Without a
    service manager nothing is sent.

With the log (`amqproute.daemon.log_output`)
    One line of text for a person, one JSON object for a collector, a priority prefix for
    journald. The log covers the life of the daemon; the history of each message is in the journal
    (`amqproute.journal`). Credentials are masked and control characters escaped before anything is
    written: a peer chooses much of the text that ends up in a log. The number of lines about
    clients, strangers and other brokers is bounded for the log as a whole
    (`amqproute.daemon.log_bounds`); partners named by the operator have a share of their own.

Why so
    The notification protocol is one datagram to one socket. A dependency on a systemd library
    (which would need its headers at install) saves forty lines and costs every other platform.
"""

__all__: list[str] = []
