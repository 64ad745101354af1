# SPDX-License-Identifier: Apache-2.0
"""The same sequences of AMQP 0-9-1 methods, played to a daemon and to RabbitMQ.

``python -m tests.integration.side_by_side`` starts both and prints each difference; names of
sequences behind it limit it to these. `docs/interoperation.md` lists the sequences that differ,
with reasons, and `tests.integration.test_side_by_side` holds it to what is found.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from amqproute.tools.daemon_pair import free_ports
from tests.integration.method_player import Broker, Sequence09, play_all
from tests.integration.rabbitmq import rabbit_node
from tests.integration.sequences_extensions import EXTENSION_SEQUENCES
from tests.integration.sequences_messages import MESSAGE_SEQUENCES
from tests.integration.sequences_topology import TOPOLOGY_SEQUENCES
from tests.integration.sequences_wire import WIRE_SEQUENCES
from tests.integration.support import Daemon

__all__ = ["PAGE", "SEQUENCES", "differences", "listed", "our_daemon", "record_of_rabbitmq"]

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "interoperation.md"
SECTION: Final = "## Side by side with RabbitMQ"
"""Its table has a row for each sequence that differs, or for several that differ alike."""

SEQUENCES: Final[Mapping[str, Sequence09]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *WIRE_SEQUENCES,
        *TOPOLOGY_SEQUENCES,
        *MESSAGE_SEQUENCES,
        *EXTENSION_SEQUENCES,
    )
}


def our_daemon() -> tuple[Daemon, Broker]:
    """Start a daemon with a listener for clients of 0-9-1 without TLS."""
    (port,) = free_ports(1)
    daemon = Daemon("alpha.example")
    listener = {
        "endpoint": daemon.endpoint(port),
        "mechanisms": ["PLAIN"],
        "plain-without-tls": True,
    }
    daemon.write(listen=[*daemon.settings["listen"], listener])
    return daemon.start(), Broker(port, "anna", "secret")


def record_of_rabbitmq(sequences: Mapping[str, Sequence09]) -> dict[str, list[str]]:
    """Play sequences to a RabbitMQ."""
    with rabbit_node() as node:
        return play_all(Broker(node.port, "guest", "guest"), sequences)


def differences(
    ours: Mapping[str, list[str]], theirs: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Return the sequences whose records differ, with the lines that do."""
    return {
        name: list(difflib.unified_diff(theirs[name], ours[name], "RabbitMQ", "here", lineterm=""))
        for name in ours
        if ours[name] != theirs[name]
    }


def listed() -> list[str]:
    """Return the names of the sequences that the page lists."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall("`([a-z0-9-]+)`", row.split("|")[1])]


def main(names: list[str]) -> None:
    """Print the differences."""
    chosen = {name: SEQUENCES[name] for name in names or SEQUENCES}
    daemon, broker = our_daemon()
    try:
        ours = play_all(broker, chosen)
    finally:
        daemon.stop()
    daemon.check()
    found = differences(ours, record_of_rabbitmq(chosen))
    for name, lines in found.items():
        print(f"\n== {name}: {SEQUENCES[name].__doc__}")
        print("\n".join(lines[2:]))
    print(f"\n{len(found)} of {len(chosen)} sequences differ")


if __name__ == "__main__":
    main(sys.argv[1:])
