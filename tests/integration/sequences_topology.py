# SPDX-License-Identifier: Apache-2.0
"""Sequences on exchanges, queues and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.integration.method_player import MethodPlayer, Sequence09

__all__ = ["TOPOLOGY_SEQUENCES"]


# -- exchanges -------------------------------------------------------------------------------------


def exchange_types(play: MethodPlayer) -> None:
    """An exchange of each type."""
    for kind in ("direct", "fanout", "topic", "headers"):
        play.ask("exchange.declare", exchange=play.name(kind), type=kind)
        play.ask("exchange.declare", exchange=play.name(kind), passive=1)


def exchange_unknown_type(play: MethodPlayer) -> None:
    """A type that no broker has."""
    play.ask("exchange.declare", exchange=play.name("x"), type="nonsense")


def exchange_plugin_type(play: MethodPlayer) -> None:
    """A type of a plug-in that is not there."""
    play.ask("exchange.declare", exchange=play.name("x"), type="x-delayed-message")


def exchange_without_type(play: MethodPlayer) -> None:
    """No type at all."""
    play.ask("exchange.declare", exchange=play.name("x"))


def exchange_passive_missing(play: MethodPlayer) -> None:
    """Passive, of an exchange that is not there."""
    play.ask("exchange.declare", exchange=play.name("x"), type="direct", passive=1)


def exchange_passive_other(play: MethodPlayer) -> None:
    """Passive, with another type and other flags than it has."""
    play.ask("exchange.declare", exchange=play.name("x"), type="direct")
    play.ask("exchange.declare", exchange=play.name("x"), type="fanout", passive=1, durable=1)


def exchange_redeclare(play: MethodPlayer) -> None:
    """The same once more, and with each thing different."""
    same: dict[str, Any] = {"exchange": play.name("x"), "type": "direct"}
    play.ask("exchange.declare", **same)
    play.ask("exchange.declare", **same)
    for other in (
        {"type": "topic"},
        {"durable": 1},
        {"auto_delete": 1},
        {"internal": 1},
        {"arguments": {"alternate-exchange": "amq.fanout"}},
    ):
        play.ask("exchange.declare", **{**same, **other})


def exchange_unknown_argument(play: MethodPlayer) -> None:
    """An argument that means nothing, and the same exchange without it."""
    play.ask(
        "exchange.declare", exchange=play.name("x"), type="direct", arguments={"x-mine": "value"}
    )
    play.ask("exchange.declare", exchange=play.name("x"), type="direct")


def exchange_reserved(play: MethodPlayer) -> None:
    """A name that begins with amq., new, there, and there with another type."""
    play.ask("exchange.declare", exchange="amq.mine", type="direct")
    play.ask("exchange.declare", exchange="amq.direct", type="direct", durable=1)
    play.ask("exchange.declare", exchange="amq.direct", type="direct")
    play.ask("exchange.declare", exchange="amq.topic", type="direct", durable=1)
    play.ask("exchange.declare", exchange="amq.match", passive=1)
    play.ask("exchange.delete", exchange="amq.direct")


def exchange_predeclared(play: MethodPlayer) -> None:
    """The exchanges that every broker has."""
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"):
        play.ask("exchange.declare", exchange=name, passive=1)


def exchange_default(play: MethodPlayer) -> None:
    """The default exchange is declared and deleted."""
    play.ask("exchange.declare", exchange="", type="direct", durable=1)
    play.ask("exchange.declare", exchange="", passive=1)
    play.ask("exchange.delete", exchange="")


def exchange_names(play: MethodPlayer) -> None:
    """Names with blanks, and of the longest kind."""
    play.ask("exchange.declare", exchange=play.name("with blank"), type="direct")
    play.ask("exchange.declare", exchange=play.name("").ljust(128, "x"), type="direct")


def exchange_delete(play: MethodPlayer) -> None:
    """Deleted, and deleted again."""
    play.ask("exchange.declare", exchange=play.name("x"), type="direct")
    play.ask("exchange.delete", exchange=play.name("x"))
    play.ask("exchange.delete", exchange=play.name("x"))
    play.ask("exchange.delete", exchange=play.name("x"), if_unused=1)


def exchange_delete_if_unused(play: MethodPlayer) -> None:
    """Deleted if unused, with a binding and without."""
    play.ask("exchange.declare", exchange=play.name("x"), type="fanout")
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("queue.bind", queue=play.name("q"), exchange=play.name("x"))
    play.ask("exchange.delete", exchange=play.name("x"), if_unused=1)
    play.ask("queue.unbind", queue=play.name("q"), exchange=play.name("x"))
    play.ask("exchange.delete", exchange=play.name("x"), if_unused=1)


def exchange_delete_if_unused_source(play: MethodPlayer) -> None:
    """Deleted if unused while another exchange sends to it."""
    for name in ("x", "y"):
        play.ask("exchange.declare", exchange=play.name(name), type="fanout")
    play.ask("exchange.bind", destination=play.name("y"), source=play.name("x"))
    play.ask("exchange.delete", exchange=play.name("y"), if_unused=1)
    play.ask("exchange.delete", exchange=play.name("x"), if_unused=1)


def exchange_auto_delete(play: MethodPlayer) -> None:
    """Goes with its last binding, and not before it had one."""
    play.ask("exchange.declare", exchange=play.name("x"), type="fanout", auto_delete=1)
    play.ask("exchange.declare", exchange=play.name("x"), passive=1)
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("queue.bind", queue=play.name("q"), exchange=play.name("x"))
    play.ask("queue.delete", queue=play.name("q"))
    play.ask("exchange.declare", exchange=play.name("x"), passive=1)


def exchange_nowait(play: MethodPlayer) -> None:
    """Every nowait form of the class."""
    for name in ("x", "y"):
        play.ask("exchange.declare", exchange=play.name(name), type="fanout", nowait=1)
    play.ask("exchange.bind", destination=play.name("y"), source=play.name("x"), nowait=1)
    play.ask("exchange.unbind", destination=play.name("y"), source=play.name("x"), nowait=1)
    play.ask("exchange.delete", exchange=play.name("x"), nowait=1)
    play.ask("exchange.declare", exchange=play.name("x"), passive=1)


def exchange_nowait_error(play: MethodPlayer) -> None:
    """An error is told in spite of nowait."""
    play.ask("exchange.declare", exchange="amq.mine", type="direct", nowait=1)


def exchange_internal(play: MethodPlayer) -> None:
    """Publishing to an internal exchange, and by way of another one."""
    play.ask("exchange.declare", exchange=play.name("in"), type="fanout", internal=1)
    play.ask("exchange.declare", exchange=play.name("out"), type="fanout")
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("exchange.bind", destination=play.name("in"), source=play.name("out"))
    play.ask("queue.bind", queue=play.name("q"), exchange=play.name("in"))
    play.publish("k", exchange=play.name("out"))
    play.get(play.name("q"))
    play.publish("k", exchange=play.name("in"))


def exchange_bind_missing(play: MethodPlayer) -> None:
    """Source or destination are not there."""
    play.ask("exchange.declare", exchange=play.name("x"), type="fanout")
    play.ask("exchange.bind", destination=play.name("none"), source=play.name("x"))
    play.ask("exchange.bind", destination=play.name("x"), source=play.name("none"))
    play.ask("exchange.unbind", destination=play.name("none"), source=play.name("x"))
    play.ask("exchange.unbind", destination=play.name("x"), source=play.name("none"))


def exchange_bind_default(play: MethodPlayer) -> None:
    """The default exchange as source and as destination."""
    play.ask("exchange.declare", exchange=play.name("x"), type="fanout")
    play.ask("exchange.bind", destination=play.name("x"), source="")
    play.ask("exchange.bind", destination="", source=play.name("x"))


def exchange_unbind_missing(play: MethodPlayer) -> None:
    """A binding that was never made."""
    for name in ("x", "y"):
        play.ask("exchange.declare", exchange=play.name(name), type="fanout")
    play.ask("exchange.unbind", destination=play.name("y"), source=play.name("x"))


def exchange_cycle(play: MethodPlayer) -> None:
    """Two exchanges bound to each other, and one to itself: one copy arrives."""
    for name in ("x", "y"):
        play.ask("exchange.declare", exchange=play.name(name), type="fanout")
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("exchange.bind", destination=play.name("y"), source=play.name("x"))
    play.ask("exchange.bind", destination=play.name("x"), source=play.name("y"))
    play.ask("exchange.bind", destination=play.name("x"), source=play.name("x"))
    for name in ("x", "y"):
        play.ask("queue.bind", queue=play.name("q"), exchange=play.name(name))
    play.publish("k", exchange=play.name("x"))
    play.has(play.name("q"), 1)


def alternate_exchange(play: MethodPlayer) -> None:
    """A message without a binding goes to the alternate exchange, also with mandatory."""
    play.ask("exchange.declare", exchange=play.name("other"), type="fanout")
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("queue.bind", queue=play.name("q"), exchange=play.name("other"))
    play.ask(
        "exchange.declare",
        exchange=play.name("x"),
        type="direct",
        arguments={"alternate-exchange": play.name("other")},
    )
    play.publish("k", exchange=play.name("x"), mandatory=1)
    play.get(play.name("q"))


def alternate_missing(play: MethodPlayer) -> None:
    """The alternate exchange is not there."""
    play.ask(
        "exchange.declare",
        exchange=play.name("x"),
        type="direct",
        arguments={"alternate-exchange": play.name("none")},
    )
    play.publish("k", exchange=play.name("x"), mandatory=1)


def alternate_cycle(play: MethodPlayer) -> None:
    """Two exchanges that are each other's alternates."""
    for name, other in (("x", "y"), ("y", "x")):
        play.ask(
            "exchange.declare",
            exchange=play.name(name),
            type="direct",
            arguments={"alternate-exchange": play.name(other)},
        )
    play.publish("k", exchange=play.name("x"), mandatory=1)


