# SPDX-License-Identifier: Apache-2.0
"""Expiry of receipts, and the clock by which they age."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.alarm import Alarm
from amqproute.broker.receipts import Receipts
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import Apply
from amqproute.interfaces import IStore

__all__ = ["SWEEP_SECONDS", "ReceiptClock", "ReceiptExpiry"]

SWEEP_SECONDS: Final = 6 * 3600.0
"""Seconds between two searches for expired receipts."""

log = Logger()


class ReceiptClock:
    """The time scale of receipts: it advances only while the daemon runs.

    The wall clock sets it once, before there is any receipt. So no start with a wrong clock lets a
    receipt expire early.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._offset_ms = 0

    def begin(self, newest_ms: int) -> None:
        """Continue from the newest receipt: after a restart the wall clock is no evidence."""
        self._offset_ms = newest_ms - round(self._clock.seconds() * 1000)

    def now_ms(self) -> int:
        """Return the time, ms."""
        passed_ms: int = round(self._clock.seconds() * 1000)
        return self._offset_ms + passed_ms


class ReceiptExpiry:
    """Periodic removal of old receipts, of peers that have not connected again.

    Args:
        store: holds the receipts.
        receipts: the receipts in memory.
        clock: the clock for the timer.
        times: the time scale of receipts.
        lifetime: seconds, see `relay.receipt-lifetime`.
    """

    def __init__(
        self,
        store: IStore,
        receipts: Receipts,
        clock: IReactorTime,
        times: ReceiptClock,
        lifetime: float,
    ) -> None:
        self.lifetime = lifetime
        self._store = store
        self._receipts = receipts
        self._clock = clock
        self._times = times
        self._alarm = Alarm(clock)

    def sweep(self) -> None:
        """Remove old receipts now, and again later."""
        transaction = self._store.begin()
        transaction.forget_received_before(self._times.now_ms() - int(self.lifetime * 1000))
        transaction.commit().addErrback(_log_failure)
        self._receipts.sweep(self._clock.seconds(), self.lifetime)
        self._alarm.set(SWEEP_SECONDS, self.sweep)

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`."""

        def apply() -> None:
            self.lifetime = config.relay.receipt_lifetime

        return apply

    def stop(self) -> None:
        """Stop the timer."""
        self._alarm.stop()


def _log_failure(failure: Failure) -> None:
    log.failure("removal of old receipts failed", failure)
