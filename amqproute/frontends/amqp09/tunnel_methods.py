# SPDX-License-Identifier: Apache-2.0
"""The class tunnel on a channel: blocks of another protocol for a node (09: part 1.13).

A tunnel.request is put on the node that ``proxy-name`` names: a queue, or an address in another
organization. What its consumers of 0-9 get is in `tunnel_consumer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from amqproute.content_class import ContentClass
from amqproute.errors import MessageSizeExceeded, NotFound
from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.translation.content_classes import META_DATA
from amqproute.wire.amqp09.contents import Content
from amqproute.wire.amqp09.field_tables import FieldValue
from amqproute.wire.amqp09.methods import BasicPublish, TunnelProperties, TunnelRequest
from amqproute.wire.amqp09.protocol_events import ContentPartReceived
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["TunnelMethods"]


class TunnelMethods(ClassMethods):
    """See `ClassMethods`."""

    content_class = ContentClass.TUNNEL

    def target_of(self, content: Content) -> BasicPublish:
        """See `ClassMethods.target_of`.

        Raises:
            NotFound: the content has no proxy-name.
        """
        properties = content.properties
        assert isinstance(properties, TunnelProperties)
        if not properties.proxy_name:
            raise NotFound("the proxy-name of a tunnel.request names its node, and there is none")
        # What has no way comes back to `returned`.
        return BasicPublish(routing_key=properties.proxy_name, mandatory=True)

    def headers_of(self, content: Content) -> Mapping[str, FieldValue] | None:
        """See `ClassMethods.headers_of`."""
        method = content.method
        assert isinstance(method, TunnelRequest)
        return {META_DATA: method.meta_data} if method.meta_data else None

    def take_part(self, event: ContentPartReceived) -> None:
        """See `ClassMethods.take_part`.

        Raises:
            MessageSizeExceeded: a consumer would get it in parts, which it could not tell apart
                from those of other requests.
        """
        size = event.content.size
        raise MessageSizeExceeded(f"a tunnel.request of {size} octets; one mebibyte is taken")

    def returned(self, publish: ClassPublish, code: ReplyCode, text: str) -> bool:
        """See `PublishListener.returned`: there is no tunnel.return, so the channel ends."""
        name = publish.method.routing_key
        self.channel.fail(
            ReplyCode.NOT_FOUND, f"there is no node {name!r}", publish.original.method
        )
        return True
