# SPDX-License-Identifier: Apache-2.0
"""The campaign of attacks: strangers try to exhaust a broker beside a well-behaved client.

::

    python -m benchmarks.attacks --part alone-1     # five attacks, ten minutes each
    python -m benchmarks.attacks --part together    # all attacks for an hour
    python -m benchmarks.attacks --only mute        # those with one of these words
    python -m benchmarks.attacks --short            # every attack, seconds; prints only

Attacks are programs of `tests.network.attackers`, the scenario is `tests.network.attacks`. Results
are kept in ``attacks.json`` beside the page, so that a part can be run by itself; see
`benchmarks.campaign`. Exit code 1 if a claim failed. Nothing leaves the loopback
interface.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.campaign import Campaign
from tests.network.attackers import ATTACKS
from tests.network.attacks import Attacks, short

HEAD: Final = """\
# The campaign of attacks

Made by `make attacks` (`python -m benchmarks.attacks`, `--part NAME` for a part). Strangers attack
one broker on a machine with two processors, while a well-behaved client publishes durable messages
one at a time, logs in again every two seconds, and posts in transactions. The broker has one
processor to itself; attackers and client share the other, the attackers at the lowest priority.
"""

_ALONE: Final = tuple(ATTACKS)
TOGETHER: Final = "together"

CAMPAIGN: Final = Campaign(
    name="attacks",
    scenarios={
        **{name: (Attacks(names=name), short(name)) for name in _ALONE},
        TOGETHER: (Attacks(seconds=3480.0), short()),
    },
    head=HEAD,
    columns={
        "message p99 (ms)": lambda figures: str(figures.get("message p99 (ms)", "-")),
        "longest log-in (ms)": lambda figures: str(figures.get("longest log-in (ms)", "-")),
        "resident before, peak, after (MiB)": lambda figures: str(
            figures.get("resident before, peak, after (MiB)", "-")
        ),
    },
    parts={
        "alone-1": _ALONE[:5],
        "alone-2": _ALONE[5:10],
        "alone-3": _ALONE[10:],
        TOGETHER: (TOGETHER,),
    },
)


if __name__ == "__main__":
    sys.exit(CAMPAIGN.main(__doc__))
