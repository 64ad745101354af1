# SPDX-License-Identifier: Apache-2.0
"""Sequences on messages: publishing, consuming, acknowledgements, dead letters, transactions."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from tests.integration.method_player import MethodPlayer, Sequence09

__all__ = ["MESSAGE_SEQUENCES"]


HIDDEN: Final = ("x-last-death-", "x-opt-dead-letter-")
"""Headers of dead letters that RabbitMQ 3.10 has not; `dead_letter_headers` names them."""


def _queue(play: MethodPlayer, name: str = "q", **arguments: Any) -> str:
    play.ask("queue.declare", queue=play.name(name), arguments=arguments)
    return play.name(name)


# -- publishing ------------------------------------------------------------------------------------


def publish_missing_exchange(play: MethodPlayer) -> None:
    """To an exchange that is not there."""
    play.publish("k", exchange=play.name("none"))


def publish_missing_exchange_confirmed(play: MethodPlayer) -> None:
    """The same with confirms: the channel is closed."""
    play.ask("confirm.select")
    play.publish("k", exchange=play.name("none"), fence=False)
    play.confirms(1)


def publish_mandatory(play: MethodPlayer) -> None:
    """To no queue, with mandatory and without."""
    play.publish(play.name("none"), b"lost")
    play.publish(play.name("none"), b"back", mandatory=1, properties={"message-id": "1"})


def publish_immediate(play: MethodPlayer) -> None:
    """With immediate."""
    name = _queue(play)
    play.publish(name, immediate=1)


def confirm_routed(play: MethodPlayer) -> None:
    """Confirms of messages that go to a queue and to none."""
    name = _queue(play)
    play.ask("confirm.select")
    play.publish(name, fence=False, properties={"delivery-mode": 2})
    play.publish(play.name("none"), fence=False)
    play.publish(name, fence=False)
    play.confirms(3)


def confirm_returned(play: MethodPlayer) -> None:
    """A return comes before its confirm."""
    play.ask("confirm.select")
    play.publish(play.name("none"), mandatory=1, fence=False)
    play.confirms(1)


def confirm_counts_from_select(play: MethodPlayer) -> None:
    """A publish before confirm.select has no number."""
    name = _queue(play)
    play.publish(name)
    play.ask("confirm.select")
    play.ask("confirm.select")
    play.publish(name, fence=False)
    play.confirms(1)


def confirm_nowait(play: MethodPlayer) -> None:
    """confirm.select with nowait."""
    play.ask("confirm.select", nowait=1)
    play.publish("amq.nowhere", fence=False)
    play.confirms(1)


def user_id(play: MethodPlayer) -> None:
    """The user's own name, and another one."""
    name = _queue(play)
    play.publish(name, properties={"user-id": play.broker.user})
    play.publish(name, properties={"user-id": "somebody"})


def expiration_words(play: MethodPlayer) -> None:
    """Expirations that are no number."""
    name = _queue(play)
    for text in ("60000", "abc", "-1", "1.5", "", " 5"):
        play.publish(name, properties={"expiration": text})
    play.ask("queue.purge", queue=name)


def all_properties(play: MethodPlayer) -> None:
    """Every property comes out as it went in."""
    name = _queue(play)
    play.publish(
        name,
        b"body",
        properties={
            "content-type": "text/plain",
            "content-encoding": "utf-8",
            "headers": {"a": 1},
            "delivery-mode": 2,
            "priority": 5,
            "correlation-id": "c",
            "reply-to": "r",
            "message-id": "m",
            "timestamp": 1_700_000_000,
            "type": "t",
            "user-id": play.broker.user,
            "app-id": "app",
            "cluster-id": "cl",
        },
    )
    play.get(name)


def expiration_held(play: MethodPlayer) -> None:
    """The expiration that a consumer sees of a message that has waited."""
    name = _queue(play)
    play.publish(name, properties={"expiration": "600000"})
    time.sleep(0.01)
    play.get(name)


