# SPDX-License-Identifier: Apache-2.0
"""Azure's two AMQP clients as a program: one command per process, as JSON on standard input.

A process of its own, as the libraries block, and as one of them is written in C. Links, credit and
settlement are what the libraries do when nothing is asked for: both attach with
rcv-settle-mode second, as senders too, and neither settles what it has sent.

    {"library": "uamqp" or "azure-servicebus", "port": 5671, "trust": "ca.pem", "user": "anna",
     "password": "secret", "node": "orders", "verb": "send", "bodies": ["one", "two"]}

``send`` takes ``bodies``, or ``count`` and ``size`` for bodies of this many octets, and answers
with a word for each message: "sent", or what has gone wrong. ``receive`` takes ``outcomes``, one
for each message that is to come, and answers with the bodies, or with number, length and digest
where there is ``digest``. ``options`` are the library's own. What fails as a whole is ``{"failed":
"..."}``.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

HOST = "localhost"
SECONDS = 20.0
LONGEST = 40.0
"""Seconds; then it ends with a traceback that says where it hangs."""


def bodies_of(command: dict[str, Any]) -> list[bytes]:
    """Return the bodies that a command asks to be sent."""
    if command.get("bodies"):
        return [each.encode() for each in command["bodies"]]
    size = command["size"]
    return [(b"%08d" % number).ljust(size, b"x")[:size] for number in range(command["count"])]


class Uamqp:
    """The C library, with its Python surface."""

    def __init__(self, command: dict[str, Any]) -> None:
        import uamqp

        self._library = uamqp
        self._command = command

    def _authentication(self) -> Any:
        command = self._command
        return self._library.authentication.SASLPlain(
            HOST,
            command["user"],
            command["password"],
            port=command["port"],
            verify=command["trust"],
        )

    def _place(self) -> str:
        return f"amqps://{HOST}/{self._command['node']}"

    def send(self) -> list[str]:
        """Queue the messages and wait for all of them."""
        # The timeout is in milliseconds: that of a message, from when it was queued.
        client = self._library.SendClient(
            self._place(),
            auth=self._authentication(),
            msg_timeout=int(SECONDS * 1000),
            **self._command.get("options", {}),
        )
        messages = [self._library.Message(body) for body in bodies_of(self._command)]
        try:
            client.queue_message(*messages)
            states = client.send_all_messages(close_on_done=False)
            return [
                "sent"
                if state == self._library.constants.MessageState.SendComplete
                else f"{type(message._response).__name__}: {message._response}"
                for state, message in zip(states, messages, strict=True)
            ]
        finally:
            client.close()

    def receive(self) -> Iterator[bytes]:
        """Take one message for each outcome and settle it with that."""
        outcomes = list(self._command["outcomes"])
        client = self._library.ReceiveClient(
            self._place(),
            auth=self._authentication(),
            auto_complete=False,
            prefetch=min(300, len(outcomes)),
            timeout=int(SECONDS * 1000),
            **self._command.get("options", {}),
        )
        settle = {"accepted": "accept", "released": "release", "rejected": "reject",
                  "modified": "modify"}  # fmt: skip
        try:
            for message in client.receive_messages_iter():
                arguments = (True, False) if outcomes[0] == "modified" else ()
                getattr(message, settle[outcomes.pop(0)])(*arguments)
                yield b"".join(message.get_data())
                if not outcomes:
                    break
            for _ in range(3):
                client.do_work()  # what has been settled is to be written
        finally:
            client.close()


class ServiceBus:
    """The client inside azure-servicebus, below what is particular to the service."""

    def __init__(self, command: dict[str, Any]) -> None:
        import azure.servicebus._pyamqp.authentication as authentication
        import azure.servicebus._pyamqp.client as client
        import azure.servicebus._pyamqp.message as message

        self._client, self._message = client, message
        self._command = command
        self._options: dict[str, Any] = {
            "auth": authentication.SASLPlainAuth(command["user"], command["password"]),
            "custom_endpoint_address": f"amqps://{HOST}:{command['port']}",
            "connection_verify": command["trust"],
        }

    def send(self) -> list[str]:
        """Send the messages one after the other, each when the one before has its outcome."""
        words = []
        with self._client.SendClient(HOST, self._command["node"], **self._options) as client:
            for body in bodies_of(self._command):
                try:
                    client.send_message(self._message.Message(data=[body]), timeout=SECONDS)
                    words.append("sent")
                except Exception as error:
                    words.append(f"{type(error).__name__}: {error}")
                    break
        return words

    def receive(self) -> Iterator[bytes | None]:
        """Take one message for each outcome and settle it with that, if asked to with a wait.

        None is the body of a message that has none.
        """
        outcomes = list(self._command["outcomes"])
        options = {
            **self._options,
            "link_credit": min(300, len(outcomes)),
            **self._command.get("options", {}),
        }
        with self._client.ReceiveClient(HOST, self._command["node"], **options) as client:
            end = time.monotonic() + SECONDS
            while outcomes and time.monotonic() < end:
                client.do_work()
                arrived = client._received_messages
                while outcomes and not arrived.empty():
                    frame, message = arrived.get()
                    client.settle_messages(
                        frame[1],
                        frame[2],
                        outcomes.pop(0),
                        await_outcome=self._command.get("wait", False),
                        outcome_timeout=SECONDS,
                    )
                    yield None if message.data is None else b"".join(message.data)


LIBRARIES = {"uamqp": Uamqp, "azure-servicebus": ServiceBus}


def run(command: dict[str, Any]) -> Any:
    """Do what a command says."""
    client = LIBRARIES[command["library"]](command)
    if command["verb"] == "send":
        return client.send()
    got = list(client.receive())
    if command.get("digest"):
        each = [[body[:8].decode(), len(body), hashlib.sha256(body).hexdigest()] for body in got]
        return each
    return [None if body is None else body.decode() for body in got]


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        answer = run(json.load(sys.stdin))
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))
