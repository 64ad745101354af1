# SPDX-License-Identifier: Apache-2.0
"""The parts of the data source, without Spark: guarantees after a death in between."""

from __future__ import annotations

import os
import re
import shutil
import socket
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.support import Certificates, certificates
from tests.pipeline.brokers import BrokerCase, bodies_on, numbers, put, rows_on, url
from tests.pipeline.support import MISSING

if not MISSING:
    from pyspark.sql import Row

    from amqproute.journal import record
    from amqproute.message import Message
    from amqproute.pipeline.datasource import AmqprouteDataSource
    from amqproute.pipeline.datasource.batch_reader import JOURNAL_SCHEMA, JournalReader
    from amqproute.pipeline.datasource.blocking_client import BlockingClient
    from amqproute.pipeline.datasource.options import (
        OptionError,
        ReadOptions,
        StreamOptions,
        WriteOptions,
    )
    from amqproute.pipeline.datasource.place import BrokerEndpoint, DataSourceError
    from amqproute.pipeline.datasource.plain import DEBUG, plain
    from amqproute.pipeline.datasource.rows import READ_SCHEMA, RowEncoder, row_of
    from amqproute.pipeline.datasource.stream_reader import QueueStream, ranges, unranged
    from amqproute.pipeline.datasource.write import send
    from amqproute.url import parse_url
    from amqproute.wire.amqp10 import codec, sections, spec
    from amqproute.wire.amqp10.engine_events import ConnectionClosed, SessionEnded
    from amqproute.wire.amqp10.link import Link
    from amqproute.wire.amqp10.types import Symbol, Timestamp, ULong
    from amqproute.wire.amqp10.unsettled_map import UnsettledMap


TAGS = [
    "4d40a9b7373121cddeb71f97e7ef142700000000",
    "75d91722fc538411343c4a82f34d263700000000",
    "4d40a9b7373121cddeb71f97e7ef142700000001",
]
"""Of some messages."""


class RowTests(SynchronousTestCase):
    """Messages of other makes as rows."""

    skip = MISSING

    def row(self, *parts: bytes) -> dict[str, Any]:
        """Return a row by the names of its columns."""
        columns = re.split(r",\s+", READ_SCHEMA.strip())
        names = [column.split()[0].strip("`") for column in columns]
        return dict(zip(names, row_of("b", "q", 7, b"".join(parts)), strict=True))

    def test_types(self) -> None:
        """Values without a type in Spark are text."""
        row = self.row(
            codec.encode(
                spec.Properties(message_id=ULong(9), user_id=b"\xff", creation_time=Timestamp(1500))
            ),
            sections.encode_section(
                spec.SECTION_APPLICATION_PROPERTIES, {"n": 1, "t": True, "s": "x", "z": None}
            ),
            sections.encode_section(spec.SECTION_AMQP_VALUE, {"k": [1, b"\x00"]}),
        )
        self.assertEqual((row["message_id"], row["message_id_type"]), ("9", "ulong"))
        self.assertEqual(row["user_id"], "ff")
        self.assertEqual(row["creation_time"], datetime.fromtimestamp(1.5, UTC))
        self.assertEqual(
            row["application_properties"], {"n": "1", "t": "true", "s": "x", "z": None}
        )
        self.assertEqual((row["body"], row["body_type"]), (b'{"k":[1,"00"]}', "value"))
        self.assertEqual((row["broker"], row["queue"], row["entry"]), ("b", "q", 7))

    def test_bodies(self) -> None:
        """Each kind of body says what it is."""
        for section, value, expected in (
            (spec.SECTION_DATA, b"\x01", (b"\x01", "data")),
            (spec.SECTION_AMQP_VALUE, "ä", ("ä".encode(), "text")),
            (spec.SECTION_AMQP_VALUE, b"\x02", (b"\x02", "binary")),
            (spec.SECTION_AMQP_VALUE, Symbol("s"), (b'"s"', "value")),
            (spec.SECTION_AMQP_SEQUENCE, [1, 2], (b"[1,2]", "sequence")),
        ):
            row = self.row(sections.encode_section(section, value))
            self.assertEqual((row["body"], row["body_type"]), expected)

    def test_undecodable(self) -> None:
        """A message that is none is a row all the same."""
        row = self.row(b"\x00\x53\x73\xff")
        self.assertEqual((row["body"], row["body_type"]), (b"\x00\x53\x73\xff", "undecodable"))
        self.assertEqual((row["queue"], row["message_id"], row["priority"]), ("q", None, None))

    def test_headers(self) -> None:
        """A message is durable unless its row says otherwise."""
        for given, expected in (({}, True), ({"durable": None}, True), ({"durable": False}, False)):
            out = RowEncoder("run", "q").encode(Row(body="x", **given))
            self.assertEqual(Message(b"".join(out.parts)).header.durable, expected, given)

    def test_tags(self) -> None:
        """Rows have the names that they had in earlier releases: a task that is tried again after
        an upgrade sends nothing twice."""
        encoder = RowEncoder("run", "q")
        outs = [encoder.encode(Row(body=body)) for body in ("x", "y", "x")]
        self.assertEqual([out.tag.hex() for out in outs], TAGS)
        self.assertEqual([out.message_id for out in outs], [f"run/{tag}" for tag in TAGS])

    def test_ranges(self) -> None:
        """Numbers of entries as text, and back."""
        self.assertEqual(ranges([3, 1, 2, 9, 12, 11]), "1-3 9 11-12")
        self.assertEqual(unranged("1-3 9 11-12"), {1, 2, 3, 9, 11, 12})
        self.assertEqual((ranges([]), unranged("")), ("", set()))