def alternate_of_wrong_type(play: MethodPlayer) -> None:
    """An alternate exchange that is a number."""
    play.ask(
        "exchange.declare",
        exchange=play.name("x"),
        type="direct",
        arguments={"alternate-exchange": 1},
    )


# -- routing ---------------------------------------------------------------------------------------


def _routes(
    play: MethodPlayer,
    kind: str,
    bindings: Mapping[str, tuple[str, Mapping[str, Any]]],
    messages: tuple[tuple[str, Mapping[str, Any]], ...],
) -> None:
    """Bind a queue for each binding, publish, and record where messages went."""
    play.ask("exchange.declare", exchange=play.name("x"), type=kind)
    for name, (key, arguments) in bindings.items():
        play.ask("queue.declare", queue=play.name(name))
        play.ask(
            "queue.bind",
            queue=play.name(name),
            exchange=play.name("x"),
            routing_key=key,
            arguments=dict(arguments),
        )
    for key, headers in messages:
        play.publish(key, exchange=play.name("x"), properties={"headers": dict(headers)})
        for name in bindings:
            play.ask("queue.purge", queue=play.name(name))


def route_direct(play: MethodPlayer) -> None:
    """A direct exchange."""
    _routes(
        play,
        "direct",
        {"a": ("k", {}), "b": ("k", {}), "c": ("other", {}), "d": ("", {})},
        (("k", {}), ("other", {}), ("", {}), ("none", {})),
    )


