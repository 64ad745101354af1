# SPDX-License-Identifier: Apache-2.0
"""From a line to a run, and from a run to its records.

A line of a journal is a *run* of up to 64 records, and stays one row: what its records share is
read, written and kept once, and `records` makes rows of records whenever somebody wants them. That
is 30 times fewer rows to parse, to look for duplicates in and to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqproute.journal.record import END_OF_SEQ, LINE_FIELDS, LONGEST_RUN, RUN_FIELDS, VERSION
from amqproute.pipeline.schema import LINE, NOBODY, RECORDS, RUNS, conform

__all__ = ["TOO_NEW", "parse", "records", "spread"]

TOO_NEW: Final = "schema version "
"""How the reason begins of a line that a later release takes again."""

_NAMES: Final = "[A-Za-z0-9._-]{0,248}"
"""Domains: they become names of folders, with ``domain=`` before them. Other letters would be
written as three."""

_END_OF_TIME: Final = 7_258_118_400_000_000
"""The year 2200, in microseconds. A day behind it would have the tables reach so far."""

_HEAD: Final = '{"h":"'


def parse(lines: DataFrame, *kept: str) -> DataFrame:
    """Read lines of segments.

    Args:
        lines: ``value`` is the text of a line, ``path`` where it stands.
        kept: further columns of `lines` to pass through.

    Returns:
        The columns of `RUNS`, then ``path``, ``text``, ``reason`` and `kept`. What is no line of a
        journal has a ``reason`` and its ``text``, and the others have neither.
    """
    line = F.from_json("value", LINE, {"columnNameOfCorruptRecord": "corrupt"})
    read = lines.select("path", "value", *kept, line.alias("line"))
    read = read.select("*", _reason().alias("reason"))
    good = F.col("reason").isNull()
    folder = F.try_to_date(F.element_at(F.split("path", "/"), -2), "yyyy-MM-dd")
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
    )


_FROM_LINE: Final = [name for name in RUNS.names if name not in ("segment", "day", "domain")]


def _reason() -> Column:
    """Say why a line is none of a journal, as `amqproute.journal.record.read_line` would.

    It would take domains and times that cannot be where a row stands.
    """
    line, text = F.col("line"), F.col("value")
    # Where a line feed has got lost, the reader of JSON takes the first line and is content.
    whole = (
        text.startswith(_HEAD)
        & (F.substring(text, len(_HEAD) + 65, 2) == '",')
        & text.endswith("}")
        & ~F.contains(text, F.lit("}" + _HEAD))
    )
    absent = F.lit(False)
    for name in (*LINE_FIELDS, "all", "each"):
        absent = absent | line[name].isNull()
    misfit = F.lit(False)
    for name in RUN_FIELDS:
        misfit = misfit | (F.size(line["each"][name]) != line["n"])
    return (
        F.when(~whole, "not a whole line of a journal")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(line["v"] > VERSION, F.concat(F.lit(TOO_NEW), line["v"].cast("string")))
        .when(line["corrupt"].isNotNull(), "not JSON, or a field of a wrong type")
        .when(absent | (line["v"] < 1), "a field of the line is missing")
        .when(~line["seq"].between(0, END_OF_SEQ - 1), "'seq' is no sequence")
        .when(
            line["n"].isNull() | ~line["n"].between(1, LONGEST_RUN),
            f"'n' is missing, or no number from 1 to {LONGEST_RUN}",
        )
        .when(F.coalesce(misfit, F.lit(False)), "a column does not have 'n' values")
        .when(~line["domain"].rlike(f"^{_NAMES}$"), "'domain' is no name of one")
        .when(~line["time"].between(0, _END_OF_TIME - 1), "'time' is no time of this age")
    )


def records(runs: DataFrame) -> DataFrame:
    """Return one row for each record of runs, with the columns of `RECORDS`."""
    return conform(spread(runs, RUN_FIELDS), RECORDS)


def spread(runs: DataFrame, fields: Sequence[str], *kept: str) -> DataFrame:
    """Return one row for each record, with the fields of the line and those named.

    Columns of `runs` that are `kept` stand in each row. What is not named is not read. Filters on
    kinds belong on `runs`, before.
    """
    # As text: of these columns there are many, and each step to build one is a call of Java.
    columns = [f"`{name}`" for name in LINE_FIELDS if name != "seq"]
    columns.append("seq + i AS seq")
    columns += [
        f"CASE WHEN `each`.`{name}` IS NOT NULL THEN get(`each`.`{name}`, i)"
        f" ELSE `all`.`{name}` END AS `{name}`"
        for name in fields
    ]
    columns += [f"`{name}`" for name in kept]
    numbered = runs.select("*", F.explode(F.sequence(F.lit(0), F.col("n") - 1)).alias("i"))
    return numbered.selectExpr(*columns)
