# SPDX-License-Identifier: Apache-2.0
"""Gold: altered lines of journals, as violations.

Nothing of such a line is in the tables, so the violation is not about an entry but about a file:
`node` is the name of its segment and the number of the line. Unreadable lines are not included,
since a disk may have damaged them. They stay in ``rejects``, and are a hole in the journal
(`amqproute.pipeline.coverage`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqproute.pipeline.chain import TAMPERED
from amqproute.pipeline.duplicates import CONTRADICTS
from amqproute.pipeline.table_schema import REJECTS, VIOLATIONS, conform

__all__ = ["CHANGED_LINE", "OTHER_LINE", "REFUSALS", "refusals"]

CHANGED_LINE: Final = "tampered"
"""Its hash does not follow from its text and the line before it."""
OTHER_LINE: Final = "contradicting"
"""Its records differ from those in the tables."""
REFUSALS: Final = (CHANGED_LINE, OTHER_LINE)

_BROKER: Final = r"^(.+)-[0-9a-f]{16}-[0-9]{20}\.jsonl$"


def refusals(rejects: DataFrame) -> DataFrame:
    """List the refused lines that were altered, or contradict the tables.

    Args:
        rejects: `REJECTS`.

    Returns:
        `VIOLATIONS`, one row for each line; ``at_us`` is the beginning of the day of its file.
    """
    reason = F.col("reason")
    rows = conform(rejects, REJECTS).withColumn(
        "what",
        F.when(reason.startswith(TAMPERED), CHANGED_LINE).when(
            reason.startswith(CONTRADICTS), OTHER_LINE
        ),
    )
    nothing = F.lit(None).cast("string")
    found = rows.where("what IS NOT NULL").select(
        "what",
        F.nullif(F.regexp_extract("segment", _BROKER, 1), F.lit("")).alias("broker"),
        nothing.alias("stream"),
        F.lit(None).cast("long").alias("entry"),
        nothing.alias("message_id"),
        nothing.alias("message_id_type"),
        F.concat_ws(":", "segment", "line").alias("node"),
        F.unix_micros(F.col("day").cast("timestamp")).alias("at_us"),
        F.lit(False).alias("hidden"),
        "day",
        "domain",
    )
    return conform(found, VIOLATIONS)
