# SPDX-License-Identifier: Apache-2.0
"""A persistent publisher while brokers are killed, and an exact count.

A publisher at alpha sends again, under the same message-id, what had no outcome when its
connection broke: alpha may have taken those already, and such a copy of the publisher's own making
is the only thing that may be in beta's queue twice. The two can be told apart, for each sending has
its time in the body: no *sending* may ever come twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from amqproute.cli.command_error import ClientError
from amqproute.tools.daemon_pair import QUEUE, DaemonPair, DaemonProcess
from amqproute.tools.load_worker import CREDIT, Connected, LoadManagement, MessageNumbers, Publisher
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.engine_events import DeliveriesReceived
from tests.support.patience import PATIENCE

PAUSE_SECONDS = 0.3
WINDOW = 50
"""Messages without an outcome: as many are in doubt when alpha is killed."""


class Stuck(Exception):
    """Nothing has moved for `PATIENCE`."""


class Course:
    """One run: a pair, a publisher that does not give up, and somebody with a gun.

    Attributes:
        sent_again: how often a number was sent again because its outcome was unknown.
        kills: which sides were killed, in order.
    """

    def __init__(self, pair: DaemonPair, messages: int, chance: random.Random) -> None:
        self.numbering = MessageNumbers(messages, 64, f"{QUEUE}@{pair.beta.domain}")
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
        """The number of accepted messages, over all connections."""
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
        """Publish some more, until this many of them, or all, have been accepted.

        Raises:
            Stuck: they were not in time.
        """
        self._take(share)
        goal = self.numbering.count if stop_after is None else self.accepted + stop_after
        # Not more than there are: a goal beyond would never be reached.
        goal = min(goal, self.numbering.count - len(self._later))
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self._turn()
            if self.accepted >= goal:
                return
        raise Stuck(f"{self.accepted} messages were accepted, and no more")

    def turn_for(self, share: int, seconds: float) -> None:
        """Publish some more for a while, whatever becomes of it."""
        self._take(share)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._turn()

    def wait_relayed(self) -> None:
        """Wait until alpha has nothing left.

        Raises:
            Stuck: it has, for too long.
        """
        with Connected(self._pair.alpha.unix, "count") as connected:
            alpha = LoadManagement(connected)
            wait(lambda: not any(row["depth"] for row in alpha.rows("relay-queue")))

    def _take(self, share: int) -> None:
        self._due += self._later[:share]
        del self._later[:share]

    def _turn(self) -> None:
        try:
            connected, publisher = self.connect()
            # What was released was not taken: to send it again makes no copy.
            publisher.pending += [*self._due, *publisher.unlucky]
            self._due.clear()
            publisher.unlucky.clear()
            publisher.offer()
            connected.turn(0.005)
        except ClientError:
            self.connection_lost()

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

    def kill(self, victim: DaemonProcess) -> None:
        self.kills.append(victim.name)
        victim.kill()

    def pause(self) -> None:
        """Let the other side continue alone for a moment: the moment is what is random here."""
        time.sleep(self._chance.uniform(0, PAUSE_SECONDS))

    def count(self) -> Arrivals:
        """Take everything from beta once alpha has nothing left, and count it."""
        self.wait_relayed()
        with Connected(self._pair.beta.unix, "count") as connected:
            beta = LoadManagement(connected)
            arrivals = Arrivals(connected, self.numbering)
            wait(lambda: not beta.row("queue", QUEUE)["depth"])
            return arrivals


class Arrivals:
    """The contents of beta's queue.

    Attributes:
        sendings: how often each sending of a number came.
    """

    def __init__(self, connected: Connected, numbering: MessageNumbers) -> None:
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
        """The number of arrivals of each message number."""
        found: Counter[int] = Counter()
        for (number, _), count in self.sendings.items():
            found[number] += count
        return found

    @property
    def copies(self) -> int:
        """The number of repeated arrivals."""
        numbers = self.numbers
        return numbers.total() - len(numbers)


class Tally:
    """The result of a course, in figures.

    Attributes:
        lost: numbers that did not come.
        twice: sendings that came more than once.
        strange: numbers that nobody sent.
        extra: numbers of which more copies came than the publisher made.
        copies: how many copies came that the publisher itself had made.
    """

    def __init__(self, course: Course, arrivals: Arrivals) -> None:
        messages = course.numbering.count
        numbers = arrivals.numbers
        self.total = numbers.total()
        self.copies = arrivals.copies
        self.lost = sorted(set(range(messages)) - set(numbers))
        self.twice = [sending for sending, count in arrivals.sendings.items() if count > 1]
        self.strange = [number for number in numbers if number >= messages]
        # More copies of a number than sendings of it would be of somebody else's making.
        self.extra = [
            each for each, count in numbers.items() if count > 1 + course.sent_again[each]
        ]

    @property
    def wrong(self) -> dict[str, tuple[int, Sequence[object]]]:
        """Faults by kind, with examples; empty if there are none."""
        kinds: dict[str, Sequence[object]] = {
            "lost": self.lost,
            "twice": self.twice,
            "strange": self.strange,
            "extra": self.extra,
        }
        return {name: (len(each), each[:5]) for name, each in kinds.items() if each}


def wait(is_true: Callable[[], bool]) -> None:
    """Look again and again: it happens in other processes, and nobody tells."""
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > deadline:
            raise Stuck("alpha's relay queue does not become empty")
        time.sleep(0.02)