def route_fanout(play: MethodPlayer) -> None:
    """A fanout exchange."""
    _routes(play, "fanout", {"a": ("k", {}), "b": ("", {})}, (("k", {}), ("other", {})))


def route_topic(play: MethodPlayer) -> None:
    """Patterns of a topic exchange."""
    patterns = ("#", "*", "a.#", "a.*", "#.a", "a.#.b", "*.*", "a..b", "", "a", "#.#", "*.#", "a*")
    keys = ("", "a", "b", "a.b", "b.a", "a.x.b", "a.b.b", ".", "a..b", "a.", ".a", "a*", "x.y.z")
    _routes(
        play,
        "topic",
        {f"q{number}": (each, {}) for number, each in enumerate(patterns)},
        tuple((each, {}) for each in keys),
    )


def route_headers(play: MethodPlayer) -> None:
    """Matches of a headers exchange."""
    _routes(
        play,
        "headers",
        {
            "all": ("", {"x-match": "all", "a": 1, "b": "two"}),
            "any": ("", {"x-match": "any", "a": 1, "b": "two"}),
            "default": ("", {"a": 1}),
            "void": ("", {"a": None}),
            "nothing": ("", {}),
            "any-nothing": ("", {"x-match": "any"}),
            "with-x": ("", {"x-match": "all-with-x", "x-a": 1}),
            "any-with-x": ("", {"x-match": "any-with-x", "x-a": 1, "b": "two"}),
            "ignores-x": ("", {"x-match": "all", "x-a": 1}),
            "wide": ("", {"a": ("l", 1)}),
            "half": ("", {"a": 1.0}),
            "truth": ("", {"t": True}),
        },
        (
            ("", {}),
            ("", {"a": 1}),
            ("", {"a": ("l", 1)}),
            ("", {"a": ("b", 1)}),
            ("", {"a": 1.0}),
            ("", {"a": "1"}),
            ("", {"a": 1, "b": "two"}),
            ("", {"b": "two"}),
            ("", {"x-a": 1}),
            ("", {"a": None}),
            ("", {"t": True}),
        ),
    )


