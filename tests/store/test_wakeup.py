# SPDX-License-Identifier: Apache-2.0
"""The wake-up between the writer's thread and a real reactor."""

from __future__ import annotations

import threading
from unittest import skipUnless

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from amqproute.store import wakeup


@skipUnless(wakeup.is_fit(reactor), "eventfd(2) is Linux's")
class BellTests(TestCase):
    """`amqproute.store.wakeup.Wakeup`."""

    def test_rings(self) -> None:
        """Rings of a thread are heard in the reactor's, many at once as one."""
        heard: list[threading.Thread] = []
        done: Deferred[None] = Deferred()

        def hear() -> None:
            heard.append(threading.current_thread())
            done.callback(None)

        one = wakeup.Wakeup(reactor, hear)
        self.addCleanup(one.close)
        thread = threading.Thread(target=lambda: [one.ring() for _ in range(5)])
        thread.start()
        thread.join()
        self.assertEqual(heard, [])
        return done.addCallback(  # type: ignore[return-value] # trial takes Deferreds
            lambda _: self.assertEqual(heard, [threading.main_thread()])
        )

    def test_goes_on_after_a_fault(self) -> None:
        """An exception is logged, and the next ring is heard."""
        done: Deferred[None] = Deferred()
        calls: list[int] = []

        def hear() -> None:
            calls.append(1)
            if len(calls) == 1:
                one.ring()
                raise ZeroDivisionError("a bug")
            done.callback(None)

        one = wakeup.Wakeup(reactor, hear)
        self.addCleanup(one.close)
        one.ring()

        def check(_: None) -> None:
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

        return done.addCallback(check)  # type: ignore[return-value] # trial takes Deferreds

    def test_closed(self) -> None:
        """Closing takes it from the reactor, and can be repeated."""
        one = wakeup.Wakeup(reactor, list)
        one.close()
        one.close()
        self.assertNotIn(one, reactor.getReaders())  # type: ignore[attr-defined]
