# SPDX-License-Identifier: Apache-2.0
"""Places at a listener while strangers take all they can get."""

from __future__ import annotations

from collections.abc import Hashable
from ipaddress import ip_network
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net import accept_policy
from amqproute.net.accept_policy import (
    LEAST_SECONDS,
    MEMORY_SECONDS,
    RESERVED,
    AcceptPolicy,
    AcceptTerms,
    Admit,
    CloseFirst,
    ListenerPlaces,
    PeerStanding,
    Refuse,
    contains,
)

TERMS: Final = AcceptTerms(100, 20, 40)


class PolicyTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.now = 1000.0
        self.policy = AcceptPolicy(1000)
        self.places = self.policy.listener(TERMS)
        self.number = 0

    def come(self, host: str, places: ListenerPlaces | None = None) -> Hashable | None:
        """Let somebody connect; return the key of the connection, or None if it was refused."""
        places = self.places if places is None else places
        decision = places.decide(host, self.now)
        if isinstance(decision, Refuse):
            return None
        if isinstance(decision, CloseFirst):
            self.policy.leave(decision.victim)
        self.number += 1
        places.enter(self.number, host, self.now)
        return self.number

    def log_in(self, host: str, standing: PeerStanding = PeerStanding.KNOWN) -> Hashable | None:
        key = self.come(host)
        if key is not None:
            self.places.authenticated(key, standing, self.now)
        return key

    def test_one_address(self) -> None:
        """A thousand mute connections of one address, renewed all the time, are its share."""
        for turn in range(1000):
            self.come("127.0.0.1")
            self.now += 0.01
            if turn % 100 == 0:
                self.assertIsNotNone(self.log_in(f"127.0.0.{2 + turn // 100}"))
        self.assertEqual(self.places.mute, TERMS.per_address)
        self.assertEqual(len(self.places), TERMS.per_address + 10)

    def test_renewal_within_a_share(self) -> None:
        """The oldest of an address makes room for its newest, once it has had its time."""
        first = self.come("192.0.2.1")
        for _ in range(TERMS.per_address - 1):
            self.assertIsNotNone(self.come("192.0.2.1"))
        self.assertEqual(self.places.decide("192.0.2.1", self.now), Refuse("20 for 192.0.2.1"))
        self.now += LEAST_SECONDS
        self.assertEqual(
            self.places.decide("192.0.2.1", self.now), CloseFirst(first, "20 for 192.0.2.1")
        )
        self.assertIsNotNone(self.come("192.0.2.1"))
        self.assertIsNone(self.come("192.0.2.1"), "not all of them in a burst")
        self.now += 1.01 * LEAST_SECONDS / TERMS.per_address
        self.assertIsNotNone(self.come("192.0.2.1"))

    def test_other_terms(self) -> None:
        """Other terms hold for new connections, and nobody goes for them."""
        for _ in range(20):
            self.come("192.0.2.1")
        self.places.adopt(AcceptTerms(100, 5, 40, ((ip_network("192.0.2.1/32"), 30),)))
        for _ in range(20):
            self.come("192.0.2.1")
        self.assertEqual(self.places.mute, 30)
        self.places.adopt(AcceptTerms(100, 5, 40))
        self.assertEqual(len(self.places), 30)
        self.assertIsNone(self.come("192.0.2.1"))
        for _ in range(10):
            self.come("203.0.113.1")
        self.assertEqual(self.places.mute, 35)

    def test_networks(self) -> None:
        """All addresses of an IPv4 /24, of an IPv6 /64 and of a /48 are together in one share."""
        for number in range(255):
            self.come(f"192.0.2.{number}")
        self.assertEqual(self.places.mute, TERMS.per_network)
        for number in range(255):
            self.come(f"2001:db8:1:1::{number:x}")
        self.assertEqual(self.places.mute, TERMS.per_network + TERMS.per_address)
        for number in range(255):
            self.come(f"2001:db8:1:{number:x}::1")
        self.assertEqual(self.places.mute, 80)

    def test_mapped(self) -> None:
        """An IPv4 address is the same behind an IPv6 socket."""
        for _ in range(TERMS.per_address):
            self.come("192.0.2.1")
        self.assertIsNone(self.come("::ffff:192.0.2.1"))

    def test_many_networks(self) -> None:
        """Strangers from many networks fill what is not kept; a newcomer's place is taken back
        from those with most, and at once."""
        for turn in range(1000):
            self.come(f"198.51.{turn % 5}.1")
        self.assertEqual(len(self.places), 80)
        for number in range(16):
            self.assertIsNotNone(self.come(f"203.0.{number}.1"), number)
        self.assertIsNone(self.come("198.51.1.1"))
        self.assertEqual(len(self.places), 80)

    def test_lone_strangers(self) -> None:
        """Among single connections the oldest is closed after its time, and not before."""
        first = self.come("198.51.0.1")
        for number in range(1, 80):
            self.come(f"198.51.{number}.1")
        self.assertIsNone(self.come("203.0.113.1"))
        self.now += LEAST_SECONDS
        self.assertEqual(
            self.places.decide("203.0.113.1", self.now), CloseFirst(first, "100 at this listener")
        )

    def test_kept_places(self) -> None:
        """Logged-in strangers leave places to known addresses, and those some to brokers."""
        known = self.log_in("192.0.2.1")
        broker = self.log_in("192.0.2.2", PeerStanding.BROKER)
        for key in (known, broker):
            self.policy.leave(key)
        while self.log_in(f"198.51.{self.number % 100}.{self.number}") is not None:
            pass
        self.assertEqual(len(self.places), 80)
        while self.log_in("192.0.2.1") is not None:
            pass
        self.assertEqual(len(self.places), 90)
        while self.log_in("192.0.2.2") is not None:
            pass
        self.assertEqual(len(self.places), 100)
        self.assertIsNone(self.come(""))

    def test_known_address_beside_a_flood(self) -> None:
        """A known address is not held responsible for its network."""
        self.policy.leave(self.log_in("192.0.2.7"))
        for _ in range(50):
            for number in range(100, 200):
                self.come(f"192.0.2.{number}")
        self.assertEqual(self.places.mute, TERMS.per_network)
        self.assertIsNotNone(self.come("192.0.2.7"))
        self.assertIsNone(self.come("192.0.2.8"))

    def test_known_address_among_lone_strangers(self) -> None:
        """A known address gets the place of a stranger who has one, and at once."""
        self.policy.leave(self.log_in("192.0.2.7"))
        first = self.come("198.51.0.1")
        for number in range(1, 80):
            self.come(f"198.51.{number}.1")
        for _ in range(10):
            self.assertIsNotNone(self.log_in("192.0.2.7"))
        limit = "100 at this listener"
        self.assertEqual(self.places.decide("192.0.2.7", self.now), CloseFirst(first, limit))
        self.assertEqual(self.places.decide("203.0.113.1", self.now), Refuse(limit))

    def test_memory(self) -> None:
        """Known addresses are forgotten with time, and the oldest when there are too many."""
        self.patch(accept_policy, "MOST_ADDRESSES", 10)
        self.log_in("192.0.2.200")
        self.assertIs(self.policy.standing("192.0.2.200", self.now), PeerStanding.KNOWN)
        broker = "192.0.2.201"
        self.log_in(broker, PeerStanding.BROKER)
        for number in range(10):
            self.log_in(f"192.0.2.{number}")
        self.assertIs(self.policy.standing("192.0.2.200", self.now), PeerStanding.STRANGER)
        self.assertIs(self.policy.standing("192.0.2.9", self.now), PeerStanding.KNOWN)
        self.assertIs(self.policy.standing(broker, self.now), PeerStanding.BROKER)
        self.assertIs(
            self.policy.standing("192.0.2.9", self.now + MEMORY_SECONDS), PeerStanding.STRANGER
        )

    def test_listed_networks(self) -> None:
        """A listed network has its own share; the narrowest listed one counts."""
        shares = ((ip_network("10.0.0.0/8"), 30), (ip_network("10.1.0.0/16"), 70))
        places = self.policy.listener(AcceptTerms(100, 20, 40, shares))
        for _ in range(100):
            self.come("10.1.2.3", places)
        self.assertEqual(len(places), 70)
        for number in range(100):
            self.come(f"10.2.2.{number}", places)
        self.assertEqual(len(places), 80)
        self.assertEqual(places.mute, 80)

    def test_listed_networks_are_as_full_as_their_part(self) -> None:
        """Room is made by who has taken most of its share, not by a large honest crowd."""
        shares = ((ip_network("10.0.0.0/8"), 400),)
        places = self.policy.listener(AcceptTerms(100, 20, 40, shares))
        for _ in range(50):
            self.come("10.1.2.3", places)
        theirs = {self.come(f"192.0.2.{number % 2}", places) for number in range(30)}
        decision = places.decide("203.0.113.1", self.now)
        assert isinstance(decision, CloseFirst), decision
        self.assertIn(decision.victim, theirs)

    def test_unix(self) -> None:
        """A client of this machine is admitted as long as a mute connection can make room."""
        for turn in range(1000):
            self.come(f"198.51.{turn % 50}.1")
        for _ in range(100):
            self.assertIsNotNone(self.come(""))
        self.assertEqual(len(self.places), 100)
        self.assertIsNone(self.come(""))

    def test_anonymous(self) -> None:
        """Anonymous clients are not known, and those of one network have half of the places."""
        for _ in range(200):
            self.log_in("192.0.2.1", PeerStanding.ANONYMOUS)
        self.assertEqual(len(self.places), 51)
        self.assertIs(self.policy.standing("192.0.2.1", self.now), PeerStanding.STRANGER)
        self.assertIsNotNone(self.log_in("203.0.113.1", PeerStanding.ANONYMOUS))
        self.policy.leave(1)
        self.policy.leave(2)
        self.assertIsNotNone(self.log_in("192.0.2.1", PeerStanding.ANONYMOUS))

    def test_all_listeners(self) -> None:
        """When all places of the daemon are taken, any listener's mute connection may be closed."""
        self.policy.limit = 30
        other = self.policy.listener(TERMS)
        for _ in range(20):
            self.come("192.0.2.1")
        for number in range(4):
            self.come(f"198.51.{number}.1", other)
        decision = other.decide("203.0.113.1", self.now)
        self.assertEqual(decision, CloseFirst(1, "30 in all"))
        self.assertIsNotNone(self.come("203.0.113.1", other))
        self.assertEqual((len(self.places), len(other), self.policy.count), (19, 5, 24))

    def arrive(self, user: str, places: ListenerPlaces | None = None) -> str | None:
        """Let a user in from somewhere and log in; return the share that is exceeded by it."""
        places = self.places if places is None else places
        host = f"198.{18 + self.number // 200}.{self.number % 200}.1"
        key = self.come(host, places)
        self.assertIsNotNone(key)
        return places.authenticated(key, PeerStanding.KNOWN, self.now, user)

    def test_one_user(self) -> None:
        """One user alone has half of the places, from however many addresses it comes."""
        self.assertEqual({self.arrive("user:ann") for _ in range(50)}, {None})
        self.assertEqual(self.arrive("user:ann"), "50 of 100 connections at this listener")
        self.policy.leave(self.number)
        self.assertIsNone(self.arrive("user:bob"))

    def test_half_of_an_odd_number(self) -> None:
        """Half of the places is rounded up: of one place, one; of five, three."""
        for places, half in ((1, 1), (5, 3)):
            policy = AcceptPolicy(places)
            listener = policy.listener(TERMS)
            for key in range(half):
                listener.enter(key, f"192.0.2.{key}", self.now)
                said = listener.authenticated(key, PeerStanding.KNOWN, self.now, "user:ann")
                self.assertIsNone(said, places)
            listener.enter(half, "192.0.2.99", self.now)
            said = listener.authenticated(half, PeerStanding.KNOWN, self.now, "user:ann")
            self.assertIsNotNone(said, places)

    def test_many_users(self) -> None:
        """Several have equal shares, and there is always a place for the next one."""
        users = [f"user:{name}" for name in "abc"]
        had = dict.fromkeys(users, 0)
        for _ in range(40):
            for user in users:
                if self.arrive(user) is None:
                    had[user] += 1
                else:
                    self.policy.leave(self.number)
        self.assertEqual(list(had.values()), [25, 25, 25])
        self.assertIsNone(self.arrive("user:d"))

    def test_a_user_leaves(self) -> None:
        """A place that a user gives back is free for the user and for others."""
        keys = []
        for _ in range(50):
            self.arrive("user:ann")
            keys.append(self.number)
        for key in keys:
            self.policy.leave(key)
        self.assertEqual({self.arrive("user:bob") for _ in range(50)}, {None})

    def test_a_user_at_all_listeners(self) -> None:
        """More listeners give nobody more than its share of all connections."""
        policy = AcceptPolicy(60)
        listeners = [policy.listener(TERMS) for _ in range(3)]
        found = [self.arrive("user:ann", listeners[number % 3]) for number in range(31)]
        self.assertEqual(set(found[:30]), {None})
        self.assertEqual(found[30], "30 of 60 connections in all")

    def test_late_news(self) -> None:
        """Reports on connections that have left change nothing."""
        key = self.come("192.0.2.1")
        self.policy.leave(key)
        self.policy.leave(key)
        self.places.authenticated(key, PeerStanding.KNOWN, self.now)
        self.assertEqual((len(self.places), self.policy.count, self.places.mute), (0, 0, 0))
        self.assertIs(self.policy.standing("192.0.2.1", self.now), PeerStanding.STRANGER)

    def test_contains(self) -> None:
        networks = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]
        for host, expected in (
            ("10.1.2.3", True),
            ("::ffff:10.1.2.3", True),
            ("2001:db8::1%eth0", True),
            ("11.0.0.1", False),
            ("", False),
            ("somewhere", False),
        ):
            self.assertIs(contains(networks, host), expected, host)


