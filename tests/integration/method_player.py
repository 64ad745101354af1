# SPDX-License-Identifier: Apache-2.0
"""Sequences of AMQP 0-9-1 methods played to a broker, and a record of its answers.

A `MethodPlayer` writes and reads frames by `tests.support.plain_amqp09`, which shares no code with
amqproute. It records each line that it sends (``>``) and each answer (``<``) in a form that two
brokers have in common: names that the broker makes, times and reply texts are left out.

`MethodPlayer.ask` needs no timeouts to know that an answer is complete. Most methods have one that
answers them. Behind the others it cancels a consumer that is not there: what the broker says before
the cancel-ok is the answer. Deliveries, returns and confirms come when they come, and are waited
for by their number.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from tests.support.patience import PATIENCE
from tests.support.plain_amqp09 import (
    FACTS,
    FLAGS,
    IDS,
    NAMES,
    Pairs,
    frame_octets,
    header,
    header_octets,
    method,
    method_octets,
)

__all__ = ["Broker", "MethodPlayer", "Sequence09", "play_all", "table"]

REPLIES: Final[Mapping[str, frozenset[str]]] = {
    f"{each['name']}.{method[0]}": frozenset(f"{each['name']}.{name}" for name in method[3])
    for each in FACTS["classes"]
    for method in each["methods"]
}
"""The methods that answer a method."""
HEADER_0_9_1: Final = b"AMQP\x00\x00\x09\x01"
SILENCE_SECONDS: Final = 8.0  # RabbitMQ ends a connection that is not open after 3
"""After so long without an expected answer the record says that nothing came."""
ANSWER_SECONDS: Final = 60.0
"""Of a method that every broker answers."""
FENCE: Final = "side-by-side-fence"
"""A consumer that nobody has."""
GENERATED: Final = re.compile(
    r"(?:amq\.)?(?:gen|ctag)-[^\s',)\]]+|(?<=amq\.rabbitmq\.reply-to\.)(?!nobody)[^\s',)\]]+"
)
UNSPOKEN: Final = frozenset(("reply-text", "channel-id", "cluster-id", "class-id", "method-id"))
WORKERS: Final = 8


class Broker(NamedTuple):
    """A broker's address without TLS, and a user with all rights."""

    port: int
    user: str
    password: str


class NothingCameError(Exception):
    """There is no frame in time."""


def table(values: Mapping[str, Any]) -> Pairs:
    """Return a field table: the tags that most clients give to values of Python."""
    return [(name, *_tagged(value)) for name, value in values.items()]


def _tagged(value: Any) -> tuple[str, Any]:
    if isinstance(value, tuple):
        return value[0], value[1]  # with its tag
    if isinstance(value, bool):
        return "t", int(value)
    if isinstance(value, int):
        return "I", value
    if isinstance(value, float):
        return "d", value
    if isinstance(value, str):
        return "S", value.encode()
    if isinstance(value, list):
        return "A", [_tagged(each) for each in value]
    if isinstance(value, dict):
        return "F", table(value)
    assert value is None
    return "V", None


class _Line:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = b""
        self.channels: set[int] = set()

    def close(self) -> None:
        self._socket.close()

    def send(self, octets: bytes) -> None:
        try:
            self._socket.sendall(octets)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what the broker has said before is still to be read

    def octets(self, count: int, seconds: float) -> bytes:
        """Return this many octets; fewer at the end of the connection."""
        end = time.monotonic() + seconds
        while len(self._input) < count:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                raise NothingCameError
            try:
                more = self._socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                break
            self._input += more
        taken, self._input = self._input[:count], self._input[count:]
        return taken

    def frame(self, seconds: float) -> tuple[int, int, bytes] | None:
        """Return the next frame but heartbeats; None at the end of the connection."""
        head = self.octets(7, seconds)
        if len(head) < 7:
            return None
        size = int.from_bytes(head[3:], "big")
        payload = self.octets(size + 1, ANSWER_SECONDS)
        assert payload[-1:] == b"\xce", payload
        return head[0], int.from_bytes(head[1:3], "big"), payload[:-1]


