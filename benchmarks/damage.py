# SPDX-License-Identifier: Apache-2.0
"""The campaign of damage: each file of the state directory, damaged in every way.

::

    python -m benchmarks.damage --part stopped-1         # at most an hour; writes damage.md
    python -m benchmarks.damage --only killed-journal    # those with one of these words
    python -m benchmarks.damage --short                  # few bits of each file; prints only

The cases and their criteria are in `tests.network.damage`. Results are kept in ``damage.json``
beside the page, so that the campaign can be run in parts; see `benchmarks.campaign`. Exit code 1 if
a case failed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.campaign import Campaign
from tests.network.damage import COMBINED, GROUPS, Damage

HEAD: Final = """\
# The campaign of damage

Made by `make damage` (`python -m benchmarks.damage`, `--part NAME` for a part). Two real daemons
make a state directory: messages of 200 octets, 40 kB and 1.5 MB in a queue, on durable
subscriptions, and waiting for a peer that is down; receipts of a peer's messages; a prepared
branch. One file of a copy is damaged: missing, empty, cut in half, cut by an octet, its end or half
of it zero, an older copy, or one bit changed, at seeded places. In the rows `combined` several
files at once are missing, empty, cut in half or older copies: database and seal, log and mark, all
but the journal, and others. A daemon is started on it as a process and drained; messages for the
peer are read by the store's own reader once the daemon has stopped.
"""


def _figure(name: str) -> Any:
    def cell(figures: Mapping[str, Any]) -> str:
        return str(figures.get(name, "-"))

    return cell


SNAPSHOTS: Final = ("stopped", "killed")


def _groups(snapshot: str) -> list[str]:
    """Return the groups that have files: a stopped daemon has left no log."""
    return [each for each in (*GROUPS, COMBINED) if (snapshot, each) != ("stopped", "log")]


CAMPAIGN: Final = Campaign(
    name="damage",
    scenarios={
        f"{snapshot}-{group}": (
            Damage(snapshot=snapshot, group=group),
            Damage(snapshot=snapshot, group=group, flips=2, messages=24),
        )
        for snapshot in SNAPSHOTS
        for group in _groups(snapshot)
    },
    head=HEAD,
    columns={
        name: _figure(name) for name in ("cases", "nothing lost", "named", "refused", "failed")
    },
    parts={
        f"{snapshot}-{number}": tuple(
            f"{snapshot}-{group}" for group in groups if group in _groups(snapshot)
        )
        for snapshot in SNAPSHOTS
        for number, groups in enumerate(
            (("database", "log"), ("bodies",), ("evidence", "journal", "rest", COMBINED)), 1
        )
    },
)


if __name__ == "__main__":
    sys.exit(CAMPAIGN.main(__doc__))