def headers_match_unknown(play: MethodPlayer) -> None:
    """An x-match that means nothing."""
    play.ask("exchange.declare", exchange=play.name("x"), type="headers")
    play.ask("queue.declare", queue=play.name("q"))
    for value in ("some", 1):
        play.ask(
            "queue.bind",
            queue=play.name("q"),
            exchange=play.name("x"),
            arguments={"x-match": value, "a": 1},
        )


def several_bindings_one_copy(play: MethodPlayer) -> None:
    """A queue bound twice gets one copy."""
    play.ask("exchange.declare", exchange=play.name("x"), type="topic")
    play.ask("queue.declare", queue=play.name("q"))
    for key in ("#", "a", "#"):
        play.ask("queue.bind", queue=play.name("q"), exchange=play.name("x"), routing_key=key)
    play.publish("a", exchange=play.name("x"))
    play.has(play.name("q"), 1)
    play.ask("queue.unbind", queue=play.name("q"), exchange=play.name("x"), routing_key="#")
    play.publish("b", exchange=play.name("x"), mandatory=1)


# -- queues ----------------------------------------------------------------------------------------


def queue_declare(play: MethodPlayer) -> None:
    """New, again, passive."""
    play.ask("queue.declare", queue=play.name("q"), durable=1)
    play.ask("queue.declare", queue=play.name("q"), durable=1)
    play.ask("queue.declare", queue=play.name("q"), passive=1)
    play.publish(play.name("q"))
    play.has(play.name("q"), 1)
    play.ask("queue.declare", queue=play.name("q"), passive=1)


def queue_generated_name(play: MethodPlayer) -> None:
    """A queue without a name, and methods that mean it by none."""
    play.ask("queue.declare", exclusive=1)
    play.ask("queue.bind", exchange="amq.fanout")
    play.ask("queue.purge")
    play.ask("basic.get", no_ack=1)
    play.ask("queue.declare", passive=1)
    play.ask("queue.delete")


