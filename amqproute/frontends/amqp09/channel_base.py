# SPDX-License-Identifier: Apache-2.0
"""Interface of a channel to the methods of every class."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from amqproute.address import in_host
from amqproute.auth.policy import Verb
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.local_transaction import Transaction
from amqproute.errors import AmqpError, StoreError
from amqproute.frontends.amqp09.access_realms import ConnectionTickets, RealmUse
from amqproute.frontends.amqp09.amqp09_context import Amqp09Context
from amqproute.frontends.amqp09.large_content_output import LargeContent, LargeContentOutput
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.reply_texts import reply_code_of, reply_text
from amqproute.frontends.amqp09.stream_window import StreamWindow
from amqproute.frontends.amqp09.topology_replies import TopologyMethod, topology_reply
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod
from amqproute.wire.amqp09.versions import ProtocolVersion

__all__ = ["ChannelBase", "ChannelHost"]

MOST_BEHIND: Final = 100
"""Returns, confirms and answers that wait for the end of a large content before no more are
caused."""

Result = TypeVar("Result")


class ChannelHost(Protocol):
    """The connection of a channel, besides what every connection has.

    Attributes:
        amqp09: what all connections of these versions share.
        prefetch: the window of the connection (basic.qos with global, in 0-9).
        origin_name: marks what is published on the connection, for no-local.
    """

    amqp09: Amqp09Context
    prefetch: PrefetchWindow
    origin_name: str

    @property
    def content_output(self) -> LargeContentOutput:
        """The connection's output of large contents."""

    @property
    def file_window(self) -> PrefetchWindow:
        """The window of the connection's files (file.qos with global)."""

    @property
    def message_window(self) -> PrefetchWindow:
        """The window of the connection's transfers (message.qos with global)."""

    @property
    def stream_window(self) -> StreamWindow:
        """The window of the connection's streams (stream.qos with global)."""

    @property
    def tickets(self) -> ConnectionTickets:
        """Tickets given by access.request to channels of the connection (0-9)."""

    @property
    def version(self) -> ProtocolVersion:
        """What is spoken."""

    @property
    def client_capabilities(self) -> frozenset[str]:
        """Extensions that the client understands."""

    def forget_channel(self, channel: object) -> None:
        """A channel was closed from our side."""

    def throttle(self, who: Hashable) -> None:
        """Read nothing from the client until `unthrottle` is called for the same."""

    def unthrottle(self, who: Hashable) -> None:
        """Read on, unless there is another reason not to."""


