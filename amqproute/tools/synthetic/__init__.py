# SPDX-License-Identifier: Apache-2.0
"""Synthetic journals: like those of brokers, with planted faults and no others.

A `TrafficPlan` has the number of messages and organizations, the rates of ordinary incidents
(`FaultRates`) and the faults to plant (`FaultPlan`). `generate` writes the journals, one directory
for each organization, and returns the planted faults. The same plan gives the same octets.

Messages move in batches that share an instant, as in a commit or a disposition for many messages,
so each batch becomes a few runs rather than many records: that is also why ten million events take
a minute. A broker's runs wait in a heap until no later batch can precede them, so that they are
written in order of time.

Entries are known to be alive when their beginning has been written and their end has not; the stock
records list these, once an hour of the journal's time. A fault changes the runs, never the stock,
unless the fault is one of the stock.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

from amqproute.tools.synthetic.plan import (
    FaultPlan,
    FaultRates,
    PlannedFault,
    PlantedFaults,
    TrafficPlan,
    numbers_of,
)
from amqproute.tools.synthetic.traffic import Traffic

__all__ = ["FaultPlan", "FaultRates", "PlannedFault", "PlantedFaults", "TrafficPlan", "generate"]


def generate(plan: TrafficPlan, directory: Path) -> PlantedFaults:
    """Write the journals of a plan.

    Args:
        plan: the plan of the journals.
        directory: gets a directory for each organization, named after its domain, in the daemon's
            format of a journal: folders of days with segments.
    """
    parts = list(_parts(plan))
    if len(parts) == 1:
        return _generate_part(parts[0], directory)
    with multiprocessing.get_context("spawn").Pool(plan.processes) as pool:
        results = pool.starmap(_generate_part, [(part, directory) for part in parts])
    whole = results[0]
    for planted in results[1:]:
        whole.faults += planted.faults
        whole.fates += planted.fates
        whole.events += planted.events
    return whole


def _parts(plan: TrafficPlan) -> Iterator[TrafficPlan]:
    """Divide a plan over its processes; messages in flight at the cut belong to the last."""
    count = plan.processes
    for index in range(count):
        shares = {
            name: _share(number, count, index) for name, number in numbers_of(plan.faults).items()
        }
        shares["in_flight"] = plan.faults.in_flight if index == count - 1 else 0
        yield dataclasses.replace(
            plan,
            transfers=_share(plan.transfers, count, index),
            seed=plan.seed * 1000 + index,
            start=plan.start + plan.seconds * index // count,
            seconds=plan.seconds // count,
            faults=FaultPlan(**shares),
            processes=1,
        )


def _share(number: int, count: int, index: int) -> int:
    return number * (index + 1) // count - number * index // count


def _generate_part(plan: TrafficPlan, directory: Path) -> PlantedFaults:
    return Traffic(plan, directory).run()