class ClientTests(BrokerCase):
    """Ways in, and what is said when there is none."""

    def test_ways(self) -> None:
        """TLS from the first octet, asked for, with a certificate, and a unix socket."""
        trust = str(certificates().trust)
        alpha = self.alpha
        certificate = alpha.settings["tls"]["certificate"]
        key = alpha.settings["tls"]["private-key"]
        for place in (
            BrokerEndpoint(parse_url(f"amqps://anna:secret@localhost:{alpha.tls}"), trust),
            BrokerEndpoint(parse_url(f"amqps://localhost:{alpha.tls}"), trust, certificate, key),
            BrokerEndpoint(parse_url(f"amqp://anna:secret@localhost:{alpha.upgrade}"), trust),
            BrokerEndpoint(parse_url(f"amqp://anna:secret@localhost:{alpha.upgrade}")),
            BrokerEndpoint(parse_url(f"unix:{alpha.socket}")),
        ):
            with BlockingClient(place) as client:
                self.assertTrue(client.is_private)

    def test_no_way(self) -> None:
        """Each fault has its words, and none the password."""
        stranger = str(Certificates().trust)
        alpha = self.alpha
        for text, trust, expected in (
            (f"amqps://anna:secret@localhost:{alpha.tls}", stranger, "certificate verify failed"),
            (f"amqps://anna:secret@localhost:{alpha.tls}", "/nowhere", "name usable PEM files"),
            (f"amqp://anna:secrets@localhost:{alpha.upgrade}", None, "not logged in"),
            (f"amqps://anna:secret@localhost:{alpha.plain}", None, "no TLS with"),
            ("amqp://anna:secret@127.0.0.1:1", None, "no broker at 127.0.0.1:1"),
            ("unix:/nowhere/socket", None, "no broker at unix:/nowhere/socket"),
        ):
            with self.assertRaises(DataSourceError) as caught:
                BlockingClient(BrokerEndpoint(parse_url(text), trust))
            self.assertIn(expected, str(caught.exception))
            self.assertNotIn("secret", str(caught.exception))

    def test_closed(self) -> None:
        """Both sides have closed the connection before the socket goes."""
        client = BlockingClient(BrokerEndpoint(parse_url(url(self.alpha))))
        client.close()
        self.assertTrue(client._engine.is_closed)

    def test_sent_meanwhile(self) -> None:
        """Messages go out, and outcomes are taken, while there is credit left for others."""
        with BlockingClient(BrokerEndpoint(parse_url(url(self.alpha)))) as client:
            sending = client.sending("q12", "meanwhile", exactly_once=False)
            sending.begin()
            given: list[float] = []
            step = client.step

            def noting(seconds: float) -> bool:
                given.append(seconds)
                return step(seconds)

            self.patch(client, "step", noting)
            encoder = RowEncoder("meanwhile", "q12")
            for body in numbers(0, 64):
                self.assertNotIn(0, given)
                row = encoder.encode(Row(body=body))
                sending.send(row.parts, row.tag)
            self.assertEqual(given[-1:], [0])
            sending.finished()
        self.assertEqual(bodies_on(self.alpha, "q12"), numbers(0, 64))

    def test_silence(self) -> None:
        """Nobody is waited for without end."""
        with BlockingClient(BrokerEndpoint(parse_url(url(self.alpha)))) as client:
            client.place = replace(client.place, seconds=0.3)  # it took longer to get there
            with self.assertRaises(DataSourceError) as caught:
                client.wait(lambda: False, "word")
            self.assertEqual(f"no word from {client.place} within 0.3 s", str(caught.exception))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with self.assertRaises(DataSourceError) as caught:
                BlockingClient(BrokerEndpoint(parse_url(f"amqp://127.0.0.1:{port}"), seconds=0.3))
        self.assertIn("no open within the handshake time", str(caught.exception))

    def test_options(self) -> None:
        """Unknown, missing and wrong options are refused, with the known ones."""
        whole = {"url": "amqp://h", "queue": "q"}
        for of, options, expected in (
            (ReadOptions.of, {**whole, "qeue": "q"}, "has no option qeue; its options are"),
            (ReadOptions.of, {"queue": "q"}, "the option url is missing"),
            (ReadOptions.of, {"url": "amqp://h"}, "the option queue is missing"),
            (ReadOptions.of, {**whole, "url": "http://h"}, "a URL is amqp://"),
            (ReadOptions.of, {**whole, "url": "amqp://h amqp://h:5672"}, "a broker twice"),
            (ReadOptions.of, {**whole, "limit": "many"}, "limit is a number"),
            (StreamOptions.of, {**whole, "failOnDataLoss": "perhaps"}, "is true or false"),
            (StreamOptions.of, {**whole, "maxMessages": "0"}, "is a number from 1"),
            (WriteOptions.of, {"url": "amqp://h amqp://i"}, "sends to one broker"),
            (WriteOptions.of, {"url": "amqp://h", "delivery": "often"}, "exactly-once or at-least"),
            (WriteOptions.of, {"url": "amqp://h", "run": "x" * 101}, "of 100 characters at most"),
            (WriteOptions.of, {"url": "amqp://h", "run": "a\nb"}, "of 100 characters at most"),
        ):
            with self.assertRaises(OptionError) as caught:
                of(options)
            self.assertIn(expected, str(caught.exception))
        self.assertEqual(WriteOptions.of({"url": "amqp://h", "run": "x" * 100}).run, "x" * 100)
        self.assertIsNone(WriteOptions.of({"url": "amqp://h"}).run)
        self.assertEqual(StreamOptions.of(whole).most, 10_000)
        self.assertEqual(StreamOptions.of({**whole, "maxMessages": "1"}).most, 1)

    def test_ended(self) -> None:
        """If the broker ends session or connection, every waiting call fails with the reason."""
        error = spec.Error(condition=Symbol("amqp:internal-error"), description="maintenance")
        with BlockingClient(BrokerEndpoint(parse_url(url(self.alpha)))) as client:
            for event, what in (
                (SessionEnded(client.session, error), "the session"),
                (ConnectionClosed(error, by_fault=False, clean=True), "the connection"),
            ):
                with self.assertRaises(DataSourceError) as caught:
                    client._take([event])
                self.assertIn(what, str(caught.exception))
                self.assertIn("maintenance", str(caught.exception))

    def test_words_for_people(self) -> None:
        """Errors of sending name the address, or that each message has its own."""
        with BlockingClient(BrokerEndpoint(parse_url(url(self.alpha)))) as client:
            for address, words in ((None, "the addresses of the messages"), ("q5", "'q5'")):
                self.assertEqual(client.sending(address, "x", exactly_once=False).name, words)


