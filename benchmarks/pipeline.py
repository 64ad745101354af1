# SPDX-License-Identifier: Apache-2.0
"""Measure the pipeline's tables beside the same work in DuckDB: same segments in, same results out.

Run as ``python -m benchmarks.pipeline [--events 1000000 10000000] [--directory DIR]
[--event-log DIR] [--json]``.
For each number of events, journals of three organizations are written once, and then each engine
gets a process of its own with 2 threads and 4 GB, one after the other:

* start: of the process that works, a Java virtual machine with Spark;
* ingest: segments to Parquet by day and domain, lines checked, duplicates looked for;
* hops: records to one row for each entry, and reasons by hour, to Parquet;
* rest: entries of all brokers to one row for each message with its hops; latencies, volumes and
  queues; conservation, which is violations and the balance by domain and hour; all to Parquet. And
  the hand-overs between the first two organizations, compared from both journals.

Spark runs the queries of a step at the same time, as the pipeline does (`parallel_queries`).

What both have found is compared before anything is printed; a difference ends the run with 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amqproute.journal.record import BEGINS, ENDS, FIELDS, LINE_FIELDS, RUN_FIELDS
from amqproute.tools.synthetic import FaultPlan, TrafficPlan, generate

EVENTS_PER_TRANSFER = 4.4
PAIR = ("alpha.example", "beta.example")
FAULTS = FaultPlan(
    lost=3, duplicated=2, changed=1, vanished=2, unexplained=1, ended_twice=1, came_back=1
)
Results = dict[str, Any]


class Watch:
    """Seconds of one step after the other: by the wall, and of CPU."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._cpu = cpu

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        begin, used = time.monotonic(), self._cpu()
        result = work()
        self.seconds[name] = round(time.monotonic() - begin, 2)
        self.cpu[name] = round(self._cpu() - used, 2)
        return result


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- Spark -------------------------------------------------------------------------------------


def run_spark(journals: list[str], work: str, event_log: str | None = None) -> Results:
    """Do all steps with the pipeline as it is; Spark's event log is kept where that is said."""
    from pyspark.sql import functions as F

    from amqproute.pipeline import conservation, coverage, figures, traces
    from amqproute.pipeline.exchange import recent_octets
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.parallel_queries import run_queries
    from amqproute.pipeline.reconcile import ReconcileSide, reconcile, statement
    from amqproute.pipeline.spark_session import session
    from amqproute.pipeline.warehouse import Warehouse

    begin = time.monotonic()
    spark = session(
        "benchmark", master="local[2]", memory="4g", local_dir=work, progress=False,
        octets=recent_octets(map(Path, journals)), settings=_logged(event_log),
    )  # fmt: skip
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    watch, found = Watch(lambda: _cpu_of(jvm) + _cpu_of(os.getpid())), {}
    watch.seconds["start"] = round(time.monotonic() - begin, 2)
    watch.cpu["start"] = round(_cpu_of(jvm), 2)
    warehouse = Warehouse(spark, f"{work}/tables")

    found["records"] = watch("ingest", lambda: ingest(warehouse, journals)).records
    runs = warehouse.read("runs")

    def stage(name: str, rows: Any) -> list[Any]:
        return warehouse.stage(name, rows)

    def publish(*queries: Callable[[], Any]) -> None:
        made = run_queries(spark, queries)
        warehouse.publish(warehouse.snapshot(), [part for parts in made for part in parts])

    def entries_and_reasons() -> None:
        publish(
            lambda: stage("hops", traces.hops(runs)),
            lambda: stage("reasons", figures.reasons(runs)),
        )

    watch("hops", entries_and_reasons)
    entries = warehouse.read("hops")

    def conserve() -> list[Any]:
        doubtful = conservation.judged(runs, entries)
        return [
            *stage("violations", conservation.violations(runs, doubtful)),
            *stage("balance", conservation.balance(entries, doubtful)),
        ]

    def compare() -> list[Any]:
        holes = coverage.holes(runs)
        sides = [
            ReconcileSide(
                mine, statement(entries, mine, other), holes.where(F.col("domain") == mine)
            )
            for mine, other in (PAIR, PAIR[::-1])
        ]
        counts.update(reconcile(*sides).counts)
        return []

    counts: dict[tuple[str, str], int] = {}

    def tables() -> None:
        publish(
            lambda: stage("messages", traces.messages(entries)),
            conserve,
            compare,
            lambda: stage("latencies", figures.latencies(entries)),
            lambda: stage("volumes", figures.volumes(entries)),
            lambda: stage("queues", figures.queues(entries)),
        )

    watch("rest", tables)
    found["verdicts"] = sorted(
        [*key, number] for key, number in counts.items() if number and key[1] != "in flight"
    )
    for name, columns in CHECKS.items():
        row = warehouse.read(name).agg(*(F.expr(column) for column in columns)).first()
        found[name] = [int(value or 0) for value in row]
    return {"seconds": watch.seconds, "cpu": watch.cpu, "found": found}


