# SPDX-License-Identifier: Apache-2.0
"""Suspended links: their state, its lifetime, and restarts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreError
from amqproute.frontends.amqp10.suspended_links import (
    RESOLVED_NOTES,
    LinkKey,
    ParkedDeliveries,
    ResolvedDeliveries,
    RetentionPolicy,
    SuspendedLink,
    SuspendedLinks,
    note_key,
    read_note_key,
    retention_of,
    without_words,
)
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.values import EXACTLY_ONCE_CAPABILITY
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.frontends.test_receiver_link import InboundCase
from tests.support.fakes import message
from tests.support.memory_broker import Client

EXACTLY_ONCE: dict[str, Any] = {
    "properties": {Symbol("delivery-mode"): Symbol("exactly-once")},
    "desired_capabilities": (EXACTLY_ONCE_CAPABILITY,),
}


class RetentionTests(SynchronousTestCase):
    """The lifetime of a terminus beyond its link."""

    def test_asked(self) -> None:
        """The requested timeout is in force, up to the longest."""
        for policy, seconds, expected in (
            ("session-end", 0, ("session-end", 0)),
            ("link-detach", 5, ("link-detach", 5)),
            ("connection-close", 50, ("connection-close", 20)),
            ("never", 0, ("connection-close", 20)),
        ):
            asked = spec.Target(expiry_policy=Symbol(policy), timeout=seconds)
            found = retention_of(asked, 20)
            self.assertEqual((found.policy, found.seconds, found.durable), (*expected, False))

    def test_exactly_once(self) -> None:
        """Exactly-once needs more than the default, and a restart may not end it."""
        found = retention_of(spec.Target(), 20, True)
        self.assertEqual(found, RetentionPolicy(spec.EXPIRE_CONNECTION_CLOSE, 20, True))
        asked = spec.Target(expiry_policy=spec.EXPIRE_LINK_DETACH, timeout=5)
        self.assertEqual(
            retention_of(asked, 20, True), RetentionPolicy(spec.EXPIRE_LINK_DETACH, 5, True)
        )

    def test_momentary(self) -> None:
        """Only link-detach without a timeout keeps nothing."""
        self.assertTrue(RetentionPolicy(spec.EXPIRE_LINK_DETACH).is_momentary)
        self.assertFalse(RetentionPolicy(spec.EXPIRE_LINK_DETACH, 1).is_momentary)
        self.assertFalse(RetentionPolicy().is_momentary)


class NoteTests(SynchronousTestCase):
    """The store's names of the outcomes of deliveries."""

    @given(st.tuples(st.text(), st.text(), st.text(), st.text()), st.binary(max_size=32))
    def test_there_and_back(self, link: LinkKey, tag: bytes) -> None:
        """Any link and any tag have a name of their own."""
        self.assertEqual(read_note_key(note_key(link, tag)), (link, tag))

    @given(st.text())
    def test_nonsense(self, text: str) -> None:
        """Any other name is a ValueError, and nothing else."""
        try:
            read_note_key(text)
        except ValueError:
            return

    def test_told(self) -> None:
        """Outcomes go into maps without what may be long."""
        error = spec.Error(condition="x:y", description="d" * 1000)
        bare = without_words(spec.Rejected(error=error))
        self.assertEqual(bare.error, spec.Error(condition="x:y"))
        error = spec.Error(condition="x" * 500)
        self.assertEqual(without_words(spec.Rejected(error=error)), spec.Rejected())
        annotations = {Symbol("x-opt-a"): "b" * 500}
        modified = spec.Modified(delivery_failed=True, message_annotations=annotations)
        self.assertEqual(without_words(modified), spec.Modified(delivery_failed=True))
        self.assertIsNone(without_words(None))


class _Batch:
    """Counts commits, and keeps notes."""

    def __init__(self, world: BookTests) -> None:
        self.transaction = self
        self._world = world

    def note(self, kind: str, key: str, value: bytes | None) -> None:
        self._world.notes.append((key, value))

    def commit(self, patient: bool = False) -> Any:
        return self

    def addErrback(self, _: Any) -> None:
        self._world.commits += 1


