# SPDX-License-Identifier: Apache-2.0
"""A client for the classes of AMQP 0-9 that no library speaks, to try them from a shell.

Run ``python amqp09_client.py amqp://USER:PASSWORD@HOST:PORT COMMAND ...`` where amqproute is
installed; ``amqps`` for TLS. ``--octets`` prints each frame that passes. It does one thing at a
time, waits for each answer, and shows in which order the methods of a class go; it is an example
and no library.

Commands::

    file put QUEUE PATH            stage a file in parts, and publish it; goes on where it was cut
    file get QUEUE DIRECTORY       have a file staged, write it there, and acknowledge it
    message put ADDRESS TEXT       transfer a text inline
    message send ADDRESS PATH      transfer a file by reference; goes on at its last checkpoint
    message get QUEUE              take one message, and print its fields and its body
    stream put QUEUE TEXT          publish a packet
    stream get QUEUE               print packets as they come
    tunnel send NODE TEXT          send a block of data to the consumers of a node
    tunnel receive NODE            print blocks as they come
    dtx start IDENTIFIER QUEUE TEXT   publish within a branch, which somebody else has to end
    call METHOD NAME=VALUE ...     send any method, and print what comes back
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from amqproute.wire.amqp09 import methods as m
from amqproute.wire.amqp09.arguments import (
    decode_method,
    decode_properties,
    encode_method,
    encode_properties,
)
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.shapes import AmqpMethod, ContentProperties, FieldKind, InlineBody
from amqproute.wire.amqp09.versions import ProtocolVersion

V09: Final = ProtocolVersion.V0_9
HEADER: Final = b"AMQP\x01\x01\x00\x09"
METHOD, CONTENT_HEADER, BODY = 1, 2, 3
PART: Final = 100_000
CHECKPOINT_EACH: Final = 10
"""Parts between two checkpoints of a reference."""


class RefusedError(Exception):
    """The broker has closed channel or connection; its reason is the text."""


class UsageError(Exception):
    """What was asked for makes no sense; the text says why."""


class Client09:
    """One connection with channel 1.

    Args:
        url: of the broker.
        shows_octets: print frames.
    """

    def __init__(self, url: str, shows_octets: bool = False) -> None:
        at = urlsplit(url)
        self._shows = shows_octets
        self._data = b""
        host, tls = at.hostname or "localhost", at.scheme == "amqps"
        plain = socket.create_connection((host, at.port or (5671 if tls else 5672)))
        self._socket: socket.socket = plain
        if tls:
            context = ssl.create_default_context(cafile=os.environ.get("AMQP_CA"))
            self._socket = context.wrap_socket(
                plain, server_hostname=os.environ.get("AMQP_NAME", host)
            )
        self._write(HEADER)
        self.take(m.ConnectionStart)
        secret = f"\0{unquote(at.username or 'guest')}\0{unquote(at.password or 'guest')}"
        # So that a refused log-in is answered, and not by the end of the connection alone.
        told = FieldTable({"authentication_failure_close": True})
        start = m.ConnectionStartOk(
            client_properties=FieldTable({"product": "amqp09_client.py", "capabilities": told}),
            mechanism="PLAIN",
            response=secret.encode(),
            locale="en_US",
        )
        tune = self.ask(start, m.ConnectionTune, channel=0)
        assert isinstance(tune, m.ConnectionTune)
        self.frame_max = tune.frame_max or 131_072
        self.send(m.ConnectionTuneOk(frame_max=self.frame_max), channel=0)
        self.ask(
            m.ConnectionOpen(virtual_host=unquote(at.path) or "/"), m.ConnectionOpenOk, channel=0
        )
        self.ask(m.ChannelOpen(), m.ChannelOpenOk)

    # -- frames ----------------------------------------------------------------------------------

    def _write(self, octets: bytes, what: str = "protocol header") -> None:
        if self._shows:
            print(f"-> {octets.hex(' ') if len(octets) <= 200 else _short(octets)}  {what}")
        self._socket.sendall(octets)

    def _frame(self, kind: int, payload: bytes, channel: int, what: str) -> None:
        head = bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
        self._write(head + payload + b"\xce", what)

    def _next(self) -> tuple[int, bytes]:
        while True:
            size = 8 + int.from_bytes(self._data[3:7], "big")
            if len(self._data) >= 7 and len(self._data) >= size:
                break
            more = self._socket.recv(1 << 18)
            if not more:
                raise RefusedError("the broker has closed the connection")
            self._data += more
        frame, self._data = self._data[:size], self._data[size:]
        if self._shows:
            what = ""
            if frame[0] == METHOD:
                what = decode_method(frame[7:-1], V09).traits.name
            print(f"<- {frame.hex(' ') if size <= 200 else _short(frame)}  {what}")
        return frame[0], frame[7:-1]

    # -- methods ---------------------------------------------------------------------------------

    def send(self, method: AmqpMethod, channel: int = 1) -> None:
        """Send a method."""
        self._frame(METHOD, encode_method(method, V09), channel, method.traits.name)

    def next_method(self) -> AmqpMethod:
        """Return the next method; heartbeats are passed over.

        Raises:
            RefusedError: it closes channel or connection.
        """
        kind, payload = self._next()
        while kind != METHOD:
            kind, payload = self._next()
        method = decode_method(payload, V09)
        if isinstance(method, m.ChannelClose | m.ConnectionClose):
            raise RefusedError(f"{method.reply_code} {method.reply_text}")
        return method

    def take(self, *kinds: type[AmqpMethod]) -> AmqpMethod:
        """Return the next method, which has to be one of these."""
        method = self.next_method()
        if not isinstance(method, kinds):
            raise RefusedError(f"{method.traits.name} came instead of {kinds[0].traits.name}")
        return method

    def ask(self, method: AmqpMethod, *answers: type[AmqpMethod], channel: int = 1) -> AmqpMethod:
        """Send a method and return its answer."""
        self.send(method, channel)
        return self.take(*answers)

    def send_content(
        self, method: AmqpMethod, properties: ContentProperties, body: Iterator[bytes], size: int
    ) -> None:
        """Send a method with its content."""
        self.send(method)
        class_id = method.traits.class_id.to_bytes(2, "big")
        head = class_id + b"\0\0" + size.to_bytes(8, "big")
        self._frame(CONTENT_HEADER, head + encode_properties(properties), 1, "content header")
        for part in body:
            self._frame(BODY, part, 1, "content body")

    def content(self) -> tuple[ContentProperties, Iterator[bytes]]:
        """Return properties and body of the content whose method has come."""
        _, payload = self._next()
        size = int.from_bytes(payload[4:12], "big")
        return decode_properties(int.from_bytes(payload[:2], "big"), payload[12:]), self._body(size)

    def _body(self, size: int) -> Iterator[bytes]:
        while size > 0:
            part = self._next()[1]
            size -= len(part)
            yield part

    def close(self) -> None:
        """Close the connection as it should be."""
        self.ask(
            m.ConnectionClose(reply_code=200, reply_text="bye"), m.ConnectionCloseOk, channel=0
        )
        self._socket.close()


def _short(octets: bytes) -> str:
    return f"{octets[:24].hex(' ')} ... {octets[-4:].hex(' ')} ({len(octets)} octets)"


def _target(address: str) -> tuple[str, str]:
    """Divide ``EXCHANGE/KEY``; without a slash it is a key of the default exchange."""
    exchange, slash, key = address.partition("/")
    return (exchange, key) if slash else ("", address)


def _parts(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while part := file.read(PART):
            yield part


def _identifier(path: Path) -> str:
    """Name a file by what it is, so that another run goes on with it."""
    facts = path.stat()
    return hashlib.sha256(
        f"{path.absolute()} {facts.st_size} {facts.st_mtime_ns}".encode()
    ).hexdigest()


# -- file ------------------------------------------------------------------------------------------


def file_put(client: Client09, queue: str, path: str) -> None:
    """Stage and publish."""
    source, (exchange, key) = Path(path), _target(queue)
    size, identifier = source.stat().st_size, _identifier(source)
    opened = client.ask(m.FileOpen(identifier=identifier, content_size=size), m.FileOpenOk)
    assert isinstance(opened, m.FileOpenOk)
    staged = opened.staged_size
    print(f"{staged} of {size} octets are there already")
    properties = m.FileProperties(filename=source.name)
    client.send_content(m.FileStage(), properties, _parts(source, staged), size - staged)
    client.send(
        m.FilePublish(exchange=exchange, routing_key=key, mandatory=True, identifier=identifier)
    )
    # file.publish has no answer: whatever is asked next is answered behind a return.
    client.send(m.FileQos())
    answer = client.take(m.FileQosOk, m.FileReturn)
    if isinstance(answer, m.FileReturn):
        raise RefusedError(f"returned: {answer.reply_code} {answer.reply_text}")
    print("published")


def file_get(client: Client09, queue: str, directory: str) -> None:
    """Take one file; what was cut is kept as ``.part`` and completed by the next run."""
    client.ask(m.FileQos(prefetch_count=1), m.FileQosOk)
    consumer = client.ask(m.FileConsume(queue=queue), m.FileConsumeOk)
    assert isinstance(consumer, m.FileConsumeOk)
    opened = client.take(m.FileOpen)
    assert isinstance(opened, m.FileOpen)
    part = Path(directory, hashlib.sha256(opened.identifier.encode()).hexdigest()[:16] + ".part")
    staged = part.stat().st_size if part.exists() else 0
    client.ask(m.FileOpenOk(staged_size=staged), m.FileStage)
    properties, body = client.content()
    with part.open("ab") as file:
        for octets in body:
            file.write(octets)
    delivered = client.take(m.FileDeliver)
    assert isinstance(delivered, m.FileDeliver)
    assert isinstance(properties, m.FileProperties)
    name = Path(properties.filename or "unnamed").name or "unnamed"
    part.rename(part.with_name(name))
    client.ask(m.FileCancel(consumer_tag=consumer.consumer_tag), m.FileCancelOk)
    client.send(m.FileAck(delivery_tag=delivered.delivery_tag))
    client.ask(m.FileQos(), m.FileQosOk)  # it is acknowledged when this is answered
    print(f"{part.with_name(name)}: {opened.content_size} octets")


# -- message ---------------------------------------------------------------------------------------


def _answer(client: Client09) -> None:
    answer = client.take(m.MessageOk, m.MessageReject)
    if isinstance(answer, m.MessageReject):
        raise RefusedError(f"rejected: {answer.code} {answer.text}")


def message_put(client: Client09, address: str, text: str) -> None:
    """Transfer inline."""
    exchange, key = _target(address)
    client.send(
        m.MessageTransfer(
            destination=exchange, routing_key=key, delivery_mode=2, body=InlineBody(text.encode())
        )
    )
    _answer(client)
    print("accepted")


def message_send(client: Client09, address: str, path: str) -> None:
    """Transfer by reference, from the last checkpoint on."""
    source, (exchange, key) = Path(path), _target(address)
    identifier = _identifier(source)
    at = 0
    try:
        found = client.ask(m.MessageResume(reference=b"r", identifier=identifier), m.MessageOffset)
        assert isinstance(found, m.MessageOffset)
        at = found.value
        print(f"goes on at octet {at}")
    except RefusedError as refused:
        if not str(refused).startswith("404"):
            raise
        client.send(m.ChannelCloseOk())
        client.ask(m.ChannelOpen(), m.ChannelOpenOk)
        client.ask(m.MessageOpen(reference=b"r"), m.MessageOk)
    for number, part in enumerate(_parts(source, at), 1):
        client.ask(m.MessageAppend(reference=b"r", bytes=part), m.MessageOk)
        if number % CHECKPOINT_EACH == 0:
            client.ask(m.MessageCheckpoint(reference=b"r", identifier=identifier), m.MessageOk)
    body = InlineBody(b"r", is_reference=True)
    # Its answer comes with that of the close: answers keep the order of the requests.
    client.send(
        m.MessageTransfer(destination=exchange, routing_key=key, delivery_mode=2, body=body)
    )
    client.send(m.MessageClose(reference=b"r"))
    _answer(client)
    _answer(client)
    print("accepted")


def message_get(client: Client09, queue: str) -> None:
    """Take one message."""
    client.send(m.MessageGet(queue=queue))
    if isinstance(client.take(m.MessageOk, m.MessageEmpty), m.MessageEmpty):
        print("empty")
        return
    body = b""
    method = client.next_method()
    while not isinstance(method, m.MessageTransfer):  # open and appends of a reference
        if isinstance(method, m.MessageAppend):
            body += method.bytes
        client.send(m.MessageOk())
        method = client.next_method()
    for name, _ in method.traits.layout:
        value = getattr(method, name)
        if value and name != "body":
            print(f"{name.replace('_', '-')}: {value}")
    sys.stdout.buffer.write(body or method.body.octets)
    print()
    client.send(m.MessageOk())
    if method.body.is_reference:
        client.take(m.MessageClose)
        client.send(m.MessageOk())
    client.ask(m.MessageQos(), m.MessageOk)  # it is accepted when this is answered


# -- stream, tunnel, dtx ---------------------------------------------------------------------------


def stream_put(client: Client09, queue: str, text: str) -> None:
    """Publish one packet."""
    exchange, key = _target(queue)
    body = text.encode()
    publish = m.StreamPublish(exchange=exchange, routing_key=key, mandatory=True)
    client.send_content(publish, m.StreamProperties(), iter((body,)), len(body))
    # It is published when this is answered, and comes back before that if it cannot be.
    answer = client.ask(m.StreamQos(), m.StreamQosOk, m.StreamReturn)
    if isinstance(answer, m.StreamReturn):
        raise RefusedError(f"returned: {answer.reply_code} {answer.reply_text}")
    print("published")


def stream_get(client: Client09, queue: str) -> None:
    """Print packets until it is interrupted."""
    client.ask(m.StreamConsume(queue=queue), m.StreamConsumeOk)
    while True:
        client.take(m.StreamDeliver)
        print(b"".join(client.content()[1]).decode(errors="replace"), flush=True)


def tunnel_send(client: Client09, node: str, text: str) -> None:
    """Send one block."""
    body = text.encode()
    properties = m.TunnelProperties(proxy_name=node)
    client.send_content(m.TunnelRequest(), properties, iter((body,)), len(body))
    client.ask(m.BasicQos(), m.BasicQosOk)  # it has been taken when this is answered


def tunnel_receive(client: Client09, node: str) -> None:
    """Print blocks until it is interrupted."""
    client.ask(m.BasicConsume(queue=node, no_ack=True), m.BasicConsumeOk)
    while True:
        client.take(m.TunnelRequest, m.BasicDeliver)
        print(b"".join(client.content()[1]).decode(errors="replace"), flush=True)


def dtx_start(client: Client09, identifier: str, queue: str, text: str) -> None:
    """Publish within a branch."""
    client.ask(m.DtxSelect(), m.DtxSelectOk)
    client.ask(m.DtxStart(dtx_identifier=identifier), m.DtxStartOk)
    exchange, key = _target(queue)
    body = text.encode()
    publish = m.BasicPublish(exchange=exchange, routing_key=key)
    client.send_content(publish, m.BasicProperties(delivery_mode=2), iter((body,)), len(body))
    client.ask(m.BasicQos(), m.BasicQosOk)
    print(f"{text!r} waits in branch {identifier}")


# -- any method ------------------------------------------------------------------------------------


def call(client: Client09, name: str, *arguments: str) -> None:
    """Send a method by its name, and print what comes within a second."""
    found = [each for each in m.METHODS.values() if each.traits.name == name]
    if not found:
        raise UsageError(f"there is no method {name}")
    make: Callable[..., AmqpMethod] = found[0]
    fields = {field.rstrip("_"): field for field, _ in found[0].traits.layout}
    kinds = dict(found[0].traits.layout)
    values: dict[str, object] = {}
    for each in arguments:
        field, _, text = each.partition("=")
        field = field.replace("-", "_")
        if field not in fields:
            known = ", ".join(each.replace("_", "-") for each in fields) or "none"
            raise UsageError(f"{name} has no {field!r}; its arguments: {known}")
        try:
            values[fields[field]] = _value(kinds[fields[field]], text)
        except ValueError:
            raise UsageError(f"{each!r} is not a number") from None
    client.send(make(**values))
    client._socket.settimeout(1.0)
    try:
        while True:
            print(client.next_method())
    except TimeoutError:
        client._socket.settimeout(None)


def _value(kind: FieldKind, text: str) -> object:
    if kind is FieldKind.SHORTSTR:
        return text
    if kind is FieldKind.LONGSTR:
        return text.encode()
    if kind is FieldKind.BIT:
        return text not in ("", "0", "false")
    if kind is FieldKind.CONTENT:
        return InlineBody(text.encode())
    return int(text)


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "file put": file_put,
    "file get": file_get,
    "message put": message_put,
    "message send": message_send,
    "message get": message_get,
    "stream put": stream_put,
    "stream get": stream_get,
    "tunnel send": tunnel_send,
    "tunnel receive": tunnel_receive,
    "dtx start": dtx_start,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--octets", action="store_true", help="print each frame")
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    given = parser.parse_args(arguments)
    words: list[str] = given.words
    name, rest = " ".join(words[:2]), words[2:]
    command = COMMANDS.get(name)
    if words[0] == "call":
        command, name, rest = call, "call", words[1:]
    if command is None:
        parser.error(f"no command {name!r}; there are: {', '.join((*COMMANDS, 'call'))}")
    try:
        inspect.signature(command).bind(None, *rest)
    except TypeError:
        parser.error(f"{name} takes other words: see --help")
    try:
        client = Client09(given.url, given.octets)
        command(client, *rest)
        client.close()
    except RefusedError as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    except (UsageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