def _logged(folder: str | None) -> dict[str, str]:
    """Return settings by which Spark writes an event log that `benchmarks.event_log` reads."""
    if folder is None:
        return {}
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(folder).absolute().as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


CHECKS = {
    "hops": ("count(*)", "sum(ended_us - began_us)", "sum(endings)", "sum(duplicates)"),
    "messages": ("count(*)", "sum(latency_us)", "sum(brokers)", "sum(copies)",
                 "count(nullif(same_digest, true))"),
    "latencies": ("count(*)", "sum(number)", "sum(bucket * number)"),
    "volumes": ("count(*)", "sum(messages)", "sum(octets)", "sum(unmeasured)"),
    "reasons": ("count(*)", "sum(number)"),
    "queues": ("count(*)", "sum(came)", "sum(waiting)", "sum(oldest_us)"),
    "violations": ("count(*)", "sum(entry)", "sum(at_us)"),
    "balance": ("count(*)", "sum(accepted)", "sum(relayed)", "sum(queued)", "sum(lost)"),
}  # fmt: skip
"""What of each table has to be the same."""


# -- DuckDB ------------------------------------------------------------------------------------

_SQL = {"string": "VARCHAR", "long": "BIGINT", "int": "INTEGER", "boolean": "BOOLEAN"}


def run_duckdb(journals: list[str], work: str, _: str | None = None) -> Results:
    """Do the same work with DuckDB, in its own words."""
    import duckdb

    base = duckdb.connect()
    for setting in ("threads=2", "memory_limit='4GB'", f"temp_directory='{work}/spill'",
                    "preserve_insertion_order=false", "enable_progress_bar=false",
                    "TimeZone='UTC'"):  # fmt: skip
        base.execute(f"SET {setting}")
    watch, found = Watch(lambda: _cpu_of(os.getpid())), {}

    def keep(name: str, query: str, by: str = "day, domain") -> None:
        base.execute(
            f"COPY ({query}) TO '{work}/{name}' (FORMAT parquet, COMPRESSION zstd, "
            f"PARTITION_BY ({by}))"
        )
        base.execute(
            f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{work}/{name}/**/*.parquet', "
            "hive_partitioning=true)"
        )

    def ingest() -> None:
        keep("runs", _lines(journals))
        twice = "SELECT 1 FROM runs GROUP BY journal, seq HAVING count(*) > 1 LIMIT 1"
        assert base.execute(twice).fetchone() is None

    watch("ingest", ingest)

    def entries_and_reasons() -> None:
        keep("hops", _hops())
        keep("reasons", _FIGURES["reasons"])

    watch("hops", entries_and_reasons)
    verdicts = []

    def tables() -> None:
        keep("messages", _messages())
        for name, query in _FIGURES.items():
            if name != "reasons":
                keep(name, query)
        base.execute(f"CREATE TABLE judged AS {_JUDGED}")
        keep("violations", "SELECT unnest(wrong) AS what, * EXCLUDE (wrong) FROM judged "
                           "WHERE len(wrong) > 0")  # fmt: skip
        keep("balance", _BALANCE)
        verdicts.extend(base.execute(_RECONCILE).fetchall())

    watch("rest", tables)
    found["records"] = base.execute("SELECT sum(n)::BIGINT FROM runs").fetchone()[0]
    found["verdicts"] = sorted(list(row) for row in verdicts)
    for name, columns in CHECKS.items():
        row = base.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchone()
        found[name] = [int(value or 0) for value in row]
    return {"seconds": watch.seconds, "cpu": watch.cpu, "found": found}


