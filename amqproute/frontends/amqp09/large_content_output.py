# SPDX-License-Identifier: Apache-2.0
"""Bodies of very large messages on their way out: from the store to channels, in turns.

A connection has one part in memory, whatever its channels send: the next one is read when the
transport has taken this one. Channels with a large content take turns, and everything else the
connection has to say goes out between two parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from amqproute.body import IBody
from amqproute.errors import DecodeError, StoreError
from amqproute.translation.body_layout import BodyExtractor, BodyLayout, LayoutScan
from amqproute.wire.amqp09.channel import Channel

__all__ = ["BodyInspection", "LargeContent", "LargeContentOutput"]

PART_BYTES: Final = 256 * 1024
"""Octets read at a time: what others on the connection may have to wait for."""
SCAN_BYTES: Final = 64 * 1024
"""Octets of a body whose sections are looked at in one turn."""


class OutputOwner(Protocol):
    """The connection that large contents go out on.

    Attributes:
        is_paused: the transport has enough for now.
    """

    is_paused: bool

    def flush(self) -> None:
        """Have what the engine has to say written."""


class LargeContent:
    """One content whose method and header are written, and its body follows.

    Args:
        channel: on which.
        body: the `IBody` of the message.
        layout: the layout of the body.
        ended: called once: with None when all of it is written, with a failure when the rest cannot
            be read, and with False when the channel has gone before.
        skipped: octets at the beginning of the body that the peer has.
    """

    __slots__ = ("_ended", "_skipped", "channel", "extractor", "reader")

    def __init__(
        self,
        channel: Channel,
        body: IBody,
        layout: BodyLayout,
        ended: Callable[[Failure | bool | None], None],
        skipped: int = 0,
    ) -> None:
        self._skipped = skipped
        self.channel = channel
        self.reader = body.reader()
        self.extractor = BodyExtractor(layout)
        self._ended: Callable[[Failure | bool | None], None] | None = ended

    def __repr__(self) -> str:
        return f"<LargeContent {self.channel!r} left={self.extractor.left}>"

    @property
    def is_over(self) -> bool:
        """Nothing more of it is sent."""
        return self._ended is None

    def wanted(self, parts: Sequence[bytes]) -> Sequence[bytes]:
        """Return the next parts of the body without what the peer has."""
        if not self._skipped:
            return parts
        left: list[bytes] = []
        for part in parts:
            if self._skipped < len(part):
                left.append(part[self._skipped :])
            self._skipped = max(0, self._skipped - len(part))
        return left

    def end(self, why: Failure | bool | None) -> None:
        """Say how it has ended; see ``ended``."""
        ended, self._ended = self._ended, None
        self.reader.close()
        if ended is not None:
            ended(why)


class LargeContentOutput:
    """Output of large contents on one connection.

    Args:
        owner: the connection.
        clock: the reactor, for its turns.
    """

    __slots__ = ("_clock", "_contents", "_is_busy", "_owner")

    def __init__(self, owner: OutputOwner, clock: IReactorTime) -> None:
        self._owner = owner
        self._clock = clock
        self._contents: deque[LargeContent] = deque()
        self._is_busy = False

    def __repr__(self) -> str:
        return f"<LargeContentOutput {len(self._contents)}>"

    def add(self, content: LargeContent) -> None:
        """Send a content in turn with the others."""
        self._contents.append(content)
        self.go()

    def drop(self, content: LargeContent) -> None:
        """Send nothing more of a content: its channel has gone."""
        if content in self._contents:
            self._contents.remove(content)
            content.end(False)

    def go(self) -> None:
        """Send on, if the transport takes something."""
        if self._is_busy or not self._contents or self._owner.is_paused:
            return
        content = self._contents[0]
        self._contents.rotate(-1)
        self._is_busy = True
        read: Deferred[bytes] = content.reader.read(PART_BYTES)
        read.addCallback(self._has_read, content)
        read.addErrback(self._has_failed, content)
        # In a later turn: whether the transport has enough now shows when all is written.
        read.addCallback(lambda _: self._clock.callLater(0, self._next))

    def _next(self) -> None:
        self._is_busy = False
        self.go()

    def _has_read(self, octets: bytes, content: LargeContent) -> None:
        if content.is_over or not content.channel.is_open:
            return
        extractor = content.extractor
        if not octets and extractor.left:
            raise StoreError("the rest of the message is shorter than it was")
        content.channel.send_body(content.wanted(extractor.feed(octets)))
        if not extractor.left:
            self._contents.remove(content)
            content.end(None)
        self._owner.flush()

    def _has_failed(self, failure: Failure, content: LargeContent) -> None:
        if not content.is_over:
            self._contents.remove(content)
            content.end(failure)
            self._owner.flush()


class BodyInspection:
    """Finds the layout of a body in the store, some octets in each turn.

    Args:
        body: the `IBody`.
        done: called with the layout, or with a failure; not after `stop`.
    """

    __slots__ = ("_done", "_reader", "_scan")

    def __init__(self, body: IBody, done: Callable[[BodyLayout | Failure], None]) -> None:
        self._scan = LayoutScan(body.size)
        self._reader = body.reader()
        self._done: Callable[[BodyLayout | Failure], None] | None = done
        self._read()

    def __repr__(self) -> str:
        return f"<BodyInspection {self._scan!r}>"

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._done = None
        self._reader.close()

    def _read(self) -> None:
        read: Deferred[bytes] = self._reader.read(SCAN_BYTES)
        read.addCallback(self._has_read).addErrback(self._end)

    def _has_read(self, octets: bytes) -> None:
        if self._done is None:
            return
        scan = self._scan
        if not octets:
            raise DecodeError("the rest of the message is shorter than it was")
        at = scan.at + len(octets)
        scan.feed(octets)
        if scan.layout is not None:
            self._end(scan.layout)
            return
        self._reader.skip(scan.at - at)
        self._read()

    def _end(self, result: BodyLayout | Failure) -> None:
        done = self._done
        self.stop()
        if done is not None:
            done(result)
