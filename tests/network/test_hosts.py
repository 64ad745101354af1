# SPDX-License-Identifier: Apache-2.0
"""Daemons of different organizations, each on a separate host, with signed names.

All of them prove themselves by DANE: TLSA records in signed zones, and an authority of its own for
each organization that nobody else knows. Which kind of hosts it was is in the output.

The campaigns' short form has three hosts and a short run; ``make test-network``
(``AMQPROUTE_NETWORK=long``) has five on a slow, lossy, thin wire, with cuts, kills, a name server
that dies and an organization that moves.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.dane import record_of
from amqproute.tools.load_worker import Connected, Consumer, LoadTarget, MessageNumbers, Publisher
from tests.integration.support import RUN, Certificates, Daemon, until
from tests.network.lab import AMQPS, Host, Lab, make_lab
from tests.support.patience import PATIENCE

IS_LONG = os.environ.get("AMQPROUTE_NETWORK") == "long"
INBOX = "orders"


class Broker(Daemon):
    """A daemon on a host.

    Attributes:
        host: where it runs.
        tlsa: what its domain publishes of its key.
    """

    def __init__(self, host: Host, lab: Lab, senders: Sequence[str]) -> None:
        issued = Certificates().issue(host.domain)
        everything = ["publish", "consume", "create", "browse", "manage"]
        super().__init__(
            host.domain,
            issued=issued,
            changes={
                "nodes": [{"name": f"from-{name}"} for name in senders],
                "access": [
                    {"allow": everything, "who": "uid:*"},
                    # Each organization has a node of its own: so it is seen who came.
                    *(
                        {"allow": ["transfer"], "who": f"peer:{n}.example", "node": f"from-{n}"}
                        for n in senders
                    ),
                ],
                "peers": {"*": {"level": "dane"}},
                "resolver": lab.resolver_settings(),
                "relay": {
                    "first-retry": 0.2,
                    "last-retry": 1.0,
                    "settle-timeout": 5,
                    "connect-timeout": 3,
                },
                # A host that has been taken off the wire is noticed by its silence.
                "limits": {"idle-timeout": 4},
            },
        )
        self.host = host
        chain = x509.load_pem_x509_certificates(issued.chain.read_bytes())
        self.tlsa = str(record_of(chain[0]))
        self.write(
            listen=[
                {"endpoint": f"unix:{self.socket}", "mechanisms": ["EXTERNAL"]},
                {
                    "endpoint": f"tcp:{AMQPS}:interface={host.address}",
                    "tls": "implicit",
                    "client-certificate": "optional",
                    "mechanisms": ["EXTERNAL"],
                },
            ]
        )

    def spawn(self) -> None:
        """Start it on its host."""
        self._spawn([*self.host.prefix, *RUN, str(self.file)], {}, ())

    @property
    def place(self) -> LoadTarget:
        """The address for the test."""
        return LoadTarget(self.socket)


class Flow:
    """Numbered messages from one broker to another.

    Publisher and consumer connect again when their broker was killed: `take_up`. What the publisher
    had in doubt then may be there twice, of its own making; everything else once.
    """

    def __init__(self, source: Broker, target: Broker, count: int) -> None:
        self.words = f"{source.host.name} to {target.host.name}"
        address = f"from-{source.host.name}@{target.host.domain}"
        self.numbering = MessageNumbers(count, 256, address)
        self._near = Connected(source.place, "near")
        self._far = Connected(target.place, "far")
        self._publisher = Publisher(self._near, address, self.numbering, window=100)
        self.consumer = Consumer(self._far, f"from-{source.host.name}", self.numbering)

    def turn(self) -> None:
        """Move both ends."""
        self._publisher.offer()
        self._near.turn(0.002)
        self._far.turn(0.002)

    @property
    def is_done(self) -> bool:
        """Everything was accepted, and came."""
        return self._publisher.is_done and not self.consumer.missing

    @property
    def part(self) -> float:
        """The part of it that has come, from 0 to 1."""
        return 1 - self.consumer.missing / self.numbering.count

    def close(self) -> None:
        """Close both ends."""
        self._near.close()
        self._far.close()

    def __str__(self) -> str:
        return (
            f"{self.words}: {self._publisher.accepted} accepted, {self.consumer.missing} missing, "
            f"{self.consumer.duplicated} twice, refused {self._publisher.refused}"
        )


class HostsTests(SynchronousTestCase):
    @contextlib.contextmanager
    def brokers(self, *names: str) -> Iterator[tuple[Lab, Mapping[str, Broker]]]:
        """Make hosts and start a daemon on each."""
        with make_lab(names) as lab, contextlib.ExitStack() as stack:
            brokers = {
                name: Broker(lab.host(name), lab, [each for each in names if each != name])
                for name in names
            }
            for name, broker in brokers.items():
                lab.publish(name, broker.tlsa)
            lab.start()
            for broker in brokers.values():
                stack.callback(broker.kill)
                broker.spawn()
            for broker in brokers.values():
                broker.wait_ready()
            yield lab, brokers
            for broker in brokers.values():
                broker.stop()
                broker.check()

    def drive(
        self,
        brokers: Mapping[str, Broker],
        flows: Sequence[Flow],
        seconds: float,
        harms: Sequence[Callable[[], None]] = (),
    ) -> None:
        """Move flows until all is there; do harm when so and this much of the first has come."""
        end = time.monotonic() + seconds
        left = list(harms)
        while not all(flow.is_done for flow in flows):
            for flow in flows:
                flow.turn()
            done = sum(flow.part for flow in flows) / len(flows)
            if left and done > 1 - (len(left) / (len(harms) + 1)):
                left.pop(0)()
            if time.monotonic() > end:
                logs = "\n".join(
                    f"{name}: {line}"
                    for name, broker in brokers.items()
                    for line in broker.log().splitlines()[-12:]
                )
                raise self.failureException("\n".join([*map(str, flows), logs]))
        for flow in flows:
            flow.close()
            self.assertEqual(flow.consumer.duplicated, 0, str(flow))
            self.assertEqual(flow.consumer.strange, 0, str(flow))

    def tell(self, lab: Lab, words: str) -> None:
        lacks = f"; not to be had here: {'; '.join(lab.lacks)}" if lab.lacks else ""
        print(f"\n{lab.words}{lacks}\n{words}")

    def test_three(self) -> None:
        """Everybody sends to everybody, while one is taken off the wire for a moment."""
        with self.brokers("alpha", "beta", "gamma") as (lab, brokers):
            flows = [
                Flow(source, target, 300)
                for source in brokers.values()
                for target in brokers.values()
                if source is not target
            ]

            def cut() -> None:
                lab.cut("beta")
                time.sleep(0.5)
                lab.mend("beta")

            self.drive(brokers, flows, PATIENCE, [cut])
            for broker in brokers.values():
                self.assertNotIn("dane.mismatch", broker.log())
            self.tell(lab, f"{len(flows)} flows, {sum(f.numbering.count for f in flows)} messages")

    def test_stranger(self) -> None:
        """A host whose key its zone does not name hears nothing and gets nothing in."""
        with self.brokers("alpha", "beta") as (lab, brokers):
            lab.publish("beta", "3 1 1 " + "ab" * 32)
            time.sleep(1.5)  # the TTL
            flow = Flow(brokers["alpha"], brokers["beta"], 10)
            until(lambda: flow.turn() or "dane.mismatch" in brokers["alpha"].log(), "a refusal")
            self.assertEqual(flow.consumer.received, 0)
            lab.publish("beta", brokers["beta"].tlsa)
            self.drive(brokers, [flow], PATIENCE)
            self.tell(lab, "a key that the zone does not name: refused until it did")

    def test_five(self) -> None:
        """Five on a bad wire: cuts, a name server that dies, an organization that moves."""
        names = ("alpha", "beta", "gamma", "delta", "epsilon")
        chance = random.Random(11)
        with self.brokers(*names) as (lab, brokers):
            lab.shape(delay_ms=20, loss=1, rate_mbit=10)
            flows = [
                Flow(source, target, 1000)
                for source in brokers.values()
                for target in brokers.values()
                if source is not target
            ]

            def cut() -> None:
                name = chance.choice(names)
                lab.cut(name)
                time.sleep(chance.uniform(0.1, 2.0))
                lab.mend(name)

            harms: list[Callable[[], Any]] = [cut, cut, lab.stop_names, cut, cut, lab.start_names,
                                              cut, cut]  # fmt: skip
            started = time.monotonic()
            self.drive(brokers, flows, 3 * PATIENCE, harms)
            seconds = time.monotonic() - started
            total = sum(flow.numbering.count for flow in flows)
            self.tell(
                lab,
                f"{len(flows)} flows, {total} messages, 6 cuts, name server down for a while: "
                f"0 lost, 0 twice, {total / seconds:.0f} messages/s",
            )

    if not IS_LONG:
        test_five.skip = "long: make test-network"  # type: ignore[attr-defined]
