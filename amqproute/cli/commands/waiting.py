# SPDX-License-Identifier: Apache-2.0
"""The notice of ``send`` while it waits for credit, with the reason if known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.client_links import Sender
from amqproute.cli.command_error import ClientError
from amqproute.cli.commands.management_request import ask, query

__all__ = ["CREDIT_NOTICE_SECONDS", "notice_of_no_credit", "reasons_without_credit"]

CREDIT_NOTICE_SECONDS: Final = 2.0
"""Seconds without credit before the notice."""
LOOK_SECONDS: Final = 0.5


@contextmanager
def notice_of_no_credit(reactor: IReactorTime, client: Client, sender: Sender) -> Iterator[None]:
    """Print on stderr, once, that messages wait for credit, and the reason if known.

    Args:
        reactor: the reactor for timers.
        client: the connection.
        sender: the link.
    """
    notice = _Notice(reactor, client, sender)
    try:
        yield
    finally:
        notice.stop()


class _Notice:
    """Checks a link from time to time, until it has printed a notice or is stopped."""

    def __init__(self, reactor: IReactorTime, client: Client, sender: Sender) -> None:
        self._reactor = reactor
        self._client = client
        self._sender = sender
        self._since: float | None = None
        self._is_over = False
        self._call: IDelayedCall | None = reactor.callLater(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop the checks."""
        self._is_over = True
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        now = self._reactor.seconds()
        if not self._sender.waits_for_credit:
            self._since = None
        elif self._since is None:
            self._since = now - LOOK_SECONDS
        elif now - self._since >= CREDIT_NOTICE_SECONDS:
            self._say()
            return
        self._call = self._reactor.callLater(LOOK_SECONDS, self._look)

    def _say(self) -> None:
        seconds = self._client.answer_seconds
        _echo(
            f"waiting for credit: the broker takes no messages for {self._sender.name} at present; "
            f"given up after {seconds:g} s without any"
        )
        reasons = Deferred.fromCoroutine(reasons_without_credit(self._client, self._sender.name))
        reasons.addCallbacks(self._say_why, lambda failure: failure.trap(ClientError))

    def _say_why(self, reasons: list[str]) -> None:
        if not self._is_over:
            for reason in reasons:
                _echo(f"  {reason}")


async def reasons_without_credit(client: Client, address: str) -> list[str]:
    """Ask the broker for reasons why a sender has no credit; empty if it knows none.

    Args:
        client: the connection; its user needs the right to ask.
        address: the sender's target.

    Raises:
        ClientError: the broker does not answer.
    """
    reasons = [
        f"{row['name']}: {row['reason']}"
        for row in await query(client, "watermark")
        if row["state"] == "closed"
    ]
    own = [
        row["principal"]
        for row in await query(client, "connection")
        if row["container"] == client.container_id
    ]
    reasons += [
        f"contract of {row['name']}: its bound {row['limiter']} is reached"
        for row in await query(client, "contract")
        if row["limiter"] and row["name"] in own
    ]
    with suppress(ClientError):  # queues of other brokers are not known
        row = await ask(client, "READ", "queue", address)
        capacity, depth = row.get("options", {}).get("capacity"), row["depth"]
        if capacity and depth >= capacity:
            reasons.append(f"queue {row['name']} is at its capacity: {depth} of {capacity}")
    return reasons


def _echo(text: object) -> None:
    click.echo(render.printable(str(text)), err=True)
