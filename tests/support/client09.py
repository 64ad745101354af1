# SPDX-License-Identifier: Apache-2.0
"""A client of 0-9 and 0-9-1 for brokers in memory; it reads and writes by `plain_amqp09` alone."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import succeed

from amqproute.auth.realm import Authenticator, Verifier
from amqproute.broker.queue_declarations import HostedDeclarations
from amqproute.frontends.amqp09.amqp09_context import Amqp09Context
from amqproute.frontends.amqp09.frontend09 import Frontend09
from amqproute.net.pump import EngineProtocol, Make, TransportFacts
from amqproute.values import Principal
from amqproute.wire.amqp09.connection09 import Connection09
from tests.conformance.frame_broker import End, FrameBroker
from tests.support.plain_amqp09 import FLAGS, IDS, frame_octets, frames, header, method
from tests.support.wire09 import V091, call, content, settings

ANN = Principal("user", "ann")
CAPABILITIES = ("authentication_failure_close", "connection.blocked", "consumer_cancel_notify")
_NAMES = (f"gen-{number}" for number in range(1 << 30))


def context09(house: FrameBroker) -> Amqp09Context:
    """Return the shared context of a broker's connections."""
    found: Amqp09Context | None = getattr(house, "amqp09", None)
    if found is None:
        found = Amqp09Context(
            house.shared,
            HostedDeclarations(house.broker, house.inventory, house.world.clock),
            lambda: next(_NAMES),
        )
        house.amqp09 = found  # type: ignore[attr-defined]
    return found


def maker09(house: FrameBroker, principal: Principal = ANN, **changes: Any) -> Make:
    """Return the factory of a connection's engine and frontend."""
    clock = house.world.clock
    authenticator = Authenticator(
        ["ANONYMOUS"],
        users=None,
        verifier=Verifier(clock, lambda check, *args: succeed(check(*args))),
        login_key=b"k" * 32,
        random_bytes=bytes,
    )
    authenticator.principal = lambda credentials: principal  # type: ignore[method-assign]

    def make(facts: TransportFacts) -> tuple[Connection09, Frontend09]:
        engine = Connection09(settings(mechanisms=("ANONYMOUS",), **changes))
        return engine, Frontend09(engine, context09(house), authenticator, facts)

    return make


class Client09:
    """A connection to a broker.

    Attributes:
        methods: channel, name and arguments of received methods that were not taken yet.
        contents: channel, name, arguments, properties and body of the contents.
    """

    def __init__(
        self,
        house: FrameBroker,
        principal: Principal = ANN,
        version: bytes = V091,
        virtual_host: str = "/",
        capabilities: tuple[str, ...] = CAPABILITIES,
        **changes: Any,
    ) -> None:
        self.house = house
        self.world = house.world
        protocol = EngineProtocol(maker09(house, principal, **changes), house.world.clock)
        self.end = End(protocol)
        self.methods: list[tuple[int, str, dict[str, Any]]] = []
        self.contents: list[tuple[int, str, dict[str, Any], dict[str, Any], bytes]] = []
        self._buffer = b""
        self._open: dict[int, list[Any]] = {}
        protocol.makeConnection(self.end)
        table = [("capabilities", "F", [(name, "t", 1) for name in capabilities])]
        self.write(
            version,
            call(
                0,
                "connection.start-ok",
                client_properties=table,
                mechanism="ANONYMOUS",
                response=b"",
                locale="en_US",
            ),
            call(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0),
            call(0, "connection.open", virtual_host=virtual_host),
        )

    def write(self, *octets: bytes) -> Client09:
        """Write octets in one segment; then run everything due."""
        if not self.end.is_gone:
            self.end.protocol.dataReceived(b"".join(octets))
        return self.run()

    def run(self, seconds: float = 0.0) -> Client09:
        """Let time pass."""
        self.world.advance(seconds)
        self._read()
        if self.end.disconnecting and not self.end.is_gone:
            self.end.gone()
            self.world.advance()
        return self

    def hang_up(self) -> None:
        """Break the connection silently."""
        self.end.gone()
        self.world.advance()

    def _read(self) -> None:
        data = self._buffer + self.end.value()
        self.end.clear()
        for kind, channel, payload in frames(data):
            if kind == 1:
                name, arguments = method(payload)
                if "content" in FLAGS[name]:
                    self._open[channel] = [name, arguments]
                else:
                    self.methods.append((channel, name, arguments))
            elif kind == 2:
                _, size, properties = header(payload)
                self._open[channel] += [properties, size, b""]
                self._close(channel)
            elif kind == 3:
                self._open[channel][4] += payload
                self._close(channel)

    def _close(self, channel: int) -> None:
        name, arguments, properties, size, body = self._open[channel]
        if len(body) == size:
            self.contents.append((channel, name, arguments, properties, body))
            self.methods.append((channel, name, arguments))

    # -- verbs -----------------------------------------------------------------------------------

    def channel(self, *numbers: int) -> Client09:
        """Open channels; discard the answers."""
        self.write(*(call(number, "channel.open") for number in numbers or (1,)))
        self.methods.clear()
        return self

    def ask(self, name: str, /, channel: int = 1, **arguments: Any) -> list[str]:
        """Send a method; return the names of the answers on that channel."""
        self.methods.clear()
        self.contents.clear()
        self.write(call(channel, name, **arguments))
        return [each for number, each, _ in self.methods if number == channel]

    def answer(self, name: str, /, channel: int = 1, **arguments: Any) -> dict[str, Any]:
        """Send a method; return the arguments of the only answer."""
        self.ask(name, channel, **arguments)
        ((_, _, found),) = self.methods
        return found

    def closes(self) -> list[tuple[str, int]]:
        """Return the closed channels or connection, and the codes."""
        return [
            (name.partition(".")[0], arguments["reply-code"])
            for _, name, arguments in self.methods
            if name in ("channel.close", "connection.close")
        ]

    def refused(self, name: str, /, channel: int = 1, **arguments: Any) -> tuple[str, int]:
        """Send a method that is refused; return what is closed, and the code."""
        self.ask(name, channel, **arguments)
        (closed,) = self.closes()
        if closed[0] == "channel":
            self.write(call(channel, "channel.close-ok"), call(channel, "channel.open"))
        return closed

    def publish(
        self,
        *bodies: bytes,
        key: str = "q",
        channel: int = 1,
        properties: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Client09:
        """Publish contents in one segment."""
        return self.write(
            *(
                content(channel, "basic.publish", body, properties, routing_key=key, **arguments)
                for body in bodies
            )
        )

    def put(
        self,
        name: str,
        /,
        *bodies: bytes,
        channel: int = 1,
        properties: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Client09:
        """Send contents of any class in one segment."""
        return self.write(
            *(
                content(channel, name, body, properties, class_id=IDS[name][0], **arguments)
                for body in bodies
            )
        )

    def names(self) -> list[str]:
        """Return the names of the received methods, and discard them."""
        found = [name for _, name, _ in self.methods]
        self.methods.clear()
        return found

    def bodies(self) -> list[bytes]:
        """Return the received bodies, and discard them."""
        found = [body for *_, body in self.contents]
        self.contents.clear()
        self.methods.clear()
        return found

    def tags(self) -> list[int]:
        """Return the delivery tags of the received contents."""
        return [arguments["delivery-tag"] for _, _, arguments, _, _ in self.contents]

    def depth(self, name: str = "q") -> int:
        """Return the number of messages on a queue."""
        return int(self.house.broker.nodes[name].depth)


HEARTBEAT = frame_octets(8, 0, b"")
