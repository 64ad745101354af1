# SPDX-License-Identifier: Apache-2.0
"""The commands, a module for each concern, and the table of them all.

`amqproute.cli.main` lists the commands by the table, without importing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "CommandEntry"]


class CommandEntry(NamedTuple):
    """The place and the summary of a command.

    Attributes:
        where: ``module:attribute`` of its `click.Command`.
        summary: the first sentence of its help, for the list of the commands.
    """

    where: str
    summary: str


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "batch": CommandEntry(
        "amqproute.cli.commands.batch:batch",
        "Carry out the commands in FILE, or on standard input: all of them, or none.",
    ),
    "bench": CommandEntry(
        "amqproute.tools.bench:bench", "Measure the throughput of this program on this machine."
    ),
    "certs": CommandEntry(
        "amqproute.cli.commands.certs:certs",
        "A certificate authority and certificates for tests.",
    ),
    "check": CommandEntry(
        "amqproute.cli.commands.check:check",
        "Check the configuration and the files it names, without starting anything.",
    ),
    "clock": CommandEntry(
        "amqproute.cli.commands.clock:clock",
        "The clock by which messages age, and jumps of the wall clock.",
    ),
    "config": CommandEntry(
        "amqproute.cli.commands.config:config",
        "The configuration: the settings in force, and where they come from.",
    ),
    "connection": CommandEntry(
        "amqproute.cli.commands.connection_link:connection",
        "Connections of clients and peers to the running daemon.",
    ),
    "contract": CommandEntry(
        "amqproute.cli.commands.contract:contract",
        "Contracts of users and peers: limits, use, and time at a limit.",
    ),
    "definitions": CommandEntry(
        "amqproute.cli.commands.definitions:definitions",
        "Exchanges, queues, bindings and policies from and to RabbitMQ's exported definitions.",
    ),
    "delete": CommandEntry(
        "amqproute.cli.commands.relay_queue:delete",
        "Delete messages on their way to other domains.",
    ),
    "demo": CommandEntry(
        "amqproute.tools.demo:demo",
        "Demonstrate two organizations that exchange messages, on this machine.",
    ),
    "dns": CommandEntry(
        "amqproute.cli.commands.resolve:dns",
        "DNS records of this broker's domains, and a name server for tests.",
    ),
    "doctor": CommandEntry(
        "amqproute.cli.commands.doctor:doctor",
        "Check everything, and say for each finding what to do.",
    ),
    "drain": CommandEntry(
        "amqproute.cli.commands.drain:drain",
        "Accept no new messages, deliver those that can be delivered, and report when done.",
    ),
    "exchange": CommandEntry(
        "amqproute.cli.commands.exchange:exchange",
        "Exchanges of the running daemon, and bindings from them.",
    ),
    "expire": CommandEntry(
        "amqproute.cli.commands.relay_queue:expire",
        "Expire messages now, with reports to their senders.",
    ),
    "explain": CommandEntry(
        "amqproute.cli.commands.resolve:explain",
        "Show how the daemon would handle a message for ADDRESS, and why.",
    ),
    "health": CommandEntry(
        "amqproute.cli.commands.health:health",
        "Run the health checks of the running daemon, or the one that is named.",
    ),
    "hold": CommandEntry(
        "amqproute.cli.commands.relay_queue:hold",
        "Hold messages, present and future ones, until they are released.",
    ),
    "holds": CommandEntry(
        "amqproute.cli.commands.relay_queue:holds",
        "List the holds, with time, maker and reason.",
    ),
    "journal": CommandEntry(
        "amqproute.cli.commands.journal:journal",
        "The audit journal: the history of every message.",
    ),
    "link": CommandEntry(
        "amqproute.cli.commands.connection_link:link",
        "Links of clients and peers, and bindings between nodes, at the running daemon.",
    ),
    "peer": CommandEntry(
        "amqproute.cli.commands.peer:peer",
        "Brokers of other organizations: their state, and tests of the connection.",
    ),
    "pipeline": CommandEntry(
        "amqproute.cli.commands.pipeline:pipeline",
        "Turn journals into tables, reports and proofs, on Apache Spark.",
    ),
    "policy": CommandEntry(
        "amqproute.cli.commands.policy:policy",
        "Policies of the running daemon over exchanges and queues.",
    ),
    "queue": CommandEntry(
        "amqproute.cli.commands.queue:queue",
        "Queues and topics of the running daemon.",
    ),
    "receive": CommandEntry(
        "amqproute.cli.commands.send_receive:receive",
        "Consume messages from NODE, or browse them, and print them.",
    ),
    "release": CommandEntry(
        "amqproute.cli.commands.relay_queue:release",
        "Release holds by their ids; the held messages are sent at once.",
    ),
    "requeue": CommandEntry(
        "amqproute.cli.commands.requeue:requeue",
        "Return dead letters on QUEUE to their addresses.",
    ),
    "reroute": CommandEntry(
        "amqproute.cli.commands.relay_queue:reroute",
        "Move messages whose routes have changed.",
    ),
    "resolve": CommandEntry(
        "amqproute.cli.commands.resolve:resolve",
        "Look a DOMAIN up in the DNS as the daemon would.",
    ),
    "retry": CommandEntry(
        "amqproute.cli.commands.relay_queue:retry",
        "Retry messages now, before their next scheduled attempt.",
    ),
    "send": CommandEntry(
        "amqproute.cli.commands.send_receive:send",
        "Publish messages to ADDRESS and wait for their outcomes.",
    ),
    "serve": CommandEntry(
        "amqproute.cli.commands.serve:serve",
        "Run the daemon in the foreground.",
    ),
    "status": CommandEntry(
        "amqproute.cli.commands.status:status",
        "Report the health of the running daemon.",
    ),
    "store": CommandEntry(
        "amqproute.cli.commands.store:store",
        "The store: backup, checks and repair.",
    ),
    "token": CommandEntry(
        "amqproute.cli.commands.token:token",
        "Access tokens of the HTTP API of the running daemon.",
    ),
    "transaction": CommandEntry(
        "amqproute.cli.commands.transaction:transaction",
        "Branches of distributed transactions at the running daemon.",
    ),
    "user": CommandEntry(
        "amqproute.cli.commands.user:user",
        "Users that log in with a password: salted keys in the file of `users.file`.",
    ),
    "why": CommandEntry(
        "amqproute.cli.commands.relay_queue:why",
        "Explain why a message has not been delivered, and which command would help.",
    ),
}
"""The commands by their names."""
