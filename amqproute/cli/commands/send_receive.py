# SPDX-License-Identifier: Apache-2.0
"""``send`` and ``receive``."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import click
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from amqproute.address import parse
from amqproute.cli import message_text, render, runner
from amqproute.cli.client import Client
from amqproute.cli.client_links import Receiver, Sender
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import (
    AccessOptions,
    access_options,
    json_option,
    opened_vhost_option,
)
from amqproute.cli.commands.daemon_access import open_client
from amqproute.cli.commands.waiting import notice_of_no_credit
from amqproute.cli.file_data import FileData, data_header
from amqproute.cli.message_text import Facts, MessageDraft
from amqproute.cli.program_commands import ProgramCommand
from amqproute.errors import DecodeError, InvalidField
from amqproute.net.reactor import IReactor
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.engine_events import PartsReceived
from amqproute.wire.amqp10.link import Delivery
from amqproute.wire.amqp10.types import Symbol

__all__ = ["receive", "send"]

TOLD_ONE_BY_ONE: Final = 20
"""Accepted messages with a printed outcome; further ones are only counted."""

SHOWN_ABOVE: Final = (
    "message-id", "to", "subject", "reply-to", "correlation-id", "group-id", "content-type",
    "creation-time",
)  # fmt: skip
"""Properties in the line above a message on a terminal."""

MAX_TTL_SECONDS: Final = 4_294_967
"""header.ttl is a uint of milliseconds."""

MAX_BODY_BYTES: Final = 128 * 1024 * 1024
IN_PARTS_BYTES: Final = 1024 * 1024
"""Octets from which a file is not read into memory."""
MAX_SECTION_BYTES: Final = (1 << 32) - 1
"""Octets of one data section (part 1 §1.6.19)."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024

_READ: Final = 65536
_LOOK_SECONDS: Final = 0.2
NOTICE_SECONDS: Final = 1.0
"""Seconds after which `receive` reports that it waits."""


# -- send --------------------------------------------------------------------------------------


