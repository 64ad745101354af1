# SPDX-License-Identifier: Apache-2.0
"""Queues that clients of AMQP 0-9 and 0-9-1 declare, use and delete (09: 1.7).

A declared queue is a queue like any other. A durable one is made, and noted in the store, by the
`QueueRegistry`, as those that operators make at runtime; so operators see, change and delete it. A
transient one, and one that is exclusive to a connection, is gone after a restart with all that is
on it, and may page to the disk until then.

Here is decided whether a declaration fits the queue of that name, whose queue it is, and when it
goes: with its connection (exclusive), with its last consumer (auto-delete), or when nobody has used
it for some time (``x-expires``, which begins anew with each start).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import host_of, in_host, local_name, split_host
from amqproute.broker.alarm import Alarm
from amqproute.broker.broker import Broker
from amqproute.broker.exchanges.argument_rules import (
    QueueDeclaration,
    QueueKind,
    check_queue_kind,
    check_queue_redeclared,
    queue_terms,
)
from amqproute.broker.exchanges.binding_tables import BindingTarget, TargetKind
from amqproute.broker.exchanges.queue_settings import DeclaredTerms
from amqproute.broker.exchanges.topology import Topology
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_names import check_queue_name
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.lifetime_policy import DeclaredLifetime
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.pending_changes import PendingChanges
from amqproute.broker.queue import Queue
from amqproute.broker.reply_addresses import REPLY_QUEUE, REPLY_TERMS
from amqproute.errors import StoreError
from amqproute.log_rate_limit import RateLimitedLog

MOST_AT_ONCE: Final = 50
"""Exclusive queues that go in one turn of the reactor when their connections have gone."""
MOST_TRANSIENT: Final = 10_000
"""Transient and exclusive queues that clients have declared, in all virtual hosts; a user at most
what stays free."""


class QueueRegistry(Protocol):
    """Creates and deletes queues at runtime, and stores the durable ones."""

    def declared(self, name: str) -> DeclaredTerms | None:
        """Return what a client declared of a durable queue; None if no client did."""

    def require_new(self, name: str) -> None:
        """Check that there can be a queue of a new name.

        Raises:
            TopologyFault: another node or an alias has it, or there are too many nodes.
        """

    def transient_node(self, name: str, terms: DeclaredTerms) -> NodeDeclaration:
        """Return what a queue shall be that is gone after a restart."""

    def declare_queue(self, name: str, terms: DeclaredTerms, owner: str) -> Deferred[Queue]:
        """Make a durable queue.

        Returns:
            It fires with the queue when that is on the disk, or fails with `StoreError`.

        Raises:
            TopologyFault: the declaration is refused.
        """

    def remove_queue(self, name: str, owner: str) -> Deferred[None]:
        """Delete a queue with what is on it.

        Returns:
            It fires when that is on the disk, or fails with `StoreError`.

        Raises:
            TopologyFault: the deletion is refused.
        """

    def links_gone(self) -> None:
        """Have links detached of queues that are not there any more."""


@dataclass(slots=True)
class _Transient:
    """A queue that is gone after a restart.

    Attributes:
        declaration: the declaration of the queue.
        owner: who declared it.
        connection: the owner of an exclusive queue; otherwise None.
    """

    declaration: QueueDeclaration
    owner: str
    connection: Hashable | None


@dataclass(slots=True)
class _Expiry:
    """The time after which a queue ends that nobody uses.

    Attributes:
        ms: the time without use, milliseconds.
        alarm: goes off then.
    """

    ms: int
    alarm: Alarm


class QueueDeclarations:
    """Declared queues of one virtual host, by their names there.

    Args:
        broker: its nodes.
        registry: makes and deletes what is durable, by names within the broker.
        clock: schedules the ends of ``x-expires``.
        host: the virtual host; empty for ``/``.
        shares: counts of transient queues over all virtual hosts; None if there is only one.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        registry: QueueRegistry,
        clock: IReactorTime,
        host: str = "",
        shares: FairShares | None = None,
    ) -> None:
        self._broker = broker
        self._queues: Mapping[str, Queue] = broker.nodes.of(host)
        self._host = host
        self._registry = registry
        self._clock = clock
        self._transient: dict[str, _Transient] = {}
        self._of_connection: dict[Hashable, dict[str, None]] = {}
        self._shares = shares or FairShares()
        self._expiry: dict[str, _Expiry] = {}
        self._replies: dict[str, str] = {}  # names of direct reply-to, and whose they are
        self._pending = PendingChanges()
        self._lost: dict[Hashable, None] = {}
        self._slice: IDelayedCall | None = None
        self._like_addresses = RateLimitedLog(clock.seconds)

    def __repr__(self) -> str:
        return f"<QueueDeclarations transient={len(self._transient)}>"

    def _full(self, name: str) -> str:
        """Return what a queue is called within the broker."""
        return in_host(self._host, name)

    # -- look-ups --------------------------------------------------------------------------------

    def queue(self, name: str, connection: Hashable) -> Queue:
        """Return a queue that a connection may use.

        Raises:
            TopologyFault: there is none, or it is exclusive to another connection (09-QUEUE-11).
        """
        self._end_lost(name)
        queue = self._queues.get(name)
        if queue is None or name in self._replies:
            raise TopologyFault(TopologyFaultKind.NO_QUEUE, f"no queue '{name}'")
        made = self._transient.get(name)
        is_others = made is not None and made.connection not in (None, connection)
        if is_others or (made is None and queue.life is not None and queue.life.is_exclusive):
            raise TopologyFault(
                TopologyFaultKind.LOCKED, f"queue '{name}' is exclusive to another connection"
            )
        return queue

    def counts_deliveries(self, name: str) -> bool:
        """Say whether a queue tells its consumers how often a message was delivered before.

        Quorum queues of RabbitMQ do, and those with ``x-delivery-limit`` have to.
        """
        if name not in self._queues:
            return False
        arguments = self.declaration(name).arguments
        kind = arguments.get("x-queue-type")
        return kind == QueueKind.QUORUM.value or "x-delivery-limit" in arguments

    def declaration(self, name: str) -> QueueDeclaration:
        """Return the declaration of a queue, whichever client made it.

        Raises:
            TopologyFault: there is none.
        """
        made = self._transient.get(name)
        if made is not None:
            return made.declaration
        if name not in self._queues:
            raise TopologyFault(TopologyFaultKind.NO_QUEUE, f"no queue '{name}'")
        terms = self._registry.declared(self._full(name)) or DeclaredTerms()
        is_durable = self._full(name) not in self._broker.dynamic
        return QueueDeclaration(
            name, is_durable, False, terms.auto_delete, terms.arguments, terms.has_priorities
        )

    # -- declare -------------------------------------------------------------------------------

    def declare(
        self,
        asked: QueueDeclaration,
        connection: Hashable,
        owner: str = "",
        lenient: bool = False,
    ) -> Deferred[Queue]:
        """Create a queue, or check that the existing one is equal (09-QUEUE-06).

        Args:
            asked: the declaration, with a name.
            connection: the owner, if the queue is exclusive.
            owner: who asks, as access rules write it; empty for the operator.
            lenient: the client speaks 0-9: see `check_queue_redeclared` and `check_queue_name`.

        Returns:
            It fires with the queue when that is on the disk, or fails with `StoreError`.

        Raises:
            TopologyFault: the declaration is refused.
        """
        name = asked.name
        self._end_lost(name)
        ended = self._topology.when_ended(BindingTarget(TargetKind.QUEUE, name))
        if ended is not None:
            return ended.addCallback(lambda _: self.declare(asked, connection, owner, lenient))
        if name in self._queues:
            queue = self.queue(name, connection)
            check_queue_name(name, is_new=False, standard=lenient)
            queue_terms(name, asked.arguments)
            check_queue_redeclared(self.declaration(name), asked, lenient)
            self.used(name)
            return self._pending.settled(name, queue)
        check_queue_name(name, is_new=True, standard=lenient)
        queue_terms(name, asked.arguments)
        check_queue_kind(asked)
        self._registry.require_new(self._full(name))
        if asked.exclusive or not asked.durable:
            return succeed(self._make_transient(asked, connection, owner))
        return self._make_durable(asked, owner)

    def _make_transient(self, asked: QueueDeclaration, connection: Hashable, owner: str) -> Queue:
        name = asked.name
        self._require_room(name, owner)
        terms = DeclaredTerms(asked.auto_delete, asked.arguments, asked.has_priorities)
        queue = self._broker.add_transient(self._registry.transient_node(self._full(name), terms))
        self._shares.take(1, owner)
        made = _Transient(asked, owner, connection if asked.exclusive else None)
        self._transient[name] = made
        if made.connection is not None:
            self._of_connection.setdefault(made.connection, {})[name] = None
        self._watch(queue, made.declaration)
        if queue.life is not None:
            queue.life.owner = made.connection
        return queue

    def _require_room(self, name: str, owner: str) -> None:
        if self._shares.owner_room(MOST_TRANSIENT, owner) <= 0:
            raise TopologyFault(
                TopologyFaultKind.LIMIT,
                f"no room for queue '{name}': there are {self._shares.used} transient queues of "
                f"{MOST_TRANSIENT}, {self._shares.held(owner)} of {owner or 'the operator'}",
            )

    def _make_durable(self, asked: QueueDeclaration, owner: str) -> Deferred[Queue]:
        name = asked.name
        if "@" in name and self._like_addresses.due("queue"):
            self.log.info(
                "{owner} declares the queue {queue} here: the default exchange sends messages for "
                "that address where it leads, never to this queue; they need no declaration",
                owner=owner or "the operator",
                queue=self._full(name),
            )
        terms = DeclaredTerms(asked.auto_delete, asked.arguments, asked.has_priorities)
        made = self._registry.declare_queue(self._full(name), terms, owner)
        self._watch(self._queues[name], asked)

        def failed(failure: Failure) -> Failure:
            self._unwatch(name)
            return failure

        return self._pending.follow(name, made.addErrback(failed))

    # -- use and end ---------------------------------------------------------------------------

    def recovered(self) -> None:
        """Watch over the durable queues that go by themselves, after a start or a reload."""
        for name in tuple(self._queues):
            self.watch(name)

    def watch(self, name: str) -> None:
        """Watch over a durable queue that an operator, or an earlier run of the daemon, made."""
        queue = self._queues.get(name)
        if queue is None or self._registry.declared(self._full(name)) is None:
            return
        is_watched = isinstance(queue.life, DeclaredLifetime) and name in self._expiry
        if not is_watched:  # it may have been renamed
            self._watch(queue, self.declaration(name))

    def policies_changed(self) -> None:
        """Have the times in force after which queues end, as policies say now."""
        for name, queue in tuple(self._queues.items()):
            if name not in self._transient and self._registry.declared(self._full(name)) is None:
                continue
            expiry = self._expiry.get(name)
            if self._expires_ms(name) != (0 if expiry is None else expiry.ms):
                self._watch(queue, self.declaration(name))

    def used(self, name: str) -> None:
        """Note that a client has used a queue: its ``x-expires`` begins anew."""
        if name in self._expiry:
            self._arm(name)

    def delete(
        self,
        name: str,
        connection: Hashable,
        owner: str = "",
        *,
        if_unused: bool = False,
        if_empty: bool = False,
    ) -> Deferred[int]:
        """Delete a queue with its bindings and what is on it (09-QUEUE-46, 09-QUEUE-47).

        Returns:
            It fires with the number of messages that were on it, when that is on the disk, or fails
            with `StoreError`.

        Raises:
            TopologyFault: the deletion is refused.
        """
        queue = self.queue(name, connection)
        if if_unused and queue.consumers:
            raise TopologyFault(
                TopologyFaultKind.IN_USE, f"queue '{name}' has {queue.consumers} consumers"
            )
        if if_empty and queue.is_used:
            raise TopologyFault(
                TopologyFaultKind.NOT_EMPTY, f"queue '{name}' has {queue.depth} messages"
            )
        count = queue.available + queue.deferred
        if name in self._transient:
            self._end_at_once(name)
            return self._after_end(name, count)
        return self._registry.remove_queue(self._full(name), owner).addCallback(
            self._deleted, name, count
        )

    def _deleted(self, _: object, name: str, count: int) -> Deferred[int]:
        self._gone(None, name)
        return self._after_end(name, count)

    def _gone(self, _: object, name: str) -> None:
        if name not in self._queues:
            self._unwatch(name)

    @property
    def _topology(self) -> Topology:
        return self._broker.topology_of(self._host)

    def _after_end(self, name: str, count: int) -> Deferred[int]:
        return self._topology.after_end(BindingTarget(TargetKind.QUEUE, name), count)

    def purge(self, name: str, connection: Hashable) -> Deferred[int]:
        """Remove the messages of a queue that wait (09-QUEUE-37, 09-QUEUE-39).

        Returns:
            It fires with their number when that is on the disk, or fails with `StoreError`.

        Raises:
            TopologyFault: there is no such queue, or it is exclusive to another connection.
        """
        return self.queue(name, connection).purge()

    def connection_lost(self, connection: Hashable) -> None:
        """Delete the queues that are exclusive to a connection, `MOST_AT_ONCE` in one turn.

        A method that names one of those left deletes it first: nobody else sees it.
        """
        if connection in self._of_connection:
            self._lost[connection] = None
            if self._slice is None:
                self._end_some()

    def _end_some(self) -> None:
        """Delete some of the queues whose connections have gone."""
        self._slice = None
        left = MOST_AT_ONCE
        while self._lost and left:
            connection = next(iter(self._lost))
            for name in list(islice(self._of_connection.get(connection, ()), left)):
                self._end_transient(name)
                left -= 1
            if connection not in self._of_connection:
                del self._lost[connection]
        self._registry.links_gone()
        if self._lost:
            self._slice = self._clock.callLater(0, self._end_some)

    def _end_lost(self, name: str) -> None:
        """Delete a queue whose connection has gone before it is its turn."""
        made = self._transient.get(name)
        if made is not None and made.connection is not None and made.connection in self._lost:
            self._end_at_once(name)

    # -- direct reply-to -----------------------------------------------------------------------

    def open_reply_queue(self, name: str, owner: str) -> Queue:
        """Make the queue of a reply address, which counts as a transient one of its owner.

        Args:
            name: the name of the address; see `reply_addresses`.
            owner: who asks, as access rules write it.

        Raises:
            TopologyFault: there are too many transient queues, in all or of this owner.
            ResourceLimitExceeded: the broker or the virtual host has too many nodes.
        """
        self._require_room(REPLY_QUEUE, owner)
        queue = self._broker.create_dynamic(REPLY_TERMS, self._host, name)
        self._shares.take(1, owner)
        self._replies[name] = owner
        return queue

    def end_reply_queue(self, queue: Queue) -> None:
        """Delete such a queue with what is on it: its consumer has gone."""
        owner = self._replies.pop(local_name(queue.name))
        self._shares.give_back(1, owner)
        is_sent_to = bool(queue.publishers)
        self._broker.delete(queue)
        if is_sent_to:
            self._registry.links_gone()

    def stop(self) -> None:
        """Stop the timers."""
        for expiry in self._expiry.values():
            expiry.alarm.stop()
        if self._slice is not None:
            self._slice.cancel()
            self._slice = None

    def _end_at_once(self, name: str) -> None:
        """Delete a transient queue, and detach its links."""
        self._end_transient(name)
        self._registry.links_gone()

    def _end_transient(self, name: str) -> None:
        made = self._transient.pop(name)
        self._shares.give_back(1, made.owner)
        self._unwatch(name)
        if made.connection is not None:
            others = self._of_connection[made.connection]
            del others[name]
            if not others:
                del self._of_connection[made.connection]
        self._broker.remove_transient(self._full(name))

    # -- auto-delete and x-expires -------------------------------------------------------------

    def _watch(self, queue: Queue, declaration: QueueDeclaration) -> None:
        name = declaration.name
        self._unwatch(name)
        expires_ms = self._expires_ms(name)
        is_mortal = declaration.exclusive or declaration.auto_delete or bool(expires_ms)
        if is_mortal and not isinstance(queue.life, DeclaredLifetime):
            queue.life = life = DeclaredLifetime(declaration.exclusive, queue)
            life.when_unused = partial(self._unused, queue)
            if queue.consumers:
                life.attached(None)  # a policy has come while it is in use
        if expires_ms:
            self._expiry[name] = _Expiry(expires_ms, Alarm(self._clock))
            self._arm(name)

    def _unwatch(self, name: str) -> None:
        expiry = self._expiry.pop(name, None)
        if expiry is not None:
            expiry.alarm.stop()

    def _arm(self, name: str) -> None:
        expiry = self._expiry[name]
        expiry.alarm.set(expiry.ms / 1000, partial(self._expired, name))

    def _expires_ms(self, name: str) -> int:
        """Return how long a queue stays that nobody uses, by argument or policy; 0 for ever."""
        term = self._broker.terms_of(self._full(name)).get("expires")
        return 0 if term is None else int(term.value)

    def _expired(self, name: str) -> None:
        queue = self._queues.get(name)
        if queue is None or not self._expires_ms(name):
            self._unwatch(name)  # it went, and another one has its name
        elif queue.consumers:
            self._arm(name)
        else:
            self._end(name, "nobody used it for its time (x-expires)")

    def _unused(self, queue: Queue) -> None:
        """The last consumer of a queue has gone."""
        name = local_name(queue.name)
        if self._queues.get(name) is not queue:
            return
        if self.declaration(name).auto_delete:
            self._end(name, "its last consumer has gone")
        else:
            self.used(name)

    def _end(self, name: str, why: str) -> None:
        self.log.debug("queue {queue} ends: {why}", queue=self._full(name), why=why)
        if name in self._transient:
            self._end_at_once(name)
            return
        try:
            ended = self._registry.remove_queue(self._full(name), "daemon")
        except TopologyFault as fault:
            self.log.warn(
                "queue {queue} stays although {why}: {error}",
                queue=self._full(name),
                why=why,
                error=fault.text,
            )
            return
        ended.addCallbacks(self._gone, self._not_ended, (name,), errbackArgs=(name,))

    def _not_ended(self, failure: Failure, name: str) -> None:
        if isinstance(failure.value, StoreError):
            self.log.warn(
                "queue {queue} could not be deleted: {error}",
                queue=self._full(name),
                error=str(failure.value),
            )
        else:
            self.log.failure("queue {queue} could not be deleted", failure, queue=self._full(name))


