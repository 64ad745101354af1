# SPDX-License-Identifier: Apache-2.0
"""Sequences on RabbitMQ's extensions: direct reply-to, tickets, secrets, overflow."""

from __future__ import annotations

from typing import Final

from tests.integration.method_player import MethodPlayer, Sequence09

__all__ = ["EXTENSION_SEQUENCES"]

REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"


def _queue(play: MethodPlayer, name: str = "q", **arguments: object) -> str:
    play.ask("queue.declare", queue=play.name(name), arguments=arguments)
    return play.name(name)


# -- direct reply-to -------------------------------------------------------------------------------


def _request(play: MethodPlayer, *, on: str = "a", mandatory: int = 0) -> str:
    """Ask a queue, which another connection reads; return where to reply to."""
    name = _queue(play)
    play.ask("basic.consume", on=on, queue=REPLY_QUEUE, consumer_tag="r", no_ack=1)
    play.publish(name, b"?", on=on, properties={"reply-to": REPLY_QUEUE}, mandatory=mandatory)
    play.has(name, 1)
    play.get(name, on="b")
    return str(play.properties["reply-to"])


def reply_to(play: MethodPlayer) -> None:
    """A request and its reply."""
    address = _request(play)
    play.publish(address, b"!", on="b", properties={"correlation-id": "1"})
    play.read()


def reply_to_mandatory_request(play: MethodPlayer) -> None:
    """A request with mandatory, to a queue and to none."""
    address = _request(play, mandatory=1)
    play.publish(address, b"!", on="b")
    play.read()
    play.publish(play.name("none"), properties={"reply-to": REPLY_QUEUE}, mandatory=1)


def reply_to_mandatory_reply(play: MethodPlayer) -> None:
    """A reply with mandatory: while somebody waits for it, and afterwards."""
    address = _request(play)
    play.publish(address, b"!", on="b", mandatory=1)
    play.read()
    play.ask("basic.cancel", consumer_tag="r")
    play.publish(address, b"late", on="b", mandatory=1)


def reply_to_confirmed(play: MethodPlayer) -> None:
    """A reply with confirms: while somebody waits for it, and afterwards."""
    address = _request(play)
    play.ask("confirm.select", on="b")
    play.publish(address, b"!", on="b", fence=False)
    play.confirms(1, on="b")
    play.read()
    play.tell("channel.close", reply_code=200)
    play.read()
    play.publish(address, b"late", on="b", fence=False)
    play.confirms(2, 2, on="b")


def reply_to_many(play: MethodPlayer) -> None:
    """Several replies to one address come in order."""
    address = _request(play)
    for number in range(3):
        play.publish(address, b"%d" % number, on="b")
        play.read()


def reply_to_with_acks(play: MethodPlayer) -> None:
    """A consumer with acknowledgements."""
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="r")


def reply_to_twice(play: MethodPlayer) -> None:
    """A second consumer on the channel, and one on another channel."""
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="r", no_ack=1)
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="s", no_ack=1, channel=2)
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="s", no_ack=1)


def reply_to_again(play: MethodPlayer) -> None:
    """A new consumer after a cancel, and replies to either address."""
    first = _request(play)
    play.ask("basic.cancel", consumer_tag="r")
    second = _request(play)
    play.publish(first, b"to the first", on="b", mandatory=1)
    play.publish(second, b"to the second", on="b")
    play.read(2)


def reply_to_without_consumer(play: MethodPlayer) -> None:
    """A request without a consumer for the reply."""
    name = _queue(play)
    play.publish(name, properties={"reply-to": REPLY_QUEUE})


def reply_to_consumer_on_other_channel(play: MethodPlayer) -> None:
    """A request on another channel than the consumer's."""
    name = _queue(play)
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="r", no_ack=1, channel=2)
    play.publish(name, properties={"reply-to": REPLY_QUEUE})


def reply_to_generated_tag(play: MethodPlayer) -> None:
    """A consumer tag by the broker, and a consumer with flags."""
    play.ask("basic.consume", queue=REPLY_QUEUE, no_ack=1)
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="x", no_ack=1, exclusive=1, channel=2)


