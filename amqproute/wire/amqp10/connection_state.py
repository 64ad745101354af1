# SPDX-License-Identifier: Apache-2.0
"""A connection as its sessions and links use it: shared counters, and the output of frames.

This is below sessions and links, which are typed by it; `connection.Connection`, above them,
inherits it. Sessions and links append their frames to the output and their events to the list of
the call that is under way, and never see how a connection begins, reads or ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import Final

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection_settings import ConnectionSettings
from amqproute.wire.amqp10.frames import encode_frame
from amqproute.wire.amqp10.state_tables import LinkStateName
from amqproute.wire.engine import Event

MOST_UNSETTLED: Final = 5_000
"""Entries in the unsettled map of an attach of ours: with their states no more than
`MOST_VALUES`."""

_HEAD_ROOM: Final = 128
"""Octets that frame header and transfer, without a state, have at most: 76, rounded up."""


_CLOSING: Final = (spec.Detach, spec.End, spec.Close)


class ConnectionState(ABC):
    """State shared by the sessions and links of a connection.

    Attributes:
        settings: the settings of the connection.
        remote_max_frame_size: the largest frame that we send.
        partial_bytes: octets held by deliveries that have begun and not ended.
        endpoint_octets: memory of sessions and links, estimated: of those that the peer has begun
            or attached and that are not over.
        frames_in: frames received.
        frames_out: frames sent.
        deliveries_in: whole deliveries received.
        deliveries_out: deliveries sent.
        work: units of work spent on input (`amqproute.wire.input_cost`).
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.remote_max_frame_size = spec.MIN_MAX_FRAME_SIZE
        self.partial_bytes = 0
        self.endpoint_octets = 0
        self.frames_in = 0
        self.frames_out = 0
        self.deliveries_in = 0
        self.deliveries_out = 0
        self.work = 0
        self._state = LinkStateName.UNBOUND
        # Frames without effect, which are counted against those with one.
        self._ineffective = 0
        # The largest frame that we take, by our open.
        self._frame_limit = settings.max_frame_size
        self._single_payload = spec.MIN_MAX_FRAME_SIZE - _HEAD_ROOM
        self._now = 0.0
        # Frames to send: they leave as soon as our AMQP header has left.
        self._sink: list[bytes] = []
        # Events of the current call.
        self._events: list[Event] = []
        # The link of the last event, if that reports deliveries and the next may join them.
        self._batch_link: object = None

    @property
    def state(self) -> LinkStateName:
        """State of the connection endpoint (`amqproute.wire.amqp10.state_tables`)."""
        return self._state

    def _set_remote_max_frame_size(self, size: int) -> None:
        self.remote_max_frame_size = size
        self._single_payload = size - _HEAD_ROOM

    def _send(self, channel: int, performative: spec.Performative) -> None:
        frame = encode_frame(channel, performative)[0]
        if (
            len(frame) > self.remote_max_frame_size
            and isinstance(performative, _CLOSING)
            and performative.error is not None
        ):
            # Better a short reason than a frame that the peer cannot accept.
            performative.error = spec.Error(
                condition=performative.error.condition,
                description=(performative.error.description or "")[:80],
            )
            frame = encode_frame(channel, performative)[0]
        self._sink.append(frame)
        self.frames_out += 1

    def _send_attach(self, channel: int, attach: spec.Attach) -> None:
        """Send an attach; cut its unsettled map until a frame and a peer of our kind take it.

        See part 2 §2.7.3.
        """
        if attach.unsettled and len(attach.unsettled) > MOST_UNSETTLED:
            attach.unsettled = dict(islice(attach.unsettled.items(), MOST_UNSETTLED))
            attach.incomplete_unsettled = True
        frame = encode_frame(channel, attach)[0]
        while len(frame) > self.remote_max_frame_size and attach.unsettled:
            kept = list(attach.unsettled.items())
            attach.unsettled = dict(kept[: len(kept) // 2]) or None
            attach.incomplete_unsettled = True
            frame = encode_frame(channel, attach)[0]
        self._sink.append(frame)
        self.frames_out += 1

    def _emit(self, event: Event) -> None:
        self._batch_link = None
        self._events.append(event)

    @abstractmethod
    def _note_progress(self, deliveries: int) -> None:
        """Count deliveries that came or changed against frames without effect."""

    @abstractmethod
    def _count_ineffective(self) -> None:
        """Count a frame without effect.

        Raises:
            ConnectionFaultError: there are too many of them.
        """


__all__ = ["MOST_UNSETTLED", "ConnectionState"]