def _lines(journals: list[str]) -> str:
    columns = {name: _SQL[FIELDS[name]] for name in LINE_FIELDS} | {"h": "VARCHAR", "n": "INTEGER"}
    shared = ", ".join(f'"{name}" {_SQL[FIELDS[name]]}' for name in RUN_FIELDS)
    each = ", ".join(f'"{name}" {_SQL[FIELDS[name]]}[]' for name in RUN_FIELDS)
    columns |= {"all": f"STRUCT({shared})", "each": f"STRUCT({each})"}
    said = ", ".join(f"'{name}': '{type_}'" for name, type_ in columns.items())
    files = ", ".join(f"'{journal}/*/*.jsonl'" for journal in journals)
    fits = " AND ".join(f'coalesce(len("each"."{name}") = n, true)' for name in RUN_FIELDS)
    return (
        "SELECT * EXCLUDE (h), make_timestamp(time)::DATE AS day FROM read_json("
        f"[{files}], format='newline_delimited', columns={{{said}}}) "
        f"WHERE v = 1 AND n > 0 AND length(h) = 64 AND ({fits})"
    )


def _field(name: str) -> str:
    return f'coalesce("each"."{name}"[i + 1], "all"."{name}")'


def _hops() -> str:
    # To find the first beginning and end by their sequence and to join their fields takes DuckDB
    # two thirds of the time of this with a million events, and a fifth more with ten.
    begin = ("parent", "node", "message_id", "message_id_type", "to", "origin", "sender", "size",
             "bare_size", "durable", "digest", "from_stream", "from_entry", "trail")  # fmt: skip
    end = ("node", "peer", "attempt", "condition", "code", "words", "queue_us", "resolve_us",
           "connect_us", "wire_us", "settle_us")  # fmt: skip
    begins, ends = (", ".join(f"'{kind}'" for kind in sorted(kinds)) for kinds in (BEGINS, ENDS))
    fields = ", ".join(f'{_field(name)} AS "{name}"' for name in dict.fromkeys(
        ("entry", *begin, *end)))  # fmt: skip
    packed = {
        "b": ", ".join(f'"{name}" := "{name}"' for name in (*begin, "settle_us")),
        "e": ", ".join(f'"{name}" := "{name}"' for name in end),
    }
    unpacked = ", ".join(
        [f'b."{name}" AS "{name}"' for name in begin]
        + [f'e."{name}" AS "{name}"' for name in end if name != "node"]
    )
    is_move = "coalesce(kind IN ('routed', 'spooled') AND parent = entry, false)"
    return f"""
    WITH told AS (
      SELECT kind, domain, broker, stream, time, seq + i AS seq, {fields}
      FROM (SELECT *, unnest(range(n)) AS i FROM runs
            WHERE kind IN ({begins}, {ends}, 'deferred', 'duplicate'))
    ), marked AS (
      SELECT if(kind = 'duplicate', from_stream, stream) AS stream,
        if(kind = 'duplicate', from_entry, entry) AS entry, kind, time, seq,
        kind IN ({begins}) AND NOT {is_move} AS is_begin, kind IN ({ends}) AS is_end,
        CASE WHEN kind IN ({begins}) AND NOT {is_move}
          THEN struct_pack(kind := kind, time := time, domain := domain, broker := broker,
                           {packed["b"]}) END AS b,
        CASE WHEN kind IN ({ends})
          THEN struct_pack(kind := kind, time := time, domain := domain, broker := broker,
                           {packed["e"]}) END AS e,
        CASE WHEN {is_move} THEN node END AS move
      FROM told
    ), grouped AS (
      SELECT stream, entry, arg_min(b, (kind = 'recovery')::INT * 4611686018427387904 + time) AS b,
        arg_min(e, time) AS e, arg_max(move, time) AS move,
        count(*) FILTER (is_begin AND kind <> 'recovery') AS beginnings,
        count(*) FILTER (is_end) AS endings, count(*) FILTER (kind = 'deferred') AS deferrals,
        count(*) FILTER (kind = 'duplicate') AS duplicates
      FROM marked WHERE stream IS NOT NULL AND entry IS NOT NULL GROUP BY stream, entry
    )
    SELECT stream, entry, b.kind AS kind, coalesce(b.domain, e.domain) AS domain,
      coalesce(b.broker, e.broker) AS broker, {unpacked}, b.time AS began_us,
      b.settle_us AS commit_us, e.kind AS fate, e.time AS ended_us,
      coalesce(e.node, move, b.node) AS queue, beginnings, endings, deferrals, duplicates,
      make_timestamp(coalesce(b.time, e.time))::DATE AS day
    FROM grouped WHERE b IS NOT NULL OR e IS NOT NULL"""


