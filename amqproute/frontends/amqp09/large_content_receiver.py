# SPDX-License-Identifier: Apache-2.0
"""The body of a very large content on its way to the disk.

The engine hands it up in parts, as frames arrive. They become the body sections of a message
(`amqproute.translation.body_framing`) in a draft of the store. What is not written yet counts as
waiting for the disk, so the connection is not read while that is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amqproute.errors import PreconditionFailed
from amqproute.frontends.common.arriving_draft import ArrivingDraft
from amqproute.frontends.common.client_connection import ClientConnection
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


class LargeContentReceiver(ArrivingDraft):
    """The body of one content.

    Args:
        connection: the connection.
        content: its properties, translated.
        size: octets of the body.
        before: what precedes the body in the bare message; None if nobody wants its digest.
        ready: called with this, once, when the body is on the disk or cannot be kept; not if it
            was abandoned.

    Raises:
        NoCapacityError: too many large messages are on their way already.
        AmqpError: the store has no room for this one.
    """

    __slots__ = ("_framing", "_ready")

    def __init__(
        self,
        connection: ClientConnection,
        content: TranslatedContent,
        size: int,
        before: bytes | None,
        ready: Callable[[LargeContentReceiver], None],
    ) -> None:
        super().__init__(connection)
        self._ready = ready
        self._framing = BodyFraming(content, size)
        self._share.check()
        self._share.check_size(size)
        self._begin(before)

    def __repr__(self) -> str:
        return f"<LargeContentReceiver {self._draft!r}>"

    @property
    def _has_footer(self) -> bool:
        return self._framing.has_footer

    def _notify(self) -> None:
        self._ready(self)

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
        if octets:
            self._share.grow(octets)
        self._append(framed, bare, octets, is_last)

    def abandon(self) -> None:
        """Let go of what has come. To be called before the last part only."""
        if self._draft is not None:
            self._draft.abandon()
            self._draft = None
            self._share.release()
