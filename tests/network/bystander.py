# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.network.bystander ARGUMENTS``: a well-behaved client beside an attack.

A process of its own, so that what it measures is the broker and not the load on its own program.
On one connection it publishes small durable messages one at a time, waits for each outcome, and
consumes them again. Besides it logs in again now and then and publishes once, and posts once in a
transaction. It prints counts and times as one JSON object. The argument is a JSON object with
the fields of `Visit`.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amqproute.wire import sasl_mechanisms
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.types import Described, ULong
from tests.integration.clients import Refused, Wire, message

__all__ = ["Measured", "Visit", "percentile"]

BODY = b"x" * 200


@dataclass(frozen=True)
class Visit:
    """The client's requests.

    Attributes:
        port: where it connects, from 127.0.0.1.
        user: it logs in as.
        password: of the user.
        node: it publishes to and consumes from.
        seconds: it takes.
        pause: seconds between two messages.
        entry_pause: seconds between two log-ins, and between two transactions.
        patience: seconds after which a request counts as failed.
    """

    port: int
    user: str
    password: str
    node: str
    seconds: float
    pause: float = 0.02
    entry_pause: float = 2.0
    patience: float = 20.0


@dataclass
class Measured:
    """The result of one kind of request.

    Attributes:
        seconds: each took that succeeded.
        failures: what was said, by how often.
    """

    seconds: list[float] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)

    def time(self, request: Callable[[], object]) -> bool:
        """Make a request; return whether it succeeded."""
        started = time.monotonic()
        try:
            request()
        except (OSError, Refused, AssertionError) as error:
            words = f"{type(error).__name__}: {error}"[:200]
            self.failures[words] = self.failures.get(words, 0) + 1
            return False
        self.seconds.append(time.monotonic() - started)
        return True

    def summary(self) -> dict[str, Any]:
        """Return counts, and times in milliseconds."""
        return {
            "count": len(self.seconds),
            "p50": round(1000 * percentile(self.seconds, 0.5), 1),
            "p99": round(1000 * percentile(self.seconds, 0.99), 1),
            "max": round(1000 * max(self.seconds, default=0.0), 1),
            "failures": self.failures,
        }


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that so large a part of the values do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


class _Login:
    """SCRAM-SHA-256 with a password."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def choose(self, offered: Sequence[str]) -> sasl_mechanisms.SaslClient | None:
        """See `ClientAuthority`."""
        if sasl_mechanisms.SCRAM_SHA_256 not in offered:
            return None
        return sasl_mechanisms.client_mechanism(
            sasl_mechanisms.SCRAM_SHA_256,
            username=self._visit.user,
            password=self._visit.password,
            nonce=secrets.token_urlsafe(18),
        )


class Bystander:
    """The client; see the module.

    Attributes:
        publishing: messages on the standing connection.
        entering: connections with log-in, attach, one message and its outcome.
        posting: transactions with one message.
        received: messages consumed.
    """

    def __init__(self, visit: Visit) -> None:
        self.publishing = Measured()
        self.entering = Measured()
        self.posting = Measured()
        self.received = 0
        self._visit = visit
        self._number = 0
        self._wire: Wire | None = None
        self._sender: Link | None = None
        self._coordinator: Link | None = None

    def run(self) -> None:
        """Work until the time is over; a lost connection is made again."""
        end = time.monotonic() + self._visit.seconds
        entry = time.monotonic()
        while time.monotonic() < end:
            if self._wire is None and not self.entering.time(self._connect):
                time.sleep(self._visit.pause)
                continue
            if not self.publishing.time(self._publish):
                self._lose()
                continue
            if time.monotonic() >= entry:
                entry = time.monotonic() + self._visit.entry_pause
                self.entering.time(self._enter)
                if not self.posting.time(self._post):
                    self._lose()
            time.sleep(self._visit.pause)
        self._lose()

    def _open(self) -> Wire:
        return Wire(
            self._visit.port,
            container=f"bystander-{secrets.token_hex(4)}",
            sasl_client=_Login(self._visit),
        )

    def _connect(self) -> None:
        wire = self._open()
        try:
            self._sender = wire.attach("sender", self._visit.node)
            self._coordinator = wire.attach(
                "sender", None, target=spec.Coordinator(), name="coordinator"
            )
            receiver = wire.attach("receiver", self._visit.node)
            receiver.flow(500)
            wire.flush()
        except BaseException:
            wire.socket.close()
            raise
        self._wire = wire

    def _lose(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
        self._wire = None

    def _publish(self) -> None:
        assert self._wire is not None
        assert self._sender is not None
        self._send(self._wire, self._sender, message(BODY))

    def _enter(self) -> None:
        with self._open() as wire:
            self._send(wire, wire.attach("sender", self._visit.node), message(BODY))

    def _post(self) -> None:
        wire, sender, coordinator = self._wire, self._sender, self._coordinator
        assert wire is not None
        assert sender is not None
        assert coordinator is not None
        declared = self._send(wire, coordinator, _control(spec.Declare()), spec.Declared)
        state = spec.TransactionalState(txn_id=declared.txn_id)
        self._send(wire, sender, message(BODY), spec.TransactionalState, state)
        self._send(wire, coordinator, _control(spec.Discharge(txn_id=declared.txn_id)))

    def _send(
        self,
        wire: Wire,
        link: Link,
        payload: bytes,
        outcome: type[Any] = spec.Accepted,
        state: Any = None,
    ) -> Any:
        """Send a message once there is credit, and wait for its outcome.

        Raises:
            AssertionError: the outcome is another one.
            TimeoutError: nothing came in time.
            Refused: the link, the session or the connection ended.
        """
        end = time.monotonic() + self._visit.patience
        while link.sendable < 1:
            self._look(wire, end)
        self._number += 1
        tag = self._number.to_bytes(8, "big")
        link.send((payload,), tag, **({} if state is None else {"state": state}))
        while True:
            for event in self._look(wire, end):
                if type(event) is ev.DeliveriesUpdated and any(
                    each.tag == tag for each in event.deliveries
                ):
                    assert type(event.state) is outcome, event.state
                    return event.state

    def _look(self, wire: Wire, end: float) -> list[Any]:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        events = wire.read(left)
        for event in events:
            if type(event) is ev.DeliveriesReceived:
                self.received += len(event.deliveries)
                wire.session.settle(event.deliveries, spec.Accepted(), True)
                if event.link.credit < 250:
                    event.link.flow(500)
            elif type(event) in (ev.LinkDetached, ev.SessionEnded, ev.ConnectionClosed):
                raise Refused(event)
        wire.flush()
        return events


def _control(body: Any) -> bytes:
    return codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), body))


def main() -> None:
    """Visit, and print."""
    fields = json.loads(sys.argv[1])
    known = {each.name for each in dataclasses.fields(Visit)}
    bystander = Bystander(Visit(**{name: fields[name] for name in fields if name in known}))
    bystander.run()
    print(
        json.dumps(
            {
                "publish": bystander.publishing.summary(),
                "enter": bystander.entering.summary(),
                "post": bystander.posting.summary(),
                "received": bystander.received,
            }
        )
    )


if __name__ == "__main__":
    main()
