# SPDX-License-Identifier: Apache-2.0
"""A fixed course of events with two daemons, and their output.

Alpha and beta are daemons as their users have them; gone.example is a domain whose broker nobody
reaches. The course goes step by step and waits for each, so that entries get the same ids and
records come in the same order every time. What differs from run to run all the same (times, ports,
paths, drawn names) is replaced by words in capitals (`Normalizer`).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Int
from tests.golden.transcript import shown_message
from tests.integration.support import Daemon, Wire, Zone, free_ports, message, until
from tests.integration.test_distributed_crash import Manager
from tests.support.program import run

__all__ = ["Course", "Normalizer", "prepare_branch"]

XID = [Int(7), b"global", b"branch"]
NODES: list[Mapping[str, Any]] = [
    {"name": "orders", "dead-letter": "dead", "max-deliveries": 3},
    {"name": "archive"},
    {"name": "dead"},
    {"name": "returns"},
    {"name": "news", "type": "topic", "last-value": 1},
]
VARYING = re.compile(
    r"(^|_|-)(age|since|seconds|uptime|us|ms|oldest|idle|at|latency|cpu|time|until|expires|next|rss"
    r"|seq|last|began|started|reported|retry|wait|when|due|pid|free|bound|from|to|serial|rate|used|reusable)$"
)
"""Keys in the output of commands whose numbers vary; where one is an id or a count see `KEPT`."""
DRAWN = frozenset({"probe", "serial", "digest", "journal", "event_id", "hash", "previous"})
"""Keys whose texts are drawn, or depend on times."""
DATABASE = 100_000
"""A database has at least so many octets; how many pages, the course of its commits decides."""
LARGE = 10_000_000
"""Numbers from here on are times or octets of a file system."""
REPORT_SIZES = range(500, 1500)
"""Of this size are reports, and messages of no other kind; it depends on the times in them."""
KEPT = frozenset({"to", "from", "at", "last", "next", "bound"})


class Normalizer:
    """Replaces what differs from run to run.

    Args:
        names: texts (paths, ports) to the words that stand for them.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        longest_first = sorted(names.items(), key=lambda pair: -len(pair[0]))
        self._names = [(re.compile(rf"(?<![0-9]){re.escape(a)}(?![0-9])"), b)
                       for a, b in longest_first]  # fmt: skip
        self._ports = {int(a): b for a, b in longest_first if a.isdigit()}

    def text(self, text: str) -> str:
        """Return a text without what varies in it."""
        for pattern, word in self._names:
            text = pattern.sub(word, text)
        text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
        text = re.sub(
            r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?( ?Z|\+00:00| UTC)?", "DATE", text
        )
        text = re.sub(r"\b\d{4}-\d\d-\d\d\b", "DAY", text)
        text = re.sub(r"(127\.0\.0\.1|\[?::1\]?):\d{4,5}\b", r"\1:PORT", text)
        text = re.sub(r"\b1[789]\d{8}(\d{3}){0,3}(\.\d+)?\b", "TIME", text)
        text = re.sub(r"\b\d+(\.\d+)? (ms|s|min|h|d)\b", "DURATION", text)
        text = re.sub(rf"\buid([:=]){os.getuid()}\b", r"uid\1OWN", text)
        text = re.sub(r"\b(sender|receiver)-\d{9,}", r"\1-NUMBER", text)
        return re.sub(r"unix(:|\()?\d+", r"unix\1NUMBER", text)

    def value(self, value: Any, key: str = "") -> Any:
        """Return a value of JSON without what varies in it."""
        match value:
            case dict():
                return {self.text(name): self.value(each, name) for name, each in value.items()}
            case list():
                found = [self.value(each, key) for each in value]
                # Connections are listed in no particular order.
                return sorted(found, key=json.dumps) if key in ("links", "connections") else found
            case str() if key in DRAWN:
                return key.upper()
            case str():
                value = re.sub(r"\b[0-9A-Fa-f]{2}(:?[0-9A-Fa-f]{2}){15,}\b", "HEX", value)
                return self.text(value)
            case bool() | None:
                return value
            case int() | float():
                if VARYING.search(key) and key not in KEPT:
                    return "NUMBER"
                if key in ("size", "level") and value >= DATABASE:
                    return "NUMBER"
                if isinstance(value, float) or value >= LARGE or value in REPORT_SIZES:
                    return "NUMBER"
                return self._ports.get(value, value)
        return value


