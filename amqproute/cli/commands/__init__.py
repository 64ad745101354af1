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
    "bench": CommandEntry("amqproute.tools.bench:bench", "Measure this machine with this program."),
    "certs": CommandEntry(
        "amqproute.cli.commands.certs:certs",
        "A certificate authority and certificates, for trying out and testing.",
    ),
    "check": CommandEntry(
        "amqproute.cli.commands.check:check",
        "Check the configuration and the files it names, without starting anything.",
    ),
    "clock": CommandEntry(
        "amqproute.cli.commands.clock:clock",
        "The clock by which messages age: whether the wall clock has jumped.",
    ),
    "connection": CommandEntry(
        "amqproute.cli.commands.connection_link:connection",
        "Connections of clients and peers to the running daemon.",
    ),
    "contract": CommandEntry(
        "amqproute.cli.commands.contract:contract",
        "Contracts of users and peers: what each may, has used, and how long it is at a bound.",
    ),
    "delete": CommandEntry(
        "amqproute.cli.commands.relay_queue:delete",
        "Delete messages on their way to other domains.",
    ),
    "demo": CommandEntry(
        "amqproute.tools.demo:demo",
        "Send messages from one organization to another, on this machine, from nothing.",
    ),
    "dns": CommandEntry(
        "amqproute.cli.commands.resolve:dns",
        "DNS records of this broker's domains, and a name server for trying out.",
    ),
    "drain": CommandEntry(
        "amqproute.cli.commands.drain:drain",
        "Have the daemon take no new messages, finish what it has, and say when that is done.",
    ),
    "expire": CommandEntry(
        "amqproute.cli.commands.relay_queue:expire",
        "End the lives of messages: as if their time were over, with reports to their senders.",
    ),
    "explain": CommandEntry(
        "amqproute.cli.commands.resolve:explain",
        "Show what the daemon would do with a message for ADDRESS, and why.",
    ),
    "hold": CommandEntry(
        "amqproute.cli.commands.relay_queue:hold",
        "Let messages wait: those that are there and those that come later, until released.",
    ),
    "holds": CommandEntry(
        "amqproute.cli.commands.relay_queue:holds",
        "List what is held, since when, by whom and why.",
    ),
    "journal": CommandEntry(
        "amqproute.cli.commands.journal:journal",
        "The audit journal: what happened to every message.",
    ),
    "link": CommandEntry(
        "amqproute.cli.commands.connection_link:link",
        "Links of clients and peers, and bindings between nodes, at the running daemon.",
    ),
    "peer": CommandEntry(
        "amqproute.cli.commands.peer:peer",
        "Other organizations' brokers: what is known of them, and whether they can be reached.",
    ),
    "pipeline": CommandEntry(
        "amqproute.cli.commands.pipeline:pipeline",
        "Turn journals into tables, reports and proofs, on Apache Spark.",
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
        "End holds, by their ids; what waited for them goes out at once.",
    ),
    "requeue": CommandEntry(
        "amqproute.cli.commands.requeue:requeue",
        "Send dead letters on QUEUE back to where each was addressed.",
    ),
    "reroute": CommandEntry(
        "amqproute.cli.commands.relay_queue:reroute",
        "Move messages whose addresses lead elsewhere since the configuration was changed.",
    ),
    "resolve": CommandEntry(
        "amqproute.cli.commands.resolve:resolve",
        "Look a DOMAIN up in the DNS as the daemon would.",
    ),
    "retry": CommandEntry(
        "amqproute.cli.commands.relay_queue:retry",
        "Try to send messages now, instead of when their time would come.",
    ),
    "send": CommandEntry(
        "amqproute.cli.commands.send_receive:send",
        "Publish messages to ADDRESS and wait for their outcomes.",
    ),
    "serve": CommandEntry(
        "amqproute.cli.commands.serve:serve",
        "Run the daemon in the foreground until it is told to stop.",
    ),
    "status": CommandEntry(
        "amqproute.cli.commands.status:status",
        "Say whether all is well with the running daemon, and if not, with what.",
    ),
    "store": CommandEntry(
        "amqproute.cli.commands.store:store",
        "The store: backups of it, what is wrong with it, and the ways out.",
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
        "Say why a message has not gone yet, and which command would change that.",
    ),
}
"""The commands by their names."""