class BookTests(SynchronousTestCase):
    """The book of all suspended links."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.notes: list[tuple[str, bytes | None]] = []
        self.commits = 0

    def book(self, **limits: int) -> SuspendedLinks:
        """Return a new one."""
        begin: Any = self._begin
        self.links = SuspendedLinks(self.clock, FrontendLimits(**limits), begin)
        return self.links

    def _begin(self) -> _Batch:
        return _Batch(self)

    def add(
        self, name: str, principal: str = "a", count: int = 0, terms: RetentionPolicy | None = None
    ) -> SuspendedLink:
        """Suspend a publisher's link with so many outcomes."""
        key = (principal, "c", name, "receiver")
        taken = ResolvedDeliveries()
        taken.outcomes = {b"%d" % number: spec.Accepted() for number in range(count)}
        terms = terms or RetentionPolicy(spec.EXPIRE_LINK_DETACH, 60)
        link = SuspendedLink(key, spec.Target(), terms, taken, "connection", "session")
        self.links.add(link)
        return link

    def names(self) -> set[str]:
        """Return the names of those that are kept."""
        return {key[2] for key in self.links._links}

    def test_timers(self) -> None:
        """One timer serves all; each link ends at its time."""
        self.book()
        for seconds in (30, 10, 20):
            self.add(f"{seconds}", terms=RetentionPolicy(spec.EXPIRE_LINK_DETACH, seconds))
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        for seconds, left in ((9, 3), (2, 2), (10, 1), (10, 0)):
            self.clock.advance(seconds)
            self.assertEqual(len(self.links), left)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_taken_back(self) -> None:
        """A link that is taken back does not expire."""
        self.book()
        link = self.add("x", count=3)
        self.assertEqual(self.links.deliveries, 3)
        self.assertIs(self.links.take(link.key), link)
        self.assertEqual((self.links.deliveries, self.commits), (0, 0))
        self.clock.advance(100)
        self.assertEqual(self.commits, 0)
        self.assertIsNone(self.links.take(link.key))

    def test_session_and_connection(self) -> None:
        """The policies start the timers where they say."""
        self.book()
        for policy in ("link-detach", "session-end", "connection-close"):
            self.add(policy, terms=RetentionPolicy(Symbol(policy), 10))
        self.clock.advance(12)
        self.assertEqual(self.names(), {"session-end", "connection-close"})
        self.links.session_ended("connection", "another session")
        self.links.session_ended("another connection", "session")
        self.links.session_ended("connection", "session")
        self.clock.advance(12)
        self.assertEqual(self.names(), {"connection-close"})
        self.links.connection_lost("connection")
        self.clock.advance(12)
        self.assertEqual(self.names(), set())

    def test_connection_ends_all(self) -> None:
        """With the connection the sessions are gone, whether anybody says so or not."""
        self.book()
        self.add("x", terms=RetentionPolicy(spec.EXPIRE_SESSION_END, 0))
        self.links.connection_lost("connection")
        self.assertEqual(self.names(), set())

    def test_own_first(self) -> None:
        """A principal with too much state loses its own oldest link, not that of another."""
        self.book(suspended_deliveries=5)
        self.add("of b", "b", 2)
        self.add("old", "a", 2)
        self.add("new", "a", 2)
        self.assertEqual(self.names(), {"of b", "new"})
        self.add("large", "c", 9)
        self.assertEqual(self.names(), {"of b", "new"})

    def test_largest_first(self) -> None:
        """A principal that has used all room makes room for others, even for new ones."""
        for limit in ("suspended_deliveries", "suspended_links"):
            self.book(**{limit: 6})
            self.add("first", "b", 1)
            for number in range(9):
                self.add(f"{number}", "a", 1)
            self.add("of c", "c", 1)
            self.add("of d", "d", 1)
            kept = {"first", "of c", "of d", "6", "7", "8"}
            self.assertEqual(self.names(), kept, limit)
        self.book(suspended_bytes=10_000)
        self.add("first", "b", 2)
        for number in range(30):
            self.add(f"{number}", "a", 2)
        self.add("of c", "c", 2)
        self.assertLessEqual({"first", "29", "of c"}, self.names())
        self.assertLessEqual(self.links.octets, 10_000)

    def test_octets(self) -> None:
        """Octets count as well."""
        self.book(suspended_bytes=1500)  # names are some 300 for each
        self.add("old", count=2)
        self.add("new", count=3)
        self.assertEqual(self.names(), {"new"})

    def test_names(self) -> None:
        """So do the names, however little is kept under them."""
        self.book(suspended_bytes=10_000)
        self.add("short")
        for number in range(5):
            self.add(f"{number}" + 3000 * "n")
        self.assertEqual({name[0] for name in self.names()}, {"3", "4"})
        self.assertLess(self.links.octets, 10_000)

    def test_rows(self) -> None:
        """An operator sees who keeps what, and for how long."""
        self.book()
        self.add("x", count=2, terms=RetentionPolicy(spec.EXPIRE_LINK_DETACH, 30))
        self.add("y", terms=RetentionPolicy(spec.EXPIRE_CONNECTION_CLOSE, 30))
        self.clock.advance(10)
        first, second = (make(name) for name, make in self.links.index())
        self.assertEqual((first["name"], first["kind"], first["deliveries"]), ("x", "publisher", 2))
        self.assertEqual((first["expires-in"], second["expires-in"]), (20, -1))
        self.assertEqual(list(self.links.index("shop")), [])
        (name, make), _ = self.links.index("/")
        self.clock.advance(20)
        self.assertRaises(KeyError, make, name)

    def test_again_and_again(self) -> None:
        """A link that comes and goes leaves one timer, and nothing in the indexes."""
        self.book()
        for _ in range(100):
            link = self.add("x")
            self.clock.advance(1)
            self.links.take(link.key)
        self.assertLessEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(100)
        self.assertEqual((self.links._due, self.links._of, self.links._on), ([], {}, {}))

    def test_stop(self) -> None:
        """Stopped, it has no timer."""
        self.book()
        self.add("x")
        self.links.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unreadable_notes(self) -> None:
        """Unreadable notes are logged, and do not keep the daemon from starting."""
        links = self.book()
        links.log = _Silent()  # type: ignore[assignment]
        good = note_key(("a", "c", "x", "receiver"), b"t")
        links.recovered({"nonsense": b"", '["a"]': b"\x40", good: b"\xff"})
        self.assertEqual(len(links), 0)
        self.assertEqual(links.log.errors, 3)  # type: ignore[attr-defined]

    def test_same_name(self) -> None:
        """A link that is suspended a second time takes the place of the first."""
        self.book()
        self.add("x", count=2)
        self.add("x", count=1)
        self.assertEqual((len(self.links), self.links.deliveries, self.commits), (1, 1, 1))

    def test_parked(self) -> None:
        """Parked entries are settled with the default outcome at the expiry, once."""
        source = _Source()
        parked = ParkedDeliveries(source, spec.Released(), None, 0)
        parked.entries = {b"1": _Entry(), b"2": _Entry()}  # type: ignore[dict-item]
        self.book()
        key = ("a", "c", "x", "sender")
        terms = RetentionPolicy(spec.EXPIRE_LINK_DETACH, 5)
        self.links.add(SuspendedLink(key, spec.Source(), terms, parked, "connection", "session"))
        self.assertTrue(parked.is_waiting)
        self.clock.advance(7)
        self.assertEqual((source.settled, source.dispatched), (2, 1))
        self.assertFalse(parked.is_waiting)


