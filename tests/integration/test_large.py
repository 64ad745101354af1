# SPDX-License-Identifier: Apache-2.0
"""A very large message over two hops: memory, and messages that overtake it (M-05, M-08).

``AMQPROUTE_LARGE_MIB=1024`` is the long form: a message of 1 GiB.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import reader
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.tools.daemon_pair import QUEUE
from amqproute.tools.load_worker import Connected, LoadManagement
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.engine_events import DeliveriesReceived, DeliveriesUpdated, PartsReceived
from tests.integration.support import Daemon, Wire, message
from tests.support.pairs import Pair
from tests.support.patience import PATIENCE
from tests.support.program import run

MIB = 1024 * 1024
LARGE = int(os.environ.get("AMQPROUTE_LARGE_MIB", "64")) * MIB
MOST_MEMORY = 64 * MIB if LARGE >= 1024 * MIB else 32 * MIB
"""The memory that a daemon may need beyond its earlier use."""
PART = MIB
WAIT = PATIENCE + LARGE / MIB


def parts() -> Iterator[bytes]:
    """Give the octets of the body: none of them twice in a row, the same each time."""
    chance = random.Random(1)
    whole = chance.randbytes(2 * PART)
    for _ in range(LARGE // PART):
        start = chance.randrange(PART)
        yield whole[start : start + PART]


def head(to: str) -> bytes:
    """Return what precedes the octets of the body."""
    sections = codec.encode(spec.Header(durable=True)) + codec.encode(spec.Properties(to=to))
    return sections + b"\x00\x53\x75\xb0" + LARGE.to_bytes(4, "big")


class LargeTests(SynchronousTestCase):
    """Through alpha and beta, with mutual TLS between them."""

    def test_two_hops(self) -> None:
        """It arrives, in little memory, and small ones do not wait for it."""
        pair = Pair()
        with pair:
            pair.start()
            address = f"{QUEUE}@{pair.beta.domain}"
            with (
                Connected(pair.alpha.tcp, "large") as sending,
                Connected(pair.alpha.tcp, "small") as aside,
                Connected(pair.beta.unix, "look") as looking,
                Connected(pair.beta.tcp, "taker") as taking,
            ):
                self.warm_up(aside, taking, address)
                before = {daemon.name: daemon.peak_bytes for daemon in pair.daemons}
                rows = LoadManagement(looking)
                self.send_large(sending, address)
                passed = self.pass_by(aside, rows, address)
                self.wait_for(rows, passed + 1)
                earlier, digest = self.take(taking, passed + 1)
                # The order in which they came to beta.
                self.assertGreater(earlier, 0)
                expected = hashlib.sha256()
                for part in parts():
                    expected.update(part)
                self.assertEqual(digest, expected.hexdigest())
                more = {each.name: each.peak_bytes - before[each.name] for each in pair.daemons}
                for name, octets in more.items():
                    self.assertLess(octets, MOST_MEMORY, f"{name} took {octets / MIB:.1f} MiB")
                print(f"\n{LARGE // MIB} MiB: {earlier} of {passed} passed, more memory {more}")
            for daemon in pair.daemons:
                self.wait_until_empty(pair, daemon)
            pair.stop()
            # Header and footer are not part of what is compared; the rest never was in memory.
            bare = head(address)
            expected = hashlib.sha256(bare[len(codec.encode(spec.Header(durable=True))) :])
            for part in parts():
                expected.update(part)
            for daemon in pair.daemons:
                said = reader.records(pair.directory / daemon.name / "state" / "journal")
                large = [each for each in said if (each.size or 0) > LARGE]
                told = [(each.kind, each.digest) for each in large]
                self.assertEqual(told, [(RecordKind.RECEIVED, expected.hexdigest())], daemon.name)

    def test_found(self) -> None:
        """One that only the store knows of at a start is read once for its digest."""
        daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(daemon.kill)
        with Wire(daemon.plain) as wire:
            wire.publish("q", [message(b"small"), message(bytes(3 * MIB)), message(b"after")])
        daemon.stop()
        state = daemon.directory / "state" / "journal"
        told = {each.entry: each.digest for each in reader.records(state) if each.entry}
        self.assertEqual(len(set(told.values())), 3)
        shutil.rmtree(state)
        daemon.start().stop()
        found = [each for each in reader.records(state) if each.entry]
        self.assertEqual({each.kind for each in found}, {"recovery"})
        self.assertEqual({each.entry: each.digest for each in found}, told)

    def test_copied_after_a_restart(self) -> None:
        """A delivery made of one after a restart has its digest and its size without reading it."""
        nodes = [{"name": "q", "dead-letter": "dead"}, {"name": "dead"}]
        daemon = Daemon("alpha.example", changes={"nodes": nodes}).start()
        self.addCleanup(daemon.kill)
        payload = message(bytes(3 * MIB))
        with Wire(daemon.plain) as wire:
            wire.publish("q", [payload])
        daemon.stop()
        daemon.start()
        with Wire(daemon.plain) as wire:
            wire.attach("receiver", "q").flow(1)
            came = wire.wait(lambda event: type(event) is DeliveriesReceived)
            error = spec.Error(condition="amqp:not-allowed")
            wire.session.settle(came.deliveries, spec.Rejected(error=error), True)
            wire.flush()
            wire.close()
        daemon.stop()
        bare = Message(payload).bare
        known = (hashlib.sha256(bare).hexdigest(), len(bare))
        said = [
            (each.kind, each.node, each.digest, each.bare_size)
            for each in reader.records(daemon.directory / "state" / "journal")
            if each.size
        ]
        self.assertEqual(said, [("received", "q", *known), ("routed", "dead", *known)])

    def test_commands(self) -> None:
        """`send --file` and `receive --output` move a file of any size as it is."""
        directory = Path(self.mktemp())
        directory.mkdir()
        given, got = directory / "given", directory / "got"
        given.write_bytes(random.Random(2).randbytes(20 * MIB + 7))
        pair = Pair()
        with pair:
            pair.start()
            sent = run(
                "send", f"{QUEUE}@{pair.beta.domain}", f"--file={given}", f"--url={pair.alpha.url}"
            )
            self.assertEqual((sent.returncode, sent.stderr), (0, ""))
            self.assertIn("accepted", sent.stdout)
            received = run(
                "receive",
                QUEUE,
                f"--output={got}",
                f"--url={pair.beta.url}",
                f"--timeout={PATIENCE:g}",
            )
            self.assertEqual(received.returncode, 0, received.stderr)
            self.assertEqual(got.read_bytes(), given.read_bytes())
            self.assertEqual(sorted(each.name for each in directory.iterdir()), ["given", "got"])
            # It is gone from the queue; a small one can be had in the same way.
            run("send", QUEUE, "--body=text", f"--url={pair.beta.url}")
            small = (
                "receive",
                QUEUE,
                f"--output={got}",
                f"--url={pair.beta.url}",
                f"--timeout={PATIENCE:g}",
            )
            refused = run(*small)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("not binary data", refused.stderr)

    def warm_up(self, aside: Connected, taking: Connected, address: str) -> None:
        """Have everything loaded and connected before the memory is looked at."""
        self.warm = taking.attach("receiver", QUEUE)
        self.small = aside.attach("sender", address)
        self.send_small(aside, 300, b"x" * 1024)
        self.take(taking, 300)

    def send_small(self, aside: Connected, count: int, body: bytes = b"small") -> None:
        until = time.monotonic() + WAIT
        sent = done = 0
        encoded = codec.encode(spec.Header(durable=True)) + b"\x00\x53\x75\xb0"
        encoded += len(body).to_bytes(4, "big") + body
        while done < count:
            self.assertLess(time.monotonic(), until)
            while sent < count and self.small.credit:
                self.small.send((encoded,), b"%d" % self.small.deliveries)
                sent += 1
            for event in aside.turn(0.5):
                if isinstance(event, DeliveriesUpdated):
                    done += len(event.deliveries)

    def send_large(self, sending: Connected, address: str) -> None:
        """Send it to alpha, in parts, and wait for its outcome."""
        link = sending.attach("sender", address)
        until = time.monotonic() + WAIT
        while not link.credit:
            sending.turn(0.5)
        first = head(address)
        outgoing = link.send_parts(len(first) + LARGE, b"large")
        outgoing.append([first])
        octets = parts()
        while True:
            self.assertLess(time.monotonic(), until)
            congested = sending.is_congested or not outgoing.is_clear
            if outgoing.missing and not congested:
                outgoing.append([next(octets)])
            wait = 0.5 if congested or not outgoing.missing else 0.0
            for event in sending.turn(wait):
                if isinstance(event, DeliveriesUpdated):
                    self.assertIsInstance(event.state, spec.Accepted)
                    return

    def pass_by(self, aside: Connected, rows: LoadManagement, address: str) -> int:
        """Send small ones while alpha relays the large one; return how many passed it."""
        count = 0
        for _ in range(5):
            self.send_small(aside, 1)
            count += 1
            until = time.monotonic() + 5
            while self.depth(rows) < count and time.monotonic() < until:
                time.sleep(0.002)
        return count

    def depth(self, rows: LoadManagement) -> int:
        return int(rows.row("queue", QUEUE).get("depth", 0))

    def wait_for(self, rows: LoadManagement, depth: int) -> None:
        until = time.monotonic() + WAIT
        while self.depth(rows) < depth:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)

    def take(self, taking: Connected, count: int) -> tuple[int, str]:
        """Take this many; return how many came before the large one, and the digest of its body."""
        link = self.warm
        link.takes_parts = True
        link.flow(count)
        digest = hashlib.sha256()
        beginning = b""
        taken = earlier = 0
        until = time.monotonic() + WAIT
        while taken < count:
            self.assertLess(time.monotonic(), until)
            for event in taking.turn(0.5):
                if isinstance(event, DeliveriesReceived):
                    taken += len(event.deliveries)
                    link.session.settle(event.deliveries, spec.Accepted())
                elif isinstance(event, PartsReceived):
                    octets = b"".join(event.parts)
                    link.session.took(len(octets))
                    if not beginning:
                        beginning = octets[:4096]
                        earlier = taken
                        octets = octets[beginning.index(b"\x00\x53\x75\xb0") + 8 :]
                    digest.update(octets)
                    if event.is_last:
                        taken += 1
                        link.session.settle([event.delivery], spec.Accepted())
        taking.turn(0.05)
        return earlier, digest.hexdigest()

    def wait_until_empty(self, pair: Any, daemon: Any) -> None:
        """Nothing is left of it on the disk."""
        until = time.monotonic() + WAIT
        while True:
            bodies = pair.directory / daemon.name / "state" / "store.bodies"
            left = [each.stat().st_size for each in bodies.iterdir()]
            if sum(left) < LARGE // 2:
                return
            self.assertLess(time.monotonic(), until, left)
            time.sleep(0.05)
