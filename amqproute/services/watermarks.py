# SPDX-License-Identifier: Apache-2.0
"""Watermarks of the resources that the broker fills: disk, store, memory.

Every `LOOK_SECONDS`, and more often near the floor, the store reports its free space
(`IStore.room`, measured on the writer's thread, so that a hanging disk blocks nothing else), and
the `PublishGate` of the broker is closed or opened:

* **disk**: the file system has less room than the floor (`store.min-free`). Free pages within the
  database count as room, since new messages go there first: the database rarely shrinks, so by the
  free octets alone an emptied broker would stay closed. Large messages go to separate files and
  need room on the file system itself; so free pages never replace more than half of the floor.
* **max-bytes**: the store holds more than `store.max-bytes`.
* **store**: a commit failed for lack of room, or the disk failed. A small commit is tried after a
  second, later after up to `LONGEST_SECONDS`, and the gate opens when one succeeds: quotas and
  failing disks do not show in the figures of a file system. With twice the room of the last failure
  (`is_worth_a_try`), the next try is made at once.
* **damage**: the database has proved damaged while it was open. Nothing here opens it again: only a
  restart does, which checks it (`amqproute.store.database_schema.MEANINGS`).
* **memory**: see `broker.publish_gate.HeldMemory`. Memory held by receivers does not close the
  gate: `broker.outgoing_memory`.

Each opens only when there is a tenth more room than where it closed (for max-bytes and memory: a
tenth and a quarter less is used), so it does not flutter. The log has one line for each change,
with the queues that hold most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.broker import Broker
from amqproute.broker.outgoing_memory import OutgoingMemory
from amqproute.broker.publish_gate import (
    DAMAGE,
    DISK,
    JOURNAL,
    MAX_BYTES,
    MEMORY,
    STORE,
    HeldMemory,
    PublishGate,
)
from amqproute.broker.queue import Queue
from amqproute.errors import StoreError
from amqproute.interfaces import IStore
from amqproute.plurals import counted
from amqproute.store.model import is_worth_a_try
from amqproute.stored import StoreRoom

__all__ = ["LOOK_SECONDS", "DiskTerms", "Watermarks"]

LOOK_SECONDS: Final = 1.0
NEAR_SECONDS: Final = 0.2
"""Seconds between two checks with less than three times the floor."""
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
WELL_SECONDS: Final = 60.0
"""Seconds of successful writes after which a failure counts as the first one."""
OUTGOING: Final = "outgoing"
"""The mark for memory held by receivers, which does not close the gate for publishers."""
PROBE: Final = "probe"
"""The kind of the note that is written to test the store."""
LARGEST: Final = 3
"""Queues that are named in the log."""
USUAL_FLOOR: Final = 1 << 30
USUAL_PART: Final = 20
"""The default floor: a gibibyte, but not more than a twentieth of the file system."""


@dataclass(frozen=True, slots=True)
class DiskTerms:
    """Disk settings of the configuration.

    Attributes:
        min_free: the floor in octets, or None.
        min_free_percent: the floor in percent of the file system, or None. With neither the default
            applies.
        max_bytes: octets that the store may hold; 0 for no bound.
    """

    min_free: int | None = None
    min_free_percent: float | None = None
    max_bytes: int = 0

    def floor(self, total: int) -> int:
        """Return the floor on a file system of this size."""
        if self.min_free is not None:
            return self.min_free
        if self.min_free_percent is not None:
            return int(total * self.min_free_percent / 100)
        return min(USUAL_FLOOR, total // USUAL_PART)


@dataclass(slots=True)
class MemoryUse:
    """The memory that messages take.

    Attributes:
        held: messages in progress.
        sample: counts messages in memory that `held` does not include.
        outgoing: messages held by receivers.
        others: octets of messages in memory with separate bounds, by place.
    """

    held: HeldMemory
    sample: Callable[[], int] = lambda: 0
    outgoing: OutgoingMemory = field(default_factory=OutgoingMemory)
    others: Callable[[], Mapping[str, int]] = dict


class Watermarks:
    """Measures, and opens and closes the publish gate.

    Args:
        broker: owner of the gate; its queues are named.
        store: the `IStore`.
        clock: the clock for repeated checks.
        directory: the directory of the store, for texts.
        terms: see `DiskTerms`.
        memory: its use by messages.

    Attributes:
        terms: replaced on a reload.
        room: the last measurement; None before the first.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        store: IStore,
        clock: IReactorTime,
        directory: str,
        terms: DiskTerms,
        memory: MemoryUse,
    ) -> None:
        self._broker = broker
        self._store = store
        self._clock = clock
        self._directory = directory
        self._memory = memory.held
        self._sample = memory.sample
        self._outgoing = memory.outgoing
        self._others = memory.others
        self._was_pressed = False
        self._gate: PublishGate = broker.gate
        self._call: IDelayedCall | None = None
        self._is_measuring = False
        self._is_stopped = False
        self._is_near = False
        self._retry_at = 0.0
        self._least_writable: int | None = None  # since the last failure
        self._is_trying = False
        self._patience = FIRST_SECONDS
        self._opened_at = 0.0
        self.terms = terms
        self.room: StoreRoom | None = None
        self._gate.watch(self._changed)

    def __repr__(self) -> str:
        return f"<Watermarks {self._gate!r} {self.room!r}>"

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the checks, the first one at once."""
        self._look()

    def stop(self) -> None:
        """Stop the checks."""
        self._is_stopped = True
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _look(self) -> None:
        self._call = self._clock.callLater(
            NEAR_SECONDS if self._is_near else LOOK_SECONDS, self._look
        )
        self._memory.arriving_bytes = self._sample()
        self._memory.look()
        self._look_at_outgoing()
        self._look_at_store()
        if self._is_measuring:
            return  # the writer is busy with a commit, or the disk hangs
        self._is_measuring = True
        self._store.room().addCallbacks(self._measured, self._not_measured).addErrback(
            lambda failure: self.log.failure("the check of the disk failed", failure)
        )

    def _not_measured(self, failure: Failure) -> None:
        self._is_measuring = False
        failure.trap(StoreError)  # type: ignore[no-untyped-call] # Twisted's
        self.log.debug("the room of the store is not known: {error}", error=str(failure.value))

    # -- marks ---------------------------------------------------------------------------------

    @property
    def spare(self) -> int | None:
        """Octets that files of the store may take before publishers wait; None if not known yet."""
        room, most = self.room, self.terms.max_bytes
        if room is None:
            return None
        spare: int = room.free - self.terms.floor(room.total)
        return max(0, min(spare, most - room.used) if most else spare)

    @staticmethod
    def level(room: StoreRoom) -> int:
        """Return the room that counts against the floor, see above."""
        return int(min(2 * room.free, room.free + room.reusable))

    def _measured(self, room: StoreRoom) -> None:
        self._is_measuring = False
        self.room = room
        if self._is_stopped:
            return
        floor = self.terms.floor(room.total)
        level = self.level(room)
        self._is_near = level < 3 * floor
        self._compare_with_failure(room)
        if room.is_short:
            self._gate.close(
                DISK,
                f"{self._directory} was full and has {octets(room.free)} free of "
                f"{octets(room.total)}{within(room.reusable)}: free some, or have messages "
                f"consumed or purged; open again at {octets(room.plenty)} free, or as much within "
                f"the database{shrinking(room)}",
            )
        elif level < floor:
            self._gate.close(
                DISK,
                f"{self._directory} has {octets(room.free)} free of {octets(room.total)}"
                f"{within(room.reusable)}, the floor store.min-free is {octets(floor)}; free "
                f"some, or have messages consumed or purged; open again at {octets(again(floor))}"
                f"{shrinking(room)}",
            )
        elif level >= again(floor):
            self._gate.open(DISK)
        most = self.terms.max_bytes
        if most and room.used > most:
            self._gate.close(
                MAX_BYTES,
                f"the store in {self._directory} holds {octets(room.used)}, store.max-bytes is "
                f"{octets(most)}; have messages consumed or purged; open again at "
                f"{octets(most - most // 10)}",
            )
        elif not most or room.used <= most - most // 10:
            self._gate.open(MAX_BYTES)

    def _look_at_outgoing(self) -> None:
        """Log once when receivers are limited, and when they no longer are."""
        outgoing = self._outgoing
        if outgoing.is_pressed == self._was_pressed:
            return
        self._was_pressed = outgoing.is_pressed
        if not outgoing.is_pressed:
            self.log.info("receivers may hold as much as before")
            return
        self.log.warn(
            "receivers hold {used} of messages that they have not settled ({by}), limits.memory is "
            "{limit}: until they settle, each of these {holders} gets no more than {part}; "
            "`amqproute link ls` shows what is unsettled",
            used=octets(outgoing.used_bytes),
            by=", ".join(f"{name} {octets(size)}" for name, size in outgoing.by.items()),
            limit=octets(outgoing.limit_bytes),
            holders=outgoing.holders,
            part=octets(outgoing.part_bytes),
        )

    def _look_at_store(self) -> None:
        now = self._clock.seconds()
        if STORE not in self._gate.reasons:
            if now - self._opened_at > WELL_SECONDS:
                self._patience = FIRST_SECONDS
            return
        if not self._retry_at:
            self._retry_at = now + self._patience
            self._least_writable = None
            self._patience = min(2 * self._patience, LONGEST_SECONDS)
        elif now >= self._retry_at and not self._is_trying:
            self._is_trying = True
            batch = self._broker.begin()
            batch.transaction.note(PROBE, "at", b"%d" % batch.now_ms)
            batch.commit().addCallbacks(self._writes, self._writes_not)

    def _compare_with_failure(self, room: StoreRoom) -> None:
        """Try at once if there is much more room than at the store's failure."""
        if not self._retry_at or self._is_trying:
            return
        least = self._least_writable
        if least is None or room.writable < least:
            self._least_writable = room.writable
        elif is_worth_a_try(room.writable, least):
            self._retry_at = min(self._retry_at, self._clock.seconds())

    def _writes(self, _: object) -> None:
        self._is_trying = False
        self._retry_at = 0.0
        self._opened_at = self._clock.seconds()
        self._gate.open(STORE)

    def _writes_not(self, failure: Failure) -> None:
        self._is_trying = False
        failure.trap(StoreError)  # type: ignore[no-untyped-call] # Twisted's
        self._retry_at = 0.0  # from now on, and longer

    # -- words ---------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Log a change of the gate. Additional reasons are shown by `rows` only."""
        if self._gate.is_open:
            self.log.info("publishers have credit again")
            return
        self.log.warn(
            "no credit for publishers: {reasons}. Most is held by {queues}",
            reasons="; ".join(self._gate.reasons.values()),
            queues=", ".join(
                f"{queue.name} ({octets(size)}, {counted(queue.depth, 'message')})"
                for size, queue in self._largest()
            )
            or "no queue",
        )

    def _largest(self) -> list[tuple[int, Queue]]:
        """Return the queues with the most octets, and their octets."""
        sizes = [(each.resident_bytes + each.paged_bytes, each) for each in self._queues()]
        sizes.sort(key=lambda each: -each[0])
        return [each for each in sizes[:LARGEST] if each[0]]

    def _queues(self) -> Iterable[Queue]:
        broker = self._broker
        yield from broker.nodes.values()
        yield from broker.internal.values()
        for topic in broker.topics.values():
            for subscription in topic.durable.values():
                yield subscription.queue

    def status(self) -> str:
        """Return a line for the service manager; empty while all is well."""
        if self._gate.is_open:
            return ""
        return "no credit for publishers: " + "; ".join(self._gate.reasons.values())

    def rows(self) -> Iterable[dict[str, object]]:
        """Return the marks for operators: ``level`` against ``limit``, in octets."""
        room, gate, memory = self.room, self._gate, self._memory
        facts: list[tuple[str, int | None, int, int]] = []
        if room is not None:
            floor = self.terms.floor(room.total)
            most = self.terms.max_bytes
            facts = [
                (DISK, self.level(room), floor, again(floor)),
                (MAX_BYTES, room.used, most, most - most // 10),
            ]
        facts += [
            (MEMORY, memory.used_bytes, memory.limit_bytes, memory.low_bytes),
            (STORE, None, 0, 0),
            (JOURNAL, None, 0, 0),
            (DAMAGE, None, 0, 0),
        ]
        for name, level, limit, reopens_at in facts:
            row: dict[str, object] = {
                "name": name,
                "type": "watermark",
                "state": "closed" if name in gate.reasons else "open",
                "level": level,
                "limit": limit or None,
                "opens-at": reopens_at or None,
                "reason": gate.reasons.get(name, ""),
            }
            if name == DISK and room is not None:
                row |= {
                    "directory": self._directory,
                    "free": room.free,
                    "total": room.total,
                    "reusable": room.reusable,
                    "used": room.used,
                }
            elif name == STORE:
                row["quarantined"] = self._store.quarantined
            elif name == MEMORY:
                row["parts"] = self.places()
            yield row
        outgoing = self._outgoing
        yield {
            "name": OUTGOING,
            "type": "watermark",
            "state": "pressed" if outgoing.is_pressed else "open",
            "level": outgoing.used_bytes,
            "limit": outgoing.limit_bytes or None,
            "opens-at": outgoing.limit_bytes // 2 or None,
            "reason": (
                f"each of {outgoing.holders} receivers gets no more than "
                f"{octets(outgoing.part_bytes)} until it settles"
                if outgoing.is_pressed
                else ""
            ),
            "parts": dict(outgoing.by),
        }

    def places(self) -> dict[str, int]:
        """Return the octets of messages in memory by place; not all of them count here."""
        memory = self._memory
        return {
            "arriving": memory.arriving_bytes,
            "to-disk": memory.held_bytes,
            **self._outgoing.by,
            **self._others(),
        }


def again(floor: int) -> int:
    """Return the room at which the gate opens again."""
    return floor + floor // 10


def within(reusable: int) -> str:
    """Describe the free space within the database."""
    return f" and {octets(reusable)} within the database" if reusable else ""


def shrinking(room: StoreRoom) -> str:
    """Describe when the database will shrink."""
    if not room.plenty:
        return ""
    return (
        f"; the database is made smaller by itself once {octets(room.plenty // 2)} or less are "
        "left in it"
    )


def octets(size: int) -> str:
    """Format a size in binary units."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"