@click.command(
    cls=ProgramCommand,
    epilog="Without --body and --file each line of standard input is a message. "
    "Text is sent as an amqp-value, a file as data; files of any size are sent, in parts.",
)
@click.argument("address")
@opened_vhost_option
@access_options
@click.option("--body", metavar="TEXT", help="Send this text.")
@click.option(
    "--file",
    "path",
    metavar="F",
    type=click.Path(path_type=Path),
    help="Send the contents of this file; - for standard input as a whole.",
)
@click.option(
    "--count", default=1, show_default=True, type=click.IntRange(1), help="Send it N times."
)
@click.option(
    "--property",
    "properties",
    metavar="K=V",
    multiple=True,
    help="An application property; may be repeated. Values are text.",
)
@click.option("--subject", metavar="TEXT", help="The message's subject.")
@click.option("--reply-to", metavar="ADDRESS", help="The address for an answer.")
@click.option("--correlation-id", metavar="TEXT", help="The message-id that this answers.")
@click.option("--group-id", metavar="TEXT", help="The message's group.")
@click.option(
    "--content-type",
    metavar="TYPE",
    help="The type of the body. [default of a file: application/octet-stream]",
)
@click.option(
    "--message-id",
    metavar="TEXT",
    help="Used instead of a new one for each; to test the suppression of duplicates.",
)
@click.option(
    "--ttl",
    metavar="SECONDS",
    type=click.FloatRange(0, MAX_TTL_SECONDS, min_open=True),
    help="The message's lifetime.",
)
@click.option("--priority", type=click.IntRange(0, 9), help="0 to 9; 4 is usual.")
@click.option("--transient", is_flag=True, help="Not durable: may be lost when a broker stops.")
@click.option(
    "--return-to",
    metavar="ADDRESS",
    help="The address for an undeliverable message, and for reports about it.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Choice(["failure", "delay", "relayed", "delivered", "return", "never"]),
    help="Reports for the --return-to address; may be given several times. Without it "
    "the broker's reports.default applies.",
)
@click.option(
    "--require-secure-path",
    "secure_path",
    type=click.Choice(["tls", "authenticated", "dane"]),
    help="Do not pass the message on by a connection that is less.",
)
@json_option
def send(
    address: str,
    vhost: str | None,
    access: AccessOptions,
    body: str | None,
    path: Path | None,
    count: int,
    properties: tuple[str, ...],
    subject: str | None,
    reply_to: str | None,
    correlation_id: str | None,
    group_id: str | None,
    content_type: str | None,
    message_id: str | None,
    ttl: float | None,
    priority: int | None,
    transient: bool,
    return_to: str | None,
    reports: tuple[str, ...],
    secure_path: str | None,
    as_json: bool,
) -> int:
    """Publish messages to ADDRESS and wait for their outcomes.

    ADDRESS is a node of the broker or node@domain. Messages are durable and have the address in
    `to`, so that the broker can relay them. The outcomes are printed: each of the first 20, each
    that is not `accepted`, and a summary; with --json an object for every message and no summary.
    If the broker accepts no messages, a notice appears on stderr after 2 seconds, with the reason
    if the broker gives one, and after 30 seconds the command gives up.

    Exits with 1 if any message was not accepted.
    """
    if body is not None and path is not None:
        raise click.UsageError("--body and --file exclude each other")
    if count > 1 and body is None and path is None:
        raise click.UsageError("--count needs --body or --file")
    if reports and return_to is None:
        raise click.UsageError("--report needs --return-to")
    draft = MessageDraft(
        to=_checked(address, "ADDRESS"),
        durable=not transient,
        priority=priority,
        ttl_ms=None if ttl is None else max(1, int(ttl * 1000)),
        return_to=None if return_to is None else _checked(return_to, "--return-to"),
        reports=reports,
        secure_path=secure_path,
        properties=_pairs(properties),
        message_id=message_id,
        standard=_given(
            subject=subject,
            reply_to=None if reply_to is None else _checked(reply_to, "--reply-to"),
            correlation_id=correlation_id,
            group_id=group_id,
            content_type=None if content_type is None else _symbol(content_type),
        ),
    )
    access = replace(access, vhost=vhost)
    repeated = _file_body(path) or _whole_body(body, path)
    if repeated is None and sys.stdin.isatty():
        click.echo("each line is a message; end with Ctrl-D", err=True)

    async def work(reactor: IReactor) -> int:
        async with await open_client(reactor, access) as client:
            report = SendReport(as_json, None if repeated is None else count)
            bodies = _repeat(repeated, count) if repeated is not None else _lines(reactor)
            with report:
                await publish(client, draft, bodies, report)
        return report.exit_code

    return runner.run(work)


def _checked(address: str, what: str) -> str:
    try:
        if not parse(address).node:
            raise InvalidField(f"address {address!r} names no node")
    except InvalidField as error:
        raise CommandError(USAGE, error.condition, f"{what}: {error.description}") from None
    return address


def _given(**fields: str | None) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def _symbol(text: str) -> Symbol:
    if not text.isascii():
        raise click.BadParameter(f"{text!r} is not ASCII", param_hint="--content-type")
    return Symbol(text)


