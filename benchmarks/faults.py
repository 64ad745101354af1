# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: faults of every kind under load, and an exact count afterwards.

::

    python -m benchmarks.faults                     # all, long: half an hour; writes faults.md
    python -m benchmarks.faults --short             # every scenario, small; prints only
    python -m benchmarks.faults --only kills disk   # those with one of these words in their name

The scenarios are classes of `tests.network`, each with its ``claim``. Results are kept in
``faults.json`` beside the page, so that a part can be run by itself; see `benchmarks.campaign`.
Exit code 1 if a claim failed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from benchmarks.campaign import Campaign
from tests.network.campaign import Scenario
from tests.network.crashes import BadLine, KillsAndCuts, StopsAndReloads
from tests.network.destinations import BadNeighbors
from tests.network.peers import BreaksProtocol, Flood, NeverSettles
from tests.network.surroundings import (
    ClockJumps,
    ExpiringCertificates,
    FullDisk,
    TroubledNameServer,
)
from tests.support.patience import PATIENCE

SCENARIOS: Final[Mapping[str, tuple[Scenario, Scenario]]] = {
    "kills-and-cuts": (KillsAndCuts(), KillsAndCuts(messages=800, kills=3, cuts=5)),
    "stops-and-reloads": (StopsAndReloads(), StopsAndReloads(messages=600, stops=2, reloads=3)),
    "bad-line": (BadLine(), BadLine(messages=300, delay_ms=10.0, loss=10.0, cuts=2)),
    "bad-neighbors": (
        BadNeighbors(),
        BadNeighbors(
            destinations=20,
            laps=1,
            seconds=2.0,
            warm_seconds=1.0,
            rate=200,
            tolerance=None,
            connect_timeout=10 * PATIENCE,
            stands_still=True,
        ),
    ),
    "never-settles": (
        NeverSettles(),
        NeverSettles(messages=400, seconds=3.0, settle_timeout=1.0, window=50),
    ),
    "breaks-protocol": (BreaksProtocol(), BreaksProtocol(messages=40, seconds=6.0)),
    "flood": (
        Flood(),
        Flood(messages=2000, flood=2000, laps=1, contract=5, factor=200, tolerance=None),
    ),
    "name-server": (TroubledNameServer(), TroubledNameServer(messages=20, rounds=1, pause=0.2)),
    "certificates": (
        ExpiringCertificates(),
        ExpiringCertificates(messages=200, renewals=1, lapses=1, valid_seconds=3.0),
    ),
    "full-disk": (FullDisk(), FullDisk(messages=300, times=1, seconds=1.0)),
    "clock": (ClockJumps(), ClockJumps(messages=400, jumps=4, longest_seconds=PATIENCE)),
}
"""By name: the long and the short form."""


HEAD: Final = """\
# The fault campaign

Made by `make faults` (`python -m benchmarks.faults`, `--only WORD` for a part). Two brokers, the
name server and the load run on one machine; all randomness is seeded. *Duplicated* are messages
that arrived more often than the publisher had sent them: when its own broker dies, a publisher
sends messages without an outcome again, and such copies are counted separately.
"""

NOISE: Final = """
## Noise

Latencies are from a machine with few cores that runs brokers, load, name server and possibly other
work: the load average at the end of each run shows how busy it was. So the p99 of *bad-neighbors*
and the throughput of *flood* are compared between alternating laps, never with figures of another
day. Counts of lost, duplicated and throttled messages, and of messages delivered despite bad
destinations, do not depend on it.

On a shared machine single laps differ by a factor of eight, and ratios are noise: compare the laps
beside them. Four runs of one day, p99 with the bad ones to p99 without: 1.26 (600 messages/s, load
average 8), 1.02 and 1.21 (300 messages/s; these three by the median of three laps), 0.64 (over all
of five laps, the present method). A reliable ratio needs a dedicated machine with four cores or
more. The short forms in the suite judge no ratio and no time.
"""


CAMPAIGN: Final = Campaign(
    name="faults",
    scenarios=SCENARIOS,
    head=HEAD,
    columns={
        "lost": lambda figures: str(figures.get("lost", "-")),
        "duplicated": lambda figures: str(figures.get("duplicated", "-")),
    },
    tail=NOISE,
)


if __name__ == "__main__":
    sys.exit(CAMPAIGN.main(__doc__))
