# SPDX-License-Identifier: Apache-2.0
"""``python -m amqproute.tools.zone_server ZONE PORT``: serve a zone on loopback until told to end.

For the demonstration, the benchmark and the tests (`amqproute.tools.daemon_pair`): brokers that
find each other through the DNS need a server. Notifies ``$NOTIFY_SOCKET`` when it answers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from twisted.internet.defer import Deferred

from amqproute.cli import runner
from amqproute.cli.command_error import Interrupted
from amqproute.daemon.notify import ServiceNotifier
from amqproute.net.reactor import IReactor
from amqproute.resolver.zone import ZoneServer

__all__ = ["main"]


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    zone, port = Path(sys.argv[1]).read_text(), int(sys.argv[2])

    async def work(reactor: IReactor) -> int:
        server = ZoneServer([zone], reactor)
        await server.start("127.0.0.1", port)
        ServiceNotifier.from_environment(os.environ).ready(f"answering on port {port}")
        forever: Deferred[None] = Deferred()
        try:
            await forever
        finally:
            await server.stop()
        return 0

    try:
        return runner.run(work)
    except Interrupted:
        return 0


if __name__ == "__main__":
    sys.exit(main())
