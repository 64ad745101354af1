# SPDX-License-Identifier: Apache-2.0
"""Sequences on connections, channels and frames."""

from __future__ import annotations

import struct
from typing import Final

from tests.integration.method_player import ANSWER_SECONDS, MethodPlayer, Sequence09
from tests.support.plain_amqp09 import (
    frame_octets,
    header_octets,
    method_octets,
)

__all__ = ["WIRE_SEQUENCES"]

PUBLISH: Final = method_octets("basic.publish", routing_key="nowhere")


# -- connection ------------------------------------------------------------------------------------


def start_method(play: MethodPlayer) -> None:
    """Version, mechanisms and locales of connection.start."""
    found = play.connect()
    play.note(f"version {found['version-major']}-{found['version-minor']}")
    play.note(f"mechanisms {sorted(found['mechanisms'].split())}, locales {found['locales']!r}")


def server_capabilities(play: MethodPlayer) -> None:
    """Capabilities in connection.start."""
    properties = {name: value for name, _, value in play.connect()["server-properties"]}
    for name, tag, value in sorted(properties["capabilities"]):
        play.note(f"{name}:{tag} {value}")


def header_of_0_9(play: MethodPlayer) -> None:
    """AMQP 1 1 0 9."""
    found = play.connect(greet=b"AMQP\x01\x01\x00\x09")
    play.note(f"version {found['version-major']}-{found['version-minor']}")


def header_of_0_9_2(play: MethodPlayer) -> None:
    """AMQP 0 0 9 2."""
    play.connect(greet=b"AMQP\x00\x00\x09\x02", start=False)
    play.header()


def header_of_0_10(play: MethodPlayer) -> None:
    """AMQP 1 1 0 10."""
    play.connect(greet=b"AMQP\x01\x01\x00\x0a", start=False)
    play.header()


def header_of_http(play: MethodPlayer) -> None:
    """A request of HTTP."""
    play.connect(greet=b"GET / HTTP/1.1\r\n\r\n", start=False)
    play.header()


def wrong_password(play: MethodPlayer) -> None:
    """A wrong password, from a client without capabilities."""
    play.connect()
    play.start_ok(password="wrong")
    play.read(within=ANSWER_SECONDS)  # failed log-ins are held back, the longer the more there were


def wrong_password_with_capability(play: MethodPlayer) -> None:
    """A wrong password, from a client that has authentication_failure_close."""
    play.connect()
    play.start_ok(password="wrong", capabilities={"authentication_failure_close": True})
    play.read(within=ANSWER_SECONDS)


def unknown_mechanism(play: MethodPlayer) -> None:
    """A mechanism that was not offered."""
    play.connect()
    play.start_ok(mechanism="KERBEROS")
    play.read()


def limits_offered(play: MethodPlayer) -> None:
    """connection.tune."""
    found = play.log_in()
    play.note(f"frame-max {found['frame-max']}")
    play.note(f"channel-max {found['channel-max']}")
    play.note(f"heartbeat {found['heartbeat']}")


def unknown_virtual_host(play: MethodPlayer) -> None:
    """connection.open of a virtual host that is not there."""
    play.log_in(virtual_host=None)
    play.tell("connection.open", channel=0, virtual_host="nowhere")
    play.read()


def frame_max_below_4096(play: MethodPlayer) -> None:
    """A frame-max below the smallest there is."""
    play.log_in(tune={"frame-max": 100}, virtual_host=None)
    play.read()


def frame_max_above_offer(play: MethodPlayer) -> None:
    """A frame-max above the offer."""
    play.log_in(tune={"frame-max": 1 << 24}, virtual_host=None)
    play.read()


def channel_above_max(play: MethodPlayer) -> None:
    """A channel above the channel-max of tune-ok."""
    play.log_in(tune={"channel-max": 4})
    play.tell("channel.open", channel=4, opened=False)
    play.read()
    play.tell("channel.open", channel=5, opened=False)
    play.read()


def open_before_start_ok(play: MethodPlayer) -> None:
    """connection.open where start-ok is expected."""
    play.connect()
    play.tell("connection.open", channel=0, virtual_host="/")
    play.read()


def open_twice(play: MethodPlayer) -> None:
    """connection.open on an open connection."""
    play.log_in()
    play.tell("connection.open", channel=0, virtual_host="/")
    play.read()


def start_ok_again(play: MethodPlayer) -> None:
    """connection.start-ok on an open connection."""
    play.log_in()
    play.start_ok()
    play.read()


def connection_close(play: MethodPlayer) -> None:
    """A connection is closed by its client, with a channel open."""
    play.ask("basic.qos")
    play.tell("connection.close", channel=0, reply_code=200)
    play.read()


def heartbeats(play: MethodPlayer) -> None:
    """The server sends heartbeats, and the client none: it is left after two of its intervals."""
    play.log_in(tune={"heartbeat": 1})
    play.read()
    play.note("...")


def heartbeat_on_channel(play: MethodPlayer) -> None:
    """A heartbeat frame on channel 1."""
    play.octets(frame_octets(8, 1, b""), "heartbeat on channel 1", channel=1)
    play.read()