class OnceTests(BrokerCase):
    """A task that is tried again."""

    def sent(self, rows: Sequence[Row], batch: int = 0, run: str = "once") -> None:
        """Be the task."""
        writing = WriteOptions.of({"url": url(self.alpha), "address": "q0"})
        send(writing, run, f"{run}/{batch}", iter(rows), f"{run}/{batch - 1}" if batch else None)

    def test_again(self) -> None:
        """Rows in any order, and although the broker was killed, are each there once;
        rows that are alike are as many as they were."""
        rows = [Row(body=f"again {number % 100}") for number in range(350)]
        self.sent(rows[:220])
        self.alpha.kill()
        self.alpha.start()
        self.sent(rows[::-1])
        self.sent(rows)
        found = bodies_on(self.alpha, "q0")
        self.assertEqual(sorted(found), sorted(row.body for row in rows))
        ids = [row[3] for row in rows_on(self.alpha, "q0")]
        self.assertEqual(len(set(ids)), len(rows))

    def test_batches(self) -> None:
        """The next batch of a stream is another write, and the one before it is forgotten."""
        rows = [Row(body="batch")] * 150
        for batch in (1, 1, 2, 2, 1):
            self.sent(rows, batch, "batches")
        found = [body for body in bodies_on(self.alpha, "q0") if body == "batch"]
        # The last is what Spark never does: to go back behind a batch.
        self.assertEqual(len(found), 450)

    def test_refused(self) -> None:
        """A refused message is sent again, and reported with condition, address and words."""
        good, bad = Row(body="good"), Row(body="bad", address="nowhere")
        for _ in range(2):
            with self.assertRaises(DataSourceError) as caught:
                self.sent([good, bad], run="refused")
            for words in ("'nowhere'", "rejected, amqp:not-found", "refused/0/"):
                self.assertIn(words, str(caught.exception))
        self.sent([good], run="refused")
        self.assertEqual(bodies_on(self.alpha, "q0").count("good"), 1)