def _messages() -> str:
    # Three brokers and copies within one: two steps up reach every root.
    return """
    WITH h AS (
      SELECT *, CASE WHEN coalesce(trail, '') = '' THEN 0
        ELSE len(string_split(trail, ' ')) END AS depth FROM hops
    ), ups AS (
      SELECT stream, entry, if(parent IS NULL, from_stream, stream) AS up_stream,
        coalesce(parent, from_entry) AS up_entry
      FROM h WHERE parent IS NOT NULL OR from_stream IS NOT NULL
    ), far AS (
      SELECT h.stream, h.entry, coalesce(c.up_stream, b.up_stream, a.up_stream) AS root_stream,
        coalesce(c.up_entry, b.up_entry, a.up_entry) AS root_entry
      FROM (SELECT * FROM h WHERE parent IS NOT NULL OR depth > 1) h
      JOIN ups a ON a.stream = h.stream AND a.entry = h.entry
      LEFT JOIN ups b ON b.stream = a.up_stream AND b.entry = a.up_entry
      LEFT JOIN ups c ON c.stream = b.up_stream AND c.entry = b.up_entry
    ), rooted AS (
      SELECT h.*, coalesce(from_stream, stream) AS root_stream,
        if(from_stream IS NULL, entry, from_entry) AS root_entry
      FROM h WHERE parent IS NULL AND depth <= 1
      UNION ALL
      SELECT h.*, far.root_stream, far.root_entry FROM h JOIN far USING (stream, entry)
    ), gathered AS (
      SELECT root_stream AS trace_stream, root_entry AS trace_entry,
        list(struct_pack(child := parent IS NOT NULL, depth := depth,
          at := coalesce(began_us, ended_us), domain := domain, broker := broker, stream := stream,
          entry := entry, parent := parent, node := node, began_us := began_us,
          ended_us := ended_us, fate := fate, queue := queue, peer := peer, attempt := attempt,
          queue_us := queue_us, wire_us := wire_us, deferrals := deferrals)) AS hops,
        arg_min(struct_pack(message_id := message_id, message_id_type := message_id_type,
          "to" := "to", origin := origin, size := size, bare_size := bare_size, digest := digest,
          began_us := began_us, domain := domain, day := day),
          (parent IS NOT NULL)::INT * 4611686018427387904 + depth * 144115188075855872
          + coalesce(began_us, ended_us)) AS first,
        arg_max(struct_pack(fate := fate, ended_us := ended_us),
          depth * 144115188075855872 + coalesce(began_us, ended_us))
          FILTER (parent IS NULL) AS last,
        min(digest) FILTER (parent IS NULL) AS least, max(digest) FILTER (parent IS NULL) AS most,
        count(parent) AS copies, sum(duplicates) AS duplicates, sum(deferrals) AS deferrals
      FROM rooted GROUP BY ALL
    )
    SELECT trace_stream, trace_entry, first.*,
      CASE WHEN last.fate IS NOT NULL THEN last.ended_us END AS ended_us,
      CASE WHEN last.fate IS NOT NULL THEN last.ended_us - first.began_us END AS latency_us,
      last.fate AS fate, copies, duplicates, deferrals, least = most AS same_digest,
      len(list_distinct(list_transform(list_filter(hops, lambda x: NOT x.child),
        lambda x: x.broker))) AS brokers, list_sort(hops) AS hops
    FROM gathered"""


def _partner(name: str) -> str:
    return f"CASE WHEN starts_with({name}, 'peer:') THEN substr({name}, 6) END"


def _hour(name: str) -> str:
    return f"date_trunc('hour', make_timestamp({name}))"


