# SPDX-License-Identifier: Apache-2.0
"""The body of a very large content on its way to the disk.

The engine hands it up in parts, as frames arrive. They become the body sections of a message
(`amqproute.translation.body_framing`) in a draft of the store. What is not written yet counts as
waiting for the disk, so the connection is not read while that is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.python.failure import Failure

from amqproute.body import IBody
from amqproute.errors import PreconditionFailed
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.draft_share import DraftShare
from amqproute.interfaces import IBodyDraft
from amqproute.translation.body_framing import BodyFraming
from amqproute.translation.content_message import ContentRefused, TranslatedContent

__all__ = ["ArrivingBody", "LargeContentReceiver"]


class ArrivingBody:
    """Stands for a body that has not come yet, to find out whether its message would be taken.

    Args:
        size: octets of the content.
        has_footer: a footer will follow.
    """

    number = 0

    def __init__(self, size: int, has_footer: bool) -> None:
        self.size = size
        self.has_footer = has_footer


class LargeContentReceiver:
    """The body of one content.

    Args:
        connection: the connection.
        content: its properties, translated.
        size: octets of the body.
        before: what precedes the body in the bare message; None if nobody wants its digest.
        ready: called with this, once, when the body is on the disk or cannot be kept; not if it
            was abandoned.

    Attributes:
        body: what is on the disk.
        failure: why it cannot be kept.

    Raises:
        NoCapacityError: too many large messages are on their way already.
        AmqpError: the store has no room for this one.
    """

    __slots__ = (
        "_connection",
        "_draft",
        "_framing",
        "_ready",
        "_share",
        "body",
        "failure",
    )

    def __init__(
        self,
        connection: ClientConnection,
        content: TranslatedContent,
        size: int,
        before: bytes | None,
        ready: Callable[[LargeContentReceiver], None],
    ) -> None:
        self._connection = connection
        self._ready = ready
        self._framing = BodyFraming(content, size)
        self._share = DraftShare(connection)
        self._share.check()
        self._share.check_size(size)
        self.body: IBody | None = None
        self.failure: Failure | None = None
        self._draft: IBodyDraft | None = connection.context.broker.draft(self._written, before)
        self._share.take()

    def __repr__(self) -> str:
        return f"<LargeContentReceiver {self._draft!r}>"

    @property
    def octets(self) -> int:
        """Octets of the message that have come and are not with a queue yet."""
        if self._draft is not None:
            return int(self._draft.size)
        return 0 if self.body is None else int(self.body.size)

    def add(self, parts: Sequence[bytes], is_last: bool) -> None:
        """Take the next octets of the body.

        Raises:
            AmqpError: the message is refused, or there is no room for the rest of it.
        """
        try:
            framed = self._framing.frame(parts)
            bare: list[bytes] = framed
            if is_last:
                more, footer = self._framing.finish()
                bare = framed + more
                framed = bare + footer
        except ContentRefused as error:
            raise PreconditionFailed(str(error)) from None
        octets = sum(map(len, framed))
        assert self._draft is not None
        if octets:
            self._share.grow(octets)
            self._connection.hold(octets)
            self._draft.append(framed, bare)
        if is_last:
            self._draft.finish().addCallbacks(self._finished, self._failed).addErrback(
                self._connection.broken, "taking a large message"
            )

    def abandon(self) -> None:
        """Let go of what has come. To be called before the last part only."""
        if self._draft is not None:
            self._draft.abandon()
            self._draft = None
            self._share.release()

    def _written(self, size: int) -> None:
        self._connection.release(size)
        self._connection.flush()

    def _finished(self, body: IBody) -> None:
        # The draft refers to us: a file must not wait for the garbage collector.
        self._draft = None
        self._share.release()
        body.has_footer = self._framing.has_footer
        self.body = body
        self._ready(self)

    def _failed(self, failure: Failure) -> None:
        self._draft = None
        self._share.release()
        self.failure = failure
        self._ready(self)

    def take(self) -> IBody | None:
        """Hand the body over, and keep nothing of it."""
        body, self.body = self.body, None
        return body