def reply_to_tag_in_use(play: MethodPlayer) -> None:
    """The tag of another consumer."""
    name = _queue(play)
    play.ask("basic.consume", queue=name, consumer_tag="c")
    play.ask("basic.consume", queue=REPLY_QUEUE, consumer_tag="c", no_ack=1)


def reply_to_exists(play: MethodPlayer) -> None:
    """Passive declarations of the pseudo-queue, of an address, and of one that has ended."""
    play.ask("queue.declare", queue=REPLY_QUEUE, passive=1)
    address = _request(play)
    for on in "ab":
        play.ask("queue.declare", on=on, queue=address, passive=1)
    play.ask("queue.declare", on="b", queue=REPLY_QUEUE + ".nobody", passive=1)
    play.ask("basic.cancel", consumer_tag="r")
    play.ask("queue.declare", on="b", queue=address, passive=1)


def reply_to_after_the_channel(play: MethodPlayer) -> None:
    """An address ends with its channel, and with its connection."""
    address = _request(play)
    play.tell("channel.close", reply_code=200)
    play.read()
    play.gone(address)
    address = _request(play, on="c")
    play.tell("connection.close", reply_code=200, on="c", channel=0)
    play.read(1, on="c")
    play.gone(address)


def reply_to_declared(play: MethodPlayer) -> None:
    """Declarations that are not passive, of the pseudo-queue and of an address."""
    play.ask("queue.declare", queue=REPLY_QUEUE)
    play.ask("queue.declare", queue=REPLY_QUEUE, exclusive=1, arguments={"x-max-length": 1})
    play.ask("queue.declare", queue=REPLY_QUEUE + ".nobody")


def reply_to_as_a_queue(play: MethodPlayer) -> None:
    """Methods for queues that the pseudo-queue refuses."""
    play.get(REPLY_QUEUE)
    play.ask("queue.purge", queue=REPLY_QUEUE)
    play.ask("queue.delete", queue=REPLY_QUEUE)
    play.ask("queue.bind", queue=REPLY_QUEUE, exchange="amq.direct", routing_key="k")
    play.publish(REPLY_QUEUE, mandatory=1)


def reply_to_address_as_a_queue(play: MethodPlayer) -> None:
    """Methods for queues that an address refuses."""
    address = _request(play)
    for on in "ab":
        play.get(address, on=on, channel=2)
        play.ask("basic.consume", on=on, queue=address, no_ack=1, channel=2, consumer_tag="x")
        play.ask("queue.purge", on=on, queue=address, channel=2)
        play.ask("queue.delete", on=on, queue=address, channel=2)
    play.ask("queue.bind", on="b", queue=address, exchange="amq.direct", routing_key="k")
    play.publish(address, b"!", on="b")
    play.read()


def reply_to_unknown_address(play: MethodPlayer) -> None:
    """Replies that are for nobody."""
    play.publish(REPLY_QUEUE + ".nobody")
    play.publish(REPLY_QUEUE + ".nobody", mandatory=1)


def reply_to_cc(play: MethodPlayer) -> None:
    """A reply that goes to a queue as well."""
    address = _request(play)
    name = _queue(play, "copy")
    play.publish(name, b"!", on="b", properties={"headers": {"CC": [address]}})
    play.has(name, 1)
    play.read()
    play.get(name)
    play.publish(address, b"!", on="b", properties={"headers": {"CC": [name]}})
    play.read()
    play.has(name, 1)


def reply_to_in_a_transaction(play: MethodPlayer) -> None:
    """A reply in a transaction goes with its commit."""
    address = _request(play)
    play.ask("tx.select", on="b")
    play.publish(address, b"!", on="b")
    play.ask("tx.commit", on="b")
    play.read()


# -- tickets ---------------------------------------------------------------------------------------


def ticket_request(play: MethodPlayer) -> None:
    """access.request with rights of each kind, for realms of any name."""
    for realm in ("/data", "/admin", "x", ""):
        play.ask("access.request", realm=realm, passive=1, active=1, write=1, read=1)
    play.ask("access.request", realm="/data", exclusive=1, active=1)
    play.ask("access.request", realm="/data", exclusive=1, active=1, on="b")