_STAGES = ", ".join(
    f"struct_pack(stage := '{stage}', us := {span})"
    for stage, span in [*((s, f"{s}_us") for s in ("queue", "resolve", "connect", "wire",
                                                   "settle")), ("hop", "ended_us - began_us")]
)  # fmt: skip
_BY_DAY = "SELECT *, hour::DATE AS day FROM"
_FIGURES = {
    "latencies": f"""{_BY_DAY} (
      SELECT hour, queue, peer, s.stage AS stage, domain, count(*) AS number,
        if(s.us < 1, 0, floor(ln(greatest(s.us, 1)) / ln(1.02)) + 1)::INT AS bucket
      FROM (SELECT {_hour("ended_us")} AS hour, queue, {_partner("peer")} AS peer, domain,
              unnest([{_STAGES}]) AS s
            FROM hops WHERE fate IS NOT NULL AND kind IS NOT NULL)
      WHERE s.us IS NOT NULL GROUP BY ALL)""",
    "volumes": f"""{_BY_DAY} (
      SELECT hour, partner, direction, domain, count(*) AS messages,
        coalesce(sum(coalesce(bare_size, size)), 0) AS octets,
        count(*) FILTER (bare_size IS NULL) AS unmeasured
      FROM (SELECT {_hour("began_us")} AS hour, {_partner("sender")} AS partner,
              'in' AS direction, size, bare_size, domain
            FROM hops WHERE starts_with(sender, 'peer:') AND kind IS NOT NULL
            UNION ALL
            SELECT {_hour("ended_us")}, {_partner("peer")}, 'out', size, bare_size, domain
            FROM hops WHERE fate = 'relayed' AND starts_with(peer, 'peer:'))
      GROUP BY ALL)""",
    "reasons": f"""{_BY_DAY} (
      SELECT {_hour("time")} AS hour, kind, coalesce({_partner("peer")}, {_partner("sender")})
        AS partner, node, condition, code, domain, sum(coalesce("count", 1)) AS number
      FROM (SELECT time, kind, domain, {", ".join(
          f'{_field(name)} AS "{name}"'
          for name in ("sender", "peer", "node", "condition", "code", "count"))}
            FROM (SELECT *, unnest(range(n)) AS i FROM runs WHERE kind IN ('attempt', 'deferred',
              'released', 'rejected', 'duplicate', 'dead-lettered', 'expired', 'returned')))
      GROUP BY ALL)""",
    "queues": """SELECT queue, day, domain, count(*) AS came, coalesce(sum(size), 0) AS octets,
        count(fate) AS left, count(*) FILTER (fate IS NULL) AS waiting,
        min(began_us) FILTER (fate IS NULL) AS oldest_us
      FROM hops WHERE kind IS NOT NULL GROUP BY ALL""",
}  # fmt: skip

_GRACE = 60_000_000
_JUDGED = f"""
    WITH stock AS (
      SELECT stream, time, "all".node AS node, "all".ranges AS ranges, coalesce(
        sum(("all".node IS NULL)::INT) OVER (PARTITION BY stream ORDER BY time, seq
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS number
      FROM runs WHERE kind = 'stock'
    ), known AS (
      SELECT stream, if(arg_max(kind, seq) = 'stop', {1 << 62}, max(time)) AS until_us
      FROM runs GROUP BY stream
    ), whole AS (
      SELECT stream, number, min(time) AS from_us, max(time) AS to_us FROM stock
      GROUP BY stream, number HAVING count(*) FILTER (node IS NULL) > 0
    ), last AS (
      SELECT stream, max(to_us) AS stock_us, arg_max(from_us, to_us) AS stock_from_us
      FROM whole JOIN known USING (stream) WHERE to_us + {_GRACE} <= until_us GROUP BY stream
    ), ranges AS (
      SELECT stream, r, max(time) AS time
      FROM (SELECT stream, time, unnest(string_split(ranges, ' ')) AS r FROM stock
            WHERE node IS NOT NULL AND ranges <> '') GROUP BY stream, r
    ), seen AS (
      SELECT stream, entry, max(time) AS seen_us
      FROM (SELECT stream, time, unnest(range(string_split(r, '-')[1]::BIGINT,
              string_split(r, '-')[-1]::BIGINT + 1)) AS entry FROM ranges) GROUP BY stream, entry
    )
    SELECT kind, fate, domain, broker, stream, entry, message_id, queue AS node, day, began_us,
      coalesce(ended_us, began_us) AS at_us,
      list_filter([
        CASE WHEN fate IS NULL AND kind IS NOT NULL AND began_us + {_GRACE} < stock_from_us
          AND coalesce(seen_us < stock_from_us, true) THEN 'lost' END,
        CASE WHEN kind IS NULL THEN 'unexplained' END,
        CASE WHEN endings > 1 THEN 'ended twice' END,
        CASE WHEN beginnings > 1 THEN 'began twice' END,
        CASE WHEN seen_us > ended_us + {_GRACE} THEN 'came back' END],
        lambda x: x IS NOT NULL) AS wrong
    FROM hops LEFT JOIN last USING (stream) LEFT JOIN seen USING (stream, entry)"""
