# SPDX-License-Identifier: Apache-2.0
"""The hash chain within a segment: whether each line follows from the line before it.

A segment is a chain of its own. Its first line, of the kind ``segment``, has the hash that it
follows (`amqproute.journal.record`); in an export that is the beginning of a chain, so the two are
checked alike. A line counts only if its hash follows from its text and from the hash of the line
before it. Otherwise it was changed, or lines before it were removed, moved or inserted: it is
`TAMPERED`. If the hash before it is unreadable, for instance because of a damaged disk, the line is
`UNPROVEN`, and does not count either: else a damaged line would let any line pass.

Anybody who can write a whole segment can forge its chain. The hashes repeated by the next segment,
which `amqproute.pipeline.links` compares, and by the journal's head, which ``amqproute journal
verify`` compares, detect that.

Why a window: a hash needs the line before, and the line itself is needed whole. A file goes to one
task in its order, which costs less than passing it to another process, and works wherever Spark's
executors read files.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqproute.journal.record import GENESIS, RecordKind

__all__ = ["HASH", "HEAD", "TAMPERED", "UNPROVEN", "broken", "with_previous"]

TAMPERED: Final = "tampered with: "
"""Beginning of the reason of a line whose hash does not follow from the line before it."""
UNPROVEN: Final = "unproven: "
"""Beginning of the reason of a line after an unreadable hash."""

HEAD: Final = '{"h":"'
HASH: Final = 64
"""Characters of a hash."""
_BEHIND: Final = len(HEAD) + HASH + len('",')


def with_previous(lines: DataFrame) -> DataFrame:
    """Add the predecessor of each line.

    `before` is the hash of the line before it in its file, None for the first line; `is_proven` is
    false if the line right before it has no readable hash; `is_last` marks the last line.

    Args:
        lines: ``value``, ``path``, and ``at``, which increases with the lines of a path.
    """
    text = F.col("value")
    is_headed = text.startswith(HEAD) & (F.substring(text, _BEHIND - 1, 2) == '",')
    marked = lines.withColumn("own", F.when(is_headed, F.substring(text, len(HEAD) + 1, HASH)))
    order = Window.partitionBy("path").orderBy("at")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    return marked.select(
        *lines.columns,
        F.last("own", ignorenulls=True).over(earlier).alias("before"),
        F.coalesce(F.lag(F.col("own").isNotNull()).over(order), F.lit(True)).alias("is_proven"),
        F.lead(F.lit(1)).over(order).isNull().alias("is_last"),
    )


def broken(line: Column) -> Column:
    """Return the reason why a line does not follow from the one before it; None if it does.

    Args:
        line: the text as `amqproute.pipeline.table_schema.LINE`, beside ``value`` and the columns
            of `with_previous`.
    """
    begins = F.when(line["kind"] == RecordKind.SEGMENT, line["all"]["previous"])
    own = F.substring("value", len(HEAD) + 1, HASH)
    tail = F.substring(F.col("value").cast("binary"), _BEHIND + 1, _LONGEST)

    def follows(previous: Column) -> Column:
        return F.sha2(F.concat(previous.cast("binary"), tail), 256) == own

    first = F.coalesce("before", begins, F.lit(GENESIS))
    # Files may be concatenated: each of them begins a chain.
    holds = follows(first) | F.coalesce(follows(begins), F.lit(False))
    return F.when(
        ~holds,
        F.when(
            F.col("is_proven"),
            TAMPERED + "its hash does not follow from its text and the line before it",
        ).otherwise(UNPROVEN + "its hash does not follow from a line that can be read"),
    )


_LONGEST: Final = (1 << 31) - 1