def all_header_types(play: MethodPlayer) -> None:
    """Every type of a table comes out as it went in."""
    name = _queue(play)
    play.publish(
        name,
        properties={
            "headers": {
                "bool": True,
                "int8": ("b", -5),
                "int16": ("s", -300),
                "int": 70000,
                "uint": ("i", 4_000_000_000),
                "long": ("l", -(1 << 40)),
                "float": ("f", 0.5),
                "double": 0.25,
                "decimal": ("D", (2, 314)),
                "text": "n\u00e4h",
                "octets": ("x", b"\0\xff"),
                "time": ("T", 1_700_000_000),
                "void": None,
                "array": [1, "two", {"three": 3.0}],
                "table": {"nested": {"deep": [None]}},
            }
        },
    )
    play.get(name)


def odd_delivery_modes(play: MethodPlayer) -> None:
    """Delivery modes and priorities that the standard does not know."""
    name = _queue(play)
    for properties in ({"delivery-mode": 0}, {"delivery-mode": 3}, {"priority": 200}):
        play.publish(name, properties=properties)
        play.get(name)


def bodies(play: MethodPlayer) -> None:
    """No octets, and more than one frame has."""
    name = _queue(play)
    for size in (0, 1, 131064, 131065, 400_000):
        play.publish(name, b"x" * size)
        play.get(name)


def cc_and_bcc(play: MethodPlayer) -> None:
    """Further routing keys in headers."""
    for each in ("to", "cc", "bcc"):
        _queue(play, each)
    play.publish(
        play.name("to"),
        properties={"headers": {"CC": [play.name("cc")], "BCC": [play.name("bcc")]}},
    )
    for each in ("to", "cc", "bcc"):
        play.get(play.name(each))


def cc_of_wrong_type(play: MethodPlayer) -> None:
    """CC that is no array."""
    name = _queue(play)
    play.publish(name, properties={"headers": {"CC": "text"}})
    play.publish(name, properties={"headers": {"BCC": [1]}})


def publish_default_by_name(play: MethodPlayer) -> None:
    """The default exchange has no name but the empty one."""
    play.publish("k", exchange="amq.default")


# -- get and consume -------------------------------------------------------------------------------


def get_empty(play: MethodPlayer) -> None:
    """Nothing there, and no queue there."""
    play.get(_queue(play))
    play.get(play.name("none"))


def get_counts(play: MethodPlayer) -> None:
    """The message count behind the message of basic.get."""
    name = _queue(play)
    for number in range(3):
        play.publish(name, b"%d" % number)
    play.has(name, 3)
    for no_ack in (0, 1, 0, 0):
        play.get(name, no_ack=no_ack)


def consume_missing(play: MethodPlayer) -> None:
    """Of a queue that is not there."""
    play.ask("basic.consume", queue=play.name("none"), consumer_tag="c")


def consume_tag_twice(play: MethodPlayer) -> None:
    """A consumer tag that is in use."""
    name = _queue(play)
    play.ask("basic.consume", queue=name, consumer_tag="c")
    play.ask("basic.consume", queue=name, consumer_tag="c")


def consume_tag_on_other_channel(play: MethodPlayer) -> None:
    """The same tag on another channel of the connection."""
    name = _queue(play)
    for channel in (1, 2):
        play.ask("basic.consume", queue=name, consumer_tag="c", channel=channel)


def consume_generated_tag(play: MethodPlayer) -> None:
    """A tag by the broker."""
    play.ask("basic.consume", queue=_queue(play))


def consume_exclusive(play: MethodPlayer) -> None:
    """An exclusive consumer keeps others away, and is kept away."""
    name = _queue(play)
    play.ask("basic.consume", queue=name, consumer_tag="a", exclusive=1)
    play.ask("basic.consume", queue=name, consumer_tag="b", on="b")
    play.ask("basic.cancel", consumer_tag="a")
    play.ask("basic.consume", queue=name, consumer_tag="b", on="b")
    play.ask("basic.consume", queue=name, consumer_tag="a", exclusive=1)


