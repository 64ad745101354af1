# SPDX-License-Identifier: Apache-2.0
"""Staged contents on their way into messages: from the staging to the publisher of a channel.

A content that fits into memory becomes a publish like any other. A larger one is read in parts,
which the publisher takes as if they came from the client; the next one is read when the one before
it is on the disk.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from amqproute.errors import StagedContentLost, StagingFull, StoreError, StoreUnavailable
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.interfaces import IBodyReader, IStagedContent
from amqproute.wire.amqp09.protocol_events import ContentPartReceived
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["LARGE_BYTES", "LargePublishFeed", "publish_staged", "staging_reply"]

LARGE_BYTES: Final = 1024 * 1024
"""Octets from which on a staged content is not read into memory."""
GONE: Final = StagedContentLost("the channel ended before the content was published")
PART_BYTES: Final = 256 * 1024
"""Octets read at a time."""


def staging_reply(error: StoreError) -> tuple[ReplyCode, str]:
    """Return code and text for what cannot be staged, or read again."""
    if isinstance(error, StagingFull):
        if error.is_number:
            return ReplyCode.RESOURCE_ERROR, str(error)
        return ReplyCode.CONTENT_TOO_LARGE, str(error)
    if isinstance(error, StagedContentLost):
        return ReplyCode.RESOURCE_LOCKED, str(error)
    if isinstance(error, StoreUnavailable):
        return ReplyCode.CONTENT_TOO_LARGE, "there is no room for the content now"
    return ReplyCode.INTERNAL_ERROR, "the message store failed"


def publish_staged(
    channel: TransactionMethods, publish: ClassPublish, content: IStagedContent
) -> Deferred[None]:
    """Publish a staged content.

    Returns:
        A Deferred that fires when the publisher has it, or does not want it; it fails with
        `StoreError` if the content cannot be read.
    """
    size = publish.size

    def put() -> None:
        if channel.is_ended:
            raise GONE
        with channel.connection.event_batch:
            channel.publish_class([publish])
        channel.connection.flush()

    if not size:
        put()
        return succeed(None)
    try:
        if size > LARGE_BYTES:
            return LargePublishFeed(channel, publish, content).run()
        reader: IBodyReader = content.reader()
        reading: Deferred[bytes] = reader.read(size)
    except StoreError as error:
        return fail(error)

    def has_read(octets: bytes) -> None:
        reader.close()
        publish.parts = [octets]
        put()

    def has_failed(failure: Failure) -> Failure:
        reader.close()
        return failure

    return reading.addCallbacks(has_read, has_failed)


class LargePublishFeed:
    """Hands one staged content to a publisher, part by part.

    Args:
        channel: the channel whose publisher takes the parts.
        publish: what is published; its size is that of the content.
        content: is read.
    """

    __slots__ = ("_channel", "_done", "_publish", "_reader")

    def __init__(
        self,
        channel: TransactionMethods,
        publish: ClassPublish,
        content: IStagedContent,
    ) -> None:
        self._channel = channel
        self._publish = publish
        self._reader: IBodyReader = content.reader()
        self._done: Deferred[None] = Deferred()

    def run(self) -> Deferred[None]:
        """Return a Deferred that fires when all of it is handed over, or the rest is not wanted.

        It fails with `StoreError` if the content cannot be read; what was handed over is dropped.
        """
        self._read()
        return self._done

    def _read(self) -> None:
        reading: Deferred[bytes] = self._reader.read(PART_BYTES)
        reading.addCallback(self._has_read).addErrback(self._failed)

    def _has_read(self, octets: bytes) -> None:
        channel = self._channel
        if not channel.channel.is_open:
            raise GONE
        is_last = not self._reader.left
        event = ContentPartReceived(channel.channel, self._publish, [octets], is_last)
        is_wanted = channel.publish_part(event)
        if is_last or not is_wanted:
            self._end()  # a refusal is told to the class by the publisher
        else:
            channel.when_part_written(self._read)

    def _failed(self, failure: Failure) -> None:
        self._channel.drop_parts()
        self._reader.close()
        self._done.errback(failure)

    def _end(self) -> None:
        self._reader.close()
        self._done.callback(None)
