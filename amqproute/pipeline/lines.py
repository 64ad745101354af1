# SPDX-License-Identifier: Apache-2.0
"""From a line to a run, and from a run to its records.

A line of a journal is a *run* of up to 64 records, and stays one row: the fields shared by its
records are read, written and kept once, and `records` makes rows of records on demand. That is 30
times fewer rows to parse, to check for duplicates and to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqproute.journal.record import (
    END_OF_SEQ,
    LINE_FIELDS,
    LONGEST_RUN,
    RUN_FIELDS,
    VERSION,
    RecordKind,
)
from amqproute.pipeline.chain import HASH, HEAD, broken
from amqproute.pipeline.table_schema import LINE, NOBODY, RECORDS, RUNS, conform

__all__ = ["AHEAD_US", "LONGEST_SEGMENT_DAYS", "TOO_NEW", "parse", "records", "spread"]

TOO_NEW: Final = "schema version "
"""Beginning of the reason of a line that a later release takes again."""

_NAMES: Final = "[A-Za-z0-9._-]{0,248}"
"""Domains. Earlier releases used them as names of folders."""

_DAY_US: Final = 86_400_000_000
_BEGINNING_OF_TIME: Final = 1_577_836_800_000_000
_END_OF_TIME: Final = 7_258_118_400_000_000
"""The years 2020 and 2200, in microseconds. A day beyond would stretch the tables to it."""
AHEAD_US: Final = _DAY_US
"""Most by which a broker's clock may be ahead of the machine that reads its journal."""
LONGEST_SEGMENT_DAYS: Final = 31
"""Longest time between a record and the day of its segment, before
or after it: records may have waited in the store while the broker was down."""
MOST_OCTETS: Final = 1 << 40
"""Most octets of a message, or messages and records counted by one
record: the sum of 8 million such values still fits into 64 bits."""
LONGEST_US: Final = 1 << 52
"""Longest step in microseconds: 142 years."""
LAST_SEQ: Final = 1 << 56
"""Last sequence of a record. After a restore from a backup a journal continues at the number of
microseconds since the epoch, or 2^48 further on; nothing leads beyond that. A line with a greater
number would be the last of its journal forever, and all later records would be in a gap before
it."""


def parse(
    lines: DataFrame, *kept: str, is_chained: bool = False, until: Column | None = None
) -> DataFrame:
    """Read lines of segments.

    Args:
        lines: ``value`` is the text of a line, ``path`` its file.
        kept: further columns of `lines` to pass through.
        is_chained: whether `lines` come from `amqproute.pipeline.chain.with_previous`; then a line
            that does not follow from the one before it is rejected.
        until: times of records must be before this, microseconds since the epoch.

    Returns:
        The columns of `RUNS`, then ``path``, ``text``, ``reason`` and `kept`. A rejected line has a
        ``reason`` and its ``text``, the others have neither. With `is_chained` also ``closing``,
        the hash of the last line of a file, if that is not rejected.
    """
    line = F.from_json("value", LINE, {"columnNameOfCorruptRecord": "corrupt"})
    chain = ("before", "is_proven", "is_last") if is_chained else ()
    read = lines.select("path", "value", *kept, *chain, line.alias("line"))
    folder = F.try_to_date(F.element_at(F.split("path", "/"), -2), "yyyy-MM-dd")
    reasons = [_reason(), _out_of_range(folder, until)]
    if is_chained:
        reasons.insert(1, broken(F.col("line")))
    read = read.select("*", F.coalesce(*reasons).alias("reason"))
    good = F.col("reason").isNull()
    own = F.substring("value", len(HEAD) + 1, HASH)
    closing = [F.when(good & F.col("is_last"), own).alias("closing")] if is_chained else []
    return read.select(
        *(F.col(f"line.{name}").alias(name) for name in _FROM_LINE),
        F.element_at(F.split("path", "/"), -1).alias("segment"),
        F.when(good, F.timestamp_micros("line.time").cast("date")).otherwise(folder).alias("day"),
        F.when(good & (F.col("line.domain") != ""), F.col("line.domain"))
        .otherwise(NOBODY)
        .alias("domain"),
        "path",
        F.when(~good, F.col("value")).alias("text"),
        "reason",
        *kept,
        *closing,
    )


_FROM_LINE: Final = [name for name in RUNS.names if name not in ("segment", "day", "domain")]