def consume_unknown_argument(play: MethodPlayer) -> None:
    """An argument that means nothing, and a priority that is none."""
    name = _queue(play)
    play.ask("basic.consume", queue=name, consumer_tag="a", filter={"x-mine": 1})
    play.ask("basic.consume", queue=name, consumer_tag="b", filter={"x-priority": "high"})


def cancel_unknown(play: MethodPlayer) -> None:
    """A tag of nobody."""
    play.ask("basic.cancel", consumer_tag="nobody")


def consume_nowait(play: MethodPlayer) -> None:
    """Consume and cancel with nowait."""
    name = _queue(play)
    play.ask("basic.consume", queue=name, consumer_tag="c", nowait=1)
    play.publish(name, fence=False)
    play.read()
    play.ask("basic.cancel", consumer_tag="c", nowait=1)
    play.ask("queue.declare", queue=name, passive=1)


def consume_cancelled_keeps(play: MethodPlayer) -> None:
    """Deliveries to a cancelled consumer may be acknowledged."""
    name = _queue(play)
    play.publish(name)
    play.has(name, 1)
    play.ask("basic.consume", queue=name, consumer_tag="c")
    play.read()
    play.ask("basic.cancel", consumer_tag="c")
    play.has(name, 0)
    play.ask("basic.ack", delivery_tag=1)
    play.has(name, 0)


def consume_no_local(play: MethodPlayer) -> None:
    """no-local."""
    name = _queue(play)
    play.ask("basic.consume", queue=name, consumer_tag="c", no_local=1, no_ack=1)
    play.publish(name, fence=False)
    play.read()


def consumers_take_turns(play: MethodPlayer) -> None:
    """Two consumers, four messages."""
    name = _queue(play)
    for tag in ("c1", "c2"):
        play.ask("basic.consume", queue=name, consumer_tag=tag, no_ack=1)
    for number in range(4):
        play.publish(name, b"%d" % number, fence=False)
    play.read(4)
    # Whose turn it was counts, not when it was told.
    play.record = sorted(re.sub(" delivery-tag=[0-9]+", "", each) for each in play.record)


# -- acknowledgements ------------------------------------------------------------------------------


def _held(play: MethodPlayer, count: int) -> str:
    """Have this many messages got and not acknowledged."""
    name = _queue(play)
    for number in range(count):
        play.publish(name, b"%d" % (number + 1))
    play.has(name, count)
    for _ in range(count):
        play.get(name, no_ack=0)
    return name


def ack_unknown(play: MethodPlayer) -> None:
    """A tag that was never given."""
    for name in ("basic.ack", "basic.nack", "basic.reject"):
        play.ask(name, delivery_tag=17)


def ack_twice(play: MethodPlayer) -> None:
    """The same tag again; the other messages come back."""
    name = _held(play, 2)
    play.ask("basic.ack", delivery_tag=1)
    play.ask("basic.ack", delivery_tag=1)
    play.has(name, 1)
    play.get(name)


def ack_multiple(play: MethodPlayer) -> None:
    """All up to a tag."""
    name = _held(play, 4)
    play.ask("basic.ack", delivery_tag=3, multiple=1)
    play.ask("basic.ack", delivery_tag=2)
    play.has(name, 1)


def ack_zero(play: MethodPlayer) -> None:
    """Tag 0: all there are, none there are, and without multiple."""
    name = _held(play, 3)
    play.ask("basic.ack", delivery_tag=0, multiple=1)
    play.ask("basic.ack", delivery_tag=0, multiple=1)
    play.has(name, 0)
    play.ask("basic.ack", delivery_tag=0)


def ack_multiple_again(play: MethodPlayer) -> None:
    """multiple with a tag that was acknowledged already."""
    _held(play, 3)
    play.ask("basic.ack", delivery_tag=2)
    play.ask("basic.ack", delivery_tag=2, multiple=1)
    play.ask("basic.ack", delivery_tag=2, multiple=1)


