# SPDX-License-Identifier: Apache-2.0
"""The Spark data source with real brokers."""

from __future__ import annotations

import contextlib
import io
import re
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

from amqproute.journal import record
from tests.integration.support import PATIENCE, Daemon, until
from tests.pipeline.brokers import bodies_on, daemons, numbers, put, url
from tests.pipeline.support import MISSING, ROOT, SparkCase, run_python

if not MISSING:
    from pyspark.errors.exceptions.base import PySparkException
    from pyspark.sql import DataFrame, Row

    from amqproute.pipeline.datasource import register

SECONDS = 120.0

PROGRAM = """
import os, signal, sys
from amqproute.pipeline.datasource import register
from amqproute.pipeline.spark_session import session
from tests.pipeline.support import SETTINGS
url, queue, out, checkpoint = sys.argv[1:]
spark = session(master="local[1]", memory="512m", settings=SETTINGS)
register(spark)
print(spark._jvm.ProcessHandle.current().pid(), flush=True)

def die(frame, batch):
    frame.write.parquet(f"{out}/first-{batch}")
    os.kill(os.getpid(), signal.SIGKILL)

messages = spark.readStream.format("amqproute").option("url", url).option("maxMessages", 10)
query = messages.load(queue).writeStream.foreachBatch(die).trigger(availableNow=True)
query.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


class SparkTests(SparkCase):
    """The data source as users have it."""

    def setUp(self) -> None:
        super().setUp()
        register(self.spark)
        self.alpha, self.beta = daemons()
        self.url = url(self.alpha)
        self.addCleanup(self.alpha.check)

    def frame(self, *rows: tuple[Any, ...], schema: str) -> DataFrame:
        """Make a data frame."""
        return self.spark.createDataFrame(list(rows), schema)

    def read(self, queue: str, **options: Any) -> list[Row]:
        """Browse."""
        reader = self.spark.read.format("amqproute").option("url", self.url)
        return reader.options(**options).load(queue).collect()

    def test_round_trip(self) -> None:
        """Written rows are read back: every column, on two brokers; a look changes nothing."""
        moment = datetime(2026, 3, 4, 5, 6, 7, 89000)
        schema = (
            "address string, body binary, message_id string, subject string, reply_to string,"
            "correlation_id string, content_type string, content_encoding string,"
            "absolute_expiry_time timestamp, creation_time timestamp, group_id string,"
            "group_sequence int, durable boolean, priority int, ttl long,"
            "application_properties map<string,string>"
        )
        full = (
            "q5", bytearray(b"\x00\xff"), "m-1", "s", "r", "c", "text/x", "gzip",
            moment.replace(year=2096), moment, "g", 3, False, 9, 3_600_000, {"k": "v"},
        )  # fmt: skip
        names = [column.split()[0] for column in schema.split(",")[:16]]
        given = dict(zip(names, full, strict=True))
        frame = self.frame(full, ("q5", *[None] * 15), schema=schema)
        frame.write.format("amqproute").mode("append").option("url", self.url).save()
        for _ in range(2):
            rows = self.read("q5")
            self.assertEqual(len(rows), 2)
            first, second = sorted(rows, key=lambda row: row.message_id != "m-1")
            for name in ("body", "subject", "reply_to", "correlation_id", "content_type"):
                self.assertEqual(first[name], given[name])
            self.assertEqual((first.message_id, first.message_id_type), ("m-1", "string"))
            self.assertEqual((first.priority, first.durable, first.group_sequence), (9, False, 3))
            self.assertEqual((first.creation_time, first.group_id), (moment, "g"))
            self.assertEqual(first.absolute_expiry_time, moment.replace(year=2096))
            self.assertEqual(first.application_properties, {"k": "v"})
            self.assertEqual((second.body, second.to, second.durable), (b"", "q5", True))
            self.assertEqual(second.content_encoding, None)
        put(self.beta, "q5", ["there"], "two brokers")
        two = self.read("q5", url=f"{self.url} {url(self.beta)}")
        places = {where.partition("//")[2] for where in (self.url, url(self.beta))}
        self.assertEqual({row.broker for row in two}, places)
        self.assertEqual(len(two), 3)
        self.assertEqual(len(self.read("q5", limit=1)), 1)
        self.assertEqual([row.message_id for row in self.read("q5", selector="k = 'v'")], ["m-1"])

    def test_refused(self) -> None:
        """A row that is not accepted fails the write, in the broker's words; so do columns."""
        frame = self.frame(("q6", "x"), ("nowhere", "y"), schema="address string, body string")
        writer = frame.coalesce(1).write.format("amqproute").mode("append")
        with self.assertRaises(PySparkException) as caught:
            writer.option("url", self.url).save()
        self.assertIn("to 'nowhere': rejected, amqp:not-found", str(caught.exception))
        for bad, mode, words in (
            (frame.withColumnRenamed("body", "boddy"), "append", "'boddy' does not belong to"),
            (frame.selectExpr("1 body"), "append", "'body' is int, not binary or string"),
            (frame, "overwrite", "messages are added"),
        ):
            with self.assertRaises(PySparkException) as caught:
                bad.write.format("amqproute").mode(mode).option("url", self.url).save()
            self.assertIn(words, str(caught.exception))

    def test_named_write(self) -> None:
        """A write under the same name is the same write; one without a name is another."""
        frame = self.spark.range(300).selectExpr("'q7' address", "string(id) body")
        for _ in range(2):
            frame.write.format("amqproute").mode("append").options(
                url=self.url, run="the-name"
            ).save()
        self.assertEqual(sorted(bodies_on(self.alpha, "q7"), key=int), numbers(0, 300))
        frame.limit(1).write.format("amqproute").mode("append").option("url", self.url).save()
        self.assertEqual(len(bodies_on(self.alpha, "q7")), 301)

    def test_killed(self) -> None:
        """kill -9 of the driver between read and commit: nothing is lost, the batch comes again
        with the same rows, and then everything once."""
        put(self.alpha, "q8", numbers(0, 25), "killed")
        out, checkpoint = (str(Path(self.mktemp()).absolute()) for _ in range(2))
        process = run_python(PROGRAM, self.url, "q8", out, checkpoint, seconds=SECONDS)
        self.assertEqual(process.returncode, -signal.SIGKILL, process.stderr)
        jvm = Path("/proc", process.stdout.strip())
        until(lambda: not jvm.exists(), "the end of its JVM", SECONDS)
        self.assertEqual(len(bodies_on(self.alpha, "q8")), 25)
        put(self.alpha, "q8", ["later"], "killed later")
        batches: dict[int, list[Row]] = {}

        def keep(frame: DataFrame, batch: int) -> None:
            batches[batch] = frame.collect()

        stream = self.spark.readStream.format("amqproute").options(url=self.url, maxMessages=10)
        query = stream.load("q8").writeStream.foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", checkpoint).start().awaitTermination()
        first = self.spark.read.parquet(f"{out}/first-0").collect()
        self.assertEqual(sorted(batches[0]), sorted(first))
        found = [bytes(row.body).decode() for rows in batches.values() for row in rows]
        self.assertEqual(sorted(found), sorted([*numbers(0, 25), "later"]))
        self.assertEqual(max(map(len, batches.values())), 10)
        until(lambda: not bodies_on(self.alpha, "q8"), "an empty queue", PATIENCE)

    def test_stream_to_stream(self) -> None:
        """From one queue to another; a batch that Spark runs again is not sent again."""
        source = Path(self.mktemp()).absolute()
        checkpoint = Path(self.mktemp()).absolute()
        self.spark.range(40).selectExpr("string(id) body").write.parquet(str(source))

        def run() -> None:
            frames = self.spark.readStream.schema("body string").parquet(str(source))
            writer = frames.writeStream.format("amqproute").trigger(availableNow=True)
            writer.options(url=self.url, address="q9", checkpointLocation=str(checkpoint))
            writer.start().awaitTermination()

        run()
        for commit in (checkpoint / "commits").glob("*"):
            commit.unlink()  # as if it had died before
        for commit in (checkpoint / "commits").glob(".*"):
            commit.unlink()
        run()
        self.assertEqual(sorted(bodies_on(self.alpha, "q9"), key=int), numbers(0, 40))
        messages = self.spark.readStream.format("amqproute").option("url", self.url).load("q9")
        writer = messages.selectExpr("'q10' address", "body", "message_id").writeStream
        writer = writer.format("amqproute").trigger(availableNow=True).option("url", self.url)
        writer = writer.option("checkpointLocation", str(Path(self.mktemp()).absolute()))
        writer.start().awaitTermination()
        self.assertEqual(sorted(bodies_on(self.alpha, "q10"), key=int), numbers(0, 40))
        until(lambda: not bodies_on(self.alpha, "q9"), "an empty queue", PATIENCE)

    def test_journal(self) -> None:
        """Journals are read record by record; a torn end is left out, a changed line is named."""
        folder = Path(self.mktemp()).absolute() / "2026-03-04"
        folder.mkdir(parents=True)
        lines, previous = [], record.GENESIS
        for seq, count in ((1, 2), (3, 1)):
            tail = record.tail(
                "received", "j1", "mx1", "alpha.example", "s", seq, count, 1_700_000_000_000_000,
                {"node": "orders"}, {"entry": list(range(seq, seq + count))},
            )  # fmt: skip
            previous, line = record.chained(previous, tail)
            lines.append(line)
        (folder / "one.jsonl").write_bytes(b"".join(lines) + b'{"h":"torn')
        reader = self.spark.read.format("amqproute").option("journal", str(folder.parent))
        found = reader.load().orderBy("seq").select("event_id", "entry", "node", "time").collect()
        self.assertEqual(
            [tuple(row) for row in found],
            [(f"j1-{n}", n, "orders", 1_700_000_000_000_000) for n in (1, 2, 3)],
        )
        (folder / "two.jsonl").write_bytes(lines[0] + lines[1].replace(b"orders", b"0rders"))
        with self.assertRaises(PySparkException) as caught:
            reader.load().collect()
        self.assertIn("two.jsonl:2: its hash does not follow", str(caught.exception))

    def test_document(self) -> None:
        """The document's examples, one after the other, do what it says."""
        text = (ROOT / "docs" / "spark-source.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertGreater(len(blocks), 5)
        broker = Daemon("doc.example", changes={"nodes": [{"name": "orders"}, {"name": "archive"}]})
        self.addCleanup(broker.kill)
        broker.start()
        script = "".join(blocks).replace("amqp://localhost", url(broker))
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(script, "spark-source.md", "exec"), names)
        self.assertEqual(output.getvalue().split()[-1], "1000")
        self.assertIs(names["spark"], self.spark)
        broker.check()