def heartbeat_with_payload(play: MethodPlayer) -> None:
    """A heartbeat frame that is not empty."""
    play.log_in()
    play.octets(frame_octets(8, 0, b"x"), "heartbeat with payload")
    play.read()


# -- channel ---------------------------------------------------------------------------------------


def method_without_channel(play: MethodPlayer) -> None:
    """A method on a channel that is not open."""
    play.log_in()
    play.tell("basic.qos", channel=7, opened=False)
    play.read()


def channel_open_twice(play: MethodPlayer) -> None:
    """channel.open on an open channel."""
    play.ask("basic.qos")
    play.tell("channel.open")
    play.read()


def channel_open_on_0(play: MethodPlayer) -> None:
    """channel.open on channel 0."""
    play.log_in()
    play.tell("channel.open", channel=0)
    play.read()


def queue_method_on_0(play: MethodPlayer) -> None:
    """A method of class queue on channel 0."""
    play.log_in()
    play.tell("queue.declare", channel=0, queue="x")
    play.read()


def connection_method_on_channel(play: MethodPlayer) -> None:
    """connection.close on a channel."""
    play.ask("basic.qos")
    play.tell("connection.close", channel=1)
    play.read()


def channel_close(play: MethodPlayer) -> None:
    """A channel is closed by its client, and its number used again."""
    play.ask("basic.qos")
    play.tell("channel.close", reply_code=200)
    play.read()
    play.ask("basic.qos")


def channel_close_of_missing(play: MethodPlayer) -> None:
    """channel.close on a channel that was never open."""
    play.log_in()
    play.tell("channel.close", channel=3, opened=False)
    play.read()


def channel_close_ok_unasked(play: MethodPlayer) -> None:
    """channel.close-ok without channel.close."""
    play.ask("basic.qos")
    play.tell("channel.close-ok")
    play.read()


def other_channels_stay(play: MethodPlayer) -> None:
    """An error on one channel leaves the others alone."""
    play.ask("basic.qos", channel=2)
    play.ask("queue.declare", queue=play.name("none"), passive=1, channel=1)
    play.ask("basic.qos", channel=2)


def flow_off(play: MethodPlayer) -> None:
    """channel.flow that asks the server to stop."""
    play.tell("channel.flow", active=0)
    play.read()


def flow_on(play: MethodPlayer) -> None:
    """channel.flow that asks the server to continue."""
    play.tell("channel.flow", active=1)
    play.read()


def access_request(play: MethodPlayer) -> None:
    """access.request, which 0-9-1 has removed."""
    play.octets(
        frame_octets(1, 1, method_octets("access.request", realm="/data", active=1)),
        "access.request",
        channel=1,
    )
    play.read()


# -- frames ----------------------------------------------------------------------------------------


def wrong_frame_end(play: MethodPlayer) -> None:
    """A frame with another octet at its end."""
    payload = method_octets("basic.qos")
    play.octets(frame_octets(1, 1, payload, end=0xCD), "qos, frame end 0xCD", channel=1)
    play.read()


def unknown_frame_type(play: MethodPlayer) -> None:
    """A frame of type 9."""
    play.octets(frame_octets(9, 1, b""), "frame of type 9", channel=1)
    play.read()


def frame_above_max(play: MethodPlayer) -> None:
    """A frame larger than frame-max."""
    play.log_in(tune={"frame-max": 4096})
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(frame_octets(2, 1, header_octets(60, 5000)), "header", channel=1)
    play.octets(frame_octets(3, 1, b"x" * 5000), "body of 5000", channel=1)
    play.read()


def header_without_method(play: MethodPlayer) -> None:
    """A content header without a method before it."""
    play.octets(frame_octets(2, 1, header_octets(60, 1)), "header", channel=1)
    play.read()


def body_without_header(play: MethodPlayer) -> None:
    """A body frame without a header before it."""
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(frame_octets(3, 1, b"x"), "body", channel=1)
    play.read()


def body_alone(play: MethodPlayer) -> None:
    """A body frame by itself."""
    play.octets(frame_octets(3, 1, b"x"), "body", channel=1)
    play.read()


def method_within_content(play: MethodPlayer) -> None:
    """A method where a content header is due."""
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.tell("basic.qos")
    play.read()


def method_within_body(play: MethodPlayer) -> None:
    """A method where a body is due."""
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(frame_octets(2, 1, header_octets(60, 10)), "header", channel=1)
    play.tell("basic.qos")
    play.read()


def content_on_other_channel(play: MethodPlayer) -> None:
    """Method on one channel, header on another one."""
    play.ask("basic.qos", channel=2)
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(frame_octets(2, 2, header_octets(60, 1)), "header", channel=2)
    play.read()


def content_of_other_class(play: MethodPlayer) -> None:
    """A content header of class tx."""
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(
        frame_octets(2, 1, struct.pack(">HHQH", 90, 0, 1, 0)), "header of class 90", channel=1
    )
    play.read()