class StreamTests(BrokerCase):
    """The steps of a stream, taken one by one."""

    def stream(self, queue: str = "q1", **options: str) -> Any:
        """Return a stream that sees the queue of both brokers."""
        urls = f"{url(self.alpha)} {url(self.beta)}"
        stream = QueueStream(
            StreamOptions.of({"url": urls, "queue": queue, "wait": "0.2", **options})
        )
        self.addCleanup(stream.stop)
        return stream

    def rows(self, stream: Any, start: Any, end: Any) -> list[Any]:
        """Return the rows of a batch."""
        return [row for part in stream.partitions(start, end) for row in stream.read(part)]

    def test_steps(self) -> None:
        """Nothing is taken before the commit; the same batch has the same rows, also after the
        broker was killed; what comes later is of the next batch; a commit can be repeated."""
        put(self.alpha, "q1", numbers(0, 30), "steps-1")
        put(self.beta, "q1", numbers(30, 33), "steps-2")
        stream = self.stream(maxMessages="20")
        zero = stream.initialOffset()
        one = stream.latestOffset(zero, stream.getDefaultReadLimit())
        self.assertEqual(one["batch"], 1)
        first = self.rows(stream, zero, one)
        self.assertEqual([row[-2].decode() for row in first], numbers(0, 20) + numbers(30, 33))
        put(self.beta, "q1", ["later"], "steps-3")
        self.alpha.kill()
        self.alpha.start()
        again = self.stream()
        self.assertEqual(self.rows(again, zero, one), first)
        self.assertEqual(len(rows_on(self.alpha, "q1")), 30)
        # Spark has committed, and the driver died before it told us.
        two = again.latestOffset(one, again.getDefaultReadLimit())
        self.assertEqual(bodies_on(self.alpha, "q1"), numbers(20, 30))
        self.assertEqual(bodies_on(self.beta, "q1"), ["later"])
        self.assertEqual(
            [row[-2].decode() for row in self.rows(again, one, two)], [*numbers(20, 30), "later"]
        )
        for _ in range(2):
            self.stream().commit(two)
        self.assertEqual(bodies_on(self.alpha, "q1") + bodies_on(self.beta, "q1"), [])
        self.assertEqual(again.latestOffset(two, again.getDefaultReadLimit()), two)
        self.assertEqual(again.partitions(two, two), [])

    def test_batches_of_one(self) -> None:
        """No second message is asked for where a batch may have one only."""
        put(self.alpha, "q13", numbers(0, 3), "one")
        stream = self.stream("q13", maxMessages="1")
        asked: list[int] = []
        flow = Link.flow

        def noting(link: Link, credit: int, **options: Any) -> None:
            asked.append(credit)
            flow(link, credit, **options)

        self.patch(Link, "flow", noting)
        one = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        [part] = one["queues"].values()
        self.assertEqual(len(unranged(part["entries"])), 1)
        self.assertEqual(max(asked), 1)

    def test_others_stay(self) -> None:
        """A commit takes its own entries out of the middle; the others keep their place."""
        put(self.alpha, "q2", numbers(0, 9), "middle")
        stream = self.stream("q2")
        every = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        key, part = next(iter(every["queues"].items()))
        ids = sorted(unranged(part["entries"]))
        own = {**part, "entries": ranges([ids[2], ids[5]])}
        stream.commit({"batch": 1, "queues": {key: own}})
        self.assertEqual(bodies_on(self.alpha, "q2"), ["0", "1", "3", "4", "6", "7", "8"])

    def test_past_others(self) -> None:
        """A commit is done for the most part, or wholly, and then again: on a long queue it does
        not take what is there one by one, and give it back."""
        put(self.alpha, "q11", numbers(0, 1500), "past")
        stream = self.stream("q11", maxMessages="300")
        one = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        told: list[Any] = []
        tell = UnsettledMap._send_disposition

        def telling(unsettled: Any, *arguments: Any) -> None:
            told.append(arguments)
            tell(unsettled, *arguments)

        self.patch(UnsettledMap, "_send_disposition", telling)
        [(key, part)] = one["queues"].items()
        first, last = (int(each) for each in part["entries"].split("-"))
        stream.commit({"batch": 1, "queues": {key: {**part, "entries": f"{first}-{last - 2}"}}})
        self.assertEqual(bodies_on(self.alpha, "q11"), numbers(298, 1500))
        self.assertLess(len(told), 5)
        for _ in range(2):
            self.stream("q11").commit(one)
            self.assertEqual(bodies_on(self.alpha, "q11"), numbers(300, 1500))
        self.assertLess(len(told), 20)

    def test_gone(self) -> None:
        """Messages that another consumer took are missed, with an error; or not, by an option."""
        put(self.alpha, "q3", numbers(0, 3), "gone")
        stream = self.stream("q3")
        zero = stream.initialOffset()
        one = stream.latestOffset(zero, stream.getDefaultReadLimit())
        self.stream("q3").commit(one)
        with self.assertRaises(DataSourceError) as caught:
            self.rows(stream, zero, one)
        self.assertIn("3 messages of this batch are not on 'q3'", str(caught.exception))
        self.assertEqual(self.rows(self.stream("q3", failOnDataLoss="false"), zero, one), [])

    def test_no_such_queue(self) -> None:
        """A queue that is not there is named, and the connection is dropped."""
        stream = self.stream("nowhere")
        with self.assertRaises(DataSourceError) as caught:
            stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        self.assertIn("'nowhere'", str(caught.exception))
        self.assertEqual(stream._looks, {})

    def test_another_store(self) -> None:
        """Numbers of another store mean nothing: nothing is accepted by them."""
        put(self.alpha, "q4", ["kept"], "store")
        stream = self.stream("q4")
        one = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        for part in one["queues"].values():
            part["stream"] = "another"
        with self.assertRaises(DataSourceError) as caught:
            stream.commit(one)
        self.assertIn("have other numbers", str(caught.exception))
        self.stream("q4", failOnDataLoss="false").commit(one)
        self.assertEqual(bodies_on(self.alpha, "q4"), ["kept"])


