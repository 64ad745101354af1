# SPDX-License-Identifier: Apache-2.0
"""Consumers of class basic on connections of 0-9, which get tunnel.request besides basic.deliver.

A tunnel.request has no delivery tag, so nobody can acknowledge it: it is settled when it is sent
(I-03). One with ``broadcast`` goes to all consumers of 0-9 that its queue has at that moment. Who
has no room just then gets it later, up to `MOST_COPIES`; what is beyond that is lost for that
consumer, counted, and logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqproute.broker.queue import Queue
from amqproute.content_class import ContentClass
from amqproute.entry import Entry
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.channel_consumer import ELSEWHERE, ChannelConsumer
from amqproute.frontends.amqp09.class_selection import class_of
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.interfaces import ISource
from amqproute.outcomes import ACCEPTED
from amqproute.translation.content_classes import from_basic
from amqproute.wire.amqp09.arguments import decode_properties
from amqproute.wire.amqp09.frame_output import FrameTooLargeError
from amqproute.wire.amqp09.methods import TunnelProperties, TunnelRequest

__all__ = ["MOST_COPIES", "MOST_COPY_OCTETS", "Consumer09"]

MOST_COPIES: Final = 100
"""Broadcasts that wait for one consumer."""
MOST_COPY_OCTETS: Final = 1024 * 1024
"""Octets of these."""


class _Broadcast(NamedTuple):
    """A tunnel.request on its way to a client."""

    method: TunnelRequest
    property_octets: bytes
    body: bytes

    @property
    def octets(self) -> int:
        """All that is in memory of it, as it is on the wire."""
        return len(self.body) + len(self.property_octets) + len(self.method.meta_data.octets)


class Consumer09(ChannelConsumer):
    """A consumer made by basic.consume, or a descendant of it, on a connection of 0-9.

    Attributes:
        copies_lost: broadcasts that it had no room for.
    """

    __slots__ = ("_copies", "_copy_octets", "_tunnels", "copies_lost")

    takes = frozenset((ContentClass.BASIC, ContentClass.TUNNEL))

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        tag: str,
        no_ack: bool,
        windows: Sequence[PrefetchWindow] = (),
    ) -> None:
        super().__init__(owner, source, name, tag, no_ack, windows)
        self._tunnels: deque[Entry] = deque()
        self._copies: deque[_Broadcast] = deque()
        self._copy_octets = 0
        self.copies_lost = 0

    @property
    def takes_tunnels(self) -> bool:
        """Whether it is given tunnel.request."""
        return ContentClass.TUNNEL in self.takes

    def class_facts(self) -> dict[str, object]:
        """See `ChannelConsumer.class_facts`."""
        return {"broadcasts-lost": self.copies_lost} if self.copies_lost else {}

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return 0 if self._tunnels else super().capacity()

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        tunnels = [each for each in entries if _is_tunnel(each)] if self.takes_tunnels else []
        if tunnels:
            self._tunnels.extend(tunnels)
            self._bytes += sum([len(each.message.encoded) for each in tunnels])
            self._held.update(dict.fromkeys(tunnels))
            entries = [each for each in entries if not _is_tunnel(each)]
        super().deliver(entries)

    def send_behind(self) -> None:
        """See `ChannelConsumer.send_behind`."""
        super().send_behind()
        self._send_tunnels()

    def dispatch(self) -> None:
        """See `NodeEndpoint.dispatch`."""
        if self._copies or self._tunnels:
            self._send_tunnels()
            self._connection.flush()
        super().dispatch()

    def stop(self) -> None:
        """See `ChannelConsumer.stop`."""
        if self._is_over:
            return
        super().stop()
        tunnels, self._tunnels = list(self._tunnels), deque()
        self._copies.clear()
        if tunnels:
            self._release(tunnels)

    # -- tunnel.request --------------------------------------------------------------------------

    @property
    def _may_send(self) -> bool:
        owner = self._owner
        return owner.channel.is_open and owner.channel.may_deliver and owner.sending is None

    def _send_tunnels(self) -> None:
        while self._copies and self._may_send and self._room(1, 0):
            copy = self._copies.popleft()
            self._copy_octets -= copy.octets
            self._owner.channel.send_content(copy.method, copy.property_octets, (copy.body,))
        sent: list[Entry] = []
        refused: list[Entry] = []
        while self._tunnels and self._may_send and not self._copies:
            entry = self._tunnels.popleft()
            (sent if self._send_tunnel(entry) else refused).append(entry)
        for entries, outcome in ((sent, ACCEPTED), (refused, ELSEWHERE)):
            if entries:
                self._drop(entries)
                self._settle(entries, outcome)

    def _send_tunnel(self, entry: Entry) -> bool:
        """Send the content of an entry; False if the client cannot be given it."""
        content = self._content(entry)
        if content is None:
            return False
        octets, meta_data = from_basic(ContentClass.TUNNEL, content.property_octets)
        request = _Broadcast(TunnelRequest(meta_data=meta_data), octets, b"".join(content.body))
        try:
            self._owner.channel.send_content(request.method, octets, (request.body,))
        except FrameTooLargeError:
            return False
        entry.attempted = True
        properties = decode_properties(TunnelProperties.class_id, octets)
        if isinstance(properties, TunnelProperties) and properties.broadcast:
            self._send_to_others(request)
        return True

    def _send_to_others(self, request: _Broadcast) -> None:
        if isinstance(self.source, Queue):
            for each in tuple(self.source.state.consumers.rotation):
                if each is not self and isinstance(each, Consumer09) and each.takes_tunnels:
                    each.take_copy(request)

    def take_copy(self, request: _Broadcast) -> None:
        """Send what was broadcast by another consumer of the queue, now or when there is room."""
        try:
            self._owner.channel.check_fits(request.method, request.property_octets)
        except FrameTooLargeError:
            self._lose("it does not fit into frames of the client")
            return
        if (
            len(self._copies) >= MOST_COPIES
            or self._copy_octets + request.octets > MOST_COPY_OCTETS
        ):
            self._lose("the client does not read what waits for it")
            return
        self._copies.append(request)
        self._copy_octets += request.octets
        self._send_tunnels()
        self._connection.flush()

    def _lose(self, why: str) -> None:
        self.copies_lost += 1
        self._connection.error_log.add(
            "{connection} ({principal}) consumer {consumer} loses a broadcast to {node}: {why}",
            consumer=self.tag,
            node=self.source.name,
            why=why,
        )


def _is_tunnel(entry: Entry) -> bool:
    """Whether an entry is sent as tunnel.request: a very large body is basic content."""
    return entry.message.rest is None and class_of(entry) is ContentClass.TUNNEL