HOSTS = st.sampled_from(
    [
        "",
        *(f"192.0.2.{number}" for number in range(6)),
        *(f"198.51.{number}.1" for number in range(6)),
        *(f"2001:db8:{number:x}::1" for number in range(4)),
        "10.0.0.1",
        "10.9.9.9",
    ]
)


class PlacesMachine(RuleBasedStateMachine):
    """Two listeners, anybody, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.policy = AcceptPolicy(35)
        shares = ((ip_network("10.0.0.0/8"), 9),)
        self.listeners = [
            self.policy.listener(AcceptTerms(20, 4, 6, shares)),
            self.policy.listener(AcceptTerms(25, 6, 9)),
        ]
        self.open: dict[int, tuple[int, str, float]] = {}
        self.proved: dict[int, PeerStanding] = {}
        self.known: dict[str, PeerStanding] = {}
        self.number = 0

    @rule(which=st.integers(0, 1), host=HOSTS)
    def come(self, which: int, host: str) -> None:
        places = self.listeners[which]
        count = len(places)
        total = self.policy.count
        mute = self.mute(which, host)
        decision = places.decide(host, self.now)
        share = 9 if host.startswith("10.") and not which else places.terms.per_address
        if host and mute >= share:
            assert not isinstance(decision, Admit)
        standing = PeerStanding.BROKER if not host else self.known.get(host, PeerStanding.STRANGER)
        room = {PeerStanding.KNOWN: 1, PeerStanding.BROKER: 0}.get(standing, 2)
        roomy = count < places.terms.places - room * (
            places.terms.places // RESERVED
        ) and total < self.policy.limit - room * (self.policy.limit // RESERVED)
        if not roomy:
            assert not isinstance(decision, Admit)
        elif mute < share and standing > PeerStanding.ANONYMOUS and not host.startswith("10."):
            assert isinstance(decision, Admit), decision  # whatever strangers have taken
        if isinstance(decision, Refuse):
            return
        if isinstance(decision, CloseFirst):
            victim = decision.victim
            assert isinstance(victim, int)
            assert victim in self.open
            assert victim not in self.proved
            assert self.open[victim][1], "a unix socket is nobody's victim"
            self.leave_number(victim)
        self.number += 1
        places.enter(self.number, host, self.now)
        self.open[self.number] = (which, host, self.now)

    @rule(data=st.data(), standing=st.sampled_from(list(PeerStanding)[1:]))
    def authenticate(self, data: st.DataObject, standing: PeerStanding) -> None:
        waiting = [key for key in self.open if key not in self.proved]
        if not waiting:
            return
        key = data.draw(st.sampled_from(waiting))
        which, host, _ = self.open[key]
        self.listeners[which].authenticated(key, standing, self.now)
        self.proved[key] = standing
        if host and standing > PeerStanding.ANONYMOUS:
            self.known[host] = max(standing, self.known.get(host, standing))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.open:
            self.leave_number(data.draw(st.sampled_from(sorted(self.open))))

    @rule(seconds=st.floats(0, 2 * LEAST_SECONDS))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def leave_number(self, key: int) -> None:
        self.policy.leave(key)
        del self.open[key]
        self.proved.pop(key, None)

    def mute(self, which: int, host: str) -> int:
        return sum(
            key not in self.proved and where == which and whence == host
            for key, (where, whence, _) in self.open.items()
        )

    @invariant()
    def bounds_hold(self) -> None:
        assert self.policy.count == len(self.open) <= self.policy.limit
        for which, places in enumerate(self.listeners):
            here = [each for each in self.open.values() if each[0] == which]
            assert len(places) == len(here) <= places.terms.places
            for host in {each[1] for each in here if each[1]}:
                share = 9 if host.startswith("10.") and not which else places.terms.per_address
                assert self.mute(which, host) <= share
            assert places.mute == sum(
                key not in self.proved and where == which and bool(host)
                for key, (where, host, _) in self.open.items()
            )

    @invariant()
    def oldest_of_its_network(self) -> None:
        found = self.policy.fullest()
        mute = {key for key, each in self.open.items() if key not in self.proved and each[1]}
        assert (found is None) == (not mute)
        if found is not None:
            assert found[1] in mute


PlacesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
PlacesTest = PlacesMachine.TestCase