class PlainTests(SynchronousTestCase):
    """The rest of a traceback."""

    skip = MISSING

    def test_errors(self) -> None:
        """An error for the user begins where the package is entered, of a generator too; whoever
        wants all of it has it; all others are whole."""

        @plain
        def asked(error: Exception) -> None:
            deeper(error)

        @plain
        def read(error: Exception) -> Iterator[int]:
            yield 1
            deeper(error)

        def deeper(error: Exception) -> None:
            try:
                raise OSError("below")
            except OSError as cause:
                raise error from cause

        def told(error: Exception) -> list[str]:
            said = []
            for call in (lambda: asked(error), lambda: list(read(error))):
                with self.assertRaises(type(error)) as caught:
                    call()
                said.append("".join(traceback.format_exception(caught.exception)))
            return said

        self.patch(os, "environ", {})
        for error in (DataSourceError("no broker"), OptionError("no option")):
            for text in told(error):
                self.assertNotIn("deeper", text)
                self.assertNotIn("below", text)
                self.assertTrue(text.endswith(f": {error}\n"), text)
        for text in told(RuntimeError("ours")):
            self.assertIn("deeper", text)
        self.patch(os, "environ", {DEBUG: "1"})
        for text in told(DataSourceError("no broker")):
            self.assertIn("deeper", text)


