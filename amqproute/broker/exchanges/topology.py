# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings of a virtual host: declaration, persistence, routing.

`Topology` is the shell around an `ExchangeGraph`: it notes in the store what is durable, and says
that something is done when it is on the disk. In memory a change is in force at once; if the store
refuses it, the change is undone and the request fails.

What has many bindings ends in slices: `take_apart` removes some in each turn of the reactor, from
memory and from the store. The commit that deletes an exchange or a queue notes that its bindings
are to go, so a crash in the middle leaves none behind (`topology_record.ENDING_NOTES`). Until the
last one has gone nobody makes another exchange or queue of that name.

A binding is durable if its exchange and what it leads to are (09-QUEUE-22). One that leads to a
queue which is not there at a start, because the configuration does not name it, waits for it.

Shares: exchanges and bindings of all virtual hosts count by their octets (`MOST_OCTETS`). A
user may hold as much as would still be free afterwards (`amqproute.broker.fair_shares`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import exchange_node, in_host
from amqproute.broker.commit_batch import Batch
from amqproute.broker.exchanges.argument_rules import EffectiveTerm, TermValue, effective_terms
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import (
    ALTERNATE_ARGUMENT,
    ExchangeDefinition,
    ExchangeGraph,
    GraphChange,
    RoutingOutcome,
)
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_policies import NO_POLICIES, PolicySet
from amqproute.broker.exchanges.topology_record import (
    argument_octets,
    decode_binding,
    decode_ending,
    decode_exchange,
    encode_binding,
    encode_ending,
    encode_exchange,
    topology_notes,
)
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.node_context import NodeContext
from amqproute.broker.pending_changes import PendingChanges
from amqproute.broker.queue import Queue
from amqproute.broker.shared_body import put_on_all
from amqproute.errors import NotFound
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.plurals import counted
from amqproute.values import Origin

MOST_OCTETS: Final = 256 * 1024 * 1024
"""Octets of all exchanges and bindings, at most, by `EACH` and their arguments."""
EACH: Final = 1024
"""Octets that an exchange or a binding takes in memory beside its arguments."""
OCTET_FACTOR: Final = 8
"""Octets in memory for each of arguments as they are on the wire."""

Result = TypeVar("Result")
NoteKey = tuple[str, str]
"""Kind and key of a note."""


def _nothing() -> None:
    pass


class TopologyStep(NamedTuple, Generic[Result]):
    """A change that is in force in memory, and not durable yet.

    Attributes:
        result: the result of the request.
        notes: the kind, key and value of each note to write; the value None deletes a note.
        undo: takes it back, if the store does not take the notes.
        done: is called when the notes are on the disk.
    """

    result: Result
    notes: Sequence[tuple[str, str, bytes | None]] = ()
    undo: Callable[[], None] = _nothing
    done: Callable[[], None] = _nothing


class QueueDirectory(Protocol):
    """The queues that bindings may lead to."""

    @property
    def nodes(self) -> Mapping[str, ITarget]:
        """Queues by name."""

    @property
    def dynamic(self) -> Container[str]:
        """Names of those that are gone after a restart."""


@dataclass(frozen=True, slots=True)
class _Registered:
    """Bookkeeping for an exchange or a binding.

    Attributes:
        owner: who declared it; empty for the operator.
        octets: the octets counted for it.
        note: its note in the store; None for what is not durable.
    """

    owner: str
    octets: int
    note: NoteKey | None


@dataclass(frozen=True, slots=True)
class RemovedTopology:
    """Exchanges and bindings removed by a change, so that they can be restored.

    Attributes:
        change: the removed exchanges and bindings.
        exchanges: the registrations of its exchanges.
        bindings: the registrations of its bindings.
        dormant: bindings that waited for a queue.
        ending: what has bindings that are still to be taken out, with the note that says so.
    """

    change: GraphChange
    exchanges: tuple[_Registered, ...]
    bindings: tuple[_Registered, ...]
    dormant: tuple[tuple[ExchangeBinding, _Registered], ...] = ()
    ending: tuple[tuple[BindingTarget, NoteKey], ...] = ()

    @property
    def notes(self) -> list[tuple[str, str, bytes | None]]:
        """Kind, key and value of notes to write; the value None deletes one."""
        all_of_it = (*self.exchanges, *self.bindings, *(each for _, each in self.dormant))
        gone = [(*each.note, None) for each in all_of_it if each.note is not None]
        return [*gone, *((*note, encode_ending(target)) for target, note in self.ending)]


class Topology:
    """The exchanges and bindings of a virtual host.

    Args:
        queues: the queues that bindings may lead to.
        context: the context of the broker's nodes.
        host: the virtual host; empty for ``/``.
        shares: counts of exchanges and bindings over all virtual hosts; None if there is only one.

    Attributes:
        graph: the exchanges and bindings; to look at only.
        most_octets: the highest number of octets over all virtual hosts.
        host: the argument.
        policies: the policies for its exchanges and queues; see `adopt_policies`.
    """

    log = Logger()

    def __init__(
        self,
        queues: QueueDirectory,
        context: NodeContext,
        host: str = "",
        shares: FairShares | None = None,
    ) -> None:
        self.host = host
        self._exchange_notes, self._binding_notes, self._ending_notes = topology_notes(host)
        self.graph = ExchangeGraph(queues.nodes)
        self.most_octets = MOST_OCTETS
        self.policies: PolicySet = NO_POLICIES
        self._queues = queues
        self._store = context.store
        self._begin = context.begin
        self._clock = context.clock
        self._pause = context.pause
        self._ending: deque[tuple[BindingTarget, NoteKey]] = deque()
        self._left_over: deque[NoteKey] = deque()
        self._is_slicing = False
        self._when_ended: dict[BindingTarget, list[Deferred[None]]] = {}
        self._shares = shares or FairShares()
        self._exchanges: dict[str, _Registered] = {}
        self._bindings: dict[ExchangeBinding, _Registered] = {}
        self._dormant: dict[str, dict[ExchangeBinding, _Registered]] = {}
        self._pending = PendingChanges()

    def __repr__(self) -> str:
        return (
            f"<Topology exchanges={self.graph.exchange_count} bindings={self.graph.binding_count}>"
        )

    # -- what an operator sees -----------------------------------------------------------------

    @property
    def octets(self) -> int:
        """Octets charged for exchanges and bindings: `EACH`, and their arguments."""
        return self._shares.used

    def owner_of(self, name: str) -> str:
        """Return who declared an exchange; empty for predeclared ones and the operator's."""
        registered = self._exchanges.get(name)
        return "" if registered is None else registered.owner

    def is_durable(self, binding: ExchangeBinding) -> bool:
        """Tell whether a binding is there after a restart."""
        if not self.graph.exchange(binding.source).durable:
            return False
        target = binding.target
        if target.kind is TargetKind.EXCHANGE:
            return self.graph.exchange(target.name).durable
        return target.name not in self._queues.dynamic

    @property
    def dormant(self) -> Mapping[str, int]:
        """Bindings that wait for a queue to be there: its name, and how many."""
        return {name: len(bindings) for name, bindings in self._dormant.items()}

    # -- policies ------------------------------------------------------------------------------

    def adopt_policies(self, policies: PolicySet) -> None:
        """Have other policies in force for the exchanges; `Broker` does it for the queues."""
        self.policies = policies
        for name in [each.name for each in self.graph.exchanges()]:
            self._apply_policy(name)

    def alternate_of(self, name: str) -> EffectiveTerm | None:
        """Return the alternate exchange of an exchange, and where that is written.

        Raises:
            TopologyFault: there is no such exchange.
        """
        arguments = self.graph.exchange(name).arguments
        own = arguments.get(ALTERNATE_ARGUMENT)
        given: dict[str, TermValue] = {} if own is None else {ALTERNATE_ARGUMENT: str(own)}
        terms = effective_terms(given, self.policies.of_exchange(name))
        return terms.get(ALTERNATE_ARGUMENT)

    def _apply_policy(self, name: str) -> None:
        alternate = self.alternate_of(name)
        wanted = None if alternate is None else str(alternate.value)
        if self.graph.exchange(name).alternate != wanted:
            self.graph.change_alternate(name, wanted)

    # -- changes -------------------------------------------------------------------------------

    def declare(
        self, definition: ExchangeDefinition, owner: str = "", lenient: bool = False
    ) -> Deferred[bool]:
        """Create an exchange, or check that the existing one is equal; see `ExchangeGraph.declare`.

        Args:
            definition: the declaration.
            owner: who asks, as access rules write it; empty for the operator.
            lenient: see `ExchangeGraph.declare`.

        Returns:
            A Deferred of whether it is new, when that is on the disk; fails with `StoreError`.

        Raises:
            TopologyFault: the request is refused.
        """
        ended = self.when_ended(BindingTarget(TargetKind.EXCHANGE, definition.name))
        if ended is not None:
            return ended.addCallback(lambda _: self.declare(definition, owner, lenient))
        key = (TargetKind.EXCHANGE, definition.name)
        return self._carry_out(self.declare_step(definition, owner, lenient), key)

    def delete(self, name: str, if_unused: bool = False) -> Deferred[GraphChange]:
        """Delete an exchange with its bindings. See `ExchangeGraph.delete`.

        Returns:
            A Deferred of the removed parts, when that is on the disk and all bindings have gone;
            fails with `StoreError`.

        Raises:
            TopologyFault: the request is refused.
        """
        done = self._carry_out(self.delete_step(name, if_unused), (TargetKind.EXCHANGE, name))
        target = BindingTarget(TargetKind.EXCHANGE, name)
        return done.addCallback(lambda change: self.after_end(target, change))

    def bind(self, binding: ExchangeBinding, owner: str = "") -> Deferred[bool]:
        """Make a binding. See `ExchangeGraph.bind`.

        Args:
            binding: the binding.
            owner: who asks, as access rules write it; empty for the operator.

        Returns:
            A Deferred of whether it is new, when that is on the disk; fails with `StoreError`.

        Raises:
            TopologyFault: the request is refused.
        """
        return self._carry_out(self.bind_step(binding, owner), binding)

    def unbind(self, binding: ExchangeBinding) -> Deferred[GraphChange]:
        """Remove a binding. See `ExchangeGraph.unbind`.

        Returns:
            A Deferred of the removed parts, when that is on the disk; fails with `StoreError`.

        Raises:
            TopologyFault: the request is refused.
        """
        return self._carry_out(self.unbind_step(binding), binding)

    # -- changes as steps of a batch -----------------------------------------------------------

    def declare_step(
        self, definition: ExchangeDefinition, owner: str = "", lenient: bool = False
    ) -> TopologyStep[bool]:
        """Do what `declare` does, in memory only."""
        name = definition.name
        if name in self.graph:
            self.graph.declare(definition, lenient)
            return TopologyStep(False)
        self.require_ended(BindingTarget(TargetKind.EXCHANGE, name))
        octets = self._require_room(definition.arguments, owner, "exchange")
        self.graph.declare(definition)
        note = (self._exchange_notes, name) if definition.durable else None
        self._register_exchange(name, _Registered(owner, octets, note))
        notes = [] if note is None else [(*note, encode_exchange(definition, owner))]
        return TopologyStep(True, notes, partial(self._undo_declare, definition))

    def delete_step(self, name: str, if_unused: bool = False) -> TopologyStep[GraphChange]:
        """Do what `delete` does, in memory only."""
        return self._removed(self.graph.delete(name, if_unused))

    def bind_step(self, binding: ExchangeBinding, owner: str = "") -> TopologyStep[bool]:
        """Do what `bind` does, in memory only."""
        if binding in self._bindings:
            self.graph.bind(binding)
            return TopologyStep(False)
        octets = self._require_room(binding.arguments, owner, "binding")
        self.graph.bind(binding)
        note = (
            (self._binding_notes, str(self._store.next_id())) if self.is_durable(binding) else None
        )
        self._register_binding(binding, _Registered(owner, octets, note))
        notes = [] if note is None else [(*note, encode_binding(binding, owner))]
        return TopologyStep(True, notes, partial(self._undo_bind, binding))

    def unbind_step(self, binding: ExchangeBinding) -> TopologyStep[GraphChange]:
        """Do what `unbind` does, in memory only."""
        return self._removed(self.graph.unbind(binding))

    def _removed(self, change: GraphChange) -> TopologyStep[GraphChange]:
        removed = self._forget(change)
        return TopologyStep(
            change,
            removed.notes,
            partial(self.restore, removed),
            partial(self.take_apart, removed),
        )

    # -- queues that come and go ---------------------------------------------------------------

    def queue_made(self, name: str) -> None:
        """Have the bindings in force that waited for a queue."""
        target = BindingTarget(TargetKind.QUEUE, name)
        while self.graph.is_ending(target):
            # By a reload: clients and operators wait for the end of the one before.
            self._write_slice(self._slice_of(target))
        for binding, registered in self._dormant.pop(name, {}).items():
            self._shares.give_back(registered.octets, registered.owner)
            self._recover_binding(binding, registered)

    def queue_gone(self, name: str) -> None:
        """Remove the bindings of a queue that is not there any more."""
        removed = self.remove_queue(name)
        if removed.notes:
            words = "cannot delete the bindings of {queue} from the store"
            self._delete_from_store(removed, words, name)

    def remove_queue(self, name: str) -> RemovedTopology:
        """Remove the bindings of a queue from memory; `write_off` has to follow, or `restore`."""
        dormant = tuple(self._dormant.pop(name, {}).items())
        for _, registered in dormant:
            self._shares.give_back(registered.octets, registered.owner)
        return self._forget(self.graph.delete_queue(name), dormant)

    def rename_queue(self, name: str, new_name: str) -> None:
        """Have the bindings of a queue lead to its new name; see `note_queue`."""
        for old, new in self.graph.rename_queue(name, new_name):
            self._bindings[new] = self._bindings.pop(old)

    def queue_notes(self, name: str) -> list[tuple[str, str, bytes]]:
        """Return the notes of a queue's bindings: kind, key and value of each."""
        notes = []
        for binding in self.graph.bindings_to(BindingTarget(TargetKind.QUEUE, name)):
            registered = self._bindings[binding]
            if registered.note is not None:
                notes.append((*registered.note, encode_binding(binding, registered.owner)))
        return notes

    def write_off(self, removed: RemovedTopology, batch: Batch) -> None:
        """Have a batch delete the notes of removed exchanges and bindings."""
        for note in removed.notes:
            batch.transaction.note(*note)

    def restore(self, removed: RemovedTopology) -> None:
        """Put back what has gone: the store still has it."""
        change = removed.change
        for target, _ in removed.ending:
            if self.graph.is_ending(target):
                self.graph.revive(target)
        for definition, registered in zip(change.definitions, removed.exchanges, strict=True):
            if definition.name not in self.graph:
                self.graph.declare(definition)
            if definition.name not in self._exchanges:
                self._register_exchange(definition.name, registered)
        pairs = (*zip(change.bindings, removed.bindings, strict=True), *removed.dormant)
        for binding, registered in pairs:
            if binding not in self._bindings:
                self._recover_binding(binding, registered)

    # -- slices --------------------------------------------------------------------------------

    def take_apart(self, removed: RemovedTopology) -> None:
        """Remove the bindings of ending exchanges and queues in slices; the end is durable."""
        self._ending += removed.ending
        self.go_on()

    def go_on(self) -> None:
        """Go on with the slices, after a start too."""
        if not self._is_slicing and (self._ending or self._left_over):
            self._is_slicing = True
            Deferred.fromCoroutine(self._end_in_slices()).addErrback(
                lambda failure: self.log.failure("the end of bindings stopped half way", failure)
            )

    def when_ended(self, target: BindingTarget) -> Deferred[None] | None:
        """Return a Deferred that fires when the last binding of something has gone.

        None if there is none any more.
        """
        if not self.graph.is_ending(target):
            return None
        waiting: Deferred[None] = Deferred()
        self._when_ended.setdefault(target, []).append(waiting)
        return waiting

    def after_end(self, target: BindingTarget, result: Result) -> Deferred[Result]:
        """Return a Deferred of a result that fires when the last binding of something has gone."""
        ended = self.when_ended(target)
        return succeed(result) if ended is None else ended.addCallback(lambda _: result)

    def require_ended(self, target: BindingTarget) -> None:
        """Check that no bindings are left of an exchange or a queue that was deleted.

        Raises:
            TopologyFault: there are some.
        """
        if self.graph.is_ending(target):
            raise TopologyFault(
                TopologyFaultKind.IN_USE,
                f"{target.kind.value} '{target.name}' is being deleted with its bindings: try "
                "again in a moment",
            )

    async def _end_in_slices(self) -> None:
        """Remove some bindings at a time; the next ones when that is on the disk."""
        try:
            while self._ending or self._left_over:
                await self._pause()
                await self._write_slice(self._slice())
        finally:
            self._is_slicing = False

    def _slice(self) -> list[tuple[str, str, bytes | None]]:
        """Remove some bindings; return the notes to write."""
        if self._left_over:
            count = min(len(self._left_over), self.graph.most_at_once)
            return [(*self._left_over.popleft(), None) for _ in range(count)]
        return self._slice_of(self._ending[0][0]) if self._ending else []

    def _slice_of(self, target: BindingTarget) -> list[tuple[str, str, bytes | None]]:
        """Remove one slice of the bindings of an ending target; return the notes to write."""
        notes: list[tuple[str, str, bytes | None]] = []
        if self.graph.is_ending(target):
            removed = self._forget(self.graph.take_apart(target))
            self._ending += removed.ending
            notes = removed.notes
        if not self.graph.is_ending(target):
            over = [each for each in self._ending if each[0] == target]
            for each in over:
                self._ending.remove(each)
                notes.append((*each[1], None))
            for waiting in self._when_ended.pop(target, ()):
                self._clock.callLater(0, waiting.callback, None)
        return notes

    def _write_slice(self, notes: Sequence[tuple[str, str, bytes | None]]) -> Deferred[None]:
        if not notes:
            return succeed(None)
        batch = self._begin()
        for note in notes:
            batch.transaction.note(*note)
        return batch.commit(True).addErrback(
            lambda failure: self.log.failure(
                "bindings that were deleted stay in the store until the next start", failure
            )
        )

    # -- start ---------------------------------------------------------------------------------

    def recovered(
        self,
        exchanges: Mapping[str, bytes],
        bindings: Mapping[str, bytes],
        ending: Mapping[str, bytes] | None = None,
    ) -> None:
        """Go on with what an earlier run of the daemon noted, before any queue is made.

        Args:
            exchanges: notes of exchanges, by name.
            bindings: notes of bindings.
            ending: notes of unfinished ends; `go_on` deletes the bindings that are left.
        """
        ended = self._recovered_endings(ending or {})
        for name, note in exchanges.items():
            try:
                definition, owner = decode_exchange(name, note)
                octets = _octets(definition.arguments)
                self.graph.declare(definition)
            except (ValueError, TopologyFault) as error:
                self.log.error("cannot restore exchange {name}: {error}", name=name, error=error)
            else:
                self._register_exchange(
                    name, _Registered(owner, octets, (self._exchange_notes, name))
                )
        for key in sorted(bindings, key=_number):
            try:
                binding, owner = decode_binding(bindings[key])
                source = BindingTarget(TargetKind.EXCHANGE, binding.source)
                if _number(key) < max(ended.get(source, 0), ended.get(binding.target, 0)):
                    self._left_over.append((self._binding_notes, key))
                    continue
                registered = _Registered(
                    owner, _octets(binding.arguments), (self._binding_notes, key)
                )
            except (ValueError, TopologyFault) as error:
                self.log.error("cannot restore binding {key}: {error}", key=key, error=error)
            else:
                self._recover_binding(binding, registered)

        # Last: as long as one is there the bindings below it are deleted.
        self._left_over += [(self._ending_notes, key) for key in ending or ()]

    def _recovered_endings(self, notes: Mapping[str, bytes]) -> dict[BindingTarget, int]:
        """Return the unfinished ends, each with the number above those of all its bindings."""
        ended: dict[BindingTarget, int] = {}
        for key, note in notes.items():
            try:
                target = decode_ending(note)
            except ValueError as error:
                self.log.error("the note {key} of an end is wrong: {error}", key=key, error=error)
            else:
                ended[target] = max(ended.get(target, 0), _number(key))
        return ended

    def _recover_binding(self, binding: ExchangeBinding, registered: _Registered) -> None:
        """Put a binding in force, or have it wait for its queue."""
        target = binding.target
        is_waiting = target.kind is TargetKind.QUEUE and target.name not in self._queues.nodes
        try:
            self.graph.exchange(binding.source)
            if not is_waiting:
                self.graph.bind(binding)
        except TopologyFault as fault:
            self.log.error(
                "cannot restore a binding of exchange {source} to {target}: {error}",
                source=binding.source,
                target=target.name,
                error=fault.text,
            )
            return
        if is_waiting:
            self._dormant.setdefault(target.name, {})[binding] = registered
            self._shares.take(registered.octets, registered.owner)
        else:
            self._register_binding(binding, registered)

    def warn_of_dormant(self) -> None:
        """Say in the log which bindings wait for a queue that is not there."""
        for name, bindings in self._dormant.items():
            self.log.warn(
                "{bindings} refer to queue {queue}, which does not exist: declare it, or delete "
                "them with their exchange",
                bindings=counted(len(bindings), "binding"),
                queue=name,
            )

    # -- publish -------------------------------------------------------------------------------

    def route(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, object]
    ) -> RoutingOutcome:
        """Decide where a message goes that a client publishes. See `ExchangeGraph.route`.

        Raises:
            TopologyFault: there is no such exchange, it is internal, or a header has a value that
                cannot be compared.
        """
        self.graph.check_publish(exchange)
        return self.graph.route(exchange, keys, headers)

    def queues_of(self, outcome: RoutingOutcome) -> list[ITarget]:
        """Return the queues of a decision that was made just now.

        Raises:
            NotFound: one of them has gone since.
        """
        nodes = self._queues.nodes
        try:
            return [nodes[name] for name in outcome.queues]
        except KeyError as error:
            raise NotFound(f"no queue is named {error} any more") from None

    def put(
        self,
        exchange: str,
        targets: Sequence[ITarget],
        message: Message,
        batch: Batch,
        origin: Origin,
    ) -> None:
        """Put a message on everything that it goes to, with one body in the store.

        If one target has no room, no target gets the message, and the sender is refused.

        Args:
            exchange: the exchange of the publish.
            targets: queues from `queues_of`, and the ways to addresses.
            message: the message.
            batch: the batch of its sender.
            origin: who sends it.

        Raises:
            AmqpError: the message is refused, also where one of several queues could not take it.
            Unresolved: see `ITarget.put`; nobody has it then.
        """
        if not exchange and len(targets) == 1:
            targets[0].put(message, batch, origin)
            return
        name = in_host(self.host, exchange_node(exchange))
        before = 0 if batch.came is None else len(batch.came)
        refused = put_on_all(targets, message, batch, origin, self._store.next_id, name)
        batch.copied(before, name, message, origin)
        if refused:
            raise refused[0][1]

    def put_alike(
        self,
        exchange: str,
        queue: Queue,
        messages: Sequence[Message],
        batch: Batch,
        origin: Origin,
    ) -> int:
        """Put messages on the one queue that they go to. See `Queue.put_alike`.

        Returns:
            How many were put, of the first ones.
        """
        before = 0 if batch.came is None else len(batch.came)
        count = queue.put_alike(messages, batch, origin)
        if exchange and count:
            batch.copied_each(before, in_host(self.host, exchange_node(exchange)))
        return count

    # -- accounts ------------------------------------------------------------------------------

    def _require_room(self, arguments: Mapping[str, object], owner: str, what: str) -> int:
        octets = _octets(arguments)
        if octets > self._shares.owner_room(self.most_octets, owner):
            raise TopologyFault(
                TopologyFaultKind.LIMIT,
                f"no room for another {what}: exchanges and bindings take {self._shares.used} of "
                f"{self.most_octets} octets, those of {owner or 'the operator'} "
                f"{self._shares.held(owner)}",
            )
        return octets

    def _register_exchange(self, name: str, registered: _Registered) -> None:
        self._exchanges[name] = registered
        self._shares.take(registered.octets, registered.owner)
        self._apply_policy(name)

    def _register_binding(self, binding: ExchangeBinding, registered: _Registered) -> None:
        self._bindings[binding] = registered
        self._shares.take(registered.octets, registered.owner)

    def _forget(
        self,
        change: GraphChange,
        dormant: tuple[tuple[ExchangeBinding, _Registered], ...] = (),
    ) -> RemovedTopology:
        exchanges = tuple(self._exchanges.pop(name) for name in change.exchanges)
        bindings = tuple(self._bindings.pop(binding) for binding in change.bindings)
        for registered in (*exchanges, *bindings):
            self._shares.give_back(registered.octets, registered.owner)
        ending = tuple(
            (target, (self._ending_notes, str(self._store.next_id()))) for target in change.ending
        )
        gone = (*dormant, *self._forget_dormant(change.exchanges))
        return RemovedTopology(change, exchanges, bindings, gone, ending)

    def _forget_dormant(
        self, exchanges: Iterable[str]
    ) -> list[tuple[ExchangeBinding, _Registered]]:
        """Remove the bindings of exchanges that wait for a queue."""
        gone = set(exchanges)
        found = []
        for name, bindings in list(self._dormant.items()) if gone else ():
            for binding in [each for each in bindings if each.source in gone]:
                registered = bindings.pop(binding)
                self._shares.give_back(registered.octets, registered.owner)
                found.append((binding, registered))
            if not bindings:
                del self._dormant[name]
        return found

    # -- the store -----------------------------------------------------------------------------

    def _carry_out(self, step: TopologyStep[Result], key: Hashable) -> Deferred[Result]:
        """Have a step noted in the store, and what is noted already waited for."""
        result, notes, undo, when_done = step
        if not notes:
            when_done()
            return self._pending.settled(key, result)
        batch = self._begin()
        for kind, name, value in notes:
            batch.transaction.note(kind, name, value)

        def failed(failure: Failure) -> Failure:
            undo()
            return failure

        def durable(_: object) -> Result:
            when_done()
            return result

        done = batch.commit().addCallbacks(durable, failed)
        return self._pending.follow(key, done)

    def _undo_declare(self, definition: ExchangeDefinition) -> None:
        if definition.name in self.graph:
            self._take_back(self.graph.delete(definition.name))

    def _undo_bind(self, binding: ExchangeBinding) -> None:
        try:
            change = self.graph.unbind(binding)
        except TopologyFault:
            return  # it went meanwhile, with its queue or its exchange
        self._take_back(change)

    def _take_back(self, change: GraphChange) -> None:
        """Have the store forget what was made meanwhile of what is undone."""
        words = "the store holds records of exchanges that could not be restored"
        self._delete_from_store(self._forget(change), words)

    def _delete_from_store(self, removed: RemovedTopology, words: str, queue: str = "") -> None:
        """Delete the notes of what was removed from memory, and what is still to be taken out.

        Args:
            removed: from memory.
            words: the log line if the store refuses, a format string.
            queue: the deleted queue, a field of `words`.
        """
        batch = self._begin()
        self.write_off(removed, batch)
        done = batch.commit().addErrback(
            lambda failure: self.log.failure(words, failure, queue=queue)
        )
        done.addCallback(lambda _: self.take_apart(removed))


def _octets(arguments: Mapping[str, object]) -> int:
    return EACH + (OCTET_FACTOR * len(argument_octets(arguments)) if arguments else 0)


def _number(key: str) -> int:
    return int(key) if key.isdecimal() else 0


__all__ = [
    "EACH",
    "MOST_OCTETS",
    "QueueDirectory",
    "RemovedTopology",
    "Topology",
    "TopologyStep",
]
