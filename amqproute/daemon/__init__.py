# SPDX-License-Identifier: Apache-2.0
"""The assembled daemon, and how it stands in the operating system.

Theory of operation
    Everything below this package is given its clock, its randomness, its reactor and its
    collaborators. Here, and only here, the concrete ones are chosen: a checked configuration
    becomes one tree of Twisted services that start from the store upwards and stop in the
    opposite order, so that nothing is accepted before it can be kept and nothing that was
    promised is dropped on the way out.

    `amqproute serve`, ``twistd -n amqproute`` and systemd come in through the same
    `makeService`; what differs is only who owns the process.

Rooms
    `config_reload` puts a new configuration in force, wholly or not at all. The components that
    follow it: `access_control` (users, rights), `own_certificates`, `message_routing` (transfer and
    relay), `attached_links` (links kept to nodes, contracts and rights), `receipt_expiry` and
    `journaling`.
    `node_assembly` puts nodes and bindings of the configuration into the broker's words,
    `policy_assembly` who may do what and where things go, `peer_assembly` finds and believes peers,
    `listeners` listens, `management_assembly` and `reporting` are what operators and senders hear,
    `disk_watch` watches the disk, `preflight` says before a start, or to `amqproute check`, what
    would prevent one, `container_identity` is who we are, `shutdown` waits for what is under way;
    `assembly` starts it all, reloads it and stops it.

With the service manager (`amqproute.daemon.notify`)
    The daemon says ``READY=1`` when its listeners are open and the store has been recovered, and
    asks for more time for as long as that takes; ``RELOADING=1`` and again ``READY=1`` around a
    re-read of the configuration, ``STOPPING=1`` when it begins to drain. Its status is who it is,
    or what is not as it should be: no credit for publishers, a reload that was refused. While it
    runs the reactor pings the watchdog twice an interval. A reactor that no longer turns, or a
    store whose writer has died, sends no ping, and the manager restarts the daemon: every accepted
    message is on disk by then, so a restart is cheaper than a daemon that only seems to be alive.
    Without a manager all of it is silent.

With the log (`amqproute.daemon.log_output`)
    One line of text for a person, one JSON object for a collector, a priority prefix for
    journald. The log tells the life of the daemon; what happened to each message is in the
    journal (`amqproute.journal`). Credentials are masked and control characters escaped before
    anything is written: a peer chooses much of the text that ends up in a log. How many lines
    there are about a client, a stranger or another broker is bounded for the log as a whole
    (`amqproute.daemon.log_bounds`); partners that the operator has named have lines of their own.

Why so
    The notification protocol is one datagram to one socket. A dependency on a systemd library
    (which would need its headers at install) saves forty lines and costs every other platform.
"""

__all__: list[str] = []