def queue_generated_prefix(play: MethodPlayer) -> None:
    """The prefix of queue names made by the broker."""
    play.tell("queue.declare", exclusive=1)
    line = play._line("a", 1)
    frame = line.frame(30.0)
    assert frame is not None
    size = frame[2][4]
    play.note(frame[2][5 : 5 + size].decode()[:4])


def no_queue_on_channel(play: MethodPlayer) -> None:
    """Methods without a queue's name where none was declared."""
    for name in ("queue.bind", "queue.unbind", "queue.purge", "queue.delete"):
        more = {"exchange": "amq.direct"} if "bind" in name else {}
        play.ask(name, **more)
    play.ask("basic.get")
    play.ask("basic.consume")
    play.ask("queue.declare", passive=1)


def queue_passive_missing(play: MethodPlayer) -> None:
    """Passive, of a queue that is not there."""
    play.ask("queue.declare", queue=play.name("none"), passive=1)


def queue_passive_other(play: MethodPlayer) -> None:
    """Passive, with other flags than it has."""
    play.ask("queue.declare", queue=play.name("q"))
    play.ask(
        "queue.declare", queue=play.name("q"), passive=1, durable=1, arguments={"x-expires": 1}
    )


def queue_redeclare(play: MethodPlayer) -> None:
    """With each thing different."""
    play.ask("queue.declare", queue=play.name("q"))
    for other in (
        {"durable": 1},
        {"exclusive": 1},
        {"auto_delete": 1},
        {"arguments": {"x-message-ttl": 1000}},
        {"arguments": {"x-max-length": 1}},
        {"arguments": {"x-dead-letter-exchange": "amq.fanout"}},
    ):
        play.ask("queue.declare", queue=play.name("q"), **other)


def queue_redeclare_arguments(play: MethodPlayer) -> None:
    """With equal arguments of other tags, other values, more and fewer of them."""
    given = {"x-message-ttl": 60000, "x-max-length": 10, "x-mine": "a"}
    play.ask("queue.declare", queue=play.name("q"), arguments=given)
    play.ask("queue.declare", queue=play.name("q"), arguments=given)
    for other in (
        {**given, "x-message-ttl": ("l", 60000)},
        {**given, "x-message-ttl": 60001},
        {**given, "x-mine": "b"},
        {**given, "x-overflow": "drop-head"},
        {"x-message-ttl": 60000, "x-max-length": 10},
        {"x-message-ttl": 60000},
    ):
        play.ask("queue.declare", queue=play.name("q"), arguments=other)


def queue_reserved(play: MethodPlayer) -> None:
    """Names that begin with amq."""
    play.ask("queue.declare", queue="amq.mine")
    play.ask("queue.declare", queue="amq.mine", passive=1)
    play.ask("queue.delete", queue="amq.mine")


def queue_names(play: MethodPlayer) -> None:
    """Names with blanks, umlauts, and long ones."""
    play.ask("queue.declare", queue=play.name("with blank"))
    play.ask("queue.declare", queue=play.name("n\u00e4h"))
    play.ask("queue.declare", queue=play.name("").ljust(128, "x"))
    play.ask("queue.declare", queue=play.name("a@b"))


def _refused(play: MethodPlayer, name: str, *values: Any) -> None:
    for value in values:
        play.ask("queue.declare", queue=play.name("q"), arguments={name: value})


def argument_message_ttl(play: MethodPlayer) -> None:
    """x-message-ttl that is no number, negative, too large."""
    _refused(play, "x-message-ttl", "1000", -1, True, 1.5, ("l", 1 << 40), None)


def argument_expires(play: MethodPlayer) -> None:
    """x-expires that is no number, 0, negative, too large."""
    _refused(play, "x-expires", "1000", 0, -1, ("l", 1 << 40))


def argument_max_length(play: MethodPlayer) -> None:
    """x-max-length that is no number, or negative."""
    _refused(play, "x-max-length", "10", -1, 1.0)