class _Silent:
    def __init__(self) -> None:
        self.errors = 0

    def error(self, text: str, **fields: Any) -> None:
        self.errors += 1


class _Entry:
    class message:
        encoded = b"12345"


class _Source:
    def __init__(self) -> None:
        self.settled = self.dispatched = 0

    def settle(self, entries: Any, outcome: Any, batch: Any, consumer: Any) -> None:
        self.settled += len(entries)

    def dispatch(self) -> None:
        self.dispatched += 1


class RestartTests(InboundCase):
    """Exactly-once holds over a restart (P-16, K-23)."""

    def hush(self) -> None:
        """The client does not confirm what the broker says from now on."""
        self.client.session.settle = lambda *_: None

    def lose(self) -> None:
        """The connection breaks."""
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()

    def break_off(self) -> None:
        """A message is taken; its sender has not confirmed that when the connection breaks."""
        link = self.client.sender("q", **EXACTLY_ONCE)
        self.run_now()
        self.hush()
        self.client.send(link, message(b"1"))
        self.run_now()
        self.lose()

    def notes(self) -> dict[str, bytes]:
        """Return what stands in the store."""
        return dict(self.house.store.recovery().notes.get(RESOLVED_NOTES, {}))

    def test_restart(self) -> None:
        """The sender learns from the new process what the old one has taken; then it is gone."""
        self.break_off()
        self.assertEqual(len(self.notes()), 1)
        self.build(store=self.house.store)
        link = self.client.sender("q", **EXACTLY_ONCE, unsettled={b"0": None, b"1": None})
        self.run_now()
        self.assertEqual(link.remote_attach.unsettled, {b"0": spec.Accepted()})
        link.send((b"",), b"0", resume=True, settled=True, state=spec.Accepted())
        link.send((message(b"2").encoded,), b"1")
        self.client.flush()
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [b"1", b"2"])
        self.assertEqual(self.notes(), {})

    def test_confirmed(self) -> None:
        """Confirmed outcomes do not stay in the store."""
        link = self.client.sender("q", **EXACTLY_ONCE)
        self.run_now()
        self.client.send(link, message(b"1"), message(b"2"))
        self.run_now()
        self.assertEqual(self.house.depth("q"), 2)
        self.assertEqual(self.notes(), {})

    def test_downgraded(self) -> None:
        """Notes in the store go with the settlement, even on a link that asks for less."""
        self.break_off()
        self.client = self.house.client()
        self.run_now()
        link = self.client.sender("q", unsettled={b"0": None})
        self.run_now()
        self.assertEqual(link.remote_attach.unsettled, {b"0": spec.Accepted()})
        link.send((b"",), b"0", resume=True, settled=True, state=spec.Accepted())
        self.client.flush()
        self.run_now()
        self.assertEqual(self.notes(), {})

    def test_closed(self) -> None:
        """A link that is closed leaves nothing behind, not even what was under way."""
        link = self.client.sender("q", **EXACTLY_ONCE)
        self.run_now()
        self.hush()
        self.client.send(link, message(b"1"))
        link.detach()
        self.client.flush()
        self.run_now()
        self.assertEqual(self.house.depth("q"), 1)
        self.assertEqual(self.notes(), {})

    def test_expired(self) -> None:
        """After the longest time nobody asks any more, also after a restart."""
        self.break_off()
        self.build(store=self.house.store)
        self.clock.advance(FrontendLimits().suspended_seconds + 2)
        self.run_now()
        self.assertEqual((self.notes(), self.house.depth("q")), ({}, 1))

    def test_store_fails(self) -> None:
        """Deliveries that were not stored are not known either."""
        link = self.client.sender("q", **EXACTLY_ONCE)
        self.run_now()
        self.house.store.is_failing = True
        self.client.send(link, message(b"1"))
        self.run_now()
        self.assertGreaterEqual(len(self.flushLoggedErrors(StoreError)), 1)
        self.house.store.is_failing = False
        self.assertEqual(self.notes(), {})
        self.client: Client = self.house.client()
        self.run_now()
        link = self.client.sender("q", **EXACTLY_ONCE, unsettled={b"0": None})
        self.run_now()
        self.assertFalse(link.remote_attach.unsettled)

    def test_parked_at_a_restart(self) -> None:
        """Parked entries are available after a restart, as the termini have announced."""
        link = self.client.sender("q")
        self.run_now()
        self.client.send(link, message(b"1", durable=True))
        source = spec.Source(address="q", durable=2, expiry_policy=spec.EXPIRE_NEVER)
        receiver = self.client.receiver(None, 5, source=source)
        self.run_now()
        self.assertEqual(receiver.source.durable, 0)
        self.assertEqual(self.client.bodies(), [b"1"])
        self.lose()
        self.assertEqual(self.house.broker.nodes["q"].acquired, 1)
        self.build(store=self.house.store)
        self.client.receiver("q", 5)
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1"])