def ack_of_no_ack(play: MethodPlayer) -> None:
    """An ack of a delivery that needs none."""
    name = _queue(play)
    play.publish(name)
    play.get(name, no_ack=1)
    play.ask("basic.ack", delivery_tag=1)


def ack_on_other_channel(play: MethodPlayer) -> None:
    """A tag of another channel."""
    _held(play, 1)
    play.ask("basic.ack", delivery_tag=1, channel=2)


def nack_multiple(play: MethodPlayer) -> None:
    """Back to the queue, in order, redelivered."""
    name = _held(play, 3)
    play.ask("basic.nack", delivery_tag=2, multiple=1, requeue=1)
    play.has(name, 2)
    play.get(name)
    play.get(name)


def nack_zero(play: MethodPlayer) -> None:
    """nack of tag 0 with multiple, without requeue."""
    name = _held(play, 2)
    play.ask("basic.nack", delivery_tag=0, multiple=1)
    play.has(name, 0)


def reject_requeue(play: MethodPlayer) -> None:
    """Back to the queue, and away."""
    name = _held(play, 2)
    play.ask("basic.reject", delivery_tag=1, requeue=1)
    play.ask("basic.reject", delivery_tag=2)
    play.has(name, 1)
    play.get(name)


def requeue_order(play: MethodPlayer) -> None:
    """A requeued message has its old place."""
    name = _queue(play)
    for number in range(4):
        play.publish(name, b"%d" % number)
    play.has(name, 4)
    play.get(name, no_ack=0)
    play.get(name, no_ack=0)
    play.ask("basic.reject", delivery_tag=2, requeue=1)
    play.ask("basic.reject", delivery_tag=1, requeue=1)
    play.has(name, 4)
    for _ in range(4):
        play.get(name)


def recover_requeue(play: MethodPlayer) -> None:
    """basic.recover with requeue."""
    name = _held(play, 2)
    play.ask("basic.recover", requeue=1)
    play.has(name, 2)
    play.get(name)


def recover_async(play: MethodPlayer) -> None:
    """basic.recover-async, which has no answer."""
    name = _held(play, 1)
    play.octets(b"\1\0\1\0\0\0\5\0\x3c\0\x64\1\xce", "basic.recover-async", channel=1)
    play.has(name, 1)


def recover_here(play: MethodPlayer) -> None:
    """basic.recover without requeue."""
    name = _queue(play)
    play.publish(name)
    play.ask("basic.consume", queue=name, consumer_tag="c")
    play.read()
    play.tell("basic.recover")
    play.read(2)


def channel_close_requeues(play: MethodPlayer) -> None:
    """Deliveries of a closed channel are requeued."""
    name = _held(play, 1)
    play.tell("channel.close", reply_code=200)
    play.read()
    play.has(name, 1)
    play.get(name)


# -- qos -------------------------------------------------------------------------------------------


def qos_count(play: MethodPlayer) -> None:
    """As many as may be unacknowledged, for each consumer."""
    name = _queue(play)
    for number in range(5):
        play.publish(name, b"%d" % number)
    play.has(name, 5)
    play.ask("basic.qos", prefetch_count=2)
    play.ask("basic.consume", queue=name, consumer_tag="c")
    play.read(2)
    play.has(name, 3)
    play.tell("basic.ack", delivery_tag=1)
    play.read(1)
    play.has(name, 2)


def qos_global(play: MethodPlayer) -> None:
    """For the channel."""
    name = _queue(play)
    for number in range(5):
        play.publish(name, b"%d" % number)
    play.has(name, 5)
    play.ask("basic.qos", **{"prefetch_count": 3, "global": 1})
    play.ask("basic.consume", queue=name, consumer_tag="c1")
    play.read(3)
    play.ask("basic.consume", queue=name, consumer_tag="c2")
    play.has(name, 2)


