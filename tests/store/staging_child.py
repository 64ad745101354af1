# SPDX-License-Identifier: Apache-2.0
"""The process killed by `tests.store.test_staging`: stages without end, reports what is saved.

Each line on standard output is ``NAME OCTETS``: so many octets of the content are on the disk.
Contents named ``f…`` are begun with a name, those named ``m…`` are named by their first save.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from tests.store.rig import StoreFixture

EXPECTED = 1 << 20


def octets(name: str, size: int) -> bytes:
    """The octets of a content."""
    unit = f"{name}:".encode() * 1000
    return (unit * (size // len(unit) + 1))[:size]


def report(name: str, size: int) -> None:
    """Say that so much is on the disk, in one write, so that a kill cannot cut it in two."""
    os.write(1, f"{name} {size}\n".encode())


def main(path: str) -> None:
    """Work until killed."""
    house = StoreFixture(path)
    house.open()
    staging: Any = house.store.staging
    number = 0
    while True:
        number += 1
        held = []
        for kind in "fm":
            name = f"{kind}{number % 20}"
            begun = staging.begin("ann", name if kind == "f" else None, EXPECTED, int)
            held.append((name, house.reactor.wait(begun)))
        for part in range(5):
            for name, content in held:
                size = min(content.size + 1 + 3001 * part * number % 50_000, EXPECTED)
                content.append([octets(name, size)[content.size :]])
                content.save(name).addCallback(partial(report, name))
        for _, content in held:
            house.reactor.wait(content.save())
            content.release()


if __name__ == "__main__":
    main(sys.argv[1])
