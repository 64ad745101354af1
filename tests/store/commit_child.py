# SPDX-License-Identifier: Apache-2.0
"""The process of `tests.store.test_synced`: commits one entry for each line of its input.

Run with the path of a store. It answers each line with the id of the entry, when the commit is
done.
"""

from __future__ import annotations

import sys

from tests.store.rig import StoreFixture


def main(path: str) -> None:
    """Work until the input ends, which is how it is killed."""
    house = StoreFixture(path)
    house.open()
    for line in sys.stdin.buffer:
        (entry_id,) = house.put("q", line)
        sys.stdout.write(f"{entry_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
