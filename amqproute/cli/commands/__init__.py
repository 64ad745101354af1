# SPDX-License-Identifier: Apache-2.0
"""The commands, a module for each concern, and the table of them all.

The table is what `amqproute.cli.main` knows of a command before somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Entry"]


class Entry(NamedTuple):
    """Where a command is, and what it is for.

    Attributes:
        where: ``module:attribute`` of its `click.Command`.
        summary: the first sentence of its help, for the list of the commands.
    """

    where: str
    summary: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "batch": Entry(
        "amqproute.cli.commands.batches:batch",
        "Carry out the commands in FILE, or on standard input: all of them, or none.",
    ),
    "bench": Entry("amqproute.cli.bench:bench", "Measure this machine with this program."),
    "certs": Entry(
        "amqproute.cli.commands.certificates:certs",
        "A certificate authority and certificates, for trying out and testing.",
    ),
    "check": Entry(
        "amqproute.cli.commands.checking:check",
        "Check the configuration and the files it names, without starting anything.",
    ),
    "clock": Entry(
        "amqproute.cli.commands.clocks:clock",
        "The clock by which messages age: whether the wall clock has jumped.",
    ),
    "connection": Entry(
        "amqproute.cli.commands.links:connection",
        "Connections of clients and peers to the running daemon.",
    ),
    "contract": Entry(
        "amqproute.cli.commands.contracts:contract",
        "Contracts of users and peers: what each may, has used, and how long it is at a bound.",
    ),
    "delete": Entry(
        "amqproute.cli.commands.relaying:delete",
        "Delete messages on their way to other domains.",
    ),
    "demo": Entry(
        "amqproute.cli.demo:demo",
        "Send messages from one organization to another, on this machine, from nothing.",
    ),
    "dns": Entry(
        "amqproute.cli.commands.lookup:dns",
        "DNS records of this broker's domains, and a name server for trying out.",
    ),
    "drain": Entry(
        "amqproute.cli.commands.draining:drain",
        "Have the daemon take no new messages, finish what it has, and say when that is done.",
    ),
    "expire": Entry(
        "amqproute.cli.commands.relaying:expire",
        "End the lives of messages: as if their time were over, with reports to their senders.",
    ),
    "explain": Entry(
        "amqproute.cli.commands.lookup:explain",
        "Show what the daemon would do with a message for ADDRESS, and why.",
    ),
    "hold": Entry(
        "amqproute.cli.commands.relaying:hold",
        "Let messages wait: those that are there and those that come later, until released.",
    ),
    "holds": Entry(
        "amqproute.cli.commands.relaying:holds",
        "List what is held, since when, by whom and why.",
    ),
    "journal": Entry(
        "amqproute.cli.commands.journals:journal",
        "The audit journal: what happened to every message.",
    ),
    "link": Entry(
        "amqproute.cli.commands.links:link",
        "Links of clients and peers, and bindings between nodes, at the running daemon.",
    ),
    "peer": Entry(
        "amqproute.cli.commands.peers:peer",
        "Other organizations' brokers: what is known of them, and whether they can be reached.",
    ),
    "pipeline": Entry(
        "amqproute.cli.commands.pipeline:pipeline",
        "Turn journals into tables, reports and proofs, on Apache Spark.",
    ),
    "queue": Entry(
        "amqproute.cli.commands.queues:queue",
        "Queues and topics of the running daemon.",
    ),
    "receive": Entry(
        "amqproute.cli.commands.messages:receive",
        "Consume messages from NODE, or browse them, and print them.",
    ),
    "release": Entry(
        "amqproute.cli.commands.relaying:release",
        "End holds, by their ids; what waited for them goes out at once.",
    ),
    "requeue": Entry(
        "amqproute.cli.commands.requeueing:requeue",
        "Send dead letters on QUEUE back to where each was addressed.",
    ),
    "reroute": Entry(
        "amqproute.cli.commands.relaying:reroute",
        "Move messages whose addresses lead elsewhere since the configuration was changed.",
    ),
    "resolve": Entry(
        "amqproute.cli.commands.lookup:resolve",
        "Look a DOMAIN up in the DNS as the daemon would.",
    ),
    "retry": Entry(
        "amqproute.cli.commands.relaying:retry",
        "Try to send messages now, instead of when their time would come.",
    ),
    "send": Entry(
        "amqproute.cli.commands.messages:send",
        "Publish messages to ADDRESS and wait for their outcomes.",
    ),
    "serve": Entry(
        "amqproute.cli.commands.serving:serve",
        "Run the daemon in the foreground until it is told to stop.",
    ),
    "status": Entry(
        "amqproute.cli.commands.status:status",
        "Say whether all is well with the running daemon, and if not, with what.",
    ),
    "store": Entry(
        "amqproute.cli.commands.storing:store",
        "The store: backups of it, what is wrong with it, and the ways out.",
    ),
    "transaction": Entry(
        "amqproute.cli.commands.transactions:transaction",
        "Branches of distributed transactions at the running daemon.",
    ),
    "user": Entry(
        "amqproute.cli.commands.users:user",
        "Users that log in with a password: salted keys in the file of `users.file`.",
    ),
    "why": Entry(
        "amqproute.cli.commands.relaying:why",
        "Say why a message has not gone yet, and which command would change that.",
    ),
}
"""The commands by their names."""
