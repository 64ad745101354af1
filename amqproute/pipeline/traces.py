# SPDX-License-Identifier: Apache-2.0
"""Silver: the history of an entry at one broker (`hops`), and of a message as a whole (`messages`).

An entry is identified by (stream, entry). Its records meet in one exchange and one aggregation: the
first that begins it, the first that ends it, the number of each, and counts of others.

The next broker's beginning names the entry here that it came from, so a message is a tree of
entries: those that were handed over, and the copies, reports and dead letters made of them within a
broker (``parent``). The *trace* of a message is the root of its tree. Most entries know their root:
a client's has no predecessor, and the next broker's has the client's. Only entries that came over
more than two brokers, or have a parent, are looked up, step by step (`_ROUNDS`). A hop over a
broker without a journal is bridged: origin, message-id and digest are the same at both sides.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqproute.journal.record import BEGINS, ENDS, RecordKind
from amqproute.pipeline.lines import spread
from amqproute.pipeline.reuse import Reuse
from amqproute.pipeline.table_schema import HOPS, MESSAGES, RUNS, STAY, conform

__all__ = ["KINDS", "hops", "is_answer", "may_be_bridged", "messages"]

_ROUNDS: Final = 16
"""Most hops between a message and its root that are looked up."""

_AT_BEGIN: Final = (
    "parent", "node", "message_id", "message_id_type", "to", "origin", "sender", "size",
    "bare_size", "durable", "digest", "from_stream", "from_entry", "trail",
)  # fmt: skip
_AT_END: Final = (
    "peer", "attempt", "condition", "code", "words", "queue_us", "resolve_us", "connect_us",
    "wire_us",
)  # fmt: skip
_MOVES: Final = (RecordKind.ROUTED, RecordKind.SPOOLED)
KINDS: Final = sorted({*BEGINS, *ENDS, RecordKind.DEFERRED, RecordKind.DUPLICATE})


def hops(runs: DataFrame) -> DataFrame:
    """Make one row for each entry.

    Args:
        runs: `RUNS`, of all days between the beginnings and ends of the entries.

    Returns:
        `HOPS`. An entry without a beginning has no ``kind``, and the day of its end; one that has
        not ended has no ``fate``. A message that was relayed and received has ``duplicates`` where
        it was handed over.
    """
    fields = ("entry", "settle_us", "connection", *_AT_BEGIN, *_AT_END)
    runs = conform(runs, RUNS).where(F.col("kind").isin(KINDS))
    records = spread(runs, fields).where(
        F.col("entry").isNotNull() | (F.col("kind") == RecordKind.DUPLICATE)
    )
    kind = F.col("kind")
    # A relay's connection is named after the container-id of the other end.
    next_broker = F.when(kind == RecordKind.RELAYED, F.col("connection")).alias("next_broker")
    # The record of a peer's repetition names the peer's entry that it repeats.
    again = kind == RecordKind.DUPLICATE
    moves = kind.isin(*_MOVES) & (F.col("parent") == F.col("entry"))
    begins = kind.isin(*BEGINS) & ~F.coalesce(moves, F.lit(False))
    ends = kind.isin(*ENDS)
    recovered = kind == RecordKind.RECOVERY
    told = records.select(
        F.when(again, F.col("from_stream")).otherwise(F.col("stream")).alias("stream"),
        F.when(again, F.col("from_entry")).otherwise(F.col("entry")).alias("entry"),
        F.when(
            begins,
            F.struct(
                recovered.alias("recovered"), "time", "seq", "kind", "domain", "broker",
                F.col("settle_us").alias("commit_us"), *_AT_BEGIN,
            ),
        ).alias("begin"),
        F.when(
            ends,
            F.struct(
                "time", "seq", "kind", "domain", "broker", "settle_us", "node", *_AT_END,
                next_broker,
            ),
        ).alias("end"),
        F.when(moves, F.struct("time", "seq", "node")).alias("move"),
        (begins & ~recovered).cast("int").alias("is_begin"),
        (kind == RecordKind.DEFERRED).cast("int").alias("is_deferral"),
        again.cast("int").alias("is_again"),
    )  # fmt: skip
    # Exchanged before the aggregation: Spark then aggregates once and not on both sides of it. The
    # entry goes first: rows are sorted by the first octets of their keys, and there are few
    # streams.
    entries = (
        told.where("stream IS NOT NULL AND entry IS NOT NULL")
        .repartition("entry", "stream")
        .groupBy("entry", "stream")
        .agg(
            F.min("begin").alias("begin"),
            F.min("end").alias("end"),
            F.max("move").alias("move"),
            F.sum("is_begin").cast("int").alias("beginnings"),
            F.count("end").cast("int").alias("endings"),
            F.sum("is_deferral").cast("int").alias("deferrals"),
            F.sum("is_again").cast("int").alias("duplicates"),
        )
        .where("begin IS NOT NULL OR end IS NOT NULL")
    )
    at = F.coalesce("begin.time", "end.time")
    rows = entries.select(
        "stream",
        "entry",
        F.col("begin.kind").alias("kind"),
        F.coalesce("begin.domain", "end.domain").alias("domain"),
        F.coalesce("begin.broker", "end.broker").alias("broker"),
        *(F.col(f"begin.{name}").alias(name) for name in _AT_BEGIN),
        F.col("begin.commit_us").alias("commit_us"),
        F.col("begin.time").alias("began_us"),
        F.col("end.kind").alias("fate"),
        F.col("end.time").alias("ended_us"),
        F.coalesce("end.node", "move.node", "begin.node").alias("queue"),
        *(F.col(f"end.{name}").alias(name) for name in _AT_END),
        F.col("end.next_broker").alias("next_broker"),
        F.col("end.settle_us").alias("settle_us"),
        "beginnings",
        "endings",
        "deferrals",
        "duplicates",
        F.timestamp_micros(at).cast("date").alias("day"),
    )
    return conform(rows, HOPS)


def is_answer() -> Column:
    """Return whether an entry is the broker's answer to a client's request to a service.

    Nobody has sent it, so it is not a message: only `HOPS` and conservation have it. An answer for
    another organization's client is a message, since both sides count it.
    """
    own_node = (F.col("to") == F.col("node")) | F.col("to").startswith(F.concat("node", F.lit("@")))
    made = (
        (F.col("kind") == RecordKind.ROUTED)
        & F.col("parent").isNull()
        & F.col("from_entry").isNull()
    )
    return F.coalesce(made & own_node & (F.col("sender") == _OWN), F.lit(False))


_OWN: Final = "anonymous"
"""The sender of messages made by a broker itself."""


# -- whose hop it is ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lookups:
    """Numbers of entries whose root is unknown.

    Attributes:
        far: entries with a parent, or that came over more brokers than two.
        bridged: entries that may have come from a broker without a journal.
        children: copies and reports that were handed on, which may be the root of others.
        steps: most steps from one of `far` to its root; at least `_ROUNDS` if unknown.
    """

    far: int
    bridged: int
    children: int
    steps: int

    @property
    def are_few(self) -> bool:
        """Whether they can be broadcast."""
        return self.far + self.bridged <= _FEW


def _lookups(entries: DataFrame) -> _Lookups:
    far = _is_far()
    row = entries.agg(
        F.count_if(far),
        F.count_if(may_be_bridged()),
        F.count_if(_is_child()),
        F.coalesce(F.max(F.when(far, F.coalesce(_steps(), F.lit(_ROUNDS)))), F.lit(0)),
    ).first()
    assert row is not None
    return _Lookups(*row)


def _roots(entries: DataFrame, above: DataFrame, lookups: _Lookups, reuse: Reuse) -> DataFrame:
    """Find the root of each entry that is neither its own root nor a direct successor of it.

    Goes up one step at a time, with only those entries that have further to go; between two steps
    it waits for their number, unless it is known to be 0. The result is computed, and no
    intermediate rows are kept.

    Args:
        entries: `HOPS`.
        above: `HOPS` that contain their roots.
        lookups: their numbers; not 0.
        reuse: keeps the result.

    Returns:
        ``stream``, ``entry``, ``root_stream``, ``root_entry``; with ``is_child`` for a copy or a
        report that was handed on, and so may be the root of others.
    """
    ups = above.where(_is_above()).select(
        F.col("stream").alias("at_stream"), F.col("entry").alias("at_entry"), *_above("up")
    )
    moving = entries.where(_is_far()).select(
        "stream", "entry", *_above("at"), _steps().alias("left"), _is_child().alias("is_child")
    )
    if lookups.bridged:
        moving = moving.unionByName(_bridged(entries, above))
    steps: list[DataFrame] = []
    found: list[DataFrame] = []
    most = _ROUNDS if lookups.bridged else min(lookups.steps, _ROUNDS)
    for number in range(1, most + 1):
        moved = _moved(moving, ups, are_few=lookups.are_few).persist()
        steps.append(moved)
        is_there = F.col("up_stream").isNull() | (F.col("left") == 1)
        found.append(
            moved.where(is_there).select(
                "stream",
                "entry",
                F.coalesce("up_stream", "at_stream").alias("root_stream"),
                F.coalesce("up_entry", "at_entry").alias("root_entry"),
                "is_child",
            )
        )
        moving = moved.where(~F.coalesce(is_there, F.lit(False))).select(
            "stream",
            "entry",
            F.col("up_stream").alias("at_stream"),
            F.col("up_entry").alias("at_entry"),
            (F.col("left") - 1).alias("left"),
            "is_child",
        )
        if number < most and not moving.count():
            break
    whole = reuse.computed(functools.reduce(DataFrame.unionByName, found))
    for moved in steps:
        moved.unpersist()
    return whole


def _moved(moving: DataFrame, ups: DataFrame, *, are_few: bool) -> DataFrame:
    """Add the next step up, ``up_stream`` and ``up_entry``, to those that move; None at a root."""
    if not are_few:
        return moving.join(ups, ["at_stream", "at_entry"], "left")
    # All entries are scanned in place, and only matches are exchanged.
    nearer = F.broadcast(moving.select("stream", "entry", "at_stream", "at_entry"))
    met = ups.join(nearer, ["at_stream", "at_entry"])
    ahead = F.broadcast(met.select("stream", "entry", "up_stream", "up_entry"))
    return moving.join(ahead, ["stream", "entry"], "left")


_FEW: Final = 500_000
"""Up to this number, entries are broadcast rather than exchanged with all others."""


def _bridged(entries: DataFrame, above: DataFrame) -> DataFrame:
    """Find messages that went to a broker without a journal, and came back to one that has one."""
    same = ["origin", "message_id", "message_id_type", "digest"]
    lost = entries.where(may_be_bridged() & F.col("parent").isNull()).select(
        "stream", "entry", _length().alias("length"), *same
    )
    left = above.where((F.col("fate") == RecordKind.RELAYED) & F.col("parent").isNull()).select(
        F.col("stream").alias("at_stream"),
        F.col("entry").alias("at_entry"),
        _length().alias("before"),
        *same,
    )
    met = lost.join(left, same).where("before < length")
    nearest = met.groupBy("stream", "entry").agg(
        F.max(F.struct("before", "at_stream", "at_entry")).alias("nearest")
    )
    return nearest.select(
        "stream", "entry", "nearest.at_stream", "nearest.at_entry",
        F.lit(None).cast("int").alias("left"), F.lit(False).alias("is_child"),
    )  # fmt: skip


def _length() -> Column:
    """Number of brokers that a message had passed before."""
    trail = F.coalesce("trail", F.lit(""))
    return F.when(trail == "", 0).otherwise(F.size(F.split(trail, " ")))


def _is_above() -> Column:
    """Whether an entry names its predecessor."""
    return F.col("parent").isNotNull() | F.col("from_stream").isNotNull()


def _is_far() -> Column:
    """Whether the predecessor may not be the root."""
    return F.col("parent").isNotNull() | (F.col("from_stream").isNotNull() & (_length() > 1))


def may_be_bridged() -> Column:
    """Whether an entry came from a broker without a journal: one with a journal names its entry."""
    return F.col("from_stream").isNull() & (_length() > 0)


def _is_child() -> Column:
    """Whether an entry has a parent and was handed on: others may have come from it."""
    return F.col("parent").isNotNull() & (F.col("fate") == RecordKind.RELAYED)


def _steps() -> Column:
    """Number of remaining steps, for a message that came straight over that many brokers."""
    return F.when(F.col("parent").isNull(), _length() - 1)


def _above(name: str) -> list[Column]:
    """The predecessor: the parent in the same store, or the entry of the broker before."""
    is_child = F.col("parent").isNotNull()
    return [
        F.when(is_child, F.col("stream")).otherwise(F.col("from_stream")).alias(f"{name}_stream"),
        F.coalesce("parent", "from_entry").alias(f"{name}_entry"),
    ]


# -- messages ----------------------------------------------------------------------------------


def messages(
    entries: DataFrame, reuse: Reuse | None = None, above: DataFrame | None = None
) -> DataFrame:
    """Make one row for each message, from the entries of all brokers that saw it.

    Args:
        entries: `HOPS`. They are read more than once: best from a table.
        reuse: keeps intermediate rows; the messages can be read until its context ends.
        above: `HOPS` that contain their predecessors; by default `entries`.

    Returns:
        `MESSAGES`. ``hops`` are in order, with copies and reports at the end. ``fate`` is that of
        the last hop without these, None while it is in a queue; the latency is from the arrival at
        the first broker to that end, each by its broker's own clock.
    """
    entries, reuse = conform(entries, HOPS), reuse or Reuse()
    lookups = _lookups(entries)
    near = F.col("from_stream").isNotNull()
    own = {
        "root_stream": F.coalesce("from_stream", "stream"),
        "root_entry": F.when(near, F.col("from_entry")).otherwise(F.col("entry")),
    }
    if not lookups.far and not lookups.bridged:
        return conform(_gathered(entries.withColumns(own)), MESSAGES)
    found = _roots(entries, entries if above is None else above, lookups, reuse)
    return conform(_gathered(_rooted(entries, own, found, lookups)), MESSAGES)


def _rooted(
    entries: DataFrame, own: dict[str, Column], found: DataFrame, lookups: _Lookups
) -> DataFrame:
    """Add the root of each entry: `own` unless it had to be looked up, and `found`."""
    lookup = _is_far() | may_be_bridged()
    known = found.drop("is_child")
    if lookups.are_few:
        # One pass over all entries, and no exchange. Entries that need no lookup have no key.
        met = known.select(
            F.col("stream").alias("of_stream"), F.col("entry").alias("of_entry"), *own
        )
        is_same = (F.when(lookup, F.col("entry")) == F.col("of_entry")) & (
            F.col("stream") == F.col("of_stream")
        )
        marked = entries.join(F.broadcast(met), is_same, "left")
        rooted = marked.select(
            *entries.columns,
            *(
                F.when(lookup, F.coalesce(name, itself)).otherwise(column).alias(name)
                for (name, column), itself in zip(own.items(), ("stream", "entry"), strict=True)
            ),
        )
    else:
        looked_up = entries.where(lookup).join(known, ["stream", "entry"], "left")
        rooted = (
            entries.where(~lookup)
            .withColumns(own)
            .unionByName(
                looked_up.select(
                    *entries.columns,
                    F.coalesce("root_stream", "stream").alias("root_stream"),
                    F.coalesce("root_entry", "entry").alias("root_entry"),
                )
            )
        )
    if not lookups.children:
        return rooted
    children = found.where("is_child").select(
        F.col("stream").alias("root_stream"),
        F.col("entry").alias("root_entry"),
        F.col("root_stream").alias("true_stream"),
        F.col("root_entry").alias("true_entry"),
    )
    near = F.broadcast(children) if lookups.children <= _FEW else children
    true = {
        "root_stream": F.coalesce("true_stream", "root_stream"),
        "root_entry": F.coalesce("true_entry", "root_entry"),
    }
    joined = rooted.join(near, ["root_stream", "root_entry"], "left")
    return joined.select(*entries.columns, *(column.alias(name) for name, column in true.items()))


_ORDER: Final = ("child", "depth", "at", "fate", "ended_us")
"""Sort keys of hops: copies and reports come last, and ended hops later."""
_SAID: Final = (
    "message_id", "message_id_type", "to", "origin", "size", "bare_size", "digest", "day",
)  # fmt: skip


def _gathered(entries: DataFrame) -> DataFrame:
    """Make messages from entries with ``root_stream`` and ``root_entry``.

    Each entry is exchanged once, as one structure; the list of them makes the message.
    """
    is_child = F.col("parent").isNotNull()
    began = F.coalesce("began_us", "ended_us")
    rest = [name for name in STAY.names if name not in _ORDER]
    hop = F.struct(
        is_child.alias("child"), _length().alias("depth"), began.alias("at"), "fate", "ended_us",
        *rest, *_SAID,
    )  # fmt: skip
    told = entries.select(
        F.col("root_stream").alias("trace_stream"),
        F.col("root_entry").alias("trace_entry"),
        hop.alias("hop"),
        is_answer().alias("is_answer"),
        "duplicates",
        "deferrals",
    )
    gathered = (
        told.repartition("trace_entry", "trace_stream")
        .groupBy("trace_entry", "trace_stream")
        .agg(
            F.collect_list("hop").alias("hops"),
            F.sum("duplicates").cast("int").alias("duplicates"),
            F.sum("deferrals").cast("int").alias("deferrals"),
            F.max("is_answer").alias("is_answer"),
        )
        .where("NOT is_answer")
    )
    ordered = gathered.withColumn("hops", F.array_sort("hops"))
    way = ordered.withColumn("way", F.filter("hops", lambda hop: ~hop["child"]))
    first, last = F.get("hops", F.lit(0)), F.get("way", F.size("way") - 1)
    digests = F.transform("way", lambda hop: hop["digest"])
    ended = F.when(last["fate"].isNotNull(), last["ended_us"])
    return way.select(
        "trace_stream",
        "trace_entry",
        *(first[name].alias(name) for name in ("began_us", "domain", *_SAID)),
        ended.alias("ended_us"),
        (ended - first["began_us"]).alias("latency_us"),
        last["fate"].alias("fate"),
        F.size(F.array_distinct(F.transform("way", lambda hop: hop["broker"]))).alias("brokers"),
        (F.size("hops") - F.size("way")).alias("copies"),
        "duplicates",
        "deferrals",
        (F.array_min(digests) == F.array_max(digests)).alias("same_digest"),
        F.transform("hops", _stay).alias("hops"),
    )


def _stay(hop: Column) -> Column:
    return F.struct(*(hop[name].alias(name) for name in STAY.names))