def argument_max_length_bytes(play: MethodPlayer) -> None:
    """x-max-length-bytes that is no number, or negative."""
    _refused(play, "x-max-length-bytes", "10", -1)


def argument_overflow(play: MethodPlayer) -> None:
    """x-overflow with other words."""
    _refused(play, "x-overflow", "nonsense", 1)


def argument_dead_letters(play: MethodPlayer) -> None:
    """Dead-letter arguments of wrong types, and a key without an exchange."""
    _refused(play, "x-dead-letter-exchange", 1)
    _refused(play, "x-dead-letter-routing-key", "key", 1)


def argument_max_priority(play: MethodPlayer) -> None:
    """x-max-priority out of its range."""
    _refused(play, "x-max-priority", -1, 256, "5")


def argument_single_active_consumer(play: MethodPlayer) -> None:
    """x-single-active-consumer that is no truth."""
    _refused(play, "x-single-active-consumer", "yes", 1)


def argument_queue_mode(play: MethodPlayer) -> None:
    """x-queue-mode with other words."""
    _refused(play, "x-queue-mode", "nonsense", 1)


def argument_queue_type(play: MethodPlayer) -> None:
    """x-queue-type with other words."""
    _refused(play, "x-queue-type", "nonsense", 1)


def argument_delivery_limit(play: MethodPlayer) -> None:
    """x-delivery-limit of a quorum queue that is no number, or negative."""
    for value in ("3", -1):
        play.ask(
            "queue.declare",
            queue=play.name("q"),
            durable=1,
            arguments={"x-queue-type": "quorum", "x-delivery-limit": value},
        )


def quorum_queue_flags(play: MethodPlayer) -> None:
    """A quorum queue that is transient, exclusive, auto-delete; and a good one."""
    quorum = {"x-queue-type": "quorum"}
    play.ask("queue.declare", queue=play.name("q"), arguments=quorum)
    play.ask("queue.declare", queue=play.name("q"), durable=1, exclusive=1, arguments=quorum)
    play.ask("queue.declare", queue=play.name("q"), durable=1, auto_delete=1, arguments=quorum)
    play.ask("queue.declare", queue=play.name("q"), durable=1, arguments=quorum)
    play.ask("queue.declare", queue=play.name("q"), durable=1)
    play.ask("queue.delete", queue=play.name("q"))


def quorum_queue_arguments(play: MethodPlayer) -> None:
    """Arguments that quorum queues have not."""
    for name, value in (("x-max-priority", 5), ("x-queue-mode", "lazy")):
        play.ask(
            "queue.declare",
            queue=play.name(name),
            durable=1,
            arguments={"x-queue-type": "quorum", name: value},
        )


def stream_queue(play: MethodPlayer) -> None:
    """A queue of type stream."""
    play.ask("queue.declare", queue=play.name("q"), durable=1, arguments={"x-queue-type": "stream"})


def exclusive_queue_elsewhere(play: MethodPlayer) -> None:
    """Everything that another connection may try with an exclusive queue."""
    name = play.name("q")
    play.ask("queue.declare", queue=name, exclusive=1)
    play.ask("queue.declare", queue=name, exclusive=1, on="b")
    play.ask("queue.declare", queue=name, passive=1, on="b")
    play.ask("queue.bind", queue=name, exchange="amq.fanout", routing_key="k", on="b")
    play.ask("queue.unbind", queue=name, exchange="amq.fanout", routing_key="k", on="b")
    play.ask("queue.purge", queue=name, on="b")
    play.ask("queue.delete", queue=name, on="b")
    play.ask("basic.get", queue=name, on="b")
    play.ask("basic.consume", queue=name, consumer_tag="c", on="b")
    play.publish(name, on="b", mandatory=1)
    play.get(name)


def exclusive_queue_goes(play: MethodPlayer) -> None:
    """It goes with its connection."""
    play.ask("queue.declare", queue=play.name("q"), exclusive=1, durable=1)
    play.tell("connection.close", channel=0, reply_code=200)
    play.read()
    play.gone(play.name("q"))


