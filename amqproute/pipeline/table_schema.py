# SPDX-License-Identifier: Apache-2.0
"""The schemas of all tables, from the fields of the journal's records down to the figures.

The fields of records come from `amqproute.journal.record.FIELDS`: a new field there is read, kept
and shown here without a change. Times are microseconds since the epoch in columns that end in
``_us`` or are called ``time``, as in the journal; durations are microseconds too.

`TABLES` lists the stored tables; ``docs/pipeline.md`` documents them, and a test compares the two.
Every function on tables checks its input and output by name and type with `conform`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from amqproute.journal.record import FIELDS, LINE_FIELDS, RUN_FIELDS

__all__ = [
    "BALANCE",
    "HOPS",
    "LATENCIES",
    "LINE",
    "MESSAGES",
    "NOBODY",
    "QUEUES",
    "REASONS",
    "RECORDS",
    "REJECTS",
    "RUNS",
    "SEGMENTS",
    "STAY",
    "TABLES",
    "VIOLATIONS",
    "VOLUMES",
    "conform",
]

NOBODY: Final = "unknown"
"""The domain of a record without one."""

_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "date": DateType(),
}


def _struct(**columns: str | DataType) -> StructType:
    return StructType(
        [
            StructField(name.rstrip("_"), _TYPES[type_] if isinstance(type_, str) else type_)
            for name, type_ in columns.items()
        ]
    )


RECORDS: Final = _struct(**FIELDS)
"""One row for each record, with exactly the fields of `amqproute.journal.record.JournalRecord`."""

_ALL: Final = _struct(**{name: FIELDS[name] for name in RUN_FIELDS})
_EACH: Final = _struct(**{name: ArrayType(_TYPES[FIELDS[name]]) for name in RUN_FIELDS})

LINE: Final = _struct(
    **{name: FIELDS[name] for name in LINE_FIELDS},
    n="int",
    all=_ALL,
    each=_EACH,
    corrupt="string",
)
"""A line of a segment as JSON; `corrupt` gets the text of a malformed one."""

RUNS: Final = _struct(
    **{name: FIELDS[name] for name in LINE_FIELDS if name != "domain"},
    n="int",
    all=_ALL,
    each=_EACH,
    segment="string",
    day="date",
    domain="string",
)
"""Bronze: one row for each line: up to 64 records that were written together."""

REJECTS: Final = _struct(
    path="string", line="int", reason="string", text="string", segment="string",
    day="date", domain="string",
)  # fmt: skip
"""Rejected lines, whole, with their places."""

SEGMENTS: Final = _struct(
    segment="string", path="string", length="long", reader="int", lines="long", records="long",
    duplicates="long", rejected="long", too_new="long", contradicting="long", tampered="long",
    modified_us="long", journals=ArrayType(StringType()), first_seq="long", end_seq="long",
    opening="string", closing="string", taken_us="long", day="date", domain="string",
)  # fmt: skip
"""Ingested files; they keep a second run from taking a segment twice."""

HOPS: Final = _struct(
    stream="string", entry="long", parent="long", kind="string", broker="string", node="string",
    message_id="string", message_id_type="string", to="string", origin="string", sender="string",
    size="long", bare_size="long", durable="boolean", digest="string", from_stream="string",
    from_entry="long", trail="string", began_us="long", commit_us="long", fate="string",
    ended_us="long", queue="string", peer="string", next_broker="string", attempt="int",
    condition="string", code="string", words="string", queue_us="long", resolve_us="long",
    connect_us="long", wire_us="long", settle_us="long", beginnings="int", endings="int",
    deferrals="int", duplicates="int", day="date", domain="string",
)  # fmt: skip
"""Silver: one row for each entry, a message on its way through one broker."""

STAY: Final = _struct(
    domain="string", broker="string", stream="string", entry="long", parent="long", node="string",
    began_us="long", ended_us="long", fate="string", queue="string", peer="string", attempt="int",
    queue_us="long", wire_us="long", deferrals="int",
)  # fmt: skip
"""A hop in the row of a message."""

MESSAGES: Final = _struct(
    trace_stream="string", trace_entry="long", message_id="string", message_id_type="string",
    to="string", origin="string", size="long", bare_size="long", digest="string", began_us="long",
    ended_us="long", latency_us="long", fate="string", brokers="int", copies="int",
    duplicates="int", deferrals="int", same_digest="boolean", hops=ArrayType(STAY), day="date",
    domain="string",
)  # fmt: skip
"""Silver: one row for each message, over all brokers and organizations that saw it."""

VIOLATIONS: Final = _struct(
    what="string", broker="string", stream="string", entry="long", message_id="string",
    message_id_type="string", node="string", at_us="long", hidden="boolean", day="date",
    domain="string",
)  # fmt: skip
"""Gold: entries that conservation does not allow."""

BALANCE: Final = _struct(
    hour="timestamp", accepted="long", delivered="long", relayed="long", returned="long",
    expired="long", deleted="long", dead_lettered="long", rejected="long", queued="long",
    forgotten="long", lost="long", day="date", domain="string",
)  # fmt: skip
"""Gold: the fates of the messages of each hour."""

LATENCIES: Final = _struct(
    hour="timestamp", queue="string", peer="string", stage="string", bucket="int", number="long",
    day="date", domain="string",
)  # fmt: skip
"""Gold: durations of hops, as a histogram with buckets of 2 %."""

VOLUMES: Final = _struct(
    hour="timestamp", partner="string", direction="string", messages="long", octets="long",
    unmeasured="long", day="date", domain="string",
)  # fmt: skip
"""Gold: messages and octets between a domain and each partner."""

REASONS: Final = _struct(
    hour="timestamp", kind="string", partner="string", node="string", condition="string",
    code="string", number="long", day="date", domain="string",
)  # fmt: skip
"""Gold: attempts, deferrals, releases, dead letters, refusals, duplicates, and their reasons."""

QUEUES: Final = _struct(
    queue="string", came="long", octets="long", left="long", waiting="long", oldest_us="long",
    day="date", domain="string",
)  # fmt: skip
"""Gold: each queue's messages of a day: arrived, left and still waiting."""

TABLES: Final[Mapping[str, StructType]] = {
    "runs": RUNS,
    "rejects": REJECTS,
    "segments": SEGMENTS,
    "hops": HOPS,
    "messages": MESSAGES,
    "violations": VIOLATIONS,
    "balance": BALANCE,
    "latencies": LATENCIES,
    "volumes": VOLUMES,
    "reasons": REASONS,
    "queues": QUEUES,
}


def conform(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return the columns of a schema in its order; the contract at both ends of a function.

    Raises:
        TypeError: a column has another type. A missing one is Spark's own error.
    """
    chosen = rows.select(*(F.col(f"`{name}`") for name in schema.names))
    wrong = [
        f"{mine.name}: {mine.dataType.simpleString()}, not {its.dataType.simpleString()}"
        for mine, its in zip(chosen.schema, schema, strict=True)
        if mine.dataType.simpleString() != its.dataType.simpleString()
    ]
    if wrong:
        raise TypeError("; ".join(wrong))
    return chosen
