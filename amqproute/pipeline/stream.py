# SPDX-License-Identifier: Apache-2.0
"""Live figures: what each hour brought from and to each partner, a minute after it was written.

A Structured Streaming query follows the closed segments of journals and appends to a table of
Parquet files, one row for each hour, organization, partner and kind of event. It parses lines and
spreads records with the same functions as the nightly run, and `live` makes the same figures of a
table: whatever the order and the number of steps, the sums are the same.

What has to be kept between two steps is bounded by time. Segments may arrive in any order within
`lateness`; so long the query remembers which records it has seen, and waits before it closes an
hour. By records, and not by lines: in an export that was made again, or a segment that came in
parts, lines may have some of their records in common, and each counts once. What comes later than
that is counted as dropped (`StreamProgress.dropped`), and only the nightly run, which remembers
everything, has it. Whether lines are what was written it does not ask either: the nightly run does.
A time that cannot be would end all hours before it, so such lines are refused here too.

Exactly once: the checkpoint says which files each step read, and the table's own log which steps
have been written; a step that was interrupted, by ``kill -9`` too, is done again and its files
replace those that nobody can see yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from amqproute.journal.record import ENDS, RecordKind
from amqproute.pipeline.defaults import LATENESS, STEP_SEGMENTS
from amqproute.pipeline.figures import OWN, partner
from amqproute.pipeline.ingest import DAYS, literal
from amqproute.pipeline.lines import AHEAD_US, parse, spread

__all__ = ["LIVE", "StreamProgress", "follow", "live", "progress", "read_live", "timed"]

LIVE: Final = (
    "hour timestamp, domain string, partner string, kind string, messages long, octets long, "
    "within_second long, within_minute long, longest_us long"
)
"""One row for each hour, organization, partner and kind: how many messages; the octets of those
that were received, bare as partners bill them (of journals of earlier releases: as stored); of
those that were handed over, how many had waited and travelled less than a second, less than a
minute, and the longest of all in microseconds."""

_LINES: Final = "lines"
_KINDS: Final = sorted({RecordKind.RECEIVED, RecordKind.DEFERRED, RecordKind.DUPLICATE, *ENDS})
_FIELDS: Final = ("sender", "peer", "size", "bare_size", "count", "queue_us", "wire_us")


def timed(runs: DataFrame) -> DataFrame:
    """Add ``at`` to runs: the time of their records as a timestamp, which streams go by."""
    return runs.withColumn("at", F.timestamp_micros("time"))


def live(runs: DataFrame) -> DataFrame:
    """Make the figures of runs, of a table or of a stream.

    Args:
        runs: `timed`, of a table or of a stream.

    Returns:
        `LIVE`.
    """
    return _sums(_told(runs))


def _told(runs: DataFrame) -> DataFrame:
    """Return the records that count, one row for each."""
    return spread(runs.where(F.col("kind").isin(_KINDS)), _FIELDS, "at")


def _sums(records: DataFrame) -> DataFrame:
    taken = F.col("queue_us") + F.coalesce("wire_us", F.lit(0))
    figures = records.select(
        "at",
        "domain",
        F.coalesce(partner(F.coalesce("peer", "sender")), F.lit(OWN)).alias("partner"),
        "kind",
        F.coalesce("count", F.lit(1)).alias("number"),
        F.when(F.col("kind") == RecordKind.RECEIVED, F.coalesce("bare_size", "size")).alias(
            "octets"
        ),
        taken.alias("taken"),
    )
    return (
        figures.groupBy(F.window("at", "1 hour"), "domain", "partner", "kind")
        .agg(
            F.sum("number").alias("messages"),
            F.coalesce(F.sum("octets"), F.lit(0)).alias("octets"),
            _number_within(taken_us=1_000_000).alias("within_second"),
            _number_within(taken_us=60_000_000).alias("within_minute"),
            F.max("taken").alias("longest_us"),
        )
        .select(F.col("window.start").alias("hour"), *_names()[1:])
    )


def _number_within(taken_us: int) -> Column:
    return F.count(F.when(F.col("taken") < taken_us, True))


def _names() -> list[str]:
    return [part.split()[0] for part in LIVE.split(", ")]


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far a query has come.

    Attributes:
        steps: that were taken, by this process.
        lines: that were read in them.
        dropped: records and figures that came later than `lateness` allows.
        rejected: lines that are none of a journal.
        until: hours that ended before this time are in the table; ISO 8601, None at the beginning.
        last: number of the last step.
    """

    steps: int = 0
    lines: int = 0
    dropped: int = 0
    rejected: int = 0
    until: str | None = None
    last: int = -1