def auto_delete_queue(play: MethodPlayer) -> None:
    """It goes with its last consumer, and not before it had one."""
    name = play.name("q")
    play.ask("queue.declare", queue=name, auto_delete=1)
    play.get(name)
    for tag in ("c1", "c2"):
        play.ask("basic.consume", queue=name, consumer_tag=tag)
    play.ask("basic.cancel", consumer_tag="c1")
    play.ask("queue.declare", queue=name, passive=1)
    play.ask("basic.cancel", consumer_tag="c2")
    play.gone(name)


def queue_delete(play: MethodPlayer) -> None:
    """With messages, and once more."""
    play.ask("queue.declare", queue=play.name("q"))
    for _ in range(3):
        play.publish(play.name("q"))
    play.has(play.name("q"), 3)
    play.ask("queue.delete", queue=play.name("q"))
    play.ask("queue.delete", queue=play.name("q"))


def queue_delete_if_empty(play: MethodPlayer) -> None:
    """If empty, with a message and without."""
    play.ask("queue.declare", queue=play.name("q"))
    play.publish(play.name("q"))
    play.has(play.name("q"), 1)
    play.ask("queue.delete", queue=play.name("q"), if_empty=1)
    play.ask("queue.purge", queue=play.name("q"))
    play.ask("queue.delete", queue=play.name("q"), if_empty=1)


def queue_delete_if_unused(play: MethodPlayer) -> None:
    """If unused, with a consumer and without."""
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("basic.consume", queue=play.name("q"), consumer_tag="c", channel=2)
    play.ask("queue.delete", queue=play.name("q"), if_unused=1)
    play.ask("basic.cancel", consumer_tag="c", channel=2)
    play.ask("queue.delete", queue=play.name("q"), if_unused=1)


def queue_delete_with_consumer(play: MethodPlayer) -> None:
    """A consumer of a deleted queue hears of it if it understands."""
    play.log_in(capabilities={"consumer_cancel_notify": True})
    for on in ("a", "b"):
        play.ask("queue.declare", queue=play.name(on))
        play.ask("basic.consume", queue=play.name(on), consumer_tag="c", on=on)
        play.ask("queue.delete", queue=play.name(on), on="z")
    play.read(1)
    play.ask("basic.qos", on="b")


def queue_purge(play: MethodPlayer) -> None:
    """A purge removes ready messages and leaves held ones."""
    name = play.name("q")
    play.ask("queue.declare", queue=name)
    for number in range(3):
        play.publish(name, b"%d" % number)
    play.has(name, 3)
    play.get(name, no_ack=0)
    play.ask("queue.purge", queue=name)
    play.ask("basic.reject", delivery_tag=1, requeue=1)
    play.has(name, 1)
    play.ask("queue.purge", queue=play.name("none"))


def queue_nowait(play: MethodPlayer) -> None:
    """Every nowait form of the class."""
    name = play.name("q")
    play.ask("queue.declare", queue=name, nowait=1)
    play.ask("queue.bind", queue=name, exchange="amq.fanout", nowait=1)
    play.ask("queue.purge", queue=name, nowait=1)
    play.ask("queue.delete", queue=name, nowait=1)
    play.ask("queue.declare", queue=name, passive=1)
    play.ask("queue.declare", queue=play.name("none"), passive=1, nowait=1)


def queue_bind_missing(play: MethodPlayer) -> None:
    """Queue or exchange are not there."""
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("queue.bind", queue=play.name("none"), exchange="amq.direct", routing_key="k")
    play.ask("queue.bind", queue=play.name("q"), exchange=play.name("none"), routing_key="k")
    play.ask("queue.unbind", queue=play.name("none"), exchange="amq.direct", routing_key="k")
    play.ask("queue.unbind", queue=play.name("q"), exchange=play.name("none"), routing_key="k")
    play.ask("queue.unbind", queue=play.name("q"), exchange="amq.direct", routing_key="k")