def qos_changed(play: MethodPlayer) -> None:
    """A new window is for the consumers that come after it."""
    name = _queue(play)
    for number in range(5):
        play.publish(name, b"%d" % number)
    play.has(name, 5)
    play.ask("basic.qos", prefetch_count=1)
    play.ask("basic.consume", queue=name, consumer_tag="c1")
    play.read(1)
    play.ask("basic.qos", prefetch_count=3)
    play.has(name, 4)
    play.ask("basic.consume", queue=name, consumer_tag="c2")
    play.read(3)
    play.has(name, 1)


def qos_size(play: MethodPlayer) -> None:
    """prefetch-size."""
    play.ask("basic.qos", prefetch_size=1000)


# -- queue arguments at work -----------------------------------------------------------------------


def ttl_zero(play: MethodPlayer) -> None:
    """Expires at once, unless a consumer takes it at once."""
    name = _queue(play, **{"x-message-ttl": 0})
    play.publish(name)
    play.has(name, 0)
    play.ask("basic.consume", queue=name, consumer_tag="c", no_ack=1)
    play.publish(name, fence=False)
    play.read()


def ttl_of_message(play: MethodPlayer) -> None:
    """The shorter of queue's and message's time."""
    name = _queue(play, **{"x-message-ttl": 600_000})
    play.publish(name, properties={"expiration": "1"})
    play.has(name, 0)


def queue_expires(play: MethodPlayer) -> None:
    """x-expires of a queue that nobody uses."""
    play.gone(_queue(play, **{"x-expires": 100}), on="z")


def max_length(play: MethodPlayer) -> None:
    """The oldest are dropped."""
    name = _queue(play, **{"x-max-length": 2})
    for number in range(4):
        play.publish(name, b"%d" % number)
    play.has(name, 2)
    play.get(name)


def max_length_zero(play: MethodPlayer) -> None:
    """No room at all."""
    name = _queue(play, **{"x-max-length": 0})
    play.ask("confirm.select")
    play.publish(name, fence=False)
    play.confirms(1)
    play.has(name, 0)


def max_length_bytes(play: MethodPlayer) -> None:
    """By octets of bodies."""
    name = _queue(play, **{"x-max-length-bytes": 10})
    for number in range(4):
        play.publish(name, b"%d2345" % number)
    play.has(name, 2)
    play.get(name)


