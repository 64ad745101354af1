# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: harm of every kind while messages pass, and an exact count afterwards.

::

    python -m benchmarks.faults                     # all, long: half an hour; writes faults.md
    python -m benchmarks.faults --short             # every scenario, small; prints only
    python -m benchmarks.faults --only kills disk   # those whose name has one of these words

The scenarios are classes of `tests.network`; what each of them claims is in its ``claim``. Results
are kept in ``faults.json`` beside the page, so that a part can be run by itself; see
`benchmarks.campaign`. Exit code 1 if something did not hold.
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
name server and the load run on one machine; everything that is random has a seed. *Duplicated* are
messages that came more often than the publisher had sent them: when its own broker dies, a
publisher sends again what it has no outcome for, and the figures count such copies by themselves.
"""

NOISE: Final = """
## Noise

Latencies are those of a machine with few cores on which brokers, load and name server run together,
and perhaps the work of others as well: the load average at the end of each run says how busy it
was. So the p99 of *bad-neighbors* and the throughput of *flood* are compared between laps that take
turns, never with a figure of another day. Counts do not depend on it: those of lost, duplicated and
throttled messages, and of those that pass beside bad destinations.

On a shared machine single laps differ by a factor of eight, and no ratio is told from noise there:
look at the laps, which stand beside it. Four runs of one day, p99 with the bad ones to p99 without:
1.26 (600 messages/s, load average 8), 1.02 and 1.21 (300 messages/s; these three by the median of
three laps), 0.64 (over all of five laps, as it is done now). It wants a machine of its own, with
four cores or more. The short forms in the suite judge no ratio and no time.
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