def _pairs(properties: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not K=V", param_hint="--property")
        pairs[key] = value
    return pairs


@dataclass(frozen=True, slots=True)
class FileBody:
    """A file that is sent while it is read."""

    path: Path
    size: int


Body: TypeAlias = str | bytes | FileBody


def _file_body(path: Path | None) -> FileBody | None:
    """Return the file if it is too large to be read as a whole."""
    if path is None or str(path) == "-" or not path.is_file():
        return None
    size = path.stat().st_size
    return FileBody(path, size) if size >= IN_PARTS_BYTES else None


def _whole_body(body: str | None, path: Path | None) -> str | bytes | None:
    if body is not None or path is None:
        return body
    try:
        if str(path) == "-":
            whole = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
        else:
            with path.open("rb") as file:
                whole = file.read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise CommandError(
            USAGE, "usage.file", f"cannot read {path}: {error.strerror}", "check the path"
        ) from None
    if len(whole) > MAX_BODY_BYTES:
        raise CommandError(
            USAGE,
            "usage.file",
            f"{path} has more than {MAX_BODY_BYTES} octets",
            "what is not a file on the disk is held in memory: write it to one first",
        )
    return whole


async def _repeat(body: Body, count: int) -> AsyncIterator[Body]:
    for _ in range(count):
        yield body


async def _lines(reactor: IReactor) -> AsyncIterator[str | bytes]:
    """Yield the lines of standard input as they come; reading never blocks the connection."""
    stream = sys.stdin.buffer
    rest = b""
    while True:
        data = await deferToThreadPool(reactor, reactor.getThreadPool(), _read_some, stream)
        if data is None:
            continue
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        if len(rest) > MAX_LINE_BYTES:
            raise CommandError(
                USAGE, "usage.line", f"a line is over {MAX_LINE_BYTES} octets", "send it by --file"
            )
        for line in lines:
            yield _as_text(line)
        if not data:
            return


def _read_some(stream: BinaryIO) -> bytes | None:
    """Read available octets; None if there are none yet, so that no thread waits for ever."""
    descriptor = stream.fileno()
    if not select.select([descriptor], [], [], _LOOK_SECONDS)[0]:
        return None
    return os.read(descriptor, _READ)


def _as_text(line: bytes) -> str | bytes:
    line = line.removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line  # goes out as data, octet for octet


@dataclass(slots=True)
class SendReport:
    """Counts outcomes and prints them.

    Attributes:
        as_json: one object per message, no summary.
        expected: number of messages, if known.
        counts: outcome to number.
    """

    as_json: bool
    expected: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    _started: float = field(default_factory=time.monotonic)
    _progress: render.ProgressLine = field(default_factory=render.progress)
    _task: Any = None

    def __enter__(self) -> SendReport:
        self._progress.start()
        if self.expected is None or self.expected > TOLD_ONE_BY_ONE:
            self._task = self._progress.add_task("sent", total=self.expected)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._progress.stop()
        if not self.as_json:
            self._summarize()

    @property
    def exit_code(self) -> int:
        """0 if there were messages and all were accepted."""
        return DONE if set(self.counts) == {"accepted"} else NEGATIVE

    def outcome(self, message_id: str, outcome: object) -> None:
        """Record the outcome of one message."""
        name, cause = message_text.outcome_words(outcome)
        self.counts[name] += 1
        if self._task is not None:
            self._progress.advance(self._task)
        if self.as_json:
            facts = {"message-id": message_id, "outcome": name}
            error = getattr(outcome, "error", None)
            if error is not None:
                facts["condition"] = str(error.condition)
                facts["description"] = error.description or ""
            render.json_line(facts)
        elif name != "accepted" or self.counts[name] <= TOLD_ONE_BY_ONE:
            click.echo(f"{name} {message_id}{': ' if cause else ''}{render.printable(cause)}")

    def _summarize(self) -> None:
        total = sum(self.counts.values())
        if total <= 1:
            return
        seconds = time.monotonic() - self._started
        counts = ", ".join(f"{number} {name}" for name, number in sorted(self.counts.items()))
        click.echo(f"{counts} in {seconds:.2f} s ({total / max(seconds, 1e-9):.0f} a second)")


async def publish(
    client: Client, draft: MessageDraft, bodies: AsyncIterator[Body], report: SendReport
) -> None:
    """Send messages as fast as the broker accepts them; pass each outcome to the report.

    Raises:
        ClientError: the broker ended the link, or gave no outcome.
    """
    sender = await client.sender(draft.to)
    with notice_of_no_credit(client.clock, client, sender):
        await _publish(sender, draft, bodies, report)


async def _publish(
    sender: Sender, draft: MessageDraft, bodies: AsyncIterator[Body], report: SendReport
) -> None:
    failures: list[BaseException] = []

    def failed(failure: Failure) -> None:
        assert failure.value is not None
        failures.append(failure.value)

    async for body in bodies:
        if isinstance(body, FileBody):
            report.outcome(*await _send_file(sender, draft, body))
            continue
        await sender.room()
        message_id, encoded = draft.encode(body, time.time_ns() // 1_000_000)
        outcome = sender.submit(encoded)
        outcome.addCallback(lambda state, message: report.outcome(message, state), message_id)
        outcome.addErrback(failed)
        if failures:
            break
    await _finish(sender, failures)


async def _send_file(
    sender: Sender, draft: MessageDraft, body: FileBody
) -> tuple[str, spec.DeliveryState]:
    """Send one message from a file; return its id and its outcome."""
    message_id, head = draft.encode_head(False, time.time_ns() // 1_000_000)
    if body.size > MAX_SECTION_BYTES:
        raise CommandError(
            USAGE,
            "usage.file",
            f"{body.path} has more than {MAX_SECTION_BYTES} octets",
            "split it: one data section holds no more",
        )
    with body.path.open("rb") as file:
        outcome = await sender.send_file(head + data_header(body.size), file, body.size)
    return message_id, outcome


async def _finish(sender: Sender, failures: list[BaseException]) -> None:
    if not failures:
        await sender.settled()
    if failures:
        raise failures[0]
    await sender.close()


# -- receive -----------------------------------------------------------------------------------


@click.command(
    cls=ProgramCommand,
    epilog="In a pipe only the bodies are printed, a line each. A message is accepted, and with "
    "that gone from the queue, after it was printed.",
)
@click.argument("node")
@opened_vhost_option
@access_options
@click.option("--count", type=click.IntRange(1), help="Stop after N messages. [default: no end]")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    help="Stop when no message has arrived for this time. [default: wait for ever]",
)
@click.option(
    "--browse", is_flag=True, help="Look only: the messages stay in the queue, for others too."
)
@click.option(
    "--filter",
    "selector",
    metavar="SQL",
    help="Only messages that this selector is true for, as in \"color = 'red' AND size > 3\".",
)
@click.option(
    "--output",
    metavar="F",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the data of one message, of any size, to this file, and accept it then.",
)
@json_option
def receive(
    node: str,
    vhost: str | None,
    access: AccessOptions,
    count: int | None,
    timeout: float | None,
    browse: bool,
    selector: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Consume messages from NODE, or browse them, and print them.

    With --json one object per message: header, annotations, properties, application-properties and
    body. Ctrl-C stops it; messages not printed stay in the queue.

    Exits with 1 if fewer than --count messages arrived, or none at all.
    """
    if output is not None and (count or 1) != 1:
        raise click.UsageError("--output takes one message")
    access = replace(access, vhost=vhost)

    async def work(reactor: IReactor) -> int:
        async with await open_client(reactor, access) as client:
            receiver = await client.receiver(
                node,
                credit=count or (output is not None),
                browses=browse,
                selector=selector,
                in_parts=output is not None,
            )
            with _notice_of_waiting(reactor, node, timeout) as came:
                if output is not None:
                    return await save(receiver, output, timeout, came)
                got = await consume(receiver, count, timeout, as_json, came)
        return DONE if got >= (count or 1) else NEGATIVE

    return runner.run(work)


@contextmanager
def _notice_of_waiting(
    reactor: IReactorTime, node: str, timeout: float | None
) -> Iterator[Callable[[], None]]:
    """Print a notice on stderr, once, when no message has come for a moment.

    With a timeout, as scripts have one, there is no notice.

    Returns:
        A context manager; its function is to be called for each message.
    """
    if timeout is not None and not sys.stderr.isatty():
        yield lambda: None
        return
    words = f"waiting for messages on {node}; Ctrl-C ends it"
    if timeout is None:
        words += ", as --timeout or --count would"
    notice = reactor.callLater(NOTICE_SECONDS, click.echo, render.printable(words), err=True)

    def came() -> None:
        if notice.active():
            notice.reset(NOTICE_SECONDS)

    try:
        yield came
    finally:
        if notice.active():
            notice.cancel()


async def consume(
    receiver: Receiver,
    count: int | None,
    timeout: float | None,
    as_json: bool,
    came: Callable[[], None] = lambda: None,
) -> int:
    """Print messages and accept them; return their number. Calls `came` for each.

    Raises:
        ClientError: the broker ended the link.
    """
    got = 0
    while count is None or got < count:
        try:
            delivery = await receiver.next(timeout)
        except CancelledError:  # Ctrl-C
            break
        if delivery is None:
            break
        got += 1
        came()
        _print_message(message_text.shown(delivery.payload, delivery.message_format), got, as_json)
        receiver.accept(delivery)
    return got


async def save(
    receiver: Receiver,
    output: Path,
    timeout: float | None,
    came: Callable[[], None] = lambda: None,
) -> int:
    """Write the data of the next message to a file, and accept it; return the exit code.

    The file gets its name when it is complete and synced. Calls `came` for each part.

    Raises:
        ClientError: the broker ended the link.
        CommandError: the body is not data, or the file cannot be written.
    """
    octets = FileData()
    unfinished = output.with_name(f"{output.name}.part")
    try:
        with unfinished.open("wb") as file:
            delivery = await _save(receiver, octets, file, timeout, came)
            if delivery is None:
                return NEGATIVE
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(output)
    except OSError as error:
        words = f"cannot write {output}: {error.strerror}"
        raise CommandError(
            USAGE, "usage.file", words, "check the path, and the room there"
        ) from None
    except DecodeError as error:
        raise CommandError(NEGATIVE, error.condition, error.description) from None
    finally:
        unfinished.unlink(missing_ok=True)
    receiver.accept(delivery)
    click.echo(f"{octets.size} bytes in {output}", err=True)
    return DONE


async def _save(
    receiver: Receiver,
    octets: FileData,
    file: BinaryIO,
    timeout: float | None,
    came: Callable[[], None],
) -> Delivery | None:
    while True:
        try:
            arrived = await receiver.next_part(timeout)
        except CancelledError:  # Ctrl-C
            return None
        if arrived is None:
            return None
        came()
        if not isinstance(arrived, PartsReceived):
            _write(octets, [arrived.payload], file)
            octets.finish()
            return arrived
        if arrived.is_aborted:
            raise CommandError(NEGATIVE, "message.aborted", "the broker gave the message up")
        _write(octets, arrived.parts, file)
        receiver.took(arrived)
        if arrived.is_last:
            octets.finish()
            return arrived.delivery


def _write(octets: FileData, parts: Sequence[bytes], file: BinaryIO) -> None:
    for part in parts:
        for piece in octets.feed(part):
            file.write(piece)


def _print_message(facts: Facts, number: int, as_json: bool) -> None:
    if as_json:
        render.json_line(facts)
    elif sys.stdout.isatty():
        _print_for_people(facts, number)
    else:
        body = facts.get("body", facts)
        click.echo(body if isinstance(body, str) else content_text(body))
    sys.stdout.flush()


def content_text(body: object) -> str:
    """Format a body that is not text on one line."""
    return "" if body is None else render.compact(body)


def _print_for_people(facts: Facts, number: int) -> None:
    properties = facts.get("properties", {})
    heading = " ".join(
        f"{key}={render.cell(properties[key])}" for key in SHOWN_ABOVE if key in properties
    )
    click.secho(f"#{number} {heading}", bold=True)
    for key, value in facts.get("application-properties", {}).items():
        click.echo(f"  {render.cell(key)}={render.cell(value)}")
    body = facts.get("body", facts)
    text = body if isinstance(body, str) else content_text(body)
    for line in text.split("\n"):
        click.echo(f"  {render.printable(line)}")