def reject_publish(play: MethodPlayer) -> None:
    """x-overflow reject-publish: a nack."""
    name = _queue(play, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    play.ask("confirm.select")
    play.publish(name, b"1", fence=False)
    play.confirms(1)
    play.has(name, 1)
    play.publish(name, b"2", fence=False)
    play.confirms(2, first=2)
    play.has(name, 1)


def dead_letter_rejected(play: MethodPlayer) -> None:
    """x-death of what was rejected, once and again."""
    play.hidden = HIDDEN
    dead = _queue(play, "dead")
    name = _queue(
        play,
        **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
    )
    play.publish(name, b"1", properties={"headers": {"mine": 1}})
    play.has(name, 1)
    play.get(name, no_ack=0)
    play.ask("basic.reject", delivery_tag=1)
    play.has(dead, 1)
    play.get(dead)


def dead_letter_expired(play: MethodPlayer) -> None:
    """x-death of what expired by the queue's and by its own time."""
    play.hidden = HIDDEN
    dead = _queue(play, "dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    one = _queue(play, "one", **{"x-message-ttl": 1, **arguments})
    other = _queue(play, "other", **arguments)
    play.publish(one, b"1")
    play.has(dead, 1)
    play.get(dead)
    play.publish(other, b"2", properties={"expiration": "1"})
    play.has(dead, 1)
    play.get(dead)


def dead_letter_overflow(play: MethodPlayer) -> None:
    """x-death of what was dropped."""
    play.hidden = HIDDEN
    dead = _queue(play, "dead")
    name = _queue(
        play,
        **{
            "x-max-length": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    for body in (b"1", b"2"):
        play.publish(name, body)
    play.has(dead, 1)
    play.get(dead)


def dead_letter_exchange(play: MethodPlayer) -> None:
    """By an exchange, with the message's own key."""
    play.hidden = HIDDEN
    play.ask("exchange.declare", exchange=play.name("dlx"), type="topic")
    dead = _queue(play, "dead")
    play.ask("queue.bind", queue=dead, exchange=play.name("dlx"), routing_key="#")
    name = _queue(play, **{"x-dead-letter-exchange": play.name("dlx")})
    play.ask("queue.bind", queue=name, exchange="amq.direct", routing_key=play.name("key"))
    play.publish(play.name("key"), exchange="amq.direct")
    play.has(name, 1)
    play.get(name, no_ack=0)
    play.ask("basic.nack", delivery_tag=1)
    play.has(dead, 1)
    play.get(dead)


def dead_letter_twice(play: MethodPlayer) -> None:
    """Rejected, published back by a cycle of two queues, rejected again: counts."""
    play.hidden = HIDDEN
    dead = _queue(
        play,
        "dead",
        **{
            "x-message-ttl": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": play.name("q"),
        },
    )
    name = _queue(play, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    play.publish(name)
    for tag in (1, 2):
        play.has(name, 1)
        play.get(name, no_ack=0)
        play.ask("basic.reject", delivery_tag=tag)
    play.has(name, 1)
    play.get(name)


def dead_letter_headers(play: MethodPlayer) -> None:
    """The headers of a dead letter."""
    dead = _queue(play, "dead")
    name = _queue(
        play,
        **{"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
    )
    play.publish(name)
    play.has(dead, 1)
    play.get(dead)


def dead_letter_cycle(play: MethodPlayer) -> None:
    """Expired messages that would go round for ever are dropped."""
    names = [play.name("q"), play.name("r")]
    for name, other in (names, names[::-1]):
        play.ask(
            "queue.declare",
            queue=name,
            arguments={
                "x-message-ttl": 1,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": other,
            },
        )
    play.publish(names[0])
    for name in names:
        play.has(name, 0)


def dead_letter_missing(play: MethodPlayer) -> None:
    """The exchange for dead letters is not there."""
    name = _queue(play, **{"x-dead-letter-exchange": play.name("none")})
    play.publish(name)
    play.has(name, 1)
    play.get(name, no_ack=0)
    play.ask("basic.reject", delivery_tag=1)
    play.ask("basic.qos")
    play.has(name, 0)


def priorities(play: MethodPlayer) -> None:
    """Higher priorities first, and none counts as 0."""
    name = _queue(play, **{"x-max-priority": 5})
    for body, priority in ((b"none", None), (b"1", 1), (b"9", 9), (b"5", 5), (b"0", 0)):
        play.publish(name, body, properties={} if priority is None else {"priority": priority})
    play.has(name, 5)
    for _ in range(5):
        play.get(name)


def single_active_consumer(play: MethodPlayer) -> None:
    """One consumer has all, and the next takes over."""
    name = _queue(play, **{"x-single-active-consumer": True})
    for tag in ("c1", "c2"):
        play.ask("basic.consume", queue=name, consumer_tag=tag, no_ack=1)
    for _ in range(2):
        play.publish(name, fence=False)
    play.read(2)
    play.ask("basic.cancel", consumer_tag="c1")
    play.publish(name, fence=False)
    play.read()


def delivery_limit(play: MethodPlayer) -> None:
    """x-delivery-limit and x-delivery-count of a quorum queue."""
    name = play.name("q")
    play.ask(
        "queue.declare",
        queue=name,
        durable=1,
        arguments={"x-queue-type": "quorum", "x-delivery-limit": 2},
    )
    play.publish(name, properties={"delivery-mode": 2})
    for tag in (1, 2, 3):
        play.has(name, 1)
        play.get(name, no_ack=0)
        play.ask("basic.reject", delivery_tag=tag, requeue=1)
    play.has(name, 0)
    play.ask("queue.delete", queue=name)


# -- tx --------------------------------------------------------------------------------------------


def tx_without_select(play: MethodPlayer) -> None:
    """Commit and rollback on a channel that is not transacted."""
    play.ask("tx.commit")
    play.ask("tx.rollback")


def tx_publish(play: MethodPlayer) -> None:
    """Nothing before the commit, all with it, none with a rollback."""
    name = _queue(play)
    play.ask("tx.select")
    play.ask("tx.select")
    play.publish(name)
    play.has(name, 0)
    play.ask("tx.commit")
    play.has(name, 1)
    play.publish(name)
    play.ask("tx.rollback")
    play.ask("tx.commit")
    play.has(name, 1)


def tx_ack(play: MethodPlayer) -> None:
    """Acknowledgements wait for the commit, and a rollback takes them back."""
    name = _held(play, 2)
    play.ask("tx.select")
    play.ask("basic.ack", delivery_tag=1)
    play.ask("tx.rollback")
    play.ask("basic.ack", delivery_tag=1)
    play.ask("tx.commit")
    play.ask("basic.nack", delivery_tag=2, requeue=1)
    play.has(name, 0)
    play.ask("tx.commit")
    play.has(name, 1)


def tx_ack_unknown(play: MethodPlayer) -> None:
    """A tag of nobody within a transaction."""
    play.ask("tx.select")
    play.ask("basic.ack", delivery_tag=5)


def tx_missing_exchange(play: MethodPlayer) -> None:
    """Publishing to nowhere within a transaction."""
    name = _queue(play)
    play.ask("tx.select")
    play.publish(name)
    play.publish("k", exchange=play.name("none"))
    play.has(name, 0)


def tx_mandatory(play: MethodPlayer) -> None:
    """When a message that goes nowhere is returned."""
    play.ask("tx.select")
    play.publish(play.name("none"), mandatory=1)
    play.ask("tx.commit")


def tx_and_confirms(play: MethodPlayer) -> None:
    """One or the other."""
    play.ask("tx.select")
    play.ask("confirm.select")
    play.ask("confirm.select")
    play.ask("tx.select")


def tx_closed(play: MethodPlayer) -> None:
    """A transaction ends with its channel."""
    name = _queue(play)
    play.ask("tx.select")
    play.publish(name)
    play.tell("channel.close", reply_code=200)
    play.read()
    play.has(name, 0)


MESSAGE_SEQUENCES: Final[tuple[Sequence09, ...]] = (
    publish_missing_exchange, publish_missing_exchange_confirmed, publish_mandatory,
    publish_immediate, confirm_routed, confirm_returned, confirm_counts_from_select,
    confirm_nowait, user_id, expiration_words, all_properties, expiration_held, all_header_types,
    odd_delivery_modes, bodies, cc_and_bcc, cc_of_wrong_type, publish_default_by_name, get_empty,
    get_counts, consume_missing, consume_tag_twice, consume_tag_on_other_channel,
    consume_generated_tag, consume_exclusive, consume_unknown_argument, cancel_unknown,
    consume_nowait, consume_cancelled_keeps, consume_no_local, consumers_take_turns, ack_unknown,
    ack_twice, ack_multiple, ack_zero, ack_multiple_again, ack_of_no_ack, ack_on_other_channel,
    nack_multiple, nack_zero, reject_requeue, requeue_order, recover_requeue, recover_async,
    recover_here, channel_close_requeues, qos_count, qos_global, qos_changed, qos_size, ttl_zero,
    ttl_of_message, queue_expires, max_length, max_length_zero, max_length_bytes, reject_publish,
    dead_letter_rejected, dead_letter_expired, dead_letter_overflow, dead_letter_exchange,
    dead_letter_twice, dead_letter_headers, dead_letter_cycle, dead_letter_missing, priorities,
    single_active_consumer, delivery_limit, tx_without_select, tx_publish, tx_ack, tx_ack_unknown,
    tx_missing_exchange, tx_mandatory, tx_and_confirms, tx_closed,
)  # fmt: skip