def queue_bind_default(play: MethodPlayer) -> None:
    """The default exchange."""
    play.ask("queue.declare", queue=play.name("q"))
    play.ask("queue.bind", queue=play.name("q"), exchange="", routing_key="k")
    play.ask("queue.unbind", queue=play.name("q"), exchange="", routing_key="k")


def queue_bind_transient_to_durable(play: MethodPlayer) -> None:
    """Queues and exchanges of unlike durability."""
    for durable in (0, 1):
        play.ask("queue.declare", queue=play.name(f"q{durable}"), durable=durable)
        play.ask(
            "exchange.declare", exchange=play.name(f"x{durable}"), type="fanout", durable=durable
        )
    for queue, exchange in (("q0", "x1"), ("q1", "x0")):
        play.ask("queue.bind", queue=play.name(queue), exchange=play.name(exchange))


def binding_with_argument(play: MethodPlayer) -> None:
    """Bindings that differ in their arguments are two."""
    play.ask("exchange.declare", exchange=play.name("x"), type="direct")
    play.ask("queue.declare", queue=play.name("q"))
    for arguments in ({}, {"a": 1}):
        play.ask(
            "queue.bind",
            queue=play.name("q"),
            exchange=play.name("x"),
            routing_key="k",
            arguments=arguments,
        )
    play.ask("queue.unbind", queue=play.name("q"), exchange=play.name("x"), routing_key="k")
    play.publish("k", exchange=play.name("x"), mandatory=1)
    play.get(play.name("q"))


def queue_and_exchange_of_one_name(play: MethodPlayer) -> None:
    """Two name spaces."""
    play.ask("exchange.declare", exchange=play.name("same"), type="direct")
    play.ask("queue.declare", queue=play.name("same"))
    play.ask("queue.bind", queue=play.name("same"), exchange=play.name("same"), routing_key="k")
    play.publish("k", exchange=play.name("same"))
    play.get(play.name("same"))
    play.ask("exchange.delete", exchange=play.name("same"))
    play.ask("queue.declare", queue=play.name("same"), passive=1)


TOPOLOGY_SEQUENCES: Final[tuple[Sequence09, ...]] = (
    exchange_types, exchange_unknown_type, exchange_plugin_type, exchange_without_type,
    exchange_passive_missing, exchange_passive_other, exchange_redeclare,
    exchange_unknown_argument, exchange_reserved, exchange_predeclared, exchange_default,
    exchange_names, exchange_delete, exchange_delete_if_unused, exchange_delete_if_unused_source,
    exchange_auto_delete, exchange_nowait, exchange_nowait_error, exchange_internal,
    exchange_bind_missing, exchange_bind_default, exchange_unbind_missing, exchange_cycle,
    alternate_exchange, alternate_missing, alternate_cycle, alternate_of_wrong_type,
    route_direct, route_fanout, route_topic, route_headers, headers_match_unknown,
    several_bindings_one_copy, queue_declare, queue_generated_name, queue_generated_prefix,
    no_queue_on_channel, queue_passive_missing, queue_passive_other, queue_redeclare,
    queue_redeclare_arguments, queue_reserved, queue_names, argument_message_ttl,
    argument_expires, argument_max_length, argument_max_length_bytes, argument_overflow,
    argument_dead_letters, argument_max_priority, argument_single_active_consumer,
    argument_queue_mode, argument_queue_type, argument_delivery_limit, quorum_queue_flags,
    quorum_queue_arguments, stream_queue, exclusive_queue_elsewhere, exclusive_queue_goes,
    auto_delete_queue, queue_delete, queue_delete_if_empty, queue_delete_if_unused,
    queue_delete_with_consumer, queue_purge, queue_nowait, queue_bind_missing,
    queue_bind_default, queue_bind_transient_to_durable, binding_with_argument,
    queue_and_exchange_of_one_name,
)  # fmt: skip