_IS_LOST = "list_contains(wrong, 'lost')"
_BALANCE = f"""SELECT {_hour("began_us")} AS hour, day, domain, count(*) AS accepted,
      {", ".join(f"count(*) FILTER (fate = '{kind}') AS {kind.replace('-', '_')}"
                 for kind in sorted(ENDS))},
      count(*) FILTER (fate IS NULL AND NOT {_IS_LOST}) AS queued,
      count(*) FILTER ({_IS_LOST}) AS lost
    FROM judged WHERE kind IS NOT NULL GROUP BY ALL"""  # fmt: skip
_RECONCILE = f"""
    WITH stated AS (
      SELECT domain AS sender, {_partner("peer")} AS receiver, stream, entry, 'sent' AS role, digest
      FROM hops WHERE fate = 'relayed'
      UNION ALL
      SELECT {_partner("sender")}, domain, from_stream, from_entry, 'taken', digest
      FROM hops WHERE from_entry IS NOT NULL AND starts_with(sender, 'peer:')
    ), compared AS (
      SELECT sender, receiver, stream, entry, count(*) FILTER (role = 'sent') AS sent,
        count(*) FILTER (role = 'taken') AS taken, max(digest) FILTER (role = 'sent') AS theirs,
        max(digest) FILTER (role = 'taken') AS ours
      FROM stated WHERE sender IN {PAIR} AND receiver IN {PAIR} GROUP BY ALL
    )
    SELECT sender, CASE WHEN taken = 0 THEN 'lost on the wire' WHEN sent = 0
        THEN 'accepted but unknown' WHEN taken > 1 THEN 'delivered twice'
        WHEN theirs <> ours THEN 'digest differs' ELSE 'agreed' END AS verdict, count(*)
    FROM compared GROUP BY ALL"""  # fmt: skip


# -- the run -----------------------------------------------------------------------------------


def written(events: int, directory: Path) -> Results:
    """Write the journals of some number of events, or find them where they were written before."""
    told = directory / "written.json"
    if not told.exists():
        shutil.rmtree(directory, ignore_errors=True)
        plan = TrafficPlan(round(events / EVENTS_PER_TRANSFER), faults=FAULTS, processes=2)
        planted = generate(plan, directory / "journals")
        octets = sum(path.stat().st_size for path in directory.rglob("*.jsonl"))
        journals = [str(path) for path in planted.journals.values()]
        result = {"events": planted.events, "octets": octets, "journals": journals}
        told.write_text(json.dumps(result))
    found: Results = json.loads(told.read_text())
    return found


def measure(events: int, directory: Path, event_log: str | None = None) -> Results:
    """Let both engines work on the same journals, one after the other."""
    result = written(events, directory)
    for name, run in (("duckdb", run_duckdb), ("spark", run_spark)):
        work = directory / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            result[name] = pool.apply(run, (result["journals"], str(work), event_log))
            pool.close()
            pool.join()
        print(f"{name}: {json.dumps(result[name])}", file=sys.stderr, flush=True)
        shutil.rmtree(work)
    return result


def differences(result: Results) -> list[str]:
    """Say where the two have found different things."""
    spark, duckdb = result["spark"]["found"], result["duckdb"]["found"]
    return [f"{n}: Spark {spark[n]}, DuckDB {duckdb[n]}" for n in spark if spark[n] != duckdb[n]]


def table(result: Results) -> str:
    """Show one size as a table of Markdown."""
    lines = [
        f"{result['events']:,} events, {result['octets'] / 1e6:,.0f} MB of segments:",
        "",
        "| step | Spark, s | DuckDB, s | ratio | Spark, CPU s | DuckDB, CPU s | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in [*result["spark"]["seconds"], "all"]:
        cells = [name]
        for unit in ("seconds", "cpu"):
            both = [result[engine][unit] for engine in ("spark", "duckdb")]
            spark, duckdb = (
                sum(each.values()) if name == "all" else each.get(name, 0.0) for each in both
            )
            cells += [f"{spark:.1f}", f"{duckdb:.1f}", f"{spark / duckdb:.1f}" if duckdb else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure each size; end with 1 if the engines disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument(
        "--directory", type=Path, help="where the journals are written, and stay for the next run"
    )
    parser.add_argument("--event-log", help="where Spark keeps a log for benchmarks.event_log")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="amqproute-bench-") as own:
        for events in options.events:
            place = (options.directory or Path(own)) / str(events)
            result = measure(events, place, options.event_log)
            wrong += differences(result)
            print(json.dumps(result) if options.json else table(result) + "\n", flush=True)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