class ChannelBase:
    """One open channel.

    Args:
        connection: its connection.
        host: the same, as the host of channels.
        channel: the channel of the engine.

    Attributes:
        virtual_host: that the connection has opened; empty for ``/``.
        topology: the exchanges there.
        queues: the declared queues there.
        reply_address: where replies to requests of this channel go (direct reply-to); None for
            nowhere.
        sending: the large content whose body is being sent; no other content can be meanwhile.
    """

    def __init__(self, connection: ClientConnection, host: ChannelHost, channel: Channel) -> None:
        self.sending: LargeContent | None = None
        self.reply_address: str | None = None
        self._behind_content: deque[Callable[[], None]] = deque()
        self.connection = connection
        self.host = host
        self.channel = channel
        self.context = context = connection.context
        self.virtual_host = connection.principal.host
        self.topology = context.broker.topology_of(self.virtual_host)
        self.queues = host.amqp09.queues.of(self.virtual_host)
        self.is_ended = False
        self._is_busy = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel!r}>"

    @property
    def is_0_9(self) -> bool:
        """Whether the client asked for 0-9 rather than 0-9-1."""
        return self.host.version is ProtocolVersion.V0_9

    @property
    def owner(self) -> str:
        """The declaring party, as access rules write it."""
        return str(self.connection.principal)

    def require(self, verb: Verb, node: str) -> None:
        """Check that the client has a right on a node, by its name in the virtual host.

        Raises:
            UnauthorizedAccess: it has not.
        """
        name = in_host(self.virtual_host, node)
        self.context.nodes.require(self.connection.principal, (verb,), name)

    def ticket_covers(self, number: int, uses: RealmUse, node: str, method: AmqpMethod) -> bool:
        """Check the ticket that a method names, which is not 0.

        Args:
            number: the number of the ticket.
            uses: of which it has to be good for one.
            node: the resource, as access rules name it.
            method: which closes the connection if the ticket is another channel's (09-ACC-13).

        Returns:
            False if it does.

        Raises:
            UnauthorizedAccess: there is no such ticket, or it does not cover that.
        """
        tickets = self.host.tickets
        ticket = tickets.find(number)
        if ticket is not None and ticket.channel is not self:
            self.fail(ReplyCode.NOT_ALLOWED, f"ticket {number} is another channel's", method)
            return False
        tickets.check(ticket, uses, node)
        return True

    # -- replies ---------------------------------------------------------------------------------

    def reply(self, request: AmqpMethod, answer: AmqpMethod) -> None:
        """Answer a method, unless its sender wants no answer."""
        if not getattr(request, "nowait", False):
            self.tell(answer)

    def tell(self, answer: AmqpMethod) -> None:
        """Send an answer, if the channel is open; where many have to wait, nothing is read."""
        channel = self.channel
        if channel.is_open:
            channel.send(answer)
            if channel.held_frames > MOST_BEHIND:
                self.host.throttle(waiting_for_content(self))

    def when_done(
        self, done: Deferred[Result], method: AmqpMethod, answer: Callable[[Result], None]
    ) -> None:
        """Go on with the channel when something is on the disk: what follows waits.

        Args:
            done: fires then.
            method: that asked for it.
            answer: called with the result.
        """
        if done.called:
            # As for transient queues: nothing is to be waited for, and order is kept so.
            done.addCallbacks(answer, self._not_done, errbackArgs=(method,))
            done.addErrback(self.broken, method)
            return
        self._is_busy = True
        done.addCallbacks(self._done, self._not_done, (answer,), errbackArgs=(method,))
        done.addErrback(self.broken, method)
        done.addBoth(self._go_on)

    def _done(self, result: Result, answer: Callable[[Result], None]) -> None:
        if not self.is_ended:
            with self.connection.event_batch:
                answer(result)

    def _not_done(self, failure: Failure, method: AmqpMethod) -> None:
        cause = failure.value
        if isinstance(cause, StoreError):
            words = "the message store takes nothing at present"
            self.fail(ReplyCode.INTERNAL_ERROR, words, method)
        elif isinstance(cause, AmqpError | TopologyFault):
            self.refuse(cause, method)
        else:
            self.broken(failure, method)

    def broken(self, failure: Failure, method: AmqpMethod) -> None:
        """Log a fault of this program, and close the connection for it."""
        name = method.traits.name
        self.connection.broken(failure, name)
        self.fail(ReplyCode.INTERNAL_ERROR, f"{name} failed; see the broker's log", method)

    def _go_on(self, _: object) -> None:
        self._is_busy = False
        self.resume()
        self.connection.flush()

    @property
    def is_transacted(self) -> bool:
        """Whether tx.select or dtx.select has had its turn.

        The engine knows of it as soon as it has read it, while what precedes it may still wait.
        """
        return False

    def transaction(self) -> Transaction | None:
        """Return the transaction of a transacted channel, begun where there is none."""
        return None

    def answered_get(self, getter: object) -> None:
        """A basic.get has its answer."""

    def delivered(self) -> None:
        """Something was delivered that has to be acknowledged."""

    def bound_reached(self) -> None:
        """A consumer that wants more gets nothing: the channel has too many unacknowledged."""

    def consumer_over(self, consumer: object) -> None:
        """A consumer takes nothing any more."""

    def resume(self) -> None:
        """Act on what has waited for the method before it."""

    # -- large contents that go out --------------------------------------------------------------

    @property
    def is_sending_body(self) -> bool:
        """A large content is being sent."""
        return self.sending is not None

    def send_large(self, content: LargeContent) -> None:
        """Send the body of a content that has just been begun; `large_sent` has to follow."""
        self.sending = content
        self.host.content_output.add(content)

    def large_sent(self) -> None:
        """The content being sent is complete: send what has waited for that."""
        self.sending = None
        waiting = self._behind_content
        while waiting and self.channel.is_open:
            waiting.popleft()()
            if self.is_sending_body:
                return
        if not waiting:
            self.host.unthrottle(waiting_for_content(self))
            self.connection.event_batch.afterwards(self.dispatch)

    def behind_content(self, act: Callable[[], None]) -> None:
        """Send something when no large content is being sent; where much waits, nothing is read."""
        if self.is_sending_body or self._behind_content:
            self._behind_content.append(act)
            if len(self._behind_content) > MOST_BEHIND:
                self.host.throttle(waiting_for_content(self))
        else:
            act()

    def dispatch(self) -> None:
        """Have more delivered: windows, or the client's flow, have opened."""

    def drop_sending(self) -> None:
        """The channel is over: nothing more is sent."""
        self._behind_content.clear()
        self.host.unthrottle(waiting_for_content(self))
        sending, self.sending = self.sending, None
        if sending is not None:
            self.host.content_output.drop(sending)

    # -- refusal ---------------------------------------------------------------------------------

    def refuse(
        self,
        error: AmqpError | TopologyFault,
        method: AmqpMethod,
        kind: TopologyMethod = TopologyMethod.OTHER,
    ) -> bool:
        """Refuse a method; False where this version has no objection, and it succeeds."""
        if isinstance(error, TopologyFault):
            code = topology_reply(error.kind, self.host.version, kind)
            if code is None:
                return False
            self.fail(code, error.text, method)
        elif (error.info or {}).get("code") == "policy.user-id":
            self.fail(ReplyCode.PRECONDITION_FAILED, error.description, method)
        else:
            self.fail(reply_code_of(error), error.description, method)
        return True

    def fail(self, code: ReplyCode, words: str, method: AmqpMethod | None = None) -> None:
        """Close channel or connection, by the code's scope, for what the client asks for."""
        self.connection.error_log.add(
            "{connection} ({principal}) channel {channel} is refused {method}: {code} {words}",
            channel=self.channel.number,
            method=method.traits.name if method is not None else "a message",
            code=int(code),
            words=words,
        )
        self.channel.fail(code, reply_text(code, words), method)
        self.closed()

    def closed(self) -> None:
        """The channel is over from our side."""
        self.end()
        self.host.forget_channel(self)
        self.connection.flush()

    def end(self) -> None:
        """Give back what was held on the channel: it is over."""
        self.is_ended = True


def waiting_for_content(channel: ChannelBase) -> Hashable:
    """Return what a connection is throttled for while its client causes more to be sent."""
    return (channel, "content")