class JournalTests(SynchronousTestCase):
    """A journal that is written while it is read."""

    skip = MISSING

    def test_schema(self) -> None:
        """A journal has its records' columns, a queue those of messages."""
        self.assertEqual(AmqprouteDataSource({"journal": "j"}).schema(), JOURNAL_SCHEMA)
        self.assertEqual(AmqprouteDataSource({"queue": "q"}).schema(), READ_SCHEMA)

    def test_moved(self) -> None:
        """A segment counts once, wherever it is by now."""
        root = Path(self.mktemp())
        name = f"{'a' * 16}-{1:020}.jsonl"
        opened, closed = root / "open" / name, root / "2026-03-01" / f"mx1-{name}"
        for path in (opened, closed):
            path.parent.mkdir(parents=True)
        tail = record.tail("start", "a" * 16, "mx1", "alpha.example", "s", 1, 1, 5, {}, {})
        opened.write_bytes(record.chained(record.GENESIS, tail)[1])
        reader = JournalReader({"journal": str(root)})
        before = reader.partitions()
        shutil.copy(opened, closed)
        self.assertEqual(len(reader.partitions()), 1)
        opened.unlink()
        for partition in (*before, *reader.partitions()):
            self.assertEqual([row[0] for row in reader.read(partition)], [f"{'a' * 16}-1"])
        closed.unlink()
        with self.assertRaises(DataSourceError) as caught:
            list(reader.read(before[0]))
        self.assertIn("was removed", str(caught.exception))
