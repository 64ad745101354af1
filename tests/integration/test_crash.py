# SPDX-License-Identifier: Apache-2.0
"""Kill either side, at any moment, again and again: nothing is lost, nothing comes twice.

Two daemons relay while one of them, or both, are killed (SIGKILL) and started again. A publisher
at alpha sends again, under the same message-id, what had no outcome when its connection broke:
alpha may have taken those already, and such a copy of the publisher's own making is the only
thing that may be in beta's queue twice. The two can be told apart, for each sending has its time
in the body: no *sending* may ever come twice.

The ordinary suite has a short run. ``make test-crash`` (``AMQPROUTE_CRASH=long``) has a long one
from a new seed, which a failure names; ``AMQPROUTE_CRASH_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.load import CREDIT, Connected, Management, Numbering, Publisher
from amqproute.cli.pair import QUEUE, Daemon, Pair
from amqproute.cli.refusal import ClientError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.events import DeliveriesReceived

IS_LONG = os.environ.get("AMQPROUTE_CRASH") == "long"
STUCK_SECONDS = 30.0
PAUSE_SECONDS = 0.3
WINDOW = 50
"""Messages without an outcome: as many are in doubt when alpha is killed."""


class Stuck(Exception):
    """Nothing has moved for `STUCK_SECONDS`."""


class Course:
    """One run: a pair, a publisher that does not give up, and somebody with a gun.

    Attributes:
        sent_again: how often a number was sent again because its outcome was unknown.
        kills: which sides were killed, in order.
    """

    def __init__(self, pair: Pair, messages: int, chance: random.Random) -> None:
        self.numbering = Numbering(messages, 64, f"{QUEUE}@{pair.beta.domain}")
        self.sent_again: Counter[int] = Counter()
        self.kills: list[str] = []
        self._accepted_before = 0
        self.refused: dict[str, int] = {}
        self._pair = pair
        self._chance = chance
        self._later = list(range(messages))
        self._due: list[int] = []
        self._connected: Connected | None = None
        self._publisher: Publisher | None = None

    @property
    def accepted(self) -> int:
        """How many messages have been accepted, over all connections."""
        publisher = self._publisher
        return self._accepted_before + (0 if publisher is None else publisher.accepted)

    def run(self, kills: int) -> None:
        """Publish everything, with this many kills in between."""
        self._pair.start()
        share = -(-self.numbering.count // (kills + 1))
        for _ in range(kills):
            self.publish(share, self._chance.randrange(share))
            self.crash()
        self.publish(self.numbering.count)
        self.disconnect()

    def publish(self, share: int, stop_after: int | None = None) -> None:
        """Publish some more, until so many of them, or all, have been accepted.

        Raises:
            Stuck: they were not in time.
        """
        self._due += self._later[:share]
        del self._later[:share]
        goal = self.numbering.count if stop_after is None else self.accepted + stop_after
        until = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < until:
            try:
                connected, publisher = self.connect()
                # What was released was not taken: to send it again makes no copy.
                publisher.pending += [*self._due, *publisher.unlucky]
                self._due.clear()
                publisher.unlucky.clear()
                publisher.offer()
                connected.turn(0.005)
                if self.accepted >= goal:
                    return
            except ClientError:
                self.connection_lost()
        raise Stuck(f"{self.accepted} messages were accepted, and no more")

    def connect(self) -> tuple[Connected, Publisher]:
        """Return the publisher, with a new connection if there is none."""
        if self._connected is None:
            self._connected = Connected(self._pair.alpha.unix, "crash", seconds=5.0)
            self._publisher = None
        if self._publisher is None:
            address = f"{QUEUE}@{self._pair.beta.domain}"
            self._publisher = Publisher(self._connected, address, self.numbering, (), window=WINDOW)
        return self._connected, self._publisher

    def connection_lost(self) -> None:
        """Send again what was not sent, and what may or may not have been taken."""
        publisher = self._publisher
        if publisher is not None:
            self.sent_again.update(publisher.in_doubt)
            self._due += [*sorted(publisher.in_doubt), *publisher.unlucky, *publisher.pending]
            self._accepted_before += publisher.accepted
            self.count_refused(publisher)
        if self._connected is not None:
            self._connected.drop()
        self._publisher = self._connected = None

    def count_refused(self, publisher: Publisher) -> None:
        for name, count in publisher.refused.items():
            self.refused[name] = self.refused.get(name, 0) + count

    def disconnect(self) -> None:
        if self._publisher is not None:
            self.count_refused(self._publisher)
        if self._connected is not None:
            self._connected.close()
        self._publisher = self._connected = None

    def crash(self) -> None:
        """Kill one side or both, and start again; now and then kill once more while it recovers."""
        chance, (alpha, beta) = self._chance, self._pair.daemons
        victims = chance.choice([[alpha], [beta], [alpha, beta]])
        for victim in victims:
            self.kill(victim)
        self.pause()
        if chance.random() < 0.25:
            for victim in victims:
                victim.start()
            time.sleep(chance.uniform(0, 1.0))
            for victim in victims:
                self.kill(victim)
        for victim in victims:
            victim.start()
        for victim in victims:
            victim.wait_ready()

    def kill(self, victim: Daemon) -> None:
        self.kills.append(victim.name)
        victim.kill()

    def pause(self) -> None:
        """Let the other side go on alone for a moment: the moment is what is random here."""
        time.sleep(self._chance.uniform(0, PAUSE_SECONDS))

    def count(self) -> Arrivals:
        """Take everything from beta once alpha has nothing left, and count it."""
        with Connected(self._pair.alpha.unix, "count") as connected:
            alpha = Management(connected)
            wait(lambda: not any(row["depth"] for row in alpha.rows("relay-queue")))
        with Connected(self._pair.beta.unix, "count") as connected:
            beta = Management(connected)
            arrivals = Arrivals(connected, self.numbering)
            wait(lambda: not beta.row("queue", QUEUE)["depth"])
            return arrivals


class Arrivals:
    """What was in beta's queue.

    Attributes:
        sendings: how often each sending of a number came.
    """

    def __init__(self, connected: Connected, numbering: Numbering) -> None:
        self.sendings: Counter[tuple[int, int]] = Counter()
        self._numbering = numbering
        self._link = connected.attach("receiver", QUEUE, self)
        self._link.flow(CREDIT)

    def event(self, event: DeliveriesReceived) -> None:
        """Take and accept what came."""
        self.sendings.update(self._numbering.decode(each.payload) for each in event.deliveries)
        self._link.session.settle(event.deliveries, spec.Accepted())
        self._link.flow(CREDIT)

    @property
    def numbers(self) -> Counter[int]:
        """How often each number came."""
        found: Counter[int] = Counter()
        for (number, _), count in self.sendings.items():
            found[number] += count
        return found

    @property
    def copies(self) -> int:
        """How many came of numbers that had come before."""
        numbers = self.numbers
        return numbers.total() - len(numbers)


def wait(is_true: Callable[[], bool]) -> None:
    """Look again and again: it happens in other processes, and nobody tells."""
    deadline = time.monotonic() + STUCK_SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise Stuck("alpha's relay queue does not become empty")
        time.sleep(0.02)


class CrashTests(SynchronousTestCase):
    def crash(self, seed: int, messages: int, kills: int) -> None:
        with Pair() as pair:
            course = Course(pair, messages, random.Random(seed))
            try:
                course.run(kills)
                arrivals = course.count()
            except Exception as error:
                logs = [f"{each.name}: {line}" for each in pair.daemons for line in each.last_lines]
                raise self.failureException(
                    "\n".join([f"seed {seed}: {error!r}", *logs])
                ) from error
            logs = [f"{each.name}: {line}" for each in pair.daemons for line in each.last_lines]
        numbers = arrivals.numbers
        lost = sorted(set(range(messages)) - set(numbers))
        twice = [sending for sending, count in arrivals.sendings.items() if count > 1]
        strange = [number for number in numbers if number >= messages]
        # More copies of a number than sendings of it would be of somebody else's making.
        extra = [each for each, count in numbers.items() if count > 1 + course.sent_again[each]]
        story = "\n".join([f"seed {seed}, kills {' '.join(course.kills)}", *logs])
        wrong: dict[str, Sequence[object]] = {
            "lost": lost,
            "twice": twice,
            "strange": strange,
            "extra": extra,
        }
        found = {name: (len(each), each[:5]) for name, each in wrong.items() if each}
        self.assertEqual(found, {}, story)  # type: ignore[no-untyped-call]
        self.assertEqual(set(course.refused) - {"released"}, set(), story)  # type: ignore[no-untyped-call]
        print(
            f"\nseed {seed}: {len(course.kills)} kills, {numbers.total()} messages came: 0 lost, "
            f"0 twice, {arrivals.copies} copies of the publisher's own making (it sent "
            f"{course.sent_again.total()} again)"
        )

    def test_short(self) -> None:
        """1500 messages, three rounds of kills of the one, the other, or both sides."""
        self.crash(seed=7, messages=1500, kills=3)

    def test_long(self) -> None:
        """10,000 messages, two dozen rounds, a new seed each time."""
        seed = int(os.environ.get("AMQPROUTE_CRASH_SEED") or random.SystemRandom().randrange(10**6))
        self.crash(seed, messages=10_000, kills=24)

    test_long.timeout = 900  # type: ignore[attr-defined]
    if not IS_LONG:
        test_long.skip = "long: make test-crash"  # type: ignore[attr-defined]