class HostedDeclarations:
    """Declared queues of all virtual hosts.

    Args:
        broker: its nodes.
        registry: makes and deletes what is durable.
        clock: schedules the ends of ``x-expires``.
    """

    def __init__(self, broker: Broker, registry: QueueRegistry, clock: IReactorTime) -> None:
        self._broker = broker
        self._registry = registry
        self._clock = clock
        self._shares = FairShares()
        self._hosts: dict[str, QueueDeclarations] = {}

    def __repr__(self) -> str:
        return f"<HostedDeclarations {len(self._hosts)}>"

    def of(self, host: str) -> QueueDeclarations:
        """Return those of a virtual host."""
        found = self._hosts.get(host)
        if found is None:
            found = QueueDeclarations(self._broker, self._registry, self._clock, host, self._shares)
            self._hosts[host] = found
        return found

    def recovered(self) -> None:
        """See `QueueDeclarations.recovered`."""
        for host in {"", *map(host_of, self._broker.nodes)}:
            self.of(host).recovered()

    def policies_changed(self) -> None:
        """See `QueueDeclarations.policies_changed`."""
        for each in self._hosts.values():
            each.policies_changed()

    def watch(self, name: str) -> None:
        """See `QueueDeclarations.watch`; the name is the one within the broker."""
        host, local = split_host(name)
        self.of(host).watch(local)

    def stop(self) -> None:
        """Stop the timers."""
        for each in self._hosts.values():
            each.stop()


__all__ = ["MOST_TRANSIENT", "HostedDeclarations", "QueueDeclarations", "QueueRegistry"]