class MethodPlayer:
    """A client, with as many connections and channels as a sequence names.

    A connection is opened when it is first named, and so is a channel. What the broker closes is
    answered, and opened again when it is named the next time.

    Attributes:
        broker: the other side.
        record: what was sent and answered, in lines.
        hidden: what the names of table entries begin with that are left out of the record.
        properties: of the content that was read last.
    """

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.broker = broker
        self.record: list[str] = []
        self.hidden: tuple[str, ...] = ()
        self.properties: dict[str, Any] = {}
        self._prefix = prefix
        self._lines: dict[str, _Line] = {}

    def name(self, text: str) -> str:
        """Return a name that no other sequence has."""
        return self._prefix + text

    def close(self) -> None:
        """Leave all connections."""
        for line in self._lines.values():
            line.close()

    def note(self, text: str) -> None:
        """Add a line to the record."""
        self.record.append(text)

    # -- connections -------------------------------------------------------------------------------

    def connect(
        self, on: str = "a", *, greet: bytes = HEADER_0_9_1, start: bool = True
    ) -> dict[str, Any]:
        """Connect and read connection.start; return its arguments."""
        line = self._lines[on] = _Line(self.broker.port)
        line.send(greet)
        if not start:
            return {}
        found = line.frame(ANSWER_SECONDS)
        assert found is not None
        return method(found[2])[1]

    def start_ok(
        self,
        on: str = "a",
        password: str | None = None,
        mechanism: str = "PLAIN",
        capabilities: Mapping[str, bool] | None = None,
    ) -> None:
        """Answer connection.start."""
        secret = self.broker.password if password is None else password
        properties = {"capabilities": dict(capabilities)} if capabilities else {}
        self.tell(
            "connection.start-ok",
            on=on,
            channel=0,
            client_properties=table(properties),
            mechanism=mechanism,
            response=f"\0{self.broker.user}\0{secret}".encode(),
            locale="en_US",
            quiet=True,
        )

    def log_in(
        self,
        on: str = "a",
        capabilities: Mapping[str, bool] | None = None,
        tune: Mapping[str, int] | None = None,
        virtual_host: str | None = "/",
    ) -> dict[str, Any]:
        """Connect, log in, and open a virtual host unless None; return the limits offered."""
        self.connect(on)
        self.start_ok(on, capabilities=capabilities)
        line = self._lines[on]
        found = line.frame(ANSWER_SECONDS)
        assert found is not None
        offered = method(found[2])[1]
        limits = {**offered, "heartbeat": 0, **(tune or {})}
        line.send(_method(0, "connection.tune-ok", limits))
        if virtual_host is not None:
            line.send(_method(0, "connection.open", {"virtual-host": virtual_host}))
            opened = line.frame(ANSWER_SECONDS)
            assert opened is not None
            assert method(opened[2])[0] == "connection.open-ok", method(opened[2])
        return offered

    def _line(self, on: str, channel: int) -> _Line:
        if on not in self._lines:
            self.log_in(on)
        line = self._lines[on]
        if channel and channel not in line.channels:
            line.send(_method(channel, "channel.open", {}))
            found = line.frame(ANSWER_SECONDS)
            assert found is not None
            assert method(found[2])[0] == "channel.open-ok", method(found[2])
            line.channels.add(channel)
        return line

    # -- sending -----------------------------------------------------------------------------------

    def octets(self, octets: bytes, words: str, on: str = "a", channel: int = 0) -> None:
        """Send octets as they are; `channel` is opened before."""
        line = self._line(on, channel)
        self.note(f"{on}{channel} > {words}")
        line.send(octets)

    def tell(
        self,
        name: str,
        /,
        *,
        on: str = "a",
        channel: int = 1,
        opened: bool = True,
        quiet: bool = False,
        **arguments: Any,
    ) -> None:
        """Send a method, and read no answer.

        Args:
            name: of the method.
            on: the connection.
            channel: the channel.
            opened: have the channel opened before.
            quiet: leave it out of the record.
            arguments: of the method, with underscores; a dictionary is a table.
        """
        given = {
            key.replace("_", "-"): table(value) if isinstance(value, dict) else value
            for key, value in arguments.items()
        }
        line = self._line(on, channel) if opened and channel else self._lines[on]
        if not quiet:
            self.note(f"{on}{channel} > {self._words(name, given)}")
        line.send(_method(channel, name, given))

    def ask(self, name: str, /, *, on: str = "a", channel: int = 1, **arguments: Any) -> None:
        """Send a method on a channel, and record all that is answered to it."""
        self.tell(name, on=on, channel=channel, **arguments)
        if not REPLIES[name] or arguments.get("nowait"):
            self.fence(on, channel)
            return
        line = self._lines[on]
        while self._lines.get(on) is line and channel in line.channels:
            if self._take(on, ANSWER_SECONDS) in REPLIES[name]:
                return

    def fence(self, on: str = "a", channel: int = 1) -> None:
        """Record all that comes until the broker has acted on everything on a channel."""
        line = self._line(on, channel)
        line.send(_method(channel, "basic.cancel", {"consumer-tag": FENCE}))
        while self._lines.get(on) is line and channel in line.channels:
            if self._take(on, ANSWER_SECONDS) == FENCE:
                return

    def publish(
        self,
        key: str,
        body: bytes = b"x",
        *,
        on: str = "a",
        channel: int = 1,
        fence: bool = True,
        properties: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Publish a content, by default to the default exchange."""
        line = self._line(on, channel)
        given = {"routing-key": key, **arguments}
        found = {
            name: table(value) if isinstance(value, dict) else value
            for name, value in (properties or {}).items()
        }
        words = self._words("basic.publish", given)
        self.note(f"{on}{channel} > {words}{self._content(found, body)}")
        line.send(_content_octets(channel, given, found, body))
        if fence:
            self.fence(on, channel)

    # -- reading -----------------------------------------------------------------------------------

    def read(self, count: int = 1, on: str = "a", within: float = SILENCE_SECONDS) -> None:
        """Record this many answers; less where nothing comes in time, or the connection ends."""
        for _ in range(count):
            if on not in self._lines:
                return
            try:
                self._take(on, within)
            except NothingCameError:
                self.note(f"{on} < nothing")
                return

    def header(self, on: str = "a") -> None:
        """Record a protocol header, and what comes behind it."""
        octets = self._lines[on].octets(8, ANSWER_SECONDS)
        self.note(f"{on} < {octets!r}")
        self.read(1, on)

    def confirms(self, last: int, first: int = 1, on: str = "a", channel: int = 1) -> None:
        """Read until each publish between two numbers has its confirm; record what it is."""
        line = self._line(on, channel)
        found: dict[int, str] = {}
        while len(found) <= last - first:
            try:
                frame = line.frame(SILENCE_SECONDS)
            except NothingCameError:
                break
            if frame is None:
                break
            if frame[0] != 1 or method(frame[2])[0] not in ("basic.ack", "basic.nack"):
                self._tell_frame(on, line, frame)
                if channel not in line.channels:
                    break
                continue
            name, given = method(frame[2])
            tag = given["delivery-tag"]
            for each in range(first if given["multiple"] else tag, tag + 1):
                found.setdefault(each, name.partition(".")[2])
        words = ", ".join(f"{tag} {name}" for tag, name in sorted(found.items()))
        self.note(f"{on}{channel} < confirms: {words or 'none'}")

    def get(self, queue: str, *, on: str = "a", channel: int = 1, no_ack: int = 1) -> None:
        """Take a message off a queue."""
        self.ask("basic.get", on=on, channel=channel, queue=queue, no_ack=no_ack)

    def has(self, queue: str, count: int, on: str = "z") -> None:
        """Wait until a queue has this many messages that are ready; record how many it has."""
        line = self._line(on, 1)
        end = time.monotonic() + SILENCE_SECONDS
        ready = -1
        while ready != count and time.monotonic() < end:
            line.send(_method(1, "queue.declare", {"queue": queue, "passive": 1}))
            frame = line.frame(ANSWER_SECONDS)
            assert frame is not None
            name, given = method(frame[2])
            if name != "queue.declare-ok":
                self._tell_frame(on, line, frame)
                return
            ready = given["message-count"]
            if ready != count:
                time.sleep(0.02)
        self.note(f"{self._short(queue)} has {ready}")

    def gone(self, queue: str, on: str = "z") -> None:
        """Wait until there is no such queue; record whether there is."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            line = self._line(on, 1)
            line.send(_method(1, "queue.declare", {"queue": queue, "passive": 1}))
            frame = line.frame(ANSWER_SECONDS)
            assert frame is not None
            name, given = method(frame[2])
            if name == "channel.close":
                line.send(_method(1, "channel.close-ok", {}))
                line.channels.discard(1)
                self.note(f"{self._short(queue)} answers {given['reply-code']}")
                return
            time.sleep(0.02)
        self.note(f"{self._short(queue)} is there")

    def _take(self, on: str, seconds: float) -> str:
        """Record one frame, or a whole content; return the method's name."""
        line = self._lines[on]
        return self._tell_frame(on, line, line.frame(seconds))

    def _tell_frame(
        self,
        on: str,
        line: _Line,
        frame: tuple[int, int, bytes] | None,
    ) -> str:
        if frame is None:
            self.note(f"{on} < end")
            self._lines.pop(on).close()
            return ""
        kind, channel, payload = frame
        if kind == 8:
            self.note(f"{on}{channel} < heartbeat")
            return ""
        name, arguments = method(payload)
        if name == "basic.cancel-ok" and arguments["consumer-tag"] == FENCE:
            return FENCE
        words = self._words(name, arguments)
        if name.endswith(".close"):
            cause = NAMES.get((arguments["class-id"], arguments["method-id"]), "-")
            words = f"{name} {arguments['reply-code']} {cause}"
        elif "content" in FLAGS[name]:
            words += self._read_content(line)
        self.note(f"{on}{channel} < {words}")
        if name == "channel.close":
            line.send(_method(channel, "channel.close-ok", {}))
            line.channels.discard(channel)
        elif name == "channel.close-ok":
            line.channels.discard(channel)
        elif name == "connection.close":
            line.send(_method(0, "connection.close-ok", {}))
            self.read(1, on)
        elif name == "connection.close-ok":
            self._lines.pop(on).close()
        return name

    def _read_content(self, line: _Line) -> str:
        frame = line.frame(ANSWER_SECONDS)
        assert frame is not None
        _, size, properties = header(frame[2])
        self.properties = properties
        body = b""
        while len(body) < size:
            frame = line.frame(ANSWER_SECONDS)
            assert frame is not None
            body += frame[2]
        return self._content(properties, body)

    # -- words -------------------------------------------------------------------------------------

    def _short(self, text: str) -> str:
        text = text.replace(self._prefix, "~").replace(f"id={self.broker.user}", "id=USER")
        return GENERATED.sub("GENERATED", text)

    def _words(self, name: str, arguments: Mapping[str, Any]) -> str:
        words = [name]
        for field, value in arguments.items():
            if field in UNSPOKEN or value in ("", b"", []):
                continue
            if isinstance(value, list):
                words.append(f"{field}={{{self._pairs(value)}}}")
            elif isinstance(value, bytes):
                words.append(f"{field}={value!r}")
            else:
                words.append(f"{field}={value}")
        return self._short(" ".join(words))

    def _content(self, properties: Mapping[str, Any], body: bytes) -> str:
        words = ", ".join(
            f"{name}={{{self._pairs(value)}}}" if isinstance(value, list) else f"{name}={value}"
            for name, value in sorted(properties.items())
        )
        text = repr(body) if len(body) < 100 else f"{len(body)} octets"
        return self._short(f" ({words}) {text}")

    def _pairs(self, pairs: Pairs) -> str:
        return ", ".join(
            f"{name}:{self._value(tag, value)}"
            for name, tag, value in sorted(pairs)
            if not name.startswith(self.hidden)
        )

    def _value(self, tag: str, value: Any) -> str:
        if tag == "T":
            return "T"  # when, which is never the same
        if tag == "F":
            return f"{{{self._pairs(value)}}}"
        if tag == "A":
            return f"[{', '.join(self._value(*each) for each in value)}]"
        if tag == "S":
            return str(value.decode("utf-8", "replace"))
        return f"{tag} {value}"


Sequence09 = Callable[[MethodPlayer], None]
"""A client's methods, step by step."""


def _method(channel: int, name: str, arguments: Mapping[str, Any]) -> bytes:
    assert name in IDS, name
    return frame_octets(1, channel, method_octets(name, dict(arguments)))


def _content_octets(
    channel: int, arguments: Mapping[str, Any], properties: Mapping[str, Any], body: bytes
) -> bytes:
    octets = _method(channel, "basic.publish", arguments)
    octets += frame_octets(2, channel, header_octets(60, len(body), dict(properties)))
    for at in range(0, len(body), 131064):
        octets += frame_octets(3, channel, body[at : at + 131064])
    return octets


def _play(broker: Broker, number: int, sequence: Sequence09) -> list[str]:
    player = MethodPlayer(broker, f"s{number}.")
    try:
        sequence(player)
    except (AssertionError, NothingCameError, OSError) as error:
        player.note(f"broken off: {type(error).__name__} {str(error)[:200]}")
    finally:
        player.close()
    return player.record


def play_all(broker: Broker, sequences: Mapping[str, Sequence09]) -> dict[str, list[str]]:
    """Play each sequence to a broker, several at a time; return the records by name."""
    with ThreadPoolExecutor(WORKERS) as pool:
        records = pool.map(
            lambda item: _play(broker, item[0], item[1]), enumerate(sequences.values())
        )
        return dict(zip(sequences, records, strict=True))