def prepare_branch(port: int, node: str) -> None:
    """Have a message for a node prepared in a branch of a distributed transaction."""
    manager = Manager(port)
    code, body = manager.ask("start", XID)
    assert code == 0, code
    state = spec.TransactionalState(txn_id=body["txn-id"])
    with Wire(port, container="application.example") as wire:
        link = wire.attach("sender", node, "posting")
        until(lambda: link.sendable or wire.read(), "credit")
        posted = message(b"prepared", message_id="m-prepared")
        sent = link.send((posted,), b"tag", state=state)
        wire.wait(lambda _: type(sent.state) is spec.TransactionalState)
        for operation in ("end", "prepare"):
            code, _ = manager.ask(operation, XID)
            assert code == 0, (operation, code)
        wire.close()
    manager.wire.close()


def subscribe(port: int, topic: str, name: str) -> None:
    """Make a durable subscription, and leave."""
    source = spec.Source(address=topic, durable=2, expiry_policy="never")
    with Wire(port, container="subscriber.example") as wire:
        wire.attach("receiver", topic, name, source=source)
        wire.close()


class Course:
    """The daemons, the steps, and what was seen.

    Attributes:
        printed: what commands printed, by the first word of the command.
    """

    def __init__(self) -> None:
        self.zone = Zone()
        port = self.zone.port
        (self.nobody,) = free_ports(1)
        common = {
            "relay": {"first-retry": "1h", "last-retry": "2h", "idle-timeout": "1h"},
            "journal": {"segment-seconds": "1h"},
            "distributed-transactions": {"enabled": True},
            "contracts": {"user:anna": {"links": 10, "messages-per-second": 100}},
            "nodes": NODES,
        }
        self.beta = Daemon("beta.example", nameserver=port, changes=common)
        routes = {"routes": [{"domain": "far.example", "via": "amqps://broker1.beta.example:5671"}]}
        self.alpha = Daemon(
            "alpha.example",
            nameserver=port,
            changes={**common, **routes, "aliases": {"sales": "orders"}},
        )
        self.zone.point("alpha.example", self.alpha.tls)
        self.zone.point("beta.example", self.beta.tls)
        self.zone.point("gone.example", self.nobody)
        self.daemons = (self.alpha, self.beta)
        names = {str(port): "NAMESERVER", str(self.nobody): "NOBODY"}
        for daemon in self.daemons:
            short = daemon.name.partition(".")[0].upper()
            names[str(daemon.directory)] = short
            for kind in ("plain", "upgrade", "tls"):
                names[str(getattr(daemon, kind))] = f"{short}-{kind.upper()}"
            for path in ("certificate", "private-key", "trust"):
                names[str(Path(daemon.settings["tls"][path]).parent)] = f"{short}-TLS"
        self.normal = Normalizer(names)
        self.printed: dict[str, list[str]] = {}

    def close(self) -> None:
        """End what runs."""
        for daemon in self.daemons:
            daemon.kill()
        self.zone.close()

    # -- steps -----------------------------------------------------------------------------------

    def command(self, daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command with ``--json``; keep what it printed."""
        config = () if arguments[0] == "certs" else ("--config", str(daemon.file))
        done = run(*arguments, "--json", *config)
        head = f"$ {' '.join(arguments)}"
        if daemon is self.beta:
            head += "    (at beta)"
        lines = [self.normal.text(head)]
        if done.returncode:
            lines.append(f"exit code {done.returncode}")
        lines += _documents(done.stdout, self.normal)
        if done.returncode:
            lines += [f"! {line}" for line in self.normal.text(done.stderr).splitlines()]
        self.printed.setdefault(arguments[0], []).append("\n".join([*lines, ""]))
        return done

    def records(self, daemon: Daemon) -> list[bytes]:
        """Return the lines of a journal, in order."""
        files = [
            path
            for path in (daemon.directory / "state" / "journal").glob("*/*.jsonl")
            if path.stat().st_size
        ]
        files.sort(key=lambda path: path.name.rpartition("-")[2])
        return [line for path in files for line in path.read_bytes().splitlines(keepends=True)]

    def told(self, daemon: Daemon, kind: str, count: int) -> None:
        """Wait until a journal has this many records of a kind."""

        def found() -> int:
            lines = [json.loads(each) for each in self.records(daemon) if each.endswith(b"\n")]
            return sum(line["n"] for line in lines if line["kind"] == kind)

        until(lambda: found() >= count, f"{count} records {kind!r} at {daemon.name}")

    def has_delivered(self) -> bool:
        """Tell whether alpha's journal has a delivery from `orders`."""
        lines = [json.loads(each) for each in self.records(self.alpha) if each.endswith(b"\n")]
        return any(
            line["kind"] == "delivered" and line["all"].get("node") == "orders" for line in lines
        )

    def has_ended(self) -> bool:
        """Tell whether alpha's journal has all of the last command: the deed, and its answer, which
        was taken. What is not on the disk when the daemon is killed is in no journal."""
        deed, _, answer = (json.loads(each) for each in self.records(self.alpha)[-3:])
        return deed["all"].get("node") == "brought" and answer["kind"] == "delivered"

    def publish(self, *arguments: str) -> None:
        """Send a message at alpha, by a command that is kept."""
        self.command(self.alpha, "send", *arguments)

    def run(self) -> None:
        """Let it all happen, and stop the daemons."""
        for daemon in self.daemons:
            daemon.start()
        self.local()
        self.relayed()
        self.waiting()
        self.shared()
        self.nodes()
        self.questions()
        self.exchanges()
        until(self.has_ended, "the records of the last command")
        self.alpha.kill()
        self.alpha.start()
        self.command(self.alpha, "exchange", "bindings")
        self.command(self.alpha, "definitions", "export")
        self.command(self.alpha, "queue", "ls", "--all")
        for daemon in self.daemons:
            daemon.stop()
        self.offline()

    def local(self) -> None:
        """Publish, look, consume, release, reject; a copy that is dropped; one that dies."""
        self.publish("orders", "--body", "one", "--message-id", "m-1", "--priority", "7",
                     "--property", "colour=red", "--subject", "x", "--ttl", "86400")  # fmt: skip
        self.publish("sales", "--body", "two", "--message-id", "m-2", "--reply-to", "returns")
        self.publish("orders", "--body", "two again", "--message-id", "m-2")
        self.publish("orders", "--body", "passing", "--message-id", "m-3", "--transient")
        self.publish("nobody", "--body", "lost")
        self.command(self.alpha, "queue", "messages", "orders")
        self.command(self.alpha, "queue", "messages", "orders", "--where", "colour = 'red'")
        self.command(self.alpha, "receive", "orders", "--browse", "--count", "1")
        self.command(self.alpha, "receive", "orders", "--count", "1")
        # A delivery is recorded with its commit, a release at once.
        until(self.has_delivered, "the record of the delivery")
        with Wire(self.alpha.plain) as wire:
            link = wire.attach("receiver", "orders", "choosy")
            for outcome in (
                spec.Released(),
                spec.Rejected(error=spec.Error(condition="amqp:not-allowed", description="no")),
            ):
                link.flow(1)
                (delivery,) = wire.wait(
                    lambda event: type(event) is ev.DeliveriesReceived
                ).deliveries
                wire.session.settle([delivery], outcome, True)
                wire.flush()
            wire.close()
        self.told(self.alpha, "dead-lettered", 1)
        self.command(self.alpha, "queue", "messages", "dead")
        self.command(self.alpha, "requeue", "dead", "--dry-run")
        self.command(self.alpha, "requeue", "dead")
        self.command(self.alpha, "queue", "purge", "orders")

    def relayed(self) -> None:
        """To beta and taken there, with reports; one that beta does not want."""
        reports = ["--return-to", "returns@alpha.example"]
        for kind in ("failure", "relayed", "delivered"):
            reports += ["--report", kind]
        self.publish("orders@beta.example", "--body", "far", "--message-id", "m-4", *reports)
        self.told(self.beta, "received", 1)
        self.told(self.alpha, "reported", 1)
        self.command(self.beta, "queue", "messages", "orders")
        self.command(self.beta, "receive", "orders", "--count", "1")
        self.told(self.alpha, "received", 5)  # m-1 to m-4, and the report from beta
        self.publish("nobody@beta.example", "--body", "odd", "--message-id", "m-5", *reports)
        self.told(self.alpha, "reported", 2)
        self.command(self.alpha, "queue", "messages", "returns")

    def waiting(self) -> None:
        """For a domain that nobody reaches: questions about it, and what operators can do."""
        alpha = self.alpha
        self.publish("orders@gone.example", "--body", "late", "--message-id", "m-6")
        self.told(alpha, "deferred", 1)
        for name in ("m-7", "m-8"):
            self.publish("orders@gone.example", "--body", "late", "--message-id", name)
        by_id = ("--where", "amqp.message_id = 'm-7'")
        self.command(alpha, "queue", "messages", "--to", "gone.example")
        self.command(alpha, "peer", "ls")
        self.command(alpha, "peer", "show", "gone.example")
        self.command(alpha, "peer", "show", "beta.example")
        self.command(alpha, "why", "m-6")
        self.command(alpha, "hold", *by_id, "--reason", "not now")
        self.command(alpha, "holds")
        self.command(alpha, "why", "m-7")
        self.command(alpha, "release", "h1")
        self.command(alpha, "reroute", "--to", "gone.example", "--dry-run")
        self.command(alpha, "retry", "--to", "gone.example", "--dry-run")
        self.command(alpha, "retry", "--to", "gone.example")
        self.told(alpha, "deferred", 2)
        self.command(alpha, "expire", *by_id, "--reason", "too old")
        self.told(alpha, "expired", 1)
        self.command(alpha, "delete", "--where", "amqp.message_id = 'm-8'", "--reason", "a mistake")
        self.told(alpha, "deleted", 1)

    def shared(self) -> None:
        """A durable subscription, a newest value, a branch that is prepared, a large body."""
        subscribe(self.alpha.plain, "news", "kept")
        self.publish("news", "--body", "hear", "--message-id", "m-9", "--subject", "a.b")
        prepare_branch(self.alpha.plain, "archive")
        self.command(self.alpha, "transaction", "ls")
        with Wire(self.alpha.plain) as wire:
            wire.publish("archive", [message(b"L" * 100_000, message_id="m-10")])
            wire.close()

    def nodes(self) -> None:
        """Nodes that are made, changed, emptied and deleted while it runs."""
        alpha = self.alpha
        for arguments in (
            ("create", "made", "--option", "ttl=60"),
            ("create", "made"),
            ("update", "made", "--option", "ttl=90"),
            ("copy", "archive", "made"),
            ("show", "made"),
            ("rename", "made", "renamed"),
            ("move", "renamed", "archive", "--limit", "1"),
            ("purge", "archive", "--dry-run"),
            ("delete", "renamed", "--if-empty"),
            ("shape",),
        ):
            self.command(alpha, "queue", *arguments)
        commands = alpha.directory / "commands"
        commands.write_text("create queue batched\ncreate alias short batched\nquery alias short\n")
        self.command(alpha, "batch", str(commands))
        commands.write_text("create queue never\ndelete queue nobody\n")
        self.command(alpha, "batch", str(commands))

    def policies(self) -> None:
        """Policies are made, shown and deleted."""
        alpha = self.alpha
        bound, lost = '{"max-length": 5}', '{"alternate-exchange": "lost"}'
        for arguments in (
            ("policy", "set", "short", "^tmp[.]", bound, "--apply-to", "queues"),
            ("policy", "set", "short", "^tmp", bound, "--operator", "--priority", "-1"),
            ("policy", "set", "lost", "^events", lost),
            ("policy", "set", "wrong", "(", bound),
            ("policy", "list"),
            ("policy", "show", "short"),
            ("policy", "show", "none"),
            ("exchange", "show", "events"),
            ("policy", "delete", "short"),
            ("policy", "delete", "short", "--operator"),
            ("policy", "delete", "lost"),
        ):
            self.command(alpha, *arguments)

    def exchanges(self) -> None:
        """Exchanges and bindings, and definitions of RabbitMQ."""
        alpha = self.alpha
        for arguments in (
            ("declare", "events", "--type", "topic", "--alternate", "lost"),
            ("declare", "lost", "--type", "fanout", "--internal"),
            ("declare", "events", "--type", "fanout"),
            ("bind", "events", "orders", "--key", "eu.#"),
            ("bind", "amq.headers", "orders", "--arguments", '{"x-match": "any", "n": 1}'),
            ("bind", "events", "lost", "--to-exchange"),
            ("bind", "events", "nobody"),
            ("ls",),
            ("bindings",),
            ("unbind", "events", "lost", "--to-exchange"),
            ("delete", "lost"),
            ("delete", "lost"),
        ):
            self.command(alpha, "exchange", *arguments)
        exported = {
            "vhosts": [{"name": "/"}],
            "users": [{"name": "ann", "password_hash": "", "tags": []}],
            "exchanges": [{"name": "moved", "vhost": "/", "type": "direct", "durable": True}],
            "queues": [
                {"name": "brought", "vhost": "/", "durable": True, "arguments": {"x-max-length": 5}}
            ],
            "bindings": [
                {"source": "moved", "vhost": "/", "destination": "brought",
                 "destination_type": "queue", "routing_key": "k", "arguments": {}}
            ],
        }  # fmt: skip
        file = alpha.directory / "definitions.json"
        file.write_text(json.dumps(exported))
        self.command(alpha, "definitions", "import", str(file), "--dry-run")
        self.command(alpha, "definitions", "import", str(file))
        self.command(alpha, "exchange", "delete", "moved")
        self.policies()
        self.command(alpha, "queue", "delete", "brought")

    def questions(self) -> None:
        """All requests, with a client that stays connected meanwhile."""
        alpha = self.alpha
        with Wire(alpha.plain, container="stays.example") as wire:
            wire.attach("sender", "orders", "to-orders")
            wire.attach("receiver", "archive", "from-archive")
            for arguments in (
                ("queue", "ls"), ("queue", "show", "orders"), ("queue", "show", "nobody"),
                ("connection", "ls"), ("connection", "show", "nobody"), ("link", "ls"),
                ("contract", "ls"),
                ("contract", "show", "user:anna"), ("peer", "probes"),
                ("peer", "test", "beta.example"), ("peer", "test", "gone.example"),
                ("explain", "orders"), ("explain", "sales@alpha.example"),
                ("explain", "orders@beta.example"), ("explain", "orders@far.example"),
                ("explain", "orders@none.example"), ("explain", "nobody"),
                ("resolve", "beta.example"), ("resolve", "none.example"), ("status",),
                ("clock", "show"), ("drain", "--status"), ("user", "ls"), ("check",),
                ("journal", "find", "m-4"), ("journal", "find", "m-1"), ("journal", "verify"),
                ("journal", "tail", "--kind", "rejected"), ("store", "quarantine", "ls"),
                ("send", "orders@beta.example", "--file", "/nowhere"), ("queue", "messages"),
            ):  # fmt: skip
                self.command(alpha, *arguments)
            wire.close()
        self.command(self.beta, "peer", "probes")
        self.command(alpha, "clock", "accept")
        self.command(alpha, "drain", "--end")
        self.command(alpha, "certs", "show", alpha.settings["tls"]["certificate"])
        self.command(alpha, "store", "backup", str(alpha.directory / "backup"))

    def offline(self) -> None:
        """The part that needs no daemon."""
        self.command(self.alpha, "store", "check")
        self.command(self.alpha, "journal", "verify")
        exported = self.alpha.directory / "exported"
        self.command(self.alpha, "journal", "export", str(exported), "--peer", "beta.example")
        self.command(self.alpha, "store", "salvage", "--into", str(self.alpha.directory / "saved"))
        self.command(self.alpha, "status")
        self.command(self.alpha, "store", "accept-loss", "nothing")
        self.command(self.alpha, "store", "quarantine", "drop", "7")
        (self.alpha.directory / "restored").mkdir()
        restored = ("--state", str(self.alpha.directory / "restored"))
        self.command(
            self.alpha, "store", "restore", str(self.alpha.directory / "backup"), *restored
        )

    # -- what is left ----------------------------------------------------------------------------

    def journal(self, daemon: Daemon) -> str:
        """Return the lines of a journal; prove that each follows from the one before."""
        lines = []
        hash_before, expected = "", 1
        for line in self.records(daemon):
            head, tail = line[:72], line[72:-1]
            own = head[6:70].decode()
            if hash_before:
                assert own == sha256(hash_before.encode() + tail).hexdigest(), line
            hash_before = own
            body = json.loads(line)
            assert body["seq"] in (expected, 1) or body["all"].get("code"), line
            expected = body["seq"] + body["n"]
            # Two answers to a command may come and go in either order.
            if not str(body["all"].get("node", "")).startswith("dynamic-"):
                lines.append(self._plain_line(line[:-1].decode()))
        return "\n".join([*lines, ""])

    def _plain_line(self, line: str) -> str:
        line = re.sub(r'^\{"h":"[0-9a-f]{64}"', '{"h":"HASH"', line)
        line = re.sub(r'("(?:journal|previous)":)"[0-9a-f]+"', r'\1"NAME"', line)
        line = re.sub(r'("(?:\w+_us|time|until|expires|seq|o)":)\d+', r"\1NUMBER", line)
        columns = re.compile(r'("(?:\w+_us|time|until|expires)":)\[([^\]]*)\]')
        line = columns.sub(lambda at: at[1] + "[" + re.sub(r"\d+", "NUMBER", at[2]) + "]", line)
        if '"message_id":"broker1' in line:  # a report says times
            line = re.sub(r'("(?:size|bare_size)":)\d+', r"\1NUMBER", line)
        if '"message_id":"m-10"' not in line:  # commands put their time into messages
            line = re.sub(r'("digest":)"[0-9a-f]{64}"', r'\1"DIGEST"', line)
        return self.normal.text(line)

    def store(self, daemon: Daemon) -> str:
        """Return the rows of a store, and the files beside it."""
        state = daemon.directory / "state"
        (path,) = state.glob("*.db")
        lines: list[str] = []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            tables = database.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
            )
            for (table,) in tables.fetchall():
                if table == "outbox":  # what the journal's disk has not confirmed: a matter of time
                    continue
                lines.append(f"table {table}")
                lines += sorted(self._row(table, row) for row in
                                database.execute(f"SELECT * FROM {table}"))  # fmt: skip
        lines += [
            self.normal.text(f"file {each.relative_to(state)}")
            for each in sorted(state.rglob("*"))
            if each.is_file()
        ]
        lines = [re.sub(r"[0-9a-f]{16}-(\d{20})", r"NAME-\1", line) for line in lines]
        return "\n".join([*lines, ""])

    def _row(self, table: str, row: sqlite3.Row) -> str:
        cells = []
        for name in row.keys():  # noqa: SIM118 - iterating a row gives its values
            value = row[name]
            if isinstance(value, int) and (
                name in ("arrived", "expires", "at", "octets_crc", "row_crc", "row_sum")
                or table == "meta"
            ):
                value = "NUMBER" if value else value
            elif name == "size" and value in REPORT_SIZES:
                value = "NUMBER"
            elif isinstance(value, bytes):
                value = self.normal.text(_octets(table, value))
            elif isinstance(value, str):
                value = self.normal.text(value)
            cells.append(f"{name}={value}")
        return f"    {' '.join(cells)}"


def _octets(table: str, value: bytes) -> str:
    """Show octets of a row: messages by their sections, the rest as text or in hexadecimal."""
    if b"x-opt-amqproute-report" in value:
        return "<a report>"
    if value.isascii() and value.decode().isprintable():
        return repr(value)
    return f"<{shown_message(value)}>"


def _documents(printed: str, normal: Normalizer) -> Iterator[str]:
    """Show one document, or one on each line, as indented JSON without what varies."""
    try:
        documents = [json.loads(printed)] if printed.strip() else []
    except ValueError:
        documents = [json.loads(line) for line in printed.splitlines()]
    for each in documents:
        yield json.dumps(normal.value(each), indent=1)