def follow(
    spark: SparkSession,
    journals: Sequence[str | Path],
    output: str | Path,
    *,
    lateness: str = LATENESS,
    every: str | None = None,
    at_once: int = STEP_SEGMENTS,
) -> StreamingQuery:
    """Start the query that follows journals.

    Args:
        spark: where it runs.
        journals: their directories; what is added later is read from its beginning.
        output: gets the table ``live`` and the ``checkpoint``. Who starts a query with the same
            output goes on where the last one was ended.
        lateness: how long a segment may take to arrive, as Spark writes intervals.
        every: time from step to step; None for all that is there, and then the end.
        at_once: segments of one step, at most.
    """
    lines = _lines(spark, journals, at_once)
    rejected = F.count_if(F.col("reason").isNotNull()).alias("rejected")
    until = F.unix_micros(now()) + AHEAD_US
    parsed = parse(lines, until=until).observe(_LINES, rejected).where(F.col("reason").isNull())
    # All records tell what time it is, also those that do not count: a broker with nothing to do
    # says what it holds. Before the watermark Spark would leave them out.
    told = spread(timed(parsed), _FIELDS, "at").withWatermark("at", lateness)
    once = told.dropDuplicatesWithinWatermark(["journal", "seq"])
    writer = (
        _sums(once.where(F.col("kind").isin(_KINDS)))
        .writeStream.outputMode("append")
        .format("parquet")
        .queryName("amqproute live")
        .option("path", f"{output}/live")
        .option("checkpointLocation", f"{output}/checkpoint")
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def now() -> Column:
    """Return the time of the step, by the clock of this machine."""
    return F.current_timestamp()


def _lines(spark: SparkSession, journals: Sequence[str | Path], at_once: int) -> DataFrame:
    # One source for all: the plan is that of one, and journals may be added later.
    reader = spark.readStream.option("maxFilesPerTrigger", at_once).option("lineSep", "\n")
    text = reader.option("pathGlobFilter", "*.jsonl").text(f"{_pattern(journals)}/{DAYS}")
    return text.select("value", F.col("_metadata.file_path").alias("path"))


def _pattern(journals: Sequence[str | Path]) -> str:
    """Write one pattern for all directories: what they have in common, and what not in braces."""
    names = [str(each) if "://" in str(each) else str(Path(each).absolute()) for each in journals]
    split = [name.split("/") for name in names]
    depth = min(map(len, split)) - 1
    while depth and len({tuple(parts[:depth]) for parts in split}) > 1:
        depth -= 1
    common = "/".join(split[0][:depth])
    rests = ("/".join(parts[depth:]) for parts in split)
    return f"{literal(common)}/{{{','.join(map(literal, rests))}}}"


def progress(query: StreamingQuery, before: StreamProgress | None = None) -> StreamProgress:
    """Say how far a query has come.

    Spark keeps what it says of the last hundred steps, so who wants all of them asks in between.

    Args:
        query: that runs, or has ended.
        before: what was said last.
    """
    done = before or StreamProgress()
    # Between two steps it says from time to time that there is nothing to do.
    steps: Sequence[Any] = [
        step
        for step in query.recentProgress
        if step.batchId > done.last and "addBatch" in step.durationMs
    ]
    if not steps:
        return done
    dropped = sum(
        operator.numRowsDroppedByWatermark for step in steps for operator in step.stateOperators
    )
    told = [step.observedMetrics[_LINES] for step in steps if _LINES in step.observedMetrics]
    return StreamProgress(
        done.steps + len(steps),
        done.lines + sum(step.numInputRows for step in steps),
        done.dropped + dropped,
        done.rejected + sum(row.rejected for row in told),
        steps[-1].eventTime.get("watermark", done.until),
        steps[-1].batchId,
    )


def read_live(spark: SparkSession, output: str | Path) -> DataFrame:
    """Return the table, with the steps that are complete."""
    return spark.read.schema(LIVE).parquet(f"{output}/live")
