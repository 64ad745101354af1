# SPDX-License-Identifier: Apache-2.0
"""Next hops and their destinations (an `IHops`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.broker import Broker
from amqproute.broker.name_table import NameTable
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.errors import NotFound, ResolveError, ResourceLimitExceeded, Unresolved
from amqproute.interfaces import IHops
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.connect_scheduler import ConnectScheduler
from amqproute.relay.destination import Destination
from amqproute.relay.destination_note import NOTE, DestinationNote
from amqproute.relay.destination_quota import (
    OURSELVES,
    DestinationHolder,
    DestinationQuota,
    holder_of,
)
from amqproute.relay.error_disclosure import DENIED, error_for_senders
from amqproute.relay.failure_verdict import refusal_seconds
from amqproute.relay.former_hops import FormerHops
from amqproute.relay.holds import RelayHolds, RelayRoutes
from amqproute.relay.lookup_scheduler import LookupScheduler
from amqproute.relay.rejection_counts import RejectionCounts
from amqproute.relay.relay_context import RelayContext, RelayEnvironment
from amqproute.relay.relay_terms import RelayTerms
from amqproute.tracebacks import without_frames
from amqproute.values import RELAY_PREFIX, NextHop, Origin, Principal

ADMISSION_SECONDS = 5.0
"""Time that admission waits for the DNS."""
REMEMBERED_DOMAINS = 10_000
KNOWN_SECONDS = 60.0
"""Time for which a successful look-up of a domain counts for admission."""
COUNT_SECONDS = 1.0
"""Interval between two counts of these destinations: with thousands one takes a millisecond."""
UNFOUND_PER_SECOND = 3.0
"""Rate of attempts for all destinations unknown to the DNS together: the more there are, the later
each is tried again. It takes a processor milliseconds to learn that nothing has changed."""
UNUSED_SECONDS = 60.0
"""Time after which a destination is removed whose first message was not kept after all."""
MANY_RETURNS = 100
"""Bound on return addresses of one domain that are in use at a time."""


@implementer(IHops)
class Relay:
    """The relay queues and destinations of this container.

    Args:
        broker: owner of the relay queues.
        agent: opens connections.
        routes: the routes in force.
        environment: clocks and randomness.
        terms: see `RelayTerms`.
        limits: the limits of each relay queue; its ttl is the maximum lifetime of a message here.

    Attributes:
        destinations: by the keys of their hops.
        dead_letter_name: the node for messages that cannot be returned, or None.
        holds: the holds of operators.
        former: counters of hops that have no destination now.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        agent: ConnectAgent,
        routes: RelayRoutes,
        environment: RelayEnvironment,
        terms: RelayTerms,
        limits: QueueLimits,
    ) -> None:
        self.destinations: NameTable[Destination] = NameTable()
        self.dead_letter_name: str | None = None
        self._broker = broker
        self._agent = agent
        self._routes = routes
        self._clock = clock = environment.clock
        self._terms = terms
        self._limits = limits
        self._starts = ConnectScheduler(clock, terms.bounds.connects_per_second, environment.turns)
        self._context = RelayContext(
            environment,
            broker.begin,
            terms,
            self._starts,
            RejectionCounts(clock.seconds, broker.recent),
            broker.journal,
        )
        self.holds = RelayHolds(broker.begin, clock, environment.now_ms, routes, self.destinations)
        self._is_stopping = False
        self._by_name: dict[str, tuple[str, ...]] = {}
        self.destination_quota = DestinationQuota(
            clock.seconds, lambda: self._terms.bounds.most_destinations
        )
        self._known: OrderedDict[str, float] = OrderedDict()
        self._unfound = 0
        self._counted_at = -COUNT_SECONDS
        self._made: list[Destination] = []
        self.former = FormerHops()
        self._look: IDelayedCall | None = None
        self._refusals: OrderedDict[str, tuple[float, NotFound]] = OrderedDict()
        self._asking: dict[str, list[Deferred[None]]] = {}
        self._looked_up: set[str] = set()
        self._first_contacts = LookupScheduler(clock)

    # -- recovery --------------------------------------------------------------------------------

    def spare(self) -> None:
        """Allow one attempt for messages that expired while none could be made."""
        for destination in self.destinations.values():
            destination.queue.spare()

    def recovered(
        self,
        notes: Mapping[str, bytes],
        holds: Mapping[str, bytes] = MappingProxyType({}),
        last_hold: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Create the destinations that have a backlog in the store, with their back-off.

        Args:
            notes: the notes of destinations.
            holds: the holds of an earlier run.
            last_hold: id of the last hold.
        """
        waiting = self._broker.recovered_nodes.messages
        names = [each for each in waiting if each.startswith(RELAY_PREFIX)]
        for name in names:
            key = name[len(RELAY_PREFIX) :]
            noted = notes.get(key)
            try:
                parts = () if noted is None else DestinationNote.decode(noted).holder
                holder = DestinationHolder(*parts) if parts else OURSELVES
            except (ValueError, TypeError) as error:
                self.log.error(
                    "the back-off of {destination} cannot be read and starts again: {error}",
                    destination=key,
                    error=str(error),
                )
                noted, holder = None, OURSELVES
            destination = self._make(self._routes.hop_of_key(key), holder)
            destination.queue.spare()
            if noted is not None:
                destination.restore(noted)
        self._clear_notes(notes.keys() - {name[len(RELAY_PREFIX) :] for name in names})
        self.holds.recovered(holds, last_hold)

    def _clear_notes(self, keys: Iterable[str]) -> None:
        """Delete the notes of destinations without messages, left by an earlier process."""
        batch = self._broker.begin()
        for key in keys:
            batch.transaction.note(NOTE, key, None)
        batch.commit().addErrback(self._notes_stay)

    def _notes_stay(self, failure: Failure) -> None:
        self.log.failure("notes of destinations without messages stay in the store", failure)

    def start(self) -> None:
        """Start every destination with a backlog."""
        for destination in self.destinations.values():
            destination.queue.dispatch()

    # -- IHops -----------------------------------------------------------------------------------

    def check(self, hop: NextHop) -> None:
        """See `IHops.check`."""
        destination = self.destinations.get(hop.key)
        if destination is None:
            self._check_refusal(hop.key)
            if hop.via is None and not self._is_known(hop.key):
                raise Unresolved(hop)
            return
        refusal = destination.refusal
        if refusal is not None:
            raise refusal

    def _is_known(self, key: str) -> bool:
        """Tell whether a recent look-up of the domain allows sending to it."""
        until = self._known.get(key)
        return until is not None and self._clock.seconds() < until

    def target(self, hop: NextHop, origin: Origin) -> Queue:
        """See `IHops.target`."""
        destination = self.destinations.get(hop.key)
        if destination is None:
            holder = holder_of(origin)
            self.destination_quota.check(holder)  # before the DNS is asked about the name
            self.check(hop)
            destination = self._make(hop, holder)
            destination.backoff.persist()  # the holder has to be known after a restart
            return destination.queue
        refusal = destination.refusal
        if refusal is not None:
            raise refusal
        return destination.queue

    def admit(self, hop: NextHop, origin: Origin | None = None) -> Deferred[None]:
        """See `IHops.admit`: ask the DNS whether the domain exists."""
        if hop.key in self.destinations or hop.via is not None:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        waiters = self._asking.setdefault(hop.key, [])
        waiters.append(waiter)
        if hop.key not in self._looked_up:
            # Also if another sender waits for the same hop: its turn may come later.
            holder = OURSELVES if origin is None else holder_of(origin)
            self._first_contacts.ask(holder, partial(self._look_up, hop))
        return waiter

    def _look_up(self, hop: NextHop) -> bool:
        """Ask the DNS about a domain; False if that has happened meanwhile."""
        if hop.key in self._looked_up or hop.key not in self._asking:
            return False
        self._looked_up.add(hop.key)
        asked = Deferred.fromCoroutine(self._agent.places(hop))
        asked.addTimeout(ADMISSION_SECONDS, self._clock)
        asked.addCallbacks(self._exists, self._unknown, (hop,), errbackArgs=(hop,))
        asked.addErrback(self._broken, hop)
        asked.addCallback(self._answer, hop)
        return True

    def _exists(self, _: object, hop: NextHop) -> None:
        self._known[hop.key] = self._clock.seconds() + KNOWN_SECONDS
        self._known.move_to_end(hop.key)
        if len(self._known) > REMEMBERED_DOMAINS:
            self._known.popitem(last=False)

    def _unknown(self, failure: Failure, hop: NextHop) -> None:
        error = failure.value
        if isinstance(error, (ResolveError, CancelledError, DeadlineError)):
            without_frames(failure)
        if isinstance(error, ResolveError) and error.permanent:
            until = self._clock.seconds() + refusal_seconds(error.ttl)
            words = f"{error.code}: {error}"
            if error.code == DENIED:
                self._log_denied(hop, words)
            refusal = NotFound(error_for_senders(words, hop.key), info={"code": error.code})
            self._remember_refusal(hop.key, until, refusal)
            return
        # No answer proves nothing: the message is accepted, and tried during its lifetime (T-25).
        if not isinstance(error, (ResolveError, CancelledError, DeadlineError)):
            self.log.failure("{destination} could not be looked up", failure, destination=hop.key)
        self._exists(None, hop)

    def _log_denied(self, hop: NextHop, words: str) -> None:
        """Log what senders do not learn, rate-limited since anybody can cause it."""
        count = self._broker.rate_limited_log.due(DENIED)
        if count:
            self.log.warn(
                "messages for {count} domains that are not dialled are refused, the last for "
                "{destination}: {error}",
                count=count,
                destination=hop.key,
                error=words,
            )

    def _remember_refusal(self, key: str, until: float, refusal: NotFound) -> None:
        self._refusals[key] = (until, refusal)
        if len(self._refusals) > REMEMBERED_DOMAINS:
            self._refusals.popitem(last=False)

    def _broken(self, failure: Failure, hop: NextHop) -> None:
        self.log.failure("{destination}: admission failed", failure, destination=hop.key)

    def _answer(self, _: object, hop: NextHop) -> None:
        self._looked_up.discard(hop.key)
        for waiter in self._asking.pop(hop.key, ()):
            waiter.callback(None)

    def _check_refusal(self, key: str) -> None:
        known = self._refusals.get(key)
        if known is None:
            return
        until, error = known
        if self._clock.seconds() < until:
            raise NotFound(error.description, info=error.info)
        del self._refusals[key]

    def _make(self, hop: NextHop, holder: DestinationHolder) -> Destination:
        destination = self.destinations.get(hop.key)
        if destination is None:
            self.destination_quota.add(hop.key, holder)
            queue = self._broker.make_internal(RELAY_PREFIX + hop.key, self._limits)
            queue.is_relay = True
            queue.dead_letter_name = self.dead_letter_name
            destination = self.destinations[hop.key] = Destination(
                hop,
                queue,
                self._agent,
                self._context,
                self,
                () if holder == OURSELVES else tuple(filter(None, holder)),
            )
            self._made.append(destination)
            if self._look is None:
                self._look = self._clock.callLater(UNUSED_SECONDS, self._check_created)
            for name in (hop.domain, *hop.names):
                keys = self._by_name.get(name, ())
                if hop.key not in keys:
                    self._by_name[name] = (*keys, hop.key)
            known = self.former.take(hop.key)
            if known is not None:
                destination.count_on(*known)
            if self.holds:
                self.holds.apply(destination)
            if self._is_stopping:
                destination.stop_sending()
        return destination

    def unfound_seconds(self) -> float:
        """See `DestinationHost.unfound_seconds`."""
        now = self._clock.seconds()
        if now - self._counted_at >= COUNT_SECONDS:
            self._counted_at = now
            self._unfound = sum(each.is_unfound for each in self.destinations.values())
        return self._unfound / UNFOUND_PER_SECOND

    def _check_created(self) -> None:
        """Remove destinations whose first message was not kept after all."""
        self._look = None
        made, self._made = self._made, []
        for destination in made:
            is_there = self.destinations.get(destination.hop.key) is destination
            if is_there and not destination.queue.is_used and destination.is_unused:
                self.destination_idle(destination)

    def destination_idle(self, destination: Destination) -> None:
        """See `DestinationHost.destination_idle`: the next message creates it again."""
        queue, hop = destination.queue, destination.hop
        is_there = self.destinations.get(hop.key) is destination
        if is_there and queue.depth == 0 and queue.is_settled:
            refusal = destination.refusal
            if refusal is not None:
                self._remember_refusal(hop.key, destination.refused_until, refusal)
            destination.stop()
            destination.backoff.clear_note()
            del self.destinations[hop.key]
            self.destination_quota.remove(hop.key)
            for name in {hop.domain, *hop.names}:
                keys = tuple(key for key in self._by_name[name] if key != hop.key)
                if keys:
                    self._by_name[name] = keys
                else:
                    del self._by_name[name]
            self.former.keep(hop.key, destination.tally, queue.tally)
            self._broker.forget_internal(queue.name)

    # -- other callers ---------------------------------------------------------------------------

    def row(self, destination: Destination) -> dict[str, object]:
        """Return the attributes of a destination, for the management node."""
        return destination.snapshot().row()

    def peer_called(self, principal: Principal) -> None:
        """Try destinations of a peer that has connected to us, since that proves that it is up."""
        keys = {key for name in principal.names or (principal.name,) for key in self._keys(name)}
        for key in sorted(keys):
            destination = self.destinations.get(key)
            if destination is not None:
                destination.contacted()

    def forget(self, hop: NextHop) -> None:
        """Forget the look-up of a hop: the next message causes another one."""
        self._known.pop(hop.key, None)
        self._refusals.pop(hop.key, None)
        self._agent.forget(hop)
        destination = self.destinations.get(hop.key)
        if destination is not None:
            destination.forget_refusal()

    def _keys(self, name: str) -> tuple[str, ...]:
        return self._by_name.get(name, ())

    def stop_sending(self) -> None:
        """Send nothing new, and open no more connections."""
        self._is_stopping = True
        for destination in self.destinations.values():
            destination.stop_sending()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight to any destination."""
        return all(destination.is_quiet for destination in self.destinations.values())

    def allow_part(self, part_bytes: int) -> None:
        """Bound the memory of each destination (`broker.outgoing_memory`)."""
        self._terms.part_bytes = part_bytes

    @property
    def is_closed(self) -> bool:
        """Whether there is no connection to any peer."""
        return all(destination.session is None for destination in self.destinations.values())

    def take_on_trust(self, hop: NextHop) -> Queue:
        """Return the relay queue of a hop without checking whether it exists.

        A return route is a hop, and a link, for each address (`Router.direct`), and strangers write
        return addresses. So their number is bounded for each domain.

        Raises:
            ResourceLimitExceeded: the bound is reached.
        """
        if hop.key not in self.destinations and "@" in hop.key:
            self._check_returns(hop.domain)
        if hop.key not in self.destinations:
            self.destination_quota.check(OURSELVES)
        return self._make(hop, OURSELVES).queue

    def _check_returns(self, domain: str) -> None:
        keys = [key for key in self._keys(domain) if "@" in key]
        if len(keys) < MANY_RETURNS:
            return
        for key in keys:
            destination = self.destinations[key]
            if destination.is_unused:
                self.destination_idle(destination)
        if len([key for key in self._keys(domain) if "@" in key]) >= MANY_RETURNS:
            raise ResourceLimitExceeded(
                f"messages are already being returned to {MANY_RETURNS} addresses of {domain}",
                info={"limiter": "return-addresses"},
            )

    def reload(self, terms: RelayTerms, lifetime_ms: int, dead_letter_name: str | None) -> None:
        """Put new terms in force; the lifetime of present messages does not change."""
        self._terms.adopt(terms)
        self._starts.per_second = terms.bounds.connects_per_second
        self._limits = replace(self._limits, ttl_ms=lifetime_ms)
        self.dead_letter_name = dead_letter_name
        self._refusals.clear()  # the rules of addresses to dial may have changed
        for destination in self.destinations.values():
            destination.forget_refusal()
            destination.adopt(self._limits)
            destination.queue.dead_letter_name = dead_letter_name
        self.holds.apply_all()

    def stop(self) -> None:
        """Cancel all timers."""
        self._starts.stop()
        self._first_contacts.stop()
        self.holds.stop()
        if self._look is not None and self._look.active():
            self._look.cancel()
        for destination in self.destinations.values():
            destination.stop()

    def close(self) -> None:
        """Close all connections to peers."""
        for destination in self.destinations.values():
            destination.close()


__all__ = ["NOTE", "RELAY_PREFIX", "Relay"]
