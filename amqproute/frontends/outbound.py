# SPDX-License-Identifier: Apache-2.0
"""A link that the other side receives on: entries from a source."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zope.interface import implementer

from amqproute import conditions
from amqproute.entry import Entry
from amqproute.errors import MessageSizeExceeded
from amqproute.interfaces import IConsumer
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Delivery, Link

if TYPE_CHECKING:
    from amqproute.frontends.amqp10 import Frontend

ACCEPTED = spec.Accepted()
RELEASED = spec.Released()
OUTCOMES = (spec.Accepted, spec.Rejected, spec.Released, spec.Modified)
_TAG = struct.Struct(">I").pack


@implementer(IConsumer)
class Outbound:
    """An `IConsumer` that sends entries on a link and brings the outcomes back.

    Args:
        frontend: the connection it belongs to.
        link: our sending end.
        source: the `ISource`.
        default_outcome: for deliveries settled without one, or orphaned (O-17).
        settled: the receiver asked for settled deliveries (snd-settle-mode settled).
        dynamic: the source was made for this link and goes with it.
        copies: the link browses: it holds nothing, and its outcomes are its own affair.
    """

    __slots__ = (
        "__weakref__",
        "_agreed",
        "_bytes",
        "_frontend",
        "_tags",
        "copies",
        "default_outcome",
        "dynamic",
        "link",
        "settled",
        "source",
    )

    def __init__(
        self,
        frontend: Frontend,
        link: Link,
        source: Any,
        default_outcome: Any,
        settled: bool,
        dynamic: bool,
        copies: bool = False,
    ) -> None:
        self._frontend = frontend
        self.link = link
        self.source = source
        self.default_outcome = default_outcome
        self.settled = settled
        self.dynamic = dynamic
        self.copies = copies
        self._tags = 0
        self._bytes = 0
        outcomes = link.source.outcomes if link.source is not None else ()
        self._agreed = tuple(each for each in OUTCOMES if each.symbol in outcomes) or OUTCOMES

    def __repr__(self) -> str:
        return f"<Outbound {self.link.name!r} from {self.source.name} credit={self.link.credit}>"

    # -- IConsumer -----------------------------------------------------------------------------

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        link = self.link
        frontend = self._frontend
        if frontend.is_paused or frontend.is_stopping:
            return 0
        room = link.sendable
        if room <= 0:
            return 0
        limits = frontend.limits
        if self._bytes >= limits.unsettled_bytes:
            return 0
        free = limits.unsettled - len(link.unsettled)
        return room if room < free else max(0, free)

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        link = self.link
        now_ms = self._frontend.now_ms()
        send = link.send
        settled = self.settled
        sent = []
        tag = self._tags
        for entry in entries:
            head, rest = entry.message.for_delivery(
                entry.delivery_count, entry.attempted, entry.expires_ms, now_ms
            )
            tag = (tag + 1) & 0xFFFFFFFF
            try:
                send((head, rest), _TAG(tag), settled=settled, context=entry)
            except MessageSizeExceeded:
                self._too_large(entry)
                continue
            if not self.copies:
                entry.attempted = True
            entry.message.forget()
            self._bytes += len(entry.message.encoded)
            sent.append(entry)
        self._tags = tag
        if settled and sent:
            self._bytes = 0
            self._frontend.settle(self, sent, ACCEPTED)
        self._frontend.flush()

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        if self.copies:
            return []
        return [delivery.context for delivery in self.link.unsettled.values() if delivery.context]

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: answer a drain (F-10)."""
        link = self.link
        if link.drain and link.is_active:
            link.drained()
            self._frontend.flush()

    def _too_large(self, entry: Entry) -> None:
        """The receiver's max-message-size bars it from this entry; others may take it."""
        outcome = spec.Modified(delivery_failed=False, undeliverable_here=True)
        self._frontend.settle(self, [entry], outcome)

    # -- the receiver's answers ------------------------------------------------------------------

    def updated(self, deliveries: Sequence[Delivery], state: Any, settled: bool) -> None:
        """Act on a disposition of the receiver's."""
        if type(state) is spec.TransactionalState:
            words = "transactions are not offered"
            self._break(conditions.NOT_IMPLEMENTED, words, deliveries)
            return
        is_outcome = isinstance(state, self._agreed)
        if not is_outcome:
            if isinstance(state, OUTCOMES):
                words = f"the outcome {state.symbol} was not agreed at attach"
                self._break(conditions.NOT_ALLOWED, words, deliveries)  # O-31
                return
            if not settled:
                return
            state = self.default_outcome
        entries = []
        contradicted = None
        for delivery in deliveries:
            # The first outcome counts: a repetition, or the settling of it, changes nothing.
            if delivery.context is not None:
                entries.append(delivery.context)
                delivery.context = None
                delivery.local_state = state
            elif is_outcome and type(delivery.local_state) is not type(state):
                contradicted = delivery
                break
        if entries:
            self.forget(entries)
            self._frontend.settle(self, entries, state, None if settled else deliveries)
        if contradicted is not None:
            words = f"delivery {contradicted.id} has another outcome already"
            self._break(conditions.ILLEGAL_STATE, words, deliveries)  # it is final (O-15)

    def _break(
        self, condition: conditions.Condition, words: str, deliveries: Sequence[Delivery]
    ) -> None:
        """End the link for a fault of the receiver's; what it held goes back."""
        error = spec.Error(condition=condition, description=words)
        self._frontend.fail(self.link, error, deliveries)

    def forget(self, entries: Sequence[Entry]) -> None:
        """These are not unsettled any more."""
        self._bytes = max(0, self._bytes - sum([len(entry.message.encoded) for entry in entries]))

    def gone(self, deliveries: Sequence[Delivery]) -> None:
        """The link is gone: what it held goes the way of the default outcome (O-06, Q-34)."""
        self.source.detach(self)
        entries = [delivery.context for delivery in deliveries if delivery.context is not None]
        if entries and not self.copies:
            self._frontend.settle(self, entries, self.default_outcome)
        if self.dynamic:
            self._frontend.delete_dynamic(self.source)