def _reason() -> Column:
    """Give the reason to reject a line, as `amqproute.journal.record.read_line` does.

    That function accepts domains that a path cannot hold, and values outside of `_out_of_range`.
    """
    line, text = F.col("line"), F.col("value")
    # If a line feed was lost, the JSON reader takes the first line and ignores the rest.
    whole = (
        text.startswith(HEAD)
        & (F.substring(text, len(HEAD) + HASH + 1, 2) == '",')
        & text.endswith("}")
        & ~F.contains(text, F.lit("}" + HEAD))
    )
    absent = F.lit(False)
    for name in (*LINE_FIELDS, "all", "each"):
        absent = absent | line[name].isNull()
    misfit = F.lit(False)
    for name in RUN_FIELDS:
        misfit = misfit | (F.size(line["each"][name]) != line["n"])
    return (
        F.when(~whole, "not a complete line of a journal")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(line["v"] > VERSION, F.concat(F.lit(TOO_NEW), line["v"].cast("string")))
        .when(line["corrupt"].isNotNull(), "not JSON, or a field of a wrong type")
        .when(absent | (line["v"] < 1), "a field of the line is missing")
        .when(~line["seq"].between(0, END_OF_SEQ - 1), "'seq' is not a sequence number")
        .when(
            line["n"].isNull() | ~line["n"].between(1, LONGEST_RUN),
            f"'n' is missing, or not a number from 1 to {LONGEST_RUN}",
        )
        .when(F.coalesce(misfit, F.lit(False)), "a column does not have 'n' values")
        .when(~line["domain"].rlike(f"^{_NAMES}$"), "'domain' is not a domain name")
        .when(
            ~line["time"].between(_BEGINNING_OF_TIME, _END_OF_TIME - 1),
            "'time' is out of range",
        )
    )


def _out_of_range(folder: Column, until: Column | None) -> Column:
    """Give the reason to reject a line for a number out of its bounds, whoever wrote the journal.

    One such line would make a day of its own, or overflow a sum.
    """
    line = F.col("line")
    day_us = F.unix_date(folder) * F.lit(_DAY_US)
    span = LONGEST_SEGMENT_DAYS * _DAY_US
    is_near = line["time"].between(day_us - span, day_us + (_DAY_US + span - 1))
    is_late = F.lit(False) if until is None else line["time"] >= until
    counted = _exceeds(_values(line, _COUNTED), 0, MOST_OCTETS)
    # A segment may skip any number of sequences.
    is_leap = line["kind"] == RecordKind.SEGMENT
    return (
        F.when(line["seq"] > LAST_SEQ, "'seq' is out of range")
        .when(is_late, "'time' is in the future")
        .when(~is_near, f"'time' is more than {LONGEST_SEGMENT_DAYS} days from its segment's")
        .when(counted & ~is_leap, "a size or a number is out of range")
        .when(
            _exceeds(_values(line, _STEPS), -LONGEST_US, LONGEST_US), "a duration is out of range"
        )
    )


_COUNTED: Final = ["size", "bare_size", "count"]
_STEPS: Final = [name for name in RUN_FIELDS if name.endswith("_us")]


def _values(line: Column, names: Sequence[str]) -> tuple[list[Column], list[Column]]:
    shared = [line["all"][name] for name in names]
    each = [line["each"][name] for name in names]
    return [*shared, *map(F.array_min, each)], [*shared, *map(F.array_max, each)]


def _exceeds(values: tuple[list[Column], list[Column]], least: int, most: int) -> Column:
    return (F.least(*values[0]) < least) | (F.greatest(*values[1]) > most)


def records(runs: DataFrame) -> DataFrame:
    """Return one row for each record of runs, with the columns of `RECORDS`."""
    return conform(spread(runs, RUN_FIELDS), RECORDS)


def spread(runs: DataFrame, fields: Sequence[str], *kept: str) -> DataFrame:
    """Return one row for each record, with the fields of the line and those named.

    Columns of `runs` that are `kept` are in each row. Other fields are not read. Filters on kinds
    belong on `runs`, before.
    """
    # As text: there are many of these columns, and each step to build one is a call of Java. Fields
    # are taken out of their structures before the rows are multiplied: Spark then reads those
    # named, and otherwise most often all of them.
    lines = [f"`{name}`" for name in dict.fromkeys((*LINE_FIELDS, "n", *kept))]
    lines += [f"`all`.`{name}` AS `all {name}`" for name in fields]
    lines += [f"`each`.`{name}` AS `each {name}`" for name in fields]
    columns = [f"`{name}`" for name in LINE_FIELDS if name != "seq"]
    columns.append("seq + i AS seq")
    columns += [
        f"CASE WHEN `each {name}` IS NOT NULL THEN get(`each {name}`, i)"
        f" ELSE `all {name}` END AS `{name}`"
        for name in fields
    ]
    columns += [f"`{name}`" for name in kept]
    numbered = runs.selectExpr(*lines).selectExpr("*", "explode(sequence(0, n - 1)) AS i")
    return numbered.selectExpr(*columns)