def body_too_long(play: MethodPlayer) -> None:
    """A body longer than its header says."""
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(frame_octets(2, 1, header_octets(60, 1)), "header, 1 octet", channel=1)
    play.octets(frame_octets(3, 1, b"xyz"), "body of 3", channel=1)
    play.read()


def content_weight(play: MethodPlayer) -> None:
    """A content header whose weight is not 0."""
    play.octets(frame_octets(1, 1, PUBLISH), "publish", channel=1)
    play.octets(frame_octets(2, 1, header_octets(60, 1, weight=1)), "header, weight 1", channel=1)
    play.octets(frame_octets(3, 1, b"x"), "body", channel=1)
    play.read()


def body_in_parts(play: MethodPlayer) -> None:
    """A body in several frames, one of them empty."""
    name = play.name("q")
    play.ask("queue.declare", queue=name)
    publish = method_octets("basic.publish", routing_key=name)
    play.octets(frame_octets(1, 1, publish), "publish", channel=1)
    play.octets(frame_octets(2, 1, header_octets(60, 3)), "header, 3 octets", channel=1)
    for each in (b"a", b"", b"bc"):
        play.octets(frame_octets(3, 1, each), f"body {each!r}", channel=1)
    play.fence()
    play.get(name)


def contents_on_two_channels(play: MethodPlayer) -> None:
    """Two contents whose frames alternate."""
    name = play.name("q")
    play.ask("queue.declare", queue=name)
    play.ask("basic.qos", channel=2)
    publish = method_octets("basic.publish", routing_key=name)
    for part in (
        lambda channel: frame_octets(1, channel, publish),
        lambda channel: frame_octets(2, channel, header_octets(60, 2)),
        lambda channel: frame_octets(3, channel, b"ab"),
    ):
        for channel in (1, 2):
            play.octets(part(channel), "a frame", channel=channel)
    play.fence(channel=1)
    play.fence(channel=2)
    play.has(name, 2)


def unknown_class(play: MethodPlayer) -> None:
    """A method of class 200."""
    play.octets(frame_octets(1, 1, struct.pack(">HH", 200, 10)), "method 200.10", channel=1)
    play.read()


def unknown_method(play: MethodPlayer) -> None:
    """An unknown method of class basic."""
    play.octets(frame_octets(1, 1, struct.pack(">HH", 60, 99)), "method 60.99", channel=1)
    play.read()


def file_class(play: MethodPlayer) -> None:
    """A method of class file, which 0-9-1 has not."""
    octets = method_octets("file.qos")
    play.octets(frame_octets(1, 1, octets), "file.qos", channel=1)
    play.read()


def answer_from_client(play: MethodPlayer) -> None:
    """A method that only servers send."""
    play.tell("queue.declare-ok", queue="x")
    play.read()


def method_cut_short(play: MethodPlayer) -> None:
    """A method that ends within a field."""
    octets = method_octets("queue.declare", queue="some queue")[:12]
    play.octets(frame_octets(1, 1, octets), "queue.declare, cut", channel=1)
    play.read()


def table_with_unknown_tag(play: MethodPlayer) -> None:
    """A table whose value has the tag Z."""
    octets = method_octets("queue.declare", queue="q")[:-4] + struct.pack(">I", 3) + b"\1aZ"
    play.octets(frame_octets(1, 1, octets), "queue.declare, tag Z", channel=1)
    play.read()


def properties_cut_short(play: MethodPlayer) -> None:
    """Properties that end within a value."""
    play.ask("queue.declare", queue=play.name("q"))
    octets = method_octets("basic.publish", routing_key=play.name("q"))
    play.octets(frame_octets(1, 1, octets), "publish", channel=1)
    octets = struct.pack(">HHQH", 60, 0, 1, 0x8000) + b"\x20ab"
    play.octets(frame_octets(2, 1, octets), "header, cut", channel=1)
    play.octets(frame_octets(3, 1, b"x"), "body", channel=1)
    play.read()


WIRE_SEQUENCES: Final[tuple[Sequence09, ...]] = (
    start_method, server_capabilities, header_of_0_9, header_of_0_9_2, header_of_0_10,
    header_of_http, wrong_password, wrong_password_with_capability, unknown_mechanism,
    limits_offered, unknown_virtual_host, frame_max_below_4096, frame_max_above_offer,
    channel_above_max, open_before_start_ok, open_twice, start_ok_again, connection_close,
    heartbeats, heartbeat_on_channel, heartbeat_with_payload, method_without_channel,
    channel_open_twice, channel_open_on_0, queue_method_on_0, connection_method_on_channel,
    channel_close, channel_close_of_missing, channel_close_ok_unasked, other_channels_stay,
    flow_off, flow_on, access_request, wrong_frame_end, unknown_frame_type, frame_above_max,
    header_without_method, body_without_header, body_alone, method_within_content,
    method_within_body, content_on_other_channel, content_of_other_class, body_too_long,
    content_weight, body_in_parts, contents_on_two_channels, unknown_class, unknown_method,
    file_class, answer_from_client, method_cut_short, table_with_unknown_tag, properties_cut_short,
)  # fmt: skip