def ticket_used(play: MethodPlayer) -> None:
    """Methods with a ticket that was given, and with others."""
    play.ask("access.request", realm="/data", active=1, write=1, read=1)
    for ticket in (1, 0, 99):
        name = play.name(f"q{ticket}")
        play.ask("queue.declare", queue=name, ticket=ticket)
        play.ask("queue.bind", queue=name, exchange="amq.direct", routing_key=name, ticket=ticket)
        play.publish(name, exchange="amq.direct", ticket=ticket)
        play.ask("basic.get", queue=name, no_ack=1, ticket=ticket)
        play.ask("queue.delete", queue=name, ticket=ticket)


# -- secrets ---------------------------------------------------------------------------------------


def secret_updated(play: MethodPlayer) -> None:
    """connection.update-secret with the password."""
    play.ask("queue.declare", queue=play.name("q"))
    play.tell(
        "connection.update-secret",
        channel=0,
        new_secret=play.broker.password.encode(),
        reason="it was old",
        quiet=True,
    )
    play.read()
    play.ask("queue.declare", queue=play.name("q"))


def secret_wrong(play: MethodPlayer) -> None:
    """connection.update-secret with another text."""
    play.ask("queue.declare", queue=play.name("q"))
    play.tell("connection.update-secret", channel=0, new_secret=b"wrong", reason="it was old")
    play.read()


# -- overflow --------------------------------------------------------------------------------------


def reject_publish_dlx(play: MethodPlayer) -> None:
    """x-overflow: reject-publish-dlx."""
    dead = _queue(play, "dead")
    name = _queue(
        play,
        **{
            "x-max-length": 1,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    play.ask("confirm.select")
    for number in range(3):
        play.publish(name, b"%d" % number, fence=False)
        play.confirms(number + 1, number + 1)
    play.has(name, 1)
    play.has(dead, 2)
    play.hidden = ("x-last-death-", "x-opt-dead-letter-")
    play.get(dead)
    play.get(name)


def reject_publish_dlx_of_two(play: MethodPlayer) -> None:
    """A message that goes to two full queues."""
    dead = _queue(play, "dead")
    exchange = play.name("x")
    play.ask("exchange.declare", exchange=exchange, type="fanout")
    for name in ("q", "r"):
        queue = _queue(
            play,
            name,
            **{
                "x-max-length": 0,
                "x-overflow": "reject-publish-dlx",
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead,
            },
        )
        play.ask("queue.bind", queue=queue, exchange=exchange)
    play.ask("confirm.select")
    play.publish("any", b"1", exchange=exchange, fence=False)
    play.confirms(1, 1)
    play.has(dead, 2)


def reject_publish_dlx_without_target(play: MethodPlayer) -> None:
    """The same with no dead-letter exchange."""
    name = _queue(play, **{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    play.ask("confirm.select")
    for number in range(2):
        play.publish(name, b"%d" % number, fence=False)
        play.confirms(number + 1, number + 1)
    play.has(name, 1)


def reject_publish_dlx_without_confirms(play: MethodPlayer) -> None:
    """The same on a channel without confirms."""
    dead = _queue(play, "dead")
    name = _queue(
        play,
        **{
            "x-max-length": 0,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    play.publish(name, b"0")
    play.has(dead, 1)
    play.has(name, 0)


EXTENSION_SEQUENCES: Final[tuple[Sequence09, ...]] = (
    reply_to, reply_to_mandatory_request, reply_to_mandatory_reply, reply_to_confirmed,
    reply_to_many, reply_to_with_acks, reply_to_twice, reply_to_again, reply_to_without_consumer,
    reply_to_consumer_on_other_channel, reply_to_generated_tag, reply_to_tag_in_use,
    reply_to_exists, reply_to_after_the_channel, reply_to_declared, reply_to_as_a_queue,
    reply_to_address_as_a_queue, reply_to_unknown_address, reply_to_cc, reply_to_in_a_transaction,
    ticket_request, ticket_used, secret_updated, secret_wrong, reject_publish_dlx,
    reject_publish_dlx_of_two, reject_publish_dlx_without_target,
    reject_publish_dlx_without_confirms,
)  # fmt: skip
