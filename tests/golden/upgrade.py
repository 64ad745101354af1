# SPDX-License-Identifier: Apache-2.0
"""State written by an earlier revision, for the present program to open.

``data/upgrade-5b54e44.tar.xz`` holds the state directories of two daemons, and tables of the
pipeline, as revision 5b54e44 left them: alpha was killed, beta stopped in good order. It was made,
with a checkout of that revision in DIR, by::

    python -m tests.golden.upgrade --root DIR

which is not done again: the file is a witness. `tests.golden.test_upgrade` opens it, and
`tests.pipeline.test_upgrade` reads its tables and journals.

What is in it: durable messages on queues, one of them with a body among others in a
file and one with a file of its own; two durable subscriptions that share bodies; a branch that is
prepared, with a message to come and one to go; messages that wait for a domain out of reach; and
one that beta has and alpha does not know of, because the answer was lost: alpha sends it again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from tests.golden.course import XID
from tests.integration.support import Daemon, Wire, Zone, free_ports, message, until
from tests.integration.test_distributed_crash import Manager
from tests.pipeline.test_real_journals import Gate

__all__ = ["FIXTURE", "HUGE", "LARGE", "PUBLISHED", "SETTINGS", "SUBSCRIBERS", "unpack"]

FIXTURE: Final = Path(__file__).parent / "data" / "upgrade-5b54e44.tar.xz"
NODES: Final[list[Mapping[str, Any]]] = [
    {"name": "orders"}, {"name": "archive"}, {"name": "work"}, {"name": "news", "type": "topic"},
]  # fmt: skip
FOREVER: Final = "20000d"
SETTINGS: Final[Mapping[str, Any]] = {
    "nodes": NODES,
    "relay": {
        "first-retry": 0.2, "last-retry": 1.0, "lifetime": FOREVER, "receipt-lifetime": FOREVER,
    },
    "journal": {"keep": FOREVER, "segment-seconds": "1h"},
    "distributed-transactions": {"enabled": True},
}  # fmt: skip
"""Of both daemons, then and now. Nothing may be over because the witness has grown old."""
SUBSCRIBERS: Final = ("one.example", "two.example")
LARGE: Final = 40_000
HUGE: Final = 3_000_000

PUBLISHED: Final = (b"news", b"N" * LARGE)
"""Bodies that wait for each subscriber."""


class EarlierDaemon(Daemon):
    """A daemon of a checkout elsewhere."""

    root: Path

    def spawn(self) -> None:
        self._spawn([*self.program(), "serve", "--config", str(self.file)], {}, ())

    def program(self) -> list[str]:
        """Return the command line before its arguments; nothing of this directory is imported."""
        return [sys.executable, "-P", "-m", "amqproute"]

    def _environ(self) -> dict[str, str]:
        return {**super()._environ(), "PYTHONPATH": str(self.root)}


def subscriber(port: int, container: str) -> Wire:
    """Connect a subscriber that has a durable subscription."""
    source = spec.Source(address="news", durable=2, expiry_policy="never")
    wire = Wire(port, container=container)
    wire.attach("receiver", "news", "kept", source=source)
    return wire


def work_in_branch(port: int) -> None:
    """Have a branch prepared that takes a message off ``work`` and puts one on ``archive``."""
    manager = Manager(port)
    code, body = manager.ask("start", XID)
    assert code == 0, code
    with Wire(port, container="application.example") as wire:
        taking = wire.attach("receiver", "work")
        taking.flow(1)
        (taken,) = wire.wait(lambda event: type(event) is ev.DeliveriesReceived).deliveries
        within = spec.TransactionalState(txn_id=body["txn-id"])
        link = wire.attach("sender", "archive")
        until(lambda: link.sendable or wire.read(), "credit")
        sent = link.send((message(b"prepared", message_id="prepared"),), b"tag", state=within)
        accepted = spec.TransactionalState(txn_id=body["txn-id"], outcome=spec.Accepted())
        wire.session.settle([taken], accepted, False)
        wire.wait(lambda _: type(sent.state) is spec.TransactionalState)
        for operation in ("end", "prepare"):
            code, _ = manager.ask(operation, XID)
            assert code == 0, (operation, code)
        wire.close()
    manager.wire.close()


def publish(daemon: Daemon, address: str, **bodies: bytes) -> None:
    """Publish durable messages; their names are their message-ids."""
    with Wire(daemon.plain) as wire:
        ids = (name.replace("_", "-") for name in bodies)
        wire.publish(
            address,
            [
                message(body, address, message_id=name)
                for name, body in zip(ids, bodies.values(), strict=True)
            ],
        )
        wire.close()


def happen(alpha: EarlierDaemon, beta: EarlierDaemon, zone: Zone, tables: Path) -> None:
    """Let it all happen."""
    gate = Gate(beta.tls)
    (nobody,) = free_ports(1)
    zone.point("alpha.example", alpha.tls)
    zone.point("beta.example", gate.port)
    zone.point("gone.example", nobody)
    beta.start()
    alpha.start()
    publish(alpha, "orders@beta.example", far_0=b"0", far_1=b"1", far_2=b"2")
    with Wire(beta.plain) as wire:
        wire.consume("orders", 1)
        wire.close()
    publish(alpha, "archive", plain_0=b"plain", plain_1=b"plain")
    alpha.stop()  # its segment is closed
    command = [
        *alpha.program(), "pipeline", "ingest", "--journal", str(alpha.directory / "state/journal"),
        "--warehouse", str(tables), "--memory", "1g", "--master", "local[1]",
    ]  # fmt: skip
    subprocess.run(command, env=alpha._environ(), check=True, cwd=tables.parent)
    alpha.start()
    publish(alpha, "archive", large=b"L" * LARGE, huge=b"H" * HUGE)
    publish(alpha, "work", work_0=b"0", work_1=b"1")
    wires = [subscriber(alpha.plain, name) for name in SUBSCRIBERS]
    for wire in wires:
        wire.close()
    publish(alpha, "news", news_0=PUBLISHED[0], news_1=PUBLISHED[1])
    work_in_branch(alpha.plain)
    publish(alpha, "orders@gone.example", gone_0=b"0", gone_1=b"1")
    alpha.wait_log("gone.example cannot be reached")
    publish(alpha, "orders@beta.example", far_3=b"3")
    journal = alpha.directory / "state/journal/open"
    until(
        lambda: any(b'"kind":"relayed"' in each.read_bytes() for each in journal.iterdir()),
        "an outcome on the new connection",
    )
    gate.is_silent = True
    publish(alpha, "orders@beta.example", twice=b"twice")
    with Wire(beta.plain) as wire:
        browsing = spec.Source(address="orders", distribution_mode="copy")
        link = wire.attach("receiver", "orders", source=browsing)
        link.flow(10)
        seen: list[Any] = []
        while len(seen) < 4:
            found = wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
            seen += found.deliveries
        wire.close()
    alpha.kill()
    beta.stop()
    gate.close()


def make(root: Path) -> None:
    """Make the fixture with a checkout of an earlier revision."""
    EarlierDaemon.root = root
    zone = Zone()
    resolver = {"nameservers": [f"127.0.0.1:{zone.port}"], "timeout": 0.5, "cache-longest": 0.2}
    changes = {**SETTINGS, "resolver": resolver}
    alpha = EarlierDaemon("alpha.example", nameserver=zone.port, changes=changes)
    beta = EarlierDaemon("beta.example", nameserver=zone.port, changes=changes)
    tables = alpha.directory / "tables"
    tables.mkdir()
    try:
        happen(alpha, beta, zone, tables)
    finally:
        for daemon in (alpha, beta):
            daemon.kill()
        zone.close()
    with tarfile.open(FIXTURE, "w:xz") as archive:
        for daemon in (alpha, beta):
            name = daemon.name.partition(".")[0]
            archive.add(daemon.directory / "state", f"{name}/state", filter=_plain)
        archive.add(tables, "tables", filter=_plain)
    print(f"{FIXTURE}: {FIXTURE.stat().st_size} octets")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out room that is only set aside, and who has made the files."""
    if member.name.endswith((".ballast", ".lock", ".crc", "-shm")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(directory: Path, *names: str) -> None:
    """Unpack what the fixture has of ``alpha``, ``beta`` or ``tables`` into a directory."""
    with tarfile.open(FIXTURE) as archive:
        members = [each for each in archive if each.name.split("/")[0] in names]
        archive.extractall(directory, members, filter="data")


def main() -> None:
    """Make the fixture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="a checkout of the revision")
    make(parser.parse_args().root.absolute())


if __name__ == "__main__":
    main()
